use bench_runner::figures::{Case as _, Sample};

use super::*;
use crate::plan::Stack::WebTransportQuinn;
use crate::plan::{self, Stack};

type Row = (&'static str, Option<&'static str>, Stack, f64);

/// What pywebtransport 0.21.1 transfers, MB/s.
const FAST_ENOUGH: f64 = 200.0;

/// Ours as good as the marks want everywhere, and a peer that is slow as ever.
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
    for (measure, better, beside) in PYTHON_ROWS {
        let ours = match *beside {
            Beside::Pywebtransport(first, _) => {
                rows.push((measure, None, Pywebtransport021, FAST_ENOUGH));
                FAST_ENOUGH * first
            }
            Beside::Best(first, _) => {
                let (best, other) = if *better == More {
                    (10.0, 9.0)
                } else {
                    (10.0, 11.0)
                };
                rows.push((measure, None, WebTransportQuinn, best));
                rows.push((measure, None, Pywebtransport021, other));
                best * first
            }
            Beside::Itself(first, _) => first,
        };
        rows.push((measure, None, TowlinePython, ours));
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
        let mut samples = vec![Sample::result(measure, *value)];
        if (*measure, *stack) == (DATAGRAMS, TowlinePython) {
            samples.push(Sample::detail(DELIVERED, ARRIVE));
        }
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

fn missed(figures: &Figures) -> Vec<String> {
    let verdict = verdict(figures, Scope::Whole);
    verdict.missed().iter().map(|row| row.title()).collect()
}

#[test]
fn each_row_of_ours_in_python_is_held_against_its_own_mark() {
    for (measure, better, _) in PYTHON_ROWS {
        let worse = if *better == More { 0.99 } else { 1.01 };
        let figures = changed(measure, None, TowlinePython, worse);
        assert_eq!(missed(&figures), [*measure]);
    }
}

#[test]
fn a_peer_that_others_slow_down_is_only_shown() {
    let slow = 0.7;
    let mut rows = reached();
    for row in rows.iter_mut().filter(|row| row.3 == FAST_ENOUGH) {
        row.3 *= slow;
    }
    for row in rows
        .iter_mut()
        .filter(|row| row.2 == TowlinePython && row.0 == "mux_mb_s")
    {
        row.3 = 1.0;
    }
    let figures = figures(&rows);
    assert_eq!(is_itself(&figures), Some(false));
    assert!(missed(&figures).is_empty());
    let verdict = verdict(&figures, Scope::Whole);
    let shown = verdict
        .judgements
        .iter()
        .find(|row| row.measure == "mux_mb_s" && row.quantity.contains("pywebtransport-0.21.1"));
    assert!(shown.is_some_and(|row| row.first.is_none() && row.value.is_some()));
}

#[test]
fn a_mark_beside_a_peer_that_is_not_there_judges_nothing_and_ours_must_be_there() {
    let without = |stacks: &[Stack]| {
        let rows: Vec<_> = reached()
            .into_iter()
            .filter(|row| !stacks.contains(&row.2))
            .collect();
        missed(&figures(&rows))
    };
    assert!(without(&[Pywebtransport021, WebTransportQuinn]).is_empty());
    let rows_with_numbers = without(&[TowlinePython]);
    assert!(rows_with_numbers.contains(&"rr64_ms".to_owned()));
}

#[test]
fn the_best_of_the_others_in_python_is_the_mark() {
    let figures = changed("handshake_ms", None, Pywebtransport021, 0.5);
    assert_eq!(missed(&figures), ["handshake_ms"]);
}
