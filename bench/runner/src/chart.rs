//! The chart: a panel for each measure, a bar for each stack.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Outcome;
use crate::figures::Figures;
use crate::plan::Stack;
use crate::table::number;

const COLUMNS: usize = 3;
const PANEL: (i32, i32) = (420, 190);
/// Left and right of a bar: the stack's name and the number.
const NAME_WIDTH: i32 = 80;
const NUMBER_WIDTH: i32 = 70;
const TITLE_HEIGHT: i32 = 34;
const BAR_HEIGHT: i32 = 20;
const BAR_DISTANCE: i32 = 28;

/// Draws the judged case of every measure.
pub(crate) fn draw(path: &Path, figures: &Figures) -> Outcome {
    let panels: Vec<(&str, &str)> = figures
        .cases
        .iter()
        .filter(|case| case.setting.is_none())
        .flat_map(|case| case.results.iter().copied())
        .collect();
    let rows = panels.len().div_ceil(COLUMNS);
    let size = (
        u32::try_from(PANEL.0).unwrap_or(0) * u32::try_from(COLUMNS).unwrap_or(0),
        u32::try_from(PANEL.1).unwrap_or(0) * u32::try_from(rows.max(1)).unwrap_or(1),
    );
    let area = SVGBackend::new(path, size).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    for ((measure, unit), area) in panels.iter().zip(area.split_evenly((rows.max(1), COLUMNS))) {
        let bars: Vec<_> = figures
            .entries
            .iter()
            .filter(|entry| entry.setting.is_none())
            .flat_map(|entry| entry.results().map(move |series| (entry.stack, series)))
            .filter(|(_, series)| series.name == *measure)
            .filter_map(|(stack, series)| Some((stack, series.median()?)))
            .collect();
        panel(&area, measure, unit, &bars).map_err(|error| failed(&error))?;
    }
    area.present().map_err(|error| failed(&error))
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    measure: &str,
    unit: &str,
    bars: &[(Stack, f64)],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let title = TextStyle::from(("sans-serif", 18).into_font());
    let unit = if unit == "1" {
        String::new()
    } else {
        format!(", {unit}")
    };
    area.draw(&Text::new(format!("{measure}{unit}"), (10, 10), title))?;
    let largest = bars
        .iter()
        .map(|(_, value)| *value)
        .fold(f64::MIN_POSITIVE, f64::max);
    let widest = f64::from(PANEL.0 - NAME_WIDTH - NUMBER_WIDTH - 20);
    let small = TextStyle::from(("sans-serif", 15).into_font());
    let right = small.pos(Pos::new(HPos::Right, VPos::Center));
    let left = small.pos(Pos::new(HPos::Left, VPos::Center));
    let mut top = TITLE_HEIGHT;
    for (stack, value) in bars {
        let middle = top + BAR_HEIGHT / 2;
        let end = NAME_WIDTH + (value / largest * widest) as i32;
        let colour = match stack {
            Stack::Towline => RGBColor(0x1b, 0x6c, 0xa8),
            Stack::Floor | Stack::Tls => RGBColor(0xc8, 0xc8, 0xc8),
            _ => RGBColor(0x8f, 0xa8, 0xb8),
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
        area.draw(&Text::new(number(*value), (end + 6, middle), left.clone()))?;
        top += BAR_DISTANCE;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
