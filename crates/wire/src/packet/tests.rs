use super::*;
use crate::cursor::{MAX_VARINT, Writer};
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits"))
        .collect()
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).expect("short enough")
}

/// A v1 long header up to the source connection ID.
fn long_start(first: u8, version: u32, dcid: &[u8], scid: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend_from_slice(&version.to_be_bytes());
    for cid in [dcid, scid] {
        bytes.push(cid.len() as u8);
        bytes.extend_from_slice(cid);
    }
    bytes
}

mod packet_numbers {
    use super::*;

    /// Every congruent number is tried: the winner lies in (expected - window/2,
    /// expected + window/2], or nearest to it inside 0..=2^62-1.
    fn closest(truncated: u64, len: usize, largest: Option<u64>) -> u64 {
        let window = 1_i128 << (8 * len);
        let expected = largest.map_or(0, |largest| i128::from(largest) + 1);
        let base = expected - expected % window + i128::from(truncated);
        [base - window, base, base + window]
            .into_iter()
            .filter(|pn| (0..=i128::from(MAX_VARINT)).contains(pn))
            .min_by_key(|pn| ((pn - expected).abs(), -pn))
            .and_then(|pn| u64::try_from(pn).ok())
            .expect("one candidate is valid")
    }

    #[test]
    fn the_example_of_rfc_9000_appendix_a3_decodes() {
        assert_eq!(
            decode_packet_number(0x9b32, 2, Some(0xa82f_30ea)),
            0xa82f_9b32
        );
    }

    #[test]
    fn the_examples_of_rfc_9000_appendix_a2_choose_16_and_24_bits() {
        assert_eq!(packet_number_len(0x00ac_5c02, Some(0x00ab_e8b3)), 2);
        assert_eq!(packet_number_len(0x00ac_e8fe, Some(0x00ab_e8b3)), 3);
    }

    #[test]
    fn one_byte_decodes_right_around_every_edge() {
        let edges = (0..1100)
            .chain(MAX_VARINT - 1100..=MAX_VARINT)
            .map(Some)
            .chain([None]);
        for largest in edges {
            for truncated in 0..256 {
                assert_eq!(
                    decode_packet_number(truncated, 1, largest),
                    closest(truncated, 1, largest),
                    "truncated {truncated}, largest {largest:?}"
                );
            }
        }
    }

    #[test]
    fn longer_numbers_decode_right_around_every_edge() {
        const NEAR: u64 = 12;
        for len in 2..=4 {
            let window = 1_u64 << (8 * len);
            let around = |at: u64| at.saturating_sub(NEAR)..=at.saturating_add(NEAR);
            let edges = [0, 1, 2, 3, 4, 6, 9].map(|halves| halves * window / 2);
            let high = [0, 1, 2, 3].map(|halves| MAX_VARINT - halves * window / 2);
            for largest in edges.into_iter().chain(high).flat_map(around) {
                let largest = largest.min(MAX_VARINT);
                let at = (largest + 1) % window;
                let truncated = [0, at, window / 2, (at + window / 2) % window, window - 1];
                for truncated in truncated
                    .into_iter()
                    .flat_map(around)
                    .filter(|t| *t < window)
                {
                    for largest in [Some(largest), None] {
                        assert_eq!(
                            decode_packet_number(truncated, len, largest),
                            closest(truncated, len, largest),
                            "truncated {truncated:#x}, {len} bytes, largest {largest:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_packet_number_survives_every_length() {
        for len in 1..=4 {
            let mask = (1 << (8 * len)) - 1;
            for back in 1..100 {
                let largest = Some(MAX_VARINT - back);
                assert_eq!(
                    decode_packet_number(MAX_VARINT & mask, len, largest),
                    MAX_VARINT
                );
            }
            // Nothing follows the last number, so what comes is an old packet.
            assert_eq!(
                decode_packet_number(0, len, Some(MAX_VARINT)),
                MAX_VARINT - mask,
                "{len} bytes"
            );
        }
        // A caller's nonsense doesn't overflow either.
        assert!(decode_packet_number(5, 1, Some(u64::MAX)) <= MAX_VARINT);
    }

    #[test]
    fn length_grows_when_twice_the_packets_in_flight_no_longer_fit() {
        for (len, limit) in [(1, 1_u64 << 7), (2, 1 << 15), (3, 1 << 23)] {
            for acked in [0, 1000, MAX_VARINT - (1 << 40)] {
                assert_eq!(packet_number_len(acked + limit - 1, Some(acked)), len);
                assert_eq!(packet_number_len(acked + limit, Some(acked)), len + 1);
            }
            assert_eq!(packet_number_len(limit - 2, None), len);
            assert_eq!(packet_number_len(limit - 1, None), len + 1);
        }
        assert_eq!(packet_number_len(0, None), 1);
        assert_eq!(packet_number_len(MAX_VARINT, Some(0)), 4);
    }

    proptest! {
        #[test]
        fn a_peer_that_received_any_packet_since_the_acked_one_decodes_ours(
            acked in proptest::option::of(0..MAX_VARINT - (1 << 31)),
            distance in 0_u64..(1 << 31) - 1,
            shift in 0_u32..31,
            received in any::<u64>(),
        ) {
            let first = acked.map_or(0, |acked| acked + 1);
            let pn = first + (distance >> shift);
            let len = packet_number_len(pn, acked);
            let truncated = pn & ((1 << (8 * len)) - 1);
            let largest = match pn - first {
                0 => acked,
                n => Some(first + received % n),
            };
            prop_assert_eq!(decode_packet_number(truncated, len, largest), pn);
            prop_assert_eq!(decode_packet_number(truncated, len, acked), pn);
        }

        #[test]
        fn decoding_agrees_with_the_closest_candidate(
            truncated in any::<u64>(), len in 1_usize..=4, largest in 0..=MAX_VARINT, shift in 0_u32..62,
        ) {
            let truncated = truncated & ((1 << (8 * len)) - 1);
            let largest = Some(largest >> shift);
            prop_assert_eq!(
                decode_packet_number(truncated, len, largest),
                closest(truncated, len, largest)
            );
        }
    }

    #[test]
    fn truncated_number_is_big_endian_and_at_most_four_bytes() {
        assert_eq!(truncated_packet_number(&[]), 0);
        assert_eq!(truncated_packet_number(&[1, 2]), 0x0102);
        assert_eq!(truncated_packet_number(&[1, 2, 3, 4, 5]), 0x0102_0304);
    }
}

mod emitting {
    use super::*;

    #[test]
    fn client_initial_header_equals_rfc_9001_appendix_a2() {
        let mut buf = [0; 64];
        let mut w = Writer::new(&mut buf);
        let dcid = hex("8394c8f03e515708");
        let slot = write_long_header(&mut w, LongType::Initial, QUIC_V1, &dcid, &[], &[], 2, 4);
        slot.patch(w.written_mut(), 1182);
        assert_eq!(
            w.written(),
            hex("c300000001088394c8f03e5157080000449e00000002")
        );
        assert_eq!(w.len(), long_header_len(LongType::Initial, 8, 0, 0, 4));
        assert_eq!(slot.pn_offset(), w.len() - 4);
    }

    #[test]
    fn server_initial_header_equals_rfc_9001_appendix_a3() {
        let mut buf = [0; 64];
        let mut w = Writer::new(&mut buf);
        let scid = hex("f067a5502a4262b5");
        let slot = write_long_header(&mut w, LongType::Initial, QUIC_V1, &[], &scid, &[], 1, 2);
        slot.patch(w.written_mut(), 0x75);
        assert_eq!(w.written(), hex("c1000000010008f067a5502a4262b50040750001"));
    }

    /// A Handshake packet whose header is written into a buffer of `size` bytes, all of which
    /// it fills: the Length field read back, and its bytes.
    fn length_of_a_packet_that_fills(size: usize) -> (usize, usize) {
        let mut buf = vec![0xee; size];
        let mut w = Writer::new(&mut buf);
        let slot = write_long_header(
            &mut w,
            LongType::Handshake,
            QUIC_V1,
            &[1; 8],
            &[2; 8],
            &[],
            7,
            2,
        );
        assert_eq!(slot.pn_offset() + 2, w.len());
        slot.patch(&mut buf, size - slot.pn_offset());
        let Ok(Header::Long { pn_offset, end, .. }) = parse_header(&buf, 8) else {
            panic!("a long header");
        };
        assert_eq!((pn_offset, end), (slot.pn_offset(), size));
        (size - pn_offset, pn_offset - (1 + 4 + 1 + 8 + 1 + 8))
    }

    #[test]
    fn length_gets_as_many_bytes_as_the_buffer_may_need() {
        for size in (60..2000).chain(16_300..16_500).chain(65_400..65_536) {
            let (length, bytes) = length_of_a_packet_that_fills(size);
            assert!(bytes == 2 || bytes == 4 && size > 16_383, "{size}");
            assert!(length < 1 << 14 || bytes == 4, "{size}");
        }
        assert_eq!(length_of_a_packet_that_fills(1200).1, 2);
    }

    #[test]
    fn a_patched_length_is_any_that_the_field_holds() {
        for (size, bytes) in [(16_383, 2), (70_000, 4)] {
            let mut buf = vec![0xee; size];
            let mut w = Writer::new(&mut buf);
            let slot = write_long_header(&mut w, LongType::Handshake, QUIC_V1, &[], &[], &[], 7, 1);
            let most = if bytes == 2 { 1 << 14 } else { 1 << 17 };
            for length in 0..most {
                slot.patch(&mut buf, length);
                let mut r = Reader::new(&buf[7..slot.pn_offset()]);
                assert_eq!((r.varint(), r.remaining()), (Ok(length as u64), 0));
            }
            assert_eq!(slot.pn_offset(), 7 + bytes);
        }
    }

    #[test]
    fn short_header_equals_rfc_9001_appendix_a5() {
        let mut buf = [0; 8];
        let mut w = Writer::new(&mut buf);
        let pn_offset = write_short_header(&mut w, &[], 654_360_564, 3, false, false);
        assert_eq!((w.written(), pn_offset), (&hex("4200bff4")[..], 1));
    }

    #[test]
    fn short_header_flags_and_lengths() {
        for (spin, key_phase, first) in [
            (false, false, 0x40),
            (true, false, 0x60),
            (false, true, 0x44),
            (true, true, 0x64),
        ] {
            for pn_len in 1..=4 {
                let mut buf = [0; 32];
                let mut w = Writer::new(&mut buf);
                write_short_header(&mut w, &[9; 8], 0x0102_0304, pn_len, spin, key_phase);
                assert_eq!(w.len(), short_header_len(8, pn_len));
                let (head, pn) = w.written().split_at(9);
                assert_eq!(head, [&[first | (pn_len as u8 - 1)][..], &[9; 8]].concat());
                assert_eq!(pn, &[1, 2, 3, 4][4 - pn_len..]);
                assert_eq!(head[0] & SHORT_RESERVED_BITS, 0);
            }
        }
    }

    #[test]
    fn a_header_that_does_not_fit_overflows_without_panic() {
        for room in 0..30 {
            let mut buf = vec![0; room];
            let mut w = Writer::new(&mut buf);
            let slot = write_long_header(
                &mut w,
                LongType::Initial,
                QUIC_V1,
                &[1; 8],
                &[2; 8],
                &[3; 9],
                7,
                2,
            );
            assert!(w.overflowed());
            slot.patch(w.written_mut(), 100);
        }
    }

    #[test]
    fn retry_equals_rfc_9001_appendix_a4() {
        let whole = hex("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
        let Ok(Header::Retry {
            version,
            dcid,
            scid,
            token,
            integrity_tag,
            whole: without_tag,
        }) = parse_header(&whole, 0)
        else {
            panic!("a Retry");
        };
        assert_eq!(
            (version, dcid, scid),
            (1, ConnectionId::EMPTY, cid(&hex("f067a5502a4262b5")))
        );
        assert_eq!(token, b"token");
        assert_eq!(integrity_tag[..], hex("04a265ba2eff4d829058fb3f0f2496ba"));
        assert_eq!(without_tag, &whole[..whole.len() - 16]);

        let mut ours = Vec::new();
        emit_retry(&mut ours, QUIC_V1, &dcid, &scid, token);
        // The low four bits of the first byte are free.
        assert_eq!((ours[0], &ours[1..]), (0xf0, &without_tag[1..]));
        let pseudo = retry_pseudo_packet(&hex("8394c8f03e515708"), without_tag);
        assert_eq!(pseudo[..9], hex("088394c8f03e515708"));
        assert_eq!(&pseudo[9..], without_tag);
    }

    #[test]
    fn version_negotiation_comes_back() {
        for random in [0, 0x3f, 0xff] {
            let mut buf = Vec::new();
            emit_version_negotiation(&mut buf, random, &[1; 255], &[], &[QUIC_V1, 0x1a2a_3a4a]);
            assert_eq!(buf[0] & 0xc0, 0xc0);
            let Ok(Header::VersionNegotiation {
                dcid,
                scid,
                versions,
            }) = parse_header(&buf, 8)
            else {
                panic!("a Version Negotiation");
            };
            assert_eq!((dcid, scid), (&[1; 255][..], &[][..]));
            assert_eq!(versions.iter().collect::<Vec<_>>(), [1, 0x1a2a_3a4a]);
            assert!(versions.contains(QUIC_V1) && !versions.contains(2));
        }
    }

    proptest! {
        #[test]
        fn long_headers_come_back(
            kind in prop::sample::select(vec![LongType::Initial, LongType::ZeroRtt, LongType::Handshake]),
            dcid in prop::collection::vec(any::<u8>(), 0..=20),
            scid in prop::collection::vec(any::<u8>(), 0..=20),
            token in prop::collection::vec(any::<u8>(), 0..100),
            pn in 0..=MAX_VARINT, pn_len in 1_usize..=4, payload in 20_usize..2000, behind in 0_usize..50,
        ) {
            let mut buf = vec![0xee; 4000];
            let mut w = Writer::new(&mut buf);
            let slot = write_long_header(&mut w, kind, QUIC_V1, &dcid, &scid, &token, pn, pn_len);
            let written = w.len();
            let initial = kind == LongType::Initial;
            prop_assert_eq!(written, long_header_len(kind, dcid.len(), scid.len(), token.len(), pn_len));
            prop_assert_eq!(slot.pn_offset(), written - pn_len);
            slot.patch(&mut buf, pn_len + payload);
            let first_byte = buf[0];
            prop_assert_eq!(first_byte & LONG_RESERVED_BITS, 0);
            prop_assert_eq!(usize::from(first_byte & PACKET_NUMBER_LEN_BITS) + 1, pn_len);
            let bytes = &buf[..written + payload + behind];
            prop_assert_eq!(peek_dcid(bytes, 3), Ok(&dcid[..]));
            prop_assert_eq!(parse_header(bytes, 3), Ok(Header::Long {
                kind,
                version: QUIC_V1,
                dcid: cid(&dcid),
                scid: cid(&scid),
                token: if initial { &token } else { &[] },
                first: first_byte,
                pn_offset: slot.pn_offset(),
                end: written + payload,
            }));
            let pn_bytes = &bytes[slot.pn_offset()..written];
            prop_assert_eq!(truncated_packet_number(pn_bytes), pn & ((1 << (8 * pn_len)) - 1));
        }

        #[test]
        fn short_headers_come_back(
            dcid in prop::collection::vec(any::<u8>(), 0..=20),
            pn in 0..=MAX_VARINT, pn_len in 1_usize..=4, spin: bool, key_phase: bool,
        ) {
            let mut buf = vec![0; 100];
            let mut w = Writer::new(&mut buf);
            let pn_offset = write_short_header(&mut w, &dcid, pn, pn_len, spin, key_phase);
            let first = buf[0];
            prop_assert_eq!(peek_dcid(&buf, dcid.len()), Ok(&dcid[..]));
            prop_assert_eq!(
                parse_header(&buf, dcid.len()),
                Ok(Header::Short { dcid: cid(&dcid), first, pn_offset, end: 100 })
            );
        }
    }
}

mod malformed {
    use super::*;

    #[test]
    fn nothing_and_one_byte_are_too_little() {
        assert_eq!(parse_header(&[], 0), Err(HeaderError::UnexpectedEnd));
        assert_eq!(peek_dcid(&[], 0), Err(HeaderError::UnexpectedEnd));
        for first in 0..=255 {
            assert!(parse_header(&[first], 0).is_err());
            assert!(parse_header(&[first], 8).is_err());
        }
    }

    #[test]
    fn fixed_bit_zero_is_refused_in_v1() {
        let mut long = long_start(0x80, QUIC_V1, &[1; 8], &[2; 8]);
        long.extend([0; 1200]);
        assert_eq!(parse_header(&long, 8), Err(HeaderError::FixedBitZero));
        assert_eq!(parse_header(&[0; 100], 8), Err(HeaderError::FixedBitZero));
        assert_eq!(peek_dcid(&[0x3f; 100], 8), Err(HeaderError::FixedBitZero));
        // Other versions may use the bit as they like (RFC 8999).
        let other = long_start(0x80, 0xbabababa, &[1; 8], &[2; 8]);
        assert!(matches!(
            parse_header(&other, 8),
            Ok(Header::UnknownVersion { .. })
        ));
    }

    #[test]
    fn short_connection_id_of_a_first_initial_is_seen_as_it_is() {
        // Dropping it (RFC 9000 §7.2) is the engine's business: only a first Initial is meant.
        let mut bytes = long_start(0xc0, QUIC_V1, &[1; 7], &[]);
        bytes.extend([0, 0x40, 20]);
        bytes.extend([0; 20]);
        let Ok(Header::Long { dcid, .. }) = parse_header(&bytes, 8) else {
            panic!("a long header")
        };
        assert_eq!(dcid.len(), 7);
    }

    #[test]
    fn connection_ids_beyond_20_bytes_are_refused_in_v1_only() {
        for (dcid, scid) in [(21, 0), (0, 21), (255, 255)] {
            let (dcid, scid) = (vec![1; dcid], vec![2; scid]);
            for first in [0xc0, 0xd0, 0xe0, 0xf0] {
                let mut bytes = long_start(first, QUIC_V1, &dcid, &scid);
                bytes.extend([0; 1200]);
                assert_eq!(
                    parse_header(&bytes, 8),
                    Err(HeaderError::ConnectionIdTooLong)
                );
            }
            let bytes = long_start(0xc0, 2, &dcid, &scid);
            assert_eq!(
                parse_header(&bytes, 8),
                Ok(Header::UnknownVersion {
                    version: 2,
                    dcid: &dcid,
                    scid: &scid
                })
            );
            assert_eq!(peek_dcid(&bytes, 8), Ok(&dcid[..]));
        }
        // A length of our own that no v1 ID can have is refused, not a panic.
        assert_eq!(
            parse_header(&[0x40; 100], 21),
            Err(HeaderError::ConnectionIdTooLong)
        );
    }

    #[test]
    fn unknown_version_needs_the_invariant_fields_only() {
        let bytes = long_start(0xff, 0x1a2a_3a4a, &[1; 8], &[2; 3]);
        assert!(matches!(
            parse_header(&bytes, 8),
            Ok(Header::UnknownVersion {
                version: 0x1a2a_3a4a,
                ..
            })
        ));
        for len in 0..bytes.len() {
            assert_eq!(
                parse_header(&bytes[..len], 8),
                Err(HeaderError::UnexpectedEnd)
            );
        }
    }

    #[test]
    fn version_list_must_hold_whole_versions_and_at_least_one() {
        for trailing in [0, 1, 2, 3, 5, 7] {
            let mut bytes = long_start(0xc0, 0, &[1; 8], &[2; 8]);
            bytes.extend(vec![9; trailing]);
            assert_eq!(
                parse_header(&bytes, 8),
                Err(HeaderError::MalformedVersionList)
            );
        }
    }

    #[test]
    fn length_beyond_the_datagram_is_refused() {
        for length in [&[0x40, 61][..], &[0x7f, 0xff], &[0xff; 8], &[0x80, 0, 1, 0]] {
            let mut bytes = long_start(0xe0, QUIC_V1, &[1; 8], &[2; 8]);
            bytes.extend_from_slice(length);
            bytes.extend([0; 60]);
            assert_eq!(parse_header(&bytes, 8), Err(HeaderError::UnexpectedEnd));
        }
    }

    #[test]
    fn token_beyond_the_datagram_is_refused() {
        for length in [&[0x40, 61][..], &[0xff; 8], &[0xc0]] {
            let mut bytes = long_start(0xc0, QUIC_V1, &[1; 8], &[2; 8]);
            bytes.extend_from_slice(length);
            assert_eq!(parse_header(&bytes, 8), Err(HeaderError::UnexpectedEnd));
        }
    }

    #[test]
    fn packet_too_short_to_sample_is_refused_and_tells_where_the_next_starts() {
        for length in 0..60_u8 {
            let mut bytes = long_start(0xe0, QUIC_V1, &[1; 8], &[2; 8]);
            bytes.push(length);
            let pn_offset = bytes.len();
            bytes.extend([0; 60]);
            let end = pn_offset + usize::from(length);
            match parse_header(&bytes, 8) {
                Ok(Header::Long { end: found, .. }) => {
                    assert!(length >= 20);
                    assert_eq!(found, end);
                }
                Err(error) => {
                    assert!(length < 20);
                    assert_eq!(error, HeaderError::SampleTooShort { end });
                }
                other => panic!("{other:?}"),
            }
        }
        for len in 9..40 {
            let result = parse_header(&[0x40; 40][..len], 8);
            assert_eq!(result.is_ok(), len >= 9 + 20, "{len}: {result:?}");
        }
    }

    #[test]
    fn retry_needs_a_token_and_a_tag() {
        let start = long_start(0xf0, QUIC_V1, &[1; 8], &[2; 8]);
        for behind in 0..20 {
            let bytes = [&start[..], &vec![7; behind]].concat();
            let result = parse_header(&bytes, 8);
            match behind {
                0..16 => assert_eq!(result, Err(HeaderError::UnexpectedEnd)),
                16 => assert_eq!(result, Err(HeaderError::EmptyRetryToken)),
                _ => assert!(matches!(result, Ok(Header::Retry { .. }))),
            }
        }
    }

    /// What the engine relies on when it slices.
    fn check(bytes: &[u8], local_cid_len: usize) {
        let _ = peek_dcid(bytes, local_cid_len);
        match parse_header(bytes, local_cid_len) {
            Ok(
                header @ (Header::Short { pn_offset, end, .. }
                | Header::Long { pn_offset, end, .. }),
            ) => {
                assert!(pn_offset + MIN_PROTECTED_LEN <= end && end <= bytes.len());
                assert_eq!(peek_dcid(bytes, local_cid_len), Ok(header.dcid()));
                assert!(header.kind().is_some());
            }
            Ok(header) => {
                assert_eq!(peek_dcid(bytes, local_cid_len), Ok(header.dcid()));
                assert_eq!(header.kind(), None);
            }
            Err(HeaderError::SampleTooShort { end }) => assert!(end <= bytes.len() && end > 0),
            Err(_) => {}
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn random_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400), local_cid_len in 0_usize..30,
        ) {
            check(&bytes, local_cid_len);
        }

        #[test]
        fn a_plausible_start_and_random_bytes_never_panic(
            first in 0x80_u8..=0xff,
            version in prop::sample::select(vec![0, 1, 2, 0x1a2a_3a4a]),
            dcid in prop::collection::vec(any::<u8>(), 0..25),
            scid in prop::collection::vec(any::<u8>(), 0..25),
            rest in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..64], 0..100),
            cut in 0_usize..150,
        ) {
            let mut bytes = long_start(first, version, &dcid, &scid);
            bytes.extend_from_slice(&rest);
            check(&bytes, 8);
            check(&bytes[..cut.min(bytes.len())], 8);
        }
    }
}
