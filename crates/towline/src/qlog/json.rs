//! JSON written straight into a buffer: no tree is built, and nothing is allocated but the buffer.

use std::io::Write as _;
use std::time::Duration;

/// A JSON object under construction.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

/// A JSON array under construction.
pub(super) struct Array<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

/// Appends an object.
pub(super) fn object(out: &mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
    out.push(b'{');
    fill(&mut Object {
        out,
        is_empty: true,
    });
    out.push(b'}');
}

impl Object<'_> {
    fn key(&mut self, name: &str) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
        text(self.out, name);
        self.out.push(b':');
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.key(name);
        number(self.out, value);
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.key(name);
        self.out
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.key(name);
        text(self.out, value);
    }

    /// Which end did it, in qlog's words.
    pub(super) fn initiator(&mut self, by_peer: bool) {
        self.text("initiator", if by_peer { "remote" } else { "local" });
    }

    pub(super) fn hex(&mut self, name: &str, bytes: &[u8]) {
        self.key(name);
        hex(self.out, bytes);
    }

    /// Milliseconds, exact to the nanosecond.
    pub(super) fn millis(&mut self, name: &str, value: Duration) {
        self.key(name);
        let nanos = value.as_nanos();
        let _ = write!(self.out, "{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
    }

    pub(super) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.key(name);
        object(self.out, fill);
    }

    pub(super) fn array(&mut self, name: &str, fill: impl FnOnce(&mut Array<'_>)) {
        self.key(name);
        array(self.out, fill);
    }
}

fn array(out: &mut Vec<u8>, fill: impl FnOnce(&mut Array<'_>)) {
    out.push(b'[');
    fill(&mut Array {
        out,
        is_empty: true,
    });
    out.push(b']');
}

impl Array<'_> {
    /// Bytes in the buffer, what was there before the array included.
    pub(super) fn buffered(&self) -> usize {
        self.out.len()
    }

    fn next(&mut self) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
    }

    pub(super) fn number(&mut self, value: u64) {
        self.next();
        number(self.out, value);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.next();
        text(self.out, value);
    }

    pub(super) fn hex(&mut self, bytes: &[u8]) {
        self.next();
        hex(self.out, bytes);
    }

    pub(super) fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        self.next();
        object(self.out, fill);
    }

    pub(super) fn array(&mut self, fill: impl FnOnce(&mut Array<'_>)) {
        self.next();
        array(self.out, fill);
    }
}

fn number(out: &mut Vec<u8>, value: u64) {
    let _ = write!(out, "{value}");
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out.push(b'"');
}

/// Text that a peer may have chosen: no control character passes, so that it cannot begin a record.
fn text(out: &mut Vec<u8>, value: &str) {
    out.push(b'"');
    for c in value.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => {
                let mut utf8 = [0; 4];
                out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_nest_and_separate_their_members() {
        let mut out = Vec::new();
        object(&mut out, |o| {
            o.number("a", 7);
            o.object("b", |b| b.flag("c", true));
            o.array("d", |d| {
                d.number(1);
                d.array(|inner| inner.hex(&[0xab, 1]));
                d.text("x");
                d.object(|_| {});
            });
            o.millis("t", Duration::from_nanos(12_000_345));
        });
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            r#"{"a":7,"b":{"c":true},"d":[1,["ab01"],"x",{}],"t":12.000345}"#
        );
    }

    #[test]
    fn a_peers_words_cannot_begin_a_record_or_end_a_string() {
        let mut out = Vec::new();
        object(&mut out, |o| o.text("reason", "\u{1e}{\"x\"}\n\\é"));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"reason\":\"\\u001e{\\\"x\\\"}\\u000a\\\\é\"}"
        );
    }
}
