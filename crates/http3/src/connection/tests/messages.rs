//! Requests and responses between two connections of ours.

use http::{HeaderMap, HeaderValue, StatusCode};
use towline_wire::Direction;
use towline_wire::http3::ErrorCode;

use super::super::input::MAX_DATAGRAMS;
use super::peer::Bare;
use super::*;
use crate::Priority;

fn small_windows() -> Limits {
    Limits {
        window: 7,
        ..Limits::default()
    }
}

#[test]
fn a_request_without_a_body_and_its_answer_say_that_they_end() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let id = client.request(&get("/a"), true).unwrap();
    pump(&mut client, &mut server);
    let Event::Request {
        id: of,
        head,
        protocol: None,
        end: true,
    } = server.next()
    else {
        panic!("a request");
    };
    assert_eq!((of, head.uri.path()), (id, "/a"));
    server.respond(id, 204, true);
    pump(&mut client, &mut server);
    let Event::Response {
        id: of,
        head,
        interim: false,
        end: true,
    } = client.next()
    else {
        panic!("a response");
    };
    assert_eq!((of, head.status), (id, StatusCode::NO_CONTENT));
    assert_eq!(
        (client.connection.requests(), server.connection.requests()),
        (0, 0)
    );
}

/// Both ways at once, through windows of a few bytes.
#[test]
fn bodies_and_trailers_go_both_ways_through_small_windows() {
    let (mut client, mut server) = connected(small_windows(), &Config::default());
    let id = client.request(&post("/echo"), false).unwrap();
    let body: Vec<u8> = (0..5000_u32).map(|i| i as u8).collect();
    let mut to_server = Bytes::from(body.clone());
    let mut to_client = to_server.clone();
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    let mut answered = false;
    for _ in 0..10_000 {
        pump(&mut client, &mut server);
        if !answered && matches!(server.events.front(), Some(Event::Request { .. })) {
            server.next();
            server.respond(id, 200, false);
            answered = true;
        }
        for (host, data) in [(&mut client, &mut to_server), (&mut server, &mut to_client)] {
            if !data.is_empty() {
                let _ = host.write(id, data);
                if data.is_empty() {
                    let sent = host.connection.send_trailers(&mut host.end, id, &trailers);
                    sent.expect("trailers");
                }
            }
        }
        at_server.extend(server.read_all(id).0);
        at_client.extend(client.read_all(id).0);
    }
    assert!(at_server == body && at_client == body);
    for host in [&mut client, &mut server] {
        let had_trailers = |event: &Event| matches!(event, Event::Trailers { fields, .. } if fields["x-sum"] == "1");
        assert!(host.events.iter().any(had_trailers));
        assert!(matches!(host.events.back(), Some(Event::Finished(of)) if *of == id));
        assert_eq!(host.connection.requests(), 0);
    }
}

#[test]
fn interim_answers_come_before_the_answer() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let id = client.request(&get("/"), true).unwrap();
    pump(&mut client, &mut server);
    server.respond(id, 103, false);
    server.respond(id, 200, true);
    pump(&mut client, &mut server);
    assert!(matches!(
        client.next(),
        Event::Response {
            interim: true,
            end: false,
            ..
        }
    ));
    assert!(matches!(
        client.next(),
        Event::Response {
            interim: false,
            end: true,
            ..
        }
    ));
    let head = response(100);
    let ended = server.connection.respond(&mut server.end, id, &head, false);
    assert_eq!(ended, Err(SendError::WrongState));
}

#[test]
fn a_body_is_told_once_until_a_read_found_nothing() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let id = client.request(&post("/"), false).unwrap();
    pump(&mut client, &mut server);
    server.next();
    for round in 0..3 {
        for _ in 0..2 {
            client.write(id, &mut Bytes::from_static(b"ab")).unwrap();
            pump(&mut client, &mut server);
        }
        assert!(
            matches!(server.next(), Event::Body(of) if of == id),
            "{round}"
        );
        assert!(server.events.is_empty());
        assert_eq!(server.read_all(id), (b"abab".to_vec(), false));
    }
    client.connection.finish(&mut client.end, id).unwrap();
    pump(&mut client, &mut server);
    assert!(matches!(server.next(), Event::Finished(of) if of == id));
    assert_eq!(server.read(id), Ok(None));
}

#[test]
fn inside_of_a_data_frame_nothing_else_can_be_sent() {
    let (mut client, mut server) = connected(small_windows(), &Config::default());
    let id = client.request(&post("/"), false).unwrap();
    pump(&mut client, &mut server);
    let mut data = Bytes::from_static(b"more than seven bytes");
    assert!(client.write(id, &mut data).unwrap() < 21);
    let finished = client.connection.finish(&mut client.end, id);
    assert_eq!(finished, Err(SendError::WrongState));
    assert_eq!(client.write(id, &mut data), Err(BodyError::Blocked));
    for _ in 0..10 {
        pump(&mut client, &mut server);
        server.read_all(id);
        let _ = client.write(id, &mut data);
    }
    assert!(
        client
            .events
            .iter()
            .any(|event| matches!(event, Event::Writable(of) if *of == id))
    );
    assert_eq!(client.connection.finish(&mut client.end, id), Ok(()));
}

#[test]
fn a_request_that_is_cancelled_is_reset_both_ways_and_forgotten() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let id = client.request(&post("/"), false).unwrap();
    pump(&mut client, &mut server);
    let code = ErrorCode::H3_REQUEST_CANCELLED;
    client.connection.cancel(&mut client.end, id, code);
    assert_eq!(client.end.reset_code(id), Some(code.as_u64()));
    assert_eq!(client.end.stop_code(id), Some(code.as_u64()));
    pump(&mut client, &mut server);
    server.next();
    let mut told = [server.next(), server.next()].map(|event| match event {
        Event::Reset { code, .. } => (true, code),
        Event::Stopped { code, .. } => (false, code),
        other => panic!("{other:?}"),
    });
    told.sort();
    assert_eq!(told, [(false, code.as_u64()), (true, code.as_u64())]);
    assert_eq!(
        (client.connection.requests(), server.connection.requests()),
        (0, 0)
    );
    assert_eq!(server.read(id), Err(BodyError::Closed));
}

/// Room and the stop come in one packet: the room is told first, and the stop is found there.
#[test]
fn a_body_that_waits_hears_of_a_stop_that_comes_with_room() {
    let (mut client, mut server) = connected(small_windows(), &Config::default());
    let id = client.request(&get("/"), true).unwrap();
    pump(&mut client, &mut server);
    server.next();
    let mut head = response(200);
    let long = HeaderValue::from_static("longer than the window");
    head.headers.insert("x-long", long);
    let Host {
        connection, end, ..
    } = &mut server;
    connection.respond(end, id, &head, false).unwrap();
    let waits = server.write(id, &mut Bytes::from_static(b"body"));
    assert_eq!(waits, Err(BodyError::Blocked));
    let code = ErrorCode::H3_REQUEST_CANCELLED;
    client.connection.stop_reading(&mut client.end, id, code);
    server.connection.on_writable(&mut server.end, id);
    server.turn();
    assert!(
        matches!(server.next(), Event::Stopped { id: of, code: told } if (of, told) == (id, code.as_u64()))
    );
    assert!(server.events.is_empty());
    assert_eq!(server.connection.requests(), 0);
}

#[test]
fn an_upload_that_a_goaway_leaves_undone_is_stopped_and_reset() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    server.connection.go_away(&mut server.end);
    let id = client.request(&post("/late"), false).unwrap();
    client.turn();
    assert!(matches!(client.next(), Event::GoAway { id: 0 }));
    let rejected = ErrorCode::H3_REQUEST_REJECTED.as_u64();
    assert!(
        matches!(client.next(), Event::Stopped { id: of, code } if (of, code) == (id, rejected))
    );
    assert!(matches!(client.next(), Event::Reset { id: of, code } if (of, code) == (id, rejected)));
    assert_eq!(client.connection.requests(), 0);
}

/// As browsers do with a stream that they give up at once: its number is another's then.
#[test]
fn a_stream_that_is_reset_before_its_request_came_ends_both_ways() {
    for sent in [&[][..], &[0x40], &[0x01, 0x20, 0x00]] {
        let mut bare = Bare::client();
        let id = bare.open_request();
        bare.bytes(id, sent);
        bare.end.reset(id, ErrorCode::H3_REQUEST_CANCELLED.as_u64());
        while bare.host.turn() {}
        let incomplete = ErrorCode::H3_REQUEST_INCOMPLETE.as_u64();
        assert_eq!(bare.host.end.reset_code(id), Some(incomplete));
        assert_eq!(bare.host.connection.requests(), 0);
        assert!(bare.host.events.is_empty());
        bare.assert_lives();
    }
}

#[test]
fn a_server_that_goes_away_finishes_what_began_and_rejects_the_rest() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let first = client.request(&get("/first"), true).unwrap();
    pump(&mut client, &mut server);
    server.connection.announce_end(&mut server.end);
    server.connection.go_away(&mut server.end);
    // Sent before the client heard of it.
    let late = client.request(&get("/late"), true).unwrap();
    pump(&mut client, &mut server);
    let limits: Vec<u64> = client
        .events
        .iter()
        .filter_map(|event| match event {
            Event::GoAway { id } => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(limits, [(1 << 62) - 4, first.as_u64() + 4]);
    let rejected = ErrorCode::H3_REQUEST_REJECTED.as_u64();
    assert_eq!(server.end.reset_code(late), Some(rejected));
    assert!(client.events.iter().any(
        |event| matches!(event, Event::Reset { id, code } if (*id, *code) == (late, rejected))
    ));
    assert_eq!(client.request(&get("/"), true), Err(SendError::GoingAway));
    client.events.clear();
    server.respond(first, 200, true);
    pump(&mut client, &mut server);
    assert!(matches!(client.next(), Event::Response { id, .. } if id == first));
    assert_eq!(
        (client.connection.requests(), server.connection.requests()),
        (0, 0)
    );
    server
        .connection
        .close(&mut server.end, ErrorCode::H3_NO_ERROR);
    assert_eq!(server.end.closed(), Some((0x100, String::new())));
}

#[test]
fn without_credit_for_streams_nothing_is_lost() {
    let limits = Limits {
        streams: [0, 0],
        ..Limits::default()
    };
    let (client, server) = pair(limits);
    let mut client = Host::new(client, Config::default());
    let mut server = Host::new(server, Config::default());
    pump(&mut client, &mut server);
    assert_eq!(client.request(&get("/"), true), Err(SendError::NoStream));
    for host in [&client, &server] {
        host.end.permit(Direction::Unidirectional, 3);
    }
    client.end.permit(Direction::Bidirectional, 1);
    pump(&mut client, &mut server);
    assert!(matches!(client.next(), Event::Settings(_)));
    client.request(&get("/"), true).unwrap();
    pump(&mut client, &mut server);
    assert!(matches!(server.next_of_stream(), Event::Request { .. }));
}

#[test]
fn datagrams_belong_to_requests_and_need_both_ends() {
    let config = Config {
        datagrams: true,
        ..Config::default()
    };
    let (mut client, mut server) = connected(Limits::default(), &config);
    let id = client.request(&post("/"), false).unwrap();
    pump(&mut client, &mut server);
    server.next();
    let send = |host: &mut Host, id, payload: &[u8]| {
        host.connection.send_datagram(&mut host.end, id, payload)
    };
    assert_eq!(send(&mut client, id, b"up"), Ok(()));
    assert_eq!(send(&mut server, id, b"down"), Ok(()));
    pump(&mut client, &mut server);
    assert!(
        matches!(server.next(), Event::Datagram { id: of, payload } if of == id && payload == "up")
    );
    assert!(
        matches!(client.next(), Event::Datagram { id: of, payload } if of == id && payload == "down")
    );
    assert_eq!(
        send(&mut client, id, &[0; 1200]),
        Err(crate::DatagramError::TooLong)
    );
    let other = StreamId::from_u64(400);
    assert_eq!(
        send(&mut client, other, b""),
        Err(crate::DatagramError::Closed)
    );
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let id = client.request(&post("/"), false).unwrap();
    assert_eq!(
        send(&mut client, id, b""),
        Err(crate::DatagramError::NotNegotiated)
    );
    pump(&mut client, &mut server);
}

#[test]
fn of_a_datagram_flood_64_are_taken_at_once_and_the_newest_256_kept() {
    let config = Config {
        datagrams: true,
        ..Config::default()
    };
    let (mut client, mut server) = connected(Limits::default(), &config);
    let id = client.request(&post("/"), false).unwrap();
    pump(&mut client, &mut server);
    server.next();
    for number in 0..1000_u32 {
        let payload = number.to_be_bytes();
        client
            .connection
            .send_datagram(&mut client.end, id, &payload)
            .unwrap();
    }
    for _ in 0..1000 / MAX_DATAGRAMS {
        assert!(server.connection.on_datagrams(&mut server.end));
    }
    assert!(!server.connection.on_datagrams(&mut server.end));
    let mut kept = Vec::new();
    while let Some(Event::Datagram { payload, .. }) = server.connection.poll_event() {
        kept.push(u32::from_be_bytes(payload[..].try_into().unwrap()));
    }
    assert_eq!(kept, (744..1000).collect::<Vec<_>>());
}

#[test]
fn an_extended_connect_is_a_tunnel_if_the_server_takes_it() {
    let config = Config {
        extended_connect: true,
        ..Config::default()
    };
    let (mut client, mut server) = connected(Limits::default(), &config);
    let mut head = get("/chat");
    head.method = Method::CONNECT;
    let protocol = Some(&b"websocket"[..]);
    let id = client
        .connection
        .request(&mut client.end, &head, protocol, false)
        .unwrap();
    pump(&mut client, &mut server);
    assert!(
        matches!(server.next(), Event::Request { protocol: Some(it), .. } if it == "websocket")
    );
    server.respond(id, 200, false);
    server.write(id, &mut Bytes::from_static(b"hello")).unwrap();
    pump(&mut client, &mut server);
    client.next();
    assert_eq!(client.read_all(id), (b"hello".to_vec(), false));
    let trailers = client
        .connection
        .send_trailers(&mut client.end, id, &HeaderMap::new());
    assert_eq!(trailers, Err(SendError::WrongState));

    let (mut client, _server) = connected(Limits::default(), &Config::default());
    let refused = client
        .connection
        .request(&mut client.end, &head, protocol, false);
    assert_eq!(refused, Err(SendError::NoExtendedConnect));
    let plain = client
        .connection
        .request(&mut client.end, &head, None, false);
    assert_eq!(plain, Err(SendError::PlainConnect));
}

#[test]
fn what_the_peer_takes_bounds_what_is_sent() {
    let config = Config {
        max_field_section_size: 500,
        ..Config::default()
    };
    let (mut client, mut server) = connected(Limits::default(), &config);
    let mut head = get("/");
    head.headers
        .insert("x", HeaderValue::from_str(&"a".repeat(400)).unwrap());
    assert_eq!(client.request(&head, true), Err(SendError::TooLarge));
    assert!(client.request(&get("/"), true).is_ok());
    pump(&mut client, &mut server);
    let mut head = response(200);
    head.headers
        .insert("upgrade", HeaderValue::from_static("h2c"));
    let id = StreamId::from_u64(0);
    let sent = server.connection.respond(&mut server.end, id, &head, true);
    assert!(matches!(sent, Err(SendError::Malformed(_))));
}

#[test]
fn priorities_reach_the_transport_from_the_head_and_from_updates() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let mut urgent = post("/");
    urgent
        .headers
        .insert("priority", HeaderValue::from_static("u=0"));
    let id = client.request(&urgent, false).unwrap();
    pump(&mut client, &mut server);
    assert_eq!((client.end.priority(id), server.end.priority(id)), (3, 3));
    let least = Priority {
        urgency: 7,
        incremental: true,
    };
    client
        .connection
        .send_priority_update(&mut client.end, id, least)
        .unwrap();
    pump(&mut client, &mut server);
    assert_eq!((client.end.priority(id), server.end.priority(id)), (-4, -4));
}

#[test]
fn a_table_shortens_what_is_said_again() {
    let (mut client, mut server) = connected(Limits::default(), &Config::default());
    let mut head = get("/");
    let agent = HeaderValue::from_static("a name that is said with every request");
    head.headers.insert("user-agent", agent.clone());
    for _ in 0..10 {
        let id = client.request(&head, true).unwrap();
        pump(&mut client, &mut server);
        let Event::Request { head, .. } = server.next() else {
            panic!("a request");
        };
        assert_eq!(head.headers["user-agent"], agent);
        server.respond(id, 204, true);
        pump(&mut client, &mut server);
        client.next();
    }
    let mut section = Vec::new();
    let fields = [(
        &b"user-agent"[..],
        agent.as_bytes(),
        crate::compression::Sensitivity::Normal,
    )];
    let encoder = &mut client.connection.encoder;
    encoder.encode(StreamId::from_u64(400), fields, &mut section);
    assert_eq!(section.len(), 3);
}
