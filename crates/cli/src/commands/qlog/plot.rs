//! Numbers over time to panels: rate, window and flight, round trip, losses.

use super::timeline::{Bin, Summary};
use crate::chart::{Axis, Chart, Line, Panel, Series};
use crate::units::counted;

/// Points of a line of sums, at least half as many where the log has them: more would be noise.
const POINTS: usize = 200;

const SENT: usize = 0;
const RECEIVED: usize = 1;
const WINDOW: usize = 2;
const IN_FLIGHT: usize = 3;
const SMOOTHED: usize = 4;
const LATEST: usize = 5;
const LOST: usize = 6;
const LEAST: usize = 7;
const NAMES: [&str; 8] = [
    "sent",
    "received",
    "congestion window",
    "bytes in flight",
    "smoothed",
    "latest",
    "lost",
    "least",
];

/// The plot of a log.
pub(super) fn chart(summary: &Summary) -> Chart {
    let (width, bins) = summary.bins();
    let (wide, groups) = grouped(width, bins);
    let sums = |series, of: &dyn Fn(&Bin) -> f64| Line {
        series: Some(series),
        points: (0_u32..)
            .zip(&groups)
            .map(|(number, bin)| ((f64::from(number) + 0.5) * wide, of(bin)))
            .collect(),
    };
    let values = |series, of: &dyn Fn(&Bin) -> Option<f64>| Line {
        series: Some(series),
        points: (0_u32..)
            .zip(bins)
            .filter_map(|(number, bin)| Some((f64::from(number) * width, of(bin)?)))
            .collect(),
    };
    let megabits = |bytes: u64| bytes as f64 * 8.0 / 1e6 / wide;
    let panels = vec![
        panel(
            "rate",
            "Mbit/s",
            vec![
                sums(SENT, &|bin| megabits(bin.sent)),
                sums(RECEIVED, &|bin| megabits(bin.received)),
            ],
        ),
        panel(
            "congestion window and bytes in flight",
            "kB",
            vec![
                values(IN_FLIGHT, &|bin| Some(bin.in_flight? / 1e3)),
                values(WINDOW, &|bin| Some(bin.window? / 1e3)),
            ],
        ),
        panel(
            "round trip",
            "ms",
            vec![
                values(LATEST, &|bin| bin.latest_rtt),
                values(SMOOTHED, &|bin| bin.smoothed_rtt),
                values(LEAST, &|bin| bin.min_rtt),
            ],
        ),
        panel(
            &format!("packets lost in each {:.0} ms", wide * 1e3),
            "",
            vec![sums(LOST, &|bin| bin.lost as f64)],
        ),
    ];
    Chart {
        title: format!("{} of {}", summary.role, summary.id),
        subtitle: format!(
            "{:.2} s, {} sent, {} received, {} lost",
            summary.seconds(),
            counted(summary.sent.packets, "packet"),
            summary.received.packets,
            summary.lost,
        ),
        seconds: summary.seconds(),
        series: NAMES
            .map(|name| Series {
                name: name.to_owned(),
                faint: false,
            })
            .into(),
        panels,
    }
}

fn panel(title: &str, unit: &str, lines: Vec<Line>) -> Panel {
    Panel {
        title: title.to_owned(),
        unit: unit.to_owned(),
        axis: Axis::Time,
        lines,
    }
}

/// Neighbouring intervals put together, so that there are [`POINTS`] at most; and their width.
fn grouped(width: f64, bins: &[Bin]) -> (f64, Vec<Bin>) {
    let size = bins.len().div_ceil(POINTS).max(1);
    let groups = bins.chunks(size).map(|group| {
        let mut all = Bin::default();
        for bin in group {
            all.join(bin);
        }
        all
    });
    (width * size as f64, groups.collect())
}
