//! One direction of a path: datagrams go in with `push`, come out of `poll` when they are due.
//!
//! Owns the way from the bottleneck's queue to the arrival, and the counters. Called by [`Network`]
//! on virtual time and by the relay on real time. Never looks at a clock or an address.
//!
//! The way of a datagram; chance is drawn at 1, the queue is worked off lazily at exact times:
//! 1. admission: MTU, memory cap, policer, tail drop, RED;
//! 2. what the medium will take or change: drop list, loss model, corruption, truncation;
//! 3. the queue: the wait, and what CoDel drops or marks at its head;
//! 4. serialisation at the bottleneck's rate, possibly into a blackout;
//! 5. arrival: ECN bits rewritten, delay, jitter, order, reordering, a duplicate.
//!
//! [`Network`]: crate::Network

use core::cmp::Ordering;
use core::time::Duration;
use std::collections::BinaryHeap;

use towline_wire::Time;

use crate::aqm::{Coming, Verdict};
use crate::bottleneck::{Bucket, Queue, Transmitter, Waiting};
use crate::datagram::MAX_QUOTED_BYTES;
use crate::faults::{Fate, Faults};
use crate::stats::{DelayHistogram, QueueMeasure};
use crate::{Aqm, Datagram, LinkConfig, LinkConfigError, LinkStats, TooBig};

/// Most bytes one link holds in its queue and in flight; what comes on top is dropped.
/// Reached only where a link has delay but no rate, or a queue larger than this.
pub const MAX_HELD_BYTES: usize = 256 << 20;

/// What one held datagram counts towards [`MAX_HELD_BYTES`] besides its payload.
pub const HELD_DATAGRAM_OVERHEAD: usize = 128;

/// A seeded link in one direction.
///
/// Times given to it should not decrease; an earlier one is taken as the latest seen.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    faults: Faults,
    latest: Time,
    bucket: Bucket,
    queue: Queue,
    transmitter: Transmitter,
    /// Bytes being serialised, not yet in `bytes_out`.
    serialising: u64,
    in_flight: BinaryHeap<InFlight>,
    held_bytes: usize,
    next_sequence: u64,
    last_arrival: Time,
    stats: LinkStats,
    measure: Span,
}

/// What [`Link::take_measure`] has not told yet.
#[derive(Debug, Default)]
struct Span {
    from: Time,
    bytes_out_before: u64,
    delays: DelayHistogram,
}

impl Link {
    /// A link called `name` in the world of `seed`. Links of one world need different names, else
    /// they make the same random choices.
    ///
    /// # Errors
    /// The configuration is impossible: see [`LinkConfig::validate`].
    pub fn new(config: LinkConfig, seed: u64, name: &str) -> Result<Self, LinkConfigError> {
        config.validate()?;
        Ok(Self {
            config: sorted(config),
            faults: Faults::new(seed, name),
            latest: Time::ZERO,
            bucket: Bucket::default(),
            queue: Queue::default(),
            transmitter: Transmitter::default(),
            serialising: 0,
            in_flight: BinaryHeap::new(),
            held_bytes: 0,
            next_sequence: 0,
            last_arrival: Time::ZERO,
            stats: LinkStats::default(),
            measure: Span::default(),
        })
    }

    /// Hands a datagram to the link at `now`. Returns what its sender is to be told, if anything.
    pub fn push(&mut self, now: Time, mut datagram: Datagram) -> Option<TooBig> {
        self.advance(now);
        let now = self.latest;
        let payload_len = datagram.payload.len();
        self.stats.datagrams_in += 1;
        self.stats.bytes_in += payload_len as u64;
        let fate = self.faults.draw(&self.config, payload_len);

        if let Some(mtu) = self.config.mtu_at(now).filter(|mtu| payload_len > *mtu) {
            self.stats.drops.mtu += 1;
            return self.config.icmp.then(|| too_big(datagram, mtu));
        }
        let size = payload_len as u64 + u64::from(self.config.overhead);
        let start = self.admit(now, size, &fate, &mut datagram)?;
        let doomed = self.is_taken(&fate);
        if doomed {
            datagram.payload = Vec::new();
        } else {
            self.deform(&mut datagram.payload, &fate);
        }
        if self.config.service().is_none() {
            self.pass(size);
            if !doomed {
                self.leave(now, &fate, datagram);
            }
            return None;
        }
        self.held_bytes += held_bytes(datagram.payload.len());
        let coming = Waiting {
            since: now,
            size,
            fate,
            doomed,
            datagram,
        };
        if start > now {
            self.queue.push(coming);
            let peak = &mut self.stats.queue_peak_bytes;
            *peak = (*peak).max(self.queue.bytes());
        } else {
            self.leave_queue(now, coming);
        }
        None
    }

    /// The next datagram that has arrived by `now`, if any.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        self.advance(now);
        if self.in_flight.peek()?.arrival > self.latest {
            return None;
        }
        let datagram = self.in_flight.pop()?.datagram;
        self.held_bytes -= held_bytes(datagram.payload.len());
        self.stats.datagrams_delivered += 1;
        self.stats.bytes_delivered += datagram.payload.len() as u64;
        Some(datagram)
    }

    /// When `poll` next has work: mostly a datagram, sometimes only one that waited and is lost
    /// after all. `None` if nothing is inside.
    pub fn next_timeout(&self) -> Option<Time> {
        let arrival = self.in_flight.peek().map(|next| next.arrival);
        // Nothing that waits arrives sooner, so its start needs no turn of its own.
        let start = self.next_start().map(|start| start + self.config.delay);
        match (arrival, start) {
            (Some(arrival), Some(start)) => Some(arrival.min(start)),
            (one, other) => one.or(other),
        }
    }

    /// Brings queue and counters up to `now` without taking anything out; `push` and `poll` do the same.
    #[inline]
    pub fn advance(&mut self, now: Time) {
        self.latest = self.latest.max(now);
        if self.serialising > 0 || self.queue.len() > 0 {
            self.work_off_queue();
        }
    }

    fn work_off_queue(&mut self) {
        while let Some(start) = self.next_start()
            && start <= self.latest
        {
            if let Some(waiting) = self.queue.pop() {
                self.leave_queue(start, waiting);
            }
        }
        if self.serialising > 0 && self.transmitter.departure() <= self.latest {
            self.stats.bytes_out += core::mem::take(&mut self.serialising);
        }
    }

    /// Changes the link from `now` on, also for what waits in its queue, which is not cut to a
    /// smaller limit. What is being serialised or in flight keeps its arrival time; the counters
    /// and the random choices go on.
    ///
    /// # Errors
    /// The configuration is impossible; the link stays as it was.
    pub fn set_config(&mut self, now: Time, config: LinkConfig) -> Result<(), LinkConfigError> {
        config.validate()?;
        self.advance(now);
        if config.rate != self.config.rate || config.schedule != self.config.schedule {
            self.transmitter.change_rate(self.latest);
        }
        if config.aqm != self.config.aqm {
            self.queue.change_discipline();
        }
        if config.policer != self.config.policer {
            self.bucket = Bucket::default();
        }
        self.config = sorted(config);
        // What waits may be free to go.
        self.advance(now);
        Ok(())
    }

    /// The current configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The counters, as of the latest time the link was given.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// What the bottleneck did since the last call, or since the start; the next call goes on from `now`.
    pub fn take_measure(&mut self, now: Time) -> QueueMeasure {
        self.advance(now);
        let next = Span {
            from: self.latest,
            bytes_out_before: self.stats.bytes_out,
            delays: DelayHistogram::default(),
        };
        let done = core::mem::replace(&mut self.measure, next);
        QueueMeasure {
            from: done.from,
            to: self.latest,
            bytes_out: self.stats.bytes_out - done.bytes_out_before,
            queue_bytes: self.queue.bytes(),
            queue_peak_bytes: self.queue.take_peak(),
            delays: done.delays,
        }
    }

    /// Bytes (payload and overhead) that wait for the bottleneck at `now`, without the datagram
    /// being serialised. What CoDel may drop until a `now` the link has not been brought to counts.
    pub fn queue_bytes(&self, now: Time) -> u64 {
        let now = now.max(self.latest);
        let mut bytes = self.queue.bytes();
        let Some(service) = self.config.service() else {
            return bytes;
        };
        let mut transmitter = self.transmitter;
        for waiting in self.queue.iter() {
            if transmitter.start(waiting.since, service) > now {
                break;
            }
            transmitter.transmit(waiting.since, waiting.size, service);
            bytes -= waiting.size;
        }
        bytes
    }

    /// Datagrams inside the link, those in the queue included.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len() + self.queue.len()
    }

    /// When a datagram starts to leave, or `None` if it does not get in.
    fn admit(
        &mut self,
        now: Time,
        size: u64,
        fate: &Fate,
        datagram: &mut Datagram,
    ) -> Option<Time> {
        let payload_len = datagram.payload.len();
        if !self.has_room(payload_len) {
            self.stats.drops.capacity += 1;
            return None;
        }
        if let Some(policer) = &self.config.policer
            && !self.bucket.take(policer, now, size)
        {
            self.stats.drops.policer += 1;
            return None;
        }
        let Some(service) = self.config.service() else {
            return Some(now);
        };
        let start = self.transmitter.start(now, service);
        // RED's average counts those as well that find the queue full.
        let verdict = self.judge_coming(now, size, fate, datagram);
        if verdict == Verdict::Drop {
            self.stats.drops.aqm += 1;
            return None;
        }
        if start > now && !self.queue.has_room(size, self.config.queue_limit()) {
            self.stats.drops.queue += 1;
            return None;
        }
        if verdict == Verdict::Mark {
            self.stats.ce_marks += u64::from(datagram.mark_congestion());
        }
        Some(start)
    }

    /// RED's verdict on a datagram that comes.
    fn judge_coming(&mut self, now: Time, size: u64, fate: &Fate, datagram: &Datagram) -> Verdict {
        if !matches!(self.config.aqm, Aqm::Red { .. }) {
            return Verdict::Pass;
        }
        let free = self.transmitter.departure();
        let rate = self.config.typical_rate().max(1);
        let service = u128::from(size) * 8 * 1_000_000_000 / u128::from(rate);
        let coming = Coming {
            now,
            backlog: self.queue.bytes(),
            idle_since: (self.queue.len() == 0 && free <= now).then_some(free),
            service: Duration::from_nanos(u64::try_from(service).unwrap_or(u64::MAX)),
            markable: self.config.ecn && datagram.is_ecn_capable(),
            luck: fate.red_luck,
        };
        self.queue.on_coming(&self.config.aqm, &coming)
    }

    fn is_taken(&mut self, fate: &Fate) -> bool {
        let drops = &mut self.stats.drops;
        let cause = if self
            .config
            .drop_list
            .binary_search(&self.stats.datagrams_in)
            .is_ok()
        {
            &mut drops.listed
        } else if fate.lost {
            &mut drops.loss
        } else {
            return false;
        };
        *cause += 1;
        true
    }

    fn deform(&mut self, payload: &mut Vec<u8>, fate: &Fate) {
        if let Some(bit) = fate.flipped_bit
            && let Some(byte) = payload.get_mut(bit / 8)
        {
            *byte ^= 1 << (bit % 8);
            self.stats.corrupted += 1;
        }
        if let Some(len) = fate.cut_to {
            payload.truncate(len);
            self.stats.truncated += 1;
        }
    }

    /// When the first that waits starts to leave, as things are.
    fn next_start(&self) -> Option<Time> {
        let head = self.queue.head()?;
        Some(match self.config.service() {
            Some(service) => self.transmitter.start(head.since, service),
            // The bottleneck is gone.
            None => self.latest,
        })
    }

    /// At `start` the bottleneck is free for a datagram that is in the queue no more.
    fn leave_queue(&mut self, start: Time, mut waiting: Waiting) {
        self.held_bytes -= held_bytes(waiting.datagram.payload.len());
        let Some(service) = self.config.service() else {
            self.pass(waiting.size);
            if !waiting.doomed {
                self.leave(start, &waiting.fate, waiting.datagram);
            }
            return;
        };
        let (aqm, ecn) = (&self.config.aqm, self.config.ecn);
        match self.queue.on_leaving(aqm, ecn, start, &waiting) {
            Verdict::Drop => {
                // A doomed one is in the counters already.
                self.stats.drops.aqm += u64::from(!waiting.doomed);
                return;
            }
            Verdict::Mark => self.stats.ce_marks += u64::from(waiting.datagram.mark_congestion()),
            Verdict::Pass => {}
        }
        let delay = start.saturating_duration_since(waiting.since);
        self.measure.delays.record(delay);
        self.stats.queue_delay_total = self.stats.queue_delay_total.saturating_add(delay);
        self.stats.datagrams_out += 1;
        // The one before has left by now.
        self.stats.bytes_out += core::mem::replace(&mut self.serialising, waiting.size);
        let departure = self
            .transmitter
            .transmit(waiting.since, waiting.size, service);
        if !waiting.doomed {
            self.leave(departure, &waiting.fate, waiting.datagram);
        }
    }

    /// Counts what meets no bottleneck.
    fn pass(&mut self, size: u64) {
        self.stats.bytes_out += size;
        self.stats.datagrams_out += 1;
    }

    /// The last bit leaves the bottleneck at `departure`.
    fn leave(&mut self, departure: Time, fate: &Fate, mut datagram: Datagram) {
        if self.config.is_blacked_out(departure) {
            self.stats.drops.blackout += 1;
            return;
        }
        if let Some(rewrite) = self.config.ecn_rewrite {
            self.stats.ecn_rewritten += u64::from(datagram.rewrite_ecn(rewrite.bits()));
        }
        let arrival = self.arrival(departure, fate);
        let copy = fate.duplicate.then(|| datagram.clone());
        self.launch(arrival, datagram);
        if let Some(copy) = copy
            && self.has_room(copy.payload.len())
        {
            self.stats.duplicated += 1;
            self.launch(arrival, copy);
        }
    }

    fn arrival(&mut self, departure: Time, fate: &Fate) -> Time {
        let mut arrival = departure + self.config.delay + fate.jitter;
        if fate.reordered {
            self.stats.reordered += 1;
            // The others do not wait for it: `last_arrival` stays.
            return arrival + self.config.reorder_delay;
        }
        if self.config.keep_order {
            arrival = arrival.max(self.last_arrival);
        }
        self.last_arrival = self.last_arrival.max(arrival);
        arrival
    }

    fn launch(&mut self, arrival: Time, datagram: Datagram) {
        self.held_bytes += held_bytes(datagram.payload.len());
        self.in_flight.push(InFlight {
            arrival,
            sequence: self.next_sequence,
            datagram,
        });
        self.next_sequence += 1;
    }

    fn has_room(&self, payload_len: usize) -> bool {
        self.held_bytes.saturating_add(held_bytes(payload_len)) <= MAX_HELD_BYTES
    }
}

/// What the sender of a dropped datagram is told.
fn too_big(mut datagram: Datagram, mtu: usize) -> TooBig {
    datagram.payload.truncate(MAX_QUOTED_BYTES);
    TooBig {
        source: datagram.source,
        destination: datagram.destination,
        mtu,
        quoted: datagram.payload,
    }
}

fn held_bytes(payload_len: usize) -> usize {
    payload_len.saturating_add(HELD_DATAGRAM_OVERHEAD)
}

/// The drop list is searched by bisection.
fn sorted(mut config: LinkConfig) -> LinkConfig {
    config.drop_list.sort_unstable();
    config
}

/// A datagram on its way; ordered so that the heap's greatest arrives first, ties as pushed.
#[derive(Debug)]
struct InFlight {
    arrival: Time,
    sequence: u64,
    datagram: Datagram,
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival, other.sequence).cmp(&(self.arrival, self.sequence))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for InFlight {}

#[cfg(test)]
mod tests;
