//! What the peer is told when the disk refuses something: its own path and the reason, and nothing
//! of where we keep things.

use std::io;

use rustix::io::Errno;

use crate::message::{Reason, Refusal};
use crate::path::RelativePath;

/// Of a file or link that a system call refused.
pub(super) fn refusal(path: &RelativePath, errno: Errno) -> Refusal {
    let error = io::Error::from(errno);
    Refusal::new(reason_of(errno), format!("{path}: {error}"))
}

/// The same, and how to go on when the disk is full.
pub(super) fn io_refusal(path: &RelativePath, error: &io::Error) -> Refusal {
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

/// Which of the reasons that both sides know an error is.
pub(super) fn reason_of(errno: Errno) -> Reason {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Reason::DiskFull,
        Errno::NAMETOOLONG | Errno::LOOP | Errno::NOTDIR | Errno::INVAL | Errno::ILSEQ => {
            Reason::BadPath
        }
        _ => Reason::Io,
    }
}
