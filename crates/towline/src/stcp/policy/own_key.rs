//! A raw key of our own in a file, made at its first use.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use towline_identity::Identity;

use super::PolicyError;

/// For names that no other thread has.
static DRAFTS: AtomicU32 = AtomicU32::new(0);

/// The raw key in `file`, made now if there is none, for its owner only. Processes that come at
/// once get the same key.
///
/// # Errors
/// When the file holds no key, or can be neither read nor made.
pub fn own_key(file: &Path) -> Result<Identity, PolicyError> {
    let wrong = |problem: String| PolicyError {
        file: file.to_owned(),
        line: None,
        problem,
    };
    let pem = match fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let identity =
                Identity::generate_raw_key().map_err(|error| wrong(error.to_string()))?;
            keep(file, &identity)
                .map_err(|error| wrong(format!("our key cannot be kept: {error}")))?;
            fs::read(file)
        }
        read => read,
    };
    let pem = pem.map_err(|error| wrong(error.to_string()))?;
    // A new one instead of a broken one would have another pin, which somebody may have been given.
    Identity::raw_key_from_pem(&pem).map_err(|error| wrong(error.to_string()))
}

/// Puts the key in place whole, unless somebody else was faster.
fn keep(file: &Path, identity: &Identity) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let (process, number) = (std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed));
    let draft = file.with_extension(format!("{process}-{number}.tmp"));
    let mut out = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    let kept = out
        .write_all(identity.private_key_pem().as_bytes())
        .and_then(|()| out.sync_all())
        .and_then(|()| match fs::hard_link(&draft, file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    fs::remove_file(&draft)?;
    kept
}
