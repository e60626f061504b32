//! The result of a transfer session as both ends print it: a few lines, or one record.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use towline::Connection;
use towline::stats::Stats;
use towline_transfer::{Ended, Failed, Reason, Report, SessionError};

use crate::exit::{Exit, Failure};
use crate::failures::connection_failure;
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::units::{ByteRate, Bytes, counted, cpu_percent, millis, rate};

/// Failed files listed by name for people; the record lists more.
const SHOWN_FAILURES: usize = 20;
/// How long the connection may take to say why a stream broke.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);
const RESUME: &str = "run the same command again to resume";

/// What this side did in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    ClientSends,
    ClientReceives,
    ServerSends,
    ServerReceives,
}

impl Role {
    /// Whether files leave this side.
    pub(crate) fn sends(self) -> bool {
        matches!(self, Self::ClientSends | Self::ServerSends)
    }

    fn schema(self) -> &'static str {
        match self {
            Self::ClientSends => "towline.send/1",
            Self::ClientReceives | Self::ServerReceives => "towline.recv/1",
            Self::ServerSends => "towline.sent/1",
        }
    }
}

#[derive(Serialize)]
struct Record<'a> {
    schema: &'static str,
    role: Role,
    peer: String,
    whole: bool,
    files: u64,
    bytes: u64,
    bytes_moved: u64,
    skipped: u64,
    bytes_skipped: u64,
    wider: u64,
    wider_names: &'a [String],
    resumed: u64,
    bytes_resumed: u64,
    failed: u64,
    failures: Vec<FailureRecord<'a>>,
    links: u64,
    left_out: u64,
    left_out_names: Vec<FailureRecord<'a>>,
    seconds: f64,
    bytes_per_second: f64,
    cpu_seconds: f64,
    peer_cpu_seconds: Option<f64>,
    error: Option<String>,
    connection: StatsRecord,
}

#[derive(Serialize)]
struct FailureRecord<'a> {
    path: &'a str,
    reason: String,
    message: &'a str,
}

/// One session's result, ready to print.
pub(crate) struct Summary<'a> {
    role: Role,
    peer: String,
    ended: &'a Ended,
    elapsed: Duration,
    stats: Stats,
}

impl<'a> Summary<'a> {
    /// Takes the statistics now; `elapsed` is how long all of it took.
    pub(crate) fn new(
        role: Role,
        connection: &Connection,
        ended: &'a Ended,
        elapsed: Duration,
    ) -> Self {
        Self {
            role,
            peer: connection.remote_addr().to_string(),
            ended,
            elapsed,
            stats: connection.stats(),
        }
    }

    /// Prints lines or a record.
    pub(crate) fn print(&self, printer: Printer) {
        printer.line(self.text());
        printer.record(&self.record());
    }

    fn record(&self) -> Record<'_> {
        let report = &self.ended.report;
        Record {
            schema: self.role.schema(),
            role: self.role,
            peer: self.peer.clone(),
            whole: self.ended.error.is_none() && report.is_whole(),
            files: report.files,
            bytes: report.bytes,
            bytes_moved: report.bytes_moved,
            skipped: report.skipped,
            bytes_skipped: report.bytes_skipped,
            wider: report.wider,
            wider_names: &report.wider_names,
            resumed: report.resumed,
            bytes_resumed: report.bytes_resumed,
            failed: report.failed,
            failures: records(&report.failures),
            links: report.links,
            left_out: report.left_out,
            left_out_names: records(&report.left_out_names),
            seconds: self.elapsed.as_secs_f64(),
            bytes_per_second: rate(report.bytes_moved, self.elapsed),
            cpu_seconds: self.ended.cpu.as_secs_f64(),
            peer_cpu_seconds: self.ended.peer_cpu.map(|cpu| cpu.as_secs_f64()),
            error: self.ended.error.as_ref().map(ToString::to_string),
            connection: StatsRecord::from(&self.stats),
        }
    }

    fn text(&self) -> String {
        let report = &self.ended.report;
        let (done, preposition) = if self.role.sends() {
            ("sent", "to")
        } else {
            ("received", "from")
        };
        let mut text = format!(
            "{done} {}, {} {preposition} {} in {:.2} s ({})",
            counted(report.files, "file"),
            Bytes(report.bytes),
            self.peer,
            self.elapsed.as_secs_f64(),
            ByteRate(rate(report.bytes_moved, self.elapsed)),
        );
        if report.resumed > 0 {
            let _ = write!(
                text,
                "\n{} resumed: {} did not travel again",
                counted(report.resumed, "file"),
                Bytes(report.bytes_resumed)
            );
        }
        if report.skipped > 0 {
            let _ = write!(
                text,
                "\n{} there already, {} (by size and time; --check at the receiver compares hashes)",
                counted(report.skipped, "file"),
                Bytes(report.bytes_skipped)
            );
        }
        if report.wider > 0 {
            let names = report.wider_names.iter();
            let title = format!(
                "{} there already, with a mode that permits more than the sender's (--overwrite at the receiver takes that away)",
                counted(report.wider, "file")
            );
            list(&mut text, &title, report.wider, names);
        }
        if report.links > 0 {
            let _ = write!(text, "\n{}", counted(report.links, "symbolic link"));
        }
        let _ = write!(text, "\n{}", self.costs());
        if self.ended.error.is_none() && report.is_whole() && report.files > 0 {
            text.push_str("\nevery file is whole: BLAKE3 hashes agree at both ends");
        }
        let failed = format!("{} did not go through", counted(report.failed, "file"));
        list(&mut text, &failed, report.failed, shown(&report.failures));
        let left_out = format!("{} left out", report.left_out);
        list(
            &mut text,
            &left_out,
            report.left_out,
            shown(&report.left_out_names),
        );
        text
    }

    fn costs(&self) -> String {
        let cpu = |cpu: Duration| {
            format!(
                "{:.2} s ({} %)",
                cpu.as_secs_f64(),
                cpu_percent(cpu, self.elapsed)
            )
        };
        let (here, there) = if self.role.sends() {
            ("sender", "receiver")
        } else {
            ("receiver", "sender")
        };
        let mut text = format!("cpu: {here} {}", cpu(self.ended.cpu));
        if let Some(peer) = self.ended.peer_cpu {
            let _ = write!(text, ", {there} {}", cpu(peer));
        }
        let _ = write!(
            text,
            "; rtt {} ms; {} lost",
            millis(self.stats.smoothed_rtt),
            counted(self.stats.packets_lost, "packet")
        );
        text
    }
}

fn records(failed: &[Failed]) -> Vec<FailureRecord<'_>> {
    let records = failed.iter().map(|failed| FailureRecord {
        path: &failed.path,
        reason: failed.refusal.reason.to_string(),
        message: &failed.refusal.text,
    });
    records.collect()
}

fn shown(failed: &[Failed]) -> impl Iterator<Item = String> {
    failed
        .iter()
        .map(|failed| format!("{}: {}", failed.path, failed.refusal))
}

/// So many, the first of them by name.
fn list(
    text: &mut String,
    title: &str,
    count: u64,
    names: impl Iterator<Item = impl std::fmt::Display>,
) {
    if count == 0 {
        return;
    }
    let _ = write!(text, "\n{title}:");
    let mut shown = 0;
    for name in names.take(SHOWN_FAILURES) {
        let _ = write!(text, "\n  {name}");
        shown += 1;
    }
    if count > shown {
        let _ = write!(text, "\n  and {} more", count - shown);
    }
}

/// How a session ends its command.
pub(crate) async fn conclude(
    ended: &Ended,
    connection: &Connection,
    leave_out: bool,
) -> Result<Exit, Failure> {
    let Some(error) = &ended.error else {
        return finished(&ended.report, leave_out);
    };
    Err(match error {
        SessionError::Lost(lost) => {
            let reason = match connection.close_reason() {
                Some(reason) => Some(reason),
                None => tokio::time::timeout(REASON_TIMEOUT, connection.closed())
                    .await
                    .ok(),
            };
            let failure = match reason {
                Some(reason) => connection_failure(&reason),
                None => Failure::new(Exit::Partial, format!("the transfer broke off: {lost}")),
            };
            if failure.next.is_none() {
                failure.next(RESUME)
            } else {
                failure
            }
        }
        SessionError::Refused(refusal) => refused(refusal.reason, refusal.to_string()),
        SessionError::Protocol(_) => Failure::new(Exit::Protocol, error.to_string()),
        SessionError::Local(refusal) => {
            Failure::new(Exit::Partial, refusal.to_string()).next(RESUME)
        }
        SessionError::Cancelled => interrupted(),
    })
}

/// How Ctrl-C ends a transfer that began.
pub(crate) fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted").next(RESUME)
}

/// How a session that ran to its end ends its command.
pub(crate) fn finished(report: &Report, leave_out: bool) -> Result<Exit, Failure> {
    if report.is_as_asked(leave_out) {
        return Ok(Exit::Ok);
    }
    let failure = |what| Failure::new(Exit::Partial, format!("{what}; the others are whole"));
    Err(match report.failed {
        0 => failure(format!("{} left out", report.left_out)).next(
            "see the names above; --leave-out says that this is as it should be, --follow-links of the sender sends what links lead to",
        ),
        failed => failure(format!("{} did not go through", counted(failed, "file"))).next(
            "see the reasons above, then run the same command again: what is whole is not sent twice",
        ),
    })
}

/// How a refusal by the other side ends a command.
pub(crate) fn refused(reason: Reason, text: String) -> Failure {
    let message = format!("the other side refuses: {text}");
    match reason {
        Reason::NotAllowed | Reason::NotFound | Reason::TooMuch => {
            Failure::new(Exit::Other, message)
        }
        Reason::Protocol => Failure::new(Exit::Protocol, message),
        _ => Failure::new(Exit::Partial, message).next(RESUME),
    }
}
