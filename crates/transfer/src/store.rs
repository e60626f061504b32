//! The receiving folder: decides what to ask for, writes part files, puts whole files in place.
//!
//! Every name is opened relative to its parent's descriptor with `O_NOFOLLOW`, so no
//! symlink in the destination is ever followed. A file is written under
//! `.towline-part/`, beside a small record of which file it is; it gets its mode, and its real
//! name by one atomic rename, after its hash was compared. Folders and links are `place`'s.
//! Synchronous: only file threads call it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::caps::BLOCK_BYTES;
use crate::claims::{Claim, Claims, SessionHandle};
use crate::message::{Answer, FileFacts, HASH_BYTES, Modified, PERMISSIONS, Reason, Refusal};
use crate::path::{PART_FOLDER, RelativePath};

mod folders;
mod parts;
mod place;
mod writing;

use folders::Folders;
use parts::{Part, Parts, is_resumable, resumable};
use place::Hold;
pub(crate) use place::OpenFolder;
use writing::Target;
pub(crate) use writing::{Placed, Writing};

/// Of the folder of unfinished files, and of what a folder has until everything in it is there.
const PRIVATE_FOLDER: u32 = 0o700;

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

/// What the peer is told: its own path and the reason, and nothing of where we keep things.
fn refusal(path: &RelativePath, errno: Errno) -> Refusal {
    let error = io::Error::from(errno);
    Refusal::new(reason_of(errno), format!("{path}: {error}"))
}

fn io_refusal(path: &RelativePath, error: &io::Error) -> Refusal {
    match Errno::from_io_error(error) {
        Some(errno @ (Errno::NOSPC | Errno::DQUOT)) => Refusal::new(
            reason_of(errno),
            format!(
                "{path}: {error} at the receiver; free some space there and run the same command again to resume"
            ),
        ),
        Some(errno) => refusal(path, errno),
        None => Refusal::new(Reason::Io, format!("{path}: {error}")),
    }
}

impl Store {
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

/// Hashes exactly `length` bytes; a cancelled session stops it.
fn hash_file(
    mut file: File,
    length: u64,
    session: &SessionHandle,
) -> io::Result<Box<blake3::Hasher>> {
    let mut hasher = Box::<blake3::Hasher>::default();
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut left = length;
    while left > 0 {
        if session.is_cancelled() {
            return Err(io::Error::other("the session was cancelled"));
        }
        session.progress.touch();
        let most = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = file.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&buffer[..read]);
        left -= read as u64;
    }
    Ok(hasher)
}

fn same_time(stat: &Stat, modified: Modified) -> bool {
    let nanoseconds = stat.st_mtime_nsec as u32;
    // Some file systems keep whole seconds only.
    stat.st_mtime == modified.seconds && (nanoseconds == modified.nanoseconds || nanoseconds == 0)
}

fn timestamps(modified: Modified) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    }
}

fn reason_of(errno: Errno) -> Reason {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Reason::DiskFull,
        Errno::NAMETOOLONG | Errno::LOOP | Errno::NOTDIR | Errno::INVAL | Errno::ILSEQ => {
            Reason::BadPath
        }
        _ => Reason::Io,
    }
}
