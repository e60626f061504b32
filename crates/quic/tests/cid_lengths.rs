//! Connection IDs of four bytes, and none at all.

mod common;

use std::sync::Arc;

use common::evil::{Evil, long_packet};
use common::{CLIENT, Options, Pair, SERVER, cids, ms, pattern, readable, secs, seed};
use towline_quic::{
    CidGenerator, ClientConfig, ConnectError, ConnectionError, Direction, Endpoint, NoCids,
    ShardedCid, TransportErrorCode,
};
use towline_wire::{
    ConnectionId, FrameType, LongType, NewConnectionIdFrame, StatelessResetToken, peek_dcid,
    write_new_connection_id, write_retire_connection_id,
};

const UNI: Direction = Direction::Unidirectional;

fn with_lens(client: usize, server: usize) -> Options {
    Options {
        cid_lens: [client, server],
        ..readable()
    }
}

/// Lengths of the destination IDs in the short headers that `side` sends.
fn short_headers(pair: &mut Pair, side: usize) -> std::rc::Rc<std::cell::RefCell<Vec<Vec<u8>>>> {
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let headers = std::rc::Rc::clone(&seen);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == side && datagram[0] & 0x80 == 0 {
            headers.borrow_mut().push(datagram[..21].to_vec());
        }
        true
    }));
    seen
}

#[test]
fn short_ids_and_none_carry_a_transfer_each_way() {
    for (client, server) in [(4, 4), (0, 4), (0, 8), (0, 20), (4, 8), (20, 5)] {
        let mut pair = Pair::connected(with_lens(client, server));
        pair.transfer(CLIENT, 300_000, secs(10));
        pair.transfer(SERVER, 300_000, secs(10));
        pair.client().initiate_key_update();
        pair.transfer(CLIENT, 100_000, secs(10));
        assert_eq!(pair.close_reason(CLIENT), None, "{client} and {server}");
        assert_eq!(pair.close_reason(SERVER), None, "{client} and {server}");
        // What the peer sends has the ID of that length: the packets of one direction fit into less.
        let sent = |p: &mut Pair, side| {
            p.transfer(side, 100_000, secs(10));
            p.conn(side).stats().packets_sent
        };
        assert!(sent(&mut pair, SERVER) > 0);
    }
}

#[test]
fn packets_to_a_client_without_ids_begin_with_the_packet_number() {
    let mut pair = Pair::connected(with_lens(0, 4));
    pair.run_for(ms(200));
    let to_client = short_headers(&mut pair, SERVER);
    pair.transfer(SERVER, 5_000, secs(1));
    assert!(!to_client.borrow().is_empty());
    // Numbers count up right behind the first byte (plaintext packets, one-byte numbers).
    let numbers: Vec<u8> = to_client.borrow().iter().map(|h| h[1]).collect();
    assert!(numbers.windows(2).all(|w| w[0] < w[1]), "{numbers:?}");
    let to_server = short_headers(&mut pair, CLIENT);
    pair.transfer(CLIENT, 5_000, secs(1));
    let ids: std::collections::BTreeSet<Vec<u8>> = to_server
        .borrow()
        .iter()
        .map(|h| peek_dcid(h, 4).unwrap().to_vec())
        .collect();
    assert_eq!(ids.len(), 1, "{ids:x?}");
}

#[test]
fn a_client_without_ids_gives_none_and_a_server_takes_none_back() {
    let mut pair = Pair::connected(with_lens(0, 8));
    // Every frame of the client's, to the server's IDs of eight bytes.
    let given = pair.watch(CLIENT, |f| {
        matches!(f, towline_wire::Frame::NewConnectionId(_))
    });
    pair.transfer(CLIENT, 50_000, secs(5));
    pair.run_for(secs(1));
    assert_eq!(given.count(), 0);
}

fn evil_server() -> Evil {
    let mut pair = Pair::connected(with_lens(0, 8));
    pair.run_for(ms(200));
    let mut evil = Evil::take_over(pair, CLIENT);
    evil.dcid = Vec::new();
    evil
}

#[test]
fn retiring_an_id_of_no_length_is_a_protocol_violation() {
    for sequence in [0, 1] {
        let mut evil = evil_server();
        evil.send(|w| write_retire_connection_id(w, sequence));
        let code = TransportErrorCode::PROTOCOL_VIOLATION;
        let frame = FrameType::RETIRE_CONNECTION_ID;
        match evil.pair.close_reason(CLIENT) {
            Some(ConnectionError::PeerMisbehaved {
                code: found,
                frame: Some(in_frame),
                ..
            }) => assert_eq!((found, in_frame), (code, frame)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_without_ids_takes_those_of_its_server() {
    let mut evil = evil_server();
    let frame = NewConnectionIdFrame {
        sequence: 9,
        retire_prior_to: 9,
        cid: ConnectionId::new(&[5; 12]).unwrap(),
        reset_token: StatelessResetToken::new([5; 16]),
    };
    evil.send(|w| write_new_connection_id(w, &frame));
    evil.pair.client().ping();
    evil.pair.run_for(ms(50));
    assert_eq!(evil.pair.close_reason(CLIENT), None);
    let last = evil.pair.hosts[SERVER].captured.last().unwrap();
    assert_eq!(peek_dcid(last, 12).unwrap(), [5; 12]);
}

#[test]
fn packets_from_elsewhere_are_no_packets_of_a_connection_without_ids() {
    let mut evil = evil_server();
    let packet = evil.packet(&[1]);
    let before = evil.pair.client().stats().packets_received;
    let elsewhere = "10.9.9.9:2000".parse().unwrap();
    evil.pair.deliver_from(CLIENT, elsewhere, &packet);
    assert_eq!(evil.pair.client().stats().packets_received, before);
    evil.pair.deliver(CLIENT, &packet);
    assert_eq!(evil.pair.client().stats().packets_received, before + 1);
}

#[test]
fn a_stateless_reset_ends_a_connection_without_ids_and_one_of_short_ids() {
    for lens in [(0, 8), (4, 4), (0, 4)] {
        let mut pair = Pair::connected(with_lens(lens.0, lens.1));
        pair.run_for(ms(200));
        // The server forgets everything but its keys.
        let mut restarted = seed(readable().seed, 2);
        restarted.cid_generator = cids(lens.1);
        let server = Some(Arc::new(pair.server_config.clone()));
        pair.hosts[SERVER].endpoint = Endpoint::new(restarted, server);
        let id = pair.client().open(UNI).unwrap();
        pair.client().write_slice(id, &pattern(1_000)).unwrap();
        let error = pair.run_until_closed(CLIENT, secs(2));
        assert_eq!(error, ConnectionError::StatelessReset, "{lens:?}");
    }
}

#[test]
fn without_ids_there_is_one_connection_with_a_server_at_a_time() {
    let tls = towline_testkit::tls_pair(1, &readable().tls);
    let config = ClientConfig::new(tls.client);
    let mut client = Endpoint::new(seed(1, 1).cid_generator(Box::new(NoCids)), None);
    let now = towline_quic::Time::ZERO;
    let server = |n: u8| std::net::SocketAddr::from(([10, 0, 0, n], 443));
    let name = "10.0.0.2";
    let first = client.connect(now, &config, server(2), name).unwrap();
    let again = client.connect(now, &config, server(2), name);
    assert_eq!(again, Err(ConnectError::AlreadyConnected(server(2))));
    client.connect(now, &config, server(3), name).unwrap();
    client.connection_mut(first).unwrap().close(now, 0, b"");
    client.handle_timeout(now + secs(60));
    while client.poll_event().is_some() {}
    client
        .connect(now + secs(60), &config, server(2), name)
        .unwrap();
}

#[test]
fn an_endpoint_without_ids_takes_no_clients() {
    let mut pair = Pair::new(with_lens(8, 0));
    pair.connect();
    pair.run_for(secs(1));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 0);
}

#[test]
fn ids_of_every_shard_have_its_number_and_the_length_that_was_asked_for() {
    for len in 4..=20 {
        let mut cids = ShardedCid::with_len(3, len).unwrap();
        assert_eq!(cids.cid_len(), len);
        let mut other = cids.for_shard(9).unwrap();
        let (a, b) = (cids.generate(&[7; 20]), other.generate(&[7; 20]));
        assert_eq!((a.len(), a[0]), (len, 3));
        assert_eq!((b.len(), b[0]), (len, 9));
        assert_eq!(a[1..], b[1..]);
        assert_eq!(ShardedCid::shard_of(&a), Some(3));
    }
    for len in [0, 1, 3, 21, usize::MAX] {
        let error = ShardedCid::with_len(0, len).unwrap_err();
        assert_eq!(error.setting, "cid_len");
    }
    assert_eq!(NoCids.for_shard(5).unwrap().cid_len(), 0);
}

#[test]
fn packets_are_long_enough_to_be_answered_by_a_reset() {
    for lens in [[8, 8], [0, 8], [4, 20], [20, 4], [0, 4]] {
        let mut pair = Pair::connected(with_lens(lens[0], lens[1]));
        pair.run_for(ms(200));
        let least = std::rc::Rc::new(std::cell::RefCell::new([usize::MAX; 2]));
        let seen = std::rc::Rc::clone(&least);
        pair.tap = Some(Box::new(move |from, datagram| {
            if datagram[0] & 0x80 == 0 {
                let mut least = seen.borrow_mut();
                least[from] = least[from].min(datagram.len());
            }
            true
        }));
        for side in [CLIENT, SERVER] {
            pair.conn(side).ping();
            pair.run_for(ms(200));
        }
        for side in [CLIENT, SERVER] {
            assert!(
                least.borrow()[side] >= lens[side] + 22,
                "{lens:?}: {least:?}"
            );
        }
    }
}

#[test]
fn a_retry_gives_an_id_of_the_servers_length() {
    for (client, server) in [(8, 4), (0, 4), (0, 20)] {
        let mut pair = Pair::connected(Options {
            retry: towline_quic::RetryPolicy::Always,
            ..with_lens(client, server)
        });
        pair.transfer(CLIENT, 10_000, secs(5));
        assert_eq!(pair.hosts[SERVER].endpoint.stats().retries, 1);
    }
}

#[test]
fn a_short_first_destination_with_a_token_of_nobodys_is_ignored() {
    let mut pair = Pair::new(with_lens(8, 4));
    let initial = long_packet(LongType::Initial, &[7; 4], &[1; 8], &[9; 60], 0, &[0; 1150]);
    pair.deliver(SERVER, &initial);
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.connections, stats.refused), (0, 1));
    assert!(pair.take_datagrams(SERVER).is_empty());
}
