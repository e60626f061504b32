//! The endpoint and datagrams of no connection: versions, garbage, budgets, limits, many connections.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{CLIENT, Options, Pair, SERVER, ms, readable, secs, seed};
use towline_quic::stats::{Spread, Total};
use towline_quic::{DatagramMeta, Direction, Endpoint, Event, RetryPolicy, TrainBuf};
use towline_wire::{Header, parse_header};

/// A long-header packet of another version.
fn unknown_version(version: u32, dcid: &[u8], scid: &[u8], len: usize) -> Vec<u8> {
    let mut packet = vec![0xc3];
    packet.extend_from_slice(&version.to_be_bytes());
    packet.push(dcid.len() as u8);
    packet.extend_from_slice(dcid);
    packet.push(scid.len() as u8);
    packet.extend_from_slice(scid);
    packet.resize(len, 0x5a);
    packet
}

#[test]
fn an_unknown_version_is_answered_with_ours_and_a_reserved_one() {
    for (dcid, scid) in [
        (vec![1; 8], vec![2; 5]),
        (vec![3; 255], vec![4; 200]),
        (vec![], vec![]),
    ] {
        let mut pair = Pair::new(Options::default());
        let from: SocketAddr = "10.9.9.9:9".parse().unwrap();
        let packet = unknown_version(0xbabe_baba, &dcid, &scid, 1200);
        pair.deliver_silently(SERVER, from, &packet);
        let answers = pair.take_datagrams(SERVER);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].0, from);
        match parse_header(&answers[0].1, 8).unwrap() {
            Header::VersionNegotiation {
                dcid: d,
                scid: s,
                versions,
            } => {
                assert_eq!((d, s), (&scid[..], &dcid[..]));
                let versions: Vec<u32> = versions.iter().collect();
                assert_eq!(versions[0], 1);
                assert_eq!(versions[1] & 0x0f0f_0f0f, 0x0a0a_0a0a);
            }
            other => panic!("{other:?}"),
        }
        let stats = pair.hosts[SERVER].endpoint.stats();
        assert_eq!((stats.version_negotiations, stats.connections), (1, 0));
    }
}

#[test]
fn a_small_datagram_of_an_unknown_version_is_not_answered() {
    let mut pair = Pair::new(Options::default());
    let packet = unknown_version(0xbabe_baba, &[1; 8], &[2; 8], 1199);
    pair.deliver(SERVER, &packet);
    // A client answers none at all.
    pair.deliver(
        CLIENT,
        &unknown_version(0xbabe_baba, &[1; 8], &[2; 8], 1200),
    );
    assert_eq!(pair.hosts[SERVER].sent_datagrams, 0);
    assert_eq!(pair.hosts[CLIENT].sent_datagrams, 0);
}

#[test]
fn version_negotiation_and_retry_packets_to_a_server_are_not_answered() {
    let mut pair = Pair::new(Options::default());
    pair.deliver(SERVER, &unknown_version(0, &[1; 8], &[2; 8], 1200));
    let mut retry = unknown_version(1, &[1; 8], &[2; 8], 1200);
    retry[0] = 0xf0;
    pair.deliver(SERVER, &retry);
    assert_eq!(pair.hosts[SERVER].sent_datagrams, 0);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().unroutable, 2);
}

#[test]
fn ids_longer_than_20_bytes_are_dropped_in_our_version() {
    let mut pair = Pair::new(Options::default());
    for (d, s) in [(21, 8), (8, 21), (255, 255)] {
        pair.deliver(SERVER, &unknown_version(1, &vec![1; d], &vec![2; s], 1200));
    }
    assert_eq!(pair.hosts[SERVER].sent_datagrams, 0);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().unroutable, 3);
}

#[test]
fn stateless_replies_wait_in_a_queue_of_256_that_no_prefix_fills_alone() {
    let mut pair = Pair::new(Options::default());
    let mut ask = |from: [u8; 4], i: u8| {
        let packet = unknown_version(0xbabe_baba, &[i; 8], &[2; 8], 1200);
        pair.deliver_silently(SERVER, (from, 9).into(), &packet);
    };
    for i in 0..250 {
        ask([10, 9, 9, i], i);
    }
    for i in 0..250 {
        ask([10, 8, i, 1], i);
    }
    let answers = pair.take_datagrams(SERVER);
    let alone = |remote: &SocketAddr| remote.to_string().starts_with("10.9.9.");
    let of_one = answers.iter().filter(|(remote, _)| alone(remote)).count();
    assert_eq!((answers.len(), of_one), (256, 154));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.version_negotiations, stats.over_budget), (256, 244));
}

#[test]
fn a_stateless_reply_is_never_longer_than_what_came() {
    let mut pair = Pair::new(Options {
        retry: RetryPolicy::Always,
        ..Options::default()
    });
    let from: SocketAddr = "10.9.9.9:9".parse().unwrap();
    for len in 1..100 {
        pair.now += ms(50);
        let mut packet = vec![0x55; len];
        packet[0] = 0x41;
        pair.deliver_silently(SERVER, from, &packet);
        for (_, reply) in pair.take_datagrams(SERVER) {
            assert!(
                reply.len() < len && reply.len() >= 21,
                "{} for {len}",
                reply.len()
            );
        }
    }
    assert!(pair.hosts[SERVER].endpoint.stats().resets > 70);
}

#[test]
fn a_client_endpoint_answers_no_datagram_of_another_sender() {
    let mut pair = Pair::connected(Options::default());
    let before = pair.hosts[CLIENT].sent_datagrams;
    let from: SocketAddr = "10.9.9.9:9".parse().unwrap();
    for len in [1usize, 20, 40, 1200] {
        pair.deliver_from(CLIENT, from, &vec![0x47; len]);
        pair.deliver_from(CLIENT, from, &vec![0xc7; len]);
    }
    assert_eq!(pair.hosts[CLIENT].sent_datagrams, before);
}

#[test]
fn random_datagrams_are_counted_and_forgotten() {
    let mut pair = Pair::connected(Options::default());
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize
    };
    let own = [
        pair.hosts[SERVER].last_dcid.clone(),
        pair.hosts[CLIENT].last_dcid.clone(),
    ];
    for i in 0..20_000 {
        let to = i % 2;
        let mut bytes: Vec<u8> = (0..next() % 1300).map(|_| next() as u8).collect();
        // Half of them under a connection ID that exists.
        if next() % 2 == 0 && bytes.len() > 9 {
            bytes[0] = bytes[0] & 0x3f | 0x40;
            bytes[1..9].copy_from_slice(&own[to]);
        }
        pair.deliver(to, &bytes);
    }
    for side in [CLIENT, SERVER] {
        assert_eq!(pair.close_reason(side), None);
        assert_eq!(pair.hosts[side].endpoint.stats().connections, 1);
    }
    pair.transfer(CLIENT, 100_000, secs(5));
}

#[test]
fn datagrams_of_no_byte_and_of_65507_bytes_are_borne() {
    let mut pair = Pair::connected(Options::default());
    for side in [CLIENT, SERVER] {
        for len in [0, 1, 2, 8, 9, 65_507] {
            for first in [0x00, 0x40, 0x80, 0xc0, 0xff] {
                let mut bytes = vec![first; len];
                if len > 9 {
                    bytes[1..9].copy_from_slice(&[0; 8]);
                }
                pair.deliver(side, &bytes);
            }
        }
    }
    pair.transfer(CLIENT, 10_000, secs(5));
}

#[test]
fn a_train_of_datagrams_for_two_connections_reaches_both() {
    // Two clients of one address, their packets in one read of the socket.
    let mut pair = Pair::connected(readable());
    let first = pair.hosts[CLIENT].handle.unwrap();
    let first_server = pair.hosts[SERVER].handle.take().unwrap();
    pair.connect();
    pair.established(secs(1));
    pair.run_for(secs(1));
    let second = pair.hosts[CLIENT].handle.unwrap();
    let mut train = Vec::new();
    for handle in [first, second, first] {
        let connection = pair.hosts[CLIENT].endpoint.connection_mut(handle).unwrap();
        connection
            .send_datagram(bytes::Bytes::from(vec![1; 1000]))
            .unwrap();
        for (_, datagram) in pair.take_datagrams(CLIENT) {
            train.extend_from_slice(&datagram);
        }
    }
    let stride = train.len() / 3;
    assert_eq!(stride * 3, train.len(), "three equal datagrams");
    let remote = pair.hosts[CLIENT].address;
    pair.deliver_train(SERVER, remote, stride, &train);
    let second_server = pair.hosts[SERVER].handle.unwrap();
    for (handle, n) in [(first_server, 2), (second_server, 1)] {
        let connection = pair.hosts[SERVER].endpoint.connection_mut(handle).unwrap();
        let got = std::iter::from_fn(|| connection.recv_datagram()).count();
        assert_eq!(got, n);
    }
}

#[test]
fn without_segmentation_offload_every_datagram_is_its_own_train() {
    let mut pair = Pair::connected(Options::default());
    pair.send_stream(CLIENT, Direction::Unidirectional, &[1; 8000]);
    pair.hosts[CLIENT].train = TrainBuf::with_max_segments(1);
    let trains = pair.take_trains(CLIENT);
    for train in &trains {
        let len = train.datagram.payload.len();
        assert_eq!((len, train.payloads().count()), (train.stride, 1));
        assert!(len <= 1200);
    }
    assert!(trains.len() >= 7);
    let mut pair = Pair::connected(Options::default());
    pair.send_stream(CLIENT, Direction::Unidirectional, &[1; 8000]);
    let trains = pair.take_trains(CLIENT);
    assert_eq!(trains[0].stride, 1200);
    assert_eq!(trains[0].payloads().count(), 7);
}

/// A server that holds at most so many, and `clients` that try.
fn crowd(change: impl FnOnce(&mut towline_quic::ServerConfig), clients: usize) -> Pair {
    let mut pair = Pair::new(Options::default());
    let mut server = pair.server_config.clone();
    change(&mut server);
    pair.hosts[SERVER].endpoint = Endpoint::new(seed(1, 2), Some(Arc::new(server)));
    for _ in 0..clients {
        pair.connect();
    }
    pair
}

#[test]
fn beyond_max_connections_new_clients_are_told_so_at_once() {
    let mut pair = crowd(|s| s.max_connections = 5, 8);
    pair.run_for(ms(25));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.connections, stats.admitted), (5, 5));
    assert_eq!((stats.refused, stats.refusals), (3, 3));
    let events = pair.take_events(CLIENT);
    let words = events.iter().filter_map(|event| match event {
        Event::Closed(word) => Some(word.to_string()),
        _ => None,
    });
    let words: Vec<_> = words.collect();
    let full = "the server refuses the connection: the server is full";
    assert_eq!(words, [full; 3]);
}

#[test]
fn beyond_max_handshakes_new_clients_wait_for_their_turn() {
    let mut pair = crowd(|s| s.max_handshakes = 2, 6);
    pair.run_for(ms(12));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.connections), (2, 2));
    pair.run_for(secs(9));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.connections), (0, 6));
}

#[test]
fn under_load_new_clients_must_prove_their_address_first() {
    let mut pair = crowd(
        |s| {
            s.retry = RetryPolicy::UnderLoad;
            s.retry_threshold = 3;
        },
        10,
    );
    pair.run_for(ms(12));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.retries), (3, 7));
    pair.run_for(secs(5));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 10);
}

#[test]
fn totals_have_every_field_from_the_beginning_and_no_gauges_of_handshakes() {
    let total = |pair: &Pair, name: &str| {
        let totals = pair.hosts[CLIENT].endpoint.connection_totals();
        let found = totals.iter().find(|(field, _)| field.name == name);
        found.unwrap().1
    };
    let mut pair = Pair::new(Options::default());
    assert_eq!(total(&pair, "packets_sent"), Total::Sum(0));
    pair.connect();
    assert!(matches!(total(&pair, "packets_sent"), Total::Sum(1..)));
    let nobody = Total::Spread(Spread::default());
    assert_eq!(total(&pair, "cwnd"), nobody);
    pair.established(secs(1));
    assert_ne!(total(&pair, "cwnd"), nobody);
    assert_ne!(total(&pair, "smoothed_rtt"), nobody);
}

#[test]
fn a_server_that_refuses_new_clients_keeps_its_old_ones() {
    let mut pair = Pair::connected(Options::default());
    let now = pair.now;
    pair.hosts[SERVER].endpoint.set_server_config(now, None);
    let old = pair.hosts[CLIENT].handle;
    pair.connect();
    pair.run_for(secs(1));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 1);
    pair.hosts[CLIENT].handle = old;
    pair.transfer(CLIENT, 10_000, secs(2));
    // Not even a Version Negotiation.
    let before = pair.hosts[SERVER].endpoint.stats().version_negotiations;
    pair.deliver(SERVER, &unknown_version(9, &[1; 8], &[2; 8], 1200));
    let after = pair.hosts[SERVER].endpoint.stats().version_negotiations;
    assert_eq!(before, after);
}

#[test]
fn handles_of_gone_connections_stay_dead_when_their_place_is_reused() {
    let mut pair = Pair::connected(Options::default());
    let old = pair.hosts[CLIENT].handle.unwrap();
    let now = pair.now;
    pair.client().close(now, 0, b"");
    pair.run_for(secs(5));
    for host in &mut pair.hosts {
        host.handle = None;
    }
    pair.connect();
    pair.established(secs(1));
    let new = pair.hosts[CLIENT].handle.unwrap();
    assert_ne!(old, new);
    assert!(pair.hosts[CLIENT].endpoint.connection(old).is_none());
    assert!(pair.hosts[CLIENT].endpoint.connection_mut(old).is_none());
    assert_eq!(
        pair.hosts[CLIENT].endpoint.handles().collect::<Vec<_>>(),
        [new]
    );
}

#[test]
fn two_hundred_connections_share_one_endpoint_and_all_finish() {
    let mut pair = crowd(|_| {}, 200);
    pair.run_for(secs(2));
    let handles: Vec<_> = pair.hosts[CLIENT].endpoint.handles().collect();
    assert_eq!(handles.len(), 200);
    for &handle in &handles {
        let c = pair.hosts[CLIENT].endpoint.connection_mut(handle).unwrap();
        let id = c.open(Direction::Unidirectional).unwrap();
        c.write_slice(id, &common::pattern(5000)).unwrap();
        c.finish(id).unwrap();
    }
    pair.run_for(secs(2));
    let handles: Vec<_> = pair.hosts[SERVER].endpoint.handles().collect();
    for handle in handles {
        let c = pair.hosts[SERVER].endpoint.connection_mut(handle).unwrap();
        let id = c.accept(Direction::Unidirectional).unwrap();
        let mut got = Vec::new();
        while let Some(chunk) = c.read(id, usize::MAX).unwrap() {
            got.extend_from_slice(&chunk);
        }
        assert!(got == common::pattern(5000));
    }
}

#[test]
fn timers_are_never_due_twice_without_progress() {
    // Every wake-up either sends, delivers or moves its deadline forward.
    let mut pair = Pair::connected(Options {
        link: towline_sim::LinkConfig {
            loss: towline_sim::LossModel::Bernoulli(0.1),
            rate: Some(5_000_000),
            ..common::delay(15)
        },
        ..Options::default()
    });
    pair.send_stream(CLIENT, Direction::Unidirectional, &common::pattern(400_000));
    let end = pair.now + secs(20);
    let mut wakes = 0u32;
    while pair.now < end {
        pair.flush();
        for host in &pair.hosts {
            if let Some(at) = host.endpoint.next_timeout() {
                assert!(at > pair.now, "a deadline in the past after a drain");
            }
        }
        let before = pair.now;
        if !pair.step() {
            break;
        }
        wakes = if pair.now == before { wakes + 1 } else { 0 };
        assert!(wakes < 100, "busy at {before:?}");
    }
}

#[test]
fn the_local_address_is_the_one_that_authentic_packets_were_sent_to() {
    let mut pair = Pair::connected(Options::default());
    assert_eq!(pair.server().local_ip(), None, "nobody told it");
    let sent_to = |pair: &mut Pair, last: u8, datagram: &[u8]| {
        let meta = DatagramMeta {
            remote: pair.hosts[CLIENT].address,
            local_ip: Some([10, 0, 0, last].into()),
            ecn: None,
            stride: datagram.len(),
        };
        let now = pair.now;
        let endpoint = &mut pair.hosts[SERVER].endpoint;
        endpoint.handle_datagrams(now, meta, &mut datagram.to_vec());
        pair.server().local_ip()
    };
    pair.client().ping();
    let ping = pair.take_datagrams(CLIENT).remove(0).1;
    let mut forged = ping.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(sent_to(&mut pair, 9, &forged), None);
    assert_eq!(sent_to(&mut pair, 2, &ping), Some([10, 0, 0, 2].into()));
    // A copy says nothing new.
    assert_eq!(sent_to(&mut pair, 8, &ping), Some([10, 0, 0, 2].into()));
}
