//! A connection's observer, and what it has been told so far.
//!
//! Owned by the connection if somebody observes it or its log lines have a span; told of everything
//! by `observe`. What changes gradually (state, keys, parameters, recovery's numbers) it compares with
//! what it told before.

use towline_wire::{PacketNumberSpace, Time};
use tracing::Span;
use tracing::span::EnteredSpan;

use super::handshake::Handshake;
use super::protect::Protection;
use super::state::{Lifecycle, Phase};
use crate::observe::{
    CongestionTrigger, ConnectionState, Event, NewConnection, Observer, RecoveryMetrics,
    TransportParameters,
};

/// A connection's observer, and what it has been told.
pub(super) struct Observation {
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
    /// Tells what there is to tell of a connection that begins.
    pub(super) fn begin(
        now: Time,
        observer: Option<Box<dyn Observer>>,
        span: Span,
        started: NewConnection,
        phase: Phase,
        parameters: Option<&TransportParameters>,
        metrics: RecoveryMetrics,
    ) -> Self {
        let state = state(phase);
        let mut observation = Self {
            observer,
            span,
            state,
            keys: [false; 3],
            key_updates: 0,
            knows_peer: false,
            told_end: false,
            metrics: metrics.clone(),
        };
        observation.tell(now, &Event::ConnectionStarted(started));
        let (old, new) = (None, state);
        observation.tell(now, &Event::ConnectionStateUpdated { old, new });
        if let Some(parameters) = parameters {
            observation.tell_parameters(now, parameters);
        }
        let rest = [
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
        for event in &rest {
            observation.tell(now, event);
        }
        observation
    }

    /// Tells our own transport parameters.
    pub(super) fn tell_parameters(&mut self, now: Time, parameters: &TransportParameters) {
        self.tell(
            now,
            &Event::ParametersSet {
                by_peer: false,
                parameters,
                cipher_suite: None,
            },
        );
    }

    /// Log lines are the connection's until this is dropped.
    #[inline]
    pub(super) fn enter_span(&self) -> EnteredSpan {
        self.span.clone().entered()
    }

    /// There is an observer, and not only a span.
    #[inline]
    pub(super) fn has_observer(&self) -> bool {
        self.observer.is_some()
    }

    /// Hands an event to the observer.
    pub(super) fn tell(&mut self, now: Time, event: &Event<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.on_event(now, event);
        }
    }

    /// State, keys, parameters and the end.
    pub(super) fn compare_lifecycle(
        &mut self,
        now: Time,
        lifecycle: &Lifecycle,
        handshake: &Handshake,
        protection: &Protection,
    ) {
        self.compare_keys(now, protection);
        if !self.knows_peer
            && let Some(parameters) = handshake.peer()
        {
            self.knows_peer = true;
            self.tell(
                now,
                &Event::ParametersSet {
                    by_peer: true,
                    parameters,
                    cipher_suite: handshake.cipher_suite(),
                },
            );
        }
        let (old, new) = (self.state, state(lifecycle.phase()));
        if old != new {
            self.state = new;
            let is_first = old == ConnectionState::HandshakeStarted;
            if is_first && let Some(chosen) = handshake.alpn() {
                self.tell(now, &Event::AlpnInformation { chosen });
            }
            let old = Some(old);
            self.tell(now, &Event::ConnectionStateUpdated { old, new });
        }
        if !self.told_end
            && let Some(reason) = lifecycle.close_reason()
        {
            self.told_end = true;
            self.tell(now, &Event::ConnectionClosed { reason });
        }
    }

    fn compare_keys(&mut self, now: Time, protection: &Protection) {
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
    pub(super) fn compare_metrics(&mut self, now: Time, new: RecoveryMetrics) {
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
