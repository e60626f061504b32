//! What a case measures: a number, its unit, and the mark that it must reach.

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share, printed in per cent.
    Share,
    /// Seconds, printed in milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Multiples of something named by the measure.
    Times,
    /// Round-trip times of the path.
    Rtts,
    /// An index between 0 and 1.
    Index,
    /// Whole things.
    Count,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// `value` with its unit.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        let text = match self {
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Millis => format!("{:.1} ms", value * 1e3),
            Self::Seconds => format!("{value:.3} s"),
            Self::Times => format!("{value:.2} ×"),
            Self::Rtts => format!("{value:.2} RTT"),
            Self::Index => format!("{value:.3}"),
            Self::Count => format!("{value:.0}"),
            Self::Bytes => format!("{value:.0} B"),
        };
        // A hair below zero is zero.
        match text.strip_prefix("-0") {
            Some(rest) if !rest.contains(|c: char| ('1'..='9').contains(&c)) => format!("0{rest}"),
            _ => text,
        }
    }

    /// The unit's name in records for programs, whose values are not scaled.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Millis | Self::Seconds => "s",
            Self::Times => "times",
            Self::Rtts => "rtt",
            Self::Index => "index",
            Self::Count => "count",
            Self::Bytes => "B",
        }
    }
}

/// What a value must lie between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// At least this.
    pub low: Option<f64>,
    /// At most this.
    pub high: Option<f64>,
}

impl Mark {
    /// How far `value` is on the good side, as a share of the nearer bound; negative on the bad.
    pub fn margin(&self, value: f64) -> f64 {
        if self.is_exact() {
            // Another value is wrong, however near.
            return match Some(value) == self.low {
                true => 0.0,
                false => f64::NEG_INFINITY,
            };
        }
        let low = self.low.map(|low| (value - low) / low);
        let high = self.high.map(|high| match high > 0.0 {
            true => (high - value) / high,
            // None is allowed: one is too many, whatever share of nothing it is.
            false if value <= high => 1.0,
            false => f64::NEG_INFINITY,
        });
        let nearer = low.into_iter().chain(high).fold(f64::INFINITY, f64::min);
        match value.is_nan() {
            true => f64::NEG_INFINITY,
            false => nearer,
        }
    }

    fn is_exact(&self) -> bool {
        self.low.is_some() && self.low == self.high
    }

    fn show(&self, unit: Unit) -> String {
        match (self.low, self.high) {
            (Some(only), _) if self.is_exact() => format!("= {}", unit.show(only)),
            (Some(low), Some(high)) => format!("{} – {}", unit.show(low), unit.show(high)),
            (Some(low), None) => format!("≥ {}", unit.show(low)),
            (None, Some(high)) => format!("≤ {}", unit.show(high)),
            (None, None) => String::new(),
        }
    }
}

/// One number a case returns, and its mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// What is measured.
    pub name: &'static str,
    /// In what.
    pub unit: Unit,
    /// What it must reach.
    pub mark: Mark,
}

impl Measure {
    /// It must be at least `low`.
    pub(super) const fn at_least(name: &'static str, low: f64, unit: Unit) -> Self {
        let mark = Mark {
            low: Some(low),
            high: None,
        };
        Self { name, unit, mark }
    }

    /// It must be at most `high`.
    pub(super) const fn at_most(name: &'static str, high: f64, unit: Unit) -> Self {
        let mark = Mark {
            low: None,
            high: Some(high),
        };
        Self { name, unit, mark }
    }

    /// It must be between `low` and `high`.
    pub(super) const fn between(name: &'static str, low: f64, high: f64, unit: Unit) -> Self {
        let mark = Mark {
            low: Some(low),
            high: Some(high),
        };
        Self { name, unit, mark }
    }

    /// It must be `value` with every seed.
    pub(super) const fn exactly(name: &'static str, value: f64, unit: Unit) -> Self {
        Self::between(name, value, value, unit)
    }

    /// Its mark in words.
    pub fn mark_text(&self) -> String {
        self.mark.show(self.unit)
    }
}
