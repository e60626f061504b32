//! HTTP/3 at both ends: handlers by path at the server, requests with bodies at the client.
//!
//! `cargo run -p towline --example http3`
//!
//! Requests, answers and bodies are those of the crates `http` and `http-body`, so anything that speaks them
//! fits. A body moves as fast as its reader takes it, in both directions at once: the echo below keeps
//! nothing of what it sends back.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use towline::Endpoint;
use towline::config::{self, ClientAuth, Identity, Options, Trust};
use towline::http3::{self, RecvBody, Router};
use towline::identity::Pin;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes of the upload.
const UPLOAD: usize = 5_000_000;

async fn hello(request: Request<RecvBody>) -> Response<Full<Bytes>> {
    let client = request.body().transport().remote_addr();
    println!("server: {} {} of {client}", request.method(), request.uri());
    Response::new(Full::new(Bytes::from_static(b"hello")))
}

/// Sends everything back, and says after it how much that was.
async fn echo(
    request: Request<RecvBody>,
) -> Response<impl http_body::Body<Data = Bytes, Error = http3::Error>> {
    let length = request.headers().get("content-length").cloned();
    let trailers = async move {
        let mut fields = HeaderMap::new();
        fields.insert("echoed", length.unwrap_or(HeaderValue::from_static("?")));
        Some(Ok(fields))
    };
    Response::new(request.into_body().with_trailers(trailers))
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options::new(http3::ALPN);
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let config = config::server(&identity, &ClientAuth::None, &options)?;
    let server = Endpoint::builder()
        .server(config)
        .http3(http3::Config::default())
        .bind(loopback)?;
    let address = server.local_addr();
    let door = http3::Server::new(&server).ok_or("the endpoint speaks no HTTP/3")?;
    let router = Router::new().route("/hello", hello).route("/echo", echo);
    let serving = tokio::spawn(async move { door.serve(router).await });

    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let config = config::client(&trust, None, &options)?;
    let client = Endpoint::builder()
        .http3(http3::Config::default())
        .bind(loopback)?;
    let connection = http3::connect(&client, address, "localhost", &config).await?;
    let uri = |path: &str| format!("https://{address}{path}");

    let request = Request::get(uri("/hello")).body(Empty::<Bytes>::new())?;
    let answer = connection.request(request).await?;
    let words = answer.into_body().read_to_end(100).await?;
    println!("client: {}", String::from_utf8_lossy(&words));
    assert_eq!(words, b"hello");

    let upload = Full::new(Bytes::from(vec![7; UPLOAD]));
    let request = Request::post(uri("/echo")).body(upload)?;
    let answer = connection
        .request(request)
        .await?
        .into_body()
        .collect()
        .await?;
    let echoed = answer.trailers().and_then(|fields| fields.get("echoed"));
    println!("client: {echoed:?} bytes came back");
    assert_eq!(echoed, Some(&HeaderValue::from(UPLOAD)));
    let back = answer.to_bytes();
    assert!(back.len() == UPLOAD && back.iter().all(|byte| *byte == 7));

    let request = Request::get(uri("/other")).body(Empty::<Bytes>::new())?;
    let answer = connection.request(request).await?;
    println!("client: /other is {}", answer.status());
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);

    connection.close();
    server.close(0, b"");
    serving.await?;
    client.wait_idle().await;
    Ok(())
}
