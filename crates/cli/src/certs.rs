//! The development certificate on disk, and certificates given as files.
//!
//! Kept in `$TOWLINE_HOME`, else `$XDG_DATA_HOME/towline`, else `~/.local/share/towline`, so
//! that the pin stays the same from one start to the next. Renewed when less than a day is
//! left of its 14 days. The key file is readable by its owner only.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use towline::config::{Identity, UnixTime};
use towline::stcp::policy::own_key;
use towline_identity::{BACKDATED_BY, CertificatePin, DEV_LIFETIME};

use crate::exit::{Exit, Failure};

const CERTIFICATE_FILE: &str = "dev-cert.pem";
const KEY_FILE: &str = "dev-key.pem";
/// The raw key of secure TCP, which never expires.
const RAW_KEY_FILE: &str = "stcp-key.pem";
/// A line before the PEM section, which PEM readers skip.
const EXPIRY_LINE: &str = "towline development certificate, expires at unix time ";
const RENEW_BEFORE: Duration = Duration::from_secs(86_400);

/// Where the certificate of a server comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CertArgs {
    /// Certificate chain in PEM; without it a development certificate is made and kept
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key in PEM, for --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

/// The development certificate.
#[derive(Debug)]
pub(crate) struct DevCertificate {
    pub(crate) identity: Identity,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    /// Seconds since 1970.
    pub(crate) expires: u64,
    /// Whether it was made just now.
    pub(crate) new: bool,
}

impl CertArgs {
    /// The identity to serve with.
    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = read(cert)?;
                let key = read(key)?;
                Identity::from_pem(&chain, &key)
                    .map_err(|error| Failure::new(Exit::Tls, error.to_string()))
            }
            _ => Ok(development(false, &[])?.identity),
        }
    }
}

/// Reads a file named on the command line.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))
}

/// The pin to show for an identity: of its certificate.
pub(crate) fn pin_of(identity: &Identity) -> CertificatePin {
    identity
        .certificate_pin()
        .unwrap_or_else(|| CertificatePin::from_bytes(*identity.key_pin().as_bytes()))
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

/// Loads the development certificate, or makes one: when there is none, when it is about to
/// expire, when `anew` asks for it.
pub(crate) fn development(anew: bool, names: &[String]) -> Result<DevCertificate, Failure> {
    let folder = home("the development certificate")?;
    let certificate_file = folder.join(CERTIFICATE_FILE);
    let key_file = folder.join(KEY_FILE);
    let now = towline::config::unix_now();
    if !anew && let Some((identity, expires)) = load(&certificate_file, &key_file, now) {
        return Ok(DevCertificate {
            identity,
            certificate_file,
            key_file,
            expires,
            new: false,
        });
    }
    let identity = generate(names, now)?;
    let expires = now.as_secs() + DEV_LIFETIME.as_secs() - BACKDATED_BY.as_secs();
    let pem = identity.certificate_pem().unwrap_or_default();
    let text = format!("{EXPIRY_LINE}{expires}\n{pem}");
    fs::create_dir_all(&folder)
        .and_then(|()| write_private(&key_file, &identity.private_key_pem(), 0o600))
        .and_then(|()| write_private(&certificate_file, &text, 0o644))
        .map_err(|error| {
            Failure::new(
                Exit::Other,
                format!(
                    "the development certificate cannot be kept in {}: {error}",
                    folder.display()
                ),
            )
            .next("set TOWLINE_HOME to a folder that can be written, or give --cert and --key")
        })?;
    Ok(DevCertificate {
        identity,
        certificate_file,
        key_file,
        expires,
        new: true,
    })
}

/// Loads this machine's raw key, or makes it at the first use.
pub(crate) fn raw_key() -> Result<Identity, Failure> {
    let folder = home("our key")?;
    own_key(&folder.join(RAW_KEY_FILE)).map_err(|error| {
        Failure::new(Exit::Tls, error.to_string())
            .next("set TOWLINE_HOME to a folder that can be written, or give --key FILE")
    })
}

fn generate(names: &[String], now: UnixTime) -> Result<Identity, Failure> {
    let defaults = ["localhost", "127.0.0.1", "::1"].map(String::from);
    let names = if names.is_empty() {
        &defaults[..]
    } else {
        names
    };
    Identity::generate_dev(names, now).map_err(|error| Failure::usage(error.to_string()))
}

fn load(certificate: &Path, key: &Path, now: UnixTime) -> Option<(Identity, u64)> {
    let text = fs::read_to_string(certificate).ok()?;
    let expires: u64 = text
        .lines()
        .next()?
        .strip_prefix(EXPIRY_LINE)?
        .parse()
        .ok()?;
    if expires < now.as_secs() + RENEW_BEFORE.as_secs() {
        return None;
    }
    let identity = Identity::from_pem(text.as_bytes(), &fs::read(key).ok()?).ok()?;
    Some((identity, expires))
}

/// Writes beside the file and renames, so that a reader never sees half of it.
fn write_private(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}
