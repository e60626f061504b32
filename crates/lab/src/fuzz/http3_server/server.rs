//! [`Run`]: a server on one end of a pair, a client of bare bytes on the other, and an application.

use bytes::Bytes;
use towline_http3::pair::{End, Host, Limits, frame_bytes, pair, response, section};
use towline_http3::webtransport::{self, Dialect, Dialects};
use towline_http3::{Config, ErrorCode, Event, ReadError, Transport as _, WriteError};
use towline_wire::http3::{FrameType, StreamType};
use towline_wire::{Direction, Side, StreamId, emit_varint};

use super::books::{Books, Life, OfSession, client_sends};
use super::messages::{CAPSULES, FRAMES, HEADS, settings};
use super::script::{Step, What};

/// Bytes that the application writes or reads in one step at most.
const MOST: u64 = 4096;

/// Turns in which a server must have come to rest.
const MOST_TURNS: usize = 10_000;

/// Rounds of reading in which everything must have been sent.
const MOST_ROUNDS: usize = 1_000;

pub(super) struct Run {
    pub(super) peer: End,
    pub(super) host: Host,
    pub(super) books: Books,
    /// The client's sends are done by somebody else; the books hear of them.
    pub(super) mirrors: bool,
    /// The streams that the client can name, in the order it learnt of them.
    pub(super) streams: Vec<StreamId>,
    opened: [u64; 2],
    blocked_streams: u64,
    signature: u64,
}

/// One of `of`, if there is any.
fn nth<T>(at: u8, of: impl Iterator<Item = T>) -> Option<T> {
    let mut all: Vec<T> = of.collect();
    let index = usize::from(at).checked_rem(all.len())?;
    Some(all.swap_remove(index))
}

const fn direction(at: u8) -> Direction {
    match at & 1 {
        0 => Direction::Bidirectional,
        _ => Direction::Unidirectional,
    }
}

/// What the first byte of an input says of the pair.
fn limits(head: u8) -> Limits {
    let has = |bit: u8| head & bit != 0;
    Limits {
        window: if has(0x40) { 48 } else { 1 << 20 },
        streams: if has(0x20) { [4, 6] } else { [100, 100] },
        datagram: (!has(0x80)).then_some(1200),
    }
}

/// What the first two bytes of an input say of the server.
fn config(head: [u8; 2]) -> Config {
    let [first, second] = head;
    let spoken = Dialect::ALL.into_iter().enumerate();
    let offered: Vec<Dialect> = spoken
        .filter(|(bit, _)| first & 1 << bit != 0)
        .map(|(_, dialect)| dialect)
        .collect();
    let little = first & 0x10 != 0;
    let of = |numbers: [u64; 4], bits: u8| numbers[usize::from(second >> bits & 3)];
    let streams = if little { 2 } else { 100 };
    Config {
        max_field_section_size: if second & 0x40 == 0 { 200 } else { 64 * 1024 },
        qpack_max_table_capacity: of([0, 64, 200, 4096], 2),
        qpack_blocked_streams: of([0, 1, 2, 16], 4),
        extended_connect: second & 0x80 != 0,
        datagrams: second & 0x80 != 0,
        webtransport: (!offered.is_empty()).then(|| webtransport::Config {
            dialects: Dialects::of(&offered),
            max_sessions: of([1, 2, 4, 100], 0),
            initial_max_data: if little { 64 } else { 1 << 20 },
            initial_max_streams_bidi: streams,
            initial_max_streams_uni: streams,
        }),
        ..Config::default()
    }
}

impl Run {
    pub(super) fn new(head: [u8; 2]) -> Self {
        let (peer, end) = pair(limits(head[0]));
        let config = config(head);
        let blocked_streams = config.qpack_blocked_streams;
        let own = |index| StreamId::new(Side::Server, Direction::Unidirectional, index);
        Self {
            peer,
            host: Host::new(end, config),
            books: Books::default(),
            mirrors: false,
            streams: (0..3).map(own).collect(),
            opened: [0; 2],
            blocked_streams,
            signature: u64::from(head[0]),
        }
    }

    /// Client or application do something.
    pub(super) fn step(&mut self, step: &Step<'_>) {
        let Step { at, number, .. } = *step;
        self.books.on_step();
        match step.what {
            What::Open => {
                let _ = self.open(at);
            }
            What::Permit => self.host.end.permit(direction(at), 1 + u64::from(at >> 1)),
            What::Datagram => self.datagram(step.bytes),
            What::OpenPrefixed => self.open_prefixed(at, step.bytes),
            What::SessionDatagram => self.datagram(&[&[at & 0x3f][..], step.bytes].concat()),
            What::Bytes
            | What::Finish
            | What::Reset
            | What::Stop
            | What::Take
            | What::Settings
            | What::Head
            | What::Frame
            | What::Capsule => {
                if let Some(id) = nth(at, self.streams.iter().copied()) {
                    self.client(step, id);
                }
            }
            What::Accept | What::Refuse => self.answer(step),
            What::Close | What::Drain | What::OpenStream | What::SendDatagram => self.session(step),
            What::Write | What::EndStream | What::ResetStream => self.send_on_stream(step),
            What::Read | What::StopStream => self.receive_on_stream(step),
            What::AnnounceEnd => self.host.connection.announce_end(&mut self.host.end),
            What::GoAway => self.host.connection.go_away(&mut self.host.end),
            What::CloseConnection => self.close_connection(),
            What::Respond
            | What::WriteBody
            | What::ReadBody
            | What::Trailers
            | What::EndBody
            | What::Cancel
            | What::StopReading => self.request(step, number),
        }
        self.hear();
    }

    fn send(&mut self, act: impl FnOnce(&mut End)) {
        if !self.mirrors {
            act(&mut self.peer);
        }
    }

    fn datagram(&mut self, bytes: &[u8]) {
        self.books.pay(bytes.len());
        self.send(|peer| {
            peer.send_datagram(Bytes::copy_from_slice(bytes));
        });
    }

    fn open(&mut self, at: u8) -> Option<StreamId> {
        let direction = direction(at);
        let count = &mut self.opened[direction.index()];
        let id = match self.mirrors {
            true => StreamId::new(Side::Client, direction, *count),
            false => self.peer.open(direction)?,
        };
        *count += 1;
        self.streams.push(id);
        Some(id)
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) {
        self.books.pay(bytes.len());
        self.books.on_written(id, bytes);
        self.send(|peer| peer.push(id, bytes));
    }

    fn open_prefixed(&mut self, at: u8, payload: &[u8]) {
        let Some(id) = self.open(at) else {
            return;
        };
        let signal = match id.direction() {
            Direction::Bidirectional => FrameType::WEBTRANSPORT_STREAM.as_u64(),
            Direction::Unidirectional => StreamType::WEBTRANSPORT.as_u64(),
        };
        let mut bytes = Vec::new();
        emit_varint(&mut bytes, signal);
        emit_varint(&mut bytes, u64::from(at >> 1) * 4);
        bytes.extend_from_slice(payload);
        self.write(id, &bytes);
    }

    /// The client does something on a stream.
    fn client(&mut self, step: &Step<'_>, id: StreamId) {
        let (kind, rest) = match step.bytes.split_first() {
            Some((kind, rest)) => (usize::from(*kind), rest),
            None => (0, step.bytes),
        };
        match step.what {
            What::Bytes => self.write(id, step.bytes),
            What::Finish => {
                self.books.on_ended(id);
                self.send(|peer| peer.finish(id));
            }
            What::Reset => {
                self.books.on_ended(id);
                self.send(|peer| peer.reset(id, step.number));
            }
            What::Stop => {
                self.books.on_stopped(id);
                self.send(|peer| peer.stop(id, step.number));
            }
            What::Take => self.send(|peer| drop(peer.take(id))),
            What::Settings => {
                let mut payload = Vec::new();
                settings(step.number).emit(&mut payload);
                self.write(id, &frame_bytes(FrameType::SETTINGS.as_u64(), &payload));
            }
            What::Head => {
                let payload = section(HEADS[step.number as usize % HEADS.len()]);
                self.write(id, &frame_bytes(FrameType::HEADERS.as_u64(), &payload));
            }
            What::Frame => {
                let kind = FRAMES[kind % FRAMES.len()].as_u64();
                self.write(id, &frame_bytes(kind, rest));
            }
            _ => {
                let mut capsule = Vec::new();
                emit_varint(&mut capsule, CAPSULES[kind % CAPSULES.len()].as_u64());
                emit_varint(&mut capsule, rest.len() as u64);
                capsule.extend_from_slice(rest);
                self.write(id, &frame_bytes(FrameType::DATA.as_u64(), &capsule));
            }
        }
    }

    /// The application answers a request for a session.
    fn answer(&mut self, step: &Step<'_>) {
        let Some(session) = nth(step.at, self.books.at(Life::Asked)) else {
            return;
        };
        self.books.on_touched(session);
        let Host {
            connection, end, ..
        } = &mut self.host;
        if step.what == What::Refuse {
            let status = response(300 + (step.number % 300) as u16).status;
            if connection.refuse_session(end, session, status).is_ok() {
                self.books.on_refused(session);
            }
            return;
        }
        let protocol = (step.number & 1 == 1).then_some("v1");
        let accepted = connection.accept_session(end, session, &response(200), protocol);
        if accepted.is_ok() {
            self.books.sessions.insert(session, Life::Open);
        }
    }

    /// The application does something with a session.
    fn session(&mut self, step: &Step<'_>) {
        let open = self.books.at(Life::Open);
        let chosen = match step.what {
            What::Close => nth(step.at, self.books.at(Life::Asked).chain(open)),
            _ => nth(step.at, open),
        };
        let Some(session) = chosen else {
            return;
        };
        self.books.on_touched(session);
        let Host {
            connection, end, ..
        } = &mut self.host;
        match step.what {
            What::Close => {
                let code = (step.number >> 8) as u32;
                let words = "é".repeat((step.number & 0xff) as usize * 4);
                self.books.pay(words.len());
                connection.close_session(end, session, code, &words);
            }
            What::Drain => connection.drain_session(end, session),
            What::SendDatagram => {
                let payload = vec![9; (step.number % MOST) as usize];
                self.books.pay(payload.len());
                let _ = connection.send_datagram(end, session, &payload);
            }
            _ => {
                let opened = connection.open_session_stream(end, session, direction(step.at >> 4));
                if let Ok(id) = opened {
                    self.books.on_opened(session, id);
                    self.streams.push(id);
                }
            }
        }
    }

    fn stream(&self, at: u8, wanted: impl Fn(&OfSession) -> bool) -> Option<(StreamId, OfSession)> {
        let streams = self.books.streams.iter();
        let wanted = streams.filter(|(_, of)| wanted(of));
        nth(at, wanted.map(|(id, of)| (*id, *of)))
    }

    /// The application sends on a stream of a session, within the limits, or ends its half.
    fn send_on_stream(&mut self, step: &Step<'_>) {
        let Some((id, of)) = self.stream(step.at, |of| of.sends) else {
            return;
        };
        self.books.on_touched(id);
        let Host {
            connection, end, ..
        } = &mut self.host;
        match step.what {
            What::Write => {
                let credit = connection.session_send_credit(of.session);
                let len = credit.unwrap_or(MOST).min(step.number % MOST);
                if len == 0 {
                    connection.on_session_blocked(end, of.session);
                    return;
                }
                self.books.pay(len as usize);
                let mut data = Bytes::from(vec![7; len as usize]);
                match end.write(id, &mut data) {
                    Ok(written) => connection.on_session_written(id, written as u64),
                    Err(WriteError::Blocked) => {}
                    Err(_) => self.half_is_over(id, true),
                }
            }
            What::EndStream => {
                end.finish(id);
                self.half_is_over(id, true);
            }
            _ => {
                connection.reset_session_stream(end, id, step.number as u32);
                self.half_is_over(id, true);
            }
        }
    }

    /// The application reads from a stream of a session, or wants no more of it.
    fn receive_on_stream(&mut self, step: &Step<'_>) {
        let Some((id, _)) = self.stream(step.at, |of| of.receives) else {
            return;
        };
        self.books.on_touched(id);
        let Host {
            connection, end, ..
        } = &mut self.host;
        if step.what == What::StopStream {
            connection.stop_session_stream(end, id, step.number as u32);
            self.half_is_over(id, false);
            return;
        }
        match end.read(id, 1 + (step.number % MOST) as usize) {
            Ok(Some(bytes)) => {
                self.books.on_read(id, &bytes);
                connection.on_session_read(end, id, bytes.len() as u64);
            }
            Err(ReadError::Blocked) => {}
            Ok(None) | Err(_) => self.half_is_over(id, false),
        }
    }

    /// A half of a stream ended; the stream is over with both.
    fn half_is_over(&mut self, id: StreamId, sending: bool) {
        self.hear();
        let Some(of) = self.books.streams.get_mut(&id) else {
            return;
        };
        match sending {
            true => of.sends = false,
            false => of.receives = false,
        }
        if !of.sends && !of.receives {
            self.books.streams.remove(&id);
            let Host {
                connection, end, ..
            } = &mut self.host;
            connection.on_session_stream_over(end, id, 0);
        }
    }

    /// The application does something with a request.
    fn request(&mut self, step: &Step<'_>, number: u64) {
        let Some(id) = nth(step.at, self.books.requests.iter().copied()) else {
            return;
        };
        let Host {
            connection, end, ..
        } = &mut self.host;
        let len = number % MOST;
        match step.what {
            What::Respond => {
                let status = if step.at & 0x40 == 0 { 200 } else { 103 };
                let ends = step.at & 0x80 != 0;
                let _ = connection.respond(end, id, &response(status), ends);
            }
            What::WriteBody => {
                self.books.pay(len as usize);
                let mut body = Bytes::from(vec![8; len as usize]);
                let _ = connection.write_body(end, id, &mut body);
            }
            What::ReadBody => {
                let _ = connection.read_body(end, id, len as usize);
            }
            What::Trailers => {
                let fields = response(200).headers;
                let _ = connection.send_trailers(end, id, &fields);
            }
            What::EndBody => {
                let _ = connection.finish(end, id);
            }
            What::Cancel => connection.cancel(end, id, ErrorCode::H3_REQUEST_CANCELLED),
            _ => connection.stop_reading(end, id, ErrorCode::H3_NO_ERROR),
        }
    }

    fn close_connection(&mut self) {
        let Host {
            connection, end, ..
        } = &mut self.host;
        connection.close(end, ErrorCode::H3_NO_ERROR);
        if let (None, Some(error)) = (self.books.closed, connection.error()) {
            self.books.on_over(error);
        }
    }

    /// Lets the server do all that it has to do, and looks at it.
    pub(super) fn settle(&mut self) {
        let closed = self.books.closed.is_some();
        let before = self.host.end.calls();
        let rests = (0..MOST_TURNS).any(|_| {
            let told = self.host.turn();
            self.hear();
            !told
        });
        assert!(rests, "it never comes to rest");
        if closed {
            assert_eq!(self.host.end.calls(), before, "work after the end");
        }
        let Host {
            connection, end, ..
        } = &self.host;
        self.books.check(connection, end);
    }

    /// Takes what the server told.
    fn hear(&mut self) {
        while let Some(event) = self.host.connection.poll_event() {
            self.host.events.push_back(event);
        }
        while let Some(event) = self.host.events.pop_front() {
            let kind = self.books.on_event(&event, &self.host.end);
            if !matches!(event, Event::Datagram { .. }) {
                self.signature = (self.signature ^ kind).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }

    /// Client and application end what they have begun: the server keeps nothing of it. Returns what
    /// happened, as a hash.
    pub(super) fn run_out(mut self) -> u64 {
        self.settle();
        let signature = self.signature;
        let Host {
            connection, end, ..
        } = &mut self.host;
        for session in self.books.at(Life::Asked).chain(self.books.at(Life::Open)) {
            connection.close_session(end, session, 0, "");
        }
        for id in &self.books.requests {
            connection.cancel(end, *id, ErrorCode::H3_REQUEST_CANCELLED);
        }
        self.books.touch_all();
        let begun: Vec<StreamId> = self.streams.to_vec();
        for id in begun.iter().filter(|id| client_sends(**id)) {
            if id.direction() == Direction::Bidirectional {
                self.books.on_ended(*id);
                self.peer.reset(*id, 0);
            }
        }
        for _ in 0..MOST_ROUNDS {
            let before = self.host.end.written();
            self.books.touch_all();
            self.settle();
            begun.iter().for_each(|id| drop(self.peer.take(*id)));
            if self.host.end.written() == before {
                break;
            }
        }
        self.settle();
        let left = self.host.connection.requests() as u64;
        // A section that waits for its entries is looked at when they come.
        assert!(left <= self.blocked_streams, "{left} requests of nobody");
        assert_eq!(self.host.connection.sessions(), 0);
        signature
    }
}
