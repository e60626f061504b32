//! The codec over a channel that loses, delays and repeats, with values of every kind.

#![expect(clippy::print_stdout, reason = "a failure names its seed")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Fleet, Random};
use proptest::prelude::*;
use towline_link::codec::{DecodeError, Decoder, Encoder, MAX_IN_FLIGHT, PushError, Record};

fn record(text: &str) -> Record {
    Record::parse(text.as_bytes()).unwrap()
}

/// Sends every batch until it has arrived, over a channel that is as bad as chance has it.
fn over_a_bad_channel(seed: u64, batches: &[Vec<Record>]) {
    println!("seed {seed}");
    let mut random = Random(seed);
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let mut on_the_way: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut arrived = BTreeMap::new();
    let mut unsent = batches.iter();
    let mut waiting = BTreeSet::new();
    let (loss, worst_delay) = (random.below(30), 1 + random.below(30));
    for now in 0.. {
        assert!(now < 100_000, "it comes to an end");
        if arrived.len() == batches.len() {
            break;
        }
        if let Some(batch) = unsent.next() {
            waiting.insert(encoder.push(batch.clone()).unwrap());
        }
        // What is not known to have arrived is sent again at times.
        for number in waiting
            .iter()
            .copied()
            .filter(|_| random.happens(20))
            .collect::<Vec<_>>()
        {
            let mut message = Vec::new();
            if !encoder.encode(number, &mut message) {
                waiting.remove(&number);
            } else if !random.happens(loss) {
                on_the_way.push((now + 1 + random.below(worst_delay), message));
            }
        }
        for (_, message) in on_the_way.extract_if(.., |(due, _)| *due <= now) {
            match decoder.decode(&message) {
                Ok(decoded) => {
                    let before = arrived.insert(decoded.number, decoded.records);
                    assert!(before.is_none(), "a batch came twice");
                }
                Err(DecodeError::Duplicate(number)) => assert!(arrived.contains_key(&number)),
                Err(error) => assert_eq!(error, DecodeError::TooLate),
            }
        }
        if random.happens(50) {
            for range in decoder.decoded() {
                encoder.on_decoded(range);
            }
        }
    }
    for (number, records) in arrived {
        assert_eq!(*records, batches[number as usize]);
    }
}

#[test]
fn nothing_is_lost_over_a_bad_channel() {
    for seed in 0..12 {
        let mut fleet = Fleet::new(seed);
        let mut random = Random(seed);
        let mut batch = || -> Vec<Record> {
            let len = random.below(12);
            (0..len).map(|_| record(&fleet.delta())).collect()
        };
        let batches: Vec<Vec<Record>> = (0..150).map(|_| batch()).collect();
        over_a_bad_channel(seed, &batches);
    }
}

fn json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>()
            .prop_filter("JSON has it", |value| value.is_finite())
            .prop_map(|value| format!("{value:?}")),
        (any::<i32>(), 0..6).prop_map(|(mantissa, digits)| format!(
            "{:?}",
            f64::from(mantissa) / 10f64.powi(digits)
        )),
        "-?[1-9][0-9]{18,40}",
    ];
    let text = prop_oneof![
        any::<String>(),
        Just("2014-08-15T19:02:01.302Z".to_owned()),
        Just(String::new()),
        "[ab]{0,3}",
    ];
    let text = text.prop_map(|text| quoted(&text)).boxed();
    let key = prop_oneof!["[abc]{0,2}".prop_map(|text| quoted(&text)), text.clone()].boxed();
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        number,
        text,
    ];
    let object = |value: BoxedStrategy<String>, key: BoxedStrategy<String>| {
        prop::collection::btree_map(key, value, 0..5).prop_map(|map| {
            let entries: Vec<String> = map
                .into_iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect();
            format!("{{{}}}", entries.join(","))
        })
    };
    let keys = key.clone();
    let value = leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6)
                .prop_map(|values| format!("[{}]", values.join(","))),
            object(inner.boxed(), keys.clone()),
        ]
    });
    object(value.boxed(), key)
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_object_comes_back(texts in prop::collection::vec(json(), 1..20), seed: u64) {
        let records: Vec<Record> = texts.iter().map(|text| record(text)).collect();
        for (record, text) in records.iter().zip(&texts) {
            // What is written is read as the same, by this parser and by another.
            prop_assert_eq!(&Record::parse(record.to_json().as_bytes()).unwrap(), record);
            prop_assert_eq!(as_others_read_it(&record.to_json()), as_others_read_it(text));
        }
        let batches: Vec<Vec<Record>> = records.chunks(3).map(<[Record]>::to_vec).collect();
        // Twice, so that the second time finds what was learned.
        over_a_bad_channel(seed, &[batches.clone(), batches].concat());
    }

    #[test]
    fn no_message_does_harm(at in 0usize..400, change: u8, cut in 0usize..400, extra: Vec<u8>) {
        let mut fleet = Fleet::new(7);
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let mut messages = Vec::new();
        for _ in 0..6 {
            let batch: Vec<Record> = (0..8).map(|_| record(&fleet.delta())).collect();
            let number = encoder.push(batch).unwrap();
            let mut message = Vec::new();
            prop_assert!(encoder.encode(number, &mut message));
            encoder.on_decoded(0..number);
            messages.push(message);
        }
        let last = messages.pop().unwrap();
        for message in &messages {
            decoder.decode(message).unwrap();
        }
        let mut bad = last.clone();
        let at = at % bad.len();
        bad[at] ^= change;
        bad.truncate(bad.len().saturating_sub(cut % 3));
        bad.extend(extra.iter().take(change as usize % 3));
        if bad != last && decoder.decode(&bad).is_err() {
            // It changed nothing.
            prop_assert!(decoder.decode(&last).is_ok());
        }
    }
}

/// serde_json's view.
fn as_others_read_it(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_is_too_large_for_the_model_comes_back_as_well() {
    let mut random = Random(3);
    let mut letters = |len: usize| -> String {
        (0..len)
            .map(|_| char::from(b'a' + random.below(26) as u8))
            .collect()
    };
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let mut send = |batch: Vec<Record>| {
        let number = encoder.push(batch.clone()).unwrap();
        let mut message = Vec::new();
        assert!(encoder.encode(number, &mut message));
        assert_eq!(*decoder.decode(&message).unwrap().records, batch);
        encoder.on_decoded(0..number + 1);
        message.len()
    };
    let small = record(r#"{"a":1.5}"#);
    send(vec![small.clone()]);
    let large = record(&format!(r#"{{"text":"{}"}}"#, letters(1 << 19)));
    assert!(send(vec![large]) < 400_000);
    let many = record(&format!("{{\"many\":[{}1]}}", "1,".repeat(40_000)));
    assert!(send(vec![many]) < 1_000);
    assert!(send(vec![small]) < 10);
}

#[test]
fn what_repeats_long_texts_is_shorter_as_lines() {
    let mut random = Random(5);
    let letters: String = (0..700)
        .map(|_| char::from(b'a' + random.below(26) as u8))
        .collect();
    let batch: Vec<Record> = (0..8)
        .map(|at| record(&format!(r#"{{"at":{at},"text":"{letters}"}}"#)))
        .collect();
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    for most in [800, 100] {
        let number = encoder.push(batch.clone()).unwrap();
        let mut message = Vec::new();
        assert!(encoder.encode(number, &mut message));
        assert!(message.len() < most, "{} bytes", message.len());
        assert_eq!(*decoder.decode(&message).unwrap().records, batch);
        encoder.on_decoded(0..number + 1);
    }
}

#[test]
fn a_batch_that_is_too_large_is_refused() {
    let wide = record(&format!("{{\"a\":\"{}\"}}", "é".repeat(500_000)));
    let refused = Encoder::new().push(vec![wide; 9]).unwrap_err();
    assert!(
        matches!(refused, PushError::TooLarge(len) if len > 9_000_000),
        "{refused}"
    );
    let many = record(&format!("{{\"a\":[{}1]}}", "1,".repeat(60_000)));
    let refused = Encoder::new().push(vec![many; 5]).unwrap_err();
    assert!(matches!(refused, PushError::TooMany(300_015)), "{refused}");
}

#[test]
fn so_many_batches_are_on_their_way_at_most() {
    let mut encoder = Encoder::new();
    for _ in 0..MAX_IN_FLIGHT {
        encoder.push(vec![]).unwrap();
    }
    assert_eq!(encoder.push(vec![]), Err(PushError::Full));
    // A gap at the front holds everything up.
    encoder.on_decoded(1..MAX_IN_FLIGHT as u64);
    assert_eq!(
        (encoder.in_flight(), encoder.push(vec![])),
        (1, Err(PushError::Full))
    );
    encoder.on_decoded(0..1);
    assert_eq!(encoder.in_flight(), 0);
    assert!(encoder.push(vec![]).is_ok());
}

#[test]
fn a_reference_to_what_never_came_is_refused() {
    let mut encoder = Encoder::new();
    let mut message = Vec::new();
    for _ in 0..3 {
        let number = encoder.push(vec![record(r#"{"a":1}"#)]).unwrap();
        encoder.on_decoded(0..number);
        message.clear();
        assert!(encoder.encode(number, &mut message));
    }
    assert_eq!(
        Decoder::new().decode(&message).unwrap_err(),
        DecodeError::Ahead
    );
}

#[test]
fn the_bytes_of_the_page_are_those_of_the_code() {
    let page = include_str!("../../../docs/delta-format.md");
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    for text in [r#"{"depth":1.5}"#, r#"{"depth":1.5}"#, r#"{"depth":1.7}"#] {
        let number = encoder.push(vec![record(text)]).unwrap();
        let mut message = Vec::new();
        assert!(encoder.encode(number, &mut message));
        let bytes: Vec<String> = message.iter().map(|byte| format!("{byte:02x}")).collect();
        let row = format!("| `{text}` | `{}` |", bytes.join(" "));
        assert!(page.contains(&row), "{row}");
        decoder.decode(&message).unwrap();
        encoder.on_decoded(0..number + 1);
    }
}

#[test]
fn nothing_of_signal_k_is_built_in() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/codec");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        seen += 1;
        let source = std::fs::read_to_string(&path).unwrap();
        let code = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for word in [
                "navigation",
                "environment.",
                "vessels",
                "mmsi",
                "urn:mrn",
                "NMEA",
                "updates",
            ] {
                assert!(!line.contains(word), "{}: {line}", path.display());
            }
        }
    }
    assert!(seen > 10);
}
