//! One flow on one path: how well it fills it, how long the queue grows, what loss does to it.

use std::time::Duration;

use super::setting::{MBIT, millis, path_of, seconds};
use crate::matrix::measure::{Measure, Unit};
use crate::matrix::{BBR, CUBIC, Case, LEDBAT, NEWRENO, Row, Trial, Trouble};
use crate::scenario::{Change, Outcome, Scenario, Traffic, bdp, mean, median, percentile};
use towline_sim::LossModel;

pub(super) fn utilisation() -> Row {
    let mut cases = Vec::new();
    for controller in [NEWRENO, CUBIC, BBR, LEDBAT] {
        for rate in [10, 50, 100] {
            for rtt in [10, 50, 200] {
                cases.push(filling(controller, rate * MBIT, millis(rtt)));
            }
        }
    }
    Row {
        id: "utilisation",
        setting: "bytes on the bottleneck ÷ capacity; one flow, {10,50,100} Mbit/s × {10,50,200} ms, \
                  1 BDP drop-tail (LEDBAT++: 4 BDP and at least 200 ms), 60 s less the first 10",
        mark: "NewReno, CUBIC ≥ 95 %; BBR ≥ 92 %; LEDBAT++ ≥ 85 % (≥ 75 % at 200 ms)",
        cases,
    }
}

fn filling(controller: &'static str, rate: u64, rtt: Duration) -> Case {
    let mark = match controller {
        BBR => 0.92,
        LEDBAT if rtt >= millis(200) => 0.75,
        LEDBAT => 0.85,
        _ => 0.95,
    };
    let path = format!("{} Mbit/s {} ms", rate / MBIT, rtt.as_millis());
    let measures = vec![Measure::at_least("utilisation", mark, Unit::Share)];
    Case::new(controller, path, measures, move |trial| {
        let buffer = match controller {
            LEDBAT => bdp(rate, (4 * rtt).max(millis(200))),
            _ => bdp(rate, rtt),
        };
        let path = Scenario::dumbbell(rate, rtt, buffer, seconds(60));
        let outcome = trial.run(path.flow(trial.bulk(controller)?))?;
        Ok(vec![outcome.utilisation(seconds(10)..seconds(60))])
    })
}

pub(super) fn queue_delay() -> Row {
    const RTT: Duration = millis(40);
    let play = |trial: &Trial, controller| -> Result<Vec<f64>, Trouble> {
        let path = path_of(20 * MBIT, RTT, 4.0, seconds(60));
        let outcome = trial.run(path.flow(trial.bulk(controller)?))?;
        Ok(outcome.queue_delays(Duration::ZERO..seconds(60)))
    };
    Row {
        id: "queue delay",
        setting: "20 Mbit/s, 40 ms, 4 BDP, 60 s",
        mark: "BBR mean ≤ 1 BDP; LEDBAT++ mean ≤ 60 ms, p95 ≤ 75 ms",
        cases: vec![
            Case::new(
                BBR,
                "",
                vec![Measure::at_most("mean queue ÷ 1 BDP", 1.0, Unit::Times)],
                move |trial| Ok(vec![mean(&play(trial, BBR)?) / RTT.as_secs_f64()]),
            ),
            Case::new(
                LEDBAT,
                "",
                vec![
                    Measure::at_most("mean queue", 0.060, Unit::Millis),
                    Measure::at_most("p95 queue", 0.075, Unit::Millis),
                ],
                move |trial| {
                    let delays = play(trial, LEDBAT)?;
                    Ok(vec![mean(&delays), percentile(&delays, 0.95)])
                },
            ),
        ],
    }
}

/// Packets of a transfer in the row on random loss, and stream bytes that one of 1200 B carries.
const LOSS_PACKETS: u64 = 200_000;
const PAYLOAD: u64 = 1165;

pub(super) fn random_loss() -> Row {
    const RATE: u64 = 100 * MBIT;
    const RTT: Duration = millis(165);
    const LOSS: f64 = 0.01;
    // Long enough for a controller that reaches half of what its formula says.
    const MOST: Duration = seconds(6000);
    let play = |trial: &Trial, controller: &str| -> Result<Outcome, Trouble> {
        let mut path = path_of(RATE, RTT, 1.0, MOST);
        path.forward.loss = LossModel::Bernoulli(LOSS);
        let flow = trial.bulk(controller)?.with_traffic(Traffic::Streams {
            count: 1,
            bytes: LOSS_PACKETS * PAYLOAD,
        });
        trial.run(path.flow(flow))
    };
    let by_formula = |controller| {
        let measures = vec![Measure::between(
            "packets a round trip ÷ the formula's",
            0.75,
            1.25,
            Unit::Times,
        )];
        Case::new(controller, "", measures, move |trial| {
            let outcome = play(trial, controller)?;
            let flow = &outcome.flows[0];
            let took = super::transfer::took(flow, MOST)?;
            let stats = flow.stats.as_ref();
            let arrived = stats.map_or(0, |s| s.packets_sent - s.packets_lost);
            let per_round = arrived as f64 / (took.as_secs_f64() / RTT.as_secs_f64());
            Ok(vec![per_round / expected_window(controller, LOSS, RTT)])
        })
    };
    let measures = vec![Measure::at_least("utilisation", 0.6, Unit::Share)];
    Row {
        id: "random loss",
        setting: "100 Mbit/s, 165 ms, 1 BDP, 200,000 packets, 1 % lost at random",
        mark: "BBR ≥ 60 % of capacity; NewReno, CUBIC within 25 % of the larger of their formulas",
        cases: vec![
            by_formula(NEWRENO),
            by_formula(CUBIC),
            Case::new(BBR, "", measures, move |trial| {
                let outcome = play(trial, BBR)?;
                let flow = &outcome.flows[0];
                let end = flow.started + super::transfer::took(flow, MOST)?;
                Ok(vec![outcome.utilisation(flow.started..end)])
            }),
        ],
    }
}

/// A path that loses more than BBR's own threshold of 2 %.
pub(super) fn heavier_loss() -> Row {
    const RATE: u64 = 100 * MBIT;
    const RTT: Duration = millis(165);
    const MOST: Duration = seconds(1000);
    let play = |trial: &Trial, loss: f64, bytes: u64| -> Result<Outcome, Trouble> {
        let mut path = path_of(RATE, RTT, 1.0, MOST);
        path.forward.loss = LossModel::Bernoulli(loss);
        let file = Traffic::Streams { count: 1, bytes };
        trial.run(path.flow(trial.bulk(BBR)?.with_traffic(file)))
    };
    let long = |percent: u32| {
        let measures = vec![Measure::at_least("utilisation", 0.6, Unit::Share)];
        Case::new(BBR, format!("{percent} %"), measures, move |trial| {
            let loss = f64::from(percent) / 100.0;
            let outcome = play(trial, loss, LOSS_PACKETS * PAYLOAD)?;
            let flow = &outcome.flows[0];
            let end = flow.started + super::transfer::took(flow, MOST)?;
            Ok(vec![outcome.utilisation(flow.started..end)])
        })
    };
    // A seed of the matrix stands for so many runs: a single one's time is mostly chance.
    const RUNS: u64 = 20;
    let measures = vec![Measure::at_most("median time of 20", 4.6, Unit::Seconds)];
    let file = Case::new(BBR, "25 MB at 3 %", measures, move |trial| {
        let mut times = Vec::new();
        for run in 0..RUNS {
            let trial = Trial {
                seed: (trial.seed - 1) * RUNS + run + 1,
                ..*trial
            };
            let outcome = play(&trial, 0.03, 25_000_000)?;
            times.push(super::transfer::took(&outcome.flows[0], MOST)?.as_secs_f64());
        }
        Ok(vec![median(&times)])
    });
    Row {
        id: "heavier loss",
        setting: "BBR, 100 Mbit/s, 165 ms, 1 BDP, 2 and 3 % lost at random, 200,000 packets; and \
                  25 MB at 3 %, 20 runs a seed",
        mark: "≥ 60 % of capacity; 25 MB in ≤ 4.6 s, median",
        cases: vec![long(2), long(3), file],
    }
}

/// The window in packets that theory gives for random loss of share `p`: for NewReno and for the
/// Reno-friendly region of CUBIC 1.225/√p, for CUBIC's own region 1.054 (RTT/p)^0.75, which also
/// is larger where it counts (RFC 9438 §5).
pub(in crate::matrix) fn expected_window(controller: &str, p: f64, rtt: Duration) -> f64 {
    let reno = 1.225 / p.sqrt();
    match controller {
        CUBIC => reno.max(1.054 * (rtt.as_secs_f64() / p).powf(0.75)),
        _ => reno,
    }
}

pub(super) fn ack_loss() -> Row {
    const LENGTH: Duration = seconds(30);
    let play = |trial: &Trial, controller: &str, loss: f64| -> Result<(f64, f64), Trouble> {
        let mut path = path_of(20 * MBIT, millis(50), 1.0, LENGTH);
        // Once the handshake is over, only ACKs travel back.
        path.changes.push(Change {
            at: millis(300),
            forward: None,
            pool: None,
            back: Some(towline_sim::LinkConfig {
                loss: LossModel::Bernoulli(loss),
                ..path.back.clone()
            }),
        });
        let outcome = trial.run(path.flow(trial.bulk(controller)?))?;
        let flow = &outcome.flows[0];
        let windows: Vec<f64> = flow.samples.iter().map(|s| s.cwnd as f64).collect();
        Ok((mean(&windows), flow.goodput(Duration::ZERO..LENGTH)))
    };
    let case = |controller| {
        let measures = vec![
            Measure::at_least("mean window ÷ without loss", 0.5, Unit::Share),
            Measure::at_least("goodput ÷ without loss", 0.95, Unit::Share),
        ];
        Case::new(controller, "", measures, move |trial| {
            let (window, goodput) = play(trial, controller, 0.2)?;
            let (whole_window, whole_goodput) = play(trial, controller, 0.0)?;
            Ok(vec![window / whole_window, goodput / whole_goodput])
        })
    };
    Row {
        id: "ACK loss",
        setting: "20 % of ACK packets only, 20 Mbit/s, 50 ms, 1 BDP, 30 s",
        mark: "window ≥ half, goodput ≥ 95 %, of the same seed without ACK loss",
        cases: [NEWRENO, CUBIC, BBR, LEDBAT].map(case).into(),
    }
}

/// The same path at another rate from this time on.
fn change_of_rate(path: &Scenario, at: Duration, rate: u64) -> Change {
    let forward = towline_sim::LinkConfig {
        rate: Some(rate),
        ..path.forward.clone()
    };
    Change {
        at,
        forward: Some(forward),
        back: None,
        pool: None,
    }
}

pub(super) fn regained_capacity() -> Row {
    const RATE: u64 = 50 * MBIT;
    let case = |controller| {
        let measures = vec![Measure::at_least(
            "carried in the first 5 s after the return",
            0.9,
            Unit::Share,
        )];
        Case::new(controller, "", measures, move |trial| {
            let mut path = path_of(RATE, millis(40), 1.0, seconds(45));
            for (at, rate) in [(seconds(20), 5 * MBIT), (seconds(40), RATE)] {
                let change = change_of_rate(&path, at, rate);
                path.changes.push(change);
            }
            let outcome = trial.run(path.flow(trial.bulk(controller)?))?;
            Ok(vec![outcome.utilisation(seconds(40)..seconds(45))])
        })
    };
    Row {
        id: "regained capacity",
        setting: "50 → 5 → 50 Mbit/s at 20 and 40 of 45 s, 40 ms, 1 BDP of 50",
        mark: "CUBIC and BBR: ≥ 45 Mbit/s in the first 5 s after the return",
        cases: [CUBIC, BBR].map(case).into(),
    }
}

pub(super) fn step() -> Row {
    const RTT: Duration = millis(40);
    let measures = vec![
        Measure::at_most(
            "p95 of the queue from 3 s after the fall ÷ 1 BDP of 10 Mbit/s",
            1.0,
            Unit::Times,
        ),
        Measure::at_least("utilisation from 5 s after the rise", 0.9, Unit::Share),
    ];
    Row {
        id: "step",
        setting: "BBR, 50 → 10 → 50 Mbit/s at 20 and 40 of 60 s, 40 ms, buffer 1 BDP of 50",
        mark: "queue ≤ 1 BDP of the new rate within 3 s; ≥ 90 % within 5 s of the rise",
        cases: vec![Case::new(BBR, "", measures, |trial| {
            let mut path = path_of(50 * MBIT, RTT, 1.0, seconds(60));
            for (at, rate) in [(20, 10 * MBIT), (40, 50 * MBIT)] {
                let change = change_of_rate(&path, seconds(at), rate);
                path.changes.push(change);
            }
            let outcome = trial.run(path.flow(trial.bulk(BBR)?))?;
            let queue = percentile(&outcome.queue_delays(seconds(23)..seconds(40)), 0.95);
            let used = outcome.utilisation(seconds(45)..seconds(60));
            Ok(vec![queue / RTT.as_secs_f64(), used])
        })],
    }
}
