//! The chart: a panel for each cell, a bar for each stack: requests a second.

use std::path::Path;

use bench_runner::Outcome;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figures::Figures;
use crate::plan::Stack;

const PANEL: (u32, u32) = (520, 190);
const COLUMNS: usize = 2;
/// Left and right of a bar: the stack's name and the number.
const NAME_WIDTH: i32 = 110;
const NUMBER_WIDTH: i32 = 80;
const TITLE_HEIGHT: i32 = 38;
const BAR_HEIGHT: i32 = 20;
const BAR_DISTANCE: i32 = 28;

/// Draws all cells.
pub(crate) fn draw(path: &Path, figures: &Figures) -> Outcome {
    let cells = figures.cells();
    let rows = cells.len().div_ceil(COLUMNS).max(1);
    let size = (
        PANEL.0 * COLUMNS as u32,
        PANEL.1 * u32::try_from(rows).unwrap_or(1),
    );
    let area = SVGBackend::new(path, size).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    for (cell, area) in cells.iter().zip(area.split_evenly((rows, COLUMNS))) {
        let rate = |stack| Some((stack, figures.rate(&cell.measure(), stack)?));
        let bars: Vec<_> = cell.stacks.iter().copied().filter_map(rate).collect();
        panel(&area, &format!("{cell}: req/s"), &bars).map_err(|error| failed(&error))?;
    }
    area.present().map_err(|error| failed(&error))
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    title: &str,
    bars: &[(Stack, f64)],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let style = TextStyle::from(("sans-serif", 18).into_font());
    area.draw(&Text::new(title.to_owned(), (10, 10), style))?;
    let largest = bars
        .iter()
        .fold(f64::MIN_POSITIVE, |most, bar| most.max(bar.1));
    let widest = f64::from(PANEL.0 as i32 - NAME_WIDTH - NUMBER_WIDTH - 20);
    let small = TextStyle::from(("sans-serif", 15).into_font());
    let right = small.pos(Pos::new(HPos::Right, VPos::Center));
    let left = small.pos(Pos::new(HPos::Left, VPos::Center));
    let mut top = TITLE_HEIGHT;
    for (stack, rate) in bars {
        let middle = top + BAR_HEIGHT / 2;
        let end = NAME_WIDTH + (rate / largest * widest) as i32;
        let colour = match stack {
            Stack::Towline | Stack::Proxy => RGBColor(0x1b, 0x6c, 0xa8),
            Stack::Plain => RGBColor(0xc8, 0xc8, 0xc8),
            Stack::Rustls | Stack::Stunnel => RGBColor(0x8f, 0xa8, 0xb8),
        };
        area.draw(&Text::new(
            stack.name(),
            (NAME_WIDTH - 8, middle),
            right.clone(),
        ))?;
        area.draw(&Rectangle::new(
            [(NAME_WIDTH, top), (end, top + BAR_HEIGHT)],
            colour.filled(),
        ))?;
        area.draw(&Text::new(
            format!("{rate:.0}"),
            (end + 6, middle),
            left.clone(),
        ))?;
        top += BAR_DISTANCE;
    }
    Ok(())
}
