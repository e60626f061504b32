//! The rules by which a peer is believed.
//!
//! [`Trust`] is a client's rule for servers, [`ClientAuth`] a server's rule for clients; `config`
//! turns them into rustls verifiers. Names are checked only under roots: a pin names the peer
//! already. Dates are checked wherever there is a certificate.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

use crate::error::CertificatesError;
use crate::identity::{IdentityKind, certificates_from_pem};
use crate::pin::{KeyPin, Pin};

/// A client's rule for the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Trust {
    /// A chain to one of these roots, with the server's name and dates checked. Every root must be
    /// usable; a self-signed server certificate may be given as its own root.
    Roots(Vec<CertificateDer<'static>>),
    /// As `Roots`, for a system's collection: roots that cannot be read are passed over.
    SystemRoots(Vec<CertificateDer<'static>>),
    /// A certificate with one of these pins, within its dates; issuer and name do not matter.
    Pinned(Vec<Pin>),
    /// A raw public key (RFC 7250) with one of these pins.
    RawKeys(Vec<KeyPin>),
    /// Any certificate at all: whoever sits on the path can pose as the server. For tests, and for
    /// a first contact whose identity the caller checks afterwards.
    InsecureAcceptAnyCertificate,
    /// Any raw public key at all, with the same warning.
    InsecureAcceptAnyRawKey,
}

impl Trust {
    /// [`Trust::Roots`] from a CA file's contents.
    pub fn roots_from_pem(pem: &[u8]) -> Result<Trust, CertificatesError> {
        certificates_from_pem(pem).map(Trust::Roots)
    }

    /// What the server must present.
    pub fn kind(&self) -> IdentityKind {
        match self {
            Trust::Roots(_)
            | Trust::SystemRoots(_)
            | Trust::Pinned(_)
            | Trust::InsecureAcceptAnyCertificate => IdentityKind::X509,
            Trust::RawKeys(_) | Trust::InsecureAcceptAnyRawKey => IdentityKind::RawKey,
        }
    }
}

/// A server's rule for clients. Apart from `None`, a client without a proof is turned away.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ClientAuth {
    /// Clients stay anonymous.
    #[default]
    None,
    /// A chain to one of these roots, within its dates and meant for clients.
    Roots(Vec<CertificateDer<'static>>),
    /// A certificate with one of these pins, within its dates.
    Pinned(Vec<Pin>),
    /// A raw public key with one of these pins.
    RawKeys(Vec<KeyPin>),
    /// Any raw public key, proven by its owner: the application must decide by the
    /// [`PeerIdentity`](crate::PeerIdentity) whether this peer may do anything.
    AnyRawKey,
    /// A raw public key, or a certificate within its dates, whose key is in a list that is asked at
    /// every handshake: keys can be added and removed while the server runs.
    Listed(IdentityKind, Arc<dyn KeyList>),
}

/// Keys of peers that are believed. Asked from within handshakes: must be quick.
pub trait KeyList: fmt::Debug + Send + Sync {
    /// Whether the owner of this key is.
    fn contains(&self, key: &KeyPin) -> bool;
}

impl ClientAuth {
    /// [`ClientAuth::Roots`] from a CA file's contents.
    pub fn roots_from_pem(pem: &[u8]) -> Result<ClientAuth, CertificatesError> {
        certificates_from_pem(pem).map(ClientAuth::Roots)
    }

    /// What the client must present; `None` when nothing.
    pub fn kind(&self) -> Option<IdentityKind> {
        match self {
            ClientAuth::None => None,
            ClientAuth::Roots(_) | ClientAuth::Pinned(_) => Some(IdentityKind::X509),
            ClientAuth::RawKeys(_) | ClientAuth::AnyRawKey => Some(IdentityKind::RawKey),
            ClientAuth::Listed(kind, _) => Some(*kind),
        }
    }
}
