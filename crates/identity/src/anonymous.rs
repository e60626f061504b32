//! Servers whose clients stay anonymous.
//!
//! A client that has a raw key offers it in its hello (RFC 7250 §4.1), before it can know whether
//! anybody asks for it. rustls's own "no client authentication" refuses such a client, and its
//! clients refuse a server that does not answer the offer. Ours answers as the client would have
//! it, raw key or certificate, and asks for neither.

use std::cell::Cell;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{CertificateType, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

thread_local! {
    /// Whether the hello that is being answered on this thread offers raw keys and nothing else.
    /// Only the resolver is shown a hello; rustls calls it and the verifier within one call. Nothing
    /// else carries it across: all connections share the two, rustls passes no argument from one to
    /// the other, and keeps the verifier of a configuration where no connection can have its own.
    static OFFERS_RAW_KEY: Cell<bool> = const { Cell::new(false) };
}

/// Shows what another resolver has, and looks at what the client offers.
#[derive(Debug)]
pub(crate) struct OfferReader(pub(crate) Arc<dyn ResolvesServerCert>);

impl ResolvesServerCert for OfferReader {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let types = hello.client_cert_types().unwrap_or_default();
        let has = |kind| types.contains(&kind);
        OFFERS_RAW_KEY.set(has(CertificateType::RawPublicKey) && !has(CertificateType::X509));
        self.0.resolve(hello)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.0.only_raw_public_keys()
    }
}

/// Asks for nothing.
#[derive(Debug)]
pub(crate) struct NothingAsked;

impl NothingAsked {
    /// To who proves something all the same.
    fn refuse<T>() -> Result<T, Error> {
        Err(Error::General(
            "a proof of identity that was not asked for".into(),
        ))
    }
}

impl ClientCertVerifier for NothingAsked {
    fn offer_client_auth(&self) -> bool {
        false
    }

    fn requires_raw_public_keys(&self) -> bool {
        OFFERS_RAW_KEY.get()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Self::refuse()
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::refuse()
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::refuse()
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Vec::new()
    }
}
