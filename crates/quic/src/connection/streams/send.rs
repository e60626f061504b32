//! The sending half of one stream (RFC 9000 §3.1).

use std::ops::Range;

use bytes::Bytes;
use towline_wire::{StreamId, stream_frame_header_len, write_stream_header};

use crate::connection::blocks::BlockPool;
use crate::connection::component::{PacketWriter, SentFrame, byte_range};
use crate::connection::send_buffer::SendBuffer;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reset {
    None,
    /// To be sent, for the first time or again.
    Pending {
        code: u64,
        final_size: u64,
    },
    Sent {
        code: u64,
        final_size: u64,
    },
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
    reset: Reset,
    stopped: Option<u64>,
    /// Higher goes first.
    pub(crate) priority: i32,
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
            reset: Reset::None,
            stopped: None,
            priority: 0,
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
        if self.fin != Fin::Open || self.reset != Reset::None {
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

    /// Abandons the stream; returns the bytes released from memory, or `None` if it was over.
    pub(crate) fn reset(&mut self, code: u64) -> Option<u64> {
        if self.reset != Reset::None || self.is_done() {
            return None;
        }
        let final_size = self.buffer.unsent_offset();
        self.reset = Reset::Pending { code, final_size };
        Some(self.buffer.clear())
    }

    pub(crate) fn has_pending_reset(&self) -> bool {
        matches!(self.reset, Reset::Pending { .. })
    }

    pub(crate) fn on_stop_sending(&mut self, code: u64) -> bool {
        if self.stopped.is_some() || self.reset != Reset::None || self.fin == Fin::Acked {
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
        if self.reset != Reset::None {
            return false;
        }
        self.buffer.has_pending(self.limit(connection_credit)) || self.fin_ready()
    }

    fn fin_ready(&self) -> bool {
        self.fin == Fin::Pending && self.buffer.unsent_len() == 0
    }

    /// New data waits and the stream's own limit, not the connection's, is in the way.
    pub(crate) fn blocked_by_stream(&self) -> bool {
        self.reset == Reset::None
            && self.buffer.unsent_len() > 0
            && self.buffer.unsent_offset() >= self.max_data
    }

    /// New data waits for connection credit.
    pub(crate) fn wants_connection_credit(&self) -> bool {
        self.reset == Reset::None
            && self.buffer.unsent_len() > 0
            && self.buffer.unsent_offset() < self.max_data
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
        let fin = self.fin != Fin::Open && range.end == self.buffer.end();
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

    /// The RESET_STREAM frame owed: code and final size.
    /// Code and final size are kept until it is acknowledged, and never change (RFC 9000 §13.3).
    pub(crate) fn take_reset(&mut self) -> Option<(u64, u64)> {
        let Reset::Pending { code, final_size } = self.reset else {
            return None;
        };
        self.reset = Reset::Sent { code, final_size };
        Some((code, final_size))
    }

    /// Returns bytes released from memory.
    pub(crate) fn on_acked(&mut self, range: Range<u64>, fin: bool, pool: &mut BlockPool) -> u64 {
        if self.reset != Reset::None {
            return 0;
        }
        if fin {
            self.fin = Fin::Acked;
        }
        self.buffer.on_acked(range, pool)
    }

    pub(crate) fn on_lost(&mut self, offset: u64, len: u32, fin: bool) {
        if self.reset != Reset::None {
            return;
        }
        if fin && self.fin == Fin::Sent {
            self.fin = Fin::Pending;
        }
        self.buffer.on_lost(byte_range(offset, len));
    }

    pub(crate) fn on_reset_acked(&mut self) {
        self.reset = Reset::Acked;
    }

    pub(crate) fn on_reset_lost(&mut self) {
        if let Reset::Sent { code, final_size } = self.reset {
            self.reset = Reset::Pending { code, final_size };
        }
    }

    /// The peer has everything: data and FIN.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin == Fin::Acked && self.buffer.all_acked()
    }

    /// Nothing of this half is needed any more.
    pub(crate) fn is_done(&self) -> bool {
        self.is_finished() || self.reset == Reset::Acked
    }
}
