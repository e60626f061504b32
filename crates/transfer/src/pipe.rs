//! Between network tasks and file threads: bounded pipes of large blocks.
//!
//! A file thread is plain synchronous code: it parses or composes a lane through
//! [`BlockReader`] and [`BlockWriter`]. The async half only moves blocks, so no file system
//! call ever runs on the network's threads and no lane holds more than a few blocks.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use crate::caps::{BLOCK_BYTES, BLOCKS_IN_PIPE};
use crate::progress::Progress;

/// A stream that data leaves on; blocks are handed over without a copy.
pub trait LaneWriter: Send + 'static {
    /// Writes the whole block, waiting for credit.
    fn write_chunk(&mut self, block: Bytes) -> impl Future<Output = io::Result<()>> + Send;
    /// Says that nothing follows.
    fn finish(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Opens data streams to the peer.
pub trait OpenLane: Clone + Send + Sync + 'static {
    /// The kind of stream it opens.
    type Lane: LaneWriter;
    /// Opens one, waiting while the peer permits no more.
    fn open(&self) -> impl Future<Output = io::Result<Self::Lane>> + Send;
}

/// The pipe is closed: the session ended or the stream broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PipeClosed;

/// The thread's end of an outgoing pipe: composes blocks.
pub(crate) struct BlockWriter {
    block: Vec<u8>,
    blocks: mpsc::Sender<Bytes>,
}

/// An outgoing pipe: the thread's end and the network task's end.
pub(crate) fn outgoing() -> (BlockWriter, mpsc::Receiver<Bytes>) {
    let (blocks, receiver) = mpsc::channel(BLOCKS_IN_PIPE);
    (
        BlockWriter {
            block: Vec::with_capacity(BLOCK_BYTES),
            blocks,
        },
        receiver,
    )
}

impl BlockWriter {
    /// Appends a few bytes; the block goes out when it is full.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), PipeClosed> {
        if self.block.len() + bytes.len() > BLOCK_BYTES {
            self.flush()?;
        }
        self.block.extend_from_slice(bytes);
        Ok(())
    }

    /// The block being composed, with room for at least `least` more bytes.
    pub(crate) fn block_with_room(&mut self, least: usize) -> Result<&mut Vec<u8>, PipeClosed> {
        if self.block.len() + least > BLOCK_BYTES {
            self.flush()?;
        }
        Ok(&mut self.block)
    }

    /// Hands the block over, waiting while the pipe is full.
    pub(crate) fn flush(&mut self) -> Result<(), PipeClosed> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_BYTES));
        self.blocks
            .blocking_send(Bytes::from(block))
            .map_err(|_| PipeClosed)
    }
}

/// Moves blocks from a file thread to the network until the thread drops its end.
///
/// # Errors
/// The stream's error; the thread then sees [`PipeClosed`].
pub(crate) async fn pump_out<L: LaneWriter>(
    mut lane: L,
    mut blocks: mpsc::Receiver<Bytes>,
    progress: Arc<Progress>,
) -> io::Result<()> {
    while let Some(block) = blocks.recv().await {
        progress.touch();
        lane.write_chunk(block).await?;
    }
    lane.finish().await
}

/// Blocks on their way back to be filled again.
type Spares = Arc<Mutex<Vec<Vec<u8>>>>;

/// The thread's end of an incoming pipe: a byte reader.
pub(crate) struct BlockReader {
    block: Vec<u8>,
    at: usize,
    blocks: mpsc::Receiver<Vec<u8>>,
    spares: Spares,
}

/// The network task's end of an incoming pipe.
pub(crate) struct BlockFeeder {
    blocks: mpsc::Sender<Vec<u8>>,
    spares: Spares,
}

/// An incoming pipe.
pub(crate) fn incoming() -> (BlockFeeder, BlockReader) {
    let (sender, receiver) = mpsc::channel(BLOCKS_IN_PIPE);
    let spares = Spares::default();
    let reader = BlockReader {
        block: Vec::new(),
        at: 0,
        blocks: receiver,
        spares: Arc::clone(&spares),
    };
    (
        BlockFeeder {
            blocks: sender,
            spares,
        },
        reader,
    )
}

impl BlockFeeder {
    fn spare(&self) -> Vec<u8> {
        let spare = self.spares.lock().ok().and_then(|mut spares| spares.pop());
        spare.unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES))
    }

    /// Moves the stream's bytes to the thread until the stream ends.
    ///
    /// A block is handed over when it is full, or when the stream has nothing more right
    /// now and the thread has room. What arrived before an error is handed over too.
    ///
    /// # Errors
    /// The stream's error.
    pub(crate) async fn pump_in<R: AsyncRead + Unpin>(
        self,
        mut stream: R,
        progress: Arc<Progress>,
    ) -> io::Result<()> {
        loop {
            let mut block = self.spare();
            let mut ended = None;
            match stream.read_buf(&mut block).await {
                Ok(0) => return Ok(()),
                Ok(_) => progress.touch(),
                Err(error) => return Err(error),
            }
            let permit = loop {
                if block.len() == block.capacity() || ended.is_some() {
                    break self.blocks.reserve().await;
                }
                tokio::select! {
                    biased;
                    read = stream.read_buf(&mut block) => match read {
                        Ok(0) => ended = Some(Ok(())),
                        Ok(_) => {}
                        Err(error) => ended = Some(Err(error)),
                    },
                    permit = self.blocks.reserve() => break permit,
                }
            };
            match permit {
                Ok(permit) => permit.send(block),
                // The thread gave up; it has told the session why.
                Err(_) => return Ok(()),
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }
}

impl BlockReader {
    /// The next bytes, at most `most` of them and at least one.
    pub(crate) fn some(&mut self, most: usize) -> Result<&[u8], PipeClosed> {
        if self.at == self.block.len() && !self.refill() {
            return Err(PipeClosed);
        }
        let length = most.min(self.block.len() - self.at);
        let start = self.at;
        self.at += length;
        Ok(&self.block[start..start + length])
    }

    fn refill(&mut self) -> bool {
        let Some(next) = self.blocks.blocking_recv() else {
            return false;
        };
        let mut used = std::mem::replace(&mut self.block, next);
        self.at = 0;
        used.clear();
        if used.capacity() >= BLOCK_BYTES
            && let Ok(mut spares) = self.spares.lock()
        {
            spares.push(used);
        }
        true
    }

    /// Whether the stream is at its end; waits for the next block to know.
    pub(crate) fn at_end(&mut self) -> bool {
        self.at == self.block.len() && !self.refill()
    }

    /// Fills `buffer`.
    pub(crate) fn exact(&mut self, buffer: &mut [u8]) -> Result<(), PipeClosed> {
        let mut filled = 0;
        while filled < buffer.len() {
            let bytes = self.some(buffer.len() - filled)?;
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        }
        Ok(())
    }

    /// The next varint.
    pub(crate) fn varint(&mut self) -> Result<u64, PipeClosed> {
        let first = self.some(1)?[0];
        let mut value = u64::from(first & 0x3f);
        for _ in 1..1usize << (first >> 6) {
            value = value << 8 | u64::from(self.some(1)?[0]);
        }
        Ok(value)
    }
}
