//! How a datagram is taken in.
//!
//! 1. `handle_datagrams`: the path is credited for the train, each datagram split into its packets;
//!    `migration` judges what came from elsewhere.
//! 2. `open_packet`: keys found, header protection and AEAD removed in place, duplicates dropped.
//! 3. `handle_packet`: the rest goes to `dispatch` frame by frame.
//! 4. the packet is noted for acknowledgement, TLS runs; after the train, timers restart.

use std::net::{IpAddr, SocketAddr};

use towline_wire::{
    ConnectionId, Header, LongType, PacketKind, PacketNumberSpace, QUIC_V1, Side, Time,
    parse_header,
};

use super::aftermath::Aftermath;
use super::assemble::MIN_INITIAL_DATAGRAM;
use super::component::{Ecn, Receipt};
use super::dispatch::{Contents, PACKET_WORK};
use super::parts::Connection;
use super::paths::Which;
use super::protect::{OpenError, Opened, previous_key_deadline};
use crate::error::Refused;
use crate::observe::{DropReason, Packet};

/// How a train of datagrams came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The sender.
    pub(crate) remote: SocketAddr,
    /// The address it was sent to, where the socket tells it.
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) ecn: Option<Ecn>,
}

/// Of the first byte of a short header (RFC 9000 §17.3.1).
const KEY_PHASE: u8 = 0x04;

/// A packet cut out of a datagram, still protected.
#[derive(Clone, Copy)]
struct Protected {
    kind: PacketKind,
    dcid: ConnectionId,
    scid: Option<ConnectionId>,
    pn_offset: usize,
}

impl Protected {
    fn short(dcid: ConnectionId, pn_offset: usize) -> Self {
        Self {
            kind: PacketKind::OneRtt,
            dcid,
            scid: None,
            pn_offset,
        }
    }
}

/// What the packets of one train were.
#[derive(Debug, Default)]
struct Arrivals {
    packets: bool,
    one_rtt: bool,
    stream_data: bool,
    /// One from elsewhere shows that the peer sends from there now.
    moved: bool,
}

impl Connection {
    /// UDP datagrams from the peer that arrived as one train, each of `stride` bytes but the last,
    /// the first packet of each addressed to `dcid`. Their bytes are overwritten.
    pub(crate) fn handle_datagrams(
        &mut self,
        now: Time,
        arrival: Arrival,
        dcid: &ConnectionId,
        stride: usize,
        datagrams: &mut [u8],
    ) -> Aftermath {
        let _span = self.enter_span();
        let which = self.paths.find(arrival.remote, arrival.local_ip);
        // What a server sends from where it was is welcome at whichever of our addresses.
        let is_known_server = self.side.is_client() && arrival.remote == self.paths.remote();
        if which == Some(Which::Active) || (which.is_none() && is_known_server) {
            let known = self.received.packets;
            let ecn = arrival.ecn;
            self.take_in(now, Receipt { at: now, ecn }, dcid, stride, datagrams);
            if self.received.packets != known {
                self.paths.on_received_at(arrival.local_ip);
            }
        } else if self.heeds_elsewhere(which, arrival.remote, dcid) {
            self.take_in_from_elsewhere(now, arrival, dcid, stride, datagrams);
        } else {
            // Without an answer (RFC 9000 §9, §9.3, §9.6).
            self.drop_from_elsewhere(now, stride, datagrams);
        }
        self.aftermath(now)
    }

    /// Datagrams from another address than the peer's.
    #[cold]
    fn drop_from_elsewhere(&mut self, now: Time, stride: usize, datagrams: &[u8]) {
        for datagram in datagrams.chunks(stride) {
            self.received.from_elsewhere += 1;
            if let Some(kind) = datagram.first().and_then(|first| kind_of(*first)) {
                self.observe_drop(now, kind, datagram.len(), DropReason::OtherAddress);
            }
        }
    }

    /// Takes a train of datagrams from another address than data goes to.
    #[cold]
    fn take_in_from_elsewhere(
        &mut self,
        now: Time,
        arrival: Arrival,
        dcid: &ConnectionId,
        stride: usize,
        datagrams: &mut [u8],
    ) {
        let ecn = arrival.ecn;
        let receipt = Receipt { at: now, ecn };
        for datagram in datagrams.chunks_mut(stride) {
            let (remote, local_ip) = (arrival.remote, arrival.local_ip);
            // The one before may have moved the connection here.
            let which = self.paths.find(remote, local_ip);
            if which == Some(Which::Active) {
                self.take_in(now, receipt, dcid, datagram.len(), datagram);
                continue;
            }
            let short = datagram.first().is_some_and(|first| first & 0xc0 == 0x40);
            let handshaking = !self.lifecycle.is_confirmed();
            if short && handshaking {
                self.drop_from_elsewhere(now, datagram.len(), datagram);
                continue;
            }
            let len = datagram.len();
            self.received.datagrams += 1;
            self.received.bytes += len as u64;
            self.paths.set_arriving(which);
            let known = self.received.packets;
            let mut arrivals = Arrivals::default();
            match short {
                true => self.handle_one_rtt(now, dcid, receipt, datagram, &mut arrivals),
                // What a client that is not sure of its handshake sends again, and a packet that
                // shows where it is (RFC 9002 §6.2.4).
                false => self.split_datagram(now, receipt, datagram, &mut arrivals),
            }
            if handshaking && self.received.packets != known {
                // The client knows of one connection ID so far.
                self.paths.note_dcid(dcid);
            }
            if self.received.packets != known && self.lifecycle.is_open() {
                let from = (remote, local_ip);
                self.on_packet_from_elsewhere(now, from, dcid, len, arrivals.moved);
            }
            self.paths.set_arriving(Some(Which::Active));
            self.after_arrivals(now, &arrivals);
        }
    }

    /// Takes the packets of a train of datagrams that came on the path that data takes.
    fn take_in(
        &mut self,
        now: Time,
        receipt: Receipt,
        dcid: &ConnectionId,
        stride: usize,
        datagrams: &mut [u8],
    ) {
        self.received.datagrams += datagrams.len().div_ceil(stride) as u64;
        self.received.bytes += datagrams.len() as u64;
        self.paths.on_received(datagrams.len(), dcid);
        self.paths.state_mut().set_amplification_blocked(now, false);
        let mut arrivals = Arrivals::default();
        for datagram in datagrams.chunks_mut(stride) {
            let short = datagram.first().is_some_and(|first| first & 0xc0 == 0x40);
            if short {
                self.handle_one_rtt(now, dcid, receipt, datagram, &mut arrivals);
            } else {
                let opened_before = self.received.packets;
                self.split_datagram(now, receipt, datagram, &mut arrivals);
                if self.received.packets == opened_before {
                    // RFC 9000 §10.3: a reset of another version may have this form.
                    self.check_stateless_reset(now, datagram);
                }
            }
        }
        if self.lifecycle.is_open() && !self.handshake.early().is_empty() {
            self.retry_early_packets(now, &mut arrivals);
        }
        self.after_arrivals(now, &arrivals);
    }

    /// A short header has no length: its packet is all there is in its datagram (RFC 9000 §12.2).
    #[inline]
    fn handle_one_rtt(
        &mut self,
        now: Time,
        dcid: &ConnectionId,
        receipt: Receipt,
        datagram: &mut [u8],
        arrivals: &mut Arrivals,
    ) {
        let packet = Protected::short(*dcid, 1 + dcid.len());
        self.handle_packet(now, &packet, receipt, datagram, arrivals);
    }

    fn split_datagram(
        &mut self,
        now: Time,
        receipt: Receipt,
        datagram: &mut [u8],
        arrivals: &mut Arrivals,
    ) {
        let cid_len = self.handshake.ids().local.len();
        let datagram_len = datagram.len();
        let mut first_dcid = None;
        let mut at = 0;
        while at < datagram.len() {
            let rest = &mut datagram[at..];
            let header = match parse_header(rest, cid_len) {
                Ok(header) => header,
                // RFC 9000 §12.2: what is behind it may still be a packet.
                Err(towline_wire::HeaderError::SampleTooShort { end }) => {
                    at += end;
                    continue;
                }
                Err(_) => return,
            };
            let (protected, end) = match header {
                Header::Short {
                    dcid,
                    pn_offset,
                    end,
                    ..
                } => (Protected::short(dcid, pn_offset), end),
                Header::Long {
                    kind,
                    dcid,
                    scid,
                    token,
                    pn_offset,
                    end,
                    ..
                } => {
                    if kind == LongType::Initial && !self.may_be_initial(datagram_len, token) {
                        first_dcid.get_or_insert(dcid);
                        at += end;
                        continue;
                    }
                    let kind = PacketKind::from_long(kind);
                    let scid = Some(scid);
                    (
                        Protected {
                            kind,
                            dcid,
                            scid,
                            pn_offset,
                        },
                        end,
                    )
                }
                alone => {
                    if at == 0 {
                        self.handle_without_frames(now, alone);
                    }
                    return;
                }
            };
            // RFC 9000 §12.2: later packets with another destination are ignored.
            if *first_dcid.get_or_insert(protected.dcid) == protected.dcid {
                self.handle_packet(now, &protected, receipt, &mut rest[..end], arrivals);
                // What came early comes first: its truncated numbers were meant for a receiver
                // that had not seen the rest of this datagram.
                if protected.kind != PacketKind::OneRtt
                    && self.can_open(PacketNumberSpace::Application)
                {
                    self.retry_early_packets(now, arrivals);
                }
            }
            at += end;
        }
    }

    /// A packet that has no frames and a datagram to itself.
    fn handle_without_frames(&mut self, now: Time, header: Header<'_>) {
        match header {
            Header::Retry {
                scid,
                token,
                integrity_tag,
                whole,
                ..
            } => self.handle_retry(now, scid, token, &integrity_tag, whole),
            Header::VersionNegotiation {
                dcid,
                scid,
                versions,
            } => {
                let ids = self.handshake.ids();
                let ours = dcid == ids.local.as_slice() && scid == ids.original.as_slice();
                if ours && !versions.contains(QUIC_V1) {
                    self.handle_version_mismatch();
                }
            }
            // Not the version we chose (RFC 9000 §5.2.1).
            Header::UnknownVersion { .. } | Header::Short { .. } | Header::Long { .. } => {}
        }
    }

    /// Whether an Initial with this token, in a datagram of so many bytes, may be looked at.
    fn may_be_initial(&self, datagram_len: usize, token: &[u8]) -> bool {
        match self.side {
            // RFC 9000 §14.1: a client fills up every datagram with an Initial.
            Side::Server => datagram_len >= MIN_INITIAL_DATAGRAM,
            // RFC 9000 §17.2.2: a server's Initial has no token.
            Side::Client => token.is_empty(),
        }
    }

    fn handle_packet(
        &mut self,
        now: Time,
        protected: &Protected,
        receipt: Receipt,
        packet: &mut [u8],
        arrivals: &mut Arrivals,
    ) {
        let Some(opened) = self.open_packet(now, protected, receipt, packet) else {
            return;
        };
        let (kind, space) = (protected.kind, protected.kind.space());
        if self.is_observed() {
            let shown = Packet {
                kind,
                packet_number: opened.packet_number,
                dcid: protected.dcid,
                scid: protected.scid,
                key_phase: (kind == PacketKind::OneRtt).then(|| packet[0] & KEY_PHASE != 0),
                len: packet.len(),
                ecn: receipt.ecn,
                payload: &packet[opened.payload.clone()],
            };
            self.observe_packet_received(now, shown);
        }
        self.received.packets += 1;
        self.received.work += PACKET_WORK;
        if !self.lifecycle.is_open() {
            self.note_number(receipt, space, opened.packet_number);
            self.handle_packet_while_closing(now, protected, &packet[opened.payload]);
            return;
        }
        self.on_authenticated(now, protected);
        let payload = &packet[opened.payload.clone()];
        if self.paths.is_arriving_elsewhere() && space == PacketNumberSpace::Application {
            arrivals.moved |= self.shows_migration(opened.packet_number, payload);
        }
        let contents = match self.dispatch(now, kind, &protected.dcid, payload) {
            Ok(contents) => contents,
            Err(Refused::Overflow) => {
                // The frames of other spaces do nothing when they are taken twice.
                if space == PacketNumberSpace::Application {
                    self.acks.on_refused(opened.packet_number);
                }
                return self.observe_drop(now, kind, packet.len(), DropReason::Overworked);
            }
            Err(Refused::Violation(violation)) => {
                self.note_number(receipt, space, opened.packet_number);
                return self.fail(now, &violation);
            }
        };
        self.after_packet(now, space, receipt, &opened, &contents, arrivals);
    }

    /// Removes a packet's protection, in place; `None` if it goes no further: there are no keys, it is
    /// not authentic, it was there before, or it broke a rule that only its keys could show.
    #[inline]
    fn open_packet(
        &mut self,
        now: Time,
        protected: &Protected,
        receipt: Receipt,
        packet: &mut [u8],
    ) -> Option<Opened> {
        let (kind, space) = (protected.kind, protected.kind.space());
        // No 0-RTT is accepted, so that its packets are dropped unopened (RFC 9001 §4.6.2, §5.6).
        if kind == PacketKind::ZeroRtt {
            self.observe_drop(now, kind, packet.len(), DropReason::Unsupported);
            return None;
        }
        if !self.can_open(space) {
            if self.may_get_keys(space) {
                if self.handshake.early().keep(space, packet, receipt) {
                    self.observe_buffered(now, kind, packet.len());
                } else {
                    self.observe_drop(now, kind, packet.len(), DropReason::KeyUnavailable);
                }
            } else {
                self.observe_drop(now, kind, packet.len(), DropReason::KeyUnavailable);
            }
            return None;
        }
        if let (Some(scid), Some(known)) = (protected.scid, self.handshake.ids().remote) {
            // RFC 9000 §7.2: a changed source connection ID is not the peer's.
            if scid != known {
                self.observe_drop(now, kind, packet.len(), DropReason::WrongSource);
                return None;
            }
        }
        let largest = self.acks.largest(space);
        let opened = self
            .sealer
            .protection
            .open(space, packet, protected.pn_offset, largest);
        match opened {
            Ok(opened) if self.acks.is_duplicate(space, opened.packet_number) => {
                self.observe_drop(now, kind, packet.len(), DropReason::Duplicate);
                None
            }
            Ok(opened) => Some(opened),
            Err(error) => {
                self.on_unopened(now, kind, packet, error);
                None
            }
        }
    }

    /// A packet could not be opened: it is dropped, or ends the connection.
    #[cold]
    fn on_unopened(&mut self, now: Time, kind: PacketKind, packet: &[u8], error: OpenError) {
        let reason = match error {
            OpenError::NoKeys => DropReason::KeyUnavailable,
            OpenError::Dropped => {
                if kind == PacketKind::OneRtt {
                    self.check_stateless_reset(now, packet);
                }
                DropReason::DecryptionFailure
            }
            OpenError::Violation(violation) => {
                // Only an authentic packet can break these rules.
                self.received.packets += 1;
                return self.fail(now, &violation);
            }
            OpenError::IntegrityLimit => return self.fail_aead_limit(now),
        };
        self.observe_drop(now, kind, packet.len(), reason);
    }

    /// The first things an authentic packet proves.
    fn on_authenticated(&mut self, now: Time, protected: &Protected) {
        if let Some(scid) = protected.scid
            && self.handshake.learn_remote(scid)
        {
            self.remote_cids.set_initial(scid);
        }
        if protected.kind == PacketKind::Handshake && self.side == Side::Server {
            // RFC 9000 §8.1: only the holder of the address can have our Handshake keys. That is the
            // address we answered to, wherever this packet came from.
            self.paths.validate();
            self.discard_space(now, PacketNumberSpace::Initial);
        }
    }

    fn after_packet(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        receipt: Receipt,
        opened: &Opened,
        contents: &Contents,
        arrivals: &mut Arrivals,
    ) {
        let number = opened.packet_number;
        if contents.closed {
            self.note_number(receipt, space, number);
        } else {
            // The wait for its keys is part of the delay the peer is told (RFC 9000 §13.2.5).
            self.acks
                .on_received(receipt, space, number, contents.ack_eliciting);
            if contents.ack_eliciting {
                self.recovery.on_ack_eliciting_received(
                    self.paths.state_mut(),
                    space,
                    receipt.ecn.is_some(),
                );
            }
        }
        if !self.lifecycle.is_open() {
            return;
        }
        arrivals.packets = true;
        arrivals.one_rtt |= space == PacketNumberSpace::Application;
        arrivals.stream_data |= contents.stream_data;
        if contents.crypto {
            self.drive_handshake(now);
        }
    }

    /// A packet that ended the connection, or came after its end, is acknowledged no more; repeated,
    /// it is a duplicate like any other.
    #[cold]
    fn note_number(&mut self, receipt: Receipt, space: PacketNumberSpace, packet_number: u64) {
        self.acks.on_received(receipt, space, packet_number, false);
    }

    /// Deadlines move once for all packets of a train.
    fn after_arrivals(&mut self, now: Time, arrivals: &Arrivals) {
        if !arrivals.packets || !self.lifecycle.is_open() {
            return;
        }
        let pto = self.paths.state().pto(PacketNumberSpace::Application);
        self.liveness.on_received(now, pto);
        if !self.streams.has_open_receiver() {
            self.liveness.await_nothing();
        } else if arrivals.stream_data || self.liveness.has_no_watch() {
            // The first packet after a stream was opened starts the watch as well.
            self.liveness.await_data(now, pto);
        }
        if arrivals.one_rtt && self.sealer.protection.previous_may_go() {
            self.liveness
                .discard_keys_at(previous_key_deadline(now, pto));
        }
    }

    fn handle_packet_while_closing(&mut self, now: Time, protected: &Protected, payload: &[u8]) {
        self.lifecycle.on_packet_while_closing();
        let mut reader = towline_wire::Reader::new(payload);
        while !reader.is_empty() {
            let Ok(frame) = towline_wire::Frame::parse(&mut reader) else {
                return;
            };
            if !frame.ty().permitted(protected.kind) {
                return;
            }
            if let towline_wire::Frame::ConnectionClose(close) = frame {
                self.on_peer_close(now, &close);
                return;
            }
        }
    }

    fn can_open(&self, space: PacketNumberSpace) -> bool {
        let early_one_rtt = space == PacketNumberSpace::Application
            && self.side == Side::Server
            // RFC 9001 §5.7: not before the client's Finished.
            && !self.handshake.is_complete();
        self.sealer.protection.has_keys(space) && !early_one_rtt
    }

    /// Keys for this space may still come.
    fn may_get_keys(&self, space: PacketNumberSpace) -> bool {
        match space {
            PacketNumberSpace::Initial => false,
            PacketNumberSpace::Handshake => {
                self.sealer.protection.has_keys(PacketNumberSpace::Initial)
                    && !self
                        .sealer
                        .protection
                        .has_keys(PacketNumberSpace::Handshake)
            }
            PacketNumberSpace::Application => !self.handshake.is_complete(),
        }
    }

    fn retry_early_packets(&mut self, now: Time, arrivals: &mut Arrivals) {
        let openable: &[PacketNumberSpace] = match (
            self.can_open(PacketNumberSpace::Handshake),
            self.can_open(PacketNumberSpace::Application),
        ) {
            (true, true) => &[PacketNumberSpace::Handshake, PacketNumberSpace::Application],
            (true, false) => &[PacketNumberSpace::Handshake],
            (false, true) => &[PacketNumberSpace::Application],
            (false, false) => return,
        };
        for mut early in self.handshake.early().take(openable) {
            self.split_datagram(now, early.receipt, &mut early.bytes, arrivals);
        }
    }
}

/// What a packet claims to be by its first byte, if that has frames (RFC 9000 §17).
fn kind_of(first: u8) -> Option<PacketKind> {
    if first & 0x80 == 0 {
        return Some(PacketKind::OneRtt);
    }
    match first & 0x30 {
        0x00 => Some(PacketKind::Initial),
        0x10 => Some(PacketKind::ZeroRtt),
        0x20 => Some(PacketKind::Handshake),
        _ => None,
    }
}
