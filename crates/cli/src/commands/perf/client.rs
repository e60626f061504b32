//! The client's part of a measurement: starts it, prints a row per interval, sums up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use towline::{Connection, RecvStream};
use towline_transfer::{CpuMeter, Lanes, put_varint};

use super::control::{
    HostRecord, Later, MAX_STREAMS, Reply, Request, advice, read_json, write_json,
};
use super::host::{count_lane, send_lane};
use super::report::{Ends, Measured, Row, Start, Threshold, print_end, print_row, print_start};
use super::tune::TuneArgs;
use crate::exit::{Exit, Failure};
use crate::failures::connection_failure;
use crate::interrupt::Interrupt;
use crate::net::{Client, ConnectArgs, options};
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::streams::PERF;
use crate::units::{parse_duration, parse_positive_duration, parse_size};
use crate::url::Url;

/// The only measurement of its connection.
const SESSION: u64 = 1;
/// How long the server's result may take.
const RESULT_TIMEOUT: Duration = Duration::from_secs(5);
/// The end of a measurement by bytes is looked for this often.
const LOOK: Duration = Duration::from_millis(20);

/// Flags of `perf client`.
#[derive(clap::Args)]
pub(super) struct ClientArgs {
    /// The server
    #[arg(value_name = "URL")]
    url: Url,
    /// Seconds to measure
    #[arg(short = 't', long, value_name = "TIME", default_value = "10", value_parser = parse_positive_duration)]
    time: Duration,
    /// Bytes to move instead
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "time")]
    bytes: Option<u64>,
    /// Streams at once
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_STREAMS)))]
    parallel: u8,
    /// The server sends, with its own --cc and --mtu
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Time at the start that does not count, so that slow start is left out
    #[arg(short = 'O', long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    omit: Duration,
    /// Time between rows
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1", value_parser = parse_positive_duration)]
    interval: Duration,
    /// Exit with code 8 if this holds at the end: rate<100Mbit, rtt>20ms or loss>1% (repeatable)
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Threshold>,
    #[command(flatten)]
    tune: TuneArgs,
    #[command(flatten)]
    network: ConnectArgs,
}

/// What is measured at one moment.
struct Sample {
    at: Instant,
    streams: Vec<u64>,
    lost: u64,
}

/// A running measurement.
struct Run {
    connection: Connection,
    reverse: bool,
    counters: Vec<Arc<AtomicU64>>,
    /// The server's newest statistics.
    server: watch::Receiver<StatsRecord>,
    workers: JoinSet<()>,
}

impl ClientArgs {
    /// Measures, prints, closes.
    pub(super) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        if self.interval < Duration::from_millis(50) {
            return Err(Failure::usage("--interval must be at least 50 ms"));
        }
        let mut interrupt = Interrupt::install(printer);
        let mut options = options(self.network.idle_timeout, &self.network.congestion);
        self.tune.apply(&mut options);
        let client = tokio::select! {
            client = self.network.connect(&self.url, &options, printer) => client?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let result = self.measure(&client, &mut interrupt, printer).await;
        client.close(0, "").await;
        result
    }

    async fn measure(
        &self,
        client: &Client,
        interrupt: &mut Interrupt,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let connection = &client.connection;
        let broken = |error: std::io::Error| match connection.close_reason() {
            Some(reason) => connection_failure(&reason),
            None => Failure::new(Exit::Other, format!("the server does not measure: {error}")),
        };
        let (mut send, mut recv) = connection
            .open_bi()
            .await
            .map_err(|error| connection_failure(&error))?;
        let lanes = Lanes::default();
        let Some((_registration, arrivals)) = lanes.register(SESSION) else {
            return Err(Failure::new(Exit::Other, "the session number is in use"));
        };
        tokio::spawn(lanes.accept_all(connection.clone()));
        let request = Request {
            session: SESSION,
            streams: self.parallel,
            reverse: self.reverse,
            bytes: self.bytes,
            omit: self.omit.as_secs_f64(),
            interval: self.interval.as_secs_f64(),
        };
        let mut kind = Vec::new();
        put_varint(&mut kind, PERF);
        // A server without this service stops the stream; what it says is read below.
        let _ = AsyncWriteExt::write_all(&mut send, &kind).await;
        let _ = write_json(&mut send, &request).await;
        let there = match read_json(&mut recv).await.map_err(broken)? {
            Some(Reply::Ready { host }) => host,
            Some(Reply::Refused { message }) => {
                let message = towline_transfer::printable(message.as_bytes());
                return Err(Failure::new(
                    Exit::Other,
                    format!("the server refuses: {message}"),
                ));
            }
            _ => {
                return Err(Failure::new(
                    Exit::Protocol,
                    "the server answers with a message that does not belong here",
                ));
            }
        };
        let here = HostRecord::new(&client.endpoint, self.network.congestion.name());
        let start = Start::new(&request, self.time, connection, here, there);
        print_start(&start, printer);

        let (latest, server) = watch::channel(StatsRecord::default());
        let mut run = self.start(connection.clone(), arrivals, server);
        let (rows, totals) = {
            let mut listening = std::pin::pin!(listen(&mut recv, latest));
            let (rows, totals) = tokio::select! {
                measured = self.rows(&mut run, interrupt, printer) => measured?,
                ended = &mut listening => return Err(match (ended, connection.close_reason()) {
                    (_, Some(reason)) => connection_failure(&reason),
                    (Ok(_), None) => Failure::new(Exit::Protocol, "the server gave its result before it was asked"),
                    (Err(error), None) => Failure::new(Exit::Protocol, format!("the server stopped: {error}")),
                }),
            };
            write_json(&mut send, &Later::Stop).await.map_err(broken)?;
            // Data that is still on its way would only delay the result.
            run.workers.abort_all();
            let result = tokio::time::timeout(RESULT_TIMEOUT, listening).await;
            let result = match result {
                Ok(result) => Some(result.map_err(broken)?),
                Err(_) => None,
            };
            (
                rows,
                Ends {
                    server: result,
                    ..totals
                },
            )
        };
        let ends = Ends {
            here: Some(StatsRecord::from(&connection.stats())),
            advice: advice(&client.endpoint.socket_info()),
            ..totals
        };
        print_end(&start, &rows, &ends, printer);
        if interrupt.is_set() {
            return Ok(Exit::Interrupted);
        }
        Measured::new(&start, &ends).check(&self.fail_if)?;
        Ok(Exit::Ok)
    }

    fn start(
        &self,
        connection: Connection,
        mut arrivals: mpsc::Receiver<RecvStream>,
        server: watch::Receiver<StatsRecord>,
    ) -> Run {
        let counters: Vec<_> = (0..self.parallel)
            .map(|_| Arc::new(AtomicU64::new(0)))
            .collect();
        let mut workers = JoinSet::new();
        if self.reverse {
            let counters = counters.clone();
            workers.spawn(async move {
                let mut readers = JoinSet::new();
                for counter in counters {
                    let Some(lane) = arrivals.recv().await else {
                        break;
                    };
                    readers.spawn(async move { count_lane(lane, &counter).await });
                }
                while readers.join_next().await.is_some() {}
            });
        } else {
            let each = self.bytes.map(|bytes| bytes.div_ceil(self.parallel.into()));
            for counter in &counters {
                let (connection, counter) = (connection.clone(), Arc::clone(counter));
                workers.spawn(async move {
                    // A lost connection shows on the control stream.
                    let _ = send_lane(&connection, SESSION, each, &counter).await;
                });
            }
        }
        Run {
            connection,
            reverse: self.reverse,
            counters,
            server,
            workers,
        }
    }

    /// Prints rows until the time is over, the bytes are through, or Ctrl-C.
    async fn rows(
        &self,
        run: &mut Run,
        interrupt: &mut Interrupt,
        printer: Printer,
    ) -> Result<(Vec<Row>, Ends), Failure> {
        let begun = Instant::now();
        let mut meter = CpuMeter::start();
        // The lanes are already running: what they moved before this line counts too.
        let nothing = || Sample {
            at: begun,
            streams: vec![0; run.counters.len()],
            lost: 0,
        };
        let (mut counted, mut last) = (nothing(), nothing());
        let mut rows = Vec::new();
        let omit_until = begun + self.omit;
        let mut omitting = !self.omit.is_zero();
        let deadline = self.bytes.is_none().then(|| omit_until + self.time);
        let mut next_row = begun + self.interval;
        loop {
            let wake = [Some(next_row), deadline, omitting.then_some(omit_until)]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(next_row);
            let all_through = self.bytes.is_some();
            tokio::select! {
                () = tokio::time::sleep_until(wake) => {}
                () = tokio::time::sleep(LOOK), if all_through && run.reverse => {}
                joined = run.workers.join_next(), if all_through => if joined.is_some() && !run.workers.is_empty() { continue },
                () = interrupt.wait() => {}
            }
            let now = Instant::now();
            let over = interrupt.is_set()
                || deadline.is_some_and(|deadline| now >= deadline)
                || (all_through && run.workers.is_empty());
            if now >= next_row || over {
                let sample = run.sample();
                if sample.at > last.at {
                    let row = run.row(begun, &last, &sample, omitting);
                    print_row(&row, printer);
                    rows.push(row);
                }
                last = sample;
                while next_row <= now {
                    next_row += self.interval;
                }
            }
            if omitting && now >= omit_until {
                omitting = false;
                meter = CpuMeter::start();
                counted = run.sample();
                last = run.sample();
                next_row = now + self.interval;
            }
            if over {
                break;
            }
        }
        let sample = run.sample();
        let bytes = sample.streams.iter().sum::<u64>() - counted.streams.iter().sum::<u64>();
        let elapsed = sample.at - counted.at;
        let totals = Ends {
            bytes,
            elapsed,
            cpu: meter.spent(),
            lost: sample.lost.saturating_sub(counted.lost),
            here: None,
            advice: Vec::new(),
            server: None,
        };
        Ok((rows, totals))
    }
}

impl Run {
    fn sample(&self) -> Sample {
        let lost = if self.reverse {
            self.server.borrow().packets_lost()
        } else {
            self.connection.stats().packets_lost
        };
        let streams = self
            .counters
            .iter()
            .map(|counter| counter.load(Relaxed))
            .collect();
        Sample {
            at: Instant::now(),
            streams,
            lost,
        }
    }

    fn row(&self, begun: Instant, from: &Sample, to: &Sample, omitted: bool) -> Row {
        // The sender knows window and loss.
        let stats = if self.reverse {
            self.server.borrow().clone()
        } else {
            StatsRecord::from(&self.connection.stats())
        };
        let streams: Vec<u64> = to
            .streams
            .iter()
            .zip(&from.streams)
            .map(|(to, from)| to - from)
            .collect();
        Row::new(
            (from.at - begun, to.at - begun),
            streams,
            to.lost.saturating_sub(from.lost),
            &stats,
            omitted,
        )
    }
}

/// Takes in what the server says until its result.
async fn listen(
    recv: &mut RecvStream,
    latest: watch::Sender<StatsRecord>,
) -> std::io::Result<Reply> {
    loop {
        match read_json(recv).await? {
            Some(Reply::Interval { stats }) => {
                latest.send_replace(stats);
            }
            Some(result @ Reply::Result { .. }) => return Ok(result),
            Some(_) => return Err(std::io::Error::other("a message that does not belong here")),
            None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
