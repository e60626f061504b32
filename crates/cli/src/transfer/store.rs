//! The receiving folder: decides what to ask for, writes part files, puts whole files in place.
//!
//! Every name is opened relative to its parent's descriptor with `O_NOFOLLOW`, so no
//! symlink in the destination is ever followed. A file is written under
//! `.towline-part/`, beside a small record of which file it is; it gets its mode, and its real
//! name by one atomic rename, after its hash was compared. Folders and links are `place`'s.
//! Synchronous: only file threads call it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::caps::{BLOCK_BYTES, RESUMABLE_FROM};
use super::claims::{Claim, Claims, SessionHandle};
use super::message::{Answer, FileFacts, HASH_BYTES, Modified, PERMISSIONS, Reason, Refusal};
use super::path::{PART_FOLDER, RelativePath, printable};

mod place;
mod writing;

pub(crate) use place::OpenFolder;
use writing::Target;
pub(crate) use writing::{Placed, Writing};

const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Folder descriptors kept open.
const MAX_OPEN_FOLDERS: usize = 256;
/// Longest resume record read, bytes.
const MAX_RECORD_BYTES: u64 = 16 * 1024;
const RECORD_SCHEMA: &str = "towline.part/1";
/// Of unfinished files and their folder: nobody else reads what may become private.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// What the receiving user allows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StorePolicy {
    /// Replace files that differ.
    pub(crate) overwrite: bool,
    /// Compare hashes even where size and time agree.
    pub(crate) check: bool,
    /// Largest file accepted, bytes.
    pub(crate) max_file_size: Option<u64>,
}

/// One destination folder.
pub(crate) struct Store {
    path: PathBuf,
    /// Opened anew by [`Store::begin_session`] if `path` is another folder by then.
    root: Mutex<Arc<OwnedFd>>,
    /// The folder of unfinished files; see [`Store::parts`].
    parts: Mutex<Arc<OwnedFd>>,
    /// Permission bits that nothing made here gets.
    umask: u16,
    policy: StorePolicy,
    folders: Mutex<HashMap<Box<[u8]>, Arc<OwnedFd>>>,
    claims: Arc<Claims>,
}

/// What the sender's size and time must match for a part file to be resumed.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Record {
    schema: String,
    path: String,
    size: u64,
    modified_seconds: i64,
    modified_nanoseconds: u32,
}

impl Record {
    fn new(path: &RelativePath, facts: &FileFacts) -> Self {
        Self {
            schema: RECORD_SCHEMA.into(),
            path: path.to_string(),
            size: facts.size,
            modified_seconds: facts.modified.seconds,
            modified_nanoseconds: facts.modified.nanoseconds,
        }
    }
}

/// A file the sender was asked for.
pub(crate) struct Wanted {
    pub(crate) path: RelativePath,
    pub(crate) facts: FileFacts,
    plan: Plan,
    claim: Claim,
    folder: Option<Arc<OpenFolder>>,
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
    pub(crate) fn open(path: &Path, policy: StorePolicy) -> io::Result<Arc<Self>> {
        let root = open_root(path)?;
        let parts = open_parts(root.as_fd())?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            root: Mutex::new(Arc::new(root)),
            parts: Mutex::new(Arc::new(parts)),
            umask: umask()?,
            policy,
            folders: Mutex::default(),
            claims: Arc::default(),
        }))
    }

    /// Removes the folder of part files if nothing unfinished is left in it.
    pub(crate) fn tidy(&self) {
        let _ = rustix::fs::unlinkat(self.root(), PART_FOLDER, AtFlags::REMOVEDIR);
    }

    /// The folder of unfinished files, made anew if somebody removed or replaced it.
    fn parts(&self) -> io::Result<Arc<OwnedFd>> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = rustix::fs::fstat(&**parts)?;
        let there = rustix::fs::statat(self.root(), PART_FOLDER, AtFlags::SYMLINK_NOFOLLOW);
        let is_ours =
            there.is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
        if !is_ours {
            *parts = Arc::new(open_parts(self.root())?);
        }
        Ok(Arc::clone(&parts))
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
            Ok(None) => (Answer::Skip, None),
            Ok(Some(mut wanted)) => {
                wanted.folder = folder;
                let answer = match &wanted.plan {
                    Plan::Fresh => Answer::Want {
                        have: 0,
                        hash: None,
                        only_if_identical: false,
                    },
                    Plan::Resume { have, hasher } => {
                        let hash = Some(*hasher.finalize().as_bytes());
                        Answer::Want {
                            have: *have,
                            hash,
                            only_if_identical: false,
                        }
                    }
                    Plan::Compare { hash } => Answer::Want {
                        have: facts.size,
                        hash: Some(*hash),
                        only_if_identical: !self.policy.overwrite,
                    },
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
    ) -> Result<Option<Wanted>, Refusal> {
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
        let folder = self.folder(parent)?;
        let in_place = match rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(refusal(&path, errno)),
        };
        if let Some(stat) = in_place {
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile if stat.st_size as u64 == facts.size => {
                    if facts.size == 0 || (!self.policy.check && same_time(&stat, facts.modified)) {
                        return Ok(None);
                    }
                    let fd = rustix::fs::openat(
                        &*folder,
                        name,
                        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                        Mode::empty(),
                    )
                    .map_err(|errno| refusal(&path, errno))?;
                    let hasher = hash_file(File::from(fd), facts.size, session)
                        .map_err(|error| io_refusal(&path, &error))?;
                    let hash = *hasher.finalize().as_bytes();
                    return Ok(Some(Wanted {
                        path,
                        facts,
                        plan: Plan::Compare { hash },
                        claim,
                        folder: None,
                    }));
                }
                FileType::RegularFile | FileType::Symlink if self.policy.overwrite => {}
                FileType::RegularFile => {
                    return Err(Refusal::new(
                        Reason::Exists,
                        "exists already and differs; --overwrite on the receiving side replaces it",
                    ));
                }
                FileType::Directory => {
                    return Err(Refusal::new(
                        Reason::Exists,
                        "a folder of that name is in the way",
                    ));
                }
                FileType::Symlink => {
                    return Err(Refusal::new(
                        Reason::Exists,
                        "a symbolic link of that name is in the way; --overwrite on the receiving side replaces it",
                    ));
                }
                _ => {
                    return Err(Refusal::new(
                        Reason::Exists,
                        "something that is not a file is in the way",
                    ));
                }
            }
        }
        let plan = self
            .plan_part(&path, &facts, session)
            .map_err(|error| io_refusal(&path, &error))?;
        let have = if let Plan::Resume { have, .. } = &plan {
            *have
        } else {
            0
        };
        if is_resumable(&facts) {
            self.check_space(facts.size - have)?;
        }
        Ok(Some(Wanted {
            path,
            facts,
            plan,
            claim,
            folder: None,
        }))
    }

    fn check_space(&self, needed: u64) -> Result<(), Refusal> {
        let Ok(space) = rustix::fs::fstatvfs(self.root()) else {
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

    /// Resumes a part file whose record names the same file, size and time.
    fn plan_part(
        &self,
        path: &RelativePath,
        facts: &FileFacts,
        session: &SessionHandle,
    ) -> io::Result<Plan> {
        if !is_resumable(facts) {
            return Ok(Plan::Fresh);
        }
        let name = part_name(path);
        let parts = self.parts()?;
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(record) = rustix::fs::openat(&parts, format!("{name}.record"), read, Mode::empty())
        else {
            return Ok(Plan::Fresh);
        };
        let mut text = Vec::new();
        File::from(record)
            .take(MAX_RECORD_BYTES)
            .read_to_end(&mut text)?;
        if serde_json::from_slice::<Record>(&text).ok() != Some(Record::new(path, facts)) {
            return Ok(Plan::Fresh);
        }
        let Ok(part) = rustix::fs::openat(&parts, format!("{name}.part"), read, Mode::empty())
        else {
            return Ok(Plan::Fresh);
        };
        let part = File::from(part);
        let have = part.metadata()?.len();
        if have == 0 || have > facts.size {
            return Ok(Plan::Fresh);
        }
        let hasher = hash_file(part, have, session)?;
        Ok(Plan::Resume { have, hasher })
    }

    /// Starts writing a wanted file at the offset its sender chose.
    ///
    /// # Errors
    /// `Reason::Protocol` for an offset that was not offered; otherwise the disk's troubles.
    pub(crate) fn begin(self: &Arc<Self>, wanted: Wanted, offset: u64) -> Result<Writing, Refusal> {
        let Wanted {
            path,
            facts,
            plan,
            claim,
            folder,
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
            folder,
        })
    }

    fn open_part(&self, path: &RelativePath, facts: &FileFacts, offset: u64) -> io::Result<Target> {
        let name = part_name(path);
        let part = format!("{name}.part");
        let parts = self.parts()?;
        let write = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = if offset > 0 {
            let file = File::from(rustix::fs::openat(
                &parts,
                &part,
                write | OFlags::APPEND,
                Mode::empty(),
            )?);
            lock_part(&file)?;
            if file.metadata()?.len() != offset {
                return Err(io::Error::other(
                    "the part file changed underneath; run the same command again",
                ));
            }
            file
        } else {
            let create = || {
                let flags = write | OFlags::CREATE | OFlags::EXCL;
                rustix::fs::openat(&parts, &part, flags, Mode::from_raw_mode(PRIVATE_FILE))
            };
            // A resumable part is always made anew: the old part goes first, then the record
            // is written, so that after a kill no part ever lies beside another file's record.
            let resumable = is_resumable(facts);
            let new = if resumable {
                Err(Errno::EXIST)
            } else {
                create()
            };
            let file = match new {
                Err(Errno::EXIST) => {
                    remove_old_part(&parts, &part)?;
                    if resumable {
                        write_record(&parts, &name, path, facts)?;
                    }
                    create()?
                }
                other => other?,
            };
            let file = File::from(file);
            lock_part(&file)?;
            file
        };
        Ok(Target::Part {
            file,
            name,
            parts,
            done: false,
        })
    }

    /// The descriptor of a folder below the root, created with its parents if missing.
    fn folder(&self, path: &[u8]) -> Result<Arc<OwnedFd>, Refusal> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = folders.get(path) {
            // A folder that was removed keeps its descriptor, and takes nothing any more.
            if rustix::fs::fstat(&**folder).is_ok_and(|stat| stat.st_nlink > 0) {
                return Ok(Arc::clone(folder));
            }
            folders.clear();
        }
        if folders.len() >= MAX_OPEN_FOLDERS {
            folders.clear();
        }
        let mut known = path.len();
        let mut folder = loop {
            if known == 0 {
                break self.root();
            }
            if let Some(folder) = folders.get(&path[..known]) {
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
            let name = &path[start..start + length];
            let next = open_folder(folder.as_fd(), name, Some(ANY_MODE));
            let next = next.map_err(|errno| folder_refusal(&path[..start + length], errno))?;
            folder = Arc::new(next);
            known = start + length;
            folders.insert(path[..known].into(), Arc::clone(&folder));
        }
        Ok(folder)
    }

    /// Forgets the folders of earlier sessions, and looks for the destination where it was named:
    /// somebody may have moved or removed them. One that cannot be opened shows with each file.
    pub(crate) fn begin_session(&self) {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        folders.clear();
        let there = rustix::fs::stat(&self.path);
        let ours = rustix::fs::fstat(self.root());
        let is_ours = there.is_ok_and(|there| {
            ours.is_ok_and(|ours| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino))
        });
        if !is_ours && let Ok(root) = open_root(&self.path) {
            *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(root);
        }
    }

    fn root(&self) -> Arc<OwnedFd> {
        let root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&root)
    }
}

/// Removes what an earlier transfer left, unless another process is writing it.
fn remove_old_part(parts: &OwnedFd, part: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(old) = rustix::fs::openat(parts, part, flags, Mode::empty()) {
        lock_part(&File::from(old))?;
        rustix::fs::unlinkat(parts, part, AtFlags::empty())?;
    }
    Ok(())
}

fn write_record(
    parts: &OwnedFd,
    name: &str,
    path: &RelativePath,
    facts: &FileFacts,
) -> io::Result<()> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let record = format!("{name}.record");
    let fd = rustix::fs::openat(parts, record, flags, Mode::from_raw_mode(PRIVATE_FILE))?;
    let text = serde_json::to_vec(&Record::new(path, facts)).map_err(io::Error::other)?;
    File::from(fd).write_all(&text)
}

fn remove_part(parts: &OwnedFd, name: &str) {
    let _ = rustix::fs::unlinkat(parts, format!("{name}.part"), AtFlags::empty());
    let _ = rustix::fs::unlinkat(parts, format!("{name}.record"), AtFlags::empty());
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

fn folder_refusal(path: &[u8], errno: Errno) -> Refusal {
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

impl Store {
    /// Gives something in the folder of unfinished files its name, replacing nothing that may not
    /// be replaced.
    fn put_in_place(
        &self,
        parts: &OwnedFd,
        from: &str,
        folder: &OwnedFd,
        name: &std::ffi::OsStr,
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

/// For folders of which the sender says nothing: as everybody makes them.
const ANY_MODE: Mode = Mode::from_raw_mode(0o777);

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    std::fs::create_dir_all(path)?;
    let flags = FOLDER_FLAGS.difference(OFlags::NOFOLLOW);
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn open_parts(root: impl AsFd) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(PRIVATE_FOLDER);
    open_folder(root, PART_FOLDER.as_bytes(), Some(mode))
}

/// Opens a folder, making it with `mode` if it is missing.
fn open_folder(parent: impl AsFd, name: &[u8], mode: Option<Mode>) -> Result<OwnedFd, Errno> {
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

/// The permission bits that this process gives to nothing it makes. Read, for the system call
/// that tells it sets it as well, for all threads.
fn umask() -> io::Result<u16> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u16::from_str_radix(octal.trim(), 8).ok())
        .ok_or_else(|| io::Error::other("/proc/self/status tells no umask"))
}

/// Smaller files are not worth a record.
fn is_resumable(facts: &FileFacts) -> bool {
    facts.size >= RESUMABLE_FROM
}

fn part_name(path: &RelativePath) -> String {
    blake3::hash(path.as_bytes()).to_hex()[..32].to_owned()
}

/// Keeps a second process out of the same part file, and fails if one has removed it
/// between our opening and our locking.
fn lock_part(file: &File) -> io::Result<()> {
    let busy =
        || io::Error::other("another towline process is writing this file; wait for it or stop it");
    file.try_lock().map_err(|_| busy())?;
    if file.metadata()?.nlink() == 0 {
        return Err(busy());
    }
    Ok(())
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
