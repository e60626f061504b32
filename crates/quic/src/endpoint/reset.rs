//! Stateless reset (RFC 9000 §10.3): tokens of our IDs, and recognising those of peers.

use std::collections::HashMap;
use std::net::SocketAddr;

use aws_lc_rs::hmac;
use towline_wire::{ConnectionId, StatelessResetToken};

use super::keyed::KeyedState;
use super::slots::ConnectionHandle;

/// Smallest datagram that may be a stateless reset (RFC 9000 §10.3).
pub(super) const MIN_RESET_LEN: usize = 21;

pub(super) struct Resets {
    key: hmac::Key,
    /// Tokens by which peers may end our connections. Lookup is by keyed hash, so its time says
    /// nothing about a token (RFC 9000 §10.3.1).
    known: HashMap<(SocketAddr, [u8; 16]), ConnectionHandle, KeyedState>,
}

impl Resets {
    pub(super) fn new(key: &[u8; 32], hash_keys: (u64, u64)) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            known: HashMap::with_hasher(KeyedState(hash_keys.0, hash_keys.1)),
        }
    }

    /// The token of one of our IDs.
    pub(super) fn token(&self, cid: &ConnectionId) -> StatelessResetToken {
        let tag = hmac::sign(&self.key, cid.as_slice());
        let mut token = [0; 16];
        token.copy_from_slice(&tag.as_ref()[..16]);
        StatelessResetToken::new(token)
    }

    pub(super) fn replace(
        &mut self,
        old: Option<(SocketAddr, [u8; 16])>,
        new: Option<(SocketAddr, [u8; 16])>,
        handle: ConnectionHandle,
    ) {
        if let Some(old) = old {
            self.known.remove(&old);
        }
        if let Some(new) = new {
            self.known.insert(new, handle);
        }
    }

    /// The connection a datagram from `remote` resets.
    pub(super) fn find(&self, remote: SocketAddr, datagram: &[u8]) -> Option<ConnectionHandle> {
        if datagram.len() < MIN_RESET_LEN || self.known.is_empty() {
            return None;
        }
        let tail = datagram.last_chunk::<16>()?;
        self.known.get(&(remote, *tail)).copied()
    }
}
