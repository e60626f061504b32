//! The TLS handshake as QUIC carries it (RFC 9001 §4): CRYPTO streams and whose keys come when.
//!
//! Owns the TLS session and one CRYPTO stream for each encryption level, HANDSHAKE_DONE, the
//! connection IDs and the address token of the first packets, the peer's transport parameters, and
//! packets that arrived before their keys. A server of several protocols makes its session when it has
//! seen the client's whole hello. Keys go straight to `protect`; what the parameters mean
//! for the other components is carried there by the connection. A server drops the session when the
//! handshake is confirmed, a client when it then goes quiet: tickets that come later are not
//! remembered. What may still be asked about the session is kept.

mod exchange;
mod ids;
mod messages;
mod opening;

use std::sync::Arc;

use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::quic::Keys;
use rustls::{CipherSuite, NamedGroup};
use towline_identity::PeerIdentity;
use towline_wire::{
    ConnectionId, HANDSHAKE_DONE_LEN, PacketNumberSpace, Side, Time, TransportErrorCode,
    TransportParameters, crypto_data_room, retry_pseudo_packet, write_crypto_header,
    write_handshake_done,
};

use super::assembler::{Assembler, TooManyGaps};
use super::blocks::BlockPool;
use super::component::{PacketWriter, SentFrame, byte_range};
use super::early::EarlyPackets;
use super::protect::Protection;
use super::send_buffer::SendBuffer;
use crate::crypto::{TlsFacts, TlsFailure, TlsSession, initial_keys, retry_integrity_tag};
use crate::error::Violation;
#[cfg(test)]
pub(crate) use exchange::TLS_SESSION;
use exchange::{CryptoStream, Exchange, Slot};
pub(crate) use ids::HandshakeIds;
use messages::CERTIFICATE_REQUEST;
pub(crate) use opening::{Chosen, Opening};

/// Cap: bytes of one CRYPTO stream held beyond what TLS has consumed (RFC 9000 §7.5).
pub(crate) const MAX_CRYPTO_BUFFER: u64 = 65_536;

/// The exponent of ACK delays where the peer named none (RFC 9000 §18.2).
const DEFAULT_ACK_DELAY_EXPONENT: u8 = 3;

/// TLS alert unexpected_message (RFC 8446 §6.2).
const UNEXPECTED_MESSAGE: u8 = 10;

pub(crate) enum HandshakeError {
    Violation(Violation),
    Tls(TlsFailure),
}

impl From<Violation> for HandshakeError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// When TLS begins.
pub(crate) enum Begin {
    /// At once.
    With(Box<TlsSession>),
    /// When the client's hello is there, with what it leads to.
    AtHello(Box<Opening>),
}

pub(crate) struct Handshake {
    side: Side,
    begun: Time,
    provider: Arc<CryptoProvider>,
    ids: HandshakeIds,
    /// Address token of a client's Initial packets.
    token: Vec<u8>,
    /// What the peer said of itself, once it is known to be true, until the first [`Self::trim`].
    peer: Option<Box<TransportParameters>>,
    /// What of it is asked for as long as the connection lasts.
    traits: Option<PeerTraits>,
    done_pending: bool,
    /// HANDSHAKE_DONE was acknowledged, and nobody has asked yet.
    done_acked: bool,
    early: EarlyPackets,
    /// Empty on a server whose handshake is confirmed and whose tickets were acknowledged.
    exchange: Slot,
    /// What remains of TLS when it was dropped.
    facts: Option<Box<TlsFacts>>,
}

/// What the peer's transport parameters say about all times, not only about the beginning.
#[derive(Clone, Copy)]
struct PeerTraits {
    ack_delay_exponent: u8,
    /// It takes RESET_STREAM_AT.
    reset_stream_at: bool,
    /// It wants no packets from other addresses of ours (RFC 9000 §18.2).
    disable_active_migration: bool,
}

impl Handshake {
    pub(crate) fn new(
        now: Time,
        side: Side,
        provider: Arc<CryptoProvider>,
        ids: HandshakeIds,
        begin: Begin,
    ) -> Self {
        let (tls, opening) = match begin {
            Begin::With(tls) => (Some(tls), None),
            Begin::AtHello(opening) => (None, Some(opening)),
        };
        let mut exchange = Exchange::new(tls, PacketNumberSpace::Initial);
        exchange.opening = opening;
        Self {
            side,
            begun: now,
            provider,
            ids,
            token: Vec::new(),
            peer: None,
            traits: None,
            done_pending: false,
            done_acked: false,
            early: EarlyPackets::default(),
            exchange: Slot::new(exchange),
            facts: None,
        }
    }

    /// When it began: a client's first Initial left then.
    pub(crate) fn begun(&self) -> Time {
        self.begun
    }

    fn tls(&self) -> Option<&TlsSession> {
        self.exchange.get()?.tls.as_deref()
    }

    /// Server: which session the client gets is not known yet.
    pub(crate) fn awaits_hello(&self) -> bool {
        self.exchange.get().is_some_and(|e| e.opening.is_some())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.exchange.digest().is_complete
    }

    /// Which session a client is to have, once its hello is whole; told once. The session is
    /// [handed in](Self::begin_session) then.
    pub(crate) fn choose_session(&mut self) -> Option<Chosen> {
        let mut exchange = self.exchange.get_mut()?;
        let exchange = &mut *exchange;
        let opening = exchange.opening.as_mut()?;
        let stream = &mut exchange.crypto[PacketNumberSpace::Initial.index()].recv;
        let mut whole = false;
        while let Some(data) = stream.read(usize::MAX, &mut BlockPool::default()) {
            whole = opening.receive(&data);
        }
        let opening = exchange.opening.take_if(|_| whole)?;
        Some(opening.choose())
    }

    /// The session for the client of `hello`, which it reads next.
    pub(crate) fn begin_session(&mut self, tls: TlsSession, hello: Vec<u8>) {
        if let Some(mut exchange) = self.exchange.get_mut() {
            exchange.tls = Some(Box::new(tls));
            exchange.hello = hello;
        }
    }

    // ---- IDs, Retry and the peer's parameters ----

    pub(crate) fn ids(&self) -> &HandshakeIds {
        &self.ids
    }

    /// What a client's Initial packets carry to prove its address; empty on a server (RFC 9000
    /// §17.2.2).
    pub(crate) fn token(&self) -> &[u8] {
        &self.token
    }

    /// Client: nothing that counts has come from the server.
    pub(crate) fn has_heard_nothing(&self) -> bool {
        self.side.is_client() && self.ids.remote.is_none() && self.ids.retry.is_none()
    }

    /// An authentic packet came from `scid`; `true` if that is news.
    pub(crate) fn learn_remote(&mut self, scid: ConnectionId) -> bool {
        let news = self.ids.remote.is_none();
        self.ids.remote.get_or_insert(scid);
        news
    }

    /// Whether a Retry answers our first Initial (RFC 9001 §5.8).
    pub(crate) fn is_retry_authentic(&self, tag: &[u8; 16], whole: &[u8]) -> bool {
        let pseudo = retry_pseudo_packet(&self.ids.original, whole);
        retry_integrity_tag(&pseudo).as_ref() == Some(tag)
    }

    /// Begins again as the Retry from `scid` wants it; returns the keys of Initial packets.
    pub(crate) fn on_retry(&mut self, scid: ConnectionId, token: &[u8]) -> Keys {
        self.ids.retry = Some(scid);
        // In every Initial of this connection, and in none of another (RFC 9000 §8.1.2, §8.1.3).
        self.token = token.to_vec();
        initial_keys(&self.provider, &scid, self.side)
    }

    /// The peer's transport parameters, once they were checked and until the handshake is over.
    pub(crate) fn peer(&self) -> Option<&TransportParameters> {
        self.peer.as_deref()
    }

    /// Whether the peer takes RESET_STREAM_AT.
    pub(crate) fn peer_takes_reset_at(&self) -> bool {
        self.traits.is_some_and(|traits| traits.reset_stream_at)
    }

    /// Whether the peer forbids this end to move (RFC 9000 §18.2).
    pub(crate) fn peer_forbids_migration(&self) -> bool {
        self.traits
            .is_some_and(|traits| traits.disable_active_migration)
    }

    /// How the peer scales the delay in its ACK frames of a space (RFC 9000 §19.3).
    pub(crate) fn ack_delay_exponent(&self, space: PacketNumberSpace) -> u8 {
        match (space, &self.traits) {
            (PacketNumberSpace::Application, Some(traits)) => traits.ack_delay_exponent,
            _ => DEFAULT_ACK_DELAY_EXPONENT,
        }
    }

    /// Reads and checks the peer's transport parameters; `None` if they are not there yet or were
    /// read before.
    pub(crate) fn learn_peer_parameters(
        &mut self,
    ) -> Result<Option<&TransportParameters>, Violation> {
        // On resumption a client's TLS shows remembered parameters until the real ones arrive.
        let current = self.side.is_server() || self.is_complete();
        if !current || self.traits.is_some() {
            return Ok(None);
        }
        let Some(bytes) = self.tls().and_then(TlsSession::peer_parameters) else {
            return Ok(None);
        };
        let peer = TransportParameters::parse(bytes, self.side.peer())?;
        self.ids.confirm(self.side, &peer)?;
        self.traits = Some(PeerTraits {
            ack_delay_exponent: peer.ack_delay_exponent,
            reset_stream_at: peer.reset_stream_at,
            disable_active_migration: peer.disable_active_migration,
        });
        Ok(Some(self.peer.insert(Box::new(peer))))
    }

    // ---- what was agreed on ----

    pub(crate) fn peer_identity(&self) -> Option<PeerIdentity> {
        match &self.facts {
            Some(facts) => facts.peer_identity.as_deref().cloned(),
            None => self.tls()?.peer_identity(),
        }
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match &self.facts {
            Some(facts) => facts.alpn.as_deref(),
            None => self.tls()?.alpn(),
        }
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.facts {
            Some(facts) => facts.server_name.as_deref(),
            None => self.tls()?.server_name(),
        }
    }

    pub(crate) fn cipher_suite(&self) -> Option<CipherSuite> {
        match &self.facts {
            Some(facts) => facts.cipher_suite,
            None => self.tls()?.cipher_suite(),
        }
    }

    pub(crate) fn key_exchange(&self) -> Option<NamedGroup> {
        match &self.facts {
            Some(facts) => facts.key_exchange,
            None => self.tls()?.key_exchange(),
        }
    }

    pub(crate) fn is_resumed(&self) -> bool {
        match &self.facts {
            Some(facts) => facts.resumed,
            None => self.tls().is_some_and(TlsSession::is_resumed),
        }
    }

    pub(crate) fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        match (&self.facts, self.tls()) {
            (Some(facts), _) => facts.export_keying_material(out, label, context),
            (None, Some(tls)) => tls.export_keying_material(out, label, context),
            (None, None) => Err(rustls::Error::HandshakeNotComplete),
        }
    }

    // ---- CRYPTO ----

    /// A CRYPTO frame. Nothing is read by TLS until [`Self::drive`].
    /// A level that is over brings nothing new (RFC 9001 §4.1.3).
    pub(crate) fn on_crypto(
        &mut self,
        space: PacketNumberSpace,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Violation> {
        // A server that was done with the handshake judges in `drive` what comes even so.
        let mut exchange = self
            .exchange
            .get_or_insert_with(|| Exchange::new(None, PacketNumberSpace::Application));
        let exchange = &mut *exchange;
        let stream = &mut exchange.crypto[space.index()].recv;
        let end = offset + data.len() as u64;
        if end > stream.ready_end() && space.index() < exchange.read_level.index() {
            return Err(Violation::protocol(
                "new handshake data at an encryption level that is over",
            ));
        }
        let exceeded = Violation::new(
            TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
            "more handshake data than can be buffered",
        );
        if end.saturating_sub(stream.read_offset()) > MAX_CRYPTO_BUFFER {
            return Err(exceeded);
        }
        match stream.insert(offset, data, &mut BlockPool::default()) {
            Ok(()) => Ok(()),
            Err(TooManyGaps) => Err(exceeded),
        }
    }

    /// Lets TLS read what is in order and write what it has; installs keys as they come.
    pub(crate) fn drive(
        &mut self,
        now: Time,
        protection: &mut Protection,
    ) -> Result<(), HandshakeError> {
        let Some(mut exchange) = self.exchange.get_mut() else {
            return Ok(());
        };
        let Exchange {
            tls,
            opening,
            hello,
            crypto,
            read_level,
            write_level,
            post_handshake,
            messages,
        } = &mut *exchange;
        if let Some(tls) = tls {
            write_tls(tls, crypto, write_level, protection);
        }
        while opening.is_none() {
            let stream = &mut crypto[read_level.index()].recv;
            let Some(data) = next_data(hello, stream) else {
                return Ok(());
            };
            let mut tickets = Ok(());
            if *read_level == PacketNumberSpace::Application {
                tickets = messages.read(&data);
                if !post_handshake.receive(now, data.len() as u64) {
                    return Err(HandshakeError::Violation(Violation::new(
                        TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
                        "too much handshake data after the handshake",
                    )));
                }
            }
            if self.side.is_client() && tickets == Err(CERTIFICATE_REQUEST) {
                // RFC 9001 §4.4: a server cannot ask for it any more.
                return Err(HandshakeError::Violation(Violation::protocol(
                    "CertificateRequest after the handshake",
                )));
            }
            let Some(tls) = tls else {
                // RFC 9001 §4.4, §6: a server sends tickets after the handshake, a client nothing.
                if self.side.is_server() || tickets.is_err() {
                    return Err(HandshakeError::Tls(TlsFailure {
                        code: TransportErrorCode::crypto(UNEXPECTED_MESSAGE),
                        what: "unexpected message after the handshake".to_owned(),
                        left_over: false,
                    }));
                }
                continue;
            };
            tls.read(&data).map_err(|failure| match failure.left_over {
                true => HandshakeError::Violation(Violation::protocol(
                    "handshake data runs on into another encryption level",
                )),
                false => HandshakeError::Tls(failure),
            })?;
            write_tls(tls, crypto, write_level, protection);
            let level = if !tls.is_handshaking() {
                PacketNumberSpace::Application
            } else if protection.has_keys(PacketNumberSpace::Handshake) {
                PacketNumberSpace::Handshake
            } else {
                continue;
            };
            if level.index() > read_level.index() {
                let old = &crypto[read_level.index()].recv;
                if old.has_ready() || old.has_pending() {
                    return Err(HandshakeError::Violation(Violation::protocol(
                        "handshake data left over when the encryption level changed",
                    )));
                }
                *read_level = level;
            }
        }
        Ok(())
    }

    /// Server: the handshake is confirmed, tell the client (RFC 9001 §4.1.2).
    pub(crate) fn queue_done(&mut self) {
        debug_assert!(self.side.is_server());
        self.done_pending = true;
    }

    /// Drops the CRYPTO stream of a level whose keys are gone. Those of Handshake go when the
    /// handshake is confirmed: a server is then done with TLS, a client still gets tickets.
    pub(crate) fn discard(&mut self, space: PacketNumberSpace) {
        let Some(mut exchange) = self.exchange.get_mut() else {
            return;
        };
        exchange.crypto[space.index()] = CryptoStream::default();
        drop(exchange);
        if space == PacketNumberSpace::Handshake && self.side.is_server() {
            self.drop_tls();
        }
    }

    /// The handshake was confirmed and nothing happened for a while.
    pub(crate) fn trim(&mut self) {
        self.peer = None;
        let in_a_ticket = self.exchange.get().is_some_and(|exchange| {
            let tickets = &exchange.crypto[PacketNumberSpace::Application.index()];
            tickets.recv.has_pending() || !exchange.messages.is_between()
        });
        if !in_a_ticket {
            self.drop_tls();
        }
    }

    /// Bytes of memory held. What TLS itself has is an estimate: rustls does not say.
    pub(crate) fn held(&self) -> usize {
        let peer = self
            .peer
            .as_ref()
            .map_or(0, |_| size_of::<TransportParameters>());
        self.exchange.digest().held + peer + self.early.held() + self.token.capacity()
    }

    fn drop_tls(&mut self) {
        let Some(mut exchange) = self.exchange.get_mut() else {
            return;
        };
        if let Some(facts) = exchange.tls.as_deref().and_then(TlsSession::facts) {
            self.facts = Some(Box::new(facts));
            exchange.tls = None;
            drop(exchange);
            self.drop_exchange();
        }
    }

    /// Drops what is left of the exchange once nobody needs it. A client's counts the CRYPTO
    /// bytes its server sends.
    fn drop_exchange(&mut self) {
        let over = self.exchange.get().is_some_and(|exchange| {
            let tickets = &exchange.crypto[PacketNumberSpace::Application.index()];
            exchange.tls.is_none() && tickets.send.all_acked() && !tickets.recv.has_pending()
        });
        let over = over && self.side.is_server();
        if over {
            self.exchange.clear();
        }
    }

    pub(crate) fn has_pending(&self, space: PacketNumberSpace) -> bool {
        (self.done_pending && space == PacketNumberSpace::Application)
            || self.exchange.digest().pending[space.index()]
    }

    /// What is sent again stays at its level, and new data goes at the highest (RFC 9001 §4.9).
    pub(crate) fn write_frames(&mut self, space: PacketNumberSpace, w: &mut PacketWriter<'_, '_>) {
        if self.done_pending
            && space == PacketNumberSpace::Application
            && w.remaining() >= HANDSHAKE_DONE_LEN
        {
            self.done_pending = false;
            write_handshake_done(w.w);
            w.record(SentFrame::HandshakeDone);
        }
        if !self.exchange.digest().pending[space.index()] {
            return;
        }
        let Some(mut exchange) = self.exchange.get_mut() else {
            return;
        };
        let send = &mut exchange.crypto[space.index()].send;
        while let Some(next) = send.peek_next(u64::MAX) {
            let Some(room) = crypto_data_room(w.remaining(), next.start) else {
                return;
            };
            let Some(range) = send.take_next(room as u64, u64::MAX) else {
                return;
            };
            let len = (range.end - range.start) as usize;
            write_crypto_header(w.w, range.start, len);
            if let Some(out) = w.w.reserve(len) {
                send.copy_to(range.start, out);
            }
            w.record(SentFrame::Crypto {
                space,
                offset: range.start,
                len: len as u32,
            });
        }
    }

    pub(crate) fn on_crypto_acked(&mut self, space: PacketNumberSpace, offset: u64, len: u32) {
        self.with_sender(space, |send| {
            send.on_acked(byte_range(offset, len), &mut BlockPool::default());
        });
        self.drop_exchange();
    }

    pub(crate) fn on_crypto_lost(&mut self, space: PacketNumberSpace, offset: u64, len: u32) {
        self.with_sender(space, |send| send.on_lost(byte_range(offset, len)));
    }

    /// Hands over the sending half of a level, if that was not discarded.
    fn with_sender(&mut self, space: PacketNumberSpace, f: impl FnOnce(&mut SendBuffer)) {
        let Some(mut exchange) = self.exchange.get_mut() else {
            return;
        };
        let send = &mut exchange.crypto[space.index()].send;
        if send.end() > 0 {
            f(send);
        }
    }

    pub(crate) fn on_done_acked(&mut self) {
        self.done_acked = true;
    }

    /// Server: whether the client has learnt since the last call that the handshake is confirmed.
    pub(crate) fn take_done_acked(&mut self) -> bool {
        std::mem::take(&mut self.done_acked)
    }

    pub(crate) fn on_done_lost(&mut self) {
        self.done_pending = true;
    }

    /// Packets that arrived before their keys.
    pub(crate) fn early(&mut self) -> &mut EarlyPackets {
        &mut self.early
    }
}

/// What TLS reads next: a hello that was looked at before there was a session, or what came in order.
fn next_data(hello: &mut Vec<u8>, stream: &mut Assembler) -> Option<Bytes> {
    match std::mem::take(hello) {
        hello if !hello.is_empty() => Some(Bytes::from(hello)),
        _ => stream.read(usize::MAX, &mut BlockPool::default()),
    }
}

/// Moves what TLS has to say to the CRYPTO streams, and its keys to `protection`.
fn write_tls(
    tls: &mut TlsSession,
    crypto: &mut [CryptoStream; 3],
    write_level: &mut PacketNumberSpace,
    protection: &mut Protection,
) {
    loop {
        let mut out = Vec::new();
        let change = tls.write(&mut out);
        let nothing = out.is_empty() && change.is_none();
        crypto[write_level.index()].send.push(out.into());
        match change {
            Some(rustls::quic::KeyChange::Handshake { keys }) => {
                protection.install_handshake(keys);
                *write_level = PacketNumberSpace::Handshake;
            }
            Some(rustls::quic::KeyChange::OneRtt { keys, next }) => {
                protection.install_one_rtt(keys, next);
                *write_level = PacketNumberSpace::Application;
            }
            None => {}
        }
        if nothing {
            return;
        }
    }
}
