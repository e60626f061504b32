//! The search for the largest packets a path carries (RFC 8899, RFC 9000 §14), and black holes.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use common::wire::has_frame;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{Algorithm, Direction, Event, TransportConfig};
use towline_sim::LinkConfig;
use towline_wire::Frame;

/// A path of 20 ms that carries UDP payloads of so many bytes.
fn path(mtu: usize) -> LinkConfig {
    LinkConfig {
        mtu: Some(mtu),
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

fn set_path(pair: &mut Pair, mtu: usize) {
    let (a, b) = pair.links;
    pair.net.set_config(a, path(mtu)).unwrap();
    pair.net.set_config(b, path(mtu)).unwrap();
}

/// Sends a little more than a window's worth, so many times: a probe's fate is known after each.
fn keep_sending(pair: &mut Pair, side: usize, rounds: u32) {
    for _ in 0..rounds {
        pair.transfer(side, 20_000, secs(5));
    }
}

#[test]
fn a_transfer_over_ethernet_runs_at_1472_bytes_after_the_first_round_trips() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    let (now, packets) = (pair.now, pair.client().stats().packets_sent);
    pair.transfer(CLIENT, 300_000, secs(5));
    let stats = pair.client().stats();
    assert_eq!((stats.mtu, stats.mtu_probes_sent), (1472, 1));
    assert_eq!((stats.mtu_probes_lost, stats.packets_lost), (0, 0));
    assert!(pair.now < now + ms(200), "{:?}", pair.now);
    let small = 300_000 / 1150;
    assert!(
        stats.packets_sent - packets < small,
        "{}",
        stats.packets_sent
    );
    assert_eq!(pair.server().stats().mtu, 1200, "it sent no data");
}

#[test]
fn paths_of_every_size_are_found_and_probes_cost_no_window() {
    for mtu in [
        1200, 1232, 1252, 1280, 1352, 1372, 1400, 1432, 1452, 1464, 1472,
    ] {
        for congestion in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
            let transport = searching().congestion(congestion);
            let mut pair = Pair::connected(on(path(mtu), &transport));
            keep_sending(&mut pair, SERVER, 60);
            let stats = pair.server().stats();
            assert!(
                usize::from(stats.mtu) <= mtu && mtu - usize::from(stats.mtu) < 20,
                "{} of {mtu}",
                stats.mtu
            );
            assert_eq!(
                stats.packets_lost, 0,
                "{mtu}: probes apart nothing was lost"
            );
            assert_eq!(stats.congestion_events, 0, "{mtu}");
            assert!(
                stats.mtu_probes_lost <= 18,
                "{mtu}: {}",
                stats.mtu_probes_lost
            );
        }
    }
}

#[test]
fn probes_that_are_all_lost_end_and_come_again_after_ten_minutes() {
    let transport = searching().max_idle_timeout(secs(10_000));
    let mut pair = Pair::connected(on(path(1200), &transport));
    keep_sending(&mut pair, CLIENT, 60);
    let sent = pair.client().stats().mtu_probes_sent;
    assert!((3..=18).contains(&sent), "{sent}");
    assert_eq!(pair.client().stats().mtu_probes_lost, sent);
    pair.run_for(secs(300));
    pair.transfer(CLIENT, 1_000_000, secs(20));
    assert_eq!(pair.client().stats().mtu_probes_sent, sent);
    set_path(&mut pair, 1472);
    pair.run_for(secs(320));
    pair.transfer(CLIENT, 100_000, secs(20));
    // The data is there before the probe's acknowledgement.
    pair.run_for(ms(100));
    let stats = pair.client().stats();
    assert_eq!(stats.mtu, 1472, "{stats:?}");
    assert_eq!(stats.bytes_retransmitted, 0);
}

#[test]
fn who_sends_little_is_not_probed_and_pays_nothing() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    for _ in 0..50 {
        pair.transfer(CLIENT, 100, secs(1));
        pair.run_for(secs(1));
    }
    pair.transfer(CLIENT, 8000, secs(1));
    assert_eq!(pair.client().stats().mtu_probes_sent, 0);
}

#[test]
fn a_probe_holds_padding_and_a_ping_and_goes_alone() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    let probes = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&probes);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT && datagram.len() == 1472 {
            let data = has_frame(datagram, |f| matches!(f, Frame::Stream { .. }));
            let ping = has_frame(datagram, |f| matches!(f, Frame::Ping));
            seen.borrow_mut().push((ping, data));
        }
        true
    }));
    pair.transfer(CLIENT, 60_000, secs(5));
    let seen = probes.borrow();
    assert_eq!(seen[0], (true, false), "the probe");
    assert!(seen[1..].iter().all(|probe| *probe == (false, true)));
}

#[test]
fn larger_sizes_are_found_where_they_are_asked_for() {
    for (mtu, found) in [
        (8872, 8872..=8872),
        (8972, 8972..=8972),
        (65_507, 65_507..=65_507),
    ] {
        let transport = searching().max_mtu(Some(mtu as u16));
        let mut pair = Pair::connected(on(path(mtu), &transport));
        pair.transfer(SERVER, 4_000_000, secs(60));
        keep_sending(&mut pair, SERVER, 30);
        let stats = pair.server().stats();
        assert!(
            found.contains(&usize::from(stats.mtu)),
            "{} of {mtu}",
            stats.mtu
        );
        assert_eq!(stats.packets_lost, 0);
    }
}

#[test]
fn datagrams_of_which_none_fills_a_packet_are_sent_in_larger_ones_too() {
    for len in [100, 450, 700] {
        let mut pair = Pair::connected(on(path(1472), &searching()));
        for _ in 0..20 {
            for _ in 0..30 {
                let data = Bytes::from(vec![7; len]);
                pair.client().send_datagram(data).unwrap();
            }
            pair.run_for(ms(50));
        }
        assert_eq!(pair.client().stats().mtu, 1472, "datagrams of {len} bytes");
    }
}

#[test]
fn a_fixed_size_is_kept() {
    let mut pair = Pair::connected(on(path(9000), &TransportConfig::default().mtu(1300)));
    pair.transfer(CLIENT, 1_000_000, secs(10));
    let stats = pair.client().stats();
    assert_eq!((stats.mtu, stats.mtu_probes_sent), (1300, 0));
}

#[test]
fn where_the_system_may_fragment_nothing_larger_is_tried() {
    let mut pair = Pair::new(on(path(9000), &searching().max_mtu(Some(9000))));
    for host in &mut pair.hosts {
        host.endpoint.set_may_fragment(true);
    }
    pair.connect();
    pair.established(secs(5));
    for side in [CLIENT, SERVER] {
        pair.transfer(side, 1_000_000, secs(10));
        let stats = pair.hosts[side].conn().stats();
        assert_eq!((stats.mtu, stats.mtu_probes_sent), (1200, 0));
    }
}

#[test]
fn a_black_hole_in_mid_flight_is_left_within_some_timeouts() {
    for congestion in [
        Algorithm::NewReno,
        Algorithm::Cubic,
        Algorithm::Bbr,
        Algorithm::LedbatPlusPlus,
    ] {
        for mtu in [1200, 1300, 1452] {
            let transport = searching()
                .congestion(congestion)
                .max_idle_timeout(secs(200));
            let mut pair = Pair::connected(on(path(1472), &transport));
            pair.transfer(SERVER, 300_000, secs(5));
            assert_eq!(pair.server().stats().mtu, 1472);
            let pto = pair.server().stats().pto;
            set_path(&mut pair, mtu);
            let took = pair.transfer(SERVER, 300_000, secs(30));
            let stats = pair.server().stats();
            assert_eq!((stats.mtu, stats.black_holes_detected), (1200, 1), "{mtu}");
            assert!(
                took < 12 * pto + secs(1),
                "{congestion:?} {mtu}: {took:?}, {pto:?}"
            );
            // The path settles for a minute; then what it carries is found.
            pair.run_for(secs(60));
            keep_sending(&mut pair, SERVER, 60);
            let found = usize::from(pair.server().stats().mtu);
            assert!(found <= mtu && mtu - found < 20, "{found} of {mtu}");
        }
    }
}

#[test]
fn after_silence_packets_are_small_enough_for_any_path() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    pair.transfer(CLIENT, 300_000, secs(5));
    let largest = Rc::new(Cell::new(0));
    let seen = Rc::clone(&largest);
    let id = pair.client().open(Direction::Unidirectional).unwrap();
    pair.client().write_slice(id, &[7; 200_000]).unwrap();
    pair.tap = Some(Box::new(move |from, _| from != CLIENT));
    pair.run_for(ms(30));
    // All of the window is under way; what comes now is sent because nothing is heard.
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT {
            seen.set(seen.get().max(datagram.len()));
        }
        from != CLIENT
    }));
    pair.run_for(secs(2));
    assert_eq!(largest.get(), 1200);
}

#[test]
fn loss_by_congestion_is_no_black_hole() {
    for seed in 1..=5 {
        let lossy = LinkConfig {
            loss: towline_sim::LossModel::Bernoulli(0.2),
            ..path(1472)
        };
        let mut pair = Pair::connected(Options {
            seed,
            ..on(path(1472), &searching())
        });
        pair.transfer(CLIENT, 100_000, secs(10));
        let (a, b) = pair.links;
        pair.net.set_config(a, lossy.clone()).unwrap();
        pair.net.set_config(b, lossy).unwrap();
        pair.transfer(CLIENT, 500_000, secs(120));
        let stats = pair.client().stats();
        assert_eq!((stats.mtu, stats.black_holes_detected), (1472, 0), "{seed}");
    }
}

#[test]
fn a_size_that_does_not_leave_the_machine_is_not_tried_again() {
    let mut pair = Pair::connected(on(path(1400), &searching()));
    let handle = pair.hosts[CLIENT].handle.unwrap();
    // What the device carries: every size above is refused as it is sent.
    let id = pair.client().open(Direction::Unidirectional).unwrap();
    pair.client().write_slice(id, &[7; 500_000]).unwrap();
    for size in [1472, 1440, 1412, 1401] {
        pair.hosts[CLIENT]
            .endpoint
            .handle_datagram_too_big(handle, size);
    }
    pair.run_for(secs(5));
    let stats = pair.client().stats();
    assert!(stats.mtu > 1380 && stats.mtu <= 1400, "{}", stats.mtu);
    assert_eq!((stats.mtu_probes_lost, stats.packets_lost), (0, 0));
}

#[test]
fn nobody_makes_packets_smaller_than_1200_bytes() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    pair.transfer(CLIENT, 300_000, secs(5));
    let handle = pair.hosts[CLIENT].handle.unwrap();
    for size in [0, 68, 576, 1199, 1200] {
        pair.hosts[CLIENT]
            .endpoint
            .handle_datagram_too_big(handle, size);
        assert_eq!(pair.client().stats().mtu, 1472, "{size}");
    }
    for size in [1472, 1300, 1201] {
        pair.hosts[CLIENT]
            .endpoint
            .handle_datagram_too_big(handle, size);
        assert_eq!(pair.client().stats().mtu, 1200, "{size}");
    }
    pair.transfer(CLIENT, 300_000, secs(5));
    assert_eq!(pair.client().stats().mtu, 1200);
}

#[test]
fn who_sends_datagrams_hears_that_they_may_be_longer_and_that_they_may_not() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    let changed = |e: &Event| *e == Event::MtuChanged;
    let before = pair.client().max_datagram_len().unwrap();
    pair.transfer(CLIENT, 100_000, secs(5));
    assert!(pair.take_event(CLIENT, changed).is_some());
    assert!(pair.take_event(CLIENT, changed).is_none(), "told once");
    let after = pair.client().max_datagram_len().unwrap();
    assert_eq!(after, before + 272);
    pair.client()
        .send_datagram(Bytes::from(vec![1; after]))
        .unwrap();
    pair.run_for(ms(50));
    assert_eq!(pair.server().recv_datagram().map(|d| d.len()), Some(after));

    pair.client()
        .send_datagram(Bytes::from(vec![2; after]))
        .unwrap();
    pair.client()
        .send_datagram(Bytes::from(vec![3; before]))
        .unwrap();
    let handle = pair.hosts[CLIENT].handle.unwrap();
    pair.hosts[CLIENT]
        .endpoint
        .handle_datagram_too_big(handle, 1472);
    assert_eq!(pair.client().max_datagram_len(), Some(before));
    pair.run_for(ms(50));
    assert!(pair.take_event(CLIENT, changed).is_some());
    assert_eq!(pair.server().recv_datagram().map(|d| d.len()), Some(before));
    assert_eq!(pair.client().stats().app_datagrams_expired, 1);
}

#[test]
fn who_sends_datagrams_hears_that_another_path_is_to_be_searched_anew() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    let changed = |e: &Event| *e == Event::MtuChanged;
    let first = pair.server().max_datagram_len().unwrap();
    pair.transfer(SERVER, 100_000, secs(5));
    assert!(pair.take_event(SERVER, changed).is_some());
    let found = pair.server().max_datagram_len().unwrap();
    assert_eq!(found, first + 272);
    let host = pair.hosts[CLIENT].address;
    pair.net.rebind(host, "10.0.9.9:1000".parse().unwrap());
    pair.client().ping();
    pair.run_for(ms(100));
    assert!(
        pair.take_event(SERVER, |e| *e == Event::PathChanged)
            .is_some()
    );
    assert!(pair.take_event(SERVER, changed).is_some());
    assert_eq!(pair.server().max_datagram_len(), Some(first));
    // A NAT that forgot a port leaves all as it is.
    pair.transfer(SERVER, 100_000, secs(5));
    assert!(pair.take_event(SERVER, changed).is_some());
    pair.net.rebind(host, "10.0.9.9:2000".parse().unwrap());
    pair.client().ping();
    pair.run_for(ms(100));
    assert!(pair.take_event(SERVER, changed).is_none());
    assert_eq!(pair.server().max_datagram_len(), Some(found));
}

#[test]
fn each_path_is_searched_up_to_what_ethernet_carries_of_its_address_family() {
    let mut pair = Pair::connected(on(path(1472), &searching()));
    let host = pair.hosts[CLIENT].address;
    let places = [
        ("[2001:db8::9]:1000", 1452),
        ("10.0.9.9:1000", 1472),
        ("[::ffff:10.0.9.10]:1000", 1472),
        ("[2001:db8::10]:1000", 1452),
    ];
    for (place, most) in places {
        pair.net.rebind(host, place.parse().unwrap());
        pair.client().ping();
        pair.run_for(ms(100));
        keep_sending(&mut pair, SERVER, 20);
        assert_eq!(pair.server().stats().mtu, most, "{place}");
    }
    // Where nothing is searched the one size stays.
    let mut pair = Pair::connected(on(path(1472), &searching().mtu(1460)));
    pair.net.rebind(host, "[2001:db8::9]:1000".parse().unwrap());
    pair.client().ping();
    pair.run_for(ms(100));
    keep_sending(&mut pair, SERVER, 5);
    assert_eq!(pair.server().stats().mtu, 1460);
}

#[test]
fn probes_keep_to_the_congestion_window_and_to_a_rate_limit() {
    let transport = searching().rate_limit(std::num::NonZeroU64::new(50_000));
    let mut pair = Pair::connected(on(path(1472), &transport));
    let took = pair.transfer(CLIENT, 200_000, secs(20));
    assert_eq!(pair.client().stats().mtu, 1472, "a limit starves no probe");
    assert!(took > ms(3900), "{took:?}");
}
