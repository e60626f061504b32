//! The file of known peers: read when it has changed, replaced as a whole when a peer is new.
//!
//! A new peer is on disk before its connection carries a byte: lock, read again, write beside,
//! fsync, rename, fsync the folder. A reader without the lock sees the old list or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use towline_identity::{KeyPin, KnownPeers, KnownPeersError, Lookup, UnixTime};

/// Longest file that is read; [`towline_identity::MAX_KNOWN_PEERS`] lines with long names fit.
const MAX_FILE: u64 = 8 << 20;

/// Between two writes, in times of what the first took: new peers must not keep the disk busy.
const REST: u32 = 4;

/// No longer, however slow the disk is.
const MOST_REST: Duration = Duration::from_millis(250);

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

/// Whom a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// One key each.
    Servers,
    /// Several at one address.
    Clients,
}

/// The file, and what it said when it was read last. Every call may wait for the disk.
#[derive(Debug)]
pub(super) struct KnownPeersFile {
    path: PathBuf,
    whose: Whose,
    /// As long as the file is the same.
    read: Mutex<Option<(Version, Arc<KnownPeers>)>>,
    /// Peers that the next writer writes as well.
    new_peers: Mutex<Vec<NewPeer>>,
    /// Held by the one who writes; before then nobody does again.
    writing: Mutex<Option<Instant>>,
}

/// What changes with a file: where it is, its length, and when it was written.
type Version = (u64, u64, u64, i64, i64, i64, i64);

/// A peer to be written to the list.
#[derive(Debug)]
struct NewPeer {
    name: String,
    key: KeyPin,
    answer: Sender<Result<Meeting, KnownPeersFileError>>,
}

impl KnownPeersFile {
    pub(super) fn new(path: PathBuf, whose: Whose) -> Self {
        Self {
            path,
            whose,
            read: Mutex::default(),
            new_peers: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the list says of `name`; `None` of whom it does not know. It waits for no writer.
    pub(super) fn look_up(
        &self,
        name: &str,
        key: &KeyPin,
    ) -> Result<Option<Meeting>, KnownPeersFileError> {
        let mut read = lock(&self.read);
        let version = version(&self.path).map_err(|error| self.io(error))?;
        let list = match &*read {
            Some((known, list)) if Some(known) == version.as_ref() => Arc::clone(list),
            _ => {
                let list = Arc::new(self.read_now()?);
                // One that changed meanwhile is read again.
                *read = version.map(|version| (version, Arc::clone(&list)));
                list
            }
        };
        drop(read);
        Ok(self.met_before(&list, name, key))
    }

    /// Adds `name`. Peers that come while one is being written are written together, so that many new
    /// peers cost no more than a few; and between two writes is a pause.
    pub(super) fn introduce(
        &self,
        name: &str,
        key: KeyPin,
    ) -> Result<Meeting, KnownPeersFileError> {
        let (sender, answer) = channel();
        lock(&self.new_peers).push(NewPeer {
            name: name.to_owned(),
            key,
            answer: sender,
        });
        let mut rest = lock(&self.writing);
        loop {
            // The one before may have written this one down as well.
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Disconnected) => return Err(self.io(ErrorKind::Other.into())),
                Err(TryRecvError::Empty) => {}
            }
            if let Some(until) = rest.take() {
                wait_until(until);
            }
            let new_peers = std::mem::take(&mut *lock(&self.new_peers));
            let began = Instant::now();
            let met = self.write_down(&new_peers);
            *rest = Some(Instant::now() + (began.elapsed() * REST).min(MOST_REST));
            for (index, peer) in new_peers.into_iter().enumerate() {
                let answer = match &met {
                    Ok(met) => met[index].clone().map_err(|error| self.text(error)),
                    Err(error) => Err(error.again()),
                };
                let _ = peer.answer.send(answer);
            }
        }
    }

    fn write_down(
        &self,
        new_peers: &[NewPeer],
    ) -> Result<Vec<Result<Meeting, KnownPeersError>>, KnownPeersFileError> {
        let io = |error| self.io(error);
        let _lock = lock_for(&self.path).map_err(io)?;
        let mut list = self.read_now()?;
        let mut displaced = Vec::new();
        let met: Vec<_> = new_peers
            .iter()
            .map(|NewPeer { name, key, .. }| {
                // Somebody else may have met it meanwhile.
                if let Some(meeting) = self.met_before(&list, name, key) {
                    return Ok(meeting);
                }
                let now = UnixTime::now();
                displaced.extend(match self.whose {
                    Whose::Servers => list.add_server(name, *key, now),
                    Whose::Clients => list.add_client(name, *key, now),
                }?);
                Ok(Meeting::First)
            })
            .collect();
        if met.contains(&Ok(Meeting::First)) {
            replace(&self.path, &list.emit()).map_err(io)?;
        }
        if let Some(peer) = displaced.first() {
            tracing::warn!(
                file = %self.path.display(), peer = peer.name,
                "the list is full: {} lines went, of the addresses with the most", displaced.len()
            );
        }
        Ok(met)
    }

    fn met_before(&self, list: &KnownPeers, name: &str, key: &KeyPin) -> Option<Meeting> {
        match list.lookup(name, key) {
            Lookup::Known => Some(Meeting::Known),
            Lookup::Changed { expected } if self.whose == Whose::Servers => {
                Some(Meeting::Changed { expected })
            }
            Lookup::New | Lookup::Changed { .. } => None,
        }
    }

    fn read_now(&self) -> Result<KnownPeers, KnownPeersFileError> {
        let bytes = read(&self.path).map_err(|error| self.io(error))?;
        KnownPeers::parse(&bytes).map_err(|error| self.text(error))
    }

    fn io(&self, error: io::Error) -> KnownPeersFileError {
        KnownPeersFileError::Io {
            path: self.path.clone(),
            error,
        }
    }

    fn text(&self, error: KnownPeersError) -> KnownPeersFileError {
        KnownPeersFileError::Text {
            path: self.path.clone(),
            error,
        }
    }
}

impl KnownPeersFileError {
    /// The same for somebody else.
    fn again(&self) -> Self {
        match self {
            Self::Io { path, error } => Self::Io {
                path: path.clone(),
                error: match error.raw_os_error() {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::new(error.kind(), error.to_string()),
                },
            },
            Self::Text { path, error } => Self::Text {
                path: path.clone(),
                error: error.clone(),
            },
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "this thread waits for the disk as well"
)]
fn wait_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half done while one is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` where there is no file.
fn version(path: &Path) -> io::Result<Option<Version>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(file) => Ok(Some((
            file.dev(),
            file.ino(),
            file.len(),
            file.mtime(),
            file.mtime_nsec(),
            file.ctime(),
            file.ctime_nsec(),
        ))),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(metadata) if metadata.len() > MAX_FILE => Err(io::Error::new(
            ErrorKind::FileTooLarge,
            "longer than 8 MiB; this cannot be a list of known peers",
        )),
        Ok(_) => fs::read(path),
    }
}

/// A lock that ends with the returned file. Not on the list itself, which is replaced.
fn lock_for(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(lock_file(path))?;
    file.lock()?;
    Ok(file)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // To follow it would let another user, whose folder this may be, choose what root writes.
    if fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink()) {
        return Err(io::Error::other(
            "this is a link, and a new list would take its place: name the file that it leads to in the \
             policy (`known_peers`), or have that file here",
        ));
    }
    let temporary = beside(path, ".new");
    // Of one who was killed: whoever has the lock may write.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::Folder;

    #[test]
    fn new_peers_that_come_together_are_written_together() {
        const MANY: u8 = 40;
        let folder = Folder::new();
        let file = KnownPeersFile::new(folder.0.join("known"), Whose::Clients);
        let first = lock(&file.writing);
        std::thread::scope(|scope| {
            let introduce = |number| {
                let name = format!("10.0.{number}.1");
                let met = file.introduce(&name, KeyPin::from_bytes([number; 32]));
                assert_eq!(met.unwrap(), Meeting::First);
                // All of them are there by now.
                fs::read_to_string(file.path()).unwrap().lines().count()
            };
            let all: Vec<_> = (0..MANY)
                .map(|number| scope.spawn(move || introduce(number)))
                .collect();
            while lock(&file.new_peers).len() < usize::from(MANY) {
                std::thread::yield_now();
            }
            drop(first);
            for one in all {
                assert_eq!(one.join().unwrap(), usize::from(MANY));
            }
        });
    }

    #[test]
    fn a_list_behind_a_link_is_read_and_never_left_behind() {
        let folder = Folder::new();
        let (file, link) = (folder.0.join("list"), folder.0.join("link"));
        let key = KeyPin::from_bytes([7; 32]);
        let text = format!("10.0.0.1 {key} 2026-01-02\n");
        fs::write(&file, &text).unwrap();
        std::os::unix::fs::symlink("list", &link).unwrap();
        let list = KnownPeersFile::new(link.clone(), Whose::Clients);
        let known = list.look_up("10.0.0.1", &key).unwrap();
        assert_eq!(known, Some(Meeting::Known));
        let why = list.introduce("10.0.0.2", key).unwrap_err().to_string();
        assert!(why.contains("link: this is a link"), "{why}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        // Nor where it leads to nothing yet.
        fs::remove_file(&file).unwrap();
        assert!(list.introduce("10.0.0.2", key).is_err());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(!file.exists());
    }
}
