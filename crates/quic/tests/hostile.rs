//! A peer that breaks every rule it can: the exact error code for each, and bounded memory.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use common::evil::{Evil, long_packet, payload};
use common::wire::{for_each_frame, packets, without_padding};
use common::{CLIENT, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::{
    Close, ConnectionError, Direction, Event, ReadError, Side, StreamId, TimeoutReason,
    TransportConfig, TransportErrorCode,
};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::*;

const BIDI: Direction = Direction::Bidirectional;
const UNI: Direction = Direction::Unidirectional;

/// Datagrams on the wire with their senders.
type Log = Rc<RefCell<Vec<(usize, Vec<u8>)>>>;

fn id(initiator: Side, direction: Direction, index: u64) -> StreamId {
    StreamId::new(initiator, direction, index)
}

fn side(host: usize) -> Side {
    if host == CLIENT {
        Side::Client
    } else {
        Side::Server
    }
}

/// Sends `bytes` as the payload of one 1-RTT packet; the victim must close with `code`.
fn refuses(victim: usize, what: &str, bytes: &[u8], code: TransportErrorCode, frame: Option<u64>) {
    let mut evil = Evil::against(victim);
    evil.send_bytes(bytes);
    match evil.pair.close_reason(victim) {
        Some(ConnectionError::PeerMisbehaved {
            code: c, frame: f, ..
        }) => assert_eq!((c, f.map(FrameType::as_u64)), (code, frame), "{what}"),
        other => panic!("{what}: {other:?}"),
    }
    evil.pair.run_for(ms(50));
    assert_eq!(evil.closes(), [(code.as_u64(), true)], "{what}");
}

#[test]
fn malformed_frames_are_frame_encoding_errors() {
    let code = TransportErrorCode::FRAME_ENCODING_ERROR;
    let cases: &[(&str, &[u8], Option<u64>)] = &[
        ("unknown type", &[0x21], Some(0x21)),
        ("unknown two-byte type", &[0x7f, 0xff], Some(0x3fff)),
        ("ACK that ends early", &[0x02, 5], Some(0x02)),
        (
            "first ACK range below zero",
            &[0x02, 5, 0, 0, 6],
            Some(0x02),
        ),
        ("ACK gap below zero", &[0x02, 5, 0, 1, 0, 5, 0], Some(0x02)),
        (
            "STREAM length beyond the packet",
            &[0x0a, 0, 9, 1, 2],
            Some(0x0a),
        ),
        (
            "STREAM end beyond 2^62",
            &[
                0x0e, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7,
            ],
            Some(0x0e),
        ),
        (
            "CRYPTO end beyond 2^62",
            &[0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7],
            Some(0x06),
        ),
        (
            "MAX_STREAMS above 2^60",
            &[0x12, 0xd0, 0, 0, 0, 0, 0, 0, 1],
            Some(0x12),
        ),
        (
            "STREAMS_BLOCKED above 2^60",
            &[0x17, 0xd0, 0, 0, 0, 0, 0, 0, 1],
            Some(0x17),
        ),
        (
            "NEW_CONNECTION_ID of no bytes",
            &[
                0x18, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
            ],
            Some(0x18),
        ),
        (
            "NEW_CONNECTION_ID of 21 bytes",
            &[
                0x18, 1, 0, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
                2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
            ],
            Some(0x18),
        ),
        (
            "retire_prior_to above the sequence",
            &[
                0x18, 1, 2, 1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
            ],
            Some(0x18),
        ),
        (
            "PATH_CHALLENGE of 7 bytes",
            &[0x1a, 1, 2, 3, 4, 5, 6, 7],
            Some(0x1a),
        ),
        (
            "close reason beyond the packet",
            &[0x1d, 0, 99, 1],
            Some(0x1d),
        ),
        (
            "DATAGRAM length beyond the packet",
            &[0x31, 9, 1],
            Some(0x31),
        ),
    ];
    for (what, bytes, frame) in cases {
        for victim in [CLIENT, SERVER] {
            refuses(victim, what, bytes, code, *frame);
        }
    }
    refuses(
        CLIENT,
        "NEW_TOKEN without a token",
        &[0x07, 0],
        code,
        Some(0x07),
    );
}

#[test]
fn a_packet_without_frames_is_a_protocol_violation() {
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    for victim in [CLIENT, SERVER] {
        refuses(victim, "empty", &[], code, None);
    }
}

#[test]
fn a_frame_type_longer_than_needed_is_a_protocol_violation() {
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    for bytes in [
        &[0x40, 0x01][..],
        &[0x80, 0, 0, 0x01],
        &[0xc0, 0, 0, 0, 0, 0, 0, 0x01],
    ] {
        refuses(SERVER, "PING at length", bytes, code, Some(0x01));
    }
}

#[test]
fn reserved_header_bits_are_a_protocol_violation() {
    for bits in [0x08, 0x10, 0x18] {
        for victim in [CLIENT, SERVER] {
            let mut evil = Evil::against(victim);
            evil.first_byte = bits;
            evil.send(write_ping);
            evil.assert_closed(TransportErrorCode::PROTOCOL_VIOLATION, None);
        }
    }
}

#[test]
fn a_packet_without_the_fixed_bit_is_dropped() {
    let mut evil = Evil::against(SERVER);
    let mut packet = evil.packet(&[0xff]);
    packet[0] &= !0x40;
    evil.pair.deliver(SERVER, &packet);
    evil.assert_open();
}

#[test]
fn frames_only_servers_send_are_protocol_violations_from_a_client() {
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    refuses(SERVER, "HANDSHAKE_DONE", &[0x1e], code, Some(0x1e));
    refuses(SERVER, "NEW_TOKEN", &[0x07, 1, 9], code, Some(0x07));
}

#[test]
fn frames_for_the_wrong_half_or_a_stream_not_yet_opened_are_stream_state_errors() {
    let code = TransportErrorCode::STREAM_STATE_ERROR;
    for victim in [CLIENT, SERVER] {
        let ours = side(victim);
        let theirs = ours.peer();
        let stream = |id| payload(|w| write_stream_header(w, id, 0, None, false));
        let reset = |id| payload(|w| write_reset_stream(w, id, 0, 0));
        let stop = |id| payload(|w| write_stop_sending(w, id, 0));
        let max = |id| payload(|w| write_max_stream_data(w, id, 1));
        let blocked = |id| payload(|w| write_stream_data_blocked(w, id, 1));
        let cases = [
            (
                "STREAM on a send-only stream",
                stream(id(ours, UNI, 0)),
                0x08,
            ),
            (
                "STREAM on a stream not created",
                stream(id(ours, BIDI, 0)),
                0x08,
            ),
            (
                "RESET_STREAM on a send-only stream",
                reset(id(ours, UNI, 0)),
                0x04,
            ),
            (
                "RESET_STREAM on a stream not created",
                reset(id(ours, BIDI, 0)),
                0x04,
            ),
            (
                "STREAM_DATA_BLOCKED on a send-only stream",
                blocked(id(ours, UNI, 0)),
                0x15,
            ),
            (
                "STOP_SENDING on a receive-only stream",
                stop(id(theirs, UNI, 0)),
                0x05,
            ),
            (
                "STOP_SENDING on a stream not created",
                stop(id(ours, BIDI, 0)),
                0x05,
            ),
            (
                "MAX_STREAM_DATA on a receive-only stream",
                max(id(theirs, UNI, 0)),
                0x11,
            ),
            (
                "MAX_STREAM_DATA on a stream not created",
                max(id(ours, BIDI, 0)),
                0x11,
            ),
            (
                "MAX_STREAM_DATA on a uni stream not created",
                max(id(ours, UNI, 0)),
                0x11,
            ),
        ];
        for (what, bytes, frame) in cases {
            refuses(victim, what, &bytes, code, Some(frame));
        }
    }
}

#[test]
fn streams_beyond_the_limit_are_a_stream_limit_error() {
    let code = TransportErrorCode::STREAM_LIMIT_ERROR;
    for victim in [CLIENT, SERVER] {
        for dir in [BIDI, UNI] {
            let peer = side(victim).peer();
            // A hundred are permitted.
            let mut evil = Evil::against(victim);
            evil.send(|w| write_stream_header(w, id(peer, dir, 99), 0, None, false));
            evil.assert_open();
            evil.send(|w| write_stream_header(w, id(peer, dir, 100), 0, None, false));
            evil.assert_closed(code, Some(FrameType::STREAM));
            let stream = id(peer, dir, (1 << 60) - 1);
            let reset = payload(|w| write_reset_stream(w, stream, 0, 0));
            refuses(victim, "reset of a far stream", &reset, code, Some(0x04));
            let blocked = payload(|w| write_stream_data_blocked(w, stream, 0));
            refuses(victim, "a far blocked stream", &blocked, code, Some(0x15));
        }
    }
}

#[test]
fn a_changing_final_size_is_a_final_size_error() {
    let s = id(Side::Client, UNI, 0);
    let data = |offset: u64, len: usize, fin: bool| {
        payload(|w| {
            write_stream_header(w, s, offset, Some(len), fin);
            w.zeros(len);
        })
    };
    let reset = |size: u64| payload(|w| write_reset_stream(w, s, 0, size));
    let cases = [
        (
            "data beyond the end",
            data(0, 10, true),
            data(10, 1, false),
            0x08,
        ),
        (
            "another end above",
            data(0, 10, true),
            data(0, 11, true),
            0x08,
        ),
        (
            "another end below",
            data(0, 10, true),
            data(0, 9, true),
            0x08,
        ),
        (
            "an end below the data",
            data(0, 10, false),
            data(0, 9, true),
            0x08,
        ),
        ("a reset above the end", data(0, 10, true), reset(11), 0x04),
        ("a reset below the data", data(0, 10, false), reset(9), 0x04),
        ("another reset", reset(10), reset(11), 0x04),
        ("data beyond a reset", reset(10), data(10, 1, false), 0x08),
    ];
    for (what, first, second, frame) in cases {
        let mut evil = Evil::against(SERVER);
        evil.send_bytes(&first);
        evil.assert_open();
        evil.send_bytes(&second);
        let word = evil.pair.close_reason(SERVER);
        match word {
            Some(ConnectionError::PeerMisbehaved { code, frame: f, .. }) => {
                assert_eq!(code, TransportErrorCode::FINAL_SIZE_ERROR, "{what}");
                assert_eq!(f.map(FrameType::as_u64), Some(frame), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn overlapping_data_keeps_the_first_copy() {
    let s = id(Side::Client, UNI, 0);
    let mut evil = Evil::against(SERVER);
    let mut send = |offset: u64, byte: u8, len: usize| {
        evil.send(|w| {
            write_stream_header(w, s, offset, Some(len), false);
            w.bytes(&vec![byte; len]);
        });
    };
    send(2, b'b', 2);
    send(0, b'a', 6);
    send(0, b'c', 8);
    let mut got = Vec::new();
    assert_eq!(evil.pair.server().accept(UNI), Some(s));
    assert!(!evil.pair.read_available(SERVER, s, &mut got));
    assert_eq!(got, b"aabbaacc");
}

/// A client's first datagram, its IDs, and a server that has seen nothing yet.
fn hello() -> (Pair, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut pair = Pair::new(readable());
    let first: Rc<RefCell<Vec<u8>>> = Rc::default();
    let copy = first.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT && copy.borrow().is_empty() {
            *copy.borrow_mut() = datagram.clone();
        }
        false
    }));
    pair.connect();
    let datagram = first.borrow().clone();
    let Ok(Header::Long { dcid, scid, .. }) = parse_header(&datagram, 8) else {
        panic!("the first packet is no Initial");
    };
    let (dcid, scid) = (dcid.to_vec(), scid.to_vec());
    (pair, datagram, dcid, scid)
}

#[test]
fn frames_in_the_wrong_packet_are_protocol_violations() {
    // RFC 9000 §12.4, table 3. CONNECTION_CLOSE of the application (0x1d) among them.
    let s = id(Side::Client, BIDI, 0);
    let cid = NewConnectionIdFrame {
        sequence: 1,
        retire_prior_to: 0,
        cid: ConnectionId::new(&[1; 8]).unwrap(),
        reset_token: StatelessResetToken::new([1; 16]),
    };
    let frames = [
        payload(|w| write_reset_stream(w, s, 0, 0)),
        payload(|w| write_stop_sending(w, s, 0)),
        payload(|w| write_new_token(w, b"t")),
        payload(|w| write_stream_header(w, s, 0, Some(0), false)),
        payload(|w| write_max_data(w, 1)),
        payload(|w| write_max_stream_data(w, s, 1)),
        payload(|w| write_max_streams(w, BIDI, 1)),
        payload(|w| write_max_streams(w, UNI, 1)),
        payload(|w| write_data_blocked(w, 1)),
        payload(|w| write_stream_data_blocked(w, s, 1)),
        payload(|w| write_streams_blocked(w, BIDI, 1)),
        payload(|w| write_new_connection_id(w, &cid)),
        payload(|w| write_retire_connection_id(w, 0)),
        payload(|w| write_path_challenge(w, [1; 8])),
        payload(|w| write_path_response(w, [1; 8])),
        payload(|w| write_connection_close(w, &CloseFrame::application(0, b""))),
        payload(write_handshake_done),
        payload(|w| write_datagram_header(w, Some(0))),
    ];
    for kind in [LongType::Initial, LongType::Handshake] {
        for frame in &frames {
            let (mut pair, first, dcid, scid) = hello();
            pair.deliver(SERVER, &first);
            let mut bytes = frame.clone();
            bytes.resize(bytes.len().max(8), 0);
            let mut packet = long_packet(kind, &dcid, &scid, b"", 7, &bytes);
            // RFC 9000 §14.1: in a smaller datagram an Initial would not be looked at.
            packet.resize(1200, 0);
            pair.deliver(SERVER, &packet);
            match pair.close_reason(SERVER) {
                Some(ConnectionError::PeerMisbehaved { code, frame: f, .. }) => {
                    assert_eq!(code, TransportErrorCode::PROTOCOL_VIOLATION, "{frame:?}");
                    assert!(f.is_some());
                }
                other => panic!("{kind:?} {frame:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn reserved_bits_of_a_long_header_are_a_protocol_violation() {
    for bits in [0x04, 0x08, 0x0c] {
        let (mut pair, mut first, _, _) = hello();
        first[0] |= bits;
        pair.deliver(SERVER, &first);
        assert!(
            matches!(
                pair.close_reason(SERVER),
                Some(ConnectionError::PeerMisbehaved { code, .. })
                    if code == TransportErrorCode::PROTOCOL_VIOLATION
            ),
            "{bits:#x}"
        );
    }
}

#[test]
fn handshake_packets_after_the_keys_are_gone_are_dropped() {
    let mut pair = Pair::new(readable());
    let early: Log = Rc::default();
    let copy = early.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        copy.borrow_mut().push((from, datagram.clone()));
        true
    }));
    pair.connect();
    pair.established(secs(1));
    pair.run_for(secs(1));
    pair.tap = None;
    for (from, datagram) in early.borrow().iter() {
        pair.deliver(1 - from, datagram);
        // The same with a violation inside.
        if let Some(p) = packets(datagram).first()
            && p.kind != PacketKind::OneRtt
        {
            let mut bad = datagram.clone();
            bad[p.payload_at] = 0x1e;
            pair.deliver(1 - from, &bad);
        }
    }
    for side in [CLIENT, SERVER] {
        assert_eq!(pair.close_reason(side), None);
    }
    pair.transfer(CLIENT, 10_000, secs(2));
}

#[test]
fn duplicates_and_replays_are_dropped_before_their_frames() {
    let mut evil = Evil::against(SERVER);
    let s = id(Side::Client, UNI, 0);
    let first = evil.packet(&payload(|w| {
        write_stream_header(w, s, 0, Some(1), false);
        w.bytes(b"a");
    }));
    evil.pair.deliver(SERVER, &first);
    let before = evil.pair.server().stats().packets_received;
    for _ in 0..50 {
        evil.pair.deliver(SERVER, &first);
    }
    // The same number with a violation: never looked at.
    evil.number -= 1;
    let forged = evil.packet(&[0x1e]);
    evil.pair.deliver(SERVER, &forged);
    evil.assert_open();
    assert_eq!(evil.pair.server().stats().packets_received, before);
}

#[test]
fn packet_numbers_with_gaps_keep_64_ranges_and_older_ones_count_as_seen() {
    let mut evil = Evil::against(SERVER);
    for _ in 0..300 {
        evil.send(write_ping);
        evil.number += 1;
    }
    evil.pair.run_for(ms(100));
    let mut most = 0;
    evil.each_frame(|frame| {
        if let Frame::Ack(ack) = frame {
            most = most.max(ack.ranges().count());
        }
    });
    assert_eq!(most, 64);
    // A number in a forgotten gap is as good as received.
    evil.number = common::evil::FIRST_NUMBER + 1;
    evil.send_bytes(&[0x1e]);
    evil.assert_open();
    // A number in a remembered gap is not.
    evil.number = common::evil::FIRST_NUMBER + 599;
    evil.send_bytes(&[0x1e]);
    evil.assert_closed(
        TransportErrorCode::PROTOCOL_VIOLATION,
        Some(FrameType::HANDSHAKE_DONE),
    );
}

#[test]
fn an_acknowledgement_of_packets_never_sent_is_a_protocol_violation() {
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    for victim in [CLIENT, SERVER] {
        for largest in [200, 1 << 20, MAX_VARINT] {
            let ack = payload(|w| {
                write_ack(w, 0, [largest..=largest], None);
            });
            refuses(victim, "ACK", &ack, code, Some(0x02));
        }
    }
}

/// The full packet number of the newest packet the victim sent.
fn newest_number(evil: &Evil, mut largest: Option<u64>, from: usize) -> (Option<u64>, usize) {
    let captured = &evil.pair.hosts[1 - evil.victim].captured;
    for datagram in &captured[from..] {
        for p in packets(datagram) {
            let number = decode_packet_number(p.number, p.pn_len, largest);
            largest = largest.max(Some(number));
        }
    }
    (largest, captured.len())
}

#[test]
fn an_optimistic_acknowledger_is_caught_by_skipped_numbers() {
    let mut evil = Evil::against(SERVER);
    let s = evil.pair.server().open(UNI).unwrap();
    let mut data = bytes::Bytes::from(pattern(8 << 20));
    evil.send(|w| write_max_data(w, 1 << 40));
    evil.send(|w| write_max_stream_data(w, s, 1 << 40));
    let (mut largest, mut seen) = (None, 0);
    let mut rounds = 0;
    while !evil.pair.server().is_closed() {
        let _ = evil.pair.server().write(s, &mut data);
        evil.pair.run_for(ms(12));
        (largest, seen) = newest_number(&evil, largest, seen);
        // Acknowledges everything up to the newest, received or not.
        let top = largest.unwrap();
        evil.send(|w| {
            write_ack(w, 0, [0..=top], None);
        });
        rounds += 1;
        assert!(rounds < 200, "not caught up to packet {top}");
    }
    evil.assert_closed(TransportErrorCode::PROTOCOL_VIOLATION, Some(FrameType::ACK));
}

/// Acknowledges what arrives over a path that loses one packet in 50, and with `lies` all else as
/// well once it must have been declared lost. Returns the numbers used by the victim in 10 s, and
/// when it closed.
fn receive_with_losses(seed: u64, lies: bool) -> (u64, Option<Duration>) {
    let link = LinkConfig {
        rate: Some(100_000_000),
        loss: LossModel::Bernoulli(0.02),
        ..delay(40)
    };
    let options = Options {
        seed,
        // Nothing is lost before the evil peer takes over.
        link: delay(40),
        ..readable()
    };
    let mut evil = Evil::with(SERVER, options);
    let toward_evil = evil.pair.links.1;
    evil.pair.net.set_config(toward_evil, link).unwrap();
    let s = evil.pair.server().open(UNI).unwrap();
    evil.send(|w| write_max_data(w, 1 << 40));
    evil.send(|w| write_max_stream_data(w, s, 1 << 40));
    let mut data = bytes::Bytes::from(pattern(8 << 20));
    let (mut largest, mut seen) = (None, 0);
    let mut received = std::collections::BTreeSet::new();
    let start = evil.pair.now;
    let mut top = 0;
    while evil.pair.now < start + secs(10) {
        if evil.pair.server().is_closed() {
            return (top, Some(evil.pair.now.saturating_duration_since(start)));
        }
        if data.len() < 4 << 20 {
            data = bytes::Bytes::from(pattern(8 << 20));
        }
        while evil.pair.server().write(s, &mut data).is_ok_and(|n| n > 0) {}
        evil.pair.run_for(ms(4));
        let captured = &evil.pair.hosts[1 - SERVER].captured;
        for p in captured[seen..].iter().flat_map(|d| packets(d)) {
            let number = decode_packet_number(p.number, p.pn_len, largest);
            largest = largest.max(Some(number));
            received.insert(number);
        }
        seen = captured.len();
        let Some(newest) = largest.filter(|newest| *newest > top) else {
            continue;
        };
        top = newest;
        let mut ranges: Vec<std::ops::RangeInclusive<u64>> = Vec::new();
        for number in received.iter().rev().take(2000) {
            match ranges.last_mut() {
                Some(last) if *last.start() == number + 1 => *last = *number..=*last.end(),
                _ => ranges.push(*number..=*number),
            }
        }
        evil.send(|w| {
            write_ack(w, 0, ranges, None);
        });
        if lies {
            // Three later ones were just acknowledged: whatever is missing below is lost by now.
            let claimed = newest.saturating_sub(4);
            evil.send(|w| {
                write_ack(w, 0, [0..=claimed], None);
            });
        }
    }
    (top, None)
}

#[test]
fn a_receiver_that_hides_its_losses_is_caught_by_skipped_numbers() {
    for seed in 0..20 {
        let (honest, closed) = receive_with_losses(seed, false);
        assert_eq!(closed, None);
        let (lying, closed) = receive_with_losses(seed, true);
        assert!(closed.is_some_and(|after| after < secs(1)), "{closed:?}");
        assert!(lying < 700 && lying < honest, "{lying}, {honest} honest");
    }
}

#[test]
fn an_acknowledgement_delay_of_any_size_counts_as_max_ack_delay() {
    let after = |delay: u64| {
        let mut evil = Evil::against(SERVER);
        evil.pair.server().ping();
        // Before the probe timeout, and later than the round trip by more than the delay.
        evil.pair.run_for(ms(46));
        let (largest, _) = newest_number(&evil, None, 0);
        let top = largest.unwrap();
        evil.send(|w| {
            write_ack(w, delay, [top..=top], None);
        });
        evil.assert_open();
        evil.pair.server().stats().smoothed_rtt
    };
    // 25 ms in units of 8 microseconds is the most that counts (RFC 9002 §5.3).
    let most = after(3125);
    assert!(most < after(0));
    for delay in [3126, 1 << 44, 1 << 59, 1 << 61, MAX_VARINT] {
        assert_eq!(after(delay), most, "{delay}");
    }
}

#[test]
fn a_peer_that_acknowledges_nothing_is_given_up_with_bounded_state() {
    let mut evil = Evil::against(SERVER);
    let s = evil.pair.server().open(UNI).unwrap();
    evil.send(|w| write_max_data(w, 1 << 40));
    evil.send(|w| write_max_stream_data(w, s, 1 << 40));
    let mut data = bytes::Bytes::from(pattern(4 << 20));
    let mut written = 0;
    for _ in 0..300 {
        if let Ok(n) = evil.pair.server().write(s, &mut data) {
            written += n;
        }
        evil.send(write_ping);
        evil.pair.run_for(ms(100));
    }
    evil.assert_open();
    // One send buffer, one initial window, and the probes of a minute.
    assert!(written <= (512 << 10) + 12_000, "{written}");
    assert!(evil.pair.server().stats().bytes_in_flight <= 50_000);
    // The first probe after the last PING may restart the idle timeout once (RFC 9000 §10.1).
    let word = evil.pair.run_until_closed(SERVER, secs(90));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Idle));
}

#[test]
fn handshake_data_beyond_64_kib_is_crypto_buffer_exceeded() {
    for victim in [CLIENT, SERVER] {
        let base = if victim == CLIENT { ticket_end() } else { 0 };
        let send = |evil: &mut Evil, offset: u64| {
            evil.send(|w| {
                write_crypto_header(w, offset, 1);
                w.bytes(b"x");
            });
        };
        let mut evil = Evil::against(victim);
        send(&mut evil, base + 65_535);
        evil.assert_open();
        send(&mut evil, base + 65_536);
        evil.assert_closed(
            TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
            Some(FrameType::CRYPTO),
        );
    }
}

#[test]
fn handshake_data_full_of_holes_is_crypto_buffer_exceeded() {
    let mut evil = Evil::against(SERVER);
    for i in 0..=512u64 {
        evil.assert_open();
        evil.send(|w| {
            write_crypto_header(w, 2 * i + 1, 1);
            w.bytes(b"x");
        });
    }
    evil.assert_closed(
        TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
        Some(FrameType::CRYPTO),
    );
}

#[test]
fn a_hello_in_tiny_pieces_is_put_together() {
    let (mut pair, first, dcid, scid) = hello();
    let mut pieces = Vec::new();
    for_each_frame(&first, |_, frame| {
        if let Frame::Crypto { offset, data } = frame {
            for (i, chunk) in data.chunks(7).enumerate() {
                pieces.push((offset + 7 * i as u64, chunk.to_vec()));
            }
        }
    });
    // Last piece first.
    for (number, (offset, data)) in pieces.iter().rev().enumerate() {
        let bytes = payload(|w| {
            write_crypto_header(w, *offset, data.len());
            w.bytes(data);
            write_padding(w, 1160);
        });
        let packet = long_packet(LongType::Initial, &dcid, &scid, b"", number as u64, &bytes);
        pair.deliver(SERVER, &packet);
    }
    pair.tap = None;
    assert_eq!(pair.close_reason(SERVER), None);
    pair.established(secs(5));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
}

/// Where the server's tickets end in its 1-RTT CRYPTO stream.
fn ticket_end() -> u64 {
    let end = Rc::new(Cell::new(0));
    let seen = end.clone();
    let mut pair = Pair::new(readable());
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            for_each_frame(datagram, |kind, frame| {
                if let (PacketKind::OneRtt, Frame::Crypto { offset, data }) = (kind, frame) {
                    seen.set(seen.get().max(offset + data.len() as u64));
                }
            });
        }
        true
    }));
    pair.connect();
    pair.established(secs(1));
    pair.run_for(secs(1));
    end.get()
}

/// A NewSessionTicket (RFC 8446 §4.6.1) of 1,000 bytes.
fn session_ticket() -> Vec<u8> {
    let mut body = vec![0, 0, 14, 16, 1, 2, 3, 4, 1, 0];
    body.extend_from_slice(&980u16.to_be_bytes());
    body.extend_from_slice(&[9; 980]);
    body.extend_from_slice(&[0, 0]);
    let mut message = vec![4, 0, (body.len() >> 8) as u8, body.len() as u8];
    message.extend_from_slice(&body);
    message
}

#[test]
fn endless_session_tickets_are_crypto_buffer_exceeded() {
    let mut offset = ticket_end();
    let mut evil = Evil::against(CLIENT);
    let ticket = session_ticket();
    let mut accepted = 0;
    while !evil.pair.client().is_closed() {
        evil.send(|w| {
            write_crypto_header(w, offset, ticket.len());
            w.bytes(&ticket);
        });
        offset += ticket.len() as u64;
        accepted += ticket.len();
        assert!(accepted < 1 << 20);
    }
    assert!(accepted > 250_000, "{accepted}");
    evil.assert_closed(TransportErrorCode::CRYPTO_BUFFER_EXCEEDED, None);
}

#[test]
fn a_ticket_a_minute_for_a_week_is_no_flood() {
    let mut offset = ticket_end();
    let mut options = readable();
    options.client.max_idle_timeout = Duration::ZERO;
    options.server.max_idle_timeout = Duration::ZERO;
    let mut evil = Evil::with(CLIENT, options);
    let ticket = session_ticket();
    for minute in 0..7 * 24 * 60 {
        evil.send(|w| {
            write_crypto_header(w, offset, ticket.len());
            w.bytes(&ticket);
        });
        offset += ticket.len() as u64;
        evil.pair.run_for(secs(60));
        let word = evil.pair.close_reason(CLIENT);
        assert_eq!(word, None, "after {minute} minutes, {offset} bytes");
        evil.pair.hosts[SERVER].captured.clear();
    }
}

#[test]
fn a_stream_of_holes_keeps_512_pieces_and_heals_when_they_are_filled() {
    let mut evil = Evil::against(SERVER);
    let s = id(Side::Client, UNI, 0);
    let send = |evil: &mut Evil, offset: u64, data: &[u8]| {
        evil.send(|w| {
            write_stream_header(w, s, offset, Some(data.len()), false);
            w.bytes(data);
        });
    };
    let last_acked = |evil: &mut Evil| {
        evil.pair.run_for(ms(50));
        let mut largest = 0;
        evil.each_frame(|frame| {
            if let Frame::Ack(ack) = frame {
                largest = largest.max(ack.largest);
            }
        });
        largest
    };
    for i in 0..512u64 {
        send(&mut evil, 2 * i + 1, b"x");
    }
    assert_eq!(last_acked(&mut evil), evil.number - 1);
    // The next piece is refused: its packet is never acknowledged.
    let refused = evil.number;
    send(&mut evil, 5_001, b"z");
    assert_eq!(last_acked(&mut evil), refused - 1);
    evil.assert_open();
    // The holes are filled, the sender repeats, and all is well.
    send(&mut evil, 0, &[b'y'; 1024]);
    send(&mut evil, 1024, &vec![b'w'; 1000][..]);
    evil.number = refused;
    send(&mut evil, 5_001, b"z");
    evil.number = refused + 3;
    assert_eq!(evil.pair.server().accept(UNI), Some(s));
    let mut got = Vec::new();
    assert!(!evil.pair.read_available(SERVER, s, &mut got));
    assert_eq!(got.len(), 2024);
    evil.assert_open();
}

/// Fills `s` with as many pieces as a stream may have.
fn fill_with_holes(evil: &mut Evil, s: StreamId) {
    for i in 0..512u64 {
        evil.send(|w| {
            write_stream_header(w, s, 2 * i + 1, Some(1), false);
            w.bytes(b"x");
        });
    }
}

#[test]
fn a_refused_packet_that_comes_again_is_not_taken_again() {
    for victim in [CLIENT, SERVER] {
        let mut evil = Evil::against(victim);
        let s = id(side(1 - victim), UNI, 0);
        fill_with_holes(&mut evil, s);
        let number = evil.number;
        let refused = evil.packet(&payload(|w| {
            write_datagram_header(w, Some(4));
            w.bytes(b"once");
            write_new_connection_id(
                w,
                &NewConnectionIdFrame {
                    sequence: 4,
                    retire_prior_to: 4,
                    cid: ConnectionId::new(&[7; 8]).unwrap(),
                    reset_token: StatelessResetToken::new([7; 16]),
                },
            );
            write_stream_header(w, s, 5_001, Some(1), false);
            w.bytes(b"z");
        }));
        let before = evil.pair.conn(victim).stats().packets_received;
        for _ in 0..20 {
            evil.pair.deliver(victim, &refused);
        }
        let datagrams = std::iter::from_fn(|| evil.pair.conn(victim).recv_datagram());
        assert_eq!(datagrams.count(), 1);
        assert_eq!(evil.pair.conn(victim).stats().packets_received, before + 1);
        evil.pair.run_for(ms(100));
        evil.assert_open();
        // It counts as lost: what it carried comes again under another number.
        let mut acked = false;
        evil.each_frame(|frame| {
            if let Frame::Ack(ack) = frame {
                acked |= ack.ranges().any(|range| range.contains(&number));
            }
        });
        assert!(!acked);
        evil.send(|w| {
            write_stream_header(w, s, 0, Some(1024), false);
            w.zeros(1024);
        });
        evil.send(|w| {
            write_stream_header(w, s, 1024, Some(1024), false);
            w.zeros(1024);
        });
        evil.send(|w| {
            write_stream_header(w, s, 2048, Some(953), false);
            w.zeros(953);
        });
        let mut got = Vec::new();
        assert!(!evil.pair.read_available(victim, s, &mut got));
        assert_eq!(got.len(), 3001);
    }
}

#[test]
fn numbers_of_refused_packets_are_remembered_within_bounds() {
    let mut evil = Evil::against(SERVER);
    let s = id(Side::Client, UNI, 0);
    fill_with_holes(&mut evil, s);
    let refused = payload(|w| {
        write_datagram_header(w, Some(1));
        w.bytes(b"x");
        write_stream_header(w, s, 5_001, Some(1), false);
        w.bytes(b"z");
    });
    let mut sent = Vec::new();
    for _ in 0..1000 {
        let packet = evil.packet(&refused);
        evil.pair.deliver(SERVER, &packet);
        sent.push(packet);
        // An acceptable one between, so that each refused number is a range of its own.
        evil.send(write_ping);
    }
    let count = |evil: &mut Evil| std::iter::from_fn(|| evil.pair.server().recv_datagram()).count();
    assert_eq!(count(&mut evil), 1000);
    for packet in &sent {
        evil.pair.deliver(SERVER, packet);
    }
    assert_eq!(count(&mut evil), 0);
    evil.assert_open();
}

#[test]
fn a_path_challenge_flood_is_answered_eight_times_in_full_sized_datagrams() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| {
        for i in 0..100 {
            write_path_challenge(w, [i; 8]);
        }
    });
    evil.pair.run_for(ms(50));
    let mut answers = Vec::new();
    for datagram in &evil.pair.hosts[CLIENT].captured {
        for_each_frame(datagram, |_, frame| {
            if let Frame::PathResponse(data) = frame {
                answers.push((data[0], datagram.len()));
            }
        });
    }
    // The newest eight, one a packet, each expanded (RFC 9000 §8.2.2).
    assert_eq!(answers, (92..100).map(|i| (i, 1200)).collect::<Vec<_>>());
    evil.assert_open();
}

#[test]
fn an_unasked_path_response_is_ignored() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_path_response(w, [7; 8]));
    evil.assert_open();
}

#[test]
fn floods_of_harmless_frames_are_borne_without_replies_but_acknowledgements() {
    let s = id(Side::Client, BIDI, 0);
    let frames: [&dyn Fn(&mut Writer<'_>); 6] = [
        &|w| write_ping(w),
        &|w| write_data_blocked(w, 1),
        &|w| write_stream_data_blocked(w, s, 1),
        &|w| write_streams_blocked(w, UNI, 1),
        &|w| write_max_data(w, 1 << 30),
        &|w| write_max_streams(w, UNI, 500),
    ];
    for frame in frames {
        let mut evil = Evil::against(SERVER);
        for _ in 0..200 {
            evil.send(|w| {
                for _ in 0..50 {
                    frame(w);
                }
            });
        }
        evil.pair.run_for(ms(100));
        evil.assert_open();
        let other = evil
            .count_frames(|f| !matches!(f, Frame::Ack(_) | Frame::Padding { .. } | Frame::Ping));
        assert_eq!(other, 0);
        assert!(evil.pair.hosts[CLIENT].captured.len() <= 210);
    }
}

#[test]
fn a_packet_that_asks_for_too_much_work_counts_as_lost() {
    let mut evil = Evil::against(SERVER);
    let before = evil.pair.server().stats();
    // More one-byte frames than any honest packet of this size has.
    evil.send(|w| (0..1300).for_each(|_| write_ping(w)));
    let refused = evil.number - 1;
    evil.pair.run_for(ms(100));
    let acknowledged = |evil: &Evil, number: u64| {
        evil.count_frames(|frame| match frame {
            Frame::Ack(ack) => ack.ranges().any(|range| range.contains(&number)),
            _ => false,
        })
    };
    assert_eq!(acknowledged(&evil, refused), 0);
    let after = evil.pair.server().stats();
    assert_eq!(after.packets_overworked, before.packets_overworked + 1);
    assert!(
        after.work - before.work <= 200 + 512 + 16 * 1300 + 20,
        "{}",
        after.work
    );
    // Fewer are borne, and so is whoever sent more before.
    evil.send(|w| (0..100).for_each(|_| write_ping(w)));
    let borne = evil.number - 1;
    evil.pair.run_for(ms(100));
    assert!(acknowledged(&evil, borne) > 0);
    evil.assert_open();
}

#[test]
fn stop_sending_again_and_again_makes_one_reset() {
    let mut evil = Evil::against(SERVER);
    let s = id(Side::Client, BIDI, 0);
    for code in 0..50 {
        evil.send(|w| write_stop_sending(w, s, code));
    }
    evil.pair.run_for(ms(15));
    evil.assert_open();
    let resets = evil.count_frames(|f| matches!(f, Frame::ResetStream { error_code: 0, .. }));
    assert_eq!(resets, 1);
    let stopped = evil.pair.take_events(SERVER);
    let stopped = stopped
        .iter()
        .filter(|e| matches!(e, Event::Stopped { .. }));
    assert_eq!(stopped.count(), 1);
}

#[test]
fn rapid_resets_get_no_further_credit_until_the_application_lets_go() {
    let mut evil = Evil::against(SERVER);
    for i in 0..100 {
        let s = id(Side::Client, BIDI, i);
        evil.send(|w| {
            write_reset_stream(w, s, 0, 0);
            write_stop_sending(w, s, 0);
        });
    }
    evil.pair.run_for(ms(100));
    evil.assert_open();
    assert_eq!(
        evil.count_frames(|f| matches!(f, Frame::MaxStreams { .. })),
        0
    );
    evil.send(|w| write_reset_stream(w, id(Side::Client, BIDI, 100), 0, 0));
    evil.assert_closed(
        TransportErrorCode::STREAM_LIMIT_ERROR,
        Some(FrameType::RESET_STREAM),
    );
}

#[test]
fn new_tokens_are_ignored_by_a_client_that_keeps_none() {
    let mut evil = Evil::against(CLIENT);
    for i in 0..1000u16 {
        evil.send(|w| write_new_token(w, &[i as u8; 1000]));
    }
    evil.assert_open();
}

#[test]
fn a_thousand_streams_of_one_byte_do_not_commit_their_windows() {
    let transport = TransportConfig::default().max_concurrent_uni_streams(1000);
    let mut evil = Evil::with(
        SERVER,
        Options {
            server: transport,
            ..readable()
        },
    );
    for i in 0..1000 {
        evil.send(|w| {
            write_stream_header(w, id(Side::Client, UNI, i), 0, Some(1), false);
            w.bytes(b"x");
        });
    }
    evil.assert_open();
    let events = evil.pair.take_events(SERVER);
    let opened = events.iter().filter(|e| matches!(e, Event::Opened(_)));
    assert_eq!(opened.count(), 1);
    for _ in 0..1000 {
        let s = evil.pair.server().accept(UNI).unwrap();
        assert_eq!(evil.pair.server().read(s, 10).unwrap().unwrap().len(), 1);
        assert_eq!(evil.pair.server().read(s, 10), Err(ReadError::Blocked));
    }
}

#[test]
fn a_close_in_an_initial_packet_ends_the_handshake() {
    let (mut pair, first, dcid, scid) = hello();
    pair.deliver(SERVER, &first);
    let code = TransportErrorCode::CONNECTION_REFUSED;
    let bytes = payload(|w| {
        write_connection_close(w, &CloseFrame::transport(code, 0, b"changed my mind"));
        write_padding(w, 1160);
    });
    let packet = long_packet(LongType::Initial, &dcid, &scid, b"", 9, &bytes);
    pair.deliver(SERVER, &packet);
    match pair.close_reason(SERVER) {
        Some(ConnectionError::ClosedByPeer(Close::Transport {
            code: c, reason, ..
        })) => {
            assert_eq!((c, reason.as_str()), (code, "changed my mind"));
        }
        other => panic!("{other:?}"),
    }
    pair.run_for(secs(5));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 0);
}

#[test]
fn a_hello_followed_by_another_clients_source_id_is_ignored() {
    let (mut pair, first, dcid, scid) = hello();
    pair.deliver(SERVER, &first);
    let hello = without_padding(packets(&first)[0].payload).to_vec();
    let bytes = [&hello[..], &[0x1e], &[0; 900]].concat();
    let other = long_packet(LongType::Initial, &dcid, &[9; 8], b"", 9, &bytes);
    pair.deliver(SERVER, &other);
    assert_eq!(pair.close_reason(SERVER), None);
    let same = long_packet(LongType::Initial, &dcid, &scid, b"", 9, &bytes);
    pair.deliver(SERVER, &same);
    assert!(matches!(
        pair.close_reason(SERVER),
        Some(ConnectionError::PeerMisbehaved { .. })
    ));
}

#[test]
fn a_flipped_bit_in_any_byte_of_any_packet_is_dropped() {
    // Real AEAD: every datagram of a handshake and an exchange, one bit of every byte.
    let mut pair = Pair::new(Options::default());
    let log: Log = Rc::default();
    let copy = log.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        copy.borrow_mut().push((from, datagram.clone()));
        true
    }));
    pair.connect();
    let mut next = 0;
    let mut flipped = 0;
    let mut turn = |pair: &mut Pair| {
        while next < log.borrow().len() {
            let (from, datagram) = log.borrow()[next].clone();
            next += 1;
            for at in 0..datagram.len() {
                let mut bad = datagram.clone();
                bad[at] ^= 1 << (at % 8);
                // A connection ID that the other end does not know yet leads to no connection.
                let remote = pair.hosts[from].address;
                pair.deliver_silently(1 - from, remote, &bad);
                flipped += 1;
            }
        }
    };
    while pair.hosts[SERVER].handle.is_none() || !pair.client().is_confirmed() {
        assert!(pair.step());
        turn(&mut pair);
    }
    let s = pair.send_stream(CLIENT, BIDI, &pattern(3000));
    for _ in 0..20 {
        pair.step();
        turn(&mut pair);
    }
    assert_eq!(pair.read_to_end(SERVER, s, secs(5)), pattern(3000));
    assert!(flipped > 5_000, "{flipped}");
    for side in [CLIENT, SERVER] {
        assert_eq!(pair.close_reason(side), None);
    }
}

#[test]
fn packets_from_another_address_of_a_server_are_ignored() {
    // Servers do not move: neither data nor a close counts from elsewhere (RFC 9000 §9).
    let mut evil = Evil::against(CLIENT);
    let elsewhere = "10.0.0.2:1001".parse().unwrap();
    let sent = evil.pair.hosts[CLIENT].sent_datagrams;
    let before = evil.pair.client().stats();
    for bytes in [
        payload(write_ping),
        payload(|w| write_path_challenge(w, [1; 8])),
        payload(|w| write_connection_close(w, &CloseFrame::application(0, b""))),
    ] {
        let packet = evil.packet(&bytes);
        evil.pair.deliver_from(CLIENT, elsewhere, &packet);
    }
    evil.pair.run_for(ms(50));
    evil.assert_open();
    assert_eq!(evil.pair.hosts[CLIENT].sent_datagrams, sent);
    let stats = evil.pair.client().stats();
    assert_eq!(stats.datagrams_from_elsewhere, 3);
    assert_eq!(stats.datagrams_received, before.datagrams_received);
    assert_eq!(stats.packets_received, before.packets_received);
}

#[test]
fn a_packet_number_far_ahead_or_behind_is_decoded_or_dropped() {
    let mut evil = Evil::against(SERVER);
    for number in [1 << 30, (1 << 30) + (1 << 30), 3 << 30] {
        evil.number = number;
        evil.send(write_ping);
    }
    // Far behind: decodes to a number far ahead of all, or one already passed; never a panic.
    evil.number = 5;
    evil.send(write_ping);
    evil.assert_open();
}
