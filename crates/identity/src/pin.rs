//! Pins: SHA-256 hashes by which a certificate or a public key is recognised.
//!
//! Text form: `sha256/` and then 64 hexadecimal digits (colons between bytes allowed, as openssl
//! prints them) or base64 (either alphabet, padding optional). Printed as lower-case hexadecimal.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;

use crate::text;

const PREFIX: &str = "sha256/";

macro_rules! pin {
    ($(#[$documentation:meta])* $name:ident, $input:literal) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            #[doc = concat!("The pin of ", $input, ".")]
            pub fn of(der: &[u8]) -> $name {
                $name(sha256(der))
            }

            /// A pin from a hash that was computed elsewhere.
            pub const fn from_bytes(hash: [u8; 32]) -> $name {
                $name(hash)
            }

            /// The SHA-256 hash.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// The text form with base64 instead of hexadecimal: `sha256/…=`.
            pub fn to_base64(&self) -> String {
                format!("{PREFIX}{}", text::base64(&self.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{PREFIX}{}", text::hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, formatter)
            }
        }

        impl FromStr for $name {
            type Err = PinError;

            fn from_str(text: &str) -> Result<$name, PinError> {
                parse(text).map($name)
            }
        }
    };
}

pin! {
    /// SHA-256 of a whole certificate in DER: what browsers take as `serverCertificateHashes`.
    /// Changes with every renewal.
    CertificatePin, "a certificate in DER"
}

pin! {
    /// SHA-256 of a SubjectPublicKeyInfo in DER: of a raw public key (RFC 7250), or of the key in
    /// a certificate. Stays when a certificate is renewed with the same key.
    KeyPin, "a SubjectPublicKeyInfo in DER"
}

/// A pin for a peer that presents an X.509 certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pin {
    /// The whole certificate.
    Certificate(CertificatePin),
    /// Its public key.
    Key(KeyPin),
}

impl Pin {
    /// Both readings of one text, for a caller who need not say which hash it is: a certificate
    /// and a key never share one.
    pub fn either(text: &str) -> Result<[Pin; 2], PinError> {
        let hash = parse(text)?;
        Ok([
            Pin::Certificate(CertificatePin(hash)),
            Pin::Key(KeyPin(hash)),
        ])
    }

    /// The SHA-256 hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        match self {
            Pin::Certificate(pin) => pin.as_bytes(),
            Pin::Key(pin) => pin.as_bytes(),
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pin::Certificate(pin) => pin.fmt(formatter),
            Pin::Key(pin) => pin.fmt(formatter),
        }
    }
}

impl From<CertificatePin> for Pin {
    fn from(pin: CertificatePin) -> Pin {
        Pin::Certificate(pin)
    }
}

impl From<KeyPin> for Pin {
    fn from(pin: KeyPin) -> Pin {
        Pin::Key(pin)
    }
}

/// Why a text is not a pin. The messages are constants: the text itself is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The text does not start with `sha256/`.
    #[error("a pin starts with `sha256/`, followed by 64 hexadecimal digits or base64")]
    MissingPrefix,
    /// What follows is neither 32 bytes of hexadecimal nor of base64.
    #[error(
        "after `sha256/` a pin has 64 hexadecimal digits (colons allowed) or 43 base64 characters \
         (44 with `=`); this one has another length"
    )]
    WrongLength,
    /// 64 characters, but not all of them hexadecimal digits.
    #[error("the 64 characters after `sha256/` must all be hexadecimal digits")]
    NotHex,
    /// 43 or 44 characters, but not the base64 of 32 bytes.
    #[error("the text after `sha256/` has the length of base64, but is not the base64 of 32 bytes")]
    NotBase64,
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

fn parse(text: &str) -> Result<[u8; 32], PinError> {
    let body = text
        .trim()
        .strip_prefix(PREFIX)
        .ok_or(PinError::MissingPrefix)?;
    match body.len() {
        64 => text::unhex_32(body.as_bytes()).ok_or(PinError::NotHex),
        95 => without_colons(body).ok_or(PinError::NotHex),
        43 | 44 => text::unbase64_32(body.as_bytes()).ok_or(PinError::NotBase64),
        _ => Err(PinError::WrongLength),
    }
}

/// `AB:CD:…`: a colon after every byte but the last.
fn without_colons(body: &str) -> Option<[u8; 32]> {
    let mut digits = Vec::with_capacity(64);
    for (index, &character) in body.as_bytes().iter().enumerate() {
        match (index % 3, character) {
            (2, b':') => {}
            (2, _) => return None,
            _ => digits.push(character),
        }
    }
    text::unhex_32(&digits)
}

#[cfg(test)]
mod tests;
