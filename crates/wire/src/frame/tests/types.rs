use super::*;

#[test]
fn unknown_types_are_an_encoding_error() {
    for ty in (0x20..0x24).chain(0x25..0x30).chain(0x32..0x40) {
        assert_encoding_error(&[ty, 0, 0, 0]);
    }
    for ty in [0x40, 0xae, 0xb0, 0x4000, 0xffff_ffff, MAX_VARINT] {
        let mut bytes = Vec::new();
        emit_varint(&mut bytes, ty);
        let error = parse_one(&bytes).expect_err("unknown");
        assert_eq!((error.code, error.frame_type), (ENCODING, Some(ty)));
    }
}

#[test]
fn a_type_not_in_its_shortest_form_is_a_protocol_violation() {
    for ty in 0..0x40 {
        for bytes in [
            &[0x40, ty, 0, 0][..],
            &[0x80, 0, 0, ty, 0, 0],
            &[0xc0, 0, 0, 0, 0, 0, 0, ty, 0, 0],
        ] {
            let error = parse_one(bytes).expect_err("not minimal");
            assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
            assert_eq!(error.frame_type, Some(u64::from(ty)));
        }
    }
}

#[test]
fn no_byte_or_a_type_cut_short_is_an_error_without_a_type() {
    for bytes in [&[][..], &[0x40], &[0x80, 0, 0], &[0xff; 7]] {
        let error = parse_one(bytes).expect_err("nothing to read");
        assert_eq!((error.code, error.frame_type), (ENCODING, None));
    }
}

/// RFC 9000 §12.4 table 3, column "Pkts", with the 0-RTT entry of RETIRE_CONNECTION_ID
/// taken out as §12.5 permits; RFC 9221 §4 for DATAGRAM; the drafts of extensions for three more.
#[test]
fn packets_carry_the_frames_of_table_3() {
    let table = [
        (0x00..=0x00, "PADDING", "IH01"),
        (0x01..=0x01, "PING", "IH01"),
        (0x02..=0x03, "ACK", "IH_1"),
        (0x04..=0x04, "RESET_STREAM", "__01"),
        (0x05..=0x05, "STOP_SENDING", "__01"),
        (0x06..=0x06, "CRYPTO", "IH_1"),
        (0x07..=0x07, "NEW_TOKEN", "___1"),
        (0x08..=0x0f, "STREAM", "__01"),
        (0x10..=0x10, "MAX_DATA", "__01"),
        (0x11..=0x11, "MAX_STREAM_DATA", "__01"),
        (0x12..=0x13, "MAX_STREAMS", "__01"),
        (0x14..=0x14, "DATA_BLOCKED", "__01"),
        (0x15..=0x15, "STREAM_DATA_BLOCKED", "__01"),
        (0x16..=0x17, "STREAMS_BLOCKED", "__01"),
        (0x18..=0x18, "NEW_CONNECTION_ID", "__01"),
        (0x19..=0x19, "RETIRE_CONNECTION_ID", "___1"),
        (0x1a..=0x1a, "PATH_CHALLENGE", "__01"),
        (0x1b..=0x1b, "PATH_RESPONSE", "___1"),
        (0x1c..=0x1c, "CONNECTION_CLOSE", "IH01"),
        (0x1d..=0x1d, "CONNECTION_CLOSE", "__01"),
        (0x1e..=0x1e, "HANDSHAKE_DONE", "___1"),
        (0x1f..=0x1f, "IMMEDIATE_ACK", "___1"),
        (0x20..=0x23, "frame type", "____"),
        (0x24..=0x24, "RESET_STREAM_AT", "__01"),
        (0x25..=0x2f, "frame type", "____"),
        (0x30..=0x31, "DATAGRAM", "__01"),
        (0x32..=0xae, "frame type", "____"),
        (0xaf..=0xaf, "ACK_FREQUENCY", "___1"),
        (0xb0..=0xc0, "frame type", "____"),
    ];
    for (types, name, packets) in table {
        for ty in types.map(FrameType::from_u64) {
            assert!(ty.to_string().starts_with(name), "{ty} is {name}");
            for (kind, letter) in [
                (PacketKind::Initial, 'I'),
                (PacketKind::Handshake, 'H'),
                (PacketKind::ZeroRtt, '0'),
                (PacketKind::OneRtt, '1'),
            ] {
                assert_eq!(
                    ty.permitted(kind),
                    packets.contains(letter),
                    "{ty} in {kind:?}"
                );
            }
        }
    }
}

#[test]
fn probing_and_non_eliciting_frames_are_those_of_the_rfcs() {
    let named = |test: fn(FrameType) -> bool| -> Vec<u64> {
        (0..0x32)
            .filter(|ty| test(FrameType::from_u64(*ty)))
            .collect()
    };
    assert_eq!(named(FrameType::is_probing), [0x00, 0x18, 0x1a, 0x1b]);
    assert_eq!(
        named(|ty| !ty.ack_eliciting()),
        [0x00, 0x02, 0x03, 0x1c, 0x1d]
    );
    assert_eq!(
        named(FrameType::is_stream),
        (0x08..=0x0f).collect::<Vec<_>>()
    );
}
