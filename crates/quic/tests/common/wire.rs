//! Looks into the plaintext packets of the null AEAD (`readable()` options).

use std::cell::Cell;
use std::rc::Rc;

use towline_wire::{Frame, Header, PacketKind, Reader, parse_header};

use super::{Pair, Tap};

/// Length of all connection IDs here.
pub const CID_LEN: usize = 8;
/// What ends every packet.
const TAG_LEN: usize = 16;

/// The destination connection ID of a datagram's first packet.
pub fn destination(datagram: &[u8]) -> Vec<u8> {
    towline_wire::peek_dcid(datagram, CID_LEN)
        .unwrap_or_default()
        .to_vec()
}

/// A packet in plaintext.
pub struct Packet<'a> {
    pub kind: PacketKind,
    /// Truncated to `pn_len` bytes.
    pub number: u64,
    pub pn_len: usize,
    pub key_phase: bool,
    pub token: &'a [u8],
    pub payload: &'a [u8],
    /// Offset of the payload in its datagram.
    pub payload_at: usize,
}

/// The packets of a datagram; stops at what is not plaintext of ours.
pub fn packets(datagram: &[u8]) -> Vec<Packet<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < datagram.len() {
        let rest = &datagram[at..];
        let (kind, first, token, pn_offset, end) = match parse_header(rest, CID_LEN) {
            Ok(Header::Short {
                first,
                pn_offset,
                end,
                ..
            }) => (PacketKind::OneRtt, first, &[][..], pn_offset, end),
            Ok(Header::Long {
                kind,
                first,
                token,
                pn_offset,
                end,
                ..
            }) => (PacketKind::from_long(kind), first, token, pn_offset, end),
            _ => break,
        };
        let pn_len = usize::from(first & 3) + 1;
        let number = rest[pn_offset..pn_offset + pn_len]
            .iter()
            .fold(0, |n, b| n << 8 | u64::from(*b));
        found.push(Packet {
            kind,
            number,
            pn_len,
            key_phase: first & 4 != 0,
            token,
            payload: &rest[pn_offset + pn_len..end - TAG_LEN],
            payload_at: at + pn_offset + pn_len,
        });
        at += end;
    }
    found
}

/// Calls `f` with every frame of a datagram.
pub fn for_each_frame(datagram: &[u8], mut f: impl FnMut(PacketKind, &Frame<'_>)) {
    for packet in packets(datagram) {
        let mut r = Reader::new(packet.payload);
        while !r.is_empty() {
            let frame = Frame::parse(&mut r).expect("our own frames parse");
            f(packet.kind, &frame);
        }
    }
}

/// Whether a datagram holds a frame that `wanted` accepts.
pub fn has_frame(datagram: &[u8], wanted: impl Fn(&Frame<'_>) -> bool) -> bool {
    let mut found = false;
    for_each_frame(datagram, |_, frame| found |= wanted(frame));
    found
}

/// Datagrams with a certain frame that a side sent, and how many of the first are dropped.
#[derive(Clone, Default)]
pub struct Seen(Rc<Cell<u32>>);

impl Seen {
    pub fn count(&self) -> u32 {
        self.0.get()
    }
}

impl Pair {
    /// Drops the first `n` datagrams of `side` that hold a frame `wanted` accepts, and counts all
    /// of them. Packets must be readable.
    pub fn drop_first(
        &mut self,
        side: usize,
        n: u32,
        wanted: impl Fn(&Frame<'_>) -> bool + 'static,
    ) -> Seen {
        let seen = Seen::default();
        let counter = seen.clone();
        let tap: Tap = Box::new(move |from, datagram| {
            if from != side || !has_frame(datagram, &wanted) {
                return true;
            }
            counter.0.set(counter.0.get() + 1);
            counter.0.get() > n
        });
        self.tap = Some(tap);
        seen
    }

    /// Counts the datagrams of `side` that hold a frame `wanted` accepts.
    pub fn watch(&mut self, side: usize, wanted: impl Fn(&Frame<'_>) -> bool + 'static) -> Seen {
        self.drop_first(side, 0, wanted)
    }
}

/// The frames before the padding.
pub fn without_padding(payload: &[u8]) -> &[u8] {
    let mut r = Reader::new(payload);
    let mut end = 0;
    while !r.is_empty() {
        let frame = Frame::parse(&mut r).expect("our own frames parse");
        if !matches!(frame, Frame::Padding { .. }) {
            end = r.position();
        }
    }
    &payload[..end]
}
