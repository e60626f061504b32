//! What the runs gave: every value of every round, and the medians.
//!
//! Of any comparison: what a case and a stack are, its plan says by [`Case`] and [`Stack`].

use std::fmt;

/// A measured stack.
pub trait Stack: Copy + PartialEq + fmt::Display {
    /// As in results and on the command line.
    fn name(self) -> &'static str;
}

/// What is measured of several stacks.
pub trait Case {
    /// Of the same comparison.
    type Stack: Stack;

    /// Of `--only`; cases that differ in their setting alone share it.
    fn name(&self) -> &'static str;

    /// What differs from the case that is judged.
    fn setting(&self) -> Option<&str>;

    /// The names of its results, and their units.
    fn results(&self) -> &'static [(&'static str, &'static str)];

    /// Who takes part.
    fn stacks(&self) -> &[Self::Stack];

    /// Leaves those out that are not in `kept`.
    fn keep(&mut self, kept: &[Self::Stack]);

    /// How many rounds a stack takes of those that are wanted.
    fn rounds(&self, stack: Self::Stack, wanted: u32) -> u32;

    /// Whether `--only NAME` means this case.
    fn is_named(&self, name: &str) -> bool {
        self.name() == name || self.results().iter().any(|(result, _)| *result == name)
    }

    /// For people.
    fn title(&self) -> String {
        match self.setting() {
            Some(setting) => format!("{} ({setting})", self.name()),
            None => self.name().to_owned(),
        }
    }
}

/// One number of one run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// A measure, or what the number is.
    pub name: &'static str,
    /// In the measure's unit.
    pub value: f64,
    /// Shown beside the results, and nothing more.
    detail: bool,
}

impl Sample {
    /// A number that counts.
    pub const fn result(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value,
            detail: false,
        }
    }

    /// A number that is shown beside it.
    pub const fn detail(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value,
            detail: true,
        }
    }
}

/// One number over all rounds.
#[derive(Clone, Debug)]
pub struct Series {
    /// The samples' name.
    pub name: &'static str,
    values: Vec<f64>,
    detail: bool,
}

impl Series {
    /// `None` without a value.
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// The smallest.
    pub fn least(&self) -> Option<f64> {
        self.values.iter().copied().reduce(f64::min)
    }

    /// The largest.
    pub fn most(&self) -> Option<f64> {
        self.values.iter().copied().reduce(f64::max)
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// One stack in one case.
#[derive(Clone, Debug)]
pub struct Entry<S> {
    /// The case's name.
    pub case: &'static str,
    /// The case's setting.
    pub setting: Option<String>,
    /// Whose numbers these are.
    pub stack: S,
    /// The stack's.
    pub version: String,
    series: Vec<Series>,
    /// Why runs failed, each reason once.
    pub failures: Vec<String>,
    /// Runs that failed.
    failed: u32,
}

impl<S> Entry<S> {
    /// What counts.
    pub fn results(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| !series.detail)
    }

    /// What is shown beside.
    pub fn details(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| series.detail)
    }
}

/// Everything, in the order of running.
pub struct Figures<C: Case> {
    /// Those that were run.
    pub cases: Vec<C>,
    /// What came of them.
    pub entries: Vec<Entry<C::Stack>>,
}

impl<C: Case> Default for Figures<C> {
    fn default() -> Self {
        Self {
            cases: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl<C: Case> Figures<C> {
    fn entry(&mut self, case: &C, stack: C::Stack) -> &mut Entry<C::Stack> {
        let found = self.find(case, stack);
        let at = found.unwrap_or_else(|| {
            self.entries.push(Entry {
                case: case.name(),
                setting: case.setting().map(str::to_owned),
                stack,
                version: String::new(),
                series: Vec::new(),
                failures: Vec::new(),
                failed: 0,
            });
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }

    fn find(&self, case: &C, stack: C::Stack) -> Option<usize> {
        self.entries.iter().position(|entry| {
            entry.case == case.name()
                && entry.setting.as_deref() == case.setting()
                && entry.stack == stack
        })
    }

    /// Adds what other cases gave.
    pub fn append(&mut self, others: Self) {
        self.cases.extend(others.cases);
        self.entries.extend(others.entries);
    }

    /// One run's numbers.
    pub fn add(&mut self, case: &C, stack: C::Stack, version: String, samples: Vec<Sample>) {
        let entry = self.entry(case, stack);
        entry.version = version;
        for sample in samples {
            let same = |series: &&mut Series| series.name == sample.name;
            match entry.series.iter_mut().find(same) {
                Some(series) => series.values.push(sample.value),
                None => entry.series.push(Series {
                    name: sample.name,
                    values: vec![sample.value],
                    detail: sample.detail,
                }),
            }
        }
    }

    /// One run that gave none.
    pub fn fail(&mut self, case: &C, stack: C::Stack, why: &str) {
        let entry = self.entry(case, stack);
        entry.failed += 1;
        if !entry.failures.iter().any(|known| known == why) {
            entry.failures.push(why.to_owned());
        }
    }

    /// Whether runs failed twice and never succeeded.
    pub fn is_hopeless(&self, case: &C, stack: C::Stack) -> bool {
        let entry = self.find(case, stack).map(|at| &self.entries[at]);
        entry.is_some_and(|entry| entry.series.is_empty() && entry.failed >= 2)
    }

    /// The median of a result.
    pub fn median(&self, measure: &str, setting: Option<&str>, stack: C::Stack) -> Option<f64> {
        let entries = self.entries.iter();
        entries
            .filter(|entry| entry.stack == stack && entry.setting.as_deref() == setting)
            .flat_map(Entry::results)
            .find(|series| series.name == measure)?
            .median()
    }

    /// The unit of an entry's result.
    pub fn unit(&self, entry: &Entry<C::Stack>, measure: &str) -> Option<&'static str> {
        let same =
            |case: &&C| case.name() == entry.case && case.setting() == entry.setting.as_deref();
        let case = self.cases.iter().find(same)?;
        let units = case.results().iter();
        units
            .copied()
            .find(|(name, _)| *name == measure)
            .map(|(_, unit)| unit)
    }
}

#[cfg(test)]
pub(crate) mod tests;
