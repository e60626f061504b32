//! [`Reducer`]: fewer digits and fewer values of paths for which somebody chose that. Nothing else in the link changes a
//! record.

use std::collections::HashMap;
use std::time::Duration;

use crate::alarms::fits;
use crate::codec::{Node, Record};
use crate::delta::{self, Part};

/// Cap: values whose last time is remembered; those of too many pass.
pub const MAX_REDUCED: usize = 1 << 14;

/// What is enough of the values of some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduction {
    /// The paths: `*` stands for any text.
    pub path: String,
    /// Digits behind the decimal point; `None` for all that there are.
    pub decimals: Option<u8>,
    /// A value that comes sooner after the one before of the same context, source and path is left out, though it were
    /// the last one for long; `None` for none.
    pub every: Option<Duration>,
}

/// Applies them. Of several with a path, the first is taken.
#[derive(Debug, Default)]
pub struct Reducer {
    reductions: Vec<Reduction>,
    /// When a value passed last.
    passed: HashMap<u64, Duration>,
    records: u64,
    values: u64,
}

impl Reducer {
    /// One with these.
    #[must_use]
    pub fn new(reductions: Vec<Reduction>) -> Self {
        Self {
            reductions,
            ..Self::default()
        }
    }

    /// What is left of a record; `None` if nothing is. Only values of Signal K deltas become fewer, and those at the empty
    /// path stay as they are. `now` is how long it has been since some moment.
    pub fn reduce(&mut self, now: Duration, record: Record) -> Option<Record> {
        if self.reductions.is_empty() {
            return Some(record);
        }
        let parts = delta::parts(&record);
        let mut gone: Vec<&Part> = Vec::new();
        let mut rounded: Option<Vec<Node>> = None;
        for part in &parts {
            let Some((path, value)) = delta::value_of(&record, part) else {
                continue;
            };
            let chosen = self.reductions.iter().find(|it| fits(&it.path, path));
            let Some(reduction) = chosen else {
                continue;
            };
            if let Some(every) = reduction.every {
                let is_early = self
                    .passed
                    .get(&part.name)
                    .is_some_and(|at| *at + every > now);
                if is_early {
                    gone.push(part);
                    continue;
                }
                if self.passed.len() < MAX_REDUCED || self.passed.contains_key(&part.name) {
                    self.passed.insert(part.name, now);
                }
            }
            if let Some(decimals) = reduction.decimals {
                let nodes = rounded.get_or_insert_with(|| record.nodes.to_vec());
                for node in &mut nodes[value] {
                    if let Node::Double(bits) = node {
                        *bits = round(f64::from_bits(*bits), decimals).to_bits();
                    }
                }
            }
        }
        self.values += gone.len() as u64;
        let rounded = rounded.map(|nodes| Record {
            nodes: nodes.into(),
        });
        let record = rounded.unwrap_or(record);
        if gone.is_empty() {
            return Some(record);
        }
        let left = delta::without(&record, &gone);
        self.records += u64::from(left.is_none());
        left
    }

    /// Values that were left out, and records of which nothing was left.
    #[must_use]
    pub fn left_out(&self) -> (u64, u64) {
        (self.values, self.records)
    }
}

/// The double nearest to the decimal number.
fn round(value: f64, decimals: u8) -> f64 {
    let text = format!("{value:.*}", usize::from(decimals));
    text.parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(values: &str) -> Record {
        let text =
            format!(r#"{{"context":"c","updates":[{{"$source":"s","values":[{values}]}}]}}"#);
        Record::parse(text.as_bytes()).unwrap()
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn reduction(path: &str, decimals: Option<u8>, every: Option<u64>) -> Reduction {
        Reduction {
            path: path.to_owned(),
            decimals,
            every: every.map(Duration::from_millis),
        }
    }

    #[test]
    fn digits_are_cut_where_that_was_chosen() {
        let mut reducer = Reducer::new(vec![
            reduction("a.*", Some(2), None),
            reduction("*", None, None),
        ]);
        let before =
            r#"{"path":"a.b","value":{"x":1.23456,"y":[-0.5,7]}},{"path":"b","value":1.23456}"#;
        let after =
            r#"{"path":"a.b","value":{"x":1.23,"y":[-0.5,7]}},{"path":"b","value":1.23456}"#;
        assert_eq!(reducer.reduce(at(0), record(before)), Some(record(after)));
        let none = record(r#"{"path":"","value":{"name":"a.b"}}"#);
        assert_eq!(reducer.reduce(at(0), none.clone()), Some(none));
        assert_eq!(round(1e300, 3), 1e300);
        assert_eq!(round(0.1 + 0.2, 10), 0.3);
    }

    #[test]
    fn values_that_come_too_soon_are_left_out_and_counted() {
        let mut reducer = Reducer::new(vec![reduction("a", None, Some(1_000))]);
        let [a, b] = [r#"{"path":"a","value":1}"#, r#"{"path":"b","value":2}"#];
        let both = record(&format!("{a},{b}"));
        assert_eq!(reducer.reduce(at(0), both.clone()), Some(both.clone()));
        assert_eq!(reducer.reduce(at(999), both.clone()), Some(record(b)));
        assert_eq!(reducer.reduce(at(999), record(a)), None);
        assert_eq!(reducer.left_out(), (2, 1));
        assert_eq!(reducer.reduce(at(1_000), both.clone()), Some(both));
        // Another source's.
        let other =
            Record::parse(format!(r#"{{"updates":[{{"values":[{a}]}}]}}"#).as_bytes()).unwrap();
        assert_eq!(reducer.reduce(at(1_001), other.clone()), Some(other));
    }

    #[test]
    fn so_many_times_are_remembered() {
        let mut reducer = Reducer::new(vec![reduction("*", None, Some(1_000))]);
        for number in 0..MAX_REDUCED + 10 {
            let value = record(&format!(r#"{{"path":"{number}","value":1}}"#));
            assert!(reducer.reduce(at(0), value).is_some());
        }
        assert_eq!(reducer.passed.len(), MAX_REDUCED);
        let last = record(&format!(r#"{{"path":"{}","value":1}}"#, MAX_REDUCED + 9));
        assert!(reducer.reduce(at(1), last).is_some());
        assert!(
            reducer
                .reduce(at(1), record(r#"{"path":"0","value":1}"#))
                .is_none()
        );
    }
}
