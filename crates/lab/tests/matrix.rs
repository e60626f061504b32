//! `docs/matrix.md` is what the code measures today: every case stands in it, none fails, and
//! those that are quick to play still give the value for seed 1 that is written there.

use std::collections::BTreeSet;

use towline_lab::matrix::{Line, OPEN, Options, Plan, Report, Thinning};

const TABLE: &str = include_str!("../../../docs/matrix.md");
const OPEN_MARKS: &str = include_str!("../../../docs/open-marks.md");

/// How a line of `docs/open-marks.md` about a row begins.
const OPEN_PREFIX: &str = "| matrix: ";

/// The cells of the table's line that begins with `key`: seed 1, median, worst, verdict.
fn cells(key: &str) -> Option<Vec<&'static str>> {
    let line = TABLE.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.split('|').map(str::trim).collect())
}

fn play(rows: &[&str], case: Option<&str>, thinning: Thinning) -> Report {
    let options = Options {
        rows: rows.iter().map(|row| (*row).to_owned()).collect(),
        case: case.map(str::to_owned),
        seeds: 1,
        thinning,
        ..Options::default()
    };
    let plan = Plan::new(&options).expect("rows of the matrix");
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    plan.play(jobs, &|| {})
}

fn compare(lines: &[Line]) {
    let mut differences = Vec::new();
    for line in lines {
        let key = line.markdown_key();
        let written = cells(&key).and_then(|cells| cells.first().copied());
        let played = line.show_first();
        if written != Some(played.as_str()) {
            differences.push(format!("{key} {played}, written {written:?}"));
        }
    }
    assert!(
        differences.is_empty(),
        "these differ from docs/matrix.md; if that is meant, write it anew with \
         `towline sim matrix --out docs/matrix.md`:\n{}",
        differences.join("\n")
    );
}

#[test]
fn quick_rows_give_the_values_of_the_table() {
    let rows = [
        "Freenet's path",
        "the seed's streams",
        "the seed's concurrency",
        "rate limit",
    ];
    compare(&play(&rows, None, Thinning::Off).lines);
}

#[test]
fn quick_cases_of_longer_rows_give_the_values_of_the_table() {
    compare(&play(&["utilisation"], Some(" 10 Mbit/s"), Thinning::Off).lines);
    compare(&play(&["queue delay", "uplink"], None, Thinning::Off).lines);
}

#[test]
fn thinned_acks_give_the_values_of_the_table() {
    compare(&play(&["ACK loss"], None, Thinning::On).lines);
    compare(&play(&["Freenet's path"], None, Thinning::On).lines);
}

#[test]
fn the_table_holds_every_case_and_none_that_fails_or_is_missing() {
    let plan = Plan::new(&Options::default()).expect("the whole matrix");
    let mut expected = BTreeSet::new();
    for (row, case, thinning) in plan.cases() {
        for measure in &case.measures {
            let line = Line::unplayed(row, case, thinning, *measure);
            let key = line.markdown_key();
            let cells = cells(&key).unwrap_or_else(|| panic!("not in docs/matrix.md: {key}"));
            let verdict = cells[3];
            let is_listed = OPEN
                .iter()
                .any(|open| open.row == row.id && open.cases.contains(&case.name.as_str()));
            let holds = match is_listed {
                true => verdict == "open" || verdict.starts_with("pass"),
                false => verdict == "pass",
            };
            assert!(holds, "{key} is `{verdict}` in docs/matrix.md");
            expected.insert(key);
        }
    }
    let written = TABLE.lines().filter(|line| is_case(line)).count();
    assert_eq!(written, expected.len(), "a case that no longer exists");
}

/// Whether this is a line of the table of cases: nine cells, and not its head.
fn is_case(line: &str) -> bool {
    line.matches('|').count() == 10 && !line.starts_with("|---") && !line.starts_with("| row ")
}

#[test]
fn open_rows_stand_in_the_list_of_open_marks_and_the_other_way_round() {
    let listed: BTreeSet<&str> = OPEN_MARKS
        .lines()
        .filter_map(|line| line.strip_prefix(OPEN_PREFIX)?.split(" |").next())
        .collect();
    let declared: BTreeSet<&str> = OPEN.iter().map(|open| open.row).collect();
    assert_eq!(
        declared, listed,
        "rows declared open, and docs/open-marks.md"
    );
}
