use super::{Counts, is_closing_line};

#[test]
fn closing_lines_are_told_from_other_lines() {
    for line in [
        "12 passed, 0 failed",
        "sim: 2000 passed, 1 failed",
        "3 passed, 0 failed, 2 skipped",
    ] {
        assert!(is_closing_line(line), "{line}");
    }
    for line in [
        "seed 7: 12 passed, 0 failed",
        "12 passed",
        "all passed, 0 failed",
        "12 failed, 0 passed",
    ] {
        assert!(!is_closing_line(line), "{line}");
    }
}

#[test]
fn the_results_of_all_test_binaries_add_up() {
    let mut counts = Counts::default();
    counts.add_cargo_line("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
    counts.add_cargo_line("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s");
    counts.add_cargo_line("test something ... ok");
    assert_eq!(counts.line(), "7 passed, 1 failed, 1 skipped");
}
