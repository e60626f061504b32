//! [`PathPatterns`]: which records are alarms.

use crate::codec::Record;
use crate::delta;

/// Patterns of paths, in which `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathPatterns(Vec<String>);

impl PathPatterns {
    /// These patterns, such as `notifications.*`.
    #[must_use]
    pub fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    /// Whether one of the record's values has a path that one of the patterns fits.
    #[must_use]
    pub fn fit(&self, record: &Record) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut paths = delta::paths(record);
        paths.any(|path| self.0.iter().any(|pattern| fits(pattern, path)))
    }
}

/// In time that grows with the product of the lengths at the worst.
pub(crate) fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path) = (pattern.as_bytes(), path.as_bytes());
    let (mut at, mut next) = (0, 0);
    // Where the last `*` stands, and what it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while next < path.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(byte) if *byte == path[next] => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((place, taken)) = star else {
                    return false;
                };
                star = Some((place, taken + 1));
                at = place + 1;
                next = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, path, is_fit) in [
            ("notifications.*", "notifications.mob", true),
            ("notifications.*", "notifications.", true),
            ("notifications.*", "notifications", false),
            ("*.state", "a.b.state", true),
            ("a*b*c", "aXXbYYbc", true),
            ("a*b*c", "aXXcYY", false),
            ("", "", true),
            ("*", "", true),
            ("a", "", false),
        ] {
            assert_eq!(fits(pattern, path), is_fit, "{pattern} {path}");
        }
    }

    #[test]
    fn a_record_is_an_alarm_by_one_of_its_paths() {
        let patterns = PathPatterns::new(vec!["notifications.*".into()]);
        let record = |text: &str| Record::parse(text.as_bytes()).unwrap();
        let alarm = r#"{"updates":[{"values":[{"path":"a","value":1},{"path":"notifications.mob","value":{}}]}]}"#;
        assert!(patterns.fit(&record(alarm)));
        let other = r#"{"updates":[{"values":[{"path":"a","value":1}]}]}"#;
        assert!(!patterns.fit(&record(other)));
        assert!(!patterns.fit(&record(r#"{"path":"notifications.mob"}"#)));
    }
}
