//! Requests and answers: their heads, bodies and ends.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use towline::ConnectionError;
use towline::engine::TransportConfig;
use towline::http3::{Error, ErrorCode};

use crate::world::{Pieces, World, there};

const CANCELLED: u64 = ErrorCode::H3_REQUEST_CANCELLED.as_u64();

fn get(path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("https://boat.example{path}");
    Request::get(uri).body(Empty::new()).unwrap()
}

fn text(words: impl Into<String>) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from(words.into())))
}

#[test]
fn a_request_has_an_answer_with_interim_heads_a_body_and_trailers() {
    let mut world = World::new();
    let (near, far) = world.connected();
    world.serve(far, |request| async move {
        assert_eq!(request.head().uri, "https://boat.example/log?day=1");
        assert_eq!(request.head().headers["cookie"], "a=b");
        let (request, mut responder) = request.into_parts();
        assert!(request.into_body().read_to_end(0).await.unwrap().is_empty());
        let hints = Response::builder().status(StatusCode::EARLY_HINTS);
        responder.interim(hints.body(()).unwrap()).unwrap();
        let mut fields = HeaderMap::new();
        fields.insert("sum", HeaderValue::from_static("7"));
        let body = Pieces::zeros(25_000).trailers(fields);
        responder.send(Response::new(body)).await.unwrap();
    });
    world.run(async move {
        let mut request = get("/log?day=1").map(drop);
        request
            .headers_mut()
            .insert("cookie", HeaderValue::from_static("a=b"));
        let (send, mut response) = near.start(request).await.unwrap();
        send.finish().unwrap();
        assert_eq!(response.head().await.unwrap().status(), 103);
        let head = response.head().await.unwrap();
        assert_eq!(head.status(), 200);
        assert!(head.headers().get("content-length").is_none());
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["sum"], "7");
        assert_eq!(body.to_bytes().len(), 25_000);
        // Whoever does not ask for them has no interim heads.
        let mut request = get("/log?day=1");
        request
            .headers_mut()
            .insert("cookie", HeaderValue::from_static("a=b"));
        let answer = near.request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        assert_eq!(body.trailers().await.unwrap().unwrap()["sum"], "7");
    });
}

#[test]
fn an_echo_sends_while_it_reads_and_holds_back_who_is_not_read() {
    let len = 3_000_000;
    // Windows and buffers are far smaller than the body.
    let transport = TransportConfig::default()
        .stream_receive_window(100_000)
        .max_stream_receive_window(100_000)
        .stream_send_buffer(50_000);
    let mut world = World::with(transport);
    let (near, far) = world.connected();
    let tasks = world.world.tasks();
    world.serve(far, move |request| {
        let tasks = tasks.clone();
        async move {
            let (request, responder) = request.into_parts();
            tasks.sleep(Duration::from_secs(5)).await;
            responder
                .send(Response::new(request.into_body()))
                .await
                .unwrap();
        }
    });
    let given = Rc::new(Cell::new(0));
    let (tasks, count) = (world.world.tasks(), Rc::clone(&given));
    let whole = world.run(async move {
        let request = Request::post("https://boat.example/").body(()).unwrap();
        let (mut send, response) = near.start(request).await.unwrap();
        tasks.spawn(async move {
            while count.get() < len {
                send.write(Bytes::from_static(&[5; 10_000])).await.unwrap();
                count.set(count.get() + 10_000);
            }
            send.finish().unwrap();
        });
        tasks.sleep(Duration::from_secs(4)).await;
        // The server reads nothing yet: its window, and what the send buffer takes.
        assert!(
            (100_000..1_000_000).contains(&given.get()),
            "{}",
            given.get()
        );
        let mut response = response;
        assert_eq!(response.head().await.unwrap().status(), 200);
        response.into_body().read_to_end(len).await.unwrap()
    });
    assert_eq!(whole.len(), len);
    assert!(whole.iter().all(|byte| *byte == 5));
}

#[test]
fn a_body_goes_on_while_the_answer_that_came_early_is_read() {
    let mut world = World::new();
    let (near, far) = world.connected();
    world.serve(far, |request| async move {
        let (request, responder) = request.into_parts();
        let mut answer = responder.start(Response::new(())).unwrap();
        let mut body = request.into_body();
        while let Some(chunk) = body.chunk().await.unwrap() {
            answer.write(chunk).await.unwrap();
        }
        answer.finish().unwrap();
    });
    let whole = world.run(async move {
        let request = Request::post("https://boat.example/");
        let request = request.body(Pieces::zeros(4_000_000)).unwrap();
        let answer = near.request(request).await.unwrap();
        answer.into_body().read_to_end(4_000_000).await.unwrap()
    });
    assert_eq!(whole.len(), 4_000_000);
}

#[test]
fn an_answer_that_needs_no_body_is_whole_though_the_upload_is_refused() {
    let mut world = World::new();
    let (near, far) = world.connected();
    world.serve(far, |request| async move {
        let (request, responder) = request.into_parts();
        drop(request);
        let mut answer = text("too much");
        *answer.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        responder.send(answer).await.unwrap();
    });
    world.run(async move {
        for _ in 0..3 {
            let request = Request::post("https://boat.example/");
            let request = request.body(Pieces::zeros(9_000_000)).unwrap();
            let answer = near.request(request).await.unwrap();
            assert_eq!(answer.status(), 413);
            assert_eq!(answer.headers()["content-length"], "8");
            let body = answer.into_body().read_to_end(100).await.unwrap();
            assert_eq!(body, b"too much");
        }
    });
}

#[test]
fn many_requests_go_at_once_and_wait_for_streams_that_are_not_permitted() {
    let transport = TransportConfig::default().max_concurrent_bidi_streams(4);
    let mut world = World::with(transport);
    let (near, far) = world.connected();
    let (now, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (tasks, peak) = (world.world.tasks(), Rc::clone(&most));
    world.serve(far, move |request| {
        let (tasks, now, peak) = (tasks.clone(), Rc::clone(&now), Rc::clone(&peak));
        async move {
            now.set(now.get() + 1);
            peak.set(peak.get().max(now.get()));
            tasks.sleep(Duration::from_millis(100)).await;
            now.set(now.get() - 1);
            let (request, responder) = request.into_parts();
            responder.send(text(request.uri().path())).await.unwrap();
        }
    });
    let tasks = world.world.tasks();
    let done = Rc::new(Cell::new(0));
    for n in 0..40 {
        let (near, done) = (near.clone(), Rc::clone(&done));
        tasks.spawn(async move {
            let path = format!("/{n}");
            let answer = near.request(get(&path)).await.unwrap();
            let body = answer.into_body().read_to_end(100).await.unwrap();
            assert_eq!(body, path.as_bytes());
            done.set(done.get() + 1);
        });
    }
    world.world.run_for(Duration::from_secs(10));
    assert_eq!((done.get(), most.get()), (40, 4));
}

#[test]
fn what_is_dropped_is_cancelled_and_the_connection_lives_on() {
    let mut world = World::new();
    let (near, far) = world.connected();
    let tasks = world.world.tasks();
    world.run(async move {
        // The client loses interest in the answer, and in its own body.
        let request = Request::post("https://boat.example/").body(()).unwrap();
        let (mut send, response) = near.start(request).await.unwrap();
        send.write(Bytes::from_static(b"half")).await.unwrap();
        let (request, responder) = far.accept().await.unwrap().into_parts();
        let mut body = request.into_body();
        assert_eq!(body.chunk().await.unwrap().unwrap(), "half");
        drop((send, response));
        assert_eq!(body.chunk().await, Err(Error::Reset(CANCELLED)));
        tasks.sleep(Duration::from_millis(50)).await;
        let refused = responder.send(text("late")).await.unwrap_err();
        assert_eq!(refused, Error::Stopped(CANCELLED));

        // The server does not answer.
        let asked = near.request(get("/"));
        let dropped = async { drop(far.accept().await.unwrap()) };
        let (answer, ()) = tokio::join!(asked, dropped);
        assert_eq!(answer.unwrap_err(), Error::Reset(CANCELLED));

        // The server breaks off in the middle.
        let asked = near.request(get("/"));
        let broken = async {
            let (_request, responder) = far.accept().await.unwrap().into_parts();
            let mut body = responder.start(Response::new(())).unwrap();
            body.write(Bytes::from_static(b"half")).await.unwrap();
            tasks.sleep(Duration::from_millis(50)).await;
        };
        let (answer, ()) = tokio::join!(asked, broken);
        let body = answer.unwrap().into_body().read_to_end(100).await;
        assert_eq!(body.unwrap_err(), Error::Reset(CANCELLED));

        let asked = near.request(get("/"));
        let answered = async {
            let (_request, responder) = far.accept().await.unwrap().into_parts();
            responder.send(text("here")).await.unwrap();
        };
        let (answer, ()) = tokio::join!(asked, answered);
        let body = answer.unwrap().into_body().read_to_end(100).await;
        assert_eq!(body.unwrap(), b"here");
    });
}

#[test]
fn requests_that_are_given_up_before_they_are_accepted_leave_nothing_behind() {
    let transport = TransportConfig::default().max_concurrent_bidi_streams(4);
    let mut world = World::with(transport);
    let (near, far) = world.connected();
    let tasks = world.world.tasks();
    world.run(async move {
        for turn in 0..40 {
            let request = Request::post(format!("https://boat.example/{turn}"));
            let request = request.header("content-length", 3);
            let (send, response) = near.start(request.body(()).unwrap()).await.unwrap();
            tasks.sleep(Duration::from_millis(30)).await;
            match turn % 2 {
                0 => drop(send),
                // Its body is shorter than it said: the server gives it up.
                _ => send.finish().unwrap(),
            }
            tasks.sleep(Duration::from_millis(30)).await;
            drop(response);
        }
        let asked = near.request(get("/alive"));
        let answered = async {
            tasks.sleep(Duration::from_millis(100)).await;
            let (request, responder) = far.accept().await.unwrap().into_parts();
            assert_eq!(request.uri().path(), "/alive");
            responder.send(text("here")).await.unwrap();
        };
        let (answer, ()) = tokio::join!(asked, answered);
        assert_eq!(answer.unwrap().status(), 200);
    });
}

#[test]
fn who_waits_at_one_half_of_an_exchange_hears_that_the_other_was_dropped() {
    let mut world = World::new();
    let (near, far) = world.connected();
    let tasks = world.world.tasks();
    world.run(async move {
        let post = || Request::post("https://boat.example/").body(()).unwrap();
        let (send, mut response) = near.start(post()).await.unwrap();
        let dropped = async {
            tasks.sleep(Duration::from_millis(50)).await;
            drop(send);
        };
        let (head, ()) = tokio::join!(response.head(), dropped);
        assert_eq!(head.unwrap_err(), Error::Closed);
        tasks.sleep(Duration::from_millis(100)).await;

        let (_send, _response) = near.start(post()).await.unwrap();
        let (request, responder) = far.accept().await.unwrap().into_parts();
        let mut body = request.into_body();
        let dropped = async {
            tasks.sleep(Duration::from_millis(50)).await;
            drop(responder);
        };
        let (chunk, ()) = tokio::join!(body.chunk(), dropped);
        assert_eq!(chunk, Err(Error::Closed));
    });
}

#[test]
fn the_answer_to_head_has_no_body_and_says_how_long_it_would_be() {
    let mut world = World::new();
    let (near, far) = world.connected();
    world.serve(far, |request| async move {
        let (_request, responder) = request.into_parts();
        responder.send(text("twelve bytes")).await.unwrap();
    });
    world.run(async move {
        let request = Request::head("https://boat.example/").body(Empty::<Bytes>::new());
        let answer = near.request(request.unwrap()).await.unwrap();
        assert_eq!(answer.headers()["content-length"], "12");
        assert!(answer.into_body().read_to_end(0).await.unwrap().is_empty());
    });
}

#[test]
fn after_a_goaway_what_has_begun_goes_on_and_nothing_new_is_taken() {
    let mut world = World::new();
    let (near, far) = world.connected();
    let tasks = world.world.tasks();
    world.run(async move {
        let asked = near.request(get("/"));
        let answered = async {
            let (_request, responder) = far.accept().await.unwrap().into_parts();
            far.go_away();
            tasks.sleep(Duration::from_millis(50)).await;
            responder.send(text("in time")).await.unwrap();
        };
        let (answer, ()) = tokio::join!(asked, answered);
        let body = answer.unwrap().into_body().read_to_end(100).await;
        assert_eq!(body.unwrap(), b"in time");
        let refused = near.request(get("/")).await.unwrap_err();
        assert_eq!(refused.to_string(), "the peer takes no new requests");
        far.close();
        match near.closed().await {
            ConnectionError::ClosedByPeer(_) => {}
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            near.request(get("/")).await,
            Err(Error::ConnectionLost(_))
        ));
    });
}

#[test]
fn everybody_who_waits_hears_that_the_connection_is_over() {
    let mut world = World::new();
    let (near, far) = world.connected();
    world.run(async move {
        let close = async {
            let request = far.accept().await.unwrap();
            let none = far.accept();
            let close = async { far.transport().close(0x100, b"enough") };
            let (none, ()) = tokio::join!(none, close);
            assert!(none.is_none());
            let (_request, responder) = request.into_parts();
            assert!(matches!(
                responder.send(text("late")).await,
                Err(Error::ConnectionLost(_))
            ));
        };
        let (answer, ()) = tokio::join!(near.request(get("/")), close);
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("enough"), "{error}");
    });
}

#[test]
fn http3_shares_its_port_with_another_protocol() {
    let mut world = World::new();
    let (near, far) = world.connected();
    let (client, server, raw) = (
        world.client.clone(),
        world.server.clone(),
        world.config("test"),
    );
    world.serve(far, |request| async move {
        let (_request, responder) = request.into_parts();
        responder.send(text("here")).await.unwrap();
    });
    world.run(async move {
        let client = client.connect(there(), "localhost", &raw).await.unwrap();
        let server = server.accept().await.unwrap();
        assert!(towline::http3::Connection::new(client.clone()).is_none());
        let mut stream = client.open_uni().await.unwrap();
        stream.write_all(b"raw").await.unwrap();
        stream.finish().unwrap();
        let mut stream = server.accept_uni().await.unwrap();
        assert_eq!(stream.read_to_end(10).await.unwrap(), b"raw");
        let answer = near.request(get("/")).await.unwrap();
        assert_eq!(answer.into_body().read_to_end(10).await.unwrap(), b"here");
    });
}

#[test]
fn whoever_watches_learns_that_nobody_waits_for_the_answer_and_not_of_its_end() {
    let mut world = World::new();
    let (near, far) = world.connected();
    let gone: Rc<Cell<Option<Error>>> = Rc::default();
    let (told, tasks) = (Rc::clone(&gone), world.world.tasks());
    world.serve(far, move |request| {
        let (told, watch) = (Rc::clone(&told), request.watch());
        tasks.spawn(async move { told.set(Some(watch.gone().await)) });
        let is_left = request.head().uri.path() == "/left";
        async move {
            let (request, responder) = request.into_parts();
            if is_left {
                // Held, and never answered.
                std::future::pending::<()>().await;
            }
            drop(request);
            responder.send(text("whole")).await.unwrap();
        }
    });
    let (count, tasks) = (Rc::clone(&gone), world.world.tasks());
    world.run(async move {
        let answer = near.request(get("/")).await.unwrap();
        let body = answer.into_body().read_to_end(100).await.unwrap();
        assert_eq!(body, b"whole");
        tasks.sleep(Duration::from_secs(1)).await;
        assert_eq!(count.take(), None);
        let (send, response) = near.start(get("/left").map(drop)).await.unwrap();
        send.finish().unwrap();
        tasks.sleep(Duration::from_secs(1)).await;
        assert_eq!(count.take(), None);
        drop(response);
        tasks.sleep(Duration::from_secs(1)).await;
        assert_eq!(count.take(), Some(Error::Stopped(CANCELLED)));
    });
}
