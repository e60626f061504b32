//! The numbers of an endpoint that a user sees.

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections at present, closing ones included.
    pub connections: usize,
    /// Server handshakes in progress.
    pub handshakes: usize,
    /// Clients that wait for the application's decision, where it wants to decide.
    pub incoming: usize,
    /// Of such clients, those that were forgotten: nobody decided in time, or memory was short.
    pub incoming_dropped: u64,
    /// Connections a server admitted.
    pub admitted: u64,
    /// Initial packets refused: for a limit, for an invalid token, or by the application.
    pub refused: u64,
    /// Of these, the ones with an invalid Retry token of ours.
    pub invalid_tokens: u64,
    /// Of those refused, the ones that were told so with a CONNECTION_CLOSE.
    pub refusals: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Version Negotiation packets sent.
    pub version_negotiations: u64,
    /// Stateless resets sent.
    pub resets: u64,
    /// Datagrams that belonged to nothing.
    pub unroutable: u64,
    /// Bytes that the connections hold, by the account that `EndpointConfig::memory_limit` bounds.
    pub memory: u64,
    /// The most they ever held.
    pub memory_most: u64,
    /// Connections ended because the limit was reached.
    pub shed: u64,
    /// Work for datagrams of no connection that was not done, and replies that were not sent, because
    /// their prefix had its share.
    pub over_budget: u64,
    /// Work done for datagrams of no connection, before a handshake, in units of about a microsecond.
    pub stateless_work: u64,
}

crate::visit_fields! { EndpointStats:
    Gauge connections: Count, "Connections at present, closing ones included";
    Gauge handshakes: Count, "Server handshakes in progress";
    Gauge incoming: Count, "Clients that wait for the application's decision";
    Counter incoming_dropped: Count, "Clients forgotten before the application decided";
    Counter admitted: Count, "Connections a server admitted";
    Counter refused: Count, "Initial packets refused for a limit or an invalid token";
    Counter invalid_tokens: Count, "Initial packets refused for an invalid Retry token";
    Counter refusals: Count, "Refusals that were told with a CONNECTION_CLOSE";
    Counter retries: Count, "Retry packets sent";
    Counter version_negotiations: Count, "Version Negotiation packets sent";
    Counter resets: Count, "Stateless resets sent";
    Counter unroutable: Count, "Datagrams that belonged to nothing";
    Gauge memory: Bytes, "Memory that the connections hold";
    Gauge memory_most: Bytes, "The most memory they ever held";
    Counter shed: Count, "Connections ended because the memory limit was reached";
    Counter over_budget: Count, "Work for datagrams of no connection not done because their prefix had its share";
    Counter stateless_work: Count, "Work done for datagrams of no connection, about a microsecond each";
}
