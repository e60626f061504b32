//! [`Books`]: what the client did, what the application knows, and what must hold of both.

use std::collections::{BTreeMap, BTreeSet};

use towline_http3::pair::End;
use towline_http3::webtransport::{SessionEnd, SessionEvent, SessionId};
use towline_http3::{Connection, Error, ErrorCode, Event};
use towline_wire::http3::{FrameType, StreamType, session_id};
use towline_wire::{Direction, Reader, Side, StreamId};

/// Calls of the transport, and bytes sent, that each step and each byte of it may cost.
const WORK: u64 = 4;

/// What a step alone pays for.
const STEP: u64 = 32;

/// What every connection may cost: its SETTINGS and its end.
const OPENING: u64 = 1_000;

/// How far a session has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Asked,
    Open,
    Over,
}

/// A stream of a session that the application has.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfSession {
    pub(super) session: SessionId,
    /// Neither finished nor reset, if there is such a half.
    pub(super) sends: bool,
    /// Its end was not seen, if there is such a half.
    pub(super) receives: bool,
    /// Bytes that were read.
    pub(super) read: usize,
}

#[derive(Default)]
pub(super) struct Books {
    /// What the client wrote to each stream, and which halves it has ended.
    written: BTreeMap<StreamId, Vec<u8>>,
    ended: BTreeSet<StreamId>,
    /// Halves of ours that it wants no more of.
    stopped: BTreeSet<StreamId>,
    pub(super) sessions: BTreeMap<SessionId, Life>,
    draining: BTreeSet<SessionId>,
    pub(super) streams: BTreeMap<StreamId, OfSession>,
    /// The sessions of all streams that it ever had.
    owners: BTreeMap<StreamId, SessionId>,
    pub(super) requests: BTreeSet<StreamId>,
    /// Sessions that client or application had to do with since the server last looked.
    touched: BTreeSet<SessionId>,
    settled: bool,
    pub(super) closed: Option<Error>,
    /// What the script has paid for.
    paid: u64,
}

/// Whether the client can send on a stream.
pub(super) fn client_sends(id: StreamId) -> bool {
    id.initiator() == Side::Client || id.direction() == Direction::Bidirectional
}

fn server_sends(id: StreamId) -> bool {
    id.initiator() == Side::Server || id.direction() == Direction::Bidirectional
}

impl Books {
    /// A step, whatever it is.
    pub(super) fn on_step(&mut self) {
        self.paid += STEP;
    }

    /// Somebody sends so many bytes.
    pub(super) fn pay(&mut self, bytes: usize) {
        self.paid += bytes as u64;
    }

    /// The client writes to a stream.
    pub(super) fn on_written(&mut self, id: StreamId, bytes: &[u8]) {
        if client_sends(id) && !self.ended.contains(&id) {
            self.written.entry(id).or_default().extend(bytes);
        }
        self.on_touched(id);
    }

    /// The client ends its half of a stream.
    pub(super) fn on_ended(&mut self, id: StreamId) {
        self.ended.insert(id);
        self.on_touched(id);
    }

    /// The client wants no more of a stream.
    pub(super) fn on_stopped(&mut self, id: StreamId) {
        self.stopped.insert(id);
        self.on_touched(id);
    }

    /// Somebody has to do with a stream: whatever happens to its session now is allowed.
    pub(super) fn on_touched(&mut self, id: StreamId) {
        let own = self.owners.get(&id).copied();
        let named = self.prefix(id).map(|(session, _)| session);
        self.touched.extend(own.or(named).or(Some(id)));
    }

    /// Everything may end now.
    pub(super) fn touch_all(&mut self) {
        self.touched.extend(self.sessions.keys());
    }

    /// The session that a stream of the client's names, and how many bytes that took.
    fn prefix(&self, id: StreamId) -> Option<(SessionId, usize)> {
        let mut reader = Reader::new(self.written.get(&id)?);
        let signal = match id.direction() {
            Direction::Bidirectional => FrameType::WEBTRANSPORT_STREAM.as_u64(),
            Direction::Unidirectional => StreamType::WEBTRANSPORT.as_u64(),
        };
        if id.initiator() == Side::Server || reader.varint() != Ok(signal) {
            return None;
        }
        let session = session_id(reader.varint().ok()?)?;
        Some((session, reader.position()))
    }

    /// The sessions that have come so far.
    pub(super) fn at(&self, life: Life) -> impl Iterator<Item = SessionId> {
        let is = move |(_, of): &(&SessionId, &Life)| **of == life;
        self.sessions.iter().filter(is).map(|(id, _)| *id)
    }

    /// The application read bytes of a stream: they are the client's, behind the prefix.
    pub(super) fn on_read(&mut self, id: StreamId, bytes: &[u8]) {
        let prefix = self.prefix(id).map_or(0, |(_, len)| len);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let at = prefix + stream.read;
        stream.read += bytes.len();
        let written = self.written.get(&id).map_or(&[][..], Vec::as_slice);
        let expected = written.get(at..at + bytes.len());
        assert_eq!(expected, Some(bytes), "{id} was read wrongly");
    }

    /// The server told something. Returns what kind of thing.
    pub(super) fn on_event(&mut self, event: &Event, end: &End) -> u64 {
        assert!(self.closed.is_none(), "{event:?} after the end");
        match event {
            Event::Settings(_) => {
                assert!(!self.settled, "SETTINGS twice");
                self.settled = true;
                1
            }
            Event::Request { id, .. } => {
                let new = !self.sessions.contains_key(id) && self.requests.insert(*id);
                assert!(new, "{id} came twice");
                2
            }
            Event::Body(id)
            | Event::Finished(id)
            | Event::Writable(id)
            | Event::Trailers { id, .. }
            | Event::Reset { id, .. } => {
                assert!(self.requests.contains(id), "{event:?} of nothing");
                3
            }
            Event::Failed { error, .. } => {
                assert_named(error.code);
                error.code.as_u64() ^ 4
            }
            Event::Session(event) => self.on_session_event(event, end),
            Event::Closed(error) => {
                self.on_closed(*error, end);
                error.reason.len() as u64 ^ error.code.as_u64() << 8
            }
            Event::Response { .. } => panic!("a server got an answer"),
            _ => 5,
        }
    }

    fn on_closed(&mut self, error: Error, end: &End) {
        assert_named(error.code);
        let Some((code, reason)) = end.closed() else {
            panic!("{error} closed nothing");
        };
        assert_eq!((code, &*reason), (error.code.as_u64(), error.reason));
        assert!(!reason.is_empty());
        self.on_over(error);
    }

    /// The connection is closed, by whomever.
    pub(super) fn on_over(&mut self, error: Error) {
        self.closed = Some(error);
        self.sessions
            .values_mut()
            .for_each(|life| *life = Life::Over);
        self.streams.clear();
    }

    fn on_session_event(&mut self, event: &SessionEvent, end: &End) -> u64 {
        let life = |session| self.sessions.get(session).copied();
        match event {
            SessionEvent::Requested { session, .. } => {
                assert_eq!(life(session), None, "{session} came twice");
                assert!(!self.requests.contains(session));
                self.sessions.insert(*session, Life::Asked);
                self.touched.insert(*session);
                6
            }
            SessionEvent::StreamOpened { session, id, .. } => {
                assert_eq!(life(session), Some(Life::Open));
                let named = self.prefix(*id).map(|(named, _)| named);
                assert_eq!(named, Some(*session), "{id} names another session");
                self.on_opened(*session, *id);
                7
            }
            SessionEvent::Credit(session) | SessionEvent::MayOpen { session, .. } => {
                assert_eq!(life(session), Some(Life::Open), "{event:?}");
                8
            }
            SessionEvent::Draining(session) => {
                assert!(matches!(life(session), Some(Life::Asked | Life::Open)));
                assert!(self.draining.insert(*session), "{session} drains twice");
                9
            }
            SessionEvent::Closed { session, reason } => {
                self.on_session_closed(*session, reason, end);
                10 + format!("{reason}").len() as u64
            }
            other => panic!("{other:?} at a server"),
        }
    }

    /// A stream of a session is the application's.
    pub(super) fn on_opened(&mut self, session: SessionId, id: StreamId) {
        let stream = OfSession {
            session,
            sends: server_sends(id),
            receives: client_sends(id),
            read: 0,
        };
        self.owners.insert(id, session);
        assert!(self.streams.insert(id, stream).is_none(), "{id} came twice");
    }

    /// Only what somebody had to do with ends, and its streams with it.
    fn on_session_closed(&mut self, session: SessionId, reason: &SessionEnd, end: &End) {
        let before = self.sessions.insert(session, Life::Over);
        assert!(
            matches!(before, Some(Life::Asked | Life::Open)),
            "{before:?}"
        );
        let why = self.touched.contains(&session);
        assert!(why, "{session} ended by what others did: {reason}");
        if let SessionEnd::Failed(error) = reason {
            assert_named(error.code);
            let reset = end.reset_code(session) == Some(error.code.as_u64());
            assert!(reset || self.stopped.contains(&session), "{reason}");
        }
        self.streams.retain(|id, stream| {
            let own = stream.session == session;
            if own && server_sends(*id) {
                assert!(end.reset_code(*id).is_some(), "{id} goes on");
            }
            if own && client_sends(*id) {
                assert!(end.stop_code(*id).is_some(), "{id} goes on");
            }
            !own
        });
    }

    /// The application refused a session: nothing more is heard of it.
    pub(super) fn on_refused(&mut self, session: SessionId) {
        self.sessions.insert(session, Life::Over);
    }

    /// The server has nothing more to do.
    pub(super) fn check(&mut self, connection: &Connection, end: &End) {
        connection.check();
        self.touched.clear();
        let open = self.sessions.values().filter(|life| **life != Life::Over);
        assert_eq!(open.count(), connection.sessions());
        for (id, stream) in &self.streams {
            assert_eq!(connection.session_of(*id), Some(stream.session));
        }
        let failed = connection.error().is_some();
        assert_eq!(failed, self.closed.is_some());
        assert_eq!(failed, end.closed().is_some());
        if failed {
            assert_eq!((connection.requests(), connection.sessions()), (0, 0));
        }
        let most = OPENING + WORK * self.paid;
        let (calls, bytes) = (end.calls(), end.written());
        assert!(calls <= most, "{calls} calls for {}", self.paid);
        assert!(bytes <= most, "{bytes} bytes for {}", self.paid);
    }
}

/// The code is one that a specification has.
fn assert_named(code: ErrorCode) {
    let name = code.to_string();
    let known = ["H3_", "QPACK_", "WT_"];
    assert!(known.iter().any(|start| name.starts_with(start)), "{name}");
}
