//! What handshake messages need: the TLS session and a CRYPTO stream for each encryption level.
//!
//! Owned by the handshake, in memory of its own that most connections no longer read once they are
//! established. What is asked after every packet is therefore kept beside it.

use std::ops::{Deref, DerefMut};

use towline_wire::PacketNumberSpace;

use super::messages::{Messages, PostHandshake};
use super::opening::Opening;
use crate::connection::assembler::Assembler;
use crate::connection::send_buffer::SendBuffer;
use crate::crypto::TlsSession;

/// Bytes of heap that a TLS session takes while the handshake runs, as measured.
pub(crate) const TLS_SESSION: usize = 6 << 10;

#[derive(Debug, Default)]
pub(super) struct CryptoStream {
    pub(super) send: SendBuffer,
    pub(super) recv: Assembler,
}

pub(super) struct Exchange {
    /// `None` before it is made and once it was dropped.
    pub(super) tls: Option<Box<TlsSession>>,
    /// What the session will be made of, until it is.
    pub(super) opening: Option<Box<Opening>>,
    /// The hello that it was made for, until TLS reads it.
    pub(super) hello: Vec<u8>,
    pub(super) crypto: [CryptoStream; 3],
    /// The level TLS reads from now.
    pub(super) read_level: PacketNumberSpace,
    /// The level TLS writes to now.
    pub(super) write_level: PacketNumberSpace,
    pub(super) post_handshake: PostHandshake,
    pub(super) messages: Messages,
}

impl Exchange {
    pub(super) fn new(tls: Option<Box<TlsSession>>, level: PacketNumberSpace) -> Self {
        Self {
            tls,
            opening: None,
            hello: Vec::new(),
            crypto: Default::default(),
            read_level: level,
            write_level: level,
            post_handshake: PostHandshake::default(),
            messages: Messages::default(),
        }
    }

    /// Bytes of memory held. What TLS itself has is an estimate: rustls does not say.
    fn held(&self) -> usize {
        let crypto = self.crypto.iter();
        let streams: usize = crypto.map(|c| c.send.held() + c.recv.held()).sum();
        let opening = self.opening.as_ref().map_or(0, |opening| opening.held());
        let tls = self.tls.as_ref().map_or(opening, |_| TLS_SESSION);
        size_of::<Self>() + streams + tls
    }

    fn digest(&self) -> Digest {
        let is_handshaking = self.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
        Digest {
            is_complete: self.opening.is_none() && !is_handshaking,
            pending: std::array::from_fn(|level| self.crypto[level].send.has_pending(u64::MAX)),
            held: self.held(),
        }
    }
}

/// What is asked of an exchange most often, as of its last change.
#[derive(Clone, Copy)]
pub(super) struct Digest {
    /// TLS is done, or was.
    pub(super) is_complete: bool,
    /// CRYPTO data waits at a level.
    pub(super) pending: [bool; 3],
    /// Bytes of memory held.
    pub(super) held: usize,
}

impl Digest {
    /// Of no exchange.
    const NONE: Self = Self {
        is_complete: true,
        pending: [false; 3],
        held: 0,
    };
}

/// The place of an exchange.
pub(super) struct Slot {
    exchange: Option<Box<Exchange>>,
    digest: Digest,
}

impl Slot {
    pub(super) fn new(exchange: Exchange) -> Self {
        Self {
            digest: exchange.digest(),
            exchange: Some(Box::new(exchange)),
        }
    }

    /// The exchange, to change it; made by `f` where there is none.
    pub(super) fn get_or_insert_with(&mut self, f: impl FnOnce() -> Exchange) -> Changing<'_> {
        Changing {
            exchange: self.exchange.get_or_insert_with(|| Box::new(f())),
            digest: &mut self.digest,
        }
    }

    pub(super) fn clear(&mut self) {
        self.exchange = None;
        self.digest = Digest::NONE;
    }

    pub(super) fn digest(&self) -> &Digest {
        &self.digest
    }

    pub(super) fn get(&self) -> Option<&Exchange> {
        self.exchange.as_deref()
    }

    /// The exchange, to change it.
    pub(super) fn get_mut(&mut self) -> Option<Changing<'_>> {
        let exchange = self.exchange.as_deref_mut()?;
        Some(Changing {
            exchange,
            digest: &mut self.digest,
        })
    }
}

/// An exchange while it may change.
pub(super) struct Changing<'a> {
    exchange: &'a mut Exchange,
    digest: &'a mut Digest,
}

impl Deref for Changing<'_> {
    type Target = Exchange;

    fn deref(&self) -> &Exchange {
        self.exchange
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Exchange {
        self.exchange
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        *self.digest = self.exchange.digest();
    }
}
