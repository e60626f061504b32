//! The flags that comparisons of several stacks share.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::Outcome;
use crate::figures::{Case, Stack};
use crate::results::Results;
use crate::verdict::Scope;

/// What to run, and where the results go.
#[derive(Args, Debug)]
pub struct Flags<S>
where
    S: ValueEnum + Clone + Send + Sync + 'static,
{
    /// One round, small sizes, nothing judged
    #[arg(long)]
    pub quick: bool,
    /// Rounds of each case; the stacks take turns in each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these measures or cases; an unknown name lists them
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these stacks
    #[arg(long, value_enum, value_delimiter = ',')]
    stacks: Vec<S>,
    /// No page in docs/evidence
    #[arg(long)]
    pub no_evidence: bool,
    /// Results to this file too, or to standard output if it is `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take the programs as they were built last
    #[arg(long)]
    pub no_build: bool,
}

impl<S: Stack + ValueEnum + Send + Sync + 'static> Flags<S> {
    /// Only a whole comparison, with `least` rounds or more, counts, and only that is kept.
    pub fn scope(&self, least: u32) -> Scope {
        let all = self.only.is_empty()
            && self.stacks.is_empty()
            && self.rounds.is_none_or(|rounds| rounds >= least);
        match (self.quick, all) {
            (true, _) => Scope::Quick,
            (false, true) => Scope::Whole,
            (false, false) => Scope::Part,
        }
    }

    /// How many, where a run that counts has `usual`.
    pub fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }

    /// The cases and stacks that are asked for.
    ///
    /// # Errors
    /// Nothing has such a name, or nothing is left.
    pub fn choose<C: Case<Stack = S>>(&self, mut cases: Vec<C>) -> Outcome<Vec<C>> {
        for name in &self.only {
            if !cases.iter().any(|case| case.is_named(name)) {
                let mut names: Vec<_> = cases.iter().map(Case::name).collect();
                names.dedup();
                return Err(format!(
                    "no measure `{name}`; there are {}",
                    names.join(", ")
                ));
            }
        }
        if !self.only.is_empty() {
            cases.retain(|case| self.only.iter().any(|name| case.is_named(name)));
        }
        if !self.stacks.is_empty() {
            for case in &mut cases {
                case.keep(&self.stacks);
            }
            cases.retain(|case| !case.stacks().is_empty());
        }
        if cases.is_empty() {
            return Err("nothing is left to measure".to_owned());
        }
        Ok(cases)
    }

    /// Prints what is shown, and the results where they were asked for.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn publish(&self, results: &Results, shown: &str) -> Outcome {
        // Standard output belongs to the results if they were asked for there.
        match self.json.as_deref() {
            Some(path) if path == Path::new("-") => println!("{}", results.to_json()?),
            path => {
                println!("{shown}");
                if let Some(path) = path {
                    results.write(path)?;
                }
            }
        }
        Ok(())
    }
}
