//! The one thing links carry: a UDP datagram with its addresses, and what its sender hears when it
//! was too long. It is opaque here; no part of this crate looks into the payload except to flip or
//! cut bits of it.

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

/// Most bytes that a [`TooBig`] quotes: what fits an IPv4 error of 576 bytes (RFC 1812 §4.3.2.3).
pub const MAX_QUOTED_BYTES: usize = 548;

/// What a router tells the sender of a datagram that was too long for the next link: ICMP
/// "fragmentation needed" or ICMPv6 "packet too big". The path may carry less still, or the router lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Source of the datagram that was dropped: the host that is told.
    pub source: SocketAddr,
    /// Where it went.
    pub destination: SocketAddr,
    /// Longest payload that the link carries.
    pub mtu: usize,
    /// The begin of the payload, up to [`MAX_QUOTED_BYTES`].
    pub quoted: Vec<u8>,
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

    /// Sets the ECN bits of a datagram that is ECN-capable; false if that changes nothing.
    pub(crate) fn rewrite_ecn(&mut self, new: u8) -> bool {
        match &mut self.ecn {
            Some(bits) if *bits & 3 != 0 && *bits & 3 != new => {
                *bits = *bits & !3 | new;
                true
            }
            _ => false,
        }
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
