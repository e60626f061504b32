use super::*;
use crate::plan;

#[test]
fn the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
}

#[test]
fn rounds_of_a_stack_become_one_series_and_settings_stay_apart() {
    let cases = plan::cases(false, false);
    let bulk: Vec<_> = cases.iter().filter(|case| case.name == "bulk").collect();
    let mut figures = Figures::default();
    let run = |value| {
        vec![
            Sample::result("bulk_s_per_gb", value),
            Sample::detail("x", value),
        ]
    };
    for value in [0.5, 0.7, 0.6] {
        figures.add(bulk[0], Stack::Quinn, "1".to_owned(), run(value));
        figures.add(bulk[1], Stack::Quinn, "1".to_owned(), run(value * 10.0));
    }
    figures.fail(bulk[0], Stack::Towline, "no");
    figures.fail(bulk[0], Stack::Towline, "no");
    assert_eq!(
        figures.median("bulk_s_per_gb", None, Stack::Quinn),
        Some(0.6)
    );
    assert_eq!(
        figures.median("bulk_s_per_gb", Some("upload"), Stack::Quinn),
        Some(6.0)
    );
    assert_eq!(figures.median("bulk_s_per_gb", None, Stack::Towline), None);
    assert_eq!(
        figures.median("x", None, Stack::Quinn),
        None,
        "a detail is no result"
    );
    let series = figures.entries[0]
        .results()
        .next()
        .map(|s| (s.least(), s.most()));
    assert_eq!(series, Some((Some(0.5), Some(0.7))));
    assert_eq!(figures.entries[2].failures, ["no"]);
    assert!(figures.is_hopeless(bulk[0], Stack::Towline));
    assert!(!figures.is_hopeless(bulk[0], Stack::Quinn));
    assert!(!figures.is_hopeless(bulk[0], Stack::Floor), "not run yet");
}
