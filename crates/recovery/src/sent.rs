//! What was sent and is not yet settled: queues of small records, lowest packet number first.
//!
//! A space has two `SentRing`s, one of packets in flight and one of those that only acknowledge;
//! a packet leaves at the front once it is acknowledged or lost. Losses are always found at the
//! front, because both thresholds are monotone in the packet number. `LostPackets` remembers
//! declared losses for a while, so that a late acknowledgement is seen as spurious loss. What was
//! acknowledged behind something that was not is stepped over in one go, however often a peer
//! claims it. Frames of all packets lie in one queue beside each; nothing is allocated per packet.

use core::ops::RangeInclusive;
use std::collections::VecDeque;

use towline_wire::Time;

use crate::bandwidth::Snapshot;
use crate::path::PathId;

/// Cap: declared losses remembered per packet number space; the oldest are forgotten beyond it.
pub const MAX_LOST_REMEMBERED: usize = 4096;

/// A record in a queue that ACK ranges are held against.
trait Claimed: Copy {
    fn packet_number(&self) -> u64;
    /// If it was acknowledged: a number of records, this one first, that all were.
    fn run(&self) -> Option<u32>;
    /// Marks it acknowledged, or says more of the run.
    fn set_run(&mut self, records: u32);
}

/// Marks everything in `range` acknowledged; `each` sees what was not before. Returns the work done
/// in records looked at: one for each that is new, and for a run of others about one, because the
/// steps that a walk takes through a run become one step.
fn claim<E: Claimed>(
    entries: &mut VecDeque<E>,
    range: &RangeInclusive<u64>,
    mut each: impl FnMut(E),
) -> u32 {
    let (Some(first), Some(last)) = (entries.front(), entries.back()) else {
        return 0;
    };
    let (first, last) = (first.packet_number(), last.packet_number());
    let (low, high) = (*range.start(), *range.end());
    if high < first || low > last {
        return 0;
    }
    let mut work = 0;
    let mut place = |entries: &VecDeque<E>, number: u64| {
        work += entries.len().ilog2();
        entries.partition_point(|entry| entry.packet_number() < number)
    };
    let from = match low <= first {
        true => 0,
        false => place(entries, low),
    };
    let end = match high >= last {
        true => entries.len(),
        false => place(entries, high + 1),
    };
    let mut index = from;
    while index < end {
        let Some(entry) = entries.get_mut(index) else {
            break;
        };
        work += 1;
        if entry.run().is_some() {
            index = after_run(entries, index, &mut work);
            continue;
        }
        let found = *entry;
        entry.set_run(u32::try_from(end - index).unwrap_or(1));
        each(found);
        index += 1;
    }
    work
}

/// The place of the first record after the run at `from`; shortens the way there for the next time.
fn after_run<E: Claimed>(entries: &mut VecDeque<E>, from: usize, work: &mut u32) -> usize {
    let run = |entries: &VecDeque<E>, at: usize| {
        let run = entries.get(at).and_then(Claimed::run);
        run.map(|records| at + records as usize)
    };
    let mut end = from;
    while let Some(next) = run(entries, end) {
        end = next;
        *work += 1;
    }
    let mut at = from;
    while let Some(next) = run(entries, at).filter(|next| *next < end) {
        entries[at].set_run(u32::try_from(end - at).unwrap_or(1));
        at = next;
    }
    end
}

/// One packet: 32 bytes, no payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentEntry {
    pub(crate) packet_number: u64,
    pub(crate) sent_time: Time,
    /// Running index of its first frame (wraps); once acknowledged, the length of the run.
    link: u32,
    /// Running index of its train's snapshot (wraps).
    snapshot: u32,
    pub(crate) size: u16,
    frame_count: u16,
    /// The path it was sent on.
    pub(crate) path: PathId,
    acked: bool,
    /// `ACK_ELICITING`, `IN_FLIGHT` and `MARKED`.
    kind: u8,
}

const ACK_ELICITING: u8 = 1;
const IN_FLIGHT: u8 = 2;
const MARKED: u8 = 4;

const _: () = assert!(size_of::<SentEntry>() <= 32);

impl SentEntry {
    pub(crate) fn is_outstanding(&self) -> bool {
        !self.acked
    }

    pub(crate) fn ack_eliciting(&self) -> bool {
        self.kind & ACK_ELICITING != 0
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.kind & IN_FLIGHT != 0
    }

    /// Sent with ECT(0).
    pub(crate) fn marked(&self) -> bool {
        self.kind & MARKED != 0
    }
}

impl Claimed for SentEntry {
    fn packet_number(&self) -> u64 {
        self.packet_number
    }

    fn run(&self) -> Option<u32> {
        self.acked.then_some(self.link)
    }

    fn set_run(&mut self, records: u32) {
        self.acked = true;
        self.link = records;
    }
}

/// Packets of one space with their frames and rate snapshots.
#[derive(Clone, Debug)]
pub(crate) struct SentRing<F> {
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
    pub(crate) path: PathId,
    pub(crate) size: u16,
    pub(crate) ack_eliciting: bool,
    pub(crate) in_flight: bool,
    pub(crate) marked: bool,
}

impl<F> SentRing<F> {
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            frames: VecDeque::new(),
            frames_base: 0,
            snapshots: VecDeque::new(),
            snapshots_base: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends a packet, whose number is above all others; drains `frames`. Packets of one train
    /// share one snapshot.
    // Two rings call these three; without a word none of them is inlined, 100 instructions a packet.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        packet_number: u64,
        sent: Sent,
        snapshot: Snapshot,
        frames: &mut Vec<F>,
    ) {
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
            packet_number,
            sent_time,
            link: self.frames_base.wrapping_add(self.frames.len() as u32),
            snapshot: self
                .snapshots_base
                .wrapping_add(self.snapshots.len() as u32 - 1),
            size: sent.size,
            frame_count: u16::try_from(frames.len()).unwrap_or(u16::MAX),
            path: sent.path,
            acked: false,
            kind: u8::from(sent.ack_eliciting) * ACK_ELICITING
                + u8::from(sent.in_flight) * IN_FLIGHT
                + u8::from(sent.marked) * MARKED,
        };
        // A packet holds at most 65,527 bytes and so never more frames than the count can tell.
        frames.truncate(usize::from(u16::MAX));
        for frame in frames.drain(..) {
            self.frames.push_back(Some(frame));
        }
        self.entries.push_back(entry);
    }

    /// Marks every packet within `range` acknowledged: `each` is told those that were not before,
    /// `deliver` their frames. Returns the work done, in records looked at.
    #[inline(always)]
    pub(crate) fn acknowledge(
        &mut self,
        range: &RangeInclusive<u64>,
        mut each: impl FnMut(&SentEntry),
        mut deliver: impl FnMut(u64, F),
    ) -> u32 {
        let frames = &mut self.frames;
        let frames_base = self.frames_base;
        claim(&mut self.entries, range, |entry| {
            each(&entry);
            let start = entry.link.wrapping_sub(frames_base) as usize;
            for index in start..start + usize::from(entry.frame_count) {
                if let Some(frame) = frames.get_mut(index).and_then(Option::take) {
                    deliver(entry.packet_number, frame);
                }
            }
        })
    }

    /// The packet with this number, acknowledged or not.
    pub(crate) fn get(&self, packet_number: u64) -> Option<&SentEntry> {
        let place = self
            .entries
            .partition_point(|entry| entry.packet_number < packet_number);
        let entry = self.entries.get(place)?;
        (entry.packet_number == packet_number).then_some(entry)
    }

    /// The oldest packet.
    pub(crate) fn front(&self) -> Option<&SentEntry> {
        self.entries.front()
    }

    /// Removes the oldest packet and hands out those of its frames that are still there.
    #[inline(always)]
    pub(crate) fn pop_front(&mut self, mut deliver: impl FnMut(F)) -> Option<SentEntry> {
        let entry = self.entries.pop_front()?;
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
        let start = entry.link.wrapping_sub(self.frames_base) as usize;
        self.frames
            .range(start..start + usize::from(entry.frame_count))
            .filter_map(Option::as_ref)
    }

    /// Bytes held for packets, frames and snapshots.
    pub(crate) fn held(&self) -> usize {
        self.entries.capacity() * size_of::<SentEntry>()
            + self.frames.capacity() * size_of::<Option<F>>()
            + self.snapshots.capacity() * size_of::<Snapshot>()
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.entries.shrink_to_fit();
        self.frames.shrink_to_fit();
        self.snapshots.shrink_to_fit();
    }

    /// All packets from the lowest number up.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SentEntry> {
        self.entries.iter()
    }
}

/// A packet declared lost, kept until its acknowledgement can no longer come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostEntry {
    pub(crate) packet_number: u64,
    pub(crate) sent_time: Time,
    pub(crate) lost_time: Time,
    /// The congestion episode the loss belongs to.
    pub(crate) episode: u64,
    /// How often the thresholds of loss detection had been widened when it was declared.
    pub(crate) widened: u32,
    /// As in `SentEntry`.
    link: u32,
    pub(crate) size: u16,
    frame_count: u16,
    /// The path it was sent on.
    pub(crate) path: PathId,
    acked: bool,
}

impl Claimed for LostEntry {
    fn packet_number(&self) -> u64 {
        self.packet_number
    }

    fn run(&self) -> Option<u32> {
        self.acked.then_some(self.link)
    }

    fn set_run(&mut self, records: u32) {
        self.acked = true;
        self.link = records;
    }
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

    /// Remembers a loss, declared at `now` after thresholds had been widened so often. Its frames
    /// must follow through `push_frame`.
    pub(crate) fn push(&mut self, entry: &SentEntry, now: Time, widened: u32) {
        if self.entries.len() >= MAX_LOST_REMEMBERED {
            self.pop_front();
        }
        self.entries.push_back(LostEntry {
            packet_number: entry.packet_number,
            sent_time: entry.sent_time,
            lost_time: now,
            episode: 0,
            widened,
            link: self.frames_base.wrapping_add(self.frames.len() as u32),
            size: entry.size,
            frame_count: 0,
            path: entry.path,
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

    /// Hands out every loss within `range` that is acknowledged for the first time. Returns the
    /// work done, in records looked at.
    pub(crate) fn acknowledge(
        &mut self,
        range: &RangeInclusive<u64>,
        mut each: impl FnMut(&LostEntry),
        mut deliver: impl FnMut(u64, F),
    ) -> u32 {
        let frames = &mut self.frames;
        let frames_base = self.frames_base;
        claim(&mut self.entries, range, |entry| {
            each(&entry);
            let start = entry.link.wrapping_sub(frames_base) as usize;
            for index in start..start + usize::from(entry.frame_count) {
                if let Some(frame) = frames.get_mut(index).and_then(Option::take) {
                    deliver(entry.packet_number, frame);
                }
            }
        })
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

    /// Bytes held for losses and their frames.
    pub(crate) fn held(&self) -> usize {
        self.entries.capacity() * size_of::<LostEntry>()
            + self.frames.capacity() * size_of::<Option<F>>()
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.entries.shrink_to_fit();
        self.frames.shrink_to_fit();
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
