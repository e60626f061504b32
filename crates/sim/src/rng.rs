//! Seeded randomness of one link: one independent ChaCha8 stream per kind of fault.
//!
//! Each fault draws from its own stream, once per datagram that enters the link. So turning one
//! fault off, or changing its strength, leaves the others' decisions as they were: a shrinker
//! can delete faults one at a time without rolling the rest anew.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// One kind of fault's own random stream.
#[derive(Clone, Debug)]
pub(crate) struct Draw(ChaCha8Rng);

impl Draw {
    /// The stream numbered `stream` of the link called `name` in the world of `seed`.
    pub(crate) fn new(seed: u64, name: &str, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::from_seed(link_key(seed, name));
        rng.set_stream(stream);
        Self(rng)
    }

    /// True with probability `p`, which validation keeps in 0..=1. Draws nothing for `p == 0`.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        if p <= 0.0 {
            return false;
        }
        self.unit() < p
    }

    /// A number from 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 random bits: every value is exact in an f64 and below 1, so a chance of 1 is certain.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in `0..bound`, or 0 for a bound of 0 (which draws nothing).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // The high half of a 64 x 64 bit product; its bias is below 2^-64 x bound.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// A key for the link `name` in the world of `seed`: FNV-1a over the name, spread by SplitMix64.
fn link_key(seed: u64, name: &str) -> [u8; 32] {
    let name_hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut key = [0; 32];
    let mut state = splitmix(seed) ^ name_hash;
    for word in key.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&splitmix(state).to_le_bytes());
    }
    key
}

fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
