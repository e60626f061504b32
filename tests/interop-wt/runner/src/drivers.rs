//! The drivers: which stacks there are, how each is built and started.
//!
//! `main` calls [`build`] once. A stack whose toolchain is missing is left out and said so; a stack that has
//! its toolchain and does not build is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::options::Options;

/// A WebTransport stack with a driver in this folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    /// The one under test.
    Towline,
    /// The same under its Python package.
    TowlinePython,
    /// aioquic, from its Python package.
    Aioquic,
    /// webtransport-go, from its Go module.
    WebtransportGo,
    /// wtransport, from its crate.
    Wtransport,
    /// web-transport-quinn, from its crate.
    WebTransportQuinn,
    /// pywebtransport of today, from its Python package.
    Pywebtransport21,
    /// An old pywebtransport, over aioquic.
    Pywebtransport9,
}

impl Stack {
    /// Everyone but Towline's own driver, which makes the certificate and so is always there.
    pub(crate) const PEERS: [Stack; 7] = [
        Stack::TowlinePython,
        Stack::Aioquic,
        Stack::WebtransportGo,
        Stack::Wtransport,
        Stack::WebTransportQuinn,
        Stack::Pywebtransport21,
        Stack::Pywebtransport9,
    ];

    /// The name in reports and options.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stack::Towline => "towline",
            Stack::TowlinePython => "towline-python",
            Stack::Aioquic => "aioquic",
            Stack::WebtransportGo => "webtransport-go",
            Stack::Wtransport => "wtransport",
            Stack::WebTransportQuinn => "web-transport-quinn",
            Stack::Pywebtransport21 => "pywebtransport-0.21.1",
            Stack::Pywebtransport9 => "pywebtransport-0.9.0",
        }
    }

    /// Whether it is one of Towline's.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Stack::Towline | Stack::TowlinePython)
    }
}

/// A stack's program.
#[derive(Debug)]
pub(crate) struct Driver {
    /// Whose it is.
    pub(crate) stack: Stack,
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

/// Builds every driver that takes part, Towline's first. `here` is `tests/interop-wt`, `scratch` a folder for
/// what is built outside of cargo.
pub(crate) fn build(here: &Path, scratch: &Path, options: &Options) -> Result<Vec<Driver>, Error> {
    let mut drivers = Vec::new();
    for stack in std::iter::once(Stack::Towline).chain(options.peers.iter().copied()) {
        eprintln!("interop-wt: building the {} driver", stack.name());
        let build = options.build;
        let words = match stack {
            Stack::Towline | Stack::Wtransport | Stack::WebTransportQuinn => {
                cargo(here, stack, build)?
            }
            Stack::TowlinePython => towline_python(here, scratch, build)?,
            Stack::WebtransportGo => go(here, scratch, build),
            Stack::Aioquic => {
                let requirements = here.join("../interop/aioquic/requirements.txt");
                let driver = here.join("aioquic/driver.py");
                let venv = scratch.join("venv");
                python(Path::new("python3"), &venv, &requirements, driver, build)?
            }
            Stack::Pywebtransport21 | Stack::Pywebtransport9 => {
                pywebtransport(here, scratch, stack, build)?
            }
        };
        match &words {
            Ok(_) => {}
            Err(NotBuilt::Missing(why)) => {
                eprintln!("interop-wt: SKIPPING {}: {why}", stack.name())
            }
            Err(NotBuilt::Failed(why)) => eprintln!("interop-wt: BROKEN {}: {why}", stack.name()),
        }
        drivers.push(Driver { stack, words });
    }
    match &drivers[0].words {
        Ok(_) => Ok(drivers),
        Err(NotBuilt::Missing(why) | NotBuilt::Failed(why)) => Err(why.clone().into()),
    }
}

type Words = Result<Vec<PathBuf>, NotBuilt>;

/// A Rust driver, built beside the runner with its profile.
fn cargo(here: &Path, stack: Stack, build: bool) -> Result<Words, Error> {
    let package = format!("interop-wt-{}", stack.name());
    let program = std::env::current_exe()?.with_file_name(&package);
    if build {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--locked", "--package", &package]);
        command.arg("--manifest-path").arg(here.join("Cargo.toml"));
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        if let Err(why) = step(&mut command, "cargo") {
            return Ok(Err(why));
        }
    }
    Ok(Ok(vec![program]))
}

fn go(here: &Path, scratch: &Path, build: bool) -> Words {
    let program = scratch.join("interop-webtransport-go");
    if build {
        let mut command = Command::new("go");
        command.args(["build", "-o"]).arg(&program).arg(".");
        command.current_dir(here.join("webtransport-go"));
        step(&mut command, "go")?;
    }
    Ok(vec![program])
}

/// The driver over the Python package, which is built from this checkout each time.
fn towline_python(here: &Path, scratch: &Path, build: bool) -> Result<Words, Error> {
    const RECENT: &str = "import sys; sys.exit(sys.version_info < (3, 11))";
    let venv = scratch.join("venv-towline-python");
    let driver = here.join("towline-python/driver.py");
    let interpreter = Path::new("python3");
    if build {
        match step(Command::new(interpreter).args(["-c", RECENT]), "python3") {
            Ok(()) => {}
            Err(NotBuilt::Failed(_)) => {
                let why = "python3 is older than 3.11".to_owned();
                return Ok(Err(NotBuilt::Missing(why)));
            }
            Err(missing) => return Ok(Err(missing)),
        }
        let mut install = match environment(interpreter, &venv)? {
            Ok(install) => install,
            Err(why) => return Ok(Err(why)),
        };
        if install.get_program() == "uv" {
            // It keeps what it built of a folder, whatever has changed there since.
            install.args(["--refresh-package", "towline"]);
        }
        // The profile of the tests; an optimised build takes minutes.
        install.args(["--config-settings", "build-args=--profile dev"]);
        if let Err(why) = step(install.arg(here.join("../..")), "pip") {
            return Ok(Err(why));
        }
    }
    Ok(Ok(vec![venv.join("bin/python"), driver]))
}

/// A driver over one of the two versions, which both need Python 3.12.
fn pywebtransport(here: &Path, scratch: &Path, stack: Stack, build: bool) -> Result<Words, Error> {
    let version = match stack {
        Stack::Pywebtransport9 => "0.9.0",
        _ => "0.21.1",
    };
    let folder = here.join("pywebtransport").join(version);
    let venv = scratch.join(format!("venv-{}", stack.name()));
    let driver = folder.join("driver.py");
    let Some(interpreter) = python_3_12() else {
        let why = "there is no Python 3.12, neither as `python3.12` nor among pyenv's versions";
        return Ok(Err(NotBuilt::Missing(why.to_owned())));
    };
    let requirements = folder.join("requirements.txt");
    python(&interpreter, &venv, &requirements, driver, build)
}

/// `python3.12` if it runs (a shim of pyenv's may only say that it does not), else the newest 3.12 of pyenv's.
fn python_3_12() -> Option<PathBuf> {
    let on_path = PathBuf::from("python3.12");
    if step(Command::new(&on_path).arg("--version"), "python3.12").is_ok() {
        return Some(on_path);
    }
    let versions = Path::new(&std::env::var_os("HOME")?).join(".pyenv/versions");
    let mut found: Vec<PathBuf> = fs::read_dir(versions)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .map(|version| version.join("bin/python3.12"))
        .filter(|python| step(Command::new(python).arg("--version"), "python3.12").is_ok())
        .collect();
    found.sort();
    found.pop()
}

/// A virtual environment of `interpreter` with the pinned requirements, made anew when they change.
fn python(
    interpreter: &Path,
    venv: &Path,
    requirements: &Path,
    driver: PathBuf,
    build: bool,
) -> Result<Words, Error> {
    let python = venv.join("bin").join("python");
    let stamp = venv.join("requirements.stamp");
    let wanted = fs::read(requirements)?;
    if build && fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        let mut install = match environment(interpreter, venv)? {
            Ok(install) => install,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = step(install.arg("-r").arg(requirements), "pip") {
            return Ok(Err(why));
        }
        fs::write(&stamp, &wanted)?;
    }
    Ok(Ok(vec![python, driver]))
}

/// A new virtual environment of `interpreter`, and the command that installs into it; by uv where it is
/// present, else by `venv` and pip.
fn environment(interpreter: &Path, venv: &Path) -> Result<Result<Command, NotBuilt>, Error> {
    if venv.exists() {
        fs::remove_dir_all(venv)?;
    }
    let python = venv.join("bin").join("python");
    let mut make = Command::new("uv");
    make.args(["venv", "--quiet", "--python"]).arg(interpreter);
    if step(make.arg(venv), "uv").is_ok() {
        let mut install = Command::new("uv");
        install.args(["pip", "install", "--quiet", "--python"]);
        install.arg(&python);
        return Ok(Ok(install));
    }
    let mut make = Command::new(interpreter);
    if let Err(why) = step(make.args(["-m", "venv"]).arg(venv), "python3") {
        return Ok(Err(why));
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet"]);
    Ok(Ok(install))
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
