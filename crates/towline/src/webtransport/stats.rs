//! [`Stats`]: what an endpoint's connections counted of WebTransport.

use towline_http3::{Count, Counters};

use crate::handles::Endpoint;
use crate::http3::ALPN;

/// Counts of WebTransport over all connections of an endpoint, those that are gone included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Sessions that are open. One whose connection was lost counts until its last handle is dropped.
    pub sessions_open: u64,
    /// Sessions that were asked for: by this end, or by clients of a version that is spoken.
    pub sessions_requested: u64,
    /// Sessions that were accepted, at either end.
    pub sessions_accepted: u64,
    /// Accepted sessions that are over.
    pub sessions_ended: u64,
    /// Sessions that ended because the peer broke a rule.
    pub sessions_failed: u64,
    /// Sessions that the application refused, or for which the router had no path.
    pub sessions_refused: u64,
    /// Sessions that servers refused to this end.
    pub sessions_refused_by_peer: u64,
    /// Clients answered 400: no version in common, or something lacks.
    pub sessions_unsupported: u64,
    /// Sessions rejected because the client had as many as are permitted.
    pub sessions_too_many: u64,
    /// Streams of sessions that this end opened.
    pub streams_opened: u64,
    /// Streams of sessions that peers opened.
    pub streams_received: u64,
    /// Streams given up because their session was over, or because too many came before it.
    pub streams_refused: u64,
    /// Datagrams that nobody read in time, or that came before their session when too many waited.
    pub datagrams_dropped: u64,
}

towline_quic::visit_fields! { Stats:
    Gauge sessions_open: Count, "Sessions that are open";
    Counter sessions_requested: Count, "Sessions that were asked for, in a version that is spoken";
    Counter sessions_accepted: Count, "Sessions that were accepted";
    Counter sessions_ended: Count, "Accepted sessions that are over";
    Counter sessions_failed: Count, "Sessions that ended because the peer broke a rule";
    Counter sessions_refused: Count, "Sessions that the application refused";
    Counter sessions_refused_by_peer: Count, "Sessions that servers refused to this end";
    Counter sessions_unsupported: Count, "Sessions answered 400: no version in common, or something lacks";
    Counter sessions_too_many: Count, "Sessions rejected: the client had as many as are permitted";
    Counter streams_opened: Count, "Streams of sessions that this end opened";
    Counter streams_received: Count, "Streams of sessions that peers opened";
    Counter streams_refused: Count, "Streams given up: their session was over, or too many came before it";
    Counter datagrams_dropped: Count, "Datagrams of sessions that nobody read in time, or that came too early";
}

impl Stats {
    fn of(counters: &Counters) -> Self {
        // In this order: a session that ends meanwhile does not make the difference negative.
        let ended = counters.get(Count::SessionsEnded);
        let accepted = counters.get(Count::SessionsAccepted);
        Self {
            sessions_open: accepted.saturating_sub(ended),
            sessions_requested: counters.get(Count::SessionsRequested),
            sessions_accepted: accepted,
            sessions_ended: ended,
            sessions_failed: counters.get(Count::SessionsFailed),
            sessions_refused: counters.get(Count::SessionsRefused),
            sessions_refused_by_peer: counters.get(Count::SessionsRefusedByPeer),
            sessions_unsupported: counters.get(Count::SessionsUnsupported),
            sessions_too_many: counters.get(Count::SessionsTooMany),
            streams_opened: counters.get(Count::StreamsOpened),
            streams_received: counters.get(Count::StreamsReceived),
            streams_refused: counters.get(Count::StreamsRefused),
            datagrams_dropped: counters.get(Count::DatagramsDropped),
        }
    }
}

impl Endpoint {
    /// What its connections counted of WebTransport; `None` where it was made without
    /// [HTTP/3](crate::EndpointBuilder::http3), zeros where that goes without
    /// [WebTransport](crate::EndpointBuilder::webtransport). Each number is as of some moment, not all of the
    /// same.
    pub fn webtransport_stats(&self) -> Option<Stats> {
        let counters = self.shared_of::<Counters>(ALPN.as_bytes())?;
        Some(Stats::of(&counters))
    }
}
