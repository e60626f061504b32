use bench_runner::figures::{Case as _, Sample};

use super::*;
use crate::plan::{self, Case};

/// Figures that reach every mark, of peers that come out as peers do.
fn reached() -> Vec<(&'static str, Option<&'static str>, Stack, f64)> {
    vec![
        (BULK, None, Floor, 0.25),
        (BULK, None, Quinn, 0.7),
        (BULK, None, S2nQuic, 0.53),
        (BULK, None, Towline, 0.5),
        (BULK_DEFAULT, None, Quinn, 0.9),
        (BULK_DEFAULT, None, S2nQuic, 0.7),
        (BULK_DEFAULT, None, Towline, 0.5),
        ("allocs_per_packet", None, Towline, 0.0001),
        ("handshakes_per_s", None, Quinn, 3000.0),
        ("handshakes_per_s", None, Towline, 3600.0),
        ("handshake_server_us", None, Quinn, 200.0),
        ("handshake_server_us", None, Towline, 180.0),
        ("echo64_p50_us", None, Quinn, 80.0),
        ("echo64_p50_us", None, Towline, 80.0),
        ("echo64_p99_us", None, Quinn, 120.0),
        ("echo64_p99_us", None, Towline, 121.0),
        ("idle_kib", None, Towline, 14.9),
        ("idle_kib", Some("20000 streams"), Towline, 15.0),
        ("datagrams_per_s", None, Quinn, 6e6),
        ("datagrams_per_s", None, Towline, 7e6),
        ("datagrams_per_s", Some("defaults"), Quinn, 6e6),
        ("datagrams_per_s", Some("defaults"), Towline, 7e6),
        ("many_us_per_packet", None, Quinn, 9.0),
        ("many_us_per_packet", None, Towline, 8.0),
    ]
}

fn figures(rows: &[(&'static str, Option<&'static str>, Stack, f64)]) -> Figures {
    let cases = plan::cases(false, false);
    let case_of = |measure: &str, setting: Option<&str>| -> Case {
        let found = cases
            .iter()
            .find(|case| case.is_named(measure) && case.setting.as_deref() == setting);
        found.cloned().expect("a planned case")
    };
    let mut figures = Figures::default();
    for (measure, setting, stack, value) in rows {
        let case = case_of(measure, *setting);
        figures.add(
            &case,
            *stack,
            "1".to_owned(),
            vec![Sample::result(measure, *value)],
        );
    }
    figures
}

fn changed(measure: &str, stack: Stack, value: f64) -> Figures {
    let mut rows = reached();
    let row = rows
        .iter_mut()
        .find(|row| row.0 == measure && row.2 == stack);
    row.expect("a row").3 = value;
    figures(&rows)
}

#[test]
fn a_run_that_reaches_every_mark_ends_with_0() {
    let verdict = verdict(&figures(&reached()), Scope::Whole);
    assert_eq!(verdict.invalid, None);
    assert_eq!(verdict.code(), 0, "{}", verdict.line());
    let many = verdict
        .judgements
        .iter()
        .find(|j| j.measure == "many_us_per_packet");
    assert!(many.is_some_and(|many| many.reached && !many.goal_reached));
}

#[test]
fn each_missed_mark_is_named_and_ends_with_1() {
    for (measure, value) in [
        (BULK, 0.52),
        ("allocs_per_packet", 0.001),
        ("handshakes_per_s", 3400.0),
        ("handshake_server_us", 187.0),
        ("echo64_p50_us", 85.0),
        ("echo64_p99_us", 127.0),
        ("idle_kib", 15.1),
        ("datagrams_per_s", 5.9e6),
        ("many_us_per_packet", 8.2),
    ] {
        let verdict = verdict(&changed(measure, Towline, value), Scope::Whole);
        let missed: Vec<_> = verdict
            .missed()
            .iter()
            .map(|missed| missed.measure)
            .collect();
        assert_eq!(missed, [measure]);
        assert_eq!(verdict.code(), 1);
    }
}

#[test]
fn peers_that_come_out_otherwise_make_the_run_invalid_whatever_ours_does() {
    for (stack, value) in [
        (Quinn, 0.59),
        (Quinn, 0.91),
        (S2nQuic, 0.44),
        (S2nQuic, 0.78),
    ] {
        let verdict = verdict(&changed(BULK, stack, value), Scope::Whole);
        let reason = verdict.invalid.clone().unwrap_or_default();
        assert!(
            reason.starts_with(&format!("{stack} ÷ floor is")),
            "{reason}"
        );
        assert_eq!(verdict.code(), 3);
    }
}

#[test]
fn a_whole_run_without_the_floor_or_without_ours_proves_nothing() {
    let without = |stack| {
        let rows: Vec<_> = reached().into_iter().filter(|row| row.2 != stack).collect();
        verdict(&figures(&rows), Scope::Whole)
    };
    assert_eq!(without(Floor).code(), 3);
    assert_eq!(without(Towline).code(), 1);
}

#[test]
fn a_part_is_judged_by_what_it_has_and_a_quick_run_not_at_all() {
    let echo = figures(&[
        ("echo64_p50_us", None, Quinn, 80.0),
        ("echo64_p50_us", None, Towline, 90.0),
    ]);
    let part = verdict(&echo, Scope::Part);
    assert_eq!(part.code(), 1);
    assert!(part.invalid.is_some());
    assert_eq!(verdict(&echo, Scope::Quick).code(), 0);
    assert_eq!(verdict(&figures(&[]), Scope::Part).code(), 0);
}
