//! The frame parser (RFC 9000 §19).
//!
//! One match over the type byte, hot frames first; every length is checked against what is left
//! of the packet before anything is sliced. `Frame::parse` is the way in.

use core::time::Duration;

use super::error::Malformed;
use super::{
    AckFrame, AckFrequencyFrame, CloseFrame, Frame, FrameError, FrameType, NewConnectionIdFrame,
    StreamFrame,
};
use crate::cursor::{MAX_VARINT, Reader, varint_len};
use crate::error_code::TransportErrorCode;
use crate::ids::{ConnectionId, Direction, MAX_STREAMS, StatelessResetToken, StreamId};

impl<'a> Frame<'a> {
    /// Reads the next frame. The reader must not be empty; an empty payload is the engine's
    /// PROTOCOL_VIOLATION (§12.4).
    #[inline]
    pub fn parse(r: &mut Reader<'a>) -> Result<Self, FrameError> {
        // Every type we know but one is below 0x40 and so a single byte in its shortest encoding.
        let ty = match r.peek_u8() {
            Some(ty) if ty < 0x40 => ty,
            _ => return long_type(r),
        };
        let frame = r.u8().map_err(Malformed::from).and_then(|ty| body(ty, r));
        frame.map_err(|Malformed(what)| encoding_error(Some(u64::from(ty)), what))
    }
}

#[inline]
fn body<'a>(ty: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    match ty {
        0x08..=0x0f => stream(ty, r).map(Frame::Stream),
        0x02 | 0x03 => AckFrame::parse_body(r, ty == 0x03).map(Frame::Ack),
        0x30 => Ok(Frame::Datagram { data: r.rest() }),
        0x31 => Ok(Frame::Datagram {
            data: r.varint_bytes()?,
        }),
        _ => control(ty, r),
    }
}

/// RFC 9000 §19.8.
#[inline]
fn stream<'a>(ty: u8, r: &mut Reader<'a>) -> Result<StreamFrame<'a>, Malformed> {
    let id = stream_id(r)?;
    let offset = if ty & 0x04 != 0 { r.varint()? } else { 0 };
    let data = if ty & 0x02 != 0 {
        r.varint_bytes()?
    } else {
        r.rest()
    };
    check_end(offset, data)?;
    Ok(StreamFrame {
        id,
        offset,
        fin: ty & 0x01 != 0,
        data,
    })
}

fn control<'a>(ty: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    Ok(match ty {
        0x00 => {
            let zeros = r.as_slice().iter().take_while(|byte| **byte == 0).count();
            r.bytes(zeros)?;
            Frame::Padding { len: 1 + zeros }
        }
        0x01 => Frame::Ping,
        0x04 => Frame::ResetStream {
            id: stream_id(r)?,
            error_code: r.varint()?,
            final_size: r.varint()?,
        },
        0x24 => reset_stream_at(r)?,
        0x05 => Frame::StopSending {
            id: stream_id(r)?,
            error_code: r.varint()?,
        },
        0x06 => {
            let offset = r.varint()?;
            let data = r.varint_bytes()?;
            check_end(offset, data)?;
            Frame::Crypto { offset, data }
        }
        0x07 => {
            // RFC 9000 §19.7.
            let token = r.varint_bytes()?;
            if token.is_empty() {
                return Err(Malformed("empty token"));
            }
            Frame::NewToken { token }
        }
        0x10 => Frame::MaxData(r.varint()?),
        0x11 => Frame::MaxStreamData {
            id: stream_id(r)?,
            max: r.varint()?,
        },
        0x12 | 0x13 => Frame::MaxStreams {
            direction: direction(ty),
            max: stream_count(r)?,
        },
        0x14 => Frame::DataBlocked(r.varint()?),
        0x15 => Frame::StreamDataBlocked {
            id: stream_id(r)?,
            limit: r.varint()?,
        },
        0x16 | 0x17 => Frame::StreamsBlocked {
            direction: direction(ty),
            limit: stream_count(r)?,
        },
        0x18 => Frame::NewConnectionId(new_connection_id(r)?),
        0x19 => Frame::RetireConnectionId {
            sequence: r.varint()?,
        },
        0x1a => Frame::PathChallenge(r.array()?),
        0x1b => Frame::PathResponse(r.array()?),
        0x1c | 0x1d => Frame::ConnectionClose(CloseFrame {
            error_code: r.varint()?,
            frame_type: if ty == 0x1c { Some(r.varint()?) } else { None },
            reason: r.varint_bytes()?,
        }),
        0x1e => Frame::HandshakeDone,
        0x1f => Frame::ImmediateAck,
        _ => return Err(Malformed("unknown frame type")),
    })
}

/// draft-ietf-quic-reliable-stream-reset-07 §4.
fn reset_stream_at<'a>(r: &mut Reader<'a>) -> Result<Frame<'a>, Malformed> {
    let id = stream_id(r)?;
    let error_code = r.varint()?;
    let final_size = r.varint()?;
    let reliable_size = r.varint()?;
    if reliable_size > final_size {
        return Err(Malformed("reliable size above the final size"));
    }
    Ok(Frame::ResetStreamAt {
        id,
        error_code,
        final_size,
        reliable_size,
    })
}

/// RFC 9000 §19.15.
fn new_connection_id(r: &mut Reader<'_>) -> Result<NewConnectionIdFrame, Malformed> {
    let sequence = r.varint()?;
    let retire_prior_to = r.varint()?;
    if retire_prior_to > sequence {
        return Err(Malformed("Retire Prior To above the sequence number"));
    }
    let len = r.u8()?;
    if len == 0 {
        return Err(Malformed("empty connection ID"));
    }
    if usize::from(len) > crate::MAX_CID_LEN {
        return Err(Malformed("connection ID longer than 20 bytes"));
    }
    let bytes = r.bytes(usize::from(len))?;
    let cid = ConnectionId::new(bytes).ok_or(Malformed("connection ID longer than 20 bytes"))?;
    let reset_token = StatelessResetToken::new(r.array()?);
    Ok(NewConnectionIdFrame {
        sequence,
        retire_prior_to,
        cid,
        reset_token,
    })
}

/// draft-ietf-quic-ack-frequency-14 §4.
fn ack_frequency(r: &mut Reader<'_>) -> Result<AckFrequencyFrame, Malformed> {
    Ok(AckFrequencyFrame {
        sequence: r.varint()?,
        ack_eliciting_threshold: r.varint()?,
        requested_max_ack_delay: Duration::from_micros(r.varint()?),
        reordering_threshold: r.varint()?,
    })
}

#[inline]
fn stream_id(r: &mut Reader<'_>) -> Result<StreamId, Malformed> {
    Ok(StreamId::from_u64(r.varint()?))
}

/// RFC 9000 §19.11, §19.14: a stream beyond 2^60 could not be named.
fn stream_count(r: &mut Reader<'_>) -> Result<u64, Malformed> {
    let count = r.varint()?;
    if count > MAX_STREAMS {
        return Err(Malformed("stream count above 2^60"));
    }
    Ok(count)
}

const fn direction(ty: u8) -> Direction {
    if ty & 1 == 0 {
        Direction::Bidirectional
    } else {
        Direction::Unidirectional
    }
}

/// RFC 9000 §19.6, §19.8: no byte may lie beyond offset 2^62 - 1.
#[inline]
fn check_end(offset: u64, data: &[u8]) -> Result<(), Malformed> {
    if offset + data.len() as u64 > MAX_VARINT {
        return Err(Malformed("data beyond offset 2^62 - 1"));
    }
    Ok(())
}

/// A type of more than one byte: ACK_FREQUENCY, or none that we know.
#[cold]
fn long_type<'a>(r: &mut Reader<'a>) -> Result<Frame<'a>, FrameError> {
    let before = r.remaining();
    let Ok(ty) = r.varint() else {
        return Err(encoding_error(None, "frame type ends early"));
    };
    if before - r.remaining() != varint_len(ty) {
        // RFC 9000 §12.4 permits this answer.
        return Err(FrameError {
            code: TransportErrorCode::PROTOCOL_VIOLATION,
            frame_type: Some(ty),
            what: "frame type not in its shortest encoding",
        });
    }
    if ty != FrameType::ACK_FREQUENCY.as_u64() {
        return Err(encoding_error(Some(ty), "unknown frame type"));
    }
    let frame = ack_frequency(r).map(Frame::AckFrequency);
    frame.map_err(|Malformed(what)| encoding_error(Some(ty), what))
}

#[cold]
fn encoding_error(frame_type: Option<u64>, what: &'static str) -> FrameError {
    FrameError {
        code: TransportErrorCode::FRAME_ENCODING_ERROR,
        frame_type,
        what,
    }
}
