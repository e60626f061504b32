//! AES-128-GCM in name, doing nothing: what a packet costs without it is the engine's own share.
//!
//! `testkit` has such a suite for debug builds only, so that no release can contain it; counts are
//! taken of a release build, so this program has its own. Packets keep their real sizes.

use std::sync::LazyLock;

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{Error, SupportedCipherSuite, Tls13CipherSuite};

/// What stands where a packet's tag would.
pub(crate) const TAG: [u8; 16] = *b"towline null tag";

static SUITE: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
    let real = match TLS13_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls13(suite) => suite,
        #[allow(
            unreachable_patterns,
            reason = "another variant exists when a dependency turns rustls/tls12 on"
        )]
        _ => unreachable!("the suite's name says TLS 1.3"),
    };
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: real.common.suite,
            hash_provider: real.common.hash_provider,
            confidentiality_limit: real.common.confidentiality_limit,
        },
        hkdf_provider: real.hkdf_provider,
        aead_alg: real.aead_alg,
        quic: Some(&Null),
    }
});

/// TLS_AES_128_GCM_SHA256 with null packet protection.
pub(crate) fn suite() -> SupportedCipherSuite {
    SupportedCipherSuite::Tls13(&SUITE)
}

struct Null;

impl Algorithm for Null {
    fn packet_key(&self, _key: AeadKey, _iv: Iv) -> Box<dyn PacketKey> {
        Box::new(Null)
    }

    fn header_protection_key(&self, _key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        Box::new(Null)
    }

    fn aead_key_len(&self) -> usize {
        16
    }
}

impl PacketKey for Null {
    fn encrypt_in_place(&self, _: u64, _: &[u8], _: &mut [u8]) -> Result<Tag, Error> {
        Ok(Tag::from(TAG.as_slice()))
    }

    fn decrypt_in_place<'a>(
        &self,
        _: u64,
        _: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        payload
            .strip_suffix(TAG.as_slice())
            .ok_or(Error::DecryptError)
    }

    fn tag_len(&self) -> usize {
        TAG.len()
    }

    fn confidentiality_limit(&self) -> u64 {
        1 << 23
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

impl HeaderProtectionKey for Null {
    fn encrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn decrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn sample_len(&self) -> usize {
        16
    }
}
