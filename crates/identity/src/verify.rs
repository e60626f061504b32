//! The rustls verifiers behind pins, raw keys and "anyone".
//!
//! `config` makes them. One type serves both directions, since the question is the same: is the
//! presented element one that the policy names? The handshake signature is checked under every
//! policy, the insecure ones too, so the peer always owns the key it shows. Chains to roots are
//! webpki's business and do not pass here.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, SignatureScheme,
};

use crate::error::{Expected, PeerRejected};
use crate::identity::IdentityKind;
use crate::pin::{CertificatePin, KeyPin, Pin};
use crate::trust::KeyList;
use crate::x509;

/// Whom to let pass.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// A certificate with one of these pins, within its dates.
    Pinned(Vec<Pin>),
    /// A raw public key with one of these pins.
    RawKeys(Vec<KeyPin>),
    /// Any certificate.
    AnyCertificate,
    /// Any raw public key.
    AnyRawKey,
    /// A key of this kind that is in the list; a certificate within its dates.
    Listed(IdentityKind, Arc<dyn KeyList>),
}

/// A verifier of servers or clients that follows one [`Policy`].
#[derive(Debug)]
pub(crate) struct PolicyVerifier {
    policy: Policy,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PolicyVerifier {
    pub(crate) fn new(policy: Policy, algorithms: WebPkiSupportedAlgorithms) -> PolicyVerifier {
        PolicyVerifier { policy, algorithms }
    }

    fn raw_keys(&self) -> bool {
        matches!(
            self.policy,
            Policy::RawKeys(_) | Policy::AnyRawKey | Policy::Listed(IdentityKind::RawKey, _)
        )
    }

    fn check(&self, presented: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        match &self.policy {
            Policy::Pinned(pins) => {
                let expected = Expected::of(pins.iter().copied());
                check_certificate(presented, now, expected, |certificate, key| {
                    pins.iter().any(|pin| match pin {
                        Pin::Certificate(pin) => *pin == certificate,
                        Pin::Key(pin) => *pin == key,
                    })
                })
            }
            Policy::Listed(IdentityKind::X509, list) => {
                check_certificate(presented, now, None, |_, key| list.contains(&key))
            }
            Policy::Listed(IdentityKind::RawKey, list) => {
                let key = KeyPin::of(presented);
                match list.contains(&key) {
                    true => Ok(()),
                    false => Err(rejected(PeerRejected::KeyNotPinned {
                        expected: None,
                        key,
                    })),
                }
            }
            Policy::RawKeys(pins) => {
                let key = KeyPin::of(presented);
                if pins.contains(&key) {
                    return Ok(());
                }
                let expected = Expected::of(pins.iter().copied().map(Pin::Key));
                Err(rejected(PeerRejected::KeyNotPinned { expected, key }))
            }
            Policy::AnyCertificate | Policy::AnyRawKey => Ok(()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.raw_keys() {
            let key = SubjectPublicKeyInfoDer::from(presented.as_ref());
            return verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms);
        }
        verify_tls13_signature(message, presented, signature, &self.algorithms)
    }
}

fn check_certificate(
    presented: &CertificateDer<'_>,
    now: UnixTime,
    expected: Option<Expected>,
    is_named: impl Fn(CertificatePin, KeyPin) -> bool,
) -> Result<(), Error> {
    let certificate = CertificatePin::of(presented);
    let dates = x509::parse(presented).ok_or(CertificateError::BadEncoding)?;
    let key = x509::spki(presented).ok_or(CertificateError::BadEncoding)?;
    let key = KeyPin::of(&key);
    if !is_named(certificate, key) {
        return Err(rejected(PeerRejected::CertificateNotPinned {
            expected,
            certificate,
            key,
        }));
    }
    if now < dates.not_before {
        return Err(Error::from(CertificateError::NotValidYetContext {
            time: now,
            not_before: dates.not_before,
        }));
    }
    if now > dates.not_after {
        return Err(Error::from(CertificateError::ExpiredContext {
            time: now,
            not_after: dates.not_after,
        }));
    }
    Ok(())
}

fn rejected(why: PeerRejected) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

/// TLS 1.2 is never negotiated: every configuration of this crate names TLS 1.3 alone.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
}

impl ServerCertVerifier for PolicyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, now)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.raw_keys()
    }
}

impl ClientCertVerifier for PolicyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, now)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.raw_keys()
    }
}
