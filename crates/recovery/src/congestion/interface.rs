//! What a congestion controller is told and what it answers: the trait and its samples.
//!
//! Below every controller and the enum of them; holds no state and decides nothing but when a
//! recovery period opens, which all that react to loss ask alike.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use towline_wire::Time;

/// A packet in flight was sent.
#[derive(Clone, Copy, Debug)]
pub struct SendSample {
    /// When.
    pub now: Time,
    /// Its size.
    pub bytes: u64,
    /// Bytes in flight before it.
    pub bytes_in_flight: u64,
    /// Whether the application holds the rate down.
    pub app_limited: bool,
}

/// What one ACK frame said, in total. Times of day are `now`'s; sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When the ACK arrived.
    pub now: Time,
    /// Bytes in flight that it newly acknowledges.
    pub acked_bytes: u64,
    /// Those of them sent after [`CongestionController::recovery_start`]: only they may grow the
    /// window (RFC 9002 §7.3.2).
    pub acked_bytes_after_recovery: u64,
    /// Packets in flight that it newly acknowledges.
    pub acked_packets: u64,
    /// Send time of the newest packet that it newly acknowledges.
    pub newest_sent_time: Time,
    /// Bytes in flight before acknowledged and lost ones were removed.
    pub bytes_in_flight_before: u64,
    /// Bytes in flight now.
    pub bytes_in_flight: u64,
    /// This ACK's round-trip sample as measured; `None` if it yields none.
    pub rtt: Option<Duration>,
    /// The same less the peer's ACK delay, but not below min_rtt.
    pub adjusted_rtt: Option<Duration>,
    /// smoothed_rtt.
    pub smoothed_rtt: Duration,
    /// min_rtt, or `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// All bytes delivered so far, these included.
    pub delivered: u64,
    /// Bytes that had been delivered when the newest acknowledged packet was sent.
    pub prior_delivered: u64,
    /// Number of the current round trip, counted from 1.
    pub round: u64,
    /// Whether this ACK starts that round.
    pub round_start: bool,
    /// Bytes per second; `None` if the interval was shorter than min_rtt.
    pub delivery_rate: Option<u64>,
    /// Bytes in flight just after the newest acknowledged packet's train was sent.
    pub tx_in_flight: u64,
    /// Bytes lost between the sending of that packet and now.
    pub lost_since_sent: u64,
    /// Whether the application had held the rate down when that packet was sent.
    pub app_limited: bool,
    /// Whether the flight these bytes belong to filled the window, or was only held back by
    /// pacing. If not, the window must not grow (RFC 9002 §7.8).
    pub cwnd_limited: bool,
    /// By how much the peer's CE count rose; zero unless the ACK raised the largest acknowledged.
    pub ce_marks: u64,
    /// One-way delay towards the peer, if the peer reports receive timestamps.
    pub one_way_delay: Option<Duration>,
}

/// Packets in flight declared lost together.
#[derive(Clone, Copy, Debug)]
pub struct LossSample<'a> {
    /// When the loss was detected.
    pub now: Time,
    /// Bytes lost.
    pub bytes: u64,
    /// Contiguous ranges of packet numbers that they form.
    pub ranges: u32,
    /// Send time of the newest lost packet.
    pub largest_sent_time: Time,
    /// All bytes delivered so far, those of an ACK that revealed the losses included.
    pub delivered: u64,
    /// All bytes lost so far, these included.
    pub lost: u64,
    /// Bytes in flight before acknowledged and lost ones were removed.
    pub bytes_in_flight_before: u64,
    /// As in [`AckSample::cwnd_limited`].
    pub cwnd_limited: bool,
    /// Each packet, oldest first.
    pub packets: &'a [LostPacket],
}

/// One lost packet and what was known when its train was sent.
#[derive(Clone, Copy, Debug)]
pub struct LostPacket {
    /// Its number.
    pub packet_number: u64,
    /// Its size in bytes.
    pub size: u16,
    /// When it was sent.
    pub sent_time: Time,
    /// Bytes delivered before it was sent.
    pub delivered: u64,
    /// Bytes lost before it was sent.
    pub lost: u64,
    /// Bytes in flight just after its train was sent.
    pub tx_in_flight: u64,
    /// Whether the application held the rate down then.
    pub app_limited: bool,
}

/// The fewest ACKs a controller can work with; thinner ones would silently switch parts of it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastAckRate {
    /// ACKs that yield a round-trip sample, per round trip.
    pub per_round: u32,
}

/// Enough ACKs for window growth and loss detection to keep up.
pub(super) const LEAST_ACKS_OTHERWISE: LeastAckRate = LeastAckRate { per_round: 2 };

/// What a controller that takes over a running connection is told.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    /// When.
    pub now: Time,
    /// The window so far, bytes.
    pub window: u64,
    /// Whether the controller before was still in slow start.
    pub in_slow_start: bool,
    /// smoothed_rtt.
    pub smoothed_rtt: Duration,
    /// min_rtt, or `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// Newest delivery rate, bytes per second.
    pub delivery_rate: Option<u64>,
}

/// A congestion controller. All sizes are bytes; `now` never decreases between calls.
pub trait CongestionController: fmt::Debug {
    /// A packet in flight was sent.
    fn on_sent(&mut self, sample: &SendSample) {
        let _ = sample;
    }

    /// An ACK acknowledged new packets in flight or reported CE marks. Called once per ACK, after
    /// `on_lost` for the losses that it revealed. Returns whether the window was reduced.
    fn on_ack(&mut self, sample: &AckSample) -> bool;

    /// Packets in flight were lost. Returns whether the window was reduced.
    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool;

    /// Every packet whose loss led to the latest reduction was acknowledged after all. Returns
    /// whether the reduction was undone. Not asked of those that `Recovery` puts back as a whole.
    fn on_spurious_loss(&mut self, now: Time) -> bool {
        let _ = now;
        false
    }

    /// Persistent congestion was established (RFC 9002 §7.6.2); follows `on_lost`, and `on_ack` if
    /// an ACK showed it.
    fn on_persistent_congestion(&mut self, now: Time);

    /// The datagram size changed. `during_handshake` tells a size lowered to get the handshake
    /// through, which restarts the window (RFC 9002 §7.2); otherwise the window in bytes stays.
    fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool);

    /// The path changed: everything known about it is void.
    fn on_path_change(&mut self, now: Time, max_datagram_size: u16);

    /// Goes on where another controller stopped, instead of at the initial window: neither a burst
    /// nor a collapse. Called once, before anything else.
    fn take_over(&mut self, handover: &Handover);

    /// Nothing more to send although the window has room.
    fn on_app_limited(&mut self, now: Time, bytes_in_flight: u64) {
        let _ = (now, bytes_in_flight);
    }

    /// Bytes that may leave now or the time to ask again, for a controller that has its senders
    /// take turns; `None` leaves the pace to the pacer.
    fn turn(&mut self, now: Time, bytes_in_flight: u64) -> Option<Result<u64, Time>> {
        let _ = (now, bytes_in_flight);
        None
    }

    /// When `on_timeout` wants to be called.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// `next_timeout` has passed.
    fn on_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// The congestion window.
    fn window(&self) -> u64;

    /// The slow-start threshold, or `None` before the first congestion event.
    fn ssthresh(&self) -> Option<u64>;

    /// Whether the window is below the threshold.
    fn in_slow_start(&self) -> bool {
        self.ssthresh()
            .is_none_or(|ssthresh| self.window() < ssthresh)
    }

    /// Start of the current recovery period: losses and growth of packets sent at or before it do
    /// not count again.
    fn recovery_start(&self) -> Option<Time>;

    /// Bytes per second to pace at, if not derived from window and round trip.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Bytes worth sending in one go, which then also bound the pacer's bursts; `None` for the
    /// initial window.
    fn send_quantum(&self) -> Option<u64> {
        None
    }

    /// Whether the controller sends less than it could in order to measure: delivery rates of
    /// what is in flight then count as application-limited.
    fn is_holding_back(&self) -> bool {
        false
    }

    /// Bytes per second that all packets together must not exceed, those without need of a permit
    /// included.
    fn strict_rate(&self) -> Option<NonZeroU64> {
        None
    }

    /// The fewest ACKs the present phase needs.
    fn least_ack_rate(&self) -> LeastAckRate;
}

/// Makes controllers that are not of this crate, one for each connection.
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// A controller for a new connection, whose datagrams have so many bytes at most.
    fn controller(&self, max_datagram_size: u16) -> Box<dyn CongestionController + Send>;
}

/// Whether a loss or mark of a packet sent at `sent` opens a new recovery period.
pub(super) fn opens_recovery(recovery_start: Option<Time>, sent: Time) -> bool {
    recovery_start.is_none_or(|start| sent > start)
}
