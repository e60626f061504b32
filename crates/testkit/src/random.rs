//! The one generator of a thread, which every seeded part draws from.
//!
//! `provider` and `key_exchange` call it. It is a thread-local because rustls wants `&'static`
//! parts: state beside the statics means that no world has to leak a box of its own.

use std::cell::RefCell;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use rustls::crypto::{GetRandomFailed, SecureRandom};

thread_local! {
    static GENERATOR: RefCell<ChaCha8Rng> = RefCell::new(ChaCha8Rng::seed_from_u64(0));
}

/// Starts this thread's random stream again from `seed`.
///
/// [`tls_pair`](crate::tls_pair) and [`seeded_provider`](crate::seeded_provider) do it
/// themselves; call it to replay a handshake with configurations that already exist.
pub fn reseed(seed: u64) {
    GENERATOR.with(|generator| *generator.borrow_mut() = ChaCha8Rng::seed_from_u64(seed));
}

/// Fills `bytes` from this thread's stream.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
    GENERATOR
        .try_with(|generator| generator.borrow_mut().fill_bytes(bytes))
        .map_err(|_| GetRandomFailed)
}

/// rustls's view of the thread's stream: randoms, extension order, ticket nonces, session ids.
#[derive(Debug)]
pub(crate) struct SeededRandom;

impl SecureRandom for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        fill(bytes)
    }
}
