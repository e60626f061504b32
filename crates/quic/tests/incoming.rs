//! An application that decides about each client before a TLS session is made for it.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::evil::long_packet;
use common::{CLIENT, Options, Pair, SERVER, ms, readable, secs, seed};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use towline_quic::{
    AcceptError, Direction, Endpoint, EndpointConfig, EndpointStats, Incoming, MAX_INCOMING_WAIT,
    RetryPolicy, ServerConfig, TransportConfig,
};
use towline_sim::{LinkConfig, LossModel};
use towline_testkit::TlsOptions;
use towline_wire::{Header, LongType, parse_header};

/// Bytes that a client may take while it waits, beside its datagrams.
const OVERHEAD: u64 = 8 << 10;

/// A pair whose server's application decides.
fn deciding(options: Options) -> Pair {
    deciding_with(options, |_, _| {})
}

fn deciding_with(
    options: Options,
    change: impl FnOnce(&mut ServerConfig, &mut EndpointConfig),
) -> Pair {
    let mut pair = Pair::new(options);
    let mut server = pair.server_config.clone();
    let mut config = seed(1, 2);
    config.hold_incoming = true;
    change(&mut server, &mut config);
    pair.hosts[SERVER].endpoint = Endpoint::new(config, Some(Arc::new(server)));
    pair
}

fn stats(pair: &Pair) -> EndpointStats {
    pair.hosts[SERVER].endpoint.stats()
}

/// The next client that waits.
fn next(pair: &mut Pair) -> Incoming {
    let incoming = pair.hosts[SERVER].endpoint.poll_incoming();
    incoming.expect("nobody asks for a connection")
}

/// A client has asked, and waits.
fn asked(pair: &mut Pair) -> Incoming {
    pair.connect();
    pair.run_for(ms(15));
    next(pair)
}

fn accept(pair: &mut Pair, incoming: Incoming) {
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    let handle = endpoint.accept_incoming(now, incoming.handle, None);
    pair.hosts[SERVER].handle = Some(handle.unwrap());
}

/// What the client's connection ended with, in words.
fn close_reason(pair: &mut Pair) -> Option<String> {
    pair.close_reason(CLIENT).map(|word| word.to_string())
}

/// The first datagram of a client of `pair`, and its source connection ID; it was not sent.
fn first_datagram(pair: &mut Pair) -> (Vec<u8>, Vec<u8>) {
    let remote = pair.hosts[SERVER].address;
    let (now, config) = (pair.now, pair.client_config.clone());
    let endpoint = &mut pair.hosts[CLIENT].endpoint;
    let name = towline_testkit::SERVER_NAME;
    let handle = endpoint.connect(now, &config, remote, name).unwrap();
    let mut train = towline_quic::TrainBuf::new();
    let sent = endpoint.poll_transmit(now, &mut train).unwrap();
    let datagram = train.filled()[..sent.segment_size].to_vec();
    while endpoint.poll_transmit(now, &mut train).is_some() {}
    // It never hears an answer, and says nothing more.
    endpoint.connection_mut(handle).unwrap().close(now, 0, b"");
    while endpoint.poll_transmit(now, &mut train).is_some() {}
    let Ok(Header::Long { scid, .. }) = parse_header(&datagram, 8) else {
        panic!("the first packet is no Initial");
    };
    let scid = scid.to_vec();
    (datagram, scid)
}

/// A readable hello with another destination.
fn with_destination(first: &[u8], n: u32) -> Vec<u8> {
    let mut packet = first.to_vec();
    let len = usize::from(packet[5]);
    packet[6..6 + len].fill(0x33);
    packet[6..10].copy_from_slice(&n.to_be_bytes());
    packet
}

/// What the server has to send goes nowhere.
fn silence(pair: &mut Pair) {
    let mut train = towline_quic::TrainBuf::new();
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    while endpoint.poll_transmit(now, &mut train).is_some() {}
}

#[test]
fn nothing_is_made_for_a_client_before_the_decision() {
    let mut pair = deciding(Options::default());
    let incoming = asked(&mut pair);
    assert_eq!(incoming.remote, pair.hosts[CLIENT].address);
    assert!(!incoming.is_validated);
    let first = pair.hosts[CLIENT].last_dcid.clone();
    assert_eq!(incoming.original_destination.as_slice(), first);
    assert_eq!(pair.hosts[SERVER].endpoint.poll_incoming(), None);
    // It asks again and again, and is still one client.
    pair.run_for(secs(1));
    assert!(pair.hosts[CLIENT].sent_datagrams > 1);
    assert_eq!(pair.hosts[SERVER].sent_datagrams, 0);
    let waiting = stats(&pair);
    assert_eq!((waiting.incoming, waiting.connections), (1, 0));
    assert_eq!((waiting.admitted, waiting.handshakes), (0, 0));
    let datagrams = 1200 * pair.hosts[CLIENT].sent_datagrams;
    assert!(waiting.memory >= datagrams && waiting.memory < datagrams + OVERHEAD);
    assert_eq!(pair.hosts[SERVER].endpoint.poll_incoming(), None);

    accept(&mut pair, incoming);
    pair.established(secs(1));
    pair.transfer(CLIENT, 100_000, secs(5));
    let after = stats(&pair);
    assert_eq!((after.incoming, after.connections), (0, 1));
    assert_eq!((after.admitted, after.handshakes), (1, 0));
}

#[test]
fn an_endpoint_that_does_not_ask_has_nobody_wait() {
    let mut pair = Pair::connected(Options::default());
    assert_eq!(pair.hosts[SERVER].endpoint.poll_incoming(), None);
    assert_eq!(stats(&pair).admitted, 1);
}

#[test]
fn a_refused_client_is_told_at_once() {
    let mut pair = deciding(Options::default());
    let incoming = asked(&mut pair);
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.refuse_incoming(now, incoming.handle);
    pair.run_for(ms(15));
    let word = close_reason(&mut pair).expect("nobody told it");
    assert_eq!(word, "the server refuses the connection");
    let stats = stats(&pair);
    assert_eq!((stats.incoming, stats.connections), (0, 0));
    assert_eq!((stats.refused, stats.refusals, stats.memory), (1, 1, 0));
}

#[test]
fn an_ignored_client_hears_nothing_and_may_ask_again() {
    let mut pair = deciding(Options::default());
    let incoming = asked(&mut pair);
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.ignore_incoming(incoming.handle);
    assert_eq!((stats(&pair).incoming, stats(&pair).memory), (0, 0));
    pair.run_for(secs(1));
    assert_eq!(pair.hosts[SERVER].sent_datagrams, 0);
    assert_eq!(close_reason(&mut pair), None);
    let again = next(&mut pair);
    assert_ne!(again.handle, incoming.handle);
    assert_eq!(again.original_destination, incoming.original_destination);
}

#[test]
fn a_client_that_answered_a_retry_is_validated_and_gets_no_second_one() {
    let mut pair = deciding(Options::default());
    let first = asked(&mut pair);
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    assert!(endpoint.retry_incoming(now, first.handle));
    pair.run_for(ms(30));
    let second = next(&mut pair);
    assert!(second.is_validated);
    assert_eq!(second.original_destination, first.original_destination);
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    assert!(!endpoint.retry_incoming(now, second.handle));
    assert_eq!((stats(&pair).incoming, stats(&pair).retries), (1, 1));
    accept(&mut pair, second);
    pair.established(secs(1));
    pair.transfer(CLIENT, 10_000, secs(5));
}

#[test]
fn where_retry_is_the_rule_only_validated_clients_wait() {
    let mut pair = deciding(Options {
        retry: RetryPolicy::Always,
        ..Options::default()
    });
    pair.connect();
    pair.run_for(ms(35));
    assert!(next(&mut pair).is_validated);
    assert_eq!(pair.hosts[SERVER].endpoint.poll_incoming(), None);
}

#[test]
fn a_hello_of_two_datagrams_waits_whole() {
    let mut pair = deciding(Options {
        tls: TlsOptions {
            post_quantum: true,
            ..TlsOptions::default()
        },
        ..Options::default()
    });
    let incoming = asked(&mut pair);
    assert_eq!(pair.hosts[CLIENT].sent_datagrams, 2);
    let decided = pair.now;
    accept(&mut pair, incoming);
    pair.established(secs(1));
    // Neither end had to send anything again.
    assert!(pair.now <= decided + ms(35), "{:?}", pair.now);
}

#[test]
fn what_a_waiting_client_sends_is_kept_up_to_ten_datagrams_and_16_kib() {
    let mut pair = deciding(readable());
    let (first, scid) = first_datagram(&mut pair);
    let Ok(Header::Long { dcid, .. }) = parse_header(&first, 8) else {
        panic!("no Initial");
    };
    let dcid = dcid.to_vec();
    let client = pair.hosts[CLIENT].address;
    let more = |len: usize| {
        let mut packet = long_packet(LongType::Initial, &dcid, &scid, b"", 1, &[1; 64]);
        packet.resize(len, 0);
        packet
    };
    pair.deliver_silently(SERVER, client, &first);
    let one = stats(&pair).memory;
    // Too short for an Initial (RFC 9000 §14.1): not this client's.
    pair.deliver_silently(SERVER, client, &more(1199));
    assert_eq!(stats(&pair).memory, one);
    // From elsewhere: another client, until it is decided about.
    pair.deliver_silently(SERVER, "10.0.0.9:1000".parse().unwrap(), &more(1200));
    assert_eq!((stats(&pair).memory, stats(&pair).incoming), (2 * one, 2));
    let asking = |pair: &mut Pair| pair.hosts[SERVER].endpoint.poll_incoming().unwrap();
    assert_eq!(asking(&mut pair).remote, client);
    let other = asking(&mut pair).handle;
    pair.hosts[SERVER].endpoint.ignore_incoming(other);
    assert_eq!(stats(&pair).memory, one);
    for _ in 0..9 {
        pair.deliver_silently(SERVER, client, &more(1200));
    }
    let ten = stats(&pair).memory;
    assert!(
        ten >= one + 9 * 1200 && ten < one + 9 * 1200 + 2048,
        "{ten}"
    );
    for _ in 0..1000 {
        pair.deliver_silently(SERVER, client, &more(1200));
    }
    assert_eq!((stats(&pair).memory, stats(&pair).incoming), (ten, 1));

    let mut pair = deciding(readable());
    pair.deliver_silently(SERVER, client, &first);
    pair.deliver_silently(SERVER, client, &more(16_384 - first.len() + 1));
    assert_eq!(stats(&pair).memory, one);
    pair.deliver_silently(SERVER, client, &more(16_384 - first.len()));
    assert!(stats(&pair).memory >= one + 15_000);

    let mut pair = deciding(readable());
    let mut long = first.clone();
    long.resize(16_385, 0);
    pair.deliver_silently(SERVER, client, &long);
    let stats = stats(&pair);
    assert_eq!((stats.incoming, stats.memory, stats.refusals), (0, 0, 1));
}

#[test]
fn a_client_that_nobody_decides_about_is_forgotten_after_ten_seconds() {
    let mut pair = deciding(Options::default());
    Arc::make_mut(&mut pair.client_config.transport).handshake_timeout = secs(60);
    let incoming = asked(&mut pair);
    pair.hosts[CLIENT].hijacked = true;
    pair.run_for(MAX_INCOMING_WAIT - ms(10));
    assert_eq!(stats(&pair).incoming, 1);
    pair.run_for(ms(10));
    let late = stats(&pair);
    assert_eq!(
        (late.incoming, late.incoming_dropped, late.memory),
        (0, 1, 0)
    );
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    let accepted = endpoint.accept_incoming(now, incoming.handle, None);
    assert_eq!(accepted, Err(AcceptError::Gone));
    let word = AcceptError::Gone.to_string();
    assert!(word.contains("10 s passed"), "{word}");
    endpoint.refuse_incoming(now, incoming.handle);
    endpoint.ignore_incoming(incoming.handle);
    assert!(endpoint.retry_incoming(now, incoming.handle));
    pair.run_for(ms(10));
    assert_eq!(pair.hosts[SERVER].sent_datagrams, 0);
    // The client is still there, and asks again.
    pair.hosts[CLIENT].hijacked = false;
    pair.run_for(secs(1));
    let again = next(&mut pair);
    accept(&mut pair, again);
    pair.established(secs(1));
}

/// Hellos of `n` clients that never hear an answer.
fn flood(pair: &mut Pair, first: &[u8], n: u32, from: impl Fn(u32) -> [u8; 4]) {
    for i in 0..n {
        let hello = with_destination(first, i);
        pair.deliver_silently(SERVER, (from(i), 9).into(), &hello);
        silence(pair);
    }
}

#[test]
fn a_flood_that_nobody_decides_about_leaves_room_for_others_and_ends_by_itself() {
    let mut pair = deciding(Options {
        retry: RetryPolicy::UnderLoad,
        ..readable()
    });
    let (first, _) = first_datagram(&mut pair);
    let alone = |i: u32| [11, 0, 0, (i % 250) as u8];
    for round in 1..=3 {
        flood(&mut pair, &first, 5_000, alone);
        // Three fifths of the places before Retry is asked for, and no more memory than those take.
        let flooded = stats(&pair);
        assert_eq!((flooded.incoming, flooded.connections), (600, 0));
        assert!(
            flooded.memory < 600 * (1200 + OVERHEAD),
            "{}",
            flooded.memory
        );
        let client: SocketAddr = pair.hosts[CLIENT].address;
        pair.connect();
        pair.run_for(ms(15));
        let endpoint = &mut pair.hosts[SERVER].endpoint;
        let waiting = std::iter::from_fn(|| endpoint.poll_incoming());
        let honest: Vec<_> = waiting.filter(|i| i.remote == client).collect();
        assert_eq!(honest.len(), 1, "no room for others");
        accept(&mut pair, honest[0]);
        pair.established(secs(1));
        let (now, client) = (pair.now, pair.client());
        client.close(now, 0, b"");
        pair.run_for(MAX_INCOMING_WAIT + secs(1));
        let after = stats(&pair);
        assert_eq!((after.incoming, after.connections, after.memory), (0, 0, 0));
        assert_eq!(after.incoming_dropped, round * 600);
    }
    // From everywhere: all places that clients without a proof may have.
    let everywhere = |i: u32| [12, (i >> 8) as u8, i as u8, 1];
    flood(&mut pair, &first, 9_000, everywhere);
    let flooded = stats(&pair);
    assert!(
        (900..=1000).contains(&flooded.incoming),
        "{}",
        flooded.incoming
    );
    assert!(flooded.memory < 1000 * (1200 + OVERHEAD));
    // Who proves its address finds a place.
    pair.connect();
    pair.run_for(ms(35));
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    let waiting = std::iter::from_fn(|| endpoint.poll_incoming());
    let proven: Vec<_> = waiting.filter(|i| i.is_validated).collect();
    assert_eq!(proven.len(), 1);
    accept(&mut pair, proven[0]);
    pair.established(secs(1));
}

#[test]
fn when_memory_is_short_those_who_wait_go_before_a_connection_does() {
    const LIMIT: u64 = 16 << 20;
    let mut pair = deciding_with(readable(), |server, config| {
        server.max_handshakes = 4_000;
        config.memory_limit = LIMIT;
    });
    let (first, scid) = first_datagram(&mut pair);
    let incoming = asked(&mut pair);
    accept(&mut pair, incoming);
    pair.established(secs(1));
    for i in 0..1_200 {
        let from: SocketAddr = ([12, (i >> 8) as u8, i as u8, 1], 9).into();
        let hello = with_destination(&first, i);
        let Ok(Header::Long { dcid, .. }) = parse_header(&hello, 8) else {
            panic!("no Initial");
        };
        let mut more = long_packet(LongType::Initial, &dcid, &scid, b"", 1, &[1; 64]);
        more.resize(1600, 0);
        pair.deliver_silently(SERVER, from, &hello);
        for _ in 0..9 {
            pair.deliver_silently(SERVER, from, &more);
        }
        silence(&mut pair);
    }
    let full = stats(&pair);
    assert!(full.memory >= LIMIT - LIMIT / 16 && full.memory <= LIMIT);
    assert!(full.refused > 0, "there was room for all");
    let id = pair.client().open(Direction::Unidirectional).unwrap();
    let written = pair.client().write_slice(id, &vec![7; 400_000]).unwrap();
    pair.run_for(secs(2));
    let id = pair.client().open(Direction::Unidirectional).unwrap();
    let more = pair.client().write_slice(id, &vec![7; 400_000]).unwrap();
    pair.run_for(secs(2));
    let id = pair.client().open(Direction::Unidirectional).unwrap();
    let most = pair.client().write_slice(id, &vec![7; 400_000]).unwrap();
    pair.run_for(secs(2));
    assert!(written + more + most > (LIMIT / 16) as usize);
    let after = stats(&pair);
    assert!(
        after.incoming_dropped > 0 && after.incoming > 0,
        "{after:?}"
    );
    assert_eq!(after.shed, 0);
    assert!(after.memory_most <= LIMIT + (128 << 10), "{after:?}");
    assert!(!pair.server().is_closed());
}

#[test]
fn a_server_that_is_full_by_the_time_of_the_decision_refuses() {
    let mut pair = deciding_with(Options::default(), |server, _| server.max_connections = 1);
    let first = asked(&mut pair);
    let second = asked(&mut pair);
    accept(&mut pair, first);
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    let accepted = endpoint.accept_incoming(now, second.handle, None);
    assert_eq!(accepted, Err(AcceptError::Full));
    pair.run_for(ms(15));
    let word = close_reason(&mut pair).expect("nobody told it");
    let full = "the server refuses the connection: the server is full";
    assert_eq!(word, full);
    assert_eq!((stats(&pair).connections, stats(&pair).incoming), (1, 0));
}

fn few_streams(server: &ServerConfig) -> ServerConfig {
    with_transport(server, |transport| transport.max_concurrent_uni_streams = 3)
}

fn with_transport(
    server: &ServerConfig,
    change: impl FnOnce(&mut TransportConfig),
) -> ServerConfig {
    let mut server = server.clone();
    change(Arc::make_mut(&mut server.transport));
    server
}

#[test]
fn one_client_may_be_given_a_configuration_of_its_own() {
    let mut pair = deciding(Options::default());
    let own = few_streams(&pair.server_config);
    let incoming = asked(&mut pair);
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    let handle = endpoint.accept_incoming(now, incoming.handle, Some(&own));
    pair.hosts[SERVER].handle = Some(handle.unwrap());
    pair.established(secs(1));
    assert_eq!(pair.client().openable(Direction::Unidirectional), 3);

    let incoming = asked(&mut pair);
    let senseless = with_transport(&own, |transport| transport.initial_rtt = Duration::ZERO);
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    let accepted = endpoint.accept_incoming(now, incoming.handle, Some(&senseless));
    assert!(
        matches!(accepted, Err(AcceptError::Transport(_))),
        "{accepted:?}"
    );
    pair.run_for(ms(15));
    assert!(close_reason(&mut pair).is_some(), "nobody told the client");
}

#[test]
fn a_server_that_stops_accepting_refuses_those_who_wait_and_may_begin_again() {
    let mut pair = deciding(Options::default());
    let incoming = asked(&mut pair);
    let now = pair.now;
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.set_server_config(now, None);
    let accepted = endpoint.accept_incoming(now, incoming.handle, None);
    assert_eq!(accepted, Err(AcceptError::Gone));
    pair.run_for(ms(15));
    assert!(close_reason(&mut pair).is_some(), "nobody told it");
    pair.connect();
    pair.run_for(ms(25));
    let word = close_reason(&mut pair).expect("nobody told it");
    assert!(word.ends_with("takes no new connections"), "{word}");

    let (now, server) = (pair.now, Arc::new(pair.server_config.clone()));
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.set_server_config(now, Some(server));
    let incoming = asked(&mut pair);
    accept(&mut pair, incoming);
    pair.established(secs(1));
}

#[test]
fn a_new_configuration_serves_the_connections_that_begin_afterwards() {
    let mut pair = Pair::connected(Options::default());
    let (now, new) = (pair.now, few_streams(&pair.server_config));
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.set_server_config(now, Some(Arc::new(new)));
    let old = pair.hosts[CLIENT].handle;
    pair.hosts[SERVER].handle = None;
    pair.connect();
    pair.established(secs(1));
    assert_eq!(pair.client().openable(Direction::Unidirectional), 3);
    pair.hosts[CLIENT].handle = old;
    assert_eq!(pair.client().openable(Direction::Unidirectional), 100);
}

#[test]
fn an_endpoint_that_only_connects_may_become_a_server() {
    let mut pair = Pair::new(Options::default());
    pair.hosts[SERVER].endpoint = Endpoint::new(seed(1, 2), None);
    let (now, server) = (pair.now, Arc::new(pair.server_config.clone()));
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.set_server_config(now, Some(server));
    pair.connect();
    pair.established(secs(1));
}

#[test]
fn whatever_is_decided_and_when_nothing_is_left_behind() {
    for n in 1..=20 {
        let mut rng = ChaCha20Rng::seed_from_u64(n);
        let mut below = |most: u64| rng.next_u64() % most;
        let mut pair = deciding(Options {
            seed: n,
            link: LinkConfig {
                loss: LossModel::Bernoulli(0.1),
                ..common::delay(10)
            },
            ..Options::default()
        });
        let server = Arc::new(pair.server_config.clone());
        let mut waiting = Vec::new();
        for _ in 0..40 {
            pair.connect();
            pair.run_for(ms(below(1000)));
            let now = pair.now;
            let endpoint = &mut pair.hosts[SERVER].endpoint;
            waiting.extend(std::iter::from_fn(|| endpoint.poll_incoming()));
            if waiting.is_empty() {
                continue;
            }
            let at = below(waiting.len() as u64) as usize;
            // Some are decided about twice, and some when they are long forgotten.
            let client = match below(8) {
                0 => waiting[at],
                _ => waiting.swap_remove(at),
            };
            match below(12) {
                0..=4 => {
                    let _ = endpoint.accept_incoming(now, client.handle, None);
                }
                5..=6 => endpoint.refuse_incoming(now, client.handle),
                7..=8 => endpoint.ignore_incoming(client.handle),
                9..=10 => {
                    endpoint.retry_incoming(now, client.handle);
                }
                _ => {
                    endpoint.set_server_config(now, None);
                    endpoint.set_server_config(now, Some(Arc::clone(&server)));
                }
            }
        }
        // Handshakes and silent connections time out, and those who wait are forgotten.
        pair.run_for(secs(120));
        let end = stats(&pair);
        assert!(end.admitted > 0, "seed {n}");
        assert_eq!((end.incoming, end.handshakes), (0, 0), "seed {n}");
        assert_eq!((end.connections, end.memory), (0, 0), "seed {n}");
        let clients = pair.hosts[CLIENT].endpoint.stats();
        assert_eq!((clients.connections, clients.memory), (0, 0), "seed {n}");
    }
}
