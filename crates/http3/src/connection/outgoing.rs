//! What waits to be written on one stream: the frames of a control stream, or of one message.

use std::collections::VecDeque;

use bytes::Bytes;
use towline_wire::http3::{Capsule, FrameType};
use towline_wire::{StreamId, emit_varint};

use crate::observe;
use crate::transport::{Transport, WriteError};

/// Bytes on their way out, and then perhaps the end.
#[derive(Default, Debug)]
pub(crate) struct Queue {
    bytes: VecDeque<Bytes>,
    finish: bool,
}

impl Queue {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.bytes.push_back(bytes);
        }
    }

    /// A whole frame (RFC 9114 §7.1).
    pub(crate) fn push_frame(&mut self, kind: FrameType, payload: &[u8]) {
        let mut frame = Vec::with_capacity(16 + payload.len());
        emit_varint(&mut frame, kind.as_u64());
        emit_varint(&mut frame, payload.len() as u64);
        frame.extend_from_slice(payload);
        self.push(frame.into());
    }

    /// The stream ends after what waits.
    pub(crate) fn finish(&mut self) {
        self.finish = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes what the transport takes.
    ///
    /// # Errors
    /// `Blocked` while something is left; the others as the transport says.
    pub(crate) fn flush<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
    ) -> Result<(), WriteError> {
        while let Some(front) = self.bytes.front_mut() {
            transport.write(id, front)?;
            if front.is_empty() {
                self.bytes.pop_front();
            }
        }
        if std::mem::take(&mut self.finish) {
            transport.finish(id);
        }
        Ok(())
    }
}

/// Our half of a request or a response.
#[derive(Default, Debug)]
pub(crate) struct Outgoing {
    queue: Queue,
    stage: Stage,
    /// What the DATA frame that was begun still needs.
    data_left: u64,
    /// Somebody was told that the body is blocked.
    blocked: bool,
}

/// How far our half has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Stage {
    /// No final head yet.
    #[default]
    Head,
    Body,
    /// Everything was said.
    Ended,
}

impl Outgoing {
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Ended && self.queue.is_empty()
    }

    /// Inside of a DATA frame nothing else can be sent.
    pub(crate) fn is_inside_data(&self) -> bool {
        self.data_left > 0
    }

    /// A HEADERS frame, after which our half is at `stage`.
    pub(crate) fn headers(&mut self, section: &[u8], stage: Stage) {
        self.queue.push_frame(FrameType::HEADERS, section);
        self.stage = stage;
        if stage == Stage::Ended {
            self.queue.finish();
        }
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// A capsule, in a DATA frame of its own (RFC 9297 §3.2).
    pub(crate) fn capsule<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        capsule: &Capsule<'_>,
    ) {
        let mut bytes = Vec::new();
        capsule.emit(&mut bytes);
        transport.observe(|| observe::Event::CapsuleCreated {
            session: id,
            capsule: capsule.into(),
        });
        let frame = observe::Frame::new(FrameType::DATA, bytes.len() as u64);
        transport.observe(|| observe::Event::FrameCreated { id, frame });
        self.queue.push_frame(FrameType::DATA, &bytes);
    }

    /// Our half ends after what was said.
    pub(crate) fn end(&mut self) {
        self.stage = Stage::Ended;
        self.queue.finish();
    }

    /// The peer or we gave it up.
    pub(crate) fn abandon(&mut self) {
        *self = Self {
            stage: Stage::Ended,
            ..Self::default()
        };
    }

    /// Writes what waits.
    pub(crate) fn flush<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
    ) -> Result<(), WriteError> {
        let flushed = self.queue.flush(transport, id);
        if matches!(flushed, Err(WriteError::Stopped(_) | WriteError::Closed)) {
            self.abandon();
        }
        flushed
    }

    /// Whether the body was blocked and is not any more.
    pub(crate) fn take_unblocked(&mut self) -> bool {
        self.queue.is_empty() && std::mem::take(&mut self.blocked)
    }

    /// Writes from the front of `data`, a DATA frame for all of it where none is begun. What is left
    /// of such a frame has to follow (RFC 9114 §7.2.1).
    pub(crate) fn body<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        data: &mut Bytes,
    ) -> Result<usize, WriteError> {
        let written = self.flush(transport, id).and_then(|()| {
            self.begin_data(transport, id, data.len());
            self.flush(transport, id)?;
            let max = usize::try_from(self.data_left).unwrap_or(usize::MAX);
            let mut part = data.slice(..max.min(data.len()));
            transport.write(id, &mut part)
        });
        match written {
            Ok(written) => {
                *data = data.slice(written..);
                self.data_left -= written as u64;
            }
            Err(WriteError::Blocked) => self.blocked = true,
            Err(_) => self.abandon(),
        }
        written
    }

    fn begin_data<T: Transport>(&mut self, transport: &mut T, id: StreamId, len: usize) {
        if self.data_left > 0 || len == 0 {
            return;
        }
        transport.observe(|| {
            let frame = observe::Frame::new(FrameType::DATA, len as u64);
            observe::Event::FrameCreated { id, frame }
        });
        let mut header = Vec::with_capacity(9);
        emit_varint(&mut header, FrameType::DATA.as_u64());
        emit_varint(&mut header, len as u64);
        self.data_left = len as u64;
        self.queue.push(header.into());
    }
}
