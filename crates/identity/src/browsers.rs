//! Whether browsers take a certificate that a page names by its hash (`serverCertificateHashes`).
//!
//! The rules are those of W3C WebTransport, "custom certificate requirements". They bind browsers
//! alone: our own clients take any certificate within its dates that a pin names.

use rustls::pki_types::alg_id;

use crate::identity::{Identity, IdentityKind};
use crate::x509;

/// The longest life of a certificate that browsers take by its hash.
const MAX_DAYS: u64 = 14;

const SECONDS_OF_A_DAY: u64 = 86_400;

/// Why browsers refuse a certificate by its hash. As a website's they still take it, if an
/// authority they trust has signed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HashObstacle {
    /// There is no certificate.
    #[error("a raw public key is no certificate")]
    RawKey,
    /// The certificate's key is of another kind.
    #[error("its key is {0}, and browsers want ECDSA with P-256")]
    Key(&'static str),
    /// The certificate lives too long.
    #[error("it lives {days} days, and browsers want 14 at most")]
    Lifetime {
        /// From its first second to its last, rounded up.
        days: u64,
    },
}

impl Identity {
    /// Why browsers would refuse the certificate if a page gave them its hash; `None` if they
    /// would take it. [`generate_dev`](Self::generate_dev) makes one that they take.
    pub fn hash_obstacle(&self) -> Option<HashObstacle> {
        if self.kind() == IdentityKind::RawKey {
            return Some(HashObstacle::RawKey);
        }
        if let Some(other) = other_key(self.spki()) {
            return Some(HashObstacle::Key(other));
        }
        let (first, last) = self.validity()?;
        let seconds = last.as_secs().saturating_sub(first.as_secs());
        // Both ends of the period count: 14 days from second to second are one too many.
        let days = seconds.div_ceil(SECONDS_OF_A_DAY).max(MAX_DAYS + 1);
        (seconds >= MAX_DAYS * SECONDS_OF_A_DAY).then_some(HashObstacle::Lifetime { days })
    }
}

/// What a public key is, if it is not ECDSA with P-256.
fn other_key(spki: &[u8]) -> Option<&'static str> {
    let algorithm = x509::key_algorithm(spki).unwrap_or_default();
    let is = |id: rustls::pki_types::AlgorithmIdentifier| algorithm == id.as_ref();
    if is(alg_id::ECDSA_P256) {
        return None;
    }
    Some(if is(alg_id::RSA_ENCRYPTION) {
        "RSA"
    } else if is(alg_id::ED25519) {
        "Ed25519"
    } else if is(alg_id::ECDSA_P384) {
        "ECDSA with P-384"
    } else {
        "of another kind"
    })
}

#[cfg(test)]
mod tests;
