//! [`Monitor`]: how good a link has been of late, in windows of fixed size.

use std::collections::VecDeque;
use std::time::Duration;

use towline::link::{State, Status};

/// Cap: seconds of which losses are remembered.
const LOSSES: usize = 60;
/// Cap: round trips that are remembered, one a second.
const ROUND_TRIPS: usize = 200;
/// Cap: seconds of which batches sent again are remembered.
const AGAIN: usize = 120;

/// The newest of what was measured.
#[derive(Debug)]
struct Rolling<T> {
    values: VecDeque<T>,
    most: usize,
}

impl<T> Rolling<T> {
    fn new(most: usize) -> Self {
        Self {
            values: VecDeque::new(),
            most,
        }
    }

    fn push(&mut self, value: T) {
        if self.values.len() == self.most {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }
}

/// Counters as of the last second.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    packets: u64,
    lost: u64,
    batches: u64,
    again: u64,
    bytes: u64,
    records: u64,
}

/// What was measured in the last minutes, once a second.
#[derive(Debug)]
pub(super) struct Monitor {
    /// Packets that were sent, and lost.
    losses: Rolling<(u64, u64)>,
    round_trips: Rolling<Duration>,
    /// Batches that were sent, and sent again.
    again: Rolling<(u64, u64)>,
    /// Bytes and records.
    sizes: Rolling<(u64, u64)>,
    before: Before,
    deadline: Duration,
}

impl Monitor {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            losses: Rolling::new(LOSSES),
            round_trips: Rolling::new(ROUND_TRIPS),
            again: Rolling::new(AGAIN),
            sizes: Rolling::new(AGAIN),
            before: Before::default(),
            deadline,
        }
    }

    /// Takes what a second brought.
    pub(super) fn sample(&mut self, status: &Status) {
        let (packets, lost) = status.connection.as_ref().map_or((0, 0), |connection| {
            (connection.packets_sent, connection.packets_lost)
        });
        let now = Before {
            packets,
            lost,
            batches: status.sender.batches,
            again: status.sender.again,
            bytes: status.bytes_sent,
            records: status.sender.sent,
        };
        let before = self.before;
        // A new connection counts from zero.
        if now.packets >= before.packets {
            let sent = now.packets - before.packets;
            self.losses
                .push((sent, now.lost.saturating_sub(before.lost)));
        }
        self.again
            .push((now.batches - before.batches, now.again - before.again));
        self.sizes.push((
            now.bytes.saturating_sub(before.bytes),
            now.records - before.records,
        ));
        if let Some(connection) = &status.connection
            && connection.min_rtt.is_some()
        {
            self.round_trips.push(connection.smoothed_rtt);
        }
        self.before = now;
    }

    /// The share of the packets that were lost; `None` while none was sent.
    pub(super) fn loss(&self) -> Option<f64> {
        share(&self.losses)
    }

    /// Batches sent again for each that was sent.
    pub(super) fn again(&self) -> Option<f64> {
        share(&self.again)
    }

    /// Bytes that a record took, everything counted.
    pub(super) fn bytes_per_record(&self) -> Option<f64> {
        let bytes: u64 = self.sizes.values.iter().map(|(bytes, _)| bytes).sum();
        let records: u64 = self.sizes.values.iter().map(|(_, records)| records).sum();
        (records > 0).then(|| bytes as f64 / records as f64)
    }

    /// The middle one of the round trips, and the one that 19 of 20 do not exceed.
    pub(super) fn round_trips(&self) -> Option<[Duration; 2]> {
        let mut sorted: Vec<Duration> = self.round_trips.values.iter().copied().collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        Some([sorted[last / 2], sorted[last * 19 / 20]])
    }

    /// From 0, which is no link, to 100: the product of three marks. Losses: 1 at none, 0 at one packet in four.
    /// Round trips: 1 at 200 ms or less, 0.5 at 1.2 s, less beyond. Freshness: 1 while nothing waits for longer than
    /// twice the deadline, to be sent or, when a report is overdue, to be heard of; the share of that in its wait
    /// otherwise. `None` while nothing was measured.
    pub(super) fn quality(&self, status: &Status) -> Option<u8> {
        if !matches!(status.state, State::Live(_)) {
            return matches!(status.state, State::Down(_)).then_some(0);
        }
        let losses = 1.0 - 4.0 * self.loss().unwrap_or(0.0).min(0.25);
        let trip = match self.round_trips() {
            Some([_, most]) => 1.0 / (1.0 + (most.as_secs_f64() - 0.2).max(0.0)),
            None => 1.0,
        };
        let bearable = 2.0 * self.deadline.as_secs_f64().max(0.05);
        let waits = status.oldest_unsent.max(status.overdue);
        let waits = waits.map_or(0.0, |wait| wait.as_secs_f64());
        let fresh = (bearable / waits.max(bearable)).min(1.0);
        Some((100.0 * losses * trip * fresh).round() as u8)
    }
}

fn share(window: &Rolling<(u64, u64)>) -> Option<f64> {
    let all: u64 = window.values.iter().map(|(all, _)| all).sum();
    let some: u64 = window.values.iter().map(|(_, some)| some).sum();
    (all > 0).then(|| some as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_keep_the_newest() {
        let mut window = Rolling::new(3);
        for value in 0..10 {
            window.push((value, 0));
        }
        assert_eq!(window.values, [(7, 0), (8, 0), (9, 0)]);
        assert_eq!(share(&window), Some(0.0));
        assert_eq!(share(&Rolling::new(2)), None);
    }
}
