//! What the relay reads and writes beyond the IP header: ports, checksums, and the ICMP error for a
//! packet that is too big.
//!
//! UDP and TCP directly behind the IP header only: fragments but the first, extension headers and
//! other protocols have no ports here and pass as they are. Every length is checked; nothing panics.

use std::net::{IpAddr, SocketAddr};

use super::packet::{self, V4_HEADER, V6_HEADER, updated};

const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
const ICMP_HEADER: usize = 8;

/// Where the checksum of an IPv4 header is.
const V4_SUM: usize = 10;

/// Where the transport header of a packet begins, and of which protocol it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    pub(super) protocol: u8,
    at: usize,
}

/// One of a packet's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

impl Transport {
    /// `None` where there are no ports to read.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let found = match packet.first()? >> 4 {
            4 if packet.len() >= V4_HEADER => {
                let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff;
                let at = usize::from(packet[0] & 0xf) * 4;
                (fragment == 0 && at >= V4_HEADER).then_some(Self {
                    protocol: packet[9],
                    at,
                })?
            }
            6 if packet.len() >= V6_HEADER => Self {
                protocol: packet[6],
                at: V6_HEADER,
            },
            _ => return None,
        };
        let header = match found.protocol {
            UDP => 8,
            TCP => 20,
            _ => return None,
        };
        (packet.len() >= found.at + header).then_some(found)
    }

    /// The address and port of one end.
    pub(super) fn end(self, packet: &[u8], end: End) -> Option<SocketAddr> {
        let header = packet::read(packet)?;
        let (ip, at) = match end {
            End::Source => (header.source, self.at),
            End::Destination => (header.destination, self.at + 2),
        };
        let port = u16::from_be_bytes(*packet.get(at..)?.first_chunk()?);
        Some(SocketAddr::new(ip, port))
    }

    /// Writes the address and port of one end; checksums that were right stay right, wrong ones wrong.
    pub(super) fn set_end(self, packet: &mut [u8], end: End, new: SocketAddr) {
        let is_v4 = packet[0] >> 4 == 4;
        let ip_at = match (is_v4, end) {
            (true, End::Source) => 12,
            (true, End::Destination) => 16,
            (false, End::Source) => 8,
            (false, End::Destination) => 24,
        };
        let port_at = self.at + if end == End::Source { 0 } else { 2 };
        let sum_at = self.sum_at();
        let mut sums = vec![sum_at];
        if self.protocol == UDP && packet[sum_at..sum_at + 2] == [0, 0] {
            // A UDP checksum of 0 over IPv4 says that there is none.
            sums.clear();
        }
        replace(packet, port_at, &new.port().to_be_bytes(), &sums);
        match new.ip() {
            IpAddr::V4(ip) if is_v4 => {
                sums.push(V4_SUM);
                replace(packet, ip_at, &ip.octets(), &sums);
            }
            IpAddr::V6(ip) if !is_v4 => replace(packet, ip_at, &ip.octets(), &sums),
            _ => {}
        }
        if self.protocol == UDP && sums.contains(&sum_at) && packet[sum_at..sum_at + 2] == [0, 0] {
            packet[sum_at..sum_at + 2].copy_from_slice(&[0xff; 2]);
        }
    }

    fn sum_at(self) -> usize {
        self.at + if self.protocol == UDP { 6 } else { 16 }
    }
}

/// Replaces words of a packet, and what they count for in the checksums at `sums`.
fn replace(packet: &mut [u8], at: usize, words: &[u8], sums: &[usize]) {
    for (at, word) in (at..).step_by(2).zip(words.chunks_exact(2)) {
        let before = u16::from_be_bytes([packet[at], packet[at + 1]]);
        packet[at..at + 2].copy_from_slice(word);
        let after = u16::from_be_bytes([word[0], word[1]]);
        for sum in sums {
            let old = u16::from_be_bytes([packet[*sum], packet[sum + 1]]);
            let new = updated(old, before, after).to_be_bytes();
            packet[*sum..sum + 2].copy_from_slice(&new);
        }
    }
}

/// Makes the checksums of the IPv4 header and of UDP or TCP right, whatever they were.
pub(super) fn mend(packet: &mut [u8]) {
    let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4) && packet.len() >= V4_HEADER;
    if is_v4 {
        let header = usize::from(packet[0] & 0xf) * 4;
        if (V4_HEADER..=packet.len()).contains(&header) {
            packet[V4_SUM..V4_SUM + 2].fill(0);
            let sum = !folded(sum(&packet[..header]));
            packet[V4_SUM..V4_SUM + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    let Some(transport) = Transport::of(packet) else {
        return;
    };
    let (at, sum_at) = (transport.at, transport.sum_at());
    packet[sum_at..sum_at + 2].fill(0);
    let addresses = match is_v4 {
        true => sum(&packet[12..20]),
        false => sum(&packet[8..40]),
    };
    let segment = &packet[at..];
    // Of whole packets the lengths in all headers are the same.
    let len = u32::try_from(segment.len()).unwrap_or(u32::MAX);
    let pseudo = addresses + (len >> 16) + (len & 0xffff) + u32::from(transport.protocol);
    let right = match !folded(pseudo + sum(segment)) {
        0 if transport.protocol == UDP => u16::MAX,
        right => right,
    };
    packet[sum_at..sum_at + 2].copy_from_slice(&right.to_be_bytes());
}

/// The ICMP error for a packet that exceeds `mtu`, of which `packet` is the begin: from its
/// destination, as a router's own address might not pass the sender's filters. `None` for IPv4
/// packets that may be fragmented, which a relay without fragmentation drops, and for ICMP errors.
pub(super) fn too_big(packet: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let header = packet::read(packet)?;
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    match (header.source, header.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            const DONT_FRAGMENT: u8 = 0x40;
            if packet[6] & DONT_FRAGMENT == 0 || packet[9] == ICMP_V4 {
                return None;
            }
            let len = u16::try_from(V4_HEADER + ICMP_HEADER + packet.len()).ok()?;
            let mut error = vec![0; V4_HEADER + ICMP_HEADER];
            error[0] = 0x45;
            error[2..4].copy_from_slice(&len.to_be_bytes());
            error[6] = DONT_FRAGMENT;
            error[8] = 64;
            error[9] = ICMP_V4;
            error[12..16].copy_from_slice(&destination.octets());
            error[16..20].copy_from_slice(&source.octets());
            // Destination unreachable, fragmentation needed (RFC 1191 §4).
            error[20] = 3;
            error[21] = 4;
            error[26..28].copy_from_slice(&mtu.to_be_bytes());
            error.extend_from_slice(packet);
            let icmp = !folded(sum(&error[V4_HEADER..]));
            error[22..24].copy_from_slice(&icmp.to_be_bytes());
            mend(&mut error);
            Some(error)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            if packet[6] == ICMP_V6 {
                return None;
            }
            let len = u16::try_from(ICMP_HEADER + packet.len()).ok()?;
            let mut error = vec![0; V6_HEADER + ICMP_HEADER];
            error[0] = 0x60;
            error[4..6].copy_from_slice(&len.to_be_bytes());
            error[6] = ICMP_V6;
            error[7] = 64;
            error[8..24].copy_from_slice(&destination.octets());
            error[24..40].copy_from_slice(&source.octets());
            // Packet too big (RFC 4443 §3.2).
            error[40] = 2;
            error[46..48].copy_from_slice(&mtu.to_be_bytes());
            error.extend_from_slice(packet);
            let pseudo = sum(&error[8..40]) + u32::from(len) + u32::from(ICMP_V6);
            let icmp = !folded(pseudo + sum(&error[V6_HEADER..]));
            error[42..44].copy_from_slice(&icmp.to_be_bytes());
            Some(error)
        }
        _ => None,
    }
}

/// The sum of the 16-bit words, the last byte padded (RFC 1071); packets are far too short to overflow.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
