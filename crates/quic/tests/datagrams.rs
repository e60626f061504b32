//! Unreliable datagrams (RFC 9221): both ways, bounded, never repeated.

mod common;

use bytes::Bytes;
use common::evil::Evil;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{
    ConnectionError, Direction, Event, SendDatagramError, TransportConfig, TransportErrorCode,
};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::{
    ConnectionId, Frame, FrameType, NewConnectionIdFrame, StatelessResetToken,
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
    assert!(max > 1150 && max < 1200, "{max}");
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
fn a_datagram_flood_keeps_the_newest_4096() {
    let transport = TransportConfig::default().datagram_receive_buffer(usize::MAX);
    let mut evil = Evil::with(SERVER, both(&transport));
    for batch in 0..50u32 {
        evil.send(|w| {
            for i in 0..100 {
                write_datagram_header(w, Some(4));
                w.u32(batch * 100 + i);
            }
        });
    }
    evil.assert_open();
    let got = receive_all(&mut evil.pair, SERVER);
    assert_eq!(got.len(), 4096);
    assert_eq!(*got[0], (5000u32 - 4096).to_be_bytes());
    assert_eq!(
        evil.pair.server().stats().app_datagrams_dropped,
        5000 - 4096
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
