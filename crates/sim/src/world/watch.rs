//! What a test wants to see of a world, and to change in it.

use towline_wire::Time;

use super::host::{Host, Outgoing};
use super::wire::{Train, Wire};
use crate::TooBig;

/// Sees all that goes into the hosts and comes out of them. As it stands, everything takes its course.
///
/// The methods named as those of [`Host`] make the call themselves, so that a watch can look at the
/// host before and after, or leave it out. `at` is the place of the host it is about.
pub trait Watch<H: Host, W: Wire> {
    /// A call into host `at` follows: whoever measures starts the meter.
    fn enter(&mut self, _at: usize) {}

    /// The call is over.
    fn leave(&mut self) {}

    /// A train reaches a host.
    fn deliver(&mut self, now: Time, hosts: &mut [H], at: usize, train: &mut Train) {
        hosts[at].handle(now, train);
    }

    /// A host hears that one of its datagrams was too big.
    fn on_too_big(&mut self, now: Time, hosts: &mut [H], at: usize, notice: &TooBig) {
        hosts[at].handle_too_big(now, notice);
    }

    /// A timer is due.
    fn handle_timeout(&mut self, now: Time, hosts: &mut [H], at: usize) {
        hosts[at].handle_timeout(now);
    }

    /// A host builds a train.
    fn poll_transmit(&mut self, now: Time, hosts: &mut [H], at: usize) -> Option<Outgoing> {
        hosts[at].poll_transmit(now)
    }

    /// What a host puts on the wire, to be looked at and changed; `false` drops it. On a wire that
    /// does not carry trains each datagram comes by itself.
    fn send(&mut self, _now: Time, _hosts: &mut [H], _at: usize, _train: &mut Train) -> bool {
        true
    }

    /// The whole of a train is on the wire, or dropped.
    fn on_sent(&mut self, _now: Time, _at: usize, _net: &W) {}

    /// A host tells its application something, which may call the hosts in turn.
    fn on_event(&mut self, _now: Time, _hosts: &mut [H], _at: usize, _event: H::Event) {}

    /// A train arrives where there is no host.
    fn on_stray(&mut self, _now: Time, _train: Train, _net: &mut W) {}
}

/// Sees nothing.
impl<H: Host, W: Wire> Watch<H, W> for () {}
