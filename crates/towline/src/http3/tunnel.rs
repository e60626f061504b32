//! [`Protocol`]: what an extended CONNECT asks for.

use bytes::Bytes;

/// What an extended CONNECT is for, its `:protocol` (RFC 9220): in the extensions of the request, at both
/// ends. A server takes such requests where [`Config::extended_connect`](super::Config::extended_connect) says
/// so; what it answers with 2xx is a tunnel, whose bodies go both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol(Bytes);

impl Protocol {
    /// One of the names of IANA's registry of HTTP upgrade tokens, as `websocket`.
    pub fn new(name: impl Into<Bytes>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
