//! The limits of sessions: what was sent and read, and what the peer is told of it
//! (draft-ietf-webtrans-http3-16 §5).

use towline_wire::StreamId;
use towline_wire::http3::{Capsule, ErrorCode};

use super::parts::Connection;
use crate::error::{Fault, StreamError};
use crate::transport::Transport;
use crate::webtransport::{
    Breach, Flow, Session, SessionEvent, SessionId, State, Stream, Tell, prefix_len,
};

impl Connection {
    /// The session of a stream; `None` of streams that are none of a session, or are over.
    pub fn session_of(&self, stream: StreamId) -> Option<SessionId> {
        let stream = self.sessions.as_ref()?.streams.get(&stream)?;
        (!stream.over).then_some(stream.session)
    }

    /// How many bytes stood before the payload of a stream that the peer opened; 0 where none did.
    pub fn session_prefix_read(&self, stream: StreamId) -> u64 {
        let sessions = self.sessions.as_ref();
        let stream = sessions.and_then(|sessions| sessions.streams.get(&stream));
        stream.map_or(0, |stream| stream.prefix)
    }

    /// Bytes that may be sent on all streams of a session now; `None` where there is no limit.
    pub fn session_send_credit(&self, session: SessionId) -> Option<u64> {
        let flow = self.session(session)?.flow.as_ref()?;
        Some(flow.send_credit())
    }

    /// Somebody waits for [credit](Self::session_send_credit): the peer is told, and
    /// [`SessionEvent::Credit`] follows.
    pub fn on_session_blocked<T: Transport>(&mut self, transport: &mut T, session: SessionId) {
        let open = self.session_mut(session);
        if let Some(flow) = open.and_then(|open| open.flow.as_mut()) {
            flow.want_credit();
            self.tell_peer(transport, session);
        }
    }

    /// So many bytes of payload were written to a stream.
    pub fn on_session_written(&mut self, stream: StreamId, n: u64) {
        let sessions = self.sessions.as_mut();
        if let Some((open, state)) = sessions.and_then(|sessions| sessions.of_stream(stream))
            && let Some(flow) = &mut open.flow
        {
            flow.on_sent(n);
            state.written = state.written.saturating_add(n);
        }
    }

    /// A reset leaves unsent what was written and waited: it is credit again.
    pub(super) fn take_back_unsent<T: Transport>(&mut self, transport: &T, stream: StreamId) {
        let Some(sent) = transport.sent(stream) else {
            return;
        };
        let own = stream.initiator() == self.side;
        let sessions = self.sessions.as_mut();
        let Some((open, state)) = sessions.and_then(|sessions| sessions.of_stream(stream)) else {
            return;
        };
        let session = state.session;
        let prefix = if own {
            prefix_len(session, stream.direction())
        } else {
            0
        };
        let unsent = state.written.saturating_sub(sent.saturating_sub(prefix));
        state.written -= unsent;
        let waited = open
            .flow
            .as_mut()
            .is_some_and(|flow| flow.on_unsent(unsent));
        if waited {
            self.tell(SessionEvent::Credit(session));
        }
    }

    /// A stream was stopped: what the peer has sent of it beyond what arrived will be known later.
    pub(super) fn await_size<T: Transport>(&mut self, transport: &mut T, stream: StreamId) {
        let sessions = self.sessions.as_mut();
        if let Some((open, state)) = sessions.and_then(|sessions| sessions.of_stream(stream))
            && open.flow.is_some()
        {
            state.awaits_size = transport.await_final_size(stream);
        }
    }

    /// The transport may know by now how long a stream was that was stopped.
    pub(super) fn on_final_size<T: Transport>(&mut self, transport: &mut T, stream: StreamId) {
        // Of a session that is over it is not needed, and the transport need not keep it.
        let Some(size) = transport.take_final_size(stream) else {
            return;
        };
        let sessions = self.sessions.as_mut();
        let Some((_, state)) = sessions.and_then(|sessions| sessions.of_stream(stream)) else {
            return;
        };
        if !state.awaits_size {
            return;
        }
        let over = state.over;
        self.account(transport, stream, |session, state| {
            state.awaits_size = false;
            let Some(flow) = &mut session.flow else {
                return Ok(());
            };
            let known = state.received;
            receive(flow, state, size)?;
            if over {
                flow.on_read(state.received - known);
            }
            Ok(())
        });
        if over && let Some(sessions) = &mut self.sessions {
            sessions.remove_stream(stream);
        }
    }

    /// The application read so many bytes of payload from a stream: the peer may send as many more.
    pub fn on_session_read<T: Transport>(&mut self, transport: &mut T, stream: StreamId, n: u64) {
        self.check_received(transport, stream);
        let read = |session: &mut Session, stream: &mut Stream| {
            let Some(flow) = &mut session.flow else {
                return Ok(());
            };
            stream.read = stream.read.saturating_add(n);
            let unseen = stream.read.saturating_sub(stream.received);
            stream.received += unseen;
            flow.on_received(unseen)?;
            flow.on_read(n);
            Ok(())
        };
        self.account(transport, stream, read);
    }

    /// Nothing more will be written to a stream nor read from it: it is forgotten. `unread` is how
    /// much arrived of it that nobody read, where the transport does not tell.
    pub fn on_session_stream_over<T: Transport>(
        &mut self,
        transport: &mut T,
        stream: StreamId,
        unread: u64,
    ) {
        self.check_received(transport, stream);
        self.take_back_unsent(transport, stream);
        let by_peer = stream.initiator() != self.side;
        let over = |session: &mut Session, state: &mut Stream| {
            let Some(flow) = &mut session.flow else {
                return Ok(());
            };
            let known = state.received.saturating_sub(state.read);
            let unseen = unread.saturating_sub(known);
            state.received += unseen;
            state.read = state.received;
            flow.on_received(unseen)?;
            flow.on_read(known + unseen);
            if by_peer {
                flow.on_stream_over(stream.direction());
            }
            Ok(())
        };
        if self.session_of(stream).is_none() {
            return;
        }
        self.account(transport, stream, over);
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        match sessions.of_stream(stream) {
            Some((_, state)) if state.awaits_size => state.over = true,
            _ => drop(sessions.remove_stream(stream)),
        }
    }

    /// The application comes to the end of a stream, or to the peer's reset, which the transport forgets with
    /// that: of so many bytes, prefix included, what was not read never will be.
    pub fn on_session_final_size<T: Transport>(
        &mut self,
        transport: &mut T,
        stream: StreamId,
        size: u64,
    ) {
        let ended = |session: &mut Session, stream: &mut Stream| {
            let Some(flow) = &mut session.flow else {
                return Ok(());
            };
            receive(flow, stream, size)?;
            flow.on_read(stream.received.saturating_sub(stream.read));
            stream.read = stream.received;
            Ok(())
        };
        self.account(transport, stream, ended);
    }

    /// Holds the peer to the session's limit, where the transport says how much arrived.
    pub(super) fn check_received<T: Transport>(&mut self, transport: &mut T, stream: StreamId) {
        if self.session_of(stream).is_none() {
            return;
        }
        let Some(arrived) = transport.received(stream) else {
            return;
        };
        let received = |session: &mut Session, stream: &mut Stream| match &mut session.flow {
            Some(flow) => receive(flow, stream, arrived),
            None => Ok(()),
        };
        self.account(transport, stream, received);
    }

    /// Changes the limits of a stream's session, and tells the peer of them.
    fn account<T: Transport>(
        &mut self,
        transport: &mut T,
        stream: StreamId,
        change: impl FnOnce(&mut Session, &mut Stream) -> Result<(), Breach>,
    ) {
        let sessions = self.sessions.as_mut();
        let Some((open, state)) = sessions.and_then(|sessions| sessions.of_stream(stream)) else {
            return;
        };
        let session = state.session;
        match change(open, state) {
            Ok(()) => self.tell_peer(transport, session),
            Err(error) => self.breach(transport, session, Fault::Stream(breach(error))),
        }
    }

    /// Tells the peer what a session has to say, one capsule after another as long as the CONNECT
    /// stream takes them: what finds no credit is not kept, but said when there is some.
    pub(super) fn tell_peer<T: Transport>(&mut self, transport: &mut T, id: SessionId) {
        loop {
            let Some(message) = self.messages.get_mut(&id) else {
                return;
            };
            let sessions = self.sessions.as_mut();
            let Some(open) = sessions.and_then(|sessions| sessions.get_mut(id)) else {
                return;
            };
            if open.state == State::Asked || !message.outgoing.is_idle() {
                return;
            }
            let capsule = match &mut open.flow {
                _ if open.drain && !open.drain_sent => {
                    open.drain_sent = true;
                    Capsule::DrainSession
                }
                Some(flow) => match flow.poll_tell() {
                    Some(Tell::MaxData(max)) => Capsule::MaxData(max),
                    Some(Tell::MaxStreams(direction, max)) => Capsule::MaxStreams(direction, max),
                    Some(Tell::DataBlocked(max)) => Capsule::DataBlocked(max),
                    Some(Tell::StreamsBlocked(direction, max)) => {
                        Capsule::StreamsBlocked(direction, max)
                    }
                    None => return,
                },
                None => return,
            };
            message.outgoing.capsule(transport, id, &capsule);
            let _ = message.outgoing.flush(transport, id);
        }
    }
}

/// So many bytes of a stream have arrived, prefix included.
fn receive(flow: &mut Flow, stream: &mut Stream, arrived: u64) -> Result<(), Breach> {
    let arrived = arrived.saturating_sub(stream.prefix);
    let new = arrived.saturating_sub(stream.received);
    stream.received += new;
    flow.on_received(new)
}

pub(super) fn breach(Breach(reason): Breach) -> StreamError {
    StreamError::new(ErrorCode::WT_FLOW_CONTROL_ERROR, reason)
}
