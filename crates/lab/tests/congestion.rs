//! Windows over a bottleneck: what made those of earlier transports collapse must not happen here,
//! with any controller, at any round trip from 10 to 300 ms.
//! What needs more than a path (bursts, keep-alives, resets) is in `towline-quic`'s tests.

use std::time::Duration;

use towline_lab::scenario::{Flow, FlowOutcome, Outcome, Scenario, Traffic, bdp, percentile, run};
use towline_quic::{Algorithm, Stats};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::Time;

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::NewReno,
    Algorithm::Cubic,
    Algorithm::Bbr,
    Algorithm::LedbatPlusPlus,
];

/// Round trips in milliseconds.
const RTTS: [u64; 5] = [10, 50, 137, 200, 300];

const SEEDS: [u64; 2] = [1, 2];

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A file of so many bytes over a path whose buffer never overflows.
fn file(seed: u64, congestion: Algorithm, rate: u64, rtt: u64, bytes: u64) -> Scenario {
    let traffic = Traffic::Streams { count: 1, bytes };
    let flow = Flow::bulk("file", congestion).with_traffic(traffic);
    let buffer = 30 * bdp(rate, ms(rtt));
    let mut scenario = Scenario::dumbbell(rate, ms(rtt), buffer, Duration::from_secs(300));
    scenario.seed = seed;
    scenario.sample_every = (ms(rtt) / 10).max(ms(1));
    scenario.flow(flow)
}

/// Plays it; the one flow must have come to its end.
fn play(scenario: &Scenario, what: &str) -> (FlowOutcome, Stats, Outcome) {
    let outcome = run(scenario).unwrap_or_else(|error| panic!("{what}: {error}"));
    let flow = outcome.flows[0].clone();
    assert_eq!(flow.failure, None, "{what}");
    let stats = flow.stats.clone().unwrap_or_else(|| panic!("{what}"));
    (flow, stats, outcome)
}

/// Every controller, round trip and seed, with the words that name the case.
fn cases() -> impl Iterator<Item = (Algorithm, u64, u64, String)> {
    ALGORITHMS.into_iter().flat_map(|congestion| {
        RTTS.into_iter().flat_map(move |rtt| {
            SEEDS.into_iter().map(move |seed| {
                (
                    congestion,
                    rtt,
                    seed,
                    format!("{congestion}, {rtt} ms, seed {seed}"),
                )
            })
        })
    })
}

fn least_window(flow: &FlowOutcome, from: Duration) -> u64 {
    let after = flow.samples.iter().filter(|s| s.at >= from);
    after.map(|s| s.cwnd).min().unwrap_or(0)
}

fn window_at(flow: &FlowOutcome, at: Duration) -> u64 {
    let before = flow.samples.iter().take_while(|s| s.at <= at);
    before.last().map_or(0, |s| s.cwnd)
}

/// Ten packets of one flight are lost: one response, not ten.
#[test]
fn losses_of_one_flight_get_one_response() {
    for (congestion, rtt, seed, what) in cases() {
        let mut scenario = file(seed, congestion, 100_000_000, rtt, 900_000);
        scenario.forward.drop_list = (0..10).map(|n| 400 + 2 * n).collect();
        // The probe timeouts counted below are not those of a handshake over 300 ms.
        scenario.flows[0].transport.initial_rtt = ms(333);
        let (flow, stats, outcome) = play(&scenario, &what);
        assert_eq!(outcome.forward.drops.total(), 10, "{what}");
        assert!(flow.took().is_some(), "{what}");
        assert_eq!(stats.packets_lost, 10, "{what}");
        assert_eq!(stats.congestion_events, 1, "{what}");
        assert_eq!(stats.probe_timeouts, 0, "{what}");
        if matches!(congestion, Algorithm::NewReno | Algorithm::Cubic) {
            let most = flow.samples.iter().map(|s| s.cwnd).max().unwrap_or(0);
            let least = least_window(&flow, flow.connected.unwrap_or_default());
            // It starts at 12,000; a second response would leave a quarter of the peak.
            assert!(least >= 12_000.min(most / 2), "{what}: {least} of {most}");
        }
    }
}

/// How long a path is dark in [`dark`], and what is dark.
struct Dark {
    there: bool,
    length: Duration,
}

/// A file on a path that goes dark after six round trips; when that began.
fn dark(seed: u64, congestion: Algorithm, rtt: u64, dark: &Dark) -> (Scenario, Duration) {
    let mut scenario = file(seed, congestion, 100_000_000, rtt, 3_000_000);
    let begin = ms(rtt) * 6;
    let darken = |link: &LinkConfig| link.clone().with_blackout(Time::ZERO + begin, dark.length);
    if dark.there {
        scenario.forward = darken(&scenario.forward);
    }
    scenario.back = darken(&scenario.back);
    (scenario, begin)
}

/// Acknowledgements are late, a probe timeout expires, nothing was lost. The
/// window stays.
#[test]
fn a_probe_timeout_alone_leaves_the_window() {
    for (congestion, rtt, seed, what) in cases() {
        let length = ms(rtt) * 2 + ms(60);
        let there = false;
        let (scenario, begin) = dark(seed, congestion, rtt, &Dark { there, length });
        let (flow, stats, _) = play(&scenario, &what);
        assert!(flow.took().is_some(), "{what}");
        assert!(stats.probe_timeouts > 0, "{what}: the test is about them");
        let lost = stats.packets_lost - stats.packets_spuriously_lost;
        assert_eq!(lost, 0, "{what}");
        let before = window_at(&flow, begin);
        let after = flow.samples.iter().filter(|s| {
            // Until a round trip after the light is back.
            s.at >= begin && s.at <= begin + length + ms(rtt)
        });
        let least = after.map(|s| s.cwnd).min().unwrap_or(0);
        assert!(least >= before, "{what}: {least} after {before}");
    }
}

/// Nothing arrives for many probe timeouts. That is persistent congestion, and
/// the window falls to two datagrams.
#[test]
fn losses_over_three_probe_timeouts_collapse_the_window() {
    for (congestion, rtt, seed, what) in cases() {
        let length = ms(rtt) * 20 + ms(400);
        let there = true;
        let (mut scenario, begin) = dark(seed, congestion, rtt, &Dark { there, length });
        scenario.sample_every = ms(1);
        let (flow, _, _) = play(&scenario, &what);
        assert!(flow.took().is_some(), "{what}");
        let least = least_window(&flow, begin);
        // A sample may come a few ACKs after the collapse.
        assert!(least <= 6 * 1200, "{what}: {least}");
    }
}

/// Round trip and, for BBR, bandwidth are known as well after a probe timeout as before.
#[test]
fn what_is_known_of_the_path_survives_a_probe_timeout() {
    for (congestion, rtt, seed, what) in cases() {
        let length = ms(rtt) * 2 + ms(60);
        let there = false;
        let (scenario, begin) = dark(seed, congestion, rtt, &Dark { there, length });
        let (flow, stats, _) = play(&scenario, &what);
        assert!(stats.probe_timeouts > 0, "{what}: the test is about them");
        let min_rtt = stats.min_rtt.unwrap_or_default();
        assert!(
            (ms(rtt)..ms(rtt) + ms(2)).contains(&min_rtt),
            "{what}: {min_rtt:?}"
        );
        let at = |time: Duration| {
            *flow
                .samples
                .iter()
                .take_while(|s| s.at <= time)
                .last()
                .unwrap()
        };
        // The last acknowledgements that left in time have come.
        let (before, during) = (at(begin + ms(rtt)), at(begin + length));
        assert_eq!(
            before.smoothed_rtt, during.smoothed_rtt,
            "{what}: no sample, no change"
        );
        if congestion == Algorithm::Bbr {
            let rate = |s: towline_lab::scenario::FlowSample| s.pacing_rate.unwrap_or(0) as f64;
            let (before, after) = (rate(before), rate(at(begin + length + ms(rtt))));
            assert!(after >= 0.9 * before, "{what}: {after} after {before}");
        }
    }
}

/// (h) LEDBAT++ slows down, but at most a tenth of the time.
#[test]
fn slowdowns_are_at_least_eighteen_round_trips_apart() {
    for rtt in RTTS {
        for seed in SEEDS {
            let what = format!("{rtt} ms, seed {seed}");
            // Each round trip holds the target's 60 ms of queue as well.
            let duration = (ms(rtt) + ms(60)) * 300;
            let mut scenario = Scenario::dumbbell(10_000_000, ms(rtt), 1 << 20, duration);
            scenario.seed = seed;
            scenario.sample_every = ms(rtt) / 10;
            let scenario = scenario.flow(Flow::bulk("ledbat", Algorithm::LedbatPlusPlus));
            let (flow, stats, _) = play(&scenario, &what);
            assert_eq!(stats.congestion_events, 0, "{what}: slowdowns only");
            // When each began, and when the window was back.
            let mut slowdowns: Vec<(Duration, Duration)> = Vec::new();
            let mut before = None;
            for pair in flow.samples.windows(2) {
                let at = pair[1].at;
                match before {
                    None if pair[0].cwnd > 3 * 1200 && pair[1].cwnd <= 3 * 1200 => {
                        slowdowns.push((at, at));
                        before = Some(pair[0].cwnd);
                    }
                    Some(cwnd) if pair[1].cwnd > cwnd / 2 => {
                        before = None;
                        if let Some((_, end)) = slowdowns.last_mut() {
                            *end = at;
                        }
                    }
                    _ => {}
                }
            }
            // The first follows slow start by two round trips; the distance is that between two.
            assert!(slowdowns.len() >= 3, "{what}: {slowdowns:?}");
            for pair in slowdowns.windows(2) {
                let apart = pair[1].0.saturating_sub(pair[0].1);
                assert!(
                    apart >= ms(rtt) * 18,
                    "{what}: {apart:?} between {slowdowns:?}"
                );
                let took = pair[0].1 - pair[0].0;
                assert!(apart >= took * 8, "{what}: {took:?} of each {apart:?}");
            }
        }
    }
}

/// (i) Acknowledgements are lost, data is not: no response, no collapse, little time.
#[test]
fn lost_acknowledgements_cost_no_window() {
    for (congestion, rtt, seed, what) in cases() {
        for share in [0.2, 0.5] {
            let what = format!("{what}, {share} of the ACKs");
            let clean = file(seed, congestion, 20_000_000, rtt, 2_400_000);
            let (alone, _, _) = play(&clean, &what);
            let mut scenario = clean.clone();
            // Not of the handshake.
            let mut lossy = scenario.back.clone();
            lossy.loss = LossModel::Bernoulli(share);
            let begin = ms(rtt) * 3;
            scenario.changes.push(towline_lab::scenario::Change {
                at: begin,
                forward: None,
                back: Some(lossy),
                pool: None,
            });
            let (flow, stats, outcome) = play(&scenario, &what);
            assert!(outcome.back.drops.loss > 10, "{what}");
            assert_eq!(outcome.forward.drops.total(), 0, "{what}");
            let lost = stats.packets_lost - stats.packets_spuriously_lost;
            assert_eq!((lost, stats.congestion_events), (0, 0), "{what}");
            let (took, without) = (flow.took(), alone.took());
            let (Some(took), Some(without)) = (took, without) else {
                panic!("{what}: {took:?}, {without:?}");
            };
            // Two packets in flight, as LEDBAT++ begins with and slows down to, have one ACK: half
            // of those rounds wait for a probe.
            let patient = congestion == Algorithm::LedbatPlusPlus && share > 0.3;
            let most = without.mul_f64(if patient { 10.0 } else { 1.5 }) + ms(rtt) * 4;
            assert!(took <= most, "{what}: {took:?} instead of {without:?}");
            if congestion != Algorithm::LedbatPlusPlus {
                // LEDBAT++ slows down by itself, BBR drains what its startup queued.
                let mut most = 0;
                for sample in flow.samples.iter().filter(|s| s.at > begin) {
                    most = most.max(sample.cwnd);
                    let floor = if congestion == Algorithm::Bbr { 4 } else { 2 };
                    assert!(
                        sample.cwnd >= most / floor,
                        "{what}: {} after {most} at {:?}",
                        sample.cwnd,
                        sample.at
                    );
                }
            }
        }
    }
}

/// (j) Ten connections start at once on an uplink of 10 Mbit/s.
#[test]
fn a_simultaneous_start_on_a_slow_uplink_is_fair_and_bounded_by_the_buffer() {
    let (rate, rtt) = (10_000_000, ms(50));
    for congestion in ALGORITHMS {
        for (count, buffers) in [(5, 2), (10, 4)] {
            for seed in SEEDS {
                let what = format!("{count} x {congestion}, {buffers} BDP, seed {seed}");
                let buffer = buffers * bdp(rate, rtt);
                let mut scenario = Scenario::dumbbell(rate, rtt, buffer, Duration::from_secs(60));
                scenario.seed = seed;
                for n in 0..count {
                    let mut flow = Flow::bulk(format!("{n}"), congestion);
                    // A few milliseconds apart, as they would come.
                    flow.active.start = ms(n * 3);
                    scenario.flows.push(flow);
                }
                scenario.flows.push(Flow::ping());
                let (_, _, outcome) = play(&scenario, &what);
                let span = Duration::from_secs(10)..Duration::from_secs(60);
                let used = outcome.utilisation(span.clone());
                assert!(used >= 0.9, "{what}: {used} used");
                let fairness = outcome.fairness(span.clone());
                let least = if congestion == Algorithm::LedbatPlusPlus {
                    0.6
                } else {
                    0.8
                };
                assert!(fairness >= least, "{what}: Jain {fairness}");
                for flow in outcome.flows.iter().filter(|f| f.pings.is_empty()) {
                    let stats = flow.stats.as_ref().unwrap();
                    let share = flow.goodput(span.clone()) / (rate as f64 / count as f64);
                    assert!(share > 0.2, "{what}: flow {} got {share}", flow.name);
                    assert!(
                        stats.probe_timeouts <= 5,
                        "{what}: flow {}: {} probe timeouts",
                        flow.name,
                        stats.probe_timeouts
                    );
                }
                let pings = outcome
                    .flows
                    .last()
                    .unwrap()
                    .ping_times(Duration::ZERO..span.end);
                let full = buffer as f64 * 8.0 / rate as f64;
                let worst = percentile(&pings, 1.0);
                assert!(worst <= 0.05 + full + 0.005, "{what}: a ping of {worst} s");
            }
        }
    }
}
