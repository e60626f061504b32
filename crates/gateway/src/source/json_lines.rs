//! One JSON object a line.

use tokio::io::AsyncRead;
use towline_link::codec::{MAX_TEXT, Record};

use super::intake::Intake;
use crate::Status;
use crate::lines::{Line, Lines};

/// Reads to the end; a line that is no record is left out.
pub(super) async fn read(reader: impl AsyncRead + Unpin, intake: Intake) {
    intake.status(Status::Up);
    let mut lines = Lines::new(reader, MAX_TEXT);
    for number in 1u64.. {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => return intake.fail(error.into()).await,
        };
        match parse(&line) {
            Ok(Some(record)) => {
                if intake.record(record).await.is_err() {
                    return;
                }
            }
            Ok(None) => {}
            Err(why) => intake.malformed(&format!("line {number}: {why}"), false),
        }
    }
}

/// What a line says; an empty one says nothing.
pub(super) fn parse(line: &Line<'_>) -> Result<Option<Record>, String> {
    match line {
        Line::Text(text) if text.trim_ascii().is_empty() => Ok(None),
        Line::Text(text) => match Record::parse(text) {
            Ok(record) => Ok(Some(record)),
            Err(error) => Err(error.to_string()),
        },
        Line::TooLong(len) => Err(format!("it has {len} bytes; {MAX_TEXT} are taken")),
    }
}
