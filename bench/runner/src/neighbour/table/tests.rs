use super::*;
use crate::figures::tests::trial;

#[test]
fn a_row_has_every_figure_and_a_missing_run_its_reason() {
    let (trial, setting) = trial();
    let cases = ["towline-cubic+linux-cubic", "towline-magic"];
    let cases: Vec<_> = cases.iter().map(|case| case.parse().expect(case)).collect();
    let mut figures = Figures::of(&cases);
    figures.entries[0].trials.push(trial);
    figures.entries[1].failure = Some("there is no magic".to_owned());
    let text = all(&figures, &setting);
    let row = "| `towline-cubic+linux-cubic` | 6.00 : 12.00 | 33.3 % | 1228 : 1500 | 20.0 | 20.0 | 1.00 | 90.0 |";
    assert!(text.contains(row), "{text}");
    assert!(
        text.contains("| `towline-magic` | – | – | – | – | – | – | – |"),
        "{text}"
    );
    assert!(text.contains("NOT MEASURED towline-magic: there is no magic"));
    assert!(!figures.is_complete());
}
