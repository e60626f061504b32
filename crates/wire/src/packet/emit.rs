//! Emission of packet headers and of the two packets that carry no frames.
//!
//! The engine writes a header into the train buffer, then frames, then patches the Length of a
//! long header ([`LengthSlot`]) and seals. Version Negotiation and Retry are whole packets, off
//! the hot path, and go to a vector. Nothing here protects or seals.

use super::{FIXED_BIT, LONG_HEADER_BIT, LongType, SHORT_KEY_PHASE_BIT, SHORT_SPIN_BIT};
use crate::cursor::{Writer, varint_len};

/// Where the Length field of a long header stands, to be patched when the payload is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a long header is invalid until its Length is patched"]
pub struct LengthSlot {
    offset: usize,
    /// Four bytes were set aside instead of two.
    wide: bool,
}

impl LengthSlot {
    /// The largest Length that fits two bytes.
    const MAX_NARROW: usize = (1 << 14) - 1;
    /// The largest Length that fits four bytes, the most that are ever set aside.
    pub const MAX_LENGTH: usize = (1 << 30) - 1;

    /// Two bytes, or four where `room`, all that may follow the field, is more than they can say.
    #[inline]
    const fn new(offset: usize, room: usize) -> Self {
        let wide = room > Self::MAX_NARROW;
        Self { offset, wide }
    }

    /// Bytes set aside.
    #[inline]
    const fn len(self) -> usize {
        if self.wide { 4 } else { 2 }
    }

    /// Where the packet number starts, from the start of the writer's buffer.
    #[inline]
    pub const fn pn_offset(self) -> usize {
        self.offset + self.len()
    }

    /// Writes `length` (packet number, payload and AEAD tag, in bytes; no more than was left in the
    /// writer's buffer, nor than [`MAX_LENGTH`](Self::MAX_LENGTH)) into `buf`, the buffer the
    /// header's writer was made of.
    #[inline]
    pub fn patch(self, buf: &mut [u8], length: usize) {
        let most = if self.wide {
            Self::MAX_LENGTH
        } else {
            Self::MAX_NARROW
        };
        debug_assert!(length <= most, "the packet grew beyond its writer's buffer");
        let [.., a, b, c, d] = ((length & most) as u64).to_be_bytes();
        let field = [a | 0x80, b, c, d];
        let narrow = [c | 0x40, d];
        let field = if self.wide { &field[..] } else { &narrow[..] };
        if let Some(slot) = buf.get_mut(self.offset..self.pn_offset()) {
            slot.copy_from_slice(field);
        }
    }
}

/// Bytes of a short header, packet number included.
#[inline]
pub const fn short_header_len(dcid_len: usize, pn_len: usize) -> usize {
    1 + dcid_len + pn_len
}

/// Writes the header of a 1-RTT packet (RFC 9000 §17.3.1), reserved bits 0, and returns where
/// its packet number starts. `pn_len` is 1 to 4; needs [`short_header_len`] bytes.
#[inline]
pub fn write_short_header(
    w: &mut Writer<'_>,
    dcid: &[u8],
    pn: u64,
    pn_len: usize,
    spin: bool,
    key_phase: bool,
) -> usize {
    let spin = if spin { SHORT_SPIN_BIT } else { 0 };
    let key_phase = if key_phase { SHORT_KEY_PHASE_BIT } else { 0 };
    w.u8(FIXED_BIT | spin | key_phase | pn_len_bits(pn_len));
    w.bytes(dcid);
    let pn_offset = w.len();
    write_packet_number(w, pn, pn_len);
    pn_offset
}

/// Bytes of a long header, Length (two bytes; four where more than 16,383 bytes of the buffer lie
/// behind them) and packet number included. `token_len` counts for an Initial only.
#[inline]
pub const fn long_header_len(
    kind: LongType,
    dcid_len: usize,
    scid_len: usize,
    token_len: usize,
    pn_len: usize,
) -> usize {
    let token = match kind {
        LongType::Initial => varint_len(token_len as u64) + token_len,
        _ => 0,
    };
    1 + 4 + 1 + dcid_len + 1 + scid_len + token + 2 + pn_len
}

/// Writes the header of an Initial, 0-RTT or Handshake packet (RFC 9000 §17.2), reserved bits
/// 0, with a Length still to be patched. `token` is written for an Initial only; connection IDs
/// have at most 20 bytes and `pn_len` is 1 to 4. Needs [`long_header_len`] bytes. Length gets two
/// bytes, or four where `w` has room for a packet that needs them.
#[inline]
#[expect(
    clippy::too_many_arguments,
    reason = "these are the fields of the header"
)]
pub fn write_long_header(
    w: &mut Writer<'_>,
    kind: LongType,
    version: u32,
    dcid: &[u8],
    scid: &[u8],
    token: &[u8],
    pn: u64,
    pn_len: usize,
) -> LengthSlot {
    w.u8(LONG_HEADER_BIT | FIXED_BIT | kind.bits() | pn_len_bits(pn_len));
    w.u32(version);
    for cid in [dcid, scid] {
        debug_assert!(cid.len() <= crate::MAX_CID_LEN);
        w.u8(cid.len() as u8);
        w.bytes(cid);
    }
    if kind == LongType::Initial {
        w.varint(token.len() as u64);
        w.bytes(token);
    }
    let slot = LengthSlot::new(w.len(), w.remaining());
    w.zeros(slot.len());
    write_packet_number(w, pn, pn_len);
    slot
}

/// Appends a Version Negotiation packet (RFC 9000 §17.2.1, RFC 8999 §6).
///
/// `dcid` is the source connection ID of the packet answered and `scid` its destination, up to
/// 255 bytes each. The 6 unused bits come from `random_first`; the fixed bit is set so that
/// other protocols can share the port.
pub fn emit_version_negotiation(
    buf: &mut Vec<u8>,
    random_first: u8,
    dcid: &[u8],
    scid: &[u8],
    versions: &[u32],
) {
    buf.push(LONG_HEADER_BIT | FIXED_BIT | random_first);
    buf.extend_from_slice(&0_u32.to_be_bytes());
    emit_cid(buf, dcid);
    emit_cid(buf, scid);
    for version in versions {
        buf.extend_from_slice(&version.to_be_bytes());
    }
}

/// Appends a Retry packet without its integrity tag (RFC 9000 §17.2.5).
pub fn emit_retry(buf: &mut Vec<u8>, version: u32, dcid: &[u8], scid: &[u8], token: &[u8]) {
    buf.push(LONG_HEADER_BIT | FIXED_BIT | 0x30);
    buf.extend_from_slice(&version.to_be_bytes());
    emit_cid(buf, dcid);
    emit_cid(buf, scid);
    buf.extend_from_slice(token);
}

/// The Retry Pseudo-Packet, over which the integrity tag is computed (RFC 9001 §5.8).
///
/// `odcid` is the destination connection ID of the client's first Initial.
pub fn retry_pseudo_packet(odcid: &[u8], retry_without_tag: &[u8]) -> Vec<u8> {
    let mut buf = Vec::with_capacity(1 + odcid.len() + retry_without_tag.len());
    emit_cid(&mut buf, odcid);
    buf.extend_from_slice(retry_without_tag);
    buf
}

fn emit_cid(buf: &mut Vec<u8>, cid: &[u8]) {
    let cid = &cid[..cid.len().min(255)];
    buf.push(cid.len() as u8);
    buf.extend_from_slice(cid);
}

#[inline]
fn pn_len_bits(pn_len: usize) -> u8 {
    debug_assert!((1..=4).contains(&pn_len));
    (pn_len.clamp(1, 4) - 1) as u8
}

#[inline]
fn write_packet_number(w: &mut Writer<'_>, pn: u64, pn_len: usize) {
    let [.., a, b, c, d] = pn.to_be_bytes();
    match pn_len {
        0 | 1 => w.u8(d),
        2 => w.array([c, d]),
        3 => w.array([b, c, d]),
        _ => w.array([a, b, c, d]),
    }
}
