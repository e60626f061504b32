//! The good-neighbour matrix: what a congestion controller must reach, as rows that measure it.
//!
//! A [`Row`] has a setting, a mark and [`Case`]s (one controller on one path); a case plays
//! scenarios for a seed and returns one number for each of its [`Measure`]s. [`Plan`] plays the
//! cases with every seed, [`Line`]s hold the verdicts, [`Report`] the table. Called by `towline
//! sim matrix` and by the tests. It knows controllers only by name: one that this build does not
//! have makes its cases `missing`, never silently absent.

mod grade;
mod measure;
mod report;
mod rows;
mod run;

use std::fmt;
use std::time::Duration;

use towline_quic::Algorithm;

use crate::Random;
use crate::scenario::{Flow, FlowOutcome, Outcome, RunError, Scenario, run};

pub use grade::{Line, Verdict};
pub use measure::{Mark, Measure, Unit};
pub use report::{Report, Summary};
pub use rows::rows;
pub use run::{Options, Plan, Thinning, UnknownName};

/// Rows declared open: their named cases may miss their marks. At most three rows, each with its
/// evidence in `docs/open-marks.md`; a test compares the two.
pub const OPEN: &[Open] = &[];

/// The row that stands for all others with ACK thinning on.
pub const THINNING: &str = "thinning";

/// NewReno (RFC 9002).
pub const NEWRENO: &str = "newreno";
/// CUBIC (RFC 9438).
pub const CUBIC: &str = "cubic";
/// BBRv3 (draft-ietf-ccwg-bbr).
pub const BBR: &str = "bbr";
/// LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus).
pub const LEDBAT: &str = "ledbat++";
/// One LEDBAT++ controller for all connections of a host.
pub const BACKGROUND: &str = "background";

/// The names a case may be asked for by.
pub const CONTROLLERS: &[&str] = &[NEWRENO, CUBIC, BBR, LEDBAT, BACKGROUND];

/// An open row.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its id.
    pub row: &'static str,
    /// The cases in it that may miss their marks; others still fail.
    pub cases: &'static [&'static str],
}

/// One row of the table.
pub struct Row {
    /// What it is called, as in the table of targets.
    pub id: &'static str,
    /// Rate, round trip, buffer, time.
    pub setting: &'static str,
    /// What must be reached.
    pub mark: &'static str,
    /// What is played.
    pub cases: Vec<Case>,
}

/// One controller on one path.
pub struct Case {
    /// Controller and path, unique within the row.
    pub name: String,
    /// The controller it is about.
    pub controller: &'static str,
    /// What `play` returns, in this order.
    pub measures: Vec<Measure>,
    play: Box<Play>,
}

type Play = dyn Fn(&Trial) -> Result<Vec<f64>, Trouble> + Send + Sync;

impl Case {
    /// A case that `play` plays; it returns one value for each measure.
    fn new(
        controller: &'static str,
        path: impl fmt::Display,
        measures: Vec<Measure>,
        play: impl Fn(&Trial) -> Result<Vec<f64>, Trouble> + Send + Sync + 'static,
    ) -> Self {
        let name = format!("{controller} {path}").trim_end().to_owned();
        Self {
            name,
            controller,
            measures,
            play: Box::new(play),
        }
    }

    /// Plays it once.
    ///
    /// # Errors
    /// When this build cannot play it, or what was played went wrong.
    pub fn play(&self, trial: &Trial) -> Result<Vec<f64>, Trouble> {
        (self.play)(trial)
    }
}

/// Why a case has no values.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// This build has no such controller or limit.
    Missing(String),
    /// A flow ended early, or a transfer did not end: the engine's mistake.
    Failed(String),
    /// The scenario is impossible: the row's mistake.
    Impossible(RunError),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "this build has no {what}"),
            Self::Failed(what) => f.write_str(what),
            Self::Impossible(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<RunError> for Trouble {
    fn from(error: RunError) -> Self {
        Self::Impossible(error)
    }
}

/// One playing of a case: what differs from one seed to the next.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Everything random follows from it.
    pub seed: u64,
    /// Whether peers may ask for fewer ACKs.
    pub thinning: bool,
}

impl Trial {
    /// Flows start this much apart at most, so that no seed meets them in step.
    const STAGGER: Duration = Duration::from_millis(100);

    /// The first of this matrix's streams of random numbers; flow `n` has the `n`th.
    const STREAM: u64 = 7000;

    /// A bulk flow of `controller`, with the product's defaults but for the row's ACKs, from the start to the end.
    fn bulk(&self, controller: &str) -> Result<Flow, Trouble> {
        let algorithm: Algorithm = controller
            .parse()
            .map_err(|_| Trouble::Missing(format!("congestion controller `{controller}`")))?;
        let mut flow = Flow::bulk(controller, algorithm);
        flow.transport.ack_frequency = self.thinning;
        Ok(flow)
    }

    /// Plays `scenario` with this seed, each flow's start moved by up to [`Self::STAGGER`].
    fn run(&self, mut scenario: Scenario) -> Result<Outcome, Trouble> {
        scenario.seed = self.seed;
        for (index, flow) in scenario.flows.iter_mut().enumerate() {
            let mut random = Random::new(self.seed, Self::STREAM + index as u64);
            let late = random.duration_up_to(Self::STAGGER);
            flow.active.start = flow.active.start.saturating_add(late);
            flow.active.end = flow.active.end.saturating_add(late);
        }
        let outcome = run(&scenario)?;
        match outcome.flows.iter().find_map(failure) {
            Some(failure) => Err(Trouble::Failed(failure)),
            None => Ok(outcome),
        }
    }
}

fn failure(flow: &FlowOutcome) -> Option<String> {
    let reason = flow.failure.as_ref()?;
    Some(format!("flow `{}`: {reason}", flow.name))
}

#[cfg(test)]
mod tests;
