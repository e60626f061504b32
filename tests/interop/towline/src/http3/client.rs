//! The client: each case on a connection of its own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::header::{HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, RANGE};
use http::{Method, StatusCode};
use http_body_util::Empty;
use towline::Endpoint;
use towline::config::{self, Trust};
use towline::engine::ClientConfig;
use towline::http3::{self, Config, Connection, Error as Http3Error, ErrorCode};

use super::{HALF, MEBIBYTE, pattern};
use crate::Error;

/// For one case.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests under way at a time.
const AT_A_TIME: usize = 32;
/// For what was closed to leave.
const PARTING: Duration = Duration::from_millis(500);

pub(super) struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    address: SocketAddr,
    /// What the server has.
    paths: Arc<[String]>,
    out: Arc<Path>,
}

/// An answer, whole.
struct Answer {
    status: StatusCode,
    fields: HeaderMap,
    body: Vec<u8>,
}

impl Client {
    pub(super) fn new(address: &str, ca: &str, list: &str, out: &str) -> Result<Self, Error> {
        let trust = Trust::roots_from_pem(&fs::read(ca)?)?;
        let endpoint = Endpoint::builder().http3(Config::default());
        let list = fs::read_to_string(list)?;
        Ok(Self {
            endpoint: endpoint.bind((Ipv4Addr::UNSPECIFIED, 0).into())?,
            config: config::client(&trust, None, &super::options())?,
            address: address.parse()?,
            paths: list.lines().map(str::to_owned).collect(),
            out: PathBuf::from(out).into(),
        })
    }

    /// Runs the cases in turn, and says how each ended.
    pub(super) async fn run(&self, cases: &[&str]) {
        for case in cases {
            match tokio::time::timeout(PATIENCE, self.case(case)).await {
                Ok(Ok(detail)) => println!("{case} ok {detail}"),
                Ok(Err(error)) => println!("{case} failed {error}"),
                Err(_) => println!("{case} failed no end within {PATIENCE:?}"),
            }
        }
        let _ = tokio::time::timeout(PARTING, self.endpoint.wait_idle()).await;
    }

    async fn case(&self, case: &str) -> Result<String, Error> {
        let server =
            http3::connect(&self.endpoint, self.address, "localhost", &self.config).await?;
        let detail = match case {
            "site" => self.site(&server).await,
            "head" => self.head(&server).await,
            "ranges" => self.ranges(&server).await,
            "post" => post(&server).await,
            "trailers" => trailers(&server).await,
            "interim" => interim(&server).await,
            "goaway" => go_away(&server).await,
            _ => Err("no such case".into()),
        };
        server.close();
        detail
    }

    async fn site(&self, server: &Connection) -> Result<String, Error> {
        let next = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                let (server, next) = (server.clone(), Arc::clone(&next));
                let (paths, out) = (Arc::clone(&self.paths), Arc::clone(&self.out));
                tokio::spawn(async move { fetch_some(&server, &paths, &next, &out).await })
            })
            .collect();
        let mut files = 0;
        for worker in workers {
            files += worker.await??;
        }
        Ok(format!("{files} files"))
    }

    async fn head(&self, server: &Connection) -> Result<String, Error> {
        let path = &self.paths[0];
        let whole = get(server, path, &[]).await?.expect(StatusCode::OK)?;
        let head = ask(server, Method::HEAD, path, &[]).await?;
        let head = head.expect(StatusCode::OK)?;
        let length = head.field(CONTENT_LENGTH);
        if length != whole.body.len().to_string() || !head.body.is_empty() {
            return Err(format!("HEAD: {length}, {} bytes", head.body.len()).into());
        }
        let missing = get(server, "/nothing-here", &[]).await?;
        missing.expect(StatusCode::NOT_FOUND)?;
        Ok("200, 404".to_owned())
    }

    async fn ranges(&self, server: &Connection) -> Result<String, Error> {
        let path = &self.paths[0];
        let whole = get(server, path, &[]).await?.expect(StatusCode::OK)?;
        let length = whole.body.len();
        for (range, start, end) in [
            ("bytes=1000-1999", 1_000, 2_000),
            ("bytes=-500", length - 500, length),
            ("bytes=0-0", 0, 1),
        ] {
            let part = get(server, path, &[(RANGE, range)]).await?;
            let part = part.expect(StatusCode::PARTIAL_CONTENT)?;
            let said = part.field(CONTENT_RANGE);
            if said != format!("bytes {start}-{}/{length}", end - 1)
                || part.body != whole.body[start..end]
            {
                return Err(format!("{range}: {said}, {} bytes", part.body.len()).into());
            }
        }
        let behind = get(server, path, &[(RANGE, "bytes=999999999-")]).await?;
        let behind = behind.expect(StatusCode::RANGE_NOT_SATISFIABLE)?;
        if behind.field(CONTENT_RANGE) != format!("bytes */{length}") {
            return Err(format!("416: {}", behind.field(CONTENT_RANGE)).into());
        }
        let known = match whole.fields.contains_key(ETAG) {
            true => (IF_NONE_MATCH, whole.field(ETAG)),
            false => (IF_MODIFIED_SINCE, whole.field(LAST_MODIFIED)),
        };
        let same = get(server, path, &[known]).await?;
        let same = same.expect(StatusCode::NOT_MODIFIED)?;
        match same.body.is_empty() {
            true => Ok("206, 304, 416".to_owned()),
            false => Err("304 with a body".into()),
        }
    }
}

impl Answer {
    fn expect(self, status: StatusCode) -> Result<Self, Error> {
        match self.status == status {
            true => Ok(self),
            false => Err(format!("status {} instead of {status}", self.status).into()),
        }
    }

    /// A field's value; empty where there is none.
    fn field(&self, name: HeaderName) -> &str {
        let value = self.fields.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

async fn get(
    server: &Connection,
    path: &str,
    fields: &[(HeaderName, &str)],
) -> Result<Answer, Http3Error> {
    ask(server, Method::GET, path, fields).await
}

async fn ask(
    server: &Connection,
    method: Method,
    path: &str,
    fields: &[(HeaderName, &str)],
) -> Result<Answer, Http3Error> {
    let (head, ()) = request(method, path, fields).into_parts();
    let answer = server
        .request(http::Request::from_parts(head, Empty::<Bytes>::new()))
        .await?;
    let (head, mut body) = answer.into_parts();
    Ok(Answer {
        status: head.status,
        fields: head.headers,
        body: body.read_to_end(MEBIBYTE).await?,
    })
}

/// A request's head. Paths and fields here are visible ASCII.
fn request(method: Method, path: &str, fields: &[(HeaderName, &str)]) -> http::Request<()> {
    let mut request = http::Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = format!("https://localhost{path}")
        .parse()
        .unwrap_or_default();
    for (name, value) in fields {
        let value = HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static(""));
        request.headers_mut().insert(name, value);
    }
    request
}

async fn fetch_some(
    server: &Connection,
    paths: &[String],
    next: &AtomicUsize,
    out: &Path,
) -> Result<usize, Error> {
    let mut files = 0;
    while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
        let answer = get(server, path, &[]).await?.expect(StatusCode::OK)?;
        fs::write(out.join(path.trim_start_matches('/')), answer.body)?;
        files += 1;
    }
    Ok(files)
}

async fn post(server: &Connection) -> Result<String, Error> {
    let (mut send, mut response) = server.start(request(Method::POST, "/echo", &[])).await?;
    let body = Bytes::from(pattern(MEBIBYTE));
    let sent = body.clone();
    let sending = tokio::spawn(async move {
        for at in (0..MEBIBYTE).step_by(HALF) {
            send.write(sent.slice(at..at + HALF)).await?;
        }
        send.finish()
    });
    let status = response.head().await?.status();
    let back = response.into_body().read_to_end(MEBIBYTE).await?;
    sending.await??;
    match status == StatusCode::OK && back == body {
        true => Ok(format!("{MEBIBYTE} bytes")),
        false => Err(format!("status {status}, {} bytes", back.len()).into()),
    }
}

async fn trailers(server: &Connection) -> Result<String, Error> {
    let mut head = request(Method::POST, "/trailers", &[]);
    head.headers_mut()
        .insert("trailer", HeaderValue::from_static("x-word"));
    let (mut send, mut response) = server.start(head).await?;
    send.write(Bytes::from(pattern(2 * HALF))).await?;
    let mut fields = HeaderMap::new();
    fields.insert("x-word", HeaderValue::from_static("after the body"));
    send.trailers(&fields)?;
    let status = response.head().await?.status();
    let mut body = response.into_body();
    let words = body.read_to_end(MEBIBYTE).await?;
    let said = body.trailers().await?.unwrap_or_default();
    let is = |name: &str, value: &str| said.get(name).is_some_and(|said| said == value);
    match status == StatusCode::OK
        && words == b"counted"
        && is("x-length", "65536")
        && is("x-word", "after the body")
    {
        true => Ok("both ways".to_owned()),
        false => Err(format!("status {status}, trailers {said:?}").into()),
    }
}

async fn interim(server: &Connection) -> Result<String, Error> {
    let (send, mut response) = server.start(request(Method::GET, "/interim", &[])).await?;
    send.finish()?;
    let hints = response.head().await?;
    let link = hints.headers().get("link");
    if hints.status() != StatusCode::EARLY_HINTS
        || link.is_none_or(|link| link != "</style.css>; rel=preload")
    {
        return Err(format!("the first head is {hints:?}").into());
    }
    let status = response.head().await?.status();
    let words = response.into_body().read_to_end(MEBIBYTE).await?;
    match status == StatusCode::OK && words == b"after 103" {
        true => Ok("103".to_owned()),
        false => Err(format!("status {status}, {} bytes", words.len()).into()),
    }
}

/// Four answers are half sent when the server begins to go; they come whole, and it takes nothing new.
async fn go_away(server: &Connection) -> Result<String, Error> {
    let mut slow = Vec::new();
    for number in 0..4 {
        let path = format!("/slow/{number}");
        let (send, mut response) = server.start(request(Method::GET, &path, &[])).await?;
        send.finish()?;
        response.head().await?;
        let mut body = response.into_body();
        let mut had = Vec::new();
        while had.len() < HALF {
            let chunk = body.chunk().await?.ok_or("a slow answer ended early")?;
            had.extend_from_slice(&chunk);
        }
        slow.push((had, body));
    }
    let going = get(server, "/shutdown", &[]).await?;
    going.expect(StatusCode::OK)?;
    for (mut had, mut body) in slow {
        had.extend(body.read_to_end(2 * HALF).await?);
        if had != pattern(2 * HALF) {
            return Err(format!("{} other bytes", had.len()).into());
        }
    }
    match get(server, "/too-late", &[]).await {
        Err(Http3Error::NotSent(error)) => Ok(format!("4 whole, then: {error}")),
        Err(Http3Error::Reset(code)) if code == ErrorCode::H3_REQUEST_REJECTED.as_u64() => {
            Ok("4 whole, then rejected".to_owned())
        }
        Err(error) => Err(error.into()),
        Ok(answer) => Err(format!("a late request has status {}", answer.status).into()),
    }
}
