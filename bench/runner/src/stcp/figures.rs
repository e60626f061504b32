//! What the slices gave, and what is held against the marks.

use std::process::ExitCode;

use crate::plan::{Cell, Route, Stack};
use crate::trial::Sample;

/// One stack in one cell.
pub(crate) struct Entry {
    pub(crate) cell: Cell,
    pub(crate) stack: Stack,
    pub(crate) version: String,
    pub(crate) samples: Vec<Sample>,
    /// Why slices failed, each reason once.
    pub(crate) failures: Vec<String>,
}

impl Entry {
    /// The median of one number.
    pub(crate) fn median(&self, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.samples.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            length if length % 2 == 1 => Some(values[middle]),
            _ => Some((values[middle - 1] + values[middle]) / 2.0),
        }
    }

    pub(crate) fn errors(&self) -> f64 {
        let each = self.samples.iter().map(|sample| sample.errors);
        each.fold(0.0, |sum, errors| sum + errors)
    }
}

/// Everything, in the order of running.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) entries: Vec<Entry>,
    /// KiB for each idle connection of a server.
    pub(crate) idle: Vec<(Stack, f64)>,
}

impl Figures {
    fn entry(&mut self, cell: &Cell, stack: Stack, version: String) -> &mut Entry {
        let is_it = |entry: &Entry| entry.cell.measure() == cell.measure() && entry.stack == stack;
        let at = self.entries.iter().position(is_it).unwrap_or_else(|| {
            self.entries.push(Entry {
                cell: cell.clone(),
                stack,
                version,
                samples: Vec::new(),
                failures: Vec::new(),
            });
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }

    pub(crate) fn add(&mut self, cell: &Cell, stack: Stack, version: String, sample: Sample) {
        self.entry(cell, stack, version).samples.push(sample);
    }

    pub(crate) fn fail(&mut self, cell: &Cell, stack: Stack, version: String, why: String) {
        let entry = self.entry(cell, stack, version);
        if !entry.failures.contains(&why) {
            entry.failures.push(why);
        }
    }

    /// Every cell once.
    pub(crate) fn cells(&self) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> = Vec::new();
        for entry in &self.entries {
            if !cells
                .iter()
                .any(|cell| cell.measure() == entry.cell.measure())
            {
                cells.push(&entry.cell);
            }
        }
        cells
    }

    /// Median requests a second.
    pub(crate) fn rate(&self, measure: &str, stack: Stack) -> Option<f64> {
        self.entries
            .iter()
            .find(|entry| entry.cell.measure() == measure && entry.stack == stack)?
            .median(|sample| sample.requests_per_s)
    }

    /// Requests a second of one stack by another's.
    pub(crate) fn ratio(&self, measure: &str, ours: Stack, theirs: Stack) -> Option<f64> {
        Some(self.rate(measure, ours)? / self.rate(measure, theirs)?)
    }
}

/// A number and what it must reach.
pub(crate) struct Judgement {
    pub(crate) measure: String,
    pub(crate) what: &'static str,
    pub(crate) value: Option<f64>,
    /// Whether less is better.
    pub(crate) is_limit: bool,
    /// `None` where it is only shown.
    pub(crate) first: Option<f64>,
    pub(crate) goal: Option<f64>,
}

impl Judgement {
    pub(crate) fn is_missed(&self) -> bool {
        self.first.is_some_and(|first| !self.reaches(first))
    }

    pub(crate) fn is_goal_reached(&self) -> bool {
        self.goal.is_some_and(|goal| self.reaches(goal))
    }

    fn reaches(&self, mark: f64) -> bool {
        self.value.is_some_and(|value| match self.is_limit {
            true => value <= mark,
            false => value >= mark,
        })
    }
}

/// What the comparison says.
pub(crate) struct Verdict {
    pub(crate) judgements: Vec<Judgement>,
    /// Of ours, over all cells.
    pub(crate) errors: f64,
    /// Why the run does not count.
    pub(crate) invalid: Option<String>,
    is_whole: bool,
}

/// What is shown, ours and theirs, mark and goal.
type Ratio = (&'static str, Stack, Stack, Option<(f64, f64)>);
const RATIOS: [Ratio; 6] = [
    (
        "library ÷ rustls",
        Stack::Towline,
        Stack::Rustls,
        Some((0.95, 1.05)),
    ),
    ("library ÷ plain TCP", Stack::Towline, Stack::Plain, None),
    (
        "proxy ÷ stunnel",
        Stack::Proxy,
        Stack::Stunnel,
        Some((1.0, 2.0)),
    ),
    ("library ÷ OpenSSL", Stack::Towline, Stack::Openssl, None),
    ("relay tier ÷ plain TCP", Stack::Relay, Stack::Plain, None),
    (
        "user-relay tier ÷ plain TCP",
        Stack::UserRelay,
        Stack::Plain,
        None,
    ),
];

impl Verdict {
    pub(crate) fn of(figures: &Figures, is_whole: bool) -> Self {
        let mut judgements = Vec::new();
        for cell in figures.cells() {
            for (what, ours, theirs, marks) in RATIOS {
                if !(cell.stacks.contains(&ours) && cell.stacks.contains(&theirs)) {
                    continue;
                }
                let measure = cell.measure();
                // What the link decides is only shown.
                let marks = marks.filter(|_| cell.route == Route::Loopback);
                judgements.push(Judgement {
                    value: figures.ratio(&measure, ours, theirs),
                    measure,
                    what,
                    is_limit: false,
                    first: marks.map(|marks| marks.0),
                    goal: marks.map(|marks| marks.1),
                });
            }
        }
        let idle = figures
            .idle
            .iter()
            .find(|(stack, _)| *stack == Stack::Towline);
        judgements.push(Judgement {
            measure: "idle_kib".to_owned(),
            what: "KiB of an idle connection",
            value: idle.map(|(_, kib)| *kib),
            is_limit: true,
            first: Some(64.0),
            goal: Some(16.0),
        });
        let errors_of = |ours: bool| -> f64 {
            let entries = figures.entries.iter();
            entries
                .filter(|entry| entry.stack.is_ours() == ours)
                .fold(0.0, |sum, entry| sum + entry.errors())
        };
        let failed = figures.entries.iter().find(|entry| {
            !entry.failures.is_empty() && matches!(entry.stack, Stack::Plain | Stack::Rustls)
        });
        let invalid = match failed {
            _ if !is_whole => Some("not a whole run".to_owned()),
            Some(entry) => Some(format!("{} failed: {}", entry.stack, entry.failures[0])),
            None if errors_of(false) > 0.0 => Some("the peers had errors".to_owned()),
            None => None,
        };
        Self {
            judgements,
            errors: errors_of(true),
            invalid,
            is_whole,
        }
    }

    fn missed(&self) -> usize {
        let missed = self.judgements.iter().filter(|row| row.is_missed()).count();
        missed + usize::from(self.errors > 0.0)
    }

    /// One line.
    pub(crate) fn line(&self) -> String {
        match &self.invalid {
            _ if !self.is_whole => "Nothing is judged: this was not a whole run.".to_owned(),
            Some(why) => format!("This run does not count: {why}."),
            None if self.missed() == 0 => {
                let rows = || self.judgements.iter();
                let goals = rows().filter(|row| row.goal.is_some()).count();
                let reached = rows().filter(|row| row.is_goal_reached()).count();
                format!("Every mark is reached; {reached} of {goals} goals.")
            }
            None => format!("{} marks are missed.", self.missed()),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match &self.invalid {
            _ if !self.is_whole => ExitCode::SUCCESS,
            Some(_) => ExitCode::from(3),
            None if self.missed() == 0 => ExitCode::SUCCESS,
            None => ExitCode::from(1),
        }
    }
}

#[cfg(test)]
mod tests;
