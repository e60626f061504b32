//! The end that sends: sources, a spool, an uplink.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use towline::link::{
    DiskStore, Full, MemoryStore, PathPatterns, SenderConfig, SpoolConfig, State, Status, Uplink,
    UplinkConfig, Via,
};
use towline_gateway::{
    Counts, Nmea0183Options, SignalKOptions, Source, Status as EndStatus, Translator, feed,
};
use towline_link::Reducer;

use super::super::config::{
    Config, Fallback, Full as WhenFull, Reduce, Source as SourceConfig, Spool as SpoolFolder,
};
use super::super::ends;
use super::super::monitor::Monitor;
use super::super::reports::Reports;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::Bound;
use crate::printer::Printer;
use crate::service_manager::ServiceManager;
use crate::units::{counted, millis};

/// Bytes of records that wait where there is no spool.
const MAX_MEMORY: u64 = 64 << 20;
/// How long the end may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the month's count is written down.
const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// Numbers of a report that go up and down.
const GAUGES: &[&str] = &[
    "quality",
    "bytes_per_record",
    "loss",
    "sent_again",
    "rtt_ms",
    "rtt_p95_ms",
    "backlog",
    "spool_bytes",
    "in_flight",
    "oldest_unsent_s",
    "is_on_hold",
];

/// A source and what is told of it.
type Told = Arc<Mutex<SourceTold>>;

#[derive(Debug)]
struct SourceTold {
    kind: String,
    status: EndStatus,
    counts: Counts,
    /// Values that were left out by choice, and records of which nothing was left.
    left_out: (u64, u64),
}

pub(super) async fn run(config: Config, metrics: Bound, printer: Printer) -> Result<Exit, Failure> {
    let Some(peer) = &config.peer else {
        return Err(Failure::usage("no [peer]"));
    };
    let mut interrupt = Interrupt::of_a_server(printer);
    let keys = ends::keys(&peer.url, peer.key.as_slice())?;
    let dialer = ends::dialer(&peer.url, keys, peer.fallback == Fallback::Tls, printer)?;
    let mut month = Month::open(&config);
    let sender = SenderConfig::new(config.name.clone())
        .deadline(config.live.deadline)
        .rate(config.limit.rate);
    let alarms = PathPatterns::new(config.live.alarms.clone());
    let uplink = UplinkConfig::new(sender)
        .budget(month.left())
        .alarms(alarms.clone());
    let failed = |error: std::io::Error| Failure::new(Exit::Other, error.to_string());
    let uplink = match &config.spool {
        Some(spool) => Uplink::start(uplink, dialer, open_spool(spool, printer)?),
        None => {
            let store = MemoryStore::new(ends::random_u64()?, MAX_MEMORY);
            Uplink::start(uplink, dialer, store)
        }
    };
    let uplink = Arc::new(uplink.map_err(failed)?);
    let mut told = Vec::new();
    let mut feeding = JoinSet::new();
    for source in &config.sources {
        let (kind, source) = open(source).await?;
        let status: Told = Arc::new(Mutex::new(SourceTold {
            kind,
            status: source.status(),
            counts: source.counts(),
            left_out: (0, 0),
        }));
        told.push(Arc::clone(&status));
        let (uplink, alarms) = (Arc::clone(&uplink), alarms.clone());
        let reductions = config.reductions.iter().map(Reduce::reduction);
        let reducer = Reducer::new(reductions.collect());
        feeding.spawn(async move {
            let tell = |source: &Source, reducer: &Reducer| {
                let mut told = lock(&status);
                (told.status, told.counts) = (source.status(), source.counts());
                told.left_out = reducer.left_out();
            };
            feed(source, &uplink, &alarms, reducer, tell).await
        });
    }
    let reports = Reports::start(&config, metrics, GAUGES, printer);
    let manager = ServiceManager::from_environment();
    manager.ready();
    let alive = manager.keep_alive();
    tokio::pin!(alive);
    let mut status = uplink.status();
    let mut monitor = Monitor::new(config.live.deadline);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut state = State::Connecting;
    let mut is_fed = true;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let status = status.borrow_and_update().clone();
                monitor.sample(&status);
                month.count(&status);
                uplink.set_budget(month.left());
                if status.state != state {
                    state = status.state.clone();
                    printer.line(said(&state));
                }
                let report = describe(&config, &status, &monitor, &month, &told);
                reports.tell(report);
            }
            Some(ended) = feeding.join_next(), if is_fed => {
                if let Ok(Err(why)) = ended {
                    let why: towline_gateway::SourceError = why;
                    printer.note(format_args!("towline: {why}"));
                }
                is_fed = !feeding.is_empty();
            }
            () = &mut alive => {}
            () = interrupt.wait() => break,
        }
        // Files come to an end, servers do not.
        if !is_fed {
            let status = status.borrow();
            let given = |told: &Told| {
                let told = lock(told);
                told.counts.records - told.left_out.1
            };
            let given: u64 = told.iter().map(given).sum();
            let is_taken = status.sender.pushed + status.refused >= given;
            if is_taken && status.durable == status.next {
                break;
            }
        }
    }
    manager.stopping();
    feeding.shutdown().await;
    month.write();
    if let Ok(uplink) = Arc::try_unwrap(uplink) {
        uplink.close(PATIENCE).await;
    }
    month.count(&status.borrow());
    month.write();
    Ok(match is_fed {
        true => Exit::Interrupted,
        false => Exit::Ok,
    })
}

/// Opens the spool, and says what it has lost.
fn open_spool(spool: &SpoolFolder, printer: Printer) -> Result<DiskStore, Failure> {
    let folder = spool.path.display();
    let config = SpoolConfig {
        max_bytes: spool.max,
        full: match spool.full {
            WhenFull::DropOldest => Full::DropOldest,
            WhenFull::Wait => Full::Refuse,
        },
        ..SpoolConfig::default()
    };
    let opened = DiskStore::open(&spool.path, config)
        .map_err(|error| Failure::new(Exit::Other, format!("[spool] {folder}: {error}")))?;
    let found = &opened.found;
    if found.lost_records > 0 {
        printer.note(format_args!(
            "towline: WARNING: {folder}: {} of the spool are damaged and lost; check the disk",
            counted(found.lost_records, "record")
        ));
    }
    if found.is_new && found.cut_bytes > 0 {
        printer.note(format_args!(
            "towline: WARNING: {folder}: {} bytes of records cannot be read, for their beginning is damaged; they are kept beside \
             the spool as *.damaged, and the spool begins anew; check the disk",
            found.cut_bytes
        ));
    }
    if found.records > 0 {
        let waiting = counted(found.records, "record");
        printer.note(format_args!(
            "{folder}: {waiting} of before wait to be sent"
        ));
    }
    Ok(opened.store)
}

fn said(state: &State) -> String {
    match state {
        State::Connecting => "connecting".to_owned(),
        State::Live(Via::Udp) => "live over UDP".to_owned(),
        State::Live(Via::Tls) => "live over TLS: UDP does not get through".to_owned(),
        State::Down(why) => format!("down: {why}"),
    }
}

/// What happens under the lock cannot fail, so a poisoned one is as good.
fn lock(told: &Told) -> MutexGuard<'_, SourceTold> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn open(source: &SourceConfig) -> Result<(String, Source), Failure> {
    let bad = |error: towline_gateway::BadUrl| Failure::usage(format!("[[source]] {error}"));
    Ok(match source {
        SourceConfig::Signalk {
            url,
            token,
            context,
            paths,
        } => {
            let mut options = SignalKOptions::new(url.clone());
            options.token.clone_from(token);
            if !paths.is_empty() {
                options.paths.clone_from(paths);
            }
            if let Some(context) = context {
                options.context.clone_from(context);
            }
            ("signalk".to_owned(), Source::signalk(options).map_err(bad)?)
        }
        SourceConfig::Nmea0183 {
            url,
            label,
            context,
        } => {
            let mut options = Nmea0183Options::new(url.clone());
            if let Some(label) = label {
                options.label.clone_from(label);
            }
            options.context.clone_from(context);
            let source = match url.contains("://") {
                true => Source::nmea0183(options, wall_clock).map_err(bad)?,
                false => {
                    let translator = Translator::new(options.label, options.context);
                    Source::nmea0183_lines(file(Path::new(url)).await?, translator, wall_clock)
                }
            };
            ("nmea0183".to_owned(), source)
        }
        SourceConfig::Stdin {} => ("stdin".to_owned(), Source::json_lines(tokio::io::stdin())),
        SourceConfig::File { path } => ("file".to_owned(), Source::json_lines(file(path).await?)),
    })
}

async fn file(path: &Path) -> Result<tokio::fs::File, Failure> {
    let opened = tokio::fs::File::open(path).await;
    opened.map_err(|error| Failure::usage(format!("[[source]] {}: {error}", path.display())))
}

/// How the link is, for `show`, `top` and Prometheus.
fn describe(
    config: &Config,
    status: &Status,
    monitor: &Monitor,
    month: &Month,
    told: &[Told],
) -> Value {
    let (state, via, why) = match &status.state {
        State::Connecting => ("connecting", None, None),
        State::Live(Via::Udp) => ("live", Some("udp"), None),
        State::Live(Via::Tls) => ("live", Some("tls"), None),
        State::Down(why) => ("down", None, Some(why)),
    };
    let sources: Vec<Value> = told
        .iter()
        .map(|told| {
            let told = lock(told);
            let SourceTold {
                kind,
                status,
                counts,
                left_out,
            } = &*told;
            let down = match status {
                EndStatus::Down { why } => Some(why),
                _ => None,
            };
            json!({
                "kind": kind,
                "is_up": *status == EndStatus::Up,
                "down": down,
                "records": counts.records,
                "malformed": counts.malformed,
                "unsupported": counts.unsupported,
                "left_out": left_out.0,
                "last_malformed": counts.last_malformed,
            })
        })
        .collect();
    let trips = monitor.round_trips();
    let sender = &status.sender;
    json!({
        "schema": "towline.link.show/1",
        "name": config.name,
        "role": "boat",
        "state": state,
        "via": via,
        "why": why,
        "quality": monitor.quality(status),
        "bytes_per_record": monitor.bytes_per_record(),
        "loss": monitor.loss(),
        "sent_again": monitor.again(),
        "rtt_ms": trips.map(|[middle, _]| millis(middle)),
        "rtt_p95_ms": trips.map(|[_, most]| millis(most)),
        "month": { "used": month.used(), "of": config.limit.month },
        "backlog": status.backlog,
        "spool_bytes": status.stored,
        "in_flight": status.in_flight,
        "durable": status.durable,
        "next": status.next,
        "lost": sender.dropped,
        "oldest_unsent_s": status.oldest_unsent.map(|wait| wait.as_secs_f64()),
        "is_on_hold": status.is_on_hold,
        "store": status.store.as_ref().map(ToString::to_string),
        "records": sender.pushed,
        "batches": sender.batches,
        "again": sender.again,
        "conflated": sender.conflated,
        "postponed": sender.postponed,
        "backfilled": sender.backfilled,
        "refused": status.refused,
        "bytes_sent": status.bytes_sent,
        "bytes_received": status.bytes_received,
        "connections": status.connections,
        "sources": sources,
    })
}

/// What was sent this month.
struct Month {
    path: Option<PathBuf>,
    most: Option<u64>,
    /// Months since year 0.
    month: u64,
    /// Bytes of before this process.
    before: u64,
    /// Bytes of this process, and those of them that were of other months.
    sent: u64,
    other: u64,
    written: Instant,
}

impl Month {
    /// As it was written down beside the spool.
    fn open(config: &Config) -> Self {
        let path = config.spool.as_ref().map(|spool| spool.path.join("month"));
        let written = path
            .as_ref()
            .and_then(|path| std::fs::read_to_string(path).ok());
        let mut words = written.as_deref().unwrap_or("").split_whitespace();
        let mut word = || words.next().and_then(|word| word.parse::<u64>().ok());
        // A clock that stands before what was written is wrong, as after a start without a network.
        let (month, before) = match (word(), word()) {
            (Some(of), Some(bytes)) if of >= this_month() => (of, bytes),
            _ => (this_month(), 0),
        };
        Self {
            path,
            most: config.limit.month,
            month,
            before,
            sent: 0,
            other: 0,
            written: Instant::now(),
        }
    }

    fn used(&self) -> u64 {
        self.before + self.sent - self.other
    }

    /// What may still be sent, as the uplink counts: from its start.
    fn left(&self) -> Option<u64> {
        self.most
            .map(|most| (most + self.other).saturating_sub(self.before))
    }

    fn count(&mut self, status: &Status) {
        self.sent = status.bytes_sent + status.bytes_received;
        let month = this_month();
        if month > self.month {
            (self.month, self.before, self.other) = (month, 0, self.sent);
        }
        if self.written.elapsed() >= COUNTED_EVERY {
            self.write();
        }
    }

    fn write(&mut self) {
        self.written = Instant::now();
        let Some(path) = &self.path else {
            return;
        };
        let text = format!("{} {}\n", self.month, self.used());
        // Half a file would be a month in which nothing was sent.
        let new = path.with_extension("new");
        let written = std::fs::File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, path)
        });
        if let Err(error) = written {
            tracing::warn!("{}: {error}", path.display());
        }
    }
}

/// Months since year 0, UTC.
fn this_month() -> u64 {
    let date = crate::units::date(towline::config::unix_now());
    let mut parts = date.split('-').map(|part| part.parse::<u64>().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    part() * 12 + part()
}

/// Milliseconds since 1970, by the wall clock.
fn wall_clock() -> i64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_does_not_give_a_month_back() {
        let folder = std::env::temp_dir().join(format!("towline-month-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "name = \"a\"\n[peer]\nurl = \"towline://h#sha256/{}\"\n[spool]\npath = \"{}\"\n[limit]\nmonth = \"1 kB\"\n[[source]]\nkind = \"stdin\"\n",
            "48574cdb13290480f46402aa14be0302199050f4a7d0f6dbde14b7754110db3b",
            folder.display()
        );
        let config = Config::parse(&text).unwrap();
        let used = |month: u64| {
            std::fs::write(folder.join("month"), format!("{month} 600\n")).unwrap();
            let month = Month::open(&config);
            (month.used(), month.left())
        };
        assert_eq!(used(this_month()), (600, Some(400)));
        assert_eq!(used(this_month() + 3), (600, Some(400)));
        assert_eq!(used(this_month() - 1), (0, Some(1_000)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
