//! `make bench-compare BASE=…`: the criterion benches of Freenet's shapes against a base.
//!
//! 1. a base that is a git revision is measured in a worktree of its own, once, and kept under its
//!    commit; any other name is a baseline that criterion saved, or is saved now
//! 2. the benches of the tree as it is are run
//! 3. the medians of both are read from criterion's files and compared
//!
//! On virtual time a change is a change of the code, so more than 10 % is a failure; what loopback
//! says is only shown. `--record` rewrites the file that the plain test in `crates/lab` compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Outcome;
use crate::exec::{capture, cargo, program, root, run, shown, target};

/// How much longer a transfer on virtual time may take than in the base, percent.
const TOLERANCE: f64 = 10.0;

/// What a plain test compares, in the repository.
const RECORD: &str = "crates/lab/benches/baseline.json";

/// A tree without it has nothing to compare with.
const BENCH: &str = "crates/lab/benches/seed.rs";

/// Benchmarks on virtual time are called so; all others are real.
const VIRTUAL: &str = "virtual_";

const USAGE: &str = "\
cargo xtask bench-compare BASE [--virtual]
cargo xtask bench-compare --record
  BASE       a git revision (a tag, branch or commit), or the name of a saved baseline
  --virtual  without the benches over real sockets
  --record   what the shapes take now on virtual time becomes the record of `cargo test`";

/// `cargo xtask bench-compare BASE [--virtual]`.
pub(crate) fn bench_compare(arguments: &[String]) -> Outcome {
    let (mut base, mut scope, mut record) = (None, Scope::Everything, false);
    for argument in arguments {
        match argument.as_str() {
            "--virtual" => scope = Scope::Virtual,
            "--record" => record = true,
            name if !name.starts_with('-') && base.is_none() => base = Some(name),
            other => return Err(format!("unknown argument `{other}`\n{USAGE}")),
        }
    }
    match (base, record) {
        (None, true) => write_record(),
        (Some(base), false) => compare_with(base, scope),
        _ => Err(format!(
            "one base to compare with, or --record alone\n{USAGE}"
        )),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everything,
    Virtual,
}

fn write_record() -> Outcome {
    let mut shapes = cargo(["run", "--quiet", "--locked", "--release"]);
    let said = capture(shapes.args(["-p", "towline-lab", "--bin", "shapes"]))?;
    let path = root().join(RECORD);
    fs::write(&path, said).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{RECORD} is written; say in the commit why it changed");
    Ok(())
}

fn compare_with(base: &str, scope: Scope) -> Outcome {
    let store = Store::find()?;
    let name = match commit_of(base) {
        Some(commit) => {
            let name = format!("rev-{}", &commit[..commit.len().min(12)]);
            if !store.is_complete(&name, scope) {
                measure_revision(&store, base, &commit, &name, scope)?;
                store.complete(&name, scope)?;
            }
            name
        }
        None => {
            check_name(base)?;
            if store.rows(base)?.is_empty() {
                println!("`{base}` is neither a git revision nor a saved baseline: saving it now");
                run(&mut benches(
                    &store,
                    &root(),
                    scope,
                    "--save-baseline",
                    base,
                ))?;
                println!("\nsaved; `make bench-compare BASE={base}` compares with it");
                return Ok(());
            }
            base.to_owned()
        }
    };
    run(&mut benches(
        &store,
        &root(),
        scope,
        "--baseline-lenient",
        &name,
    ))?;
    let rows: Vec<Row> = store
        .rows(&name)?
        .into_iter()
        .filter(|row| scope == Scope::Everything || row.is_virtual())
        .collect();
    println!("\n{}", table(base, &rows));
    judge(base, &rows)
}

/// The commit a revision names, if it is one.
fn commit_of(base: &str) -> Option<String> {
    let commit = format!("{base}^{{commit}}");
    let mut git = program("git", ["rev-parse", "--verify", "--quiet", &commit]);
    let output = git.output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}

/// A baseline's name is a folder's.
fn check_name(name: &str) -> Outcome {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let taken = ["new", "change", "report", ".", ".."].contains(&name);
    if name.is_empty() || taken || !name.chars().all(is_plain) {
        return Err(format!(
            "`{name}` is no git revision and cannot be the name of a baseline: letters, digits, \
             `-`, `_` and `.`, and not criterion's own `new`, `change` or `report`"
        ));
    }
    Ok(())
}

/// Runs the benches of `tree` and has criterion keep or compare them.
fn benches(store: &Store, tree: &Path, scope: Scope, option: &str, name: &str) -> Command {
    let mut command = cargo(["bench", "--locked", "-p", "towline-lab"]);
    if scope == Scope::Everything {
        command.args(["-p", "towline"]);
    }
    command.args(["--bench", "seed", "--", "--noplot", option, name]);
    command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", &store.target)
        .env("CRITERION_HOME", &store.criterion);
    command
}

/// Checks the revision out beside this tree, for as long as its benches run.
fn measure_revision(store: &Store, base: &str, commit: &str, name: &str, scope: Scope) -> Outcome {
    let found = program("git", ["cat-file", "-e", &format!("{commit}:{BENCH}")]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        return Err(format!(
            "{base} has no {BENCH}: only a revision that has these benches can be a base"
        ));
    }
    println!("measuring {base} ({commit}) in a worktree of its own, once");
    let tree = Worktree::add(&store.target.join("bench-compare"), commit)?;
    run(&mut benches(
        store,
        &tree.path,
        scope,
        "--save-baseline",
        name,
    ))
}

/// A checkout that is gone when it is dropped.
struct Worktree {
    path: PathBuf,
}

impl Worktree {
    fn add(folder: &Path, commit: &str) -> Outcome<Self> {
        let path = folder.join(format!(
            "{}-{}",
            &commit[..12.min(commit.len())],
            std::process::id()
        ));
        let mut git = program("git", ["worktree", "add", "--quiet", "--detach"]);
        run(git.arg(&path).arg(commit))?;
        Ok(Self { path })
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        let mut git = program("git", ["worktree", "remove", "--force"]);
        git.arg(&self.path);
        if let Err(error) = run(&mut git) {
            eprintln!("{error}; remove it with `{}`", shown(&git));
        }
    }
}

/// Where criterion keeps what it measured.
struct Store {
    target: PathBuf,
    criterion: PathBuf,
}

/// One benchmark, now and in the base: medians in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    id: String,
    base: f64,
    now: f64,
}

impl Row {
    /// Percent above the base.
    fn change(&self) -> f64 {
        (self.now / self.base - 1.0) * 100.0
    }

    fn is_virtual(&self) -> bool {
        self.id
            .rsplit('/')
            .next()
            .is_some_and(|function| function.starts_with(VIRTUAL))
    }

    fn is_regression(&self) -> bool {
        self.is_virtual() && self.change() > TOLERANCE
    }
}

impl Store {
    fn find() -> Outcome<Self> {
        Ok(Self::at(&target()?))
    }

    fn at(target: &Path) -> Self {
        Self {
            target: target.to_owned(),
            criterion: target.join("criterion"),
        }
    }

    /// Whether a revision was measured to its end, with at least this scope.
    fn is_complete(&self, name: &str, scope: Scope) -> bool {
        self.marker(name, Scope::Everything).exists()
            || (scope == Scope::Virtual && self.marker(name, scope).exists())
    }

    fn complete(&self, name: &str, scope: Scope) -> Outcome {
        let marker = self.marker(name, scope);
        fs::write(&marker, "").map_err(|error| format!("{}: {error}", marker.display()))
    }

    fn marker(&self, name: &str, scope: Scope) -> PathBuf {
        let kind = match scope {
            Scope::Everything => "complete",
            Scope::Virtual => "virtual",
        };
        self.criterion.join(format!(".{name}.{kind}"))
    }

    /// Every benchmark that has both a newest measurement and one called `base`, sorted.
    fn rows(&self, base: &str) -> Outcome<Vec<Row>> {
        let mut rows = Vec::new();
        let mut folders = vec![self.criterion.clone()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            let inner = entries.flatten().map(|entry| entry.path());
            folders.extend(inner.filter(|path| path.is_dir()));
            let (now, then) = (folder.join("new"), folder.join(base));
            if now.join("estimates.json").exists() && then.join("estimates.json").exists() {
                rows.push(Row {
                    id: full_id(&now)?,
                    base: median(&then)?,
                    now: median(&now)?,
                });
            }
        }
        rows.sort_by(|a, b| (!a.is_virtual(), &a.id).cmp(&(!b.is_virtual(), &b.id)));
        Ok(rows)
    }
}

fn read_json(path: &Path) -> Outcome<Value> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn full_id(measured: &Path) -> Outcome<String> {
    let path = measured.join("benchmark.json");
    let id = read_json(&path)?["full_id"].as_str().map(str::to_owned);
    id.ok_or_else(|| format!("{} has no full_id", path.display()))
}

fn median(measured: &Path) -> Outcome<f64> {
    let path = measured.join("estimates.json");
    let median = read_json(&path)?["median"]["point_estimate"].as_f64();
    median
        .filter(|median| *median > 0.0)
        .ok_or_else(|| format!("{} has no median above 0", path.display()))
}

fn table(base: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "{:50} {:>12} {:>12} {:>9}\n",
        "median, ms", base, "now", "change"
    );
    for row in rows {
        let note = match (row.is_virtual(), row.is_regression()) {
            (_, true) => "  SLOWER",
            (true, false) => "",
            (false, _) => "  (shown only)",
        };
        text += &format!(
            "{:50} {:>12.3} {:>12.3} {:>+7.1} %{note}\n",
            row.id,
            row.base / 1e6,
            row.now / 1e6,
            row.change()
        );
    }
    text
}

fn judge(base: &str, rows: &[Row]) -> Outcome {
    if !rows.iter().any(Row::is_virtual) {
        return Err(format!(
            "`{base}` holds no benchmark on virtual time; nothing was compared"
        ));
    }
    let slower: Vec<String> = rows
        .iter()
        .filter(|row| row.is_regression())
        .map(|row| format!("{} by {:.1} %", row.id, row.change()))
        .collect();
    match slower.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "more than {TOLERANCE} % slower than {base} on virtual time: {}",
            slower.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests;
