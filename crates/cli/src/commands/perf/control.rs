//! What the ends of a measurement say to each other over its control stream.
//!
//! Messages are JSON objects behind their length: a varint, at most 64 KiB.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline::io::SocketInfo;
use towline::{Endpoint, RecvStream, SendStream};
use towline_transfer::{put_varint, read_varint};

use crate::stats::StatsRecord;

/// Longest control message, bytes.
const MAX_JSON_BYTES: u64 = 64 * 1024;
/// Most streams of one measurement.
pub(crate) const MAX_STREAMS: u8 = 64;

/// What a client asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) session: u64,
    pub(crate) streams: u8,
    /// The server sends.
    pub(crate) reverse: bool,
    /// Bytes in all, if not by time.
    pub(crate) bytes: Option<u64>,
    /// Seconds at the start that do not count.
    pub(crate) omit: f64,
    /// Seconds between the server's interval reports.
    pub(crate) interval: f64,
}

/// What a client says later.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Later {
    /// The measurement is over; the result, please.
    Stop,
}

/// What a server says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// Lanes may come, or are coming.
    Ready { host: HostRecord },
    /// The server's view, every so often.
    Interval { stats: StatsRecord },
    /// What it saw after the omitted seconds.
    Result {
        bytes: u64,
        seconds: f64,
        cpu_seconds: f64,
        stats: StatsRecord,
        /// What its sockets did without, in words.
        #[serde(default)]
        advice: Vec<String>,
    },
    /// It will not.
    Refused { message: String },
}

/// One end's socket and controller.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostRecord {
    pub(crate) congestion: String,
    pub(crate) shards: usize,
    pub(crate) gso_segments: usize,
    pub(crate) gro_segments: usize,
    pub(crate) send_buffer_asked: usize,
    pub(crate) send_buffer_granted: usize,
    pub(crate) recv_buffer_asked: usize,
    pub(crate) recv_buffer_granted: usize,
    /// What was refused, what that costs and what helps.
    pub(crate) advice: Vec<String>,
}

impl HostRecord {
    /// Of an endpoint whose connections are under `congestion`.
    pub(crate) fn new(endpoint: &Endpoint, congestion: String) -> Self {
        let shards = endpoint.shard_stats().len();
        Self::of(&endpoint.socket_info(), shards, congestion)
    }

    fn of(socket: &SocketInfo, shards: usize, congestion: String) -> Self {
        Self {
            congestion,
            shards,
            gso_segments: socket.gso_segments,
            gro_segments: socket.gro_segments,
            send_buffer_asked: socket.send_buffer.asked,
            send_buffer_granted: socket.send_buffer.granted,
            recv_buffer_asked: socket.recv_buffer.asked,
            recv_buffer_granted: socket.recv_buffer.granted,
            advice: advice(socket),
        }
    }
}

/// What a socket does without, a line each.
pub(crate) fn advice(socket: &SocketInfo) -> Vec<String> {
    socket
        .fallbacks()
        .map(|fallback| fallback.to_string())
        .collect()
}

impl std::fmt::Display for HostRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let offload = |segments: usize| {
            if segments > 1 {
                format!("on ({segments} segments)")
            } else {
                "off".to_owned()
            }
        };
        write!(
            f,
            "cc {}, GSO {}, GRO {}, socket buffers send {} of {} KiB, receive {} of {} KiB",
            self.congestion,
            offload(self.gso_segments),
            offload(self.gro_segments),
            self.send_buffer_granted / 1024,
            self.send_buffer_asked / 1024,
            self.recv_buffer_granted / 1024,
            self.recv_buffer_asked / 1024,
        )?;
        if self.shards > 1 {
            write!(f, ", {} shards", self.shards)?;
        }
        for line in &self.advice {
            write!(f, "\n  advice: {line}")?;
        }
        Ok(())
    }
}

/// Sends one control message.
pub(crate) async fn write_json(
    stream: &mut SendStream,
    message: &impl Serialize,
) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(text.len() + 4);
    put_varint(&mut bytes, text.len() as u64);
    bytes.extend_from_slice(&text);
    AsyncWriteExt::write_all(stream, &bytes).await
}

/// Reads one control message; `None` at the end of the stream.
pub(crate) async fn read_json<T: DeserializeOwned>(
    stream: &mut RecvStream,
) -> io::Result<Option<T>> {
    let Some(length) = read_varint(stream).await? else {
        return Ok(None);
    };
    if length > MAX_JSON_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a control message is larger than 64 KiB",
        ));
    }
    let mut text = vec![0; length as usize];
    AsyncReadExt::read_exact(stream, &mut text).await?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests;
