//! The endpoint's memory account: what it counts, who goes when it is full, and who stays.
#![expect(clippy::print_stdout, reason = "figures for whoever reads the log")]

mod common;

use bytes::Bytes;
use common::evil::Evil;
use common::{CLIENT, Options, Pair, SERVER, ms, pattern, secs};
use towline_quic::{ConnectionError, ConnectionHandle, Direction, Event, TransportConfig};
use towline_wire::write_ping;

const LIMIT: u64 = 16 << 20;

/// One datagram may bring so much before anybody is asked to go: a block and a few records.
const SLACK: u64 = 128 << 10;

fn limited(seed: u64) -> Options {
    let patient = TransportConfig::default().max_idle_timeout(secs(600));
    Options {
        seed,
        client: patient.clone(),
        server: patient,
        memory_limit: Some(LIMIT),
        ..Options::default()
    }
}

/// Opens `n` more connections at the client and lets them finish their handshakes.
fn more_connections(pair: &mut Pair, n: usize) -> Vec<ConnectionHandle> {
    let remote = pair.hosts[SERVER].address;
    let config = pair.client_config.clone();
    let now = pair.now;
    let handles: Vec<_> = (0..n)
        .map(|_| {
            let endpoint = &mut pair.hosts[CLIENT].endpoint;
            endpoint
                .connect(now, &config, remote, towline_testkit::SERVER_NAME)
                .unwrap()
        })
        .collect();
    pair.run_for(secs(2));
    handles
}

fn held(pair: &Pair) -> u64 {
    pair.hosts[SERVER].endpoint.stats().memory
}

#[test]
fn a_crowd_that_nobody_reads_goes_and_a_transfer_that_moves_stays() {
    for seed in 1..=3 {
        let mut pair = Pair::connected(limited(seed));
        let crowd = more_connections(&mut pair, 60);
        // Each of the crowd sends 400 kB that the server's application never reads.
        for &handle in &crowd {
            let connection = pair.hosts[CLIENT].endpoint.connection_mut(handle).unwrap();
            let id = connection.open(Direction::Unidirectional).unwrap();
            connection
                .write(id, &mut Bytes::from(vec![7; 400_000]))
                .unwrap();
        }
        let honest = pair.hosts[SERVER].handle.unwrap();
        let took = pair.transfer(CLIENT, 8_000_000, secs(60));
        let stats = pair.hosts[SERVER].endpoint.stats();
        println!(
            "seed {seed}: {took:?}, most {} of {LIMIT}, {} shed",
            stats.memory_most, stats.shed
        );
        assert!(stats.memory_most <= LIMIT + SLACK, "{}", stats.memory_most);
        assert!(stats.shed > 10, "{}", stats.shed);
        assert!(!pair.server().is_closed(), "{honest:?}");
        // Those who went were told, and the application heard why.
        let told = pair.take_events(SERVER).into_iter();
        let told = told.filter(|e| *e == Event::Closed(ConnectionError::Shed));
        assert_eq!(told.count() as u64, stats.shed);
    }
}

#[test]
fn near_the_limit_no_client_is_admitted_and_those_there_go_on() {
    let mut pair = Pair::connected(limited(4));
    let crowd = more_connections(&mut pair, 12);
    let streams: Vec<_> = crowd
        .iter()
        .map(|&handle| {
            let connection = pair.hosts[CLIENT].endpoint.connection_mut(handle).unwrap();
            connection.open(Direction::Unidirectional).unwrap()
        })
        .collect();
    // In small steps, and each looked at when what a busy time needs is given back.
    while held(&pair) <= LIMIT - LIMIT / 16 {
        for (&handle, &id) in crowd.iter().zip(&streams) {
            let connection = pair.hosts[CLIENT].endpoint.connection_mut(handle).unwrap();
            let mut data = Bytes::from(vec![7; 16_000]);
            connection.write(id, &mut data).unwrap();
        }
        pair.run_for(ms(1500));
    }
    assert!(held(&pair) <= LIMIT);
    let before = pair.hosts[SERVER].endpoint.stats();
    assert_eq!(before.shed, 0);
    more_connections(&mut pair, 1);
    let after = pair.hosts[SERVER].endpoint.stats();
    assert_eq!(after.admitted, before.admitted);
    assert!(after.refused > before.refused);
    let data = pattern(1000);
    pair.send_stream(CLIENT, Direction::Unidirectional, &data);
    let id = pair.accept(SERVER, Direction::Unidirectional, secs(5));
    assert_eq!(pair.read_to_end(SERVER, id, secs(5)), data);
}

#[test]
fn what_was_given_back_leaves_the_account() {
    let mut pair = Pair::connected(limited(5));
    let empty = held(&pair);
    pair.transfer(CLIENT, 4_000_000, secs(60));
    let busy = pair.hosts[SERVER].endpoint.stats().memory_most;
    assert!(busy > empty + 100_000, "{empty} then {busy}");
    pair.run_for(secs(5));
    assert!(held(&pair) <= empty, "{empty} then {}", held(&pair));
    pair.client();
    let now = pair.now;
    pair.client().close(now, 0, b"");
    pair.run_for(secs(5));
    assert_eq!(held(&pair), 0);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 0);
}

#[test]
fn what_is_written_into_a_full_window_counts_at_once() {
    let mut pair = Pair::connected(limited(4));
    more_connections(&mut pair, 60);
    let server = &mut pair.hosts[SERVER].endpoint;
    let handles: Vec<_> = server.handles().collect();
    let streams: Vec<_> = handles
        .iter()
        .map(|&handle| {
            let connection = server.connection_mut(handle).unwrap();
            (handle, connection.open(Direction::Unidirectional).unwrap())
        })
        .collect();
    // No acknowledgement comes back: after the first flight nothing leaves any more.
    for _ in 0..20 {
        for &(handle, id) in &streams {
            let server = &mut pair.hosts[SERVER].endpoint;
            if let Some(connection) = server.connection_mut(handle) {
                let _ = connection.write_slice(id, &[7; 20_000]);
            }
            pair.take_trains(SERVER);
        }
    }
    let stats = pair.hosts[SERVER].endpoint.stats();
    println!("most {} of {LIMIT}, {} shed", stats.memory_most, stats.shed);
    assert!(stats.memory_most <= LIMIT + SLACK, "{}", stats.memory_most);
    let held: usize = 20_000 * 20 * (streams.len() - stats.shed as usize);
    assert!(
        stats.memory >= held as u64 / 2,
        "{} of {held}",
        stats.memory
    );
    assert!(stats.shed > 10, "{}", stats.shed);
}

#[test]
fn a_peer_that_pings_for_ever_and_acknowledges_nothing_costs_bounded_memory() {
    let mut evil = Evil::against(SERVER);
    let s = evil.pair.server().open(Direction::Unidirectional).unwrap();
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
