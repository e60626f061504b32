use super::*;
use proptest::prelude::*;

fn emitted(header: MessageHeader) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&mut out);
    out
}

#[test]
fn the_format_is_what_the_page_says() {
    let known = MessageHeader {
        metadata_len: 3,
        length: Some(1000),
    };
    assert_eq!(emitted(known), [0x6d, 0x4d, 3, 0x43, 0xe8]);
    let unknown = MessageHeader {
        metadata_len: 0,
        length: None,
    };
    assert_eq!(emitted(unknown), [0x6d, 0x4c, 0]);
}

#[test]
fn other_streams_and_endless_metadata_are_refused_as_soon_as_they_show() {
    let unknown = |kind| Err(MessageHeaderError::UnknownType(kind));
    assert_eq!(MessageHeader::parse(&[0]), unknown(0));
    assert_eq!(MessageHeader::parse(&[0x6d, 0x4e]), unknown(0x2d4e));
    let mut long = vec![0x6d, 0x4d];
    emit_varint(&mut long, MAX_MESSAGE_METADATA as u64 + 1);
    let error = MessageHeaderError::MetadataTooLong(65_537);
    assert_eq!(MessageHeader::parse(&long), Err(error));
    assert!(error.to_string().contains("at most 65536"));
}

proptest! {
    #[test]
    fn what_is_emitted_parses_back_from_any_prefix_that_holds_it(
        metadata_len in 0..=MAX_MESSAGE_METADATA,
        length in proptest::option::of(0..=MAX_VARINT),
    ) {
        let header = MessageHeader { metadata_len, length };
        let bytes = emitted(header);
        prop_assert!(bytes.len() <= MAX_MESSAGE_HEADER_LEN);
        for cut in 0..bytes.len() {
            prop_assert_eq!(MessageHeader::parse(&bytes[..cut]), Ok(None));
        }
        prop_assert_eq!(MessageHeader::parse(&bytes), Ok(Some((header, bytes.len()))));
    }

    #[test]
    fn any_bytes_parse_or_are_refused(bytes: Vec<u8>) {
        let mut long = bytes.clone();
        long.splice(0..0, [0x6d, 0x4d]);
        for bytes in [bytes, long] {
            if let Ok(None) = MessageHeader::parse(&bytes) {
                prop_assert!(bytes.len() < MAX_MESSAGE_HEADER_LEN);
            }
        }
    }
}
