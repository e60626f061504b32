//! What controllers make of applications and frames: bursts, keep-alives, resets, ACK delays, and a change
//! of the controller in mid-flight. What needs only a path is in `towline-lab`'s tests.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{ALGORITHMS, CLIENT, Options, Pair, SERVER, delay, ms, secs};
use towline_quic::{Algorithm, Direction, StreamId, TransportConfig};
use towline_sim::{LinkConfig, LossModel};

const UNI: Direction = Direction::Unidirectional;

/// 10 Mbit/s in bytes per second.
const RATE: f64 = 1.25e6;

/// 10 Mbit/s with a buffer of one round trip.
fn path(rtt: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(10_000_000),
        queue: Some((RATE * rtt as f64 / 1000.0) as u64 + 15_000),
        overhead: 28,
        ..delay(rtt / 2)
    }
}

fn options(seed: u64, rtt: u64, congestion: Algorithm) -> Options {
    let transport = TransportConfig::default().congestion(congestion);
    Options {
        seed,
        link: path(rtt),
        client: transport.clone(),
        server: transport,
        ..Options::default()
    }
}

/// An application that sends in bursts finds, when it has much to send, a path that it fills.
#[test]
fn an_application_in_bursts_is_not_held_down_on_long_paths() {
    for congestion in ALGORITHMS {
        for rtt in [10, 50, 165, 300] {
            for seed in 1..=2 {
                let what = format!("{congestion}, {rtt} ms, seed {seed}");
                let mut pair = Pair::connected(options(seed, rtt, congestion));
                // What a round trip holds, with as much silence again.
                let burst = (RATE * rtt as f64 / 1000.0) as usize + 20_000;
                let mut last = Duration::ZERO;
                for _ in 0..20 {
                    last = pair.transfer(CLIENT, burst, secs(30));
                    pair.run_for(ms(rtt) * 2);
                }
                // The window has grown to what a burst needs: little more than a round trip.
                let ideal = ms(rtt / 2) + Duration::from_secs_f64(burst as f64 / RATE);
                let slack = if congestion == Algorithm::LedbatPlusPlus {
                    3.0
                } else {
                    1.6
                };
                assert!(
                    last <= ideal.mul_f64(slack),
                    "{what}: a burst took {last:?}, not {ideal:?}"
                );
                let took = pair.transfer(CLIENT, 4_000_000, secs(60));
                let ideal = ms(rtt / 2).as_secs_f64() + 4_000_000.0 * 1.03 / RATE;
                // A slowdown of LEDBAT++ takes up to ten round trips.
                let most = if congestion == Algorithm::LedbatPlusPlus {
                    2.0
                } else {
                    1.4
                };
                assert!(
                    took.as_secs_f64() <= ideal * most,
                    "{what}: {took:?} instead of {ideal} s"
                );
            }
        }
    }
}

/// Keep-alives are no measure of the path: neither rate falls, and the next transfer is as
/// fast as the one before.
#[test]
fn keep_alives_do_not_feed_bandwidth_samples() {
    for congestion in ALGORITHMS {
        for rtt in [10, 50, 165, 300] {
            let what = format!("{congestion}, {rtt} ms");
            let mut options = options(1, rtt, congestion);
            options.client.keep_alive_interval = Some(ms(500));
            let mut pair = Pair::connected(options);
            pair.transfer(CLIENT, 4_000_000, secs(60));
            let first = pair.transfer(CLIENT, 4_000_000, secs(60));
            // The last acknowledgements, before the first keep-alive.
            pair.run_for(ms(rtt) + ms(100));
            let before = pair.client().stats();
            pair.run_for(secs(60));
            let after = pair.client().stats();
            let pings = after.packets_sent - before.packets_sent;
            assert!(pings >= 40_000 / (500 + rtt), "{what}: {pings}");
            let rates = (before.delivery_rate.unwrap(), after.delivery_rate.unwrap());
            assert!(rates.1 as f64 >= 0.9 * rates.0 as f64, "{what}: {rates:?}");
            if congestion == Algorithm::Bbr {
                let rates = (before.pacing_rate.unwrap(), after.pacing_rate.unwrap());
                assert!(rates.1 as f64 >= 0.7 * rates.0 as f64, "{what}: {rates:?}");
            }
            assert!(after.cwnd as f64 >= 0.7 * before.cwnd as f64, "{what}");
            let second = pair.transfer(CLIENT, 4_000_000, secs(60));
            assert!(
                second <= first.mul_f64(1.25) + ms(rtt),
                "{what}: {second:?} after {first:?}"
            );
        }
    }
}

/// A reset stream takes its data back, never its packets: they are in flight until their fate
/// is known, and nothing is counted twice.
#[test]
fn a_reset_stream_releases_nothing_by_hand() {
    for congestion in ALGORITHMS {
        for rtt in [10, 137, 300] {
            let what = format!("{congestion}, {rtt} ms");
            let mut pair = Pair::connected(options(1, rtt, congestion));
            let id = pair.client().open(UNI).unwrap();
            let mut data = Bytes::from(common::pattern(300_000));
            let _ = pair.client().write(id, &mut data);
            pair.run_for(ms(rtt) * 3);
            pair.flush();
            let before = pair.client().stats();
            assert!(before.bytes_in_flight > 2000, "{what}");
            pair.client().reset(id, 7);
            let after = pair.client().stats();
            assert_eq!(
                (before.bytes_in_flight, before.cwnd),
                (after.bytes_in_flight, after.cwnd),
                "{what}"
            );
            pair.run_for(ms(rtt) * 3 + ms(500));
            let after = pair.client().stats();
            assert_eq!(
                (after.bytes_in_flight, after.packets_lost),
                (0, 0),
                "{what}"
            );
            assert!(after.cwnd >= before.cwnd, "{what}");
            assert_eq!(after.bytes_retransmitted, 0, "{what}");
            // Others go on as if nothing had been.
            assert!(pair.server().accept(UNI).is_some(), "{what}");
            pair.transfer(CLIENT, 200_000, secs(30));
        }
    }
}

/// The receiver waits 25 ms with its ACK; the smoothed round trip does not.
#[test]
fn the_round_trip_is_clean_of_the_peers_ack_delay() {
    for congestion in ALGORITHMS {
        for rtt in [10, 50, 137, 300] {
            let what = format!("{congestion}, {rtt} ms");
            let mut options = options(1, rtt, congestion);
            options.link = delay(rtt / 2);
            let mut pair = Pair::connected(options);
            pair.run_for(secs(1));
            for _ in 0..60 {
                pair.client().ping();
                pair.run_for(ms(rtt) + ms(100));
            }
            let stats = pair.client().stats();
            let rtt = ms(rtt / 2 * 2);
            assert!(
                stats.latest_rtt >= rtt + ms(24),
                "{what}: the ACK is late: {stats:?}"
            );
            assert!(
                stats.smoothed_rtt <= rtt + ms(2),
                "{what}: {:?}",
                stats.smoothed_rtt
            );
            assert!(
                stats.min_rtt.unwrap() <= rtt + ms(1),
                "{what}: {:?}",
                stats.min_rtt
            );
            assert_eq!(stats.probe_timeouts, 0, "{what}");
        }
    }
}

/// A xorshift: the switches of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Other controllers at random moments under loss: the transfer ends, nothing stalls, and no
/// switch is felt by the window.
#[test]
fn controllers_switched_while_running_neither_burst_nor_stall() {
    for rtt in [10, 50, 165, 300] {
        for seed in 1..=6 {
            let mut dice = Dice(seed * 0x9e37_79b9 + rtt);
            let what = format!("{rtt} ms, seed {seed}");
            let first = ALGORITHMS[dice.below(4) as usize];
            let mut options = options(seed, rtt, first);
            options.link.loss = LossModel::Bernoulli(0.005);
            options.back = Some(LinkConfig {
                loss: LossModel::Bernoulli(0.01),
                ..delay(rtt / 2)
            });
            let mut pair = Pair::connected(options);
            let id = pair.client().open(UNI).unwrap();
            let (total, mut left) = (3_000_000, 3_000_000_usize);
            let (mut accepted, mut got): (Option<StreamId>, Vec<u8>) = (None, Vec::new());
            let mut next = pair.now;
            let mut switches = 0;
            let mut progress = (pair.now, 0);
            pair.run_until(secs(600), |p| {
                while left > 0 {
                    let mut data = Bytes::from(vec![1; left.min(65_536)]);
                    match p.client().write(id, &mut data) {
                        Ok(n) => left -= n,
                        Err(_) => break,
                    }
                    if left == 0 {
                        p.client().finish(id).unwrap();
                    }
                }
                if p.now >= next && !p.client().is_closed() {
                    next = p.now + ms(20 + dice.below(6 * rtt));
                    let to = ALGORITHMS[dice.below(4) as usize];
                    let from = p.client().congestion();
                    let before = p.client().stats();
                    let now = p.now;
                    p.client().set_congestion(now, to);
                    let after = p.client().stats();
                    let share = after.cwnd as f64 / before.cwnd as f64;
                    // BBR's least window is four datagrams, the others' two.
                    let least = after.cwnd <= 4 * 1200 || before.cwnd <= 4 * 1200;
                    assert!(
                        (0.5..=1.5).contains(&share) || least,
                        "{what}: from {from} to {to}: {} to {}",
                        before.cwnd,
                        after.cwnd
                    );
                    assert_eq!(before.bytes_in_flight, after.bytes_in_flight, "{what}");
                    assert_eq!(before.smoothed_rtt, after.smoothed_rtt, "{what}");
                    assert_eq!(p.client().congestion(), to, "{what}");
                    assert!(after.pacing_rate.unwrap() > 0, "{what}");
                    switches += 1;
                }
                if accepted.is_none() {
                    accepted = p.server().accept(UNI);
                }
                let end = accepted.is_some_and(|id| p.read_available(SERVER, id, &mut got));
                if got.len() > progress.1 {
                    progress = (p.now, got.len());
                }
                let silent = p.now.saturating_duration_since(progress.0);
                assert!(
                    silent < secs(5) + ms(rtt) * 20,
                    "{what}: stalled at {} bytes",
                    got.len()
                );
                end
            });
            assert_eq!(got.len(), total, "{what}");
            assert!(switches >= 5, "{what}: {switches} switches");
        }
    }
}

/// An application below the path's rate, in portions that use up the pacer's burst, never fills
/// the window and so does not grow it; and its rate is no measure of the path.
#[test]
fn an_application_in_small_portions_neither_grows_the_window_nor_is_its_rate_the_paths() {
    for congestion in [Algorithm::Bbr, Algorithm::Cubic] {
        let link = LinkConfig {
            rate: Some(100_000_000),
            queue: Some(1_250_000),
            ..path(100)
        };
        let mut pair = Pair::connected(Options {
            link,
            ..options(1, 100, congestion)
        });
        let id = pair.client().open(UNI).unwrap();
        let mut out = Vec::new();
        let mut received = None;
        // 110 kB/s of a path of 12.5 MB/s: ten packets at a time.
        for _ in 0..150 {
            let mut data = Bytes::from(common::pattern(11_000));
            assert_eq!(pair.client().write(id, &mut data).unwrap(), 11_000);
            pair.flush();
            pair.run_for(ms(100));
            received = received.or_else(|| pair.server().accept(UNI));
            if let Some(id) = received {
                pair.read_available(1, id, &mut out);
                out.clear();
            }
        }
        let cwnd = pair.client().stats().cwnd;
        assert!(cwnd < 80_000, "{congestion}: {cwnd} for 11 kB in flight");
        let took = pair.transfer(CLIENT, 12_000_000, secs(60));
        assert!(took < ms(2500), "{congestion}: {took:?}");
    }
}
