use super::*;

fn data(range: Range<u64>) -> Bytes {
    range.map(|i| i as u8).collect()
}

/// The two ends of a relay can be one attacker: regions arrive from the top down, each first as
/// islands, which the slow reader takes, then what lies between, which it never comes to.
#[test]
fn a_reader_that_leaves_out_what_lies_between_is_waited_for() {
    let (mut payload, reader) = Payload::new(None);
    let region = 512;
    let mut handed_in = 0;
    let mut full = false;
    for start in (0..200).rev().map(|i| 1000 + i * region) {
        for offset in (start..start + region).step_by(2) {
            full |= payload.room_below(u64::MAX) == 0;
            if full {
                break;
            }
            payload
                .handle_data(offset, data(offset..offset + 1))
                .unwrap();
            let Found::Unless { otherwise, .. } = payload.find_fragment(reader) else {
                panic!("an island is not at the reader's position");
            };
            let (at, bytes) = otherwise.unwrap();
            assert_eq!((at, bytes), (offset, data(offset..offset + 1)));
            payload.on_had(reader, at..at + 1);
        }
        for offset in (start + 1..start + region).step_by(2) {
            full |= payload.room_below(u64::MAX) == 0;
            if !full {
                payload
                    .handle_data(offset, data(offset..offset + 1))
                    .unwrap();
                handed_in += 1;
            }
        }
        assert!(payload.held().0 <= MAX_MESSAGE_PIECES);
    }
    assert!(full);
    assert_eq!(payload.held(), (handed_in, handed_in));
    // It goes on, and there is room again for those that waited.
    let Found::Unless { otherwise, .. } = payload.find_fragment(reader) else {
        panic!("what lay between is here");
    };
    let (at, bytes) = otherwise.unwrap();
    assert!(payload.on_had(reader, at..at + bytes.len() as u64));
    assert_eq!(payload.room_below(u64::MAX), MAX_MESSAGE_BUFFER);
}

#[test]
fn a_head_is_read_byte_by_byte_and_not_beyond() {
    let mut bytes = Vec::new();
    let header = towline_wire::MessageHeader {
        metadata_len: 2,
        length: Some(1 << 40),
    };
    header.emit(&mut bytes);
    let fields = bytes.len();
    bytes.extend_from_slice(b"mn");
    let mut reader = HeadReader::default();
    for (i, byte) in bytes.iter().enumerate() {
        assert_eq!(
            reader.missing(),
            Ok(if i < fields { 1 } else { 2 + fields - i })
        );
        reader.handle_data(&[*byte]);
    }
    assert_eq!(reader.missing(), Ok(0));
    let head = reader.finish().unwrap();
    assert_eq!(
        (&head.metadata[..], head.length),
        (&b"mn"[..], Some(1 << 40))
    );
    assert_eq!(head.len, bytes.len() as u64);
}
