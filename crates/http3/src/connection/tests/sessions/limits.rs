//! The limits of a session: both ends stall at them, and go on.

use super::*;

/// Sessions of both ends get this much.
fn small(dialects: &[Dialect]) -> Config {
    Config {
        webtransport: Some(webtransport::Config {
            dialects: Dialects::of(dialects),
            initial_max_data: 100,
            initial_max_streams_bidi: 2,
            initial_max_streams_uni: 1,
            ..webtransport::Config::default()
        }),
        ..Config::default()
    }
}

/// A Safari takes draft-07 and draft-14, and stalls without credit.
fn with_small_limits() -> (Host, Host, SessionId) {
    let (client, server) = pair(Limits::default());
    let mut client = Host::new(client, small(&[Dialect::Draft07, Dialect::Draft14]));
    let mut server = Host::new(server, small(&Dialect::ALL));
    pump(&mut client, &mut server);
    let session = established(&mut client, &mut server);
    let dialect = client.connection.session_dialect(session);
    assert_eq!(dialect, Some(Dialect::Draft14));
    (client, server, session)
}

fn want_credit(host: &mut Host, session: SessionId) {
    let Host {
        connection, end, ..
    } = host;
    connection.on_session_blocked(end, session);
}

/// Ten times the limit goes through, each way, and the limit is never overrun.
#[test]
fn a_sender_stalls_at_the_limit_and_goes_on_as_the_peer_reads() {
    let (mut client, mut server, session) = with_small_limits();
    for _ in 0..2 {
        std::mem::swap(&mut client, &mut server);
        let id = client.open(session, UNI).unwrap();
        let mut stalls = 0;
        let mut heard = 0;
        for _ in 0..100 {
            let credit = client.connection.session_send_credit(session).unwrap();
            assert!(credit <= 100);
            if credit == 0 {
                stalls += 1;
                want_credit(&mut client, session);
                pump(&mut client, &mut server);
                while let Some(event) = server.events.pop_front() {
                    let opened = matches!(event, Event::Session(SessionEvent::StreamOpened { .. }));
                    assert!(opened, "{event:?}");
                }
                heard += server.hear(id).len();
                pump(&mut client, &mut server);
                assert!(matches!(client.next_session(), SessionEvent::Credit(of) if of == session));
                continue;
            }
            client.write_all(id, &vec![1; credit.min(30) as usize]);
        }
        assert!(stalls > 10 && heard > 1000, "{stalls} {heard}");
        assert_eq!((client.end.closed(), server.end.closed()), (None, None));
    }
}

/// 1,000 streams through a limit of two at a time, each way.
#[test]
fn streams_stall_at_the_limit_and_go_on_as_others_end() {
    let (mut client, mut server, session) = with_small_limits();
    client.end.permit(BIDI, 1000);
    server.end.permit(BIDI, 1000);
    for _ in 0..2 {
        std::mem::swap(&mut client, &mut server);
        let (mut opened, mut waited) = (0, 0);
        let mut live = Vec::new();
        while opened < 500 {
            match client.open(session, BIDI) {
                Ok(id) => {
                    opened += 1;
                    live.push(id);
                    assert!(live.len() <= 2);
                }
                Err(error) => {
                    assert_eq!(error, OpenError::Blocked);
                    assert!(!client.connection.may_open(session, BIDI));
                    waited += 1;
                    pump(&mut client, &mut server);
                    for id in live.drain(..) {
                        assert_eq!(server.opened(), id);
                        server.over(id);
                        client.over(id);
                    }
                    pump(&mut client, &mut server);
                    assert!(matches!(
                        client.next_session(),
                        SessionEvent::MayOpen { .. }
                    ));
                }
            }
        }
        assert!(waited > 100);
        pump(&mut client, &mut server);
        for id in live {
            server.opened();
            server.over(id);
            client.over(id);
        }
        pump(&mut client, &mut server);
        client.events.clear();
    }
}

/// What a reset leaves unread is no longer a burden of the session.
#[test]
fn a_stream_that_nobody_reads_gives_its_credit_back() {
    let (mut client, mut server, session) = with_small_limits();
    for _ in 0..10 {
        let id = client.say(session, UNI, &[0; 90]);
        want_credit(&mut client, session);
        pump(&mut client, &mut server);
        assert_eq!(server.opened(), id);
        server.over(id);
        client.over(id);
        pump(&mut client, &mut server);
        client.events.clear();
        let credit = client.connection.session_send_credit(session);
        assert_eq!(credit, Some(100));
    }
}

/// Capsules of credit are not gathered while the CONNECT stream is blocked: the newest is sent.
#[test]
fn credit_that_finds_no_room_is_sent_when_there_is_some() {
    let limits = Limits {
        window: 60,
        ..Limits::default()
    };
    let (client, server) = pair(limits);
    let mut client = Host::new(client, small(&[Dialect::Draft16]));
    let mut server = Host::new(server, small(&Dialect::ALL));
    for _ in 0..20 {
        pump(&mut client, &mut server);
    }
    let session = established(&mut client, &mut server);
    let id = client.open(session, UNI).unwrap();
    pump(&mut client, &mut server);
    server.opened();
    for _ in 0..50 {
        client.write_all(id, &[0; 50]);
        assert_eq!(
            server.hear(id).len(),
            50 + if server.events.is_empty() { 0 } else { 1 }
        );
        // The client's connection reads nothing of the CONNECT stream meanwhile.
        let credit = client.connection.session_send_credit(session).unwrap();
        if credit < 50 {
            pump(&mut client, &mut server);
        }
    }
    pump(&mut client, &mut server);
    assert_eq!(client.connection.session_send_credit(session), Some(100));
}

#[test]
fn without_agreed_limits_capsules_of_limits_mean_nothing() {
    let (mut client, mut server, session) = session_of(&[Dialect::Draft07]);
    let mut capsule = Vec::new();
    towline_wire::http3::Capsule::MaxData(0).emit(&mut capsule);
    client
        .end
        .push(session, &peer::frame_bytes(peer::frame::DATA, &capsule));
    pump(&mut client, &mut server);
    assert!(server.events.is_empty());
    assert_eq!(server.connection.session_send_credit(session), None);
    assert!(server.connection.may_open(session, UNI));
    server.say(session, UNI, &[0; 10_000]);
}
