//! The receiving folder, which every step of a transfer into it shares.
//!
//! Every name is opened relative to its parent's descriptor with `O_NOFOLLOW`, so no
//! symlink in the destination is ever followed. `wanted` decides which files to ask for, `writing`
//! writes one under `.towline-part/`, beside a small record of which file it is, and gives it its
//! mode, and its real name by one atomic rename, after its hash was compared. Folders and links are
//! `place`'s. Synchronous: only file threads call it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use crate::claims::Claims;
use crate::message::PERMISSIONS;
use crate::path::PART_FOLDER;

mod attributes;
mod folders;
mod parts;
mod place;
mod refusal;
mod wanted;
mod writing;

use folders::Folders;
use parts::Parts;
pub(crate) use place::OpenFolder;
pub(crate) use wanted::Wanted;
pub(crate) use writing::Placed;

/// What the receiving user allows.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StorePolicy {
    /// Replace files that differ.
    pub overwrite: bool,
    /// Compare hashes even where size and time agree.
    pub check: bool,
    /// Largest file accepted, bytes.
    pub max_file_size: Option<u64>,
}

impl StorePolicy {
    /// Sets the field `overwrite`.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Sets the field `check`.
    #[must_use]
    pub fn check(mut self, check: bool) -> Self {
        self.check = check;
        self
    }

    /// Sets the field `max_file_size`.
    #[must_use]
    pub fn max_file_size(mut self, max_file_size: Option<u64>) -> Self {
        self.max_file_size = max_file_size;
        self
    }
}

/// One destination folder.
pub struct Store {
    folders: Folders,
    parts: Parts,
    /// Permission bits that nothing made here gets.
    umask: u16,
    policy: StorePolicy,
    claims: Arc<Claims>,
}

impl Store {
    /// Opens `path` as a destination, creating it if necessary.
    ///
    /// # Errors
    /// The folder cannot be created, opened or written to.
    pub fn open(path: &Path, policy: StorePolicy) -> io::Result<Arc<Self>> {
        let folders = Folders::open(path)?;
        let parts = Parts::open(folders.root())?;
        Ok(Arc::new(Self {
            folders,
            parts,
            umask: umask()?,
            policy,
            claims: Arc::default(),
        }))
    }

    /// Removes the folder of part files if nothing unfinished is left in it.
    pub fn tidy(&self) {
        let _ = rustix::fs::unlinkat(self.folders.root(), PART_FOLDER, AtFlags::REMOVEDIR);
    }

    /// See [`Folders::begin_session`].
    pub(crate) fn begin_session(&self) {
        self.folders.begin_session();
    }

    fn parts(&self) -> io::Result<Arc<OwnedFd>> {
        self.parts.folder(&self.folders.root())
    }

    /// The mode of what is made here for something of `mode` at the sender.
    fn mode(&self, mode: u16) -> Mode {
        Mode::from_raw_mode(u32::from(mode & PERMISSIONS & !self.umask))
    }

    /// Gives something in the folder of unfinished files its name, replacing nothing that may not
    /// be replaced.
    fn put_in_place(
        &self,
        parts: &OwnedFd,
        from: &str,
        folder: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), Errno> {
        if self.policy.overwrite {
            return rustix::fs::renameat(parts, from, folder, name);
        }
        match rustix::fs::renameat_with(parts, from, folder, name, RenameFlags::NOREPLACE) {
            // The file system cannot exclude replacing; the name was free when we asked.
            Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(parts, from, folder, name),
            other => other,
        }
    }
}

/// The permission bits that this process gives to nothing it makes. Read, for the system call
/// that tells it sets it as well, for all threads.
fn umask() -> io::Result<u16> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u16::from_str_radix(octal.trim(), 8).ok())
        .ok_or_else(|| io::Error::other("/proc/self/status tells no umask"))
}
