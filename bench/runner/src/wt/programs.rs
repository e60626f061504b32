//! The programs: the stacks in Rust have one driver, each in Python has one and an environment of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench_runner::Outcome;
use bench_runner::build::{cargo, locked, target_folder};
use bench_runner::figures::{Sample, Stack as _};
use bench_runner::machine;
use bench_runner::material::make_pinned;
use bench_runner::rounds::Bench;

use crate::plan::{Case, Stack};
use crate::python::{self, Python};
use crate::trial;

/// Where everything is.
pub(crate) struct Programs {
    peer: PathBuf,
    /// Of each stack in Python, or why there is none.
    pythons: Vec<(Stack, Outcome<Python>)>,
    /// The server's certificate and its key.
    pub(crate) material: PathBuf,
    commit: String,
}

impl Programs {
    /// Builds what the cases need, or takes what was built before.
    pub(crate) fn find(root: &Path, build: bool, cases: &[Case]) -> Outcome<Self> {
        let bench = root.join("bench");
        let target = target_folder(&bench)?;
        let needs = |stack: &Stack| cases.iter().any(|case| case.stacks.contains(stack));
        let in_rust = [Stack::Towline, Stack::Wtransport];
        let peer = target.join("release/bench-wt-peer");
        if in_rust.iter().any(needs) {
            if build {
                cargo(&bench, &["-p", "bench-wt-peers"])?;
            }
            if !peer.is_file() {
                return Err(format!("{} was not built", peer.display()));
            }
        }
        let pythons = Stack::PYTHON.into_iter().filter(needs);
        let pythons: Vec<_> = pythons
            .map(|stack| (stack, Python::find(root, &target, stack, build)))
            .collect();
        for (stack, python) in &pythons {
            if let Err(why) = python {
                eprintln!("SKIPPED {stack}: {why}");
            }
        }
        let material = target.join("material-wt");
        make_pinned(&material)?;
        Ok(Self {
            peer,
            pythons,
            material,
            commit: machine::commit(root),
        })
    }

    /// A stack's driver, which wants its role yet.
    pub(crate) fn command(&self, stack: Stack) -> Outcome<Command> {
        if let Some((_, python)) = self.python(stack) {
            return python.as_ref().map(Python::command).map_err(Clone::clone);
        }
        let mut command = Command::new(&self.peer);
        command.arg(stack.name());
        Ok(command)
    }

    /// What the stacks in Python run on.
    pub(crate) fn python_version(&self) -> String {
        let version = |path: &Path| machine::said(&path.to_string_lossy(), &["--version"]);
        let pinned = python::base().map_or("no CPython 3.12".to_owned(), |path| version(&path));
        let aioquic = version(Path::new("python3"));
        format!("{pinned}; aioquic on {aioquic}")
    }

    fn python(&self, stack: Stack) -> Option<&(Stack, Outcome<Python>)> {
        self.pythons.iter().find(|(known, _)| *known == stack)
    }
}

impl Bench<Case> for Programs {
    fn missing(&self, stack: Stack) -> Option<&str> {
        let (_, python) = self.python(stack)?;
        python.as_ref().err().map(String::as_str)
    }

    fn version(&self, stack: Stack) -> String {
        match stack {
            Stack::Towline | Stack::TowlinePython => {
                format!("{} ({})", locked("towline"), self.commit)
            }
            Stack::Wtransport => format!("{}, quinn {}", locked("wtransport"), locked("quinn")),
            _ => match self.python(stack) {
                Some((_, Ok(python))) => python.version.clone(),
                _ => "unknown".to_owned(),
            },
        }
    }

    fn run(&self, case: &Case, stack: Stack) -> Outcome<Vec<Sample>> {
        trial::run(case, stack, self)
    }
}
