//! Ten bulk connections beside a ping on a slow uplink with a deep buffer: what the person at the
//! other end of the ping notices.

mod bottleneck;

use std::time::Duration;

use bottleneck::{Flow, Load, Outcome, at, run};
use towline_recovery::{Algorithm, Config, Controller, HostController, Recovery};
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
    let controller = Controller::Host(host.join(1200));
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

#[test]
fn dbg() {
    let host = HostController::new();
    let flows = (0..10).map(|_| member(&host, Load::Bulk, 0.0)).collect();
    let outcome = uplink(flows);
    println!(
        "host: ping + {:.1} ms, used {:.3}, jain {:.3} q {:?} drops {}",
        ping_increase(&outcome),
        outcome.utilisation(10.0, 60.0),
        outcome.jain(10.0, 60.0),
        outcome.queue_delay(10.0, 60.0),
        outcome.dropped
    );
    for a in [Algorithm::LedbatPlusPlus, Algorithm::Cubic] {
        let flows = (0..10)
            .map(|_| Flow::new(Recovery::new(config(a)), Load::Bulk, at(0.0)))
            .collect();
        let outcome = uplink(flows);
        println!(
            "{a}: ping + {:.1} ms, used {:.3}, jain {:.3} q {:?} drops {}",
            ping_increase(&outcome),
            outcome.utilisation(10.0, 60.0),
            outcome.jain(10.0, 60.0),
            outcome.queue_delay(10.0, 60.0),
            outcome.dropped
        );
    }
}
