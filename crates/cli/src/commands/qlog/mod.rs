//! `towline qlog`: what a connection's log says, as a summary and as a plot.
//!
//! ```text
//!   read       a file to events, record by record       timeline   events to numbers over time
//!   plot       numbers over time to panels
//! ```
//!
//! A log may be larger than memory: nothing is kept of it but the timeline.

mod plot;
mod read;
mod timeline;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::chart;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;
use crate::units::{BitRate, Bytes, counted};
use read::{Log, Problem};
use timeline::Summary;

/// Files below this are read before a bar could be looked at.
const LARGE: u64 = 16 << 20;
const TEMPLATE: &str = "{bar:24} {percent:>3}%  {bytes}/{total_bytes}  eta {eta}";

/// Flags of `qlog`.
#[derive(clap::Args)]
pub(crate) struct QlogCommandArgs {
    /// A log as --qlog writes it: JSON-SEQ, .sqlog, of one connection
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Draw rate, window, round trip and losses over time into this file
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
}

impl QlogCommandArgs {
    /// Reads the log, says what is in it and draws it.
    pub(crate) fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let problem = |problem| failure(&self.file, problem);
        let file = File::open(&self.file)
            .map_err(Problem::Io)
            .map_err(problem)?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let bar = bar(length, printer);
        let input = BufReader::with_capacity(256 << 10, bar.wrap_read(file));
        let read = summarise(Log::begin(input).map_err(problem)?);
        bar.finish_and_clear();
        let summary = read.map_err(problem)?;
        if let Some(out) = &self.svg {
            let text = chart::svg(&plot::chart(&summary))
                .map_err(|error| Failure::new(Exit::Other, format!("the plot failed: {error}")))?;
            std::fs::write(out, text).map_err(|error| {
                Failure::new(Exit::Other, format!("{}: {error}", out.display()))
                    .next("name a place that can be written to with --svg")
            })?;
        }
        self.print(&summary, printer);
        Ok(Exit::Ok)
    }

    fn print(&self, summary: &Summary, printer: Printer) {
        let (role, id) = (&summary.role, &summary.id);
        let seconds = summary.seconds();
        printer.line(format_args!(
            "{role} of {id}, {seconds:.3} s, {}",
            counted(summary.events, "event")
        ));
        for (way, traffic) in [("sent", summary.sent), ("received", summary.received)] {
            printer.line(format_args!(
                "{way} {}, {}, {}",
                counted(traffic.packets, "packet"),
                Bytes(traffic.bytes),
                BitRate(traffic.bytes as f64 / seconds.max(1e-9)),
            ));
        }
        printer.line(format_args!(
            "{} lost, {} of them in error; {} dropped",
            counted(summary.lost, "packet"),
            summary.spurious,
            summary.dropped,
        ));
        // An unmeasured value is a dash, never zero.
        let millis = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.3}"));
        printer.line(format_args!(
            "rtt min/smoothed/max {}/{}/{} ms, largest window {}",
            millis(summary.min_rtt),
            millis(summary.smoothed_rtt),
            millis(summary.max_rtt),
            summary
                .max_window
                .map_or("-".to_owned(), |window| Bytes(window as u64).to_string()),
        ));
        if let Some(reason) = &summary.closed {
            printer.line(format_args!("closed: {reason}"));
        }
        if summary.unreadable > 0 {
            printer.note(format_args!(
                "towline: note: {} could not be read and is not counted",
                counted(summary.unreadable, "record")
            ));
        }
        if let Some(out) = &self.svg {
            printer.line(format_args!("drawn {}", out.display()));
        }
        printer.record(&json!({
            "schema": "towline.qlog/1",
            "file": self.file,
            "role": role,
            "connection": id,
            "seconds": seconds,
            "events": summary.events,
            "unreadable": summary.unreadable,
            "packets_sent": summary.sent.packets,
            "bytes_sent": summary.sent.bytes,
            "packets_received": summary.received.packets,
            "bytes_received": summary.received.bytes,
            "packets_lost": summary.lost,
            "packets_spuriously_lost": summary.spurious,
            "packets_dropped": summary.dropped,
            "min_rtt": summary.min_rtt.map(seconds_of),
            "smoothed_rtt": summary.smoothed_rtt.map(seconds_of),
            "max_rtt": summary.max_rtt.map(seconds_of),
            "max_cwnd": summary.max_window,
            "closed": summary.closed,
            "svg": self.svg,
        }));
    }
}

fn seconds_of(millis: f64) -> f64 {
    millis / 1e3
}

/// Reads a log to its end.
fn summarise<R: std::io::BufRead>(mut log: Log<R>) -> Result<Summary, Problem> {
    let mut summary = Summary::new(log.role(), log.id());
    while let Some(event) = log.next_event()? {
        summary.add(&event);
    }
    summary.unreadable = log.unreadable();
    Ok(summary)
}

fn bar(length: u64, printer: Printer) -> ProgressBar {
    if length < LARGE || !printer.shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

fn failure(file: &Path, problem: Problem) -> Failure {
    let name = file.display();
    match problem {
        Problem::Io(error) => Failure::new(Exit::Other, format!("{name}: {error}"))
            .next("check the path; --qlog DIR writes DIR/ID_client.sqlog and DIR/ID_server.sqlog"),
        Problem::NotQlog(why) => Failure::usage(format!("{name} is not a qlog: {why}"))
            .next("give a .sqlog file, as --qlog DIR writes them"),
        Problem::OtherForm => Failure::usage(format!(
            "{name} is a qlog in another form: one JSON text instead of a sequence"
        ))
        .next("have it written as JSON-SEQ (.sqlog), as --qlog DIR does"),
        Problem::TooLarge(most) => Failure::usage(format!(
            "{name} is not a qlog: a record is longer than {}",
            Bytes(most as u64)
        )),
    }
}

#[cfg(test)]
mod tests;
