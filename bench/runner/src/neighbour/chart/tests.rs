use super::*;
use crate::figures::tests::trial;

#[test]
fn the_chart_has_a_row_for_each_case_that_was_measured() {
    let (trial, setting) = trial();
    let cases = ["towline-cubic+linux-cubic", "towline-magic"];
    let cases: Vec<_> = cases.iter().map(|case| case.parse().expect(case)).collect();
    let mut figures = Figures::of(&cases);
    figures.entries[0].trials.push(trial);
    let path = std::env::temp_dir().join(format!("bench-neighbour-{}.svg", std::process::id()));
    draw(&path, &figures, &setting).expect("a chart");
    let text = std::fs::read_to_string(&path).expect("the chart's file");
    std::fs::remove_file(&path).expect("the chart's file goes");
    for wanted in [
        "goodput, % of the link",
        "queue delay, ms",
        "linux-cubic",
        "12 s",
        "#1B6CA8",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing");
    }
    assert_eq!(
        text.matches("<polyline").filter(|_| true).count(),
        3 + 2 * 5
    );
    assert!(!text.contains("towline-magic"));
}
