//! What a world asks of a host: the contract of an engine without I/O, in terms of datagrams.

use std::net::SocketAddr;

use towline_wire::Time;

use super::wire::Train;
use crate::{Datagram, TooBig};

/// Takes trains and the time; gives trains, events and its next deadline.
pub trait Host {
    /// What it tells its application.
    type Event;

    /// Where it is reached, and where its trains come from that name no other source.
    fn address(&self) -> SocketAddr;

    /// Whether it is reached at `address`: a host may have several.
    fn has_address(&self, address: SocketAddr) -> bool {
        self.address() == address
    }

    /// Takes a train in.
    fn handle(&mut self, now: Time, train: &mut Train);

    /// Hears of a router that one of its datagrams was too big; it may not listen, and not believe.
    fn handle_too_big(&mut self, _now: Time, _notice: &TooBig) {}

    /// Builds the next train; `None` if there is nothing to send now.
    fn poll_transmit(&mut self, now: Time) -> Option<Outgoing>;

    /// The bytes of the train that was built last.
    fn train(&self) -> &[u8];

    /// When its timers next want to run.
    fn next_timeout(&self) -> Option<Time>;

    /// Runs what is due.
    fn handle_timeout(&mut self, now: Time);

    /// The next thing its application should know.
    fn poll_event(&mut self) -> Option<Self::Event>;
}

/// A train that a host has built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Which of the host's addresses it comes from; `None`: [`Host::address`].
    pub source: Option<SocketAddr>,
    /// Where it goes.
    pub destination: SocketAddr,
    /// The two ECN bits of every datagram, or `None` where the host sets none.
    pub ecn: Option<u8>,
    /// Bytes of each datagram but the last.
    pub stride: usize,
    /// Bytes of all of them.
    pub len: usize,
}

impl Outgoing {
    /// The train of a host with this address, or a part of it.
    pub(super) fn of(&self, address: SocketAddr, bytes: &[u8]) -> Train {
        let source = self.source.unwrap_or(address);
        let mut datagram = Datagram::new(source, self.destination, bytes.to_vec());
        datagram.ecn = self.ecn;
        Train {
            datagram,
            stride: self.stride,
        }
    }
}
