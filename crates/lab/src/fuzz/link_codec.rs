//! Batches of the delta link: messages that no encoder made, and texts that no boat would send.
//!
//! With an even first byte the rest is messages, each behind its length in two bytes, for a decoder that
//! knows some batches; one of no bytes stands for the genuine next message. With an odd one it is lines of
//! text: those that are JSON objects go through an encoder and a decoder, of which a bit each of the second
//! byte says whether the batch gets lost at first.

use std::sync::LazyLock;

use towline_link::codec::{DecodeError, Decoder, Encoder, Record};

/// Lines of one batch.
const BATCH: usize = 3;

/// Messages to begin with, and those that follow.
static GENUINE: LazyLock<[Vec<Vec<u8>>; 2]> = LazyLock::new(|| {
    let mut encoder = Encoder::new();
    let mut messages: Vec<Vec<u8>> = (0..24)
        .map(|number| {
            let batch: Vec<Record> = (0..4)
                .filter_map(|at| record(&delta(number * 4 + at)))
                .collect();
            let number = encoder.push(batch).unwrap_or_default();
            let mut message = Vec::new();
            assert!(encoder.encode(number, &mut message));
            encoder.on_decoded(0..(number + 1).saturating_sub(3));
            message
        })
        .collect();
    let next = messages.split_off(12);
    [messages, next]
});

fn delta(at: u64) -> String {
    let path = ["navigation.speedOverGround", "environment.depth.belowKeel"][at as usize % 2];
    format!(
        r#"{{"context":"vessels.{}","updates":[{{"timestamp":"2014-08-15T19:02:{:02}.302Z","values":[{{"path":"{path}","value":{}.{}}}]}}]}}"#,
        at % 3,
        at % 60,
        at / 4,
        at % 7,
    )
}

fn record(text: &str) -> Option<Record> {
    Record::parse(text.as_bytes()).ok()
}

/// Runs `input`.
///
/// # Panics
/// When a refused message changed something, or a record comes back otherwise than it was.
pub fn link_codec(input: &[u8]) {
    run(input);
}

/// As [`link_codec`]; returns what happened, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    match input.split_first() {
        None => 0,
        Some((first, rest)) if first % 2 == 0 => messages(rest),
        Some((_, rest)) => texts(rest),
    }
}

fn messages(mut input: &[u8]) -> u64 {
    let [first, next] = &*GENUINE;
    let mut decoder = Decoder::new();
    for message in first {
        assert!(decoder.decode(message).is_ok());
    }
    let (mut seen, mut next) = (0, next.iter());
    let mut invented = false;
    while let Some((len, rest)) = input.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
        let (message, rest) = rest.split_at(len);
        input = rest;
        let genuine = if message.is_empty() {
            next.next()
        } else {
            None
        };
        let outcome = decoder.decode(genuine.map_or(message, |genuine| genuine));
        if genuine.is_some() && !invented {
            assert!(outcome.is_ok(), "a genuine message: {outcome:?}");
        }
        // One that happens to pass the check takes a number from a genuine one.
        invented |= genuine.is_none() && outcome.is_ok();
        seen |= 1u64
            << match outcome {
                Ok(decoded) => {
                    assert!(decoded.records.iter().all(comes_back));
                    0
                }
                Err(DecodeError::Duplicate(_)) => 1,
                Err(DecodeError::TooLate) => 2,
                Err(DecodeError::Ahead) => 3,
                Err(DecodeError::Diverged) => 4,
                Err(DecodeError::Full) => 5,
                Err(DecodeError::Corrupt(corrupt)) => 6 + corrupt as u64,
            };
    }
    seen
}

/// Whether a record's text is read as the record.
fn comes_back(record: &Record) -> bool {
    let text = record.to_json();
    text.len() > towline_link::codec::MAX_TEXT || self::record(&text).as_ref() == Some(record)
}

fn texts(input: &[u8]) -> u64 {
    let (mut lost, lines) = match input.split_first() {
        Some((lost, lines)) => (*lost, lines),
        None => return 0,
    };
    let records = lines.split(|byte| *byte == b'\n').map(Record::parse);
    let records: Vec<Record> = records.filter_map(Result::ok).collect();
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let mut again = Vec::new();
    let mut seen = records.len() as u64;
    for batch in records.chunks(BATCH) {
        assert!(batch.iter().all(comes_back));
        let number = encoder.push(batch).unwrap_or(u64::MAX);
        let is_lost = lost & 1 == 1;
        lost >>= 1;
        match is_lost {
            true => again.push(number),
            false => seen ^= deliver(&mut encoder, &mut decoder, number, batch) << 8,
        }
    }
    for number in again {
        let batch = records
            .chunks(BATCH)
            .nth(number as usize)
            .unwrap_or_default();
        seen ^= deliver(&mut encoder, &mut decoder, number, batch) << 16;
    }
    assert_eq!(encoder.in_flight(), 0);
    seen
}

fn deliver(encoder: &mut Encoder, decoder: &mut Decoder, number: u64, batch: &[Record]) -> u64 {
    let mut message = Vec::new();
    assert!(encoder.encode(number, &mut message));
    match decoder.decode(&message) {
        Ok(decoded) => assert_eq!(*decoded.records, *batch),
        Err(error) => panic!("a genuine message: {error}"),
    }
    for range in decoder.decoded() {
        encoder.on_decoded(range);
    }
    u64::from(message.len().checked_ilog2().unwrap_or(0))
}

/// Genuine messages, and lines.
pub(super) fn seeds() -> Vec<(String, Vec<u8>)> {
    let [_, next] = &*GENUINE;
    let framed = |(at, message): (usize, &Vec<u8>)| {
        let mut input = vec![0];
        input.extend_from_slice(&(message.len() as u16).to_be_bytes());
        input.extend_from_slice(message);
        input.extend_from_slice(&[0, 0]);
        (format!("message-{at}"), input)
    };
    let mut seeds: Vec<_> = next.iter().take(3).enumerate().map(framed).collect();
    let lines: Vec<String> = (0..8).map(delta).collect();
    let lines = [&[1, 0b101][..], lines.join("\n").as_bytes()].concat();
    seeds.push(("lines".to_owned(), lines));
    seeds
}
