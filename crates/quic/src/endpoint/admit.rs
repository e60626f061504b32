//! Who gets a connection: Initial packets of strangers, Retry and its tokens, version
//! negotiation, stateless resets (RFC 9000 §5.2.2, §6, §8.1, §10.3).
//!
//! Nothing here keeps state for a stranger before its first packet proved authentic.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rand_core::Rng;
use towline_wire::{
    ConnectionId, Header, LongType, QUIC_V1, Reader, Time, Writer, emit_retry,
    emit_version_negotiation, parse_header, retry_pseudo_packet,
};

use super::reset::MIN_RESET_LEN;
use super::{DatagramMeta, Endpoint};
use crate::config::{RetryPolicy, ServerConfig};
use crate::connection::assemble::MIN_INITIAL_DATAGRAM;
use crate::connection::{Connection, FirstInitial};
use crate::crypto::retry_integrity_tag;

/// Shortest destination of a client's first Initial (RFC 9000 §7.2).
const MIN_INITIAL_DCID: usize = 8;

/// How long a Retry token is good.
const RETRY_TOKEN_LIFETIME: Duration = Duration::from_secs(10);

/// First byte of a Retry token's plain text.
const RETRY_TOKEN: u8 = 1;

/// A client's first Initial, cut out of its datagram.
struct Initial {
    dcid: ConnectionId,
    scid: ConnectionId,
    token: Vec<u8>,
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
                ..
            } => {
                let initial = Initial {
                    dcid,
                    scid,
                    token: token.to_vec(),
                };
                self.handle_initial(now, meta, &initial, datagram);
            }
            Header::UnknownVersion { dcid, scid, .. } => {
                // RFC 9000 §5.2.2: only for datagrams that could be an Initial.
                if self.accepting
                    && datagram.len() >= MIN_INITIAL_DATAGRAM
                    && self.resets.may_reply(now)
                {
                    let mut packet = Vec::new();
                    let random = self.rng.next_u32() as u8;
                    // A reserved version keeps clients honest (RFC 9000 §6.3).
                    let grease = 0x0a0a_0a0a | (u32::from(random & 0x3f) << 24 & 0xf000_0000);
                    emit_version_negotiation(
                        &mut packet,
                        random & 0x3f,
                        scid,
                        dcid,
                        &[QUIC_V1, grease],
                    );
                    if self.queue_stateless(meta, packet) {
                        self.stats.version_negotiations += 1;
                    }
                }
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
        let retried = self.tokens.open_retry(now, meta.remote, &initial.token);
        if !self.accepting
            || self.memory.refuses_new()
            || self.stats.connections >= server.max_connections
            || self.stats.handshakes >= server.max_handshakes
        {
            self.stats.refused += 1;
            return;
        }
        if retried.is_none() && self.must_retry(&server) {
            return self.send_retry(now, meta, initial);
        }
        let original = retried.unwrap_or(initial.dcid);
        let first = FirstInitial {
            client: initial.scid,
            destination: initial.dcid,
            retry: retried.map(|_| initial.dcid),
            validated: retried.is_some(),
        };
        let new = self.prepare(meta.remote, meta.local_ip, original);
        let mut connection = match Connection::server(now, &server, &new, &first) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::error!(%error, "the server's TLS configuration does not work for QUIC");
                self.stats.refused += 1;
                return;
            }
        };
        let (stride, dcid) = (datagram.len(), &initial.dcid);
        connection.handle_datagrams(now, meta.remote, meta.ecn, dcid, stride, datagram);
        if !connection.is_authentic() {
            self.stats.unroutable += 1;
            return;
        }
        self.stats.admitted += 1;
        let handle = self.insert(now, connection, new.local, Some(initial.dcid));
        self.after(now, handle);
    }

    fn must_retry(&self, server: &Arc<ServerConfig>) -> bool {
        match server.retry {
            RetryPolicy::Never => false,
            RetryPolicy::Always => true,
            RetryPolicy::UnderLoad => self.stats.handshakes >= server.retry_threshold,
        }
    }

    fn send_retry(&mut self, now: Time, meta: DatagramMeta, initial: &Initial) {
        if !self.resets.may_reply(now) {
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
            .seal_retry(now, meta.remote, &initial.dcid, nonce)
        else {
            return;
        };
        let mut packet = Vec::new();
        emit_retry(&mut packet, QUIC_V1, &initial.scid, &scid, &token);
        let Some(tag) = retry_integrity_tag(&retry_pseudo_packet(&initial.dcid, &packet)) else {
            return;
        };
        packet.extend_from_slice(&tag);
        if self.queue_stateless(meta, packet) {
            self.stats.retries += 1;
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
        if self.server.is_none() || trigger <= MIN_RESET_LEN || !self.resets.may_reply(now) {
            return;
        }
        // RFC 9000 §10.3.3.
        let len = (trigger - 1).min(MIN_RESET_LEN + 20);
        let mut packet = vec![0; len];
        self.rng.fill_bytes(&mut packet);
        packet[0] = packet[0] & 0x3f | 0x40;
        let token = self.resets.token(dcid);
        packet[len - 16..].copy_from_slice(token.as_bytes());
        if self.queue_stateless(meta, packet) {
            self.stats.resets += 1;
        }
    }
}

/// Seals and opens Retry tokens (RFC 9000 §8.1.4).
pub(super) struct Tokens {
    key: Option<LessSafeKey>,
}

impl Tokens {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self {
            key: UnboundKey::new(&AES_256_GCM, key)
                .ok()
                .map(LessSafeKey::new),
        }
    }

    /// A token that proves the client received this Retry at `remote`.
    fn seal_retry(
        &self,
        now: Time,
        remote: SocketAddr,
        original: &ConnectionId,
        nonce: [u8; NONCE_LEN],
    ) -> Option<Vec<u8>> {
        let mut plain = vec![0; 1 + 8 + 1 + original.len()];
        let mut w = Writer::new(&mut plain);
        w.u8(RETRY_TOKEN);
        w.bytes(&now.as_nanos().to_be_bytes());
        w.u8(original.len() as u8);
        w.bytes(original);
        self.key
            .as_ref()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(address_bytes(remote)),
                &mut plain,
            )
            .ok()?;
        let mut token = nonce.to_vec();
        token.append(&mut plain);
        Some(token)
    }

    /// The original destination ID, if the token is ours, fresh and for this address.
    fn open_retry(&self, now: Time, remote: SocketAddr, token: &[u8]) -> Option<ConnectionId> {
        let (nonce, sealed) = token.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let plain = self
            .key
            .as_ref()?
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(address_bytes(remote)),
                &mut sealed,
            )
            .ok()?;
        let mut r = Reader::new(plain);
        if r.u8().ok()? != RETRY_TOKEN {
            return None;
        }
        let issued = Time::from_nanos(u64::from_be_bytes(r.array().ok()?));
        if issued > now || now.saturating_duration_since(issued) > RETRY_TOKEN_LIFETIME {
            return None;
        }
        let len = r.u8().ok()?;
        ConnectionId::new(r.bytes(usize::from(len)).ok()?)
    }
}

fn address_bytes(remote: SocketAddr) -> Vec<u8> {
    let mut bytes = match remote.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bytes.extend_from_slice(&remote.port().to_be_bytes());
    bytes
}
