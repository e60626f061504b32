//! Ctrl-C: the first one asks the command to end well, the second ends the process at once.
//!
//! SIGTERM counts as a Ctrl-C, and so does the SIGHUP of a terminal that closes, but as a first one
//! only: a shell that ends passes on what its terminal has sent already. A command that never
//! looks here is still ended by the second. Servers that read their files again at SIGHUP end by it only
//! when their terminal is gone.

use std::{fs, io};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::printer::Printer;

/// Whether the user wants the command to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Starts listening for signals. Without the system's help, signals keep their default.
    pub(crate) fn install(printer: Printer) -> Self {
        Self::install_where(printer, || true)
    }

    /// As `install`, where a SIGHUP asks for an end only if there was a terminal and it has closed.
    pub(crate) fn of_a_server(printer: Printer) -> Self {
        let has_terminal = || fs::File::open("/dev/tty").is_ok();
        let had_terminal = has_terminal();
        Self::install_where(printer, move || had_terminal && !has_terminal())
    }

    fn install_where(printer: Printer, hangup_ends: impl Fn() -> bool + Send + 'static) -> Self {
        let (sender, receiver) = watch::channel(false);
        let signals = signal(SignalKind::interrupt())
            .and_then(|int| Ok((int, signal(SignalKind::terminate())?, Hangup::new()?)));
        tokio::spawn(async move {
            let Ok((mut int, mut term, mut hangup)) = signals else {
                tracing::warn!("signals cannot be caught; Ctrl-C ends the command at once");
                // Keep the channel open: a closed one would read as an interrupt.
                return std::future::pending().await;
            };
            loop {
                let counts = tokio::select! {
                    _ = int.recv() => true,
                    _ = term.recv() => true,
                    () = hangup.recv() => match hangup_ends() {
                        true => false,
                        false => continue,
                    },
                };
                if !sender.send_replace(true) {
                    printer.note("towline: stopping; once more stops at once");
                } else if counts {
                    printer.note("towline: stopped at once");
                    std::process::exit(Exit::Interrupted.code().into());
                }
            }
        });
        Self(receiver)
    }

    /// Waits for the first Ctrl-C.
    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|interrupted| *interrupted).await.is_err() {
            std::future::pending().await
        }
    }

    /// Whether there was one.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// For code that watches the flag itself.
    pub(crate) fn flag(&self) -> watch::Receiver<bool> {
        self.0.clone()
    }
}

/// SIGHUP, unless whoever started the process has it ignored, as `nohup` does.
pub(crate) struct Hangup(Option<Signal>);

impl Hangup {
    fn new() -> io::Result<Self> {
        match is_ignored(SignalKind::hangup()) {
            true => Ok(Self(None)),
            false => signal(SignalKind::hangup()).map(|signal| Self(Some(signal))),
        }
    }

    /// For those who do without where the system does not help.
    pub(crate) fn heard() -> Self {
        Self::new().unwrap_or(Self(None))
    }

    /// Waits for one.
    pub(crate) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

/// Whether this process ignores a signal. Where the system does not tell, it keeps its default.
pub(crate) fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Number 1 is the lowest bit.
    ignored.is_none_or(|mask| mask >> (kind.as_raw_value() - 1) & 1 != 0)
}
