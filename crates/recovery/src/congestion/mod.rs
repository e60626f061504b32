//! Congestion controllers: how much may be in flight.
//!
//! `Recovery` owns one `Controller`, tells it of each send, once of each ACK and once of each batch
//! of losses, and reads its window. A controller never sees packets, frames or timers of loss
//! detection. The samples already hold what delay- and model-based controllers need (LEDBAT++,
//! BBR), so they join as further arms of the enum; anything else goes in through `Custom`.

mod bbr;
mod cubic;
mod fixed_rate;
mod host;
mod hystart;
mod ledbat;
mod new_reno;

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;
use core::time::Duration;

use towline_wire::Time;

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use fixed_rate::{FixedRate, LEAST_FIXED_RATE};
pub use host::{HOST_TARGET, HostController, HostMember};
pub use ledbat::{LEDBAT_TARGET, Ledbat};
pub use new_reno::NewReno;

/// Which controller to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 9002 §7: halve on loss, one datagram per round trip otherwise.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// BBRv3, draft-ietf-ccwg-bbr-06.
    Bbr,
    /// draft-irtf-iccrg-ledbat-plus-plus: for transfers that make way for others.
    LedbatPlusPlus,
    /// So many bytes per second, whatever happens: for paths whose capacity is known.
    FixedRate(NonZeroU64),
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FixedRate(rate) => {
                f.write_str("fixed:")?;
                return fixed_rate::write_rate(f, *rate);
            }
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::LedbatPlusPlus => "ledbat++",
        })
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "newreno" => Ok(Self::NewReno),
            "cubic" => Ok(Self::Cubic),
            "bbr" => Ok(Self::Bbr),
            "ledbat++" | "ledbat" => Ok(Self::LedbatPlusPlus),
            _ => match text.strip_prefix("fixed") {
                Some(rate) => fixed_rate::parse_rate(rate.strip_prefix(':').unwrap_or("?"))
                    .map(Self::FixedRate),
                None => Err(UnknownAlgorithm::Name),
            },
        }
    }
}

/// Why a text names no congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownAlgorithm {
    /// No controller has that name.
    Name,
    /// `fixed:` is followed by nothing that is a rate above zero.
    Rate,
    /// The fixed rate is below [`LEAST_FIXED_RATE`].
    TooSlow,
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => {
                "unknown congestion controller; known are newreno, cubic, bbr, ledbat++, fixed:RATE"
            }
            Self::Rate => {
                "a fixed rate is written fixed:10mbit (bits a second) or fixed:2M (bytes a second) \
                 and is more than zero"
            }
            Self::TooSlow => {
                return write!(
                    f,
                    "too slow for a handshake to finish; the least fixed rate is \
                     {LEAST_FIXED_RATE} bytes a second"
                );
            }
        })
    }
}

impl core::error::Error for UnknownAlgorithm {}

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
const LEAST_ACKS_OTHERWISE: LeastAckRate = LeastAckRate { per_round: 2 };

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

/// The controller in use: known ones without a virtual call, others boxed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Controller {
    /// RFC 9002.
    NewReno(NewReno),
    /// RFC 9438.
    Cubic(Cubic),
    /// BBRv3.
    Bbr(Box<Bbr>),
    /// LEDBAT++.
    Ledbat(Ledbat),
    /// A fixed rate.
    FixedRate(FixedRate),
    /// A member of the host's one background controller.
    Host(HostMember),
    /// Somebody else's.
    Custom(Box<dyn CongestionController + Send>),
}

impl Controller {
    /// A fresh controller. `paced` tells HyStart++ that it need not limit its own bursts.
    pub fn new(algorithm: Algorithm, max_datagram_size: u16, hystart: bool, paced: bool) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(max_datagram_size, hystart, paced)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(max_datagram_size, hystart, paced)),
            Algorithm::LedbatPlusPlus => Self::Ledbat(Ledbat::new(max_datagram_size)),
            Algorithm::FixedRate(rate) => Self::FixedRate(FixedRate::new(max_datagram_size, rate)),
            Algorithm::Bbr => Self::Bbr(Box::new(Bbr::new(max_datagram_size, 0))),
        }
    }

    /// What losses are about to reduce, of a controller that cannot undo that by itself and can be
    /// put back as a whole.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        match self {
            Self::NewReno(new_reno) => Some(Checkpoint::NewReno(Box::new(new_reno.clone()))),
            Self::Ledbat(ledbat) => Some(Checkpoint::Ledbat(Box::new(ledbat.clone()))),
            Self::Host(member) => Some(Checkpoint::Host(Box::new(member.before_reduction()))),
            _ => None,
        }
    }

    /// The losses that `checkpoint` was taken for have reduced the window.
    pub(crate) fn confirm(&self, checkpoint: &mut Checkpoint) {
        if let (Self::Host(member), Checkpoint::Host(reduction)) = (self, checkpoint) {
            member.confirm_reduction(reduction);
        }
    }

    /// Goes back to where it was before a reduction that proved spurious; `false` if it has come
    /// that far again by itself.
    pub(crate) fn restore(&mut self, checkpoint: Checkpoint) -> bool {
        let window = self.window();
        match (self, checkpoint) {
            (Self::NewReno(now), Checkpoint::NewReno(before)) if window <= before.window() => {
                *now = *before;
                true
            }
            // In a slowdown it is only the threshold that losses reduce.
            (Self::Ledbat(now), Checkpoint::Ledbat(before)) if window <= before.window() => {
                *now = *before;
                true
            }
            (Self::Host(member), Checkpoint::Host(reduction)) => member.undo(*reduction),
            _ => false,
        }
    }

    /// The same with the seed of its random choices; before anything was sent.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        match self {
            Self::Bbr(bbr) => Self::Bbr(Box::new(bbr.with_seed(seed))),
            other => other,
        }
    }
}

/// A controller before a reduction.
#[derive(Clone, Debug)]
pub(crate) enum Checkpoint {
    NewReno(Box<NewReno>),
    Ledbat(Box<Ledbat>),
    Host(Box<host::undo::Reduction>),
}

macro_rules! delegate {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self {
            Controller::NewReno($inner) => $call,
            Controller::Cubic($inner) => $call,
            Controller::Bbr($inner) => $call,
            Controller::Ledbat($inner) => $call,
            Controller::FixedRate($inner) => $call,
            Controller::Host($inner) => $call,
            Controller::Custom($inner) => $call,
        }
    };
}

impl CongestionController for Controller {
    fn on_sent(&mut self, sample: &SendSample) {
        delegate!(self, inner => inner.on_sent(sample))
    }
    fn on_ack(&mut self, sample: &AckSample) -> bool {
        delegate!(self, inner => inner.on_ack(sample))
    }
    fn on_lost(&mut self, sample: &LossSample<'_>) -> bool {
        delegate!(self, inner => inner.on_lost(sample))
    }
    fn on_spurious_loss(&mut self, now: Time) -> bool {
        delegate!(self, inner => inner.on_spurious_loss(now))
    }
    fn on_persistent_congestion(&mut self, now: Time) {
        delegate!(self, inner => inner.on_persistent_congestion(now))
    }
    fn on_max_datagram_size(&mut self, max_datagram_size: u16, during_handshake: bool) {
        delegate!(self, inner => inner.on_max_datagram_size(max_datagram_size, during_handshake))
    }
    fn on_path_change(&mut self, now: Time, max_datagram_size: u16) {
        delegate!(self, inner => inner.on_path_change(now, max_datagram_size))
    }
    fn take_over(&mut self, handover: &Handover) {
        delegate!(self, inner => inner.take_over(handover))
    }
    fn on_app_limited(&mut self, now: Time, bytes_in_flight: u64) {
        delegate!(self, inner => inner.on_app_limited(now, bytes_in_flight))
    }
    fn turn(&mut self, now: Time, bytes_in_flight: u64) -> Option<Result<u64, Time>> {
        delegate!(self, inner => inner.turn(now, bytes_in_flight))
    }
    fn next_timeout(&self) -> Option<Time> {
        delegate!(self, inner => inner.next_timeout())
    }
    fn on_timeout(&mut self, now: Time) {
        delegate!(self, inner => inner.on_timeout(now))
    }
    #[inline]
    fn window(&self) -> u64 {
        delegate!(self, inner => inner.window())
    }
    fn ssthresh(&self) -> Option<u64> {
        delegate!(self, inner => inner.ssthresh())
    }
    fn in_slow_start(&self) -> bool {
        delegate!(self, inner => inner.in_slow_start())
    }
    fn recovery_start(&self) -> Option<Time> {
        delegate!(self, inner => inner.recovery_start())
    }
    fn pacing_rate(&self) -> Option<u64> {
        delegate!(self, inner => inner.pacing_rate())
    }
    fn send_quantum(&self) -> Option<u64> {
        delegate!(self, inner => inner.send_quantum())
    }
    fn is_holding_back(&self) -> bool {
        delegate!(self, inner => inner.is_holding_back())
    }
    fn strict_rate(&self) -> Option<NonZeroU64> {
        delegate!(self, inner => inner.strict_rate())
    }
    fn least_ack_rate(&self) -> LeastAckRate {
        delegate!(self, inner => inner.least_ack_rate())
    }
}

/// The initial window: `min(10 * size, max(14720, 2 * size))` (RFC 9002 §7.2).
pub fn initial_window(max_datagram_size: u16) -> u64 {
    let size = u64::from(max_datagram_size);
    (10 * size).min((2 * size).max(14_720))
}

/// The least window after a loss: two datagrams (RFC 9002 §7.2).
pub fn minimum_window(max_datagram_size: u16) -> u64 {
    2 * u64::from(max_datagram_size)
}

/// The window after a change of the datagram size: the same in bytes, unless the size was lowered to
/// get the handshake through (RFC 9002 §7.2).
fn resized_window(window: u64, old: u16, new: u16, during_handshake: bool) -> u64 {
    match during_handshake && new < old {
        true => initial_window(new),
        false => window.max(minimum_window(new)),
    }
}

/// Whether a loss or mark of a packet sent at `sent` opens a new recovery period.
fn opens_recovery(recovery_start: Option<Time>, sent: Time) -> bool {
    recovery_start.is_none_or(|start| sent > start)
}

#[cfg(test)]
mod tests;
