//! All streams of a connection: what frames and the application do to them.
//!
//! Every call finds the halves it concerns, lets them act, and carries what that means from one
//! owner to the next:
//!
//! | owner | of |
//! |---|---|
//! | `limits` | how many streams each end may open, which a frame may name |
//! | `halves` | sending and receiving halves, their control frames, their memory |
//! | `send_queue` | whose turn it is to send, the credit the peer gives all streams |
//! | `write_room` | how much may be written, who waits to write |
//! | `flow` | the credit we give the peer |
//!
//! Called by `dispatch`, `schedule`, `delivery` and the public API.

mod flow;
mod halves;
mod limits;
mod recv;
mod send;
mod send_queue;
mod write_room;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use towline_wire::{Direction, Side, StreamFrame, StreamId, Time, TransportParameters};

use super::blocks::BlockPool;
use super::component::PacketWriter;
use super::events::{Event, Events};
use super::turns::Place;
use crate::config::TransportConfig;
use crate::error::{ReadError, Refused, ResetAtError, Violation, WriteError};
use flow::ConnectionWindow;
pub(crate) use flow::RoundTrip;
use halves::Halves;
#[cfg(test)]
pub(crate) use halves::STREAM_RECORDS;
use limits::Limits;
pub use recv::ReceivedChunk;
use recv::RecvStream;
use send::SendStream;
use send_queue::SendQueue;
use write_room::WriteRoom;

#[derive(Debug)]
pub(crate) struct Streams {
    limits: Limits,
    halves: Halves,
    queue: SendQueue,
    room: WriteRoom,
    window: ConnectionWindow,
    /// Streams that were stopped and whose final size somebody waits for, and it once it is known.
    awaited: BTreeMap<StreamId, Option<u64>>,
}

impl Streams {
    pub(crate) fn new(side: Side, config: &TransportConfig) -> Self {
        Self {
            limits: Limits::new(side, config),
            halves: Halves::new(config),
            queue: SendQueue::default(),
            room: WriteRoom::new(config),
            window: ConnectionWindow::new(config.receive_window, config.max_receive_window),
            awaited: BTreeMap::new(),
        }
    }

    /// Bytes of memory held for all streams.
    pub(crate) fn held(&self) -> usize {
        self.halves.held() + self.queue.held() + self.room.held() + self.limits.held()
    }

    /// Bytes that the application read, or that the peer acknowledged: they grow while the streams
    /// move.
    pub(crate) fn moved(&self) -> u64 {
        self.window.consumed() + self.room.released()
    }

    pub(crate) fn retransmitted(&self) -> u64 {
        self.queue.retransmitted()
    }

    /// Bytes written and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.room.retained()
    }

    /// Limits from the peer's transport parameters.
    pub(crate) fn set_peer_parameters(&mut self, p: &TransportParameters, events: &mut Events) {
        self.queue.set_peer_limit(p.initial_max_data);
        self.limits.set_peer_parameters(p, events);
    }

    // ---- opening and accepting ----

    pub(crate) fn open(&mut self, dir: Direction) -> Option<StreamId> {
        let id = self.limits.open(dir)?;
        self.halves.insert_sender(id, self.limits.send_window(id));
        if dir == Direction::Bidirectional {
            self.halves.insert_receiver(id);
        }
        Some(id)
    }

    /// Streams that can be opened now.
    pub(crate) fn openable(&self, dir: Direction) -> u64 {
        self.limits.openable(dir)
    }

    /// More than [`Self::openable`] are wanted.
    pub(crate) fn await_streams(&mut self, dir: Direction) {
        self.limits.await_streams(dir);
    }

    /// Streams of the peer's that wait to be accepted.
    pub(crate) fn acceptable(&self, dir: Direction) -> u64 {
        self.limits.acceptable(dir)
    }

    pub(crate) fn accept(&mut self, dir: Direction) -> Option<StreamId> {
        let (id, is_new) = self.limits.accept(dir)?;
        if is_new {
            self.materialize(id);
        }
        Some(id)
    }

    /// Makes the state of a peer's stream that so far was only implied.
    fn materialize(&mut self, id: StreamId) {
        self.halves.insert_receiver(id);
        if id.direction() == Direction::Bidirectional {
            self.halves.insert_sender(id, self.limits.send_window(id));
        }
    }

    /// Checks a stream ID in a frame for our receiving (`true`) or sending half, and makes the
    /// state of a stream that it is the first to name.
    fn admit(
        &mut self,
        id: StreamId,
        receiving: bool,
        events: &mut Events,
    ) -> Result<(), Violation> {
        if self.limits.admit(id, receiving, events)? {
            self.materialize(id);
        }
        Ok(())
    }

    // ---- limits changed while the connection runs ----

    /// How many streams the peer may have open at once.
    pub(crate) fn set_max_concurrent(&mut self, dir: Direction, streams: u64) {
        self.limits.set_max_concurrent(dir, streams);
    }

    /// The window of all streams together.
    pub(crate) fn set_receive_window(&mut self, bytes: u64) {
        self.window.set_window(bytes);
    }

    /// How much may be written and not yet acknowledged, on all streams together.
    pub(crate) fn set_send_window(&mut self, bytes: u64, events: &mut Events) {
        let blocked = self.halves.blocked_writers();
        self.room.set_retained_cap(bytes, blocked);
        self.wake_starved(events);
    }

    // ---- application: sending ----

    /// Room for a write on a stream now, that leaves out the next `skipped` bytes.
    fn ask_room(&mut self, id: StreamId, skipped: u64) -> Result<usize, WriteError> {
        let s = self.halves.sender_mut(id);
        self.room
            .ask(id, s.ok_or(WriteError::ClosedStream)?, skipped)
    }

    fn on_written(&mut self, id: StreamId, bytes: u64) {
        self.room.on_written(bytes);
        self.queue.enqueue(id, &mut self.halves);
    }

    pub(crate) fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        let n = data.len().min(self.ask_room(id, 0)?);
        let chunk = data.split_to(n);
        self.halves.with_sender(id, |s, _| s.push(chunk));
        self.on_written(id, n as u64);
        Ok(n)
    }

    pub(crate) fn write_slice(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        let n = data.len().min(self.ask_room(id, 0)?);
        self.halves
            .with_sender(id, |s, pool| s.push_slice(&data[..n], pool));
        self.on_written(id, n as u64);
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
        let s = self.halves.sender(id).ok_or(WriteError::ClosedStream)?;
        s.check_writable()?;
        let end = s.written_end();
        if offset < end {
            // Room for these was reserved when the writer went past them.
            let filled = self.halves.with_sender(id, |s, _| s.fill_in(offset, data));
            self.queue.enqueue(id, &mut self.halves);
            return Ok(filled.unwrap_or_default());
        }
        let skipped = offset - end;
        let n = data.len().min(self.ask_room(id, skipped)?);
        if n == 0 {
            return Ok(0);
        }
        let chunk = data.split_to(n);
        self.halves
            .with_sender(id, |s, _| s.push_beyond(skipped, chunk));
        self.on_written(id, skipped + n as u64);
        Ok(n)
    }

    /// Sets how urgent the stream is, now and for what is written later.
    pub(crate) fn set_priority(&mut self, id: StreamId, order: i64) -> Result<(), WriteError> {
        self.set_place(id, |place| Place { order, ..place })
    }

    pub(crate) fn set_send_group(&mut self, id: StreamId, group: u32) -> Result<(), WriteError> {
        self.set_place(id, |place| Place { group, ..place })
    }

    fn set_place(
        &mut self,
        id: StreamId,
        after: impl FnOnce(Place) -> Place,
    ) -> Result<(), WriteError> {
        let s = self.halves.sender_mut(id).ok_or(WriteError::ClosedStream)?;
        let after = after(s.place);
        let before = std::mem::replace(&mut s.place, after);
        if before != after {
            self.queue.change(id, before, after);
            self.room.change(id, before, after);
        }
        Ok(())
    }

    pub(crate) fn place(&self, id: StreamId) -> Option<Place> {
        self.halves.sender(id).map(|s| s.place)
    }

    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        let s = self.halves.sender_mut(id).ok_or(WriteError::ClosedStream)?;
        s.finish()?;
        self.queue.enqueue(id, &mut self.halves);
        Ok(())
    }

    /// Only the application resets a stream, or the peer asks for it (RFC 9000 §11.2).
    pub(crate) fn reset(&mut self, id: StreamId, code: u64, events: &mut Events) {
        self.reset_beyond(id, code, 0, events);
    }

    /// As [`Self::reset`]; the first `reliable_size` bytes are delivered all the same.
    pub(crate) fn reset_at(
        &mut self,
        id: StreamId,
        code: u64,
        reliable_size: u64,
        events: &mut Events,
    ) -> Result<(), ResetAtError> {
        let s = self.halves.sender(id).ok_or(ResetAtError::ClosedStream)?;
        if s.is_reset() && s.written_end() < reliable_size {
            return Err(ResetAtError::ClosedStream);
        }
        if !s.is_whole(reliable_size) {
            return Err(ResetAtError::MissingBytes);
        }
        self.reset_beyond(id, code, reliable_size, events);
        Ok(())
    }

    fn reset_beyond(&mut self, id: StreamId, code: u64, reliable_size: u64, events: &mut Events) {
        let reset = |s: &mut SendStream, _: &mut BlockPool| s.reset(code, reliable_size);
        if let Some(Some(abandoned)) = self.halves.with_sender(id, reset) {
            self.room.on_abandoned(abandoned);
            self.queue.enqueue(id, &mut self.halves);
            let s = self.halves.sender(id);
            if s.is_some_and(SendStream::has_pending_reset) {
                self.halves.list_control(id);
            }
            self.wake_starved(events);
        }
    }

    /// Writers that the connection-wide cap refused may go on.
    fn wake_starved(&mut self, events: &mut Events) {
        while let Some(starved) = self.room.next_starved() {
            if let Some(s) = self.halves.sender_mut(starved) {
                self.room.wake(starved, s, events);
            }
        }
    }

    // ---- application: receiving ----

    /// Lets the application read; `taken` says how many bytes it got.
    fn read_with<T>(
        &mut self,
        id: StreamId,
        read: impl FnOnce(&mut RecvStream, &mut BlockPool) -> Result<T, ReadError>,
        taken: impl FnOnce(&T) -> usize,
    ) -> Result<T, ReadError> {
        let result = self.halves.with_receiver(id, read);
        let result = result.ok_or(ReadError::ClosedStream)?;
        let n = result.as_ref().map_or(0, taken);
        if n > 0 {
            self.halves.on_read(id, n as u64);
            self.window.return_credit(n as u64);
        } else if self.halves.receiver(id).is_some_and(RecvStream::is_done) {
            self.remove_receiver(id);
        }
        result
    }

    pub(crate) fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let taken = |chunk: &Option<Bytes>| chunk.as_ref().map_or(0, Bytes::len);
        self.read_with(id, |r, pool| r.read(max, pool), taken)
    }

    pub(crate) fn read_slice(
        &mut self,
        id: StreamId,
        out: &mut [u8],
    ) -> Result<Option<usize>, ReadError> {
        let taken = |n: &Option<usize>| n.unwrap_or(0);
        self.read_with(id, |r, pool| r.read_slice(out, pool), taken)
    }

    /// Up to `max` bytes from below offset `below`, wherever they are in the stream.
    pub(crate) fn read_unordered(
        &mut self,
        id: StreamId,
        below: u64,
        max: usize,
    ) -> Result<Option<ReceivedChunk>, ReadError> {
        let taken = |chunk: &Option<ReceivedChunk>| chunk.as_ref().map_or(0, |c| c.data.len());
        self.read_with(id, |r, pool| r.read_unordered(below, max, pool), taken)
    }

    /// The code of the peer's reset; `None` where there will be none.
    pub(crate) fn received_reset(&mut self, id: StreamId) -> Result<Option<u64>, ReadError> {
        self.read_with(id, |r, _| r.received_reset(), |_| 0)
    }

    /// The stream's length, once the peer said so.
    pub(crate) fn final_size(&self, id: StreamId) -> Option<u64> {
        self.halves.receiver(id).and_then(RecvStream::final_size)
    }

    /// Bytes that arrived of a stream, read or not.
    pub(crate) fn received_len(&self, id: StreamId) -> Option<u64> {
        self.halves.receiver(id).map(RecvStream::received_len)
    }

    /// Bytes that the peer will count of a stream, if nothing more is written.
    pub(crate) fn sent_len(&self, id: StreamId) -> Option<u64> {
        self.halves.sender(id).map(SendStream::final_len)
    }

    /// Whether a stopped stream's final size is not known yet and will be told.
    pub(crate) fn await_final_size(&mut self, id: StreamId) -> bool {
        let open = self.halves.receiver(id).is_some();
        if open {
            self.awaited.insert(id, None);
        }
        open
    }

    /// The final size that was awaited, once.
    pub(crate) fn take_final_size(&mut self, id: StreamId) -> Option<u64> {
        let size = (*self.awaited.get(&id)?)?;
        self.awaited.remove(&id);
        Some(size)
    }

    /// A stream of the peer's is about to be forgotten.
    fn tell_final_size(&mut self, id: StreamId, events: &mut Events) {
        if let Some(awaited) = self.awaited.get_mut(&id) {
            *awaited = self.halves.receiver(id).and_then(RecvStream::final_size);
            events.push(Event::Readable(id));
        }
    }

    pub(crate) fn stop(&mut self, id: StreamId, code: u64) {
        if let Some((unread, done)) = self.halves.stop(id, code) {
            self.window.return_credit(unread);
            if done {
                self.remove_receiver(id);
            }
        }
    }

    /// The connection is over, and nobody wants what is unread of this stream.
    pub(crate) fn discard(&mut self, id: StreamId) {
        self.halves.remove_receiver(id);
    }

    /// A receiver is waiting for more of some stream.
    pub(crate) fn has_open_receiver(&self) -> bool {
        self.halves.has_open_receiver()
    }

    // ---- removal ----

    fn remove_receiver(&mut self, id: StreamId) {
        if self.halves.remove_receiver(id) {
            self.limits.on_gone(id);
        }
    }

    fn remove_sender(&mut self, id: StreamId) {
        if self.halves.remove_sender(id) {
            self.limits.on_gone(id);
        }
    }

    // ---- frames from the peer ----

    pub(crate) fn on_stream(
        &mut self,
        now: Time,
        frame: &StreamFrame<'_>,
        events: &mut Events,
    ) -> Result<(), Refused> {
        let id = frame.id;
        if self.halves.receiver(id).is_none() {
            self.admit(id, true, events)?;
        }
        let left = self.window.left();
        let arrived = self.halves.with_receiver(id, |r, pool| {
            let (offset, data, fin) = (frame.offset, frame.data, frame.fin);
            let accepted = r.on_data(now, offset, data, fin, left, pool)?;
            Ok::<_, Violation>((accepted, r.is_done()))
        });
        let Some((accepted, done)) = arrived.transpose()? else {
            return Ok(());
        };
        self.window.on_data(now, accepted.fresh);
        if accepted.now_readable {
            events.push(Event::Readable(id));
        }
        self.after_arrival(id, accepted.discarded, done, events);
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
        reliable_size: u64,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.admit(id, true, events)?;
        let left = self.window.left();
        let arrived = self.halves.with_receiver(id, |r, _| {
            let accepted = r.on_reset(code, final_size, reliable_size, left)?;
            Ok::<_, Violation>((accepted, r.is_done()))
        });
        let Some((accepted, done)) = arrived.transpose()? else {
            return Ok(());
        };
        self.window.use_up(accepted.fresh);
        if accepted.now_readable {
            events.push(Event::Readable(id));
        }
        self.after_arrival(id, accepted.discarded, done, events);
        Ok(())
    }

    /// What nobody wants is credit for the others, and what is over goes.
    fn after_arrival(&mut self, id: StreamId, discarded: u64, done: bool, events: &mut Events) {
        if discarded > 0 {
            self.window.return_credit(discarded);
        }
        if done {
            if !self.awaited.is_empty() {
                self.tell_final_size(id, events);
            }
            self.remove_receiver(id);
        }
    }

    pub(crate) fn on_stop_sending(
        &mut self,
        id: StreamId,
        code: u64,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.admit(id, false, events)?;
        let Some(s) = self.halves.sender_mut(id) else {
            return Ok(());
        };
        let told = s.on_stop_sending(code);
        // Nobody reads what a reset left to be delivered.
        let was_reset = s.is_reset();
        if told {
            events.push(Event::Stopped {
                id,
                error_code: code,
            });
        }
        if told || was_reset {
            // RFC 9000 §3.5: answer with RESET_STREAM carrying the same code.
            self.reset(id, code, events);
        }
        Ok(())
    }

    pub(crate) fn on_max_data(&mut self, max: u64) {
        self.queue.on_max_data(max, &mut self.halves);
    }

    pub(crate) fn on_max_stream_data(
        &mut self,
        id: StreamId,
        max: u64,
        events: &mut Events,
    ) -> Result<(), Violation> {
        self.admit(id, false, events)?;
        if let Some(s) = self.halves.sender_mut(id) {
            s.raise_max_data(max);
            self.queue.enqueue(id, &mut self.halves);
        }
        Ok(())
    }

    pub(crate) fn on_max_streams(&mut self, dir: Direction, max: u64, events: &mut Events) {
        self.limits.on_max_streams(dir, max, events);
    }

    pub(crate) fn on_streams_blocked(&mut self, dir: Direction, limit: u64) {
        self.limits.on_streams_blocked(dir, limit);
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
        self.queue.has_pending() || self.has_control()
    }

    pub(crate) fn write_frames(
        &mut self,
        now: Time,
        rtt: RoundTrip,
        w: &mut PacketWriter<'_, '_>,
        events: &mut Events,
    ) {
        if self.has_control() {
            self.window.write_frames(now, rtt, w);
            self.limits.write_frames(w);
            self.halves.write_control(now, rtt, w);
            self.queue.write_blocked(w);
        }
        self.queue
            .write_data(&mut self.halves, &self.room, rtt, w, events);
    }

    /// Whether anything but STREAM frames waits.
    fn has_control(&self) -> bool {
        self.window.has_pending()
            || self.halves.has_control()
            || self.limits.has_pending()
            || self.queue.owes_blocked()
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
        let room = &mut self.room;
        let acked = self.halves.with_sender(id, |s, pool| {
            room.on_released(s.on_acked(range, fin, pool));
            if !s.is_finished() {
                room.wake(id, s, events);
            }
            (s.is_finished(), s.is_done())
        });
        let Some((finished, done)) = acked else {
            return;
        };
        if finished {
            events.push(Event::Finished(id));
        }
        if done {
            self.remove_sender(id);
        }
        self.wake_starved(events);
    }

    pub(crate) fn on_stream_lost(&mut self, id: StreamId, offset: u64, len: u32, fin: bool) {
        let lost = self
            .halves
            .with_sender(id, |s, _| s.on_lost(offset, len, fin));
        if lost.is_some() {
            self.queue.enqueue(id, &mut self.halves);
        }
    }

    pub(crate) fn on_reset_acked(&mut self, id: StreamId, reliable_size: u64) {
        if let Some(s) = self.halves.sender_mut(id) {
            s.on_reset_acked(reliable_size);
            if s.is_done() {
                self.remove_sender(id);
            }
        }
    }

    pub(crate) fn on_reset_lost(&mut self, id: StreamId, reliable_size: u64) {
        self.halves.on_reset_lost(id, reliable_size);
    }

    pub(crate) fn on_stop_sending_lost(&mut self, id: StreamId) {
        self.halves.on_stop_sending_lost(id);
    }

    pub(crate) fn on_max_data_lost(&mut self) {
        self.window.on_max_data_lost();
    }

    pub(crate) fn on_max_stream_data_lost(&mut self, id: StreamId) {
        self.halves.on_max_stream_data_lost(id);
    }

    pub(crate) fn on_max_streams_lost(&mut self, dir: Direction) {
        self.limits.on_max_streams_lost(dir);
    }

    pub(crate) fn on_data_blocked_lost(&mut self) {
        self.queue.on_data_blocked_lost();
    }

    pub(crate) fn on_stream_data_blocked_lost(&mut self, id: StreamId) {
        self.halves.on_stream_data_blocked_lost(id);
    }

    pub(crate) fn on_streams_blocked_lost(&mut self, dir: Direction) {
        self.limits.on_streams_blocked_lost(dir);
    }

    /// There is something that the application can read or be told by reading.
    pub(crate) fn has_unread(&self) -> bool {
        self.halves.has_unread()
    }

    /// Drops what was received: nobody will have it.
    pub(crate) fn drop_received(&mut self) {
        self.halves.drop_received();
    }

    /// Nothing more will be sent; what was received stays readable until the connection goes.
    pub(crate) fn on_connection_lost(&mut self) {
        self.halves.on_connection_lost();
        self.queue.on_connection_lost();
        self.room.on_connection_lost();
    }

    /// Nothing arrived for a while: memory kept for speed is given back.
    pub(crate) fn trim(&mut self) {
        self.halves.trim();
        self.queue.trim();
        self.room.trim();
        self.limits.trim();
    }
}

#[cfg(test)]
mod tests;
