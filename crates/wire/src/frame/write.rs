//! One writer a frame (RFC 9000 §19 and extensions), straight into the packet being built.
//!
//! A caller compares `Writer::remaining` with the `*_LEN` constant or `*_len` function beside
//! the writer before it writes; a frame that doesn't fit leaves the writer overflowed. For frames
//! with a payload only the header is written here, so that the caller copies data once.

use core::time::Duration;

use super::{AckFrequencyFrame, CloseFrame, Frame, FrameType, NewConnectionIdFrame};
use crate::cursor::{MAX_VARINT, Writer, varint_len};
use crate::ids::{Direction, StreamId};

/// Bytes of a PING frame.
pub const PING_LEN: usize = 1;
/// Bytes of a HANDSHAKE_DONE frame.
pub const HANDSHAKE_DONE_LEN: usize = 1;
/// The most bytes of a RESET_STREAM frame.
pub const RESET_STREAM_MAX_LEN: usize = 1 + 3 * 8;
/// The most bytes of a RESET_STREAM_AT frame.
pub const RESET_STREAM_AT_MAX_LEN: usize = 1 + 4 * 8;
/// The most bytes of a STOP_SENDING frame.
pub const STOP_SENDING_MAX_LEN: usize = 1 + 2 * 8;
/// The most bytes of a MAX_DATA frame.
pub const MAX_DATA_MAX_LEN: usize = 1 + 8;
/// The most bytes of a MAX_STREAM_DATA frame.
pub const MAX_STREAM_DATA_MAX_LEN: usize = 1 + 2 * 8;
/// The most bytes of a MAX_STREAMS frame.
pub const MAX_STREAMS_MAX_LEN: usize = 1 + 8;
/// The most bytes of a DATA_BLOCKED frame.
pub const DATA_BLOCKED_MAX_LEN: usize = 1 + 8;
/// The most bytes of a STREAM_DATA_BLOCKED frame.
pub const STREAM_DATA_BLOCKED_MAX_LEN: usize = 1 + 2 * 8;
/// The most bytes of a STREAMS_BLOCKED frame.
pub const STREAMS_BLOCKED_MAX_LEN: usize = 1 + 8;
/// The most bytes of a NEW_CONNECTION_ID frame.
pub const NEW_CONNECTION_ID_MAX_LEN: usize = 1 + 2 * 8 + 1 + 20 + 16;
/// The most bytes of a RETIRE_CONNECTION_ID frame.
pub const RETIRE_CONNECTION_ID_MAX_LEN: usize = 1 + 8;
/// Bytes of a PATH_CHALLENGE frame.
pub const PATH_CHALLENGE_LEN: usize = 1 + 8;
/// Bytes of a PATH_RESPONSE frame.
pub const PATH_RESPONSE_LEN: usize = 1 + 8;
/// The most bytes of a CONNECTION_CLOSE frame without a reason.
pub const CONNECTION_CLOSE_MAX_LEN: usize = 1 + 3 * 8;
/// The most bytes of a STREAM frame without its data.
pub const STREAM_HEADER_MAX_LEN: usize = 1 + 3 * 8;
/// The most bytes of a CRYPTO frame without its data.
pub const CRYPTO_HEADER_MAX_LEN: usize = 1 + 2 * 8;
/// The most bytes of a DATAGRAM frame without its data.
pub const DATAGRAM_HEADER_MAX_LEN: usize = 1 + 8;
/// The most bytes of an ACK_FREQUENCY frame.
pub const ACK_FREQUENCY_MAX_LEN: usize = 2 + 4 * 8;
/// Bytes of an IMMEDIATE_ACK frame.
pub const IMMEDIATE_ACK_LEN: usize = 1;

/// Writes `len` bytes of PADDING (§19.1).
#[inline]
pub fn write_padding(w: &mut Writer<'_>, len: usize) {
    w.zeros(len);
}

/// Writes PING (§19.2).
#[inline]
pub fn write_ping(w: &mut Writer<'_>) {
    write_type(w, FrameType::PING);
}

/// Writes RESET_STREAM (§19.4); `final_size` in bytes.
#[inline]
pub fn write_reset_stream(w: &mut Writer<'_>, id: StreamId, error_code: u64, final_size: u64) {
    write_type(w, FrameType::RESET_STREAM);
    w.varint(id.as_u64());
    w.varint(error_code);
    w.varint(final_size);
}

/// Writes RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-07 §4); sizes in bytes,
/// `reliable_size` at most `final_size`.
#[inline]
pub fn write_reset_stream_at(
    w: &mut Writer<'_>,
    id: StreamId,
    error_code: u64,
    final_size: u64,
    reliable_size: u64,
) {
    write_type(w, FrameType::RESET_STREAM_AT);
    w.varint(id.as_u64());
    w.varint(error_code);
    w.varint(final_size);
    w.varint(reliable_size);
}

/// Writes STOP_SENDING (§19.5).
#[inline]
pub fn write_stop_sending(w: &mut Writer<'_>, id: StreamId, error_code: u64) {
    write_type(w, FrameType::STOP_SENDING);
    w.varint(id.as_u64());
    w.varint(error_code);
}

/// Bytes of a CRYPTO frame's header for `data_len` bytes of data.
#[inline]
pub const fn crypto_frame_header_len(offset: u64, data_len: usize) -> usize {
    1 + varint_len(offset) + varint_len(data_len as u64)
}

/// The most CRYPTO data that fits a frame in `room` bytes; `None` if not even one byte does.
#[inline]
pub const fn crypto_data_room(room: usize, offset: u64) -> Option<usize> {
    data_room(room, 1 + varint_len(offset))
}

/// Writes all of a CRYPTO frame (§19.6) but its `data_len` bytes of data, which must follow.
#[inline]
pub fn write_crypto_header(w: &mut Writer<'_>, offset: u64, data_len: usize) {
    write_type(w, FrameType::CRYPTO);
    w.varint(offset);
    w.varint(data_len as u64);
}

/// Bytes of a NEW_TOKEN frame with a token of `token_len` bytes.
#[inline]
pub const fn new_token_len(token_len: usize) -> usize {
    1 + varint_len(token_len as u64) + token_len
}

/// Writes NEW_TOKEN (§19.7); the token must not be empty.
#[inline]
pub fn write_new_token(w: &mut Writer<'_>, token: &[u8]) {
    debug_assert!(!token.is_empty());
    write_type(w, FrameType::NEW_TOKEN);
    w.varint(token.len() as u64);
    w.bytes(token);
}

/// Bytes of a STREAM frame's header; `data_len` is `None` for a frame to the packet's end.
#[inline]
pub const fn stream_frame_header_len(id: StreamId, offset: u64, data_len: Option<usize>) -> usize {
    let length = match data_len {
        Some(len) => varint_len(len as u64),
        None => 0,
    };
    stream_fixed_len(id, offset) + length
}

/// The most STREAM data that fits a frame with a length in `room` bytes; `None` if not even one
/// byte does. (An empty frame, for a FIN, needs `stream_frame_header_len(id, offset, Some(0))`.)
#[inline]
pub const fn stream_data_room(room: usize, id: StreamId, offset: u64) -> Option<usize> {
    data_room(room, stream_fixed_len(id, offset))
}

/// Writes all of a STREAM frame (§19.8) but its data, which must follow.
///
/// With `data_len` `None` there is no length: the frame reaches to the end of the packet.
#[inline]
pub fn write_stream_header(
    w: &mut Writer<'_>,
    id: StreamId,
    offset: u64,
    data_len: Option<usize>,
    fin: bool,
) {
    let off_bit = if offset > 0 { 0x04 } else { 0 };
    let len_bit = if data_len.is_some() { 0x02 } else { 0 };
    w.u8(0x08 | off_bit | len_bit | u8::from(fin));
    w.varint(id.as_u64());
    if offset > 0 {
        w.varint(offset);
    }
    if let Some(len) = data_len {
        w.varint(len as u64);
    }
}

/// Writes MAX_DATA (§19.9).
#[inline]
pub fn write_max_data(w: &mut Writer<'_>, max: u64) {
    write_type(w, FrameType::MAX_DATA);
    w.varint(max);
}

/// Writes MAX_STREAM_DATA (§19.10).
#[inline]
pub fn write_max_stream_data(w: &mut Writer<'_>, id: StreamId, max: u64) {
    write_type(w, FrameType::MAX_STREAM_DATA);
    w.varint(id.as_u64());
    w.varint(max);
}

/// Writes MAX_STREAMS (§19.11); `max` ≤ 2^60.
#[inline]
pub fn write_max_streams(w: &mut Writer<'_>, direction: Direction, max: u64) {
    write_type(w, FrameType::max_streams(direction));
    w.varint(max);
}

/// Writes DATA_BLOCKED (§19.12).
#[inline]
pub fn write_data_blocked(w: &mut Writer<'_>, limit: u64) {
    write_type(w, FrameType::DATA_BLOCKED);
    w.varint(limit);
}

/// Writes STREAM_DATA_BLOCKED (§19.13).
#[inline]
pub fn write_stream_data_blocked(w: &mut Writer<'_>, id: StreamId, limit: u64) {
    write_type(w, FrameType::STREAM_DATA_BLOCKED);
    w.varint(id.as_u64());
    w.varint(limit);
}

/// Writes STREAMS_BLOCKED (§19.14); `limit` ≤ 2^60.
#[inline]
pub fn write_streams_blocked(w: &mut Writer<'_>, direction: Direction, limit: u64) {
    write_type(w, FrameType::streams_blocked(direction));
    w.varint(limit);
}

/// Writes NEW_CONNECTION_ID (§19.15).
#[inline]
pub fn write_new_connection_id(w: &mut Writer<'_>, frame: &NewConnectionIdFrame) {
    write_type(w, FrameType::NEW_CONNECTION_ID);
    w.varint(frame.sequence);
    w.varint(frame.retire_prior_to);
    w.u8(frame.cid.len() as u8);
    w.bytes(&frame.cid);
    w.bytes(frame.reset_token.as_bytes());
}

/// Writes RETIRE_CONNECTION_ID (§19.16).
#[inline]
pub fn write_retire_connection_id(w: &mut Writer<'_>, sequence: u64) {
    write_type(w, FrameType::RETIRE_CONNECTION_ID);
    w.varint(sequence);
}

/// Writes PATH_CHALLENGE (§19.17).
#[inline]
pub fn write_path_challenge(w: &mut Writer<'_>, data: [u8; 8]) {
    write_type(w, FrameType::PATH_CHALLENGE);
    w.array(data);
}

/// Writes PATH_RESPONSE (§19.18).
#[inline]
pub fn write_path_response(w: &mut Writer<'_>, data: [u8; 8]) {
    write_type(w, FrameType::PATH_RESPONSE);
    w.array(data);
}

/// Writes CONNECTION_CLOSE (§19.19) with as much of the reason as fits, cut between characters.
///
/// Needs [`CONNECTION_CLOSE_MAX_LEN`] bytes for the rest of the frame.
pub fn write_connection_close(w: &mut Writer<'_>, close: &CloseFrame<'_>) {
    let fixed = close_fixed_len(close);
    let room = data_room(w.remaining(), fixed).unwrap_or(0);
    let mut len = close.reason.len().min(room);
    // Bytes 0b10xxxxxx continue a UTF-8 character.
    while len > 0
        && close
            .reason
            .get(len)
            .is_some_and(|byte| byte & 0xc0 == 0x80)
    {
        len -= 1;
    }
    match close.frame_type {
        Some(frame_type) => {
            write_type(w, FrameType::CONNECTION_CLOSE);
            w.varint(close.error_code);
            w.varint(frame_type);
        }
        None => {
            write_type(w, FrameType::CONNECTION_CLOSE_APPLICATION);
            w.varint(close.error_code);
        }
    }
    w.varint(len as u64);
    w.bytes(&close.reason[..len]);
}

/// Writes HANDSHAKE_DONE (§19.20).
#[inline]
pub fn write_handshake_done(w: &mut Writer<'_>) {
    write_type(w, FrameType::HANDSHAKE_DONE);
}

/// Bytes of a DATAGRAM frame's header; `data_len` is `None` for a frame to the packet's end.
#[inline]
pub const fn datagram_frame_header_len(data_len: Option<usize>) -> usize {
    match data_len {
        Some(len) => 1 + varint_len(len as u64),
        None => 1,
    }
}

/// Writes all of a DATAGRAM frame (RFC 9221 §4) but its data, which must follow.
///
/// With `data_len` `None` there is no length: the frame reaches to the end of the packet.
#[inline]
pub fn write_datagram_header(w: &mut Writer<'_>, data_len: Option<usize>) {
    match data_len {
        Some(len) => {
            write_type(w, FrameType::DATAGRAM_LEN);
            w.varint(len as u64);
        }
        None => write_type(w, FrameType::DATAGRAM),
    }
}

/// Writes ACK_FREQUENCY (draft-ietf-quic-ack-frequency-14 §4); the delay is cut to whole
/// microseconds.
#[inline]
pub fn write_ack_frequency(w: &mut Writer<'_>, frame: &AckFrequencyFrame) {
    w.varint(FrameType::ACK_FREQUENCY.as_u64());
    w.varint(frame.sequence);
    w.varint(frame.ack_eliciting_threshold);
    w.varint(micros(frame.requested_max_ack_delay));
    w.varint(frame.reordering_threshold);
}

/// Writes IMMEDIATE_ACK (draft-ietf-quic-ack-frequency-14 §5).
#[inline]
pub fn write_immediate_ack(w: &mut Writer<'_>) {
    write_type(w, FrameType::IMMEDIATE_ACK);
}

impl Frame<'_> {
    /// Bytes [`write`](Self::write) needs.
    pub fn encoded_len(&self) -> usize {
        let varints = |values: &[u64]| 1 + values.iter().map(|v| varint_len(*v)).sum::<usize>();
        match self {
            Self::Padding { len } => *len,
            Self::Ping | Self::HandshakeDone | Self::ImmediateAck => 1,
            Self::Ack(ack) => ack.encoded_len(),
            Self::ResetStream {
                id,
                error_code,
                final_size,
            } => varints(&[id.as_u64(), *error_code, *final_size]),
            Self::ResetStreamAt {
                id,
                error_code,
                final_size,
                reliable_size,
            } => varints(&[id.as_u64(), *error_code, *final_size, *reliable_size]),
            Self::StopSending { id, error_code } => varints(&[id.as_u64(), *error_code]),
            Self::Crypto { offset, data } => {
                crypto_frame_header_len(*offset, data.len()) + data.len()
            }
            Self::NewToken { token } => new_token_len(token.len()),
            Self::Stream(stream) => {
                let len = stream.data.len();
                stream_frame_header_len(stream.id, stream.offset, Some(len)) + len
            }
            Self::MaxData(value)
            | Self::DataBlocked(value)
            | Self::MaxStreams { max: value, .. }
            | Self::StreamsBlocked { limit: value, .. }
            | Self::RetireConnectionId { sequence: value } => varints(&[*value]),
            Self::MaxStreamData { id, max: value }
            | Self::StreamDataBlocked { id, limit: value } => varints(&[id.as_u64(), *value]),
            Self::NewConnectionId(frame) => {
                varints(&[frame.sequence, frame.retire_prior_to]) + 1 + frame.cid.len() + 16
            }
            Self::PathChallenge(_) | Self::PathResponse(_) => PATH_CHALLENGE_LEN,
            Self::ConnectionClose(close) => {
                let len = close.reason.len();
                close_fixed_len(close) + varint_len(len as u64) + len
            }
            Self::Datagram { data } => datagram_frame_header_len(Some(data.len())) + data.len(),
            Self::AckFrequency(frame) => {
                let delay = micros(frame.requested_max_ack_delay);
                // The type takes two bytes.
                1 + varints(&[
                    frame.sequence,
                    frame.ack_eliciting_threshold,
                    delay,
                    frame.reordering_threshold,
                ])
            }
        }
    }

    /// Writes any frame whole, STREAM and DATAGRAM with a length: for tests and for peers built
    /// to misbehave. The engine uses the functions of this module.
    pub fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Padding { len } => write_padding(w, *len),
            Self::Ping => write_ping(w),
            Self::Ack(ack) => ack.write(w),
            Self::ResetStream {
                id,
                error_code,
                final_size,
            } => {
                write_reset_stream(w, *id, *error_code, *final_size);
            }
            Self::ResetStreamAt {
                id,
                error_code,
                final_size,
                reliable_size,
            } => {
                write_reset_stream_at(w, *id, *error_code, *final_size, *reliable_size);
            }
            Self::StopSending { id, error_code } => write_stop_sending(w, *id, *error_code),
            Self::Crypto { offset, data } => {
                write_crypto_header(w, *offset, data.len());
                w.bytes(data);
            }
            Self::NewToken { token } => write_new_token(w, token),
            Self::Stream(stream) => {
                let len = Some(stream.data.len());
                write_stream_header(w, stream.id, stream.offset, len, stream.fin);
                w.bytes(stream.data);
            }
            Self::MaxData(max) => write_max_data(w, *max),
            Self::MaxStreamData { id, max } => write_max_stream_data(w, *id, *max),
            Self::MaxStreams { direction, max } => write_max_streams(w, *direction, *max),
            Self::DataBlocked(limit) => write_data_blocked(w, *limit),
            Self::StreamDataBlocked { id, limit } => write_stream_data_blocked(w, *id, *limit),
            Self::StreamsBlocked { direction, limit } => {
                write_streams_blocked(w, *direction, *limit);
            }
            Self::NewConnectionId(frame) => write_new_connection_id(w, frame),
            Self::RetireConnectionId { sequence } => write_retire_connection_id(w, *sequence),
            Self::PathChallenge(data) => write_path_challenge(w, *data),
            Self::PathResponse(data) => write_path_response(w, *data),
            Self::ConnectionClose(close) => write_connection_close(w, close),
            Self::HandshakeDone => write_handshake_done(w),
            Self::Datagram { data } => {
                write_datagram_header(w, Some(data.len()));
                w.bytes(data);
            }
            Self::AckFrequency(frame) => write_ack_frequency(w, frame),
            Self::ImmediateAck => write_immediate_ack(w),
        }
    }
}

#[inline]
const fn stream_fixed_len(id: StreamId, offset: u64) -> usize {
    let offset = if offset > 0 { varint_len(offset) } else { 0 };
    1 + varint_len(id.as_u64()) + offset
}

const fn close_fixed_len(close: &CloseFrame<'_>) -> usize {
    let frame_type = match close.frame_type {
        Some(frame_type) => varint_len(frame_type),
        None => 0,
    };
    1 + varint_len(close.error_code) + frame_type
}

/// The most data that fits behind `fixed` bytes and a length field; `None` for none.
#[inline]
const fn data_room(room: usize, fixed: usize) -> Option<usize> {
    if room < fixed + 2 {
        return None;
    }
    let left = room - fixed;
    // The length field takes 1 byte up to 63, 2 up to 16383; just above, a byte or more is lost.
    Some(if left <= 64 {
        left - 1
    } else if left <= (1 << 14) + 1 {
        left - 2
    } else if left <= (1 << 14) + 3 {
        (1 << 14) - 1
    } else if left <= (1 << 30) + 3 {
        left - 4
    } else {
        left - 8
    })
}

/// As the wire counts delays, in range.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).map_or(MAX_VARINT, |micros| micros.min(MAX_VARINT))
}

#[inline]
fn write_type(w: &mut Writer<'_>, ty: FrameType) {
    w.u8(ty.as_u64() as u8);
}
