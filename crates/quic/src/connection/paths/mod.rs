//! The paths of a connection: for each the peer's address, whether it is proven, how much may be
//! sent to it before that (RFC 9000 §8), and what recovery knows of it.
//!
//! One path for now; migration adds candidates here.

mod amplification;
mod validation;

use std::net::{IpAddr, SocketAddr};

use towline_recovery::PathState;
use towline_wire::{PATH_RESPONSE_LEN, write_path_response};

use super::component::PacketWriter;
pub(crate) use amplification::Amplification;
use validation::Responses;

/// One path.
#[derive(Debug)]
struct Path {
    state: PathState,
    remote: SocketAddr,
    /// Where all packets are sent from; `None` leaves it to the system.
    local_ip: Option<IpAddr>,
    /// What the peer's last packets were addressed to, where the socket tells it.
    received_at: Option<IpAddr>,
    amplification: Amplification,
}

/// The path that data takes.
#[derive(Debug)]
pub(crate) struct Paths {
    active: Path,
    responses: Responses,
}

impl Paths {
    /// Of a new connection, whose first path is `state`'s.
    pub(crate) fn new(
        state: PathState,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        validated: bool,
    ) -> Self {
        Self {
            active: Path {
                state,
                remote,
                local_ip,
                received_at: local_ip,
                amplification: Amplification::new(validated),
            },
            responses: Responses::default(),
        }
    }

    /// What recovery knows of the path that data takes.
    #[inline]
    pub(crate) fn state(&self) -> &PathState {
        &self.active.state
    }

    #[inline]
    pub(crate) fn state_mut(&mut self) -> &mut PathState {
        &mut self.active.state
    }

    /// The one address all packets go to (RFC 9000 §9.5).
    pub(crate) fn remote(&self) -> SocketAddr {
        self.active.remote
    }

    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.active.local_ip
    }

    /// The local address of the peer's last packets, where it is known.
    pub(crate) fn received_at(&self) -> Option<IpAddr> {
        self.active.received_at
    }

    /// Authentic packets came, addressed to this address of ours.
    pub(crate) fn on_received_at(&mut self, local_ip: Option<IpAddr>) {
        if local_ip.is_some() {
            self.active.received_at = local_ip;
        }
    }

    pub(crate) fn amplification(&mut self) -> &mut Amplification {
        &mut self.active.amplification
    }

    /// Bytes that may be sent before the address is proven; `u64::MAX` after.
    pub(crate) fn budget(&self) -> u64 {
        self.active.amplification.budget()
    }

    /// RFC 9000 §19.17.
    pub(crate) fn on_path_challenge(&mut self, data: [u8; 8]) {
        self.responses.push(data);
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.responses.is_empty()
    }

    /// One PATH_RESPONSE a packet, in a full-sized datagram so that the peer learns whether the
    /// path carries one (RFC 9000 §8.2.2); never retransmitted (§13.3).
    pub(crate) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>) {
        if w.remaining() >= PATH_RESPONSE_LEN
            && let Some(data) = self.responses.pop()
        {
            write_path_response(w.w, data);
            w.mark_ack_eliciting();
            w.expand_datagram = true;
        }
    }
}
