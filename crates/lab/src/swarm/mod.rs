//! The random swarm: every seed is a network, a workload and a configuration nobody thought of.
//!
//! `plan` draws them, `run` runs a plan and checks the invariants, `shrink` finds the features a
//! failure needs. `check_seed` is all of it for one seed, with panics caught; the `swarm` program
//! calls it on two threads.

mod features;
mod plan;
mod run;
mod shrink;

use std::panic::{AssertUnwindSafe, catch_unwind};

use towline_wire::{Side, Time};

use crate::violation::{Invariant, Violation};
pub use features::{Feature, Features};
pub use plan::{FreezePlan, Plan};
use run::run_watching;
pub use run::{Meter, Receiver, Report, run};
pub use shrink::shrink;

/// A seed that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The features that were on.
    pub features: Features,
    /// What broke.
    pub violation: Violation,
}

impl Failure {
    /// The one line that runs this again.
    pub fn replay_line(&self) -> String {
        let drawn = Features::draw(self.seed);
        let only = if self.features == drawn {
            String::new()
        } else {
            format!(" ARGS=\"--only {:#x}\"", self.features.bits())
        };
        format!("make sim SEED={}{only}", self.seed)
    }
}

/// Runs one seed with those of its features that are in `only`; with `twice`, runs it again and
/// compares the traces (I12).
///
/// # Errors
/// The invariant it broke.
pub fn check_seed(
    seed: u64,
    only: Features,
    twice: bool,
    meter: Option<Meter>,
) -> Result<Report, Box<Failure>> {
    let plan = Plan::draw(seed, only);
    let fail = |violation| {
        Box::new(Failure {
            seed,
            features: plan.features,
            violation,
        })
    };
    let liar = plan.adversary.map(|(side, _)| side);
    let first = match guarded(&plan, liar, meter) {
        // What a process allocates once looks like a leak in the run that happens to be first.
        Err(violation) if violation.invariant == Invariant::Memory => guarded(&plan, liar, meter),
        result => result,
    };
    let first = first.map_err(fail)?;
    if let Some((side, _)) = plan.adversary
        && (first.receiver.lied || first.receiver.cost.is_some())
    {
        let honest = guarded(&plan.honest(), Some(side), None).map_err(fail)?;
        first.receiver.judge(&honest.receiver).map_err(fail)?;
    }
    if twice {
        let second = guarded(&plan, liar, meter).map_err(fail)?;
        if first.trace != second.trace {
            let what = format!("{:?}, then {:?}", first.trace, second.trace);
            return Err(fail(Violation::new(
                Invariant::Determinism,
                Time::ZERO,
                what,
            )));
        }
    }
    Ok(first)
}

/// I11: a panic is a violation like any other.
fn guarded(plan: &Plan, watched: Option<Side>, meter: Option<Meter>) -> Result<Report, Violation> {
    match catch_unwind(AssertUnwindSafe(|| run_watching(plan, watched, meter))) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without words");
            Err(Violation::new(Invariant::Panic, Time::ZERO, text))
        }
    }
}
