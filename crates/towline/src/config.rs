//! Ready configurations for endpoints from who we are, whom we believe and a few options.
//!
//! Joins `identity` (TLS) and the engine's transport settings, and supplies what those
//! may not have: the wall clock and the environment (`SSLKEYLOGFILE`). Called by
//! applications and by the command line; reads no other file.

use std::sync::{Arc, Once, OnceLock};

use rustls::time_provider::DefaultTimeProvider;
use rustls::{KeyLog, KeyLogFile, NoKeyLog};
use towline_identity as identity;

use crate::setters::setters;

pub use towline_identity::{
    CertificateList, Certificates, Cipher, CipherPreference, ClientAuth, ConfigError, Identity,
    KeyExchange, KeyExchangePreference, KeyList, Renewal, Resumption, Rotation, Trust, UnixTime,
};
pub use towline_quic::{
    BandwidthShare, ClientConfig, ControllerFactory, InvalidTransport, MAX_INITIAL_RTT, MAX_MTU,
    MIN_INITIAL_RTT, MIN_MTU, RetryPolicy, ServerConfig, TransportConfig,
};

/// The environment variable that names a file for TLS secrets, as Wireshark and curl know it.
pub const KEY_LOG_VARIABLE: &str = "SSLKEYLOGFILE";

/// Where TLS secrets go, for decrypting captured traffic.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum KeyLogging {
    /// To the file named by [`KEY_LOG_VARIABLE`], if it is set; says so loudly.
    #[default]
    FromEnvironment,
    /// Nowhere, whatever the environment says.
    Off,
    /// To this log.
    To(Arc<dyn KeyLog>),
}

/// What both sides may choose.
///
/// ```
/// # use towline::config::{Options, Resumption, TransportConfig};
/// let options = Options::new("chat")
///     .resumption(Resumption::Disabled)
///     .transport(TransportConfig::default().max_concurrent_uni_streams(10));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Application protocols, best first. QUIC wants at least one (RFC 9001 §8.1).
    pub alpn: Vec<Vec<u8>>,
    /// Ciphers, best first.
    pub ciphers: CipherPreference,
    /// Key exchange groups, best first.
    pub key_exchanges: KeyExchangePreference,
    /// Session resumption.
    pub resumption: Resumption,
    /// Logging of TLS secrets.
    pub key_log: KeyLogging,
    /// Windows, timeouts, congestion control.
    pub transport: TransportConfig,
}

impl Options {
    /// Defaults with one application protocol.
    pub fn new(alpn: impl Into<Vec<u8>>) -> Self {
        Self {
            alpn: vec![alpn.into()],
            ..Self::default()
        }
    }

    setters! {
        alpn: Vec<Vec<u8>>,
        ciphers: CipherPreference,
        key_exchanges: KeyExchangePreference,
        resumption: Resumption,
        key_log: KeyLogging,
        transport: TransportConfig,
    }

    fn tls(&self) -> identity::TlsSettings {
        let mut settings = tls_settings(
            &self.ciphers,
            &self.key_exchanges,
            self.resumption,
            &self.key_log,
        );
        settings.alpn.clone_from(&self.alpn);
        settings
    }
}

/// TLS settings with the wall clock, and with the environment's key log if that is asked for.
pub(crate) fn tls_settings(
    ciphers: &CipherPreference,
    key_exchanges: &KeyExchangePreference,
    resumption: Resumption,
    key_log: &KeyLogging,
) -> identity::TlsSettings {
    let provider = identity::provider(ciphers, key_exchanges);
    let mut settings =
        identity::TlsSettings::new(Arc::new(provider), Arc::new(DefaultTimeProvider));
    settings.resumption = resumption;
    settings.key_log = match key_log {
        KeyLogging::Off => Arc::new(NoKeyLog),
        KeyLogging::To(log) => Arc::clone(log),
        KeyLogging::FromEnvironment => environment_key_log(),
    };
    settings
}

/// Says so where servers are believed without proof.
pub(crate) fn warn_of_blind_trust(trust: &Trust) {
    if matches!(
        trust,
        Trust::InsecureAcceptAnyCertificate | Trust::InsecureAcceptAnyRawKey
    ) {
        tracing::warn!(
            "servers are believed without proof: whoever sits on the path can read and change everything"
        );
    }
}

/// A client's configuration: believes servers by `trust`, shows `identity` to those that ask.
///
/// # Errors
/// When trust, identity and options do not fit together.
pub fn client(
    trust: &Trust,
    identity: Option<&Identity>,
    options: &Options,
) -> Result<ClientConfig, ConfigError> {
    warn_of_blind_trust(trust);
    let tls = identity::client_config(trust, identity, &options.tls())?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport = Arc::new(options.transport.clone());
    Ok(config)
}

/// A server's configuration: shows `identity`, believes clients by `client_auth`.
///
/// # Errors
/// When identity, client authentication and options do not fit together.
pub fn server(
    identity: &Identity,
    client_auth: &ClientAuth,
    options: &Options,
) -> Result<ServerConfig, ConfigError> {
    let tls = identity::server_config(identity, client_auth, &options.tls())?;
    let mut config = ServerConfig::new(Arc::new(tls));
    config.transport = Arc::new(options.transport.clone());
    Ok(config)
}

/// As [`server`], with a self-signed certificate that is made anew, under the same key, before it
/// ends.
///
/// # Errors
/// When identity, client authentication and options do not fit together.
pub fn renewing_server(
    identity: &Identity,
    renewal: Renewal,
    client_auth: &ClientAuth,
    options: &Options,
) -> Result<ServerConfig, ConfigError> {
    let tls = identity::renewing_server_config(identity, renewal, client_auth, &options.tls())?;
    let mut config = ServerConfig::new(Arc::new(tls));
    config.transport = Arc::new(options.transport.clone());
    Ok(config)
}

/// As [`server`], with several certificates: by the name a client asks for, and by date. They can be
/// replaced while the server runs.
///
/// ```
/// # use towline::config::{self, CertificateList, Certificates, ClientAuth, Identity, Options};
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let now = config::unix_now();
/// let today = Identity::generate_dev(&["boat.example"], now)?;
/// let certificates = Certificates::new(today.clone())?;
/// let auth = ClientAuth::None;
/// let server = config::server_with_certificates(&certificates, &auth, &Options::new("chat"))?;
/// // A week later, when clients have the pin of the next one as well:
/// let next = Identity::generate_dev(&["boat.example"], now)?;
/// certificates.set(CertificateList::new([today, next]))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When client authentication and options do not fit together.
pub fn server_with_certificates(
    certificates: &Certificates,
    client_auth: &ClientAuth,
    options: &Options,
) -> Result<ServerConfig, ConfigError> {
    let tls = identity::certificates_server_config(certificates, client_auth, &options.tls())?;
    let mut config = ServerConfig::new(Arc::new(tls));
    config.transport = Arc::new(options.transport.clone());
    Ok(config)
}

/// The wall clock, for certificate dates.
pub fn unix_now() -> UnixTime {
    UnixTime::now()
}

/// The log of the whole process: one file, opened once, so that lines never interleave.
fn environment_key_log() -> Arc<dyn KeyLog> {
    static LOG: OnceLock<Arc<KeyLogFile>> = OnceLock::new();
    static WARNING: Once = Once::new();
    let Some(path) = std::env::var_os(KEY_LOG_VARIABLE).filter(|path| !path.is_empty()) else {
        return Arc::new(NoKeyLog);
    };
    WARNING.call_once(|| {
        tracing::warn!(
            path = %path.display(),
            "{KEY_LOG_VARIABLE} is set: TLS secrets are written to that file; whoever reads it can decrypt this traffic"
        );
    });
    let log = LOG.get_or_init(|| Arc::new(KeyLogFile::new()));
    Arc::clone(log) as Arc<dyn KeyLog>
}
