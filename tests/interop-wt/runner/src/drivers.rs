//! The drivers: which stacks there are, how each is built and started.
//!
//! `main` calls [`build`] once. A stack whose toolchain is missing is left out and said so; a stack that has
//! its toolchain and does not build is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// The stack under test.
pub(crate) const OURS: &str = "towline";

/// A WebTransport stack with a driver in this folder.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The folder's name, also used in reports.
    pub(crate) name: &'static str,
    /// Program and first arguments, or why there is none.
    pub(crate) words: Result<Vec<PathBuf>, NotBuilt>,
}

/// Why a driver was not built.
#[derive(Debug)]
pub(crate) enum NotBuilt {
    /// Its toolchain is not on this machine.
    Missing(String),
    /// Its toolchain is here, and the build failed.
    Failed(String),
}

impl Driver {
    /// A command that still lacks its role.
    pub(crate) fn command(&self) -> Result<Command, Error> {
        let words = self.words.as_ref().map_err(|_| "the driver is not built")?;
        let (program, first) = words.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        command.args(first);
        Ok(command)
    }
}

/// Builds every driver, Towline's first. `here` is `tests/interop-wt`, `scratch` a folder for what is built
/// outside of cargo.
pub(crate) fn build(here: &Path, scratch: &Path) -> Result<Vec<Driver>, Error> {
    let drivers = vec![
        driver(OURS, cargo(here)?),
        driver("aioquic", python(here, scratch)?),
        driver("webtransport-go", go(here, scratch)),
    ];
    match &drivers[0].words {
        Ok(_) => Ok(drivers),
        Err(NotBuilt::Missing(why) | NotBuilt::Failed(why)) => Err(why.clone().into()),
    }
}

fn driver(name: &'static str, words: Result<Vec<PathBuf>, NotBuilt>) -> Driver {
    match &words {
        Ok(_) => {}
        Err(NotBuilt::Missing(why)) => eprintln!("interop-wt: SKIPPING {name}: {why}"),
        Err(NotBuilt::Failed(why)) => eprintln!("interop-wt: BROKEN {name}: {why}"),
    }
    Driver { name, words }
}

/// The driver of Towline, built beside the runner with its profile.
fn cargo(here: &Path) -> Result<Result<Vec<PathBuf>, NotBuilt>, Error> {
    let package = "interop-wt-towline";
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked", "--package", package]);
    command.arg("--manifest-path").arg(here.join("Cargo.toml"));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let program = std::env::current_exe()?.with_file_name(package);
    Ok(step(&mut command, "cargo").map(|()| vec![program]))
}

fn go(here: &Path, scratch: &Path) -> Result<Vec<PathBuf>, NotBuilt> {
    let program = scratch.join("interop-webtransport-go");
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&program).arg(".");
    command.current_dir(here.join("webtransport-go"));
    step(&mut command, "go").map(|()| vec![program])
}

/// A virtual environment with the requirements that the other interop table pins; made anew when they
/// change.
fn python(here: &Path, scratch: &Path) -> Result<Result<Vec<PathBuf>, NotBuilt>, Error> {
    let requirements = here.join("../interop/aioquic/requirements.txt");
    let venv = scratch.join("venv");
    let python = venv.join("bin").join("python");
    let stamp = venv.join("requirements.stamp");
    let wanted = fs::read(&requirements)?;
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        if venv.exists() {
            fs::remove_dir_all(&venv)?;
        }
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&venv);
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "-r"]);
        install.arg(&requirements);
        let made = step(&mut make, "python3").and_then(|()| step(&mut install, "pip"));
        if let Err(why) = made {
            return Ok(Err(why));
        }
        fs::write(&stamp, &wanted)?;
    }
    Ok(Ok(vec![python, here.join("aioquic").join("driver.py")]))
}

fn step(command: &mut Command, tool: &str) -> Result<(), NotBuilt> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    match quiet.stderr(Stdio::piped()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<_> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(15)..].join("\n");
            Err(NotBuilt::Failed(format!("build failed:\n{tail}")))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(NotBuilt::Missing(format!("`{tool}` is not installed")))
        }
        Err(error) => Err(NotBuilt::Failed(error.to_string())),
    }
}
