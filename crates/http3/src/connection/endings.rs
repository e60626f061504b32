//! How messages and sessions come to an end before they are whole (RFC 9114 §4.1.1, §4.1.2,
//! draft-ietf-webtrans-http3-16 §6).

use towline_wire::http3::ErrorCode;
use towline_wire::{Direction, StreamId};

use super::parts::{Connection, Role};
use crate::counts::Count;
use crate::error::{Fault, StreamError};
use crate::event::Event;
use crate::observe;
use crate::transport::Transport;
use crate::webtransport::{SessionEnd, SessionEvent, SessionId, State};

impl Connection {
    /// A breach of the peer's reaches the connection, or only `id`.
    pub(super) fn breach<T: Transport>(&mut self, transport: &mut T, id: StreamId, fault: Fault) {
        match fault {
            Fault::Connection(error) => self.fail(transport, error),
            Fault::Stream(error) => self.fail_stream(transport, id, error),
        }
    }

    /// Gives one message up in both directions (RFC 9114 §4.1.2).
    pub(super) fn fail_stream<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        error: StreamError,
    ) {
        let role = self.role(id);
        self.drop_message(transport, id, error.code);
        match role {
            Role::Request => {
                self.count(Count::MessagesRefused);
                self.events.push(Event::Failed { id, error });
            }
            _ => self.end_session(transport, id, SessionEnd::Failed(error)),
        }
    }

    /// Gives up a request in both directions, for instance with H3_REQUEST_CANCELLED (RFC 9114 §4.1.1).
    pub fn cancel<T: Transport>(&mut self, transport: &mut T, id: StreamId, code: ErrorCode) {
        self.drop_message(transport, id, code);
        self.end_session(transport, id, SessionEnd::Cancelled);
        self.flush_own(transport);
    }

    /// Wants no more of the peer's message; H3_NO_ERROR where the answer needs no more of it.
    pub fn stop_reading<T: Transport>(&mut self, transport: &mut T, id: StreamId, code: ErrorCode) {
        if let Some(message) = self.messages.get_mut(&id)
            && !message.incoming.is_over()
        {
            message.incoming.abandon();
            transport.stop(id, code.as_u64());
            self.decoder.cancel(id);
            self.again.remove(&id);
            self.forget_if_over(id);
        }
        self.flush_own(transport);
    }

    /// Ends both halves of a stream with `code`, and forgets it.
    pub(super) fn drop_message<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        code: ErrorCode,
    ) {
        if let Some(message) = self.messages.remove(&id) {
            if !message.incoming.is_over() {
                transport.stop(id, code.as_u64());
                self.decoder.cancel(id);
            }
            if !message.outgoing.is_over() {
                transport.reset(id, code.as_u64());
            }
        }
        self.again.remove(&id);
        if self.session(id).is_none() {
            self.reject_early(transport, id);
        }
    }

    /// A session is over: its streams with it, and our application hears why.
    pub(super) fn end_session<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        reason: SessionEnd,
    ) {
        let state = self.session(session).map(|open| open.state);
        if self.forget_session(transport, session) {
            if state == Some(State::Open) {
                self.count(Count::SessionsEnded);
            }
            if let SessionEnd::Failed(_) = reason {
                self.count(Count::SessionsFailed);
            }
            transport.observe(|| observe::Event::SessionClosed {
                session,
                end: reason.clone(),
            });
            self.tell(SessionEvent::Closed { session, reason });
        }
    }

    /// Ends a session's streams and forgets it; whether there was one.
    pub(super) fn forget_session<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
    ) -> bool {
        self.leave(session);
        let sessions = self.sessions.as_mut();
        let Some(streams) = sessions.and_then(|sessions| sessions.remove(session)) else {
            return false;
        };
        for id in streams {
            self.give_up(transport, id, ErrorCode::WT_SESSION_GONE);
        }
        true
    }

    /// The CONNECT stream has no session any more; it may still have an end to be seen.
    pub(super) fn leave(&mut self, session: SessionId) {
        if let Some(message) = self.messages.get_mut(&session) {
            message.role = Role::Over;
        }
    }

    /// Ends our half of a CONNECT stream.
    pub(super) fn end_sending<T: Transport>(&mut self, transport: &mut T, session: SessionId) {
        if let Some(message) = self.messages.get_mut(&session)
            && !message.outgoing.is_over()
        {
            message.outgoing.end();
            let _ = message.outgoing.flush(transport, session);
        }
    }

    /// Ends what can be ended of a stream.
    pub(super) fn give_up<T: Transport>(&self, transport: &mut T, id: StreamId, code: ErrorCode) {
        let code = code.as_u64();
        let own = id.initiator() == self.side;
        if own || id.direction() == Direction::Bidirectional {
            transport.reset(id, code);
        }
        if !own || id.direction() == Direction::Bidirectional {
            transport.stop(id, code);
        }
    }

    /// What was held for a request that is no session.
    pub(super) fn reject_early<T: Transport>(&mut self, transport: &mut T, session: SessionId) {
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        sessions.held.remove(&session);
        let streams = sessions.early().take_streams(session);
        drop(sessions.early().take_datagrams(session));
        for (id, _) in streams {
            self.count(Count::StreamsRefused);
            self.give_up(transport, id, ErrorCode::WT_SESSION_GONE);
        }
    }
}
