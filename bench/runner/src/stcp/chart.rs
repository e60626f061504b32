//! The chart: a panel for each cell, a bar for each stack: requests a second.

use std::path::Path;

use bench_runner::Outcome;
use bench_runner::bars::{self, Bar, Shade};

use crate::figures::Figures;
use crate::plan::{Cell, Stack};

/// Draws all cells.
pub(crate) fn draw(path: &Path, figures: &Figures) -> Outcome {
    let bar = |cell: &Cell, stack: Stack| {
        let value = figures.rate(&cell.measure(), stack)?;
        Some(Bar {
            name: stack.name(),
            value,
            text: format!("{value:.0}"),
            shade: match stack {
                stack if stack.is_ours() => Shade::Ours,
                Stack::Plain => Shade::Floor,
                _ => Shade::Peer,
            },
        })
    };
    let panel = |cell: &&Cell| {
        let bars = cell.stacks.iter().filter_map(|stack| bar(cell, *stack));
        (format!("{cell}: req/s"), bars.collect())
    };
    let panels: Vec<_> = figures.cells().iter().map(panel).collect();
    bars::draw(path, 2, &panels)
}
