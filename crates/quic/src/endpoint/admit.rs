//! Who gets a connection: Initial packets of new clients, Retry, refusals, version negotiation,
//! stateless resets (RFC 9000 §5.2.2, §6, §8.1, §10.3).
//!
//! Nothing here keeps state for a client before its first packet proved authentic, and all that is
//! done before comes out of a budget (`stateless`). An Initial goes through these steps, the cheap
//! ones first: its size, its token, room for it, then its keys and AEAD, and only then TLS. Where the
//! application wants to decide, the client waits for it before TLS (`incoming`).

use std::sync::Arc;

use aws_lc_rs::aead::NONCE_LEN;
use rand_core::Rng;
use towline_wire::{
    CloseFrame, ConnectionId, Header, LongType, PacketNumberSpace, QUIC_V1, Side, Time,
    TransportErrorCode, Writer, emit_retry, emit_version_negotiation, parse_header,
    retry_pseudo_packet, write_connection_close, write_long_header,
};

use super::datagram::DatagramMeta;
use super::incoming::{Hello, Incoming, IncomingHandle, MAX_INCOMING_BYTES, Request};
use super::reset::MIN_RESET_LEN;
use super::shard::Endpoint;
use super::slots::ConnectionHandle;
use super::stateless::{Sender, Work};
use super::token::Verdict;
use crate::config::{RetryPolicy, ServerConfig};
use crate::connection::assemble::MIN_INITIAL_DATAGRAM;
use crate::connection::protect::{OpenError, Protection, TAG_LEN};
use crate::connection::{Arrival, Connection, FirstInitial, NewConnection};
use crate::crypto::{initial_keys, retry_integrity_tag};
use crate::error::AcceptError;

/// Shortest destination of a client's first Initial (RFC 9000 §7.2).
const MIN_INITIAL_DCID: usize = 8;

/// What a client is told when there is no room for another connection.
const FULL: &str = "the server is full";

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

impl Initial {
    /// Shorter than a client may make it by itself.
    fn has_short_destination(&self) -> bool {
        self.dcid.len() < MIN_INITIAL_DCID
    }
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
        // The destination after a Retry is of our making, and may be shorter.
        let too_short = initial.has_short_destination() && initial.token.is_empty();
        if datagram.len() < MIN_INITIAL_DATAGRAM || too_short {
            self.stats.unroutable += 1;
            return;
        }
        if self.keep_for(now, meta, &initial.dcid, datagram) {
            return;
        }
        let sender = self.stateless.sender(meta.remote, meta.local_ip);
        let mut hello = Hello {
            sender,
            dcid: initial.dcid,
            scid: initial.scid,
            proven: None,
        };
        match self.decide(now, &server, sender, initial) {
            Decision::Admit { proven } => hello.proven = proven,
            Decision::Retry => return self.send_retry(now, &hello, datagram.len()),
            Decision::Refuse { code, why } => {
                self.stats.refused += 1;
                if let Some(protection) = self.open(now, sender, &server, initial, datagram) {
                    self.refuse(now, &hello, datagram.len(), protection, code, why);
                }
                return;
            }
            Decision::Ignore => {
                self.stats.refused += 1;
                return;
            }
        }
        let Some(protection) = self.open(now, sender, &server, initial, datagram) else {
            return;
        };
        if self.hold_incoming {
            return self.hold(now, &server, hello, protection, meta, datagram);
        }
        match self.begin(now, &server, &hello, protection) {
            Ok(handle) => self.hand_in(now, handle, meta.arrival(), &hello.dcid, datagram),
            Err(error) => {
                tracing::error!(%error, "a client that was admitted gets no connection");
                self.stats.refused += 1;
            }
        }
    }

    /// Makes a client's connection; its datagrams are handed in next.
    fn begin(
        &mut self,
        now: Time,
        server: &ServerConfig,
        hello: &Hello,
        protection: Protection,
    ) -> Result<ConnectionHandle, AcceptError> {
        let Sender {
            remote,
            local_ip,
            source,
        } = hello.sender;
        let validated = hello.proven.is_some();
        let first = FirstInitial {
            client: hello.scid,
            retry: hello.proven.map(|_| hello.dcid),
            validated,
        };
        let new = self.prepare(remote, local_ip, hello.original());
        let new = new.ok_or(AcceptError::NoConnectionIds)?;
        let new = NewConnection {
            preferred: self.prepare_preferred(server, new.local),
            ..new
        };
        let mut connection = Connection::server(now, server, &new, &first, protection)
            .map_err(|error| AcceptError::Tls(error.to_string()))?;
        connection.observe(now, &new, self.observers.as_deref());
        self.stats.admitted += 1;
        // How long a place is held is the server's affair, whatever this connection is made with.
        let limits = self.server.as_deref().unwrap_or(server);
        let place = self
            .stateless
            .handshakes
            .begin(now, limits, source, validated);
        Ok(self.insert(now, connection, Some((hello.dcid, place))))
    }

    /// Hands a datagram to the connection that begins with it.
    fn hand_in(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        arrival: Arrival,
        dcid: &ConnectionId,
        datagram: &mut [u8],
    ) {
        let Some(resident) = self.slots.get_mut(handle) else {
            return;
        };
        let stride = datagram.len();
        let connection = &mut resident.connection;
        let aftermath = connection.handle_datagrams(now, arrival, dcid, stride, datagram);
        self.settle(now, handle, aftermath);
    }

    fn decide(
        &mut self,
        now: Time,
        server: &ServerConfig,
        sender: Sender,
        initial: &Initial,
    ) -> Decision {
        let refuse = |code, why| Decision::Refuse { code, why };
        let token = &initial.token;
        let proven = match self.tokens.judge(now, sender.remote, &initial.dcid, token) {
            Verdict::Unknown if initial.has_short_destination() => return Decision::Ignore,
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
        if self.is_full(server) {
            return refuse(refused, FULL);
        }
        let handshakes = &mut self.stateless.handshakes;
        if handshakes.may_begin(now, server, sender.source, proven.is_some()) {
            return Decision::Admit { proven };
        }
        match server.retry {
            RetryPolicy::UnderLoad | RetryPolicy::Always if proven.is_none() => Decision::Retry,
            _ => Decision::Ignore,
        }
    }

    /// There is room for no other connection.
    fn is_full(&self, server: &ServerConfig) -> bool {
        self.stats.connections >= server.max_connections || self.memory.refuses_new()
    }

    /// Opens a copy of the Initial: garbage costs its keys and no TLS session. The keys of the
    /// connection come back if it is authentic.
    fn open(
        &mut self,
        now: Time,
        sender: Sender,
        server: &ServerConfig,
        initial: &Initial,
        datagram: &[u8],
    ) -> Option<Protection> {
        let work = Work::Opening(initial.end);
        if !self.stateless.may_do(now, sender, work, &mut self.stats) {
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

    // ---- clients that wait for a decision ----

    /// Has a client wait until the application decides about it.
    fn hold(
        &mut self,
        now: Time,
        server: &ServerConfig,
        hello: Hello,
        protection: Protection,
        meta: DatagramMeta,
        datagram: &[u8],
    ) {
        if datagram.len() > MAX_INCOMING_BYTES {
            self.stats.refused += 1;
            let code = TransportErrorCode::CONNECTION_REFUSED;
            let why = "a first datagram of more than 16 KiB";
            return self.refuse(now, &hello, datagram.len(), protection, code, why);
        }
        let (source, proven) = (hello.sender.source, hello.proven.is_some());
        let place = self.stateless.handshakes.begin(now, server, source, proven);
        let mut request = Request::new(now, hello, protection, place);
        request.keep(meta.ecn, datagram);
        let holding = request.holding();
        self.memory.update(now, &mut request.held, holding);
        self.requests.insert(request);
    }

    /// Keeps another Initial of a client that waits; `false` if none there waits under this connection
    /// ID.
    fn keep_for(
        &mut self,
        now: Time,
        meta: DatagramMeta,
        dcid: &ConnectionId,
        datagram: &[u8],
    ) -> bool {
        let Some(request) = self.requests.find(&(*dcid, meta.remote)) else {
            return false;
        };
        if !self.memory.refuses_new() && request.keep(meta.ecn, datagram) {
            let holding = request.holding();
            self.memory.update(now, &mut request.held, holding);
        } else {
            self.stats.unroutable += 1;
        }
        true
    }

    /// The next client that asks for a connection and waits for a decision, for at most
    /// [`MAX_INCOMING_WAIT`](crate::MAX_INCOMING_WAIT); each is told of once. `None` if there is no
    /// other now, and always unless [`EndpointConfig::hold_incoming`] is set.
    ///
    /// [`EndpointConfig::hold_incoming`]: crate::EndpointConfig::hold_incoming
    pub fn poll_incoming(&mut self) -> Option<Incoming> {
        self.requests.tell()
    }

    /// Whether clients wait for a decision here: [`EndpointConfig::hold_incoming`] is set.
    ///
    /// [`EndpointConfig::hold_incoming`]: crate::EndpointConfig::hold_incoming
    pub fn holds_incoming(&self) -> bool {
        self.hold_incoming
    }

    /// How many clients [`Self::poll_incoming`] has yet to tell of.
    pub fn unpolled_incoming(&self) -> usize {
        self.requests.unpolled()
    }

    /// Gives a client its connection, made with `config` or else with the server's own; limits are
    /// the server's in any case. A client that cannot be given one is refused, unless it is TLS that
    /// refuses.
    ///
    /// # Errors
    /// The client waits no longer, the server is full, or the configuration does not work.
    pub fn accept_incoming(
        &mut self,
        now: Time,
        incoming: IncomingHandle,
        config: Option<&ServerConfig>,
    ) -> Result<ConnectionHandle, AcceptError> {
        let server = self.server.clone();
        let request = self.take_request(incoming);
        let (Some(server), Some(request)) = (server, request) else {
            return Err(AcceptError::Gone);
        };
        let config = config.unwrap_or(&server);
        let fit = match config.validate() {
            Ok(()) if self.is_full(&server) => Err((AcceptError::Full, FULL)),
            Ok(()) => Ok(()),
            Err(invalid) => Err((invalid.into(), "")),
        };
        if let Err((error, why)) = fit {
            self.refuse_request(now, request, why);
            return Err(error);
        }
        let Request {
            hello,
            protection,
            datagrams,
            ..
        } = request;
        let handle = self.begin(now, config, &hello, protection)?;
        for mut kept in datagrams {
            let arrival = hello.arrival(kept.ecn);
            self.hand_in(now, handle, arrival, &hello.dcid, &mut kept.bytes);
        }
        Ok(handle)
    }

    /// Tells a client that it gets no connection (CONNECTION_REFUSED, RFC 9000 §20.1). No effect on
    /// one that waits no longer.
    pub fn refuse_incoming(&mut self, now: Time, incoming: IncomingHandle) {
        if let Some(request) = self.take_request(incoming) {
            self.refuse_request(now, request, "");
        }
    }

    /// Forgets a client and tells it nothing; it may ask again. No effect on one that waits no longer.
    pub fn ignore_incoming(&mut self, incoming: IncomingHandle) {
        self.take_request(incoming);
    }

    /// Has a client prove its address: it is sent a Retry and forgotten, and is validated when it asks
    /// again. `false`, and it goes on waiting, if it was validated before: it would take no second one
    /// (RFC 9000 §17.2.5.2). No effect on one that waits no longer.
    pub fn retry_incoming(&mut self, now: Time, incoming: IncomingHandle) -> bool {
        let waiting = self.requests.get(incoming);
        if waiting.is_some_and(|request| request.hello.proven.is_some()) {
            return false;
        }
        if let Some(request) = self.take_request(incoming) {
            self.send_retry(now, &request.hello, request.trigger());
        }
        true
    }

    /// Connections that begin from now on are made with `config`; with `None` there are none: clients
    /// are refused, those that wait for a decision as well. Connections that have begun go on.
    pub fn set_server_config(&mut self, now: Time, config: Option<Arc<ServerConfig>>) {
        self.accepting = config.is_some() && self.cid_len > 0;
        match config {
            Some(config) => self.server = Some(config),
            // `server` stays: the keys of refusals are made with its provider.
            None => {
                while let Some(oldest) = self.requests.oldest() {
                    self.refuse_incoming(now, oldest);
                }
            }
        }
    }

    fn refuse_request(&mut self, now: Time, request: Request, why: &str) {
        self.stats.refused += 1;
        let trigger = request.trigger();
        let Request {
            hello, protection, ..
        } = request;
        let code = TransportErrorCode::CONNECTION_REFUSED;
        self.refuse(now, &hello, trigger, protection, code, why);
    }

    // ---- answers ----

    fn send_retry(&mut self, now: Time, hello: &Hello, trigger: usize) {
        let to = hello.sender;
        if !self.stateless.may_do(now, to, Work::Retry, &mut self.stats) {
            return;
        }
        // Random, and so not the destination it replaces (RFC 9000 §17.2.5.1). Retry tests an
        // address, and HelloRetryRequest does not (RFC 9001 §4.7); the token says that it came in
        // one (RFC 9000 §8.1.1).
        let Some(scid) = self.new_cid() else {
            return;
        };
        let mut nonce = [0; NONCE_LEN];
        self.rng.fill_bytes(&mut nonce);
        let Some(token) = self
            .tokens
            .seal_retry(now, to.remote, &hello.dcid, &scid, nonce)
        else {
            return;
        };
        let mut packet = Vec::new();
        emit_retry(&mut packet, QUIC_V1, &hello.scid, &scid, &token);
        let Some(tag) = retry_integrity_tag(&retry_pseudo_packet(&hello.dcid, &packet)) else {
            return;
        };
        packet.extend_from_slice(&tag);
        if self.queue_reply(to, trigger, packet) {
            self.stats.retries += 1;
        }
    }

    /// Tells a client why it gets no connection, and forgets it.
    fn refuse(
        &mut self,
        now: Time,
        hello: &Hello,
        trigger: usize,
        mut protection: Protection,
        code: TransportErrorCode,
        why: &str,
    ) {
        let to = hello.sender;
        if !self
            .stateless
            .may_do(now, to, Work::Refusal, &mut self.stats)
        {
            return;
        }
        let Some(scid) = self.new_cid() else {
            return;
        };
        let mut packet = vec![0; MAX_REFUSAL_LEN];
        let mut w = Writer::new(&mut packet[..MAX_REFUSAL_LEN - TAG_LEN]);
        // A packet number of 4 bytes makes the shortest payload long enough for a sample.
        let pn_len = 4;
        let kind = LongType::Initial;
        let slot = write_long_header(&mut w, kind, QUIC_V1, &hello.scid, &scid, &[], 0, pn_len);
        write_connection_close(&mut w, &CloseFrame::transport(code, 0, why.as_bytes()));
        let len = w.len() + TAG_LEN;
        packet.truncate(len);
        let pn_offset = slot.pn_offset();
        slot.patch(&mut packet, len - pn_offset);
        let space = PacketNumberSpace::Initial;
        if protection
            .seal(space, 0, &mut packet, pn_offset, pn_len)
            .is_ok()
            && self.queue_reply(to, trigger, packet)
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
        let to = self.stateless.sender(meta.remote, meta.local_ip);
        let work = Work::VersionNegotiation;
        if !self.stateless.may_do(now, to, work, &mut self.stats) {
            return;
        }
        let random = self.rng.next_u32() as u8;
        // A reserved version keeps clients honest (RFC 9000 §6.3).
        let grease = 0x0a0a_0a0a | (u32::from(random & 0x3f) << 24 & 0xf000_0000);
        let mut packet = Vec::new();
        let versions = [QUIC_V1, grease];
        emit_version_negotiation(&mut packet, random & 0x3f, scid, dcid, &versions);
        if self.queue_reply(to, trigger, packet) {
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
        let to = self.stateless.sender(meta.remote, meta.local_ip);
        if !self.stateless.may_do(now, to, Work::Reset, &mut self.stats) {
            return;
        }
        // RFC 9000 §10.3.3.
        let len = (trigger - 1).min(MIN_RESET_LEN + 20);
        let mut packet = vec![0; len];
        self.rng.fill_bytes(&mut packet);
        packet[0] = packet[0] & 0x3f | 0x40;
        let token = self.resets.token(dcid);
        packet[len - 16..].copy_from_slice(token.as_bytes());
        if self.queue_reply(to, trigger, packet) {
            self.stats.resets += 1;
        }
    }

    fn queue_reply(&mut self, to: Sender, trigger: usize, packet: Vec<u8>) -> bool {
        self.stateless.reply(to, trigger, packet, &mut self.stats)
    }
}
