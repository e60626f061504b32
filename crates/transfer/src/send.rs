//! The sending half of a session.
//!
//! 1. `list`, on a file thread, walks the roots;
//! 2. `write_manifest` numbers, batches and sends entries while the walk goes on;
//! 3. `read_control` turns answers into jobs and results into the report;
//! 4. lanes take jobs: `source` on file threads, `pipe` to the network;
//! 5. `Done` ends the session: every entry is settled.
//!
//! Nothing here prints or knows of QUIC.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::caps::{MAX_LANES, MAX_UNSETTLED_SENDER};
use crate::cpu::CpuMeter;
use crate::encoding::put_varint;
use crate::message::{Answer, Entry, FileFacts, Message, Refusal, put_entry, read_message};
use crate::open::stream_kind;
use crate::path::RelativePath;
use crate::pipe::{LaneWriter, OpenLane, outgoing, pump_out};
use crate::progress::Progress;
use crate::report::{Ended, Report, SessionError};
use crate::source::{Job, Jobs, serve_lane};
use crate::walk::{Found, Root, walk};

/// Entries are sent once this many bytes are collected, or when the walk pauses.
const ENTRY_BATCH_BYTES: usize = 16 * 1024;
const QUEUE: usize = 1024;
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What to send and how.
pub struct SendPlan {
    /// Files and folders.
    pub roots: Vec<Root>,
    /// Send what symbolic links inside folders lead to, instead of the links.
    pub follow_links: bool,
    /// Data streams, 1 to `MAX_LANES`.
    pub lanes: usize,
}

struct Session {
    progress: Arc<Progress>,
    jobs: Jobs,
    room: Semaphore,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    announced: HashMap<u64, Announced>,
    report: Report,
}

/// A file or link in the manifest that is not settled.
struct Announced {
    path: RelativePath,
    /// `None` for a link.
    file: Option<(PathBuf, FileFacts)>,
    asked: Option<Asked>,
    /// The file in place has a mode that permits more, the receiver says.
    is_wider: bool,
}

impl Announced {
    fn size(&self) -> u64 {
        self.file.as_ref().map_or(0, |(_, facts)| facts.size)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Data,
    /// Only whether it is the same as the one in place; or it turned out so.
    Comparison,
}

/// What a sender knows beyond the report.
#[derive(Debug)]
pub struct SendEnded<W> {
    /// What was done, and why it ended.
    pub ended: Ended,
    /// Our half of the control stream, ended: its last words may still be on their way.
    pub control: W,
}

/// Sends one session's files; the opening messages are done. Ends early when `cancelled`
/// turns true.
pub async fn send<R, W, O>(
    control: (R, W),
    lanes: O,
    session_number: u64,
    plan: SendPlan,
    progress: Arc<Progress>,
    mut cancelled: watch::Receiver<bool>,
) -> SendEnded<W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
    O: OpenLane,
{
    let (mut reader, mut writer) = control;
    let meter = CpuMeter::start();
    let session = Arc::new(Session {
        progress: Arc::clone(&progress),
        jobs: Jobs::default(),
        room: Semaphore::new(MAX_UNSETTLED_SENDER),
        inner: Mutex::default(),
    });
    let _abandon = Abandon(Arc::clone(&session));
    let (found, to_announce) = mpsc::channel(QUEUE);
    let mut workers = JoinSet::new();
    let (roots, follow_links) = (plan.roots, plan.follow_links);
    workers.spawn_blocking(move || {
        walk(&roots, follow_links, &mut |item| {
            found.blocking_send(item).is_ok()
        });
        Ok(())
    });
    for _ in 0..plan.lanes.clamp(1, MAX_LANES) {
        let session = Arc::clone(&session);
        workers.spawn(run_lane(session, lanes.clone(), session_number));
    }

    let outcome = {
        let mut announcing = std::pin::pin!(session.write_manifest(&mut writer, to_announce));
        let mut reading = std::pin::pin!(session.read_control(&mut reader));
        let mut announced = false;
        let mut reading_over = false;
        let lost = loop {
            tokio::select! {
                read = &mut reading => {
                    reading_over = true;
                    break read;
                }
                written = &mut announcing, if !announced => match written {
                    Ok(()) => announced = true,
                    Err(error) => break Err(SessionError::Lost(error)),
                },
                Some(worker) = workers.join_next() => {
                    // A lane ends by itself only with the jobs or with the connection.
                    if let Ok(Err(error)) = worker {
                        break Err(SessionError::Lost(error));
                    }
                }
                _ = cancelled.wait_for(|cancelled| *cancelled) => break Err(SessionError::Cancelled),
            }
        };
        // A stream that fails may mean that the receiver gave up; its reason is on the way.
        let outcome = match lost {
            Err(SessionError::Lost(error)) if !reading_over => {
                match tokio::time::timeout(LAST_WORDS, &mut reading).await {
                    Ok(Err(SessionError::Refused(refusal))) => Err(SessionError::Refused(refusal)),
                    _ => Err(SessionError::Lost(error)),
                }
            }
            other => other,
        };
        (outcome, announced)
    };
    let (outcome, announced) = outcome;
    if outcome.is_ok() {
        session.jobs.close();
        let _ = tokio::time::timeout(LAST_WORDS, async {
            while workers.join_next().await.is_some() {}
        })
        .await;
    }
    let (peer_cpu, error) = match outcome {
        Ok(cpu) => (Some(cpu), None),
        Err(error) => (None, Some(error)),
    };
    // Also ends the stream, which the receiver waits for. In the middle of a manifest there
    // is no place for a farewell: the receiver sees the connection close.
    let _ = tokio::time::timeout(LAST_WORDS, async {
        let farewell = match &error {
            None => Some(Message::Done {
                cpu_micros: meter.micros(),
            }),
            Some(error) => error.farewell().map(Message::Fatal),
        };
        if let Some(message) = farewell.filter(|_| announced) {
            writer.write_all(&message.encode()).await?;
        }
        writer.shutdown().await
    })
    .await;
    workers.abort_all();
    let mut inner = session.lock();
    let mut report = std::mem::take(&mut inner.report);
    report.bytes_moved = progress.bytes_moved.load(Ordering::Relaxed);
    report.resumed = progress.files_resumed.load(Ordering::Relaxed);
    report.bytes_resumed = progress.bytes_resumed.load(Ordering::Relaxed);
    let ended = Ended {
        report,
        error,
        cpu: meter.spent(),
        peer_cpu,
    };
    SendEnded {
        ended,
        control: writer,
    }
}

/// Releases the lanes' threads however the session ends, by a dropped future too.
struct Abandon(Arc<Session>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.jobs.abandon();
    }
}

/// One lane: a stream, a network task, a file thread.
async fn run_lane<O: OpenLane>(
    session: Arc<Session>,
    lanes: O,
    session_number: u64,
) -> io::Result<()> {
    let mut lane = lanes.open().await?;
    let mut preamble = Vec::new();
    put_varint(&mut preamble, stream_kind::LANE);
    put_varint(&mut preamble, session_number);
    lane.write_chunk(preamble.into()).await?;
    let (mut writer, blocks) = outgoing();
    let progress = Arc::clone(&session.progress);
    tokio::task::spawn_blocking(move || {
        let unmoved = |index| session.on_unmoved(index);
        // A closed pipe shows in `pump_out`'s error.
        let _ = serve_lane(&session.jobs, &mut writer, &session.progress, &unmoved);
    });
    pump_out(lane, blocks, progress).await
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the manifest while the walk goes on.
    async fn write_manifest<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut W,
        mut found: mpsc::Receiver<Found>,
    ) -> io::Result<()> {
        let mut batch = Vec::new();
        let (mut entries, mut bytes) = (0, 0u64);
        loop {
            if batch.len() >= ENTRY_BATCH_BYTES || (!batch.is_empty() && found.is_empty()) {
                writer.write_all(&Message::wrap_entries(&batch)).await?;
                batch.clear();
            }
            let Some(Found(entry, disk)) = found.recv().await else {
                break;
            };
            let announced = match &entry {
                Entry::File { path, facts } => {
                    self.progress.add_announced(facts.size);
                    bytes = bytes.saturating_add(facts.size);
                    Some((path, Some((disk, *facts))))
                }
                Entry::Link { path, .. } => Some((path, None)),
                Entry::Folder { .. } | Entry::EndOfFolder => None,
                Entry::LeftOut { path, refusal } => {
                    self.lock().report.fail(path, refusal.clone());
                    None
                }
            };
            if let Some((path, file)) = announced {
                if self.room.available_permits() == 0 && !batch.is_empty() {
                    // The receiver can only settle what it has been told of.
                    writer.write_all(&Message::wrap_entries(&batch)).await?;
                    batch.clear();
                }
                // Never closed.
                if let Ok(permit) = self.room.acquire().await {
                    permit.forget();
                }
                let announced = Announced {
                    path: path.clone(),
                    file,
                    asked: None,
                    is_wider: false,
                };
                self.lock().announced.insert(entries, announced);
            }
            put_entry(&mut batch, &entry);
            entries += 1;
        }
        self.progress.list_complete.store(true, Ordering::Relaxed);
        let end = Message::EndOfList { entries, bytes };
        writer.write_all(&end.encode()).await
    }

    /// Reads answers and results until `Done`, which tells the receiver's processor time.
    async fn read_control<R: AsyncRead + Unpin>(
        &self,
        reader: &mut R,
    ) -> Result<Duration, SessionError> {
        loop {
            match read_message(reader).await? {
                Some(Message::Answers(answers)) => {
                    for (index, answer) in answers {
                        self.on_answer(index, answer)?;
                    }
                }
                Some(Message::Results(results)) => {
                    for (index, result) in results {
                        self.on_result(index, result)?;
                    }
                }
                Some(Message::Done { cpu_micros }) => {
                    return if self.lock().announced.is_empty()
                        && self.progress.list_complete.load(Ordering::Relaxed)
                    {
                        Ok(Duration::from_micros(cpu_micros))
                    } else {
                        Err(SessionError::Protocol(
                            "the receiver is done before every file is settled",
                        ))
                    };
                }
                Some(Message::Fatal(refusal)) => return Err(SessionError::Refused(refusal)),
                Some(_) => {
                    return Err(SessionError::Protocol("a message that only a sender sends"));
                }
                None => return Err(SessionError::Lost(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    fn on_answer(&self, index: u64, answer: Answer) -> Result<(), SessionError> {
        const UNKNOWN: SessionError =
            SessionError::Protocol("an answer for a file that was not announced");
        let mut inner = self.lock();
        let inner = &mut *inner;
        let is_link = inner.announced.get(&index).map(|it| it.file.is_none());
        if let Answer::Refuse(refusal) = &answer
            && is_link != Some(true)
        {
            for_links_only(refusal)?;
        }
        match answer {
            Answer::Want {
                have,
                hash,
                only_if_identical,
                is_wider,
            } => {
                let it = inner.announced.get_mut(&index).ok_or(UNKNOWN)?;
                let (disk, facts) = it.file.clone().ok_or(UNKNOWN)?;
                if it.asked.is_some() {
                    return Err(SessionError::Protocol("the same file was asked for twice"));
                }
                if have > facts.size || (only_if_identical && have != facts.size) {
                    return Err(SessionError::Protocol(
                        "the receiver claims to have more than the file",
                    ));
                }
                it.is_wider = is_wider;
                it.asked = Some(if only_if_identical {
                    Asked::Comparison
                } else {
                    Asked::Data
                });
                self.jobs.push(Job {
                    index,
                    path: it.path.clone(),
                    disk,
                    facts,
                    have,
                    hash,
                    only_if_identical,
                });
                return Ok(());
            }
            Answer::Made | Answer::Skip { .. } if is_link == Some(true) => {
                inner.announced.remove(&index);
                inner.report.links += 1;
            }
            Answer::Made => return Err(UNKNOWN),
            Answer::Skip { is_wider } => {
                let it = inner.announced.remove(&index).ok_or(UNKNOWN)?;
                inner.report.skip(&it.path, it.size(), is_wider);
                self.progress.add_found(it.size());
            }
            Answer::Refuse(refusal) => match inner.announced.remove(&index) {
                Some(it) => inner.report.fail(&it.path, refusal),
                None => {
                    // Folders are not kept; the receiver's explanation names this one.
                    inner.report.fail("a folder", refusal);
                    return Ok(());
                }
            },
        }
        self.settled(is_link == Some(true));
        Ok(())
    }

    /// The receiver has the file, as it turned out: nothing of it travels.
    fn on_unmoved(&self, index: u64) {
        if let Some(file) = self.lock().announced.get_mut(&index) {
            file.asked = Some(Asked::Comparison);
        }
    }

    fn on_result(&self, index: u64, result: Result<(), Refusal>) -> Result<(), SessionError> {
        let mut inner = self.lock();
        let file = inner
            .announced
            .remove(&index)
            .filter(|file| file.asked.is_some())
            .ok_or(SessionError::Protocol(
                "a result for a file that was not asked for",
            ))?;
        match result {
            Ok(()) if file.asked == Some(Asked::Comparison) => {
                inner.report.skip(&file.path, file.size(), file.is_wider);
            }
            Ok(()) => {
                inner.report.files += 1;
                inner.report.bytes += file.size();
            }
            Err(refusal) => {
                for_links_only(&refusal)?;
                inner.report.fail(&file.path, refusal);
            }
        }
        drop(inner);
        self.settled(false);
        Ok(())
    }

    fn settled(&self, is_link: bool) {
        if !is_link {
            self.progress.file_settled();
        }
        self.room.add_permits(1);
    }
}

/// A receiver may leave out links and nothing else: what the sender calls no failure is not for it
/// to choose.
fn for_links_only(refusal: &Refusal) -> Result<(), SessionError> {
    match refusal.reason.is_left_out() {
        true => Err(SessionError::Protocol(
            "a file is refused for a reason that only a link can have",
        )),
        false => Ok(()),
    }
}
