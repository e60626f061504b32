//! Panels of lines under one another, as SVG. Knows pixels, ticks, colours and the legend, and
//! nothing of what the lines mean.
//!
//! Colours are those of Okabe and Ito (2008), told apart by colour-blind readers too; from the
//! eighth line on they return with dashes.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: i32 = 1000;
const LEFT: i32 = 84;
const LEGEND_WIDTH: i32 = 190;
const PLOT: (i32, i32) = (WIDTH - LEFT - LEGEND_WIDTH, 130);
const HEAD_HEIGHT: i32 = 64;
/// From the top of a panel to its plot: the title; and from its plot to the next panel: the ticks.
const ABOVE: i32 = 30;
const BELOW: i32 = 46;
const PANEL: i32 = ABOVE + PLOT.1 + BELOW;
const LEGEND_STEP: i32 = 20;
/// Characters of a name in the legend, and of the line under the title.
const NAME: usize = 20;
const SUBTITLE: usize = 130;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const QUIET_INK: RGBColor = RGBColor(0x55, 0x55, 0x55);
const FAINT: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);
/// A line that belongs to no series.
const COMMON: RGBColor = RGBColor(0x88, 0x88, 0x88);
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
];

/// A whole plot.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// Where the time axis ends.
    pub(crate) seconds: f64,
    /// What the legend lists.
    pub(crate) series: Vec<Series>,
    pub(crate) panels: Vec<Panel>,
}

/// One entry of the legend.
pub(crate) struct Series {
    pub(crate) name: String,
    /// It has several lines, drawn thin.
    pub(crate) faint: bool,
}

/// Lines over the same axes.
pub(crate) struct Panel {
    pub(crate) title: String,
    /// Of the vertical axis.
    pub(crate) unit: String,
    pub(crate) axis: Axis,
    pub(crate) lines: Vec<Line>,
}

/// The horizontal axis.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Axis {
    /// Seconds, the same for all panels.
    Time,
    /// As far as the lines go, in this unit.
    Value(&'static str),
}

/// A line through points of rising x.
pub(crate) struct Line {
    pub(crate) series: Option<usize>,
    pub(crate) points: Vec<(f64, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The plot as the text of an SVG file.
pub(crate) fn svg(chart: &Chart) -> Result<String, Box<dyn std::error::Error>> {
    let panels = i32::try_from(chart.panels.len())?;
    let entries = i32::try_from(chart.series.len())?;
    let height = (panels * PANEL).max(entries * LEGEND_STEP + ABOVE) + HEAD_HEIGHT + 8;
    let mut text = String::new();
    {
        let size = (u32::try_from(WIDTH)?, u32::try_from(height)?);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        let title = shortened(&chart.title, NAME * 3);
        area.draw(&Text::new(title, (LEFT, 14), style(20, &INK)))?;
        let subtitle = shortened(&chart.subtitle, SUBTITLE);
        area.draw(&Text::new(subtitle, (LEFT, 40), style(13, &QUIET_INK)))?;
        for (number, panel) in (0..).zip(&chart.panels) {
            draw_panel(&area, chart, panel, HEAD_HEIGHT + number * PANEL)?;
        }
        draw_legend(&area, chart)?;
        area.present()?;
    }
    Ok(text)
}

fn style(size: u32, colour: &RGBColor) -> TextStyle<'_> {
    TextStyle::from(("sans-serif", size).into_font()).color(colour)
}

fn anchored(size: u32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    style(size, &INK).pos(Pos::new(horizontal, vertical))
}

fn draw_panel(area: &Area<'_>, chart: &Chart, panel: &Panel, top: i32) -> Drawn {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let most = |value: fn(&(f64, f64)) -> f64| points().map(value).fold(0.0, f64::max);
    let y_ticks = Ticks::new(most(|point| point.1), 4);
    let (x_end, x_ticks) = match panel.axis {
        Axis::Time => (chart.seconds, Ticks::new(chart.seconds, 10)),
        Axis::Value(_) => {
            let ticks = Ticks::new(most(|point| point.0), 8);
            (ticks.end(), ticks)
        }
    };
    let frame = Frame {
        top: top + ABOVE,
        x_end: x_end.max(f64::MIN_POSITIVE),
        y_end: y_ticks.end(),
    };
    let unit = match panel.unit.as_str() {
        "" => String::new(),
        unit => format!(", {unit}"),
    };
    let title = format!("{}{unit}", panel.title);
    area.draw(&Text::new(title, (LEFT, top + 6), style(15, &INK)))?;

    let right_bottom = anchored(12, HPos::Right, VPos::Center);
    for value in y_ticks.values() {
        let y = frame.y(value);
        area.draw(&PathElement::new(
            vec![(LEFT, y), (LEFT + PLOT.0, y)],
            FAINT,
        ))?;
        area.draw(&Text::new(
            y_ticks.label(value),
            (LEFT - 8, y),
            right_bottom.clone(),
        ))?;
    }
    let bottom = frame.top + PLOT.1;
    let below = anchored(12, HPos::Center, VPos::Top);
    for value in x_ticks
        .values()
        .filter(|value| *value <= frame.x_end * 1.0001)
    {
        let x = frame.x(value);
        area.draw(&PathElement::new(
            vec![(x, bottom), (x, bottom + 4)],
            COMMON,
        ))?;
        area.draw(&Text::new(
            x_ticks.label(value),
            (x, bottom + 8),
            below.clone(),
        ))?;
    }
    let unit = match panel.axis {
        Axis::Time => "s",
        Axis::Value(unit) => unit,
    };
    // Between the axis and the legend, which may be longer than a panel.
    let beside = anchored(12, HPos::Left, VPos::Center);
    area.draw(&Text::new(unit, (LEFT + PLOT.0 + 6, bottom), beside))?;
    for line in &panel.lines {
        draw_line(area, chart, line, &frame)?;
    }
    area.draw(&PathElement::new(
        vec![(LEFT, frame.top), (LEFT, bottom), (LEFT + PLOT.0, bottom)],
        COMMON,
    ))?;
    Ok(())
}

fn draw_line(area: &Area<'_>, chart: &Chart, line: &Line, frame: &Frame) -> Drawn {
    let pixels = frame.pixels(&line.points);
    let Some(number) = line.series else {
        area.draw(&PathElement::new(pixels, COMMON.stroke_width(2)))?;
        return Ok(());
    };
    let is_faint = chart.series.get(number).is_some_and(|series| series.faint);
    stroke(area, number, is_faint, pixels)
}

fn stroke(area: &Area<'_>, number: usize, is_faint: bool, pixels: Vec<(i32, i32)>) -> Drawn {
    let colour = COLOURS[number % COLOURS.len()];
    let style = match is_faint {
        true => colour.mix(0.6).stroke_width(1),
        false => colour.stroke_width(2),
    };
    let dash = match number / COLOURS.len() {
        0 => f64::INFINITY,
        1 => 7.0,
        _ => 2.5,
    };
    for part in dashes(&pixels, dash) {
        area.draw(&PathElement::new(part, style))?;
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, chart: &Chart) -> Drawn {
    let left = LEFT + PLOT.0 + 24;
    let middle = anchored(13, HPos::Left, VPos::Center);
    for (number, series) in chart.series.iter().enumerate() {
        let y = HEAD_HEIGHT + ABOVE + 6 + i32::try_from(number)? * LEGEND_STEP;
        stroke(area, number, false, vec![(left, y), (left + 24, y)])?;
        let name = middle_out(&series.name, NAME);
        area.draw(&Text::new(name, (left + 32, y), middle.clone()))?;
    }
    Ok(())
}

/// Where a panel's values stand in pixels.
struct Frame {
    top: i32,
    x_end: f64,
    y_end: f64,
}

impl Frame {
    fn x(&self, value: f64) -> i32 {
        LEFT + pixels(value, self.x_end, PLOT.0)
    }

    fn y(&self, value: f64) -> i32 {
        self.top + PLOT.1 - pixels(value, self.y_end, PLOT.1)
    }

    /// The points as pixels; of many in one column, the first, both extremes and the last.
    fn pixels(&self, points: &[(f64, f64)]) -> Vec<(i32, i32)> {
        let all: Vec<(i32, i32)> = points
            .iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .map(|(x, y)| (self.x(*x), self.y(*y)))
            .collect();
        let mut drawn = Vec::new();
        for column in all.chunk_by(|a, b| a.0 == b.0) {
            let [first, .., last] = column else {
                drawn.extend(column);
                continue;
            };
            let heights = || column.iter().map(|pixel| pixel.1);
            let (low, high) = (heights().max(), heights().min());
            drawn.push(*first);
            drawn.extend(low.map(|y| (first.0, y)));
            drawn.extend(high.map(|y| (first.0, y)));
            drawn.push(*last);
        }
        drawn.dedup();
        drawn
    }
}

/// How far a value is along an axis of so many pixels; what lies outside is drawn at its end.
fn pixels(value: f64, end: f64, length: i32) -> i32 {
    ((value / end).clamp(0.0, 1.0) * f64::from(length)).round() as i32
}

/// Cuts a line into strokes as long as the gaps between them.
fn dashes(pixels: &[(i32, i32)], length: f64) -> Vec<Vec<(i32, i32)>> {
    if length.is_infinite() || pixels.len() < 2 {
        return vec![pixels.to_vec()];
    }
    let mut parts = Vec::new();
    let mut part = vec![pixels[0]];
    let (mut left, mut is_on) = (length, true);
    for pair in pixels.windows(2) {
        let [from, to] = [pair[0], pair[1]].map(|(x, y)| (f64::from(x), f64::from(y)));
        let whole = (to.0 - from.0).hypot(to.1 - from.1);
        let mut done = 0.0;
        while whole - done > left {
            done += left;
            let share = done / whole;
            let at = (
                (from.0 + (to.0 - from.0) * share).round() as i32,
                (from.1 + (to.1 - from.1) * share).round() as i32,
            );
            part.push(at);
            if is_on {
                parts.push(std::mem::take(&mut part));
            }
            part = vec![at];
            (left, is_on) = (length, !is_on);
        }
        left -= whole - done;
        part.push(pair[1]);
    }
    if is_on {
        parts.push(part);
    }
    parts
}

/// Round numbers along an axis that starts at 0.
struct Ticks {
    step: f64,
    count: u32,
}

impl Ticks {
    /// About `wanted` of them up to `most`.
    fn new(most: f64, wanted: u32) -> Self {
        // Below that the steps lose their precision, and it is nothing to look at.
        let most = if most.is_finite() && most >= 1e-9 {
            most
        } else {
            1.0
        };
        let rough = most / f64::from(wanted);
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|digit| digit * power)
            .into_iter()
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(power * 10.0);
        let count = (most / step - 1e-6).ceil().max(1.0) as u32;
        Self { step, count }
    }

    fn end(&self) -> f64 {
        self.step * f64::from(self.count)
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        (0..=self.count).map(|number| f64::from(number) * self.step)
    }

    fn label(&self, value: f64) -> String {
        let digits = (-self.step.log10()).ceil().clamp(0.0, 6.0) as usize;
        format!("{value:.digits$}")
    }
}

fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The ends of a long name say more than its middle.
fn middle_out(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let end = most / 2;
    let head = text.chars().take(most - end - 1);
    head.chain(['…'])
        .chain(text.chars().skip(count - end))
        .collect()
}

#[cfg(test)]
mod tests;
