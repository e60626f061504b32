//! A Signal K server: deltas over WebSocket, TCP or UDP.
//!
//! A task connects and writes. Records go to it through a short queue that goes with the connection, so that a new one
//! begins with what it is given then.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::promise::SinkError;
use crate::source::signalk::TCP_PORT;
use crate::url::Url;
use crate::websocket::{self, Request};
use crate::{Backoff, BadUrl, Entry, Status, connect};

/// Cap: KiB of text that wait to be written to a live server; a larger delta goes alone.
pub(crate) const MAX_UNSENT: usize = 1_024;

/// The longest text of a delta for a server; it has to fit into what waits to be written.
const MAX_TEXT: usize = websocket::MAX_UNWRITTEN / 2;

/// Bytes of a UDP datagram's payload, at most.
const MAX_DATAGRAM: usize = 65_507;

/// A server that takes nothing for so long is away.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A WebSocket server is asked so often whether it is there.
const PING_EVERY: Duration = Duration::from_secs(15);
/// One that was there for so long is tried again soon.
const LONG: Duration = Duration::from_secs(10);
/// It may leave so many questions unanswered.
const MAX_UNANSWERED: u32 = 3;

/// Which server.
#[derive(Clone, Debug)]
pub struct SignalKSinkOptions {
    /// `ws://host:3000`, `wss://host`, `tcp://host:8375` or `udp://host:port`.
    pub url: String,
    /// A token that the server gave out and that may write, for WebSockets.
    pub token: Option<String>,
    /// The TLS of `wss://`; `None` is [`system_roots`](crate::system_roots).
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl SignalKSinkOptions {
    /// Without a token.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            tls: None,
        }
    }
}

/// A sink to a Signal K server. Its task ends when it is dropped.
pub struct SignalK {
    link: watch::Receiver<Link>,
    /// The longest text that a message holds.
    most: usize,
    task: AbortHandle,
}

struct Link {
    status: Status,
    /// While the connection is up.
    queue: Option<Queue>,
    /// How often it was.
    connections: u64,
}

impl fmt::Debug for SignalK {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalK")
            .field("status", &self.status())
            .finish()
    }
}

impl Drop for SignalK {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What goes to the connection, and the room for it.
#[derive(Clone)]
struct Queue {
    texts: mpsc::UnboundedSender<Text>,
    room: Arc<Semaphore>,
}

/// A delta, and its part of the room.
type Text = (String, OwnedSemaphorePermit);

impl Queue {
    fn new() -> (Self, mpsc::UnboundedReceiver<Text>) {
        let (texts, queued) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(MAX_UNSENT));
        (Self { texts, room }, queued)
    }

    /// Waits for room; whether the connection is still there.
    async fn send(&self, text: String) -> bool {
        let kib = (text.len() / 1_024 + 1).min(MAX_UNSENT);
        let room = Arc::clone(&self.room).acquire_many_owned(kib as u32);
        // When the connection ends, what waits for it gives its room back, and the text finds nobody.
        match room.await {
            Ok(room) => self.texts.send((text, room)).is_ok(),
            Err(_) => false,
        }
    }
}

enum Way {
    WebSocket(Box<Request>),
    Tcp { host: String, port: u16 },
    Udp { host: String, port: u16 },
}

impl SignalK {
    pub(super) fn new(options: SignalKSinkOptions) -> Result<Self, BadUrl> {
        let bad = |reason: &str| BadUrl::new(&options.url, reason);
        let url = Url::parse(&options.url)?;
        if url.host.is_empty() {
            return Err(bad("it has no host"));
        }
        let is_web_socket = matches!(url.scheme.as_str(), "ws" | "wss");
        if options.token.is_some() && !is_web_socket {
            return Err(bad("a token goes with ws:// and wss:// only"));
        }
        let way = match url.scheme.as_str() {
            "ws" | "wss" => {
                let token = options.token.as_deref();
                let tls = options.tls.clone();
                let request = Request::new(&options.url, "subscribe=none", token, tls)?;
                Way::WebSocket(Box::new(request))
            }
            "tcp" => {
                let port = url.port.unwrap_or(TCP_PORT);
                Way::Tcp {
                    host: url.host,
                    port,
                }
            }
            "udp" => {
                let port = url.port.ok_or_else(|| bad("it has no port"))?;
                Way::Udp {
                    host: url.host,
                    port,
                }
            }
            _ => return Err(bad("ws://, wss://, tcp:// and udp:// are known")),
        };
        let most = match way {
            Way::Udp { .. } => MAX_DATAGRAM,
            _ => MAX_TEXT,
        };
        let (tell, link) = watch::channel(Link {
            status: Status::Connecting,
            queue: None,
            connections: 0,
        });
        let task = tokio::spawn(keep_up(way, tell));
        Ok(Self {
            link,
            most,
            task: task.abort_handle(),
        })
    }

    pub(super) fn status(&self) -> Status {
        self.link.borrow().status.clone()
    }

    pub(super) fn connections(&self) -> u64 {
        self.link.borrow().connections
    }

    pub(super) async fn changed(&mut self) {
        if self.link.changed().await.is_err() {
            // The task lives as long as this does.
            std::future::pending().await
        }
    }

    pub(super) async fn deliver(&self, entries: &[Entry]) -> Result<(), SinkError> {
        let queue = {
            let link = self.link.borrow();
            match (&link.queue, &link.status) {
                (Some(queue), _) => queue.clone(),
                (None, Status::Down { why }) => return Err(SinkError::passing(why.clone())),
                (None, _) => return Err(SinkError::passing("the server is being connected to")),
            }
        };
        for entry in entries {
            let text = towline_link::named_by_source(&entry.record).to_json();
            let len = text.len();
            if len > self.most {
                let most = self.most;
                let what = match most {
                    MAX_DATAGRAM => format!(
                        "a delta of {len} bytes does not fit into a UDP datagram: use tcp:// or ws://"
                    ),
                    _ => format!("a delta of {len} bytes: a server is given {most} at most"),
                };
                return Err(SinkError::of_entry(entry.seq, what));
            }
            if !queue.send(text).await {
                return Err(SinkError::passing("the connection to the server is gone"));
            }
        }
        Ok(())
    }
}

/// Connects again and again.
async fn keep_up(way: Way, link: watch::Sender<Link>) {
    let mut backoff = Backoff::default();
    loop {
        let mut since = None;
        let up = || {
            let (queue, texts) = Queue::new();
            since = Some(Instant::now());
            link.send_modify(|link| {
                link.queue = Some(queue);
                link.status = Status::Up;
                link.connections += 1;
            });
            tracing::info!(sink = "Signal K", "connected");
            texts
        };
        let ended = match &way {
            Way::WebSocket(request) => web_socket(request, up).await,
            Way::Tcp { host, port } => tcp(host, *port, up).await,
            Way::Udp { host, port } => udp(host, *port, up).await,
        };
        let Err(why) = ended;
        tracing::warn!(sink = "Signal K", "down: {why}");
        if since.is_some_and(|since| since.elapsed() > LONG) {
            backoff.reset();
        }
        link.send_modify(|link| {
            link.queue = None;
            link.status = Status::Down { why };
        });
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

const SLOW: &str = "the server takes nothing";
const CLOSED: &str = "the server closed the connection";

async fn web_socket(
    request: &Request,
    up: impl FnOnce() -> mpsc::UnboundedReceiver<Text>,
) -> Result<Infallible, String> {
    let (mut writer, mut reader) = request.connect().await?.split();
    let mut texts = up();
    let mut pings = interval(PING_EVERY);
    let mut unanswered = 0;
    loop {
        let message = tokio::select! {
            Some((text, _room)) = texts.recv() => Message::text(text),
            _ = pings.tick() => {
                if unanswered == MAX_UNANSWERED {
                    return Err("the server went silent".to_owned());
                }
                unanswered += 1;
                Message::Ping(Vec::new().into())
            }
            // What a server says is of no interest; but that it speaks is, and its pings are answered by reading.
            read = reader.next() => match read {
                Some(Ok(Message::Close(_))) | None => return Err(CLOSED.to_owned()),
                Some(Ok(_)) => {
                    unanswered = 0;
                    continue;
                }
                Some(Err(error)) => return Err(websocket::explain(&error)),
            },
        };
        let sent = timeout(WRITE_TIMEOUT, writer.send(message)).await;
        sent.map_err(|_| SLOW.to_owned())?
            .map_err(|error| websocket::explain(&error))?;
    }
}

async fn tcp(
    host: &str,
    port: u16,
    up: impl FnOnce() -> mpsc::UnboundedReceiver<Text>,
) -> Result<Infallible, String> {
    let lost = |error: std::io::Error| format!("the connection was lost: {error}");
    let (mut reader, mut writer) = connect::tcp(host, port).await?.into_split();
    let mut texts = up();
    let mut heard = [0; 4096];
    loop {
        let (text, _room) = tokio::select! {
            Some(text) = texts.recv() => text,
            read = reader.read(&mut heard) => match read.map_err(lost)? {
                0 => return Err(CLOSED.to_owned()),
                _ => continue,
            },
        };
        let line = text + "\r\n";
        let sent = timeout(WRITE_TIMEOUT, writer.write_all(line.as_bytes())).await;
        sent.map_err(|_| SLOW.to_owned())?.map_err(lost)?;
    }
}

async fn udp(
    host: &str,
    port: u16,
    up: impl FnOnce() -> mpsc::UnboundedReceiver<Text>,
) -> Result<Infallible, String> {
    let failed = |error: std::io::Error| format!("{host}:{port}: {error}");
    let mut found = tokio::net::lookup_host((host, port))
        .await
        .map_err(failed)?;
    let to = found
        .next()
        .ok_or_else(|| format!("{host} has no address"))?;
    let here = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(here).await.map_err(failed)?;
    socket.connect(to).await.map_err(failed)?;
    let mut texts = up();
    while let Some((text, _room)) = texts.recv().await {
        // Nobody listening there is told by the next send, and may change by itself.
        if let Err(error) = socket.send(text.as_bytes()).await {
            tracing::debug!(sink = "Signal K", "{}", failed(error));
        }
    }
    Err(CLOSED.to_owned())
}
