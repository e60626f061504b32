//! Ends: closes, timeouts, keep-alive, liveness probes and stateless resets.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use common::evil::{Evil, payload};
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs, seed};
use towline_quic::{
    Close, ConnectionError, Direction, Endpoint, Event, ReadError, TimeoutReason, TransportConfig,
    TransportErrorCode, WriteError,
};
use towline_sim::LinkConfig;
use towline_wire::{CloseFrame, Frame, write_connection_close, write_ping};

const UNI: Direction = Direction::Unidirectional;

fn idle(client: u64, server: u64) -> Options {
    let with = |s| TransportConfig::default().max_idle_timeout(secs(s));
    Options {
        client: with(client),
        server: with(server),
        ..readable()
    }
}

fn by_application(code: u64, reason: &[u8]) -> Option<ConnectionError> {
    Some(ConnectionError::ClosedByPeer(Close::Application {
        code,
        reason: reason.to_vec(),
    }))
}

/// Both endpoints have forgotten everything.
fn assert_nothing_left(pair: &Pair) {
    for host in &pair.hosts {
        assert_eq!(host.endpoint.stats().connections, 0);
        assert_eq!(host.endpoint.next_timeout(), None);
    }
}

#[test]
fn an_application_close_reaches_the_peer_with_code_and_reason() {
    for closer in [CLIENT, SERVER] {
        let mut pair = Pair::connected(Options::default());
        let now = pair.now;
        pair.conn(closer).close(now, 77, b"good night");
        assert_eq!(pair.close_reason(closer), None);
        pair.flush();
        assert_eq!(
            pair.close_reason(closer),
            Some(ConnectionError::ClosedLocally)
        );
        pair.run_for(ms(11));
        assert_eq!(
            pair.close_reason(1 - closer),
            by_application(77, b"good night")
        );
        pair.run_for(secs(3));
        for side in [CLIENT, SERVER] {
            assert!(pair.take_event(side, |e| *e == Event::Drained).is_some());
        }
        assert_nothing_left(&pair);
    }
}

/// The client's message is read to its end, and the server leaves without a look back. `passes` says of
/// each datagram of the server's from then on whether it arrives.
fn leave_after_reading(mut passes: impl FnMut() -> bool + 'static) {
    let mut pair = Pair::connected(Options::default());
    pair.run_for(secs(1));
    let id = pair.send_stream(CLIENT, UNI, b"are you done?");
    while pair.server().accept(UNI).is_none() {
        assert!(pair.step());
    }
    // A single packet's acknowledgement still waits.
    pair.tap = Some(Box::new(move |from, _| from == CLIENT || passes()));
    let mut read = Vec::new();
    assert!(pair.read_available(SERVER, id, &mut read));
    let now = pair.now;
    pair.server().close(now, 7, b"done");
    pair.flush();
    pair.run_for(secs(10));
    let ends = |e: &Event| matches!(e, Event::Finished(_) | Event::Closed(_));
    let mut events = pair.take_events(CLIENT);
    events.retain(ends);
    let closed = Event::Closed(by_application(7, b"done").unwrap());
    assert_eq!(events, [Event::Finished(id), closed]);
}

#[test]
fn who_closes_acknowledges_what_it_has_read() {
    leave_after_reading(|| true);
}

#[test]
fn each_copy_of_a_close_acknowledges_what_was_read() {
    let mut datagrams = 0;
    // The first one is lost; the client's probe asks for another.
    leave_after_reading(move || {
        datagrams += 1;
        datagrams > 1
    });
}

#[test]
fn a_close_reason_is_cut_at_512_bytes() {
    let mut pair = Pair::connected(Options::default());
    let now = pair.now;
    pair.client().close(now, 1, &[b'x'; 5000]);
    pair.run_for(ms(50));
    assert_eq!(pair.close_reason(SERVER), by_application(1, &[b'x'; 512]));
}

#[test]
fn the_peers_reason_is_kept_up_to_512_bytes_and_need_not_be_text() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| {
        let close = CloseFrame::transport(TransportErrorCode::NO_ERROR, 0, &[0xff; 900]);
        write_connection_close(w, &close);
    });
    match evil.pair.close_reason(SERVER) {
        Some(ConnectionError::ClosedByPeer(Close::Transport { code, reason, .. })) => {
            assert_eq!(code, TransportErrorCode::NO_ERROR);
            assert_eq!(reason, "\u{fffd}".repeat(512));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transport_error_tells_the_peer_code_and_frame() {
    // The client breaks a rule through a byte changed on the wire: HANDSHAKE_DONE for a PING.
    let mut pair = Pair::connected(readable());
    pair.run_for(secs(1));
    pair.tap = Some(Box::new(|from, datagram| {
        if from == CLIENT
            && let Some(at) = common::wire::packets(datagram)
                .first()
                .map(|p| p.payload_at)
            && datagram[at] == 0x01
        {
            datagram[at] = 0x1e;
        }
        true
    }));
    pair.client().ping();
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    match pair.run_until_closed(SERVER, secs(1)) {
        ConnectionError::PeerMisbehaved { code: c, frame, .. } => {
            assert_eq!((c, frame.unwrap().as_u64()), (code, 0x1e));
        }
        other => panic!("{other:?}"),
    }
    match pair.run_until_closed(CLIENT, secs(1)) {
        ConnectionError::ClosedByPeer(Close::Transport { code: c, frame, .. }) => {
            assert_eq!((c, frame.unwrap().as_u64()), (code, 0x1e));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn closing_makes_every_call_fail_with_the_close_reason() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.client().open(Direction::Bidirectional).unwrap();
    let now = pair.now;
    pair.client().close(now, 1, b"");
    let word = ConnectionError::ClosedLocally;
    let client = pair.client();
    assert_eq!(client.open(UNI), None);
    assert_eq!(
        client.write_slice(id, b"x"),
        Err(WriteError::ConnectionLost(word.clone()))
    );
    assert_eq!(
        client.finish(id),
        Err(WriteError::ConnectionLost(word.clone()))
    );
    assert_eq!(
        client.read(id, 1),
        Err(ReadError::ConnectionLost(word.clone()))
    );
    assert_eq!(client.close_reason(), Some(&word));
    // Closing again changes nothing.
    client.close(now, 2, b"again");
    pair.run_for(ms(50));
    assert_eq!(pair.close_reason(SERVER), by_application(1, b""));
}

#[test]
fn a_client_that_closes_before_the_handshake_ends_hides_its_code() {
    // RFC 9000 §10.2.3: in Initial and Handshake packets it becomes APPLICATION_ERROR.
    let mut pair = Pair::new(Options::default());
    pair.connect();
    pair.run_for(ms(12));
    let now = pair.now;
    pair.client().close(now, 77, b"secret");
    match pair.run_until_closed(SERVER, secs(1)) {
        ConnectionError::ClosedByPeer(Close::Transport { code, reason, .. }) => {
            assert_eq!(code, TransportErrorCode::APPLICATION_ERROR);
            assert_eq!(reason, "");
        }
        other => panic!("{other:?}"),
    }
    pair.run_for(secs(10));
    assert_nothing_left(&pair);
}

#[test]
fn a_server_that_closes_at_once_reaches_the_client_in_every_phase() {
    for time in [21, 25, 31, 41] {
        let mut pair = Pair::new(Options::default());
        pair.connect();
        pair.run_for(ms(time));
        let handle = pair.hosts[SERVER].endpoint.handles().next().unwrap();
        let now = pair.now;
        let server = pair.hosts[SERVER].endpoint.connection_mut(handle).unwrap();
        server.close(now, 5, b"no");
        let word = pair.run_until_closed(CLIENT, secs(2));
        assert!(matches!(word, ConnectionError::ClosedByPeer(_)), "{word:?}");
        pair.run_for(secs(10));
        assert_nothing_left(&pair);
    }
}

#[test]
fn lost_close_is_sent_again_when_the_peer_goes_on() {
    let mut pair = Pair::connected(readable());
    pair.run_for(secs(1));
    let seen = pair.drop_first(CLIENT, 1, |f| matches!(f, Frame::ConnectionClose(_)));
    let now = pair.now;
    pair.client().close(now, 3, b"");
    pair.run_for(ms(1));
    pair.server().ping();
    pair.run_for(ms(30));
    assert_eq!(seen.count(), 2);
    assert_eq!(pair.close_reason(SERVER), by_application(3, b""));
}

#[test]
fn a_closing_endpoint_answers_ever_more_rarely() {
    let mut evil = Evil::against(SERVER);
    let now = evil.pair.now;
    evil.pair.server().close(now, 3, b"");
    evil.pair.flush();
    for _ in 0..100 {
        evil.send(write_ping);
    }
    evil.pair.run_for(ms(50));
    // The close itself, then after 1, 2, 4, 8, 16, 32 and 64 packets.
    assert_eq!(evil.closes().len(), 8);
}

#[test]
fn a_packet_repeated_after_the_end_is_received_once() {
    let close: fn(&mut Evil) = |evil| {
        let now = evil.pair.now;
        evil.pair.server().close(now, 3, b"");
    };
    let drain: fn(&mut Evil) =
        |evil| evil.send(|w| write_connection_close(w, &CloseFrame::application(1, b"")));
    for end in [close, drain] {
        let mut evil = Evil::against(SERVER);
        end(&mut evil);
        let before = evil.pair.server().stats().packets_received;
        let packet = evil.packet(&payload(write_ping));
        for _ in 0..10 {
            evil.pair.deliver(SERVER, &packet);
        }
        let after = evil.pair.server().stats().packets_received;
        assert_eq!(after, before + 1);
    }
}

#[test]
fn a_packet_that_ends_the_connection_and_comes_again_is_received_once() {
    let close = payload(|w| write_connection_close(w, &CloseFrame::application(4, b"done")));
    for ending in [close, vec![0xff]] {
        let mut evil = Evil::against(SERVER);
        let before = evil.pair.server().stats().packets_received;
        let packet = evil.packet(&ending);
        for _ in 0..10 {
            evil.pair.deliver(SERVER, &packet);
        }
        let after = evil.pair.server().stats().packets_received;
        assert_eq!(after, before + 1);
    }
}

#[test]
fn a_draining_endpoint_sends_nothing() {
    let mut evil = Evil::against(SERVER);
    evil.send(|w| write_connection_close(w, &CloseFrame::application(1, b"")));
    evil.pair.run_for(ms(1));
    let before = evil.pair.hosts[SERVER].sent_datagrams;
    for _ in 0..20 {
        evil.send(write_ping);
        evil.send(|w| write_connection_close(w, &CloseFrame::application(2, b"")));
    }
    evil.pair.run_for(ms(1));
    assert_eq!(evil.pair.hosts[SERVER].sent_datagrams, before);
    assert_eq!(evil.pair.close_reason(SERVER), by_application(1, b""));
    assert_eq!(evil.pair.close_reason(SERVER), None, "told once only");
}

#[test]
fn both_ends_may_close_at_once() {
    let mut pair = Pair::connected(Options::default());
    let now = pair.now;
    pair.client().close(now, 1, b"");
    pair.server().close(now, 2, b"");
    pair.run_for(secs(3));
    for side in [CLIENT, SERVER] {
        assert_eq!(
            pair.close_reason(side),
            Some(ConnectionError::ClosedLocally)
        );
        assert_eq!(pair.close_reason(side), None);
    }
    assert_nothing_left(&pair);
}

#[test]
fn a_closed_connection_is_drained_after_three_probe_timeouts() {
    let mut pair = Pair::connected(Options::default());
    pair.run_for(secs(1));
    let pto = pair.client().stats().pto;
    let now = pair.now;
    pair.client().close(now, 1, b"");
    let start = pair.now;
    pair.run_until(secs(5), |p| {
        p.take_event(CLIENT, |e| *e == Event::Drained).is_some()
    });
    let took = pair.now.saturating_duration_since(start);
    assert_eq!(took, 3 * pto);
    let handle = pair.hosts[CLIENT].handle.unwrap();
    assert!(pair.hosts[CLIENT].endpoint.connection(handle).is_none());
    assert!(pair.hosts[CLIENT].endpoint.connection_mut(handle).is_none());
}

#[test]
fn a_close_the_peer_never_hears_ends_in_its_idle_timeout() {
    let mut pair = Pair::connected(idle(5, 5));
    pair.run_for(secs(1));
    pair.tap = Some(Box::new(|_, _| false));
    let now = pair.now;
    pair.client().close(now, 1, b"");
    let word = pair.run_until_closed(SERVER, secs(10));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Idle));
    assert_nothing_left(&pair);
}

#[test]
fn the_smaller_idle_timeout_ends_both_ends_in_silence() {
    for (client, server, effective) in [(4, 30, 4), (30, 4, 4), (0, 4, 4), (4, 0, 4)] {
        let mut pair = Pair::connected(idle(client, server));
        pair.run_for(secs(1));
        pair.client().ping();
        pair.run_for(ms(100));
        let sent = [0, 1].map(|i| pair.hosts[i].sent_datagrams);
        let start = pair.now;
        for side in [CLIENT, SERVER] {
            let word = pair.run_until_closed(side, secs(40));
            assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Idle));
        }
        let took = pair.now.saturating_duration_since(start);
        assert!(took > secs(effective) - ms(150) && took < secs(effective) + ms(50));
        // Not a packet: silence means silence.
        assert_eq!([0, 1].map(|i| pair.hosts[i].sent_datagrams), sent);
        assert_nothing_left(&pair);
    }
}

#[test]
fn without_any_idle_timeout_a_connection_sleeps_forever() {
    let mut pair = Pair::connected(idle(0, 0));
    pair.run_for(secs(5));
    let sent = [0, 1].map(|i| pair.hosts[i].sent_datagrams);
    for host in &pair.hosts {
        assert_eq!(host.endpoint.next_timeout(), None);
    }
    pair.run_for(secs(1_000_000));
    assert_eq!([0, 1].map(|i| pair.hosts[i].sent_datagrams), sent);
    pair.transfer(CLIENT, 1000, secs(1));
}

#[test]
fn keep_alive_holds_an_idle_connection() {
    let mut options = idle(5, 5);
    options.client.keep_alive_interval = Some(secs(2));
    let mut pair = Pair::connected(options);
    pair.run_for(secs(1));
    let before = pair.hosts[CLIENT].sent_datagrams;
    pair.run_for(secs(60));
    for side in [CLIENT, SERVER] {
        assert_eq!(pair.close_reason(side), None);
    }
    let sent = pair.hosts[CLIENT].sent_datagrams - before;
    assert!((28..=31).contains(&sent), "{sent} PINGs in a minute");
}

#[test]
fn keep_alive_does_not_hold_a_dead_peer() {
    let mut options = idle(5, 5);
    options.client.keep_alive_interval = Some(secs(1));
    let mut pair = Pair::connected(options);
    pair.run_for(secs(1));
    pair.hosts[SERVER].hijacked = true;
    let start = pair.now;
    let word = pair.run_until_closed(CLIENT, secs(20));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Idle));
    // The first PING into the void may restart the timeout, later ones may not.
    let took = pair.now.saturating_duration_since(start);
    assert!(took <= secs(6) + ms(500), "{took:?}");
}

/// Times at which `side` sent datagrams with a PING, for `time` from now.
fn ping_times(pair: &mut Pair, side: usize, time: std::time::Duration) -> Vec<f64> {
    let pings = pair.watch(side, |f| matches!(f, Frame::Ping));
    let (start, end) = (pair.now, pair.now + time);
    let mut times = Vec::new();
    let mut known = 0;
    while pair.now < end && pair.step() {
        if pings.count() > known {
            known = pings.count();
            times.push(pair.now.saturating_duration_since(start).as_secs_f64());
        }
        if pair.close_reason(side).is_some() {
            break;
        }
    }
    times
}

/// A client that waits for the rest of a stream of the server's.
fn waiting_client(options: Options) -> Pair {
    let mut pair = Pair::connected(options);
    let id = pair.server().open(UNI).unwrap();
    pair.server()
        .write_slice(id, b"the rest comes later")
        .unwrap();
    pair.run_for(ms(10));
    pair
}

#[test]
fn a_silent_receiver_pings_after_a_second_doubling_six_times() {
    let mut pair = waiting_client(idle(300, 300));
    let times = ping_times(&mut pair, CLIENT, secs(200));
    assert_eq!(times.len(), 6, "{times:?}");
    assert!((0.99..1.05).contains(&times[0]), "{times:?}");
    for (i, gap) in times.windows(2).map(|w| w[1] - w[0]).enumerate() {
        let expected = f64::from(2u32 << i);
        assert!((gap - expected).abs() < 0.05, "{times:?}");
    }
}

#[test]
fn a_client_whose_question_is_acknowledged_but_not_answered_pings_too() {
    let mut pair = Pair::connected(idle(300, 300));
    pair.run_for(secs(1));
    pair.send_stream(CLIENT, Direction::Bidirectional, b"question");
    let times = ping_times(&mut pair, CLIENT, secs(200));
    assert_eq!(times.len(), 6, "{times:?}");
    assert!((0.99..1.1).contains(&times[0]), "{times:?}");
}

#[test]
fn new_data_starts_the_liveness_probes_again() {
    let mut pair = waiting_client(idle(300, 300));
    assert_eq!(ping_times(&mut pair, CLIENT, secs(100)).len(), 6);
    let id = pair.accept(CLIENT, UNI, secs(1));
    pair.server().write_slice(id, b"more").unwrap();
    pair.run_for(ms(100));
    let times = ping_times(&mut pair, CLIENT, secs(100));
    assert_eq!(times.len(), 6, "{times:?}");
}

#[test]
fn liveness_probes_wait_three_probe_timeouts_on_slow_paths() {
    let mut options = idle(300, 300);
    options.link = delay(600);
    let mut pair = waiting_client(options);
    pair.run_for(ms(700));
    let pto = pair.client().stats().pto;
    assert!(pto > ms(1200));
    let times = ping_times(&mut pair, CLIENT, secs(200));
    let expected = 3.0 * pto.as_secs_f64();
    assert!(
        times[0] > expected * 0.7 && times[0] < expected * 1.3,
        "{times:?} {pto:?}"
    );
}

#[test]
fn liveness_probes_never_extend_their_own_idle_deadline() {
    let mut pair = waiting_client(idle(8, 8));
    // What the client hears last, it hears now.
    pair.hosts[SERVER].hijacked = true;
    let start = pair.now;
    let word = pair.run_until_closed(CLIENT, secs(100));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Idle));
    let took = pair.now.saturating_duration_since(start);
    assert!(took <= secs(8) && took > secs(7), "{took:?}");
}

#[test]
fn a_finished_receiver_is_silent() {
    let mut pair = Pair::connected(idle(300, 300));
    let id = pair.send_stream(SERVER, UNI, b"all of it");
    assert_eq!(pair.accept(CLIENT, UNI, secs(1)), id);
    assert_eq!(pair.read_to_end(CLIENT, id, secs(1)), b"all of it");
    pair.run_for(secs(1));
    assert!(ping_times(&mut pair, CLIENT, secs(200)).is_empty());
}

#[test]
fn a_receiver_that_only_listens_survives_a_dark_path_from_the_sender() {
    // The client's PINGs go through; what the server repeats arrives once the path is back.
    let mut pair = waiting_client(idle(30, 30));
    let dark = LinkConfig { ..delay(10) }.with_blackout(pair.now, secs(4));
    let (_, back) = pair.links;
    pair.net.set_config(back, dark).unwrap();
    let id = pair.accept(CLIENT, UNI, secs(1));
    pair.server().write_slice(id, b" now").unwrap();
    pair.server().finish(id).unwrap();
    let got = pair.read_to_end(CLIENT, id, secs(10));
    assert_eq!(got, b"the rest comes later now");
}

/// Replaces the server by one that kept its keys and lost its memory.
fn restart_server(pair: &mut Pair) {
    let server = Arc::new(pair.server_config.clone());
    pair.hosts[SERVER].endpoint = Endpoint::new(seed(1, 2), Some(server));
    pair.hosts[SERVER].handle = None;
}

#[test]
fn a_restarted_server_resets_its_old_clients_in_one_round_trip() {
    let mut pair = Pair::connected(Options::default());
    pair.run_for(secs(1));
    restart_server(&mut pair);
    let start = pair.now;
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, &[1; 100]).unwrap();
    let word = pair.run_until_closed(CLIENT, secs(5));
    assert_eq!(word, ConnectionError::StatelessReset);
    assert_eq!(pair.now.saturating_duration_since(start), ms(20));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().resets, 1);
    pair.run_for(secs(5));
    assert_eq!(pair.hosts[CLIENT].endpoint.stats().connections, 0);
}

#[test]
fn a_server_with_another_reset_key_cannot_reset() {
    let mut pair = Pair::connected(idle(5, 5));
    pair.run_for(secs(1));
    let server = Arc::new(pair.server_config.clone());
    pair.hosts[SERVER].endpoint = Endpoint::new(seed(9, 2), Some(server));
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, &[1; 100]).unwrap();
    let word = pair.run_until_closed(CLIENT, secs(60));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Idle));
    assert!(pair.hosts[SERVER].endpoint.stats().resets > 0);
}

/// The reset that a restarted server sends to a client's packet.
fn captured_reset(pair: &mut Pair) -> Vec<u8> {
    let reset: Rc<RefCell<Vec<u8>>> = Rc::default();
    let copy = reset.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            *copy.borrow_mut() = datagram.clone();
        }
        from == CLIENT
    }));
    restart_server(pair);
    pair.client().ping();
    pair.run_until(secs(1), |_| !reset.borrow().is_empty());
    let reset = reset.borrow().clone();
    pair.tap = None;
    reset
}

#[test]
fn a_reset_is_shorter_than_what_it_answers_and_looks_like_a_short_header() {
    let mut pair = Pair::connected(Options::default());
    pair.run_for(secs(1));
    let reset = captured_reset(&mut pair);
    assert!((21..=41).contains(&reset.len()), "{}", reset.len());
    assert_eq!(reset[0] & 0xc0, 0x40);
}

#[test]
fn a_reset_counts_only_with_its_exact_token_from_the_peers_address() {
    let mut pair = Pair::connected(Options::default());
    pair.run_for(secs(1));
    let reset = captured_reset(&mut pair);
    for i in 0..16 {
        let mut wrong = reset.clone();
        let at = reset.len() - 1 - i;
        wrong[at] ^= 1;
        pair.deliver(CLIENT, &wrong);
    }
    pair.deliver(CLIENT, &reset[..reset.len() - 1]);
    pair.deliver(CLIENT, &reset[reset.len() - 20..]);
    pair.deliver_from(CLIENT, "10.0.0.3:2000".parse().unwrap(), &reset);
    assert_eq!(pair.close_reason(CLIENT), None);
    pair.deliver(CLIENT, &reset);
    assert_eq!(
        pair.close_reason(CLIENT),
        Some(ConnectionError::StatelessReset)
    );
}

#[test]
fn a_token_counts_only_for_a_connection_id_in_use() {
    // RFC 9000 §10.3.1: tokens of IDs not used yet must not end the connection.
    let mut pair = Pair::new(readable());
    let spare: Rc<RefCell<Vec<[u8; 16]>>> = Rc::default();
    let copy = spare.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            common::wire::for_each_frame(datagram, |_, frame| {
                if let Frame::NewConnectionId(new) = frame {
                    copy.borrow_mut().push(*new.reset_token.as_bytes());
                }
            });
        }
        true
    }));
    pair.connect();
    pair.established(secs(1));
    pair.run_for(ms(200));
    assert_eq!(spare.borrow().len(), 3);
    let own = pair.hosts[SERVER].last_dcid.clone();
    for token in spare.borrow().iter() {
        for dcid in [&own[..], &[0x77; 8]] {
            let packet = [&[0x40][..], dcid, &[0; 20], token].concat();
            pair.deliver(CLIENT, &packet);
        }
    }
    assert_eq!(pair.close_reason(CLIENT), None);
}

#[test]
fn two_servers_do_not_reset_each_other_forever() {
    let mut pair = Pair::connected(Options::default());
    let server = Arc::new(pair.server_config.clone());
    restart_server(&mut pair);
    pair.hosts[CLIENT].endpoint = Endpoint::new(seed(1, 1), Some(server));
    pair.hosts[CLIENT].handle = None;
    let packet = [&[0x40][..], &[0x11; 1199]].concat();
    pair.deliver(SERVER, &packet);
    pair.run_for(secs(10));
    let resets: u64 = pair.hosts.iter().map(|h| h.endpoint.stats().resets).sum();
    // Each is shorter than the last one, so it ends after at most twenty.
    assert!((1..=21).contains(&resets), "{resets}");
}

#[test]
fn the_last_events_come_in_order_and_once() {
    let mut pair = Pair::connected(Options::default());
    pair.take_events(SERVER);
    let now = pair.now;
    pair.client().close(now, 0, b"");
    pair.run_for(secs(5));
    let events = pair.take_events(SERVER);
    assert!(
        matches!(
            &events[..],
            [
                Event::Closed(ConnectionError::ClosedByPeer(_)),
                Event::Drained
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn a_close_with_a_violation_behind_it_is_a_close() {
    let mut evil = Evil::against(SERVER);
    let bytes = payload(|w| {
        write_connection_close(w, &CloseFrame::application(4, b"done"));
        w.u8(0xff);
    });
    evil.send_bytes(&bytes);
    assert_eq!(evil.pair.close_reason(SERVER), by_application(4, b"done"));
}
