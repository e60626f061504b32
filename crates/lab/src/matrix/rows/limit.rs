//! A connection held to a rate by its owner.

use std::num::NonZeroU64;
use std::time::Duration;

use super::setting::{MBIT, millis, path_of, seconds};
use crate::matrix::measure::{Measure, Unit};
use crate::matrix::{CUBIC, Case, Row, Trial, Trouble};
use crate::scenario::{Flow, Traffic};

/// Bytes of UDP payload a second.
const LIMIT: f64 = 3e6;

/// Shortest window over which the limit holds, seconds.
const WINDOW: f64 = 0.1;

pub(super) fn rate_limit() -> Row {
    let bulk = vec![
        Measure::at_most("most above R·w in any window", allowance(), Unit::Bytes),
        Measure::between("10 s mean ÷ R", 0.98, 1.02, Unit::Share),
    ];
    let seed = vec![Measure::between(
        "after the handshake",
        0.326,
        0.350,
        Unit::Millis,
    )];
    const MOST: Duration = seconds(12);
    let path = || path_of(1000 * MBIT, millis(1), 4.0, MOST);
    Row {
        id: "rate limit",
        setting: "R = 3·10^6 B/s, RTT 1 ms, UDP payload with retransmissions",
        mark: "any window w ≥ 100 ms: ≤ R·w + max(2 packets, R × 1 ms); 10 s mean within 2 %; 1 MB \
               in 326–350 ms after the handshake",
        cases: vec![
            Case::new(CUBIC, "bulk", bulk, move |trial| {
                let mut flow = limited(trial)?;
                flow.record_sends = true;
                let outcome = trial.run(path().flow(flow))?;
                let flow = &outcome.flows[0];
                let start = flow.connected.unwrap_or(MOST).as_secs_f64();
                let sends = flow.sends.iter();
                let sends: Vec<(f64, f64)> = sends
                    .map(|(at, bytes)| (at.as_secs_f64(), f64::from(*bytes)))
                    .collect();
                let span = start..start + 10.0;
                let ten = sends.iter().filter(|(at, _)| span.contains(at));
                let mean = ten.map(|(_, bytes)| bytes).sum::<f64>() / 10.0;
                Ok(vec![most_above(&sends, LIMIT, WINDOW), mean / LIMIT])
            }),
            Case::new(CUBIC, "1 MB", seed, move |trial| {
                let traffic = Traffic::Streams {
                    count: 1,
                    bytes: 1_000_000,
                };
                let outcome = trial.run(path().flow(limited(trial)?.with_traffic(traffic)))?;
                let took = super::transfer::took_after_handshake(&outcome.flows[0], MOST)?;
                Ok(vec![took])
            }),
        ],
    }
}

/// What a window may carry beyond its length times the limit.
fn allowance() -> f64 {
    let packets: f64 = 2.0 * 1200.0;
    packets.max(LIMIT * 1e-3)
}

fn limited(trial: &Trial) -> Result<Flow, Trouble> {
    let mut flow = trial.bulk(CUBIC)?;
    flow.transport.rate_limit = NonZeroU64::new(LIMIT as u64);
    Ok(flow)
}

/// The most bytes above `rate` times its length that any window of at least `least` seconds
/// carries. `sends` are times and bytes, in order.
pub(in crate::matrix) fn most_above(sends: &[(f64, f64)], rate: f64, least: f64) -> f64 {
    let mut most = f64::NEG_INFINITY;
    // Bytes before the newest send; and the least of (bytes − rate × time) before any send that
    // is at least a window ago.
    let mut before = 0.0;
    let mut lowest = f64::INFINITY;
    let mut old = 0;
    let mut old_bytes = 0.0;
    for (at, bytes) in sends {
        while let Some((old_at, bytes)) = sends.get(old)
            && at - old_at >= least
        {
            lowest = lowest.min(old_bytes - rate * old_at);
            old_bytes += bytes;
            old += 1;
        }
        before += bytes;
        // The longer windows that end here, and the shortest one.
        most = most.max(before - rate * at - lowest);
        most = most.max(before - old_bytes - rate * least);
    }
    most
}
