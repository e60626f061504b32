//! `make install`: program, preload shim and systemd units, where packages and people want them.
//!
//! ```text
//! DESTDIR PREFIX/bin/towline
//! DESTDIR PREFIX/lib/towline/libtowline_preload.so     `towline` looks there, from its own folder
//! DESTDIR PREFIX/lib/systemd/system/*.service          with PREFIX's `towline` in them
//! ```
//!
//! It builds, so root should not run it: `docs/secure-tcp-programs.md` has the two steps.
//! `installed` is the suite of `make test`: it installs into a folder, and asks what is there. The
//! kernel module has a way of its own (`kmod/README.md`).

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::exec::{capture, cargo, program, root, run, target, which};
use crate::report::Skips;

/// What the units have as the program.
const IN_UNITS: &str = "/usr/bin/towline";
const SHIM: &str = "libtowline_preload.so";

/// Where to.
struct Place {
    prefix: PathBuf,
    /// Before the prefix, for packages; nothing that is installed names it.
    destdir: Option<PathBuf>,
}

/// `cargo xtask install [--prefix PATH] [--destdir PATH]`.
pub(crate) fn install(arguments: &[String]) -> Outcome {
    let mut place = Place {
        prefix: "/usr/local".into(),
        destdir: None,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            rest.next()
                .map(PathBuf::from)
                .ok_or(format!("{argument} needs a path"))
        };
        match argument.as_str() {
            "--prefix" => place.prefix = value()?,
            // `make` hands on an empty one.
            "--destdir" => place.destdir = Some(value()?).filter(|path| path != Path::new("")),
            other => {
                return Err(format!(
                    "unknown argument `{other}`: [--prefix P] [--destdir D]"
                ));
            }
        }
    }
    build("release")?;
    place.fill(&target()?.join("release"))
}

/// What README says, in this profile.
pub(crate) fn build(profile: &str) -> Outcome {
    let packages = ["-p", "towline-cli", "-p", "towline-preload"];
    let profile = format!("--profile={profile}");
    run(cargo(["build", "--locked", &profile]).args(packages))
}

impl Place {
    /// Copies from the folder where cargo has built.
    fn fill(&self, built: &Path) -> Outcome {
        if !self.prefix.is_absolute() {
            return Err(format!(
                "PREFIX {} is no absolute path",
                self.prefix.display()
            ));
        }
        self.copy(&built.join("towline"), "bin/towline", 0o755)?;
        self.copy(&built.join(SHIM), &format!("lib/towline/{SHIM}"), 0o755)?;
        let program = self.prefix.join("bin/towline").display().to_string();
        for unit in units()? {
            let name = unit.file_name().unwrap_or_default().to_string_lossy();
            let to = self.at(&format!("lib/systemd/system/{name}"))?;
            let text = fs::read_to_string(&unit).map_err(said(&unit))?;
            fs::write(&to, text.replace(IN_UNITS, &program)).map_err(said(&to))?;
            set_mode(&to, 0o644)?;
            println!("{}", to.display());
        }
        Ok(())
    }

    fn copy(&self, from: &Path, below: &str, mode: u32) -> Outcome {
        let to = self.at(below)?;
        // In the place of one that runs, which cannot be written to.
        let new = to.with_extension("new");
        fs::copy(from, &new).map_err(said(from))?;
        set_mode(&new, mode)?;
        fs::rename(&new, &to).map_err(said(&to))?;
        println!("{}", to.display());
        Ok(())
    }

    /// A path below the prefix, whose folder is made.
    fn at(&self, below: &str) -> Outcome<PathBuf> {
        let path = self.prefix.join(below);
        let path = match &self.destdir {
            Some(destdir) => destdir.join(path.strip_prefix("/").unwrap_or(&path)),
            None => path,
        };
        make_folder(path.parent().unwrap_or(&path))?;
        Ok(path)
    }
}

/// Makes a folder and those above it, for everybody to use whatever the umask is. What is there
/// stays as it is.
fn make_folder(folder: &Path) -> Outcome {
    if folder.is_dir() || folder.as_os_str().is_empty() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above)?;
    }
    fs::create_dir(folder).map_err(said(folder))?;
    set_mode(folder, 0o755)
}

fn units() -> Outcome<Vec<PathBuf>> {
    let folder = root().join("packaging");
    let entries = fs::read_dir(&folder).map_err(said(&folder))?;
    let mut units: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    units.retain(|path| path.extension().is_some_and(|kind| kind == "service"));
    units.sort();
    Ok(units)
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(said(path))
}

fn said(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// The suite: what README builds finds its shim, and so does what is installed.
pub(crate) fn installed(skips: &mut Skips) -> Outcome<String> {
    build("dev")?;
    let built = target()?.join("debug");
    let mut passed = 1;
    runs_without_root(&built.join("towline"))?;
    let folder = std::env::temp_dir().join(format!("towline-installed-{}", std::process::id()));
    let outcome = installed_below(&folder, &built, skips, &mut passed);
    let _ = fs::remove_dir_all(&folder);
    outcome?;
    Ok(format!("{passed} passed, 0 failed"))
}

fn installed_below(folder: &Path, built: &Path, skips: &mut Skips, passed: &mut u32) -> Outcome {
    let place = Place {
        prefix: "/opt/towline".into(),
        destdir: Some(folder.to_owned()),
    };
    place.fill(built)?;
    let program = place.at("bin/towline")?;
    runs_without_root(&program)?;
    *passed += 1;
    for unit in units()? {
        let name = unit
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let unit = place.at(&format!("lib/systemd/system/{name}"))?;
        can_start(&unit, &program)?;
        *passed += 1;
        // It knows no folder before the prefix, so the unit names what is there.
        let text = fs::read_to_string(&unit).map_err(said(&unit))?;
        let here = folder.join(&name);
        let text = text.replace("/opt/towline/bin/towline", &program.display().to_string());
        fs::write(&here, text).map_err(said(&here))?;
        match which("systemd-analyze") {
            None => skips.add(&name, "systemd-analyze is not installed"),
            Some(_) => {
                verify(&here)?;
                *passed += 1;
            }
        }
    }
    Ok(())
}

/// Whether systemd has nothing to say of a unit. Without the flag that makes it heed this unit alone
/// it passes whatever it only warns of, unknown settings among that.
fn verify(unit: &Path) -> Outcome {
    let flags = ["verify", "--man=no", "--recursive-errors=no"];
    run(program_of("systemd-analyze", &flags).arg(unit))
}

fn program_of(name: &str, arguments: &[&str]) -> std::process::Command {
    program(name, arguments.iter().copied())
}

/// Whether `towline` there finds what it needs where nobody is root: it tries a connection first.
fn runs_without_root(towline: &Path) -> Outcome {
    let home = std::env::temp_dir().join(format!("towline-home-{}", std::process::id()));
    let flags = ["stcp", "run", "--tier", "user-relay", "--", "true"];
    let mut command = program_of(&towline.display().to_string(), &flags);
    let outcome = run(command.env("TOWLINE_HOME", &home));
    let _ = fs::remove_dir_all(&home);
    outcome
}

/// Whether the command of a unit's ExecStart is one of the installed program's, with its flags.
fn can_start(unit: &Path, program: &Path) -> Outcome {
    let text = fs::read_to_string(unit).map_err(said(unit))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let line = line.ok_or_else(|| format!("{}: no ExecStart", unit.display()))?;
    let (named, flags) = line.split_once(' ').unwrap_or((line, ""));
    if !program.ends_with(named.trim_start_matches('/')) {
        return Err(format!(
            "{}: {named} is not what is installed",
            unit.display()
        ));
    }
    let mut command = program_of(&program.display().to_string(), &[]);
    // The last flag wins: nothing is started.
    let help = command.args(flags.split_whitespace()).arg("--help");
    capture(help).map(drop)
}

#[cfg(test)]
mod tests;
