//! The receiving half of one stream (RFC 9000 §3.2).

use bytes::Bytes;
use towline_wire::{Time, TransportErrorCode};

use super::flow::ReceiveCredit;
use crate::connection::assembler::{Assembler, TooManyGaps};
use crate::connection::blocks::BlockPool;
use crate::error::{ReadError, Violation};

/// What became of a STREAM frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Bytes beyond what was seen before: they use up connection credit.
    pub(crate) fresh: u64,
    /// Bytes nobody will read: their connection credit is returned at once.
    pub(crate) discarded: u64,
    pub(crate) now_readable: bool,
    /// The data cannot be kept now; the packet must look lost.
    pub(crate) overflow: bool,
}

/// Bytes of a stream, read wherever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedChunk {
    /// Where in the stream they are: the offset of the first one.
    pub offset: u64,
    /// The bytes; not empty.
    pub data: Bytes,
}

/// What the peer's reset says.
#[derive(Clone, Copy, Debug)]
struct Reset {
    code: u64,
    /// Bytes that are delivered all the same; the peer may only lower it.
    reliable_size: u64,
}

#[derive(Debug)]
pub(crate) struct RecvStream {
    assembler: Assembler,
    pub(crate) credit: ReceiveCredit,
    /// Highest offset received.
    highest: u64,
    final_size: Option<u64>,
    reset: Option<Reset>,
    /// Bytes nobody will read, whose connection credit was returned.
    forsaken: u64,
    stopped: Option<u64>,
    pub(crate) stop_pending: bool,
    pub(crate) max_data_pending: bool,
    pub(crate) control_queued: bool,
    /// The application knows of nothing to read, so `Readable` is owed with the next arrival.
    notify: bool,
    /// The application waits for the reset, or for all data to be here, whatever it has not read:
    /// `Readable` is owed with either.
    awaits_end: bool,
    /// The application has seen the end or the reset, or asked to stop.
    released: bool,
    /// Bytes of memory the connection counts for it.
    pub(crate) counted: usize,
}

impl RecvStream {
    pub(crate) fn new(window: u64, max_window: u64) -> Self {
        Self {
            assembler: Assembler::default(),
            credit: ReceiveCredit::new(window, max_window),
            highest: 0,
            final_size: None,
            reset: None,
            forsaken: 0,
            stopped: None,
            stop_pending: false,
            max_data_pending: false,
            control_queued: false,
            notify: true,
            awaits_end: false,
            released: false,
            counted: 0,
        }
    }

    /// STREAM data. `connection_left` is what connection credit still admits.
    pub(crate) fn on_data(
        &mut self,
        now: Time,
        offset: u64,
        data: &[u8],
        fin: bool,
        connection_left: u64,
        pool: &mut BlockPool,
    ) -> Result<Accepted, Violation> {
        let end = offset + data.len() as u64;
        self.check_final_size(end, fin)?;
        let fresh = end.saturating_sub(self.highest);
        if end > self.credit.advertised() || fresh > connection_left {
            return Err(Violation::new(
                TransportErrorCode::FLOW_CONTROL_ERROR,
                "sent more than flow control allows",
            ));
        }
        self.credit.on_received(now);
        self.highest = self.highest.max(end);
        if fin {
            self.final_size = Some(end);
        }
        let wanted = match self.reset {
            _ if self.stopped.is_some() => 0,
            Some(reset) => reset.reliable_size.saturating_sub(offset),
            None => u64::MAX,
        };
        if wanted == 0 {
            return Ok(Accepted {
                fresh,
                discarded: fresh,
                now_readable: false,
                overflow: false,
            });
        }
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(wanted)];
        let overflow = self.assembler.insert(offset, data, pool) == Err(TooManyGaps);
        Ok(Accepted {
            fresh,
            discarded: 0,
            now_readable: self.take_notification(),
            overflow,
        })
    }

    fn check_final_size(&self, end: u64, fin: bool) -> Result<(), Violation> {
        let changed = match self.final_size {
            Some(size) => end > size || (fin && end != size),
            None => fin && end < self.highest,
        };
        if changed {
            return Err(Violation::new(
                TransportErrorCode::FINAL_SIZE_ERROR,
                "the final size of a stream changed",
            ));
        }
        Ok(())
    }

    /// RESET_STREAM, or RESET_STREAM_AT where `reliable_size` is not 0. Returns (fresh, discarded,
    /// now_readable) as for data.
    pub(crate) fn on_reset(
        &mut self,
        code: u64,
        final_size: u64,
        reliable_size: u64,
        connection_left: u64,
    ) -> Result<Accepted, Violation> {
        self.check_final_size(final_size, true)?;
        if self.reset.is_some_and(|reset| reset.code != code) {
            return Err(Violation::new(
                TransportErrorCode::STREAM_STATE_ERROR,
                "the error code of a reset changed",
            ));
        }
        let fresh = final_size.saturating_sub(self.highest);
        if final_size > self.credit.advertised() || fresh > connection_left {
            return Err(Violation::new(
                TransportErrorCode::FLOW_CONTROL_ERROR,
                "reset with a final size beyond flow control",
            ));
        }
        // Data Recvd (RFC 9000 §3.2) needs the FIN: without one, all bytes are not the end.
        let complete = self.all_received();
        self.highest = self.highest.max(final_size);
        self.final_size = Some(final_size);
        let mut discarded = 0;
        let known = self.reset.map_or(u64::MAX, |reset| reset.reliable_size);
        if self.stopped.is_some() {
            discarded = fresh;
        } else if reliable_size < known && !complete {
            discarded = self.forsake(code, reliable_size, final_size);
        }
        Ok(Accepted {
            fresh,
            discarded,
            now_readable: self.take_notification(),
            overflow: false,
        })
    }

    /// Drops what lies beyond the reliable size (RFC 9000 §3.2); what the reader had stays counted.
    /// Returns for how many bytes more than before credit is to be returned.
    fn forsake(&mut self, code: u64, reliable_size: u64, final_size: u64) -> u64 {
        self.assembler.truncate(reliable_size);
        self.reset = Some(Reset {
            code,
            reliable_size,
        });
        let to_read = reliable_size - self.assembler.consumed_below(reliable_size);
        let forsaken = final_size - self.assembler.consumed_len() - to_read;
        forsaken - std::mem::replace(&mut self.forsaken, forsaken)
    }

    fn all_received(&self) -> bool {
        self.final_size
            .is_some_and(|size| self.assembler.has_all(size))
    }

    fn take_notification(&mut self) -> bool {
        let something = self.assembler.has_ready() || self.has_ended();
        let owed = something && std::mem::take(&mut self.notify);
        let awaited = self.awaits_end && self.has_ended();
        self.awaits_end &= !awaited;
        owed || awaited
    }

    /// No more data is to come: reset, or all of it is here.
    fn has_ended(&self) -> bool {
        match self.reset {
            Some(reset) => self.assembler.has_all_below(reset.reliable_size),
            None => self.all_received(),
        }
    }

    /// There is data, an end or a reset that the application has not seen.
    pub(crate) fn has_unread(&self) -> bool {
        let has_data = self.assembler.has_ready() || self.assembler.has_pending();
        !self.released && (has_data || self.has_ended())
    }

    /// The code of the peer's reset; `None` where there will be none: everything is here, or nobody
    /// reads.
    pub(crate) fn received_reset(&mut self) -> Result<Option<u64>, ReadError> {
        if let Some(reset) = self.reset.filter(|_| self.has_ended()) {
            // What is delivered all the same stays to be read.
            self.released |= !self.assembler.has_ready();
            return Ok(Some(reset.code));
        }
        if self.stopped.is_some() || self.has_ended() {
            return Ok(None);
        }
        self.awaits_end = true;
        Err(ReadError::Blocked)
    }

    /// Takes up to `max` bytes; `None` at the end of the stream.
    pub(crate) fn read(
        &mut self,
        max: usize,
        pool: &mut BlockPool,
    ) -> Result<Option<Bytes>, ReadError> {
        self.check_ordered()?;
        if let Some(chunk) = self.assembler.read(max, pool) {
            return Ok(Some(chunk));
        }
        if max == 0 && self.assembler.has_ready() {
            return Ok(Some(Bytes::new()));
        }
        self.nothing_ready().map(|()| None)
    }

    pub(crate) fn read_slice(
        &mut self,
        out: &mut [u8],
        pool: &mut BlockPool,
    ) -> Result<Option<usize>, ReadError> {
        self.check_ordered()?;
        match self.assembler.read_slice(out, pool) {
            0 if out.is_empty() && self.assembler.has_ready() => Ok(Some(0)),
            0 => self.nothing_ready().map(|()| None),
            n => Ok(Some(n)),
        }
    }

    /// Takes up to `max` bytes from below offset `below`, the lowest there are; `None` at the end.
    pub(crate) fn read_unordered(
        &mut self,
        below: u64,
        max: usize,
        pool: &mut BlockPool,
    ) -> Result<Option<ReceivedChunk>, ReadError> {
        if let Some((offset, data)) = self.assembler.read_unordered(below, max, pool) {
            return Ok(Some(ReceivedChunk { offset, data }));
        }
        if self.assembler.has_ready() {
            // All of it is for later.
            self.notify = true;
            return Err(ReadError::Blocked);
        }
        self.nothing_ready().map(|()| None)
    }

    fn check_ordered(&self) -> Result<(), ReadError> {
        if self.assembler.is_unordered() {
            return Err(ReadError::IllegalOrderedRead);
        }
        Ok(())
    }

    /// Brings what the connection counts for it up to date.
    pub(crate) fn recount(&mut self, total: &mut usize) {
        let held = self.held();
        *total = *total + held - self.counted;
        self.counted = held;
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.assembler.trim();
    }

    /// Bytes of memory held beyond its own record.
    fn held(&self) -> usize {
        self.assembler.held()
    }

    /// Drops what was not read: the connection is over, and so is the stream.
    pub(crate) fn drop_received(&mut self) {
        self.assembler = Assembler::default();
        self.final_size = None;
    }

    pub(crate) fn final_size(&self) -> Option<u64> {
        self.final_size
    }

    /// `Ok` at the end of the stream.
    fn nothing_ready(&mut self) -> Result<(), ReadError> {
        if self.stopped.is_some() {
            return Err(ReadError::ClosedStream);
        }
        if self.has_ended() {
            self.released = true;
            return self.reset.map_or(Ok(()), |r| Err(ReadError::Reset(r.code)));
        }
        self.notify = true;
        Err(ReadError::Blocked)
    }

    /// The application wants no more. Returns bytes received but never read, whose credit is
    /// returned, or `None` if there was nothing to stop.
    pub(crate) fn stop(&mut self, code: u64) -> Option<u64> {
        if self.stopped.is_some() || self.released {
            return None;
        }
        self.released = true;
        if let (Some(reset), Some(final_size)) = (self.reset, self.final_size) {
            return Some(self.forsake(reset.code, 0, final_size));
        }
        let unread = self.highest - self.assembler.consumed_len();
        self.assembler.clear();
        self.stopped = Some(code);
        self.stop_pending = self.final_size.is_none();
        Some(unread)
    }

    /// Bytes that arrived, read or not.
    pub(crate) fn received_len(&self) -> u64 {
        self.highest
    }

    pub(crate) fn stop_code(&self) -> Option<u64> {
        self.stopped
    }

    /// More data may come and be wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.final_size.is_none() && self.stopped.is_none()
    }

    /// Nothing of this half is needed any more.
    pub(crate) fn is_done(&self) -> bool {
        self.released && self.final_size.is_some()
    }
}
