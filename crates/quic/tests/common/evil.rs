//! A peer that breaks the rules: it takes the place of one host of a pair whose packets are
//! plaintext, and puts any frame into any packet.

use towline_quic::{ConnectionError, TransportErrorCode};
use towline_testkit::NULL_TAG;
use towline_wire::{
    Frame, FrameType, LongType, QUIC_V1, Writer, write_long_header, write_short_header,
};

use super::wire::for_each_frame;
use super::{Options, Pair, ms, readable};

/// Packet numbers of the evil peer start here, far above those of the host it replaced.
pub const FIRST_NUMBER: u64 = 1000;

pub struct Evil {
    pub pair: Pair,
    /// The honest end.
    pub victim: usize,
    pub number: u64,
    pub key_phase: bool,
    pub dcid: Vec<u8>,
    /// Bits set in the first byte of every packet.
    pub first_byte: u8,
}

impl Evil {
    /// A connected pair in which somebody evil speaks to `victim` from now on.
    pub fn against(victim: usize) -> Self {
        Self::with(victim, readable())
    }

    pub fn with(victim: usize, options: Options) -> Self {
        let mut pair = Pair::connected(options);
        pair.run_for(ms(200));
        Self::take_over(pair, victim)
    }

    /// Replaces the peer of `victim`.
    pub fn take_over(mut pair: Pair, victim: usize) -> Self {
        pair.hosts[1 - victim].hijacked = true;
        pair.hosts[victim].events.clear();
        let dcid = pair.hosts[1 - victim].last_dcid.clone();
        Self {
            pair,
            victim,
            number: FIRST_NUMBER,
            key_phase: false,
            dcid,
            first_byte: 0,
        }
    }

    /// A 1-RTT packet with this payload under the next number.
    pub fn packet(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 64 + payload.len()];
        let mut w = Writer::new(&mut out);
        write_short_header(&mut w, &self.dcid, self.number, 4, false, self.key_phase);
        w.bytes(payload);
        w.bytes(&NULL_TAG);
        let len = w.len();
        out.truncate(len);
        out[0] |= self.first_byte;
        self.number += 1;
        out
    }

    /// Sends raw bytes as the payload of a 1-RTT packet.
    pub fn send_bytes(&mut self, payload: &[u8]) {
        let packet = self.packet(payload);
        self.pair.deliver(self.victim, &packet);
    }

    /// Sends the frames `write` writes.
    pub fn send(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let payload = payload(write);
        self.send_bytes(&payload);
    }

    /// Asserts that the victim has closed with this code, and told so on the wire.
    pub fn assert_closed(&mut self, code: TransportErrorCode, frame: Option<FrameType>) {
        let word = self.pair.close_reason(self.victim);
        match &word {
            Some(ConnectionError::PeerMisbehaved {
                code: c, frame: f, ..
            }) => assert_eq!((*c, *f), (code, frame), "{word:?}"),
            _ => panic!("the victim did not object: {word:?}"),
        }
        self.pair.run_for(ms(50));
        assert_eq!(self.closes(), vec![(code.as_u64(), true)], "on the wire");
    }

    /// Asserts that the victim bears it.
    pub fn assert_open(&mut self) {
        assert_eq!(self.pair.close_reason(self.victim), None);
    }

    /// Code of each CONNECTION_CLOSE the victim sent, and whether it is the transport's.
    pub fn closes(&self) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        self.each_frame(|frame| {
            if let Frame::ConnectionClose(close) = frame {
                found.push((close.error_code, !close.is_application()));
            }
        });
        found
    }

    /// Every frame the victim sent since the takeover.
    pub fn each_frame(&self, mut f: impl FnMut(&Frame<'_>)) {
        for datagram in &self.pair.hosts[1 - self.victim].captured {
            for_each_frame(datagram, |_, frame| f(frame));
        }
    }

    pub fn count_frames(&self, wanted: impl Fn(&Frame<'_>) -> bool) -> usize {
        let mut n = 0;
        self.each_frame(|frame| n += usize::from(wanted(frame)));
        n
    }
}

/// Frames as bytes.
pub fn payload(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; 1400];
    let mut w = Writer::new(&mut bytes);
    write(&mut w);
    assert!(!w.overflowed(), "more than a packet");
    let len = w.len();
    bytes.truncate(len);
    bytes
}

/// A long-header packet in plaintext.
pub fn long_packet(
    kind: LongType,
    dcid: &[u8],
    scid: &[u8],
    token: &[u8],
    number: u64,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = vec![0; 128 + token.len() + payload.len()];
    let mut w = Writer::new(&mut out);
    let slot = write_long_header(&mut w, kind, QUIC_V1, dcid, scid, token, number, 4);
    w.bytes(payload);
    w.bytes(&NULL_TAG);
    let len = w.len();
    out.truncate(len);
    slot.patch(&mut out, len - slot.pn_offset());
    out
}
