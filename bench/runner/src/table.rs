//! The tables of this comparison.

use bench_runner::tables::{failures, marks, medians, number, number_or_dash, sections, table};
use bench_runner::verdict::Verdict;

use crate::marks::against_the_floor;
use crate::plan::{Figures, Stack};

/// All tables, one below the other.
pub(crate) fn all(figures: &Figures, verdict: &Verdict) -> String {
    sections([
        ("Ours against the marks", marks(verdict)),
        ("Do the peers come out as peers do?", peers(figures)),
        (
            "Medians",
            medians(figures, Stack::Quinn, |entry| entry.case != "matrix"),
        ),
        (
            "What decides bulk transfers, s/GB on the worse side",
            matrix(figures),
        ),
        ("What could not be measured", failures(figures)),
    ])
}

fn peers(figures: &Figures) -> Option<String> {
    let rows: Vec<_> = against_the_floor(figures)
        .into_iter()
        .filter_map(|(peer, ratio, range)| {
            Some(vec![
                format!("{peer} ÷ floor"),
                number(ratio?),
                format!("{} to {}", range.start(), range.end()),
            ])
        })
        .collect();
    table(&["worse sides", "measured", "expected"], &rows)
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

#[cfg(test)]
mod tests;
