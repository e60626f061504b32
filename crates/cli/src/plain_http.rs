//! A few pages over plain HTTP: numbers for Prometheus, the page for browsers.
//!
//! `GET` and `HEAD` and nothing else, few connections at a time, one request each and a few seconds
//! for it. What a path holds is the [`Site`]'s business.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Cap: HTTP connections of a listener served at a time; more wait to be accepted.
pub(crate) const MAX_HTTP_CONNECTIONS: usize = 16;
/// Cap: bytes of a request's head; longer ones are refused.
const MAX_REQUEST: usize = 4096;
/// How long a connection may take in all.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// What a listener serves.
pub(crate) trait Site: Send + Sync + 'static {
    /// What there is at a path, which has no query; `None` if nothing is.
    fn get(&self, path: &str) -> impl Future<Output = Option<Content>> + Send;

    /// Said to those who ask for something else.
    fn hint(&self) -> &'static str;
}

/// What there is at a path.
#[derive(Clone)]
pub(crate) struct Content {
    /// Its media type.
    pub(crate) kind: &'static str,
    pub(crate) body: Bytes,
}

/// A listener that serves; dropped, it ends.
pub(crate) struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves a site until the guard is dropped.
pub(crate) fn serve(listener: TcpListener, site: impl Site) -> Serving {
    let places = Arc::new(Semaphore::new(MAX_HTTP_CONNECTIONS));
    Serving(tokio::spawn(accept(listener, Arc::new(site), places)))
}

async fn accept(listener: TcpListener, site: Arc<impl Site>, places: Arc<Semaphore>) {
    loop {
        // Closed never: the semaphore is ours.
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    let _ = answer_in_time(stream, &*site).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("HTTP: accept: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer_in_time(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    site: &impl Site,
) -> std::io::Result<()> {
    let answering = tokio::time::timeout(PATIENCE, answer(stream, site));
    answering.await.unwrap_or_else(|late| Err(late.into()))
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    site: &impl Site,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= MAX_REQUEST {
            return refuse(&mut stream, "431 Request Header Fields Too Large", "").await;
        }
        let mut part = [0; 1024];
        match stream.read(&mut part).await? {
            0 => return Ok(()),
            count => head.extend_from_slice(&part[..count]),
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let path = target.split(|byte| *byte == b'?').next();
    let with_body = match method {
        b"GET" => true,
        b"HEAD" => false,
        _ => return refuse(&mut stream, "405 Method Not Allowed", "").await,
    };
    let found = match path.and_then(|path| std::str::from_utf8(path).ok()) {
        Some(path) => site.get(path).await,
        None => None,
    };
    match found {
        Some(content) => reply(&mut stream, "200 OK", &content, with_body).await,
        None => {
            let hint = if with_body { site.hint() } else { "" };
            refuse(&mut stream, "404 Not Found", hint).await
        }
    }
}

async fn refuse(
    stream: &mut (impl AsyncWrite + Unpin),
    status: &str,
    why: &'static str,
) -> std::io::Result<()> {
    let content = Content {
        kind: "text/plain; charset=utf-8",
        body: Bytes::from_static(why.as_bytes()),
    };
    reply(stream, status, &content, true).await
}

async fn reply(
    stream: &mut (impl AsyncWrite + Unpin),
    status: &str,
    content: &Content,
    with_body: bool,
) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        content.kind,
        content.body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if with_body {
        stream.write_all(&content.body).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests;
