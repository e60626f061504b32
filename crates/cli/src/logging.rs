//! Log output on stderr, for people: from flags, or as `RUST_LOG` says.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging: warnings by default, more with each `-v`, nothing with `--quiet`. Commands that
/// run for days say when.
pub(crate) fn start(verbose: u8, quiet: bool, with_times: bool) {
    let level = match (quiet, verbose) {
        (true, _) => "off",
        (_, 0) => "warn",
        (_, 1) => "info",
        (_, 2) => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(has_colours());
    match with_times {
        true => log.init(),
        false => log.without_time().init(),
    }
}

/// A log file or a journal is no place for colours, nor is a terminal whose user said so
/// (no-color.org).
fn has_colours() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !is_unwanted
}
