//! Paths that change under a connection (RFC 9000 §8.2, §9): NATs that forget, peers that move, and
//! those who pretend that somebody moved.

mod common;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::evil::{Evil, payload};
use common::wire::for_each_frame;
use common::{CLIENT, Options, Pair, SERVER, Transfer, delay, ms, pattern, readable, secs};
use towline_quic::{Direction, Event, MigrateError, Stats, TransportConfig};
use towline_sim::LinkConfig;
use towline_wire::{Frame, write_path_challenge, write_ping};

const UNI: Direction = Direction::Unidirectional;
const BIDI: Direction = Direction::Bidirectional;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// What a NAT changes when it forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Port,
    Address,
}

const CHANGES: [Change; 2] = [Change::Port, Change::Address];

/// The `n`th address that the client's NAT gives it.
fn mapped(change: Change, n: u16) -> SocketAddr {
    match change {
        Change::Port => SocketAddr::from(([10, 0, 0, 1], 5000 + n)),
        Change::Address => SocketAddr::from(([10, 0, 1, 1 + n as u8], 1000)),
    }
}

/// The client's NAT forgets, and has another address for it.
fn rebind(pair: &mut Pair, change: Change, n: u16) -> SocketAddr {
    let host = pair.hosts[CLIENT].address;
    let public = mapped(change, n);
    pair.net.rebind(host, public);
    public
}

/// 10 Mbit/s with a round trip of 40 ms and as much queue.
fn link() -> LinkConfig {
    LinkConfig {
        rate: Some(10_000_000),
        queue: Some(50_000),
        ..delay(20)
    }
}

fn pair_on(link: LinkConfig) -> Pair {
    Pair::connected(Options {
        link,
        ..Options::default()
    })
}

fn server_stats(pair: &mut Pair) -> Stats {
    pair.server().stats()
}

/// Moments of a transfer: its first round trip, slow start, the middle, the end.
const PHASES: [u64; 6] = [5, 45, 130, 400, 800, 1500];

/// Transfers from `from` in which the NAT changes in each phase; each must not take much longer.
fn rebound_in_every_phase(from: usize, change: Change) {
    let len = 2_000_000;
    let mut plain = pair_on(link());
    let undisturbed = plain.transfer(from, len, secs(20));
    for at in PHASES {
        let mut pair = pair_on(link());
        let mut transfer = Transfer::start(&mut pair, from, len);
        let start = pair.now;
        assert!(!transfer.run_for(&mut pair, ms(at)), "over before {at} ms");
        let public = rebind(&mut pair, change, 0);
        // A receiver that hears nothing asks after a second; the window may have to grow again.
        transfer.finish(&mut pair, undisturbed + secs(4));
        let took = pair.now.saturating_duration_since(start);
        let stats = server_stats(&mut pair);
        assert_eq!(pair.server().remote(), public, "at {at} ms");
        assert_eq!((stats.path_changes, stats.paths_validated), (1, 1));
        assert_eq!(stats.paths_failed, 0, "at {at} ms: took {took:?}");
        let changed = pair.take_event(SERVER, |e| *e == Event::PathChanged);
        assert!(changed.is_some());
    }
}

#[test]
fn an_upload_survives_a_new_port_in_every_phase() {
    rebound_in_every_phase(CLIENT, Change::Port);
}

#[test]
fn an_upload_survives_a_new_address_in_every_phase() {
    rebound_in_every_phase(CLIENT, Change::Address);
}

#[test]
fn a_download_survives_a_new_port_in_every_phase() {
    rebound_in_every_phase(SERVER, Change::Port);
}

#[test]
fn a_download_survives_a_new_address_in_every_phase() {
    rebound_in_every_phase(SERVER, Change::Address);
}

#[test]
fn a_nat_that_forgets_again_and_again_stops_no_transfer() {
    for change in CHANGES {
        for from in [CLIENT, SERVER] {
            let mut pair = pair_on(link());
            let mut transfer = Transfer::start(&mut pair, from, 4_000_000);
            let mut over = false;
            let mut changes = 0;
            while !over {
                over = transfer.run_for(&mut pair, ms(700));
                changes += 1;
                assert!(changes < 60, "{change:?} from {from}");
                rebind(&mut pair, change, changes);
            }
            assert!(changes >= 4, "{changes} changes");
        }
    }
}

#[test]
fn a_nat_that_goes_back_and_forth_is_followed() {
    for change in CHANGES {
        let mut pair = pair_on(link());
        let mut transfer = Transfer::start(&mut pair, CLIENT, 3_000_000);
        for n in [0, 1, 0, 1, 0] {
            assert!(!transfer.run_for(&mut pair, ms(300)));
            let public = rebind(&mut pair, change, n);
            assert!(!transfer.run_for(&mut pair, ms(200)));
            assert_eq!(pair.server().remote(), public);
        }
        transfer.finish(&mut pair, secs(15));
        assert_eq!(server_stats(&mut pair).path_changes, 5);
    }
}

#[test]
fn a_receiver_whose_nat_forgot_it_is_found_again() {
    // Nothing that the server sends arrives any more, and the client has nothing to send.
    for change in CHANGES {
        let mut pair = pair_on(link());
        let mut transfer = Transfer::start(&mut pair, SERVER, 6_000_000);
        for n in 0..5 {
            assert!(!transfer.run_for(&mut pair, ms(400)));
            rebind(&mut pair, change, n);
            let before = transfer.got.len();
            let forgotten = pair.now;
            while transfer.got.len() < before + 50_000 {
                assert!(!transfer.run_for(&mut pair, ms(10)));
                let stall = pair.now.saturating_duration_since(forgotten);
                assert!(stall <= secs(3), "{change:?}: nothing for {stall:?}");
            }
        }
        transfer.finish(&mut pair, secs(20));
    }
}

#[test]
fn a_new_port_keeps_the_window_and_a_new_address_does_not() {
    for change in CHANGES {
        let mut pair = pair_on(delay(20));
        pair.transfer(SERVER, 1_000_000, secs(10));
        let before = server_stats(&mut pair);
        assert!(before.cwnd > 100_000, "{}", before.cwnd);
        rebind(&mut pair, change, 0);
        pair.client().ping();
        pair.run_for(ms(200));
        let after = server_stats(&mut pair);
        assert_eq!(after.path_changes, 1);
        match change {
            Change::Port => {
                assert!(after.cwnd >= before.cwnd, "{} {}", before.cwnd, after.cwnd);
                assert_eq!(after.min_rtt, before.min_rtt);
            }
            Change::Address => assert!(after.cwnd <= 20_000, "{}", after.cwnd),
        }
    }
}

#[test]
fn every_controller_goes_on_after_a_new_address() {
    for algorithm in common::ALGORITHMS {
        let transport = TransportConfig::default().congestion(algorithm);
        let mut pair = Pair::connected(Options {
            link: link(),
            server: transport.clone(),
            client: transport,
            ..Options::default()
        });
        let mut transfer = Transfer::start(&mut pair, SERVER, 2_000_000);
        transfer.run_for(&mut pair, ms(900));
        rebind(&mut pair, Change::Address, 0);
        transfer.finish(&mut pair, secs(20));
    }
}

#[test]
fn datagrams_and_streams_of_both_ends_go_on_after_a_rebinding() {
    let mut pair = pair_on(delay(10));
    let id = pair.client().open(BIDI).unwrap();
    pair.client().write_slice(id, b"one").unwrap();
    assert_eq!(pair.accept(SERVER, BIDI, secs(1)), id);
    rebind(&mut pair, Change::Address, 0);
    pair.client().write_slice(id, b"two").unwrap();
    pair.client()
        .send_datagram(Bytes::from_static(b"up"))
        .unwrap();
    pair.run_for(ms(100));
    pair.server()
        .send_datagram(Bytes::from_static(b"down"))
        .unwrap();
    pair.server().write_slice(id, b"three").unwrap();
    pair.run_for(ms(100));
    let mut got = Vec::new();
    pair.read_available(SERVER, id, &mut got);
    assert_eq!(got, b"onetwo");
    got.clear();
    pair.read_available(CLIENT, id, &mut got);
    assert_eq!(got, b"three");
    assert_eq!(pair.server().recv_datagram().as_deref(), Some(&b"up"[..]));
    assert_eq!(pair.client().recv_datagram().as_deref(), Some(&b"down"[..]));
}

#[test]
fn a_rebinding_in_an_outage_is_found_when_the_outage_ends() {
    for change in CHANGES {
        let mut pair = pair_on(link());
        let mut transfer = Transfer::start(&mut pair, SERVER, 2_000_000);
        transfer.run_for(&mut pair, ms(500));
        let dark = link().with_blackout(pair.now, secs(6));
        let (there, back) = pair.links;
        pair.net.set_config(there, dark.clone()).unwrap();
        pair.net.set_config(back, dark).unwrap();
        transfer.run_for(&mut pair, secs(3));
        let public = rebind(&mut pair, change, 0);
        transfer.finish(&mut pair, secs(15));
        assert_eq!(pair.server().remote(), public);
    }
}

#[test]
fn a_rebinding_on_a_lossy_path_is_followed() {
    for seed in 1..=8 {
        let link = LinkConfig {
            loss: towline_sim::LossModel::Bernoulli(0.1),
            ..link()
        };
        let mut pair = Pair::connected(Options {
            seed,
            link,
            ..Options::default()
        });
        let mut transfer = Transfer::start(&mut pair, SERVER, 300_000);
        for n in 0..4 {
            transfer.run_for(&mut pair, ms(300));
            rebind(&mut pair, Change::Address, n);
        }
        transfer.finish(&mut pair, secs(120));
    }
}

// ---- what goes to an address that is not proven ----

/// A PING in so many bytes of payload.
fn padded_ping(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[0] = 1;
    bytes
}

/// Bytes that `side` sends, and to whom; they arrive nowhere.
fn sent_to(pair: &mut Pair, to: SocketAddr) -> usize {
    let datagrams = pair.take_datagrams(SERVER);
    let there = datagrams.iter().filter(|(remote, _)| *remote == to);
    there.map(|(_, datagram)| datagram.len()).sum()
}

/// Lets time pass for the server alone; returns the bytes that it sent to `to`.
fn server_alone(pair: &mut Pair, time: Duration, to: SocketAddr) -> usize {
    let end = pair.now + time;
    let mut bytes = sent_to(pair, to);
    while pair.now < end {
        pair.now += ms(10);
        let now = pair.now;
        pair.hosts[SERVER].endpoint.handle_timeout(now);
        bytes += sent_to(pair, to);
    }
    bytes
}

#[test]
fn an_unproven_address_gets_three_times_what_came_from_it_and_no_more() {
    for size in [1, 20, 60, 200, 400, 1000, 1150] {
        let mut evil = Evil::against(SERVER);
        let id = evil.pair.server().open(UNI).unwrap();
        let data = pattern(200_000);
        evil.pair.server().write_slice(id, &data).unwrap();
        evil.pair.take_datagrams(SERVER);
        let victim = address("10.0.9.9:99");
        let (mut received, mut sent) = (0, 0);
        for _ in 0..10 {
            let packet = evil.packet(&padded_ping(size));
            received += packet.len();
            evil.pair.deliver_silently(SERVER, victim, &packet);
            sent += server_alone(&mut evil.pair, ms(100), victim);
            assert!(sent <= 3 * received, "{sent} for {received}");
        }
        assert!(sent > 0, "something is asked there, packets of {size}");
        // Nobody answers: it goes back to where the peer was, and nothing more goes there.
        server_alone(&mut evil.pair, secs(4), victim);
        assert_eq!(evil.pair.server().remote(), evil.pair.hosts[CLIENT].address);
        assert_eq!(server_alone(&mut evil.pair, secs(4), victim), 0);
        evil.assert_open();
        let stats = server_stats(&mut evil.pair);
        assert_eq!((stats.paths_validated, stats.paths_failed), (0, 1));
    }
}

#[test]
fn ten_thousand_addresses_cost_three_times_what_they_sent() {
    let mut evil = Evil::against(SERVER);
    let id = evil.pair.server().open(UNI).unwrap();
    let data = pattern(200_000);
    evil.pair.server().write_slice(id, &data).unwrap();
    evil.pair.take_datagrams(SERVER);
    let held = evil.pair.hosts[SERVER].endpoint.stats().memory;
    let own = evil.pair.hosts[CLIENT].address;
    for n in 0..10_000u32 {
        let from = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 7));
        let packet = evil.packet(&payload(write_ping));
        evil.pair.deliver_silently(SERVER, from, &packet);
        let datagrams = evil.pair.take_datagrams(SERVER);
        let there = datagrams.iter().filter(|(to, _)| *to != own);
        let bytes: usize = there.map(|(_, datagram)| datagram.len()).sum();
        assert!(bytes <= 3 * packet.len(), "{bytes} for {}", packet.len());
    }
    let grown = evil.pair.hosts[SERVER].endpoint.stats().memory - held;
    // What is remembered of packets that nobody need acknowledge has a cap.
    assert!(grown < 131_072, "{grown} bytes for 10,000 addresses");
    server_alone(&mut evil.pair, secs(4), own);
    assert_eq!(evil.pair.server().remote(), own);
    evil.assert_open();
}

/// The next datagrams of the client, which somebody on the way holds.
fn captured(pair: &mut Pair) -> Vec<Vec<u8>> {
    let datagrams = pair.take_datagrams(CLIENT);
    datagrams
        .into_iter()
        .map(|(_, datagram)| datagram)
        .collect()
}

#[test]
fn a_spoofed_migration_ends_with_the_next_true_packet() {
    let mut pair = pair_on(delay(10));
    let own = pair.hosts[CLIENT].address;
    let victim = address("10.0.9.9:99");
    pair.client().ping();
    for packet in captured(&mut pair) {
        pair.deliver_silently(SERVER, victim, &packet);
    }
    assert_eq!(pair.server().remote(), victim);
    pair.client().ping();
    pair.flush();
    pair.run_for(ms(15));
    assert_eq!(pair.server().remote(), own);
    pair.transfer(SERVER, 500_000, secs(5));
    let stats = server_stats(&mut pair);
    assert_eq!((stats.path_changes, stats.paths_validated), (2, 0));
}

#[test]
fn a_spoofed_migration_of_a_silent_client_ends_when_it_answers_where_it_was() {
    // The challenge on the path before has the client show itself (RFC 9000 §9.3.3).
    let mut pair = pair_on(delay(10));
    let own = pair.hosts[CLIENT].address;
    let victim = address("10.0.9.9:99");
    pair.client().ping();
    for packet in captured(&mut pair) {
        pair.deliver_silently(SERVER, victim, &packet);
    }
    assert_eq!(pair.server().remote(), victim);
    pair.flush();
    pair.run_for(ms(50));
    assert_eq!(pair.server().remote(), own);
}

#[test]
fn somebody_who_copies_packets_faster_than_the_true_path_stalls_a_download_once() {
    let mut pair = pair_on(delay(10));
    let own = pair.hosts[CLIENT].address;
    let mut transfer = Transfer::start(&mut pair, SERVER, 3_000_000);
    let end = pair.now + secs(20);
    let mut over = false;
    let mut n = 0u16;
    while !over {
        assert!(pair.now < end, "{} bytes", transfer.got.len());
        // Each packet of the client's comes from elsewhere first.
        for packet in captured(&mut pair) {
            n = n.wrapping_add(1);
            let attacker = SocketAddr::from(([10, 0, 9, (n % 5) as u8], 9));
            pair.deliver_silently(SERVER, attacker, &packet);
            pair.deliver_silently(SERVER, own, &packet);
        }
        pair.flush();
        pair.run_for(ms(5));
        over = transfer.turn(&mut pair);
    }
    assert_eq!(pair.server().remote(), own);
}

#[test]
fn a_late_packet_from_where_the_client_was_moves_nothing() {
    let mut pair = pair_on(delay(10));
    let old = pair.hosts[CLIENT].address;
    pair.client().ping();
    let late = captured(&mut pair);
    let public = rebind(&mut pair, Change::Address, 0);
    pair.client().ping();
    pair.run_for(ms(200));
    assert_eq!(pair.server().remote(), public);
    let received = server_stats(&mut pair).packets_received;
    for packet in late {
        pair.deliver(SERVER, &packet);
    }
    assert_eq!(pair.hosts[CLIENT].address, old);
    assert_eq!(pair.server().remote(), public);
    assert!(
        server_stats(&mut pair).packets_received > received,
        "it is taken all the same"
    );
}

#[test]
fn packets_that_are_not_authentic_move_nothing_and_credit_nothing() {
    let mut pair = pair_on(delay(10));
    pair.client().ping();
    let victim = address("10.0.9.9:99");
    for mut packet in captured(&mut pair) {
        let last = packet.len() - 1;
        packet[last] ^= 1;
        pair.deliver_silently(SERVER, victim, &packet);
    }
    assert!(pair.take_datagrams(SERVER).is_empty());
    assert_eq!(server_stats(&mut pair).path_changes, 0);
}

// ---- probes ----

/// PATH_RESPONSE frames in what was sent to `to`: their data, and the sizes of their datagrams.
fn responses(datagrams: &[(SocketAddr, Vec<u8>)], to: SocketAddr) -> Vec<(u8, usize)> {
    let mut found = Vec::new();
    for (_, datagram) in datagrams.iter().filter(|(remote, _)| *remote == to) {
        for_each_frame(datagram, |_, frame| {
            if let Frame::PathResponse(data) = frame {
                found.push((data[0], datagram.len()));
            }
        });
    }
    found
}

#[test]
fn a_probe_is_answered_where_it_came_from_and_moves_nothing() {
    let mut evil = Evil::against(SERVER);
    let elsewhere = address("10.0.0.77:7");
    let own = evil.pair.hosts[CLIENT].address;
    let mut probe = payload(|w| write_path_challenge(w, [7; 8]));
    probe.resize(1170, 0);
    let packet = evil.packet(&probe);
    evil.pair.deliver_silently(SERVER, elsewhere, &packet);
    let datagrams = evil.pair.take_datagrams(SERVER);
    assert_eq!(responses(&datagrams, elsewhere), [(7, 1200)]);
    assert!(responses(&datagrams, own).is_empty());
    assert_eq!(evil.pair.server().remote(), own);
    assert_eq!(server_stats(&mut evil.pair).path_changes, 0);
}

#[test]
fn a_small_probe_gets_a_small_answer() {
    let mut evil = Evil::against(SERVER);
    let elsewhere = address("10.0.0.77:7");
    let packet = evil.packet(&payload(|w| write_path_challenge(w, [7; 8])));
    evil.pair.deliver_silently(SERVER, elsewhere, &packet);
    let datagrams = evil.pair.take_datagrams(SERVER);
    let answers = responses(&datagrams, elsewhere);
    assert_eq!(answers.len(), 1);
    assert!(answers[0].1 <= 3 * packet.len());
}

#[test]
fn a_flood_of_challenges_from_elsewhere_is_answered_within_bounds() {
    let mut evil = Evil::against(SERVER);
    let elsewhere = address("10.0.0.77:7");
    let flood = payload(|w| {
        for i in 0..100 {
            write_path_challenge(w, [i; 8]);
        }
    });
    let packet = evil.packet(&flood);
    evil.pair.deliver_silently(SERVER, elsewhere, &packet);
    let datagrams = evil.pair.take_datagrams(SERVER);
    let answers = responses(&datagrams, elsewhere);
    assert!(!answers.is_empty() && answers.len() <= 8, "{answers:?}");
    assert!(answers.iter().all(|(data, _)| *data >= 92), "the newest");
    let bytes: usize = datagrams.iter().map(|(_, datagram)| datagram.len()).sum();
    assert!(bytes <= 3 * packet.len() + 1200, "{bytes}");
    evil.assert_open();
}

#[test]
fn a_peer_without_spare_connection_ids_is_not_followed_under_a_new_one() {
    let (mut evil, ids) = evil_with_ids(readable());
    let own = evil.pair.hosts[CLIENT].address;
    assert!(ids.len() >= 3, "{}", ids.len());
    let first = evil.dcid.clone();
    // Each move under another ID of the server's takes one of the client's, which gives no more.
    let mut followed = 0;
    for n in 0..8u8 {
        let from = SocketAddr::from(([10, 0, 5, n], 5));
        evil.dcid = ids[usize::from(n) % ids.len()].clone();
        let packet = evil.packet(&payload(write_ping));
        evil.pair.deliver_silently(SERVER, from, &packet);
        evil.pair.take_datagrams(SERVER);
        followed += usize::from(evil.pair.server().remote() == from);
        // Back again, as if it had not been.
        evil.dcid = first.clone();
        let packet = evil.packet(&payload(write_ping));
        evil.pair.deliver_silently(SERVER, own, &packet);
        evil.pair.take_datagrams(SERVER);
        assert_eq!(evil.pair.server().remote(), own);
    }
    assert_eq!(followed, 3, "a client gives three spare IDs");
    // A NAT that forgot needs none.
    let from = address("10.0.6.6:6");
    let packet = evil.packet(&payload(write_ping));
    evil.pair.deliver_silently(SERVER, from, &packet);
    assert_eq!(evil.pair.server().remote(), from);
    evil.assert_open();
}

/// Somebody evil in place of the client, and the connection IDs that the server announced.
fn evil_with_ids(options: Options) -> (Evil, Vec<Vec<u8>>) {
    let ids: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let seen = ids.clone();
    let mut pair = Pair::new(options);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            for_each_frame(datagram, |_, frame| {
                if let Frame::NewConnectionId(new) = frame {
                    seen.borrow_mut().push(new.cid.as_slice().to_vec());
                }
            });
        }
        true
    }));
    pair.connect();
    pair.established(secs(5));
    pair.run_for(ms(200));
    pair.tap = None;
    let ids = ids.borrow().clone();
    (Evil::take_over(pair, SERVER), ids)
}

#[test]
fn who_forbids_migration_follows_a_nat_all_the_same() {
    let mut pair = Pair::connected(Options {
        link: delay(10),
        server: TransportConfig::default().migration(false),
        ..Options::default()
    });
    let public = rebind(&mut pair, Change::Address, 0);
    pair.transfer(CLIENT, 100_000, secs(5));
    assert_eq!(pair.server().remote(), public);
    let now = pair.now;
    let local: IpAddr = "10.0.0.50".parse().unwrap();
    assert_eq!(
        pair.client().migrate(now, local),
        Err(MigrateError::Forbidden)
    );
}

#[test]
fn a_client_that_moves_where_it_is_forbidden_gets_no_answer() {
    let options = Options {
        server: TransportConfig::default().migration(false),
        ..readable()
    };
    let (mut evil, ids) = evil_with_ids(options);
    evil.dcid = ids[0].clone();
    let elsewhere = address("10.0.0.77:7");
    for bytes in [
        payload(write_ping),
        payload(|w| write_path_challenge(w, [1; 8])),
    ] {
        let packet = evil.packet(&bytes);
        evil.pair.deliver_silently(SERVER, elsewhere, &packet);
    }
    assert!(evil.pair.take_datagrams(SERVER).is_empty());
    assert_eq!(server_stats(&mut evil.pair).datagrams_from_elsewhere, 2);
    evil.assert_open();
}

#[test]
fn a_new_address_in_the_handshake_gets_no_answer() {
    let mut pair = Pair::new(Options::default());
    let elsewhere = address("10.0.0.77:7");
    // What finishes the handshake comes from elsewhere.
    let finished: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let taken = finished.clone();
    let mut sent = 0;
    pair.tap = Some(Box::new(move |from, datagram| {
        sent += u32::from(from == CLIENT);
        let take = from == CLIENT && sent == 2;
        if take {
            taken.borrow_mut().push(datagram.clone());
        }
        !take
    }));
    pair.connect();
    pair.run_for(ms(30));
    let finished = finished.borrow_mut().split_off(0);
    assert_eq!(finished.len(), 1);
    for packet in finished {
        pair.deliver_silently(SERVER, elsewhere, &packet);
    }
    let datagrams = pair.take_datagrams(SERVER);
    assert!(datagrams.iter().all(|(to, _)| *to != elsewhere));
    // It ended the handshake, and says nothing of where the client is (RFC 9000 §9.1).
    pair.flush();
    assert!(pair.hosts[SERVER].is_confirmed());
    pair.established(secs(10));
    assert_eq!(server_stats(&mut pair).path_changes, 0);
    pair.transfer(CLIENT, 10_000, secs(5));
}

#[test]
fn a_path_that_answered_a_small_challenge_gets_a_full_one() {
    let sizes: Rc<RefCell<Vec<usize>>> = Rc::default();
    let seen = sizes.clone();
    let mut pair = Pair::connected(readable());
    pair.run_for(ms(200));
    let old = pair.hosts[CLIENT].address;
    let public = rebind(&mut pair, Change::Port, 0);
    assert_ne!(old, public);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            for_each_frame(datagram, |_, frame| {
                if let Frame::PathChallenge(_) = frame {
                    seen.borrow_mut().push(datagram.len());
                }
            });
        }
        true
    }));
    // So small that three times its size is no full datagram.
    pair.client().ping();
    pair.run_for(secs(1));
    let sizes = sizes.borrow();
    assert!(sizes[0] < 200, "{sizes:?}");
    assert_eq!(
        sizes.iter().filter(|size| **size == 1200).count(),
        2,
        "the old path's too: {sizes:?}"
    );
    assert_eq!(server_stats(&mut pair).paths_validated, 1);
}
