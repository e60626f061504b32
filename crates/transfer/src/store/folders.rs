//! The folders of a destination, opened from its top down, one name at a time.
//!
//! No symlink below the top is followed. The last few descriptors are kept; nothing else keeps one
//! of a folder, for a peer may announce folders without end: it is remembered by path and
//! [`Identity`], and opened again when it is needed.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::refusal::reason_of;
use crate::message::{Reason, Refusal};
use crate::path::printable;

const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Cap: descriptors of folders kept open, each destination.
const MAX_OPEN_FOLDERS: usize = 64;
/// For folders of which the sender says nothing: as everybody makes them.
const ANY_MODE: Mode = Mode::from_raw_mode(0o777);

/// Which folder a path led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// The destination's top, and what was opened below it.
pub(super) struct Folders {
    path: PathBuf,
    /// Opened anew by [`Folders::begin_session`] if `path` is another folder by then.
    root: Mutex<Arc<OwnedFd>>,
    open: Mutex<HashMap<Box<[u8]>, Arc<OwnedFd>>>,
}

impl Folders {
    /// Opens the top, creating it if necessary.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            root: Mutex::new(Arc::new(open_root(path)?)),
            open: Mutex::default(),
        })
    }

    /// The top.
    pub(super) fn root(&self) -> Arc<OwnedFd> {
        let root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&root)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Arc<OwnedFd>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the folders of earlier sessions, and looks for the destination where it was named:
    /// somebody may have moved or removed them. One that cannot be opened shows with each file.
    pub(super) fn begin_session(&self) {
        self.lock().clear();
        let there = rustix::fs::stat(&self.path);
        let ours = rustix::fs::fstat(self.root());
        let is_ours = there
            .is_ok_and(|there| ours.is_ok_and(|ours| Identity::of(&there) == Identity::of(&ours)));
        if !is_ours && let Ok(root) = open_root(&self.path) {
            *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(root);
        }
    }

    /// A folder below the top, made with the folders above it if it is missing.
    pub(super) fn make(&self, path: &[u8]) -> Result<Arc<OwnedFd>, Refusal> {
        self.walk(path, Some(ANY_MODE))
            .map_err(|(at, errno)| folder_refusal(&path[..at], errno))
    }

    /// The same folder as when it had this identity; `None` if there is another one now, or none.
    pub(super) fn find(&self, path: &[u8], identity: Identity) -> Option<Arc<OwnedFd>> {
        let folder = self.walk(path, None).ok()?;
        let stat = rustix::fs::fstat(&*folder).ok()?;
        (Identity::of(&stat) == identity).then_some(folder)
    }

    /// Goes down a path, making what is missing if there is a mode for it. An error comes with the
    /// length of the path that it speaks of.
    fn walk(&self, path: &[u8], mode: Option<Mode>) -> Result<Arc<OwnedFd>, (usize, Errno)> {
        let mut open = self.lock();
        if let Some(folder) = open.get(path) {
            // A folder that was removed keeps its descriptor, and takes nothing any more.
            if rustix::fs::fstat(&**folder).is_ok_and(|stat| stat.st_nlink > 0) {
                return Ok(Arc::clone(folder));
            }
            open.clear();
        }
        let mut known = path.len();
        let mut folder = loop {
            if known == 0 {
                break self.root();
            }
            if let Some(folder) = open.get(&path[..known]) {
                break Arc::clone(folder);
            }
            known = path[..known]
                .iter()
                .rposition(|&byte| byte == b'/')
                .unwrap_or(0);
        };
        while known < path.len() {
            let start = if known == 0 { 0 } else { known + 1 };
            let length = path[start..]
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(path.len() - start);
            known = start + length;
            let next = open_folder(folder.as_fd(), &path[start..known], mode);
            folder = Arc::new(next.map_err(|errno| (known, errno))?);
            if open.len() >= MAX_OPEN_FOLDERS {
                open.clear();
            }
            open.insert(path[..known].into(), Arc::clone(&folder));
        }
        Ok(folder)
    }
}

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    std::fs::create_dir_all(path)?;
    let flags = FOLDER_FLAGS.difference(OFlags::NOFOLLOW);
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a folder, making it with `mode` if it is missing.
pub(super) fn open_folder(
    parent: impl AsFd,
    name: &[u8],
    mode: Option<Mode>,
) -> Result<OwnedFd, Errno> {
    match (
        rustix::fs::openat(&parent, name, FOLDER_FLAGS, Mode::empty()),
        mode,
    ) {
        (Err(Errno::NOENT), Some(mode)) => {
            match rustix::fs::mkdirat(&parent, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            rustix::fs::openat(&parent, name, FOLDER_FLAGS, Mode::empty())
        }
        (other, _) => other,
    }
}

/// What the peer is told of a folder that cannot be used.
pub(super) fn folder_refusal(path: &[u8], errno: Errno) -> Refusal {
    let place = printable(path);
    match errno {
        Errno::LOOP | Errno::NOTDIR => Refusal::new(
            Reason::BadPath,
            format!("`{place}` in the destination is a symbolic link or a file, not a folder"),
        ),
        errno => Refusal::new(
            reason_of(errno),
            format!("folder `{place}`: {}", io::Error::from(errno)),
        ),
    }
}
