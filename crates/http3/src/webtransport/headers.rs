//! The fields by which two ends agree on an application protocol (draft-ietf-webtrans-http3-16
//! §3.3): `WT-Available-Protocols`, a list of strings, and `WT-Protocol`, one of them (RFC 9651).

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(test)]
mod tests;

/// Cap: application protocols in a list; a longer list counts as none. RFC 9651 §3.1 asks for as many.
pub(crate) const MAX_PROTOCOLS: usize = 1024;

const AVAILABLE: HeaderName = HeaderName::from_static("wt-available-protocols");
const CHOSEN: HeaderName = HeaderName::from_static("wt-protocol");

/// The protocols a client offers; none if the field is not a list of strings.
pub(crate) fn available(headers: &HeaderMap) -> Vec<String> {
    // Several lines are one list (RFC 9651 §4.2).
    let lines: Vec<&[u8]> = headers
        .get_all(AVAILABLE)
        .iter()
        .map(HeaderValue::as_bytes)
        .filter(|line| !line.trim_ascii().is_empty())
        .collect();
    let joined = lines.join(&b',');
    Cursor(&joined).list().unwrap_or_default()
}

/// The protocol a server chose; `None` also if the field is not a string.
pub(crate) fn chosen(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(CHOSEN).iter();
    let value = values.next()?;
    match values.next() {
        None => Cursor(value.as_bytes()).list()?.pop_single(),
        Some(_) => None,
    }
}

/// Says which protocols a client offers.
///
/// # Errors
/// A name has characters that no string of a field can hold.
pub(crate) fn set_available(
    headers: &mut HeaderMap,
    protocols: &[&str],
) -> Result<(), &'static str> {
    if protocols.is_empty() {
        return Ok(());
    }
    let quoted: Option<Vec<String>> = protocols.iter().map(|name| quote(name)).collect();
    set(headers, AVAILABLE, quoted.map(|names| names.join(", ")))
}

/// Says which protocol a server chose.
///
/// # Errors
/// The name has characters that no string of a field can hold.
pub(crate) fn set_chosen(headers: &mut HeaderMap, protocol: &str) -> Result<(), &'static str> {
    set(headers, CHOSEN, quote(protocol))
}

fn set(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: Option<String>,
) -> Result<(), &'static str> {
    let value = value.and_then(|value| HeaderValue::from_str(&value).ok());
    let value = value.ok_or("a protocol's name has characters other than visible ASCII")?;
    headers.insert(name, value);
    Ok(())
}

/// A string of a field (RFC 9651 §4.1.6).
fn quote(name: &str) -> Option<String> {
    if !name.bytes().all(is_visible) {
        return None;
    }
    let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
    Some(format!("\"{escaped}\""))
}

const fn is_visible(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

trait PopSingle {
    /// The item, if there is just one.
    fn pop_single(self) -> Option<String>;
}

impl PopSingle for Vec<String> {
    fn pop_single(mut self) -> Option<String> {
        match self.len() {
            1 => self.pop(),
            _ => None,
        }
    }
}

/// What is left of a field's value. `None` stands for "not of the right form".
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// A list of strings, each perhaps with parameters, which mean nothing here (RFC 9651 §4.2.1).
    fn list(mut self) -> Option<Vec<String>> {
        let mut strings = Vec::new();
        self.0 = self.0.trim_ascii();
        while !self.0.is_empty() {
            if strings.len() == MAX_PROTOCOLS {
                return None;
            }
            strings.push(self.string()?);
            self.parameters()?;
            self.space();
            if self.0.is_empty() {
                break;
            }
            self.take(b',')?;
            self.space();
            if self.0.is_empty() {
                return None;
            }
        }
        Some(strings)
    }

    fn string(&mut self) -> Option<String> {
        self.take(b'"')?;
        let mut string = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(string),
                b'\\' => match self.next()? {
                    byte @ (b'"' | b'\\') => string.push(char::from(byte)),
                    _ => return None,
                },
                byte if is_visible(byte) => string.push(char::from(byte)),
                _ => return None,
            }
        }
    }

    /// Passes over `;key` and `;key=value`.
    fn parameters(&mut self) -> Option<()> {
        while self.0.first() == Some(&b';') {
            self.take(b';')?;
            self.space();
            self.until(|byte| matches!(byte, b'=' | b';' | b',' | b' ' | b'\t'));
            if self.0.first() != Some(&b'=') {
                continue;
            }
            self.take(b'=')?;
            if self.0.first() == Some(&b'%') {
                self.take(b'%')?;
            }
            match self.0.first() {
                Some(b'"') => drop(self.string()?),
                _ => self.until(|byte| matches!(byte, b';' | b',' | b' ' | b'\t')),
            }
        }
        Some(())
    }

    fn space(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn until(&mut self, end: impl Fn(u8) -> bool) {
        let len = self.0.iter().position(|byte| end(*byte));
        self.0 = &self.0[len.unwrap_or(self.0.len())..];
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}
