//! Congestion controllers: how much may be in flight.
//!
//! `Recovery` owns one `Controller`, tells it of each send, once of each ACK and once of each batch
//! of losses, and reads its window. A controller never sees packets, frames or timers of loss
//! detection. `interface` is what it implements; its samples already hold what delay- and
//! model-based controllers need (LEDBAT++, BBR), so they join as further arms of the enum; anything
//! else goes in through `Custom`.

mod algorithm;
mod bbr;
mod cubic;
mod fixed_rate;
mod host;
mod hystart;
mod interface;
mod ledbat;
mod new_reno;
mod window;

use core::num::NonZeroU64;

use towline_wire::Time;

pub use algorithm::{Algorithm, LEAST_FIXED_RATE, UnknownAlgorithm};
pub use bbr::Bbr;
pub use cubic::Cubic;
pub use fixed_rate::FixedRate;
pub use host::{HOST_TARGET, HostController, HostMember};
pub use interface::{
    AckSample, CongestionController, ControllerFactory, Handover, LeastAckRate, LossSample,
    LostPacket, SendSample,
};
pub use ledbat::{LEDBAT_TARGET, Ledbat};
pub use new_reno::NewReno;
pub use window::{initial_window, minimum_window};

/// The controller in use: known ones without a virtual call, others boxed, and so are those that are
/// larger than the default one.
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
    Ledbat(Box<Ledbat>),
    /// A fixed rate.
    FixedRate(FixedRate),
    /// A member of the host's one background controller.
    Host(Box<HostMember>),
    /// Somebody else's.
    Custom(Box<dyn CongestionController + Send>),
}

impl Controller {
    /// A fresh controller. `paced` tells HyStart++ that it need not limit its own bursts.
    pub fn new(algorithm: Algorithm, max_datagram_size: u16, hystart: bool, paced: bool) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(max_datagram_size, hystart, paced)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(max_datagram_size, hystart, paced)),
            Algorithm::LedbatPlusPlus => Self::Ledbat(Box::new(Ledbat::new(max_datagram_size))),
            Algorithm::FixedRate(rate) => Self::FixedRate(FixedRate::new(max_datagram_size, rate)),
            Algorithm::Bbr => Self::Bbr(Box::new(Bbr::new(max_datagram_size, 0))),
        }
    }

    /// What losses are about to reduce, of a controller that cannot undo that by itself and can be
    /// put back as a whole.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        match self {
            Self::NewReno(new_reno) => Some(Checkpoint::NewReno(Box::new(new_reno.clone()))),
            Self::Ledbat(ledbat) => Some(Checkpoint::Ledbat(ledbat.clone())),
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
                *now = before;
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

#[cfg(test)]
mod tests;
