use bench_runner::figures::Case as _;

use super::*;

#[test]
fn every_measure_of_the_targets_is_measured_once_with_the_defaults_of_all() {
    let cases = cases(false);
    let plain: Vec<_> = cases.iter().filter(|case| case.setting.is_none()).collect();
    let measures: Vec<_> = plain
        .iter()
        .flat_map(|case| case.results.iter().map(|(measure, _)| *measure))
        .collect();
    assert_eq!(
        measures,
        [
            "upload_mb_s",
            "download_mb_s",
            "duplex_mb_s",
            "mux_mb_s",
            "handshake_ms",
            "connections_per_s",
            "rr64_cold_ms",
            "rr1k_cold_ms",
            "rr64_ms",
            "rr1k_ms",
            "datagram_rtt_ms",
            "datagrams_per_s",
            "idle_kb",
        ]
    );
    for case in plain {
        assert_eq!(case.stacks.len(), 7, "{}", case.title());
        assert!(case.permitted_streams.is_none() && !case.aes128 && !case.own_loop);
    }
}

#[test]
fn the_sizes_are_those_of_the_targets() {
    let cases = cases(false);
    let of = |measure: &str| {
        let mut found = cases.iter().filter(|case| case.is_named(measure));
        found.next().expect("a case")
    };
    let upload = of("upload_mb_s");
    let load = upload.load(Stack::Towline);
    assert_eq!((upload.bytes, load.streams), (1_000_000, 10));
    let mux = of("mux_mb_s");
    assert_eq!(
        (mux.bytes, mux.load(Stack::Wtransport).streams),
        (65_536, 1000)
    );
    assert!(of("datagrams_per_s").load(Stack::Towline).seconds >= 10);
    assert_eq!(of("rr64_ms").bytes, 64);
    assert_eq!(of("rr1k_cold_ms").bytes, 1024);
}

#[test]
fn no_two_cases_give_rows_of_the_same_name() {
    let cases = cases(false);
    for (at, case) in cases.iter().enumerate() {
        for other in &cases[at + 1..] {
            let same = case.results == other.results && case.setting == other.setting;
            assert!(!same, "{} twice", case.title());
        }
    }
}

#[test]
fn ours_in_python_has_each_measure_on_both_loops() {
    let cases = cases(false);
    for case in cases.iter().filter(|case| case.setting.is_none()) {
        let other = cases.iter().find(|other| {
            other.results == case.results && other.setting == Some(OWN_LOOP) && other.own_loop
        });
        let other = other.unwrap_or_else(|| panic!("{} on the own loop", case.title()));
        assert_eq!(other.stacks, [Stack::TowlinePython]);
        assert_eq!(
            other.load(Stack::TowlinePython),
            case.load(Stack::TowlinePython)
        );
    }
}
