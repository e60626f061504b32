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
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write("ca.pem", root.pem())?;
    write("cert.pem", leaf.pem())?;
    write("key.pem", leaf_key.serialize_pem())
}
