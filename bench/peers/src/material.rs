//! Certificates from the runner, and rustls configurations for the stacks that take them.

use std::fs;
use std::sync::Arc;

use bench_contract::{ALPN, Aead, Settings};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::Result;

/// The server's chain and its key, PEM.
pub(crate) fn certificate(settings: &Settings) -> Result<(Vec<u8>, Vec<u8>)> {
    let folder = &settings.material;
    Ok((
        fs::read(folder.join("cert.pem"))?,
        fs::read(folder.join("key.pem"))?,
    ))
}

/// The authority that clients believe, PEM.
pub(crate) fn authority(settings: &Settings) -> Result<Vec<u8>> {
    Ok(fs::read(settings.material.join("ca.pem"))?)
}

/// One AEAD, X25519, aws-lc-rs.
fn provider(settings: &Settings) -> Arc<CryptoProvider> {
    let suite = match settings.cipher {
        Aead::Aes128gcm => cipher_suite::TLS13_AES_128_GCM_SHA256,
        Aead::Aes256gcm => cipher_suite::TLS13_AES_256_GCM_SHA384,
        Aead::Chacha20 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    };
    // QUIC's first packets are protected with AES-128 whatever was chosen (RFC 9001 §5.2); the
    // order decides.
    let initial = cipher_suite::TLS13_AES_128_GCM_SHA256;
    let mut cipher_suites = vec![suite];
    if suite != initial {
        cipher_suites.push(initial);
    }
    Arc::new(CryptoProvider {
        cipher_suites,
        kx_groups: vec![kx_group::X25519],
        ..default_provider()
    })
}

/// No tickets: every handshake is a full one.
pub(crate) fn server_tls(settings: &Settings) -> Result<ServerConfig> {
    let (chain, key) = certificate(settings)?;
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>()?;
    let mut tls = ServerConfig::builder_with_provider(provider(settings))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(&key)?)?;
    tls.alpn_protocols = vec![ALPN.into()];
    tls.send_tls13_tickets = 0;
    Ok(tls)
}

/// Verifies the server; resumes nothing.
pub(crate) fn client_tls(settings: &Settings) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&authority(settings)?) {
        roots.add(certificate?)?;
    }
    let mut tls = ClientConfig::builder_with_provider(provider(settings))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.into()];
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(tls)
}
