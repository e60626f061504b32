//! Plays scenarios on all cores while a bar shows the virtual time; Ctrl-C ends them early.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use towline_lab::scenario::{Outcome, RunError, Scenario, Summary, run_with};

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::printer::Printer;

const TEMPLATE: &str = "{bar:24} {percent:>3}%  {msg} of virtual time  eta {eta}";

/// What became of some scenarios.
pub(super) struct Played {
    /// In their order; `None` for those that Ctrl-C came before.
    pub(super) outcomes: Vec<Option<Outcome>>,
    pub(super) interrupted: bool,
}

impl Played {
    /// How the command ends that showed these, each with its name: not well if a connection broke.
    pub(super) fn exit<'s>(
        &self,
        shown: impl IntoIterator<Item = (&'s str, &'s Summary)>,
    ) -> Result<Exit, Failure> {
        let exit = match self.interrupted {
            true => Exit::Interrupted,
            false => Exit::Ok,
        };
        let mut broken = String::new();
        for (name, summary) in shown {
            for flow in &summary.flows {
                if let Some(why) = &flow.failure {
                    broken.push_str(&format!("\n  {name}: flow {} ended: {why}", flow.name));
                }
            }
        }
        if broken.is_empty() {
            return Ok(exit);
        }
        let exit = match exit {
            Exit::Ok => Exit::Other,
            interrupted => interrupted,
        };
        Err(Failure::new(exit, format!("a connection broke:{broken}")))
    }
}

/// Plays all of them.
pub(super) async fn play(scenarios: Vec<Scenario>, printer: Printer) -> Result<Played, Failure> {
    let interrupt = Interrupt::install(printer);
    let bar = bar(&scenarios, printer);
    let cores = available_parallelism().map_or(1, usize::from);
    let workers = cores.min(scenarios.len());
    let scenarios = Arc::new(scenarios);
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = Vec::new();
    for _ in 0..workers {
        let (scenarios, next) = (Arc::clone(&scenarios), Arc::clone(&next));
        let (interrupt, bar) = (interrupt.clone(), bar.clone());
        running.push(tokio::task::spawn_blocking(move || {
            let mut done: Vec<(usize, Result<Outcome, RunError>)> = Vec::new();
            while !interrupt.is_set() {
                let index = next.fetch_add(1, Relaxed);
                let Some(scenario) = scenarios.get(index) else {
                    break;
                };
                done.push((index, play_one(scenario, &interrupt, bar.as_ref())));
            }
            done
        }));
    }
    let mut outcomes: Vec<Option<Outcome>> = scenarios.iter().map(|_| None).collect();
    for worker in running {
        let done = worker
            .await
            .map_err(|error| Failure::new(Exit::Other, format!("the simulation ended: {error}")))?;
        for (index, outcome) in done {
            let outcome = outcome
                .map_err(|error| Failure::usage(format!("`{}`: {error}", scenarios[index].name)))?;
            outcomes[index] = Some(outcome);
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(Played {
        outcomes,
        interrupted: interrupt.is_set(),
    })
}

fn play_one(
    scenario: &Scenario,
    interrupt: &Interrupt,
    bar: Option<&ProgressBar>,
) -> Result<Outcome, RunError> {
    let mut shown = 0;
    let mut show = |elapsed: Duration| {
        let elapsed = millis(elapsed);
        if let Some(bar) = bar {
            bar.inc(elapsed.saturating_sub(shown));
            bar.set_message(format!("{:.1} s", bar.position() as f64 / 1e3));
        }
        shown = shown.max(elapsed);
    };
    let outcome = run_with(scenario, |elapsed| {
        show(elapsed);
        match interrupt.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    // A finite transfer may be over before its time.
    show(scenario.duration);
    Ok(outcome)
}

fn bar(scenarios: &[Scenario], printer: Printer) -> Option<ProgressBar> {
    if !printer.shows_progress() {
        return None;
    }
    let bar = ProgressBar::new(scenarios.iter().map(|s| millis(s.duration)).sum());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    Some(bar)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
