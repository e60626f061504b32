//! [`Sentence`]: a line in its parts, its checksum compared.

use towline_link::codec::Malformed;

/// Cap: bytes of one sentence; the standard has 82, and tag blocks go before it.
pub(crate) const MAX_SENTENCE: usize = 1024;

/// Why a sentence gave no delta.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is damaged.
    #[error("{0}")]
    Malformed(String),
    /// It is right, and of a kind that is not known here; AIS is one.
    #[error("sentences {0} are not known here")]
    Unsupported(String),
}

impl From<Malformed> for Refused {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// A sentence whose checksum is right.
pub(super) struct Sentence<'a> {
    /// Who says it: two letters or digits.
    pub(super) talker: &'a str,
    /// What it is: three letters or digits.
    pub(super) kind: &'a str,
    fields: Vec<&'a str>,
}

impl<'a> Sentence<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, Refused> {
        let bad = |what: &str| Refused::Malformed(what.to_owned());
        if line.len() > MAX_SENTENCE {
            return Err(bad("a sentence without end"));
        }
        let line = std::str::from_utf8(line).map_err(|_| bad("a sentence that is not ASCII"))?;
        let line = line.trim();
        if line.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
            return Err(bad("a sentence that is not ASCII"));
        }
        // A tag block tells of the network that carried the sentence.
        let body = match line.strip_prefix('\\') {
            Some(rest) => match rest.split_once('\\') {
                Some((_, body)) => body,
                None => return Err(bad("a tag block without end")),
            },
            None => line,
        };
        let (data, is_capsule) = match (body.strip_prefix('$'), body.strip_prefix('!')) {
            (Some(data), _) => (data, false),
            (_, Some(data)) => (data, true),
            _ => return Err(bad("no sentence: it does not begin with $ or !")),
        };
        let (data, sum) = data
            .split_once('*')
            .ok_or_else(|| bad("a sentence without a checksum"))?;
        // A sign would be a number to Rust.
        let is_sum = sum.len() == 2 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
        let told = is_sum.then(|| u8::from_str_radix(sum, 16).ok()).flatten();
        let told = told.ok_or_else(|| bad("a checksum that is no two hexadecimal digits"))?;
        let found = data.bytes().fold(0, |sum, byte| sum ^ byte);
        if told != found {
            let what = format!("the checksum is {found:02X}, and {told:02X} is told");
            return Err(Refused::Malformed(what));
        }
        let mut fields: Vec<&str> = data.split(',').map(str::trim).collect();
        let address = fields.remove(0);
        let is_known = address.len() == 5
            && address.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && !address.starts_with('P');
        if is_capsule || !is_known {
            return Err(Refused::Unsupported(address.to_owned()));
        }
        let (talker, kind) = address.split_at(2);
        Ok(Self {
            talker,
            kind,
            fields,
        })
    }

    /// A field; empty where the sentence is shorter.
    pub(super) fn text(&self, at: usize) -> &'a str {
        self.fields.get(at).copied().unwrap_or_default()
    }

    /// A field's number; `None` where it has none.
    pub(super) fn number(&self, at: usize) -> Option<f64> {
        number(self.text(at))
    }

    /// Whether a field is this letter, in either case.
    pub(super) fn is(&self, at: usize, letter: &str) -> bool {
        self.text(at).eq_ignore_ascii_case(letter)
    }

    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Degrees and minutes of two fields, as degrees: `6000.426,N`. South and west are negative.
    pub(super) fn coordinate(&self, at: usize, most: f64) -> Option<f64> {
        let text = self.text(at);
        let point = text.find('.').unwrap_or(text.len());
        let minutes_at = point.checked_sub(2)?;
        let degrees = match text.get(..minutes_at)? {
            "" => 0.0,
            digits => number(digits)?,
        };
        let value = degrees + number(text.get(minutes_at..)?)? / 60.0;
        let value = match self.text(at + 1) {
            "N" | "E" => value,
            "S" | "W" => -value,
            _ => return None,
        };
        (value.abs() <= most).then_some(value)
    }
}

/// Only plain decimals: `inf`, `nan` and exponents are numbers to Rust and to nobody's instruments.
pub(super) fn number(text: &str) -> Option<f64> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'));
    let value: f64 = is_plain.then(|| text.parse().ok())??;
    value.is_finite().then_some(value)
}
