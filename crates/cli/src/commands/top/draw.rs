//! Where things stand on a screen of any size, down to none: what matters less gives way.
//!
//! 1. The head (tabs, the state, the quality) and the warnings take their lines.
//! 2. Then come the facts, then the tables.
//! 3. The charts get what is left, if that is enough.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget};

use super::state::State;
use super::view::{Fact, Grid, Mark, Panel, View, view};

/// Lines of a chart, its title included: at least, and where there is no terminal to fill.
const CHART: u16 = 3;
const PRINTED_CHART: u16 = 4;
/// Columns of the quality at the right of the head.
const QUALITY: u16 = 25;
/// A screen that is narrower has no place for charts.
const CHARTS_FROM: u16 = 40;

/// From nothing to a whole cell.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How it is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// They only repeat what words say.
    pub(super) colours: bool,
    /// The line that names the keys.
    pub(super) keys: bool,
}

impl Look {
    fn colour(self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn mark(self, mark: Mark) -> Style {
        match mark {
            Mark::Good => self.colour(Color::Green),
            Mark::Bad => self.colour(Color::Red),
            Mark::Unknown => Style::new(),
        }
        .add_modifier(Modifier::BOLD)
    }
}

/// Draws what is known.
pub(super) fn draw(state: &State, look: Look, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(buffer.area);
    if area.is_empty() {
        return;
    }
    let mut rest = area;
    if state.links.len() > 1 {
        tabs(state, look, take_top(&mut rest, 1), buffer);
    }
    if look.keys && area.height > 4 {
        let keys = keys(state);
        Line::styled(keys, Style::new().add_modifier(Modifier::DIM))
            .render(take_bottom(&mut rest, 1), buffer);
    }
    match state.chosen() {
        Some(link) => link_view(&view(state, link), look, rest, buffer),
        None if state.has_asked => {
            Line::raw(" no link of this user runs; one that starts is shown").render(rest, buffer);
        }
        None => {}
    }
}

/// The lines that the chosen link fills where nothing has to give way.
pub(super) fn height(state: &State, width: u16) -> u16 {
    let Some(link) = state.chosen() else {
        return 1;
    };
    let view = view(state, link);
    let charts = PRINTED_CHART * view.charts.len().div_ceil(2) as u16;
    let warnings: usize = view
        .warnings
        .iter()
        .map(|text| wrap(text, width).len())
        .sum();
    let tables: u16 = view.tables.iter().map(Grid::height).sum();
    let head = usize::from(state.links.len() > 1) + head(&view, width).len();
    charts
        .saturating_add(tables)
        .saturating_add((head + warnings + view.facts.len()).min(1_000) as u16)
}

/// What is on the screen, as lines of text.
pub(super) fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y| {
        let mut line = String::new();
        let mut x = area.left();
        while let Some(cell) = buffer.cell((x, y)) {
            line.push_str(cell.symbol());
            // The cell behind a wide letter is covered by it.
            x += (Span::raw(cell.symbol()).width() as u16).max(1);
        }
        line.trim_end().to_owned()
    };
    (area.top()..area.bottom()).map(line).collect()
}

fn keys(state: &State) -> String {
    let is_shore = state.chosen().is_some_and(|link| link.is_shore());
    let mut keys = " q quits".to_owned();
    if state.links.len() > 1 {
        keys += "   Tab, ← → another link";
    }
    if is_shore {
        keys += "   ↑ ↓ more senders";
    }
    keys + "   charts: the last 2 minutes"
}

fn tabs(state: &State, look: Look, area: Rect, buffer: &mut Buffer) {
    let mut spans = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (at, link) in state.links.iter().enumerate() {
        let mut name = link.name().to_owned();
        if link.gone.is_some() {
            name += " (gone)";
        }
        let is_chosen = at == state.chosen;
        // Brackets, for those who see no styles.
        let span = match is_chosen {
            true => Span::styled(
                format!("[{name}]"),
                look.colour(Color::Cyan).add_modifier(Modifier::BOLD),
            ),
            false => Span::raw(format!(" {name} ")),
        };
        let width = span.width();
        if at <= state.chosen {
            (start, end) = (end, end + width);
        }
        spans.push(span);
    }
    // The chosen one is always to be seen.
    let width = usize::from(area.width);
    let hidden = end.saturating_sub(width).min(start);
    Paragraph::new(Line::from(spans))
        .scroll((0, hidden.min(usize::from(u16::MAX)) as u16))
        .render(area, buffer);
}

fn link_view(view: &View<'_>, look: Look, area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    let mut head = head(view, area.width);
    head.truncate(3);
    let head_area = take_top(&mut rest, head.len() as u16);
    draw_head(view, &head, look, head_area, buffer);

    let warnings: Vec<String> = view
        .warnings
        .iter()
        .flat_map(|text| wrap(text, area.width))
        .collect();
    // However many there are, half of the screen is for the rest.
    let most = (rest.height / 2).max(1);
    let warnings_area = take_top(&mut rest, (warnings.len() as u16).min(most));
    let style = look.colour(Color::Yellow).add_modifier(Modifier::BOLD);
    let warnings: Vec<Line<'_>> = warnings.into_iter().map(Line::from).collect();
    Paragraph::new(warnings)
        .style(style)
        .render(warnings_area, buffer);

    // Places from the bottom up, so that the charts get what is between.
    let facts = (view.facts.len() as u16).min(rest.height);
    let mut below = rest.height - facts;
    let mut tables = Vec::new();
    for (at, table) in view.tables.iter().enumerate().rev() {
        // Each one that is still to come has a few lines for sure.
        let most = below.saturating_sub(4 * at as u16);
        let lines = table.height().min(most);
        tables.push((table, lines));
        below -= lines;
    }
    for (table, lines) in tables {
        grid(table, look, take_bottom(&mut rest, lines), buffer);
    }
    for (at, fact) in view.facts.iter().enumerate().rev() {
        if at < usize::from(facts) {
            draw_fact(fact, take_bottom(&mut rest, 1), buffer);
        }
    }
    charts(&view.charts, look, rest, buffer);
}

/// The name and the state, in lines beside the quality.
fn head(view: &View<'_>, width: u16) -> Vec<String> {
    let taken = match view.quality {
        Some(_) if width >= CHARTS_FROM => QUALITY,
        _ => 0,
    };
    wrap(&format!("{}  {}", view.name, view.state), width - taken)
}

fn draw_head(view: &View<'_>, head: &[String], look: Look, area: Rect, buffer: &mut Buffer) {
    let lines: Vec<Line<'_>> = head.iter().map(|line| Line::raw(line.as_str())).collect();
    Paragraph::new(lines)
        .style(look.mark(view.mark))
        .render(area, buffer);
    if let Some(quality) = view.quality
        && area.width >= CHARTS_FROM
    {
        let text = match quality {
            Some(quality) => format!("quality {quality:>3.0} {} ", bar(quality / 100.0, 11)),
            None => "quality   - ".to_owned(),
        };
        let first = Rect { height: 1, ..area };
        Line::raw(text)
            .alignment(Alignment::Right)
            .render(first, buffer);
    }
}

fn draw_fact(fact: &Fact, area: Rect, buffer: &mut Buffer) {
    let mut text = format!(" {:<9}{}", fact.label, fact.text);
    if let Some(share) = fact.share {
        text += &format!("  {}", bar(share, 20));
    }
    Line::raw(text).render(area, buffer);
}

impl Grid {
    /// Its title, its head and its rows.
    fn height(&self) -> u16 {
        match self.rows.len() {
            0 => 1,
            rows => (rows.min(1_000) + 2) as u16,
        }
    }
}

fn grid(grid: &Grid, look: Look, area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    title(&grid.title, "", take_top(&mut rest, 1), buffer);
    if grid.rows.is_empty() {
        return;
    }
    let mut rows = &grid.rows[grid.skip.min(grid.rows.len())..];
    let place = usize::from(rest.height.saturating_sub(1));
    if rows.len() > place {
        rows = &rows[..place.saturating_sub(1)];
        let below = grid.rows.len() - grid.skip - rows.len();
        Line::raw(format!(" … {below} more")).render(take_bottom(&mut rest, 1), buffer);
    }
    let is_number = |column: usize| grid.head[column].starts_with(' ');
    let width = |column: usize| {
        let cells = grid.rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| Span::raw(cell.as_str()).width());
        let head = grid.head[column].trim_start().len();
        let widest = cells.chain([head]).max().unwrap_or(0);
        // The first one is a name, which may be as long as somebody likes.
        widest.min(if column == 0 { 24 } else { 40 }) as u16
    };
    let cell = |column: usize, text: &str| {
        // One line, whatever is in it.
        let text = Text::from(Line::from(Span::raw(text.to_owned())));
        Cell::new(match is_number(column) {
            true => text.alignment(Alignment::Right),
            false => text,
        })
    };
    let head = grid.head.iter().enumerate();
    let head = Row::new(head.map(|(column, text)| cell(column, text.trim_start())))
        .style(Style::new().add_modifier(Modifier::DIM));
    let body = rows.iter().map(|row| {
        let cells = row.iter().enumerate();
        let row_of = Row::new(cells.map(|(column, text)| cell(column, text)));
        match row.iter().any(|cell| is_trouble(cell)) {
            true => row_of.style(look.colour(Color::Yellow).add_modifier(Modifier::BOLD)),
            false => row_of,
        }
    });
    let widths = (0..grid.head.len()).map(|column| Constraint::Length(width(column)));
    let inner = Rect {
        x: rest.x + 1.min(rest.width),
        width: rest.width.saturating_sub(1),
        ..rest
    };
    Table::new(body, widths)
        .header(head)
        .column_spacing(2)
        .render(inner, buffer);
}

/// The words that a table has in capitals.
fn is_trouble(cell: &str) -> bool {
    matches!(cell, "DOWN" | "ON HOLD" | "TROUBLE")
}

/// Two in a row, if there is place for a row at all.
fn charts(panels: &[Panel<'_>], look: Look, area: Rect, buffer: &mut Buffer) {
    let rows = panels.len().div_ceil(2) as u16;
    if rows == 0 || area.width < CHARTS_FROM || area.height < CHART {
        return;
    }
    // Of rows that find no place the last ones go.
    let rows = rows.min(area.height / CHART);
    let height = area.height / rows;
    for (at, row) in panels.chunks(2).take(usize::from(rows)).enumerate() {
        let width = area.width / row.len() as u16;
        for (column, panel) in row.iter().enumerate() {
            let place = Rect {
                x: area.x + width * column as u16,
                y: area.y + height * at as u16,
                width,
                height,
            };
            chart(panel, look, place, buffer);
        }
    }
}

fn chart(panel: &Panel<'_>, look: Look, area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    let title_area = take_top(&mut rest, 1);
    let now = panel.now;
    let columns = panel
        .chart
        .columns(now, usize::from(rest.width.saturating_sub(2)));
    let most = columns.iter().flatten().copied().fold(0.0, f64::max);
    let is_measured = columns.iter().any(Option::is_some);
    let scale = match is_measured {
        true => format!("most {}", (panel.unit)(most)),
        false => String::new(),
    };
    let name = format!("{} {}", panel.title, panel.value);
    title(&name, &scale, title_area, buffer);
    let style = look.colour(Color::Cyan);
    for (at, value) in columns.into_iter().enumerate() {
        // What was not measured stays empty; a zero is a line at the bottom.
        let Some(value) = value else { continue };
        let whole = f64::from(rest.height) * 8.0;
        let share = if most > 0.0 { value / most } else { 0.0 };
        let mut eighths = (share * whole).round().clamp(1.0, whole) as usize;
        for y in (rest.top()..rest.bottom()).rev() {
            let level = eighths.min(8);
            eighths -= level;
            if let Some(cell) = buffer.cell_mut((rest.x + 1 + at as u16, y))
                && level > 0
            {
                cell.set_char(LEVELS[level]).set_style(style);
            }
        }
    }
}

/// `─ left ───────── right ─`
fn title(left: &str, right: &str, area: Rect, buffer: &mut Buffer) {
    let rule = "─".repeat(usize::from(area.width));
    let dim = Style::new().add_modifier(Modifier::DIM);
    Line::styled(rule, dim).render(area, buffer);
    let width = usize::from(area.width);
    let bright = Style::new().remove_modifier(Modifier::DIM);
    let left = Line::styled(format!(" {left} "), bright);
    let right = Line::from(format!(" {right} "));
    let has_place = left.width() + right.width() + 4 <= width && right.width() > 2;
    if has_place {
        let x = area.right() - 1 - right.width() as u16;
        buffer.set_line(x, area.y, &right, right.width() as u16);
    }
    if area.width > 2 && area.height > 0 {
        buffer.set_line(area.x + 1, area.y, &left, area.width - 2);
    }
}

/// `███████░░░`
fn bar(share: f64, width: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    let full = full.min(width);
    "█".repeat(full) + &"░".repeat(width - full)
}

/// Lines of words, each with a space before it and of at most `width` letters.
fn wrap(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width).max(4);
    let mut lines = vec![String::new()];
    let mut taken = 0;
    let mut add = |piece: &str, lines: &mut Vec<String>| {
        let wide = Span::raw(piece).width();
        if taken + wide > width && taken > 1 {
            lines.push(String::new());
            taken = 0;
        }
        if let Some(line) = lines.last_mut() {
            let piece = if taken == 0 {
                piece.trim_start()
            } else {
                piece
            };
            let piece = if taken == 0 {
                format!(" {piece}")
            } else {
                piece.to_owned()
            };
            taken += Span::raw(piece.as_str()).width();
            line.push_str(&piece);
        }
    };
    for word in text.split_inclusive(' ') {
        match Span::raw(word).width() < width {
            true => add(word, &mut lines),
            // Longer than a line: letter by letter.
            false => word
                .chars()
                .for_each(|letter| add(letter.encode_utf8(&mut [0; 4]), &mut lines)),
        }
    }
    lines
}

/// Cuts so many lines off the top, or what there is.
fn take_top(rest: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(rest.height);
    let taken = Rect {
        height: lines,
        ..*rest
    };
    rest.y += lines;
    rest.height -= lines;
    taken
}

/// The same at the bottom.
fn take_bottom(rest: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(rest.height);
    rest.height -= lines;
    Rect {
        y: rest.y + rest.height,
        height: lines,
        ..*rest
    }
}
