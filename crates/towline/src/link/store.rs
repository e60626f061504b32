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
    is_passing: bool,
}

impl StoreError {
    /// An error that says this.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_passing: false,
        }
    }

    /// One that passes: there is no room until some records are trimmed, or the disk does not work now. The record
    /// waits.
    pub fn passing(reason: impl Into<String>) -> Self {
        Self {
            is_passing: true,
            ..Self::new(reason)
        }
    }

    /// Whether a record has to wait, and is not refused.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.is_passing
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
    /// When there is no room now, or the disk fails ([`StoreError::passing`]): it is tried again. When the store never
    /// takes this record.
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

    /// The numbers of what it holds belong to another stream from now on: the other end has records under them that
    /// this store never held. The new stream's id, once it is durable.
    ///
    /// # Errors
    /// When the disk fails, or the store has but one.
    fn begin_stream(&mut self) -> Result<u64, StoreError> {
        Err(StoreError::new("this store has but one stream of records"))
    }

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
    BeginStream,
}

/// What the thread answers.
pub(super) enum Answer<T> {
    /// These are durable now, in the order of their numbers; and the bytes that the store takes.
    Kept(Vec<(Kept, T)>, u64),
    /// This one was refused.
    Refused(T, StoreError),
    /// What was appended is not durable, or there is no room for more; it is tried again.
    Trouble(StoreError),
    Read(Range<u64>, Result<Stored, StoreError>),
    Stream(Result<u64, StoreError>),
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
                    waiting: VecDeque::new(),
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
    /// What there was no room for, in order.
    waiting: VecDeque<(Vec<u8>, T)>,
    /// What was appended and is not durable.
    kept: Vec<(Kept, T)>,
    trim: Option<u64>,
    answer: mpsc::UnboundedSender<Answer<T>>,
}

impl<S: Store, T> Work<S, T> {
    fn run(mut self, asked: &thread_channel::Receiver<Ask<T>>) {
        loop {
            let first = match self.kept.is_empty() && self.waiting.is_empty() {
                true => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => asked.recv_timeout(AGAIN),
            };
            match first {
                Ok(first) => self.take(first, asked),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.store.close(),
            }
            if let Some(below) = self.trim.take()
                && let Err(error) = self.store.trim(below)
            {
                tracing::warn!("what is durable at the other end stays in the spool: {error}");
            }
            self.append();
            self.commit();
        }
    }

    /// Appends what waits, as far as there is room.
    fn append(&mut self) {
        while let Some((record, _)) = self.waiting.front() {
            let appended = self.store.append(record);
            match appended {
                Err(error) if error.is_passing() => return self.tell(Answer::Trouble(error)),
                _ => {}
            }
            let Some((_, of)) = self.waiting.pop_front() else {
                return;
            };
            match appended {
                Ok(kept) => {
                    self.kept.push((kept, of));
                    crash_point("spool.appended");
                }
                Err(error) => self.tell(Answer::Refused(of, error)),
            }
        }
    }

    /// Takes what was asked meanwhile, too.
    fn take(&mut self, first: Ask<T>, asked: &thread_channel::Receiver<Ask<T>>) {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(ask) = next.take() {
            match ask {
                Ask::Append(record, of) => self.waiting.push_back((record, of)),
                Ask::Read(seqs) => {
                    let read = self.store.read(seqs.clone());
                    self.tell(Answer::Read(seqs, read));
                }
                Ask::Trim(below) => self.trim = Some(below),
                Ask::BeginStream => {
                    let begun = self.store.begin_stream();
                    self.tell(Answer::Stream(begun));
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds two records.
    struct Small(MemoryStore);

    impl Store for Small {
        fn held(&self) -> Held {
            self.0.held()
        }

        fn append(&mut self, record: &[u8]) -> Result<Kept, StoreError> {
            match self.0.records.len() {
                2.. => Err(StoreError::passing("full")),
                _ if record.is_empty() => Err(StoreError::new("never")),
                _ => self.0.append(record),
            }
        }

        fn commit(&mut self) -> Result<u64, StoreError> {
            self.0.commit()
        }

        fn read(&mut self, seqs: Range<u64>) -> Result<Stored, StoreError> {
            self.0.read(seqs)
        }

        fn trim(&mut self, below: u64) -> Result<(), StoreError> {
            self.0.trim(below)
        }

        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
    }

    #[tokio::test]
    async fn what_a_full_store_has_no_room_for_waits_and_what_it_never_takes_does_not() {
        let mut keeper = Keeper::start(Small(MemoryStore::new(1, 1_000))).unwrap();
        for (of, record) in [&b"a"[..], b"b", b"c", b"", b"d"].into_iter().enumerate() {
            keeper.ask(Ask::Append(record.to_vec(), of));
        }
        let mut kept = Vec::new();
        let mut refused = Vec::new();
        let mut troubles = 0;
        while kept.len() < 4 {
            match keeper.answer().await.unwrap() {
                Answer::Kept(some, _) => {
                    kept.extend(some.into_iter().map(|(kept, of)| (kept.seq, of)));
                }
                Answer::Refused(of, _) => refused.push(of),
                Answer::Trouble(error) => {
                    assert!(error.is_passing());
                    troubles += 1;
                    if troubles == 2 {
                        assert_eq!(kept, [(0, 0), (1, 1)]);
                        keeper.ask(Ask::Trim(2));
                    }
                }
                Answer::Read(..) | Answer::Stream(..) => panic!("nothing is asked"),
            }
        }
        assert_eq!(kept, [(0, 0), (1, 1), (2, 2), (3, 4)]);
        assert_eq!(refused, [3]);
        keeper.end().await;
    }
}
