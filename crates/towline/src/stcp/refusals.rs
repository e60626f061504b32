//! Says why peers were refused, a few lines a second whatever they do.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Lines in [`WINDOW`].
const MAX_LINES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(1);

/// The log of one listener.
pub(super) struct RefusalLog {
    window: Instant,
    lines: u32,
    unsaid: u64,
}

impl RefusalLog {
    pub(super) fn new() -> Self {
        Self {
            window: Instant::now(),
            lines: 0,
            unsaid: 0,
        }
    }

    pub(super) fn say(&mut self, peer: SocketAddr, why: impl Display) {
        if self.window.elapsed() >= WINDOW {
            *self = Self {
                unsaid: self.unsaid,
                ..Self::new()
            };
        }
        if self.lines == MAX_LINES {
            self.unsaid += 1;
            return;
        }
        self.lines += 1;
        match std::mem::take(&mut self.unsaid) {
            0 => tracing::warn!(%peer, "refused: {why}"),
            more => tracing::warn!(%peer, "refused: {why} ({more} more were refused meanwhile)"),
        }
    }
}
