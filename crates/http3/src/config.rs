//! [`Config`]: what an end of an HTTP/3 connection permits, and says in its SETTINGS.

use towline_wire::http3::Settings;

use crate::webtransport;

/// What this end permits its peer. The defaults suit a server and a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest field section this end takes, in bytes: names, values and 32 for each field
    /// (RFC 9114 §4.2.2). A server answers a larger request with 431.
    pub max_field_section_size: u64,
    /// Bytes of the dynamic table that the peer may use for its field sections (RFC 9204 §3.2.3).
    pub qpack_max_table_capacity: u64,
    /// How many streams may wait for entries of that table (RFC 9204 §2.1.2).
    pub qpack_blocked_streams: u64,
    /// A server's: takes CONNECT with a `:protocol` (RFC 9220).
    pub extended_connect: bool,
    /// Takes HTTP datagrams (RFC 9297).
    pub datagrams: bool,
    /// Speaks WebTransport. Both ends then take HTTP datagrams, a server takes CONNECT with a
    /// `:protocol`, and the settings of each version are sent, whatever else is said here.
    pub webtransport: Option<webtransport::Config>,
    /// Further settings. What a field above says replaces what is here.
    pub settings: Settings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_field_section_size: 64 * 1024,
            qpack_max_table_capacity: 4096,
            qpack_blocked_streams: 16,
            extended_connect: false,
            datagrams: false,
            webtransport: None,
            settings: Settings::new(),
        }
    }
}
