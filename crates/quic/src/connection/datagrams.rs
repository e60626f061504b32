//! Unreliable datagrams (RFC 9221): bounded queues both ways.
//!
//! Sent datagrams are never retransmitted. A full receive queue drops its oldest entry,
//! a full send queue refuses. `outgoing` has those to be sent, `incoming` those received; here are
//! the limits of their size and the numbers of their fates.

pub(crate) mod fates;
pub(crate) mod incoming;
mod outgoing;

use std::time::Duration;

use bytes::Bytes;
use towline_wire::Time;

use super::component::PacketWriter;
use super::events::{Event, Events};
use crate::error::SendDatagramError;
use fates::{DatagramFate, Fates};
use incoming::Incoming;
pub use outgoing::DatagramOptions;
use outgoing::Outgoing;

/// The longest datagram whose length two bytes can say.
const LONGEST_NARROW: usize = (1 << 14) - 1;

/// What is too old is looked for at most so often, for every search goes through the whole queue. No
/// datagram is sent that is too old, whether it was found or not.
const EXPIRY_GRAIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Datagrams {
    outgoing: Outgoing,
    incoming: Incoming,
    /// The peer's `max_datagram_frame_size`, zero if it takes none.
    peer_max: u64,
    fates: Fates,
}

impl Datagrams {
    pub(crate) fn new(outgoing_cap: usize, incoming_cap: usize) -> Self {
        Self {
            outgoing: Outgoing::new(outgoing_cap),
            incoming: Incoming::new(incoming_cap),
            peer_max: 0,
            fates: Fates::default(),
        }
    }

    pub(crate) fn set_peer_max(&mut self, max_frame_size: u64) {
        self.peer_max = max_frame_size;
    }

    /// Largest payload that fits a packet with `room` bytes for frames: one that fills it ends it, and has
    /// no length. The peer's limit holds with a length too, which a shorter one may have.
    pub(crate) fn max_len(&self, room: usize) -> Option<usize> {
        let limit = usize::try_from(self.peer_max).unwrap_or(usize::MAX);
        // Type byte and a two-byte length, or a four-byte one; what can never be queued never fits.
        let mut most = limit.saturating_sub(3);
        if most > LONGEST_NARROW {
            most = limit.saturating_sub(5).max(LONGEST_NARROW);
        }
        let fitting = most.min(room.saturating_sub(1));
        (self.peer_max > 0).then(|| fitting.min(self.outgoing.cap()))
    }

    /// Takes `payload`, or leaves it where it is and says why.
    pub(crate) fn send(
        &mut self,
        now: Time,
        prefix: &[u8],
        payload: &mut Bytes,
        options: &DatagramOptions,
        room: usize,
        events: &mut Events,
    ) -> Result<(), SendDatagramError> {
        let max = self.max_len(room).ok_or(SendDatagramError::Unsupported)?;
        let len = prefix.len() + payload.len();
        if len > max {
            let max = max.saturating_sub(prefix.len());
            return Err(SendDatagramError::TooLarge { max });
        }
        if !self.outgoing.has_room(len) {
            // Those that are too old make room.
            self.on_timeout(now, events);
            if !self.outgoing.has_room(len) {
                self.outgoing.await_room();
                return Err(SendDatagramError::Full);
            }
        }
        self.outgoing.push(now, prefix, payload, options);
        Ok(())
    }

    /// Datagrams of the largest size that there is room for.
    pub(crate) fn queueable(&self, room: usize) -> usize {
        self.max_len(room)
            .map_or(0, |max| self.outgoing.places(max))
    }

    /// Bytes that there is room for, in one datagram.
    pub(crate) fn free(&self) -> usize {
        if self.peer_max == 0 {
            return 0;
        }
        self.outgoing.free()
    }

    /// Somebody waits for room.
    pub(crate) fn await_room(&mut self) {
        self.outgoing.await_room();
    }

    /// Datagrams that wait to be read.
    pub(crate) fn received(&self) -> usize {
        self.incoming.len()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// When the first of those that wait to be sent will be too old.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.outgoing.next_expiry()
    }

    /// Drops those that are too old.
    pub(crate) fn on_timeout(&mut self, now: Time, events: &mut Events) {
        if self.next_timeout().is_some_and(|at| at <= now) {
            let is_old = |expires: Time, _| expires <= now;
            self.outgoing.expire(is_old, &mut self.fates, events);
            self.outgoing.expire_no_sooner_than(now + EXPIRY_GRAIN);
        }
    }

    /// Writes datagrams, each sender's in its turn of `turn` bytes. `alone` says that nothing else
    /// waits for this packet, which may then end with a datagram that has no length.
    pub(crate) fn write_frames(
        &mut self,
        now: Time,
        turn: impl Fn() -> u64,
        alone: bool,
        w: &mut PacketWriter<'_, '_>,
        events: &mut Events,
    ) {
        self.outgoing
            .write_frames(now, turn, alone, w, &mut self.fates, events);
    }

    /// Drops queued datagrams that no longer fit a packet (the path's MTU fell).
    pub(crate) fn drop_larger_than(&mut self, room: usize, events: &mut Events) {
        let Some(max) = self.max_len(room) else {
            return;
        };
        self.outgoing.drop_larger_than(max, &mut self.fates, events);
    }

    /// Datagrams that nobody asked about were acknowledged.
    pub(crate) fn on_acked(&mut self, count: u32) {
        self.fates.acked += u64::from(count);
    }

    pub(crate) fn on_lost(&mut self, count: u32) {
        self.fates.lost += u64::from(count);
    }

    /// A datagram that somebody asked about was acknowledged.
    pub(crate) fn on_tracked_acked(&mut self, id: u64, events: &mut Events) {
        self.on_acked(1);
        let fate = DatagramFate::Acked;
        events.push(Event::DatagramFate { id, fate });
    }

    pub(crate) fn on_tracked_lost(&mut self, id: u64, events: &mut Events) {
        self.on_lost(1);
        let fate = DatagramFate::Lost;
        events.push(Event::DatagramFate { id, fate });
    }

    pub(crate) fn fates(&self) -> Fates {
        self.fates
    }

    /// Bytes of memory held; those that the application sends count, since the queue takes no more.
    pub(crate) fn held(&self) -> usize {
        self.incoming.held() + self.outgoing.held()
    }

    /// Drops what was received: nobody will have it.
    pub(crate) fn drop_received(&mut self) {
        self.incoming.clear();
        self.outgoing.trim();
    }

    /// Gives back the memory that busier times left behind.
    pub(crate) fn trim(&mut self) {
        self.incoming.trim();
        self.outgoing.trim();
    }

    pub(crate) fn on_received(&mut self, data: &[u8], events: &mut Events) {
        if self.incoming.len() == 0 {
            events.push(Event::DatagramReceived);
        }
        self.incoming.push(data);
    }

    pub(crate) fn recv(&mut self) -> Option<Bytes> {
        self.incoming.pop()
    }

    /// Received datagrams discarded because the application was too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.incoming.dropped()
    }
}

#[cfg(test)]
mod tests;
