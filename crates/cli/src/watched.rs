//! Files that somebody may change while a command runs, and how the command notices.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file that is read again when it has changed.
#[derive(Debug)]
pub(crate) struct Watched {
    path: PathBuf,
    seen: Option<Stamp>,
}

/// What changes when somebody changes a file. Its modification time may be anybody's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    /// Of the inode, in seconds and nanoseconds.
    changed: (i64, i64),
    length: u64,
    /// A second change in the same tick of the kernel's clock would show the same.
    is_fresh: bool,
}

impl Watched {
    /// It has not changed until it does from now on: read it after this.
    pub(crate) fn new(path: PathBuf) -> Self {
        let seen = stamp(&path);
        Self { path, seen }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it may have changed since the last call, or appeared, or gone.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now = stamp(&self.path);
        let before = std::mem::replace(&mut self.seen, now);
        now != before || now.is_some_and(|stamp| stamp.is_fresh)
    }
}

/// Only of what can be read twice: not of a pipe.
fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    let now = i64::try_from(towline::config::unix_now().as_secs()).unwrap_or(i64::MAX);
    Some(Stamp {
        inode: metadata.ino(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        length: metadata.len(),
        is_fresh: metadata.ctime().saturating_add(1) >= now,
    })
}
