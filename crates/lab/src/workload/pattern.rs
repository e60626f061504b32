//! Bytes that know where they belong: every (key, offset) has its content, made once and shared.
//!
//! One random block of a prime length, repeated: writing slices it without a copy, checking
//! compares slices, and a byte from another stream or offset does not match.

use std::sync::LazyLock;

use bytes::Bytes;

use crate::random::Random;

/// A prime, so that no power-of-two mistake lands on the same content.
const LEN: usize = 65_521;

static BLOCK: LazyLock<Bytes> = LazyLock::new(|| {
    let mut random = Random::new(0x0050_6174_7465_726e, 0);
    let mut block: Vec<u8> = (0..LEN).map(|_| random.bits() as u8).collect();
    block.extend_from_within(..);
    block.into()
});

/// Makes the block now, so that it does not count as memory of whoever comes first.
pub(crate) fn prepare() {
    LazyLock::force(&BLOCK);
}

fn start(key: u64, offset: u64) -> usize {
    let key = key.wrapping_mul(7919) % LEN as u64;
    ((key + offset % LEN as u64) % LEN as u64) as usize
}

/// Up to `most` bytes of the content of `key` from `offset` on.
pub(super) fn slice(key: u64, offset: u64, most: usize) -> Bytes {
    let start = start(key, offset);
    BLOCK.slice(start..start + most.min(LEN))
}

/// Whether `data` is the content of `key` at `offset`.
pub(super) fn matches(key: u64, mut offset: u64, mut data: &[u8]) -> bool {
    while !data.is_empty() {
        let n = data.len().min(LEN);
        let start = start(key, offset);
        if data[..n] != BLOCK[start..start + n] {
            return false;
        }
        offset += n as u64;
        data = &data[n..];
    }
    true
}
