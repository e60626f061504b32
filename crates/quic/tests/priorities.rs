//! Stream priorities: who goes first over a slow link, live changes, equals, starvation.

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{CLIENT, Host, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::{
    ConnectionHandle, Direction, Event, StreamId, Time, TransportConfig, WriteError,
};
use towline_sim::{Direct, LinkConfig, LossModel, Watch, World};
use towline_wire::Frame;

const UNI: Direction = Direction::Unidirectional;

fn slow(seed: u64, loss: LossModel) -> Options {
    Options {
        seed,
        link: LinkConfig {
            rate: Some(2_000_000),
            loss,
            ..delay(20)
        },
        ..Options::default()
    }
}

fn open(pair: &mut Pair, priority: i64, len: usize) -> StreamId {
    let id = pair.client().open(UNI).unwrap();
    pair.client().set_priority(id, priority).unwrap();
    assert_eq!(pair.client().priority(id), Some(priority));
    let mut data = Bytes::from(pattern(len));
    assert_eq!(pair.client().write(id, &mut data), Ok(len));
    pair.client().finish(id).unwrap();
    id
}

/// Reads all streams to their ends and returns the order in which they ended.
fn finish_order(pair: &mut Pair, streams: usize) -> Vec<StreamId> {
    let mut reading: Vec<(StreamId, Vec<u8>)> = Vec::new();
    let mut order = Vec::new();
    pair.run_until(secs(60), |p| {
        while let Some(id) = p.server().accept(UNI) {
            reading.push((id, Vec::new()));
        }
        reading.retain_mut(|(id, got)| {
            let over = p.read_available(SERVER, *id, got);
            if over {
                assert_eq!(*got, pattern(got.len()));
                order.push(*id);
            }
            !over
        });
        order.len() == streams
    });
    order
}

#[test]
fn the_most_urgent_stream_finishes_first_over_a_slow_link() {
    for (seed, loss) in [(1, LossModel::None), (2, LossModel::Bernoulli(0.02))] {
        let mut pair = Pair::connected(slow(seed, loss));
        let ids: Vec<StreamId> = [0, -5, 7, 3, i64::MIN, i64::MAX]
            .map(|priority| open(&mut pair, priority, 200_000))
            .to_vec();
        let order = finish_order(&mut pair, ids.len());
        let expected = [5, 2, 3, 0, 1, 4].map(|i| ids[i]);
        assert_eq!(order, expected, "seed {seed}");
    }
}

#[test]
fn a_stream_made_urgent_under_way_overtakes() {
    let mut pair = Pair::connected(slow(3, LossModel::None));
    let slow = open(&mut pair, 0, 400_000);
    let late = open(&mut pair, 0, 400_000);
    let never = open(&mut pair, -1, 100_000);
    pair.run_for(ms(300));
    pair.client().set_priority(late, 1).unwrap();
    pair.run_for(ms(300));
    // And down again: what was last is first now.
    pair.client().set_priority(never, 2).unwrap();
    assert_eq!(finish_order(&mut pair, 3), [never, late, slow]);
}

#[test]
fn equals_take_turns_and_the_less_urgent_starve_until_they_are_done() {
    let mut pair = Pair::connected(readable());
    let equals = [open(&mut pair, 1, 200_000), open(&mut pair, 1, 200_000)];
    let lower = open(&mut pair, 0, 200_000);
    let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&sent);
    let _watch = pair.watch(CLIENT, move |f| {
        if let Frame::Stream(s) = f {
            seen.lock().unwrap().push((s.id, s.data.len()));
        }
        false
    });
    finish_order(&mut pair, 3);
    let sent = sent.lock().unwrap();
    let first_lower = sent.iter().position(|(id, _)| *id == lower).unwrap();
    let (before, after) = sent.split_at(first_lower);
    let mut bytes = [0; 2];
    for (id, len) in before {
        bytes[usize::from(*id == equals[1])] += len;
        assert!(bytes[0].abs_diff(bytes[1]) <= TURN + 1500, "{bytes:?}");
    }
    for id in equals {
        assert!(
            after.iter().all(|sent| sent.0 != id),
            "{id:?} after the lower"
        );
    }
}

/// Most bytes of a turn.
const TURN: usize = 16 << 10;

#[test]
fn on_a_slow_path_a_turn_is_a_packet() {
    let mut pair = Pair::connected(Options {
        tls: readable().tls,
        ..slow(4, LossModel::None)
    });
    let ids: Vec<StreamId> = (0..10).map(|_| open(&mut pair, 0, 50_000)).collect();
    let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&sent);
    let _watch = pair.watch(CLIENT, move |f| {
        if let Frame::Stream(s) = f {
            seen.lock().unwrap().push(s.id);
        }
        false
    });
    finish_order(&mut pair, ids.len());
    let sent = sent.lock().unwrap();
    let turns = sent.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(turns + 20 > sent.len(), "{turns} of {}", sent.len());
}

/// What a reader of many streams saw.
struct Carried {
    packets: u64,
    readable: usize,
    /// Bytes of each stream when the first one ended.
    at_first_end: Vec<usize>,
}

/// The server's application: it reads what it is told of.
#[derive(Default)]
struct Reader {
    got: BTreeMap<StreamId, Vec<u8>>,
    readable: usize,
    ended: usize,
}

impl Watch<Host, Direct> for Reader {
    fn on_event(
        &mut self,
        _: Time,
        hosts: &mut [Host],
        at: usize,
        (_, event): (ConnectionHandle, Event),
    ) {
        if let Event::Readable(id) = event {
            self.readable += 1;
            let got = self.got.entry(id).or_default();
            self.ended += usize::from(hosts[at].read_available(id, got));
        }
    }
}

/// Carries whole trains; the server reads what it is told of after each, until all streams end.
fn carry_trains(pair: Pair, streams: usize) -> Carried {
    let mut world = pair.on(Direct::trains());
    let mut reader = Reader::default();
    let mut at_first_end = Vec::new();
    let received = |world: &mut World<Host, Direct>| {
        let stats = world.hosts[SERVER].conn().stats();
        stats.packets_received
    };
    let before = received(&mut world);
    let mut from = SERVER;
    while reader.ended < streams {
        from = 1 - from;
        while world.send_train(from, &mut reader) {
            while let Some(to) = world.deliver_next(&mut reader) {
                world.listen(to, &mut reader);
            }
            if reader.ended > 0 && at_first_end.is_empty() {
                at_first_end = reader.got.values().map(Vec::len).collect();
            }
        }
        world.now += ms(1);
        world.run_timers_of(from, &mut reader);
    }
    let mut whole = reader.got.values();
    assert!(whole.all(|got| *got == pattern(got.len())));
    Carried {
        packets: received(&mut world) - before,
        readable: reader.readable,
        at_first_end,
    }
}

/// A client that takes all there is to send at once.
fn roomy() -> Options {
    Options {
        client: TransportConfig::default()
            .send_buffer(16 << 20)
            .stream_send_buffer(16 << 20),
        ..Options::default()
    }
}

#[test]
fn on_a_fast_path_what_arrives_of_a_stream_arrives_together() {
    let one = {
        let mut pair = Pair::connected(roomy());
        open(&mut pair, 0, 4_000_000);
        carry_trains(pair, 1)
    };
    let mut pair = Pair::connected(roomy());
    for _ in 0..64 {
        open(&mut pair, 0, 62_500);
    }
    let many = carry_trains(pair, 64);
    let share = |carried: &Carried| 1000.0 * carried.readable as f64 / carried.packets as f64;
    let (many, one) = (share(&many), share(&one));
    assert!(many < 150.0 && one < 60.0, "64 streams {many}, one {one}");
}

#[test]
fn ten_streams_have_brought_nearly_the_same_when_the_first_ends() {
    let mut pair = Pair::connected(roomy());
    for _ in 0..10 {
        open(&mut pair, 0, 1_000_000);
    }
    let got = carry_trains(pair, 10).at_first_end;
    let mean = got.iter().sum::<usize>() as f64 / got.len() as f64;
    let variance = |n: &usize| (*n as f64 - mean).powi(2);
    let deviation = (got.iter().map(variance).sum::<f64>() / got.len() as f64).sqrt();
    assert!(deviation / mean <= 0.02, "{got:?}");
}

#[test]
fn lower_streams_go_on_while_the_urgent_one_has_no_credit() {
    let server = TransportConfig::default()
        .stream_receive_window(20_000)
        .max_stream_receive_window(20_000);
    let mut pair = Pair::connected(Options {
        server,
        ..Options::default()
    });
    // Nobody reads it: it stops at its window.
    let urgent = open(&mut pair, 9, 100_000);
    let lower = open(&mut pair, 0, 15_000);
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), urgent);
    assert_eq!(pair.accept(SERVER, UNI, secs(1)), lower);
    assert_eq!(pair.read_to_end(SERVER, lower, secs(2)), pattern(15_000));
    assert_eq!(pair.read_to_end(SERVER, urgent, secs(2)), pattern(100_000));
}

#[test]
fn the_most_urgent_writer_is_woken_first_when_memory_is_short() {
    let client = TransportConfig::default()
        .send_buffer(30_000)
        .stream_send_buffer(30_000);
    let mut pair = Pair::connected(Options {
        client,
        ..Options::default()
    });
    let filler = open(&mut pair, 5, 30_000);
    let mut waiting = Vec::new();
    for priority in [1, 3, 2] {
        let id = pair.client().open(UNI).unwrap();
        pair.client().set_priority(id, priority).unwrap();
        let refused = pair.client().write_slice(id, b"x");
        assert_eq!(refused, Err(WriteError::Blocked));
        waiting.push(id);
    }
    pair.take_events(CLIENT);
    pair.run_until(secs(5), |p| {
        p.hosts[CLIENT].events.contains(&Event::Finished(filler))
    });
    let woken: Vec<StreamId> = pair.hosts[CLIENT]
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Writable(id) => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(woken, [1, 2, 0].map(|i| waiting[i]));
}

#[test]
fn a_stream_that_is_over_has_no_priority() {
    let mut pair = Pair::connected(Options::default());
    let id = open(&mut pair, 4, 10);
    finish_order(&mut pair, 1);
    pair.run_for(secs(1));
    assert_eq!(pair.client().priority(id), None);
    assert_eq!(
        pair.client().set_priority(id, 1),
        Err(WriteError::ClosedStream)
    );
}

/// Opens a stream of the client's in a group and writes `len` bytes on it.
fn open_in(pair: &mut Pair, group: u32, priority: i64, len: usize) -> StreamId {
    let id = pair.client().open(UNI).unwrap();
    pair.client().set_priority(id, priority).unwrap();
    assert_eq!(pair.client().send_group(id), Some(0));
    pair.client().set_send_group(id, group).unwrap();
    assert_eq!(pair.client().send_group(id), Some(group));
    assert_eq!(pair.client().priority(id), Some(priority));
    let mut data = Bytes::from(pattern(len));
    assert_eq!(pair.client().write(id, &mut data), Ok(len));
    pair.client().finish(id).unwrap();
    id
}

/// Bytes of each stream that the client sends from now on.
fn watch_bytes(pair: &mut Pair) -> std::sync::Arc<std::sync::Mutex<BTreeMap<StreamId, usize>>> {
    let sent = std::sync::Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let seen = std::sync::Arc::clone(&sent);
    let _watch = pair.watch(CLIENT, move |f| {
        if let Frame::Stream(s) = f {
            *seen.lock().unwrap().entry(s.id).or_default() += s.data.len();
        }
        false
    });
    sent
}

#[test]
fn groups_share_the_path_alike_whatever_is_in_them() {
    let mut pair = Pair::connected(Options {
        tls: readable().tls,
        server: TransportConfig::default().max_concurrent_uni_streams(200),
        client: roomy().client,
        ..slow(5, LossModel::None)
    });
    // One stream of the lowest order; ten equals; an urgent one and one that starves behind it.
    let alone = open_in(&mut pair, 1, i64::MIN, 400_000);
    let equals: Vec<StreamId> = (0..10).map(|_| open_in(&mut pair, 2, 0, 100_000)).collect();
    let urgent = open_in(&mut pair, 3, 9, 400_000);
    let starved = open_in(&mut pair, 3, 8, 400_000);
    let sent = watch_bytes(&mut pair);
    pair.run_for(secs(2));
    let sent = sent.lock().unwrap();
    let of = |ids: &[StreamId]| -> usize { ids.iter().map(|id| sent.get(id).unwrap_or(&0)).sum() };
    let shares = [of(&[alone]), of(&equals), of(&[urgent])];
    let mean = shares.iter().sum::<usize>() / 3;
    assert!(mean > 100_000, "{shares:?}");
    for share in shares {
        assert!(share.abs_diff(mean) < TURN, "{shares:?}");
    }
    for id in &equals {
        assert!(sent[id].abs_diff(shares[1] / 10) < 3_000, "{sent:?}");
    }
    assert_eq!(of(&[starved]), 0);
}

#[test]
fn a_stream_changes_its_group_under_way() {
    let mut pair = Pair::connected(Options {
        tls: readable().tls,
        client: roomy().client,
        ..slow(6, LossModel::None)
    });
    let urgent = open_in(&mut pair, 1, 5, 500_000);
    let starved = open_in(&mut pair, 1, 0, 500_000);
    let sent = watch_bytes(&mut pair);
    pair.run_for(ms(500));
    assert_eq!(sent.lock().unwrap().get(&starved), None);
    pair.client().set_send_group(starved, 2).unwrap();
    sent.lock().unwrap().clear();
    pair.run_for(ms(500));
    let sent = sent.lock().unwrap();
    let difference = sent[&urgent].abs_diff(sent[&starved]);
    assert!(difference < TURN && sent[&starved] > 20_000, "{sent:?}");
}

#[test]
fn of_thousands_of_streams_in_as_many_groups_all_arrive() {
    let server = TransportConfig::default().max_concurrent_uni_streams(3_000);
    let mut pair = Pair::connected(Options {
        server,
        ..Options::default()
    });
    let mut ids: Vec<StreamId> = (0..3_000u32)
        .map(|i| open_in(&mut pair, i % 1_500, i64::from(i % 7), 100))
        .collect();
    let mut order = finish_order(&mut pair, ids.len());
    order.sort_unstable();
    ids.sort_unstable();
    assert!(order == ids);
}
