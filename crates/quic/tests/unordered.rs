//! Streams without order: unordered reads under loss, their credit and their end; writes ahead.

mod common;

use bytes::Bytes;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::{
    Direction, Event, ReadError, ReceivedChunk, StreamId, TransportConfig, WriteError,
};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::Frame;

const UNI: Direction = Direction::Unidirectional;

fn small_windows() -> TransportConfig {
    TransportConfig::default()
        .stream_receive_window(60_000)
        .max_stream_receive_window(60_000)
        .receive_window(90_000)
        .max_receive_window(90_000)
}

fn rough(seed: u64, loss: f64, reorder: f64) -> LinkConfig {
    LinkConfig {
        rate: Some(10_000_000 + 1_000_000 * (seed % 7)),
        loss: LossModel::Bernoulli(loss),
        reorder,
        reorder_delay: ms(30),
        duplicate: 0.05,
        ..delay(10)
    }
}

/// What an unordered reader collected: each byte once.
#[derive(Default)]
struct Collected {
    bytes: Vec<Option<u8>>,
    out_of_order: usize,
    end: u64,
}

impl Collected {
    fn take(&mut self, chunk: ReceivedChunk) {
        assert!(!chunk.data.is_empty());
        self.out_of_order += usize::from(chunk.offset != self.end);
        let start = usize::try_from(chunk.offset).unwrap();
        let end = start + chunk.data.len();
        self.end = end as u64;
        if self.bytes.len() < end {
            self.bytes.resize(end, None);
        }
        for (slot, byte) in self.bytes[start..end].iter_mut().zip(&chunk.data) {
            assert_eq!(slot.replace(*byte), None, "a byte came twice");
        }
    }

    /// Takes what there is; `true` at the end.
    fn read_available(&mut self, pair: &mut Pair, id: StreamId, max: usize) -> bool {
        loop {
            match pair.server().read_unordered(id, max) {
                Ok(Some(chunk)) => self.take(chunk),
                Ok(None) => return true,
                Err(ReadError::Blocked) => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn whole(self) -> Vec<u8> {
        let bytes = self.bytes.into_iter();
        bytes.map(|byte| byte.expect("a byte is missing")).collect()
    }
}

#[test]
fn each_byte_comes_once_under_loss_and_reordering_and_credit_comes_back() {
    // Several times both windows, so that credit must return.
    let len = 600_000;
    for seed in 0..12 {
        let mut pair = Pair::connected(Options {
            seed,
            link: rough(seed, 0.03, 0.1),
            server: small_windows(),
            ..Options::default()
        });
        let id = pair.client().open(UNI).unwrap();
        let mut data = Bytes::from(pattern(len));
        let mut got = Collected::default();
        let mut accepted = false;
        pair.run_until(secs(60), |p| {
            while !data.is_empty() && p.client().write(id, &mut data).is_ok() {
                if data.is_empty() {
                    p.client().finish(id).unwrap();
                }
            }
            accepted |= p.server().accept(UNI).is_some();
            accepted && got.read_available(p, id, 100 + 7000 * (seed as usize % 3))
        });
        assert!(got.out_of_order > 10, "seed {seed}: {}", got.out_of_order);
        assert_eq!(got.whole(), pattern(len), "seed {seed}");
        // The connection's credit is whole again, too.
        let more = pair.transfer(CLIENT, 300_000, secs(30));
        assert!(more > ms(0));
    }
}

#[test]
fn nothing_waits_for_a_lost_packet_but_what_was_in_it() {
    let mut pair = Pair::connected(readable());
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, &pattern(20_000)).unwrap();
    let lost = pair.drop_first(
        CLIENT,
        2,
        |f| matches!(f, Frame::Stream(s) if s.offset == 0),
    );
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    // Not long enough for the loss to be noticed.
    pair.run_for(ms(2));
    assert_eq!(pair.server().read(id, 10), Err(ReadError::Blocked));
    let first = pair.server().read_unordered(id, 300).unwrap().unwrap();
    assert!(first.offset > 1000, "{}", first.offset);
    assert_eq!(first.data.len(), 300);
    let at = first.offset as usize;
    assert_eq!(first.data, pattern(20_000)[at..at + 300]);
    let mut got = Collected::default();
    got.take(first);
    pair.client().finish(id).unwrap();
    pair.run_until(secs(5), |p| got.read_available(p, id, usize::MAX));
    assert!(lost.count() >= 1);
    assert_eq!(got.whole(), pattern(20_000));
}

#[test]
fn order_once_given_up_does_not_come_back() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.send_stream(CLIENT, UNI, b"in order, then not");
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    assert_eq!(pair.server().read(id, 10).unwrap().unwrap(), "in order, ");
    assert_eq!(pair.server().final_size(id), Some(18));
    let chunk = pair.server().read_unordered(id, 4).unwrap().unwrap();
    assert_eq!((chunk.offset, &chunk.data[..]), (10, &b"then"[..]));
    let refused = Err(ReadError::IllegalOrderedRead);
    assert_eq!(pair.server().read(id, 10), refused);
    let refused = Err(ReadError::IllegalOrderedRead);
    assert_eq!(pair.server().read_slice(id, &mut [0; 4]), refused);
    let chunk = pair.server().read_unordered(id, 100).unwrap().unwrap();
    assert_eq!((chunk.offset, &chunk.data[..]), (14, &b" not"[..]));
    assert_eq!(pair.server().read_unordered(id, 100), Ok(None));
    let over = Err(ReadError::ClosedStream);
    assert_eq!(pair.server().read_unordered(id, 100), over);
}

#[test]
fn a_reader_may_leave_what_lies_beyond_an_offset() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.client().open(UNI).unwrap();
    pair.client().write_slice(id, &pattern(5000)).unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    pair.run_for(ms(100));
    let below = |p: &mut Pair, below| p.server().read_unordered_below(id, below, 4000);
    let mut len = 0;
    while let Ok(Some(chunk)) = below(&mut pair, 1000) {
        assert_eq!(chunk.offset, len);
        len += chunk.data.len() as u64;
    }
    assert_eq!(len, 1000);
    assert_eq!(below(&mut pair, 1000), Err(ReadError::Blocked));
    pair.take_events(SERVER);
    pair.client().write_slice(id, b"more").unwrap();
    pair.run_until(secs(1), |p| {
        p.take_event(SERVER, |e| *e == Event::Readable(id))
            .is_some()
    });
    assert_eq!(below(&mut pair, 2000).unwrap().unwrap().data.len(), 1000);
}

#[test]
fn a_reset_and_a_stop_return_the_credit_of_what_was_not_read() {
    for stop in [false, true] {
        let mut pair = Pair::connected(Options {
            server: small_windows(),
            ..readable()
        });
        for round in 0..20 {
            let id = pair.client().open(UNI).unwrap();
            pair.client().write_slice(id, &pattern(30_000)).unwrap();
            pair.drop_first(
                CLIENT,
                1,
                |f| matches!(f, Frame::Stream(s) if s.offset == 0),
            );
            assert_eq!(pair.accept(SERVER, UNI, secs(5)), id);
            let mut chunk = None;
            pair.run_until(secs(5), |p| {
                chunk = p.server().read_unordered(id, 5000).unwrap_or(None);
                chunk.is_some()
            });
            if stop {
                pair.server().stop(id, 1);
            } else {
                pair.client().reset(id, 1);
            }
            pair.run_for(ms(500));
            let expected = if stop {
                ReadError::ClosedStream
            } else {
                ReadError::Reset(1)
            };
            let got = pair.server().read_unordered(id, 10);
            assert_eq!(got, Err(expected), "round {round}");
            pair.run_for(ms(100));
        }
        assert_eq!(pair.close_reason(SERVER), None);
        // 600 KB went through a window of 90 KB.
        pair.transfer(CLIENT, 200_000, secs(30));
    }
}

/// Writes what was forwarded out of order: `left` holds what is still to be written.
fn write_ahead(pair: &mut Pair, id: StreamId, left: &mut Vec<(u64, Bytes)>) {
    left.retain_mut(|(offset, data)| {
        while !data.is_empty() {
            match pair.client().write_at(id, *offset, data) {
                Ok(n) => *offset += n as u64,
                Err(WriteError::Blocked) => return true,
                Err(error) => panic!("{error}"),
            }
        }
        false
    });
}

#[test]
fn what_is_written_ahead_arrives_once_whatever_the_order_and_the_losses() {
    let len = 250_000;
    for seed in 0..16 {
        let mut pair = Pair::connected(Options {
            seed,
            link: rough(seed, 0.02, 0.05),
            server: small_windows(),
            ..Options::default()
        });
        let id = pair.client().open(UNI).unwrap();
        let mut random = Random(seed);
        // Overlapping pieces, moved by a few places: what a lossy path delivers to a relay.
        let data = Bytes::from(pattern(len));
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < len {
            let end = (at + 1 + random.below(3000)).min(len);
            let from = at.saturating_sub(random.below(3) * random.below(500));
            pieces.push((random.below(12), (from as u64, data.slice(from..end))));
            at = end;
        }
        let mut order: Vec<(usize, (u64, Bytes))> = pieces
            .into_iter()
            .enumerate()
            .map(|(i, (late, piece))| (i + late, piece))
            .collect();
        order.sort_by_key(|(place, _)| *place);
        let mut waiting: Vec<(u64, Bytes)> = order.into_iter().map(|(_, piece)| piece).collect();
        waiting.reverse();
        let mut left: Vec<(u64, Bytes)> = Vec::new();
        let mut got = Vec::new();
        let mut accepted = false;
        let mut finished = false;
        pair.run_until(secs(60), |p| {
            // A few a step: what was written ahead is sent before the holes are filled in.
            for _ in 0..random.below(4) {
                if left.len() < 20
                    && let Some(piece) = waiting.pop()
                {
                    left.push(piece);
                }
            }
            write_ahead(p, id, &mut left);
            if waiting.is_empty() && left.is_empty() && !finished {
                finished = true;
                p.client().finish(id).unwrap();
            }
            accepted |= p.server().accept(UNI).is_some();
            accepted && p.read_available(SERVER, id, &mut got)
        });
        assert!(got == pattern(len), "seed {seed}");
        pair.run_until(secs(5), |p| {
            p.take_event(CLIENT, |e| *e == Event::Finished(id))
                .is_some()
        });
    }
}

#[test]
fn a_stream_with_bytes_left_out_cannot_be_finished_and_a_reset_frees_their_room() {
    let client = TransportConfig::default()
        .send_buffer(10_000)
        .stream_send_buffer(10_000);
    let mut pair = Pair::connected(Options {
        client,
        ..Options::default()
    });
    let id = pair.client().open(UNI).unwrap();
    let mut write = |at, data: &mut Bytes| pair.client().write_at(id, at, data);
    assert_eq!(write(4000, &mut Bytes::from_static(b"ahead")), Ok(5));
    // The room of what was left out is taken: 5,995 bytes are free.
    let mut more = Bytes::from(pattern(7000));
    assert_eq!(write(4005, &mut more), Ok(5995));
    assert_eq!(write(10_000, &mut more), Err(WriteError::Blocked));
    assert_eq!(pair.client().finish(id), Err(WriteError::MissingBytes));
    // Filling in is always possible, and what was written before stays.
    let mut fill = Bytes::from(pattern(4003));
    let mut write = |at, data: &mut Bytes| pair.client().write_at(id, at, data);
    assert_eq!(write(0, &mut fill), Ok(4000));
    assert_eq!(write(4000, &mut fill), Ok(3));
    pair.client().finish(id).unwrap();
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), id);
    let whole = [&pattern(4000)[..], b"ahead", &pattern(7000)[..5995]].concat();
    assert_eq!(pair.read_to_end(SERVER, id, secs(1)), whole);
    pair.run_for(secs(1));

    let id = pair.client().open(UNI).unwrap();
    let mut ahead = Bytes::from_static(b"x");
    assert_eq!(pair.client().write_at(id, 9999, &mut ahead), Ok(1));
    pair.run_for(ms(100));
    pair.client().reset(id, 3);
    let id = pair.client().open(UNI).unwrap();
    assert_eq!(pair.client().write_slice(id, &pattern(20_000)), Ok(10_000));
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}
