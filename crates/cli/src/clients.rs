//! Which clients a listening command lets in: pins, a list in a file, or an authority.
//!
//! The file is read again when it has changed, so that clients are added to a running server. A
//! client that is not in it is refused in the handshake, and the log names its key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use towline::config::{ClientAuth, KeyList};
use towline::identity::{IdentityKind, KeyPin, KnownPeers};

use crate::certs;
use crate::exit::{Exit, Failure};
use crate::url::parse_key_pin;
use crate::watched::Watched;

/// Whom to let in; everybody if nothing is said.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClientArgs {
    /// Let in clients with this key, as their `towline cert pin` prints it (repeatable)
    #[arg(long, value_name = "PIN", value_parser = parse_key_pin)]
    client_pin: Vec<KeyPin>,
    /// Let in clients whose keys are in this file: lines of NAME PIN DAY, read again when it changes
    #[arg(long, value_name = "FILE")]
    known_clients: Option<PathBuf>,
    /// Let in clients whose certificate chains to a CA in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["client_pin", "known_clients", "raw_key"])]
    client_ca: Option<PathBuf>,
}

impl ClientArgs {
    /// The rule, for a server that shows an identity of this kind.
    pub(crate) fn rule(&self, kind: IdentityKind) -> Result<ClientAuth, Failure> {
        if let Some(file) = &self.client_ca {
            return ClientAuth::roots_from_pem(&certs::read(file)?)
                .map_err(|error| Failure::new(Exit::Tls, format!("{}: {error}", file.display())));
        }
        if self.client_pin.is_empty() && self.known_clients.is_none() {
            return Ok(ClientAuth::None);
        }
        let file = self.known_clients.clone().map(KnownClients::open);
        let list = Clients {
            pins: self.client_pin.clone(),
            file: file.transpose()?,
            warned: AtomicU64::new(0),
        };
        Ok(ClientAuth::Listed(kind, Arc::new(list)))
    }
}

/// Pins and a file.
struct Clients {
    pins: Vec<KeyPin>,
    file: Option<KnownClients>,
    /// The second of the last warning: unknown clients must not fill the log.
    warned: AtomicU64,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl KeyList for Clients {
    fn contains(&self, key: &KeyPin) -> bool {
        let file = self.file.as_ref();
        if self.pins.contains(key) || file.is_some_and(|file| file.contains(key)) {
            return true;
        }
        let now = towline::config::unix_now().as_secs();
        if self.warned.swap(now, Ordering::Relaxed) != now {
            tracing::warn!("a client with the key {key} is not let in: nothing names it");
        }
        false
    }
}

/// A list in a file, as it was when it could last be read.
struct KnownClients(Mutex<(Watched, Vec<KeyPin>)>);

impl KnownClients {
    fn open(path: PathBuf) -> Result<Self, Failure> {
        let file = Watched::new(path);
        let keys = keys_in(file.path()).map_err(|why| {
            Failure::usage(why).next(
                "write one client a line, NAME PIN DAY: `boat7 sha256/… 2026-11-22`; an empty file lets nobody in",
            )
        })?;
        Ok(Self(Mutex::new((file, keys))))
    }

    fn contains(&self, key: &KeyPin) -> bool {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, keys) = &mut *read;
        if file.has_changed() {
            match keys_in(file.path()) {
                Ok(new) => *keys = new,
                Err(why) => tracing::warn!("{why}; the list stays as it was"),
            }
        }
        keys.contains(key)
    }
}

fn keys_in(path: &Path) -> Result<Vec<KeyPin>, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let list = KnownPeers::parse(&bytes).map_err(|error| wrong(error.to_string()))?;
    Ok(list.iter().map(|peer| peer.key).collect())
}

#[cfg(test)]
mod tests;
