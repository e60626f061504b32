use std::time::Duration;

use super::*;
use crate::{EndpointStats, Stats};

/// The fields of a struct as its derived `Debug` names them, and the `Visit`.
fn named_and_visited(stats: &(impl Visit + fmt::Debug)) -> (Vec<String>, Vec<String>) {
    let text = format!("{stats:#?}");
    // One field a line, indented once; what is inside of fields is indented more.
    let fields = text.lines().filter_map(|line| line.strip_prefix("    "));
    let fields = fields.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let named = fields.filter_map(|line| Some(line.split_once(':')?.0.to_owned()));
    let named = named.collect();
    let mut visited = Vec::new();
    stats.visit(&mut |field, _| visited.push(field.name.to_owned()));
    (named, visited)
}

#[test]
fn every_field_is_visited_once_and_in_order() {
    let (named, visited) = named_and_visited(&Stats::default());
    assert!(named.len() > 30, "{named:?}");
    assert_eq!(named, visited);
    let (named, visited) = named_and_visited(&EndpointStats::default());
    assert!(named.len() > 10, "{named:?}");
    assert_eq!(named, visited);
}

#[test]
fn units_are_of_the_values_and_every_field_says_something() {
    let stats = Stats {
        smoothed_rtt: Duration::from_millis(20),
        min_rtt: Some(Duration::from_millis(10)),
        ..Stats::default()
    };
    stats.visit(&mut |field, value| {
        assert!(!field.help.is_empty(), "{}", field.name);
        let fits = match value {
            Value::Whole(_) => {
                matches!(field.unit, Unit::Count | Unit::Bytes | Unit::BytesPerSecond)
            }
            Value::Real(_) => matches!(field.unit, Unit::Seconds | Unit::Ratio),
            Value::Flag(_) => field.unit == Unit::Flag,
            Value::Absent => true,
        };
        assert!(fits, "{field:?} {value:?}");
        if field.name == "smoothed_rtt" {
            assert_eq!(value, Value::Real(0.02));
        }
    });
}

#[test]
fn a_round_trip_that_was_not_measured_is_not_shown() {
    let guess = Stats {
        smoothed_rtt: Duration::from_millis(333),
        rttvar: Duration::from_millis(166),
        ..Stats::default()
    };
    let mut absent = Vec::new();
    guess.visit(&mut |field, value| {
        if value == Value::Absent {
            absent.push(field.name);
        }
    });
    for name in ["smoothed_rtt", "rttvar", "min_rtt", "latest_rtt"] {
        assert!(absent.contains(&name), "{name}: {absent:?}");
    }
    assert!(!absent.contains(&"pto"), "the timer runs by the guess");
}

/// What a total says of a field.
fn total(totals: &Totals, name: &str) -> Total {
    let found = totals.iter().find(|(field, _)| field.name == name);
    found.expect("a field").1
}

#[test]
fn counters_of_those_gone_stay_in_the_sum_and_their_gauges_do_not() {
    let of = |packets_sent, millis| Stats {
        packets_sent,
        smoothed_rtt: Duration::from_millis(millis),
        min_rtt: Some(Duration::from_millis(millis)),
        ..Stats::default()
    };
    let mut shard = Totals::default();
    shard.add_ended(&of(100, 900));
    assert_eq!(total(&shard, "packets_sent"), Total::Sum(100));
    assert_eq!(
        total(&shard, "smoothed_rtt"),
        Total::Spread(Spread::default()),
        "nobody is there to be measured"
    );
    shard.add(&of(10, 20));
    let mut other = Totals::default();
    other.add(&of(1, 40));
    shard.merge(&other);
    assert_eq!(total(&shard, "packets_sent"), Total::Sum(111));
    let Total::Spread(rtt) = total(&shard, "smoothed_rtt") else {
        panic!("a gauge");
    };
    assert_eq!((rtt.least(), rtt.greatest()), (Some(0.02), Some(0.04)));
    assert!((rtt.mean().unwrap() - 0.03).abs() < 1e-12);
    let Total::Spread(rate) = total(&shard, "pacing_rate") else {
        panic!("a gauge");
    };
    assert_eq!(rate.mean(), None, "not measured is not zero");
}

#[test]
fn a_line_for_the_log_has_every_field() {
    let line = Line(&EndpointStats::default()).to_string();
    assert!(
        line.starts_with("connections=0 handshakes=0 incoming=0 "),
        "{line}"
    );
    assert!(!line.contains('\n'));
    let (_, visited) = named_and_visited(&EndpointStats::default());
    assert_eq!(line.split(' ').count(), visited.len());
}
