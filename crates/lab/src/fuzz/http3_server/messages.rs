//! What a client may say in whole frames: SETTINGS, field sections, types.

use towline_http3::pair::GET;
use towline_http3::{SettingId, Settings};
use towline_wire::http3::{CapsuleType, FrameType};

/// A client's SETTINGS.
pub(super) fn settings(bits: u64) -> Settings {
    let has = |bit: u32| bits >> bit & 1 == 1;
    let mut settings = Settings::new();
    let mut set = |wanted, id, value| {
        if wanted {
            settings.set(id, value);
        }
    };
    set(has(0), SettingId::ENABLE_WEBTRANSPORT_DRAFT02, 1);
    set(has(1), SettingId::WEBTRANSPORT_MAX_SESSIONS_DRAFT07, 4);
    set(has(2), SettingId::WT_MAX_SESSIONS_DRAFT14, 4);
    set(has(3), SettingId::WT_ENABLED, 1);
    set(!has(4), SettingId::H3_DATAGRAM, 1);
    let limit = if has(5) { 3 } else { 1000 };
    set(!has(6), SettingId::WT_INITIAL_MAX_DATA, limit * 10);
    set(!has(6), SettingId::WT_INITIAL_MAX_STREAMS_BIDI, limit);
    set(!has(6), SettingId::WT_INITIAL_MAX_STREAMS_UNI, limit);
    set(has(7), SettingId::QPACK_MAX_TABLE_CAPACITY, 200);
    set(has(7), SettingId::QPACK_BLOCKED_STREAMS, 2);
    set(has(8), SettingId::MAX_FIELD_SECTION_SIZE, 60);
    set(has(9), SettingId::H3_DATAGRAM_DRAFT, 1);
    settings
}

const CONNECT: [(&str, &str); 4] = [
    (":method", "CONNECT"),
    (":scheme", "https"),
    (":authority", "example.org"),
    (":path", "/echo"),
];

/// Field sections of requests and their trailers.
pub(super) const HEADS: [&[(&str, &str)]; 8] = [
    &GET,
    &[
        (":method", "POST"),
        GET[1],
        GET[2],
        GET[3],
        ("content-length", "3"),
        ("priority", "u=1, i"),
    ],
    &[
        CONNECT[0],
        (":protocol", "webtransport"),
        CONNECT[1],
        CONNECT[2],
        CONNECT[3],
    ],
    &[
        CONNECT[0],
        (":protocol", "webtransport-h3"),
        CONNECT[1],
        CONNECT[2],
        CONNECT[3],
        ("wt-available-protocols", "\"v1\", \"v2\""),
        ("origin", "https://example.org"),
    ],
    &[
        CONNECT[0],
        (":protocol", "webtransport"),
        CONNECT[1],
        CONNECT[2],
        CONNECT[3],
        ("sec-webtransport-http3-draft02", "1"),
    ],
    &[(":method", "HEAD"), GET[1], GET[2], GET[3]],
    &[(":method", "CONNECT"), (":authority", "example.org:443")],
    &[("x", "y")],
];

pub(super) const FRAMES: [FrameType; 9] = [
    FrameType::DATA,
    FrameType::HEADERS,
    FrameType::SETTINGS,
    FrameType::GOAWAY,
    FrameType::MAX_PUSH_ID,
    FrameType::CANCEL_PUSH,
    FrameType::PUSH_PROMISE,
    FrameType::PRIORITY_UPDATE_REQUEST,
    FrameType::from_u64(0x21),
];

pub(super) const CAPSULES: [CapsuleType; 11] = [
    CapsuleType::DATAGRAM,
    CapsuleType::WT_CLOSE_SESSION,
    CapsuleType::WT_DRAIN_SESSION,
    CapsuleType::WT_MAX_DATA,
    CapsuleType::WT_DATA_BLOCKED,
    CapsuleType::WT_MAX_STREAMS_BIDI,
    CapsuleType::WT_MAX_STREAMS_UNI,
    CapsuleType::WT_STREAMS_BLOCKED_BIDI,
    CapsuleType::WT_STREAMS_BLOCKED_UNI,
    CapsuleType::from_u64(0x190b_4d3e),
    CapsuleType::from_u64(0x17),
];
