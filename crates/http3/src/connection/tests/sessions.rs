//! WebTransport sessions between two connections of ours.

mod any_order;
mod bystanders;
mod counts;
mod ends;
mod limits;
mod rules;

use http::{HeaderValue, StatusCode};
use towline_wire::Direction;
use towline_wire::http3::ErrorCode;

use super::*;
use crate::webtransport::{
    self, ConnectError, Dialect, Dialects, OpenError, SessionEnd, SessionEvent, SessionId,
};

const BIDI: Direction = Direction::Bidirectional;
const UNI: Direction = Direction::Unidirectional;

fn config_of(dialects: &[Dialect]) -> Config {
    Config {
        webtransport: Some(webtransport::Config {
            dialects: Dialects::of(dialects),
            ..webtransport::Config::default()
        }),
        ..Config::default()
    }
}

fn config() -> Config {
    config_of(&Dialect::ALL)
}

fn target() -> RequestHead {
    let mut head = get("/echo");
    let origin = HeaderValue::from_static("https://example.org");
    head.headers.insert("origin", origin);
    head
}

impl Host {
    fn next_session(&mut self) -> SessionEvent {
        match self.next_of_stream() {
            Event::Session(event) => event,
            other => panic!("{other:?}"),
        }
    }

    fn connect(&mut self, protocols: &[&str]) -> Result<SessionId, ConnectError> {
        let Self {
            connection, end, ..
        } = self;
        connection.connect_session(end, &target(), protocols)
    }

    fn accept(&mut self, session: SessionId, protocol: Option<&str>) {
        let Self {
            connection, end, ..
        } = self;
        let accepted = connection.accept_session(end, session, &response(200), protocol);
        accepted.expect("an answer");
    }

    fn open(&mut self, session: SessionId, direction: Direction) -> Result<StreamId, OpenError> {
        let Self {
            connection, end, ..
        } = self;
        connection.open_session_stream(end, session, direction)
    }

    /// Opens a stream and writes all of `bytes` to it.
    fn say(&mut self, session: SessionId, direction: Direction, bytes: &[u8]) -> StreamId {
        let id = self.open(session, direction).expect("a stream");
        self.write_all(id, bytes);
        id
    }

    fn write_all(&mut self, id: StreamId, bytes: &[u8]) {
        let mut bytes = Bytes::copy_from_slice(bytes);
        let written = self.end.write(id, &mut bytes).expect("room");
        assert!(bytes.is_empty());
        self.connection.on_session_written(id, written as u64);
    }

    /// All payload that is there.
    fn hear(&mut self, id: StreamId) -> Vec<u8> {
        let bytes = self.end.take(id);
        let Self {
            connection, end, ..
        } = self;
        connection.on_session_read(end, id, bytes.len() as u64);
        bytes
    }

    fn over(&mut self, id: StreamId) {
        let Self {
            connection, end, ..
        } = self;
        connection.on_session_stream_over(end, id, 0);
    }

    fn close(&mut self, session: SessionId, code: u32, message: &str) {
        let Self {
            connection, end, ..
        } = self;
        connection.close_session(end, session, code, message);
    }

    /// The stream that the peer opened next.
    #[track_caller]
    fn opened(&mut self) -> StreamId {
        match self.next_session() {
            SessionEvent::StreamOpened { id, direction, .. } => {
                assert_eq!(id.direction(), direction);
                id
            }
            other => panic!("{other:?}"),
        }
    }

    /// Why a session ended, if the next event says that one did.
    #[track_caller]
    fn ended(&mut self) -> (SessionId, SessionEnd) {
        match self.next_session() {
            SessionEvent::Closed { session, reason } => (session, reason),
            other => panic!("{other:?}"),
        }
    }
}

/// A session that is established, with events of both ends taken.
fn established(client: &mut Host, server: &mut Host) -> SessionId {
    let session = client.connect(&[]).expect("a session");
    pump(client, server);
    let asked = server.next_session();
    assert!(matches!(asked, SessionEvent::Requested { session: of, .. } if of == session));
    server.accept(session, None);
    pump(client, server);
    let accepted = client.next_session();
    assert!(matches!(accepted, SessionEvent::Established { session: of, .. } if of == session));
    session
}

/// A client of these dialects and a server of all, with a session.
fn session_of(dialects: &[Dialect]) -> (Host, Host, SessionId) {
    let (client, server) = pair(Limits::default());
    let mut client = Host::new(client, config_of(dialects));
    let mut server = Host::new(server, config());
    pump(&mut client, &mut server);
    let session = established(&mut client, &mut server);
    (client, server, session)
}

#[test]
fn each_dialect_opens_a_session_and_names_itself() {
    for dialect in Dialect::ALL {
        let (client, server) = pair(Limits::default());
        let mut client = Host::new(client, config_of(&[dialect]));
        let mut server = Host::new(server, config());
        pump(&mut client, &mut server);
        let session = client.connect(&["v2", "v1"]).unwrap();
        pump(&mut client, &mut server);
        let SessionEvent::Requested {
            session: of,
            head,
            protocols,
            dialect: spoken,
        } = server.next_session()
        else {
            panic!("a request");
        };
        assert_eq!((of, spoken), (session, dialect));
        assert_eq!(protocols, ["v2", "v1"]);
        assert_eq!(head.uri.path(), "/echo");
        assert_eq!(head.headers["origin"], "https://example.org");
        let marked = head.headers.contains_key("sec-webtransport-http3-draft02");
        assert_eq!(marked, dialect == Dialect::Draft02);
        server.accept(session, Some("v1"));
        pump(&mut client, &mut server);
        let SessionEvent::Established { head, protocol, .. } = client.next_session() else {
            panic!("an answer");
        };
        assert_eq!(protocol.as_deref(), Some("v1"));
        let marked = head.headers.get("sec-webtransport-http3-draft");
        let draft02 = dialect == Dialect::Draft02;
        assert_eq!(marked.is_some_and(|value| value == "draft02"), draft02);
        for host in [&client, &server] {
            assert_eq!(host.connection.session_dialect(session), Some(dialect));
            let limited = host.connection.session_send_credit(session).is_some();
            assert_eq!(limited, dialect.has_flow_control());
        }
    }
}

#[test]
fn streams_of_both_kinds_and_datagrams_go_both_ways() {
    for dialect in Dialect::ALL {
        let (mut client, mut server, session) = session_of(&[dialect]);
        for direction in Direction::ALL {
            for _ in 0..2 {
                std::mem::swap(&mut client, &mut server);
                let id = client.say(session, direction, b"hello");
                pump(&mut client, &mut server);
                assert_eq!(server.opened(), id);
                assert_eq!(server.connection.session_of(id), Some(session));
                assert_eq!(server.hear(id), b"hello");
                if direction == BIDI {
                    server.write_all(id, b"echo");
                    pump(&mut client, &mut server);
                    assert_eq!(client.hear(id), b"echo");
                }
                client.over(id);
                server.over(id);
                assert_eq!(server.connection.session_of(id), None);
            }
        }
        for _ in 0..2 {
            std::mem::swap(&mut client, &mut server);
            let Host {
                connection, end, ..
            } = &mut client;
            connection.send_datagram(end, session, b"ping").unwrap();
            pump(&mut client, &mut server);
            assert!(matches!(server.next(),
                Event::Datagram { id, payload } if id == session && payload == "ping"));
        }
        assert!(client.events.is_empty() && server.events.is_empty());
        assert_eq!((client.end.closed(), server.end.closed()), (None, None));
    }
}

/// Requests and sessions live side by side.
#[test]
fn a_request_and_two_sessions_share_a_connection() {
    let (mut client, mut server, first) = session_of(&Dialect::ALL);
    let second = established(&mut client, &mut server);
    let request = client.request(&get("/"), true).unwrap();
    let stream = client.say(second, UNI, b"x");
    pump(&mut client, &mut server);
    let mut seen = Vec::new();
    while let Some(event) = server.events.pop_front() {
        match event {
            Event::Request { id, .. } => seen.push(id),
            Event::Session(SessionEvent::StreamOpened { id, session, .. }) => {
                assert_eq!(session, second);
                seen.push(id);
            }
            other => panic!("{other:?}"),
        }
    }
    seen.sort_unstable();
    let mut expected = [request, stream];
    expected.sort_unstable();
    assert_eq!(seen, expected);
    client.close(first, 0, "");
    pump(&mut client, &mut server);
    server.respond(request, 200, true);
    pump(&mut client, &mut server);
    assert_eq!(server.ended().0, first);
    assert_eq!(client.ended().0, first);
    assert!(matches!(client.next(), Event::Response { id, .. } if id == request));
    assert_eq!(server.hear(stream), b"x");
    assert_eq!(client.connection.sessions(), 1);
}

/// draft-ietf-webtrans-http3-16 §4.6: both ends hold what comes before the session is there.
#[test]
fn streams_and_datagrams_before_the_answer_are_held_until_it() {
    let (client, server) = pair(Limits::default());
    let mut client = Host::new(client, config());
    let mut server = Host::new(server, config());
    pump(&mut client, &mut server);
    let session = client.connect(&[]).unwrap();
    let bidi = client.say(session, BIDI, b"one");
    let uni = client.say(session, UNI, b"two");
    let Host {
        connection, end, ..
    } = &mut client;
    connection.send_datagram(end, session, b"three").unwrap();
    pump(&mut client, &mut server);
    assert!(matches!(
        server.next_of_stream(),
        Event::Session(SessionEvent::Requested { .. })
    ));
    assert!(server.events.is_empty());
    server.accept(session, None);
    server.turn();
    let mut opened = [server.opened(), server.opened()];
    opened.sort_unstable();
    let mut expected = [bidi, uni];
    expected.sort_unstable();
    assert_eq!(opened, expected);
    assert!(
        matches!(server.next(), Event::Datagram { id, payload } if id == session && payload == "three")
    );
    assert_eq!(server.hear(bidi), b"one");
    assert_eq!(server.hear(uni), b"two");
}

#[test]
fn a_session_that_is_refused_tells_its_status_and_ends_its_streams() {
    let (client, server) = pair(Limits::default());
    let mut client = Host::new(client, config());
    let mut server = Host::new(server, config());
    pump(&mut client, &mut server);
    let session = client.connect(&[]).unwrap();
    let stream = client.say(session, BIDI, b"early");
    pump(&mut client, &mut server);
    server.next_of_stream();
    let Host {
        connection, end, ..
    } = &mut server;
    let refused = connection.refuse_session(end, session, StatusCode::FORBIDDEN);
    refused.unwrap();
    pump(&mut client, &mut server);
    let SessionEvent::Refused { head, .. } = client.next_session() else {
        panic!("a refusal");
    };
    assert_eq!(head.status, StatusCode::FORBIDDEN);
    let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
    assert_eq!(server.end.stop_code(stream), gone);
    assert_eq!(client.end.reset_code(stream), gone);
    for host in [&client, &server] {
        assert_eq!(host.connection.sessions(), 0);
        assert_eq!(host.connection.requests(), 0);
        assert!(host.events.is_empty());
    }
    established(&mut client, &mut server);
}

#[test]
fn what_cannot_be_accepted_is_said_before_it_is_sent() {
    let (client, server) = pair(Limits::default());
    let mut client = Host::new(client, config());
    let mut server = Host::new(server, config());
    let early = client.connect(&[]);
    assert_eq!(early, Err(ConnectError::Send(SendError::NotReady)));
    pump(&mut client, &mut server);
    assert_eq!(client.connection.session_obstacle(), None);
    let session = client.connect(&["a"]).unwrap();
    pump(&mut client, &mut server);
    server.next_of_stream();
    let Host {
        connection, end, ..
    } = &mut server;
    let unknown = connection.accept_session(end, session, &response(200), Some("b"));
    assert!(matches!(unknown, Err(SendError::Malformed(_))));
    let error = connection.accept_session(end, session, &response(404), None);
    assert_eq!(error, Err(SendError::WrongState));
    let accepted = connection.refuse_session(end, session, StatusCode::OK);
    assert_eq!(accepted, Err(SendError::WrongState));
    let respond = connection.respond(end, session, &response(200), true);
    assert_eq!(respond, Err(SendError::WrongState));
    assert_eq!(
        connection.open_session_stream(end, session, BIDI),
        Err(OpenError::Closed)
    );
    server.accept(session, Some("a"));
    let Host {
        connection, end, ..
    } = &mut server;
    let twice = connection.accept_session(end, session, &response(200), None);
    assert_eq!(twice, Err(SendError::WrongState));
}

/// An application's codes arrive as they were said, whatever the dialect.
#[test]
fn codes_of_resets_and_stops_are_the_applications() {
    for dialect in Dialect::ALL {
        let (mut client, mut server, session) = session_of(&[dialect]);
        for code in [0, 7, 300] {
            let id = client.say(session, BIDI, b"x");
            pump(&mut client, &mut server);
            server.opened();
            let Host {
                connection, end, ..
            } = &mut client;
            connection.reset_session_stream(end, id, code);
            connection.stop_session_stream(end, id, code + 1);
            let [reset, stop] = [client.end.reset_code(id), client.end.stop_code(id)];
            for (http3, code) in [(reset, code), (stop, code + 1)] {
                let http3 = http3.expect("a code");
                assert_eq!(http3, dialect.to_http3(code).as_u64());
                let heard = server.connection.session_code_from_http3(id, http3);
                assert_eq!(heard, Some(code));
            }
        }
    }
}

/// Limits of the connection and a full window let a stream wait, and then go on.
#[test]
fn a_stream_that_cannot_be_opened_is_told_when_it_can() {
    let limits = Limits {
        streams: [2, 4],
        window: 40,
        ..Limits::default()
    };
    let (client, server) = pair(limits);
    let mut client = Host::new(client, config_of(&[Dialect::Draft07]));
    let mut server = Host::new(server, config());
    // SETTINGS need more than a small window.
    for _ in 0..100 {
        pump(&mut client, &mut server);
    }
    let session = established(&mut client, &mut server);
    client.open(session, BIDI).unwrap();
    assert_eq!(client.open(session, BIDI), Err(OpenError::Blocked));
    assert!(client.connection.may_open(session, BIDI));
    client.end.permit(BIDI, 1);
    client.turn();
    assert!(matches!(client.next_session(),
        SessionEvent::MayOpen { session: of, direction: BIDI } if of == session));
    client.open(session, BIDI).unwrap();
}

/// draft-ietf-webtrans-http3-16 §4.8.
#[test]
fn each_session_has_keying_material_of_its_own() {
    let session = StreamId::from_u64(0x0104);
    let context = webtransport::exporter_context(session, b"label", b"ctx");
    let expected = b"\0\0\0\0\0\0\x01\x04\x05label\x03ctx";
    assert_eq!(context.as_deref(), Some(&expected[..]));
    assert_eq!(
        webtransport::exporter_context(session, &[0; 256], b""),
        None
    );
}
