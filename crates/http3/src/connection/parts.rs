//! [`Connection`]: its parts, and what every stage needs of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use towline_wire::http3::{ErrorCode, Settings, StreamType};
use towline_wire::{Side, StreamId, emit_varint};

use super::control::PeerControl;
use super::incoming::Incoming;
use super::outgoing::{Outgoing, Queue};
use super::priority::EarlyPriorities;
use super::varints::Varints;
use crate::account::{Account, Charge};
use crate::compression::{Decoder, Encoder};
use crate::config::Config;
use crate::counts::{Count, Counters};
use crate::error::Error;
use crate::event::{Event, Events};
use crate::observe::{self, Purpose};
use crate::transport::{Transport, WriteError};
use crate::webtransport::{self, Session, SessionEvent, SessionId, Sessions, State};

/// Cap: reads of one stream in one call; then others have their turn.
pub(crate) const MAX_READS: u32 = 64;

/// HTTP/3 on one QUIC connection.
///
/// Whoever owns the transport tells it of the transport's events, and then takes its own with
/// [`poll_event`](Self::poll_event) until there is none. While [`again`](Self::again) says so, it wants to
/// be [resumed](Self::resume) when others have had their turn.
#[derive(Debug)]
pub struct Connection {
    pub(super) side: Side,
    pub(super) config: Config,
    pub(super) events: Events,
    /// Why it was closed.
    pub(super) closed: Option<Error>,
    pub(super) own: OwnStreams,
    pub(super) peer: PeerStreams,
    /// Boxed: a map has room for eleven, and a session's connection carries one.
    pub(super) messages: BTreeMap<StreamId, Box<Message>>,
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    pub(super) settings: Option<Settings>,
    pub(super) going: Going,
    pub(super) priorities: EarlyPriorities,
    /// `None` where WebTransport means nothing.
    pub(super) sessions: Option<Sessions>,
    /// Streams whose budget of one call was used up.
    pub(super) again: BTreeSet<StreamId>,
    pub(super) account: Account,
    counters: Arc<Counters>,
}

/// A request and its response, on one stream.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) incoming: Incoming,
    /// What is gathered of a field section.
    pub(super) gathered: Charge,
    pub(super) outgoing: Outgoing,
    /// The request was HEAD: the response has no body whatever its Content-Length says.
    pub(super) is_head: bool,
    /// The request was CONNECT.
    pub(super) is_connect: bool,
    /// It came after our GOAWAY: a request is refused, a stream of a session is not.
    pub(super) is_late: bool,
    pub(super) role: Role,
}

/// What a message is to WebTransport.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Role {
    /// Nothing.
    #[default]
    Request,
    /// The CONNECT of a session.
    Session,
    /// Of one that is over: what still comes is passed over.
    Over,
    /// Of one that the peer closed: nothing may come.
    ClosedByPeer,
}

/// The three streams that this end opens and keeps open (RFC 9114 §6.2, RFC 9204 §4.2).
#[derive(Debug)]
pub(super) struct OwnStreams {
    pub(super) control: Own,
    pub(super) encoder: Own,
    pub(super) decoder: Own,
}

#[derive(Debug)]
pub(super) struct Own {
    id: Option<StreamId>,
    kind: StreamType,
    pub(super) queue: Queue,
}

/// The streams of one direction that the peer opened.
#[derive(Debug)]
pub(super) struct PeerStreams {
    pub(super) control: Option<StreamId>,
    pub(super) encoder: Option<StreamId>,
    pub(super) decoder: Option<StreamId>,
    pub(super) reader: PeerControl,
    /// Streams whose type has not arrived. The transport's limit on streams bounds them.
    pub(super) untyped: BTreeMap<StreamId, Varints<1>>,
}

/// Who takes no more requests (RFC 9114 §5.2).
#[derive(Default, Debug)]
pub(super) struct Going {
    /// The last GOAWAY that was sent.
    pub(super) sent: Option<u64>,
    /// The last GOAWAY that came.
    pub(super) received: Option<u64>,
    /// The largest MAX_PUSH_ID that came.
    pub(super) max_push_id: Option<u64>,
    /// The first request stream that this end has not seen.
    pub(super) next_request: u64,
}

impl Own {
    fn new(kind: StreamType) -> Self {
        let mut queue = Queue::default();
        let mut bytes = Vec::new();
        emit_varint(&mut bytes, kind.as_u64());
        queue.push(bytes.into());
        Self {
            id: None,
            kind,
            queue,
        }
    }

    pub(super) fn id(&self) -> Option<StreamId> {
        self.id
    }

    fn flush<T: Transport>(&mut self, transport: &mut T) -> Result<(), WriteError> {
        if self.id.is_none() {
            self.id = transport.open(towline_wire::Direction::Unidirectional);
            if let Some(id) = self.id {
                let purpose = Purpose::Typed(self.kind);
                transport.observe(|| observe::Event::StreamTypeSet {
                    by_peer: false,
                    id,
                    purpose,
                });
            }
        }
        match self.id {
            Some(id) => self.queue.flush(transport, id),
            None => Err(WriteError::Blocked),
        }
    }
}

impl Message {
    pub(super) fn new(side: Side, account: &Account) -> Self {
        Self {
            incoming: Incoming::new(side),
            gathered: account.charge(0),
            outgoing: Outgoing::default(),
            is_head: false,
            is_connect: false,
            is_late: false,
            role: Role::default(),
        }
    }

    /// The section that was held may be decompressed now.
    pub(super) fn release(&mut self) -> Option<Bytes> {
        let section = self.incoming.release();
        self.gathered.set(self.incoming.kept());
        section
    }
}

impl Connection {
    /// Nothing is sent before [`on_established`](Self::on_established).
    pub fn new(side: Side, mut config: Config) -> Self {
        if let Some(webtransport) = &config.webtransport {
            config.extended_connect |= side.is_server();
            config.datagrams = true;
            webtransport::offer(webtransport, side, &mut config.settings);
        }
        Self {
            side,
            events: Events::default(),
            closed: None,
            own: OwnStreams {
                control: Own::new(StreamType::CONTROL),
                encoder: Own::new(StreamType::QPACK_ENCODER),
                decoder: Own::new(StreamType::QPACK_DECODER),
            },
            peer: PeerStreams {
                control: None,
                encoder: None,
                decoder: None,
                reader: PeerControl::new(side),
                untyped: BTreeMap::new(),
            },
            messages: BTreeMap::new(),
            encoder: Encoder::new(),
            decoder: Decoder::new(
                config.qpack_max_table_capacity,
                config.qpack_blocked_streams,
            ),
            settings: None,
            going: Going::default(),
            priorities: EarlyPriorities::default(),
            sessions: config.webtransport.clone().map(Sessions::new),
            account: Account::default(),
            again: BTreeSet::new(),
            counters: Arc::default(),
            config,
        }
    }

    /// Counts what happens together with others, from now on.
    pub fn count_with(&mut self, counters: Arc<Counters>) {
        self.counters = counters;
    }

    /// What was counted, here and by others that share it.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn count(&self, count: Count) {
        self.counters.add(count);
    }

    /// The next thing that happened. Events that wait are bounded by the transport's streams.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.poll()
    }

    /// The peer's SETTINGS, once they came.
    pub fn peer_settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    /// Why this end closed the connection.
    pub fn error(&self) -> Option<Error> {
        self.closed
    }

    /// Requests that are not over in both directions.
    pub fn requests(&self) -> usize {
        self.messages.len()
    }

    /// What is kept of what the peer sent: whoever keeps more of it charges it here.
    pub fn kept(&self) -> &Account {
        &self.account
    }

    /// Bytes of memory that the peer has this connection hold, with all that is in its [account](Self::kept).
    pub fn held(&self) -> usize {
        let messages = self.messages.len() * size_of::<(StreamId, Message)>();
        let untyped = self.peer.untyped.len() * size_of::<(StreamId, Varints<1>)>();
        let sessions = self.sessions.as_ref().map_or(0, |sessions| sessions.held());
        let coders = self.encoder.held() + self.decoder.held();
        self.account.bytes() + messages + untyped + sessions + coders
    }

    /// Closes the connection (RFC 9114 §8).
    pub(super) fn fail<T: Transport>(&mut self, transport: &mut T, error: Error) {
        if self.closed.is_some() {
            return;
        }
        self.count(Count::ConnectionsFailed);
        self.end(error);
        transport.close(error.code.as_u64(), error.reason.as_bytes());
        self.events.push(Event::Closed(error));
    }

    /// The transport's connection ended because too much was held: nothing more is read, and nothing is kept.
    pub fn abandon(&mut self) {
        if self.closed.is_none() {
            self.end(Error::new(
                ErrorCode::H3_EXCESSIVE_LOAD,
                "more was held than there is memory",
            ));
        }
    }

    /// Nothing of the peer's is looked at any more, and nothing is kept of it.
    pub(super) fn end(&mut self, error: Error) {
        self.closed = Some(error);
        self.messages.clear();
        self.again.clear();
        self.peer.untyped.clear();
        self.events.drop_datagrams();
        self.count_ended();
        if let Some(sessions) = &mut self.sessions {
            sessions.clear();
        }
    }

    /// The sessions that are open end with the connection.
    fn count_ended(&self) {
        let open = self.sessions.iter().flat_map(|own| own.open.values());
        for _ in open.filter(|session| session.state == State::Open) {
            self.count(Count::SessionsEnded);
        }
    }

    pub(super) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.as_ref()?.get(id)
    }

    pub(super) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.as_mut()?.get_mut(id)
    }

    pub(super) fn role(&self, id: StreamId) -> Role {
        let message = self.messages.get(&id);
        message.map_or(Role::Request, |message| message.role)
    }

    pub(super) fn tell(&mut self, event: SessionEvent) {
        self.events.push(Event::Session(event));
    }

    /// Forgets a message that is over in both directions.
    pub(super) fn forget_if_over(&mut self, id: StreamId) {
        let message = self.messages.get(&id);
        if message.is_some_and(|own| own.incoming.is_over() && own.outgoing.is_over()) {
            self.messages.remove(&id);
            self.again.remove(&id);
        }
    }

    /// Writes what waits on our own three streams.
    pub(super) fn flush_own<T: Transport>(&mut self, transport: &mut T) {
        if self.closed.is_some() {
            return;
        }
        let own = &mut self.own;
        // What finds no credit waits in the coder, which then makes less of it.
        if own.encoder.queue.is_empty() {
            own.encoder
                .queue
                .push(self.encoder.take_instructions().unwrap_or_default());
        }
        if own.decoder.queue.is_empty() {
            own.decoder
                .queue
                .push(self.decoder.take_instructions().unwrap_or_default());
        }
        let gone = [&mut own.control, &mut own.encoder, &mut own.decoder]
            .into_iter()
            .map(|own| own.flush(transport))
            .any(|flushed| matches!(flushed, Err(WriteError::Stopped(_) | WriteError::Closed)));
        if gone {
            return self.fail(transport, super::control::closed());
        }
        if let Err(error) = self.decoder.check_unsent() {
            self.fail(transport, error.into());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.count_ended();
    }
}
