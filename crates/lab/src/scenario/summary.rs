//! The figures of a run that tables show: one line for the bottleneck, one for each flow.

use std::ops::Range;
use std::time::Duration;

use super::outcome::{FlowOutcome, Outcome, jain, mean, percentile};
use super::{Flow, Scenario, Traffic};

/// A run in figures. Rates are bits per second, times seconds.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What they are drawn from, counted from the start of the scenario.
    pub span: Range<Duration>,
    /// Bytes carried by the bottleneck as a share of what it could carry, headers included;
    /// `None` without a rate.
    pub utilisation: Option<f64>,
    /// Mean wait in the bottleneck's queue.
    pub queue_mean: f64,
    /// Its 95th percentile.
    pub queue_p95: f64,
    /// Its maximum.
    pub queue_max: f64,
    /// Jain's index of the bulk flows that share the bottleneck, while all of them send; `None`
    /// if there are not two, or never both.
    pub fairness: Option<f64>,
    /// One for each flow of the scenario.
    pub flows: Vec<FlowSummary>,
}

/// One flow in figures.
#[derive(Clone, Debug)]
pub struct FlowSummary {
    /// Its name.
    pub name: String,
    /// Delivered to the receiver a second, while the flow was active.
    pub goodput: f64,
    /// Its share of all that was delivered in its direction; `None` for pings, which count
    /// nowhere.
    pub share: Option<f64>,
    /// Lost packets as a share of the sent ones, over the whole run; `None` if nobody counted.
    pub loss: Option<f64>,
    /// Packets declared lost and not acknowledged later, or pings without an answer.
    pub packets_lost: Option<u64>,
    /// Stream bytes sent more than once.
    pub bytes_retransmitted: Option<u64>,
    /// Median round trip: of the pings, or of the connection's newest sample at each of the
    /// scenario's; `None` without one.
    pub rtt_p50: Option<f64>,
    /// 95th percentile of the same.
    pub rtt_p95: Option<f64>,
    /// How long its transfer took, handshake included; `None` if it has no end or did not reach it.
    pub took: Option<f64>,
    /// Why the connection ended, if it did not end as planned.
    pub failure: Option<String>,
}

impl Summary {
    /// The figures of what happened in `outcome` of `scenario` after `warmup`.
    pub fn new(scenario: &Scenario, outcome: &Outcome, warmup: Duration) -> Self {
        let span = warmup.min(outcome.duration)..outcome.duration;
        let queue = outcome.queue_delays(span.clone());
        let flows = || scenario.flows.iter().zip(&outcome.flows);
        let delivered = |reverse: bool| -> f64 {
            flows()
                .filter(|(flow, _)| flow.reverse == reverse && !is_ping(flow))
                .map(|(_, seen)| bits(seen, &span))
                .sum()
        };
        let totals = [delivered(false), delivered(true)];
        let rated = outcome
            .bottleneck
            .iter()
            .any(|sample| sample.rate.is_some());
        Self {
            utilisation: rated.then(|| outcome.utilisation(span.clone())),
            queue_mean: mean(&queue),
            queue_p95: percentile(&queue, 0.95),
            queue_max: percentile(&queue, 1.0),
            fairness: fairness(scenario, outcome, &span),
            flows: flows()
                .map(|(flow, seen)| {
                    let total = totals[usize::from(flow.reverse)];
                    FlowSummary::new(flow, seen, &span, total)
                })
                .collect(),
            span,
        }
    }
}

impl FlowSummary {
    fn new(flow: &Flow, seen: &FlowOutcome, span: &Range<Duration>, total: f64) -> Self {
        let active = active(flow, span);
        let stats = seen.stats.as_ref();
        let (rtts, packets_lost, loss) = match flow.traffic {
            Traffic::Ping { .. } => {
                let times = seen.ping_times(span.clone());
                let lost = lost_pings(seen, span);
                let sent = times.len() as u64 + lost;
                (times, Some(lost), Some(lost as f64 / sent.max(1) as f64))
            }
            _ => {
                let samples = seen.samples.iter().filter(|s| span.contains(&s.at));
                let rtts = samples
                    .map(|sample| sample.latest_rtt.as_secs_f64())
                    .filter(|rtt| *rtt > 0.0);
                let lost = stats.map(|s| s.packets_lost.saturating_sub(s.packets_spuriously_lost));
                (rtts.collect(), lost, stats.map(|s| s.loss_ratio))
            }
        };
        let of = |p| (!rtts.is_empty()).then(|| percentile(&rtts, p));
        let is_finite = match flow.traffic {
            Traffic::Streams { count, .. } => seen.completed.len() == count as usize,
            Traffic::Request { .. } => seen.completed.len() == 1,
            _ => false,
        };
        Self {
            name: seen.name.clone(),
            goodput: seen.goodput(active),
            share: (!is_ping(flow)).then(|| match total > 0.0 {
                true => bits(seen, span) / total,
                false => 0.0,
            }),
            loss,
            packets_lost,
            bytes_retransmitted: stats.map(|stats| stats.bytes_retransmitted),
            rtt_p50: of(0.5),
            rtt_p95: of(0.95),
            took: seen
                .took()
                .filter(|_| is_finite)
                .map(|took| took.as_secs_f64()),
            failure: seen.failure.clone(),
        }
    }
}

fn is_ping(flow: &Flow) -> bool {
    matches!(flow.traffic, Traffic::Ping { .. })
}

/// Bits delivered within `span`.
fn bits(seen: &FlowOutcome, span: &Range<Duration>) -> f64 {
    seen.goodput(span.clone()) * (span.end - span.start).as_secs_f64()
}

fn active(flow: &Flow, span: &Range<Duration>) -> Range<Duration> {
    let start = flow.active.start.max(span.start).min(span.end);
    start..flow.active.end.min(span.end).max(start)
}

/// Pings of `span` whose answer is overdue: the slowest answer there was would be back.
fn lost_pings(seen: &FlowOutcome, span: &Range<Duration>) -> u64 {
    let slowest = seen.pings.iter().filter_map(|(_, rtt)| *rtt).max();
    let overdue = span.end.saturating_sub(slowest.unwrap_or_default());
    let lost = seen
        .pings
        .iter()
        .filter(|(at, rtt)| rtt.is_none() && span.contains(at) && *at < overdue);
    lost.count() as u64
}

fn fairness(scenario: &Scenario, outcome: &Outcome, span: &Range<Duration>) -> Option<f64> {
    let equals: Vec<_> = scenario
        .flows
        .iter()
        .zip(&outcome.flows)
        .filter(|(flow, _)| flow.traffic == Traffic::Bulk && !flow.reverse)
        .collect();
    let common = equals.iter().fold(span.clone(), |common, (flow, _)| {
        let own = active(flow, span);
        common.start.max(own.start)..common.end.min(own.end)
    });
    (equals.len() > 1 && common.start < common.end).then(|| {
        let rates: Vec<f64> = equals
            .iter()
            .map(|(_, seen)| seen.goodput(common.clone()))
            .collect();
        jain(&rates)
    })
}
