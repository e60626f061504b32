//! The textual form of a link, as `towline relay` takes it:
//! `rate=100mbit,delay=50ms,jitter=2ms,queue=64kb,aqm=codel,ecn=on,loss=2%,blackout=5s+5s`.
//!
//! Owns parsing and printing of [`LinkConfig`]; printing gives a text that parses to the same
//! configuration. Every error quotes the item at fault as it was written.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use towline_wire::Time;

use crate::{
    Aqm, DEFAULT_RED_WEIGHT, DEFAULT_REORDER_DELAY, EcnRewrite, LinkConfig, LinkConfigError,
    LossModel, Policer, Profile, RateSchedule,
};

const TIME_UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];
const RATE_UNITS: [(&str, u64); 4] = [
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1000),
    ("bit", 1),
];
const BYTE_UNITS: [(&str, u64); 7] = [
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("b", 1),
];

const SETTINGS: &str = "rate, steps, delay, jitter, order, queue, aqm, ecn, police, overhead, loss, drop, dup, reorder, corrupt, mend, truncate, blackout, mtu, icmp, remark";

/// Reads a comma-separated list of settings, optionally after the name of a [`Profile`].
///
/// | item | value |
/// |---|---|
/// | `rate=` | `bit kbit mbit gbit`, powers of 1000 |
/// | `steps=` | in place of `rate`: `0s:50mbit;20s:10mbit;40s:0bit;41s:50mbit`, from time 0 of the link's clock; with a last `60s:repeat` it starts over then |
/// | `delay=` `jitter=` | `ns us ms s` |
/// | `order=` | `keep` (default) or `any`: whether jitter may reorder |
/// | `queue=` `overhead=` | bytes, or `kb mb gb` (1000) and `kib mib gib` (1024) |
/// | `aqm=` | `droptail` (default), `codel[:TARGET:INTERVAL]`, `red:MIN:MAX:P[:WEIGHT]` (bytes), `step:TIME` |
/// | `ecn=` | `on` or `off` (default): whether `aqm` marks ECN-capable datagrams where it would drop |
/// | `police=` | `RATE:BURST`, such as `5mbit:32kb`: a token bucket that drops what exceeds it |
/// | `loss=` | a probability, or `ge:ENTER:LEAVE[:GOOD[:BAD]]` for bursts (good 0 %, bad 100 %) |
/// | `dup=` `corrupt=` `truncate=` | a probability: `1%` or `0.01` |
/// | `reorder=` | a probability, or `1%+10ms` with the extra delay |
/// | `drop=` | datagrams by place, the first is 1: `1+7+8` |
/// | `mend=` | `on` or `off` (default): whether checksums are right after `corrupt`, where the link carries IP packets |
/// | `blackout=` | start + length, `5s+5s`; may be given several times |
/// | `mtu=` | bytes, as `queue=`; with other values from some time on: `1452;5s:1200;20s:1452` |
/// | `icmp=` | `on` or `off` (default): whether a sender hears that its datagram exceeds the MTU |
/// | `remark=` | what the ECN bits of ECN-capable datagrams become behind the queue: `bleach` (cleared), `ect0`, `ect1`, `ce` |
impl FromStr for LinkConfig {
    type Err = LinkConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut config = Self::default();
        // Names and items, for a complaint about two that do not go together.
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (index, item) in text.split(',').enumerate() {
            let item = item.trim();
            if item.is_empty() {
                return Err(LinkConfigError::new(
                    text,
                    "has an empty item; write name=value,name=value",
                ));
            }
            let Some((name, value)) = item.split_once('=') else {
                let profile: Profile = item.parse()?;
                if index > 0 {
                    return Err(LinkConfigError::new(
                        item,
                        "a named network must come first",
                    ));
                }
                config = profile.link();
                continue;
            };
            if seen.iter().any(|(earlier, _)| *earlier == name) && name != "blackout" {
                return Err(LinkConfigError::new(item, "is given twice"));
            }
            seen.push((name, item));
            let rate_is_written = seen.iter().any(|(name, _)| *name == "rate");
            config
                .apply(name, value, rate_is_written)
                .and_then(|()| {
                    config
                        .validate_each()
                        .map_err(|error| error.problem().to_owned())
                })
                .map_err(|problem| LinkConfigError::new(item, problem))?;
        }
        config.validate_together().map_err(|error| {
            let written = seen.iter().find(|(name, _)| *name == error.item());
            let item = written.map_or(error.item(), |(_, item)| item);
            LinkConfigError::new(item, error.problem())
        })?;
        Ok(config)
    }
}

impl LinkConfig {
    fn apply(&mut self, name: &str, value: &str, rate_is_written: bool) -> Result<(), String> {
        match name {
            "rate" => self.rate = Some(rate(value)?),
            "steps" => {
                self.schedule = Some(steps(value)?);
                // A named network's rate gives way; one that is written out is a contradiction.
                if !rate_is_written {
                    self.rate = None;
                }
            }
            "delay" => self.delay = duration(value)?,
            "jitter" => self.jitter = duration(value)?,
            "order" => self.keep_order = order(value)?,
            "queue" => self.queue = Some(bytes(value)?),
            "aqm" => self.aqm = aqm(value)?,
            "ecn" => self.ecn = switch(value)?,
            "police" => self.policer = Some(policer(value)?),
            "overhead" => {
                self.overhead = u32::try_from(bytes(value)?).map_err(|_| "is too large")?
            }
            "loss" => self.loss = loss(value)?,
            "drop" => self.drop_list = value.split('+').map(place).collect::<Result<_, _>>()?,
            "dup" => self.duplicate = probability(value)?,
            "reorder" => (self.reorder, self.reorder_delay) = reorder(value)?,
            "corrupt" => self.corrupt = probability(value)?,
            "mend" => self.mend = switch(value)?,
            "truncate" => self.truncate = probability(value)?,
            "blackout" => {
                let (start, length) = value
                    .split_once('+')
                    .ok_or("needs start+length, such as 5s+5s")?;
                let start = Time::ZERO + duration(start)?;
                self.blackouts.push(start..start + duration(length)?);
            }
            "mtu" => (self.mtu, self.mtu_steps) = mtu(value)?,
            "icmp" => self.icmp = switch(value)?,
            "remark" => self.ecn_rewrite = Some(remark(value)?),
            _ => return Err(format!("there is no such setting; known are {SETTINGS}")),
        }
        Ok(())
    }
}

fn rate(text: &str) -> Result<u64, String> {
    scaled(text, &RATE_UNITS, None)
        .map_err(|problem| format!("{problem}; write a rate such as 100mbit, 1.5mbit or 64kbit"))
}

/// A time with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    scaled(text, &TIME_UNITS, None)
        .map(Duration::from_nanos)
        .map_err(|problem| format!("{problem}; write a time such as 50ms, 1.5s or 200us"))
}

fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, &BYTE_UNITS, Some(1))
        .map_err(|problem| format!("{problem}; write bytes such as 1400, 64kb or 2mib"))
}

fn probability(text: &str) -> Result<f64, String> {
    let hint = "write a probability such as 2% or 0.02";
    let (number, divisor) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    // `f64` would also read "inf", "nan" and "1e3".
    if number.is_empty()
        || !number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return Err(format!("`{text}` is no probability; {hint}"));
    }
    let value: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no probability; {hint}"))?;
    Ok(value / divisor)
}

fn order(text: &str) -> Result<bool, String> {
    match text {
        "keep" => Ok(true),
        "any" => Ok(false),
        _ => Err("is either keep or any".to_owned()),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is either on or off".to_owned()),
    }
}

fn aqm(text: &str) -> Result<Aqm, String> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["droptail"] => Ok(Aqm::DropTail),
        ["codel"] => Ok(Aqm::CODEL),
        ["codel", target, interval] => Ok(Aqm::CoDel {
            target: duration(target)?,
            interval: duration(interval)?,
        }),
        ["red", min, max, p] => red(min, max, p, DEFAULT_RED_WEIGHT),
        ["red", min, max, p, weight] => red(min, max, p, probability(weight)?),
        ["step", threshold] => Ok(Aqm::Step(duration(threshold)?)),
        _ => Err(
            "is none of droptail, codel, codel:TARGET:INTERVAL, red:MIN:MAX:P[:WEIGHT], step:TIME"
                .to_owned(),
        ),
    }
}

fn red(min: &str, max: &str, p: &str, weight: f64) -> Result<Aqm, String> {
    Ok(Aqm::Red {
        min: bytes(min)?,
        max: bytes(max)?,
        max_probability: probability(p)?,
        weight,
    })
}

fn policer(text: &str) -> Result<Policer, String> {
    let (limit, burst) = text
        .split_once(':')
        .ok_or("needs RATE:BURST, such as 5mbit:32kb")?;
    Ok(Policer {
        rate: rate(limit)?,
        burst: bytes(burst)?,
    })
}

fn steps(text: &str) -> Result<RateSchedule, String> {
    let mut steps = Vec::new();
    let mut repeat = None;
    for step in text.split(';') {
        let (start, value) = step
            .split_once(':')
            .ok_or_else(|| format!("`{step}` is no step; write 0s:50mbit;20s:10mbit"))?;
        let start = duration(start)?;
        if repeat.is_some() {
            return Err("repeat must come last".to_owned());
        }
        if value == "repeat" {
            repeat = Some(start);
        } else {
            steps.push((start, rate(value)?));
        }
    }
    RateSchedule::new(&steps, repeat).map_err(|error| error.problem().to_owned())
}

type MtuSteps = Vec<(Time, usize)>;

/// The MTU at first, if any, and from which times on it is another.
fn mtu(text: &str) -> Result<(Option<usize>, MtuSteps), String> {
    let size = |text| usize::try_from(bytes(text)?).map_err(|_| "is too large".to_owned());
    let (mut first, mut steps) = (None, Vec::new());
    for (index, part) in text.split(';').enumerate() {
        match part.split_once(':') {
            Some((start, value)) => steps.push((Time::ZERO + duration(start)?, size(value)?)),
            None if index == 0 => first = Some(size(part)?),
            None => return Err(format!("`{part}` has no time; write 1452;5s:1200")),
        }
    }
    Ok((first, steps))
}

fn remark(text: &str) -> Result<EcnRewrite, String> {
    REWRITES
        .into_iter()
        .find_map(|(name, rewrite)| (name == text).then_some(rewrite))
        .ok_or_else(|| "is none of bleach, ect0, ect1, ce".to_owned())
}

const REWRITES: [(&str, EcnRewrite); 4] = [
    ("bleach", EcnRewrite::Bleach),
    ("ect0", EcnRewrite::Ect0),
    ("ect1", EcnRewrite::Ect1),
    ("ce", EcnRewrite::Ce),
];

fn place(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no datagram's place; write 1+7+8"))
}

fn reorder(text: &str) -> Result<(f64, Duration), String> {
    match text.split_once('+') {
        Some((chance, extra)) => Ok((probability(chance)?, duration(extra)?)),
        None => Ok((probability(text)?, DEFAULT_REORDER_DELAY)),
    }
}

fn loss(text: &str) -> Result<LossModel, String> {
    let Some(parts) = text.strip_prefix("ge:") else {
        let p = probability(text)?;
        return Ok(if p == 0.0 {
            LossModel::None
        } else {
            LossModel::Bernoulli(p)
        });
    };
    let parts: Vec<f64> = parts
        .split(':')
        .map(probability)
        .collect::<Result<_, _>>()?;
    let (enter_bad, leave_bad, loss_good, loss_bad) = match parts[..] {
        [enter, leave] => (enter, leave, 0.0, 1.0),
        [enter, leave, good] => (enter, leave, good, 1.0),
        [enter, leave, good, bad] => (enter, leave, good, bad),
        _ => return Err("needs ge:ENTER:LEAVE[:GOOD[:BAD]]".to_owned()),
    };
    Ok(LossModel::GilbertElliott {
        enter_bad,
        leave_bad,
        loss_good,
        loss_bad,
    })
}

/// A decimal number with a unit, in whole smallest units; exact, never through floating point.
fn scaled(text: &str, units: &[(&str, u64)], without_unit: Option<u64>) -> Result<u64, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = if unit.is_empty() {
        without_unit.ok_or_else(|| format!("`{text}` has no unit"))?
    } else {
        units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|&(_, scale)| scale)
            .ok_or_else(|| format!("`{unit}` is no unit here"))?
    };
    decimal(number, scale).map_err(|problem| format!("`{text}` {problem}"))
}

fn decimal(number: &str, scale: u64) -> Result<u64, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(fraction) || fraction.len() > 18 {
        return Err("is no number");
    }
    let too_large = "is too large";
    let whole: u64 = whole.parse().map_err(|_| too_large)?;
    let fraction_units = if fraction.is_empty() {
        0
    } else {
        let value: u128 = fraction.parse().map_err(|_| "is no number")?;
        let units = value * u128::from(scale) / 10u128.pow(fraction.len() as u32);
        u64::try_from(units).map_err(|_| too_large)?
    };
    whole
        .checked_mul(scale)
        .and_then(|units| units.checked_add(fraction_units))
        .ok_or(too_large)
}

/// Prints the settings that differ from a perfect link, or `local` if none does.
impl fmt::Display for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut items: Vec<String> = Vec::new();
        if let Some(rate) = self.rate {
            items.push(format!("rate={}", with_unit(rate.into(), &RATE_UNITS)));
        }
        if let Some(schedule) = &self.schedule {
            items.push(format!("steps={}", printed_steps(schedule)));
        }
        for (name, value) in [("delay", self.delay), ("jitter", self.jitter)] {
            if !value.is_zero() {
                items.push(format!("{name}={}", time(value)));
            }
        }
        if !self.keep_order {
            items.push("order=any".to_owned());
        }
        if let Some(queue) = self.queue {
            items.push(format!("queue={queue}"));
        }
        items.extend(printed_aqm(&self.aqm));
        if self.ecn {
            items.push("ecn=on".to_owned());
        }
        if let Some(Policer { rate, burst }) = self.policer {
            let rate = with_unit(rate.into(), &RATE_UNITS);
            items.push(format!("police={rate}:{burst}"));
        }
        if self.overhead > 0 {
            items.push(format!("overhead={}", self.overhead));
        }
        items.extend(printed_loss(&self.loss));
        if !self.drop_list.is_empty() {
            let places: Vec<String> = self.drop_list.iter().map(u64::to_string).collect();
            items.push(format!("drop={}", places.join("+")));
        }
        if self.reorder > 0.0 {
            items.push(format!(
                "reorder={}+{}",
                self.reorder,
                time(self.reorder_delay)
            ));
        }
        for (name, p) in [
            ("dup", self.duplicate),
            ("corrupt", self.corrupt),
            ("truncate", self.truncate),
        ] {
            if p > 0.0 {
                items.push(format!("{name}={p}"));
            }
        }
        if self.mend {
            items.push("mend=on".to_owned());
        }
        for window in &self.blackouts {
            let start = window.start.saturating_duration_since(Time::ZERO);
            let length = window.end.saturating_duration_since(window.start);
            items.push(format!("blackout={}+{}", time(start), time(length)));
        }
        items.extend(self.printed_mtu());
        if self.icmp {
            items.push("icmp=on".to_owned());
        }
        let rewrite = REWRITES.iter().find(|(_, r)| self.ecn_rewrite == Some(*r));
        items.extend(rewrite.map(|(name, _)| format!("remark={name}")));
        if items.is_empty() {
            return f.write_str(Profile::Local.name());
        }
        f.write_str(&items.join(","))
    }
}

impl LinkConfig {
    fn printed_mtu(&self) -> Option<String> {
        let first = self.mtu.map(|mtu| mtu.to_string());
        let steps = self.mtu_steps.iter().map(|(start, mtu)| {
            let start = start.saturating_duration_since(Time::ZERO);
            format!("{}:{mtu}", time(start))
        });
        let parts: Vec<String> = first.into_iter().chain(steps).collect();
        (!parts.is_empty()).then(|| format!("mtu={}", parts.join(";")))
    }
}

fn printed_aqm(aqm: &Aqm) -> Option<String> {
    match *aqm {
        Aqm::DropTail => None,
        Aqm::CoDel { target, interval } => {
            Some(format!("aqm=codel:{}:{}", time(target), time(interval)))
        }
        Aqm::Red {
            min,
            max,
            max_probability,
            weight,
        } => Some(format!("aqm=red:{min}:{max}:{max_probability}:{weight}")),
        Aqm::Step(threshold) => Some(format!("aqm=step:{}", time(threshold))),
    }
}

fn printed_loss(loss: &LossModel) -> Option<String> {
    match *loss {
        LossModel::None => None,
        LossModel::Bernoulli(p) => Some(format!("loss={p}")),
        LossModel::GilbertElliott {
            enter_bad,
            leave_bad,
            loss_good,
            loss_bad,
        } => Some(format!(
            "loss=ge:{enter_bad}:{leave_bad}:{loss_good}:{loss_bad}"
        )),
    }
}

fn printed_steps(schedule: &RateSchedule) -> String {
    let steps = schedule
        .steps()
        .map(|(start, rate)| format!("{}:{}", time(start), with_unit(rate.into(), &RATE_UNITS)));
    let repeat = schedule
        .repeat()
        .map(|period| format!("{}:repeat", time(period)));
    steps.chain(repeat).collect::<Vec<_>>().join(";")
}

/// A duration as [`duration`] reads it.
pub(crate) fn time(duration: Duration) -> String {
    with_unit(duration.as_nanos(), &TIME_UNITS)
}

/// `value` in the largest unit that divides it.
fn with_unit(value: u128, units: &[(&str, u64)]) -> String {
    let (name, scale) = units
        .iter()
        .find(|(_, scale)| value.is_multiple_of(u128::from(*scale)))
        .copied()
        .unwrap_or(("", 1));
    format!("{}{name}", value / u128::from(scale))
}

#[cfg(test)]
mod tests;
