//! Several flows on one path: who gets how much, and who waits for whom.

use std::time::Duration;

use super::setting::{MBIT, millis, path_of, seconds};
use crate::matrix::measure::{Measure, Unit};
use crate::matrix::{BACKGROUND, BBR, CUBIC, Case, LEDBAT, NEWRENO, Row, Trial, Trouble};
use crate::scenario::{Flow, FlowOutcome, Outcome, Scenario, bdp, jain, mean, percentile};
use towline_quic::HostController;

pub(super) fn fairness() -> Row {
    let mut cases = Vec::new();
    for controller in [NEWRENO, CUBIC, BBR, LEDBAT] {
        for count in [2, 4, 8] {
            let starts = (0..count).map(|n| seconds(5 * n)).collect();
            cases.push(sharing(controller, format!("{count} flows"), starts));
        }
    }
    Row {
        id: "fairness",
        setting: "2, 4, 8 equal flows, 50 Mbit/s, 50 ms, 1 BDP (LEDBAT++: 200 ms), 120 s, starts \
                  5 s apart, last 60 s",
        mark: "Jain ≥ 0.95 NewReno, CUBIC; ≥ 0.9 BBR, LEDBAT++ (latecomer too)",
        cases,
    }
}

fn sharing(controller: &'static str, what: String, starts: Vec<Duration>) -> Case {
    let mark = match controller {
        NEWRENO | CUBIC => 0.95,
        _ => 0.9,
    };
    let mut measures = vec![Measure::at_least("Jain's index", mark, Unit::Index)];
    // Those that go by delay or a model of the path may take a queue they find for the path.
    let has_latecomer = matches!(controller, BBR | LEDBAT);
    if has_latecomer {
        let name = "Jain's index of the last comer and the others' mean";
        measures.push(Measure::at_least(name, mark, Unit::Index));
    }
    Case::new(controller, what, measures, move |trial| {
        let buffer = match controller {
            LEDBAT => millis(200),
            _ => millis(50),
        };
        let rate = 50 * MBIT;
        let mut path = Scenario::dumbbell(rate, millis(50), bdp(rate, buffer), seconds(120));
        for start in &starts {
            let flow = trial.bulk(controller)?.during(*start..Duration::MAX);
            path = path.flow(flow);
        }
        let outcome = trial.run(path)?;
        let span = seconds(60)..seconds(120);
        let mut values = vec![outcome.fairness(span.clone())];
        if has_latecomer && let Some((last, others)) = outcome.flows.split_last() {
            let others: Vec<f64> = others.iter().map(|f| f.goodput(span.clone())).collect();
            values.push(jain(&[last.goodput(span), mean(&others)]));
        }
        Ok(values)
    })
}

pub(super) fn yielding() -> Row {
    const RATE: u64 = 10 * MBIT;
    const BUSY: std::ops::Range<Duration> = seconds(20)..seconds(80);
    let path = || Scenario::dumbbell(RATE, millis(50), bdp(RATE, millis(200)), seconds(120));
    let measures = vec![
        Measure::at_least("CUBIC's rate ÷ alone", 0.9, Unit::Share),
        Measure::at_least("background's use from 10 s after it", 0.8, Unit::Share),
    ];
    Row {
        id: "yielding",
        setting: "LEDBAT++ against one CUBIC, 10 Mbit/s, 50 ms, buffer 200 ms, CUBIC on 20–80 s \
                  of 120",
        mark: "CUBIC ≥ 90 % of its solo rate; background ≥ 80 % within 10 s of its leaving",
        cases: vec![Case::new(LEDBAT, "", measures, move |trial| {
            // The same first flow number in both, so that both start in the same moment.
            let cubic = trial.bulk(CUBIC)?.during(BUSY);
            let background = trial.bulk(LEDBAT)?;
            let alone = trial.run(path().flow(cubic.clone()))?;
            let both = trial.run(path().flow(cubic).flow(background))?;
            let [alone_rate, rate] = [&alone, &both].map(|o| o.flows[0].goodput(BUSY));
            let after = both.utilisation(seconds(90)..seconds(120));
            Ok(vec![rate / alone_rate, after])
        })],
    }
}

/// What a host in the background leaves unused, and how soon it has the path back.
pub(super) fn background() -> Row {
    const RATE: u64 = 20 * MBIT;
    const BUSY: std::ops::Range<Duration> = seconds(30)..seconds(60);
    let case = |count: u32| {
        let measures = vec![
            Measure::at_least("utilisation alone", 0.95, Unit::Share),
            Measure::at_least("CUBIC's rate ÷ alone", 0.9, Unit::Share),
            Measure::at_most("full again after", 4.0, Unit::Seconds),
        ];
        Case::new(BACKGROUND, format!("{count}"), measures, move |trial| {
            let path = || Scenario::dumbbell(RATE, millis(40), bdp(RATE, millis(200)), seconds(90));
            // The same first flow number in both, so that both start in the same moment.
            let cubic = trial.bulk(CUBIC)?.during(BUSY);
            let alone = trial.run(path().flow(cubic.clone()))?;
            let host = HostController::new();
            let mut both = path().flow(cubic);
            for _ in 0..count {
                both = both.flow(member(trial, &host)?);
            }
            let both = trial.run(both)?;
            let [alone_rate, rate] = [&alone, &both].map(|o| o.flows[0].goodput(BUSY));
            let left = both.flows[0].started + (BUSY.end - BUSY.start);
            Ok(vec![
                both.utilisation(seconds(10)..BUSY.start),
                rate / alone_rate,
                full_after(&both, left),
            ])
        })
    };
    Row {
        id: "background",
        setting: "--background, one and ten connections, 20 Mbit/s, 40 ms, buffer 200 ms, CUBIC on \
                  30–60 s of 90",
        mark: "≥ 95 % alone; full again ≤ 4 s after CUBIC left; CUBIC ≥ 90 % of its solo rate",
        cases: [1, 10].map(case).into(),
    }
}

/// Seconds from `left` to the first one of which nine tenths are used.
fn full_after(outcome: &Outcome, left: Duration) -> f64 {
    let starts = (0..).map(|tenth| millis(100 * tenth));
    let mut starts = starts.take_while(|start| left + *start + seconds(1) <= outcome.duration);
    let full = starts.find(|start| {
        let second = left + *start..left + *start + seconds(1);
        outcome.utilisation(second) >= 0.9
    });
    full.map_or(f64::INFINITY, |start| start.as_secs_f64())
}

/// A bulk connection of a host in the background.
fn member(trial: &Trial, host: &HostController) -> Result<Flow, Trouble> {
    let mut flow = trial.bulk(LEDBAT)?;
    flow.transport.background = Some(host.clone());
    Ok(flow)
}

pub(super) fn bbr_against_cubic() -> Row {
    let case = |bdps: u32| {
        let measures = vec![Measure::between("BBR's share", 0.2, 0.8, Unit::Share)];
        Case::new(BBR, format!("{bdps} BDP"), measures, move |trial| {
            let path = path_of(50 * MBIT, millis(40), f64::from(bdps), seconds(120));
            let outcome = trial.run(path.flow(trial.bulk(BBR)?).flow(trial.bulk(CUBIC)?))?;
            let [bbr, cubic] = [0, 1].map(|n| {
                let flow: &FlowOutcome = &outcome.flows[n];
                flow.goodput(Duration::ZERO..seconds(120))
            });
            Ok(vec![bbr / (bbr + cubic)])
        })
    };
    Row {
        id: "BBR against CUBIC",
        setting: "50 Mbit/s, 40 ms, {1,4} BDP, 120 s",
        mark: "BBR's share 20–80 %",
        cases: [1, 4].map(case).into(),
    }
}

pub(super) fn parallel() -> Row {
    const LENGTH: Duration = seconds(60);
    let rate = |trial: &Trial, controller, count| -> Result<f64, Trouble> {
        let mut path = path_of(20 * MBIT, millis(50), 1.0, LENGTH);
        for _ in 0..count {
            path = path.flow(trial.bulk(controller)?);
        }
        let outcome = trial.run(path)?;
        let rates = outcome.flows.iter();
        Ok(rates.map(|f| f.goodput(Duration::ZERO..LENGTH)).sum())
    };
    let case = |controller| {
        let measures = vec![Measure::at_least("four together ÷ one", 0.9, Unit::Share)];
        Case::new(controller, "", measures, move |trial| {
            Ok(vec![
                rate(trial, controller, 4)? / rate(trial, controller, 1)?,
            ])
        })
    };
    Row {
        id: "parallel",
        setting: "4 connections against 1, 20 Mbit/s, 50 ms, 1 BDP, 60 s",
        mark: "aggregate ≥ 90 %",
        cases: [NEWRENO, CUBIC, BBR, LEDBAT].map(case).into(),
    }
}

pub(super) fn uplink() -> Row {
    const RATE: u64 = 10 * MBIT;
    let path = || Scenario::dumbbell(RATE, millis(30), bdp(RATE, millis(500)), seconds(60));
    let added = move |trial: &Trial, controller| -> Result<Vec<f64>, Trouble> {
        let idle = trial.run(path().flow(Flow::ping()))?;
        let mut busy = path().flow(Flow::ping());
        let host = HostController::new();
        for _ in 0..10 {
            busy = busy.flow(match controller {
                BACKGROUND => member(trial, &host)?,
                _ => trial.bulk(controller)?,
            });
        }
        let busy = trial.run(busy)?;
        let [idle_p95, busy_p95] = [&idle, &busy].map(|o| ping_p95(&o.flows[0]));
        Ok(vec![
            busy_p95 - idle_p95,
            busy.utilisation(Duration::ZERO..seconds(60)),
        ])
    };
    let case = move |controller, most| {
        let mut measures = vec![Measure::at_most(
            "ping p95 more than idle",
            most,
            Unit::Millis,
        )];
        if controller == BACKGROUND {
            measures.push(Measure::at_least("utilisation", 0.8, Unit::Share));
        }
        Case::new(controller, "", measures, move |trial| {
            added(trial, controller)
        })
    };
    Row {
        id: "uplink",
        setting: "ten bulk connections + a ping, 10 Mbit/s, 30 ms, 500 ms buffer, 60 s",
        mark: "--background: ping p95 + ≤ 30 ms at ≥ 80 % use; LEDBAT++: + ≤ 75 ms",
        cases: vec![case(BACKGROUND, 0.030), case(LEDBAT, 0.075)],
    }
}

/// 95 of 100 pings take no longer; a lost one takes for ever.
fn ping_p95(flow: &FlowOutcome) -> f64 {
    let sent = flow.pings.iter().filter(|(at, _)| *at < seconds(58));
    let times: Vec<f64> = sent
        .map(|(_, rtt)| rtt.map_or(f64::INFINITY, |rtt| rtt.as_secs_f64()))
        .collect();
    percentile(&times, 0.95)
}
