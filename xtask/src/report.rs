//! What ran, how it closed, how long it took, and what was skipped.
//!
//! `check` and `test` fill one `Report` and end with it. A failed step does not stop the ones
//! after it; the report fails as a whole. A skip is never silent: it is said when it happens and
//! listed again at the end.

use std::time::Instant;

use crate::Outcome;

/// The steps of one command.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    skips: Vec<(String, String)>,
}

struct Step {
    name: String,
    seconds: f64,
    closing: String,
    failed: Option<String>,
}

impl Report {
    /// Runs one step; `work` returns the step's closing line.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&mut Skips) -> Outcome<String>) {
        println!("\n=== {name}");
        let started = Instant::now();
        let mut skips = Skips::default();
        let outcome = work(&mut skips);
        let seconds = started.elapsed().as_secs_f64();
        self.skips.append(&mut skips.0);
        let (closing, failed) = match outcome {
            Ok(closing) => (closing, None),
            Err(message) => {
                println!("FAILED {name}: {message}");
                (String::new(), Some(message))
            }
        };
        self.steps.push(Step {
            name: name.to_owned(),
            seconds,
            closing,
            failed,
        });
    }

    /// Prints the table, then the skips; an error if any step failed.
    pub(crate) fn finish(self, command: &str) -> Outcome {
        println!("\n=== summary of {command}");
        for step in &self.steps {
            let word = if step.failed.is_some() {
                "FAILED"
            } else {
                "ok"
            };
            let closing = step.failed.as_deref().unwrap_or(&step.closing);
            println!("{word:6} {:7.1} s  {}: {closing}", step.seconds, step.name);
        }
        let failed: Vec<&str> = self
            .steps
            .iter()
            .filter(|step| step.failed.is_some())
            .map(|step| step.name.as_str())
            .collect();
        if self.skips.is_empty() {
            println!("nothing was skipped");
        }
        for (what, why) in &self.skips {
            println!("SKIPPED {what}: {why}");
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(format!("failed: {}", failed.join(", ")))
        }
    }
}

/// What a step could not do here.
#[derive(Default)]
pub(crate) struct Skips(Vec<(String, String)>);

impl Skips {
    /// Says, loudly, that `what` is not done because of `why`, and keeps it for the end.
    pub(crate) fn add(&mut self, what: &str, why: &str) {
        println!("SKIPPED {what}: {why}");
        self.0.push((what.to_owned(), why.to_owned()));
    }

    /// Keeps a `SKIPPED what: why` line that a suite has just printed itself.
    pub(crate) fn hear(&mut self, line: &str) {
        if let Some((what, why)) = line
            .trim()
            .strip_prefix("SKIPPED ")
            .and_then(|text| text.split_once(": "))
        {
            self.0.push((what.to_owned(), why.to_owned()));
        }
    }
}
