//! What the runs come to, and the table, in markdown, which a terminal shows well enough.

use std::fmt::Write as _;
use std::path::Path;

use bench_runner::Outcome;
use plotters::prelude::*;

use crate::trial::{Clients, Stack};

/// What the page says before the table.
pub(crate) const EXPLANATION: &str = "\
`towline relay --tun` between two network namespaces, fresh for every run, in real time; both ends of \
one stack with its defaults, packets of 1200 bytes, X25519, a P-256 certificate and full handshakes. \
*Outage*: 20 Mbit/s, 40 ms, 100 kB of queue; nothing passes either way for so many seconds in the \
middle of a download; seconds from the end of the outage to the first new data at the receiver. \
*Handshake*: 50 ms and 3 % random loss each way, eight at once; seconds from the start of the \
connection to the first byte of an answer.";

/// Everything that was measured, seconds.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    outages: Vec<(Stack, u32, f64)>,
    handshakes: Vec<(Stack, Clients, Vec<f64>)>,
    /// What is missing, and why.
    pub(crate) failures: Vec<String>,
}

impl Figures {
    pub(crate) fn add_outage(&mut self, stack: Stack, length: u32, seconds: f64) {
        self.outages.push((stack, length, seconds));
    }

    pub(crate) fn add_handshakes(&mut self, stack: Stack, clients: Clients, mut times: Vec<f64>) {
        times.sort_by(f64::total_cmp);
        self.handshakes.push((stack, clients, times));
    }

    pub(crate) fn fail(&mut self, what: String) {
        eprintln!("NOT MEASURED {what}");
        self.failures.push(what);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.outages.is_empty() && self.handshakes.is_empty()
    }

    fn lengths(&self) -> Vec<u32> {
        let mut lengths: Vec<u32> = self.outages.iter().map(|(_, length, _)| *length).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// Sorted times after outages of `length`, or after all.
    fn after(&self, stack: Stack, length: Option<u32>) -> Vec<f64> {
        let of = self.outages.iter().filter(|(whose, long, _)| {
            *whose == stack && length.is_none_or(|length| length == *long)
        });
        let mut times: Vec<f64> = of.map(|(_, _, seconds)| *seconds).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// The value that a share `p` of the sorted times does not exceed.
fn quantile(times: &[f64], p: f64) -> Option<f64> {
    let rank = (p * times.len() as f64).ceil() as usize;
    times.get(rank.clamp(1, times.len().max(1)) - 1).copied()
}

fn shown(seconds: Option<f64>) -> String {
    seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.3}"))
}

/// Median, least and largest.
fn spread(times: &[f64]) -> String {
    match (times.first(), times.last()) {
        (Some(least), Some(most)) if times.len() > 1 => {
            format!("{} ({least:.3}–{most:.3})", shown(quantile(times, 0.5)))
        }
        _ => shown(quantile(times, 0.5)),
    }
}

/// Both tables.
pub(crate) fn all(figures: &Figures) -> String {
    let mut text = "| outage | towline, s until data flows | quinn |\n|---|---|---|\n".to_owned();
    let lengths = figures.lengths();
    let rows = lengths.iter().map(|length| Some(*length)).chain([None]);
    for length in rows {
        let name = length.map_or("all, median".to_owned(), |length| format!("{length} s"));
        let cells = Stack::ALL.map(|stack| spread(&figures.after(stack, length)));
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text += "\n| handshakes at 3 % loss | stack | count | first byte p50, s | p95 | worst | over 1 s |\n\
             |---|---|---|---|---|---|---|\n";
    for (stack, clients, times) in &figures.handshakes {
        let late = times.iter().filter(|seconds| **seconds > 1.0).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {late} |",
            clients.name(),
            stack.name(),
            times.len(),
            shown(quantile(times, 0.5)),
            shown(quantile(times, 0.95)),
            shown(times.last().copied()),
        );
    }
    for why in &figures.failures {
        let _ = writeln!(text, "\nNOT MEASURED {why}");
    }
    text
}

/// The share of handshakes that had their first byte by a time.
pub(crate) fn draw(figures: &Figures, path: &Path) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let most = figures
        .handshakes
        .iter()
        .filter_map(|(_, _, times)| times.last());
    let most = most.fold(0.5_f64, |most, seconds| most.max(*seconds));
    let area = SVGBackend::new(path, (900, 420)).into_drawing_area();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption("share of handshakes with a first byte", ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..most, 0.0..1.0)
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .x_desc("s")
        .draw()
        .map_err(|error| failed(&error))?;
    for (place, (stack, clients, times)) in figures.handshakes.iter().enumerate() {
        let count = times.len().max(1) as f64;
        let points = (1..)
            .zip(times)
            .map(|(n, seconds)| (*seconds, f64::from(n) / count));
        let points: Vec<(f64, f64)> = points.collect();
        let colour = Palette99::pick(place).to_rgba();
        chart
            .draw_series([PathElement::new(points, colour.stroke_width(2))])
            .map_err(|error| failed(&error))?
            .label(format!("{}, {}", stack.name(), clients.name()))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .draw()
        .map_err(|error| failed(&error))?;
    area.present().map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let times = [0.1, 0.2, 0.3, 0.4];
        assert_eq!(quantile(&times, 0.5), Some(0.2));
        assert_eq!(quantile(&times, 0.95), Some(0.4));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_row_has_the_median_and_its_range_and_dashes_for_what_is_missing() {
        let mut figures = Figures::default();
        for seconds in [0.3, 0.1, 0.2] {
            figures.add_outage(Stack::Towline, 5, seconds);
        }
        figures.add_handshakes(Stack::Quinn, Clients::Strangers, vec![1.5, 0.1]);
        let text = all(&figures);
        assert!(text.contains("| 5 s | 0.200 (0.100–0.300) | – |"), "{text}");
        assert!(
            text.contains("| an endpoint each | quinn | 2 | 0.100 | 1.500 | 1.500 | 1 |"),
            "{text}"
        );
    }
}
