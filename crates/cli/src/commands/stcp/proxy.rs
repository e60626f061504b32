//! `towline stcp proxy`: secure TCP for programs that stay as they are, as stunnel is used.
//!
//! `client` takes clear connections of local programs and carries them encrypted; `server` takes
//! encrypted ones and hands them to a local program in clear. Ends are carried through, and a cut
//! is a reset on the other side. SIGTERM: no new connections, and those that there are may end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use towline::stcp::{
    ConnectError, ListenerCounters, Records, RefusalLog, SpliceError, Spliced, Stream, listen,
    splice,
};

use super::flags::{Client, ConnectArgs, ListenArgs, assurance, listen_failure, resolve};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::MetricsArgs;
use crate::net::reachable;
use crate::printer::Printer;
use crate::stats;
use crate::units::{Bytes, counted, parse_duration};

/// Every byte passes through us anyway, and these records can follow a peer's new key.
const RECORDS: Records = Records::UserSpace;
/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the way to the other program may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Flags of `proxy`.
#[derive(clap::Args)]
pub(crate) struct ProxyArgs {
    #[command(subcommand)]
    side: Side,
}

#[derive(clap::Subcommand)]
enum Side {
    /// Clear in, encrypted out: beside a client program
    Client(ClientSide),
    /// Encrypted in, clear out: beside a server program
    Server(ServerSide),
}

/// Flags of both sides.
#[derive(clap::Args)]
struct Common {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Where connections go, HOST:PORT
    #[arg(long, value_name = "SERVER")]
    connect: String,
    /// Connections at once; more wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_connections: u32,
    /// How long connections may go on after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    drain: Duration,
    #[command(flatten)]
    metrics: MetricsArgs,
}

#[derive(clap::Args)]
struct ClientSide {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    peers: ConnectArgs,
}

#[derive(clap::Args)]
struct ServerSide {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    peers: ListenArgs,
}

impl ProxyArgs {
    /// Carries connections until Ctrl-C or SIGTERM.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let interrupt = Interrupt::install(printer);
        match self.side {
            Side::Client(side) => side.run(interrupt, printer).await,
            Side::Server(side) => side.run(interrupt, printer).await,
        }
    }
}

impl ClientSide {
    async fn run(self, interrupt: Interrupt, printer: Printer) -> Result<Exit, Failure> {
        let common = &self.common;
        let metrics = common.metrics.bind().await?;
        let client = self.peers.client(&common.connect, RECORDS, printer).await?;
        let unbound = |error| listen_failure(common.listen, &error);
        let listener = TcpListener::bind(common.listen).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        printer.line(format_args!(
            "listening {address} in clear, for {} over TLS",
            common.connect
        ));
        if !address.ip().is_loopback() {
            printer.note(format_args!(
                "towline: note: what comes to {address} comes in clear"
            ));
        }
        printer.record(&json!({
            "schema": "towline.listening/1", "address": address.to_string(),
            "connect": common.connect, "side": "client",
        }));
        let mut proxy = Proxy::new(common, interrupt);
        let counts = Arc::clone(&proxy.counts);
        let _metrics = metrics.serve(printer, move |text| {
            text.stats("stcp_proxy", &counts.so_far());
        });
        proxy
            .serve(
                async || listener.accept().await,
                |clear, peer, counts| outwards(clear, peer, client.clone(), counts),
            )
            .await;
        Ok(proxy.finish(None, printer).await)
    }
}

impl ServerSide {
    async fn run(self, interrupt: Interrupt, printer: Printer) -> Result<Exit, Failure> {
        let common = &self.common;
        let metrics = common.metrics.bind().await?;
        let server = self.peers.server(RECORDS, printer)?;
        let (flags, pin) = (server.client_flags.clone(), server.pin());
        // Wrong at the start, it is told at the start; later it may have moved.
        resolve(&common.connect).await?;
        let program: Arc<str> = common.connect.as_str().into();
        let unbound = |error| listen_failure(common.listen, &error);
        let mut listener = listen(common.listen, server.config)
            .await
            .map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        printer.line(format_args!(
            "listening {address} for TLS, for {} in clear",
            common.connect
        ));
        printer.line(format_args!(
            "  towline stcp proxy client --listen 127.0.0.1:PORT --connect {} {flags}",
            reachable(address)
        ));
        printer.record(&json!({
            "schema": "towline.listening/1", "address": address.to_string(),
            "connect": common.connect, "side": "server", "pin": pin,
        }));
        let mut proxy = Proxy::new(common, interrupt);
        let (counts, handshakes) = (Arc::clone(&proxy.counts), listener.watch_counters());
        let _metrics = metrics.serve(printer, move |text| {
            text.stats("stcp_proxy", &counts.so_far());
            text.stats("stcp_handshakes", &*handshakes.borrow());
        });
        proxy
            .serve(
                async || listener.accept().await,
                |secure, peer, counts| inwards(secure, peer, Arc::clone(&program), counts),
            )
            .await;
        // Nobody new is heard from now on.
        let handshakes = listener.close().await;
        Ok(proxy.finish(Some(handshakes), printer).await)
    }
}

/// A local program's connection, to the server.
async fn outwards(clear: TcpStream, peer: SocketAddr, client: Client, counts: Arc<Counts>) {
    let prepared = clear.set_nodelay(true).map_err(ConnectError::from);
    let opened = match prepared {
        Ok(()) => client.open().await,
        Err(error) => Err(error),
    };
    match opened {
        Ok(secure) => counts.on_end(peer, splice(clear, secure).await),
        Err(error) => {
            // A reset, as nothing that came is an answer.
            let _ = clear.set_zero_linger();
            counts.not_connected(peer, &error);
        }
    }
}

/// A peer's connection, to the local program.
async fn inwards(secure: Stream, peer: SocketAddr, to: Arc<str>, counts: Arc<Counts>) {
    tracing::info!(%peer, peer_is = assurance(secure.authentication()), "connected");
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&*to)).await;
    let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    match connected.and_then(|clear| clear.set_nodelay(true).map(|()| clear)) {
        Ok(clear) => counts.on_end(peer, splice(clear, secure).await),
        // Dropped without close_notify: the peer sees a cut.
        Err(error) => counts.not_connected(peer, &error),
    }
}

/// What became of connections.
struct Counts {
    accepted: AtomicU64,
    ended: AtomicU64,
    cut: AtomicU64,
    not_connected: AtomicU64,
    sealed: AtomicU64,
    opened: AtomicU64,
    /// Peers decide how often.
    log: RefusalLog,
}

/// The same at one moment.
struct Connections {
    accepted: u64,
    ended: u64,
    cut: u64,
    not_connected: u64,
    bytes_encrypted: u64,
    bytes_decrypted: u64,
}

towline::engine::visit_fields! { Connections:
    Counter accepted: Count, "Connections taken";
    Counter ended: Count, "Connections that ended in order";
    Counter cut: Count, "Connections that were cut off";
    Counter not_connected: Count, "Connections that found nobody to be carried to";
    Counter bytes_encrypted: Bytes, "Bytes carried out, once their connection is over";
    Counter bytes_decrypted: Bytes, "Bytes carried in, once their connection is over";
}

impl Counts {
    fn so_far(&self) -> Connections {
        let of = |count: &AtomicU64| count.load(Relaxed);
        Connections {
            accepted: of(&self.accepted),
            ended: of(&self.ended),
            cut: of(&self.cut),
            not_connected: of(&self.not_connected),
            bytes_encrypted: of(&self.sealed),
            bytes_decrypted: of(&self.opened),
        }
    }

    fn new() -> Self {
        Self {
            accepted: AtomicU64::default(),
            ended: AtomicU64::default(),
            cut: AtomicU64::default(),
            not_connected: AtomicU64::default(),
            sealed: AtomicU64::default(),
            opened: AtomicU64::default(),
            log: RefusalLog::of("not connected"),
        }
    }

    fn on_end(&self, peer: SocketAddr, result: Result<Spliced, SpliceError>) {
        let spliced = match result {
            Ok(spliced) => {
                self.ended.fetch_add(1, Relaxed);
                spliced
            }
            Err(error) => {
                self.cut.fetch_add(1, Relaxed);
                tracing::info!(%peer, "cut off: {error}");
                error.spliced
            }
        };
        self.sealed.fetch_add(spliced.sealed, Relaxed);
        self.opened.fetch_add(spliced.opened, Relaxed);
    }

    fn not_connected(&self, peer: SocketAddr, why: &impl std::fmt::Display) {
        self.not_connected.fetch_add(1, Relaxed);
        self.log.say(why, |line| tracing::warn!(%peer, "{line}"));
    }
}

/// Connections under way and how they end.
struct Proxy {
    interrupt: Interrupt,
    drain: Duration,
    places: Arc<Semaphore>,
    splices: JoinSet<()>,
    counts: Arc<Counts>,
}

impl Proxy {
    fn new(common: &Common, interrupt: Interrupt) -> Self {
        Self {
            interrupt,
            drain: common.drain,
            places: Arc::new(Semaphore::new(common.max_connections.max(1) as usize)),
            splices: JoinSet::new(),
            counts: Arc::new(Counts::new()),
        }
    }

    /// Accepts until Ctrl-C, as long as there are places.
    async fn serve<S, F: Future<Output = ()> + Send + 'static>(
        &mut self,
        mut accept: impl AsyncFnMut() -> std::io::Result<(S, SocketAddr)>,
        carry: impl Fn(S, SocketAddr, Arc<Counts>) -> F,
    ) {
        loop {
            let places = Arc::clone(&self.places);
            let accepting = async {
                // Closed never: the semaphore is ours.
                let place = places.acquire_owned().await.ok();
                (accept().await, place)
            };
            let (accepted, place): (_, Option<OwnedSemaphorePermit>) = tokio::select! {
                accepted = accepting => accepted,
                Some(_) = self.splices.join_next() => continue,
                () = self.interrupt.wait() => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    self.counts.accepted.fetch_add(1, Relaxed);
                    let carrying = carry(stream, peer, Arc::clone(&self.counts));
                    self.splices.spawn(async move {
                        carrying.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!("accept: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Lets connections end, then cuts those that are left, and tells.
    async fn finish(mut self, handshakes: Option<ListenerCounters>, printer: Printer) -> Exit {
        let under_way = self.splices.len() as u64;
        let ending = async { while self.splices.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.drain, ending).await;
        let left = self.splices.len() as u64;
        self.splices.shutdown().await;
        let counts = self.counts.so_far();
        let handshakes = handshakes.unwrap_or_default();
        printer.line(format_args!(
            "{}: {} ended in order, {} cut off, {} not connected, {left} of {under_way} left at the end",
            counted(counts.accepted, "connection"),
            counts.ended,
            counts.cut,
            counts.not_connected,
        ));
        printer.line(format_args!(
            "{} encrypted, {} decrypted; {} refused, {} silent, {} dropped",
            Bytes(counts.bytes_encrypted),
            Bytes(counts.bytes_decrypted),
            handshakes.refused,
            handshakes.timed_out,
            handshakes.dropped,
        ));
        let mut record = stats::record(&handshakes);
        // `accepted` is of connections: both count those whose handshake ended well.
        record.append(&mut stats::record(&counts));
        record.insert("schema".to_owned(), "towline.stcp.proxy/1".into());
        record.insert("left".to_owned(), left.into());
        printer.record(&record);
        Exit::Interrupted
    }
}
