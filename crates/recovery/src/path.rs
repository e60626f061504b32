//! `PathState`: what is known of one path, and what a migration replaces.
//!
//! Round trip, probe timer, controller, pacer, rate sampler, ECN, MTU search and flight. Whoever
//! owns the paths owns one of these for each and hands the one in use to [`Recovery`](crate::Recovery), which has
//! what a connection has once. A packet sent names its path: only those of the path in use count
//! towards its window, its losses and its round trip (RFC 9000 §9.4).

use core::time::Duration;

use towline_wire::{PacketNumberSpace, Time};

use crate::bandwidth::RateSampler;
use crate::congestion::{
    Algorithm, CongestionController, Controller, Handover, LeastAckRate, initial_window,
};
use crate::ecn;
use crate::mtu_search::{DatagramSizes, MtuSearch};
use crate::pacing::{self, Pacer};
use crate::pto::ProbeTimer;
use crate::recovery::{Config, Episode, Flight};
use crate::reordering::Reordering;
use crate::rtt::RttEstimator;

/// The max_ack_delay of a peer that did not say (RFC 9000 §18.2).
const DEFAULT_MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Names a path in the records of packets sent. A connection counts its paths; a number comes again
/// only after 65,536 of them, when nothing sent before is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathId(u16);

impl PathId {
    /// The path after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Round trip, congestion control and pacing of one path.
#[derive(Debug)]
pub struct PathState {
    pub(crate) id: PathId,
    pub(crate) config: Config,
    pub(crate) rtt: RttEstimator,
    pub(crate) pto: ProbeTimer,
    pub(crate) controller: Controller,
    pub(crate) pacer: Pacer,
    pub(crate) mtu: MtuSearch,
    pub(crate) sampler: RateSampler,
    pub(crate) ecn: ecn::Validation,
    /// The train being built is marked ECT(0).
    pub(crate) marking: bool,
    pub(crate) flight: Flight,
    /// On entering recovery one datagram may leave regardless (RFC 9002 §7.3.2).
    pub(crate) recovery_datagram: bool,
    pub(crate) episode: Episode,
    pub(crate) reordering: Reordering,
    /// The largest datagram that the peer takes, on any path.
    peer_max: u16,
    now: Time,
}

impl PathState {
    /// A path of which nothing is known, with a controller by name.
    pub fn new(config: Config) -> Self {
        let controller = named_controller(&config, config.datagram_sizes.initial);
        Self::with_controller(config, controller)
    }

    /// The same with a controller of the caller's; `config.algorithm` and `hystart` are unused.
    pub fn with_controller(config: Config, controller: Controller) -> Self {
        Self {
            id: PathId::default(),
            rtt: RttEstimator::new(config.initial_rtt),
            pto: ProbeTimer::new(config.side, DEFAULT_MAX_ACK_DELAY),
            pacer: Pacer::new(initial_window(config.datagram_sizes.initial)),
            mtu: MtuSearch::new(config.datagram_sizes),
            controller,
            ecn: ecn::Validation::new(config.ecn),
            marking: false,
            config,
            sampler: RateSampler::default(),
            flight: Flight::default(),
            recovery_datagram: false,
            episode: Episode::default(),
            reordering: Reordering::default(),
            peer_max: u16::MAX,
            now: Time::ZERO,
        }
    }

    /// Which path it is.
    pub fn id(&self) -> PathId {
        self.id
    }

    // Facts the connection tells.

    /// The peer's max_ack_delay; 25 ms until told.
    pub fn set_peer_max_ack_delay(&mut self, max_ack_delay: Duration) {
        self.pto.max_ack_delay = max_ack_delay;
    }

    /// Handshake keys are there: anti-deadlock probes use them (RFC 9002 §6.2.2.1).
    pub fn set_handshake_keys_available(&mut self) {
        self.pto.handshake_keys = true;
    }

    /// The handshake is confirmed: the application space gets a PTO, ack delays are limited.
    pub fn set_handshake_confirmed(&mut self) {
        self.pto.handshake_confirmed = true;
        self.pto.peer_validated = true;
    }

    /// Client: a Handshake packet was acknowledged, so the server has validated our address.
    /// True from the start for a server.
    pub fn set_peer_completed_address_validation(&mut self) {
        self.pto.peer_validated = true;
    }

    /// Server: whether the three-fold anti-amplification limit forbids sending. While it does
    /// there is no PTO; afterwards a PTO that lies in the past is due at once (RFC 9002 §6.2.2.1).
    pub fn set_amplification_blocked(&mut self, now: Time, blocked: bool) {
        self.touch(now);
        self.pto.amplification_blocked = blocked;
    }

    /// The peer takes no datagrams of more than `max` bytes, on any path.
    pub fn limit_datagram_size(&mut self, max: u16) {
        self.peer_max = max;
        self.config.datagram_sizes = self.config.datagram_sizes.limited(max);
        if self.mtu.limit(max) {
            self.on_datagram_size();
        }
    }

    /// The system does not send datagrams of `size` bytes on this path. True if the size in use had
    /// to fall: what is in flight may never have left.
    pub fn on_datagram_refused(&mut self, size: u16) -> bool {
        let falls = self.mtu.on_refused(self.now, size);
        if falls {
            self.on_datagram_size();
        }
        falls
    }

    /// So many datagrams of the size in use were sent: larger ones are worth a search.
    #[inline]
    pub fn on_full_sized_sent(&mut self, datagrams: usize) {
        self.mtu.on_full_sized(datagrams);
    }

    /// The size in use changed. The window in bytes stays, unless the size was lowered to get the
    /// handshake through (RFC 9002 §7.2, RFC 8899 §3).
    pub(crate) fn on_datagram_size(&mut self) {
        self.episode.forget_checkpoint();
        let during_handshake = !self.pto.handshake_confirmed;
        self.controller
            .on_max_datagram_size(self.mtu.size(), during_handshake);
    }

    /// Bytes of UDP payload per datagram.
    #[inline]
    pub fn max_datagram_size(&self) -> u16 {
        self.mtu.size()
    }

    /// As [`Self::max_datagram_size`], for what is sent because nothing was heard for long: it may be
    /// the size that gets nowhere.
    pub fn safe_datagram_size(&self) -> u16 {
        self.mtu.safe_size()
    }

    /// The round trip of a Retry, a Version Negotiation or a PATH_CHALLENGE, as the initial
    /// estimate (RFC 9002 §6.2.2).
    pub fn seed_rtt(&mut self, rtt: Duration) {
        self.rtt.seed(rtt);
    }

    /// Begins again with the controller that [`Self::new`] would have made, or with one of the
    /// caller's. For a connection that has sent nothing yet that counts as in flight.
    pub fn reconfigure(
        &mut self,
        algorithm: Algorithm,
        hystart: bool,
        pacing: bool,
        controller: Option<Controller>,
    ) {
        let config = &mut self.config;
        (config.algorithm, config.hystart, config.pacing) = (algorithm, hystart, pacing);
        self.controller =
            controller.unwrap_or_else(|| named_controller(&self.config, self.mtu.size()));
        self.episode.forget();
    }

    /// Goes on with another controller, from the present window; packets in flight stay what they
    /// are, and the round trip stays known.
    pub fn set_algorithm(&mut self, now: Time, algorithm: Algorithm) {
        self.config.algorithm = algorithm;
        self.set_controller(now, named_controller(&self.config, self.mtu.size()));
    }

    /// As [`Self::set_algorithm`], with a controller of the caller's.
    pub fn set_controller(&mut self, now: Time, mut controller: Controller) {
        self.touch(now);
        controller.take_over(&Handover {
            now: self.now,
            window: self.controller.window(),
            in_slow_start: self.controller.in_slow_start(),
            smoothed_rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            delivery_rate: self.sampler.latest(),
        });
        self.controller = controller;
        // Losses of the time before are not this controller's to undo.
        self.episode.forget();
    }

    /// The controller in use, by name; of a caller's own one, what was configured.
    pub fn algorithm(&self) -> Algorithm {
        self.config.algorithm
    }

    // Sending.

    /// Decides whether the train about to be built is marked ECT(0) (RFC 9000 §13.4): all of its
    /// packets are, or none.
    pub fn mark_train(&mut self) {
        self.marking = self.ecn.marks();
    }

    /// The datagram being built is not marked: it is to arrive whatever becomes of marks.
    pub fn leave_unmarked(&mut self) {
        self.marking = false;
    }

    /// Whether the train being built is marked.
    pub fn is_train_marked(&self) -> bool {
        self.marking
    }

    /// Whether a 1-RTT acknowledgement that leaves now should hold a PING. So an end that is heard
    /// while its own packets get nowhere learns at the next acknowledgement that they pass again.
    pub fn may_ask(&self, now: Time) -> bool {
        self.pto.may_ask(now, &self.rtt)
    }

    /// There is nothing more to send although the window has room, whether `permit` allowed it or
    /// told to wait: without a pacer the window would not have been filled either, so neither may
    /// the rate count as the path's nor may the window grow (RFC 9002 §7.8).
    pub fn on_app_limited(&mut self) {
        self.flight.on_app_limited();
        self.pacer.on_app_limited();
        self.on_rate_below_path();
    }

    /// It is not the path that holds the sender back.
    pub(crate) fn on_rate_below_path(&mut self) {
        self.sampler.on_app_limited(self.flight.bytes());
        self.controller
            .on_app_limited(self.now, self.flight.bytes());
    }

    // Questions.

    /// The round-trip estimator.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The PTO of a space, without backoff; max_ack_delay included in the application space only.
    pub fn pto(&self, space: PacketNumberSpace) -> Duration {
        self.pto.period(&self.rtt, space)
    }

    /// Bytes sent in packets in flight that are neither acknowledged nor lost.
    pub fn bytes_in_flight(&self) -> u64 {
        self.flight.bytes()
    }

    /// The congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.controller.window()
    }

    /// The fewest ACKs the controller's present phase needs from the peer.
    pub fn least_ack_rate(&self) -> LeastAckRate {
        self.controller.least_ack_rate()
    }

    /// Bytes per second; `None` when pacing is off or the round trip zero.
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        if !self.config.pacing {
            return None;
        }
        self.controller.pacing_rate().or_else(|| {
            pacing::rate_of_window(
                self.controller.window(),
                self.controller.in_slow_start(),
                self.rtt.smoothed(),
            )
        })
    }

    pub(crate) fn touch(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    // Another path.

    /// The state of another path of the same connection: nothing is known of it, and what is
    /// configured is the same, but for its sizes of datagrams: those of its address family, unless
    /// none is looked for. Its window is a new one (RFC 9000 §9.4).
    #[must_use]
    pub fn beside(&self, id: PathId, sizes: DatagramSizes) -> Self {
        let datagram_sizes = match self.config.datagram_sizes.search {
            true => sizes.limited(self.peer_max),
            false => self.config.datagram_sizes,
        };
        let config = Config {
            datagram_sizes,
            ..self.config.clone()
        };
        Self {
            id,
            pto: self.pto.beside(),
            peer_max: self.peer_max,
            now: self.now,
            ..Self::new(config)
        }
    }

    /// The connection goes on on this path instead of `before`, which keeps what it knew in case it
    /// is taken up again. What a connection has once comes along: what the peer said, and a
    /// controller that there is only one of, which begins anew.
    pub fn take_over(&mut self, now: Time, before: &mut Self) {
        self.touch(now);
        self.pto.take_over(&before.pto);
        self.marking = false;
        // What became of a probe from an earlier time on this path was told to another.
        self.mtu.on_abandoned();
        if self.config.algorithm != before.config.algorithm {
            self.config.algorithm = before.config.algorithm;
            self.controller = named_controller(&self.config, self.mtu.size());
        }
        if matches!(
            before.controller,
            Controller::Host(_) | Controller::Custom(_)
        ) {
            let stand_in = named_controller(&before.config, before.mtu.size());
            self.controller = core::mem::replace(&mut before.controller, stand_in);
            self.controller.on_path_change(now, self.mtu.size());
        }
    }
}

/// A new controller of the configured kind.
fn named_controller(config: &Config, datagram_size: u16) -> Controller {
    Controller::new(
        config.algorithm,
        datagram_size,
        config.hystart,
        config.pacing,
    )
    .with_seed(config.seed)
}
