//! Who gets a connection: Initial packets of strangers, Retry, refusals, version negotiation,
//! stateless resets (RFC 9000 §5.2.2, §6, §8.1, §10.3).
//!
//! Nothing here keeps state for a stranger before its first packet proved authentic, and all that
//! is done for it comes out of a budget (`doors`). An Initial goes through these steps, the cheap
//! ones first: its size, its token, room for it, then its keys and AEAD, and only then TLS.

use std::sync::Arc;

use aws_lc_rs::aead::NONCE_LEN;
use rand_core::Rng;
use towline_wire::{
    CloseFrame, ConnectionId, Header, LongType, PacketNumberSpace, QUIC_V1, Side, Time,
    TransportErrorCode, Writer, emit_retry, emit_version_negotiation, parse_header,
    retry_pseudo_packet, write_connection_close, write_long_header,
};

use super::budget::Source;
use super::doors::Work;
use super::reset::MIN_RESET_LEN;
use super::token::Verdict;
use super::{DatagramMeta, Endpoint};
use crate::config::{RetryPolicy, ServerConfig};
use crate::connection::assemble::MIN_INITIAL_DATAGRAM;
use crate::connection::protect::{OpenError, Protection, TAG_LEN};
use crate::connection::{Connection, FirstInitial};
use crate::crypto::{initial_keys, retry_integrity_tag};

/// Shortest destination of a client's first Initial (RFC 9000 §7.2).
const MIN_INITIAL_DCID: usize = 8;

/// Most bytes of a refusal's header, close frame and tag.
const MAX_REFUSAL_LEN: usize = 128;

/// A client's first Initial, cut out of its datagram.
struct Initial {
    dcid: ConnectionId,
    scid: ConnectionId,
    token: Vec<u8>,
    pn_offset: usize,
    end: usize,
}

/// What becomes of an Initial.
enum Decision {
    /// It opens a connection, of an address that is proven if the original destination is known.
    Admit { proven: Option<ConnectionId> },
    /// Its sender is to prove its address first.
    Retry,
    /// Its sender is told that it gets none.
    Refuse {
        code: TransportErrorCode,
        why: &'static str,
    },
    /// There is no room now; its sender will try again.
    Ignore,
}

impl Endpoint {
    /// A datagram for no connection we know.
    pub(super) fn admit(&mut self, now: Time, meta: DatagramMeta, datagram: &mut [u8]) {
        let header = match parse_header(datagram, self.cid_len) {
            Ok(header) => header,
            Err(_) => {
                self.stats.unroutable += 1;
                return;
            }
        };
        match header {
            Header::Long {
                kind: LongType::Initial,
                dcid,
                scid,
                token,
                pn_offset,
                end,
                ..
            } => {
                let initial = Initial {
                    dcid,
                    scid,
                    token: token.to_vec(),
                    pn_offset,
                    end,
                };
                self.handle_initial(now, meta, &initial, datagram);
            }
            Header::UnknownVersion { dcid, scid, .. } => {
                self.negotiate_version(now, meta, dcid, scid, datagram.len());
            }
            Header::Short { dcid, .. } => {
                self.send_stateless_reset(now, meta, &dcid, datagram.len())
            }
            // Least of all is Version Negotiation answered (RFC 9000 §6.1).
            Header::Long { .. } | Header::Retry { .. } | Header::VersionNegotiation { .. } => {
                self.stats.unroutable += 1;
            }
        }
    }

    fn handle_initial(
        &mut self,
        now: Time,
        meta: DatagramMeta,
        initial: &Initial,
        datagram: &mut [u8],
    ) {
        let Some(server) = self.server.clone() else {
            self.stats.unroutable += 1;
            return;
        };
        if datagram.len() < MIN_INITIAL_DATAGRAM || initial.dcid.len() < MIN_INITIAL_DCID {
            self.stats.unroutable += 1;
            return;
        }
        let source = self.doors.source(meta.remote);
        let proven = match self.decide(now, meta, source, &server, initial) {
            Decision::Admit { proven } => proven,
            Decision::Retry => {
                return self.send_retry(now, meta, source, initial, datagram.len());
            }
            Decision::Refuse { code, why } => {
                self.stats.refused += 1;
                if let Some(protection) = self.open(now, source, &server, initial, datagram) {
                    let trigger = datagram.len();
                    self.refuse(now, meta, source, initial, trigger, protection, code, why);
                }
                return;
            }
            Decision::Ignore => {
                self.stats.refused += 1;
                return;
            }
        };
        let Some(protection) = self.open(now, source, &server, initial, datagram) else {
            return;
        };
        let original = proven.unwrap_or(initial.dcid);
        let first = FirstInitial {
            client: initial.scid,
            retry: proven.map(|_| initial.dcid),
            validated: proven.is_some(),
        };
        let new = self.prepare(meta.remote, meta.local_ip, original);
        let mut connection = match Connection::server(now, &server, &new, &first, protection) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::error!(%error, "the server's TLS configuration does not work for QUIC");
                self.stats.refused += 1;
                return;
            }
        };
        connection.observe(now, &new, self.observers.as_deref());
        let (stride, dcid) = (datagram.len(), &initial.dcid);
        let aftermath =
            connection.handle_datagrams(now, meta.remote, meta.ecn, dcid, stride, datagram);
        self.stats.admitted += 1;
        let validated = proven.is_some();
        let place = self.doors.handshakes.begin(now, &server, source, validated);
        let handle = self.insert(now, connection, new.local, Some((initial.dcid, place)));
        self.settle(now, handle, aftermath);
    }

    fn decide(
        &mut self,
        now: Time,
        meta: DatagramMeta,
        source: Source,
        server: &Arc<ServerConfig>,
        initial: &Initial,
    ) -> Decision {
        let refuse = |code, why| Decision::Refuse { code, why };
        let token = &initial.token;
        let proven = match self.tokens.judge(now, meta.remote, &initial.dcid, token) {
            Verdict::Unknown => None,
            Verdict::Proven(original) => Some(original),
            // RFC 9000 §8.1.2: its sender takes no second Retry, so waiting would be in vain.
            Verdict::Invalid => {
                self.stats.invalid_tokens += 1;
                let why = "the Retry token is too old, or not of this address";
                return refuse(TransportErrorCode::INVALID_TOKEN, why);
            }
        };
        // RFC 9000 §5.2.2: what does not pass by itself is said.
        let refused = TransportErrorCode::CONNECTION_REFUSED;
        if !self.accepting {
            return refuse(refused, "the server takes no new connections");
        }
        if self.stats.connections >= server.max_connections || self.memory.refuses_new() {
            return refuse(refused, "the server is full");
        }
        let handshakes = &mut self.doors.handshakes;
        if handshakes.may_begin(now, server, source, proven.is_some()) {
            return Decision::Admit { proven };
        }
        match server.retry {
            RetryPolicy::UnderLoad | RetryPolicy::Always if proven.is_none() => Decision::Retry,
            _ => Decision::Ignore,
        }
    }

    /// Opens a copy of the Initial: garbage costs its keys and no TLS session. The keys of the
    /// connection come back if it is authentic.
    fn open(
        &mut self,
        now: Time,
        source: Source,
        server: &ServerConfig,
        initial: &Initial,
        datagram: &[u8],
    ) -> Option<Protection> {
        let work = Work::Opening(initial.end);
        if !self.doors.may_do(now, source, work, &mut self.stats) {
            return None;
        }
        let keys = initial_keys(server.tls.crypto_provider(), &initial.dcid, Side::Server);
        let mut protection = Protection::new(Side::Server, keys);
        self.scratch.clear();
        self.scratch.extend_from_slice(&datagram[..initial.end]);
        let space = PacketNumberSpace::Initial;
        let opened = protection.open(space, &mut self.scratch, initial.pn_offset, None);
        match opened {
            // Reserved bits that are not zero: authentic, and for the connection to object to.
            Ok(_) | Err(OpenError::Violation(_)) => Some(protection),
            Err(_) => {
                self.stats.unroutable += 1;
                None
            }
        }
    }

    fn send_retry(
        &mut self,
        now: Time,
        meta: DatagramMeta,
        source: Source,
        initial: &Initial,
        trigger: usize,
    ) {
        if !self.doors.may_do(now, source, Work::Retry, &mut self.stats) {
            return;
        }
        // Random, and so not the destination it replaces (RFC 9000 §17.2.5.1). Retry tests an
        // address, and HelloRetryRequest does not (RFC 9001 §4.7); the token says that it came in
        // one (RFC 9000 §8.1.1).
        let scid = self.new_cid();
        let mut nonce = [0; NONCE_LEN];
        self.rng.fill_bytes(&mut nonce);
        let Some(token) = self
            .tokens
            .seal_retry(now, meta.remote, &initial.dcid, &scid, nonce)
        else {
            return;
        };
        let mut packet = Vec::new();
        emit_retry(&mut packet, QUIC_V1, &initial.scid, &scid, &token);
        let Some(tag) = retry_integrity_tag(&retry_pseudo_packet(&initial.dcid, &packet)) else {
            return;
        };
        packet.extend_from_slice(&tag);
        if self.queue_reply(meta, source, trigger, packet) {
            self.stats.retries += 1;
        }
    }

    /// Tells a client why it gets no connection, and forgets it.
    #[expect(
        clippy::too_many_arguments,
        reason = "what came, from where, and what is said to it"
    )]
    fn refuse(
        &mut self,
        now: Time,
        meta: DatagramMeta,
        source: Source,
        initial: &Initial,
        trigger: usize,
        mut protection: Protection,
        code: TransportErrorCode,
        why: &str,
    ) {
        if !self
            .doors
            .may_do(now, source, Work::Refusal, &mut self.stats)
        {
            return;
        }
        let scid = self.new_cid();
        let mut packet = vec![0; MAX_REFUSAL_LEN];
        let mut w = Writer::new(&mut packet[..MAX_REFUSAL_LEN - TAG_LEN]);
        // A packet number of 4 bytes makes the shortest payload long enough for a sample.
        let pn_len = 4;
        let kind = LongType::Initial;
        let slot = write_long_header(&mut w, kind, QUIC_V1, &initial.scid, &scid, &[], 0, pn_len);
        write_connection_close(&mut w, &CloseFrame::transport(code, 0, why.as_bytes()));
        let len = w.len() + TAG_LEN;
        packet.truncate(len);
        let pn_offset = slot.pn_offset();
        slot.patch(&mut packet, len - pn_offset);
        let space = PacketNumberSpace::Initial;
        if protection
            .seal(space, 0, &mut packet, pn_offset, pn_len)
            .is_ok()
            && self.queue_reply(meta, source, trigger, packet)
        {
            self.stats.refusals += 1;
        }
    }

    /// RFC 9000 §5.2.2: only for datagrams that could be an Initial.
    fn negotiate_version(
        &mut self,
        now: Time,
        meta: DatagramMeta,
        dcid: &[u8],
        scid: &[u8],
        trigger: usize,
    ) {
        if !self.accepting || trigger < MIN_INITIAL_DATAGRAM {
            return;
        }
        let source = self.doors.source(meta.remote);
        let work = Work::VersionNegotiation;
        if !self.doors.may_do(now, source, work, &mut self.stats) {
            return;
        }
        let random = self.rng.next_u32() as u8;
        // A reserved version keeps clients honest (RFC 9000 §6.3).
        let grease = 0x0a0a_0a0a | (u32::from(random & 0x3f) << 24 & 0xf000_0000);
        let mut packet = Vec::new();
        let versions = [QUIC_V1, grease];
        emit_version_negotiation(&mut packet, random & 0x3f, scid, dcid, &versions);
        if self.queue_reply(meta, source, trigger, packet) {
            self.stats.version_negotiations += 1;
        }
    }

    /// RFC 9000 §10.3: shorter than what triggered it, so that two endpoints cannot loop.
    fn send_stateless_reset(
        &mut self,
        now: Time,
        meta: DatagramMeta,
        dcid: &ConnectionId,
        trigger: usize,
    ) {
        self.stats.unroutable += 1;
        if self.server.is_none() || trigger <= MIN_RESET_LEN {
            return;
        }
        let source = self.doors.source(meta.remote);
        if !self.doors.may_do(now, source, Work::Reset, &mut self.stats) {
            return;
        }
        // RFC 9000 §10.3.3.
        let len = (trigger - 1).min(MIN_RESET_LEN + 20);
        let mut packet = vec![0; len];
        self.rng.fill_bytes(&mut packet);
        packet[0] = packet[0] & 0x3f | 0x40;
        let token = self.resets.token(dcid);
        packet[len - 16..].copy_from_slice(token.as_bytes());
        if self.queue_reply(meta, source, trigger, packet) {
            self.stats.resets += 1;
        }
    }

    fn queue_reply(
        &mut self,
        meta: DatagramMeta,
        source: Source,
        trigger: usize,
        packet: Vec<u8>,
    ) -> bool {
        self.doors
            .reply(meta, source, trigger, packet, &mut self.stats)
    }
}
