//! The application protocols that a TLS ClientHello offers (RFC 8446 §4.1.2, RFC 7301 §3.1).
//!
//! Read by a server that has to know them before it makes a TLS session. It judges nothing: TLS
//! reads the same bytes afterwards, and says what is wrong with them.

use crate::cursor::{Reader, UnexpectedEnd};

/// Type and length of a handshake message (RFC 8446 §4).
const HEADER_LEN: usize = 4;
/// Its type for a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// `random` and `legacy_version`.
const FIXED_LEN: usize = 2 + 32;
/// Type of the ALPN extension (RFC 7301 §3.1).
const ALPN: u16 = 16;

/// Bytes of the handshake message at the start of `data`, header included; `None` if too little of it
/// is there to tell.
pub fn handshake_message_len(data: &[u8]) -> Option<usize> {
    let [_, a, b, c] = *data.first_chunk::<HEADER_LEN>()?;
    Some(HEADER_LEN + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)))
}

/// The protocols that a whole ClientHello offers, the client's favourite first. None where it offers
/// none, or is no ClientHello; of a list that is malformed those before the fault.
pub fn offered_protocols(message: &[u8]) -> OfferedProtocols<'_> {
    OfferedProtocols(Reader::new(protocol_list(message).unwrap_or_default()))
}

/// See [`offered_protocols`].
#[derive(Clone, Debug)]
pub struct OfferedProtocols<'a>(Reader<'a>);

impl<'a> Iterator for OfferedProtocols<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let name = short_vector(&mut self.0).ok()?;
        // An empty name ends the list, as a fault does.
        (!name.is_empty()).then_some(name)
    }
}

fn protocol_list(message: &[u8]) -> Result<&[u8], UnexpectedEnd> {
    let len = handshake_message_len(message).ok_or(UnexpectedEnd)?;
    let mut message = Reader::new(message.get(..len).ok_or(UnexpectedEnd)?);
    let [kind, ..] = message.array::<HEADER_LEN>()?;
    if kind != CLIENT_HELLO {
        return Ok(&[]);
    }
    message.bytes(FIXED_LEN)?;
    short_vector(&mut message)?; // legacy_session_id
    long_vector(&mut message)?; // cipher_suites
    short_vector(&mut message)?; // legacy_compression_methods
    let mut extensions = Reader::new(long_vector(&mut message)?);
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(extensions.array()?);
        let body = long_vector(&mut extensions)?;
        if kind == ALPN {
            return long_vector(&mut Reader::new(body));
        }
    }
    Ok(&[])
}

/// Bytes behind a length of one byte.
fn short_vector<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], UnexpectedEnd> {
    let [len] = from.array()?;
    from.bytes(usize::from(len))
}

/// Bytes behind a length of two bytes.
fn long_vector<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], UnexpectedEnd> {
    let len = u16::from_be_bytes(from.array()?);
    from.bytes(usize::from(len))
}

#[cfg(test)]
mod tests;
