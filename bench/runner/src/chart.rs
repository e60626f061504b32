//! The chart: a panel for each measure, a bar for each stack.

use std::path::Path;

use bench_runner::Outcome;
use bench_runner::bars::{self, Shade};

use crate::plan::{Figures, Stack};

/// Draws the judged case of every measure.
pub(crate) fn draw(path: &Path, figures: &Figures) -> Outcome {
    let panels = bars::panels(figures, |stack| match stack {
        Stack::Towline => Shade::Ours,
        Stack::Floor | Stack::Tls => Shade::Floor,
        _ => Shade::Peer,
    });
    bars::draw(path, 3, &panels)
}

#[cfg(test)]
mod tests;
