//! [`Shore`]: the end of links that receives, with sinks behind it.
//!
//! Each sink has a task of its own. A record is durable when every log has it; until then it is held here, within
//! bounds. Where a log is down, what has no place is given back to the sender, which keeps it and sends only what
//! is new, for the live sinks; once the log takes records again, the rest comes. Live sinks get what is newer than
//! what they got before, and nobody waits for them: one that was away or slow gets the newest values at last.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use towline::identity::KeyPin;
use towline::link::{
    Arrival, Delivery, Downlink, DownlinkError, Hello, ReceiverStats, Via, crash_point,
};
use towline_link::{LiveFilter, RangeSet};

use crate::live::LiveQueue;
use crate::lock::lock;
use crate::worker::{Job, Sinks, What, Worker, Written};
use crate::{Entry, Kind, Sink, SinkStatus, Stream};

/// Cap: records of one sender that wait for logs; a larger delivery goes alone.
pub const MAX_HELD: usize = 16_384;
/// Cap: bytes of memory that those take; a larger delivery goes alone.
pub const MAX_HELD_BYTES: usize = 32 << 20;
/// Cap: KiB of memory of what waits for logs, all senders together.
const LOG_ROOM: usize = 128 << 10;
/// Jobs that wait for a log, all senders together; each sender has no more than [`MAX_HELD`] records in them.
const MAX_JOBS: usize = 4_096;
/// How often it is looked whether logs have room again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a sender waits for the logs to say what they have, before it may send what is new.
const OPENING: Duration = Duration::from_millis(500);
/// Senders whose newest values are remembered, and whose state is shown.
const MAX_NAMES: usize = 1_024;

/// Where links end.
#[derive(Debug)]
pub struct Shore {
    clients: HashMap<String, KeyPin>,
    logs: Vec<mpsc::Sender<Job>>,
    lives: Vec<Arc<LiveQueue>>,
    sinks: Sinks,
    shared: Shared,
    log_room: Arc<Semaphore>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Those that are here, and how they are told that they are here again.
    here: Mutex<HashMap<Arc<Stream>, Arc<Notify>>>,
    senders: Mutex<HashMap<String, SenderStatus>>,
    newest: Mutex<HashMap<String, (u64, LiveFilter)>>,
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
    /// Bytes of memory that they take.
    pub held_bytes: usize,
    /// Values that were older than what the live sinks had.
    pub stale: u64,
    /// It sends what is new alone, because a log takes nothing.
    pub is_on_hold: bool,
}

impl Shore {
    /// One with these sinks, for senders with these names and keys; for all, if there are none. Call it inside a
    /// tokio runtime.
    #[must_use]
    pub fn start(sinks: Vec<Sink>, clients: HashMap<String, KeyPin>) -> Arc<Self> {
        let all = Sinks::default();
        let (mut logs, mut lives) = (Vec::new(), Vec::new());
        let mut tasks = JoinSet::new();
        for (at, sink) in sinks.into_iter().enumerate() {
            lock(&all).push(SinkStatus {
                kind: sink.kind(),
                status: sink.status(),
                records: 0,
                refused: 0,
                trouble: None,
            });
            let kind = sink.kind();
            let worker = Worker::new(sink, at, Arc::clone(&all));
            match kind {
                Kind::Log => {
                    let (to, jobs) = mpsc::channel(MAX_JOBS);
                    logs.push(to);
                    tasks.spawn(worker.keep(jobs));
                }
                Kind::Live => {
                    let queue = Arc::new(LiveQueue::default());
                    lives.push(Arc::clone(&queue));
                    tasks.spawn(worker.show(queue));
                }
            }
        }
        Arc::new(Self {
            clients,
            logs,
            lives,
            sinks: all,
            shared: Shared::default(),
            log_room: Arc::new(Semaphore::new(LOG_ROOM)),
            _tasks: tasks,
        })
    }

    /// How the sinks are, in their order.
    #[must_use]
    pub fn sinks(&self) -> Vec<SinkStatus> {
        lock(&self.sinks).clone()
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

    /// Records that live sinks were not given because they were slow or away: newer ones replaced them, or there was no
    /// room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.lives.iter().map(|queue| queue.missed()).sum()
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
        let again = Arc::new(Notify::new());
        let before = lock(&self.shared.here).insert(Arc::clone(&stream), Arc::clone(&again));
        if let Some(before) = before {
            before.notify_one();
        }
        let session = Session {
            shore: Arc::clone(&self),
            stream: Arc::clone(&stream),
            link,
            done,
            held: 0,
            held_bytes: 0,
            is_on_hold: false,
        };
        let ended = session.run(written, &again).await;
        let mut here = lock(&self.shared.here);
        if here.get(&stream).is_some_and(|it| Arc::ptr_eq(it, &again)) {
            here.remove(&stream);
            if let Some(status) = lock(&self.shared.senders).get_mut(&name) {
                status.via = None;
            }
        }
        drop(here);
        match ended {
            Err(error) => {
                tracing::info!(name, "a sender is gone: {error}");
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn admits(&self, hello: &Hello, link: &Downlink) -> Result<(), String> {
        // Databases refuse some of them, and a log would wait for ever.
        if hello.name.chars().any(char::is_control) {
            return Err("a name is made of letters, digits and the like".to_owned());
        }
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
    held_bytes: usize,
    is_on_hold: bool,
}

impl Session {
    async fn run(
        mut self,
        mut written: mpsc::UnboundedReceiver<Arc<Written>>,
        again: &Notify,
    ) -> Result<(), DownlinkError> {
        let mut look = tokio::time::interval(LOOK_AGAIN);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                    self.link.on_opened(&has.unwrap_or_default());
                    self.is_on_hold = false;
                }
                // Others had filled the logs' queues.
                _ = look.tick(), if self.is_on_hold && opening.is_empty() => {
                    if self.has_room() && self.shore.have_room() {
                        self.hold(false);
                    }
                }
                () = again.notified() => {
                    let why = "a newer connection of the same sender is here";
                    self.link.reject(why);
                    return Err(DownlinkError::Ended(why.to_owned()));
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
        if !self.shore.lives.is_empty() {
            self.show(&delivery);
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
        let bytes = memory(&entries);
        let shore = Arc::clone(&self.shore);
        let is_too_much = self.held + count > MAX_HELD || self.held_bytes + bytes > MAX_HELD_BYTES;
        let is_full = self.held > 0 && is_too_much || self.is_on_hold;
        // Room for all, or for none.
        let places: Option<Vec<_>> = match is_full {
            true => None,
            false => shore
                .logs
                .iter()
                .map(|log| log.try_reserve().ok())
                .collect(),
        };
        let room = places.and_then(|places| {
            let room = reserve(&shore.log_room, bytes)?;
            Some((places, room))
        });
        let Some((places, room)) = room else {
            for seqs in delivery.new {
                self.link.on_discarded(seqs);
            }
            self.hold(true);
            return;
        };
        let written = Arc::new(Written {
            seqs: delivery.new,
            count,
            bytes,
            missing: AtomicUsize::new(self.shore.logs.len()),
            done: self.done.clone(),
            _room: room,
        });
        for place in places {
            place.send(Job {
                stream: Arc::clone(&self.stream),
                what: What::Write(Arc::clone(&entries), Arc::clone(&written)),
            });
        }
        self.held += count;
        self.held_bytes += bytes;
    }

    /// Whether half of what it may hold is free.
    fn has_room(&self) -> bool {
        self.held <= MAX_HELD / 2 && self.held_bytes <= MAX_HELD_BYTES / 2
    }

    fn show(&self, delivery: &Delivery) {
        let live: Vec<_> = delivery.live().collect();
        if live.is_empty() {
            return;
        }
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
        let fresh = live.into_iter().filter_map(|(seq, record)| {
            let record = filter.filter(seq, &record)?;
            Some(Entry { seq, record })
        });
        let fresh: Vec<Entry> = fresh.collect();
        // Under the lock: another connection of the same boat may have newer values.
        for queue in &self.shore.lives {
            queue.push(&self.stream, &fresh);
        }
    }

    fn on_written(&mut self, written: &Written) {
        self.held -= written.count;
        self.held_bytes -= written.bytes;
        for seqs in &written.seqs {
            self.link.on_durable(seqs.clone());
        }
        crash_point("shore.durable");
        if self.is_on_hold && self.has_room() {
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
            held_bytes: self.held_bytes,
            stale,
            is_on_hold: self.is_on_hold,
        };
        senders.insert(self.stream.name.clone(), status);
    }
}

/// Bytes of memory that records take.
fn memory(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.record.memory()).sum()
}

/// A part of the memory for all senders: what is larger needs all of it.
fn reserve(room: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let kib = (bytes / 1_024 + 1).min(LOG_ROOM);
    let kib = u32::try_from(kib).unwrap_or(u32::MAX);
    Arc::clone(room).try_acquire_many_owned(kib).ok()
}

impl Shore {
    /// Whether a good part of what logs can be given is free.
    fn have_room(&self) -> bool {
        let are_free = |log: &mpsc::Sender<Job>| log.capacity() >= MAX_JOBS / 4;
        self.logs.iter().all(are_free) && self.log_room.available_permits() >= LOG_ROOM / 4
    }

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
fn clipped(set: &RangeSet, range: &std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
    let within = set.within(range.clone());
    within
        .map(|part| part.start.max(range.start)..part.end.min(range.end))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_senders_share_so_much_memory() {
        let room = Arc::new(Semaphore::new(LOG_ROOM));
        let third = LOG_ROOM * 1_024 / 3 - 1_024;
        let mut held: Vec<_> = (0..3).map(|_| reserve(&room, third)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(reserve(&room, third).is_none());
        held.pop();
        assert!(reserve(&room, third).is_some());
        held.clear();
        // What is larger goes alone.
        let alone = reserve(&room, 2 * LOG_ROOM * 1_024);
        assert!(alone.is_some() && reserve(&room, 0).is_none());
    }
}
