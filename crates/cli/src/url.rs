//! `towline://HOST[:PORT][/PATH][#sha256/PIN]`: everything a client needs in one pasted line.
//!
//! The pin is the SHA-256 of the server's public key, or of its certificate, spelt as everywhere
//! (`docs/pins.md`); it stands in the fragment, so it is never part of what is requested. `raw-key`
//! beside it says that the server shows no certificate. The path names a file or folder at the
//! server, percent-encoded.

use std::fmt;
use std::str::FromStr;

use towline_identity::{KeyPin, Pin, PinError};
use towline_transfer::RelativePath;

/// The port where none is given.
pub(crate) const DEFAULT_PORT: u16 = 4433;
/// The port of a delta link where none is given.
pub(crate) const LINK_PORT: u16 = 4460;
/// The port of `https` where none is given.
const WEB_PORT: u16 = 443;
const SCHEME: &str = "towline://";
const WEB_SCHEME: &str = "https://";
const PIN_PREFIX: &str = "sha256/";
const RAW_KEY: &str = "raw-key";

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// A DNS name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `None` for the top folder.
    pub(crate) path: Option<RelativePath>,
    /// Both readings of each pin: certificate and key.
    pub(crate) pins: Vec<Pin>,
    /// The server shows a raw public key.
    pub(crate) raw_key: bool,
}

/// `https://HOST[:PORT][/PATH][?QUERY][#sha256/PIN]`, for HTTP/3 and WebTransport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebUrl {
    /// Without a path.
    pub(crate) server: Url,
    /// Path and query as they are written; at least `/`.
    pub(crate) target: String,
}

impl WebUrl {
    /// Host and port as a request names them.
    pub(crate) fn authority(&self) -> String {
        let Url { host, port, .. } = &self.server;
        match *port {
            WEB_PORT => Bracketed(host).to_string(),
            port => format!("{}:{port}", Bracketed(host)),
        }
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, DEFAULT_PORT)
    }
}

/// The URL of a link's end, whose port is another one where none is given.
pub(crate) fn parse_link_url(text: &str) -> Result<Url, String> {
    Url::parse(text, LINK_PORT)
}

impl Url {
    fn parse(text: &str, port: u16) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| {
            format!("`{text}` is not a URL; write {SCHEME}HOST:PORT/PATH#sha256/PIN")
        })?;
        let (mut url, path) = server(text, rest, port)?;
        let path = percent_decode(path)?;
        let path = path.strip_suffix(b"/").unwrap_or(&path);
        url.path = match path {
            b"" => None,
            path => Some(
                RelativePath::parse(path)
                    .map_err(|bad| format!("the URL's path is not acceptable: {}", bad.0))?,
            ),
        };
        Ok(url)
    }
}

impl FromStr for WebUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(WEB_SCHEME).ok_or_else(|| {
            format!("`{text}` is not a URL; write {WEB_SCHEME}HOST:PORT/PATH#sha256/PIN")
        })?;
        let (server, path) = server(text, rest, WEB_PORT)?;
        Ok(Self {
            server,
            target: format!("/{path}"),
        })
    }
}

/// The server in a URL, which after its scheme is `rest`, and the path as it is written.
fn server<'a>(text: &str, rest: &'a str, port: u16) -> Result<(Url, &'a str), String> {
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = split_port(authority, port)?;
    if host.is_empty() {
        return Err(format!("`{text}` names no host"));
    }
    let mut url = Url {
        host: host.to_owned(),
        port,
        path: None,
        pins: Vec::new(),
        raw_key: false,
    };
    for item in fragment.split('&').filter(|item| !item.is_empty()) {
        if item == RAW_KEY {
            url.raw_key = true;
            continue;
        }
        if !item.starts_with(PIN_PREFIX) {
            return Err(format!(
                "`#{item}` is not understood; a pin is written `#{PIN_PREFIX}` and the hash"
            ));
        }
        url.pins.extend(parse_pin(item)?);
    }
    Ok((url, path))
}

/// A pin, `sha256/…`, read as one of a certificate and as one of a key.
pub(crate) fn parse_pin(text: &str) -> Result<[Pin; 2], String> {
    Pin::either(text).map_err(|error| error.to_string())
}

/// The same for a place where only a key can be meant.
pub(crate) fn parse_key_pin(text: &str) -> Result<KeyPin, String> {
    text.parse().map_err(|error: PinError| error.to_string())
}

fn split_port(authority: &str, default: u16) -> Result<(&str, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or("an IPv6 address needs its closing `]`")?;
            match after {
                "" => (host, None),
                after => (
                    host,
                    Some(
                        after
                            .strip_prefix(':')
                            .ok_or("after `]` only a port may follow")?,
                    ),
                ),
            }
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(format!("an IPv6 address stands in brackets: [{authority}]"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    match port {
        None => Ok((host, default)),
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port != 0 => Ok((host, port)),
            _ => Err(format!("`{port}` is not a port")),
        },
    }
}

pub(crate) fn percent_decode(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next()]
            .map(|digit| digit.and_then(|digit| (digit as char).to_digit(16)));
        match digits {
            [Some(high), Some(low)] => out.push((high << 4 | low) as u8),
            _ => {
                return Err(
                    "after `%` two hexadecimal digits must follow in the URL's path".into(),
                );
            }
        }
    }
    Ok(out)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}:{}/", Bracketed(&self.host), self.port)?;
        for &byte in self.path.iter().flat_map(|path| path.as_bytes()) {
            if byte.is_ascii_alphanumeric() || b"/-._~+@,=".contains(&byte) {
                write!(f, "{}", byte as char)?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        self.write_fragment(f)
    }
}

impl Url {
    fn write_fragment(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The two readings of one hash print as one.
        let pins = self.pins.iter().filter_map(|pin| match pin {
            Pin::Key(pin) => Some(pin.to_string()),
            Pin::Certificate(_) => None,
        });
        let raw = self.raw_key.then(|| RAW_KEY.to_owned());
        for (index, item) in pins.chain(raw).enumerate() {
            write!(f, "{}{item}", if index == 0 { '#' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WEB_SCHEME}{}{}", self.authority(), self.target)?;
        self.server.write_fragment(f)
    }
}

/// A host with the brackets that an IPv6 address has in a URL.
struct Bracketed<'a>(&'a str);

impl fmt::Display for Bracketed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.contains(':') {
            true => write!(f, "[{}]", self.0),
            false => f.write_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests;
