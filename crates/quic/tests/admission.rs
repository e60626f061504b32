//! What a server says to those it does not let in, what that may cost, and what a client takes
//! for a server's word.

mod common;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use common::evil::{long_packet, payload};
use common::wire::{packets, without_padding};
use common::{CLIENT, Options, Pair, SERVER, ms, readable, secs, seed};
use towline_quic::{
    Close, ConnectionError, Endpoint, RetryPolicy, TransportConfig, TransportErrorCode,
};
use towline_wire::{
    CloseFrame, Frame, Header, LongType, parse_header, write_connection_close, write_padding,
};

/// A client's first datagram and its two IDs; nothing was delivered.
fn hello(options: Options) -> (Pair, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut pair = Pair::new(options);
    let first: Rc<RefCell<Vec<u8>>> = Rc::default();
    let copy = first.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT && copy.borrow().is_empty() {
            *copy.borrow_mut() = datagram.clone();
        }
        from == SERVER
    }));
    pair.connect();
    let datagram = first.borrow().clone();
    let Ok(Header::Long { dcid, scid, .. }) = parse_header(&datagram, 8) else {
        panic!("the first packet is no Initial");
    };
    let (dcid, scid) = (dcid.to_vec(), scid.to_vec());
    (pair, datagram, dcid, scid)
}

/// A client that got a Retry, and its answer, which did not reach the server.
fn answered_retry(options: Options) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(Options {
        retry: RetryPolicy::Always,
        client: TransportConfig::default().handshake_timeout(secs(60)),
        ..options
    });
    let answer: Rc<RefCell<Vec<u8>>> = Rc::default();
    let copy = answer.clone();
    let sent = Rc::new(Cell::new(0));
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            return true;
        }
        sent.set(sent.get() + 1);
        if sent.get() == 2 {
            *copy.borrow_mut() = datagram.clone();
        }
        sent.get() == 1
    }));
    pair.connect();
    pair.run_until(secs(1), |_| !answer.borrow().is_empty());
    let datagram = answer.borrow().clone();
    (pair, datagram)
}

/// The code of the CONNECTION_CLOSE that is all there is in a readable datagram.
fn refusal(datagram: &[u8]) -> TransportErrorCode {
    let found = packets(datagram);
    assert_eq!(found.len(), 1);
    let mut reader = towline_wire::Reader::new(found[0].payload);
    match Frame::parse(&mut reader) {
        Ok(Frame::ConnectionClose(close)) if reader.is_empty() => {
            TransportErrorCode::from_u64(close.error_code)
        }
        other => panic!("{other:?}"),
    }
}

fn transport_close(word: Option<ConnectionError>) -> Option<TransportErrorCode> {
    match word {
        Some(ConnectionError::ClosedByPeer(Close::Transport { code, .. })) => Some(code),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_initial_in_a_small_datagram_is_discarded_for_a_known_connection_too() {
    // RFC 9000 §14.1.
    let (mut pair, first, dcid, scid) = hello(readable());
    pair.deliver(SERVER, &first);
    let code = TransportErrorCode::NO_ERROR;
    let bytes = payload(|w| {
        write_connection_close(w, &CloseFrame::transport(code, 0, b""));
    });
    let mut packet = long_packet(LongType::Initial, &dcid, &scid, b"", 9, &bytes);
    packet.resize(1199, 0);
    pair.deliver(SERVER, &packet);
    assert_eq!(pair.close_reason(SERVER), None);
    packet.resize(1200, 0);
    pair.deliver(SERVER, &packet);
    assert_eq!(transport_close(pair.close_reason(SERVER)), Some(code));
}

#[test]
fn a_client_drops_an_initial_that_carries_a_token() {
    // RFC 9000 §17.2.2.
    let (mut pair, _, _, scid) = hello(readable());
    let code = TransportErrorCode::CONNECTION_REFUSED;
    let bytes = payload(|w| {
        write_connection_close(w, &CloseFrame::transport(code, 0, b""));
    });
    let with = |token: &[u8]| long_packet(LongType::Initial, &scid, &[9; 8], token, 0, &bytes);
    pair.deliver(CLIENT, &with(b"token"));
    assert_eq!(pair.close_reason(CLIENT), None);
    pair.deliver(CLIENT, &with(b""));
    assert_eq!(transport_close(pair.close_reason(CLIENT)), Some(code));
}

#[test]
fn a_client_whose_retry_token_is_too_old_is_told_so_at_once() {
    // RFC 9000 §8.1.2.
    let (mut pair, answer) = answered_retry(Options::default());
    pair.now += secs(11);
    pair.deliver(SERVER, &answer);
    pair.run_for(ms(15));
    let word = pair.close_reason(CLIENT).expect("nobody told it");
    assert_eq!(
        word.to_string(),
        "the server does not take the address token it gave us; connect again: \
         the Retry token is too old, or not of this address"
    );
    let code = TransportErrorCode::INVALID_TOKEN;
    assert_eq!(transport_close(Some(word)), Some(code));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.connections, stats.admitted), (0, 0));
    assert_eq!((stats.invalid_tokens, stats.refusals), (1, 1));
}

#[test]
fn a_retry_token_at_another_address_is_answered_with_invalid_token() {
    let (mut pair, answer) = answered_retry(readable());
    for from in ["10.0.0.9:1000", "10.0.0.1:1001"] {
        let from: SocketAddr = from.parse().unwrap();
        pair.deliver_silently(SERVER, from, &answer);
        let replies = pair.take_datagrams(SERVER);
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].0, from);
        assert!(replies[0].1.len() < 150, "{}", replies[0].1.len());
        assert_eq!(refusal(&replies[0].1), TransportErrorCode::INVALID_TOKEN);
    }
}

#[test]
fn one_retry_is_worth_one_connection() {
    let (mut pair, answer) = answered_retry(readable());
    let (token, hello) = {
        let found = packets(&answer);
        (found[0].token.to_vec(), found[0].payload.to_vec())
    };
    let Ok(Header::Long { scid, .. }) = parse_header(&answer, 8) else {
        panic!("no Initial");
    };
    for i in 0..10 {
        let packet = long_packet(LongType::Initial, &[i; 8], &scid, &token, 0, &hello);
        pair.deliver_silently(SERVER, pair.hosts[CLIENT].address, &packet);
        let replies = pair.take_datagrams(SERVER);
        assert_eq!(refusal(&replies[0].1), TransportErrorCode::INVALID_TOKEN);
    }
    pair.deliver(SERVER, &answer);
    pair.deliver(SERVER, &answer);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
}

#[test]
fn a_token_that_is_not_ours_is_no_token() {
    for (retry, expected) in [(RetryPolicy::Never, (1, 0)), (RetryPolicy::Always, (0, 1))] {
        for len in [1, 12, 28, 60, 100, 500] {
            let (mut pair, first, dcid, scid) = hello(Options {
                retry,
                ..readable()
            });
            let hello = without_padding(packets(&first)[0].payload).to_vec();
            let token = vec![0x5a; len];
            let mut packet = long_packet(LongType::Initial, &dcid, &scid, &token, 0, &hello);
            packet.resize(packet.len().max(1200), 0);
            pair.deliver(SERVER, &packet);
            let stats = pair.hosts[SERVER].endpoint.stats();
            assert_eq!((stats.admitted, stats.retries), expected, "{len}");
            assert_eq!(stats.refusals, 0);
        }
    }
}

#[test]
fn a_server_that_takes_nobody_any_more_says_so() {
    // RFC 9000 §5.2.2.
    let mut pair = Pair::new(Options::default());
    let now = pair.now;
    pair.hosts[SERVER].endpoint.set_server_config(now, None);
    pair.connect();
    pair.run_for(ms(25));
    let word = pair.close_reason(CLIENT).expect("nobody told it");
    assert_eq!(
        word.to_string(),
        "the server refuses the connection: the server takes no new connections"
    );
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 0);
}

#[test]
fn a_full_server_answers_no_garbage() {
    let (mut pair, first, ..) = hello(readable());
    let server = pair.server_config.clone().max_connections(0);
    pair.hosts[SERVER].endpoint = Endpoint::new(seed(1, 2), Some(Arc::new(server)));
    let end = match parse_header(&first, 8) {
        Ok(Header::Long { end, .. }) => end,
        other => panic!("{other:?}"),
    };
    for at in end - 16..end {
        let mut garbage = first.clone();
        garbage[at] ^= 0x80;
        pair.deliver_silently(SERVER, pair.hosts[CLIENT].address, &garbage);
    }
    assert_eq!(pair.take_datagrams(SERVER).len(), 0);
    pair.deliver_silently(SERVER, pair.hosts[CLIENT].address, &first);
    let replies = pair.take_datagrams(SERVER);
    assert_eq!(replies.len(), 1);
    let code = TransportErrorCode::CONNECTION_REFUSED;
    assert_eq!(refusal(&replies[0].1), code);
    assert!(replies[0].1.len() < 150, "{}", replies[0].1.len());
}

/// Has a server answer `asked` datagrams made by `make`, each from another prefix, all in one
/// quarter of a second; how many got an answer.
fn answered(pair: &mut Pair, asked: u32, make: &dyn Fn(u32) -> Vec<u8>) -> u64 {
    let mut found = 0;
    for n in 0..asked {
        let from: SocketAddr = ([11, (n >> 8) as u8, n as u8, 1], 9).into();
        let datagram = make(n);
        pair.deliver_silently(SERVER, from, &datagram);
        let replies = pair.take_datagrams(SERVER);
        for (_, reply) in &replies {
            assert!(reply.len() <= datagram.len(), "longer than what it answers");
        }
        found += replies.len() as u64;
    }
    found
}

/// All of a budget but for a few prefixes that look like others.
fn used_up(got: u64, most: u64) {
    assert!(got <= most && got * 100 >= most * 98, "{got} of {most}");
}

#[test]
fn every_kind_of_stateless_work_has_a_budget_of_its_own() {
    let unknown_version = |n: u32| {
        let mut packet = vec![0xc3, 0xba, 0xbe, 0xba, 0xba, 8];
        packet.extend_from_slice(&[n as u8; 8]);
        packet.extend_from_slice(&[0; 1200]);
        packet
    };
    let junk = |n: u32| {
        let mut packet = vec![n as u8; 60];
        packet[0] = 0x41;
        packet
    };
    let (mut pair, first, dcid, _) = hello(Options {
        retry: RetryPolicy::Always,
        ..readable()
    });
    let hello = |n: u32| {
        let mut packet = first.clone();
        packet[6..6 + dcid.len()].fill(n as u8);
        packet[6..10].copy_from_slice(&n.to_be_bytes());
        packet
    };
    for _ in 0..2 {
        // What one kind has used up does not matter to another.
        used_up(answered(&mut pair, 2_000, &junk), 1_250);
        used_up(answered(&mut pair, 2_000, &unknown_version), 1_250);
        used_up(answered(&mut pair, 14_000, &hello), 12_500);
        pair.now += ms(250);
    }
    let work = pair.hosts[SERVER].endpoint.stats().stateless_work;
    used_up(work, 2 * (2_500 + 2_500 + 37_500));

    // Refusals, and the opening of Initial packets that are garbage.
    let server = pair
        .server_config
        .clone()
        .max_connections(0)
        .retry(RetryPolicy::Never);
    let shut = Endpoint::new(seed(1, 2), Some(Arc::new(server)));
    pair.hosts[SERVER].endpoint = shut;
    used_up(answered(&mut pair, 2_000, &hello), 1_250);
    pair.now += ms(250);
    let garbage = |n: u32| {
        let mut packet = hello(n);
        let end = packet.len();
        packet[end - 1] ^= 1;
        packet
    };
    let before = pair.hosts[SERVER].endpoint.stats();
    assert_eq!(answered(&mut pair, 12_000, &garbage), 0);
    let after = pair.hosts[SERVER].endpoint.stats();
    used_up(after.unroutable - before.unroutable, 9_375);
    used_up(after.stateless_work - before.stateless_work, 37_500);
}

#[test]
fn hellos_that_fail_at_once_count_as_handshakes_until_they_are_gone() {
    let mut pair = Pair::new(readable());
    let scid = [7; 8];
    for n in 0..10u8 {
        let bytes = payload(|w| {
            let code = TransportErrorCode::NO_ERROR;
            write_connection_close(w, &CloseFrame::transport(code, 0, b""));
            write_padding(w, 1170);
        });
        let packet = long_packet(LongType::Initial, &[n; 8], &scid, b"", 0, &bytes);
        pair.deliver(SERVER, &packet);
    }
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.connections), (10, 10));
    pair.run_for(secs(10));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.connections), (0, 0));
}
