//! SETTINGS (RFC 9114 §7.2.4): what an end says about itself, once, at the start.
//!
//! Owns the identifiers and the list. A setting we do not know means nothing and is not kept.

use core::fmt;

use super::error_code::{ErrorCode, is_grease};
use super::registered::registered;
use crate::cursor::{MAX_VARINT, Reader, UnexpectedEnd, emit_varint, varint_len};

/// The identifier of a setting (RFC 9114 §7.2.4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SettingId(u64);

impl SettingId {
    /// The greatest size of QPACK's dynamic table, in bytes (RFC 9204 §5).
    pub const QPACK_MAX_TABLE_CAPACITY: Self = Self(0x01);
    /// The largest field section that will be accepted, in bytes (RFC 9114 §7.2.4.1).
    pub const MAX_FIELD_SECTION_SIZE: Self = Self(0x06);
    /// How many streams may wait for the dynamic table (RFC 9204 §5).
    pub const QPACK_BLOCKED_STREAMS: Self = Self(0x07);
    /// 1 if a server understands extended CONNECT (RFC 9220 §3).
    pub const ENABLE_CONNECT_PROTOCOL: Self = Self(0x08);
    /// 1 if HTTP datagrams are understood (RFC 9297 §2.1.1).
    pub const H3_DATAGRAM: Self = Self(0x33);
    /// The same, as drafts before RFC 9297 had it; WebTransport of draft-02 needs it.
    pub const H3_DATAGRAM_DRAFT: Self = Self(0xff_d277);
    /// 1 if WebTransport is understood (draft-ietf-webtrans-http3-02 §3.1).
    pub const ENABLE_WEBTRANSPORT_DRAFT02: Self = Self(0x2b60_3742);
    /// How many sessions may be open at a time (draft-ietf-webtrans-http3-03 to -06).
    pub const WEBTRANSPORT_MAX_SESSIONS_DRAFT02: Self = Self(0x2b60_3743);
    /// How many sessions may be open at a time (draft-ietf-webtrans-http3-07).
    pub const WEBTRANSPORT_MAX_SESSIONS_DRAFT07: Self = Self(0xc671_706a);
    /// How many sessions may be open at a time (draft-ietf-webtrans-http3-14 §3.1).
    pub const WT_MAX_SESSIONS_DRAFT14: Self = Self(0x14e9_cd29);
    /// 1 if WebTransport is understood (draft-ietf-webtrans-http3-16 §9.2).
    pub const WT_ENABLED: Self = Self(0x2c7c_f000);
    /// Bytes that a session may send at first (draft-ietf-webtrans-http3-16 §5.5.3).
    pub const WT_INITIAL_MAX_DATA: Self = Self(0x2b61);
    /// Unidirectional streams that a session may open at first
    /// (draft-ietf-webtrans-http3-16 §5.5.1).
    pub const WT_INITIAL_MAX_STREAMS_UNI: Self = Self(0x2b64);
    /// Bidirectional streams that a session may open at first
    /// (draft-ietf-webtrans-http3-16 §5.5.2).
    pub const WT_INITIAL_MAX_STREAMS_BIDI: Self = Self(0x2b65);

    /// Every setting that is kept, in the order they are sent in.
    const KNOWN: [(Self, &'static str); 14] = [
        (Self::QPACK_MAX_TABLE_CAPACITY, "QPACK_MAX_TABLE_CAPACITY"),
        (Self::MAX_FIELD_SECTION_SIZE, "MAX_FIELD_SECTION_SIZE"),
        (Self::QPACK_BLOCKED_STREAMS, "QPACK_BLOCKED_STREAMS"),
        (Self::ENABLE_CONNECT_PROTOCOL, "ENABLE_CONNECT_PROTOCOL"),
        (Self::H3_DATAGRAM, "H3_DATAGRAM"),
        (Self::H3_DATAGRAM_DRAFT, "H3_DATAGRAM (draft)"),
        (
            Self::ENABLE_WEBTRANSPORT_DRAFT02,
            "ENABLE_WEBTRANSPORT (draft-02)",
        ),
        (
            Self::WEBTRANSPORT_MAX_SESSIONS_DRAFT02,
            "WEBTRANSPORT_MAX_SESSIONS (draft-02)",
        ),
        (
            Self::WEBTRANSPORT_MAX_SESSIONS_DRAFT07,
            "WEBTRANSPORT_MAX_SESSIONS (draft-07)",
        ),
        (Self::WT_MAX_SESSIONS_DRAFT14, "WT_MAX_SESSIONS (draft-14)"),
        (Self::WT_ENABLED, "WT_ENABLED"),
        (Self::WT_INITIAL_MAX_DATA, "WT_INITIAL_MAX_DATA"),
        (
            Self::WT_INITIAL_MAX_STREAMS_UNI,
            "WT_INITIAL_MAX_STREAMS_UNI",
        ),
        (
            Self::WT_INITIAL_MAX_STREAMS_BIDI,
            "WT_INITIAL_MAX_STREAMS_BIDI",
        ),
    ];

    /// Whether HTTP/2 used the identifier for what HTTP/3 has no setting for; receiving one is
    /// H3_SETTINGS_ERROR (RFC 9114 §7.2.4.1).
    #[inline]
    pub const fn is_http2(self) -> bool {
        matches!(self.0, 0x02..=0x05)
    }

    /// Whether the identifier is one that means nothing, `0x1f * N + 0x21` (RFC 9114 §7.2.4.1).
    #[inline]
    pub const fn is_reserved(self) -> bool {
        is_grease(self.0)
    }

    fn name(self) -> Option<&'static str> {
        self.index().map(|index| Self::KNOWN[index].1)
    }

    /// Whether only 0 and 1 are values of this setting.
    const fn is_switch(self) -> bool {
        matches!(
            self,
            Self::ENABLE_CONNECT_PROTOCOL
                | Self::H3_DATAGRAM
                | Self::H3_DATAGRAM_DRAFT
                | Self::ENABLE_WEBTRANSPORT_DRAFT02
                | Self::WT_ENABLED
        )
    }

    fn index(self) -> Option<usize> {
        Self::KNOWN.iter().position(|(id, _)| *id == self)
    }
}

registered!(SettingId, "setting");

/// The settings of one end: those we know, each present or not.
///
/// What an absent one means is its reader's to know (RFC 9114 §7.2.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    values: [Option<u64>; SettingId::KNOWN.len()],
}

impl Settings {
    /// Settings of which none is present.
    pub const fn new() -> Self {
        Self {
            values: [None; SettingId::KNOWN.len()],
        }
    }

    /// The value of a setting; `None` if it is absent or not one of the constants of
    /// [`SettingId`].
    #[inline]
    pub fn get(&self, id: SettingId) -> Option<u64> {
        self.values[id.index()?]
    }

    /// Sets a value; above 2^62 - 1 it is clamped. Of an identifier that is not one of the
    /// constants of [`SettingId`] nothing is kept.
    pub fn set(&mut self, id: SettingId, value: u64) {
        if let Some(index) = id.index() {
            self.values[index] = Some(value.min(MAX_VARINT));
        }
    }

    /// The settings that are present.
    pub fn iter(&self) -> impl Iterator<Item = (SettingId, u64)> + '_ {
        SettingId::KNOWN
            .iter()
            .zip(&self.values)
            .filter_map(|((id, _), value)| Some((*id, (*value)?)))
    }

    /// Reads the whole payload of a SETTINGS frame (RFC 9114 §7.2.4).
    ///
    /// Unknown settings are skipped; that one of those comes twice is not seen, as the RFC allows.
    pub fn parse(payload: &[u8]) -> Result<Self, SettingsError> {
        let mut settings = Self::new();
        let mut r = Reader::new(payload);
        while !r.is_empty() {
            let id = SettingId(r.varint()?);
            let value = r.varint()?;
            if id.is_http2() {
                return Err(SettingsError::Http2(id));
            }
            let Some(index) = id.index() else {
                continue;
            };
            if id.is_switch() && value > 1 {
                return Err(SettingsError::Value { id, value });
            }
            if settings.values[index].replace(value).is_some() {
                return Err(SettingsError::Duplicate(id));
            }
        }
        Ok(settings)
    }

    /// Appends the payload of a SETTINGS frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        for (id, value) in self.iter() {
            emit_varint(out, id.0);
            emit_varint(out, value);
        }
    }

    /// Bytes of that payload.
    pub fn encoded_len(&self) -> usize {
        self.iter()
            .map(|(id, value)| varint_len(id.0) + varint_len(value))
            .sum()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Why a SETTINGS frame can't be accepted. It ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// The payload ends within a setting.
    Truncated,
    /// The setting came twice.
    Duplicate(SettingId),
    /// The setting is one of HTTP/2 that HTTP/3 forbids.
    Http2(SettingId),
    /// The setting can't have this value.
    Value {
        /// The setting.
        id: SettingId,
        /// Its value.
        value: u64,
    },
}

impl SettingsError {
    /// What the connection is closed with (RFC 9114 §7.1, §7.2.4).
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Truncated => ErrorCode::H3_FRAME_ERROR,
            Self::Duplicate(_) | Self::Http2(_) | Self::Value { .. } => {
                ErrorCode::H3_SETTINGS_ERROR
            }
        }
    }
}

impl From<UnexpectedEnd> for SettingsError {
    fn from(_: UnexpectedEnd) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("SETTINGS ends within a setting"),
            Self::Duplicate(id) => write!(f, "SETTINGS has {id} twice"),
            Self::Http2(id) => write!(f, "SETTINGS has {id} of HTTP/2"),
            Self::Value { id, value } => write!(f, "SETTINGS has {id} = {value}"),
        }
    }
}

impl core::error::Error for SettingsError {}
