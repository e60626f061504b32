//! Credit: windows that hold, grow, come back and survive the loss of their frames.

mod common;

use bytes::Bytes;
use common::evil::Evil;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::{
    Direction, Event, ReadError, Side, StreamId, TransportConfig, TransportErrorCode, WriteError,
};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::{Frame, FrameType, write_reset_stream, write_stream_header};

const UNI: Direction = Direction::Unidirectional;

fn windows(stream: u64, max_stream: u64, connection: u64, max_connection: u64) -> TransportConfig {
    TransportConfig::default()
        .stream_receive_window(stream)
        .max_stream_receive_window(max_stream)
        .receive_window(connection)
        .max_receive_window(max_connection)
}

fn server_windows(stream: u64, connection: u64) -> Options {
    Options {
        server: windows(stream, stream, connection, connection),
        ..readable()
    }
}

/// Writes as much as is taken on a new stream.
fn fill(pair: &mut Pair, len: usize) -> (StreamId, Bytes) {
    let id = pair.client().open(UNI).unwrap();
    let mut data = Bytes::from(pattern(len));
    while !data.is_empty() {
        if pair.client().write(id, &mut data) == Err(WriteError::Blocked) {
            break;
        }
    }
    (id, data)
}

/// Highest end of stream data that `from` has sent, for each stream, through a tap.
fn watch_ends(
    pair: &mut Pair,
    from: usize,
) -> std::rc::Rc<std::cell::RefCell<std::collections::BTreeMap<StreamId, u64>>> {
    let ends = std::rc::Rc::new(std::cell::RefCell::new(std::collections::BTreeMap::<
        StreamId,
        u64,
    >::new()));
    let log = ends.clone();
    pair.tap = Some(Box::new(move |side, datagram| {
        if side == from {
            common::wire::for_each_frame(datagram, |_, frame| {
                if let Frame::Stream(s) = frame {
                    let end = s.offset + s.data.len() as u64;
                    let mut log = log.borrow_mut();
                    let known = log.entry(s.id).or_default();
                    *known = end.max(*known);
                }
            });
        }
        true
    }));
    ends
}

#[test]
fn a_stream_that_nobody_reads_does_not_keep_the_others_from_their_credit() {
    // What the unread stream holds is most of the connection's window.
    let limits = windows(20_000, 20_000, 30_000, 30_000);
    let mut pair = Pair::connected(Options {
        server: limits,
        ..readable()
    });
    let (unread, _) = fill(&mut pair, 50_000);
    pair.run_for(secs(1));
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), unread);
    let id = pair.client().open(UNI).unwrap();
    let mut data = Bytes::from(pattern(200_000));
    let mut got = 0;
    for _ in 0..400 {
        let _ = pair.client().write(id, &mut data);
        pair.run_for(ms(50));
        while let Ok(Some(chunk)) = pair.server().read(id, usize::MAX) {
            got += chunk.len();
        }
    }
    assert_eq!(got, 200_000);
}

#[test]
fn a_stream_window_stops_the_sender_until_the_reader_reads() {
    let mut pair = Pair::connected(server_windows(10_000, 1 << 20));
    let ends = watch_ends(&mut pair, CLIENT);
    let (id, _) = fill(&mut pair, 50_000);
    pair.run_for(secs(3));
    assert_eq!(ends.borrow()[&id], 10_000);
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let mut out = [0; 4_000];
    assert_eq!(
        pair.server().read_slice(id, &mut out[..2_000]),
        Ok(Some(2_000))
    );
    pair.run_for(secs(1));
    // Less than a quarter is consumed: no update yet.
    assert_eq!(ends.borrow()[&id], 10_000);
    assert_eq!(
        pair.server().read_slice(id, &mut out[..3_000]),
        Ok(Some(3_000))
    );
    pair.run_for(secs(1));
    assert_eq!(ends.borrow()[&id], 15_000);
}

#[test]
fn the_connection_window_holds_over_all_streams() {
    let mut pair = Pair::connected(server_windows(10_000, 25_000));
    let ends = watch_ends(&mut pair, CLIENT);
    for _ in 0..5 {
        fill(&mut pair, 10_000);
    }
    pair.run_for(secs(3));
    assert_eq!(ends.borrow().values().sum::<u64>(), 25_000);
    let mut read = 0;
    pair.run_until(secs(5), |p| {
        while p.server().accept(UNI).is_some() {}
        for i in 0..5 {
            let id = StreamId::new(Side::Client, UNI, i);
            while let Ok(Some(chunk)) = p.server().read(id, usize::MAX) {
                read += chunk.len();
            }
        }
        read == 50_000
    });
}

#[test]
fn windows_grow_with_the_path_up_to_their_maximum() {
    // 100 Mbit/s over 100 ms needs 1.25 MB; the windows begin at a tenth of it.
    let link = LinkConfig {
        rate: Some(100_000_000),
        queue: Some(4 << 20),
        ..delay(50)
    };
    let took = |max: u64| {
        let mut pair = Pair::connected(Options {
            link: link.clone(),
            server: windows(128 << 10, max, 192 << 10, max + max / 2),
            ..Options::default()
        });
        pair.transfer(CLIENT, 20_000_000, secs(60)).as_secs_f64()
    };
    let (fixed, grown) = (took(128 << 10), took(16 << 20));
    assert!(fixed > 10.0, "{fixed} s through 128 KiB per round trip");
    assert!(grown < 4.0, "{grown} s with auto-tuning");
}

#[test]
fn a_slow_reader_keeps_its_window_small() {
    let mut pair = Pair::connected(Options {
        server: windows(20_000, 16 << 20, 1 << 20, 16 << 20),
        ..readable()
    });
    let ends = watch_ends(&mut pair, CLIENT);
    let (id, _) = fill(&mut pair, 400_000);
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let mut read = 0;
    for _ in 0..20 {
        pair.run_for(secs(1));
        if let Ok(Some(chunk)) = pair.server().read(id, 10_000) {
            read += chunk.len() as u64;
        }
    }
    let ahead = ends.borrow()[&id] - read;
    assert!(ahead <= 20_000, "{ahead} bytes ahead of a slow reader");
}

#[test]
fn lost_max_data_is_sent_again() {
    let mut pair = Pair::connected(server_windows(1 << 20, 20_000));
    let seen = pair.drop_first(SERVER, 3, |f| matches!(f, Frame::MaxData(_)));
    pair.transfer(CLIENT, 100_000, secs(20));
    assert!(seen.count() >= 4);
}

#[test]
fn lost_max_stream_data_is_sent_again() {
    let mut pair = Pair::connected(server_windows(20_000, 1 << 20));
    let seen = pair.drop_first(SERVER, 3, |f| matches!(f, Frame::MaxStreamData { .. }));
    pair.transfer(CLIENT, 100_000, secs(20));
    assert!(seen.count() >= 4);
}

#[test]
fn tiny_windows_survive_thirty_percent_loss() {
    let mut pair = Pair::connected(server_windows(3_000, 4_000));
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.3),
        ..delay(10)
    };
    let (a, b) = pair.links;
    pair.net.set_config(a, lossy.clone()).unwrap();
    pair.net.set_config(b, lossy).unwrap();
    pair.transfer(CLIENT, 60_000, secs(300));
}

#[test]
fn a_blocked_sender_says_so_once_for_each_limit() {
    let mut pair = Pair::connected(server_windows(5_000, 1 << 20));
    let stream = pair.watch(CLIENT, |f| matches!(f, Frame::StreamDataBlocked { .. }));
    fill(&mut pair, 20_000);
    pair.run_for(secs(5));
    assert_eq!(stream.count(), 1);
    let mut pair = Pair::connected(server_windows(1 << 20, 5_000));
    let connection = pair.watch(CLIENT, |f| matches!(f, Frame::DataBlocked(5_000)));
    fill(&mut pair, 20_000);
    pair.run_for(secs(5));
    assert_eq!(connection.count(), 1);
}

#[test]
fn a_reset_stream_gives_its_credit_back() {
    let mut pair = Pair::connected(server_windows(10_000, 10_000));
    for _ in 0..20 {
        let (id, _) = fill(&mut pair, 10_000);
        pair.run_for(ms(100));
        pair.client().reset(id, 0);
        pair.run_for(ms(100));
        assert_eq!(pair.server().accept(UNI), Some(id));
        assert_eq!(pair.server().read(id, 1), Err(ReadError::Reset(0)));
        pair.run_for(ms(100));
    }
    pair.transfer(CLIENT, 30_000, secs(5));
}

#[test]
fn a_stopped_stream_gives_its_credit_back() {
    let mut pair = Pair::connected(server_windows(10_000, 10_000));
    for _ in 0..20 {
        let (id, _) = fill(&mut pair, 30_000);
        pair.run_for(ms(100));
        assert_eq!(pair.server().accept(UNI), Some(id));
        assert!(pair.server().read(id, 3_000).is_ok());
        pair.server().stop(id, 0);
        pair.run_for(ms(100));
    }
    pair.transfer(CLIENT, 30_000, secs(5));
}

#[test]
fn a_peer_without_any_window_gets_nothing_but_the_end() {
    let mut pair = Pair::connected(server_windows(0, 0));
    let (id, _) = fill(&mut pair, 100);
    let empty = pair.send_stream(CLIENT, UNI, b"");
    pair.run_for(secs(2));
    // The empty stream has an end; the other one waits.
    assert_eq!(pair.server().accept(UNI), Some(id));
    assert_eq!(pair.server().accept(UNI), Some(empty));
    assert_eq!(pair.server().read(empty, 1), Ok(None));
    assert_eq!(pair.server().read(id, 1), Err(ReadError::Blocked));
    assert!(
        pair.take_event(CLIENT, |e| *e == Event::Finished(empty))
            .is_some()
    );
}

fn stream_frame(evil: &mut Evil, id: StreamId, offset: u64, fin: bool, data: &[u8]) {
    evil.send(|w| {
        write_stream_header(w, id, offset, Some(data.len()), fin);
        w.bytes(data);
    });
}

#[test]
fn data_beyond_the_stream_window_is_a_flow_control_error() {
    let id = StreamId::new(Side::Client, UNI, 0);
    for (offset, ok) in [(9_999, true), (10_000, false), (1 << 40, false)] {
        let mut evil = Evil::with(SERVER, server_windows(10_000, 1 << 20));
        stream_frame(&mut evil, id, offset, false, b"x");
        if ok {
            evil.assert_open();
        } else {
            let code = TransportErrorCode::FLOW_CONTROL_ERROR;
            evil.assert_closed(code, Some(FrameType::STREAM));
        }
    }
}

#[test]
fn data_beyond_the_connection_window_is_a_flow_control_error() {
    let mut evil = Evil::with(SERVER, server_windows(10_000, 15_000));
    let stream = |i| StreamId::new(Side::Client, UNI, i);
    stream_frame(&mut evil, stream(0), 9_999, false, b"x");
    stream_frame(&mut evil, stream(1), 4_999, false, b"x");
    evil.assert_open();
    stream_frame(&mut evil, stream(2), 0, false, b"x");
    let code = TransportErrorCode::FLOW_CONTROL_ERROR;
    evil.assert_closed(code, Some(FrameType::STREAM));
}

#[test]
fn a_final_size_beyond_the_window_is_a_flow_control_error() {
    let id = StreamId::new(Side::Client, UNI, 0);
    for (stream, connection) in [(10_000, 1 << 20), (1 << 20, 10_000)] {
        for size in [10_000, 10_001, 1 << 61] {
            let mut evil = Evil::with(SERVER, server_windows(stream, connection));
            evil.send(|w| write_reset_stream(w, id, 0, size));
            if size == 10_000 {
                evil.assert_open();
            } else {
                let code = TransportErrorCode::FLOW_CONTROL_ERROR;
                evil.assert_closed(code, Some(FrameType::RESET_STREAM));
            }
        }
    }
}

#[test]
fn data_of_a_stopped_stream_still_counts_against_the_windows() {
    let id = StreamId::new(Side::Client, UNI, 0);
    let mut evil = Evil::with(SERVER, server_windows(10_000, 1 << 20));
    stream_frame(&mut evil, id, 0, false, b"x");
    evil.pair.server().stop(id, 0);
    stream_frame(&mut evil, id, 9_999, false, b"x");
    evil.assert_open();
    stream_frame(&mut evil, id, 10_000, false, b"x");
    let code = TransportErrorCode::FLOW_CONTROL_ERROR;
    evil.assert_closed(code, Some(FrameType::STREAM));
}

#[test]
fn a_lost_streams_blocked_is_sent_again_while_the_limit_is_in_the_way() {
    let mut options = readable();
    options.server.max_concurrent_uni_streams = 100;
    let mut pair = Pair::connected(options);
    let seen = pair.drop_first(CLIENT, 1, |f| matches!(f, Frame::StreamsBlocked { .. }));
    let streams: Vec<_> = (0..100).map(|_| pair.client().open(UNI).unwrap()).collect();
    for &id in &streams {
        pair.client().write_slice(id, b"x").unwrap();
    }
    // One is over: too few for a MAX_STREAMS that nobody asked for.
    pair.client().finish(streams[0]).unwrap();
    pair.run_for(secs(1));
    let first = pair.server().accept(UNI).unwrap();
    let mut out = [0; 9];
    while !matches!(pair.server().read_slice(first, &mut out), Ok(None)) {}
    pair.run_for(secs(1));
    assert_eq!(pair.client().open(UNI), None);
    pair.run_for(secs(5));
    assert_eq!(seen.count(), 2);
    let wanted = Event::StreamsAvailable(UNI);
    assert!(pair.take_event(CLIENT, |e| *e == wanted).is_some());
    assert!(pair.client().open(UNI).is_some());
}

#[test]
fn lost_data_blocked_frames_are_sent_again_while_the_limit_is_in_the_way() {
    for stream_limit in [true, false] {
        let mut options = readable();
        if stream_limit {
            options.server.stream_receive_window = 1000;
            options.server.max_stream_receive_window = 1000;
        } else {
            options.server.receive_window = 1000;
            options.server.max_receive_window = 1000;
        }
        let mut pair = Pair::connected(options);
        let blocked =
            |f: &Frame<'_>| matches!(f, Frame::StreamDataBlocked { .. } | Frame::DataBlocked(_));
        let seen = pair.drop_first(CLIENT, 1, blocked);
        let id = pair.client().open(UNI).unwrap();
        pair.client().write_slice(id, &[0; 3000]).unwrap();
        pair.run_for(ms(100));
        // Something to build a packet for.
        pair.client().ping();
        pair.run_for(secs(3));
        assert!(seen.count() >= 2, "{}", seen.count());
    }
}
