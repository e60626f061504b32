//! Counters of one shard's socket, kept by the shard and read by anyone.

/// What a socket did, and what went wrong with it, since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketStats {
    /// System calls that sent something.
    pub calls_sent: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Times the socket buffer was full.
    pub send_blocked: u64,
    /// Times the system had no buffers (ENOBUFS, ENOMEM).
    pub no_buffers: u64,
    /// Datagrams too big for the path (EMSGSIZE), dropped.
    pub too_big: u64,
    /// Sends refused for another reason (unreachable, filtered, …), dropped.
    pub send_errors: u64,
    /// Datagrams that the system did not take, whatever the reason; recovered as lost.
    pub datagrams_dropped: u64,
    /// System calls that received something.
    pub calls_received: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Receive errors that concern no connection, such as an ICMP refusal of an earlier send.
    pub receive_errors: u64,
    /// Turns that ended on their budget and not on an empty socket.
    pub budget_ends: u64,
}
