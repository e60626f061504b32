//! [`Pace`]: how fast recorded lines are played.

use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;
use towline::link::Record;

/// The longest gap between two lines that is played as it was.
const MAX_GAP: Duration = Duration::from_secs(60);

/// How fast lines follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// As their timestamps do, so many times faster.
    Recorded(f64),
    /// So many a second.
    Each(f64),
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let factor = |text: &str| match text.parse::<f64>() {
            Ok(factor) if factor.is_finite() && factor > 0.0 => Some(factor),
            _ => None,
        };
        let pace = match text.strip_prefix("recorded") {
            Some("") => Some(Self::Recorded(1.0)),
            Some(times) => times.strip_prefix('*').and_then(factor).map(Self::Recorded),
            None => factor(text).map(Self::Each),
        };
        pace.ok_or_else(|| format!("`{text}` is no pace; write recorded, recorded*10 or 80"))
    }
}

/// A pace that is kept.
pub(super) struct Paced {
    pace: Pace,
    /// When the next line is due.
    due: Instant,
    /// The timestamp of the last line that had one, in milliseconds.
    before: Option<i64>,
}

impl Pace {
    pub(super) fn start(self) -> Paced {
        Paced {
            pace: self,
            due: Instant::now(),
            before: None,
        }
    }
}

impl Paced {
    /// Waits, on this thread, until a record is due.
    pub(super) fn wait(&mut self, record: &Record) {
        match self.pace {
            Pace::Each(rate) => self.due += Duration::from_secs_f64(1.0 / rate),
            Pace::Recorded(factor) => {
                let Some(at) = towline_link::timestamp(record) else {
                    return;
                };
                let gap = self.before.map_or(0, |before| at.saturating_sub(before));
                self.before = Some(self.before.map_or(at, |before| before.max(at)));
                let gap = Duration::from_millis(gap.max(0).unsigned_abs()).min(MAX_GAP);
                self.due += gap.div_f64(factor);
            }
        }
        std::thread::park_timeout(self.due.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_read_as_it_is_written() {
        assert_eq!("recorded".parse(), Ok(Pace::Recorded(1.0)));
        assert_eq!("recorded*2.5".parse(), Ok(Pace::Recorded(2.5)));
        assert_eq!("80".parse(), Ok(Pace::Each(80.0)));
        for bad in ["", "0", "-1", "recorded*0", "fast", "inf"] {
            assert!(bad.parse::<Pace>().is_err(), "{bad}");
        }
    }
}
