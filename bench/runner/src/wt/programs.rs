//! The programs: both stacks in Rust have one driver, aioquic has one in Python with an environment of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench_runner::Outcome;
use bench_runner::build::{self, cargo, locked, target_folder};
use bench_runner::figures::{Sample, Stack as _};
use bench_runner::machine;
use bench_runner::material::make_pinned;
use bench_runner::rounds::Bench;

use crate::plan::{Case, Stack};
use crate::trial;

const REQUIREMENTS: &str = include_str!("../../../../tests/interop/aioquic/requirements.txt");

/// Where everything is.
pub(crate) struct Programs {
    peer: PathBuf,
    /// Its interpreter, and why there is none.
    python: Outcome<PathBuf>,
    driver: PathBuf,
    /// The server's certificate and its key.
    pub(crate) material: PathBuf,
    commit: String,
}

impl Programs {
    /// Builds what the cases need, or takes what was built before.
    pub(crate) fn find(root: &Path, build: bool, cases: &[Case]) -> Outcome<Self> {
        let bench = root.join("bench");
        let target = target_folder(&bench)?;
        if build {
            cargo(&bench, &["-p", "bench-wt-peers"])?;
        }
        let needs = |stack| cases.iter().any(|case| case.stacks.contains(&stack));
        let python = match needs(Stack::Aioquic) {
            true => python(&bench.join("aioquic"), &target.join("aioquic"), build),
            false => Err("it is not asked for".to_owned()),
        };
        if let (true, Err(why)) = (needs(Stack::Aioquic), &python) {
            eprintln!("SKIPPED aioquic: {why}");
        }
        let material = target.join("material-wt");
        make_pinned(&material)?;
        let peer = target.join("release/bench-wt-peer");
        if !peer.is_file() {
            return Err(format!("{} was not built", peer.display()));
        }
        Ok(Self {
            peer,
            python,
            driver: bench.join("aioquic/driver.py"),
            material,
            commit: machine::commit(root),
        })
    }

    /// A stack's driver, which wants its role yet.
    pub(crate) fn command(&self, stack: Stack) -> Outcome<Command> {
        if stack == Stack::Aioquic {
            let mut command = Command::new(self.python.as_ref().map_err(Clone::clone)?);
            command.arg(&self.driver);
            return Ok(command);
        }
        let mut command = Command::new(&self.peer);
        command.arg(stack.name());
        Ok(command)
    }
}

impl Bench<Case> for Programs {
    fn missing(&self, stack: Stack) -> Option<&str> {
        match (&self.python, stack) {
            (Err(why), Stack::Aioquic) => Some(why),
            _ => None,
        }
    }

    fn version(&self, stack: Stack) -> String {
        match stack {
            Stack::Towline => format!("{} ({})", locked("towline"), self.commit),
            Stack::Wtransport => {
                format!("{}, quinn {}", locked("wtransport"), locked("quinn"))
            }
            Stack::Aioquic => {
                let mut lines = REQUIREMENTS.lines();
                let version = lines.find_map(|line| line.strip_prefix("aioquic=="));
                version.unwrap_or("unknown").to_owned()
            }
        }
    }

    fn run(&self, case: &Case, stack: Stack) -> Outcome<Vec<Sample>> {
        trial::run(case, stack, self)
    }
}

/// The interpreter of an environment that has what `folder`'s `requirements.txt` pins.
fn python(folder: &Path, environment: &Path, build: bool) -> Outcome<PathBuf> {
    let python = environment.join("bin/python");
    if build {
        if !python.is_file() {
            let mut make = Command::new("python3");
            make.args(["-m", "venv"]).arg(environment);
            build::run(make, "python3 -m venv")?;
        }
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--requirement"]);
        install.arg(folder.join("requirements.txt"));
        build::run(install, "pip install")?;
    }
    match python.is_file() {
        true => Ok(python),
        false => Err("its environment was not made".to_owned()),
    }
}
