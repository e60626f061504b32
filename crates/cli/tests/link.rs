//! `towline link measure` as a real program: rows, records, and what it says of files that are none.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::fs;

use common::Scratch;
use serde_json::Value;

fn deltas(scratch: &Scratch, name: &str, count: usize) -> String {
    let line = |at: usize| {
        format!(
            "{{\"context\":\"vessels.self\",\"updates\":[{{\"values\":[{{\"path\":\"environment.depth.belowKeel\",\"value\":{}.{}}}]}}]}}\n",
            10 + at % 3,
            at % 10
        )
    };
    let text: String = (0..count).map(line).collect();
    write(scratch, name, &text)
}

fn write(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.path(name);
    fs::write(&path, text).expect("the file is written");
    path.display().to_string()
}

#[test]
fn a_file_of_deltas_is_measured_cold_and_warm() {
    let scratch = Scratch::new();
    let file = deltas(&scratch, "deltas.jsonl", 1_200);
    let ended = scratch.run(["link", "measure", &file, "--batch", "10,50"]);
    ended.expect(0, &["bytes a delta", "1200 deltas came back exactly"]);
    let ended = scratch.run(["link", "measure", &file, "--batch", "10,50", "--json"]);
    let ended = ended.expect(0, &[]);
    let record: Value = serde_json::from_str(ended.stdout.trim()).expect("one record");
    assert_eq!(record["round_trip"], "exact");
    assert_eq!(record["refused"], 0);
    let rows = record["rows"].as_array().expect("rows");
    let modes: Vec<(u64, &str)> = rows
        .iter()
        .map(|row| {
            (
                row["batch"].as_u64().unwrap(),
                row["mode"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        modes,
        [(10, "warm"), (50, "warm"), (10, "cold"), (50, "cold")]
    );
    for row in rows {
        let bytes = row["bytes_per_delta"].as_f64().unwrap();
        assert!((0.3..20.0).contains(&bytes), "{row}");
    }
}

#[test]
fn training_is_paid_for_in_the_cold_row() {
    let scratch = Scratch::new();
    let file = deltas(&scratch, "deltas.jsonl", 200);
    let cold = |more: &[&str]| {
        let ended =
            scratch.run([&["link", "measure", &file, "--batch", "10", "--json"], more].concat());
        let ended = ended.expect(0, &[]);
        let record: Value = serde_json::from_str(ended.stdout.trim()).expect("one record");
        record["rows"][0]["bytes_per_delta"].as_f64().unwrap()
    };
    assert!(cold(&["--train", &file]) > 1.3 * cold(&[]));
}

#[test]
fn lines_that_are_no_deltas_are_told_and_left_out() {
    let scratch = Scratch::new();
    let text = "{\"a\":1}\n\n{\"a\":NaN}\n[1]\n{\"a\":1,\"a\":2}\n{\"a\":2}";
    let file = write(&scratch, "mixed.jsonl", text);
    let ended = scratch.run(["link", "measure", &file, "--batch", "1"]);
    let ended = ended.expect(7, &["2 deltas came back exactly"]);
    for said in [
        ":3: column",
        ":4: a JSON object is wanted",
        ":5: the key \"a\" is there twice",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
}

#[test]
fn a_file_that_is_none_is_wrong_usage() {
    let scratch = Scratch::new();
    let empty = write(&scratch, "empty.jsonl", "\n\n");
    let ended = scratch.run(["link", "measure", &empty]);
    let ended = ended.expect(2, &[]);
    assert!(
        ended.stderr.contains("has no delta in it"),
        "{}",
        ended.stderr
    );
    let ended = scratch.run(["link", "measure", "/nowhere/at/all.jsonl"]);
    let ended = ended.expect(2, &[]);
    assert!(ended.stderr.contains("cannot read"), "{}", ended.stderr);
    let ended = scratch.run(["link", "measure", &empty, "--loss", "0.9"]);
    ended.expect(2, &["from 0 to 0.5"]);
}
