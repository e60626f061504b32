//! What becomes of datagrams that are to be sent, of each and in numbers.

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramFate {
    /// The peer's transport has it; its application may still have dropped it. May follow `Lost`:
    /// then it was late and not lost.
    Acked,
    /// It was sent, and the loss detection gave it up. It may have arrived all the same, and is not
    /// sent again.
    Lost,
    /// It was never sent: it waited for longer than its `max_age`, or the path's packets became too
    /// small for it.
    Expired,
}

/// What became of datagrams that were to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fates {
    pub(crate) sent: u64,
    pub(crate) acked: u64,
    /// Declared lost; those acknowledged later are among `acked` too.
    pub(crate) lost: u64,
    /// Never sent: too old, or too large for the path by then.
    pub(crate) expired: u64,
}
