//! The one thing links carry: a UDP datagram with its addresses. It is opaque here; no part
//! of this crate looks into the payload except to flip or cut bits of it.

use std::net::SocketAddr;

/// A UDP datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it says it comes from; a NAT on the way may have rewritten it.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// The two ECN bits of the IP header (RFC 3168 §5), or `None` where the host does not tell.
    pub ecn: Option<u8>,
    /// The UDP payload.
    pub payload: Vec<u8>,
}

impl Datagram {
    /// A datagram without ECN information.
    pub fn new(source: SocketAddr, destination: SocketAddr, payload: Vec<u8>) -> Self {
        Self {
            source,
            destination,
            ecn: None,
            payload,
        }
    }

    /// Whether its sender understands marks: ECT(0), ECT(1) or CE (RFC 3168 §5).
    pub fn is_ecn_capable(&self) -> bool {
        self.ecn.is_some_and(|bits| bits & 3 != 0)
    }

    /// Sets Congestion Experienced; false if it was set, or cannot be.
    pub(crate) fn mark_congestion(&mut self) -> bool {
        match &mut self.ecn {
            Some(bits) if matches!(*bits & 3, 1 | 2) => {
                *bits |= 3;
                true
            }
            _ => false,
        }
    }
}
