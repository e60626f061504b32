//! The decoder of field sections, fed by a hostile peer, and an encoder that hears hostile answers.
//!
//! The input is a head, which chooses the limits, and then pieces: what a piece is, its length, its
//! bytes. A piece is a part of the encoder stream, a section, a part of the decoder stream, or says
//! that our encoder sends something or a stream is cancelled.

use towline_http3::compression::{Decoded, Decoder, Encoder, Error, Sensitivity};
use towline_wire::StreamId;

/// The most that a section may hand out.
const MAX_SECTION: usize = 2000;

/// Feeds `input` to a decoder and an encoder.
///
/// # Panics
/// When more is handed out than permitted, or when more streams wait.
pub fn qpack_decoder(input: &[u8]) {
    run(input);
}

/// As [`qpack_decoder`]; returns what happened, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let Some((head, mut rest)) = input.split_first() else {
        return 0;
    };
    let mut run = Run::new(u64::from(head >> 4) * 60, u64::from(head & 0x0f) / 4);
    let mut signature = u64::from(*head);
    while let Some(([what, len], after)) = rest.split_first_chunk() {
        let (piece, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        let happened = run.piece(*what, piece);
        let seen = happened.map_or_else(|error| error.reason.len() as u64 + 16, u64::from);
        signature = (signature ^ seen).wrapping_mul(0x0100_0000_01b3);
        if happened.is_err() {
            break;
        }
    }
    signature
}

struct Run {
    decoder: Decoder,
    encoder: Encoder,
    max_blocked: u64,
    blocked: std::collections::BTreeSet<StreamId>,
}

impl Run {
    fn new(capacity: u64, max_blocked: u64) -> Self {
        let mut encoder = Encoder::new();
        encoder.set_peer_limits(capacity, max_blocked);
        Self {
            decoder: Decoder::new(capacity, max_blocked),
            encoder,
            max_blocked,
            blocked: std::collections::BTreeSet::new(),
        }
    }

    fn piece(&mut self, what: u8, piece: &[u8]) -> Result<u8, Error> {
        let stream = StreamId::from_u64(u64::from(what >> 3) * 4);
        match what & 7 {
            0 | 1 => {
                self.decoder.handle_encoder_stream(piece)?;
                let mut freed = 0;
                while let Some(stream) = self.decoder.take_unblocked() {
                    assert!(self.blocked.remove(&stream), "{stream} did not wait");
                    freed += 1;
                }
                Ok(freed)
            }
            2 => {
                self.encoder.handle_decoder_stream(piece)?;
                Ok(4)
            }
            3 => Ok(self.encode(stream, piece)),
            4 => {
                self.decoder.cancel(stream);
                self.blocked.remove(&stream);
                Ok(u8::from(self.decoder.take_instructions().is_some()) + 6)
            }
            _ => self.section(stream, piece),
        }
    }

    fn section(&mut self, stream: StreamId, piece: &[u8]) -> Result<u8, Error> {
        let mut size = 0;
        let mut field = |name: &[u8], value: &[u8]| size += name.len() + value.len() + 32;
        let decoded = self
            .decoder
            .decode(stream, piece, MAX_SECTION, &mut field)?;
        assert!(size <= MAX_SECTION, "{size} bytes were handed out");
        if decoded == Decoded::Blocked {
            assert_eq!(size, 0, "a blocked section was handed out");
            self.blocked.insert(stream);
            assert!(self.blocked.len() as u64 <= self.max_blocked);
        } else {
            self.blocked.remove(&stream);
        }
        Ok(8 + decoded as u8)
    }

    fn encode(&mut self, stream: StreamId, piece: &[u8]) -> u8 {
        let middle = piece.len() / 2;
        let (name, value) = piece.split_at(middle);
        let field = (name, value, Sensitivity::Normal);
        let mut out = Vec::new();
        self.encoder.encode(stream, [field, field], &mut out);
        let sent = self.encoder.take_instructions();
        u8::from(sent.is_some()) + u8::from(out.first() != Some(&0)) * 2 + 11
    }
}
