//! One LEDBAT++ for all background connections of a host (`--background`).
//!
//! Ten LEDBAT++ flows beside each other keep ten windows, and each newcomer takes the others'
//! queue for the path. Here one window machine hears the ACKs of all members; each member keeps
//! only its own base delay. A slowdown freezes all of them together, so the queue they share does
//! drain and every base delay shows. Window and pace are shared by what each member wants: the
//! sums are the pool's (`pool`). It aims at 25 ms instead of the draft's 60: a deliberate
//! deviation, since one queue of 60 ms is what a call beside it would still notice.
//!
//! A member's own window never falls below two datagrams; many members are held by the common
//! pace. Losses anywhere halve the common window, once per round trip.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_wire::Time;

use super::ledbat::{Acked, Core, QueueDelay};
use super::{
    AckSample, CongestionController, Handover, LeastAckRate, LossSample, SendSample, minimum_window,
};
use crate::pool::{Pool, PoolMember, TrafficClass};
use crate::rtt::{GRANULARITY, nanos};

/// The queue delay that `--background` aims at.
pub const HOST_TARGET: Duration = Duration::from_millis(25);

/// What the machine counts as a packet, whatever the members' datagram sizes.
const PACKET: f64 = 1200.0;

/// How often a member that waits looks whether the others have left it more.
const RECHECK: Duration = Duration::from_millis(10);

/// RFC 6817's filter needs four samples per round trip.
const LEAST_SAMPLES: LeastAckRate = LeastAckRate { per_round: 4 };

/// The common controller: a cheap handle. All connections that join must be given times of one
/// clock.
#[derive(Clone, Debug)]
pub struct HostController {
    host: Arc<Mutex<Host>>,
    shares: Pool,
}

#[derive(Debug)]
struct Host {
    core: Core,
    /// Of all members, by what they deliver.
    smoothed_rtt: Option<Duration>,
    /// When a member, by its number, last got something through.
    delivered: Option<(Time, u64)>,
    joined: u64,
}

/// What a member needs to know of the host between two events of its own.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    /// Bytes per second: the common window per common round trip.
    rate: f64,
    pacing_gain: (u64, u64),
    ssthresh: Option<u64>,
    in_slow_start: bool,
    recovery_start: Option<Time>,
    thaw: Option<Time>,
}

impl Default for HostController {
    fn default() -> Self {
        Self::new()
    }
}

impl HostController {
    /// A controller that aims at 25 ms.
    pub fn new() -> Self {
        Self::with_target(HOST_TARGET)
    }

    /// A controller that aims at another queue delay.
    pub fn with_target(target: Duration) -> Self {
        let host = Host {
            core: Core::new(target),
            smoothed_rtt: None,
            delivered: None,
            joined: 0,
        };
        Self {
            host: Arc::new(Mutex::new(host)),
            shares: Pool::new(NonZeroU64::MIN),
        }
    }

    /// A connection's part in it, to be given to `Recovery::with_controller` as
    /// `Controller::Host`. It leaves when dropped.
    pub fn join(&self, max_datagram_size: u16) -> HostMember {
        let mut host = self.lock();
        host.joined += 1;
        let (number, view) = (host.joined, host.view());
        drop(host);
        HostMember {
            host: self.clone(),
            number,
            share: self.shares.join(TrafficClass::Normal, NonZeroU32::MIN),
            max_datagram_size,
            delay: QueueDelay::default(),
            smoothed_rtt: None,
            path_start: None,
            view,
            recheck: None,
        }
    }

    /// How many connections take part.
    pub fn members(&self) -> usize {
        self.shares.members()
    }

    /// The common window in bytes.
    pub fn window(&self) -> u64 {
        (self.lock().core.window * PACKET) as u64
    }

    fn lock(&self) -> MutexGuard<'_, Host> {
        // Numbers only: whoever panicked left nothing half done that matters.
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    fn view(&self) -> View {
        let rtt = self.smoothed_rtt.map_or(0.0, |rtt| rtt.as_secs_f64());
        View {
            rate: self.core.window * PACKET / rtt.max(GRANULARITY.as_secs_f64() / 1e3),
            pacing_gain: self.core.pacing_gain(),
            ssthresh: self
                .core
                .ssthresh
                .is_finite()
                .then_some((self.core.ssthresh * PACKET) as u64),
            in_slow_start: self.core.in_slow_start(),
            recovery_start: self.core.recovery_start,
            thaw: self.core.next_timeout(),
        }
    }

    /// Each member weighs as much as it delivers: a window's worth replaces the old value.
    fn smooth(&mut self, rtt: Duration, packets: f64) -> Duration {
        let smoothed = match self.smoothed_rtt {
            None => rtt,
            Some(old) => {
                let part = (packets / self.core.window).min(1.0);
                let (old, new) = (nanos(old) as f64, nanos(rtt) as f64);
                Duration::from_nanos((old + (new - old) * part) as u64)
            }
        };
        self.smoothed_rtt = Some(smoothed);
        smoothed
    }
}

/// One connection under a [`HostController`].
#[derive(Debug)]
pub struct HostMember {
    host: HostController,
    number: u64,
    share: PoolMember,
    max_datagram_size: u16,
    delay: QueueDelay,
    smoothed_rtt: Option<Duration>,
    /// Fates of packets sent before it went another path are not the host's.
    path_start: Option<Time>,
    view: View,
    /// It waits: when to look again.
    recheck: Option<Time>,
}

impl HostMember {
    /// Its part of the common rate, in bytes per second.
    fn rate(&self) -> f64 {
        self.view.rate * self.share.fraction()
    }

    fn minimum(&self) -> u64 {
        minimum_window(self.max_datagram_size)
    }

    /// Asks for its share anew, if it is time.
    fn refresh(&mut self, now: Time) {
        if self.share.next_question().is_none_or(|at| now >= at) {
            let total = NonZeroU64::new(self.view.rate as u64).unwrap_or(NonZeroU64::MIN);
            self.host.shares.set_total(total);
            self.share.rate(now, u64::MAX);
        }
    }

    /// Lets time pass in the common machine and looks at it.
    fn look(&mut self, now: Time) {
        let mut host = self.host.lock();
        host.core.on_time(now);
        self.view = host.view();
        drop(host);
        self.refresh(now);
    }
}

impl CongestionController for HostMember {
    fn on_sent(&mut self, sample: &SendSample) {
        self.share.on_sent(sample.bytes);
        self.recheck = None;
        self.refresh(sample.now);
    }

    fn on_ack(&mut self, sample: &AckSample) -> bool {
        let now = sample.now;
        self.smoothed_rtt = Some(sample.smoothed_rtt);
        if let Some(rtt) = sample.adjusted_rtt {
            self.delay.on_sample(now, rtt, sample.smoothed_rtt);
        }
        let packets = sample.acked_bytes as f64 / PACKET;
        let mut host = self.host.lock();
        let smoothed_rtt = host.smooth(sample.smoothed_rtt, packets);
        host.delivered = Some((now, self.number));
        let sent = sample.newest_sent_time;
        let marked = sample.ce_marks > 0 && self.path_start.is_none_or(|start| sent > start);
        let reduced = marked && host.core.on_congestion(now, sent, smoothed_rtt);
        // The common flight when this packet left is not known; what is: by how much the member's
        // own has grown since.
        let grown = sample.bytes_in_flight_before.max(1) as f64;
        let flight_then = host.core.window * (sample.tx_in_flight as f64 / grown).min(1.0);
        host.core.on_ack(&Acked {
            now,
            sent,
            flight_then,
            packets,
            growing: match sample.cwnd_limited && !reduced {
                true => sample.acked_bytes_after_recovery as f64 / PACKET,
                false => 0.0,
            },
            smoothed_rtt,
            base: self.delay.base(),
            queue: self.delay.queue(),
        });
        self.view = host.view();
        drop(host);
        self.refresh(now);
        reduced
    }

    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        let sent = sample.largest_sent_time;
        if self.path_start.is_some_and(|start| sent <= start) {
            return false;
        }
        let mut host = self.host.lock();
        let rtt = host.smoothed_rtt.unwrap_or(GRANULARITY);
        let reduced = host.core.on_congestion(sample.now, sent, rtt);
        self.view = host.view();
        reduced
    }

    /// Only if nobody else gets through: one dead path must not silence the host.
    fn on_persistent_congestion(&mut self, now: Time) {
        let mut host = self.host.lock();
        let rtt = host.smoothed_rtt.unwrap_or(GRANULARITY);
        let alive = host.delivered.is_some_and(|(at, number)| {
            number != self.number && now.saturating_duration_since(at) < rtt * 2
        });
        if !alive {
            host.core.on_persistent_congestion(now);
        }
        self.view = host.view();
    }

    fn on_max_datagram_size(&mut self, max_datagram_size: u16, _during_handshake: bool) {
        self.max_datagram_size = max_datagram_size;
    }

    fn on_path_change(&mut self, now: Time, max_datagram_size: u16) {
        self.max_datagram_size = max_datagram_size;
        self.delay = QueueDelay::default();
        self.smoothed_rtt = None;
        self.path_start = Some(now);
    }

    /// The window is the host's: what this connection had is not added to it.
    fn take_over(&mut self, handover: &Handover) {
        self.smoothed_rtt = Some(handover.smoothed_rtt);
        self.path_start = Some(handover.now);
    }

    fn on_utilised(&mut self, now: Time) {
        self.share.on_held();
        if self.recheck.is_none() {
            self.recheck = Some(now + RECHECK);
        }
        self.look(now);
    }

    fn on_app_limited(&mut self, _now: Time, _bytes_in_flight: u64) {
        self.recheck = None;
    }

    fn next_timeout(&self) -> Option<Time> {
        let recheck = self.recheck?;
        Some(self.view.thaw.map_or(recheck, |thaw| thaw.min(recheck)))
    }

    /// The caller asks for a permit next, with what the others have left since.
    fn on_timeout(&mut self, now: Time) {
        self.recheck = None;
        self.look(now);
    }

    fn window(&self) -> u64 {
        let Some(rtt) = self.smoothed_rtt else {
            return self.minimum();
        };
        ((self.rate() * rtt.as_secs_f64()) as u64).max(self.minimum())
    }

    /// The host's.
    fn ssthresh(&self) -> Option<u64> {
        self.view.ssthresh
    }

    fn in_slow_start(&self) -> bool {
        self.view.in_slow_start
    }

    fn recovery_start(&self) -> Option<Time> {
        self.view.recovery_start.max(self.path_start)
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.smoothed_rtt?;
        let (over, under) = self.view.pacing_gain;
        Some((self.rate() * over as f64 / under.max(1) as f64).max(1.0) as u64)
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        LEAST_SAMPLES
    }
}

#[cfg(test)]
mod tests;
