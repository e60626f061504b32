//! A NAT that gives a client another address before the handshake is confirmed (RFC 9000 §9, RFC 9002
//! §6.2.4), and somebody who only pretends that it did.

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use common::evil::Evil;
use common::wire::has_frame;
use common::{CLIENT, Options, Pair, SERVER, Transfer, ms, readable, secs};
use towline_quic::{Event, Stats};
use towline_wire::{Frame, write_path_challenge};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// One way takes 10 ms: the client's hello arrives then, its Finished at 30 ms.
fn connecting() -> Pair {
    let mut pair = Pair::new(Options::default());
    pair.connect();
    pair
}

/// The client's NAT has another address for it; what goes to the one before is lost.
fn rebind(pair: &mut Pair, public: &str) -> SocketAddr {
    let (host, public) = (pair.hosts[CLIENT].address, address(public));
    pair.net.rebind(host, public);
    public
}

fn server_stats(pair: &mut Pair) -> Stats {
    pair.server().stats()
}

#[test]
fn a_client_whose_address_changes_before_the_hello_comes_begins_again() {
    for public in ["10.0.0.1:5000", "10.0.9.9:1000"] {
        let mut pair = connecting();
        pair.run_for(ms(15));
        let public = rebind(&mut pair, public);
        pair.established(secs(2));
        assert_eq!(pair.server().remote(), public);
        pair.transfer(CLIENT, 100_000, secs(5));
        pair.transfer(SERVER, 100_000, secs(5));
        assert_eq!(server_stats(&mut pair).path_changes, 0);
        // What nobody answers is gone with its time.
        assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 2);
        pair.run_for(secs(15));
        assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 1);
    }
}

#[test]
fn a_client_whose_address_changes_behind_its_finished_is_found() {
    for from in [CLIENT, SERVER] {
        for public in ["10.0.0.1:5000", "10.0.9.9:1000"] {
            let mut pair = connecting();
            pair.run_for(ms(25));
            let public = rebind(&mut pair, public);
            pair.run_until(secs(1), |p| p.hosts[CLIENT].is_confirmed());
            let transfer = Transfer::start(&mut pair, from, 100_000);
            transfer.finish(&mut pair, secs(2));
            assert_eq!(pair.server().remote(), public);
            let stats = server_stats(&mut pair);
            assert_eq!((stats.path_changes, stats.paths_validated), (1, 1));
        }
    }
}

#[test]
fn a_finished_that_was_lost_counts_from_the_new_address_as_well() {
    let mut pair = Pair::new(Options::default());
    let mut sent = 0;
    pair.tap = Some(Box::new(move |from, _| {
        sent += u32::from(from == CLIENT);
        // The hello passes, and nothing more that leaves before the NAT forgets.
        from == SERVER || sent == 1 || sent > 4
    }));
    pair.connect();
    pair.run_for(ms(25));
    assert!(!pair.hosts[CLIENT].is_confirmed());
    let public = rebind(&mut pair, "10.0.0.1:5000");
    pair.run_until(secs(3), |p| p.hosts.iter().all(|h| h.is_confirmed()));
    assert_eq!(pair.server().remote(), public);
    pair.transfer(SERVER, 100_000, secs(5));
}

#[test]
fn a_probe_of_a_client_that_is_not_sure_holds_a_packet_of_each_kind() {
    let probes: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let seen = probes.clone();
    let mut pair = Pair::new(readable());
    let mut answers = 0;
    pair.tap = Some(Box::new(move |from, datagram| {
        answers += u32::from(from == SERVER);
        if from == CLIENT && datagram[0] & 0xf0 == 0xe0 {
            seen.borrow_mut().push(datagram.clone());
        }
        from == CLIENT || answers == 1
    }));
    pair.connect();
    pair.run_for(secs(1));
    let probes = probes.borrow();
    assert!(probes.len() >= 2, "{}", probes.len());
    let with_ping = probes
        .iter()
        .filter(|probe| has_frame(probe, |f| matches!(f, Frame::Ping)));
    assert!(with_ping.count() >= 2);
}

#[test]
fn a_copied_hello_gets_another_address_its_three_times_and_costs_the_client_nothing() {
    let hello: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
    let copy = hello.clone();
    let mut pair = Pair::new(Options::default());
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT && copy.borrow().is_none() {
            *copy.borrow_mut() = Some(datagram.clone());
        }
        true
    }));
    pair.connect();
    pair.run_for(ms(5));
    let hello = hello.borrow_mut().take().unwrap();
    let victims: Vec<SocketAddr> = (1..=20)
        .map(|n| address(&format!("10.0.7.{n}:77")))
        .collect();
    // Faster than the true path, and once more behind it.
    for victim in &victims {
        pair.deliver_silently(SERVER, *victim, &hello);
    }
    pair.established(secs(1));
    let client = pair.hosts[CLIENT].address;
    assert_eq!(pair.server().remote(), client);
    pair.transfer(SERVER, 100_000, secs(5));
    for victim in &victims {
        pair.deliver_silently(SERVER, *victim, &hello);
    }
    let mut sent = 0;
    for _ in 0..150 {
        let datagrams = pair.take_datagrams(SERVER);
        let bytes = datagrams.iter().filter(|(to, _)| *to != client);
        sent += bytes.map(|(_, datagram)| datagram.len()).sum::<usize>();
        pair.now += ms(100);
        let now = pair.now;
        let endpoint = &mut pair.hosts[SERVER].endpoint;
        endpoint.handle_timeout(now);
        while endpoint.poll_event().is_some() {}
    }
    assert!(
        sent <= 3 * 2 * victims.len() * hello.len(),
        "{sent} bytes to those who sent nothing"
    );
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.connections, stats.handshakes), (1, 0));
}

#[test]
fn a_full_window_keeps_no_answer_from_a_challenge_and_a_flood_gets_one_now_and_then() {
    let mut pair = Pair::connected(readable());
    pair.run_for(ms(200));
    let mut transfer = Transfer::start(&mut pair, CLIENT, 1_000_000);
    let mut evil = Evil::take_over(pair, CLIENT);
    // Nobody acknowledges what fills the window.
    transfer.turn(&mut evil.pair);
    evil.pair.run_for(ms(20));
    let answers = |evil: &Evil| evil.count_frames(|f| matches!(f, Frame::PathResponse(_)));
    assert_eq!(answers(&evil), 0);
    evil.send(|w| write_path_challenge(w, [1; 8]));
    evil.pair.run_for(ms(11));
    assert_eq!(answers(&evil), 1);
    // The probes that the timeouts permit may hold others.
    let probes = |evil: &mut Evil| evil.pair.client().stats().probe_timeouts;
    let before = probes(&mut evil);
    for n in 0..100u8 {
        evil.send(|w| write_path_challenge(w, [n; 8]));
        evil.pair.run_for(ms(10));
    }
    let allowed = 1 + 4 + 2 * (probes(&mut evil) - before) as usize;
    let given = answers(&evil);
    assert!(given >= 3 && given <= allowed, "{given} of {allowed}");
    assert_eq!(
        evil.pair.take_event(CLIENT, |e| *e == Event::PathChanged),
        None
    );
}
