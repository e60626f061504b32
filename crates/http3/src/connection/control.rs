//! [`PeerControl`]: the peer's control stream, frame by frame (RFC 9114 §6.2.1, §7.2).

use towline_wire::http3::{ErrorCode, FrameType, PriorityUpdate, Settings, parse_id};
use towline_wire::{Side, StreamId};

use super::varints::{Incomplete, Varints};
use crate::error::Error;
use crate::observe::{Content, Event, Frame};
use crate::settings::MAX_SETTINGS_LEN;
use crate::transport::{ReadError, Transport};

/// Cap: bytes of a PRIORITY_UPDATE; a longer one is passed over.
pub(crate) const MAX_PRIORITY_UPDATE_LEN: u64 = 512;

/// Bytes that are skipped at once.
const CHUNK: u64 = 4096;

/// What came of the control stream so far.
#[derive(Debug)]
pub(crate) struct PeerControl {
    /// This end's.
    side: Side,
    header: Varints<2>,
    /// Bytes of the payload of the last frame.
    len: u64,
    settings: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Header,
    Payload {
        kind: FrameType,
        left: u64,
        bytes: Vec<u8>,
    },
    Skip {
        left: u64,
    },
}

/// A frame of the control stream that means something.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ControlFrame {
    Settings(Vec<u8>),
    GoAway(u64),
    MaxPushId(u64),
    /// What a client wishes of one of its requests (RFC 9218 §7.2).
    Priority {
        request: u64,
        value: Vec<u8>,
    },
}

impl ControlFrame {
    /// As an observer is told of it.
    pub(crate) fn observed(&self, len: u64) -> Frame {
        let (kind, content) = match self {
            Self::Settings(payload) => {
                let settings = Settings::parse(payload).unwrap_or_default();
                (FrameType::SETTINGS, Content::Settings(settings))
            }
            Self::GoAway(id) => (FrameType::GOAWAY, Content::Id(*id)),
            Self::MaxPushId(id) => (FrameType::MAX_PUSH_ID, Content::Id(*id)),
            Self::Priority { request, value } => {
                let value = String::from_utf8_lossy(value).into_owned();
                let content = Content::Priority {
                    id: *request,
                    value,
                };
                (FrameType::PRIORITY_UPDATE_REQUEST, content)
            }
        };
        Frame::saying(kind, len, content)
    }
}

impl PeerControl {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            side,
            header: Varints::default(),
            len: 0,
            settings: false,
            state: State::Header,
        }
    }

    /// The next frame, or `None` while there is none or the budget is used up. Each read costs one.
    pub(crate) fn next<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
        budget: &mut u32,
    ) -> Result<Option<ControlFrame>, Error> {
        while let Some(rest) = budget.checked_sub(1) {
            *budget = rest;
            let read = match &mut self.state {
                State::Header => match self.header.read(transport, id) {
                    Ok([kind, len]) => {
                        let kind = FrameType::from_u64(kind);
                        self.len = len;
                        self.begin(kind, len)?;
                        if let State::Skip { .. } = self.state {
                            let frame = Frame::new(kind, len);
                            transport.observe(|| Event::FrameParsed { id, frame });
                        }
                        Ok(())
                    }
                    Err(incomplete) => Err(incomplete),
                },
                State::Payload { left, bytes, .. } => {
                    read_part(transport, id, left, Some(bytes)).map_err(Incomplete::from)
                }
                State::Skip { left } => {
                    read_part(transport, id, left, None).map_err(Incomplete::from)
                }
            };
            match read {
                Ok(()) => {}
                Err(Incomplete::Blocked) => return Ok(None),
                Err(_) => return Err(closed()),
            }
            if let Some(frame) = self.whole()? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Bytes of the payload of the frame that [`next`](Self::next) gave last.
    pub(crate) fn last_len(&self) -> u64 {
        self.len
    }

    /// Bytes of a frame that are kept.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn kept(&self) -> usize {
        match &self.state {
            State::Payload { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// A frame begins: whether it may, and what becomes of its payload.
    fn begin(&mut self, kind: FrameType, len: u64) -> Result<(), Error> {
        let unexpected = |reason| Err(Error::new(ErrorCode::H3_FRAME_UNEXPECTED, reason));
        if !self.settings && kind != FrameType::SETTINGS {
            return Err(Error::new(
                ErrorCode::H3_MISSING_SETTINGS,
                "the first frame of the control stream is not SETTINGS",
            ));
        }
        let max = match kind {
            FrameType::SETTINGS if self.settings => return unexpected("SETTINGS came twice"),
            FrameType::SETTINGS => MAX_SETTINGS_LEN,
            FrameType::DATA | FrameType::HEADERS | FrameType::PUSH_PROMISE => {
                return unexpected("a frame that the control stream does not have");
            }
            FrameType::MAX_PUSH_ID
            | FrameType::PRIORITY_UPDATE_REQUEST
            | FrameType::PRIORITY_UPDATE_PUSH
                if self.side.is_client() =>
            {
                return unexpected("a frame that only clients send");
            }
            FrameType::GOAWAY | FrameType::MAX_PUSH_ID | FrameType::CANCEL_PUSH => 8,
            FrameType::PRIORITY_UPDATE_REQUEST | FrameType::PRIORITY_UPDATE_PUSH
                if len <= MAX_PRIORITY_UPDATE_LEN =>
            {
                MAX_PRIORITY_UPDATE_LEN
            }
            kind if kind.is_http2() => return unexpected("a frame of HTTP/2"),
            _ => {
                self.state = State::Skip { left: len };
                return Ok(());
            }
        };
        if len > max {
            let code = match kind {
                FrameType::SETTINGS => ErrorCode::H3_EXCESSIVE_LOAD,
                _ => ErrorCode::H3_FRAME_ERROR,
            };
            return Err(Error::new(code, "a frame that is too long"));
        }
        self.settings = true;
        self.state = State::Payload {
            kind,
            left: len,
            bytes: Vec::new(),
        };
        Ok(())
    }

    /// The frame that is being read, if all of it is there.
    fn whole(&mut self) -> Result<Option<ControlFrame>, Error> {
        match &mut self.state {
            State::Payload {
                kind,
                left: 0,
                bytes,
            } => {
                let (kind, bytes) = (*kind, std::mem::take(bytes));
                self.state = State::Header;
                meaning(kind, bytes)
            }
            State::Skip { left: 0 } => {
                self.state = State::Header;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

fn meaning(kind: FrameType, bytes: Vec<u8>) -> Result<Option<ControlFrame>, Error> {
    let never_pushed = || Error::new(ErrorCode::H3_ID_ERROR, "a push that never was");
    Ok(Some(match kind {
        FrameType::SETTINGS => ControlFrame::Settings(bytes),
        FrameType::GOAWAY => ControlFrame::GoAway(number(&bytes)?),
        FrameType::MAX_PUSH_ID => ControlFrame::MaxPushId(number(&bytes)?),
        FrameType::CANCEL_PUSH => {
            number(&bytes)?;
            return Err(never_pushed());
        }
        FrameType::PRIORITY_UPDATE_REQUEST => {
            let update = PriorityUpdate::parse(&bytes).map_err(|_| malformed())?;
            ControlFrame::Priority {
                request: update.element,
                value: update.value.to_vec(),
            }
        }
        _ => return Err(never_pushed()),
    }))
}

/// A payload that is one number and nothing else (RFC 9114 §7.1).
fn number(bytes: &[u8]) -> Result<u64, Error> {
    parse_id(bytes).ok_or_else(malformed)
}

fn malformed() -> Error {
    Error::new(
        ErrorCode::H3_FRAME_ERROR,
        "a frame's length does not fit what it holds",
    )
}

/// A stream that has to stay open was closed (RFC 9114 §6.2.1, RFC 9204 §4.2).
pub(crate) fn closed() -> Error {
    Error::new(
        ErrorCode::H3_CLOSED_CRITICAL_STREAM,
        "a stream that has to stay open was closed",
    )
}

fn read_part<T: Transport>(
    transport: &mut T,
    id: StreamId,
    left: &mut u64,
    keep: Option<&mut Vec<u8>>,
) -> Result<(), ReadError> {
    if *left == 0 {
        return Ok(());
    }
    let part = transport
        .read(id, (*left).min(CHUNK) as usize)?
        .ok_or(ReadError::Closed)?;
    *left = left.saturating_sub(part.len() as u64);
    if let Some(kept) = keep {
        kept.extend_from_slice(&part);
    }
    Ok(())
}
