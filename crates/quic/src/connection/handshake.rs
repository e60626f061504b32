//! The TLS handshake as QUIC carries it (RFC 9001 §4): CRYPTO streams and whose keys come when.
//!
//! Owns the TLS session and one CRYPTO stream for each encryption level, HANDSHAKE_DONE, and
//! packets that arrived before their keys. Keys go straight to `protect`; what the peer said
//! in its transport parameters is judged by the connection. A server drops the session when the
//! handshake is confirmed, a client when it then goes quiet: tickets that come later are not
//! remembered. What may still be asked about the session is kept.

use rustls::{CipherSuite, NamedGroup};
use towline_identity::PeerIdentity;
use towline_wire::{
    HANDSHAKE_DONE_LEN, PacketNumberSpace, Side, Time, TransportErrorCode, crypto_data_room,
    write_crypto_header, write_handshake_done,
};

use super::assembler::{Assembler, TooManyGaps};
use super::blocks::BlockPool;
use super::component::{PacketWriter, SentFrame, byte_range};
use super::early::EarlyPackets;
use super::protect::Protection;
use super::send_buffer::SendBuffer;
use crate::crypto::{TlsFacts, TlsFailure, TlsSession};
use crate::error::Violation;

/// Cap: bytes of one CRYPTO stream held beyond what TLS has consumed (RFC 9000 §7.5).
pub(crate) const MAX_CRYPTO_BUFFER: u64 = 65_536;

/// Cap: CRYPTO bytes accepted after the handshake (session tickets; CVE-2024-1765 class) beyond
/// what [`POST_HANDSHAKE_CRYPTO_RATE`] lets fade.
pub(crate) const MAX_POST_HANDSHAKE_CRYPTO: u64 = 262_144;

/// Bytes of heap that a TLS session takes while the handshake runs, as measured.
pub(crate) const TLS_SESSION: usize = 6 << 10;

/// CRYPTO bytes after the handshake that are forgotten each second: two large tickets. A flood is
/// a matter of rate; a connection may last for years.
const POST_HANDSHAKE_CRYPTO_RATE: u64 = 1024;

/// Type and length of a TLS handshake message (RFC 8446 §4).
const HEADER_LEN: u8 = 4;
/// Its type for session tickets.
const NEW_SESSION_TICKET: u8 = 4;
/// Its type for a request of a certificate.
const CERTIFICATE_REQUEST: u8 = 13;

/// TLS alert unexpected_message (RFC 8446 §6.2).
const UNEXPECTED_MESSAGE: u8 = 10;

#[derive(Debug, Default)]
struct CryptoStream {
    send: SendBuffer,
    recv: Assembler,
}

pub(crate) enum HandshakeError {
    Violation(Violation),
    Tls(TlsFailure),
}

impl From<Violation> for HandshakeError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

pub(crate) struct Handshake {
    side: Side,
    begun: Time,
    done_pending: bool,
    early: EarlyPackets,
    /// `None` on a server whose handshake is confirmed and whose tickets were acknowledged.
    exchange: Option<Box<Exchange>>,
    /// What remains of TLS when it was dropped.
    facts: Option<Box<TlsFacts>>,
}

/// What handshake messages need.
struct Exchange {
    /// `None` once it was dropped.
    tls: Option<Box<TlsSession>>,
    crypto: [CryptoStream; 3],
    /// The level TLS reads from now.
    read_level: PacketNumberSpace,
    /// The level TLS writes to now.
    write_level: PacketNumberSpace,
    post_handshake: PostHandshake,
    messages: Messages,
}

/// CRYPTO bytes received after the handshake and not yet forgotten.
#[derive(Debug, Default)]
struct PostHandshake {
    bytes: u64,
    /// As of then.
    at: Time,
}

impl PostHandshake {
    /// Takes `bytes` more; `false` if that is a flood.
    fn receive(&mut self, now: Time, bytes: u64) -> bool {
        let millis = now.saturating_duration_since(self.at).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        let faded = millis.saturating_mul(POST_HANDSHAKE_CRYPTO_RATE) / 1000;
        if faded > 0 {
            self.bytes = self.bytes.saturating_sub(faded);
            self.at = now;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes <= MAX_POST_HANDSHAKE_CRYPTO
    }
}

impl Exchange {
    fn new(tls: Option<Box<TlsSession>>, level: PacketNumberSpace) -> Self {
        Self {
            tls,
            crypto: Default::default(),
            read_level: level,
            write_level: level,
            post_handshake: PostHandshake::default(),
            messages: Messages::default(),
        }
    }
}

/// Where the messages begin in a CRYPTO stream that TLS does not read any more, or soon will not.
#[derive(Debug, Default)]
struct Messages {
    /// Bytes of a message's header that were read.
    header: u8,
    /// Bytes of its body to come.
    left: usize,
}

impl Messages {
    /// Takes the next bytes. The error is the type of the first message that begins there and is
    /// not a session ticket.
    fn read(&mut self, mut data: &[u8]) -> Result<(), u8> {
        let mut tickets = Ok(());
        while let Some((&byte, rest)) = data.split_first() {
            if self.header < HEADER_LEN {
                match self.header {
                    0 if byte != NEW_SESSION_TICKET => tickets = tickets.and(Err(byte)),
                    0 => {}
                    _ => self.left = self.left << 8 | usize::from(byte),
                }
                self.header += 1;
                data = rest;
            } else {
                let n = data.len().min(self.left);
                self.left -= n;
                data = &data[n..];
            }
            if self.header == HEADER_LEN && self.left == 0 {
                *self = Self::default();
            }
        }
        tickets
    }

    fn is_between(&self) -> bool {
        self.header == 0
    }
}

impl Handshake {
    pub(crate) fn new(now: Time, side: Side, tls: TlsSession) -> Self {
        Self {
            side,
            begun: now,
            done_pending: false,
            early: EarlyPackets::default(),
            exchange: Some(Box::new(Exchange::new(
                Some(Box::new(tls)),
                PacketNumberSpace::Initial,
            ))),
            facts: None,
        }
    }

    /// When it began: a client's first Initial left then.
    pub(crate) fn begun(&self) -> Time {
        self.begun
    }

    fn tls(&self) -> Option<&TlsSession> {
        self.exchange.as_ref()?.tls.as_deref()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.tls().is_none_or(|tls| !tls.is_handshaking())
    }

    // ---- what was agreed on ----

    pub(crate) fn peer_parameters(&self) -> Option<&[u8]> {
        self.tls()?.peer_parameters()
    }

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
        let exchange = self
            .exchange
            .get_or_insert_with(|| Box::new(Exchange::new(None, PacketNumberSpace::Application)));
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
        let Some(Exchange {
            tls,
            crypto,
            read_level,
            write_level,
            post_handshake,
            messages,
        }) = self.exchange.as_deref_mut()
        else {
            return Ok(());
        };
        if let Some(tls) = tls {
            write_tls(tls, crypto, write_level, protection);
        }
        loop {
            let stream = &mut crypto[read_level.index()].recv;
            let Some(data) = stream.read(usize::MAX, &mut BlockPool::default()) else {
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
    }

    /// Server: the handshake is confirmed, tell the client (RFC 9001 §4.1.2).
    pub(crate) fn queue_done(&mut self) {
        debug_assert!(self.side.is_server());
        self.done_pending = true;
    }

    /// Drops the CRYPTO stream of a level whose keys are gone. Those of Handshake go when the
    /// handshake is confirmed: a server is then done with TLS, a client still gets tickets.
    pub(crate) fn discard(&mut self, space: PacketNumberSpace) {
        let Some(exchange) = self.exchange.as_deref_mut() else {
            return;
        };
        exchange.crypto[space.index()] = CryptoStream::default();
        if space == PacketNumberSpace::Handshake && self.side.is_server() {
            self.drop_tls();
        }
    }

    /// The handshake was confirmed and nothing happened for a while.
    pub(crate) fn trim(&mut self) {
        let in_a_ticket = self.exchange.as_ref().is_some_and(|exchange| {
            let tickets = &exchange.crypto[PacketNumberSpace::Application.index()];
            tickets.recv.has_pending() || !exchange.messages.is_between()
        });
        if !in_a_ticket {
            self.drop_tls();
        }
    }

    /// Bytes of memory held. What TLS itself has is an estimate: rustls does not say.
    pub(crate) fn held(&self) -> usize {
        let exchange = self.exchange.as_ref().map_or(0, |exchange| {
            let crypto = exchange.crypto.iter();
            let streams: usize = crypto.map(|c| c.send.held() + c.recv.held()).sum();
            let tls = exchange.tls.as_ref().map_or(0, |_| TLS_SESSION);
            size_of::<Exchange>() + streams + tls
        });
        exchange + self.early.held()
    }

    fn drop_tls(&mut self) {
        let Some(exchange) = self.exchange.as_deref_mut() else {
            return;
        };
        if let Some(facts) = exchange.tls.as_deref().and_then(TlsSession::facts) {
            self.facts = Some(Box::new(facts));
            exchange.tls = None;
            self.drop_exchange();
        }
    }

    /// Drops what is left of the exchange once nobody needs it. A client's counts the CRYPTO
    /// bytes its server sends.
    fn drop_exchange(&mut self) {
        let over = self.exchange.as_ref().is_some_and(|exchange| {
            let tickets = &exchange.crypto[PacketNumberSpace::Application.index()];
            exchange.tls.is_none() && tickets.send.all_acked() && !tickets.recv.has_pending()
        });
        let over = over && self.side.is_server();
        if over {
            self.exchange = None;
        }
    }

    pub(crate) fn has_pending(&self, space: PacketNumberSpace) -> bool {
        (self.done_pending && space == PacketNumberSpace::Application)
            || self
                .exchange
                .as_ref()
                .is_some_and(|e| e.crypto[space.index()].send.has_pending(u64::MAX))
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
        let Some(exchange) = self.exchange.as_deref_mut() else {
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
        if let Some(send) = self.sender(space) {
            send.on_acked(byte_range(offset, len), &mut BlockPool::default());
            self.drop_exchange();
        }
    }

    pub(crate) fn on_crypto_lost(&mut self, space: PacketNumberSpace, offset: u64, len: u32) {
        if let Some(send) = self.sender(space) {
            send.on_lost(byte_range(offset, len));
        }
    }

    /// The sending half of a level that was not discarded.
    fn sender(&mut self, space: PacketNumberSpace) -> Option<&mut SendBuffer> {
        let send = &mut self.exchange.as_deref_mut()?.crypto[space.index()].send;
        (send.end() > 0).then_some(send)
    }

    pub(crate) fn on_done_lost(&mut self) {
        self.done_pending = true;
    }

    /// Packets that arrived before their keys.
    pub(crate) fn early(&mut self) -> &mut EarlyPackets {
        &mut self.early
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_however_they_are_cut() {
        let ticket = [NEW_SESSION_TICKET, 0, 0, 3, 24, 24, 24];
        let empty = [NEW_SESSION_TICKET, 0, 0, 0];
        let stream = [&ticket[..], &empty, &ticket].concat();
        for size in 1..=stream.len() {
            let mut messages = Messages::default();
            assert!(
                stream
                    .chunks(size)
                    .all(|piece| messages.read(piece).is_ok())
            );
            assert!(messages.is_between());
            assert!(messages.read(&ticket[..6]).is_ok() && !messages.is_between());
            // The last byte of the body, then a KeyUpdate.
            assert_eq!(messages.read(&[24, 24, 0, 0, 1, 0]), Err(24));
        }
    }
}
