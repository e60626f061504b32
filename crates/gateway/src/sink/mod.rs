//! [`Sink`]: where records go.

pub(crate) mod lines;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod promise;
#[cfg(feature = "signalk")]
pub(crate) mod signalk;
#[cfg(feature = "nats")]
mod state;

use std::path::PathBuf;

#[cfg(any(feature = "signalk", feature = "nats", feature = "postgres"))]
use crate::BadUrl;
use crate::{Entry, Ranges, Status, Stream};

pub use lines::LinesOptions;
pub use promise::{Kind, SinkError};

/// A place that takes records.
#[derive(Debug)]
#[non_exhaustive]
pub enum Sink {
    /// Lines of JSON, to a file or to standard output.
    Lines(lines::Lines),
    /// A Signal K server.
    #[cfg(feature = "signalk")]
    SignalK(signalk::SignalK),
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Postgres>),
    /// A stream of NATS JetStream.
    #[cfg(feature = "nats")]
    Nats(Box<nats::Nats>),
}

impl Sink {
    /// Standard output.
    #[must_use]
    pub fn stdout(kind: Kind, options: LinesOptions) -> Self {
        Self::Lines(lines::Lines::stdout(kind, options))
    }

    /// A file that lines are appended to; a log, synced to disk at each write.
    #[must_use]
    pub fn file(path: PathBuf, options: LinesOptions) -> Self {
        Self::Lines(lines::Lines::file(path, options))
    }

    /// A Signal K server: `ws://`, `wss://`, `tcp://` or `udp://`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BadUrl`].
    #[cfg(feature = "signalk")]
    pub fn signalk(options: signalk::SignalKSinkOptions) -> Result<Self, BadUrl> {
        Ok(Self::SignalK(signalk::SignalK::new(options)?))
    }

    /// A PostgreSQL database.
    ///
    /// # Errors
    /// [`BadUrl`].
    #[cfg(feature = "postgres")]
    pub fn postgres(options: postgres::PostgresOptions) -> Result<Self, BadUrl> {
        Ok(Self::Postgres(Box::new(postgres::Postgres::new(options)?)))
    }

    /// A stream of NATS JetStream.
    ///
    /// # Errors
    /// [`BadUrl`].
    #[cfg(feature = "nats")]
    pub fn nats(options: nats::NatsOptions) -> Result<Self, BadUrl> {
        Ok(Self::Nats(Box::new(nats::Nats::new(options)?)))
    }

    /// What it promises.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Lines(sink) => sink.kind(),
            #[cfg(feature = "signalk")]
            Self::SignalK(_) => Kind::Live,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Kind::Log,
            #[cfg(feature = "nats")]
            Self::Nats(_) => Kind::Log,
        }
    }

    /// How its connection is. A log connects when it is used.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Lines(_) => Status::Up,
            #[cfg(feature = "signalk")]
            Self::SignalK(sink) => sink.status(),
            #[cfg(feature = "postgres")]
            Self::Postgres(sink) => sink.status(),
            #[cfg(feature = "nats")]
            Self::Nats(sink) => sink.status(),
        }
    }

    /// How often a live sink has connected; 1 for one that needs no connection. Behind a new connection there may be a
    /// server that knows nothing yet.
    #[must_use]
    pub fn connections(&self) -> u64 {
        match self {
            #[cfg(feature = "signalk")]
            Self::SignalK(sink) => sink.connections(),
            _ => 1,
        }
    }

    /// Waits until a live sink's connection has changed since this was asked the last time.
    pub(crate) async fn changed(&mut self) {
        match self {
            #[cfg(feature = "signalk")]
            Self::SignalK(sink) => sink.changed().await,
            _ => std::future::pending().await,
        }
    }

    /// Gives records to a live sink, which does not keep them: what is on its way when the connection breaks is lost.
    /// It waits for a server that is slow; one that takes nothing for ten seconds is away.
    ///
    /// # Errors
    /// [`SinkError`]; some of the records may have gone, and where it is one entry's fault, all before that one. It
    /// connects again by itself.
    pub async fn deliver(&mut self, stream: &Stream, entries: &[Entry]) -> Result<(), SinkError> {
        match self {
            Self::Lines(sink) => sink.write(stream, entries).await,
            #[cfg(feature = "signalk")]
            Self::SignalK(sink) => sink.deliver(entries).await,
            #[cfg(any(feature = "postgres", feature = "nats"))]
            _ => self.write(stream, entries).await,
        }
    }

    /// Makes a log ready for a stream, and says what it has of it already.
    ///
    /// # Errors
    /// [`SinkError`].
    pub async fn open(&mut self, stream: &Stream) -> Result<Ranges, SinkError> {
        match self {
            Self::Lines(sink) => sink.open().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(sink) => sink.open(stream).await,
            #[cfg(feature = "nats")]
            Self::Nats(sink) => sink.open(stream).await,
            #[cfg(feature = "signalk")]
            Self::SignalK(_) => Err(no_log()),
        }
    }

    /// Writes records to a log. When this is `Ok`, all are durable there; after an error, or when the future was
    /// dropped, some may be, and the same are to be written again. Those that the log has already do no harm.
    ///
    /// # Errors
    /// [`SinkError`].
    pub async fn write(&mut self, stream: &Stream, entries: &[Entry]) -> Result<(), SinkError> {
        match self {
            Self::Lines(sink) => sink.write(stream, entries).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(sink) => sink.write(stream, entries).await,
            #[cfg(feature = "nats")]
            Self::Nats(sink) => sink.write(stream, entries).await,
            #[cfg(feature = "signalk")]
            Self::SignalK(_) => Err(no_log()),
        }
    }
}

#[cfg(feature = "signalk")]
fn no_log() -> SinkError {
    SinkError::permanent("a Signal K server keeps no log: deliver to it instead")
}
