use core::time::Duration;

use super::*;
use crate::{LossModel, Profile};

const MILLI: Duration = Duration::from_millis(1);

fn host(number: u8) -> SocketAddr {
    ([10, 0, 0, number], 4433).into()
}

fn at(millis: u32) -> Time {
    Time::ZERO + MILLI * millis
}

fn from_to(source: SocketAddr, destination: SocketAddr) -> Datagram {
    Datagram::new(source, destination, vec![0; 1250])
}

fn delayed(millis: u32) -> LinkConfig {
    LinkConfig {
        delay: MILLI * millis,
        ..LinkConfig::default()
    }
}

fn drain(network: &mut Network) -> Vec<(Time, Datagram)> {
    let mut out = Vec::new();
    while let Some(time) = network.next_timeout() {
        while let Some(datagram) = network.poll_deliver(time) {
            out.push((time, datagram));
        }
    }
    out
}

#[test]
fn each_direction_has_its_own_link() {
    let (a, b) = (host(1), host(2));
    let mut network = Network::new(1);
    let (there, back) = network.join(a, b, delayed(10), delayed(30)).unwrap();
    network.send(Time::ZERO, from_to(a, b));
    network.send(Time::ZERO, from_to(b, a));
    assert_eq!(network.poll_deliver(at(9)), None);
    assert_eq!(network.next_timeout(), Some(at(10)));
    assert_eq!(network.poll_deliver(at(10)), Some(from_to(a, b)));
    assert_eq!(network.poll_deliver(at(29)), None);
    assert_eq!(network.poll_deliver(at(30)), Some(from_to(b, a)));
    assert_eq!(network.next_timeout(), None);
    assert_eq!(network.link(there).stats().bytes_delivered, 1250);
    assert_eq!(network.link(back).stats().bytes_delivered, 1250);
}

#[test]
fn impossible_links_are_refused_whole() {
    let mut network = Network::new(1);
    let bad = LinkConfig {
        rate: Some(0),
        ..LinkConfig::default()
    };
    assert!(network.join(host(1), host(2), delayed(1), bad).is_err());
    network.send(Time::ZERO, from_to(host(1), host(2)));
    assert_eq!(network.stats().dropped_no_route, 1);
}

#[test]
fn strangers_do_not_reach_each_other() {
    let mut network = Network::new(1);
    network
        .join(host(1), host(2), delayed(1), delayed(1))
        .unwrap();
    network.send(Time::ZERO, from_to(host(1), host(3)));
    network.send(Time::ZERO, from_to(host(3), host(2)));
    assert_eq!(network.next_timeout(), None);
    assert_eq!(network.stats().dropped_no_route, 2);
}

#[test]
fn flows_share_a_bottleneck_between_their_own_links() {
    let server = host(9);
    let mut network = Network::new(1);
    let rate = LinkConfig {
        rate: Some(10_000_000),
        ..LinkConfig::default()
    };
    let bottleneck = network.add_link("bottleneck", rate).unwrap();
    for number in [1, 2] {
        let access = network.add_link("access", delayed(5)).unwrap();
        network
            .route(host(number), server, &[access, bottleneck])
            .unwrap();
    }
    network.send(Time::ZERO, from_to(host(1), server));
    network.send(Time::ZERO, from_to(host(2), server));
    let out: Vec<(Time, SocketAddr)> = drain(&mut network)
        .iter()
        .map(|(time, d)| (*time, d.source))
        .collect();
    assert_eq!(out, [(at(6), host(1)), (at(7), host(2))]);
}

#[test]
fn a_coarse_step_changes_nothing_but_the_moment_of_reading() {
    let server = host(9);
    let mut network = Network::new(1);
    let first = network.add_link("first", delayed(5)).unwrap();
    let rate = LinkConfig {
        rate: Some(10_000_000),
        queue: Some(1250),
        ..LinkConfig::default()
    };
    let second = network.add_link("second", rate).unwrap();
    network.route(host(1), server, &[first, second]).unwrap();
    for millis in [0, 3, 6, 9] {
        network.send(at(millis), from_to(host(1), server));
    }
    let mut arrived = 0;
    while network.poll_deliver(at(1000)).is_some() {
        arrived += 1;
    }
    assert_eq!(
        arrived, 4,
        "spaced datagrams never queue at the second link"
    );
    assert_eq!(network.link(second).stats().queue_peak_bytes, 0);
}

#[test]
fn bad_routes_are_refused() {
    let mut network = Network::new(1);
    let mut other = Network::new(1);
    let link = network.add_link("x", delayed(1)).unwrap();
    other.add_link("x", delayed(1)).unwrap();
    let foreign = other.add_link("y", delayed(1)).unwrap();
    assert_eq!(network.route(host(1), host(2), &[]), Err(RouteError::Empty));
    assert_eq!(
        network.route(host(1), host(2), &[link, link]),
        Err(RouteError::RepeatedLink)
    );
    assert_eq!(
        network.route(host(1), host(2), &[foreign]),
        Err(RouteError::UnknownLink)
    );
}

#[test]
fn rebound_host_is_seen_and_reached_under_its_new_address_only() {
    let (client, server) = (host(1), host(2));
    let (old, new) = (host(101), host(102));
    let mut network = Network::new(1);
    network
        .join(client, server, delayed(10), delayed(10))
        .unwrap();
    network.rebind(client, old);
    network.send(at(0), from_to(client, server));
    assert_eq!(network.poll_deliver(at(10)), Some(from_to(old, server)));
    network.send(at(10), from_to(server, old));
    network.rebind(client, new);
    // The answer was on its way to the mapping that is gone.
    assert_eq!(network.poll_deliver(at(20)), None);
    assert_eq!(network.stats().dropped_stale_address, 1);
    network.send(at(20), from_to(client, server));
    assert_eq!(network.poll_deliver(at(30)), Some(from_to(new, server)));
    network.send(at(30), from_to(server, new));
    assert_eq!(network.poll_deliver(at(40)), Some(from_to(server, client)));
    // Nobody reaches the private address from outside.
    network.send(at(40), from_to(server, client));
    assert_eq!(network.poll_deliver(at(50)), None);
    network.rebind(client, client);
    network.send(at(50), from_to(server, client));
    assert_eq!(network.poll_deliver(at(60)), Some(from_to(server, client)));
}

#[test]
fn a_nat_that_forgot_lets_nothing_in_until_the_inside_sends() {
    let (client, server) = (host(1), host(2));
    for (change, ip_stays, port_stays) in [
        ("same", true, true),
        ("port", true, false),
        ("address", false, true),
    ] {
        let mut network = Network::new(1);
        network
            .join(client, server, delayed(10), delayed(10))
            .unwrap();
        let nat = format!("rebind=100ms,change={change}").parse().unwrap();
        network.set_nat(client, nat).unwrap();
        network.send(at(0), from_to(client, server));
        assert_eq!(network.poll_deliver(at(10)), Some(from_to(client, server)));
        network.send(at(80), from_to(server, client));
        assert_eq!(network.poll_deliver(at(90)), Some(from_to(server, client)));
        network.send(at(95), from_to(server, client));
        assert_eq!(network.poll_deliver(at(105)), None);
        assert_eq!(network.stats().dropped_unmapped, 1);

        network.send(at(110), from_to(client, server));
        let seen = network.poll_deliver(at(120)).unwrap().source;
        assert_eq!(seen, network.public(client));
        assert_eq!(network.host_behind(seen), client);
        assert_eq!(seen.ip() == client.ip(), ip_stays, "{change}");
        assert_eq!(seen.port() == client.port(), port_stays, "{change}");
        network.send(at(120), from_to(server, seen));
        assert_eq!(network.poll_deliver(at(130)), Some(from_to(server, client)));
        assert_eq!(network.stats().rebindings, 1);
    }
}

#[test]
fn nats_never_give_an_address_that_somebody_has() {
    let (a, b, server) = (host(1), host(2), host(9));
    let mut network = Network::new(1);
    let mut seen = Vec::new();
    for client in [a, b] {
        network
            .join(client, server, delayed(0), delayed(0))
            .unwrap();
        network
            .set_nat(client, "every=1ms,change=address".parse().unwrap())
            .unwrap();
    }
    for turn in 0..100 {
        for client in [a, b] {
            network.send(at(turn), from_to(client, server));
            seen.push(network.poll_deliver(at(turn)).unwrap().source);
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 200);
    // One host's ports, all of them, and those of its neighbour at the same address.
    let neighbour = SocketAddr::new(a.ip(), a.port() + 1);
    network
        .join(neighbour, server, delayed(0), delayed(0))
        .unwrap();
    network.set_nat(a, "every=1ms".parse().unwrap()).unwrap();
    for turn in 100..300 {
        network.send(at(turn), from_to(a, server));
        assert_ne!(
            network.poll_deliver(at(turn)).unwrap().source,
            neighbour,
            "{turn}"
        );
    }
}

#[test]
fn a_silent_mapping_is_forgotten() {
    let (client, server) = (host(1), host(2));
    let mut network = Network::new(1);
    network
        .join(client, server, delayed(0), delayed(0))
        .unwrap();
    network
        .set_nat(client, "idle=30ms".parse().unwrap())
        .unwrap();
    network.send(at(0), from_to(client, server));
    assert!(network.poll_deliver(at(0)).is_some());
    for time in [20, 40, 60] {
        network.send(at(time), from_to(server, client));
        assert!(network.poll_deliver(at(time)).is_some(), "{time}");
    }
    network.send(at(90), from_to(server, client));
    assert!(network.poll_deliver(at(90)).is_none());
    network.remove_nat(client);
    network.send(at(91), from_to(server, client));
    assert!(network.poll_deliver(at(91)).is_some());
}

fn narrow(mtu: usize, millis: u32) -> LinkConfig {
    LinkConfig {
        mtu: Some(mtu),
        icmp: true,
        ..delayed(millis)
    }
}

#[test]
fn a_notice_finds_its_host_through_the_nat() {
    let (client, server, public) = (host(1), host(2), host(101));
    let mut network = Network::new(1);
    network
        .join(client, server, narrow(1200, 10), delayed(10))
        .unwrap();
    network.rebind(client, public);
    network.send(at(0), from_to(client, server));
    assert_eq!(network.poll_too_big(at(9)), None);
    assert_eq!(network.next_timeout(), Some(at(10)));
    let notice = network.poll_too_big(at(10)).unwrap();
    assert_eq!((notice.source, notice.destination), (client, server));
    assert_eq!(notice.mtu, 1200);
    assert_eq!(network.next_timeout(), None);
    // The mapping is gone before the notice is back.
    network.send(at(20), from_to(client, server));
    network.rebind(client, host(102));
    assert_eq!(network.poll_too_big(at(30)), None);
    assert_eq!(network.stats().dropped_notices, 1);
}

#[test]
fn notices_under_way_are_bounded() {
    let (a, b) = (host(1), host(2));
    let mut network = Network::new(1);
    network.join(a, b, narrow(1200, 10), delayed(10)).unwrap();
    for _ in 0..MAX_NOTICES + 5 {
        network.send(at(0), from_to(a, b));
    }
    let mut heard = 0;
    while network.poll_too_big(at(10)).is_some() {
        heard += 1;
    }
    assert_eq!(heard, MAX_NOTICES);
    assert_eq!(network.stats().dropped_notices, 5);
}

#[test]
fn forged_datagrams_keep_their_source() {
    let (client, server) = (host(1), host(2));
    let mut network = Network::new(1);
    network
        .join(client, server, delayed(1), delayed(1))
        .unwrap();
    network.rebind(client, host(101));
    network.inject(at(0), from_to(host(101), server));
    assert_eq!(
        network.poll_deliver(at(1)),
        Some(from_to(host(101), server))
    );
}

#[test]
fn a_healed_link_loses_nothing_more() {
    let mut network = Network::new(1);
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(1.0),
        ..LinkConfig::default()
    };
    let (there, _) = network.join(host(1), host(2), lossy, delayed(0)).unwrap();
    network.send(at(0), from_to(host(1), host(2)));
    assert_eq!(network.poll_deliver(at(0)), None);
    network.set_config(there, LinkConfig::default()).unwrap();
    network.send(at(1), from_to(host(1), host(2)));
    assert!(network.poll_deliver(at(1)).is_some());
}

fn busy_world(seed: u64) -> Vec<(Time, Datagram)> {
    let mut network = Network::new(seed);
    for client in 1..5 {
        let link = Profile::ALL[usize::from(client) + 1].link();
        network
            .join(host(client), host(9), link.clone(), link)
            .unwrap();
    }
    for step in 0..300 {
        let client = host(1 + (step % 4) as u8);
        network.send(at(step), from_to(client, host(9)));
        network.send(at(step), from_to(host(9), client));
    }
    drain(&mut network)
}

#[test]
fn one_seed_is_one_trace() {
    assert_eq!(busy_world(42), busy_world(42));
    assert_ne!(busy_world(42), busy_world(43));
}

#[test]
fn other_links_do_not_change_what_a_link_does() {
    let run = |extra: bool| {
        let mut network = Network::new(5);
        if extra {
            network
                .join(host(7), host(8), delayed(1), delayed(1))
                .unwrap();
        }
        let lossy = LinkConfig {
            loss: LossModel::Bernoulli(0.5),
            ..LinkConfig::default()
        };
        network
            .join(host(1), host(2), lossy.clone(), lossy)
            .unwrap();
        for step in 0..100 {
            network.send(at(step), from_to(host(1), host(2)));
        }
        drain(&mut network)
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn links_of_one_name_choose_differently() {
    let mut network = Network::new(5);
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.5),
        ..LinkConfig::default()
    };
    let mut lost = Vec::new();
    for number in [1, 2] {
        let link = network.add_link("twin", lossy.clone()).unwrap();
        network.route(host(number), host(9), &[link]).unwrap();
        for step in 0..100 {
            network.send(at(step), from_to(host(number), host(9)));
        }
        lost.push(
            drain(&mut network)
                .iter()
                .map(|(time, _)| *time)
                .collect::<Vec<_>>(),
        );
    }
    assert_ne!(lost[0], lost[1]);
}

#[test]
fn a_change_of_rate_reaches_what_waits() {
    let (a, b) = (host(1), host(2));
    let mut network = Network::new(1);
    let slow = LinkConfig {
        rate: Some(1_000_000),
        ..delayed(5)
    };
    let (there, _) = network.join(a, b, slow.clone(), delayed(5)).unwrap();
    for _ in 0..3 {
        network.send(Time::ZERO, from_to(a, b));
    }
    // The first leaves at 10 ms; the others would at 20 and 30.
    assert!(network.poll_deliver(at(12)).is_none());
    let fast = LinkConfig {
        rate: Some(10_000_000),
        ..slow
    };
    network.set_config(there, fast).unwrap();
    let times: Vec<Time> = drain(&mut network).into_iter().map(|(t, _)| t).collect();
    // The second was being serialised at the change.
    assert_eq!(times, [at(15), at(25), at(26)]);
    let measure = network.take_measure(there, at(26));
    assert_eq!((measure.bytes_out, measure.delays.count()), (3750, 3));
}
