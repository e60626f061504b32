//! Frames of QUIC v1 (RFC 9000 §19), DATAGRAM (RFC 9221), ACK_FREQUENCY and IMMEDIATE_ACK
//! (draft-ietf-quic-ack-frequency-14), and RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-07).
//!
//! Owns the borrowed views ([`Frame`]), their parser ([`Frame::parse`]) and one `write_*`
//! function a frame. The engine parses frame by frame from a decrypted payload and writes
//! straight into the train buffer. Never allocates, never knows a connection's state: what a
//! frame means, and whether it is permitted now, is the engine's business.

use crate::error_code::TransportErrorCode;
use crate::ids::{ConnectionId, Direction, StatelessResetToken, StreamId};
use core::time::Duration;

mod ack;
mod error;
mod kind;
mod parse;
#[cfg(test)]
mod tests;
mod write;

pub use ack::{ACK_MIN_ROOM, AckFrame, AckRanges, EcnCounts, MAX_ACK_RANGES_WRITTEN, write_ack};
pub use error::FrameError;
pub use kind::FrameType;
pub use write::*;

/// One frame, borrowing its bytes from the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// A run of PADDING (§19.1).
    Padding {
        /// Bytes in the run, at least 1.
        len: usize,
    },
    /// PING (§19.2).
    Ping,
    /// ACK (§19.3).
    Ack(AckFrame<'a>),
    /// RESET_STREAM (§19.4).
    ResetStream {
        /// The stream.
        id: StreamId,
        /// The application's error code.
        error_code: u64,
        /// The stream's final size in bytes.
        final_size: u64,
    },
    /// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-07 §4).
    ResetStreamAt {
        /// The stream.
        id: StreamId,
        /// The application's error code.
        error_code: u64,
        /// The stream's final size in bytes.
        final_size: u64,
        /// Bytes from the start of the stream that are delivered all the same, ≤ `final_size`.
        reliable_size: u64,
    },
    /// STOP_SENDING (§19.5).
    StopSending {
        /// The stream.
        id: StreamId,
        /// The application's error code.
        error_code: u64,
    },
    /// CRYPTO (§19.6).
    Crypto {
        /// Offset of `data` in the handshake stream; offset + length ≤ 2^62 - 1.
        offset: u64,
        /// Handshake bytes.
        data: &'a [u8],
    },
    /// NEW_TOKEN (§19.7).
    NewToken {
        /// The token, never empty.
        token: &'a [u8],
    },
    /// STREAM (§19.8).
    Stream(StreamFrame<'a>),
    /// MAX_DATA (§19.9): the connection's limit in bytes.
    MaxData(u64),
    /// MAX_STREAM_DATA (§19.10).
    MaxStreamData {
        /// The stream.
        id: StreamId,
        /// The stream's limit in bytes.
        max: u64,
    },
    /// MAX_STREAMS (§19.11).
    MaxStreams {
        /// Which streams.
        direction: Direction,
        /// How many over the life of the connection, ≤ 2^60.
        max: u64,
    },
    /// DATA_BLOCKED (§19.12): the connection limit at which the peer is blocked.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED (§19.13).
    StreamDataBlocked {
        /// The stream.
        id: StreamId,
        /// The stream limit at which the peer is blocked.
        limit: u64,
    },
    /// STREAMS_BLOCKED (§19.14).
    StreamsBlocked {
        /// Which streams.
        direction: Direction,
        /// The limit at which the peer is blocked, ≤ 2^60.
        limit: u64,
    },
    /// NEW_CONNECTION_ID (§19.15).
    NewConnectionId(NewConnectionIdFrame),
    /// RETIRE_CONNECTION_ID (§19.16).
    RetireConnectionId {
        /// Sequence number of the connection ID.
        sequence: u64,
    },
    /// PATH_CHALLENGE (§19.17).
    PathChallenge([u8; 8]),
    /// PATH_RESPONSE (§19.18).
    PathResponse([u8; 8]),
    /// CONNECTION_CLOSE (§19.19).
    ConnectionClose(CloseFrame<'a>),
    /// HANDSHAKE_DONE (§19.20).
    HandshakeDone,
    /// DATAGRAM (RFC 9221 §4).
    Datagram {
        /// The payload.
        data: &'a [u8],
    },
    /// ACK_FREQUENCY (draft-ietf-quic-ack-frequency-14 §4).
    AckFrequency(AckFrequencyFrame),
    /// IMMEDIATE_ACK (draft-ietf-quic-ack-frequency-14 §5).
    ImmediateAck,
}

impl Frame<'_> {
    /// The frame's type; STREAM and DATAGRAM without their flag bits.
    #[inline]
    pub fn ty(&self) -> FrameType {
        match self {
            Self::Padding { .. } => FrameType::PADDING,
            Self::Ping => FrameType::PING,
            Self::Ack(ack) if ack.ecn.is_some() => FrameType::ACK_ECN,
            Self::Ack(_) => FrameType::ACK,
            Self::ResetStream { .. } => FrameType::RESET_STREAM,
            Self::ResetStreamAt { .. } => FrameType::RESET_STREAM_AT,
            Self::StopSending { .. } => FrameType::STOP_SENDING,
            Self::Crypto { .. } => FrameType::CRYPTO,
            Self::NewToken { .. } => FrameType::NEW_TOKEN,
            Self::Stream(_) => FrameType::STREAM,
            Self::MaxData(_) => FrameType::MAX_DATA,
            Self::MaxStreamData { .. } => FrameType::MAX_STREAM_DATA,
            Self::MaxStreams { direction, .. } => FrameType::max_streams(*direction),
            Self::DataBlocked(_) => FrameType::DATA_BLOCKED,
            Self::StreamDataBlocked { .. } => FrameType::STREAM_DATA_BLOCKED,
            Self::StreamsBlocked { direction, .. } => FrameType::streams_blocked(*direction),
            Self::NewConnectionId(_) => FrameType::NEW_CONNECTION_ID,
            Self::RetireConnectionId { .. } => FrameType::RETIRE_CONNECTION_ID,
            Self::PathChallenge(_) => FrameType::PATH_CHALLENGE,
            Self::PathResponse(_) => FrameType::PATH_RESPONSE,
            Self::ConnectionClose(close) if close.is_application() => {
                FrameType::CONNECTION_CLOSE_APPLICATION
            }
            Self::ConnectionClose(_) => FrameType::CONNECTION_CLOSE,
            Self::HandshakeDone => FrameType::HANDSHAKE_DONE,
            Self::Datagram { .. } => FrameType::DATAGRAM,
            Self::AckFrequency(_) => FrameType::ACK_FREQUENCY,
            Self::ImmediateAck => FrameType::IMMEDIATE_ACK,
        }
    }

    /// Whether a packet with this frame must be acknowledged: all but ACK, PADDING and
    /// CONNECTION_CLOSE (RFC 9002 §2).
    #[inline]
    pub fn ack_eliciting(&self) -> bool {
        !matches!(
            self,
            Self::Padding { .. } | Self::Ack(_) | Self::ConnectionClose(_)
        )
    }
}

/// A STREAM frame (RFC 9000 §19.8); `offset` + length of `data` ≤ 2^62 - 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamFrame<'a> {
    /// The stream.
    pub id: StreamId,
    /// Offset of `data` in the stream.
    pub offset: u64,
    /// Whether the stream ends after `data`.
    pub fin: bool,
    /// The bytes, possibly none.
    pub data: &'a [u8],
}

/// A NEW_CONNECTION_ID frame (RFC 9000 §19.15).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewConnectionIdFrame {
    /// Sequence number of the new connection ID.
    pub sequence: u64,
    /// Connection IDs with lower sequence numbers must be retired; ≤ `sequence`.
    pub retire_prior_to: u64,
    /// The connection ID, 1 to 20 bytes.
    pub cid: ConnectionId,
    /// Its stateless reset token.
    pub reset_token: StatelessResetToken,
}

/// An ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency-14 §4): how its sender wants to be
/// acknowledged. Whether the values are acceptable is the engine's to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckFrequencyFrame {
    /// Grows from frame to frame; the receiver ignores all but the largest so far.
    pub sequence: u64,
    /// Ack-eliciting packets that may arrive without an ACK; one more than this makes it due.
    pub ack_eliciting_threshold: u64,
    /// The longest an ACK may be delayed, in whole microseconds.
    pub requested_max_ack_delay: Duration,
    /// How far out of order a packet must be to be acknowledged at once; 0 for never.
    pub reordering_threshold: u64,
}

/// A CONNECTION_CLOSE frame of either type (RFC 9000 §19.19).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloseFrame<'a> {
    /// A transport error code, or the application's.
    pub error_code: u64,
    /// Type of the frame at fault (0: not known); `None` makes it the application's (0x1d).
    pub frame_type: Option<u64>,
    /// The peer's words: should be UTF-8 but needn't be.
    pub reason: &'a [u8],
}

impl<'a> CloseFrame<'a> {
    /// The most bytes of a peer's reason that [`reason_text`](Self::reason_text) keeps.
    pub const MAX_REASON_TEXT: usize = 512;

    /// A close by the transport (0x1c). `frame_type` is 0 where no frame is at fault.
    pub const fn transport(code: TransportErrorCode, frame_type: u64, reason: &'a [u8]) -> Self {
        Self {
            error_code: code.as_u64(),
            frame_type: Some(frame_type),
            reason,
        }
    }

    /// A close by the application (0x1d).
    pub const fn application(error_code: u64, reason: &'a [u8]) -> Self {
        Self {
            error_code,
            frame_type: None,
            reason,
        }
    }

    /// Whether the application closed.
    #[inline]
    pub const fn is_application(&self) -> bool {
        self.frame_type.is_none()
    }

    /// The reason as text: cut to [`MAX_REASON_TEXT`](Self::MAX_REASON_TEXT) bytes, what isn't
    /// UTF-8 replaced.
    pub fn reason_text(&self) -> String {
        let reason = &self.reason[..self.reason.len().min(Self::MAX_REASON_TEXT)];
        String::from_utf8_lossy(reason).into_owned()
    }
}
