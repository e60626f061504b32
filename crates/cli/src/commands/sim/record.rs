//! The JSON of a run, schema `towline.sim/1`: rates in bits per second, times in seconds, shares
//! from 0 to 1. The series come on request.

use std::time::Duration;

use serde_json::{Value, json};
use towline_lab::scenario::{Congestion, FlowOutcome, FlowSummary, Outcome, Scenario, Summary};

/// One run.
pub(super) fn record(
    scenario: &Scenario,
    outcome: &Outcome,
    summary: &Summary,
    file: Option<&str>,
    with_series: bool,
) -> Value {
    let flows: Vec<Value> = scenario
        .flows
        .iter()
        .zip(&summary.flows)
        .map(|(flow, seen)| self::flow(controller(flow), seen))
        .collect();
    let mut record = json!({
        "schema": "towline.sim/1",
        "scenario": scenario.name,
        "file": file,
        "seed": scenario.seed,
        "duration": outcome.duration.as_secs_f64(),
        "measured": [summary.span.start.as_secs_f64(), summary.span.end.as_secs_f64()],
        "forward": scenario.forward.to_string(),
        "back": scenario.back.to_string(),
        "bottleneck": {
            "utilisation": summary.utilisation,
            "queue_mean": summary.queue_mean,
            "queue_p95": summary.queue_p95,
            "queue_max": summary.queue_max,
            "fairness": summary.fairness,
            "drops": outcome.forward.drops.total(),
            "ce_marks": outcome.forward.ce_marks,
        },
        "flows": flows,
    });
    if with_series && let Some(record) = record.as_object_mut() {
        record.insert("series".to_owned(), series(outcome));
    }
    record
}

/// The controller of a flow that has one.
pub(super) fn controller(flow: &towline_lab::scenario::Flow) -> Option<String> {
    flow.traffic
        .is_engine()
        .then(|| Congestion::of(flow).to_string())
}

fn flow(cc: Option<String>, seen: &FlowSummary) -> Value {
    json!({
        "name": seen.name,
        "cc": cc,
        "goodput_bits_per_second": seen.goodput,
        "share": seen.share,
        "loss": seen.loss,
        "packets_lost": seen.packets_lost,
        "bytes_retransmitted": seen.bytes_retransmitted,
        "rtt_p50": seen.rtt_p50,
        "rtt_p95": seen.rtt_p95,
        "took": seen.took,
        "failure": seen.failure,
    })
}

/// Columns over time, one entry for each sample.
fn series(outcome: &Outcome) -> Value {
    let bottleneck = &outcome.bottleneck;
    let seconds = |time: Duration| time.as_secs_f64();
    json!({
        "bottleneck": {
            "at": column(bottleneck, |s| seconds(s.at)),
            "rate": column(bottleneck, |s| s.rate),
            "carried_bytes": column(bottleneck, |s| s.carried),
            "queue_bytes": column(bottleneck, |s| s.queue),
            "queue_delay": column(bottleneck, |s| seconds(s.delay)),
        },
        "flows": outcome.flows.iter().map(flow_series).collect::<Vec<_>>(),
    })
}

fn flow_series(flow: &FlowOutcome) -> Value {
    let samples = &flow.samples;
    let seconds = |time: Duration| time.as_secs_f64();
    json!({
        "name": flow.name,
        "at": column(samples, |s| seconds(s.at)),
        "delivered_bytes": column(samples, |s| s.delivered),
        "cwnd": column(samples, |s| s.cwnd),
        "bytes_in_flight": column(samples, |s| s.bytes_in_flight),
        "smoothed_rtt": column(samples, |s| seconds(s.smoothed_rtt)),
        "latest_rtt": column(samples, |s| seconds(s.latest_rtt)),
        "pacing_bits_per_second": column(samples, |s| s.pacing_rate),
        "packets_lost": column(samples, |s| s.packets_lost),
        "pings": column(&flow.pings, |(at, rtt)| (seconds(*at), rtt.map(seconds))),
    })
}

fn column<T, V: serde::Serialize>(items: &[T], value: impl Fn(&T) -> V) -> Vec<V> {
    items.iter().map(value).collect()
}
