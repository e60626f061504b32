//! `towline link show`: how running links are, on a line each.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::control;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;
use crate::units::Bytes;

/// Arguments of `towline link show`.
#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The link's name in its configuration; all of this user's, if none is given
    name: Option<String>,
    /// The socket of its configuration's `control`
    #[arg(long, value_name = "PATH", conflicts_with = "name")]
    control: Option<PathBuf>,
}

impl ShowArgs {
    /// The sockets to ask.
    pub(in crate::commands) fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let paths = match (&self.name, &self.control) {
            (_, Some(path)) => vec![path.clone()],
            (Some(name), None) => vec![control::path_of(name)],
            (None, None) => control::all(),
        };
        match paths.is_empty() {
            false => Ok(paths),
            true => Err(Failure::new(Exit::Connect, "no link of this user runs")
                .next("start one with `towline link run FILE.toml`")),
        }
    }

    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let paths = self.paths()?;
        let has_many = paths.len() > 1;
        let mut is_down = false;
        for path in paths {
            let report = match control::ask(&path).await {
                Ok(report) => report,
                // What a link that was killed has left must not hide the others.
                Err(failure) if has_many => {
                    printer.note(format_args!("towline: {failure}"));
                    is_down = true;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if has_many {
                printer.line(format_args!("{}", text(&report, "name")));
            }
            for line in lines(&report) {
                printer.line(line);
            }
            is_down |= report["state"] == "down";
            printer.record(&report);
        }
        Ok(match is_down {
            true => Exit::Connect,
            false => Exit::Ok,
        })
    }
}

fn text<'a>(report: &'a Value, name: &str) -> &'a str {
    report[name].as_str().unwrap_or("-")
}

/// A report for people.
pub(super) fn lines(report: &Value) -> Vec<String> {
    match report["role"].as_str() {
        Some("shore") => shore(report),
        _ => vec![boat(report)],
    }
}

/// `LIVE UDP  quality 87  6.1 B/delta  612 ms  …`
fn boat(report: &Value) -> String {
    let mut parts = vec![match report["state"].as_str() {
        Some("live") => format!("LIVE {}", text(report, "via").to_uppercase()),
        Some("down") => format!("DOWN ({})", text(report, "why")),
        _ => "CONNECTING".to_owned(),
    }];
    let number = |name: &str| report[name].as_f64();
    if let Some(quality) = number("quality") {
        parts.push(format!("quality {quality}"));
    }
    if let Some(bytes) = number("bytes_per_record") {
        parts.push(format!("{bytes:.1} B/delta"));
    }
    if let Some(rtt) = number("rtt_ms") {
        parts.push(format!("{rtt:.0} ms"));
    }
    let used = Bytes(report["month"]["used"].as_u64().unwrap_or(0));
    parts.push(match report["month"]["of"].as_u64() {
        Some(of) => format!("month {used} of {}", Bytes(of)),
        None => format!("month {used}"),
    });
    parts.push(format!("spool {}", report["backlog"]));
    parts.push(format!("durable {}", report["durable"]));
    parts.push(format!("lost {}", report["lost"]));
    if let Some(wait) = number("oldest_unsent_s") {
        parts.push(format!("oldest unsent {wait:.1} s"));
    }
    if report["is_on_hold"] == true {
        parts.push("ON HOLD: the other end's log takes nothing, records wait here".to_owned());
    }
    if let Some(trouble) = report["store"].as_str() {
        parts.push(format!("SPOOL: {trouble}"));
    }
    for source in report["sources"].as_array().into_iter().flatten() {
        if let Some(why) = source["down"].as_str() {
            parts.push(format!("SOURCE {}: {why}", text(source, "kind")));
        }
    }
    parts.join("  ")
}

fn shore(report: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for sender in report["senders"].as_array().into_iter().flatten() {
        let state = match sender["via"].as_str() {
            Some(via) => format!("LIVE {}", via.to_uppercase()),
            None => "GONE".to_owned(),
        };
        let mut line = format!(
            "{}: {state}  {} records  held {}  stale {}",
            text(sender, "name"),
            sender["records"],
            sender["held"],
            sender["stale"],
        );
        if let Some(rtt) = sender["rtt_ms"].as_f64() {
            line += &format!("  {rtt:.0} ms");
        }
        if sender["is_on_hold"] == true {
            line += "  ON HOLD";
        }
        lines.push(line);
    }
    if lines.is_empty() {
        lines.push("nobody has come yet".to_owned());
    }
    for sink in report["sinks"].as_array().into_iter().flatten() {
        let state = match sink["trouble"].as_str() {
            Some(why) => format!("TROUBLE ({why})"),
            None => "ok".to_owned(),
        };
        lines.push(format!(
            "sink {}: {state}  {} records  refused {}",
            text(sink, "kind"),
            sink["records"],
            sink["refused"],
        ));
    }
    lines
}
