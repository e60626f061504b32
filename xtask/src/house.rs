//! `make house`: the figures of the source itself, each beside its mark.
//!
//! Fields and methods of the large types, how much of the sans-I/O code lies in long files, the
//! longest functions, what may panic, and circles of files. It prints; only `--strict` makes a
//! missed mark a failure. `measure` counts, `layers` knows the crates and the circles.

mod measure;

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Outcome;
use crate::exec::metadata;
use crate::layers;
use crate::tree::{Scope, Tree};
use crate::workspace::{Kind, Package, Workspace};
use measure::{Function, Large, Panics, Size};

/// The types whose size is watched: crate, type, and the most fields it may have.
const TYPES: &[(&str, &str, Option<usize>)] = &[
    ("towline-quic", "Connection", Some(16)),
    ("towline-quic", "Streams", None),
    ("towline-recovery", "Recovery", None),
    ("towline-recovery", "PathState", None),
];

/// A file with more lines than this is long.
const LONG_FILE: usize = 600;

/// The share of the sans-I/O code, in percent, that may lie in long files.
const LONG_FILES_SHARE: f64 = 6.0;

/// A function with more lines than this says why.
const LONG_FUNCTION: usize = 80;

/// How many `unwrap` and `expect` a thousand lines may hold.
const PANICS: f64 = 2.0;

/// Crates that only tests and the simulator need: their panics are shown and have no mark.
const FOR_TESTS: &[&str] = &["towline-testkit"];

/// How many functions are listed even if they are within the mark.
const LISTED: usize = 10;

/// Everything that is printed.
struct Figures {
    types: Vec<TypeFigure>,
    /// Lines of code of the sans-I/O crates.
    core_lines: usize,
    large: Vec<Large>,
    /// Of the sans-I/O crates, longest first.
    functions: Vec<Function>,
    /// By crate.
    panics: Vec<(String, Panics)>,
    circles: Vec<Vec<String>>,
}

struct TypeFigure {
    package: &'static str,
    name: &'static str,
    mark: Option<usize>,
    /// `None` if the crate has no one struct of that name.
    size: Option<Size>,
}

/// `cargo xtask house [--json] [--strict]`.
pub(crate) fn house(arguments: &[String]) -> Outcome {
    let (mut as_json, mut strict) = (false, false);
    for argument in arguments {
        match argument.as_str() {
            "--json" => as_json = true,
            "--strict" => strict = true,
            _ => return Err("usage: cargo xtask house [--json] [--strict]".to_owned()),
        }
    }
    let figures = Figures::of(&Workspace::of(&metadata()?))?;
    if as_json {
        println!("{:#}", figures.json());
    } else {
        print!("{}", figures.text());
    }
    let missed = figures.missed();
    if strict && !missed.is_empty() {
        return Err(format!("missed: {}", missed.join("; ")));
    }
    Ok(())
}

impl Figures {
    fn of(workspace: &Workspace) -> Outcome<Self> {
        let mut figures = Self {
            types: Vec::new(),
            core_lines: 0,
            large: Vec::new(),
            functions: Vec::new(),
            panics: Vec::new(),
            circles: layers::circles_of(workspace)?,
        };
        for package in &workspace.packages {
            let trees = workspace.trees(package, Kind::Shipped, Scope::Shipped)?;
            figures.add(package, &trees);
        }
        figures
            .functions
            .sort_by(|a, b| b.lines.cmp(&a.lines).then_with(|| a.path.cmp(&b.path)));
        figures
            .large
            .sort_by_key(|file| std::cmp::Reverse(file.lines));
        Ok(figures)
    }

    fn add(&mut self, package: &Package, trees: &[Tree]) {
        for &(owner, name, mark) in TYPES.iter().filter(|(owner, ..)| *owner == package.name) {
            let size = trees.iter().find_map(|tree| measure::size(tree, name));
            self.types.push(TypeFigure {
                package: owner,
                name,
                mark,
                size,
            });
        }
        let core = layers::is_sans_io(&package.name);
        let mut panics = Panics::default();
        for file in measure::files(trees) {
            let code = measure::code_lines(file);
            panics.add(code, &file.syntax);
            if core {
                self.core_lines += code;
                self.large.extend(measure::large(file, code, LONG_FILE));
                self.functions.extend(measure::functions(file));
            }
        }
        if !layers::is_tool(&package.name) {
            self.panics.push((package.name.clone(), panics));
        }
    }

    /// Percent of the sans-I/O code that lies in long files.
    fn share(&self) -> f64 {
        let large: usize = self.large.iter().map(|file| file.code).sum();
        100.0 * large as f64 / self.core_lines.max(1) as f64
    }

    fn unexplained(&self) -> impl Iterator<Item = &Function> {
        self.functions
            .iter()
            .filter(|function| function.lines > LONG_FUNCTION && !function.says_why)
    }

    /// The marks that are not met, as sentences.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for figure in &self.types {
            match (&figure.size, figure.mark) {
                (None, _) => missed.push(format!(
                    "{} has no one struct {} (the list is in xtask/src/house.rs)",
                    figure.package, figure.name
                )),
                (Some(size), Some(mark)) if size.fields > mark => missed.push(format!(
                    "{} has {} fields, the mark is {mark}",
                    figure.name, size.fields
                )),
                _ => {}
            }
        }
        if self.share() > LONG_FILES_SHARE {
            missed.push(format!(
                "{:.1} % of the sans-I/O code lies in files over {LONG_FILE} lines, the mark is {LONG_FILES_SHARE} %",
                self.share()
            ));
        }
        let unexplained = self.unexplained().count();
        if unexplained > 0 {
            missed.push(format!(
                "{unexplained} function(s) over {LONG_FUNCTION} lines do not say why"
            ));
        }
        for (package, panics) in &self.panics {
            if panics.per_thousand() > PANICS && !FOR_TESTS.contains(&package.as_str()) {
                missed.push(format!(
                    "{package} has {:.1} unwraps and expects in a thousand lines, the mark is {PANICS}",
                    panics.per_thousand()
                ));
            }
        }
        if !self.circles.is_empty() {
            missed.push(format!(
                "{} circle(s) of files, the mark is 0",
                self.circles.len()
            ));
        }
        missed
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "types (mark: Connection has 16 fields at most)");
        for figure in &self.types {
            let _ = match &figure.size {
                Some(size) => writeln!(
                    text,
                    "  {:<12} {:>3} fields, {:>3} methods ({} of them public) in {} file(s)",
                    figure.name, size.fields, size.methods, size.public, size.files
                ),
                None => writeln!(text, "  {:<12} no one struct of this name", figure.name),
            };
        }
        let _ = writeln!(
            text,
            "sans-I/O code in files over {LONG_FILE} lines: {:.1} % of {} lines of code (mark {LONG_FILES_SHARE} %)",
            self.share(),
            self.core_lines
        );
        for file in &self.large {
            let why = if file.says_why { ", says why" } else { "" };
            let _ = writeln!(
                text,
                "  {:>5} lines, {:>5} of code{why}: {}",
                file.lines, file.code, file.path
            );
        }
        let _ = writeln!(
            text,
            "functions over {LONG_FUNCTION} lines that do not say why, in the sans-I/O crates: {} (mark 0); the longest:",
            self.unexplained().count()
        );
        let long = |function: &Function| function.lines > LONG_FUNCTION;
        let listed = self.functions.iter().filter(|found| long(found)).count();
        for function in self.functions.iter().take(listed.max(LISTED)) {
            let why = if function.says_why { ", says why" } else { "" };
            let _ = writeln!(
                text,
                "  {:>5} lines{why}: {} ({}:{})",
                function.lines, function.name, function.path, function.line
            );
        }
        let _ = writeln!(
            text,
            "unwraps and expects in a thousand lines of code outside tests (mark {PANICS} in each crate but testkit)"
        );
        for (package, panics) in &self.panics {
            let _ = writeln!(
                text,
                "  {:<18} {:>4.1}  ({} unwrap, {} expect, {} lines)",
                package,
                panics.per_thousand(),
                panics.unwraps,
                panics.expects,
                panics.code
            );
        }
        let _ = writeln!(text, "circles of files: {} (mark 0)", self.circles.len());
        for circle in &self.circles {
            let _ = writeln!(text, "  {}", circle.join(", "));
        }
        let missed = self.missed();
        let _ = writeln!(text, "house: {} mark(s) missed", missed.len());
        for mark in missed {
            let _ = writeln!(text, "  {mark}");
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "types": self.types.iter().map(|figure| json!({
                "crate": figure.package,
                "name": figure.name,
                "mark": figure.mark,
                "fields": figure.size.as_ref().map(|size| size.fields),
                "methods": figure.size.as_ref().map(|size| size.methods),
                "public_methods": figure.size.as_ref().map(|size| size.public),
                "files": figure.size.as_ref().map(|size| size.files),
            })).collect::<Vec<_>>(),
            "long_files": {
                "share_percent": self.share(),
                "mark_percent": LONG_FILES_SHARE,
                "core_code_lines": self.core_lines,
                "files": self.large.iter().map(|file| json!({
                    "path": file.path,
                    "lines": file.lines,
                    "code_lines": file.code,
                    "says_why": file.says_why,
                })).collect::<Vec<_>>(),
            },
            "functions": {
                "over": LONG_FUNCTION,
                "unexplained": self.unexplained().count(),
                "mark": 0,
                "longest": self.functions.iter().take(LISTED).map(|function| json!({
                    "name": function.name,
                    "path": function.path,
                    "line": function.line,
                    "lines": function.lines,
                    "says_why": function.says_why,
                })).collect::<Vec<_>>(),
            },
            "panics": self.panics.iter().map(|(package, panics)| json!({
                "crate": package,
                "unwraps": panics.unwraps,
                "expects": panics.expects,
                "code_lines": panics.code,
                "per_thousand": panics.per_thousand(),
                "mark": (!FOR_TESTS.contains(&package.as_str())).then_some(PANICS),
            })).collect::<Vec<_>>(),
            "circles": self.circles,
            "missed": self.missed(),
        })
    }
}

#[cfg(test)]
mod tests;
