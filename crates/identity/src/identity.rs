//! Who we are: a certificate chain with its key, or a raw public key.
//!
//! `config` turns it into rustls's resolvers; `generate` makes new ones. Loading checks that the
//! key belongs to the certificate, so that a wrong pair fails at start and not in a handshake.
//! Bytes in, bytes out: no file is touched and `Debug` shows no secret.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;

use crate::error::{CertificatesError, IdentityError};
use crate::pin::{CertificatePin, KeyPin};
use crate::{text, x509};

/// The kind of a peer's proof: one per listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdentityKind {
    /// A certificate chain.
    X509,
    /// A bare public key (RFC 7250).
    RawKey,
}

/// Our own identity; cheap to clone.
#[derive(Clone)]
pub struct Identity {
    inner: Arc<Inner>,
}

struct Inner {
    kind: IdentityKind,
    /// The chain, or the SubjectPublicKeyInfo alone, as rustls wants it.
    certified: Arc<CertifiedKey>,
    key: PrivateKeyDer<'static>,
    spki: Vec<u8>,
}

impl Identity {
    /// An X.509 identity from PEM: the chain, leaf first, and its private key (PKCS #8, SEC1 or
    /// PKCS #1).
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Identity, IdentityError> {
        Identity::from_der(certificates_from_pem(chain)?, key_from_pem(key)?)
    }

    /// An X.509 identity from DER: the chain, leaf first, and its private key.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Identity, IdentityError> {
        let leaf = chain.first().ok_or(CertificatesError::Empty)?;
        let spki = x509::spki(leaf).ok_or(CertificatesError::Unreadable { position: 1 })?;
        let signing = any_supported_type(&key).map_err(|_| IdentityError::UnsupportedKey)?;
        let public = signing.public_key().ok_or(IdentityError::UnsupportedKey)?;
        if public.as_ref() != spki {
            return Err(IdentityError::KeyMismatch);
        }
        Ok(Identity {
            inner: Arc::new(Inner {
                kind: IdentityKind::X509,
                certified: Arc::new(CertifiedKey::new(chain, signing)),
                key,
                spki,
            }),
        })
    }

    /// A raw public key identity from a private key in PEM.
    pub fn raw_key_from_pem(key: &[u8]) -> Result<Identity, IdentityError> {
        Identity::raw_key_from_der(key_from_pem(key)?)
    }

    /// A raw public key identity from a private key in DER.
    pub fn raw_key_from_der(key: PrivateKeyDer<'static>) -> Result<Identity, IdentityError> {
        let signing = any_supported_type(&key).map_err(|_| IdentityError::UnsupportedKey)?;
        let public = signing.public_key().ok_or(IdentityError::UnsupportedKey)?;
        let spki = public.as_ref().to_vec();
        let chain = vec![CertificateDer::from(spki.clone())];
        Ok(Identity {
            inner: Arc::new(Inner {
                kind: IdentityKind::RawKey,
                certified: Arc::new(CertifiedKey::new(chain, signing)),
                key,
                spki,
            }),
        })
    }

    /// Certificate chain or raw key.
    pub fn kind(&self) -> IdentityKind {
        self.inner.kind
    }

    /// The chain, leaf first; empty for a raw key.
    pub fn certificate_chain(&self) -> &[CertificateDer<'static>] {
        match self.inner.kind {
            IdentityKind::X509 => &self.inner.certified.cert,
            IdentityKind::RawKey => &[],
        }
    }

    /// First and last second of the leaf; `None` for a raw key.
    pub fn validity(&self) -> Option<(UnixTime, UnixTime)> {
        x509::validity(self.certificate_chain().first()?)
    }

    /// SubjectPublicKeyInfo of our key, DER: what a raw key peer sees.
    pub fn spki(&self) -> &[u8] {
        &self.inner.spki
    }

    /// The pin of the leaf; `None` for a raw key.
    pub fn certificate_pin(&self) -> Option<CertificatePin> {
        self.certificate_chain()
            .first()
            .map(|leaf| CertificatePin::of(leaf))
    }

    /// The pin of the public key, for both kinds.
    pub fn key_pin(&self) -> KeyPin {
        KeyPin::of(&self.inner.spki)
    }

    /// The chain as PEM, leaf first; `None` for a raw key.
    pub fn certificate_pem(&self) -> Option<String> {
        let chain = self.certificate_chain();
        if chain.is_empty() {
            return None;
        }
        Some(
            chain
                .iter()
                .map(|der| text::pem("CERTIFICATE", der))
                .collect(),
        )
    }

    /// The public key as PEM (`PUBLIC KEY`).
    pub fn public_key_pem(&self) -> String {
        text::pem("PUBLIC KEY", &self.inner.spki)
    }

    /// The private key as PEM. Secret: write it only where its owner alone can read.
    pub fn private_key_pem(&self) -> String {
        let label = match &self.inner.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        text::pem(label, self.inner.key.secret_der())
    }

    /// The private key as DER. Secret.
    pub fn private_key_der(&self) -> PrivateKeyDer<'static> {
        self.inner.key.clone_key()
    }

    /// Chain and signer, as rustls's resolvers take them.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.inner.certified.clone()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Identity")
            .field("kind", &self.inner.kind)
            .field("key_pin", &self.key_pin())
            .finish_non_exhaustive()
    }
}

/// All certificates of a PEM text, each checked to be X.509; other sections are passed over.
pub fn certificates_from_pem(
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
    let mut certificates = Vec::new();
    for section in CertificateDer::pem_slice_iter(pem) {
        let der = section.map_err(|error| CertificatesError::Pem(error.to_string()))?;
        certificates.push(der);
        if certificates
            .last()
            .and_then(|der| x509::parse(der))
            .is_none()
        {
            return Err(CertificatesError::Unreadable {
                position: certificates.len(),
            });
        }
    }
    if certificates.is_empty() {
        return Err(CertificatesError::Empty);
    }
    Ok(certificates)
}

fn key_from_pem(pem: &[u8]) -> Result<PrivateKeyDer<'static>, IdentityError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| IdentityError::NoPrivateKey)
}

#[cfg(test)]
mod tests;
