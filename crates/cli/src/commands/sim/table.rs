//! Columns for people: the first one flush left, figures flush right.

use crate::printer::Printer;

/// A table that is being filled.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned).to_vec()],
        }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Prints it without the columns that say nothing.
    pub(super) fn print(&self, printer: Printer) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = (0..columns)
            .map(
                |column| match cells(column).skip(1).all(|cell| cell == NONE) {
                    true => 0,
                    false => cells(column).map(|c| c.chars().count()).max().unwrap_or(0),
                },
            )
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match (column, *width) {
                    (_, 0) => {}
                    (0, width) => line.push_str(&format!("{cell:<width$}")),
                    (_, width) => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            printer.line(line.trim_end());
        }
    }
}

/// Nothing to say.
const NONE: &str = "-";

/// Bits a second as megabits.
pub(super) fn megabits(rate: f64) -> String {
    match rate {
        rate if rate >= 99.5e6 => format!("{:.0}", rate / 1e6),
        rate if rate >= 9.95e6 => format!("{:.1}", rate / 1e6),
        rate => format!("{:.2}", rate / 1e6),
    }
}

/// A share as percent.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        // A trace of loss is not none.
        p if p > 0.0 && p < 0.1 => format!("{p:.3} %"),
        p => format!("{p:.1} %"),
    }
}

/// Seconds as milliseconds.
pub(super) fn millis(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

/// Something, or nothing to say.
pub(super) fn or_none<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), show)
}
