//! One direction of a path: datagrams go in with `push`, come out of `poll` when they are due.
//!
//! Owns the bottleneck's queue, what is in flight, and the link's faults. Called by [`Network`]
//! on virtual time and by the relay on real time. Never looks at a clock or an address.
//!
//! The way of a datagram, all decided when it is pushed:
//! 1. admission: MTU, memory cap, tail drop;
//! 2. serialisation at the bottleneck's rate;
//! 3. what the medium takes: drop list, blackout, loss model;
//! 4. what the medium changes: corruption, truncation;
//! 5. arrival: delay, jitter, order, reordering, a duplicate.
//!
//! [`Network`]: crate::Network

use core::cmp::Ordering;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use towline_wire::Time;

use crate::rng::Draw;
use crate::{Datagram, LinkConfig, LinkConfigError, LinkStats, LossModel};

/// Most bytes one link holds in its queue and in flight; what comes on top is dropped.
/// Reached only where a link has delay but no rate, or a queue larger than this.
pub const MAX_HELD_BYTES: usize = 256 << 20;

/// What one held datagram counts towards [`MAX_HELD_BYTES`] besides its payload.
pub const HELD_DATAGRAM_OVERHEAD: usize = 128;

/// A seeded link in one direction.
///
/// Times given to `push` and `poll` should not decrease; an earlier one is taken as the latest seen.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    faults: Faults,
    latest: Time,
    bottleneck: Bottleneck,
    in_flight: BinaryHeap<InFlight>,
    held_bytes: usize,
    next_sequence: u64,
    last_arrival: Time,
    stats: LinkStats,
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
            bottleneck: Bottleneck::default(),
            in_flight: BinaryHeap::new(),
            held_bytes: 0,
            next_sequence: 0,
            last_arrival: Time::ZERO,
            stats: LinkStats::default(),
        })
    }

    /// Hands a datagram to the link at `now`.
    pub fn push(&mut self, now: Time, mut datagram: Datagram) {
        self.latest = self.latest.max(now);
        let now = self.latest;
        self.stats.datagrams_in += 1;
        self.stats.bytes_in += datagram.payload.len() as u64;
        let fate = self.faults.draw(&self.config, datagram.payload.len());

        let Some(departure) = self.admit(now, datagram.payload.len()) else {
            return;
        };
        if self.is_taken(departure, &fate) {
            return;
        }
        self.deform(&mut datagram.payload, &fate);
        let arrival = self.arrival(departure, &fate);
        let copy = fate.duplicate.then(|| datagram.clone());
        self.launch(arrival, datagram);
        if let Some(copy) = copy
            && self.has_room(copy.payload.len())
        {
            self.stats.duplicated += 1;
            self.launch(arrival, copy);
        }
    }

    /// The next datagram that has arrived by `now`, if any.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        self.latest = self.latest.max(now);
        if self.in_flight.peek()?.arrival > self.latest {
            return None;
        }
        let datagram = self.in_flight.pop()?.datagram;
        self.held_bytes -= held_bytes(datagram.payload.len());
        self.stats.datagrams_delivered += 1;
        self.stats.bytes_delivered += datagram.payload.len() as u64;
        Some(datagram)
    }

    /// When `poll` will next have something, or `None` if nothing is in flight.
    pub fn next_timeout(&self) -> Option<Time> {
        self.in_flight.peek().map(|next| next.arrival)
    }

    /// Changes the link for datagrams pushed from now on; those inside keep their arrival times,
    /// the counters and the random choices go on.
    ///
    /// # Errors
    /// The configuration is impossible; the link stays as it was.
    pub fn set_config(&mut self, config: LinkConfig) -> Result<(), LinkConfigError> {
        config.validate()?;
        if config.rate != self.config.rate {
            self.bottleneck.forget_fraction();
        }
        self.config = sorted(config);
        Ok(())
    }

    /// The current configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The counters.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Bytes (payload and overhead) that wait for the bottleneck at `now`, without the datagram being serialised.
    pub fn queue_bytes(&self, now: Time) -> u64 {
        self.bottleneck.waiting_bytes(now.max(self.latest))
    }

    /// Datagrams inside the link that will still arrive.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The time at which the last bit leaves the queue, or `None` if the datagram does not get in.
    fn admit(&mut self, now: Time, payload_len: usize) -> Option<Time> {
        if self.config.mtu.is_some_and(|mtu| payload_len > mtu) {
            self.stats.drops.mtu += 1;
            return None;
        }
        if !self.has_room(payload_len) {
            self.stats.drops.capacity += 1;
            return None;
        }
        let Some(rate) = self.config.rate else {
            return Some(now);
        };
        let size = payload_len as u64 + u64::from(self.config.overhead);
        let limit = self.config.queue_limit();
        let Some(departure) = self.bottleneck.enqueue(now, size, rate, limit) else {
            self.stats.drops.queue += 1;
            return None;
        };
        let peak = &mut self.stats.queue_peak_bytes;
        *peak = (*peak).max(self.bottleneck.queued_bytes);
        Some(departure)
    }

    fn is_taken(&mut self, departure: Time, fate: &Fate) -> bool {
        let drops = &mut self.stats.drops;
        let cause = if self
            .config
            .drop_list
            .binary_search(&self.stats.datagrams_in)
            .is_ok()
        {
            &mut drops.listed
        } else if self.config.is_blacked_out(departure) {
            &mut drops.blackout
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

fn held_bytes(payload_len: usize) -> usize {
    payload_len.saturating_add(HELD_DATAGRAM_OVERHEAD)
}

/// The drop list is searched by bisection.
fn sorted(mut config: LinkConfig) -> LinkConfig {
    config.drop_list.sort_unstable();
    config
}

/// A first-in-first-out transmitter with a queue in front.
#[derive(Debug, Default)]
struct Bottleneck {
    /// When the last bit of all accepted so far has left, rounded down.
    busy_until: Time,
    /// What was rounded off `busy_until`, in 1/rate nanoseconds: rates stay exact over any number of datagrams.
    fraction: u64,
    /// Start of serialisation and size of what has not started yet (as of the last call).
    queue: VecDeque<(Time, u64)>,
    queued_bytes: u64,
}

impl Bottleneck {
    fn enqueue(&mut self, now: Time, size: u64, rate: u64, limit: u64) -> Option<Time> {
        while let Some(&(start, size)) = self.queue.front()
            && start <= now
        {
            self.queue.pop_front();
            self.queued_bytes -= size;
        }
        if self.busy_until < now {
            self.busy_until = now;
            self.fraction = 0;
        }
        let start = self.departure();
        if start > now {
            let queued_bytes = self.queued_bytes.saturating_add(size);
            if queued_bytes > limit {
                return None;
            }
            self.queued_bytes = queued_bytes;
            self.queue.push_back((start, size));
        }
        // Below 2^64 x 8 x 10^9 + 2^64 < 2^101.
        let bit_nanos = u128::from(size) * 8 * 1_000_000_000 + u128::from(self.fraction);
        let nanos = u64::try_from(bit_nanos / u128::from(rate)).unwrap_or(u64::MAX);
        self.busy_until += Duration::from_nanos(nanos);
        // A remainder is below `rate`, so it fits.
        self.fraction = (bit_nanos % u128::from(rate)) as u64;
        Some(self.departure())
    }

    /// `busy_until` rounded up: a datagram has left when its last bit has.
    fn departure(&self) -> Time {
        self.busy_until + Duration::from_nanos(u64::from(self.fraction > 0))
    }

    fn waiting_bytes(&self, now: Time) -> u64 {
        let started = self.queue.iter().take_while(|(start, _)| *start <= now);
        self.queued_bytes - started.map(|(_, size)| size).sum::<u64>()
    }

    fn forget_fraction(&mut self) {
        self.busy_until = self.departure();
        self.fraction = 0;
    }
}

/// What chance has in store for one datagram.
#[derive(Debug, Default)]
struct Fate {
    lost: bool,
    flipped_bit: Option<usize>,
    cut_to: Option<usize>,
    jitter: Duration,
    reordered: bool,
    duplicate: bool,
}

/// The link's random streams, one per kind of fault, and the loss model's state.
#[derive(Debug)]
struct Faults {
    loss: Draw,
    corrupt: Draw,
    truncate: Draw,
    jitter: Draw,
    reorder: Draw,
    duplicate: Draw,
    in_bad_state: bool,
}

impl Faults {
    fn new(seed: u64, name: &str) -> Self {
        let draw = |stream| Draw::new(seed, name, stream);
        Self {
            loss: draw(0),
            corrupt: draw(1),
            truncate: draw(2),
            jitter: draw(3),
            reorder: draw(4),
            duplicate: draw(5),
            in_bad_state: false,
        }
    }

    /// Draws for every datagram, whatever becomes of it, so that one drop does not shift the rest.
    fn draw(&mut self, config: &LinkConfig, payload_len: usize) -> Fate {
        let lost = self.draw_loss(&config.loss);
        let flipped_bit = (self.corrupt.chance(config.corrupt) && payload_len > 0)
            .then(|| self.corrupt.below(payload_len as u64 * 8) as usize);
        let cut_to = (self.truncate.chance(config.truncate) && payload_len > 0)
            .then(|| self.truncate.below(payload_len as u64) as usize);
        let jitter = u64::try_from(config.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = match jitter {
            0 => 0,
            limit => self.jitter.below(limit.saturating_add(1)),
        };
        Fate {
            lost,
            flipped_bit,
            cut_to,
            jitter: Duration::from_nanos(jitter),
            reordered: self.reorder.chance(config.reorder),
            duplicate: self.duplicate.chance(config.duplicate),
        }
    }

    fn draw_loss(&mut self, model: &LossModel) -> bool {
        match *model {
            LossModel::None => false,
            LossModel::Bernoulli(p) => self.loss.chance(p),
            LossModel::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_good,
                loss_bad,
            } => {
                let change = if self.in_bad_state {
                    leave_bad
                } else {
                    enter_bad
                };
                self.in_bad_state ^= self.loss.chance(change);
                let p = if self.in_bad_state {
                    loss_bad
                } else {
                    loss_good
                };
                self.loss.chance(p)
            }
        }
    }
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
