//! A message of ours, from calls to frames (RFC 9114 §4.1).

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use towline_wire::http3::{ErrorCode, FrameType};
use towline_wire::{Direction, StreamId};

use super::outgoing::Stage;
use super::parts::{Connection, Message, Role};
use super::priority::Priority;
use crate::compression::Sensitivity;
use crate::counts::Count;
use crate::error::{BodyError, SendError};
use crate::fields::{self, Lines};
use crate::observe::{Event, Frame, Purpose};
use crate::settings;
use crate::transport::{Transport, WriteError};

impl Connection {
    /// Sends a request's head, and says on which stream. `protocol` makes it an extended CONNECT
    /// (RFC 9220). With `end` there is neither body nor trailers.
    ///
    /// # Errors
    /// See [`SendError`]. Nothing was sent then.
    pub fn request<T: Transport>(
        &mut self,
        transport: &mut T,
        head: &http::request::Parts,
        protocol: Option<&[u8]>,
        end: bool,
    ) -> Result<StreamId, SendError> {
        let id = self.open_request(transport, head, protocol, end)?;
        self.count(Count::RequestsSent);
        Ok(id)
    }

    /// As [`request`](Self::request), for sessions too.
    pub(super) fn open_request<T: Transport>(
        &mut self,
        transport: &mut T,
        head: &http::request::Parts,
        protocol: Option<&[u8]>,
        end: bool,
    ) -> Result<StreamId, SendError> {
        if self.closed.is_some() {
            return Err(SendError::Closed);
        }
        if self.side.is_server() {
            return Err(SendError::WrongState);
        }
        if self.going.received.is_some() || self.going.sent.is_some() {
            return Err(SendError::GoingAway);
        }
        let is_connect = head.method == Method::CONNECT;
        self.check_protocol(is_connect, protocol)?;
        let lines = fields::request_lines(head, protocol).map_err(SendError::Malformed)?;
        self.check_size(&lines)?;
        let id = transport
            .open(Direction::Bidirectional)
            .ok_or(SendError::NoStream)?;
        transport.observe(|| Event::StreamTypeSet {
            by_peer: false,
            id,
            purpose: Purpose::Request,
        });
        let mut message = Message::new(self.side, &self.account);
        message.is_head = head.method == Method::HEAD;
        message.is_connect = is_connect;
        self.messages.insert(id, Box::new(message));
        if let Some(value) = head.headers.get("priority") {
            let priority = Priority::parse(value.as_bytes());
            transport.set_priority(id, priority.for_transport());
        }
        self.send_headers(transport, id, lines, stage(end));
        Ok(id)
    }

    /// Answers a request: with a 1xx status, more answers follow. With `end` there is neither body
    /// nor trailers.
    ///
    /// # Errors
    /// See [`SendError`]. Nothing was sent then.
    pub fn respond<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        head: &http::response::Parts,
        end: bool,
    ) -> Result<(), SendError> {
        match self.role(id) {
            Role::Request => self.send_response(transport, id, head, end),
            _ => Err(SendError::WrongState),
        }
    }

    /// As [`respond`](Self::respond), to a session's request too.
    pub(super) fn send_response<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        head: &http::response::Parts,
        end: bool,
    ) -> Result<(), SendError> {
        self.check_stage(id, Stage::Head)?;
        let interim = head.status.is_informational();
        if self.side.is_client() || (interim && end) {
            return Err(SendError::WrongState);
        }
        let lines = fields::response_lines(head).map_err(SendError::Malformed)?;
        self.check_size(&lines)?;
        let stage = if interim { Stage::Head } else { stage(end) };
        self.send_headers(transport, id, lines, stage);
        Ok(())
    }

    /// Answers with a status alone, and reads no more.
    pub(super) fn refuse<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        status: StatusCode,
    ) {
        // It will be no session.
        self.reject_early(transport, id);
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.status = status;
        if self.send_response(transport, id, &head, true).is_err() {
            return self.drop_message(transport, id, ErrorCode::H3_INTERNAL_ERROR);
        }
        self.stop_reading(transport, id, ErrorCode::H3_NO_ERROR);
    }

    /// Writes from the front of `data` and says how much. A frame is begun for all of `data`: what
    /// is left of it has to be written before anything else (RFC 9114 §7.2.1).
    ///
    /// # Errors
    /// `Blocked` until the next [`Event::Writable`](crate::Event::Writable), `Reset` when the peer
    /// wants no more, `Closed` when our half is over.
    pub fn write_body<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        data: &mut Bytes,
    ) -> Result<usize, BodyError> {
        let message = self.messages.get_mut(&id).ok_or(BodyError::Closed)?;
        if message.outgoing.stage() != Stage::Body || message.role != Role::Request {
            return Err(BodyError::Closed);
        }
        let written = message.outgoing.body(transport, id, data);
        self.forget_if_over(id);
        written.map_err(|error| match error {
            WriteError::Blocked => BodyError::Blocked,
            WriteError::Stopped(code) => BodyError::Reset(code),
            WriteError::Closed => BodyError::Closed,
        })
    }

    /// Sends fields after the body, and ends our half.
    ///
    /// # Errors
    /// See [`SendError`]; `WrongState` inside of a DATA frame too, and in a tunnel.
    pub fn send_trailers<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        trailers: &HeaderMap,
    ) -> Result<(), SendError> {
        self.check_stage(id, Stage::Body)?;
        let message = self.messages.get(&id);
        if message.is_some_and(|message| message.is_connect) {
            return Err(SendError::WrongState);
        }
        let lines = fields::trailer_lines(trailers).map_err(SendError::Malformed)?;
        self.check_size(&lines)?;
        self.send_headers(transport, id, lines, Stage::Ended);
        Ok(())
    }

    /// Ends our half after the body.
    ///
    /// # Errors
    /// `WrongState` before a final head, inside of a DATA frame, and when our half is over.
    pub fn finish<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
    ) -> Result<(), SendError> {
        self.check_stage(id, Stage::Body)?;
        if self.role(id) != Role::Request {
            return Err(SendError::WrongState);
        }
        if let Some(message) = self.messages.get_mut(&id) {
            message.outgoing.end();
            let _ = message.outgoing.flush(transport, id);
        }
        self.forget_if_over(id);
        Ok(())
    }

    fn check_stage(&self, id: StreamId, wanted: Stage) -> Result<(), SendError> {
        if self.closed.is_some() {
            return Err(SendError::Closed);
        }
        let message = self.messages.get(&id).ok_or(SendError::WrongState)?;
        let outgoing = &message.outgoing;
        match outgoing.stage() == wanted && !outgoing.is_inside_data() {
            true => Ok(()),
            false => Err(SendError::WrongState),
        }
    }

    fn check_protocol(&self, is_connect: bool, protocol: Option<&[u8]>) -> Result<(), SendError> {
        match (is_connect, protocol, &self.settings) {
            (false, None, _) => Ok(()),
            (false, Some(_), _) => Err(SendError::Malformed("a protocol needs CONNECT")),
            (true, None, _) => Err(SendError::PlainConnect),
            (true, Some(_), None) => Err(SendError::NotReady),
            (true, Some(_), Some(settings)) if settings::extended_connect(settings) => Ok(()),
            (true, Some(_), Some(_)) => Err(SendError::NoExtendedConnect),
        }
    }

    fn check_size(&self, lines: &Lines<'_>) -> Result<(), SendError> {
        let settings = self.settings.as_ref();
        let max = settings.and_then(settings::max_field_section_size);
        match max.is_some_and(|max| fields::size(lines) > max) {
            true => Err(SendError::TooLarge),
            false => Ok(()),
        }
    }

    fn send_headers<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        lines: Lines<'_>,
        stage: Stage,
    ) {
        let mut section = Vec::new();
        let fields = lines.into_iter().map(|(name, value, secret)| {
            let sensitivity = match secret {
                true => Sensitivity::Never,
                false => Sensitivity::Normal,
            };
            (name, value, sensitivity)
        });
        self.encoder.encode(id, fields, &mut section);
        transport.observe(|| {
            let frame = Frame::new(FrameType::HEADERS, section.len() as u64);
            Event::FrameCreated { id, frame }
        });
        // The entries that the section uses go first.
        self.flush_own(transport);
        if let Some(message) = self.messages.get_mut(&id) {
            message.outgoing.headers(&section, stage);
            let _ = message.outgoing.flush(transport, id);
        }
        self.forget_if_over(id);
    }
}

const fn stage(end: bool) -> Stage {
    match end {
        true => Stage::Ended,
        false => Stage::Body,
    }
}
