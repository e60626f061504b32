//! What a peer must not do, and with which code it is told.

use towline_wire::Direction;
use towline_wire::http3::{ErrorCode, SettingId};

use super::super::control::MAX_PRIORITY_UPDATE_LEN;
use super::super::incoming::{MAX_EMPTY_FRAMES, MAX_INTERIM_RESPONSES};
use super::peer::{Bare, GET, frame, frame_bytes, section};
use super::*;
use crate::settings::MAX_SETTINGS_LEN;

fn varints(values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        towline_wire::emit_varint(&mut bytes, *value);
    }
    bytes
}

// Request streams.

#[test]
fn data_before_headers_is_frame_unexpected() {
    let mut peer = Bare::client();
    let id = peer.open_request();
    peer.say(id, frame::DATA, b"early");
    peer.assert_closed(ErrorCode::H3_FRAME_UNEXPECTED);
}

#[test]
fn frames_after_trailers_are_frame_unexpected() {
    for kind in [frame::DATA, frame::HEADERS] {
        let mut peer = Bare::client();
        let id = peer.get();
        peer.say(id, frame::HEADERS, &section(&[("x", "y")]));
        assert_eq!(peer.host.end.closed(), None);
        peer.say(id, kind, &section(&[("x", "y")]));
        peer.assert_closed(ErrorCode::H3_FRAME_UNEXPECTED);
    }
}

#[test]
fn frames_of_the_control_stream_and_of_http_2_on_a_request_are_frame_unexpected() {
    for kind in [
        frame::CANCEL_PUSH,
        frame::SETTINGS,
        frame::PUSH_PROMISE,
        frame::GOAWAY,
        frame::MAX_PUSH_ID,
        frame::PRIORITY_UPDATE_REQUEST,
        frame::PRIORITY_UPDATE_PUSH,
        0x02,
        0x06,
        0x08,
        0x09,
    ] {
        let mut peer = Bare::client();
        let id = peer.get();
        peer.say(id, kind, &[0]);
        peer.assert_closed(ErrorCode::H3_FRAME_UNEXPECTED);
    }
}

#[test]
fn a_malformed_request_fails_its_stream_alone() {
    let reordered = [GET[0], GET[1], GET[2], ("x", "y"), GET[3]];
    let cases: [&[(&str, &str)]; 6] = [
        &[GET[0], GET[0], GET[1], GET[2], GET[3]],
        &GET[1..],
        &[(":status", "200"), GET[0], GET[1], GET[2], GET[3]],
        &reordered,
        &[GET[0], GET[1], GET[2], GET[3], ("Upper", "x")],
        &[GET[0], GET[1], GET[2], GET[3], ("connection", "close")],
    ];
    let mut peer = Bare::client();
    for fields in cases {
        let id = peer.open_request();
        peer.say(id, frame::HEADERS, &section(fields));
        peer.assert_failed(id, ErrorCode::H3_MESSAGE_ERROR);
    }
}

#[test]
fn a_body_that_is_not_its_content_length_fails_its_stream_alone() {
    let mut peer = Bare::client();
    let head = section(&[&GET[..], &[("content-length", "3")]].concat());
    for (body, ends) in [(&b"four"[..], false), (b"no", true)] {
        let id = peer.open_request();
        peer.say(id, frame::HEADERS, &head);
        peer.say(id, frame::DATA, body);
        if ends {
            peer.finish(id);
            assert_eq!(peer.host.read_all(id), (b"no".to_vec(), false));
            while peer.host.turn() {}
        }
        peer.assert_failed(id, ErrorCode::H3_MESSAGE_ERROR);
    }
    let id = peer.open_request();
    peer.say(id, frame::HEADERS, &head);
    peer.say(id, frame::DATA, b"yes");
    peer.finish(id);
    assert_eq!(peer.host.read_all(id), (b"yes".to_vec(), true));
}

#[test]
fn a_stream_that_ends_before_its_request_is_request_incomplete() {
    let mut peer = Bare::client();
    let id = peer.open_request();
    peer.finish(id);
    peer.assert_failed(id, ErrorCode::H3_REQUEST_INCOMPLETE);
}

#[test]
fn a_request_given_up_before_its_head_came_is_forgotten() {
    let mut peer = Bare::client();
    for started in [&[][..], &[frame::HEADERS as u8, 9, 0]] {
        let id = peer.open_request();
        peer.bytes(id, started);
        peer.end.reset(id, 7);
        while peer.host.turn() {}
        let incomplete = Some(ErrorCode::H3_REQUEST_INCOMPLETE.as_u64());
        assert_eq!(peer.host.end.reset_code(id), incomplete);
        assert_eq!(peer.host.connection.requests(), 0);
        assert!(peer.host.events.is_empty(), "{:?}", peer.host.events);
    }
    peer.assert_lives();
}

#[test]
fn of_a_connection_that_is_closed_nothing_is_kept() {
    let mut peer = Bare::client();
    peer.get();
    peer.open_uni(&[]);
    let Host {
        connection, end, ..
    } = &mut peer.host;
    connection.close(end, ErrorCode::H3_NO_ERROR);
    assert_eq!(connection.requests(), 0);
    connection.check();
}

#[test]
fn an_end_inside_of_a_frame_is_frame_error_and_its_length_allocates_nothing() {
    for kind in [frame::HEADERS, 0x21] {
        let mut peer = Bare::client();
        let id = peer.open_request();
        peer.bytes(id, &varints(&[kind, 60_000]));
        peer.bytes(id, b"some");
        peer.finish(id);
        peer.assert_closed(ErrorCode::H3_FRAME_ERROR);
    }
    let mut peer = Bare::client();
    let id = peer.get();
    peer.bytes(id, &varints(&[frame::DATA, (1 << 62) - 1]));
    peer.bytes(id, b"some");
    peer.finish(id);
    assert_eq!(peer.host.read_all(id), (b"some".to_vec(), false));
    while peer.host.turn() {}
    peer.assert_closed(ErrorCode::H3_FRAME_ERROR);
}

#[test]
fn unknown_frames_are_skipped_as_they_arrive() {
    let mut peer = Bare::client();
    let id = peer.open_request();
    peer.bytes(id, &varints(&[0x21, 1 << 20]));
    for _ in 0..1024 {
        peer.bytes(id, &[0xaa; 1024]);
        assert!(peer.end.take(id).is_empty());
    }
    peer.say(id, 0x40, &[]);
    peer.say(id, frame::HEADERS, &section(&GET));
    assert!(matches!(peer.host.next(), Event::Request { .. }));
}

#[test]
fn empty_data_frames_are_excessive_load_after_a_thousand() {
    let mut peer = Bare::client();
    let id = peer.get();
    for _ in 0..MAX_EMPTY_FRAMES {
        peer.say(id, frame::DATA, &[]);
    }
    assert_eq!(peer.host.end.closed(), None);
    peer.say(id, frame::DATA, b"x");
    assert_eq!(peer.host.read_all(id).0, b"x");
    // All at once, too: a call ends after so many.
    let flood = frame_bytes(frame::DATA, &[]).repeat(MAX_EMPTY_FRAMES as usize + 1);
    peer.end.push(id, &flood);
    assert!(peer.host.turn());
    assert!(peer.host.connection.again());
    while peer.host.turn() {}
    peer.assert_closed(ErrorCode::H3_EXCESSIVE_LOAD);
}

#[test]
fn a_request_with_too_many_fields_is_answered_431() {
    // Small on the wire, large when it is counted; and large on the wire.
    let many: Vec<_> = GET.into_iter().chain([("x", ""); 2100]).collect();
    let long = "a".repeat(70_000);
    let large: Vec<_> = GET.into_iter().chain([("x", &*long)]).collect();
    for fields in [many, large] {
        let mut peer = Bare::client();
        let id = peer.open_request();
        peer.say(id, frame::HEADERS, &section(&fields));
        assert!(peer.host.events.is_empty());
        assert_eq!(peer.host.end.stop_code(id), Some(0x100));
        assert!(!peer.end.take(id).is_empty());
        assert_eq!(peer.host.connection.requests(), 0);
        peer.assert_lives();
    }
}

#[test]
fn trailers_with_too_many_fields_fail_their_stream_alone() {
    let mut peer = Bare::client();
    let id = peer.get();
    peer.host.next();
    peer.say(id, frame::HEADERS, &section(&[("x", ""); 2100]));
    peer.assert_failed(id, ErrorCode::H3_EXCESSIVE_LOAD);
}

#[test]
fn a_connect_without_a_protocol_is_answered_501() {
    let mut peer = Bare::client();
    let id = peer.open_request();
    let connect = [(":method", "CONNECT"), (":authority", "example.org:443")];
    peer.say(id, frame::HEADERS, &section(&connect));
    assert!(peer.host.events.is_empty());
    assert_eq!(peer.host.end.stop_code(id), Some(0x100));
    assert!(!peer.end.take(id).is_empty());
    peer.assert_lives();
}

#[test]
fn a_field_section_that_cannot_be_decompressed_ends_the_connection() {
    let mut peer = Bare::client();
    let id = peer.open_request();
    // An indexed field line of the static table, far beyond its end.
    peer.say(id, frame::HEADERS, &[0, 0, 0xff, 0xff, 0x01]);
    peer.assert_closed(ErrorCode::QPACK_DECOMPRESSION_FAILED);
}

// Control streams.

#[test]
fn a_control_stream_that_does_not_begin_with_settings_is_missing_settings() {
    for kind in [frame::GOAWAY, frame::DATA, 0x21] {
        let mut peer = Bare::silent_client(Config::default());
        peer.say(peer.control, kind, &[0]);
        peer.assert_closed(ErrorCode::H3_MISSING_SETTINGS);
    }
}

#[test]
fn frames_of_requests_and_of_http_2_on_the_control_stream_are_frame_unexpected() {
    for kind in [
        frame::DATA,
        frame::HEADERS,
        frame::PUSH_PROMISE,
        0x02,
        0x06,
        0x08,
        0x09,
    ] {
        let mut peer = Bare::client();
        peer.say(peer.control, kind, &[0]);
        peer.assert_closed(ErrorCode::H3_FRAME_UNEXPECTED);
    }
}

#[test]
fn a_second_settings_frame_is_frame_unexpected() {
    let mut peer = Bare::client();
    peer.say(peer.control, frame::SETTINGS, &[]);
    peer.assert_closed(ErrorCode::H3_FRAME_UNEXPECTED);
}

#[test]
fn a_setting_that_comes_twice_or_is_of_http_2_is_settings_error() {
    let id = SettingId::H3_DATAGRAM.as_u64();
    let twice = [id, 1, id, 1];
    for payload in [&twice[..], &[0x02, 1], &[0x03, 1], &[0x04, 1], &[0x05, 1]] {
        let mut peer = Bare::silent_client(Config::default());
        peer.say(peer.control, frame::SETTINGS, &varints(payload));
        peer.assert_closed(ErrorCode::H3_SETTINGS_ERROR);
    }
}

#[test]
fn settings_of_more_than_4_kib_are_excessive_load() {
    let mut peer = Bare::silent_client(Config::default());
    peer.bytes(
        peer.control,
        &varints(&[frame::SETTINGS, MAX_SETTINGS_LEN + 1]),
    );
    peer.assert_closed(ErrorCode::H3_EXCESSIVE_LOAD);
}

#[test]
fn unknown_settings_frames_and_streams_are_passed_over() {
    let mut peer = Bare::silent_client(Config::default());
    peer.say(
        peer.control,
        frame::SETTINGS,
        &varints(&[0x21, 7, 0x1_0000, 8, 0x06, 9]),
    );
    let Event::Settings(settings) = peer.host.next() else {
        panic!("settings");
    };
    assert_eq!(settings.get(SettingId::MAX_FIELD_SECTION_SIZE), Some(9));
    peer.say(peer.control, 0x21, &[1; 5000]);
    peer.say(peer.control, 0x40, &[]);
    let unknown = peer.open_uni(&varints(&[0x21]));
    let code = ErrorCode::H3_STREAM_CREATION_ERROR.as_u64();
    assert_eq!(peer.host.end.stop_code(unknown), Some(code));
    let typeless = peer.open_uni(&[0x40]);
    peer.finish(typeless);
    peer.assert_lives();
}

#[test]
fn a_frame_of_the_control_stream_whose_length_does_not_fit_is_frame_error() {
    for (kind, payload) in [
        (frame::GOAWAY, &[][..]),
        (frame::GOAWAY, &[0x40]),
        (frame::GOAWAY, &[0, 0]),
        (frame::GOAWAY, &[0; 9]),
        (frame::MAX_PUSH_ID, &[0xff]),
        (frame::CANCEL_PUSH, &[]),
        (frame::PRIORITY_UPDATE_REQUEST, &[]),
    ] {
        let mut peer = Bare::client();
        peer.say(peer.control, kind, payload);
        peer.assert_closed(ErrorCode::H3_FRAME_ERROR);
    }
    let mut peer = Bare::silent_client(Config::default());
    peer.say(peer.control, frame::SETTINGS, &[0x06]);
    peer.assert_closed(ErrorCode::H3_FRAME_ERROR);
}

#[test]
fn a_control_stream_or_one_of_qpack_that_ends_is_closed_critical_stream() {
    for kind in [0, 2, 3] {
        for reset in [false, true] {
            let mut peer = Bare::client();
            let id = match kind {
                0 => peer.control,
                _ => peer.open_uni(&[kind]),
            };
            match reset {
                true => peer.end.reset(id, 0),
                false => peer.end.finish(id),
            }
            while peer.host.turn() {}
            peer.assert_closed(ErrorCode::H3_CLOSED_CRITICAL_STREAM);
        }
    }
}

#[test]
fn a_peer_that_stops_one_of_our_three_streams_is_told_closed_critical_stream() {
    for index in 0..3 {
        let mut peer = Bare::client();
        let ours = StreamId::new(crate::Side::Server, Direction::Unidirectional, index);
        peer.end.stop(ours, 0);
        while peer.host.turn() {}
        peer.assert_closed(ErrorCode::H3_CLOSED_CRITICAL_STREAM);
    }
}

#[test]
fn a_second_stream_of_one_kind_is_stream_creation_error() {
    for kind in [0, 2, 3] {
        let mut peer = Bare::client();
        peer.open_uni(&[kind]);
        peer.open_uni(&[kind]);
        peer.assert_closed(ErrorCode::H3_STREAM_CREATION_ERROR);
    }
}

#[test]
fn a_table_capacity_over_the_limit_is_encoder_stream_error() {
    let mut peer = Bare::client();
    // Set Dynamic Table Capacity to 2^20 (RFC 9204 §4.3.1).
    peer.open_uni(&[2, 0x3f, 0xe1, 0xff, 0x3f]);
    peer.assert_closed(ErrorCode::QPACK_ENCODER_STREAM_ERROR);
}

#[test]
fn an_insert_count_increment_of_zero_is_decoder_stream_error() {
    let mut peer = Bare::client();
    peer.open_uni(&[3, 0x00]);
    peer.assert_closed(ErrorCode::QPACK_DECODER_STREAM_ERROR);
}

#[test]
fn a_request_waits_for_the_entry_that_it_names() {
    let mut peer = Bare::client();
    let id = peer.open_request();
    let mut fields = section(&GET);
    // Required Insert Count 1, Base 1, and the entry before Base (RFC 9204 §4.5.1, §4.5.2).
    fields[..2].copy_from_slice(&[2, 0]);
    fields.push(0x80);
    peer.say(id, frame::HEADERS, &fields);
    peer.finish(id);
    assert!(peer.host.events.is_empty());
    // Set Dynamic Table Capacity to 64, Insert with Literal Name.
    peer.open_uni(b"\x02\x3f\x21\x41x\x01y");
    let Event::Request {
        head, end: true, ..
    } = peer.host.next()
    else {
        panic!("a request");
    };
    assert_eq!(head.headers["x"], "y");
}

#[test]
fn more_waiting_streams_than_permitted_are_decompression_failed() {
    let mut peer = Bare::client();
    for _ in 0..Config::default().qpack_blocked_streams {
        let id = peer.open_request();
        peer.say(id, frame::HEADERS, &[2, 0, 0x80]);
        assert_eq!(peer.host.end.closed(), None);
    }
    let id = peer.open_request();
    peer.say(id, frame::HEADERS, &[2, 0, 0x80]);
    peer.assert_closed(ErrorCode::QPACK_DECOMPRESSION_FAILED);
}

#[test]
fn a_request_that_waited_and_is_not_wanted_leaves_its_place_to_another() {
    let mut peer = Bare::client();
    for _ in 0..2 * Config::default().qpack_blocked_streams {
        let id = peer.open_request();
        peer.say(id, frame::HEADERS, &[2, 0, 0x80]);
        let host = &mut peer.host;
        let code = ErrorCode::H3_NO_ERROR;
        host.connection.stop_reading(&mut host.end, id, code);
        assert_eq!(peer.host.end.closed(), None);
    }
    peer.assert_lives();
}

#[test]
fn a_peer_that_takes_no_cancellations_of_its_requests_is_excessive_load() {
    let limits = Limits {
        window: 64,
        streams: [100_000, 100],
        ..Limits::default()
    };
    let mut peer = Bare::limited_client(limits, Config::default());
    for _ in 0..20_000 {
        let id = peer.open_request();
        peer.end.reset(id, 0);
        while peer.host.turn() {}
        peer.host
            .events
            .retain(|event| matches!(event, Event::Closed(_)));
        if peer.host.end.closed().is_some() {
            return peer.assert_closed(ErrorCode::H3_EXCESSIVE_LOAD);
        }
    }
    panic!("cancellations are kept without an end");
}

// Pushes, GOAWAY and priorities.

#[test]
fn a_push_id_that_goes_down_and_a_push_that_never_was_are_id_error() {
    let mut peer = Bare::client();
    peer.say(peer.control, frame::MAX_PUSH_ID, &[5]);
    peer.say(peer.control, frame::MAX_PUSH_ID, &[5]);
    assert_eq!(peer.host.end.closed(), None);
    peer.say(peer.control, frame::MAX_PUSH_ID, &[4]);
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
    for mut peer in [Bare::client(), Bare::server()] {
        peer.say(peer.control, frame::CANCEL_PUSH, &[0]);
        peer.assert_closed(ErrorCode::H3_ID_ERROR);
    }
}

#[test]
fn a_client_that_pushes_is_told_stream_creation_error_and_a_server_id_error() {
    let mut peer = Bare::client();
    peer.open_uni(&[1, 0]);
    peer.assert_closed(ErrorCode::H3_STREAM_CREATION_ERROR);
    let mut peer = Bare::server();
    peer.open_uni(&[1, 0]);
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
    let mut peer = Bare::server();
    let id = peer.host.request(&get("/"), true).unwrap();
    peer.say(id, frame::PUSH_PROMISE, &[0, 0, 0]);
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
}

#[test]
fn frames_that_only_clients_send_are_frame_unexpected_from_a_server() {
    for kind in [
        frame::MAX_PUSH_ID,
        frame::PRIORITY_UPDATE_REQUEST,
        frame::PRIORITY_UPDATE_PUSH,
    ] {
        let mut peer = Bare::server();
        peer.say(peer.control, kind, &[0]);
        peer.assert_closed(ErrorCode::H3_FRAME_UNEXPECTED);
    }
}

#[test]
fn a_server_that_opens_a_request_stream_is_told_stream_creation_error() {
    let mut peer = Bare::server();
    peer.open_request();
    while peer.host.turn() {}
    peer.assert_closed(ErrorCode::H3_STREAM_CREATION_ERROR);
}

#[test]
fn a_goaway_that_grows_or_names_no_request_is_id_error() {
    let mut peer = Bare::server();
    peer.say(peer.control, frame::GOAWAY, &[8]);
    peer.say(peer.control, frame::GOAWAY, &[8]);
    assert_eq!(peer.host.end.closed(), None);
    peer.say(peer.control, frame::GOAWAY, &[12]);
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
    let mut peer = Bare::server();
    peer.say(peer.control, frame::GOAWAY, &[9]);
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
    let mut peer = Bare::client();
    peer.say(peer.control, frame::GOAWAY, &[9]);
    peer.say(peer.control, frame::GOAWAY, &[10]);
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
}

#[test]
fn a_priority_comes_before_its_request_or_for_none() {
    let mut peer = Bare::client();
    peer.say(peer.control, frame::PRIORITY_UPDATE_REQUEST, b"\x00u=1");
    let long = vec![b' '; MAX_PRIORITY_UPDATE_LEN as usize + 1];
    peer.say(peer.control, frame::PRIORITY_UPDATE_REQUEST, &long);
    let id = peer.open_request();
    let head = [&GET[..], &[("priority", "u=6")]].concat();
    peer.say(id, frame::HEADERS, &section(&head));
    assert_eq!(peer.host.end.priority(id), 2);
    peer.say(peer.control, frame::PRIORITY_UPDATE_REQUEST, b"\x02u=1");
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
    let mut peer = Bare::client();
    peer.say(peer.control, frame::PRIORITY_UPDATE_PUSH, b"\x00u=1");
    peer.assert_closed(ErrorCode::H3_ID_ERROR);
}

// Responses.

#[test]
fn a_malformed_response_fails_its_stream_alone() {
    let mut peer = Bare::server();
    let cases: [&[(&str, &str)]; 3] = [
        &[],
        &[(":status", "101")],
        &[("x", "y"), (":status", "200")],
    ];
    for fields in cases {
        let id = peer.host.request(&get("/"), true).unwrap();
        peer.say(id, frame::HEADERS, &section(fields));
        assert_eq!(peer.host.end.closed(), None);
        let code = ErrorCode::H3_MESSAGE_ERROR;
        assert_eq!(peer.host.end.stop_code(id), Some(code.as_u64()));
        assert!(
            matches!(peer.host.next(), Event::Failed { id: of, error } if of == id && error.code == code)
        );
    }
    let id = peer.host.request(&get("/"), true).unwrap();
    peer.finish(id);
    assert!(matches!(peer.host.next(), Event::Failed { id: of, .. } if of == id));
    assert_eq!(peer.host.connection.requests(), 0);
}

#[test]
fn interim_answers_without_end_are_excessive_load() {
    let mut peer = Bare::server();
    let id = peer.host.request(&get("/"), true).unwrap();
    for _ in 0..=MAX_INTERIM_RESPONSES {
        assert_eq!(peer.host.end.closed(), None);
        peer.say(id, frame::HEADERS, &section(&[(":status", "103")]));
    }
    peer.assert_closed(ErrorCode::H3_EXCESSIVE_LOAD);
}

#[test]
fn an_answer_to_head_has_a_length_and_no_body() {
    let mut peer = Bare::server();
    let mut head = get("/");
    head.method = Method::HEAD;
    let id = peer.host.request(&head, true).unwrap();
    peer.say(
        id,
        frame::HEADERS,
        &section(&[(":status", "200"), ("content-length", "5")]),
    );
    peer.finish(id);
    let Event::Response { interim: false, .. } = peer.host.next() else {
        panic!("a response");
    };
    assert!(matches!(peer.host.next(), Event::Finished(of) if of == id));
}

// Datagrams.

#[test]
fn a_datagram_without_a_stream_id_that_can_be_is_datagram_error() {
    let config = Config {
        datagrams: true,
        ..Config::default()
    };
    for datagram in [&b""[..], b"\x40", b"\xd0\0\0\0\0\0\0\0"] {
        let mut peer = Bare::silent_client(config.clone());
        peer.end.send_datagram(Bytes::copy_from_slice(datagram));
        while peer.host.turn() {}
        peer.assert_closed(ErrorCode::H3_DATAGRAM_ERROR);
    }
    let mut peer = Bare::silent_client(config);
    peer.end
        .send_datagram(Bytes::from_static(b"\x00of no request"));
    while peer.host.turn() {}
    assert!(peer.host.events.is_empty());
    assert_eq!(peer.host.end.closed(), None);
}
