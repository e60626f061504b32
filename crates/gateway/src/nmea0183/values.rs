//! [`Values`]: the paths and values of a delta, as JSON. And the units.

use std::fmt;
use std::fmt::Write as _;

/// Degrees in a radian, as Signal K's parser has it: values then have the same bits.
const DEGREES: f64 = 57.295_779_5;
/// Knots in a metre a second, likewise.
const KNOTS: f64 = 1.943_844;
const KM_IN_NM: f64 = 0.539_956_803;

pub(super) fn radians(degrees: f64) -> f64 {
    degrees / DEGREES
}

pub(super) fn knots(speed: f64) -> f64 {
    speed / KNOTS
}

pub(super) fn km_per_hour(speed: f64) -> f64 {
    speed / 3.6
}

pub(super) fn celsius(temperature: f64) -> f64 {
    temperature + 273.15
}

pub(super) fn nautical_miles(distance: f64) -> f64 {
    distance * 1000.0 / KM_IN_NM
}

/// What a sentence says.
#[derive(Default)]
pub(super) struct Values {
    json: String,
    /// When that was, in milliseconds since 1970; `None` if it does not tell.
    pub(super) timestamp: Option<i64>,
    /// It told the date as well.
    pub(super) is_dated: bool,
}

impl Values {
    pub(super) fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    /// A value as JSON.
    pub(super) fn json(&mut self, path: &str, json: &str) {
        let comma = if self.json.is_empty() { "" } else { "," };
        // A string takes everything.
        let _ = write!(self.json, r#"{comma}{{"path":"{path}","value":{json}}}"#);
    }

    /// A number; `null` if there is none.
    pub(super) fn number(&mut self, path: &str, value: Option<f64>) {
        self.json(path, &number(value));
    }

    /// A number, if there is one.
    pub(super) fn number_if(&mut self, path: &str, value: Option<f64>) {
        if value.is_some() {
            self.number(path, value);
        }
    }

    pub(super) fn text(&mut self, path: &str, value: &str) {
        self.json(path, &quoted(value));
    }

    /// A position; `null` if a half of it is missing.
    pub(super) fn position(&mut self, path: &str, latitude: Option<f64>, longitude: Option<f64>) {
        let json = match (latitude, longitude) {
            (Some(latitude), Some(longitude)) => format!(
                r#"{{"latitude":{},"longitude":{}}}"#,
                number(Some(latitude)),
                number(Some(longitude))
            ),
            _ => "null".to_owned(),
        };
        self.json(path, &json);
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json)
    }
}

/// As JavaScript spells it: a whole number has no point, and 0 has no sign.
pub(super) fn number(value: Option<f64>) -> String {
    match value {
        Some(0.0) => "0".to_owned(),
        Some(value) if value.is_finite() => value.to_string(),
        _ => "null".to_owned(),
    }
}

/// A JSON string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
