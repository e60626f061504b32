//! Ten bulk connections beside a ping on a slow uplink with a deep buffer: what the person at the
//! other end of the ping notices.

mod bottleneck;
mod one_path;

use std::time::Duration;

use bottleneck::{Flow, Load, Outcome, Path, at, run, run_on};
use one_path::OnePath as Recovery;
use towline_recovery::{Algorithm, Config, Controller, HostController};
use towline_wire::Side;

const RATE: u64 = 10_000_000;
const RTT: Duration = Duration::from_millis(30);
/// 500 ms.
const BUFFER: u64 = 625_000;

fn config(algorithm: Algorithm) -> Config {
    Config {
        algorithm,
        ..Config::new(Side::Server)
    }
}

fn ping() -> Flow {
    let recovery = Recovery::new(config(Algorithm::Cubic));
    Flow::new(recovery, Load::Ping(Duration::from_millis(50)), at(0.0))
}

fn member(host: &HostController, load: Load, start: f64) -> Flow {
    let controller = Controller::Host(Box::new(host.join(1200)));
    let recovery = Recovery::with_controller(config(Algorithm::Cubic), controller);
    Flow::new(recovery, load, at(start))
}

fn uplink(mut flows: Vec<Flow>) -> Outcome {
    flows.push(ping());
    run(flows, RATE, RTT, BUFFER, 60.0)
}

/// By how much the 95th percentile of the ping is above an empty path's, in milliseconds.
fn ping_increase(outcome: &Outcome) -> f64 {
    let ping = outcome.flows.last().unwrap();
    let mut times: Vec<f64> = ping
        .round_trips
        .iter()
        .filter(|(now, _)| *now >= at(10.0))
        .map(|(_, rtt)| rtt.as_secs_f64() * 1e3 - 30.0)
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() * 95 / 100]
}

fn members(host: &HostController, count: u32, spacing: f64) -> Vec<Flow> {
    let start = |i| f64::from(i) * spacing;
    (0..count)
        .map(|i| member(host, Load::Bulk, start(i)))
        .collect()
}

fn bulk(algorithm: Algorithm) -> Flow {
    Flow::new(Recovery::new(config(algorithm)), Load::Bulk, at(0.0))
}

#[test]
fn a_host_in_the_background_leaves_a_ping_alone() {
    for spacing in [0.0, 2.0] {
        let host = HostController::new();
        let outcome = uplink(members(&host, 10, spacing));
        let (ping, used) = (ping_increase(&outcome), outcome.utilisation(20.0, 60.0));
        assert!(ping <= 30.0 && used >= 0.8, "+ {ping:.1} ms, {used:.3}");
        for flow in &outcome.flows[..10] {
            let share = flow.rate(30.0, 60.0) / 125_000.0;
            assert!((0.8..=1.1).contains(&share), "{share:.2}");
        }
        assert_eq!(host.members(), 10);
        drop(outcome);
        assert_eq!(host.members(), 0);
    }
}

#[test]
fn ten_flows_of_the_draft_stay_near_their_target() {
    let outcome = uplink((0..10).map(|_| bulk(Algorithm::LedbatPlusPlus)).collect());
    let (ping, used) = (ping_increase(&outcome), outcome.utilisation(10.0, 60.0));
    assert!(ping <= 75.0 && used >= 0.9, "+ {ping:.1} ms, {used:.3}");
}

#[test]
fn ten_cubics_show_what_it_is_worth() {
    let outcome = uplink((0..10).map(|_| bulk(Algorithm::Cubic)).collect());
    assert!(ping_increase(&outcome) > 300.0);
}

#[test]
fn a_hundred_members_are_one_flow_to_the_others() {
    // A hundred windows of two datagrams would be 190 ms of queue.
    let host = HostController::new();
    let outcome = uplink(members(&host, 100, 0.0));
    let (ping, used) = (ping_increase(&outcome), outcome.utilisation(10.0, 60.0));
    assert!(ping <= 32.0 && used >= 0.8, "+ {ping:.1} ms, {used:.3}");
    for flow in &outcome.flows[..100] {
        let share = flow.rate(10.0, 60.0) / 12_500.0;
        assert!((0.7..=1.2).contains(&share), "{share:.2}");
    }
}

#[test]
fn what_quiet_members_leave_the_others_use() {
    let host = HostController::new();
    let load = |i| match i % 2 {
        0 => Load::Bulk,
        _ => Load::Steady(20_000),
    };
    let outcome = uplink((0..10).map(|i| member(&host, load(i), 0.0)).collect());
    assert!(outcome.utilisation(10.0, 60.0) >= 0.8);
    for (i, flow) in outcome.flows[..10].iter().enumerate() {
        let rate = flow.rate(10.0, 60.0);
        match i % 2 {
            0 => assert!(rate > 180_000.0, "bulk has {rate}"),
            _ => assert!(rate > 18_500.0, "steady has {rate}"),
        }
    }
}

#[test]
fn the_last_one_left_has_it_all() {
    let host = HostController::new();
    let flow = |i| {
        let flow = member(&host, Load::Bulk, 0.0);
        if i > 0 { flow.stopping(at(28.0)) } else { flow }
    };
    let outcome = uplink((0..10).map(flow).collect());
    let rate = outcome.flows[0].rate(30.0, 60.0);
    assert!(rate > 1_000_000.0, "{rate}");
}

#[test]
fn the_host_makes_way_for_cubic_and_comes_back() {
    let host = HostController::new();
    let mut flows = members(&host, 5, 0.0);
    let mut cubic = bulk(Algorithm::Cubic).stopping(at(40.0));
    cubic.start = at(20.0);
    flows.push(cubic);
    let outcome = uplink(flows);
    let host_rate = |from, to| -> f64 {
        let members = outcome.flows[..5].iter();
        members.map(|flow| flow.rate(from, to)).sum::<f64>() / 1_250_000.0
    };
    assert!(host_rate(10.0, 20.0) >= 0.8);
    assert!(host_rate(24.0, 40.0) <= 0.1, "{}", host_rate(24.0, 40.0));
    assert!(host_rate(48.0, 52.0) >= 0.8, "{}", host_rate(48.0, 52.0));
}

#[test]
fn the_host_leaves_little_unused_and_is_back_at_once() {
    let path = Path::new(20_000_000, Duration::from_millis(40), 500_000);
    for count in [1, 10] {
        let host = HostController::new();
        let mut flows = members(&host, count, 0.0);
        let mut cubic = bulk(Algorithm::Cubic).stopping(at(60.0));
        cubic.start = at(30.0);
        flows.push(cubic);
        let outcome = run_on(&path, flows, 120.0, |_, _| {});
        let alone = outcome.utilisation(10.0, 30.0);
        assert!(alone >= 0.95, "{count} members: {alone:.3}");
        let cubic = outcome.flows.last().unwrap().rate(35.0, 60.0) / 2_500_000.0;
        assert!(cubic >= 0.95, "{count} members: CUBIC has {cubic:.3}");
        let back = outcome.utilisation(64.0, 66.0);
        assert!(back >= 0.95, "{count} members: {back:.3} after 4 s");
        let after = outcome.utilisation(70.0, 120.0);
        assert!(after >= 0.95, "{count} members: {after:.3}");
    }
}

#[test]
fn two_hosts_share_equally() {
    let path = Path::new(20_000_000, Duration::from_millis(40), 500_000);
    let hosts = [HostController::new(), HostController::new()];
    let flows = hosts
        .iter()
        .zip([0.0, 20.0])
        .map(|(host, start)| member(host, Load::Bulk, start))
        .collect();
    let outcome = run_on(&path, flows, 120.0, |_, _| {});
    assert!(outcome.jain(40.0, 120.0) >= 0.95);
}

#[test]
fn the_host_fills_other_paths_too() {
    // Paths on which the first two packets of each member are a queue already need handshakes that
    // come before them: `lab/tests/scenarios.rs`.
    for (mbit, rtt) in [(1, 50), (10, 200), (100, 10), (50, 200)] {
        let host = HostController::new();
        let flows = members(&host, 5, 0.0);
        let buffer = mbit * 125 * (4 * rtt).max(200);
        let path = Path::new(mbit * 1_000_000, Duration::from_millis(rtt), buffer);
        let outcome = run_on(&path, flows, 60.0, |_, _| {});
        let used = outcome.utilisation(10.0, 60.0);
        assert!(used >= 0.8, "{mbit} Mbit/s, {rtt} ms: {used:.3}");
        assert!(outcome.jain(10.0, 60.0) >= 0.95);
    }
}
