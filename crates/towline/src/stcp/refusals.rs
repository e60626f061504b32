//! Says why peers were refused, or what else they cause, a few lines a second whatever they do.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines in [`WINDOW`].
const MAX_LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// What a log says of peers that can come as often as they like: ten lines a second, and then how many more
/// there were.
#[derive(Debug)]
pub struct RefusalLog {
    happened: &'static str,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    lines: u32,
    unsaid: u64,
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self::of("refused")
    }
}

impl RefusalLog {
    /// A log of what happens to peers, such as "refused".
    pub fn of(happened: &'static str) -> Self {
        Self {
            happened,
            window: Mutex::default(),
        }
    }

    /// Has `write` write a line that ends with this text, if there may be one.
    pub fn say(&self, why: impl Display, write: impl FnOnce(&str)) {
        let more = {
            let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
            if window.since.is_none_or(|since| since.elapsed() >= WINDOW) {
                window.since = Some(Instant::now());
                window.lines = 0;
            }
            if window.lines == MAX_LINES {
                window.unsaid += 1;
                return;
            }
            window.lines += 1;
            std::mem::take(&mut window.unsaid)
        };
        let happened = self.happened;
        match more {
            0 => write(&format!("{happened}: {why}")),
            more => write(&format!(
                "{happened}: {why} ({more} more were {happened} meanwhile)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_refusals_is_a_few_lines_a_second_and_a_number() {
        let log = RefusalLog::default();
        let mut lines = Vec::new();
        for _ in 0..3 {
            for _ in 0..1000 {
                log.say("no TLS", |line| lines.push(line.to_owned()));
            }
            tokio::time::advance(WINDOW).await;
        }
        assert_eq!(lines.len(), 3 * MAX_LINES as usize);
        assert_eq!(lines[0], "refused: no TLS");
        assert_eq!(
            lines[10],
            "refused: no TLS (990 more were refused meanwhile)"
        );
        assert_eq!(lines[11], "refused: no TLS");
    }
}
