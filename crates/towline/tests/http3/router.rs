//! Handlers by path, requests of all connections, and what bodies of the application's may be.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use tokio::sync::oneshot;
use towline::engine::TransportConfig;
use towline::http3::{Connection, Error, ErrorCode, RecvBody, Router};

use crate::world::{Pieces, World};

const CANCELLED: u64 = ErrorCode::H3_REQUEST_CANCELLED.as_u64();
const INTERNAL_ERROR: u64 = ErrorCode::H3_INTERNAL_ERROR.as_u64();

fn ask(method: Method, path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("https://boat.example{path}");
    let request = Request::builder().method(method).uri(uri);
    request.body(Empty::new()).unwrap()
}

fn text(words: impl Into<String>) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from(words.into())))
}

/// Status and body of the answer.
async fn answer_to(near: &Connection, method: Method, path: &str) -> (StatusCode, String) {
    let (head, mut body) = near.request(ask(method, path)).await.unwrap().into_parts();
    let body = body.read_to_end(1000).await.unwrap();
    (head.status, String::from_utf8(body).unwrap())
}

async fn named(request: Request<RecvBody>) -> Response<Full<Bytes>> {
    text(format!("{} {}", request.method(), request.uri().path()))
}

#[test]
fn a_path_leads_to_its_handler_with_every_method_and_others_get_404() {
    let mut world = World::new();
    world.route(
        Router::new()
            .route("/log", named)
            .route("/files/*", |request: Request<RecvBody>| async move {
                text(format!("below: {}", request.uri().path()))
            }),
    );
    let near = world.near();
    world.run(async move {
        let ok = StatusCode::OK;
        for (method, path, wanted) in [
            (Method::GET, "/log", (ok, "GET /log")),
            (Method::GET, "/log?day=1", (ok, "GET /log")),
            (Method::DELETE, "/log", (ok, "DELETE /log")),
            (Method::HEAD, "/log", (ok, "")),
            (Method::GET, "/files/a/b", (ok, "below: /files/a/b")),
            (Method::GET, "/files/../log", (ok, "below: /files/../log")),
            (Method::GET, "/%6Cog", (StatusCode::NOT_FOUND, "")),
            (Method::GET, "/log/", (StatusCode::NOT_FOUND, "")),
            (Method::POST, "/", (StatusCode::NOT_FOUND, "")),
        ] {
            let (status, body) = answer_to(&near, method, path).await;
            assert_eq!((status, body.as_str()), wanted, "{path}");
        }
    });
}

#[test]
fn without_a_path_the_fallback_answers() {
    let mut world = World::new();
    world.route(Router::new().route("/log", named).fallback(
        |request: Request<RecvBody>| async move {
            let mut answer = text(request.uri().path());
            *answer.status_mut() = StatusCode::GONE;
            answer
        },
    ));
    let near = world.near();
    world.run(async move {
        let (status, body) = answer_to(&near, Method::GET, "/other").await;
        assert_eq!((status, body.as_str()), (StatusCode::GONE, "/other"));
        let (status, _) = answer_to(&near, Method::GET, "/log").await;
        assert_eq!(status, StatusCode::OK);
    });
}

#[test]
fn handlers_run_side_by_side_and_one_that_panics_harms_no_other() {
    let mut world = World::new();
    let tasks = world.world.tasks();
    let router = Router::new()
        .route("/never", |_: Request<RecvBody>| {
            std::future::pending::<Response<Full<Bytes>>>()
        })
        .route(
            "/panics",
            |_: Request<RecvBody>| -> std::future::Ready<Response<Full<Bytes>>> {
                panic!("as the test wants it")
            },
        )
        .route("/log", named);
    let (server, spawn) = (world.door(), tasks.clone());
    tasks.spawn(async move {
        let caught = |mut task: towline::http3::Task| async move {
            poll_fn(|cx| {
                let poll = || task.as_mut().poll(cx);
                catch_unwind(AssertUnwindSafe(poll)).unwrap_or(Poll::Ready(()))
            })
            .await;
        };
        server
            .serve_with(router, |task| spawn.spawn(caught(task)))
            .await;
    });
    let near = world.near();
    world.run(async move {
        let never = near.request(ask(Method::GET, "/never"));
        let others = async {
            let broken = near.request(ask(Method::GET, "/panics")).await;
            assert_eq!(broken.unwrap_err(), Error::Reset(CANCELLED));
            answer_to(&near, Method::GET, "/log").await
        };
        let mut never = std::pin::pin!(never);
        let (status, _) = tokio::select! {
            biased;
            _ = &mut never => panic!("nothing answers"),
            done = others => done,
        };
        assert_eq!(status, StatusCode::OK);
    });
}

#[test]
fn requests_of_all_connections_come_to_one_place_by_turns() {
    let mut world = World::new();
    let mut requests = world.door().requests();
    let (first, second) = (world.near(), world.near());
    let tasks = world.world.tasks();
    for n in 0..8 {
        let near = first.clone();
        tasks.spawn(async move {
            let (status, _) = answer_to(&near, Method::GET, &format!("/first/{n}")).await;
            assert_eq!(status, StatusCode::OK);
        });
    }
    tasks.spawn(async move {
        let (status, _) = answer_to(&second, Method::GET, "/second").await;
        assert_eq!(status, StatusCode::OK);
    });
    let tasks = world.world.tasks();
    let server = world.server.clone();
    let paths = world.run(async move {
        // All of them wait.
        tasks.sleep(Duration::from_secs(1)).await;
        let mut paths = Vec::new();
        for _ in 0..9 {
            let request = requests.accept().await.unwrap();
            let (request, responder) = request.into_parts();
            paths.push(request.uri().path().to_owned());
            responder.send(text("here")).await.unwrap();
        }
        tasks.sleep(Duration::from_secs(1)).await;
        // Nobody asks: it waits, until there is nobody left who could.
        let waits = async { requests.accept().await.is_none() };
        let closes = async {
            tasks.sleep(Duration::from_secs(1)).await;
            server.close(0, b"");
        };
        let (ended, ()) = tokio::join!(waits, closes);
        assert!(ended);
        paths
    });
    // The one who asks once does not wait for the one who asks eight times.
    assert!(paths[..2].contains(&"/second".to_owned()), "{paths:?}");
    let firsts: Vec<_> = paths.iter().filter(|path| *path != "/second").collect();
    assert_eq!(firsts.len(), 8);
    assert!(firsts.is_sorted(), "{paths:?}");
    // The clients' asserts have run.
    drop(first);
}

/// Bytes, and then a failure when somebody says so.
struct Broken {
    data: Option<Bytes>,
    fails: oneshot::Receiver<()>,
}

impl Broken {
    fn new() -> (Self, oneshot::Sender<()>) {
        let (fail, fails) = oneshot::channel();
        let data = Some(Bytes::from_static(b"half"));
        (Self { data, fails }, fail)
    }
}

impl Body for Broken {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let fails = Pin::new(&mut self.fails).poll(cx);
        fails.map(|_| Some(Err("the disk is gone")))
    }
}

/// Reads the first half, has the rest fail, and says how that ended.
async fn half_of(mut body: RecvBody, fail: oneshot::Sender<()>) -> Result<Option<Bytes>, Error> {
    assert_eq!(body.chunk().await.unwrap().unwrap(), "half");
    fail.send(()).unwrap();
    body.chunk().await
}

#[test]
fn a_body_that_fails_resets_its_stream_with_an_internal_error() {
    let mut world = World::new();
    let (near, far) = world.connected();
    world.run(async move {
        let why = Error::Body("the disk is gone".to_owned());
        let reset = Error::Reset(INTERNAL_ERROR);
        let (body, fail) = Broken::new();
        let asked = async {
            let answer = near.request(ask(Method::GET, "/")).await.unwrap();
            half_of(answer.into_body(), fail).await
        };
        let answered = async {
            let (_request, responder) = far.accept().await.unwrap().into_parts();
            responder.send(Response::new(body)).await
        };
        let (read, sent) = tokio::join!(asked, answered);
        assert_eq!((read, sent), (Err(reset.clone()), Err(why.clone())));

        let (body, fail) = Broken::new();
        let request = Request::post("https://boat.example/").body(body).unwrap();
        let served = async {
            let (request, _responder) = far.accept().await.unwrap().into_parts();
            half_of(request.into_body(), fail).await
        };
        let (sent, read) = tokio::join!(near.request(request), served);
        assert_eq!((read, sent.map(drop)), (Err(reset), Err(why)));

        // One may say for oneself why.
        let code = ErrorCode::H3_EXCESSIVE_LOAD;
        let asked = near.request(ask(Method::GET, "/"));
        let answered = async {
            let (_request, responder) = far.accept().await.unwrap().into_parts();
            responder.start(Response::new(())).unwrap().reset(code);
        };
        let (answer, ()) = tokio::join!(asked, answered);
        // The reset overtakes the head.
        assert_eq!(answer.map(drop), Err(Error::Reset(code.as_u64())));
    });
}

/// A body of pieces that are no `Bytes`, and how many were taken of it.
struct Counted {
    left: usize,
    taken: Arc<AtomicUsize>,
}

impl Body for Counted {
    type Data = bytes::buf::Chain<&'static [u8], Bytes>;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.taken.fetch_add(1, Ordering::Relaxed);
        let piece = [1; 4_000].as_slice().chain(Bytes::from_static(&[2; 6_000]));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

#[test]
fn a_body_is_taken_no_faster_than_the_peer_reads_it() {
    const PIECES: usize = 1000;
    let transport = TransportConfig::default()
        .stream_receive_window(100_000)
        .max_stream_receive_window(100_000)
        .stream_send_buffer(50_000);
    let mut world = World::with(transport);
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let body = move || Counted {
        left: PIECES,
        taken: Arc::clone(&count),
    };
    let answer = body.clone();
    let uploaded = Rc::new(Cell::new(0));
    world.route(
        Router::new()
            .route("/down", move |_: Request<RecvBody>| {
                let body = answer();
                async move { Response::new(body) }
            })
            .route("/up", |request: Request<RecvBody>| async move {
                let whole = request.into_body().collect().await.unwrap().to_bytes();
                assert!(whole.chunks(10_000).all(|piece| {
                    piece[..4_000].iter().all(|byte| *byte == 1)
                        && piece[4_000..].iter().all(|byte| *byte == 2)
                }));
                text(whole.len().to_string())
            }),
    );
    let near = world.near();
    let tasks = world.world.tasks();
    let sum = Rc::clone(&uploaded);
    world.run(async move {
        let answer = near.request(ask(Method::GET, "/down")).await.unwrap();
        tasks.sleep(Duration::from_secs(5)).await;
        // Nobody reads: the client's window, and what the server's buffer takes.
        let held = taken.load(Ordering::Relaxed);
        assert!((5..PIECES / 2).contains(&held), "{held}");
        let whole = answer
            .into_body()
            .read_to_end(PIECES * 10_000)
            .await
            .unwrap();
        assert_eq!(whole.len(), PIECES * 10_000);
        assert_eq!(taken.load(Ordering::Relaxed), PIECES);

        let request = Request::post("https://boat.example/up")
            .body(body())
            .unwrap();
        let answer = near.request(request).await.unwrap();
        let said = answer.into_body().read_to_end(100).await.unwrap();
        sum.set(String::from_utf8(said).unwrap().parse().unwrap());
    });
    assert_eq!(uploaded.get(), PIECES * 10_000);
}

#[test]
fn a_body_says_how_long_it_is_where_the_peer_did() {
    let mut world = World::new();
    let (near, far) = world.connected();
    world.serve(far, |request| async move {
        let (request, responder) = request.into_parts();
        let mut body = request.into_body();
        assert_eq!(body.size_hint().exact(), Some(10));
        assert!(!body.is_end_stream());
        assert_eq!(body.chunk().await.unwrap().unwrap().len(), 10);
        assert_eq!(body.size_hint().exact(), Some(0));
        assert_eq!(body.chunk().await.unwrap(), None);
        assert!(body.is_end_stream());
        let mut fields = HeaderMap::new();
        fields.insert("sum", HeaderValue::from_static("7"));
        let answer = Response::new(Pieces::zeros(10).trailers(fields));
        responder.send(answer).await.unwrap();
    });
    world.run(async move {
        let body = Full::new(Bytes::from_static(&[0; 10]));
        let request = Request::post("https://boat.example/").body(body).unwrap();
        let mut body = near.request(request).await.unwrap().into_body();
        // It was not said, and the fields after it are to come.
        assert_eq!(body.size_hint().exact(), None);
        let mut len = 0;
        while let Some(chunk) = body.chunk().await.unwrap() {
            len += chunk.len();
        }
        assert_eq!(len, 10);
        assert!(!body.is_end_stream());
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.trailers_ref().unwrap()["sum"], "7");
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
    });
    // A request without a body is whole from the beginning, and so is the answer to HEAD.
    let mut world = World::new();
    let (near, far) = world.connected();
    world.serve(far, |request| async move {
        let (request, responder) = request.into_parts();
        assert!(request.body().is_end_stream());
        responder.send(text("twelve bytes")).await.unwrap();
    });
    world.run(async move {
        let answer = near.request(ask(Method::HEAD, "/")).await.unwrap();
        assert_eq!(answer.headers()["content-length"], "12");
        assert!(answer.body().is_end_stream());
        let answer = near.request(ask(Method::GET, "/")).await.unwrap();
        assert_eq!(answer.body().size_hint().exact(), Some(12));
        assert!(!answer.body().is_end_stream());
        assert_eq!(
            answer.into_body().collect().await.unwrap().to_bytes(),
            "twelve bytes"
        );
    });
}
