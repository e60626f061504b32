//! The marks that ours is held against, and whether the peers came out as peers do.
//!
//! Ratios are those of medians, so that whoever has the results can work them out again.

use std::ops::RangeInclusive;
use std::process::ExitCode;

use crate::figures::Figures;
use crate::plan::Stack::{self, Floor, Quinn, S2nQuic, Tls, Towline};

/// A run counts only if the worse sides of these stacks, divided by the floor's, lie here: what the
/// processors of `bench/README.md` gave, and a twentieth more.
const PEERS: &[(Stack, RangeInclusive<f64>)] = &[(Quinn, 2.4..=3.6), (S2nQuic, 1.8..=3.1)];
const BULK: &str = "bulk_s_per_gb";
const BULK_DEFAULT: &str = "bulk_default_s_per_gb";

/// How much of the comparison was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of it: only this proves anything.
    Whole,
    /// Some cases, stacks or rounds.
    Part,
    /// Small sizes.
    Quick,
}

/// A limit on a number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            AtLeast(bound) => value >= bound,
            AtMost(bound) => value <= bound,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AtLeast(bound) => write!(f, "≥ {bound}"),
            AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

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

/// One mark, held against what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) measure: &'static str,
    pub(crate) setting: Option<&'static str>,
    pub(crate) quantity: String,
    /// `None` if something of it was not measured.
    pub(crate) value: Option<f64>,
    pub(crate) first: Option<String>,
    pub(crate) reached: bool,
    pub(crate) goal: Option<String>,
    pub(crate) goal_reached: bool,
}

impl Mark {
    fn judge(&self, figures: &Figures) -> Judgement {
        let of = |stack| figures.median(self.measure, self.setting, stack);
        let ratio = |above: Stack, below: Stack| Some(of(above)? / of(below)?);
        let (quantity, value) = match self.quantity {
            Ours => ("towline".to_owned(), of(Towline)),
            OursBy(peer) => (format!("towline ÷ {peer}"), ratio(Towline, peer)),
            ByOurs(peer) => (format!("{peer} ÷ towline"), ratio(peer, Towline)),
        };
        let holds = |bound: Option<Bound>| {
            bound
                .zip(value)
                .is_some_and(|(bound, value)| bound.holds(value))
        };
        let shown = |bound: Option<Bound>| {
            bound.map(|bound| {
                if bound == NONE {
                    "0".to_owned()
                } else {
                    bound.to_string()
                }
            })
        };
        Judgement {
            measure: self.measure,
            setting: self.setting,
            quantity,
            value,
            first: shown(self.first),
            reached: holds(self.first),
            goal: shown(self.goal),
            goal_reached: holds(self.goal),
        }
    }
}

/// What a run proves.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    scope: Scope,
    /// Why the run does not count, if it does not.
    pub(crate) invalid: Option<String>,
    /// Each peer divided by the floor, and what is expected.
    pub(crate) peers: Vec<(Stack, Option<f64>, RangeInclusive<f64>)>,
    pub(crate) judgements: Vec<Judgement>,
}

impl Verdict {
    pub(crate) fn of(figures: &Figures, scope: Scope) -> Self {
        let of = |stack| figures.median(BULK, None, stack);
        let peers: Vec<_> = PEERS
            .iter()
            .map(|(peer, range)| {
                let ratio = of(*peer).zip(of(Floor)).map(|(peer, floor)| peer / floor);
                (*peer, ratio, range.clone())
            })
            .collect();
        let strange = peers.iter().find_map(|(peer, ratio, range)| match ratio {
            None => Some(format!("{peer} ÷ floor was not measured")),
            Some(ratio) if !range.contains(ratio) => Some(format!(
                "{peer} ÷ floor is {ratio:.2}, not {} to {}",
                range.start(),
                range.end()
            )),
            Some(_) => None,
        });
        let invalid = match scope {
            Scope::Whole => strange,
            Scope::Part => Some("only a part of the comparison was run".to_owned()),
            Scope::Quick => Some("a quick run proves nothing".to_owned()),
        };
        Self {
            scope,
            invalid,
            peers,
            judgements: MARKS.iter().map(|mark| mark.judge(figures)).collect(),
        }
    }

    /// Marks that are not reached. What was not measured is not reached in a whole run.
    pub(crate) fn missed(&self) -> Vec<&Judgement> {
        let judged = |judgement: &&Judgement| match self.scope {
            Scope::Whole => true,
            Scope::Part => judgement.value.is_some(),
            Scope::Quick => false,
        };
        let judgements = self.judgements.iter().filter(judged);
        judgements
            .filter(|judgement| judgement.first.is_some() && !judgement.reached)
            .collect()
    }

    /// The closing line.
    pub(crate) fn line(&self) -> String {
        let missed: Vec<_> = self.missed().iter().map(|missed| missed.measure).collect();
        let marks = match (missed.as_slice(), self.scope) {
            (_, Scope::Quick) => "the marks were not judged".to_owned(),
            ([], Scope::Part) => "no mark that could be judged is missed".to_owned(),
            ([], Scope::Whole) => "all marks are reached".to_owned(),
            (missed, _) => format!("missed: {}", missed.join(", ")),
        };
        match &self.invalid {
            None => format!("bench-quic: valid; {marks}"),
            Some(reason) => format!("bench-quic: NOT VALID ({reason}); {marks}"),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        if self.scope == Scope::Whole && self.invalid.is_some() {
            3
        } else {
            u8::from(!self.missed().is_empty())
        }
    }
}

#[cfg(test)]
mod tests;
