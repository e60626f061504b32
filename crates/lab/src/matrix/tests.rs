use super::measure::Measure;
use super::*;
use crate::matrix::rows::{expected_window, most_above};

fn line(measure: Measure, values: &[f64]) -> Line {
    Line {
        row: "utilisation",
        case: "cubic".to_owned(),
        controller: CUBIC,
        thinning: false,
        measure,
        values: values.to_vec(),
        verdict: Verdict::Fail,
        note: None,
    }
}

#[test]
fn the_median_meets_the_mark_and_the_worst_may_miss_it_by_a_tenth() {
    let least = Measure::at_least("use", 0.9, Unit::Share);
    assert!(line(least, &[0.9, 0.95, 0.82]).reaches());
    assert!(!line(least, &[0.9, 0.95, 0.80]).reaches(), "worst too low");
    assert!(
        !line(least, &[0.89, 0.95, 0.89]).reaches(),
        "median too low"
    );
    let most = Measure::at_most("queue", 0.06, Unit::Millis);
    assert!(line(most, &[0.06, 0.01, 0.065]).reaches());
    assert!(!line(most, &[0.06, 0.01, 0.067]).reaches());
    assert_eq!(line(most, &[0.06, 0.01, 0.065]).worst(), 0.065);
    let both = Measure::between("share", 0.2, 0.8, Unit::Share);
    assert!(line(both, &[0.2, 0.8, 0.5]).reaches());
    assert!(!line(both, &[0.5, 0.5, 0.9]).reaches());
    assert_eq!(line(both, &[0.5, 0.1, 0.81]).worst(), 0.1);
}

#[test]
fn a_mark_of_one_value_allows_no_other_with_any_seed() {
    let window = Measure::exactly("initial window", 12_000.0, Unit::Bytes);
    assert_eq!(window.mark_text(), "= 12000 B");
    assert!(line(window, &[12_000.0; 3]).reaches());
    assert!(!line(window, &[12_000.0, 12_000.0, 12_001.0]).reaches());
    assert!(!line(window, &[12_000.0, 12_000.0, 11_999.0]).reaches());
    assert!(!line(window, &[12_000.0, f64::NAN, 12_000.0]).reaches());
}

#[test]
fn a_mark_of_none_allows_none_and_no_value_reaches_no_mark() {
    let none = Measure::at_most("timeouts", 0.0, Unit::Count);
    assert!(line(none, &[0.0, 0.0, 0.0]).reaches());
    assert!(!line(none, &[0.0, 1.0, 0.0]).reaches());
    assert!(!line(none, &[]).reaches());
    let most = Measure::at_most("queue", 0.06, Unit::Millis);
    assert!(!line(most, &[f64::NAN]).reaches());
    assert!(!line(most, &[f64::INFINITY]).reaches());
}

#[test]
fn a_case_that_broke_off_with_one_seed_is_not_counted_as_reached() {
    let mut broken = line(Measure::at_least("use", 0.9, Unit::Share), &[0.95, 0.95]);
    broken.note = Some("seed 3: a flow ended".to_owned());
    let whole = Line {
        verdict: Verdict::Pass,
        note: None,
        ..broken.clone()
    };
    let row = Summary::of("utilisation", "", "", [&broken, &whole].into_iter());
    let row = row.expect("two lines");
    assert_eq!((row.lines, row.reached), (2, 1));
    assert_eq!(row.verdict(), Verdict::Fail);
}

#[test]
fn every_row_of_the_targets_is_in_the_matrix_once() {
    let ids: Vec<&str> = rows().iter().map(|row| row.id).chain([THINNING]).collect();
    let targets = [
        "utilisation",
        "queue delay",
        "fairness",
        "yielding",
        "background",
        "BBR against CUBIC",
        "Freenet's path",
        "random loss",
        "reordering",
        "outage",
        "lost handshake packet",
        "heavier loss",
        "regained capacity",
        "ACK loss",
        "parallel",
        "uplink",
        "slow start",
        "step",
        "rate limit",
        "the seed's streams",
        "the seed's concurrency",
        "thinning",
    ];
    assert_eq!(ids, targets);
    for row in rows() {
        let mut names: Vec<&str> = row.cases.iter().map(|case| case.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), row.cases.len(), "twice in {}", row.id);
        for case in &row.cases {
            assert!(CONTROLLERS.contains(&case.controller), "{}", case.name);
            assert!(!case.measures.is_empty(), "{}", case.name);
        }
    }
}

#[test]
fn at_most_three_rows_are_open_and_each_is_one_of_the_matrix() {
    assert!(OPEN.len() <= 3);
    let rows = rows();
    for open in OPEN {
        let row = rows.iter().find(|row| row.id == open.row);
        let row = row.unwrap_or_else(|| panic!("no row `{}`", open.row));
        for name in open.cases {
            let known = row.cases.iter().any(|case| case.name == *name);
            assert!(known, "no case `{name}` in `{}`", open.row);
        }
    }
}

#[test]
fn what_does_not_exist_is_refused_with_what_does() {
    let asked = Options {
        rows: vec!["utilization".to_owned()],
        ..Options::default()
    };
    let error = Plan::new(&asked)
        .map(|plan| plan.len())
        .expect_err("no such row");
    assert!(
        error.to_string().contains("utilisation, queue delay"),
        "{error}"
    );
    let asked = Options {
        controllers: vec!["vegas".to_owned()],
        ..Options::default()
    };
    let error = Plan::new(&asked)
        .map(|plan| plan.len())
        .expect_err("no such controller");
    assert!(error.to_string().contains("newreno, cubic"), "{error}");
}

#[test]
fn a_choice_that_leaves_nothing_says_what_was_asked_for() {
    let asked = Options {
        rows: vec!["step".to_owned()],
        case: Some("newreno".to_owned()),
        ..Options::default()
    };
    let error = Plan::new(&asked)
        .map(|plan| plan.len())
        .expect_err("the row is BBR's");
    let words = "the matrix has no case with `newreno` in its name, of that kind";
    assert_eq!(error.to_string(), words);
}

#[test]
fn the_thinning_row_is_every_other_row_again() {
    let plan = |rows: &[&str], thinning| {
        let options = Options {
            rows: rows.iter().map(|row| (*row).to_owned()).collect(),
            thinning,
            seeds: 1,
            ..Options::default()
        };
        Plan::new(&options).expect("a plan").len()
    };
    let both = plan(&[], Thinning::Both);
    let off = plan(&[], Thinning::Off);
    assert_eq!(both, 2 * off);
    assert_eq!(plan(&[THINNING], Thinning::Both), off);
    assert_eq!(plan(&["step"], Thinning::Both), 2);
    assert_eq!(plan(&["step"], Thinning::Off), 1);
}

#[test]
fn a_case_this_build_cannot_play_is_missing_and_not_passed_over() {
    let case = Case::new(
        CUBIC,
        "",
        vec![Measure::at_least("use", 0.9, Unit::Share)],
        |trial| trial.bulk("a controller of tomorrow").map(|_| vec![1.0]),
    );
    let trial = Trial {
        seed: 1,
        thinning: false,
    };
    let trouble = case.play(&trial).expect_err("unknown");
    assert!(matches!(trouble, Trouble::Missing(_)), "{trouble:?}");
}

#[test]
fn the_larger_formula_counts_for_cubic() {
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    let rtt = Duration::from_millis(100);
    // They cross at p = RTT³/1.82 (5.5e-4 here).
    assert!(near(expected_window(CUBIC, 0.01, rtt), 12.25));
    assert!(near(expected_window(CUBIC, 5.5e-4, rtt), 52.2));
    assert!(expected_window(CUBIC, 1e-4, rtt) > expected_window(NEWRENO, 1e-4, rtt));
}

#[test]
fn the_most_above_a_rate_is_found_in_any_window() {
    // 100 B each 10 ms are 10,000 B/s; a window that starts and ends with a send has one more.
    let even: Vec<(f64, f64)> = (0..100).map(|n| (f64::from(n) * 0.01, 100.0)).collect();
    let above = most_above(&even, 10_000.0, 0.1);
    assert!((above - 100.0).abs() < 1e-6, "{above}");
    // 500 more in one place are seen, wherever it is.
    let mut burst = even.clone();
    burst.insert(50, (0.5, 500.0));
    let above = most_above(&burst, 10_000.0, 0.1);
    assert!((above - 600.0).abs() < 1e-6, "{above}");
    // A short burst after a pause counts against the shortest window.
    let pause = [(0.0, 100.0), (5.0, 1500.0)];
    assert!((most_above(&pause, 10_000.0, 0.1) - 500.0).abs() < 1e-6);
}

#[test]
fn starts_differ_from_seed_to_seed_and_not_from_run_to_run() {
    let start = |seed| {
        let trial = Trial {
            seed,
            thinning: false,
        };
        let flow = trial.bulk(CUBIC).expect("always there");
        let rate = 10_000_000;
        let path = Scenario::dumbbell(
            rate,
            Duration::from_millis(20),
            50_000,
            Duration::from_millis(200),
        );
        trial
            .run(path.flow(flow))
            .expect("a possible scenario")
            .flows[0]
            .started
    };
    assert_eq!(start(1), start(1));
    assert_ne!(start(1), start(2));
    assert!(start(3) <= Duration::from_millis(100));
}
