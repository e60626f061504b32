//! How the values of all seeds are held against a mark: the median must meet it, and the worst
//! seed may miss it by a tenth, unless only one value is right.

use std::fmt;

use super::measure::Measure;
use super::{Case, Row};
use crate::scenario::median;

/// By how much of the mark the worst seed may miss it.
const WORST_MAY_MISS: f64 = 0.1;

/// What became of a line or a row, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It reaches its mark.
    Pass,
    /// It reaches its mark, and is listed as open all the same: the list is to be shortened.
    Stale,
    /// It misses its mark, and is listed as open.
    Open,
    /// It was not measured: this build lacks what it takes.
    Missing,
    /// It misses its mark.
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Stale => "pass (listed as open)",
            Self::Open => "open",
            Self::Missing => "missing",
            Self::Fail => "FAIL",
        })
    }
}

/// One measure of one case, over all seeds.
#[derive(Clone, Debug)]
pub struct Line {
    /// The row.
    pub row: &'static str,
    /// The case within it.
    pub case: String,
    /// The controller it is about.
    pub controller: &'static str,
    /// Whether ACKs were thinned.
    pub thinning: bool,
    /// What was measured.
    pub measure: Measure,
    /// One value a seed, from seed 1 on; none if it could not be played.
    pub values: Vec<f64>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why there are no values, if there are none.
    pub note: Option<String>,
}

impl Line {
    /// The line of a case before it is played.
    pub fn unplayed(row: &Row, case: &Case, thinning: bool, measure: Measure) -> Self {
        Self {
            row: row.id,
            case: case.name.clone(),
            controller: case.controller,
            thinning,
            measure,
            values: Vec::new(),
            verdict: Verdict::Missing,
            note: None,
        }
    }

    /// The middle value.
    pub fn median(&self) -> f64 {
        match self.values.is_empty() {
            true => f64::NAN,
            false => median(&self.values),
        }
    }

    /// The value furthest to the bad side.
    pub fn worst(&self) -> f64 {
        let mark = self.measure.mark;
        self.values
            .iter()
            .copied()
            .min_by(|a, b| mark.margin(*a).total_cmp(&mark.margin(*b)))
            .unwrap_or(f64::NAN)
    }

    /// How far the line is from missing its mark, as a share of it; negative if it does.
    pub fn margin(&self) -> f64 {
        let mark = self.measure.mark;
        let worst = mark.margin(self.worst()) + WORST_MAY_MISS;
        mark.margin(self.median()).min(worst)
    }

    /// Whether the values reach the mark.
    pub(super) fn reaches(&self) -> bool {
        self.margin() >= 0.0
    }
}
