//! What a path does that is over soon: it falls silent, or takes a packet of the handshake. What
//! counts is how long the connection needs to notice that it is over.

use std::time::Duration;

use super::setting::{MBIT, millis, path_of, seconds};
use crate::Random;
use crate::matrix::measure::{Measure, Unit};
use crate::matrix::{BBR, CUBIC, Case, LEDBAT, NEWRENO, Row, Trial, Trouble};
use crate::scenario::{Scenario, Traffic, median, percentile};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::Time;

/// Outages of one playing, of lengths spread over the range: what one length gives is chance,
/// because the timers that matter double.
const OUTAGES: u32 = 12;
const SHORTEST: Duration = seconds(1);
const LONGEST: Duration = seconds(10);
/// The stream of random numbers that the lengths come from.
const LENGTHS: u64 = 7100;

/// When the path falls silent, and how long is waited for data after it is back.
const SILENT_FROM: Duration = seconds(3);
const PATIENCE: Duration = seconds(10);

pub(super) fn outage() -> Row {
    const RTT: Duration = millis(40);
    let mark = 1.5 * RTT.as_secs_f64() + 0.3;
    let case = |controller| {
        let measures = vec![Measure::at_most(
            "time until data flows, median of 12",
            mark,
            Unit::Seconds,
        )];
        Case::new(controller, "", measures, move |trial| {
            let mut random = Random::new(trial.seed, LENGTHS);
            let mut times = Vec::new();
            for n in 0..OUTAGES {
                let share = (LONGEST - SHORTEST) / OUTAGES;
                let length = SHORTEST + share * n + random.duration_up_to(share);
                let path = path_of(20 * MBIT, RTT, 1.0, SILENT_FROM + length + PATIENCE);
                times.push(time_until_data(trial, controller, path, length)?);
            }
            Ok(vec![median(&times)])
        })
    };
    Row {
        id: "outage",
        setting: "20 Mbit/s, 40 ms, nothing passes for 1 to 10 s",
        mark: "data flows again in ≤ 1.5 RTT + 0.3 s, median",
        cases: [NEWRENO, CUBIC, BBR, LEDBAT].map(case).into(),
    }
}

/// Seconds from the end of an outage of a bulk transfer until the receiver has more than before.
fn time_until_data(
    trial: &Trial,
    controller: &str,
    mut path: Scenario,
    length: Duration,
) -> Result<f64, Trouble> {
    let silence = |link: &LinkConfig| link.clone().with_blackout(Time::ZERO + SILENT_FROM, length);
    path.forward = silence(&path.forward);
    path.back = silence(&path.back);
    path.sample_every = millis(5);
    let outcome = trial.run(path.flow(trial.bulk(controller)?))?;
    let end = SILENT_FROM + length;
    let samples = &outcome.flows[0].samples;
    let before = samples.partition_point(|sample| sample.at <= end);
    let had = samples[..before]
        .last()
        .map_or(0, |sample| sample.delivered);
    let more = samples[before..]
        .iter()
        .find(|sample| sample.delivered > had);
    let more = more.ok_or_else(|| {
        Trouble::Failed(format!(
            "no data {PATIENCE:?} after an outage of {length:?}"
        ))
    })?;
    Ok((more.at - end).as_secs_f64())
}

/// Handshakes of one playing: flows of a scenario, and scenarios.
const CLIENTS: usize = 100;
const ROUNDS: u64 = 5;

pub(super) fn lost_handshake_packet() -> Row {
    const RTT: Duration = millis(50);
    const MOST: Duration = seconds(20);
    let mut cases = Vec::new();
    for controller in [NEWRENO, CUBIC, BBR, LEDBAT] {
        for post_quantum in [false, true] {
            let first_flight = match post_quantum {
                true => "two datagrams first",
                false => "one datagram first",
            };
            let measures = vec![Measure::at_most("first byte, p95", 0.45, Unit::Seconds)];
            cases.push(Case::new(
                controller,
                first_flight,
                measures,
                move |trial| {
                    let mut times = Vec::new();
                    for round in 0..ROUNDS {
                        let trial = Trial {
                            seed: trial.seed * 1000 + round,
                            ..*trial
                        };
                        let mut path = path_of(100 * MBIT, RTT, 1.0, MOST);
                        path.post_quantum = post_quantum;
                        path.forward.loss = LossModel::Bernoulli(0.03);
                        path.back.loss = LossModel::Bernoulli(0.03);
                        for _ in 0..CLIENTS {
                            let question = Traffic::Request { bytes: 1000 };
                            path = path.flow(trial.bulk(controller)?.with_traffic(question));
                        }
                        let outcome = trial.run(path)?;
                        times.extend(outcome.flows.iter().map(|flow| {
                            let took = flow.first_byte.map(|at| at.saturating_sub(flow.started));
                            took.map_or(f64::INFINITY, |took| took.as_secs_f64())
                        }));
                    }
                    Ok(vec![percentile(&times, 0.95)])
                },
            ));
        }
    }
    Row {
        id: "lost handshake packet",
        setting: "50 ms, 3 % random loss both ways, 500 handshakes, each with a question",
        mark: "first byte of the answer p95 ≤ 0.45 s",
        cases,
    }
}
