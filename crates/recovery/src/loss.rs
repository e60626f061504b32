//! Loss detection in one packet number space: packet and time threshold (RFC 9002 §6.1, §6.1.1).
//!
//! `Space` owns what is per space: packets in flight, packets that only acknowledge, remembered
//! losses, skipped numbers. `Recovery` calls `detect_lost` after each ACK and when the loss time
//! passes, and settles the bytes of the batch it fills. Both thresholds are monotone in the packet
//! number, so detection takes packets off the front and stops at the first that is not lost.

use core::ops::{Range, RangeInclusive};
use core::time::Duration;

use towline_wire::{PacketNumberSpace, Time};

use crate::bandwidth::Snapshot;
use crate::congestion::LostPacket;
use crate::ecn::SpaceCounts;
use crate::path::PathId;
use crate::persistent_congestion::LossRun;
use crate::recovery::{FrameOwner, Loss, LossTrigger};
use crate::reordering::Thresholds;
use crate::sent::{LostPackets, Sent, SentEntry, SentRing};
use crate::skipped::SkippedNumbers;

/// Cap: packets remembered that carry nothing in flight. A peer need not acknowledge them, and a
/// receiver sends little else: beyond this number it forgets the oldest, whatever else is in flight.
pub(crate) const MAX_UNANSWERED_ACKS: usize = 1024;

/// One packet number space.
#[derive(Clone, Debug)]
pub(crate) struct Space<F> {
    /// The number the next packet gets.
    next: u64,
    /// Which numbers are never sent.
    skipped: Option<Box<SkippedNumbers>>,
    /// From behind the last number that was left out to the next one: what is asked of mostly lies in it.
    unbroken: Range<u64>,
    /// Packets in flight.
    pub(crate) ring: SentRing<F>,
    /// Packets with acknowledgements only.
    unanswered: SentRing<F>,
    pub(crate) lost: LostPackets<F>,
    pub(crate) largest_acked: Option<u64>,
    pub(crate) last_ack_eliciting_sent: Option<Time>,
    pub(crate) ack_eliciting_in_flight: u64,
    /// When the oldest packet in flight below `largest_acked` was sent: it is lost one loss delay
    /// later.
    pub(crate) loss_candidate: Option<Time>,
    pub(crate) probes_owed: u8,
    pub(crate) ecn: SpaceCounts,
    pub(crate) run: LossRun,
    /// Send time of the newest packet acknowledged.
    pub(crate) newest_acked_sent: Option<Time>,
}

/// What one pass of loss detection found: packets of the path in use, and others.
#[derive(Debug, Default)]
pub(crate) struct LossBatch {
    pub(crate) bytes: u64,
    pub(crate) ranges: u32,
    pub(crate) packets: Vec<LostPacket>,
    /// Sent on another path: they say nothing of this one.
    pub(crate) elsewhere: Vec<LostPacket>,
    /// Those of `packets` that were marked ECT(0).
    pub(crate) marked: u64,
    /// The longest run of losses these packets are part of: when it began and how long it is.
    pub(crate) longest_run: Option<(Time, Duration)>,
    /// Whose packets they are.
    pub(crate) space: Option<PacketNumberSpace>,
    /// The largest number that was lost because so many later ones were acknowledged.
    pub(crate) by_count: Option<u64>,
    /// The packet that looked for a larger datagram: its loss is no sign of congestion (RFC 9000
    /// §14.4).
    pub(crate) mtu_probe: Option<u64>,
    /// Bytes of that packet, if it was lost.
    pub(crate) mtu_probe_lost: Option<u16>,
}

impl LossBatch {
    pub(crate) fn clear(&mut self) {
        self.bytes = 0;
        self.ranges = 0;
        self.packets.clear();
        self.elsewhere.clear();
        self.marked = 0;
        self.longest_run = None;
        self.space = None;
        self.by_count = None;
        self.mtu_probe = None;
        self.mtu_probe_lost = None;
    }

    /// Empties it for a pass over `space`; `mtu_probe` is an application packet.
    pub(crate) fn begin(&mut self, space: PacketNumberSpace, mtu_probe: Option<u64>) {
        self.clear();
        self.space = Some(space);
        self.mtu_probe = mtu_probe.filter(|_| space == PacketNumberSpace::Application);
    }

    /// Whether nothing was lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.elsewhere.is_empty()
    }

    /// Bytes of memory it holds, itself included.
    pub(crate) fn held(&self) -> usize {
        let packets = self.packets.capacity() + self.elsewhere.capacity();
        size_of::<Self>() + packets * size_of::<LostPacket>()
    }

    /// Bytes of the smallest packet.
    pub(crate) fn smallest(&self) -> u16 {
        let sizes = self.packets.iter().map(|packet| packet.size);
        sizes.min().unwrap_or(0)
    }

    /// Each packet, with why it counts as lost.
    #[inline]
    pub(crate) fn losses(&self) -> impl Iterator<Item = Loss> + '_ {
        let by_count = self.by_count;
        let loss = move |space, packet: &LostPacket| Loss {
            space,
            packet_number: packet.packet_number,
            size: packet.size,
            trigger: match by_count {
                Some(most) if packet.packet_number <= most => LossTrigger::Reordering,
                _ => LossTrigger::Time,
            },
        };
        let (here, elsewhere) = (&self.packets, &self.elsewhere);
        self.space.into_iter().flat_map(move |space| {
            let packets = here.iter().chain(elsewhere);
            packets.map(move |packet| loss(space, packet))
        })
    }
}

impl<F: Clone> Space<F> {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            skipped: None,
            unbroken: 0..u64::MAX,
            ring: SentRing::new(),
            unanswered: SentRing::new(),
            lost: LostPackets::new(),
            largest_acked: None,
            last_ack_eliciting_sent: None,
            ack_eliciting_in_flight: 0,
            loss_candidate: None,
            probes_owed: 0,
            ecn: SpaceCounts::default(),
            run: LossRun::default(),
            newest_acked_sent: None,
        }
    }

    /// A space that leaves out the numbers of a schedule.
    pub(crate) fn skipping(key: u64) -> Self {
        let skipped = SkippedNumbers::new(key);
        Self {
            unbroken: 0..skipped.upcoming(),
            skipped: Some(Box::new(skipped)),
            ..Self::new()
        }
    }

    /// The number the next packet gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Packets whose fate is not known.
    pub(crate) fn tracked(&self) -> usize {
        self.ring.len() + self.unanswered.len()
    }

    /// The lowest number in `range` that no packet was sent with.
    pub(crate) fn never_sent(&self, range: &RangeInclusive<u64>) -> Option<u64> {
        if *range.end() >= self.next {
            return Some(self.next.max(*range.start()));
        }
        if *range.start() >= self.unbroken.start {
            return None;
        }
        self.skipped.as_ref()?.first_in(range)
    }

    /// Records a packet; drains `frames`. Returns its number.
    pub(crate) fn push(&mut self, sent: Sent, snapshot: Snapshot, frames: &mut Vec<F>) -> u64 {
        let packet_number = self.next;
        self.next += 1;
        if self.next == self.unbroken.end
            && let Some(skipped) = &mut self.skipped
        {
            while skipped.leaves_out(self.next) {
                self.next += 1;
            }
            self.unbroken = self.next..skipped.upcoming();
        }
        if sent.in_flight {
            self.ring.push(packet_number, sent, snapshot, frames);
        } else {
            if self.unanswered.len() >= MAX_UNANSWERED_ACKS
                && self
                    .unanswered
                    .pop_front(|_| ())
                    .is_some_and(|entry| !entry.is_outstanding())
            {
                // Rather no persistent congestion than a wrong one.
                self.run.cut();
            }
            self.unanswered.push(packet_number, sent, snapshot, frames);
        }
        packet_number
    }

    /// Takes an acknowledged range: `each` is told every packet in it that is so for the first
    /// time. Returns the work done, in records looked at.
    pub(crate) fn acknowledge(
        &mut self,
        range: &RangeInclusive<u64>,
        mut each: impl FnMut(&SentEntry),
        owner: &mut impl FrameOwner<F>,
    ) -> u32 {
        let mut deliver = |packet_number, frame| owner.on_acked(packet_number, frame);
        let in_flight = self.ring.acknowledge(range, &mut each, &mut deliver);
        in_flight + self.unanswered.acknowledge(range, each, deliver)
    }

    /// The rate snapshot of a packet that is still in the space.
    pub(crate) fn snapshot(&self, entry: &SentEntry) -> Snapshot {
        match entry.in_flight() {
            true => self.ring.snapshot(entry),
            false => self.unanswered.snapshot(entry),
        }
    }

    /// Takes lost packets off the front, returns their frames to `owner`, finds the next candidate.
    /// `path` is the one in use. Returns the work done, in packets taken off.
    pub(crate) fn detect_lost(
        &mut self,
        now: Time,
        path: PathId,
        thresholds: Thresholds,
        first_rtt_sample: Option<Time>,
        batch: &mut LossBatch,
        owner: &mut impl FrameOwner<F>,
    ) -> u32 {
        self.loss_candidate = None;
        let Some(largest_acked) = self.largest_acked else {
            return 0;
        };
        let by_count = thresholds
            .packets
            .and_then(|packets| self.packet_threshold(largest_acked, packets));
        batch.by_count = by_count;
        let is_lost = |entry: &SentEntry| {
            by_count.is_some_and(|number| entry.packet_number <= number)
                || entry.sent_time + thresholds.delay <= now
        };
        let mut previous = None;
        let mut work = 0;
        while let Some(entry) = self.ring.front() {
            if entry.packet_number > largest_acked {
                break;
            }
            let entry = *entry;
            if entry.is_outstanding() && !is_lost(&entry) {
                self.loss_candidate = Some(entry.sent_time);
                break;
            }
            work += 1 + self.settle_unanswered(entry.packet_number, is_lost, owner);
            if !entry.is_outstanding() {
                self.run.cut();
                self.ring.pop_front(|_| ());
                continue;
            }
            let packet_number = entry.packet_number;
            if batch.mtu_probe == Some(packet_number) {
                self.take_off_mtu_probe(&entry, batch, owner);
                continue;
            }
            let packet = lost_packet(&entry, self.ring.snapshot(&entry));
            let lost = &mut self.lost;
            lost.push(&entry, now, thresholds.widened);
            self.ring.pop_front(|frame| {
                owner.on_lost(packet_number, frame.clone());
                lost.push_frame(frame);
            });
            let here = entry.path == path;
            if entry.ack_eliciting() {
                self.ack_eliciting_in_flight -= 1;
                if here && first_rtt_sample.is_some_and(|first| entry.sent_time > first) {
                    let run = self.run.on_lost(packet_number, entry.sent_time);
                    if batch
                        .longest_run
                        .is_none_or(|(_, longest)| run.1 >= longest)
                    {
                        batch.longest_run = Some(run);
                    }
                }
            }
            if !here {
                batch.elsewhere.push(packet);
                continue;
            }
            if previous != packet_number.checked_sub(1) || previous.is_none() {
                batch.ranges += 1;
            }
            previous = Some(packet_number);
            batch.bytes += u64::from(entry.size);
            batch.marked += u64::from(entry.marked());
            batch.packets.push(packet);
        }
        let below = largest_acked.saturating_add(1);
        work + self.settle_unanswered(below, is_lost, owner)
    }

    /// Takes the probe for a larger datagram off the front: it is lost, and nothing follows from that
    /// but what is learnt of its size.
    fn take_off_mtu_probe(
        &mut self,
        entry: &SentEntry,
        batch: &mut LossBatch,
        owner: &mut impl FrameOwner<F>,
    ) {
        batch.mtu_probe_lost = Some(entry.size);
        batch.marked += u64::from(entry.marked());
        self.ack_eliciting_in_flight -= 1;
        self.ring
            .pop_front(|frame| owner.on_lost(entry.packet_number, frame));
    }

    /// Offers the frames of the oldest packets in flight to as many probes, each of `datagram` bytes:
    /// what they are for has to fit them.
    pub(crate) fn offer_oldest(&self, probes: u8, datagram: u16, owner: &mut impl FrameOwner<F>) {
        let oldest = self
            .ring
            .iter()
            .filter(|entry| entry.is_outstanding() && entry.ack_eliciting());
        let mut room = u32::from(probes) * u32::from(datagram);
        for (at, entry) in oldest.take(usize::from(probes)).enumerate() {
            let size = u32::from(entry.size);
            if at > 0 && size > room {
                break;
            }
            room = room.saturating_sub(size);
            for frame in self.ring.frames(entry) {
                owner.on_probe(frame.clone());
            }
        }
    }

    /// Takes packets with acknowledgements only, numbered below `below`, off the front: nothing is
    /// lost with them that counts (RFC 9002 §2), but an acknowledged one ends a run of losses.
    fn settle_unanswered(
        &mut self,
        below: u64,
        is_lost: impl Fn(&SentEntry) -> bool,
        owner: &mut impl FrameOwner<F>,
    ) -> u32 {
        let mut work = 0;
        while let Some(entry) = self.unanswered.front() {
            if entry.packet_number >= below || (entry.is_outstanding() && !is_lost(entry)) {
                break;
            }
            if !entry.is_outstanding() {
                self.run.cut();
            }
            let packet_number = entry.packet_number;
            self.unanswered
                .pop_front(|frame| owner.on_lost(packet_number, frame));
            work += 1;
        }
        work
    }

    /// The largest number that is lost because so many later ones were sent up to `largest_acked`.
    /// Numbers we skipped were never sent and do not count.
    fn packet_threshold(&self, largest_acked: u64, packets: u64) -> Option<u64> {
        let number = largest_acked.checked_sub(packets)?;
        let is_skipped = |range: RangeInclusive<u64>| {
            let skipped = self.skipped.as_ref();
            *range.start() < self.unbroken.start
                && skipped.is_some_and(|skipped| skipped.first_in(&range).is_some())
        };
        if !is_skipped(number + 1..=largest_acked) {
            return Some(number);
        }
        let mut later = 0;
        let mut packet_number = largest_acked;
        loop {
            later += u64::from(!is_skipped(packet_number..=packet_number));
            packet_number = packet_number.checked_sub(1)?;
            if later == packets {
                return Some(packet_number);
            }
        }
    }

    /// Bytes of a packet that is in flight on a path.
    pub(crate) fn size_in_flight(&self, path: PathId, packet_number: u64) -> Option<u16> {
        let entry = self.ring.get(packet_number)?;
        (entry.is_outstanding() && entry.path == path).then_some(entry.size)
    }

    /// Bytes in flight that were sent on a path.
    pub(crate) fn bytes_in_flight(&self, path: PathId) -> u64 {
        let entries = self.ring.iter();
        entries
            .filter(|entry| entry.is_outstanding() && entry.path == path)
            .map(|entry| u64::from(entry.size))
            .sum()
    }

    /// Takes everything out without calling it lost; hands out the frames and returns the bytes
    /// that were in flight on `path`.
    pub(crate) fn clear(&mut self, path: PathId, mut deliver: impl FnMut(u64, F)) -> u64 {
        let mut in_flight = 0;
        while let Some(entry) = self.ring.front() {
            let packet_number = entry.packet_number;
            if entry.is_outstanding() && entry.path == path {
                in_flight += u64::from(entry.size);
            }
            self.ring.pop_front(|frame| deliver(packet_number, frame));
        }
        while let Some(entry) = self.unanswered.front() {
            let packet_number = entry.packet_number;
            self.unanswered
                .pop_front(|frame| deliver(packet_number, frame));
        }
        self.lost = LostPackets::new();
        self.last_ack_eliciting_sent = None;
        self.ack_eliciting_in_flight = 0;
        self.loss_candidate = None;
        self.probes_owed = 0;
        self.run = LossRun::default();
        in_flight
    }

    #[cfg(test)]
    pub(crate) fn is_outstanding(&self, packet_number: u64) -> bool {
        let mut entries = self.ring.iter().chain(self.unanswered.iter());
        entries.any(|entry| entry.packet_number == packet_number && entry.is_outstanding())
    }

    /// Bytes held for packets whose fate is not known and for remembered losses.
    pub(crate) fn held(&self) -> usize {
        self.ring.held() + self.unanswered.held() + self.lost.held()
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.ring.trim();
        self.unanswered.trim();
        self.lost.trim();
    }
}

/// What the controller is told of a lost packet.
fn lost_packet(entry: &SentEntry, snapshot: Snapshot) -> LostPacket {
    LostPacket {
        packet_number: entry.packet_number,
        size: entry.size,
        sent_time: entry.sent_time,
        delivered: snapshot.delivered,
        lost: snapshot.lost,
        tx_in_flight: snapshot.tx_in_flight,
        app_limited: snapshot.app_limited,
    }
}

#[cfg(test)]
mod tests;
