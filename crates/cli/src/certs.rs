//! The key by which others know this user, the certificate under it, and identities given as files.
//!
//! Kept in `$TOWLINE_HOME`, else `$XDG_DATA_HOME/towline`, else `~/.local/share/towline`. The key is
//! made once and never replaced unless it is asked for: its pin is what others were given. The
//! certificate lives 14 days, as browsers want it, and is made anew when half of them are over. The
//! key file is readable by its owner only.

mod given;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use given::read;
use given::{Given, pair};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::watch;
use towline::config::{Certificates, Identity, Renewal, UnixTime};
use towline_agent::policy::own_key;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;
use crate::units::date;

const CERTIFICATE_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";
/// The raw key of secure TCP.
const RAW_KEY_FILE: &str = "stcp-key.pem";
/// A line before the PEM section, which PEM readers skip: the names in the certificate.
const NAMES_LINE: &str = "towline certificate for";
const DEFAULT_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

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

/// An identity, and what becomes of it as the server runs.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) identity: Identity,
    pub(crate) upkeep: Upkeep,
}

/// How a server's identity is kept valid.
#[derive(Debug)]
pub(crate) enum Upkeep {
    /// A raw key has no end.
    None,
    /// We make certificates anew.
    Renewal(Renewal),
    /// Somebody puts new certificates into the files that were named, and these here show them.
    Files(Certificates),
}

/// Our key and certificate.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) identity: Identity,
    pub(crate) names: Vec<String>,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    /// Whether the certificate was made just now, and whether the key was.
    pub(crate) new_certificate: bool,
    pub(crate) new_key: bool,
}

/// What is to be made although it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anew {
    Nothing,
    Certificate,
    Key,
}

/// Pins of the certificates that browsers may be shown now.
pub(crate) type CertificatePins = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

impl Upkeep {
    /// What says them; none for a raw key.
    pub(crate) fn certificate_pins(&mut self, identity: &Identity) -> CertificatePins {
        let pin = |identity: &Identity| identity.certificate_pin().map(|pin| pin.to_string());
        match self {
            Self::None => Arc::new(Vec::new),
            Self::Files(certificates) => {
                let certificates = certificates.clone();
                Arc::new(move || {
                    let now = towline::config::unix_now();
                    let shown = certificates.identity_for(None, now);
                    shown.iter().filter_map(pin).collect()
                })
            }
            Self::Renewal(renewal) => {
                let (latest, current) = watch::channel(pin(identity));
                let renewed = Arc::clone(&renewal.renewed);
                renewal.renewed = Arc::new(move |identity| {
                    latest.send_replace(pin(identity));
                    renewed(identity);
                });
                Arc::new(move || current.borrow().iter().cloned().collect())
            }
        }
    }
}

impl CertArgs {
    /// The identity to serve with.
    pub(crate) fn serving(&self, printer: Printer) -> Result<Serving, Failure> {
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let given = Given::open(cert.clone(), key.clone())?;
            return Ok(Serving {
                identity: given.identity().clone(),
                upkeep: Upkeep::Files(given.shown(printer)?),
            });
        }
        let kept = kept(Anew::Nothing, &[])?;
        Ok(match self.raw_key {
            true => Serving {
                identity: kept.raw()?,
                upkeep: Upkeep::None,
            },
            false => Serving {
                upkeep: Upkeep::Renewal(kept.renewal()),
                identity: kept.identity,
            },
        })
    }

    /// The identity to show to servers that ask: the one given, or ours if there is one. A key is
    /// made only where somebody wants to know its pin.
    pub(crate) fn showing(&self, raw: bool) -> Result<Option<Identity>, Failure> {
        let given = self.given()?;
        if given.is_some() {
            return Ok(given);
        }
        if !home("our key").is_ok_and(|folder| folder.join(KEY_FILE).exists()) {
            return Ok(None);
        }
        let ours = kept(Anew::Nothing, &[]).and_then(|kept| match raw {
            true => kept.raw(),
            false => Ok(kept.identity),
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

impl Kept {
    /// The same key without a certificate; its pin is the same.
    fn raw(&self) -> Result<Identity, Failure> {
        Identity::raw_key_from_der(self.identity.private_key_der())
            .map_err(|error| Failure::new(Exit::Tls, error.to_string()))
    }

    /// What a server needs to renew the certificate as it runs; new ones are kept too, so that
    /// `cert show` tells what is served.
    fn renewal(&self) -> Renewal {
        let (file, names) = (self.certificate_file.clone(), self.names.clone());
        let renewed = move |identity: &Identity| {
            let (file, names, identity) = (file.clone(), names.clone(), identity.clone());
            // Files are no business of the network's threads.
            std::thread::spawn(move || {
                let kept = keep_certificate(&file, &identity, &names);
                match (kept, identity.validity()) {
                    (Ok(()), Some((_, end))) => {
                        tracing::info!("the certificate was renewed, until {}", date(end));
                    }
                    (Err(error), _) => {
                        tracing::warn!("the renewed certificate cannot be kept: {error}");
                    }
                    _ => {}
                }
            });
        };
        Renewal::new(self.names.clone(), Arc::new(renewed))
    }
}

/// Where keys are kept; `what` is looked for there.
pub(crate) fn home(what: &str) -> Result<PathBuf, Failure> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("TOWLINE_HOME")
        .or_else(|| set("XDG_DATA_HOME").map(|data| data.join("towline")))
        .or_else(|| set("HOME").map(|home| home.join(".local/share/towline")))
        .ok_or_else(|| {
            Failure::usage(format!("no place for {what}")).next("set TOWLINE_HOME to a folder")
        })
}

/// Loads our key and certificate, and makes what is missing, due, or asked for.
pub(crate) fn kept(anew: Anew, names: &[String]) -> Result<Kept, Failure> {
    let folder = home("our key")?;
    let now = towline::config::unix_now();
    kept_in(&folder, anew, names, now)
}

fn kept_in(folder: &Path, anew: Anew, names: &[String], now: UnixTime) -> Result<Kept, Failure> {
    let (certificate_file, key_file) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
    let cannot_keep = |error: std::io::Error| {
        let message = format!("our key cannot be kept in {}: {error}", folder.display());
        Failure::new(Exit::Other, message)
            .next("set TOWLINE_HOME to a folder that can be written, or give --cert and --key")
    };
    let there = match anew {
        Anew::Key => None,
        Anew::Nothing | Anew::Certificate => read_key(&key_file)?,
    };
    let (key, new_key) = match there {
        Some(key) => (key, false),
        None => {
            let new = Identity::generate_dev::<&str>(&[], now)
                .map_err(|error| Failure::new(Exit::Other, error.to_string()))?;
            let text = new.private_key_pem();
            fs::create_dir_all(folder)
                .and_then(|()| keep_key(&key_file, &text, anew == Anew::Key))
                .map_err(cannot_keep)?;
            // Another process may have been faster: its key counts.
            let key = read_key(&key_file)?.unwrap_or_else(|| text.into_bytes());
            (key, true)
        }
    };
    let there = fs::read_to_string(&certificate_file).unwrap_or_default();
    let names = match names {
        [] => names_in(&there),
        names => names.to_vec(),
    };
    let current = Identity::from_pem(there.as_bytes(), &key).ok();
    let current = current.filter(|it| anew == Anew::Nothing && !it.is_renewal_due(now));
    let new_certificate = current.is_none();
    let identity = match current {
        Some(identity) => identity,
        None => {
            let identity = Identity::certify_pem(&key, &names, now).map_err(|error| {
                Failure::new(Exit::Tls, format!("{}: {error}", key_file.display()))
            })?;
            // One that is not kept is made again at the next start: only the key has to stay.
            if let Err(error) = keep_certificate(&certificate_file, &identity, &names) {
                tracing::warn!("{} cannot be written: {error}", certificate_file.display());
            }
            identity
        }
    };
    Ok(Kept {
        identity,
        names,
        certificate_file,
        key_file,
        new_certificate,
        new_key,
    })
}

/// The names that the last certificate had, or the usual ones.
fn names_in(certificate: &str) -> Vec<String> {
    let first = certificate.lines().next().unwrap_or_default();
    match first.strip_prefix(NAMES_LINE) {
        Some(names) => names.split_whitespace().map(str::to_owned).collect(),
        None => DEFAULT_NAMES.map(str::to_owned).to_vec(),
    }
}

/// The key file; `None` if there is none. What is there and cannot be used is never replaced
/// without a word: others were given its pin.
fn read_key(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let wrong =
        |what: String| Failure::new(Exit::Tls, format!("our key, {}: {what}", path.display()));
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path);
    let mut file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return Err(wrong(
                "it is a symbolic link, and has to be the key itself".into(),
            ));
        }
        Err(error) => return Err(wrong(error.to_string())),
    };
    let metadata = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("it is not a file".into()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(wrong(format!(
            "others may use it (mode {:04o})",
            metadata.mode() & 0o7777
        ))
        .next(format!(
            "if nobody has read it, `chmod 600 {}`; else `towline cert dev --new-key`, and give others the new pin",
            path.display()
        )));
    }
    let mut key = Vec::new();
    file.read_to_end(&mut key)
        .map_err(|error| wrong(error.to_string()))?;
    Ok(Some(key))
}

/// Puts a key in place whole. Unless it is to be replaced, whoever is faster wins.
fn keep_key(path: &Path, text: &str, replace: bool) -> std::io::Result<()> {
    let draft = write_draft(path, text, 0o600)?;
    if replace {
        return fs::rename(&draft, path);
    }
    let kept = match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    };
    fs::remove_file(&draft)?;
    kept
}

fn keep_certificate(path: &Path, identity: &Identity, names: &[String]) -> std::io::Result<()> {
    let pem = identity.certificate_pem().unwrap_or_default();
    let text = format!("{NAMES_LINE} {}\n{pem}", names.join(" "));
    let draft = write_draft(path, &text, 0o644)?;
    fs::rename(&draft, path)
}

/// A new file beside `path`, which takes its place when it is whole.
fn write_draft(path: &Path, text: &str, mode: u32) -> std::io::Result<PathBuf> {
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let now = towline::config::unix_now().as_secs();
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("{}-{number}-{now}.tmp", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(draft)
}

/// Loads this machine's raw key, or makes it at the first use.
pub(crate) fn raw_key() -> Result<Identity, Failure> {
    let folder = home("our key")?;
    own_key(&folder.join(RAW_KEY_FILE)).map_err(|error| {
        Failure::new(Exit::Tls, error.to_string())
            .next("set TOWLINE_HOME to a folder that can be written, or give --key FILE")
    })
}

#[cfg(test)]
mod tests;
