//! ECN from the sender's window to the queue that marks and back: what marks are good for, and
//! that no path and no peer gains or breaks anything by mistreating them (RFC 9000 §13.4).

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::wire::packets;
use common::{ALGORITHMS, CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{Algorithm, Direction, Stats, TransportConfig};
use towline_sim::{Aqm, LinkConfig, LinkStats};
use towline_testkit::NULL_TAG;
use towline_wire::{EcnCounts, Frame, PacketKind, Reader, Writer, write_ack};

const ECT0: Option<u8> = Some(0b10);
const CE: Option<u8> = Some(0b11);

/// 10 Mbit/s and 40 ms, so that 50,000 bytes fill it.
const RATE: u64 = 10_000_000;
const BDP: u64 = 50_000;

fn queue(aqm: Aqm, bytes: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(RATE),
        queue: Some(bytes),
        aqm,
        ecn: aqm != Aqm::DropTail,
        overhead: 28,
        ..delay(20)
    }
}

fn options(seed: u64, link: LinkConfig, congestion: Algorithm, ecn: bool) -> Options {
    Options {
        seed,
        link,
        back: Some(delay(20)),
        client: TransportConfig::default().congestion(congestion).ecn(ecn),
        ..readable()
    }
}

/// Moves `len` bytes to the server; what the sender and the queue counted.
fn send(options: Options, len: usize) -> (Stats, LinkStats) {
    let mut pair = Pair::connected(options);
    pair.transfer(CLIENT, len, secs(120));
    let link = pair.net.link(pair.links.0).stats();
    (pair.client().stats(), link)
}

#[test]
fn marks_are_seen_echoed_and_answered_and_nothing_is_lost() {
    let red = Aqm::Red {
        min: 10_000,
        max: 4 * BDP,
        max_probability: 0.1,
        weight: 0.02,
    };
    for aqm in [Aqm::CODEL, red, Aqm::Step(ms(10))] {
        for congestion in ALGORITHMS {
            for seed in 1..=3 {
                let what = format!("{congestion} at {aqm:?}, seed {seed}");
                let link = queue(aqm, 10 * BDP);
                let (stats, queue) = send(options(seed, link.clone(), congestion, true), 4_000_000);
                assert!(stats.ecn_capable, "{what}");
                assert!(queue.ce_marks > 0, "{what}");
                // Those of the last flight may not have been reported yet.
                assert!(
                    stats.ce_marks > 0 && stats.ce_marks <= queue.ce_marks,
                    "{what}: {} of {}",
                    stats.ce_marks,
                    queue.ce_marks
                );
                assert_eq!((queue.drops.total(), stats.packets_lost), (0, 0), "{what}");
                if matches!(aqm, Aqm::Step(_)) {
                    continue;
                }
                let (stats, queue) = send(options(seed, link, congestion, false), 4_000_000);
                assert!(!stats.ecn_capable && stats.ce_marks == 0, "{what}");
                assert!(
                    queue.drops.aqm > 0 && stats.packets_lost > 0,
                    "{what}: unmarked packets are dropped"
                );
            }
        }
    }
}

#[test]
fn a_step_saves_loss_based_controllers_from_the_end_of_the_queue() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic] {
        for seed in 1..=3 {
            let with = |ecn| {
                let mut options = options(seed, queue(Aqm::Step(ms(10)), 2 * BDP), congestion, ecn);
                options.client.hystart = true;
                send(options, 8_000_000)
            };
            let what = format!("{congestion}, seed {seed}");
            let (stats, queue) = with(true);
            assert_eq!((queue.drops.total(), stats.packets_lost), (0, 0), "{what}");
            let (stats, queue) = with(false);
            assert!(queue.drops.queue > 0 && stats.packets_lost > 0, "{what}");
        }
    }
}

#[test]
fn marks_reduce_the_window_at_most_once_a_round_trip() {
    for congestion in ALGORITHMS {
        for seed in 1..=3 {
            let what = format!("{congestion}, seed {seed}");
            let link = queue(Aqm::Step(ms(5)), 10 * BDP);
            let mut pair = Pair::connected(options(seed, link, congestion, true));
            let id = pair.client().open(Direction::Unidirectional).unwrap();
            let (start, mut last, mut events) = (pair.now, None, 0);
            let (mut accepted, mut sink) = (false, Vec::new());
            pair.run_until(secs(30), |p| {
                let mut data = bytes::Bytes::from_static(&[0; 65_536]);
                let _ = p.client().write(id, &mut data);
                accepted |= p.server().accept(Direction::Unidirectional).is_some();
                if accepted {
                    sink.clear();
                    p.read_available(SERVER, id, &mut sink);
                }
                let stats = p.client().stats();
                if stats.congestion_events > events {
                    assert_eq!(stats.congestion_events, events + 1, "{what}: two at once");
                    let gap = last.map(|at| p.now.saturating_duration_since(at));
                    assert!(gap.is_none_or(|gap| gap >= ms(40)), "{what}: {gap:?}");
                    (events, last) = (stats.congestion_events, Some(p.now));
                }
                p.now.saturating_duration_since(start) > secs(10)
            });
            let stats = pair.client().stats();
            assert!(events > 0, "{what}: marks are answered");
            assert!(
                stats.ce_marks > 2 * events,
                "{what}: {} marks, {events} reductions",
                stats.ce_marks
            );
        }
    }
}

/// What a path does to the bits of what the client sends; whether marks survive, and how many
/// datagrams of a transfer after validation failed still carry any.
fn through(
    seed: u64,
    congestion: Algorithm,
    change: impl Fn(&mut Option<u8>) -> bool + 'static,
) -> (Stats, u64) {
    let mut pair = Pair::new(options(seed, delay(20), congestion, true));
    let marked = Rc::new(Cell::new(0));
    let count = marked.clone();
    pair.ecn_tap = Some(Box::new(move |from, ecn| {
        if from != CLIENT {
            return true;
        }
        count.set(count.get() + u64::from(ecn.is_some()));
        change(ecn)
    }));
    pair.connect();
    pair.established(secs(10));
    pair.transfer(CLIENT, 100_000, secs(20));
    marked.set(0);
    pair.transfer(CLIENT, 2_000_000, secs(20));
    (pair.client().stats(), marked.get())
}

#[test]
fn a_path_that_clears_the_bits_is_spared_them() {
    for congestion in ALGORITHMS {
        let (stats, marked) = through(1, congestion, |ecn| {
            *ecn = None;
            true
        });
        assert_eq!((stats.ecn_capable, marked), (false, 0), "{congestion}");
        assert_eq!(stats.congestion_events, 0, "{congestion}");
    }
}

#[test]
fn a_path_that_marks_everything_does_not_strangle_the_connection() {
    for congestion in ALGORITHMS {
        let (stats, marked) = through(1, congestion, |ecn| {
            *ecn = ecn.and(CE);
            true
        });
        assert_eq!((stats.ecn_capable, marked), (false, 0), "{congestion}");
        // One packet a round trip during the handshake, then ten have told enough.
        assert!(stats.congestion_events <= 6, "{congestion}: {stats:?}");
        assert!(stats.cwnd > 20_000, "{congestion}: {}", stats.cwnd);
    }
}

#[test]
fn a_path_that_turns_one_codepoint_into_the_other_is_spared_both() {
    let (stats, marked) = through(1, Algorithm::Cubic, |ecn| {
        *ecn = ecn.and(Some(0b01));
        true
    });
    assert_eq!((stats.ecn_capable, marked), (false, 0));
}

#[test]
fn a_path_that_drops_every_marked_packet_still_connects() {
    for seed in 1..=3 {
        let mut pair = Pair::new(options(seed, delay(20), Algorithm::Cubic, true));
        // Both directions.
        pair.ecn_tap = Some(Box::new(|_, ecn| ecn.is_none()));
        let start = pair.now;
        pair.connect();
        pair.established(secs(10));
        let took = pair.now.saturating_duration_since(start);
        // The first probe timeout of either end, a second each.
        assert!(took < secs(3), "seed {seed}: {took:?}");
        let took = pair.transfer(CLIENT, 1_000_000, secs(20));
        assert!(took < secs(2), "seed {seed}: {took:?}");
        let stats = pair.client().stats();
        assert!(!stats.ecn_capable, "seed {seed}");
    }
}

#[test]
fn a_path_that_begins_to_drop_marked_packets_does_not_end_the_connection() {
    for congestion in ALGORITHMS {
        for seed in 1..=3 {
            let mut pair = Pair::connected(options(seed, delay(20), congestion, true));
            pair.transfer(CLIENT, 500_000, secs(20));
            assert!(pair.client().stats().ecn_capable);
            pair.ecn_tap = Some(Box::new(|from, ecn| from != CLIENT || ecn.is_none()));
            let took = pair.transfer(CLIENT, 500_000, secs(30));
            assert!(took < secs(20), "{congestion}, seed {seed}: {took:?}");
            assert!(
                !pair.client().stats().ecn_capable,
                "{congestion}, seed {seed}"
            );
            let took = pair.transfer(CLIENT, 500_000, secs(30));
            assert!(took < secs(5), "{congestion}, seed {seed}: {took:?}");
        }
    }
}

#[test]
fn a_receiver_of_marked_packets_that_vanish_both_ways_answers_unmarked_probes_unmarked() {
    // With nothing of its own in flight it has no probe timeout that would tell.
    for one_way in [false, true] {
        for congestion in ALGORITHMS {
            for seed in 1..=3 {
                let what = format!("{congestion}, seed {seed}, acknowledgements only: {one_way}");
                let mut pair = Pair::connected(options(seed, delay(20), congestion, true));
                pair.transfer(CLIENT, 500_000, secs(20));
                assert!(pair.server().stats().ecn_capable, "{what}");
                pair.ecn_tap = Some(Box::new(move |from, ecn| {
                    (one_way && from == CLIENT) || ecn.is_none()
                }));
                let took = pair.transfer(CLIENT, 500_000, secs(29));
                assert!(took < secs(20), "{what}: {took:?}");
                let took = pair.transfer(CLIENT, 10_000_000, secs(60));
                assert!(took < secs(20), "{what}: {took:?}");
            }
        }
    }
}

#[test]
fn a_blackout_does_not_cost_the_marks() {
    let mut pair = Pair::connected(options(1, delay(20), Algorithm::Cubic, true));
    pair.transfer(CLIENT, 500_000, secs(20));
    let dark = delay(20).with_blackout(pair.now, secs(3));
    let (there, _) = pair.links;
    pair.net.set_config(there, dark).unwrap();
    pair.transfer(CLIENT, 500_000, secs(30));
    assert!(pair.client().stats().probe_timeouts >= 3);
    pair.transfer(CLIENT, 500_000, secs(30));
    assert!(pair.client().stats().ecn_capable);
}

/// Rewrites the counts in the 1-RTT ACKs that the server sends.
fn lie(pair: &mut Pair, counts: impl FnMut(Option<EcnCounts>) -> Option<EcnCounts> + 'static) {
    let mut counts = counts;
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            rewrite_acks(datagram, &mut counts);
        }
        true
    }));
}

fn rewrite_acks(
    datagram: &mut Vec<u8>,
    counts: &mut impl FnMut(Option<EcnCounts>) -> Option<EcnCounts>,
) {
    let Some((at, payload)) = packets(datagram)
        .into_iter()
        .find(|p| p.kind == PacketKind::OneRtt)
        .map(|p| (p.payload_at, p.payload.to_vec()))
    else {
        return;
    };
    let mut out = vec![0; payload.len() + 64];
    let mut w = Writer::new(&mut out);
    let mut r = Reader::new(&payload);
    while !r.is_empty() {
        let start = r.position();
        match Frame::parse(&mut r).expect("our own frames parse") {
            Frame::Ack(ack) => {
                write_ack(&mut w, ack.delay, ack.ranges(), counts(ack.ecn));
            }
            _ => w.bytes(&payload[start..r.position()]),
        }
    }
    let len = w.len();
    datagram.truncate(at);
    datagram.extend_from_slice(&out[..len]);
    datagram.extend_from_slice(&NULL_TAG);
}

#[test]
fn counts_that_cannot_be_end_the_marking() {
    type Lie = fn(Option<EcnCounts>) -> Option<EcnCounts>;
    let lies: [(&str, Lie); 5] = [
        ("none", |_| None),
        ("falling", |c| {
            c.map(|c| EcnCounts {
                ect0: 2_000_u64.saturating_sub(c.ect0).min(c.ect0),
                ..c
            })
        }),
        ("of a codepoint never sent", |c| {
            c.map(|c| EcnCounts { ect1: 1, ..c })
        }),
        ("more than were sent", |c| {
            c.map(|c| EcnCounts {
                ce: c.ce + (1 << 40),
                ..c
            })
        }),
        ("beyond all bounds", |_| {
            Some(EcnCounts {
                ect0: (1 << 62) - 1,
                ect1: 0,
                ce: (1 << 62) - 1,
            })
        }),
    ];
    for (what, change) in lies {
        for congestion in ALGORITHMS {
            let mut pair = Pair::connected(options(1, delay(20), congestion, true));
            pair.transfer(CLIENT, 100_000, secs(20));
            assert!(pair.client().stats().ecn_capable, "{what}");
            lie(&mut pair, change);
            pair.transfer(CLIENT, 3_000_000, secs(20));
            let stats = pair.client().stats();
            assert!(!stats.ecn_capable, "{what}, {congestion}");
            // The nonsense is no congestion.
            assert_eq!(stats.congestion_events, 0, "{what}, {congestion}");
            let marked = Rc::new(Cell::new(0));
            let count = marked.clone();
            pair.ecn_tap = Some(Box::new(move |from, ecn| {
                count.set(count.get() + u64::from(from == CLIENT && *ecn == ECT0));
                true
            }));
            pair.transfer(CLIENT, 100_000, secs(20));
            assert_eq!(marked.get(), 0, "{what}, {congestion}");
        }
    }
}

/// Time of a transfer over a CoDel queue whose receiver changes its counts.
fn time_with(
    seed: u64,
    congestion: Algorithm,
    counts: impl FnMut(Option<EcnCounts>) -> Option<EcnCounts> + 'static,
) -> (f64, Stats, LinkStats) {
    let link = queue(Aqm::CODEL, 4 * BDP);
    let mut pair = Pair::connected(options(seed, link, congestion, true));
    lie(&mut pair, counts);
    let took = pair.transfer(CLIENT, 4_000_000, secs(120));
    let queue = pair.net.link(pair.links.0).stats();
    (took.as_secs_f64(), pair.client().stats(), queue)
}

#[test]
fn a_peer_that_conceals_marks_is_answered_with_losses_and_gains_no_rate() {
    for congestion in ALGORITHMS {
        for seed in 1..=3 {
            let what = format!("{congestion}, seed {seed}");
            let (honest, _, _) = time_with(seed, congestion, |c| c);
            let (took, stats, queue) =
                time_with(seed, congestion, |c| c.map(|c| EcnCounts { ce: 0, ..c }));
            assert!(!stats.ecn_capable, "{what}");
            assert!(queue.drops.aqm > 0 && stats.packets_lost > 0, "{what}");
            assert!(took >= 0.9 * honest, "{what}: {took} s, {honest} s");
            // A count that hangs behind the truth is no different.
            let (took, stats, _) = time_with(seed, congestion, |c| {
                c.map(|c| EcnCounts { ce: c.ce / 2, ..c })
            });
            assert!(!stats.ecn_capable, "{what}");
            assert!(took >= 0.9 * honest, "{what}: {took} s, {honest} s");
        }
    }
}

#[test]
fn a_peer_that_calls_marked_packets_unmarked_still_meets_the_end_of_the_queue() {
    for congestion in ALGORITHMS {
        let (honest, _, _) = time_with(1, congestion, |c| c);
        let (took, stats, queue) = time_with(1, congestion, |c| {
            c.map(|c| EcnCounts {
                ect0: c.ect0 + c.ce,
                ect1: 0,
                ce: 0,
            })
        });
        // Nobody can see this; the queue's length bounds what is in flight.
        assert_eq!(stats.ce_marks, 0, "{congestion}");
        assert!(queue.queue_peak_bytes <= 4 * BDP, "{congestion}");
        assert!(took >= 0.75 * honest, "{congestion}: {took} s, {honest} s");
    }
}
