//! [`Source`]: where records come from.
//!
//! Each source is a task that connects, reads, and connects again; what it read waits in a short queue, so that a
//! slow reader slows the server down and a dropped future loses nothing.

pub(crate) mod json_lines;
#[cfg(feature = "nmea0183")]
pub(crate) mod nmea0183;
#[cfg(feature = "signalk")]
pub(crate) mod signalk;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use towline_link::codec::Record;

use crate::Status;
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
use crate::{Backoff, BadUrl};

/// Cap: records that were read and wait for [`Source::next`], each source.
pub(crate) const MAX_READ_AHEAD: usize = 16;

/// Why a source ended that should not have.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The input cannot be read any further; the records up to here were given.
    #[error("the input cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

/// What a source did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records read.
    pub records: u64,
    /// Messages, lines or sentences that were damaged or no record, and left out.
    pub malformed: u64,
    /// Those that were right, and said nothing that is a record here: greetings, AIS, unknown sentences.
    pub unsupported: u64,
    /// Why the last malformed one was.
    pub last_malformed: Option<String>,
}

/// A stream of records. Its task ends when it is dropped.
pub struct Source {
    records: mpsc::Receiver<Result<Record, SourceError>>,
    shared: Arc<Mutex<Shared>>,
    task: AbortHandle,
}

struct Shared {
    status: Status,
    counts: Counts,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("status", &self.status())
            .field("counts", &self.counts())
            .finish()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Source {
    /// One JSON object a line, from a file, standard input or anything else. A line that is none is logged with its
    /// number and left out. Must be called within a tokio runtime.
    pub fn json_lines(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::spawn("json lines", |intake| json_lines::read(reader, intake))
    }

    /// The deltas of a Signal K server: `ws://`, `wss://` or `tcp://`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BadUrl`], and where the options do not fit together.
    #[cfg(feature = "signalk")]
    pub fn signalk(options: signalk::SignalKOptions) -> Result<Self, BadUrl> {
        let server = signalk::Server::new(options)?;
        Ok(Self::spawn("Signal K", |intake| keep_up(intake, server)))
    }

    /// NMEA 0183 sentences of `tcp://host:port`, or that come to `udp://address:port`, as Signal K deltas. `now` is the
    /// wall clock, in milliseconds since 1970. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BadUrl`].
    #[cfg(feature = "nmea0183")]
    pub fn nmea0183(options: nmea0183::Nmea0183Options, now: fn() -> i64) -> Result<Self, BadUrl> {
        let talker = nmea0183::Talker::new(options, now)?;
        Ok(Self::spawn("NMEA 0183", |intake| keep_up(intake, talker)))
    }

    /// The same sentences from a file, a serial port or standard input.
    #[cfg(feature = "nmea0183")]
    pub fn nmea0183_lines(
        reader: impl AsyncRead + Send + Unpin + 'static,
        translator: crate::Translator,
        now: fn() -> i64,
    ) -> Self {
        Self::spawn("NMEA 0183", move |intake| {
            nmea0183::read(reader, translator, now, intake)
        })
    }

    /// The next record; `None` when the source ended, which only one with a reader does. Nothing is lost when the
    /// future is dropped.
    ///
    /// # Errors
    /// Where a reader fails; the source has ended then. Servers that go away are connected to again instead, and
    /// [`status`](Self::status) tells.
    pub async fn next(&mut self) -> Result<Option<Record>, SourceError> {
        self.records.recv().await.transpose()
    }

    /// How its connection is.
    #[must_use]
    pub fn status(&self) -> Status {
        lock(&self.shared).status.clone()
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        lock(&self.shared).counts.clone()
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        task: impl FnOnce(Intake) -> F,
    ) -> Self {
        let (out, records) = mpsc::channel(MAX_READ_AHEAD);
        let shared = Arc::new(Mutex::new(Shared {
            status: Status::Connecting,
            counts: Counts::default(),
        }));
        let intake = Intake {
            name,
            out,
            shared: Arc::clone(&shared),
        };
        Self {
            records,
            shared,
            task: tokio::spawn(task(intake)).abort_handle(),
        }
    }
}

/// What happens under the lock cannot fail, so a poisoned one is as good.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task's side of a source.
pub(crate) struct Intake {
    name: &'static str,
    out: mpsc::Sender<Result<Record, SourceError>>,
    shared: Arc<Mutex<Shared>>,
}

/// Nobody wants records any more.
#[derive(Debug)]
pub(crate) struct Gone;

impl Intake {
    /// Hands a record over; waits while the queue is full.
    pub(crate) async fn record(&self, record: Record) -> Result<(), Gone> {
        lock(&self.shared).counts.records += 1;
        self.out.send(Ok(record)).await.map_err(|_| Gone)
    }

    /// The input failed for good.
    pub(crate) async fn fail(&self, error: SourceError) {
        self.status(Status::Down {
            why: error.to_string(),
        });
        // Nobody there to hear of it is no reason to complain.
        let _ = self.out.send(Err(error)).await;
    }

    /// Counts and logs what was damaged; a network peer cannot fill the log with it.
    pub(crate) fn malformed(&self, what: &str, is_from_network: bool) {
        let number = {
            let counts = &mut lock(&self.shared).counts;
            counts.malformed += 1;
            counts.last_malformed = Some(what.to_owned());
            counts.malformed
        };
        if !is_from_network || number <= 10 || number.is_power_of_two() {
            tracing::warn!(source = self.name, number, "left out: {what}");
        }
    }

    /// Counts what is no record.
    pub(crate) fn unsupported(&self) {
        lock(&self.shared).counts.unsupported += 1;
    }

    /// Says how the connection is.
    pub(crate) fn status(&self, status: Status) {
        let before = std::mem::replace(&mut lock(&self.shared).status, status.clone());
        if before == status {
            return;
        }
        match status {
            Status::Connecting => tracing::debug!(source = self.name, "connecting"),
            Status::Up => tracing::info!(source = self.name, "connected"),
            Status::Down { why } => tracing::warn!(source = self.name, "down: {why}"),
        }
    }

    #[cfg(any(feature = "signalk", feature = "nmea0183"))]
    fn is_up(&self) -> bool {
        lock(&self.shared).status == Status::Up
    }
}

/// How a session with a server ended.
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
pub(crate) enum Ended {
    /// For this reason.
    Failed(String),
    Unwanted,
}

#[cfg(any(feature = "signalk", feature = "nmea0183"))]
impl From<Gone> for Ended {
    fn from(_: Gone) -> Self {
        Self::Unwanted
    }
}

#[cfg(any(feature = "signalk", feature = "nmea0183"))]
impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Whom a source reads from.
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
trait Peer: Send + 'static {
    /// From connecting to the end of the connection.
    fn session(&self, intake: &Intake) -> impl Future<Output = Ended> + Send;
}

/// Runs sessions one after the other, with waits in between.
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
async fn keep_up(intake: Intake, peer: impl Peer) {
    let mut backoff = Backoff::default();
    loop {
        let Ended::Failed(why) = peer.session(&intake).await else {
            return;
        };
        if intake.is_up() {
            backoff.reset();
        }
        intake.status(Status::Down { why });
        tokio::time::sleep(backoff.next_wait()).await;
        intake.status(Status::Connecting);
    }
}
