//! A message of the peer's, from frames to events (RFC 9114 §4.1).

use bytes::Bytes;
use http::StatusCode;
use towline_wire::StreamId;
use towline_wire::http3::ErrorCode;

use super::incoming::{Phase, Step};
use super::outgoing::Stage;
use super::parts::{Connection, MAX_READS, Role};
use super::priority::Priority;
use crate::compression::Decoded;
use crate::counts::Count;
use crate::error::{BodyError, Fault, StreamError};
use crate::event::Event;
use crate::fields::{Kind, Section};
use crate::transport::Transport;
use crate::webtransport;

const TOO_LARGE: StreamError = StreamError::new(
    ErrorCode::H3_EXCESSIVE_LOAD,
    "a field section larger than this end takes",
);

impl Connection {
    /// The next bytes of a body; `None` at its end.
    ///
    /// # Errors
    /// `Blocked` until the next [`Event::Body`] or end of the stream, `Reset` when the peer gave up,
    /// `Closed` when there is no such stream any more.
    pub fn read_body<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        max: usize,
    ) -> Result<Option<Bytes>, BodyError> {
        if self.role(id) != Role::Request {
            return Err(BodyError::Closed);
        }
        let read = self.next_of_body(transport, id, max);
        self.flush_own(transport);
        if read == Err(BodyError::Blocked)
            && let Some(message) = self.messages.get_mut(&id)
        {
            message.incoming.untell();
        }
        read
    }

    fn next_of_body<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        max: usize,
    ) -> Result<Option<Bytes>, BodyError> {
        let mut budget = MAX_READS;
        while let Some(step) = self.receive(transport, id, &mut budget) {
            match step {
                Step::Data => {}
                Step::Finished => return Ok(None),
                Step::Reset(code) => return Err(BodyError::Reset(code)),
                Step::Over => return Err(BodyError::Closed),
                _ => return Err(BodyError::Blocked),
            }
            let message = self.messages.get_mut(&id).ok_or(BodyError::Closed)?;
            match message.incoming.data(transport, id, max) {
                Ok(Ok(bytes)) => return Ok(Some(bytes)),
                Ok(Err(Step::Reset(code))) => {
                    self.on_reset(transport, id, code);
                    return Err(BodyError::Reset(code));
                }
                Ok(Err(_)) => return Err(BodyError::Blocked),
                Err(fault) => self.breach(transport, id, fault),
            }
        }
        Err(BodyError::Closed)
    }

    /// Whether the head of a request has not come.
    pub(super) fn has_no_head(&self, id: StreamId) -> bool {
        let message = self.messages.get(&id);
        message.is_some_and(|message| message.incoming.phase() == Phase::Head)
    }

    /// Something came on a message's stream: all of it but the body becomes events.
    pub(super) fn receive_on<T: Transport>(&mut self, transport: &mut T, id: StreamId) {
        let mut budget = MAX_READS;
        let step = self.receive(transport, id, &mut budget);
        let Some(message) = self.messages.get_mut(&id) else {
            return;
        };
        if step == Some(Step::Data) && message.incoming.tell() {
            self.events.push(Event::Body(id));
        }
    }

    /// A section that was held is tried again, and what follows it.
    pub(super) fn release<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        section: Bytes,
    ) {
        match self.on_section(transport, id, section) {
            Ok(()) => self.receive_on(transport, id),
            Err(fault) => self.breach(transport, id, fault),
        }
    }

    /// Walks on until the body, the end, or nothing more is there. `None` when the stream is no more.
    fn receive<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        budget: &mut u32,
    ) -> Option<Step> {
        let max = self.config.max_field_section_size;
        loop {
            let message = self.messages.get_mut(&id)?;
            let (is_late, role) = (message.is_late, message.role);
            let was_over = message.incoming.is_over();
            let walked = message.incoming.walk(transport, id, max, budget);
            message.gathered.set(message.incoming.kept());
            let outcome = match walked {
                Ok(Step::Stream { session, prefix }) => {
                    self.messages.remove(&id);
                    self.reject_early(transport, id);
                    self.on_session_stream(transport, id, session, prefix);
                    return None;
                }
                Ok(Step::Section(_) | Step::TooLarge) if is_late => {
                    self.count(Count::RequestsTooLate);
                    self.drop_message(transport, id, ErrorCode::H3_REQUEST_REJECTED);
                    return None;
                }
                Ok(Step::Data) if role != Role::Request => {
                    match self.on_connect_data(transport, id) {
                        Ok(Some(step)) => {
                            if let Step::Reset(code) = step {
                                self.on_reset(transport, id, code);
                            }
                            return Some(step);
                        }
                        Ok(None) => Ok(()),
                        Err(fault) => Err(fault),
                    }
                }
                Ok(Step::Finished) if !was_over && role == Role::Session => {
                    self.on_connect_finished(transport, id)
                }
                Ok(Step::Section(section)) => self.on_section(transport, id, section),
                Ok(Step::TooLarge) => self.on_too_large(transport, id),
                Ok(step) => {
                    match step {
                        Step::Yield => drop(self.again.insert(id)),
                        Step::Finished if !was_over && role == Role::Request => {
                            self.events.finish(id);
                        }
                        Step::Reset(code) if !was_over => self.on_reset(transport, id, code),
                        _ => {}
                    }
                    self.forget_if_over(id);
                    return Some(step);
                }
                Err(fault) => Err(fault),
            };
            if let Err(fault) = outcome {
                self.breach(transport, id, fault);
                return None;
            }
        }
    }

    pub(super) fn on_reset<T: Transport>(&mut self, transport: &mut T, id: StreamId, code: u64) {
        self.decoder.cancel(id);
        if self.role(id) != Role::Request {
            return self.on_connect_reset(transport, id, code);
        }
        self.count(Count::MessagesReset);
        if self.side.is_server() && self.has_no_head(id) {
            // Nobody has heard of it, and so nobody will end the other half (RFC 9114 §4.1).
            return self.drop_message(transport, id, ErrorCode::H3_REQUEST_INCOMPLETE);
        }
        self.events.push(Event::Reset { id, code });
        self.forget_if_over(id);
    }

    /// A field section is whole (RFC 9204 §2.2).
    fn on_section<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        bytes: Bytes,
    ) -> Result<(), Fault> {
        let Some(message) = self.messages.get_mut(&id) else {
            return Ok(());
        };
        let kind = match message.incoming.phase() {
            Phase::Head if self.side.is_server() => Kind::Request,
            Phase::Head => Kind::Response,
            Phase::Body | Phase::Trailers => Kind::Trailers,
        };
        let max = usize::try_from(self.config.max_field_section_size).unwrap_or(usize::MAX);
        let mut section = Section::new(kind);
        let mut field = |name: &[u8], value: &[u8]| section.field(name, value);
        match self.decoder.decode(id, &bytes, max, &mut field)? {
            Decoded::Blocked => {
                message.gathered.set(bytes.len());
                message.incoming.hold(bytes);
                return Ok(());
            }
            Decoded::TooLarge => return self.on_too_large(transport, id),
            Decoded::Done => {}
        }
        match kind {
            Kind::Request => self.on_request(transport, id, section),
            Kind::Response => self.on_response(transport, id, section),
            Kind::Trailers => {
                let fields = section.into_trailers()?;
                message.incoming.on_trailers();
                self.events.push(Event::Trailers { id, fields });
                Ok(())
            }
        }
    }

    fn on_request<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        section: Section,
    ) -> Result<(), Fault> {
        let request = section.into_request(self.config.extended_connect)?;
        let Some(message) = self.messages.get_mut(&id) else {
            return Ok(());
        };
        let is_connect = request.head.method == http::Method::CONNECT;
        message.is_connect = is_connect;
        message.is_head = request.head.method == http::Method::HEAD;
        message
            .incoming
            .on_head(request.content_length.filter(|_| !is_connect), is_connect);
        if is_connect && request.protocol.is_none() {
            // There is no proxy here (RFC 9114 §4.4, RFC 9110 §15.6.2).
            self.count(Count::RequestsToProxy);
            self.refuse(transport, id, StatusCode::NOT_IMPLEMENTED);
            return Ok(());
        }
        let field = request.head.headers.get("priority");
        let early = self.priorities.take(id);
        if let Some(priority) = early.or(field.map(|value| Priority::parse(value.as_bytes()))) {
            transport.set_priority(id, priority.for_transport());
        }
        let head = Box::new(request.head);
        if let Some(token) = &request.protocol
            && self.sessions.is_some()
            && webtransport::is_token(token)
        {
            self.on_session_request(transport, id, head, token.clone());
            return Ok(());
        }
        self.reject_early(transport, id);
        self.count(Count::RequestsReceived);
        self.events.push(Event::Request {
            id,
            head,
            protocol: request.protocol,
            end: false,
        });
        Ok(())
    }

    fn on_response<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        section: Section,
    ) -> Result<(), Fault> {
        let response = section.into_response()?;
        let Some(message) = self.messages.get_mut(&id) else {
            return Ok(());
        };
        let status = response.head.status;
        let interim = status.is_informational();
        if interim {
            message.incoming.on_interim()?;
        } else {
            let bodyless = message.is_head || status == StatusCode::NOT_MODIFIED;
            let tunnel = message.is_connect && status.is_success();
            let expected = match (tunnel, bodyless) {
                (true, _) => None,
                (false, true) => Some(0),
                (false, false) => response.content_length,
            };
            message.incoming.on_head(expected, tunnel);
        }
        let head = Box::new(response.head);
        if message.role == Role::Session {
            self.on_session_response(transport, id, head);
            return Ok(());
        }
        self.events.push(Event::Response {
            id,
            head,
            interim,
            end: false,
        });
        Ok(())
    }

    /// The peer's fields are more than this end takes (RFC 9114 §4.2.2).
    fn on_too_large<T: Transport>(&mut self, transport: &mut T, id: StreamId) -> Result<(), Fault> {
        let unanswered = |stage| stage == Stage::Head;
        let stage = self
            .messages
            .get(&id)
            .map(|message| message.outgoing.stage());
        if self.side.is_server() && self.has_no_head(id) && stage.is_some_and(unanswered) {
            self.count(Count::RequestsTooLarge);
            self.refuse(transport, id, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            return Ok(());
        }
        Err(TOO_LARGE.into())
    }
}
