//! Extremes, with every controller: peers that acknowledge what they have not received, round trips of
//! nothing and of a minute, clocks that jump by hours.

mod common;

use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::evil::Evil;
use common::wire::packets;
use common::{ALGORITHMS, CLIENT, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::{Algorithm, Direction, TransportConfig, TransportErrorCode};
use towline_wire::{
    FrameType, PacketKind, decode_packet_number, write_ack, write_max_data, write_max_stream_data,
};

const UNI: Direction = Direction::Unidirectional;

fn options(seed: u64, link: towline_sim::LinkConfig, congestion: Algorithm) -> Options {
    let transport = TransportConfig::default()
        .congestion(congestion)
        .handshake_timeout(secs(2000))
        .max_idle_timeout(secs(2000));
    Options {
        seed,
        link,
        client: transport.clone(),
        server: transport,
        ..readable()
    }
}

/// Ascending numbers as the ranges of an ACK.
fn ranges(numbers: &[u64]) -> Vec<RangeInclusive<u64>> {
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
    for number in numbers.iter().rev() {
        match ranges.last_mut() {
            Some(range) if *range.start() == number + 1 => *range = *number..=*range.end(),
            _ => ranges.push(*number..=*number),
        }
    }
    ranges
}

/// A sender whose peer answers by hand.
struct Sender {
    evil: Evil,
    stream: towline_quic::StreamId,
    /// Numbers of the 1-RTT packets it has sent since, in order.
    sent: Rc<RefCell<Vec<u64>>>,
    data: Bytes,
}

impl Sender {
    fn new(seed: u64, congestion: Algorithm) -> Self {
        let mut evil = Evil::with(SERVER, options(seed, delay(20), congestion));
        let stream = evil.pair.server().open(UNI).unwrap();
        let sent = Rc::new(RefCell::new(Vec::new()));
        let (log, largest) = (sent.clone(), Cell::new(None));
        evil.pair.tap = Some(Box::new(move |from, datagram| {
            for p in packets(datagram) {
                if from == SERVER && p.kind == PacketKind::OneRtt {
                    let number = decode_packet_number(p.number, p.pn_len, largest.get());
                    largest.set(largest.get().max(Some(number)));
                    log.borrow_mut().push(number);
                }
            }
            true
        }));
        evil.send(|w| write_max_data(w, 1 << 40));
        evil.send(|w| write_max_stream_data(w, stream, 1 << 40));
        Self {
            evil,
            stream,
            sent,
            data: Bytes::from(pattern(16 << 20)),
        }
    }

    fn write(&mut self) {
        let stream = self.stream;
        if !self.evil.pair.server().is_closed() {
            let _ = self.evil.pair.server().write(stream, &mut self.data);
            self.evil.pair.flush();
        }
    }

    fn window(&mut self) -> u64 {
        self.evil.pair.server().stats().cwnd
    }
}

/// Windows of a sender whose peer acknowledges each packet when it arrives and with nothing left
/// out: by packets acknowledged, the largest window so far.
fn honest(seed: u64, congestion: Algorithm) -> Vec<u64> {
    let mut sender = Sender::new(seed, congestion);
    let mut windows = Vec::new();
    // By millisecond, how many packets had been sent.
    let mut sent = Vec::new();
    while windows.len() < 2000 {
        sender.write();
        sender.evil.pair.run_for(ms(1));
        sent.push(sender.sent.borrow().len());
        // Twenty milliseconds after it was sent each packet is acknowledged, two with an ACK.
        let arrived = sent.len().checked_sub(20).map_or(0, |then| sent[then]);
        while windows.len() < arrived {
            let known = windows.len();
            let numbers = sender.sent.borrow()[known..arrived.min(known + 2)].to_vec();
            sender.evil.send(|w| {
                write_ack(w, 0, ranges(&numbers), None);
            });
            let most = windows.last().copied().unwrap_or(0).max(sender.window());
            windows.extend(numbers.iter().map(|_| most));
        }
        sender.evil.assert_open();
    }
    windows
}

#[test]
fn an_optimistic_acknowledger_is_caught_and_gains_nothing_until_then() {
    for congestion in ALGORITHMS {
        for seed in 1..=5 {
            let what = format!("{congestion}, seed {seed}");
            let honest = honest(seed, congestion);
            // This one acknowledges before anything arrives, guessing that no number is left out.
            let mut sender = Sender::new(seed, congestion);
            let (mut most, mut acked, mut rounds) = (0, 0, 0);
            while !sender.evil.pair.server().is_closed() {
                sender.write();
                sender.evil.pair.run_for(ms(1));
                let sent = sender.sent.borrow().len();
                let newest = sender.sent.borrow().last().copied();
                if let Some(newest) = newest.filter(|_| sent > acked) {
                    let first = sender.sent.borrow()[0];
                    sender.evil.send(|w| {
                        write_ack(w, 0, [first..=newest], None);
                    });
                }
                if sender.evil.pair.server().is_closed() {
                    break;
                }
                acked = sent;
                most = most.max(sender.window());
                let fair = honest[acked.min(honest.len() - 1)];
                assert!(
                    most <= fair + fair / 10,
                    "{what}: a window of {most} after {acked} packets, {fair} of an honest peer"
                );
                rounds += 1;
                assert!(rounds < 100_000, "{what}: not caught");
            }
            // Numbers are left out at most 512 apart.
            assert!(acked <= 1100, "{what}: caught after {acked} packets only");
            sender
                .evil
                .assert_closed(TransportErrorCode::PROTOCOL_VIOLATION, Some(FrameType::ACK));
        }
    }
}

#[test]
fn an_ack_of_what_was_never_sent_is_refused_whatever_the_controller() {
    for congestion in ALGORITHMS {
        for ahead in [0, 1, 1000, 1 << 40] {
            let mut sender = Sender::new(1, congestion);
            sender.write();
            let newest = *sender.sent.borrow().last().unwrap();
            sender.evil.send(|w| {
                let number = newest + 2 + ahead;
                write_ack(w, 0, [number..=number], None);
            });
            sender
                .evil
                .assert_closed(TransportErrorCode::PROTOCOL_VIOLATION, Some(FrameType::ACK));
        }
    }
}

#[test]
fn one_ack_a_packet_gains_nothing_and_replays_change_nothing() {
    for congestion in ALGORITHMS {
        let run = |split: bool| {
            let mut sender = Sender::new(1, congestion);
            let mut known = 0;
            for _ in 0..7 {
                sender.write();
                // Long enough for the pacer to let all of a flight go.
                sender.evil.pair.run_for(ms(40));
                sender.write();
                let flight: Vec<u64> = sender.sent.borrow()[known..].to_vec();
                known += flight.len();
                for numbers in flight.chunks(if split { 1 } else { 2 }) {
                    sender.evil.send(|w| {
                        write_ack(w, 0, ranges(numbers), None);
                    });
                }
                let before = sender.evil.pair.server().stats();
                for numbers in flight.chunks(5) {
                    sender.evil.send(|w| {
                        write_ack(w, 0, ranges(numbers), None);
                    });
                }
                let after = sender.evil.pair.server().stats();
                assert_eq!(before.cwnd, after.cwnd, "{congestion}: replayed");
                assert_eq!(before.smoothed_rtt, after.smoothed_rtt, "{congestion}");
                sender.evil.assert_open();
            }
            sender.window()
        };
        let (split, paired) = (run(true), run(false));
        assert!(
            split <= paired + paired / 10,
            "{congestion}: {split} with an ACK each, {paired} with one for two"
        );
    }
}

#[test]
fn round_trips_of_nothing_and_of_a_minute_carry_data() {
    for congestion in ALGORITHMS {
        for half in [Duration::ZERO, Duration::from_nanos(1), ms(5000), secs(30)] {
            let link = towline_sim::LinkConfig {
                delay: half,
                ..delay(0)
            };
            let what = format!("{congestion}, {half:?} each way");
            let mut options = options(1, link, congestion);
            // On a path of no delay each megabyte is a matter of one instant.
            options.tls.null_aead = false;
            let mut pair = Pair::new(options);
            pair.connect();
            pair.established(secs(1500));
            pair.transfer(CLIENT, 200_000, secs(4000));
            let stats = pair.client().stats();
            assert!(
                stats.cwnd >= 2400 && stats.cwnd < 1 << 32,
                "{what}: {stats:?}"
            );
            assert!(stats.pacing_rate.is_none_or(|rate| rate > 0), "{what}");
        }
    }
}

#[test]
fn a_clock_that_jumps_by_hours_costs_at_most_the_connection() {
    for congestion in ALGORITHMS {
        for jump in [ms(1), secs(1), secs(20), secs(7200), secs(1 << 33)] {
            let what = format!("{congestion}, {jump:?}");
            let mut options = options(1, delay(20), congestion);
            options.client.max_idle_timeout = secs(30);
            let mut pair = Pair::connected(options);
            let id = pair.client().open(UNI).unwrap();
            let mut data = Bytes::from(pattern(300_000));
            let _ = pair.client().write(id, &mut data);
            pair.run_for(ms(50));
            // Both hosts slept; what was on the way arrives afterwards.
            pair.now += jump;
            if jump < secs(30) {
                pair.client().finish(id).unwrap();
                pair.accept(SERVER, UNI, secs(10));
                pair.read_to_end(SERVER, id, secs(60));
                let stats = pair.client().stats();
                assert!(
                    stats.probe_timeouts <= 3,
                    "{what}: {}",
                    stats.probe_timeouts
                );
                pair.transfer(CLIENT, 300_000, secs(60));
            } else {
                pair.run_until_closed(CLIENT, secs(10_000));
            }
        }
    }
}
