//! Ed25519 keys and certificates that follow from a seed.
//!
//! Ed25519 because its signatures draw no randomness (RFC 8032 §5.1.6); serial number and dates
//! are constants, so the DER is the same on every run.

use aws_lc_rs::digest;
use aws_lc_rs::signature::Ed25519KeyPair;
use rcgen::{CertificateParams, DnType, KeyPair, SerialNumber, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A seeded leaf is valid from the first day of this year.
pub const LEAF_NOT_BEFORE_YEAR: i32 = 2020;
/// A seeded leaf is valid until the first day of this year.
pub const LEAF_NOT_AFTER_YEAR: i32 = 2049;

/// A self-signed certificate and its key.
#[derive(Debug)]
pub struct Leaf {
    /// The certificate, DER.
    pub certificate: CertificateDer<'static>,
    /// Its Ed25519 private key, PKCS #8 version 1 DER.
    pub key: PrivatePkcs8KeyDer<'static>,
    /// The public key as SubjectPublicKeyInfo DER: 44 bytes.
    pub spki: Vec<u8>,
}

impl Leaf {
    /// The key in the form that rustls's builders take.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

/// The 32-byte Ed25519 seed behind `seed`: SHA-256 of a label and the number.
pub fn signing_seed(seed: u64) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(b"towline testkit ed25519");
    hash.update(&seed.to_be_bytes());
    let mut out = [0; 32];
    out.copy_from_slice(hash.finish().as_ref());
    out
}

/// The private key of `seed`, PKCS #8 version 1 DER: also good as a raw public key identity.
pub fn ed25519_pkcs8(seed: u64) -> PrivatePkcs8KeyDer<'static> {
    let pair = Ed25519KeyPair::from_seed_unchecked(&signing_seed(seed))
        .expect("every 32-byte string is an Ed25519 seed");
    let document = pair
        .to_pkcs8v1()
        .expect("an Ed25519 key has a PKCS #8 form");
    PrivatePkcs8KeyDer::from(document.as_ref().to_vec())
}

/// The self-signed certificate of `seed` for `names` (DNS names or IP addresses).
///
/// # Panics
/// When a name is not a DNS name in ASCII: names are constants of the test.
pub fn ed25519_leaf(seed: u64, names: &[&str]) -> Leaf {
    let key = ed25519_pkcs8(seed);
    let pair = KeyPair::from_pkcs8_der_and_sign_algo(&key, &rcgen::PKCS_ED25519)
        .expect("the key was made by ed25519_pkcs8");
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("test names are ASCII");
    params
        .distinguished_name
        .push(DnType::CommonName, "towline testkit");
    params.serial_number = Some(SerialNumber::from_slice(&[1]));
    params.not_before = date_time_ymd(LEAF_NOT_BEFORE_YEAR, 1, 1);
    params.not_after = date_time_ymd(LEAF_NOT_AFTER_YEAR, 1, 1);
    let certificate = params
        .self_signed(&pair)
        .expect("an Ed25519 key signs any certificate");
    Leaf {
        certificate: certificate.der().clone(),
        spki: rcgen::PublicKeyData::subject_public_key_info(&pair),
        key,
    }
}
