//! Datagrams of a measurement: each has a number, and comes back from `/datagrams`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use towline::SendDatagramError;
use towline::webtransport::Session;

use super::sessions::{Sessions, failure_of, first_failure};
use crate::commands::echo::{LAST_ANSWERS, number_of, numbered};
use crate::exit::{Exit, Failure};
use crate::failures::{connection_failure, session_failure};
use crate::framed_echo::Latencies;
use crate::printer::Printer;
use crate::under_way::UnderWay;

/// Between two turns of sending.
const TURN: Duration = Duration::from_millis(1);
/// Most datagrams of a turn: what a late turn missed beyond that is not made up for.
const MOST_OF_A_TURN: u64 = 1_000;

/// Datagrams under way.
pub(super) struct Datagrams {
    pub(super) size: usize,
    counts: Vec<Arc<Mutex<Count>>>,
    workers: JoinSet<Result<(), Failure>>,
    senders: watch::Sender<bool>,
    pub(super) total: Count,
    pub(super) rows: Vec<Row>,
    last: Duration,
}

/// What went and what came back.
#[derive(Clone, Debug)]
pub(super) struct Count {
    pub(super) sent: u64,
    pub(super) back: u64,
    /// Those that found no room here, and never left.
    pub(super) no_room: u64,
    pub(super) rtts: Latencies,
}

/// One interval.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    start: f64,
    end: f64,
    sent: u64,
    received: u64,
    no_room: u64,
    /// Seconds; `None` where nothing came back.
    rtt_median: Option<f64>,
    rtt_p99: Option<f64>,
}

impl Count {
    fn new() -> Self {
        Self {
            sent: 0,
            back: 0,
            no_room: 0,
            rtts: Latencies::new(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.back += other.back;
        self.no_room += other.no_room;
        self.rtts.merge(&other.rtts);
    }

    /// What did not come back, as a share; none where nothing left.
    pub(super) fn loss(&self) -> Option<f64> {
        let lost = self.sent.saturating_sub(self.back);
        (self.sent > 0).then(|| lost as f64 / self.sent as f64)
    }

    /// Seconds that so great a share of the round trips does not exceed.
    pub(super) fn rtt(&self, share: f64) -> Option<f64> {
        (self.back > 0).then(|| self.rtts.quantile_ms(share) / 1e3)
    }
}

impl Datagrams {
    /// In each session, so many a second of so many bytes.
    pub(super) fn start(sessions: Vec<Sessions>, size: usize, rate: u32) -> Self {
        let (senders, over) = watch::channel(false);
        let (mut workers, mut counts) = (JoinSet::new(), Vec::new());
        for session in sessions.into_iter().flat_map(|sessions| sessions.open) {
            let count = Arc::new(Mutex::new(Count::new()));
            counts.push(Arc::clone(&count));
            let over = over.clone();
            workers.spawn(async move { ping(&session, size, rate, &count, over).await });
        }
        Self {
            size,
            counts,
            workers,
            senders,
            total: Count::new(),
            rows: Vec::new(),
            last: Duration::ZERO,
        }
    }

    pub(super) async fn failed(&mut self) -> Failure {
        first_failure(&mut self.workers).await
    }

    /// What came since the last call.
    fn take(&mut self) -> Count {
        let mut sum = Count::new();
        for count in &self.counts {
            sum.add(&std::mem::replace(&mut *locked(count), Count::new()));
        }
        self.total.add(&sum);
        sum
    }

    pub(super) fn row(&mut self, now: Duration, printer: Printer) {
        let count = self.take();
        let row = Row {
            start: self.last.as_secs_f64(),
            end: now.as_secs_f64(),
            sent: count.sent,
            received: count.back,
            no_room: count.no_room,
            rtt_median: count.rtt(0.5),
            rtt_p99: count.rtt(0.99),
        };
        row.print(printer);
        self.rows.push(row);
        self.last = now;
    }

    /// Sends no more, and waits for the last answers; how long was sent.
    pub(super) async fn end(&mut self, begun: Instant) -> Result<Duration, Failure> {
        let elapsed = begun.elapsed();
        self.senders.send_replace(true);
        let workers = &mut self.workers;
        let answers = async {
            while let Some(ended) = workers.join_next().await {
                if let Some(failure) = failure_of(ended) {
                    return Err(failure);
                }
            }
            Ok(())
        };
        if let Ok(ended) = timeout(LAST_ANSWERS, answers).await {
            ended?;
        }
        self.take();
        if self.total.back == 0 && self.total.sent > 0 {
            let failure = Failure::new(Exit::Timeout, "no datagram came back");
            return Err(failure.next("the path may carry none of that size; try a smaller --size"));
        }
        Ok(elapsed)
    }
}

impl Row {
    pub(super) const HEAD: &str = "interval          sent      back      rtt (median/99 %)";

    fn print(&self, printer: Printer) {
        let shown = crate::commands::perf::report::shown_rtt;
        printer.line(format_args!(
            "{:<17} {:<9} {:<9} {}/{} ms",
            format!("{:.2}-{:.2} s", self.start, self.end),
            self.sent,
            self.received,
            shown(self.rtt_median),
            shown(self.rtt_p99),
        ));
    }
}

fn locked(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends until it is over, and then waits until all are back.
async fn ping(
    session: &Session,
    size: usize,
    rate: u32,
    count: &Mutex<Count>,
    mut over: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut under_way = UnderWay::default();
    let begun = Instant::now();
    let mut turns = interval(TURN.max(Duration::from_secs(1) / rate));
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut due_before, mut is_over) = (0, false);
    while !is_over || !under_way.is_empty() {
        tokio::select! {
            _ = turns.tick(), if !is_over => {
                let due = (begun.elapsed().as_secs_f64() * f64::from(rate)) as u64 + 1;
                for _ in 0..(due - due_before).min(MOST_OF_A_TURN) {
                    send(session, size, &mut under_way, count)?;
                }
                due_before = due;
            }
            answer = session.read_datagram() => {
                let answer = answer.map_err(|error| session_failure(&error))?;
                let back = number_of(&answer)
                    .filter(|_| answer.len() == size)
                    .and_then(|number| under_way.is_back(number, Instant::now()));
                if let Some(rtt) = back {
                    let mut count = locked(count);
                    count.back += 1;
                    count.rtts.add(rtt);
                }
            }
            _ = over.wait_for(|over| *over), if !is_over => is_over = true,
        }
    }
    Ok(())
}

fn send(
    session: &Session,
    size: usize,
    under_way: &mut UnderWay,
    count: &Mutex<Count>,
) -> Result<(), Failure> {
    let number = under_way.next();
    match session.send_datagram(numbered(number, size)) {
        Ok(()) => {
            under_way.leaves(Instant::now());
            locked(count).sent += 1;
        }
        Err(SendDatagramError::Full) => locked(count).no_room += 1,
        Err(SendDatagramError::ConnectionLost(error)) => {
            return Err(match session.close_reason() {
                Some(reason) => session_failure(&reason),
                None => connection_failure(&error),
            });
        }
        Err(error) => return Err(Failure::new(Exit::Other, error.to_string())),
    }
    Ok(())
}
