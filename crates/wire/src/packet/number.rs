//! Packet number truncation and recovery (RFC 9000 §17.1, appendix A.2 and A.3).
//!
//! Pure arithmetic for the engine: how many bytes to send, and which full number a truncated
//! one stands for. Never keeps state: the largest number seen is an argument.

use crate::cursor::MAX_VARINT;

/// The full packet number that `len` bytes (1 to 4) of `truncated` stand for: the one closest to
/// the number expected next (RFC 9000 §A.3). Never above 2^62 - 1.
///
/// `largest_received` is the largest number *successfully processed* in this space.
#[inline]
pub fn decode_packet_number(truncated: u64, len: usize, largest_received: Option<u64>) -> u64 {
    debug_assert!((1..=4).contains(&len));
    let expected = largest_received.map_or(0, |largest| largest.min(MAX_VARINT) + 1);
    let window = 1_u64 << (8 * len.clamp(1, 4));
    let mask = window - 1;
    let candidate = expected & !mask | truncated & mask;
    if candidate + window / 2 <= expected && candidate + window <= MAX_VARINT {
        candidate + window
    } else if candidate > MAX_VARINT || (candidate > expected + window / 2 && candidate >= window) {
        // RFC 9000 §A.3 leaves out the number after the last one; the closest valid one is below.
        candidate - window
    } else {
        candidate
    }
}

/// Bytes (1 to 4) by which to send `pn`, so that more than twice the numbers in flight can be
/// told apart (RFC 9000 §17.1, §A.2).
#[inline]
pub fn packet_number_len(pn: u64, largest_acked: Option<u64>) -> usize {
    let unacked = match largest_acked {
        Some(largest) => pn.saturating_sub(largest),
        None => pn.saturating_add(1),
    };
    if unacked < 1 << 7 {
        1
    } else if unacked < 1 << 15 {
        2
    } else if unacked < 1 << 23 {
        3
    } else {
        4
    }
}

/// The number in the (at most 4) bytes of an unprotected packet number field.
#[inline]
pub fn truncated_packet_number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
