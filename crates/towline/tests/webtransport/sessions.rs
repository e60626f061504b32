//! Sessions: how they begin, what goes by them, and how they end.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{Empty, Full};
use towline::engine::DatagramOptions;
use towline::webtransport::{
    Config, ConnectError, Connection, Dialect, Dialects, Error, Session, http3_code,
};
use towline::{Endpoint, ReadError, WriteError, http3};

use crate::world::{World, request};

/// Everything that a session carries goes from `a` to `b`.
async fn talks(a: &Session, b: &Session) {
    let (mut send, mut recv) = a.open_bi().await.unwrap();
    send.write_all(b"ping").await.unwrap();
    send.finish().unwrap();
    let (mut answer, mut question) = b.accept_bi().await.unwrap();
    assert_eq!(question.read_to_end(10).await.unwrap(), b"ping");
    answer.write_all(b"pong").await.unwrap();
    answer.finish().unwrap();
    assert_eq!(recv.read_to_end(10).await.unwrap(), b"pong");

    let mut send = a.open_uni().await.unwrap();
    let bytes = vec![7; 200_000];
    let sent = async {
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
    };
    let read = async {
        let mut recv = b.accept_uni().await.unwrap();
        recv.read_to_end(200_000).await.unwrap()
    };
    let ((), read) = tokio::join!(sent, read);
    assert_eq!(read, bytes);

    let largest = vec![9; a.max_datagram_len().unwrap()];
    a.send_datagram(largest.clone().into()).unwrap();
    assert_eq!(b.read_datagram().await.unwrap(), largest);
    assert!(a.send_datagram([largest, vec![9]].concat().into()).is_err());
    let mut options = DatagramOptions::default();
    options.max_age = Some(Duration::from_secs(1));
    let data = Bytes::from_static(b"soon");
    a.send_datagram_with(data, &options).unwrap();
    assert_eq!(b.read_datagram().await.unwrap(), "soon");
}

#[test]
fn a_session_carries_streams_and_datagrams_from_each_end() {
    let mut world = World::new();
    let head = Request::get("https://boat.example:4433/log?day=1")
        .header("origin", "https://page.example");
    let asked = world.asks(head.body(()).unwrap(), &["chart.2", "chart.1"]);
    let door = world.door();
    world.run(async move {
        let served = async {
            let connection = door.accept().await.unwrap();
            let request = connection.accept().await.unwrap();
            assert_eq!(request.authority(), "boat.example:4433");
            assert_eq!(request.path(), "/log?day=1");
            assert_eq!(request.origin(), Some("https://page.example"));
            assert_eq!(request.protocols(), ["chart.2", "chart.1"]);
            assert_eq!(request.dialect(), Dialect::Draft16);
            let mut fields = HeaderMap::new();
            fields.insert("server", HeaderValue::from_static("boat"));
            request.accept_with(Some("chart.1"), fields).unwrap()
        };
        let (near, far) = tokio::join!(asked, served);
        let near = near.unwrap();
        assert_eq!(near.protocol(), Some("chart.1"));
        assert_eq!(near.headers()["server"], "boat");
        assert_eq!(near.id(), far.id());
        talks(&near, &far).await;
        talks(&far, &near).await;
        let stats = near.stats();
        assert_eq!((stats.streams_opened, stats.streams_accepted), (2, 2));
        assert_eq!((stats.datagrams_received, stats.datagrams_dropped), (2, 0));
        let (mut ours, mut theirs) = ([0; 32], [1; 32]);
        near.export_keying_material(&mut ours, b"label", b"")
            .unwrap();
        far.export_keying_material(&mut theirs, b"label", b"")
            .unwrap();
        assert_eq!(ours, theirs);
    });
}

#[test]
fn every_dialect_carries_a_session_and_a_server_speaks_them_all_at_once() {
    for dialect in Dialect::ALL {
        let mut client = Config::default();
        client.sessions.dialects = Dialects::of(&[dialect]);
        let mut world = World::with(client, Config::default());
        let (near, far, _connection) = world.session();
        assert_eq!((near.dialect(), far.dialect()), (dialect, dialect));
        world.run(async move {
            talks(&near, &far).await;
            talks(&far, &near).await;
            near.close(5, "done");
            let end = Error::Closed {
                code: 5,
                reason: "done".to_owned(),
                by_peer: true,
            };
            assert_eq!(far.closed().await, end, "{}", dialect.name());
        });
    }
}

#[test]
fn a_session_that_a_server_accepts_and_closes_at_once_is_a_session_with_an_end() {
    let mut world = World::new();
    let (asked, door) = (world.asks(request("/"), &[]), world.door());
    world.run(async move {
        let served = async {
            let connection = door.accept().await.unwrap();
            let session = connection.accept().await.unwrap().accept().unwrap();
            session.close(4712, "goodbye");
            connection
        };
        let (session, _connection) = tokio::join!(asked, served);
        let by_peer = Error::Closed {
            code: 4712,
            reason: "goodbye".to_owned(),
            by_peer: true,
        };
        let session = session.unwrap();
        assert_eq!(session.closed().await, by_peer);
        assert_eq!(session.open_bi().await.unwrap_err(), by_peer);
    });
}

#[test]
fn a_session_that_is_closed_tells_code_and_words_and_the_others_live_on() {
    let mut world = World::new();
    let (near, far, connection) = world.session();
    let (other, other_far) = world.another(&near, &connection);
    let tasks = world.world.tasks();
    world.run(async move {
        let (mut send, mut recv) = near.open_bi().await.unwrap();
        send.write_all(b"ahoy").await.unwrap();
        let (mut answer, mut question) = far.accept_bi().await.unwrap();
        assert_eq!(question.read_chunk(9).await.unwrap().unwrap(), "ahoy");
        // Whoever waits for anything hears of it.
        let reading = question.read_chunk(9);
        let accepting = far.accept_uni();
        let datagrams = near.read_datagram();
        let closed = near.closed();
        let close = async {
            tasks.sleep(Duration::from_millis(50)).await;
            far.close(7, "enough");
        };
        let (read, accepted, datagram, closed, ()) =
            tokio::join!(reading, accepting, datagrams, closed, close);
        assert!(read.is_err());
        let by_us = Error::Closed {
            code: 7,
            reason: "enough".to_owned(),
            by_peer: false,
        };
        assert_eq!(accepted.unwrap_err(), by_us);
        let by_peer = Error::Closed {
            code: 7,
            reason: "enough".to_owned(),
            by_peer: true,
        };
        assert_eq!(datagram.unwrap_err(), by_peer);
        assert_eq!(
            (closed, near.close_reason()),
            (by_peer.clone(), Some(by_peer))
        );
        assert!(recv.read_chunk(9).await.is_err());
        assert!(send.write_all(b"more").await.is_err());
        assert!(answer.write_all(b"more").await.is_err());
        assert!(near.open_uni().await.is_err());
        assert!(near.send_datagram(Bytes::from_static(b"more")).is_err());
        talks(&other, &other_far).await;
        // The last handle of a session closes it.
        drop(other);
        let end = Error::Closed {
            code: 0,
            reason: String::new(),
            by_peer: true,
        };
        assert_eq!(other_far.closed().await, end);
    });
}

#[test]
fn a_server_refuses_with_a_status_and_a_request_that_is_dropped_is_not_found() {
    let mut world = World::new();
    for wanted in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
        let (asked, door) = (world.asks(request("/"), &[]), world.door());
        let refused = world.run(async move {
            let refuse = async {
                let connection = door.accept().await.unwrap();
                let request = connection.accept().await.unwrap();
                match wanted {
                    StatusCode::NOT_FOUND => drop(request),
                    status => request.reject(status),
                }
                connection
            };
            let (asked, _connection) = tokio::join!(asked, refuse);
            asked.unwrap_err()
        });
        assert_eq!(refused, ConnectError::Session(Error::Refused(wanted)));
    }
}

#[test]
fn a_server_without_webtransport_is_told_from_one_that_refuses() {
    let client = Endpoint::builder().webtransport(Config::default());
    let server = Endpoint::builder().http3(http3::Config::default());
    let mut world = World::of(client, server);
    let asked = world.asks(request("/"), &[]);
    let error = world.run(asked).unwrap_err();
    assert!(
        matches!(error, ConnectError::Session(Error::NotAsked(_))),
        "{error:?}"
    );
}

#[test]
fn requests_beside_sessions_are_refused_unless_they_are_taken() {
    for takes_requests in [false, true] {
        let server = Config {
            takes_requests,
            ..Config::default()
        };
        let mut world = World::with(Config::default(), server);
        let (near, far, connection) = world.session();
        let http = http3::Connection::new(near.transport().clone()).unwrap();
        if takes_requests {
            let far = connection.http().clone();
            world.world.tasks().spawn(async move {
                while let Some(request) = far.accept().await {
                    let (_request, responder) = request.into_parts();
                    let answer = http::Response::new(Full::new(Bytes::from_static(b"here")));
                    responder.send(answer).await.unwrap();
                }
            });
        }
        world.run(async move {
            let request = Request::get("https://boat.example/").body(Empty::<Bytes>::new());
            let answer = http.request(request.unwrap()).await.unwrap();
            let wanted = if takes_requests { 200 } else { 404 };
            assert_eq!(answer.status(), wanted);
            talks(&near, &far).await;
        });
    }
}

#[test]
fn codes_of_streams_arrive_as_they_were_given() {
    for dialect in Dialect::ALL {
        let mut client = Config::default();
        client.sessions.dialects = Dialects::of(&[dialect]);
        let mut world = World::with(client, Config::default());
        let (near, far, _connection) = world.session();
        world.run(async move {
            for code in [0, 7, 255, 300, u64::from(u32::MAX)] {
                for (a, b) in [(&near, &far), (&far, &near)] {
                    let (mut send, mut recv) = a.open_bi().await.unwrap();
                    send.write_all(b"x").await.unwrap();
                    let (mut answer, mut question) = b.accept_bi().await.unwrap();
                    send.reset(code);
                    recv.stop(code);
                    let reset = loop {
                        match question.read_chunk(9).await {
                            Ok(chunk) => assert_eq!(chunk.unwrap(), "x"),
                            Err(error) => break error,
                        }
                    };
                    assert_eq!(reset, ReadError::Reset(code));
                    assert_eq!(answer.stopped().await.unwrap(), Some(code));
                    let stopped = answer.write(b"x").await.unwrap_err();
                    assert_eq!(stopped, WriteError::Stopped(code));
                }
            }
        });
    }
    assert_eq!(http3_code(7), None);
    assert_eq!(
        http3_code((1 << 32) + 0x10c),
        Some(http3::ErrorCode::H3_REQUEST_CANCELLED)
    );
}

#[test]
fn a_stream_that_is_reset_behind_its_end_has_the_applications_code() {
    let mut world = World::new();
    let (near, far, _connection) = world.session();
    world.run(async move {
        for (a, b) in [(&near, &far), (&far, &near)] {
            let mut send = a.open_uni().await.unwrap();
            send.write_all(&[0; 200_000]).await.unwrap();
            send.finish().unwrap();
            send.reset(300);
            let mut recv = b.accept_uni().await.unwrap();
            assert_eq!(recv.read_chunk(9).await, Err(ReadError::Reset(300)));
            let mut send = a.open_uni().await.unwrap();
            send.write_all(b"x").await.unwrap();
            let beyond = send.reset_at(7, u64::MAX);
            assert!(beyond.is_err(), "{beyond:?}");
            send.finish().unwrap();
            let mut recv = b.accept_uni().await.unwrap();
            assert_eq!(recv.read_to_end(9).await.unwrap(), b"x");
        }
    });
}

/// Whoever reads a stream out of order counts from where its payload begins.
#[test]
fn offsets_of_a_stream_count_from_its_payload() {
    let mut world = World::new();
    let (near, far, _connection) = world.session();
    let tasks = world.world.tasks();
    world.run(async move {
        for (a, b) in [(&near, &far), (&far, &near)] {
            let (mut send, mut back) = a.open_bi().await.unwrap();
            send.write_all(b"ahoy").await.unwrap();
            send.finish().unwrap();
            let (mut answer, mut recv) = b.accept_bi().await.unwrap();
            answer.write_all(b"ho").await.unwrap();
            answer.finish().unwrap();
            tasks.sleep(Duration::from_millis(50)).await;
            for (stream, words) in [(&mut recv, "ahoy"), (&mut back, "ho")] {
                assert_eq!(stream.final_size(), Some(words.len() as u64));
                let chunk = stream.read_unordered(9).await.unwrap().unwrap();
                assert_eq!((chunk.offset, &chunk.data[..]), (0, words.as_bytes()));
            }
        }
    });
}

#[test]
fn who_waits_at_a_stream_hears_that_its_session_is_over() {
    for by_peer in [false, true] {
        let mut world = World::new();
        let (near, far, _connection) = world.session();
        let tasks = world.world.tasks();
        world.run(async move {
            let (mut send, _recv) = near.open_bi().await.unwrap();
            send.write_all(&[0; 400_000]).await.unwrap();
            send.finish().unwrap();
            let (mut other, _back) = near.open_bi().await.unwrap();
            other.write_all(b"x").await.unwrap();
            let close = async {
                tasks.sleep(Duration::from_millis(15)).await;
                let end = if by_peer { &far } else { &near };
                end.close(7, "enough");
            };
            let waits = async { tokio::join!(send.finished(), other.stopped(), close) };
            let (finished, stopped, ()) = tokio::select! {
                ends = waits => ends,
                () = tasks.sleep(Duration::from_secs(1)) => panic!("nobody told"),
            };
            match by_peer {
                true => drop((finished.unwrap_err(), stopped.unwrap())),
                false => assert_eq!(
                    (finished, stopped),
                    (Err(WriteError::ClosedStream), Ok(None))
                ),
            }
        });
    }
}

/// A task of each stream, for instance, that gives up with its session.
#[test]
fn a_wait_for_the_end_of_a_session_that_is_dropped_leaves_nothing() {
    struct Nobody;
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    let mut world = World::new();
    let (near, far, _connection) = world.session();
    let nobody = Arc::new(Nobody);
    let waker = Waker::from(Arc::clone(&nobody));
    world.run(async move {
        for _ in 0..100 {
            let mut cx = Context::from_waker(&waker);
            let (mut closed, mut draining) = (Box::pin(near.closed()), Box::pin(near.draining()));
            for _ in 0..2 {
                assert!(closed.as_mut().poll(&mut cx).is_pending());
                assert!(draining.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(Arc::strong_count(&nobody), 4);
        }
        assert_eq!(Arc::strong_count(&nobody), 2);
        let (drained, ()) = tokio::join!(near.draining(), async { far.drain() });
        drained.unwrap();
        far.close(7, "");
        near.closed().await;
    });
}

#[test]
fn a_peer_that_wants_the_end_soon_is_heard() {
    let mut world = World::new();
    let (near, far, connection) = world.session();
    let (other, other_far) = world.another(&near, &connection);
    world.run(async move {
        far.drain();
        near.draining().await.unwrap();
        talks(&near, &far).await;
        // One that goes away drains them all.
        connection.http().go_away();
        other.draining().await.unwrap();
        talks(&other, &other_far).await;
        let http = http3::Connection::new(near.transport().clone()).unwrap();
        assert!(Connection::new(http).open(request("/"), &[]).await.is_err());
    });
}

#[test]
fn everybody_who_waits_hears_that_the_connection_is_over() {
    let mut world = World::new();
    let (near, far, connection) = world.session();
    world.run(async move {
        let close = async { near.transport().close(9, b"gone") };
        let (accepted, datagram, drained, request, ()) = tokio::join!(
            far.accept_bi(),
            far.read_datagram(),
            far.draining(),
            connection.accept(),
            close
        );
        assert!(request.is_none());
        for error in [accepted.map(drop), datagram.map(drop), drained] {
            let words = error.unwrap_err().to_string();
            assert!(words.contains("gone"), "{words}");
        }
        assert!(matches!(far.closed().await, Error::Http3(_)));
    });
}
