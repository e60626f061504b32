//! A peer of bare bytes that breaks WebTransport's rules: what it is told, and that others live on.

use towline_wire::emit_varint;
use towline_wire::http3::{Capsule, CapsuleType, SettingId, Settings};

use super::*;
use crate::connection::tests::peer::{Bare, frame, frame_bytes, section};
use crate::webtransport::{MAX_EARLY_DATAGRAMS, MAX_EARLY_STREAMS};

pub(super) const CONNECT: [(&str, &str); 6] = [
    (":method", "CONNECT"),
    (":protocol", "webtransport-h3"),
    (":scheme", "https"),
    (":authority", "example.org"),
    (":path", "/"),
    ("origin", "https://elsewhere.org"),
];

/// A client that has sent these settings.
pub(super) fn client(config: Config, settings: &[(SettingId, u64)]) -> Bare {
    let limits = Limits {
        streams: [300, 300],
        ..Limits::default()
    };
    let mut bare = Bare::limited_client(limits, config);
    settle(&mut bare, settings);
    bare
}

fn settle(bare: &mut Bare, values: &[(SettingId, u64)]) {
    let mut settings = Settings::new();
    for (id, value) in values {
        settings.set(*id, *value);
    }
    let mut payload = Vec::new();
    settings.emit(&mut payload);
    bare.say(bare.control, frame::SETTINGS, &payload);
    assert!(matches!(bare.host.next(), Event::Settings(_)));
}

pub(super) const DRAFT_16: [(SettingId, u64); 3] = [
    (SettingId::H3_DATAGRAM, 1),
    (SettingId::WT_ENABLED, 1),
    (SettingId::WT_INITIAL_MAX_DATA, 1000),
];

/// Settings that a client of draft-16 needs.
pub(super) fn draft_16() -> [(SettingId, u64); 3] {
    DRAFT_16
}

/// Says all that a client or a server of draft-16 needs.
pub(super) fn settle_all(bare: &mut Bare) {
    let connect = [(SettingId::ENABLE_CONNECT_PROTOCOL, 1)];
    settle(bare, &[&DRAFT_16[..], &connect].concat());
}

/// A client of draft-16, and a session of it.
fn with_session() -> (Bare, SessionId) {
    let mut bare = client(config(), &DRAFT_16);
    let session = session(&mut bare);
    (bare, session)
}

pub(super) fn ask(bare: &mut Bare) -> SessionId {
    let id = bare.open_request();
    bare.say(id, frame::HEADERS, &section(&CONNECT));
    id
}

pub(super) fn session(bare: &mut Bare) -> SessionId {
    let id = ask(bare);
    assert!(
        matches!(bare.host.next_session(), SessionEvent::Requested { session, .. } if session == id)
    );
    bare.host.accept(id, None);
    while bare.host.turn() {}
    id
}

/// What a stream of a session begins with.
pub(super) fn prefix(direction: Direction, session: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit_varint(&mut bytes, if direction == UNI { 0x54 } else { 0x41 });
    emit_varint(&mut bytes, session);
    bytes
}

pub(super) fn open(bare: &mut Bare, direction: Direction, session: SessionId) -> StreamId {
    let id = bare.end.open(direction).unwrap();
    bare.bytes(id, &prefix(direction, session.as_u64()));
    id
}

pub(super) fn capsule(bare: &mut Bare, session: SessionId, capsule: Capsule<'_>) {
    let mut bytes = Vec::new();
    capsule.emit(&mut bytes);
    bare.say(session, frame::DATA, &bytes);
}

/// One session failed with this code, and another can be had and used.
#[track_caller]
fn assert_failed(bare: &mut Bare, session: SessionId, code: ErrorCode) {
    let ended = bare.host.events.drain(..).find_map(|event| match event {
        Event::Session(SessionEvent::Closed {
            session: of,
            reason,
        }) if of == session => Some(reason),
        _ => None,
    });
    assert!(
        matches!(&ended, Some(SessionEnd::Failed(error)) if error.code == code),
        "{ended:?}"
    );
    assert_eq!(bare.host.end.reset_code(session), Some(code.as_u64()));
    assert_lives(bare);
}

#[track_caller]
fn assert_lives(bare: &mut Bare) {
    assert_eq!(bare.host.end.closed(), None);
    let other = self::session(bare);
    let stream = open(bare, UNI, other);
    assert_eq!(bare.host.opened(), stream);
}

/// Row 102 of the list of bad input.
#[test]
fn of_streams_before_their_session_64_are_held_and_the_rest_rejected() {
    let mut bare = client(config(), &DRAFT_16);
    let session = bare.open_request();
    let streams: Vec<StreamId> = (0..MAX_EARLY_STREAMS + 10)
        .map(|_| open(&mut bare, UNI, session))
        .collect();
    let rejected = Some(ErrorCode::WT_BUFFERED_STREAM_REJECTED.as_u64());
    for (index, id) in streams.iter().enumerate() {
        let code = bare.host.end.stop_code(*id);
        let expected = rejected.filter(|_| index >= MAX_EARLY_STREAMS);
        assert_eq!(code, expected);
    }
    bare.say(session, frame::HEADERS, &section(&CONNECT));
    bare.host.next_session();
    bare.host.accept(session, None);
    while bare.host.turn() {}
    for id in &streams[..MAX_EARLY_STREAMS] {
        assert_eq!(bare.host.opened(), *id);
    }
    assert!(bare.host.events.is_empty());
    // The place is free again.
    let other = bare.open_request();
    let early = open(&mut bare, BIDI, other);
    assert_eq!(bare.host.end.stop_code(early), None);
    assert_lives(&mut bare);
}

/// Row 102, datagrams.
#[test]
fn of_datagrams_before_their_session_64_are_held_and_the_rest_dropped() {
    let mut bare = client(config(), &DRAFT_16);
    let session = bare.open_request();
    for number in 0..MAX_EARLY_DATAGRAMS as u8 + 10 {
        let sent = bare.end.send_datagram(Bytes::from(vec![0, number]));
        assert!(sent);
        while bare.host.turn() {}
    }
    assert!(bare.host.events.is_empty());
    bare.say(session, frame::HEADERS, &section(&CONNECT));
    bare.host.next_session();
    bare.host.accept(session, None);
    while bare.host.turn() {}
    for number in 0..MAX_EARLY_DATAGRAMS as u8 {
        let event = bare.host.next();
        assert!(matches!(event, Event::Datagram { payload, .. } if payload[..] == [number]));
    }
    assert!(bare.host.events.is_empty());
}

/// As many bytes as are held, not only as many datagrams.
#[test]
fn of_large_datagrams_before_their_session_64_kib_are_held() {
    let limits = Limits {
        datagram: Some(20_000),
        ..Limits::default()
    };
    let mut bare = Bare::limited_client(limits, config());
    settle(&mut bare, &DRAFT_16);
    let session = bare.open_request();
    for _ in 0..10 {
        assert!(bare.end.send_datagram(Bytes::from(vec![0; 10_001])));
        while bare.host.turn() {}
    }
    bare.say(session, frame::HEADERS, &section(&CONNECT));
    bare.host.next_session();
    bare.host.accept(session, None);
    while bare.host.turn() {}
    assert_eq!(bare.host.events.len(), 6);
}

#[test]
fn streams_held_for_a_request_that_is_no_session_are_gone() {
    let mut bare = client(config(), &DRAFT_16);
    let request = bare.open_request();
    let stream = open(&mut bare, UNI, request);
    bare.say(request, frame::HEADERS, &section(&peer::GET));
    let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
    assert_eq!(bare.host.end.stop_code(stream), gone);
    assert!(matches!(bare.host.next(), Event::Request { .. }));
    let late = open(&mut bare, UNI, request);
    assert_eq!(bare.host.end.stop_code(late), gone);
}

#[test]
fn streams_held_for_a_request_that_is_refused_are_gone() {
    let long = "a".repeat(70_000);
    let large = [
        CONNECT[0],
        CONNECT[1],
        CONNECT[2],
        CONNECT[3],
        CONNECT[4],
        ("x", &*long),
    ];
    let no_proxy = [(":method", "CONNECT"), (":authority", "example.org:443")];
    let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
    for fields in [&large[..], &no_proxy] {
        let mut bare = client(config(), &DRAFT_16);
        let request = bare.open_request();
        let stream = open(&mut bare, UNI, request);
        bare.say(request, frame::HEADERS, &section(fields));
        assert_eq!(bare.host.end.stop_code(stream), gone);
        let late = open(&mut bare, UNI, request);
        assert_eq!(bare.host.end.stop_code(late), gone);
        bare.host.connection.check();
        assert_lives(&mut bare);
    }
}

#[test]
fn streams_held_for_a_session_that_a_goaway_leaves_out_are_gone() {
    let mut bare = client(config(), &DRAFT_16);
    let stream = open(&mut bare, UNI, StreamId::from_u64(4));
    assert_eq!(bare.host.end.stop_code(stream), None);
    let Host {
        connection, end, ..
    } = &mut bare.host;
    connection.go_away(end);
    let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
    assert_eq!(bare.host.end.stop_code(stream), gone);
    bare.host.connection.check();
}

/// Row 103.
#[test]
fn a_close_of_more_than_1024_bytes_or_without_utf_8_is_message_error() {
    for message in [&[b'a'; 1025][..], &[0xff]] {
        let (mut bare, session) = with_session();
        let mut bytes = Vec::new();
        emit_varint(&mut bytes, CapsuleType::WT_CLOSE_SESSION.as_u64());
        emit_varint(&mut bytes, 4 + message.len() as u64);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(message);
        bare.say(session, frame::DATA, &bytes);
        assert_failed(&mut bare, session, ErrorCode::H3_MESSAGE_ERROR);
    }
}

/// Row 103: the session is closed as it says, and its stream is reset.
#[test]
fn data_after_a_close_is_message_error() {
    for together in [true, false] {
        let (mut bare, session) = with_session();
        let mut bytes = Vec::new();
        let close = Capsule::CloseSession {
            code: 7,
            message: "bye",
        };
        close.emit(&mut bytes);
        if together {
            bytes.push(0);
        }
        bare.say(session, frame::DATA, &bytes);
        if !together {
            bare.say(session, frame::DATA, &[0]);
        }
        let (_, reason) = bare.host.ended();
        assert!(matches!(
            reason,
            SessionEnd::Closed {
                code: 7,
                by_peer: true,
                ..
            }
        ));
        let error = ErrorCode::H3_MESSAGE_ERROR.as_u64();
        assert_eq!(bare.host.end.stop_code(session), Some(error));
        assert_eq!(bare.host.connection.requests(), 0);
        assert_lives(&mut bare);
    }
}

#[test]
fn a_capsule_that_is_cut_off_is_message_error() {
    let (mut bare, session) = with_session();
    bare.say(session, frame::DATA, &[0x28]);
    bare.finish(session);
    assert_failed(&mut bare, session, ErrorCode::H3_MESSAGE_ERROR);
}

/// Row 99 for capsules.
#[test]
fn unknown_capsules_are_passed_over_as_they_arrive() {
    let (mut bare, session) = with_session();
    let mut bytes = Vec::new();
    emit_varint(&mut bytes, 0x17 + 41);
    emit_varint(&mut bytes, 100_000);
    bare.say(session, frame::DATA, &bytes);
    for _ in 0..100 {
        bare.say(session, frame::DATA, &[0; 1000]);
    }
    capsule(&mut bare, session, Capsule::DrainSession);
    assert!(matches!(
        bare.host.next_session(),
        SessionEvent::Draining(_)
    ));
}

/// Row 104.
#[test]
fn sessions_beyond_the_limit_are_rejected_and_streams_of_a_dead_one_are_gone() {
    let mut config = config();
    if let Some(webtransport) = &mut config.webtransport {
        webtransport.max_sessions = 2;
    }
    let mut bare = client(config, &DRAFT_16);
    let first = session(&mut bare);
    let second = session(&mut bare);
    let rejected = ErrorCode::H3_REQUEST_REJECTED.as_u64();
    for _ in 0..100 {
        let third = ask(&mut bare);
        assert_eq!(bare.host.end.reset_code(third), Some(rejected));
    }
    assert!(bare.host.events.is_empty());
    assert_eq!(bare.host.connection.requests(), 2);
    bare.host.close(first, 0, "");
    while bare.host.turn() {}
    bare.host.ended();
    let late = open(&mut bare, BIDI, first);
    let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
    assert_eq!(bare.host.end.stop_code(late), gone);
    assert_eq!(bare.host.end.reset_code(late), gone);
    let stream = open(&mut bare, UNI, second);
    assert_eq!(bare.host.opened(), stream);
    assert_lives(&mut bare);
}

/// Row 105: a server's application sees the origin and refuses it.
#[test]
fn a_request_of_another_origin_can_be_refused_with_403() {
    let mut bare = client(config(), &DRAFT_16);
    let id = ask(&mut bare);
    let SessionEvent::Requested { head, .. } = bare.host.next_session() else {
        panic!("a request");
    };
    assert_eq!(head.headers["origin"], "https://elsewhere.org");
    let Host {
        connection, end, ..
    } = &mut bare.host;
    connection
        .refuse_session(end, id, StatusCode::FORBIDDEN)
        .unwrap();
    assert_eq!(connection.sessions(), 0);
    assert_lives(&mut bare);
}

/// Row 106: what a client lacks is said, by a status to it and in words to our application.
#[test]
fn a_client_without_a_needed_setting_is_answered_400_and_words_say_why() {
    let enabled = (SettingId::WT_ENABLED, 1);
    let datagrams = (SettingId::H3_DATAGRAM, 1);
    let old = (SettingId::WEBTRANSPORT_MAX_SESSIONS_DRAFT07, 1);
    for (settings, word) in [
        (&[enabled][..], "H3_DATAGRAM"),
        (&[datagrams], "no version"),
        (&[datagrams, old], ":protocol"),
    ] {
        let mut bare = client(config(), settings);
        let id = ask(&mut bare);
        let Event::Failed { id: of, error } = bare.host.next() else {
            panic!("an error");
        };
        assert_eq!((of, error.code), (id, ErrorCode::WT_REQUIREMENTS_NOT_MET));
        assert!(error.reason.contains(word), "{}", error.reason);
        assert_eq!(bare.host.end.closed(), None);
        assert_eq!(bare.host.end.reset_code(id), None);
        let answer = bare.end.take(id);
        assert!(!answer.is_empty());
        bare.get();
        assert!(matches!(bare.host.next(), Event::Request { .. }));
    }
}

/// Row 106: HTTP datagrams that QUIC does not carry.
#[test]
fn without_quic_datagrams_there_is_no_session() {
    let limits = Limits {
        datagram: None,
        ..Limits::default()
    };
    let mut bare = Bare::limited_client(limits, config());
    let values = [
        (SettingId::ENABLE_WEBTRANSPORT_DRAFT02, 1),
        (SettingId::H3_DATAGRAM_DRAFT, 1),
    ];
    settle(&mut bare, &values);
    let id = bare.open_request();
    let mut fields = CONNECT;
    fields[1].1 = "webtransport";
    bare.say(id, frame::HEADERS, &section(&fields));
    let Event::Failed { error, .. } = bare.host.next() else {
        panic!("an error");
    };
    assert!(error.reason.contains("transport parameters"));
}

/// Row 107: the oldest make room, and nobody else is held up.
#[test]
fn of_a_flood_of_datagrams_on_a_session_the_newest_256_are_kept() {
    let (mut bare, session) = with_session();
    for number in 0..1000_u16 {
        let payload = [[session.index() as u8].as_slice(), &number.to_be_bytes()].concat();
        assert!(bare.end.send_datagram(payload.into()));
    }
    let Host {
        connection, end, ..
    } = &mut bare.host;
    while connection.on_datagrams(end) {}
    while bare.host.turn() {}
    let numbers: Vec<u16> = bare
        .host
        .events
        .drain(..)
        .map(|event| match event {
            Event::Datagram { payload, .. } => u16::from_be_bytes([payload[0], payload[1]]),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, (744..1000).collect::<Vec<u16>>());
    assert_lives(&mut bare);
}

#[test]
fn after_the_end_of_the_connection_no_datagram_is_told() {
    let (mut bare, session) = with_session();
    let quarter = (session.as_u64() / 4) as u8;
    assert!(bare.end.send_datagram(Bytes::from(vec![quarter, 1])));
    // A second control stream, before anybody looks.
    let control = bare.end.open(UNI).unwrap();
    bare.bytes(control, &[0]);
    assert!(bare.host.end.closed().is_some());
    let last = bare.host.events.pop_back();
    assert!(matches!(last, Some(Event::Closed(_))), "{last:?}");
}

/// Row 108.
#[test]
fn a_datagram_of_a_stream_that_cannot_be_is_datagram_error() {
    let (mut bare, _) = with_session();
    assert!(bare.end.send_datagram(Bytes::from_static(&[0xff; 8])));
    while bare.host.turn() {}
    bare.assert_closed(ErrorCode::H3_DATAGRAM_ERROR);
    assert_eq!(bare.host.connection.sessions(), 0);
}

#[test]
fn a_session_id_that_names_no_request_is_id_error() {
    for id in [1, 2, 3] {
        for direction in Direction::ALL {
            let (mut bare, _) = with_session();
            let stream = bare.end.open(direction).unwrap();
            bare.bytes(stream, &prefix(direction, id));
            bare.assert_closed(ErrorCode::H3_ID_ERROR);
        }
    }
}

/// draft-ietf-webtrans-http3-16 §4.3.
#[test]
fn the_sign_of_a_stream_behind_a_frame_is_frame_error() {
    let (mut bare, session) = with_session();
    let id = bare.get();
    bare.host.next();
    bare.bytes(id, &prefix(BIDI, session.as_u64()));
    bare.assert_closed(ErrorCode::H3_FRAME_ERROR);
}

#[test]
fn without_webtransport_its_streams_are_unknown() {
    let mut bare = Bare::client();
    let id = bare.open_request();
    bare.say(id, 0x41, b"skipped");
    bare.say(id, frame::HEADERS, &section(&peer::GET));
    assert!(matches!(bare.host.next(), Event::Request { .. }));
    let stream = bare.open_uni(&prefix(UNI, 0));
    let code = ErrorCode::H3_STREAM_CREATION_ERROR.as_u64();
    assert_eq!(bare.host.end.stop_code(stream), Some(code));
    assert_eq!(bare.host.end.closed(), None);
}

/// A prefix comes byte by byte, with its integers as long as can be; no payload is read.
#[test]
fn a_prefix_is_read_and_not_a_byte_of_what_follows() {
    for direction in Direction::ALL {
        let (mut bare, session) = with_session();
        let mut bytes = match direction {
            BIDI => vec![0x80, 0, 0, 0x41],
            UNI => vec![0x80, 0, 0, 0x54],
        };
        bytes.extend((0xc000_0000_0000_0000 | session.as_u64()).to_be_bytes());
        let id = bare.end.open(direction).unwrap();
        for byte in bytes {
            assert!(bare.host.events.is_empty());
            bare.bytes(id, &[byte]);
        }
        assert_eq!(bare.host.opened(), id);
        bare.bytes(id, b"payload");
        assert_eq!(bare.host.hear(id), b"payload");
        bare.bytes(id, &[0; 100]);
        assert_eq!(bare.host.hear(id).len(), 100);
    }
}

#[test]
fn a_prefix_that_is_cut_off_ends_its_stream_alone() {
    let (mut bare, _) = with_session();
    let uni = bare.open_uni(&[0x40, 0x54]);
    bare.finish(uni);
    assert!(bare.host.events.is_empty());
    assert_lives(&mut bare);
}

#[test]
fn limits_that_do_not_grow_are_flow_control_error() {
    for (max, streams) in [(1000, None), (999, None), (0, Some(BIDI)), (0, Some(UNI))] {
        let (mut bare, session) = with_session();
        match streams {
            None => capsule(&mut bare, session, Capsule::MaxData(max)),
            Some(direction) => capsule(&mut bare, session, Capsule::MaxStreams(direction, max)),
        }
        assert_failed(&mut bare, session, ErrorCode::WT_FLOW_CONTROL_ERROR);
    }
}

/// A limit of 2^60 + 1 streams cannot be meant.
#[test]
fn more_streams_than_there_can_be_is_flow_control_error() {
    let (mut bare, session) = with_session();
    capsule(&mut bare, session, Capsule::MaxStreams(UNI, (1 << 60) + 1));
    assert_failed(&mut bare, session, ErrorCode::WT_FLOW_CONTROL_ERROR);
}

pub(super) fn narrow() -> Config {
    let mut config = config();
    if let Some(webtransport) = &mut config.webtransport {
        webtransport.initial_max_data = 100;
        webtransport.initial_max_streams_uni = 3;
    }
    config
}

#[test]
fn more_streams_than_the_session_permits_is_flow_control_error() {
    let mut bare = client(narrow(), &DRAFT_16);
    let first = session(&mut bare);
    let streams: Vec<StreamId> = (0..4).map(|_| open(&mut bare, UNI, first)).collect();
    let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
    assert!(
        streams
            .iter()
            .all(|id| bare.host.end.stop_code(*id) == gone)
    );
    assert_failed(&mut bare, first, ErrorCode::WT_FLOW_CONTROL_ERROR);
}

/// Even where the application reads nothing.
#[test]
fn more_bytes_than_the_session_permits_is_flow_control_error() {
    let mut bare = client(narrow(), &DRAFT_16);
    let first = session(&mut bare);
    let stream = open(&mut bare, UNI, first);
    bare.host.opened();
    bare.bytes(stream, &[0; 100]);
    assert!(bare.host.events.is_empty());
    bare.bytes(stream, &[0]);
    assert_failed(&mut bare, first, ErrorCode::WT_FLOW_CONTROL_ERROR);
}

/// What was on its way when a stream was stopped counts, and its room comes back.
#[test]
fn what_arrives_of_a_stopped_stream_uses_credit_and_gives_it_back() {
    let mut bare = client(narrow(), &DRAFT_16);
    let first = session(&mut bare);
    for round in 1..=10_u64 {
        let stream = open(&mut bare, UNI, first);
        bare.host.events.clear();
        bare.bytes(stream, &[0; 10]);
        let Host {
            connection, end, ..
        } = &mut bare.host;
        connection.stop_session_stream(end, stream, 0);
        connection.on_session_stream_over(end, stream, 0);
        assert_eq!(connection.session_of(stream), None);
        bare.bytes(stream, &[0; 80]);
        bare.end.reset(stream, 0);
        while bare.host.turn() {}
        assert!(bare.host.events.is_empty(), "{:?}", bare.host.events);
        let answered = bare.end.take(first);
        let mut told = Vec::new();
        Capsule::MaxData(round * 90 + 100).emit(&mut told);
        let told = frame_bytes(frame::DATA, &told);
        assert!(answered.windows(told.len()).any(|part| part == told));
    }
}

#[test]
fn the_length_of_a_stopped_stream_is_not_kept_when_its_session_is_over() {
    let mut bare = client(narrow(), &DRAFT_16);
    let first = session(&mut bare);
    let stream = open(&mut bare, UNI, first);
    let Host {
        connection, end, ..
    } = &mut bare.host;
    connection.stop_session_stream(end, stream, 0);
    bare.host.close(first, 0, "");
    bare.end.reset(stream, 0);
    while bare.host.turn() {}
    assert_eq!(bare.host.end.take_final_size(stream), None);
    bare.host.events.clear();
    assert_lives(&mut bare);
}

#[test]
fn without_agreed_limits_a_second_session_of_draft_16_is_rejected() {
    let mut bare = client(config(), &DRAFT_16[..2]);
    let first = session(&mut bare);
    assert_eq!(bare.host.connection.session_send_credit(first), None);
    let second = ask(&mut bare);
    let rejected = ErrorCode::H3_REQUEST_REJECTED.as_u64();
    assert_eq!(bare.host.end.reset_code(second), Some(rejected));
}

/// draft-ietf-webtrans-http3-16 §7.1: what a client speaks is not known before.
#[test]
fn a_request_before_the_clients_settings_waits_for_them() {
    let mut bare = Bare::silent_client(config());
    let id = ask(&mut bare);
    let stream = open(&mut bare, UNI, id);
    assert!(bare.host.events.is_empty());
    settle(&mut bare, &DRAFT_16);
    assert!(
        matches!(bare.host.next_session(), SessionEvent::Requested { session, .. } if session == id)
    );
    bare.host.accept(id, None);
    assert!(!bare.host.turn());
    assert_eq!(bare.host.opened(), stream);
}

#[test]
fn a_request_that_waits_for_settings_can_be_given_up() {
    for reset in [true, false] {
        let mut bare = Bare::silent_client(config());
        let id = ask(&mut bare);
        let stream = open(&mut bare, UNI, id);
        match reset {
            true => bare.end.reset(id, 0x10c),
            false => bare.end.finish(id),
        }
        while bare.host.turn() {}
        settle(&mut bare, &DRAFT_16);
        assert!(bare.host.events.is_empty());
        assert_eq!(bare.host.connection.requests(), 0);
        let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
        assert_eq!(bare.host.end.stop_code(stream), gone);
    }
}

/// A server that chose what was not offered (draft-ietf-webtrans-http3-16 §3.3).
#[test]
fn a_protocol_that_was_not_offered_is_alpn_error() {
    let (client, server) = pair(Limits::default());
    let mut bare = Bare::new(server, Host::new(client, config()));
    settle_all(&mut bare);
    let session = bare.host.connect(&["a"]).unwrap();
    bare.end.accept(BIDI);
    let answer = section(&[(":status", "200"), ("wt-protocol", "\"b\"")]);
    bare.say(session, frame::HEADERS, &answer);
    let (of, reason) = bare.host.ended();
    assert_eq!(of, session);
    assert!(matches!(reason, SessionEnd::Failed(error) if error.code == ErrorCode::WT_ALPN_ERROR));
    assert_eq!(bare.host.end.closed(), None);
}

#[test]
fn a_server_that_lacks_a_setting_is_not_asked_and_words_say_why() {
    for (settings, word) in [
        (&DRAFT_16[..], "ENABLE_CONNECT_PROTOCOL"),
        (&[(SettingId::ENABLE_CONNECT_PROTOCOL, 1)], "no version"),
    ] {
        let (client, server) = pair(Limits::default());
        let mut bare = Bare::new(server, Host::new(client, config()));
        settle(&mut bare, settings);
        let Err(ConnectError::Unsupported(words)) = bare.host.connect(&[]) else {
            panic!("an error");
        };
        assert!(words.contains(word), "{words}");
        assert_eq!(bare.host.connection.session_obstacle(), Some(words));
    }
}

#[test]
fn a_server_that_opens_what_is_no_stream_of_a_session_is_told_stream_creation_error() {
    let (client, server) = pair(Limits::default());
    let mut bare = Bare::new(server, Host::new(client, config()));
    settle(&mut bare, &DRAFT_16);
    let id = bare.end.open(BIDI).unwrap();
    bare.bytes(id, &frame_bytes(frame::HEADERS, b"x"));
    bare.assert_closed(ErrorCode::H3_STREAM_CREATION_ERROR);
}
