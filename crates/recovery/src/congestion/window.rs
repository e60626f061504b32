//! The windows that all controllers share (RFC 9002 §7.2): the first, the least, and what becomes
//! of one when the datagram size changes. Functions of the size alone.

/// The initial window: `min(10 * size, max(14720, 2 * size))` (RFC 9002 §7.2).
pub fn initial_window(max_datagram_size: u16) -> u64 {
    let size = u64::from(max_datagram_size);
    (10 * size).min((2 * size).max(14_720))
}

/// The least window after a loss: two datagrams (RFC 9002 §7.2).
pub fn minimum_window(max_datagram_size: u16) -> u64 {
    2 * u64::from(max_datagram_size)
}

/// The window after a change of the datagram size: the same in bytes, unless the size was lowered to
/// get the handshake through (RFC 9002 §7.2).
pub(super) fn resized_window(window: u64, old: u16, new: u16, during_handshake: bool) -> u64 {
    match during_handshake && new < old {
        true => initial_window(new),
        false => window.max(minimum_window(new)),
    }
}
