//! BBR over a simulated bottleneck: what it carries, the queue it keeps, how it shares.
//!
//! The scenarios are those of the draft's Appendix A that need a path, and the marks BBR has to
//! meet. Whole connections are measured elsewhere.

mod bottleneck;
mod one_path;

use std::time::Duration;

use bottleneck::{Flow, Load, Outcome, Path, SIZE, at, run_on};
use one_path::OnePath as Recovery;
use towline_recovery::{Algorithm, Config, Stats};
use towline_sim::{LossModel, Policer};
use towline_wire::Side;

const fn mbit(rate: u64) -> u64 {
    rate * 1_000_000
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A constant rate with a queue of so many bandwidth-delay products.
fn path_with(rate: u64, rtt: Duration, depth: f64) -> Path {
    let bdp = rate as f64 / 8.0 * rtt.as_secs_f64();
    Path::new(rate, rtt, ((bdp * depth) as u64).max(4 * SIZE))
}

fn path(rate: u64, rtt: Duration) -> Path {
    path_with(rate, rtt, 1.0)
}

fn flow(algorithm: Algorithm, seed: u64, load: Load, start: f64) -> Flow {
    let config = Config {
        algorithm,
        seed,
        ..Config::new(Side::Server)
    };
    Flow::new(Recovery::new(config), load, at(start))
}

fn bbr(seed: u64) -> Flow {
    flow(Algorithm::Bbr, seed, Load::Bulk, 0.0)
}

fn run(path: &Path, flows: Vec<Flow>, seconds: f64) -> Outcome {
    run_on(path, flows, seconds, |_, _| {})
}

/// One BBR flow.
fn alone(path: &Path, seconds: f64) -> Outcome {
    run(path, vec![bbr(100 * path.seed)], seconds)
}

/// As `alone`, with the flow's figures at each tick.
fn watched(path: &Path, flow: Flow, seconds: f64) -> (Outcome, Vec<Stats>) {
    let mut stats = Vec::new();
    let outcome = run_on(path, vec![flow], seconds, |_, flows| {
        stats.push(flows[0].recovery.stats());
    });
    (outcome, stats)
}

/// What left the bottleneck between two times, as a share of `rate`.
fn used(outcome: &Outcome, from: f64, to: f64, rate: u64) -> f64 {
    outcome.carried(from, to) / rate as f64
}

fn mean_delay(outcome: &Outcome, from: f64, to: f64) -> f64 {
    outcome.queue_delay(from, to).0 / 1000.0
}

fn lost(outcome: &Outcome) -> f64 {
    outcome.dropped as f64 / outcome.packets as f64
}

/// Seconds from `from` to the first tenth of one in which the link was in use to this share.
fn used_from(outcome: &Outcome, from: f64, until: f64, rate: u64, share: f64) -> Option<f64> {
    let tenths = (until - from) as u32 * 10;
    let begin = |tenth: u32| from + f64::from(tenth) / 10.0;
    (0..tenths)
        .find(|tenth| used(outcome, begin(*tenth), begin(tenth + 1), rate) >= share)
        .map(|tenth| f64::from(tenth) / 10.0)
}

#[test]
fn one_flow_uses_the_bottleneck() {
    for rate in [10, 50, 100] {
        for rtt in [10, 50, 200] {
            let what = format!("{rate} Mbit/s {rtt} ms");
            let outcome = alone(&path(mbit(rate), ms(rtt)), 60.0);
            let used = used(&outcome, 10.0, 60.0, mbit(rate));
            assert!(used >= 0.95, "{what}: {used}");
            let delay = mean_delay(&outcome, 10.0, 60.0);
            let most = 0.4 * ms(rtt).as_secs_f64();
            assert!(delay <= most, "{what}: {delay} s");
            let dropped = lost(&outcome);
            assert!(dropped < 0.02, "{what}: {dropped}");
            assert_eq!(outcome.flows[0].timeouts, 0, "{what}");
        }
    }
}

#[test]
fn thin_acks_change_little() {
    for rtt in [10, 50, 200] {
        let mut path = path(mbit(50), ms(rtt));
        path.thinning = 8;
        let used = used(&alone(&path, 60.0), 10.0, 60.0, mbit(50));
        assert!(used >= 0.95, "{rtt} ms: {used}");
    }
}

#[test]
fn lost_acks_cost_little() {
    let mut path = path(mbit(20), ms(50));
    let (whole, stats) = watched(&path, bbr(100), 30.0);
    path.ack_loss = 200_000;
    let (thinned, thin_stats) = watched(&path, bbr(100), 30.0);
    let goodput = |outcome: &Outcome| outcome.flows[0].rate(0.0, 30.0);
    let (with, without) = (goodput(&thinned), goodput(&whole));
    assert!(with >= 0.95 * without, "{with} of {without}");
    let window = |stats: &[Stats]| stats.iter().map(|stats| stats.cwnd).sum::<u64>();
    assert!(window(&thin_stats) * 2 >= window(&stats));
}

#[test]
fn a_deep_buffer_stays_nearly_empty() {
    let outcome = alone(&path_with(mbit(20), ms(40), 4.0), 60.0);
    let delay = mean_delay(&outcome, 0.0, 60.0);
    assert!(delay < 0.01, "{delay} s on average, one BDP is 0.04");
    assert!(used(&outcome, 10.0, 60.0, mbit(20)) > 0.95);
}

/// What 100 Mbit/s × 165 ms carry with so much lost at random, for each seed, in order: 200,000
/// packets and the start included.
fn with_random_loss(share: f64, seeds: std::ops::RangeInclusive<u64>) -> Vec<f64> {
    let mut shares: Vec<f64> = seeds
        .map(|seed| {
            let mut path = path(mbit(100), ms(165));
            path.link.loss = LossModel::Bernoulli(share);
            path.seed = seed;
            used(&alone(&path, 20.0), 0.0, 20.0, mbit(100))
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    shares
}

#[test]
fn one_per_cent_of_random_loss_costs_little() {
    // No seed is left out.
    let shares = with_random_loss(0.01, 1..=40);
    assert!(shares[0] >= 0.8 && shares[20] >= 0.85, "{shares:.3?}");
}

#[test]
fn two_and_three_per_cent_of_random_loss_cost_hardly_more() {
    for share in [0.02, 0.03] {
        let shares = with_random_loss(share, 1..=10);
        assert!(
            shares[0] >= 0.75 && shares[5] >= 0.8,
            "{share}: {shares:.3?}"
        );
    }
}

#[test]
fn losses_of_a_buffer_too_small_to_show_a_queue_are_answered() {
    // Four flows and a buffer of 5 % of the path: what it drops must never pass for the path's.
    let path = path_with(mbit(50), ms(40), 0.05);
    let flows = (0..4)
        .map(|n| flow(Algorithm::Bbr, 100 + n, Load::Bulk, 0.5 * n as f64))
        .collect();
    let outcome = run(&path, flows, 60.0);
    let dropped = lost(&outcome);
    assert!(dropped < 0.02, "{dropped}");
    assert!(outcome.jain(20.0, 60.0) >= 0.9);
    assert!(used(&outcome, 20.0, 60.0, mbit(50)) >= 0.9);
}

#[test]
fn a_tenth_of_the_rate_that_returns_is_used_at_once() {
    let mut shares = Vec::new();
    for seed in 1..=20 {
        let mut path = path(mbit(50), ms(40));
        path.seed = seed;
        // Another place in the probing cycle for each seed.
        let back = 40.0 + 0.037 * seed as f64;
        path.rates.extend([
            (ms(20_000), mbit(5)),
            (Duration::from_secs_f64(back), mbit(50)),
        ]);
        let outcome = alone(&path, back + 5.0);
        shares.push(used(&outcome, back, back + 5.0, mbit(50)));
        assert!(used(&outcome, 25.0, 40.0, mbit(5)) > 0.95, "seed {seed}");
        assert!(mean_delay(&outcome, 25.0, 40.0) < 0.04, "seed {seed}");
    }
    shares.sort_by(f64::total_cmp);
    assert!(shares[0] >= 0.85 && shares[10] >= 0.9, "{shares:.3?}");
}

#[test]
fn a_rate_that_falls_to_a_fifth_and_returns_is_followed() {
    for seed in 1..6 {
        let mut path = path(mbit(50), ms(40));
        path.seed = seed;
        // Another place in the probing cycle for each seed.
        let fall = ms(20_000 + 300 * seed);
        path.rates
            .extend([(fall, mbit(10)), (ms(40_000), mbit(50))]);
        let outcome = alone(&path, 60.0);
        let settled = fall.as_millis() as usize / 10 + 300;
        // One BDP of the new rate is 40 ms; a probe may exceed it for a moment.
        let delays = &outcome.queue[settled..4000];
        let high = delays.iter().filter(|delay| **delay > 40.0).count();
        assert!(
            high <= 40,
            "seed {seed}: above in {high} hundredths of a second"
        );
        let most = delays.iter().copied().fold(0.0, f64::max);
        assert!(most < 80.0, "seed {seed}: {most} ms");
        assert!(used(&outcome, 30.0, 40.0, mbit(10)) > 0.95, "seed {seed}");
        let found = used_from(&outcome, 40.0, 60.0, mbit(50), 0.9).unwrap();
        assert!(found < 4.0, "seed {seed}: {found} s to the old rate");
    }
}

#[test]
fn ten_times_the_rate_is_found_within_a_probe() {
    let mut path = path(mbit(100), ms(40));
    path.rates = vec![(Duration::ZERO, mbit(10)), (ms(20_000), mbit(100))];
    let outcome = alone(&path, 40.0);
    let found = used_from(&outcome, 20.0, 40.0, mbit(100), 0.9).unwrap();
    assert!(found < 4.0, "{found} s");
    assert!(used(&outcome, 30.0, 40.0, mbit(100)) > 0.95);
}

#[test]
fn a_tenth_of_the_rate_is_accepted() {
    let mut path = path_with(mbit(100), ms(40), 0.5);
    path.rates.push((ms(20_000), mbit(10)));
    let outcome = alone(&path, 40.0);
    let rate = 8 * outcome.flows[0].recovery.stats().pacing_rate.unwrap();
    assert!(rate <= mbit(13), "{rate}");
    assert!(mean_delay(&outcome, 24.0, 40.0) < 0.04);
    assert!(used(&outcome, 30.0, 40.0, mbit(10)) > 0.95);
}

#[test]
fn equal_flows_share_equally_latecomers_included() {
    for count in [2u64, 4, 8] {
        let start = |index| flow(Algorithm::Bbr, 100 + index, Load::Bulk, 5.0 * index as f64);
        let flows = (0..count).map(start).collect();
        let outcome = run(&path(mbit(50), ms(50)), flows, 120.0);
        let index = outcome.jain(60.0, 120.0);
        assert!(index >= 0.9, "{count} flows: {index}");
        assert!(used(&outcome, 60.0, 120.0, mbit(50)) >= 0.95);
    }
}

#[test]
fn cubic_beside_it_gets_a_share() {
    for depth in [1.0, 4.0] {
        let cubic = flow(Algorithm::Cubic, 101, Load::Bulk, 0.0);
        let path = path_with(mbit(50), ms(40), depth);
        let outcome = run(&path, vec![bbr(100), cubic], 120.0);
        let rate = |index: usize| outcome.flows[index].rate(20.0, 120.0);
        let share = rate(0) / (rate(0) + rate(1));
        assert!((0.3..=0.7).contains(&share), "{depth} BDP: {share}");
    }
}

#[test]
fn a_policer_is_obeyed() {
    let mut path = path(mbit(100), ms(40));
    path.link.policer = Some(Policer {
        rate: mbit(10),
        burst: 100_000,
    });
    let outcome = alone(&path, 30.0);
    let used = used(&outcome, 10.0, 30.0, mbit(10));
    assert!((0.9..1.01).contains(&used), "{used}");
    let lost = lost(&outcome);
    assert!(lost < 0.06, "{lost}");
}

#[test]
fn lumps_of_acks_do_not_stall_it() {
    for lump in [10, 50] {
        let mut path = path_with(mbit(50), ms(20), 4.0);
        path.lumps = Some(ms(lump));
        let used = used(&alone(&path, 30.0), 5.0, 30.0, mbit(50));
        assert!(used >= 0.95, "{lump} ms: {used}");
    }
}

#[test]
fn a_path_that_holds_less_than_two_packets_keeps_moving() {
    // 1.5 datagrams, serialisation included: the floor and the lumps of delayed ACKs decide.
    let path = Path::new(240_000, ms(20), 20 * SIZE);
    let (outcome, stats) = watched(&path, bbr(100), 60.0);
    assert!(used(&outcome, 5.0, 60.0, 240_000) > 0.95);
    assert_eq!((outcome.dropped, outcome.flows[0].timeouts), (0, 0));
    for window in stats[1000..].iter().map(|stats| stats.cwnd) {
        assert!((4 * SIZE..=12 * SIZE).contains(&window), "{window}");
    }
}

#[test]
fn reordering_is_taken_for_loss_once_undone_and_then_borne() {
    let mut path = path(mbit(50), ms(40));
    path.link.reorder = 1.0 / 97.0;
    path.link.reorder_delay = ms(5);
    let outcome = alone(&path, 30.0);
    let stats = outcome.flows[0].recovery.stats();
    // One packet in 97 is late: some 1,500 of them.
    let late = stats.packets_spuriously_lost;
    assert!((1..50).contains(&late), "{late}");
    assert!((1..=4).contains(&stats.spurious_congestion_events));
    let used = used(&outcome, 5.0, 30.0, mbit(50));
    assert!(used >= 0.93, "{used}");
}

#[test]
fn an_application_limited_sender_neither_queues_nor_forgets() {
    let steady = flow(Algorithm::Bbr, 100, Load::Steady(mbit(5) / 8), 0.0);
    let outcome = run(&path(mbit(50), ms(40)), vec![steady], 30.0);
    assert_eq!(outcome.dropped, 0);
    assert!(mean_delay(&outcome, 0.0, 30.0) < 0.001);
    assert!(used(&outcome, 5.0, 30.0, mbit(5)) > 0.99);
    let stats = outcome.flows[0].recovery.stats();
    let (in_flight, window) = (stats.bytes_in_flight, stats.cwnd);
    assert!(window > in_flight, "{window} for {in_flight}");
}

#[test]
fn a_pause_costs_neither_rate_nor_round_trip() {
    let mut flow = bbr(100);
    flow.silence = at(10.0)..at(17.0);
    let (outcome, stats) = watched(&path(mbit(50), ms(40)), flow, 22.0);
    let rate = |tick: usize| stats[tick].pacing_rate.unwrap() as f64;
    let (before, after) = (rate(999), rate(1699));
    assert!((0.95..1.3).contains(&(after / before)), "{before} {after}");
    let resumed = used_from(&outcome, 17.0, 22.0, mbit(50), 0.9);
    assert_eq!(resumed, Some(0.0));
}

#[test]
fn short_and_very_long_paths_work() {
    for (rtt, least) in [(1, 0.95), (2, 0.95), (1000, 0.8)] {
        let outcome = alone(&path(mbit(50), ms(rtt)), 60.0);
        let used = used(&outcome, 20.0, 60.0, mbit(50));
        assert!(used >= least, "{rtt} ms: {used}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let mut path = path(mbit(20), ms(40));
        path.seed = seed;
        let flows = vec![bbr(100 * seed), bbr(100 * seed + 1)];
        let outcome = run(&path, flows, 20.0);
        (outcome.carried, outcome.packets, outcome.dropped)
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}
