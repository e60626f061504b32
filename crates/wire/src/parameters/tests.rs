use super::*;
use proptest::prelude::*;

fn cid_of(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).expect("short enough")
}

fn parameter(id: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    emit_parameter(&mut out, id, value);
    out
}

fn integer_parameter(id: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit_varint(&mut bytes, value);
    parameter(id, &bytes)
}

fn parse_server(bytes: &[u8]) -> Result<TransportParameters, TransportParameterError> {
    TransportParameters::parse(bytes, Side::Server)
}

fn assert_refused(bytes: &[u8], id: u64) {
    let error = parse_server(bytes).expect_err("refused");
    assert_eq!(error.id, Some(id), "{error}");
}

/// A value for every parameter, far from the defaults.
fn everything() -> TransportParameters {
    TransportParameters {
        original_destination_connection_id: Some(cid_of(&[1; 8])),
        max_idle_timeout: Duration::from_secs(30),
        stateless_reset_token: Some(StatelessResetToken::new([2; 16])),
        max_udp_payload_size: 1472,
        initial_max_data: 1 << 20,
        initial_max_stream_data_bidi_local: 1001,
        initial_max_stream_data_bidi_remote: 1002,
        initial_max_stream_data_uni: 1003,
        initial_max_streams_bidi: MAX_STREAMS,
        initial_max_streams_uni: 3,
        ack_delay_exponent: 20,
        max_ack_delay: Duration::from_millis((1 << 14) - 1),
        disable_active_migration: true,
        preferred_address: Some(PreferredAddress {
            ipv4: Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 4433)),
            ipv6: Some(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 4434, 0, 0)),
            connection_id: cid_of(&[3; 20]),
            stateless_reset_token: StatelessResetToken::new([4; 16]),
        }),
        active_connection_id_limit: 8,
        initial_source_connection_id: Some(ConnectionId::EMPTY),
        retry_source_connection_id: Some(cid_of(&[5; 4])),
        max_datagram_frame_size: 65535,
        min_ack_delay: Some(Duration::from_micros(1001)),
        reset_stream_at: true,
        grease: None,
    }
}

fn encoded(parameters: &TransportParameters) -> Vec<u8> {
    let mut out = Vec::new();
    parameters.encode(&mut out);
    out
}

#[test]
fn every_parameter_comes_back() {
    let parameters = everything();
    assert_eq!(parse_server(&encoded(&parameters)), Ok(parameters));
}

#[test]
fn defaults_are_those_of_the_rfc_and_take_no_bytes() {
    let defaults = TransportParameters::default();
    assert_eq!(encoded(&defaults), []);
    assert_eq!(
        TransportParameters::parse(&[], Side::Client),
        Ok(defaults.clone())
    );
    assert_eq!(defaults.ack_delay_exponent, 3);
    assert_eq!(defaults.max_ack_delay, Duration::from_millis(25));
    assert_eq!(defaults.active_connection_id_limit, 2);
    assert_eq!(defaults.max_udp_payload_size, 65527);
}

#[test]
fn unknown_parameters_and_grease_are_ignored() {
    let greased = TransportParameters {
        grease: Some((31 * 7 + 27, vec![9; 11])),
        ..everything()
    };
    assert_eq!(parse_server(&encoded(&greased)), Ok(everything()));
    let mut bytes = parameter(0x11, &[1, 2, 3]);
    bytes.extend(parameter(MAX_VARINT, &[]));
    assert_eq!(parse_server(&bytes), Ok(TransportParameters::default()));
}

#[test]
fn either_parameter_for_reset_stream_at_is_enough_and_both_are_empty() {
    for id in [RESET_STREAM_AT, RESET_STREAM_AT_OLD] {
        assert!(parse_server(&parameter(id, &[])).unwrap().reset_stream_at);
        assert_refused(&parameter(id, &[0]), id);
    }
    assert!(!TransportParameters::default().reset_stream_at);
}

#[test]
fn any_parameter_sent_twice_is_refused() {
    let once = encoded(&everything());
    let mut r = Reader::new(&once);
    while !r.is_empty() {
        let id = r.varint().expect("our own encoding");
        let value = r.varint_bytes().expect("our own encoding");
        assert_refused(&[&once[..], &parameter(id, value)].concat(), id);
    }
    // Unknown ones too, whether or not they stand side by side.
    for id in [0x11, 63, 64, 1000, MAX_VARINT] {
        let (a, b) = (parameter(id, &[]), parameter(0x7777, &[1]));
        assert_refused(&[&a[..], &b, &a].concat(), id);
    }
}

#[test]
fn server_only_parameters_of_a_client_are_refused() {
    let defaults = TransportParameters::default;
    let all = everything();
    for (id, parameters) in [
        (
            0x00,
            TransportParameters {
                original_destination_connection_id: all.original_destination_connection_id,
                ..defaults()
            },
        ),
        (
            0x02,
            TransportParameters {
                stateless_reset_token: all.stateless_reset_token,
                ..defaults()
            },
        ),
        (
            0x0d,
            TransportParameters {
                preferred_address: all.preferred_address,
                ..defaults()
            },
        ),
        (
            0x10,
            TransportParameters {
                retry_source_connection_id: all.retry_source_connection_id,
                ..defaults()
            },
        ),
    ] {
        let bytes = encoded(&parameters);
        assert_eq!(parse_server(&bytes), Ok(parameters));
        let error = TransportParameters::parse(&bytes, Side::Client).expect_err("server only");
        assert_eq!((error.id, error.what), (Some(id), "sent by a client"));
    }
}

#[test]
fn values_out_of_range_are_refused_at_the_exact_limit() {
    for (id, good, bad) in [
        (MAX_UDP_PAYLOAD_SIZE, 1200, 1199),
        (INITIAL_MAX_STREAMS_BIDI, 1 << 60, (1 << 60) + 1),
        (INITIAL_MAX_STREAMS_UNI, 1 << 60, (1 << 60) + 1),
        (ACK_DELAY_EXPONENT, 20, 21),
        (MAX_ACK_DELAY, (1 << 14) - 1, 1 << 14),
        (ACTIVE_CONNECTION_ID_LIMIT, 2, 1),
    ] {
        assert!(
            parse_server(&integer_parameter(id, good)).is_ok(),
            "{id:#x}"
        );
        assert_refused(&integer_parameter(id, bad), id);
    }
    // An exponent that looks small in its low byte.
    assert_refused(
        &integer_parameter(ACK_DELAY_EXPONENT, 256 + 3),
        ACK_DELAY_EXPONENT,
    );
}

#[test]
fn an_integer_must_fill_its_value() {
    let below_64 = [
        0x01, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x20,
    ];
    for id in below_64.into_iter().chain([MIN_ACK_DELAY]) {
        for value in [&[][..], &[0x40], &[0x45, 0x00, 0x00], &[0xc0, 0, 0]] {
            assert_refused(&parameter(id, value), id);
        }
        // A longer form of the integer is no fault (RFC 9000 §16).
        let value = if id == 0x03 { 1400_u16 } else { 10 };
        let long = [&[0x80, 0][..], &value.to_be_bytes()].concat();
        assert!(parse_server(&parameter(id, &long)).is_ok(), "{id:#x}");
    }
}

#[test]
fn values_of_the_wrong_size_are_refused() {
    for len in [0, 15, 17] {
        assert_refused(
            &parameter(STATELESS_RESET_TOKEN, &vec![1; len]),
            STATELESS_RESET_TOKEN,
        );
    }
    assert_refused(
        &parameter(DISABLE_ACTIVE_MIGRATION, &[1]),
        DISABLE_ACTIVE_MIGRATION,
    );
    for id in [
        ORIGINAL_DESTINATION_CONNECTION_ID,
        INITIAL_SOURCE_CONNECTION_ID,
        RETRY_SOURCE_CONNECTION_ID,
    ] {
        assert!(parse_server(&parameter(id, &[1; 20])).is_ok());
        assert_refused(&parameter(id, &[1; 21]), id);
    }
}

#[test]
fn preferred_address_must_be_whole_with_a_connection_id_of_1_to_20_bytes() {
    let value = |cid_len: u8, behind: usize| {
        let mut value = vec![1; 24];
        value.push(cid_len);
        value.extend(vec![2; usize::from(cid_len) + 16 + behind]);
        value
    };
    assert!(parse_server(&parameter(PREFERRED_ADDRESS, &value(20, 0))).is_ok());
    for wrong in [value(0, 0), value(21, 0), value(8, 1)] {
        assert_refused(&parameter(PREFERRED_ADDRESS, &wrong), PREFERRED_ADDRESS);
    }
    let whole = value(8, 0);
    for len in 0..whole.len() {
        assert_refused(
            &parameter(PREFERRED_ADDRESS, &whole[..len]),
            PREFERRED_ADDRESS,
        );
    }
}

#[test]
fn an_all_zero_preferred_address_is_none_of_its_family() {
    let preferred = everything()
        .preferred_address
        .map(|p| PreferredAddress { ipv6: None, ..p });
    let parameters = TransportParameters {
        preferred_address: preferred,
        ..TransportParameters::default()
    };
    assert_eq!(parse_server(&encoded(&parameters)), Ok(parameters));
}

#[test]
fn truncation_anywhere_inside_a_parameter_is_refused() {
    let bytes = encoded(&everything());
    let mut boundaries = vec![0];
    let mut r = Reader::new(&bytes);
    while !r.is_empty() {
        let _ = r.varint();
        let _ = r.varint_bytes();
        boundaries.push(r.position());
    }
    for len in 0..bytes.len() {
        assert_eq!(
            parse_server(&bytes[..len]).is_ok(),
            boundaries.contains(&len),
            "{len}"
        );
    }
}

#[test]
fn more_than_a_tls_extension_holds_is_refused_at_once() {
    let fits = parameter(0x7777, &vec![0; MAX_TRANSPORT_PARAMETERS_LEN - 8]);
    assert_eq!(fits.len(), MAX_TRANSPORT_PARAMETERS_LEN);
    assert!(parse_server(&fits).is_ok());
    let error = parse_server(&vec![0; MAX_TRANSPORT_PARAMETERS_LEN + 1]).expect_err("too long");
    assert_eq!(error.id, None);
}

#[test]
fn huge_durations_survive() {
    let parameters = parse_server(&integer_parameter(MAX_IDLE_TIMEOUT, MAX_VARINT));
    let parameters = parameters.expect("a large timeout is legal");
    assert_eq!(
        parameters.max_idle_timeout,
        Duration::from_millis(MAX_VARINT)
    );
    assert_eq!(parse_server(&encoded(&parameters)), Ok(parameters));
    let own = TransportParameters {
        max_idle_timeout: Duration::MAX,
        max_ack_delay: Duration::MAX,
        ..TransportParameters::default()
    };
    let read = parse_server(&encoded(&own)).expect("clamped into range");
    assert_eq!(read.max_ack_delay, Duration::from_millis((1 << 14) - 1));
}

#[test]
fn min_ack_delay_in_microseconds_must_not_exceed_max_ack_delay_in_milliseconds() {
    // Where max_ack_delay is absent its default of 25 ms counts, in either order otherwise.
    assert_eq!(
        parse_server(&integer_parameter(MIN_ACK_DELAY, 25_000)).map(|p| p.min_ack_delay),
        Ok(Some(Duration::from_millis(25)))
    );
    for above in [25_001, MAX_VARINT] {
        assert_refused(&integer_parameter(MIN_ACK_DELAY, above), MIN_ACK_DELAY);
    }
    let max = integer_parameter(MAX_ACK_DELAY, 40);
    for (min, good) in [(0, true), (40_000, true), (40_001, false)] {
        let min = integer_parameter(MIN_ACK_DELAY, min);
        for bytes in [[&min[..], &max].concat(), [&max[..], &min].concat()] {
            assert_eq!(parse_server(&bytes).is_ok(), good);
        }
    }
    let own = TransportParameters {
        min_ack_delay: Some(Duration::MAX),
        ..TransportParameters::default()
    };
    let read = parse_server(&encoded(&own)).expect("clamped into range");
    assert_eq!(read.min_ack_delay, Some(Duration::from_millis(25)));
}

#[test]
fn errors_say_the_parameter_and_what_is_wrong() {
    let error = parse_server(&integer_parameter(ACTIVE_CONNECTION_ID_LIMIT, 1));
    assert_eq!(
        error.expect_err("refused").to_string(),
        "transport parameter 0xe: below 2"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..0x21], 0..300),
    ) {
        for side in [Side::Client, Side::Server] {
            if let Ok(parameters) = TransportParameters::parse(&bytes, side) {
                prop_assert_eq!(TransportParameters::parse(&encoded(&parameters), side), Ok(parameters));
            }
        }
    }

    #[test]
    fn damaged_parameters_never_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = encoded(&everything());
        for (at, byte) in damage {
            *at.get_mut(&mut bytes) = byte;
        }
        if let Ok(parameters) = parse_server(&bytes) {
            prop_assert_eq!(parse_server(&encoded(&parameters)), Ok(parameters));
        }
    }
}
