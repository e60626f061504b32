use super::*;
use crate::{Direction, MAX_STREAMS, MAX_VARINT, Reader, Side, StreamId, Writer, emit_varint};
use proptest::prelude::*;

fn varints(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        emit_varint(&mut out, *value);
    }
    out
}

fn request(index: u64) -> StreamId {
    StreamId::new(Side::Client, Direction::Bidirectional, index)
}

/// Every capsule that is known, with values that need all widths.
fn capsules() -> Vec<Capsule<'static>> {
    use Direction::{Bidirectional, Unidirectional};
    vec![
        Capsule::Datagram(b""),
        Capsule::Datagram(b"payload"),
        Capsule::CloseSession {
            code: 0x1234_5678,
            message: "gone fishing",
        },
        Capsule::CloseSession {
            code: u32::MAX,
            message: "",
        },
        Capsule::DrainSession,
        Capsule::MaxData(MAX_VARINT),
        Capsule::MaxStreams(Bidirectional, 7),
        Capsule::MaxStreams(Unidirectional, MAX_STREAMS),
        Capsule::DataBlocked(70_000),
        Capsule::StreamsBlocked(Bidirectional, 0),
        Capsule::StreamsBlocked(Unidirectional, 300),
    ]
}

#[test]
fn a_frame_header_is_read_when_it_is_whole() {
    let header = FrameHeader {
        kind: FrameType::HEADERS,
        len: 0x4000,
    };
    let mut room = [0; MAX_FRAME_HEADER_LEN];
    let mut w = Writer::new(&mut room);
    header.emit(&mut w);
    let bytes = w.written();
    assert_eq!(bytes, [0x01, 0x80, 0x00, 0x40, 0x00]);
    assert_eq!(header.encoded_len(), bytes.len());
    for len in 0..bytes.len() {
        let mut r = Reader::new(&bytes[..len]);
        assert!(FrameHeader::parse(&mut r).is_err());
        assert_eq!(r.position(), 0, "a failed read moves nothing");
    }
    assert_eq!(FrameHeader::parse(&mut Reader::new(bytes)), Ok(header));
}

#[test]
fn frame_types_of_http2_and_those_without_a_meaning_are_told_apart() {
    for kind in [0x02, 0x06, 0x08, 0x09] {
        assert!(FrameType::from_u64(kind).is_http2());
    }
    for kind in [0x00, 0x01, 0x03, 0x04, 0x05, 0x07, 0x0d, 0x41, 0x54] {
        let kind = FrameType::from_u64(kind);
        assert!(!kind.is_http2() && !kind.is_reserved(), "{kind}");
    }
    for n in [0, 1, 7, 1 << 40] {
        assert!(FrameType::from_u64(0x1f * n + 0x21).is_reserved());
        assert!(!FrameType::from_u64(0x1f * n + 0x22).is_reserved());
    }
    assert!(!FrameType::from_u64(0x02).is_reserved(), "below the first");
    assert_eq!(
        FrameType::from_u64(0x0f_0700).to_string(),
        "PRIORITY_UPDATE"
    );
    assert_eq!(FrameType::from_u64(0x21).to_string(), "frame 0x21");
}

#[test]
fn a_payload_of_one_number_holds_nothing_else() {
    assert_eq!(parse_id(&varints(&[4])), Some(4));
    assert_eq!(parse_id(&varints(&[MAX_VARINT])), Some(MAX_VARINT));
    assert_eq!(parse_id(&[]), None);
    assert_eq!(parse_id(&[0x40]), None);
    assert_eq!(parse_id(&varints(&[4, 0])), None);
}

#[test]
fn a_priority_update_names_its_stream_and_carries_the_field() {
    let update = PriorityUpdate {
        element: 400,
        value: b"u=1, i",
    };
    let mut room = [0; 32];
    let mut w = Writer::new(&mut room);
    update.emit(&mut w);
    assert_eq!(w.len(), update.encoded_len());
    assert_eq!(PriorityUpdate::parse(w.written()), Ok(update));
    assert!(PriorityUpdate::parse(&[0x40]).is_err());
}

#[test]
fn settings_come_back_as_they_were_sent() {
    let mut settings = Settings::new();
    settings.set(SettingId::MAX_FIELD_SECTION_SIZE, 16_384);
    settings.set(SettingId::H3_DATAGRAM, 1);
    settings.set(SettingId::WT_ENABLED, 1);
    settings.set(SettingId::WT_INITIAL_MAX_DATA, u64::MAX);
    settings.set(SettingId::from_u64(0x21), 5);
    let mut bytes = Vec::new();
    settings.emit(&mut bytes);
    assert_eq!(bytes.len(), settings.encoded_len());
    let parsed = Settings::parse(&bytes).expect("valid");
    assert_eq!(parsed, settings);
    assert_eq!(parsed.get(SettingId::H3_DATAGRAM), Some(1));
    assert_eq!(parsed.get(SettingId::WT_INITIAL_MAX_DATA), Some(MAX_VARINT));
    assert_eq!(parsed.get(SettingId::QPACK_BLOCKED_STREAMS), None);
    assert_eq!(parsed.get(SettingId::from_u64(0x21)), None);
    assert_eq!(parsed.iter().count(), 4);
}

#[test]
fn unknown_settings_are_skipped_even_twice() {
    let bytes = varints(&[0x21, 1, 0x21, 2, 0x08, 1, 0x7777, 9]);
    let settings = Settings::parse(&bytes).expect("valid");
    assert_eq!(
        settings.iter().collect::<Vec<_>>(),
        [(SettingId::ENABLE_CONNECT_PROTOCOL, 1)]
    );
    assert_eq!(Settings::parse(&[]), Ok(Settings::new()));
}

#[test]
fn settings_that_cannot_be_accepted_name_their_code() {
    let refused = |values: &[u64]| Settings::parse(&varints(values)).expect_err("refused");
    for id in 0x02..=0x05 {
        let error = refused(&[id, 0]);
        assert_eq!(error, SettingsError::Http2(SettingId::from_u64(id)));
        assert_eq!(error.code(), ErrorCode::H3_SETTINGS_ERROR);
    }
    let twice = refused(&[0x33, 1, 0x06, 100, 0x33, 1]);
    assert_eq!(twice, SettingsError::Duplicate(SettingId::H3_DATAGRAM));
    assert_eq!(twice.code(), ErrorCode::H3_SETTINGS_ERROR);
    for id in [0x08, 0x33, 0xff_d277, 0x2b60_3742, 0x2c7c_f000] {
        let error = refused(&[id, 2]);
        assert_eq!(error.code(), ErrorCode::H3_SETTINGS_ERROR, "{error}");
    }
    let cut = refused(&[0x06]);
    assert_eq!(cut, SettingsError::Truncated);
    assert_eq!(cut.code(), ErrorCode::H3_FRAME_ERROR);
}

#[test]
fn stream_types_say_which_streams_must_stay_open() {
    for (kind, critical) in [(0, true), (1, false), (2, true), (3, true), (0x54, false)] {
        let mut room = [0; 8];
        let mut w = Writer::new(&mut room);
        StreamType::from_u64(kind).emit(&mut w);
        let parsed = StreamType::parse(&mut Reader::new(w.written())).expect("whole");
        assert_eq!(parsed.as_u64(), kind);
        assert_eq!(parsed.is_critical(), critical);
        assert!(!parsed.is_reserved());
    }
    assert!(StreamType::from_u64(0x40).is_reserved());
    assert!(StreamType::parse(&mut Reader::new(&[0x40])).is_err());
}

#[test]
fn a_webtransport_stream_begins_with_its_session() {
    let session = request(0x1000);
    for (direction, signal) in [
        (Direction::Bidirectional, 0x41),
        (Direction::Unidirectional, 0x54),
    ] {
        let header = WebTransportHeader { direction, session };
        let mut room = [0; MAX_WEBTRANSPORT_HEADER_LEN];
        let mut w = Writer::new(&mut room);
        header.emit(&mut w);
        assert_eq!(w.written(), varints(&[signal, 0x4000]));
        assert_eq!(w.len(), header.encoded_len());
        let read = FrameHeader::parse(&mut Reader::new(w.written())).expect("whole");
        assert_eq!(read.kind.as_u64(), signal);
        assert_eq!(session_id(read.len), Some(session));
    }
    let longest = WebTransportHeader {
        direction: Direction::Bidirectional,
        session: request(MAX_STREAMS - 1),
    };
    assert_eq!(longest.encoded_len(), MAX_WEBTRANSPORT_HEADER_LEN);
}

#[test]
fn only_a_clients_bidirectional_stream_is_a_session() {
    for id in 0..16 {
        assert_eq!(session_id(id).is_some(), id % 4 == 0);
    }
}

#[test]
fn a_datagram_names_a_quarter_of_its_stream() {
    let stream = request(300);
    let mut room = [0; 16];
    let mut w = Writer::new(&mut room);
    emit_datagram_header(stream, &mut w);
    assert_eq!(w.len(), datagram_header_len(stream));
    w.bytes(b"data");
    assert_eq!(parse_datagram(w.written()), Ok((stream, 2)));
    assert_eq!(&w.written()[2..], b"data");
    assert_eq!(
        parse_datagram(&varints(&[MAX_STREAMS - 1])),
        Ok((request(MAX_STREAMS - 1), 8))
    );
    for wrong in [varints(&[MAX_STREAMS]), Vec::new(), vec![0x40]] {
        let error = parse_datagram(&wrong).expect_err("refused");
        assert_eq!(error.code(), ErrorCode::H3_DATAGRAM_ERROR);
    }
}

#[test]
fn error_codes_print_their_names() {
    assert_eq!(ErrorCode::from_u64(0x107).to_string(), "H3_EXCESSIVE_LOAD");
    assert_eq!(ErrorCode::from_u64(0x111).to_string(), "error 0x111");
    for code in (0x100..=0x110).chain(0x200..=0x202) {
        assert!(!ErrorCode::from_u64(code).to_string().starts_with("error"));
    }
}

#[test]
fn application_errors_skip_the_reserved_codes() {
    use ApplicationErrorRange::{EightBits, ThirtyTwoBits};
    let http3 = |code| ThirtyTwoBits.to_http3(code).map(ErrorCode::as_u64);
    assert_eq!(http3(0), Some(0x52e4_a40f_a8db));
    assert_eq!(http3(0x1d), Some(0x52e4_a40f_a8f8));
    assert_eq!(http3(0x1e), Some(0x52e4_a40f_a8fa));
    assert_eq!(http3(0xff), Some(0x52e4_a40f_a9e2));
    assert_eq!(http3(u32::MAX), Some(0x52e5_ac98_3162));
    assert_eq!(EightBits.to_http3(0xff), ThirtyTwoBits.to_http3(0xff));
    assert_eq!(EightBits.to_http3(0x100), None);
    let application =
        |range: ApplicationErrorRange, code| range.to_application(ErrorCode::from_u64(code));
    for reserved in [0x52e4_a40f_a8f9, 0x52e4_a40f_a918, 0x52e4_a40f_a9d2] {
        assert_eq!(application(ThirtyTwoBits, reserved), None);
    }
    assert_eq!(application(EightBits, 0x52e4_a40f_a9e2), Some(0xff));
    assert_eq!(application(EightBits, 0x52e4_a40f_a9e3), None);
    assert_eq!(application(ThirtyTwoBits, 0x52e5_ac98_3162), Some(u32::MAX));
    for outside in [
        0,
        0x52e4_a40f_a8da,
        0x52e5_ac98_3163,
        0x52e5_ac98_3164,
        u64::MAX,
    ] {
        assert_eq!(application(ThirtyTwoBits, outside), None, "{outside:#x}");
    }
}

#[test]
fn capsules_come_back_as_they_were_sent() {
    for capsule in capsules() {
        let mut bytes = Vec::new();
        capsule.emit(&mut bytes);
        let mut r = Reader::new(&bytes);
        let header = CapsuleHeader::parse(&mut r).expect("whole");
        assert_eq!(header.kind, capsule.kind());
        assert_eq!(header.len, r.remaining() as u64);
        assert_eq!(header.check_len(), Ok(()));
        assert_eq!(Capsule::parse(header.kind, r.rest()), Ok(Some(capsule)));
    }
}

#[test]
fn a_capsule_of_the_wrong_layout_is_refused() {
    for capsule in capsules() {
        let kind = capsule.kind();
        let (short, long): (&[u8], &[u8]) = match capsule {
            Capsule::Datagram(_) => continue,
            Capsule::DrainSession => (&[0], &[0, 0]),
            Capsule::CloseSession { .. } => (&[], &[0, 0, 0]),
            _ => (&[], &[0, 0]),
        };
        for value in [short, long] {
            let error = Capsule::parse(kind, value).expect_err("refused");
            assert_eq!(error, CapsuleError::Malformed(kind));
            assert_eq!(error.code(), ErrorCode::H3_DATAGRAM_ERROR);
        }
    }
    let unknown = CapsuleType::from_u64(0x190b_4d3e);
    assert_eq!(Capsule::parse(unknown, b"anything"), Ok(None));
    assert_eq!(unknown.max_value_len(), None);
}

#[test]
fn more_than_2_to_the_60_streams_are_a_flow_control_error() {
    let count = varints(&[MAX_STREAMS + 1]);
    for kind in [0x190b_4d3f, 0x190b_4d40, 0x190b_4d43, 0x190b_4d44] {
        let error = Capsule::parse(CapsuleType::from_u64(kind), &count).expect_err("refused");
        assert_eq!(error.code(), ErrorCode::WT_FLOW_CONTROL_ERROR);
    }
}

#[test]
fn a_value_that_is_too_long_is_refused_by_its_header() {
    let refused = |kind, len| CapsuleHeader { kind, len }.check_len().err();
    assert_eq!(
        refused(CapsuleType::WT_CLOSE_SESSION, 1029),
        Some(CapsuleError::CloseMessage)
    );
    for (kind, len) in [
        (CapsuleType::WT_DRAIN_SESSION, 1),
        (CapsuleType::WT_MAX_DATA, 9),
    ] {
        assert_eq!(refused(kind, len), Some(CapsuleError::Malformed(kind)));
    }
    assert_eq!(refused(CapsuleType::DATAGRAM, MAX_VARINT), None);
    assert_eq!(refused(CapsuleType::from_u64(0x21), MAX_VARINT), None);
}

#[test]
fn a_close_message_is_short_and_utf_8() {
    let mut value = vec![0; 4];
    value.extend([b'a'; MAX_CLOSE_MESSAGE_LEN]);
    assert!(Capsule::parse(CapsuleType::WT_CLOSE_SESSION, &value).is_ok());
    value.push(b'a');
    for wrong in [&value[..], &[0, 0, 0, 0, 0xff]] {
        let error = Capsule::parse(CapsuleType::WT_CLOSE_SESSION, wrong).expect_err("refused");
        assert_eq!(error.code(), ErrorCode::H3_MESSAGE_ERROR);
    }
}

#[test]
fn a_close_message_is_cut_between_characters() {
    let message = format!("a{}", "é".repeat(600));
    let mut bytes = Vec::new();
    Capsule::CloseSession {
        code: 1,
        message: &message,
    }
    .emit(&mut bytes);
    let mut r = Reader::new(&bytes);
    let header = CapsuleHeader::parse(&mut r).expect("whole");
    assert_eq!(header.len, 4 + 1023);
    let Ok(Some(Capsule::CloseSession { message: cut, .. })) =
        Capsule::parse(header.kind, r.rest())
    else {
        panic!("a close");
    };
    assert!(message.starts_with(cut));
}

proptest! {
    #[test]
    fn random_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = FrameHeader::parse(&mut Reader::new(&bytes));
        let _ = CapsuleHeader::parse(&mut Reader::new(&bytes));
        let _ = PriorityUpdate::parse(&bytes);
        let _ = parse_datagram(&bytes);
        let _ = parse_id(&bytes);
        for capsule in capsules() {
            if let Ok(Some(parsed)) = Capsule::parse(capsule.kind(), &bytes) {
                prop_assert_eq!(parsed.kind(), capsule.kind());
            }
        }
        if let Ok(settings) = Settings::parse(&bytes) {
            let mut out = Vec::new();
            settings.emit(&mut out);
            prop_assert_eq!(Settings::parse(&out), Ok(settings));
        }
    }

    #[test]
    fn every_application_error_comes_back(code in any::<u32>()) {
        let range = ApplicationErrorRange::ThirtyTwoBits;
        let http3 = range.to_http3(code).expect("in the range");
        prop_assert!(!http3.is_reserved());
        prop_assert_eq!(range.to_application(http3), Some(code));
        let small = code & 0xff;
        let range = ApplicationErrorRange::EightBits;
        let http3 = range.to_http3(small).expect("in the range");
        prop_assert_eq!(range.to_application(http3), Some(small));
    }
}
