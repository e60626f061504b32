//! A peer of bare bytes, which says what it likes.

use towline_wire::http3::{ErrorCode, StreamType};
use towline_wire::{Direction, StreamId};

use super::*;
pub(super) use crate::pair::{GET, frame_bytes, section};

/// The types of frames, as numbers.
pub(super) mod frame {
    use towline_wire::http3::FrameType;

    pub(in super::super) const DATA: u64 = FrameType::DATA.as_u64();
    pub(in super::super) const HEADERS: u64 = FrameType::HEADERS.as_u64();
    pub(in super::super) const CANCEL_PUSH: u64 = FrameType::CANCEL_PUSH.as_u64();
    pub(in super::super) const SETTINGS: u64 = FrameType::SETTINGS.as_u64();
    pub(in super::super) const PUSH_PROMISE: u64 = FrameType::PUSH_PROMISE.as_u64();
    pub(in super::super) const GOAWAY: u64 = FrameType::GOAWAY.as_u64();
    pub(in super::super) const MAX_PUSH_ID: u64 = FrameType::MAX_PUSH_ID.as_u64();
    pub(in super::super) const PRIORITY_UPDATE_REQUEST: u64 =
        FrameType::PRIORITY_UPDATE_REQUEST.as_u64();
    pub(in super::super) const PRIORITY_UPDATE_PUSH: u64 = FrameType::PRIORITY_UPDATE_PUSH.as_u64();
}

/// The peer's end, and a connection of ours at the other.
pub(super) struct Bare {
    pub(super) end: End,
    pub(super) host: Host,
    pub(super) control: StreamId,
}

impl Bare {
    /// A client that has said nothing but the type of its control stream.
    pub(super) fn silent_client(config: Config) -> Self {
        Self::limited_client(Limits::default(), config)
    }

    /// As `silent_client`, where the pair has these limits.
    pub(super) fn limited_client(limits: Limits, config: Config) -> Self {
        let (client, server) = pair(limits);
        Self::new(client, Host::new(server, config))
    }

    /// A client that sent its SETTINGS.
    pub(super) fn client() -> Self {
        Self::silent_client(Config::default()).with_settings()
    }

    /// A server that sent its SETTINGS.
    pub(super) fn server() -> Self {
        let (client, server) = pair(Limits::default());
        Self::new(server, Host::new(client, Config::default())).with_settings()
    }

    pub(super) fn new(mut end: End, host: Host) -> Self {
        let control = end.open(Direction::Unidirectional).unwrap();
        end.push(control, &[StreamType::CONTROL.as_u64() as u8]);
        Self { end, host, control }
    }

    fn with_settings(mut self) -> Self {
        self.say(self.control, frame::SETTINGS, &[]);
        assert!(matches!(self.host.next(), Event::Settings(_)));
        self
    }

    /// Opens a unidirectional stream that begins with these bytes.
    pub(super) fn open_uni(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.end.open(Direction::Unidirectional).unwrap();
        self.bytes(id, bytes);
        id
    }

    pub(super) fn open_request(&mut self) -> StreamId {
        self.end.open(Direction::Bidirectional).unwrap()
    }

    /// Opens a request stream with a GET on it.
    pub(super) fn get(&mut self) -> StreamId {
        let id = self.open_request();
        self.say(id, frame::HEADERS, &section(&GET));
        id
    }

    pub(super) fn bytes(&mut self, id: StreamId, bytes: &[u8]) {
        self.end.push(id, bytes);
        while self.host.turn() {}
    }

    pub(super) fn say(&mut self, id: StreamId, kind: u64, payload: &[u8]) {
        self.bytes(id, &frame_bytes(kind, payload));
    }

    pub(super) fn finish(&mut self, id: StreamId) {
        self.end.finish(id);
        while self.host.turn() {}
    }

    /// The code that our connection closed with.
    #[track_caller]
    pub(super) fn assert_closed(&mut self, code: ErrorCode) {
        let closed = self.host.end.closed();
        let (found, reason) = closed.expect("the connection is closed");
        assert_eq!(
            (found, reason.is_empty()),
            (code.as_u64(), false),
            "{reason}"
        );
        let last = self.host.events.pop_back();
        assert!(matches!(last, Some(Event::Closed(error)) if error.code == code));
    }

    /// Our connection gave up this stream alone, and others live on.
    #[track_caller]
    pub(super) fn assert_failed(&mut self, id: StreamId, code: ErrorCode) {
        assert_eq!(self.host.end.closed(), None);
        assert_eq!(self.host.end.reset_code(id), Some(code.as_u64()));
        let failed = |event: &Event| matches!(event, Event::Failed { id: of, error } if *of == id && error.code == code);
        assert!(
            self.host.events.iter().any(failed),
            "{:?}",
            self.host.events
        );
        self.host.events.clear();
        self.assert_lives();
    }

    /// A server of ours takes the next request.
    #[track_caller]
    pub(super) fn assert_lives(&mut self) {
        let id = self.get();
        let request = self.host.next();
        assert!(
            matches!(request, Event::Request { id: of, .. } if of == id),
            "{request:?}"
        );
    }
}
