//! What a connection tells its application.
//!
//! Components push; `Endpoint::poll_event` pops. The queue needs no cap of its own:
//! every event kind is raised at most once until the application reacts to it, or once for a
//! datagram that it asked about.

use std::collections::VecDeque;

use towline_wire::{Direction, StreamId};

use super::datagrams::fates::DatagramFate;
use crate::error::ConnectionError;

/// Something the application may want to react to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Server: a client's handshake finished; the connection may be used.
    Accepted,
    /// Client: the handshake finished; the connection may be used.
    Connected,
    /// The handshake is confirmed (RFC 9001 §4.1.2).
    Confirmed,
    /// A stream that had nothing to read has data, its end, or a reset; or one whose reset was asked
    /// for has it, or all of its data.
    Readable(StreamId),
    /// A stream that was blocked takes data again.
    Writable(StreamId),
    /// The peer opened streams; call `accept` until it returns `None`.
    Opened(Direction),
    /// The peer permits more streams of this direction.
    StreamsAvailable(Direction),
    /// Everything written, and the end of the stream, reached the peer.
    Finished(StreamId),
    /// The peer asked us to stop sending.
    Stopped {
        /// The stream.
        id: StreamId,
        /// The application's code.
        error_code: u64,
    },
    /// A datagram arrived.
    DatagramReceived,
    /// A full datagram queue has room again.
    DatagramSendable,
    /// What became of a datagram that was sent with an
    /// [`id`](crate::DatagramOptions::id). Nothing is told of those that are under way or wait when
    /// the connection ends.
    DatagramFate {
        /// Its name.
        id: u64,
        /// What became of it.
        fate: DatagramFate,
    },
    /// The path carries larger packets than before, or no longer as large ones, or data took to another
    /// path whose size is looked for anew: see
    /// [`Stats::mtu`](crate::Stats::mtu), and for datagrams
    /// [`Connection::max_datagram_len`](crate::Connection::max_datagram_len).
    MtuChanged,
    /// Data takes another path from now on: [`Connection::remote`](crate::Connection::remote) is the
    /// peer's address on it. It may not have proved yet to lead to the peer.
    PathChanged,
    /// Nothing answered where [`Connection::migrate`](crate::Connection::migrate) tried; data stays
    /// where it was.
    MigrationFailed,
    /// The connection is over; the handle stays valid for `stats` until `Drained`.
    Closed(ConnectionError),
    /// The handle is gone, or names what can still be read
    /// ([`EndpointConfig::keep_unread`](crate::EndpointConfig::keep_unread)).
    Drained,
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    /// These wait in the queue: once is enough.
    path_changed: bool,
    migration_failed: bool,
}

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    /// However often a peer moves, it is told once until the application hears of it.
    pub(crate) fn push_path_changed(&mut self) {
        if !std::mem::replace(&mut self.path_changed, true) {
            self.push(Event::PathChanged);
        }
    }

    pub(crate) fn push_migration_failed(&mut self) {
        if !std::mem::replace(&mut self.migration_failed, true) {
            self.push(Event::MigrationFailed);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front();
        match event {
            Some(Event::PathChanged) => self.path_changed = false,
            Some(Event::MigrationFailed) => self.migration_failed = false,
            _ => {}
        }
        event
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of memory it has reserved.
    pub(crate) fn held(&self) -> usize {
        self.queue.capacity() * size_of::<Event>()
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.queue.shrink_to_fit();
    }
}
