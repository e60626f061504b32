//! Ready client and server configurations for a test of two endpoints.
//!
//! One call gives both sides: TLS 1.3 only, one Ed25519 leaf that the client trusts, one clock
//! that the test can move. It knows neither sockets nor QUIC.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ServerSessionMemoryCache;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};

use crate::clock::FixedTime;
use crate::key_exchange::{HYBRID, X25519};
use crate::leaf::ed25519_leaf;
use crate::provider;

/// The name in the pair's certificate, for `connect`.
pub const SERVER_NAME: &str = "server.test";

/// Sessions that a pair's client and server remember.
const SESSIONS: usize = 256;

/// The AEAD of a pair; the only one its provider holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256.
    #[default]
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384.
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256. Initial packets use AES-128-GCM all the same (RFC 9001 §5.2).
    ChaCha20,
}

impl Cipher {
    fn suite(self) -> SupportedCipherSuite {
        match self {
            Cipher::Aes128Gcm => TLS13_AES_128_GCM_SHA256,
            Cipher::Aes256Gcm => TLS13_AES_256_GCM_SHA384,
            Cipher::ChaCha20 => TLS13_CHACHA20_POLY1305_SHA256,
        }
    }
}

/// What [`tls_pair`] makes. Write `TlsOptions { post_quantum: true, ..TlsOptions::default() }`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsOptions {
    /// Protocols of both sides, best first. Default: `towline-test`.
    pub alpn: Vec<Vec<u8>>,
    /// The only AEAD offered. Default: AES-128-GCM.
    pub cipher: Cipher,
    /// Key shares of the size of X25519MLKEM768 first, so that a client's first flight fills two
    /// datagrams. Default: X25519 alone.
    pub post_quantum: bool,
    /// The server asks for another group than the client's first (HelloRetryRequest). Default: no.
    pub hello_retry: bool,
    /// The server's tickets allow 0-RTT, and the client uses it. Default: no.
    pub early_data: bool,
    /// Names in the certificate. Default: [`SERVER_NAME`], `127.0.0.1`, `::1`.
    pub names: Vec<String>,
    /// Packets stay plaintext; `cipher` is then ignored. Default: no.
    #[cfg(any(test, fuzzing, debug_assertions))]
    pub null_aead: bool,
}

impl Default for TlsOptions {
    fn default() -> TlsOptions {
        TlsOptions {
            alpn: vec![b"towline-test".to_vec()],
            cipher: Cipher::default(),
            post_quantum: false,
            hello_retry: false,
            early_data: false,
            names: [SERVER_NAME, "127.0.0.1", "::1"]
                .map(str::to_owned)
                .to_vec(),
            #[cfg(any(test, fuzzing, debug_assertions))]
            null_aead: false,
        }
    }
}

/// Both sides of a test. Fields can be cloned out and changed (`rustls`'s configs are `Clone`).
#[derive(Clone, Debug)]
pub struct TlsPair {
    /// Trusts `certificate` and nothing else; sends SNI; keeps tickets in memory.
    pub client: Arc<ClientConfig>,
    /// Presents `certificate`; keeps sessions in memory (no self-encrypted tickets).
    pub server: Arc<ServerConfig>,
    /// A name that the certificate holds: the first of `TlsOptions::names`.
    pub server_name: ServerName<'static>,
    /// The server's self-signed Ed25519 leaf.
    pub certificate: CertificateDer<'static>,
    /// The wall clock of both sides.
    pub clock: Arc<FixedTime>,
}

/// Makes both configurations from `seed` and starts this thread's random stream from it.
///
/// The same seed and options give the same handshake, byte for byte, when the calls into rustls
/// come in the same order on one thread. Costs two signatures of CPU time and leaks nothing.
///
/// # Panics
/// When a name in `options` is not a DNS name or IP address.
pub fn tls_pair(seed: u64, options: &TlsOptions) -> TlsPair {
    let clock = Arc::new(FixedTime::default());
    let names: Vec<&str> = options.names.iter().map(String::as_str).collect();
    let leaf = ed25519_leaf(seed, &names);
    let server_name = names.first().copied().unwrap_or(SERVER_NAME).to_owned();

    let mut roots = RootCertStore::empty();
    roots
        .add(leaf.certificate.clone())
        .expect("a leaf made here parses");

    let (client_provider, server_provider) = providers(seed, options);
    let mut client = ClientConfig::builder_with_details(client_provider, clock.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has a TLS 1.3 suite")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = options.alpn.clone();
    client.resumption = Resumption::in_memory_sessions(SESSIONS);
    client.enable_early_data = options.early_data;

    let mut server = ServerConfig::builder_with_details(server_provider, clock.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has a TLS 1.3 suite")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.certificate.clone()], leaf.private_key())
        .expect("key and certificate were made together");
    server.alpn_protocols = options.alpn.clone();
    server.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    // RFC 9001 §4.6.1: QUIC knows only these two values.
    server.max_early_data_size = if options.early_data { u32::MAX } else { 0 };

    TlsPair {
        client: Arc::new(client),
        server: Arc::new(server),
        server_name: ServerName::try_from(server_name).expect("test names are DNS names or IPs"),
        certificate: leaf.certificate,
        clock,
    }
}

/// The client's and the server's provider; they differ only for a HelloRetryRequest.
fn providers(seed: u64, options: &TlsOptions) -> (Arc<CryptoProvider>, Arc<CryptoProvider>) {
    let mut client = provider::seeded_provider(seed);
    client.cipher_suites = vec![suite(options)];
    client.kx_groups = match (options.post_quantum, options.hello_retry) {
        (false, false) => vec![X25519],
        (true, false) => vec![HYBRID, X25519],
        // Only the first group's share is sent; the server then insists on the second.
        (_, true) => vec![X25519, HYBRID],
    };
    let mut server = client.clone();
    if options.hello_retry {
        server.kx_groups = vec![HYBRID];
    }
    (Arc::new(client), Arc::new(server))
}

fn suite(options: &TlsOptions) -> SupportedCipherSuite {
    #[cfg(any(test, fuzzing, debug_assertions))]
    if options.null_aead {
        return crate::null_aead::suite();
    }
    options.cipher.suite()
}

#[cfg(test)]
mod tests;
