//! [`Streams`]: the engine's connection as HTTP/3 sees it.

use bytes::Bytes;
use towline_http3::observe::Event;
use towline_http3::{ReadError, Transport, WriteError};
use towline_quic::{self as engine, Connection as Engine};
use towline_wire::{Direction, Side, StreamId, Time};

use crate::handles::Turn;

/// The streams and datagrams of the engine's connection, for the length of one call.
pub(crate) struct Streams<'a> {
    now: Time,
    engine: &'a mut Engine,
}

impl<'a> Streams<'a> {
    /// What a protocol's turn has.
    pub(crate) fn of(turn: &'a mut Turn<'_>) -> Self {
        Self {
            now: turn.now,
            engine: turn.connection,
        }
    }
}

impl Transport for Streams<'_> {
    fn side(&self) -> Side {
        self.engine.side()
    }

    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.engine.open(direction)
    }

    fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        self.engine.accept(direction)
    }

    fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        self.engine.read(id, max).map_err(|error| match error {
            engine::ReadError::Blocked => ReadError::Blocked,
            engine::ReadError::Reset(code) => ReadError::Reset(code),
            _ => ReadError::Closed,
        })
    }

    fn received(&self, id: StreamId) -> Option<u64> {
        self.engine.received_len(id)
    }

    fn sent(&self, id: StreamId) -> Option<u64> {
        self.engine.sent_len(id)
    }

    fn await_final_size(&mut self, id: StreamId) -> bool {
        self.engine.await_final_size(id)
    }

    fn take_final_size(&mut self, id: StreamId) -> Option<u64> {
        self.engine.take_final_size(id)
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        self.engine.write(id, data).map_err(|error| match error {
            engine::WriteError::Blocked => WriteError::Blocked,
            engine::WriteError::Stopped(code) => WriteError::Stopped(code),
            _ => WriteError::Closed,
        })
    }

    fn finish(&mut self, id: StreamId) {
        // What can go wrong here, a stop or the end, is told by an event.
        let _ = self.engine.finish(id);
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        self.engine.reset(id, code);
    }

    fn reset_at(&mut self, id: StreamId, code: u64, reliable_size: u64) {
        if self.engine.reset_at(id, code, reliable_size).is_err() {
            self.engine.reset(id, code);
        }
    }

    fn stop(&mut self, id: StreamId, code: u64) {
        self.engine.stop(id, code);
    }

    fn set_priority(&mut self, id: StreamId, priority: i64) {
        // A stream that is over needs none.
        let _ = self.engine.set_priority(id, priority);
    }

    fn recv_datagram(&mut self) -> Option<Bytes> {
        self.engine.recv_datagram()
    }

    fn send_datagram(&mut self, payload: Bytes) -> bool {
        self.engine.send_datagram(payload).is_ok()
    }

    fn max_datagram_len(&self) -> Option<usize> {
        self.engine.max_datagram_len()
    }

    fn close(&mut self, code: u64, reason: &[u8]) {
        self.engine.close(self.now, code, reason);
    }

    fn observe(&mut self, event: impl FnOnce() -> Event) {
        self.engine.tell_observer(self.now, event);
    }
}
