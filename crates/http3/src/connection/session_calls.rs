//! What an application does with WebTransport sessions (draft-ietf-webtrans-http3-16 §3, §4.7, §6).

use http::{Method, StatusCode};
use towline_wire::http3::{Capsule, ErrorCode};

use super::parts::Connection;
use super::sessions::set_field;
use crate::counts::Count;
use crate::error::SendError;
use crate::observe::Event;
use crate::transport::Transport;
use crate::webtransport::{
    self, ConnectError, Dialect, Flow, NO_QUIC_DATAGRAMS, Session, SessionEnd, SessionId, State,
};

const SWITCHED_OFF: &str = "WebTransport is not switched on at this end";

impl Connection {
    /// Asks a server for a session (draft-ietf-webtrans-http3-16 §3.2). `head` has the target and
    /// further fields, as `origin`; `protocols` are the application protocols that are offered.
    ///
    /// # Errors
    /// See [`ConnectError`]; `NotReady` until [`Event::Settings`](crate::Event::Settings). Nothing was sent then.
    pub fn connect_session<T: Transport>(
        &mut self,
        transport: &mut T,
        head: &http::request::Parts,
        protocols: &[&str],
    ) -> Result<SessionId, ConnectError> {
        let (dialect, flow) = self.negotiate(transport)?;
        let mut head = head.clone();
        head.method = Method::CONNECT;
        let named = webtransport::set_available(&mut head.headers, protocols);
        named.map_err(SendError::Malformed)?;
        set_field(&mut head.headers, dialect.request_field());
        let token = dialect.token().as_bytes();
        let id = self.open_request(transport, &head, Some(token), false)?;
        let protocols = protocols.iter().map(|name| (*name).to_owned()).collect();
        let session = Session::new(dialect, flow, protocols, &self.account);
        self.add_session(id, session);
        self.on_session_asked(transport, id, dialect);
        Ok(id)
    }

    /// Why the server's SETTINGS permit a client no session, in words. `None` if they do, and
    /// before they came.
    pub fn session_obstacle(&self) -> Option<&'static str> {
        let sessions = self.sessions.as_ref()?;
        let theirs = self.settings.as_ref()?;
        webtransport::of_server(sessions.config.dialects, theirs).err()
    }

    /// The version and the limits of a client's next session.
    fn negotiate<T: Transport>(
        &self,
        transport: &T,
    ) -> Result<(Dialect, Option<Flow>), ConnectError> {
        if self.side.is_server() {
            return Err(SendError::WrongState.into());
        }
        let off = ConnectError::Unsupported(SWITCHED_OFF);
        let sessions = self.sessions.as_ref().ok_or(off)?;
        let theirs = self.settings.as_ref().ok_or(SendError::NotReady)?;
        let dialect = webtransport::of_server(sessions.config.dialects, theirs)
            .map_err(ConnectError::Unsupported)?;
        if transport.max_datagram_len().is_none() {
            return Err(ConnectError::Unsupported(NO_QUIC_DATAGRAMS));
        }
        let ours = &self.config.settings;
        let limited = dialect.limits_sessions(ours, theirs);
        let max = dialect.max_sessions(theirs).unwrap_or(u64::MAX);
        let alone = dialect.has_flow_control() && !limited;
        if sessions.count() >= if alone { 1 } else { max } {
            return Err(ConnectError::TooManySessions);
        }
        Ok((dialect, limited.then(|| Flow::new(dialect, ours, theirs))))
    }

    /// Accepts a client's session: `head` has a 2xx status and further fields, `protocol` is one of
    /// those that the client offered.
    ///
    /// # Errors
    /// See [`SendError`]. Nothing was sent then.
    pub fn accept_session<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        head: &http::response::Parts,
        protocol: Option<&str>,
    ) -> Result<(), SendError> {
        let asked = self.asked(session)?;
        if !head.status.is_success() {
            return Err(SendError::WrongState);
        }
        let mut head = head.clone();
        if let Some(protocol) = protocol {
            if !asked.protocols.iter().any(|name| name == protocol) {
                return Err(SendError::Malformed(
                    "a protocol that the client did not offer",
                ));
            }
            let named = webtransport::set_chosen(&mut head.headers, protocol);
            named.map_err(SendError::Malformed)?;
        }
        set_field(&mut head.headers, asked.dialect.response_field());
        let dialect = asked.dialect;
        self.send_response(transport, session, &head, false)?;
        self.on_session_accepted(transport, session, dialect, protocol);
        self.establish(transport, session);
        self.receive_on(transport, session);
        self.flush_own(transport);
        Ok(())
    }

    /// Answers a client's request for a session with a status of 3xx to 5xx: 403 for an origin that
    /// may not, 404 or 405 where there is none (draft-ietf-webtrans-http3-16 §3.2).
    ///
    /// # Errors
    /// See [`SendError`]. Nothing was sent then.
    pub fn refuse_session<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        status: StatusCode,
    ) -> Result<(), SendError> {
        self.asked(session)?;
        if status.is_success() || status.is_informational() {
            return Err(SendError::WrongState);
        }
        self.forget_session(transport, session);
        self.count(Count::SessionsRefused);
        transport.observe(|| Event::SessionRefused {
            session,
            status: Some(status),
            reason: None,
        });
        self.refuse(transport, session, status);
        self.flush_own(transport);
        Ok(())
    }

    /// A session that waits for this server's answer.
    fn asked(&self, session: SessionId) -> Result<&Session, SendError> {
        let open = self.session(session).ok_or(SendError::WrongState)?;
        match open.state == State::Asked && self.side.is_server() {
            true => Ok(open),
            false => Err(SendError::WrongState),
        }
    }

    /// Closes a session with the application's code and words, of which 1,024 bytes are sent. It is
    /// over at once, whatever credit the peer gives (draft-ietf-webtrans-http3-16 §6).
    pub fn close_session<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        code: u32,
        message: &str,
    ) {
        match self.session(session).map(|open| open.state) {
            None => return,
            Some(State::Asked) => {
                return self.cancel(transport, session, ErrorCode::H3_REQUEST_CANCELLED);
            }
            Some(State::Open) => {}
        }
        if let Some(connect) = self.messages.get_mut(&session) {
            let capsule = Capsule::CloseSession { code, message };
            connect.outgoing.capsule(transport, session, &capsule);
        }
        self.end_sending(transport, session);
        let reason = SessionEnd::Closed {
            code,
            message: message.to_owned(),
            by_peer: false,
        };
        self.end_session(transport, session, reason);
        self.forget_if_over(session);
        self.flush_own(transport);
    }

    /// Asks the peer to end a session soon (draft-ietf-webtrans-http3-16 §4.7).
    pub fn drain_session<T: Transport>(&mut self, transport: &mut T, session: SessionId) {
        if let Some(open) = self.session_mut(session) {
            open.drain = true;
            self.tell_peer(transport, session);
        }
    }

    /// The version a session speaks; `None` when there is no such session any more.
    pub fn session_dialect(&self, session: SessionId) -> Option<Dialect> {
        self.session(session).map(|open| open.dialect)
    }

    /// Sessions that are open or asked for.
    pub fn sessions(&self) -> usize {
        let sessions = self.sessions.as_ref();
        sessions.map_or(0, |sessions| sessions.open.len())
    }
}
