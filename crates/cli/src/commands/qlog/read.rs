//! A file to events: JSON texts, each behind a record separator (RFC 7464).
//!
//! Reads what draft-ietf-quic-qlog-main-schema-13 calls a sequential file, whoever wrote it; names of
//! older drafts are understood too. A record that is no event is counted and passed over, as that of
//! a writer that was killed is cut off. One record is in memory at a time.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Read as _};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

const RECORD_SEPARATOR: u8 = 0x1e;

/// Cap: bytes of one record; what has longer ones is no log.
pub(super) const MAX_RECORD: usize = 16 << 20;

/// Characters of a text that are shown.
const SHOWN: usize = 200;

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) enum Problem {
    Io(io::Error),
    NotQlog(&'static str),
    /// One JSON text.
    OtherForm,
    /// A record is longer than so many bytes.
    TooLarge(usize),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Debug, Default, Deserialize)]
struct Header {
    file_schema: Option<String>,
    /// Of older drafts, instead of the schema.
    qlog_version: Option<String>,
    #[serde(default)]
    trace: Trace,
}

#[derive(Debug, Default, Deserialize)]
struct Trace {
    #[serde(default)]
    vantage_point: VantagePoint,
    #[serde(default)]
    common_fields: CommonFields,
}

#[derive(Debug, Default, Deserialize)]
struct VantagePoint {
    #[serde(rename = "type")]
    role: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct CommonFields {
    group_id: Option<String>,
    /// Older drafts call it ODCID.
    #[serde(rename = "ODCID")]
    odcid: Option<String>,
    time_format: Option<String>,
}

#[derive(Deserialize)]
struct Record<'a> {
    /// Milliseconds.
    time: f64,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    data: Data,
}

/// Members of the events that matter here; what they are is checked where they are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Data {
    raw: Value,
    packets: Value,
    reason: Value,
    congestion_window: Value,
    bytes_in_flight: Value,
    smoothed_rtt: Value,
    latest_rtt: Value,
    min_rtt: Value,
}

/// As much of a JSON value as matters here. A record may have many MiB, and as a tree it would have
/// many times that: the rest is passed over while it is read.
#[derive(Debug, Default)]
enum Value {
    #[default]
    Other,
    Whole(u64),
    Real(f64),
    /// The beginning of a text.
    Text(String),
    /// An object, and its member `length` if that is a whole number.
    Object(Option<u64>),
}

impl Value {
    fn length(&self) -> Option<u64> {
        match self {
            Self::Object(length) => *length,
            _ => None,
        }
    }

    fn whole(&self) -> Option<u64> {
        match self {
            Self::Whole(whole) => Some(*whole),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What a size or a time may be; anything else was not measured.
    fn amount(&self) -> Option<f64> {
        let amount = match self {
            Self::Whole(whole) => *whole as f64,
            Self::Real(real) => *real,
            _ => return None,
        };
        (amount.is_finite() && amount >= 0.0).then_some(amount)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_u64<E>(self, whole: u64) -> Result<Value, E> {
        Ok(Value::Whole(whole))
    }

    fn visit_i64<E>(self, whole: i64) -> Result<Value, E> {
        Ok(Value::Real(whole as f64))
    }

    fn visit_f64<E>(self, real: f64) -> Result<Value, E> {
        Ok(Value::Real(real))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.chars().take(SHOWN).collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut length = None;
        while let Some(key) = object.next_key::<String>()? {
            if key == "length" {
                length = object.next_value::<Value>()?.whole();
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(length))
    }
}

/// What happened, as far as it is drawn or counted.
#[derive(Debug, PartialEq)]
pub(super) enum What {
    Sent(u64),
    Received(u64),
    Lost,
    SpuriouslyLost(u64),
    Dropped,
    Metrics(Metrics),
    Closed(Option<String>),
    Other,
}

/// Bytes, and milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Metrics {
    pub(super) window: Option<f64>,
    pub(super) in_flight: Option<f64>,
    pub(super) smoothed_rtt: Option<f64>,
    pub(super) latest_rtt: Option<f64>,
    pub(super) min_rtt: Option<f64>,
}

/// An event, at so many seconds after the first.
#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub(super) seconds: f64,
    pub(super) what: What,
}

/// A log that is being read.
pub(super) struct Log<R> {
    input: R,
    record: Vec<u8>,
    role: String,
    id: String,
    /// Times count from the event before.
    is_relative: bool,
    /// The first event's time, and the last one's, milliseconds.
    began: Option<f64>,
    last: f64,
    unreadable: u64,
}

impl<R: BufRead> Log<R> {
    /// Reads the header.
    pub(super) fn begin(input: R) -> Result<Self, Problem> {
        let mut log = Self {
            input,
            record: Vec::new(),
            role: "unknown".to_owned(),
            id: "unknown".to_owned(),
            is_relative: false,
            began: None,
            last: 0.0,
            unreadable: 0,
        };
        match log.input.fill_buf()?.first().copied() {
            Some(RECORD_SEPARATOR) => log.input.consume(1),
            Some(b'{') => return Err(Problem::OtherForm),
            Some(_) => {
                return Err(Problem::NotQlog(
                    "it does not begin with a record separator",
                ));
            }
            None => return Err(Problem::NotQlog("it is empty")),
        }
        if !log.read_record()? {
            return Err(Problem::NotQlog("it has no header"));
        }
        let header: Header = serde_json::from_slice(&log.record)
            .map_err(|_| Problem::NotQlog("its first record is no qlog header"))?;
        if header.file_schema.is_none() && header.qlog_version.is_none() {
            return Err(Problem::NotQlog("its first record names no file schema"));
        }
        let Trace {
            vantage_point,
            common_fields,
        } = header.trace;
        if let Some(role) = vantage_point.role {
            log.role = shown(&role);
        }
        if let Some(id) = common_fields.group_id.or(common_fields.odcid) {
            log.id = shown(&id);
        }
        let format = common_fields.time_format;
        log.is_relative = matches!(
            format.as_deref(),
            Some("relative_to_previous_event" | "delta")
        );
        Ok(log)
    }

    /// Whose log it is.
    pub(super) fn role(&self) -> String {
        self.role.clone()
    }

    /// The connection's name.
    pub(super) fn id(&self) -> String {
        self.id.clone()
    }

    /// Records that were no events, so far.
    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Reads up to the next separator or the end; false if there was nothing.
    fn read_record(&mut self) -> Result<bool, Problem> {
        self.record.clear();
        let mut limited = self.input.by_ref().take(MAX_RECORD as u64 + 1);
        let count = limited.read_until(RECORD_SEPARATOR, &mut self.record)?;
        self.record.pop_if(|last| *last == RECORD_SEPARATOR);
        if self.record.len() > MAX_RECORD {
            return Err(Problem::TooLarge(MAX_RECORD));
        }
        Ok(count > 0)
    }

    /// The next event; `None` at the end.
    pub(super) fn next_event(&mut self) -> Result<Option<Event>, Problem> {
        while self.read_record()? {
            if self.record.is_empty() {
                continue;
            }
            let Ok(Record { time, name, data }) = serde_json::from_slice(&self.record) else {
                self.unreadable += 1;
                continue;
            };
            let what = what(&name, &data);
            let began = *self.began.get_or_insert(time);
            let last = match self.is_relative {
                true => self.last + time,
                false => time - began,
            };
            if !last.is_finite() {
                self.unreadable += 1;
                continue;
            }
            self.last = last;
            let seconds = (self.last / 1e3).max(0.0);
            return Ok(Some(Event { seconds, what }));
        }
        Ok(None)
    }
}

fn what(name: &str, data: &Data) -> What {
    let length = || data.raw.length().unwrap_or(0);
    // The drafts changed the category more than once, and prefixed what comes behind it.
    let (_, name) = name.split_once(':').unwrap_or(("", name));
    match name {
        "packet_sent" => What::Sent(length()),
        "packet_received" => What::Received(length()),
        "packet_lost" => What::Lost,
        "packet_dropped" => What::Dropped,
        "spurious_loss" => What::SpuriouslyLost(data.packets.whole().unwrap_or(1)),
        "recovery_metrics_updated" | "metrics_updated" => What::Metrics(Metrics {
            window: data.congestion_window.amount(),
            in_flight: data.bytes_in_flight.amount(),
            smoothed_rtt: data.smoothed_rtt.amount(),
            latest_rtt: data.latest_rtt.amount(),
            min_rtt: data.min_rtt.amount(),
        }),
        "connection_closed" => What::Closed(data.reason.text().map(shown)),
        _ => What::Other,
    }
}

/// Words of whoever wrote the log, fit for a terminal.
fn shown(text: &str) -> String {
    let text: String = text.chars().take(SHOWN).collect();
    towline_transfer::printable(text.as_bytes())
}
