use bench_contract::Latency;

use super::*;
use crate::plan;

fn case(name: &str) -> Case {
    let found = plan::cases(false)
        .into_iter()
        .find(|case| case.name == name);
    found.expect("a case")
}

fn ends(client: Report, server: Option<Report>) -> Ends {
    let usage = |user| Usage { user, system: 0.5 };
    Ends {
        server,
        client,
        server_usage: usage(1.5),
        client_usage: usage(0.6),
    }
}

fn value(samples: &[Sample], name: &str) -> f64 {
    let found = samples.iter().find(|sample| sample.name == name);
    found.map_or(f64::NAN, |sample| sample.value)
}

#[test]
fn a_transfer_counts_only_if_all_of_it_arrived() {
    let report = |count| Report {
        count,
        seconds: 0.5,
        ..Report::default()
    };
    let upload = case("upload");
    let samples = samples(&upload, Stack::Towline, &ends(report(200_000_000), None));
    let samples = samples.expect("numbers");
    assert_eq!(value(&samples, "upload_mb_s"), 400.0);
    // Of the worse side, for 210 MB.
    let cpu = value(&samples, "CPU s/GB on the worse side");
    assert!((cpu - 2.0 / 0.21).abs() < 1e-9, "{cpu}");
    let short = ends(report(199_999_999), None);
    assert!(super::samples(&upload, Stack::Towline, &short).is_err());
    // Both ways of each stream.
    let duplex = super::samples(
        &case("duplex"),
        Stack::Aioquic,
        &ends(report(20_000_000), None),
    );
    assert_eq!(value(&duplex.expect("numbers"), "duplex_mb_s"), 40.0);
}

#[test]
fn times_are_milliseconds_and_memory_is_thousands_of_bytes() {
    let client = Report {
        count: 500,
        seconds: 1.0,
        latency: Some(Latency {
            min: 900.0,
            p50: 1200.0,
            p99: 3000.0,
            p999: 4000.0,
            max: 5000.0,
        }),
        ..Report::default()
    };
    let handshakes = samples(&case("handshakes"), Stack::Towline, &ends(client, None));
    let handshakes = handshakes.expect("numbers");
    assert_eq!(value(&handshakes, "handshake_ms"), 1.2);
    assert_eq!(value(&handshakes, "max"), 5.0);
    assert_eq!(value(&handshakes, "connections_per_s"), 500.0);
    let server = Report {
        resident_kib: Some((10_000, 20_000)),
        ..Report::default()
    };
    let idle = samples(
        &case("idle"),
        Stack::Towline,
        &ends(Report::default(), Some(server)),
    );
    assert_eq!(value(&idle.expect("numbers"), "idle_kb"), 20.48);
}

#[test]
fn datagrams_are_counted_where_they_arrive() {
    let report = |count, seconds| Report {
        count,
        seconds,
        ..Report::default()
    };
    let ends = ends(report(1_000_000, 10.0), Some(report(900_000, 9.0)));
    let samples = samples(&case("datagrams"), Stack::Wtransport, &ends).expect("numbers");
    assert_eq!(value(&samples, "datagrams_per_s"), 100_000.0);
    assert_eq!(value(&samples, "% delivered"), 90.0);
}

#[test]
fn the_slow_stack_is_asked_for_less_and_all_are_told_the_setting() {
    let mux = case("mux");
    let flag = |flags: &[String], name: &str| {
        let at = flags.iter().position(|flag| flag == name);
        at.map(|at| flags[at + 1].clone())
    };
    assert_eq!(
        flag(&flags(&mux, Stack::Towline), "--streams").as_deref(),
        Some("1000")
    );
    assert_eq!(
        flag(&flags(&mux, Stack::Aioquic), "--streams").as_deref(),
        Some("100")
    );
    let many = plan::cases(false)
        .into_iter()
        .find(|case| case.setting == Some(plan::MANY_STREAMS));
    let flags = flags(&many.expect("a case"), Stack::Wtransport);
    assert_eq!(
        flag(&flags, "--permitted-streams").as_deref(),
        Some("20000")
    );
}
