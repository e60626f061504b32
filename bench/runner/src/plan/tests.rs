use bench_runner::figures::Case as _;

use super::*;

#[test]
fn every_measure_of_the_targets_is_measured_once_without_a_setting() {
    let cases = cases(false, true);
    let judged: Vec<_> = cases
        .iter()
        .filter(|case| case.setting.is_none())
        .flat_map(|case| case.results.iter().map(|(measure, _)| *measure))
        .collect();
    assert_eq!(
        judged,
        [
            "bulk_s_per_gb",
            "bulk_default_s_per_gb",
            "allocs_per_packet",
            "handshakes_per_s",
            "handshake_server_us",
            "echo64_p50_us",
            "echo64_p99_us",
            "idle_kib",
            "datagrams_per_s",
            "many_us_per_packet",
        ]
    );
}

#[test]
fn no_two_cases_give_rows_of_the_same_name() {
    let cases = cases(false, true);
    for (at, case) in cases.iter().enumerate() {
        for other in &cases[at + 1..] {
            assert!(
                case.results != other.results || case.setting != other.setting,
                "{} twice",
                case.title()
            );
        }
    }
}

#[test]
fn ours_is_judged_by_the_shipped_command_and_a_gibibyte() {
    let cases = cases(false, false);
    let bulk = cases.iter().find(|case| case.name == "bulk");
    assert!(bulk.is_some_and(|case| case.way == Way::Cli
        && case.bytes == 1 << 30
        && case.mtu == Some(1472)));
}

#[test]
fn only_names_a_case_or_a_measure() {
    let cases = cases(false, false);
    let named = |name: &str| cases.iter().filter(|case| case.is_named(name)).count();
    assert_eq!(named("bulk"), 2);
    assert_eq!(named("bulk_s_per_gb"), 2);
    assert_eq!(named("matrix"), 18);
    assert_eq!(named("echo64_p99_us"), 2);
    assert_eq!(named("nothing"), 0);
}
