//! How sessions end: closed, drained, gone away.

use super::*;
use crate::connection::tests::peer::Bare;

fn closed(code: u32, message: &str, by_peer: bool) -> SessionEnd {
    SessionEnd::Closed {
        code,
        message: message.to_owned(),
        by_peer,
    }
}

#[test]
fn code_and_words_of_a_close_arrive_and_its_streams_are_gone() {
    for dialect in Dialect::ALL {
        for by_client in [true, false] {
            let (mut client, mut server, session) = session_of(&[dialect]);
            let bidi = client.say(session, BIDI, b"x");
            let uni = client.say(session, UNI, b"y");
            let other = server.say(session, UNI, b"z");
            pump(&mut client, &mut server);
            client.opened();
            let _ = [server.opened(), server.opened()];
            let (one, two) = match by_client {
                true => (&mut client, &mut server),
                false => (&mut server, &mut client),
            };
            one.close(session, 7, "bye");
            pump(one, two);
            assert_eq!(one.ended(), (session, closed(7, "bye", false)));
            assert_eq!(two.ended(), (session, closed(7, "bye", true)));
            let gone = Some(ErrorCode::WT_SESSION_GONE.as_u64());
            for (host, sent, heard) in [
                (&client, &[bidi, uni][..], &[bidi, other][..]),
                (&server, &[bidi, other], &[bidi, uni]),
            ] {
                assert!(sent.iter().all(|id| host.end.reset_code(*id) == gone));
                assert!(heard.iter().all(|id| host.end.stop_code(*id) == gone));
                assert_eq!(host.connection.sessions(), 0);
                assert_eq!(host.connection.requests(), 0);
                assert_eq!(host.connection.session_of(bidi), None);
                assert!(host.events.is_empty());
            }
            assert_eq!(client.open(session, BIDI), Err(OpenError::Closed));
            established(&mut client, &mut server);
        }
    }
}

#[test]
fn a_close_is_cut_to_1024_bytes_of_whole_characters() {
    let (mut client, mut server, session) = session_of(&Dialect::ALL);
    let words = "\u{e9}".repeat(600);
    client.close(session, u32::MAX, &words);
    pump(&mut client, &mut server);
    let (_, SessionEnd::Closed { code, message, .. }) = server.ended() else {
        panic!("a close");
    };
    assert_eq!((code, message.len()), (u32::MAX, 1024));
    assert!(words.starts_with(&message));
}

/// A peer that gives the CONNECT stream no credit cannot keep a session open.
#[test]
fn a_close_does_not_wait_for_the_peers_credit() {
    let limits = Limits {
        window: 120,
        ..Limits::default()
    };
    let (client, server) = pair(limits);
    let mut client = Host::new(client, config());
    let mut server = Host::new(server, config());
    pump(&mut client, &mut server);
    let session = established(&mut client, &mut server);
    let stream = client.say(session, UNI, b"x");
    // The client's half is full, and nobody reads at the server.
    let long = "a".repeat(1024);
    client.close(session, 7, &long);
    client.turn();
    assert_eq!(client.ended(), (session, closed(7, &long, false)));
    let gone = ErrorCode::WT_SESSION_GONE.as_u64();
    assert_eq!(client.end.reset_code(stream), Some(gone));
    assert_eq!(client.connection.sessions(), 0);
    // And where there is credit in the end, its words arrive.
    pump(&mut client, &mut server);
    assert!(matches!(
        server.ended(),
        (_, SessionEnd::Closed { code: 7, .. })
    ));
    assert_eq!(client.connection.requests(), 0);
}

#[test]
fn a_clean_end_of_the_connect_stream_is_a_close_without_words() {
    let (mut client, mut server, session) = session_of(&Dialect::ALL);
    client.end.finish(session);
    pump(&mut client, &mut server);
    assert_eq!(server.ended(), (session, closed(0, "", true)));
}

/// An end without an answer would be a malformed one (RFC 9114 §4.1.2).
#[test]
fn a_request_for_a_session_that_ends_before_the_answer_is_reset() {
    let (client, server) = pair(Limits::default());
    let mut client = Host::new(client, config());
    let mut server = Host::new(server, config());
    pump(&mut client, &mut server);
    let session = client.connect(&[]).unwrap();
    client.end.finish(session);
    pump(&mut client, &mut server);
    assert!(matches!(
        server.next_session(),
        SessionEvent::Requested { .. }
    ));
    assert_eq!(server.ended(), (session, closed(0, "", true)));
    let code = ErrorCode::H3_REQUEST_CANCELLED.as_u64();
    assert_eq!(server.end.reset_code(session), Some(code));
    assert_eq!(client.ended(), (session, SessionEnd::Reset { code }));
    assert_eq!(server.connection.requests(), 0);
}

#[test]
fn a_reset_of_the_connect_stream_ends_the_session_with_its_code() {
    let (mut client, mut server, session) = session_of(&Dialect::ALL);
    let Host {
        connection, end, ..
    } = &mut client;
    connection.cancel(end, session, ErrorCode::H3_REQUEST_CANCELLED);
    pump(&mut client, &mut server);
    assert_eq!(client.ended(), (session, SessionEnd::Cancelled));
    let code = ErrorCode::H3_REQUEST_CANCELLED.as_u64();
    assert_eq!(server.ended(), (session, SessionEnd::Reset { code }));
    assert_eq!(server.connection.requests(), 0);
}

#[test]
fn a_session_is_told_once_that_the_peer_wants_its_end() {
    for by_client in [true, false] {
        let (mut client, mut server, session) = session_of(&Dialect::ALL);
        let (one, two) = match by_client {
            true => (&mut client, &mut server),
            false => (&mut server, &mut client),
        };
        for _ in 0..2 {
            let Host {
                connection, end, ..
            } = &mut *one;
            connection.drain_session(end, session);
            pump(one, two);
        }
        assert!(matches!(two.next_session(), SessionEvent::Draining(of) if of == session));
        assert!(two.events.is_empty());
        // It may go on.
        two.say(session, BIDI, b"still here");
        pump(one, two);
        one.opened();
    }
}

/// draft-ietf-webtrans-http3-16 §4.7.
#[test]
fn goaway_drains_all_sessions_and_their_streams_go_on() {
    let (mut client, mut server, first) = session_of(&Dialect::ALL);
    let second = established(&mut client, &mut server);
    let Host {
        connection, end, ..
    } = &mut server;
    connection.go_away(end);
    pump(&mut client, &mut server);
    assert!(matches!(client.next(), Event::GoAway { .. }));
    for session in [first, second] {
        assert!(matches!(client.next_session(), SessionEvent::Draining(of) if of == session));
    }
    let stream = client.say(first, BIDI, b"after");
    pump(&mut client, &mut server);
    assert_eq!(server.opened(), stream);
    assert_eq!(server.hear(stream), b"after");
    let refused = client.connect(&[]);
    assert_eq!(refused, Err(ConnectError::Send(SendError::GoingAway)));
}

#[test]
fn a_session_that_a_goaway_leaves_undone_is_rejected() {
    let (client, server) = pair(Limits::default());
    let mut client = Host::new(client, config());
    let mut server = Host::new(server, config());
    pump(&mut client, &mut server);
    let Host {
        connection, end, ..
    } = &mut server;
    connection.go_away(end);
    let session = client.connect(&[]).unwrap();
    let stream = client.say(session, UNI, b"x");
    pump(&mut client, &mut server);
    assert!(matches!(client.next_of_stream(), Event::GoAway { id: 0 }));
    assert_eq!(client.ended(), (session, SessionEnd::Rejected));
    let gone = ErrorCode::WT_SESSION_GONE.as_u64();
    assert_eq!(client.end.reset_code(stream), Some(gone));
    assert_eq!(client.connection.sessions(), 0);
}

/// A request behind a GOAWAY is refused when its head came; it was no stream of a session.
#[test]
fn a_request_after_our_goaway_is_rejected_where_webtransport_is_on() {
    let mut bare = Bare::silent_client(config());
    let Host {
        connection, end, ..
    } = &mut bare.host;
    connection.go_away(end);
    let id = bare.get();
    let rejected = ErrorCode::H3_REQUEST_REJECTED.as_u64();
    assert_eq!(bare.host.end.reset_code(id), Some(rejected));
    assert!(bare.host.events.is_empty());
    assert_eq!(bare.host.connection.requests(), 0);
}
