//! What the ends of a voyage have in common.

use std::fmt::Debug;

use towline_quic::EndpointConfig;

/// The boat's place among the hosts, the shore's, and that of who sends the bulk transfer.
pub(super) const BOAT: usize = 0;
/// See [`BOAT`].
pub(super) const SHORE: usize = 1;
/// See [`BOAT`].
pub(super) const BULK_FROM: usize = 2;

/// What went over the boat's links.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) bytes: [u64; 2],
    pub(super) datagrams: [u64; 2],
    pub(super) queued: usize,
    pub(super) peak_queued: usize,
}

/// The secrets of an endpoint.
pub(super) fn secrets(seed: u64, salt: u64) -> EndpointConfig {
    let mut bytes = [0x5a; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&salt.to_le_bytes());
    EndpointConfig::from_seed(bytes)
}

/// What can't fail here, whatever happens to the link.
#[track_caller]
pub(super) fn must<T, E: Debug>(what: &str, result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error:?}"),
    }
}
