//! Freenet's shapes on virtual time against what they took when `benches/baseline.json` was recorded.

use std::time::Duration;

use serde_json::Value;
use towline_lab::shapes::{PATHS, Path, PlayError, RATE_LIMITED, SHAPES, Shape, play, transfer};

const BASELINE: &str = include_str!("../benches/baseline.json");

/// How much longer than its baseline a transfer may take, percent.
const TOLERANCE: f64 = 2.0;

fn baseline() -> Value {
    serde_json::from_str(BASELINE).expect("the baseline is JSON")
}

fn stored(baseline: &Value, shape: &Shape, path: &Path, what: &str) -> Duration {
    let rows = baseline["rows"].as_array().expect("rows");
    let row = rows
        .iter()
        .find(|row| row["shape"] == shape.id && row["path"] == path.name);
    let nanos = row.and_then(|row| row[what].as_u64());
    Duration::from_nanos(nanos.unwrap_or_else(|| {
        panic!(
            "the baseline has no {what} of {} on {}: `cargo xtask bench-compare --record`",
            shape.id, path.name
        )
    }))
}

#[test]
fn no_shape_takes_longer_than_its_baseline() {
    let baseline = baseline();
    let seed = baseline["seed"].as_u64().expect("a seed");
    let mut slower = Vec::new();
    for shape in SHAPES {
        for path in PATHS {
            let now = play(&shape, &path, seed).expect("complete");
            for (what, now) in [("whole_ns", now.whole), ("handshake_ns", now.handshake)] {
                let before = stored(&baseline, &shape, &path, what);
                let change = (now.as_secs_f64() / before.as_secs_f64() - 1.0) * 100.0;
                if change > TOLERANCE {
                    let (id, path) = (shape.id, path.name);
                    slower.push(format!(
                        "{id} on {path}, {what}: {before:?} -> {now:?}, {change:+.1} %"
                    ));
                }
            }
        }
    }
    assert!(
        slower.is_empty(),
        "if that is meant, `cargo xtask bench-compare --record` and say why:\n{}",
        slower.join("\n")
    );
}

#[test]
fn the_baseline_holds_every_shape_once_and_no_other() {
    let baseline = baseline();
    assert_eq!(baseline["schema"], "towline.shapes/1");
    let rows = baseline["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), SHAPES.len() * PATHS.len());
    for shape in SHAPES {
        for path in PATHS {
            let (whole, handshake) = (
                stored(&baseline, &shape, &path, "whole_ns"),
                stored(&baseline, &shape, &path, "handshake_ns"),
            );
            assert!(handshake >= path.rtt && whole > handshake, "{}", shape.id);
        }
    }
}

#[test]
fn one_shape_on_one_path_is_one_time() {
    let (shape, path) = (SHAPES[5], PATHS[1]);
    let first = play(&shape, &path, 1).expect("complete");
    assert_eq!(play(&shape, &path, 1), Ok(first));
}

#[test]
fn the_limited_megabyte_takes_what_its_limit_allows() {
    let shape = SHAPES
        .iter()
        .find(|shape| shape.id == RATE_LIMITED)
        .expect("the limited shape");
    let played = play(shape, &PATHS[0], 1).expect("complete");
    let took = played.after_handshake();
    let marks = Duration::from_millis(326)..=Duration::from_millis(350);
    assert!(marks.contains(&took), "{took:?}");
    let free = Shape {
        rate_limit: None,
        ..*shape
    };
    let free = play(&free, &PATHS[0], 1).expect("complete");
    assert!(free.whole * 5 < played.whole, "{:?}", free.whole);
}

#[test]
fn a_transfer_that_cannot_end_says_so() {
    let nothing = transfer(0, Default::default(), &PATHS[0], 1);
    assert!(matches!(nothing, Err(PlayError::Impossible(_))));
    let slow = Path {
        name: "slow",
        rate: 100_000,
        ..PATHS[1]
    };
    let error = transfer(100_000_000, Default::default(), &slow, 1).expect_err("2 hours of data");
    assert!(error.to_string().contains("on slow"), "{error}");
}
