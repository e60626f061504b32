//! The marks that ours is held against, and whether the peers came out as peers do.
//!
//! Ratios are those of medians, so that whoever has the results can work them out again.

use std::ops::RangeInclusive;

use bench_runner::verdict::Bound::{self, AtLeast, AtMost};
use bench_runner::verdict::{Judgement, Scope, Verdict};

use crate::plan::Figures;
use crate::plan::Stack::{self, Floor, Quinn, S2nQuic, Tls, Towline};

/// A run counts only if the worse sides of these stacks, divided by the floor's, lie here: what the
/// processors of `bench/README.md` gave, and a twentieth more.
const PEERS: &[(Stack, RangeInclusive<f64>)] = &[(Quinn, 2.4..=3.6), (S2nQuic, 1.8..=3.1)];
const BULK: &str = "bulk_s_per_gb";
const BULK_DEFAULT: &str = "bulk_default_s_per_gb";

/// What is held against a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    Ours,
    OursBy(Stack),
    ByOurs(Stack),
}

struct Mark {
    measure: &'static str,
    setting: Option<&'static str>,
    quantity: Quantity,
    first: Option<Bound>,
    goal: Option<Bound>,
}

const fn mark(
    measure: &'static str,
    quantity: Quantity,
    first: Option<Bound>,
    goal: Option<Bound>,
) -> Mark {
    Mark {
        measure,
        setting: None,
        quantity,
        first,
        goal,
    }
}

use Quantity::{ByOurs, Ours, OursBy};

/// No allocation in steady state: fewer than one in two thousand packets, so that a buffer that
/// doubles once in a transfer is no failure and one in a packet is.
const NONE: Bound = AtMost(0.0005);

const MARKS: &[Mark] = &[
    mark(BULK, ByOurs(Quinn), Some(AtLeast(1.35)), Some(AtLeast(2.2))),
    mark(BULK, OursBy(Floor), None, Some(AtMost(1.3))),
    mark(
        BULK_DEFAULT,
        ByOurs(Quinn),
        Some(AtLeast(1.7)),
        Some(AtLeast(2.2)),
    ),
    mark(
        BULK_DEFAULT,
        ByOurs(S2nQuic),
        Some(AtLeast(1.3)),
        Some(AtLeast(1.7)),
    ),
    mark(
        "handshakes_per_s",
        OursBy(Quinn),
        Some(AtLeast(1.15)),
        Some(AtLeast(1.6)),
    ),
    mark(
        "handshake_server_us",
        OursBy(Quinn),
        Some(AtMost(0.93)),
        Some(AtMost(0.55)),
    ),
    mark("echo64_p50_us", OursBy(Quinn), Some(AtMost(1.05)), None),
    mark("echo64_p99_us", OursBy(Quinn), Some(AtMost(1.05)), None),
    mark("echo64_p50_us", OursBy(Tls), None, Some(AtMost(1.0))),
    mark("echo64_p99_us", OursBy(Tls), None, Some(AtMost(1.0))),
    mark("idle_kib", Ours, Some(AtMost(15.0)), Some(AtMost(8.0))),
    Mark {
        setting: Some("20000 streams"),
        ..mark("idle_kib", Ours, Some(AtMost(15.0)), Some(AtMost(8.0)))
    },
    mark("allocs_per_packet", Ours, Some(NONE), Some(NONE)),
    mark(
        "datagrams_per_s",
        OursBy(Quinn),
        Some(AtLeast(1.0)),
        Some(AtLeast(1.5)),
    ),
    Mark {
        setting: Some("defaults"),
        ..mark(
            "datagrams_per_s",
            OursBy(Quinn),
            Some(AtLeast(1.0)),
            Some(AtLeast(1.5)),
        )
    },
    mark(
        "many_us_per_packet",
        OursBy(Quinn),
        Some(AtMost(0.9)),
        Some(AtMost(0.6)),
    ),
];

impl Mark {
    fn judge(&self, figures: &Figures) -> Judgement {
        let of = |stack| figures.median(self.measure, self.setting, stack);
        let ratio = |above: Stack, below: Stack| Some(of(above)? / of(below)?);
        let (quantity, value) = match self.quantity {
            Ours => ("towline".to_owned(), of(Towline)),
            OursBy(peer) => (format!("towline ÷ {peer}"), ratio(Towline, peer)),
            ByOurs(peer) => (format!("{peer} ÷ towline"), ratio(peer, Towline)),
        };
        let bounds = [self.first, self.goal];
        let mut judgement = Judgement::new(self.measure, self.setting, quantity, value, bounds);
        if self.first == Some(NONE) {
            judgement.first = Some("0".to_owned());
        }
        if self.goal == Some(NONE) {
            judgement.goal = Some("0".to_owned());
        }
        judgement
    }
}

/// Each peer divided by the floor, and what is expected.
pub(crate) fn against_the_floor(
    figures: &Figures,
) -> Vec<(Stack, Option<f64>, RangeInclusive<f64>)> {
    let of = |stack| figures.median(BULK, None, stack);
    PEERS
        .iter()
        .map(|(peer, range)| {
            let ratio = of(*peer).zip(of(Floor)).map(|(peer, floor)| peer / floor);
            (*peer, ratio, range.clone())
        })
        .collect()
}

/// What a run proves.
pub(crate) fn verdict(figures: &Figures, scope: Scope) -> Verdict {
    let mut peers = against_the_floor(figures).into_iter();
    let strange = peers.find_map(|(peer, ratio, range)| match ratio {
        None => Some(format!("{peer} ÷ floor was not measured")),
        Some(ratio) if !range.contains(&ratio) => Some(format!(
            "{peer} ÷ floor is {ratio:.2}, not {} to {}",
            range.start(),
            range.end()
        )),
        Some(_) => None,
    });
    let judgements = MARKS.iter().map(|mark| mark.judge(figures)).collect();
    Verdict::new("bench-quic", scope, strange, judgements)
}

#[cfg(test)]
mod tests;
