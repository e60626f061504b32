//! New keys and self-signed certificates.
//!
//! The command line and `towline` call these; dates come in as arguments. P-256 for certificates
//! that browsers pin by hash, which must not outlive 14 days; Ed25519 for our own peers.

use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

use crate::error::GenerateError;
use crate::identity::Identity;

/// From not_before to not_after of [`Identity::generate_dev`]: browsers refuse a pinned
/// certificate of more than 14 days, and both ends of the period count (W3C WebTransport,
/// "custom certificate requirements").
pub const DEV_LIFETIME: Duration = Duration::from_secs(14 * 86_400 - 1);

/// Certificates start this long before `now`, for peers whose clock is slow.
pub const BACKDATED_BY: Duration = Duration::from_secs(3600);

/// 9999-12-31T23:59:59Z, the last date of X.509 (RFC 5280 §4.1.2.5).
const LAST_SECOND: u64 = 253_402_300_799;

impl Identity {
    /// A self-signed P-256 certificate for `names` (DNS names, `*.` allowed, or IP addresses),
    /// valid for [`DEV_LIFETIME`] from one hour before `now`: for development, and for browsers
    /// that are given its hash. No names make a certificate fit for clients only.
    pub fn generate_dev<S: AsRef<str>>(
        names: &[S],
        now: UnixTime,
    ) -> Result<Identity, GenerateError> {
        let pair = new_pair(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        self_signed(&pair, names, now, DEV_LIFETIME)
    }

    /// As [`generate_dev`](Self::generate_dev), with the private key in a PEM text instead of a new
    /// one: another certificate, the same key and its pin.
    pub fn certify_pem<S: AsRef<str>>(
        key: &[u8],
        names: &[S],
        now: UnixTime,
    ) -> Result<Identity, GenerateError> {
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| GenerateError::Crypto("no private key could be read".to_owned()))?;
        let pair = KeyPair::try_from(&key).map_err(rcgen_failed)?;
        self_signed(&pair, names, now, DEV_LIFETIME)
    }

    /// Our key with a new certificate of its own, as [`generate_dev`](Self::generate_dev) makes it.
    pub fn certified_anew<S: AsRef<str>>(
        &self,
        names: &[S],
        now: UnixTime,
    ) -> Result<Identity, GenerateError> {
        let pair = KeyPair::try_from(&self.private_key_der()).map_err(rcgen_failed)?;
        self_signed(&pair, names, now, DEV_LIFETIME)
    }

    /// A self-signed Ed25519 certificate for `names`, valid for `lifetime` from one hour before
    /// `now`. Browsers do not take Ed25519.
    pub fn generate_ed25519<S: AsRef<str>>(
        names: &[S],
        now: UnixTime,
        lifetime: Duration,
    ) -> Result<Identity, GenerateError> {
        let pair = new_pair(&rcgen::PKCS_ED25519)?;
        self_signed(&pair, names, now, lifetime)
    }

    /// A new Ed25519 key, used as a raw public key (RFC 7250). Has no dates and no names.
    pub fn generate_raw_key() -> Result<Identity, GenerateError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| aws_lc("Ed25519 key generation"))?;
        raw_key(&pair)
    }

    /// The raw key of a 32-byte Ed25519 seed (RFC 8032 §5.1.5): the same seed, the same key. The
    /// seed is as secret as the key.
    pub fn raw_key_from_seed(seed: &[u8; 32]) -> Result<Identity, GenerateError> {
        let pair =
            Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| aws_lc("Ed25519 from a seed"))?;
        raw_key(&pair)
    }
}

fn raw_key(pair: &Ed25519KeyPair) -> Result<Identity, GenerateError> {
    // Version 1, without the public key: what every other TLS library reads.
    let pkcs8 = pair.to_pkcs8v1().map_err(|_| aws_lc("PKCS #8 encoding"))?;
    let key = PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec());
    Identity::raw_key_from_der(PrivateKeyDer::Pkcs8(key))
        .map_err(|error| GenerateError::Crypto(error.to_string()))
}

fn new_pair(algorithm: &'static SignatureAlgorithm) -> Result<KeyPair, GenerateError> {
    KeyPair::generate_for(algorithm).map_err(rcgen_failed)
}

fn self_signed<S: AsRef<str>>(
    pair: &KeyPair,
    names: &[S],
    now: UnixTime,
    lifetime: Duration,
) -> Result<Identity, GenerateError> {
    let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
    for name in &names {
        check_name(name)?;
    }
    let not_before = now.as_secs().saturating_sub(BACKDATED_BY.as_secs());
    let not_after = not_before.saturating_add(lifetime.as_secs());
    if not_after > LAST_SECOND {
        return Err(GenerateError::DateOutOfRange);
    }

    let common_name = names.first().map_or("towline", String::as_str).to_owned();
    let mut params = CertificateParams::new(names).map_err(rcgen_failed)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(not_before);
    params.not_after = epoch + Duration::from_secs(not_after);

    let certificate = params.self_signed(pair).map_err(rcgen_failed)?;
    let key = PrivatePkcs8KeyDer::from(pair.serialize_der());
    Identity::from_der(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key))
        .map_err(|error| GenerateError::Crypto(error.to_string()))
}

fn check_name(name: &str) -> Result<(), GenerateError> {
    let plain = name.strip_prefix("*.").unwrap_or(name);
    match ServerName::try_from(plain) {
        // A wildcard stands for DNS labels only.
        Ok(ServerName::IpAddress(_)) if plain != name => {
            Err(GenerateError::BadName(name.to_owned()))
        }
        Ok(_) => Ok(()),
        Err(_) => Err(GenerateError::BadName(name.to_owned())),
    }
}

fn rcgen_failed(error: rcgen::Error) -> GenerateError {
    GenerateError::Crypto(error.to_string())
}

fn aws_lc(what: &str) -> GenerateError {
    GenerateError::Crypto(what.to_owned())
}

#[cfg(test)]
mod tests;
