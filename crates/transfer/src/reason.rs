//! Why something did not go through: the reasons that both sides know, and how they travel.
//!
//! A [`Refusal`] is a [`Reason`] with an explanation for people. The explanation is the other side's
//! words: it is bounded, and made printable when it is read.

use std::fmt;

use towline_wire::Reader;

use crate::caps::MAX_TEXT_BYTES;
use crate::encoding::{Malformed, put_varint};
use crate::path::printable;

/// Why a file or a session did not go through; the number is what travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The file changed on the sender while it was read.
    Changed,
    /// The sender could not read it.
    Unreadable,
    /// The receiver has something else under that name and may not overwrite it.
    Exists,
    /// The path is not acceptable.
    BadPath,
    /// The BLAKE3 hash of what was written differs from the sender's.
    Mismatch,
    /// The receiver's disk is full, or a size limit it set was reached.
    DiskFull,
    /// Another input or output error.
    Io,
    /// Another transfer is writing the same file.
    Busy,
    /// The other side went past a limit of the protocol.
    TooMuch,
    /// There is nothing under that path.
    NotFound,
    /// The server does not offer this service.
    NotAllowed,
    /// Its user stopped it.
    Interrupted,
    /// The other side broke the transfer protocol.
    Protocol,
    /// A socket, a pipe or a device.
    Special,
    /// A symbolic link that leads out of the destination.
    Outside,
    /// A number this version does not know.
    Other(u64),
}

impl Reason {
    /// Whether this is something that can't be sent as it is, and no failure of the transfer.
    pub(crate) fn is_left_out(self) -> bool {
        matches!(self, Self::Special | Self::Outside)
    }

    const KNOWN: [(Reason, u64); 15] = [
        (Self::Changed, 1),
        (Self::Unreadable, 2),
        (Self::Exists, 3),
        (Self::BadPath, 4),
        (Self::Mismatch, 5),
        (Self::DiskFull, 6),
        (Self::Io, 7),
        (Self::Busy, 8),
        (Self::TooMuch, 9),
        (Self::NotFound, 10),
        (Self::NotAllowed, 11),
        (Self::Interrupted, 12),
        (Self::Protocol, 13),
        (Self::Special, 14),
        (Self::Outside, 15),
    ];

    /// The number that travels; never 0, which means success.
    pub fn code(self) -> u64 {
        match self {
            Self::Other(code) => code,
            known => Self::KNOWN
                .iter()
                .find(|(reason, _)| *reason == known)
                .map_or(0, |(_, code)| *code),
        }
    }

    /// The reason for a number other than 0.
    pub fn from_code(code: u64) -> Self {
        Self::KNOWN
            .iter()
            .find(|(_, known)| *known == code)
            .map_or(Self::Other(code), |(reason, _)| *reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "changed while it was sent",
            Self::Unreadable => "cannot be read",
            Self::Exists => "exists already and differs",
            Self::BadPath => "unacceptable path",
            Self::Mismatch => "hash mismatch",
            Self::DiskFull => "no space left",
            Self::Io => "input/output error",
            Self::Busy => "is being received in another transfer",
            Self::TooMuch => "over a protocol limit",
            Self::NotFound => "not found",
            Self::NotAllowed => "not allowed",
            Self::Interrupted => "interrupted",
            Self::Protocol => "protocol error",
            Self::Special => "is neither a file, a folder nor a link",
            Self::Outside => "leads out of the destination",
            Self::Other(code) => return write!(f, "unknown reason {code}"),
        })
    }
}

/// A reason with an explanation for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the reasons that both sides know.
    pub reason: Reason,
    /// For people; may be empty.
    pub text: String,
}

impl Refusal {
    /// `reason`, explained by `text`.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            write!(f, "{}", self.reason)
        } else {
            f.write_str(&self.text)
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_varint(out, end as u64);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

/// Appends the reason's code and the explanation.
pub(crate) fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    put_varint(out, refusal.reason.code());
    put_text(out, &refusal.text);
}

pub(super) fn get_text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let length = reader.varint()?;
    if length > MAX_TEXT_BYTES as u64 {
        return Err(Malformed("an explanation is too long"));
    }
    Ok(printable(reader.bytes(length as usize)?))
}

pub(super) fn get_refusal(reader: &mut Reader<'_>) -> Result<Refusal, Malformed> {
    let code = reader.varint()?;
    if code == 0 {
        return Err(Malformed("reason 0 in a refusal"));
    }
    Ok(Refusal {
        reason: Reason::from_code(code),
        text: get_text(reader)?,
    })
}
