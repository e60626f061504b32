//! Datagrams that wait to be sent: a queue for each sender.
//!
//! Senders take turns as streams do (`turns`), so that none can fill the path, or the connection's
//! one queue, with its own alone: they share its cap, and what is too old leaves it. Inside a queue
//! the first comes first.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use towline_wire::{Time, datagram_frame_header_len, write_datagram_header};

use super::fates::{DatagramFate, Fates};
use crate::connection::component::{PacketWriter, SentFrame};
use crate::connection::events::{Event, Events};
use crate::connection::turns::{Place, Turns};

/// Cap: datagrams that wait to be sent, whatever their size and whoever they are of.
pub(crate) const MAX_QUEUED_DATAGRAMS: usize = 4096;

/// Bytes before the payload that are kept beside it without an allocation: two variable-length
/// integers, as HTTP datagrams have (RFC 9297 §2.1).
const INLINE_PREFIX: usize = 16;

/// Senders without datagrams that are remembered for their memory.
const MOST_IDLE: usize = 16;

/// Fewer bytes left in a packet are no room for another frame, but for a shorter datagram.
const LITTLE_ROOM: usize = 16;

/// The least payload of a packet, for the sample of header protection (RFC 9001 §5.4.2).
const LEAST_PAYLOAD: usize = 4;

/// How a datagram is sent. The default is one sender's, at order 0, never too old, and nobody asks
/// what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramOptions {
    /// Whose it is, by any number of the application's: senders of one group and order share the
    /// path alike.
    pub sender: u32,
    /// Group of the sender, as of its newest datagram: groups share alike, whatever is in them.
    pub send_group: u32,
    /// Order of the sender in its group, as of its newest datagram: higher goes first.
    pub send_order: i64,
    /// Not sent any more when it has waited for so long.
    pub max_age: Option<Duration>,
    /// The name under which [`Event::DatagramFate`] tells what became of it; the application sees
    /// to it that no two have the same.
    pub id: Option<u64>,
}

impl DatagramOptions {
    /// Sets the field `sender`.
    #[must_use]
    pub fn sender(mut self, sender: u32) -> Self {
        self.sender = sender;
        self
    }

    /// Sets the field `send_group`.
    #[must_use]
    pub fn send_group(mut self, group: u32) -> Self {
        self.send_group = group;
        self
    }

    /// Sets the field `send_order`.
    #[must_use]
    pub fn send_order(mut self, order: i64) -> Self {
        self.send_order = order;
        self
    }

    /// Sets the field `max_age`.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Sets the field `id`.
    #[must_use]
    pub fn id(mut self, id: u64) -> Self {
        self.id = Some(id);
        self
    }

    fn place(&self) -> Place {
        Place {
            group: self.send_group,
            order: self.send_order,
        }
    }
}

/// Kept small and built in its place: a queue of these is most of what a datagram costs.
#[derive(Debug)]
struct Waiting {
    payload: Bytes,
    /// [`Time::MAX`] without a greatest age.
    expires: Time,
    /// Means something where `has_id`.
    id: u64,
    prefix: [u8; INLINE_PREFIX],
    prefix_len: u8,
    has_id: bool,
}

impl Waiting {
    fn prefix(&self) -> &[u8] {
        &self.prefix[..usize::from(self.prefix_len)]
    }

    fn len(&self) -> usize {
        usize::from(self.prefix_len) + self.payload.len()
    }

    fn id(&self) -> Option<u64> {
        self.has_id.then_some(self.id)
    }
}

#[derive(Debug, Default)]
struct Sender {
    queue: VecDeque<Waiting>,
    place: Place,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    senders: BTreeMap<u32, Sender>,
    /// Those that have something to send.
    turns: Turns<u32>,
    /// Datagrams of all senders, and their bytes.
    len: usize,
    bytes: usize,
    cap: usize,
    /// None is longer.
    longest: usize,
    /// None is looked for that is too old before.
    expiry: Time,
    /// The application was refused and waits for `DatagramSendable`.
    refused: bool,
}

impl Outgoing {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            senders: BTreeMap::new(),
            turns: Turns::default(),
            len: 0,
            bytes: 0,
            cap,
            longest: 0,
            expiry: Time::MAX,
            refused: false,
        }
    }

    pub(super) fn cap(&self) -> usize {
        self.cap
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a datagram of `len` bytes can be queued.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.len < MAX_QUEUED_DATAGRAMS && self.bytes + len <= self.cap
    }

    /// Datagrams of `len` bytes that there is room for.
    pub(super) fn places(&self, len: usize) -> usize {
        let free = self.cap.saturating_sub(self.bytes);
        (MAX_QUEUED_DATAGRAMS.saturating_sub(self.len)).min(free / len.max(1))
    }

    /// Bytes that there is room for, in one datagram.
    pub(super) fn free(&self) -> usize {
        match self.len < MAX_QUEUED_DATAGRAMS {
            true => self.cap.saturating_sub(self.bytes),
            false => 0,
        }
    }

    pub(super) fn await_room(&mut self) {
        self.refused = true;
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        (self.expiry < Time::MAX).then_some(self.expiry)
    }

    /// Queues what there is room for.
    pub(super) fn push(
        &mut self,
        now: Time,
        prefix: &[u8],
        payload: &mut Bytes,
        options: &DatagramOptions,
    ) {
        let mut payload = std::mem::take(payload);
        let mut kept = [0; INLINE_PREFIX];
        let prefix_len = match kept.get_mut(..prefix.len()) {
            Some(room) => {
                room.copy_from_slice(prefix);
                prefix.len() as u8
            }
            // Too long to be kept beside the payload.
            None => {
                payload = [prefix, &payload].concat().into();
                0
            }
        };
        let expires = options.max_age.map_or(Time::MAX, |age| now + age);
        let len = usize::from(prefix_len) + payload.len();
        self.len += 1;
        self.bytes += len;
        self.longest = self.longest.max(len);
        self.expiry = self.expiry.min(expires);
        let sender = self.senders.entry(options.sender).or_default();
        let before = std::mem::replace(&mut sender.place, options.place());
        sender.queue.push_back(Waiting {
            payload,
            expires,
            id: options.id.unwrap_or_default(),
            prefix: kept,
            prefix_len,
            has_id: options.id.is_some(),
        });
        if sender.queue.len() == 1 {
            self.turns.push(options.sender, sender.place);
        } else if before != sender.place {
            self.turns.change(options.sender, before, sender.place);
        }
    }

    pub(super) fn write_frames(
        &mut self,
        now: Time,
        turn: impl Fn() -> u64,
        alone: bool,
        w: &mut PacketWriter<'_, '_>,
        fates: &mut Fates,
        events: &mut Events,
    ) {
        let mut untracked = 0;
        while let Some(whose) = self.turns.front()
            && let Some(sender) = self.senders.get_mut(&whose)
            && let Some(front) = sender.queue.front()
        {
            let len = front.len();
            let is_old = front.expires < now;
            // Another of this sender's is the likely next.
            let next = sender.queue.get(1).map_or(LITTLE_ROOM, |d| d.len() + 1);
            let room = Room {
                needed: next.min(LITTLE_ROOM),
                is_last: alone && self.len == 1,
            };
            if !is_old && !write_frame(front, room, w) {
                break;
            }
            let id = front.id();
            sender.queue.pop_front();
            let has_more = !sender.queue.is_empty();
            self.len -= 1;
            self.bytes -= len;
            if !has_more && self.senders.len() > MOST_IDLE {
                // A crowd may never have sent all, and one may come after the other.
                self.senders.remove(&whose);
            }
            if is_old {
                fates.expired += 1;
                tell_expired(id, events);
                if !has_more {
                    self.turns.remove_front();
                }
                continue;
            }
            self.turns.spend(len as u64, has_more, &turn);
            fates.sent += 1;
            match id {
                Some(id) => w.record(SentFrame::TrackedDatagram { id }),
                None => untracked += 1,
            }
        }
        if untracked > 0 {
            w.record(SentFrame::Datagrams { count: untracked });
        }
        self.after_removal(events);
    }

    /// Drops those of which `is_unfit` says so, by when they are too old and their length.
    pub(super) fn expire(
        &mut self,
        is_unfit: impl Fn(Time, usize) -> bool,
        fates: &mut Fates,
        events: &mut Events,
    ) {
        self.expiry = Time::MAX;
        self.longest = 0;
        for (whose, sender) in &mut self.senders {
            let had_some = !sender.queue.is_empty();
            sender.queue.retain(|d| {
                let len = d.len();
                if is_unfit(d.expires, len) {
                    self.len -= 1;
                    self.bytes -= len;
                    fates.expired += 1;
                    tell_expired(d.id(), events);
                    return false;
                }
                self.longest = self.longest.max(len);
                self.expiry = self.expiry.min(d.expires);
                true
            });
            if had_some && sender.queue.is_empty() {
                self.turns.remove(*whose, sender.place);
            }
        }
        if self.senders.len() > MOST_IDLE {
            self.senders.retain(|_, sender| !sender.queue.is_empty());
        }
        self.after_removal(events);
    }

    /// Those that are too old before `time` are looked for then.
    pub(super) fn expire_no_sooner_than(&mut self, time: Time) {
        if self.expiry < Time::MAX {
            self.expiry = self.expiry.max(time);
        }
    }

    pub(super) fn drop_larger_than(&mut self, max: usize, fates: &mut Fates, events: &mut Events) {
        // The peer can shorten the room by a byte at a time: no walk that would drop nothing.
        if self.longest > max {
            self.expire(|_, len| len > max, fates, events);
        }
    }

    fn after_removal(&mut self, events: &mut Events) {
        if self.len == 0 {
            self.longest = 0;
            self.expiry = Time::MAX;
        }
        if self.refused && self.bytes <= self.cap / 2 {
            self.refused = false;
            events.push(Event::DatagramSendable);
        }
    }

    /// Senders that are remembered, with datagrams or without.
    #[cfg(test)]
    pub(super) fn senders(&self) -> usize {
        self.senders.len()
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        let capacity = |s: &Sender| s.queue.capacity() * size_of::<Waiting>();
        let queues = self.senders.values().map(capacity).sum::<usize>();
        self.bytes + queues + self.turns.held()
    }

    /// Gives back the memory that busier times left behind.
    pub(super) fn trim(&mut self) {
        self.senders.retain(|_, sender| !sender.queue.is_empty());
        for sender in self.senders.values_mut() {
            sender.queue.shrink_to_fit();
        }
        self.turns.trim();
    }
}

/// What else wants room in the packet of a frame.
struct Room {
    /// Fewer bytes are of no use to anything behind it.
    needed: usize,
    /// There is nothing behind it.
    is_last: bool,
}

/// Writes one frame, or returns `false` if there is no room. The last one needs no length where it
/// ends its packet.
fn write_frame(d: &Waiting, behind: Room, w: &mut PacketWriter<'_, '_>) -> bool {
    let len = d.len();
    let room = w.remaining();
    let whole = datagram_frame_header_len(Some(len)) + len;
    let left = room.checked_sub(whole);
    // One that fills its packet keeps its length: in a train the packet would be shorter than those
    // before it, and end the train.
    let is_last = behind.is_last || left.is_none_or(|left| 0 < left && left < behind.needed);
    let may_end = w.may_end && !w.expand_datagram;
    let ends = is_last && may_end && w.w.len() + len + 1 >= LEAST_PAYLOAD;
    if !ends && left.is_none() || room < len + 1 {
        return false;
    }
    write_datagram_header(w.w, (!ends).then_some(len));
    w.w.bytes(d.prefix());
    w.w.bytes(&d.payload);
    w.ended |= ends;
    true
}

fn tell_expired(id: Option<u64>, events: &mut Events) {
    if let Some(id) = id {
        let fate = DatagramFate::Expired;
        events.push(Event::DatagramFate { id, fate });
    }
}
