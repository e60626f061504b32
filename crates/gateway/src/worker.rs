//! [`Worker`]: a sink's task, and what it is asked.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use towline::link::crash_point;

use crate::live::LiveQueue;
use crate::lock::lock;
use crate::{Backoff, Entry, Kind, Sink, Status, Stream};

/// Records that are written to a log at once, and bytes of memory that they take.
const WRITTEN_AT_ONCE: usize = 1_024;
const WRITTEN_BYTES: usize = 8 << 20;
/// A live sink that took nothing is asked again when its connection has changed, or after this.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// What takes a live sink longer is said.
const SLOW: Duration = Duration::from_secs(1);

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

/// What a log has of a stream.
type Answer = oneshot::Sender<Vec<Range<u64>>>;

pub(crate) enum What {
    Open(Answer),
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

/// How the sinks are, in their order.
pub(crate) type Sinks = Arc<Mutex<Vec<SinkStatus>>>;

/// A sink's task.
pub(crate) struct Worker {
    sink: Sink,
    at: usize,
    sinks: Sinks,
    /// Streams that could not be opened: they are in nobody's way.
    unopened: Vec<Unopened>,
}

/// A stream of which a log could not say what it has.
struct Unopened {
    stream: Arc<Stream>,
    answer: Answer,
    backoff: Backoff,
    /// When it is tried again.
    again: Instant,
}

impl Worker {
    /// The task of the sink with this place among all.
    pub(crate) fn new(sink: Sink, at: usize, sinks: Sinks) -> Self {
        Self {
            sink,
            at,
            sinks,
            unopened: Vec::new(),
        }
    }

    /// Writes to a log what it is given, however often it fails.
    pub(crate) async fn keep(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut waiting = Vec::new();
        loop {
            let again = self.unopened.iter().map(|it| it.again).min();
            let taken = tokio::select! {
                taken = jobs.recv_many(&mut waiting, WRITTEN_AT_ONCE) => taken,
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                    self.open_again().await;
                    continue;
                }
            };
            if taken == 0 {
                return;
            }
            let mut jobs = waiting.drain(..).peekable();
            while let Some(job) = jobs.next() {
                match job.what {
                    What::Open(answer) => {
                        self.open(Unopened {
                            stream: job.stream,
                            answer,
                            backoff: Backoff::default(),
                            again: Instant::now(),
                        })
                        .await;
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

    /// Says what a log has of a stream, if somebody still waits for it, or tries it again later.
    async fn open(&mut self, mut asked: Unopened) {
        if asked.answer.is_closed() {
            return;
        }
        match self.sink.open(&asked.stream).await {
            Ok(has) => {
                self.works();
                let _ = asked.answer.send(has.iter().collect());
            }
            Err(error) => {
                self.trouble(&format!("{}: {error}", asked.stream.name));
                asked.again = Instant::now() + asked.backoff.next_wait();
                self.unopened.push(asked);
            }
        }
    }

    /// Tries those whose time has come.
    async fn open_again(&mut self) {
        let now = Instant::now();
        let is_due = |it: &mut Unopened| it.again <= now || it.answer.is_closed();
        let due: Vec<Unopened> = self.unopened.extract_if(.., is_due).collect();
        for asked in due {
            self.open(asked).await;
        }
    }

    /// Something works, and nothing else is known not to.
    fn works(&self) {
        if self.unopened.is_empty() {
            self.tell(|status| status.trouble = None);
        }
    }

    async fn write(&mut self, stream: &Stream, mut entries: Arc<Vec<Entry>>) {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.sink.write(stream, &entries).await {
                Ok(()) => {
                    let count = entries.len() as u64;
                    self.tell(|status| status.records += count);
                    self.works();
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

    /// Gives a live sink what waits for it, and the newest values again whenever its connection is a new one: the
    /// server behind it may have begun anew.
    pub(crate) async fn show(mut self, queue: Arc<LiveQueue>) {
        let mut last = 0;
        loop {
            match self.sink.status() {
                Status::Up => {}
                Status::Connecting => {
                    self.tell(|_| {});
                    self.sink.changed().await;
                    continue;
                }
                Status::Down { why } => {
                    // The sink has said it in the log.
                    self.tell(|status| status.trouble = Some(why));
                    self.sink.changed().await;
                    continue;
                }
            }
            let connections = self.sink.connections();
            if connections != last {
                last = connections;
                queue.rewind();
                self.tell(|status| status.trouble = None);
            }
            let Some((stream, entries)) = queue.next() else {
                tokio::select! {
                    () = queue.some() => {}
                    () = self.sink.changed() => {}
                }
                continue;
            };
            if !self.deliver(&stream, &entries).await {
                // Nobody knows what of it is there.
                queue.rewind();
                let _ = timeout(TRY_AGAIN, self.sink.changed()).await;
            }
        }
    }

    /// Gives records to a live sink; whether it took them all, but for those that it can never take.
    async fn deliver(&mut self, stream: &Stream, mut entries: &[Entry]) -> bool {
        while !entries.is_empty() {
            let delivered = {
                let delivery = self.sink.deliver(stream, entries);
                tokio::pin!(delivery);
                match timeout(SLOW, &mut delivery).await {
                    Ok(delivered) => delivered,
                    Err(_) => {
                        trouble(
                            &self.sinks,
                            self.at,
                            "it is slow: older values are left out",
                        );
                        delivery.await
                    }
                }
            };
            let (taken, refused) = match &delivered {
                Ok(()) => (entries.len(), 0),
                Err(error) => {
                    self.trouble(&error.to_string());
                    let is_it = |entry: &Entry| Some(entry.seq) == error.entry();
                    match entries.iter().position(is_it) {
                        Some(at) => (at, 1),
                        None => return false,
                    }
                }
            };
            self.tell(|status| {
                status.records += taken as u64;
                status.refused += refused as u64;
                if refused == 0 {
                    status.trouble = None;
                }
            });
            entries = &entries[taken + refused..];
        }
        true
    }

    fn trouble(&self, why: &str) {
        self.tell(|_| {});
        trouble(&self.sinks, self.at, why);
    }

    fn tell(&self, change: impl FnOnce(&mut SinkStatus)) {
        if let Some(status) = lock(&self.sinks).get_mut(self.at) {
            status.status = self.sink.status();
            change(status);
        }
    }
}

/// Says that a sink takes nothing, or not all.
fn trouble(sinks: &Sinks, at: usize, why: &str) {
    let mut sinks = lock(sinks);
    let Some(status) = sinks.get_mut(at) else {
        return;
    };
    if status.trouble.as_deref() != Some(why) {
        tracing::warn!("trouble with a sink: {why}");
    }
    status.trouble = Some(why.to_owned());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Semaphore;
    use tokio::time::timeout;
    use towline_link::codec::Record;

    use super::*;
    use crate::LinesOptions;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_stream_that_cannot_be_opened_is_in_nobody_s_way_and_tried_again() {
        let name = format!("towline-worker-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let path = folder.join("log.jsonl");
        let sinks = Sinks::default();
        let sink = Sink::file(path.clone(), LinesOptions::default());
        lock(&sinks).push(SinkStatus {
            kind: sink.kind(),
            status: sink.status(),
            records: 0,
            refused: 0,
            trouble: None,
        });
        let worker = Worker::new(sink, 0, Arc::clone(&sinks));
        let (to, jobs) = mpsc::channel(8);
        tokio::spawn(worker.keep(jobs));
        let stream = Arc::new(Stream {
            name: "boat".to_owned(),
            id: 1,
        });
        let ask = || {
            let (answer, answered) = oneshot::channel();
            let job = Job {
                stream: Arc::clone(&stream),
                what: What::Open(answer),
            };
            assert!(to.try_send(job).is_ok());
            answered
        };
        let mut first = ask();
        // Who asks and goes leaves nothing behind.
        drop(ask());
        while lock(&sinks)[0].trouble.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        std::fs::create_dir_all(&folder).unwrap();
        let room = Arc::new(Semaphore::new(1));
        let (done, mut written) = mpsc::unbounded_channel();
        let record = Record::parse(b"{}").unwrap();
        let entries = Arc::new(vec![Entry { seq: 0, record }]);
        let writing = Arc::new(Written {
            seqs: Vec::new(),
            count: 1,
            bytes: 0,
            missing: AtomicUsize::new(1),
            done,
            _room: room.try_acquire_owned().unwrap(),
        });
        let job = Job {
            stream: Arc::clone(&stream),
            what: What::Write(entries, writing),
        };
        to.send(job).await.unwrap();
        timeout(PATIENCE, written.recv()).await.unwrap().unwrap();
        assert!(first.try_recv().is_err(), "it waits for its turn");
        assert_eq!(timeout(PATIENCE, first).await.unwrap().unwrap(), []);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
