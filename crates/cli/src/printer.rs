//! Results on stdout: lines for people, or one JSON object a line with `--json`.
//!
//! Every JSON object has a `schema` field, such as `towline.send/1`. A closed stdout is not
//! an error: the reader had enough.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::exit::Failure;

/// Where and how results are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    json: bool,
    quiet: bool,
    progress: bool,
}

impl Printer {
    /// Progress bars are shown only on a terminal.
    pub(crate) fn new(json: bool, quiet: bool, progress: bool) -> Self {
        Self {
            json,
            quiet,
            progress: progress && !quiet && io::stderr().is_terminal(),
        }
    }

    /// Whether to draw progress bars on stderr.
    pub(crate) const fn shows_progress(self) -> bool {
        self.progress
    }

    /// Whether results are records.
    pub(crate) const fn prints_records(self) -> bool {
        self.json
    }

    /// A line for people; not printed with `--json` or `--quiet`.
    pub(crate) fn line(self, line: impl Display) {
        if !self.json && !self.quiet {
            write_line(&mut io::stdout().lock(), line);
        }
    }

    /// A result for programs; printed only with `--json`.
    pub(crate) fn record(self, record: &impl Serialize) {
        if self.json
            && let Ok(text) = serde_json::to_string(record)
        {
            write_line(&mut io::stdout().lock(), text);
        }
    }

    /// A remark on stderr, where it does not disturb results.
    pub(crate) fn note(self, note: impl Display) {
        if !self.quiet {
            write_line(&mut io::stderr().lock(), note);
        }
    }

    /// The end of a failed command.
    pub(crate) fn failure(self, failure: &Failure) -> ExitCode {
        write_line(&mut io::stderr().lock(), format_args!("towline: {failure}"));
        self.record(&json!({
            "schema": "towline.error/1",
            "exit_code": failure.exit.code(),
            "message": failure.message,
            "next": failure.next,
        }));
        failure.exit.into()
    }
}

fn write_line(to: &mut impl Write, line: impl Display) {
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}
