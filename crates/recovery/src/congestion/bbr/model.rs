//! The model of the path: how fast it delivers and how much it holds (draft §2.9, §5.5).
//!
//! `Bbr` feeds it each ACK and loss; it keeps the long-term bounds found by probing, the
//! short-term ones set by losses since, and the latest round's deliveries. It never looks at the
//! state machine beyond "probing or not" and sets no control parameter.

use core::time::Duration;

use towline_wire::Time;

use super::path_loss::{ONE, PathLoss};
use super::units::scale;
use crate::congestion::interface::{AckSample, LostPacket};

/// Share of a round's bytes whose loss says that too much was in flight, in millionths (§2.8).
const LOSS_THRESHOLD: u64 = 20_000;
/// What a round with losses leaves of the short-term bounds, in hundredths (§2.8).
pub(super) const BETA: u64 = 70;
/// Share of `inflight_long` left free while cruising, in hundredths (§2.8).
const HEADROOM: u64 = 15;
/// How long a path that fell to less than half is expected to rise again.
pub(super) const FALL_MEMORY: Duration = Duration::from_secs(30);
/// Above the empty path's round trip by this part of it, a round trip shows a queue.
const QUEUE_SHARE: u32 = 8;

/// The bounds of a model at some time; `None` is infinite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    bw_short: Option<u64>,
    inflight_short: Option<u64>,
    inflight_long: Option<u64>,
}

/// Bandwidth in bytes per second and volumes in bytes; a bound of `None` is infinite.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// Highest rate of this probing cycle and of the one before.
    max_bw: [u64; 2],
    /// A rate was seen that the application had not held down.
    measured: bool,
    pub(super) bw_short: Option<u64>,
    pub(super) inflight_short: Option<u64>,
    pub(super) inflight_long: Option<u64>,
    /// The rate of the newest round that drew on a standing queue, since bounds were reset.
    bw_standing: Option<u64>,
    /// There was such a round since the latest probe: the bandwidth is open to doubt.
    is_doubtful: bool,
    bw_latest: u64,
    /// The lowest round trip of this round.
    rtt_latest: Option<Duration>,
    pub(super) inflight_latest: u64,
    loss_round_delivered: u64,
    /// Whether the present ACK ends a round for the purpose of losses.
    pub(super) loss_round_start: bool,
    pub(super) loss_in_round: bool,
    path_loss: PathLoss,
    /// The maximum before it last fell below half, and when it did.
    before_fall: Option<(u64, Time)>,
}

impl Model {
    /// The highest delivery rate of the last two probing cycles; zero before the first sample.
    pub(super) fn max_bw(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// The rate to send at: the highest seen, less what recent losses took off.
    pub(super) fn bw(&self) -> u64 {
        let max_bw = self.max_bw();
        self.bw_short.map_or(max_bw, |bw| bw.min(max_bw))
    }

    pub(super) fn is_measured(&self) -> bool {
        self.measured
    }

    /// A rate measured by somebody else.
    pub(super) fn assume_bandwidth(&mut self, rate: u64) {
        self.max_bw[1] = rate;
        self.measured = true;
    }

    /// Step 1 of an ACK: what this round delivered so far.
    pub(super) fn update_latest(&mut self, sample: &AckSample) {
        self.bw_latest = self.bw_latest.max(sample.delivery_rate.unwrap_or(0));
        self.inflight_latest = self.inflight_latest.max(delivered_since_sent(sample));
        self.rtt_latest = sample.rtt.into_iter().chain(self.rtt_latest).min();
        self.path_loss.on_ack(sample.acked_bytes);
        self.loss_round_start = sample.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = sample.delivered;
        }
    }

    /// Step 2: the rate filter. A sample held down by the application only counts upwards.
    pub(super) fn update_max_bw(&mut self, sample: &AckSample) {
        if let Some(rate) = sample.delivery_rate
            && (!sample.app_limited || rate >= self.max_bw())
        {
            self.max_bw[1] = self.max_bw[1].max(rate);
            self.measured |= !sample.app_limited;
        }
    }

    /// Step 3: at the end of a round with losses while not probing, the short-term bounds follow
    /// what was delivered, by no more than the factor beta. `ecn_cut` is the share of the volume
    /// that CE marks cost, in millionths. Returns whether a bound was set.
    pub(super) fn adapt_short_term(
        &mut self,
        window: u64,
        probing: bool,
        ecn_cut: u64,
        min_rtt: Option<Duration>,
        now: Time,
        datagram: u64,
    ) -> bool {
        if !self.loss_round_start {
            return false;
        }
        let is_more = self
            .path_loss
            .end_round(now, datagram, self.queue_stood(min_rtt));
        let lossy = core::mem::take(&mut self.loss_in_round) && is_more;
        if probing {
            return false;
        }
        self.adapt_to_standing_queue(lossy, min_rtt);
        if !lossy && ecn_cut == 0 {
            return false;
        }
        let inflight = self.inflight_short.unwrap_or(window);
        let mut bounded = inflight;
        if lossy {
            let bw = self.bw_short.unwrap_or(self.max_bw());
            self.bw_short = Some(self.bw_latest.max(scale(bw, BETA)));
            bounded = self.inflight_latest.max(scale(inflight, BETA));
        }
        if ecn_cut > 0 {
            let cut = u128::from(inflight) * u128::from(ecn_cut) / 1_000_000;
            bounded = bounded.min(inflight - cut as u64);
        }
        self.inflight_short = Some(bounded);
        true
    }

    /// Whether even the fastest packet of this round waited for others.
    pub(super) fn queue_stood(&self, min_rtt: Option<Duration>) -> bool {
        match (min_rtt, self.rtt_latest) {
            (Some(min_rtt), Some(rtt)) => rtt > min_rtt + min_rtt / QUEUE_SHARE,
            _ => true,
        }
    }

    /// Takes back a bandwidth that a round disproves: if even its fastest packet took 2.5 round
    /// trips of the empty path, more stood in the queue than any state's gain allows for, so the
    /// path has slowed down below the estimate.
    ///
    /// An addition to the draft, which adapts only while losses go on: a volume that just fits
    /// into the buffer would keep it full until the rate filter forgets, two probing cycles later.
    /// It still takes a loss since the latest probe, so it never answers to delay alone.
    fn adapt_to_standing_queue(&mut self, lossy: bool, min_rtt: Option<Duration>) {
        let (Some(min_rtt), Some(rtt)) = (min_rtt, self.rtt_latest) else {
            return;
        };
        let is_standing = rtt > min_rtt.saturating_mul(5) / 2;
        let is_doubtful = lossy || self.bw_short.is_some() || self.is_doubtful;
        if is_standing && is_doubtful && self.bw_latest > 0 {
            let bw = self.bw_latest;
            self.is_doubtful = true;
            self.bw_standing = Some(bw);
            self.bw_short = Some(self.bw_short.map_or(bw, |short| short.min(bw)));
        }
    }

    /// The last step: a new round starts from this ACK's deliveries.
    pub(super) fn advance_latest(&mut self, sample: &AckSample) {
        if self.loss_round_start {
            self.bw_latest = sample.delivery_rate.unwrap_or(0);
            self.inflight_latest = delivered_since_sent(sample);
            self.rtt_latest = sample.rtt;
        }
    }

    /// Notes a loss; the round it is accounted to ends with what is sent from now on.
    pub(super) fn note_loss(&mut self, delivered: u64, bytes: u64) {
        self.path_loss.on_lost(bytes);
        if !self.loss_in_round {
            self.loss_round_delivered = delivered;
        }
        self.loss_in_round = true;
    }

    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
        self.rtt_latest = None;
    }

    /// Forgets recent losses, and the maximum with them if a standing queue disproved it: the
    /// probe that follows finds out whether the path is faster again.
    pub(super) fn reset_short_term(&mut self, now: Time) {
        self.bw_short = None;
        self.inflight_short = None;
        if let Some(bw) = self.bw_standing.take()
            && bw < self.max_bw()
        {
            self.lower_max_bw([bw, 0], now);
        }
    }

    fn lower_max_bw(&mut self, max_bw: [u64; 2], now: Time) {
        let before = self.max_bw();
        self.max_bw = max_bw;
        if self.max_bw() < before / 2 {
            self.before_fall = Some((before, now));
        }
    }

    /// Whether the path carried more than twice as much not long ago, and so may again.
    pub(super) fn has_fallen(&self, now: Time) -> bool {
        self.before_fall
            .is_some_and(|(bw, at)| self.max_bw() < bw / 2 && now < at + FALL_MEMORY)
    }

    /// The losses behind the short-term bounds were none.
    pub(super) fn forgive(&mut self) {
        self.path_loss.forget();
        self.loss_in_round = false;
        self.bw_standing = None;
        self.is_doubtful = false;
    }

    /// The bounds now.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            bw_short: self.bw_short,
            inflight_short: self.inflight_short,
            inflight_long: self.inflight_long,
        }
    }

    /// Raises each bound to what it was, if that was higher.
    pub(super) fn restore(&mut self, saved: Bounds) {
        let higher = |now: Option<u64>, saved: Option<u64>| Some(now?.max(saved?));
        self.bw_short = higher(self.bw_short, saved.bw_short);
        self.inflight_short = higher(self.inflight_short, saved.inflight_short);
        self.inflight_long = higher(self.inflight_long, saved.inflight_long);
    }

    /// A probe for more bandwidth ended and measured what there is.
    pub(super) fn on_probed(&mut self) {
        self.is_doubtful = false;
    }

    /// A probing cycle ended: rates older than the one before it are forgotten, unless the cycle
    /// gave no sample at all.
    pub(super) fn advance_max_bw(&mut self, now: Time) {
        if self.max_bw[1] > 0 {
            self.lower_max_bw([self.max_bw[1], 0], now);
        }
    }

    /// The share of losses that says that too much was in flight, in millionths: the draft's beyond
    /// what the path loses by itself.
    pub(super) fn loss_threshold(&self, now: Time) -> u64 {
        LOSS_THRESHOLD + self.path_loss.share(now)
    }

    /// The long-term volume less the share left to others (`InflightWithHeadroom`).
    pub(super) fn inflight_with_headroom(&self, datagram: u64, floor: u64) -> Option<u64> {
        let long = self.inflight_long?;
        let headroom = scale(long, HEADROOM).max(datagram);
        Some(long.saturating_sub(headroom).max(floor))
    }

    /// Raises the long-term volume to what was just delivered safely.
    pub(super) fn raise_inflight_long(&mut self, inflight: u64) {
        if let Some(long) = &mut self.inflight_long {
            *long = (*long).max(inflight);
        }
    }
}

/// The draft's `RS.delivered`: bytes delivered between a packet's sending and its ACK.
fn delivered_since_sent(sample: &AckSample) -> u64 {
    sample.delivered.saturating_sub(sample.prior_delivered)
}

/// Whether losses say that `tx_in_flight` was too much (`IsInflightTooHigh`).
pub(super) fn is_too_high(lost: u64, tx_in_flight: u64, threshold: u64) -> bool {
    u128::from(lost) * u128::from(ONE) > u128::from(tx_in_flight) * u128::from(threshold)
}

/// The volume in flight at which losses crossed the threshold, within the train of a lost packet.
/// `lost` counts from the sending of the train to this packet, which is included.
pub(super) fn inflight_at_loss(packet: &LostPacket, lost: u64, threshold: u64) -> u64 {
    let size = u64::from(packet.size);
    let before = packet.tx_in_flight.saturating_sub(size);
    let lost_before = u128::from(lost.saturating_sub(size)) * u128::from(ONE);
    let allowed = u128::from(before) * u128::from(threshold);
    // Clamped: losses before this packet may already exceed the threshold.
    let prefix = allowed.saturating_sub(lost_before) / u128::from(ONE - threshold);
    before.saturating_add(u64::try_from(prefix).unwrap_or(u64::MAX))
}
