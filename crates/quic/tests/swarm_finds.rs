//! What the random swarm found, as small scenarios.

mod common;

use std::collections::BTreeSet;

use bytes::Bytes;
use common::{CLIENT, Options, Pair, SERVER, ms, secs};
use towline_quic::{Direction, Event, Timer, TransportConfig, WriteError};

fn tiny_send_buffer() -> Options {
    Options {
        client: TransportConfig::default().send_buffer(1000),
        ..Options::default()
    }
}

/// Two streams of the client: the first fills the connection's send buffer, the second starves.
fn starving(pair: &mut Pair) -> [towline_quic::StreamId; 2] {
    let client = pair.client();
    let [full, starved] = [(); 2].map(|()| client.open(Direction::Unidirectional).unwrap());
    let mut data = Bytes::from(vec![1; 1000]);
    assert_eq!(client.write(full, &mut data), Ok(1000));
    assert_eq!(client.write_slice(starved, b"x"), Err(WriteError::Blocked));
    [full, starved]
}

#[test]
fn a_reset_lets_writers_go_on_that_starved_for_buffer() {
    let mut pair = Pair::connected(tiny_send_buffer());
    let [full, starved] = starving(&mut pair);
    pair.client().reset(full, 7);
    pair.flush();
    let writable = Event::Writable(starved);
    assert!(pair.take_event(CLIENT, |e| *e == writable).is_some());
    assert_eq!(pair.client().write_slice(starved, b"x"), Ok(1));
}

#[test]
fn a_stop_by_the_peer_lets_writers_go_on_that_starved_for_buffer() {
    let mut options = tiny_send_buffer();
    // Without credit no byte leaves, so no acknowledgement frees the buffer.
    options.server.stream_receive_window = 0;
    options.server.max_stream_receive_window = 0;
    let mut pair = Pair::connected(options);
    let [full, starved] = starving(&mut pair);
    let accepted = pair.accept(SERVER, Direction::Unidirectional, secs(1));
    assert_eq!(accepted, full);
    pair.server().stop(full, 9);
    pair.run_for(secs(1));
    let writable = Event::Writable(starved);
    assert!(pair.take_event(CLIENT, |e| *e == writable).is_some());
}

#[test]
fn a_handshake_is_not_woken_by_its_keep_alive() {
    let mut pair = Pair::new(Options {
        server: TransportConfig::default().keep_alive_interval(Some(ms(100))),
        ..Options::default()
    });
    // Only the client's first datagram arrives: the server stays in its handshake.
    let mut passed = 0;
    pair.tap = Some(Box::new(move |sender, _| {
        passed += usize::from(sender == CLIENT);
        sender == SERVER || passed <= 1
    }));
    pair.connect();
    let mut deadlines = BTreeSet::new();
    let end = pair.now + secs(5);
    while pair.now < end && pair.step() {
        let server = &pair.hosts[SERVER].endpoint;
        let connections = server.handles().filter_map(|h| server.connection(h));
        let timers = connections.filter_map(|c| c.next_timeout());
        deadlines.extend(timers.filter(|(_, timer)| *timer == Timer::KeepAlive));
    }
    assert!(deadlines.len() <= 1, "{deadlines:?}");
}
