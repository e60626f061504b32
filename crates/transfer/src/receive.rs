//! The receiving half of a session.
//!
//! 1. `read_control` takes the manifest in and hands entries to the decider;
//! 2. `decide`, on a file thread, asks the store and answers;
//! 3. `accept_lanes` gives each lane a network task and a file thread;
//! 4. `take_lane`, on that thread, writes records into the store;
//! 5. `write_control` batches answers and results back to the sender;
//! 6. when all entries are settled, `Done` goes out and the sender ends the stream.
//!
//! Nothing here prints or knows of QUIC; `store` owns every file.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::caps::{
    MAX_CHUNK_BYTES, MAX_ENTRIES, MAX_ITEMS_PER_MESSAGE, MAX_LANES, MAX_PATH_DEPTH, MAX_TEXT_BYTES,
    MAX_UNSETTLED_RECEIVER,
};
use crate::claims::SessionHandle;
use crate::cpu::CpuMeter;
use crate::message::{
    Answer, Entry, HASH_BYTES, Message, RECORD_FILE, Reason, Refusal, read_message,
};
use crate::path::{RelativePath, printable};
use crate::pipe::{BlockReader, PipeClosed, incoming};
use crate::progress::Progress;
use crate::report::{Ended, Report, SessionError};
use crate::store::{OpenFolder, Placed, Store, Wanted};

/// How long the sender may take to end its control stream after `Done`.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long answers and results are collected into one message.
const BATCH_FOR: Duration = Duration::from_millis(1);
/// Items waiting between the session's tasks.
const QUEUE: usize = 1024;

/// What the session's threads hand to `write_control`.
enum Outgoing {
    Answer(u64, Answer),
    Result(u64, Result<(), Refusal>),
    /// Settled, and nothing to say: a folder that was made, its end, something left out.
    Nothing,
}

/// What all tasks of the session share.
struct Session {
    store: Arc<Store>,
    handle: Arc<SessionHandle>,
    /// Where the sender's paths go, below the store's root.
    prefix: Option<RelativePath>,
    inner: Mutex<Inner>,
    /// Entries that may still be taken in before earlier ones are settled.
    room: Semaphore,
    /// When `write_control` is finished.
    until: watch::Sender<Until>,
    /// Every entry is settled and `Done` is on its way.
    done: AtomicBool,
    failed: Notify,
}

/// When `write_control` is finished.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The manifest is not complete.
    Unknown,
    /// So many entries are settled.
    Settled(u64),
    /// At the next message: the session failed.
    Now,
}

#[derive(Default)]
struct Inner {
    wanted: HashMap<u64, Wanted>,
    report: Report,
    error: Option<SessionError>,
}

/// Receives one session's files into `store`, below `prefix`.
///
/// The opening messages are done: the control stream is at the manifest. `lanes` yields
/// the session's lanes, behind their kind and session number. Ends early when `cancelled` turns true.
pub async fn receive<R, W, L>(
    control: (R, W),
    lanes: mpsc::Receiver<L>,
    store: Arc<Store>,
    prefix: Option<RelativePath>,
    progress: Arc<Progress>,
    mut cancelled: watch::Receiver<bool>,
) -> Ended
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
    L: AsyncRead + Unpin + Send + 'static,
{
    let (mut reader, mut writer) = control;
    store.begin_session();
    let meter = CpuMeter::start();
    let session = Arc::new(Session {
        store,
        handle: SessionHandle::new(Arc::clone(&progress)),
        prefix,
        inner: Mutex::default(),
        room: Semaphore::new(MAX_UNSETTLED_RECEIVER),
        until: watch::Sender::new(Until::Unknown),
        done: AtomicBool::new(false),
        failed: Notify::new(),
    });
    let (to_decider, entries) = mpsc::channel(QUEUE);
    let (outgoing, to_write) = mpsc::channel(QUEUE);

    // Tasks that are over when their inputs are: the decider and the lanes.
    let mut workers = JoinSet::new();
    let decider = Arc::clone(&session);
    let answers = outgoing.clone();
    workers.spawn_blocking(move || decider.decide(entries, &answers));
    workers.spawn(accept_lanes(Arc::clone(&session), lanes, outgoing));

    let outcome = {
        let mut writing = std::pin::pin!(write_control(&mut writer, to_write, &session, &meter));
        let mut reading = std::pin::pin!(session.read_control(&mut reader, to_decider));
        let mut manifest_done = false;
        let outcome = loop {
            tokio::select! {
                written = &mut writing => break written.map_err(SessionError::Lost),
                read = &mut reading, if !manifest_done => match read {
                    Ok(()) => manifest_done = true,
                    Err(error) => break Err(error),
                },
                () = session.handle.cancelled() => break Err(SessionError::Cancelled),
                _ = cancelled.wait_for(|cancelled| *cancelled) => {
                    session.handle.cancel();
                    break Err(SessionError::Cancelled);
                }
                () = session.failed.notified() => {
                    if let Some(error) = session.lock().error.take() {
                        break Err(error);
                    }
                }
            }
        };
        if !matches!(outcome, Ok(()) | Err(SessionError::Lost(_))) {
            // A message under way is finished, so that a farewell can follow it.
            session.until.send_replace(Until::Now);
            let _ = tokio::time::timeout(LAST_WORDS, writing).await;
        }
        outcome
    };

    let error = match outcome {
        Ok(()) => None,
        Err(error) => {
            session.handle.cancel();
            let _ = tokio::time::timeout(LAST_WORDS, async {
                if let Some(refusal) = error.farewell() {
                    writer.write_all(&Message::Fatal(refusal).encode()).await?;
                }
                writer.shutdown().await
            })
            .await;
            Some(error)
        }
    };
    let mut peer_cpu = None;
    if error.is_none() {
        // The sender answers `Done`: then our last bytes have arrived.
        let answer = tokio::time::timeout(LAST_WORDS, read_message(&mut reader)).await;
        if let Ok(Ok(Some(Message::Done { cpu_micros }))) = answer {
            peer_cpu = Some(Duration::from_micros(cpu_micros));
        }
    }
    workers.abort_all();
    while workers.join_next().await.is_some() {}
    let mut report = std::mem::take(&mut session.lock().report);
    report.bytes_moved = progress.bytes_moved.load(Ordering::Relaxed);
    Ended {
        report,
        error,
        cpu: meter.spent(),
        peer_cpu,
    }
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session with its first error.
    fn fail(&self, error: SessionError) {
        self.lock().error.get_or_insert(error);
        self.failed.notify_one();
    }

    /// Notes how an entry ended.
    fn settle(&self, note: impl FnOnce(&mut Report)) {
        note(&mut self.lock().report);
        self.room.add_permits(1);
    }

    /// Reads the manifest to its end. Afterwards the sender says nothing more than `Fatal`.
    async fn read_control<R: AsyncRead + Unpin>(
        &self,
        reader: &mut R,
        to_decider: mpsc::Sender<(u64, Entry)>,
    ) -> Result<(), SessionError> {
        let progress = &self.handle.progress;
        let mut index = 0;
        loop {
            match read_message(reader).await? {
                Some(Message::Entries(entries)) => {
                    for entry in entries {
                        if index == MAX_ENTRIES {
                            return Err(SessionError::Protocol("more than 10,000,000 entries"));
                        }
                        if let Entry::File { facts, .. } = &entry {
                            progress.add_announced(facts.size);
                        }
                        // Closed only when the session is over.
                        let Ok(permit) = self.room.acquire().await else {
                            return Ok(());
                        };
                        permit.forget();
                        if to_decider.send((index, entry)).await.is_err() {
                            return Ok(());
                        }
                        index += 1;
                    }
                }
                Some(Message::EndOfList { entries, bytes: _ }) => {
                    if entries != index {
                        return Err(SessionError::Protocol("the manifest's count is wrong"));
                    }
                    progress.list_complete.store(true, Ordering::Relaxed);
                    self.until.send_replace(Until::Settled(entries));
                    break;
                }
                Some(Message::Fatal(refusal)) => return Err(SessionError::Refused(refusal)),
                Some(_) => {
                    return Err(SessionError::Protocol(
                        "a message that only a receiver sends",
                    ));
                }
                None => return Err(SessionError::Lost(io::ErrorKind::UnexpectedEof.into())),
            }
        }
        drop(to_decider);
        match read_message(reader).await? {
            Some(Message::Fatal(refusal)) => Err(SessionError::Refused(refusal)),
            Some(_) => Err(SessionError::Protocol(
                "a message after the end of the manifest",
            )),
            // The sender may only end the stream after `Done`.
            None if self.done.load(Ordering::Relaxed) => Ok(()),
            None => Err(SessionError::Lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Answers every entry, in order. Runs on a file thread.
    fn decide(&self, mut entries: mpsc::Receiver<(u64, Entry)>, outgoing: &mpsc::Sender<Outgoing>) {
        // The folders that have begun and not ended, outermost first.
        let mut folders = Vec::new();
        while let Some((index, entry)) = entries.blocking_recv() {
            if self.handle.is_cancelled() {
                return;
            }
            let item = match self.decide_one(index, entry, &mut folders) {
                Ok(Some(answer)) => Outgoing::Answer(index, answer),
                Ok(None) => Outgoing::Nothing,
                Err(what) => return self.fail(SessionError::Protocol(what)),
            };
            if outgoing.blocking_send(item).is_err() {
                return;
            }
        }
    }

    /// The answer, if this entry gets one.
    fn decide_one(
        &self,
        index: u64,
        entry: Entry,
        folders: &mut Vec<Arc<OpenFolder>>,
    ) -> Result<Option<Answer>, &'static str> {
        let placed = |path: &RelativePath| {
            path.below(self.prefix.as_ref())
                .map_err(|bad| Refusal::new(Reason::BadPath, bad.0))
        };
        let above = folders.last().cloned();
        match entry {
            Entry::LeftOut { path, refusal } => {
                spoil(above.as_ref(), &refusal);
                self.settle(|report| report.fail(path, refusal));
                Ok(None)
            }
            Entry::EndOfFolder => {
                let folder = folders.pop().ok_or("a folder ends that did not begin")?;
                folder.complete();
                self.settle(|_| {});
                Ok(None)
            }
            Entry::Folder { path, facts } => {
                if folders.len() == MAX_PATH_DEPTH {
                    return Err("folders within folders without end");
                }
                let made = placed(&path).and_then(|path| {
                    self.store
                        .open_folder(path, facts, above.clone(), &self.handle)
                });
                match made {
                    Ok(folder) => {
                        folders.push(folder);
                        self.settle(|_| {});
                        Ok(None)
                    }
                    Err(refusal) => {
                        let answer = self.refuse(&path, refusal, above.as_ref());
                        folders.push(OpenFolder::refused(above, &self.handle));
                        Ok(Some(answer))
                    }
                }
            }
            Entry::Link { path, target } => {
                let answer = match placed(&path) {
                    Ok(path) => self.store.make_link(&path, &target, &self.handle),
                    Err(refusal) => Answer::Refuse(refusal),
                };
                if let Answer::Refuse(refusal) = answer {
                    return Ok(Some(self.refuse(&path, refusal, above.as_ref())));
                }
                self.settle(|report| report.links += 1);
                Ok(Some(answer))
            }
            Entry::File { path, facts } => {
                let (answer, wanted) = match placed(&path) {
                    Ok(path) => self.store.prepare(path, facts, above.clone(), &self.handle),
                    Err(refusal) => (Answer::Refuse(refusal), None),
                };
                if let Answer::Refuse(refusal) = answer {
                    self.handle.progress.file_settled();
                    return Ok(Some(self.refuse(&path, refusal, above.as_ref())));
                }
                match wanted {
                    Some(wanted) => {
                        self.lock().wanted.insert(index, wanted);
                    }
                    None => {
                        self.handle.progress.add_found(facts.size);
                        self.handle.progress.file_settled();
                        let is_wider = answer == Answer::Skip { is_wider: true };
                        self.settle(|report| report.skip(&path, facts.size, is_wider));
                    }
                }
                Ok(Some(answer))
            }
        }
    }

    fn refuse(
        &self,
        path: &RelativePath,
        refusal: Refusal,
        folder: Option<&Arc<OpenFolder>>,
    ) -> Answer {
        spoil(folder, &refusal);
        self.settle(|report| report.fail(path, refusal.clone()));
        Answer::Refuse(refusal)
    }

    /// Reads one lane to its end. Runs on a file thread.
    fn take_lane(&self, mut lane: BlockReader, outgoing: &mpsc::Sender<Outgoing>) {
        while !lane.at_end() {
            match self.take_record(&mut lane) {
                Ok((index, result)) => {
                    if outgoing
                        .blocking_send(Outgoing::Result(index, result))
                        .is_err()
                    {
                        return;
                    }
                }
                // The control stream or the connection tells why.
                Err(LaneError::Closed) => return,
                Err(LaneError::Session(error)) => return self.fail(error),
            }
        }
    }

    /// One file: header, chunks, trailer.
    fn take_record(&self, lane: &mut BlockReader) -> Result<(u64, Result<(), Refusal>), LaneError> {
        if lane.varint()? != RECORD_FILE {
            return Err(LaneError::protocol("a lane record of an unknown type"));
        }
        let index = lane.varint()?;
        let offset = lane.varint()?;
        let wanted = self.lock().wanted.remove(&index);
        let Some(wanted) = wanted else {
            return Err(LaneError::protocol(
                "data for a file that was not asked for",
            ));
        };
        let (path, size) = (wanted.path.clone(), wanted.facts.size);
        let is_wider = wanted.is_wider;
        let progress = &self.handle.progress;
        progress.set_current(&path);
        let mut writing = self.store.begin(wanted, offset);
        if let Err(refusal) = &writing
            && refusal.reason == Reason::Protocol
        {
            return Err(LaneError::protocol(
                "a file starts at an offset that was not offered",
            ));
        }
        if writing.is_ok() {
            progress.add_found(offset);
            if offset > 0 && offset < size {
                progress.add_resumed(offset);
            }
        }
        let mut room = size - offset.min(size);
        loop {
            let mut left = lane.varint()?;
            if left == 0 {
                break;
            }
            if left > MAX_CHUNK_BYTES || left > room {
                return Err(LaneError::protocol(
                    "more data than the file's size or a chunk's limit",
                ));
            }
            room -= left;
            while left > 0 {
                let data = lane.some(usize::try_from(left).unwrap_or(usize::MAX))?;
                left -= data.len() as u64;
                progress.add_moved(data.len() as u64);
                if let Ok(file) = &mut writing
                    && let Err(refusal) = file.write(data)
                {
                    if refusal.reason == Reason::DiskFull {
                        return Err(LaneError::Session(SessionError::Local(refusal)));
                    }
                    writing = Err(refusal);
                }
            }
        }
        let code = lane.varint()?;
        let result = if code == 0 {
            let mut hash = [0; HASH_BYTES];
            lane.exact(&mut hash)?;
            writing.and_then(|writing| writing.finish(&hash))
        } else {
            let length = lane.varint()?;
            if length > MAX_TEXT_BYTES as u64 {
                return Err(LaneError::protocol("an explanation is too long"));
            }
            let mut text = vec![0; length as usize];
            lane.exact(&mut text)?;
            let refusal = Refusal {
                reason: Reason::from_code(code),
                text: printable(&text),
            };
            match writing {
                Ok(writing) if refusal.reason == Reason::Changed => writing.discard(),
                // Dropped: a resumable part stays.
                _ => {}
            }
            Err(refusal)
        };
        progress.file_settled();
        let outcome = result.as_ref().map(|_| ()).map_err(Clone::clone);
        self.settle(|report| match result {
            Ok(Placed::Written) => {
                report.files += 1;
                report.bytes += size;
                if offset > 0 {
                    report.resumed += 1;
                    report.bytes_resumed += offset;
                }
            }
            Ok(Placed::Identical) => report.skip(&path, size, is_wider),
            Err(refusal) => report.fail(&path, refusal),
        });
        Ok((index, outcome))
    }
}

/// Keeps a folder open for the next session, if that may bring what does not come now.
fn spoil(folder: Option<&Arc<OpenFolder>>, refusal: &Refusal) {
    if let Some(folder) = folder
        && !refusal.reason.is_left_out()
    {
        folder.spoil();
    }
}

/// Why a lane ends before its stream does.
enum LaneError {
    Closed,
    Session(SessionError),
}

impl LaneError {
    fn protocol(what: &'static str) -> Self {
        Self::Session(SessionError::Protocol(what))
    }
}

impl From<PipeClosed> for LaneError {
    fn from(_: PipeClosed) -> Self {
        Self::Closed
    }
}

/// Gives each arriving lane a network task and a file thread, until the session ends.
async fn accept_lanes<L>(
    session: Arc<Session>,
    mut lanes: mpsc::Receiver<L>,
    outgoing: mpsc::Sender<Outgoing>,
) where
    L: AsyncRead + Unpin + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut accepted = 0;
    // Aborting this task drops the set, which aborts the pumps, which ends the threads.
    while let Some(lane) = lanes.recv().await {
        accepted += 1;
        if accepted > MAX_LANES {
            session.fail(SessionError::Protocol("too many lanes"));
            return;
        }
        let (feeder, reader) = incoming();
        let progress: Arc<Progress> = Arc::clone(&session.handle.progress);
        // A broken lane shows on the control stream as well; the thread just sees its end.
        tasks.spawn(async move {
            let _ = feeder.pump_in(lane, progress).await;
        });
        let thread_session = Arc::clone(&session);
        let outgoing = outgoing.clone();
        tasks.spawn_blocking(move || thread_session.take_lane(reader, &outgoing));
    }
    drop(outgoing);
    while tasks.join_next().await.is_some() {}
}

/// Sends answers and results in batches, then `Done` when every entry is settled.
///
/// Only items that passed through here count as settled, so `Done` can never overtake one.
async fn write_control<W: AsyncWrite + Unpin>(
    writer: &mut W,
    mut items: mpsc::Receiver<Outgoing>,
    session: &Session,
    meter: &CpuMeter,
) -> io::Result<()> {
    let mut until = session.until.subscribe();
    let mut settled = 0;
    let mut answers = Vec::new();
    let mut results = Vec::new();
    loop {
        match *until.borrow_and_update() {
            Until::Now => return Ok(()),
            Until::Settled(all) if all == settled => break,
            _ => {}
        }
        let item = tokio::select! {
            biased;
            _ = until.changed() => continue,
            item = items.recv() => item,
        };
        // No thread is left that could settle the rest: another task has the error.
        let Some(item) = item else {
            return std::future::pending().await;
        };
        // What settles in the same moment travels in the same packet.
        if items.len() < MAX_ITEMS_PER_MESSAGE {
            tokio::time::sleep(BATCH_FOR).await;
        }
        let mut next = Some(item);
        while let Some(item) = next {
            match item {
                Outgoing::Answer(index, answer) => {
                    if !matches!(answer, Answer::Want { .. }) {
                        settled += 1;
                    }
                    answers.push((index, answer));
                }
                Outgoing::Result(index, result) => {
                    settled += 1;
                    results.push((index, result));
                }
                Outgoing::Nothing => settled += 1,
            }
            let full = answers.len().max(results.len()) >= MAX_ITEMS_PER_MESSAGE;
            next = if full { None } else { items.try_recv().ok() };
        }
        if !answers.is_empty() {
            let message = Message::Answers(std::mem::take(&mut answers));
            writer.write_all(&message.encode()).await?;
        }
        if !results.is_empty() {
            let message = Message::Results(std::mem::take(&mut results));
            writer.write_all(&message.encode()).await?;
        }
    }
    session.done.store(true, Ordering::Relaxed);
    let done = Message::Done {
        cpu_micros: meter.micros(),
    };
    writer.write_all(&done.encode()).await?;
    writer.shutdown().await
}
