//! `towline perf`: throughput between two ends, with the letters of iperf3.
//!
//! `client` asks over a control stream, `server` (and `serve`) answers; data runs over
//! lanes in one direction. Control messages are JSON objects behind their length: a varint,
//! at most 64 KiB.

mod client;
mod host;
mod report;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use towline::config::{Cipher, CipherPreference, KeyExchange, KeyExchangePreference, Options};
use towline::io::{MAX_SHARDS, SocketInfo};
use towline::{Endpoint, RecvStream, SendStream};
use towline_transfer::{put_varint, read_varint};

pub(crate) use host::PerfHost;

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::{self, MetricsArgs};
use crate::net::{ListenArgs, options};
use crate::printer::Printer;
use crate::service::{Service, run_until_interrupted};
use crate::stats::{self, StatsRecord};
use crate::units::Bytes;

/// Longest control message, bytes.
const MAX_JSON_BYTES: u64 = 64 * 1024;
/// Most streams of one measurement.
const MAX_STREAMS: u8 = 64;

/// Flags of `perf`.
#[derive(clap::Args)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

#[derive(clap::Subcommand)]
enum PerfCommand {
    /// Wait for clients and measure with them
    Server(ServerArgs),
    /// Measure against a server
    Client(client::ClientArgs),
}

/// What both ends may choose.
#[derive(Clone, Debug, clap::Args)]
struct TuneArgs {
    /// Use only this cipher: aes128gcm, aes256gcm, chacha20
    #[arg(long, value_name = "NAME")]
    cipher: Option<Cipher>,
    /// Use only this key exchange: x25519mlkem768, x25519, p256
    #[arg(long, value_name = "NAME")]
    kx: Option<KeyExchange>,
    /// UDP payload bytes of full packets
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1200..=65507))]
    mtu: Option<u16>,
}

impl TuneArgs {
    fn apply(&self, options: &mut Options) {
        if let Some(mtu) = self.mtu {
            options.transport.mtu = mtu;
        }
        if let Some(cipher) = self.cipher {
            options.ciphers = CipherPreference::only(cipher);
        }
        if let Some(kx) = self.kx {
            options.key_exchanges = KeyExchangePreference::only(kx);
        }
    }
}

/// Flags of `perf server`.
#[derive(clap::Args)]
struct ServerArgs {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4433")]
    listen: SocketAddr,
    /// Endpoint shards, 1 to 64, to use as many cores: each has its own socket on the port and
    /// its share of the connections. One connection uses one shard
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=MAX_SHARDS as i64))]
    shards: u8,
    #[command(flatten)]
    tune: TuneArgs,
    #[command(flatten)]
    network: ListenArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl PerfArgs {
    /// Whether it waits for clients.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.command, PerfCommand::Server(_))
    }

    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            PerfCommand::Client(args) => args.run(printer).await,
            PerfCommand::Server(args) => args.run(printer).await,
        }
    }
}

impl ServerArgs {
    async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let interrupt = Interrupt::install(printer);
        let (received, ends) = mpsc::unbounded_channel();
        let mut service = Service::new(printer, interrupt, received);
        let mut options = options(self.network.idle_timeout, &self.network.congestion);
        self.tune.apply(&mut options);
        let metrics = self.metrics.bind().await?;
        let listening = self.network.listen_on_shards(
            self.listen,
            &options,
            usize::from(self.shards),
            printer,
        )?;
        let endpoint = listening.endpoint.clone();
        service.perf = Some(PerfHost::new(
            endpoint.clone(),
            self.network.congestion.name(),
        ));
        let url = listening.url();
        printer.line(format_args!("listening {}", endpoint.local_addr()));
        printer.line(format_args!("  towline perf client '{url}'"));
        let socket = HostRecord::new(&endpoint, self.network.congestion.name());
        printer.line(&socket);
        printer.record(&json!({
            "schema": "towline.listening/1",
            "address": endpoint.local_addr().to_string(),
            "url": url.to_string(),
            "host": socket,
        }));
        let _metrics = metrics.serve(printer, metrics::endpoint(endpoint.clone()));
        run_until_interrupted(Arc::new(service), endpoint.clone(), ends, |_| false).await;
        if self.shards > 1 {
            print_shards(&endpoint, printer);
        }
        Ok(Exit::Interrupted)
    }
}

/// What each shard did, at the end.
fn print_shards(endpoint: &Endpoint, printer: Printer) {
    let shards: Vec<_> = endpoint
        .shard_stats()
        .into_iter()
        .enumerate()
        .map(|(index, shard)| {
            printer.line(format_args!(
                "shard {index}: {} connections, {} refused, {} Retry, {} in, {} out, {} datagrams handed over",
                shard.engine.admitted,
                shard.engine.refused,
                shard.engine.retries,
                Bytes(shard.socket.bytes_received),
                Bytes(shard.socket.bytes_sent),
                shard.socket.datagrams_handed_over,
            ));
            json!({
                "connections": shard.engine.admitted,
                "refused": shard.engine.refused,
                "refusals": shard.engine.refusals,
                "invalid_tokens": shard.engine.invalid_tokens,
                "retries": shard.engine.retries,
                "version_negotiations": shard.engine.version_negotiations,
                "resets": shard.engine.resets,
                "unroutable": shard.engine.unroutable,
                "over_budget": shard.engine.over_budget,
                "stateless_work": shard.engine.stateless_work,
                "bytes_received": shard.socket.bytes_received,
                "bytes_sent": shard.socket.bytes_sent,
                "datagrams_handed_over": shard.socket.datagrams_handed_over,
                "engine": stats::record(&shard.engine),
                "socket": stats::record(&shard.socket),
            })
        })
        .collect();
    printer.record(&json!({ "schema": "towline.shards/1", "shards": shards }));
}

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
    fn new(endpoint: &Endpoint, congestion: String) -> Self {
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
fn advice(socket: &SocketInfo) -> Vec<String> {
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
