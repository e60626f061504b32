//! Streams of a measurement: on `/upload` the server says how much has come, on `/download` it sends
//! as much as it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use towline::webtransport::Session;
use towline::{Connection, RecvStream, SendStream};

use super::sessions::{RESULT_TIMEOUT, Sessions, broken, failure_of, first_failure, permitted};
use crate::commands::perf::payload;
use crate::commands::perf::report::shown_rtt;
use crate::exit::{Exit, Failure};
use crate::failures::session_failure;
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::units::{BitRate, Bytes as ShownBytes, rate};

/// Most bytes taken from a stream at once.
const READ_AT_MOST: usize = 256 * 1024;
/// The server's bytes count up, and begin anew after so many.
const PERIOD: usize = 256;
/// What a stream of `/download` asks for: more than it can carry.
const ENDLESS: u64 = 1 << 60;

/// Streams under way.
pub(super) struct Streams {
    pub(super) ways: Vec<Way>,
    workers: JoinSet<Result<(), Failure>>,
    over: watch::Sender<bool>,
    pub(super) rows: Vec<Row>,
    last: Duration,
}

/// The streams of one direction.
pub(super) struct Way {
    pub(super) name: &'static str,
    connection: Option<Connection>,
    /// Bytes that have arrived, of each stream.
    arrived: Vec<Arc<AtomicU64>>,
    /// What they were at the last row, and what the connection had lost.
    before: (Vec<u64>, u64),
}

/// One interval of one direction.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    direction: &'static str,
    start: f64,
    end: f64,
    bytes: u64,
    bits_per_second: f64,
    /// Of ours: what the server loses it does not tell.
    packets_lost: Option<u64>,
    smoothed_rtt: Option<f64>,
    min_rtt: Option<f64>,
    /// Bytes of each stream.
    streams: Vec<u64>,
}

impl Way {
    fn new(path: &str, sessions: &[Session]) -> Self {
        let uploads = path.ends_with("/upload");
        Self {
            name: if uploads { "upload" } else { "download" },
            connection: sessions.first().map(|it| it.transport().clone()),
            arrived: Vec::new(),
            before: (Vec::new(), 0),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.arrived.iter().map(|bytes| bytes.load(Relaxed)).sum()
    }

    /// Whether this end sends.
    pub(super) fn is_upload(&self) -> bool {
        self.name == "upload"
    }

    fn row(&mut self, from: Duration, to: Duration) -> Row {
        let now: Vec<u64> = self
            .arrived
            .iter()
            .map(|bytes| bytes.load(Relaxed))
            .collect();
        let stats = self.connection.as_ref().map(Connection::stats);
        let lost = stats.as_ref().map_or(0, |stats| stats.packets_lost);
        let stats = stats.as_ref().map(StatsRecord::from).unwrap_or_default();
        let (before, lost_before) = std::mem::replace(&mut self.before, (now.clone(), lost));
        let streams: Vec<u64> = now
            .iter()
            .zip(&before)
            .map(|(now, then)| now - then)
            .collect();
        let bytes = streams.iter().sum();
        Row {
            direction: self.name,
            start: from.as_secs_f64(),
            end: to.as_secs_f64(),
            bytes,
            bits_per_second: rate(bytes, to - from) * 8.0,
            packets_lost: self.is_upload().then(|| lost.saturating_sub(lost_before)),
            smoothed_rtt: stats.smoothed_rtt(),
            min_rtt: stats.min_rtt(),
            streams,
        }
    }
}

impl Streams {
    /// So many streams in each session; the paths say which way.
    pub(super) async fn start(sessions: Vec<Sessions>, parallel: u8) -> Result<Self, Failure> {
        let mut opened = Vec::new();
        let opening = async {
            for sessions in &sessions {
                let lanes = sessions.open.iter();
                for session in lanes.flat_map(|it| std::iter::repeat_n(it, parallel.into())) {
                    let halves = session.open_bi().await;
                    let halves = halves.map_err(|error| session_failure(&error))?;
                    opened.push((session.clone(), halves));
                }
            }
            Ok(())
        };
        permitted("streams", opening).await?;
        let (over, watched) = watch::channel(false);
        let (mut workers, mut ways) = (JoinSet::new(), Vec::new());
        let mut opened = opened.into_iter();
        for Sessions { open, path, .. } in sessions {
            let mut way = Way::new(&path, &open);
            for (session, halves) in opened.by_ref().take(open.len() * usize::from(parallel)) {
                let arrived = Arc::new(AtomicU64::new(0));
                way.arrived.push(Arc::clone(&arrived));
                way.before.0.push(0);
                let (path, over, uploads) = (path.clone(), watched.clone(), way.is_upload());
                workers.spawn(async move {
                    match uploads {
                        true => upload(&session, halves, &path, &arrived, over).await,
                        false => download(&session, halves, &path, &arrived, over).await,
                    }
                });
            }
            ways.push(way);
        }
        Ok(Self {
            ways,
            workers,
            over,
            rows: Vec::new(),
            last: Duration::ZERO,
        })
    }

    pub(super) async fn failed(&mut self) -> Failure {
        first_failure(&mut self.workers).await
    }

    pub(super) fn row(&mut self, now: Duration, printer: Printer) {
        for way in &mut self.ways {
            let row = way.row(self.last, now);
            row.print(printer);
            self.rows.push(row);
        }
        self.last = now;
    }

    /// Stops all streams and waits until the server has said how much came.
    pub(super) async fn end(&mut self, begun: Instant) -> Result<Duration, Failure> {
        let until_now = begun.elapsed();
        self.over.send_replace(true);
        let workers = &mut self.workers;
        let last_words = async {
            while let Some(ended) = workers.join_next().await {
                if let Some(failure) = failure_of(ended) {
                    return Err(failure);
                }
            }
            Ok(())
        };
        match timeout(RESULT_TIMEOUT, last_words).await {
            Ok(ended) => ended.map(|()| begun.elapsed()),
            // What the server said until then counts.
            Err(_) => Ok(until_now),
        }
    }
}

impl Row {
    pub(super) const HEAD: &str =
        "interval          direction  transfer    rate            lost  rtt (min/smoothed)";

    fn print(&self, printer: Printer) {
        printer.line(format_args!(
            "{:<17} {:<10} {:<11} {:<15} {:<5} {}/{} ms",
            format!("{:.2}-{:.2} s", self.start, self.end),
            self.direction,
            ShownBytes(self.bytes).to_string(),
            BitRate(self.bits_per_second / 8.0).to_string(),
            self.packets_lost
                .map_or("-".to_owned(), |lost| lost.to_string()),
            shown_rtt(self.min_rtt),
            shown_rtt(self.smoothed_rtt),
        ));
    }
}

/// Sends until it is over, and counts what the server says has come.
async fn upload(
    session: &Session,
    (mut send, mut recv): (SendStream, RecvStream),
    path: &str,
    arrived: &AtomicU64,
    mut over: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let sent = AtomicU64::new(0);
    let is_over = over.clone();
    let writing = async {
        tokio::select! {
            failed = write_on(&mut send, &sent) => {
                tracing::debug!("{failed}");
                Err(broken(session, &format!("the server reads no more at {path}")))
            }
            _ = over.wait_for(|over| *over) => {
                // What still waits here would only delay the last count.
                send.reset(0);
                Ok(())
            }
        }
    };
    let counting = async {
        let mut total = [0; 8];
        loop {
            match recv.read_exact(&mut total).await {
                Ok(()) => {}
                Err(_) if *is_over.borrow() && session.close_reason().is_none() => return Ok(()),
                Err(_) => return Err(broken(session, &format!("{path} counts no more"))),
            }
            let total = u64::from_be_bytes(total);
            let is_a_count = (arrived.load(Relaxed)..=sent.load(Relaxed)).contains(&total);
            if !is_a_count {
                let what = format!("{path} does not say how many bytes have come");
                return Err(Failure::new(Exit::Protocol, what)
                    .next("the URL has to be that of a `towline serve --web`"));
            }
            arrived.store(total, Relaxed);
        }
    };
    tokio::try_join!(writing, counting)?;
    match arrived.load(Relaxed) {
        0 if sent.load(Relaxed) > 0 => {
            let what = format!("{path} never said that a byte has come");
            Err(Failure::new(Exit::Protocol, what))
        }
        _ => Ok(()),
    }
}

/// Ends only with an error.
async fn write_on(send: &mut SendStream, sent: &AtomicU64) -> towline::WriteError {
    let block = payload();
    loop {
        let mut part = block.clone();
        while !part.is_empty() {
            // Counted before they leave: the server's count is never ahead of ours.
            sent.fetch_add(part.len() as u64, Relaxed);
            match send.write_some(&mut part).await {
                Ok(_) => {
                    sent.fetch_sub(part.len() as u64, Relaxed);
                }
                Err(error) => return error,
            }
        }
    }
}

/// Asks for more than the time is enough for, and compares what comes.
async fn download(
    session: &Session,
    (mut send, mut recv): (SendStream, RecvStream),
    path: &str,
    arrived: &AtomicU64,
    mut over: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let asked = send.write_all(&ENDLESS.to_be_bytes()).await;
    let asked = asked.and_then(|()| send.finish());
    asked.map_err(|_| broken(session, &format!("the server reads nothing at {path}")))?;
    let expected: Bytes = (0..READ_AT_MOST + PERIOD).map(|at| at as u8).collect();
    let reading = async {
        let mut offset = 0_usize;
        while let Ok(Some(chunk)) = recv.read_chunk(READ_AT_MOST).await {
            let from = offset % PERIOD;
            if chunk != expected[from..from + chunk.len()] {
                let what = format!("{path} sends other bytes than it promises");
                return Err(Failure::new(Exit::Protocol, what)
                    .next("the URL has to be that of a `towline serve --web`"));
            }
            offset = from + chunk.len();
            arrived.fetch_add(chunk.len() as u64, Relaxed);
        }
        Err(broken(
            session,
            &format!("{path} sent less than it was asked for"),
        ))
    };
    tokio::select! {
        ended = reading => return ended,
        _ = over.wait_for(|over| *over) => {}
    }
    recv.stop(0);
    Ok(())
}
