//! What a path does that is over soon: it falls silent, or takes a packet of the handshake. What
//! counts is how long the connection needs to notice that it is over.

use std::time::Duration;

use super::{MBIT, millis, path_of, seconds};
use crate::Random;
use crate::matrix::grade::{Measure, Unit};
use crate::matrix::{BBR, CUBIC, Case, LEDBAT, NEWRENO, Row, Trial, Trouble};
use crate::scenario::{Scenario, median};
use towline_sim::LinkConfig;
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
