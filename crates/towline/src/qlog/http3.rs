//! Events of HTTP/3 and WebTransport as qlog writes them.
//!
//! Names and members are those of draft-ietf-quic-qlog-h3-events-12: `http3` for frames, streams and datagrams,
//! `http` for capsules. For sessions no draft has events; those are ours. What the fields of a message say is not
//! written, nor is payload.

use towline_http3::observe::{Capsule, Content, Event, Frame, Purpose};
use towline_http3::webtransport::SessionEnd;
use towline_http3::{SettingId, Settings};
use towline_wire::http3::{CapsuleType, FrameType, StreamType};
use towline_wire::{Direction, StreamId};

use super::json::Object;

/// The event's name.
pub(super) fn name(event: &Event) -> &'static str {
    match event {
        Event::ParametersSet { .. } => "http3:parameters_set",
        Event::StreamTypeSet { .. } => "http3:stream_type_set",
        Event::FrameCreated { .. } => "http3:frame_created",
        Event::FrameParsed { .. } => "http3:frame_parsed",
        Event::DatagramCreated { .. } => "http3:datagram_created",
        Event::DatagramParsed { .. } => "http3:datagram_parsed",
        Event::CapsuleCreated { .. } => "http:capsule_created",
        Event::CapsuleParsed { .. } => "http:capsule_parsed",
        Event::SessionRequested { .. } => "towline:session_requested",
        Event::SessionAccepted { .. } => "towline:session_accepted",
        Event::SessionRefused { .. } => "towline:session_refused",
        Event::SessionClosed { .. } => "towline:session_closed",
        Event::SessionStreamOpened { .. } => "towline:session_stream_opened",
        _ => "towline:unknown",
    }
}

/// Fills in what it says.
pub(super) fn write(o: &mut Object<'_>, event: &Event) {
    match event {
        Event::ParametersSet { by_peer, settings } => {
            o.initiator(*by_peer);
            write_parameters(o, settings);
        }
        Event::StreamTypeSet {
            by_peer,
            id,
            purpose,
        } => {
            o.initiator(*by_peer);
            o.number("stream_id", id.as_u64());
            write_purpose(o, *purpose);
        }
        Event::FrameCreated { id, frame } | Event::FrameParsed { id, frame } => {
            o.number("stream_id", id.as_u64());
            o.object("frame", |o| write_frame(o, frame));
        }
        Event::DatagramCreated { id, len } | Event::DatagramParsed { id, len } => {
            o.number("quarter_stream_id", id.as_u64() / 4);
            o.object("raw", |raw| raw.number("payload_length", *len));
        }
        Event::CapsuleCreated { session, capsule } | Event::CapsuleParsed { session, capsule } => {
            o.number("stream_id", session.as_u64());
            o.object("capsule", |o| write_capsule(o, capsule));
        }
        Event::SessionStreamOpened {
            session,
            id,
            by_peer,
        } => {
            write_session(o, *session);
            o.initiator(*by_peer);
            o.number("stream_id", id.as_u64());
        }
        Event::SessionRequested { session, dialect } => {
            write_session(o, *session);
            o.text("dialect", dialect.name());
        }
        Event::SessionAccepted {
            session,
            dialect,
            protocol,
        } => {
            write_session(o, *session);
            o.text("dialect", dialect.name());
            if let Some(protocol) = protocol {
                o.text("protocol", protocol);
            }
        }
        Event::SessionRefused {
            session,
            status,
            reason,
        } => {
            write_session(o, *session);
            if let Some(status) = status {
                o.number("status", status.as_u16().into());
            }
            if let Some(reason) = reason {
                o.text("reason", reason);
            }
        }
        Event::SessionClosed { session, end } => {
            write_session(o, *session);
            write_end(o, end);
        }
        _ => {}
    }
}

fn write_session(o: &mut Object<'_>, session: StreamId) {
    o.number("session_id", session.as_u64());
}

fn write_parameters(o: &mut Object<'_>, settings: &Settings) {
    for (id, member) in [
        (SettingId::MAX_FIELD_SECTION_SIZE, "max_field_section_size"),
        (SettingId::QPACK_MAX_TABLE_CAPACITY, "max_table_capacity"),
        (SettingId::QPACK_BLOCKED_STREAMS, "blocked_streams_count"),
        (SettingId::ENABLE_CONNECT_PROTOCOL, "extended_connect"),
        (SettingId::H3_DATAGRAM, "h3_datagram"),
    ] {
        if let Some(value) = settings.get(id) {
            o.number(member, value);
        }
    }
}

fn write_purpose(o: &mut Object<'_>, purpose: Purpose) {
    let kind = match purpose {
        Purpose::Request => return o.text("stream_type", "request"),
        Purpose::Typed(kind) => kind,
    };
    let name = match kind {
        StreamType::CONTROL => "control",
        StreamType::PUSH => "push",
        StreamType::QPACK_ENCODER => "qpack_encode",
        StreamType::QPACK_DECODER => "qpack_decode",
        _ => {
            o.number("stream_type_bytes", kind.as_u64());
            "unknown"
        }
    };
    o.text("stream_type", name);
}

fn write_frame(o: &mut Object<'_>, frame: &Frame) {
    match (frame.kind, &frame.content) {
        (FrameType::DATA, _) => o.text("frame_type", "data"),
        (FrameType::HEADERS, _) => {
            o.text("frame_type", "headers");
            // The draft wants them, and they are nobody's business.
            o.array("headers", |_| {});
        }
        (_, Content::Settings(settings)) => {
            o.text("frame_type", "settings");
            o.array("settings", |a| {
                for (id, value) in settings.iter() {
                    a.object(|o| write_setting(o, id, value));
                }
            });
        }
        (FrameType::GOAWAY, Content::Id(id)) => {
            o.text("frame_type", "goaway");
            o.number("id", *id);
        }
        (FrameType::MAX_PUSH_ID, Content::Id(id)) => {
            o.text("frame_type", "max_push_id");
            o.number("push_id", *id);
        }
        (_, Content::Priority { id, value }) => {
            o.text("frame_type", "priority_update");
            o.number("stream_id", *id);
            o.text("priority_field_value", value);
        }
        (kind, _) => {
            let name = if kind.is_reserved() {
                "reserved"
            } else {
                "unknown"
            };
            o.text("frame_type", name);
            o.number("frame_type_bytes", kind.as_u64());
        }
    }
    o.object("raw", |raw| raw.number("payload_length", frame.len));
}

fn write_setting(o: &mut Object<'_>, id: SettingId, value: u64) {
    let name = match id {
        SettingId::QPACK_MAX_TABLE_CAPACITY => "settings_qpack_max_table_capacity",
        SettingId::MAX_FIELD_SECTION_SIZE => "settings_max_field_section_size",
        SettingId::QPACK_BLOCKED_STREAMS => "settings_qpack_blocked_streams",
        SettingId::ENABLE_CONNECT_PROTOCOL => "settings_enable_connect_protocol",
        SettingId::H3_DATAGRAM => "settings_h3_datagram",
        _ => {
            o.number("name_bytes", id.as_u64());
            "unknown"
        }
    };
    o.text("name", name);
    o.number("value", value);
}

fn write_capsule(o: &mut Object<'_>, capsule: &Capsule) {
    let name = capsule.kind.to_string().to_ascii_lowercase();
    o.text("capsule_type", &name);
    if capsule.kind != CapsuleType::DATAGRAM {
        o.number("capsule_type_value", capsule.kind.as_u64());
    }
    if let Some(direction) = capsule.direction {
        let kind = match direction {
            Direction::Bidirectional => "bidirectional",
            Direction::Unidirectional => "unidirectional",
        };
        o.text("stream_type", kind);
    }
    if let Some(value) = capsule.value {
        let member = match capsule.kind {
            CapsuleType::WT_CLOSE_SESSION => "error_code",
            _ => "maximum",
        };
        o.number(member, value);
    }
}

fn write_end(o: &mut Object<'_>, end: &SessionEnd) {
    let by_peer = match end {
        SessionEnd::Closed { by_peer, .. } => *by_peer,
        SessionEnd::Reset { .. } | SessionEnd::Rejected => true,
        _ => false,
    };
    o.initiator(by_peer);
    match end {
        SessionEnd::Closed { code, message, .. } => {
            o.number("error_code", (*code).into());
            o.text("reason", message);
        }
        SessionEnd::Reset { code } => {
            o.number("http3_error_code", *code);
            o.text("reason", &end.to_string());
        }
        SessionEnd::Failed(error) => {
            o.number("http3_error_code", error.code.as_u64());
            o.text("reason", error.reason);
        }
        _ => o.text("reason", &end.to_string()),
    }
}

#[cfg(test)]
mod tests;
