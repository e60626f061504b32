//! What one direction of a path does to datagrams, as plain numbers, and which of them are
//! impossible. Filled in by the lab, by `Profile`, or from text (see the `FromStr` of
//! [`LinkConfig`]); read by `Link`, which refuses a configuration that does not validate.

use core::ops::Range;
use core::time::Duration;

use towline_wire::Time;

use crate::aqm::Aqm;
use crate::error::LinkConfigError;
use crate::schedule::{RateSchedule, Service};

/// How much later a reordered datagram arrives when nothing else is said.
pub const DEFAULT_REORDER_DELAY: Duration = Duration::from_millis(5);

/// Least queue of a rate-limited link whose queue is not given, in bytes.
pub const MIN_DEFAULT_QUEUE_BYTES: u64 = 64 * 1024;

/// Shortest round trip a queue is sized for when it is not given.
const MIN_DEFAULT_QUEUE_TIME: Duration = Duration::from_millis(100);

/// Which datagrams the medium loses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossModel {
    /// None.
    #[default]
    None,
    /// Each with this probability, independently.
    Bernoulli(f64),
    /// Losses in bursts: a two-state chain that steps once per datagram (Gilbert 1960, Elliott 1963).
    GilbertElliott {
        /// Probability of going from the good state to the bad one.
        enter_bad: f64,
        /// Probability of going back; above 0.
        leave_bad: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
}

impl LossModel {
    fn validate(&self) -> Result<(), LinkConfigError> {
        match *self {
            Self::None => Ok(()),
            Self::Bernoulli(p) => check_probability("loss", p),
            Self::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_good,
                loss_bad,
            } => {
                for p in [enter_bad, leave_bad, loss_good, loss_bad] {
                    check_probability("loss", p)?;
                }
                match leave_bad > 0.0 {
                    true => Ok(()),
                    false => Err(LinkConfigError::new(
                        "loss",
                        "the bad state would never be left",
                    )),
                }
            }
        }
    }

    /// The share of datagrams lost in the long run, 0 to 1.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Bernoulli(p) => p,
            Self::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_good,
                loss_bad,
            } => {
                let bad = enter_bad / (enter_bad + leave_bad);
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }
}

/// A token bucket in front of the queue that drops what exceeds it. Sizes include the overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bits per second that pass in the long run.
    pub rate: u64,
    /// Bytes that pass at once after a silence; a longer datagram never does.
    pub burst: u64,
}

/// What a link makes of the ECN bits of datagrams that are ECN-capable, once they are behind its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnRewrite {
    /// Clears them, marks included, as routers do that take the field for the old type of service.
    Bleach,
    /// All become ECT(0): marks are lost.
    Ect0,
    /// All become ECT(1).
    Ect1,
    /// All become CE.
    Ce,
}

impl EcnRewrite {
    /// The two bits (RFC 3168 §5).
    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::Bleach => 0b00,
            Self::Ect0 => 0b10,
            Self::Ect1 => 0b01,
            Self::Ce => 0b11,
        }
    }
}

/// One direction of a path. The default is a perfect link: no rate, no delay, no fault.
///
/// What happens to a datagram, in this order: MTU, policer and queue may refuse it; it waits until
/// the bottleneck is free, where the queue's discipline may mark or drop it, and is serialised at
/// `rate` or as `schedule` says; then the drop list, the loss model or a blackout may take it; it
/// may be corrupted and truncated, and its ECN bits rewritten; it arrives after `delay` + jitter,
/// later if reordered, twice if duplicated. All probabilities are 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bottleneck rate in bits per second; `None` is infinitely fast.
    pub rate: Option<u64>,
    /// A bottleneck rate that changes with time, in place of `rate`.
    pub schedule: Option<RateSchedule>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Each datagram is late by a further uniform 0 to `jitter`, so `delay` stays the minimum.
    pub jitter: Duration,
    /// Whether jitter keeps datagrams in order (as a queue would). `reorder` is exempt.
    pub keep_order: bool,
    /// Bytes that may wait for the bottleneck, not counting the datagram being serialised; tail drop.
    /// `None` is one bandwidth-delay product of the round trip: see [`Self::queue_limit`].
    pub queue: Option<u64>,
    /// What the queue drops or marks before it is full.
    pub aqm: Aqm,
    /// Whether `aqm` marks ECN-capable datagrams where it would drop others.
    pub ecn: bool,
    /// What may come to the queue at all.
    pub policer: Option<Policer>,
    /// Bytes charged to rate and queue per datagram besides its payload, such as 28 for IPv4 + UDP.
    pub overhead: u32,
    /// Losses of the medium.
    pub loss: LossModel,
    /// Datagrams to drop by their place among those pushed; the first is 1.
    pub drop_list: Vec<u64>,
    /// Probability of arriving twice.
    pub duplicate: f64,
    /// Probability of being held back by `reorder_delay`, so that later ones overtake.
    pub reorder: f64,
    /// How much later a reordered datagram arrives.
    pub reorder_delay: Duration,
    /// Probability of one flipped bit. Datagrams have no checksum here, so the receiver gets it.
    pub corrupt: f64,
    /// For a link that carries whole IP packets: their checksums are made right at its end, so that
    /// the receiver gets what was corrupted.
    pub mend: bool,
    /// Probability of losing a random part of the end.
    pub truncate: f64,
    /// Times at which what leaves the queue is lost.
    pub blackouts: Vec<Range<Time>>,
    /// Longest payload that passes; longer ones vanish without a word unless `icmp` is set.
    pub mtu: Option<usize>,
    /// Other values of `mtu` from some time on, in order of time. A smaller one is a black hole
    /// unless `icmp` is set.
    pub mtu_steps: Vec<(Time, usize)>,
    /// Whether the sender of a datagram that is too long is told: see [`TooBig`](crate::TooBig).
    pub icmp: bool,
    /// What becomes of ECN bits.
    pub ecn_rewrite: Option<EcnRewrite>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            schedule: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            keep_order: true,
            queue: None,
            aqm: Aqm::DropTail,
            ecn: false,
            policer: None,
            overhead: 0,
            loss: LossModel::None,
            drop_list: Vec::new(),
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: DEFAULT_REORDER_DELAY,
            corrupt: 0.0,
            mend: false,
            truncate: 0.0,
            blackouts: Vec::new(),
            mtu: None,
            mtu_steps: Vec::new(),
            icmp: false,
            ecn_rewrite: None,
        }
    }
}

impl LinkConfig {
    /// The queue's limit in bytes: as given, else what the rate (of a schedule the mean if it
    /// repeats, else the highest) carries in a round trip of twice the delay (at least 100 ms),
    /// at least [`MIN_DEFAULT_QUEUE_BYTES`].
    pub fn queue_limit(&self) -> u64 {
        if let Some(limit) = self.queue {
            return limit;
        }
        let round_trip = self.delay.saturating_mul(2).max(MIN_DEFAULT_QUEUE_TIME);
        let bits = round_trip
            .as_nanos()
            .saturating_mul(u128::from(self.typical_rate()));
        let bytes = bits / 1_000_000_000 / 8;
        u64::try_from(bytes)
            .unwrap_or(u64::MAX)
            .max(MIN_DEFAULT_QUEUE_BYTES)
    }

    /// The rate, for estimates; 0 without one.
    pub(crate) fn typical_rate(&self) -> u64 {
        let scheduled = self.schedule.as_ref().map(RateSchedule::typical_rate);
        self.rate.or(scheduled).unwrap_or(0)
    }

    /// How fast the bottleneck is, if there is one.
    pub(crate) fn service(&self) -> Option<Service<'_>> {
        let scheduled = || self.schedule.as_ref().map(Service::Scheduled);
        self.rate.map(Service::Constant).or_else(scheduled)
    }

    /// Adds a blackout of `length` from `start` on.
    #[must_use]
    pub fn with_blackout(mut self, start: Time, length: Duration) -> Self {
        self.blackouts.push(start..start + length);
        self
    }

    /// Whether a datagram leaving the queue at `time` falls into a blackout.
    pub fn is_blacked_out(&self, time: Time) -> bool {
        self.blackouts.iter().any(|window| window.contains(&time))
    }

    /// Adds another MTU from `time` on.
    #[must_use]
    pub fn with_mtu_from(mut self, time: Time, mtu: usize) -> Self {
        self.mtu_steps.push((time, mtu));
        self
    }

    /// The longest payload that passes at `time`; `None` if all do.
    pub fn mtu_at(&self, time: Time) -> Option<usize> {
        let begun = self.mtu_steps.partition_point(|(from, _)| *from <= time);
        match begun.checked_sub(1) {
            Some(last) => Some(self.mtu_steps[last].1),
            None => self.mtu,
        }
    }

    /// Refuses what no link can do.
    ///
    /// # Errors
    /// Names the first setting that is impossible, and why.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        self.validate_each()?;
        self.validate_together()
    }

    /// Refuses settings that contradict each other.
    pub(crate) fn validate_together(&self) -> Result<(), LinkConfigError> {
        let fail = |item: &str, problem: &str| Err(LinkConfigError::new(item, problem));
        let managed = self.aqm != Aqm::DropTail;
        if self.rate.is_some() && self.schedule.is_some() {
            return fail("steps", "is a rate as well; give either rate or steps");
        }
        if managed && self.service().is_none() {
            return fail(
                "aqm",
                "nothing ever waits without a bottleneck; add rate or steps",
            );
        }
        if self.ecn && !managed {
            return fail("ecn", "a queue that drops its tail marks nothing; add aqm");
        }
        if matches!(self.aqm, Aqm::Step(_)) && !self.ecn {
            return fail("aqm", "a step only marks; add ecn=on");
        }
        if self.icmp && self.mtu.is_none() && self.mtu_steps.is_empty() {
            return fail("icmp", "nothing is ever too big; add mtu");
        }
        if self.mend && self.corrupt == 0.0 {
            return fail("mend", "nothing is ever corrupted; add corrupt");
        }
        Ok(())
    }

    /// Refuses settings that are impossible whatever the others are.
    pub(crate) fn validate_each(&self) -> Result<(), LinkConfigError> {
        let require = |possible: bool, item: &str, problem: &str| {
            if possible {
                Ok(())
            } else {
                Err(LinkConfigError::new(item, problem))
            }
        };
        require(
            self.rate != Some(0),
            "rate",
            "a rate of 0 carries nothing; use a blackout or loss",
        )?;
        require(
            self.queue != Some(0),
            "queue",
            "a queue of 0 bytes holds nothing; leave it out for the default",
        )?;
        self.aqm.validate()?;
        require(
            self.policer.is_none_or(|policer| policer.rate > 0),
            "police",
            "a rate of 0 lets nothing through; use a blackout or loss",
        )?;
        require(
            self.policer.is_none_or(|policer| policer.burst > 0),
            "police",
            "a burst of 0 bytes lets nothing through",
        )?;
        let mtus = self.mtu_steps.iter().map(|step| step.1).chain(self.mtu);
        require(
            !mtus.into_iter().any(|mtu| mtu == 0),
            "mtu",
            "an MTU of 0 carries nothing",
        )?;
        require(
            self.mtu_steps.is_sorted_by(|a, b| a.0 < b.0),
            "mtu",
            "its times must rise",
        )?;
        require(
            !self.drop_list.contains(&0),
            "drop",
            "datagrams are counted from 1",
        )?;
        for (item, probability) in [
            ("dup", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("truncate", self.truncate),
        ] {
            check_probability(item, probability)?;
        }
        self.loss.validate()?;
        require(
            self.reorder == 0.0 || !self.reorder_delay.is_zero(),
            "reorder",
            "an extra delay of 0 reorders nothing",
        )?;
        require(
            self.blackouts
                .iter()
                .all(|window| window.start < window.end),
            "blackout",
            "ends before it starts, or lasts no time",
        )
    }
}

fn check_probability(item: &str, probability: f64) -> Result<(), LinkConfigError> {
    // NaN is in no range, so it is refused as well.
    if (0.0..=1.0).contains(&probability) {
        Ok(())
    } else {
        Err(LinkConfigError::new(
            item,
            format!("the probability {probability} is not between 0 and 1 (0% and 100%)"),
        ))
    }
}

#[cfg(test)]
mod tests;
