//! Tables that read well in a terminal and are Markdown.

use std::fmt::Write as _;

use crate::figures::{Entry, Figures};
use crate::marks::{Judgement, Verdict};
use crate::plan::Stack;

/// All tables, one below the other.
pub(crate) fn all(figures: &Figures, verdict: &Verdict) -> String {
    let mut text = String::new();
    let mut add = |title: &str, table: Option<String>| {
        if let Some(table) = table {
            let _ = write!(text, "### {title}\n\n{table}\n");
        }
    };
    add("Ours against the marks", marks(verdict));
    add("Do the peers come out as peers do?", peers(verdict));
    add("Medians", medians(figures));
    add(
        "What decides bulk transfers, s/GB on the worse side",
        matrix(figures),
    );
    add("What could not be measured", failures(figures));
    text
}

/// Cells padded to their columns' widths; `None` without a row.
fn table(head: &[&str], rows: &[Vec<String>]) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head[column].chars().count())
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[&str]| {
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
    };
    line(head);
    let rules: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
    line(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    Some(text)
}

/// Three significant digits, and never a power of ten.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else if magnitude >= 1.0 {
        format!("{value:.2}")
    } else if magnitude >= 0.001 || magnitude == 0.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.6}")
    }
}

fn number_or_dash(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), number)
}

fn marks(verdict: &Verdict) -> Option<String> {
    let missed = verdict.missed();
    let rows: Vec<_> = verdict
        .judgements
        .iter()
        .filter(|judgement| judgement.value.is_some() || is_in(&missed, judgement))
        .map(|judgement| {
            let setting = judgement.setting.map(|setting| format!(" ({setting})"));
            let outcome = match (&judgement.first, judgement.reached) {
                (None, _) => "–",
                (_, true) => "pass",
                (_, false) => "FAIL",
            };
            let goal = match (&judgement.goal, judgement.goal_reached) {
                (None, _) => "–".to_owned(),
                (Some(goal), true) => format!("{goal} (reached)"),
                (Some(goal), false) => goal.clone(),
            };
            vec![
                format!("`{}`{}", judgement.measure, setting.unwrap_or_default()),
                judgement.quantity.clone(),
                number_or_dash(judgement.value),
                judgement.first.clone().unwrap_or("–".to_owned()),
                outcome.to_owned(),
                goal,
            ]
        })
        .collect();
    table(&["measure", "what", "measured", "mark", "", "goal"], &rows)
}

fn is_in(missed: &[&Judgement], judgement: &Judgement) -> bool {
    missed.iter().any(|missed| std::ptr::eq(*missed, judgement))
}

fn peers(verdict: &Verdict) -> Option<String> {
    let rows: Vec<_> = verdict
        .peers
        .iter()
        .filter_map(|(peer, ratio, range)| {
            Some(vec![
                format!("{peer} ÷ floor"),
                number((*ratio)?),
                format!("{} to {}", range.start(), range.end()),
            ])
        })
        .collect();
    table(&["worse sides", "measured", "expected"], &rows)
}

fn medians(figures: &Figures) -> Option<String> {
    let mut rows = Vec::new();
    for entry in figures
        .entries
        .iter()
        .filter(|entry| entry.case != "matrix")
    {
        let mut details = details(entry);
        for series in entry.results() {
            let setting = entry.setting.as_deref();
            let quinn = figures.median(series.name, setting, Stack::Quinn);
            let ratio = series
                .median()
                .zip(quinn)
                .map(|(value, quinn)| value / quinn);
            rows.push(vec![
                format!("`{}`", series.name),
                setting.unwrap_or("").to_owned(),
                entry.stack.to_string(),
                entry.version.clone(),
                number_or_dash(series.median()),
                format!(
                    "{}–{}",
                    number_or_dash(series.least()),
                    number_or_dash(series.most())
                ),
                number_or_dash(ratio),
                // Beside the first of an entry's results.
                std::mem::take(&mut details),
            ]);
        }
    }
    // All stacks of a measure together, in the order of running.
    let mut order: Vec<(String, String)> = Vec::new();
    for row in &rows {
        let key = (row[0].clone(), row[1].clone());
        if !order.contains(&key) {
            order.push(key);
        }
    }
    rows.sort_by_key(|row| {
        order
            .iter()
            .position(|key| key.0 == row[0] && key.1 == row[1])
    });
    let head = [
        "measure",
        "setting",
        "stack",
        "version",
        "median",
        "min–max",
        "÷ quinn",
        "beside it (medians)",
    ];
    table(&head, &rows)
}

fn details(entry: &Entry) -> String {
    let shown = entry.details().filter_map(|series| {
        Some(format!(
            "{} {}",
            series.name.trim(),
            number(series.median()?)
        ))
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn matrix(figures: &Figures) -> Option<String> {
    let variants = figures
        .cases
        .iter()
        .filter(|case| case.name == "matrix")
        .filter_map(|case| case.setting.as_deref()?.strip_prefix("download, "));
    let rows: Vec<_> = variants
        .map(|variant| {
            let mut row = vec![variant.to_owned()];
            for direction in ["download", "upload"] {
                let setting = format!("{direction}, {variant}");
                let of = |stack| figures.median("bulk_s_per_gb", Some(&setting), stack);
                let (ours, quinns) = (of(Stack::Towline), of(Stack::Quinn));
                let ratio = ours.zip(quinns).map(|(ours, quinns)| quinns / ours);
                row.extend([ours, quinns, ratio].map(number_or_dash));
            }
            row
        })
        .collect();
    let head = [
        "one thing changed",
        "download ours",
        "quinn's",
        "quinn ÷ ours",
        "upload ours",
        "quinn's",
        "quinn ÷ ours",
    ];
    table(&head, &rows)
}

fn failures(figures: &Figures) -> Option<String> {
    let rows: Vec<_> = figures
        .entries
        .iter()
        .flat_map(|entry| {
            entry.failures.iter().map(|why| {
                let setting = entry
                    .setting
                    .as_ref()
                    .map(|setting| format!(" ({setting})"));
                let why = why
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .replace('|', "/");
                vec![
                    format!("{}{}", entry.case, setting.unwrap_or_default()),
                    entry.stack.to_string(),
                    why,
                ]
            })
        })
        .collect();
    table(&["case", "stack", "why"], &rows)
}

#[cfg(test)]
mod tests;
