use super::*;
use crate::cursor::{MAX_VARINT, Reader, Writer, emit_varint, varint_len};
use crate::ids::{MAX_CID_LEN, MAX_STREAMS};
use crate::packet::PacketKind;
use core::time::Duration;
use proptest::prelude::*;

mod ack;
mod types;

const ENCODING: TransportErrorCode = TransportErrorCode::FRAME_ENCODING_ERROR;

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut buf = vec![0xee; frame.encoded_len()];
    let mut w = Writer::new(&mut buf);
    frame.write(&mut w);
    assert!(
        !w.overflowed() && w.remaining() == 0,
        "{frame:?} fills its encoded_len"
    );
    buf
}

/// A frame of this type byte and these varints.
fn varints(ty: u8, values: &[u64]) -> Vec<u8> {
    let mut bytes = vec![ty];
    values
        .iter()
        .for_each(|value| emit_varint(&mut bytes, *value));
    bytes
}

fn parse_one(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    Frame::parse(&mut Reader::new(bytes))
}

fn assert_encoding_error(bytes: &[u8]) {
    let error = parse_one(bytes).expect_err("malformed");
    assert_eq!(
        (error.code, error.frame_type),
        (ENCODING, Some(u64::from(bytes[0]))),
        "{error}"
    );
}

fn any_varint() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        (0..=MAX_VARINT, 0_u32..62).prop_map(|(value, shift)| value >> shift),
        prop::sample::select(vec![
            0,
            63,
            64,
            16383,
            16384,
            (1 << 30) - 1,
            1 << 30,
            MAX_VARINT
        ]),
    ]
}

/// Everything a frame can be made of; `frame` borrows from it.
#[derive(Debug, Clone)]
struct Parts {
    ty: u8,
    numbers: [u64; 4],
    data: Vec<u8>,
    cid: Vec<u8>,
    token: [u8; 16],
    flag: bool,
}

const FRAME_KINDS: u8 = 25;

fn parts() -> impl Strategy<Value = Parts> {
    let data = prop::collection::vec(any::<u8>(), 0..200);
    let cid = prop::collection::vec(any::<u8>(), 1..=MAX_CID_LEN);
    let numbers = [any_varint(), any_varint(), any_varint(), any_varint()];
    (
        0..FRAME_KINDS,
        numbers,
        data,
        cid,
        any::<[u8; 16]>(),
        any::<bool>(),
    )
        .prop_map(|(ty, numbers, data, cid, token, flag)| Parts {
            ty,
            numbers,
            data,
            cid,
            token,
            flag,
        })
}

impl Parts {
    /// Any frame but ACK, which has tests of its own.
    fn frame(&self) -> Frame<'_> {
        let [a, b, c, d] = self.numbers;
        let id = StreamId::from_u64(a);
        let direction = if self.flag {
            Direction::Bidirectional
        } else {
            Direction::Unidirectional
        };
        let data = &self.data[..];
        let challenge = *self.token.first_chunk::<8>().expect("16 bytes");
        let reaches = |offset: u64| offset.min(MAX_VARINT - data.len() as u64);
        match self.ty {
            0 => Frame::Padding {
                len: 1 + data.len(),
            },
            1 => Frame::Ping,
            2 => Frame::ResetStream {
                id,
                error_code: b,
                final_size: c,
            },
            3 => Frame::StopSending { id, error_code: b },
            4 => Frame::Crypto {
                offset: reaches(a),
                data,
            },
            5 => Frame::NewToken { token: &self.cid },
            6 => Frame::Stream(StreamFrame {
                id,
                offset: reaches(b),
                fin: self.flag,
                data,
            }),
            7 => Frame::MaxData(a),
            8 => Frame::MaxStreamData { id, max: b },
            9 => Frame::MaxStreams {
                direction,
                max: a.min(MAX_STREAMS),
            },
            10 => Frame::DataBlocked(a),
            11 => Frame::StreamDataBlocked { id, limit: b },
            12 => Frame::StreamsBlocked {
                direction,
                limit: a.min(MAX_STREAMS),
            },
            13 => Frame::NewConnectionId(NewConnectionIdFrame {
                sequence: a.max(b),
                retire_prior_to: a.min(b),
                cid: ConnectionId::new(&self.cid).expect("at most 20 bytes"),
                reset_token: StatelessResetToken::new(self.token),
            }),
            14 => Frame::RetireConnectionId { sequence: a },
            15 => Frame::PathChallenge(challenge),
            16 => Frame::PathResponse(challenge),
            17 => Frame::ConnectionClose(CloseFrame {
                error_code: a,
                frame_type: Some(b),
                reason: data,
            }),
            18 => Frame::ConnectionClose(CloseFrame::application(a, data)),
            19 => Frame::HandshakeDone,
            20 => Frame::Datagram { data },
            21 => Frame::AckFrequency(AckFrequencyFrame {
                sequence: a,
                ack_eliciting_threshold: b,
                requested_max_ack_delay: Duration::from_micros(c),
                reordering_threshold: d,
            }),
            22 => Frame::ImmediateAck,
            23 => Frame::ResetStreamAt {
                id,
                error_code: b,
                final_size: c.max(d),
                reliable_size: c.min(d),
            },
            _ => Frame::Stream(StreamFrame {
                id,
                offset: 0,
                fin: self.flag,
                data,
            }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn every_frame_comes_back(parts in parts()) {
        let frame = parts.frame();
        let bytes = bytes_of(&frame);
        let mut r = Reader::new(&bytes);
        prop_assert_eq!(Frame::parse(&mut r), Ok(frame));
        prop_assert!(r.is_empty());
        prop_assert_eq!(frame.ack_eliciting(), frame.ty().ack_eliciting());
    }

    #[test]
    fn a_frame_cut_short_is_an_encoding_error(parts in parts()) {
        let frame = parts.frame();
        if matches!(frame, Frame::Padding { .. }) {
            return Ok(());
        }
        let bytes = bytes_of(&frame);
        for len in 0..bytes.len() {
            let error = parse_one(&bytes[..len]).expect_err("cut short");
            prop_assert_eq!(error.code, ENCODING);
            let readable = Some(frame.ty().as_u64()).filter(|ty| len >= varint_len(*ty));
            // The flag bits of a type may be set: compare the type as it was written.
            let written = readable.and_then(|_| Reader::new(&bytes).varint().ok());
            prop_assert_eq!(error.frame_type, written);
        }
    }

    #[test]
    fn frames_of_one_packet_come_back_in_order(all in prop::collection::vec(parts(), 1..12)) {
        let frames: Vec<_> = all
            .iter()
            .map(Parts::frame)
            .filter(|frame| !matches!(frame, Frame::Padding { .. }))
            .collect();
        let payload: Vec<u8> = frames.iter().flat_map(bytes_of).collect();
        let mut r = Reader::new(&payload);
        for frame in frames {
            prop_assert_eq!(Frame::parse(&mut r), Ok(frame));
        }
        prop_assert!(r.is_empty());
    }

    #[test]
    fn random_bytes_never_panic(
        payload in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..0x40], 0..300),
    ) {
        walk(&payload);
    }

    #[test]
    fn a_damaged_packet_never_panics(
        all in prop::collection::vec(parts(), 1..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut payload: Vec<u8> = all.iter().flat_map(|parts| bytes_of(&parts.frame())).collect();
        for (at, byte) in damage {
            *at.get_mut(&mut payload) = byte;
        }
        walk(&payload);
    }

    #[test]
    fn a_malformed_ack_never_panics(
        ty in 2_u8..=3, numbers in prop::collection::vec(any_varint(), 0..40), small: bool,
    ) {
        let numbers: Vec<_> =
            numbers.into_iter().map(|n| if small { n % 70 } else { n }).collect();
        walk(&varints(ty, &numbers));
    }
}

/// Parses a payload as the engine does, and checks what the engine relies on.
fn walk(payload: &[u8]) {
    let mut r = Reader::new(payload);
    while !r.is_empty() {
        let before = r.position();
        match Frame::parse(&mut r) {
            Ok(frame) => {
                assert!(r.position() > before, "a frame takes at least one byte");
                let _ = format!("{frame:?} {}", frame.ty());
                if let Frame::Ack(ack) = frame {
                    assert_sound(&ack);
                }
                if let Frame::Stream(StreamFrame { offset, data, .. })
                | Frame::Crypto { offset, data } = frame
                {
                    assert!(offset + data.len() as u64 <= MAX_VARINT);
                }
                // Whatever was accepted can be said again.
                assert_eq!(parse_one(&bytes_of(&frame)), Ok(frame));
            }
            Err(error) => {
                let known = [ENCODING, TransportErrorCode::PROTOCOL_VIOLATION];
                assert!(known.contains(&error.code) && !error.to_string().is_empty());
                break;
            }
        }
    }
}

fn assert_sound(ack: &AckFrame<'_>) {
    let ranges: Vec<_> = ack.ranges().collect();
    assert_eq!(ranges.len() as u64, ack.range_count());
    assert_eq!(*ranges[0].end(), ack.largest);
    assert!(ranges.iter().all(|range| range.start() <= range.end()));
    assert!(
        ranges
            .windows(2)
            .all(|pair| pair[1].end() + 1 < *pair[0].start())
    );
}

mod malformed {
    use super::*;

    #[test]
    fn stream_data_must_end_at_2_to_the_62_minus_1() {
        // Type 0x0e: offset and length present.
        let mut bytes = varints(0x0e, &[4, MAX_VARINT - 3, 3]);
        bytes.extend([1, 2, 3]);
        assert!(parse_one(&bytes).is_ok());
        let mut bytes = varints(0x0e, &[4, MAX_VARINT - 2, 3]);
        bytes.extend([1, 2, 3]);
        assert_encoding_error(&bytes);
        // Type 0x0c: to the end of the packet.
        let mut bytes = varints(0x0c, &[4, MAX_VARINT]);
        assert!(parse_one(&bytes).is_ok());
        bytes.push(1);
        assert_encoding_error(&bytes);
    }

    #[test]
    fn crypto_data_must_end_at_2_to_the_62_minus_1() {
        let mut bytes = varints(0x06, &[MAX_VARINT, 1]);
        bytes.push(1);
        assert_encoding_error(&bytes);
        assert!(parse_one(&varints(0x06, &[MAX_VARINT, 0])).is_ok());
    }

    #[test]
    fn a_length_beyond_the_packet_is_refused() {
        for len in [4, 1000, 1 << 40, MAX_VARINT] {
            for mut bytes in [
                varints(0x0a, &[4, len]),
                varints(0x06, &[0, len]),
                varints(0x07, &[len]),
                varints(0x31, &[len]),
                varints(0x1c, &[0, 0, len]),
                varints(0x1d, &[0, len]),
            ] {
                bytes.extend([1, 2, 3]);
                assert_encoding_error(&bytes);
            }
        }
    }

    #[test]
    fn stream_counts_reach_2_to_the_60_and_no_further() {
        for ty in [0x12, 0x13, 0x16, 0x17] {
            assert!(parse_one(&varints(ty, &[MAX_STREAMS])).is_ok());
            assert_encoding_error(&varints(ty, &[MAX_STREAMS + 1]));
            assert_encoding_error(&varints(ty, &[MAX_VARINT]));
        }
    }

    #[test]
    fn an_empty_new_token_is_refused() {
        assert_encoding_error(&[0x07, 0]);
    }

    #[test]
    fn new_connection_ids_have_1_to_20_bytes_and_retire_only_older_ones() {
        let frame = |sequence, retire_prior_to, len: u8| {
            let mut bytes = varints(0x18, &[sequence, retire_prior_to]);
            bytes.push(len);
            bytes.extend(vec![1; usize::from(len)]);
            bytes.extend([2; 16]);
            bytes
        };
        for len in 1..=20 {
            assert!(parse_one(&frame(5, 5, len)).is_ok());
        }
        for len in [0, 21, 64, 255] {
            assert_encoding_error(&frame(5, 0, len));
        }
        assert_encoding_error(&frame(5, 6, 8));
        assert_encoding_error(&frame(0, MAX_VARINT, 8));
    }

    #[test]
    fn handshake_done_has_no_body_and_belongs_in_one_rtt() {
        // Refusing it from a client (RFC 9000 §19.20) needs the side: the engine's business.
        assert_eq!(parse_one(&[0x1e]), Ok(Frame::HandshakeDone));
        let places = PacketKind::ALL.map(|kind| FrameType::HANDSHAKE_DONE.permitted(kind));
        assert_eq!(places, [false, false, false, true]);
    }

    #[test]
    fn a_reliable_size_above_the_final_size_is_refused() {
        let frame = |final_size, reliable_size| varints(0x24, &[4, 9, final_size, reliable_size]);
        for size in [0, 1, 5000, MAX_VARINT] {
            assert!(parse_one(&frame(size, size)).is_ok());
            assert!(parse_one(&frame(MAX_VARINT, size)).is_ok());
        }
        for size in [0, 1, 5000, MAX_VARINT - 1] {
            assert_encoding_error(&frame(size, size + 1));
            assert_encoding_error(&frame(size, MAX_VARINT));
        }
    }

    #[test]
    fn frames_of_the_ack_frequency_extension_belong_in_one_rtt() {
        assert_eq!(parse_one(&[0x1f]), Ok(Frame::ImmediateAck));
        let bytes = [0x40, 0xaf, 7, 9, 0x80, 0, 0x61, 0xa8, 3];
        let frame = AckFrequencyFrame {
            sequence: 7,
            ack_eliciting_threshold: 9,
            requested_max_ack_delay: Duration::from_millis(25),
            reordering_threshold: 3,
        };
        assert_eq!(parse_one(&bytes), Ok(Frame::AckFrequency(frame)));
        for ty in [FrameType::IMMEDIATE_ACK, FrameType::ACK_FREQUENCY] {
            assert!(ty.ack_eliciting() && !ty.is_probing());
            let places = PacketKind::ALL.map(|kind| ty.permitted(kind));
            assert_eq!(places, [false, false, false, true], "{ty}");
        }
    }

    #[test]
    fn a_delay_finer_than_a_microsecond_or_beyond_all_range_is_cut() {
        for (delay, micros) in [(Duration::from_nanos(1999), 1), (Duration::MAX, MAX_VARINT)] {
            let frame = |requested_max_ack_delay| {
                Frame::AckFrequency(AckFrequencyFrame {
                    sequence: 0,
                    ack_eliciting_threshold: 0,
                    requested_max_ack_delay,
                    reordering_threshold: 0,
                })
            };
            let cut = frame(Duration::from_micros(micros));
            assert_eq!(parse_one(&bytes_of(&frame(delay))), Ok(cut));
        }
    }

    #[test]
    fn errors_say_the_frame_and_what_is_wrong() {
        let error = parse_one(&[0x07, 0]).expect_err("empty token");
        assert_eq!(
            error.to_string(),
            "FRAME_ENCODING_ERROR: NEW_TOKEN: empty token"
        );
    }
}

mod close {
    use super::*;

    #[test]
    fn a_long_reason_that_is_not_utf8_is_cut_and_made_readable() {
        let mut bytes = varints(0x1d, &[7, 65536]);
        bytes.extend(vec![0xff; 65536]);
        let Ok(Frame::ConnectionClose(close)) = parse_one(&bytes) else {
            panic!("a close")
        };
        assert!(close.is_application());
        assert_eq!(close.reason.len(), 65536);
        let text = close.reason_text();
        assert_eq!(text.chars().count(), CloseFrame::MAX_REASON_TEXT);
        assert!(text.chars().all(|c| c == char::REPLACEMENT_CHARACTER));
        assert_eq!(
            CloseFrame::application(0, "närå".as_bytes()).reason_text(),
            "närå"
        );
    }

    #[test]
    fn a_reason_that_just_fits_is_written_whole() {
        for len in (0..100).chain(16_380..16_390) {
            let reason = vec![b'x'; len];
            let frame = Frame::ConnectionClose(CloseFrame::application(1, &reason));
            assert_eq!(parse_one(&bytes_of(&frame)), Ok(frame));
        }
    }

    #[test]
    fn the_reason_is_cut_between_characters_when_the_packet_is_full() {
        let close = CloseFrame::transport(ENCODING, 0x08, "äöü".as_bytes());
        for room in 4..=10 {
            let mut buf = vec![0; room];
            let mut w = Writer::new(&mut buf);
            write_connection_close(&mut w, &close);
            assert!(!w.overflowed(), "{room}");
            let Ok(Frame::ConnectionClose(read)) = parse_one(w.written()) else {
                panic!("a close")
            };
            assert_eq!((read.error_code, read.frame_type), (0x07, Some(0x08)));
            assert_eq!(read.reason.len(), (room - 4) / 2 * 2);
            assert!("äöü".starts_with(&read.reason_text()));
        }
    }
}

mod headers {
    use super::*;

    proptest! {
        #[test]
        fn stream_headers_fill_a_packet_exactly(
            id in any_varint(), offset in any_varint(), fin: bool, room in 0_usize..20_000, whole: bool,
        ) {
            let id = StreamId::from_u64(id);
            let offset = offset.min(MAX_VARINT - 20_000);
            let mut buf = vec![0xee; room];
            let mut w = Writer::new(&mut buf);
            let len = match whole {
                true => room.checked_sub(stream_frame_header_len(id, offset, None)),
                false => stream_data_room(room, id, offset),
            };
            let Some(len) = len else {
                prop_assert!(room < STREAM_HEADER_MAX_LEN + 1);
                return Ok(());
            };
            let field = (!whole).then_some(len);
            write_stream_header(&mut w, id, offset, field, fin);
            prop_assert_eq!(w.len(), stream_frame_header_len(id, offset, field));
            prop_assert!(w.len() <= STREAM_HEADER_MAX_LEN);
            prop_assert!(w.reserve(len).is_some());
            // Bytes are lost only where the length field would grow.
            let most = if whole { 0 } else { 3 };
            prop_assert!(w.remaining() <= most);
            let used = w.len();
            let mut r = Reader::new(&buf[..used]);
            let read = Frame::parse(&mut r);
            prop_assert_eq!(
                read,
                Ok(Frame::Stream(StreamFrame { id, offset, fin, data: &buf[used - len..used] }))
            );
        }

        #[test]
        fn crypto_and_datagram_headers_fill_a_packet_exactly(
            offset in any_varint(), room in 0_usize..2000, whole: bool,
        ) {
            let offset = offset.min(MAX_VARINT - 2000);
            if let Some(len) = crypto_data_room(room, offset) {
                let mut buf = vec![0xee; room];
                let mut w = Writer::new(&mut buf);
                write_crypto_header(&mut w, offset, len);
                prop_assert_eq!(w.len(), crypto_frame_header_len(offset, len));
                prop_assert!(w.reserve(len).is_some() && w.remaining() <= 1);
                let used = w.len();
                let data = &buf[used - len..used];
                prop_assert_eq!(parse_one(&buf[..used]), Ok(Frame::Crypto { offset, data }));
            }
            let field = (!whole).then_some(room);
            let mut buf = vec![0xee; room + DATAGRAM_HEADER_MAX_LEN];
            let mut w = Writer::new(&mut buf);
            write_datagram_header(&mut w, field);
            prop_assert_eq!(w.len(), datagram_frame_header_len(field));
            prop_assert!(w.reserve(room).is_some());
            let used = w.len();
            let data = &buf[used - room..used];
            prop_assert_eq!(parse_one(&buf[..used]), Ok(Frame::Datagram { data }));
        }

        #[test]
        fn the_stated_maxima_hold(parts in parts()) {
            let frame = parts.frame();
            let max = match frame {
                Frame::Ping => PING_LEN,
                Frame::ResetStream { .. } => RESET_STREAM_MAX_LEN,
                Frame::ResetStreamAt { .. } => RESET_STREAM_AT_MAX_LEN,
                Frame::StopSending { .. } => STOP_SENDING_MAX_LEN,
                Frame::Crypto { data, .. } => CRYPTO_HEADER_MAX_LEN + data.len(),
                Frame::NewToken { token } => new_token_len(token.len()),
                Frame::Stream(stream) => STREAM_HEADER_MAX_LEN + stream.data.len(),
                Frame::MaxData(_) => MAX_DATA_MAX_LEN,
                Frame::MaxStreamData { .. } => MAX_STREAM_DATA_MAX_LEN,
                Frame::MaxStreams { .. } => MAX_STREAMS_MAX_LEN,
                Frame::DataBlocked(_) => DATA_BLOCKED_MAX_LEN,
                Frame::StreamDataBlocked { .. } => STREAM_DATA_BLOCKED_MAX_LEN,
                Frame::StreamsBlocked { .. } => STREAMS_BLOCKED_MAX_LEN,
                Frame::NewConnectionId(_) => NEW_CONNECTION_ID_MAX_LEN,
                Frame::RetireConnectionId { .. } => RETIRE_CONNECTION_ID_MAX_LEN,
                Frame::PathChallenge(_) => PATH_CHALLENGE_LEN,
                Frame::PathResponse(_) => PATH_RESPONSE_LEN,
                Frame::ConnectionClose(close) => CONNECTION_CLOSE_MAX_LEN + close.reason.len(),
                Frame::HandshakeDone => HANDSHAKE_DONE_LEN,
                Frame::Datagram { data } => DATAGRAM_HEADER_MAX_LEN + data.len(),
                Frame::AckFrequency(_) => ACK_FREQUENCY_MAX_LEN,
                Frame::ImmediateAck => IMMEDIATE_ACK_LEN,
                Frame::Padding { len } => len,
                Frame::Ack(_) => return Ok(()),
            };
            prop_assert!(bytes_of(&frame).len() <= max);
        }
    }

    #[test]
    fn data_room_is_the_largest_that_fits() {
        let id = StreamId::from_u64(0);
        for room in (0..200).chain(16_300..16_500) {
            let fits = |len| stream_frame_header_len(id, 0, Some(len)) + len <= room;
            let largest = (1..=room).rev().find(|len| fits(*len));
            assert_eq!(stream_data_room(room, id, 0), largest, "{room}");
        }
    }

    #[test]
    fn a_stream_frame_without_length_reaches_the_end_of_the_packet() {
        let bytes = [0x09, 0x04, 1, 2, 3];
        let Ok(Frame::Stream(stream)) = parse_one(&bytes) else {
            panic!("a STREAM")
        };
        assert_eq!(
            (stream.id.as_u64(), stream.offset, stream.fin, stream.data),
            (4, 0, true, &[1, 2, 3][..])
        );
    }

    #[test]
    fn padding_is_read_as_one_run() {
        let mut r = Reader::new(&[0, 0, 0, 1, 0]);
        assert_eq!(Frame::parse(&mut r), Ok(Frame::Padding { len: 3 }));
        assert_eq!(Frame::parse(&mut r), Ok(Frame::Ping));
        assert_eq!(Frame::parse(&mut r), Ok(Frame::Padding { len: 1 }));
    }
}
