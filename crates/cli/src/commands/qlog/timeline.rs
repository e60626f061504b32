//! Events to numbers over time, in memory that does not grow with the log.
//!
//! Time is cut into [`MOST_BINS`] intervals at most: when a log goes on beyond the last, each two
//! become one of twice the width. Sums add up; of values the last counts, or the greatest where peaks
//! matter.

use super::read::{Event, Metrics, What};

/// Intervals of a timeline.
const MOST_BINS: usize = 2000;
/// Seconds of the first intervals.
const FIRST_WIDTH: f64 = 0.001;

/// What happened in one interval; values are `None` where nothing was told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bin {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) window: Option<f64>,
    /// The greatest.
    pub(super) in_flight: Option<f64>,
    pub(super) smoothed_rtt: Option<f64>,
    /// The greatest.
    pub(super) latest_rtt: Option<f64>,
    pub(super) min_rtt: Option<f64>,
}

impl Bin {
    fn add(&mut self, metrics: &Metrics) {
        self.join(&Self {
            window: metrics.window,
            in_flight: metrics.in_flight,
            smoothed_rtt: metrics.smoothed_rtt,
            latest_rtt: metrics.latest_rtt,
            min_rtt: metrics.min_rtt,
            ..Self::default()
        });
    }

    /// Adds what happened later.
    pub(super) fn join(&mut self, later: &Self) {
        // Whoever wrote the log may have written any number.
        self.sent = self.sent.saturating_add(later.sent);
        self.received = self.received.saturating_add(later.received);
        self.lost = self.lost.saturating_add(later.lost);
        self.window = later.window.or(self.window);
        self.in_flight = greatest(self.in_flight, later.in_flight);
        self.smoothed_rtt = later.smoothed_rtt.or(self.smoothed_rtt);
        self.latest_rtt = greatest(self.latest_rtt, later.latest_rtt);
        self.min_rtt = later.min_rtt.or(self.min_rtt);
    }
}

fn greatest(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Packets one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Traffic {
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What a log says.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) role: String,
    pub(super) id: String,
    pub(super) events: u64,
    pub(super) unreadable: u64,
    pub(super) sent: Traffic,
    pub(super) received: Traffic,
    pub(super) lost: u64,
    pub(super) spurious: u64,
    pub(super) dropped: u64,
    /// Milliseconds.
    pub(super) min_rtt: Option<f64>,
    pub(super) smoothed_rtt: Option<f64>,
    pub(super) max_rtt: Option<f64>,
    /// Bytes.
    pub(super) max_window: Option<f64>,
    pub(super) closed: Option<String>,
    last: f64,
    width: f64,
    bins: Vec<Bin>,
}

impl Summary {
    pub(super) fn new(role: String, id: String) -> Self {
        Self {
            role,
            id,
            events: 0,
            unreadable: 0,
            sent: Traffic::default(),
            received: Traffic::default(),
            lost: 0,
            spurious: 0,
            dropped: 0,
            min_rtt: None,
            smoothed_rtt: None,
            max_rtt: None,
            max_window: None,
            closed: None,
            last: 0.0,
            width: FIRST_WIDTH,
            bins: Vec::new(),
        }
    }

    /// From the first event to the last.
    pub(super) fn seconds(&self) -> f64 {
        self.last
    }

    /// Seconds of an interval, and the intervals.
    pub(super) fn bins(&self) -> (f64, &[Bin]) {
        (self.width, &self.bins)
    }

    pub(super) fn add(&mut self, event: &Event) {
        self.events += 1;
        self.last = self.last.max(event.seconds);
        match &event.what {
            What::Sent(bytes) => {
                self.sent.add(*bytes);
                let bin = self.bin(event.seconds);
                bin.sent = bin.sent.saturating_add(*bytes);
            }
            What::Received(bytes) => {
                self.received.add(*bytes);
                let bin = self.bin(event.seconds);
                bin.received = bin.received.saturating_add(*bytes);
            }
            What::Lost => {
                self.lost += 1;
                self.bin(event.seconds).lost += 1;
            }
            What::SpuriouslyLost(packets) => {
                self.spurious = self.spurious.saturating_add(*packets);
            }
            What::Dropped => self.dropped += 1,
            What::Metrics(metrics) => {
                self.min_rtt = least(self.min_rtt, metrics.min_rtt);
                self.smoothed_rtt = metrics.smoothed_rtt.or(self.smoothed_rtt);
                self.max_rtt = greatest(self.max_rtt, metrics.latest_rtt);
                self.max_window = greatest(self.max_window, metrics.window);
                self.bin(event.seconds).add(metrics);
            }
            What::Closed(reason) => {
                let reason = reason
                    .clone()
                    .unwrap_or_else(|| "no reason given".to_owned());
                self.closed = Some(reason);
            }
            What::Other => {}
        }
    }

    /// The interval of a time.
    fn bin(&mut self, seconds: f64) -> &mut Bin {
        let mut index = (seconds / self.width) as usize;
        while index >= MOST_BINS {
            self.halve();
            index = (seconds / self.width) as usize;
        }
        if index >= self.bins.len() {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }

    fn halve(&mut self) {
        let pairs = self.bins.chunks(2).map(|pair| {
            let mut both = pair[0];
            if let Some(later) = pair.get(1) {
                both.join(later);
            }
            both
        });
        self.bins = pairs.collect();
        self.width *= 2.0;
    }
}
