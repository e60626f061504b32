//! `towline web perf`: streams, datagrams and sessions of WebTransport against `towline serve --web`.
//!
//! 1. `run` connects, and `sessions` opens as many as were asked for, all at once, on that connection.
//! 2. `streams` or `datagrams` works in each of them, in tasks of its own.
//! 3. `Load::rows` prints what has come at every interval, until the time is over.
//! 4. `report` sums up.

mod datagrams;
mod report;
mod streams;

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;
use towline::Connection;
use towline::webtransport::Session;
use towline_transfer::CpuMeter;

use super::client;
use crate::commands::echo::LEAST_SIZE;
use crate::commands::perf::TuneArgs;
use crate::commands::perf::control::{HostRecord, MAX_STREAMS, advice};
use crate::commands::perf::report::Threshold;
use crate::exit::{Exit, Failure};
use crate::failures::session_failure;
use crate::interrupt::Interrupt;
use crate::net::{Client, ConnectArgs, options};
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::units::{parse_positive_duration, parse_size};
use crate::url::WebUrl;
use datagrams::Datagrams;
use report::{Ends, Start};
use streams::Streams;

/// Most sessions; a server of ours takes 100 on a connection.
const MAX_SESSIONS: u8 = 64;
/// How long a session or a stream may wait until the server permits it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server's last word may take.
const RESULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Flags of `web perf`.
#[derive(clap::Args)]
pub(super) struct WebPerfArgs {
    /// https://HOST[:PORT]/[#sha256/PIN] of `towline serve --web`; its /upload, /download and /datagrams are measured
    #[arg(value_name = "URL")]
    url: WebUrl,
    /// Which way data goes
    #[arg(long, value_enum, default_value_t = Direction::Upload, conflicts_with = "datagrams")]
    direction: Direction,
    /// Seconds to measure
    #[arg(short = 't', long, value_name = "TIME", default_value = "10", value_parser = parse_positive_duration)]
    time: Duration,
    /// Streams at once in each session, and each way
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, conflicts_with = "datagrams", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_STREAMS)))]
    parallel: u8,
    /// Sessions on one connection; with --direction both as many each way
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_SESSIONS)))]
    sessions: u8,
    /// Datagrams there and back instead of streams: round trips and loss
    #[arg(long)]
    datagrams: bool,
    /// Datagrams a second in each session
    #[arg(long, value_name = "N", default_value_t = 100, requires = "datagrams", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Bytes of each datagram, at least 8
    #[arg(long, value_name = "SIZE", default_value = "200", requires = "datagrams", value_parser = parse_size)]
    size: u64,
    /// Time between rows
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1", value_parser = parse_positive_duration)]
    interval: Duration,
    /// Exit with code 8 if this holds at the end: rate<100Mbit (of the slower direction), rtt>20ms or loss>1%
    /// (repeatable)
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Threshold>,
    #[command(flatten)]
    tune: TuneArgs,
    #[command(flatten)]
    network: ConnectArgs,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Upload,
    Download,
    Both,
}

/// What is measured, from its start on.
enum Load {
    Streams(Streams),
    Datagrams(Datagrams),
}

/// Sessions of a path, and how long the last of them took.
struct Sessions {
    open: Vec<Session>,
    path: String,
    took: Duration,
}

impl WebPerfArgs {
    /// Measures, prints, closes.
    pub(super) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        if self.interval < Duration::from_millis(50) {
            return Err(Failure::usage("--interval must be at least 50 ms"));
        }
        let mut interrupt = Interrupt::install(printer);
        let mut options = options(self.network.idle_timeout, &self.network.congestion);
        self.tune.apply(&mut options);
        let client = tokio::select! {
            client = client::connect(&self.network, &self.url, options, printer) => client?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let result = self.measure(&client, &mut interrupt, printer).await;
        client::close(&client).await;
        result
    }

    async fn measure(
        &self,
        client: &Client,
        interrupt: &mut Interrupt,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let opened = tokio::select! {
            opened = self.sessions(&client.connection) => opened?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let here = HostRecord::new(&client.endpoint, self.network.congestion.name());
        let start = Start::new(self, &client.connection, &opened, here);
        start.print(printer);
        let mut load = tokio::select! {
            load = self.load(opened) => load?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let meter = CpuMeter::start();
        let begun = Instant::now();
        self.rows(&mut load, begun, interrupt, printer).await?;
        let elapsed = load.end(begun).await?;
        let ends = Ends {
            elapsed,
            cpu: meter.spent(),
            stats: StatsRecord::from(&client.connection.stats()),
            advice: advice(&client.endpoint.socket_info()),
        };
        let measured = report::print_end(&start, &load, &ends, printer);
        if interrupt.is_set() {
            return Ok(Exit::Interrupted);
        }
        measured.check(&self.fail_if)?;
        Ok(Exit::Ok)
    }

    /// The paths that are needed.
    fn paths(&self) -> &'static [&'static str] {
        match (self.datagrams, self.direction) {
            (true, _) => &["/datagrams"],
            (false, Direction::Upload) => &["/upload"],
            (false, Direction::Download) => &["/download"],
            (false, Direction::Both) => &["/upload", "/download"],
        }
    }

    /// Opens all sessions at once.
    async fn sessions(&self, connection: &Connection) -> Result<Vec<Sessions>, Failure> {
        let (base, _) = self
            .url
            .target
            .split_once('?')
            .unwrap_or((self.url.target.as_str(), ""));
        let base = base.trim_end_matches('/');
        let mut all = Vec::new();
        for path in self.paths() {
            let path = format!("{base}{path}");
            let begun = Instant::now();
            let mut opening = JoinSet::new();
            for _ in 0..self.sessions {
                let (connection, authority) = (connection.clone(), self.url.authority());
                let path = path.clone();
                opening.spawn(async move {
                    permitted("sessions", client::open(connection, &authority, &path)).await
                });
            }
            let mut open = Vec::new();
            while let Some(session) = opening.join_next().await {
                open.push(session.map_err(|error| Failure::new(Exit::Other, error.to_string()))??);
            }
            let took = begun.elapsed();
            all.push(Sessions { open, path, took });
        }
        Ok(all)
    }

    async fn load(&self, sessions: Vec<Sessions>) -> Result<Load, Failure> {
        if !self.datagrams {
            let streams = Streams::start(sessions, self.parallel).await?;
            return Ok(Load::Streams(streams));
        }
        let most = sessions
            .iter()
            .flat_map(|sessions| &sessions.open)
            .map(|session| session.max_datagram_len().unwrap_or(0) as u64)
            .min();
        let most = most.unwrap_or(0);
        if !(LEAST_SIZE..=most).contains(&self.size) {
            return Err(Failure::usage(format!(
                "--size {} is not between {LEAST_SIZE} and {most} bytes, which one datagram takes here",
                self.size
            )));
        }
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        Ok(Load::Datagrams(Datagrams::start(sessions, size, self.rate)))
    }

    /// Prints rows until the time is over, something fails, or Ctrl-C.
    async fn rows(
        &self,
        load: &mut Load,
        begun: Instant,
        interrupt: &mut Interrupt,
        printer: Printer,
    ) -> Result<(), Failure> {
        let deadline = begun + self.time;
        let mut next_row = begun + self.interval;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next_row.min(deadline)) => {}
                failed = load.failed() => return Err(failed),
                () = interrupt.wait() => {}
            }
            let now = Instant::now();
            load.row(now - begun, printer);
            if now >= deadline || interrupt.is_set() {
                return Ok(());
            }
            while next_row <= now {
                next_row += self.interval;
            }
        }
    }
}

impl Load {
    /// Waits for what ends it before its time.
    async fn failed(&mut self) -> Failure {
        match self {
            Self::Streams(streams) => streams.failed().await,
            Self::Datagrams(datagrams) => datagrams.failed().await,
        }
    }

    fn row(&mut self, now: Duration, printer: Printer) {
        match self {
            Self::Streams(streams) => streams.row(now, printer),
            Self::Datagrams(datagrams) => datagrams.row(now, printer),
        }
    }

    /// Ends it, and says how long it took in all.
    async fn end(&mut self, begun: Instant) -> Result<Duration, Failure> {
        match self {
            Self::Streams(streams) => streams.end(begun).await,
            Self::Datagrams(datagrams) => datagrams.end(begun).await,
        }
    }
}

/// Waits for what the server may not permit.
async fn permitted<T>(
    what: &str,
    opening: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let opened = tokio::time::timeout(OPEN_TIMEOUT, opening).await;
    opened.unwrap_or_else(|_| {
        let message = format!("the server permits no more {what} at once");
        Err(Failure::new(Exit::Other, message).next("ask for fewer with --parallel or --sessions"))
    })
}

/// What a task of a measurement failed with; `None` where none did.
fn failure_of(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Option<Failure> {
    match ended {
        Ok(ended) => ended.err(),
        Err(error) => Some(Failure::new(Exit::Other, error.to_string())),
    }
}

/// Waits until a task fails.
async fn first_failure(workers: &mut JoinSet<Result<(), Failure>>) -> Failure {
    while let Some(ended) = workers.join_next().await {
        if let Some(failure) = failure_of(ended) {
            return failure;
        }
    }
    std::future::pending().await
}

/// Why something of a session failed.
fn broken(session: &Session, what: &str) -> Failure {
    match session.close_reason() {
        Some(reason) => session_failure(&reason),
        None => Failure::new(Exit::Protocol, what),
    }
}
