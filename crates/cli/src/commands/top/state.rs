//! What `towline top` knows: the newest report of each link, rates from its counters, and two minutes of charts.
//!
//! Time and answers come in as arguments. Nothing here asks, draws or reads a clock.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

/// What the charts show.
pub(super) const SHOWN: Duration = Duration::from_secs(120);
/// Links count once a second, so two reports may be the same one: rates are over this long, or over two reports.
const WINDOW: Duration = Duration::from_secs(3);
/// At most so many links are shown.
const MAX_LINKS: usize = 64;

/// What a socket told, or why it told nothing.
pub(super) type Answer = (PathBuf, Result<Value, String>);

/// A key of the keyboard, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    Next,
    Previous,
    Down,
    Up,
    PageDown,
    PageUp,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct State {
    pub(super) links: Vec<Link>,
    /// Which of them is drawn.
    pub(super) chosen: usize,
    /// Senders that are above the first one that is drawn.
    pub(super) scroll: usize,
    pub(super) now: Duration,
    /// Sockets were looked for.
    pub(super) has_asked: bool,
    interval: Duration,
}

impl State {
    /// Nothing is known yet; links are asked every `interval`.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            links: Vec::new(),
            chosen: 0,
            scroll: 0,
            now: Duration::ZERO,
            has_asked: false,
            interval,
        }
    }

    /// Takes what the sockets have told. A link that was there and tells nothing is gone.
    pub(super) fn take(&mut self, now: Duration, answers: Vec<Answer>) {
        (self.now, self.has_asked) = (now, true);
        for (path, answer) in answers {
            let at = match self.links.iter().position(|link| link.path == path) {
                Some(at) => at,
                None if self.links.len() == MAX_LINKS => continue,
                None => {
                    self.links.push(Link::new(path, self.interval));
                    self.links.len() - 1
                }
            };
            let link = &mut self.links[at];
            match answer {
                Ok(report) => link.hear(now, report),
                Err(why) => link.miss(now, why),
            }
        }
    }

    /// The link that is drawn.
    pub(super) fn chosen(&self) -> Option<&Link> {
        self.links.get(self.chosen)
    }

    /// Does what a key is for.
    pub(super) fn press(&mut self, press: Press) {
        let count = self.links.len().max(1);
        let last = self.chosen().map_or(0, |link| {
            list(&link.report, "senders").count().saturating_sub(1)
        });
        match press {
            Press::Next => (self.chosen, self.scroll) = ((self.chosen + 1) % count, 0),
            Press::Previous => (self.chosen, self.scroll) = ((self.chosen + count - 1) % count, 0),
            Press::Down => self.scroll = (self.scroll + 1).min(last),
            Press::Up => self.scroll = self.scroll.saturating_sub(1),
            Press::PageDown => self.scroll = (self.scroll + 10).min(last),
            Press::PageUp => self.scroll = self.scroll.saturating_sub(10),
        }
    }
}

/// Since when a link tells nothing, and why.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) since: Duration,
    pub(super) why: String,
}

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    path: PathBuf,
    /// The newest one; `null` before the first.
    pub(super) report: Value,
    pub(super) gone: Option<Gone>,
    counters: BTreeMap<String, Counter>,
    pub(super) sent: Chart,
    pub(super) size: Chart,
    pub(super) round_trip: Chart,
    pub(super) loss: Chart,
    pub(super) records: Chart,
}

impl Link {
    fn new(path: PathBuf, interval: Duration) -> Self {
        let chart = || Chart::new(interval);
        Self {
            path,
            report: Value::Null,
            gone: None,
            counters: BTreeMap::new(),
            sent: chart(),
            size: chart(),
            round_trip: chart(),
            loss: chart(),
            records: chart(),
        }
    }

    /// As it says, or as its socket is called.
    pub(super) fn name(&self) -> &str {
        match self.report["name"].as_str() {
            Some(name) => name,
            None => name_of(&self.path),
        }
    }

    pub(super) fn is_shore(&self) -> bool {
        self.report["role"] == "shore"
    }

    /// A second, as a rate of the counter with this key; `None` where nothing was measured.
    pub(super) fn rate(&self, key: &str) -> Option<f64> {
        match self.gone {
            Some(_) => None,
            None => self.counters.get(key)?.rate(),
        }
    }

    fn hear(&mut self, now: Duration, report: Value) {
        self.gone = None;
        // It has just begun.
        if report.is_null() {
            return;
        }
        self.report = report;
        let told = counters(&self.report);
        // What is named no more, such as senders of long ago, is not kept either.
        self.counters.retain(|key, _| told.contains_key(key));
        for (key, value) in told {
            self.counters.entry(key).or_default().push(now, value);
        }
        let is_live = self.report["state"] == "live";
        // The report's round trips and losses outlive the connection they are of.
        let live = |name: &str| number(&self.report, name).filter(|_| is_live);
        let rate = |key: &str| self.counters.get(key).and_then(Counter::rate);
        self.sent.push(now, rate("bytes_sent"));
        self.size
            .push(now, number(&self.report, "bytes_per_record"));
        self.round_trip.push(now, live("rtt_ms"));
        self.loss.push(now, live("loss"));
        self.records.push(now, rate("records"));
    }

    fn miss(&mut self, now: Duration, why: String) {
        let since = self.gone.as_ref().map_or(now, |gone| gone.since);
        self.gone = Some(Gone { since, why });
        self.counters.clear();
        for chart in [
            &mut self.sent,
            &mut self.size,
            &mut self.round_trip,
            &mut self.loss,
            &mut self.records,
        ] {
            chart.push(now, None);
        }
    }
}

/// `boat` of `…/link-boat.sock`.
fn name_of(path: &Path) -> &str {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    stem.map_or("-", |stem| stem.strip_prefix("link-").unwrap_or(stem))
}

/// The counters of a report of which rates are shown.
fn counters(report: &Value) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let mut add = |key: String, value: &Value| {
        if let Some(value) = value.as_u64() {
            counters.insert(key, value);
        }
    };
    for name in ["bytes_sent", "records"] {
        add(name.to_owned(), &report[name]);
    }
    for (at, source) in list(report, "sources").enumerate() {
        add(format!("source {at}"), &source["records"]);
    }
    for (at, sink) in list(report, "sinks").enumerate() {
        add(format!("sink {at}"), &sink["records"]);
    }
    for sender in list(report, "senders") {
        let name = sender["name"].as_str().unwrap_or("-");
        add(format!("sender {name}"), &sender["records"]);
    }
    counters
}

/// A number of a report; `None` where it has none.
pub(super) fn number(report: &Value, name: &str) -> Option<f64> {
    report[name].as_f64().filter(|number| number.is_finite())
}

/// The entries of a list of a report.
pub(super) fn list<'a>(report: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    report[name].as_array().into_iter().flatten()
}

/// What a counter was of late.
#[derive(Debug, Default)]
struct Counter {
    readings: VecDeque<(Duration, u64)>,
}

impl Counter {
    fn push(&mut self, now: Duration, value: u64) {
        let last = self.readings.back();
        // A link that was started again counts from zero: what it was before says nothing.
        if last.is_some_and(|&(_, last)| value < last) {
            self.readings.clear();
        }
        self.readings.push_back((now, value));
        while self.readings.len() > 2 && now.saturating_sub(self.readings[0].0) > WINDOW {
            self.readings.pop_front();
        }
    }

    fn rate(&self) -> Option<f64> {
        let (&(from, first), &(to, last)) = (self.readings.front()?, self.readings.back()?);
        let seconds = to.saturating_sub(from).as_secs_f64();
        (seconds > 0.0).then(|| last.saturating_sub(first) as f64 / seconds)
    }
}

/// What a number was in the last two minutes. `None`: it was not measured.
#[derive(Debug)]
pub(super) struct Chart {
    samples: VecDeque<(Duration, Option<f64>)>,
    interval: Duration,
}

impl Chart {
    fn new(interval: Duration) -> Self {
        Self {
            samples: VecDeque::new(),
            interval,
        }
    }

    fn push(&mut self, now: Duration, value: Option<f64>) {
        self.samples.push_back((now, value));
        let is_old = |&(at, _): &(Duration, _)| now.saturating_sub(at) > SHOWN;
        while self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
    }

    /// The newest value.
    pub(super) fn last(&self) -> Option<f64> {
        self.samples.back()?.1
    }

    /// So many columns that end now, each the mean of its samples. Where it has none, the one before it holds
    /// until the next should have come.
    pub(super) fn columns(&self, now: Duration, count: usize) -> Vec<Option<f64>> {
        let width = SHOWN.as_secs_f64() / count.max(1) as f64;
        let holds = self.interval.as_secs_f64() * 1.6;
        // Columns begin at fixed times, or the same samples would change places at each drawing.
        let end = (now.as_secs_f64() / width).floor() as i64 + 1;
        let mut samples = self.samples.iter().peekable();
        let mut before = None;
        (0..count)
            .map(|column| {
                let from = (end - count as i64 + column as i64) as f64 * width;
                let (mut sum, mut measured, mut seen) = (0.0, 0, 0);
                while let Some((at, value)) =
                    samples.next_if(|(at, _)| at.as_secs_f64() < from + width)
                {
                    before = Some((at.as_secs_f64(), *value));
                    if at.as_secs_f64() >= from {
                        seen += 1;
                        if let Some(value) = value {
                            sum += value;
                            measured += 1;
                        }
                    }
                }
                match (measured, seen) {
                    (1.., _) => Some(sum / f64::from(measured)),
                    (_, 1..) => None,
                    _ => before
                        .filter(|(at, _)| from - at < holds)
                        .and_then(|(_, value)| value),
                }
            })
            .collect()
    }
}
