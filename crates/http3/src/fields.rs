//! Field sections and what they mean: requests, responses and trailers (RFC 9114 §4.2, §4.3).
//!
//! A [`Section`] takes one decoded field after another and says at the end whether they are a message. A
//! breach is kept and not told at once: the compressed section has to be read to its end either way.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::error::StreamError;

#[cfg(test)]
mod tests;

/// What a field adds to the size of its section (RFC 9114 §4.2.2).
pub(crate) const FIELD_OVERHEAD: u64 = 32;

/// What a section should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Request,
    Response,
    Trailers,
}

/// One field section on its way in.
#[derive(Debug)]
pub(crate) struct Section {
    kind: Kind,
    pseudo: Pseudo,
    headers: HeaderMap,
    /// Several are one to those who do not know HTTP/3 (RFC 9114 §4.2.1).
    cookie: Vec<u8>,
    /// A field without a colon came: no other may follow (RFC 9114 §4.3).
    regular: bool,
    breach: Option<&'static str>,
}

#[derive(Default, Debug)]
struct Pseudo {
    method: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    protocol: Option<Bytes>,
    status: Option<Bytes>,
}

/// A whole request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: http::request::Parts,
    pub(crate) protocol: Option<Bytes>,
    pub(crate) content_length: Option<u64>,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: http::response::Parts,
    pub(crate) content_length: Option<u64>,
}

impl Section {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            pseudo: Pseudo::default(),
            headers: HeaderMap::new(),
            cookie: Vec::new(),
            regular: false,
            breach: None,
        }
    }

    /// The next field.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.breach.is_some() {
            return;
        }
        let taken = match name {
            [b':', ..] => self.pseudo_field(name, value),
            _ => self.regular_field(name, value),
        };
        self.breach = taken.err();
    }

    fn pseudo_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if self.regular {
            return Err("a pseudo-header field after other fields");
        }
        let pseudo = &mut self.pseudo;
        let place = match (self.kind, name) {
            (Kind::Request, b":method") => &mut pseudo.method,
            (Kind::Request, b":scheme") => &mut pseudo.scheme,
            (Kind::Request, b":authority") => &mut pseudo.authority,
            (Kind::Request, b":path") => &mut pseudo.path,
            (Kind::Request, b":protocol") => &mut pseudo.protocol,
            (Kind::Response, b":status") => &mut pseudo.status,
            _ => return Err("a pseudo-header field that does not belong here"),
        };
        if place.replace(Bytes::copy_from_slice(value)).is_some() {
            return Err("a pseudo-header field came twice");
        }
        Ok(())
    }

    fn regular_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        self.regular = true;
        if name.iter().any(u8::is_ascii_uppercase) {
            return Err("a field name with uppercase letters");
        }
        let name = HeaderName::from_bytes(name).map_err(|_| "a field name that is none")?;
        if is_connection_specific(&name) {
            return Err("a field that belongs to an HTTP/1.1 connection");
        }
        if name == TE && value != b"trailers" {
            return Err("a TE field that says more than trailers");
        }
        if value.first().is_some_and(is_space) || value.last().is_some_and(is_space) {
            return Err("a field value with white space around it");
        }
        if name == COOKIE {
            if !self.cookie.is_empty() {
                self.cookie.extend_from_slice(b"; ");
            }
            self.cookie.extend_from_slice(value);
            return Ok(());
        }
        let value = HeaderValue::from_bytes(value).map_err(|_| BAD_VALUE)?;
        let added = self.headers.try_append(name, value);
        added.map(drop).map_err(|_| "too many fields")
    }

    /// All fields have come: they are a request (RFC 9114 §4.3.1, RFC 9220 §3).
    pub(crate) fn into_request(mut self, extended_connect: bool) -> Result<Request, StreamError> {
        self.close()?;
        let content_length = content_length(&self.headers)?;
        let Pseudo {
            method,
            scheme,
            authority,
            path,
            protocol,
            ..
        } = self.pseudo;
        let method = method.ok_or(StreamError::malformed("a request without :method"))?;
        let method = Method::from_bytes(&method)
            .map_err(|_| StreamError::malformed("a :method that is none"))?;
        if protocol.is_some() && (method != Method::CONNECT || !extended_connect) {
            return Err(StreamError::malformed("a :protocol that was not asked for"));
        }
        let uri = if method == Method::CONNECT && protocol.is_none() {
            connect_target(scheme.is_some() || path.is_some(), authority)?
        } else {
            target(scheme, authority, path, &method, &self.headers)?
        };
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.method = method;
        head.uri = uri;
        head.version = http::Version::HTTP_3;
        head.headers = self.headers;
        Ok(Request {
            head,
            protocol,
            content_length,
        })
    }

    /// All fields have come: they are a response (RFC 9114 §4.3.2).
    pub(crate) fn into_response(mut self) -> Result<Response, StreamError> {
        self.close()?;
        let status = self.pseudo.status.take();
        let status = status.ok_or(StreamError::malformed("a response without :status"))?;
        let status = StatusCode::from_bytes(&status)
            .map_err(|_| StreamError::malformed("a :status that is none"))?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(StreamError::malformed("there is no status 101 in HTTP/3"));
        }
        let content_length = content_length(&self.headers)?;
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.status = status;
        head.version = http::Version::HTTP_3;
        head.headers = self.headers;
        Ok(Response {
            head,
            content_length,
        })
    }

    /// All fields have come: they are trailers (RFC 9114 §4.3).
    pub(crate) fn into_trailers(mut self) -> Result<HeaderMap, StreamError> {
        self.close()?;
        Ok(self.headers)
    }

    fn close(&mut self) -> Result<(), StreamError> {
        if let Some(breach) = self.breach {
            return Err(StreamError::malformed(breach));
        }
        if !self.cookie.is_empty() {
            let value = HeaderValue::from_bytes(&self.cookie);
            let value = value.map_err(|_| StreamError::malformed(BAD_VALUE))?;
            let added = self.headers.try_insert(COOKIE, value);
            added.map_err(|_| StreamError::malformed("too many fields"))?;
        }
        Ok(())
    }
}

const BAD_VALUE: &str = "a field value with control characters";

const fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Fields that say something of an HTTP/1.1 connection (RFC 9114 §4.2).
fn is_connection_specific(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
    )
}

/// Whether HTTP/3 may carry these fields.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), &'static str> {
    if headers.keys().any(is_connection_specific) {
        return Err("a field that belongs to an HTTP/1.1 connection");
    }
    if headers.get_all(TE).iter().any(|value| value != "trailers") {
        return Err("a TE field that says more than trailers");
    }
    Ok(())
}

/// All Content-Length fields have to say the same number (RFC 9110 §8.6).
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, StreamError> {
    let malformed = StreamError::malformed("a Content-Length that is no number, or two of them");
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.as_bytes();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(malformed);
        }
        let text = value.to_str().map_err(|_| malformed)?;
        let number: u64 = text.parse().map_err(|_| malformed)?;
        if length.replace(number).is_some_and(|other| other != number) {
            return Err(malformed);
        }
    }
    Ok(length)
}

/// The target of a CONNECT without a protocol (RFC 9114 §4.4).
fn connect_target(more: bool, authority: Option<Bytes>) -> Result<Uri, StreamError> {
    if more {
        return Err(StreamError::malformed("CONNECT with :scheme or :path"));
    }
    let authority = authority.ok_or(StreamError::malformed("CONNECT without :authority"))?;
    Uri::builder()
        .authority(&*authority)
        .build()
        .map_err(|_| StreamError::malformed("an :authority that is none"))
}

/// The target of any other request (RFC 9114 §4.3.1).
fn target(
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Uri, StreamError> {
    let scheme = scheme.ok_or(StreamError::malformed("a request without :scheme"))?;
    let path = path.ok_or(StreamError::malformed("a request without :path"))?;
    let is_http = matches!(&*scheme, b"http" | b"https");
    let starts_well = path.starts_with(b"/") || (method == Method::OPTIONS && &*path == b"*");
    if is_http && !starts_well {
        return Err(StreamError::malformed(
            "a :path that does not begin with a slash",
        ));
    }
    // It would be dropped here, and be there for whoever stands in front.
    if path.contains(&b'#') {
        return Err(StreamError::malformed("a :path with a fragment"));
    }
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    if let (Some(authority), Some(host)) = (&authority, host)
        && authority != host
    {
        return Err(StreamError::malformed(":authority and Host differ"));
    }
    let authority = authority.as_deref().or(host).unwrap_or_default();
    if is_http && authority.is_empty() {
        return Err(StreamError::malformed(
            "a request without :authority or Host",
        ));
    }
    if is_http && authority.contains(&b'@') {
        return Err(StreamError::malformed("an :authority with a user's name"));
    }
    let builder = Uri::builder().path_and_query(&*path);
    let builder = match authority {
        [] => builder,
        authority => builder.scheme(&*scheme).authority(authority),
    };
    builder
        .build()
        .map_err(|_| StreamError::malformed("a target that is none"))
}

/// A section on its way out: names, values and whether they must never be in a table.
pub(crate) type Lines<'a> = Vec<(&'a [u8], &'a [u8], bool)>;

/// The fields of a request (RFC 9114 §4.3.1). `scheme` and the rest are of its URI.
pub(crate) fn request_lines<'a>(
    head: &'a http::request::Parts,
    protocol: Option<&'a [u8]>,
) -> Result<Lines<'a>, &'static str> {
    check(&head.headers)?;
    let host = head.headers.get(HOST).map(HeaderValue::as_bytes);
    let uri = &head.uri;
    let authority = uri.authority().map(|it| it.as_str().as_bytes()).or(host);
    let mut lines: Lines<'a> = vec![(b":method", head.method.as_str().as_bytes(), false)];
    let scheme = uri.scheme_str().unwrap_or("https");
    lines.push((b":scheme", scheme.as_bytes(), false));
    let authority = authority.ok_or("a request needs an authority")?;
    lines.push((b":authority", authority, false));
    let path = match uri.path_and_query().map(|path| path.as_str()) {
        None | Some("") => "/",
        Some(path) => path,
    };
    lines.push((b":path", path.as_bytes(), false));
    if let Some(protocol) = protocol {
        lines.push((b":protocol", protocol, false));
    }
    lines.extend(regular_lines(&head.headers).filter(|line| line.0 != b"host"));
    Ok(lines)
}

/// The fields of a response (RFC 9114 §4.3.2).
pub(crate) fn response_lines(head: &http::response::Parts) -> Result<Lines<'_>, &'static str> {
    check(&head.headers)?;
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("there is no status 101 in HTTP/3");
    }
    let mut lines: Lines<'_> = vec![(b":status", head.status.as_str().as_bytes(), false)];
    lines.extend(regular_lines(&head.headers));
    Ok(lines)
}

/// The fields of trailers (RFC 9114 §4.3).
pub(crate) fn trailer_lines(fields: &HeaderMap) -> Result<Lines<'_>, &'static str> {
    check(fields)?;
    Ok(regular_lines(fields).collect())
}

fn regular_lines(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8], bool)> {
    headers.iter().map(|(name, value)| {
        (
            name.as_str().as_bytes(),
            value.as_bytes(),
            value.is_sensitive(),
        )
    })
}

/// The size of a section as its limit counts it (RFC 9114 §4.2.2).
pub(crate) fn size(lines: &Lines<'_>) -> u64 {
    lines
        .iter()
        .map(|(name, value, _)| name.len() as u64 + value.len() as u64 + FIELD_OVERHEAD)
        .sum()
}
