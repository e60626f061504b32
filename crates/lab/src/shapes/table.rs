//! The shapes of Freenet's transport benchmarks, as plain data.
//!
//! Names and sizes are those of its published tables. Also included by the benches of
//! `crates/towline`, which measure the same shapes over real sockets; it uses nothing but `core`.

use core::num::NonZeroU64;

/// What is sent over one fresh connection, all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What it is called in the published tables.
    pub id: &'static str,
    /// Unidirectional streams, all opened as soon as the handshake is done.
    pub streams: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// The sender's strict limit, bytes a second of UDP payload.
    pub rate_limit: Option<NonZeroU64>,
}

/// All of them, in the order of the tables.
pub const SHAPES: [Shape; 7] = [
    shape("streaming/throughput/4096", 1, 4096),
    shape("streaming/throughput/16384", 1, 16_384),
    shape("streaming/throughput/65536", 1, 65_536),
    shape("concurrent/streams/2", 2, 16_384),
    shape("concurrent/streams/5", 5, 16_384),
    shape("concurrent/streams/10", 10, 16_384),
    Shape {
        rate_limit: NonZeroU64::new(3_000_000),
        ..shape(RATE_LIMITED, 1, 1_000_000)
    },
];

/// The shape whose sender is held to 3·10^6 bytes a second.
pub const RATE_LIMITED: &str = "rate_limit/1mb_with_3mbps_limit";

const fn shape(id: &'static str, streams: u32, bytes: u64) -> Shape {
    Shape {
        id,
        streams,
        bytes,
        rate_limit: None,
    }
}

impl Shape {
    /// Bytes of all its streams.
    pub const fn total(&self) -> u64 {
        self.streams as u64 * self.bytes
    }
}
