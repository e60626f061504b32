//! The drivers: which stacks there are, how each is built and started.
//!
//! `main` calls [`build`] once. A stack whose toolchain is missing is left out
//! and said so; a stack that has its toolchain and does not build is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::options::{Options, Pairs};

/// A QUIC implementation with a driver in this folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    /// The one under test.
    Towline,
    /// quinn, from its crate.
    Quinn,
    /// quic-go, from its Go module.
    QuicGo,
    /// aioquic, from its Python package.
    Aioquic,
}

impl Stack {
    /// Everyone but Towline.
    pub(crate) const PEERS: [Stack; 3] = [Stack::Quinn, Stack::QuicGo, Stack::Aioquic];

    /// The folder's name, also used in reports and options.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stack::Towline => "towline",
            Stack::Quinn => "quinn",
            Stack::QuicGo => "quic-go",
            Stack::Aioquic => "aioquic",
        }
    }
}

/// Whether a driver can be started, and how.
#[derive(Debug)]
pub(crate) enum Driver {
    /// Program and the arguments that come before the role.
    Ready(Vec<PathBuf>),
    /// Its toolchain is not on this machine; says which.
    Skipped(String),
    /// Its toolchain is here, its build failed; says why.
    Broken(String),
}

impl Driver {
    /// A command that still lacks its role, or why there is none.
    pub(crate) fn command(&self) -> Result<Command, &str> {
        match self {
            Driver::Ready(words) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                Ok(command)
            }
            Driver::Skipped(why) | Driver::Broken(why) => Err(why),
        }
    }
}

/// All drivers of one invocation.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Each stack taking part, Towline first.
    pub(crate) drivers: Vec<(Stack, Driver)>,
}

impl Fleet {
    /// The driver of `stack`, which must take part.
    pub(crate) fn get(&self, stack: Stack) -> &Driver {
        let found = self.drivers.iter().find(|(s, _)| *s == stack);
        &found.expect("the matrix only names stacks of the fleet").1
    }
}

/// Builds every driver that takes part. `here` is `tests/interop`, `scratch`
/// a folder for what is built outside of cargo.
pub(crate) fn build(here: &Path, scratch: &Path, options: &Options) -> Result<Fleet, Error> {
    fs::create_dir_all(scratch)?;
    let mut stacks = options.peers.clone();
    if options.pairs != Pairs::Peers {
        stacks.insert(0, Stack::Towline);
    }
    let mut drivers = Vec::new();
    for stack in stacks {
        eprintln!("interop: building the {} driver", stack.name());
        let driver = match stack {
            Stack::Towline | Stack::Quinn => cargo(here, stack, options.build)?,
            Stack::QuicGo => go(here, scratch, options.build),
            Stack::Aioquic => python(here, scratch, options.build)?,
        };
        match &driver {
            Driver::Ready(_) => {}
            Driver::Skipped(why) => eprintln!("interop: SKIPPING {}: {why}", stack.name()),
            Driver::Broken(why) => eprintln!("interop: BROKEN {}: {why}", stack.name()),
        }
        drivers.push((stack, driver));
    }
    Ok(Fleet { drivers })
}

/// A Rust driver, built beside the runner with the runner's own profile.
fn cargo(here: &Path, stack: Stack, build: bool) -> Result<Driver, Error> {
    let package = format!("interop-{}", stack.name());
    if build {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--package", &package]);
        command.arg("--manifest-path").arg(here.join("Cargo.toml"));
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        if let Err(why) = step(&mut command) {
            return Ok(why.into_driver("cargo"));
        }
    }
    let program = std::env::current_exe()?.with_file_name(package);
    Ok(Driver::Ready(vec![program]))
}

fn go(here: &Path, scratch: &Path, build: bool) -> Driver {
    let program = scratch.join("interop-quic-go");
    if build {
        let mut command = Command::new("go");
        command.args(["build", "-o"]).arg(&program).arg(".");
        command.current_dir(here.join("quic-go"));
        if let Err(why) = step(&mut command) {
            return why.into_driver("go");
        }
    }
    Driver::Ready(vec![program])
}

/// A virtual environment with the pinned requirements, made anew when they
/// change; by uv where it is present, else by `venv` and pip.
fn python(here: &Path, scratch: &Path, build: bool) -> Result<Driver, Error> {
    let folder = here.join("aioquic");
    let venv = scratch.join("venv");
    let python = venv.join("bin").join("python");
    let requirements = folder.join("requirements.txt");
    let stamp = venv.join("requirements.stamp");
    let wanted = fs::read(&requirements)?;
    if build && fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        if venv.exists() {
            fs::remove_dir_all(&venv)?;
        }
        let with_uv = step(Command::new("uv").args(["venv", "--quiet"]).arg(&venv)).is_ok();
        let made = if with_uv {
            let mut install = Command::new("uv");
            install.args(["pip", "install", "--quiet", "--python"]);
            step(install.arg(&python).arg("-r").arg(&requirements))
        } else {
            step(Command::new("python3").args(["-m", "venv"]).arg(&venv)).and_then(|()| {
                let mut install = Command::new(&python);
                install.args(["-m", "pip", "install", "--quiet"]);
                step(install.arg("-r").arg(&requirements))
            })
        };
        if let Err(why) = made {
            return Ok(why.into_driver("python3"));
        }
        fs::write(&stamp, &wanted)?;
    }
    Ok(Driver::Ready(vec![python, folder.join("driver.py")]))
}

/// Why a build step did not succeed.
enum StepError {
    /// The program is not on this machine.
    Missing,
    /// It ran and failed, with the end of what it said.
    Failed(String),
}

impl StepError {
    fn into_driver(self, tool: &str) -> Driver {
        match self {
            StepError::Missing => Driver::Skipped(format!("`{tool}` is not installed")),
            StepError::Failed(why) => Driver::Broken(why),
        }
    }
}

fn step(command: &mut Command) -> Result<(), StepError> {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<_> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(15)..].join("\n");
            Err(StepError::Failed(format!("build failed:\n{tail}")))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(StepError::Missing),
        Err(error) => Err(StepError::Failed(error.to_string())),
    }
}
