use towline_wire::emit_varint;
use towline_wire::http3::{ErrorCode, MAX_CLOSE_MESSAGE_LEN};

use super::*;

fn bytes(capsules: &[Capsule<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for capsule in capsules {
        capsule.emit(&mut bytes);
    }
    bytes
}

fn raw(kind: u64, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit_varint(&mut bytes, kind);
    emit_varint(&mut bytes, value.len() as u64);
    bytes.extend_from_slice(value);
    bytes
}

/// All capsules of a stream that comes in parts of `size` bytes.
fn read(stream: &[u8], size: usize) -> Result<(Vec<Told>, CapsuleReader), CapsuleError> {
    let mut reader = CapsuleReader::default();
    let mut told = Vec::new();
    for part in stream.chunks(size) {
        let mut part = Bytes::copy_from_slice(part);
        while let Some(one) = reader.next(&mut part)? {
            told.push(one);
        }
        assert!(part.is_empty());
    }
    Ok((told, reader))
}

#[test]
fn capsules_are_read_in_parts_of_every_size() {
    let mut stream = bytes(&[
        Capsule::MaxData(1000),
        Capsule::DrainSession,
        Capsule::MaxStreams(Direction::Unidirectional, 7),
        Capsule::Datagram(b"abc"),
        Capsule::DataBlocked(5),
    ]);
    stream.extend(raw(0x1234, &[0; 300]));
    stream.extend(bytes(&[Capsule::CloseSession {
        code: 7,
        message: "bye",
    }]));
    let expected = [
        Told::MaxData(1000),
        Told::Drain,
        Told::MaxStreams(Direction::Unidirectional, 7),
        Told::Datagram(Bytes::from_static(b"abc")),
        Told::DataBlocked(5),
        Told::Close {
            code: 7,
            message: "bye".to_owned(),
        },
    ];
    for size in 1..=stream.len() {
        let (told, reader) = read(&stream, size).unwrap();
        assert_eq!(told, expected);
        assert!(!reader.is_inside());
    }
    let (_, reader) = read(&stream[..stream.len() - 1], 9).unwrap();
    assert!(reader.is_inside());
}

/// RFC 9297 §3.2: of an unknown capsule nothing is kept, however long it says it is.
#[test]
fn an_unknown_capsule_without_end_is_passed_over() {
    let mut stream = Vec::new();
    emit_varint(&mut stream, 0x1234);
    emit_varint(&mut stream, (1 << 62) - 1);
    let (told, mut reader) = read(&stream, 3).unwrap();
    assert!(told.is_empty());
    for _ in 0..1000 {
        let mut part = Bytes::from(vec![0; 4096]);
        assert_eq!(reader.next(&mut part), Ok(None));
        assert!(part.is_empty() && reader.header.is_empty());
        assert!(matches!(reader.state, State::Skip { .. }));
    }
}

#[test]
fn a_datagram_of_more_than_2048_bytes_in_a_capsule_is_dropped() {
    let most = MAX_CAPSULE_DATAGRAM as usize;
    for (len, count) in [(most, 1), (most + 1, 0)] {
        let stream = bytes(&[Capsule::Datagram(&vec![0; len])]);
        assert_eq!(read(&stream, 100).unwrap().0.len(), count);
    }
}

#[test]
fn malformed_capsules_are_refused_before_they_are_kept() {
    let close = CapsuleType::WT_CLOSE_SESSION.as_u64();
    let max_data = CapsuleType::WT_MAX_DATA.as_u64();
    let streams = CapsuleType::WT_MAX_STREAMS_BIDI.as_u64();
    let message = vec![b'a'; 4 + MAX_CLOSE_MESSAGE_LEN + 1];
    let cases = [
        (raw(close, &message), ErrorCode::H3_MESSAGE_ERROR),
        (raw(close, b"\0\0\0\0\xff"), ErrorCode::H3_MESSAGE_ERROR),
        (raw(close, b"\0"), ErrorCode::H3_DATAGRAM_ERROR),
        (raw(max_data, b""), ErrorCode::H3_DATAGRAM_ERROR),
        (raw(max_data, &[0; 9]), ErrorCode::H3_DATAGRAM_ERROR),
        (raw(streams, &[0xff; 8]), ErrorCode::WT_FLOW_CONTROL_ERROR),
        (raw(PROHIBITED[0], b"\0"), ErrorCode::H3_DATAGRAM_ERROR),
        (raw(PROHIBITED[1], b"\0"), ErrorCode::H3_DATAGRAM_ERROR),
    ];
    for (stream, code) in cases {
        let error = read(&stream, stream.len()).unwrap_err();
        assert_eq!(error.code(), code);
    }
}
