//! What a peer alone can make one connection hold, added up from the caps, and the list of
//! `docs/caps.md` that says so: computed here, compared with the page.

use bytes::Bytes;
use towline_recovery::Recovery;

use super::acks::Acks;
use super::aftermath::KEYS;
use super::assembler::{MAX_STREAM_GAPS, MIN_PIECE, PIECE_OVERHEAD};
use super::blocks::{MAX_BLOCK, MAX_SPARE_BLOCKS};
use super::component::SentFrame;
use super::datagrams::incoming::MAX_UNREAD_DATAGRAMS;
use super::early::MAX_EARLY_BYTES;
use super::events::Event;
use super::handshake::{MAX_CRYPTO_BUFFER, TLS_SESSION};
use super::parts::Connection;
use super::streams::STREAM_RECORDS;
use crate::config::TransportConfig;

const PAGE: &str = include_str!("../../../../docs/caps.md");

/// What a table, a queue or a run of pieces that grew by doubling may have reserved beside what is in it.
const SLACK: u64 = 2;

/// Events a stream can raise before the application reacts.
const EVENTS_EACH: u64 = 3;

/// The parts, and the most bytes of each under `config` when the application, which read so fast
/// that the window grew to its largest, reads no more.
fn parts(config: &TransportConfig) -> Vec<(&'static str, u64)> {
    let streams = config.max_concurrent_bidi_streams + config.max_concurrent_uni_streams;
    let window = config.max_receive_window;
    let pieces = streams * MAX_STREAM_GAPS as u64 + window / MIN_PIECE as u64;
    vec![
        (
            "the connection's record and its keys",
            (size_of::<Connection>() + KEYS + Recovery::<SentFrame>::HANDSHAKE_BYTES) as u64,
        ),
        (
            "TLS, CRYPTO data of three levels and packets before their keys",
            TLS_SESSION as u64
                + 3 * (SLACK * MAX_CRYPTO_BUFFER + (MAX_STREAM_GAPS * PIECE_OVERHEAD) as u64)
                + MAX_EARLY_BYTES as u64,
        ),
        ("numbers of received packets", Acks::MOST_HELD as u64),
        ("stream data that nobody reads any more", SLACK * window),
        ("a block begun for each stream", streams * MAX_BLOCK as u64),
        (
            "records of pieces out of order",
            pieces * PIECE_OVERHEAD as u64,
        ),
        (
            "blocks kept for reuse",
            (MAX_SPARE_BLOCKS * MAX_BLOCK) as u64,
        ),
        (
            "records of streams, and their events",
            SLACK * streams * (STREAM_RECORDS as u64 + EVENTS_EACH * size_of::<Event>() as u64),
        ),
        (
            "datagrams that nobody reads",
            config.datagram_receive_buffer as u64
                + SLACK * (MAX_UNREAD_DATAGRAMS * size_of::<Bytes>()) as u64,
        ),
        (
            "packets that only acknowledged",
            Recovery::<SentFrame>::MOST_UNANSWERED as u64,
        ),
    ]
}

#[test]
fn the_page_says_what_a_peer_alone_can_make_a_connection_hold() {
    let mut rows = parts(&TransportConfig::default());
    let sum = rows.iter().map(|(_, bytes)| bytes).sum();
    rows.push(("together", sum));
    let list: String = rows
        .iter()
        .map(|(what, bytes)| format!("- {what}: {} KiB\n", bytes.div_ceil(1024)))
        .collect();
    assert!(
        PAGE.contains(&list),
        "docs/caps.md should say under \"What one peer can take\":\n{list}"
    );
}
