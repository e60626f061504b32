//! The signals that a run passes on to its program.

use std::fs;
use std::future::poll_fn;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{Exit, Failure};
use crate::interrupt::is_ignored;

/// What is passed on.
const PASSED: [(Signal, SignalKind); 6] = [
    (Signal::INT, SignalKind::interrupt()),
    (Signal::QUIT, SignalKind::quit()),
    (Signal::TERM, SignalKind::terminate()),
    (Signal::HUP, SignalKind::hangup()),
    (Signal::USR1, SignalKind::user_defined1()),
    (Signal::USR2, SignalKind::user_defined2()),
];

/// Those of them that come to this process from now on.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// What whoever started this process has ignored (`nohup`, a script's background) stays so, for
    /// the program too.
    pub(super) fn install() -> Result<Self, Failure> {
        let wanted = PASSED.into_iter().filter(|(_, kind)| !is_ignored(*kind));
        let caught = wanted.map(|(signal, kind)| Ok((signal, unix::signal(kind)?)));
        caught
            .collect::<std::io::Result<_>>()
            .map(Self)
            .map_err(|error| Failure::new(Exit::Other, format!("signals: {error}")))
    }

    /// The next of them.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let came = self.0.iter_mut().find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next that asks for an end.
    pub(super) async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !is_programs_own(signal) {
                return signal;
            }
        }
    }
}

/// Whether its meaning is the program's alone.
pub(super) fn is_programs_own(signal: Signal) -> bool {
    [Signal::USR1, Signal::USR2].contains(&signal)
}

/// Whether keys are pressed for it: the terminal tells all of its foreground of them.
pub(super) fn is_of_keys(signal: Signal) -> bool {
    [Signal::INT, Signal::QUIT].contains(&signal)
}

/// Whether this process, and the program with it, is in the foreground of a terminal.
pub(super) fn is_in_foreground() -> bool {
    fs::read_to_string("/proc/self/stat").is_ok_and(|stat| is_foreground(&stat).unwrap_or(false))
}

/// After the name in brackets: state, parent, process group, session, terminal, its foreground.
fn is_foreground(stat: &str) -> Option<bool> {
    let words: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(words.get(2)? == words.get(5)?)
}

#[cfg(test)]
mod tests {
    use super::is_foreground;

    #[test]
    fn the_foreground_is_the_terminals_group() {
        let stat = |group, foreground| format!("7 (a) b) S 1 {group} 5 34816 {foreground} 4194304");
        assert_eq!(is_foreground(&stat(7, 7)), Some(true));
        assert_eq!(is_foreground(&stat(7, 5)), Some(false));
        assert_eq!(is_foreground(&stat(7, -1)), Some(false));
        assert_eq!(is_foreground(""), None);
    }
}
