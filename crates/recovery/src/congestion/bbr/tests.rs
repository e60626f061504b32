//! Each phase and its exits, one ACK per round trip unless a test says otherwise.

use core::time::Duration;

use proptest::prelude::*;

use super::model::FALL_MEMORY;
use super::*;
use crate::congestion::LostPacket;
use crate::congestion::tests::{DATAGRAM, SIZE};

/// 10 Mbit/s.
const RATE: u64 = 1_250_000;
const RTT: Duration = Duration::from_millis(40);
/// What `RATE` holds in `RTT`: 41.7 datagrams.
const BDP: u64 = 50_000;

struct Drive {
    bbr: Bbr,
    now: Time,
    rtt: Duration,
    delivered: u64,
    lost: u64,
    next_number: u64,
}

impl Drive {
    fn new() -> Self {
        Self {
            bbr: Bbr::new(SIZE, 7),
            now: Time::from_nanos(1_000_000_000_000),
            rtt: RTT,
            delivered: 0,
            lost: 0,
            next_number: 0,
        }
    }

    /// One round trip in which `rate` was delivered and nothing stood in a queue.
    fn round(&mut self, rate: u64) {
        self.round_with(rate, |_| ());
    }

    fn round_with(&mut self, rate: u64, change: impl FnOnce(&mut AckSample)) {
        self.now += self.rtt;
        let bytes = carried(rate, self.rtt);
        let prior_delivered = self.delivered;
        self.delivered += bytes;
        let mut sample = AckSample {
            acked_packets: bytes.div_ceil(DATAGRAM),
            newest_sent_time: self.now - self.rtt,
            bytes_in_flight_before: 2 * bytes,
            bytes_in_flight: bytes,
            rtt: Some(self.rtt),
            smoothed_rtt: self.rtt,
            delivered: self.delivered,
            prior_delivered,
            delivery_rate: Some(rate),
            tx_in_flight: bytes,
            ..crate::congestion::tests::ack(self.now, bytes)
        };
        change(&mut sample);
        self.bbr.on_ack(&sample);
    }

    /// Loses the packets that are `gaps` numbers apart, sent a round trip ago with this much in
    /// flight.
    fn lose(&mut self, gaps: &[u64], tx_in_flight: u64, app_limited: bool) -> bool {
        let before = self.lost;
        let mut packets = Vec::new();
        for gap in gaps {
            self.next_number += gap;
            packets.push(LostPacket {
                packet_number: self.next_number,
                size: SIZE,
                sent_time: self.now - self.rtt,
                delivered: self.delivered.saturating_sub(tx_in_flight),
                lost: before,
                tx_in_flight,
                app_limited,
            });
            self.lost += DATAGRAM;
        }
        self.bbr.on_lost(&LossSample {
            bytes: self.lost - before,
            delivered: self.delivered,
            lost: self.lost,
            packets: &packets,
            ..crate::congestion::tests::loss(self.now, self.now - self.rtt)
        })
    }

    /// The window is full when the next ACK's packets leave.
    fn fill_window(&mut self) {
        self.bbr.on_sent(&SendSample {
            now: self.now,
            bytes: DATAGRAM,
            bytes_in_flight: self.bbr.controls.window - DATAGRAM,
            app_limited: false,
        });
    }

    fn rounds_until(&mut self, state: State, rate: u64) {
        for _ in 0..500 {
            if self.bbr.phases.state == state {
                return;
            }
            self.round(rate);
        }
        panic!("{state:?} was not reached from {:?}", self.bbr.phases.state);
    }

    fn in_state(state: State) -> Self {
        let mut drive = Self::new();
        drive.rounds_until(state, RATE);
        drive
    }
}

#[test]
fn gains_belong_to_the_state() {
    let mut drive = Drive::new();
    for (state, pacing, window) in [
        (State::Startup, 277, 200),
        (State::Drain, 50, 200),
        (State::Down, 90, 200),
        (State::Cruise, 100, 200),
        (State::Refill, 100, 200),
        (State::Up, 125, 225),
        (State::Down, 90, 200),
    ] {
        if state == State::Drain {
            // One round with a queue, or Drain ends as it begins.
            for _ in 0..3 {
                drive.round(RATE);
            }
            drive.round_with(RATE, |ack| ack.bytes_in_flight = 3 * BDP);
        }
        drive.rounds_until(state, RATE);
        assert_eq!(state.pacing_gain(), pacing, "{state:?}");
        assert_eq!(state.window_gain(), window, "{state:?}");
        if state != State::Startup {
            assert_eq!(
                drive.bbr.controls.pacing_rate,
                RATE * pacing / 100 * 99 / 100,
                "{state:?}"
            );
        }
    }
}

#[test]
fn startup_doubles_until_the_rate_stays_flat_for_three_rounds() {
    let mut drive = Drive::new();
    for doubling in 0..4 {
        drive.round(RATE << doubling);
        assert_eq!(drive.bbr.phases.state, State::Startup);
        assert!(drive.bbr.in_slow_start());
    }
    for _ in 0..2 {
        drive.round(RATE << 3);
        assert_eq!(drive.bbr.phases.state, State::Startup);
    }
    drive.round_with(RATE << 3, |ack| ack.bytes_in_flight = 100 * BDP);
    assert_eq!(drive.bbr.phases.state, State::Drain);
    assert!(!drive.bbr.in_slow_start());
}

#[test]
fn an_application_limited_sender_stays_in_startup() {
    let mut drive = Drive::new();
    for _ in 0..50 {
        drive.round_with(RATE, |ack| ack.app_limited = true);
    }
    assert_eq!(drive.bbr.phases.state, State::Startup);
    assert_eq!(
        drive.bbr.model.max_bw(),
        RATE,
        "its rates still count upwards"
    );
}

#[test]
fn the_first_pacing_rate_spreads_the_initial_window() {
    let mut drive = Drive::new();
    assert_eq!(drive.bbr.pacing_rate(), Some(12_000 * 1000 * 277 / 100));
    drive.round_with(RATE, |ack| ack.delivery_rate = None);
    // The window has grown meanwhile, and with it the pace of a slow start.
    let slow_start = |window: u64| Some(window * 25 * 150 / 100);
    assert!(drive.bbr.window() > 12_000 * 277 / 150);
    assert_eq!(drive.bbr.pacing_rate(), slow_start(drive.bbr.window()));
    drive.round_with(RATE, |ack| ack.delivery_rate = Some(10));
    assert_eq!(
        drive.bbr.pacing_rate(),
        slow_start(drive.bbr.window()),
        "a low first sample does not slow Startup down"
    );
}

/// A second round of Startup, at `rate`, with `gaps` lost out of `tx_in_flight`.
fn startup_with_losses(gaps: &[u64], tx_in_flight: u64, rate: u64, app_limited: bool) -> Drive {
    let mut drive = Drive::new();
    drive.round(RATE);
    drive.lose(gaps, tx_in_flight, app_limited);
    let lost = gaps.len() as u64 * DATAGRAM;
    drive.round_with(rate, |ack| {
        ack.lost_since_sent = lost;
        ack.tx_in_flight = tx_in_flight;
        ack.app_limited = app_limited;
        ack.bytes_in_flight = 100 * BDP;
    });
    drive
}

#[test]
fn startup_ends_on_six_lost_ranges_beyond_two_per_cent() {
    let drive = startup_with_losses(&[2; 6], 2 * BDP, RATE, false);
    assert_eq!(drive.bbr.phases.state, State::Drain);
    assert_eq!(drive.bbr.model.inflight_long, Some(BDP));
    let five = startup_with_losses(&[2; 5], 2 * BDP, RATE, false);
    assert_eq!(five.bbr.phases.state, State::Startup, "five ranges");
    let few = startup_with_losses(&[2; 6], 10 * BDP, RATE, false);
    assert_eq!(few.bbr.phases.state, State::Startup, "1.4 %");
}

#[test]
fn a_startup_without_a_queue_bears_a_tenth_lost_while_it_grows() {
    for (rate, app_limited) in [(2 * RATE, false), (2 * RATE, true), (RATE, true)] {
        let drive = startup_with_losses(&[2; 8], 2 * BDP, rate, app_limited);
        assert_eq!(drive.bbr.phases.state, State::Startup, "9.6 %");
        let drive = startup_with_losses(&[2; 9], 2 * BDP, rate, app_limited);
        assert_eq!(drive.bbr.phases.state, State::Drain, "10.8 %");
    }
    let mut drive = Drive::new();
    drive.round(RATE);
    drive.rtt = RTT * 3 / 2;
    for growth in 1..3 {
        assert_eq!(drive.bbr.phases.state, State::Startup);
        drive.lose(&[2; 6], 2 * BDP, false);
        drive.round_with(RATE << growth, |ack| {
            ack.lost_since_sent = 6 * DATAGRAM;
            ack.tx_in_flight = 2 * BDP;
            ack.bytes_in_flight = 100 * BDP;
        });
    }
    assert_eq!(drive.bbr.phases.state, State::Drain, "a round with a queue");
}

#[test]
fn a_burst_is_one_range_however_it_is_reported() {
    let mut drive = Drive::new();
    drive.round(RATE);
    for _ in 0..40 {
        drive.lose(&[1], 2 * BDP, false);
    }
    drive.round_with(2 * RATE, |ack| {
        ack.lost_since_sent = 40 * DATAGRAM;
        ack.bytes_in_flight = 100 * BDP;
    });
    assert_eq!(drive.bbr.phases.state, State::Startup);
}

#[test]
fn drain_ends_when_the_queue_is_gone_or_after_three_rounds() {
    let full = |ack: &mut AckSample| ack.bytes_in_flight = 3 * BDP;
    let enter = || {
        let mut drive = Drive::new();
        for _ in 0..4 {
            drive.round_with(RATE, full);
        }
        assert_eq!(drive.bbr.phases.state, State::Drain);
        drive
    };
    let mut drive = enter();
    drive.round_with(RATE, |ack| ack.bytes_in_flight = BDP + 1);
    assert_eq!(drive.bbr.phases.state, State::Drain);
    drive.round_with(RATE, |ack| ack.bytes_in_flight = BDP);
    assert_eq!(
        drive.bbr.phases.state,
        State::Cruise,
        "through DOWN at once"
    );

    let mut drive = enter();
    for _ in 0..3 {
        drive.round_with(RATE, full);
        assert_eq!(drive.bbr.phases.state, State::Drain);
    }
    drive.round_with(RATE, full);
    assert_eq!(drive.bbr.phases.state, State::Down);
}

#[test]
fn down_ends_with_headroom_and_without_a_queue() {
    let mut drive = Drive::in_state(State::Down);
    drive.bbr.model.inflight_long = Some(BDP);
    let at = |bytes: u64| {
        move |ack: &mut AckSample| {
            ack.bytes_in_flight = bytes;
            ack.tx_in_flight = 0;
        }
    };
    drive.round_with(RATE, at(BDP * 85 / 100 + 1));
    assert_eq!(drive.bbr.phases.state, State::Down);
    drive.round_with(RATE, at(BDP * 85 / 100));
    assert_eq!(drive.bbr.phases.state, State::Cruise);
    assert_eq!(
        drive.bbr.window(),
        BDP * 85 / 100,
        "cruising leaves headroom"
    );
}

#[test]
fn down_gives_way_to_a_probe_when_the_queue_never_drains() {
    let mut drive = Drive::in_state(State::Down);
    let start = drive.now;
    while drive.bbr.phases.state == State::Down {
        drive.round_with(RATE, |ack| ack.bytes_in_flight = 2 * BDP);
    }
    assert_eq!(drive.bbr.phases.state, State::Refill);
    assert!(drive.now.saturating_duration_since(start) <= Duration::from_secs(3) + RTT);
}

#[test]
fn a_flow_with_a_small_bdp_probes_as_often_as_reno_would() {
    // 41 datagrams: 41 rounds of 40 ms are less than two seconds.
    let mut drive = Drive::in_state(State::Cruise);
    let start = drive.bbr.phases.round.count - drive.bbr.phases.cycle.rounds_since_probe;
    drive.rounds_until(State::Refill, RATE);
    assert_eq!(drive.bbr.phases.round.count - start, BDP / DATAGRAM);
    // 4167 datagrams: the clock decides.
    let mut drive = Drive::new();
    drive.rounds_until(State::Cruise, 100 * RATE);
    let start = drive.now;
    drive.rounds_until(State::Refill, 100 * RATE);
    let waited = drive.now.saturating_duration_since(start).as_secs_f64();
    assert!((1.8..3.1).contains(&waited), "{waited}");
}

#[test]
fn seeds_decide_when_to_probe() {
    let wait = |seed| {
        let mut drive = Drive::new();
        drive.bbr = drive.bbr.with_seed(seed);
        drive.rounds_until(State::Refill, 100 * RATE);
        drive.now
    };
    assert_eq!(wait(1), wait(1));
    let waits: std::collections::BTreeSet<Time> = (0..20).map(wait).collect();
    assert!(waits.len() > 8, "{waits:?}");
}

#[test]
fn refill_lasts_a_round_and_up_until_the_rate_stays_flat() {
    let mut drive = Drive::in_state(State::Refill);
    drive.round(RATE);
    assert_eq!(drive.bbr.phases.state, State::Up);
    // Growth keeps it going.
    for step in 1..6 {
        drive.round(RATE + RATE * step / 2);
    }
    assert_eq!(drive.bbr.phases.state, State::Up);
    for _ in 0..2 {
        drive.round(RATE * 7 / 2);
        assert_eq!(drive.bbr.phases.state, State::Up);
    }
    drive.round(RATE * 7 / 2);
    assert_eq!(drive.bbr.phases.state, State::Down);
    assert_eq!(drive.bbr.model.inflight_long, None, "no loss, no bound");
}

#[test]
fn up_outlasts_application_limited_rounds_without_loss() {
    let mut drive = Drive::in_state(State::Up);
    for _ in 0..50 {
        drive.round_with(RATE / 2, |ack| ack.app_limited = true);
    }
    assert_eq!(drive.bbr.phases.state, State::Up);
    assert_eq!(drive.bbr.model.max_bw(), RATE);
}

#[test]
fn too_much_loss_ends_up_and_bounds_the_volume() {
    let mut drive = Drive::in_state(State::Up);
    drive.lose(&[2], 2 * BDP, false);
    assert_eq!(drive.bbr.phases.state, State::Up, "1.2 %");
    drive.lose(&[2, 2], 2 * BDP, false);
    assert_eq!(drive.bbr.phases.state, State::Down);
    // 2 % of 100 kB less the packet is crossed a few bytes into the packet before it.
    let long = drive.bbr.model.inflight_long.unwrap();
    assert!((2 * BDP - 2 * DATAGRAM..2 * BDP).contains(&long), "{long}");

    let mut drive = Drive::in_state(State::Up);
    drive.lose(&[2, 2, 2], 10_000, false);
    let least = drive.bbr.model.inflight_long.unwrap();
    assert_eq!(least, BDP * 70 / 100, "never below beta times the target");

    let mut drive = Drive::in_state(State::Up);
    drive.lose(&[2, 2, 2], 2 * BDP, true);
    assert_eq!(drive.bbr.phases.state, State::Down);
    assert_eq!(drive.bbr.model.inflight_long, None, "application-limited");
}

#[test]
fn the_probe_after_a_lossy_one_is_careful_and_success_is_followed_up() {
    let mut drive = Drive::in_state(State::Up);
    drive.lose(&[2, 2, 2], 2 * BDP, false);
    let long = drive.bbr.model.inflight_long.unwrap();
    drive.rounds_until(State::Up, RATE);
    let reach = |bytes: u64| {
        move |ack: &mut AckSample| {
            ack.bytes_in_flight_before = bytes;
            ack.tx_in_flight = bytes;
        }
    };
    drive.round_with(RATE, reach(long - 2 * DATAGRAM));
    assert_eq!(drive.bbr.phases.state, State::Up);
    drive.round_with(RATE, reach(long));
    assert_eq!(
        drive.bbr.phases.state,
        State::Down,
        "the known volume is reached"
    );
    drive.round(RATE);
    assert_eq!(
        drive.bbr.phases.state,
        State::Refill,
        "no loss in a round: on at once"
    );
    drive.round(RATE);
    drive.round_with(RATE, reach(long));
    assert_eq!(drive.bbr.phases.state, State::Up, "this time it stays");
}

#[test]
fn the_known_volume_grows_by_one_two_four_datagrams_a_round() {
    let mut drive = Drive::in_state(State::Refill);
    drive.bbr.model.inflight_long = Some(BDP);
    drive.bbr.controls.window = BDP;
    drive.round_with(RATE, |ack| ack.tx_in_flight = 0);
    let mut grown = Vec::new();
    for _ in 0..5 {
        let before = drive.bbr.model.inflight_long.unwrap();
        drive.bbr.controls.window = before;
        drive.fill_window();
        let bytes = before;
        drive.round_with(RATE, |ack| {
            ack.tx_in_flight = 0;
            ack.acked_bytes = bytes;
        });
        grown.push((drive.bbr.model.inflight_long.unwrap() - before) / DATAGRAM);
    }
    // The flight grows meanwhile, so later rounds acknowledge a little more than was planned for.
    assert_eq!(grown, [1, 2, 4, 9, 19]);
    assert_eq!(
        drive.bbr.phases.state,
        State::Up,
        "held back by the bound: not a plateau"
    );
}

#[test]
fn losses_while_cruising_follow_the_delivery_by_no_more_than_beta() {
    let mut drive = Drive::in_state(State::Cruise);
    drive.round(RATE / 2);
    drive.lose(&[2], 2 * BDP, false);
    drive.round(RATE / 2);
    let model = &drive.bbr.model;
    assert_eq!(model.bw_short, Some(RATE * 70 / 100));
    assert_eq!(model.bw(), RATE * 70 / 100);
    assert_eq!(model.max_bw(), RATE, "the long-term model keeps");
    drive.lose(&[2], 2 * BDP, false);
    drive.round(RATE * 9 / 10);
    assert_eq!(drive.bbr.model.bw(), RATE * 9 / 10, "what was delivered");
    drive.rounds_until(State::Refill, RATE);
    assert_eq!(drive.bbr.model.bw(), RATE);
    assert_eq!(drive.bbr.model.inflight_short, None);
}

#[test]
fn losses_while_probing_leave_the_short_term_model_alone() {
    for state in [State::Startup, State::Refill, State::Up] {
        let mut drive = Drive::in_state(state);
        drive.lose(&[2], 100 * BDP, false);
        drive.round(RATE / 2);
        assert_eq!(drive.bbr.model.bw_short, None, "{state:?}");
    }
}

#[test]
fn a_standing_queue_after_a_loss_disproves_the_bandwidth() {
    let queue = |ack: &mut AckSample| ack.rtt = Some(RTT * 3);
    let mut drive = Drive::in_state(State::Cruise);
    drive.round_with(RATE / 5, queue);
    assert_eq!(drive.bbr.model.bw(), RATE, "delay alone is no evidence");
    drive.lose(&[2], 2 * BDP, false);
    drive.round_with(RATE / 5, queue);
    drive.round_with(RATE / 5, queue);
    assert_eq!(drive.bbr.model.bw(), RATE / 5);
    drive.rounds_until(State::Refill, RATE / 5);
    assert_eq!(
        drive.bbr.model.bw(),
        RATE / 5,
        "the probe starts from there"
    );
    drive.rounds_until(State::Up, RATE / 5);
    drive.round(RATE);
    assert_eq!(drive.bbr.model.bw(), RATE, "and finds the old rate again");
}

/// A path at a tenth of its rate, as a standing queue showed after a loss.
fn fallen() -> Drive {
    let queue = |ack: &mut AckSample| ack.rtt = Some(RTT * 3);
    let mut drive = Drive::in_state(State::Cruise);
    drive.lose(&[2], 2 * BDP, false);
    for _ in 0..3 {
        drive.round_with(RATE / 10, queue);
    }
    drive.rounds_until(State::Refill, RATE / 10);
    assert!(drive.bbr.model.has_fallen(drive.now));
    drive
}

#[test]
fn a_path_that_fell_is_asked_every_few_rounds_for_half_a_minute() {
    let rounds_between_probes = |drive: &mut Drive| {
        drive.rounds_until(State::Up, RATE / 10);
        drive.rounds_until(State::Down, RATE / 10);
        let before = drive.now;
        drive.rounds_until(State::Refill, RATE / 10);
        drive
            .now
            .saturating_duration_since(before)
            .div_duration_f64(RTT)
    };
    let mut drive = fallen();
    let rounds = rounds_between_probes(&mut drive);
    assert!((3.0..=4.0).contains(&rounds), "{rounds}");
    // The path holds four datagrams at this rate: Reno would probe as often. A longer one shows
    // the end of the half minute.
    drive.now += FALL_MEMORY;
    assert!(!drive.bbr.model.has_fallen(drive.now));
}

#[test]
fn a_probe_that_finds_a_fallen_path_fast_again_goes_on_as_startup() {
    let mut drive = fallen();
    drive.rounds_until(State::Up, RATE / 10);
    drive.round(RATE / 10);
    assert_eq!(drive.bbr.phases.state, State::Up);
    drive.round(RATE / 8);
    assert_eq!(drive.bbr.phases.state, State::Startup);
    drive.round(RATE);
    assert!(!drive.bbr.model.has_fallen(drive.now), "it is back");
    // What was there before is found with Startup's gain, and no more often than before.
    drive.rounds_until(State::Down, RATE);
    assert_eq!(drive.bbr.model.max_bw(), RATE);
}

#[test]
fn a_probe_that_makes_a_queue_on_a_fallen_path_ends() {
    let queue = |ack: &mut AckSample| ack.rtt = Some(RTT * 3 / 2);
    let mut drive = fallen();
    drive.rounds_until(State::Up, RATE / 10);
    drive.round_with(RATE / 10, queue);
    assert_eq!(drive.bbr.phases.state, State::Up);
    drive.round_with(RATE / 8, queue);
    assert_eq!(
        drive.bbr.phases.state,
        State::Down,
        "although more was delivered"
    );
}

/// Rounds of 50 BDP, in each of which this many datagrams of a thousand are lost.
fn lossy_rounds(drive: &mut Drive, rounds: u32, per_thousand: u64) {
    for _ in 0..rounds {
        let packets = 50 * BDP / DATAGRAM;
        let lost = (packets * per_thousand).div_ceil(1000);
        let gaps = vec![2; lost as usize];
        drive.lose(&gaps, 50 * BDP, false);
        drive.round(50 * RATE);
    }
}

#[test]
fn losses_that_slowing_down_does_not_end_are_the_paths_own() {
    let mut drive = Drive::new();
    drive.rounds_until(State::Cruise, 50 * RATE);
    assert_eq!(drive.bbr.model.loss_threshold(drive.now), 20_000);
    lossy_rounds(&mut drive, 3, 30);
    assert_eq!(
        drive.bbr.model.loss_threshold(drive.now),
        20_000,
        "it reacts first"
    );
    assert!(drive.bbr.model.bw_short.is_some());
    lossy_rounds(&mut drive, 3, 30);
    let threshold = drive.bbr.model.loss_threshold(drive.now);
    assert!((48_000..52_000).contains(&threshold), "{threshold}");
    for state in [State::Refill, State::Up, State::Down, State::Cruise] {
        while drive.bbr.phases.state != state {
            lossy_rounds(&mut drive, 1, 30);
        }
    }
    lossy_rounds(&mut drive, 6, 30);
    assert_eq!(drive.bbr.model.bw_short, None, "no more than ever");
    lossy_rounds(&mut drive, 2, 80);
    assert!(drive.bbr.model.bw_short.is_some(), "more than twice that");
}

#[test]
fn the_rate_is_forgotten_after_two_probing_cycles() {
    let mut drive = Drive::in_state(State::Cruise);
    drive.round(RATE);
    for expected in [RATE, RATE / 10] {
        assert_eq!(drive.bbr.model.max_bw(), RATE);
        drive.rounds_until(State::Up, RATE / 10);
        drive.rounds_until(State::Cruise, RATE / 10);
        drive.round(RATE / 10);
        assert_eq!(drive.bbr.model.max_bw(), expected);
    }
}

#[test]
fn an_application_limited_cycle_does_not_age_the_rate() {
    let mut drive = Drive::in_state(State::Cruise);
    let limited = |ack: &mut AckSample| ack.app_limited = true;
    for _ in 0..2000 {
        drive.round_with(RATE / 10, limited);
    }
    assert_eq!(drive.bbr.model.max_bw(), RATE);
}

/// Rounds with a growing round trip until ProbeRTT begins.
fn in_probe_rtt(mut drive: Drive, rate: u64) -> Drive {
    let start = drive.now;
    while drive.bbr.phases.state != State::ProbeRtt {
        drive.round_with(rate, |ack| {
            ack.rtt = Some(RTT + Duration::from_millis(1));
            ack.app_limited = true;
        });
    }
    let waited = drive.now.saturating_duration_since(start);
    assert!(waited > Duration::from_secs(4) && waited <= Duration::from_millis(5200));
    drive
}

#[test]
fn probe_rtt_halves_the_volume_for_a_round_and_200_ms() {
    let mut drive = in_probe_rtt(Drive::in_state(State::Cruise), RATE);
    assert!(drive.bbr.is_holding_back());
    let half = |ack: &mut AckSample| ack.bytes_in_flight = BDP / 2;
    drive.round(RATE);
    assert_eq!(drive.bbr.window(), BDP / 2);
    let start = drive.now;
    drive.round_with(RATE / 2, half);
    let mut rounds = 0;
    while drive.bbr.phases.state == State::ProbeRtt {
        drive.round_with(RATE / 2, half);
        rounds += 1;
    }
    assert_eq!(drive.bbr.phases.state, State::Cruise);
    assert!(!drive.bbr.is_holding_back());
    assert!(drive.now.saturating_duration_since(start) > Duration::from_millis(200));
    assert!(rounds <= 7, "{rounds}");
    assert!(
        drive.bbr.window() >= 2 * BDP,
        "{} restored",
        drive.bbr.window()
    );
    drive.round(RATE);
    assert!(
        drive.bbr.window() >= 2 * BDP,
        "and not capped by a gain left behind"
    );
}

#[test]
fn probe_rtt_ends_on_a_path_that_holds_less_than_its_floor() {
    let rate = 20_000;
    let mut drive = Drive::new();
    drive.rounds_until(State::Cruise, rate);
    let mut drive = in_probe_rtt(drive, rate);
    let floor = |ack: &mut AckSample| ack.bytes_in_flight = 4 * DATAGRAM;
    for _ in 0..10 {
        drive.round_with(rate, floor);
        assert!(drive.bbr.window() >= 4 * DATAGRAM);
    }
    assert_ne!(drive.bbr.phases.state, State::ProbeRtt);
}

#[test]
fn probe_rtt_in_startup_goes_back_to_startup() {
    let mut drive = in_probe_rtt(Drive::new(), RATE);
    for _ in 0..10 {
        drive.round_with(RATE, |ack| {
            ack.bytes_in_flight = 0;
            ack.app_limited = true;
        });
    }
    assert_eq!(drive.bbr.phases.state, State::Startup);
}

#[test]
fn the_first_ack_does_not_start_probe_rtt() {
    let mut drive = Drive::new();
    drive.round(RATE);
    assert_eq!(drive.bbr.phases.state, State::Startup);
}

#[test]
fn silence_replaces_probe_rtt() {
    let mut drive = Drive::in_state(State::Cruise);
    drive.now += Duration::from_secs(6);
    drive.bbr.on_sent(&SendSample {
        now: drive.now,
        bytes: DATAGRAM,
        bytes_in_flight: 0,
        app_limited: true,
    });
    assert_eq!(drive.bbr.pacing_rate(), Some(RATE * 99 / 100));
    drive.round(RATE);
    assert_ne!(drive.bbr.phases.state, State::ProbeRtt);
}

#[test]
fn silence_during_probe_rtt_ends_it() {
    let mut drive = in_probe_rtt(Drive::in_state(State::Cruise), RATE);
    drive.round_with(RATE, |ack| ack.bytes_in_flight = 0);
    drive.now += Duration::from_secs(1);
    drive.bbr.on_sent(&SendSample {
        now: drive.now,
        bytes: DATAGRAM,
        bytes_in_flight: 0,
        app_limited: true,
    });
    assert_eq!(drive.bbr.phases.state, State::Cruise);
    assert!(drive.bbr.window() >= 2 * BDP);
}

#[test]
fn a_longer_path_is_believed_after_ten_seconds() {
    let mut drive = Drive::in_state(State::Cruise);
    drive.rtt = RTT * 2;
    let start = drive.now;
    while drive.bbr.min_rtt.get() == Some(RTT) {
        drive.round_with(RATE, |ack| ack.bytes_in_flight = BDP / 4);
    }
    assert_eq!(drive.bbr.min_rtt.get(), Some(RTT * 2));
    let waited = drive.now.saturating_duration_since(start);
    assert!(
        waited > Duration::from_secs(9) && waited < Duration::from_secs(13),
        "{waited:?}"
    );
}

#[test]
fn persistent_congestion_costs_the_window_but_not_the_model() {
    let mut drive = Drive::in_state(State::Cruise);
    drive.round(RATE);
    let window = drive.bbr.window();
    drive.lose(&[2], 2 * BDP, false);
    drive.bbr.on_persistent_congestion(drive.now);
    assert_eq!(drive.bbr.window(), 2 * DATAGRAM);
    assert_eq!(drive.bbr.min_rtt.get(), Some(RTT));
    assert_eq!(drive.bbr.model.max_bw(), RATE);
    assert!(
        !drive.bbr.on_spurious_loss(drive.now),
        "too long for a mistake"
    );
    // The ACK of a packet sent since ends recovery.
    drive.now += Duration::from_millis(1);
    drive.round(RATE);
    drive.round(RATE);
    assert!(drive.bbr.window() * 2 > window, "{}", drive.bbr.window());
}

#[test]
fn a_loss_proven_spurious_brings_the_probe_back() {
    let mut drive = startup_with_losses(&[2; 6], 2 * BDP, RATE, false);
    assert_eq!(drive.bbr.phases.state, State::Drain);
    assert!(drive.bbr.on_spurious_loss(drive.now));
    assert_eq!(drive.bbr.phases.state, State::Startup);
    assert_eq!(drive.bbr.model.inflight_long, None);
    assert!(!drive.bbr.on_spurious_loss(drive.now), "only once");

    let mut drive = Drive::in_state(State::Up);
    assert!(drive.lose(&[2, 2, 2], 2 * BDP, false), "a recovery period");
    assert_eq!(drive.bbr.phases.state, State::Down);
    assert!(!drive.lose(&[2], 2 * BDP, false), "the same one");
    assert!(drive.bbr.on_spurious_loss(drive.now));
    assert_eq!(
        drive.bbr.phases.state,
        State::Refill,
        "the later loss saved nothing anew"
    );
    assert_eq!(drive.bbr.model.inflight_long, None);
}

#[test]
fn a_probe_that_marks_ended_stays_ended_whatever_became_of_a_loss() {
    let mut drive = Drive::in_state(State::Up);
    drive.lose(&[2], 2 * BDP, false);
    drive.round_with(RATE, |ack| ack.ce_marks = ack.acked_packets);
    assert_eq!(drive.bbr.phases.state, State::Down);
    drive.bbr.on_spurious_loss(drive.now);
    assert_eq!(drive.bbr.phases.state, State::Down);
}

#[test]
fn marks_cut_the_volume_once_a_round() {
    let mut drive = Drive::in_state(State::Cruise);
    let window = drive.bbr.window();
    let alpha_before = drive.bbr.ecn.clone();
    let marked = |ack: &mut AckSample| ack.ce_marks = ack.acked_packets / 4;
    drive.round_with(RATE, marked);
    let first = drive.bbr.model.inflight_short.unwrap();
    assert!(first < window, "{first} {alpha_before:?}");
    assert!(first > window * 2 / 3);
    // A second ACK within the round changes nothing.
    let delivered = drive.delivered;
    drive.round_with(RATE, |ack| {
        ack.prior_delivered = delivered - 1;
        ack.ce_marks = 10;
    });
    assert_eq!(drive.bbr.model.inflight_short, Some(first));
}

#[test]
fn mostly_marked_rounds_end_startup_and_up() {
    let marked = |ack: &mut AckSample| {
        ack.ce_marks = ack.acked_packets * 3 / 4;
        ack.bytes_in_flight = 100 * BDP;
    };
    let mut drive = Drive::new();
    drive.round_with(RATE, marked);
    assert_eq!(drive.bbr.phases.state, State::Startup);
    drive.round_with(2 * RATE, marked);
    assert_eq!(drive.bbr.phases.state, State::Drain);

    let mut drive = Drive::in_state(State::Up);
    drive.round_with(RATE, marked);
    assert_eq!(drive.bbr.phases.state, State::Down);
    assert!(drive.bbr.model.inflight_long.is_some());
}

#[test]
fn another_path_starts_afresh() {
    let mut drive = Drive::in_state(State::Cruise);
    drive.bbr.on_path_change(drive.now, SIZE);
    assert_eq!(drive.bbr.phases.state, State::Startup);
    assert_eq!(drive.bbr.window(), 12_000);
    assert!(!drive.lose(&[2; 6], 2 * BDP, false), "lost on the old path");
    let before = drive.now - RTT;
    drive.round_with(RATE, |ack| ack.newest_sent_time = before);
    assert_eq!(drive.bbr.model.max_bw(), 0, "measured on the old path");
    assert_eq!(drive.bbr.window(), 12_000);
    drive.round(RATE);
    assert_eq!(drive.bbr.model.max_bw(), RATE);
}

#[test]
fn a_smaller_datagram_during_the_handshake_restarts_the_window() {
    let mut bbr = Bbr::new(1472, 0);
    bbr.on_max_datagram_size(1200, true);
    assert_eq!(bbr.window(), 12_000);
    bbr.on_max_datagram_size(1400, false);
    assert_eq!(bbr.window(), 12_000, "the window in bytes stays");
}

#[test]
fn lumps_of_acks_widen_the_window() {
    // 41 datagrams arrive in one lump every 40 ms, on a path whose round trip is 10 ms.
    let mut drive = Drive::in_state(State::Cruise);
    drive.bbr.min_rtt.on_ack(drive.now, Some(RTT / 4));
    for _ in 0..3 {
        drive.round(RATE);
    }
    let extra = drive.bbr.aggregation.extra_acked();
    assert!(extra >= BDP * 9 / 10, "{extra}");
    assert_eq!(drive.bbr.window(), BDP / 2 + extra);
}

#[test]
fn excess_acks_are_forgotten_after_ten_rounds() {
    let mut aggregation = Aggregation::new();
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    aggregation.on_ack(at(10), 1000, 100_000, 1_000_000, 1, false);
    aggregation.on_ack(at(10), 50_000, 100_000, 1_000_000, 1, false);
    assert_eq!(aggregation.extra_acked(), 51_000);
    for round in 2..=11 {
        let now = at(10 + round * 1000);
        aggregation.on_ack(now, 1000, 100_000, 1_000_000, round, false);
        assert_eq!(aggregation.extra_acked(), 51_000, "{round}");
    }
    aggregation.on_ack(at(20_000), 1000, 100_000, 1_000_000, 12, false);
    assert_eq!(aggregation.extra_acked(), 1000);
    aggregation.on_ack(at(20_000), 5000, 100_000, 2000, 12, false);
    assert_eq!(aggregation.extra_acked(), 2000, "never above the window");
}

#[test]
fn probing_phases_ask_for_more_acks() {
    for (state, least) in [
        (State::Startup, 4),
        (State::Cruise, 2),
        (State::Refill, 4),
        (State::Up, 4),
        (State::Down, 2),
    ] {
        let drive = Drive::in_state(state);
        assert_eq!(drive.bbr.least_ack_rate().per_round, least, "{state:?}");
    }
}

#[test]
fn a_quantum_is_a_millisecond_within_limits() {
    let mut bbr = Bbr::new(SIZE, 0);
    assert_eq!(
        bbr.send_quantum(),
        None,
        "Startup may burst the initial window"
    );
    bbr.phases.state = State::Cruise;
    for (rate, quantum) in [(1, 2 * DATAGRAM), (10_000_000, 10_000), (u64::MAX, 65_536)] {
        bbr.controls.pacing_rate = rate;
        assert_eq!(bbr.send_quantum(), Some(quantum));
    }
}

#[test]
fn a_path_without_any_round_trip_still_moves() {
    let mut drive = Drive::new();
    drive.rtt = Duration::ZERO;
    for _ in 0..100 {
        drive.round_with(RATE, |ack| {
            ack.delivery_rate = None;
            ack.acked_bytes = DATAGRAM;
        });
    }
    assert!(drive.bbr.window() >= 12_000);
    assert!(drive.bbr.pacing_rate() > Some(RATE));
}

#[derive(Clone, Debug)]
enum Fact {
    Ack {
        bytes: u64,
        rtt: Option<u64>,
        rate: Option<u64>,
        app_limited: bool,
        marks: u64,
        back: u64,
        inflight: u64,
    },
    Loss {
        packets: u8,
        inflight: u64,
    },
    Spurious,
    Persistent,
    Path,
    Send {
        inflight: u64,
        app_limited: bool,
    },
    Size(u16),
}

fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![0..200_000u64, Just(0), Just(u64::MAX)]
}

fn fact() -> impl Strategy<Value = Fact> {
    let ack = (
        0..100_000u64,
        prop::option::of(prop_oneof![Just(0), 0..60_000_000_000u64]),
        prop::option::of(any_size()),
        any::<bool>(),
        0..100u64,
        0..200_000u64,
        any_size(),
    );
    prop_oneof![
        20 => ack.prop_map(|(bytes, rtt, rate, app_limited, marks, back, inflight)| Fact::Ack {
            bytes, rtt, rate, app_limited, marks, back, inflight
        }),
        4 => (1..20u8, any_size()).prop_map(|(packets, inflight)| Fact::Loss { packets, inflight }),
        1 => Just(Fact::Spurious),
        1 => Just(Fact::Persistent),
        1 => Just(Fact::Path),
        2 => (any_size(), any::<bool>())
            .prop_map(|(inflight, app_limited)| Fact::Send { inflight, app_limited }),
        1 => (1200..9000u16).prop_map(Fact::Size),
    ]
}

proptest! {
    #[test]
    fn nothing_a_path_can_do_breaks_the_bounds(
        facts in prop::collection::vec((fact(), prop_oneof![0..1u64 << 34, Just(1 << 62)]), 1..400),
        seed: u64,
    ) {
        let mut bbr = Bbr::new(SIZE, seed);
        let (mut now, mut delivered, mut lost, mut size) = (Time::ZERO, 0u64, 0u64, SIZE);
        let mut number = 0;
        for (fact, gap) in facts {
            now += Duration::from_nanos(gap);
            match fact {
                Fact::Ack { bytes, rtt, rate, app_limited, marks, back, inflight } => {
                    delivered += bytes;
                    let rtt = rtt.map(Duration::from_nanos);
                    bbr.on_ack(&AckSample {
                        rtt,
                        smoothed_rtt: rtt.unwrap_or_default(),
                        newest_sent_time: now - rtt.unwrap_or_default(),
                        delivered,
                        prior_delivered: delivered.saturating_sub(back),
                        delivery_rate: rate,
                        tx_in_flight: inflight,
                        bytes_in_flight: inflight,
                        bytes_in_flight_before: inflight,
                        lost_since_sent: lost.min(inflight),
                        app_limited,
                        ce_marks: marks,
                        ..crate::congestion::tests::ack(now, bytes)
                    });
                }
                Fact::Loss { packets, inflight } => {
                    let before = lost;
                    let mut batch = Vec::new();
                    for _ in 0..packets {
                        number += 1 + inflight % 2;
                        lost += u64::from(size);
                        batch.push(LostPacket {
                            packet_number: number,
                            size,
                            sent_time: now - Duration::from_millis(20),
                            delivered,
                            lost: before,
                            tx_in_flight: inflight,
                            app_limited: false,
                        });
                    }
                    bbr.on_lost(&LossSample {
                        bytes: lost - before,
                        delivered,
                        lost,
                        packets: &batch,
                        ..crate::congestion::tests::loss(now, now - Duration::from_millis(20))
                    });
                }
                Fact::Spurious => {
                    bbr.on_spurious_loss(now);
                }
                Fact::Persistent => {
                    bbr.on_persistent_congestion(now);
                    prop_assert_eq!(bbr.window(), 2 * u64::from(size));
                }
                Fact::Path => bbr.on_path_change(now, size),
                Fact::Send { inflight, app_limited } => bbr.on_sent(&SendSample {
                    now,
                    bytes: u64::from(size),
                    bytes_in_flight: inflight,
                    app_limited,
                }),
                Fact::Size(bytes) => {
                    size = bytes;
                    bbr.on_max_datagram_size(size, false);
                }
            }
            prop_assert!(bbr.window() >= 2 * u64::from(size));
            prop_assert!(bbr.window() <= delivered + 200_000, "{} of {delivered}", bbr.window());
            prop_assert!(bbr.pacing_rate() >= Some(1));
            prop_assert!(bbr.send_quantum().is_none_or(|quantum| quantum >= 2 * u64::from(size)));
        }
    }
}
