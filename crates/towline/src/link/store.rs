//! [`Store`]: where records are kept until they are durable at the other end, and the thread that works it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{self as thread_channel, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use towline_link::sender::Held;

use super::crash::crash_point;

/// A store could not do what it was asked to. It says whose fault it is and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct StoreError {
    reason: String,
}

impl StoreError {
    /// An error that says this.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

/// A record that a store took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number: 1 more than that of the record before.
    pub seq: u64,
    /// What had to go to make room for it.
    pub dropped: Option<Range<u64>>,
}

/// Records that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// They, with their numbers, which ascend.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Where to go on. What is missing before it is lost.
    pub next: u64,
}

/// A first-in, first-out store of records, by number.
pub trait Store: Send + 'static {
    /// What it holds now.
    fn held(&self) -> Held;

    /// Takes a record, which need not be durable before [`commit`](Self::commit).
    ///
    /// # Errors
    /// When there is no room, or the disk fails.
    fn append(&mut self, record: &[u8]) -> Result<Kept, StoreError>;

    /// Makes durable what was appended; all records below the number that it returns are.
    ///
    /// # Errors
    /// When the disk fails; the next call tries again with all that was appended.
    fn commit(&mut self) -> Result<u64, StoreError>;

    /// The records of these numbers, or of the first of them.
    ///
    /// # Errors
    /// When the disk fails.
    fn read(&mut self, seqs: Range<u64>) -> Result<Stored, StoreError>;

    /// Forgets records below this number.
    ///
    /// # Errors
    /// When the disk fails.
    fn trim(&mut self, below: u64) -> Result<(), StoreError>;

    /// Bytes that it takes.
    fn bytes(&self) -> u64;

    /// Nothing more comes: writes down what is only in memory. What it cannot write costs the other end records that
    /// it has.
    fn close(&mut self) {}
}

/// A store in memory: it holds what is not durable at the other end as long as the process lives.
#[derive(Debug)]
pub struct MemoryStore {
    stream: u64,
    first: u64,
    records: VecDeque<Box<[u8]>>,
    bytes: u64,
    max: u64,
}

impl MemoryStore {
    /// One of so many bytes; beyond these the oldest records go. `stream` is a random number.
    #[must_use]
    pub fn new(stream: u64, max: u64) -> Self {
        Self {
            stream,
            first: 0,
            records: VecDeque::new(),
            bytes: 0,
            max,
        }
    }

    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn pop(&mut self) {
        if let Some(record) = self.records.pop_front() {
            self.first += 1;
            self.bytes -= record.len() as u64;
        }
    }
}

impl Store for MemoryStore {
    fn held(&self) -> Held {
        Held {
            stream: self.stream,
            seqs: self.first..self.next(),
        }
    }

    fn append(&mut self, record: &[u8]) -> Result<Kept, StoreError> {
        let seq = self.next();
        self.bytes += record.len() as u64;
        self.records.push_back(record.into());
        let first = self.first;
        while self.bytes > self.max && self.records.len() > 1 {
            self.pop();
        }
        let dropped = (self.first > first).then_some(first..self.first);
        Ok(Kept { seq, dropped })
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        Ok(self.next())
    }

    fn read(&mut self, seqs: Range<u64>) -> Result<Stored, StoreError> {
        let have = seqs.start.max(self.first)..seqs.end.min(self.next());
        let read = have.map(|seq| (seq, self.records[(seq - self.first) as usize].to_vec()));
        Ok(Stored {
            records: read.collect(),
            next: seqs.end,
        })
    }

    fn trim(&mut self, below: u64) -> Result<(), StoreError> {
        while self.first < below && !self.records.is_empty() {
            self.pop();
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What the thread is asked.
pub(super) enum Ask<T> {
    Append(Vec<u8>, T),
    Read(Range<u64>),
    Trim(u64),
}

/// What the thread answers.
pub(super) enum Answer<T> {
    /// These are durable now, in the order of their numbers; and the bytes that the store takes.
    Kept(Vec<(Kept, T)>, u64),
    /// This one was refused.
    Refused(T, StoreError),
    /// What was appended is not durable, and it is tried again.
    Trouble(StoreError),
    Read(Range<u64>, Result<Stored, StoreError>),
}

/// Records that are made durable at once.
const MAX_GROUP: usize = 1_024;
/// From one attempt to make them durable to the next.
const AGAIN: Duration = Duration::from_secs(1);

/// Works a store on a thread of its own: disks take their time.
pub(super) struct Keeper<T> {
    asks: thread_channel::Sender<Ask<T>>,
    answers: mpsc::UnboundedReceiver<Answer<T>>,
    ended: oneshot::Receiver<()>,
}

impl<T: Send + 'static> Keeper<T> {
    pub(super) fn start(store: impl Store) -> std::io::Result<Self> {
        let (asks, asked) = thread_channel::channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("towline-spool".to_owned())
            .spawn(move || {
                Work {
                    store,
                    kept: Vec::new(),
                    trim: None,
                    answer,
                }
                .run(&asked);
                let _ = end.send(());
            })?;
        Ok(Self {
            asks,
            answers,
            ended,
        })
    }

    pub(super) fn ask(&self, ask: Ask<T>) {
        // Its end is told by there being no more answers.
        let _ = self.asks.send(ask);
    }

    /// The next answer; `None` after the thread's end. Cancel safe.
    pub(super) async fn answer(&mut self) -> Option<Answer<T>> {
        self.answers.recv().await
    }

    /// Waits until the store is closed.
    pub(super) async fn end(self) {
        drop(self.asks);
        let _ = self.ended.await;
    }
}

/// The thread.
struct Work<S, T> {
    store: S,
    /// What was appended and is not durable.
    kept: Vec<(Kept, T)>,
    trim: Option<u64>,
    answer: mpsc::UnboundedSender<Answer<T>>,
}

impl<S: Store, T> Work<S, T> {
    fn run(mut self, asked: &thread_channel::Receiver<Ask<T>>) {
        loop {
            let first = match self.kept.is_empty() {
                true => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => asked.recv_timeout(AGAIN),
            };
            match first {
                Ok(first) => self.take(first, asked),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.store.close(),
            }
            self.commit();
            if let Some(below) = self.trim.take()
                && let Err(error) = self.store.trim(below)
            {
                tracing::warn!("what is durable at the other end stays in the spool: {error}");
            }
        }
    }

    /// Takes what was asked meanwhile, too.
    fn take(&mut self, first: Ask<T>, asked: &thread_channel::Receiver<Ask<T>>) {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(ask) = next.take() {
            match ask {
                Ask::Append(record, of) => match self.store.append(&record) {
                    Ok(kept) => {
                        self.kept.push((kept, of));
                        crash_point("spool.appended");
                    }
                    Err(error) => self.tell(Answer::Refused(of, error)),
                },
                Ask::Read(seqs) => {
                    let read = self.store.read(seqs.clone());
                    self.tell(Answer::Read(seqs, read));
                }
                Ask::Trim(below) => self.trim = Some(below),
            }
            taken += 1;
            if taken < MAX_GROUP {
                next = asked.try_recv().ok();
            }
        }
    }

    fn commit(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        match self.store.commit() {
            Ok(_) => {
                crash_point("spool.committed");
                let kept = std::mem::take(&mut self.kept);
                self.tell(Answer::Kept(kept, self.store.bytes()));
            }
            Err(error) => self.tell(Answer::Trouble(error)),
        }
    }

    fn tell(&self, answer: Answer<T>) {
        // Nobody listens at the end.
        let _ = self.answer.send(answer);
    }
}
