//! SETTINGS (RFC 9114 §7.2.4): what this end says, and what a peer said.

use towline_wire::Side;
use towline_wire::http3::{ErrorCode, SettingId, Settings, SettingsError};

use crate::config::Config;
use crate::error::Error;

#[cfg(test)]
mod tests;

/// Cap: bytes of a peer's SETTINGS frame.
pub(crate) const MAX_SETTINGS_LEN: u64 = 4096;

/// The payload of a SETTINGS frame. `quic_datagrams` says whether the peer takes datagrams at all.
pub(crate) fn parse(payload: &[u8], quic_datagrams: bool) -> Result<Settings, Error> {
    let settings = Settings::parse(payload).map_err(|error| {
        let reason = match error {
            SettingsError::Truncated => "SETTINGS end inside a setting",
            SettingsError::Duplicate(_) => "a setting came twice",
            SettingsError::Http2(_) => "a setting of HTTP/2",
            SettingsError::Value { .. } => "a setting that is 0 or 1 is neither",
        };
        Error::new(error.code(), reason)
    })?;
    if datagrams(&settings) && !quic_datagrams {
        let reason = "HTTP datagrams without QUIC datagrams";
        return Err(Error::new(ErrorCode::H3_SETTINGS_ERROR, reason));
    }
    Ok(settings)
}

/// The payload of our own SETTINGS frame.
pub(crate) fn emit(config: &Config, side: Side) -> Vec<u8> {
    let mut settings = config.settings;
    settings.set(
        SettingId::MAX_FIELD_SECTION_SIZE,
        config.max_field_section_size,
    );
    settings.set(
        SettingId::QPACK_MAX_TABLE_CAPACITY,
        config.qpack_max_table_capacity,
    );
    settings.set(
        SettingId::QPACK_BLOCKED_STREAMS,
        config.qpack_blocked_streams,
    );
    if config.extended_connect && side.is_server() {
        settings.set(SettingId::ENABLE_CONNECT_PROTOCOL, 1);
    }
    if config.datagrams {
        settings.set(SettingId::H3_DATAGRAM, 1);
    }
    let mut payload = Vec::with_capacity(settings.encoded_len());
    settings.emit(&mut payload);
    payload
}

/// The largest field section the peer takes; `None` for no limit (RFC 9114 §4.2.2).
pub(crate) fn max_field_section_size(settings: &Settings) -> Option<u64> {
    settings.get(SettingId::MAX_FIELD_SECTION_SIZE)
}

/// Bytes of the dynamic table that the peer lets us use (RFC 9204 §5).
pub(crate) fn qpack_max_table_capacity(settings: &Settings) -> u64 {
    settings
        .get(SettingId::QPACK_MAX_TABLE_CAPACITY)
        .unwrap_or(0)
}

/// How many streams of ours may wait at the peer (RFC 9204 §5).
pub(crate) fn qpack_blocked_streams(settings: &Settings) -> u64 {
    settings.get(SettingId::QPACK_BLOCKED_STREAMS).unwrap_or(0)
}

/// Whether the peer takes CONNECT with a `:protocol` (RFC 9220 §3).
pub(crate) fn extended_connect(settings: &Settings) -> bool {
    // Draft-02 of WebTransport means it too (draft-ietf-webtrans-http3-02 §3.1).
    let either = [
        SettingId::ENABLE_CONNECT_PROTOCOL,
        SettingId::ENABLE_WEBTRANSPORT_DRAFT02,
    ];
    either.iter().any(|id| settings.get(*id) == Some(1))
}

/// Whether the peer takes HTTP datagrams (RFC 9297 §2.1.1).
pub(crate) fn datagrams(settings: &Settings) -> bool {
    settings.get(SettingId::H3_DATAGRAM) == Some(1)
}
