//! Buffers of stream data, used again and again.
//!
//! One pool a connection, shared by its streams: the assemblers of received data and the send
//! buffers of copied data take blocks from it and give them back, so that a transfer under way
//! allocates nothing. A block handed to the application in pieces comes back once the last piece
//! is dropped. The pool is bounded, and emptied when the streams fall silent.

use bytes::BytesMut;

/// Largest block, bytes: what one train of datagrams brings.
pub(crate) const MAX_BLOCK: usize = 64 << 10;

/// Smallest block, bytes.
const MIN_BLOCK: usize = 2 << 10;

/// How many times larger than wanted a block may be.
const MOST_TOO_LARGE: usize = 8;

/// Cap: blocks kept for reuse, 4 MiB a connection.
pub(crate) const MAX_SPARE_BLOCKS: usize = 64;

/// A buffer that remembers how much memory it has: what is split off still is part of it.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: BytesMut,
    size: usize,
}

impl Block {
    fn new(size: usize) -> Self {
        Self {
            bytes: BytesMut::with_capacity(size),
            size,
        }
    }

    /// Bytes of memory it was made with.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl std::ops::Deref for Block {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.bytes
    }
}

impl std::ops::DerefMut for Block {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }
}

/// Blocks that wait to be used again.
#[derive(Debug, Default)]
pub(crate) struct BlockPool {
    spare: Vec<Block>,
    /// Bytes of those.
    held: usize,
}

impl BlockPool {
    /// An empty block with room for `wanted` bytes, or for [`MAX_BLOCK`] if that is less.
    pub(crate) fn take(&mut self, wanted: usize) -> Block {
        let size = wanted.clamp(MIN_BLOCK, MAX_BLOCK);
        // The newest first: its memory is likeliest to be in cache, and to be free again. A block
        // far larger than wanted would hold more memory than credit says.
        for i in (0..self.spare.len()).rev() {
            let block = &mut self.spare[i];
            let most = MOST_TOO_LARGE * wanted.clamp(MIN_BLOCK / 4, MAX_BLOCK);
            if block.try_reclaim(size) && block.capacity() <= most {
                let block = self.spare.remove(i);
                self.held -= block.size();
                return block;
            }
        }
        Block::new(size.next_power_of_two())
    }

    /// Takes back a block whose bytes are no longer needed here; the application may hold some.
    pub(crate) fn give(&mut self, mut block: Block) {
        block.clear();
        if self.spare.len() >= MAX_SPARE_BLOCKS {
            // The oldest may be in the application's hands for ever.
            let oldest = self.spare.remove(0);
            self.held -= oldest.size();
        }
        self.held += block.size();
        self.spare.push(block);
    }

    /// Bytes of the blocks that wait.
    pub(crate) fn held(&self) -> usize {
        self.held + self.spare.capacity() * size_of::<Block>()
    }

    /// Frees what waits.
    pub(crate) fn trim(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_used_again_once_the_application_let_go_of_it() {
        let mut pool = BlockPool::default();
        let mut block = pool.take(MAX_BLOCK);
        block.extend_from_slice(&[7; MAX_BLOCK]);
        let at = block.as_ptr();
        let piece = block.split_to(1000).freeze();
        pool.give(block);
        assert_ne!(pool.take(MAX_BLOCK).as_ptr(), at, "still in use");
        assert_eq!(&piece[..], &[7; 1000]);
        drop(piece);
        assert_eq!(pool.take(MAX_BLOCK).as_ptr(), at);
    }

    #[test]
    fn the_pool_is_bounded_and_serves_small_requests_with_small_blocks() {
        let mut pool = BlockPool::default();
        assert_eq!(pool.take(64).capacity(), MIN_BLOCK);
        assert_eq!(pool.take(1 << 30).capacity(), MAX_BLOCK);
        for _ in 0..100 {
            pool.give(Block::new(MAX_BLOCK));
        }
        assert_eq!(pool.spare.len(), MAX_SPARE_BLOCKS);
        assert!(pool.held() >= MAX_SPARE_BLOCKS * MAX_BLOCK);
        assert_eq!(pool.take(64).capacity(), MIN_BLOCK, "not a large one");
        pool.trim();
        assert_eq!((pool.spare.capacity(), pool.held()), (0, 0));
    }

    #[test]
    fn blocks_the_application_never_lets_go_of_do_not_fill_the_pool() {
        let mut pool = BlockPool::default();
        let mut pinned = Vec::new();
        for _ in 0..MAX_SPARE_BLOCKS {
            let mut block = Block::new(MAX_BLOCK);
            block.extend_from_slice(b"x");
            pinned.push(block.split_to(1).freeze());
            pool.give(block);
        }
        let mut known = Vec::new();
        for _ in 0..200 {
            let block = Block::new(MAX_BLOCK);
            known.push(block.as_ptr());
            pool.give(block);
        }
        let taken = (0..MAX_SPARE_BLOCKS).map(|_| pool.take(MAX_BLOCK));
        let again = taken.filter(|block| known.contains(&block.as_ptr()));
        assert_eq!(again.count(), MAX_SPARE_BLOCKS);
    }
}
