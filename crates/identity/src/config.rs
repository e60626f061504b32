//! rustls configurations, for both sides.
//!
//! `towline`'s and the lab's set-up code calls [`client_config`] and [`server_config`]; the
//! results go to `quic` and `stcp` as they are. TLS 1.3 only. Tickets are kept in memory and never
//! self-encrypted: rustls gives 0-RTT with stored sessions only, and its ticketer has its own
//! clock and generator.

use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ResolvesServerCert,
    ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, KeyLog, NoKeyLog, RootCertStore, ServerConfig};

use crate::anonymous::{NothingAsked, OfferReader};
use crate::certificates::{Certificates, CertificatesByName};
use crate::error::ConfigError;
use crate::identity::{Identity, IdentityKind};
use crate::renewal::{Renewal, RenewingCertificate};
use crate::trust::{ClientAuth, Trust};
use crate::verify::{Policy, PolicyVerifier};

/// Sessions remembered unless the caller says otherwise; one takes about 1 kB.
const DEFAULT_SESSIONS: usize = 256;

/// Whether later connections may resume earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// Every handshake is a full one, and every peer is verified anew.
    Disabled,
    /// Sessions are kept in memory. A resumed session keeps the identity that was verified when it
    /// began; its certificate is not looked at again.
    InMemory {
        /// A server's sessions, or a client's server names, before the oldest is dropped.
        sessions: usize,
    },
}

impl Default for Resumption {
    fn default() -> Resumption {
        Resumption::InMemory {
            sessions: DEFAULT_SESSIONS,
        }
    }
}

/// What both sides need besides identity and trust.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Ciphers, groups and randomness; see [`provider`](crate::provider()).
    pub provider: Arc<CryptoProvider>,
    /// The wall clock for certificate dates and ticket ages.
    pub time: Arc<dyn TimeProvider>,
    /// Protocols, best first; empty for none (QUIC wants at least one, RFC 9001 §8.1).
    pub alpn: Vec<Vec<u8>>,
    /// Where secrets are logged for traffic analysis; nowhere by default.
    pub key_log: Arc<dyn KeyLog>,
    /// In memory, 256 sessions, by default.
    pub resumption: Resumption,
    /// 0-RTT: a server's tickets allow it, a client tries it. Off by default.
    pub early_data: bool,
}

impl TlsSettings {
    /// The defaults, over the given provider and clock.
    pub fn new(provider: Arc<CryptoProvider>, time: Arc<dyn TimeProvider>) -> TlsSettings {
        TlsSettings {
            provider,
            time,
            alpn: Vec::new(),
            key_log: Arc::new(NoKeyLog),
            resumption: Resumption::default(),
            early_data: false,
        }
    }

    /// Sets the field `alpn`.
    #[must_use]
    pub fn alpn(mut self, alpn: Vec<Vec<u8>>) -> TlsSettings {
        self.alpn = alpn;
        self
    }

    /// Sets the field `key_log`.
    #[must_use]
    pub fn key_log(mut self, key_log: Arc<dyn KeyLog>) -> TlsSettings {
        self.key_log = key_log;
        self
    }

    /// Sets the field `resumption`.
    #[must_use]
    pub fn resumption(mut self, resumption: Resumption) -> TlsSettings {
        self.resumption = resumption;
        self
    }

    /// Sets the field `early_data`.
    #[must_use]
    pub fn early_data(mut self, early_data: bool) -> TlsSettings {
        self.early_data = early_data;
        self
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.early_data && self.resumption == Resumption::Disabled {
            return Err(ConfigError::EarlyDataWithoutResumption);
        }
        let bad = |protocol: &Vec<u8>| !(1..=255).contains(&protocol.len());
        match self.alpn.iter().position(bad) {
            Some(index) => Err(ConfigError::BadAlpn {
                position: index + 1,
            }),
            None => Ok(()),
        }
    }
}

/// A client that believes servers by `trust` and shows `identity` to servers that ask.
/// The server is authenticated and a protocol agreed on (RFC 9000 §7, RFC 9001 §4.4); rustls uses a
/// ticket once (RFC 9001 §4.5).
pub fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
    settings: &TlsSettings,
) -> Result<ClientConfig, ConfigError> {
    settings.check()?;
    if identity.is_some_and(|identity| identity.kind() != trust.kind()) {
        return Err(ConfigError::MixedKinds);
    }
    let builder =
        ClientConfig::builder_with_details(settings.provider.clone(), settings.time.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(ConfigError::Provider)?;
    let builder = match trust {
        Trust::Roots(roots) => webpki_servers(builder, strict_roots(roots)?, settings)?,
        Trust::SystemRoots(roots) => webpki_servers(builder, lenient_roots(roots)?, settings)?,
        Trust::Pinned(pins) => policy_servers(builder, Policy::Pinned(some_pins(pins)?), settings),
        Trust::RawKeys(pins) => {
            policy_servers(builder, Policy::RawKeys(some_pins(pins)?), settings)
        }
        Trust::InsecureAcceptAnyCertificate => {
            policy_servers(builder, Policy::AnyCertificate, settings)
        }
        Trust::InsecureAcceptAnyRawKey => policy_servers(builder, Policy::AnyRawKey, settings),
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => match identity.kind() {
            IdentityKind::X509 => builder
                .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified()))),
            IdentityKind::RawKey => builder.with_client_cert_resolver(Arc::new(
                AlwaysResolvesClientRawPublicKeys::new(identity.certified()),
            )),
        },
    };
    config.alpn_protocols = settings.alpn.clone();
    config.key_log = settings.key_log.clone();
    config.resumption = match settings.resumption {
        Resumption::Disabled => rustls::client::Resumption::disabled(),
        Resumption::InMemory { sessions } => {
            rustls::client::Resumption::in_memory_sessions(sessions)
        }
    };
    config.enable_early_data = settings.early_data;
    Ok(config)
}

/// A server that shows `identity` and believes clients by `client_auth`.
pub fn server_config(
    identity: &Identity,
    client_auth: &ClientAuth,
    settings: &TlsSettings,
) -> Result<ServerConfig, ConfigError> {
    let resolver: Arc<dyn ResolvesServerCert> = match identity.kind() {
        IdentityKind::X509 => Arc::new(SingleCertAndKey::from(identity.certified())),
        IdentityKind::RawKey => {
            Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.certified()))
        }
    };
    server_with(identity.kind(), resolver, client_auth, settings)
}

/// As [`server_config`], with a self-signed certificate that is made anew before it ends, for as
/// long as the server runs.
pub fn renewing_server_config(
    identity: &Identity,
    renewal: Renewal,
    client_auth: &ClientAuth,
    settings: &TlsSettings,
) -> Result<ServerConfig, ConfigError> {
    if identity.kind() != IdentityKind::X509 {
        return Err(ConfigError::MixedKinds);
    }
    let resolver = RenewingCertificate::new(identity, renewal, settings.time.clone());
    server_with(
        IdentityKind::X509,
        Arc::new(resolver),
        client_auth,
        settings,
    )
}

/// As [`server_config`], with several certificates, which can be replaced while the server runs.
pub fn certificates_server_config(
    certificates: &Certificates,
    client_auth: &ClientAuth,
    settings: &TlsSettings,
) -> Result<ServerConfig, ConfigError> {
    let resolver = CertificatesByName {
        certificates: certificates.clone(),
        time: settings.time.clone(),
    };
    server_with(
        IdentityKind::X509,
        Arc::new(resolver),
        client_auth,
        settings,
    )
}

fn server_with(
    kind: IdentityKind,
    mut resolver: Arc<dyn ResolvesServerCert>,
    client_auth: &ClientAuth,
    settings: &TlsSettings,
) -> Result<ServerConfig, ConfigError> {
    settings.check()?;
    if client_auth.kind().is_some_and(|clients| clients != kind) {
        return Err(ConfigError::MixedKinds);
    }
    let verifier = client_verifier(client_auth, settings)?;
    let builder =
        ServerConfig::builder_with_details(settings.provider.clone(), settings.time.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(ConfigError::Provider)?
            .with_client_cert_verifier(verifier);
    if matches!(client_auth, ClientAuth::None) {
        resolver = Arc::new(OfferReader(resolver));
    }
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = settings.alpn.clone();
    config.key_log = settings.key_log.clone();
    match settings.resumption {
        Resumption::Disabled => {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Resumption::InMemory { sessions } => {
            config.session_storage = ServerSessionMemoryCache::new(sessions);
        }
    }
    // RFC 9001 §4.6.1: in QUIC the only sizes are these.
    config.max_early_data_size = if settings.early_data { u32::MAX } else { 0 };
    Ok(config)
}

type NeedsClientIdentity = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;
type NeedsVerifier = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

fn webpki_servers(
    builder: NeedsVerifier,
    roots: RootCertStore,
    settings: &TlsSettings,
) -> Result<NeedsClientIdentity, ConfigError> {
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), settings.provider.clone())
            .build()
            .map_err(|error| ConfigError::Verifier(error.to_string()))?;
    Ok(builder.with_webpki_verifier(verifier))
}

fn policy_servers(
    builder: NeedsVerifier,
    policy: Policy,
    settings: &TlsSettings,
) -> NeedsClientIdentity {
    let algorithms = settings.provider.signature_verification_algorithms;
    builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PolicyVerifier::new(policy, algorithms)))
}

fn client_verifier(
    client_auth: &ClientAuth,
    settings: &TlsSettings,
) -> Result<Arc<dyn ClientCertVerifier>, ConfigError> {
    let policy = match client_auth {
        ClientAuth::None => return Ok(Arc::new(NothingAsked)),
        ClientAuth::Roots(roots) => {
            let roots = Arc::new(strict_roots(roots)?);
            return WebPkiClientVerifier::builder_with_provider(roots, settings.provider.clone())
                .build()
                .map_err(|error| ConfigError::Verifier(error.to_string()));
        }
        ClientAuth::Pinned(pins) => Policy::Pinned(some_pins(pins)?),
        ClientAuth::RawKeys(pins) => Policy::RawKeys(some_pins(pins)?),
        ClientAuth::AnyRawKey => Policy::AnyRawKey,
        ClientAuth::Listed(kind, list) => Policy::Listed(*kind, Arc::clone(list)),
    };
    let algorithms = settings.provider.signature_verification_algorithms;
    Ok(Arc::new(PolicyVerifier::new(policy, algorithms)))
}

fn strict_roots(roots: &[CertificateDer<'static>]) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    for (index, root) in roots.iter().enumerate() {
        store.add(root.clone()).map_err(|_| ConfigError::BadRoot {
            position: index + 1,
        })?;
    }
    some_roots(store)
}

fn lenient_roots(roots: &[CertificateDer<'static>]) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    some_roots(store)
}

fn some_roots(store: RootCertStore) -> Result<RootCertStore, ConfigError> {
    if store.is_empty() {
        return Err(ConfigError::NoRoots);
    }
    Ok(store)
}

fn some_pins<T: Clone>(pins: &[T]) -> Result<Vec<T>, ConfigError> {
    if pins.is_empty() {
        return Err(ConfigError::NoPins);
    }
    Ok(pins.to_vec())
}

#[cfg(test)]
mod tests;
