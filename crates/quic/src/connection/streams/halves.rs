//! The sending and receiving halves that have state, their control frames, and the memory they hold.
//!
//! Owned by `Streams`. Whoever acts on a half goes through here, so that its memory is counted
//! afterwards and the number of open receivers is right. When a half may send is `send_queue`'s.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use towline_wire::{
    MAX_STREAM_DATA_MAX_LEN, StreamId, Time, write_max_stream_data, write_reset_stream,
    write_stop_sending, write_stream_data_blocked,
};

use super::flow::{CONTROL_FRAME_ROOM, RoundTrip};
use super::recv::RecvStream;
use super::send::SendStream;
use crate::config::TransportConfig;
use crate::connection::blocks::BlockPool;
use crate::connection::component::{PacketWriter, SentFrame};

/// Bytes of the records of a stream's halves.
#[cfg(test)]
pub(crate) const STREAM_RECORDS: usize =
    size_of::<(StreamId, SendStream)>() + size_of::<(StreamId, RecvStream)>();

/// Stream IDs are small and sequential within limits we set, so one multiplication is enough.
#[derive(Default)]
struct StreamIdHasher(u64);

impl Hasher for StreamIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type StreamMap<T> = HashMap<StreamId, T, BuildHasherDefault<StreamIdHasher>>;

#[derive(Debug)]
pub(super) struct Halves {
    send: StreamMap<SendStream>,
    recv: StreamMap<RecvStream>,
    /// Credit of a new receiving half, and the most it may grow to.
    window: u64,
    max_window: u64,
    /// Streams with control frames to be written.
    control: VecDeque<StreamId>,
    /// Open receiving halves whose end is unknown.
    open_receivers: usize,
    pool: BlockPool,
    /// Bytes of memory that the halves hold beyond their own records.
    held: usize,
}

impl Halves {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            send: StreamMap::default(),
            recv: StreamMap::default(),
            window: config.stream_receive_window,
            max_window: config.max_stream_receive_window,
            control: VecDeque::new(),
            open_receivers: 0,
            pool: BlockPool::default(),
            held: 0,
        }
    }

    /// Makes a sending half that may send `max` bytes for now.
    pub(super) fn insert_sender(&mut self, id: StreamId, max: u64) {
        self.send.insert(id, SendStream::new(max));
    }

    pub(super) fn insert_receiver(&mut self, id: StreamId) {
        self.open_receivers += 1;
        self.recv
            .insert(id, RecvStream::new(self.window, self.max_window));
    }

    pub(super) fn sender(&self, id: StreamId) -> Option<&SendStream> {
        self.send.get(&id)
    }

    pub(super) fn receiver(&self, id: StreamId) -> Option<&RecvStream> {
        self.recv.get(&id)
    }

    /// A sending half, for what changes no memory it holds.
    pub(super) fn sender_mut(&mut self, id: StreamId) -> Option<&mut SendStream> {
        self.send.get_mut(&id)
    }

    /// A receiving half, for what changes neither the memory it holds nor whether it is open.
    pub(super) fn receiver_mut(&mut self, id: StreamId) -> Option<&mut RecvStream> {
        self.recv.get_mut(&id)
    }

    /// Lets `f` act on a sending half, and counts what it then holds.
    pub(super) fn with_sender<R>(
        &mut self,
        id: StreamId,
        f: impl FnOnce(&mut SendStream, &mut BlockPool) -> R,
    ) -> Option<R> {
        let s = self.send.get_mut(&id)?;
        let result = f(s, &mut self.pool);
        s.recount(&mut self.held);
        Some(result)
    }

    /// Lets `f` act on a receiving half, and counts what it then holds and whether it ended.
    pub(super) fn with_receiver<R>(
        &mut self,
        id: StreamId,
        f: impl FnOnce(&mut RecvStream, &mut BlockPool) -> R,
    ) -> Option<R> {
        let r = self.recv.get_mut(&id)?;
        let was_open = r.is_open();
        let result = f(r, &mut self.pool);
        r.recount(&mut self.held);
        if was_open && !r.is_open() {
            self.open_receivers -= 1;
        }
        Some(result)
    }

    /// Removes a half that is over; `true` if the other one is gone too.
    pub(super) fn remove_receiver(&mut self, id: StreamId) -> bool {
        let Some(r) = self.recv.remove(&id) else {
            return false;
        };
        self.held -= r.counted;
        !self.send.contains_key(&id)
    }

    /// As [`Self::remove_receiver`], of the sending half.
    pub(super) fn remove_sender(&mut self, id: StreamId) -> bool {
        let Some(s) = self.send.remove(&id) else {
            return false;
        };
        self.held -= s.counted;
        !self.recv.contains_key(&id)
    }

    /// The sending halves whose writer was refused, with their priorities, the oldest stream first.
    pub(super) fn blocked_writers(&self) -> impl Iterator<Item = (StreamId, i32)> + use<> {
        let blocked = self.send.iter().filter(|(_, s)| s.writer_blocked);
        let mut blocked: Vec<_> = blocked.map(|(id, s)| (*id, s.priority)).collect();
        blocked.sort_unstable();
        blocked.into_iter()
    }

    /// A receiver is waiting for more of some stream.
    pub(super) fn has_open_receiver(&self) -> bool {
        self.open_receivers > 0
    }

    // ---- control frames ----

    /// Lists a stream for its control frames.
    pub(super) fn list_control(&mut self, id: StreamId) {
        let listed = match (self.send.get_mut(&id), self.recv.get_mut(&id)) {
            (Some(s), _) if s.has_pending_reset() || s.blocked_by_stream() => &mut s.control_queued,
            (_, Some(r)) => &mut r.control_queued,
            (Some(s), None) => &mut s.control_queued,
            (None, None) => return,
        };
        if !std::mem::replace(listed, true) {
            self.control.push_back(id);
        }
    }

    pub(super) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    pub(super) fn write_control(
        &mut self,
        now: Time,
        rtt: RoundTrip,
        w: &mut PacketWriter<'_, '_>,
    ) {
        while w.remaining() >= CONTROL_FRAME_ROOM {
            let Some(id) = self.control.pop_front() else {
                return;
            };
            if !self.write_control_of(id, now, rtt, w) {
                self.control.push_front(id);
                return;
            }
        }
    }

    /// Writes the control frames of one listed stream; `false` if there was no room for all.
    fn write_control_of(
        &mut self,
        id: StreamId,
        now: Time,
        rtt: RoundTrip,
        w: &mut PacketWriter<'_, '_>,
    ) -> bool {
        if let Some(s) = self.send.get_mut(&id) {
            if w.remaining() < CONTROL_FRAME_ROOM {
                return false;
            }
            if let Some((code, final_size)) = s.take_reset() {
                write_reset_stream(w.w, id, code, final_size);
                w.record(SentFrame::ResetStream(id));
            } else if let Some(limit) = s.take_blocked_report() {
                write_stream_data_blocked(w.w, id, limit);
                w.record(SentFrame::StreamDataBlocked(id));
            }
        }
        if let Some(r) = self.recv.get_mut(&id) {
            if r.stop_pending {
                if w.remaining() < CONTROL_FRAME_ROOM {
                    return false;
                }
                r.stop_pending = false;
                if let Some(code) = r.stop_code() {
                    write_stop_sending(w.w, id, code);
                    w.record(SentFrame::StopSending(id));
                }
            }
            if r.max_data_pending {
                if w.remaining() < MAX_STREAM_DATA_MAX_LEN {
                    return false;
                }
                r.max_data_pending = false;
                if r.is_open() {
                    write_max_stream_data(w.w, id, r.credit.update(now, rtt));
                    w.record(SentFrame::MaxStreamData(id));
                }
            }
            r.control_queued = false;
        }
        if let Some(s) = self.send.get_mut(&id) {
            s.control_queued = false;
        }
        true
    }

    // ---- memory ----

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.held
            + self.pool.held()
            + self.send.capacity() * size_of::<(StreamId, SendStream)>()
            + self.recv.capacity() * size_of::<(StreamId, RecvStream)>()
            + self.control.capacity() * size_of::<StreamId>()
    }

    /// Drops what was received: nobody will have it.
    pub(super) fn drop_received(&mut self) {
        #[expect(clippy::iter_over_hash_type, reason = "the order does not show")]
        for r in self.recv.values_mut() {
            r.drop_received();
            r.recount(&mut self.held);
        }
    }

    /// The connection is over: nothing more is sent, and nothing more expected.
    pub(super) fn on_connection_lost(&mut self) {
        #[expect(clippy::iter_over_hash_type, reason = "a sum has no order")]
        for s in self.send.values() {
            self.held -= s.counted;
        }
        self.send = StreamMap::default();
        self.control = VecDeque::new();
        self.open_receivers = 0;
        self.pool.trim();
    }

    /// Gives back memory kept for speed.
    pub(super) fn trim(&mut self) {
        self.pool.trim();
        self.send.shrink_to_fit();
        self.recv.shrink_to_fit();
        self.control.shrink_to_fit();
        #[expect(clippy::iter_over_hash_type, reason = "each is trimmed by itself")]
        for s in self.send.values_mut() {
            s.trim();
            s.recount(&mut self.held);
        }
        #[expect(clippy::iter_over_hash_type, reason = "each is trimmed by itself")]
        for r in self.recv.values_mut() {
            r.trim();
            r.recount(&mut self.held);
        }
    }

    /// Sending and receiving halves that have state.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.send.len(), self.recv.len())
    }

    /// Bytes of spare blocks.
    #[cfg(test)]
    pub(super) fn spare(&self) -> usize {
        self.pool.held()
    }
}
