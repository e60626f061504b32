//! Frames as qlog writes them.
//!
//! Payload is left out, and so are reset tokens and address tokens: with those a reader of the log
//! could end the connection, or pass for the client.

use std::time::Duration;

use towline_wire::{AckFrame, Direction, Frame};

use super::json::{Array, Object};

/// Cap: bytes that one record may come to before frames and ranges are left out; a packet of 65,507
/// one-byte frames would make a megabyte.
pub(super) const MAX_RECORD_BYTES: usize = 32 << 10;

/// Fills in the frames of a packet, until the buffer holds `full` bytes.
pub(super) fn write<'a>(
    array: &mut Array<'_>,
    frames: impl Iterator<Item = Frame<'a>>,
    ack_delay_exponent: u8,
    full: usize,
) {
    for frame in frames {
        if array.buffered() >= full {
            return;
        }
        array.object(|o| write_frame(o, &frame, ack_delay_exponent, full));
    }
}

fn write_frame(o: &mut Object<'_>, frame: &Frame<'_>, ack_delay_exponent: u8, full: usize) {
    o.text("frame_type", name(frame));
    match frame {
        Frame::Padding { len } => o.object("raw", |raw| raw.number("payload_length", *len as u64)),
        Frame::Ping | Frame::HandshakeDone => {}
        Frame::Ack(ack) => write_ack(o, ack, ack_delay_exponent, full),
        Frame::ResetStream {
            id,
            error_code,
            final_size,
        } => {
            o.number("stream_id", id.as_u64());
            write_application_error(o, *error_code);
            o.number("final_size", *final_size);
        }
        Frame::ResetStreamAt {
            id,
            error_code,
            final_size,
            reliable_size,
        } => {
            o.number("frame_type_bytes", frame.ty().as_u64());
            o.number("stream_id", id.as_u64());
            write_application_error(o, *error_code);
            o.number("final_size", *final_size);
            o.number("reliable_size", *reliable_size);
        }
        Frame::StopSending { id, error_code } => {
            o.number("stream_id", id.as_u64());
            write_application_error(o, *error_code);
        }
        Frame::Crypto { offset, data } => {
            o.number("offset", *offset);
            write_payload(o, data);
        }
        Frame::NewToken { token } => o.object("token", |o| {
            o.object("raw", |raw| raw.number("length", token.len() as u64));
        }),
        Frame::Stream(stream) => {
            o.number("stream_id", stream.id.as_u64());
            o.number("offset", stream.offset);
            if stream.fin {
                o.flag("fin", true);
            }
            write_payload(o, stream.data);
        }
        Frame::MaxData(max) => o.number("maximum", *max),
        Frame::MaxStreamData { id, max } => {
            o.number("stream_id", id.as_u64());
            o.number("maximum", *max);
        }
        Frame::MaxStreams { direction, max } => {
            o.text("stream_type", stream_type(*direction));
            o.number("maximum", *max);
        }
        Frame::DataBlocked(limit) => o.number("limit", *limit),
        Frame::StreamDataBlocked { id, limit } => {
            o.number("stream_id", id.as_u64());
            o.number("limit", *limit);
        }
        Frame::StreamsBlocked { direction, limit } => {
            o.text("stream_type", stream_type(*direction));
            o.number("limit", *limit);
        }
        Frame::NewConnectionId(new) => {
            o.number("sequence_number", new.sequence);
            o.number("retire_prior_to", new.retire_prior_to);
            o.number("connection_id_length", new.cid.len() as u64);
            o.hex("connection_id", new.cid.as_slice());
        }
        Frame::RetireConnectionId { sequence } => o.number("sequence_number", *sequence),
        Frame::PathChallenge(data) | Frame::PathResponse(data) => o.hex("data", data),
        Frame::ConnectionClose(close) => {
            let space = match close.is_application() {
                true => "application",
                false => "transport",
            };
            o.text("error_space", space);
            o.text("error", "unknown");
            o.number("error_code", close.error_code);
            o.text("reason", &close.reason_text());
            if let Some(frame_type) = close.frame_type {
                o.number("trigger_frame_type", frame_type);
            }
        }
        Frame::Datagram { data } => write_payload(o, data),
        Frame::AckFrequency(_) | Frame::ImmediateAck => {
            o.number("frame_type_bytes", frame.ty().as_u64());
        }
    }
}

fn write_ack(o: &mut Object<'_>, ack: &AckFrame<'_>, ack_delay_exponent: u8, full: usize) {
    let micros = ack.delay.saturating_mul(1 << ack_delay_exponent.min(20));
    o.millis("ack_delay", Duration::from_micros(micros));
    o.array("acked_ranges", |ranges| {
        for range in ack.ranges() {
            if ranges.buffered() >= full {
                return;
            }
            ranges.array(|pair| {
                pair.number(*range.start());
                if range.start() < range.end() {
                    pair.number(*range.end());
                }
            });
        }
    });
    if let Some(ecn) = ack.ecn {
        o.number("ect1", ecn.ect1);
        o.number("ect0", ecn.ect0);
        o.number("ce", ecn.ce);
    }
}

fn write_application_error(o: &mut Object<'_>, code: u64) {
    // What a code means only the application knows.
    o.text("error", "unknown");
    o.number("error_code", code);
}

fn write_payload(o: &mut Object<'_>, data: &[u8]) {
    o.object("raw", |raw| {
        // Of these frames the draft means the value of their length field.
        raw.number("length", data.len() as u64);
        raw.number("payload_length", data.len() as u64);
    });
}

fn stream_type(direction: Direction) -> &'static str {
    match direction {
        Direction::Bidirectional => "bidirectional",
        Direction::Unidirectional => "unidirectional",
    }
}

fn name(frame: &Frame<'_>) -> &'static str {
    match frame {
        Frame::Padding { .. } => "padding",
        Frame::Ping => "ping",
        Frame::Ack(_) => "ack",
        Frame::ResetStream { .. } => "reset_stream",
        Frame::StopSending { .. } => "stop_sending",
        Frame::Crypto { .. } => "crypto",
        Frame::NewToken { .. } => "new_token",
        Frame::Stream(_) => "stream",
        Frame::MaxData(_) => "max_data",
        Frame::MaxStreamData { .. } => "max_stream_data",
        Frame::MaxStreams { .. } => "max_streams",
        Frame::DataBlocked(_) => "data_blocked",
        Frame::StreamDataBlocked { .. } => "stream_data_blocked",
        Frame::StreamsBlocked { .. } => "streams_blocked",
        Frame::NewConnectionId(_) => "new_connection_id",
        Frame::RetireConnectionId { .. } => "retire_connection_id",
        Frame::PathChallenge(_) => "path_challenge",
        Frame::PathResponse(_) => "path_response",
        Frame::ConnectionClose(_) => "connection_close",
        Frame::HandshakeDone => "handshake_done",
        Frame::Datagram { .. } => "datagram",
        // Of extensions (draft-ietf-quic-ack-frequency-14, draft-ietf-quic-reliable-stream-reset-07)
        // that qlog has no names for.
        Frame::AckFrequency(_) | Frame::ImmediateAck | Frame::ResetStreamAt { .. } => "unknown",
    }
}
