//! Loss detection in one packet number space: packet and time threshold (RFC 9002 §6.1, §6.1.1).
//!
//! `Space` owns what is per space: the ring, the remembered losses, the next candidate. `Recovery`
//! calls `detect_lost` after each ACK and when the loss time passes, and settles the bytes of the
//! batch it fills. Both thresholds are monotone in the packet number, so detection takes packets
//! off the front of the ring and stops at the first that is not lost.

use core::time::Duration;

use towline_wire::Time;

use crate::congestion::LostPacket;
use crate::ecn::SpaceCounts;
use crate::persistent_congestion::LossRun;
use crate::recovery::FrameOwner;
use crate::sent::{LostPackets, SentRing, State};

/// RFC 9002's `kPacketThreshold`.
const PACKET_THRESHOLD: u64 = 3;

/// Cap: packets kept in a ring whose oldest carries nothing in flight. A receiver that only sends ACKs
/// may never get one acknowledged; beyond this number it forgets the oldest.
const MAX_UNANSWERED_ACKS: usize = 1024;

/// One packet number space.
#[derive(Clone, Debug)]
pub(crate) struct Space<F> {
    pub(crate) ring: SentRing<F>,
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

/// What one pass of loss detection found.
#[derive(Debug, Default)]
pub(crate) struct LossBatch {
    pub(crate) bytes: u64,
    pub(crate) ranges: u32,
    pub(crate) packets: Vec<LostPacket>,
    /// Those of them that were marked ECT(0).
    pub(crate) marked: u64,
    /// The longest run of losses these packets are part of: when it began and how long it is.
    pub(crate) longest_run: Option<(Time, Duration)>,
}

impl LossBatch {
    pub(crate) fn clear(&mut self) {
        self.bytes = 0;
        self.ranges = 0;
        self.packets.clear();
        self.marked = 0;
        self.longest_run = None;
    }
}

impl<F: Clone> Space<F> {
    pub(crate) fn new() -> Self {
        Self {
            ring: SentRing::new(),
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

    /// Takes lost packets off the ring, returns their frames to `owner`, finds the next candidate.
    pub(crate) fn detect_lost(
        &mut self,
        now: Time,
        loss_delay: Duration,
        first_rtt_sample: Option<Time>,
        batch: &mut LossBatch,
        owner: &mut impl FrameOwner<F>,
    ) {
        self.loss_candidate = None;
        let Some(largest_acked) = self.largest_acked else {
            return;
        };
        let threshold = self.packet_threshold(largest_acked);
        let mut previous = None;
        while let Some((packet_number, entry)) = self.ring.front() {
            if packet_number > largest_acked {
                break;
            }
            match entry.state {
                State::Acked => {
                    self.run.cut();
                    self.ring.pop_front(|_| ());
                    continue;
                }
                State::Skipped => {
                    self.ring.pop_front(|_| ());
                    continue;
                }
                State::Outstanding => {}
            }
            let by_count = threshold.is_some_and(|threshold| packet_number <= threshold);
            if !by_count && entry.sent_time + loss_delay > now {
                break;
            }
            let entry = *entry;
            if !entry.in_flight {
                // Acknowledgements only: nothing was lost that counts (RFC 9002 §2).
                self.ring
                    .pop_front(|frame| owner.on_lost(packet_number, frame));
                continue;
            }
            let snapshot = self.ring.snapshot(&entry);
            let lost = &mut self.lost;
            lost.push(packet_number, &entry, now);
            self.ring.pop_front(|frame| {
                owner.on_lost(packet_number, frame.clone());
                lost.push_frame(frame);
            });
            if entry.ack_eliciting {
                self.ack_eliciting_in_flight -= 1;
                if first_rtt_sample.is_some_and(|first| entry.sent_time > first) {
                    let run = self.run.on_lost(packet_number, entry.sent_time);
                    if batch
                        .longest_run
                        .is_none_or(|(_, longest)| run.1 >= longest)
                    {
                        batch.longest_run = Some(run);
                    }
                }
            }
            if previous != packet_number.checked_sub(1) || previous.is_none() {
                batch.ranges += 1;
            }
            previous = Some(packet_number);
            batch.bytes += u64::from(entry.size);
            batch.marked += u64::from(entry.marked);
            batch.packets.push(LostPacket {
                packet_number,
                size: entry.size,
                sent_time: entry.sent_time,
                delivered: snapshot.delivered,
                lost: snapshot.lost,
                tx_in_flight: snapshot.tx_in_flight,
                app_limited: snapshot.app_limited,
            });
        }
        self.loss_candidate = self
            .ring
            .iter()
            .take_while(|(packet_number, _)| *packet_number < largest_acked)
            .find(|(_, entry)| entry.is_outstanding() && entry.in_flight)
            .map(|(_, entry)| entry.sent_time);
    }

    /// The largest number that is lost because three later ones were sent up to `largest_acked`.
    /// Numbers we skipped were never sent and do not count.
    fn packet_threshold(&self, largest_acked: u64) -> Option<u64> {
        let mut later = 0;
        let mut packet_number = largest_acked;
        loop {
            let skipped = self
                .ring
                .get(packet_number)
                .is_some_and(|entry| entry.state == State::Skipped);
            later += u64::from(!skipped);
            packet_number = packet_number.checked_sub(1)?;
            if later == PACKET_THRESHOLD {
                return Some(packet_number);
            }
        }
    }

    /// Forgets the oldest packets that hold nothing in flight, beyond a bound.
    pub(crate) fn forget_unanswered_acks(&mut self) {
        while self.ring.len() > MAX_UNANSWERED_ACKS
            && self.ring.front().is_some_and(|(_, front)| !front.in_flight)
        {
            self.ring.pop_front(|_| ());
        }
    }

    /// Takes everything off the ring without calling it lost; hands out the frames and returns the
    /// bytes that were in flight.
    pub(crate) fn clear(&mut self, mut deliver: impl FnMut(u64, F)) -> u64 {
        let mut in_flight = 0;
        while let Some((packet_number, entry)) = self.ring.front() {
            if entry.is_outstanding() && entry.in_flight {
                in_flight += u64::from(entry.size);
            }
            self.ring.pop_front(|frame| deliver(packet_number, frame));
        }
        self.lost = LostPackets::new();
        self.last_ack_eliciting_sent = None;
        self.ack_eliciting_in_flight = 0;
        self.loss_candidate = None;
        self.probes_owed = 0;
        self.run = LossRun::default();
        in_flight
    }
}

#[cfg(test)]
mod tests;
