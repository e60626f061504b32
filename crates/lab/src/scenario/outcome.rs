//! What was seen in one run, and the figures drawn from it. Times are counted from the start of
//! the scenario; rates are bits per second.

use std::ops::Range;
use std::time::Duration;

use towline_quic::Stats;
use towline_sim::LinkStats;

/// Everything a run left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// One for each flow of the scenario, in its order.
    pub flows: Vec<FlowOutcome>,
    /// The bottleneck, sampled each [`Outcome::BOTTLENECK_SAMPLE`].
    pub bottleneck: Vec<BottleneckSample>,
    /// Counters of the forward link at the end.
    pub forward: LinkStats,
    /// Counters of the back link at the end.
    pub back: LinkStats,
    /// How long was played.
    pub duration: Duration,
}

/// One flow's part.
#[derive(Clone, Debug)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// When the connection was begun.
    pub started: Duration,
    /// When the sender's handshake was done.
    pub connected: Option<Duration>,
    /// The sender's congestion window when it began, bytes.
    pub initial_window: Option<u64>,
    /// When the first byte of an answer arrived at who had asked.
    pub first_byte: Option<Duration>,
    /// When the receiver had the last byte of each stream, in the order of the streams.
    pub completed: Vec<Option<Duration>>,
    /// Stream bytes the receiver had of each stream at the end.
    pub stream_bytes: Vec<u64>,
    /// The same when the first of the streams was complete.
    pub stream_bytes_at_first_end: Vec<u64>,
    /// Its course.
    pub samples: Vec<FlowSample>,
    /// The sender's last counters.
    pub stats: Option<Stats>,
    /// The receiver's last counters.
    pub receiver: Option<Stats>,
    /// Why the connection ended, if it did not end as planned.
    pub failure: Option<String>,
    /// Round trips of a ping: when it was sent, and how long it took; `None` if it was lost.
    pub pings: Vec<(Duration, Option<Duration>)>,
    /// Departures of the sender's datagrams, if asked for: when, and bytes of UDP payload.
    pub sends: Vec<(Duration, u32)>,
}

/// A flow at one moment.
#[derive(Clone, Copy, Debug)]
pub struct FlowSample {
    /// When.
    pub at: Duration,
    /// Bytes (of streams, or of raw datagrams) the receiver had so far.
    pub delivered: u64,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// Smoothed round trip.
    pub smoothed_rtt: Duration,
    /// Newest round trip.
    pub latest_rtt: Duration,
    /// Pacing rate in bits per second.
    pub pacing_rate: Option<u64>,
    /// Packets lost so far.
    pub packets_lost: u64,
}

/// The bottleneck at one moment.
#[derive(Clone, Copy, Debug)]
pub struct BottleneckSample {
    /// When.
    pub at: Duration,
    /// Bytes waiting, headers included.
    pub queue: u64,
    /// Bytes carried so far, headers included.
    pub carried: u64,
    /// Its rate then, in bits per second; of a schedule, the mean until the next sample.
    pub rate: Option<u64>,
    /// How long a datagram that joins the queue now will wait; where the rate follows a schedule,
    /// how long those waited on average that left since the sample before.
    pub delay: Duration,
}

impl Outcome {
    /// Time between two samples of the bottleneck.
    pub const BOTTLENECK_SAMPLE: Duration = Duration::from_millis(10);

    /// Bytes carried over the bottleneck within `span`, headers included, as a share of what it
    /// could have carried.
    pub fn utilisation(&self, span: Range<Duration>) -> f64 {
        let mut capacity = 0.0;
        let mut carried = 0;
        for pair in self.bottleneck.windows(2) {
            let [a, b] = pair else { continue };
            if a.at >= span.start && b.at <= span.end {
                let seconds = (b.at - a.at).as_secs_f64();
                capacity += a.rate.unwrap_or(0) as f64 / 8.0 * seconds;
                carried += b.carried - a.carried;
            }
        }
        match capacity > 0.0 {
            true => carried as f64 / capacity,
            false => 0.0,
        }
    }

    /// Queueing delays within `span`, in seconds, one for each sample.
    pub fn queue_delays(&self, span: Range<Duration>) -> Vec<f64> {
        self.bottleneck
            .iter()
            .filter(|s| span.contains(&s.at))
            .map(|s| s.delay.as_secs_f64())
            .collect()
    }

    /// Jain's index of the bulk flows' goodput within `span`.
    pub fn fairness(&self, span: Range<Duration>) -> f64 {
        let rates: Vec<f64> = self
            .flows
            .iter()
            .filter(|f| f.pings.is_empty())
            .map(|f| f.goodput(span.clone()))
            .collect();
        jain(&rates)
    }
}

impl FlowOutcome {
    /// Bits per second delivered to the receiver within `span`.
    pub fn goodput(&self, span: Range<Duration>) -> f64 {
        let at = |time: Duration| {
            let after = self.samples.partition_point(|s| s.at <= time);
            self.samples[..after].last().map_or(0, |s| s.delivered)
        };
        let end = self.samples.last().map_or(span.end, |s| s.at).min(span.end);
        let seconds = end.saturating_sub(span.start).as_secs_f64();
        match seconds > 0.0 {
            true => (at(end) - at(span.start)) as f64 * 8.0 / seconds,
            false => 0.0,
        }
    }

    /// When everything was delivered, counted from the start of the connection.
    pub fn took(&self) -> Option<Duration> {
        let ends: Option<Vec<Duration>> = self.completed.iter().copied().collect();
        ends?
            .into_iter()
            .max()
            .map(|end| end.saturating_sub(self.started))
    }

    /// The same, counted from the end of the handshake.
    pub fn took_after_handshake(&self) -> Option<Duration> {
        let handshake = self.connected?.saturating_sub(self.started);
        Some(self.took()?.saturating_sub(handshake))
    }

    /// Round trips of the pings sent within `span` that came back, in seconds.
    pub fn ping_times(&self, span: Range<Duration>) -> Vec<f64> {
        self.pings
            .iter()
            .filter(|(at, _)| span.contains(at))
            .filter_map(|(_, rtt)| rtt.map(|rtt| rtt.as_secs_f64()))
            .collect()
    }

    /// Bytes delivered in all.
    pub fn delivered(&self) -> u64 {
        self.samples.last().map_or(0, |s| s.delivered)
    }
}

/// Jain's fairness index: 1 if all are equal, 1/n if one has everything.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    match squares > 0.0 {
        true => sum * sum / (values.len() as f64 * squares),
        false => 0.0,
    }
}

/// The arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    match values.is_empty() {
        true => 0.0,
        false => values.iter().sum::<f64>() / values.len() as f64,
    }
}

/// The value that a share `p` (0 to 1) of the values does not exceed; 0 of nothing.
pub fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (p * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(0.0)
}

/// The middle value, or the mean of the two in the middle; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Standard deviation over mean; 0 of nothing.
pub fn coefficient_of_variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean == 0.0 {
        return 0.0;
    }
    let variance =
        values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
    variance.sqrt() / mean
}
