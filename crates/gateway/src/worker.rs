//! [`Worker`]: a sink's task, and what it is asked.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use towline::link::crash_point;

use crate::{Backoff, Entry, Kind, Sink, Status, Stream};

/// Records that are written to a log at once, and bytes of memory that they take.
const WRITTEN_AT_ONCE: usize = 1_024;
const WRITTEN_BYTES: usize = 8 << 20;

/// How a sink is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkStatus {
    /// What it promises.
    pub kind: Kind,
    /// Its connection.
    pub status: Status,
    /// Records that it took.
    pub records: u64,
    /// Records that it can never take, and was not given again.
    pub refused: u64,
    /// The last error, until something works.
    pub trouble: Option<String>,
}

/// What a log is asked.
pub(crate) struct Job {
    pub(crate) stream: Arc<Stream>,
    pub(crate) what: What,
}

pub(crate) enum What {
    Open(oneshot::Sender<Vec<Range<u64>>>),
    Write(Arc<Vec<Entry>>, Arc<Written>),
}

/// Records that go to every log.
pub(crate) struct Written {
    pub(crate) seqs: Vec<Range<u64>>,
    pub(crate) count: usize,
    /// Bytes of memory.
    pub(crate) bytes: usize,
    /// Logs that have not got them.
    pub(crate) missing: AtomicUsize,
    pub(crate) done: mpsc::UnboundedSender<Arc<Written>>,
    /// Of the memory for all senders, until it is written.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Records for a live sink, and their part of the memory for those.
pub(crate) type Shown = (Arc<Stream>, Arc<Vec<Entry>>, OwnedSemaphorePermit);

/// How the sinks are, in their order.
pub(crate) type Sinks = Arc<Mutex<Vec<SinkStatus>>>;

/// A sink's task.
pub(crate) struct Worker {
    pub(crate) sink: Sink,
    pub(crate) at: usize,
    pub(crate) sinks: Sinks,
}

impl Worker {
    /// Writes to a log what it is given, however often it fails.
    pub(crate) async fn keep(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut waiting = Vec::new();
        while jobs.recv_many(&mut waiting, WRITTEN_AT_ONCE).await > 0 {
            let mut jobs = waiting.drain(..).peekable();
            while let Some(job) = jobs.next() {
                match job.what {
                    What::Open(answer) => {
                        let has = self.open(&job.stream).await;
                        let _ = answer.send(has);
                    }
                    What::Write(entries, written) => {
                        let mut bytes = written.bytes;
                        let mut done = vec![written];
                        let mut all = entries;
                        // What follows of the same stream goes with it.
                        while let Some(next) = jobs.peek()
                            && next.stream == job.stream
                            && let What::Write(more, written) = &next.what
                            && all.len() + more.len() <= WRITTEN_AT_ONCE
                            && bytes + written.bytes <= WRITTEN_BYTES
                        {
                            bytes += written.bytes;
                            Arc::make_mut(&mut all).extend_from_slice(more);
                            done.push(Arc::clone(written));
                            jobs.next();
                        }
                        crash_point("log.writing");
                        self.write(&job.stream, all).await;
                        crash_point("log.written");
                        for written in done {
                            if written.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                                let to = written.done.clone();
                                // The sender may be gone by now; it is told when it comes back.
                                let _ = to.send(written);
                            }
                        }
                    }
                }
            }
        }
    }

    async fn open(&mut self, stream: &Stream) -> Vec<Range<u64>> {
        let mut backoff = Backoff::default();
        loop {
            match self.sink.open(stream).await {
                Ok(has) => {
                    self.tell(|status| status.trouble = None);
                    return has.iter().collect();
                }
                Err(error) => self.trouble(&error.to_string()),
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    async fn write(&mut self, stream: &Stream, mut entries: Arc<Vec<Entry>>) {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.sink.write(stream, &entries).await {
                Ok(()) => {
                    let count = entries.len() as u64;
                    self.tell(|status| {
                        status.records += count;
                        status.trouble = None;
                    });
                    return;
                }
                Err(error) => error,
            };
            self.trouble(&error.to_string());
            match error.entry() {
                Some(seq) => {
                    tracing::error!(name = stream.name, seq, "a record is left out: {error}");
                    self.tell(|status| status.refused += 1);
                    Arc::make_mut(&mut entries).retain(|entry| entry.seq != seq);
                }
                None => tokio::time::sleep(backoff.next_wait()).await,
            }
        }
    }

    /// Gives a live sink what it is given; what it cannot take now is lost to it.
    pub(crate) async fn show(mut self, mut shown: mpsc::Receiver<Shown>) {
        while let Some((stream, entries, _room)) = shown.recv().await {
            match self.sink.deliver(&stream, &entries).await {
                Ok(()) => {
                    let count = entries.len() as u64;
                    self.tell(|status| {
                        status.records += count;
                        status.trouble = None;
                    });
                }
                Err(error) => self.trouble(&error.to_string()),
            }
        }
    }

    fn trouble(&self, why: &str) {
        let mut is_news = false;
        self.tell(|status| {
            is_news = status.trouble.as_deref() != Some(why);
            status.trouble = Some(why.to_owned());
        });
        if is_news {
            tracing::warn!("a sink takes nothing: {why}");
        }
    }

    fn tell(&self, change: impl FnOnce(&mut SinkStatus)) {
        if let Some(status) = lock(&self.sinks).get_mut(self.at) {
            status.status = self.sink.status();
            change(status);
        }
    }
}

/// What happens under the lock cannot fail, so a poisoned one is as good.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
