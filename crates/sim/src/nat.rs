//! Address translation: when a NAT forgets the mapping of a host, and what the next one is.
//!
//! Owns the configuration with its text form, and the state of one host's mapping. Called by
//! `Network`, which knows the addresses; the relay keeps its mappings as sockets and asks only when
//! they are to be forgotten. A NAT that forgets looks the same to both peers whether it was rebooted,
//! ran out of ports or timed the mapping out: what comes from outside is dropped until the inside
//! sends, and then there is another mapping.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use towline_wire::Time;

use crate::LinkConfigError;
use crate::text::{duration, time};

/// What a NAT's next mapping has in common with the one it forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remap {
    /// Nothing changes, as with a NAT that keeps ports: only what comes before the inside sends is lost.
    Same,
    /// The same address, another port.
    #[default]
    Port,
    /// Another address.
    Address,
}

impl Remap {
    const ALL: [(&str, Self); 3] = [
        ("same", Self::Same),
        ("port", Self::Port),
        ("address", Self::Address),
    ];
}

/// When a NAT forgets mappings. By default it never does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatConfig {
    /// It forgets at these times, which rise.
    pub rebind_at: Vec<Time>,
    /// It forgets each time that so much has passed, counted from time 0 of the clock.
    pub every: Option<Duration>,
    /// It forgets a mapping over which nothing went, either way, for so long.
    pub idle: Option<Duration>,
    /// What the next mapping is.
    pub change: Remap,
}

impl NatConfig {
    /// Forgets at `at` once.
    pub fn at(at: Time, change: Remap) -> Self {
        Self {
            rebind_at: vec![at],
            change,
            ..Self::default()
        }
    }

    /// Refuses what no NAT can do.
    ///
    /// # Errors
    /// Names the first setting that is impossible, and why.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        let fail = |item: &str, problem: &str| Err(LinkConfigError::new(item, problem));
        if !self.rebind_at.is_sorted_by(|a, b| a < b) {
            return fail("rebind", "its times must rise");
        }
        if self.every.is_some_and(|every| every.is_zero()) {
            return fail("every", "a time of 0 never lets a datagram pass");
        }
        if self.idle.is_some_and(|idle| idle.is_zero()) {
            return fail("idle", "a time of 0 never lets a datagram back in");
        }
        Ok(())
    }

    /// The first time after `time` at which all mappings are forgotten.
    pub fn next_rebinding(&self, time: Time) -> Option<Time> {
        let listed = self.rebind_at.partition_point(|at| *at <= time);
        let listed = self.rebind_at.get(listed).copied();
        let turn = self.every.and_then(|every| {
            let every = u64::try_from(every.as_nanos()).ok().filter(|n| *n > 0)?;
            let next = (time.as_nanos() / every).checked_add(1)?;
            Some(Time::from_nanos(next.checked_mul(every)?))
        });
        listed.into_iter().chain(turn).min()
    }
}

const SETTINGS: &str = "rebind, every, idle, change";

/// Reads a comma-separated list of settings.
///
/// | item | value |
/// |---|---|
/// | `rebind=` | times at which all mappings are forgotten, `5s` or `5s;9s` |
/// | `every=` | the time between two such times |
/// | `idle=` | silence after which a mapping is forgotten |
/// | `change=` | `port` (default), `address` or `same`: what the next mapping is |
impl FromStr for NatConfig {
    type Err = LinkConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut config = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for item in text.split(',').map(str::trim) {
            let fail = |problem: String| LinkConfigError::new(item, problem);
            let (name, value) = item.split_once('=').ok_or_else(|| {
                fail(format!(
                    "is no name=value; settings of a NAT are {SETTINGS}"
                ))
            })?;
            if seen.contains(&name) {
                return Err(fail("is given twice".to_owned()));
            }
            seen.push(name);
            config.apply(name, value).map_err(fail)?;
            config
                .validate()
                .map_err(|error| fail(error.problem().to_owned()))?;
        }
        Ok(config)
    }
}

impl NatConfig {
    fn apply(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "rebind" => {
                let times = value.split(';');
                let times = times.map(|text| Ok(Time::ZERO + duration(text)?));
                self.rebind_at = times.collect::<Result<_, String>>()?;
            }
            "every" => self.every = Some(duration(value)?),
            "idle" => self.idle = Some(duration(value)?),
            "change" => {
                let found = Remap::ALL.into_iter().find(|(name, _)| *name == value);
                self.change = found
                    .map(|(_, remap)| remap)
                    .ok_or("is none of port, address, same")?;
            }
            _ => return Err(format!("there is no such setting; known are {SETTINGS}")),
        }
        Ok(())
    }
}

/// Prints a text that reads back as the same.
impl fmt::Display for NatConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut items: Vec<String> = Vec::new();
        if !self.rebind_at.is_empty() {
            let times = self.rebind_at.iter();
            let times = times.map(|at| time(at.saturating_duration_since(Time::ZERO)));
            let times: Vec<String> = times.collect();
            items.push(format!("rebind={}", times.join(";")));
        }
        for (name, value) in [("every", self.every), ("idle", self.idle)] {
            items.extend(value.map(|value| format!("{name}={}", time(value))));
        }
        let change = Remap::ALL
            .iter()
            .find(|(_, remap)| *remap == self.change)
            .map_or("port", |(name, _)| name);
        items.push(format!("change={change}"));
        f.write_str(&items.join(","))
    }
}

/// The mapping of one host.
#[derive(Clone, Debug)]
pub(crate) struct Nat {
    config: NatConfig,
    /// When it next forgets whatever is mapped.
    next: Option<Time>,
    last_used: Time,
    /// Whether there is a mapping.
    open: bool,
    /// Whether there ever was one.
    used: bool,
}

impl Nat {
    pub(crate) fn new(config: NatConfig, now: Time) -> Self {
        Self {
            next: config.next_rebinding(now),
            config,
            last_used: now,
            open: false,
            used: false,
        }
    }

    /// The host sends at `now`. Returns what is to change about its public address, if anything.
    pub(crate) fn on_outbound(&mut self, now: Time) -> Option<Remap> {
        self.forget(now);
        self.last_used = self.last_used.max(now);
        let is_new = !core::mem::replace(&mut self.open, true);
        let was_used = core::mem::replace(&mut self.used, true);
        (is_new && was_used).then_some(self.config.change)
    }

    /// Whether something for the present public address gets in at `now`.
    pub(crate) fn lets_in(&mut self, now: Time) -> bool {
        self.forget(now);
        if self.open {
            self.last_used = self.last_used.max(now);
        }
        self.open
    }

    fn forget(&mut self, now: Time) {
        if self.next.is_some_and(|at| at <= now) {
            self.open = false;
            self.next = self.config.next_rebinding(now);
        }
        let silence = now.saturating_duration_since(self.last_used);
        if self.config.idle.is_some_and(|idle| silence >= idle) {
            self.open = false;
        }
    }
}

#[cfg(test)]
mod tests;
