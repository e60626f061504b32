//! TLS of the ends: rustls with the system's roots and the one provider.

use std::io;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

/// TLS 1.3 that trusts what the system trusts.
///
/// # Errors
/// Where the system has no roots, or they cannot be read.
pub fn system_roots() -> io::Result<Arc<ClientConfig>> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "install ca-certificates".to_owned());
        return Err(io::Error::other(format!("the system trusts nobody: {why}")));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
