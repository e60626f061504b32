//! How much the application may have written and not yet acknowledged, and which writers wait.
//!
//! Owned by `Streams`. Every stream has a cap on what waits to be sent, all together one on what is
//! kept until the peer acknowledges it. A writer that was refused is told when there is room again.

use towline_wire::StreamId;

use super::send::SendStream;
use crate::config::TransportConfig;
use crate::connection::events::{Event, Events};
use crate::connection::turns::{Place, Turns};
use crate::error::WriteError;

#[derive(Debug)]
pub(super) struct WriteRoom {
    /// Written and unacknowledged bytes of all streams.
    retained: u64,
    /// Bytes that were, until they were acknowledged.
    released: u64,
    retained_cap: u64,
    unsent_cap: u64,
    /// Writers refused because of the connection-wide cap, the highest priority woken first.
    starved: Turns<StreamId>,
}

impl WriteRoom {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            retained: 0,
            released: 0,
            retained_cap: config.send_buffer,
            unsent_cap: config.stream_send_buffer,
            starved: Turns::default(),
        }
    }

    /// The room for a write on a stream now, that leaves out the next `skipped` bytes. They count
    /// as written, so that whoever fills them in later needs no room.
    pub(super) fn ask(
        &mut self,
        id: StreamId,
        s: &mut SendStream,
        skipped: u64,
    ) -> Result<usize, WriteError> {
        s.check_writable()?;
        let own = self.unsent_cap.saturating_sub(s.unsent_len());
        let shared = self.retained_cap.saturating_sub(self.retained);
        let room = own.min(shared).saturating_sub(skipped);
        if room == 0 {
            if !s.writer_blocked && shared == 0 {
                self.starved.push(id, s.place);
            }
            s.writer_blocked = true;
            return Err(WriteError::Blocked);
        }
        Ok(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// As many bytes may be written and not yet acknowledged from now on; what is kept already stays.
    /// `blocked` are the writers that were refused, in the order in which they are to be woken.
    pub(super) fn set_retained_cap(
        &mut self,
        cap: u64,
        blocked: impl Iterator<Item = (StreamId, Place)>,
    ) {
        self.retained_cap = cap;
        if self.retained < cap {
            return;
        }
        // A writer that its stream's own cap had refused waits for this one now.
        self.starved = Turns::default();
        for (id, place) in blocked {
            self.starved.push(id, place);
        }
    }

    /// So many bytes were written, those left out included.
    pub(super) fn on_written(&mut self, bytes: u64) {
        self.retained += bytes;
    }

    /// So many bytes were acknowledged.
    pub(super) fn on_released(&mut self, bytes: u64) {
        self.retained -= bytes;
        self.released += bytes;
    }

    /// So many bytes were given up with their stream.
    pub(super) fn on_abandoned(&mut self, bytes: u64) {
        self.retained -= bytes;
    }

    /// Bytes written and not acknowledged.
    pub(super) fn retained(&self) -> u64 {
        self.retained
    }

    /// Bytes that the peer acknowledged.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    /// A writer whose stream fell below half of its send buffer may go on.
    pub(super) fn wake(&self, id: StreamId, s: &mut SendStream, events: &mut Events) {
        if s.wakes_writer(self.unsent_cap) && self.retained < self.retained_cap {
            s.writer_blocked = false;
            events.push(Event::Writable(id));
        }
    }

    /// Takes a writer that the connection-wide cap refused and that may go on now.
    pub(super) fn next_starved(&mut self) -> Option<StreamId> {
        if self.starved.is_empty() || self.retained >= self.retained_cap {
            return None;
        }
        self.starved.pop()
    }

    /// A stream has another place.
    pub(super) fn change(&mut self, id: StreamId, before: Place, after: Place) {
        self.starved.change(id, before, after);
    }

    /// The connection is over: nobody writes any more.
    pub(super) fn on_connection_lost(&mut self) {
        self.starved = Turns::default();
        self.retained = 0;
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.starved.held()
    }

    /// Gives back unused memory.
    pub(super) fn trim(&mut self) {
        self.starved.trim();
    }
}
