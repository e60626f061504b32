//! The stacks in Python: an interpreter for all, an environment with pinned packages for each.
//!
//! The peers need CPython 3.12, so ours takes the same; where there is none, all but aioquic are skipped. Our own
//! wheel is built here, in the release profile of the workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench_runner::Outcome;
use bench_runner::build;

use crate::plan::Stack;

/// What builds our wheel.
const BUILDER: &str = "maturin>=1.9.4,<2";

/// A stack's environment and driver.
pub(crate) struct Python {
    interpreter: PathBuf,
    driver: PathBuf,
    /// Of the stack's package, as it is pinned.
    pub(crate) version: String,
}

impl Python {
    /// Makes the environment, or takes the one that was made before.
    pub(crate) fn find(root: &Path, target: &Path, stack: Stack, build: bool) -> Outcome<Self> {
        let bench = root.join("bench");
        let (folder, driver, package) = match stack {
            Stack::Aioquic => ("aioquic", "driver.py", "aioquic"),
            Stack::TowlinePython => ("python", "towline_stack.py", "towline"),
            Stack::Pywebtransport021 => ("python", "pywebtransport_0_21.py", "pywebtransport"),
            Stack::Pywebtransport09 => ("python", "pywebtransport_0_9.py", "pywebtransport"),
            Stack::WebTransportQuinn => ("python", "web_transport_quinn.py", "web-transport-quinn"),
            Stack::Towline | Stack::Wtransport => return Err("it is not in Python".to_owned()),
        };
        let folder = bench.join(folder);
        let requirements = match stack {
            Stack::Aioquic => folder.join("requirements.txt"),
            _ => folder.join(format!("requirements/{stack}.txt")),
        };
        let environment = target.join(format!("python-{stack}"));
        let interpreter = environment.join("bin/python");
        if build {
            let base = match stack {
                Stack::Aioquic => PathBuf::from("python3"),
                _ => base().ok_or("there is no CPython 3.12 on this machine")?,
            };
            make(&base, &environment, &requirements)?;
            if stack == Stack::TowlinePython {
                install_ours(root, &target.join("wheels"), &environment)?;
            }
        }
        if !interpreter.is_file() {
            return Err("its environment was not made".to_owned());
        }
        Ok(Self {
            interpreter,
            driver: folder.join(driver),
            version: pinned(&bench, &requirements, package),
        })
    }

    /// Its driver, which wants its role yet.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.interpreter);
        command.arg(&self.driver);
        command
    }
}

/// CPython 3.12 of this machine: on the path, or known to uv or pyenv. None is downloaded.
pub(crate) fn base() -> Option<PathBuf> {
    let mut candidates = vec![PathBuf::from("python3.12"), PathBuf::from("python3")];
    let mut uv = Command::new("uv");
    uv.args(["python", "find", "--no-python-downloads", "3.12"]);
    candidates.extend(said(uv).map(PathBuf::from));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    if let Some(versions) = pyenv
        .or(home)
        .and_then(|pyenv| fs::read_dir(pyenv.join("versions")).ok())
    {
        let folders = versions.flatten().map(|folder| folder.path());
        candidates.extend(folders.map(|folder| folder.join("bin/python3.12")));
    }
    candidates.into_iter().find_map(|candidate| {
        const PATH: &str = "import sys; assert sys.version_info[:2] == (3, 12); import venv, ensurepip; \
                            print(sys.executable)";
        let mut python = Command::new(candidate);
        python.args(["-c", PATH]);
        said(python).map(PathBuf::from)
    })
}

/// What a program says that succeeds.
fn said(mut command: Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn make(base: &Path, environment: &Path, requirements: &Path) -> Outcome {
    if !environment.join("bin/python").is_file() {
        let mut make = Command::new(base);
        make.args(["-m", "venv"]).arg(environment);
        build::run(make, "python -m venv")?;
    }
    let mut install = pip(environment);
    install.arg("--requirement").arg(requirements);
    build::run(install, "pip install")
}

/// Builds our wheel and installs it, in place of the one before.
fn install_ours(root: &Path, wheels: &Path, environment: &Path) -> Outcome {
    let mut install = pip(environment);
    install.arg(BUILDER);
    build::run(install, "pip install maturin")?;
    if wheels.is_dir() {
        fs::remove_dir_all(wheels).map_err(|error| format!("{}: {error}", wheels.display()))?;
    }
    let mut maturin = Command::new(environment.join("bin/maturin"));
    maturin
        .args(["build", "--release", "--locked", "--quiet", "--out"])
        .arg(wheels)
        .arg("--interpreter")
        .arg(environment.join("bin/python"))
        .current_dir(root);
    build::run(maturin, "maturin build")?;
    let wheel = fs::read_dir(wheels)
        .ok()
        .and_then(|mut files| files.next()?.ok())
        .ok_or("maturin built no wheel")?;
    let mut install = pip(environment);
    install
        .args(["--force-reinstall", "--no-deps"])
        .arg(wheel.path());
    build::run(install, "pip install towline")
}

fn pip(environment: &Path) -> Command {
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    pip
}

/// The version of a package in a file of requirements, or in one that it names.
fn pinned(bench: &Path, requirements: &Path, package: &str) -> String {
    let aioquic = bench.join("../tests/interop/aioquic/requirements.txt");
    let lines = [requirements, &aioquic].map(|file| fs::read_to_string(file).unwrap_or_default());
    let prefix = format!("{package}==");
    let mut lines = lines.iter().flat_map(|text| text.lines());
    let version = lines.find_map(|line| line.strip_prefix(&prefix));
    version.unwrap_or("unknown").to_owned()
}
