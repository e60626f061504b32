//! [`Flight`]: the batches that are on their way, until the receiver has decoded them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use towline_wire::Time;

use super::batch::Batch;
use crate::codec::{MAX_IN_FLIGHT, Record};
use crate::message::is_within;
use crate::outgoing::Lane;

/// A batch that was sent.
#[derive(Debug)]
struct Sent {
    batch: Batch,
    /// When it was sent first.
    first: Option<Time>,
    /// Its newest transmission, and when that was.
    last: (u64, Time),
    /// When the peer's transport had it, which does not say that it was decoded.
    acked: Option<Time>,
    held: usize,
}

#[derive(Debug, Default)]
pub(super) struct Flight {
    sent: BTreeMap<u64, Sent>,
    lost: BTreeSet<u64>,
    /// The batch of each transmission that is the newest of its batch and not lost.
    transmissions: BTreeMap<u64, u64>,
    /// Those transmissions by their time, with their batches.
    by_time: BTreeSet<(Time, u64)>,
    /// Those of them that are datagrams. What goes over a stream is late because it is long, and the transport repeats what
    /// it loses of it.
    datagrams: BTreeSet<(Time, u64)>,
    next_transmission: u64,
    /// Batches that the peer's transport had, and when.
    acked: BTreeSet<(Time, u64)>,
    /// The records of batches that were decoded since the last account, and of some before.
    decoded: BTreeMap<u64, Vec<Range<u64>>>,
    held: usize,
}

impl Flight {
    /// Bytes of memory that the records take.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Takes a batch that is about to be sent.
    pub(super) fn insert(&mut self, number: u64, batch: Batch) {
        let held = batch.records.iter().map(Record::memory).sum();
        self.held += held;
        let sent = Sent {
            batch,
            first: None,
            last: (u64::MAX, Time::ZERO),
            acked: None,
            held,
        };
        self.sent.insert(number, sent);
    }

    pub(super) fn get(&self, number: u64) -> Option<&Batch> {
        self.sent.get(&number).map(|sent| &sent.batch)
    }

    /// It is sent now, as a datagram or not; the number of that transmission.
    pub(super) fn on_sent(&mut self, now: Time, number: u64, is_datagram: bool) -> u64 {
        let transmission = self.next_transmission;
        self.next_transmission += 1;
        self.forget(number);
        if let Some(sent) = self.sent.get_mut(&number) {
            sent.first.get_or_insert(now);
            sent.last = (transmission, now);
            self.transmissions.insert(transmission, number);
            self.by_time.insert((now, number));
            if is_datagram {
                self.datagrams.insert((now, number));
            }
        }
        transmission
    }

    /// What was known of its newest transmission is of no use any more.
    fn forget(&mut self, number: u64) {
        self.lost.remove(&number);
        if let Some(sent) = self.sent.get_mut(&number) {
            self.transmissions.remove(&sent.last.0);
            self.by_time.remove(&(sent.last.1, number));
            self.datagrams.remove(&(sent.last.1, number));
            if let Some(acked) = sent.acked.take() {
                self.acked.remove(&(acked, number));
            }
        }
    }

    /// The transport lost a transmission.
    pub(super) fn on_lost(&mut self, transmission: u64) {
        if let Some(number) = self.transmissions.get(&transmission).copied() {
            self.lose(number);
        }
    }

    fn lose(&mut self, number: u64) {
        self.forget(number);
        self.lost.insert(number);
    }

    /// When the oldest of those that are not known to be lost was sent last.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The peer's transport has a transmission.
    pub(super) fn on_acked(&mut self, now: Time, transmission: u64) {
        if let Some(number) = self.transmissions.get(&transmission).copied()
            && let Some(sent) = self.sent.get_mut(&number)
            && sent.acked.is_none()
        {
            sent.acked = Some(now);
            self.acked.insert((now, number));
        }
    }

    /// Those that the peer's transport has had for so long, and that were not decoded, count as lost: the
    /// receiver could make nothing of them, or what it said of them got lost.
    pub(super) fn expire(&mut self, now: Time, patience: Duration) {
        while let Some((acked, number)) = self.acked.first().copied()
            && acked + patience <= now
        {
            self.lose(number);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn expires(&self, patience: Duration) -> Option<Time> {
        self.acked.first().map(|(acked, _)| *acked + patience)
    }

    /// The oldest one that is lost; of those with alarms, if no others may go.
    pub(super) fn take_lost(&mut self, alarms_only: bool) -> Option<u64> {
        if !alarms_only {
            return self.lost.pop_first();
        }
        let is_alarm = |number: &&u64| {
            let sent = self.sent.get(number);
            sent.is_some_and(|sent| sent.batch.lane == Lane::Alarm)
        };
        let number = *self.lost.iter().find(is_alarm)?;
        self.lost.remove(&number);
        Some(number)
    }

    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The receiver has decoded these; when the newest of them was sent first. Which transmission of one arrived can't be
    /// told.
    pub(super) fn on_decoded(&mut self, numbers: Range<u64>) -> Option<Time> {
        let mut newest = None;
        while let Some((number, _)) = self.sent.range(numbers.clone()).next() {
            let number = *number;
            self.forget(number);
            if let Some(sent) = self.sent.remove(&number) {
                self.held -= sent.held;
                newest = newest.max(sent.first);
                self.decoded.insert(number, sent.batch.seqs);
            }
        }
        while self.decoded.len() > MAX_IN_FLIGHT {
            self.decoded.pop_first();
        }
        newest
    }

    /// What was sent by then was overtaken by what has arrived, and counts as lost: the transport would know later, for
    /// its acknowledgements are few.
    pub(super) fn on_overtaken(&mut self, by: Time) {
        while let Some((at, number)) = self.datagrams.first().copied()
            && at <= by
        {
            self.lose(number);
        }
    }

    /// The records of all batches that may have arrived and that an account does not speak of.
    pub(super) fn unspoken<'a>(
        &'a mut self,
        account: &[Range<u64>],
    ) -> impl Iterator<Item = &'a Range<u64>> {
        self.decoded
            .retain(|number, _| !is_within(account, *number));
        let sent = self.sent.values().map(|sent| &sent.batch.seqs);
        self.decoded.values().chain(sent).flatten()
    }

    /// The connection is gone; what was on its way.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Batch> + use<> {
        let sent = std::mem::take(self).sent;
        sent.into_values().map(|sent| sent.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_was_sent_again_has_overtaken_nothing_for_sure() {
        let mut flight = Flight::default();
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        for number in 0..3 {
            let seqs = std::iter::once(number..number + 1).collect();
            let batch = Batch {
                seqs,
                records: std::sync::Arc::from([]),
                lane: Lane::Live,
                replaced: Vec::new(),
            };
            flight.insert(number, batch);
            flight.on_sent(at(number * 100), number, true);
        }
        flight.on_lost(0);
        assert_eq!(flight.take_lost(false), Some(0));
        flight.on_sent(at(900), 0, true);
        // It may be the first transmission that arrived.
        let newest = flight.on_decoded(0..1).unwrap();
        assert_eq!(newest, at(0));
        flight.on_overtaken(newest);
        assert!(!flight.has_lost());
        let newest = flight.on_decoded(2..3).unwrap();
        flight.on_overtaken(newest);
        assert_eq!(flight.take_lost(false), Some(1));
        // A long one is not lost because short ones overtake it.
        flight.on_sent(at(1_000), 1, false);
        flight.on_overtaken(at(5_000));
        assert!(!flight.has_lost() && flight.get(1).is_some());
    }
}
