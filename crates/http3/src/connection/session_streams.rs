//! Streams and datagrams of WebTransport sessions (draft-ietf-webtrans-http3-16 §4.2 to §4.6, §5).
//!
//! A prefix is read here and no byte behind it: the payload is between the application and the
//! transport, and this end is told how much of it went by.

use std::collections::BTreeSet;

use bytes::Bytes;
use towline_wire::http3::{ErrorCode, FrameType, session_id};
use towline_wire::{Direction, StreamId};

use super::incoming::Phase;
use super::parts::{Connection, Role};
use super::session_limits::breach;
use super::varints::Incomplete;
use crate::counts::Count;
use crate::error::Error;
use crate::observe;
use crate::transport::{Transport, WriteError};
use crate::webtransport::{
    self, Dialect, OpenError, Prefix, Session, SessionEvent, SessionId, Sessions, State,
};

/// What becomes of a stream or a datagram that names a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Open,
    /// The session may still come.
    Early,
    Gone,
}

impl Connection {
    /// Reads the prefix of a stream that the peer opened.
    pub(super) fn read_prefix<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        prefix: Prefix,
    ) {
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        let prefix = sessions.prefixes.entry(id).or_insert(prefix);
        let read = match prefix {
            Prefix::Session(varints, len) => {
                let read = varints.read(transport, id);
                read.map(|[session]| (session, *len + varints.last_len()))
            }
            Prefix::Signal(varints) => match varints.read(transport, id) {
                Ok([signal, session]) if signal == FrameType::WEBTRANSPORT_STREAM.as_u64() => {
                    Ok((session, varints.last_len()))
                }
                Ok(_) => return self.fail(transport, not_permitted()),
                Err(incomplete) => Err(incomplete),
            },
        };
        if read == Err(Incomplete::Blocked) {
            return;
        }
        sessions.prefixes.remove(&id);
        match read {
            Ok((session, prefix)) => self.on_session_stream(transport, id, session, prefix),
            Err(_) => self.give_up(transport, id, ErrorCode::H3_FRAME_ERROR),
        }
    }

    /// Whether a stream's prefix is being read; reads on.
    pub(super) fn reads_prefix<T: Transport>(&mut self, transport: &mut T, id: StreamId) -> bool {
        let sessions = self.sessions.as_mut();
        let prefix = sessions.and_then(|sessions| sessions.prefixes.remove(&id));
        match prefix {
            Some(prefix) => {
                self.read_prefix(transport, id, prefix);
                true
            }
            None => false,
        }
    }

    /// A stream names its session, in a prefix of so many bytes.
    pub(super) fn on_session_stream<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        session: u64,
        prefix: u64,
    ) {
        let Some(session) = session_id(session) else {
            let reason = "a stream whose session ID names no request";
            return self.fail(transport, Error::new(ErrorCode::H3_ID_ERROR, reason));
        };
        match self.place(session) {
            Place::Open => self.attach(transport, session, id, prefix),
            Place::Early => {
                let early = self.sessions.as_mut().map(Sessions::early);
                if !early.is_some_and(|early| early.hold_stream(session, id, prefix)) {
                    self.count(Count::StreamsRefused);
                    self.give_up(transport, id, ErrorCode::WT_BUFFERED_STREAM_REJECTED);
                }
            }
            Place::Gone => {
                self.count(Count::StreamsRefused);
                self.give_up(transport, id, ErrorCode::WT_SESSION_GONE);
            }
        }
    }

    fn place(&self, session: SessionId) -> Place {
        match self.session(session).map(|open| open.state) {
            Some(State::Open) => return Place::Open,
            Some(State::Asked) => return Place::Early,
            None => {}
        }
        let early = match self.messages.get(&session) {
            // It waits for the client's SETTINGS, or its head has not come.
            Some(message) => {
                let head = message.incoming.phase() == Phase::Head;
                let comes = head && !message.incoming.is_over();
                message.role == Role::Session || (self.side.is_server() && comes)
            }
            None => {
                let going = self
                    .going
                    .sent
                    .is_some_and(|first| session.as_u64() >= first);
                self.side.is_server() && !going && session.as_u64() >= self.going.next_request
            }
        };
        if early { Place::Early } else { Place::Gone }
    }

    /// Whether the session of this stream may still be established.
    pub(super) fn may_come(&self, session: SessionId) -> bool {
        self.place(session) == Place::Early
    }

    /// What was held for sessions that our GOAWAY leaves out.
    pub(super) fn reject_those_that_cannot_come<T: Transport>(&mut self, transport: &mut T) {
        let waits: BTreeSet<SessionId> = match &self.sessions {
            Some(sessions) => sessions.early_sessions().collect(),
            None => return,
        };
        for session in waits {
            if !self.may_come(session) {
                self.reject_early(transport, session);
            }
        }
    }

    /// A stream of the peer's joins its session.
    pub(super) fn attach<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        id: StreamId,
        prefix: u64,
    ) {
        let direction = id.direction();
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        if sessions.get(session).is_none() {
            return self.give_up(transport, id, ErrorCode::WT_SESSION_GONE);
        }
        sessions.add_stream(session, id, prefix);
        let flow = sessions
            .get_mut(session)
            .and_then(|open| open.flow.as_mut());
        if let Some(Err(error)) = flow.map(|flow| flow.on_stream(direction)) {
            return self.fail_stream(transport, session, breach(error));
        }
        self.count(Count::StreamsReceived);
        transport.observe(|| observe::Event::SessionStreamOpened {
            session,
            id,
            by_peer: true,
        });
        self.tell(SessionEvent::StreamOpened {
            session,
            id,
            direction,
        });
        self.check_received(transport, id);
    }

    /// Opens a stream of a session and writes its prefix: what follows is the application's. A
    /// client can do so before the session is established.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_session_stream<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        direction: Direction,
    ) -> Result<StreamId, OpenError> {
        let client = self.side.is_client();
        let open = self.session_mut(session).ok_or(OpenError::Closed)?;
        if open.state == State::Asked && !client {
            return Err(OpenError::Closed);
        }
        let (id, mut prefix) = match open.opening[direction.index()].take() {
            Some(begun) => begun,
            None => match begin(transport, open, session, direction) {
                Some(begun) => begun,
                None => {
                    self.tell_peer(transport, session);
                    return Err(OpenError::Blocked);
                }
            },
        };
        while !prefix.is_empty() {
            match transport.write(id, &mut prefix) {
                Ok(1..) => {}
                Ok(0) | Err(WriteError::Blocked) => {
                    open.opening[direction.index()] = Some((id, prefix));
                    return Err(OpenError::Blocked);
                }
                // The peer wants nothing of it: its user will see that.
                Err(WriteError::Stopped(_) | WriteError::Closed) => break,
            }
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.add_stream(session, id, 0);
        }
        self.count(Count::StreamsOpened);
        transport.observe(|| observe::Event::SessionStreamOpened {
            session,
            id,
            by_peer: false,
        });
        Ok(id)
    }

    /// Whether a session's limit on streams lets this end open one.
    pub fn may_open(&self, session: SessionId, direction: Direction) -> bool {
        let flow = self.session(session).map(|open| open.flow.as_ref());
        flow.is_some_and(|flow| flow.is_none_or(|flow| flow.may_open(direction)))
    }

    /// A stream has room whose prefix is not written.
    pub(super) fn on_prefix_writable(&mut self, id: StreamId) {
        let Some(sessions) = &self.sessions else {
            return;
        };
        // One whose prefix is written is found at once: others are looked for among all sessions.
        if sessions.streams.contains_key(&id) {
            return;
        }
        let waits = |open: &Session| open.opening.iter().flatten().any(|(of, _)| *of == id);
        let found = sessions.open.iter().find(|(_, open)| waits(open));
        if let Some((session, _)) = found {
            let session = *session;
            let direction = id.direction();
            self.tell(SessionEvent::MayOpen { session, direction });
        }
    }

    /// The peer permits more streams of the connection: whoever waits for one tries again.
    pub(super) fn retry_streams(&mut self) {
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        for (session, open) in &mut sessions.open {
            let wants = std::mem::take(&mut open.wants_stream);
            for direction in Direction::ALL {
                if wants[direction.index()] {
                    let session = *session;
                    let event = SessionEvent::MayOpen { session, direction };
                    self.events.push(crate::Event::Session(event));
                }
            }
        }
    }

    /// Gives our half of a stream up with the application's code. The prefix still arrives where the
    /// peer knows RESET_STREAM_AT (draft-ietf-webtrans-http3-16 §4.4).
    pub fn reset_session_stream<T: Transport>(
        &mut self,
        transport: &mut T,
        stream: StreamId,
        code: u32,
    ) {
        let http3 = self.session_code_to_http3(stream, code.into());
        match self.session_of(stream) {
            Some(session) if stream.initiator() == self.side => {
                let prefix = webtransport::prefix_len(session, stream.direction());
                transport.reset_at(stream, http3, prefix);
            }
            _ => transport.reset(stream, http3),
        }
        self.take_back_unsent(transport, stream);
    }

    /// Wants no more of the peer's half of a stream, with the application's code.
    pub fn stop_session_stream<T: Transport>(
        &mut self,
        transport: &mut T,
        stream: StreamId,
        code: u32,
    ) {
        self.check_received(transport, stream);
        transport.stop(stream, self.session_code_to_http3(stream, code.into()));
        self.await_size(transport, stream);
    }

    /// What RESET_STREAM and STOP_SENDING carry for an application's code on a stream of a session;
    /// on other streams the code itself.
    pub fn session_code_to_http3(&self, stream: StreamId, code: u64) -> u64 {
        let session = self.session_of(stream);
        let dialect = session.and_then(|session| Some(self.session(session)?.dialect));
        let code32 = u32::try_from(code).unwrap_or(u32::MAX);
        dialect.map_or(code, |dialect| dialect.to_http3(code32).as_u64())
    }

    /// The application's code in RESET_STREAM or STOP_SENDING on a stream of a session; `None` where
    /// the peer sent none.
    pub fn session_code_from_http3(&self, stream: StreamId, code: u64) -> Option<u32> {
        let session = self.session_of(stream);
        let dialect = session.and_then(|session| Some(self.session(session)?.dialect));
        dialect.unwrap_or(Dialect::Draft16).to_application(code)
    }

    /// A datagram for a session, or for a request that may become one. Returns it if it is not.
    pub(super) fn on_session_datagram(&mut self, id: SessionId, payload: Bytes) -> Option<Bytes> {
        if self.sessions.is_none() {
            return Some(payload);
        }
        match self.place(id) {
            Place::Open => self.events.push_datagram(id, payload),
            Place::Early => {
                let early = self.sessions.as_mut().map(Sessions::early);
                if !early.is_some_and(|early| early.hold_datagram(id, payload)) {
                    self.count(Count::DatagramsDropped);
                }
            }
            Place::Gone if self.role(id) == Role::Request => return Some(payload),
            Place::Gone => {}
        }
        None
    }
}

/// Opens a stream if the limits permit, and says what it begins with.
fn begin<T: Transport>(
    transport: &mut T,
    open: &mut Session,
    session: SessionId,
    direction: Direction,
) -> Option<(StreamId, Bytes)> {
    if let Some(flow) = &mut open.flow
        && !flow.may_open(direction)
    {
        flow.want_stream(direction);
        return None;
    }
    let Some(id) = transport.open(direction) else {
        open.wants_stream[direction.index()] = true;
        return None;
    };
    if let Some(flow) = &mut open.flow {
        flow.on_opened(direction);
    }
    Some((id, webtransport::prefix(session, direction)))
}

/// A server opened a stream that is no stream of a session (RFC 9114 §6.1).
pub(super) fn not_permitted() -> Error {
    let reason = "a server opened a bidirectional stream";
    Error::new(ErrorCode::H3_STREAM_CREATION_ERROR, reason)
}
