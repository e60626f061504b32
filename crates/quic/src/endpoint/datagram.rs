//! What the socket and an endpoint tell each other about datagrams.

use std::net::{IpAddr, SocketAddr};

use super::slots::ConnectionHandle;
use crate::connection::Arrival;
use crate::connection::component::Ecn;

/// What the socket said about a datagram, or a train of equal ones.
#[derive(Clone, Copy, Debug)]
pub struct DatagramMeta {
    /// The sender.
    pub remote: SocketAddr,
    /// The address it was sent to, where known.
    pub local_ip: Option<IpAddr>,
    /// ECN codepoint of all of them.
    pub ecn: Option<Ecn>,
    /// Size of each datagram but the last, bytes; the length for a single one.
    pub stride: usize,
}

impl DatagramMeta {
    pub(super) fn arrival(&self) -> Arrival {
        Arrival {
            remote: self.remote,
            local_ip: self.local_ip,
            ecn: self.ecn,
        }
    }
}

/// Where the datagrams of a [`TrainBuf`](crate::TrainBuf) go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The connection they are of; `None` for answers that belong to none.
    pub connection: Option<ConnectionHandle>,
    /// The peer.
    pub remote: SocketAddr,
    /// The local address to send from, where the peer's packets told it.
    pub local_ip: Option<IpAddr>,
    /// ECN codepoint for all datagrams.
    pub ecn: Option<Ecn>,
    /// Size of each datagram but the last, bytes.
    pub segment_size: usize,
    /// Bytes in the buffer.
    pub len: usize,
    /// It asks whether the path carries datagrams of its size; that it does not leave is an answer.
    pub mtu_probe: bool,
}
