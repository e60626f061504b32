//! [`Stats`]: what an endpoint's connections counted of HTTP/3.

use towline_http3::{Count, Counters};

use super::server::ALPN;
use crate::handles::Endpoint;

/// Counts of HTTP/3 over all connections of an endpoint, those that are gone included. Requests for sessions of
/// WebTransport [count there](Endpoint::webtransport_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that this end sent.
    pub requests_sent: u64,
    /// Clients' requests that arrived and could be answered.
    pub requests_received: u64,
    /// Of those, the ones answered 404 because the application takes sessions alone.
    pub requests_unwanted: u64,
    /// Requests answered 431: their fields were too large.
    pub requests_too_large: u64,
    /// CONNECT requests answered 501: there is no proxy here.
    pub requests_to_proxy: u64,
    /// Requests rejected because they came after our GOAWAY.
    pub requests_too_late: u64,
    /// Messages of the peer's that were malformed or too large, and given up.
    pub messages_refused: u64,
    /// Messages that the peer gave up.
    pub messages_reset: u64,
    /// Connections that were closed because the peer broke a rule.
    pub connections_failed: u64,
}

towline_quic::visit_fields! { Stats:
    Counter requests_sent: Count, "Requests sent, those for sessions not among them";
    Counter requests_received: Count, "Requests that arrived and could be answered, those for sessions not among them";
    Counter requests_unwanted: Count, "Requests answered 404: the application takes sessions alone";
    Counter requests_too_large: Count, "Requests answered 431: their fields were too large";
    Counter requests_to_proxy: Count, "CONNECT requests answered 501: there is no proxy";
    Counter requests_too_late: Count, "Requests rejected: they came after the GOAWAY";
    Counter messages_refused: Count, "Messages of peers that were malformed or too large, and given up";
    Counter messages_reset: Count, "Messages that peers gave up";
    Counter connections_failed: Count, "Connections closed because the peer broke a rule of HTTP/3";
}

impl Stats {
    fn of(counters: &Counters) -> Self {
        Self {
            requests_sent: counters.get(Count::RequestsSent),
            requests_received: counters.get(Count::RequestsReceived),
            requests_unwanted: counters.get(Count::RequestsUnwanted),
            requests_too_large: counters.get(Count::RequestsTooLarge),
            requests_to_proxy: counters.get(Count::RequestsToProxy),
            requests_too_late: counters.get(Count::RequestsTooLate),
            messages_refused: counters.get(Count::MessagesRefused),
            messages_reset: counters.get(Count::MessagesReset),
            connections_failed: counters.get(Count::ConnectionsFailed),
        }
    }
}

impl Endpoint {
    /// What its connections counted of HTTP/3; `None` where it was made without
    /// [HTTP/3](crate::EndpointBuilder::http3). Each number is as of some moment, not all of the same.
    pub fn http3_stats(&self) -> Option<Stats> {
        let counters = self.shared_of::<Counters>(ALPN.as_bytes())?;
        Some(Stats::of(&counters))
    }
}
