//! What joins the hosts of a world: simulated links, or a function call.

use std::collections::VecDeque;
use std::time::Duration;

use towline_wire::Time;

use crate::{Datagram, Network, TooBig};

/// Datagrams of one size side by side, as segmentation offload carries them; the last may be shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    /// The bytes of all, with the addresses and ECN bits they share.
    pub datagram: Datagram,
    /// Bytes of each datagram but the last.
    pub stride: usize,
}

impl Train {
    /// Each datagram's payload.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.datagram.payload.chunks(self.stride.max(1))
    }
}

/// A train of one.
impl From<Datagram> for Train {
    fn from(datagram: Datagram) -> Self {
        Self {
            stride: datagram.payload.len(),
            datagram,
        }
    }
}

/// Carries trains from host to host.
pub trait Wire {
    /// Whether trains stay whole. Otherwise each datagram travels, and may be lost, by itself.
    fn carries_trains(&self) -> bool {
        false
    }

    /// Takes a train.
    fn send(&mut self, now: Time, train: Train);

    /// The next train that has arrived by `now`.
    fn poll_deliver(&mut self, now: Time) -> Option<Train>;

    /// The next notice of a datagram that was too big which has reached its host by `now`.
    fn poll_too_big(&mut self, _now: Time) -> Option<TooBig> {
        None
    }

    /// When the next train, or notice, arrives.
    fn next_timeout(&self) -> Option<Time>;
}

impl Wire for Network {
    fn send(&mut self, now: Time, train: Train) {
        Network::send(self, now, train.datagram);
    }

    fn poll_deliver(&mut self, now: Time) -> Option<Train> {
        Network::poll_deliver(self, now).map(Train::from)
    }

    fn poll_too_big(&mut self, now: Time) -> Option<TooBig> {
        Network::poll_too_big(self, now)
    }

    fn next_timeout(&self) -> Option<Time> {
        Network::next_timeout(self)
    }
}

/// A wire that loses nothing: what is sent arrives a fixed time later, in order.
#[derive(Debug, Default)]
pub struct Direct {
    delay: Duration,
    whole: bool,
    no_ecn: bool,
    /// With the time of arrival.
    under_way: VecDeque<(Time, Train)>,
}

impl Direct {
    /// A wire that carries datagrams, each in `delay`.
    pub fn datagrams(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// A function call: trains stay whole and arrive at once.
    pub fn trains() -> Self {
        Self {
            whole: true,
            ..Self::default()
        }
    }

    /// Tells nobody the ECN bits.
    #[must_use]
    pub fn without_ecn(self) -> Self {
        Self {
            no_ecn: true,
            ..self
        }
    }

    /// Loses all that is under way.
    pub fn clear(&mut self) {
        self.under_way.clear();
    }
}

impl Wire for Direct {
    fn carries_trains(&self) -> bool {
        self.whole
    }

    fn send(&mut self, now: Time, mut train: Train) {
        train.datagram.ecn = train.datagram.ecn.filter(|_| !self.no_ecn);
        self.under_way.push_back((now + self.delay, train));
    }

    fn poll_deliver(&mut self, now: Time) -> Option<Train> {
        self.under_way.front().filter(|(at, _)| *at <= now)?;
        self.under_way.pop_front().map(|(_, train)| train)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.under_way.front().map(|(at, _)| *at)
    }
}
