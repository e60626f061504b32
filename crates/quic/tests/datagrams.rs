//! Unreliable datagrams (RFC 9221): both ways, bounded, never repeated.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use common::evil::Evil;
use common::wire::packets;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{
    ConnectionError, DatagramFate, DatagramOptions, Direction, Event, SendDatagramError,
    TransportConfig, TransportErrorCode,
};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::{
    ConnectionId, Frame, FrameType, NewConnectionIdFrame, StatelessResetToken, write_ack,
    write_datagram_header, write_new_connection_id,
};

fn both(transport: &TransportConfig) -> Options {
    Options {
        client: transport.clone(),
        server: transport.clone(),
        ..readable()
    }
}

fn receive_all(pair: &mut Pair, side: usize) -> Vec<Bytes> {
    std::iter::from_fn(|| pair.conn(side).recv_datagram()).collect()
}

#[test]
fn datagrams_go_both_ways_with_one_event_until_they_are_read() {
    for from in [CLIENT, SERVER] {
        let mut pair = Pair::connected(Options::default());
        for i in 0..5u8 {
            pair.conn(from)
                .send_datagram(Bytes::from(vec![i; 10]))
                .unwrap();
        }
        pair.run_for(ms(50));
        let to = 1 - from;
        let events = pair.take_events(to);
        let told = events.iter().filter(|e| **e == Event::DatagramReceived);
        assert_eq!(told.count(), 1);
        let got = receive_all(&mut pair, to);
        assert_eq!(
            got.iter().map(|d| d[0]).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
        pair.conn(from).send_datagram(Bytes::new()).unwrap();
        pair.run_for(ms(50));
        assert!(
            pair.take_event(to, |e| *e == Event::DatagramReceived)
                .is_some()
        );
        assert_eq!(receive_all(&mut pair, to), [Bytes::new()]);
    }
}

#[test]
fn the_largest_datagram_fits_and_one_byte_more_does_not() {
    let mut pair = Pair::connected(Options::default());
    let max = pair.client().max_datagram_len().unwrap();
    // All of a packet but its header, the tag and the frame's type.
    assert_eq!(max, 1200 - (1 + 8 + 4) - 16 - 1);
    assert_eq!(
        pair.client().send_datagram(Bytes::from(vec![0; max + 1])),
        Err(SendDatagramError::TooLarge { max })
    );
    pair.client()
        .send_datagram(Bytes::from(vec![1; max]))
        .unwrap();
    pair.run_for(ms(50));
    assert_eq!(receive_all(&mut pair, SERVER)[0].len(), max);
}

#[test]
fn the_peers_limit_is_kept() {
    let mut options = readable();
    options.server.max_datagram_frame_size = Some(100);
    let mut pair = Pair::connected(options);
    let max = pair.client().max_datagram_len().unwrap();
    assert_eq!(max, 97);
    pair.client()
        .send_datagram(Bytes::from(vec![1; 97]))
        .unwrap();
    pair.run_for(ms(50));
    assert_eq!(receive_all(&mut pair, SERVER).len(), 1);
    assert_eq!(pair.close_reason(SERVER), None);
}

#[test]
fn a_peer_that_takes_no_datagrams_gets_none() {
    let mut options = Options::default();
    options.server.max_datagram_frame_size = None;
    let mut pair = Pair::connected(options);
    assert_eq!(pair.client().max_datagram_len(), None);
    assert_eq!(
        pair.client().send_datagram(Bytes::from_static(b"x")),
        Err(SendDatagramError::Unsupported)
    );
    assert!(pair.server().max_datagram_len().is_some());
}

#[test]
fn lost_datagrams_stay_lost_and_the_others_keep_their_bytes() {
    let mut pair = Pair::connected(Options::default());
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.3),
        ..delay(10)
    };
    let there = pair.links.0;
    pair.net.set_config(there, lossy).unwrap();
    for i in 0..200u8 {
        pair.client()
            .send_datagram(Bytes::from(vec![i; 1000]))
            .unwrap();
        pair.run_for(ms(5));
    }
    pair.run_for(secs(3));
    let got = receive_all(&mut pair, SERVER);
    assert!((100..180).contains(&got.len()), "{}", got.len());
    assert!(
        got.windows(2).all(|w| w[0][0] < w[1][0]),
        "twice or out of order"
    );
    assert!(
        got.iter()
            .all(|d| d.len() == 1000 && d.iter().all(|b| *b == d[0]))
    );
}

#[test]
fn a_full_send_queue_refuses_until_there_is_room() {
    let transport = TransportConfig::default().datagram_send_buffer(10_000);
    let mut pair = Pair::connected(Options {
        link: LinkConfig {
            rate: Some(1_000_000),
            ..delay(10)
        },
        ..both(&transport)
    });
    let mut sent = 0;
    loop {
        match pair.client().send_datagram(Bytes::from(vec![7; 1000])) {
            Ok(()) => sent += 1,
            Err(e) => {
                assert_eq!(e, SendDatagramError::Full);
                break;
            }
        }
    }
    assert_eq!(sent, 10);
    pair.run_until(secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::DatagramSendable)
            .is_some()
    });
    assert!(
        pair.client()
            .send_datagram(Bytes::from(vec![7; 1000]))
            .is_ok()
    );
}

#[test]
fn a_datagram_flood_keeps_the_newest_16384() {
    let transport = TransportConfig::default().datagram_receive_buffer(usize::MAX);
    let mut evil = Evil::with(SERVER, both(&transport));
    for batch in 0..200u32 {
        evil.send(|w| {
            for i in 0..100 {
                write_datagram_header(w, Some(4));
                w.u32(batch * 100 + i);
            }
        });
    }
    evil.assert_open();
    let got = receive_all(&mut evil.pair, SERVER);
    assert_eq!(got.len(), 16_384);
    assert_eq!(*got[0], (20_000u32 - 16_384).to_be_bytes());
    assert_eq!(
        evil.pair.server().stats().app_datagrams_dropped,
        20_000 - 16_384
    );
}

#[test]
fn a_datagram_flood_keeps_within_the_configured_bytes() {
    let transport = TransportConfig::default().datagram_receive_buffer(50_000);
    let mut evil = Evil::with(SERVER, both(&transport));
    for i in 0..200u8 {
        evil.send(|w| {
            write_datagram_header(w, Some(1000));
            w.bytes(&[i; 1000]);
        });
    }
    let got = receive_all(&mut evil.pair, SERVER);
    assert_eq!(got.len(), 50);
    assert_eq!(got[0][0], 150);
}

#[test]
fn a_datagram_larger_than_advertised_is_a_protocol_violation() {
    let transport = TransportConfig::default().max_datagram_frame_size(Some(100));
    let mut evil = Evil::with(SERVER, both(&transport));
    let send = |evil: &mut Evil, len: usize| {
        evil.send(|w| {
            write_datagram_header(w, Some(len));
            w.zeros(len);
        });
    };
    send(&mut evil, 97);
    evil.assert_open();
    send(&mut evil, 100);
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    evil.assert_closed(code, Some(FrameType::DATAGRAM));
}

#[test]
fn a_datagram_that_was_not_negotiated_is_a_protocol_violation() {
    let transport = TransportConfig::default().max_datagram_frame_size(None);
    let mut evil = Evil::with(SERVER, both(&transport));
    evil.send(|w| {
        write_datagram_header(w, Some(0));
    });
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    evil.assert_closed(code, Some(FrameType::DATAGRAM));
}

#[test]
fn datagrams_and_streams_share_the_connection() {
    let mut pair = Pair::connected(Options {
        link: LinkConfig {
            rate: Some(10_000_000),
            ..delay(10)
        },
        ..readable()
    });
    let id = pair.send_stream(CLIENT, Direction::Unidirectional, &common::pattern(300_000));
    let mut sent = 0;
    let mut got = Vec::new();
    let mut datagrams = 0;
    pair.run_until(secs(10), |p| {
        if sent < 100 && p.client().send_datagram(Bytes::from(vec![1; 900])).is_ok() {
            sent += 1;
        }
        datagrams += receive_all(p, SERVER).len();
        while p.server().accept(Direction::Unidirectional).is_some() {}
        match p.server().read(id, usize::MAX) {
            Ok(Some(chunk)) => got.extend_from_slice(&chunk),
            Ok(None) => return true,
            Err(_) => {}
        }
        false
    });
    assert!(got == common::pattern(300_000));
    assert!(datagrams > 80, "{datagrams} of {sent}");
}

#[test]
fn datagrams_of_a_closed_connection_are_refused() {
    let mut pair = Pair::connected(readable());
    let now = pair.now;
    pair.client().close(now, 0, b"");
    assert_eq!(
        pair.client().send_datagram(Bytes::from_static(b"x")),
        Err(SendDatagramError::ConnectionLost(
            ConnectionError::ClosedLocally
        ))
    );
}

#[test]
fn a_datagram_only_sender_has_its_acknowledgement_state_bounded() {
    // The receiver sends nothing but ACKs, which are acknowledged by nobody.
    let mut pair = Pair::connected(readable());
    let acks = pair.watch(SERVER, |f| matches!(f, Frame::Ack(_)));
    for _ in 0..3000 {
        pair.client()
            .send_datagram(Bytes::from(vec![1; 500]))
            .unwrap();
        pair.run_for(ms(1));
        receive_all(&mut pair, SERVER);
    }
    pair.run_for(secs(1));
    assert!(acks.count() > 1000);
    assert_eq!(pair.server().stats().bytes_in_flight, 0);
    assert_eq!(pair.client().stats().packets_lost, 0);
}

#[test]
fn a_datagram_that_no_longer_fits_beside_a_longer_connection_id_does_not_block_the_queue() {
    let mut evil = Evil::against(SERVER);
    let max = evil.pair.server().max_datagram_len().unwrap();
    evil.pair
        .server()
        .send_datagram(Bytes::from(vec![1; max]))
        .unwrap();
    evil.pair
        .server()
        .send_datagram(Bytes::from_static(b"small"))
        .unwrap();
    let frame = NewConnectionIdFrame {
        sequence: 9,
        retire_prior_to: 9,
        cid: ConnectionId::new(&[5; 20]).unwrap(),
        reset_token: StatelessResetToken::new([5; 16]),
    };
    evil.send(|w| write_new_connection_id(w, &frame));
    evil.pair.run_for(secs(1));
    assert_eq!(evil.pair.server().max_datagram_len(), Some(max - 12));
    let found = evil.pair.hosts[CLIENT]
        .captured
        .iter()
        .any(|d| d.windows(5).any(|w| w == b"small"));
    assert!(found);
}

// ---- senders, ages, fates ----

fn fate(id: u64, fate: DatagramFate) -> Event {
    Event::DatagramFate { id, fate }
}

fn fates(pair: &mut Pair, side: usize) -> Vec<Event> {
    let is_fate = |e: &Event| matches!(e, Event::DatagramFate { .. });
    pair.take_events(side).into_iter().filter(is_fate).collect()
}

fn send_tracked(pair: &mut Pair, id: u64, data: Vec<u8>) {
    let now = pair.now;
    let options = DatagramOptions::default().id(id);
    let mut data = Bytes::from(data);
    pair.client()
        .send_datagram_with(now, b"", &mut data, &options)
        .unwrap();
}

#[test]
fn every_datagram_that_was_asked_about_has_one_fate_and_the_sums_agree() {
    let mut pair = Pair::connected(Options::default());
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.3),
        ..delay(10)
    };
    let there = pair.links.0;
    pair.net.set_config(there, lossy).unwrap();
    for id in 0..200 {
        send_tracked(&mut pair, id, vec![id as u8; 1000]);
        // Between them, some that nobody asks about.
        pair.client()
            .send_datagram(Bytes::from(vec![255; 100]))
            .unwrap();
        pair.run_for(ms(5));
    }
    pair.run_for(secs(5));
    let got = receive_all(&mut pair, SERVER);
    let arrived = |id: u64| got.iter().any(|d| d.len() == 1000 && d[0] == id as u8);
    let told = fates(&mut pair, CLIENT);
    assert_eq!(told.len(), 200);
    for id in 0..200 {
        let expected = match arrived(id) {
            true => DatagramFate::Acked,
            false => DatagramFate::Lost,
        };
        assert!(told.contains(&fate(id, expected)), "{id} {expected:?}");
    }
    let stats = pair.client().stats();
    assert_eq!(stats.app_datagrams_sent, 400);
    assert_eq!(stats.app_datagrams_acked, got.len() as u64);
    assert_eq!(stats.app_datagrams_lost, 400 - got.len() as u64);
    assert_eq!(stats.app_datagrams_expired, 0);
}

/// Rising numbers as the ranges of an ACK frame.
fn ranges(numbers: &[u64]) -> Vec<std::ops::RangeInclusive<u64>> {
    let mut ranges: Vec<std::ops::RangeInclusive<u64>> = Vec::new();
    for number in numbers.iter().rev() {
        match ranges.last_mut() {
            Some(last) if *last.start() == number + 1 => *last = *number..=*last.end(),
            _ => ranges.push(*number..=*number),
        }
    }
    ranges
}

#[test]
fn a_datagram_that_was_given_up_and_is_acknowledged_late_says_both() {
    let mut evil = Evil::against(CLIENT);
    for id in 0..5 {
        send_tracked(&mut evil.pair, id, vec![id as u8; 900]);
        evil.pair.flush();
    }
    evil.pair.run_for(ms(11));
    let mut numbers = Vec::new();
    for datagram in &evil.pair.hosts[SERVER].captured {
        for packet in packets(datagram) {
            numbers.push(packet.number);
        }
    }
    // A number may have been skipped.
    let newest = numbers.split_off(numbers.len() - 5);
    evil.send(|w| {
        write_ack(w, 0, ranges(&newest[1..]), None);
    });
    let told = fates(&mut evil.pair, CLIENT);
    let acked = (1..5).map(|id| fate(id, DatagramFate::Acked));
    assert!(acked.into_iter().all(|e| told.contains(&e)), "{told:?}");
    assert!(told.contains(&fate(0, DatagramFate::Lost)), "{told:?}");
    evil.send(|w| {
        write_ack(w, 0, ranges(&newest), None);
    });
    let late = fates(&mut evil.pair, CLIENT);
    assert_eq!(late, [fate(0, DatagramFate::Acked)]);
    evil.assert_open();
}

#[test]
fn a_probe_is_no_verdict_on_a_datagram() {
    let mut pair = Pair::connected(readable());
    pair.run_for(ms(200));
    // Every answer is held back until the probe timeout has passed.
    let there = pair.links.1;
    pair.net.set_config(there, delay(200)).unwrap();
    send_tracked(&mut pair, 7, vec![1; 100]);
    let before = pair.client().stats().probe_timeouts;
    pair.run_for(ms(150));
    assert!(pair.client().stats().probe_timeouts > before);
    assert_eq!(fates(&mut pair, CLIENT), []);
    pair.run_for(secs(1));
    assert_eq!(fates(&mut pair, CLIENT), [fate(7, DatagramFate::Acked)]);
    assert_eq!(
        receive_all(&mut pair, SERVER).len(),
        1,
        "and it is not sent again"
    );
}

#[test]
fn what_a_slow_path_cannot_carry_in_time_expires_when_it_says() {
    let mut pair = Pair::connected(Options {
        link: LinkConfig {
            rate: Some(200_000),
            ..delay(20)
        },
        ..readable()
    });
    let start = pair.now;
    let options = DatagramOptions::default().max_age(ms(300));
    for id in 0..100 {
        let mut data = Bytes::from(vec![id as u8; 1000]);
        let options = options.id(id);
        pair.client()
            .send_datagram_with(start, b"", &mut data, &options)
            .unwrap();
    }
    pair.run_for(ms(299));
    let expired = |told: &[Event]| {
        let is = |e: &&Event| {
            matches!(
                e,
                Event::DatagramFate {
                    fate: DatagramFate::Expired,
                    ..
                }
            )
        };
        told.iter().filter(is).count()
    };
    assert_eq!(expired(&fates(&mut pair, CLIENT)), 0);
    pair.run_for(ms(2));
    let told = fates(&mut pair, CLIENT);
    assert!(expired(&told) > 50, "{told:?}");
    pair.run_for(secs(5));
    let stats = pair.client().stats();
    assert_eq!(stats.app_datagrams_expired, expired(&told) as u64);
    let got = receive_all(&mut pair, SERVER).len();
    assert_eq!(got + expired(&told), 100);
}

#[test]
fn two_senders_share_a_slow_path_though_one_was_there_first() {
    let mut pair = Pair::connected(Options {
        link: LinkConfig {
            rate: Some(1_000_000),
            ..delay(20)
        },
        ..readable()
    });
    let now = pair.now;
    for (sender, count) in [(1, 500), (2, 100)] {
        let options = DatagramOptions::default().sender(sender);
        for _ in 0..count {
            let mut data = Bytes::from(vec![sender as u8; 900]);
            pair.client()
                .send_datagram_with(now, b"", &mut data, &options)
                .unwrap();
        }
    }
    let mut got = Vec::new();
    pair.run_until(secs(10), |p| {
        got.extend(receive_all(p, SERVER));
        got.iter().filter(|d| d[0] == 2).count() == 50
    });
    let first = got.iter().filter(|d| d[0] == 1).count();
    assert!(
        first.abs_diff(50) <= 3,
        "{first} of the first, 50 of the second"
    );
}

#[test]
fn a_prefix_and_a_payload_arrive_as_one_and_what_ends_a_packet_has_no_length() {
    let mut pair = Pair::connected(readable());
    pair.run_for(ms(200));
    let sizes = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&sizes);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT {
            for packet in packets(datagram) {
                seen.borrow_mut().push(packet.payload.to_vec());
            }
        }
        true
    }));
    let now = pair.now;
    let mut payload = Bytes::from_static(b"temperature 21.5");
    pair.client()
        .send_datagram_with(now, &[4], &mut payload, &DatagramOptions::default())
        .unwrap();
    pair.run_for(ms(50));
    assert_eq!(
        receive_all(&mut pair, SERVER),
        [&b"\x04temperature 21.5"[..]]
    );
    let sent = sizes.borrow();
    let whole = [&[0x30, 4][..], b"temperature 21.5"].concat();
    assert!(sent.iter().any(|p| p.ends_with(&whole)), "{sent:x?}");
}
