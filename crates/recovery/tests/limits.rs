//! Rate limits in a whole sender: the strict bucket over every packet, and the fixed rate.

mod bottleneck;

use std::num::NonZeroU64;
use std::time::Duration;

use bottleneck::{Flow, Load, at, run, run_with};
use towline_recovery::{Algorithm, Config, PacketKind, Permit, Recovery};
use towline_wire::{PacketNumberSpace, Side, Time};

const RATE: u64 = 3_000_000;

fn limited(algorithm: Algorithm, rate_limit: Option<u64>) -> Flow {
    let config = Config {
        algorithm,
        rate_limit: rate_limit.and_then(NonZeroU64::new),
        ..Config::new(Side::Server)
    };
    let mut flow = Flow::new(Recovery::new(config), Load::Bulk, at(0.0));
    flow.departures = Some(Vec::new());
    flow
}

fn fixed(rate: u64) -> Algorithm {
    Algorithm::FixedRate(NonZeroU64::new(rate).unwrap())
}

/// Checks every window of at least 100 ms against `rate` x window + `burst`.
fn assert_promise(departures: &[(Time, u64)], rate: u64, burst: f64) {
    let seconds = |time: Time| time.as_nanos() as f64 / 1e9;
    let mut window_start = 0;
    // Sent before the window, and its excess over the rate at the best start so far.
    let (mut total, mut before, mut base) = (0.0, 0.0, 0.0f64);
    for &(now, size) in departures {
        total += size as f64;
        while seconds(departures[window_start].0) + 0.1 <= seconds(now) {
            base = base.min(before - rate as f64 * seconds(departures[window_start].0));
            before += departures[window_start].1 as f64;
            window_start += 1;
        }
        let excess = total - rate as f64 * seconds(now).max(0.1) - base;
        assert!(excess <= burst + 1.0, "{excess} bytes too many at {now:?}");
    }
}

fn sent_by(departures: &[(Time, u64)], bytes: u64) -> Duration {
    let mut total = 0;
    let (last, _) = departures
        .iter()
        .find(|(_, size)| {
            total += size;
            total >= bytes
        })
        .unwrap();
    last.saturating_duration_since(Time::ZERO)
}

#[test]
fn a_limit_holds_in_every_window_and_is_used() {
    let cases = [
        limited(Algorithm::Cubic, Some(RATE)),
        limited(Algorithm::NewReno, Some(RATE)),
        limited(fixed(RATE), None),
        limited(fixed(50_000_000), Some(RATE)),
    ];
    for flow in cases {
        let rtt = Duration::from_millis(1);
        let outcome = run(vec![flow], 1_000_000_000, rtt, 1 << 20, 10.0);
        let departures = outcome.flows[0].departures.as_ref().unwrap();
        assert_promise(departures, RATE, 3000.0);
        let sent: u64 = departures.iter().map(|(_, size)| size).sum();
        let mean = sent as f64 / 10.0 / RATE as f64;
        assert!((0.98..=1.02).contains(&mean), "{mean}");
        let megabyte = sent_by(departures, 1_000_000) + rtt;
        let range = Duration::from_millis(326)..=Duration::from_millis(350);
        assert!(range.contains(&megabyte), "{megabyte:?}");
    }
}

#[test]
fn a_limit_counts_retransmissions() {
    // The bottleneck drops a third of what the fixed rate sends.
    let flow = limited(fixed(RATE), None);
    let rtt = Duration::from_millis(20);
    let outcome = run(vec![flow], 16_000_000, rtt, 30_000, 10.0);
    let flow = &outcome.flows[0];
    assert!(outcome.dropped > 1000);
    assert_promise(flow.departures.as_ref().unwrap(), RATE, 3000.0);
    assert!(flow.rate(2.0, 10.0) > 1_900_000.0, "what fits arrives");
}

#[test]
fn a_limit_changes_while_running() {
    let flow = limited(Algorithm::Cubic, Some(RATE));
    let rtt = Duration::from_millis(20);
    let outcome = run_with(vec![flow], 100_000_000, rtt, 1 << 20, 9.0, |now, flows| {
        let limit = match now {
            _ if now < at(3.0) => Some(RATE),
            _ if now < at(6.0) => Some(RATE / 10),
            _ => None,
        };
        flows[0]
            .recovery
            .set_rate_limit(limit.and_then(NonZeroU64::new));
    });
    let flow = &outcome.flows[0];
    assert!((2.9e6..3.1e6).contains(&flow.rate(1.0, 3.0)));
    assert!((2.9e5..3.1e5).contains(&flow.rate(3.2, 6.0)));
    assert!(
        flow.rate(7.5, 9.0) > 10e6,
        "lifted: {}",
        flow.rate(7.5, 9.0)
    );
}

#[test]
fn a_limit_does_not_let_the_window_grow_beyond_its_need() {
    let flow = limited(Algorithm::Cubic, Some(RATE));
    let rtt = Duration::from_millis(20);
    let outcome = run(vec![flow], 1_000_000_000, rtt, 1 << 22, 10.0);
    let window = outcome.flows[0].recovery.congestion_window();
    assert!(window < 500_000, "{window}: 60,000 are in flight");
}

#[test]
fn acknowledgements_count_and_wait_when_the_limit_is_spent() {
    let mut recovery: Recovery<u64> = Recovery::new(Config {
        rate_limit: NonZeroU64::new(10_000),
        ..Config::new(Side::Server)
    });
    let now = at(1.0);
    assert!(matches!(recovery.permit(now), Permit::Send { .. }));
    let space = PacketNumberSpace::Application;
    let mut sent = 0u64;
    while recovery.held_until(now, 100).is_none() {
        recovery.on_packet_sent(now, space, 100, PacketKind::ACK_ONLY, &mut Vec::new());
        sent += 100;
    }
    assert_eq!(sent, 2400, "two datagrams");
    assert_eq!(
        recovery.held_until(now, 100),
        Some(now + Duration::from_millis(10))
    );
    assert!(matches!(recovery.permit(now), Permit::Wait(_)));
    recovery.set_rate_limit(None);
    assert!(matches!(recovery.permit(now), Permit::Send { .. }));
    assert_eq!(recovery.held_until(now, 1200), None);
}

#[test]
fn a_fixed_rate_stops_pouring_into_a_dead_path() {
    // Nothing gets through from 2 s on: the window bounds what is in flight.
    let flow = limited(fixed(1_250_000), None);
    let rtt = Duration::from_millis(100);
    let mut most = 0;
    let outcome = run_with(vec![flow], 100_000_000, rtt, 1 << 20, 2.0, |_, flows| {
        most = most.max(flows[0].recovery.bytes_in_flight());
    });
    assert!((120_000..=160_000).contains(&most), "{most}");
    let mut recovery = outcome.flows.into_iter().next().unwrap().recovery;
    let (mut now, mut sent) = (at(2.0), 0u64);
    while now < at(30.0) {
        match recovery.permit(now) {
            Permit::Send { bytes } => {
                for _ in 0..bytes / 1200 {
                    let kind = PacketKind::ACK_ELICITING;
                    let space = PacketNumberSpace::Application;
                    recovery.on_packet_sent(now, space, 1200, kind, &mut vec![1200]);
                    sent += 1200;
                }
            }
            Permit::Wait(until) => now = until,
            Permit::Blocked => now += Duration::from_millis(100),
        }
    }
    assert!(sent <= 262_000, "{sent} bytes into nothing");
}
