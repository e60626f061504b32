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
