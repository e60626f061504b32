//! What `web perf` prints around its rows: a head, and the sums.
//!
//! The record of `--json` is made as that of `towline perf`: `start`, `intervals`, `end`.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use towline::Connection;

use super::args::{Direction, WebPerfArgs};
use super::datagrams::{self, Datagrams};
use super::load::Load;
use super::sessions::Sessions;
use super::streams::{self, Streams, Way};
use crate::commands::perf::control::HostRecord;
use crate::commands::perf::report::{Measured, news, shown_rtt};
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::units::{BitRate, Bytes, counted, cpu_percent, millis, rate};

/// What was asked for, and agreed on.
#[derive(Debug, Serialize)]
pub(super) struct Start {
    peer: String,
    over: &'static str,
    direction: Option<Direction>,
    dialect: Option<&'static str>,
    /// Of each path.
    sessions: u8,
    /// Seconds until the sessions of a path were open, the longest.
    session_seconds: f64,
    /// Of each session and direction.
    streams: Option<u8>,
    seconds: f64,
    /// Of each session.
    datagrams_per_second: Option<u32>,
    datagram_bytes: Option<u64>,
    cipher_suite: Option<&'static str>,
    key_exchange: Option<&'static str>,
    mtu: u16,
    here: HostRecord,
}

/// How it ended, whatever was measured.
pub(super) struct Ends {
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    pub(super) stats: StatsRecord,
    /// What this end's socket did without.
    pub(super) advice: Vec<String>,
}

impl Start {
    pub(super) fn new(
        args: &WebPerfArgs,
        connection: &Connection,
        sessions: &[Sessions],
        here: HostRecord,
    ) -> Self {
        let first = sessions.iter().find_map(|sessions| sessions.open.first());
        let took = sessions.iter().map(|sessions| sessions.took).max();
        let streams = !args.datagrams;
        Self {
            peer: connection.remote_addr().to_string(),
            over: if streams { "streams" } else { "datagrams" },
            direction: streams.then_some(args.direction),
            dialect: first.map(|session| session.dialect().name()),
            sessions: args.sessions,
            session_seconds: took.unwrap_or_default().as_secs_f64(),
            streams: streams.then_some(args.parallel),
            seconds: args.time.as_secs_f64(),
            datagrams_per_second: args.datagrams.then_some(args.rate),
            datagram_bytes: args.datagrams.then_some(args.size),
            cipher_suite: connection.cipher_suite(),
            key_exchange: connection.key_exchange(),
            mtu: connection.stats().mtu,
            here,
        }
    }

    pub(super) fn print(&self, printer: Printer) {
        let what = match (self.direction, self.streams) {
            (Some(direction), Some(streams)) => {
                let way = match direction {
                    Direction::Upload => "upload to",
                    Direction::Download => "download from",
                    Direction::Both => "both ways with",
                };
                format!("{way} {}, {}", self.peer, counted(streams.into(), "stream"))
            }
            _ => format!(
                "datagrams to {} and back, {} a second of {} bytes",
                self.peer,
                self.datagrams_per_second.unwrap_or_default(),
                self.datagram_bytes.unwrap_or_default(),
            ),
        };
        printer.line(format_args!(
            "{what} in each of {}, {}, {}, packets of {} bytes",
            counted(self.sessions.into(), "session"),
            self.dialect.unwrap_or("-"),
            self.cipher_suite.unwrap_or("-"),
            self.mtu,
        ));
        let took = Duration::try_from_secs_f64(self.session_seconds).unwrap_or_default();
        printer.line(format_args!("sessions open after {} ms", millis(took)));
        printer.line(format_args!("here:  {}", self.here));
        printer.line(match self.direction {
            Some(_) => streams::Row::HEAD,
            None => datagrams::Row::HEAD,
        });
    }
}

/// Prints the sums, and says what conditions are about.
pub(super) fn print_end(start: &Start, load: &Load, ends: &Ends, printer: Printer) -> Measured {
    let (measured, intervals, mut end) = match load {
        Load::Streams(streams) => of_streams(streams, ends, printer),
        Load::Datagrams(datagrams) => of_datagrams(datagrams, ends, printer),
    };
    let percent = cpu_percent(ends.cpu, ends.elapsed);
    printer.line(format_args!(
        "{} packets lost here ({:.3} %), rtt {} ms, cwnd {}, cpu here {percent} %",
        ends.stats.packets_lost(),
        ends.stats.loss_ratio() * 100.0,
        shown_rtt(ends.stats.smoothed_rtt()),
        Bytes(ends.stats.cwnd()),
    ));
    for line in news(("here", &start.here), &ends.advice) {
        printer.line(line);
    }
    end["seconds"] = json!(ends.elapsed.as_secs_f64());
    end["cpu_seconds"] = json!(ends.cpu.as_secs_f64());
    end["cpu_percent"] = json!(percent);
    end["connection"] = json!(ends.stats);
    end["advice"] = json!(ends.advice);
    printer.record(&json!({
        "schema": "towline.web.perf/1",
        "start": start,
        "intervals": intervals,
        "end": end,
    }));
    measured
}

fn of_streams(streams: &Streams, ends: &Ends, printer: Printer) -> (Measured, Value, Value) {
    let mut end = json!({ "upload": null, "download": null, "datagrams": null });
    printer.line("sum               direction  transfer    rate");
    for way in &streams.ways {
        let total = way.total();
        let per_second = rate(total, ends.elapsed);
        printer.line(format_args!(
            "{:<17} {:<10} {:<11} {}",
            format!("{:.2} s", ends.elapsed.as_secs_f64()),
            way.name,
            Bytes(total).to_string(),
            BitRate(per_second),
        ));
        end[way.name] = json!({ "bytes": total, "bits_per_second": per_second * 8.0 });
    }
    let rates = streams
        .ways
        .iter()
        .map(|way| rate(way.total(), ends.elapsed));
    let sends = streams.ways.iter().any(Way::is_upload);
    let measured = Measured {
        rate: rates.fold(f64::INFINITY, f64::min),
        rtt: ends.stats.smoothed_rtt(),
        // The sender knows.
        loss: sends.then(|| ends.stats.loss_ratio()),
    };
    (measured, json!(streams.rows), end)
}

fn of_datagrams(datagrams: &Datagrams, ends: &Ends, printer: Printer) -> (Measured, Value, Value) {
    let total = &datagrams.total;
    let bytes = total.back * datagrams.size as u64;
    let per_second = rate(bytes, ends.elapsed);
    let loss = total.loss();
    printer.line(format_args!(
        "sum: {} sent, {} back, {:.3} % lost, {} without room here, {} each way",
        total.sent,
        total.back,
        loss.unwrap_or_default() * 100.0,
        total.no_room,
        BitRate(per_second),
    ));
    let [least, median, p95, p99, most] = [0.0, 0.5, 0.95, 0.99, 1.0].map(|at| total.rtt(at));
    printer.line(format_args!(
        "rtt min/median/95 %/99 %/max  {}/{}/{}/{}/{} ms",
        shown_rtt(least),
        shown_rtt(median),
        shown_rtt(p95),
        shown_rtt(p99),
        shown_rtt(most),
    ));
    let end = json!({
        "upload": null,
        "download": null,
        "datagrams": {
            "sent": total.sent,
            "received": total.back,
            "no_room": total.no_room,
            "loss_percent": loss.map(|loss| loss * 100.0),
            "bits_per_second": per_second * 8.0,
            "rtt_min": least,
            "rtt_mean": (total.back > 0).then(|| total.rtts.mean_ms() / 1e3),
            "rtt_median": median,
            "rtt_p95": p95,
            "rtt_p99": p99,
            "rtt_max": most,
        },
    });
    let measured = Measured {
        rate: per_second,
        rtt: median,
        loss,
    };
    (measured, json!(datagrams.rows), end)
}
