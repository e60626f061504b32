//! The server: everything but files, which `towline serve --web` serves in this table.

use std::fs;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::watch;
use towline::Endpoint;
use towline::config::{self, ClientAuth, Identity};
use towline::http3::{Config, Connection, RecvBody, Request, Responder, Server};

use super::{HALF, MEBIBYTE, pattern};
use crate::Error;

pub(super) async fn serve(cert: &str, key: &str) -> Result<(), Error> {
    let identity = Identity::from_pem(&fs::read(cert)?, &fs::read(key)?)?;
    let config = config::server(&identity, &ClientAuth::None, &super::options())?;
    let endpoint = Endpoint::builder()
        .server(config)
        .http3(Config::default())
        .bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let server = Server::new(&endpoint).ok_or("no door")?;
    println!("listening {}", endpoint.local_addr());
    interop_contract::exit_when_stdin_closes();
    while let Some(connection) = server.accept().await {
        tokio::spawn(serve_connection(connection));
    }
    Ok(())
}

async fn serve_connection(connection: Connection) {
    let (going, _) = watch::channel(false);
    while let Some(request) = connection.accept().await {
        let (connection, going) = (connection.clone(), going.clone());
        tokio::spawn(async move {
            let path = request.head().uri.path().to_owned();
            if let Err(error) = answer(request, &connection, &going).await {
                eprintln!("towline server: {path}: {error}");
            }
        });
    }
}

async fn answer(
    request: Request,
    connection: &Connection,
    going: &watch::Sender<bool>,
) -> Result<(), Error> {
    let (request, mut responder) = request.into_parts();
    let path = request.uri().path().to_owned();
    match (request.method().as_str(), path.as_str()) {
        ("POST", "/echo") => {
            // The body comes back as it comes, with what the client sends after it.
            responder.send(Response::new(request.into_body())).await?;
        }
        ("POST", "/trailers") => say_trailers(request.into_body(), responder).await?,
        ("GET", "/interim") => {
            let hints = Response::builder().status(StatusCode::EARLY_HINTS);
            responder.interim(hints.header("link", "</style.css>; rel=preload").body(())?)?;
            responder.send(text("after 103")).await?;
        }
        ("GET", "/shutdown") => {
            connection.go_away();
            going.send_replace(true);
            responder.send(text("going away")).await?;
        }
        ("GET", path) if path.starts_with("/slow/") => {
            let body = Bytes::from(pattern(2 * HALF));
            let mut send = responder.start(Response::new(()))?;
            send.write(body.slice(..HALF)).await?;
            going.subscribe().wait_for(|going| *going).await?;
            send.write(body.slice(HALF..)).await?;
            send.finish()?;
        }
        _ => {
            let mut refusal = text("nothing here");
            *refusal.status_mut() = StatusCode::NOT_FOUND;
            responder.send(refusal).await?;
        }
    }
    Ok(())
}

/// Counts the body, and says after its own what came after it.
async fn say_trailers(mut body: RecvBody, responder: Responder) -> Result<(), Error> {
    let length = body.read_to_end(MEBIBYTE).await?.len();
    let mut fields = HeaderMap::new();
    fields.insert("x-length", HeaderValue::from(length));
    if let Some(word) = body
        .trailers()
        .await?
        .and_then(|f| f.get("x-word").cloned())
    {
        fields.insert("x-word", word);
    }
    let head = Response::builder().header("trailer", "x-length, x-word");
    let mut send = responder.start(head.body(())?)?;
    send.write(Bytes::from_static(b"counted")).await?;
    send.trailers(&fields)?;
    Ok(())
}

fn text(words: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from_static(words.as_bytes())))
}
