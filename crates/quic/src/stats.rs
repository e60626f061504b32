//! Numbers that people watch: what a number is called, what it counts, and sums over many.
//!
//! Every struct of statistics has one [`Visit`], made by [`visit_fields!`](crate::visit_fields),
//! which takes the struct apart: a new field does not compile until it is visited, and none can be
//! visited twice. Whoever shows numbers (`--json`, the log, metrics) asks the visit and names no
//! field, so that none can lack one. Nothing here counts anything itself.

use std::fmt;
use std::time::Duration;

/// How a number moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// What a number counts. All are base units: bytes and seconds, never kilobytes or milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things: packets, calls, connections.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
    /// A share of one.
    Ratio,
    /// Yes or no.
    Flag,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in Rust, in `--json` and, behind a prefix, in metrics.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// What it says, for people.
    pub help: &'static str,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Seconds, or a ratio.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// Not measured, which is not zero.
    Absent,
}

impl Value {
    /// As one kind of number, yes as 1 and no as 0; `None` if it was not measured.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Whole(whole) => Some(whole as f64),
            Self::Real(real) => Some(real),
            Self::Flag(flag) => Some(f64::from(u8::from(flag))),
            Self::Absent => None,
        }
    }
}

impl From<u64> for Value {
    fn from(whole: u64) -> Self {
        Self::Whole(whole)
    }
}

impl From<u32> for Value {
    fn from(whole: u32) -> Self {
        Self::Whole(whole.into())
    }
}

impl From<u16> for Value {
    fn from(whole: u16) -> Self {
        Self::Whole(whole.into())
    }
}

impl From<usize> for Value {
    fn from(whole: usize) -> Self {
        Self::Whole(whole as u64)
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<Duration> for Value {
    fn from(duration: Duration) -> Self {
        Self::Real(duration.as_secs_f64())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(f),
            Self::Real(real) => real.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Absent => f.write_str("-"),
        }
    }
}

/// Statistics that can be looked at field by field.
pub trait Visit {
    /// Calls `visitor` once with every field, always in the same order.
    fn visit(&self, visitor: &mut dyn FnMut(Field, Value));
}

/// All fields of a struct of statistics, each with its kind, its unit and what it says.
///
/// ```
/// use towline_quic::stats::{Value, Visit};
///
/// struct Door {
///     opened: u64,
/// }
///
/// towline_quic::visit_fields! { Door:
///     Counter opened: Count, "Times it was opened";
/// }
///
/// Door { opened: 3 }.visit(&mut |field, value| {
///     assert_eq!((field.name, value), ("opened", Value::Whole(3)));
/// });
/// ```
///
/// `once other` behind the text shows a gauge as [`Value::Absent`] while the field `other` is `None`.
/// A counter is a `u64` or smaller: of anything else no sum can be made, and it does not compile.
///
/// ```compile_fail
/// struct Door {
///     open: f64,
/// }
///
/// towline_quic::visit_fields! { Door:
///     Counter open: Seconds, "How long it was open";
/// }
/// ```
#[macro_export]
macro_rules! visit_fields {
    (@value Counter $name:ident) => {
        $crate::stats::Value::Whole(u64::from(*$name))
    };
    (@value Gauge $name:ident) => {
        $crate::stats::Value::from(*$name)
    };
    (@value Gauge $name:ident once $other:ident) => {
        match $other {
            Some(_) => $crate::stats::Value::from(*$name),
            None => $crate::stats::Value::Absent,
        }
    };
    ($stats:ty: $($kind:ident $name:ident: $unit:ident, $help:literal $(, once $other:ident)?;)+) => {
        impl $crate::stats::Visit for $stats {
            fn visit(&self, visitor: &mut dyn FnMut($crate::stats::Field, $crate::stats::Value)) {
                // Without `..`: a field that is not listed, or twice, does not compile.
                let Self { $($name),+ } = self;
                $(visitor(
                    $crate::stats::Field {
                        name: stringify!($name),
                        kind: $crate::stats::Kind::$kind,
                        unit: $crate::stats::Unit::$unit,
                        help: $help,
                    },
                    $crate::visit_fields!(@value $kind $name $(once $other)?),
                );)+
            }
        }
    };
}

/// Statistics on one line, for a log: `name=value` for every field.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a, S>(pub &'a S);

impl<S: Visit> fmt::Display for Line<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        let mut space = "";
        self.0.visit(&mut |field, value| {
            if result.is_ok() {
                result = write!(f, "{space}{}={value}", field.name);
                space = " ";
            }
        });
        result
    }
}

/// One field over many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Total {
    /// A counter: the sum.
    Sum(u64),
    /// A gauge.
    Spread(Spread),
}

/// How the values of a gauge lie. `None` where nobody measured any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    extremes: Option<(f64, f64)>,
    sum: f64,
    count: u64,
}

impl Spread {
    /// The least value.
    pub fn least(&self) -> Option<f64> {
        self.extremes.map(|(least, _)| least)
    }

    /// The greatest value.
    pub fn greatest(&self) -> Option<f64> {
        self.extremes.map(|(_, greatest)| greatest)
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    fn join(&mut self, other: Self) {
        self.extremes = match (self.extremes, other.extremes) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.sum += other.sum;
        self.count += other.count;
    }
}

impl Total {
    fn of(field: Field, value: Value) -> Self {
        match (field.kind, value) {
            (Kind::Counter, Value::Whole(whole)) => Self::Sum(whole),
            (Kind::Counter, _) => {
                debug_assert!(false, "a counter is a whole number: {field:?} {value:?}");
                Self::Sum(0)
            }
            (Kind::Gauge, value) => Self::Spread(match value.as_f64() {
                Some(value) => Spread {
                    extremes: Some((value, value)),
                    sum: value,
                    count: 1,
                },
                None => Spread::default(),
            }),
        }
    }

    fn join(&mut self, other: Self) {
        match (self, other) {
            (Self::Sum(sum), Self::Sum(more)) => *sum = sum.saturating_add(more),
            (Self::Spread(spread), Self::Spread(more)) => spread.join(more),
            (Self::Sum(_), Self::Spread(_)) | (Self::Spread(_), Self::Sum(_)) => {
                debug_assert!(false, "a field does not change its kind");
            }
        }
    }
}

/// The fields of one kind of statistics over many holders: counters summed up, those of holders
/// that are gone included, and how the gauges of the present ones lie.
///
/// Takes the same memory however many holders there were.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    rows: Vec<(Field, Total)>,
}

impl Totals {
    /// Adds one that is there.
    pub fn add(&mut self, stats: &impl Visit) {
        self.join(stats, true);
    }

    /// Adds the counters of one whose gauges say nothing: it is gone, or has hardly begun.
    pub fn add_ended(&mut self, stats: &impl Visit) {
        self.join(stats, false);
    }

    fn join(&mut self, stats: &impl Visit, with_gauges: bool) {
        let mut place = 0;
        stats.visit(&mut |field, value| {
            let value = match field.kind {
                Kind::Gauge if !with_gauges => Value::Absent,
                _ => value,
            };
            self.join_row(place, field, Total::of(field, value));
            place += 1;
        });
    }

    fn join_row(&mut self, place: usize, field: Field, total: Total) {
        match self.rows.get_mut(place) {
            Some((known, row)) => {
                debug_assert_eq!(*known, field, "one kind of statistics");
                row.join(total);
            }
            None => self.rows.push((field, total)),
        }
    }

    /// Adds those of another group.
    pub fn merge(&mut self, other: &Self) {
        for (place, (field, total)) in other.rows.iter().enumerate() {
            self.join_row(place, *field, *total);
        }
    }

    /// Every field; none if nothing was added.
    pub fn iter(&self) -> impl Iterator<Item = (Field, Total)> + '_ {
        self.rows.iter().copied()
    }
}

#[cfg(test)]
mod tests;
