//! What the ends of a link choose for the connection that carries it: numbers alone, no transport in sight.
//!
//! The driver and the simulator both take them from here, so that what is simulated is what is shipped.

use std::time::Duration;

use crate::sender::Room;

/// How long a receiver's acknowledgements may wait. Its other messages carry them, and a missing packet is reported without
/// delay (RFC 9000 §13.2.1), unless the sender asks for something else.
pub const ACK_DELAY: Duration = Duration::from_millis(1_100);
/// So many packets are acknowledged at once, no more than the initial congestion window holds (RFC 9002 §7.2): otherwise a
/// sender that has filled its window would have to wait for [`ACK_DELAY`].
pub const PACKETS_PER_ACK: u32 = 10;
/// A connection on which nothing comes for so long is kept alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// A connection on which nothing comes for so long is given up.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a connection ID of the end that receives: enough for some thousand senders. The way back is short, and it
/// goes with every packet of theirs.
pub const SHORT_CID: usize = 4;
/// Cap: bytes of a batch on a stream of its own, or in a frame.
pub const MAX_MESSAGE: usize = 8 << 20;
/// Cap: bytes of batches that are on streams at once, where there are several: less than a receiver gives credit for that
/// reads one after the other, so that the first never waits for credit that the others took.
pub const MAX_STREAMED: usize = 1 << 20;
/// The first pause after a failed attempt to connect.
pub const RETRY: Duration = Duration::from_millis(500);
/// The longest of these pauses; each is twice the one before.
pub const MAX_RETRY: Duration = Duration::from_secs(30);
/// A connection that lived for so long shows that the next one is worth trying at once.
pub const WORKED: Duration = Duration::from_secs(10);
/// The last records of the store, which are sent as if they were new after a start.
pub const RESTORED: u64 = 1_024;
/// While there is no room, it is looked again so often if nothing else happens.
pub const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How full a connection with a congestion window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes on their way.
    pub in_flight: u64,
    /// Bytes of datagrams that wait to leave.
    pub queued: u64,
    /// The congestion window.
    pub window: u64,
    /// No batch waits for a stream of its own.
    pub is_idle: bool,
    /// Bytes that a datagram takes.
    pub datagram: usize,
    /// The smoothed round-trip time.
    pub rtt: Duration,
}

impl Fill {
    /// What there is room for. One datagram may wait for the window, and no more: what waits could have been coded anew.
    /// Without it the controller never sees its window used up, and only makes it smaller (RFC 9002 §7.8).
    #[must_use]
    pub fn room(&self) -> Room {
        let used = self.in_flight.saturating_add(self.queued);
        let left = self.window.saturating_sub(used) as usize;
        let free = match self.queued {
            0 => left.max(self.datagram),
            _ => left,
        };
        Room {
            free,
            // A large batch waits for a stream: an alarm is small.
            alarms_only: !self.is_idle,
            datagram: self.datagram,
            rtt: self.rtt,
        }
    }
}

/// Whether a batch of so many bytes may have its stream now, beside those that have theirs: what is beyond the window only
/// waits, and what is new waits behind it.
#[must_use]
pub fn may_stream(len: usize, streamed: usize, window: u64) -> bool {
    let most = window.min(MAX_STREAMED as u64);
    streamed == 0 || streamed.saturating_add(len) as u64 <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_the_window_and_a_large_batch_goes_alone() {
        assert!(may_stream(MAX_MESSAGE, 0, 12_000));
        assert!(may_stream(2_000, 10_000, 12_000) && !may_stream(2_001, 10_000, 12_000));
        let wide = u64::MAX;
        assert!(may_stream(1, MAX_STREAMED - 1, wide) && !may_stream(2, MAX_STREAMED - 1, wide));
    }

    const EMPTY: Fill = Fill {
        in_flight: 0,
        queued: 0,
        window: 12_000,
        is_idle: true,
        datagram: 1_150,
        rtt: Duration::from_millis(120),
    };

    #[test]
    fn one_datagram_waits_for_the_window_and_no_more() {
        assert_eq!(EMPTY.room().free, 12_000);
        let half = Fill {
            in_flight: 4_000,
            queued: 2_000,
            ..EMPTY
        };
        assert_eq!(half.room().free, 6_000);
        let full = Fill {
            in_flight: 13_000,
            ..EMPTY
        };
        assert_eq!(full.room().free, 1_150);
        let waiting = Fill { queued: 60, ..full };
        assert_eq!(waiting.room().free, 0);
    }

    #[test]
    fn one_batch_waits_for_a_stream_and_alarms_pass_it() {
        let busy = Fill {
            is_idle: false,
            ..EMPTY
        };
        assert!(busy.room().alarms_only && !EMPTY.room().alarms_only);
    }
}
