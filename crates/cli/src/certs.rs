//! The key by which others know this user, the certificates under it, and identities given as files.
//!
//! Kept in `$TOWLINE_HOME`, else `$XDG_DATA_HOME/towline`, else `~/.local/share/towline`. The key is
//! made once and never replaced unless it is asked for: its pin is what others were given. Certificates
//! live 14 days, as browsers want it; a server knows the next one a week before it shows it. The
//! key file is readable by its owner only.

mod folder;
mod given;
mod home;
mod own;
mod serving;

use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use folder::{Anew, Next, kept, rotated};
pub(crate) use given::read;
use given::{Given, pair};
pub(crate) use home::home;
use own::Own;
pub(crate) use serving::{CertificatePins, Serving};
use towline::config::Identity;
use towline_agent::policy::own_key;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// The raw key of secure TCP.
const RAW_KEY_FILE: &str = "stcp-key.pem";

/// Who we are.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CertArgs {
    /// Our certificate chain in PEM; a server reads it and --key again when they change. Without it one is
    /// made and renewed under our own key
    #[arg(
        long,
        value_name = "FILE",
        requires = "key",
        conflicts_with = "raw_key"
    )]
    pub(crate) cert: Option<PathBuf>,
    /// Private key in PEM, for --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Raw public keys on both sides (RFC 7250) instead of certificates: no dates, no browsers
    #[arg(long)]
    pub(crate) raw_key: bool,
}

impl CertArgs {
    /// The identity to serve with, kept valid from now on.
    pub(crate) fn serving(&self, printer: Printer) -> Result<Serving, Failure> {
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            return Given::open(cert.clone(), key.clone())?.serve(printer);
        }
        if !self.raw_key {
            return Own::open()?.serve(printer);
        }
        Ok(Serving {
            identity: kept(Anew::Nothing, &[])?.raw()?,
            certificates: None,
            pins: Arc::new(Vec::new),
        })
    }

    /// The identity to show to servers that ask: the one given, or ours if there is one. A key is
    /// made only where somebody wants to know its pin.
    pub(crate) fn showing(&self, raw: bool) -> Result<Option<Identity>, Failure> {
        let given = self.given()?;
        if given.is_some() {
            return Ok(given);
        }
        if !home("our key").is_ok_and(|folder| folder.join(folder::KEY_FILE).exists()) {
            return Ok(None);
        }
        let ours = kept(Anew::Nothing, &[]).and_then(|kept| match raw {
            true => kept.raw(),
            false => Ok(kept.rotation.shown().clone()),
        });
        match ours {
            Ok(identity) => Ok(Some(identity)),
            // Most servers do not ask.
            Err(failure) => {
                tracing::warn!("a server that asks who we are is not told: {failure}");
                Ok(None)
            }
        }
    }

    fn given(&self) -> Result<Option<Identity>, Failure> {
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => pair(cert, key).map(Some),
            _ => Ok(None),
        }
    }
}

/// Loads this machine's raw key, or makes it at the first use.
pub(crate) fn raw_key() -> Result<Identity, Failure> {
    let folder = home("our key")?;
    own_key(&folder.join(RAW_KEY_FILE)).map_err(|error| {
        Failure::new(Exit::Tls, error.to_string())
            .next("set TOWLINE_HOME to a folder that can be written, or give --key FILE")
    })
}
