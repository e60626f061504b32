//! Every limit of the transfer protocol that a peer could push against, in one place.
//!
//! Both ends enforce them on what they receive; a peer beyond one of them gets a `FATAL`
//! message and the session ends. Nothing here depends on configuration, except where a
//! constant says that it is a default. `docs/transfer-format.md` repeats the numbers.

/// Longest relative path in a manifest, bytes (Linux `PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest single name in a path, bytes (Linux `NAME_MAX`).
pub const MAX_NAME_BYTES: usize = 255;
/// Most names in one path.
pub const MAX_PATH_DEPTH: usize = 128;
/// Largest file, bytes (1 PiB); keeps every sum of sizes below 2^62.
pub const MAX_FILE_SIZE: u64 = 1 << 50;
/// Most entries in one session's manifest.
pub const MAX_ENTRIES: u64 = 10_000_000;
/// Largest body of a control message, bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Longest explanation in a message, bytes; longer ones are cut by the sender and refused by the receiver.
pub const MAX_TEXT_BYTES: usize = 512;
/// Entries a receiver keeps that are announced and not settled; it reads no further manifest beyond.
pub const MAX_UNSETTLED_RECEIVER: usize = 16 * 1024;
/// Entries a sender announces before earlier ones are settled.
pub const MAX_UNSETTLED_SENDER: usize = 64 * 1024;
/// Data streams of one session.
pub const MAX_LANES: usize = 8;
/// Answers or results put into one message; with the longest explanations they fit into 64 KiB.
pub const MAX_ITEMS_PER_MESSAGE: usize = 100;
/// Largest data chunk in a lane, bytes.
pub const MAX_CHUNK_BYTES: u64 = 1 << 20;
/// Failures, as many things left out, and as many files with a wider mode, kept by name in a report;
/// further ones are only counted.
pub const MAX_REPORTED_FAILURES: usize = 1000;

/// Bytes that move between a network task and a file thread at once.
pub const BLOCK_BYTES: usize = 128 * 1024;
/// Blocks waiting between a network task and a file thread.
pub const BLOCKS_IN_PIPE: usize = 3;
/// Stream receive window the commands configure for transfers, bytes.
///
/// What a killed receiver had been sent and not yet written is at most this window, the
/// blocks in its pipe, the block being filled and the one being written. The sender counts a
/// byte when it reads it, so its own pipe and send buffer are in the assertion too.
pub const STREAM_WINDOW: u64 = 2 << 20;
/// Bytes written and not yet sent that one stream may hold.
pub const STREAM_SEND_BUFFER: u64 = 512 << 10;
/// Connection receive window the commands configure for transfers, bytes: the control stream
/// and three lanes can stand still without stopping a fourth.
pub const CONNECTION_WINDOW: u64 = 5 * STREAM_WINDOW;
/// Data of one file that may be sent twice after an interruption, bytes.
pub const MAX_SENT_TWICE: u64 = 4 << 20;
const _: () = assert!(
    STREAM_WINDOW + STREAM_SEND_BUFFER + 2 * ((BLOCKS_IN_PIPE + 2) * BLOCK_BYTES) as u64
        <= MAX_SENT_TWICE,
    "window, send buffer and both pipes together exceed what may be sent twice"
);

/// Smaller files are received in one go and start anew after an interruption, bytes.
pub const RESUMABLE_FROM: u64 = 1 << 20;
const _: () = assert!(
    RESUMABLE_FROM <= MAX_SENT_TWICE,
    "a file too small to resume must be cheap to repeat"
);
