//! Certificates for the drivers.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

use crate::Outcome;

/// An authority and a P-256 certificate for `localhost`, made anew for each run: `ca.pem`,
/// `cert.pem` and `key.pem` in `folder`.
///
/// # Errors
/// They cannot be made or written.
pub fn make_material(folder: &Path) -> Outcome {
    let failed = |error: rcgen::Error| format!("no certificate could be made: {error}");
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed);
    let mut authority = CertificateParams::default();
    // OpenSSL takes a certificate whose subject is its issuer's for self-signed.
    authority
        .distinguished_name
        .push(DnType::CommonName, "bench authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = key()?;
    let root = authority.self_signed(&authority_key).map_err(failed)?;
    let issuer = Issuer::new(authority, authority_key);
    let mut leaf =
        CertificateParams::new(vec![bench_contract::SERVER_NAME.to_owned()]).map_err(failed)?;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf_key = key()?;
    let leaf = leaf.signed_by(&leaf_key, &issuer).map_err(failed)?;
    write(folder, "ca.pem", root.pem())?;
    write(folder, "cert.pem", leaf.pem())?;
    write(folder, "key.pem", leaf_key.serialize_pem())
}

/// A certificate of P-256 that is its own authority, for `localhost` and 127.0.0.1, made anew for each run and
/// fit to be believed by its hash, as browsers do: valid for ten days. `cert.pem` and `key.pem` in `folder`.
///
/// # Errors
/// They cannot be made or written.
pub fn make_pinned(folder: &Path) -> Outcome {
    let failed = |error: rcgen::Error| format!("no certificate could be made: {error}");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let names = vec![
        bench_contract::SERVER_NAME.to_owned(),
        "127.0.0.1".to_owned(),
    ];
    let mut leaf = CertificateParams::new(names).map_err(failed)?;
    let now = time::OffsetDateTime::now_utc();
    leaf.not_before = now - time::Duration::hours(1);
    leaf.not_after = now + time::Duration::days(10);
    let leaf = leaf.self_signed(&key).map_err(failed)?;
    write(folder, "cert.pem", leaf.pem())?;
    write(folder, "key.pem", key.serialize_pem())
}

fn write(folder: &Path, name: &str, text: String) -> Outcome {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| failed(&path, error))
}
