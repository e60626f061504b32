//! What comes in CRYPTO frames after the handshake: how much of it, and where its messages begin.
//!
//! Owned by the handshake's exchange, which has it look at what TLS does not read any more or soon
//! will not. It understands a message's type and length and nothing of its body.

use towline_wire::Time;

/// Cap: CRYPTO bytes accepted after the handshake (session tickets; CVE-2024-1765 class) beyond
/// what [`POST_HANDSHAKE_CRYPTO_RATE`] lets fade.
pub(crate) const MAX_POST_HANDSHAKE_CRYPTO: u64 = 262_144;

/// CRYPTO bytes after the handshake that are forgotten each second: two large tickets. A flood is
/// a matter of rate; a connection may last for years.
const POST_HANDSHAKE_CRYPTO_RATE: u64 = 1024;

/// Type and length of a TLS handshake message (RFC 8446 §4).
const HEADER_LEN: u8 = 4;
/// Its type for session tickets.
const NEW_SESSION_TICKET: u8 = 4;
/// Its type for a request of a certificate.
pub(super) const CERTIFICATE_REQUEST: u8 = 13;

/// CRYPTO bytes received after the handshake and not yet forgotten.
#[derive(Debug, Default)]
pub(super) struct PostHandshake {
    bytes: u64,
    /// As of then.
    at: Time,
}

impl PostHandshake {
    /// Takes `bytes` more; `false` if that is a flood.
    pub(super) fn receive(&mut self, now: Time, bytes: u64) -> bool {
        let millis = now.saturating_duration_since(self.at).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        let faded = millis.saturating_mul(POST_HANDSHAKE_CRYPTO_RATE) / 1000;
        if faded > 0 {
            self.bytes = self.bytes.saturating_sub(faded);
            self.at = now;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes <= MAX_POST_HANDSHAKE_CRYPTO
    }
}

/// Where the messages begin in a CRYPTO stream that TLS does not read any more, or soon will not.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Bytes of a message's header that were read.
    header: u8,
    /// Bytes of its body to come.
    left: usize,
}

impl Messages {
    /// Takes the next bytes. The error is the type of the first message that begins there and is
    /// not a session ticket.
    pub(super) fn read(&mut self, mut data: &[u8]) -> Result<(), u8> {
        let mut tickets = Ok(());
        while let Some((&byte, rest)) = data.split_first() {
            if self.header < HEADER_LEN {
                match self.header {
                    0 if byte != NEW_SESSION_TICKET => tickets = tickets.and(Err(byte)),
                    0 => {}
                    _ => self.left = self.left << 8 | usize::from(byte),
                }
                self.header += 1;
                data = rest;
            } else {
                let n = data.len().min(self.left);
                self.left -= n;
                data = &data[n..];
            }
            if self.header == HEADER_LEN && self.left == 0 {
                *self = Self::default();
            }
        }
        tickets
    }

    pub(super) fn is_between(&self) -> bool {
        self.header == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_however_they_are_cut() {
        let ticket = [NEW_SESSION_TICKET, 0, 0, 3, 24, 24, 24];
        let empty = [NEW_SESSION_TICKET, 0, 0, 0];
        let stream = [&ticket[..], &empty, &ticket].concat();
        for size in 1..=stream.len() {
            let mut messages = Messages::default();
            assert!(
                stream
                    .chunks(size)
                    .all(|piece| messages.read(piece).is_ok())
            );
            assert!(messages.is_between());
            assert!(messages.read(&ticket[..6]).is_ok() && !messages.is_between());
            // The last byte of the body, then a KeyUpdate.
            assert_eq!(messages.read(&[24, 24, 0, 0, 1, 0]), Err(24));
        }
    }
}
