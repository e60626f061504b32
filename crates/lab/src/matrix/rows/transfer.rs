//! Transfers with an end: how long they take, and what they lose on the way.

use std::time::Duration;

use super::setting::{MBIT, millis, path_of, seconds};
use crate::matrix::measure::{Measure, Unit};
use crate::matrix::{BACKGROUND, BBR, CUBIC, Case, LEDBAT, NEWRENO, Row, Trial, Trouble};
use crate::scenario::{FlowOutcome, Outcome, Traffic, coefficient_of_variation};

/// When the last byte of all streams had arrived, from the start of the connection.
pub(super) fn took(flow: &FlowOutcome, most: Duration) -> Result<Duration, Trouble> {
    let took = flow.took().filter(|_| !flow.completed.is_empty());
    took.ok_or_else(|| Trouble::Failed(format!("`{}` was not complete after {most:?}", flow.name)))
}

/// The same from the end of the handshake.
pub(super) fn took_after_handshake(flow: &FlowOutcome, most: Duration) -> Result<f64, Trouble> {
    let whole = took(flow, most)?;
    let handshake = flow.connected.unwrap_or_default();
    let handshake = handshake.saturating_sub(flow.started);
    Ok(whole.saturating_sub(handshake).as_secs_f64())
}

pub(super) fn freenet() -> Row {
    const MOST: Duration = seconds(60);
    let case = |controller| {
        let measures = vec![
            Measure::at_most("whole time", 1.8, Unit::Seconds),
            Measure::at_most("probe timeouts and spurious losses", 0.0, Unit::Count),
        ];
        Case::new(controller, "", measures, move |trial| {
            let path = path_of(100 * MBIT, millis(165), 1.0, MOST);
            let file = Traffic::Streams {
                count: 1,
                bytes: 2_400_000,
            };
            let outcome = trial.run(path.flow(trial.bulk(controller)?.with_traffic(file)))?;
            let flow = &outcome.flows[0];
            let stats = flow.stats.as_ref();
            let spurious = stats.map_or(0, |s| s.probe_timeouts + s.packets_spuriously_lost);
            Ok(vec![took(flow, MOST)?.as_secs_f64(), spurious as f64])
        })
    };
    Row {
        id: "Freenet's path",
        setting: "2.4 MB, 100 Mbit/s, 165 ms, 1 BDP, handshake included",
        mark: "≤ 1.8 s, no spurious timeout, all but LEDBAT++",
        cases: [NEWRENO, CUBIC, BBR].map(case).into(),
    }
}

pub(super) fn slow_start() -> Row {
    const MOST: Duration = seconds(120);
    let play = |trial: &Trial, controller, hystart| -> Result<(f64, f64), Trouble> {
        let path = path_of(100 * MBIT, millis(200), 0.5, MOST);
        let mut flow = trial.bulk(controller)?.with_traffic(Traffic::Streams {
            count: 1,
            bytes: 20_000_000,
        });
        flow.transport.hystart = hystart;
        let outcome = trial.run(path.flow(flow))?;
        let flow = &outcome.flows[0];
        let lost = flow.stats.as_ref().map_or(0, |s| s.packets_lost);
        Ok((lost as f64, took(flow, MOST)?.as_secs_f64()))
    };
    let case = |controller| {
        let measures = vec![
            Measure::at_most("packets lost ÷ classic's", 0.5, Unit::Share),
            Measure::at_most("time ÷ classic's", 1.1, Unit::Share),
        ];
        Case::new(controller, "", measures, move |trial| {
            let (lost, took) = play(trial, controller, true)?;
            let (classic_lost, classic_took) = play(trial, controller, false)?;
            Ok(vec![lost / classic_lost, took / classic_took])
        })
    };
    Row {
        id: "slow start",
        setting: "20 MB, 100 Mbit/s, 200 ms, 0.5 BDP, NewReno and CUBIC",
        mark: "HyStart++ loses < half of classic's packets at ≤ 10 % longer finish",
        cases: [NEWRENO, CUBIC].map(case).into(),
    }
}

pub(super) fn reordering() -> Row {
    const MOST: Duration = seconds(200);
    let play = |trial: &Trial, controller, late| -> Result<f64, Trouble> {
        let mut path = path_of(100 * MBIT, millis(165), 1.0, MOST);
        path.forward.reorder = late;
        path.forward.reorder_delay = millis(2);
        let mut flow = match controller {
            BACKGROUND => trial.bulk(LEDBAT)?,
            _ => trial.bulk(controller)?,
        };
        flow.background = controller == BACKGROUND;
        let file = Traffic::Streams {
            count: 1,
            bytes: 25_000_000,
        };
        let outcome = trial.run(path.flow(flow.with_traffic(file)))?;
        Ok(took(&outcome.flows[0], MOST)?.as_secs_f64())
    };
    let case = |controller| {
        let measures = vec![Measure::at_most("time ÷ in order", 1.1, Unit::Share)];
        Case::new(controller, "", measures, move |trial| {
            let (late, in_order) = (
                play(trial, controller, 0.02)?,
                play(trial, controller, 0.0)?,
            );
            Ok(vec![late / in_order])
        })
    };
    Row {
        id: "reordering",
        setting: "25 MB, 100 Mbit/s, 165 ms, 1 BDP, 2 % of packets 2 ms late",
        mark: "≤ 1.1 × the time of the same seed in order, every controller",
        cases: [NEWRENO, CUBIC, BBR, LEDBAT, BACKGROUND].map(case).into(),
    }
}

/// The path of the seed's transfers.
const SEED_RTT: Duration = millis(50);
const SEED_MOST: Duration = seconds(30);

fn streams(trial: &Trial, controller: &str, count: u32, bytes: u64) -> Result<Outcome, Trouble> {
    let path = path_of(100 * MBIT, SEED_RTT, 1.0, SEED_MOST);
    let traffic = Traffic::Streams { count, bytes };
    trial.run(path.flow(trial.bulk(controller)?.with_traffic(traffic)))
}

pub(super) fn seed_streams() -> Row {
    // RFC 9002 §7.2 at 1200 bytes a packet.
    const WINDOW: f64 = 12_000.0;
    let mut cases = Vec::new();
    for controller in [NEWRENO, CUBIC, BBR] {
        for (kilobytes, rounds) in [(4, 0.6), (16, 1.7), (64, 3.0)] {
            let measures = vec![
                Measure::at_most("after the handshake", rounds, Unit::Rtts),
                Measure::exactly("initial window", WINDOW, Unit::Bytes),
            ];
            let what = format!("{kilobytes} KB");
            cases.push(Case::new(controller, what, measures, move |trial| {
                let outcome = streams(trial, controller, 1, kilobytes * 1024)?;
                let flow = &outcome.flows[0];
                let took = took_after_handshake(flow, SEED_MOST)?;
                let window = flow.initial_window.unwrap_or(0);
                Ok(vec![took / SEED_RTT.as_secs_f64(), window as f64])
            }));
        }
    }
    Row {
        id: "the seed's streams",
        setting: "4 / 16 / 64 KB from connection start, 100 Mbit/s, 50 ms, initial window of \
                  RFC 9002",
        mark: "≤ 0.6 / 1.7 / 3.0 RTT after the handshake",
        cases,
    }
}

pub(super) fn seed_concurrency() -> Row {
    let mut cases = Vec::new();
    for controller in [NEWRENO, CUBIC, BBR, LEDBAT] {
        for count in [2, 5, 10] {
            let measures = vec![Measure::at_most(
                "longer than one stream of the sum",
                1.0,
                Unit::Rtts,
            )];
            let what = format!("{count} × 16 KB");
            cases.push(Case::new(controller, what, measures, move |trial| {
                let bytes = 16 * 1024;
                let time = |count: u32, bytes| -> Result<f64, Trouble> {
                    let outcome = streams(trial, controller, count, bytes)?;
                    took_after_handshake(&outcome.flows[0], SEED_MOST)
                };
                let longer = time(count, bytes)? - time(1, bytes * u64::from(count))?;
                Ok(vec![longer / SEED_RTT.as_secs_f64()])
            }));
        }
        let measures = vec![Measure::at_most(
            "variation of bytes when the first is complete",
            0.1,
            Unit::Index,
        )];
        cases.push(Case::new(controller, "10 × 1 MB", measures, move |trial| {
            let outcome = streams(trial, controller, 10, 1_000_000)?;
            let flow = &outcome.flows[0];
            took(flow, SEED_MOST)?;
            let bytes = flow.stream_bytes_at_first_end.iter();
            let bytes: Vec<f64> = bytes.map(|bytes| *bytes as f64).collect();
            match bytes.len() {
                10 => Ok(vec![coefficient_of_variation(&bytes)]),
                // A stream not yet begun when the first ended has nothing at all.
                n => Err(Trouble::Failed(format!("only {n} of 10 streams had begun"))),
            }
        }));
    }
    Row {
        id: "the seed's concurrency",
        setting: "2 / 5 / 10 × 16 KB; and ten 1 MB streams; 100 Mbit/s, 50 ms",
        mark: "no slower than one stream of the sum + 1 RTT; CoV of bytes delivered when the first \
               of ten finishes ≤ 0.1",
        cases,
    }
}
