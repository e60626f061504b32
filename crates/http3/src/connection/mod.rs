//! [`Connection`]: HTTP/3 on one transport (RFC 9114).
//!
//! 1. `input`: what the transport tells goes to the stream it is about.
//! 2. `receive`: a message of the peer's, from frames to events.
//! 3. `send`: a message of ours, from calls to frames.
//! 4. `lifecycle`: the first frames, GOAWAY, priorities, and the end.
//!
//! `parts` holds the struct. The files beside them own one thing each and know no `Connection`.

mod control;
mod incoming;
mod input;
mod lifecycle;
mod outgoing;
mod parts;
mod priority;
mod receive;
mod send;
mod varints;

pub use parts::Connection;
pub use priority::Priority;

#[cfg(test)]
mod tests;
