//! The table, in markdown, which a terminal shows well enough.

use std::fmt::Write as _;

use crate::figures::{Entry, Figures, Summary, spread};
use crate::plan::Setting;

const HEAD: &str = "\
| case | goodput, Mbit/s | share of the first | bytes per packet | queue delay, ms | p95, ms | queue loss, % | link used, % |
|---|---|---|---|---|---|---|---|
";

/// A row for each case; medians, with the range behind where there are several rounds.
pub(crate) fn all(figures: &Figures, setting: &Setting) -> String {
    let mut text = HEAD.to_owned();
    for entry in &figures.entries {
        let _ = writeln!(text, "| {} |", row(entry, setting).join(" | "));
    }
    for entry in &figures.entries {
        if let Some(why) = &entry.failure {
            let _ = writeln!(text, "\nNOT MEASURED {}: {why}", entry.case);
        }
    }
    text
}

fn row(entry: &Entry, setting: &Setting) -> Vec<String> {
    let summaries: Vec<Summary> = entry
        .trials
        .iter()
        .map(|trial| Summary::of(trial, setting))
        .collect();
    let show = |scale: f64, digits: usize, value: &dyn Fn(&Summary) -> f64| {
        number(
            summaries.iter().map(|summary| value(summary) * scale),
            digits,
        )
    };
    let flows = 0..entry.case.0.len();
    let goodput: Vec<String> = flows
        .clone()
        .map(|flow| show(1e-6, 2, &|summary| summary.goodput[flow]))
        .collect();
    let share = if flows.len() > 1 {
        format!("{} %", show(100.0, 1, &|summary| summary.share(0)))
    } else {
        "–".to_owned()
    };
    let packets = entry.trials.first().map_or("–".to_owned(), |trial| {
        let sizes = trial.flows.iter().map(|flow| flow.packet_bytes.to_string());
        sizes.collect::<Vec<_>>().join(" : ")
    });
    vec![
        format!("`{}`", entry.case),
        goodput.join(" : "),
        share,
        packets,
        show(1e3, 1, &|summary| summary.queue_delay),
        show(1e3, 1, &|summary| summary.queue_delay_p95),
        show(100.0, 2, &|summary| summary.loss),
        show(100.0, 1, &|summary| summary.utilisation),
    ]
}

fn number(values: impl Iterator<Item = f64>, digits: usize) -> String {
    match spread(values) {
        None => "–".to_owned(),
        Some((median, None)) => format!("{median:.digits$}"),
        Some((median, Some((least, most)))) => {
            format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
        }
    }
}

#[cfg(test)]
mod tests;
