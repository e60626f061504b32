//! Routers' notices that a packet was too big (RFC 8899 §4.6, RFC 9000 §14.2.1): true ones shorten black
//! holes, forged ones change nothing.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{Algorithm, Direction, Event, TransportConfig};
use towline_sim::LinkConfig;

/// A path of 20 ms that carries UDP payloads of so many bytes, with routers that say so or do not.
fn path(mtu: usize, icmp: bool) -> LinkConfig {
    LinkConfig {
        mtu: Some(mtu),
        icmp,
        ..delay(10)
    }
}

fn on(link: LinkConfig, transport: &TransportConfig) -> Options {
    Options {
        link,
        client: transport.clone(),
        server: transport.clone(),
        ..readable()
    }
}

fn searching() -> TransportConfig {
    TransportConfig::default()
}

fn set_path(pair: &mut Pair, link: &LinkConfig) {
    let (a, b) = pair.links;
    pair.net.set_config(a, link.clone()).unwrap();
    pair.net.set_config(b, link.clone()).unwrap();
}

/// How long 300,000 bytes take when the path carries less from one packet to the next.
fn through_a_black_hole(icmp: bool, mtu: usize, transport: &TransportConfig) -> (Duration, Pair) {
    let mut pair = Pair::connected(on(path(1472, icmp), transport));
    pair.transfer(SERVER, 300_000, secs(5));
    assert_eq!(pair.server().stats().mtu, 1472);
    set_path(&mut pair, &path(mtu, icmp));
    let took = pair.transfer(SERVER, 300_000, secs(30));
    (took, pair)
}

#[test]
fn a_black_hole_is_left_a_round_trip_after_a_router_told_of_it() {
    for congestion in [
        Algorithm::NewReno,
        Algorithm::Cubic,
        Algorithm::Bbr,
        Algorithm::LedbatPlusPlus,
    ] {
        for mtu in [1200, 1300, 1452] {
            let transport = searching().congestion(congestion);
            let (unhindered, _) = through_a_black_hole(true, 1472, &transport);
            let (silent, _) = through_a_black_hole(false, mtu, &transport);
            let (told, mut pair) = through_a_black_hole(true, mtu, &transport);
            let what = format!("{congestion:?}, {mtu}: {unhindered:?}, {silent:?}, {told:?}");
            let (round_trip, pto) = {
                let stats = pair.server().stats();
                (stats.smoothed_rtt, stats.pto)
            };
            assert!(told < unhindered + 2 * round_trip + pto, "{what}");
            assert!(told < silent, "{what}");
            pair.transfer(SERVER, 100_000, secs(5));
            let stats = pair.server().stats();
            assert_eq!(usize::from(stats.mtu), mtu, "{what}");
            assert_eq!(stats.black_holes_detected, 0, "{what}");
            assert_eq!(
                (stats.too_big_believed, stats.packets_lost),
                (1, 0),
                "{what}"
            );
            assert_eq!(stats.congestion_events, 0, "{what}");
        }
    }
}

#[test]
fn the_path_s_own_size_is_found_by_the_second_probe() {
    for mtu in [1200, 1237, 1401, 1471] {
        let mut pair = Pair::connected(on(path(mtu, true), &searching()));
        for _ in 0..10 {
            pair.transfer(CLIENT, 30_000, secs(5));
        }
        let stats = pair.client().stats();
        assert_eq!(usize::from(stats.mtu), mtu);
        assert_eq!(stats.mtu_probes_sent, if mtu > 1200 { 2 } else { 1 });
        assert_eq!((stats.too_big_believed, stats.packets_lost), (1, 0));
    }
}

/// A connection that sends 1472 bytes a packet, with a window of it in flight, and what is in
/// flight.
fn in_flight(transport: &TransportConfig, cid_lens: [usize; 2]) -> (Pair, Vec<Vec<u8>>) {
    let mut pair = Pair::connected(Options {
        cid_lens,
        ..on(path(1472, false), transport)
    });
    pair.transfer(SERVER, 300_000, secs(5));
    let id = pair.server().open(Direction::Unidirectional).unwrap();
    pair.server().write_slice(id, &[7; 100_000]).unwrap();
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&sent);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            seen.borrow_mut().push(datagram.clone());
        }
        true
    }));
    pair.run_for(ms(5));
    pair.tap = None;
    let sent = sent.borrow().clone();
    assert!(sent.iter().filter(|sent| sent.len() == 1472).count() > 5);
    (pair, sent)
}

fn tell(pair: &mut Pair, mtu: usize, quoted: &[u8]) -> bool {
    let (now, remote) = (pair.now, pair.hosts[CLIENT].address);
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.handle_too_big(now, remote, mtu, quoted)
}

#[test]
fn a_notice_that_quotes_no_packet_in_flight_changes_nothing() {
    let (mut pair, sent) = in_flight(&searching(), [8; 2]);
    let large: Vec<_> = sent.iter().filter(|sent| sent.len() == 1472).collect();
    let quoted = large[large.len() / 2][..100].to_vec();
    let mut forged = vec![
        ("nothing", Vec::new()),
        ("too little", quoted[..1 + 8 + 4 + 15].to_vec()),
        ("no packet of ours", vec![0x40; 100]),
        ("a long header", [&[0xc0], &quoted[1..]].concat()),
        ("no QUIC bit", [&[0], &quoted[1..]].concat()),
    ];
    for at in 1..9 {
        let mut wrong_cid = quoted.clone();
        wrong_cid[at] ^= 1;
        forged.push(("the wrong connection ID", wrong_cid));
    }
    for (what, quoted) in &forged {
        assert!(!tell(&mut pair, 1300, quoted), "{what}");
    }
    for mtu in [0, 576, 1199, 1472, 1473, 70_000] {
        assert!(!tell(&mut pair, mtu, &quoted), "{mtu} is no news");
    }
    let (now, elsewhere) = (pair.now, "10.0.0.9:1000".parse().unwrap());
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    assert!(!endpoint.handle_too_big(now, elsewhere, 1300, &quoted));
    let changed = |e: &Event| *e == Event::MtuChanged;
    while pair.take_event(SERVER, changed).is_some() {}
    pair.run_for(secs(1));
    assert!(!tell(&mut pair, 1300, &quoted), "acknowledged meanwhile");
    let stats = pair.server().stats();
    assert_eq!((stats.mtu, stats.too_big_believed), (1472, 0));
    assert_eq!(stats.bytes_retransmitted, 0);
    assert!(pair.take_event(SERVER, changed).is_none());
}

#[test]
fn who_guesses_what_follows_the_connection_id_is_hardly_ever_believed() {
    let (mut pair, sent) = in_flight(&searching(), [8; 2]);
    let mut quoted = sent.iter().find(|sent| sent.len() == 1472).unwrap()[..40].to_vec();
    let mut believed = 0;
    for guess in 0..10_000_u32 {
        quoted[9..13].copy_from_slice(&guess.wrapping_mul(0x9e37_79b9).to_be_bytes());
        quoted[13..17].copy_from_slice(&guess.to_be_bytes());
        believed += u32::from(tell(&mut pair, 1300, &quoted));
    }
    // The first that is ends it: nothing in flight is larger any more.
    assert!(believed <= 1);
    assert_eq!(pair.server().stats().too_big_believed, u64::from(believed));
}

#[test]
fn a_true_notice_lowers_the_size_once_and_is_taken_back_by_a_probe() {
    for cid_lens in [[8; 2], [20; 2], [0, 8]] {
        let (mut pair, sent) = in_flight(&searching(), cid_lens);
        let large: Vec<_> = sent.iter().filter(|sent| sent.len() == 1472).collect();
        assert!(tell(&mut pair, 1400, &large[0][..60]), "{cid_lens:?}");
        assert_eq!(pair.server().stats().mtu, 1200);
        for other in large {
            assert!(
                !tell(&mut pair, 1300, &other[..60]),
                "not in flight any more"
            );
        }
        pair.run_for(secs(1));
        let stats = pair.server().stats();
        assert_eq!((stats.mtu, stats.too_big_believed), (1400, 1));
        assert_eq!(stats.congestion_events, 0);
    }
}

#[test]
fn who_vouches_for_the_size_is_not_talked_out_of_it() {
    let (mut pair, sent) = in_flight(&searching().mtu(1472), [8; 2]);
    for sent in &sent {
        assert!(!tell(&mut pair, 1300, &sent[..60.min(sent.len())]));
    }
    assert_eq!(pair.server().stats().mtu, 1472);
    let (mut pair, sent) = in_flight(&searching().initial_mtu(1400).min_mtu(1400), [8; 2]);
    for sent in &sent {
        assert!(!tell(&mut pair, 1399, &sent[..60.min(sent.len())]));
    }
    assert_eq!(pair.server().stats().mtu, 1472);
}
