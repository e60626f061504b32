//! What is said of a link, as text: the same for a large screen and a small one. `draw` gives it its places.
//!
//! What was not measured is `-` or left out, never 0.

use std::time::Duration;

use serde_json::Value;

use super::state::{Chart, Link, State, list, number};
use crate::units::{ByteRate, Bytes, counted};

/// How a link fares, at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Good,
    Bad,
    Unknown,
}

/// A link in words and numbers.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) name: String,
    pub(super) mark: Mark,
    /// `LIVE UDP`, `DOWN: why`.
    pub(super) state: String,
    /// From 0 to 100; shown for boats. The inner `None`: not measured.
    pub(super) quality: Option<Option<f64>>,
    /// In plain words, what somebody should look at.
    pub(super) warnings: Vec<String>,
    pub(super) charts: Vec<Panel<'a>>,
    pub(super) facts: Vec<Fact>,
    /// The most important one last: the others give way to it.
    pub(super) tables: Vec<Grid>,
}

/// A chart with its name and its newest value.
#[derive(Debug)]
pub(super) struct Panel<'a> {
    pub(super) title: &'static str,
    pub(super) value: String,
    pub(super) chart: &'a Chart,
    /// When its last column ends.
    pub(super) now: Duration,
    pub(super) unit: fn(f64) -> String,
}

impl<'a> Panel<'a> {
    fn new(title: &'static str, now: Duration, chart: &'a Chart, unit: fn(f64) -> String) -> Self {
        Self {
            title,
            value: said(chart.last(), unit),
            chart,
            now,
            unit,
        }
    }
}

/// A line with a label.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) label: &'static str,
    pub(super) text: String,
    /// From 0 to 1, as a bar.
    pub(super) share: Option<f64>,
}

/// A table. Columns whose head begins with a space are numbers.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) title: String,
    pub(super) head: &'static [&'static str],
    pub(super) rows: Vec<Vec<String>>,
    /// Rows above the first one that is drawn.
    pub(super) skip: usize,
}

/// What is said of a link.
pub(super) fn view<'a>(state: &State, link: &'a Link) -> View<'a> {
    let mut view = match link.is_shore() {
        true => shore(state, link),
        false => boat(state, link),
    };
    if let Some(gone) = &link.gone {
        let since = seconds(state.now.saturating_sub(gone.since).as_secs_f64());
        view.mark = Mark::Bad;
        view.state = format!("GONE for {since}");
        view.quality = None;
        view.warnings.clear();
        if !link.report.is_null() {
            view.warnings
                .push("below is what it told last; it may have ended".to_owned());
        }
        view.warnings.push(gone.why.clone());
    }
    view
}

fn boat<'a>(state: &State, link: &'a Link) -> View<'a> {
    let report = &link.report;
    let (mark, state_of) = match report["state"].as_str() {
        Some("live") => {
            let via = text(report, "via").to_uppercase();
            (Mark::Good, format!("LIVE {via}"))
        }
        Some("down") => (Mark::Bad, format!("DOWN: {}", text(report, "why"))),
        Some("connecting") => (Mark::Unknown, "CONNECTING".to_owned()),
        _ => (Mark::Unknown, "has told nothing yet".to_owned()),
    };
    let view = View {
        name: link.name().to_owned(),
        mark,
        state: state_of,
        quality: Some(number(report, "quality")),
        warnings: Vec::new(),
        charts: Vec::new(),
        facts: Vec::new(),
        tables: Vec::new(),
    };
    if report.is_null() {
        return View {
            quality: None,
            ..view
        };
    }
    View {
        warnings: boat_warnings(report),
        charts: boat_charts(state.now, link),
        facts: boat_facts(report),
        tables: vec![sources(link)],
        ..view
    }
}

fn boat_charts(now: Duration, link: &Link) -> Vec<Panel<'_>> {
    let mut charts = vec![
        Panel::new("sent", now, &link.sent, |rate| ByteRate(rate).to_string()),
        Panel::new("B/delta", now, &link.size, |bytes| format!("{bytes:.1}")),
        Panel::new("round trip", now, &link.round_trip, millis),
        Panel::new("loss", now, &link.loss, percent),
    ];
    if let (Some(_), Some(most)) = (link.round_trip.last(), number(&link.report, "rtt_p95_ms")) {
        charts[2].value += &format!(" (p95 {most:.0} ms)");
    }
    charts
}

fn boat_facts(report: &Value) -> Vec<Fact> {
    let mut waits = match report["backlog"].as_u64() {
        Some(0) => "nothing waits".to_owned(),
        Some(1) => "1 record waits".to_owned(),
        Some(count) => format!("{count} records wait"),
        None => "-".to_owned(),
    };
    if let Some(oldest) = number(report, "oldest_unsent_s") {
        waits += &format!(", the oldest for {}", seconds(oldest));
    }
    if let Some(bytes) = report["spool_bytes"].as_u64() {
        waits += &format!("; {} stored", Bytes(bytes));
    }
    let mut durable = match (report["durable"].as_u64(), report["next"].as_u64()) {
        (Some(durable), Some(next)) => format!("{durable} of {}", counted(next, "record")),
        (Some(durable), None) => durable.to_string(),
        _ => "-".to_owned(),
    };
    if let Some(batches @ 1..) = report["in_flight"].as_u64() {
        let noun = if batches == 1 { "batch" } else { "batches" };
        durable += &format!("; {batches} {noun} in flight");
    }
    if let Some(lost @ 1..) = report["lost"].as_u64() {
        durable += &format!("; {lost} LOST, dropped by the spool to make room");
    }
    let month = &report["month"];
    let (used, of) = (month["used"].as_u64(), month["of"].as_u64());
    let share = match (used, of) {
        (Some(used), Some(of @ 1..)) => Some(used as f64 / of as f64),
        _ => None,
    };
    let mut spent = used.map_or_else(|| "-".to_owned(), |used| Bytes(used).to_string());
    if let Some(of) = of {
        spent += &format!(" of {}", Bytes(of));
    }
    if let Some(share) = share {
        spent += &format!(", {}", percent(share));
    }
    let fact = |label, text, share| Fact { label, text, share };
    vec![
        fact("spool", waits, None),
        fact("durable", durable, None),
        fact("month", spent, share),
    ]
}

fn boat_warnings(report: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if report["is_on_hold"] == true {
        warnings.push(
            "ON HOLD: the other end's log takes nothing; records wait here, live data goes on"
                .to_owned(),
        );
    }
    if let Some(trouble) = report["store"].as_str() {
        warnings.push(format!("SPOOL: {trouble}"));
    }
    if let Some(refused @ 1..) = report["refused"].as_u64() {
        let records = counted(refused, "record");
        warnings.push(format!("the spool has refused {records}"));
    }
    let month = &report["month"];
    if let (Some(used), Some(of)) = (month["used"].as_u64(), month["of"].as_u64())
        && used >= of
    {
        warnings.push("this month's budget is used up".to_owned());
    }
    for source in list(report, "sources") {
        if let Some(why) = source["down"].as_str() {
            warnings.push(format!("source {} is down: {why}", text(source, "kind")));
        }
    }
    warnings
}

fn sources(link: &Link) -> Grid {
    let rows = list(&link.report, "sources")
        .enumerate()
        .map(|(at, source)| {
            let state = match (source["is_up"].as_bool(), source["down"].as_str()) {
                (Some(true), _) => "up",
                (_, Some(_)) => "DOWN",
                (Some(false), None) => "connecting",
                (None, None) => "-",
            };
            vec![
                text(source, "kind").to_owned(),
                state.to_owned(),
                rate(link, &format!("source {at}")),
                count(source, "records"),
                count(source, "malformed"),
                count(source, "unsupported"),
            ]
        });
    let head = &[
        "source",
        "state",
        " records/s",
        " records",
        " malformed",
        " unsupported",
    ];
    Grid {
        title: "sources".to_owned(),
        head,
        rows: rows.collect(),
        skip: 0,
    }
}

fn shore<'a>(state: &State, link: &'a Link) -> View<'a> {
    let report = &link.report;
    let links = report["links"].as_u64();
    let state_of = match links {
        Some(count) => format!("LISTENS  {}", counted(count, "link")),
        None => "LISTENS".to_owned(),
    };
    let mut warnings = Vec::new();
    for sink in list(report, "sinks") {
        if let Some(why) = sink["trouble"].as_str() {
            warnings.push(format!("sink {}: {why}", text(sink, "kind")));
        }
    }
    if let Some(missed @ 1..) = report["missed"].as_u64() {
        warnings.push(match missed {
            1 => "a live sink was slow or away and missed 1 record".to_owned(),
            _ => format!("live sinks were slow or away and missed {missed} records"),
        });
    }
    let (senders, on_hold) = senders(state, link);
    match on_hold {
        0 => {}
        1 => warnings.push("ON HOLD: 1 sender keeps what a log does not take".to_owned()),
        count => warnings.push(format!(
            "ON HOLD: {count} senders keep what a log does not take"
        )),
    }
    View {
        name: link.name().to_owned(),
        mark: Mark::Good,
        state: state_of,
        quality: None,
        warnings,
        charts: vec![Panel::new("records", state.now, &link.records, per_second)],
        facts: Vec::new(),
        tables: vec![senders, sinks(link)],
    }
}

/// The table, and how many of them are on hold.
fn senders(state: &State, link: &Link) -> (Grid, u64) {
    let mut on_hold = 0;
    let rows = list(&link.report, "senders").map(|sender| {
        let name = text(sender, "name");
        let via = sender["via"].as_str();
        let is_on_hold = sender["is_on_hold"] == true;
        on_hold += u64::from(is_on_hold);
        vec![
            name.to_owned(),
            via.map_or_else(|| "gone".to_owned(), str::to_uppercase),
            rate(link, &format!("sender {name}")),
            count(sender, "records"),
            // Of a sender that is gone it is an old one.
            match via {
                Some(_) => said(number(sender, "rtt_ms"), millis),
                None => "-".to_owned(),
            },
            count(sender, "held"),
            count(sender, "stale"),
            if is_on_hold { "ON HOLD" } else { "" }.to_owned(),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let title = match rows.len() {
        0 => "senders: nobody has come yet".to_owned(),
        count => counted(count as u64, "sender"),
    };
    let head = &[
        "sender",
        "via",
        " records/s",
        " records",
        " round trip",
        " held",
        " stale",
        "",
    ];
    let skip = state.scroll.min(rows.len().saturating_sub(1));
    (
        Grid {
            title,
            head,
            rows,
            skip,
        },
        on_hold,
    )
}

fn sinks(link: &Link) -> Grid {
    let rows = list(&link.report, "sinks").enumerate().map(|(at, sink)| {
        vec![
            text(sink, "kind").to_owned(),
            match sink["is_log"].as_bool() {
                Some(true) => "log",
                Some(false) => "live",
                None => "-",
            }
            .to_owned(),
            rate(link, &format!("sink {at}")),
            count(sink, "records"),
            count(sink, "refused"),
            match sink["trouble"].as_str() {
                Some(_) => "TROUBLE",
                None => "ok",
            }
            .to_owned(),
        ]
    });
    Grid {
        title: "sinks".to_owned(),
        head: &[
            "sink",
            "gets",
            " records/s",
            " records",
            " refused",
            "state",
        ],
        rows: rows.collect(),
        skip: 0,
    }
}

fn text<'a>(report: &'a Value, name: &str) -> &'a str {
    report[name].as_str().unwrap_or("-")
}

fn count(report: &Value, name: &str) -> String {
    report[name]
        .as_u64()
        .map_or_else(|| "-".to_owned(), |count| count.to_string())
}

fn rate(link: &Link, key: &str) -> String {
    said(link.rate(key), |rate| format!("{rate:.1}"))
}

fn said(value: Option<f64>, unit: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), unit)
}

fn per_second(rate: f64) -> String {
    format!("{rate:.1}/s")
}

fn millis(trip: f64) -> String {
    format!("{trip:.0} ms")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A time for people.
fn seconds(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86400.0),
    }
}
