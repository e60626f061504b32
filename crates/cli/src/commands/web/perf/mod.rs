//! `towline web perf`: streams, datagrams and sessions of WebTransport against `towline serve --web`.
//!
//! 1. `run` connects, and `sessions` opens as many as were asked for, all at once, on that connection.
//! 2. `streams` or `datagrams` works in each of them, in tasks of its own.
//! 3. `Load::rows` prints what has come at every interval, until the time is over.
//! 4. `report` sums up.

mod args;
mod datagrams;
mod load;
mod report;
mod sessions;
mod streams;

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use towline::Connection;
use towline_transfer::CpuMeter;

use super::client;
use crate::commands::echo::LEAST_SIZE;
use crate::commands::perf::control::{HostRecord, advice};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::{Client, options};
use crate::printer::Printer;
use crate::stats::StatsRecord;
use args::Direction;
pub(super) use args::WebPerfArgs;
use datagrams::Datagrams;
use load::Load;
use report::{Ends, Start};
use sessions::{Sessions, permitted};
use streams::Streams;

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
