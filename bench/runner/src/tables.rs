//! Tables that read well in a terminal and are Markdown.

use std::fmt::Write as _;

use crate::figures::{Case, Entry, Figures};
use crate::verdict::{Judgement, Verdict};

/// Tables with their titles, one below the other; those without a row are left out.
pub fn sections<'t>(tables: impl IntoIterator<Item = (&'t str, Option<String>)>) -> String {
    let mut text = String::new();
    for (title, table) in tables {
        if let Some(table) = table {
            let _ = write!(text, "### {title}\n\n{table}\n");
        }
    }
    text
}

/// Cells padded to their columns' widths; `None` without a row.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> Option<String> {
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
pub fn number(value: f64) -> String {
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

/// As [`number`]; a dash for what there is not.
pub fn number_or_dash(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), number)
}

/// A row for each mark that could be judged, or is missed.
pub fn marks(verdict: &Verdict) -> Option<String> {
    let missed = verdict.missed();
    let is_missed = |judgement: &Judgement| missed.iter().any(|own| std::ptr::eq(*own, judgement));
    let rows: Vec<_> = verdict
        .judgements
        .iter()
        .filter(|judgement| judgement.value.is_some() || is_missed(judgement))
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

/// A row for each result of the entries that `show` wants, all stacks of a measure together, each
/// divided by what `beside` has.
pub fn medians<C: Case>(
    figures: &Figures<C>,
    beside: C::Stack,
    show: impl Fn(&Entry<C::Stack>) -> bool,
) -> Option<String> {
    let mut rows = Vec::new();
    for entry in figures.entries.iter().filter(|entry| show(entry)) {
        let mut details = details(entry);
        for series in entry.results() {
            let setting = entry.setting.as_deref();
            let theirs = figures.median(series.name, setting, beside);
            let ratio = series
                .median()
                .zip(theirs)
                .map(|(value, theirs)| value / theirs);
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
    let ratio = format!("÷ {beside}");
    let head = [
        "measure",
        "setting",
        "stack",
        "version",
        "median",
        "min–max",
        ratio.as_str(),
        "beside it (medians)",
    ];
    table(&head, &rows)
}

fn details<S>(entry: &Entry<S>) -> String {
    let shown = entry.details().filter_map(|series| {
        Some(format!(
            "{} {}",
            series.name.trim(),
            number(series.median()?)
        ))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// What could not be measured, and why.
pub fn failures<C: Case>(figures: &Figures<C>) -> Option<String> {
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
