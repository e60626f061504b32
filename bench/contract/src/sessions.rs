//! What a program is asked for where WebTransport is measured.
//!
//! The server serves sessions at any path until it is killed; at the end of [`SessionMeasure::Idle`] and
//! [`SessionMeasure::Datagrams`] it prints a [`Report`](crate::Report). The client drives the measurement and
//! prints one.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Where clients ask for sessions.
pub const PATH: &str = "/bench";
/// Bytes of a datagram.
pub const SESSION_DATAGRAM_BYTES: usize = 64;
/// Sessions that a server of [`SessionMeasure::Idle`] has before it looks at its memory.
pub const IDLE_BEFORE: u64 = 50;
/// Sessions, exchanges or datagrams before the first that counts, for a hundred that do.
pub const WARM_UP_PERCENT: u64 = 10;

/// What is measured of WebTransport sessions.
///
/// A stream of the first four begins with eight bytes: how much the server is to send back. What follows
/// up to the end is payload, which the server counts; after what it was to send it sends that count, eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SessionMeasure {
    /// `streams` streams of `bytes` in turn on a session, from client to server; `sessions` times.
    Upload,
    /// The same from server to client.
    Download,
    /// The same in both directions of each stream at once.
    Duplex,
    /// As [`Upload`](Self::Upload), all streams of a session at once.
    Mux,
    /// `count` connections with a session, one after the other, closed as soon as it is ready.
    Handshakes,
    /// The same with an exchange of `bytes` before the close: a stream that is sent back whole.
    Cold,
    /// `count` such exchanges on one session, each on a stream of its own.
    Exchanges,
    /// `count` datagrams, each of which is sent back, one at a time.
    Echo,
    /// Datagrams from client to server for `seconds`, counted there.
    Datagrams,
    /// `sessions` sessions, a connection each, that say nothing; the client stays until it is killed.
    Idle,
}

impl fmt::Display for SessionMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// The flags of one run.
#[derive(Clone, Debug, Args)]
pub struct SessionSettings {
    /// Where the server listens; port 0 picks a free one
    #[arg(long)]
    pub addr: SocketAddr,
    /// Folder with `cert.pem` and `key.pem`, which clients believe by its hash
    #[arg(long)]
    pub material: PathBuf,
    /// Sessions, a connection each
    #[arg(long, default_value_t = 1)]
    pub sessions: u64,
    /// Streams of each session
    #[arg(long, default_value_t = 1)]
    pub streams: u64,
    /// Bytes of each stream, a way
    #[arg(long, default_value_t = 0)]
    pub bytes: u64,
    /// Connections, exchanges or datagrams
    #[arg(long, default_value_t = 1)]
    pub count: u64,
    /// How long, where time is what ends a run
    #[arg(long, default_value_t = 1)]
    pub seconds: u64,
    /// Streams a client may have open, where the stack's own default is not meant
    #[arg(long)]
    pub permitted_streams: Option<u32>,
    /// AES-128-GCM alone, where the stack's own default is not meant
    #[arg(long)]
    pub aes128: bool,
}

impl SessionSettings {
    /// Of `count`, those before the first that counts.
    pub fn warm_up(&self) -> u64 {
        (self.count * WARM_UP_PERCENT).div_ceil(100)
    }
}
