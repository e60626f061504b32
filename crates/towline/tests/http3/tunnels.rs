//! Extended CONNECT: streams of bytes both ways, for a protocol that both ends know.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use towline::engine::TransportConfig;
use towline::http3::{Config, Error, Protocol, RecvBody, Router};

use crate::world::World;

fn connect(protocol: &'static str) -> Request<()> {
    let request = Request::builder().method(Method::CONNECT);
    let request = request.uri("https://boat.example/shell");
    let request = request.extension(Protocol::new(protocol));
    request.body(()).unwrap()
}

#[test]
fn a_tunnel_carries_bytes_both_ways_at_once() {
    let config = Config {
        extended_connect: true,
        ..Config::default()
    };
    let mut world = World::of(TransportConfig::default(), config);
    world.route(
        Router::new().route("/shell", |request: Request<RecvBody>| async move {
            assert_eq!(request.method(), Method::CONNECT);
            let protocol = request.extensions().get::<Protocol>().unwrap();
            assert_eq!(protocol.as_bytes(), b"echo");
            Response::new(request.into_body())
        }),
    );
    let near = world.near();
    world.run(async move {
        let (mut send, mut answer) = near.start(connect("echo")).await.unwrap();
        assert_eq!(answer.head().await.unwrap().status(), StatusCode::OK);
        let mut body = answer.into_body();
        for word in ["one", "two", "three"] {
            send.write(Bytes::from_static(word.as_bytes()))
                .await
                .unwrap();
            assert_eq!(body.chunk().await.unwrap().unwrap(), word);
        }
        send.finish().unwrap();
        assert_eq!(body.chunk().await.unwrap(), None);
    });
}

#[test]
fn a_server_that_takes_no_tunnels_is_asked_for_none() {
    let mut world = World::new();
    world.route(Router::new());
    let near = world.near();
    world.run(async move {
        let refused = near.start(connect("echo")).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the peer does not understand extended CONNECT"
        );
        assert!(matches!(refused, Error::NotSent(_)));
    });
}
