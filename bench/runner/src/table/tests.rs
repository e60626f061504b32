use bench_runner::figures::Sample;
use bench_runner::verdict::Scope;

use super::*;
use crate::marks::verdict;
use crate::plan;

#[test]
fn numbers_keep_three_digits() {
    let shown = [12345.6, 99.94, 9.994, 0.5, 0.0, 0.0004].map(number);
    assert_eq!(
        shown,
        ["12346", "99.9", "9.99", "0.500", "0.000", "0.000400"]
    );
}

#[test]
fn a_missed_mark_says_fail_and_a_failed_run_says_why() {
    let cases = plan::cases(false, false);
    let echo = cases
        .iter()
        .find(|case| case.name == "echo")
        .expect("an echo case");
    let mut figures = Figures::default();
    let run = |value| {
        vec![
            Sample::result("echo64_p50_us", value),
            Sample::detail("p99.9 us", 300.0),
        ]
    };
    figures.add(echo, Stack::Quinn, "0.11.12".to_owned(), run(80.0));
    figures.add(echo, Stack::Towline, "0.1.0".to_owned(), run(100.0));
    figures.fail(echo, Stack::QuicGo, "no\ngo | here");
    figures.cases.push(echo.clone());
    let text = all(&figures, &verdict(&figures, Scope::Part));
    assert!(text.contains("| 1.25     | ≤ 1.05 | FAIL |"), "{text}");
    assert!(text.contains("p99.9 us 300"), "{text}");
    assert!(text.contains("no go / here"), "{text}");
}

#[test]
fn the_matrix_has_a_row_for_each_variant_and_a_dash_for_what_is_missing() {
    let mut figures = Figures {
        cases: plan::cases(false, false),
        ..Figures::default()
    };
    let streams = figures
        .cases
        .iter()
        .find(|case| case.setting.as_deref() == Some("upload, 8 streams"));
    let streams = streams.cloned().expect("a case with 8 streams");
    for (stack, value) in [(Stack::Towline, 0.4), (Stack::Quinn, 0.8)] {
        let samples = vec![Sample::result("bulk_s_per_gb", value)];
        figures.add(&streams, stack, "1".to_owned(), samples);
    }
    let text = matrix(&figures).expect("a table");
    let row = text
        .lines()
        .find(|line| line.contains("8 streams"))
        .expect("a row");
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    assert_eq!(
        cells,
        ["", "8 streams", "–", "–", "–", "0.400", "0.800", "2.00", ""]
    );
    assert_eq!(text.lines().count(), 2 + 9);
}
