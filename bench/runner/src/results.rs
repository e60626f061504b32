//! The results as `towline.bench/1`: a row for each measure, stack and setting.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::Outcome;
use crate::figures::{Case, Figures, Stack as _};

/// The name of this record's shape.
const SCHEMA: &str = "towline.bench/1";

/// One file of results.
#[derive(Debug, Serialize)]
pub struct Results {
    schema: &'static str,
    /// Whether the peers came out as peers do, in a whole run.
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    measure: &'static str,
    stack: &'static str,
    version: String,
    /// The median of all rounds.
    value: f64,
    unit: &'static str,
    /// Only beside the judged case.
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<String>,
}

impl Results {
    /// Of a run that does not count where there is a reason.
    pub fn of<C: Case>(figures: &Figures<C>, invalid: Option<&str>) -> Self {
        let mut rows = Vec::new();
        for entry in &figures.entries {
            for series in entry.results() {
                let unit = figures.unit(entry, series.name);
                if let (Some(value), Some(unit)) = (series.median(), unit) {
                    rows.push(Row {
                        measure: series.name,
                        stack: entry.stack.name(),
                        version: entry.version.clone(),
                        value: (value * 1e6).round() / 1e6,
                        unit,
                        setting: entry.setting.clone(),
                    });
                }
            }
        }
        Self {
            schema: SCHEMA,
            valid: invalid.is_none(),
            reason: invalid.map(str::to_owned),
            rows,
        }
    }

    /// As text.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn to_json(&self) -> Outcome<String> {
        serde_json::to_string_pretty(self).map_err(|error| error.to_string())
    }

    /// As a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Outcome {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(path, self.to_json()? + "\n").map_err(failed)
    }
}

#[cfg(test)]
mod tests;
