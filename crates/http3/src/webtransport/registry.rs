//! [`Sessions`]: the sessions of a connection, their streams, and what came before them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use towline_wire::StreamId;

use super::config::Config;
use super::session::{Session, SessionId, Stream};
use crate::account::Charge;
use crate::connection::Varints;

/// Cap: streams held for sessions that are not established (draft-ietf-webtrans-http3-16 §4.6).
pub(crate) const MAX_EARLY_STREAMS: usize = 64;

/// Cap: datagrams held for sessions that are not established.
pub(crate) const MAX_EARLY_DATAGRAMS: usize = 64;

/// Cap: bytes of those datagrams.
pub(crate) const MAX_EARLY_DATAGRAM_BYTES: usize = 64 * 1024;

/// The sessions of one connection.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) config: Config,
    /// Boxed: a map has room for eleven, and most connections carry one.
    pub(crate) open: BTreeMap<SessionId, Box<Session>>,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    /// The streams of each session.
    members: BTreeSet<(SessionId, StreamId)>,
    /// Streams whose prefix is not whole. The transport's limit on streams bounds them.
    pub(crate) prefixes: BTreeMap<StreamId, Prefix>,
    /// Requests that came before the client's SETTINGS; as many as there may
    /// be sessions.
    pub(crate) held: BTreeMap<SessionId, HeldRequest>,
    early: Early,
}

/// A request that waits for the client's SETTINGS.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    pub(crate) head: Box<http::request::Parts>,
    /// Its `:protocol`.
    pub(crate) token: Bytes,
    pub(crate) _charge: Charge,
}

/// What a stream begins with, as it comes.
#[derive(Debug)]
pub(crate) enum Prefix {
    /// The session ID of a unidirectional stream; the type was read, and had so many bytes.
    Session(Varints<1>, u64),
    /// Signal and session ID of a stream that a server opened.
    Signal(Varints<2>),
}

/// Streams and datagrams of sessions that are not established.
#[derive(Default, Debug)]
pub(crate) struct Early {
    streams: VecDeque<(SessionId, StreamId, u64)>,
    datagrams: VecDeque<(SessionId, Bytes)>,
    datagram_bytes: usize,
}

impl Sessions {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            open: BTreeMap::new(),
            streams: BTreeMap::new(),
            members: BTreeSet::new(),
            prefixes: BTreeMap::new(),
            held: BTreeMap::new(),
            early: Early::default(),
        }
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<&Session> {
        self.open.get(&session).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, session: SessionId) -> Option<&mut Session> {
        self.open.get_mut(&session).map(Box::as_mut)
    }

    /// Bytes of memory held, beside what is charged to the connection's account.
    pub(crate) fn held(&self) -> usize {
        let early = &self.early;
        let waiting = early.streams.len() * size_of::<(SessionId, StreamId, u64)>()
            + early.datagrams.len() * size_of::<(SessionId, Bytes)>()
            + early.datagram_bytes;
        let stream = size_of::<(StreamId, Stream)>() + size_of::<(SessionId, StreamId)>();
        self.open.len() * size_of::<(SessionId, Session)>()
            + self.streams.len() * stream
            + self.prefixes.len() * size_of::<(StreamId, Prefix)>()
            + waiting
    }

    /// Sessions that are open or asked for.
    pub(crate) fn count(&self) -> u64 {
        (self.open.len() + self.held.len()) as u64
    }

    /// The session of a stream.
    pub(crate) fn of_stream(&mut self, stream: StreamId) -> Option<(&mut Session, &mut Stream)> {
        let stream = self.streams.get_mut(&stream)?;
        Some((self.open.get_mut(&stream.session)?, stream))
    }

    /// `prefix` is how many bytes the peer sent before the payload.
    pub(crate) fn add_stream(&mut self, session: SessionId, id: StreamId, prefix: u64) {
        let stream = Stream {
            session,
            prefix,
            received: 0,
            read: 0,
            written: 0,
            awaits_size: false,
            over: false,
        };
        self.streams.insert(id, stream);
        self.members.insert((session, id));
    }

    pub(crate) fn remove_stream(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.members.remove(&(stream.session, id));
        Some(stream)
    }

    /// Forgets a session. Returns its streams, those that were held and those half open too.
    pub(crate) fn remove(&mut self, session: SessionId) -> Option<Vec<StreamId>> {
        let removed = self.open.remove(&session)?;
        let early = self.early.take_streams(session);
        let mut streams: Vec<StreamId> = early.into_iter().map(|(id, _)| id).collect();
        drop(self.early.take_datagrams(session));
        streams.extend(removed.opening.into_iter().flatten().map(|(id, _)| id));
        let of_session = (session, StreamId::from_u64(0))..;
        let members = self.members.range(of_session).copied();
        let members: Vec<_> = members.take_while(|(of, _)| *of == session).collect();
        for (of, id) in members {
            self.members.remove(&(of, id));
            self.streams.remove(&id);
            streams.push(id);
        }
        Some(streams)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.config.clone());
    }

    /// The sessions that something waits for.
    pub(crate) fn early_sessions(&self) -> impl Iterator<Item = SessionId> {
        let streams = self.early.streams.iter().map(|(session, _, _)| *session);
        streams.chain(self.early.datagrams.iter().map(|(session, _)| *session))
    }

    /// Compares the tables with each other and with the caps.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn check(&self) {
        assert!(self.early.streams.len() <= MAX_EARLY_STREAMS);
        assert!(self.early.datagrams.len() <= MAX_EARLY_DATAGRAMS);
        let bytes = self
            .early
            .datagrams
            .iter()
            .map(|(_, payload)| payload.len());
        assert_eq!(bytes.sum::<usize>(), self.early.datagram_bytes);
        assert!(self.early.datagram_bytes <= MAX_EARLY_DATAGRAM_BYTES);
        let members = self.streams.iter().map(|(id, of)| (of.session, *id));
        assert_eq!(members.collect::<BTreeSet<_>>(), self.members);
        let known = |stream: &Stream| self.open.contains_key(&stream.session);
        assert!(self.streams.values().all(known), "a stream of no session");
    }

    pub(crate) fn early(&mut self) -> &mut Early {
        &mut self.early
    }
}

impl Early {
    /// Holds a stream; whether there was room.
    pub(crate) fn hold_stream(&mut self, session: SessionId, id: StreamId, prefix: u64) -> bool {
        let room = self.streams.len() < MAX_EARLY_STREAMS;
        if room {
            self.streams.push_back((session, id, prefix));
        }
        room
    }

    /// Holds a datagram; whether there was room.
    pub(crate) fn hold_datagram(&mut self, session: SessionId, payload: Bytes) -> bool {
        let bytes = self.datagram_bytes + payload.len();
        let room = self.datagrams.len() < MAX_EARLY_DATAGRAMS && bytes <= MAX_EARLY_DATAGRAM_BYTES;
        if room {
            self.datagram_bytes = bytes;
            self.datagrams.push_back((session, payload));
        }
        room
    }

    /// The streams of a session and the lengths of their prefixes, in the order they came.
    pub(crate) fn take_streams(&mut self, session: SessionId) -> Vec<(StreamId, u64)> {
        let mut taken = Vec::new();
        self.streams.retain(|(of, id, prefix)| {
            let own = *of == session;
            if own {
                taken.push((*id, *prefix));
            }
            !own
        });
        taken
    }

    /// The datagrams of a session, in the order they came.
    pub(crate) fn take_datagrams(&mut self, session: SessionId) -> Vec<Bytes> {
        let all = std::mem::take(&mut self.datagrams);
        let (own, others): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|(of, _)| *of == session);
        self.datagrams = others;
        let own: Vec<Bytes> = own.into_iter().map(|(_, payload)| payload).collect();
        self.datagram_bytes -= own.iter().map(Bytes::len).sum::<usize>();
        own
    }
}
