//! The delta link end to end on virtual time: what comes out, how soon, and in how many bytes.
//!
//! `TOWLINE_LINK_DELTAS=1000000 cargo test -p towline-lab --test link whatever_happens -- --nocapture`
//! plays the long voyage (minutes; `TOWLINE_LINK_SEED` gives another one); plain `cargo test` plays 20,000 deltas of it.

#![expect(
    clippy::print_stdout,
    reason = "tables are read, and failures replayed"
)]

use std::time::Duration;

use towline_lab::Random;
use towline_lab::link::{Voyage, VoyageOutcome, VoyagePlan, six_networks};
use towline_link::carriage::ACK_DELAY;
use towline_sim::{LinkConfig, LossModel, START};

/// IPv4 and UDP headers.
const HEADERS: u32 = 28;

/// A commit of the spool, and what a busy moment adds.
const SPOOL: Duration = Duration::from_millis(10);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn row(name: &str, outcome: &VoyageOutcome) -> String {
    let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
    let [p50, p95, p99, most] = [0.5, 0.95, 0.99, 1.0].map(|part| ms(outcome.latency(part)));
    let part = |count: u64| count as f64 / outcome.committed.max(1) as f64;
    format!(
        "{name:22} | {:6.2} % | p50 {p50:6.0} p95 {p95:6.0} p99 {p99:6.0} max {most:6.0} | live p95 {:6.0} | stale {} withheld {} wrong {} twice {} | B/delta {:5.1} + {:4.1} | datagrams {} + {}, streams {} | again {} dup {} early {} conflated {} backfilled {} | queued {} | {} connections",
        part(outcome.logged) * 100.0,
        ms(outcome.shown_latency(0.95)),
        outcome.stale,
        outcome.withheld,
        outcome.wrong,
        outcome.twice,
        part(outcome.bytes[0]),
        part(outcome.bytes[1]),
        outcome.datagrams[0],
        outcome.datagrams[1],
        outcome.streams,
        outcome.sender.again,
        outcome.receiver.duplicates,
        outcome.receiver.too_early,
        outcome.sender.conflated,
        outcome.sender.backfilled,
        outcome.queued,
        outcome.connections,
    )
}

/// Nothing is lost, wrong, stale or there twice.
fn is_whole(name: &str, outcome: &VoyageOutcome) {
    println!("{}", row(name, outcome));
    assert_eq!(outcome.first_wrong, None, "{name}");
    assert_eq!(outcome.logged, outcome.committed, "{name}");
    assert_eq!(
        (outcome.wrong, outcome.stale, outcome.withheld),
        (0, 0, 0),
        "{name}"
    );
    assert_eq!((outcome.twice, outcome.spins), (0, 0), "{name}");
}

fn sail(name: &str, plan: VoyagePlan, deltas: u64) -> VoyageOutcome {
    let mut voyage = Voyage::new(plan);
    voyage.run_for(seconds(5));
    voyage.offer(deltas);
    assert!(voyage.finish(seconds(600)), "{name}: {}", voyage.describe());
    let outcome = voyage.outcome();
    is_whole(name, &outcome);
    outcome
}

fn path(rtt: Duration, loss: f64) -> LinkConfig {
    LinkConfig {
        delay: rtt / 2,
        loss: LossModel::Bernoulli(loss),
        overhead: HEADERS,
        ..LinkConfig::default()
    }
}

#[test]
fn every_delta_crosses_each_of_the_six_networks() {
    for (network, outcome) in six_networks(1, 80 * 60) {
        is_whole(network.name, &outcome);
        // One way, a round trip and a half for what is lost, the deadline, and what the spool takes.
        let mut most = network.rtt() * 2 + millis(250) + network.jitter() + SPOOL;
        if matches!(network.name, "3g" | "poor-cellular") {
            // That a packet is lost is known when a later one arrives: a deadline later, or after a probe timeout,
            // which the delay of acknowledgements makes longer.
            most += ACK_DELAY;
        }
        assert!(outcome.latency(0.95) <= most, "{}: {most:?}", network.name);
    }
}

#[test]
fn every_delta_crosses_whatever_the_loss_and_the_round_trip() {
    for loss in [0.0, 0.05, 0.1] {
        for rtt in [50, 200, 600, 1_500].map(millis) {
            let name = format!("{:.0} %, {rtt:?}", loss * 100.0);
            let outcome = sail(&name, VoyagePlan::new(1, path(rtt, loss)), 80 * 60);
            let trips = if loss > 0.05 { 4.0 } else { 2.5 };
            let most = rtt.mul_f64(trips) + ACK_DELAY + millis(250);
            assert!(outcome.latency(0.99) <= most, "{name}: {most:?}");
        }
    }
}

#[test]
fn a_blackout_costs_no_delta_and_shows_nothing_stale() {
    for (dark, loss) in [
        (5, 0.0),
        (12, 0.0),
        (16, 0.0),
        (20, 0.0),
        (20, 0.05),
        (26, 0.05),
    ] {
        let clear = path(millis(50), loss);
        let light = seconds(15 + dark);
        let link = clear.with_blackout(START + seconds(15), seconds(dark));
        let mut voyage = Voyage::new(VoyagePlan::new(3, link));
        voyage.run_for(seconds(5));
        voyage.offer(80 * (20 + dark));
        assert!(voyage.finish(seconds(600)), "{}", voyage.describe());
        let outcome = voyage.outcome();
        is_whole(&format!("blackout of {dark} s, {loss}"), &outcome);
        let waited = outcome.latencies.iter().filter(|(at, _)| *at < light);
        let came = waited.map(|(at, took)| (*at + *took).saturating_sub(light));
        let late = came.max().unwrap_or_default();
        println!("  all that waited had come {late:?} after it was light again");
        // Probe timeouts double: the next comes as long after the blackout as it lasted, at the worst.
        assert!(late < seconds(dark + 2));
    }
}

/// What became of 20 s of deltas over a network that is left for another in the middle.
fn sail_away(rtt: Duration, at: Duration, hand_over: Option<bool>) -> VoyageOutcome {
    let mut voyage = Voyage::new(VoyagePlan::new(4, path(rtt, 0.0)));
    voyage.run_for(seconds(5));
    voyage.offer(80 * 20);
    voyage.run_for(seconds(10) + at);
    if let Some(is_told) = hand_over {
        voyage.hand_over(is_told);
    }
    assert!(voyage.finish(seconds(600)), "{}", voyage.describe());
    let outcome = voyage.outcome();
    is_whole(&format!("hand-over {hand_over:?}, {rtt:?}"), &outcome);
    outcome
}

#[test]
fn a_hand_over_costs_no_delta_and_a_round_trip_at_most() {
    for rtt in [50, 200, 600].map(millis) {
        let stays = sail_away(rtt, Duration::ZERO, None);
        // Its end hears of the new address and port, or a router gives it another; before or behind a batch.
        let ways = [true, false].into_iter();
        let ways = ways.flat_map(|is_told| [0, 70, 140, 210].map(|at| (is_told, millis(at))));
        let mut most = Duration::ZERO;
        for (is_told, at) in ways {
            let moves = sail_away(rtt, at, Some(is_told));
            assert_eq!(moves.latencies.len(), stays.latencies.len());
            assert_eq!(moves.connections, 1);
            for (stayed, moved) in stays.latencies.iter().zip(&moves.latencies) {
                assert_eq!(stayed.0, moved.0);
                most = most.max(moved.1.saturating_sub(stayed.1));
            }
        }
        println!("  {rtt:?}: no delta came later by more than {most:?}");
        assert!(most <= rtt, "{most:?} of {rtt:?}");
    }
}

/// 256 kbit/s, before a queue of one second.
fn trickle() -> LinkConfig {
    LinkConfig {
        rate: Some(256_000),
        queue: Some(32 << 10),
        ..path(millis(100), 0.0)
    }
}

#[test]
fn beside_a_bulk_transfer_live_values_wait_for_its_queue_and_none_of_ours() {
    for bulk in [false, true] {
        let mut plan = VoyagePlan::new(5, trickle());
        plan.bulk = bulk;
        let outcome = sail(&format!("beside bulk {bulk}"), plan, 80 * 60);
        let passed = outcome.took.as_secs_f64();
        let speed = outcome.bulk as f64 * 8.0 / passed / 1e3;
        println!("  the transfer: {speed:.0} kbit/s");
        assert!(outcome.queued < 2 * 1_200, "{}", outcome.queued);
        // The transfer fills a queue of one second, which what is lost waits for again.
        let standing = if bulk { millis(1_100) } else { Duration::ZERO };
        assert!(outcome.latency(0.5) <= millis(250) + standing);
        assert!(outcome.shown_latency(0.95) <= millis(250 + 150) + 2 * standing + SPOOL);
        if bulk {
            assert!(speed > 200.0, "{speed}");
        }
    }
}

#[test]
fn on_a_budgeted_trickle_what_is_new_overtakes_what_is_old() {
    let mut plan = VoyagePlan::new(5, trickle());
    plan.pace = 400.0;
    plan.rate = Some(2_000);
    let outcome = sail("16 kbit/s", plan, 400 * 60);
    assert!(outcome.sender.conflated > 0 && outcome.queued < 2 * 1_200);
    assert!(outcome.shown_latency(0.95) < millis(1_500));
}

#[test]
fn whatever_happens_every_delta_is_in_the_log_once_and_nothing_shown_is_stale() {
    let deltas = std::env::var("TOWLINE_LINK_DELTAS");
    let deltas: u64 = deltas.map_or(20_000, |deltas| deltas.parse().expect("a number"));
    let seed = std::env::var("TOWLINE_LINK_SEED");
    let seed: u64 = seed.map_or(6, |seed| seed.parse().expect("a number"));
    let mut random = Random::new(seed, 1);
    let rough = |random: &mut Random| LinkConfig {
        rate: [None, Some(10_000_000), Some(1_000_000), Some(256_000)][random.below(4) as usize],
        queue: Some(64 << 10),
        delay: millis(random.between(1, 300)),
        jitter: millis(random.below(80)),
        keep_order: random.chance(0.5),
        loss: LossModel::Bernoulli(random.unit() * 0.2),
        reorder: random.unit() * 0.1,
        reorder_delay: millis(random.between(1, 400)),
        duplicate: random.unit() * 0.1,
        overhead: HEADERS,
        ..LinkConfig::default()
    };
    let link = rough(&mut random);
    let mut plan = VoyagePlan::new(seed, link);
    plan.pace = 200.0;
    plan.keeps_reset_key = true;
    let mut voyage = Voyage::new(plan);
    voyage.offer(deltas);
    let mut counts = [0_u32; 9];
    while voyage.to_come() > 0 {
        voyage.run_for(random.duration_up_to(seconds(8)));
        let event = random.below(9) as usize;
        counts[event] += 1;
        let down = random.duration_up_to(seconds(3));
        match event {
            0 => voyage.kill_boat(down, false),
            1 => voyage.kill_boat(down, true),
            2 => voyage.kill_shore(down),
            3 => voyage.hang_up(),
            4 => voyage.set_log(false),
            5 => voyage.set_log(true),
            6 => voyage.hand_over(random.chance(0.5)),
            7 => {
                let dark = path(millis(50), 1.0);
                voyage.set_links(&dark, &dark);
                voyage.run_for(random.duration_up_to(seconds(10)));
                let [there, back] = [rough(&mut random), rough(&mut random)];
                voyage.set_links(&there, &back);
            }
            _ => {
                let [there, back] = [rough(&mut random), rough(&mut random)];
                voyage.set_links(&there, &back);
            }
        }
    }
    voyage.set_log(true);
    let clear = path(millis(50), 0.0);
    voyage.set_links(&clear, &clear);
    let is_done = voyage.finish(seconds(3_600));
    println!("seed {seed}, {counts:?}: {}", voyage.describe());
    let outcome = voyage.outcome();
    println!(
        "names whose newest value was not shown: {}; to the log again: {}",
        outcome.unshown, outcome.logged_again
    );
    println!("{:?} passed", outcome.took);
    println!("{}", row("rough", &outcome));
    assert!(is_done, "seed {seed}");
    is_whole("rough", &outcome);
    // A value that too many newer ones kept out of the memory may go to the log alone; here there is room for all.
    assert_eq!(outcome.unshown, 0, "seed {seed}");
}

#[test]
fn a_shore_that_begins_again_is_found_at_once_if_it_keeps_its_reset_key() {
    for (keeps_reset_key, most) in [(true, seconds(5)), (false, seconds(70))] {
        let mut plan = VoyagePlan::new(8, path(millis(50), 0.0));
        plan.keeps_reset_key = keeps_reset_key;
        let mut voyage = Voyage::new(plan);
        voyage.run_for(seconds(5));
        voyage.offer(80 * 20);
        voyage.run_for(seconds(10));
        voyage.kill_shore(seconds(1));
        assert!(voyage.finish(seconds(600)), "{}", voyage.describe());
        let outcome = voyage.outcome();
        is_whole(&format!("restart, key kept {keeps_reset_key}"), &outcome);
        assert_eq!(outcome.connections, 2);
        assert!(outcome.latency(1.0) < most, "{:?}", outcome.latency(1.0));
    }
}
