//! Which cases are played with which seeds, and the threads that play them.
//!
//! Each playing is independent and has its place in the result, so neither their number nor their
//! order changes a table.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{CONTROLLERS, Case, Line, OPEN, Report, Row, THINNING, Trial, Trouble, Verdict, rows};

/// With and without ACK thinning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinning {
    /// Only with.
    On,
    /// Only without.
    Off,
    /// Both.
    Both,
}

/// What to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only these rows; none means all. `thinning` is all of them, thinned.
    pub rows: Vec<String>,
    /// Only cases of these controllers; none means all.
    pub controllers: Vec<String>,
    /// Only cases that contain this.
    pub case: Option<String>,
    /// Seeds 1 to this.
    pub seeds: u64,
    /// With and without ACK thinning.
    pub thinning: Thinning,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            controllers: Vec::new(),
            case: None,
            seeds: 5,
            thinning: Thinning::Both,
        }
    }
}

/// A row or a controller that the matrix does not have. The mistake of whoever asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// `row`, `controller` or `case`.
    pub kind: &'static str,
    /// What was asked for.
    pub name: String,
    /// What there is; empty if that is too long a list.
    pub known: String,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, known } = self;
        match known.is_empty() {
            true => write!(f, "the matrix has no {kind} {name}"),
            false => write!(f, "the matrix has no {kind} `{name}`; there are: {known}"),
        }
    }
}

impl std::error::Error for UnknownName {}

/// What will be played.
pub struct Plan {
    rows: Vec<Row>,
    /// Row, case, and whether thinned.
    cases: Vec<(usize, usize, bool)>,
    seeds: u64,
}

impl Plan {
    /// The cases that `options` ask for.
    ///
    /// # Errors
    /// When they name a row or a controller that does not exist, or leave no case.
    pub fn new(options: &Options) -> Result<Self, UnknownName> {
        let rows = rows();
        let known: Vec<&str> = rows.iter().map(|row| row.id).chain([THINNING]).collect();
        check("row", &options.rows, &known)?;
        check("controller", &options.controllers, CONTROLLERS)?;
        let is_named = |id: &str| options.rows.iter().any(|name| name == id);
        let mut cases = Vec::new();
        for thinned in [false, true] {
            let skipped = match thinned {
                false => Thinning::On,
                true => Thinning::Off,
            };
            if options.thinning == skipped {
                continue;
            }
            let whole = options.rows.is_empty() || (thinned && is_named(THINNING));
            for (r, row) in rows.iter().enumerate() {
                for (c, case) in row.cases.iter().enumerate() {
                    if (whole || is_named(row.id)) && is_asked_for(case, options) {
                        cases.push((r, c, thinned));
                    }
                }
            }
        }
        if cases.is_empty() {
            let part = options.case.as_ref();
            return Err(UnknownName {
                kind: "case",
                name: part.map_or_else(
                    || "of that kind".to_owned(),
                    |part| format!("with `{part}` in its name, of that kind"),
                ),
                known: String::new(),
            });
        }
        Ok(Self {
            rows,
            cases,
            seeds: options.seeds.max(1),
        })
    }

    /// The rows of which at least one case is played.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        let played = |index: usize| self.cases.iter().any(|(row, ..)| *row == index);
        self.rows
            .iter()
            .enumerate()
            .filter_map(move |(index, row)| played(index).then_some(row))
    }

    /// The cases to be played, each with its row and whether ACKs are thinned.
    pub fn cases(&self) -> impl Iterator<Item = (&Row, &Case, bool)> {
        self.cases.iter().map(|(row, case, thinned)| {
            let row = &self.rows[*row];
            (row, &row.cases[*case], *thinned)
        })
    }

    /// Seeds 1 to this are played.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// How many playings it takes.
    pub fn len(&self) -> usize {
        self.cases.len() * self.seeds as usize
    }

    /// Whether nothing is played; never so.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// Plays everything on `jobs` threads and calls `progress` after each playing.
    pub fn play(&self, jobs: usize, progress: &(dyn Fn() + Sync)) -> Report {
        let total = self.len();
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<Values>>> = Mutex::new(vec![None; total]);
        std::thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, total) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= total {
                            return;
                        }
                        let values = self.play_one(number);
                        if let Ok(mut results) = results.lock() {
                            results[number] = Some(values);
                        }
                        progress();
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_default();
        let mut results = results.into_iter().flatten();
        let mut lines = Vec::new();
        for (row, case, thinned) in self.cases() {
            let of_case: Vec<Values> = results.by_ref().take(self.seeds as usize).collect();
            lines.extend(grade(row, case, thinned, &of_case));
        }
        Report::new(self.rows(), lines, self.seeds())
    }

    fn play_one(&self, number: usize) -> Values {
        let (row, case, thinning) = self.cases[number / self.seeds as usize];
        let seed = number as u64 % self.seeds + 1;
        self.rows[row].cases[case].play(&Trial { seed, thinning })
    }
}

/// What one playing of a case returned.
type Values = Result<Vec<f64>, Trouble>;

fn check(kind: &'static str, names: &[String], known: &[&str]) -> Result<(), UnknownName> {
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(UnknownName {
            kind,
            name: name.clone(),
            known: known.join(", "),
        }),
    }
}

fn is_asked_for(case: &Case, options: &Options) -> bool {
    let controllers = &options.controllers;
    (controllers.is_empty() || controllers.iter().any(|name| name == case.controller))
        && options
            .case
            .as_ref()
            .is_none_or(|part| case.name.contains(part.as_str()))
}

/// One line for each measure of a case.
fn grade(row: &Row, case: &Case, thinning: bool, results: &[Values]) -> Vec<Line> {
    let trouble = results.iter().enumerate().find_map(|(index, result)| {
        let trouble = result.as_ref().err()?;
        Some((index + 1, trouble))
    });
    let is_listed = OPEN
        .iter()
        .any(|open| open.row == row.id && open.cases.contains(&case.name.as_str()));
    let line = |(place, measure)| {
        let values = results.iter().flatten();
        let mut line = Line::unplayed(row, case, thinning, measure);
        line.values = values.filter_map(|all| all.get(place).copied()).collect();
        line.verdict = Verdict::Fail;
        match trouble {
            Some((_, trouble @ Trouble::Missing(_))) => {
                line.verdict = Verdict::Missing;
                line.note = Some(trouble.to_string());
            }
            // A listed mark is about values; a transfer that breaks off is never open.
            Some((seed, trouble)) => line.note = Some(format!("seed {seed}: {trouble}")),
            None => {
                line.verdict = match (line.reaches(), is_listed) {
                    (true, false) => Verdict::Pass,
                    (true, true) => Verdict::Stale,
                    (false, true) => Verdict::Open,
                    (false, false) => Verdict::Fail,
                }
            }
        }
        line
    };
    case.measures
        .iter()
        .copied()
        .enumerate()
        .map(line)
        .collect()
}
