//! [`Source`]: where records come from.
//!
//! Each source is a task that connects, reads, and connects again; what it read waits in a short queue, so that a
//! slow reader slows the server down and a dropped future loses nothing.

mod intake;
pub(crate) mod json_lines;
#[cfg(feature = "nmea0183")]
pub(crate) mod nmea0183;
#[cfg(feature = "signalk")]
pub(crate) mod signalk;

use std::fmt;
use std::future::Future;

use tokio::io::AsyncRead;
use tokio::task::AbortHandle;
use towline_link::codec::Record;

use crate::Status;
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
use crate::{Backoff, BadUrl};
#[cfg(any(feature = "signalk", feature = "nmea0183"))]
use intake::{Ended, Peer};
use intake::{Intake, Queue, Shared};

pub use intake::{Counts, SourceError};

/// Cap: records that were read and wait for [`Source::next`], each source.
pub(crate) const MAX_READ_AHEAD: usize = 16;

/// A stream of records. Its task ends when it is dropped.
pub struct Source {
    records: Queue,
    shared: Shared,
    task: AbortHandle,
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
        self.shared.status()
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        task: impl FnOnce(Intake) -> F,
    ) -> Self {
        let (intake, records, shared) = Intake::new(name, MAX_READ_AHEAD);
        Self {
            records,
            shared,
            task: tokio::spawn(task(intake)).abort_handle(),
        }
    }
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
