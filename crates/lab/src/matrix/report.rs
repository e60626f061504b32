//! The table: one summary a row, and the same as text and as markdown.

use std::fmt::Write as _;

use super::{Line, Row, THINNING, Verdict};

/// Every line, and one summary a row.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each measure of each case, in the order of the plan.
    pub lines: Vec<Line>,
    /// One for each row, `thinning` last.
    pub rows: Vec<Summary>,
    /// Seeds played.
    pub seeds: u64,
}

/// One row, as its case nearest to failing.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The row.
    pub id: &'static str,
    /// Rate, round trip, buffer, time.
    pub setting: &'static str,
    /// What must be reached.
    pub mark: &'static str,
    /// The worst of its lines.
    pub worst: Line,
    /// How many lines the row has.
    pub lines: usize,
    /// How many of them reach their mark.
    pub reached: usize,
}

impl Report {
    /// Of these rows and their lines, each over so many seeds.
    pub(super) fn new<'r>(
        rows: impl Iterator<Item = &'r Row>,
        lines: Vec<Line>,
        seeds: u64,
    ) -> Self {
        let plain = |id| lines.iter().filter(move |l| l.row == id && !l.thinning);
        let thinned = lines.iter().filter(|line| line.thinning);
        let mut rows: Vec<Summary> = rows
            .filter_map(|row| Summary::of(row.id, row.setting, row.mark, plain(row.id)))
            .collect();
        rows.extend(Summary::of(
            THINNING,
            "every row again with ACK thinning on",
            "marks unchanged",
            thinned,
        ));
        Self { rows, lines, seeds }
    }

    /// Whether every row is reached, or listed as open.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.verdict() <= Verdict::Open)
    }

    /// How many rows have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.verdict() == verdict).count()
    }

    /// A line for people: how many rows passed, are open, failed and are missing.
    pub fn verdict_text(&self) -> String {
        let passed = self.count(Verdict::Pass) + self.count(Verdict::Stale);
        let mut text = format!("{} of {} rows pass", passed, self.rows.len());
        for (verdict, word) in [
            (Verdict::Open, "open"),
            (Verdict::Fail, "FAIL"),
            (Verdict::Missing, "missing"),
        ] {
            let count = self.count(verdict);
            if count > 0 {
                let _ = write!(text, ", {count} {word}");
            }
        }
        let _ = write!(text, "; seeds 1 to {}", self.seeds);
        text
    }

    /// The table for a terminal: a block a row, or with `all` a further line for each case.
    pub fn text(&self, all: bool) -> String {
        const WIDTHS: [usize; 7] = [14, 36, 34, 30, 11, 11, 8];
        let mut text = String::new();
        let head = [
            "row",
            "setting",
            "mark",
            "nearest to it",
            "median",
            "worst",
            "verdict",
        ];
        block(&mut text, &WIDTHS, &head.map(str::to_owned));
        let rule: usize = WIDTHS.iter().sum::<usize>() + 2 * (WIDTHS.len() - 1);
        let _ = writeln!(text, "{}", "─".repeat(rule));
        for row in &self.rows {
            let line = &row.worst;
            let cells = [
                row.id.to_owned(),
                row.setting.to_owned(),
                row.mark.to_owned(),
                row.place(),
                line.show_median(),
                line.show_worst(),
                line.verdict.to_string(),
            ];
            block(&mut text, &WIDTHS, &cells);
            for line in self.lines.iter().filter(|line| all && row.has(line)) {
                let cells = [
                    String::new(),
                    format!("· {}", name(line, row.id == THINNING)),
                    format!("{} {}", line.measure.name, line.measure.mark_text()),
                    line.note.clone().unwrap_or_default(),
                    line.show_median(),
                    line.show_worst(),
                    line.verdict.to_string(),
                ];
                block(&mut text, &WIDTHS, &cells);
            }
        }
        text
    }

    /// The table for a document: the rows, then every line with its value for seed 1.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "| row | setting | mark | nearest to it | median | worst | reached | verdict |\n\
             |---|---|---|---|---|---|---|---|"
        );
        for row in &self.rows {
            let line = &row.worst;
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} of {} | {} |",
                row.id,
                row.setting,
                row.mark,
                row.place(),
                line.show_median(),
                line.show_worst(),
                row.reached,
                row.lines,
                line.verdict
            );
        }
        let _ = writeln!(
            text,
            "\n## Every case\n\n\
             | row | case | ACKs | measure | mark | seed 1 | median | worst | verdict |\n\
             |---|---|---|---|---|---|---|---|---|"
        );
        for line in &self.lines {
            let _ = writeln!(text, "{}", line.markdown());
        }
        text
    }
}

impl Summary {
    pub(super) fn of<'a>(
        id: &'static str,
        setting: &'static str,
        mark: &'static str,
        lines: impl Iterator<Item = &'a Line>,
    ) -> Option<Self> {
        let lines: Vec<&Line> = lines.collect();
        let worst = lines.iter().copied().min_by(|a, b| {
            let severity = b.verdict.cmp(&a.verdict);
            severity.then(a.margin().total_cmp(&b.margin()))
        })?;
        Some(Self {
            id,
            setting,
            mark,
            worst: worst.clone(),
            lines: lines.len(),
            reached: lines.iter().filter(|l| l.verdict <= Verdict::Stale).count(),
        })
    }

    /// The row's verdict: the worst of its lines'.
    pub fn verdict(&self) -> Verdict {
        self.worst.verdict
    }

    /// Which case is nearest to failing, and what is measured there.
    pub fn place(&self) -> String {
        let line = &self.worst;
        let name = name(line, self.id == THINNING);
        match &line.note {
            Some(note) => format!("{name}: {note}"),
            None => format!("{name}: {} {}", line.measure.name, line.measure.mark_text()),
        }
    }

    fn has(&self, line: &Line) -> bool {
        match self.id {
            THINNING => line.thinning,
            id => line.row == id && !line.thinning,
        }
    }
}

fn name(line: &Line, with_row: bool) -> String {
    match with_row {
        true => format!("{}, {}", line.row, line.case),
        false => line.case.clone(),
    }
}

impl Line {
    /// The median with its unit.
    pub fn show_median(&self) -> String {
        self.measure.unit.show(self.median())
    }

    /// The worst value with its unit.
    pub fn show_worst(&self) -> String {
        self.measure.unit.show(self.worst())
    }

    /// The value of seed 1 with its unit.
    pub fn show_first(&self) -> String {
        let first = self.values.first().copied().unwrap_or(f64::NAN);
        self.measure.unit.show(first)
    }

    /// What tells this line from all others, as the start of its line in the table.
    pub fn markdown_key(&self) -> String {
        format!(
            "| {} | {} | {} | {} | {} |",
            self.row,
            self.case,
            match self.thinning {
                true => "thinned",
                false => "all",
            },
            self.measure.name,
            self.measure.mark_text(),
        )
    }

    /// Its line in the table of every case.
    fn markdown(&self) -> String {
        format!(
            "{} {} | {} | {} | {} |",
            self.markdown_key(),
            self.show_first(),
            self.show_median(),
            self.show_worst(),
            self.verdict,
        )
    }
}

/// Writes cells side by side, each wrapped to its width.
fn block(text: &mut String, widths: &[usize], cells: &[String]) {
    let wrapped: Vec<Vec<String>> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| wrap(cell, *width))
        .collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let mut whole = String::new();
        for (cell, width) in wrapped.iter().zip(widths) {
            let part = cell.get(line).map_or("", String::as_str);
            let _ = write!(whole, "{part:<width$}  ");
        }
        let _ = writeln!(text, "{}", whole.trim_end());
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
