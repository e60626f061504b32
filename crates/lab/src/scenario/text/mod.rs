//! Scenarios as people write them: a TOML text becomes a [`Scenario`], or an error that says in
//! which line what is wrong and what to write instead. `docs/scenarios.md` lists the keys.
//!
//! ```text
//!   reader  tables, taken apart key by key; every value knows its place
//!   link    [path], [forward], [back] and [[change]], by the parser of `towline relay`
//!   flow    [[flow]]
//! ```
//!
//! Called by `towline sim` and the tests. It opens no file, and no text makes it panic or ask for
//! more memory than its length explains.

mod congestion;
mod flow;
mod limits;
mod link;
mod reader;

use std::num::NonZeroU64;
use std::time::Duration;

pub use congestion::{Congestion, UnknownCongestion};
pub use reader::TextError;

use self::limits::{
    MAX_CHANGED_ITEMS, MAX_CHANGES, MAX_DURATION, MAX_SAMPLES, MAX_TEXT, MAX_UNDER_WAY, NO_TIME,
    SAMPLES,
};
use self::link::{Files, Link};
use self::reader::{Table, Value};
use super::{Change, Flow, Scenario, Traffic};

/// A scenario read from text, and what else the text says.
#[derive(Clone, Debug)]
pub struct ScenarioText {
    /// The scenario; flows without `cc` have the default controller.
    pub scenario: Scenario,
    /// Figures are drawn from what happens after this time.
    pub warmup: Duration,
    /// For each flow, the number of its `[[flow]]`, from 0.
    pub groups: Vec<usize>,
    /// The flows that leave their controller open.
    open: Vec<usize>,
}

impl ScenarioText {
    /// Reads a whole text; `files` gives the text of a trace by the name the scenario calls it.
    ///
    /// # Errors
    /// The first mistake, and where it is.
    pub fn parse(
        text: &str,
        files: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, TextError> {
        if text.len() > MAX_TEXT {
            return Err(TextError {
                line: 1,
                column: 1,
                key: String::new(),
                value: String::new(),
                problem: format!("is longer than a scenario's {MAX_TEXT} bytes"),
            });
        }
        let document = reader::parse(text)?;
        let mut root = Table::root(text, &document);
        root.expect_only(&["scenario", "path", "forward", "back", "change", "flow"])?;

        let place = root.place.clone();
        let mut general = match root.take("scenario") {
            Some(value) => Some(value.table()?),
            None => None,
        };
        let mut take = |key| general.as_mut().and_then(|table| table.take(key));
        let name = take("name").map_or(Ok(String::new()), |v| v.name())?;
        let seed = take("seed").map_or(Ok(1), |v| v.integer(0..=i64::MAX as u64))?;
        let duration = take("duration").map_or(Ok(Duration::from_secs(60)), |v| {
            v.duration(Duration::from_millis(1)..=MAX_DURATION)
        })?;
        let sample = take("sample");
        let sample_every = sample
            .as_ref()
            .map_or(Ok(Duration::from_millis(100)), |v| v.duration(SAMPLES))?;
        let warmup = match take("warmup") {
            Some(value) => {
                let warmup = value.duration(NO_TIME..=MAX_DURATION)?;
                if warmup >= duration {
                    return Err(value.place.error(format!(
                        "leaves nothing to measure of the {duration:?} of the scenario"
                    )));
                }
                warmup
            }
            None => NO_TIME,
        };
        let pool = take("pool").map(|v| pool(&v)).transpose()?;
        let post_quantum = take("post_quantum").map_or(Ok(false), |v| v.boolean())?;
        if let Some(general) = general {
            general.finish(&[])?;
        }

        let mut path = Path::default();
        if let Some(value) = root.take("path") {
            path.overlay(value.table()?.take_rest(), files)?;
        }
        for (key, link) in [("forward", &mut path.forward), ("back", &mut path.back)] {
            if let Some(value) = root.take(key) {
                link.overlay(&value.table()?.take_rest(), files)?;
            }
        }
        let [forward, back] = link::pair(&path.forward, &path.back)?;

        let changes = match root.take("change") {
            Some(value) => changes(&value, path, [&forward, &back], duration, files)?,
            None => Vec::new(),
        };

        let mut read = Self {
            scenario: Scenario {
                name,
                seed,
                duration,
                forward,
                back,
                changes,
                flows: Vec::new(),
                post_quantum,
                pool,
                sample_every,
            },
            warmup,
            groups: Vec::new(),
            open: Vec::new(),
        };
        let Some(flows) = root.take("flow") else {
            return Err(place.error("nobody sends; write [[flow]] at least once"));
        };
        for (group, table) in flows.tables()?.into_iter().enumerate() {
            read.add(group, table)?;
        }
        let samples = duration.as_nanos() / sample_every.as_nanos() * read.groups.len() as u128;
        if samples > MAX_SAMPLES {
            let place = sample.map_or_else(|| flows.place.clone(), |value| value.place);
            return Err(place.error(format!(
                "{samples} samples of all flows are more than {MAX_SAMPLES}; raise `sample` in [scenario], shorten `duration` or take flows away"
            )));
        }
        Ok(read)
    }

    fn add(&mut self, group: usize, table: Table<'_>) -> Result<(), TextError> {
        let place = table.place.clone();
        let read = flow::group(table, self.scenario.duration, self.scenario.flows.len())?;
        if let Some(member) = read.member.filter(|_| self.scenario.pool.is_none()) {
            return Err(member.error(
                "is a part of a pool that is not there; write pool = \"10mbit\" in [scenario]",
            ));
        }
        for mut flow in read.flows {
            let bottleneck = match flow.reverse {
                false => ("forward", &self.scenario.forward),
                true => ("back", &self.scenario.back),
            };
            if bottleneck.1.rate.is_none() && bottleneck.1.schedule.is_none() {
                return Err(place.error(format!(
                    "sends over a link without a rate, which nothing would hold back; write rate = \"20mbit\" in [path] or [{}]",
                    bottleneck.0
                )));
            }
            flow.name = self.unused(flow.name);
            if !read.is_fixed {
                self.open.push(self.scenario.flows.len());
            }
            self.groups.push(group);
            self.scenario.flows.push(flow);
        }
        let pings: u128 = self
            .scenario
            .flows
            .iter()
            .filter_map(|flow| match flow.traffic {
                Traffic::Ping { interval, .. } => Some(interval),
                _ => None,
            })
            .map(|interval| self.scenario.duration.as_nanos() / interval.as_nanos())
            .sum();
        if pings > MAX_SAMPLES {
            return Err(place.error(format!(
                "{pings} pings are more than {MAX_SAMPLES}; raise `interval` or shorten `duration`"
            )));
        }
        let under_way: u128 = self.scenario.flows.iter().map(under_way).sum();
        match under_way > MAX_UNDER_WAY {
            true => Err(place.error(format!(
                "{under_way} bytes of raw datagrams would be under way on access links, and {MAX_UNDER_WAY} may; lower `access_delay` or the rate"
            ))),
            false => Ok(()),
        }
    }

    /// `name`, or one that tells it from the flows there are.
    fn unused(&self, name: String) -> String {
        let is_free = |name: &str| self.scenario.flows.iter().all(|flow| flow.name != name);
        let others = (2..=super::MAX_FLOWS + 1).map(|number| format!("{name} ({number})"));
        std::iter::once(name.clone())
            .chain(others)
            .find(|name| is_free(name))
            .unwrap_or(name)
    }

    /// Whether a flow leaves its controller open.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether this flow leaves its controller open.
    pub fn is_open_flow(&self, index: usize) -> bool {
        self.open.contains(&index)
    }

    /// The scenario with `congestion` in every flow that leaves it open.
    pub fn with_congestion(&self, congestion: Congestion) -> Scenario {
        let mut scenario = self.scenario.clone();
        for index in &self.open {
            if let Some(flow) = scenario.flows.get_mut(*index) {
                congestion.govern(flow);
            }
        }
        scenario
    }
}

/// Bytes that raw datagrams of a flow take while its access links delay them: nothing holds such a
/// flow back. Engines are held back by their windows.
fn under_way(flow: &Flow) -> u128 {
    let (in_a_second, size) = match flow.traffic {
        Traffic::Bulk | Traffic::Streams { .. } | Traffic::Request { .. } => return 0,
        // There and back.
        Traffic::Ping { interval, size } => (2_000_000_000 / interval.as_nanos().max(1), size),
        Traffic::Constant { rate, size } | Traffic::OnOff { rate, size, .. } => {
            (u128::from(rate) / (u128::from(size) * 8), size)
        }
    };
    let each = u128::from(size) + towline_sim::HELD_DATAGRAM_OVERHEAD as u128;
    in_a_second * each * flow.access_delay.as_nanos() / 1_000_000_000
}

/// The total of a pool, as bits a second.
fn pool(value: &Value<'_>) -> Result<NonZeroU64, TextError> {
    let rate = value.rate(1..=link::MAX_RATE)?;
    NonZeroU64::new(rate).ok_or_else(|| value.place.error("is a rate of 0"))
}

/// Both directions as the text has them so far.
#[derive(Clone, Debug, Default)]
struct Path<'t> {
    forward: Link<'t>,
    back: Link<'t>,
}

impl<'t> Path<'t> {
    /// Puts keys that speak of both directions over what there is.
    fn overlay(&mut self, mut values: Vec<Value<'t>>, files: Files<'_>) -> Result<(), TextError> {
        let rtt = values.iter().position(|value| value.name == "rtt");
        let rtt = rtt.map(|place| values.remove(place));
        if let Some(rtt) = &rtt
            && values.iter().any(|value| value.name == "delay")
        {
            return Err(rtt
                .place
                .error("stands beside `delay`, which is half of it; keep one of the two"));
        }
        for link in [&mut self.forward, &mut self.back] {
            link.overlay(&values, files)?;
            if let Some(rtt) = &rtt {
                link.set_round_trip(rtt.duration(NO_TIME..=link::MAX_DELAY * 2)?, &rtt.place);
            }
        }
        Ok(())
    }
}

/// Each change builds on the one before it in time.
fn changes<'t>(
    value: &Value<'t>,
    mut path: Path<'t>,
    first: [&towline_sim::LinkConfig; 2],
    end: Duration,
    files: Files<'_>,
) -> Result<Vec<Change>, TextError> {
    let mut tables = Vec::new();
    for mut table in value.tables()? {
        let Some(at) = table.take("at") else {
            return Err(table.place.error("says not when; write at = \"20s\""));
        };
        let time = at.duration(NO_TIME..=MAX_DURATION)?;
        if time >= end {
            return Err(at.place.error(format!(
                "is not before the scenario's end at {end:?}; change it earlier or raise `duration` in [scenario]"
            )));
        }
        tables.push((time, table));
    }
    if tables.len() > MAX_CHANGES {
        return Err(value
            .place
            .error(format!("has more than {MAX_CHANGES} changes")));
    }
    tables.sort_by_key(|(at, _)| *at);
    let mut now = first.map(Clone::clone);
    let mut changes = Vec::new();
    let mut items = 0;
    for (at, mut table) in tables {
        items += now.iter().map(link::items).sum::<usize>();
        if items > MAX_CHANGED_ITEMS {
            return Err(table.place.error(format!(
                "is one change too many of a link with so many steps, blackouts or drops: {items} in all changes are more than {MAX_CHANGED_ITEMS}"
            )));
        }
        path.forward.keep_queue(&now[0]);
        path.back.keep_queue(&now[1]);
        let new_pool = table.take("pool").map(|v| pool(&v)).transpose()?;
        let one_way = ["forward", "back"].map(|key| table.take(key));
        path.overlay(table.take_rest(), files)?;
        for (value, link) in one_way.iter().zip([&mut path.forward, &mut path.back]) {
            if let Some(value) = value {
                link.overlay(&value.table()?.take_rest(), files)?;
            }
        }
        now = link::pair(&path.forward, &path.back)?;
        let [forward, back] = now.clone();
        changes.push(Change {
            at,
            forward: Some(forward),
            back: Some(back),
            pool: new_pool,
        });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests;
