//! [`Sessions`]: what has come of WebTransport's sessions, until their handles take it.
#![cfg_attr(
    not(feature = "webtransport"),
    allow(dead_code, reason = "without the feature nobody asks for a session")
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use bytes::Bytes;
use http::HeaderMap;
use towline_http3::webtransport::{Dialect, SessionEnd, SessionEvent, SessionId};
use towline_http3::{Account, Charge};
use towline_wire::{Direction, StreamId};

use super::wakers::Wakers;
use crate::handles::{Half, Turn, WaiterKey, Waiters};

/// Cap: datagrams of all sessions of a connection that wait to be read; the oldest of a session makes room.
pub(crate) const MAX_SESSION_DATAGRAMS: usize = 8192;

/// Cap: bytes of those datagrams.
pub(crate) const MAX_SESSION_DATAGRAM_BYTES: usize = 1 << 20;

/// So many datagrams are kept where the engine put them, in memory that they share with others. Beyond, nobody
/// reads in time, and each gets its own, lest a small one hold much.
const MOST_SHARED: usize = 256;

/// The sessions of one connection.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Boxed: a map has room for eleven, and most connections carry one.
    table: BTreeMap<SessionId, Box<Session>>,
    /// Clients' sessions that wait to be accepted.
    requested: VecDeque<SessionId>,
    /// Tasks that accept sessions.
    pub(crate) acceptors: Wakers,
    /// Streams that have handles, or wait for them.
    streams: BTreeMap<StreamId, Stream>,
    /// Datagrams that wait, of all sessions, and their bytes.
    datagrams: usize,
    datagram_bytes: usize,
}

/// What can be waited for at a session.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// The server's answer.
    Answer,
    /// A stream of the peer's.
    Accept(Direction),
    /// Leave to open a stream.
    Open(Direction),
    Datagram,
    /// The peer's wish that the session ends soon.
    Drain,
    End,
}

impl Wait {
    const COUNT: usize = 8;

    fn place(self) -> usize {
        match self {
            Self::Answer => 0,
            Self::Accept(direction) => 1 + direction.index(),
            Self::Open(direction) => 3 + direction.index(),
            Self::Datagram => 5,
            Self::Drain => 6,
            Self::End => 7,
        }
    }
}

/// A client's wish.
pub(crate) struct Asked {
    pub(crate) session: SessionId,
    pub(crate) head: Box<http::request::Parts>,
    pub(crate) protocols: Vec<String>,
    pub(crate) dialect: Dialect,
    pub(crate) _charge: (Charge, Charge),
}

/// A server's answer.
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) protocol: Option<String>,
    pub(crate) dialect: Dialect,
    pub(crate) _charge: Charge,
}

/// Why there is no session, or no longer.
#[derive(Clone)]
pub(crate) enum Over {
    /// The server's answer had this status.
    Refused(http::StatusCode),
    /// It ended.
    Ended(SessionEnd),
}

/// Counts of one session.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) datagrams_received: u64,
    pub(crate) datagrams_dropped: u64,
    pub(crate) streams_opened: u64,
    pub(crate) streams_accepted: u64,
}

#[derive(Default)]
struct Session {
    asked: Option<Asked>,
    answer: Option<Answer>,
    /// Streams of the peer's that wait to be accepted.
    waiting: [VecDeque<StreamId>; 2],
    datagrams: VecDeque<Bytes>,
    draining: bool,
    over: Option<Over>,
    /// Streams whose writers wait for the session's credit.
    starved: BTreeSet<StreamId>,
    streams: BTreeSet<StreamId>,
    wakers: [Wakers; Wait::COUNT],
    /// Futures that wait for the end or for the peer's wish for it, which may be long in coming: they leave
    /// when they are dropped.
    watchers: Waiters,
    counts: Counts,
}

struct Stream {
    session: SessionId,
    /// Halves that are not over, by [`bit`].
    left: u8,
    /// The handle has sent the end, which is not all there yet.
    finished: bool,
    /// What the peer said before there was a handle.
    stopped: Option<u64>,
}

const fn bit(half: Half) -> u8 {
    match half {
        Half::Sending => 1,
        Half::Receiving => 2,
    }
}

impl Session {
    fn wake(&mut self, wait: Wait, wake: &mut Vec<Waker>) {
        self.wakers[wait.place()].wake(wake);
        if matches!(wait, Wait::Drain) {
            self.watchers.wake_all(wake);
        }
    }

    fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        for wakers in &mut self.wakers {
            wakers.wake(wake);
        }
        self.watchers.wake_all(wake);
    }
}

impl Sessions {
    /// What the state machine tells.
    pub(super) fn deliver(&mut self, event: SessionEvent, account: &Account, turn: &mut Turn<'_>) {
        match event {
            SessionEvent::Requested {
                session,
                head,
                protocols,
                dialect,
            } => {
                let texts = protocols
                    .iter()
                    .map(|name| size_of::<String>() + name.len());
                let fields = account.charge_fields(&head.headers);
                let asked = Asked {
                    _charge: (fields, account.charge(texts.sum())),
                    session,
                    head,
                    protocols,
                    dialect,
                };
                self.table.entry(session).or_default().asked = Some(asked);
                self.requested.push_back(session);
                self.acceptors.wake(turn.wake);
            }
            SessionEvent::Established {
                session,
                head,
                protocol,
                dialect,
            } => self.with(session, |own| {
                own.answer = Some(Answer {
                    _charge: account.charge_fields(&head.headers),
                    headers: head.headers,
                    protocol,
                    dialect,
                });
                own.wake(Wait::Answer, turn.wake);
            }),
            SessionEvent::Refused { session, head } => {
                self.end(session, Over::Refused(head.status), turn);
            }
            SessionEvent::Closed { session, reason } => {
                self.end(session, Over::Ended(reason), turn);
            }
            SessionEvent::StreamOpened {
                session,
                id,
                direction,
            } => {
                self.add_stream(session, id, turn);
                self.with(session, |own| {
                    own.waiting[direction.index()].push_back(id);
                    own.wake(Wait::Accept(direction), turn.wake);
                });
            }
            SessionEvent::Credit(session) => self.with(session, |own| {
                for id in std::mem::take(&mut own.starved) {
                    turn.call_handles(id);
                }
            }),
            SessionEvent::MayOpen { session, direction } => {
                self.with(session, |own| own.wake(Wait::Open(direction), turn.wake));
            }
            SessionEvent::Draining(session) => self.with(session, |own| {
                own.draining = true;
                own.wake(Wait::Drain, turn.wake);
            }),
            _ => {}
        }
    }

    /// Bytes of memory held, beside what is charged to the connection's account.
    pub(super) fn held(&self) -> usize {
        let stream = size_of::<(StreamId, Stream)>() + size_of::<StreamId>();
        self.table.len() * size_of::<(SessionId, Session)>()
            + self.streams.len() * stream
            + self.datagrams * size_of::<Bytes>()
            + self.datagram_bytes
    }

    /// Drops what nobody has taken: clients' wishes, and datagrams.
    pub(super) fn drop_unclaimed(&mut self) {
        self.requested = VecDeque::new();
        self.table.retain(|_, session| session.asked.is_none());
        for session in self.table.values_mut() {
            session.datagrams = VecDeque::new();
        }
        (self.datagrams, self.datagram_bytes) = (0, 0);
    }

    fn with(&mut self, session: SessionId, f: impl FnOnce(&mut Session)) {
        if let Some(own) = self.table.get_mut(&session) {
            f(own);
        }
    }

    /// The session is over, and whoever waits for something of it hears so.
    fn end(&mut self, session: SessionId, why: Over, turn: &mut Turn<'_>) {
        let Some(own) = self.table.get_mut(&session) else {
            return;
        };
        if own.asked.is_some() {
            // Nobody has a handle of it.
            self.requested.retain(|waiting| *waiting != session);
            return self.forget(session, turn.wake);
        }
        own.over.get_or_insert(why);
        own.wake_all(turn.wake);
        for waiting in &mut own.waiting {
            for id in waiting.drain(..) {
                own.streams.remove(&id);
                self.streams.remove(&id);
            }
        }
        let streams = &mut self.streams;
        own.streams.retain(|id| {
            turn.end_handles(*id);
            let Some(stream) = streams.get_mut(id) else {
                return false;
            };
            if stream.finished {
                // Neither its handle nor the engine says more of it.
                stream.left &= !bit(Half::Sending);
            }
            let is_left = stream.left > 0;
            if !is_left {
                streams.remove(id);
            }
            is_left
        });
    }

    /// A datagram arrived; what nobody reads in time is dropped, the oldest first (RFC 9221 §5). Whether
    /// one was.
    pub(super) fn on_datagram(
        &mut self,
        session: SessionId,
        payload: Bytes,
        turn: &mut Turn<'_>,
    ) -> bool {
        let mut dropped = false;
        let Some(own) = self.table.get_mut(&session) else {
            return false;
        };
        own.counts.datagrams_received += 1;
        while self.datagrams >= MAX_SESSION_DATAGRAMS
            || self.datagram_bytes + payload.len() > MAX_SESSION_DATAGRAM_BYTES
        {
            own.counts.datagrams_dropped += 1;
            dropped = true;
            let Some(oldest) = own.datagrams.pop_front() else {
                return true;
            };
            self.datagrams -= 1;
            self.datagram_bytes -= oldest.len();
        }
        self.datagrams += 1;
        self.datagram_bytes += payload.len();
        own.datagrams.push_back(match self.datagrams > MOST_SHARED {
            true => Bytes::copy_from_slice(&payload),
            false => payload,
        });
        own.wake(Wait::Datagram, turn.wake);
        dropped
    }

    /// The peer wants no more of a stream, which may have no handle yet.
    pub(super) fn on_stopped(&mut self, id: StreamId, code: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.stopped.get_or_insert(code);
        }
    }

    /// Everybody who waits for something is woken: the connection is over.
    pub(super) fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        self.acceptors.wake(wake);
        for session in self.table.values_mut() {
            session.wake_all(wake);
        }
    }

    /// The session of a stream that has a handle, or waits for one.
    pub(super) fn of_stream(&self, id: StreamId) -> Option<SessionId> {
        self.streams.get(&id).map(|stream| stream.session)
    }

    /// A writer of the stream found no credit.
    pub(super) fn wait_for_credit(&mut self, session: SessionId, id: StreamId) {
        self.with(session, |own| {
            own.starved.insert(id);
        });
    }

    /// A handle has sent the end of a stream: that half is over when all of it is there.
    pub(super) fn on_finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.finished = true;
        }
    }

    /// Whether the end of a stream was sent and is not known to be there.
    pub(super) fn is_finished(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.finished)
    }

    /// A handle is through with its half of a stream; whether both halves are over now.
    pub(super) fn on_half_over(&mut self, id: StreamId, half: Half) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        stream.left &= !bit(half);
        stream.finished &= half != Half::Sending;
        if stream.left > 0 {
            return false;
        }
        let session = stream.session;
        self.streams.remove(&id);
        self.with(session, |own| {
            own.streams.remove(&id);
            own.starved.remove(&id);
        });
        true
    }

    fn add_stream(&mut self, session: SessionId, id: StreamId, turn: &Turn<'_>) {
        let Some(own) = self.table.get_mut(&session) else {
            return;
        };
        own.streams.insert(id);
        let both = bit(Half::Sending) | bit(Half::Receiving);
        let is_ours = id.initiator() == turn.connection.side();
        let left = match (id.direction(), is_ours) {
            (Direction::Bidirectional, _) => both,
            (Direction::Unidirectional, true) => bit(Half::Sending),
            (Direction::Unidirectional, false) => bit(Half::Receiving),
        };
        let stream = Stream {
            session,
            left,
            finished: false,
            stopped: None,
        };
        self.streams.insert(id, stream);
    }

    // ---- what handles ask ----

    /// The next client's wish that nobody has taken.
    pub(crate) fn take_asked(&mut self) -> Option<Asked> {
        let session = self.requested.pop_front()?;
        self.table.get_mut(&session)?.asked.take()
    }

    /// Keeps what comes of a session of ours.
    pub(crate) fn begin(&mut self, session: SessionId) {
        self.table.entry(session).or_default();
    }

    /// Keeps a stream that was opened.
    pub(crate) fn opened(&mut self, session: SessionId, id: StreamId, turn: &Turn<'_>) {
        self.add_stream(session, id, turn);
        self.with(session, |own| own.counts.streams_opened += 1);
    }

    pub(crate) fn take_answer(&mut self, session: SessionId) -> Option<Answer> {
        self.table.get_mut(&session)?.answer.take()
    }

    /// A stream of the peer's, with the code of a peer that wants no answer.
    pub(crate) fn take_stream(
        &mut self,
        session: SessionId,
        direction: Direction,
    ) -> Option<(StreamId, Option<u64>)> {
        let own = self.table.get_mut(&session)?;
        let id = own.waiting[direction.index()].pop_front()?;
        own.counts.streams_accepted += 1;
        let stopped = self.streams.get(&id).and_then(|stream| stream.stopped);
        Some((id, stopped))
    }

    pub(crate) fn take_datagram(&mut self, session: SessionId) -> Option<Bytes> {
        let datagram = self.table.get_mut(&session)?.datagrams.pop_front()?;
        self.datagrams -= 1;
        self.datagram_bytes -= datagram.len();
        Some(datagram)
    }

    pub(crate) fn is_draining(&self, session: SessionId) -> bool {
        self.table.get(&session).is_some_and(|own| own.draining)
    }

    pub(crate) fn over(&self, session: SessionId) -> Option<Over> {
        self.table.get(&session)?.over.clone()
    }

    pub(crate) fn counts(&self, session: SessionId) -> Counts {
        let own = self.table.get(&session);
        own.map(|own| own.counts).unwrap_or_default()
    }

    pub(crate) fn wait(&mut self, session: SessionId, wait: Wait, waker: &Waker) {
        self.with(session, |own| own.wakers[wait.place()].wait(waker));
    }

    /// Waits for the end, or the peer's wish for it, in the place that `key` names.
    #[must_use = "drop it when the lock has been released"]
    pub(crate) fn watch(
        &mut self,
        session: SessionId,
        key: &mut Option<WaiterKey>,
        waker: &Waker,
    ) -> Option<Waker> {
        let own = self.table.get_mut(&session)?;
        own.watchers.register(key, waker)
    }

    /// Gives that place up.
    #[must_use = "drop it when the lock has been released"]
    pub(crate) fn leave(&mut self, session: SessionId, key: WaiterKey) -> Option<Waker> {
        self.table.get_mut(&session)?.watchers.leave(key)
    }

    /// Forgets a session that has no handle any more; whoever waited is woken.
    pub(crate) fn forget(&mut self, session: SessionId, wake: &mut Vec<Waker>) {
        let Some(mut own) = self.table.remove(&session) else {
            return;
        };
        own.wake_all(wake);
        self.datagrams -= own.datagrams.len();
        self.datagram_bytes -= own.datagrams.iter().map(Bytes::len).sum::<usize>();
        for id in own.waiting.into_iter().flatten() {
            self.streams.remove(&id);
        }
    }
}
