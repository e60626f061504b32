//! Resets that are waited for without reading (RFC 9000 §3.2).

mod common;

use bytes::Bytes;
use common::{CLIENT, Options, Pair, SERVER, ms, pattern, readable, secs};
use towline_quic::{ConnectionError, Direction, Event, ReadError, StreamId};

const UNI: Direction = Direction::Unidirectional;

/// A stream on which the client has written, accepted by the server.
fn begun(pair: &mut Pair, data: &[u8]) -> StreamId {
    let id = pair.client().open(UNI).unwrap();
    assert_eq!(pair.client().write_slice(id, data), Ok(data.len()));
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    pair.run_for(ms(200));
    id
}

fn readable_events(pair: &mut Pair, id: StreamId) -> usize {
    let events = pair.take_events(SERVER);
    events.iter().filter(|e| **e == Event::Readable(id)).count()
}

#[test]
fn a_reset_is_told_before_anything_was_read() {
    let mut pair = Pair::connected(Options::default());
    let id = begun(&mut pair, &pattern(5_000));
    assert_eq!(pair.server().received_reset(id), Err(ReadError::Blocked));
    readable_events(&mut pair, id);
    // More data is no news for who waits for the reset.
    pair.client().write_slice(id, &pattern(5_000)).unwrap();
    pair.run_for(ms(100));
    assert_eq!(readable_events(&mut pair, id), 0);
    assert_eq!(pair.server().received_reset(id), Err(ReadError::Blocked));
    pair.client().reset(id, 77);
    pair.run_for(ms(100));
    assert_eq!(readable_events(&mut pair, id), 1);
    assert_eq!(pair.server().received_reset(id), Ok(Some(77)));
    // Told once, as by a read: the stream is over.
    let gone = Err(ReadError::ClosedStream);
    assert_eq!(pair.server().received_reset(id), gone);
}

#[test]
fn waiting_for_a_reset_takes_no_byte() {
    let mut pair = Pair::connected(Options::default());
    let data = pattern(20_000);
    let id = begun(&mut pair, &data[..10_000]);
    let blocked = Err(ReadError::Blocked);
    assert_eq!(pair.server().received_reset(id), blocked);
    let mut got = Vec::new();
    assert!(!pair.read_available(SERVER, id, &mut got));
    assert_eq!(pair.server().received_reset(id), blocked);
    pair.client().write_slice(id, &data[10_000..]).unwrap();
    pair.client().finish(id).unwrap();
    readable_events(&mut pair, id);
    pair.run_for(ms(100));
    assert!(readable_events(&mut pair, id) >= 1);
    // All is here, though not read: no reset is to come.
    assert_eq!(pair.server().received_reset(id), Ok(None));
    assert!(pair.read_available(SERVER, id, &mut got));
    assert!(got == data);
}

#[test]
fn the_end_of_data_that_nobody_reads_is_told_to_who_waits_for_a_reset() {
    let mut pair = Pair::connected(Options::default());
    let id = begun(&mut pair, &pattern(5_000));
    assert_eq!(pair.server().received_reset(id), Err(ReadError::Blocked));
    readable_events(&mut pair, id);
    pair.client().finish(id).unwrap();
    pair.run_for(ms(100));
    assert_eq!(readable_events(&mut pair, id), 1);
    assert_eq!(pair.server().received_reset(id), Ok(None));
    assert_eq!(pair.server().received_reset(id), Ok(None), "and again");
}

#[test]
fn a_stream_that_was_stopped_has_no_reset_to_wait_for() {
    let mut pair = Pair::connected(Options::default());
    let id = begun(&mut pair, b"x");
    pair.server().stop(id, 9);
    assert_eq!(pair.server().received_reset(id), Ok(None));
    pair.run_for(ms(100));
    // The peer has answered with its reset, and the stream is over.
    let gone = Err(ReadError::ClosedStream);
    assert_eq!(pair.server().received_reset(id), gone);
}

#[test]
fn the_end_of_the_connection_ends_the_wait() {
    let mut pair = Pair::connected(Options::default());
    let id = begun(&mut pair, b"x");
    let other = begun(&mut pair, b"y");
    pair.client().reset(other, 3);
    pair.run_for(ms(100));
    let now = pair.now;
    pair.client().close(now, 8, b"");
    pair.run_for(ms(20));
    let lost = pair.server().received_reset(id).unwrap_err();
    assert!(
        matches!(
            lost,
            ReadError::ConnectionLost(ConnectionError::ClosedByPeer(_))
        ),
        "{lost:?}"
    );
    // What had arrived before is told.
    assert_eq!(pair.server().received_reset(other), Ok(Some(3)));
}

#[test]
fn a_reset_that_was_told_gives_the_peer_its_stream_and_its_credit_back() {
    let mut options = readable();
    options.server.max_concurrent_uni_streams = 1;
    options.server.receive_window = 10_000;
    options.server.max_receive_window = 10_000;
    let mut pair = Pair::connected(options);
    for code in 0..20 {
        let mut data = Bytes::from(pattern(10_000));
        let id = pair.client().open(UNI).expect("one stream at a time");
        pair.client().write(id, &mut data).unwrap();
        pair.run_for(ms(100));
        assert_eq!(pair.server().accept(UNI), Some(id));
        pair.client().reset(id, code);
        pair.run_for(ms(100));
        assert_eq!(pair.server().received_reset(id), Ok(Some(code)));
        pair.run_for(ms(100));
    }
    pair.transfer(CLIENT, 30_000, secs(5));
}

#[test]
fn the_length_of_a_stopped_stream_is_told_once_when_the_peer_says_it() {
    let mut pair = Pair::connected(Options::default());
    let id = begun(&mut pair, &pattern(5_000));
    assert_eq!(pair.server().received_len(id), Some(5_000));
    // On its way when the stop is.
    pair.client().write_slice(id, &pattern(700)).unwrap();
    pair.run_for(ms(1));
    readable_events(&mut pair, id);
    pair.server().stop(id, 9);
    assert!(pair.server().await_final_size(id));
    assert_eq!(pair.server().take_final_size(id), None);
    pair.run_for(ms(500));
    assert_eq!(readable_events(&mut pair, id), 1);
    assert_eq!(pair.server().take_final_size(id), Some(5_700));
    assert_eq!(pair.server().take_final_size(id), None);
    assert_eq!(pair.server().received_len(id), None);
    assert!(!pair.server().await_final_size(id));
}

#[test]
fn nobody_hears_of_the_length_of_a_stopped_stream_unasked() {
    let mut pair = Pair::connected(Options::default());
    let id = begun(&mut pair, &pattern(5_000));
    readable_events(&mut pair, id);
    pair.server().stop(id, 9);
    pair.run_for(ms(500));
    assert_eq!(readable_events(&mut pair, id), 0);
    assert_eq!(pair.server().take_final_size(id), None);
}

#[test]
fn of_a_stream_that_was_reset_the_peer_counts_what_was_sent() {
    let mut pair = Pair::connected(Options::default());
    let id = begun(&mut pair, &pattern(5_000));
    pair.client().write_slice(id, &pattern(3_000)).unwrap();
    assert_eq!(pair.client().sent_len(id), Some(8_000));
    pair.client().reset(id, 1);
    assert_eq!(pair.client().sent_len(id), Some(5_000));
    let other = pair.client().open(UNI).unwrap();
    pair.client().write_slice(other, &pattern(3_000)).unwrap();
    pair.client().reset_at(other, 1, 10).unwrap();
    assert_eq!(pair.client().sent_len(other), Some(10));
}
