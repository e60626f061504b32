//! Recovery of a connection that stays on one path: the two as one thing with one set of methods.

#![allow(dead_code, reason = "each test uses the part it needs")]

use core::num::NonZeroU64;
use core::ops::RangeInclusive;
use core::time::Duration;

use towline_recovery::{
    AckError, AckSummary, Algorithm, Config, Controller, DatagramSizes, Expired, FrameOwner,
    LeastAckRate, Loss, LossTimer, PacketKind, PathState, Permit, PoolMember, Recovery,
    RttEstimator, Stats,
};
use towline_wire::{EcnCounts, PacketNumberSpace, Time};

#[derive(Debug)]
pub(crate) struct OnePath<F> {
    pub(crate) all: Recovery<F>,
    pub(crate) path: PathState,
    sizes: DatagramSizes,
}

impl<F: Clone> OnePath<F> {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            all: Recovery::new(&config),
            sizes: config.datagram_sizes,
            path: PathState::new(config),
        }
    }

    pub(crate) fn with_controller(config: Config, controller: Controller) -> Self {
        Self {
            all: Recovery::new(&config),
            sizes: config.datagram_sizes,
            path: PathState::with_controller(config, controller),
        }
    }

    /// Goes on on another path, of which nothing is known.
    pub(crate) fn change_path(&mut self, now: Time) {
        let mut next = self.path.beside(self.path.id().next(), self.sizes);
        next.take_over(now, &mut self.path);
        self.all.adopt(&mut next);
        self.path = next;
    }

    pub(crate) fn on_ack_eliciting_received(&mut self, space: PacketNumberSpace, marked: bool) {
        self.all
            .on_ack_eliciting_received(&mut self.path, space, marked);
    }

    pub(crate) fn on_packet_sent(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        size: u16,
        kind: PacketKind,
        frames: &mut Vec<F>,
    ) -> u64 {
        self.all
            .on_packet_sent(&mut self.path, now, space, size, kind, frames)
    }

    #[expect(clippy::too_many_arguments, reason = "as the method it calls")]
    pub(crate) fn on_ack_received(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        largest: u64,
        ack_delay: Duration,
        ecn: Option<EcnCounts>,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        owner: &mut impl FrameOwner<F>,
    ) -> Result<AckSummary, AckError> {
        let path = &mut self.path;
        self.all
            .on_ack_received(path, now, space, largest, ack_delay, ecn, ranges, owner)
    }

    pub(crate) fn on_timeout(
        &mut self,
        now: Time,
        owner: &mut impl FrameOwner<F>,
    ) -> Option<Expired> {
        self.all.on_timeout(&mut self.path, now, owner)
    }

    pub(crate) fn next_timeout(&self) -> Option<(Time, LossTimer)> {
        self.all.next_timeout(&self.path)
    }

    pub(crate) fn discard_space(&mut self, now: Time, space: PacketNumberSpace) {
        self.all.discard_space(&mut self.path, now, space);
    }

    pub(crate) fn abandon_space(
        &mut self,
        space: PacketNumberSpace,
        owner: &mut impl FrameOwner<F>,
    ) {
        self.all.abandon_space(&mut self.path, space, owner);
    }

    pub(crate) fn retire(&mut self) {
        self.all.retire(&mut self.path);
    }

    pub(crate) fn permit(&mut self, now: Time) -> Permit {
        self.all.permit(&mut self.path, now)
    }

    pub(crate) fn held_until(&mut self, now: Time, size: u16) -> Option<Time> {
        self.all.held_until(&mut self.path, now, size)
    }

    pub(crate) fn on_held_back(&mut self) {
        self.all.on_held_back(&mut self.path);
    }

    pub(crate) fn stats(&self) -> Stats {
        self.all.stats(&self.path)
    }

    pub(crate) fn losses(&self) -> impl Iterator<Item = Loss> + '_ {
        self.all.losses()
    }

    pub(crate) fn probes_owed(&self, space: PacketNumberSpace) -> u8 {
        self.all.probes_owed(space)
    }

    pub(crate) fn next_packet_number(&self, space: PacketNumberSpace) -> u64 {
        self.all.next_packet_number(space)
    }

    pub(crate) fn largest_acked(&self, space: PacketNumberSpace) -> Option<u64> {
        self.all.largest_acked(space)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.all.is_full()
    }

    pub(crate) fn held(&self) -> usize {
        self.all.held()
    }

    pub(crate) fn trim(&mut self) {
        self.all.trim();
    }

    pub(crate) fn set_rate_limit(&mut self, limit: Option<NonZeroU64>) {
        self.all.set_rate_limit(limit);
    }

    pub(crate) fn set_pool_member(&mut self, member: Option<PoolMember>) {
        self.all.set_pool_member(member);
    }

    pub(crate) fn pool_member(&self) -> Option<&PoolMember> {
        self.all.pool_member()
    }

    pub(crate) fn set_peer_max_ack_delay(&mut self, max_ack_delay: Duration) {
        self.path.set_peer_max_ack_delay(max_ack_delay);
    }

    pub(crate) fn set_handshake_keys_available(&mut self) {
        self.path.set_handshake_keys_available();
    }

    pub(crate) fn set_handshake_confirmed(&mut self) {
        self.path.set_handshake_confirmed();
    }

    pub(crate) fn set_peer_completed_address_validation(&mut self) {
        self.path.set_peer_completed_address_validation();
    }

    pub(crate) fn set_amplification_blocked(&mut self, now: Time, blocked: bool) {
        self.path.set_amplification_blocked(now, blocked);
    }

    pub(crate) fn on_datagram_refused(&mut self, size: u16) -> bool {
        self.path.on_datagram_refused(size)
    }

    pub(crate) fn on_full_sized_sent(&mut self, datagrams: usize) {
        self.path.on_full_sized_sent(datagrams);
    }

    pub(crate) fn mtu_probe_due(&mut self, now: Time) -> Option<u16> {
        self.all.mtu_probe_due(&mut self.path, now)
    }

    pub(crate) fn max_datagram_size(&self) -> u16 {
        self.path.max_datagram_size()
    }

    pub(crate) fn seed_rtt(&mut self, rtt: Duration) {
        self.path.seed_rtt(rtt);
    }

    pub(crate) fn set_algorithm(&mut self, now: Time, algorithm: Algorithm) {
        self.path.set_algorithm(now, algorithm);
    }

    pub(crate) fn set_controller(&mut self, now: Time, controller: Controller) {
        self.path.set_controller(now, controller);
    }

    pub(crate) fn mark_train(&mut self) {
        self.path.mark_train();
    }

    pub(crate) fn is_train_marked(&self) -> bool {
        self.path.is_train_marked()
    }

    pub(crate) fn may_ask(&self, now: Time) -> bool {
        self.path.may_ask(now)
    }

    pub(crate) fn on_app_limited(&mut self) {
        self.path.on_app_limited();
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        self.path.rtt()
    }

    pub(crate) fn pto(&self, space: PacketNumberSpace) -> Duration {
        self.path.pto(space)
    }

    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.path.bytes_in_flight()
    }

    pub(crate) fn congestion_window(&self) -> u64 {
        self.path.congestion_window()
    }

    pub(crate) fn least_ack_rate(&self) -> LeastAckRate {
        self.path.least_ack_rate()
    }
}
