//! What the transport tells, on its way to the stream it is about (RFC 9114 §6).

use towline_wire::http3::{ErrorCode, StreamType, emit_datagram_header, parse_datagram};
use towline_wire::{Direction, StreamId, Writer};

use super::control::{ControlFrame, closed};
use super::incoming::Signal;
use super::parts::{Connection, MAX_READS, Message, Role};
use super::priority::Priority;
use super::session_streams::not_permitted;
use super::varints::{Incomplete, Varints};
use crate::counts::Count;
use crate::error::{DatagramError, Error};
use crate::event::Event;
use crate::observe::{self, Purpose};
use crate::settings;
use crate::transport::{ReadError, Transport, WriteError};
use crate::webtransport::Prefix;

/// Cap: datagrams taken in one call; the rest waits with the transport.
pub(crate) const MAX_DATAGRAMS: usize = 64;

/// Bytes of a QPACK stream that are read at once.
const CHUNK: usize = 4096;

impl Connection {
    /// The peer opened streams of this direction.
    pub fn on_opened<T: Transport>(&mut self, transport: &mut T, direction: Direction) {
        while self.closed.is_none()
            && let Some(id) = transport.accept(direction)
        {
            match direction {
                Direction::Unidirectional => {
                    self.peer.untyped.insert(id, Default::default());
                    self.type_stream(transport, id);
                }
                Direction::Bidirectional => self.on_request_stream(transport, id),
            }
        }
        self.flush_own(transport);
    }

    /// A stream has bytes, an end or a reset that nobody read.
    pub fn on_readable<T: Transport>(&mut self, transport: &mut T, id: StreamId) {
        if self.closed.is_some() {
            return;
        }
        if self.messages.contains_key(&id) {
            self.receive_on(transport, id);
        } else if self.peer.untyped.contains_key(&id) {
            self.type_stream(transport, id);
        } else if !self.reads_prefix(transport, id) {
            self.read_typed(transport, id);
            self.check_received(transport, id);
            self.on_final_size(transport, id);
        }
        self.flush_own(transport);
    }

    /// A stream that was blocked has room.
    pub fn on_writable<T: Transport>(&mut self, transport: &mut T, id: StreamId) {
        if self.closed.is_some() {
            return;
        }
        if let Some(message) = self.messages.get_mut(&id) {
            let flushed = message.outgoing.flush(transport, id);
            let forgotten = message.role == Role::Request && message.incoming.is_over();
            match flushed {
                // When the transport tells of it, nobody knows the message any more.
                Err(WriteError::Stopped(code)) if forgotten => {
                    self.events.push(Event::Stopped { id, code });
                }
                Ok(()) if message.outgoing.take_unblocked() => {
                    self.events.push(Event::Writable(id));
                }
                _ => {}
            }
            self.tell_peer(transport, id);
            self.forget_if_over(id);
        } else {
            self.on_prefix_writable(id);
        }
        self.flush_own(transport);
    }

    /// The peer permits more streams of ours.
    pub fn on_streams_available<T: Transport>(&mut self, transport: &mut T) {
        self.retry_streams();
        self.flush_own(transport);
    }

    /// The peer wants no more of a stream of ours.
    pub fn on_stopped<T: Transport>(&mut self, transport: &mut T, id: StreamId, code: u64) {
        let own = &self.own;
        let critical = [own.control.id(), own.encoder.id(), own.decoder.id()];
        if critical.contains(&Some(id)) {
            return self.fail(transport, closed());
        }
        if let Some(message) = self.messages.get_mut(&id) {
            message.outgoing.abandon();
            if message.role != Role::Request {
                return self.on_connect_stopped(transport, id, code);
            }
            self.events.push(Event::Stopped { id, code });
            self.forget_if_over(id);
        } else {
            self.take_back_unsent(transport, id);
        }
    }

    /// Datagrams have arrived (RFC 9297 §2.1). Returns whether some are left for another call.
    pub fn on_datagrams<T: Transport>(&mut self, transport: &mut T) -> bool {
        for _ in 0..MAX_DATAGRAMS {
            if self.closed.is_some() {
                return false;
            }
            let Some(datagram) = transport.recv_datagram() else {
                return false;
            };
            let (id, header) = match parse_datagram(&datagram) {
                Ok(parsed) => parsed,
                Err(error) => {
                    let error = Error::new(error.code(), "a datagram without a stream");
                    self.fail(transport, error);
                    return false;
                }
            };
            transport.observe(|| observe::Event::DatagramParsed {
                id,
                len: (datagram.len() - header) as u64,
            });
            let payload = self.on_session_datagram(id, datagram.slice(header..));
            if let Some(payload) = payload
                && self.config.datagrams
                && self.messages.contains_key(&id)
            {
                self.events.push_datagram(id, payload);
            }
        }
        true
    }

    /// Whether a stream was left in the middle, so that others have their turn.
    pub fn again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Goes on with the streams that were left in the middle, each for one turn.
    pub fn resume<T: Transport>(&mut self, transport: &mut T) {
        for id in std::mem::take(&mut self.again) {
            self.on_readable(transport, id);
        }
    }

    fn on_request_stream<T: Transport>(&mut self, transport: &mut T, id: StreamId) {
        if self.side.is_client() {
            return match self.sessions.is_some() {
                true => self.read_prefix(transport, id, Prefix::Signal(Varints::default())),
                false => self.fail(transport, not_permitted()),
            };
        }
        let is_late = self.going.sent.is_some_and(|first| id.as_u64() >= first);
        if is_late && self.sessions.is_none() {
            self.count(Count::RequestsTooLate);
            let code = ErrorCode::H3_REQUEST_REJECTED.as_u64();
            transport.stop(id, code);
            return transport.reset(id, code);
        }
        let mut message = Message::new(self.side, &self.account);
        message.is_late = is_late;
        if self.sessions.is_some() {
            message.incoming.expect_signal(Signal::Permitted);
        }
        if !is_late {
            self.going.next_request = self.going.next_request.max(id.as_u64() + 4);
        }
        self.messages.insert(id, Box::new(message));
        self.receive_on(transport, id);
    }

    /// Reads the type of a unidirectional stream (RFC 9114 §6.2).
    fn type_stream<T: Transport>(&mut self, transport: &mut T, id: StreamId) {
        let Some(varints) = self.peer.untyped.get_mut(&id) else {
            return;
        };
        let (kind, len) = match varints.read(transport, id) {
            Ok([kind]) => (kind, varints.last_len()),
            Err(Incomplete::Blocked) => return,
            Err(_) => {
                // It may end before its type came (RFC 9114 §6.2).
                self.peer.untyped.remove(&id);
                return;
            }
        };
        self.peer.untyped.remove(&id);
        let kind = StreamType::from_u64(kind);
        transport.observe(|| observe::Event::StreamTypeSet {
            by_peer: true,
            id,
            purpose: Purpose::Typed(kind),
        });
        let place = match kind {
            StreamType::CONTROL => &mut self.peer.control,
            StreamType::QPACK_ENCODER => &mut self.peer.encoder,
            StreamType::QPACK_DECODER => &mut self.peer.decoder,
            StreamType::PUSH => return self.on_push_stream(transport),
            StreamType::WEBTRANSPORT if self.sessions.is_some() => {
                let prefix = Prefix::Session(Varints::default(), len);
                return self.read_prefix(transport, id, prefix);
            }
            // A type that nobody here knows: its bytes are not wanted.
            _ => return transport.stop(id, ErrorCode::H3_STREAM_CREATION_ERROR.as_u64()),
        };
        if place.replace(id).is_some() {
            let reason = "a second stream of a kind that there is one of";
            let error = Error::new(ErrorCode::H3_STREAM_CREATION_ERROR, reason);
            return self.fail(transport, error);
        }
        self.read_typed(transport, id);
    }

    /// No push was ever permitted (RFC 9114 §4.6, §6.2.2).
    fn on_push_stream<T: Transport>(&mut self, transport: &mut T) {
        let error = if self.side.is_client() {
            Error::new(ErrorCode::H3_ID_ERROR, "a push that was not permitted")
        } else {
            Error::new(ErrorCode::H3_STREAM_CREATION_ERROR, "a client pushed")
        };
        self.fail(transport, error);
    }

    fn read_typed<T: Transport>(&mut self, transport: &mut T, id: StreamId) {
        let read = if self.peer.control == Some(id) {
            self.read_control(transport, id)
        } else if [self.peer.encoder, self.peer.decoder].contains(&Some(id)) {
            self.read_instructions(transport, id)
        } else {
            Ok(())
        };
        if let Err(error) = read {
            self.fail(transport, error);
        }
    }

    fn read_control<T: Transport>(&mut self, transport: &mut T, id: StreamId) -> Result<(), Error> {
        let mut budget = MAX_READS;
        while let Some(frame) = self.peer.reader.next(transport, id, &mut budget)? {
            let len = self.peer.reader.last_len();
            transport.observe(|| observe::Event::FrameParsed {
                id,
                frame: frame.observed(len),
            });
            self.on_control_frame(transport, frame)?;
        }
        if budget == 0 {
            self.again.insert(id);
        }
        Ok(())
    }

    fn on_control_frame<T: Transport>(
        &mut self,
        transport: &mut T,
        frame: ControlFrame,
    ) -> Result<(), Error> {
        match frame {
            ControlFrame::Settings(payload) => {
                let datagrams = transport.max_datagram_len().is_some();
                let settings = settings::parse(&payload, datagrams)?;
                self.encoder.set_peer_limits(
                    settings::qpack_max_table_capacity(&settings),
                    settings::qpack_blocked_streams(&settings),
                );
                transport.observe(|| observe::Event::ParametersSet {
                    by_peer: true,
                    settings,
                });
                self.events.push(Event::Settings(settings));
                self.settings = Some(settings);
                self.release_sessions(transport);
            }
            ControlFrame::GoAway(id) => return self.on_go_away(transport, id),
            ControlFrame::MaxPushId(id) => {
                if self
                    .going
                    .max_push_id
                    .replace(id)
                    .is_some_and(|last| id < last)
                {
                    let reason = "MAX_PUSH_ID went down";
                    return Err(Error::new(ErrorCode::H3_ID_ERROR, reason));
                }
            }
            ControlFrame::Priority { request, value } => {
                return self.on_priority(transport, request, &value);
            }
        }
        Ok(())
    }

    /// A client's wish for one request (RFC 9218 §7.2).
    fn on_priority<T: Transport>(
        &mut self,
        transport: &mut T,
        request: u64,
        value: &[u8],
    ) -> Result<(), Error> {
        let id = StreamId::from_u64(request);
        if !id.initiator().is_client() || id.direction() != Direction::Bidirectional {
            let reason = "a priority for what is no request";
            return Err(Error::new(ErrorCode::H3_ID_ERROR, reason));
        }
        let priority = Priority::parse(value);
        if self.messages.contains_key(&id) {
            transport.set_priority(id, priority.for_transport());
            // Until its head comes, this overrides what the head says (RFC 9218 §7).
            if self.has_no_head(id) {
                self.priorities.keep(id, priority);
            }
        } else if request >= self.going.next_request {
            self.priorities.keep(id, priority);
        }
        Ok(())
    }

    /// Reads what the peer's encoder or decoder says.
    fn read_instructions<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
    ) -> Result<(), Error> {
        for _ in 0..MAX_READS {
            match transport.read(id, CHUNK) {
                Ok(Some(bytes)) if self.peer.encoder == Some(id) => {
                    self.decoder.handle_encoder_stream(&bytes)?;
                    self.release_unblocked(transport);
                }
                Ok(Some(bytes)) => self.encoder.handle_decoder_stream(&bytes)?,
                Err(ReadError::Blocked) => return Ok(()),
                _ => return Err(closed()),
            }
        }
        self.again.insert(id);
        Ok(())
    }

    /// Streams whose field sections can be decompressed now. As many as may be blocked at most.
    fn release_unblocked<T: Transport>(&mut self, transport: &mut T) {
        while self.closed.is_none()
            && let Some(id) = self.decoder.take_unblocked()
        {
            let message = self.messages.get_mut(&id);
            if let Some(section) = message.and_then(|message| message.release()) {
                self.release(transport, id, section);
            }
        }
    }

    /// Sends an HTTP datagram of a request (RFC 9297 §2.1).
    ///
    /// # Errors
    /// See [`DatagramError`].
    pub fn send_datagram<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        let session = self.session(id).is_some();
        let theirs = session || self.settings.as_ref().is_some_and(settings::datagrams);
        if !self.messages.contains_key(&id) || (!session && self.role(id) != Role::Request) {
            return Err(DatagramError::Closed);
        }
        if !theirs || !self.config.datagrams {
            return Err(DatagramError::NotNegotiated);
        }
        let mut header = [0; 8];
        let mut writer = Writer::new(&mut header);
        emit_datagram_header(id, &mut writer);
        let datagram = [writer.written(), payload].concat();
        transport.observe(|| observe::Event::DatagramCreated {
            id,
            len: payload.len() as u64,
        });
        match transport.send_datagram(datagram.into()) {
            true => Ok(()),
            false => Err(DatagramError::TooLong),
        }
    }
}
