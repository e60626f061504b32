//! The few fields of an X.509 certificate (RFC 5280 §4.1) that rustls does not hand out.
//!
//! `verify`, `peer` and `identity` call it: subject and dates by a walk over DER that trusts
//! nothing, the public key through webpki. It judges no signature; webpki does that.

use std::fmt::Write;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;

use crate::text;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const EXPLICIT_VERSION: u8 = 0xa0;
const EXPLICIT_EXTENSIONS: u8 = 0xa3;
const OCTET_STRING: u8 = 0x04;
/// dNSName of a GeneralName.
const DNS_NAME: u8 = 0x82;
/// id-ce-subjectAltName (RFC 5280 §4.2.1.6), 2.5.29.17.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 17];
const INTEGER: u8 = 0x02;

/// Characters kept of a subject, which is for people to read.
const SUBJECT_MAX: usize = 256;

/// What a certificate says of itself.
#[derive(Debug)]
pub(crate) struct Certificate<'a> {
    /// The subject's DER contents; see [`subject_text`].
    pub(crate) subject: &'a [u8],
    /// First second of validity.
    pub(crate) not_before: UnixTime,
    /// Last second of validity.
    pub(crate) not_after: UnixTime,
    /// What follows the public key: extensions, DER.
    rest: &'a [u8],
}

/// The SubjectPublicKeyInfo of a certificate, DER; `None` when webpki cannot read it.
///
/// Through webpki and not through our own walk: the key that is pinned must be the very key that
/// the handshake signature is checked with, even in a certificate made to be read in two ways.
pub(crate) fn spki(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    Some(parsed.subject_public_key_info().to_vec())
}

/// Reads `der`; `None` when it is not a certificate.
pub(crate) fn parse(der: &[u8]) -> Option<Certificate<'_>> {
    let mut outer = Der(der);
    let mut certificate = Der(outer.expect(SEQUENCE)?);
    outer.end()?;
    let mut fields = Der(certificate.expect(SEQUENCE)?);
    if fields.peek() == Some(EXPLICIT_VERSION) {
        fields.expect(EXPLICIT_VERSION)?;
    }
    fields.expect(INTEGER)?; // serialNumber
    fields.expect(SEQUENCE)?; // signature algorithm
    fields.expect(SEQUENCE)?; // issuer
    let mut validity = Der(fields.expect(SEQUENCE)?);
    let subject = fields.expect(SEQUENCE)?;
    fields.expect(SEQUENCE)?; // subjectPublicKeyInfo
    Some(Certificate {
        subject,
        not_before: validity.time()?,
        not_after: validity.time()?,
        rest: fields.0,
    })
}

/// The DNS names in a certificate's subjectAltName, as they are written there.
pub(crate) fn dns_names(certificate: &[u8]) -> Vec<&str> {
    parse(certificate)
        .and_then(|certificate| alternative_names(certificate.rest))
        .unwrap_or_default()
}

fn alternative_names(rest: &[u8]) -> Option<Vec<&str>> {
    let mut fields = Der(rest);
    while fields.peek()? != EXPLICIT_EXTENSIONS {
        fields.next()?;
    }
    let mut extensions = Der(Der(fields.expect(EXPLICIT_EXTENSIONS)?).expect(SEQUENCE)?);
    while let Some(extension) = extensions.expect(SEQUENCE) {
        let mut parts = Der(extension);
        if parts.expect(OBJECT_IDENTIFIER)? != SUBJECT_ALT_NAME {
            continue;
        }
        // It may be marked as critical.
        while parts.peek()? != OCTET_STRING {
            parts.next()?;
        }
        let mut names = Der(Der(parts.expect(OCTET_STRING)?).expect(SEQUENCE)?);
        let mut found = Vec::new();
        while let Some((kind, name)) = names.next() {
            if kind == DNS_NAME {
                found.extend(std::str::from_utf8(name));
            }
        }
        return Some(found);
    }
    None
}

/// First and last second of a certificate; `None` when it is not one.
pub fn validity(certificate: &CertificateDer<'_>) -> Option<(UnixTime, UnixTime)> {
    let certificate = parse(certificate)?;
    Some((certificate.not_before, certificate.not_after))
}

/// True for a SubjectPublicKeyInfo (RFC 5280 §4.1.2.7), which is what a raw public key is: an
/// algorithm and a bit string, where a certificate has three elements.
pub(crate) fn is_spki(der: &[u8]) -> bool {
    let mut outer = Der(der);
    let Some(contents) = outer.expect(SEQUENCE) else {
        return false;
    };
    let mut fields = Der(contents);
    fields.expect(SEQUENCE).is_some()
        && fields.expect(BIT_STRING).is_some()
        && fields.end().is_some()
        && outer.end().is_some()
}

/// The algorithm of a SubjectPublicKeyInfo and its parameters: the contents of its
/// AlgorithmIdentifier (RFC 5280 §4.1.1.2).
pub(crate) fn key_algorithm(spki: &[u8]) -> Option<&[u8]> {
    Der(Der(spki).expect(SEQUENCE)?).expect(SEQUENCE)
}

/// A subject as text, `CN=boat 7, O=Example`: most significant last in the DER order, control
/// characters replaced, at most 256 characters.
pub(crate) fn subject_text(subject: &[u8]) -> String {
    let mut out = String::new();
    let mut sets = Der(subject);
    while let Some(set) = sets.expect(SET) {
        let mut attributes = Der(set);
        while let Some(attribute) = attributes.expect(SEQUENCE) {
            let mut parts = Der(attribute);
            let Some(kind) = parts.expect(OBJECT_IDENTIFIER) else {
                continue;
            };
            let Some((tag, value)) = parts.next() else {
                continue;
            };
            if !out.is_empty() {
                out.push_str(", ");
            }
            write_attribute(&mut out, kind, tag, value);
        }
    }
    match out.char_indices().nth(SUBJECT_MAX) {
        Some((end, _)) => {
            out.truncate(end);
            out.push('…');
            out
        }
        None => out,
    }
}

fn write_attribute(out: &mut String, kind: &[u8], tag: u8, value: &[u8]) {
    // id-at (RFC 5280 appendix A.1) is 2.5.4.
    match kind {
        [0x55, 0x04, 3] => out.push_str("CN="),
        [0x55, 0x04, 6] => out.push_str("C="),
        [0x55, 0x04, 7] => out.push_str("L="),
        [0x55, 0x04, 8] => out.push_str("ST="),
        [0x55, 0x04, 10] => out.push_str("O="),
        [0x55, 0x04, 11] => out.push_str("OU="),
        other => {
            let _infallible = write!(out, "oid:{}=", text::hex(other));
        }
    }
    match tag {
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => {
            for character in String::from_utf8_lossy(value).chars() {
                out.push(if character.is_control() {
                    char::REPLACEMENT_CHARACTER
                } else {
                    character
                });
            }
        }
        _ => {
            out.push('#');
            out.push_str(&text::hex(value));
        }
    }
}

/// A walk over DER elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: tag and contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        // Tags of more than one byte occur nowhere on our way.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (&first, mut rest) = rest.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let count = usize::from(first & 0x7f);
            if !(1..=4).contains(&count) {
                return None;
            }
            let (bytes, tail) = rest.split_at_checked(count)?;
            rest = tail;
            bytes
                .iter()
                .fold(0usize, |sum, &byte| sum << 8 | usize::from(byte))
        };
        let (contents, tail) = rest.split_at_checked(length)?;
        self.0 = tail;
        Some((tag, contents))
    }

    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The contents of the next element, which must be a `tag`.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.peek()? != tag {
            return None;
        }
        self.next().map(|(_, contents)| contents)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    /// A Time (RFC 5280 §4.1.2.5): UTCTime until 2049, GeneralizedTime beyond.
    fn time(&mut self) -> Option<UnixTime> {
        let (tag, digits) = self.next()?;
        let (year, rest) = match tag {
            UTC_TIME if digits.len() == 13 => {
                let year = number(&digits[..2])?;
                (
                    if year < 50 { 2000 + year } else { 1900 + year },
                    &digits[2..],
                )
            }
            GENERALIZED_TIME if digits.len() == 15 => (number(&digits[..4])?, &digits[4..]),
            _ => return None,
        };
        if rest[10] != b'Z' {
            return None;
        }
        let part = |index: usize| number(&rest[index * 2..index * 2 + 2]);
        let (month, day) = (part(0)?, part(1)?);
        let (hour, minute, second) = (part(2)?, part(3)?, part(4)?);
        let valid = (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !valid {
            return None;
        }
        // Dates before 1970 become 1970: nobody's clock is earlier.
        let days = days_since_1970(year, month, day);
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
        let seconds = u64::try_from(seconds).unwrap_or(0);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, &digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + i64::from(digit - b'0'))
    })
}

/// Days from 1970-01-01 in the Gregorian calendar, counting years from March so that the leap day
/// comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests;
