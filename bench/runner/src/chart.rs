//! The chart: a panel for each measure, a bar for each stack.

use std::path::Path;

use bench_runner::Outcome;
use bench_runner::bars::{self, Bar, Shade};

use crate::figures::Figures;
use crate::plan::Stack;
use crate::table::number;

/// Draws the judged case of every measure.
pub(crate) fn draw(path: &Path, figures: &Figures) -> Outcome {
    let judged = figures.cases.iter().filter(|case| case.setting.is_none());
    let panels: Vec<_> = judged
        .flat_map(|case| case.results.iter().copied())
        .map(|(measure, unit)| {
            let title = match unit {
                "1" => measure.to_owned(),
                unit => format!("{measure}, {unit}"),
            };
            (title, bars_of(figures, measure))
        })
        .collect();
    bars::draw(path, 3, &panels)
}

fn bars_of(figures: &Figures, measure: &str) -> Vec<Bar> {
    let judged = figures
        .entries
        .iter()
        .filter(|entry| entry.setting.is_none());
    judged
        .flat_map(|entry| entry.results().map(move |series| (entry.stack, series)))
        .filter(|(_, series)| series.name == measure)
        .filter_map(|(stack, series)| Some((stack, series.median()?)))
        .map(|(stack, value)| Bar {
            name: stack.name(),
            value,
            text: number(value),
            shade: match stack {
                Stack::Towline => Shade::Ours,
                Stack::Floor | Stack::Tls => Shade::Floor,
                _ => Shade::Peer,
            },
        })
        .collect()
}

#[cfg(test)]
mod tests;
