//! What a link counts. Plain numbers with public fields, so that the relay and the lab can
//! print or serialise them as they like.

/// Datagrams dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropStats {
    /// Payload longer than the link's MTU.
    pub mtu: u64,
    /// The queue in front of the bottleneck was full.
    pub queue: u64,
    /// Named in the drop list.
    pub listed: u64,
    /// Taken by the loss model.
    pub loss: u64,
    /// Left the queue during a blackout.
    pub blackout: u64,
    /// The link already held [`MAX_HELD_BYTES`](crate::MAX_HELD_BYTES).
    pub capacity: u64,
}

impl DropStats {
    /// All drops together.
    pub fn total(&self) -> u64 {
        self.mtu + self.queue + self.listed + self.loss + self.blackout + self.capacity
    }
}

/// What one link did since it was made. Bytes are bytes of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Datagrams pushed in.
    pub datagrams_in: u64,
    /// Bytes pushed in.
    pub bytes_in: u64,
    /// Datagrams that came out, duplicates included.
    pub datagrams_delivered: u64,
    /// Bytes that came out, duplicates included.
    pub bytes_delivered: u64,
    /// Drops by cause.
    pub drops: DropStats,
    /// Datagrams that came out a second time (counted when decided).
    pub duplicated: u64,
    /// Datagrams held back so that later ones overtake them.
    pub reordered: u64,
    /// Datagrams with one bit flipped.
    pub corrupted: u64,
    /// Datagrams cut short.
    pub truncated: u64,
    /// Most bytes that ever waited in the queue at once (payload and overhead).
    pub queue_peak_bytes: u64,
}
