//! NATS JetStream: each record exactly once within the stream's `duplicate_window`.
//!
//! A message's `Nats-Msg-Id` is its boat, stream and number. When it is not known whether the server has a message,
//! the same one is published again, and the server leaves out what it has already. What it has acknowledged is written
//! to a small file, from which [`Sink::open`](crate::Sink::open) answers.
//!
//! A server acknowledges before its disk has the message: killed it loses nothing, but a power cut can take the last
//! two minutes of a single server. `sync_interval: always` in its configuration, or several replicas, prevents that.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State as ConnectionState;
use async_nats::jetstream::context::{
    Context, ContextBuilder, CreateStreamErrorKind, PublishErrorKind,
};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use futures_util::future::try_join_all;
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::timeout;

use super::promise::SinkError;
use super::state::{State, escaped};
use crate::{BadUrl, Entry, Ranges, Status, Stream};

/// Streams of which it is held in memory what the server has.
const MAX_STREAMS: usize = 256;
/// Cap: messages published and not acknowledged.
pub(crate) const MAX_UNACKNOWLEDGED: usize = 256;

/// How long one message's acknowledgement, or one answer, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which server, and how messages are filed there.
#[derive(Clone)]
pub struct NatsOptions {
    /// `nats://host:4222` or `tls://host:4222`, with `user:password@` if need be.
    pub url: String,
    /// The text of a credentials file, as `nsc` makes it.
    pub credentials: Option<String>,
    /// A token.
    pub token: Option<String>,
    /// The TLS of `tls://`, and of servers that ask for it; `None` trusts the system's roots.
    pub tls: Option<Arc<ClientConfig>>,
    /// The JetStream stream, `TOWLINE`. It is made if it is missing: kept in files, without limits of its own.
    pub stream: String,
    /// The subject of a message, `towline.{name}`; `{name}` is the boat's, with `%XX` for what subjects do not have.
    pub subject: String,
    /// For how long the server must know a message again: as long as a spool may hold it. 48 hours.
    pub duplicate_window: Duration,
    /// Servers that keep a copy, where the stream is made.
    pub replicas: usize,
    /// The directory for the files that say what was acknowledged.
    pub state: PathBuf,
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("NatsOptions")
            .field("stream", &self.stream)
            .field("subject", &self.subject)
            .field("duplicate_window", &self.duplicate_window)
            .field("replicas", &self.replicas)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl NatsOptions {
    /// The usual names; `state` is a directory of the program's own.
    pub fn new(url: impl Into<String>, state: impl Into<PathBuf>) -> Self {
        Self {
            url: url.into(),
            credentials: None,
            token: None,
            tls: None,
            stream: "TOWLINE".to_owned(),
            subject: "towline.{name}".to_owned(),
            duplicate_window: Duration::from_secs(48 * 3600),
            replicas: 1,
            state: state.into(),
        }
    }
}

/// A sink to NATS.
pub struct Nats {
    options: NatsOptions,
    address: ServerAddr,
    connection: Option<Connection>,
    held: HashMap<Stream, (State, Ranges)>,
    status: Status,
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats")
            .field("options", &self.options)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

struct Connection {
    client: Client,
    context: Context,
    /// Becomes true when the connection breaks: what was under way is then unknown.
    broken: watch::Receiver<bool>,
}

impl Nats {
    pub(super) fn new(options: NatsOptions) -> Result<Self, BadUrl> {
        // A password may be in it, so the text is not repeated.
        let bad = |reason: String| BadUrl::new("nats://…", reason);
        let address: ServerAddr = options
            .url
            .parse()
            .map_err(|error: std::io::Error| bad(error.to_string()))?;
        let name_at = options
            .subject
            .split('.')
            .position(|token| token == "{name}");
        let is_subject = options
            .subject
            .split('.')
            .all(|token| token == "{name}" || (!token.is_empty() && token == escaped(token)));
        if name_at.is_none() || !is_subject {
            let what = "the subject is words and one {name}, with points in between";
            return Err(bad(what.to_owned()));
        }
        if options.stream.is_empty() || options.stream != escaped(&options.stream) {
            return Err(bad(
                "a stream's name has letters, digits, - and _".to_owned()
            ));
        }
        Ok(Self {
            options,
            address,
            connection: None,
            held: HashMap::new(),
            status: Status::Connecting,
        })
    }

    pub(super) fn status(&self) -> Status {
        match &self.connection {
            Some(connection) if connection.is_whole() => Status::Up,
            Some(_) => Status::Down {
                why: "the connection was lost".to_owned(),
            },
            None => self.status.clone(),
        }
    }

    pub(super) async fn open(&mut self, stream: &Stream) -> Result<Ranges, SinkError> {
        // A wrong address, a refusal or a wrong stream shows now and not when the first record is there.
        let connected = self.connection().await.map(drop);
        self.noted(connected)?;
        Ok(self.held(stream).await?.1.clone())
    }

    pub(super) async fn write(
        &mut self,
        stream: &Stream,
        entries: &[Entry],
    ) -> Result<(), SinkError> {
        let held = &self.held(stream).await?.1;
        let new: Vec<&Entry> = entries
            .iter()
            .filter(|entry| !held.contains(entry.seq))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let written = self.publish(stream, &new).await;
        self.noted(written)?;
        let (state, mut ranges) = self.held(stream).await?.clone();
        for entry in new {
            ranges.insert(entry.seq..entry.seq.saturating_add(1));
        }
        // What is not on disk is not known: it is published again, and the server leaves it out.
        let stored = blocking(move || state.store(&ranges).map(|()| (state, ranges))).await?;
        self.held.insert(stream.clone(), stored);
        Ok(())
    }

    /// Publishes, and waits until all are acknowledged.
    async fn publish(&mut self, stream: &Stream, entries: &[&Entry]) -> Result<(), SinkError> {
        let name = escaped(&stream.name);
        let subject = self.options.subject.replace("{name}", &name);
        let id = stream.id;
        let to = self.options.stream.clone();
        let Connection {
            context, broken, ..
        } = self.connection().await?;
        let acknowledged = async {
            for some in entries.chunks(MAX_UNACKNOWLEDGED) {
                let mut pending = Vec::with_capacity(some.len());
                for entry in some {
                    let seq = entry.seq;
                    let message = PublishMessage::build()
                        .message_id(format!("{name}:{id:016x}:{seq}"))
                        .expected_stream(&to)
                        .payload(entry.record.to_json().into());
                    let sent = context.send_publish(subject.clone(), message).await;
                    pending.push(sent.map_err(|error| refused(seq, &error))?);
                }
                let pending = pending.into_iter().zip(some).map(async |(pending, entry)| {
                    let answer = pending.await;
                    answer.map_err(|error| refused(entry.seq, &error))
                });
                try_join_all(pending).await?;
            }
            Ok(())
        };
        tokio::select! {
            done = acknowledged => done,
            _ = broken.wait_for(|&broken| broken) => {
                Err(SinkError::passing("the connection to NATS was lost"))
            }
        }
    }

    /// A connection, a new one if need be.
    async fn connection(&mut self) -> Result<&mut Connection, SinkError> {
        let connection = match self.connection.take() {
            Some(connection) if connection.is_whole() => connection,
            _ => {
                let connecting = connect(&self.options, &self.address);
                let connected = timeout(CONNECT_TIMEOUT, connecting).await;
                connected.map_err(|_| SinkError::passing("the NATS server does not answer"))??
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// After an error everything is begun anew: a connection whose messages are unknown is no use.
    fn noted(&mut self, result: Result<(), SinkError>) -> Result<(), SinkError> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => {
                self.connection = None;
                self.status = Status::Down {
                    why: error.to_string(),
                };
                Err(error)
            }
        }
    }

    /// What the server has of a stream, as far as it was told.
    async fn held(&mut self, stream: &Stream) -> Result<&mut (State, Ranges), SinkError> {
        if !self.held.contains_key(stream) {
            let state = State::new(&self.options.state, stream);
            let reading = state.clone();
            let ranges = blocking(move || reading.load()).await?;
            if self.held.len() >= MAX_STREAMS {
                // What they have is on disk.
                self.held.clear();
            }
            self.held.insert(stream.clone(), (state, ranges));
        }
        let held = self.held.get_mut(stream);
        held.ok_or_else(|| SinkError::passing("the state was lost"))
    }
}

impl Connection {
    fn is_whole(&self) -> bool {
        !*self.broken.borrow() && self.client.connection_state() == ConnectionState::Connected
    }
}

async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, SinkError> + Send + 'static,
) -> Result<T, SinkError> {
    let done = tokio::task::spawn_blocking(run).await;
    done.unwrap_or_else(|error| Err(SinkError::passing(error.to_string())))
}

async fn connect(options: &NatsOptions, address: &ServerAddr) -> Result<Connection, SinkError> {
    let (tell, broken) = watch::channel(false);
    let tell = Arc::new(tell);
    let mut how = ConnectOptions::new()
        .name("towline")
        .connection_timeout(CONNECT_TIMEOUT)
        .require_tls(address.tls_required())
        // We connect again ourselves, and publish again what was under way.
        .max_reconnects(1)
        .event_callback(move |event| {
            let tell = Arc::clone(&tell);
            async move {
                if matches!(event, Event::Disconnected | Event::Closed) {
                    tell.send_replace(true);
                }
            }
        });
    if let Some(tls) = &options.tls {
        how = how.tls_client_config(ClientConfig::clone(tls));
    }
    if let Some(token) = &options.token {
        how = how.token(token.clone());
    }
    if let (Some(user), Some(password)) = (address.username(), address.password()) {
        how = how.user_and_password(unescaped(user), unescaped(password));
    }
    if let Some(credentials) = &options.credentials {
        how = how
            .credentials(credentials)
            .map_err(|error| SinkError::permanent(format!("the credentials are none: {error}")))?;
    }
    let client = how.connect(address.clone()).await.map_err(|error| {
        let what = format!("no connection to NATS: {error}");
        match error.kind() {
            ConnectErrorKind::ServerParse
            | ConnectErrorKind::Authentication
            | ConnectErrorKind::AuthorizationViolation
            | ConnectErrorKind::Tls => SinkError::permanent(what),
            _ => SinkError::passing(what),
        }
    })?;
    let context = ContextBuilder::new()
        .timeout(ANSWER_TIMEOUT)
        .ack_timeout(ANSWER_TIMEOUT)
        .max_ack_inflight(MAX_UNACKNOWLEDGED)
        .build(client.clone());
    ensure_stream(options, &context).await?;
    Ok(Connection {
        client,
        context,
        broken,
    })
}

/// A part of an address, with `%40` for what it cannot have in it.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = (byte == b'%').then(|| after.get(..2)).flatten();
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Makes the stream, or sees that the one there keeps what we promise.
async fn ensure_stream(options: &NatsOptions, context: &Context) -> Result<(), SinkError> {
    let name = &options.stream;
    let wanted = stream::Config {
        name: name.clone(),
        subjects: vec![options.subject.replace("{name}", "*")],
        storage: stream::StorageType::File,
        duplicate_window: options.duplicate_window,
        num_replicas: options.replicas,
        ..stream::Config::default()
    };
    let found = context.get_or_create_stream(wanted).await;
    let found = found.map_err(|error| {
        let what = format!("the JetStream stream {name}: {error}");
        match error.kind() {
            // 503 is a cluster without a leader for the moment.
            CreateStreamErrorKind::JetStream(told) if told.code() < 500 => {
                SinkError::permanent(what)
            }
            CreateStreamErrorKind::InvalidStreamName => SinkError::permanent(what),
            CreateStreamErrorKind::JetStreamUnavailable => SinkError::passing(format!(
                "{what}. Does the server run with -js, and this account have JetStream?"
            )),
            _ => SinkError::passing(what),
        }
    })?;
    let config = &found.cached_info().config;
    let hours = options.duplicate_window.as_secs() / 3600;
    if config.duplicate_window < options.duplicate_window {
        return Err(SinkError::permanent(format!(
            "the JetStream stream {name} knows a message again for {:?} only, and a boat may send it for {hours} hours: \
             nats stream edit {name} --dupe-window={hours}h",
            config.duplicate_window
        )));
    }
    if config.no_ack {
        let what = format!("the JetStream stream {name} acknowledges nothing (no_ack)");
        return Err(SinkError::permanent(what));
    }
    if config.storage != stream::StorageType::File {
        tracing::warn!(
            sink = "NATS",
            "the JetStream stream {name} is in memory: a restart of the server loses records"
        );
    }
    Ok(())
}

fn refused(seq: u64, error: &async_nats::jetstream::context::PublishError) -> SinkError {
    let cause = std::error::Error::source(error);
    let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => SinkError::of_entry(
            seq,
            format!("record {seq} is larger than the NATS server takes; raise its max_payload"),
        ),
        _ => SinkError::passing(format!("NATS did not take record {seq}: {error}{cause}")),
    }
}
