//! `towline link pub`: sends a file or a stream of JSON objects to the other end of a link.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use towline::link::{
    Class, DiskStore, MemoryStore, PathPatterns, Record, SenderConfig, SpoolConfig, State, Status,
    Uplink, UplinkConfig, Via,
};

use super::ends::{dialer, keys, random_u64};
use super::pace::Pace;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::units::{Bytes, counted, millis, parse_duration, parse_positive_duration, parse_rate};
use crate::url::{Url, parse_key_pin, parse_link_url};
use towline::identity::KeyPin;

const SCHEMA: &str = "towline.link.pub/1";
/// Bytes of records that wait in memory.
const MAX_MEMORY: u64 = 64 << 20;
/// Records that are read ahead.
const READ_AHEAD: usize = 64;
/// Lines that are refused are told one by one up to here.
const TOLD: u64 = 5;

/// Arguments of `towline link pub`.
#[derive(Args)]
pub(crate) struct PubArgs {
    /// The other end: towline://HOST[:PORT]#sha256/KEY
    #[arg(value_name = "URL", value_parser = parse_link_url)]
    url: Url,
    /// What to send, one JSON object a line; `-` is stdin
    #[arg(value_name = "FILE.jsonl", default_value = "-")]
    file: PathBuf,
    /// Another key that the other end may have (repeatable)
    #[arg(long, value_name = "PIN", value_parser = parse_key_pin)]
    key: Vec<KeyPin>,
    /// The name under which the other end knows this one
    #[arg(long, default_value = "pub")]
    name: String,
    /// How long a record waits for others
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_duration)]
    deadline: Duration,
    /// Paths that go at once, `*` stands for any text (repeatable)
    #[arg(long, value_name = "PATTERN", default_value = "notifications.*")]
    alarm: Vec<String>,
    /// Records a second; `recorded` goes by their timestamps
    #[arg(long, value_name = "PACE")]
    pace: Option<Pace>,
    /// Send no more than this
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<u64>,
    /// TLS over TCP where UDP is blocked
    #[arg(long)]
    fallback: bool,
    /// Wait so long, at the end, for the other end to have made everything durable
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_positive_duration)]
    patience: Duration,
    /// Keep records in this folder until they are durable at the other end; what a run before left there is sent,
    /// too
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// Print the number of each record once the spool has made it durable: it is not lost then
    #[arg(long)]
    receipts: bool,
    /// Write when each record was taken: {"i":…,"t":milliseconds since 1970}
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
}

impl PubArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let keys = keys(&self.url, &self.key)?;
        let dialer = dialer(&self.url, keys, self.fallback, printer)?;
        let mut times =
            match &self.times {
                Some(file) => Some(File::create(file).map(io::BufWriter::new).map_err(
                    |error| Failure::usage(format!("--times {}: {error}", file.display())),
                )?),
                None => None,
            };
        let sender = SenderConfig::new(self.name.clone())
            .deadline(self.deadline)
            .rate(self.rate);
        let alarms = PathPatterns::new(self.alarm.clone());
        let config = UplinkConfig::new(sender).alarms(alarms.clone());
        let uplink = match &self.spool {
            Some(folder) => Uplink::start(config, dialer, open_spool(folder)?),
            None => {
                let store = MemoryStore::new(random_u64()?, MAX_MEMORY);
                Uplink::start(config, dialer, store)
            }
        };
        let uplink = uplink.map_err(|error| Failure::new(Exit::Other, error.to_string()))?;
        let first = uplink.status().borrow().next;
        let mut receipts = Receipts::new(self.receipts, first, uplink.status());
        let mut records = read(self.file.clone(), self.pace)?;
        let mut interrupt = Interrupt::install(printer);
        let started = Instant::now();
        let mut counts = Counts::default();
        loop {
            let line = tokio::select! {
                line = records.recv() => line,
                () = interrupt.wait() => break,
                () = receipts.wait() => continue,
            };
            match line {
                None => break,
                Some(Err(why)) => {
                    counts.refused += 1;
                    if counts.refused <= TOLD {
                        printer.note(format_args!("towline: {why}"));
                    }
                }
                Some(Ok(record)) => {
                    if let Some(times) = &mut times {
                        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64() * 1e3;
                        let _ = writeln!(times, "{{\"i\":{},\"t\":{now:.3}}}", counts.taken);
                    }
                    counts.taken += 1;
                    let class = match alarms.fit(&record) {
                        true => Class::Alarm,
                        false => Class::Telemetry,
                    };
                    if !uplink.send(record, class).await {
                        break;
                    }
                }
            }
        }
        if let Some(times) = &mut times {
            let _ = times.flush();
        }
        let status = uplink.status();
        let closing = uplink.close(self.patience);
        tokio::pin!(closing);
        loop {
            tokio::select! {
                () = &mut closing => break,
                () = interrupt.wait() => break,
                () = receipts.wait() => {}
            }
        }
        receipts.print();
        let status = status.borrow().clone();
        report(&counts, &status, started.elapsed(), printer);
        match status.durable >= status.next && status.next >= first + counts.taken {
            true => Ok(Exit::Ok),
            false => Err(unfinished(&counts, &status, first)),
        }
    }
}

fn open_spool(folder: &Path) -> Result<DiskStore, Failure> {
    let opened = DiskStore::open(folder, SpoolConfig::default()).map_err(|error| {
        Failure::new(
            Exit::Other,
            format!("--spool {}: {error}", folder.display()),
        )
    })?;
    Ok(opened.store)
}

/// Prints which records are durable in the spool.
struct Receipts {
    is_wanted: bool,
    next: u64,
    status: watch::Receiver<Status>,
}

impl Receipts {
    fn new(is_wanted: bool, next: u64, status: watch::Receiver<Status>) -> Self {
        Self {
            is_wanted,
            next,
            status,
        }
    }

    /// Prints what there is, and ends; at the earliest when there is something. Cancel safe.
    async fn wait(&mut self) {
        if !self.is_wanted || self.status.changed().await.is_err() {
            return std::future::pending().await;
        }
        self.print();
    }

    fn print(&mut self) {
        let next = self.status.borrow_and_update().next;
        if !self.is_wanted || next <= self.next {
            return;
        }
        let numbers: String = (self.next..next).map(|seq| format!("{seq}\n")).collect();
        self.next = next;
        let mut out = io::stdout().lock();
        // Nobody reads them any more.
        let _ = out.write_all(numbers.as_bytes()).and_then(|()| out.flush());
    }
}

#[derive(Default)]
struct Counts {
    taken: u64,
    refused: u64,
}

fn unfinished(counts: &Counts, status: &Status, first: u64) -> Failure {
    let left = (first + counts.taken).saturating_sub(status.durable);
    let what = format!(
        "{left} of {} are not durable at the other end",
        counted(counts.taken, "record")
    );
    match &status.state {
        State::Down(why) => Failure::new(Exit::Connect, format!("{what}: {why}"))
            .next("check the URL, and that `towline link sub` or `run` listens there"),
        _ => Failure::new(Exit::Timeout, what).next("give it more time with --patience"),
    }
}

fn report(counts: &Counts, status: &Status, elapsed: Duration, printer: Printer) {
    let sender = &status.sender;
    let each = status.bytes_sent as f64 / counts.taken.max(1) as f64;
    let via = match &status.state {
        State::Live(Via::Tls) => "tls",
        _ => "udp",
    };
    printer.line(format_args!(
        "{}, {} batches: {} sent, {each:.1} B a record; {} sent again, {} behind, {} dropped",
        counted(counts.taken, "record"),
        sender.batches,
        Bytes(status.bytes_sent),
        sender.again,
        sender.conflated + sender.postponed,
        sender.dropped,
    ));
    printer.record(&json!({
        "schema": SCHEMA,
        "records": counts.taken,
        "refused": counts.refused,
        "durable": status.durable,
        "batches": sender.batches,
        "batch_bytes": sender.bytes,
        "again": sender.again,
        "conflated": sender.conflated,
        "postponed": sender.postponed,
        "backfilled": sender.backfilled,
        "dropped": sender.dropped,
        "bytes_sent": status.bytes_sent,
        "bytes_received": status.bytes_received,
        "bytes_per_record": each,
        "connections": status.connections,
        "via": via,
        "seconds": millis(elapsed) / 1e3,
    }));
}

/// Reads lines on a thread of its own, at their pace.
fn read(
    file: PathBuf,
    pace: Option<Pace>,
) -> Result<mpsc::Receiver<Result<Record, String>>, Failure> {
    let input: Box<dyn BufRead + Send> = match file.as_os_str() == "-" {
        true => Box::new(BufReader::new(io::stdin())),
        false => {
            let opened = File::open(&file);
            let opened =
                opened.map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
            Box::new(BufReader::new(opened))
        }
    };
    let (to, records) = mpsc::channel(READ_AHEAD);
    let lines = super::lines::Records::new(input);
    std::thread::spawn(move || {
        let mut pace = pace.map(Pace::start);
        for (number, record) in lines {
            if let (Some(pace), Ok(record)) = (&mut pace, &record) {
                pace.wait(record);
            }
            let record = record.map_err(|why| format!("line {number}: {why}"));
            if to.blocking_send(record).is_err() {
                return;
            }
        }
    });
    Ok(records)
}
