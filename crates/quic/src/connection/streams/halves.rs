//! The sending and receiving halves that have state, their control frames, and the memory they hold.
//!
//! Owned by `Streams`. Whoever acts on a half goes through here, so that its memory is counted
//! afterwards and the number of open receivers is right. When a half may send is `send_queue`'s.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use towline_wire::{
    MAX_STREAM_DATA_MAX_LEN, StreamId, Time, write_max_stream_data, write_reset_stream,
    write_reset_stream_at, write_stop_sending, write_stream_data_blocked,
};

use super::flow::{CONTROL_FRAME_ROOM, RoundTrip};
use super::recv::RecvStream;
use super::send::{Reset, SendStream};
use crate::config::TransportConfig;
use crate::connection::blocks::BlockPool;
use crate::connection::component::{PacketWriter, SentFrame};
use crate::connection::turns::Place;

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

    /// The application wants no more of a stream: the bytes that it did not read, and whether the half
    /// is over. `None` if there is no such half, or it was stopped or read to its end before.
    pub(super) fn stop(&mut self, id: StreamId, code: u64) -> Option<(u64, bool)> {
        let stopped = self.with_receiver(id, |r, _| {
            let unread = r.stop(code)?;
            Some((unread, r.stop_pending, r.is_done()))
        });
        let (unread, stop_pending, done) = stopped??;
        if stop_pending {
            self.list_control(id);
        }
        Some((unread, done))
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

    /// The sending halves whose writer was refused, with their places, the oldest stream first.
    pub(super) fn blocked_writers(&self) -> impl Iterator<Item = (StreamId, Place)> + use<> {
        let blocked = self.send.iter().filter(|(_, s)| s.writer_blocked);
        let mut blocked: Vec<_> = blocked.map(|(id, s)| (*id, s.place)).collect();
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

    /// The application took `n` bytes, and a new limit is told in time.
    pub(super) fn on_read(&mut self, id: StreamId, n: u64) {
        let Some(r) = self.recv.get_mut(&id) else {
            return;
        };
        r.credit.consume(n);
        if r.is_open() && !r.max_data_pending && r.credit.wants_update() {
            r.max_data_pending = true;
            self.list_control(id);
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
            if let Some(reset) = s.take_reset() {
                write_reset(id, reset, w);
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

    pub(super) fn on_reset_lost(&mut self, id: StreamId, reliable_size: u64) {
        if let Some(s) = self.send.get_mut(&id) {
            s.on_reset_lost(reliable_size);
            self.list_control(id);
        }
    }

    pub(super) fn on_stop_sending_lost(&mut self, id: StreamId) {
        if let Some(r) = self.recv.get_mut(&id) {
            r.stop_pending = r.stop_code().is_some();
            self.list_control(id);
        }
    }

    pub(super) fn on_max_stream_data_lost(&mut self, id: StreamId) {
        if let Some(r) = self.recv.get_mut(&id) {
            r.max_data_pending = r.is_open();
            self.list_control(id);
        }
    }

    /// Told again only while the limit is in the way.
    pub(super) fn on_stream_data_blocked_lost(&mut self, id: StreamId) {
        if let Some(s) = self.send.get_mut(&id) {
            s.forget_blocked_report();
            if s.blocked_by_stream() {
                self.list_control(id);
            }
        }
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

    /// There is something that the application can read or be told by reading.
    pub(super) fn has_unread(&self) -> bool {
        self.recv.values().any(RecvStream::has_unread)
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

/// Writes a RESET_STREAM, or a RESET_STREAM_AT where some bytes are delivered.
fn write_reset(id: StreamId, reset: Reset, w: &mut PacketWriter<'_, '_>) {
    let reliable_size = reset.reliable_size;
    match reliable_size {
        0 => write_reset_stream(w.w, id, reset.code, reset.final_size),
        _ => write_reset_stream_at(w.w, id, reset.code, reset.final_size, reliable_size),
    }
    w.record(SentFrame::ResetStream { id, reliable_size });
}
