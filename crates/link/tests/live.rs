//! What a live sink shows, however slow it is and however often it begins anew.

#![expect(clippy::print_stdout, reason = "a failure names its seed")]

mod common;

use std::collections::HashMap;

use common::Random;
use towline_link::codec::Record;
use towline_link::{LiveFilter, LiveState};

/// A record with this number as the value of some paths; of one path it may have two.
fn record(random: &mut Random, names: u64, seq: u64) -> Record {
    let values: Vec<String> = (0..=random.below(4))
        .map(|_| format!(r#"{{"path":"p{}","value":{seq}}}"#, random.below(names)))
        .collect();
    let values = values.join(",");
    let text = format!(r#"{{"context":"c","updates":[{{"$source":"s","values":[{values}]}}]}}"#);
    Record::parse(text.as_bytes()).unwrap()
}

/// The path and the value of each value of such a record.
fn values(record: &Record) -> Vec<(String, u64)> {
    let json: serde_json::Value = serde_json::from_str(&record.to_json()).unwrap();
    let values = json["updates"][0]["values"].as_array().unwrap();
    let each = values.iter().map(|value| {
        let path = value["path"].as_str().unwrap().to_owned();
        (path, value["value"].as_u64().unwrap())
    });
    each.collect()
}

#[test]
fn a_live_sink_never_goes_back_and_ends_with_the_newest_value_of_each_name() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let names = 1 + random.below(400);
        // Some sinks keep up, some hardly ever get a turn, some lose their connection all the time.
        let (slow, restless) = (1 + random.below(30), 1 + random.below(2_000));
        let (mut filter, mut state) = (LiveFilter::new(), LiveState::new());
        let mut newest: HashMap<String, u64> = HashMap::new();
        let mut shown: HashMap<String, u64> = HashMap::new();
        let mut given = 0;
        let mut show = |records: Vec<(u64, Record)>, shown: &mut HashMap<String, u64>| {
            for (_, record) in records {
                given += 1;
                for (path, value) in values(&record) {
                    let before = shown.insert(path, value);
                    assert!(before.is_none_or(|before| before <= value));
                }
            }
        };
        let count = 6_000;
        for number in 0..count {
            // Some records come late, or twice.
            let seq = number - random.below(20).min(number);
            let record = record(&mut random, names, seq);
            if let Some(record) = filter.filter(seq, &record) {
                for (path, value) in values(&record) {
                    newest.insert(path, value);
                }
                state.push(seq, record);
            }
            if random.below(slow) == 0 {
                let most = 1 + random.below(64) as usize;
                show(state.take(most, usize::MAX, |_| true), &mut shown);
            }
            if random.below(restless) == 0 {
                // The same server, or one that knows nothing.
                state.rewind();
                if random.below(2) == 0 {
                    shown.clear();
                }
            }
        }
        state.rewind();
        show(state.take(usize::MAX, usize::MAX, |_| true), &mut shown);
        assert_eq!(shown, newest);
        assert!(given > 0);
    }
}
