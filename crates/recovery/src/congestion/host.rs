//! One LEDBAT++ for all background connections of a host (`--background`).
//!
//! Ten LEDBAT++ flows beside each other keep ten windows, and each newcomer takes the others'
//! queue for the path. Here one window machine hears the ACKs of all members; each member keeps
//! only its own base delay. A slowdown freezes all of them together, so the queue they share does
//! drain and every base delay shows. It aims at 25 ms instead of the draft's 60: a deliberate
//! deviation, since one queue of 60 ms is what a call beside it would still notice. Two more: it
//! slows down for a fortieth of the time instead of a tenth, and takes a path that others left back
//! by slow start.
//!
//! Members take turns at the common pace and within the common window: who has something to send
//! draws a ticket for one train and goes when the tickets before it are served. So those who want
//! more share equally, what one leaves goes to the others at once, and many members never add up
//! to more than the one window. A member's own window never falls below two datagrams. Losses anywhere halve the common window, once per round trip.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_wire::Time;

use super::interface::{
    AckSample, CongestionController, Handover, LeastAckRate, LossSample, SendSample,
};
use super::ledbat::{Acked, Core, QueueDelay};
use super::window::minimum_window;
use crate::rtt::{GRANULARITY, nanos};

/// The queue delay that `--background` aims at.
pub const HOST_TARGET: Duration = Duration::from_millis(25);

/// What the machine counts as a packet, whatever the members' datagram sizes.
const PACKET: f64 = 1200.0;

/// A ticket is for two datagrams, or what the rate serves in 1 ms, up to this.
const MAX_TRAIN: f64 = 65_536.0;

/// How often a member that waits looks whether its turn comes earlier than thought: while the
/// window may double in a round trip, and while it moves slowly.
const RECHECK_FAST: Duration = Duration::from_millis(10);
const RECHECK_SLOW: Duration = Duration::from_millis(50);

/// How often the first in line looks whether the window has room.
const POLLS_PER_ROUND: u32 = 16;

/// Who was silent for so long goes first, once.
const SILENT: Duration = Duration::from_secs(1);

/// Whoever heard nothing of its flight for so long, or three round trips if that is longer, does
/// not keep the window from the others: a dead path would, until the connection times out.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_ROUNDS: u32 = 3;

/// Windows remembered, eight per round trip.
const HISTORY: usize = 32;

/// RFC 6817's filter needs four samples per round trip.
const LEAST_SAMPLES: LeastAckRate = LeastAckRate { per_round: 4 };

/// The common controller: a cheap handle. All connections that join must be given times of one
/// clock.
#[derive(Clone, Debug)]
pub struct HostController {
    host: Arc<Mutex<Host>>,
}

#[derive(Debug)]
struct Host {
    core: Core,
    /// Of all members, by what they deliver.
    smoothed_rtt: Option<Duration>,
    members: usize,
    joined: u64,
    /// When a member, by its number, last got something through.
    delivered: Option<(Time, u64)>,
    /// The window in the course of the last round trips.
    history: VecDeque<(Time, f64)>,
    turns: Turns,
}

/// Whose turn it is, in bytes from the beginning.
#[derive(Debug, Default)]
struct Turns {
    now: Time,
    /// Up to where tickets were drawn, and up to where they may be used.
    drawn: f64,
    served: f64,
    /// In flight, of all members together.
    flight: f64,
}

/// The right to send `left` bytes once `start` bytes were served; who drew next starts at `end`.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    start: f64,
    end: f64,
    left: f64,
}

/// What a member knows of the host between two events of its own.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    window: f64,
    rate: f64,
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
            core: Core::for_host(target),
            smoothed_rtt: None,
            members: 0,
            joined: 0,
            delivered: None,
            history: VecDeque::with_capacity(HISTORY),
            turns: Turns::default(),
        };
        Self {
            host: Arc::new(Mutex::new(host)),
        }
    }

    /// A connection's part in it, to be given to `Recovery::with_controller` as
    /// `Controller::Host`. It leaves when dropped.
    pub fn join(&self, max_datagram_size: u16) -> HostMember {
        let mut host = self.lock();
        host.members += 1;
        host.joined += 1;
        HostMember {
            host: self.clone(),
            number: host.joined,
            max_datagram_size,
            delay: QueueDelay::default(),
            path_start: None,
            last_sent: None,
            heard: Time::ZERO,
            patience: PATIENCE,
            ticket: None,
            flight: 0,
            recheck: None,
            view: host.view(),
        }
    }

    /// How many connections take part.
    pub fn members(&self) -> usize {
        self.lock().members
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
    /// Bytes per second; infinite before the first round trip is known.
    fn rate(&self) -> f64 {
        let (over, under) = self.core.pacing_gain();
        let window = self.core.window * PACKET * over as f64 / under as f64;
        match self.smoothed_rtt {
            Some(rtt) => window / rtt.as_secs_f64(),
            None => f64::INFINITY,
        }
    }

    fn view(&self) -> View {
        let bytes = |packets: f64| (packets * PACKET) as u64;
        let ssthresh = self.core.ssthresh;
        View {
            window: self.core.window * PACKET,
            rate: self.rate(),
            ssthresh: ssthresh.is_finite().then_some(bytes(ssthresh)),
            in_slow_start: self.core.in_slow_start(),
            recovery_start: self.core.recovery_start,
            thaw: self.core.next_timeout(),
        }
    }

    /// Serves what the rate allowed since it was last looked at, unless the window was full.
    fn advance(&mut self, now: Time) {
        let rate = self.rate();
        let open = self.is_open();
        let turns = &mut self.turns;
        let elapsed = now.saturating_duration_since(turns.now).as_secs_f64();
        turns.now = turns.now.max(now);
        if open {
            // What nobody drew is not saved up.
            turns.served = match rate.is_finite() {
                true => (turns.served + rate * elapsed).min(turns.drawn),
                false => turns.drawn,
            };
        }
        self.core.on_time(now);
    }

    /// Whether the common window has room.
    fn is_open(&self) -> bool {
        self.turns.flight < self.core.window * PACKET
    }

    /// The size of a ticket in bytes.
    fn train(&self, datagram: f64) -> f64 {
        let rate = Some(self.rate()).filter(|rate| rate.is_finite());
        let per_tick = rate.unwrap_or(0.0) * GRANULARITY.as_secs_f64();
        per_tick.min(MAX_TRAIN).max(2.0 * datagram)
    }

    fn draw(&mut self, bytes: f64) -> Ticket {
        let start = self.turns.drawn;
        self.turns.drawn += bytes;
        let end = self.turns.drawn;
        let left = bytes;
        Ticket { start, end, left }
    }

    /// What is left of a ticket will not be used: the others move up. What is sent still keeps to
    /// the rate, since the bytes served too early are made up for by those that nobody sends.
    fn give_back(&mut self, ticket: Option<Ticket>) {
        let Some(Ticket { end, left, .. }) = ticket else {
            return;
        };
        let turns = &mut self.turns;
        match end == turns.drawn {
            true => turns.drawn = end - left,
            false => turns.served += left,
        }
        turns.served = turns.served.min(turns.drawn);
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

    /// Notes the window, and says what it was when a packet just acknowledged was sent.
    fn window_at(&mut self, now: Time, sent: Time, round: Duration) -> f64 {
        let newest = self.history.back().map(|(at, _)| *at);
        if newest.is_none_or(|at| now >= at + round / 8) {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back((now, self.core.window));
        }
        let then = self.history.iter().rev().find(|(at, _)| *at <= sent);
        then.or(self.history.front())
            .map_or(self.core.window, |(_, window)| *window)
    }
}

/// One connection under a [`HostController`].
#[derive(Debug)]
pub struct HostMember {
    host: HostController,
    number: u64,
    max_datagram_size: u16,
    delay: QueueDelay,
    /// Fates of packets sent before it went another path are not the host's.
    path_start: Option<Time>,
    last_sent: Option<Time>,
    /// Its flight began or was last acknowledged, and how long it may stay silent.
    heard: Time,
    patience: Duration,
    ticket: Option<Ticket>,
    /// Its bytes in flight, as counted in the common flight.
    flight: u64,
    /// It waits: when to look again.
    recheck: Option<Time>,
    view: View,
}

impl HostMember {
    fn datagram(&self) -> f64 {
        f64::from(self.max_datagram_size)
    }

    /// What of its flight counts in the common one.
    fn counted(&mut self, now: Time, bytes_in_flight: u64) -> u64 {
        if bytes_in_flight == 0 {
            self.heard = now;
        }
        match now.saturating_duration_since(self.heard) > self.patience {
            true => 0,
            false => bytes_in_flight,
        }
    }
}

/// Moves the common flight along with a member's.
fn set_flight(host: &mut Host, flight: &mut u64, now: u64) {
    host.turns.flight += now as f64 - *flight as f64;
    *flight = now;
}

impl Drop for HostMember {
    fn drop(&mut self) {
        let mut host = self.host.lock();
        set_flight(&mut host, &mut self.flight, 0);
        host.give_back(self.ticket.take());
        host.members -= 1;
    }
}

impl CongestionController for HostMember {
    fn on_sent(&mut self, sample: &SendSample) {
        self.last_sent = Some(sample.now);
        self.recheck = None;
        let bytes = sample.bytes as f64;
        let flight = match self.counted(sample.now, sample.bytes_in_flight) {
            0 if sample.bytes_in_flight > 0 => 0,
            before => before + sample.bytes,
        };
        let mut host = self.host.lock();
        set_flight(&mut host, &mut self.flight, flight);
        let ticket = self.ticket.take();
        let left = ticket.map_or(0.0, |ticket| ticket.left) - bytes;
        if left > 0.0 {
            self.ticket = ticket.map(|ticket| Ticket { left, ..ticket });
        } else {
            // More than was drawn, as a probe that waited for nothing: those who draw next wait.
            host.turns.drawn -= left;
        }
    }

    fn on_ack(&mut self, sample: &AckSample) -> bool {
        let (now, sent) = (sample.now, sample.newest_sent_time);
        if let Some(rtt) = sample.adjusted_rtt {
            self.delay.on_sample(now, rtt, sample.smoothed_rtt);
        }
        self.heard = now;
        self.patience = PATIENCE.max(sample.smoothed_rtt.saturating_mul(PATIENCE_ROUNDS));
        let packets = sample.acked_bytes as f64 / PACKET;
        let mut host = self.host.lock();
        set_flight(&mut host, &mut self.flight, sample.bytes_in_flight);
        host.advance(now);
        let rtt = sample.adjusted_rtt.unwrap_or(sample.smoothed_rtt);
        let smoothed_rtt = host.smooth(rtt, packets);
        let flight_then = host.window_at(now, sent, smoothed_rtt);
        host.delivered = Some((now, self.number));
        let marked = sample.ce_marks > 0 && self.path_start.is_none_or(|start| sent > start);
        let reduced = marked && host.core.on_congestion(now, sent, smoothed_rtt);
        let flight = host.turns.flight / PACKET;
        host.core.on_ack(&Acked {
            now,
            sent,
            flight_then,
            flight,
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
        reduced
    }

    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        let sent = sample.largest_sent_time;
        if self.path_start.is_some_and(|start| sent <= start) {
            return false;
        }
        let mut host = self.host.lock();
        host.advance(sample.now);
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
            number != self.number && now.saturating_duration_since(at) < rtt.saturating_mul(2)
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
        self.path_start = Some(now);
    }

    /// The window is the host's: what this connection had is not added to it.
    fn take_over(&mut self, handover: &Handover) {
        self.path_start = Some(handover.now);
    }

    fn on_app_limited(&mut self, now: Time, bytes_in_flight: u64) {
        self.recheck = None;
        let flight = self.counted(now, bytes_in_flight);
        let mut host = self.host.lock();
        set_flight(&mut host, &mut self.flight, flight);
        host.give_back(self.ticket.take());
    }

    fn turn(&mut self, now: Time, bytes_in_flight: u64) -> Option<Result<u64, Time>> {
        let flight = self.counted(now, bytes_in_flight);
        let mut host = self.host.lock();
        set_flight(&mut host, &mut self.flight, flight);
        host.advance(now);
        self.view = host.view();
        let silent = self
            .last_sent
            .is_none_or(|sent| now.saturating_duration_since(sent) >= SILENT);
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let train = host.train(self.datagram());
                let ticket = host.draw(train);
                // Before a round trip is known only the window counts.
                host.advance(now);
                *self.ticket.insert(ticket)
            }
        };
        let ahead = ticket.start + ticket.left.min(self.datagram()) - host.turns.served;
        if (ahead <= 0.0 && host.is_open()) || silent {
            self.recheck = None;
            return Some(Ok(ticket.left as u64));
        }
        let paced = Duration::try_from_secs_f64(ahead.max(0.0) / host.rate()).unwrap_or(SILENT);
        // With a full window it is an acknowledgement that counts, perhaps another member's.
        let poll = host.smoothed_rtt.unwrap_or_default() / POLLS_PER_ROUND;
        let wait = match host.is_open() {
            true => paced.max(Duration::from_nanos(1)),
            false => paced.max(poll.clamp(GRANULARITY, RECHECK_FAST)),
        };
        let recheck = match host.core.in_slow_start() {
            true => RECHECK_FAST,
            false => RECHECK_SLOW,
        };
        // The rate may grow meanwhile, at the latest when the machine thaws.
        let thaw = self.view.thaw.filter(|thaw| *thaw < now + wait);
        let recheck = (wait > recheck).then_some(now + recheck);
        self.recheck = recheck.into_iter().chain(thaw).min();
        Some(Err(now + wait))
    }

    fn next_timeout(&self) -> Option<Time> {
        self.recheck
    }

    /// The caller asks for its turn next.
    fn on_timeout(&mut self, now: Time) {
        self.recheck = None;
        let mut host = self.host.lock();
        host.advance(now);
        self.view = host.view();
    }

    /// The turns hold the host; this only bounds what one path can swallow.
    fn window(&self) -> u64 {
        (self.view.window as u64).max(minimum_window(self.max_datagram_size))
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

    /// The host's.
    fn pacing_rate(&self) -> Option<u64> {
        let rate = self.view.rate;
        rate.is_finite().then_some(rate as u64)
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        LEAST_SAMPLES
    }
}

pub(super) mod undo;

#[cfg(test)]
mod tests;
