//! [`Disk`]: the files under a spool.

/// Files that a spool appends to, each known by a number. [`Spool`](super::Spool) is the only one who uses them.
///
/// Nothing is durable before [`sync`](Self::sync) returns: after a loss of power any part of what was not synced
/// may be there or not. A sector of 512 bytes is either as it was or as it was written.
pub trait Disk {
    /// Why an operation failed.
    type Error: std::error::Error + 'static;

    /// The numbers of all segments, in any order.
    ///
    /// # Errors
    /// Where the disk cannot tell.
    fn list(&mut self) -> Result<Vec<u64>, Self::Error>;

    /// Bytes of a segment.
    ///
    /// # Errors
    /// Where there is none, or the disk cannot tell.
    fn len(&mut self, segment: u64) -> Result<u64, Self::Error>;

    /// Fills `buffer` with a segment's bytes from `offset` on; returns how many there were, fewer only where the
    /// segment ends.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    fn read(&mut self, segment: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, Self::Error>;

    /// Makes an empty segment. Its number is higher than those of all that were there before.
    ///
    /// # Errors
    /// Where it is there already, or cannot be made.
    fn create(&mut self, segment: u64) -> Result<(), Self::Error>;

    /// Adds `bytes` at the end of a segment.
    ///
    /// # Errors
    /// Where they cannot be written, all of them or a part. The segment gets no further bytes then.
    fn append(&mut self, segment: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Makes durable: a segment's bytes, its length, and that it is there.
    ///
    /// # Errors
    /// Where that is not sure. The segment gets no further bytes then.
    fn sync(&mut self, segment: u64) -> Result<(), Self::Error>;

    /// Cuts a segment to `len` bytes.
    ///
    /// # Errors
    /// Where it cannot be cut.
    fn truncate(&mut self, segment: u64, len: u64) -> Result<(), Self::Error>;

    /// Removes a segment; that it is not there is no error.
    ///
    /// # Errors
    /// Where it may still be there.
    fn remove(&mut self, segment: u64) -> Result<(), Self::Error>;

    /// Removes a segment of which nothing can be read, but keeps its bytes for who can make something of them.
    ///
    /// # Errors
    /// Where it may still be there.
    fn set_aside(&mut self, segment: u64) -> Result<(), Self::Error> {
        self.remove(segment)
    }
}
