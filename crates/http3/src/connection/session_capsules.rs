//! What comes and goes on the CONNECT stream of a session: capsules, and the end of the stream
//! (RFC 9297 §3, draft-ietf-webtrans-http3-16 §5.6, §6).

use bytes::Bytes;
use towline_wire::http3::ErrorCode;

use super::incoming::Step;
use super::parts::{Connection, Role};
use super::session_limits::breach;
use crate::error::{Fault, StreamError};
use crate::observe::Event;
use crate::transport::Transport;
use crate::webtransport::{Session, SessionEnd, SessionEvent, SessionId, State, Told};

/// Bytes of capsules that are read at once.
const CHUNK: usize = 4096;

impl Connection {
    /// Reads on where a CONNECT stream has data. `None` to go on.
    ///
    /// # Errors
    /// The peer breaks a rule.
    pub(super) fn on_connect_data<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
    ) -> Result<Option<Step>, Fault> {
        // Before the answer they are not capsules (draft-ietf-webtrans-http3-16 §3.2).
        let role = self.role(id);
        let asked = |state| state == Some(State::Asked);
        if role == Role::Session && asked(self.session(id).map(|open| open.state)) {
            return Ok(Some(Step::Blocked));
        }
        let Some(message) = self.messages.get_mut(&id) else {
            return Ok(Some(Step::Over));
        };
        let bytes = match message.incoming.data(transport, id, CHUNK)? {
            Ok(bytes) => bytes,
            Err(step) => return Ok(Some(step)),
        };
        match role {
            Role::Session => self.on_capsules(transport, id, bytes)?,
            Role::ClosedByPeer => {
                let reason = "data after WT_CLOSE_SESSION";
                return Err(StreamError::malformed(reason).into());
            }
            Role::Over | Role::Request => {}
        }
        Ok(None)
    }

    fn on_capsules<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
        mut bytes: Bytes,
    ) -> Result<(), Fault> {
        while let Some(open) = self.session_mut(id) {
            let told = open
                .reader
                .next(&mut bytes)
                .map_err(|error| StreamError::new(error.code(), "a malformed capsule"))?;
            if let Some(told) = &told {
                transport.observe(|| Event::CapsuleParsed {
                    session: id,
                    capsule: (&told.capsule()).into(),
                });
            }
            match told {
                None => break,
                Some(Told::Close { code, message }) => {
                    self.on_close(transport, id, code, message);
                    if !bytes.is_empty() {
                        let reason = "data after WT_CLOSE_SESSION";
                        return Err(StreamError::malformed(reason).into());
                    }
                }
                Some(told) => self.on_capsule(id, told)?,
            }
        }
        self.tell_peer(transport, id);
        Ok(())
    }

    fn on_capsule(&mut self, id: SessionId, told: Told) -> Result<(), Fault> {
        let Some(open) = self.session_mut(id) else {
            return Ok(());
        };
        // Without agreed limits nobody minds what is said of them
        // (draft-ietf-webtrans-http3-16 §5.1).
        let event = match (told, &mut open.flow) {
            (Told::Datagram(payload), _) => {
                self.events.push_datagram(id, payload);
                None
            }
            (Told::Drain, _) => {
                self.on_drain(id);
                None
            }
            (Told::MaxData(max), Some(flow)) => {
                let waited = flow.on_max_data(max).map_err(breach)?;
                waited.then_some(SessionEvent::Credit(id))
            }
            (Told::MaxStreams(direction, max), Some(flow)) => {
                let waited = flow.on_max_streams(direction, max).map_err(breach)?;
                let session = id;
                waited.then_some(SessionEvent::MayOpen { session, direction })
            }
            (Told::DataBlocked(at), Some(flow)) => {
                flow.on_data_blocked(at);
                None
            }
            (Told::StreamsBlocked(direction, at), Some(flow)) => {
                flow.on_streams_blocked(direction, at);
                None
            }
            _ => None,
        };
        if let Some(event) = event {
            self.tell(event);
        }
        Ok(())
    }

    /// WT_CLOSE_SESSION came: our half ends too (draft-ietf-webtrans-http3-16 §6).
    fn on_close<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
        code: u32,
        message: String,
    ) {
        let reason = SessionEnd::Closed {
            code,
            message,
            by_peer: true,
        };
        self.end_session(transport, id, reason);
        if let Some(message) = self.messages.get_mut(&id) {
            message.role = Role::ClosedByPeer;
        }
        self.end_sending(transport, id);
    }

    /// The peer's half of a CONNECT stream ended.
    ///
    /// # Errors
    /// It ended inside of a capsule (RFC 9297 §3.3).
    pub(super) fn on_connect_finished<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
    ) -> Result<(), Fault> {
        let Some(open) = self.session(id) else {
            // It waited for the client's SETTINGS.
            self.drop_message(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
            return Ok(());
        };
        if open.reader.is_inside() {
            return Err(StreamError::malformed("a capsule that is cut off").into());
        }
        if open.state == State::Asked {
            // Our half has no answer on it: its end must not look like one.
            self.drop_message(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
        }
        // As if it were closed with 0 and no words (draft-ietf-webtrans-http3-16 §6).
        self.on_close(transport, id, 0, String::new());
        Ok(())
    }

    /// The peer gave its half of a session's CONNECT stream up.
    pub(super) fn on_connect_reset<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
        code: u64,
    ) {
        self.drop_message(transport, id, ErrorCode::WT_SESSION_GONE);
        self.end_session(transport, id, SessionEnd::Reset { code });
    }

    /// The peer wants no more of our half. With WT_SESSION_GONE it has closed the session, and its
    /// words may still be on the way (draft-ietf-webtrans-http3-16 §6).
    pub(super) fn on_connect_stopped<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
        code: u64,
    ) {
        let closed = code == ErrorCode::WT_SESSION_GONE.as_u64();
        // A server that refuses wants no more of the request; its answer follows (RFC 9114 §4.1).
        let waits = |open: &Session| open.state == State::Asked;
        let waits = self.side.is_client() && self.session(id).is_some_and(waits);
        if self.role(id) != Role::Session || closed || waits {
            return self.forget_if_over(id);
        }
        self.on_connect_reset(transport, id, code);
    }

    /// The peer goes away: that drains all sessions (draft-ietf-webtrans-http3-16 §4.7).
    pub(super) fn drain_all(&mut self) {
        let ids: Vec<SessionId> = match &self.sessions {
            Some(sessions) => sessions.open.keys().copied().collect(),
            None => return,
        };
        for id in ids {
            self.on_drain(id);
        }
    }

    pub(super) fn on_drain(&mut self, session: SessionId) {
        if let Some(open) = self.session_mut(session)
            && !std::mem::replace(&mut open.draining, true)
        {
            self.tell(SessionEvent::Draining(session));
        }
    }
}
