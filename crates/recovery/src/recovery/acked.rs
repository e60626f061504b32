//! Totals of what one ACK frame acknowledges, filled while its ranges are walked.

use core::time::Duration;

use towline_wire::Time;

use super::interface::AckSummary;
use crate::path::PathId;
use crate::sent::SentEntry;

/// Totals of the packets an ACK newly acknowledges. What the controller is told is of the path in use.
#[derive(Default)]
pub(super) struct Acked {
    pub(super) packets: u64,
    pub(super) in_flight_packets: u64,
    pub(super) bytes: u64,
    /// Bytes in flight on other paths.
    pub(super) bytes_elsewhere: u64,
    pub(super) bytes_after_recovery: u64,
    pub(super) ack_eliciting: u64,
    /// Bytes of the largest packet.
    pub(super) largest_size: u16,
    /// The probe for a larger datagram is among them.
    pub(super) mtu_probe: bool,
    /// The largest number of all, and of those in flight on this path.
    pub(super) newest: Option<(u64, SentEntry)>,
    pub(super) newest_in_flight: Option<(u64, SentEntry)>,
    /// Packets that were marked ECT(0).
    pub(super) marked: u64,
    pub(super) late_packets: u32,
    pub(super) late_bytes: u64,
    pub(super) late_in_episode: u64,
    /// The longest age of those that were declared lost by the thresholds in force.
    pub(super) late_by: Option<Duration>,
    /// Ranges, and records looked at.
    pub(super) work: u32,
}

impl Acked {
    /// What the connection is told of them.
    pub(super) fn summary(&self) -> AckSummary {
        AckSummary {
            newly_acked_packets: self.packets,
            newly_acked_bytes: self.bytes + self.bytes_elsewhere,
            includes_ack_eliciting: self.ack_eliciting > 0,
            largest_newly_acked: self.newest.map(|(packet_number, _)| packet_number),
            largest_sent_time: self.newest.map(|(_, entry)| entry.sent_time),
            spurious: self.late_packets,
            work: self.work,
            work_in_vain: self.work_in_vain(),
            ..AckSummary::default()
        }
    }

    fn work_in_vain(&self) -> u32 {
        let settled = self.packets + u64::from(self.late_packets);
        self.work
            .saturating_sub(u32::try_from(settled).unwrap_or(u32::MAX))
    }

    /// Counts one packet that was not acknowledged before.
    pub(super) fn add(
        &mut self,
        packet_number: u64,
        entry: SentEntry,
        path: PathId,
        recovery_start: Option<Time>,
    ) {
        self.packets += 1;
        self.ack_eliciting += u64::from(entry.ack_eliciting());
        if self.newest.is_none_or(|(newest, _)| packet_number > newest) {
            self.newest = Some((packet_number, entry));
        }
        if entry.path != path {
            self.bytes_elsewhere += u64::from(entry.size) * u64::from(entry.in_flight());
            return;
        }
        self.marked += u64::from(entry.marked());
        if entry.in_flight() {
            self.in_flight_packets += 1;
            self.bytes += u64::from(entry.size);
            self.largest_size = self.largest_size.max(entry.size);
            if recovery_start.is_none_or(|start| entry.sent_time > start) {
                self.bytes_after_recovery += u64::from(entry.size);
            }
            if self
                .newest_in_flight
                .is_none_or(|(newest, _)| packet_number > newest)
            {
                self.newest_in_flight = Some((packet_number, entry));
            }
        }
    }
}
