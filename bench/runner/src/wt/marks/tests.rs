use bench_runner::figures::{Case as _, Sample};

use super::*;
use crate::plan::{self, Stack};

type Row = (&'static str, Option<&'static str>, Stack, f64);

/// Ours as good as wtransport's everywhere, and a peer that is slow as ever.
fn reached() -> Vec<Row> {
    let mut rows: Vec<Row> = vec![
        (UPLOAD, None, Aioquic, 10.0),
        ("handshake_ms", Some(MANY_STREAMS), Towline, 101.0),
        ("idle_kb", Some(MANY_STREAMS), Towline, 104.0),
    ];
    for (measure, setting, _) in ROWS {
        let value = if *measure == UPLOAD { 300.0 } else { 100.0 };
        rows.push((measure, *setting, Towline, value));
        rows.push((measure, *setting, Wtransport, value));
    }
    rows
}

fn figures(rows: &[Row]) -> Figures {
    let cases = plan::cases(false);
    let mut figures = Figures::default();
    for (measure, setting, stack, value) in rows {
        let found = cases
            .iter()
            .find(|case| case.is_named(measure) && case.setting == *setting);
        let samples = vec![Sample::result(measure, *value)];
        figures.add(found.expect("a case"), *stack, "1".to_owned(), samples);
    }
    figures
}

fn changed(measure: &str, setting: Option<&str>, stack: Stack, factor: f64) -> Figures {
    let mut rows = reached();
    let is_it = |row: &&mut Row| row.0 == measure && row.1 == setting && row.2 == stack;
    rows.iter_mut().find(is_it).expect("a row").3 *= factor;
    figures(&rows)
}

#[test]
fn a_run_in_which_ours_is_as_good_everywhere_ends_with_0() {
    let verdict = verdict(&figures(&reached()), Scope::Whole);
    assert_eq!(verdict.invalid, None);
    assert_eq!(verdict.code(), 0, "{}", verdict.line());
    assert!(verdict.judgements.iter().all(|row| !row.goal_reached));
}

#[test]
fn each_row_that_is_worse_than_wtransport_is_named_and_ends_with_1() {
    for (measure, setting, better) in ROWS {
        let worse = if *better == More { 0.99 } else { 1.01 };
        let figures = changed(measure, *setting, Towline, worse);
        let verdict = verdict(&figures, Scope::Whole);
        let missed: Vec<_> = verdict
            .missed()
            .iter()
            .map(|row| (row.measure, row.setting))
            .collect();
        // Less of it with few streams is more with many.
        assert_eq!(missed, [(*measure, *setting)]);
        assert_eq!(verdict.code(), 1);
    }
}

#[test]
fn a_row_that_is_half_as_good_again_reaches_its_goal_whichever_way_is_better() {
    for (measure, factor) in [("download_mb_s", 1.5), ("rr64_ms", 0.66)] {
        let figures = changed(measure, None, Towline, factor);
        let verdict = verdict(&figures, Scope::Whole);
        let row = verdict.judgements.iter().find(|row| row.measure == measure);
        assert!(row.is_some_and(|row| row.goal_reached), "{measure}");
    }
}

#[test]
fn many_permitted_streams_may_cost_ours_no_more() {
    for measure in PERMITTED {
        let figures = changed(measure, Some(MANY_STREAMS), Towline, 1.05);
        let verdict = verdict(&figures, Scope::Whole);
        let missed: Vec<_> = verdict.missed().iter().map(|row| row.title()).collect();
        assert_eq!(missed, [format!("{measure} ({MANY_STREAMS})")]);
    }
}

#[test]
fn peers_that_are_too_close_make_the_run_invalid_whatever_ours_does() {
    let verdict = verdict(&changed(UPLOAD, None, Aioquic, 1.3), Scope::Whole);
    let reason = verdict.invalid.clone().unwrap_or_default();
    assert_eq!(
        reason,
        "wtransport ÷ aioquic is 23.1 in upload_mb_s, not 25 or more"
    );
    assert_eq!(verdict.code(), 3);
}

#[test]
fn a_whole_run_without_a_peer_or_without_ours_proves_nothing() {
    let without = |stack| {
        let rows: Vec<_> = reached().into_iter().filter(|row| row.2 != stack).collect();
        verdict(&figures(&rows), Scope::Whole).code()
    };
    assert_eq!(without(Aioquic), 3);
    assert_eq!(without(Wtransport), 3);
    assert_eq!(without(Towline), 1);
}

#[test]
fn a_part_is_judged_by_what_it_has_and_a_quick_run_not_at_all() {
    let rows = [
        ("rr64_ms", None, Wtransport, 0.05),
        ("rr64_ms", None, Towline, 0.06),
    ];
    let part = verdict(&figures(&rows), Scope::Part);
    assert_eq!(part.code(), 1);
    assert!(part.invalid.is_some());
    assert_eq!(verdict(&figures(&rows), Scope::Quick).code(), 0);
}
