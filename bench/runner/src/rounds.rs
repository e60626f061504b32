//! The rounds: every case of a comparison, the stacks in turn.

use indicatif::{ProgressBar, ProgressStyle};

use crate::Outcome;
use crate::figures::{Case, Figures, Sample};

/// The programs of a comparison.
pub trait Bench<C: Case> {
    /// Why a stack cannot be measured here.
    fn missing(&self, stack: C::Stack) -> Option<&str>;

    /// What was measured.
    fn version(&self, stack: C::Stack) -> String;

    /// Runs `case` once with one stack.
    ///
    /// # Errors
    /// Why there are no numbers, in words.
    fn run(&self, case: &C, stack: C::Stack) -> Outcome<Vec<Sample>>;
}

/// Runs the cases, each in as many rounds as it takes of those that are wanted.
pub fn measure<C: Case>(cases: Vec<C>, wanted: u32, bench: &impl Bench<C>) -> Figures<C> {
    let turns = |case: &C| -> u64 {
        let each = case
            .stacks()
            .iter()
            .map(|stack| case.rounds(*stack, wanted));
        each.map(u64::from).sum()
    };
    let bar = ProgressBar::new(cases.iter().map(turns).sum());
    // No steady tick: between two runs is the only time at which this process may do anything.
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {msg} [{elapsed}, {eta} left]") {
        bar.set_style(style);
    }
    let mut figures = Figures::default();
    for case in cases {
        for round in 0..wanted {
            for stack in case.stacks() {
                if round < case.rounds(*stack, wanted) {
                    bar.set_message(format!("{}, {stack}, round {}", case.title(), round + 1));
                    turn(&case, *stack, bench, &mut figures, &bar);
                    bar.inc(1);
                }
            }
        }
        figures.cases.push(case);
    }
    bar.finish_and_clear();
    figures
}

fn turn<C: Case>(
    case: &C,
    stack: C::Stack,
    bench: &impl Bench<C>,
    figures: &mut Figures<C>,
    bar: &ProgressBar,
) {
    if let Some(why) = bench.missing(stack) {
        return figures.fail(case, stack, why);
    }
    // What cannot be done costs its whole patience each time.
    if figures.is_hopeless(case, stack) {
        return;
    }
    match bench.run(case, stack).and_then(finite) {
        Ok(samples) => figures.add(case, stack, bench.version(stack), samples),
        Err(why) => {
            bar.suspend(|| eprintln!("{}, {stack}: {why}", case.title()));
            figures.fail(case, stack, &why);
        }
    }
}

fn finite(samples: Vec<Sample>) -> Outcome<Vec<Sample>> {
    match samples.iter().find(|sample| !sample.value.is_finite()) {
        Some(sample) => Err(format!("{} is not a number", sample.name)),
        None => Ok(samples),
    }
}
