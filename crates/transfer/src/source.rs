//! Reads the files that were asked for and composes lane records. Synchronous: file threads.
//!
//! A file is opened, compared with what the manifest said, read once, hashed on the way,
//! and compared again afterwards; whatever differs turns the record into an abort, so a
//! receiver never mistakes a mixture of two versions for a file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::caps::BLOCK_BYTES;
use crate::encoding::{put_varint, varint4};
use crate::message::{FileFacts, HASH_BYTES, RECORD_FILE, Reason, Refusal, put_refusal};
use crate::path::RelativePath;
use crate::pipe::{BlockWriter, PipeClosed};
use crate::progress::Progress;
use crate::walk::facts_of;

/// A chunk is not started in less room than this, unless the file ends in it.
const LEAST_ROOM: u64 = 4096;
/// The chunk's length and the trailer.
const OVERHEAD: usize = 4;

/// A file to send.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) index: u64,
    pub(crate) path: RelativePath,
    pub(crate) disk: PathBuf,
    pub(crate) facts: FileFacts,
    /// What the receiver has already.
    pub(crate) have: u64,
    pub(crate) hash: Option<[u8; HASH_BYTES]>,
    pub(crate) only_if_identical: bool,
}

/// Jobs for the lanes of one session, first come first served.
#[derive(Default)]
pub(crate) struct Jobs {
    queue: Mutex<(VecDeque<Job>, bool)>,
    changed: Condvar,
}

impl Jobs {
    /// Adds a job.
    pub(crate) fn push(&self, job: Job) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .push_back(job);
        self.changed.notify_one();
    }

    /// No more jobs: threads stop when the queue is empty.
    pub(crate) fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }

    /// Drops what is queued as well.
    pub(crate) fn abandon(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clear();
        self.close();
    }

    fn try_pop(&self) -> Option<Job> {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .pop_front()
    }

    /// Waits for a job; `None` once closed and empty.
    fn pop(&self) -> Option<Job> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = queue.0.pop_front() {
                return Some(job);
            }
            if queue.1 {
                return None;
            }
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Serves one lane until the jobs end or the pipe closes. Small files share blocks: a block
/// goes out when it is full or when there is nothing to do. `unmoved` is told of each job whose
/// file the receiver turns out to have.
pub(crate) fn serve_lane(
    jobs: &Jobs,
    lane: &mut BlockWriter,
    progress: &Progress,
    unmoved: &dyn Fn(u64),
) -> Result<(), PipeClosed> {
    loop {
        let job = match jobs.try_pop() {
            Some(job) => job,
            None => {
                lane.flush()?;
                match jobs.pop() {
                    Some(job) => job,
                    None => return Ok(()),
                }
            }
        };
        progress.set_current(&job.path);
        send_file(&job, lane, progress, unmoved)?;
    }
}

/// One record: header, chunks, trailer.
fn send_file(
    job: &Job,
    lane: &mut BlockWriter,
    progress: &Progress,
    unmoved: &dyn Fn(u64),
) -> Result<(), PipeClosed> {
    let opened = open(job);
    let (mut file, mut hasher, offset) = match opened {
        Ok(opened) => opened,
        Err(refusal) => {
            // What the receiver has stays as it is.
            put_header(job, job.have, lane)?;
            return put_abort(&refusal, lane);
        }
    };
    if offset > 0 && offset == job.facts.size {
        unmoved(job.index);
    } else if offset > 0 {
        progress.add_resumed(offset);
    }
    put_header(job, offset, lane)?;
    progress.add_found(offset);
    let mut left = job.facts.size - offset;
    while left > 0 {
        let least = left.min(LEAST_ROOM) as usize + OVERHEAD;
        let block = lane.block_with_room(least)?;
        let start = block.len();
        let most = (BLOCK_BYTES - start - OVERHEAD) as u64;
        let length = left.min(most);
        block.extend_from_slice(&[0; OVERHEAD]);
        let read = (&mut file).take(length).read_to_end(block);
        let data = block.len() - start - OVERHEAD;
        match read {
            Ok(_) if data as u64 == length => {}
            other => {
                block.truncate(start);
                let refusal = match other {
                    Ok(_) => Refusal::new(
                        Reason::Changed,
                        "became shorter while it was sent; run the same command again",
                    ),
                    Err(error) => {
                        Refusal::new(Reason::Unreadable, format!("cannot be read: {error}"))
                    }
                };
                return put_abort(&refusal, lane);
            }
        }
        block[start..start + OVERHEAD].copy_from_slice(&varint4(data as u32));
        hasher.update(&block[start + OVERHEAD..]);
        left -= length;
        progress.add_moved(length);
    }
    match file.metadata() {
        Ok(metadata) if facts_of(&metadata) == job.facts => put_trailer(&hasher, lane),
        Ok(_) => put_abort(&changed(), lane),
        Err(error) => put_abort(&Refusal::new(Reason::Unreadable, error.to_string()), lane),
    }
}

fn changed() -> Refusal {
    Refusal::new(
        Reason::Changed,
        "changed while it was sent; run the same command again",
    )
}

/// Opens the file and decides the offset, hashing what the receiver has.
fn open(job: &Job) -> Result<(File, blake3::Hasher, u64), Refusal> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            Refusal::new(Reason::Changed, "was removed before it could be sent")
        }
        _ => Refusal::new(Reason::Unreadable, format!("cannot be read: {error}")),
    };
    // Non-blocking, in case something put a named pipe where the file was.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&job.disk)
        .map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() || facts_of(&metadata) != job.facts {
        return Err(Refusal::new(
            Reason::Changed,
            "changed after it was listed; run the same command again",
        ));
    }
    let mut hasher = blake3::Hasher::new();
    let Some(theirs) = job.hash else {
        return Ok((file, hasher, 0));
    };
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut left = job.have;
    while left > 0 {
        let most = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = file.read(&mut buffer[..most]).map_err(unreadable)?;
        if read == 0 {
            return Err(changed());
        }
        hasher.update(&buffer[..read]);
        left -= read as u64;
    }
    if hasher.finalize() == blake3::Hash::from_bytes(theirs) {
        return Ok((file, hasher, job.have));
    }
    if job.only_if_identical {
        return Err(Refusal::new(
            Reason::Exists,
            "exists already and differs; --overwrite on the receiving side replaces it",
        ));
    }
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    Ok((file, blake3::Hasher::new(), 0))
}

fn put_header(job: &Job, offset: u64, lane: &mut BlockWriter) -> Result<(), PipeClosed> {
    let mut header = Vec::with_capacity(20);
    put_varint(&mut header, RECORD_FILE);
    put_varint(&mut header, job.index);
    put_varint(&mut header, offset);
    lane.put(&header)
}

fn put_trailer(hasher: &blake3::Hasher, lane: &mut BlockWriter) -> Result<(), PipeClosed> {
    let mut trailer = [0; 2 + HASH_BYTES];
    trailer[2..].copy_from_slice(hasher.finalize().as_bytes());
    lane.put(&trailer)
}

fn put_abort(refusal: &Refusal, lane: &mut BlockWriter) -> Result<(), PipeClosed> {
    let mut trailer = vec![0];
    put_refusal(&mut trailer, refusal);
    lane.put(&trailer)
}
