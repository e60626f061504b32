//! The file of known peers: read at each meeting, replaced as a whole when a peer is new.
//!
//! A new peer is on disk before its connection carries a byte: lock, read again, write beside,
//! fsync, rename, fsync the folder. A reader without the lock sees the old list or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use towline_identity::{KeyPin, KnownPeers, KnownPeersError, Lookup, UnixTime};

/// Longest file that is read; [`towline_identity::MAX_KNOWN_PEERS`] lines with long names fit.
const MAX_FILE: u64 = 8 << 20;

/// What went wrong with the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnownPeersFileError {
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its text is wrong, or it takes no more peers.
    #[error("{}: {error}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Why.
        error: KnownPeersError,
    },
}

/// How a peer stands to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    Known,
    /// It was new, and is written down.
    First,
    Changed {
        expected: KeyPin,
    },
}

/// Looks `name` up, and adds it if it is new.
pub(super) fn meet(path: &Path, name: &str, key: KeyPin) -> Result<Meeting, KnownPeersFileError> {
    if let Some(meeting) = met_before(&read(path)?, name, &key) {
        return Ok(meeting);
    }
    let io = |error| KnownPeersFileError::Io {
        path: path.to_owned(),
        error,
    };
    let _lock = lock(path).map_err(io)?;
    // Somebody else may have met it meanwhile.
    let mut list = read(path)?;
    if let Some(meeting) = met_before(&list, name, &key) {
        return Ok(meeting);
    }
    list.add(name, key, UnixTime::now())
        .map_err(|error| KnownPeersFileError::Text {
            path: path.to_owned(),
            error,
        })?;
    replace(path, &list.emit()).map_err(io)?;
    Ok(Meeting::First)
}

fn met_before(list: &KnownPeers, name: &str, key: &KeyPin) -> Option<Meeting> {
    match list.lookup(name, key) {
        Lookup::New => None,
        Lookup::Known => Some(Meeting::Known),
        Lookup::Changed { expected } => Some(Meeting::Changed { expected }),
    }
}

fn read(path: &Path) -> Result<KnownPeers, KnownPeersFileError> {
    let io = |error| KnownPeersFileError::Io {
        path: path.to_owned(),
        error,
    };
    let bytes = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io(error)),
        Ok(metadata) if metadata.len() > MAX_FILE => {
            return Err(io(io::Error::new(
                ErrorKind::FileTooLarge,
                "longer than 8 MiB; this cannot be a list of known peers",
            )));
        }
        Ok(_) => fs::read(path).map_err(io)?,
    };
    KnownPeers::parse(&bytes).map_err(|error| KnownPeersFileError::Text {
        path: path.to_owned(),
        error,
    })
}

/// A lock that ends with the returned file. Not on the list itself, which is replaced.
fn lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(lock_file(path))?;
    file.lock()?;
    Ok(file)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, ".new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The file that is locked for the list at `path`.
pub(super) fn lock_file(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
