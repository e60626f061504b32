//! The stored counts: one record for each rustc version and host, and how new counts compare.
//!
//! The file is committed and read by people too, so it is sorted and indented.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::Outcome;
use crate::exec::root;

/// Where the baseline lives.
pub(super) const FILE: &str = "crates/lab/counts/baseline.json";

/// A rise of fewer instructions than this is nothing, whatever share it is.
const LEAST: f64 = 1.0;

/// What changes counts although the code is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// Its version.
    pub(super) valgrind: String,
    /// The processor's features that choose code, as valgrind shows them.
    pub(super) cpu: String,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.valgrind, self.cpu)
    }
}

/// Counts of one run over all workloads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) machine: Machine,
    /// Per packet, frame or turn, by row.
    pub(super) instructions: BTreeMap<String, f64>,
}

/// All records, by key.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Baseline(BTreeMap<String, Record>);

/// One row compared.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) name: String,
    pub(super) now: f64,
    pub(super) baseline: Option<f64>,
    /// Percent above the baseline.
    pub(super) change: Option<f64>,
    pub(super) too_dear: bool,
}

/// Release and host of `rustc -Vv`; nightlies differ from day to day, so theirs has the commit too.
pub(super) fn key(verbose_version: &str) -> Outcome<String> {
    let field = |name: &str| {
        verbose_version
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .ok_or_else(|| format!("rustc -Vv has no `{name}`"))
    };
    let (release, host) = (field("release")?, field("host")?);
    if release.contains('-') {
        return Ok(format!("{release} {} {host}", field("commit-hash")?));
    }
    Ok(format!("{release} {host}"))
}

/// The rows of `now` in the order of `names`, beside `stored`.
pub(super) fn compare(
    names: &[&str],
    now: &Record,
    stored: Option<&Record>,
    tolerance: f64,
) -> Vec<Verdict> {
    let verdict = |name: &&str| {
        let now = now.instructions.get(*name).copied()?;
        let baseline = stored.and_then(|record| record.instructions.get(*name).copied());
        let change = baseline
            .filter(|baseline| *baseline > 0.0)
            .map(|baseline| (now - baseline) * 100.0 / baseline);
        Some(Verdict {
            name: (*name).to_owned(),
            now,
            baseline,
            change,
            too_dear: change.is_some_and(|change| change > tolerance)
                && baseline.is_some_and(|baseline| now - baseline >= LEAST),
        })
    };
    names.iter().filter_map(verdict).collect()
}

impl Baseline {
    /// The committed file; empty if there is none.
    pub(super) fn load() -> Outcome<Self> {
        match std::fs::read_to_string(root().join(FILE)) {
            Ok(text) => Self::parse(&text).map_err(|what| format!("{FILE}: {what}")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{FILE}: {error}")),
        }
    }

    pub(super) fn save(&self) -> Outcome {
        let path = root().join(FILE);
        let failed = |error: std::io::Error| format!("{FILE}: {error}");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        std::fs::write(&path, self.text()).map_err(failed)
    }

    pub(super) fn of(&self, key: &str) -> Option<&Record> {
        self.0.get(key)
    }

    pub(super) fn set(&mut self, key: &str, record: Record) {
        self.0.insert(key.to_owned(), record);
    }

    /// Rows of `now` that the record lacks; the others stay as they are.
    pub(super) fn add_missing(&mut self, key: &str, now: &Record) {
        if let Some(record) = self.0.get_mut(key) {
            for (name, instructions) in &now.instructions {
                let stored = &mut record.instructions;
                stored.entry(name.clone()).or_insert(*instructions);
            }
        }
    }

    pub(super) fn parse(text: &str) -> Outcome<Self> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let records = value.as_object().ok_or("not an object")?;
        let record = |(key, value): (&String, &Value)| {
            let word = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
            let rows = value["instructions"].as_object();
            let rows = rows.ok_or_else(|| format!("{key}: no instructions"))?;
            let number = |(name, value): (&String, &Value)| {
                let number = value.as_f64().filter(|n| *n > 0.0);
                let number = number.ok_or_else(|| format!("{key}: {name} is no count"))?;
                Ok((name.clone(), number))
            };
            let machine = Machine {
                valgrind: word("valgrind"),
                cpu: word("cpu"),
            };
            let instructions = rows.iter().map(number).collect::<Outcome<_>>()?;
            Ok((
                key.clone(),
                Record {
                    machine,
                    instructions,
                },
            ))
        };
        Ok(Self(records.iter().map(record).collect::<Outcome<_>>()?))
    }

    pub(super) fn text(&self) -> String {
        let records: Map<String, Value> = self
            .0
            .iter()
            .map(|(key, record)| {
                let value = json!({
                    "valgrind": record.machine.valgrind,
                    "cpu": record.machine.cpu,
                    "instructions": record.instructions,
                });
                (key.clone(), value)
            })
            .collect();
        format!("{:#}\n", Value::Object(records))
    }
}
