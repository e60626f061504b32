//! What a measured program is asked for, and what it reports.
//!
//! The runner starts one server and one client for each run. A server prints `listening ADDRESS`
//! once bound; both print one line of JSON, a [`Report`], when the measured part is over, and
//! leave. The drivers of other languages read the same flags and print the same fields. [`sessions`] is
//! the same for WebTransport, [`meter`] for the drivers in Rust.

pub mod meter;
pub mod sessions;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// What a server prints before its address.
pub const LISTENING: &str = "listening ";
/// The application protocol of every stack.
pub const ALPN: &str = "bench";
/// The name in the server's certificate.
pub const SERVER_NAME: &str = "localhost";
/// Bytes handed to a stream at once in bulk transfers.
pub const BLOCK: usize = 64 * 1024;
/// Bytes of a message of [`Measure::Echo`].
pub const ECHO_BYTES: usize = 64;
/// Bytes of a datagram of [`Measure::Datagrams`].
pub const DATAGRAM_BYTES: usize = 100;
/// Bytes of a message of [`Measure::Many`].
pub const MESSAGE_BYTES: usize = 200;
/// Milliseconds between two messages of one connection in [`Measure::Many`].
pub const MESSAGE_EVERY_MS: u64 = 100;
/// Handshakes under way at once.
pub const AT_ONCE: u64 = 8;

/// Which end a program plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Binds, prints its address, waits.
    Server,
    /// Connects and drives the measurement.
    Client,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// `bytes` over `streams` streams of each of `connections` connections.
    Bulk,
    /// `count` full handshakes, [`AT_ONCE`] at once; the server closes each connection.
    Handshakes,
    /// `count` round trips of [`ECHO_BYTES`] on one stream.
    Echo,
    /// `connections` connections that say nothing for `seconds`; the client stays until it is killed.
    Idle,
    /// DATAGRAM frames of [`DATAGRAM_BYTES`] from client to server for `seconds`.
    Datagrams,
    /// [`MESSAGE_BYTES`] each [`MESSAGE_EVERY_MS`] on a stream of each of `connections`, for `seconds`.
    Many,
}

/// The one AEAD that both ends offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Aead {
    /// TLS_AES_128_GCM_SHA256.
    #[default]
    Aes128gcm,
    /// TLS_AES_256_GCM_SHA384.
    Aes256gcm,
    /// TLS_CHACHA20_POLY1305_SHA256.
    Chacha20,
}

impl fmt::Display for Aead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Aead::Aes128gcm => "aes128gcm",
            Aead::Aes256gcm => "aes256gcm",
            Aead::Chacha20 => "chacha20",
        })
    }
}

/// The flags of one run.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Where the server listens; port 0 picks a free one
    #[arg(long)]
    pub addr: SocketAddr,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem`
    #[arg(long)]
    pub material: PathBuf,
    /// Bytes of a bulk transfer, all streams together
    #[arg(long, default_value_t = 1 << 30)]
    pub bytes: u64,
    /// The client sends in a bulk transfer, not the server
    #[arg(long)]
    pub upload: bool,
    /// Streams of each connection in a bulk transfer
    #[arg(long, default_value_t = 1)]
    pub streams: u64,
    /// Connections
    #[arg(long, default_value_t = 1)]
    pub connections: u64,
    /// Handshakes or round trips
    #[arg(long, default_value_t = 1)]
    pub count: u64,
    /// How long, where time is what ends a run
    #[arg(long, default_value_t = 1)]
    pub seconds: u64,
    /// UDP payload bytes of full packets, from the first to the last; without it, what the stack finds
    #[arg(long)]
    pub mtu: Option<u16>,
    /// The one AEAD on offer
    #[arg(long, value_enum, default_value_t)]
    pub cipher: Aead,
    /// Seconds of silence that end a connection, where the stack's own default is not meant
    #[arg(long)]
    pub idle_timeout: Option<u64>,
    /// Streams a peer may open, where the stack's own default is not meant
    #[arg(long)]
    pub permitted_streams: Option<u32>,
}

/// What one end saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The stack's version, where the program knows it.
    pub version: Option<String>,
    /// Wall time of the measured part, seconds.
    pub seconds: f64,
    /// User time of this process in the measured part, seconds.
    pub cpu_user: f64,
    /// System time of the same, seconds.
    pub cpu_system: f64,
    /// What was counted: bytes, handshakes, round trips, connections, datagrams or messages.
    pub count: u64,
    /// QUIC packets sent, where the stack tells.
    pub packets_sent: Option<u64>,
    /// UDP payload bytes of those.
    pub bytes_sent: Option<u64>,
    /// QUIC packets received, where the stack tells.
    pub packets_received: Option<u64>,
    /// Heap allocations between a quarter and three quarters of a bulk transfer.
    pub allocations: Option<u64>,
    /// Resident memory before and after, KiB.
    pub resident_kib: Option<(u64, u64)>,
    /// What sealing one packet takes, nanoseconds; of the floor's sender.
    pub seal_ns: Option<f64>,
    /// Round trips, microseconds.
    pub latency: Option<Latency>,
}

impl Report {
    /// Processor time of the measured part, seconds.
    pub fn cpu(&self) -> f64 {
        self.cpu_user + self.cpu_system
    }
}

/// A distribution of round trips, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The shortest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// 99 in 100 are at most this.
    pub p99: f64,
    /// 999 in 1000 are at most this.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}
