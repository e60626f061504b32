//! Tokens of Retry packets (RFC 9000 §8.1.2): what they say, and whether it is true. They are
//! sealed (RFC 9000 §8.1.4) and say what they are for (RFC 9000 §8.1.1).
//!
//! Sealed with a key that all shards of a server share; nothing is remembered of a token. One that
//! opens is ours, whatever it says, so that a wrong one can be told from one of another server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use towline_wire::{ConnectionId, Reader, Time, Writer};

/// How long a Retry token is good.
const RETRY_TOKEN_LIFETIME: Duration = Duration::from_secs(10);

/// First byte of a Retry token's plain text.
const RETRY_TOKEN: u8 = 1;

/// Most bytes of a token that could be ours: nonce, type, time, address, two IDs, tag.
const MAX_TOKEN_LEN: usize = NONCE_LEN + 1 + 8 + 18 + 2 * 21 + 16;

/// What the token of an Initial packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is none, or it is not one of ours: it says nothing.
    Unknown,
    /// Its sender received our Retry at its address; the destination of its first Initial.
    Proven(ConnectionId),
    /// It is a Retry token of ours, but too old, or made for another address or connection.
    Invalid,
}

/// Seals and opens tokens.
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

    /// A token that proves the client received this Retry at `remote`. `original` is the
    /// destination of the Initial it answers, `retry` the source of the Retry.
    pub(super) fn seal_retry(
        &self,
        now: Time,
        remote: SocketAddr,
        original: &ConnectionId,
        retry: &ConnectionId,
        nonce: [u8; NONCE_LEN],
    ) -> Option<Vec<u8>> {
        let mut token = Vec::with_capacity(MAX_TOKEN_LEN);
        token.extend_from_slice(&nonce);
        token.resize(token.capacity(), 0);
        let (_, plain) = token.split_at_mut(NONCE_LEN);
        let mut w = Writer::new(plain);
        w.u8(RETRY_TOKEN);
        w.bytes(&now.as_nanos().to_be_bytes());
        w.bytes(&address_bytes(remote));
        for cid in [original, retry] {
            w.u8(cid.len() as u8);
            w.bytes(cid);
        }
        let len = w.len();
        let tag = self
            .key
            .as_ref()?
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                &mut plain[..len],
            )
            .ok()?;
        token.truncate(NONCE_LEN + len);
        token.extend_from_slice(tag.as_ref());
        Some(token)
    }

    /// Judges the token of an Initial packet from `remote` that is addressed to `destination`.
    pub(super) fn judge(
        &self,
        now: Time,
        remote: SocketAddr,
        destination: &ConnectionId,
        token: &[u8],
    ) -> Verdict {
        let mut sealed = [0; MAX_TOKEN_LEN];
        let Some(plain) = self.open(token, &mut sealed) else {
            return Verdict::Unknown;
        };
        match Claim::parse(plain) {
            Some(claim) if claim.holds(now, remote, destination) => Verdict::Proven(claim.original),
            _ => Verdict::Invalid,
        }
    }

    fn open<'a>(&self, token: &[u8], buffer: &'a mut [u8; MAX_TOKEN_LEN]) -> Option<&'a [u8]> {
        let (nonce, sealed) = token.split_first_chunk::<NONCE_LEN>()?;
        let buffer = buffer.get_mut(..sealed.len())?;
        buffer.copy_from_slice(sealed);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let key = self.key.as_ref()?;
        let plain = key.open_in_place(nonce, Aad::empty(), buffer).ok()?;
        Some(plain)
    }
}

/// What stands in a Retry token.
struct Claim {
    issued: Time,
    address: [u8; 18],
    original: ConnectionId,
    retry: ConnectionId,
}

impl Claim {
    fn parse(plain: &[u8]) -> Option<Self> {
        let mut r = Reader::new(plain);
        if r.u8().ok()? != RETRY_TOKEN {
            return None;
        }
        let issued = Time::from_nanos(u64::from_be_bytes(r.array().ok()?));
        let address = r.array().ok()?;
        let mut cid = || {
            let len = r.u8().ok()?;
            ConnectionId::new(r.bytes(usize::from(len)).ok()?)
        };
        Some(Self {
            issued,
            address,
            original: cid()?,
            retry: cid()?,
        })
    }

    fn holds(&self, now: Time, remote: SocketAddr, destination: &ConnectionId) -> bool {
        self.issued <= now
            && now.saturating_duration_since(self.issued) <= RETRY_TOKEN_LIFETIME
            && self.address == address_bytes(remote)
            // One Retry is worth one connection.
            && self.retry == *destination
    }
}

fn address_bytes(remote: SocketAddr) -> [u8; 18] {
    let ip = match remote.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&remote.port().to_be_bytes());
    bytes
}
