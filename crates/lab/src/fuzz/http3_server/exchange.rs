//! [`Exchange`]: a client of ours talks with the server, and what it sends becomes a script.

use bytes::Bytes;
use towline_http3::pair::{End, Host, Sent, get};
use towline_http3::webtransport::{self, Dialect, Dialects, SessionId};
use towline_http3::{Config, Connection, ErrorCode, Transport as _};
use towline_wire::{Direction, StreamId};

use super::script::{Step, What};
use super::server::Run;

const BIDI: Direction = Direction::Bidirectional;
const UNI: Direction = Direction::Unidirectional;

/// A server of all dialects with much of everything.
const PLENTY: [u8; 2] = [0x0f, 0xff];

/// One whose sessions have little room.
const LITTLE: [u8; 2] = [0x1f, 0xff];

/// Bytes of a step at most.
const CHUNK: usize = 255;

/// Turns in which client and server must have come to rest.
const MOST_TURNS: usize = 1_000;

/// A script with its name.
pub(super) type Named = (String, Vec<u8>);

/// A name, what the script begins with, and what happens.
type Scene = (&'static str, [u8; 2], fn(&mut Exchange));

/// Exchanges in each dialect, and one without WebTransport.
pub(super) fn all() -> Vec<Named> {
    let scenes: [Scene; 8] = [
        ("echo", PLENTY, echo),
        ("server-closes", PLENTY, server_closes),
        ("refused", PLENTY, refused),
        ("codes", PLENTY, codes),
        ("limits", LITTLE, limits),
        ("early", PLENTY, early),
        ("requests", PLENTY, requests),
        ("sessions", PLENTY, sessions),
    ];
    let of_dialect = |dialect: Dialect| {
        scenes.map(|(name, head, play)| {
            let mut exchange = Exchange::new(head, &[dialect]);
            play(&mut exchange);
            (format!("{}-{name}", dialect.name()), exchange.script)
        })
    };
    let mut scripts: Vec<Named> = Dialect::ALL.into_iter().flat_map(of_dialect).collect();
    let mut plain = Exchange::new([0, 0xff], &[]);
    requests(&mut plain);
    scripts.push(("plain-requests".to_owned(), plain.script));
    scripts
}

pub(super) struct Exchange {
    run: Run,
    client: Host,
    script: Vec<u8>,
}

impl Exchange {
    /// A client of these dialects and a server, which know each other's settings.
    fn new(head: [u8; 2], dialects: &[Dialect]) -> Self {
        let mut run = Run::new(head);
        run.mirrors = true;
        run.peer.record();
        let little = head == LITTLE;
        let config = Config {
            webtransport: (!dialects.is_empty()).then(|| webtransport::Config {
                dialects: Dialects::of(dialects),
                initial_max_data: if little { 64 } else { 1 << 20 },
                ..webtransport::Config::default()
            }),
            ..Config::default()
        };
        let client = Host::new(run.peer.clone(), config);
        let mut exchange = Self {
            run,
            client,
            script: head.to_vec(),
        };
        exchange.talk();
        exchange
    }

    /// Client and server say what they have to say.
    fn talk(&mut self) {
        let rests = (0..MOST_TURNS).any(|_| {
            let told = self.client.turn();
            !self.pass() && !told
        });
        assert!(rests, "two ends that never come to rest");
    }

    /// The server gets what the client has sent; whether that was anything.
    fn pass(&mut self) -> bool {
        let mut sent = self.run.peer.take_recorded();
        sent.dedup_by(|one, other| one == other && matches!(one, Sent::Read(_)));
        let mut steps: Vec<(What, Option<StreamId>, u64, Bytes)> = Vec::new();
        for sent in sent {
            let none = Bytes::new();
            match sent {
                Sent::Open(id) => steps.push((What::Open, Some(id), 0, none)),
                Sent::Finish(id) => steps.push((What::Finish, Some(id), 0, none)),
                Sent::Reset(id, code) => steps.push((What::Reset, Some(id), code, none)),
                Sent::Stop(id, code) => steps.push((What::Stop, Some(id), code, none)),
                Sent::Read(id) => steps.push((What::Take, Some(id), 0, none)),
                Sent::Datagram(bytes) => steps.push((What::Datagram, None, 0, bytes)),
                Sent::Bytes(id, bytes) => {
                    for part in bytes.chunks(CHUNK) {
                        steps.push((What::Bytes, Some(id), 0, bytes.slice_ref(part)));
                    }
                }
            }
        }
        let count = steps.len();
        for (index, (what, id, number, bytes)) in steps.into_iter().enumerate() {
            let at = match (what, id) {
                (What::Open, Some(id)) => id.direction().index(),
                (_, Some(id)) => {
                    let known = self.run.streams.iter().position(|of| *of == id);
                    known.expect("a stream that the client opened or heard of")
                }
                (_, None) => 0,
            };
            let step = Step {
                what,
                at: u8::try_from(at).unwrap_or(u8::MAX),
                number,
                bytes: &bytes,
                more: index + 1 < count,
            };
            step.emit(&mut self.script);
            self.run.step(&step);
        }
        if count > 0 {
            self.run.settle();
        }
        count > 0
    }

    /// The server's application does something.
    fn server(&mut self, what: What, at: u8, number: u64) {
        let step = Step::with_number(what, at, number);
        step.emit(&mut self.script);
        self.run.step(&step);
        self.run.settle();
        self.talk();
    }

    /// The client's application does something.
    fn client<R>(&mut self, act: impl FnOnce(&mut Connection, &mut End) -> R) -> R {
        let Host {
            connection, end, ..
        } = &mut self.client;
        let result = act(connection, end);
        self.talk();
        result
    }

    /// The client asks for a session.
    fn ask(&mut self) -> SessionId {
        let head = get("/echo");
        self.client(|connection, end| connection.connect_session(end, &head, &["v1"]))
            .expect("a session")
    }

    /// A session that is established.
    fn session(&mut self) -> SessionId {
        let session = self.ask();
        self.server(What::Accept, 0, 1);
        session
    }

    /// Opens a stream of a session, writes what the limits permit, and ends it if `ends`.
    fn say(&mut self, session: SessionId, direction: Direction, bytes: usize, ends: bool) {
        self.client(|connection, end| {
            let Ok(id) = connection.open_session_stream(end, session, direction) else {
                return;
            };
            let credit = connection.session_send_credit(session).unwrap_or(u64::MAX);
            let len = bytes.min(usize::try_from(credit).unwrap_or(usize::MAX));
            if len < bytes {
                connection.on_session_blocked(end, session);
            }
            let mut data = Bytes::from(vec![b'x'; len]);
            let written = end.write(id, &mut data).unwrap_or_default();
            connection.on_session_written(id, written as u64);
            if ends {
                end.finish(id);
            }
        });
    }

    /// The client reads what the server's streams have.
    fn hear(&mut self) {
        self.client(|connection, end| {
            for index in 0..4 {
                for direction in Direction::ALL {
                    for id in [end.side(), end.side().peer()]
                        .map(|side| StreamId::new(side, direction, index))
                    {
                        if connection.session_of(id).is_some() {
                            let read = end.take(id).len();
                            connection.on_session_read(end, id, read as u64);
                        }
                    }
                }
            }
        });
    }

    fn send_datagram(&mut self, session: SessionId, payload: &[u8]) {
        let _ = self.client(|connection, end| connection.send_datagram(end, session, payload));
    }
}

/// Streams of both kinds and datagrams both ways, and the client closes.
fn echo(exchange: &mut Exchange) {
    let session = exchange.session();
    exchange.say(session, BIDI, 5, true);
    exchange.server(What::Read, 0, 100);
    exchange.server(What::Write, 0, 7);
    exchange.server(What::EndStream, 0, 0);
    exchange.hear();
    exchange.say(session, UNI, 300, true);
    exchange.server(What::Read, 0, 1000);
    exchange.server(What::Read, 0, 1000);
    exchange.server(What::OpenStream, 0x00, 0);
    exchange.server(What::OpenStream, 0x10, 0);
    exchange.server(What::Write, 0, 20);
    exchange.server(What::Write, 1, 20);
    exchange.hear();
    exchange.send_datagram(session, b"ping");
    exchange.server(What::SendDatagram, 0, 4);
    exchange.client(|connection, end| connection.close_session(end, session, 4711, "thanks"));
}

fn server_closes(exchange: &mut Exchange) {
    let session = exchange.session();
    exchange.say(session, BIDI, 10, false);
    exchange.server(What::Drain, 0, 0);
    exchange.client(|connection, end| connection.drain_session(end, session));
    exchange.server(What::Close, 0, 7 << 8 | 3);
}

fn refused(exchange: &mut Exchange) {
    let session = exchange.ask();
    exchange.say(session, UNI, 3, true);
    exchange.server(What::Refuse, 0, 103);
    exchange.session();
}

/// Resets and stops with codes of the application.
fn codes(exchange: &mut Exchange) {
    let session = exchange.session();
    for code in [0, 7, 300] {
        exchange.say(session, BIDI, 4, false);
        exchange.client(|connection, end| {
            let id = StreamId::new(
                end.side(),
                BIDI,
                1 + u64::from(code > 0) + u64::from(code > 7),
            );
            connection.reset_session_stream(end, id, code);
            connection.stop_session_stream(end, id, code);
        });
        exchange.server(What::OpenStream, 0, 0);
        exchange.server(What::ResetStream, 0, code.into());
        exchange.server(What::StopStream, 0, code.into());
    }
}

/// A client that waits for credit, and gets it as the server reads.
fn limits(exchange: &mut Exchange) {
    let session = exchange.session();
    exchange.say(session, BIDI, 100, true);
    exchange.say(session, UNI, 10, true);
    exchange.server(What::Read, 0, 1000);
    exchange.server(What::Read, 0, 1000);
    exchange.server(What::EndStream, 0, 0);
    exchange.say(session, BIDI, 40, true);
    exchange.say(session, BIDI, 40, true);
    exchange.server(What::OpenStream, 0x10, 0);
    exchange.server(What::Write, 0, 90);
    exchange.server(What::Write, 0, 90);
    exchange.hear();
    exchange.server(What::Write, 0, 90);
}

/// Streams and datagrams that come before the answer.
fn early(exchange: &mut Exchange) {
    let session = exchange.ask();
    exchange.say(session, BIDI, 3, true);
    exchange.say(session, UNI, 3, false);
    exchange.send_datagram(session, b"early");
    exchange.server(What::Accept, 0, 0);
    exchange.server(What::Read, 0, 10);
    exchange
        .client(|connection, end| connection.cancel(end, session, ErrorCode::H3_REQUEST_CANCELLED));
}

/// Requests, with bodies both ways, and the end of the connection.
fn requests(exchange: &mut Exchange) {
    let post = |path| {
        let mut head = get(path);
        head.method = "POST".parse().unwrap_or_default();
        head
    };
    for (path, ends) in [("/", true), ("/again", false), ("/", false)] {
        let head = if ends { get(path) } else { post(path) };
        let asked = exchange.client(|connection, end| connection.request(end, &head, None, ends));
        let id = asked.expect("a stream");
        exchange.client(|connection, end| {
            let mut body = Bytes::from_static(b"a body");
            let _ = connection.write_body(end, id, &mut body);
            let _ = connection.finish(end, id);
        });
        exchange.server(What::ReadBody, 0, 100);
    }
    exchange.server(What::Respond, 0x80, 0);
    exchange.server(What::Respond, 1, 0);
    exchange.server(What::WriteBody, 1, 30);
    exchange.server(What::Trailers, 1, 0);
    exchange.server(What::AnnounceEnd, 0, 0);
    exchange.server(What::GoAway, 0, 0);
    exchange.server(What::Cancel, 2, 0);
}

/// Two sessions at once, one ends, the other goes on.
fn sessions(exchange: &mut Exchange) {
    let first = exchange.session();
    let head = get("/other");
    let second = exchange.client(|connection, end| connection.connect_session(end, &head, &[]));
    exchange.server(What::Accept, 0, 0);
    exchange.client(|connection, end| connection.close_session(end, first, 1, "one"));
    if let Ok(second) = second {
        exchange.say(second, BIDI, 8, true);
        exchange.server(What::Read, 0, 100);
        exchange.server(What::Close, 0, 0);
    }
}
