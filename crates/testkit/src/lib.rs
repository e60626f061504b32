//! TLS that gives the same bytes for the same seed, for tests and the lab.
//!
//! Owns a seeded `CryptoProvider`, a settable wall clock, Ed25519 certificates made from a seed
//! and, in debug and fuzzing builds, an AEAD that leaves packets readable. Two-endpoint tests of
//! `quic` and the worlds of `lab` call [`tls_pair`]. Nothing here is fit for a real connection:
//! every key follows from a 64-bit number, so no product crate may reach this one.
//!
//! The random state is one generator per thread, set by [`reseed`]; the provider's parts are
//! statics that draw from it. A swarm of many thousand seeds therefore leaks nothing, and a world
//! must live on one thread, one world at a time.
#![forbid(unsafe_code)]

mod clock;
mod key_exchange;
mod leaf;
#[cfg(any(test, fuzzing, debug_assertions))]
mod null_aead;
mod pair;
mod provider;
mod random;

pub use clock::{DEFAULT_UNIX_SECONDS, FixedTime};
pub use leaf::{
    LEAF_NOT_AFTER_YEAR, LEAF_NOT_BEFORE_YEAR, Leaf, ed25519_leaf, ed25519_pkcs8, signing_seed,
};
#[cfg(any(test, fuzzing, debug_assertions))]
pub use null_aead::NULL_TAG;
pub use pair::{Cipher, SERVER_NAME, TlsOptions, TlsPair, tls_pair};
#[cfg(any(test, fuzzing, debug_assertions))]
pub use provider::null_aead_provider;
pub use provider::seeded_provider;
pub use random::reseed;
