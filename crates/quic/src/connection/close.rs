//! How a connection ends (RFC 9000 §10): every reason, and what each means for the components.
//!
//! `state` says whether an ending is news and which CONNECTION_CLOSE is sent; here the deadlines are
//! set, the application is told its reason and the streams are let go.

use towline_wire::{CloseFrame, PacketNumberSpace, StatelessResetToken, Time, TransportErrorCode};

use super::events::Event;
use super::parts::Connection;
use crate::crypto::TlsFailure;
use crate::error::{ConnectionError, Violation};

impl Connection {
    /// A packet that cannot be opened may be the peer's stateless reset (RFC 9000 §10.3.1).
    pub(crate) fn check_stateless_reset(&mut self, now: Time, datagram: &[u8]) {
        let Some(tail) = datagram.last_chunk::<16>() else {
            return;
        };
        let token = StatelessResetToken::new(*tail);
        if datagram.len() >= 21 && self.remote_cids.is_reset_token(&token) {
            self.drain(now, ConnectionError::StatelessReset);
        }
    }

    /// Every alert is fatal (RFC 9001 §4.8).
    pub(super) fn fail_tls(&mut self, now: Time, failure: TlsFailure) {
        let reason = ConnectionError::Tls {
            code: failure.code,
            what: failure.what,
        };
        if self.lifecycle.close_with(failure.code, reason) {
            self.on_closing(now);
        }
    }

    pub(super) fn fail_aead_limit(&mut self, now: Time) {
        let code = TransportErrorCode::AEAD_LIMIT_REACHED;
        if self
            .lifecycle
            .close_with(code, ConnectionError::AeadLimitReached)
        {
            self.on_closing(now);
        }
    }

    /// Every error of the connection is signalled with the code that fits best (RFC 9000 §11,
    /// §11.1).
    pub(super) fn fail(&mut self, now: Time, violation: &Violation) {
        tracing::debug!(code = %violation.code, what = violation.what, "peer misbehaved");
        if self.lifecycle.close_for(violation) {
            self.on_closing(now);
        }
    }

    pub(super) fn fail_internally(&mut self, now: Time, what: &'static str) {
        let code = TransportErrorCode::INTERNAL_ERROR;
        if self
            .lifecycle
            .close_with(code, ConnectionError::Internal(what))
        {
            self.on_closing(now);
        }
    }

    /// The endpoint is out of memory: the connection ends and lets go of all it can.
    pub(crate) fn shed(&mut self, now: Time) {
        let code = TransportErrorCode::INTERNAL_ERROR;
        if self.lifecycle.close_with(code, ConnectionError::Shed) {
            self.on_closing(now);
        }
        self.streams.drop_received();
        self.datagrams.drop_received();
        self.recovery.clear(self.paths.state_mut());
        self.trim();
    }

    /// It is over and stays to be read: everybody else lets go of it. `false` if there is nothing to
    /// read, or the application or the memory limit ended it.
    pub(crate) fn retire(&mut self) -> bool {
        let unwanted = matches!(
            self.lifecycle.close_reason(),
            Some(ConnectionError::ClosedLocally | ConnectionError::Shed)
        );
        if unwanted || !self.has_unread() {
            return false;
        }
        self.recovery.retire(self.paths.state_mut());
        self.observation = None;
        self.trim();
        true
    }

    /// Something arrived that the application can still be given.
    pub(crate) fn has_unread(&self) -> bool {
        self.streams.has_unread() || self.datagrams.received() > 0
    }

    /// The closing period begins (RFC 9000 §10.2.1).
    pub(super) fn on_closing(&mut self, now: Time) {
        self.end_with_period(now);
    }

    pub(super) fn on_peer_close(&mut self, now: Time, close: &CloseFrame<'_>) {
        if self.lifecycle.on_peer_close(close) {
            self.end_with_period(now);
        }
    }

    fn drain(&mut self, now: Time, reason: ConnectionError) {
        if self.lifecycle.drain(reason) {
            self.end_with_period(now);
        }
    }

    /// Three PTOs, for packets still under way (RFC 9000 §10.2).
    fn end_with_period(&mut self, now: Time) {
        let period = 3 * self.paths.state().pto(PacketNumberSpace::Application);
        self.liveness.on_closing(now + period);
        self.report_end();
    }

    pub(super) fn end_now(&mut self, reason: ConnectionError) {
        self.liveness.on_end();
        if self.lifecycle.finish(reason) {
            self.report_end();
        }
        self.events.push(Event::Drained);
    }

    /// Tells the application why the connection ended, and lets the streams go.
    fn report_end(&mut self) {
        if let Some(reason) = self.lifecycle.close_reason() {
            self.events.push(Event::Closed(reason.clone()));
        }
        self.streams.on_connection_lost();
    }
}
