//! `towline stcp echo-server` and `echo-load`: request and response, as many programs use TCP.
//!
//! A request is four bytes of length, big-endian, and as many bytes, which come back. Each client
//! has one connection and one request under way. MB are 10^6 bytes of payload, there and back.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use towline::stcp::{Records, Stream, listen};

use super::flags::{
    Client, ConnectArgs, ListenArgs, assurance, connect_failure, listen_failure, resolve,
};
use crate::exit::{Exit, Failure};
use crate::framed_echo::{self, Connect, Load, Plan};
use crate::interrupt::Interrupt;
use crate::net::reachable;
use crate::printer::Printer;
use crate::units::{counted, parse_positive_duration, parse_size};

/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// Most clients of one load.
const MAX_CLIENTS: u32 = 100_000;

/// Who makes the records.
#[derive(clap::Args)]
struct RecordsArgs {
    /// Have the kernel make the records that are sent (kTLS) from the start, where it can
    #[arg(long, conflicts_with = "plain")]
    kernel: bool,
}

impl RecordsArgs {
    fn who(&self) -> Records {
        match self.kernel {
            true => Records::Kernel,
            false => Records::default(),
        }
    }
}

/// Flags of `echo-server`.
#[derive(clap::Args)]
pub(crate) struct EchoServerArgs {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4434")]
    listen: SocketAddr,
    /// Plain TCP without encryption, to compare
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    records: RecordsArgs,
    #[command(flatten)]
    peers: ListenArgs,
}

/// What a server did.
#[derive(Default)]
struct Served {
    connections: u64,
    failed: u64,
    requests: u64,
}

impl EchoServerArgs {
    /// Serves until Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let interrupt = Interrupt::install(printer);
        let unbound = |error| listen_failure(self.listen, &error);
        if self.plain {
            let listener = TcpListener::bind(self.listen).await.map_err(unbound)?;
            let address = listener.local_addr().map_err(unbound)?;
            printer.note("towline: note: --plain: everything here is sent in clear");
            printer.line(format_args!("listening {address}, in clear"));
            let server = reachable(address);
            printer.line(format_args!("  towline stcp echo-load --plain {server}"));
            printer.record(&json!({
                "schema": "towline.listening/1", "address": address.to_string(), "plain": true,
            }));
            return Ok(serve(interrupt, printer, async || {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .await);
        }
        let server = self.peers.server(self.records.who(), printer)?;
        let flags = server.client_flags.clone();
        let pin = server.pin();
        let mut listener = listen(self.listen, server.config).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        printer.line(format_args!("listening {address}"));
        let server = reachable(address);
        printer.line(format_args!("  towline stcp echo-load {server} {flags}"));
        printer.record(&json!({
            "schema": "towline.listening/1", "address": address.to_string(), "plain": false,
            "pin": pin,
        }));
        Ok(serve(interrupt, printer, async || {
            let (stream, peer) = listener.accept().await?;
            tracing::info!(%peer, peer_is = assurance(stream.authentication()), "connected");
            Ok(stream)
        })
        .await)
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    mut interrupt: Interrupt,
    printer: Printer,
    mut accept: impl AsyncFnMut() -> io::Result<S>,
) -> Exit {
    let mut serving = JoinSet::new();
    let mut served = Served::default();
    loop {
        tokio::select! {
            accepted = accept() => match accepted {
                Ok(stream) => {
                    served.connections += 1;
                    serving.spawn(framed_echo::serve(stream));
                }
                Err(error) => {
                    tracing::warn!("accept: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(ended) = serving.join_next() => match ended {
                Ok(Ok(requests)) => served.requests += requests,
                Ok(Err(error)) => {
                    served.failed += 1;
                    tracing::info!("a connection broke: {error}");
                }
                Err(error) => tracing::warn!("{error}"),
            },
            () = interrupt.wait() => break,
        }
    }
    printer.line(format_args!(
        "{}, {} of them broken; {} in those that ended in order",
        counted(served.connections, "connection"),
        served.failed,
        counted(served.requests, "request"),
    ));
    printer.record(&json!({
        "schema": "towline.stcp.echo-server/1",
        "connections": served.connections,
        "failed": served.failed,
        "requests": served.requests,
    }));
    Exit::Interrupted
}

/// Flags of `echo-load`.
#[derive(clap::Args)]
pub(crate) struct EchoLoadArgs {
    /// The server, HOST:PORT
    #[arg(value_name = "SERVER")]
    server: String,
    /// Connections, each with one request under way
    #[arg(short, long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)))]
    clients: u32,
    /// How long to measure
    #[arg(short = 't', long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Bytes of each payload, up to 16 MiB
    #[arg(short, long, value_name = "SIZE", default_value = "256", value_parser = parse_size)]
    size: u64,
    /// Plain TCP without encryption, to compare
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    records: RecordsArgs,
    #[command(flatten)]
    peers: ConnectArgs,
}

/// With whom, and how.
#[derive(Default, Serialize)]
struct About {
    authentication: Option<&'static str>,
    cipher_suite: Option<&'static str>,
    key_exchange: Option<&'static str>,
    /// Who makes them.
    records: Option<&'static str>,
}

#[derive(Serialize)]
struct Record<'a> {
    schema: &'static str,
    server: &'a str,
    plain: bool,
    #[serde(flatten)]
    about: About,
    clients: u32,
    size: u64,
    seconds: f64,
    requests: u64,
    requests_per_s: f64,
    mb_per_s: f64,
    avg_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    connect_errors: u64,
    errors: u64,
}

impl EchoLoadArgs {
    /// Measures for as long as it was told, or until Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        if self.size > framed_echo::MAX_PAYLOAD as u64 {
            return Err(Failure::usage(format!(
                "--size {}: at most 16 MiB",
                self.size
            )));
        }
        let mut interrupt = Interrupt::install(printer);
        let (load, about) = tokio::select! {
            measured = self.measure(printer) => measured?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let seconds = self.duration.as_secs_f64();
        let times = &load.latencies;
        let requests_per_s = times.count() as f64 / seconds;
        show(
            &Record {
                schema: "towline.stcp.echo-load/1",
                server: &self.server,
                plain: self.plain,
                about,
                clients: self.clients,
                size: self.size,
                seconds,
                requests: times.count(),
                requests_per_s,
                mb_per_s: requests_per_s * 2.0 * self.size as f64 / 1e6,
                avg_ms: times.mean_ms(),
                p50_ms: times.quantile_ms(0.5),
                p95_ms: times.quantile_ms(0.95),
                p99_ms: times.quantile_ms(0.99),
                connect_errors: load.connect_errors,
                errors: load.errors,
            },
            printer,
        );
        Ok(match load.connect_errors + load.errors {
            0 => Exit::Ok,
            _ => Exit::Partial,
        })
    }

    async fn measure(&self, printer: Printer) -> Result<(Load, About), Failure> {
        if self.plain {
            printer.note("towline: note: --plain: everything here is sent in clear");
            let connect = Plain(resolve(&self.server).await?);
            let tried = connect.connect().await;
            tried.map_err(|error| connect_failure(&error.into(), &self.server))?;
            return Ok((self.load(connect).await, About::default()));
        }
        let client = self
            .peers
            .client(&self.server, self.records.who(), printer)
            .await?;
        // One to see whether it works at all, and with whom.
        let stream = client.open().await;
        let stream = stream.map_err(|error| connect_failure(&error, &self.server))?;
        let about = About {
            authentication: Some(assurance(stream.authentication())),
            cipher_suite: stream.cipher_suite().as_str(),
            key_exchange: stream.key_exchange().and_then(|group| group.as_str()),
            records: Some(match stream.is_in_kernel() {
                true => "kernel",
                false => "user space",
            }),
        };
        let mut first = framed_echo::Client::new(stream, 8);
        first.exchange().await.map_err(|error| {
            Failure::new(Exit::Tls, format!("{}: {error}", self.server))
                .next("a server that lets in only known clients needs our pin: `towline stcp key`")
        })?;
        // How it ends says nothing more.
        let _ = first.finish().await;
        Ok((self.load(client).await, about))
    }

    async fn load(&self, connect: impl Connect) -> Load {
        let plan = Plan {
            clients: self.clients as usize,
            payload: self.size as usize,
            duration: self.duration,
        };
        framed_echo::load(connect, plan).await
    }
}

fn show(record: &Record<'_>, printer: Printer) {
    let about = &record.about;
    printer.line(format_args!(
        "{} of {} bytes each, {} s: {}",
        counted(record.clients.into(), "client"),
        record.size,
        record.seconds,
        match (about.authentication, about.cipher_suite) {
            (Some(authentication), Some(cipher)) => format!("server {authentication}, {cipher}"),
            _ => "in clear".to_owned(),
        }
    ));
    printer.line(format_args!(
        "{:.0} req/s  {:.1} MB/s  avg/p50/p95/p99 {:.3}/{:.3}/{:.3}/{:.3} ms",
        record.requests_per_s,
        record.mb_per_s,
        record.avg_ms,
        record.p50_ms,
        record.p95_ms,
        record.p99_ms,
    ));
    printer.line(format_args!(
        "{}, {}",
        counted(record.connect_errors, "connect error"),
        counted(record.errors, "operation error"),
    ));
    printer.record(record);
}

impl Connect for Client {
    type Stream = Stream;

    async fn connect(&self) -> io::Result<Stream> {
        Ok(self.open().await?)
    }
}

/// Plain TCP.
#[derive(Clone)]
struct Plain(Vec<SocketAddr>);

impl Connect for Plain {
    type Stream = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.0[..]).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
