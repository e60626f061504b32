//! [`Config`]: what an end permits the WebTransport sessions of its connections.

use towline_wire::Side;
use towline_wire::http3::{SettingId, Settings};

use super::dialect::{Dialect, Dialects};

/// What this end speaks, and what a session of its peer may use.
#[derive(Clone, Debug)]
pub struct Config {
    /// The versions to offer.
    pub dialects: Dialects,
    /// Sessions that may be open at once on one connection.
    pub max_sessions: u64,
    /// Bytes that a peer may send in one session before the application has read them, where the
    /// dialect has flow control. Read bytes make room for new ones.
    pub initial_max_data: u64,
    /// Bidirectional streams of the peer that may be open at once in one session, where the dialect
    /// has flow control.
    pub initial_max_streams_bidi: u64,
    /// As `initial_max_streams_bidi`, of unidirectional streams.
    pub initial_max_streams_uni: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dialects: Dialects::ALL,
            max_sessions: 100,
            initial_max_data: 1 << 20,
            initial_max_streams_bidi: 100,
            initial_max_streams_uni: 100,
        }
    }
}

/// Says in our SETTINGS what we speak, and what a session may use.
pub(crate) fn offer(config: &Config, side: Side, settings: &mut Settings) {
    let spoken = Dialect::ALL
        .into_iter()
        .filter(|dialect| config.dialects.contains(*dialect));
    for dialect in spoken {
        dialect.offer(config.max_sessions, side, settings);
        if dialect.has_flow_control() {
            settings.set(SettingId::WT_INITIAL_MAX_DATA, config.initial_max_data);
            let bidi = config.initial_max_streams_bidi;
            settings.set(SettingId::WT_INITIAL_MAX_STREAMS_BIDI, bidi);
            let uni = config.initial_max_streams_uni;
            settings.set(SettingId::WT_INITIAL_MAX_STREAMS_UNI, uni);
        }
    }
}
