//! [`Url`]: the addresses of servers, `scheme://host:port/path`.

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no address to use here: {reason}")]
pub struct BadUrl {
    url: String,
    reason: String,
}

impl BadUrl {
    pub(crate) fn new(url: &str, reason: impl Into<String>) -> Self {
        Self {
            url: url.to_owned(),
            reason: reason.into(),
        }
    }
}

/// An address in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// A name or an address; IPv6 without its brackets.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// From the slash on, or empty.
    pub(crate) path: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, BadUrl> {
        let bad = |reason: &str| BadUrl::new(text, reason);
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| bad("it has no scheme, as in ws://host:3000"))?;
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(bad("it has a space or a control character in it"));
        }
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(bad("a user or a password does not go in it"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest
                    .split_once(']')
                    .ok_or_else(|| bad("`[` is not closed"))?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            Some(port) => Some(port.parse().map_err(|_| bad("the port is no number"))?),
            None => None,
        };
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            port,
            path: path.to_owned(),
        })
    }

    /// The host with brackets where it needs them, and the port.
    pub(crate) fn authority(&self, port: u16) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{port}", self.host),
            false => format!("{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_fall_into_their_parts() {
        let url = Url::parse("WS://boat.local:3000/signalk/v1/stream?x=1").unwrap();
        assert_eq!(url.scheme, "ws");
        assert_eq!((url.host.as_str(), url.port), ("boat.local", Some(3000)));
        assert_eq!(url.path, "/signalk/v1/stream?x=1");
        let url = Url::parse("tcp://[::1]:8375").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", Some(8375)));
        assert_eq!(url.path, "");
        assert_eq!(Url::parse("udp://:10110").unwrap().host, "");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, reason) in [
            ("boat:3000", "no scheme"),
            ("ws://a:x", "no number"),
            ("ws://[::1", "not closed"),
            ("ws://a b", "space"),
            ("ws://me:secret@boat", "password"),
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
