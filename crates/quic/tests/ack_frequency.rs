//! Who is acknowledged how often: the ACK frequency extension between two endpoints, and the peer
//! that abuses it (draft-ietf-quic-ack-frequency-14).

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::evil::Evil;
use common::wire::for_each_frame;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{
    Algorithm, ConnectionError, Direction, Event, TransportConfig, TransportErrorCode,
};
use towline_sim::LinkConfig;
use towline_wire::{
    AckFrequencyFrame, Frame, FrameType, write_ack_frequency, write_immediate_ack, write_ping,
};

const UNI: Direction = Direction::Unidirectional;

fn transport(ack_frequency: bool) -> TransportConfig {
    // One size of packets, whose number the tests count.
    TransportConfig::default()
        .ack_frequency(ack_frequency)
        .mtu(1200)
}

/// Readable options with the extension on or off at each end.
fn options(client: bool, server: bool, link: LinkConfig) -> Options {
    Options {
        link,
        client: transport(client),
        server: transport(server),
        ..readable()
    }
}

fn is_extension(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::AckFrequency(_) | Frame::ImmediateAck)
}

/// The ACK_FREQUENCY frames that `side` sends, as they leave.
fn requests_of(
    pair: &mut Pair,
    side: usize,
    drop_first: bool,
) -> Rc<RefCell<Vec<AckFrequencyFrame>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    pair.tap = Some(Box::new(move |from, datagram| {
        let before = log.borrow().len();
        if from == side {
            for_each_frame(datagram, |_, frame| {
                if let Frame::AckFrequency(frame) = frame {
                    log.borrow_mut().push(*frame);
                }
            });
        }
        !(drop_first && before == 0 && !log.borrow().is_empty())
    }));
    seen
}

#[test]
fn bulk_over_freenets_path_takes_no_longer_with_far_fewer_acks() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic] {
        let [(slow, many), (thin, few)] = [false, true].map(|on| {
            let link = LinkConfig {
                rate: Some(100_000_000),
                delay: Duration::from_micros(82_500),
                queue: Some(2_062_500),
                ..LinkConfig::default()
            };
            let config = transport(on).congestion(congestion);
            let mut pair = Pair::connected(Options {
                link,
                client: config.clone(),
                server: config,
                ..readable()
            });
            let acks = pair.watch(SERVER, |f| matches!(f, Frame::Ack(_)));
            let took = pair.transfer(CLIENT, 2_400_000, secs(5));
            let stats = pair.client().stats();
            assert_eq!(stats.probe_timeouts, 0, "no spurious timeout");
            eprintln!(
                "{congestion}, extension {on}: {took:?}, {} ACK packets for {} packets, {} lost",
                acks.count(),
                stats.packets_sent,
                stats.packets_lost,
            );
            (took, acks.count())
        });
        assert!(
            thin <= slow.mul_f64(1.02),
            "{congestion}: {thin:?} {slow:?}"
        );
        assert!(3 * few <= many, "{congestion}: {few} of {many}");
    }
}

/// Seconds that a bulk transfer took and ACK packets that it cost, without and with the extension.
fn compare(
    name: &str,
    seed: u64,
    link: &LinkConfig,
    back: LinkConfig,
    len: usize,
) -> [(f64, u32); 2] {
    [false, true].map(|on| {
        let mut pair = Pair::connected(Options {
            back: Some(back.clone()),
            seed,
            ..options(on, on, link.clone())
        });
        let acks = pair.watch(SERVER, |f| matches!(f, Frame::Ack(_)));
        let took = pair.transfer(CLIENT, len, secs(120));
        let stats = pair.client().stats();
        eprintln!(
            "{name}, extension {on}: {took:?}, {} ACK packets for {} packets, {} lost",
            acks.count(),
            stats.packets_sent,
            stats.packets_lost,
        );
        (took.as_secs_f64(), acks.count())
    })
}

#[test]
fn thinned_acks_keep_a_bottleneck_nearly_as_busy_even_when_a_fifth_of_them_is_lost() {
    // One BDP of queue, and a quarter of one.
    for queue in [625_000, 156_250] {
        let link = LinkConfig {
            rate: Some(100_000_000),
            delay: ms(25),
            queue: Some(queue),
            ..LinkConfig::default()
        };
        for loss in [0.0, 0.2] {
            let back = LinkConfig {
                loss: towline_sim::LossModel::Bernoulli(loss),
                ..delay(25)
            };
            let name = format!("queue of {queue} bytes, {loss} of the ACKs lost");
            // One pattern of losses is luck.
            let seeds = if loss > 0.0 { 1..7 } else { 1..2 };
            let (mut slow, mut thin) = (0.0, 0.0);
            for seed in seeds {
                let name = format!("{name}, seed {seed}");
                let [many, few] = compare(&name, seed, &link, back.clone(), 20_000_000);
                slow += many.0;
                thin += few.0;
                assert!(3 * few.1 <= many.1, "{name}: {few:?} {many:?}");
            }
            assert!(thin <= 1.06 * slow, "{name}: {thin} {slow}");
        }
    }
}

#[test]
fn every_round_of_slow_start_brings_the_acks_that_hystart_needs() {
    const ROUND: Duration = ms(100);
    // Windows that the first rounds cannot fill.
    let server = transport(true)
        .stream_receive_window(64 << 20)
        .max_stream_receive_window(64 << 20)
        .receive_window(64 << 20)
        .max_receive_window(64 << 20);
    let mut pair = Pair::connected(Options {
        link: delay(50),
        client: transport(true),
        server,
        ..readable()
    });
    let acks = pair.watch(SERVER, |f| matches!(f, Frame::Ack(_)));
    let mut left = Bytes::from(vec![7; 12 << 20]);
    let id = pair.client().open(UNI).unwrap();
    let mut rounds = Vec::new();
    while !left.is_empty() {
        let until = pair.now + ROUND;
        let before = (acks.count(), pair.server().stats().packets_received);
        while pair.now < until {
            let _ = pair.client().write(id, &mut left);
            pair.run_for(ms(1));
        }
        let received = pair.server().stats().packets_received - before.1;
        rounds.push((received, acks.count() - before.0));
        assert_eq!(pair.client().stats().congestion_events, 0, "slow start");
    }
    eprintln!("packets and ACKs of each round trip: {rounds:?}");
    // HyStart++ judges a round by its first eight samples (RFC 9406 §4.2).
    let (last, rounds) = rounds.split_last().unwrap();
    assert!(rounds[2..].iter().all(|(_, acks)| *acks >= 8), "{rounds:?}");
    // From 128 packets on ACKs are thinned, to between one and two times four times the need.
    let settled = &rounds[4..];
    assert!(
        settled.iter().all(|(_, acks)| (32..=64).contains(acks)),
        "{rounds:?}"
    );
    assert!(last.1 <= 64 && settled.len() >= 4);
    assert!(settled.iter().any(|(packets, _)| *packets > 1000));
}

#[test]
fn a_peer_without_the_extension_gets_none_of_its_frames() {
    for (client, server) in [(true, false), (false, true), (false, false)] {
        let mut pair = Pair::connected(options(client, server, delay(20)));
        let seen = [CLIENT, SERVER].map(|side| {
            let seen = pair.watch(side, is_extension);
            pair.transfer(side, 1_000_000, secs(10));
            // Everything in flight is lost: probes go out too.
            pair.tap = Some(Box::new(|_, _| false));
            pair.conn(side).ping();
            pair.run_for(ms(300));
            assert!(pair.conn(side).stats().probe_timeouts > 0);
            seen.count()
        });
        assert_eq!(seen, [0, 0], "{client} {server}");
    }
}

#[test]
fn a_short_exchange_needs_no_frame_of_the_extension() {
    let mut pair = Pair::connected(options(true, true, delay(20)));
    let seen = pair.watch(CLIENT, is_extension);
    pair.transfer(CLIENT, 20_000, secs(10));
    assert_eq!(seen.count(), 0);
}

#[test]
fn requests_follow_the_window_and_ride_on_data() {
    let mut pair = Pair::connected(options(true, true, delay(20)));
    let requests = requests_of(&mut pair, CLIENT, false);
    pair.transfer(CLIENT, 3_000_000, secs(10));
    let requests = requests.borrow();
    assert!((3..=12).contains(&requests.len()), "{requests:?}");
    for pair in requests.windows(2) {
        assert_eq!(pair[1].sequence, pair[0].sequence + 1);
        assert!(pair[1].ack_eliciting_threshold > pair[0].ack_eliciting_threshold);
    }
    assert!(requests.iter().all(|r| r.reordering_threshold == 3));
    // A quarter of the round trip of 40 ms, and a little for the variation of the estimate.
    let delays = requests.iter().map(|r| r.requested_max_ack_delay);
    assert!(
        delays.clone().all(|d| (ms(10)..ms(13)).contains(&d)),
        "{requests:?}"
    );
    let last = requests.last().unwrap();
    assert!(last.ack_eliciting_threshold >= 31, "{last:?}");
}

#[test]
fn a_lost_request_is_replaced_by_the_newest() {
    let mut pair = Pair::connected(options(true, true, delay(20)));
    let requests = requests_of(&mut pair, CLIENT, true);
    pair.transfer(CLIENT, 300_000, secs(10));
    let requests = requests.borrow();
    assert!(requests.len() >= 2, "{requests:?}");
    assert!(requests[1].sequence > requests[0].sequence);
    // The window doubled while the first was on its way to nowhere.
    assert!(
        requests[1].ack_eliciting_threshold > requests[0].ack_eliciting_threshold,
        "{requests:?}"
    );
}

/// What the probe timeout of `side` grants the peer for delaying an ACK.
fn granted_delay(pair: &mut Pair, side: usize) -> Duration {
    let stats = pair.conn(side).stats();
    stats.pto - stats.smoothed_rtt - (4 * stats.rttvar).max(ms(1))
}

#[test]
fn the_probe_timeout_goes_by_the_requested_delay_once_the_peer_has_it() {
    let mut pair = Pair::connected(options(true, true, delay(20)));
    assert_eq!(granted_delay(&mut pair, CLIENT), ms(25));
    let requests = requests_of(&mut pair, CLIENT, false);
    let mut left = Bytes::from(vec![1; 500_000]);
    let id = pair.client().open(UNI).unwrap();
    pair.client().write(id, &mut left).unwrap();
    pair.run_until(secs(1), |_| !requests.borrow().is_empty());
    // Until it is acknowledged, the longer of old and new counts.
    pair.run_for(ms(35));
    assert_eq!(granted_delay(&mut pair, CLIENT), ms(25));
    pair.run_for(ms(500));
    let newest = requests.borrow().last().unwrap().requested_max_ack_delay;
    assert!(newest < ms(13));
    assert_eq!(granted_delay(&mut pair, CLIENT), newest);
}

#[test]
fn a_probe_asks_for_its_ack_at_once() {
    let mut pair = Pair::connected(options(true, true, delay(20)));
    pair.transfer(CLIENT, 1_000_000, secs(10));
    pair.run_for(secs(1));
    let lost = pair.drop_first(CLIENT, 1, |f| matches!(f, Frame::Ping));
    pair.client().ping();
    pair.flush();
    assert_eq!(lost.count(), 1);
    let asked = pair.watch(CLIENT, |f| matches!(f, Frame::ImmediateAck));
    pair.run_until(secs(1), |p| p.client().stats().probe_timeouts == 1);
    let probed = pair.now;
    pair.run_until(secs(1), |p| p.client().stats().bytes_in_flight == 0);
    assert_eq!(asked.count(), 2, "both probes ask");
    assert_eq!(
        pair.now.saturating_duration_since(probed),
        ms(40),
        "one round trip"
    );
}

/// ACK frames of the victim so far.
fn answers(evil: &mut Evil) -> usize {
    // Less than any delay that is asked for here, more than the way.
    evil.pair.run_for(ms(12));
    evil.count_frames(|f| matches!(f, Frame::Ack(_)))
}

fn request(sequence: u64, threshold: u64, delay: Duration) -> AckFrequencyFrame {
    AckFrequencyFrame {
        sequence,
        ack_eliciting_threshold: threshold,
        requested_max_ack_delay: delay,
        reordering_threshold: 3,
    }
}

/// Somebody who was acknowledged up to now and asked for an ACK for each eleven packets.
fn patient(victim: usize) -> Evil {
    let mut evil = Evil::against(victim);
    evil.send(|w| write_ack_frequency(w, &request(5, 10, secs(16))));
    // The jump of its numbers is reported until three packets are known to lie behind the gap.
    for reported in 1..=3 {
        assert_eq!(answers(&mut evil), reported);
        evil.send(write_ping);
    }
    assert_eq!(answers(&mut evil), ANSWERED, "one packet is owed");
    evil
}

/// ACKs that `patient` has had.
const ANSWERED: usize = 3;

#[test]
fn the_requested_threshold_and_delay_are_kept() {
    for victim in [CLIENT, SERVER] {
        let mut evil = patient(victim);
        for packet in 2..=10 {
            evil.send(write_ping);
            assert_eq!(answers(&mut evil), ANSWERED, "{packet}");
        }
        evil.send(write_ping);
        assert_eq!(answers(&mut evil), ANSWERED + 1, "the eleventh");
        evil.send(|w| write_ack_frequency(w, &request(6, 10, ms(100))));
        evil.pair.run_for(ms(97));
        assert_eq!(answers(&mut evil), ANSWERED + 1);
        evil.pair.run_for(ms(2));
        assert_eq!(answers(&mut evil), ANSWERED + 2, "110 ms with the way");
        evil.send(|w| write_ack_frequency(w, &request(7, 0, ms(100))));
        assert_eq!(answers(&mut evil), ANSWERED + 3);
        for packet in 4..9 {
            evil.send(write_ping);
            assert_eq!(answers(&mut evil), ANSWERED + packet, "every packet");
        }
        evil.assert_open();
    }
}

#[test]
fn a_stale_request_is_ignored() {
    let mut evil = patient(SERVER);
    for stale in [4, 5] {
        evil.send(|w| write_ack_frequency(w, &request(stale, 0, ms(1))));
    }
    evil.send(write_ping);
    assert_eq!(answers(&mut evil), ANSWERED, "still one for eleven");
    evil.send(|w| write_ack_frequency(w, &request(6, 0, ms(1))));
    assert_eq!(answers(&mut evil), ANSWERED + 1);
}

#[test]
fn immediate_ack_is_answered_at_once() {
    let mut evil = patient(SERVER);
    evil.send(write_ping);
    assert_eq!(answers(&mut evil), ANSWERED);
    evil.send(write_immediate_ack);
    assert_eq!(answers(&mut evil), ANSWERED + 1);
    evil.send(write_ping);
    assert_eq!(answers(&mut evil), ANSWERED + 1, "only once");
}

#[test]
fn a_train_is_acknowledged_once_and_a_gap_of_three_at_once() {
    let mut evil = Evil::against(SERVER);
    evil.send(write_ping);
    assert_eq!(answers(&mut evil), 1);
    // Without a request every second packet counts, but trains arrive as one.
    let mut train = Vec::new();
    for _ in 0..40 {
        train.extend(evil.packet(&[1]));
    }
    let stride = train.len() / 40;
    let remote = evil.pair.hosts[CLIENT].address;
    evil.pair.deliver_train(SERVER, remote, stride, &train);
    assert_eq!(answers(&mut evil), 2);
    evil.send(|w| write_ack_frequency(w, &request(0, 10, secs(1))));
    evil.number += 1;
    for expected in [2, 2, 3] {
        evil.send(write_ping);
        assert_eq!(answers(&mut evil), expected);
    }
}

#[test]
fn an_invalid_delay_is_a_protocol_violation() {
    for (micros, valid) in [
        (0, false),
        (999, false),
        (1000, true),
        (16_383_999, true),
        (16_384_000, false),
        (u64::MAX >> 2, false),
    ] {
        let mut evil = Evil::against(CLIENT);
        let delay = Duration::from_micros(micros);
        evil.send(|w| write_ack_frequency(w, &request(0, 10, delay)));
        match valid {
            true => evil.assert_open(),
            false => evil.assert_closed(
                TransportErrorCode::PROTOCOL_VIOLATION,
                Some(FrameType::ACK_FREQUENCY),
            ),
        }
    }
}

#[test]
fn frames_of_an_extension_that_was_not_offered_are_unknown() {
    for frame in [
        Frame::AckFrequency(request(0, 10, ms(5))),
        Frame::ImmediateAck,
    ] {
        let mut evil = Evil::with(SERVER, options(true, false, delay(10)));
        evil.send(|w| frame.write(w));
        evil.assert_closed(TransportErrorCode::FRAME_ENCODING_ERROR, Some(frame.ty()));
    }
}

#[test]
fn a_least_delay_above_the_longest_is_a_transport_parameter_error() {
    let mut pair = Pair::new(readable());
    // min_ack_delay of 1000 microseconds becomes 16,383; the limit of connection IDs becomes a
    // max_ack_delay of 4 ms.
    let changes: [(&[u8], &[u8]); 2] = [
        (
            b"\xc0\0\0\0\xff\x04\xde\x1b\x02\x43\xe8",
            b"\xc0\0\0\0\xff\x04\xde\x1b\x02\x7f\xff",
        ),
        (b"\x0e\x01\x04", b"\x0b\x01\x04"),
    ];
    let made = Rc::new(RefCell::new([0; 2]));
    let count = Rc::clone(&made);
    pair.tap = Some(Box::new(move |from, datagram| {
        for (i, (old, new)) in changes.iter().enumerate() {
            let found = datagram.windows(old.len()).position(|w| w == *old);
            if let Some(at) = found.filter(|_| from == CLIENT) {
                datagram[at..at + new.len()].copy_from_slice(new);
                count.borrow_mut()[i] += 1;
            }
        }
        true
    }));
    pair.connect();
    pair.run_until(secs(1), |p| p.hosts[CLIENT].events.iter().any(is_closed));
    assert_eq!(*made.borrow(), [1, 1]);
    match pair.close_reason(CLIENT) {
        Some(ConnectionError::ClosedByPeer(reason)) => {
            assert!(
                reason.to_string().contains("TRANSPORT_PARAMETER_ERROR"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

fn is_closed(event: &Event) -> bool {
    matches!(event, Event::Closed(_))
}
