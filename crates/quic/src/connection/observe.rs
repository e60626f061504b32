//! What a connection tells its observer, and the span of its log lines.
//!
//! Packets, losses and timers are told where they happen; what changes gradually is compared once
//! after every call from outside. A connection that nobody observes has no [`Observation`], and each
//! place asks for that and nothing else.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};

use towline_recovery::{AckSummary, Expired};
use towline_wire::{PacketKind, PacketNumberSpace, Time};
use tracing::span::EnteredSpan;

use super::assemble::PacketBuilder;
use super::component::Ecn;
use super::observation::Observation;
use super::parts::Connection;
use crate::observe::{
    DropReason, Event, MigrationState, NewConnection, ObserverFactory, Packet, RecoveryTimer,
    TransportParameters,
};

impl Connection {
    /// From now on `factory`'s observer is told what happens, and log lines say which connection
    /// they are of. Nothing is made if neither is wanted.
    pub(super) fn begin_observation(
        &mut self,
        now: Time,
        started: NewConnection,
        factory: Option<&dyn ObserverFactory>,
        parameters: impl FnOnce(&Self) -> Option<TransportParameters>,
    ) {
        let span = tracing::debug_span!(
            "connection",
            side = ?started.side,
            remote = %started.remote,
            original_destination_cid = %started.original_destination_cid,
        );
        let observer = factory.and_then(|factory| factory.observe(now, &started));
        if observer.is_none() && span.is_disabled() {
            return;
        }
        let parameters = parameters(self);
        self.observation = Some(Box::new(Observation::begin(
            now,
            observer,
            span,
            started,
            self.lifecycle.phase(),
            parameters.as_ref(),
            self.recovery.stats(self.paths.state()),
        )));
    }

    /// Our transport parameters, where they were not known when the connection began.
    #[cold]
    pub(super) fn observe_own_parameters(&mut self, now: Time, parameters: &TransportParameters) {
        if let Some(observation) = &mut self.observation {
            observation.tell_parameters(now, parameters);
        }
    }

    /// Log lines are the connection's until this is dropped.
    #[inline]
    pub(super) fn enter_span(&self) -> Option<EnteredSpan> {
        let observation = self.observation.as_ref()?;
        Some(observation.enter_span())
    }

    /// Tells the observer something of the application's protocol, as
    /// [`Event::Application`](crate::observe::Event::Application). `event` is called only if there is one.
    #[inline]
    pub fn tell_observer<E: Any + Send>(&mut self, now: Time, event: impl FnOnce() -> E) {
        if self.is_observed() {
            self.observe_application(now, &event());
        }
    }

    #[cold]
    fn observe_application(&mut self, now: Time, event: &(dyn Any + Send)) {
        if let Some(observation) = self.update_observation(now) {
            observation.tell(now, &Event::Application(event));
        }
    }

    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        let observation = self.observation.as_ref();
        observation.is_some_and(|observation| observation.has_observer())
    }

    /// Tells what changed in state, keys and parameters; returns the observation, to tell it more.
    fn update_observation(&mut self, now: Time) -> Option<&mut Observation> {
        let observation = self.observation.as_mut()?;
        let protection = &self.sealer.protection;
        observation.compare_lifecycle(now, &self.lifecycle, &self.handshake, protection);
        Some(observation)
    }

    /// After a call from outside: what changed gradually.
    #[cold]
    pub(super) fn observe_changes(&mut self, now: Time) {
        let metrics = self.recovery.stats(self.paths.state());
        if let Some(observation) = self.update_observation(now) {
            observation.compare_metrics(now, metrics);
        }
    }

    /// A packet is ready to be sealed.
    #[cold]
    pub(super) fn observe_packet_sent(
        &mut self,
        now: Time,
        built: &PacketBuilder,
        datagram: &[u8],
    ) {
        let kind = match built.space {
            PacketNumberSpace::Initial => PacketKind::Initial,
            PacketNumberSpace::Handshake => PacketKind::Handshake,
            PacketNumberSpace::Application => PacketKind::OneRtt,
        };
        let packet = Packet {
            kind,
            packet_number: built.packet_number,
            dcid: built.dcid,
            scid: (kind != PacketKind::OneRtt).then(|| self.handshake.ids().local),
            key_phase: (kind == PacketKind::OneRtt).then(|| self.sealer.protection.phase()),
            len: built.size(),
            ecn: self.paths.state().is_train_marked().then_some(Ecn::Ect0),
            payload: built.payload(datagram),
        };
        if let Some(observation) = self.update_observation(now) {
            observation.tell(now, &Event::PacketSent(packet));
        }
    }

    /// Something happened on the way to another path.
    pub(super) fn observe_migration(
        &mut self,
        now: Time,
        new: MigrationState,
        (remote, local_ip): (SocketAddr, Option<IpAddr>),
    ) {
        tracing::debug!(?new, %remote, ?local_ip, "migration");
        if let Some(observation) = self.update_observation(now) {
            let event = Event::MigrationStateUpdated {
                new,
                remote,
                local_ip,
            };
            observation.tell(now, &event);
        }
    }

    /// A packet was opened.
    #[cold]
    pub(super) fn observe_packet_received(&mut self, now: Time, packet: Packet<'_>) {
        if let Some(observation) = self.update_observation(now) {
            observation.tell(now, &Event::PacketReceived(packet));
        }
    }

    /// A packet goes no further.
    #[cold]
    pub(super) fn observe_drop(
        &mut self,
        now: Time,
        kind: PacketKind,
        len: usize,
        reason: DropReason,
    ) {
        if let Some(observation) = &mut self.observation {
            observation.tell(now, &Event::PacketDropped { kind, len, reason });
        }
    }

    /// A packet waits for its keys.
    #[cold]
    pub(super) fn observe_buffered(&mut self, now: Time, kind: PacketKind, len: usize) {
        if let Some(observation) = &mut self.observation {
            observation.tell(now, &Event::PacketBuffered { kind, len });
        }
    }

    /// An ACK frame was taken.
    #[cold]
    pub(super) fn observe_ack(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        summary: &AckSummary,
    ) {
        if summary.lost_packets > 0 {
            self.observe_losses(now);
        }
        if summary.spurious > 0
            && let Some(observation) = &mut self.observation
        {
            let packets = summary.spurious;
            observation.tell(now, &Event::SpuriousLoss { space, packets });
        }
    }

    /// A timer of recovery's expired.
    #[cold]
    pub(super) fn observe_timeout(&mut self, now: Time, expired: Expired) {
        let (timer, space) = match expired {
            Expired::Loss { .. } => (RecoveryTimer::LossTime, None),
            Expired::Pto { space, .. } => (RecoveryTimer::Pto, Some(space)),
        };
        if let Some(observation) = &mut self.observation {
            observation.tell(now, &Event::TimerExpired { timer, space });
        }
        if let Expired::Loss { .. } = expired {
            self.observe_losses(now);
        }
    }

    fn observe_losses(&mut self, now: Time) {
        if let Some(observation) = &mut self.observation {
            for loss in self.recovery.losses() {
                observation.tell(now, &Event::PacketLost(loss));
            }
        }
    }
}
