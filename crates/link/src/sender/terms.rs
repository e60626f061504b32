//! What a sender and its owner say to each other.

use std::ops::Range;
use std::time::Duration;

use crate::message::MalformedMessage;

/// How a sender behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SenderConfig {
    /// Its name, 1 to 64 bytes.
    pub name: String,
    /// How long a record waits for others.
    pub deadline: Duration,
    /// The most to send in the long run, in bytes a second, IP and UDP headers included.
    pub rate: Option<u64>,
}

impl SenderConfig {
    /// The usual: a deadline of 250 ms, and as much as the connection takes.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            deadline: Duration::from_millis(250),
            rate: None,
        }
    }

    /// How long a record waits for others.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The most to send in the long run, in bytes a second, IP and UDP headers included.
    #[must_use]
    pub fn rate(mut self, rate: Option<u64>) -> Self {
        self.rate = rate;
        self
    }
}

/// Which records the spool holds when a sender begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The id of its sequence of numbers.
    pub stream: u64,
    /// The numbers of its records.
    pub seqs: Range<u64>,
}

/// How urgent a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It waits for others, and stays behind where there is no room for all.
    Telemetry,
    /// It goes at once, before all others.
    Alarm,
}

/// What the connection has room for, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that would leave at once: what the congestion window has left.
    pub free: usize,
    /// Alarms alone may go: the budget is spent.
    pub alarms_only: bool,
    /// Bytes that a datagram takes.
    pub datagram: usize,
    /// The smoothed round-trip time.
    pub rtt: Duration,
}

/// Numbers that people watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Records that were pushed.
    pub pushed: u64,
    /// Records that were sent, each once.
    pub sent: u64,
    /// Batches that they went in.
    pub batches: u64,
    /// Bytes of those, coded.
    pub bytes: u64,
    /// Batches that were sent again.
    pub again: u64,
    /// Records that stayed behind because a later one replaced them.
    pub conflated: u64,
    /// Records that stayed behind because too many waited.
    pub postponed: u64,
    /// Records that were read from the spool again.
    pub backfilled: u64,
    /// Records that the spool dropped before they were durable at the receiver.
    pub dropped: u64,
}

/// Why a message of the receiver was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SenderError {
    /// It is none.
    #[error("the receiver sent a malformed message: {0}; are both ends the same version?")]
    Malformed(#[from] MalformedMessage),
    /// Receivers send no such message.
    #[error("the receiver sent what only senders do; is it a receiver?")]
    Unexpected,
    /// It has records of this stream that were never given to this sender, which has to begin another
    /// ([`Sender::begin_stream`](super::Sender::begin_stream)).
    #[error(
        "the receiver has records up to {has} of this spool, which has {next}: it is an older copy, or another program used a copy of it"
    )]
    Older {
        /// Records that the receiver has, counted from 0.
        has: u64,
        /// The number of the next record here.
        next: u64,
    },
}
