//! An AEAD that encrypts nothing, as QUIC suites for rustls.
//!
//! Packets keep their real sizes (a 16-byte tag, header protection that changes no bit), so
//! fuzzers can reach the frame parsers and a test can read what is on the wire. The TLS handshake
//! inside stays real. Exists only in debug, test and fuzzing builds: a release cannot contain it.
//! The tag is a constant, so changed payload bytes are **not** noticed.

use std::sync::LazyLock;

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{Error, SupportedCipherSuite, Tls13CipherSuite};

/// The tag that ends every packet.
pub const NULL_TAG: [u8; 16] = *b"towline null tag";

/// Length of a header protection sample (RFC 9001 §5.4.2).
const SAMPLE_LEN: usize = 16;

static SUITE: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
    let real = aes_128_gcm();
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: real.common.suite,
            hash_provider: real.common.hash_provider,
            confidentiality_limit: real.common.confidentiality_limit,
        },
        hkdf_provider: real.hkdf_provider,
        aead_alg: real.aead_alg,
        quic: Some(&NullAlgorithm),
    }
});

/// TLS_AES_128_GCM_SHA256 by name, with null packet protection.
pub(crate) fn suite() -> SupportedCipherSuite {
    SupportedCipherSuite::Tls13(&SUITE)
}

fn aes_128_gcm() -> &'static Tls13CipherSuite {
    match TLS13_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls13(suite) => suite,
        #[allow(
            unreachable_patterns,
            reason = "another variant exists when a dependency turns rustls/tls12 on"
        )]
        _ => unreachable!("the suite's name says TLS 1.3"),
    }
}

struct NullAlgorithm;

impl Algorithm for NullAlgorithm {
    fn packet_key(&self, _key: AeadKey, _iv: Iv) -> Box<dyn PacketKey> {
        Box::new(NullKey)
    }

    fn header_protection_key(&self, _key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        Box::new(NullKey)
    }

    fn aead_key_len(&self) -> usize {
        16
    }
}

struct NullKey;

impl PacketKey for NullKey {
    fn encrypt_in_place(
        &self,
        _packet_number: u64,
        _header: &[u8],
        _payload: &mut [u8],
    ) -> Result<Tag, Error> {
        Ok(Tag::from(NULL_TAG.as_slice()))
    }

    fn decrypt_in_place<'a>(
        &self,
        _packet_number: u64,
        _header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        payload
            .strip_suffix(NULL_TAG.as_slice())
            .ok_or(Error::DecryptError)
    }

    fn tag_len(&self) -> usize {
        NULL_TAG.len()
    }

    // Both limits are those of AES-128-GCM (RFC 9001 §6.6), so that key updates stay exercised.
    fn confidentiality_limit(&self) -> u64 {
        1 << 23
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

impl HeaderProtectionKey for NullKey {
    fn encrypt_in_place(
        &self,
        sample: &[u8],
        _first: &mut u8,
        packet_number: &mut [u8],
    ) -> Result<(), Error> {
        check_lengths(sample, packet_number)
    }

    fn decrypt_in_place(
        &self,
        sample: &[u8],
        _first: &mut u8,
        packet_number: &mut [u8],
    ) -> Result<(), Error> {
        check_lengths(sample, packet_number)
    }

    fn sample_len(&self) -> usize {
        SAMPLE_LEN
    }
}

/// The same refusals as real keys give, so that a caller's slip shows here too.
fn check_lengths(sample: &[u8], packet_number: &[u8]) -> Result<(), Error> {
    if sample.len() != SAMPLE_LEN {
        return Err(Error::General("sample of invalid length".into()));
    }
    if packet_number.len() > 4 {
        return Err(Error::General("packet number too long".into()));
    }
    Ok(())
}
