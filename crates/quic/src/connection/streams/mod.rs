//! All streams of a connection: creation, limits, credit, and whose turn it is.
//!
//! State exists only for streams that carried something: permission for thousands costs a
//! counter. Frames go to the half they belong to; streams with data wait in `turns`: the highest
//! priority first, round robin inside it, as much a turn as the path carries in a millisecond.
//! Called by `dispatch`, `schedule`, `delivery` and the public API.
//!
//! One file because it is one table: every call here looks a stream up, lets its half act, and
//! settles what that means for the limits, the credit and the queues that all streams share.

mod flow;
mod recv;
mod send;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use bytes::Bytes;
use towline_wire::{
    Direction, MAX_DATA_MAX_LEN, MAX_STREAM_DATA_MAX_LEN, MAX_STREAMS, RESET_STREAM_MAX_LEN,
    RangeSet, Side, StreamFrame, StreamId, Time, TransportErrorCode, TransportParameters,
    write_data_blocked, write_max_data, write_max_stream_data, write_max_streams,
    write_reset_stream, write_stop_sending, write_stream_data_blocked, write_streams_blocked,
};

use super::blocks::BlockPool;
use super::component::{PacketWriter, SentFrame};
use super::events::{Event, Events};
use crate::config::TransportConfig;
use crate::error::{ReadError, Violation, WriteError};
pub(crate) use flow::RoundTrip;
use flow::{ReceiveCredit, SendCredit};
pub use recv::ReceivedChunk;
use recv::{Accepted, RecvStream};
use send::SendStream;
use turns::Turns;

/// Room any small control frame of this component needs.
const CONTROL_FRAME_ROOM: usize = RESET_STREAM_MAX_LEN;

/// Bytes of the records of a stream's halves.
#[cfg(test)]
pub(crate) const STREAM_RECORDS: usize =
    size_of::<(StreamId, SendStream)>() + size_of::<(StreamId, RecvStream)>();

/// A frame could not be taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The peer broke a rule.
    Violation(Violation),
    /// Memory limits, in a 1-RTT packet: its other frames are not taken, and it must look lost.
    Overflow,
}

impl From<Violation> for Refused {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Stream IDs are small and sequential within limits we set, so one multiplication is enough.
#[derive(Default)]
pub(crate) struct StreamIdHasher(u64);

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

/// Streams this side opens, of one direction.
#[derive(Debug, Default)]
struct LocalStreams {
    next: u64,
    limit: u64,
    /// The application was refused and waits for `StreamsAvailable`.
    refused: bool,
    reported: Option<u64>,
}

/// Streams the peer opens, of one direction.
#[derive(Debug)]
struct RemoteStreams {
    /// Streams below this index are open or were.
    opened: u64,
    accepted: u64,
    /// The limit told to the peer.
    limit: u64,
    window: u64,
    closed: u64,
    update_pending: bool,
    /// The peer said that `limit` is in its way.
    blocked: bool,
    /// Opened by implication (RFC 9000 §2.1), no state made yet.
    unborn: RangeSet,
}

impl RemoteStreams {
    fn new(window: u64) -> Self {
        let window = window.min(MAX_STREAMS);
        Self {
            opened: 0,
            accepted: 0,
            limit: window,
            window,
            closed: 0,
            update_pending: false,
            blocked: false,
            unborn: RangeSet::default(),
        }
    }

    /// The limit that could be told to the peer now.
    fn next_limit(&self) -> u64 {
        (self.closed + self.window).min(MAX_STREAMS)
    }

    /// A new limit is told when an eighth of the window is free, or any of it to a blocked peer.
    fn consider_update(&mut self) {
        let threshold = if self.blocked {
            1
        } else {
            (self.window / 8).max(1)
        };
        if self.next_limit() - self.limit >= threshold {
            self.update_pending = true;
        }
    }
}

/// Limits the peer gives each new stream for data we send.
#[derive(Debug, Default)]
struct PeerWindows {
    bidi_opened_by_us: u64,
    bidi_opened_by_peer: u64,
    uni: u64,
}

#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    send: StreamMap<SendStream>,
    recv: StreamMap<RecvStream>,
    local: [LocalStreams; 2],
    remote: [RemoteStreams; 2],
    peer_windows: PeerWindows,
    send_credit: SendCredit,
    recv_credit: ReceiveCredit,
    /// Connection-wide bytes received, counted as RFC 9000 §4.1 does.
    received: u64,
    max_data_pending: bool,
    stream_window: u64,
    max_stream_window: u64,
    /// Streams that can send now.
    ready: Turns,
    /// Streams that came upon the end of the connection's credit. As many as frames are written
    /// move to `ready` when there is more, for the peer may grant a byte at a time.
    waiting: Turns,
    /// Streams whose next bytes lie beyond the credit there is, behind some left out.
    beyond_credit: Vec<StreamId>,
    control: VecDeque<StreamId>,
    /// Written and unacknowledged bytes of all streams.
    retained: u64,
    /// Bytes that were, until they were acknowledged or given up.
    released: u64,
    retained_cap: u64,
    unsent_cap: u64,
    /// Writers refused because of the connection-wide cap, the highest priority woken first.
    starved: Turns,
    /// Open receiving halves whose end is unknown.
    open_receivers: usize,
    /// Stream bytes sent more than once.
    retransmitted: u64,
    pool: BlockPool,
    /// Bytes of memory that the halves hold beyond their own records.
    held: usize,
}

impl Streams {
    pub(crate) fn new(side: Side, config: &TransportConfig) -> Self {
        Self {
            side,
            send: StreamMap::default(),
            recv: StreamMap::default(),
            local: Default::default(),
            remote: [
                RemoteStreams::new(config.max_concurrent_bidi_streams),
                RemoteStreams::new(config.max_concurrent_uni_streams),
            ],
            peer_windows: PeerWindows::default(),
            send_credit: SendCredit::default(),
            recv_credit: ReceiveCredit::new(config.receive_window, config.max_receive_window),
            received: 0,
            max_data_pending: false,
            stream_window: config.stream_receive_window,
            max_stream_window: config.max_stream_receive_window,
            ready: Turns::default(),
            waiting: Turns::default(),
            beyond_credit: Vec::new(),
            control: VecDeque::new(),
            retained: 0,
            released: 0,
            retained_cap: config.send_buffer,
            unsent_cap: config.stream_send_buffer,
            starved: Turns::default(),
            open_receivers: 0,
            retransmitted: 0,
            pool: BlockPool::default(),
            held: 0,
        }
    }

    /// Bytes of memory held for all streams.
    pub(crate) fn held(&self) -> usize {
        self.held
            + self.pool.held()
            + self.send.capacity() * size_of::<(StreamId, SendStream)>()
            + self.recv.capacity() * size_of::<(StreamId, RecvStream)>()
            + self.ready.held()
            + self.starved.held()
            + self.waiting.held()
            + (self.beyond_credit.capacity() + self.control.capacity()) * size_of::<StreamId>()
            + self.remote.iter().map(|r| r.unborn.held()).sum::<usize>()
    }

    /// Bytes that the application read, or that the peer acknowledged: they grow while the streams
    /// move.
    pub(crate) fn moved(&self) -> u64 {
        self.recv_credit.consumed() + self.released
    }

    pub(crate) fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Limits from the peer's transport parameters.
    pub(crate) fn set_peer_parameters(&mut self, p: &TransportParameters, events: &mut Events) {
        self.peer_windows = PeerWindows {
            bidi_opened_by_us: p.initial_max_stream_data_bidi_remote,
            bidi_opened_by_peer: p.initial_max_stream_data_bidi_local,
            uni: p.initial_max_stream_data_uni,
        };
        self.send_credit.raise(p.initial_max_data);
        self.on_max_streams(Direction::Bidirectional, p.initial_max_streams_bidi, events);
        self.on_max_streams(Direction::Unidirectional, p.initial_max_streams_uni, events);
    }

    // ---- opening and accepting ----

    pub(crate) fn open(&mut self, dir: Direction) -> Option<StreamId> {
        let local = &mut self.local[dir.index()];
        if local.next >= local.limit {
            local.refused = true;
            return None;
        }
        let id = StreamId::new(self.side, dir, local.next);
        local.next += 1;
        let max = match dir {
            Direction::Bidirectional => self.peer_windows.bidi_opened_by_us,
            Direction::Unidirectional => self.peer_windows.uni,
        };
        self.send.insert(id, SendStream::new(max));
        if dir == Direction::Bidirectional {
            self.insert_recv(id);
        }
        Some(id)
    }

    /// Streams that can be opened now.
    pub(crate) fn openable(&self, dir: Direction) -> u64 {
        let local = &self.local[dir.index()];
        local.limit.saturating_sub(local.next)
    }

    /// More than [`Self::openable`] are wanted.
    pub(crate) fn await_streams(&mut self, dir: Direction) {
        self.local[dir.index()].refused = true;
    }

    /// Streams of the peer's that wait to be accepted.
    pub(crate) fn acceptable(&self, dir: Direction) -> u64 {
        let remote = &self.remote[dir.index()];
        remote.opened - remote.accepted
    }

    fn insert_recv(&mut self, id: StreamId) {
        self.open_receivers += 1;
        self.recv.insert(
            id,
            RecvStream::new(self.stream_window, self.max_stream_window),
        );
    }

    pub(crate) fn accept(&mut self, dir: Direction) -> Option<StreamId> {
        let remote = &mut self.remote[dir.index()];
        if remote.accepted >= remote.opened {
            return None;
        }
        let index = remote.accepted;
        remote.accepted += 1;
        self.materialize(dir, index);
        Some(StreamId::new(self.side.peer(), dir, index))
    }

    /// Makes the state of a peer's stream that so far was only implied.
    fn materialize(&mut self, dir: Direction, index: u64) {
        let remote = &mut self.remote[dir.index()];
        if !remote.unborn.contains(index) {
            return;
        }
        remote.unborn.remove(index..index + 1);
        let id = StreamId::new(self.side.peer(), dir, index);
        self.insert_recv(id);
        if dir == Direction::Bidirectional {
            self.send
                .insert(id, SendStream::new(self.peer_windows.bidi_opened_by_peer));
        }
    }

    /// Checks a stream ID in a frame for our receiving (`true`) or sending half, and opens
    /// what it implies (RFC 9000 §2.1, §19.4, §19.5, §19.8, §19.10, §19.13).
    fn admit(
        &mut self,
        id: StreamId,
        receiving: bool,
        events: &mut Events,
    ) -> Result<(), Violation> {
        let state_error = |what| Err(Violation::new(TransportErrorCode::STREAM_STATE_ERROR, what));
        let dir = id.direction();
        if id.initiator() == self.side {
            if dir == Direction::Unidirectional && receiving {
                return state_error("frame for the receiving half of a send-only stream");
            }
            if id.index() >= self.local[dir.index()].next {
                return state_error("frame for a stream not yet created");
            }
            return Ok(());
        }
        if dir == Direction::Unidirectional && !receiving {
            return state_error("frame for the sending half of a receive-only stream");
        }
        let remote = &mut self.remote[dir.index()];
        if id.index() >= remote.limit {
            return Err(Violation::new(
                TransportErrorCode::STREAM_LIMIT_ERROR,
                "opened more streams than permitted",
            ));
        }
        if id.index() >= remote.opened {
            if remote.accepted == remote.opened {
                events.push(Event::Opened(dir));
            }
            remote.unborn.insert(remote.opened..id.index() + 1);
            remote.opened = id.index() + 1;
        }
        self.materialize(dir, id.index());
        Ok(())
    }

    // ---- application: sending ----

    /// The stream and the room for a write on it now.
    fn write_room(&mut self, id: StreamId) -> Result<(&mut SendStream, usize), WriteError> {
        self.write_room_beyond(id, 0)
    }

    /// As [`Self::write_room`], for a write that leaves out the next `skipped` bytes. They count
    /// as written, so that whoever fills them in later needs no room.
    fn write_room_beyond(
        &mut self,
        id: StreamId,
        skipped: u64,
    ) -> Result<(&mut SendStream, usize), WriteError> {
        let s = self.send.get_mut(&id).ok_or(WriteError::ClosedStream)?;
        s.check_writable()?;
        let own = self.unsent_cap.saturating_sub(s.unsent_len());
        let shared = self.retained_cap.saturating_sub(self.retained);
        let room = own.min(shared).saturating_sub(skipped);
        if room == 0 {
            if !s.writer_blocked && shared == 0 {
                self.starved.push(id, s.priority);
            }
            s.writer_blocked = true;
            return Err(WriteError::Blocked);
        }
        Ok((s, usize::try_from(room).unwrap_or(usize::MAX)))
    }

    pub(crate) fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        let (s, room) = self.write_room(id)?;
        let n = data.len().min(room);
        s.push(data.split_to(n));
        self.written(id, n);
        Ok(n)
    }

    pub(crate) fn write_slice(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        let mut pool = std::mem::take(&mut self.pool);
        let result = self.write_room(id).map(|(s, room)| {
            let n = data.len().min(room);
            s.push_slice(&data[..n], &mut pool);
            n
        });
        self.pool = pool;
        let n = result?;
        self.written(id, n);
        Ok(n)
    }

    /// Takes as much of `data` as there is room for, at its place: ahead of bytes not written yet,
    /// or where they were left out. Of bytes written twice the first copy stays.
    pub(crate) fn write_at(
        &mut self,
        id: StreamId,
        offset: u64,
        data: &mut Bytes,
    ) -> Result<usize, WriteError> {
        let s = self.send.get_mut(&id).ok_or(WriteError::ClosedStream)?;
        s.check_writable()?;
        let end = s.written_end();
        if offset < end {
            // Room for these was reserved when the writer went past them.
            let n = s.fill_in(offset, data);
            s.recount(&mut self.held);
            self.enqueue(id);
            return Ok(n);
        }
        let skipped = offset - end;
        let (s, room) = self.write_room_beyond(id, skipped)?;
        let n = data.len().min(room);
        if n == 0 {
            return Ok(0);
        }
        s.push_beyond(skipped, data.split_to(n));
        self.retained += skipped;
        self.written(id, n);
        Ok(n)
    }

    /// Sets how urgent the stream is, now and for what is written later.
    pub(crate) fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        let s = self.send.get_mut(&id).ok_or(WriteError::ClosedStream)?;
        let before = std::mem::replace(&mut s.priority, priority);
        if before != priority {
            self.ready.change(id, before, priority);
            self.waiting.change(id, before, priority);
            self.starved.change(id, before, priority);
        }
        Ok(())
    }

    pub(crate) fn priority(&self, id: StreamId) -> Option<i32> {
        self.send.get(&id).map(|s| s.priority)
    }

    fn written(&mut self, id: StreamId, n: usize) {
        self.retained += n as u64;
        if let Some(s) = self.send.get_mut(&id) {
            s.recount(&mut self.held);
        }
        self.enqueue(id);
    }

    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        let s = self.send.get_mut(&id).ok_or(WriteError::ClosedStream)?;
        s.finish()?;
        self.enqueue(id);
        Ok(())
    }

    /// Only the application resets a stream, or the peer asks for it (RFC 9000 §11.2).
    pub(crate) fn reset(&mut self, id: StreamId, code: u64, events: &mut Events) {
        let Some(s) = self.send.get_mut(&id) else {
            return;
        };
        if let Some(released) = s.reset(code) {
            s.recount(&mut self.held);
            self.retained -= released;
            self.enqueue_control(id);
            self.wake_starved(events);
        }
    }

    /// Lists the stream for its turn, where it can use one.
    fn enqueue(&mut self, id: StreamId) {
        let Some(s) = self.send.get_mut(&id) else {
            return;
        };
        if s.ready {
            return;
        }
        if s.can_send(self.send_credit.available()) {
            s.ready = true;
            self.ready.push(id, s.priority);
        } else if s.wants_connection_credit() {
            if std::mem::replace(&mut s.waiting, true) {
                return;
            }
            if self.send_credit.available() == 0 {
                self.waiting.push(id, s.priority);
            } else {
                self.beyond_credit.push(id);
            }
        } else if s.blocked_by_stream() {
            self.enqueue_control(id);
        }
    }

    fn enqueue_control(&mut self, id: StreamId) {
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

    // ---- application: receiving ----

    pub(crate) fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let r = self.recv.get_mut(&id).ok_or(ReadError::ClosedStream)?;
        let result = r.read(max, &mut self.pool);
        r.recount(&mut self.held);
        let n = match &result {
            Ok(Some(chunk)) => chunk.len(),
            _ => 0,
        };
        self.after_read(id, n);
        result
    }

    pub(crate) fn read_slice(
        &mut self,
        id: StreamId,
        out: &mut [u8],
    ) -> Result<Option<usize>, ReadError> {
        let r = self.recv.get_mut(&id).ok_or(ReadError::ClosedStream)?;
        let result = r.read_slice(out, &mut self.pool);
        r.recount(&mut self.held);
        let n = match result {
            Ok(Some(n)) => n,
            _ => 0,
        };
        self.after_read(id, n);
        result
    }

    /// Up to `max` bytes from below offset `below`, wherever they are in the stream.
    pub(crate) fn read_unordered(
        &mut self,
        id: StreamId,
        below: u64,
        max: usize,
    ) -> Result<Option<ReceivedChunk>, ReadError> {
        let r = self.recv.get_mut(&id).ok_or(ReadError::ClosedStream)?;
        let result = r.read_unordered(below, max, &mut self.pool);
        r.recount(&mut self.held);
        let n = match &result {
            Ok(Some(chunk)) => chunk.data.len(),
            _ => 0,
        };
        self.after_read(id, n);
        result
    }

    /// The stream's length, once the peer said so.
    pub(crate) fn final_size(&self, id: StreamId) -> Option<u64> {
        self.recv.get(&id).and_then(RecvStream::final_size)
    }

    fn after_read(&mut self, id: StreamId, n: usize) {
        let Some(r) = self.recv.get_mut(&id) else {
            return;
        };
        if n > 0 {
            r.credit.consume(n as u64);
            if r.is_open() && !r.max_data_pending && r.credit.wants_update() {
                r.max_data_pending = true;
                self.enqueue_control(id);
            }
            self.return_credit(n as u64);
        } else if r.is_done() {
            self.remove_recv(id);
        }
    }

    /// Bytes the application consumed, or that nobody will read.
    fn return_credit(&mut self, bytes: u64) {
        self.recv_credit.consume(bytes);
        debug_assert!(
            self.recv_credit.consumed() <= self.received,
            "credit returned twice"
        );
        if self.recv_credit.wants_update_beside_unread(self.received) {
            self.max_data_pending = true;
        }
    }

    pub(crate) fn stop(&mut self, id: StreamId, code: u64) {
        let Some(r) = self.recv.get_mut(&id) else {
            return;
        };
        let was_open = r.is_open();
        let Some(unread) = r.stop(code) else { return };
        r.recount(&mut self.held);
        if was_open {
            self.open_receivers -= 1;
        }
        let stop_pending = r.stop_pending;
        let done = r.is_done();
        self.return_credit(unread);
        if stop_pending {
            self.enqueue_control(id);
        }
        if done {
            self.remove_recv(id);
        }
    }

    /// A receiver is waiting for more of some stream.
    pub(crate) fn has_open_receiver(&self) -> bool {
        self.open_receivers > 0
    }

    // ---- removal ----

    fn remove_recv(&mut self, id: StreamId) {
        let Some(r) = self.recv.remove(&id) else {
            return;
        };
        self.held -= r.counted;
        if !self.send.contains_key(&id) {
            self.on_gone(id);
        }
    }

    fn remove_send(&mut self, id: StreamId) {
        let Some(s) = self.send.remove(&id) else {
            return;
        };
        self.held -= s.counted;
        if !self.recv.contains_key(&id) {
            self.on_gone(id);
        }
    }

    /// Both halves are over: the peer may open another (RFC 9000 §4.6).
    fn on_gone(&mut self, id: StreamId) {
        if id.initiator() == self.side {
            return;
        }
        let remote = &mut self.remote[id.direction().index()];
        remote.closed += 1;
        remote.consider_update();
    }

    // ---- frames from the peer ----

    pub(crate) fn on_stream(
        &mut self,
        now: Time,
        frame: &StreamFrame<'_>,
        events: &mut Events,
    ) -> Result<(), Refused> {
        let id = frame.id;
        if !self.recv.contains_key(&id) {
            self.admit(id, true, events)?;
        }
        let left = self.recv_credit.advertised() - self.received;
        let Some(r) = self.recv.get_mut(&id) else {
            return Ok(());
        };
        let was_open = r.is_open();
        let (offset, data, fin) = (frame.offset, frame.data, frame.fin);
        let accepted = r.on_data(now, offset, data, fin, left, &mut self.pool)?;
        r.recount(&mut self.held);
        let over = (was_open && !r.is_open()) || r.is_done();
        if accepted.fresh > 0 {
            self.recv_credit.on_received(now);
        }
        self.received += accepted.fresh;
        self.max_data_pending |= self.recv_credit.wants_update_beside_unread(self.received);
        if accepted.now_readable {
            events.push(Event::Readable(id));
        }
        if over || accepted.discarded > 0 {
            self.after_arrival(id, was_open, &accepted);
        }
        if accepted.overflow {
            return Err(Refused::Overflow);
        }
        Ok(())
    }

    pub(crate) fn on_reset_stream(
        &mut self,
        id: StreamId,
        code: u64,
        final_size: u64,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.admit(id, true, events)?;
        let left = self.recv_credit.advertised() - self.received;
        let Some(r) = self.recv.get_mut(&id) else {
            return Ok(());
        };
        let was_open = r.is_open();
        let accepted = r.on_reset(code, final_size, left)?;
        r.recount(&mut self.held);
        self.received += accepted.fresh;
        self.max_data_pending |= self.recv_credit.wants_update_beside_unread(self.received);
        if accepted.now_readable {
            events.push(Event::Readable(id));
        }
        self.after_arrival(id, was_open, &accepted);
        Ok(())
    }

    /// What an arrival that ended something, or that nobody wants, means for the others.
    fn after_arrival(&mut self, id: StreamId, was_open: bool, accepted: &Accepted) {
        if accepted.discarded > 0 {
            self.return_credit(accepted.discarded);
        }
        let Some(r) = self.recv.get(&id) else { return };
        if was_open && !r.is_open() {
            self.open_receivers -= 1;
        }
        if r.is_done() {
            self.remove_recv(id);
        }
    }

    pub(crate) fn on_stop_sending(
        &mut self,
        id: StreamId,
        code: u64,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.admit(id, false, events)?;
        let Some(s) = self.send.get_mut(&id) else {
            return Ok(());
        };
        if s.on_stop_sending(code) {
            events.push(Event::Stopped {
                id,
                error_code: code,
            });
            // RFC 9000 §3.5: answer with RESET_STREAM carrying the same code.
            self.reset(id, code, events);
        }
        Ok(())
    }

    pub(crate) fn on_max_data(&mut self, max: u64) {
        if self.send_credit.raise(max) {
            for id in std::mem::take(&mut self.beyond_credit) {
                self.list_again(id);
            }
        }
    }

    /// Lists a stream that waited for credit where it belongs now.
    fn list_again(&mut self, id: StreamId) {
        if let Some(s) = self.send.get_mut(&id) {
            s.waiting = false;
            self.enqueue(id);
        }
    }

    /// Whether a stream waits for credit that is there.
    fn can_draw_waiting(&self) -> bool {
        !self.waiting.is_empty() && self.send_credit.available() > 0
    }

    pub(crate) fn on_max_stream_data(
        &mut self,
        id: StreamId,
        max: u64,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.admit(id, false, events)?;
        if let Some(s) = self.send.get_mut(&id) {
            s.raise_max_data(max);
            self.enqueue(id);
        }
        Ok(())
    }

    pub(crate) fn on_max_streams(&mut self, dir: Direction, max: u64, events: &mut Events) {
        let local = &mut self.local[dir.index()];
        if max > local.limit {
            local.limit = max;
            if std::mem::take(&mut local.refused) {
                events.push(Event::StreamsAvailable(dir));
            }
        }
    }

    /// STREAMS_BLOCKED (RFC 9000 §19.14): a few free streams are worth a MAX_STREAMS now.
    pub(crate) fn on_streams_blocked(&mut self, dir: Direction, limit: u64) {
        let remote = &mut self.remote[dir.index()];
        if limit >= remote.limit {
            remote.blocked = true;
            remote.consider_update();
        }
    }

    /// STREAM_DATA_BLOCKED carries nothing to act on, but its ID is checked.
    pub(crate) fn on_stream_data_blocked(
        &mut self,
        id: StreamId,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.admit(id, true, events)
    }

    // ---- writing ----

    /// Whether any frame could be written now.
    pub(crate) fn has_pending(&self) -> bool {
        !self.ready.is_empty() || self.can_draw_waiting() || self.has_control()
    }

    pub(crate) fn write_frames(
        &mut self,
        now: Time,
        rtt: RoundTrip,
        w: &mut PacketWriter<'_, '_>,
        events: &mut Events,
    ) {
        if self.has_control() {
            self.write_all_control(now, rtt, w);
        }
        self.write_data(rtt, w, events);
    }

    /// Whether anything but STREAM frames waits.
    fn has_control(&self) -> bool {
        self.max_data_pending
            || !self.control.is_empty()
            || self.remote.iter().any(|r| r.update_pending)
            || self.local.iter().any(LocalStreams::owes_blocked)
            || (!self.waiting.is_empty() && self.send_credit.owes_blocked())
    }

    /// A sender that the connection's credit holds says so (RFC 9000 §19.12).
    fn write_all_control(&mut self, now: Time, rtt: RoundTrip, w: &mut PacketWriter<'_, '_>) {
        self.write_credit(now, rtt, w);
        while w.remaining() >= CONTROL_FRAME_ROOM {
            let Some(id) = self.control.pop_front() else {
                break;
            };
            if !self.write_control(id, now, rtt, w) {
                self.control.push_front(id);
                break;
            }
        }
        if self.send_credit.available() == 0
            && !self.waiting.is_empty()
            && w.remaining() >= CONTROL_FRAME_ROOM
            && let Some(limit) = self.send_credit.take_blocked_report()
        {
            write_data_blocked(w.w, limit);
            w.record(SentFrame::DataBlocked);
        }
    }

    fn write_credit(&mut self, now: Time, rtt: RoundTrip, w: &mut PacketWriter<'_, '_>) {
        if self.max_data_pending && w.remaining() >= MAX_DATA_MAX_LEN {
            self.max_data_pending = false;
            write_max_data(w.w, self.recv_credit.update(now, rtt));
            w.record(SentFrame::MaxData);
        }
        for dir in Direction::ALL {
            if w.remaining() < CONTROL_FRAME_ROOM {
                return;
            }
            let remote = &mut self.remote[dir.index()];
            if std::mem::take(&mut remote.update_pending) {
                remote.limit = remote.next_limit();
                remote.blocked = false;
                write_max_streams(w.w, dir, remote.limit);
                w.record(SentFrame::MaxStreams(dir));
            }
            let local = &mut self.local[dir.index()];
            if local.owes_blocked() && w.remaining() >= CONTROL_FRAME_ROOM {
                local.reported = Some(local.limit);
                write_streams_blocked(w.w, dir, local.limit);
                w.record(SentFrame::StreamsBlocked(dir));
            }
        }
    }

    /// Writes the control frames of one listed stream; `false` if there was no room for all.
    fn write_control(
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

    /// STREAM frames of one stream after the other, each for its turn.
    fn write_data(&mut self, rtt: RoundTrip, w: &mut PacketWriter<'_, '_>, events: &mut Events) {
        loop {
            // One more for each frame: what waits is as urgent as what is ready.
            if self.can_draw_waiting()
                && let Some(id) = self.waiting.pop()
            {
                self.list_again(id);
            }
            let Some(id) = self.ready.front() else {
                if self.can_draw_waiting() {
                    continue;
                }
                return;
            };
            let credit = self.send_credit.available();
            let Some(s) = self.send.get_mut(&id) else {
                self.ready.pop();
                continue;
            };
            if s.can_send(credit) {
                let Some(used) = s.write_frame(id, credit, w) else {
                    // No room left in this packet.
                    return;
                };
                self.send_credit.consume(used.credit);
                self.retransmitted += used.retransmitted;
                if s.wakes_writer(self.unsent_cap) && self.retained < self.retained_cap {
                    s.writer_blocked = false;
                    events.push(Event::Writable(id));
                }
                if s.can_send(self.send_credit.available()) {
                    let len = used.credit + used.retransmitted;
                    self.ready.spend(len, || rtt.turn());
                    continue;
                }
            }
            s.ready = false;
            self.ready.pop();
            self.enqueue(id);
        }
    }

    /// Writers whose stream fell below half of its send buffer may go on.
    fn wake_writers(&mut self, id: StreamId, events: &mut Events) {
        if let Some(s) = self.send.get_mut(&id)
            && s.wakes_writer(self.unsent_cap)
            && self.retained < self.retained_cap
        {
            s.writer_blocked = false;
            events.push(Event::Writable(id));
        }
    }

    /// Writers that the connection-wide cap refused may go on.
    fn wake_starved(&mut self, events: &mut Events) {
        while self.retained < self.retained_cap {
            let Some(starved) = self.starved.pop() else {
                break;
            };
            self.wake_writers(starved, events);
        }
    }

    // ---- fate of sent frames ----

    /// STREAM frames that lie side by side were acknowledged; `fin` if the last held the FIN.
    pub(crate) fn on_stream_acked(
        &mut self,
        id: StreamId,
        range: Range<u64>,
        fin: bool,
        events: &mut Events,
    ) {
        let Some(s) = self.send.get_mut(&id) else {
            return;
        };
        let released = s.on_acked(range, fin, &mut self.pool);
        s.recount(&mut self.held);
        self.retained -= released;
        self.released += released;
        if s.is_finished() {
            events.push(Event::Finished(id));
            self.remove_send(id);
        } else {
            self.wake_writers(id, events);
        }
        if !self.starved.is_empty() {
            self.wake_starved(events);
        }
    }

    pub(crate) fn on_stream_lost(&mut self, id: StreamId, offset: u64, len: u32, fin: bool) {
        if let Some(s) = self.send.get_mut(&id) {
            s.on_lost(offset, len, fin);
            s.recount(&mut self.held);
            self.enqueue(id);
        }
    }

    pub(crate) fn on_reset_acked(&mut self, id: StreamId) {
        if let Some(s) = self.send.get_mut(&id) {
            s.on_reset_acked();
            self.remove_send(id);
        }
    }

    pub(crate) fn on_reset_lost(&mut self, id: StreamId) {
        if let Some(s) = self.send.get_mut(&id) {
            s.on_reset_lost();
            self.enqueue_control(id);
        }
    }

    pub(crate) fn on_stop_sending_lost(&mut self, id: StreamId) {
        if let Some(r) = self.recv.get_mut(&id) {
            r.stop_pending = r.stop_code().is_some();
            self.enqueue_control(id);
        }
    }

    pub(crate) fn on_max_data_lost(&mut self) {
        self.max_data_pending = true;
    }

    pub(crate) fn on_max_stream_data_lost(&mut self, id: StreamId) {
        if let Some(r) = self.recv.get_mut(&id) {
            r.max_data_pending = r.is_open();
            self.enqueue_control(id);
        }
    }

    pub(crate) fn on_max_streams_lost(&mut self, dir: Direction) {
        self.remote[dir.index()].update_pending = true;
    }

    pub(crate) fn on_data_blocked_lost(&mut self) {
        self.send_credit.forget_blocked_report();
    }

    pub(crate) fn on_stream_data_blocked_lost(&mut self, id: StreamId) {
        if let Some(s) = self.send.get_mut(&id) {
            s.forget_blocked_report();
            if s.blocked_by_stream() {
                self.enqueue_control(id);
            }
        }
    }

    pub(crate) fn on_streams_blocked_lost(&mut self, dir: Direction) {
        self.local[dir.index()].reported = None;
    }

    /// Drops what was received: nobody will have it.
    pub(crate) fn drop_received(&mut self) {
        #[expect(clippy::iter_over_hash_type, reason = "the order does not show")]
        for r in self.recv.values_mut() {
            r.drop_received();
            r.recount(&mut self.held);
        }
    }

    /// Nothing more will be sent; what was received stays readable until the connection goes.
    pub(crate) fn on_connection_lost(&mut self) {
        #[expect(clippy::iter_over_hash_type, reason = "a sum has no order")]
        for s in self.send.values() {
            self.held -= s.counted;
        }
        self.send = StreamMap::default();
        self.ready = Turns::default();
        self.waiting = Turns::default();
        self.beyond_credit = Vec::new();
        self.control = VecDeque::new();
        self.starved = Turns::default();
        self.retained = 0;
        self.open_receivers = 0;
        self.pool.trim();
    }

    /// Nothing arrived for a while: memory kept for speed is given back.
    pub(crate) fn trim(&mut self) {
        self.pool.trim();
        self.send.shrink_to_fit();
        self.recv.shrink_to_fit();
        self.ready.trim();
        self.starved.trim();
        self.waiting.trim();
        self.beyond_credit.shrink_to_fit();
        self.control.shrink_to_fit();
        for remote in &mut self.remote {
            remote.unborn.trim();
        }
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
}

impl LocalStreams {
    fn owes_blocked(&self) -> bool {
        self.refused && self.reported != Some(self.limit)
    }
}

#[cfg(test)]
mod tests;
