//! The seam between a connection and its components.
//!
//! A component writes frames into a [`PacketWriter`], leaves one [`SentFrame`] for each
//! that must be known about later, and is handed it back by `delivery` when the packet
//! was acknowledged or lost. A component never sees the connection or another component.

use std::ops::Range;

use towline_wire::{Direction, PacketNumberSpace, StreamId, Time, Writer};

/// Codepoint of the IP header a datagram arrived with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// ECT(0).
    Ect0,
    /// ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// What a sent packet carried, as its owner needs to know when its fate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// An ACK whose largest number was this.
    Ack {
        space: PacketNumberSpace,
        largest: u64,
    },
    Crypto {
        space: PacketNumberSpace,
        offset: u64,
        len: u32,
    },
    Stream {
        id: StreamId,
        offset: u64,
        len: u32,
        fin: bool,
    },
    /// RESET_STREAM, or RESET_STREAM_AT if bytes are delivered all the same.
    ResetStream {
        id: StreamId,
        reliable_size: u64,
    },
    StopSending(StreamId),
    MaxData,
    MaxStreamData(StreamId),
    MaxStreams(Direction),
    DataBlocked,
    StreamDataBlocked(StreamId),
    StreamsBlocked(Direction),
    NewConnectionId {
        sequence: u64,
    },
    RetireConnectionId {
        sequence: u64,
    },
    HandshakeDone,
    AckFrequency {
        sequence: u64,
    },
    /// Datagrams that nobody asks about.
    Datagrams {
        count: u32,
    },
    /// A datagram whose fate is told under this name.
    TrackedDatagram {
        id: u64,
    },
    Ping,
}

/// How the datagram of a packet arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    /// Earlier than now for a packet that waited for its keys.
    pub(crate) at: Time,
    pub(crate) ecn: Option<Ecn>,
}

/// Appends frames to the packet being built.
pub(crate) struct PacketWriter<'a, 'b> {
    pub(crate) w: &'a mut Writer<'b>,
    frames: &'a mut Vec<SentFrame>,
    /// Something in the packet makes the peer acknowledge it.
    pub(crate) ack_eliciting: bool,
    /// Bytes of congestion-controlled data may be written.
    pub(crate) may_send_data: bool,
    /// A frame in the packet wants its datagram at full size (RFC 9000 §8.2.2).
    pub(crate) expand_datagram: bool,
    /// A frame may reach to the packet's end, wherever that is: nothing follows in the datagram.
    pub(crate) may_end: bool,
    /// The last frame does so. There is no room left.
    pub(crate) ended: bool,
}

impl<'a, 'b> PacketWriter<'a, 'b> {
    pub(crate) fn new(
        w: &'a mut Writer<'b>,
        frames: &'a mut Vec<SentFrame>,
        may_send_data: bool,
    ) -> Self {
        Self {
            w,
            frames,
            ack_eliciting: false,
            may_send_data,
            expand_datagram: false,
            may_end: false,
            ended: false,
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        match self.ended {
            true => 0,
            false => self.w.remaining(),
        }
    }

    /// Records a frame just written that the peer must acknowledge.
    pub(crate) fn record(&mut self, frame: SentFrame) {
        self.ack_eliciting = true;
        self.frames.push(frame);
    }

    /// Records an ACK frame, which elicits nothing.
    pub(crate) fn record_ack(&mut self, space: PacketNumberSpace, largest: u64) {
        self.frames.push(SentFrame::Ack { space, largest });
    }

    /// There is an ACK frame in the packet, and nothing that the peer must acknowledge.
    pub(crate) fn holds_only_an_ack(&self) -> bool {
        !self.ack_eliciting && !self.frames.is_empty()
    }

    /// Notes an ack-eliciting frame nobody wants to hear about again.
    pub(crate) fn mark_ack_eliciting(&mut self) {
        self.ack_eliciting = true;
    }
}

/// The byte range of a CRYPTO or STREAM record.
pub(crate) fn byte_range(offset: u64, len: u32) -> Range<u64> {
    offset..offset + u64::from(len)
}
