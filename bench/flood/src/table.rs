//! The rows, their marks, and the page they are kept on.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::clients::Connected;
use crate::generator::Flood;
use crate::server::Report;
use crate::{Arguments, Kind, Outcome};

/// Ninety-nine of a hundred clients connect within this time.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Running transfers keep so much of their rate.
const KEEP: f64 = 0.7;

pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) prefixes: u32,
    pub(crate) flood: Flood,
    pub(crate) connected: Connected,
    /// Mbit/s of the transfers before the flood and under it.
    pub(crate) quiet: f64,
    pub(crate) during: f64,
    /// Cores the server used under the flood.
    pub(crate) cpu: f64,
    /// Datagrams that found the server's socket full.
    pub(crate) drops: u64,
    /// KiB.
    pub(crate) rss_before: u64,
    pub(crate) rss_peak: u64,
    pub(crate) report: Report,
}

impl Row {
    /// The time within which `percent` of all clients connected.
    fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut times: Vec<_> = self.connected.iter().flatten().copied().collect();
        times.sort_unstable();
        let rank = (self.connected.len() * percent).div_ceil(100);
        times.get(rank.saturating_sub(1)).copied()
    }

    fn kept(&self) -> f64 {
        self.during / self.quiet
    }

    fn passes(&self, max_rss: Option<u64>) -> bool {
        self.percentile(99)
            .is_some_and(|time| time <= CONNECT_WITHIN)
            && self.kept() >= KEEP
            && max_rss.is_none_or(|mib| self.rss_peak <= mib << 10)
    }

    fn line(&self, max_rss: Option<u64>) -> String {
        let time = |percent| match self.percentile(percent) {
            Some(time) => format!("{} ms", time.as_millis()),
            None => "never".to_owned(),
        };
        let mib = |kib: u64| kib as f64 / 1024.0;
        format!(
            "| {:?} | {} | {:.0} | {:.0} | {} of {} | {} | {} | {:.0} | {:.0} | {:.0} % | {:.0} % | {} | {:.1} | {:.1} | {} |",
            self.kind,
            if self.kind == Kind::None {
                0
            } else {
                self.prefixes
            },
            self.flood.rate,
            self.flood.answers,
            self.connected.iter().flatten().count(),
            self.connected.len(),
            time(50),
            time(99),
            self.quiet,
            self.during,
            self.kept() * 100.0,
            self.cpu * 100.0,
            self.drops,
            mib(self.rss_before),
            mib(self.rss_peak),
            if self.passes(max_rss) {
                "yes"
            } else {
                "**no**"
            },
        )
    }
}

pub(crate) struct Table {
    head: String,
    max_rss: Option<u64>,
    rows: Vec<Row>,
}

const COLUMNS: &str = "\
| flood | prefixes | sent a second | answers | connected | median | 99th percentile | Mbit/s before | Mbit/s under it | kept | server's core | socket drops | RSS MiB before | RSS MiB most | in bounds |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

impl Table {
    pub(crate) fn new(arguments: &Arguments) -> Self {
        let head = format!(
            "{} datagrams a second for {} s, {} clients, transfers held to {} Mbit/s; the server on \
             core {}, all else on core {}.",
            arguments.rate,
            arguments.seconds,
            arguments.clients,
            arguments.mbit,
            arguments.cores[0],
            arguments.cores[1],
        );
        println!("{head}\n\n{COLUMNS}");
        Self {
            head,
            max_rss: arguments.max_rss,
            rows: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, row: Row) {
        println!("{}", row.line(self.max_rss));
        eprintln!("  {}", row.report.doors);
        self.rows.push(row);
    }

    pub(crate) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passes(self.max_rss))
    }

    /// Writes `docs/evidence/DATE-flood.md`.
    pub(crate) fn write(&self) -> Outcome {
        let date = time::OffsetDateTime::now_utc().date();
        let mut page = format!(
            "# A server under floods, {date}\n\n`make flood` on {}.\n\n{}\n\n{COLUMNS}\n",
            machine(),
            self.head
        );
        for row in &self.rows {
            writeln!(page, "{}", row.line(self.max_rss))?;
        }
        page.push_str("\nWhat each server counted:\n\n");
        for row in &self.rows {
            let (kind, prefixes, doors) = (row.kind, row.prefixes, &row.report.doors);
            writeln!(page, "- {kind:?}, {prefixes}: {doors}")?;
        }
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence");
        let path = docs.join(format!("{date}-flood.md"));
        std::fs::write(&path, page)?;
        println!("\nwritten to {}", path.canonicalize()?.display());
        Ok(())
    }
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let name = name.and_then(|rest| rest.split_once(':'));
    name.map_or("an unknown processor", |(_, name)| name.trim())
        .to_owned()
}
