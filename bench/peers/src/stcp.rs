//! The framed echo over TLS by tokio-rustls: what secure TCP is held against.
//!
//! The echo itself, its load and its figures are the `towline` command's ([`crate::echo`]), as for every stack; only
//! the stream is another. Runtime and sockets are set up as `towline stcp` does.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench_contract::{LISTENING, Role, SERVER_NAME, Settings};
use clap::Parser;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use towline::config::Trust;
use towline::stcp::{ClientConfig, Options, Stream, client_config, connect};

use crate::echo::{self, Connect, Plan};
use crate::material::{authority, client_tls, server_tls};
use crate::{Result, exit};

/// One end of the echo. Of the settings, `connections` are the clients, `bytes` a payload's.
#[derive(Parser)]
struct Cli {
    role: Role,
    /// The client opens its connections, uses each once, and holds them until it is killed
    #[arg(long)]
    hold: bool,
    /// The client is this project's, by its public API
    #[arg(long)]
    towline: bool,
    #[command(flatten)]
    settings: Settings,
}

/// What a client that holds its connections prints once it has them.
pub const HOLDING: &str = "holding";

/// Bytes of the one payload on each of them.
const HELD_PAYLOAD: usize = 64;

/// The body of the binary.
pub fn main() -> ExitCode {
    execute("bench-stcp-peer", run(&Cli::parse()))
}

/// Runs `program` to its end, on the runtime that every end of this echo has.
pub fn execute(program: &str, work: impl Future<Output = Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(error.into()),
    };
    exit(program, result)
}

async fn run(cli: &Cli) -> Result<()> {
    let settings = &cli.settings;
    match cli.role {
        Role::Server => {
            let acceptor = TlsAcceptor::from(Arc::new(server_tls(settings)?));
            serve(settings, |tcp| acceptor.accept(tcp)).await
        }
        Role::Client => {
            if cli.hold && cli.towline {
                return hold(Towline::new(settings)?, settings).await;
            }
            let connect = Rustls {
                connector: TlsConnector::from(Arc::new(client_tls(settings)?)),
                address: settings.addr,
            };
            if cli.hold {
                return hold(connect, settings).await;
            }
            measure(connect, settings).await
        }
    }
}

/// The echo's server; `accept` is the server's side of a handshake.
///
/// # Errors
/// The system has no listener for it, or no more connections.
pub async fn serve<S, H>(settings: &Settings, accept: impl Fn(TcpStream) -> H) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Future<Output = io::Result<S>> + Send + 'static,
{
    let listener = TcpListener::bind(settings.addr).await?;
    println!("{LISTENING}{}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let accepting = accept(tcp);
        tokio::spawn(async move { echo::serve(accepting.await?).await });
    }
}

/// The load, and its figures as `towline stcp echo-load` prints them.
///
/// # Errors
/// The settings ask for what there is no memory for.
pub async fn measure(connect: impl Connect, settings: &Settings) -> Result<()> {
    let plan = Plan {
        clients: usize::try_from(settings.connections)?,
        payload: usize::try_from(settings.bytes)?,
        duration: Duration::from_secs(settings.seconds),
    };
    let load = echo::load(connect, plan).await;
    let times = &load.latencies;
    let requests_per_s = times.count() as f64 / plan.duration.as_secs_f64();
    println!(
        "{}",
        json!({
            "schema": "towline.stcp.echo-load/1",
            "requests": times.count(),
            "requests_per_s": requests_per_s,
            "mb_per_s": requests_per_s * 2.0 * settings.bytes as f64 / 1e6,
            "avg_ms": times.mean_ms(),
            "p50_ms": times.quantile_ms(0.5),
            "p95_ms": times.quantile_ms(0.95),
            "p99_ms": times.quantile_ms(0.99),
            "connect_errors": load.connect_errors,
            "errors": load.errors,
        })
    );
    Ok(())
}

async fn hold(connect: impl Connect, settings: &Settings) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..settings.connections {
        let mut client = echo::Client::new(connect.connect().await?, HELD_PAYLOAD);
        client.exchange().await?;
        held.push(client);
    }
    println!("{HOLDING}");
    std::future::pending().await
}

#[derive(Clone)]
struct Towline {
    config: ClientConfig,
    address: SocketAddr,
}

impl Towline {
    fn new(settings: &Settings) -> Result<Self> {
        let trust = Trust::roots_from_pem(&authority(settings)?)?;
        Ok(Self {
            config: client_config(&trust, None, &Options::default())?,
            address: settings.addr,
        })
    }
}

impl Connect for Towline {
    type Stream = Stream;

    async fn connect(&self) -> io::Result<Stream> {
        Ok(connect(self.address, SERVER_NAME, &self.config).await?)
    }
}

#[derive(Clone)]
struct Rustls {
    connector: TlsConnector,
    address: SocketAddr,
}

impl Connect for Rustls {
    type Stream = TlsStream<TcpStream>;

    async fn connect(&self) -> io::Result<Self::Stream> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
        self.connector.connect(name, tcp).await
    }
}
