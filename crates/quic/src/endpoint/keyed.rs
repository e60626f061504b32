//! The hash of tables whose keys a peer can choose: behind a secret, so that nobody can aim at one cell.
//!
//! Such a table is never iterated, for its order must not reach the wire.

use std::hash::{BuildHasher, DefaultHasher, Hasher};

/// SipHash behind a secret prefix.
#[derive(Clone, Debug)]
pub(super) struct KeyedState(pub(super) u64, pub(super) u64);

impl BuildHasher for KeyedState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher.write_u64(self.1);
        hasher
    }
}
