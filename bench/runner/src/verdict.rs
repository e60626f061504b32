//! What a comparison proves: numbers held against marks, and whether the run counts.

use std::fmt;
use std::process::ExitCode;

/// How much of the comparison was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it: only this proves anything.
    Whole,
    /// Some cases, stacks or rounds.
    Part,
    /// Small sizes.
    Quick,
}

/// A limit on a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

/// One mark, held against what was measured.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The measure's name.
    pub measure: &'static str,
    /// Its setting.
    pub setting: Option<&'static str>,
    /// What of it, as "towline ÷ quinn".
    pub quantity: String,
    /// `None` if something of it was not measured.
    pub value: Option<f64>,
    /// The mark, in words; `None` where there is only a goal.
    pub first: Option<String>,
    /// Whether the mark is.
    pub reached: bool,
    /// Where it is going, in words.
    pub goal: Option<String>,
    /// Whether that is reached.
    pub goal_reached: bool,
}

impl Judgement {
    /// Holds `value` against the mark and the goal.
    pub fn new(
        measure: &'static str,
        setting: Option<&'static str>,
        quantity: String,
        value: Option<f64>,
        [first, goal]: [Option<Bound>; 2],
    ) -> Self {
        let holds = |bound: Option<Bound>| {
            bound
                .zip(value)
                .is_some_and(|(bound, value)| bound.holds(value))
        };
        Self {
            measure,
            setting,
            quantity,
            value,
            first: first.map(|bound| bound.to_string()),
            reached: holds(first),
            goal: goal.map(|bound| bound.to_string()),
            goal_reached: holds(goal),
        }
    }

    /// The measure and its setting.
    pub fn title(&self) -> String {
        match self.setting {
            Some(setting) => format!("{} ({setting})", self.measure),
            None => self.measure.to_owned(),
        }
    }
}

/// What a run proves.
#[derive(Clone, Debug)]
pub struct Verdict {
    command: &'static str,
    scope: Scope,
    /// Why the run does not count, if it does not.
    pub invalid: Option<String>,
    /// Each mark.
    pub judgements: Vec<Judgement>,
}

impl Verdict {
    /// Of a run of `make COMMAND`. `strange` says why the peers did not come out as peers do.
    pub fn new(
        command: &'static str,
        scope: Scope,
        strange: Option<String>,
        judgements: Vec<Judgement>,
    ) -> Self {
        let invalid = match scope {
            Scope::Whole => strange,
            Scope::Part => Some("only a part of the comparison was run".to_owned()),
            Scope::Quick => Some("a quick run proves nothing".to_owned()),
        };
        Self {
            command,
            scope,
            invalid,
            judgements,
        }
    }

    /// Marks that are not reached. What was not measured is not reached in a whole run.
    pub fn missed(&self) -> Vec<&Judgement> {
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
    pub fn line(&self) -> String {
        let missed: Vec<_> = self.missed().iter().map(|missed| missed.title()).collect();
        let marks = match (missed.as_slice(), self.scope) {
            (_, Scope::Quick) => "the marks were not judged".to_owned(),
            ([], Scope::Part) => "no mark that could be judged is missed".to_owned(),
            ([], Scope::Whole) => "all marks are reached".to_owned(),
            (missed, _) => format!("missed: {}", missed.join(", ")),
        };
        let command = self.command;
        match &self.invalid {
            None => format!("{command}: valid; {marks}"),
            Some(reason) => format!("{command}: NOT VALID ({reason}); {marks}"),
        }
    }

    /// As [`code`](Self::code).
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// 0: the marks are reached; 1: a mark is missed; 3: a whole run that does not count.
    pub fn code(&self) -> u8 {
        if self.scope == Scope::Whole && self.invalid.is_some() {
            3
        } else {
            u8::from(!self.missed().is_empty())
        }
    }
}
