//! Builds datagrams in the caller's buffer: a train of equal segments, packets inside a
//! datagram, padding and sealing in place.
//!
//! Owns offsets and lengths only. What goes into a packet is `schedule`'s, who may send is
//! `output`'s.

use towline_wire::{
    ConnectionId, LengthSlot, LongType, PacketNumberSpace, QUIC_V1, Writer, write_long_header,
    write_short_header,
};

use super::protect::{Protection, TAG_LEN};

/// Most bytes one UDP send takes (65,535 less IP and UDP headers).
pub(crate) const MAX_TRAIN_BYTES: usize = 65_507;

/// Most segments of one UDP GSO send (the kernel's UDP_MAX_SEGMENTS).
pub(crate) const MAX_TRAIN_SEGMENTS: usize = 64;

/// Smallest datagram that carries an Initial packet (RFC 9000 §14.1).
pub(crate) const MIN_INITIAL_DATAGRAM: usize = 1200;

/// Bytes by which every 1-RTT packet is longer than our connection IDs (RFC 9000 §10.3).
const MIN_BEYOND_CID: usize = 22;

/// A reusable buffer for one train of datagrams: equal segments, only the last may be short.
pub struct TrainBuf {
    bytes: Box<[u8]>,
    len: usize,
    segment_size: usize,
    segments: usize,
    /// The last segment is shorter than the others.
    ended: bool,
    max_segments: usize,
}

impl Default for TrainBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for TrainBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainBuf")
            .field("len", &self.len)
            .field("segment_size", &self.segment_size)
            .field("segments", &self.segments)
            .finish_non_exhaustive()
    }
}

impl TrainBuf {
    /// A buffer for the longest train, 64 segments and 64 KB.
    pub fn new() -> Self {
        Self::with_max_segments(MAX_TRAIN_SEGMENTS)
    }

    /// A buffer for trains of at most `max_segments`, 1 to 64.
    pub fn with_max_segments(max_segments: usize) -> Self {
        Self {
            bytes: vec![0; MAX_TRAIN_BYTES].into_boxed_slice(),
            len: 0,
            segment_size: 0,
            segments: 0,
            ended: false,
            max_segments: max_segments.clamp(1, MAX_TRAIN_SEGMENTS),
        }
    }

    /// Changes the limit, for instance to 1 when the kernel refuses segmentation offload.
    pub fn set_max_segments(&mut self, max_segments: usize) {
        self.max_segments = max_segments.clamp(1, MAX_TRAIN_SEGMENTS);
    }

    /// The datagrams, back to back.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Size of each datagram but the last.
    pub fn segment_size(&self) -> usize {
        self.segment_size
    }

    /// Number of datagrams.
    pub fn segments(&self) -> usize {
        self.segments
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.segment_size = 0;
        self.segments = 0;
        self.ended = false;
    }

    /// Replaces the contents by one datagram made elsewhere.
    pub(crate) fn set_single(&mut self, datagram: &[u8]) {
        self.clear();
        self.bytes[..datagram.len()].copy_from_slice(datagram);
        self.commit(datagram.len(), datagram.len());
    }

    /// Appends the one datagram of `other`, if a train can have it: as long as those before it or
    /// shorter, which ends the train. They may be of different connections.
    pub fn join(&mut self, other: &Self) -> bool {
        let len = other.len;
        // Of a single datagram only its connection thought that nothing can follow.
        let open = self.segments == 1 || !self.ended;
        let joins = open
            && other.segments == 1
            && (1..=self.segment_size).contains(&len)
            && self.segments < self.max_segments
            && self.len + len <= MAX_TRAIN_BYTES;
        if joins {
            self.bytes[self.len..self.len + len].copy_from_slice(&other.bytes[..len]);
            self.commit(len, self.segment_size);
        }
        joins
    }

    /// Room for the next datagram; `None` when the train is complete.
    pub(crate) fn next_room(&mut self, mtu: usize) -> Option<&mut [u8]> {
        let size = if self.segments == 0 {
            mtu
        } else {
            self.segment_size
        };
        if self.ended || self.segments >= self.max_segments || self.len + size > MAX_TRAIN_BYTES {
            return None;
        }
        Some(&mut self.bytes[self.len..self.len + size])
    }

    /// Notes a datagram of `len` bytes written into a room of `room` bytes.
    pub(crate) fn commit(&mut self, len: usize, room: usize) {
        if self.segments == 0 {
            // Whole DATAGRAM frames rarely fill a packet: the others are then cut to its size.
            self.segment_size = len;
            self.ended = len < room / 2;
        } else {
            self.ended = len < room;
        }
        self.segments += 1;
        self.len += len;
    }
}

/// A packet with its header written, not yet sealed. Offsets are from the datagram's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketBuilder {
    pub(crate) space: PacketNumberSpace,
    pub(crate) dcid: ConnectionId,
    pub(crate) packet_number: u64,
    start: usize,
    pn_offset: usize,
    pn_len: usize,
    length: Option<LengthSlot>,
    payload_end: usize,
    pub(crate) ack_eliciting: bool,
    pub(crate) in_flight: bool,
    /// A PING beside an acknowledgement is all that makes it ack-eliciting.
    pub(crate) asks: bool,
    /// It asks whether the path carries datagrams of its size.
    pub(crate) mtu_probe: bool,
    /// Its datagram must have at least [`MIN_INITIAL_DATAGRAM`] bytes.
    pub(crate) expand: bool,
    /// Its last frame reaches to its end: padding would be a part of it.
    pub(crate) ended: bool,
}

/// What a header needs to say.
pub(crate) struct HeaderFields<'a> {
    pub(crate) space: PacketNumberSpace,
    pub(crate) dcid: ConnectionId,
    pub(crate) scid: ConnectionId,
    pub(crate) token: &'a [u8],
    pub(crate) packet_number: u64,
    pub(crate) pn_len: usize,
    pub(crate) key_phase: bool,
}

impl PacketBuilder {
    /// Writes the header at `start`. The writer spans the datagram less one AEAD tag.
    pub(crate) fn begin(datagram: &mut [u8], start: usize, h: &HeaderFields<'_>) -> Option<Self> {
        let mut w = Writer::new(datagram.get_mut(start..)?);
        let (pn_at, length) = match h.space {
            PacketNumberSpace::Application => {
                let at = write_short_header(
                    &mut w,
                    &h.dcid,
                    h.packet_number,
                    h.pn_len,
                    // The spin bit is off (RFC 9000 §17.4).
                    false,
                    h.key_phase,
                );
                (at, None)
            }
            PacketNumberSpace::Initial | PacketNumberSpace::Handshake => {
                let kind = match h.space {
                    PacketNumberSpace::Initial => LongType::Initial,
                    _ => LongType::Handshake,
                };
                let slot = write_long_header(
                    &mut w,
                    kind,
                    QUIC_V1,
                    &h.dcid,
                    &h.scid,
                    h.token,
                    h.packet_number,
                    h.pn_len,
                );
                (slot.pn_offset(), Some(slot))
            }
        };
        if w.overflowed() {
            return None;
        }
        Some(Self {
            space: h.space,
            dcid: h.dcid,
            packet_number: h.packet_number,
            start,
            pn_offset: pn_at,
            pn_len: h.pn_len,
            length,
            payload_end: start + w.len(),
            ack_eliciting: false,
            in_flight: false,
            asks: false,
            mtu_probe: false,
            expand: false,
            ended: false,
        })
    }

    /// Where frames go: the rest of `datagram` less the tag.
    pub(crate) fn payload_room<'a>(&self, datagram: &'a mut [u8]) -> &'a mut [u8] {
        let end = datagram.len().saturating_sub(TAG_LEN).max(self.payload_end);
        &mut datagram[self.payload_end..end]
    }

    pub(crate) fn advance(&mut self, payload: usize) {
        self.payload_end += payload;
    }

    /// Bytes of payload so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.payload_end == self.start + self.pn_offset + self.pn_len
    }

    /// Where the packet will end in the datagram.
    pub(crate) fn end(&self) -> usize {
        self.payload_end + TAG_LEN
    }

    /// Size of the sealed packet.
    pub(crate) fn size(&self) -> usize {
        self.end() - self.start
    }

    /// The frames written so far.
    pub(crate) fn payload<'a>(&self, datagram: &'a [u8]) -> &'a [u8] {
        &datagram[self.start + self.pn_offset + self.pn_len..self.payload_end]
    }

    /// Appends PADDING so that the packet ends at `end` or later.
    pub(crate) fn pad_to(&mut self, datagram: &mut [u8], end: usize) {
        let target = end.min(datagram.len()).saturating_sub(TAG_LEN);
        if target > self.payload_end {
            debug_assert!(!self.ended, "nothing may follow its last frame");
            datagram[self.payload_end..target].fill(0);
            self.payload_end = target;
            self.in_flight = true;
        }
    }

    /// The header-protection sample needs four bytes of number and payload (RFC 9001 §5.4.2).
    pub(crate) fn pad_for_sample(&mut self, datagram: &mut [u8]) {
        let least = self.start + self.pn_offset + 4;
        if self.payload_end < least {
            debug_assert!(!self.ended, "nothing may follow its last frame");
            datagram[self.payload_end..least].fill(0);
            self.payload_end = least;
        }
    }

    /// A 1-RTT packet is so much longer than our connection IDs, of `cid_len` bytes, that a stateless
    /// reset sent for it can look like one (RFC 9000 §10.3).
    pub(crate) fn pad_for_reset(&mut self, datagram: &mut [u8], cid_len: usize) {
        let least = self.start + cid_len + MIN_BEYOND_CID - TAG_LEN;
        let fits = least + TAG_LEN <= datagram.len();
        if self.payload_end < least && fits && !self.ended {
            datagram[self.payload_end..least].fill(0);
            self.payload_end = least;
        }
    }

    /// Completes the header and seals the packet in place.
    pub(crate) fn seal(
        &self,
        datagram: &mut [u8],
        protection: &mut Protection,
    ) -> Result<(), &'static str> {
        let packet = &mut datagram[self.start..self.payload_end + TAG_LEN];
        if let Some(slot) = self.length {
            let length = packet.len() - self.pn_offset;
            slot.patch(packet, length);
        }
        protection.seal(
            self.space,
            self.packet_number,
            packet,
            self.pn_offset,
            self.pn_len,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(len: usize) -> TrainBuf {
        let mut buf = TrainBuf::new();
        buf.set_single(&vec![len as u8; len]);
        buf
    }

    #[test]
    fn datagrams_join_a_train_until_one_is_shorter() {
        let mut train = single(50);
        assert!(!train.join(&single(51)), "only the last may differ");
        assert!(train.join(&single(50)));
        assert!(train.join(&single(30)));
        assert!(!train.join(&single(30)), "a shorter one ends the train");
        assert_eq!((train.segments(), train.segment_size()), (3, 50));
        assert_eq!(train.filled(), [vec![50; 100], vec![30; 30]].concat());

        let mut long = TrainBuf::with_max_segments(2);
        long.set_single(&[7; 50]);
        assert!(!single(50).join(&TrainBuf::new()), "nothing was built");
        assert!(long.join(&single(50)));
        assert!(!long.join(&single(50)), "no more than the system takes");
    }
}
