//! The sending half of one stream (RFC 9000 §3.1).

use std::ops::Range;

use bytes::Bytes;
use towline_wire::{StreamId, stream_frame_header_len, write_stream_header};

use crate::connection::blocks::BlockPool;
use crate::connection::component::{PacketWriter, SentFrame, byte_range};
use crate::connection::send_buffer::SendBuffer;
use crate::connection::turns::Place;
use crate::error::WriteError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    /// The application may write more.
    Open,
    /// To be sent, for the first time or again.
    Pending,
    Sent,
    Acked,
}

/// The stream was given up, but for its first bytes.
///
/// Code and final size never change (RFC 9000 §13.3, draft-ietf-quic-reliable-stream-reset-07 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) code: u64,
    /// As far as anything was sent; grows until the frame is sent for the first time.
    pub(crate) final_size: u64,
    /// Bytes that are delivered all the same; 0 makes the frame a RESET_STREAM.
    pub(crate) reliable_size: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be sent, for the first time or again, once all bytes below the reliable size were.
    Pending,
    Sent,
    Acked,
}

/// What one STREAM frame used up.
#[derive(Debug)]
pub(crate) struct Written {
    /// Connection credit: how much farther into the stream than ever this went.
    pub(crate) credit: u64,
    /// Bytes sent before.
    pub(crate) retransmitted: u64,
}

#[derive(Debug)]
pub(crate) struct SendStream {
    buffer: SendBuffer,
    max_data: u64,
    fin: Fin,
    reset: Option<Reset>,
    stopped: Option<u64>,
    /// Where it stands among the streams that can send.
    pub(crate) place: Place,
    /// A write was refused; `Writable` is owed.
    pub(crate) writer_blocked: bool,
    /// In the round robin of streams that can send now.
    pub(crate) ready: bool,
    /// Listed as waiting for connection credit.
    pub(crate) waiting: bool,
    /// Listed for a RESET_STREAM or STREAM_DATA_BLOCKED frame.
    pub(crate) control_queued: bool,
    /// Limit already reported by STREAM_DATA_BLOCKED.
    reported: Option<u64>,
    /// Bytes of memory the connection counts for it.
    pub(crate) counted: usize,
}

impl SendStream {
    pub(crate) fn new(max_data: u64) -> Self {
        Self {
            buffer: SendBuffer::default(),
            max_data,
            fin: Fin::Open,
            reset: None,
            stopped: None,
            place: Place::default(),
            writer_blocked: false,
            ready: false,
            waiting: false,
            control_queued: false,
            reported: None,
            counted: 0,
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), WriteError> {
        if let Some(code) = self.stopped {
            return Err(WriteError::Stopped(code));
        }
        if self.fin != Fin::Open || self.reset.is_some() {
            return Err(WriteError::ClosedStream);
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, data: Bytes) {
        self.buffer.push(data);
    }

    pub(crate) fn push_slice(&mut self, data: &[u8], pool: &mut BlockPool) {
        self.buffer.push_slice(data, pool);
    }

    /// As [`Self::push`], leaving out the next `skipped` bytes.
    pub(crate) fn push_beyond(&mut self, skipped: u64, data: Bytes) {
        self.buffer.push_beyond(skipped, data);
    }

    /// Fills in bytes left out before; returns how many of `data` are dealt with.
    pub(crate) fn fill_in(&mut self, offset: u64, data: &mut Bytes) -> usize {
        self.buffer.fill_in(offset, data)
    }

    /// Brings what the connection counts for it up to date.
    pub(crate) fn recount(&mut self, total: &mut usize) {
        let held = self.held();
        *total = *total + held - self.counted;
        self.counted = held;
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.buffer.trim();
    }

    /// Bytes of memory held beyond its own record.
    fn held(&self) -> usize {
        self.buffer.held()
    }

    /// The highest offset written.
    pub(crate) fn written_end(&self) -> u64 {
        self.buffer.end()
    }

    pub(crate) fn unsent_len(&self) -> u64 {
        self.buffer.unsent_len()
    }

    /// A refused writer has room again: less than half of the cap `unsent_cap` waits.
    pub(crate) fn wakes_writer(&self, unsent_cap: u64) -> bool {
        self.writer_blocked && self.unsent_len() <= unsent_cap / 2
    }

    pub(crate) fn finish(&mut self) -> Result<(), WriteError> {
        self.check_writable()?;
        if self.buffer.has_holes() {
            return Err(WriteError::MissingBytes);
        }
        self.fin = Fin::Pending;
        Ok(())
    }

    /// Abandons the stream beyond `reliable_size` bytes; returns the bytes released from memory, or
    /// `None` if it was over, or abandoned beyond fewer already. The first code stays.
    pub(crate) fn reset(&mut self, code: u64, reliable_size: u64) -> Option<u64> {
        if self.is_done() || self.reset.is_some_and(|r| r.reliable_size <= reliable_size) {
            return None;
        }
        let sent = self.buffer.unsent_offset();
        self.reset = Some(Reset {
            code: self.reset.map_or(code, |r| r.code),
            final_size: self.reset.map_or(sent, |r| r.final_size.max(sent)),
            reliable_size,
            stage: Stage::Pending,
        });
        Some(self.buffer.cut(reliable_size))
    }

    /// Bytes that the peer will count: the final size of a reset, or all that was written.
    pub(crate) fn final_len(&self) -> u64 {
        let written = self.buffer.end();
        self.reset
            .map_or(written, |reset| reset.final_size.max(reset.reliable_size))
    }

    /// Whether all bytes below `size` were written.
    pub(crate) fn is_whole(&self, size: u64) -> bool {
        self.buffer.is_whole(size)
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.reset.is_some()
    }

    /// Whether a frame that says so could be written now.
    pub(crate) fn has_pending_reset(&self) -> bool {
        let pending = self.reset.is_some_and(|r| r.stage == Stage::Pending);
        pending && self.buffer.unsent_len() == 0
    }

    /// Returns whether the application is to be told.
    pub(crate) fn on_stop_sending(&mut self, code: u64) -> bool {
        if self.stopped.is_some() || self.reset.is_some() || self.fin == Fin::Acked {
            return false;
        }
        self.stopped = Some(code);
        true
    }

    pub(crate) fn raise_max_data(&mut self, max: u64) {
        self.max_data = self.max_data.max(max);
    }

    /// Highest offset this stream may send new data up to.
    fn limit(&self, connection_credit: u64) -> u64 {
        self.max_data.min(
            self.buffer
                .unsent_offset()
                .saturating_add(connection_credit),
        )
    }

    /// Whether a STREAM frame could be written now.
    pub(crate) fn can_send(&self, connection_credit: u64) -> bool {
        self.buffer.has_pending(self.limit(connection_credit)) || self.fin_ready()
    }

    fn fin_ready(&self) -> bool {
        self.fin == Fin::Pending && self.buffer.unsent_len() == 0 && self.reset.is_none()
    }

    /// New data waits and the stream's own limit, not the connection's, is in the way.
    pub(crate) fn blocked_by_stream(&self) -> bool {
        self.buffer.unsent_len() > 0 && self.buffer.unsent_offset() >= self.max_data
    }

    /// New data waits for connection credit.
    pub(crate) fn wants_connection_credit(&self) -> bool {
        self.buffer.unsent_len() > 0 && self.buffer.unsent_offset() < self.max_data
    }

    /// The report was lost.
    pub(crate) fn forget_blocked_report(&mut self) {
        self.reported = None;
    }

    pub(crate) fn take_blocked_report(&mut self) -> Option<u64> {
        if !self.blocked_by_stream() || self.reported == Some(self.max_data) {
            return None;
        }
        self.reported = Some(self.max_data);
        Some(self.max_data)
    }

    /// Writes one STREAM frame; `None` if none fit.
    pub(crate) fn write_frame(
        &mut self,
        id: StreamId,
        connection_credit: u64,
        w: &mut PacketWriter<'_, '_>,
    ) -> Option<Written> {
        let limit = self.limit(connection_credit);
        let next = self.buffer.peek_next(limit);
        let start = next.as_ref().map_or(self.buffer.end(), |r| r.start);
        if next.is_none() && !self.fin_ready() {
            return None;
        }
        let wanted = next.map_or(0, |r| r.end - r.start);
        let room = w.remaining();
        let with_length = stream_frame_header_len(id, start, Some(room));
        let without = stream_frame_header_len(id, start, None);
        // A frame that fills the packet needs no length field.
        let (header, length_field, max) = if wanted >= room.saturating_sub(without) as u64 {
            (without, false, room.saturating_sub(without))
        } else {
            (with_length, true, room.saturating_sub(with_length))
        };
        if header > room || (max == 0 && wanted > 0) {
            return None;
        }
        let before = self.buffer.unsent_offset();
        let range = self
            .buffer
            .take_next(max as u64, limit)
            .unwrap_or(start..start);
        let len = (range.end - range.start) as usize;
        let ends = self.fin != Fin::Open && self.reset.is_none();
        let fin = ends && range.end == self.buffer.end();
        let length_field = length_field || len + without < room;
        write_stream_header(w.w, id, range.start, length_field.then_some(len), fin);
        if let Some(out) = w.w.reserve(len) {
            self.buffer.copy_to(range.start, out);
        }
        w.record(SentFrame::Stream {
            id,
            offset: range.start,
            len: len as u32,
            fin,
        });
        if fin && self.fin == Fin::Pending {
            self.fin = Fin::Sent;
        }
        let credit = self.buffer.unsent_offset() - before;
        Some(Written {
            credit,
            // What is sent late into a gap counts as sent again.
            retransmitted: (len as u64).saturating_sub(credit),
        })
    }

    /// What the RESET_STREAM or RESET_STREAM_AT frame owed says.
    pub(crate) fn take_reset(&mut self) -> Option<Reset> {
        if !self.has_pending_reset() {
            return None;
        }
        let sent = self.buffer.unsent_offset();
        let reset = self.reset.as_mut()?;
        reset.stage = Stage::Sent;
        reset.final_size = reset.final_size.max(sent);
        Some(*reset)
    }

    /// Returns bytes released from memory.
    pub(crate) fn on_acked(&mut self, range: Range<u64>, fin: bool, pool: &mut BlockPool) -> u64 {
        if fin && self.reset.is_none() {
            self.fin = Fin::Acked;
        }
        // What lies behind the end was given up with the stream.
        let end = range.end.min(self.buffer.end());
        if range.start > end {
            return 0;
        }
        self.buffer.on_acked(range.start..end, pool)
    }

    pub(crate) fn on_lost(&mut self, offset: u64, len: u32, fin: bool) {
        if fin && self.fin == Fin::Sent {
            self.fin = Fin::Pending;
        }
        let range = byte_range(offset, len);
        self.buffer
            .on_lost(range.start..range.end.min(self.buffer.end()));
    }

    /// A frame with this reliable size was acknowledged; one with a larger one says too little.
    pub(crate) fn on_reset_acked(&mut self, reliable_size: u64) {
        if let Some(reset) = self.reset_at(reliable_size) {
            reset.stage = Stage::Acked;
        }
    }

    pub(crate) fn on_reset_lost(&mut self, reliable_size: u64) {
        if let Some(reset) = self.reset_at(reliable_size)
            && reset.stage == Stage::Sent
        {
            reset.stage = Stage::Pending;
        }
    }

    fn reset_at(&mut self, reliable_size: u64) -> Option<&mut Reset> {
        self.reset
            .as_mut()
            .filter(|r| r.reliable_size == reliable_size)
    }

    /// The peer has everything: data and FIN. Never so once it was reset, when the buffer ends earlier.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin == Fin::Acked && self.reset.is_none() && self.buffer.all_acked()
    }

    /// Nothing of this half is needed any more: the peer has all, or all that is delivered of a
    /// stream that was reset.
    pub(crate) fn is_done(&self) -> bool {
        let gone = self.reset.is_some_and(|r| r.stage == Stage::Acked);
        self.is_finished() || (gone && self.buffer.all_acked())
    }
}
