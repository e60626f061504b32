//! The flows of a scenario's text: each `[[flow]]` is one flow or a group of equal ones.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use towline_quic::{Algorithm, TrafficClass};
use towline_sim::LinkConfigError;

use super::congestion::{Congestion, UnknownCongestion};
use super::limits::{MAX_DURATION, NO_TIME};
use super::link::MAX_RATE;
use super::reader::{Place, Table, TextError, Value};
use crate::scenario::{Flow, MAX_FLOWS, Traffic};

/// Shortest and longest UDP payload of raw datagrams.
const SIZES: std::ops::RangeInclusive<u64> = 8..=65_507;
/// Raw datagrams one flow may send in a second.
const MAX_DATAGRAM_RATE: u64 = 1_000_000;
/// Bytes of one stream.
const MAX_STREAM: u64 = 1_000_000_000_000;
const ONE_MILLI: Duration = Duration::from_millis(1);

/// Classes of a pool, first come first served.
const CLASSES: [(&str, TrafficClass); 3] = [
    ("interactive", TrafficClass::Interactive),
    ("normal", TrafficClass::Normal),
    ("background", TrafficClass::Background),
];
/// Keys of one kind of traffic.
const FOREIGN: [(&str, &str); 7] = [
    ("streams", "traffic = \"streams\""),
    ("bytes", "traffic = \"streams\" or \"request\""),
    ("interval", "traffic = \"ping\""),
    ("size", "traffic = \"ping\" or \"constant\""),
    ("rate", "traffic = \"constant\" (a limit is `rate_limit`)"),
    ("on", "traffic = \"constant\""),
    ("off", "traffic = \"constant\""),
];

/// What one `[[flow]]` says.
pub(super) struct Group<'t> {
    /// Where it says that it is a part of the scenario's pool.
    pub(super) member: Option<Place<'t>>,
    /// Its flows, in order.
    pub(super) flows: Vec<Flow>,
    /// It has a controller of its own, or needs none.
    pub(super) is_fixed: bool,
}

/// Reads one `[[flow]]` of a scenario of `duration` that has `others` already.
pub(super) fn group<'t>(
    mut table: Table<'t>,
    duration: Duration,
    others: usize,
) -> Result<Group<'t>, TextError> {
    let mut flow = Flow::bulk("", Algorithm::default());
    let name = table.take("name").map(|value| value.name()).transpose()?;
    let cc = table.take("cc");
    flow.traffic = traffic(&mut table)?;
    let is_raw = !flow.traffic.is_engine();

    let chosen = cc.as_ref().map(congestion).transpose()?;
    if let Some(chosen) = chosen {
        chosen.govern(&mut flow);
    }
    transport(&mut table, &mut flow)?;
    let member = share(&mut table, &mut flow)?;
    if let Some(value) = cc.filter(|_| is_raw) {
        return Err(value.place.error(
            "raw datagrams obey no controller; leave it out, or make the traffic bulk, streams or request",
        ));
    }

    let start = table.take("start");
    let place = start.as_ref().map(|value| value.place.clone());
    let place = place.unwrap_or_else(|| table.place.clone());
    let start = start.map_or(Ok(Duration::ZERO), |v| v.duration(NO_TIME..=MAX_DURATION))?;
    let count = table.take_or("count", 1, |value| value.integer(1..=MAX_FLOWS as u64))?;
    if others + count as usize > MAX_FLOWS {
        return Err(table.place.error(format!(
            "makes {} flows; a scenario has at most {MAX_FLOWS}",
            others + count as usize
        )));
    }
    let stagger = table.take_or("stagger", Duration::ZERO, |value| {
        value.duration(NO_TIME..=MAX_DURATION)
    })?;
    let last_start = start + stagger * (count as u32 - 1);
    if last_start >= duration {
        return Err(place.error(format!(
            "starts at {last_start:?}, and the scenario ends at {duration:?}; start it earlier or raise `duration` in [scenario]"
        )));
    }
    let mut stop = Duration::MAX;
    if let Some(value) = table.take("stop") {
        stop = value.duration(NO_TIME..=MAX_DURATION)?;
        if stop <= last_start {
            return Err(value
                .place
                .error(format!("is not later than the start at {last_start:?}")));
        }
        if stop > duration {
            return Err(value.place.error(format!(
                "is later than the scenario's end at {duration:?}; leave it out for a flow that lasts to the end"
            )));
        }
    }
    if let Some(value) = table.take("switch") {
        if is_raw {
            return Err(value.place.error("raw datagrams obey no controller"));
        }
        flow.switches = switches(&value, duration)?;
    }
    if let Some(value) = table.take("nat") {
        let nat = value.string()?.parse();
        flow.nat = Some(nat.map_err(|error: LinkConfigError| value.place.error(error.problem()))?);
    }
    flow.access_delay = table.take_or("access_delay", Duration::ZERO, |value| {
        value.duration(NO_TIME..=super::link::MAX_DELAY)
    })?;
    flow.reverse = table.take_or("reverse", false, Value::boolean)?;
    table.finish(&FOREIGN)?;

    let name = name.unwrap_or_else(|| {
        let kind = match flow.traffic {
            Traffic::Bulk => "bulk",
            Traffic::Streams { .. } => "streams",
            Traffic::Request { .. } => "request",
            Traffic::Ping { .. } => "ping",
            Traffic::Constant { .. } => "constant",
            Traffic::OnOff { .. } => "on-off",
        };
        chosen.map_or_else(|| kind.to_owned(), |chosen| chosen.to_string())
    });
    let flows = (0..count as u32).map(|index| Flow {
        name: match count {
            1 => name.clone(),
            _ => format!("{name} {}", index + 1),
        },
        active: start + stagger * index..stop,
        ..flow.clone()
    });
    Ok(Group {
        member,
        flows: flows.collect(),
        is_fixed: chosen.is_some() || is_raw,
    })
}

fn congestion(value: &Value<'_>) -> Result<Congestion, TextError> {
    value
        .string()?
        .parse()
        .map_err(|error: UnknownCongestion| value.place.error(error.to_string()))
}

fn traffic(table: &mut Table<'_>) -> Result<Traffic, TextError> {
    let Some(kind) = table.take("traffic") else {
        return Ok(Traffic::Bulk);
    };
    let missing = |key: &str, example: &str| {
        kind.place
            .error(format!("needs `{key}` as well, such as {key} = {example}"))
    };
    match kind.string()? {
        "bulk" => Ok(Traffic::Bulk),
        "streams" => {
            let count = table.take_or("streams", 1, |value| value.integer(1..=100))?;
            let bytes = table
                .take("bytes")
                .ok_or_else(|| missing("bytes", "\"1mb\""))?;
            Ok(Traffic::Streams {
                count: count as u32,
                bytes: bytes.large_bytes(1..=MAX_STREAM)?,
            })
        }
        "request" => Ok(Traffic::Request {
            bytes: table.take_or("bytes", 10_000, |value| value.large_bytes(1..=MAX_STREAM))?,
        }),
        "ping" => Ok(Traffic::Ping {
            interval: table.take_or("interval", Duration::from_millis(100), |value| {
                value.duration(ONE_MILLI..=MAX_DURATION)
            })?,
            size: table.take_or("size", 64, |value| value.bytes(SIZES))? as u32,
        }),
        "constant" => {
            let value = table
                .take("rate")
                .ok_or_else(|| missing("rate", "\"4mbit\""))?;
            let rate = value.rate(1..=MAX_RATE)?;
            let size = table.take_or("size", 1200, |value| value.bytes(SIZES))?;
            if rate / (size * 8) > MAX_DATAGRAM_RATE {
                return Err(value.place.error(format!(
                    "is more than {MAX_DATAGRAM_RATE} datagrams of {size} bytes a second; raise `size` or lower it"
                )));
            }
            let size = size as u32;
            let [on, off] = ["on", "off"].map(|key| table.take(key));
            match (on, off) {
                (None, None) => Ok(Traffic::Constant { rate, size }),
                (Some(on), Some(off)) => Ok(Traffic::OnOff {
                    rate,
                    size,
                    on: on.duration(ONE_MILLI..=MAX_DURATION)?,
                    off: off.duration(ONE_MILLI..=MAX_DURATION)?,
                }),
                (Some(one), None) | (None, Some(one)) => Err(one
                    .place
                    .error("stands alone; `on` and `off` go together, such as on = \"2s\" and off = \"3s\"")),
            }
        }
        _ => Err(kind
            .place
            .error("is no traffic; known are bulk, streams, request, ping, constant")),
    }
}

fn transport(table: &mut Table<'_>, flow: &mut Flow) -> Result<(), TextError> {
    let transport = &mut flow.transport;
    let initial = u64::from(transport.initial_mtu);
    let size = |value: &Value<'_>| value.integer(1200..=65_507);
    transport.initial_mtu = table.take_or("mtu", initial, size)? as u16;
    let max = table.take("max_mtu").as_ref().map(size).transpose()?;
    transport.max_mtu = max.map(|max| max as u16);
    transport.mtu_search = transport.max_mtu.is_some();
    transport.hystart = table.take_or("hystart", transport.hystart, Value::boolean)?;
    transport.pacing = table.take_or("pacing", transport.pacing, Value::boolean)?;
    transport.ecn = table.take_or("ecn", transport.ecn, Value::boolean)?;
    transport.ack_frequency =
        table.take_or("ack_thinning", transport.ack_frequency, Value::boolean)?;
    if let Some(value) = table.take("rate_limit") {
        let bytes = value.rate(8..=MAX_RATE)? / 8;
        transport.rate_limit = NonZeroU64::new(bytes);
    }
    Ok(())
}

/// The flow's part in the scenario's pool, and where that is said.
fn share<'t>(table: &mut Table<'t>, flow: &mut Flow) -> Result<Option<Place<'t>>, TextError> {
    let (class, weight) = (table.take("class"), table.take("weight"));
    let Some(place) = class.as_ref().or(weight.as_ref()) else {
        return Ok(None);
    };
    let place = place.place.clone();
    let class = class.map_or(Ok(TrafficClass::Normal), |value| {
        let known = CLASSES.iter().find(|(name, _)| value.string() == Ok(*name));
        known.map(|(_, class)| *class).ok_or_else(|| {
            let names = CLASSES.map(|(name, _)| name).join(", ");
            value.place.error(format!("is no class; known are {names}"))
        })
    })?;
    let weight = weight.map_or(Ok(1), |value| value.integer(1..=1000))? as u32;
    flow.share = Some((class, NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN)));
    Ok(Some(place))
}

fn switches(value: &Value<'_>, end: Duration) -> Result<Vec<(Duration, Algorithm)>, TextError> {
    let wrong = || {
        value
            .place
            .error("is no list of times and controllers; write switch = [[\"30s\", \"newreno\"]]")
    };
    let mut switches = Vec::new();
    for item in value.list().ok_or_else(wrong)? {
        let pair = item.list().ok_or_else(wrong)?;
        let [at, to] = pair.as_slice() else {
            return Err(wrong());
        };
        let at = at.duration(NO_TIME..=end)?;
        let Congestion::Algorithm(algorithm) = congestion(to)? else {
            return Err(to
                .place
                .error("a flow is under it from its start or never; give it as `cc`"));
        };
        if switches.last().is_some_and(|(before, _)| *before >= at) {
            return Err(value.place.error("must be in order of time"));
        }
        switches.push((at, algorithm));
    }
    Ok(switches)
}
