//! The results as `towline.bench/1`: a row for each measure, stack and setting.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::Outcome;
use crate::figures::Figures;
use crate::marks::Verdict;

/// The name of this record's shape.
const SCHEMA: &str = "towline.bench/1";

/// One file of results.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
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
    pub(crate) fn of(figures: &Figures, verdict: &Verdict) -> Self {
        let mut rows = Vec::new();
        for entry in &figures.entries {
            let case = figures
                .cases
                .iter()
                .find(|case| case.name == entry.case && case.setting == entry.setting);
            let units = case.map_or(&[][..], |case| case.results);
            for series in entry.results() {
                let unit = units.iter().find(|(name, _)| *name == series.name);
                if let (Some(value), Some((measure, unit))) = (series.median(), unit) {
                    rows.push(Row {
                        measure,
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
            valid: verdict.invalid.is_none(),
            reason: verdict.invalid.clone(),
            rows,
        }
    }

    pub(crate) fn to_json(&self) -> Outcome<String> {
        serde_json::to_string_pretty(self).map_err(|error| error.to_string())
    }

    pub(crate) fn write(&self, path: &Path) -> Outcome {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(path, self.to_json()? + "\n").map_err(failed)
    }
}

#[cfg(test)]
mod tests;
