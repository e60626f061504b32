//! Sessions and requests by path, and the sessions of all connections.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use towline::http3::{self, RecvBody, Router};
use towline::webtransport::{Config, Connection, Error, Session, SessionRequest, Wish};

use crate::world::{World, request};

/// The server serves this router.
fn route(world: &World, router: Router) {
    let (server, tasks) = (world.door(), world.world.tasks());
    let spawn = tasks.clone();
    tasks.spawn(async move {
        server.serve_with(router, |task| spawn.spawn(task)).await;
    });
}

/// Says a word on a stream of its own, and closes.
async fn says(session: Session, word: String) {
    let mut send = session.open_uni().await.unwrap();
    send.write_all(word.as_bytes()).await.unwrap();
    send.finish().unwrap();
    session.closed().await;
}

async fn hears(session: &Session) -> String {
    let mut recv = session.accept_uni().await.unwrap();
    String::from_utf8(recv.read_to_end(100).await.unwrap()).unwrap()
}

#[test]
fn one_router_serves_sessions_and_requests_of_one_connection() {
    let server = Config {
        takes_requests: true,
        ..Config::default()
    };
    let mut world = World::with(Config::default(), server);
    let router = Router::new()
        .route("/chart", |request: Request<RecvBody>| async move {
            Response::new(Full::new(Bytes::from(request.uri().path().to_owned())))
        })
        .session("/chart", |session| says(session, "session".to_owned()))
        .session_request("/boats/*", |request: SessionRequest| async move {
            if request.origin() != Some("https://page.example") {
                return request.reject(StatusCode::FORBIDDEN);
            }
            let path = request.path().to_owned();
            says(request.accept().unwrap(), path).await;
        });
    route(&world, router);
    let asked = world.asks(request("/chart?day=1"), &[]);
    world.run(async move {
        let first = asked.await.unwrap();
        assert_eq!(hears(&first).await, "session");
        let http = http3::Connection::new(first.transport().clone()).unwrap();
        let near = Connection::new(http.clone());

        let mut head = request("/boats/7?day=1");
        let refused = near.open(head.clone(), &[]).await.unwrap_err();
        assert_eq!(refused, Error::Refused(StatusCode::FORBIDDEN));
        let page = http::HeaderValue::from_static("https://page.example");
        head.headers_mut().insert("origin", page);
        let second = near.open(head, &[]).await.unwrap();
        assert_eq!(hears(&second).await, "/boats/7?day=1");

        for path in ["/", "/boats", "/chart/"] {
            let refused = near.open(request(path), &[]).await.unwrap_err();
            assert_eq!(refused, Error::Refused(StatusCode::NOT_FOUND), "{path}");
        }
        let ask = |path: &str| request(path).map(|()| Empty::<Bytes>::new());
        let answer = http.request(ask("/chart")).await.unwrap();
        let body = answer.into_body().read_to_end(100).await.unwrap();
        assert_eq!(body, b"/chart");
        // That path is for sessions alone.
        let answer = http.request(ask("/boats/7")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        // The sessions live on beside all this.
        assert!(first.close_reason().is_none() && second.close_reason().is_none());
    });
}

#[test]
fn sessions_of_all_connections_come_to_one_place_by_turns() {
    let mut world = World::new();
    let mut sessions = world.door().sessions();
    let tasks = world.world.tasks();
    let asked = world.asks(request("/first"), &[]);
    let (near, far, mut sessions) = world.run(async move {
        let accepted = async { sessions.accept().await.unwrap().accept().unwrap() };
        let (near, far) = tokio::join!(asked, accepted);
        (near.unwrap(), far, sessions)
    });
    let connection = http3::Connection::new(near.transport().clone()).unwrap();
    let connection = Connection::new(connection);
    // Eight more by that connection, and one by another.
    for n in 0..8 {
        let near = connection.clone();
        tasks.spawn(async move {
            let session = near.open(request(&format!("/many/{n}")), &[]).await;
            session.unwrap().closed().await;
        });
    }
    let asked = world.asks(request("/other"), &[]);
    tasks.spawn(async move {
        let _ = asked.await.unwrap().closed().await;
    });
    let (server, tasks) = (world.server.clone(), world.world.tasks());
    world.run(async move {
        tasks.sleep(Duration::from_secs(1)).await;
        let (mut paths, mut held) = (Vec::new(), Vec::new());
        for _ in 0..9 {
            let request = sessions.accept().await.unwrap();
            paths.push(request.path().to_owned());
            held.push(request.accept().unwrap());
        }
        assert!(paths[..2].contains(&"/other".to_owned()), "{paths:?}");
        assert_eq!(far.close_reason(), None);
        let closes = async {
            tasks.sleep(Duration::from_secs(1)).await;
            server.close(0, b"");
        };
        let (none, ()) = tokio::join!(sessions.accept(), closes);
        assert!(none.is_none());
    });
}

#[test]
fn a_connection_without_a_session_is_kept_for_as_long_as_its_client_wants() {
    let mut world = World::new();
    let mut sessions = world.door().sessions();
    let asked = world.asks(request("/"), &[]);
    let tasks = world.world.tasks();
    world.run(async move {
        let accepted = async { sessions.accept().await.unwrap().accept().unwrap() };
        let (near, far) = tokio::join!(asked, accepted);
        let near = near.unwrap();
        let http = http3::Connection::new(near.transport().clone()).unwrap();
        drop((near, far));
        let waits = async {
            let request = sessions.accept().await.unwrap();
            assert_eq!(request.path(), "/later");
            request.accept().unwrap()
        };
        let asks = async {
            tasks.sleep(Duration::from_secs(2)).await;
            let near = Connection::new(http.clone());
            near.open(request("/later"), &[]).await.unwrap()
        };
        let (_far, _near) = tokio::join!(waits, asks);
    });
}

#[test]
fn a_session_that_is_given_up_before_its_turn_is_not_accepted() {
    let mut world = World::new();
    let mut sessions = world.door().sessions();
    let asked = world.asks(request("/first"), &[]);
    let tasks = world.world.tasks();
    world.run(async move {
        let accepted = async { sessions.accept().await.unwrap().accept().unwrap() };
        let (near, _far) = tokio::join!(asked, accepted);
        let near = near.unwrap();
        let http = http3::Connection::new(near.transport().clone()).unwrap();
        let client = Connection::new(http);
        tokio::select! {
            biased;
            answer = client.open(request("/gone"), &[]) => panic!("nobody accepts: {answer:?}"),
            () = tasks.sleep(Duration::from_secs(1)) => {}
        }
        tasks.sleep(Duration::from_secs(1)).await;
        let accepted = async {
            let request = sessions.accept().await.unwrap();
            assert_eq!(request.path(), "/here");
            request.accept().unwrap()
        };
        let (here, _far) = tokio::join!(client.open(request("/here"), &[]), accepted);
        assert!(here.is_ok());
    });
}

#[test]
fn sessions_and_requests_of_all_connections_come_to_one_place() {
    let server = Config {
        takes_requests: true,
        ..Config::default()
    };
    let mut world = World::with(Config::default(), server);
    let mut wishes = world.door().wishes();
    let tasks = world.world.tasks();
    tasks.spawn(async move {
        let mut sessions = Vec::new();
        while let Some(wish) = wishes.accept().await {
            match wish {
                Wish::Session(request) => sessions.push(request.accept().unwrap()),
                Wish::Request(request) => {
                    let (request, responder) = request.into_parts();
                    let path = Bytes::from(request.uri().path().to_owned());
                    responder
                        .send(Response::new(Full::new(path)))
                        .await
                        .unwrap();
                }
            }
        }
    });
    let (first, second) = (
        world.asks(request("/one"), &[]),
        world.asks(request("/two"), &[]),
    );
    world.run(async move {
        for session in [first.await.unwrap(), second.await.unwrap()] {
            let http = http3::Connection::new(session.transport().clone()).unwrap();
            let ask = request("/chart").map(|()| Empty::<Bytes>::new());
            let answer = http.request(ask).await.unwrap();
            let body = answer.into_body().read_to_end(100).await.unwrap();
            assert_eq!(body, b"/chart");
            assert!(session.close_reason().is_none());
        }
    });
}
