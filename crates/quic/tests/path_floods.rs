//! A peer that turns path validation against an address (RFC 9000 §8.2, §9.3.1, §21.5): what it may have
//! sent there without a window.

mod common;

use std::net::SocketAddr;

use common::evil::{Evil, payload};
use common::wire::for_each_frame;
use common::{CLIENT, SERVER, ms};
use towline_wire::{Frame, write_path_challenge, write_ping};

/// The server's datagrams to `to` with a frame that is `wanted`; all others go nowhere either.
fn sent_to(evil: &mut Evil, to: SocketAddr, wanted: fn(&Frame<'_>) -> bool) -> usize {
    let datagrams = evil.pair.take_datagrams(SERVER);
    let there = datagrams.iter().filter(|(remote, _)| *remote == to);
    there
        .filter(|(_, datagram)| {
            let mut found = false;
            for_each_frame(datagram, |_, frame| found |= wanted(frame));
            found
        })
        .count()
}

fn pass(evil: &mut Evil, millis: u64) {
    evil.pair.now += ms(millis);
    let now = evil.pair.now;
    evil.pair.hosts[SERVER].endpoint.handle_timeout(now);
}

fn victim(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 7, (n >> 8) as u8, n as u8], 77))
}

#[test]
fn challenges_where_data_does_not_go_are_answered_at_no_great_rate() {
    let mut evil = Evil::against(SERVER);
    let home = evil.pair.hosts[CLIENT].address;
    let packet = evil.packet(&payload(write_ping));
    evil.pair.deliver_silently(SERVER, victim(0), &packet);
    evil.pair.take_datagrams(SERVER);
    // Where the client was is proven, and data goes elsewhere.
    let mut answers = 0;
    for _ in 0..1000 {
        let flood = payload(|w| {
            for n in 0..8 {
                write_path_challenge(w, [n; 8]);
            }
        });
        let packet = evil.packet(&flood);
        evil.pair.deliver_silently(SERVER, home, &packet);
        answers += sent_to(&mut evil, home, |f| matches!(f, Frame::PathResponse(_)));
        pass(&mut evil, 1);
    }
    // Eight at once, and twenty a second.
    assert!((20..=28).contains(&answers), "{answers}");
    evil.assert_open();
}

#[test]
fn a_peer_that_jumps_to_and_fro_has_no_address_asked_faster() {
    let mut evil = Evil::against(SERVER);
    let home = evil.pair.hosts[CLIENT].address;
    let mut asked = 0;
    for n in 0..500 {
        for from in [victim(n), home] {
            let packet = evil.packet(&payload(write_ping));
            evil.pair.deliver_silently(SERVER, from, &packet);
            asked += sent_to(&mut evil, home, |f| matches!(f, Frame::PathChallenge(_)));
        }
        pass(&mut evil, 2);
    }
    // A second, in which challenges are 300 ms apart.
    assert!((1..=4).contains(&asked), "{asked}");
    evil.assert_open();
}
