//! Rate limits in a whole sender: the strict bucket over every packet, and the fixed rate.

mod bottleneck;
mod one_path;

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use bottleneck::{Flow, Load, at, run, run_with};
use one_path::OnePath as Recovery;
use towline_recovery::{
    Algorithm, Config, Controller, HostController, PacketKind, Permit, Pool, TrafficClass,
};
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
fn a_limit_is_used_by_who_waits_for_turns_as_well() {
    for (rate, rtt_micros) in [(1_000_000, 100), (RATE, 1000), (RATE, 30_000)] {
        let host = HostController::new();
        let config = Config {
            rate_limit: NonZeroU64::new(rate),
            ..Config::new(Side::Server)
        };
        let controller = Controller::Host(Box::new(host.join(1200)));
        let recovery = Recovery::with_controller(config, controller);
        let mut flow = Flow::new(recovery, Load::Bulk, at(0.0));
        flow.departures = Some(Vec::new());
        let rtt = Duration::from_micros(rtt_micros);
        let outcome = run(vec![flow], 1_000_000_000, rtt, 1 << 20, 10.0);
        let departures = outcome.flows[0].departures.as_ref().unwrap();
        assert_promise(departures, rate, 3000.0);
        // The start aside.
        let used = outcome.flows[0].rate(5.0, 9.9) / rate as f64;
        assert!(used >= 0.95, "{used} of {rate} B/s at {rtt:?}");
    }
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

#[test]
fn connections_of_a_pool_share_it_and_take_over_what_one_leaves() {
    let pool = Pool::new(NonZeroU64::new(4_000_000).unwrap());
    let flows = (0..4)
        .map(|i| {
            let mut flow = limited(Algorithm::Cubic, None);
            let class = TrafficClass::Normal;
            let member = pool.join(class, NonZeroU32::MIN);
            flow.recovery.set_pool_member(Some(member));
            match i {
                0 => flow.stopping(at(4.0)),
                _ => flow,
            }
        })
        .collect();
    let rtt = Duration::from_millis(20);
    let changed = pool.clone();
    let outcome = run_with(flows, 200_000_000, rtt, 1 << 20, 12.0, |now, flows| {
        if now >= at(8.0) {
            changed.set_total(NonZeroU64::new(2_000_000).unwrap());
            let member = flows[1].recovery.pool_member().unwrap();
            member.set_class(TrafficClass::Interactive);
        }
    });
    let rates = |from, to| -> Vec<f64> {
        outcome
            .flows
            .iter()
            .map(|flow| flow.rate(from, to))
            .collect()
    };
    let near = |rates: &[f64], wanted: &[f64]| {
        for (rate, wanted) in rates.iter().zip(wanted) {
            assert!((rate - wanted).abs() < 0.04 * wanted + 1e4, "{rates:?}");
        }
    };
    near(&rates(1.0, 4.0), &[1e6; 4]);
    // A tenth of a second, and the round trip that deliveries lag behind.
    near(&rates(4.15, 4.35), &[0.0, 1.33e6, 1.33e6, 1.33e6]);
    near(&rates(8.5, 12.0), &[0.0, 1.9e6, 5e4, 5e4]);
    let mut all: Vec<(Time, u64)> = outcome
        .flows
        .iter()
        .flat_map(|flow| flow.departures.as_ref().unwrap().iter().copied())
        .filter(|(now, _)| *now < at(8.0))
        .collect();
    all.sort_unstable();
    // Each member's bucket holds a burst of its own.
    assert_promise(&all, 4_000_000, 4.0 * 2400.0 + 4000.0);
}

#[test]
fn a_limit_that_is_lifted_or_raised_while_the_window_is_full_holds_no_probe_back() {
    for (limit, wait) in [(None, 0), (NonZeroU64::new(1_200_000), 2)] {
        let mut recovery: Recovery<u64> = Recovery::new(Config {
            rate_limit: NonZeroU64::new(10),
            ..Config::new(Side::Server)
        });
        let now = at(1.0);
        assert!(matches!(recovery.permit(now), Permit::Send { .. }));
        let space = PacketNumberSpace::Application;
        let kind = PacketKind::ACK_ELICITING;
        while recovery.bytes_in_flight() < recovery.congestion_window() {
            recovery.on_packet_sent(now, space, 1200, kind, &mut Vec::new());
        }
        assert_eq!(recovery.permit(now), Permit::Blocked);
        let until = recovery.held_until(now, 1200).unwrap();
        assert!(until > at(120.0), "{until:?}");
        recovery.set_rate_limit(limit);
        assert_eq!(recovery.permit(now), Permit::Blocked);
        let latest = now + Duration::from_millis(wait);
        assert!(recovery.held_until(now, 1200).is_none_or(|at| at <= latest));
    }
}
