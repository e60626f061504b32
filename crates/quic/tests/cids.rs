//! Connection IDs: issued, retired, replaced, flooded.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::evil::Evil;
use common::wire::{destination, for_each_frame};
use common::{CLIENT, Options, Pair, SERVER, ms, readable, secs};
use towline_quic::{CidGenerator, EndpointConfig, ShardedCid, TransportErrorCode};
use towline_wire::{
    ConnectionId, Frame, FrameType, NewConnectionIdFrame, StatelessResetToken,
    write_new_connection_id, write_ping, write_retire_connection_id,
};

fn new_id(sequence: u64, retire_prior_to: u64, n: u8) -> NewConnectionIdFrame {
    NewConnectionIdFrame {
        sequence,
        retire_prior_to,
        cid: ConnectionId::new(&[n; 8]).unwrap(),
        reset_token: StatelessResetToken::new([n; 16]),
    }
}

/// The IDs that `side` announced, by sequence number.
fn announced(pair: &mut Pair, side: usize) -> Rc<RefCell<Vec<NewConnectionIdFrame>>> {
    let log: Rc<RefCell<Vec<NewConnectionIdFrame>>> = Rc::default();
    let copy = log.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == side {
            for_each_frame(datagram, |_, frame| {
                if let Frame::NewConnectionId(new) = frame {
                    copy.borrow_mut().push(*new);
                }
            });
        }
        true
    }));
    log
}

/// An evil client that knows the server's spare IDs.
fn evil_with_spares() -> (Evil, Vec<NewConnectionIdFrame>) {
    let mut pair = Pair::new(readable());
    let log = announced(&mut pair, SERVER);
    pair.connect();
    pair.established(secs(1));
    pair.run_for(ms(200));
    pair.tap = None;
    let mut spares = log.borrow().clone();
    spares.sort_by_key(|new| new.sequence);
    (Evil::take_over(pair, SERVER), spares)
}

#[test]
fn each_end_gives_the_other_three_spare_ids() {
    for side in [CLIENT, SERVER] {
        let mut pair = Pair::new(readable());
        let log = announced(&mut pair, side);
        pair.connect();
        pair.established(secs(1));
        pair.run_for(secs(2));
        let log = log.borrow();
        let mut sequences: Vec<u64> = log.iter().map(|new| new.sequence).collect();
        sequences.sort_unstable();
        // Four with that of the handshake: MAX_LOCAL_CIDS, and what the peer can hold.
        assert_eq!(sequences, [1, 2, 3]);
        assert!(log.iter().all(|new| new.retire_prior_to == 0));
        let mut tokens: Vec<_> = log.iter().map(|new| *new.reset_token.as_bytes()).collect();
        tokens.dedup();
        assert_eq!(tokens.len(), 3);
    }
}

#[test]
fn lost_new_connection_id_is_sent_again() {
    let mut pair = Pair::new(readable());
    let seen = pair.drop_first(SERVER, 2, |f| matches!(f, Frame::NewConnectionId(_)));
    pair.connect();
    pair.established(secs(5));
    pair.run_for(secs(3));
    assert!(seen.count() >= 3);
}

#[test]
fn every_announced_id_reaches_the_connection() {
    let (mut evil, spares) = evil_with_spares();
    for spare in &spares {
        evil.dcid = spare.cid.to_vec();
        let before = evil.pair.server().stats().packets_received;
        evil.send(write_ping);
        assert_eq!(evil.pair.server().stats().packets_received, before + 1);
    }
}

#[test]
fn a_retired_id_is_replaced_and_no_longer_reaches_the_connection() {
    let (mut evil, spares) = evil_with_spares();
    evil.send(|w| write_retire_connection_id(w, spares[0].sequence));
    evil.pair.run_for(ms(100));
    let mut fresh = Vec::new();
    evil.each_frame(|frame| {
        if let Frame::NewConnectionId(new) = frame {
            fresh.push(new.sequence);
        }
    });
    // Probes may repeat it.
    fresh.dedup();
    assert_eq!(fresh, [4]);
    evil.dcid = spares[0].cid.to_vec();
    let before = evil.pair.server().stats().packets_received;
    evil.send(write_ping);
    assert_eq!(evil.pair.server().stats().packets_received, before);
    assert_eq!(evil.pair.hosts[SERVER].endpoint.stats().unroutable, 1);
}

#[test]
fn a_peer_that_retires_every_id_is_kept_supplied_one_for_one() {
    let (mut evil, _) = evil_with_spares();
    for sequence in 1..=300 {
        evil.send(|w| write_retire_connection_id(w, sequence));
        evil.pair.run_for(ms(1));
        // Acknowledge everything so that the window stays open.
        let largest = largest_sent(&evil);
        evil.send(|w| {
            towline_wire::write_ack(w, 0, [largest..=largest], None);
        });
        evil.assert_open();
    }
    let issued = evil.count_frames(|f| matches!(f, Frame::NewConnectionId(_)));
    assert!((250..=300).contains(&issued), "{issued}");
}

fn largest_sent(evil: &Evil) -> u64 {
    let mut largest = None;
    for datagram in &evil.pair.hosts[1 - evil.victim].captured {
        for p in common::wire::packets(datagram) {
            let number = towline_wire::decode_packet_number(p.number, p.pn_len, largest);
            largest = largest.max(Some(number));
        }
    }
    largest.unwrap_or(0)
}

#[test]
fn retire_prior_to_moves_to_a_spare_id_and_retires_the_old() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_new_connection_id(w, &new_id(4, 4, 0xab)));
    evil.pair.run_for(ms(50));
    evil.assert_open();
    let mut retired = Vec::new();
    evil.each_frame(|frame| {
        if let Frame::RetireConnectionId { sequence } = frame {
            retired.push(*sequence);
        }
    });
    retired.sort_unstable();
    assert_eq!(retired, [0, 1, 2, 3]);
    let last = evil.pair.hosts[CLIENT].captured.last().unwrap();
    assert_eq!(destination(last), [0xab; 8]);
}

#[test]
fn an_id_that_took_the_place_of_a_retired_one_goes_with_its_path() {
    let mut evil = Evil::against(CLIENT);
    for n in [4, 5] {
        evil.send(|w| write_new_connection_id(w, &new_id(n, 4, n as u8)));
    }
    evil.pair.run_for(ms(50));
    let now = evil.pair.now;
    evil.pair.hosts[CLIENT].endpoint.rebind(now);
    evil.pair.run_for(ms(50));
    evil.assert_open();
    let last = evil.pair.hosts[SERVER].captured.last().unwrap();
    assert_eq!(destination(last), [5; 8]);
    let left = evil.count_frames(|f| matches!(f, Frame::RetireConnectionId { sequence: 4 }));
    assert!(left > 0);
}

#[test]
fn lost_retire_connection_id_is_sent_again() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_new_connection_id(w, &new_id(4, 1, 0xab)));
    // No acknowledgement comes: probes repeat it.
    evil.pair.run_for(secs(3));
    let sent = evil.count_frames(|f| matches!(f, Frame::RetireConnectionId { sequence: 0 }));
    assert!(sent >= 3, "{sent}");
}

#[test]
fn a_repeated_new_connection_id_is_no_violation() {
    let mut evil = Evil::against(SERVER);
    for _ in 0..5 {
        evil.send(|w| write_new_connection_id(w, &new_id(4, 1, 0xab)));
    }
    evil.assert_open();
    // Late arrival of one that is already to be retired: retired at once.
    evil.send(|w| write_new_connection_id(w, &new_id(9, 9, 0xcd)));
    evil.send(|w| write_new_connection_id(w, &new_id(7, 0, 0xef)));
    evil.pair.run_for(ms(50));
    evil.assert_open();
    assert!(evil.count_frames(|f| matches!(f, Frame::RetireConnectionId { sequence: 7 })) > 0);
}

#[test]
fn a_repeated_new_connection_id_with_a_raised_retire_prior_to_is_obeyed() {
    for victim in [CLIENT, SERVER] {
        let mut evil = Evil::against(victim);
        // Makes room and gives an ID; then the same frame asks for more (RFC 9000 §19.15).
        evil.send(|w| write_new_connection_id(w, &new_id(4, 1, 0xab)));
        evil.send(|w| write_new_connection_id(w, &new_id(4, 4, 0xab)));
        evil.pair.run_for(ms(50));
        evil.assert_open();
        let mut retired = Vec::new();
        evil.each_frame(|frame| {
            if let Frame::RetireConnectionId { sequence } = frame {
                retired.push(*sequence);
            }
        });
        retired.sort_unstable();
        retired.dedup();
        assert_eq!(retired, [0, 1, 2, 3]);
        let last = evil.pair.hosts[1 - victim].captured.last().unwrap();
        assert_eq!(destination(last), [0xab; 8]);
        // Repeated with a lower one: nothing moves back.
        evil.send(|w| write_new_connection_id(w, &new_id(4, 0, 0xab)));
        evil.assert_open();
    }
}

#[test]
fn a_sequence_number_with_another_id_is_a_protocol_violation() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_new_connection_id(w, &new_id(4, 1, 0xab)));
    evil.send(|w| write_new_connection_id(w, &new_id(4, 1, 0xac)));
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    evil.assert_closed(code, Some(FrameType::NEW_CONNECTION_ID));
}

#[test]
fn an_id_under_two_sequence_numbers_is_a_protocol_violation() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_new_connection_id(w, &new_id(4, 1, 0xab)));
    evil.send(|w| write_new_connection_id(w, &new_id(5, 2, 0xab)));
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    evil.assert_closed(code, Some(FrameType::NEW_CONNECTION_ID));
}

#[test]
fn more_ids_than_the_limit_are_a_connection_id_limit_error() {
    // Four are held: that of the handshake and three spares.
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_new_connection_id(w, &new_id(4, 0, 0xab)));
    let code = TransportErrorCode::CONNECTION_ID_LIMIT_ERROR;
    evil.assert_closed(code, Some(FrameType::NEW_CONNECTION_ID));
}

#[test]
fn a_flood_of_forced_retirements_is_a_connection_id_limit_error() {
    let mut evil = Evil::against(CLIENT);
    let mut survived = 0;
    for n in 4..100u8 {
        evil.send(|w| write_new_connection_id(w, &new_id(u64::from(n), u64::from(n), n)));
        if evil.pair.client().is_closed() {
            break;
        }
        survived += 1;
    }
    // Twelve retirements may be owed; the first frame costs four.
    assert_eq!(survived, 9);
    let code = TransportErrorCode::CONNECTION_ID_LIMIT_ERROR;
    evil.assert_closed(code, Some(FrameType::NEW_CONNECTION_ID));
}

#[test]
fn retiring_an_id_never_issued_is_a_protocol_violation() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_retire_connection_id(w, 4));
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    evil.assert_closed(code, Some(FrameType::RETIRE_CONNECTION_ID));
}

#[test]
fn retiring_the_id_of_the_own_packet_is_a_protocol_violation() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_retire_connection_id(w, 0));
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    evil.assert_closed(code, Some(FrameType::RETIRE_CONNECTION_ID));
}

#[test]
fn retiring_twice_is_no_violation() {
    let mut evil = Evil::against(SERVER);
    for _ in 0..5 {
        evil.send(|w| write_retire_connection_id(w, 2));
    }
    evil.pair.run_for(ms(50));
    evil.assert_open();
    let other = |f: &Frame<'_>| matches!(f, Frame::NewConnectionId(new) if new.sequence != 4);
    assert_eq!(evil.count_frames(other), 0);
}

#[test]
fn ids_name_their_shard() {
    let mut generator = ShardedCid::new(7);
    let cid = generator.generate(&[9; 8]);
    assert_eq!(ShardedCid::shard_of(&cid), Some(7));
    assert_eq!(ShardedCid::shard_of(&cid[..3]), None);
    let mut pair = Pair::new(Options::default());
    let mut config: EndpointConfig = common::seed(3, 3);
    config.cid_generator = Box::new(ShardedCid::new(200));
    let server = std::sync::Arc::new(pair.server_config.clone());
    pair.hosts[SERVER].endpoint = towline_quic::Endpoint::new(config, Some(server));
    pair.connect();
    pair.established(secs(1));
    assert_eq!(pair.hosts[CLIENT].last_dcid[0], 200);
}
