//! What an observer on the wire can hold the engines to: I4 always; I5 and I7 where packets are
//! plaintext (null AEAD).
//!
//! Called by the world for every datagram sent and delivered. It keys everything by the client's own
//! address, but what may be sent to an address by the one on the wire. It decides nothing and changes
//! nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use towline_wire::{
    ConnectionId, Direction, Frame, Header, LongType, PacketKind, PacketNumberSpace, Reader, Side,
    StreamId, Time, decode_packet_number, parse_header,
};

use crate::violation::{Invariant, Violation};

/// Length of the connection IDs that `ShardedCid` makes.
const CID_LEN: usize = 8;

#[cfg(debug_assertions)]
pub(super) use towline_testkit::NULL_TAG;

/// Release builds have no plaintext worlds.
#[cfg(not(debug_assertions))]
pub(super) const NULL_TAG: [u8; 16] = [0; 16];

/// Factor of RFC 9000 §8.1.
const AMPLIFICATION: u64 = 3;

/// Flow-control limits an endpoint announces in its transport parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Bytes of the whole connection.
    pub connection: u64,
    /// Bytes of each stream.
    pub stream: u64,
    /// Streams, bidirectional and unidirectional.
    pub streams: [u64; 2],
}

/// What one end was seen to send.
#[derive(Debug, Default)]
struct Seen {
    initial: Limits,
    max_data: u64,
    max_stream_data: BTreeMap<StreamId, u64>,
    max_streams: [u64; 2],
    /// End of what was sent on each stream, and all of them together.
    sent: BTreeMap<StreamId, u64>,
    sent_total: u64,
    /// Largest packet number by space and, during the handshake, by the connection ID that names the
    /// connection: a late duplicate of an Initial may have started another one.
    numbers: BTreeMap<(PacketNumberSpace, ConnectionId), u64>,
}

/// Bytes to and from an address before it is proven.
#[derive(Debug, Default)]
struct Account {
    received: u64,
    sent: u64,
    validated: bool,
    /// The client that got something that was sent there.
    reached: Option<SocketAddr>,
}

/// The observer.
#[derive(Debug, Default)]
pub struct Watch {
    plaintext: bool,
    accounts: BTreeMap<SocketAddr, Account>,
    /// By client address: what the client and what the server sent.
    seen: BTreeMap<SocketAddr, [Seen; 2]>,
}

fn side_index(side: Side) -> usize {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

impl Watch {
    pub(super) fn new(plaintext: bool) -> Self {
        Self {
            plaintext,
            ..Self::default()
        }
    }

    /// Tells what limits the `side` of the connection of `client` announces. Without it, credit
    /// is not checked.
    pub fn expect_limits(&mut self, client: SocketAddr, side: Side, limits: Limits) {
        let seen = &mut self.seen.entry(client).or_default()[side_index(side)];
        seen.initial = limits;
        seen.max_data = limits.connection;
        seen.max_streams = limits.streams;
    }

    /// I5 at the end: with everything sent consumed, more than half a window must be open again.
    ///
    /// # Errors
    /// Credit that `side` never gave back.
    pub fn check_credit_restored(
        &self,
        now: Time,
        client: SocketAddr,
        side: Side,
    ) -> Result<(), Violation> {
        let Some(seen) = self.seen.get(&client).filter(|_| self.plaintext) else {
            return Ok(());
        };
        let receiver = &seen[side_index(side)];
        let sender = &seen[side_index(side.peer())];
        let open = receiver.max_data.saturating_sub(sender.sent_total);
        if open < receiver.initial.connection / 2 {
            let what = format!(
                "{side:?} consumed everything, but of its window of {} bytes only {open} are open",
                receiver.initial.connection
            );
            return Err(Violation::new(Invariant::FlowControl, now, what));
        }
        Ok(())
    }

    /// A datagram sent to this address of `client` reached it.
    pub(super) fn on_reached(&mut self, address: SocketAddr, client: SocketAddr) {
        self.accounts.entry(address).or_default().reached = Some(client);
    }

    /// A datagram from this address of `client`, its own or another, reached a server.
    pub(super) fn on_delivered(
        &mut self,
        address: SocketAddr,
        client: SocketAddr,
        datagram: &[u8],
    ) {
        if may_prove(datagram) {
            // RFC 9000 §8.1, §8.2.3: it was made from what was sent to an address of the client's,
            // wherever it comes from: Handshake keys, or the answer to a challenge. Whether it is
            // one is not known here.
            let accounts = self.accounts.values_mut();
            for account in accounts.filter(|account| account.reached == Some(client)) {
                account.validated = true;
            }
        }
        let account = self.accounts.entry(address).or_default();
        account.received += datagram.len() as u64;
        let is_own = address == client;
        let may_have_token = is_own || account.reached.is_some();
        for_each_packet(datagram, |header, _| {
            // RFC 9000 §8.1: Handshake keys or a token prove the address. Whether the packet is
            // authentic is not known here, so a forged one makes the check too lenient.
            account.validated |= match header {
                Header::Long { kind, token, .. } => {
                    (is_own && *kind == LongType::Handshake)
                        || (may_have_token && !token.is_empty())
                }
                Header::Short { .. } => is_own,
                _ => false,
            };
            Ok::<(), Violation>(())
        })
        .unwrap_or_default();
    }

    /// A host put a datagram on the network, a server to the address `path` of `client`.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        path: Option<SocketAddr>,
        client: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), Violation> {
        if let Some(path) = path {
            let account = self.accounts.entry(path).or_default();
            account.sent += datagram.len() as u64;
            if !account.validated && account.sent > AMPLIFICATION * account.received {
                let what = format!(
                    "{} bytes sent to {path}, which is not proven and sent {}",
                    account.sent, account.received
                );
                return Err(Violation::new(Invariant::Amplification, now, what));
            }
        }
        if !self.plaintext {
            return Ok(());
        }
        let seen = self.seen.entry(client).or_default();
        let side = match path {
            Some(_) => Side::Server,
            None => Side::Client,
        };
        for_each_packet(datagram, |header, packet| {
            on_packet(seen, side, header, packet)
                .map_err(|(invariant, what)| Violation::new(invariant, now, what))
        })
    }
}

/// Whether a datagram holds a packet, authentic or not, that nobody can make who got no answer.
fn may_prove(datagram: &[u8]) -> bool {
    for_each_packet(datagram, |header, _| match header {
        Header::Short { .. }
        | Header::Long {
            kind: LongType::Handshake,
            ..
        } => Err(()),
        _ => Ok(()),
    })
    .is_err()
}

/// Calls `visit` with the header and the bytes of each packet of a datagram that can be read.
pub(super) fn for_each_packet<'a, E>(
    datagram: &'a [u8],
    mut visit: impl FnMut(&Header<'a>, &'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let Ok(header) = parse_header(rest, CID_LEN) else {
            return Ok(());
        };
        let end = match header {
            Header::Short { end, .. } | Header::Long { end, .. } => end,
            _ => rest.len(),
        };
        visit(&header, &rest[..end])?;
        rest = &rest[end..];
    }
    Ok(())
}

type Broken = (Invariant, String);

fn on_packet(
    seen: &mut [Seen; 2],
    side: Side,
    header: &Header<'_>,
    packet: &[u8],
) -> Result<(), Broken> {
    let (kind, key, pn_offset) = match header {
        // All connection IDs of a peer name the one connection that got so far: what goes back to an
        // older one counts on (RFC 9000 §12.3).
        Header::Short { pn_offset, .. } => (PacketKind::OneRtt, ConnectionId::EMPTY, *pn_offset),
        Header::Long {
            kind,
            scid,
            pn_offset,
            ..
        } => (PacketKind::from_long(*kind), *scid, *pn_offset),
        _ => return Ok(()),
    };
    let Some(sealed) = packet.strip_suffix(NULL_TAG.as_slice()) else {
        // A stateless reset only looks like a packet.
        return Ok(());
    };
    let pn_len = usize::from(packet[0] & 0x03) + 1;
    let truncated = packet[pn_offset..pn_offset + pn_len]
        .iter()
        .fold(0, |n: u64, b| n << 8 | u64::from(*b));
    let numbers = &mut seen[side_index(side)].numbers;
    let last = numbers.get(&(kind.space(), key)).copied();
    let number = decode_packet_number(truncated, pn_len, last);
    if last.is_some_and(|last| number <= last) {
        let what = format!("{side:?} sent {kind:?} packet {number} after {last:?}");
        return Err((Invariant::PacketNumbers, what));
    }
    numbers.insert((kind.space(), key), number);
    let Some(payload) = sealed.get(pn_offset + pn_len..) else {
        return Err((
            Invariant::PacketNumbers,
            format!("{kind:?} packet without payload"),
        ));
    };
    let mut reader = Reader::new(payload);
    if reader.is_empty() {
        return Err((
            Invariant::PacketNumbers,
            format!("{kind:?} packet without frames"),
        ));
    }
    while !reader.is_empty() {
        let frame = Frame::parse(&mut reader)
            .map_err(|e| (Invariant::PacketNumbers, format!("{side:?} sent {e}")))?;
        if !frame.ty().permitted(kind) {
            let what = format!("{side:?} sent {} in a {kind:?} packet", frame.ty());
            return Err((Invariant::PacketNumbers, what));
        }
        on_frame(seen, side, &frame).map_err(|what| (Invariant::FlowControl, what))?;
    }
    Ok(())
}

fn on_frame(seen: &mut [Seen; 2], side: Side, frame: &Frame<'_>) -> Result<(), String> {
    let own = &mut seen[side_index(side)];
    match frame {
        Frame::MaxData(max) => own.max_data = own.max_data.max(*max),
        Frame::MaxStreamData { id, max } => {
            let known = own.max_stream_data.entry(*id).or_default();
            *known = (*known).max(*max);
        }
        Frame::MaxStreams { direction, max } => {
            let known = &mut own.max_streams[direction.index()];
            *known = (*known).max(*max);
        }
        Frame::Stream(stream) => {
            let end = stream.offset + stream.data.len() as u64;
            return check_credit(seen, side, stream.id, end);
        }
        Frame::ResetStream { id, final_size, .. } | Frame::ResetStreamAt { id, final_size, .. } => {
            return check_credit(seen, side, *id, *final_size);
        }
        _ => {}
    }
    Ok(())
}

/// I5: `side` sends on `id` up to offset `end`.
fn check_credit(seen: &mut [Seen; 2], side: Side, id: StreamId, end: u64) -> Result<(), String> {
    let (own, peer) = match (side, seen) {
        (Side::Client, [own, peer]) | (Side::Server, [peer, own]) => (own, peer),
    };
    let highest = own.sent.entry(id).or_default();
    own.sent_total += end.saturating_sub(*highest);
    *highest = (*highest).max(end);
    if peer.initial.connection == 0 {
        return Ok(());
    }
    let stream_limit = peer.max_stream_data.get(&id).copied().unwrap_or_default();
    let stream_limit = stream_limit.max(peer.initial.stream);
    if end > stream_limit {
        return Err(format!(
            "{side:?} sent up to {end} on {id:?}, limit {stream_limit}"
        ));
    }
    if own.sent_total > peer.max_data {
        let (sent, limit) = (own.sent_total, peer.max_data);
        return Err(format!("{side:?} sent {sent} bytes in all, limit {limit}"));
    }
    let most = peer.max_streams[id.direction().index()];
    if id.initiator() == side && id.index() >= most {
        return Err(format!("{side:?} opened {id:?}, limit {most}"));
    }
    if id.initiator() != side && id.direction() == Direction::Unidirectional {
        return Err(format!("{side:?} sent on {id:?}, which only receives"));
    }
    Ok(())
}
