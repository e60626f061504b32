use super::*;
use proptest::prelude::*;

fn encoded(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    emit_varint(&mut out, value);
    out
}

#[test]
fn reads_the_examples_of_rfc_9000_appendix_a1() {
    for (bytes, value) in [
        (
            &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
            151_288_809_941_952_652,
        ),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0x7b, 0xbd], 15_293),
        (&[0x25], 37),
    ] {
        let mut r = Reader::new(bytes);
        assert_eq!(r.varint(), Ok(value));
        assert!(r.is_empty());
        assert_eq!(encoded(value), bytes);
    }
    // The two-byte form of 37 reads the same.
    assert_eq!(Reader::new(&[0x40, 0x25]).varint(), Ok(37));
}

#[test]
fn length_changes_exactly_at_the_limits() {
    for (limit, len) in [(1_u64 << 6, 1), (1 << 14, 2), (1 << 30, 4)] {
        assert_eq!(varint_len(limit - 1), len);
        assert_eq!(encoded(limit - 1).len(), len);
        assert_eq!(varint_len(limit), 2 * len);
        assert_eq!(encoded(limit).len(), 2 * len);
    }
    assert_eq!(encoded(0), [0]);
    assert_eq!(encoded(MAX_VARINT), [0xff; 8]);
    assert_eq!(Reader::new(&[0xff; 8]).varint(), Ok(MAX_VARINT));
}

#[test]
fn failed_read_leaves_the_position() {
    let mut r = Reader::new(&[0xc0, 1, 2]);
    assert_eq!(r.varint(), Err(UnexpectedEnd));
    assert_eq!(r.u32(), Err(UnexpectedEnd));
    assert_eq!(r.bytes(4), Err(UnexpectedEnd));
    assert_eq!(r.bytes(usize::MAX), Err(UnexpectedEnd));
    assert_eq!(
        (r.position(), r.remaining(), r.peek_u8()),
        (0, 3, Some(0xc0))
    );

    let mut r = Reader::new(&[3, 1, 2]);
    assert_eq!(r.varint_bytes(), Err(UnexpectedEnd));
    assert_eq!(r.position(), 0);
    assert_eq!(r.u8(), Ok(3));
    assert_eq!(r.u16(), Ok(0x0102));
    assert_eq!(
        (r.position(), r.u8(), r.peek_u8()),
        (3, Err(UnexpectedEnd), None)
    );
}

#[test]
fn rest_takes_everything_and_counts_as_read() {
    let mut r = Reader::new(&[1, 2, 3]);
    assert_eq!(r.u8(), Ok(1));
    assert_eq!(r.rest(), [2, 3]);
    assert_eq!((r.position(), r.is_empty()), (3, true));
    assert_eq!(r.rest(), []);
}

#[test]
fn overflow_keeps_a_clean_prefix_and_takes_the_room_away() {
    let mut buf = [0xaa; 6];
    let mut w = Writer::new(&mut buf);
    w.u32(0x0102_0304);
    assert_eq!((w.remaining(), w.overflowed()), (2, false));
    w.u32(0x0506_0708);
    assert!(w.overflowed());
    // A later write that would have fitted must not land behind a hole.
    w.u8(9);
    w.bytes(&[9]);
    w.zeros(1);
    assert_eq!(w.reserve(1), None);
    assert_eq!(
        (w.remaining(), w.len(), w.written()),
        (0, 4, &[1, 2, 3, 4][..])
    );
    assert_eq!(buf, [1, 2, 3, 4, 0xaa, 0xaa]);
}

#[test]
fn a_value_without_an_encoding_overflows() {
    let mut buf = [0; 16];
    let mut w = Writer::new(&mut buf);
    w.varint(MAX_VARINT + 1);
    assert!(w.overflowed() && w.is_empty());
}

proptest! {
    #[test]
    fn every_value_comes_back(value in 0..=MAX_VARINT, shift in 0_u32..62) {
        let value = value >> shift;
        let bytes = encoded(value);
        prop_assert_eq!(bytes.len(), varint_len(value));
        let mut r = Reader::new(&bytes);
        prop_assert_eq!(r.varint(), Ok(value));
        prop_assert!(r.is_empty());
        for len in 0..bytes.len() {
            prop_assert_eq!(Reader::new(&bytes[..len]).varint(), Err(UnexpectedEnd));
        }
    }
}
