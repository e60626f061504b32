//! What the runs gave: every value of every round, and the medians.

use crate::plan::{Case, Stack};

/// One number of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    /// Shown beside the results, and nothing more.
    detail: bool,
}

impl Sample {
    pub(crate) const fn result(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value,
            detail: false,
        }
    }

    pub(crate) const fn detail(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value,
            detail: true,
        }
    }
}

/// One number over all rounds.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    values: Vec<f64>,
    detail: bool,
}

impl Series {
    /// `None` without a value.
    pub(crate) fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    pub(crate) fn least(&self) -> Option<f64> {
        self.values.iter().copied().reduce(f64::min)
    }

    pub(crate) fn most(&self) -> Option<f64> {
        self.values.iter().copied().reduce(f64::max)
    }
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
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
pub(crate) struct Entry {
    pub(crate) case: &'static str,
    pub(crate) setting: Option<String>,
    pub(crate) stack: Stack,
    pub(crate) version: String,
    series: Vec<Series>,
    /// Why runs failed, each reason once.
    pub(crate) failures: Vec<String>,
    /// Runs that failed.
    failed: u32,
}

impl Entry {
    pub(crate) fn results(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| !series.detail)
    }

    pub(crate) fn details(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| series.detail)
    }
}

/// Everything, in the order of running.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) cases: Vec<Case>,
    pub(crate) entries: Vec<Entry>,
}

impl Figures {
    fn entry(&mut self, case: &Case, stack: Stack) -> &mut Entry {
        let found = self.entries.iter().position(|entry| {
            entry.case == case.name && entry.setting == case.setting && entry.stack == stack
        });
        let at = found.unwrap_or_else(|| {
            self.entries.push(Entry {
                case: case.name,
                setting: case.setting.clone(),
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

    /// One run's numbers.
    pub(crate) fn add(&mut self, case: &Case, stack: Stack, version: String, samples: Vec<Sample>) {
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
    pub(crate) fn fail(&mut self, case: &Case, stack: Stack, why: &str) {
        let entry = self.entry(case, stack);
        entry.failed += 1;
        if !entry.failures.iter().any(|known| known == why) {
            entry.failures.push(why.to_owned());
        }
    }

    /// Whether runs failed twice and never succeeded.
    pub(crate) fn is_hopeless(&self, case: &Case, stack: Stack) -> bool {
        self.entries.iter().any(|entry| {
            entry.case == case.name
                && entry.setting == case.setting
                && entry.stack == stack
                && entry.series.is_empty()
                && entry.failed >= 2
        })
    }

    /// The median of a result.
    pub(crate) fn median(&self, measure: &str, setting: Option<&str>, stack: Stack) -> Option<f64> {
        let entries = self.entries.iter();
        entries
            .filter(|entry| entry.stack == stack && entry.setting.as_deref() == setting)
            .flat_map(Entry::results)
            .find(|series| series.name == measure)?
            .median()
    }
}

#[cfg(test)]
mod tests;
