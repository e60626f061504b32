//! The deltas of a Signal K server, over WebSocket or TCP.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use towline_link::codec::{MAX_TEXT, Record};

use super::intake::{Ended, Intake, Peer};
use super::json_lines;
use crate::lines::Lines;
use crate::url::Url;
use crate::websocket::{self, Request};
use crate::{BadUrl, Status, connect};

/// The port of a server's TCP interface.
pub(crate) const TCP_PORT: u16 = 8375;

/// Which server, and what of it.
#[derive(Clone, Debug)]
pub struct SignalKOptions {
    /// `ws://host:3000`, `wss://host`, or `tcp://host:8375`. A WebSocket path other than `/signalk/v1/stream` may follow.
    pub url: String,
    /// A token that the server gave out, for WebSockets.
    pub token: Option<String>,
    /// Whose data: `*` for all, `vessels.self` for the boat's own.
    pub context: String,
    /// Which paths, such as `navigation.*`.
    pub paths: Vec<String>,
    /// The TLS of `wss://`; `None` is [`system_roots`](crate::system_roots).
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// A WebSocket server is asked whether it is there after so much silence.
    pub ping_after: Duration,
    /// A WebSocket without a byte for so long is given up.
    pub idle_timeout: Duration,
}

impl SignalKOptions {
    /// Everything that the server has.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            context: "*".to_owned(),
            paths: vec!["*".to_owned()],
            tls: None,
            ping_after: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(45),
        }
    }
}

/// Where to connect to, checked.
pub(super) struct Server {
    options: SignalKOptions,
    way: Way,
    /// The subscription as a message; `None` where the address says it.
    subscribe: Option<String>,
}

enum Way {
    WebSocket(Box<Request>),
    Tcp { host: String, port: u16 },
}

impl Peer for Server {
    async fn session(&self, intake: &Intake) -> Ended {
        let ended = match &self.way {
            Way::WebSocket(request) => self.web_socket(request, intake).await,
            Way::Tcp { host, port } => self.tcp(host, *port, intake).await,
        };
        let Err(ended) = ended;
        ended
    }
}

impl Server {
    pub(super) fn new(options: SignalKOptions) -> Result<Self, BadUrl> {
        let bad = |reason: &str| BadUrl::new(&options.url, reason);
        let url = Url::parse(&options.url)?;
        let is_all = options.paths == ["*"];
        let (way, in_url) = match url.scheme.as_str() {
            "ws" | "wss" => {
                let subscribe = match options.context.as_str() {
                    "*" if is_all => "all",
                    "vessels.self" if is_all => "self",
                    _ => "none",
                };
                // What was said before, such as the vessel's name, may not be said again for days.
                let query = format!("subscribe={subscribe}&sendCachedValues=true");
                let tls = options.tls.clone();
                let request = Request::new(&options.url, &query, options.token.as_deref(), tls)?;
                (Way::WebSocket(Box::new(request)), subscribe != "none")
            }
            "tcp" if options.token.is_some() => {
                return Err(bad("a token goes with ws:// and wss:// only"));
            }
            "tcp" if url.host.is_empty() => return Err(bad("it has no host")),
            "tcp" => {
                let port = url.port.unwrap_or(TCP_PORT);
                (
                    Way::Tcp {
                        host: url.host,
                        port,
                    },
                    false,
                )
            }
            _ => return Err(bad("ws://, wss:// and tcp:// are known")),
        };
        Ok(Self {
            subscribe: (!in_url).then(|| subscription(&options.context, &options.paths)),
            options,
            way,
        })
    }

    async fn web_socket(&self, request: &Request, intake: &Intake) -> Result<Infallible, Ended> {
        let mut socket = request.connect().await?;
        let failed = |error| websocket::explain(&error);
        if let Some(text) = &self.subscribe {
            let text = Message::text(text.clone());
            socket.send(text).await.map_err(failed)?;
        }
        intake.status(Status::Up);
        let mut last_heard = Instant::now();
        loop {
            let Ok(message) = timeout(self.options.ping_after, socket.next()).await else {
                if last_heard.elapsed() >= self.options.idle_timeout {
                    return Err(Ended::Failed("the server went silent".to_owned()));
                }
                let ping = socket.send(Message::Ping(Vec::new().into()));
                let sent = timeout(self.options.idle_timeout, ping).await;
                sent.map_err(|_| "the server takes nothing".to_owned())?
                    .map_err(failed)?;
                continue;
            };
            last_heard = Instant::now();
            let Some(message) = message else {
                return Err(Ended::Failed("the server closed the connection".to_owned()));
            };
            let message = message.map_err(|error| {
                let why = failed(error);
                if why.contains("too long") {
                    intake.malformed(&why, true);
                }
                why
            })?;
            match message {
                Message::Text(text) => take(Record::parse(text.as_bytes()), intake).await?,
                Message::Binary(data) => take(Record::parse(&data), intake).await?,
                Message::Close(_) => {
                    return Err(Ended::Failed("the server closed the connection".to_owned()));
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    async fn tcp(&self, host: &str, port: u16, intake: &Intake) -> Result<Infallible, Ended> {
        let (reader, mut writer) = connect::tcp(host, port).await?.into_split();
        let lost = |error: std::io::Error| format!("the connection was lost: {error}");
        if let Some(text) = &self.subscribe {
            let line = format!("{text}\r\n");
            writer.write_all(line.as_bytes()).await.map_err(lost)?;
        }
        intake.status(Status::Up);
        let mut lines = Lines::new(reader, MAX_TEXT);
        loop {
            let Some(line) = lines.next().await.map_err(lost)? else {
                return Err(Ended::Failed("the server closed the connection".to_owned()));
            };
            match json_lines::parse(&line) {
                Ok(Some(record)) => take(Ok::<_, String>(record), intake).await?,
                Ok(None) => {}
                Err(why) => take(Err(why), intake).await?,
            }
        }
    }
}

/// A message of a server: a delta goes on, its greeting and its answers do not.
async fn take<E: ToString>(message: Result<Record, E>, intake: &Intake) -> Result<(), Ended> {
    match message {
        Ok(record) if record.has_key("updates") => intake.record(record).await?,
        Ok(_) => intake.unsupported(),
        Err(error) => intake.malformed(&error.to_string(), true),
    }
    Ok(())
}

fn subscription(context: &str, paths: &[String]) -> String {
    let quoted = |text: &str| {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    };
    let paths: Vec<String> = paths
        .iter()
        .map(|path| format!(r#"{{"path":{}}}"#, quoted(path)))
        .collect();
    let (context, paths) = (quoted(context), paths.join(","));
    format!(r#"{{"context":{context},"subscribe":[{paths}]}}"#)
}
