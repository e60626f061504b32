//! [`Transport`]: what HTTP/3 asks of a QUIC connection (RFC 9114 §3, RFC 9000 §2.4).
//!
//! `towline` implements it on the engine's connection, the tests on a pair in memory. Every call returns at
//! once; what cannot be done now is said, and an event of the transport tells when to try again.

use core::fmt;

use bytes::Bytes;
use towline_wire::{Direction, Side, StreamId};

use crate::observe;

/// The streams and datagrams of one QUIC connection.
///
/// Calls on a stream that is over do nothing, or say `Closed`.
pub trait Transport {
    /// Which end of the connection this is.
    fn side(&self) -> Side;

    /// Opens a stream. `None` while the peer permits no more of them.
    fn open(&mut self, direction: Direction) -> Option<StreamId>;

    /// Takes the next stream that the peer has opened.
    fn accept(&mut self, direction: Direction) -> Option<StreamId>;

    /// The next bytes of a stream in order, 1 to `max` of them; `None` at its end.
    ///
    /// # Errors
    /// `Blocked` while nothing is there, `Reset` with the peer's code, `Closed` when the stream is over.
    fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError>;

    /// How many bytes of a stream have arrived, read or not, counted from its beginning; `None` where
    /// nobody knows. The limits of WebTransport sessions are then held where bytes are read.
    fn received(&self, id: StreamId) -> Option<u64> {
        let _ = id;
        None
    }

    /// How many bytes the peer will count of a stream of ours if no more is written: after a reset
    /// perhaps fewer than were written. `None` where nobody knows.
    fn sent(&self, id: StreamId) -> Option<u64> {
        let _ = id;
        None
    }

    /// Of a stream that was stopped, wants to know how long it was in the end: the stream is readable
    /// when [`take_final_size`](Self::take_final_size) tells it. `false` where nothing will be told.
    fn await_final_size(&mut self, id: StreamId) -> bool {
        let _ = id;
        false
    }

    /// The length that was awaited, once.
    fn take_final_size(&mut self, id: StreamId) -> Option<u64> {
        let _ = id;
        None
    }

    /// Takes bytes from the front of `data`, and says how many.
    ///
    /// # Errors
    /// `Blocked` while not one byte can be taken, `Stopped` with the peer's code, `Closed` when the
    /// stream is over.
    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError>;

    /// Ends the sending half after what was written.
    fn finish(&mut self, id: StreamId);

    /// Ends the sending half without the rest (RFC 9000 §19.4).
    fn reset(&mut self, id: StreamId, code: u64);

    /// As [`reset`](Self::reset), and the first `reliable_size` bytes still arrive where the peer
    /// understands RESET_STREAM_AT.
    fn reset_at(&mut self, id: StreamId, code: u64, reliable_size: u64);

    /// Asks the peer to end its sending half (RFC 9000 §19.5).
    fn stop(&mut self, id: StreamId, code: u64);

    /// Streams of a higher priority are sent first; all begin with 0.
    fn set_priority(&mut self, id: StreamId, priority: i64);

    /// The next datagram that arrived (RFC 9221).
    fn recv_datagram(&mut self) -> Option<Bytes>;

    /// Sends a datagram; `false` where it is too long or the peer takes none.
    fn send_datagram(&mut self, payload: Bytes) -> bool;

    /// The most bytes that a datagram can have now; `None` where the peer takes none.
    fn max_datagram_len(&self) -> Option<usize>;

    /// Closes the connection with an application's error code (RFC 9000 §10.2).
    fn close(&mut self, code: u64, reason: &[u8]);

    /// Something happened: whoever observes the connection is told what `event` says, which is not called
    /// where nobody does.
    fn observe(&mut self, event: impl FnOnce() -> observe::Event)
    where
        Self: Sized,
    {
        let _ = event;
    }
}

/// Why nothing could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// Nothing is there yet.
    Blocked,
    /// The peer gave the stream up, with this code.
    Reset(u64),
    /// The receiving half is over, or there never was one.
    Closed,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked => f.write_str("nothing has arrived yet"),
            Self::Reset(code) => write!(f, "the peer reset the stream with code {code:#x}"),
            Self::Closed => f.write_str("the receiving half is over"),
        }
    }
}

impl core::error::Error for ReadError {}

/// Why nothing could be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteError {
    /// No credit, or the send buffer is full.
    Blocked,
    /// The peer wants no more of the stream, with this code.
    Stopped(u64),
    /// The sending half is over, or there never was one.
    Closed,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked => f.write_str("nothing can be written now"),
            Self::Stopped(code) => write!(f, "the peer stopped the stream with code {code:#x}"),
            Self::Closed => f.write_str("the sending half is over"),
        }
    }
}

impl core::error::Error for WriteError {}
