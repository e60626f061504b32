//! [`Dialect`]: the versions of WebTransport over HTTP/3 that are in use, in one table.
//!
//! Each draft names itself by a setting of its own; the newest that both ends name is spoken
//! (draft-ietf-webtrans-http3-16 §7.1). What else differs between them stands in the table's rows.

use towline_wire::Side;
use towline_wire::http3::{ApplicationErrorRange, ErrorCode, SettingId, Settings};

#[cfg(test)]
mod tests;

/// A version of WebTransport over HTTP/3; the newer is the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dialect {
    /// draft-ietf-webtrans-http3-02: Chromium and Firefox.
    Draft02,
    /// draft-ietf-webtrans-http3-07.
    Draft07,
    /// draft-ietf-webtrans-http3-13 and -14: Safari.
    Draft14,
    /// draft-ietf-webtrans-http3-15 and -16.
    Draft16,
}

/// What a dialect is known by, and what it has.
struct Row {
    dialect: Dialect,
    name: &'static str,
    /// An end that says more than 0 here speaks the dialect.
    setting: SettingId,
    /// The setting's value is how many sessions may be open, not just a switch.
    counts_sessions: bool,
    /// `:protocol` of the CONNECT request.
    token: &'static str,
    /// What a request says beside it.
    request_field: Option<(&'static str, &'static str)>,
    /// What an answer says beside it.
    response_field: Option<(&'static str, &'static str)>,
    /// The setting implies ENABLE_CONNECT_PROTOCOL, and the older setting for datagrams will do.
    implies_connect: bool,
    errors: ApplicationErrorRange,
    flow_control: bool,
}

/// From the oldest to the newest, in the order of [`Dialect`].
const DIALECTS: [Row; 4] = [
    Row {
        dialect: Dialect::Draft02,
        name: "draft-02",
        setting: SettingId::ENABLE_WEBTRANSPORT_DRAFT02,
        counts_sessions: false,
        token: "webtransport",
        request_field: Some(("sec-webtransport-http3-draft02", "1")),
        response_field: Some(("sec-webtransport-http3-draft", "draft02")),
        implies_connect: true,
        errors: ApplicationErrorRange::EightBits,
        flow_control: false,
    },
    Row {
        dialect: Dialect::Draft07,
        name: "draft-07",
        setting: SettingId::WEBTRANSPORT_MAX_SESSIONS_DRAFT07,
        counts_sessions: true,
        token: "webtransport",
        request_field: None,
        response_field: None,
        implies_connect: false,
        errors: ApplicationErrorRange::ThirtyTwoBits,
        flow_control: false,
    },
    Row {
        dialect: Dialect::Draft14,
        name: "draft-14",
        setting: SettingId::WT_MAX_SESSIONS_DRAFT14,
        counts_sessions: true,
        token: "webtransport",
        request_field: None,
        response_field: None,
        implies_connect: false,
        errors: ApplicationErrorRange::ThirtyTwoBits,
        flow_control: true,
    },
    Row {
        dialect: Dialect::Draft16,
        name: "draft-16",
        setting: SettingId::WT_ENABLED,
        counts_sessions: false,
        token: "webtransport-h3",
        request_field: None,
        response_field: None,
        implies_connect: false,
        errors: ApplicationErrorRange::ThirtyTwoBits,
        flow_control: true,
    },
];

/// Without them there are no datagrams of sessions, in no dialect.
pub(crate) const NO_QUIC_DATAGRAMS: &str = "the peer's transport parameters permit no datagrams; \
    WebTransport needs max_datagram_frame_size above 0";
const NO_DIALECT: &str = "the peer's SETTINGS name no version of WebTransport that this end speaks; \
    switch WebTransport on at the peer, or offer the draft that it speaks";
const OTHER_TOKEN: &str = "the client's :protocol belongs to a version of WebTransport that its \
    SETTINGS do not name; one of the two has to change";
const NO_CONNECT: &str = "the server's SETTINGS lack ENABLE_CONNECT_PROTOCOL = 1, without which no \
    session can be asked for (RFC 9220)";
const NO_DATAGRAMS: &str =
    "the peer's SETTINGS lack H3_DATAGRAM = 1, which WebTransport needs (RFC 9297)";

impl Dialect {
    /// All of them, the oldest first.
    pub const ALL: [Self; 4] = [Self::Draft02, Self::Draft07, Self::Draft14, Self::Draft16];

    fn row(self) -> &'static Row {
        &DIALECTS[self as usize]
    }

    /// The draft's name, for people.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// `:protocol` of its CONNECT requests.
    pub fn token(self) -> &'static str {
        self.row().token
    }

    /// Whether its sessions can have limits of their own (draft-ietf-webtrans-http3-16 §5).
    pub fn has_flow_control(self) -> bool {
        self.row().flow_control
    }

    /// What RESET_STREAM and STOP_SENDING carry for an application's code
    /// (draft-ietf-webtrans-http3-16 §4.4).
    ///
    /// Draft-02 names codes up to 255 alone; a greater one is sent where newer drafts have it.
    pub fn to_http3(self, code: u32) -> ErrorCode {
        let wide = ApplicationErrorRange::ThirtyTwoBits;
        let own = self.row().errors.to_http3(code);
        own.or(wide.to_http3(code))
            .unwrap_or(ErrorCode::H3_INTERNAL_ERROR)
    }

    /// The application's code in RESET_STREAM or STOP_SENDING; `None` where there is none.
    ///
    /// Of a peer of draft-02 greater codes than it names are taken too.
    pub fn to_application(self, code: u64) -> Option<u32> {
        ApplicationErrorRange::ThirtyTwoBits.to_application(ErrorCode::from_u64(code))
    }

    pub(crate) fn request_field(self) -> Option<(&'static str, &'static str)> {
        self.row().request_field
    }

    pub(crate) fn response_field(self) -> Option<(&'static str, &'static str)> {
        self.row().response_field
    }

    /// How many sessions the peer takes at once, where its SETTINGS say so.
    pub(crate) fn max_sessions(self, theirs: &Settings) -> Option<u64> {
        let row = self.row();
        row.counts_sessions
            .then(|| theirs.get(row.setting).unwrap_or(0))
    }

    /// Whether the two ends have agreed on limits of sessions (draft-ietf-webtrans-http3-14 §5.1).
    pub(crate) fn limits_sessions(self, ours: &Settings, theirs: &Settings) -> bool {
        self.has_flow_control() && [ours, theirs].iter().all(|settings| self.asks(settings))
    }

    fn asks(self, settings: &Settings) -> bool {
        let limits = [
            SettingId::WT_INITIAL_MAX_DATA,
            SettingId::WT_INITIAL_MAX_STREAMS_BIDI,
            SettingId::WT_INITIAL_MAX_STREAMS_UNI,
        ];
        let some = |id: &SettingId| settings.get(*id).unwrap_or(0) > 0;
        limits.iter().any(some) || self.max_sessions(settings).is_some_and(|max| max > 1)
    }

    /// Names the dialect in our SETTINGS.
    pub(crate) fn offer(self, max_sessions: u64, side: Side, settings: &mut Settings) {
        let row = self.row();
        let sessions = max_sessions.max(1);
        settings.set(row.setting, if row.counts_sessions { sessions } else { 1 });
        if row.implies_connect {
            settings.set(SettingId::H3_DATAGRAM_DRAFT, 1);
            if side.is_server() {
                // Drafts 03 to 06 count sessions here.
                settings.set(SettingId::WEBTRANSPORT_MAX_SESSIONS_DRAFT02, sessions);
            }
        }
    }

    fn is_in(self, theirs: &Settings) -> bool {
        theirs.get(self.row().setting).unwrap_or(0) > 0
    }
}

/// Whether a `:protocol` is WebTransport's, of whichever version.
pub(crate) fn is_token(protocol: &[u8]) -> bool {
    DIALECTS.iter().any(|row| row.token.as_bytes() == protocol)
}

/// A set of [`Dialect`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dialects(u8);

impl Dialects {
    /// All of them.
    pub const ALL: Self = Self(0b1111);

    /// These.
    pub fn of(dialects: &[Dialect]) -> Self {
        Self(dialects.iter().fold(0, |set, dialect| set | bit(*dialect)))
    }

    /// Whether this one is among them.
    pub fn contains(self, dialect: Dialect) -> bool {
        self.0 & bit(dialect) != 0
    }
}

const fn bit(dialect: Dialect) -> u8 {
    1 << dialect as u8
}

/// The newest dialect that both ends speak, for a client that has the server's SETTINGS.
///
/// # Errors
/// What the server lacks, in words.
pub(crate) fn of_server(offered: Dialects, theirs: &Settings) -> Result<Dialect, &'static str> {
    let row = DIALECTS
        .iter()
        .rfind(|row| offered.contains(row.dialect) && row.dialect.is_in(theirs))
        .ok_or(NO_DIALECT)?;
    let connect = theirs.get(SettingId::ENABLE_CONNECT_PROTOCOL) == Some(1);
    if !connect && !row.implies_connect {
        return Err(NO_CONNECT);
    }
    with_datagrams(row, theirs)
}

/// The newest dialect that both ends speak and that this request is of, for a server.
///
/// # Errors
/// What the client lacks, in words.
pub(crate) fn of_client(
    offered: Dialects,
    theirs: &Settings,
    token: &[u8],
    headers: &http::HeaderMap,
) -> Result<Dialect, &'static str> {
    // A request can name its draft by a field instead (draft-ietf-webtrans-http3-02 §7).
    let named = |row: &Row| {
        let field = row.request_field;
        field.is_some_and(|(name, value)| headers.get(name).is_some_and(|it| it == value))
    };
    let spoken = |row: &&Row| {
        let known = row.dialect.is_in(theirs) || named(row);
        offered.contains(row.dialect) && row.token.as_bytes() == token && known
    };
    match DIALECTS.iter().rfind(spoken) {
        Some(row) => with_datagrams(row, theirs),
        None if Dialect::ALL.iter().any(|dialect| dialect.is_in(theirs)) => Err(OTHER_TOKEN),
        None => Err(NO_DIALECT),
    }
}

fn with_datagrams(row: &Row, theirs: &Settings) -> Result<Dialect, &'static str> {
    let old = row.implies_connect && theirs.get(SettingId::H3_DATAGRAM_DRAFT) == Some(1);
    match old || theirs.get(SettingId::H3_DATAGRAM) == Some(1) {
        true => Ok(row.dialect),
        false => Err(NO_DATAGRAMS),
    }
}
