//! [`Shore`]: the end of links that receives, with sinks behind it.
//!
//! Each sink has a task of its own. A record is durable when every log has it; until then it is held here, within
//! bounds. Where a log is down, what has no place is given back to the sender, which keeps it and sends only what
//! is new, for the live sinks; once the log takes records again, the rest comes. Live sinks get what is newer than
//! what they got before, and never wait.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use towline::identity::KeyPin;
use towline::link::{
    Arrival, Delivery, Downlink, DownlinkError, Hello, ReceiverStats, Via, crash_point,
};
use towline_link::{LiveFilter, RangeSet};

use crate::{Backoff, Entry, Kind, Sink, Status, Stream};

/// Cap: records of one sender that wait for logs.
pub const MAX_HELD: usize = 16_384;
/// Records that are written to a log at once.
const WRITTEN_AT_ONCE: usize = 1_024;
/// Deliveries that wait for a live sink; beyond, they are lost to it.
const MAX_LIVE_WAITING: usize = 256;
/// Jobs that wait for a log, all senders together; each sender has no more than [`MAX_HELD`] records in them.
const MAX_JOBS: usize = 4_096;
/// How long a sender waits for the logs to say what they have, before it may send what is new.
const OPENING: Duration = Duration::from_millis(500);
/// Senders whose newest values are remembered, and whose state is shown.
const MAX_NAMES: usize = 1_024;

/// Where links end.
#[derive(Debug)]
pub struct Shore {
    clients: HashMap<String, KeyPin>,
    logs: Vec<mpsc::Sender<Job>>,
    lives: Vec<mpsc::Sender<Shown>>,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared {
    sinks: Mutex<Vec<SinkStatus>>,
    senders: Mutex<HashMap<String, SenderStatus>>,
    newest: Mutex<HashMap<String, (u64, LiveFilter)>>,
    missed: AtomicU64,
}

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

/// How a sender's link is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SenderStatus {
    /// What carries it; `None` while there is no connection.
    pub via: Option<Via>,
    /// What the connection carried.
    pub receiver: ReceiverStats,
    /// Its shortest round-trip time, over UDP: the others have the delay of an acknowledgement in them.
    pub rtt: Option<Duration>,
    /// Records that wait for logs.
    pub held: usize,
    /// Values that were older than what the live sinks had.
    pub stale: u64,
    /// It sends what is new alone, because a log takes nothing.
    pub is_on_hold: bool,
}

/// What a log is asked.
struct Job {
    stream: Arc<Stream>,
    what: What,
}

enum What {
    Open(oneshot::Sender<Vec<Range<u64>>>),
    Write(Arc<Vec<Entry>>, Arc<Written>),
}

/// Records that go to every log.
struct Written {
    seqs: Vec<Range<u64>>,
    count: usize,
    /// Logs that have not got them.
    missing: AtomicUsize,
    done: mpsc::UnboundedSender<Arc<Written>>,
}

/// Records for a live sink.
type Shown = (Arc<Stream>, Arc<Vec<Entry>>);

impl Shore {
    /// One with these sinks, for senders with these names and keys; for all, if there are none. Call it inside a
    /// tokio runtime.
    #[must_use]
    pub fn start(sinks: Vec<Sink>, clients: HashMap<String, KeyPin>) -> Arc<Self> {
        let shared = Arc::new(Shared::default());
        let (mut logs, mut lives) = (Vec::new(), Vec::new());
        let mut tasks = JoinSet::new();
        for (at, sink) in sinks.into_iter().enumerate() {
            lock(&shared.sinks).push(SinkStatus {
                kind: sink.kind(),
                status: sink.status(),
                records: 0,
                refused: 0,
                trouble: None,
            });
            let worker = Worker {
                sink,
                at,
                shared: Arc::clone(&shared),
            };
            match worker.sink.kind() {
                Kind::Log => {
                    let (to, jobs) = mpsc::channel(MAX_JOBS);
                    logs.push(to);
                    tasks.spawn(worker.keep(jobs));
                }
                Kind::Live => {
                    let (to, shown) = mpsc::channel(MAX_LIVE_WAITING);
                    lives.push(to);
                    tasks.spawn(worker.show(shown));
                }
            }
        }
        Arc::new(Self {
            clients,
            logs,
            lives,
            shared,
            _tasks: tasks,
        })
    }

    /// How the sinks are, in their order.
    #[must_use]
    pub fn sinks(&self) -> Vec<SinkStatus> {
        lock(&self.shared.sinks).clone()
    }

    /// How the senders are, by name.
    #[must_use]
    pub fn senders(&self) -> Vec<(String, SenderStatus)> {
        let senders = lock(&self.shared.senders);
        let mut senders: Vec<_> = senders
            .iter()
            .map(|(name, status)| (name.clone(), status.clone()))
            .collect();
        senders.sort_by(|a, b| a.0.cmp(&b.0));
        senders
    }

    /// Deliveries that a live sink had no time for.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.shared.missed.load(Ordering::Relaxed)
    }

    /// Takes what a sender sends, to the end of its connection.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn serve(self: Arc<Self>, mut link: Downlink) -> Result<(), DownlinkError> {
        let hello = loop {
            match link.next().await? {
                Arrival::Hello(hello) => break hello,
                // Nothing comes before it.
                _ => continue,
            }
        };
        if let Err(why) = self.admits(&hello, &link) {
            tracing::warn!("{}: {why}", hello.name);
            link.reject(&why);
            return Err(DownlinkError::Ended(why));
        }
        let stream = Arc::new(Stream {
            name: hello.name,
            id: hello.stream,
        });
        tracing::info!(name = stream.name, "a sender is here");
        let name = stream.name.clone();
        let (done, written) = mpsc::unbounded_channel();
        let session = Session {
            shore: Arc::clone(&self),
            stream,
            link,
            done,
            held: 0,
            is_on_hold: false,
        };
        let ended = session.run(written).await;
        if let Some(status) = lock(&self.shared.senders).get_mut(&name) {
            status.via = None;
        }
        match ended {
            Err(error) => {
                tracing::info!(name, "a sender is gone: {error}");
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn admits(&self, hello: &Hello, link: &Downlink) -> Result<(), String> {
        if self.clients.is_empty() {
            return Ok(());
        }
        let key = link.peer().map(towline::PeerIdentity::key_pin);
        match self.clients.get(&hello.name) {
            Some(expected) if Some(*expected) == key => Ok(()),
            Some(_) => Err(format!("the name {:?} belongs to another key", hello.name)),
            None => Err(format!("nobody is called {:?} here", hello.name)),
        }
    }
}

/// One connection of a sender.
struct Session {
    shore: Arc<Shore>,
    stream: Arc<Stream>,
    link: Downlink,
    done: mpsc::UnboundedSender<Arc<Written>>,
    held: usize,
    is_on_hold: bool,
}

impl Session {
    async fn run(
        mut self,
        mut written: mpsc::UnboundedReceiver<Arc<Written>>,
    ) -> Result<(), DownlinkError> {
        let mut opening = JoinSet::new();
        let (shore, stream) = (Arc::clone(&self.shore), Arc::clone(&self.stream));
        opening.spawn(async move { shore.open(&stream).await });
        tokio::select! {
            Some(has) = opening.join_next() => self.link.accept(has.unwrap_or_default()),
            () = tokio::time::sleep(OPENING) => {
                self.hold(true);
                self.link.accept(RangeSet::default());
            }
        }
        loop {
            tokio::select! {
                arrival = self.link.next() => match arrival? {
                    Arrival::Delivery(delivery) => self.on_delivery(delivery),
                    // Nobody waits for them.
                    Arrival::Forgotten(_) | Arrival::Hello(_) => {}
                },
                Some(written) = written.recv() => self.on_written(&written),
                Some(has) = opening.join_next() => {
                    for seqs in has.unwrap_or_default().within(0..u64::MAX) {
                        self.link.on_durable(seqs);
                    }
                    self.hold(false);
                }
            }
            self.tell();
        }
    }

    fn hold(&mut self, is_on_hold: bool) {
        self.is_on_hold = is_on_hold;
        self.link.on_hold(is_on_hold);
    }

    fn on_delivery(&mut self, delivery: Delivery) {
        crash_point("shore.delivered");
        let entries = delivery.entries().map(|(seq, record)| Entry {
            seq,
            record: record.clone(),
        });
        let entries: Arc<Vec<Entry>> = Arc::new(entries.collect());
        if !delivery.is_backfill && !self.shore.lives.is_empty() {
            self.show(&entries);
        }
        if entries.is_empty() {
            return;
        }
        if self.shore.logs.is_empty() {
            for seqs in delivery.new {
                self.link.on_durable(seqs);
            }
            return;
        }
        let count = entries.len();
        let shore = Arc::clone(&self.shore);
        let is_full = self.held + count > MAX_HELD || self.is_on_hold;
        let written = Arc::new(Written {
            seqs: delivery.new,
            count,
            missing: AtomicUsize::new(self.shore.logs.len()),
            done: self.done.clone(),
        });
        // Room for all, or for none.
        let places: Option<Vec<_>> = match is_full {
            true => None,
            false => shore
                .logs
                .iter()
                .map(|log| log.try_reserve().ok())
                .collect(),
        };
        let Some(places) = places else {
            for seqs in &written.seqs {
                self.link.on_discarded(seqs.clone());
            }
            self.hold(true);
            return;
        };
        for place in places {
            place.send(Job {
                stream: Arc::clone(&self.stream),
                what: What::Write(Arc::clone(&entries), Arc::clone(&written)),
            });
        }
        self.held += count;
    }

    fn show(&self, entries: &[Entry]) {
        let mut newest = lock(&self.shore.shared.newest);
        if newest.len() >= MAX_NAMES && !newest.contains_key(&self.stream.name) {
            newest.clear();
        }
        let (id, filter) = newest
            .entry(self.stream.name.clone())
            .or_insert_with(|| (self.stream.id, LiveFilter::new()));
        if *id != self.stream.id {
            // Its numbers began anew.
            (*id, *filter) = (self.stream.id, LiveFilter::new());
        }
        let fresh = entries.iter().filter_map(|entry| {
            let record = filter.filter(entry.seq, &entry.record)?;
            Some(Entry {
                seq: entry.seq,
                record,
            })
        });
        let fresh: Arc<Vec<Entry>> = Arc::new(fresh.collect());
        drop(newest);
        for live in &self.shore.lives {
            let shown = (Arc::clone(&self.stream), Arc::clone(&fresh));
            if live.try_send(shown).is_err() {
                self.shore.shared.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn on_written(&mut self, written: &Written) {
        self.held -= written.count;
        for seqs in &written.seqs {
            self.link.on_durable(seqs.clone());
        }
        crash_point("shore.durable");
        if self.is_on_hold && self.held <= MAX_HELD / 2 {
            self.hold(false);
        }
    }

    fn tell(&self) {
        let stale = lock(&self.shore.shared.newest)
            .get(&self.stream.name)
            .map_or(0, |(_, filter)| filter.stale());
        let mut senders = lock(&self.shore.shared.senders);
        if senders.len() >= MAX_NAMES && !senders.contains_key(&self.stream.name) {
            senders.retain(|_, status| status.via.is_some());
        }
        let status = SenderStatus {
            via: Some(self.link.via()),
            receiver: self.link.stats(),
            rtt: self
                .link
                .connection()
                .and_then(|connection| connection.stats().min_rtt),
            held: self.held,
            stale,
            is_on_hold: self.is_on_hold,
        };
        senders.insert(self.stream.name.clone(), status);
    }
}

impl Shore {
    /// What all logs have of a stream.
    async fn open(&self, stream: &Arc<Stream>) -> RangeSet {
        let mut has: Option<RangeSet> = None;
        for log in &self.logs {
            let (answer, answered) = oneshot::channel();
            let job = Job {
                stream: Arc::clone(stream),
                what: What::Open(answer),
            };
            if log.send(job).await.is_err() {
                return RangeSet::default();
            }
            let ranges = answered.await.unwrap_or_default();
            has = Some(match has {
                None => ranges
                    .into_iter()
                    .fold(RangeSet::default(), |mut set, range| {
                        set.insert(range);
                        set
                    }),
                Some(before) => {
                    let mut both = RangeSet::default();
                    for range in ranges {
                        for range in clipped(&before, &range) {
                            both.insert(range);
                        }
                    }
                    both
                }
            });
        }
        has.unwrap_or_default()
    }
}

/// The members of `set` that lie in `range`.
fn clipped(set: &RangeSet, range: &Range<u64>) -> Vec<Range<u64>> {
    let within = set.within(range.clone());
    within
        .map(|part| part.start.max(range.start)..part.end.min(range.end))
        .collect()
}

/// A sink's task.
struct Worker {
    sink: Sink,
    at: usize,
    shared: Arc<Shared>,
}

impl Worker {
    /// Writes to a log what it is given, however often it fails.
    async fn keep(mut self, mut jobs: mpsc::Receiver<Job>) {
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
                        let mut done = vec![written];
                        let mut all = entries;
                        // What follows of the same stream goes with it.
                        while let Some(next) = jobs.peek()
                            && next.stream == job.stream
                            && let What::Write(more, _) = &next.what
                            && all.len() + more.len() <= WRITTEN_AT_ONCE
                        {
                            Arc::make_mut(&mut all).extend_from_slice(more);
                            if let Some(Job {
                                what: What::Write(_, written),
                                ..
                            }) = jobs.next()
                            {
                                done.push(written);
                            }
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
                    return has.as_slice().to_vec();
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
    async fn show(mut self, mut shown: mpsc::Receiver<Shown>) {
        while let Some((stream, entries)) = shown.recv().await {
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
        if let Some(status) = lock(&self.shared.sinks).get_mut(self.at) {
            status.status = self.sink.status();
            change(status);
        }
    }
}

/// What happens under the lock cannot fail, so a poisoned one is as good.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
