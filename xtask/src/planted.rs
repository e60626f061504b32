//! `cargo xtask planted`: bugs put into a copy of the tree, which the tests must find.
//!
//! Every bug is a patch in `tests/planted`. Before the diff stand lines that say `what:` it breaks
//! and who finds it: `test:` a package, `lib` or a test file, and a test's name; `seeds:` where the
//! random swarm starts and how many seeds it takes. Everything named must pass on the tree as it
//! is and fail with the patch. The copy and what is built of it lie in `target/planted`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::Outcome;
use crate::exec::{self, root};

/// Where the patches are.
const FOLDER: &str = "tests/planted";

/// `cargo xtask planted [NAME…]`; without names every bug.
pub(crate) fn planted(names: &[String]) -> Outcome {
    let bugs = bugs(names)?;
    let copy = Copy::make()?;
    println!("=== the tree as it is");
    let finders: BTreeSet<&Finder> = bugs.iter().flat_map(|bug| &bug.finders).collect();
    for finder in finders {
        if let Some(found) = copy.ask(finder)? {
            return Err(format!("{finder} fails without any planted bug: {found}"));
        }
        println!("passes: {finder}");
    }
    let mut missed = Vec::new();
    for bug in &bugs {
        println!("\n=== {}: {}", bug.name, bug.what);
        if let Err(message) = copy.hunt(bug) {
            println!("MISSED {}: {message}", bug.name);
            missed.push(bug.name.as_str());
        }
    }
    println!(
        "\nplanted: {} passed, {} failed",
        bugs.len() - missed.len(),
        missed.len()
    );
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("not found: {}", missed.join(", "))),
    }
}

/// A bug to be planted.
#[derive(Debug, PartialEq, Eq)]
struct Bug {
    name: String,
    what: String,
    finders: Vec<Finder>,
    patch: PathBuf,
}

/// Who should find it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Finder {
    /// One test of cargo's.
    Test {
        package: String,
        /// `lib` or the name of a test file.
        target: String,
        name: String,
    },
    /// A range of the random swarm.
    Seeds { start: u64, count: u64 },
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test {
                package,
                target,
                name,
            } => write!(f, "test {name} ({package}, {target})"),
            Self::Seeds { start, count } => {
                write!(f, "seeds {start} to {} of the swarm", start + count - 1)
            }
        }
    }
}

/// All bugs, or those named, by name.
fn bugs(names: &[String]) -> Outcome<Vec<Bug>> {
    let folder = root().join(FOLDER);
    let mut bugs = exec::files_under(&folder, "patch")
        .into_iter()
        .map(|patch| {
            let name = patch.file_stem().unwrap_or_default().to_string_lossy();
            let text = read(&patch)?;
            let (what, finders) = head(&text).map_err(|error| format!("{name}.patch: {error}"))?;
            Ok(Bug {
                name: name.into_owned(),
                what,
                finders,
                patch,
            })
        })
        .collect::<Outcome<Vec<Bug>>>()?;
    for name in names {
        if !bugs.iter().any(|bug| bug.name == *name) {
            return Err(format!("there is no {FOLDER}/{name}.patch"));
        }
    }
    bugs.retain(|bug| names.is_empty() || names.contains(&bug.name));
    match bugs.is_empty() {
        true => Err(format!("{FOLDER} holds no patch")),
        false => Ok(bugs),
    }
}

/// The lines before the diff.
fn head(text: &str) -> Outcome<(String, Vec<Finder>)> {
    let mut what = None;
    let mut finders = Vec::new();
    let lines = text.lines().take_while(|line| !line.starts_with("diff "));
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let words: Vec<&str> = value.split_whitespace().collect();
        match (key, &words[..]) {
            ("what", [_, ..]) => what = Some(value.to_owned()),
            ("test", [package, target, name]) => finders.push(Finder::Test {
                package: (*package).to_owned(),
                target: (*target).to_owned(),
                name: (*name).to_owned(),
            }),
            ("seeds", [start, count]) => {
                let number = |text: &str| {
                    text.parse::<u64>()
                        .map_err(|_| format!("`{text}` is no number"))
                };
                let (start, count) = (number(start)?, number(count)?.max(1));
                finders.push(Finder::Seeds { start, count });
            }
            _ => return Err(format!("`{line}` is not what, test or seeds")),
        }
    }
    let what = what.ok_or("it does not say `what:` it breaks")?;
    if finders.is_empty() {
        return Err("it names no `test:` and no `seeds:`".to_owned());
    }
    Ok((what, finders))
}

/// A copy of the tree that may be broken.
struct Copy {
    tree: PathBuf,
    build: PathBuf,
}

impl Copy {
    /// Brings the copy up to date; what did not change keeps its time, so that it is not built again.
    fn make() -> Outcome<Self> {
        let folder = exec::target()?.join("planted");
        let copy = Self {
            tree: folder.join("tree"),
            build: folder.join("build"),
        };
        let listed = exec::capture(&mut exec::program(
            "git",
            [
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
        ))?;
        let files: BTreeSet<&str> = listed
            .split('\0')
            .filter(|file| root().join(file).is_file())
            .collect();
        for file in &files {
            copy.restore(file)?;
        }
        for old in exec::files_under(&copy.tree, "rs") {
            let name = old.strip_prefix(&copy.tree).unwrap_or(&old);
            if !files.contains(name.to_string_lossy().as_ref()) {
                fs::remove_file(&old).map_err(|error| failed(&old, &error))?;
            }
        }
        Ok(copy)
    }

    /// Makes one file of the copy what it is in the tree.
    fn restore(&self, file: &str) -> Outcome {
        let (from, to) = (root().join(file), self.tree.join(file));
        let content = fs::read(&from).map_err(|error| failed(&from, &error))?;
        if fs::read(&to).is_ok_and(|found| found == content) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        }
        fs::write(&to, content).map_err(|error| failed(&to, &error))
    }

    /// Plants a bug, has it looked for, and takes it out again.
    fn hunt(&self, bug: &Bug) -> Outcome {
        let patch = read(&bug.patch)?;
        self.apply(bug)?;
        let outcome = bug.finders.iter().try_for_each(|finder| {
            let found = self.ask(finder)?;
            let found = found.ok_or_else(|| format!("{finder} did not notice"))?;
            println!("found by {finder}: {found}");
            Ok(())
        });
        for file in patched_files(&patch) {
            self.restore(file)?;
        }
        outcome
    }

    fn apply(&self, bug: &Bug) -> Outcome {
        let mut command = Command::new("git");
        command.args(["apply", "--whitespace=nowarn"]);
        command.arg(&bug.patch).current_dir(&self.tree);
        // Or git would take the paths for those of the tree around the copy, and do nothing.
        command.env(
            "GIT_CEILING_DIRECTORIES",
            self.tree.parent().unwrap_or(&self.tree),
        );
        let output = output(&mut command)?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!(
            "{FOLDER}/{}.patch does not apply to this tree any more; plant the bug by hand and put \
             the new `git diff` below its head. git says: {}",
            bug.name,
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }

    /// What a finder found, if anything.
    fn ask(&self, finder: &Finder) -> Outcome<Option<String>> {
        match finder {
            Finder::Test {
                package,
                target,
                name,
            } => {
                let mut test = vec!["test", "--locked", "-p", package];
                match target.as_str() {
                    "lib" => test.push("--lib"),
                    file => test.extend(["--test", file]),
                }
                self.build(&[&test[..], &["--no-run"]].concat())?;
                let run = [&test[..], &["--", "--exact", name]].concat();
                verdict_of_test(&said(&self.cargo(&run)?), name)
            }
            Finder::Seeds { start, count } => {
                let swarm = ["--locked", "-p", "towline-lab", "--bin", "swarm"];
                self.build(&[&["build"], &swarm[..]].concat())?;
                let (start, count) = (start.to_string(), count.to_string());
                let options = ["--", "--first", "--start", &start, "--seeds", &count];
                let run = [&["run", "--quiet"], &swarm[..], &options[..]].concat();
                verdict_of_swarm(&said(&self.cargo(&run)?))
            }
        }
    }

    /// A bug that does not compile is no bug.
    fn build(&self, arguments: &[&str]) -> Outcome {
        let output = self.cargo(arguments)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "the copy does not build:\n{}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }

    fn cargo(&self, arguments: &[&str]) -> Outcome<Output> {
        let mut command = exec::cargo(arguments);
        command.current_dir(&self.tree);
        command.env("CARGO_TARGET_DIR", &self.build);
        output(&mut command)
    }
}

/// Whether the test named was run, and how it failed.
fn verdict_of_test(said: &str, name: &str) -> Outcome<Option<String>> {
    let line = |end: &str| said.contains(&format!("test {name} ... {end}"));
    if line("ok") {
        return Ok(None);
    }
    if line("FAILED") {
        let mut lines = said.lines();
        let panic = lines.find_map(|line| line.split_once(" panicked at "));
        let (Some((_, place)), Some(words)) = (panic, lines.next()) else {
            return Ok(Some("it failed".to_owned()));
        };
        return Ok(Some(format!("{place} {}", words.trim())));
    }
    Err(format!(
        "there is no test {name}, or it did not end:\n{said}"
    ))
}

/// The first seed that failed, and why.
fn verdict_of_swarm(said: &str) -> Outcome<Option<String>> {
    let mut lines = said.lines();
    if let Some(seed) = lines.find(|line| line.starts_with("make sim SEED=")) {
        let seed = seed.split(" features").next().unwrap_or(seed);
        let why: String = lines
            .next()
            .unwrap_or_default()
            .trim()
            .chars()
            .take(160)
            .collect();
        return Ok(Some(format!("{seed}: {why}")));
    }
    if said.lines().any(|line| line.ends_with("passed, 0 failed")) {
        return Ok(None);
    }
    Err(format!("the swarm did not end:\n{said}"))
}

/// The files a patch changes.
fn patched_files(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().filter_map(|line| line.strip_prefix("+++ b/"))
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    format!("{out}{err}")
}

fn output(command: &mut Command) -> Outcome<Output> {
    command
        .output()
        .map_err(|error| format!("`{}` did not start: {error}", exec::shown(command)))
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests;
