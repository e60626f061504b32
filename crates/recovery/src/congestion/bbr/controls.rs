//! What BBR sets: window, pacing rate and quantum (draft §5.6).
//!
//! `Bbr` says what model and state want; `Controls` keeps the size of a datagram, by which all of it
//! has a floor, and the window from before losses or ProbeRTT held it down.

use core::time::Duration;

use super::state::State;
use super::units::{Hundredths, carried, rate, scale};
use crate::congestion::interface::AckSample;
use crate::congestion::window::{initial_window, minimum_window, resized_window};

/// Pacing runs at this share of the bandwidth, so that queues shrink on average (§2.5).
const PACING_SHARE: Hundredths = 99;
/// Pace of a slow start by the window, as for the other controllers.
const SLOW_START_PACING: Hundredths = 150;
/// The least window of the model, in datagrams (§2.8).
const MIN_PIPE_DATAGRAMS: u64 = 4;
/// A quantum is what the rate carries in this time, within the next two limits (§5.6.3).
const QUANTUM_TIME: Duration = Duration::from_millis(1);
const QUANTUM_DATAGRAMS: u64 = 2;
const MOST_QUANTUM: u64 = 65_536;
/// Round trip assumed for the first pacing rate (§5.6.2).
const NOMINAL_RTT: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
pub(super) struct Controls {
    max_datagram_size: u16,
    pub(super) window: u64,
    /// The last window that neither losses nor ProbeRTT held down.
    prior_window: u64,
    /// Bytes per second; nominal until the first round trip is known.
    pub(super) pacing_rate: u64,
    has_rtt: bool,
}

impl Controls {
    /// The initial window, paced as if the round trip were a millisecond.
    pub(super) fn new(max_datagram_size: u16) -> Self {
        let window = initial_window(max_datagram_size);
        Self {
            max_datagram_size,
            window,
            prior_window: 0,
            pacing_rate: scale(rate(window, NOMINAL_RTT), State::Startup.pacing_gain()),
            has_rtt: false,
        }
    }

    pub(super) fn max_datagram_size(&self) -> u16 {
        self.max_datagram_size
    }

    pub(super) fn datagram(&self) -> u64 {
        u64::from(self.max_datagram_size)
    }

    pub(super) fn initial_window(&self) -> u64 {
        initial_window(self.max_datagram_size)
    }

    /// The least window of the model.
    pub(super) fn floor(&self) -> u64 {
        MIN_PIPE_DATAGRAMS * self.datagram()
    }

    pub(super) fn quantum(&self) -> u64 {
        carried(self.pacing_rate, QUANTUM_TIME)
            .min(MOST_QUANTUM)
            .max(QUANTUM_DATAGRAMS * self.datagram())
    }

    /// At least what keeps sender and receiver busy whatever their batching.
    pub(super) fn quantized(&self, inflight: u64, state: State) -> u64 {
        let least = inflight.max(self.quantum()).max(self.floor());
        match state {
            State::Up => least.saturating_add(2 * self.datagram()),
            _ => least,
        }
    }

    /// Notes the window, or the larger of both if something holds the present one down.
    pub(super) fn save_window(&mut self, is_held_down: bool) {
        self.prior_window = match is_held_down {
            true => self.prior_window.max(self.window),
            false => self.window,
        };
    }

    /// Brings back the window that was noted; the model bounds it again.
    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }

    /// The least window there is (RFC 9002 §7.6.2).
    pub(super) fn collapse(&mut self) {
        self.window = minimum_window(self.max_datagram_size);
    }

    pub(super) fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool) {
        let old = self.max_datagram_size;
        self.max_datagram_size = max_datagram_size;
        self.window = resized_window(self.window, old, max_datagram_size, during_handshake);
    }

    /// Goes on with the window and the round trip of another controller.
    pub(super) fn take_over(&mut self, window: u64, smoothed_rtt: Duration) {
        self.window = window.max(self.floor());
        if !smoothed_rtt.is_zero() {
            self.has_rtt = true;
            self.pacing_rate = rate(self.window, smoothed_rtt).max(1);
        }
    }

    /// The pace at this bandwidth; before the pipe was full it only rises.
    pub(super) fn update_pacing_rate(&mut self, bw: u64, gain: Hundredths, was_full: bool) {
        let wanted = scale(scale(bw, gain), PACING_SHARE);
        if bw > 0 && (was_full || wanted > self.pacing_rate) {
            self.pacing_rate = wanted.max(1);
        }
    }

    /// In Startup the pace never falls behind what any slow start would do: the first rates are
    /// those of the handshake and of the pacing itself, and say nothing of the path.
    pub(super) fn follow_window(&mut self, smoothed_rtt: Duration) {
        if !smoothed_rtt.is_zero() {
            let slow_start = scale(rate(self.window, smoothed_rtt), SLOW_START_PACING);
            self.pacing_rate = self.pacing_rate.max(slow_start);
        }
    }

    /// The first round trip replaces the nominal one (§5.6.2).
    pub(super) fn init_pacing_rate(&mut self, sample: &AckSample) {
        if !self.has_rtt && sample.rtt.is_some() && !sample.smoothed_rtt.is_zero() {
            self.has_rtt = true;
            let nominal = rate(self.initial_window(), sample.smoothed_rtt);
            self.pacing_rate = scale(nominal, State::Startup.pacing_gain()).max(1);
        }
    }
}
