use proptest::prelude::*;

use super::*;
use crate::{MAX_VARINT, Reader, StreamId};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| String::from_utf8(pair.to_vec()).unwrap();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&text(pair), 16).unwrap())
        .collect()
}

fn integer(input: &[u8], prefix: u32) -> Result<u64, QpackError> {
    parse_integer(&mut Reader::new(input), prefix)
}

fn decoded(code: &[u8]) -> Result<Vec<u8>, QpackError> {
    let mut out = Vec::new();
    huffman_decode(code, &mut out).map(|()| out)
}

#[test]
fn rfc_7541_c_1_integers() {
    for (prefix, value, wire) in [(5, 10, "0a"), (5, 1337, "1f9a0a"), (8, 42, "2a")] {
        let mut out = Vec::new();
        emit_integer(&mut out, 0, prefix, value);
        assert_eq!(out, bytes(wire));
        assert_eq!(integer(&out, prefix), Ok(value));
    }
    assert_eq!(integer(&[0xea], 5), Ok(10));
}

#[test]
fn integers_end_at_2_to_the_62() {
    let mut out = Vec::new();
    emit_integer(&mut out, 0, 8, MAX_VARINT);
    assert_eq!(integer(&out, 8), Ok(MAX_VARINT));
    out.clear();
    emit_integer(&mut out, 0, 8, MAX_VARINT + 1);
    assert_eq!(integer(&out, 8), Err(QpackError::IntegerTooLarge));
    out.clear();
    emit_integer(&mut out, 0, 1, u64::MAX);
    assert_eq!(integer(&out, 1), Err(QpackError::IntegerTooLarge));
    let endless = [0xff; 40];
    assert_eq!(integer(&endless, 8), Err(QpackError::IntegerTooLarge));
    assert_eq!(integer(&endless[..9], 8), Err(QpackError::Truncated));
}

/// RFC 7541 C.4 and C.6: strings of the examples with Huffman coding.
#[test]
fn rfc_7541_c_4_and_c_6_strings() {
    for (text, code) in [
        ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        ("no-cache", "a8eb10649cbf"),
        ("custom-key", "25a849e95ba97d7f"),
        ("custom-value", "25a849e95bb8e8b4bf"),
        ("302", "6402"),
        ("private", "aec3771a4b"),
        (
            "Mon, 21 Oct 2013 20:13:21 GMT",
            "d07abe941054d444a8200595040b8166e082a62d1bff",
        ),
        (
            "https://www.example.com",
            "9d29ad171863c78f0b97c8e9ae82ae43d3",
        ),
        ("307", "640eff"),
        ("gzip", "9bd9ab"),
        (
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ),
    ] {
        let mut out = Vec::new();
        huffman_encode(text.as_bytes(), &mut out);
        assert_eq!(out, bytes(code), "{text}");
        assert_eq!(huffman_len(text.as_bytes()), out.len());
        assert_eq!(decoded(&out), Ok(text.as_bytes().to_vec()));
    }
}

#[test]
fn every_byte_has_a_code_of_its_own() {
    for byte in 0..=255 {
        let mut out = Vec::new();
        huffman_encode(&[byte, byte], &mut out);
        assert_eq!(decoded(&out), Ok(vec![byte, byte]));
    }
}

/// RFC 7541 §5.2: padding of 8 bits or more, with a 0 in it, or a string with its end inside.
#[test]
fn wrong_padding_and_the_end_of_a_string_are_refused() {
    // "0" is 00000.
    assert_eq!(decoded(&[0x07]), Ok(b"0".to_vec()));
    assert_eq!(decoded(&[0x06]), Err(QpackError::Huffman));
    assert_eq!(decoded(&[0x07, 0xff]), Err(QpackError::Huffman));
    assert_eq!(decoded(&[0xff]), Err(QpackError::Huffman));
    assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(QpackError::Huffman));
    assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), Err(QpackError::Huffman));
    assert_eq!(decoded(&[]), Ok(Vec::new()));
}

#[test]
fn the_static_table_finds_what_it_has() {
    assert_eq!(static_entry(0), Some((&b":authority"[..], &b""[..])));
    assert_eq!(static_entry(98).unwrap().1, b"sameorigin");
    assert_eq!(static_entry(99), None);
    assert_eq!(static_entry(u64::MAX), None);
    for index in 0..99 {
        let (name, value) = static_entry(index).unwrap();
        assert_eq!(find_static(name, value), Some(StaticMatch::Whole(index)));
        let Some(StaticMatch::Name(first)) = find_static(name, b"no such value") else {
            panic!("{index}");
        };
        assert!(first <= index && static_entry(first).unwrap().0 == name);
    }
    assert_eq!(
        find_static(b":method", b"PATCH"),
        Some(StaticMatch::Name(15))
    );
    assert_eq!(find_static(b"x-unknown", b""), None);
    assert_eq!(find_static(b"", b""), None);
    assert_eq!(find_static(b"zzz", b""), None);
}

/// RFC 9204 B.1 to B.5, without what the dynamic table makes of it.
#[test]
fn rfc_9204_appendix_b_instructions_and_field_lines() {
    let text = |literal: StringLiteral<'_>| {
        let mut out = Vec::new();
        literal.decode(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let section = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    let mut r = Reader::new(&section);
    let prefix = SectionPrefix::parse(&mut r).unwrap();
    assert_eq!((prefix.encoded_insert_count, prefix.delta_base), (0, 0));
    let FieldLine::StaticName {
        index: 1,
        value,
        never_indexed: false,
    } = FieldLine::parse(&mut r).unwrap()
    else {
        panic!("not a static name");
    };
    assert_eq!(text(value), "/index.html");

    let instructions = bytes(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468 \
         4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565 02 \
         810d 6375 7374 6f6d 2d76 616c 7565 32",
    );
    let mut r = Reader::new(&instructions);
    let mut next = || EncoderInstruction::parse(&mut r).unwrap();
    assert_eq!(next(), EncoderInstruction::SetCapacity(220));
    let EncoderInstruction::InsertStaticName { index: 0, value } = next() else {
        panic!("not :authority");
    };
    assert_eq!(text(value), "www.example.com");
    let EncoderInstruction::InsertStaticName { index: 1, value } = next() else {
        panic!("not :path");
    };
    assert_eq!(text(value), "/sample/path");
    let EncoderInstruction::InsertLiteralName { name, value } = next() else {
        panic!("not a literal name");
    };
    assert_eq!(
        (text(name), text(value)),
        ("custom-key".into(), "custom-value".into())
    );
    assert_eq!(next(), EncoderInstruction::Duplicate(2));
    let EncoderInstruction::InsertDynamicName { relative: 1, value } = next() else {
        panic!("not a dynamic name");
    };
    assert_eq!(text(value), "custom-value2");
    assert!(r.is_empty());

    let section = bytes("0381 10 11");
    let mut r = Reader::new(&section);
    let prefix = SectionPrefix::parse(&mut r).unwrap();
    let expected = SectionPrefix {
        encoded_insert_count: 3,
        negative: true,
        delta_base: 1,
    };
    assert_eq!(prefix, expected);
    assert_eq!(FieldLine::parse(&mut r), Ok(FieldLine::IndexedPostBase(0)));
    assert_eq!(FieldLine::parse(&mut r), Ok(FieldLine::IndexedPostBase(1)));

    let section = bytes("0500 80 c1 81");
    let mut r = Reader::new(&section[2..]);
    assert_eq!(FieldLine::parse(&mut r), Ok(FieldLine::IndexedDynamic(0)));
    assert_eq!(FieldLine::parse(&mut r), Ok(FieldLine::IndexedStatic(1)));
    assert_eq!(FieldLine::parse(&mut r), Ok(FieldLine::IndexedDynamic(1)));

    let acknowledgments = bytes("84 01 48");
    let mut r = Reader::new(&acknowledgments);
    let stream = StreamId::from_u64;
    for expected in [
        DecoderInstruction::SectionAcknowledgment(stream(4)),
        DecoderInstruction::InsertCountIncrement(1),
        DecoderInstruction::StreamCancellation(stream(8)),
    ] {
        assert_eq!(DecoderInstruction::parse(&mut r), Ok(expected));
    }
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        "[ -~]{0,60}".prop_map(String::into_bytes),
    ]
}

fn is_text(literal: &StringLiteral<'_>, text: &[u8]) -> bool {
    let mut out = Vec::new();
    literal.decode(&mut out).is_ok() && out == text && literal.min_len() <= text.len()
}

proptest! {
    #[test]
    fn integers_come_back(prefix in 1u32..=8, shift in 2u32..64, value: u64, flags: u8) {
        let value = value >> shift;
        let first = if prefix == 8 { 0 } else { flags >> prefix << prefix };
        let mut out = Vec::new();
        emit_integer(&mut out, first, prefix, value);
        for end in 0..out.len() {
            prop_assert_eq!(integer(&out[..end], prefix), Err(QpackError::Truncated));
        }
        let mut r = Reader::new(&out);
        prop_assert_eq!(parse_integer(&mut r, prefix), Ok(value));
        prop_assert!(r.is_empty());
        if prefix < 8 {
            prop_assert_eq!(out[0] >> prefix << prefix, first);
        }
    }

    #[test]
    fn huffman_comes_back(text in texts()) {
        let mut out = Vec::new();
        huffman_encode(&text, &mut out);
        prop_assert_eq!(out.len(), huffman_len(&text));
        prop_assert_eq!(decoded(&out), Ok(text));
    }

    /// What decodes is the only code of its text, so that nothing can hide in it.
    #[test]
    fn huffman_has_one_code_for_a_text(code in prop::collection::vec(any::<u8>(), 0..20)) {
        if let Ok(text) = decoded(&code) {
            prop_assert!(text.len() * 5 <= code.len() * 8);
            let mut again = Vec::new();
            huffman_encode(&text, &mut again);
            prop_assert_eq!(again, code);
        }
    }

    #[test]
    fn field_lines_come_back(
        index in 0..=MAX_VARINT,
        name in texts(),
        value in texts(),
        never: bool,
    ) {
        let mut out = Vec::new();
        FieldLine::emit_indexed_static(&mut out, index);
        FieldLine::emit_indexed_dynamic(&mut out, index);
        FieldLine::emit_indexed_post_base(&mut out, index);
        FieldLine::emit_static_name(&mut out, index, &value, never);
        FieldLine::emit_dynamic_name(&mut out, index, &value, never);
        FieldLine::emit_post_base_name(&mut out, index, &value, never);
        FieldLine::emit_literal(&mut out, &name, &value, never);
        let mut r = Reader::new(&out);
        let mut next = || FieldLine::parse(&mut r).unwrap();
        prop_assert_eq!(next(), FieldLine::IndexedStatic(index));
        prop_assert_eq!(next(), FieldLine::IndexedDynamic(index));
        prop_assert_eq!(next(), FieldLine::IndexedPostBase(index));
        assert!(matches!(next(), FieldLine::StaticName { index: i, value: v, never_indexed }
            if i == index && is_text(&v, &value) && never_indexed == never));
        assert!(matches!(next(), FieldLine::DynamicName { relative, value: v, never_indexed }
            if relative == index && is_text(&v, &value) && never_indexed == never));
        assert!(matches!(next(), FieldLine::PostBaseName { post_base, value: v, never_indexed }
            if post_base == index && is_text(&v, &value) && never_indexed == never));
        assert!(matches!(next(), FieldLine::Literal { name: n, value: v, never_indexed }
            if is_text(&n, &name) && is_text(&v, &value) && never_indexed == never));
        prop_assert!(r.is_empty());
    }

    #[test]
    fn instructions_come_back_and_wait_for_their_last_byte(
        number in 0..=MAX_VARINT,
        name in texts(),
        value in texts(),
        which in 0..5,
    ) {
        let mut out = Vec::new();
        match which {
            0 => EncoderInstruction::emit_set_capacity(&mut out, number),
            1 => EncoderInstruction::emit_insert_static_name(&mut out, number, &value),
            2 => EncoderInstruction::emit_insert_dynamic_name(&mut out, number, &value),
            3 => EncoderInstruction::emit_insert_literal_name(&mut out, &name, &value),
            _ => EncoderInstruction::emit_duplicate(&mut out, number),
        }
        for end in 0..out.len() {
            let mut r = Reader::new(&out[..end]);
            prop_assert_eq!(EncoderInstruction::parse(&mut r), Err(QpackError::Truncated));
            prop_assert_eq!(r.position(), 0);
        }
        let mut r = Reader::new(&out);
        let ok = match EncoderInstruction::parse(&mut r).unwrap() {
            EncoderInstruction::SetCapacity(n) => which == 0 && n == number,
            EncoderInstruction::InsertStaticName { index, value: v } =>
                which == 1 && index == number && is_text(&v, &value),
            EncoderInstruction::InsertDynamicName { relative, value: v } =>
                which == 2 && relative == number && is_text(&v, &value),
            EncoderInstruction::InsertLiteralName { name: n, value: v } =>
                which == 3 && is_text(&n, &name) && is_text(&v, &value),
            EncoderInstruction::Duplicate(n) => which == 4 && n == number,
        };
        prop_assert!(ok && r.is_empty());
    }

    #[test]
    fn decoder_instructions_come_back(number in 0..=MAX_VARINT, which in 0..3) {
        let sent = match which {
            0 => DecoderInstruction::SectionAcknowledgment(StreamId::from_u64(number)),
            1 => DecoderInstruction::StreamCancellation(StreamId::from_u64(number)),
            _ => DecoderInstruction::InsertCountIncrement(number),
        };
        let mut out = Vec::new();
        sent.emit(&mut out);
        let mut r = Reader::new(&out[..out.len() - 1]);
        prop_assert_eq!(DecoderInstruction::parse(&mut r), Err(QpackError::Truncated));
        prop_assert_eq!(r.position(), 0);
        prop_assert_eq!(DecoderInstruction::parse(&mut Reader::new(&out)), Ok(sent));
    }

    #[test]
    fn no_bytes_panic(input in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut r = Reader::new(&input);
        let _ = SectionPrefix::parse(&mut r);
        while let Ok(line) = FieldLine::parse(&mut r) {
            if let FieldLine::Literal { name, .. } = line {
                let _ = name.decode(&mut Vec::new());
            }
        }
        let mut r = Reader::new(&input);
        while EncoderInstruction::parse(&mut r).is_ok() {}
        let mut r = Reader::new(&input);
        while DecoderInstruction::parse(&mut r).is_ok() {}
    }
}
