//! [`CapsuleReader`]: the capsules of a CONNECT stream, as their bytes come (RFC 9297 §3.2).
//!
//! What is unknown is passed over and not kept.

use bytes::{Buf, Bytes, BytesMut};
use towline_wire::http3::{Capsule, CapsuleError, CapsuleHeader, CapsuleType};
use towline_wire::{Direction, Reader};

#[cfg(test)]
mod tests;

/// Cap: bytes of a datagram in a capsule; a longer one is dropped (RFC 9297 §3.5).
pub(crate) const MAX_CAPSULE_DATAGRAM: u64 = 2048;

/// Limits of single streams, which WebTransport leaves to QUIC: whoever sends one breaks a rule
/// (draft-ietf-webtrans-http3-16 §5.4).
const PROHIBITED: [u64; 2] = [0x190b_4d3e, 0x190b_4d42];

/// A capsule that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Datagram(Bytes),
    Close { code: u32, message: String },
    Drain,
    MaxData(u64),
    MaxStreams(Direction, u64),
    DataBlocked(u64),
    StreamsBlocked(Direction, u64),
}

impl Told {
    /// As it was on the wire.
    pub(crate) fn capsule(&self) -> Capsule<'_> {
        match self {
            Self::Datagram(payload) => Capsule::Datagram(payload),
            Self::Close { code, message } => Capsule::CloseSession {
                code: *code,
                message,
            },
            Self::Drain => Capsule::DrainSession,
            Self::MaxData(max) => Capsule::MaxData(*max),
            Self::MaxStreams(direction, max) => Capsule::MaxStreams(*direction, *max),
            Self::DataBlocked(at) => Capsule::DataBlocked(*at),
            Self::StreamsBlocked(direction, at) => Capsule::StreamsBlocked(*direction, *at),
        }
    }
}

/// The capsules of one stream.
#[derive(Default, Debug)]
pub(crate) struct CapsuleReader {
    header: Vec<u8>,
    state: State,
}

#[derive(Default, Debug)]
enum State {
    #[default]
    Header,
    Value {
        kind: CapsuleType,
        left: u64,
        bytes: BytesMut,
    },
    Skip {
        left: u64,
    },
}

impl CapsuleReader {
    /// Whether a capsule has begun and is not whole.
    pub(crate) fn is_inside(&self) -> bool {
        !matches!(self.state, State::Header) || !self.header.is_empty()
    }

    /// Reads on from the front of `bytes` up to the next capsule that means something.
    ///
    /// # Errors
    /// The capsule is malformed.
    pub(crate) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Told>, CapsuleError> {
        loop {
            match &mut self.state {
                State::Header => match self.parse_header(bytes) {
                    Some(header) => self.begin(header)?,
                    None => return Ok(None),
                },
                State::Skip { left } => {
                    let len = part(*left, bytes);
                    bytes.advance(len);
                    *left -= len as u64;
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
                State::Value {
                    kind,
                    left,
                    bytes: value,
                } => {
                    let len = part(*left, bytes);
                    value.extend_from_slice(&bytes.split_to(len));
                    *left -= len as u64;
                    if *left > 0 {
                        return Ok(None);
                    }
                    let (kind, value) = (*kind, std::mem::take(value).freeze());
                    self.state = State::Header;
                    if let Some(told) = meaning(kind, value)? {
                        return Ok(Some(told));
                    }
                }
            }
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn kept_within_cap(&self) -> bool {
        let value = match &self.state {
            State::Value { bytes, .. } => bytes.len() as u64,
            _ => 0,
        };
        self.header.len() <= 16 && value <= MAX_CAPSULE_DATAGRAM
    }

    /// Gathers a header byte by byte, so that nothing behind it is kept.
    fn parse_header(&mut self, bytes: &mut Bytes) -> Option<CapsuleHeader> {
        while bytes.has_remaining() {
            self.header.push(bytes.get_u8());
            if let Ok(header) = CapsuleHeader::parse(&mut Reader::new(&self.header)) {
                self.header.clear();
                return Some(header);
            }
        }
        None
    }

    fn begin(&mut self, header: CapsuleHeader) -> Result<(), CapsuleError> {
        header.check_len()?;
        let CapsuleHeader { kind, len } = header;
        if PROHIBITED.contains(&kind.as_u64()) {
            return Err(CapsuleError::Malformed(kind));
        }
        let whole = kind.max_value_len().is_some()
            || (kind == CapsuleType::DATAGRAM && len <= MAX_CAPSULE_DATAGRAM);
        self.state = match whole {
            true => State::Value {
                kind,
                left: len,
                bytes: BytesMut::new(),
            },
            false => State::Skip { left: len },
        };
        Ok(())
    }
}

/// How much of `bytes` belongs to what is left.
fn part(left: u64, bytes: &Bytes) -> usize {
    usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()))
}

fn meaning(kind: CapsuleType, value: Bytes) -> Result<Option<Told>, CapsuleError> {
    Ok(Capsule::parse(kind, &value)?.map(|capsule| match capsule {
        Capsule::CloseSession { code, message } => Told::Close {
            code,
            message: message.to_owned(),
        },
        Capsule::DrainSession => Told::Drain,
        Capsule::MaxData(max) => Told::MaxData(max),
        Capsule::MaxStreams(direction, max) => Told::MaxStreams(direction, max),
        Capsule::DataBlocked(at) => Told::DataBlocked(at),
        Capsule::StreamsBlocked(direction, at) => Told::StreamsBlocked(direction, at),
        Capsule::Datagram(_) => Told::Datagram(value.clone()),
    }))
}
