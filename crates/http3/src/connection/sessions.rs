//! WebTransport sessions on this connection, from the CONNECT request to the end
//! (draft-ietf-webtrans-http3-16 §3, §4.7, §6).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use towline_wire::http3::ErrorCode;

use super::parts::{Connection, Role};
use crate::counts::Count;
use crate::error::StreamError;
use crate::event::Event;
use crate::observe;
use crate::transport::Transport;
use crate::webtransport::{
    self, Dialect, Flow, HeldRequest, Session, SessionEvent, SessionId, State,
};

impl Connection {
    pub(super) fn add_session(&mut self, id: SessionId, session: Session) {
        if let Some(message) = self.messages.get_mut(&id) {
            message.role = Role::Session;
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.open.insert(id, Box::new(session));
        }
    }

    /// A client's CONNECT for WebTransport. It waits for the client's SETTINGS, which say what the
    /// client speaks (draft-ietf-webtrans-http3-16 §7.1).
    pub(super) fn on_session_request<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
        head: Box<http::request::Parts>,
        token: Bytes,
    ) {
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        if sessions.count() >= sessions.config.max_sessions {
            return self.reject_session(transport, id, "more sessions than there may be");
        }
        if let Some(message) = self.messages.get_mut(&id) {
            message.role = Role::Session;
        }
        if self.settings.is_none() {
            let _charge = self.account.charge_fields(&head.headers);
            let held = HeldRequest {
                head,
                token,
                _charge,
            };
            sessions.held.insert(id, held);
            return;
        }
        self.consider(transport, id, head, &token);
    }

    /// The client's SETTINGS are there: its requests can be looked at.
    pub(super) fn release_sessions<T: Transport>(&mut self, transport: &mut T) {
        let held = match &mut self.sessions {
            Some(sessions) => std::mem::take(&mut sessions.held),
            None => return,
        };
        for (id, held) in held {
            self.consider(transport, id, held.head, &held.token);
        }
    }

    fn consider<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
        head: Box<http::request::Parts>,
        token: &[u8],
    ) {
        let (Some(sessions), Some(theirs)) = (&self.sessions, &self.settings) else {
            return;
        };
        let offered = sessions.config.dialects;
        let chosen = match transport.max_datagram_len() {
            Some(_) => webtransport::of_client(offered, theirs, token, &head.headers),
            None => Err(webtransport::NO_QUIC_DATAGRAMS),
        };
        let dialect = match chosen {
            Ok(dialect) => dialect,
            Err(reason) => return self.refuse_dialect(transport, id, reason),
        };
        let ours = &self.config.settings;
        let flow = dialect
            .limits_sessions(ours, theirs)
            .then(|| Flow::new(dialect, ours, theirs));
        if dialect.has_flow_control() && flow.is_none() && !sessions.open.is_empty() {
            // Without limits one session would starve the other (draft-ietf-webtrans-http3-16 §5.1).
            return self.reject_session(transport, id, "a second session without limits");
        }
        let protocols = webtransport::available(&head.headers);
        let session = Session::new(dialect, flow, protocols.clone(), &self.account);
        self.add_session(id, session);
        self.on_session_asked(transport, id, dialect);
        self.tell(SessionEvent::Requested {
            session: id,
            head,
            protocols,
            dialect,
        });
    }

    /// A client asks for a session in a version that is spoken.
    pub(super) fn on_session_asked<T: Transport>(
        &self,
        transport: &mut T,
        session: SessionId,
        dialect: Dialect,
    ) {
        self.count(Count::SessionsRequested);
        transport.observe(|| observe::Event::SessionRequested { session, dialect });
    }

    /// The server accepts it.
    pub(super) fn on_session_accepted<T: Transport>(
        &self,
        transport: &mut T,
        session: SessionId,
        dialect: Dialect,
        protocol: Option<&str>,
    ) {
        self.count(Count::SessionsAccepted);
        transport.observe(|| observe::Event::SessionAccepted {
            session,
            dialect,
            protocol: protocol.map(str::to_owned),
        });
    }

    /// The client may ask again when it has fewer sessions.
    fn reject_session<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        reason: &'static str,
    ) {
        self.count(Count::SessionsTooMany);
        transport.observe(|| observe::Event::SessionRefused {
            session,
            status: None,
            reason: Some(reason),
        });
        self.drop_message(transport, session, ErrorCode::H3_REQUEST_REJECTED);
    }

    /// The client is told by a status, our application in words.
    fn refuse_dialect<T: Transport>(
        &mut self,
        transport: &mut T,
        id: SessionId,
        reason: &'static str,
    ) {
        self.leave(id);
        self.reject_early(transport, id);
        self.count(Count::SessionsUnsupported);
        let status = StatusCode::BAD_REQUEST;
        transport.observe(|| observe::Event::SessionRefused {
            session: id,
            status: Some(status),
            reason: Some(reason),
        });
        self.refuse(transport, id, status);
        let error = StreamError::new(ErrorCode::WT_REQUIREMENTS_NOT_MET, reason);
        self.events.push(Event::Failed { id, error });
    }

    /// The server's answer (draft-ietf-webtrans-http3-16 §3.2, §3.3).
    pub(super) fn on_session_response<T: Transport>(
        &mut self,
        transport: &mut T,
        session: SessionId,
        head: Box<http::response::Parts>,
    ) {
        if head.status.is_informational() {
            return;
        }
        if !head.status.is_success() {
            self.forget_session(transport, session);
            self.count(Count::SessionsRefusedByPeer);
            transport.observe(|| observe::Event::SessionRefused {
                session,
                status: Some(head.status),
                reason: None,
            });
            self.end_sending(transport, session);
            return self.tell(SessionEvent::Refused { session, head });
        }
        let protocol = webtransport::chosen(&head.headers);
        let offered = self.session(session).is_some_and(|open| {
            let known = |name: &String| open.protocols.contains(name);
            protocol.as_ref().is_none_or(known)
        });
        if !offered {
            let reason = "the server chose a protocol that was not offered";
            let error = StreamError::new(ErrorCode::WT_ALPN_ERROR, reason);
            return self.fail_stream(transport, session, error);
        }
        if let Some(dialect) = self.session(session).map(|open| open.dialect) {
            self.on_session_accepted(transport, session, dialect, protocol.as_deref());
            self.tell(SessionEvent::Established {
                session,
                head,
                protocol,
                dialect,
            });
        }
        self.establish(transport, session);
    }

    /// What came before the session goes to it now.
    pub(super) fn establish<T: Transport>(&mut self, transport: &mut T, session: SessionId) {
        let Some(sessions) = &mut self.sessions else {
            return;
        };
        if let Some(open) = sessions.get_mut(session) {
            open.state = State::Open;
            open.forget_protocols();
        }
        let early = sessions.early();
        let (streams, datagrams) = (early.take_streams(session), early.take_datagrams(session));
        for (id, prefix) in streams {
            self.attach(transport, session, id, prefix);
        }
        for payload in datagrams {
            self.events.push_datagram(session, payload);
        }
        self.tell_peer(transport, session);
    }
}

pub(super) fn set_field(headers: &mut HeaderMap, field: Option<(&'static str, &'static str)>) {
    if let Some((name, value)) = field {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
}
