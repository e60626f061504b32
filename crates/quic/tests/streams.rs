//! Streams: opening, order, ends, resets, limits, and what is left of them.

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::{Direction, Event, ReadError, Side, StreamId, TransportConfig, WriteError};
use towline_wire::Frame;

const BIDI: Direction = Direction::Bidirectional;
const UNI: Direction = Direction::Unidirectional;

fn with_streams(bidi: u64, uni: u64) -> Options {
    let transport = TransportConfig::default()
        .max_concurrent_bidi_streams(bidi)
        .max_concurrent_uni_streams(uni);
    Options {
        client: transport.clone(),
        server: transport,
        ..readable()
    }
}

#[test]
fn a_question_is_answered_on_a_bidirectional_stream() {
    for asker in [CLIENT, SERVER] {
        let mut pair = Pair::connected(Options::default());
        let id = pair.send_stream(asker, BIDI, b"question");
        let other = 1 - asker;
        assert_eq!(pair.accept(other, BIDI, secs(1)), id);
        assert_eq!(pair.read_to_end(other, id, secs(1)), b"question");
        pair.conn(other).write_slice(id, b"answer").unwrap();
        pair.conn(other).finish(id).unwrap();
        assert_eq!(pair.read_to_end(asker, id, secs(1)), b"answer");
        pair.run_for(secs(1));
        let finished = Event::Finished(id);
        assert!(pair.take_event(asker, |e| *e == finished).is_some());
        assert!(pair.take_event(other, |e| *e == finished).is_some());
    }
}

#[test]
fn a_thousand_streams_arrive_each_with_its_own_bytes() {
    let mut pair = Pair::connected(with_streams(50, 50));
    let content = |i: u64| pattern(1 + (i as usize * 37) % 900);
    let (mut opened, mut done) = (0, 0);
    let mut reading: BTreeMap<StreamId, Vec<u8>> = BTreeMap::new();
    pair.run_until(secs(60), |p| {
        while opened < 1000 {
            let Some(id) = p.client().open(UNI) else {
                break;
            };
            p.client().write_slice(id, &content(opened)).unwrap();
            p.client().finish(id).unwrap();
            opened += 1;
        }
        while let Some(id) = p.server().accept(UNI) {
            reading.insert(id, Vec::new());
        }
        let ids: Vec<StreamId> = reading.keys().copied().collect();
        for id in ids {
            let mut got = reading.remove(&id).unwrap();
            if p.read_available(SERVER, id, &mut got) {
                assert!(got == content(id.index()));
                done += 1;
            } else {
                reading.insert(id, got);
            }
        }
        done == 1000
    });
}

#[test]
fn a_stream_opens_all_before_it() {
    let mut pair = Pair::connected(Options::default());
    let ids: Vec<StreamId> = (0..10).map(|_| pair.client().open(UNI).unwrap()).collect();
    pair.client().write_slice(ids[9], b"last").unwrap();
    pair.run_for(ms(50));
    let events = pair.take_events(SERVER);
    let opened = events.iter().filter(|e| **e == Event::Opened(UNI)).count();
    assert_eq!(opened, 1);
    for id in &ids {
        assert_eq!(pair.server().accept(UNI), Some(*id));
    }
    assert_eq!(pair.server().accept(UNI), None);
    assert_eq!(pair.server().read(ids[0], 10), Err(ReadError::Blocked));
    assert_eq!(
        pair.server().read(ids[9], 10).unwrap().unwrap(),
        &b"last"[..]
    );
}

#[test]
fn an_empty_stream_has_an_end() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.send_stream(CLIENT, UNI, b"");
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    assert_eq!(pair.server().read(id, 10), Ok(None));
    assert_eq!(pair.server().read(id, 10), Err(ReadError::ClosedStream));
    pair.run_for(secs(1));
    assert!(
        pair.take_event(CLIENT, |e| *e == Event::Finished(id))
            .is_some()
    );
}

#[test]
fn an_end_that_comes_alone_after_the_data_is_read() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, b"data").unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let mut got = Vec::new();
    assert!(!pair.read_available(SERVER, id, &mut got));
    pair.take_events(SERVER);
    pair.client().finish(id).unwrap();
    pair.run_until(secs(1), |p| {
        p.take_event(SERVER, |e| *e == Event::Readable(id))
            .is_some()
    });
    assert!(pair.read_available(SERVER, id, &mut got));
    assert_eq!(got, b"data");
}

#[test]
fn a_reset_reaches_the_reader_with_its_code() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, b"never mind").unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    pair.client().reset(id, 42);
    assert_eq!(
        pair.client().write_slice(id, b"x"),
        Err(WriteError::ClosedStream)
    );
    pair.run_for(secs(1));
    assert_eq!(pair.server().read(id, 100), Err(ReadError::Reset(42)));
    assert_eq!(pair.server().read(id, 100), Err(ReadError::ClosedStream));
}

#[test]
fn a_stream_reset_before_it_was_accepted_is_still_accepted() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.client().open(UNI).unwrap();
    pair.client().reset(id, 7);
    pair.run_for(secs(1));
    assert_eq!(pair.server().accept(UNI), Some(id));
    assert_eq!(pair.server().read(id, 1), Err(ReadError::Reset(7)));
}

#[test]
fn a_reset_after_everything_was_read_changes_nothing() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.send_stream(CLIENT, UNI, b"whole");
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    assert_eq!(pair.read_to_end(SERVER, id, secs(1)), b"whole");
    pair.client().reset(id, 9);
    pair.run_for(secs(1));
    assert_eq!(pair.close_reason(SERVER), None);
    assert_eq!(pair.close_reason(CLIENT), None);
}

#[test]
fn stopping_makes_the_sender_reset_with_the_same_code() {
    let mut pair = Pair::connected(readable());
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, &[1; 50_000]).unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let resets = pair.watch(CLIENT, |f| {
        matches!(f, Frame::ResetStream { error_code: 13, .. })
    });
    pair.server().stop(id, 13);
    assert_eq!(pair.server().read(id, 1), Err(ReadError::ClosedStream));
    pair.run_for(secs(1));
    let stopped = Event::Stopped { id, error_code: 13 };
    assert!(pair.take_event(CLIENT, |e| *e == stopped).is_some());
    assert_eq!(
        pair.client().write_slice(id, b"x"),
        Err(WriteError::ClosedStream)
    );
    assert_eq!(resets.count(), 1);
}

#[test]
fn stopping_a_finished_stream_sends_nothing() {
    let mut pair = Pair::connected(readable());
    let id = pair.send_stream(CLIENT, UNI, b"all of it");
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let stops = pair.watch(SERVER, |f| matches!(f, Frame::StopSending { .. }));
    pair.server().stop(id, 1);
    pair.run_for(secs(1));
    assert_eq!(stops.count(), 0);
    assert!(
        pair.take_event(CLIENT, |e| *e == Event::Finished(id))
            .is_some()
    );
}

/// Opens a stream from the client with `data` on it and lets the server accept it.
fn open_stream(pair: &mut Pair, data: &[u8]) -> StreamId {
    let id = pair.client().open(BIDI).unwrap();
    pair.client().write_slice(id, data).unwrap();
    assert_eq!(pair.accept(SERVER, BIDI, secs(1)), id);
    pair.run_for(ms(200));
    id
}

#[test]
fn lost_reset_stream_is_sent_again() {
    let mut pair = Pair::connected(readable());
    let id = open_stream(&mut pair, b"x");
    let seen = pair.drop_first(CLIENT, 2, |f| matches!(f, Frame::ResetStream { .. }));
    pair.client().reset(id, 5);
    pair.run_for(secs(5));
    assert!(seen.count() >= 3);
    assert_eq!(pair.server().read(id, 10), Err(ReadError::Reset(5)));
}

#[test]
fn lost_stop_sending_is_sent_again() {
    let mut pair = Pair::connected(readable());
    let id = open_stream(&mut pair, b"x");
    let seen = pair.drop_first(SERVER, 2, |f| matches!(f, Frame::StopSending { .. }));
    pair.server().stop(id, 6);
    pair.run_for(secs(5));
    assert!(seen.count() >= 3);
    let stopped = Event::Stopped { id, error_code: 6 };
    assert!(pair.take_event(CLIENT, |e| *e == stopped).is_some());
}

#[test]
fn lost_end_of_stream_is_sent_again() {
    let mut pair = Pair::connected(readable());
    let id = open_stream(&mut pair, b"data");
    let seen = pair.drop_first(CLIENT, 2, |f| matches!(f, Frame::Stream(s) if s.fin));
    pair.client().finish(id).unwrap();
    assert_eq!(pair.read_to_end(SERVER, id, secs(5)), b"data");
    assert!(seen.count() >= 3);
}

#[test]
fn stream_limits_hold_and_closing_streams_makes_room() {
    for dir in [BIDI, UNI] {
        let mut pair = Pair::connected(with_streams(3, 3));
        let ids: Vec<StreamId> = (0..3).map(|_| pair.client().open(dir).unwrap()).collect();
        assert_eq!(pair.client().open(dir), None);
        for id in &ids {
            pair.client().write_slice(*id, b"x").unwrap();
            pair.client().finish(*id).unwrap();
        }
        pair.run_for(secs(1));
        // The peer has not let go of any.
        assert_eq!(pair.client().open(dir), None);
        let id = pair.server().accept(dir).unwrap();
        let mut got = Vec::new();
        assert!(pair.read_available(SERVER, id, &mut got));
        if dir == BIDI {
            pair.server().finish(id).unwrap();
        }
        pair.run_until(secs(1), |p| {
            p.take_event(CLIENT, |e| *e == Event::StreamsAvailable(dir))
                .is_some()
        });
        assert!(pair.client().open(dir).is_some());
        assert_eq!(pair.client().open(dir), None);
    }
}

#[test]
fn a_blocked_peer_gets_even_a_single_free_stream() {
    // An eighth of 100 is 12: without STREAMS_BLOCKED, eleven free streams would stay unknown.
    let mut pair = Pair::connected(with_streams(0, 100));
    let ids: Vec<StreamId> = (0..100).map(|_| pair.client().open(UNI).unwrap()).collect();
    for id in &ids {
        pair.client().write_slice(*id, b"x").unwrap();
    }
    assert_eq!(pair.client().open(UNI), None);
    pair.client().finish(ids[7]).unwrap();
    pair.run_for(secs(1));
    while pair.server().accept(UNI).is_some() {}
    let mut got = Vec::new();
    assert!(pair.read_available(SERVER, ids[7], &mut got));
    pair.run_until(secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::StreamsAvailable(UNI))
            .is_some()
    });
    assert!(pair.client().open(UNI).is_some());
}

#[test]
fn a_peer_that_says_so_later_gets_the_streams_that_are_already_free() {
    let mut pair = Pair::connected(with_streams(0, 100));
    let mut ids = Vec::new();
    while ids.len() < 100 {
        ids.push(pair.send_stream(CLIENT, UNI, b"x"));
    }
    pair.run_for(secs(1));
    let mut got = Vec::new();
    for _ in 0..5 {
        let id = pair.server().accept(UNI).unwrap();
        assert!(pair.read_available(SERVER, id, &mut got));
    }
    pair.run_for(secs(1));
    assert_eq!(pair.client().open(UNI), None);
    pair.run_for(ms(100));
    for _ in 0..5 {
        assert!(pair.client().open(UNI).is_some());
    }
}

#[test]
fn lost_max_streams_is_sent_again() {
    let mut pair = Pair::connected(with_streams(1, 1));
    pair.run_for(secs(1));
    let seen = pair.drop_first(SERVER, 2, |f| matches!(f, Frame::MaxStreams { .. }));
    pair.send_stream(CLIENT, UNI, b"1");
    assert_eq!(pair.client().open(UNI), None);
    let id = pair.accept(SERVER, UNI, secs(1));
    assert_eq!(pair.read_to_end(SERVER, id, secs(1)), b"1");
    pair.run_until(secs(10), |p| p.client().open(UNI).is_some());
    assert!(seen.count() >= 3);
}

#[test]
fn the_last_of_twenty_thousand_permitted_streams_opens_all_others() {
    let mut pair = Pair::connected(with_streams(20_000, 20_000));
    // The last one opens all others by implication: one frame, one event.
    let mut last = None;
    for _ in 0..20_000 {
        last = pair.client().open(UNI);
    }
    let last = last.expect("20,000 are permitted");
    assert_eq!(pair.client().open(UNI), None);
    pair.client().write_slice(last, b"the last").unwrap();
    pair.run_for(ms(100));
    let mut accepted = 0;
    while let Some(id) = pair.server().accept(UNI) {
        assert_eq!(id.index(), accepted);
        accepted += 1;
    }
    assert_eq!(accepted, 20_000);
    assert_eq!(
        pair.server().read(last, 100).unwrap().unwrap(),
        &b"the last"[..]
    );
}

#[test]
fn closed_streams_leave_nothing_and_late_frames_for_them_are_ignored() {
    // Every datagram arrives twice, the copy late: frames for streams long closed.
    let mut pair = Pair::connected(Options {
        link: towline_sim::LinkConfig {
            duplicate: 0.5,
            reorder: 0.3,
            reorder_delay: ms(60),
            ..delay(10)
        },
        ..with_streams(10, 10)
    });
    for i in 0..300u64 {
        let id = pair.send_stream(CLIENT, BIDI, b"ping");
        assert_eq!(id.index(), i);
        assert_eq!(pair.accept(SERVER, BIDI, secs(5)), id);
        assert_eq!(pair.read_to_end(SERVER, id, secs(5)), b"ping");
        pair.server().write_slice(id, b"pong").unwrap();
        pair.server().finish(id).unwrap();
        assert_eq!(pair.read_to_end(CLIENT, id, secs(5)), b"pong");
        pair.run_for(ms(50));
    }
    pair.run_for(secs(1));
    for side in [CLIENT, SERVER] {
        assert_eq!(pair.close_reason(side), None);
        let id = StreamId::new(Side::Client, BIDI, 0);
        assert_eq!(pair.conn(side).read(id, 1), Err(ReadError::ClosedStream));
        assert_eq!(
            pair.conn(side).write_slice(id, b"x"),
            Err(WriteError::ClosedStream)
        );
    }
}

#[test]
fn a_slow_reader_blocks_the_writer_and_writable_follows() {
    let client = TransportConfig::default().stream_send_buffer(20_000);
    let server = TransportConfig::default()
        .stream_receive_window(30_000)
        .max_stream_receive_window(30_000);
    let mut pair = Pair::connected(Options {
        client,
        server,
        ..Options::default()
    });
    let id = pair.client().open(UNI).unwrap();
    let mut data = Bytes::from(vec![3; 200_000]);
    let mut written = 0;
    let mut writable = 0;
    pair.run_until(secs(2), |p| {
        loop {
            match p.client().write(id, &mut data) {
                Ok(n) => written += n,
                Err(WriteError::Blocked) => break,
                Err(e) => panic!("{e}"),
            }
        }
        writable += usize::from(
            p.take_event(CLIENT, |e| *e == Event::Writable(id))
                .is_some(),
        );
        written == 50_000
    });
    pair.run_for(secs(2));
    assert_eq!(pair.client().write(id, &mut data), Err(WriteError::Blocked));
    pair.take_events(CLIENT);
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let mut got = Vec::new();
    assert!(!pair.read_available(SERVER, id, &mut got));
    assert_eq!(got.len(), 30_000);
    pair.run_until(secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::Writable(id))
            .is_some()
    });
    assert!(writable > 0);
}

#[test]
fn writers_that_share_a_full_connection_buffer_all_go_on() {
    let client = TransportConfig::default().send_buffer(30_000);
    let mut pair = Pair::connected(Options {
        client,
        ..Options::default()
    });
    let ids: Vec<StreamId> = (0..4).map(|_| pair.client().open(UNI).unwrap()).collect();
    let mut left = [Bytes::new(), Bytes::new(), Bytes::new(), Bytes::new()];
    for bytes in &mut left {
        *bytes = Bytes::from(pattern(100_000));
    }
    let mut can_write = [true; 4];
    let mut got = [0; 4];
    pair.run_until(secs(10), |p| {
        for (i, &id) in ids.iter().enumerate() {
            if p.take_event(CLIENT, |e| *e == Event::Writable(id))
                .is_some()
            {
                can_write[i] = true;
            }
            while can_write[i] && !left[i].is_empty() {
                if p.client().write(id, &mut left[i]) == Err(WriteError::Blocked) {
                    can_write[i] = false;
                }
            }
        }
        while p.server().accept(UNI).is_some() {}
        for (i, &id) in ids.iter().enumerate() {
            while let Ok(Some(chunk)) = p.server().read(id, usize::MAX) {
                got[i] += chunk.len();
            }
        }
        got == [100_000; 4]
    });
}

#[test]
fn streams_with_data_take_turns() {
    let mut pair = Pair::connected(Options {
        link: towline_sim::LinkConfig {
            rate: Some(10_000_000),
            queue: Some(10 << 20),
            ..delay(10)
        },
        ..Options::default()
    });
    let ids: Vec<StreamId> = (0..5).map(|_| pair.client().open(UNI).unwrap()).collect();
    for id in &ids {
        pair.client().write_slice(*id, &pattern(200_000)).unwrap();
    }
    let mut got = [0usize; 5];
    pair.run_until(secs(10), |p| {
        while p.server().accept(UNI).is_some() {}
        for (i, &id) in ids.iter().enumerate() {
            while let Ok(Some(chunk)) = p.server().read(id, usize::MAX) {
                got[i] += chunk.len();
            }
        }
        got.iter().sum::<usize>() > 500_000
    });
    let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    assert!(most - least < 20_000, "{got:?}");
}

#[test]
fn no_stream_is_opened_before_the_handshake_is_done() {
    let mut pair = Pair::new(Options::default());
    pair.connect();
    assert_eq!(pair.client().open(UNI), None);
    pair.established(secs(1));
    assert!(pair.client().open(UNI).is_some());
}

#[test]
fn reading_in_small_slices_gives_the_same_bytes() {
    let mut pair = Pair::connected(Options::default());
    let data = pattern(10_000);
    let id = pair.send_stream(CLIENT, UNI, &data);
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    pair.run_for(secs(1));
    let mut got = Vec::new();
    let mut slice = [0; 77];
    assert_eq!(pair.server().read_slice(id, &mut []), Ok(Some(0)));
    while let Some(n) = pair.server().read_slice(id, &mut slice).unwrap() {
        got.extend_from_slice(&slice[..n]);
    }
    assert!(got == data);
}

fn tiny_send_buffer() -> Options {
    Options {
        client: TransportConfig::default().send_buffer(1000),
        ..Options::default()
    }
}

/// Two streams of the client: the first fills the connection's send buffer, the second starves.
fn starving(pair: &mut Pair) -> [StreamId; 2] {
    let client = pair.client();
    let [full, starved] = [(); 2].map(|()| client.open(UNI).unwrap());
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
    let accepted = pair.accept(SERVER, UNI, secs(1));
    assert_eq!(accepted, full);
    pair.server().stop(full, 9);
    pair.run_for(secs(1));
    let writable = Event::Writable(starved);
    assert!(pair.take_event(CLIENT, |e| *e == writable).is_some());
}

#[test]
fn a_read_of_no_bytes_is_not_the_end_of_a_whole_stream() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.send_stream(CLIENT, Direction::Unidirectional, b"whole");
    pair.run_for(secs(1));
    assert_eq!(pair.server().read(id, 0), Ok(Some(Bytes::new())));
    let whole = pair.server().read(id, 100);
    assert_eq!(whole, Ok(Some(Bytes::from_static(b"whole"))));
    assert_eq!(pair.server().read(id, 0), Ok(None));
}
