//! What a session did, and why it ended: the results both ends hand to their commands.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::caps::MAX_REPORTED_FAILURES;
use crate::encoding::Malformed;
use crate::message::{ReadError, Reason, Refusal};

/// The sums of one session, and the files that did not go through.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Files that are whole at the receiver because of this session.
    pub files: u64,
    /// Their sizes, bytes.
    pub bytes: u64,
    /// File bytes that went over the wire, in files that failed too.
    pub bytes_moved: u64,
    /// Files that were there already.
    pub skipped: u64,
    /// Their sizes, bytes.
    pub bytes_skipped: u64,
    /// Of them, those whose mode at the receiver permits more than the sender's.
    pub wider: u64,
    /// The first of these.
    pub wider_names: Vec<String>,
    /// Files continued from a part file.
    pub resumed: u64,
    /// Bytes that did not travel again because of that.
    pub bytes_resumed: u64,
    /// Files that are not whole at the receiver.
    pub failed: u64,
    /// The first of them, with the reason.
    pub failures: Vec<Failed>,
    /// Symbolic links made at the receiver, or there already.
    pub links: u64,
    /// What cannot be sent as it is: sockets, devices, links that lead out of the destination.
    pub left_out: u64,
    /// The first of them, with the reason.
    pub left_out_names: Vec<Failed>,
}

/// Something that did not go through.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Its path at the receiver, printable.
    pub path: String,
    /// Why.
    pub refusal: Refusal,
}

impl Report {
    /// Notes what did not go through: a failure, or something that is left out.
    pub(crate) fn fail(&mut self, path: impl fmt::Display, refusal: Refusal) {
        let (count, names) = if refusal.reason.is_left_out() {
            (&mut self.left_out, &mut self.left_out_names)
        } else {
            (&mut self.failed, &mut self.failures)
        };
        *count += 1;
        if names.len() < MAX_REPORTED_FAILURES {
            names.push(Failed {
                path: path.to_string(),
                refusal,
            });
        }
    }

    /// Notes a file that was there already.
    pub(crate) fn skip(&mut self, path: impl fmt::Display, size: u64, is_wider: bool) {
        self.skipped += 1;
        self.bytes_skipped += size;
        if is_wider {
            self.wider += 1;
            if self.wider_names.len() < MAX_REPORTED_FAILURES {
                self.wider_names.push(path.to_string());
            }
        }
    }

    /// Sums up what interrupted sessions brought into place.
    pub fn add(&mut self, later: &Report) {
        self.files += later.files;
        self.bytes += later.bytes;
        self.bytes_moved += later.bytes_moved;
    }

    /// Counts what the sessions before this one, the last, brought into place: it found that there.
    pub fn add_earlier(&mut self, earlier: &Report) {
        self.add(earlier);
        self.skipped = self.skipped.saturating_sub(earlier.files);
        self.bytes_skipped = self.bytes_skipped.saturating_sub(earlier.bytes);
    }

    /// Whether everything the sender was asked to send is whole at the receiver.
    pub fn is_whole(&self) -> bool {
        self.failed == 0 && self.left_out == 0
    }

    /// The same for a user who may have said that some things may be left out.
    pub fn is_as_asked(&self, leave_out: bool) -> bool {
        self.failed == 0 && (self.left_out == 0 || leave_out)
    }
}

/// Why a session ended early. Part files stay for the next attempt.
#[derive(Debug)]
pub enum SessionError {
    /// The stream or its connection failed.
    Lost(io::Error),
    /// The peer said that it cannot go on.
    Refused(Refusal),
    /// The peer broke the transfer protocol; it was told.
    Protocol(&'static str),
    /// This side cannot go on; the peer was told.
    Local(Refusal),
    /// The session was cancelled: by its user, or because the same sender came back.
    Cancelled,
}

impl SessionError {
    /// What the peer should be told before the stream ends, if anything.
    pub fn farewell(&self) -> Option<Refusal> {
        match self {
            Self::Lost(_) | Self::Refused(_) => None,
            Self::Protocol(what) => Some(Refusal::new(Reason::Protocol, *what)),
            Self::Local(refusal) => Some(refusal.clone()),
            Self::Cancelled => Some(Refusal::new(
                Reason::Interrupted,
                "the other side was interrupted",
            )),
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(error) => write!(f, "connection lost: {error}"),
            Self::Refused(refusal) => write!(f, "the other side stopped: {refusal}"),
            Self::Protocol(what) => write!(f, "the other side broke the transfer protocol: {what}"),
            Self::Local(refusal) => write!(f, "{refusal}"),
            Self::Cancelled => f.write_str("the session was cancelled"),
        }
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ReadError> for SessionError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Lost(error) => Self::Lost(error),
            ReadError::Malformed(Malformed(what)) => Self::Protocol(what),
        }
    }
}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// A report with the reason why it is not complete, if there is one.
#[derive(Debug)]
pub struct Ended {
    /// What was done.
    pub report: Report,
    /// Why it ended early; `None` where every entry is settled.
    pub error: Option<SessionError>,
    /// Processor time of this process during the session.
    pub cpu: Duration,
    /// The same of the peer's, if it told.
    pub peer_cpu: Option<Duration>,
}
