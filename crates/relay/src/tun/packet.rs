//! What the relay reads from an IP header and the one thing it writes there: addresses, and the ECN
//! bits. Never looks beyond the fixed header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The two ECN bits; all of them are congestion experienced (RFC 3168 §5).
const CE: u8 = 0b11;

pub(super) const V4_HEADER: usize = 20;
pub(super) const V6_HEADER: usize = 40;

/// Of the header, what the links are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The two ECN bits.
    pub(super) ecn: u8,
}

impl Header {
    /// Whether a path to another network would carry it. What a kernel says by itself on a new
    /// link (router solicitations, group reports) would disturb drop lists.
    pub(super) fn is_forwarded(&self) -> bool {
        !self.destination.is_multicast()
            && !self.source.is_unspecified()
            && ![self.source, self.destination]
                .into_iter()
                .any(|address| match address {
                    IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
                    IpAddr::V6(address) => address.is_unicast_link_local(),
                })
    }
}

/// `None` if this is no IP packet.
pub(super) fn read(packet: &[u8]) -> Option<Header> {
    match packet.first()? >> 4 {
        4 if packet.len() >= V4_HEADER => {
            let address = |at| Some(Ipv4Addr::from(*packet[at..].first_chunk::<4>()?));
            Some(Header {
                source: address(12)?.into(),
                destination: address(16)?.into(),
                ecn: packet[1] & CE,
            })
        }
        6 if packet.len() >= V6_HEADER => {
            let address = |at| Some(Ipv6Addr::from(*packet[at..].first_chunk::<16>()?));
            Some(Header {
                source: address(8)?.into(),
                destination: address(24)?.into(),
                // The traffic class lies across two bytes; its low half is the second's high half.
                ecn: packet[1] >> 4 & CE,
            })
        }
        _ => None,
    }
}

/// Sets the ECN bits; an IPv4 header checksum that was right stays right, a wrong one wrong.
pub(super) fn set_ecn(packet: &mut [u8], bits: u8) {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= V4_HEADER => {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] = packet[1] & !CE | bits & CE;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let checksum = updated(checksum, before, after).to_be_bytes();
            packet[10..12].copy_from_slice(&checksum);
        }
        Some(6) if packet.len() >= V6_HEADER => {
            packet[1] = packet[1] & !(CE << 4) | (bits & CE) << 4;
        }
        _ => {}
    }
}

/// A checksum after one of its words has changed: RFC 1624 §3, equation 3.
pub(super) fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) as u16 + (folded >> 16) as u16)
}

#[cfg(test)]
mod tests;
