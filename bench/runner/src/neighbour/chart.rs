//! The chart: a row for each case, on the left what each flow has of the link, on the right how
//! long packets wait, both over time. Of several rounds, the first.

use std::path::Path;

use bench_runner::Outcome;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figures::Figures;
use crate::plan::{Flow, Setting, Stack};
use crate::trial::Trial;

const ROW: (u32, u32) = (1100, 190);
/// Inside a panel.
const LEFT: i32 = 46;
const TOP: i32 = 44;
const RIGHT: i32 = 12;
const BOTTOM: i32 = 26;
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const LINE: u32 = 2;

/// A curve: its name, its colour, its points in seconds and the panel's unit.
struct Curve {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Draws the first run of every case that has one.
pub(crate) fn draw(path: &Path, figures: &Figures, setting: &Setting) -> Outcome {
    let rows: Vec<_> = figures
        .entries
        .iter()
        .filter_map(|entry| Some((entry.case.to_string(), entry.trials.first()?)))
        .collect();
    let count = rows.len().max(1);
    let height = ROW.1 * u32::try_from(count).unwrap_or(1);
    let area = SVGBackend::new(path, (ROW.0, height)).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    for ((case, trial), area) in rows.iter().zip(area.split_evenly((count, 1))) {
        let (left, right) = area.split_horizontally(ROW.0 / 2);
        let full = setting.full_queue() * 1e3;
        panel(
            &left,
            &format!("{case}: goodput, % of the link"),
            &shares(trial, setting),
            100.0,
            setting,
        )
        .and_then(|()| {
            panel(
                &right,
                "queue delay, ms",
                &[delay(trial)],
                full * 1.25,
                setting,
            )
        })
        .map_err(|error| failed(&error))?;
    }
    area.present().map_err(|error| failed(&error))
}

fn shares(trial: &Trial, setting: &Setting) -> Vec<Curve> {
    let curve = |(index, flow): (usize, &crate::trial::FlowResult)| Curve {
        name: flow.flow.to_string(),
        colour: colour(&flow.flow, index),
        points: flow
            .goodput
            .iter()
            .enumerate()
            .map(|(second, bits)| {
                let percent = bits * 100.0 / f64::from(setting.rate);
                (second as f64 + 0.5, percent)
            })
            .collect(),
    };
    trial.flows.iter().enumerate().map(curve).collect()
}

fn delay(trial: &Trial) -> Curve {
    let points = trial
        .link
        .iter()
        .filter(|sample| sample.at >= 0.0)
        .filter_map(|sample| Some((sample.at, sample.queue_delay? * 1e3)));
    Curve {
        name: String::new(),
        colour: RGBColor(0x55, 0x55, 0x55),
        points: points.collect(),
    }
}

/// Ours are blue; two flows of one stack differ in depth.
fn colour(flow: &Flow, index: usize) -> RGBColor {
    match (flow.stack, index) {
        (Stack::Towline, 0) => RGBColor(0x1b, 0x6c, 0xa8),
        (Stack::Towline, _) => RGBColor(0x6f, 0xb1, 0xdd),
        (Stack::Linux, 0) => RGBColor(0x9a, 0x34, 0x12),
        (Stack::Linux, _) => RGBColor(0xe0, 0x8a, 0x3c),
    }
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    curves: &[Curve],
    most: f64,
    setting: &Setting,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let (width, height) = area.dim_in_pixel();
    let (width, height) = (width as i32 - LEFT - RIGHT, height as i32 - TOP - BOTTOM);
    let seconds = f64::from(setting.seconds);
    let place = |(at, value): (f64, f64)| {
        let across = (at / seconds).clamp(0.0, 1.0) * f64::from(width);
        let up = (value / most).clamp(0.0, 1.0) * f64::from(height);
        (LEFT + across as i32, TOP + height - up as i32)
    };
    let font = |size: i32| TextStyle::from(("sans-serif", size).into_font());
    area.draw(&Text::new(title.to_owned(), (LEFT, 8), font(15)))?;

    let right = font(12).pos(Pos::new(HPos::Right, VPos::Center));
    let centre = font(12).pos(Pos::new(HPos::Center, VPos::Top));
    for step in 0..=4 {
        let value = most * f64::from(step) / 4.0;
        let (from, to) = (place((0.0, value)), place((seconds, value)));
        area.draw(&PathElement::new([from, to], GRID))?;
        area.draw(&Text::new(
            format!("{value:.0}"),
            (from.0 - 6, from.1),
            right.clone(),
        ))?;
    }
    for step in 0..=6 {
        let at = seconds * f64::from(step) / 6.0;
        let (x, y) = place((at, 0.0));
        area.draw(&Text::new(format!("{at:.0} s"), (x, y + 6), centre.clone()))?;
    }
    let mut x = LEFT;
    for curve in curves {
        let points: Vec<_> = curve.points.iter().map(|point| place(*point)).collect();
        area.draw(&PathElement::new(points, curve.colour.stroke_width(LINE)))?;
        if !curve.name.is_empty() {
            area.draw(&Text::new(
                curve.name.clone(),
                (x, 26),
                font(13).color(&curve.colour),
            ))?;
            x += 130;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
