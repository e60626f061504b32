//! The first frames, GOAWAY, priorities, and the orderly end (RFC 9114 §3.2, §5).

use towline_wire::http3::{ErrorCode, FrameType, Settings};
use towline_wire::{MAX_VARINT, StreamId, emit_varint};

use super::parts::Connection;
use super::priority::Priority;
use crate::error::{Error, SendError};
use crate::event::Event;
use crate::observe::{self, Content, Frame};
use crate::settings;
use crate::transport::Transport;
use crate::webtransport::SessionEnd;

/// The largest ID of a client's bidirectional stream: a GOAWAY that refuses nothing yet.
const NO_REQUEST: u64 = MAX_VARINT - 3;

impl Connection {
    /// Streams can be opened: sends SETTINGS, which wait for nothing of the peer's (RFC 9114 §7.2.4.2).
    pub fn on_established<T: Transport>(&mut self, transport: &mut T) {
        let payload = settings::emit(&self.config, self.side);
        let control = &mut self.own.control.queue;
        control.push_frame(FrameType::SETTINGS, &payload);
        self.flush_own(transport);
        let settings = || Settings::parse(&payload).unwrap_or_default();
        transport.observe(|| observe::Event::ParametersSet {
            by_peer: false,
            settings: settings(),
        });
        self.observe_frame(transport, FrameType::SETTINGS, &payload, || {
            Content::Settings(settings())
        });
    }

    /// A frame of our control stream.
    fn observe_frame<T: Transport>(
        &self,
        transport: &mut T,
        kind: FrameType,
        payload: &[u8],
        content: impl FnOnce() -> Content,
    ) {
        // Where the peer permits no stream, nothing was said yet.
        if let Some(id) = self.own.control.id() {
            transport.observe(|| {
                let frame = Frame::saying(kind, payload.len() as u64, content());
                observe::Event::FrameCreated { id, frame }
            });
        }
    }

    /// A server's first word of its end: nothing is refused yet, and clients should begin nothing new
    /// (RFC 9114 §5.2). [`go_away`](Self::go_away) follows a round trip later.
    pub fn announce_end<T: Transport>(&mut self, transport: &mut T) {
        self.send_go_away(transport, NO_REQUEST);
    }

    /// Takes no requests beyond those that have begun. They go on; the connection can be closed with
    /// [`close`](Self::close) when none [is left](Self::requests).
    pub fn go_away<T: Transport>(&mut self, transport: &mut T) {
        // A client's says which pushes it takes: none (RFC 9114 §7.2.6).
        self.send_go_away(transport, self.going.next_request);
    }

    fn send_go_away<T: Transport>(&mut self, transport: &mut T, id: u64) {
        let id = if self.side.is_client() { 0 } else { id };
        if self.going.sent.is_some_and(|last| last <= id) {
            return;
        }
        self.going.sent = Some(id);
        let mut payload = Vec::new();
        emit_varint(&mut payload, id);
        let control = &mut self.own.control.queue;
        control.push_frame(FrameType::GOAWAY, &payload);
        self.reject_those_that_cannot_come(transport);
        self.flush_own(transport);
        self.observe_frame(transport, FrameType::GOAWAY, &payload, || Content::Id(id));
    }

    /// Closes the connection; H3_NO_ERROR in peace (RFC 9114 §5.3).
    pub fn close<T: Transport>(&mut self, transport: &mut T, code: ErrorCode) {
        if self.closed.is_none() {
            self.end(Error::new(code, "closed by this end"));
            transport.close(code.as_u64(), b"");
        }
    }

    /// The peer takes no requests from `first` on (RFC 9114 §5.2).
    pub(super) fn on_go_away<T: Transport>(
        &mut self,
        transport: &mut T,
        first: u64,
    ) -> Result<(), Error> {
        let error = |reason| Err(Error::new(ErrorCode::H3_ID_ERROR, reason));
        if self.side.is_client() && !first.is_multiple_of(4) {
            return error("a GOAWAY that names no request");
        }
        if self.going.received.is_some_and(|last| first > last) {
            return error("a GOAWAY that takes more than the last");
        }
        self.going.received = Some(first);
        self.events.push(Event::GoAway { id: first });
        if self.side.is_client() {
            self.give_up_from(transport, first);
        }
        self.drain_all();
        Ok(())
    }

    /// Requests that the server will not look at.
    fn give_up_from<T: Transport>(&mut self, transport: &mut T, first: u64) {
        let undone = self.messages.split_off(&StreamId::from_u64(first));
        for (id, message) in undone {
            let code = ErrorCode::H3_REQUEST_CANCELLED.as_u64();
            let unsent = !message.outgoing.is_over();
            if unsent {
                transport.reset(id, code);
            }
            if !message.incoming.is_over() {
                transport.stop(id, code);
                self.decoder.cancel(id);
            }
            self.again.remove(&id);
            if self.session(id).is_some() {
                self.end_session(transport, id, SessionEnd::Rejected);
                continue;
            }
            let code = ErrorCode::H3_REQUEST_REJECTED.as_u64();
            if unsent {
                self.events.push(Event::Stopped { id, code });
            }
            self.events.push(Event::Reset { id, code });
        }
    }

    /// A client's new wish for one of its requests (RFC 9218 §7.2).
    ///
    /// # Errors
    /// `WrongState` at a server and for a stream that is over.
    pub fn send_priority_update<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        priority: Priority,
    ) -> Result<(), SendError> {
        if self.side.is_server() || !self.messages.contains_key(&id) {
            return Err(SendError::WrongState);
        }
        transport.set_priority(id, priority.for_transport());
        let mut payload = Vec::new();
        emit_varint(&mut payload, id.as_u64());
        payload.extend_from_slice(priority.emit().as_bytes());
        let control = &mut self.own.control.queue;
        let kind = FrameType::PRIORITY_UPDATE_REQUEST;
        control.push_frame(kind, &payload);
        self.flush_own(transport);
        self.observe_frame(transport, kind, &payload, || Content::Priority {
            id: id.as_u64(),
            value: priority.emit(),
        });
        Ok(())
    }
}
