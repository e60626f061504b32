//! [`Incoming`]: the peer's half of a request or a response, frame by frame (RFC 9114 §4.1).
//!
//! It walks over frame headers, gathers field sections, and stops in front of a body: whoever
//! wants that reads it. What a compressed section says, the caller finds out and tells.

use bytes::{Bytes, BytesMut};
use towline_wire::http3::{ErrorCode, FrameType};
use towline_wire::{Side, StreamId};

use super::varints::{Incomplete, Varints};
use crate::error::{Error, Fault, StreamError};
use crate::observe::{Event, Frame, Purpose};
use crate::transport::{ReadError, Transport};

/// Cap: DATA frames without data, in a row on one stream.
pub(crate) const MAX_EMPTY_FRAMES: u32 = 1000;

/// Cap: interim responses to one request.
pub(crate) const MAX_INTERIM_RESPONSES: u32 = 32;

/// Bytes read at once of what is gathered or skipped.
const CHUNK: u64 = 4096;

/// The peer's half of one message.
#[derive(Debug)]
pub(crate) struct Incoming {
    side: Side,
    state: State,
    phase: Phase,
    header: Varints<2>,
    /// What the body will have, if its head said so.
    expected: Option<u64>,
    /// What the headers of its DATA frames announced.
    announced: u64,
    empty: u32,
    interims: u32,
    /// A tunnel: nothing but DATA may follow (RFC 9114 §4.4).
    tunnel: bool,
    /// The application knows that the body can be read.
    told: bool,
    signal: Signal,
}

/// What the frame type 0x41 is (draft-ietf-webtrans-http3-16 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// An unknown frame.
    Unknown,
    /// At the front of a stream, the sign of WebTransport.
    Permitted,
    /// Behind other frames, a breach.
    Forbidden,
}

#[derive(Debug)]
enum State {
    Header,
    Section {
        left: u64,
        bytes: BytesMut,
    },
    /// A section waits for entries of the dynamic table.
    Held(Bytes),
    Data {
        left: u64,
    },
    Skip {
        left: u64,
    },
    Finished,
    /// Nothing is read any more; the peer's code if it gave up.
    Over(Option<u64>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Head,
    Body,
    Trailers,
}

/// Where a walk came to.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A whole field section, compressed.
    Section(Bytes),
    /// A field section longer than permitted; what is left of it will be skipped.
    TooLarge,
    /// Body to be read.
    Data,
    /// It is no message, but a stream of a WebTransport session, behind so many bytes.
    Stream { session: u64, prefix: u64 },
    /// The message is whole.
    Finished,
    /// Nothing more is there.
    Blocked,
    /// The budget is used up: the walk should go on later.
    Yield,
    /// The peer gave up, with this code.
    Reset(u64),
    /// Nothing is read of this stream any more.
    Over,
}

impl Incoming {
    /// `side` is this end's.
    pub(crate) fn new(side: Side) -> Self {
        Self {
            side,
            state: State::Header,
            phase: Phase::Head,
            header: Varints::default(),
            expected: None,
            announced: 0,
            empty: 0,
            interims: 0,
            tunnel: false,
            told: false,
            signal: Signal::Unknown,
        }
    }

    /// The stream may be WebTransport's.
    pub(crate) fn expect_signal(&mut self, signal: Signal) {
        self.signal = signal;
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether nothing more will come of it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Finished | State::Over(_))
    }

    /// Nothing more is wanted of it.
    pub(crate) fn abandon(&mut self) {
        self.state = State::Over(None);
    }

    /// Whether the application has to be told of the body now.
    pub(crate) fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    /// The application found nothing to read: it has to be told again.
    pub(crate) fn untell(&mut self) {
        self.told = false;
    }

    /// A section that cannot be decompressed yet.
    pub(crate) fn hold(&mut self, section: Bytes) {
        self.state = State::Held(section);
    }

    /// The section that was held may be decompressed now.
    pub(crate) fn release(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.state, State::Header) {
            State::Held(section) => Some(section),
            other => {
                self.state = other;
                None
            }
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }

    /// Bytes of a section that are kept.
    pub(crate) fn kept(&self) -> usize {
        match &self.state {
            State::Section { bytes, .. } => bytes.len(),
            State::Held(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// The head was an interim response.
    pub(crate) fn on_interim(&mut self) -> Result<(), Error> {
        self.interims += 1;
        if self.interims > MAX_INTERIM_RESPONSES {
            return Err(Error::new(
                ErrorCode::H3_EXCESSIVE_LOAD,
                "too many interim responses",
            ));
        }
        Ok(())
    }

    /// The head is there. `expected` is what its Content-Length says of the body that follows.
    pub(crate) fn on_head(&mut self, expected: Option<u64>, tunnel: bool) {
        self.phase = Phase::Body;
        self.expected = expected;
        self.tunnel = tunnel;
    }

    /// The trailers are there.
    pub(crate) fn on_trailers(&mut self) {
        self.phase = Phase::Trailers;
    }

    /// Walks on to the next thing that concerns somebody. Each read costs one of `budget`.
    pub(crate) fn walk<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        max_section: u64,
        budget: &mut u32,
    ) -> Result<Step, Fault> {
        while let Some(rest) = budget.checked_sub(1) {
            *budget = rest;
            let step = match &mut self.state {
                State::Header => self.header(transport, id, max_section)?,
                State::Section { .. } => self.section(transport, id)?,
                State::Skip { .. } => self.skip(transport, id)?,
                State::Held(_) => Some(Step::Blocked),
                State::Data { .. } => Some(Step::Data),
                State::Finished => Some(Step::Finished),
                State::Over(Some(code)) => Some(Step::Reset(*code)),
                State::Over(None) => Some(Step::Over),
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
        Ok(Step::Yield)
    }

    /// Bytes of the body; in front of some.
    pub(crate) fn data<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        max: usize,
    ) -> Result<Result<Bytes, Step>, Fault> {
        let State::Data { left } = &mut self.state else {
            return Ok(Err(Step::Blocked));
        };
        let most = usize::try_from(*left).unwrap_or(usize::MAX).min(max.max(1));
        match transport.read(id, most) {
            Ok(Some(bytes)) => {
                *left = left.saturating_sub(bytes.len() as u64);
                if *left == 0 {
                    self.state = State::Header;
                }
                Ok(Ok(bytes))
            }
            Ok(None) => Err(truncated()),
            Err(error) => Ok(Err(self.stopped(error))),
        }
    }

    fn header<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        max_section: u64,
    ) -> Result<Option<Step>, Fault> {
        match self.header.read(transport, id) {
            Ok([kind, len]) => {
                self.tell_frame(transport, id, FrameType::from_u64(kind), len);
                self.frame(kind, len, max_section)
            }
            Err(Incomplete::End { inside: true }) => Err(truncated()),
            Err(Incomplete::End { inside: false }) => self.end().map(Some),
            Err(Incomplete::Blocked) => Ok(Some(Step::Blocked)),
            Err(Incomplete::Reset(code)) => Ok(Some(self.stopped(ReadError::Reset(code)))),
            Err(Incomplete::Closed) => Ok(Some(self.stopped(ReadError::Closed))),
        }
    }

    /// Tells an observer of a frame that begins, but not of the sign of a WebTransport stream.
    fn tell_frame<T: Transport>(&self, transport: &mut T, id: StreamId, kind: FrameType, len: u64) {
        if kind == FrameType::WEBTRANSPORT_STREAM && self.signal == Signal::Permitted {
            return;
        }
        if kind == FrameType::HEADERS && self.phase == Phase::Head && self.side.is_server() {
            transport.observe(|| Event::StreamTypeSet {
                by_peer: true,
                id,
                purpose: Purpose::Request,
            });
        }
        transport.observe(|| {
            let frame = Frame::new(kind, len);
            Event::FrameParsed { id, frame }
        });
    }

    /// A frame begins (RFC 9114 §7.2).
    fn frame(&mut self, kind: u64, len: u64, max_section: u64) -> Result<Option<Step>, Fault> {
        let signal = self.signal;
        if signal == Signal::Permitted {
            self.signal = Signal::Forbidden;
        }
        match FrameType::from_u64(kind) {
            FrameType::WEBTRANSPORT_STREAM if signal == Signal::Permitted => {
                let prefix = self.header.last_len();
                return Ok(Some(Step::Stream {
                    session: len,
                    prefix,
                }));
            }
            FrameType::WEBTRANSPORT_STREAM if signal == Signal::Forbidden => {
                let reason = "the sign of a WebTransport stream behind other frames";
                return Err(Error::new(ErrorCode::H3_FRAME_ERROR, reason).into());
            }
            FrameType::DATA => self.data_frame(len)?,
            FrameType::HEADERS => return self.headers_frame(len, max_section),
            FrameType::PUSH_PROMISE if self.side.is_client() => {
                // No push ID was ever permitted (RFC 9114 §7.2.5).
                let reason = "a push that was not permitted";
                return Err(Error::new(ErrorCode::H3_ID_ERROR, reason).into());
            }
            FrameType::PUSH_PROMISE
            | FrameType::CANCEL_PUSH
            | FrameType::SETTINGS
            | FrameType::GOAWAY
            | FrameType::MAX_PUSH_ID
            | FrameType::PRIORITY_UPDATE_REQUEST
            | FrameType::PRIORITY_UPDATE_PUSH => {
                return Err(unexpected("a frame that a request stream does not have"));
            }
            kind if kind.is_http2() => return Err(unexpected("a frame of HTTP/2")),
            _ if len == 0 => self.count_empty()?,
            _ => self.state = State::Skip { left: len },
        }
        Ok(None)
    }

    fn data_frame(&mut self, len: u64) -> Result<(), Fault> {
        if self.phase != Phase::Body {
            return Err(unexpected("DATA before a head or after trailers"));
        }
        if len == 0 {
            return self.count_empty();
        }
        self.empty = 0;
        self.announced = self.announced.saturating_add(len);
        if self
            .expected
            .is_some_and(|expected| self.announced > expected)
        {
            return Err(StreamError::malformed("a body longer than its Content-Length").into());
        }
        self.state = State::Data { left: len };
        Ok(())
    }

    fn headers_frame(&mut self, len: u64, max_section: u64) -> Result<Option<Step>, Fault> {
        if self.phase == Phase::Trailers || (self.phase == Phase::Body && self.tunnel) {
            return Err(unexpected("HEADERS after the last that are allowed"));
        }
        if len > max_section {
            self.state = State::Skip { left: len };
            return Ok(Some(Step::TooLarge));
        }
        let bytes = BytesMut::new();
        if len == 0 {
            return Ok(Some(Step::Section(bytes.freeze())));
        }
        self.state = State::Section { left: len, bytes };
        Ok(None)
    }

    fn count_empty(&mut self) -> Result<(), Fault> {
        self.empty += 1;
        if self.empty > MAX_EMPTY_FRAMES {
            let reason = "too many frames without content";
            return Err(Error::new(ErrorCode::H3_EXCESSIVE_LOAD, reason).into());
        }
        Ok(())
    }

    fn section<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
    ) -> Result<Option<Step>, Fault> {
        let State::Section { left, bytes } = &mut self.state else {
            return Ok(None);
        };
        match transport.read(id, (*left).min(CHUNK) as usize) {
            Ok(Some(part)) => {
                bytes.extend_from_slice(&part);
                *left = left.saturating_sub(part.len() as u64);
                if *left > 0 {
                    return Ok(None);
                }
                let whole = std::mem::take(bytes).freeze();
                self.state = State::Header;
                Ok(Some(Step::Section(whole)))
            }
            Ok(None) => Err(truncated()),
            Err(error) => Ok(Some(self.stopped(error))),
        }
    }

    /// Unknown frames are passed over as they arrive, and none is kept (RFC 9114 §9).
    fn skip<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
    ) -> Result<Option<Step>, Fault> {
        let State::Skip { left } = &mut self.state else {
            return Ok(None);
        };
        match transport.read(id, (*left).min(CHUNK) as usize) {
            Ok(Some(part)) => {
                *left = left.saturating_sub(part.len() as u64);
                if *left == 0 {
                    self.state = State::Header;
                }
                Ok(None)
            }
            Ok(None) => Err(truncated()),
            Err(error) => Ok(Some(self.stopped(error))),
        }
    }

    /// The stream ended between two frames.
    fn end(&mut self) -> Result<Step, Fault> {
        if self.phase == Phase::Head {
            let error = match self.side {
                Side::Server => StreamError::new(
                    ErrorCode::H3_REQUEST_INCOMPLETE,
                    "a stream without a request",
                ),
                Side::Client => StreamError::malformed("a stream without a response"),
            };
            return Err(error.into());
        }
        if self
            .expected
            .is_some_and(|expected| self.announced < expected)
        {
            return Err(StreamError::malformed("a body shorter than its Content-Length").into());
        }
        self.state = State::Finished;
        Ok(Step::Finished)
    }

    fn stopped(&mut self, error: ReadError) -> Step {
        match error {
            ReadError::Blocked => Step::Blocked,
            ReadError::Reset(code) => {
                self.state = State::Over(Some(code));
                Step::Reset(code)
            }
            ReadError::Closed => {
                self.state = State::Over(None);
                Step::Over
            }
        }
    }
}

fn unexpected(reason: &'static str) -> Fault {
    Error::new(ErrorCode::H3_FRAME_UNEXPECTED, reason).into()
}

fn truncated() -> Fault {
    Error::new(ErrorCode::H3_FRAME_ERROR, "the stream ends inside a frame").into()
}
