//! What a hostile review of the engine found, as small scenarios.

mod common;

use bytes::Bytes;
use common::evil::{Evil, long_packet, payload};
use common::{CLIENT, Options, Pair, SERVER, ms, readable, secs};
use towline_quic::{Direction, Event, TransportConfig};
use towline_wire::*;

const UNI: Direction = Direction::Unidirectional;

#[test]
fn a_lost_streams_blocked_is_sent_again_while_the_limit_is_in_the_way() {
    let mut options = readable();
    options.server.max_concurrent_uni_streams = 100;
    let mut pair = Pair::connected(options);
    let seen = pair.drop_first(CLIENT, 1, |f| matches!(f, Frame::StreamsBlocked { .. }));
    let streams: Vec<_> = (0..100).map(|_| pair.client().open(UNI).unwrap()).collect();
    for &id in &streams {
        pair.client().write_slice(id, b"x").unwrap();
    }
    // One is over: too few for a MAX_STREAMS that nobody asked for.
    pair.client().finish(streams[0]).unwrap();
    pair.run_for(secs(1));
    let first = pair.server().accept(UNI).unwrap();
    let mut out = [0; 9];
    while !matches!(pair.server().read_slice(first, &mut out), Ok(None)) {}
    pair.run_for(secs(1));
    assert_eq!(pair.client().open(UNI), None);
    pair.run_for(secs(5));
    assert_eq!(seen.count(), 2);
    let wanted = Event::StreamsAvailable(UNI);
    assert!(pair.take_event(CLIENT, |e| *e == wanted).is_some());
    assert!(pair.client().open(UNI).is_some());
}

#[test]
fn lost_data_blocked_frames_are_sent_again_while_the_limit_is_in_the_way() {
    for stream_limit in [true, false] {
        let mut options = readable();
        if stream_limit {
            options.server.stream_receive_window = 1000;
            options.server.max_stream_receive_window = 1000;
        } else {
            options.server.receive_window = 1000;
            options.server.max_receive_window = 1000;
        }
        let mut pair = Pair::connected(options);
        let blocked =
            |f: &Frame<'_>| matches!(f, Frame::StreamDataBlocked { .. } | Frame::DataBlocked(_));
        let seen = pair.drop_first(CLIENT, 1, blocked);
        let id = pair.client().open(UNI).unwrap();
        pair.client().write_slice(id, &[0; 3000]).unwrap();
        pair.run_for(ms(100));
        // Something to build a packet for.
        pair.client().ping();
        pair.run_for(secs(3));
        assert!(seen.count() >= 2, "{}", seen.count());
    }
}

#[test]
fn hellos_that_fail_at_once_count_as_handshakes_until_they_are_gone() {
    let mut pair = Pair::new(readable());
    let scid = [7; 8];
    for n in 0..10u8 {
        let bytes = payload(|w| {
            let code = TransportErrorCode::NO_ERROR;
            write_connection_close(w, &CloseFrame::transport(code, 0, b""));
            write_padding(w, 1170);
        });
        let packet = long_packet(LongType::Initial, &[n; 8], &scid, b"", 0, &bytes);
        pair.deliver(SERVER, &packet);
    }
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.connections), (10, 10));
    pair.run_for(secs(10));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.connections), (0, 0));
}

#[test]
fn a_client_that_has_sent_nothing_yet_has_no_probe_to_send() {
    let mut pair = Pair::new(Options::default());
    let remote = pair.hosts[SERVER].address;
    let (now, config) = (pair.now, pair.client_config.clone());
    let endpoint = &mut pair.hosts[CLIENT].endpoint;
    endpoint
        .connect(now, &config, remote, towline_testkit::SERVER_NAME)
        .unwrap();
    assert!(endpoint.next_timeout().is_some_and(|at| at > now));
}

#[test]
fn a_peer_that_pings_for_ever_and_acknowledges_nothing_costs_bounded_memory() {
    let mut evil = Evil::against(SERVER);
    let s = evil.pair.server().open(UNI).unwrap();
    evil.pair
        .server()
        .write_slice(s, b"never acknowledged")
        .unwrap();
    let pings = 280_000;
    let held = |evil: &Evil| evil.pair.hosts[SERVER].endpoint.stats().memory;
    let (before, held_before) = (evil.pair.hosts[SERVER].sent_datagrams, held(&evil));
    for _ in 0..pings {
        evil.send(write_ping);
    }
    let sent = evil.pair.hosts[SERVER].sent_datagrams - before;
    assert!(sent <= pings, "an answer to each at most: {sent}");
    // The frame in front is in flight for ever; the acknowledgements behind it are not kept.
    let more = held(&evil) - held_before;
    assert!(more <= 256 << 10, "{more} bytes more");
    evil.assert_open();
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

#[test]
fn a_server_with_large_packets_answers_the_first_hello() {
    let mut pair = Pair::new(Options {
        server: TransportConfig {
            mtu: 9000,
            ..TransportConfig::default()
        },
        ..Options::default()
    });
    pair.connect();
    pair.established(ms(200));
}

#[test]
fn a_keep_alive_interval_of_zero_is_none() {
    let mut options = Options::default();
    options.client.keep_alive_interval = Some(secs(0));
    let mut pair = Pair::connected(options);
    pair.run_for(secs(1));
}
