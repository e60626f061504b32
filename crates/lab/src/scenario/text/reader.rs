//! Tables of a TOML text, taken apart key by key: whoever wants a key takes it, and a key that
//! nobody took is an error. Every value knows where it stands and how it was written.

use std::fmt::{self, Display};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use towline_sim::LinkConfig;

/// What is wrong with a scenario's text. The mistake of whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line of the text; the first is 1.
    pub line: usize,
    /// Character of the line; the first is 1.
    pub column: usize,
    /// The key at fault with the tables around it, such as `path.rate`; empty if the text is no
    /// TOML.
    pub key: String,
    /// The value as it was written, shortened; empty if there is none.
    pub value: String,
    /// What is wrong with it and what to write instead.
    pub problem: String,
}

impl Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        match (self.key.is_empty(), self.value.is_empty()) {
            (true, _) => {}
            (false, true) => write!(f, "`{}`: ", self.key)?,
            (false, false) => write!(f, "`{} = {}`: ", self.key, self.value)?,
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for TextError {}

/// Characters of a value that an error quotes.
const QUOTED: usize = 48;

/// A place in the text, and what to call it.
#[derive(Clone, Debug)]
pub(super) struct Place<'t> {
    text: &'t str,
    /// The key with the tables around it.
    pub(super) key: String,
    key_span: Range<usize>,
    value_span: Option<Range<usize>>,
}

impl Place<'_> {
    /// An error here.
    pub(super) fn error(&self, problem: impl Into<String>) -> TextError {
        let (line, column) = position(self.text, self.key_span.start);
        let value = self
            .value_span
            .clone()
            .and_then(|span| self.text.get(span))
            .map(shortened)
            .unwrap_or_default();
        TextError {
            line,
            column,
            key: self.key.clone(),
            value,
            problem: problem.into(),
        }
    }
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

fn shortened(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default();
    match line.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.len() < value.len() => format!("{line}…"),
        None => line.to_owned(),
    }
}

/// One table, its keys in the order of the text.
#[derive(Debug)]
pub(super) struct Table<'t> {
    /// The table itself, for what is wrong with it as a whole.
    pub(super) place: Place<'t>,
    entries: Vec<Value<'t>>,
    /// Keys that were asked for: those there are.
    asked: Vec<&'static str>,
}

/// One value.
#[derive(Clone, Debug)]
pub(super) struct Value<'t> {
    /// Where it stands.
    pub(super) place: Place<'t>,
    /// Its own key.
    pub(super) name: &'t str,
    value: &'t DeValue<'t>,
}

/// Parses a whole text: `document` holds what the returned table refers to.
pub(super) fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, TextError> {
    DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let (line, column) = position(text, start);
        TextError {
            line,
            column,
            key: String::new(),
            value: String::new(),
            problem: format!("this is not TOML: {}", error.message().replace('\n', "; ")),
        }
    })
}

impl<'t> Table<'t> {
    /// The outermost table.
    pub(super) fn root(text: &'t str, document: &'t Spanned<DeTable<'t>>) -> Self {
        let place = Place {
            text,
            key: String::new(),
            key_span: 0..0,
            value_span: None,
        };
        Self::new(place, document.get_ref())
    }

    fn new(place: Place<'t>, table: &'t DeTable<'t>) -> Self {
        let mut entries: Vec<Value<'t>> = table
            .iter()
            .map(|(key, value)| {
                let name = key.get_ref().as_ref();
                let path = match place.key.is_empty() {
                    true => name.to_owned(),
                    false => format!("{}.{name}", place.key),
                };
                let shows = !matches!(value.get_ref(), DeValue::Table(_));
                Value {
                    place: Place {
                        text: place.text,
                        key: path,
                        key_span: key.span(),
                        value_span: shows.then(|| value.span()),
                    },
                    name,
                    value: value.get_ref(),
                }
            })
            .collect();
        entries.sort_by_key(|entry| entry.place.key_span.start);
        Self {
            place,
            entries,
            asked: Vec::new(),
        }
    }

    /// Takes the value of a key, if it is there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value<'t>> {
        self.asked.push(key);
        let place = self.entries.iter().position(|entry| entry.name == key)?;
        Some(self.entries.remove(place))
    }

    /// Takes what `read` makes of the value of a key, or `default`.
    pub(super) fn take_or<T>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Value<'t>) -> Result<T, TextError>,
    ) -> Result<T, TextError> {
        self.take(key).map_or(Ok(default), |value| read(&value))
    }

    /// Takes all keys that are left.
    pub(super) fn take_rest(&mut self) -> Vec<Value<'t>> {
        std::mem::take(&mut self.entries)
    }

    /// Fails if there is any other key.
    pub(super) fn expect_only(&self, known: &[&str]) -> Result<(), TextError> {
        let unknown = self.entries.iter().find(|e| !known.contains(&e.name));
        unknown.map_or(Ok(()), |unknown| Err(unknown.unknown(known)))
    }

    /// Fails if a key was not taken; `foreign` says of which traffic others are.
    pub(super) fn finish(self, foreign: &[(&str, &str)]) -> Result<(), TextError> {
        let Some(unknown) = self.entries.first() else {
            return Ok(());
        };
        if let Some((key, of)) = foreign.iter().find(|(key, _)| *key == unknown.name) {
            let problem = format!("`{key}` goes with {of}; add that or leave it out");
            return Err(unknown.place.error(problem));
        }
        Err(unknown.unknown(&self.asked))
    }
}

impl<'t> Value<'t> {
    fn unknown(&self, known: &[&str]) -> TextError {
        let list = known.join(", ");
        self.place.error(match nearest(self.name, known) {
            Some(near) => format!("there is no such key; did you mean `{near}`? Known are {list}"),
            None => format!("there is no such key; known are {list}"),
        })
    }

    fn wrong<T>(&self, problem: impl Into<String>) -> Result<T, TextError> {
        Err(self.place.error(problem))
    }

    /// A table.
    pub(super) fn table(&self) -> Result<Table<'t>, TextError> {
        match self.value {
            DeValue::Table(table) => Ok(Table::new(self.place.clone(), table)),
            _ => self.wrong(format!("is not a table; write [{}]", self.place.key)),
        }
    }

    /// A list of tables.
    pub(super) fn tables(&self) -> Result<Vec<Table<'t>>, TextError> {
        let key = self.name;
        let hint = format!("is not a list of tables; write [[{key}]] before each");
        let DeValue::Array(array) = self.value else {
            return self.wrong(hint);
        };
        array
            .iter()
            .enumerate()
            .map(|(index, item)| match item.get_ref() {
                DeValue::Table(table) => {
                    let place = Place {
                        text: self.place.text,
                        key: format!("{key} {}", index + 1),
                        key_span: item.span(),
                        value_span: None,
                    };
                    Ok(Table::new(place, table))
                }
                _ => self.wrong(hint.as_str()),
            })
            .collect()
    }

    /// A list of anything.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        let DeValue::Array(array) = self.value else {
            return None;
        };
        let item = |item: &'t Spanned<DeValue<'t>>| Self {
            place: Place {
                value_span: Some(item.span()),
                ..self.place.clone()
            },
            name: self.name,
            value: item.get_ref(),
        };
        Some(array.iter().map(item).collect())
    }

    /// A text in quotes.
    pub(super) fn string(&self) -> Result<&'t str, TextError> {
        match self.value {
            DeValue::String(text) => Ok(text.as_ref()),
            _ => self.wrong("must stand in quotes"),
        }
    }

    /// A name for tables and plots.
    pub(super) fn name(&self) -> Result<String, TextError> {
        let text = self.string()?.trim();
        match text.chars().count() {
            1..=40 if !text.chars().any(char::is_control) => Ok(text.to_owned()),
            _ => self.wrong("a name has 1 to 40 characters on one line"),
        }
    }

    /// Yes or no.
    pub(super) fn boolean(&self) -> Result<bool, TextError> {
        match self.value {
            DeValue::Boolean(value) => Ok(*value),
            _ => self.wrong("is either true or false, without quotes"),
        }
    }

    /// A whole number within `range`.
    pub(super) fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, TextError> {
        let value = match self.value {
            DeValue::Integer(value) => u64::from_str_radix(value.as_str(), value.radix()).ok(),
            _ => None,
        };
        match value.filter(|value| range.contains(value)) {
            Some(value) => Ok(value),
            None => self.wrong(format!(
                "must be a whole number from {} to {}, without quotes",
                range.start(),
                range.end()
            )),
        }
    }

    /// The value as a setting of a link is written: numbers without quotes are texts as well.
    pub(super) fn setting(&self) -> Result<String, TextError> {
        let text = match self.value {
            DeValue::String(text) => text.trim().to_owned(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => number.to_string(),
                _ => return self.wrong("is no number to work with"),
            },
            DeValue::Boolean(true) => "on".to_owned(),
            DeValue::Boolean(false) => "off".to_owned(),
            _ => return self.wrong("must be a text in quotes or a plain number"),
        };
        match text.is_empty() || text.contains(',') {
            true => self.wrong("a setting has one value, and no comma in it"),
            false => Ok(text),
        }
    }

    /// A span of time in `range`, in the units of the links.
    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Result<Duration, TextError> {
        let value = self.as_link("delay")?.delay;
        match range.contains(&value) {
            true => Ok(value),
            false => self.wrong(format!(
                "must be from {:?} to {:?}",
                range.start(),
                range.end()
            )),
        }
    }

    /// Bytes in `range`, in the units of the links.
    pub(super) fn bytes(&self, range: RangeInclusive<u64>) -> Result<u64, TextError> {
        let value = self.as_link("overhead")?.overhead;
        self.bounded(u64::from(value), range, "bytes")
    }

    /// Bytes that may be more than 4 GiB.
    pub(super) fn large_bytes(&self, range: RangeInclusive<u64>) -> Result<u64, TextError> {
        let value = self.as_link("queue")?.queue.unwrap_or_default();
        self.bounded(value, range, "bytes")
    }

    /// Bits a second in `range`, in the units of the links.
    pub(super) fn rate(&self, range: RangeInclusive<u64>) -> Result<u64, TextError> {
        let value = self.as_link("rate")?.rate.unwrap_or_default();
        self.bounded(value, range, "bits a second")
    }

    fn bounded(
        &self,
        value: u64,
        range: RangeInclusive<u64>,
        unit: &str,
    ) -> Result<u64, TextError> {
        match range.contains(&value) {
            true => Ok(value),
            false => self.wrong(format!(
                "must be from {} to {} {unit}",
                range.start(),
                range.end()
            )),
        }
    }

    /// Has the links' own parser read this value as if it were `setting`: one set of units.
    fn as_link(&self, setting: &str) -> Result<LinkConfig, TextError> {
        let text = self.setting()?;
        format!("{setting}={text}")
            .parse::<LinkConfig>()
            .map_err(|error| self.place.error(error.problem()))
    }
}

/// The one of `known` that was probably meant.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|name| (distance(word, name), *name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min()
        .map(|(_, name)| name)
}

/// Edits between two words (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    // No key is longer, and a text may hold a very long one.
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
