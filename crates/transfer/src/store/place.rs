//! Folders and symbolic links of the manifest.
//!
//! A folder is made at once, with its owner's rights whatever the sender's has, and gets its mode
//! and time when nothing below it is open any more: [`OpenFolder`] is held by everything in it, and
//! holds no descriptor, since a peer can have as many of them as it likes. Until then a record among
//! the unfinished files says so, and a later session gives it the mode if this one does not. A
//! folder that was there keeps its mode. A link is made only if it leads to a place within the
//! destination, whatever other links are there.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::Store;
use super::attributes::{PRIVATE_FOLDER, timestamps};
use super::folders::{Identity, folder_refusal, open_folder};
use super::parts::{forget_pending_mode, is_mode_pending, note_pending_mode, part_name};
use super::refusal::refusal;
use crate::claims::SessionHandle;
use crate::message::{Answer, FolderFacts, Reason, Refusal};
use crate::path::{LinkTarget, RelativePath};

/// A folder with something in it that is not settled.
pub(crate) struct OpenFolder {
    /// `None` for a folder that could not be made.
    made: Option<Made>,
    is_complete: AtomicBool,
    is_spoilt: AtomicBool,
    session: Arc<SessionHandle>,
    /// Settled later.
    parent: Option<Arc<OpenFolder>>,
}

/// A folder that is there, and what it is to become.
struct Made {
    store: Arc<Store>,
    path: RelativePath,
    identity: Identity,
    facts: FolderFacts,
    /// The mode that it has not got yet.
    mode: Option<Mode>,
}

impl Made {
    /// Gives it its time and its mode, unless somebody put another one in its place.
    fn finish(&self) {
        let found = self.store.folders.find(self.path.as_bytes(), self.identity);
        let Some(folder) = found else {
            return;
        };
        // Where the owner of a folder is another, both are refused; that is no fault of the files.
        let _ = rustix::fs::futimens(&folder, &timestamps(self.facts.modified));
        if let (Some(mode), Ok(stat)) = (self.mode, rustix::fs::fstat(&folder)) {
            // What the folder has of its parent (setgid) stays.
            let special = Mode::from_raw_mode(stat.st_mode & 0o7000);
            let _ = rustix::fs::fchmod(&folder, mode | special);
            if let Ok(parts) = self.store.parts() {
                forget_pending_mode(&parts, &self.path);
            }
        }
    }
}

impl OpenFolder {
    fn new(
        made: Option<Made>,
        parent: Option<Arc<Self>>,
        session: &Arc<SessionHandle>,
    ) -> Arc<Self> {
        Arc::new(Self {
            made,
            is_complete: AtomicBool::new(false),
            is_spoilt: AtomicBool::new(false),
            session: Arc::clone(session),
            parent,
        })
    }

    /// Stands for a folder that was refused.
    pub(crate) fn refused(parent: Option<Arc<Self>>, session: &Arc<SessionHandle>) -> Arc<Self> {
        Self::new(None, parent, session)
    }

    /// Everything in it is announced.
    pub(crate) fn complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }

    /// Something in it did not go through: the next session has to write here.
    pub(crate) fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Relaxed);
    }
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        let is_over =
            self.is_complete.load(Ordering::Relaxed) && !self.is_spoilt.load(Ordering::Relaxed);
        if !is_over || self.session.is_cancelled() {
            // Whoever is to finish it has to come here.
            if let Some(parent) = &self.parent {
                parent.spoil();
            }
        } else if let Some(made) = &self.made {
            made.finish();
        }
    }
}

/// What an unsettled file has of its folder: unless it goes through, the folder is spoilt.
pub(crate) struct Hold(Option<Arc<OpenFolder>>);

impl Hold {
    pub(super) fn on(folder: Option<Arc<OpenFolder>>) -> Self {
        Self(folder)
    }

    /// The file is as it should be.
    pub(super) fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            folder.spoil();
        }
    }
}

impl Store {
    /// Makes a folder of the manifest, or finds it.
    pub(crate) fn open_folder(
        self: &Arc<Self>,
        path: RelativePath,
        facts: FolderFacts,
        parent: Option<Arc<OpenFolder>>,
        session: &Arc<SessionHandle>,
    ) -> Result<Arc<OpenFolder>, Refusal> {
        let refused = |errno| folder_refusal(path.as_bytes(), errno);
        let (above, name) = path.split();
        let above = self.folders.make(above)?;
        let mode = self.mode(facts.mode);
        let owner = Mode::from_raw_mode(PRIVATE_FOLDER);
        let is_new = match rustix::fs::mkdirat(&*above, name, mode | owner) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(refused(errno)),
        };
        let folder = open_folder(above.as_fd(), name.as_bytes(), None).map_err(refused)?;
        let stat = rustix::fs::fstat(&folder).map_err(refused)?;
        let later = if is_new && !mode.contains(owner) {
            if let Ok(parts) = self.parts() {
                // Without the record only this session can finish it.
                let _ = note_pending_mode(&parts, &path, &stat);
            }
            true
        } else {
            // Another sender may narrow it, too, and not open it.
            let now = Mode::from_raw_mode(stat.st_mode & 0o777);
            !is_new
                && now != mode
                && now.contains(mode)
                && self
                    .parts()
                    .is_ok_and(|parts| is_mode_pending(&parts, &path, &stat))
        };
        let made = Made {
            store: Arc::clone(self),
            identity: Identity::of(&stat),
            facts,
            mode: later.then_some(mode),
            path,
        };
        Ok(OpenFolder::new(Some(made), parent, session))
    }

    /// Makes a symbolic link of the manifest, or finds it.
    pub(crate) fn make_link(
        self: &Arc<Self>,
        path: &RelativePath,
        target: &LinkTarget,
        session: &Arc<SessionHandle>,
    ) -> Answer {
        match self.try_make_link(path, target, session) {
            Ok(true) => Answer::Made,
            Ok(false) => Answer::Skip { is_wider: false },
            Err(refusal) => Answer::Refuse(refusal),
        }
    }

    /// Whether it was made.
    fn try_make_link(
        self: &Arc<Self>,
        path: &RelativePath,
        target: &LinkTarget,
        session: &Arc<SessionHandle>,
    ) -> Result<bool, Refusal> {
        if !target.stays_inside(path) {
            return Err(Refusal::new(
                Reason::Outside,
                format!("a symbolic link to {target:?}, which is not within the destination"),
            ));
        }
        let _claim = self.claims.claim(path, session)?;
        let (above, name) = path.split();
        let folder = self.folders.make(above)?;
        match rustix::fs::readlinkat(&*folder, name, Vec::new()) {
            Ok(there) if there.to_bytes() == target.as_bytes() => return Ok(false),
            Err(Errno::NOENT) => {}
            // EINVAL: something that is no link.
            Ok(_) | Err(Errno::INVAL) if self.policy.overwrite => {
                let stat = rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| refusal(path, errno))?;
                if !matches!(
                    FileType::from_raw_mode(stat.st_mode),
                    FileType::RegularFile | FileType::Symlink
                ) {
                    return Err(exists("something that is not a file is in the way"));
                }
            }
            Ok(_) | Err(Errno::INVAL) => {
                return Err(exists(
                    "exists already and differs; --overwrite on the receiving side replaces it",
                ));
            }
            Err(errno) => return Err(refusal(path, errno)),
        }
        let io = |error: std::io::Error| Refusal::new(Reason::Io, format!("{path}: {error}"));
        let parts = self.parts().map_err(io)?;
        let part = format!("{}.link", part_name(path));
        let _ = rustix::fs::unlinkat(&parts, &part, AtFlags::empty());
        rustix::fs::symlinkat(target.as_bytes(), &parts, &part)
            .map_err(|errno| refusal(path, errno))?;
        self.put_in_place(&parts, &part, &folder, name)
            .map_err(|errno| {
                let _ = rustix::fs::unlinkat(&parts, &part, AtFlags::empty());
                match errno {
                    Errno::EXIST => exists("another file took its name during the transfer"),
                    errno => refusal(path, errno),
                }
            })?;
        Ok(true)
    }
}

fn exists(text: &str) -> Refusal {
    Refusal::new(Reason::Exists, text)
}
