//! What a measurement prints: a head, a row per interval, both ends' sums; and thresholds.
//!
//! The record of `--json` has iperf3's shape: `start`, `intervals`, `end`.

use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use towline::Connection;

use super::control::{HostRecord, Reply, Request};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::units::{BitRate, Bytes, cpu_percent, parse_duration, parse_rate, rate};

/// What was agreed on.
#[derive(Debug, Serialize)]
pub(super) struct Start {
    peer: String,
    reverse: bool,
    streams: u8,
    seconds: Option<f64>,
    bytes: Option<u64>,
    omit: f64,
    cipher_suite: Option<&'static str>,
    key_exchange: Option<&'static str>,
    mtu: u16,
    here: HostRecord,
    there: HostRecord,
}

impl Start {
    pub(super) fn new(
        request: &Request,
        time: Duration,
        connection: &Connection,
        here: HostRecord,
        there: HostRecord,
    ) -> Self {
        Self {
            peer: connection.remote_addr().to_string(),
            reverse: request.reverse,
            streams: request.streams,
            seconds: request.bytes.is_none().then_some(time.as_secs_f64()),
            bytes: request.bytes,
            omit: request.omit,
            cipher_suite: connection.cipher_suite(),
            key_exchange: connection.key_exchange(),
            mtu: connection.stats().mtu,
            here,
            there,
        }
    }
}

/// One interval.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    start: f64,
    end: f64,
    bytes: u64,
    bits_per_second: f64,
    packets_lost: u64,
    cwnd: u64,
    smoothed_rtt: Option<f64>,
    min_rtt: Option<f64>,
    omitted: bool,
    /// Bytes of each stream.
    streams: Vec<u64>,
}

impl Row {
    pub(super) fn new(
        (start, end): (Duration, Duration),
        streams: Vec<u64>,
        packets_lost: u64,
        stats: &StatsRecord,
        omitted: bool,
    ) -> Self {
        let bytes = streams.iter().sum();
        Self {
            start: start.as_secs_f64(),
            end: end.as_secs_f64(),
            bytes,
            bits_per_second: rate(bytes, end - start) * 8.0,
            packets_lost,
            cwnd: stats.cwnd(),
            smoothed_rtt: stats.smoothed_rtt(),
            min_rtt: stats.min_rtt(),
            omitted,
            streams,
        }
    }
}

/// The sums of both ends.
pub(super) struct Ends {
    /// Bytes this end counted after the omitted time.
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    /// Packets the sender lost.
    pub(super) lost: u64,
    pub(super) here: Option<StatsRecord>,
    /// What this end's socket did without.
    pub(super) advice: Vec<String>,
    /// `None` if the server did not tell in time.
    pub(super) server: Option<Reply>,
}

/// What the server's result says.
struct Server<'a> {
    bytes: u64,
    elapsed: Duration,
    cpu: Duration,
    stats: &'a StatsRecord,
    advice: &'a [String],
}

impl Ends {
    fn server(&self) -> Option<Server<'_>> {
        let Some(Reply::Result {
            bytes,
            seconds,
            cpu_seconds,
            stats,
            advice,
        }) = &self.server
        else {
            return None;
        };
        let duration = |seconds: &f64| Duration::try_from_secs_f64(*seconds).unwrap_or_default();
        Some(Server {
            bytes: *bytes,
            elapsed: duration(seconds),
            cpu: duration(cpu_seconds),
            stats,
            advice,
        })
    }

    /// The receiving end's rate in bytes a second: what really arrived.
    fn arrived(&self, reverse: bool) -> f64 {
        match self.server() {
            Some(server) if !reverse => rate(server.bytes, server.elapsed),
            _ => rate(self.bytes, self.elapsed),
        }
    }

    /// The sender's statistics.
    fn sender(&self, reverse: bool) -> Option<&StatsRecord> {
        if reverse {
            self.server().map(|server| server.stats)
        } else {
            self.here.as_ref()
        }
    }
}

pub(super) fn print_start(start: &Start, printer: Printer) {
    let direction = if start.reverse {
        "server to client"
    } else {
        "client to server"
    };
    printer.line(format_args!(
        "{} with {}, {} streams, {}, {}, packets of {} bytes",
        direction,
        start.peer,
        start.streams,
        start.cipher_suite.unwrap_or("-"),
        start.key_exchange.unwrap_or("-"),
        start.mtu,
    ));
    printer.line(format_args!("here:  {}", start.here));
    printer.line(format_args!("there: {}", start.there));
    printer
        .line("interval          transfer    rate            lost  cwnd        rtt (min/smoothed)");
}

pub(super) fn print_row(row: &Row, printer: Printer) {
    printer.line(format_args!(
        "{:<17} {:<11} {:<15} {:<5} {:<11} {}/{} ms{}",
        format!("{:.2}-{:.2} s", row.start, row.end),
        Bytes(row.bytes).to_string(),
        BitRate(row.bits_per_second / 8.0).to_string(),
        row.packets_lost,
        Bytes(row.cwnd).to_string(),
        shown_rtt(row.min_rtt),
        shown_rtt(row.smoothed_rtt),
        if row.omitted { "  (omitted)" } else { "" },
    ));
}

/// Milliseconds; an unmeasured value is a dash, never zero.
pub(crate) fn shown_rtt(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), |rtt| format!("{:.3}", rtt * 1e3))
}

pub(super) fn print_end(start: &Start, rows: &[Row], ends: &Ends, printer: Printer) {
    let server = ends.server();
    let (here, there) = if start.reverse {
        ("receiver", "sender")
    } else {
        ("sender", "receiver")
    };
    printer.line(format_args!(
        "sum here  ({here}):   {} in {:.2} s, {}, cpu {} %",
        Bytes(ends.bytes),
        ends.elapsed.as_secs_f64(),
        BitRate(rate(ends.bytes, ends.elapsed)),
        cpu_percent(ends.cpu, ends.elapsed),
    ));
    match &server {
        Some(server) => printer.line(format_args!(
            "sum there ({there}):   {} in {:.2} s, {}, cpu {} %",
            Bytes(server.bytes),
            server.elapsed.as_secs_f64(),
            BitRate(rate(server.bytes, server.elapsed)),
            cpu_percent(server.cpu, server.elapsed),
        )),
        None => printer.line(format_args!(
            "sum there ({there}):   - (no result from the server)"
        )),
    }
    if let Some(stats) = ends.sender(start.reverse) {
        printer.line(format_args!(
            "{} packets lost ({:.3} %), rtt {} ms, cwnd {}",
            ends.lost,
            stats.loss_ratio() * 100.0,
            shown_rtt(stats.smoothed_rtt()),
            Bytes(stats.cwnd()),
        ));
    }
    let of_server = server.as_ref().map_or(&[][..], |server| server.advice);
    for line in news(("here", &start.here), &ends.advice) {
        printer.line(line);
    }
    for line in news(("there", &start.there), of_server) {
        printer.line(line);
    }
    printer.record(&json!({
        "schema": "towline.perf/1",
        "start": start,
        "intervals": rows,
        "end": {
            "bits_per_second": ends.arrived(start.reverse) * 8.0,
            "here": {
                "bytes": ends.bytes,
                "seconds": ends.elapsed.as_secs_f64(),
                "bits_per_second": rate(ends.bytes, ends.elapsed) * 8.0,
                "cpu_seconds": ends.cpu.as_secs_f64(),
                "cpu_percent": cpu_percent(ends.cpu, ends.elapsed),
                "connection": ends.here,
                "advice": ends.advice,
            },
            "there": server.map(|server| json!({
                "bytes": server.bytes,
                "seconds": server.elapsed.as_secs_f64(),
                "bits_per_second": rate(server.bytes, server.elapsed) * 8.0,
                "cpu_seconds": server.cpu.as_secs_f64(),
                "cpu_percent": cpu_percent(server.cpu, server.elapsed),
                "connection": server.stats,
                "advice": server.advice,
            })),
            "packets_lost": ends.lost,
        },
    }));
}

/// Advice that came up during the measurement; that of the head is not repeated.
pub(crate) fn news<'a>(
    (end, start): (&'a str, &'a HostRecord),
    advice: &'a [String],
) -> impl Iterator<Item = String> + 'a {
    let new = advice.iter().filter(|line| !start.advice.contains(line));
    new.map(move |line| format!("advice {end}: {line}"))
}

/// A condition that makes the command fail.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Threshold {
    /// Bytes a second that must arrive.
    RateBelow(u64),
    /// The longest smoothed round trip.
    RttAbove(Duration),
    /// The largest share of lost packets.
    LossAbove(f64),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(value) = text.strip_prefix("rate<") {
            return parse_rate(value).map(Self::RateBelow);
        }
        if let Some(value) = text.strip_prefix("rtt>") {
            return parse_duration(value).map(Self::RttAbove);
        }
        let loss = text
            .strip_prefix("loss>")
            .and_then(|value| value.strip_suffix('%'))
            .and_then(|value| value.parse::<f64>().ok());
        loss.filter(|percent| (0.0..=100.0).contains(percent))
            .map(|percent| Self::LossAbove(percent / 100.0))
            .ok_or_else(|| {
                format!("`{text}` is not a condition; write rate<100Mbit, rtt>20ms or loss>1%")
            })
    }
}

/// What conditions are about; `None` is what was not measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Bytes a second that arrived.
    pub(crate) rate: f64,
    /// Round trip, seconds.
    pub(crate) rtt: Option<f64>,
    /// What was lost, as a share.
    pub(crate) loss: Option<f64>,
}

impl Measured {
    pub(super) fn new(start: &Start, ends: &Ends) -> Self {
        let sender = ends.sender(start.reverse);
        Self {
            rate: ends.arrived(start.reverse),
            rtt: sender.and_then(StatsRecord::smoothed_rtt),
            loss: sender.map(StatsRecord::loss_ratio),
        }
    }

    /// Fails where one of the conditions holds.
    pub(crate) fn check(&self, conditions: &[Threshold]) -> Result<(), Failure> {
        let missed = conditions
            .iter()
            .find_map(|condition| condition.missed(self));
        match missed {
            Some(why) => Err(Failure::new(Exit::Threshold, why)),
            None => Ok(()),
        }
    }
}

impl Threshold {
    /// Why the measurement fails, if it does. What was not measured fails as well.
    fn missed(&self, measured: &Measured) -> Option<String> {
        match self {
            Self::RateBelow(least) => (measured.rate < *least as f64).then(|| {
                format!(
                    "the rate {} is below {}",
                    BitRate(measured.rate),
                    BitRate(*least as f64)
                )
            }),
            Self::RttAbove(most) => match measured.rtt {
                Some(rtt) if rtt <= most.as_secs_f64() => None,
                Some(rtt) => Some(format!(
                    "the round trip of {:.3} ms is above {:?}",
                    rtt * 1e3,
                    most
                )),
                None => Some("the round trip is not known".to_owned()),
            },
            Self::LossAbove(most) => match measured.loss {
                Some(loss) if loss <= *most => None,
                Some(loss) => Some(format!(
                    "the loss of {:.3} % is above {} %",
                    loss * 100.0,
                    most * 100.0
                )),
                None => Some("the loss is not known".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
