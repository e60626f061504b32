//! [`Counters`]: how often what happened, over the connections that share them.
//!
//! Requests, sessions and streams are counted, and no byte and no datagram that finds its reader: what is
//! counted here, a lock or a frame costs more than. Readers see each number as of some moment, not all of the
//! same.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Count {
    /// Requests that a client sent, those for sessions not among them.
    RequestsSent,
    /// Clients' requests that were given to the application, those for sessions not among them.
    RequestsReceived,
    /// Requests answered 404: nobody takes any here.
    RequestsUnwanted,
    /// Requests answered 431: their fields were too large.
    RequestsTooLarge,
    /// CONNECT requests answered 501: there is no proxy here.
    RequestsToProxy,
    /// Requests that came after our GOAWAY.
    RequestsTooLate,
    /// Messages of the peer's that were malformed or too large, and given up.
    MessagesRefused,
    /// Messages that the peer gave up.
    MessagesReset,
    /// Connections that were closed because the peer broke a rule.
    ConnectionsFailed,
    /// Sessions that were asked for: by us, or by a client of a version that is spoken.
    SessionsRequested,
    /// Sessions that were accepted.
    SessionsAccepted,
    /// Accepted sessions that are over.
    SessionsEnded,
    /// Sessions that the peer ended by breaking a rule.
    SessionsFailed,
    /// Sessions that our application refused.
    SessionsRefused,
    /// Sessions that the server refused to us.
    SessionsRefusedByPeer,
    /// Sessions answered 400: no common version, or something lacks.
    SessionsUnsupported,
    /// Sessions beyond the number that is permitted.
    SessionsTooMany,
    /// Streams of sessions that we opened.
    StreamsOpened,
    /// Streams of sessions that the peer opened.
    StreamsReceived,
    /// Streams given up because their session was gone, or because too many came before theirs.
    StreamsRefused,
    /// Datagrams of sessions that were dropped: nobody read them in time, or too many came before their session.
    DatagramsDropped,
}

impl Count {
    const COUNT: usize = Self::DatagramsDropped as usize + 1;
}

/// Counts, from zero on. They only grow.
#[derive(Default, Debug)]
pub struct Counters([AtomicU64; Count::COUNT]);

impl Counters {
    /// How often it happened.
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }

    /// It happened.
    pub fn add(&self, count: Count) {
        self.0[count as usize].fetch_add(1, Ordering::Relaxed);
    }
}
