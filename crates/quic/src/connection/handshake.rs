//! The TLS handshake as QUIC carries it (RFC 9001 §4): CRYPTO streams and whose keys come when.
//!
//! Owns the TLS session and one CRYPTO stream for each encryption level, HANDSHAKE_DONE, and
//! packets that arrived before their keys. Keys go straight to `protect`; what the peer said
//! in its transport parameters is judged by the connection.

use towline_wire::{
    HANDSHAKE_DONE_LEN, PacketNumberSpace, Side, TransportErrorCode, crypto_data_room,
    write_crypto_header, write_handshake_done,
};

use super::assembler::{Assembler, TooManyGaps};
use super::blocks::BlockPool;
use super::component::{PacketWriter, SentFrame, byte_range};
use super::early::EarlyPackets;
use super::protect::Protection;
use super::send_buffer::SendBuffer;
use crate::crypto::{TlsFailure, TlsSession};
use crate::error::Violation;

/// Cap: bytes of one CRYPTO stream held beyond what TLS has consumed (RFC 9000 §7.5).
pub(crate) const MAX_CRYPTO_BUFFER: u64 = 65_536;

/// Cap: CRYPTO bytes accepted after the handshake (session tickets; CVE-2024-1765 class).
pub(crate) const MAX_POST_HANDSHAKE_CRYPTO: u64 = 262_144;

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
    tls: Box<TlsSession>,
    crypto: [CryptoStream; 3],
    /// The level TLS reads from now.
    read_level: PacketNumberSpace,
    /// The level TLS writes to now.
    write_level: PacketNumberSpace,
    post_handshake: u64,
    done_pending: bool,
    early: EarlyPackets,
}

impl Handshake {
    pub(crate) fn new(side: Side, tls: TlsSession) -> Self {
        Self {
            side,
            tls: Box::new(tls),
            crypto: Default::default(),
            read_level: PacketNumberSpace::Initial,
            write_level: PacketNumberSpace::Initial,
            post_handshake: 0,
            done_pending: false,
            early: EarlyPackets::default(),
        }
    }

    pub(crate) fn tls(&self) -> &TlsSession {
        &self.tls
    }

    pub(crate) fn is_complete(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// A CRYPTO frame. Nothing is read by TLS until [`Self::drive`].
    pub(crate) fn on_crypto(
        &mut self,
        space: PacketNumberSpace,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Violation> {
        let stream = &mut self.crypto[space.index()].recv;
        let end = offset + data.len() as u64;
        if end > stream.contiguous_end() && space.index() < self.read_level.index() {
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
    pub(crate) fn drive(&mut self, protection: &mut Protection) -> Result<(), HandshakeError> {
        self.write_tls(protection);
        loop {
            let level = self.read_level;
            let stream = &mut self.crypto[level.index()].recv;
            let Some(data) = stream.read(usize::MAX, &mut BlockPool::default()) else {
                return Ok(());
            };
            if level == PacketNumberSpace::Application {
                self.post_handshake += data.len() as u64;
                if self.post_handshake > MAX_POST_HANDSHAKE_CRYPTO {
                    return Err(HandshakeError::Violation(Violation::new(
                        TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
                        "too much handshake data after the handshake",
                    )));
                }
            }
            self.tls.read(&data).map_err(HandshakeError::Tls)?;
            self.write_tls(protection);
            if self.is_complete() {
                self.advance_read_level(PacketNumberSpace::Application)?;
            } else if protection.has_keys(PacketNumberSpace::Handshake) {
                self.advance_read_level(PacketNumberSpace::Handshake)?;
            }
        }
    }

    fn advance_read_level(&mut self, level: PacketNumberSpace) -> Result<(), Violation> {
        if level.index() <= self.read_level.index() {
            return Ok(());
        }
        let old = &self.crypto[self.read_level.index()].recv;
        if old.has_ready() || old.has_gap() {
            return Err(Violation::protocol(
                "handshake data left over when the encryption level changed",
            ));
        }
        self.read_level = level;
        Ok(())
    }

    fn write_tls(&mut self, protection: &mut Protection) {
        loop {
            let mut out = Vec::new();
            let change = self.tls.write(&mut out);
            let nothing = out.is_empty() && change.is_none();
            self.crypto[self.write_level.index()].send.push(out.into());
            match change {
                Some(rustls::quic::KeyChange::Handshake { keys }) => {
                    protection.install_handshake(keys);
                    self.write_level = PacketNumberSpace::Handshake;
                }
                Some(rustls::quic::KeyChange::OneRtt { keys, next }) => {
                    protection.install_one_rtt(keys, next);
                    self.write_level = PacketNumberSpace::Application;
                }
                None => {}
            }
            if nothing {
                return;
            }
        }
    }

    /// Server: the handshake is confirmed, tell the client (RFC 9001 §4.1.2).
    pub(crate) fn queue_done(&mut self) {
        debug_assert!(self.side.is_server());
        self.done_pending = true;
    }

    /// Drops the CRYPTO stream of a level whose keys are gone.
    pub(crate) fn discard(&mut self, space: PacketNumberSpace) {
        self.crypto[space.index()] = CryptoStream::default();
    }

    pub(crate) fn has_pending(&self, space: PacketNumberSpace) -> bool {
        self.crypto[space.index()].send.has_pending(u64::MAX)
            || (self.done_pending && space == PacketNumberSpace::Application)
    }

    pub(crate) fn write_frames(&mut self, space: PacketNumberSpace, w: &mut PacketWriter<'_, '_>) {
        if self.done_pending
            && space == PacketNumberSpace::Application
            && w.remaining() >= HANDSHAKE_DONE_LEN
        {
            self.done_pending = false;
            write_handshake_done(w.w);
            w.record(SentFrame::HandshakeDone);
        }
        let send = &mut self.crypto[space.index()].send;
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
        let stream = &mut self.crypto[space.index()];
        if stream.send.end() > 0 {
            let range = byte_range(offset, len);
            stream.send.on_acked(range, &mut BlockPool::default());
        }
    }

    pub(crate) fn on_crypto_lost(&mut self, space: PacketNumberSpace, offset: u64, len: u32) {
        let stream = &mut self.crypto[space.index()];
        if stream.send.end() > 0 {
            stream.send.on_lost(byte_range(offset, len));
        }
    }

    pub(crate) fn on_done_lost(&mut self) {
        self.done_pending = true;
    }

    /// Packets that arrived before their keys.
    pub(crate) fn early(&mut self) -> &mut EarlyPackets {
        &mut self.early
    }
}
