//! Ctrl-C: the first one asks the command to end well, the second ends the process at once.
//!
//! SIGTERM counts as a Ctrl-C. A command that never looks here is still ended by the second.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::printer::Printer;

/// Whether the user wants the command to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Starts listening for signals. Without the system's help, signals keep their default.
    pub(crate) fn install(printer: Printer) -> Self {
        let (sender, receiver) = watch::channel(false);
        let signals = signal(SignalKind::interrupt())
            .and_then(|int| Ok((int, signal(SignalKind::terminate())?)));
        tokio::spawn(async move {
            let Ok((mut int, mut term)) = signals else {
                tracing::warn!("signals cannot be caught; Ctrl-C ends the command at once");
                // Keep the channel open: a closed one would read as an interrupt.
                return std::future::pending().await;
            };
            for count in 0.. {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                }
                if count > 0 {
                    printer.note("towline: stopped at once");
                    std::process::exit(Exit::Interrupted.code().into());
                }
                sender.send_replace(true);
                printer.note("towline: stopping; once more stops at once");
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
