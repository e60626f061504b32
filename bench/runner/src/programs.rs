//! The programs: built from the registries, and found where cargo and go put them.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench_runner::Outcome;
use bench_runner::build::{self, cargo, locked, target_folder};
use bench_runner::figures::Sample;
use bench_runner::machine;
use bench_runner::material::make_material;
use bench_runner::rounds::Bench;

use crate::plan::{Case, Stack, Way};
use crate::run;

const GO_MODULES: &str = include_str!("../../quic-go/go.mod");

/// Where everything is.
pub(crate) struct Programs {
    /// The shipped command.
    pub(crate) towline: PathBuf,
    /// The driver of the stacks in Rust.
    pub(crate) peer: PathBuf,
    /// The same with an allocator that counts.
    pub(crate) counting: PathBuf,
    quic_go: Result<PathBuf, String>,
    /// Certificates for the drivers.
    pub(crate) material: PathBuf,
    commit: String,
}

impl Programs {
    /// Builds what the cases need, or takes what was built before.
    pub(crate) fn find(root: &Path, build: bool, cases: &[Case]) -> Outcome<Self> {
        let bench = root.join("bench");
        let target = target_folder(&bench)?;
        let needs = |stack| cases.iter().any(|case| case.stacks.contains(&stack));
        let by_cli = cases
            .iter()
            .any(|case| case.way == Way::Cli && case.stacks.contains(&Stack::Towline));
        if build {
            if by_cli {
                cargo(root, &["-p", "towline-cli"])?;
            }
            cargo(&bench, &["-p", "bench-peers"])?;
        }
        let quic_go = if needs(Stack::QuicGo) {
            quic_go(&bench, &target, build)
        } else {
            Err("it is not asked for".to_owned())
        };
        if let (true, Err(why)) = (needs(Stack::QuicGo), &quic_go) {
            eprintln!("SKIPPED quic-go: {why}");
        }
        let material = target.join("material");
        make_material(&material)?;
        let release = |target: &Path, name: &str| target.join("release").join(name);
        let programs = Self {
            towline: release(&target_folder(root)?, "towline"),
            peer: release(&target, "bench-peer"),
            counting: release(&target, "bench-peer-counting"),
            quic_go,
            material,
            commit: machine::commit(root),
        };
        let needed = [(&programs.peer, true), (&programs.towline, by_cli)];
        match needed
            .iter()
            .find(|(path, needed)| *needed && !path.is_file())
        {
            Some((path, _)) => Err(format!("{} was not built", path.display())),
            None => Ok(programs),
        }
    }

    /// The driver of quic-go, if it could be built.
    pub(crate) fn quic_go(&self) -> Outcome<&Path> {
        self.quic_go.as_deref().map_err(Clone::clone)
    }
}

impl Bench<Case> for Programs {
    fn missing(&self, stack: Stack) -> Option<&str> {
        match (&self.quic_go, stack) {
            (Err(why), Stack::QuicGo) => Some(why),
            _ => None,
        }
    }

    fn version(&self, stack: Stack) -> String {
        match stack {
            Stack::Towline => format!("{} ({})", locked("towline"), self.commit),
            Stack::Quinn => locked("quinn"),
            Stack::S2nQuic => locked("s2n-quic"),
            Stack::QuicGo => required("github.com/quic-go/quic-go"),
            Stack::Floor => format!("aws-lc-rs {}", locked("aws-lc-rs")),
            Stack::Tls => format!("rustls {}", locked("rustls")),
        }
    }

    fn run(&self, case: &Case, stack: Stack) -> Outcome<Vec<Sample>> {
        run::run(case, stack, self)
    }
}

/// A module's version in the Go driver's list.
fn required(module: &str) -> String {
    let line = GO_MODULES.lines().find_map(|line| {
        line.trim()
            .trim_start_matches("require ")
            .strip_prefix(module)
    });
    line.unwrap_or("unknown")
        .trim()
        .trim_start_matches('v')
        .to_owned()
}

fn quic_go(bench: &Path, target: &Path, build: bool) -> Outcome<PathBuf> {
    let program = target.join("release/bench-quic-go");
    if build {
        let mut command = Command::new("go");
        command
            .args(["build", "-trimpath", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(bench.join("quic-go"));
        build::run(command, "go build")?;
    }
    if program.is_file() {
        Ok(program)
    } else {
        Err("its driver was not built".to_owned())
    }
}
