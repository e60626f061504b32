//! What arrived before a connection ended can be read afterwards, where the application asked for that.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{CLIENT, Options, Pair, SERVER, ms, secs, seed};
use towline_quic::{
    Close, ConnectionError, ConnectionHandle, Direction, Endpoint, ReadError, StreamId,
    TimeoutReason, TransportConfig,
};

const UNI: Direction = Direction::Unidirectional;

/// A connection whose server keeps what nobody has read.
fn keeping(options: Options) -> Pair {
    let mut config = seed(1, 2);
    config.keep_unread = true;
    if let Some(limit) = options.memory_limit {
        config.memory_limit = limit;
    }
    let mut pair = Pair::new(options);
    pair.hosts[SERVER].endpoint = Endpoint::new(config, Some(Arc::new(pair.server_config.clone())));
    pair.connect();
    pair.established(secs(30));
    pair
}

/// The client's whole message has arrived, and nobody has read it.
fn with_a_message(options: Options, message: &[u8]) -> (Pair, StreamId) {
    let mut pair = keeping(options);
    let id = pair.send_stream(CLIENT, UNI, message);
    pair.run_for(secs(1));
    (pair, id)
}

fn handle(pair: &Pair) -> ConnectionHandle {
    pair.hosts[SERVER].handle.unwrap()
}

fn is_there(pair: &Pair) -> bool {
    let server = &pair.hosts[SERVER].endpoint;
    server.connection(handle(pair)).is_some()
}

/// The server's account, deadline and count of connections.
fn books(pair: &Pair) -> (bool, bool, usize) {
    let server = &pair.hosts[SERVER].endpoint;
    let stats = server.stats();
    (
        stats.memory > 0,
        server.next_timeout().is_some(),
        stats.connections,
    )
}

fn by_the_client() -> ConnectionError {
    ConnectionError::ClosedByPeer(Close::Application {
        code: 7,
        reason: b"done".to_vec(),
    })
}

#[test]
fn a_message_can_be_read_long_after_its_sender_has_left() {
    let (mut pair, id) = with_a_message(Options::default(), &[5; 30_000]);
    let now = pair.now;
    pair.client().close(now, 7, b"done");
    pair.run_for(secs(60));
    // It is no connection any more, but for its memory.
    assert_eq!(books(&pair), (true, false, 0));
    assert_eq!(pair.hosts[SERVER].endpoint.handles().count(), 0);
    assert_eq!(pair.server().accept(UNI), Some(id));
    let mut read = Vec::new();
    assert!(pair.hosts[SERVER].read_available(id, &mut read));
    assert_eq!(read, [5; 30_000]);
    // There is no other, and a call that wants a live one says why there is none.
    assert_eq!(pair.server().accept(UNI), None);
    let datagram = pair.server().send_datagram(Bytes::from_static(b"late"));
    assert!(datagram.is_err());
    assert_eq!(pair.server().close_reason(), Some(&by_the_client()));
    pair.run_for(secs(1));
    let server = handle(&pair);
    pair.hosts[SERVER].endpoint.forget(server);
    assert!(!is_there(&pair));
    assert_eq!(books(&pair), (false, false, 0));
}

#[test]
fn half_a_message_can_be_read_and_then_the_reason_is_told() {
    let mut pair = keeping(Options::default());
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, b"half a mess").unwrap();
    pair.flush();
    pair.run_for(secs(1));
    let now = pair.now;
    pair.client().close(now, 7, b"done");
    pair.run_for(secs(60));
    let read = pair.server().read(id, 100);
    assert_eq!(read, Ok(Some(Bytes::from_static(b"half a mess"))));
    let end = pair.server().read(id, 100);
    assert_eq!(end, Err(ReadError::ConnectionLost(by_the_client())));
}

#[test]
fn datagrams_that_arrived_can_be_taken_afterwards() {
    let mut pair = keeping(Options::default());
    let datagram = Bytes::from_static(b"position");
    pair.client().send_datagram(datagram.clone()).unwrap();
    pair.flush();
    pair.run_for(secs(1));
    let now = pair.now;
    pair.client().close(now, 7, b"done");
    pair.run_for(secs(60));
    assert_eq!(pair.server().recv_datagram(), Some(datagram));
    assert_eq!(pair.server().recv_datagram(), None);
}

#[test]
fn a_timeout_loses_nothing_that_had_arrived() {
    let options = Options {
        server: TransportConfig::default().max_idle_timeout(secs(3)),
        ..Options::default()
    };
    let (mut pair, id) = with_a_message(options, b"before the mast fell");
    // The client is heard no more.
    pair.hosts[CLIENT].hijacked = true;
    pair.run_for(secs(60));
    let reason = ConnectionError::TimedOut(TimeoutReason::Idle);
    assert_eq!(pair.server().close_reason(), Some(&reason));
    assert_eq!(books(&pair), (true, false, 0));
    let mut read = Vec::new();
    assert!(pair.hosts[SERVER].read_available(id, &mut read));
    assert_eq!(read, b"before the mast fell");
}

#[test]
fn nothing_is_kept_that_was_read_or_that_the_application_closed_itself() {
    let (mut pair, id) = with_a_message(Options::default(), b"read in time");
    let mut read = Vec::new();
    assert!(pair.hosts[SERVER].read_available(id, &mut read));
    let now = pair.now;
    pair.client().close(now, 7, b"done");
    pair.run_for(secs(60));
    assert!(!is_there(&pair));
    assert_eq!(books(&pair), (false, false, 0));

    let (mut pair, _) = with_a_message(Options::default(), b"not wanted");
    let now = pair.now;
    pair.server().close(now, 0, b"");
    pair.run_for(secs(60));
    assert!(!is_there(&pair));
    assert_eq!(books(&pair), (false, false, 0));
}

#[test]
fn what_is_read_leaves_the_account_and_with_the_last_of_it_the_connection_goes() {
    let (mut pair, id) = with_a_message(Options::default(), &[5; 300_000]);
    let server = handle(&pair);
    let now = pair.now;
    pair.client().close(now, 7, b"done");
    pair.run_for(secs(60));
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    let full = endpoint.stats().memory;
    assert!(full > 300_000, "{full}");
    let (mut read, mut left) = (0, full);
    while let Some(chunk) = endpoint
        .visit(server, |connection| connection.unwrap().read(id, 50_000))
        .unwrap()
    {
        read += chunk.len();
        left = endpoint.stats().memory;
    }
    assert!(
        read == 300_000 && left < full / 2,
        "{read}, {full} then {left}"
    );
    assert_eq!(endpoint.stats().memory, 0);
    assert!(!is_there(&pair));
}

#[test]
fn a_live_connection_is_not_forgotten() {
    let (mut pair, _) = with_a_message(Options::default(), b"alive");
    let server = handle(&pair);
    pair.hosts[SERVER].endpoint.forget(server);
    assert!(is_there(&pair));
}

#[test]
fn datagrams_for_a_connection_that_is_over_do_not_reach_it() {
    let (mut pair, id) = with_a_message(Options::default(), b"kept");
    pair.client().ping();
    let late = pair.take_datagrams(CLIENT).remove(0).1;
    let now = pair.now;
    pair.client().close(now, 7, b"done");
    pair.run_for(secs(60));
    let before = pair.hosts[SERVER].endpoint.stats();
    pair.deliver(SERVER, &late);
    pair.run_for(ms(100));
    // It belongs to nothing.
    let after = pair.hosts[SERVER].endpoint.stats();
    assert_eq!(after.unroutable, before.unroutable + 1);
    assert_eq!(books(&pair), (true, false, 0));
    let mut read = Vec::new();
    assert!(pair.hosts[SERVER].read_available(id, &mut read));
    assert_eq!(read, b"kept");
}

#[test]
fn what_is_kept_goes_when_memory_is_short() {
    const LIMIT: u64 = 600_000;
    let options = Options {
        memory_limit: Some(LIMIT),
        ..Options::default()
    };
    let (mut pair, _) = with_a_message(options, &[5; 200_000]);
    let gone = handle(&pair);
    let now = pair.now;
    pair.client().close(now, 7, b"done");
    pair.run_for(secs(60));
    assert!(is_there(&pair));
    // Another client's message, which nobody reads either, wants the room.
    pair.hosts[SERVER].handle = None;
    pair.connect();
    pair.established(secs(30));
    pair.send_stream(CLIENT, UNI, &[6; 450_000]);
    pair.run_for(secs(10));
    let server = &pair.hosts[SERVER].endpoint;
    assert!(server.connection(gone).is_none());
    let stats = server.stats();
    assert_eq!((stats.shed, stats.connections), (0, 1));
    assert!(stats.memory > 450_000 && stats.memory <= LIMIT, "{stats:?}");
}
