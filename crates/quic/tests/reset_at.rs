//! Streams reset beyond their first bytes (draft-ietf-quic-reliable-stream-reset-07).

#![expect(clippy::print_stdout, reason = "the case that failed")]

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::evil::Evil;
use common::{CLIENT, Options, Pair, SERVER, ms, pattern, readable, secs};
use towline_quic::{
    Direction, Event, ReadError, ResetAtError, Side, StreamId, TransportConfig, TransportErrorCode,
    WriteError,
};
use towline_wire::{
    Frame, FrameType, write_reset_stream, write_reset_stream_at, write_stop_sending,
    write_stream_header,
};

const BIDI: Direction = Direction::Bidirectional;
const UNI: Direction = Direction::Unidirectional;

/// Windows that the server grants.
fn server_windows(stream: u64, connection: u64) -> Options {
    let server = TransportConfig::default()
        .stream_receive_window(stream)
        .max_stream_receive_window(stream)
        .receive_window(connection)
        .max_receive_window(connection);
    Options {
        server,
        ..readable()
    }
}

/// What the server gets to read, and the code with which it ends.
fn read_to_reset(pair: &mut Pair, id: StreamId) -> (Vec<u8>, u64) {
    let mut got = Vec::new();
    for _ in 0..1_000 {
        match pair.server().read(id, 100_000) {
            Ok(Some(data)) => got.extend_from_slice(&data),
            Ok(None) => panic!("an end"),
            Err(ReadError::Blocked) => pair.run_for(ms(20)),
            Err(ReadError::Reset(code)) => return (got, code),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no reset after {} bytes", got.len());
}

fn begun(pair: &mut Pair, data: &[u8]) -> StreamId {
    let id = pair.client().open(UNI).unwrap();
    assert_eq!(pair.client().write_slice(id, data), Ok(data.len()));
    id
}

#[test]
fn what_is_below_the_reliable_size_arrives_and_then_the_code() {
    for (written, reliable) in [(10, 10), (50_000, 1), (50_000, 30_000), (50_000, 50_000)] {
        // Before anything was sent, and after all was.
        for early in [true, false] {
            let mut pair = Pair::connected(readable());
            let data = pattern(written);
            let id = begun(&mut pair, &data);
            if !early {
                pair.run_for(ms(200));
            }
            pair.client().reset_at(id, 42, reliable as u64).unwrap();
            // Whoever reads before the reset is here gets what there is.
            pair.run_for(ms(200));
            let closed = Err(WriteError::ClosedStream);
            assert_eq!(pair.client().write_slice(id, b"x"), closed);
            assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
            let (got, code) = read_to_reset(&mut pair, id);
            assert!(got == data[..reliable], "{} of {reliable}", got.len());
            assert_eq!(code, 42);
            let gone = Err(ReadError::ClosedStream);
            assert_eq!(pair.server().read(id, 1), gone);
            pair.run_for(secs(1));
            // Delivered and forgotten, and the application was not told that all of it arrived.
            assert_eq!(pair.client().priority(id), None);
            let finished = pair.take_event(CLIENT, |e| *e == Event::Finished(id));
            assert_eq!(finished, None);
        }
    }
}

#[test]
fn a_reliable_size_of_nothing_is_a_reset_stream() {
    let mut pair = Pair::connected(readable());
    let resets = pair.watch(CLIENT, |f| {
        assert!(!matches!(f, Frame::ResetStreamAt { .. }));
        matches!(f, Frame::ResetStream { .. })
    });
    let id = begun(&mut pair, b"never mind");
    pair.client().reset_at(id, 7, 0).unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    assert_eq!(read_to_reset(&mut pair, id), (Vec::new(), 7));
    assert_eq!(resets.count(), 1);
}

#[test]
fn what_was_lost_below_the_reliable_size_is_sent_again_and_nothing_above() {
    let mut pair = Pair::connected(readable());
    let data = pattern(9_000);
    let id = pair.client().open(UNI).unwrap();
    let lost = pair.drop_first(CLIENT, 20, |f| matches!(f, Frame::Stream(_)));
    pair.client().write_slice(id, &data).unwrap();
    pair.run_for(ms(15));
    assert!(lost.count() >= 7, "all of it is gone");
    pair.client().reset_at(id, 3, 2_500).unwrap();
    let beyond = pair.watch(
        CLIENT,
        |f| matches!(f, Frame::Stream(s) if s.offset + s.data.len() as u64 > 2_500),
    );
    assert_eq!(pair.accept(SERVER, UNI, secs(5)), id);
    let (got, code) = read_to_reset(&mut pair, id);
    assert!(got == data[..2_500]);
    assert_eq!((code, beyond.count()), (3, 0));
}

#[test]
fn a_lost_reset_stream_at_is_sent_again_and_says_the_same() {
    let mut pair = Pair::connected(readable());
    let same = |f: &Frame<'_>| {
        matches!(
            f,
            Frame::ResetStreamAt {
                error_code: 5,
                final_size: 8_000,
                reliable_size: 4_000,
                ..
            }
        )
    };
    let id = begun(&mut pair, &pattern(8_000));
    pair.run_for(ms(200));
    let seen = pair.drop_first(CLIENT, 2, same);
    pair.client().reset_at(id, 5, 4_000).unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    assert_eq!(read_to_reset(&mut pair, id).1, 5);
    assert!(seen.count() >= 3);
}

#[test]
fn a_reset_waits_for_the_windows_that_the_reliable_bytes_need() {
    for (stream, connection) in [(5_000, 1 << 20), (1 << 20, 5_000)] {
        let mut pair = Pair::connected(server_windows(stream, connection));
        let data = pattern(40_000);
        let id = begun(&mut pair, &data);
        pair.client().reset_at(id, 9, 33_000).unwrap();
        pair.run_for(secs(1));
        assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
        let (got, code) = read_to_reset(&mut pair, id);
        assert!(got == data[..33_000]);
        assert_eq!(code, 9);
        // Whoever waited for the connection's credit goes on.
        pair.transfer(CLIENT, 30_000, secs(5));
    }
}

#[test]
fn credit_of_what_is_not_delivered_comes_back_however_much_was_read() {
    let mut pair = Pair::connected(server_windows(10_000, 10_000));
    for round in 0..30 {
        let id = begun(&mut pair, &pattern(10_000));
        pair.run_for(ms(100));
        assert_eq!(pair.server().accept(UNI), Some(id));
        let read = [0, 1_000, 4_000, 9_000][round % 4];
        if read > 0 && round % 3 == 0 {
            // From behind the reliable size.
            let below = pair.server().read_unordered(id, read);
            assert!(below.is_ok());
        } else if read > 0 {
            assert!(pair.server().read(id, read).is_ok());
        }
        pair.client().reset_at(id, 0, 4_000).unwrap();
        if round % 2 == 0 {
            // Lowered when it is on its way already.
            pair.flush();
            pair.client().reset_at(id, 0, 2_000).unwrap();
        }
        pair.run_for(ms(100));
        match round % 5 {
            0 => pair.server().stop(id, 1),
            _ => while pair.server().read_unordered(id, 700).is_ok() {},
        }
        pair.run_for(ms(100));
    }
    pair.transfer(CLIENT, 30_000, secs(5));
}

#[test]
fn the_reliable_size_can_be_lowered_but_not_raised_and_the_code_stays() {
    let mut pair = Pair::connected(readable());
    let frames = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&frames);
    // Lost packets keep the stream from being over.
    pair.drop_first(CLIENT, 5, move |f| {
        let said = match *f {
            Frame::ResetStreamAt {
                error_code,
                final_size,
                reliable_size,
                ..
            } => (error_code, final_size, reliable_size),
            Frame::ResetStream {
                error_code,
                final_size,
                ..
            } => (error_code, final_size, 0),
            _ => return false,
        };
        seen.borrow_mut().push(said);
        true
    });
    let id = begun(&mut pair, &pattern(6_000));
    pair.run_for(ms(100));
    pair.client().reset_at(id, 1, 5_000).unwrap();
    pair.run_for(ms(1));
    let raised = pair.client().reset_at(id, 1, 5_001);
    assert_eq!(raised, Err(ResetAtError::ClosedStream));
    pair.client().reset_at(id, 2, 5_000).unwrap();
    pair.client().reset_at(id, 2, 3_000).unwrap();
    pair.run_for(ms(1));
    pair.client().reset(id, 3);
    let raised = pair.client().reset_at(id, 3, 1);
    assert_eq!(raised, Err(ResetAtError::ClosedStream));
    pair.run_for(secs(3));
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    assert_eq!(read_to_reset(&mut pair, id), (Vec::new(), 1));
    let frames = frames.borrow();
    assert!(
        frames
            .iter()
            .all(|(code, size, _)| (*code, *size) == (1, 6_000))
    );
    let sizes: Vec<u64> = frames.iter().map(|(_, _, reliable)| *reliable).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert_eq!((sizes[0], sizes.last()), (5_000, Some(&0)));
}

#[test]
fn a_stream_that_was_finished_can_be_reset_at_a_size_still() {
    let mut pair = Pair::connected(readable());
    let data = pattern(3_000);
    let id = pair.client().open(UNI).unwrap();
    let _lost = pair.drop_first(CLIENT, 3, |f| matches!(f, Frame::Stream(s) if s.fin));
    pair.client().write_slice(id, &data).unwrap();
    pair.client().finish(id).unwrap();
    pair.run_for(ms(15));
    pair.client().reset_at(id, 4, 1_000).unwrap();
    pair.run_for(secs(1));
    assert_eq!(pair.accept(SERVER, UNI, secs(2)), id);
    let (got, code) = read_to_reset(&mut pair, id);
    assert!(got == data[..1_000]);
    assert_eq!(code, 4);
}

#[test]
fn what_cannot_be_reset_at_a_size_says_why_and_goes_on() {
    let mut pair = Pair::connected(readable());
    let id = begun(&mut pair, b"0123456789");
    let missing = Err(ResetAtError::MissingBytes);
    assert_eq!(pair.client().reset_at(id, 0, 11), missing);
    let mut ahead = bytes::Bytes::from_static(b"xy");
    pair.client().write_at(id, 12, &mut ahead).unwrap();
    assert_eq!(pair.client().reset_at(id, 0, 13), missing);
    assert_eq!(pair.client().write_slice(id, b"z"), Ok(1));
    pair.client().reset_at(id, 6, 10).unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    assert_eq!(read_to_reset(&mut pair, id), (b"0123456789".to_vec(), 6));
    let unknown = StreamId::new(Side::Client, UNI, 5);
    let closed = Err(ResetAtError::ClosedStream);
    assert_eq!(pair.client().reset_at(unknown, 0, 0), closed);
    let whole = pair.send_stream(CLIENT, UNI, b"whole");
    pair.run_for(secs(1));
    assert_eq!(pair.client().reset_at(whole, 0, 2), closed);
    let now = pair.now;
    pair.client().close(now, 0, b"");
    let lost = pair.client().reset_at(id, 0, 0);
    assert!(matches!(lost, Err(ResetAtError::ConnectionLost(_))));
}

#[test]
fn a_reader_that_stops_is_answered_with_a_plain_reset_of_the_first_code() {
    let mut pair = Pair::connected(readable());
    let id = begun(&mut pair, &pattern(6_000));
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let mut evil = Evil::take_over(pair, CLIENT);
    evil.pair.client().reset_at(id, 21, 6_000).unwrap();
    evil.pair.flush();
    evil.send(|w| write_stop_sending(w, id, 8));
    evil.assert_open();
    evil.pair.run_for(ms(20));
    let plain = evil.count_frames(|f| {
        matches!(
            f,
            Frame::ResetStream {
                error_code: 21,
                final_size: 6_000,
                ..
            }
        )
    });
    assert_eq!(plain, 1);
    // The application gave the stream up before.
    let stopped = |e: &Event| matches!(e, Event::Stopped { .. });
    assert_eq!(evil.pair.take_event(CLIENT, stopped), None);
}

#[test]
fn a_reset_is_told_without_reading_once_the_reliable_bytes_are_here() {
    let mut pair = Pair::connected(readable());
    let data = pattern(5_000);
    let id = begun(&mut pair, &data);
    pair.client().reset_at(id, 66, 3_000).unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let _ = pair.server().received_reset(id);
    pair.run_for(ms(200));
    assert_eq!(pair.server().received_reset(id), Ok(Some(66)));
    // They can be read still.
    let (got, code) = read_to_reset(&mut pair, id);
    assert!(got == data[..3_000]);
    assert_eq!(code, 66);
}

// ---- what a peer may get wrong ----

fn stream_frame(evil: &mut Evil, id: StreamId, offset: u64, fin: bool, data: &[u8]) {
    evil.send(|w| {
        write_stream_header(w, id, offset, Some(data.len()), fin);
        w.bytes(data);
    });
}

fn reset_at(evil: &mut Evil, id: StreamId, code: u64, final_size: u64, reliable_size: u64) {
    evil.send(|w| write_reset_stream_at(w, id, code, final_size, reliable_size));
}

const STREAM: StreamId = StreamId::new(Side::Client, UNI, 0);

#[test]
fn a_reliable_size_that_rises_is_ignored_and_one_that_falls_counts() {
    let mut evil = Evil::against(SERVER);
    stream_frame(&mut evil, STREAM, 0, false, b"0123456789");
    reset_at(&mut evil, STREAM, 7, 20, 8);
    reset_at(&mut evil, STREAM, 7, 20, 15);
    stream_frame(&mut evil, STREAM, 10, true, b"abcdefghij");
    reset_at(&mut evil, STREAM, 7, 20, 6);
    evil.assert_open();
    let server = &mut evil.pair;
    assert_eq!(
        server.server().read(STREAM, 4).unwrap().unwrap(),
        b"0123"[..]
    );
    assert_eq!(server.server().read(STREAM, 9).unwrap().unwrap(), b"45"[..]);
    assert_eq!(server.server().read(STREAM, 9), Err(ReadError::Reset(7)));
    evil.assert_open();
}

#[test]
fn a_plain_reset_takes_back_what_was_to_be_delivered() {
    let mut evil = Evil::against(SERVER);
    stream_frame(&mut evil, STREAM, 0, false, b"0123456789");
    reset_at(&mut evil, STREAM, 7, 20, 10);
    evil.send(|w| write_reset_stream(w, STREAM, 7, 20));
    evil.assert_open();
    assert_eq!(evil.pair.server().read(STREAM, 9), Err(ReadError::Reset(7)));
}

#[test]
fn a_whole_stream_has_its_end_and_no_reset() {
    let mut evil = Evil::against(SERVER);
    stream_frame(&mut evil, STREAM, 0, true, b"0123456789");
    reset_at(&mut evil, STREAM, 7, 10, 4);
    evil.assert_open();
    let got = evil.pair.server().read(STREAM, 99).unwrap().unwrap();
    assert_eq!(got, b"0123456789"[..]);
    assert_eq!(evil.pair.server().read(STREAM, 9), Ok(None));
}

#[test]
fn bytes_that_are_to_come_after_a_reset_are_waited_for() {
    let mut evil = Evil::against(SERVER);
    reset_at(&mut evil, STREAM, 7, 20, 10);
    assert_eq!(evil.pair.server().accept(UNI), Some(STREAM));
    assert_eq!(evil.pair.server().read(STREAM, 9), Err(ReadError::Blocked));
    let blocked = Err(ReadError::Blocked);
    assert_eq!(evil.pair.server().received_reset(STREAM), blocked);
    evil.pair.take_events(SERVER);
    stream_frame(&mut evil, STREAM, 5, false, b"567890123");
    stream_frame(&mut evil, STREAM, 0, false, b"01234");
    let readable = evil
        .pair
        .take_event(SERVER, |e| *e == Event::Readable(STREAM));
    assert!(readable.is_some());
    let mut got = [0; 30];
    assert_eq!(
        evil.pair.server().read_slice(STREAM, &mut got),
        Ok(Some(10))
    );
    assert_eq!(got[..10], b"0123456789"[..]);
    assert_eq!(evil.pair.server().read(STREAM, 9), Err(ReadError::Reset(7)));
    evil.assert_open();
}

#[test]
fn a_reset_stream_at_that_breaks_a_rule_ends_the_connection() {
    use TransportErrorCode as Code;
    type Act = fn(&mut Evil);
    let cases: [(&str, Act, Code); 8] = [
        (
            "another final size",
            |e| {
                reset_at(e, STREAM, 7, 20, 10);
                reset_at(e, STREAM, 7, 21, 10);
            },
            Code::FINAL_SIZE_ERROR,
        ),
        (
            "a final size below what was sent",
            |e| {
                stream_frame(e, STREAM, 0, false, b"0123456789");
                reset_at(e, STREAM, 7, 9, 0);
            },
            Code::FINAL_SIZE_ERROR,
        ),
        (
            "another code",
            |e| {
                reset_at(e, STREAM, 7, 20, 10);
                reset_at(e, STREAM, 8, 20, 5);
            },
            Code::STREAM_STATE_ERROR,
        ),
        (
            "beyond the window",
            |e| reset_at(e, STREAM, 7, 10_001, 1),
            Code::FLOW_CONTROL_ERROR,
        ),
        (
            "a reliable size above the final size",
            |e| reset_at(e, STREAM, 7, 10, 11),
            Code::FRAME_ENCODING_ERROR,
        ),
        (
            "a stream that only we send on",
            |e| reset_at(e, StreamId::new(Side::Server, UNI, 0), 7, 10, 1),
            Code::STREAM_STATE_ERROR,
        ),
        (
            "a stream that we never opened",
            |e| reset_at(e, StreamId::new(Side::Server, BIDI, 0), 7, 10, 1),
            Code::STREAM_STATE_ERROR,
        ),
        (
            "a stream beyond the limit",
            |e| reset_at(e, StreamId::new(Side::Client, UNI, 1 << 20), 7, 10, 1),
            Code::STREAM_LIMIT_ERROR,
        ),
    ];
    for (what, act, code) in cases {
        println!("{what}");
        let mut evil = Evil::with(SERVER, server_windows(10_000, 1 << 20));
        act(&mut evil);
        evil.assert_closed(code, Some(FrameType::RESET_STREAM_AT));
    }
}

#[test]
fn data_after_the_final_size_of_a_reset_is_a_final_size_error() {
    let mut evil = Evil::against(SERVER);
    reset_at(&mut evil, STREAM, 7, 20, 10);
    stream_frame(&mut evil, STREAM, 0, false, &[1; 20]);
    evil.assert_open();
    stream_frame(&mut evil, STREAM, 20, false, &[1]);
    let code = TransportErrorCode::FINAL_SIZE_ERROR;
    evil.assert_closed(code, Some(FrameType::STREAM));
}

#[test]
fn a_flood_of_falling_sizes_is_answered_with_nothing() {
    let mut evil = Evil::against(SERVER);
    stream_frame(&mut evil, STREAM, 0, false, &pattern(1_000));
    assert_eq!(evil.pair.server().accept(UNI), Some(STREAM));
    for size in (0..1_000).rev() {
        reset_at(&mut evil, STREAM, 7, 1_000, size);
    }
    evil.assert_open();
    let events = evil.pair.take_events(SERVER);
    let readable = |e: &&Event| **e == Event::Readable(STREAM);
    assert!(events.iter().filter(readable).count() <= 2, "{events:?}");
    assert_eq!(evil.pair.server().read(STREAM, 9), Err(ReadError::Reset(7)));
}
