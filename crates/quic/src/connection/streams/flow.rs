//! Flow-control credit (RFC 9000 §4): what we may send, and what we let the peer send.
//!
//! Used for each stream and for the connection as a whole. A receive window doubles, up to its
//! configured maximum, when half of it is consumed within two round trips and the window looks
//! like the limit: a larger one would only fill the queue of a path that gives no more.

use std::time::Duration;

use towline_wire::{MAX_DATA_MAX_LEN, MAX_VARINT, RESET_STREAM_AT_MAX_LEN, Time, write_max_data};

use crate::connection::component::{PacketWriter, SentFrame};

/// Room that any small control frame of the streams needs.
pub(crate) const CONTROL_FRAME_ROOM: usize = RESET_STREAM_AT_MAX_LEN;

/// Most bytes of one stream before the next has its turn: a quarter of a train. What arrives
/// together is one event for its reader.
const MAX_TURN: u64 = 16 << 10;

/// How long a turn may last on a slow path.
const TURN_TIME: Duration = Duration::from_millis(1);

/// The round trip as auto-tuning and turns see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub(crate) smoothed: Duration,
    /// The shortest seen; the smoothed one where there is none.
    pub(crate) min: Duration,
    /// The congestion window, bytes: what the path takes in one.
    pub(crate) window: u64,
}

impl RoundTrip {
    /// Bytes of a stream's turn: what the path carries in [`TURN_TIME`], at most [`MAX_TURN`].
    pub(crate) fn turn(&self) -> u64 {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let carried = self.window.saturating_mul(nanos(TURN_TIME)) / nanos(self.smoothed).max(1);
        carried.min(MAX_TURN)
    }
}

/// Credit the peer gave us for the whole connection.
#[derive(Debug, Default)]
pub(crate) struct SendCredit {
    max: u64,
    used: u64,
    /// Limit we already complained about with DATA_BLOCKED.
    reported: Option<u64>,
}

impl SendCredit {
    /// Bytes the peer's limit still admits (RFC 9000 §19.9, §19.10).
    pub(crate) fn available(&self) -> u64 {
        self.max - self.used
    }

    pub(crate) fn consume(&mut self, bytes: u64) {
        self.used += bytes;
        debug_assert!(self.used <= self.max);
    }

    /// Raises the limit; returns whether it was lower before.
    pub(crate) fn raise(&mut self, max: u64) -> bool {
        let rises = max > self.max;
        self.max = self.max.max(max);
        rises
    }

    /// The limit is in the way and the peer was not told.
    pub(crate) fn owes_blocked(&self) -> bool {
        self.available() == 0 && self.reported != Some(self.max)
    }

    /// The report was lost.
    pub(crate) fn forget_blocked_report(&mut self) {
        self.reported = None;
    }

    /// The limit to report as blocking, once for each value.
    pub(crate) fn take_blocked_report(&mut self) -> Option<u64> {
        if !self.owes_blocked() {
            return None;
        }
        self.reported = Some(self.max);
        Some(self.max)
    }
}

/// Credit we give the peer.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    advertised: u64,
    consumed: u64,
    window: u64,
    max_window: u64,
    last_update: Option<Time>,
    /// Bytes consumed as of that update.
    consumed_then: u64,
    tuning: Tuning,
}

impl ReceiveCredit {
    pub(crate) fn new(window: u64, max_window: u64) -> Self {
        Self {
            advertised: window,
            consumed: 0,
            window,
            max_window: max_window.max(window),
            last_update: None,
            consumed_then: 0,
            tuning: Tuning::default(),
        }
    }

    /// The offset the peer may send up to.
    pub(crate) fn advertised(&self) -> u64 {
        self.advertised
    }

    /// The offset that the window permits now; lower than the one advertised if the window has shrunk.
    fn grantable(&self) -> u64 {
        (self.consumed + self.window).min(MAX_VARINT)
    }

    /// Goes on with this window, which auto-tuning leaves as it is. What was advertised stays: a smaller
    /// window takes effect as data is consumed and no credit given for it (RFC 9000 §4.1).
    fn set_window(&mut self, window: u64) {
        self.window = window.min(MAX_VARINT);
        self.max_window = self.window;
        // A trial under way would go back to the window before it.
        self.tuning = Tuning::default();
    }

    /// Starts the clock of auto-tuning at the first byte.
    pub(crate) fn on_received(&mut self, now: Time) {
        self.last_update.get_or_insert(now);
    }

    pub(crate) fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
    }

    /// Bytes consumed in all.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// A quarter of the window was consumed, or the last update was lost. Waiting for half would
    /// leave the peer half a window a round trip once both fall into step.
    pub(crate) fn wants_update(&self) -> bool {
        self.advertised.saturating_sub(self.consumed) <= self.window / 4 * 3
    }

    /// As [`Self::wants_update`] for the connection, of which `received` bytes are used up: what
    /// could be granted is a third of what the peer has left. What a stream leaves unread uses up
    /// credit and must not keep the others from theirs.
    pub(crate) fn wants_update_beside_unread(&self, received: u64) -> bool {
        let gain = self.grantable().saturating_sub(self.advertised);
        gain > 0 && self.advertised.saturating_sub(received) <= 3 * gain
    }

    /// The new limit to advertise.
    pub(crate) fn update(&mut self, now: Time, rtt: RoundTrip) -> u64 {
        if self.grantable() > self.advertised {
            if let Some(at) = self.last_update {
                self.tune(now.saturating_duration_since(at), rtt);
            }
            self.last_update = Some(now);
            self.consumed_then = self.consumed;
            self.advertised = self.advertised.max(self.grantable());
        }
        self.advertised
    }

    fn tune(&mut self, elapsed: Duration, rtt: RoundTrip) {
        let bytes = self.consumed - self.consumed_then;
        let micros = u64::try_from(elapsed.as_micros().max(1)).unwrap_or(u64::MAX);
        let rate = bytes.saturating_mul(1_000_000) / micros;
        // The time that half of a window takes, at this rate.
        let half = u128::from(micros) * u128::from(self.window / 2) / u128::from(bytes.max(1));
        let half = Duration::from_micros(u64::try_from(half).unwrap_or(u64::MAX));
        self.tuning.on_rate(rate);
        if half >= 2 * rtt.smoothed {
            self.window = self.tuning.on_ample(self.window);
        } else if half < 4 * rtt.min || self.tuning.is_rising(rate) {
            self.window = (self.window * 2).min(self.max_window);
        } else {
            self.window = self
                .tuning
                .on_doubtful(rate, self.window)
                .min(self.max_window);
        }
        self.tuning.remember(rate);
    }
}

/// Credit we give the peer for all streams together.
#[derive(Debug)]
pub(crate) struct ConnectionWindow {
    credit: ReceiveCredit,
    /// Bytes received, counted as RFC 9000 §4.1 does.
    received: u64,
    update_pending: bool,
}

impl ConnectionWindow {
    pub(crate) fn new(window: u64, max_window: u64) -> Self {
        Self {
            credit: ReceiveCredit::new(window, max_window),
            received: 0,
            update_pending: false,
        }
    }

    /// Goes on with this window; credit that it adds is told at once.
    pub(crate) fn set_window(&mut self, window: u64) {
        self.credit.set_window(window);
        self.update_pending |= self.credit.grantable() > self.credit.advertised();
    }

    /// Bytes the peer may still send.
    pub(crate) fn left(&self) -> u64 {
        self.credit.advertised() - self.received
    }

    /// Data that uses up `fresh` bytes of credit.
    pub(crate) fn on_data(&mut self, now: Time, fresh: u64) {
        if fresh > 0 {
            self.credit.on_received(now);
        }
        self.use_up(fresh);
    }

    /// As much credit is used up, if only by the final size of a reset.
    pub(crate) fn use_up(&mut self, fresh: u64) {
        self.received += fresh;
        self.update_pending |= self.credit.wants_update_beside_unread(self.received);
    }

    /// Bytes the application consumed, or that nobody will read.
    pub(crate) fn return_credit(&mut self, bytes: u64) {
        self.credit.consume(bytes);
        debug_assert!(
            self.credit.consumed() <= self.received,
            "credit returned twice"
        );
        if self.credit.wants_update_beside_unread(self.received) {
            self.update_pending = true;
        }
    }

    /// Bytes consumed in all.
    pub(crate) fn consumed(&self) -> u64 {
        self.credit.consumed()
    }

    /// A MAX_DATA frame is owed.
    pub(crate) fn has_pending(&self) -> bool {
        self.update_pending
    }

    pub(crate) fn write_frames(&mut self, now: Time, rtt: RoundTrip, w: &mut PacketWriter<'_, '_>) {
        if self.update_pending && w.remaining() >= MAX_DATA_MAX_LEN {
            self.update_pending = false;
            write_max_data(w.w, self.credit.update(now, rtt));
            w.record(SentFrame::MaxData);
        }
    }

    /// The newest limit is told again (RFC 9000 §13.3).
    pub(crate) fn on_max_data_lost(&mut self) {
        self.update_pending = true;
    }
}

/// Whether a window that is soon consumed is too small: a queue lengthens the round trip, and so
/// makes any window look small. It is small if it is gone within few of the shortest round trips,
/// or if more is coming than ever; and where that does not tell, a larger one is tried for a while.
#[derive(Debug, Default)]
struct Tuning {
    /// Most bytes per second between two updates, slowly forgotten.
    best_rate: u64,
    /// Updates in doubt since the last trial.
    doubts: u32,
    trial: Option<Trial>,
}

/// A window doubled on trial.
#[derive(Debug)]
struct Trial {
    window: u64,
    /// The best rate before.
    rate: u64,
    updates: u32,
}

impl Tuning {
    /// Updates in doubt before a trial, and updates that a trial lasts.
    const DOUBTS: u32 = 32;
    const TRIAL: u32 = 12;

    fn on_rate(&mut self, rate: u64) {
        // A trial that brings more was right.
        if self
            .trial
            .as_ref()
            .is_some_and(|t| rate > t.rate + t.rate / 4)
        {
            self.trial = None;
            self.doubts = Self::DOUBTS;
        }
    }

    /// The window is larger than what arrives in two round trips. Returns the one to go on with.
    fn on_ample(&mut self, window: u64) -> u64 {
        self.doubts = 0;
        self.trial.take().map_or(window, |trial| trial.window)
    }

    fn is_rising(&self, rate: u64) -> bool {
        self.best_rate > 0 && rate > self.best_rate.saturating_add(self.best_rate / 4)
    }

    /// The window to go on with.
    fn on_doubtful(&mut self, rate: u64, window: u64) -> u64 {
        if let Some(trial) = &mut self.trial {
            trial.updates += 1;
            if trial.updates < Self::TRIAL {
                return window;
            }
            self.doubts = 0;
            return self.trial.take().map_or(window, |trial| trial.window);
        }
        self.doubts += 1;
        if self.doubts < Self::DOUBTS {
            return window;
        }
        let rate = rate.max(self.best_rate);
        self.trial = Some(Trial {
            window,
            rate,
            updates: 0,
        });
        window * 2
    }

    fn remember(&mut self, rate: u64) {
        self.best_rate = rate.max(self.best_rate - self.best_rate / 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_consumed_within_two_round_trips_doubles_up_to_its_maximum() {
        let rtt = Duration::from_millis(100);
        let round_trip = RoundTrip {
            smoothed: rtt,
            min: rtt,
            window: 0,
        };
        let mut c = ReceiveCredit::new(1000, 3000);
        c.on_received(Time::ZERO);
        c.consume(200);
        assert!(!c.wants_update());
        c.consume(100);
        assert!(c.wants_update());
        assert_eq!(c.update(Time::ZERO + rtt, round_trip), 2300);
        c.consume(1500);
        assert_eq!(c.update(Time::ZERO + 2 * rtt, round_trip), 4800);
        c.consume(2000);
        assert_eq!(c.update(Time::ZERO + 30 * rtt, round_trip), 6800);
    }

    #[test]
    fn a_window_set_anew_is_granted_at_once_and_one_made_smaller_takes_nothing_back() {
        let rtt = Duration::from_millis(100);
        let round_trip = RoundTrip {
            smoothed: rtt,
            min: rtt,
            window: 0,
        };
        let mut c = ReceiveCredit::new(1000, 1 << 20);
        c.on_received(Time::ZERO);
        c.set_window(5000);
        assert_eq!(c.update(Time::ZERO + rtt, round_trip), 5000);
        c.set_window(100);
        assert_eq!(c.update(Time::ZERO + rtt, round_trip), 5000);
        c.consume(4900);
        assert_eq!(c.update(Time::ZERO + rtt, round_trip), 5000);
        assert!(!c.wants_update_beside_unread(4900), "nothing to give");
        // All that is advertised is used up: 100 bytes at a time from here on, however fast they go.
        for n in 1..50 {
            c.consume(100);
            assert!(c.wants_update_beside_unread(c.consumed()));
            let now = Time::ZERO + rtt + Duration::from_micros(n);
            assert_eq!(c.update(now, round_trip), c.consumed() + 100);
        }
    }

    #[test]
    fn a_window_of_any_size_is_granted_within_what_a_varint_holds() {
        let rtt = Duration::from_millis(100);
        let round_trip = RoundTrip {
            smoothed: rtt,
            min: rtt,
            window: 0,
        };
        let mut window = ConnectionWindow::new(1000, 1000);
        window.on_data(Time::ZERO, 100);
        window.return_credit(100);
        assert!(!window.has_pending());
        window.set_window(u64::MAX);
        assert!(window.has_pending());
        assert_eq!(window.credit.update(Time::ZERO, round_trip), MAX_VARINT);
        window.set_window(u64::MAX);
        window.return_credit(0);
        assert_eq!(window.credit.update(Time::ZERO, round_trip), MAX_VARINT);
        assert!(!window.credit.wants_update_beside_unread(MAX_VARINT));
    }

    #[test]
    fn a_turn_is_what_the_path_carries_in_a_millisecond_and_at_most_a_quarter_train() {
        let turn = |window, micros| {
            let smoothed = Duration::from_micros(micros);
            let min = smoothed;
            RoundTrip {
                smoothed,
                min,
                window,
            }
            .turn()
        };
        assert_eq!(turn(12_000, 20_000), 600);
        assert_eq!(turn(200_000, 20_000), 10_000);
        assert_eq!(turn(2_000_000, 20_000), MAX_TURN);
        assert_eq!(turn(12_000, 0), MAX_TURN);
        assert!(turn(u64::MAX, u64::MAX) <= 1);
    }

    #[test]
    fn blocked_is_reported_once_for_each_limit() {
        let mut c = SendCredit::default();
        assert!(c.raise(10));
        c.consume(10);
        assert_eq!(c.take_blocked_report(), Some(10));
        assert_eq!(c.take_blocked_report(), None);
        assert!(!c.raise(5));
        assert!(c.raise(20));
        c.consume(10);
        assert_eq!(c.take_blocked_report(), Some(20));
    }

    #[test]
    fn a_queue_that_makes_round_trips_longer_does_not_make_windows_longer() {
        let ms = Duration::from_millis;
        let mut c = ReceiveCredit::new(1000, 1 << 40);
        c.on_received(Time::ZERO);
        let mut now = Time::ZERO;
        // 100 bytes a millisecond, whatever the window: the rest waits in a queue.
        let mut largest = 0;
        for _ in 0..2000 {
            c.consume(c.window / 4);
            now += ms(c.window / 400);
            let waiting = RoundTrip {
                smoothed: ms(c.window / 100),
                min: ms(1),
                window: 0,
            };
            c.update(now, waiting);
            largest = c.window.max(largest);
        }
        assert!(
            c.window <= 2000 && largest <= 4000,
            "{} {largest}",
            c.window
        );
    }

    #[test]
    fn a_path_that_became_longer_gets_a_longer_window() {
        let ms = Duration::from_millis;
        let longer = RoundTrip {
            smoothed: ms(165),
            min: ms(10),
            window: 0,
        };
        let mut c = ReceiveCredit::new(1 << 20, 4 << 20);
        c.on_received(Time::ZERO);
        let mut now = Time::ZERO;
        // One window a round trip, whatever its size.
        for _ in 0..300 {
            c.consume(c.window / 4);
            now += ms(165) / 4;
            c.update(now, longer);
        }
        assert_eq!(c.window, 4 << 20);
    }
}
