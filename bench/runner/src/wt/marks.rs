//! The marks that ours is held against, and whether the peers came out as peers do.
//!
//! Ratios are those of medians, turned so that more is better for ours.

use bench_runner::verdict::Bound::{AtLeast, AtMost};
use bench_runner::verdict::{Judgement, Scope, Verdict};

use crate::plan::Stack::{Aioquic, Towline, Wtransport};
use crate::plan::{ALL_AT_ONCE, Figures, MANY_STREAMS};

/// A run counts only if wtransport uploads so many times as fast as aioquic.
const PEERS_APART: f64 = 25.0;
/// Ours by wtransport's: what every row has to reach, and where it is going.
const FIRST: f64 = 1.0;
const GOAL: f64 = 1.5;
/// "No more" of ours in another setting, where two equal things may differ by so much.
const NO_MORE: f64 = 1.05;

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
const UPLOAD: &str = "upload_mb_s";
/// What many permitted streams must not cost.
const PERMITTED: &[&str] = &["handshake_ms", "idle_kb"];

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
    let judgements = against_wtransport(figures).chain(many_streams(figures));
    Verdict::new("bench-wt", scope, strange, judgements.collect())
}

#[cfg(test)]
mod tests;
