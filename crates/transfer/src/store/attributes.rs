//! What files and folders have besides their names: times, modes and hashes.

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{Stat, Timespec, Timestamps};

use crate::caps::BLOCK_BYTES;
use crate::claims::SessionHandle;
use crate::message::Modified;

/// Of the folder of unfinished files, and of what a folder has until everything in it is there.
pub(super) const PRIVATE_FOLDER: u32 = 0o700;

/// Hashes exactly `length` bytes; a cancelled session stops it.
pub(super) fn hash_file(
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

/// Whether a file has this modification time.
pub(super) fn same_time(stat: &Stat, modified: Modified) -> bool {
    let nanoseconds = stat.st_mtime_nsec as u32;
    // Some file systems keep whole seconds only.
    stat.st_mtime == modified.seconds && (nanoseconds == modified.nanoseconds || nanoseconds == 0)
}

/// That modification time, the access time as it is.
pub(super) fn timestamps(modified: Modified) -> Timestamps {
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
