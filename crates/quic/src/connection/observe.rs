//! What a connection tells its observer, and the span of its log lines.
//!
//! Packets, losses and timers are told where they happen; what changes by and by (state, keys,
//! parameters, recovery's numbers) is compared with what was told before, once after every call
//! from outside. A connection that nobody observes has no [`Observation`], and each place asks for
//! that and nothing else.

use towline_recovery::{AckSummary, Expired};
use towline_wire::{PacketKind, PacketNumberSpace, Time};
use tracing::Span;
use tracing::span::EnteredSpan;

use super::Connection;
use super::assemble::PacketBuilder;
use super::component::Ecn;
use super::state::Phase;
use crate::observe::{
    CongestionTrigger, ConnectionState, DropReason, Event, NewConnection, Observer,
    ObserverFactory, Packet, RecoveryMetrics, RecoveryTimer, TransportParameters,
};

/// A connection's observer, and what it has been told.
pub(crate) struct Observation {
    observer: Option<Box<dyn Observer>>,
    /// Around log lines of the connection.
    span: Span,
    state: ConnectionState,
    keys: [bool; 3],
    key_updates: u64,
    knows_peer: bool,
    told_end: bool,
    metrics: RecoveryMetrics,
}

impl Observation {
    fn tell(&mut self, now: Time, event: &Event<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.on_event(now, event);
        }
    }

    /// State, keys, parameters and the end.
    fn compare_lifecycle(&mut self, now: Time, connection: &Connection) {
        self.compare_keys(now, connection);
        if !self.knows_peer
            && let Some(parameters) = connection.handshake.peer()
        {
            self.knows_peer = true;
            self.tell(
                now,
                &Event::ParametersSet {
                    by_peer: true,
                    parameters,
                    cipher_suite: connection.cipher_suite(),
                },
            );
        }
        let (old, new) = (self.state, state(connection.lifecycle.phase()));
        if old != new {
            self.state = new;
            let is_first = old == ConnectionState::HandshakeStarted;
            if is_first && let Some(chosen) = connection.alpn() {
                self.tell(now, &Event::AlpnInformation { chosen });
            }
            let old = Some(old);
            self.tell(now, &Event::ConnectionStateUpdated { old, new });
        }
        if !self.told_end
            && let Some(reason) = connection.close_reason()
        {
            self.told_end = true;
            self.tell(now, &Event::ConnectionClosed { reason });
        }
    }

    fn compare_keys(&mut self, now: Time, connection: &Connection) {
        let protection = &connection.sealer.protection;
        for space in PacketNumberSpace::ALL {
            let (had, has) = (self.keys[space.index()], protection.has_keys(space));
            self.keys[space.index()] = has;
            match (had, has) {
                (false, true) => self.tell(
                    now,
                    &Event::KeyUpdated {
                        space,
                        key_phase: 0,
                    },
                ),
                (true, false) => self.tell(now, &Event::KeyDiscarded { space }),
                (true, true) | (false, false) => {}
            }
        }
        let updates = protection.updates();
        if updates != self.key_updates {
            self.key_updates = updates;
            self.tell(
                now,
                &Event::KeyUpdated {
                    space: PacketNumberSpace::Application,
                    key_phase: updates,
                },
            );
        }
    }

    /// Recovery's numbers.
    fn compare_metrics(&mut self, now: Time, connection: &Connection) {
        let new = connection.recovery.stats();
        if new == self.metrics {
            return;
        }
        let old = std::mem::replace(&mut self.metrics, new.clone());
        self.tell(now, &Event::RecoveryMetricsUpdated { metrics: &new });
        if old.congestion != new.congestion {
            let trigger = if new.persistent_congestion > old.persistent_congestion {
                Some(CongestionTrigger::PersistentCongestion)
            } else if new.ce_marks > old.ce_marks && new.packets_lost == old.packets_lost {
                Some(CongestionTrigger::Ecn)
            } else {
                None
            };
            self.tell(
                now,
                &Event::CongestionStateUpdated {
                    old: Some(old.congestion),
                    new: new.congestion,
                    trigger,
                },
            );
        }
        if old.mtu != new.mtu {
            let (old, new) = (Some(old.mtu), new.mtu);
            self.tell(now, &Event::MtuUpdated { old, new });
        }
        if old.ecn != new.ecn {
            let (old, new) = (Some(old.ecn), new.ecn);
            self.tell(now, &Event::EcnStateUpdated { old, new });
        }
    }
}

fn state(phase: Phase) -> ConnectionState {
    match phase {
        Phase::Handshaking => ConnectionState::HandshakeStarted,
        Phase::Established => ConnectionState::HandshakeCompleted,
        Phase::Confirmed => ConnectionState::HandshakeConfirmed,
        Phase::Closing => ConnectionState::Closing,
        Phase::Draining => ConnectionState::Draining,
        Phase::Drained => ConnectionState::Closed,
    }
}

impl Connection {
    /// From now on `factory`'s observer is told what happens, and log lines say which connection
    /// they are of. Nothing is made if neither is wanted.
    pub(super) fn begin_observation(
        &mut self,
        now: Time,
        started: NewConnection,
        factory: Option<&dyn ObserverFactory>,
        parameters: impl FnOnce(&Self) -> TransportParameters,
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
        let metrics = self.recovery.stats();
        let state = state(self.lifecycle.phase());
        let mut observation = Observation {
            observer,
            span,
            state,
            keys: [false; 3],
            key_updates: 0,
            knows_peer: false,
            told_end: false,
            metrics: metrics.clone(),
        };
        let parameters = parameters(self);
        let first = [
            Event::ConnectionStarted(started),
            Event::ConnectionStateUpdated {
                old: None,
                new: state,
            },
            Event::ParametersSet {
                by_peer: false,
                parameters: &parameters,
                cipher_suite: None,
            },
            Event::RecoveryParametersSet { metrics: &metrics },
            Event::RecoveryMetricsUpdated { metrics: &metrics },
            Event::CongestionStateUpdated {
                old: None,
                new: metrics.congestion,
                trigger: None,
            },
            Event::MtuUpdated {
                old: None,
                new: metrics.mtu,
            },
            Event::EcnStateUpdated {
                old: None,
                new: metrics.ecn,
            },
        ];
        for event in &first {
            observation.tell(now, event);
        }
        self.observation = Some(Box::new(observation));
    }

    /// Log lines are the connection's until this is dropped.
    #[inline]
    pub(super) fn enter_span(&self) -> Option<EnteredSpan> {
        let observation = self.observation.as_ref()?;
        Some(observation.span.clone().entered())
    }

    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        let observation = self.observation.as_ref();
        observation.is_some_and(|observation| observation.observer.is_some())
    }

    fn with_observation(&mut self, f: impl FnOnce(&mut Observation, &Self)) {
        if let Some(mut observation) = self.observation.take() {
            f(&mut observation, self);
            self.observation = Some(observation);
        }
    }

    /// After a call from outside: what changed by and by.
    #[cold]
    pub(super) fn observe_changes(&mut self, now: Time) {
        self.with_observation(|observation, connection| {
            observation.compare_lifecycle(now, connection);
            observation.compare_metrics(now, connection);
        });
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
            dcid: self.remote_cids.current(),
            scid: (kind != PacketKind::OneRtt).then(|| self.handshake.ids().local),
            len: built.size(),
            ecn: self.recovery.is_train_marked().then_some(Ecn::Ect0),
            payload: built.payload(datagram),
        };
        self.with_observation(|observation, connection| {
            observation.compare_lifecycle(now, connection);
            observation.tell(now, &Event::PacketSent(packet));
        });
    }

    /// A packet was opened.
    #[cold]
    pub(super) fn observe_packet_received(&mut self, now: Time, packet: Packet<'_>) {
        self.with_observation(|observation, connection| {
            observation.compare_lifecycle(now, connection);
            observation.tell(now, &Event::PacketReceived(packet));
        });
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
