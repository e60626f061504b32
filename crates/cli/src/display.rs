//! The progress bar of a transfer, on stderr, drawn from its counters ten times a second.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;
use towline_transfer::Progress;

use crate::printer::Printer;

const REDRAW: Duration = Duration::from_millis(100);
const TEMPLATE: &str =
    "{bar:24} {percent:>3}%  {bytes}/{total_bytes}  {binary_bytes_per_sec}  eta {eta}  {msg}";

/// A running display; dropping it clears the bar.
pub(crate) struct Display {
    bar: ProgressBar,
    task: JoinHandle<()>,
}

impl Display {
    /// Starts drawing, if the printer allows it.
    pub(crate) fn start(printer: Printer, progress: Arc<Progress>) -> Option<Self> {
        if !printer.shows_progress() {
            return None;
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        let drawn = bar.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REDRAW).await;
                draw(&drawn, &progress);
            }
        });
        Some(Self { bar, task })
    }
}

fn draw(bar: &ProgressBar, progress: &Progress) {
    let now = progress.snapshot();
    bar.set_length(now.bytes_total);
    bar.set_position(now.bytes_settled);
    let more = if now.list_complete { "" } else { "+" };
    let (settled, total) = (now.files_settled, now.files_total);
    let current = now.current.map(|path| path.to_string()).unwrap_or_default();
    bar.set_message(format!(
        "{settled}/{total}{more} files  {}",
        shortened(&current)
    ));
}

/// The end of a long path says more than its start.
fn shortened(path: &str) -> String {
    const MOST: usize = 40;
    let length = path.chars().count();
    if length <= MOST {
        return path.to_owned();
    }
    let tail: String = path.chars().skip(length - MOST + 1).collect();
    format!("…{tail}")
}

impl Drop for Display {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}
