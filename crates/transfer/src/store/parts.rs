//! `.towline-part`: what is not finished, its owner's alone.
//!
//! `NAME.part` is a file on its way, and `NAME.record` says of which file it is, if it can be
//! resumed; `NAME.link` becomes a symbolic link. `NAME.folder` says of a folder that was made that it
//! has not got its mode yet. NAME is the hash of the path at the destination. Whatever lies here is
//! taken for ours only if no other user can have put it there.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::attributes::{PRIVATE_FOLDER, hash_file, timestamps};
use super::folders::{Identity, open_folder};
use crate::caps::RESUMABLE_FROM;
use crate::claims::SessionHandle;
use crate::message::{FileFacts, Modified};
use crate::path::{PART_FOLDER, RelativePath};

/// Of unfinished files: nobody else reads what may become private.
const PRIVATE_FILE: u32 = 0o600;
/// Longest record read, bytes.
const MAX_RECORD_BYTES: u64 = 16 * 1024;
const RECORD_SCHEMA: &str = "towline.part/1";
const PENDING_SCHEMA: &str = "towline.folder/1";
/// For reading: a pipe that somebody left here holds nobody up.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const WRITE: OFlags = OFlags::WRONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// The folder of unfinished files.
pub(super) struct Parts(Mutex<Arc<OwnedFd>>);

impl Parts {
    /// Opens it below `root`, making it if it is missing.
    pub(super) fn open(root: impl AsFd) -> io::Result<Self> {
        Ok(Self(Mutex::new(Arc::new(open_parts(root)?))))
    }

    /// Its descriptor; the folder is made anew if somebody removed or replaced it.
    pub(super) fn folder(&self, root: &OwnedFd) -> io::Result<Arc<OwnedFd>> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = rustix::fs::fstat(&**parts)?;
        let there = rustix::fs::statat(root, PART_FOLDER, AtFlags::SYMLINK_NOFOLLOW);
        if !there.is_ok_and(|there| Identity::of(&there) == Identity::of(&ours)) {
            *parts = Arc::new(open_parts(root)?);
        }
        Ok(Arc::clone(&parts))
    }
}

fn open_parts(root: impl AsFd) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(PRIVATE_FOLDER);
    let parts = open_folder(root, PART_FOLDER.as_bytes(), Some(mode))?;
    let stat = rustix::fs::fstat(&parts)?;
    let user = rustix::process::geteuid().as_raw();
    // Some file systems give everything to one user, whoever makes it.
    if stat.st_uid != user && owner_of_new(&parts) != Ok(stat.st_uid) {
        return Err(io::Error::other(format!(
            "`{PART_FOLDER}` in it belongs to another user; remove that, or receive into another folder"
        )));
    }
    if stat.st_mode & 0o077 != 0 {
        // From an earlier version, or opened since. Where a file system keeps no modes, what is
        // finished is as open as this.
        let _ = rustix::fs::fchmod(&parts, mode);
    }
    Ok(parts)
}

/// Whose the files are that we make there.
fn owner_of_new(parts: &OwnedFd) -> Result<u32, Errno> {
    let name = format!("{}.probe", std::process::id());
    let flags = WRITE | OFlags::CREATE | OFlags::EXCL;
    let file = rustix::fs::openat(parts, &name, flags, Mode::from_raw_mode(PRIVATE_FILE))?;
    rustix::fs::unlinkat(parts, &name, AtFlags::empty())?;
    Ok(rustix::fs::fstat(&file)?.st_uid)
}

/// Whether a file here is one that we made, may write to, and that has no other name.
fn is_ours(parts: &OwnedFd, file: &Metadata) -> bool {
    let owner = rustix::fs::fstat(parts).map(|stat| stat.st_uid);
    file.is_file()
        && owner == Ok(file.uid())
        && file.nlink() == 1
        && file.mode() & PRIVATE_FILE == PRIVATE_FILE
}

/// The name of everything here that is about `path`, without its ending.
pub(super) fn part_name(path: &RelativePath) -> String {
    blake3::hash(path.as_bytes()).to_hex()[..32].to_owned()
}

/// Smaller files are not worth a record.
pub(super) fn is_resumable(facts: &FileFacts) -> bool {
    facts.size >= RESUMABLE_FROM
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

/// A folder that was made, as it is until it gets its mode. One that somebody put in its place, or
/// gave another mode, is his.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct PendingMode {
    schema: String,
    path: String,
    device: u64,
    inode: u64,
    mode: u32,
}

impl PendingMode {
    fn new(path: &RelativePath, stat: &Stat) -> Self {
        let Identity { device, inode } = Identity::of(stat);
        Self {
            schema: PENDING_SCHEMA.into(),
            path: path.to_string(),
            device,
            inode,
            mode: stat.st_mode,
        }
    }
}

fn pending_name(path: &RelativePath) -> String {
    format!("{}.folder", part_name(path))
}

/// Notes that a folder that was just made has not got its mode.
pub(super) fn note_pending_mode(
    parts: &OwnedFd,
    path: &RelativePath,
    stat: &Stat,
) -> io::Result<()> {
    write_record(parts, &pending_name(path), &PendingMode::new(path, stat))
}

/// Whether a folder that is there is one that an earlier session made and did not finish.
pub(super) fn is_mode_pending(parts: &OwnedFd, path: &RelativePath, stat: &Stat) -> bool {
    read_record::<PendingMode>(parts, &pending_name(path)) == Some(PendingMode::new(path, stat))
}

/// It has its mode.
pub(super) fn forget_pending_mode(parts: &OwnedFd, path: &RelativePath) {
    let _ = rustix::fs::unlinkat(parts, pending_name(path), AtFlags::empty());
}

/// How much of a file is here already, and its hash so far, if the record beside it names the same
/// file, size and time.
pub(super) fn resumable(
    parts: &OwnedFd,
    path: &RelativePath,
    facts: &FileFacts,
    session: &SessionHandle,
) -> io::Result<Option<(u64, Box<blake3::Hasher>)>> {
    let name = part_name(path);
    if read_record::<Record>(parts, &format!("{name}.record")) != Some(Record::new(path, facts)) {
        return Ok(None);
    }
    let Ok(part) = rustix::fs::openat(parts, format!("{name}.part"), READ, Mode::empty()) else {
        return Ok(None);
    };
    let part = File::from(part);
    let there = part.metadata()?;
    let have = there.len();
    if !is_ours(parts, &there) || have == 0 || have > facts.size {
        return Ok(None);
    }
    Ok(Some((have, hash_file(part, have, session)?)))
}

/// A file being written.
pub(super) struct Part {
    file: File,
    name: String,
    /// Where it is.
    parts: Arc<OwnedFd>,
}

impl Part {
    /// Makes it anew. The old part goes first, then the record is written, so that after a kill no
    /// part ever lies beside another file's record.
    pub(super) fn create(
        parts: Arc<OwnedFd>,
        path: &RelativePath,
        facts: &FileFacts,
    ) -> io::Result<Self> {
        let name = part_name(path);
        let part = format!("{name}.part");
        let create = || {
            let flags = WRITE | OFlags::CREATE | OFlags::EXCL;
            rustix::fs::openat(&parts, &part, flags, Mode::from_raw_mode(PRIVATE_FILE))
        };
        let new = match is_resumable(facts) {
            true => Err(Errno::EXIST),
            false => create(),
        };
        let file = match new {
            Err(Errno::EXIST) => {
                remove_old_part(&parts, &part)?;
                if is_resumable(facts) {
                    write_record(&parts, &format!("{name}.record"), &Record::new(path, facts))?;
                }
                create()?
            }
            other => other?,
        };
        let file = File::from(file);
        lock_part(&file)?;
        Ok(Self { file, name, parts })
    }

    /// Goes on behind its first `offset` bytes, which are all it has.
    pub(super) fn resume(
        parts: Arc<OwnedFd>,
        path: &RelativePath,
        offset: u64,
    ) -> io::Result<Self> {
        let name = part_name(path);
        let part = format!("{name}.part");
        let file = rustix::fs::openat(&parts, &part, WRITE | OFlags::APPEND, Mode::empty())?;
        let file = File::from(file);
        lock_part(&file)?;
        let there = file.metadata()?;
        if !is_ours(&parts, &there) || there.len() != offset {
            return Err(io::Error::other(
                "the part file changed underneath; run the same command again",
            ));
        }
        // An earlier version may have made it. Where there are no modes, nothing is lost.
        let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(PRIVATE_FILE));
        Ok(Self { file, name, parts })
    }

    pub(super) fn write_all(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(data)
    }

    /// Before it has its name: it never stands there with another mode.
    pub(super) fn set_attributes(&self, mode: Mode, modified: Modified) -> Result<(), Errno> {
        rustix::fs::fchmod(&self.file, mode)?;
        rustix::fs::futimens(&self.file, &timestamps(modified))
    }

    /// Whether its name still leads to what was written.
    pub(super) fn is_in_its_place(&self) -> bool {
        let (parts, name) = self.place();
        let there = rustix::fs::statat(parts, name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = rustix::fs::fstat(&self.file);
        there.is_ok_and(|there| ours.is_ok_and(|ours| Identity::of(&there) == Identity::of(&ours)))
    }

    /// The folder and the name where it is.
    pub(super) fn place(&self) -> (&OwnedFd, String) {
        (&*self.parts, format!("{}.part", self.name))
    }

    /// It has another name now.
    pub(super) fn forget_record(&self) {
        let record = format!("{}.record", self.name);
        let _ = rustix::fs::unlinkat(&self.parts, record, AtFlags::empty());
    }

    /// Removes what was written.
    pub(super) fn remove(&self) {
        let part = format!("{}.part", self.name);
        let _ = rustix::fs::unlinkat(&self.parts, part, AtFlags::empty());
        self.forget_record();
    }
}

/// Removes what an earlier transfer left, unless another process is writing it. What cannot be
/// opened is none of ours.
fn remove_old_part(parts: &OwnedFd, part: &str) -> io::Result<()> {
    match rustix::fs::openat(parts, part, WRITE, Mode::empty()) {
        Ok(old) => lock_part(&File::from(old))?,
        Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    Ok(rustix::fs::unlinkat(parts, part, AtFlags::empty())?)
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

fn write_record(parts: &OwnedFd, name: &str, record: &impl Serialize) -> io::Result<()> {
    let flags = WRITE | OFlags::CREATE | OFlags::TRUNC;
    let fd = rustix::fs::openat(parts, name, flags, Mode::from_raw_mode(PRIVATE_FILE))?;
    let text = serde_json::to_vec(record).map_err(io::Error::other)?;
    File::from(fd).write_all(&text)
}

fn read_record<T: DeserializeOwned>(parts: &OwnedFd, name: &str) -> Option<T> {
    let record = rustix::fs::openat(parts, name, READ, Mode::empty()).ok()?;
    let mut text = Vec::new();
    File::from(record)
        .take(MAX_RECORD_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    serde_json::from_slice(&text).ok()
}
