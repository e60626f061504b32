//! Handshake messages after the handshake (RFC 8446 §4.6): session tickets and key updates.

use bytes::{Buf, BytesMut};
use rustls::{AlertDescription, HandshakeType};

use crate::error::SessionError;

/// Cap: longest handshake message after the handshake; a ticket has about 300 bytes.
const MAX_MESSAGE: usize = 16 * 1024;

const MESSAGE_HEADER: usize = 4;

/// A message of the peer.
pub(crate) enum Message {
    Ticket(BytesMut),
    KeyUpdate { requested: bool },
}

/// Joins messages from the records that carry them.
#[derive(Debug, Default)]
pub(crate) struct Messages(BytesMut);

impl Messages {
    /// The content of a handshake record.
    pub(crate) fn handle_record(&mut self, content: &[u8]) -> Result<(), SessionError> {
        if content.is_empty() {
            return Err(broken("an empty handshake record"));
        }
        self.0.extend_from_slice(content);
        Ok(())
    }

    /// Whether a message has begun and not ended: no other record may come between (§5.1).
    pub(crate) fn is_inside(&self) -> bool {
        !self.0.is_empty()
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, SessionError> {
        let Some(&[kind, a, b, c]) = self.0.first_chunk::<MESSAGE_HEADER>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        if len > MAX_MESSAGE {
            return Err(broken("a handshake message longer than 16 KiB"));
        }
        if self.0.len() < MESSAGE_HEADER + len {
            return Ok(None);
        }
        self.0.advance(MESSAGE_HEADER);
        let body = self.0.split_to(len);
        match HandshakeType::from(kind) {
            HandshakeType::NewSessionTicket => Ok(Some(Message::Ticket(body))),
            HandshakeType::KeyUpdate => {
                // The record after it has the new key: nothing may follow in this one (§5.1).
                if self.is_inside() {
                    return Err(broken("a key update inside a record"));
                }
                match body[..] {
                    [0] => Ok(Some(Message::KeyUpdate { requested: false })),
                    [1] => Ok(Some(Message::KeyUpdate { requested: true })),
                    _ => Err(SessionError::peer(
                        "a key update that is neither a request nor an answer",
                        AlertDescription::IllegalParameter,
                    )),
                }
            }
            _ => Err(broken("a handshake message after the handshake")),
        }
    }
}

/// A KeyUpdate message.
pub(crate) const fn key_update(request: bool) -> [u8; 5] {
    // `HandshakeType::KeyUpdate`, and a body of one byte.
    [24, 0, 0, 1, request as u8]
}

fn broken(what: &'static str) -> SessionError {
    SessionError::peer(what, AlertDescription::UnexpectedMessage)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a session ticket of so many bytes.
    fn ticket(len: usize) -> [u8; MESSAGE_HEADER] {
        let [a, b] = u16::try_from(len).unwrap().to_be_bytes();
        [4, 0, a, b]
    }

    #[test]
    fn a_message_has_16_kib_at_most() {
        let mut messages = Messages::default();
        messages.handle_record(&ticket(MAX_MESSAGE)).unwrap();
        assert!(messages.next().unwrap().is_none());
        messages.handle_record(&[7; MAX_MESSAGE]).unwrap();
        let Some(Message::Ticket(body)) = messages.next().unwrap() else {
            panic!("no ticket");
        };
        assert_eq!(body.len(), MAX_MESSAGE);
        assert!(!messages.is_inside());
        // Refused by its header, before its bytes are kept.
        messages.handle_record(&ticket(MAX_MESSAGE + 1)).unwrap();
        assert!(messages.next().is_err());
    }
}
