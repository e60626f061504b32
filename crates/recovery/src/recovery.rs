//! `Recovery`: what a connection has once of loss recovery.
//!
//! It owns the three packet number spaces and what holds the connection back whatever the path: its
//! limit and its share of the host's pool. All that is known of a path lies in its `PathState`, which
//! comes as an argument. This file sends and answers; `feedback` takes what comes back. It never
//! decides what a packet carries and never reads a clock.

mod acked;
mod episode;
mod feedback;
mod flight;
mod interface;

use core::num::NonZeroU64;

use towline_wire::{PacketNumberSpace, PerSpace, Time};

pub(crate) use episode::Episode;
pub(crate) use flight::Flight;
pub use interface::{
    AckError, AckSummary, Config, Expired, FrameOwner, Loss, LossTrigger, PacketKind, Permit,
};

use crate::bandwidth::Snapshot;
use crate::congestion::{Algorithm, CongestionController, Controller, SendSample, initial_window};
use crate::loss::{LossBatch, Space};
use crate::mtu_search::TooBig;
use crate::path::PathState;
use crate::pool::PoolMember;
use crate::sent::Sent;
use crate::stats::{CongestionPhase, Counters, Stats};
use crate::throttle::Throttle;

/// Cap: packets tracked per connection before `permit` answers `Blocked` whatever the window says.
pub const MAX_TRACKED_PACKETS: usize = 131_072;

/// Loss recovery of one connection. `F` is the caller's record of a sent frame, small and cheap to
/// clone.
#[derive(Debug)]
pub struct Recovery<F> {
    spaces: PerSpace<Space<F>>,
    throttle: Throttle,
    /// What the latest pass of loss detection found; made anew after a trim.
    batch: Option<Box<LossBatch>>,
    counters: Counters,
}

impl<F: Clone> Recovery<F> {
    /// Most bytes held for packets that carried nothing but acknowledgements, one frame each.
    pub const MOST_UNANSWERED: usize = crate::loss::MAX_UNANSWERED_ACKS
        * 2
        * (size_of::<crate::sent::SentEntry>() + size_of::<Option<F>>() + size_of::<Snapshot>());

    /// Bytes held besides for Initial and Handshake while the handshake lasts.
    pub const HANDSHAKE_BYTES: usize = PerSpace::<Space<F>>::HANDSHAKE_BYTES;

    /// Recovery of a new connection, whose first path has the same configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            spaces: PerSpace::new(
                Space::new(),
                Space::new(),
                config.skip_key.map_or_else(Space::new, Space::skipping),
            ),
            throttle: Throttle::new(config.rate_limit),
            batch: None,
            counters: Counters::default(),
        }
    }

    /// Gives back memory that busier times left behind; worth it when little is in flight.
    pub fn trim(&mut self) {
        self.spaces.iter_mut().for_each(Space::trim);
        self.batch = None;
    }

    /// Bytes of memory held for packets sent and not yet forgotten.
    pub fn held(&self) -> usize {
        let spaces: usize = self.spaces.iter().map(Space::held).sum();
        let batch = self.batch.as_ref().map_or(0, |batch| batch.held());
        spaces + self.spaces.held() + batch
    }

    /// Forgets every packet, without telling anybody, and gives its memory back: the connection is
    /// over.
    pub fn clear(&mut self, path: &mut PathState) {
        let spaces = self.spaces.iter_mut();
        let bytes = spaces.map(|space| space.clear(path.id, |_, _| ())).sum();
        path.flight.settle(bytes);
        self.trim();
    }

    /// As [`Self::clear`], for a connection that is over and stays to be read: it leaves the host's pool
    /// and the host's background controller, whose other members would wait for it.
    pub fn retire(&mut self, path: &mut PathState) {
        self.clear(path);
        self.throttle.set_pool(None);
        let size = path.mtu.size();
        path.controller = Controller::new(Algorithm::NewReno, size, false, false);
        path.episode.forget();
    }

    /// The path that data is sent on from now on: what was sent on it before and is still in flight
    /// counts again, or for the first time.
    pub fn adopt(&self, path: &mut PathState) {
        let spaces = self.spaces.iter();
        let bytes = spaces.map(|space| space.bytes_in_flight(path.id)).sum();
        path.flight.restart(bytes);
    }

    /// A strict limit in bytes per second over every packet, those that need no permit included;
    /// `None` lifts it. Any window of 100 ms or more carries at most rate x window + what the rate
    /// earns in 1 ms, or two datagrams if that is more; a CONNECTION_CLOSE is charged but never waits.
    pub fn set_rate_limit(&mut self, limit: Option<NonZeroU64>) {
        self.throttle.set_limit(limit);
    }

    /// The limit in force.
    pub fn rate_limit(&self) -> Option<NonZeroU64> {
        self.throttle.limit()
    }

    /// Takes part in the host's bandwidth pool, or leaves it.
    pub fn set_pool_member(&mut self, member: Option<PoolMember>) {
        self.throttle.set_pool(member);
    }

    /// Its place in the pool, whose class and weight can be changed.
    pub fn pool_member(&self) -> Option<&PoolMember> {
        self.throttle.pool()
    }

    // Sending.

    /// Whether, when and how much may be sent in packets in flight. Probes need no permit.
    pub fn permit(&mut self, path: &mut PathState, now: Time) -> Permit {
        self.permit_size(path, now, path.mtu.size())
    }

    /// As [`Self::permit`], for at least one datagram of `size` bytes.
    pub fn permit_size(&mut self, path: &mut PathState, now: Time, size: u16) -> Permit {
        path.touch(now);
        let datagram = u64::from(size);
        let mut room = path.controller.window().saturating_sub(path.flight.bytes());
        let closed = room < datagram || self.is_full();
        if closed && !path.recovery_datagram {
            path.flight.on_utilised();
            return Permit::Blocked;
        }
        let strict_rate = path.controller.strict_rate();
        match self.throttle.permit(now, datagram, strict_rate) {
            Ok(bytes) => room = room.min(bytes),
            Err(at) => {
                // The limit holds the sender back and not the path, so its rate says nothing of
                // the path and its window is no larger than it needs.
                path.on_rate_below_path();
                return Permit::Wait(at);
            }
        }
        if closed {
            return Permit::Send { bytes: datagram };
        }
        if strict_rate.is_some() {
            return Permit::Send { bytes: room };
        }
        let paced = match path.controller.turn(now, path.flight.bytes()) {
            Some(turn) => turn.map(|bytes| bytes.max(datagram)),
            None => match path.pacing_rate() {
                Some(rate) => {
                    let burst = path
                        .controller
                        .send_quantum()
                        .unwrap_or_else(|| initial_window(path.mtu.size()));
                    path.pacer.permit(now, rate, datagram, burst)
                }
                None => Ok(room),
            },
        };
        match paced {
            Ok(bytes) => {
                path.flight.on_wanted();
                Permit::Send {
                    bytes: bytes.min(room),
                }
            }
            Err(at) => {
                path.flight.on_paced();
                self.throttle.on_held_elsewhere();
                Permit::Wait(at)
            }
        }
    }

    /// A packet of `size` bytes that needs no permit (a probe, an acknowledgement) wants to leave:
    /// the time before which the strict limit forbids even that. Without a limit never one.
    pub fn held_until(&mut self, path: &mut PathState, now: Time, size: u16) -> Option<Time> {
        path.touch(now);
        let datagram = u64::from(path.mtu.size());
        let strict_rate = path.controller.strict_rate();
        self.throttle
            .exempt(now, u64::from(size), datagram, strict_rate)
    }

    /// The size of a probe for a larger datagram, if one should leave now and fits the window. It
    /// goes alone, once [`Self::permit_size`] permits so much, as [`PacketKind::MTU_PROBE`].
    #[inline]
    pub fn mtu_probe_due(&self, path: &mut PathState, now: Time) -> Option<u16> {
        if !path.pto.handshake_confirmed {
            return None;
        }
        let size = path.mtu.due(now)?;
        let room = path.controller.window().saturating_sub(path.flight.bytes());
        (u64::from(size) <= room && !self.is_full()).then_some(size)
    }

    /// A router says that a 1-RTT packet of ours was too big, and that `mtu` bytes of UDP payload pass. The
    /// caller has found the number in what the router quotes. Believed only if the packet is in
    /// flight on this path, with more bytes than that (RFC 8899 §4.6.1).
    pub fn on_too_big(
        &mut self,
        path: &mut PathState,
        now: Time,
        packet_number: u64,
        mtu: u16,
    ) -> TooBig {
        path.touch(now);
        let space = self.spaces.get(PacketNumberSpace::Application);
        let Some(size) = space.and_then(|space| space.size_in_flight(path.id, packet_number))
        else {
            return TooBig::NotBelieved;
        };
        let outcome = path.mtu.on_too_big(now, size, mtu);
        self.counters.too_big_believed += u64::from(outcome != TooBig::NotBelieved);
        if outcome == TooBig::SizeFell {
            path.on_datagram_size();
        }
        outcome
    }

    /// There is something to send that `permit` told to wait: what a limit held back is wanted.
    pub fn on_held_back(&mut self, path: &mut PathState) {
        path.flight.on_wanted();
        self.throttle.on_held_back();
    }

    /// PTO probes this space still owes; they bypass window and pacer. Each ack-eliciting packet
    /// sent in the space pays one off, and so does any progress by acknowledgement.
    /// They count as in flight even so (RFC 9002 §7.5).
    pub fn probes_owed(&self, space: PacketNumberSpace) -> u8 {
        self.spaces.get(space).map_or(0, |space| space.probes_owed)
    }

    /// The number the next packet of the space gets.
    pub fn next_packet_number(&self, space: PacketNumberSpace) -> u64 {
        self.spaces.get(space).map_or(0, Space::next)
    }

    /// An authentic ack-eliciting packet arrived for the first time, `marked` ECN-capable or not. A
    /// peer that stops marking is answered without marks if nothing of ours in flight can tell what
    /// became of them; a peer that is heard while probes to it are unanswered is probed again soon.
    pub fn on_ack_eliciting_received(
        &self,
        path: &mut PathState,
        space: PacketNumberSpace,
        marked: bool,
    ) {
        let spaces = &self.spaces;
        let may_probe = || spaces.iter().any(|space| space.ack_eliciting_in_flight > 0);
        path.ecn.on_received(marked, may_probe);
        if space == PacketNumberSpace::Application {
            path.pto.on_peer_heard();
        }
    }

    /// The largest number acknowledged in the space.
    pub fn largest_acked(&self, space: PacketNumberSpace) -> Option<u64> {
        self.spaces.get(space)?.largest_acked
    }

    /// Records a packet of `size` bytes (UDP payload) and drains `frames` into the ring. Returns
    /// its number, which is what `next_packet_number` said.
    pub fn on_packet_sent(
        &mut self,
        path: &mut PathState,
        now: Time,
        space: PacketNumberSpace,
        size: u16,
        kind: PacketKind,
        frames: &mut Vec<F>,
    ) -> u64 {
        path.touch(now);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += u64::from(size);
        let PacketKind {
            ack_eliciting,
            in_flight,
            asks,
            mtu_probe,
        } = kind;
        let bytes = u64::from(size);
        if in_flight && !path.pto.handshake_confirmed {
            // Handshake flights never fill a path: their rates say nothing about it.
            path.sampler
                .on_app_limited(path.flight.bytes().saturating_add(bytes));
        }
        self.throttle.on_sent(now, bytes);
        let snapshot = match in_flight {
            true => path.sampler.on_sent(now, bytes, path.flight.bytes()),
            false => path.sampler.snapshot(now, path.flight.bytes()),
        };
        if in_flight {
            let bytes_in_flight = path.flight.bytes();
            path.controller.on_sent(&SendSample {
                now,
                bytes,
                bytes_in_flight,
                app_limited: snapshot.app_limited,
            });
            path.flight.on_sent(bytes);
            path.pacer.on_sent(bytes);
            path.recovery_datagram = false;
        }
        if asks {
            path.pto.on_asked(now);
        } else if in_flight {
            path.pto.base = Some(now);
        }
        let Some(space) = self.spaces.get_mut(space) else {
            debug_assert!(false, "nothing is sent in a space without keys");
            return 0;
        };
        if path.marking {
            path.ecn.on_marked_sent(&mut space.ecn);
        }
        if ack_eliciting {
            debug_assert!(in_flight, "an ack-eliciting packet is in flight");
            space.ack_eliciting_in_flight += 1;
        }
        if ack_eliciting && !asks {
            space.last_ack_eliciting_sent = Some(now);
            space.probes_owed = space.probes_owed.saturating_sub(1);
        }
        let packet_number = space.push(
            Sent {
                now,
                path: path.id,
                size,
                ack_eliciting,
                in_flight,
                marked: path.marking,
            },
            snapshot,
            frames,
        );
        if mtu_probe {
            self.counters.mtu_probes_sent += 1;
            path.mtu.on_probe_sent(packet_number, size);
        }
        packet_number
    }

    // Questions.

    /// A snapshot of everything worth watching on this path.
    pub fn stats(&self, path: &PathState) -> Stats {
        Stats {
            smoothed_rtt: path.rtt.smoothed(),
            rttvar: path.rtt.rttvar(),
            min_rtt: path.rtt.min(),
            latest_rtt: path.rtt.latest(),
            pto: path.pto(PacketNumberSpace::Application),
            pto_count: path.pto.count,
            probe_timeouts: self.counters.probe_timeouts,
            packets_sent: self.counters.packets_sent,
            bytes_sent: self.counters.bytes_sent,
            packets_lost: self.counters.packets_lost,
            bytes_lost: self.counters.bytes_lost,
            packets_spuriously_lost: self.counters.packets_spuriously_lost,
            bytes_in_flight: path.flight.bytes(),
            cwnd: path.controller.window(),
            ssthresh: path.controller.ssthresh(),
            pacing_rate: path
                .pacing_rate()
                .into_iter()
                .chain(self.throttle.rate())
                .min(),
            delivery_rate: path.sampler.latest(),
            congestion_events: self.counters.congestion_events,
            spurious_congestion_events: self.counters.spurious_congestion_events,
            persistent_congestion: self.counters.persistent_congestion,
            in_slow_start: path.controller.in_slow_start(),
            congestion: self.congestion_phase(path),
            ecn_capable: path.ecn.is_capable(),
            ecn: path.ecn.state(),
            ce_marks: self.counters.ce_marks,
            mtu: path.mtu.size(),
            mtu_probes_sent: self.counters.mtu_probes_sent,
            mtu_probes_lost: self.counters.mtu_probes_lost,
            black_holes_detected: self.counters.black_holes_detected,
            too_big_believed: self.counters.too_big_believed,
        }
    }

    /// Where the controller is.
    fn congestion_phase(&self, path: &PathState) -> CongestionPhase {
        let newest_acked = self.spaces.iter().filter_map(|s| s.newest_acked_sent).max();
        let is_over = |start| newest_acked.is_some_and(|sent| sent > start);
        match path.controller.recovery_start() {
            Some(start) if !is_over(start) => CongestionPhase::Recovery,
            _ if path.controller.in_slow_start() => CongestionPhase::SlowStart,
            _ => CongestionPhase::CongestionAvoidance,
        }
    }

    /// The packets that the latest ACK frame or loss timer showed to be lost. Meaningful right
    /// after a call that says there were some.
    pub fn losses(&self) -> impl Iterator<Item = Loss> + '_ {
        self.batch.iter().flat_map(|batch| batch.losses())
    }

    /// As many packets as can be tracked wait for their fate: only probes should be sent.
    pub fn is_full(&self) -> bool {
        self.tracked() >= MAX_TRACKED_PACKETS
    }

    fn tracked(&self) -> usize {
        self.spaces.iter().map(Space::tracked).sum()
    }
}

#[cfg(test)]
mod tests;
