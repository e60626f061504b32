use std::time::Duration;

use towline_lab::shapes::{PATHS, Played, SHAPES};

use super::{cold, limit, long, warm};
use crate::measure::{Cold, Long, Saturated, Spread, Warm};
use crate::published::{MESSAGE_SIZES, PRODUCTION, WEEK_0};

fn flat(value: f64) -> Spread {
    Spread::of(vec![value]).expect("one value")
}

fn played(milliseconds: u64) -> Played {
    Played {
        handshake: Duration::from_millis(10),
        whole: Duration::from_millis(milliseconds),
        spurious: 0,
    }
}

fn all_cold() -> Vec<Cold> {
    SHAPES
        .into_iter()
        .map(|shape| Cold {
            shape,
            whole: flat(0.0122),
            after_handshake: flat(0.4),
            played: PATHS.map(|path| (path, played(350))).into(),
        })
        .collect()
}

#[test]
fn every_shape_has_a_published_time() {
    for shape in SHAPES {
        assert!(WEEK_0.iter().any(|(id, _)| *id == shape.id), "{}", shape.id);
    }
    assert_eq!(WEEK_0.len(), SHAPES.len());
}

#[test]
fn a_time_stands_beside_freenets_and_their_ratio() {
    let text = cold(&all_cold());
    let row =
        "| `streaming/throughput/4096` | 244 ms | 12.20 ms (12.20–12.20) | 20 × | 350.00 ms |";
    assert!(text.contains(row), "{text}");
    assert!(text.contains("297 ms | 12.20 ms (12.20–12.20) | held to a limit"));
}

#[test]
fn a_limit_is_held_from_both_sides() {
    let text = limit(&all_cold()).expect("the limited shape");
    assert!(text.contains("297 ms | -10.9 %"), "{text}");
    assert!(
        text.contains("400.00 ms (400.00–400.00) | +20.0 %"),
        "{text}"
    );
    assert!(text.contains("340.0 ms | +2.0 %"), "{text}");
    assert_eq!(limit(&[]), None);
}

#[test]
fn rates_are_compared_with_the_better_day() {
    let network = |seconds: f64| Warm {
        establish: flat(0.01),
        messages: MESSAGE_SIZES.map(|size| (size, flat(seconds))).into(),
        hundred: flat(0.1),
        rtt: 0.002,
    };
    let saturated = Saturated {
        one: flat(2e9),
        four: flat(1e9),
    };
    let text = warm(&network(0.001), &network(0.004), &saturated);
    assert!(
        text.contains(
            "| establish, without delay | 243 ms | 252 ms | 10.00 ms (10.00–10.00) | 24 × |"
        ),
        "{text}"
    );
    let row = "| message of 16 KiB, without delay | 71.01 Mbit/s | 19.56 Mbit/s | 131.1 Mbit/s (131.1–131.1) | 1.85 × |";
    assert!(text.contains(row), "{text}");
    assert!(
        text.contains("| four together, as a share of one | 5 % | 16 % | 50 % | – |"),
        "{text}"
    );
}

#[test]
fn production_is_compared_by_its_shortest_time() {
    let all: Vec<Long> = PRODUCTION
        .iter()
        .map(|published| Long {
            published,
            played: vec![("cubic", played(1500)), ("newreno", played(1600))],
        })
        .collect();
    let text = long(&all);
    let row = "| 2.3 MB, 135 ms | 18–22 s | 1.50 s | 1.60 s | 12 × |";
    assert!(text.contains(row), "{text}");
}
