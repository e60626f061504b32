//! [`Intake`]: what the task of a source hands over, counts and tells.

#[cfg(any(feature = "signalk", feature = "nmea0183"))]
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use towline_link::codec::Record;

use crate::Status;

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

/// What a source tells of itself.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<State>>);

struct State {
    status: Status,
    counts: Counts,
}

impl Shared {
    pub(super) fn status(&self) -> Status {
        self.lock().status.clone()
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// What happens under the lock cannot fail, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task's side of a source.
pub(super) struct Intake {
    name: &'static str,
    out: mpsc::Sender<Result<Record, SourceError>>,
    shared: Shared,
}

/// Nobody wants records any more.
#[derive(Debug)]
pub(super) struct Gone;

/// What a source reads from: records, or why there are no more.
pub(super) type Queue = mpsc::Receiver<Result<Record, SourceError>>;

impl Intake {
    /// With the queue that it fills, of so many records, and what it tells.
    pub(super) fn new(name: &'static str, room: usize) -> (Self, Queue, Shared) {
        let (out, queue) = mpsc::channel(room);
        let shared = Shared(Arc::new(Mutex::new(State {
            status: Status::Connecting,
            counts: Counts::default(),
        })));
        let intake = Self {
            name,
            out,
            shared: shared.clone(),
        };
        (intake, queue, shared)
    }

    /// Hands a record over; waits while the queue is full.
    pub(super) async fn record(&self, record: Record) -> Result<(), Gone> {
        self.shared.lock().counts.records += 1;
        self.out.send(Ok(record)).await.map_err(|_| Gone)
    }

    /// The input failed for good.
    pub(super) async fn fail(&self, error: SourceError) {
        self.status(Status::Down {
            why: error.to_string(),
        });
        // Nobody there to hear of it is no reason to complain.
        let _ = self.out.send(Err(error)).await;
    }

    /// Counts and logs what was damaged; a network peer cannot fill the log with it.
    pub(super) fn malformed(&self, what: &str, is_from_network: bool) {
        let number = {
            let counts = &mut self.shared.lock().counts;
            counts.malformed += 1;
            counts.last_malformed = Some(what.to_owned());
            counts.malformed
        };
        if !is_from_network || number <= 10 || number.is_power_of_two() {
            tracing::warn!(source = self.name, number, "left out: {what}");
        }
    }

    /// Counts what is no record.
    pub(super) fn unsupported(&self) {
        self.shared.lock().counts.unsupported += 1;
    }

    /// Says how the connection is.
    pub(super) fn status(&self, status: Status) {
        let before = std::mem::replace(&mut self.shared.lock().status, status.clone());
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
    pub(super) fn is_up(&self) -> bool {
        self.shared.lock().status == Status::Up
    }
}

/// How a session with a server ended.
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
pub(super) enum Ended {
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
pub(super) trait Peer: Send + 'static {
    /// From connecting to the end of the connection.
    fn session(&self, intake: &Intake) -> impl Future<Output = Ended> + Send;
}
