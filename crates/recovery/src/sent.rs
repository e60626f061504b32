//! What is in flight: one ring of small records per packet number space, indexed by number.
//!
//! `SentRing` holds `[base, next)`; a packet leaves at the front once it is acknowledged, lost or
//! skipped. Losses are always found at the front, because both thresholds are monotone in the
//! packet number, so the ring never holds more than what is in flight plus a few. `LostPackets`
//! remembers declared losses for a while, so that a late acknowledgement is seen as spurious loss.
//! Frames of all packets lie in one queue beside each ring; nothing is allocated per packet.

use std::collections::VecDeque;

use towline_wire::Time;

use crate::bandwidth::Snapshot;

/// Cap: declared losses remembered per packet number space; the oldest are forgotten beyond it.
pub const MAX_LOST_REMEMBERED: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Outstanding,
    Acked,
    /// A number never sent, on purpose (RFC 9000 §21.4).
    Skipped,
}

/// The peer acknowledges a number that was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberSkipped;

/// One packet: 24 bytes, no payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentEntry {
    pub(crate) sent_time: Time,
    /// Running index of its first frame (wraps).
    frames_start: u32,
    /// Running index of its train's snapshot (wraps).
    snapshot: u32,
    pub(crate) size: u16,
    frame_count: u16,
    pub(crate) state: State,
    pub(crate) ack_eliciting: bool,
    pub(crate) in_flight: bool,
    /// Sent with ECT(0).
    pub(crate) marked: bool,
}

const _: () = assert!(size_of::<SentEntry>() <= 32);

impl SentEntry {
    pub(crate) fn is_outstanding(&self) -> bool {
        self.state == State::Outstanding
    }
}

/// The packets `[base, next)` of one space with their frames and rate snapshots.
#[derive(Clone, Debug)]
pub(crate) struct SentRing<F> {
    base: u64,
    entries: VecDeque<SentEntry>,
    frames: VecDeque<Option<F>>,
    frames_base: u32,
    snapshots: VecDeque<Snapshot>,
    snapshots_base: u32,
}

/// What `SentRing::push` is told about a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) now: Time,
    pub(crate) size: u16,
    pub(crate) ack_eliciting: bool,
    pub(crate) in_flight: bool,
    pub(crate) marked: bool,
}

impl<F> SentRing<F> {
    pub(crate) fn new() -> Self {
        Self {
            base: 0,
            entries: VecDeque::new(),
            frames: VecDeque::new(),
            frames_base: 0,
            snapshots: VecDeque::new(),
            snapshots_base: 0,
        }
    }

    /// The lowest number still undecided; every lower one was acknowledged, lost or skipped.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The number the next packet gets.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends a packet; drains `frames`. Packets of one train share one snapshot.
    pub(crate) fn push(&mut self, sent: Sent, snapshot: Snapshot, frames: &mut Vec<F>) -> u64 {
        let packet_number = self.next();
        // Loss detection relies on send times that never decrease.
        let sent_time = self
            .entries
            .back()
            .map_or(sent.now, |last| last.sent_time.max(sent.now));
        match self.snapshots.back_mut() {
            Some(last) if last.same_train(&snapshot) => last.tx_in_flight = snapshot.tx_in_flight,
            _ => self.snapshots.push_back(snapshot),
        }
        let entry = SentEntry {
            sent_time,
            frames_start: self.frames_base.wrapping_add(self.frames.len() as u32),
            snapshot: self
                .snapshots_base
                .wrapping_add(self.snapshots.len() as u32 - 1),
            size: sent.size,
            frame_count: u16::try_from(frames.len()).unwrap_or(u16::MAX),
            state: State::Outstanding,
            ack_eliciting: sent.ack_eliciting,
            in_flight: sent.in_flight,
            marked: sent.marked,
        };
        // A packet holds at most 65,527 bytes and so never more frames than the count can tell.
        frames.truncate(usize::from(u16::MAX));
        for frame in frames.drain(..) {
            self.frames.push_back(Some(frame));
        }
        self.entries.push_back(entry);
        packet_number
    }

    /// Takes the next number out of use.
    pub(crate) fn skip(&mut self, now: Time) {
        let entry = SentEntry {
            sent_time: self
                .entries
                .back()
                .map_or(now, |last| last.sent_time.max(now)),
            frames_start: self.frames_base.wrapping_add(self.frames.len() as u32),
            // The newest there is: the next packet may still share it.
            snapshot: self
                .snapshots_base
                .wrapping_add(self.snapshots.len().saturating_sub(1) as u32),
            size: 0,
            frame_count: 0,
            state: State::Skipped,
            ack_eliciting: false,
            in_flight: false,
            marked: false,
        };
        self.entries.push_back(entry);
    }

    pub(crate) fn get(&self, packet_number: u64) -> Option<&SentEntry> {
        let index = packet_number.checked_sub(self.base)?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// Marks an outstanding packet acknowledged and hands out its frames. Returns its record, or
    /// `None` if it was acknowledged before or is no longer in the ring.
    ///
    /// # Errors
    /// The number was skipped.
    pub(crate) fn acknowledge(
        &mut self,
        packet_number: u64,
        mut deliver: impl FnMut(F),
    ) -> Result<Option<SentEntry>, NumberSkipped> {
        let index = packet_number.wrapping_sub(self.base) as usize;
        let Some(entry) = self.entries.get_mut(index) else {
            return Ok(None);
        };
        match entry.state {
            State::Outstanding => {}
            State::Acked => return Ok(None),
            State::Skipped => return Err(NumberSkipped),
        }
        entry.state = State::Acked;
        let entry = *entry;
        let start = entry.frames_start.wrapping_sub(self.frames_base) as usize;
        for index in start..start + usize::from(entry.frame_count) {
            if let Some(frame) = self.frames.get_mut(index).and_then(Option::take) {
                deliver(frame);
            }
        }
        Ok(Some(entry))
    }

    pub(crate) fn front(&self) -> Option<(u64, &SentEntry)> {
        self.entries.front().map(|entry| (self.base, entry))
    }

    /// Removes the oldest packet and hands out those of its frames that are still there.
    pub(crate) fn pop_front(&mut self, mut deliver: impl FnMut(F)) -> Option<SentEntry> {
        let entry = self.entries.pop_front()?;
        self.base += 1;
        for _ in 0..entry.frame_count {
            self.frames_base = self.frames_base.wrapping_add(1);
            if let Some(Some(frame)) = self.frames.pop_front() {
                deliver(frame);
            }
        }
        self.retire_snapshots();
        Some(entry)
    }

    fn retire_snapshots(&mut self) {
        let keep_from = match self.entries.front() {
            Some(front) => front.snapshot.wrapping_sub(self.snapshots_base) as usize,
            None => self.snapshots.len(),
        };
        for _ in 0..keep_from.min(self.snapshots.len()) {
            self.snapshots.pop_front();
            self.snapshots_base = self.snapshots_base.wrapping_add(1);
        }
    }

    /// The rate snapshot taken when the packet's train was sent.
    pub(crate) fn snapshot(&self, entry: &SentEntry) -> Snapshot {
        let index = entry.snapshot.wrapping_sub(self.snapshots_base) as usize;
        self.snapshots.get(index).copied().unwrap_or_default()
    }

    /// The frames of a packet that is still outstanding.
    pub(crate) fn frames(&self, entry: &SentEntry) -> impl Iterator<Item = &F> {
        let start = entry.frames_start.wrapping_sub(self.frames_base) as usize;
        self.frames
            .range(start..start + usize::from(entry.frame_count))
            .filter_map(Option::as_ref)
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.entries.shrink_to_fit();
        self.frames.shrink_to_fit();
        self.snapshots.shrink_to_fit();
    }

    /// Bytes of memory it has reserved.
    pub(crate) fn held(&self) -> usize {
        self.entries.capacity() * size_of::<SentEntry>()
            + self.frames.capacity() * size_of::<Option<F>>()
            + self.snapshots.capacity() * size_of::<Snapshot>()
    }

    /// All records from the lowest number up.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &SentEntry)> {
        (self.base..).zip(self.entries.iter())
    }
}

/// A packet declared lost, kept until its acknowledgement can no longer come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostEntry {
    pub(crate) packet_number: u64,
    pub(crate) lost_time: Time,
    /// The congestion episode the loss belongs to.
    pub(crate) episode: u64,
    pub(crate) size: u16,
    frame_count: u16,
    frames_start: u32,
    acked: bool,
}

/// The remembered losses of one space, lowest number first.
#[derive(Clone, Debug)]
pub(crate) struct LostPackets<F> {
    entries: VecDeque<LostEntry>,
    frames: VecDeque<Option<F>>,
    frames_base: u32,
}

impl<F> LostPackets<F> {
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            frames: VecDeque::new(),
            frames_base: 0,
        }
    }

    /// Remembers a loss. Its frames must follow through `push_frame`.
    pub(crate) fn push(&mut self, packet_number: u64, entry: &SentEntry, now: Time) {
        if self.entries.len() >= MAX_LOST_REMEMBERED {
            self.pop_front();
        }
        self.entries.push_back(LostEntry {
            packet_number,
            lost_time: now,
            episode: 0,
            size: entry.size,
            frame_count: 0,
            frames_start: self.frames_base.wrapping_add(self.frames.len() as u32),
            acked: false,
        });
    }

    /// Adds a frame to the newest loss.
    pub(crate) fn push_frame(&mut self, frame: F) {
        if let Some(last) = self.entries.back_mut() {
            last.frame_count = last.frame_count.saturating_add(1);
            self.frames.push_back(Some(frame));
        }
    }

    /// Files the newest `count` losses under a congestion episode.
    pub(crate) fn assign_episode(&mut self, count: usize, episode: u64) {
        for entry in self.entries.iter_mut().rev().take(count) {
            entry.episode = episode;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The lowest remembered number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.packet_number)
    }

    /// Hands out every loss within `low..=high` that is acknowledged for the first time.
    pub(crate) fn acknowledge(
        &mut self,
        low: u64,
        high: u64,
        mut each: impl FnMut(&LostEntry),
        mut deliver: impl FnMut(u64, F),
    ) {
        let from = self
            .entries
            .partition_point(|entry| entry.packet_number < low);
        for entry in self.entries.range_mut(from..) {
            if entry.packet_number > high {
                break;
            }
            if core::mem::replace(&mut entry.acked, true) {
                continue;
            }
            each(entry);
            let start = entry.frames_start.wrapping_sub(self.frames_base) as usize;
            for index in start..start + usize::from(entry.frame_count) {
                if let Some(frame) = self.frames.get_mut(index).and_then(Option::take) {
                    deliver(entry.packet_number, frame);
                }
            }
        }
    }

    /// Forgets losses whose acknowledgement arrived and those declared at or before `expired`.
    pub(crate) fn expire(&mut self, is_expired: impl Fn(Time) -> bool) {
        while let Some(front) = self.entries.front() {
            if !front.acked && !is_expired(front.lost_time) {
                break;
            }
            self.pop_front();
        }
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.entries.shrink_to_fit();
        self.frames.shrink_to_fit();
    }

    /// Bytes of memory it has reserved.
    pub(crate) fn held(&self) -> usize {
        self.entries.capacity() * size_of::<LostEntry>()
            + self.frames.capacity() * size_of::<Option<F>>()
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            for _ in 0..entry.frame_count {
                self.frames.pop_front();
                self.frames_base = self.frames_base.wrapping_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
