use super::*;

/// A stack for tests of what is made of figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Peer(&'static str);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Stack for Peer {
    fn name(self) -> &'static str {
        self.0
    }
}

/// A case for the same.
pub(crate) struct Speed(pub(crate) Option<&'static str>);

impl Case for Speed {
    type Stack = Peer;

    fn name(&self) -> &'static str {
        "bulk"
    }

    fn setting(&self) -> Option<&str> {
        self.0
    }

    fn results(&self) -> &'static [(&'static str, &'static str)] {
        &[("bulk_s_per_gb", "s/GB")]
    }

    fn stacks(&self) -> &[Peer] {
        &[QUINN, OURS]
    }

    fn keep(&mut self, _: &[Peer]) {}

    fn rounds(&self, _: Peer, wanted: u32) -> u32 {
        wanted
    }
}

pub(crate) const QUINN: Peer = Peer("quinn");
pub(crate) const OURS: Peer = Peer("towline");

#[test]
fn the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
}

#[test]
fn rounds_of_a_stack_become_one_series_and_settings_stay_apart() {
    let (plain, upload) = (Speed(None), Speed(Some("upload")));
    let mut figures = Figures::default();
    let run = |value| {
        vec![
            Sample::result("bulk_s_per_gb", value),
            Sample::detail("x", value),
        ]
    };
    for value in [0.5, 0.7, 0.6] {
        figures.add(&plain, QUINN, "1".to_owned(), run(value));
        figures.add(&upload, QUINN, "1".to_owned(), run(value * 10.0));
    }
    figures.fail(&plain, OURS, "no");
    figures.fail(&plain, OURS, "no");
    let median = |setting, stack| figures.median("bulk_s_per_gb", setting, stack);
    assert_eq!(median(None, QUINN), Some(0.6));
    assert_eq!(median(Some("upload"), QUINN), Some(6.0));
    assert_eq!(median(None, OURS), None);
    let detail = figures.median("x", None, QUINN);
    assert_eq!(detail, None, "a detail is no result");
    let entry = &figures.entries[0];
    let series = entry.results().next().map(|s| (s.least(), s.most()));
    assert_eq!(series, Some((Some(0.5), Some(0.7))));
    assert_eq!(figures.entries[2].failures, ["no"]);
    assert!(figures.is_hopeless(&plain, OURS));
    assert!(!figures.is_hopeless(&plain, QUINN));
    assert!(!figures.is_hopeless(&upload, OURS), "not run yet");
}

#[test]
fn a_case_is_named_by_itself_or_by_what_it_gives() {
    let case = Speed(Some("upload"));
    assert!(case.is_named("bulk") && case.is_named("bulk_s_per_gb"));
    assert!(!case.is_named("upload"));
    assert_eq!(case.title(), "bulk (upload)");
}
