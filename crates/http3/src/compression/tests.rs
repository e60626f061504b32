use std::collections::VecDeque;

use proptest::prelude::*;
use towline_wire::StreamId;
use towline_wire::http3::ErrorCode;
use towline_wire::qpack::{DecoderInstruction, EncoderInstruction, FieldLine, SectionPrefix};

use super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

const LARGE: usize = 1 << 20;

fn stream(id: u64) -> StreamId {
    StreamId::from_u64(id)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn decode(decoder: &mut Decoder, id: u64, section: &[u8]) -> Result<(Decoded, Fields), Error> {
    decode_up_to(decoder, id, section, LARGE)
}

fn decode_up_to(
    decoder: &mut Decoder,
    id: u64,
    section: &[u8],
    max: usize,
) -> Result<(Decoded, Fields), Error> {
    let mut fields = Vec::new();
    let mut field = |name: &[u8], value: &[u8]| fields.push((name.to_vec(), value.to_vec()));
    let decoded = decoder.decode(stream(id), section, max, &mut field)?;
    Ok((decoded, fields))
}

fn owned(fields: &[(&str, &str)]) -> Fields {
    let bytes = |text: &str| text.as_bytes().to_vec();
    fields.iter().map(|(n, v)| (bytes(n), bytes(v))).collect()
}

fn encode(encoder: &mut Encoder, id: u64, fields: &[(&str, &str)]) -> Vec<u8> {
    let lines = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes(), Sensitivity::Normal));
    let mut out = Vec::new();
    encoder.encode(stream(id), lines, &mut out);
    out
}

fn code_of<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.unwrap_err().code
}

/// A section with this encoded insert count and base, and these lines.
fn section(encoded_insert_count: u64, delta_base: u64, lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let prefix = SectionPrefix {
        encoded_insert_count,
        negative: false,
        delta_base,
    };
    prefix.emit(&mut out);
    out.extend_from_slice(lines);
    out
}

/// A decoder of 220 bytes whose table has one entry, `a: b`.
fn decoder_with_one_entry() -> Decoder {
    let mut decoder = Decoder::new(220, 1);
    let mut instructions = Vec::new();
    EncoderInstruction::emit_set_capacity(&mut instructions, 220);
    EncoderInstruction::emit_insert_literal_name(&mut instructions, b"a", b"b");
    decoder.handle_encoder_stream(&instructions).unwrap();
    decoder
}

/// RFC 9204 B.1 to B.5, in one connection.
#[test]
fn the_connection_of_rfc_9204_appendix_b_decodes() {
    let mut decoder = Decoder::new(220, 1);
    let section = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    let (_, fields) = decode(&mut decoder, 0, &section).unwrap();
    assert_eq!(fields, owned(&[(":path", "/index.html")]));
    assert_eq!(decoder.take_instructions(), None);

    let section = bytes("0381 10 11");
    let (decoded, _) = decode(&mut decoder, 4, &section).unwrap();
    assert_eq!(decoded, Decoded::Blocked);
    let instructions = bytes(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468",
    );
    for byte in &instructions {
        assert_eq!(decoder.take_unblocked(), None);
        decoder.handle_encoder_stream(&[*byte]).unwrap();
    }
    assert_eq!(decoder.take_unblocked(), Some(stream(4)));
    let (decoded, fields) = decode(&mut decoder, 4, &section).unwrap();
    assert_eq!(decoded, Decoded::Done);
    let expected = [(":authority", "www.example.com"), (":path", "/sample/path")];
    assert_eq!(fields, owned(&expected));
    assert_eq!(decoder.take_instructions().unwrap(), bytes("84"));

    let insert = bytes("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565");
    decoder.handle_encoder_stream(&insert).unwrap();
    assert_eq!(decoder.take_instructions().unwrap(), bytes("01"));

    decoder.handle_encoder_stream(&bytes("02")).unwrap();
    let section = bytes("0500 80 c1 81");
    let (_, fields) = decode(&mut decoder, 8, &section).unwrap();
    let expected = [
        (":authority", "www.example.com"),
        (":path", "/"),
        ("custom-key", "custom-value"),
    ];
    assert_eq!(fields, owned(&expected));
    assert_eq!(decoder.take_instructions().unwrap(), bytes("88"));

    let insert = bytes("810d 6375 7374 6f6d 2d76 616c 7565 32");
    decoder.handle_encoder_stream(&insert).unwrap();
    decoder.cancel(stream(12));
    assert_eq!(decoder.take_instructions().unwrap(), bytes("4c 01"));
}

#[test]
fn without_a_table_at_the_peer_nothing_is_inserted() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(0, 0);
    let fields = [("x-a", "b"), (":method", "GET"), ("server", "towline")];
    let section = encode(&mut encoder, 0, &fields);
    assert_eq!(encoder.take_instructions(), None);
    let (_, decoded) = decode(&mut Decoder::new(0, 0), 0, &section).unwrap();
    assert_eq!(decoded, owned(&fields));
}

#[test]
fn a_field_that_comes_again_takes_one_byte() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(4096, 1);
    let mut decoder = Decoder::new(4096, 1);
    let fields = [
        ("x-a", "some value"),
        ("user-agent", "towline"),
        ("date", "now"),
    ];
    let first = encode(&mut encoder, 0, &fields[..2]);
    let again = encode(&mut encoder, 0, &fields[..2]);
    assert_eq!((first.len(), again.len()), (4, 4));
    let instructions = encoder.take_instructions().unwrap();
    decoder.handle_encoder_stream(&instructions).unwrap();
    for section in [first, again] {
        let (_, decoded) = decode(&mut decoder, 0, &section).unwrap();
        assert_eq!(decoded, owned(&fields[..2]));
    }
    encode(&mut encoder, 0, &fields[2..]);
    assert_eq!(encoder.take_instructions(), None, "a date does not repeat");
}

#[test]
fn a_secret_is_in_no_table() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(4096, 8);
    let field: (&[u8], &[u8], _) = (b"x-key", b"0123456789abcdef", Sensitivity::Never);
    let mut out = Vec::new();
    encoder.encode(stream(0), [field], &mut out);
    encode(&mut encoder, 4, &[("cookie", "short")]);
    assert_eq!(
        encoder.take_instructions().unwrap().len(),
        3,
        "capacity alone"
    );
    let line = FieldLine::parse(&mut towline_wire::Reader::new(&out[2..])).unwrap();
    let is_never = matches!(line, FieldLine::Literal { never_indexed, .. } if never_indexed);
    assert!(is_never);
}

#[test]
fn no_more_streams_may_wait_than_the_peer_permits() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(4096, 1);
    let waits = encode(&mut encoder, 0, &[("x-a", "1")]);
    assert_ne!(waits[0], 0);
    let fields = [("x-a", "1"), ("x-b", "2")];
    let does_not = encode(&mut encoder, 4, &fields);
    assert_eq!(does_not[0], 0, "it refers to nothing");
    let (_, decoded) = decode(&mut Decoder::new(4096, 1), 4, &does_not).unwrap();
    assert_eq!(decoded, owned(&fields));
    // The stream that may wait already may wait for more.
    assert_ne!(encode(&mut encoder, 0, &fields)[0], 0);
    // Both insertions are there: everybody may refer to them.
    encoder.handle_decoder_stream(&[0x02]).unwrap();
    assert_ne!(encode(&mut encoder, 8, &fields)[0], 0);
}

#[test]
fn an_entry_that_a_section_refers_to_is_not_evicted() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(100, 9);
    let mut decoder = Decoder::new(100, 9);
    let first = encode(&mut encoder, 0, &[("x-a", "1")]);
    let mut instructions = encoder.take_instructions().unwrap().to_vec();
    // Acknowledged, but referred to: two more fit in, a third one needs its place.
    encoder.handle_decoder_stream(&[0x01]).unwrap();
    for (id, value) in [(4, "2"), (8, "3"), (12, "4")] {
        encode(&mut encoder, id, &[("x-b", value)]);
        let sent = encoder.take_instructions().unwrap_or_default();
        instructions.extend_from_slice(&sent);
    }
    decoder.handle_encoder_stream(&instructions).unwrap();
    let (decoded, fields) = decode(&mut decoder, 0, &first).unwrap();
    assert_eq!((decoded, fields), (Decoded::Done, owned(&[("x-a", "1")])));
}

#[test]
fn without_acknowledgments_references_end() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(4096, 1);
    for id in 0..super::encoder::MAX_UNACKNOWLEDGED as u64 {
        assert_ne!(encode(&mut encoder, id * 4, &[("x-a", "1")])[0], 0);
        if id == 0 {
            encoder.handle_decoder_stream(&[0x01]).unwrap();
        }
    }
    assert_eq!(encode(&mut encoder, 0, &[("x-a", "1")])[0], 0);
    encoder.handle_decoder_stream(&[0x40]).unwrap();
    assert_ne!(encode(&mut encoder, 0, &[("x-a", "1")])[0], 0);
}

/// However large a table the peer permits.
#[test]
fn the_encoder_uses_4096_bytes_of_a_table() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(1 << 40, 100);
    let instructions = encoder.take_instructions().unwrap();
    let mut r = towline_wire::Reader::new(&instructions);
    assert_eq!(
        EncoderInstruction::parse(&mut r),
        Ok(EncoderInstruction::SetCapacity(
            super::encoder::MAX_CAPACITY
        ))
    );
}

/// Encoded small, decoded large: an entry of 100 bytes in each byte of a section, in trailers too.
#[test]
fn a_section_that_grows_beyond_its_limit_is_read_and_not_handed_out() {
    let mut decoder = Decoder::new(220, 1);
    let mut instructions = Vec::new();
    EncoderInstruction::emit_set_capacity(&mut instructions, 220);
    EncoderInstruction::emit_insert_literal_name(&mut instructions, b"name", &[b'v'; 64]);
    decoder.handle_encoder_stream(&instructions).unwrap();
    let bomb = section(2, 0, &[0x80; 10_000]);
    for id in [0, 0] {
        let (decoded, fields) = decode_up_to(&mut decoder, id, &bomb, 1000).unwrap();
        assert_eq!((decoded, fields.len()), (Decoded::TooLarge, 10));
    }
    assert_eq!(decoder.take_instructions().unwrap(), bytes("8080"));
    // 32 for each field count, too.
    let empty = section(0, 0, &[0x51, 0x00].repeat(1000));
    let (decoded, fields) = decode_up_to(&mut decoder, 4, &empty, 37 * 10).unwrap();
    assert_eq!((decoded, fields.len()), (Decoded::TooLarge, 10));
    let (decoded, _) = decode_up_to(&mut decoder, 4, &empty, 37 * 1000).unwrap();
    assert_eq!(decoded, Decoded::Done);
}

#[test]
fn more_capacity_than_permitted_is_refused() {
    let mut instructions = Vec::new();
    EncoderInstruction::emit_set_capacity(&mut instructions, 221);
    let result = Decoder::new(220, 1).handle_encoder_stream(&instructions);
    assert_eq!(code_of(result), ErrorCode::QPACK_ENCODER_STREAM_ERROR);
}

#[test]
fn an_instruction_that_refers_to_nothing_is_refused() {
    type Emit = fn(&mut Vec<u8>);
    let cases: [Emit; 6] = [
        |out| EncoderInstruction::emit_duplicate(out, 1),
        |out| EncoderInstruction::emit_duplicate(out, (1 << 62) - 1),
        |out| EncoderInstruction::emit_insert_static_name(out, 99, b""),
        |out| EncoderInstruction::emit_insert_static_name(out, (1 << 62) - 1, b""),
        |out| EncoderInstruction::emit_insert_dynamic_name(out, 1, b""),
        |out| EncoderInstruction::emit_insert_literal_name(out, b"", &[0; 189]),
    ];
    for (case, emit) in cases.iter().enumerate() {
        let mut instruction = Vec::new();
        emit(&mut instruction);
        let result = decoder_with_one_entry().handle_encoder_stream(&instruction);
        let code = code_of(result);
        assert_eq!(code, ErrorCode::QPACK_ENCODER_STREAM_ERROR, "{case}");
    }
}

/// A value of 2^40 bytes is announced and begun; bytes come until nobody waits any longer.
#[test]
fn an_instruction_that_never_ends_is_not_kept_for_long() {
    let mut decoder = decoder_with_one_entry();
    let mut begin = vec![0xc0];
    towline_wire::qpack::emit_integer(&mut begin, 0, 7, 1 << 40);
    decoder.handle_encoder_stream(&begin).unwrap();
    let mut taken = 0;
    while decoder.handle_encoder_stream(&[0; 64]).is_ok() {
        taken += 64;
        assert!(taken <= 4 * 220 + super::decoder::MAX_INSTRUCTION_OVERHEAD);
    }
}

#[test]
fn references_to_evicted_entries_are_refused() {
    let mut decoder = decoder_with_one_entry();
    let mut instructions = Vec::new();
    EncoderInstruction::emit_set_capacity(&mut instructions, 0);
    EncoderInstruction::emit_set_capacity(&mut instructions, 220);
    decoder.handle_encoder_stream(&instructions).unwrap();
    let result = decode(&mut decoder, 0, &section(2, 0, &[0x80]));
    assert_eq!(code_of(result), ErrorCode::QPACK_DECOMPRESSION_FAILED);
    let result = decoder.handle_encoder_stream(&[0x00]);
    assert_eq!(code_of(result), ErrorCode::QPACK_ENCODER_STREAM_ERROR);
}

#[test]
fn references_beyond_what_a_section_promises_are_refused() {
    let cases = [
        // No insert count, and yet an entry.
        section(0, 1, &[0x80]),
        // Behind the base, behind the promise.
        section(2, 0, &[0x10, 0x11]),
        section(2, 0, &[0x81]),
        // Static entries that are not there, and one at 2^62 - 1.
        section(0, 0, &[0xff, 0x24]),
        section(
            0,
            0,
            &[0xff, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f],
        ),
        section(
            0,
            0,
            &[0xbf, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f],
        ),
        // An insert count above twice the entries a table can have.
        section(13, 0, &[]),
        // A base below 0.
        bytes("02 81"),
        // An integer without an end, and none at all.
        section(0, 0, &[0xff; 30]),
        vec![],
        // Padding of a Huffman code: 8 bits, or with a 0 in it.
        section(0, 0, &[0x51, 0x82, 0x07, 0xff]),
        section(0, 0, &[0x51, 0x81, 0x06]),
    ];
    for (case, section) in cases.iter().enumerate() {
        let result = decode(&mut decoder_with_one_entry(), 0, section);
        let code = code_of(result);
        assert_eq!(code, ErrorCode::QPACK_DECOMPRESSION_FAILED, "{case}");
    }
}

#[test]
fn more_blocked_streams_than_permitted_are_refused() {
    let mut decoder = Decoder::new(220, 1);
    let waits = section(2, 0, &[0x80]);
    for _ in 0..3 {
        let (decoded, _) = decode(&mut decoder, 0, &waits).unwrap();
        assert_eq!(decoded, Decoded::Blocked);
    }
    let result = decode(&mut decoder, 4, &waits);
    assert_eq!(code_of(result), ErrorCode::QPACK_DECOMPRESSION_FAILED);
    decoder.cancel(stream(0));
    let (decoded, _) = decode(&mut decoder, 4, &waits).unwrap();
    assert_eq!(decoded, Decoded::Blocked);
}

#[test]
fn acknowledgments_of_what_was_not_sent_are_refused() {
    let sent = || {
        let mut encoder = Encoder::new();
        encoder.set_peer_limits(4096, 1);
        encode(&mut encoder, 4, &[("x-a", "1")]);
        encoder
    };
    // An increment of 0, one too many, a section of another stream, the same section twice.
    for bytes in [&[0x00][..], &[0x02], &[0x81], &[0x84, 0x84], &[0xff; 20]] {
        let result = sent().handle_decoder_stream(bytes);
        assert_eq!(code_of(result), ErrorCode::QPACK_DECODER_STREAM_ERROR);
    }
    let mut encoder = sent();
    encoder.handle_decoder_stream(&[0x84, 0x48, 0x7f]).unwrap();
    encoder.handle_decoder_stream(&[0x01]).unwrap();
}

#[test]
fn a_peer_that_takes_no_instructions_gets_no_sections_decoded() {
    let mut decoder = decoder_with_one_entry();
    let section = section(2, 0, &[0x80]);
    let mut decoded = 0;
    let error = loop {
        match decode(&mut decoder, 0, &section) {
            Ok(_) => decoded += 1,
            Err(error) => break error,
        }
        assert!(decoded <= MAX_UNSENT_INSTRUCTIONS + 1);
    };
    assert_eq!(error.code, ErrorCode::H3_EXCESSIVE_LOAD);
}

/// An encoder and a decoder with four byte streams between them that stop as they like.
struct Link {
    encoder: Encoder,
    decoder: Decoder,
    to_decoder: VecDeque<u8>,
    to_encoder: VecDeque<u8>,
    /// Sections under way: stream, section, fields.
    sections: VecDeque<(u64, Vec<u8>, Fields)>,
    waiting: Vec<(u64, Vec<u8>, Fields)>,
    decoded: usize,
}

impl Link {
    fn new(capacity: u64, blocked: u64) -> Self {
        let mut encoder = Encoder::new();
        encoder.set_peer_limits(capacity, blocked);
        Self {
            encoder,
            decoder: Decoder::new(capacity, blocked),
            to_decoder: VecDeque::new(),
            to_encoder: VecDeque::new(),
            sections: VecDeque::new(),
            waiting: Vec::new(),
            decoded: 0,
        }
    }

    fn send(&mut self, id: u64, fields: Fields) {
        let mut section = Vec::new();
        let lines = fields
            .iter()
            .map(|(name, value)| (&name[..], &value[..], Sensitivity::Normal));
        self.encoder.encode(stream(id), lines, &mut section);
        self.to_decoder
            .extend(self.encoder.take_instructions().unwrap_or_default());
        self.sections.push_back((id, section, fields));
    }

    fn carry_instructions(&mut self, len: usize) {
        let len = len.min(self.to_decoder.len());
        let bytes: Vec<u8> = self.to_decoder.drain(..len).collect();
        self.decoder.handle_encoder_stream(&bytes).unwrap();
        while let Some(id) = self.decoder.take_unblocked() {
            let is_it = |waiting: &(u64, _, _)| stream(waiting.0) == id;
            let at = self.waiting.iter().position(is_it).unwrap();
            let (id, section, fields) = self.waiting.remove(at);
            let result = decode(&mut self.decoder, id, &section);
            assert_eq!(result, Ok((Decoded::Done, fields)));
            self.decoded += 1;
        }
    }

    fn carry_section(&mut self) {
        let Some((id, section, fields)) = self.sections.pop_front() else {
            return;
        };
        match decode(&mut self.decoder, id, &section).unwrap() {
            (Decoded::Blocked, _) => self.waiting.push((id, section, fields)),
            (decoded, got) => {
                assert_eq!((decoded, got), (Decoded::Done, fields));
                self.decoded += 1;
            }
        }
    }

    fn carry_acknowledgments(&mut self, len: usize) {
        self.to_encoder
            .extend(self.decoder.take_instructions().unwrap_or_default());
        let len = len.min(self.to_encoder.len());
        let bytes: Vec<u8> = self.to_encoder.drain(..len).collect();
        self.encoder.handle_decoder_stream(&bytes).unwrap();
    }

    fn cancel(&mut self) {
        if let Some((id, ..)) = self.sections.pop_front() {
            self.decoder.cancel(stream(id));
            self.decoded += 1;
        }
    }
}

fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let name = prop_oneof![
        Just("user-agent"),
        Just(":path"),
        Just("x-a"),
        Just("x-b"),
        Just("cookie"),
        Just("x-a-long-name"),
    ];
    let value = prop_oneof!["[ab]{0,2}", "[a-c]{0,40}"];
    (name, value).prop_map(|(name, value)| (name.into(), value.into_bytes()))
}

proptest! {
    /// Whatever order the four streams are delivered in, all that is sent is decoded, and no rule of
    /// the peer is broken.
    #[test]
    fn what_is_encoded_is_decoded_in_any_order_of_delivery(
        capacity in prop_oneof![0u64..400, Just(4096), Just(100_000)],
        blocked in 0u64..4,
        steps in prop::collection::vec(
            (0..5u8, 0usize..30, prop::collection::vec(field(), 0..6)), 1..120,
        ),
    ) {
        let mut link = Link::new(capacity, blocked);
        let mut sent = 0;
        for (step, len, fields) in steps {
            match step {
                0 => {
                    link.send(sent as u64 * 4, fields);
                    sent += 1;
                }
                1 => link.carry_instructions(len),
                2 => link.carry_section(),
                3 => link.carry_acknowledgments(len),
                _ if len == 0 => link.cancel(),
                _ => link.carry_section(),
            }
        }
        while !link.sections.is_empty() {
            link.carry_section();
        }
        link.carry_instructions(usize::MAX);
        link.carry_acknowledgments(usize::MAX);
        prop_assert_eq!(link.decoded, sent);
        prop_assert!(link.waiting.is_empty());
        prop_assert!(link.encoder.is_settled());
    }

    #[test]
    fn no_bytes_panic(
        capacity in 0u64..300,
        input in prop::collection::vec((0..4u8, prop::collection::vec(any::<u8>(), 0..20)), 0..20),
    ) {
        let mut decoder = Decoder::new(capacity, 2);
        let mut encoder = Encoder::new();
        encoder.set_peer_limits(capacity, 2);
        let mut set = Vec::new();
        EncoderInstruction::emit_set_capacity(&mut set, capacity);
        decoder.handle_encoder_stream(&set).unwrap();
        for (what, bytes) in input {
            let result = match what {
                0 => decoder.handle_encoder_stream(&bytes),
                1 => encoder.handle_decoder_stream(&bytes),
                2 => {
                    encode(&mut encoder, u64::from(bytes.len() as u8), &[("x-a", "1")]);
                    Ok(())
                }
                _ => decode(&mut decoder, 0, &bytes).map(drop),
            };
            if result.is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_cancelled_stream_frees_what_its_sections_referred_to() {
    let mut encoder = Encoder::new();
    encoder.set_peer_limits(4096, 1);
    encode(&mut encoder, 4, &[("x-a", "1")]);
    assert!(!encoder.is_settled());
    let mut cancellation = Vec::new();
    DecoderInstruction::StreamCancellation(stream(4)).emit(&mut cancellation);
    encoder.handle_decoder_stream(&cancellation).unwrap();
    assert!(encoder.is_settled());
}
