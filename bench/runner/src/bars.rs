//! A chart of panels, each with a bar for every stack.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Outcome;
use crate::figures::{Case, Figures, Stack as _};
use crate::tables::number;

const PANEL_WIDTH: i32 = 460;
/// At least.
const PANEL_HEIGHT: i32 = 190;
/// Left and right of a bar: the stack's name, as wide as the longest of the chart, and the number.
const LEAST_NAME_WIDTH: i32 = 110;
const LETTER_WIDTH: i32 = 8;
const NUMBER_WIDTH: i32 = 80;
const TITLE_HEIGHT: i32 = 38;
const BAR_HEIGHT: i32 = 20;
const BAR_DISTANCE: i32 = 28;

/// Whose bar it is, by colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shade {
    /// Ours.
    Ours,
    /// What nobody can beat, or does less.
    Floor,
    /// A peer's.
    Peer,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The stack.
    pub name: &'static str,
    /// Its length.
    pub value: f64,
    /// What stands behind it.
    pub text: String,
    /// Its colour.
    pub shade: Shade,
}

/// A panel for each result of the cases without a setting, a bar for each stack that was measured.
pub fn panels<C: Case>(
    figures: &Figures<C>,
    shade: impl Fn(C::Stack) -> Shade,
) -> Vec<(String, Vec<Bar>)> {
    let judged = figures.cases.iter().filter(|case| case.setting().is_none());
    let measures = judged.flat_map(|case| case.results().iter().copied());
    let bars = |measure: &str| -> Vec<Bar> {
        let entries = figures.entries.iter();
        entries
            .filter(|entry| entry.setting.is_none())
            .flat_map(|entry| entry.results().map(move |series| (entry.stack, series)))
            .filter(|(_, series)| series.name == measure)
            .filter_map(|(stack, series)| Some((stack, series.median()?)))
            .map(|(stack, value)| Bar {
                name: stack.name(),
                value,
                text: number(value),
                shade: shade(stack),
            })
            .collect()
    };
    measures
        .map(|(measure, unit)| {
            let title = match unit {
                "1" => measure.to_owned(),
                unit => format!("{measure}, {unit}"),
            };
            (title, bars(measure))
        })
        .collect()
}

/// Draws panels with their titles, so many beside each other, as SVG.
///
/// # Errors
/// When the file cannot be written.
pub fn draw(path: &Path, columns: usize, panels: &[(String, Vec<Bar>)]) -> Outcome {
    let rows = panels.len().div_ceil(columns).max(1);
    let pixels = |count: usize, each: i32| u32::try_from(count).unwrap_or(1) * each.unsigned_abs();
    let bars = || panels.iter().flat_map(|(_, bars)| bars);
    let most_bars = panels.iter().map(|(_, bars)| bars.len()).max();
    let letters = bars().map(|bar| bar.name.len()).max();
    let times = |count: Option<usize>, each: i32| {
        i32::try_from(count.unwrap_or(0)).map_or(0, |count| count * each)
    };
    let name_width = LEAST_NAME_WIDTH.max(times(letters, LETTER_WIDTH) + 12);
    let width = PANEL_WIDTH + name_width - LEAST_NAME_WIDTH;
    let height = PANEL_HEIGHT.max(TITLE_HEIGHT + times(most_bars, BAR_DISTANCE) + 12);
    let size = (pixels(columns, width), pixels(rows, height));
    let area = SVGBackend::new(path, size).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    for ((title, bars), area) in panels.iter().zip(area.split_evenly((rows, columns))) {
        panel(&area, title, bars, name_width).map_err(|error| failed(&error))?;
    }
    area.present().map_err(|error| failed(&error))
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    bars: &[Bar],
    name_width: i32,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let style = TextStyle::from(("sans-serif", 18).into_font());
    area.draw(&Text::new(title.to_owned(), (10, 10), style))?;
    let values = bars.iter().map(|bar| bar.value);
    let largest = values.fold(f64::MIN_POSITIVE, f64::max);
    let widest = f64::from(PANEL_WIDTH - LEAST_NAME_WIDTH - NUMBER_WIDTH - 20);
    let small = TextStyle::from(("sans-serif", 15).into_font());
    let right = small.pos(Pos::new(HPos::Right, VPos::Center));
    let left = small.pos(Pos::new(HPos::Left, VPos::Center));
    for (place, bar) in (0..).zip(bars) {
        let top = TITLE_HEIGHT + place * BAR_DISTANCE;
        let middle = top + BAR_HEIGHT / 2;
        let end = name_width + (bar.value / largest * widest) as i32;
        let colour = match bar.shade {
            Shade::Ours => RGBColor(0x1b, 0x6c, 0xa8),
            Shade::Floor => RGBColor(0xc8, 0xc8, 0xc8),
            Shade::Peer => RGBColor(0x8f, 0xa8, 0xb8),
        };
        area.draw(&Text::new(
            bar.name,
            (name_width - 8, middle),
            right.clone(),
        ))?;
        let corners = [(name_width, top), (end, top + BAR_HEIGHT)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        area.draw(&Text::new(
            bar.text.clone(),
            (end + 6, middle),
            left.clone(),
        ))?;
    }
    Ok(())
}
