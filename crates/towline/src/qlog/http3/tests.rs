//! Every event, as the `qlog` crate reads it; those that it does not know, member by member.

use ::qlog::events::EventData;
use ::qlog::events::http3::{Http3Frame, Initiator, StreamType as Type};
use http::StatusCode;
use serde_json::{Value, json};
use towline_http3::webtransport::Dialect;
use towline_http3::{ErrorCode, StreamError};

use super::super::json::object;
use super::*;

/// What is written of an event: its name and its data.
fn written(event: &Event) -> (&'static str, Value) {
    let mut out = Vec::new();
    object(&mut out, |o| write(o, event));
    (name(event), serde_json::from_slice(&out).unwrap())
}

/// The same, as the crate understands it.
fn read(event: &Event) -> EventData {
    let (name, data) = written(event);
    serde_json::from_value(json!({ "name": name, "data": data })).unwrap()
}

fn id(id: u64) -> StreamId {
    StreamId::from_u64(id)
}

fn frame(kind: FrameType, content: Content) -> Http3Frame {
    let frame = Frame {
        kind,
        len: 300,
        content,
    };
    let created = Event::FrameCreated {
        id: id(8),
        frame: frame.clone(),
    };
    let EventData::Http3FrameCreated(created) = read(&created) else {
        panic!("{kind}");
    };
    let EventData::Http3FrameParsed(parsed) = read(&Event::FrameParsed { id: id(8), frame }) else {
        panic!("{kind}");
    };
    assert_eq!((created.stream_id, parsed.stream_id), (8, 8));
    assert_eq!(created.frame, parsed.frame);
    created.frame
}

#[test]
fn the_crate_reads_every_frame_with_its_length() {
    let has_len = |raw: Option<::qlog::events::RawInfo>| {
        assert_eq!(raw.unwrap().payload_length, Some(300));
    };
    match frame(FrameType::DATA, Content::Untold) {
        Http3Frame::Data { raw } => has_len(raw),
        other => panic!("{other:?}"),
    }
    match frame(FrameType::HEADERS, Content::Untold) {
        Http3Frame::Headers { headers, raw } => {
            assert!(headers.is_empty());
            has_len(raw);
        }
        other => panic!("{other:?}"),
    }
    let mut settings = Settings::new();
    settings.set(SettingId::MAX_FIELD_SECTION_SIZE, 5);
    settings.set(SettingId::WT_ENABLED, 1);
    match frame(FrameType::SETTINGS, Content::Settings(settings)) {
        Http3Frame::Settings { settings, raw } => {
            let said: Vec<_> = settings
                .iter()
                .map(|one| (one.name.as_deref(), one.name_bytes, one.value))
                .collect();
            let unknown = SettingId::WT_ENABLED.as_u64();
            assert_eq!(said.len(), 2);
            assert!(said.contains(&(Some("settings_max_field_section_size"), None, 5)));
            assert!(said.contains(&(Some("unknown"), Some(unknown), 1)));
            has_len(raw);
        }
        other => panic!("{other:?}"),
    }
    match frame(FrameType::GOAWAY, Content::Id(12)) {
        Http3Frame::Goaway { id: 12, raw } => has_len(raw),
        other => panic!("{other:?}"),
    }
    match frame(FrameType::MAX_PUSH_ID, Content::Id(3)) {
        Http3Frame::MaxPushId { push_id: 3, raw } => has_len(raw),
        other => panic!("{other:?}"),
    }
    let content = Content::Priority {
        id: 4,
        value: "u=1".to_owned(),
    };
    match frame(FrameType::PRIORITY_UPDATE_REQUEST, content) {
        Http3Frame::PriorityUpdate {
            stream_id: Some(4),
            priority_field_value,
            raw,
            ..
        } => {
            assert_eq!(priority_field_value, "u=1");
            has_len(raw);
        }
        other => panic!("{other:?}"),
    }
    match frame(FrameType::from_u64(0x21), Content::Untold) {
        Http3Frame::Reserved {
            frame_type_bytes: 0x21,
            raw,
        } => has_len(raw),
        other => panic!("{other:?}"),
    }
    match frame(FrameType::from_u64(0x7777), Content::Untold) {
        Http3Frame::Unknown {
            frame_type_bytes: 0x7777,
            raw,
        } => has_len(raw),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_crate_reads_settings_streams_and_datagrams() {
    let mut settings = Settings::new();
    settings.set(SettingId::MAX_FIELD_SECTION_SIZE, 5);
    settings.set(SettingId::QPACK_MAX_TABLE_CAPACITY, 6);
    settings.set(SettingId::QPACK_BLOCKED_STREAMS, 7);
    settings.set(SettingId::ENABLE_CONNECT_PROTOCOL, 1);
    settings.set(SettingId::H3_DATAGRAM, 1);
    let by_peer = true;
    let EventData::Http3ParametersSet(set) = read(&Event::ParametersSet { by_peer, settings })
    else {
        panic!();
    };
    assert_eq!(set.initiator, Some(Initiator::Remote));
    let sizes = [
        set.max_field_section_size,
        set.max_table_capacity,
        set.blocked_streams_count,
    ];
    assert_eq!(sizes, [Some(5), Some(6), Some(7)]);
    assert_eq!([set.extended_connect, set.h3_datagram], [Some(1); 2]);

    for (purpose, wanted, bytes) in [
        (Purpose::Request, Type::Request, None),
        (Purpose::Typed(StreamType::CONTROL), Type::Control, None),
        (Purpose::Typed(StreamType::PUSH), Type::Push, None),
        (
            Purpose::Typed(StreamType::QPACK_ENCODER),
            Type::QpackEncode,
            None,
        ),
        (
            Purpose::Typed(StreamType::QPACK_DECODER),
            Type::QpackDecode,
            None,
        ),
        (
            Purpose::Typed(StreamType::WEBTRANSPORT),
            Type::Unknown,
            Some(0x54),
        ),
    ] {
        let event = Event::StreamTypeSet {
            by_peer: false,
            id: id(3),
            purpose,
        };
        let EventData::Http3StreamTypeSet(set) = read(&event) else {
            panic!("{purpose:?}");
        };
        assert_eq!(
            (set.stream_id, set.stream_type, set.stream_type_bytes),
            (3, wanted, bytes)
        );
        assert_eq!(set.initiator, Some(Initiator::Local));
    }

    let EventData::Http3DatagramCreated(sent) = read(&Event::DatagramCreated { id: id(8), len: 9 })
    else {
        panic!();
    };
    let EventData::Http3DatagramParsed(came) = read(&Event::DatagramParsed { id: id(8), len: 9 })
    else {
        panic!();
    };
    assert_eq!([sent.quarter_stream_id, came.quarter_stream_id], [2; 2]);
    assert_eq!(sent.raw.unwrap().payload_length, Some(9));
    assert_eq!(came.raw.unwrap().payload_length, Some(9));
}

#[test]
fn capsules_are_those_of_the_draft_and_sessions_our_own() {
    let (session, dialect) = (id(4), Dialect::Draft14);
    let capsule = Capsule {
        kind: CapsuleType::WT_MAX_STREAMS_UNI,
        value: Some(9),
        direction: Some(Direction::Unidirectional),
    };
    let close = Capsule {
        kind: CapsuleType::WT_CLOSE_SESSION,
        value: Some(7),
        direction: None,
    };
    let datagram = Capsule {
        kind: CapsuleType::DATAGRAM,
        value: None,
        direction: None,
    };
    let end = |end| Event::SessionClosed { session, end };
    let cases = [
        (
            Event::CapsuleCreated { session, capsule },
            "http:capsule_created",
            json!({"stream_id": 4, "capsule": {"capsule_type": "wt_max_streams",
                "capsule_type_value": 0x190b_4d40, "stream_type": "unidirectional", "maximum": 9}}),
        ),
        (
            Event::CapsuleParsed {
                session,
                capsule: close,
            },
            "http:capsule_parsed",
            json!({"stream_id": 4, "capsule": {"capsule_type": "wt_close_session",
                "capsule_type_value": 0x2843, "error_code": 7}}),
        ),
        (
            Event::CapsuleParsed {
                session,
                capsule: datagram,
            },
            "http:capsule_parsed",
            json!({"stream_id": 4, "capsule": {"capsule_type": "datagram"}}),
        ),
        (
            Event::SessionRequested { session, dialect },
            "towline:session_requested",
            json!({"session_id": 4, "dialect": "draft-14"}),
        ),
        (
            Event::SessionAccepted {
                session,
                dialect,
                protocol: Some("chart.1".to_owned()),
            },
            "towline:session_accepted",
            json!({"session_id": 4, "dialect": "draft-14", "protocol": "chart.1"}),
        ),
        (
            Event::SessionRefused {
                session,
                status: Some(StatusCode::FORBIDDEN),
                reason: None,
            },
            "towline:session_refused",
            json!({"session_id": 4, "status": 403}),
        ),
        (
            Event::SessionRefused {
                session,
                status: None,
                reason: Some("too many"),
            },
            "towline:session_refused",
            json!({"session_id": 4, "reason": "too many"}),
        ),
        (
            Event::SessionStreamOpened {
                session,
                id: id(14),
                by_peer: false,
            },
            "towline:session_stream_opened",
            json!({"session_id": 4, "initiator": "local", "stream_id": 14}),
        ),
        (
            end(SessionEnd::Closed {
                code: 7,
                message: "done".to_owned(),
                by_peer: true,
            }),
            "towline:session_closed",
            json!({"session_id": 4, "initiator": "remote", "error_code": 7, "reason": "done"}),
        ),
        (
            end(SessionEnd::Reset { code: 0x10c }),
            "towline:session_closed",
            json!({"session_id": 4, "initiator": "remote", "http3_error_code": 0x10c,
                "reason": "the peer gave the session up with code 0x10c"}),
        ),
        (
            end(SessionEnd::Failed(StreamError {
                code: ErrorCode::H3_MESSAGE_ERROR,
                reason: "a capsule that is cut off",
            })),
            "towline:session_closed",
            json!({"session_id": 4, "initiator": "local", "http3_error_code": 0x10e,
                "reason": "a capsule that is cut off"}),
        ),
    ];
    for (event, name, data) in cases {
        assert_eq!(written(&event), (name, data));
    }
}
