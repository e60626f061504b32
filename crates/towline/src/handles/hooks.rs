//! What a stream's handle asks of its connection's protocol, where there is one.
//!
//! Called under the shard's lock. A connection without a protocol pays one comparison.

use std::task::Waker;

use towline_quic::{Connection as Engine, ResetAtError};
use towline_wire::StreamId;

use super::entry::Entry;
use super::protocol::{Half, Protocol, Turn};
use super::reference::Reference;

/// A stream's handle at work: its connection, its entry, and who will be woken.
pub(super) struct Work<'a> {
    pub(super) reference: &'a Reference,
    pub(super) id: StreamId,
    pub(super) entry: &'a mut Entry,
    pub(super) wake: &'a mut Vec<Waker>,
}

impl Work<'_> {
    /// Lets the protocol act, if there is one.
    fn tell<R>(
        &mut self,
        engine: &mut Engine,
        f: impl FnOnce(&mut dyn Protocol, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let seat = self.entry.protocol.as_deref_mut()?;
        let mut notes = Vec::new();
        let mut turn = Turn {
            now: self.reference.now(),
            connection: engine,
            wake: self.wake,
            notes: &mut notes,
        };
        let result = f(seat.hooks(), &mut turn);
        seat.note_held(turn.connection);
        self.entry.tell_handles(notes, self.wake);
        Some(result)
    }

    /// The most bytes that may be written now.
    #[inline]
    pub(super) fn allowance(&mut self, engine: &mut Engine) -> usize {
        if self.entry.protocol.is_none() {
            return usize::MAX;
        }
        let id = self.id;
        let allowance = self.tell(engine, |protocol, turn| protocol.send_allowance(turn, id));
        let allowance = allowance.flatten().unwrap_or(u64::MAX);
        usize::try_from(allowance).unwrap_or(usize::MAX)
    }

    #[inline]
    pub(super) fn on_written(&mut self, bytes: usize) {
        if let Some(seat) = self.entry.protocol.as_deref_mut() {
            seat.hooks().on_written(self.id, bytes as u64);
        }
    }

    #[inline]
    pub(super) fn on_read(&mut self, engine: &mut Engine, bytes: usize) {
        if self.entry.protocol.is_some() && bytes > 0 {
            let id = self.id;
            self.tell(engine, |protocol, turn| {
                protocol.on_read(turn, id, bytes as u64);
            });
        }
    }

    #[inline]
    pub(super) fn on_finish(&mut self, engine: &mut Engine) {
        if self.entry.protocol.is_some() {
            let id = self.id;
            self.tell(engine, |protocol, turn| protocol.on_finish(turn, id));
        }
    }

    pub(super) fn on_final_size(&mut self, engine: &mut Engine, bytes: u64) {
        let id = self.id;
        self.tell(engine, |protocol, turn| {
            protocol.on_final_size(turn, id, bytes);
        });
    }

    #[inline]
    pub(super) fn on_half_over(&mut self, engine: &mut Engine, half: Half) {
        if self.entry.protocol.is_some() {
            let id = self.id;
            self.tell(engine, |protocol, turn| {
                protocol.on_half_over(turn, id, half)
            });
        }
    }

    /// Gives up what is sent, beyond the first `reliable_size` bytes.
    pub(super) fn reset(
        &mut self,
        engine: &mut Engine,
        code: u64,
        reliable_size: u64,
    ) -> Result<(), ResetAtError> {
        let id = self.id;
        let told = self.tell(engine, |protocol, turn| {
            protocol.reset(turn, id, code, reliable_size)
        });
        told.unwrap_or_else(|| engine.reset_at(id, code, reliable_size))
    }

    /// Wants no more of what is received.
    pub(super) fn stop(&mut self, engine: &mut Engine, code: u64) {
        let id = self.id;
        let told = self.tell(engine, |protocol, turn| protocol.stop(turn, id, code));
        told.unwrap_or_else(|| engine.stop(id, code));
    }
}

/// What a handle is told of a code of the peer's.
#[inline]
pub(super) fn code_for_handle(entry: &Entry, id: StreamId, code: u64) -> u64 {
    match &entry.protocol {
        None => code,
        Some(seat) => seat.code_for_handle(id, code),
    }
}
