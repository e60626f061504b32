use super::*;

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
