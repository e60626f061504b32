//! `CryptoProvider`s whose every random byte follows from a seed.
//!
//! `pair` and the tests of other crates call these. Hashes, AEADs and signatures are the real
//! ones of aws-lc; only randomness and key exchange are replaced.

use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use crate::key_exchange::{HYBRID, X25519};
use crate::random::{self, SeededRandom};

/// A provider of AES-128-GCM, AES-256-GCM, ChaCha20 and of X25519, then a stand-in with the sizes
/// of X25519MLKEM768; narrow or reorder `cipher_suites` and `kx_groups` freely.
///
/// Reseeds this thread's random stream. Providers share that stream: with two of them on one
/// thread the later `seed` holds for both.
pub fn seeded_provider(seed: u64) -> CryptoProvider {
    random::reseed(seed);
    CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![X25519, HYBRID],
        secure_random: &SeededRandom,
        ..aws_lc_rs::default_provider()
    }
}

/// [`seeded_provider`] whose only suite is TLS_AES_128_GCM_SHA256 with null packet protection:
/// Initial, Handshake, 0-RTT and 1-RTT packets are plaintext of the usual size.
///
/// The engine must take its Initial suite from the provider for this to reach Initial packets.
#[cfg(any(test, fuzzing, debug_assertions))]
pub fn null_aead_provider(seed: u64) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![crate::null_aead::suite()],
        ..seeded_provider(seed)
    }
}
