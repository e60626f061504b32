//! [`Record`]: a JSON object as a row of nodes, read from text and written to it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::slice::Iter;
use std::sync::Arc;

use json_event_parser::{JsonEvent, LowLevelJsonParser, SliceJsonParser, WriterJsonSerializer};

use super::time;

/// Cap: how deep objects and arrays lie in one another.
pub const MAX_DEPTH: usize = 64;
/// Cap: values in one record.
pub const MAX_NODES: usize = 1 << 16;
/// Cap: bytes of a batch's JSON. One record always fits: a number of four letters becomes 18 at most.
pub(super) const MAX_LINES: usize = 8 << 20;
/// Cap: bytes of one record's text.
pub const MAX_TEXT: usize = 1 << 20;

/// One value; those inside an object or an array follow it, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that is larger, as its digits.
    Digits(Text),
    /// The bits of a double that was written with a point or an exponent.
    Double(u64),
    /// A timestamp in its one usual spelling, as milliseconds since 1970.
    Time(i64),
    Text(Text),
    /// So many values follow.
    Array(u32),
    /// A value for each of these keys follows.
    Object(Arc<Keys>),
}

impl Node {
    // The types, as they are coded.
    pub(super) const NULL: u32 = 0;
    pub(super) const FALSE: u32 = 1;
    pub(super) const TRUE: u32 = 2;
    pub(super) const INT: u32 = 3;
    pub(super) const DOUBLE: u32 = 4;
    pub(super) const TEXT: u32 = 5;
    pub(super) const TIME: u32 = 6;
    pub(super) const DIGITS: u32 = 7;
    pub(super) const ARRAY: u32 = 8;
    pub(super) const OBJECT: u32 = 9;

    pub(super) fn kind(&self) -> u32 {
        match self {
            Self::Null => Self::NULL,
            Self::Bool(false) => Self::FALSE,
            Self::Bool(true) => Self::TRUE,
            Self::Int(_) => Self::INT,
            Self::Double(_) => Self::DOUBLE,
            Self::Digits(_) => Self::DIGITS,
            Self::Time(_) => Self::TIME,
            Self::Text(_) => Self::TEXT,
            Self::Array(_) => Self::ARRAY,
            Self::Object(_) => Self::OBJECT,
        }
    }

    /// The text that a value is known by.
    pub(super) fn text(&self) -> Option<&Text> {
        match self {
            Self::Text(text) | Self::Digits(text) => Some(text),
            Self::Object(keys) => Some(&keys.text),
            _ => None,
        }
    }

    pub(super) fn text_len(&self) -> usize {
        self.text().map_or(0, |text| text.text.len())
    }

    /// What it adds to a sum.
    pub(super) fn sum_part(&self) -> (u32, u64) {
        let value = match self {
            Self::Null | Self::Bool(_) => 0,
            Self::Int(value) => *value as u64,
            Self::Double(bits) => *bits,
            Self::Time(millis) => *millis as u64,
            Self::Array(len) => (*len).into(),
            Self::Text(text) | Self::Digits(text) => text.hash.into(),
            Self::Object(keys) => keys.text.hash.into(),
        };
        (self.kind(), value)
    }
}

/// A text with its hash.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) text: Arc<str>,
    pub(super) hash: u32,
}

impl Text {
    pub(super) fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self {
            hash: hash_text(&text),
            text,
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

/// The keys of an object, in order.
#[derive(Debug, PartialEq)]
pub(crate) struct Keys {
    /// As a JSON array, by which they are known.
    pub(super) text: Text,
    pub(crate) names: Box<[Box<str>]>,
}

impl Keys {
    pub(crate) fn new(names: Vec<Box<str>>) -> Self {
        let mut writer = WriterJsonSerializer::new(Vec::new());
        let mut put = |event| {
            let written = writer.serialize_event(event);
            debug_assert!(written.is_ok(), "memory takes everything");
        };
        put(JsonEvent::StartArray);
        for name in &names {
            put(JsonEvent::String(Cow::Borrowed(name)));
        }
        put(JsonEvent::EndArray);
        let text = writer.finish().unwrap_or_default();
        Self {
            text: Text::new(String::from_utf8(text).unwrap_or_default()),
            names: names.into(),
        }
    }

    /// What [`text`](Self::text) says; `None` if that is not a list of different keys.
    pub(super) fn parse(text: &Text) -> Option<Self> {
        let mut parser = SliceJsonParser::new(text.text.as_bytes());
        let mut names: Vec<Box<str>> = Vec::new();
        let mut known = HashSet::new();
        if parser.parse_next().ok()? != JsonEvent::StartArray {
            return None;
        }
        loop {
            match parser.parse_next().ok()? {
                JsonEvent::String(name) if known.insert(name.clone()) => names.push(name.into()),
                JsonEvent::EndArray => break,
                _ => return None,
            }
        }
        (parser.parse_next().ok()? == JsonEvent::Eof).then(|| Self {
            text: text.clone(),
            names: names.into(),
        })
    }
}

/// A JSON object, exactly: its keys in their order, its integers, and its doubles to the last bit. How a
/// number was spelled is not kept.
#[derive(Clone, PartialEq)]
pub struct Record {
    pub(crate) nodes: Box<[Node]>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// Characters of a reason.
const MAX_REASON: usize = 200;

/// Why a text is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Malformed {
    reason: String,
}

impl Malformed {
    fn new(reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        // What it quotes may be as long as the text.
        let end = reason.char_indices().nth(MAX_REASON).map(|(at, _)| at);
        if let Some(end) = end {
            reason.truncate(end);
            reason.push('…');
        }
        Self { reason }
    }
}

/// An object or an array whose end has not come.
enum Open {
    Object {
        at: usize,
        keys: Vec<Box<str>>,
        many: HashSet<Box<str>>,
    },
    Array {
        at: usize,
        len: u32,
    },
}

/// From so many keys on, whether one is there twice is looked up.
const MANY_KEYS: usize = 16;

impl Record {
    /// Reads one JSON object.
    ///
    /// # Errors
    /// Where the text is not one JSON object by RFC 8259, or is one with a key twice in an object, deeper than
    /// [`MAX_DEPTH`], or larger than [`MAX_NODES`] values or [`MAX_TEXT`] bytes.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        Self::parse_bounded(text, MAX_TEXT)
    }

    /// Reads what [`write_json`](Self::write_json) wrote, which may be longer than what it was read from.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_stored(text: &[u8]) -> Result<Self, Malformed> {
        Self::parse_bounded(text, MAX_LINES)
    }

    /// The same, of so many bytes at most.
    pub(super) fn parse_bounded(text: &[u8], most: usize) -> Result<Self, Malformed> {
        if text.len() > most {
            let reason = format!("the text has {} bytes; {most} are taken", text.len());
            return Err(Malformed::new(reason));
        }
        let mut parser = LowLevelJsonParser::new();
        let mut rest = text;
        let mut nodes = Vec::new();
        let mut open = Vec::new();
        loop {
            let parsed = parser.parse_next(rest, true);
            rest = &rest[parsed.consumed_bytes..];
            let Some(event) = parsed.event else {
                continue;
            };
            let event = event.map_err(|error| {
                let column = error.location().start.column + 1;
                Malformed::new(format!("column {column}: {}", error.message()))
            })?;
            let at = nodes.len();
            let mut opened = None;
            if matches!(event, JsonEvent::StartObject | JsonEvent::StartArray)
                && open.len() == MAX_DEPTH
            {
                let reason = format!("objects and arrays are more than {MAX_DEPTH} deep");
                return Err(Malformed::new(reason));
            }
            let node = match event {
                JsonEvent::Eof => break,
                JsonEvent::ObjectKey(key) => {
                    if let Some(Open::Object { keys, many, .. }) = open.last_mut() {
                        add_key(keys, many, key)?;
                    }
                    continue;
                }
                JsonEvent::EndObject | JsonEvent::EndArray => {
                    match open.pop() {
                        Some(Open::Object { at, keys, .. }) => {
                            nodes[at] = Node::Object(Arc::new(Keys::new(keys)));
                        }
                        Some(Open::Array { at, len }) => nodes[at] = Node::Array(len),
                        None => {}
                    }
                    continue;
                }
                JsonEvent::StartObject => {
                    let (keys, many) = (Vec::new(), HashSet::new());
                    opened = Some(Open::Object { at, keys, many });
                    Node::Null
                }
                JsonEvent::StartArray => {
                    opened = Some(Open::Array { at, len: 0 });
                    Node::Null
                }
                JsonEvent::Null => Node::Null,
                JsonEvent::Boolean(value) => Node::Bool(value),
                JsonEvent::String(text) => match time::parse(&text) {
                    Some(millis) => Node::Time(millis),
                    None => Node::Text(Text::new(text)),
                },
                JsonEvent::Number(digits) => number(&digits)?,
            };
            if at == MAX_NODES {
                return Err(Malformed::new(format!("more than {MAX_NODES} values")));
            }
            if let Some(Open::Array { len, .. }) = open.last_mut() {
                *len += 1;
            }
            open.extend(opened);
            nodes.push(node);
        }
        match nodes.first() {
            Some(Node::Object(_)) => Ok(Self {
                nodes: nodes.into(),
            }),
            _ => Err(Malformed::new("a JSON object is wanted: { … }")),
        }
    }

    /// A sum of all that is in it.
    pub(super) fn sum(&self) -> u64 {
        Self::sum_of(self.nodes.iter().map(Node::sum_part))
    }

    pub(super) fn sum_of(parts: impl Iterator<Item = (u32, u64)>) -> u64 {
        parts.fold(0, |sum: u64, (kind, value)| {
            let mixed = (sum ^ value)
                .wrapping_add(kind.into())
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        })
    }

    /// Bytes of memory that it takes, roughly.
    #[must_use]
    pub fn memory(&self) -> usize {
        let (nodes, text) = self.size();
        size_of::<Self>() + nodes * size_of::<Node>() + text
    }

    /// How many values it has, and how many bytes of text.
    pub(crate) fn size(&self) -> (usize, usize) {
        let text = self.nodes.iter().map(Node::text_len).sum();
        (self.nodes.len(), text)
    }

    /// Whether the object itself has a key.
    #[must_use]
    pub fn has_key(&self, key: &str) -> bool {
        match self.nodes.first() {
            Some(Node::Object(keys)) => keys.names.iter().any(|name| **name == *key),
            _ => false,
        }
    }

    /// The object as JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.write_json(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    /// Appends the object as JSON on one line.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let mut writer = WriterJsonSerializer::new(out);
        let mut nodes = self.nodes.iter();
        let written = write(&mut nodes, &mut writer);
        debug_assert!(written.is_ok(), "memory takes everything");
    }
}

/// Writes the next node and those inside it.
fn write(
    nodes: &mut Iter<'_, Node>,
    writer: &mut WriterJsonSerializer<&mut Vec<u8>>,
) -> io::Result<()> {
    let Some(node) = nodes.next() else {
        return Ok(());
    };
    let event = match node {
        Node::Null => JsonEvent::Null,
        Node::Bool(value) => JsonEvent::Boolean(*value),
        Node::Int(value) => JsonEvent::Number(value.to_string().into()),
        Node::Digits(digits) => JsonEvent::Number(Cow::Borrowed(&digits.text)),
        // The shortest that is read as the same double, with a point or an exponent.
        Node::Double(bits) => JsonEvent::Number(format!("{:?}", f64::from_bits(*bits)).into()),
        Node::Time(millis) => {
            let text = time::format(*millis);
            debug_assert!(text.is_some(), "it was read as one, or checked");
            JsonEvent::String(text.unwrap_or_default().into())
        }
        Node::Text(text) => JsonEvent::String(Cow::Borrowed(&text.text)),
        Node::Array(len) => {
            writer.serialize_event(JsonEvent::StartArray)?;
            for _ in 0..*len {
                write(nodes, writer)?;
            }
            JsonEvent::EndArray
        }
        Node::Object(keys) => {
            writer.serialize_event(JsonEvent::StartObject)?;
            for name in &keys.names {
                writer.serialize_event(JsonEvent::ObjectKey(Cow::Borrowed(name)))?;
                write(nodes, writer)?;
            }
            JsonEvent::EndObject
        }
    };
    writer.serialize_event(event)
}

/// FNV-1a.
fn hash_text(text: &str) -> u32 {
    let bytes = text.bytes();
    bytes.fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

fn add_key(
    keys: &mut Vec<Box<str>>,
    many: &mut HashSet<Box<str>>,
    key: Cow<'_, str>,
) -> Result<(), Malformed> {
    let key: Box<str> = key.into();
    if keys.len() == MANY_KEYS {
        many.extend(keys.iter().cloned());
    }
    let is_new = match keys.len() < MANY_KEYS {
        true => !keys.contains(&key),
        false => many.insert(key.clone()),
    };
    if !is_new {
        let reason = format!("the key {key:?} is there twice in one object");
        return Err(Malformed::new(reason));
    }
    keys.push(key);
    Ok(())
}

/// An integer is kept as such, everything else as a double.
fn number(text: &str) -> Result<Node, Malformed> {
    let is_integer = !text.contains(['.', 'e', 'E']);
    if is_integer && text != "-0" {
        return Ok(match text.parse() {
            Ok(value) => Node::Int(value),
            Err(_) => Node::Digits(Text::new(text)),
        });
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Node::Double(value.to_bits())),
        _ => Err(Malformed::new(format!(
            "the number {text} is too large for a double"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        Record::parse(text.as_bytes()).unwrap().to_json()
    }

    fn refusal(text: impl AsRef<[u8]>) -> String {
        Record::parse(text.as_ref()).unwrap_err().to_string()
    }

    #[test]
    fn a_reason_is_short_whatever_it_quotes() {
        let key = "ä".repeat(1_000);
        let error = Record::parse(format!("{{\"{key}\":1,\"{key}\":2}}").as_bytes()).unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with("the key \"ää") && said.chars().count() == MAX_REASON + 1,
            "{said}"
        );
    }

    #[test]
    fn what_is_read_is_written() {
        let text = r#"{"b":[1,-2.5,{"":null}],"a":"\u0001ö","c":true,"d":[],"e":{}}"#;
        assert_eq!(round_trip(text), text);
        let text =
            r#"{"n":[9007199254740993,-9223372036854775808,123456789012345678901234567890]}"#;
        assert_eq!(round_trip(text), text);
        assert_eq!(round_trip(r#"{ "x" : 1E2 }"#), r#"{"x":100.0}"#);
        assert_eq!(round_trip(r#"{"x":-0}"#), r#"{"x":-0.0}"#);
        assert_eq!(round_trip(r#"{"x":1e300}"#), r#"{"x":1e300}"#);
    }

    #[test]
    fn what_is_no_record_is_refused_with_the_reason() {
        assert!(refusal("[1]").contains("object is wanted"));
        assert!(refusal("").contains("column 1"));
        assert!(refusal(r#"{"a":NaN}"#).contains("column 6"));
        assert!(refusal(r#"{"a":1,"b":2,"a":3}"#).contains("\"a\" is there twice"));
        assert!(refusal(r#"{"a":1e999}"#).contains("too large"));
        assert!(refusal(b"{\"a\":\"\xff\"}").contains("column"));
        assert!(refusal(r#"{"a":"\ud800"}"#).contains("column"));
        let many: Vec<String> = (0..40).map(|key| format!("\"{}\":0", key % 39)).collect();
        assert!(refusal(format!("{{{}}}", many.join(","))).contains("\"0\" is there twice"));
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested =
            |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(Record::parse(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
        assert!(!refusal(nested(MAX_DEPTH)).is_empty());
        assert!(!refusal(nested(100_000)).is_empty());
        let wide = format!("{{\"a\":[{}1]}}", "1,".repeat(MAX_NODES));
        assert!(refusal(wide).contains("values"));
    }

    #[test]
    fn keys_are_known_by_their_text() {
        let keys = Keys::new(vec!["a\"b".into(), "".into()]);
        assert_eq!(Keys::parse(&keys.text).unwrap(), keys);
        assert_eq!(Keys::parse(&Text::new(r#"["a","a"]"#)), None);
        assert_eq!(Keys::parse(&Text::new(r#"["a"#)), None);
        assert_eq!(Keys::parse(&Text::new(r#"{"a":1}"#)), None);
    }
}
