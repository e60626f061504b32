//! Limits changed while a connection runs: more is told at once, what was told is never taken back.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use common::wire::for_each_frame;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::{Direction, Event, StreamId, WriteError};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::Frame;

const BIDI: Direction = Direction::Bidirectional;
const UNI: Direction = Direction::Unidirectional;

/// What the server said of its limits, in order, and how far the client went.
#[derive(Default)]
struct Told {
    data: Vec<u64>,
    bidi: Vec<u64>,
    uni: Vec<u64>,
    /// Bytes of stream data that the client sent, of one stream.
    sent: u64,
}

impl Told {
    fn watch(pair: &mut Pair) -> Rc<RefCell<Self>> {
        let told = Rc::new(RefCell::new(Self::default()));
        let log = told.clone();
        pair.tap = Some(Box::new(move |side, datagram| {
            let mut log = log.borrow_mut();
            for_each_frame(datagram, |_, frame| match (side, frame) {
                (SERVER, Frame::MaxData(max)) => log.data.push(*max),
                (SERVER, Frame::MaxStreams { direction, max }) => match direction {
                    Direction::Bidirectional => log.bidi.push(*max),
                    Direction::Unidirectional => log.uni.push(*max),
                },
                (CLIENT, Frame::Stream(s)) => {
                    log.sent = log.sent.max(s.offset + s.data.len() as u64);
                }
                _ => {}
            });
            true
        }));
        told
    }
}

fn window(bytes: u64) -> Options {
    let mut options = readable();
    options.server.receive_window = bytes;
    options.server.max_receive_window = bytes;
    options
}

fn streams(bidi: u64, uni: u64) -> Options {
    let mut options = readable();
    options.server.max_concurrent_bidi_streams = bidi;
    options.server.max_concurrent_uni_streams = uni;
    options
}

/// Writes all of `len` bytes on a new stream of the client's, which the server accepts.
fn write(pair: &mut Pair, len: usize) -> StreamId {
    let id = pair.client().open(UNI).unwrap();
    let mut data = Bytes::from(pattern(len));
    assert_eq!(pair.client().write(id, &mut data), Ok(len));
    assert_eq!(pair.accept(SERVER, UNI, secs(10)), id);
    id
}

/// Reads so many bytes at the server, which are there.
fn read(pair: &mut Pair, id: StreamId, mut len: usize) {
    while len > 0 {
        let chunk = pair.server().read(id, len).unwrap().unwrap();
        len -= chunk.len();
    }
}

/// Opens as many streams of the client's as it may, and ends them.
fn open_all(pair: &mut Pair, direction: Direction) -> Vec<StreamId> {
    let mut opened = Vec::new();
    while let Some(id) = pair.client().open(direction) {
        pair.client().write_slice(id, b"x").unwrap();
        pair.client().finish(id).unwrap();
        opened.push(id);
    }
    opened
}

/// Reads the next streams to their ends at the server, and has it end its own halves.
fn serve(pair: &mut Pair, direction: Direction, count: usize) {
    for _ in 0..count {
        let id = pair.accept(SERVER, direction, secs(1));
        assert_eq!(pair.read_to_end(SERVER, id, secs(1)), b"x");
        if direction == BIDI {
            pair.server().finish(id).unwrap();
        }
    }
    pair.run_for(ms(200));
}

#[test]
fn a_larger_receive_window_is_granted_at_once() {
    let mut pair = Pair::connected(window(10_000));
    let told = Told::watch(&mut pair);
    write(&mut pair, 100_000);
    pair.run_for(secs(1));
    assert_eq!(told.borrow().sent, 10_000);
    pair.server().set_receive_window(40_000);
    pair.run_for(secs(1));
    // Nothing was read.
    assert_eq!(told.borrow().sent, 40_000);
    assert_eq!(told.borrow().data, [40_000]);
}

#[test]
fn a_smaller_receive_window_takes_nothing_back_and_is_kept_to_once_that_is_used_up() {
    let mut pair = Pair::connected(window(30_000));
    let told = Told::watch(&mut pair);
    pair.server().set_receive_window(5_000);
    let id = write(&mut pair, 100_000);
    pair.run_for(secs(1));
    assert_eq!(told.borrow().sent, 30_000, "what it was told before");
    read(&mut pair, id, 20_000);
    pair.run_for(secs(1));
    assert_eq!(told.borrow().data, [], "15,000 are more than the window");
    read(&mut pair, id, 10_000);
    pair.run_for(secs(1));
    assert_eq!(told.borrow().data, [35_000]);
    let mut rest = 70_000;
    while rest > 0 {
        if let Ok(Some(chunk)) = pair.server().read(id, usize::MAX) {
            rest -= chunk.len();
        }
        let ahead = told.borrow().sent - (100_000 - rest as u64);
        assert!(ahead <= 5_000, "{ahead} bytes ahead");
        pair.run_for(ms(50));
    }
    assert!(told.borrow().data.is_sorted());
}

#[test]
fn a_receive_window_set_by_hand_is_not_tuned() {
    let mut options = window(10_000);
    options.server.max_receive_window = 16 << 20;
    options.link = LinkConfig {
        rate: Some(100_000_000),
        queue: Some(4 << 20),
        ..delay(50)
    };
    let mut pair = Pair::connected(options);
    pair.server().set_receive_window(20_000);
    // 20,000 bytes a round trip of 100 ms.
    let took = pair.transfer(CLIENT, 400_000, secs(60));
    assert!(took > ms(1500), "{took:?}");
}

#[test]
fn a_smaller_window_is_never_told_when_frames_are_lost() {
    for seed in 1..=5 {
        let mut options = window(20_000);
        options.seed = seed;
        let mut pair = Pair::connected(options);
        let told = Told::watch(&mut pair);
        let lossy = LinkConfig {
            loss: LossModel::Bernoulli(0.2),
            ..delay(10)
        };
        let (a, b) = pair.links;
        pair.net.set_config(a, lossy.clone()).unwrap();
        pair.net.set_config(b, lossy).unwrap();
        let id = write(&mut pair, 400_000);
        let mut rest = 400_000;
        let mut sizes = [50_000, 3_000, 12_000, 100_000, 1].iter().cycle();
        let mut steps = 0;
        pair.run_until(secs(600), |p| {
            steps += 1;
            if steps % 40 == 0 {
                let size = *sizes.next().unwrap();
                p.server().set_receive_window(size);
                p.server().set_max_concurrent_uni_streams(size / 100);
            }
            while let Ok(Some(chunk)) = p.server().read(id, usize::MAX) {
                rest -= chunk.len();
            }
            rest == 0
        });
        let told = told.borrow();
        assert!(told.data.len() > 10 && !told.uni.is_empty());
        // Frames are sent in order: each limit is as large as all before it.
        assert!(told.data.is_sorted(), "seed {seed}: {:?}", told.data);
        assert!(told.uni.is_sorted(), "seed {seed}: {:?}", told.uni);
    }
}

#[test]
fn a_peer_that_goes_by_the_limits_it_was_told_is_never_at_fault() {
    let mut options = window(40_000);
    options.server.max_concurrent_bidi_streams = 10;
    let mut pair = Pair::connected(options);
    // The smaller limits are in force before the client has used any of the larger ones.
    pair.server().set_receive_window(0);
    pair.server().set_max_concurrent_bidi_streams(0);
    assert_eq!(open_all(&mut pair, BIDI).len(), 10);
    let id = write(&mut pair, 100_000);
    pair.run_for(secs(1));
    assert!(!pair.server().is_closed() && !pair.client().is_closed());
    serve(&mut pair, BIDI, 10);
    read(&mut pair, id, 20_000);
    pair.run_for(secs(1));
    assert!(!pair.server().is_closed() && !pair.client().is_closed());
    assert_eq!(pair.client().open(BIDI), None);
}

#[test]
fn more_streams_are_permitted_at_once_and_who_waits_for_one_is_told() {
    for (direction, other) in [(BIDI, UNI), (UNI, BIDI)] {
        let mut pair = Pair::connected(streams(2, 2));
        assert_eq!(open_all(&mut pair, direction).len(), 2);
        pair.run_for(ms(100));
        let available = Event::StreamsAvailable(direction);
        assert_eq!(pair.take_event(CLIENT, |e| *e == available), None);
        match direction {
            Direction::Bidirectional => pair.server().set_max_concurrent_bidi_streams(5),
            Direction::Unidirectional => pair.server().set_max_concurrent_uni_streams(5),
        }
        pair.run_for(ms(100));
        assert!(pair.take_event(CLIENT, |e| *e == available).is_some());
        assert_eq!(open_all(&mut pair, direction).len(), 3);
        assert_eq!(open_all(&mut pair, other).len(), 2, "as before");
    }
}

#[test]
fn fewer_streams_are_permitted_as_others_end() {
    for direction in [BIDI, UNI] {
        let mut pair = Pair::connected(streams(8, 8));
        let told = Told::watch(&mut pair);
        let limits = |told: &Told| match direction {
            Direction::Bidirectional => told.bidi.clone(),
            Direction::Unidirectional => told.uni.clone(),
        };
        match direction {
            Direction::Bidirectional => pair.server().set_max_concurrent_bidi_streams(3),
            Direction::Unidirectional => pair.server().set_max_concurrent_uni_streams(3),
        }
        // All that were permitted before can be opened, in whatever order they end.
        assert_eq!(open_all(&mut pair, direction).len(), 8);
        pair.run_for(ms(100));
        serve(&mut pair, direction, 5);
        assert_eq!(limits(&told.borrow()), [], "three are open");
        serve(&mut pair, direction, 3);
        assert_eq!(limits(&told.borrow()).last(), Some(&11));
        assert_eq!(open_all(&mut pair, direction).len(), 3);
        assert!(limits(&told.borrow()).is_sorted());
    }
}

#[test]
fn the_first_limit_is_lifted_before_the_handshake_is_done() {
    let mut pair = Pair::new(Options::default());
    pair.connect();
    pair.client().set_max_concurrent_uni_streams(500);
    pair.client().set_receive_window(8 << 20);
    pair.established(secs(1));
    pair.run_for(ms(100));
    assert_eq!(pair.server().openable(UNI), 500);
}

#[test]
fn limits_beyond_what_a_frame_can_say_are_as_large_as_can_be() {
    let mut pair = Pair::connected(readable());
    let told = Told::watch(&mut pair);
    pair.transfer(CLIENT, 100_000, secs(5));
    pair.server().set_receive_window(u64::MAX);
    pair.server().set_max_concurrent_bidi_streams(u64::MAX);
    pair.run_for(ms(100));
    assert_eq!(told.borrow().data.last(), Some(&((1 << 62) - 1)));
    assert_eq!(told.borrow().bidi.last(), Some(&(1 << 60)));
    pair.transfer(CLIENT, 100_000, secs(5));
}

#[test]
fn a_writer_goes_on_when_the_send_window_grows() {
    let mut options = Options::default();
    options.client.send_buffer = 10_000;
    let mut pair = Pair::connected(options);
    // No acknowledgement comes back: all that is written is kept.
    pair.tap = Some(Box::new(|side, _| side == CLIENT));
    let id = pair.client().open(UNI).unwrap();
    let mut data = Bytes::from(pattern(50_000));
    assert_eq!(pair.client().write(id, &mut data), Ok(10_000));
    let blocked = Err(WriteError::Blocked);
    assert_eq!(pair.client().write(id, &mut data), blocked);
    pair.client().set_send_window(25_000);
    pair.flush();
    let writable = Event::Writable(id);
    assert!(pair.take_event(CLIENT, |e| *e == writable).is_some());
    assert_eq!(pair.client().write(id, &mut data), Ok(15_000));
    assert_eq!(pair.client().write(id, &mut data), blocked);
}

#[test]
fn a_smaller_send_window_keeps_what_was_written_and_wakes_every_writer_later() {
    let mut options = Options::default();
    options.client.stream_send_buffer = 20_000;
    options.client.send_buffer = 1 << 20;
    let mut pair = Pair::connected(options);
    // Each is refused by its own stream's cap, not by the one of all.
    let ids: Vec<StreamId> = (0..4)
        .map(|_| {
            let id = pair.client().open(UNI).unwrap();
            let mut data = Bytes::from(pattern(30_000));
            assert_eq!(pair.client().write(id, &mut data), Ok(20_000));
            let blocked = Err(WriteError::Blocked);
            assert_eq!(pair.client().write(id, &mut data), blocked);
            id
        })
        .collect();
    pair.client().set_send_window(5_000);
    let mut read = 0;
    let mut writable = Vec::new();
    pair.run_until(secs(20), |p| {
        while p.server().accept(UNI).is_some() {}
        for &id in &ids {
            while let Ok(Some(chunk)) = p.server().read(id, usize::MAX) {
                read += chunk.len();
            }
        }
        while let Some(Event::Writable(id)) =
            p.take_event(CLIENT, |e| matches!(e, Event::Writable(_)))
        {
            // One that was woken with it may have taken the room.
            match p.client().write_slice(id, b"more") {
                Ok(_) => writable.push(id),
                Err(error) => assert_eq!(error, WriteError::Blocked),
            }
        }
        read >= 80_000 && writable.len() >= 4
    });
    writable.sort_unstable();
    assert_eq!(writable, ids);
    let mut data = Bytes::from(pattern(30_000));
    pair.run_for(secs(1));
    assert_eq!(pair.client().write(ids[0], &mut data), Ok(5_000));
}

#[test]
fn the_account_follows_limits_that_change() {
    let mut pair = Pair::connected(window(10_000));
    let held = |pair: &Pair| pair.hosts[SERVER].endpoint.stats().memory;
    pair.run_for(secs(5));
    let empty = held(&pair);
    // A limit is a promise, which costs nothing until it is taken up.
    pair.server().set_receive_window(2_000_000);
    pair.server().set_max_concurrent_uni_streams(100_000);
    pair.server().set_max_concurrent_bidi_streams(100_000);
    pair.run_for(secs(5));
    assert!(
        held(&pair) <= empty + 4_000,
        "{empty}, then {}",
        held(&pair)
    );
    let streams: Vec<StreamId> = (0..4).map(|_| write(&mut pair, 500_000)).collect();
    pair.run_for(secs(5));
    assert!(
        held(&pair) >= empty + 2_000_000,
        "{empty}, then {}",
        held(&pair)
    );
    // A smaller window lets go of nothing that is there.
    pair.server().set_receive_window(10_000);
    pair.run_for(secs(5));
    assert!(
        held(&pair) >= empty + 2_000_000,
        "{empty}, then {}",
        held(&pair)
    );
    for id in streams {
        read(&mut pair, id, 500_000);
    }
    pair.run_for(secs(10));
    assert!(
        held(&pair) <= empty + 100_000,
        "{empty}, then {}",
        held(&pair)
    );
    // From here on it is the smaller one that the account feels.
    write(&mut pair, 500_000);
    pair.run_for(secs(5));
    assert!(
        held(&pair) <= empty + 200_000,
        "{empty}, then {}",
        held(&pair)
    );
}
