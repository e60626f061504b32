//! LEDBAT++ on a bottleneck with a queue: use, delay, fairness to latecomers, making way.

mod bottleneck;
mod one_path;

use std::time::Duration;

use bottleneck::{Flow, Load, at, run};
use one_path::OnePath as Recovery;
use towline_recovery::{Algorithm, Config};
use towline_wire::Side;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn flow(algorithm: Algorithm, start: f64) -> Flow {
    let config = Config {
        algorithm,
        ..Config::new(Side::Server)
    };
    Flow::new(Recovery::new(config), Load::Bulk, at(start))
}

fn background(start: f64) -> Flow {
    flow(Algorithm::LedbatPlusPlus, start)
}

/// Four bandwidth-delay products, and at least 200 ms.
fn deep_buffer(mbit: u64, rtt: u64) -> u64 {
    mbit * 125 * (4 * rtt).max(200)
}

#[test]
fn it_fills_short_and_long_paths() {
    for mbit in [10, 50, 100] {
        for rtt in [10, 50, 200] {
            let flows = vec![background(0.0)];
            let buffer = deep_buffer(mbit, rtt);
            let outcome = run(flows, mbit * 1_000_000, millis(rtt), buffer, 60.0);
            let used = outcome.utilisation(10.0, 60.0);
            assert!(used >= 0.85, "{mbit} Mbit/s, {rtt} ms: {used:.3}");
            assert_eq!((outcome.flows[0].timeouts, outcome.dropped), (0, 0));
        }
    }
}

#[test]
fn the_queue_stays_at_the_target() {
    let outcome = run(vec![background(0.0)], 20_000_000, millis(40), 400_000, 60.0);
    let (mean, p95) = outcome.queue_delay(10.0, 60.0);
    assert!(mean <= 60.0 && p95 <= 65.0, "{mean:.1} and {p95:.1} ms");
    assert!(mean >= 40.0, "{mean:.1} ms is no use of the target");
}

#[test]
fn a_latecomer_gets_its_share_and_no_more() {
    for count in [2, 4, 8] {
        let flows = (0..count).map(|i| background(5.0 * f64::from(i))).collect();
        let outcome = run(flows, 50_000_000, millis(50), 1_250_000, 120.0);
        let jain = outcome.jain(60.0, 120.0);
        assert!(jain >= 0.9, "{count} flows: {jain:.3}");
        let used = outcome.utilisation(60.0, 120.0);
        assert!(used >= 0.9, "{count} flows: {used:.3}");
    }
}

#[test]
fn it_makes_way_for_cubic_and_comes_back() {
    let cubic = || flow(Algorithm::Cubic, 20.0).stopping(at(80.0));
    let path = (10_000_000, millis(50), 250_000);
    let solo = run(vec![cubic()], path.0, path.1, path.2, 120.0);
    let flows = vec![background(0.0), cubic()];
    let both = run(flows, path.0, path.1, path.2, 120.0);
    let kept = both.flows[1].rate(20.0, 80.0) / solo.flows[0].rate(20.0, 80.0);
    assert!(kept >= 0.9, "CUBIC keeps {kept:.3}");
    let capacity = 1_250_000.0;
    let back = both.flows[0].rate(88.0, 92.0) / capacity;
    assert!(back >= 0.8, "{back:.3} ten seconds after");
}

#[test]
fn many_starting_at_once_on_a_slow_uplink_all_live() {
    // Lesson (j): ten connections at once on 10 Mbit/s.
    let flows = (0..10).map(|_| background(0.0)).collect();
    let outcome = run(flows, 10_000_000, millis(30), 625_000, 60.0);
    let used = outcome.utilisation(10.0, 60.0);
    assert!(used >= 0.8, "{used:.3}");
    for (index, flow) in outcome.flows.iter().enumerate() {
        let share = flow.rate(10.0, 60.0) / 125_000.0;
        assert!(share > 0.3, "flow {index} has {share:.2} of its share");
    }
}
