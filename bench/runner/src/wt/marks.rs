//! The marks that ours, in Rust and in Python, are held against, and whether the peers came out as peers do.
//!
//! Ratios are those of medians, turned so that more is better for ours.

use bench_runner::verdict::Bound::{AtLeast, AtMost};
use bench_runner::verdict::{Judgement, Scope, Verdict};

use crate::plan::Stack::{Aioquic, Pywebtransport021, Towline, TowlinePython, Wtransport};
use crate::plan::{ALL_AT_ONCE, Figures, MANY_STREAMS, Stack};
use crate::trial::DELIVERED;

/// A run counts only if wtransport uploads so many times as fast as aioquic.
const PEERS_APART: f64 = 25.0;
/// Ours by wtransport's: what every row has to reach, and where it is going.
const FIRST: f64 = 1.0;
const GOAL: f64 = 1.5;
/// "No more" of ours in another setting, where two equal things may differ by so much.
const NO_MORE: f64 = 1.05;

/// pywebtransport 0.21.1 is itself only if it uploads so fast, MB/s: other work on the machine slows it tenfold.
const ITSELF: f64 = 150.0;

/// Of what is more better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

use Better::{Less, More};

/// Each held against wtransport's.
const ROWS: &[(&str, Option<&str>, Better)] = &[
    (UPLOAD, None, More),
    ("download_mb_s", None, More),
    ("duplex_mb_s", None, More),
    ("mux_mb_s", None, More),
    ("mux_mb_s", Some(ALL_AT_ONCE), More),
    ("handshake_ms", None, Less),
    ("connections_per_s", None, More),
    ("rr64_cold_ms", None, Less),
    ("rr1k_cold_ms", None, Less),
    ("rr64_ms", None, Less),
    ("rr1k_ms", None, Less),
    ("datagram_rtt_ms", None, Less),
    ("datagrams_per_s", None, More),
    ("idle_kb", None, Less),
];
pub(crate) const UPLOAD: &str = "upload_mb_s";
/// What many permitted streams must not cost.
const PERMITTED: &[&str] = &["handshake_ms", "idle_kb"];

/// What ours in Python is held against.
enum Beside {
    /// So many times as good as pywebtransport 0.21.1; the goal too.
    Pywebtransport(f64, f64),
    /// So many times as good as the best of the others in Python; the goal is a number.
    Best(f64, f64),
    /// Numbers.
    Itself(f64, f64),
}

/// Ours in Python, on uvloop.
const PYTHON_ROWS: &[(&str, Better, Beside)] = &[
    (UPLOAD, More, Beside::Pywebtransport(1.3, 2.5)),
    ("download_mb_s", More, Beside::Pywebtransport(1.3, 2.5)),
    ("duplex_mb_s", More, Beside::Pywebtransport(1.3, 2.5)),
    ("mux_mb_s", More, Beside::Pywebtransport(1.3, 3.0)),
    ("handshake_ms", Less, Beside::Best(1.0, 1.2)),
    ("connections_per_s", More, Beside::Best(1.2, 700.0)),
    ("rr64_cold_ms", Less, Beside::Best(1.0, 1.6)),
    ("rr1k_cold_ms", Less, Beside::Best(1.0, 1.6)),
    ("rr64_ms", Less, Beside::Itself(0.30, 0.15)),
    ("rr1k_ms", Less, Beside::Itself(0.30, 0.15)),
    ("datagram_rtt_ms", Less, Beside::Itself(0.17, 0.10)),
    (DATAGRAMS, More, Beside::Itself(100_000.0, 400_000.0)),
    ("idle_kb", Less, Beside::Itself(40.0, 25.0)),
];
const DATAGRAMS: &str = "datagrams_per_s";
/// Of the datagrams that ours in Python sends, those that must arrive, in a hundred.
const ARRIVE: f64 = 99.0;

/// Whether pywebtransport 0.21.1 came out as itself; `None` if it was not measured.
pub(crate) fn is_itself(figures: &Figures) -> Option<bool> {
    let upload = figures.median(UPLOAD, None, Pywebtransport021);
    upload.map(|upload| upload >= ITSELF)
}

fn python(figures: &Figures) -> Vec<Judgement> {
    let mut judgements = Vec::new();
    for (measure, better, beside) in PYTHON_ROWS {
        let of = |stack| figures.median(measure, None, stack);
        let ours = of(TowlinePython);
        let bound = |number| match better {
            More => AtLeast(number),
            Less => AtMost(number),
        };
        let mut judge = |quantity: String, value, bounds| {
            judgements.push(Judgement::new(measure, None, quantity, value, bounds));
        };
        let mut ratio = |name: &str, theirs: Option<f64>, bounds| {
            let value = ours.zip(theirs).map(|(ours, theirs)| match better {
                More => ours / theirs,
                Less => theirs / ours,
            });
            let quantity = match better {
                More => format!("{TowlinePython} ÷ {name}"),
                Less => format!("{name} ÷ {TowlinePython}"),
            };
            // A mark beside a peer that is not there judges nothing.
            let bounds = if theirs.is_some() { bounds } else { [None; 2] };
            judge(quantity, value, bounds);
        };
        match *beside {
            Beside::Pywebtransport(first, goal) => {
                // Slowed down, it is only shown.
                let counts = is_itself(figures) == Some(true);
                let bounds = [counts.then_some(AtLeast(first)), Some(AtLeast(goal))];
                ratio(
                    &Pywebtransport021.to_string(),
                    of(Pywebtransport021),
                    bounds,
                );
            }
            Beside::Best(first, goal) => {
                let peers = Stack::PYTHON
                    .iter()
                    .filter(|stack| **stack != TowlinePython);
                let best = peers.filter_map(|stack| of(*stack)).reduce(match better {
                    More => f64::max,
                    Less => f64::min,
                });
                ratio("best in Python", best, [Some(AtLeast(first)), None]);
                judge(TowlinePython.to_string(), ours, [None, Some(bound(goal))]);
            }
            Beside::Itself(first, goal) => {
                let bounds = [Some(bound(first)), Some(bound(goal))];
                judge(TowlinePython.to_string(), ours, bounds);
            }
        }
    }
    let mut entries = figures.entries.iter();
    let entry = entries.find(|entry| {
        let is_it = entry.stack == TowlinePython && entry.setting.is_none();
        is_it && entry.results().any(|series| series.name == DATAGRAMS)
    });
    let arrived = entry.and_then(|entry| {
        let mut details = entry.details();
        details.find(|series| series.name == DELIVERED)?.median()
    });
    let quantity = format!("{TowlinePython}, {DELIVERED}");
    let bounds = [Some(AtLeast(ARRIVE)), None];
    judgements.push(Judgement::new(DATAGRAMS, None, quantity, arrived, bounds));
    judgements
}

fn against_wtransport(figures: &Figures) -> impl Iterator<Item = Judgement> {
    ROWS.iter().map(|(measure, setting, better)| {
        let of = |stack| figures.median(measure, *setting, stack);
        let (above, below) = match better {
            More => (Towline, Wtransport),
            Less => (Wtransport, Towline),
        };
        let value = of(above).zip(of(below)).map(|(above, below)| above / below);
        let bounds = [Some(AtLeast(FIRST)), Some(AtLeast(GOAL))];
        let quantity = format!("{above} ÷ {below}");
        Judgement::new(measure, *setting, quantity, value, bounds)
    })
}

fn many_streams(figures: &Figures) -> impl Iterator<Item = Judgement> {
    PERMITTED.iter().map(|measure| {
        let of = |setting| figures.median(measure, setting, Towline);
        let value = of(Some(MANY_STREAMS)).zip(of(None));
        let value = value.map(|(many, few)| many / few);
        let bounds = [Some(AtMost(NO_MORE)), None];
        let quantity = "towline ÷ towline with 100".to_owned();
        Judgement::new(measure, Some(MANY_STREAMS), quantity, value, bounds)
    })
}

/// What the peers are to each other; `None` if that was not measured.
pub(crate) fn peers_apart(figures: &Figures) -> Option<f64> {
    let of = |stack| figures.median(UPLOAD, None, stack);
    Some(of(Wtransport)? / of(Aioquic)?)
}

/// What a run proves.
pub(crate) fn verdict(figures: &Figures, scope: Scope) -> Verdict {
    let strange = match peers_apart(figures) {
        None => Some("wtransport ÷ aioquic was not measured".to_owned()),
        Some(ratio) if ratio < PEERS_APART => Some(format!(
            "wtransport ÷ aioquic is {ratio:.1} in {UPLOAD}, not {PEERS_APART} or more"
        )),
        Some(_) => None,
    };
    let rust = against_wtransport(figures).chain(many_streams(figures));
    let judgements = rust.chain(python(figures)).collect();
    Verdict::new("bench-wt", scope, strange, judgements)
}

#[cfg(test)]
mod tests;
