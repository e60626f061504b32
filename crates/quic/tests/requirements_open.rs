//! What RFC 9000 and RFC 9001 ask of an established connection and no other file shows.
//!
//! `docs/requirements/` names the requirement behind each test.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use common::evil::{Evil, payload};
use common::wire::{for_each_frame, packets};
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{ConnectionError, Direction, TimeoutReason, TransportConfig};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::*;

const UNI: Direction = Direction::Unidirectional;

// ---- addresses and paths ----

#[test]
fn a_client_ignores_packets_from_an_unknown_address() {
    let mut evil = Evil::against(CLIENT);
    let elsewhere = "10.0.0.2:2001".parse().unwrap();
    let sent = evil.pair.hosts[CLIENT].sent_datagrams;
    for bytes in [
        payload(write_ping),
        payload(|w| write_path_challenge(w, [1; 8])),
        payload(|w| write_connection_close(w, &CloseFrame::application(0, b""))),
    ] {
        let packet = evil.packet(&bytes);
        evil.pair.deliver_from(CLIENT, elsewhere, &packet);
    }
    evil.pair.run_for(ms(100));
    evil.assert_open();
    assert_eq!(evil.pair.hosts[CLIENT].sent_datagrams, sent);
    // The same from the server counts.
    evil.send(write_ping);
    evil.pair.run_for(ms(100));
    assert!(evil.pair.hosts[CLIENT].sent_datagrams > sent);
}

#[test]
fn a_closing_endpoint_does_not_answer_another_address() {
    let mut evil = Evil::against(SERVER);
    let now = evil.pair.now;
    evil.pair.server().close(now, 3, b"");
    evil.pair.flush();
    let sent = evil.pair.hosts[SERVER].sent_datagrams;
    let elsewhere = "10.0.0.9:9".parse().unwrap();
    for _ in 0..20 {
        let packet = evil.packet(&payload(write_ping));
        evil.pair.deliver_from(SERVER, elsewhere, &packet);
    }
    assert_eq!(evil.pair.hosts[SERVER].sent_datagrams, sent);
    evil.send(write_ping);
    evil.pair.run_for(ms(20));
    assert_eq!(evil.closes().len(), 2, "the peer is answered");
}

#[test]
fn a_path_challenge_is_answered_at_once_and_once() {
    for victim in [CLIENT, SERVER] {
        let mut evil = Evil::against(victim);
        evil.send(|w| write_path_challenge(w, *b"12345678"));
        let answers = |evil: &Evil| {
            evil.count_frames(|f| matches!(f, Frame::PathResponse(data) if data == b"12345678"))
        };
        // The link's delay and no more.
        evil.pair.run_for(ms(10));
        assert_eq!(answers(&evil), 1);
        assert!(evil.pair.hosts[1 - victim].captured[0].len() >= 1200);
        // Nobody acknowledges it: it is not sent again.
        evil.pair.run_for(secs(5));
        assert_eq!(answers(&evil), 1);
    }
}

// ---- connection IDs and resets ----

#[test]
fn issued_ids_are_all_different_and_numbered_in_order() {
    let issued: Rc<RefCell<Vec<NewConnectionIdFrame>>> = Rc::default();
    let copy = issued.clone();
    let mut pair = Pair::new(readable());
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            for_each_frame(datagram, |_, frame| {
                if let Frame::NewConnectionId(new) = frame {
                    copy.borrow_mut().push(*new);
                }
            });
        }
        true
    }));
    pair.connect();
    pair.established(secs(1));
    pair.run_for(ms(200));
    let mut evil = Evil::take_over(pair, SERVER);
    for sequence in 1..40 {
        evil.send(|w| write_retire_connection_id(w, sequence));
        evil.pair.run_for(ms(5));
    }
    evil.assert_open();
    let mut by_sequence = BTreeMap::new();
    let mut ids = BTreeSet::from([evil.dcid.clone()]);
    let mut tokens = BTreeSet::new();
    for new in issued.borrow().iter() {
        let contents = (new.cid, *new.reset_token.as_bytes());
        let known = *by_sequence.entry(new.sequence).or_insert(contents);
        assert_eq!(known, contents, "a repeated frame repeats all of it");
        assert_eq!(new.retire_prior_to, 0);
    }
    for (n, (sequence, (cid, token))) in by_sequence.iter().enumerate() {
        assert_eq!(*sequence, n as u64 + 1, "no number is left out");
        assert!(ids.insert(cid.to_vec()) && tokens.insert(*token));
    }
    assert_eq!(by_sequence.len(), 42);
}

#[test]
fn an_old_id_that_comes_late_is_retired_and_retires_nothing() {
    for victim in [CLIENT, SERVER] {
        let mut evil = Evil::against(victim);
        let mut announce = |sequence: u64, retire_prior_to| {
            let frame = NewConnectionIdFrame {
                sequence,
                retire_prior_to,
                cid: ConnectionId::new(&[sequence as u8; 8]).unwrap(),
                reset_token: StatelessResetToken::new([sequence as u8; 16]),
            };
            evil.send(|w| write_new_connection_id(w, &frame));
        };
        announce(10, 10);
        announce(9, 5);
        announce(11, 3);
        evil.pair.run_for(ms(20));
        evil.assert_open();
        let mut retired = BTreeSet::new();
        evil.each_frame(|frame| {
            if let Frame::RetireConnectionId { sequence } = frame {
                retired.insert(*sequence);
            }
        });
        assert_eq!(Vec::from_iter(retired), [0, 1, 2, 3, 9]);
        let last = evil.pair.hosts[1 - victim].captured.last().unwrap();
        assert_eq!(common::wire::destination(last), [10; 8]);
    }
}

#[test]
fn a_reset_in_the_shape_of_a_long_header_counts() {
    let mut evil = Evil::against(CLIENT);
    let frame = NewConnectionIdFrame {
        sequence: 4,
        retire_prior_to: 4,
        cid: ConnectionId::new(&[0xab; 8]).unwrap(),
        reset_token: StatelessResetToken::new([0xcd; 16]),
    };
    evil.send(|w| write_new_connection_id(w, &frame));
    evil.assert_open();
    // A version of its own, and a destination that nobody here has.
    let mut reset = [
        &[0xc7, 0x1a, 0x2a, 0x3a, 0x4a, 8],
        &[0x55; 40][..],
        &[0xcd; 16],
    ]
    .concat();
    let last = reset.len() - 1;
    reset[last] ^= 1;
    evil.pair.deliver(CLIENT, &reset);
    evil.assert_open();
    reset[last] ^= 1;
    evil.pair.deliver(CLIENT, &reset);
    let word = evil.pair.close_reason(CLIENT);
    assert_eq!(word, Some(ConnectionError::StatelessReset));
}

#[test]
fn a_reset_that_looks_like_a_long_header_for_the_connection_counts() {
    // RFC 9000 §10.3.1: what is routed to a connection and cannot be opened is compared too.
    let versions = [QUIC_V1, 0x1a2a_3a4a];
    for (version, first) in versions.into_iter().flat_map(|v| [(v, 0xc0), (v, 0xe3)]) {
        let mut evil = Evil::against(CLIENT);
        let frame = NewConnectionIdFrame {
            sequence: 4,
            retire_prior_to: 4,
            cid: ConnectionId::new(&[0xab; 8]).unwrap(),
            reset_token: StatelessResetToken::new([0xcd; 16]),
        };
        evil.send(|w| write_new_connection_id(w, &frame));
        let head = [&[first][..], &version.to_be_bytes(), &[8], &evil.dcid].concat();
        let mut reset = [&head[..], &[0x55; 40], &[0xcd; 16]].concat();
        let last = reset.len() - 1;
        reset[last] ^= 1;
        evil.pair.deliver(CLIENT, &reset);
        evil.assert_open();
        reset[last] ^= 1;
        evil.pair.deliver(CLIENT, &reset);
        let word = evil.pair.close_reason(CLIENT);
        let expected = Some(ConnectionError::StatelessReset);
        assert_eq!(word, expected, "{first:#x} {version:#x}");
    }
}

// ---- endings ----

#[test]
fn an_idle_timeout_is_at_least_three_probe_timeouts() {
    let config = || TransportConfig::default().max_idle_timeout(ms(100));
    let mut pair = Pair::connected(Options {
        link: delay(200),
        client: config(),
        server: config(),
        ..Options::default()
    });
    for side in [CLIENT, SERVER] {
        pair.transfer(side, 1_000, secs(5));
    }
    let start = pair.now;
    let word = pair.run_until_closed(CLIENT, secs(30));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Idle));
    let silence = pair.now.saturating_duration_since(start);
    // A PTO is more than the round trip of 400 ms.
    assert!(silence > ms(3 * 400 - 200), "{silence:?}");
}

#[test]
fn a_close_after_confirmation_is_in_one_rtt_packets_alone() {
    for side in [CLIENT, SERVER] {
        let mut pair = Pair::connected(readable());
        let kinds: Rc<RefCell<Vec<PacketKind>>> = Rc::default();
        let copy = kinds.clone();
        pair.tap = Some(Box::new(move |from, datagram| {
            assert_eq!(packets(datagram).len(), usize::from(from == side));
            for_each_frame(datagram, |kind, frame| {
                if matches!(frame, Frame::ConnectionClose(_)) {
                    copy.borrow_mut().push(kind);
                }
            });
            true
        }));
        let now = pair.now;
        pair.conn(side).close(now, 1, b"over");
        pair.run_for(secs(1));
        assert_eq!(*kinds.borrow(), [PacketKind::OneRtt]);
    }
}

// ---- packets ----

#[test]
fn packet_numbers_only_rise() {
    let mut pair = Pair::new(Options {
        link: LinkConfig {
            loss: LossModel::Bernoulli(0.05),
            reorder: 0.05,
            ..delay(10)
        },
        ..readable()
    });
    let largest: Rc<RefCell<[[Option<u64>; 3]; 2]>> = Rc::default();
    let copy = largest.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        for packet in packets(datagram) {
            assert!(!packet.payload.is_empty());
            let last = &mut copy.borrow_mut()[from][packet.kind.space().index()];
            let number = decode_packet_number(packet.number, packet.pn_len, *last);
            assert!(
                last.is_none_or(|last| number > last),
                "{number} after {last:?}"
            );
            *last = Some(number);
        }
        true
    }));
    pair.connect();
    pair.established(secs(10));
    for side in [CLIENT, SERVER] {
        pair.transfer(side, 1_000_000, secs(60));
    }
    let largest = largest.borrow();
    assert!(
        largest
            .iter()
            .all(|spaces| spaces[2].is_some_and(|n| n > 800))
    );
    assert!(largest.iter().flatten().all(Option::is_some));
}

#[test]
fn the_spin_bit_is_never_set_and_never_read() {
    let mut pair = Pair::new(Options {
        client: TransportConfig::default().mtu(1200),
        ..readable()
    });
    let seen = Rc::new(RefCell::new(0));
    let count = seen.clone();
    pair.tap = Some(Box::new(move |_, datagram| {
        if datagram[0] & 0x80 == 0 {
            assert_eq!(datagram[0] & 0x20, 0);
            *count.borrow_mut() += 1;
        }
        true
    }));
    pair.connect();
    pair.established(secs(1));
    pair.transfer(CLIENT, 100_000, secs(5));
    assert!(*seen.borrow() > 100);
    pair.run_for(secs(1));
    let mut evil = Evil::take_over(pair, SERVER);
    for bit in [0x20, 0, 0x20, 0x20] {
        evil.first_byte = bit;
        evil.send(write_ping);
    }
    evil.pair.run_for(ms(50));
    evil.assert_open();
    let mut largest = 0;
    evil.each_frame(|frame| {
        if let Frame::Ack(ack) = frame {
            largest = largest.max(ack.largest);
        }
    });
    assert_eq!(largest, evil.number - 1, "all of them were acknowledged");
}

#[test]
fn a_packet_that_asks_for_nothing_gets_nothing() {
    for victim in [CLIENT, SERVER] {
        let mut evil = Evil::against(victim);
        let sent = evil.pair.hosts[victim].sent_datagrams;
        for _ in 0..20 {
            // Gaps before it do not change that.
            evil.number += 7;
            evil.send(|w| write_padding(w, 30));
        }
        evil.pair.run_for(ms(200));
        assert_eq!(evil.pair.hosts[victim].sent_datagrams, sent);
        evil.send(write_ping);
        evil.pair.run_for(ms(200));
        assert!(evil.pair.hosts[victim].sent_datagrams > sent);
    }
}

#[test]
fn marks_are_reported_by_an_end_that_sets_none() {
    let mut pair = Pair::new(Options {
        server: TransportConfig::default().ecn(false),
        ..readable()
    });
    let marked: Rc<RefCell<[u64; 2]>> = Rc::default();
    let copy = marked.clone();
    pair.ecn_tap = Some(Box::new(move |from, bits| {
        copy.borrow_mut()[from] += u64::from(bits.is_some());
        true
    }));
    let counts: Rc<RefCell<EcnCounts>> = Rc::default();
    let copy = counts.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        for_each_frame(datagram, |kind, frame| {
            if let (SERVER, PacketKind::OneRtt, Frame::Ack(ack)) = (from, kind, frame) {
                *copy.borrow_mut() = ack.ecn.unwrap_or_default();
            }
        });
        true
    }));
    pair.connect();
    pair.established(secs(1));
    pair.transfer(CLIENT, 100_000, secs(5));
    let [client, server] = *marked.borrow();
    assert_eq!(server, 0, "the server marks nothing");
    assert!(
        client > 50 && counts.borrow().ect0 > 50,
        "{client} {counts:?}"
    );
}

#[test]
fn a_forged_key_update_changes_nothing() {
    for victim in [CLIENT, SERVER] {
        let mut evil = Evil::against(victim);
        evil.key_phase = true;
        for _ in 0..10 {
            let mut forged = evil.packet(&payload(write_ping));
            *forged.last_mut().unwrap() ^= 1;
            evil.pair.deliver(victim, &forged);
        }
        let stats = evil.pair.conn(victim).stats();
        assert_eq!((stats.key_updates, stats.decryption_failures), (0, 10));
        // Both the current keys and the next are still there.
        evil.key_phase = false;
        evil.send(write_ping);
        evil.key_phase = true;
        evil.send(write_ping);
        evil.assert_open();
        let stats = evil.pair.conn(victim).stats();
        assert_eq!((stats.key_updates, stats.decryption_failures), (1, 10));
    }
}

// ---- streams ----

#[test]
fn limits_that_do_not_rise_are_ignored() {
    let mut evil = Evil::against(SERVER);
    let id = evil.pair.server().open(UNI).unwrap();
    evil.pair.server().write_slice(id, &[7; 1000]).unwrap();
    evil.pair.flush();
    evil.send(|w| {
        write_max_data(w, 10);
        write_max_data(w, 0);
        write_max_stream_data(w, id, 10);
        write_max_streams(w, UNI, 0);
        write_max_streams(w, Direction::Bidirectional, 1);
    });
    assert_eq!(evil.pair.server().write_slice(id, &[8; 5000]), Ok(5000));
    for _ in 1..100 {
        assert!(evil.pair.server().open(UNI).is_some());
    }
    assert!(evil.pair.server().open(Direction::Bidirectional).is_some());
    evil.pair.run_for(ms(50));
    evil.assert_open();
    let mut end = 0;
    evil.each_frame(|frame| {
        if let Frame::Stream(stream) = frame {
            end = end.max(stream.offset + stream.data.len() as u64);
        }
    });
    assert_eq!(end, 6000, "the limits of the handshake hold");
}

#[test]
fn a_reset_stream_sent_again_says_the_same() {
    let mut pair = Pair::connected(readable());
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, &[7; 3000]).unwrap();
    pair.run_for(ms(100));
    let said: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
    let copy = said.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        let mut pass = true;
        for_each_frame(datagram, |_, frame| {
            if let Frame::ResetStream {
                error_code,
                final_size,
                ..
            } = frame
                && from == CLIENT
            {
                copy.borrow_mut().push((*error_code, *final_size));
                pass = copy.borrow().len() > 4;
            }
        });
        pass
    }));
    pair.client().reset(id, 7);
    pair.run_for(ms(1));
    // Neither another reset nor more data changes what was said.
    pair.client().reset(id, 9);
    assert!(pair.client().write_slice(id, &[8; 1000]).is_err());
    pair.run_for(secs(20));
    let said = said.borrow();
    assert!(said.len() > 4, "{said:?}");
    assert!(said.iter().all(|reset| *reset == (7, 3000)), "{said:?}");
}
