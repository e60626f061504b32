//! [`Outgoing`]: a message to be sent, and how it is carried.

/// Which way a batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// First of all.
    Alarm,
    /// What is new.
    Live,
    /// What stayed behind.
    Backfill,
}

/// How a message is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// On the one stream of both, in order, behind its length.
    Control,
    /// In a datagram; the next one makes up for one that is lost.
    Report {
        /// By this number the receiver is told that it was lost.
        number: u64,
    },
    /// In a datagram, or, if it is too large for one, on a stream of its own.
    Batch {
        /// By this number the sender is told what became of it; no other has it, and the same batch has another when
        /// it is sent again.
        transmission: u64,
        /// Which way it goes.
        lane: Lane,
    },
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// How.
    pub carrier: Carrier,
    /// What.
    pub bytes: Vec<u8>,
}
