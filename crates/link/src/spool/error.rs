//! What can go wrong with a spool, and what to do then.

use super::format::MAX_RECORD;

/// The disk did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the spool could not {doing}: {source}")]
pub struct DiskFailed<E: std::error::Error + 'static> {
    /// What was asked for, as in "write to its disk".
    pub doing: &'static str,
    /// What the disk says.
    pub source: E,
}

impl<E: std::error::Error + 'static> DiskFailed<E> {
    pub(super) fn new(doing: &'static str) -> impl Fn(E) -> Self {
        move |source| Self { doing, source }
    }
}

/// Why a spool cannot be opened. What was committed is where it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError<E: std::error::Error + 'static> {
    /// [`SpoolConfig::max_bytes`](super::SpoolConfig::max_bytes) is too small.
    #[error("a spool takes {least} bytes at least; {max_bytes} were given")]
    TooSmall {
        /// What was given, in bytes.
        max_bytes: u64,
        /// The least, in bytes.
        least: u64,
    },
    /// A later version of the program wrote it.
    #[error(
        "segment {segment:016x} of the spool is of version {version}, this program knows version 1: use the program that \
         wrote it until the spool is empty, or move its files away"
    )]
    Version {
        /// The segment.
        segment: u64,
        /// Its version.
        version: u32,
    },
    /// Segments of two spools lie in one place.
    #[error(
        "segments {one:016x} and {other:016x} are of different spools: move the files of one of them away"
    )]
    Mixed {
        /// A segment.
        one: u64,
        /// One of another spool.
        other: u64,
    },
    /// There is no number left for another segment.
    #[error("segment {segment:016x} has the highest number there can be: move it away")]
    LastNumber {
        /// The segment.
        segment: u64,
    },
    /// Its numbers are used up; no spool gets there that counts its records.
    #[error("the spool goes on with record {next}: its numbers are used up, move its files away")]
    UsedUp {
        /// The number that would be next.
        next: u64,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskFailed<E>),
}

/// Why a record was not taken. The spool is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError<E: std::error::Error + 'static> {
    /// It is larger than a record may be.
    #[error(
        "a record of {len} bytes; this spool takes {max}: a quarter of its size, and {MAX_RECORD} at the most"
    )]
    TooLarge {
        /// Its bytes.
        len: usize,
        /// What is taken, in bytes.
        max: usize,
    },
    /// The spool is full and keeps what it has ([`Full::Refuse`](super::Full::Refuse)).
    #[error(
        "the spool is full: it holds {bytes} of {max_bytes} bytes and no more is taken until some of it has been \
         delivered; a larger max_bytes or Full::DropOldest would take more"
    )]
    Full {
        /// What it holds, in bytes.
        bytes: u64,
        /// What it may hold, in bytes.
        max_bytes: u64,
    },
    /// What was appended before had to be committed first, or the oldest to be dropped, and the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskFailed<E>),
}
