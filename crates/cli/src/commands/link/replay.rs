//! `towline link replay`: recorded deltas at the pace of their timestamps, for a pipe.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use clap::Args;

use super::lines::Records;
use super::pace::Pace;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Arguments of `towline link replay`.
#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// Deltas, one JSON object a line
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// `recorded` goes by the timestamps, `recorded*10` ten times as fast, a number is so many a second
    #[arg(long, value_name = "PACE", default_value = "recorded")]
    pace: Pace,
}

impl ReplayArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let file = self.file.display().to_string();
        let opened =
            File::open(&self.file).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
        let playing = tokio::task::spawn_blocking(move || {
            let mut pace = self.pace.start();
            let mut out = io::stdout().lock();
            for (number, record) in Records::new(BufReader::new(opened)) {
                match record {
                    Ok(record) => {
                        pace.wait(&record);
                        let mut line = Vec::new();
                        record.write_json(&mut line);
                        line.push(b'\n');
                        // The reader had enough.
                        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
                            break;
                        }
                    }
                    Err(why) => {
                        printer.note(format_args!("towline: {file}, line {number}: {why}"));
                    }
                }
            }
        });
        playing
            .await
            .map_err(|error| Failure::new(Exit::Other, error.to_string()))?;
        Ok(Exit::Ok)
    }
}
