//! Which files of the manifest to ask for, and from where: what is in place, what an earlier
//! transfer left, and what neither has.
//!
//! Made by [`Store::prepare`] as the answer to the manifest; [`Store::begin`] turns it into
//! [`Writing`] when the file's data comes.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Store;
use super::attributes::{hash_file, same_time};
use super::parts::{Part, is_resumable, resumable};
use super::place::{Hold, OpenFolder};
use super::refusal::{io_refusal, refusal};
use super::writing::{Target, Writing};
use crate::claims::{Claim, SessionHandle};
use crate::message::{Answer, FileFacts, HASH_BYTES, PERMISSIONS, Reason, Refusal};
use crate::path::RelativePath;

/// A file the sender was asked for.
pub(crate) struct Wanted {
    pub(crate) path: RelativePath,
    pub(crate) facts: FileFacts,
    /// The file in place, which may be the same, has a mode that permits more.
    pub(crate) is_wider: bool,
    plan: Plan,
    claim: Claim,
    hold: Hold,
}

/// What becomes of a file that is not refused.
enum Prepared {
    /// It is there already.
    There {
        is_wider: bool,
    },
    Wanted(Wanted),
}

enum Plan {
    Fresh,
    /// `have` bytes of the part file hash into `hasher`.
    Resume {
        have: u64,
        hasher: Box<blake3::Hasher>,
    },
    /// A file of the same size is in place.
    Compare {
        hash: [u8; HASH_BYTES],
    },
}

impl Store {
    /// Decides about one file of the manifest, which stands in `folder`. May hash a part file or
    /// the file in place.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        path: RelativePath,
        facts: FileFacts,
        folder: Option<Arc<OpenFolder>>,
        session: &Arc<SessionHandle>,
    ) -> (Answer, Option<Wanted>) {
        match self.try_prepare(path, facts, session) {
            Ok(Prepared::There { is_wider }) => (Answer::Skip { is_wider }, None),
            Ok(Prepared::Wanted(mut wanted)) => {
                wanted.hold = Hold::on(folder);
                let (have, hash) = match &wanted.plan {
                    Plan::Fresh => (0, None),
                    Plan::Resume { have, hasher } => (*have, Some(*hasher.finalize().as_bytes())),
                    Plan::Compare { hash } => (facts.size, Some(*hash)),
                };
                let is_comparison = matches!(wanted.plan, Plan::Compare { .. });
                let answer = Answer::Want {
                    have,
                    hash,
                    only_if_identical: is_comparison && !self.policy.overwrite,
                    is_wider: wanted.is_wider,
                };
                (answer, Some(wanted))
            }
            Err(refusal) => (Answer::Refuse(refusal), None),
        }
    }

    fn try_prepare(
        self: &Arc<Self>,
        path: RelativePath,
        facts: FileFacts,
        session: &Arc<SessionHandle>,
    ) -> Result<Prepared, Refusal> {
        if self
            .policy
            .max_file_size
            .is_some_and(|most| facts.size > most)
        {
            return Err(Refusal::new(
                Reason::TooMuch,
                "larger than the receiver accepts (--max-size)",
            ));
        }
        let claim = self.claims.claim(&path, session)?;
        let (parent, name) = path.split();
        let folder = self.folders.make(parent)?;
        let in_place = match rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(refusal(&path, errno)),
        };
        if let Some(stat) = in_place {
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::RegularFile && stat.st_size as u64 == facts.size {
                let is_wider = self.is_wider(&folder, name, &stat, facts.mode);
                if facts.size == 0 || (!self.policy.check && same_time(&stat, facts.modified)) {
                    return Ok(Prepared::There { is_wider });
                }
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&*folder, name, flags, Mode::empty())
                    .map_err(|errno| refusal(&path, errno))?;
                let hasher = hash_file(File::from(fd), facts.size, session)
                    .map_err(|error| io_refusal(&path, &error))?;
                let hash = *hasher.finalize().as_bytes();
                return Ok(Prepared::Wanted(Wanted {
                    path,
                    facts,
                    is_wider,
                    plan: Plan::Compare { hash },
                    claim,
                    hold: Hold::on(None),
                }));
            }
            if let Some(refusal) = in_the_way(kind, self.policy.overwrite) {
                return Err(refusal);
            }
        }
        let mut plan = Plan::Fresh;
        if is_resumable(&facts) {
            let part = self
                .parts()
                .and_then(|parts| resumable(&parts, &path, &facts, session))
                .map_err(|error| io_refusal(&path, &error))?;
            let have = part.as_ref().map_or(0, |(have, _)| *have);
            self.check_space(facts.size - have)?;
            if let Some((have, hasher)) = part {
                plan = Plan::Resume { have, hasher };
            }
        }
        Ok(Prepared::Wanted(Wanted {
            path,
            facts,
            is_wider: false,
            plan,
            claim,
            hold: Hold::on(None),
        }))
    }

    /// Whether the mode of a file in place permits more than the sender's. Where it might be
    /// replaced by the sender's, it gets no more than that.
    fn is_wider(&self, folder: &OwnedFd, name: &OsStr, stat: &Stat, mode: u16) -> bool {
        let mode = u32::from(mode);
        if stat.st_mode & u32::from(PERMISSIONS) & !mode == 0 {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        !self.policy.overwrite
            || rustix::fs::openat(folder, name, flags, Mode::empty())
                .and_then(|file| {
                    let stat = rustix::fs::fstat(&file)?;
                    rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & mode))
                })
                .is_err()
    }

    fn check_space(&self, needed: u64) -> Result<(), Refusal> {
        let Ok(space) = rustix::fs::fstatvfs(self.folders.root()) else {
            return Ok(());
        };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if needed > free {
            return Err(Refusal::new(
                Reason::DiskFull,
                format!(
                    "needs {needed} bytes, and only {free} bytes are free at the receiver; free some space and run the same command again"
                ),
            ));
        }
        Ok(())
    }

    /// Starts writing a wanted file at the offset its sender chose.
    ///
    /// # Errors
    /// `Reason::Protocol` for an offset that was not offered; otherwise the disk's troubles.
    pub(crate) fn begin(self: &Arc<Self>, wanted: Wanted, offset: u64) -> Result<Writing, Refusal> {
        let Wanted {
            path,
            facts,
            is_wider: _,
            plan,
            claim,
            hold,
        } = wanted;
        let (target, hasher) = match plan {
            Plan::Resume { have, hasher } if have == offset => {
                (self.open_part(&path, &facts, offset), hasher)
            }
            Plan::Compare { hash } if offset == facts.size => {
                (Ok(Target::InPlace { hash }), Box::default())
            }
            Plan::Compare { .. } if !self.policy.overwrite => {
                return Err(Refusal::new(
                    Reason::Protocol,
                    "data for a file that may not be overwritten",
                ));
            }
            _ if offset == 0 => (self.open_part(&path, &facts, 0), Box::default()),
            _ => {
                return Err(Refusal::new(
                    Reason::Protocol,
                    "a file starts at an offset that was not offered",
                ));
            }
        };
        let target = target.map_err(|error| io_refusal(&path, &error))?;
        Ok(Writing {
            store: Arc::clone(self),
            path,
            facts,
            target,
            hasher,
            written: offset,
            _claim: claim,
            hold,
        })
    }

    fn open_part(&self, path: &RelativePath, facts: &FileFacts, offset: u64) -> io::Result<Target> {
        let parts = self.parts()?;
        let part = match offset {
            0 => Part::create(parts, path, facts)?,
            _ => Part::resume(parts, path, offset)?,
        };
        Ok(Target::Part { part, done: false })
    }
}

/// Why a file may not take the place of something of this kind, if it may not.
fn in_the_way(kind: FileType, overwrite: bool) -> Option<Refusal> {
    let text = match kind {
        FileType::RegularFile | FileType::Symlink if overwrite => return None,
        FileType::RegularFile => {
            "exists already and differs; --overwrite on the receiving side replaces it"
        }
        FileType::Directory => "a folder of that name is in the way",
        FileType::Symlink => {
            "a symbolic link of that name is in the way; --overwrite on the receiving side replaces it"
        }
        _ => "something that is not a file is in the way",
    };
    Some(Refusal::new(Reason::Exists, text))
}
