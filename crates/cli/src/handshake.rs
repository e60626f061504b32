//! What a handshake may take: time and bytes.

use std::time::Duration;

/// How long an answer to the first packet may take.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What an end sends in a handshake with a long certificate chain and a lost flight, bytes; in a
/// plain one it is about 4,000.
pub(crate) const LONG_HANDSHAKE: u64 = 10_000;
