//! Configurations of both sides, with the wall clock and the environment's key log.

use towline_identity::{ClientAuth, ConfigError, Identity, TlsSettings, Trust};
use towline_stcp::{Alpn, ClientConfig, Records, ServerConfig};

use crate::config::{
    CipherPreference, KeyExchangePreference, KeyLogging, Resumption, tls_settings,
    warn_of_blind_trust,
};
use crate::setters::setters;

/// What both sides may choose.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Ciphers, best first.
    pub ciphers: CipherPreference,
    /// Key exchange groups, best first.
    pub key_exchanges: KeyExchangePreference,
    /// Session resumption.
    pub resumption: Resumption,
    /// Logging of TLS secrets.
    pub key_log: KeyLogging,
    /// Whether both sides have to name the application protocol.
    pub alpn: Alpn,
    /// Who makes the records that are sent.
    pub records: Records,
}

impl Options {
    setters! {
        ciphers: CipherPreference,
        key_exchanges: KeyExchangePreference,
        resumption: Resumption,
        key_log: KeyLogging,
        alpn: Alpn,
        records: Records,
    }

    fn tls(&self) -> TlsSettings {
        tls_settings(
            &self.ciphers,
            &self.key_exchanges,
            self.resumption,
            &self.key_log,
        )
    }
}

/// A client's configuration: believes servers by `trust`, shows `identity` to those that ask.
///
/// # Errors
/// When trust, identity and options do not fit together.
pub fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
    options: &Options,
) -> Result<ClientConfig, ConfigError> {
    warn_of_blind_trust(trust);
    ClientConfig::new(
        trust,
        identity,
        options.alpn,
        options.records,
        &options.tls(),
    )
}

/// A server's configuration: shows `identity`, believes clients by `client_auth`.
///
/// # Errors
/// When identity, client authentication and options do not fit together.
pub fn server_config(
    identity: &Identity,
    client_auth: &ClientAuth,
    options: &Options,
) -> Result<ServerConfig, ConfigError> {
    ServerConfig::new(
        identity,
        client_auth,
        options.alpn,
        options.records,
        &options.tls(),
    )
}
