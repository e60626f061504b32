//! What an application asks of its connection's [`Protocol`], and takes over from it.

use std::sync::Arc;
use std::task::Waker;

use towline_wire::StreamId;

use super::connection::Connection;
use super::protocol::{Protocol, Seat, Turn};
use super::recv_stream::RecvStream;
use super::reference::Reference;
use super::send_stream::SendStream;
use super::waiters::wake_all;
use crate::io::Change;

impl Connection {
    /// Lets `f` act on the protocol of this connection, with the engine's connection while there is
    /// one. What `f` returns says whether the shard has something to send, time or tell. `None` where
    /// the connection's protocol is no `P`.
    ///
    /// `f` runs under the shard's lock: it must be short, and must not use handles of this endpoint.
    pub fn with_protocol<P: Protocol, R>(
        &self,
        f: impl FnOnce(&mut P, Option<&mut Turn<'_>>) -> (R, Change),
    ) -> Option<R> {
        let mut wake = Vec::new();
        let result = self
            .reference()
            .with_protocol(&mut wake, |seat, turn| seat.of().map(|own| f(own, turn)));
        wake_all(wake);
        result
    }

    /// The sending half of a stream that the connection's protocol accepted or opened, and that it
    /// leaves to the application. One handle for each stream. `stopped` is the peer's code where the
    /// protocol was told `Stopped` of it: the engine forgets such a stream soon, and its code. A stop
    /// between the call that found the stream and this one is lost, unless that call
    /// [expected](Turn::expect_handle) the handle.
    pub fn adopt_send(&self, id: StreamId, stopped: Option<u64>) -> SendStream {
        self.reference().with(|_, entry| {
            let slot = entry.send.entry(id).or_default();
            slot.stopped = slot.stopped.or(stopped);
            ((), Change::None)
        });
        self.send_stream(id)
    }

    /// As [`adopt_send`](Self::adopt_send), the receiving half: reads go on where the protocol ended.
    pub fn adopt_recv(&self, id: StreamId) -> RecvStream {
        let start = self.reference().look(|_, entry| {
            let seat = entry.protocol.as_deref();
            seat.map_or(0, |seat| seat.bytes_read(id))
        });
        RecvStream::adopt(Arc::clone(self.reference()), id, start)
    }
}

impl Reference {
    /// Runs `f` under the lock with the connection's protocol, if it has one.
    fn with_protocol<R>(
        &self,
        wake: &mut Vec<Waker>,
        f: impl FnOnce(&mut Seat, Option<&mut Turn<'_>>) -> Option<(R, Change)>,
    ) -> Option<R> {
        let now = self.now();
        self.with_sessions(|endpoint, sessions, slot| {
            let entry = sessions.entry(slot);
            let Some(seat) = entry.protocol.as_deref_mut() else {
                return (None, Change::None);
            };
            let mut notes = Vec::new();
            let result = match entry.handle {
                None => f(seat, None),
                Some(handle) => endpoint.visit(handle, |engine| match engine {
                    None => f(seat, None),
                    Some(connection) => {
                        let mut turn = Turn {
                            now,
                            connection,
                            wake,
                            notes: &mut notes,
                        };
                        let result = f(seat, Some(&mut turn));
                        seat.note_held(turn.connection);
                        result
                    }
                }),
            };
            entry.tell_handles(notes, wake);
            let Some((result, change)) = result else {
                return (None, Change::None);
            };
            // The shard's timer is set in its turn.
            let change = match sessions.rearm(slot, None) {
                true => Change::Made,
                false => change,
            };
            (Some(result), change)
        })
    }
}
