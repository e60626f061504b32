//! What comes back: acknowledgements, expired timers, dropped keys. The order of an ACK:
//! 1. walk the ranges, give frames of newly acknowledged packets back;
//! 2. take the round-trip sample, if there is one;
//! 3. detect losses, give their frames back;
//! 4. tell the controller: spurious losses, losses, the ACK, then persistent congestion, each at
//!    most once.
//!
//! Every byte that leaves flight passes `Flight::settle`, and none twice.

use core::ops::RangeInclusive;
use core::time::Duration;

use towline_wire::{EcnCounts, PacketNumberSpace, Side, Time};

use super::Recovery;
use super::acked::Acked;
use super::interface::{AckError, AckSummary, Expired, FrameOwner};
use crate::bandwidth::Snapshot;
use crate::congestion::{AckSample, CongestionController, LossSample};
use crate::loss::{LossBatch, Space};
use crate::path::PathState;
use crate::persistent_congestion;
use crate::pto::LossTimer;

/// Probes per expired PTO when there is data in flight (RFC 9002 §6.2.4 allows one or two).
const PROBES_PER_PTO: u8 = 2;

/// PTOs for which a lost packet is remembered.
const LOST_MEMORY_PTOS: u32 = 3;

/// What an ACK measured, and the totals it did so with.
struct Measured<'a> {
    acked: &'a Acked,
    before: Before,
    /// When the newest packet was sent, and how the sampler stood then.
    newest: Option<(Time, Snapshot)>,
    /// The round trip, raw and less the peer's delay.
    rtt: Option<(Duration, Duration)>,
}

/// How things stood before an ACK or a timer was looked at.
#[derive(Clone, Copy)]
struct Before {
    bytes_in_flight: u64,
    cwnd_limited: bool,
    /// Bytes the same ACK delivered, not yet counted by the sampler.
    acked: u64,
}

impl<F: Clone> Recovery<F> {
    /// Takes an ACK frame: `ack_delay` scaled to time, `ranges` highest first.
    ///
    /// # Errors
    /// [`AckError::NeverSent`], after which the connection must close; part of the frame may have
    /// been taken.
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of an ACK frame, kept apart by type"
    )]
    pub fn on_ack_received(
        &mut self,
        path: &mut PathState,
        now: Time,
        space: PacketNumberSpace,
        largest: u64,
        ack_delay: Duration,
        ecn: Option<EcnCounts>,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        owner: &mut impl FrameOwner<F>,
    ) -> Result<AckSummary, AckError> {
        path.touch(now);
        let acked = self.walk_ranges(path, now, space, largest, ranges, owner)?;
        let mut summary = acked.summary();
        let before = Before {
            bytes_in_flight: path.flight.bytes(),
            cwnd_limited: path.flight.is_utilised(),
            acked: acked.bytes,
        };
        path.flight.settle(acked.bytes);

        let Some(state) = self.spaces.get_mut(space) else {
            return Ok(summary);
        };
        let raised = state.largest_acked.is_none_or(|old| largest > old);
        if raised {
            state.largest_acked = Some(largest);
        }
        let newest_sent = summary.largest_sent_time;
        state.newest_acked_sent = state.newest_acked_sent.max(newest_sent);
        // Rates are measured on packets in flight only: the others leave no trace in the sampler.
        let here = acked.newest.filter(|(_, entry)| entry.path == path.id);
        let newest = acked.newest_in_flight.or(here);
        let newest = newest.map(|(_, entry)| (entry.sent_time, state.snapshot(&entry)));
        let newest_is_largest = summary.largest_newly_acked == Some(largest);
        if raised {
            // A count in an ACK that raises nothing is old news (RFC 9000 §13.4.2.1); one whose
            // largest packet we no longer know has no send time to judge by.
            let marks = path.ecn.on_ack(&mut state.ecn, ecn, acked.marked);
            if newest_is_largest {
                summary.ce_marks = marks;
                self.counters.ce_marks += marks;
            }
        }

        // Karn's rule: only the largest, acknowledged for the first time, tells when this ACK was
        // provoked, and only an ack-eliciting packet provoked it (RFC 9002 §5.1). What was sent on
        // another path tells nothing of this one.
        let rtt = newest_sent
            .filter(|_| newest_is_largest && acked.ack_eliciting > 0 && here.is_some())
            .map(|sent| self.sample_rtt(path, now, space, sent, ack_delay));
        summary.rtt_sampled = rtt.is_some();

        if acked.packets > 0 || acked.late_packets > 0 {
            path.pto.on_progress(now);
            if let Some(state) = self.spaces.get_mut(space) {
                state.probes_owed = 0;
            }
        }
        self.on_late_acks(path, now, &acked);
        self.lose(path, now, space, before, &mut summary, owner);
        if space == PacketNumberSpace::Application {
            self.learn_sizes(path, now, &acked);
        }

        let measured = Measured {
            acked: &acked,
            before,
            newest,
            rtt,
        };
        self.tell_controller(path, now, &measured, &mut summary);
        if summary.persistent_congestion {
            // Last: what this ACK acknowledges was sent before the collapse and must not undo it.
            path.controller.on_persistent_congestion(now);
        }
        self.expire_lost(path, now, space);
        Ok(summary)
    }

    /// Delivery rate and round trip reach the controller, which may have had enough of CE marks.
    fn tell_controller(
        &mut self,
        path: &mut PathState,
        now: Time,
        measured: &Measured<'_>,
        summary: &mut AckSummary,
    ) {
        let Measured {
            acked, before, rtt, ..
        } = measured;
        let Some((sent_time, snapshot)) = measured.newest else {
            return;
        };
        if acked.bytes == 0 && summary.ce_marks == 0 {
            return;
        }
        let min_rtt = path.rtt.min().map_or(0, crate::rtt::nanos);
        let rate = path
            .sampler
            .on_ack(now, acked.bytes, sent_time, &snapshot, min_rtt);
        let reduced = path.controller.on_ack(&AckSample {
            now,
            acked_bytes: acked.bytes,
            acked_bytes_after_recovery: acked.bytes_after_recovery,
            acked_packets: acked.in_flight_packets,
            newest_sent_time: sent_time,
            bytes_in_flight_before: before.bytes_in_flight,
            bytes_in_flight: path.flight.bytes(),
            rtt: rtt.map(|(raw, _)| raw),
            adjusted_rtt: rtt.map(|(_, adjusted)| adjusted),
            smoothed_rtt: path.rtt.smoothed(),
            min_rtt: path.rtt.min(),
            delivered: path.sampler.delivered,
            prior_delivered: rate.prior_delivered,
            round: path.sampler.round,
            round_start: rate.round_start,
            delivery_rate: rate.rate,
            tx_in_flight: rate.tx_in_flight,
            lost_since_sent: rate.lost,
            app_limited: rate.app_limited,
            cwnd_limited: before.cwnd_limited,
            ce_marks: summary.ce_marks,
            one_way_delay: None,
        });
        if path.controller.is_holding_back() {
            path.sampler.on_app_limited(path.flight.bytes());
        }
        if reduced {
            // CE marks are never spurious.
            self.counters.congestion_events += 1;
            path.episode.on_reduced(0, None);
            summary.congestion_event = true;
        }
    }

    /// What an ACK of application packets says of datagram sizes, once its losses are known.
    fn learn_sizes(&mut self, path: &mut PathState, now: Time, acked: &Acked) {
        if acked.mtu_probe {
            path.mtu.on_probe_acked(now);
            path.on_datagram_size();
        }
        if path.mtu.on_acked(now, acked.largest_size) {
            self.counters.black_holes_detected += 1;
            path.on_datagram_size();
        }
    }

    fn walk_ranges(
        &mut self,
        path: &mut PathState,
        now: Time,
        space: PacketNumberSpace,
        largest: u64,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        owner: &mut impl FrameOwner<F>,
    ) -> Result<Acked, AckError> {
        let recovery_start = path.controller.recovery_start();
        let episode = path.episode.number();
        let widened = path.reordering.widened();
        let probe = path.mtu.probe();
        let Some(state) = self.spaces.get_mut(space) else {
            return Ok(Acked::default());
        };
        if largest >= state.next() {
            return Err(AckError::NeverSent {
                packet_number: largest,
            });
        }
        let mut acked = Acked::default();
        for range in ranges {
            // However old: a number never sent gives a peer away for ever.
            if let Some(packet_number) = state.never_sent(&range) {
                return Err(AckError::NeverSent { packet_number });
            }
            acked.mtu_probe |= probe.is_some_and(|number| range.contains(&number));
            let in_space = state.acknowledge(
                &range,
                |entry| acked.add(entry.packet_number, *entry, path.id, recovery_start),
                owner,
            );
            let Space { lost, run, .. } = state;
            let among_lost = lost.acknowledge(
                &range,
                |entry| {
                    acked.late_packets += 1;
                    let here = entry.path == path.id;
                    acked.late_bytes += u64::from(entry.size) * u64::from(here);
                    acked.late_in_episode += u64::from(here && entry.episode == episode);
                    if here && entry.widened == widened {
                        let age = now.saturating_duration_since(entry.sent_time);
                        acked.late_by = acked.late_by.max(Some(age));
                    }
                    run.on_late_ack(entry.packet_number);
                },
                |packet_number, frame| owner.on_acked(packet_number, frame),
            );
            acked.work = acked.work.saturating_add(1 + in_space + among_lost);
        }
        state.ack_eliciting_in_flight -= acked.ack_eliciting;
        Ok(acked)
    }

    /// Returns the sample raw and less the ack delay.
    fn sample_rtt(
        &mut self,
        path: &mut PathState,
        now: Time,
        space: PacketNumberSpace,
        sent_time: Time,
        ack_delay: Duration,
    ) -> (Duration, Duration) {
        let latest = now.saturating_duration_since(sent_time);
        // RFC 9002 §5.3: not for Initial; limited only once the handshake is confirmed.
        let ack_delay = match space {
            PacketNumberSpace::Initial => Duration::ZERO,
            _ if path.pto.handshake_confirmed => ack_delay.min(path.pto.max_ack_delay),
            _ => ack_delay,
        };
        path.rtt.update(now, latest, ack_delay);
        (
            latest,
            Duration::from_nanos(path.rtt.without_ack_delay(ack_delay)),
        )
    }

    fn on_late_acks(&mut self, path: &mut PathState, now: Time, acked: &Acked) {
        if acked.late_packets == 0 {
            return;
        }
        self.counters.packets_spuriously_lost += u64::from(acked.late_packets);
        if let Some(age) = acked.late_by
            && !path.reordering.widen(age, &path.rtt)
        {
            // More than may be borne: honest or not, it is not worth a window.
            return;
        }
        path.sampler.on_spurious(acked.late_bytes);
        let undone = path
            .episode
            .on_late_acks(now, acked.late_in_episode, &mut path.controller);
        if undone {
            self.counters.spurious_congestion_events += 1;
            path.recovery_datagram = false;
        }
    }

    /// Detects losses in a space and settles them.
    /// No loss is left out, whether the peer could open the packet or not (RFC 9002 §7.4).
    fn lose(
        &mut self,
        path: &mut PathState,
        now: Time,
        space: PacketNumberSpace,
        before: Before,
        summary: &mut AckSummary,
        owner: &mut impl FrameOwner<F>,
    ) {
        // Mostly nothing is lost: room for it is kept only where something was.
        let mut kept = self.batch.take();
        let mut new = LossBatch::default();
        let batch = kept.as_deref_mut().unwrap_or(&mut new);
        batch.begin(space, path.mtu.probe());
        let first_sample = path.rtt.first_sample();
        let Some(state) = self.spaces.get_mut(space) else {
            return;
        };
        let thresholds = path.reordering.thresholds(&path.rtt);
        summary.work += state.detect_lost(now, path.id, thresholds, first_sample, batch, owner);
        if let Some(size) = batch.mtu_probe_lost {
            // Its bytes are gone, and the controller hears nothing of it.
            path.flight.settle(u64::from(size));
            path.mtu.on_probe_lost(now);
            self.counters.mtu_probes_lost += 1;
        }
        path.ecn.on_marked_lost(batch.marked);
        let (packets, elsewhere) = (batch.packets.len(), batch.elsewhere.len());
        for packet in &batch.elsewhere {
            self.counters.packets_lost += 1;
            self.counters.bytes_lost += u64::from(packet.size);
        }
        summary.lost_packets = u32::try_from(packets + elsewhere).unwrap_or(u32::MAX);
        if let Some(last) = batch.packets.last() {
            self.counters.packets_lost += packets as u64;
            self.counters.bytes_lost += batch.bytes;
            path.flight.settle(batch.bytes);
            path.sampler.on_lost(batch.bytes);
            let opens_recovery = path.controller.recovery_start() < Some(last.sent_time);
            let before_loss = opens_recovery
                .then(|| path.controller.checkpoint())
                .flatten();
            let reduced = path.controller.on_lost(&LossSample {
                now,
                bytes: batch.bytes,
                ranges: batch.ranges,
                largest_sent_time: last.sent_time,
                delivered: path.sampler.delivered.saturating_add(before.acked),
                lost: path.sampler.lost,
                bytes_in_flight_before: before.bytes_in_flight,
                cwnd_limited: before.cwnd_limited,
                packets: &batch.packets,
            });
            if reduced {
                let before_loss = before_loss.map(|mut before| {
                    path.controller.confirm(&mut before);
                    before
                });
                self.counters.congestion_events += 1;
                path.episode.on_reduced(packets as u64, before_loss);
                path.reordering.on_reduced();
                path.recovery_datagram = true;
            } else {
                path.episode.on_lost(packets as u64);
            }
            if let Some(state) = self.spaces.get_mut(space) {
                state
                    .lost
                    .assign_episode(packets + elsewhere, path.episode.number());
            }
            summary.congestion_event = reduced;
            summary.persistent_congestion =
                self.check_persistent_congestion(path, space, batch.longest_run);
            if space == PacketNumberSpace::Application {
                path.mtu.on_lost(packets, batch.smallest());
            }
        }
        self.batch = kept.or_else(|| (!new.is_empty()).then(|| Box::new(new)));
    }

    /// Whether losses span so long; the caller tells the controller, after all else.
    fn check_persistent_congestion(
        &mut self,
        path: &mut PathState,
        space: PacketNumberSpace,
        longest_run: Option<(Time, Duration)>,
    ) -> bool {
        let Some((since, span)) = longest_run else {
            return false;
        };
        // No backoff here, and max_ack_delay whatever the space (RFC 9002 §7.6.1).
        let pto = path.rtt.pto_base().saturating_add(path.pto.max_ack_delay);
        if span <= pto.saturating_mul(persistent_congestion::THRESHOLD) {
            return false;
        }
        // Nothing sent in between may have been acknowledged in any space. For the other spaces
        // the newest acknowledged packet is all that is known: err towards no collapse.
        let acknowledged_elsewhere = PacketNumberSpace::ALL.into_iter().any(|other| {
            let newest = self.spaces.get(other).and_then(|s| s.newest_acked_sent);
            other != space && newest.is_some_and(|sent| sent >= since)
        });
        if acknowledged_elsewhere {
            return false;
        }
        if let Some(state) = self.spaces.get_mut(space) {
            state.run.cut();
        }
        self.counters.persistent_congestion += 1;
        path.rtt.restart_min();
        // What was lost for so long is not undone by one late ACK.
        path.episode.forget();
        true
    }

    fn expire_lost(&mut self, path: &PathState, now: Time, space: PacketNumberSpace) {
        let state = self.spaces.get_mut(space);
        if let Some(state) = state.filter(|state| !state.lost.is_empty()) {
            let memory = path
                .pto
                .period(&path.rtt, space)
                .saturating_mul(LOST_MEMORY_PTOS);
            state.lost.expire(|lost_time| lost_time + memory <= now);
        }
    }

    /// Runs the loss timer; `None` if it is not due.
    /// An expired PTO calls nothing lost (RFC 9002 §6.2).
    pub fn on_timeout(
        &mut self,
        path: &mut PathState,
        now: Time,
        owner: &mut impl FrameOwner<F>,
    ) -> Option<Expired> {
        path.touch(now);
        if path.controller.next_timeout().is_some_and(|at| at <= now) {
            path.controller.on_timeout(now);
        }
        if let Some((at, space)) = self.loss_time(path) {
            if at > now {
                return None;
            }
            let mut summary = AckSummary::default();
            let before = Before {
                bytes_in_flight: path.flight.bytes(),
                cwnd_limited: path.flight.is_utilised(),
                acked: 0,
            };
            self.lose(path, now, space, before, &mut summary, owner);
            if summary.persistent_congestion {
                path.controller.on_persistent_congestion(now);
            }
            return Some(Expired::Loss {
                packets: summary.lost_packets,
            });
        }
        let due = path.pto.next_expiry(&path.rtt, self.last_sent())?;
        if due.at > now {
            return None;
        }
        let expired = due.space;
        match due.early {
            true => path.pto.on_early_expiry(now),
            false => path.pto.on_expired(now),
        }
        self.counters.probe_timeouts += 1;
        path.ecn.on_probe_timeout(path.pto.count);
        let is_guess = path.config.side == Side::Client
            && path.rtt.first_sample().is_none()
            && path.pto.count == 1;
        let mut probes = 0;
        for space in PacketNumberSpace::ALL {
            let confirmed = path.pto.handshake_confirmed;
            let Some(state) = self.spaces.get_mut(space) else {
                continue;
            };
            let has_data = state.ack_eliciting_in_flight > 0;
            let owed = match (space == expired, has_data) {
                // Before the first sample the period is a guess, which one datagram puts to the test.
                (true, true) if due.early || is_guess => 1,
                (true, true) => PROBES_PER_PTO,
                (true, false) => 1,
                // Other spaces with data in flight join the datagram (RFC 9002 §6.2.4).
                (false, true) if space != PacketNumberSpace::Application || confirmed => 1,
                (false, _) => 0,
            };
            state.probes_owed = state.probes_owed.max(owed);
            if space == expired {
                probes = owed;
            }
            state.offer_oldest(owed, path.mtu.safe_size(), owner);
        }
        Some(Expired::Pto {
            space: expired,
            probes,
        })
    }

    /// When `on_timeout` is due, and what for.
    pub fn next_timeout(&self, path: &PathState) -> Option<(Time, LossTimer)> {
        let loss = self
            .loss_time(path)
            .map(|(at, _)| (at, LossTimer::LossTime));
        // No PTO is armed while a loss time is (RFC 9002 §6.2.1).
        let recovery = loss.or_else(|| {
            let (at, _) = path.pto.deadline(&path.rtt, self.last_sent())?;
            Some((at, LossTimer::Pto))
        });
        let controller = path
            .controller
            .next_timeout()
            .map(|at| (at, LossTimer::Controller));
        recovery
            .into_iter()
            .chain(controller)
            .min_by_key(|(at, _)| *at)
    }

    fn loss_time(&self, path: &PathState) -> Option<(Time, PacketNumberSpace)> {
        let (sent, space) = PacketNumberSpace::ALL
            .into_iter()
            .filter_map(|space| Some((self.spaces.get(space)?.loss_candidate?, space)))
            .min_by_key(|(sent, _)| *sent)?;
        Some((sent + path.reordering.thresholds(&path.rtt).delay, space))
    }

    /// Per space, when its last ack-eliciting packet was sent, if one is in flight.
    fn last_sent(&self) -> [Option<Time>; 3] {
        PacketNumberSpace::ALL.map(|space| {
            let state = self.spaces.get(space)?;
            state
                .last_ack_eliciting_sent
                .filter(|_| state.ack_eliciting_in_flight > 0)
        })
    }

    /// The keys of a space were dropped: its packets leave flight, frames and all, and the PTO
    /// backoff restarts (RFC 9002 §6.2.2, §6.4). With Handshake's go what is left of Initial.
    pub fn discard_space(&mut self, path: &mut PathState, now: Time, space: PacketNumberSpace) {
        path.touch(now);
        let state = self.spaces.get_mut(space);
        let bytes = state.map_or(0, |state| state.clear(path.id, |_, _| ()));
        path.flight.settle(bytes);
        if space == PacketNumberSpace::Handshake {
            // Initial's keys are gone by now. What was acknowledged there can no longer be asked
            // when losses are judged: rather no persistent congestion than a wrong one.
            let initial = self.spaces.get_mut(PacketNumberSpace::Initial);
            let bytes = initial.map_or(0, |initial| initial.clear(path.id, |_, _| ()));
            path.flight.settle(bytes);
            self.spaces.end_handshake();
            self.spaces.application_mut().run.cut();
        }
        path.pto.reset();
        path.pto.base = Some(now);
    }

    /// After a Retry, or when 0-RTT was refused: all frames in flight come back as lost, without
    /// any effect on the window. Packet numbers go on (RFC 9002 §6.3, RFC 9000 §17.2.5.3).
    pub fn abandon_space(
        &mut self,
        path: &mut PathState,
        space: PacketNumberSpace,
        owner: &mut impl FrameOwner<F>,
    ) {
        let state = self.spaces.get_mut(space);
        let bytes = state.map_or(0, |state| {
            state.clear(path.id, |packet_number, frame| {
                owner.on_lost(packet_number, frame)
            })
        });
        if space == PacketNumberSpace::Application {
            path.mtu.on_abandoned();
        }
        path.flight.settle(bytes);
        path.pto.reset();
    }
}
