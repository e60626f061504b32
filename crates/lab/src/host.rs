//! An endpoint as a host of a simulated world.
//!
//! Translates between the engine's terms and the simulator's. Every world of the lab, of its programs
//! and of the fuzz bodies is made of these.

use std::net::SocketAddr;

use towline_quic::{ConnectionHandle, DatagramMeta, Ecn, Endpoint, Event, TrainBuf};
use towline_sim::{Outgoing, TooBig, Train};
use towline_wire::Time;

/// An endpoint with its address.
pub struct Host {
    /// The engine.
    pub endpoint: Endpoint,
    /// Where it is reached.
    pub address: SocketAddr,
    /// The train it built last.
    pub train: TrainBuf,
}

impl Host {
    /// An endpoint that is reached at `address`.
    pub fn new(endpoint: Endpoint, address: SocketAddr) -> Self {
        Self {
            endpoint,
            address,
            train: TrainBuf::new(),
        }
    }
}

impl towline_sim::Host for Host {
    type Event = (ConnectionHandle, Event);

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn handle(&mut self, now: Time, train: &mut Train) {
        let meta = DatagramMeta {
            remote: train.datagram.source,
            local_ip: None,
            ecn: train.datagram.ecn.and_then(codepoint),
            stride: train.stride,
        };
        self.endpoint
            .handle_datagrams(now, meta, &mut train.datagram.payload);
    }

    fn handle_too_big(&mut self, now: Time, notice: &TooBig) {
        self.endpoint
            .handle_too_big(now, notice.destination, notice.mtu, &notice.quoted);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let transmit = self.endpoint.poll_transmit(now, &mut self.train)?;
        Some(Outgoing {
            source: None,
            destination: transmit.remote,
            ecn: transmit.ecn.map(bits),
            stride: transmit.segment_size,
            len: transmit.len,
        })
    }

    fn train(&self) -> &[u8] {
        self.train.filled()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.endpoint.poll_event()
    }
}

/// The codepoint behind the two bits of an IP header (RFC 3168 §5).
fn codepoint(bits: u8) -> Option<Ecn> {
    match bits & 0b11 {
        0b10 => Some(Ecn::Ect0),
        0b01 => Some(Ecn::Ect1),
        0b11 => Some(Ecn::Ce),
        _ => None,
    }
}

/// The two bits of a codepoint.
fn bits(codepoint: Ecn) -> u8 {
    match codepoint {
        Ecn::Ect0 => 0b10,
        Ecn::Ect1 => 0b01,
        Ecn::Ce => 0b11,
    }
}
