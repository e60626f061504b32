//! Which streams can send, whose turn it is, and the connection's credit that they share.
//!
//! Owned by `Streams`. Streams with data wait in `turns`: group after group, in each the highest
//! priority first, round robin inside it, as much a turn as the path carries in a millisecond. It writes STREAM frames and
//! DATA_BLOCKED; what is in a stream is the stream's.

use towline_wire::{StreamId, write_data_blocked};

use super::flow::{CONTROL_FRAME_ROOM, RoundTrip, SendCredit};
use super::halves::Halves;
use super::send::SendStream;
use super::write_room::WriteRoom;
use crate::connection::component::{PacketWriter, SentFrame};
use crate::connection::events::Events;
use crate::connection::turns::{Place, Turns};

#[derive(Debug, Default)]
pub(super) struct SendQueue {
    credit: SendCredit,
    /// Streams that can send now.
    ready: Turns<StreamId>,
    /// Streams that came upon the end of the connection's credit. As many as frames are written
    /// move to `ready` when there is more, for the peer may grant a byte at a time.
    waiting: Turns<StreamId>,
    /// Streams whose next bytes lie beyond the credit there is, behind some left out.
    beyond_credit: Vec<StreamId>,
    /// Stream bytes sent more than once.
    retransmitted: u64,
}

impl SendQueue {
    pub(super) fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Lists a stream for its turn, where it can use one.
    pub(super) fn enqueue(&mut self, id: StreamId, halves: &mut Halves) {
        if let Some(s) = halves.sender_mut(id)
            && self.list(id, s)
        {
            halves.list_control(id);
        }
    }

    /// As [`Self::enqueue`]; `true` if it has a control frame to write: its own limit holds it, which
    /// the peer is told, or its last bytes before a reset have left.
    fn list(&mut self, id: StreamId, s: &mut SendStream) -> bool {
        if s.ready {
            return false;
        }
        if s.can_send(self.credit.available()) {
            s.ready = true;
            self.ready.push(id, s.place);
        } else if s.wants_connection_credit() {
            if std::mem::replace(&mut s.waiting, true) {
                return false;
            }
            if self.credit.available() == 0 {
                self.waiting.push(id, s.place);
            } else {
                self.beyond_credit.push(id);
            }
        } else {
            return s.blocked_by_stream() || s.has_pending_reset();
        }
        false
    }

    /// A stream has another place.
    pub(super) fn change(&mut self, id: StreamId, before: Place, after: Place) {
        self.ready.change(id, before, after);
        self.waiting.change(id, before, after);
    }

    // ---- credit ----

    /// The peer's limit on all streams together.
    pub(super) fn set_peer_limit(&mut self, max: u64) {
        self.credit.raise(max);
    }

    pub(super) fn on_max_data(&mut self, max: u64, halves: &mut Halves) {
        if self.credit.raise(max) {
            for id in std::mem::take(&mut self.beyond_credit) {
                self.list_again(id, halves);
            }
        }
    }

    /// Lists a stream that waited for credit where it belongs now.
    fn list_again(&mut self, id: StreamId, halves: &mut Halves) {
        if let Some(s) = halves.sender_mut(id) {
            s.waiting = false;
            self.enqueue(id, halves);
        }
    }

    /// Whether a stream waits for credit that is there.
    fn can_draw_waiting(&self) -> bool {
        !self.waiting.is_empty() && self.credit.available() > 0
    }

    pub(super) fn on_data_blocked_lost(&mut self) {
        self.credit.forget_blocked_report();
    }

    // ---- writing ----

    /// Whether a STREAM frame could be written now.
    pub(super) fn has_pending(&self) -> bool {
        !self.ready.is_empty() || self.can_draw_waiting()
    }

    /// Whether the peer is to be told that its limit on all streams is in the way.
    pub(super) fn owes_blocked(&self) -> bool {
        !self.waiting.is_empty() && self.credit.owes_blocked()
    }

    /// A sender that the connection's credit holds says so (RFC 9000 §19.12).
    pub(super) fn write_blocked(&mut self, w: &mut PacketWriter<'_, '_>) {
        if self.credit.available() == 0
            && !self.waiting.is_empty()
            && w.remaining() >= CONTROL_FRAME_ROOM
            && let Some(limit) = self.credit.take_blocked_report()
        {
            write_data_blocked(w.w, limit);
            w.record(SentFrame::DataBlocked);
        }
    }

    /// STREAM frames of one stream after the other, each for its turn.
    pub(super) fn write_data(
        &mut self,
        halves: &mut Halves,
        room: &WriteRoom,
        rtt: RoundTrip,
        w: &mut PacketWriter<'_, '_>,
        events: &mut Events,
    ) {
        loop {
            // One more for each frame: what waits is as urgent as what is ready.
            if self.can_draw_waiting()
                && let Some(id) = self.waiting.pop()
            {
                self.list_again(id, halves);
            }
            let Some(id) = self.ready.front() else {
                if self.can_draw_waiting() {
                    continue;
                }
                return;
            };
            let credit = self.credit.available();
            let Some(s) = halves.sender_mut(id).filter(|s| s.can_send(credit)) else {
                self.ready.remove_front();
                self.relist(id, halves);
                continue;
            };
            let Some(used) = s.write_frame(id, credit, w) else {
                // No room left in this packet.
                return;
            };
            self.credit.consume(used.credit);
            self.retransmitted += used.retransmitted;
            room.wake(id, s, events);
            let has_more = s.can_send(self.credit.available());
            let len = used.credit + used.retransmitted;
            self.ready.spend(len, has_more, || rtt.turn());
            if !has_more {
                self.relist(id, halves);
            }
        }
    }

    /// Lists a stream that had its turn where it belongs now.
    fn relist(&mut self, id: StreamId, halves: &mut Halves) {
        if let Some(s) = halves.sender_mut(id) {
            s.ready = false;
            self.enqueue(id, halves);
        }
    }

    /// The connection is over: nothing more is sent.
    pub(super) fn on_connection_lost(&mut self) {
        self.ready = Turns::default();
        self.waiting = Turns::default();
        self.beyond_credit = Vec::new();
    }

    // ---- memory ----

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.ready.held()
            + self.waiting.held()
            + self.beyond_credit.capacity() * size_of::<StreamId>()
    }

    /// Gives back unused memory.
    pub(super) fn trim(&mut self) {
        self.ready.trim();
        self.waiting.trim();
        self.beyond_credit.shrink_to_fit();
    }

    /// Nobody can send now.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// Who is the first to get credit that comes.
    #[cfg(test)]
    pub(super) fn first_waiting(&self) -> Option<StreamId> {
        self.waiting.front()
    }

    /// The connection's credit that is left.
    #[cfg(test)]
    pub(super) fn available(&self) -> u64 {
        self.credit.available()
    }
}
