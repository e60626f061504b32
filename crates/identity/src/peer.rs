//! Who the peer turned out to be, after the handshake.
//!
//! `quic` and `stcp` make it from rustls's `peer_certificates()`. It repeats what the peer proved
//! to own; whether that is enough was the verifier's decision.

use std::fmt;

use rustls::pki_types::CertificateDer;

use crate::identity::IdentityKind;
use crate::pin::{CertificatePin, KeyPin};
use crate::x509;

/// The peer's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// The peer presented a certificate chain.
    X509 {
        /// Hash of the leaf.
        certificate: CertificatePin,
        /// Hash of the leaf's public key.
        key: KeyPin,
        /// The leaf's subject, such as `CN=boat 7, O=Example`; for people, not for decisions.
        subject: String,
    },
    /// The peer presented a raw public key.
    RawKey {
        /// SubjectPublicKeyInfo, DER.
        spki: Vec<u8>,
        /// Its hash.
        key: KeyPin,
    },
}

impl PeerIdentity {
    /// From what rustls's `peer_certificates()` returns. `None` when the peer presented nothing,
    /// or nothing that is a certificate or key (then no handshake with it can have finished).
    pub fn from_peer_certificates(
        certificates: Option<&[CertificateDer<'_>]>,
    ) -> Option<PeerIdentity> {
        let first = certificates?.first()?;
        if x509::is_spki(first) {
            return Some(PeerIdentity::RawKey {
                key: KeyPin::of(first),
                spki: first.to_vec(),
            });
        }
        let leaf = x509::parse(first)?;
        Some(PeerIdentity::X509 {
            certificate: CertificatePin::of(first),
            key: KeyPin::of(&x509::spki(first)?),
            subject: x509::subject_text(leaf.subject),
        })
    }

    /// Certificate chain or raw key.
    pub fn kind(&self) -> IdentityKind {
        match self {
            PeerIdentity::X509 { .. } => IdentityKind::X509,
            PeerIdentity::RawKey { .. } => IdentityKind::RawKey,
        }
    }

    /// The pin of the peer's public key, which both kinds have.
    pub fn key_pin(&self) -> KeyPin {
        match self {
            PeerIdentity::X509 { key, .. } | PeerIdentity::RawKey { key, .. } => *key,
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerIdentity::X509 {
                certificate,
                subject,
                ..
            } => write!(formatter, "certificate {certificate} ({subject})"),
            PeerIdentity::RawKey { key, .. } => write!(formatter, "raw key {key}"),
        }
    }
}
