use std::time::Duration;

use super::super::packet::V4_HEADER;
use super::*;

const SERVER: ([u8; 4], u16) = ([10, 77, 2, 2], 4433);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn packet(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut packet = vec![0; V4_HEADER + 8];
    packet[0] = 0x45;
    packet[9] = 17;
    let transport = Transport::of(&packet).unwrap();
    transport.set_end(&mut packet, End::Source, source);
    transport.set_end(&mut packet, End::Destination, destination);
    packet
}

/// The public end of what a client's end sends.
fn out(nat: &mut Nat, now: Time, own: SocketAddr) -> Option<SocketAddr> {
    let mut packet = packet(own, SERVER.into());
    let passes = nat.translate_out(now, &mut packet);
    let transport = Transport::of(&packet).unwrap();
    transport.end(&packet, End::Source).filter(|_| passes)
}

/// The client's end that gets what the server sends.
fn back(nat: &mut Nat, now: Time, public: SocketAddr) -> Option<SocketAddr> {
    let mut packet = packet(SERVER.into(), public);
    let passes = nat.translate_in(now, &mut packet);
    let transport = Transport::of(&packet).unwrap();
    transport.end(&packet, End::Destination).filter(|_| passes)
}

#[test]
fn both_ways_are_translated_and_forgotten_in_time() {
    let own: SocketAddr = ([10, 77, 1, 2], 1000).into();
    for (change, ip_stays, port_stays) in [
        ("same", true, true),
        ("port", true, false),
        ("address", false, true),
    ] {
        let config = format!("rebind=50ms,change={change}").parse().unwrap();
        let mut nat = Nat::new(config);
        assert_eq!(back(&mut nat, at(0), own), None);
        let first = out(&mut nat, at(1), own).unwrap();
        assert_eq!(first, own);
        assert_eq!(back(&mut nat, at(2), first), Some(own));
        assert_eq!(back(&mut nat, at(50), first), None);
        let second = out(&mut nat, at(60), own).unwrap();
        assert_eq!(second.ip() == own.ip(), ip_stays, "{change}");
        assert_eq!(second.port() == own.port(), port_stays, "{change}");
        assert_eq!(back(&mut nat, at(61), second), Some(own));
        assert_eq!(back(&mut nat, at(61), first).is_some(), change == "same");
        assert_eq!(nat.rebindings, 1);
    }
}

#[test]
fn silence_forgets_and_other_ports_are_not_taken_twice() {
    let ends = [1000, 1001, 1002].map(|port| SocketAddr::from(([10, 77, 1, 2], port)));
    let mut nat = Nat::new("idle=10ms".parse().unwrap());
    for end in ends {
        assert_eq!(out(&mut nat, at(0), end), Some(end));
    }
    assert_eq!(back(&mut nat, at(9), ends[0]), Some(ends[0]));
    assert_eq!(back(&mut nat, at(15), ends[1]), None);
    let mut seen: Vec<SocketAddr> = ends.map(|end| out(&mut nat, at(18), end).unwrap()).to_vec();
    assert_eq!(seen[0], ends[0], "it was in use");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[test]
fn mappings_are_bounded_and_the_one_silent_for_longest_goes_first() {
    let mut nat = Nat::new("idle=3600s".parse().unwrap());
    let end = |port: u64| SocketAddr::from(([10, 77, 1, 2], 2000 + port as u16));
    let most = MAX_MAPPINGS as u64;
    for port in 0..most {
        assert_eq!(out(&mut nat, at(port), end(port)), Some(end(port)));
    }
    // The first is in use again, so the second has to go.
    assert_eq!(back(&mut nat, at(most), end(0)), Some(end(0)));
    for port in most..2 * most {
        assert!(out(&mut nat, at(port), end(port)).is_some());
        assert!(nat.mappings.len() <= MAX_MAPPINGS && nat.inside.len() <= MAX_MAPPINGS);
    }
    assert_eq!(back(&mut nat, at(2 * most), end(1)), None);
    assert_eq!(
        back(&mut nat, at(2 * most), end(2 * most - 1)),
        Some(end(2 * most - 1))
    );
}
