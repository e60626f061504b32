//! WebTransport at both ends: sessions by path at the server, and requests beside them on the same connection.
//!
//! `cargo run -p towline --example webtransport`
//!
//! The server's certificate is one that browsers take by its hash, so a page could stand where the client does:
//! `new WebTransport(url, { serverCertificateHashes: [{ algorithm: "sha-256", value: hash }] })`.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use towline::config::{self, ClientAuth, Options, Trust};
use towline::http3::{self, RecvBody, Router};
use towline::webtransport::{self, Config, Server, Session, SessionRequest, generate_certificate};
use towline::{Endpoint, RecvStream, SendStream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Sends streams and datagrams back until the session ends.
async fn echo(session: Session) {
    let streams = async {
        while let Ok((send, recv)) = session.accept_bi().await {
            tokio::spawn(echo_stream(send, recv));
        }
    };
    let datagrams = async {
        while let Ok(datagram) = session.read_datagram().await {
            // Where there is no room it is lost, as it might be on the way.
            let _ = session.send_datagram(datagram);
        }
    };
    tokio::join!(streams, datagrams);
    if let Some(why) = session.close_reason() {
        println!("server: {why}");
    }
}

async fn echo_stream(mut send: SendStream, mut recv: RecvStream) {
    while let Ok(Some(chunk)) = recv.read_chunk(1 << 16).await {
        if send.write_chunk(chunk).await.is_err() {
            return;
        }
    }
    let _ = send.finish();
}

/// Only for pages of our own, in the newest version of the protocol that the client speaks.
async fn chart(request: SessionRequest) {
    if request.origin() != Some("https://boat.example") {
        return request.reject(StatusCode::FORBIDDEN);
    }
    let known = ["chart.2", "chart.1"];
    let offered = |known: &&str| request.protocols().iter().any(|offered| offered == known);
    let protocol = known.into_iter().find(offered);
    match request.accept_with(protocol, http::HeaderMap::new()) {
        Ok(session) => session.close(0, "no chart today"),
        Err(error) => println!("server: {error}"),
    }
}

async fn page(_: Request<RecvBody>) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from_static(b"<!doctype html>")))
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options::new(http3::ALPN);
    let identity = generate_certificate(&["localhost"], config::unix_now())?;
    let hash = identity.certificate_pin().ok_or("it has a certificate")?;
    let config = config::server(&identity, &ClientAuth::None, &options)?;
    let takes_requests = Config {
        takes_requests: true,
        ..Config::default()
    };
    let server = Endpoint::builder()
        .server(config)
        .webtransport(takes_requests)
        .bind(loopback)?;
    let address = server.local_addr();
    let door = Server::new(&server).ok_or("the endpoint speaks no WebTransport")?;
    let router = Router::new()
        .session("/echo", echo)
        .session_request("/chart", chart)
        .route("/", page);
    let serving = tokio::spawn(async move { door.serve(router).await });

    let trust = Trust::Pinned(vec![hash.into()]);
    let config = config::client(&trust, None, &options)?;
    let client = Endpoint::builder()
        .webtransport(Config::default())
        .bind(loopback)?;
    let url = format!("https://{address}");
    let session = webtransport::connect(&client, &format!("{url}/echo"), &config).await?;
    println!("client: a session in {:?}", session.dialect());

    let (mut send, mut recv) = session.open_bi().await?;
    let bytes = vec![3; 1_000_000];
    let sent = async {
        send.write_all(&bytes).await?;
        send.finish()?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    let (sent, back) = tokio::join!(sent, recv.read_to_end(bytes.len()));
    sent?;
    assert_eq!(back?, bytes);
    println!("client: {} bytes came back on a stream", bytes.len());
    assert_eq!(say(&session, b"are you there?").await?, "are you there?");

    // Another session, and a request, on the same connection.
    let http = http3::Connection::new(session.transport().clone()).ok_or("it is HTTP/3")?;
    let connection = webtransport::Connection::new(http.clone());
    let chart = Request::get(format!("{url}/chart"));
    let refused = connection.open(chart.body(())?, &[]).await;
    let forbidden = webtransport::Error::Refused(StatusCode::FORBIDDEN);
    println!("client: {forbidden}");
    assert_eq!(refused.map(drop), Err(forbidden));
    let chart = Request::get(format!("{url}/chart")).header("origin", "https://boat.example");
    let chart = connection.open(chart.body(())?, &["chart.1"]).await?;
    assert_eq!(chart.protocol(), Some("chart.1"));
    println!("client: {}", chart.closed().await);
    let page = Request::get(format!("{url}/")).body(Empty::<Bytes>::new())?;
    let page = http
        .request(page)
        .await?
        .into_body()
        .read_to_end(100)
        .await?;
    assert_eq!(page, b"<!doctype html>");

    session.close(7, "that is all");
    assert_eq!(session.stats().streams_opened, 1);
    // The connection ends with its last handle.
    drop((send, recv, session, http, connection, chart));
    client.wait_idle().await;
    server.close(0, b"");
    serving.await?;
    Ok(())
}

/// Sends a datagram until its echo comes: either of them may be lost.
async fn say(session: &Session, words: &'static [u8]) -> Outcome<Bytes> {
    for _ in 0..10 {
        session.send_datagram(Bytes::from_static(words))?;
        let echo = tokio::time::timeout(Duration::from_secs(1), session.read_datagram());
        if let Ok(echo) = echo.await {
            return Ok(echo?);
        }
    }
    Err("ten datagrams were lost".into())
}
