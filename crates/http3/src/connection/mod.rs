//! [`Connection`]: HTTP/3 on one transport (RFC 9114).
//!
//! 1. `input`: what the transport tells goes to the stream it is about.
//! 2. `receive`: a message of the peer's, from frames to events.
//! 3. `send`: a message of ours, from calls to frames.
//! 4. `lifecycle`: the first frames, GOAWAY, priorities, and the orderly end; `endings` the others.
//! 5. `sessions`, `session_capsules` and `session_streams` take WebTransport's CONNECT requests and
//!    streams out of the hands of the others; `session_limits` counts, `session_calls` is what
//!    applications ask.
//!
//! `parts` holds the struct. The files beside them own one thing each and know no `Connection`.

#[cfg(any(test, feature = "testing"))]
mod checks;
mod control;
mod endings;
mod incoming;
mod input;
mod lifecycle;
mod outgoing;
mod parts;
mod priority;
mod receive;
mod send;
mod session_calls;
mod session_capsules;
mod session_limits;
mod session_streams;
mod sessions;
mod varints;

pub use parts::Connection;
pub use priority::Priority;
pub(crate) use varints::Varints;

#[cfg(test)]
mod tests;
