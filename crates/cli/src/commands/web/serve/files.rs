//! The files of a folder over HTTP/3: `serve --web DIR`.
//!
//! 1. only GET and HEAD
//! 2. the path to a file below the folder, whatever links say
//! 3. what the client has already (ETag), and the range that it asks for
//! 4. the head, then the bytes as it takes them

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use http::response::Builder;
use http::{Method, Response, StatusCode};
use towline::http3::{Connection, Error, Request, Responder, SendBody};

use crate::url::percent_decode;

/// Bytes read from a file at a time.
const CHUNK: usize = 256 * 1024;
/// What a folder shows of itself.
const INDEX: &str = "index.html";

/// Answers the requests of one connection.
pub(super) async fn serve(connection: Connection, root: Arc<Path>) {
    while let Some(request) = connection.accept().await {
        let root = Arc::clone(&root);
        tokio::spawn(async move {
            let path = request.head().uri.path().to_owned();
            if let Err(error) = answer(request, root).await {
                tracing::debug!(path, "the answer did not go through: {error}");
            }
        });
    }
}

async fn answer(request: Request, root: Arc<Path>) -> Result<(), Error> {
    let (request, responder) = request.into_parts();
    let with_body = match *request.method() {
        Method::GET => true,
        Method::HEAD => false,
        _ => {
            let refusal = Response::builder().status(StatusCode::METHOD_NOT_ALLOWED);
            return finish(responder, refusal.header(ALLOW, "GET, HEAD"));
        }
    };
    let path = request.uri().path().to_owned();
    let opened = tokio::task::spawn_blocking(move || open(&root, &path)).await;
    let Ok(Some(found)) = opened else {
        return finish(responder, Response::builder().status(StatusCode::NOT_FOUND));
    };
    let head = Response::builder()
        .header(ETAG, &found.tag)
        .header(CACHE_CONTROL, "no-cache");
    let (head, start, end) = match part(request.headers(), &found) {
        Part::Unchanged => return finish(responder, head.status(StatusCode::NOT_MODIFIED)),
        Part::None => {
            let head = head.status(StatusCode::RANGE_NOT_SATISFIABLE);
            return finish(
                responder,
                head.header(CONTENT_RANGE, format!("bytes */{}", found.length)),
            );
        }
        Part::Whole => (head, 0, found.length),
        Part::Of(start, end) => {
            let range = format!("bytes {start}-{}/{}", end - 1, found.length);
            let head = head.status(StatusCode::PARTIAL_CONTENT);
            (head.header(CONTENT_RANGE, range), start, end)
        }
    };
    let head = head
        .header(ACCEPT_RANGES, "bytes")
        .header(CONTENT_TYPE, media_type(&found.path))
        .header(CONTENT_LENGTH, end - start);
    match with_body {
        true => send(begin(responder, head)?, found.file, start, end).await,
        false => finish(responder, head),
    }
}

fn begin(responder: Responder, head: Builder) -> Result<SendBody, Error> {
    // Every value above is visible ASCII.
    let head = head.body(()).unwrap_or_else(|_| {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        head
    });
    responder.start(head)
}

/// An answer without a body.
fn finish(responder: Responder, head: Builder) -> Result<(), Error> {
    begin(responder, head)?.finish()
}

/// A file that may be read.
struct Found {
    file: File,
    path: PathBuf,
    length: u64,
    /// Changes with the file.
    tag: String,
}

/// The file that a request's path names; nothing outside of `root`.
fn open(root: &Path, path: &str) -> Option<Found> {
    use std::os::unix::ffi::OsStrExt as _;
    let below = percent_decode(path.strip_prefix('/')?).ok()?;
    let mut path = root.join(std::ffi::OsStr::from_bytes(&below));
    if path.is_dir() {
        path.push(INDEX);
    }
    let path = path.canonicalize().ok()?;
    if !path.starts_with(root) || !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(&path).ok()?;
    let metadata = file.metadata().ok()?;
    let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
    let length = metadata.len();
    Some(Found {
        file,
        path,
        length,
        tag: format!("\"{seconds:x}-{nanos:x}-{length:x}\""),
    })
}

/// How much of a file is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// From the first to before the second.
    Of(u64, u64),
    /// A range behind the end.
    None,
    /// The client has it.
    Unchanged,
}

fn part(headers: &HeaderMap, found: &Found) -> Part {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let known = text(IF_NONE_MATCH).unwrap_or_default();
    if known
        .split(',')
        .any(|tag| matches!(tag.trim(), tag if tag == "*" || tag == found.tag))
    {
        return Part::Unchanged;
    }
    match (text(RANGE), text(IF_RANGE)) {
        // It has a part of another version.
        (_, Some(tag)) if tag != found.tag => Part::Whole,
        (Some(range), _) => range_of(range, found.length),
        (None, _) => Part::Whole,
    }
}

/// A range in bytes (RFC 9110 §14.1.2). Several at once, and what is no range, count for nothing.
fn range_of(range: &str, length: u64) -> Part {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Part::Whole;
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first > last => Part::Whole,
        (Ok(first), _) if first >= length && (last.is_empty() || last.parse::<u64>().is_ok()) => {
            Part::None
        }
        (Ok(first), Ok(last)) => Part::Of(first, last.saturating_add(1).min(length)),
        (Ok(first), Err(_)) if last.is_empty() => Part::Of(first, length),
        (Err(_), Ok(0)) if first.is_empty() => Part::None,
        (Err(_), Ok(suffix)) if first.is_empty() && length > 0 => {
            Part::Of(length.saturating_sub(suffix), length)
        }
        _ => Part::Whole,
    }
}

fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|end| end.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("ico") => "image/x-icon",
        Some("wasm") => "application/wasm",
        Some("woff2") => "font/woff2",
        Some("pdf") => "application/pdf",
        Some("mp4") => "video/mp4",
        _ => "application/octet-stream",
    }
}

/// Sends what was promised; a file that became shorter breaks off, as the client then sees.
async fn send(mut body: SendBody, file: File, start: u64, end: u64) -> Result<(), Error> {
    let file = Arc::new(file);
    let mut at = start;
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let reader = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || read(&reader, at, most)).await;
        let Ok(Ok(chunk)) = read else {
            // Dropped unfinished, the body is given up.
            return Ok(());
        };
        at += chunk.len() as u64;
        body.write(chunk).await?;
    }
    body.finish()
}

fn read(file: &File, at: u64, most: usize) -> io::Result<Bytes> {
    let mut chunk = vec![0; most];
    let length = file.read_at(&mut chunk, at)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    chunk.truncate(length);
    Ok(chunk.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_has_them() {
        for (range, part) in [
            ("bytes=0-0", Part::Of(0, 1)),
            ("bytes=0-99", Part::Of(0, 100)),
            ("bytes=10-1000", Part::Of(10, 100)),
            ("bytes=99-", Part::Of(99, 100)),
            ("bytes=-1", Part::Of(99, 100)),
            ("bytes=-1000", Part::Of(0, 100)),
            ("bytes=100-", Part::None),
            ("bytes=100-200", Part::None),
            ("bytes=-0", Part::None),
            ("bytes=5-4", Part::Whole),
            ("bytes=0-1,5-6", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("lines=1-2", Part::Whole),
            (
                "bytes=18446744073709551615-18446744073709551615",
                Part::None,
            ),
            ("bytes=0-18446744073709551615", Part::Of(0, 100)),
        ] {
            assert_eq!(range_of(range, 100), part, "{range}");
        }
        assert_eq!(range_of("bytes=0-", 0), Part::None);
        assert_eq!(range_of("bytes=-5", 0), Part::Whole);
    }

    #[test]
    fn nothing_outside_of_the_folder_is_found() {
        let folder = std::env::temp_dir().join(format!("towline-web-files-{}", std::process::id()));
        let (inside, outside) = (folder.join("inside"), folder.join("secret"));
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::write(&outside, "s").unwrap();
        std::fs::write(inside.join("a b"), "ahoy").unwrap();
        std::fs::write(inside.join("sub/index.html"), "<p>").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let root = inside.canonicalize().unwrap();
        assert_eq!(open(&root, "/a%20b").unwrap().length, 4);
        assert_eq!(open(&root, "/sub/").unwrap().length, 3);
        let bad = [
            "/",
            "/link",
            "/../secret",
            "/%2e%2e/secret",
            "//etc/passwd",
            "a b",
            "/%00",
        ];
        for path in bad {
            assert!(open(&root, path).is_none(), "{path}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_client_that_has_it_gets_it_not_again() {
        let found = Found {
            file: File::open("/dev/null").unwrap(),
            path: PathBuf::new(),
            length: 100,
            tag: "\"1\"".to_owned(),
        };
        let part_of = |fields: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.insert(*name, http::HeaderValue::from_static(value));
            }
            part(&headers, &found)
        };
        assert_eq!(
            part_of(&[("if-none-match", "\"0\", \"1\"")]),
            Part::Unchanged
        );
        assert_eq!(part_of(&[("if-none-match", "*")]), Part::Unchanged);
        assert_eq!(part_of(&[("if-none-match", "\"0\"")]), Part::Whole);
        let range = ("range", "bytes=0-9");
        assert_eq!(part_of(&[range]), Part::Of(0, 10));
        assert_eq!(part_of(&[range, ("if-range", "\"1\"")]), Part::Of(0, 10));
        assert_eq!(part_of(&[range, ("if-range", "\"0\"")]), Part::Whole);
    }
}
