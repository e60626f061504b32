//! The pictures of docs/top.md, made of the same cells as the terminal's.
//!
//! `cargo test -p towline-cli pictures -- --ignored` writes them anew.

use std::fmt::Write as _;
use std::path::PathBuf;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::draw::{Look, draw};
use super::state::State;
use super::tests::{two_minutes_of_a_boat, two_minutes_of_a_shore};

/// A cell, in pixels.
const WIDE: f64 = 8.4;
const HIGH: f64 = 18.0;
const BORDER: f64 = 12.0;

fn path(name: &str) -> PathBuf {
    let cli = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    cli.join("../../docs/plots").join(name)
}

fn pictures() -> [(PathBuf, String); 2] {
    [
        ("top-boat.svg", two_minutes_of_a_boat()),
        ("top-shore.svg", two_minutes_of_a_shore()),
    ]
    .map(|(name, state)| (path(name), svg(&state)))
}

#[test]
#[ignore = "writes into docs"]
fn pictures_are_made_anew() {
    for (path, picture) in pictures() {
        std::fs::write(path, picture).expect("the picture is written");
    }
}

#[test]
fn pictures_in_the_docs_are_what_is_drawn_today() {
    for (path, picture) in pictures() {
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == picture,
            "{} is old: cargo test -p towline-cli pictures -- --ignored",
            path.display()
        );
    }
}

fn svg(state: &State) -> String {
    let area = Rect::new(0, 0, 96, 26);
    let mut buffer = Buffer::empty(area);
    let look = Look {
        colours: true,
        keys: true,
    };
    draw(state, look, area, &mut buffer);
    let (width, height) = (
        f64::from(area.width) * WIDE + 2.0 * BORDER,
        f64::from(area.height) * HIGH + 2.0 * BORDER,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            x += run(&buffer, x, y, &mut svg);
        }
    }
    svg + "</svg>\n"
}

/// Writes the cells from `x` on that look alike; how many they are.
fn run(buffer: &Buffer, x: u16, y: u16, svg: &mut String) -> u16 {
    let first = &buffer[(x, y)];
    let alike = |cell: &&Cell| {
        level(cell) == level(first)
            && (cell.symbol() == " ") == (first.symbol() == " ")
            && (cell.fg, cell.modifier) == (first.fg, first.modifier)
    };
    let cells: Vec<&Cell> = (x..buffer.area.width)
        .map(|x| &buffer[(x, y)])
        .take_while(alike)
        .collect();
    let count = cells.len() as u16;
    if first.symbol() == " " {
        return count;
    }
    let (left, top) = (BORDER + f64::from(x) * WIDE, BORDER + f64::from(y) * HIGH);
    let width = f64::from(count) * WIDE;
    let fill = match first.fg {
        Color::Green => "#7ec97e",
        Color::Red => "#f07a6e",
        Color::Yellow => "#e6c35c",
        Color::Cyan => "#6cb8d6",
        _ if first.modifier.contains(Modifier::DIM) => "#7d828c",
        _ => "#d8dade",
    };
    match level(first) {
        // Blocks as such: fonts leave gaps between them.
        Some((share, opacity)) => {
            let high = HIGH * share;
            let top = top + HIGH - high;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{top:.2}\" width=\"{width:.1}\" height=\"{high:.2}\" \
                 fill=\"{fill}\" opacity=\"{opacity}\" shape-rendering=\"crispEdges\"/>"
            );
        }
        None => {
            let text: String = cells.iter().map(|cell| cell.symbol()).collect();
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            let weight = match first.modifier.contains(Modifier::BOLD) {
                true => " font-weight=\"bold\"",
                false => "",
            };
            let base = top + HIGH * 0.75;
            let _ = writeln!(
                svg,
                "<text x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{width:.1}\" \
                 lengthAdjust=\"spacingAndGlyphs\" fill=\"{fill}\"{weight}>{text}</text>"
            );
        }
    }
    count
}

/// How much of a cell is full, and how dark.
fn level(cell: &Cell) -> Option<(f64, f64)> {
    let symbol = cell.symbol().chars().next()?;
    match symbol {
        '░' => Some((1.0, 0.2)),
        '▁'..='█' => Some((f64::from(u32::from(symbol) - 0x2580) / 8.0, 1.0)),
        _ => None,
    }
}
