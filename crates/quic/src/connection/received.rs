//! What came for a connection, in numbers: counted by `input`, told by `stats`.

/// Received traffic of one connection.
#[derive(Debug, Default)]
pub(crate) struct ReceivedCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) datagrams: u64,
    /// Datagrams from another address than the peer's, which count nowhere else.
    pub(crate) from_elsewhere: u64,
    /// Units of work that the frames asked for.
    pub(crate) work: u64,
    /// Packets that asked for more than they may.
    pub(crate) overworked: u64,
    /// Bytes that whoever stands above the connection keeps of what came.
    pub(crate) held_above: usize,
}
