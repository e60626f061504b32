//! A whole HTTP/3 server with WebTransport, between a client of any bytes and an application that
//! does what it likes.
//!
//! The input is a head, which chooses what the server speaks and how little credit there is, and then
//! a script: streams, bytes, ends, resets and datagrams of the client, and calls of the application.
//! Some steps are whole frames, so that random inputs get far. After each step the server must be
//! within its caps, have told its application only what can be, and have done no more work than the
//! client paid for with bytes.
//!
//! `script` is what an input says, `messages` its whole frames, `server` who does it, `books` what
//! must hold; `exchange` records scripts of a client of ours, from which fuzzers start.

mod books;
mod exchange;
mod messages;
mod script;
mod server;

use script::Script;
use server::Run;

/// Runs `input`: a head, then steps.
///
/// # Panics
/// When the server breaks a promise.
pub fn http3_server(input: &[u8]) {
    run(input);
}

/// As [`http3_server`]; returns what happened, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    play(input).run_out()
}

/// Plays a script to its last step.
fn play(input: &[u8]) -> Run {
    let mut script = Script::new(input);
    let mut run = Run::new(script.head());
    while let Some(step) = script.next() {
        run.step(&step);
        if !step.more {
            run.settle();
        }
    }
    run
}

/// What a client of ours sends in each dialect, as scripts.
pub(super) fn seeds() -> Vec<(String, Vec<u8>)> {
    exchange::all()
}

#[cfg(test)]
mod tests;
