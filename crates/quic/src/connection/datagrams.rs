//! Unreliable datagrams (RFC 9221): two bounded queues.
//!
//! Sent datagrams are never retransmitted. A full receive queue drops its oldest entry,
//! a full send queue refuses. Received ones share blocks
//! of memory: one allocation serves many.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use towline_wire::{datagram_frame_header_len, write_datagram_header};

use super::component::PacketWriter;
use super::events::{Event, Events};
use crate::error::SendDatagramError;

/// Cap: datagrams queued in either direction, whatever their size.
pub(crate) const MAX_QUEUED_DATAGRAMS: usize = 4096;

/// The longest datagram whose length two bytes can say.
const LONGEST_NARROW: usize = (1 << 14) - 1;

/// Most bytes allocated at once for received datagrams that share them.
const MAX_BLOCK: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Datagrams {
    outgoing: VecDeque<Bytes>,
    outgoing_bytes: usize,
    outgoing_cap: usize,
    /// None in `outgoing` is longer.
    outgoing_longest: usize,
    incoming: VecDeque<Bytes>,
    incoming_bytes: usize,
    incoming_cap: usize,
    /// The application was refused and waits for `DatagramSendable`.
    refused: bool,
    /// The peer's `max_datagram_frame_size`, zero if it takes none.
    peer_max: u64,
    dropped: u64,
    /// Where the next datagram received is put.
    block: BytesMut,
}

impl Datagrams {
    pub(crate) fn new(outgoing_cap: usize, incoming_cap: usize) -> Self {
        Self {
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            outgoing_cap,
            outgoing_longest: 0,
            incoming: VecDeque::new(),
            incoming_bytes: 0,
            incoming_cap,
            refused: false,
            peer_max: 0,
            dropped: 0,
            block: BytesMut::new(),
        }
    }

    pub(crate) fn set_peer_max(&mut self, max_frame_size: u64) {
        self.peer_max = max_frame_size;
    }

    /// Largest payload that fits a packet with `room` bytes for frames.
    pub(crate) fn max_len(&self, room: usize) -> Option<usize> {
        let limit = usize::try_from(self.peer_max)
            .unwrap_or(usize::MAX)
            .min(room);
        // Type byte and a two-byte length, or a four-byte one; what can never be queued never fits.
        let mut most = limit.saturating_sub(3);
        if most > LONGEST_NARROW {
            most = limit.saturating_sub(5).max(LONGEST_NARROW);
        }
        (self.peer_max > 0).then(|| most.min(self.outgoing_cap))
    }

    /// Takes `data`, or leaves it where it is and says why.
    pub(crate) fn send(&mut self, data: &mut Bytes, room: usize) -> Result<(), SendDatagramError> {
        let max = self.max_len(room).ok_or(SendDatagramError::Unsupported)?;
        if data.len() > max {
            return Err(SendDatagramError::TooLarge { max });
        }
        if self.outgoing.len() >= MAX_QUEUED_DATAGRAMS
            || self.outgoing_bytes + data.len() > self.outgoing_cap
        {
            self.refused = true;
            return Err(SendDatagramError::Full);
        }
        self.outgoing_bytes += data.len();
        self.outgoing_longest = self.outgoing_longest.max(data.len());
        self.outgoing.push_back(std::mem::take(data));
        Ok(())
    }

    /// Datagrams of the largest size that there is room for.
    pub(crate) fn queueable(&self, room: usize) -> usize {
        let free = self.outgoing_cap.saturating_sub(self.outgoing_bytes);
        let places = MAX_QUEUED_DATAGRAMS.saturating_sub(self.outgoing.len());
        self.max_len(room)
            .map_or(0, |max| places.min(free / max.max(1)))
    }

    /// Bytes that there is room for, in one datagram.
    pub(crate) fn free(&self) -> usize {
        if self.peer_max == 0 || self.outgoing.len() >= MAX_QUEUED_DATAGRAMS {
            return 0;
        }
        self.outgoing_cap.saturating_sub(self.outgoing_bytes)
    }

    /// Somebody waits for room.
    pub(crate) fn await_room(&mut self) {
        self.refused = true;
    }

    /// Datagrams that wait to be read.
    pub(crate) fn received(&self) -> usize {
        self.incoming.len()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(crate) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>, events: &mut Events) {
        while let Some(front) = self.outgoing.front() {
            if datagram_frame_header_len(Some(front.len())) + front.len() > w.remaining() {
                break;
            }
            write_datagram_header(w.w, Some(front.len()));
            w.w.bytes(front);
            w.mark_ack_eliciting();
            self.outgoing_bytes -= front.len();
            self.outgoing.pop_front();
        }
        if self.outgoing.is_empty() {
            self.outgoing_longest = 0;
        }
        self.wake_refused(events);
    }

    fn wake_refused(&mut self, events: &mut Events) {
        if self.refused && self.outgoing_bytes <= self.outgoing_cap / 2 {
            self.refused = false;
            events.push(Event::DatagramSendable);
        }
    }

    /// Drops queued datagrams that no longer fit a packet (the path's MTU fell).
    pub(crate) fn drop_larger_than(&mut self, room: usize, events: &mut Events) {
        let Some(max) = self.max_len(room) else {
            return;
        };
        // The peer can shorten the room by a byte at a time: no walk that would drop nothing.
        if self.outgoing_longest <= max {
            return;
        }
        self.outgoing_longest = max;
        let bytes = &mut self.outgoing_bytes;
        let dropped = &mut self.dropped;
        self.outgoing.retain(|d| {
            let keep = d.len() <= max;
            if !keep {
                *bytes -= d.len();
                *dropped += 1;
            }
            keep
        });
        self.wake_refused(events);
    }

    /// Bytes of memory held; those that the application sends count, since the queue takes no more.
    pub(crate) fn held(&self) -> usize {
        self.incoming_bytes
            + self.outgoing_bytes
            + self.block.capacity()
            + (self.incoming.capacity() + self.outgoing.capacity()) * size_of::<Bytes>()
    }

    /// Drops what was received: nobody will have it.
    pub(crate) fn drop_received(&mut self) {
        self.incoming = VecDeque::new();
        self.incoming_bytes = 0;
        self.trim();
    }

    /// Gives back the memory that busier times left behind.
    pub(crate) fn trim(&mut self) {
        self.block = BytesMut::new();
        self.outgoing.shrink_to_fit();
        self.incoming.shrink_to_fit();
    }

    pub(crate) fn on_received(&mut self, data: &[u8], events: &mut Events) {
        if self.incoming.is_empty() {
            events.push(Event::DatagramReceived);
        }
        while self.incoming.len() >= MAX_QUEUED_DATAGRAMS
            || (self.incoming_bytes + data.len() > self.incoming_cap && !self.incoming.is_empty())
        {
            if let Some(oldest) = self.incoming.pop_front() {
                self.incoming_bytes -= oldest.len();
                self.dropped += 1;
            }
        }
        let datagram = self.keep(data);
        self.incoming_bytes += data.len();
        self.incoming.push_back(datagram);
    }

    fn keep(&mut self, data: &[u8]) -> Bytes {
        if self.block.capacity() < data.len() {
            // More while datagrams pile up; a lone one gets no more than it needs.
            let wanted = (16 * self.incoming_bytes).min(MAX_BLOCK);
            self.block.reserve(wanted.max(data.len()));
        }
        self.block.extend_from_slice(data);
        self.block.split().freeze()
    }

    pub(crate) fn recv(&mut self) -> Option<Bytes> {
        let data = self.incoming.pop_front()?;
        self.incoming_bytes -= data.len();
        Some(data)
    }

    /// Received datagrams discarded because the application was too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_receive_queue_drops_the_oldest() {
        let mut d = Datagrams::new(100, 100);
        let mut e = Events::default();
        for i in 0..30u8 {
            d.on_received(&[i; 10], &mut e);
        }
        assert_eq!(d.dropped(), 20);
        assert_eq!(d.recv().unwrap()[0], 20);
        let mut d = Datagrams::new(usize::MAX, usize::MAX);
        for _ in 0..MAX_QUEUED_DATAGRAMS + 5 {
            d.on_received(b"", &mut e);
        }
        assert_eq!(d.dropped(), 5);
    }

    #[test]
    fn a_full_send_queue_refuses_and_says_when_to_try_again() {
        let mut d = Datagrams::new(10, 10);
        assert_eq!(
            d.send(&mut Bytes::from_static(b"x"), 1200),
            Err(SendDatagramError::Unsupported)
        );
        d.set_peer_max(1000);
        assert_eq!(
            d.send(&mut Bytes::from(vec![0; 998]), 1200),
            Err(SendDatagramError::TooLarge { max: 10 })
        );
        d.send(&mut Bytes::from_static(b"12345678"), 1200).unwrap();
        assert_eq!(
            d.send(&mut Bytes::from_static(b"123"), 1200),
            Err(SendDatagramError::Full)
        );
    }

    #[test]
    fn what_is_said_to_be_free_is_taken_and_a_byte_more_is_not() {
        let mut d = Datagrams::new(10, 10);
        assert_eq!(d.free(), 0, "the peer takes none");
        d.set_peer_max(1000);
        assert_eq!(d.free(), 10);
        d.send(&mut Bytes::from_static(b"123456"), 1200).unwrap();
        assert_eq!(d.free(), 4);
        let full = Err(SendDatagramError::Full);
        assert_eq!(d.send(&mut Bytes::from_static(b"12345"), 1200), full);
        d.send(&mut Bytes::from_static(b"1234"), 1200).unwrap();
        assert_eq!(d.free(), 0);
        let mut d = Datagrams::new(usize::MAX, 0);
        d.set_peer_max(1000);
        for _ in 0..MAX_QUEUED_DATAGRAMS {
            assert!(d.free() > 0);
            d.send(&mut Bytes::new(), 1200).unwrap();
        }
        assert_eq!(d.free(), 0, "no place is left, however small");
        assert_eq!(d.send(&mut Bytes::new(), 1200), full);
    }

    #[test]
    fn the_longest_datagram_fits_every_room_with_its_header() {
        let mut d = Datagrams::new(1 << 20, 0);
        d.set_peer_max(u64::MAX);
        for room in (0..20).chain(16_370..16_400).chain(65_400..65_535) {
            let max = d.max_len(room).unwrap();
            let whole = |len| datagram_frame_header_len(Some(len)) + len;
            assert!(max == 0 || whole(max) <= room, "{room}: {max}");
            // A byte may stay free where a short length would do, two where it is about to grow.
            assert!(whole(max + 3) > room, "{room}: {max}");
        }
    }

    #[test]
    fn a_lone_datagram_holds_no_more_than_it_needs_and_a_quiet_connection_nothing() {
        let mut d = Datagrams::new(1 << 20, 1 << 20);
        let mut e = Events::default();
        d.on_received(&[1; 1000], &mut e);
        drop(d.recv());
        assert!(d.block.capacity() < 1000, "{}", d.block.capacity());
        for _ in 0..20 {
            d.on_received(&[1; 1000], &mut e);
        }
        while d.recv().is_some() {}
        d.trim();
        assert_eq!((d.block.capacity(), d.incoming.capacity()), (0, 0));
    }

    #[test]
    fn a_refused_writer_is_woken_when_the_queue_is_dropped_for_size() {
        let mut d = Datagrams::new(10_000, 10_000);
        let mut e = Events::default();
        d.set_peer_max(2000);
        while d.send(&mut Bytes::from(vec![0; 1300]), 1400).is_ok() {}
        d.drop_larger_than(1100, &mut e);
        assert!(!d.has_pending());
        assert_eq!(e.pop(), Some(Event::DatagramSendable));
    }
}
