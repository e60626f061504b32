//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3, versions 02 to 16).
//!
//! A session is an extended CONNECT request whose stream carries capsules; its streams begin with a
//! prefix that names it. Owns what a session is made of: `dialect` what the drafts differ in,
//! `headers` the fields of a request and its answer, `capsules` what comes on the CONNECT stream,
//! `flow` the limits, `session` and `registry` who there is. [`Connection`](crate::Connection) joins
//! it to HTTP/3.
//!
//! Never does: read or write the payload of a stream.

mod capsules;
mod config;
mod dialect;
mod error;
mod event;
mod flow;
mod headers;
mod registry;
mod session;

pub use config::Config;
pub use dialect::{Dialect, Dialects};
pub use error::{ConnectError, OpenError};
pub use event::{SessionEnd, SessionEvent};
pub use session::{EXPORTER_LABEL, SessionId, datagram_header, exporter_context, prefix_len};

pub(crate) use capsules::Told;
pub(crate) use config::offer;
pub(crate) use dialect::{NO_QUIC_DATAGRAMS, is_token, of_client, of_server};
pub(crate) use flow::{Breach, Flow, Tell};
pub(crate) use headers::{available, chosen, set_available, set_chosen};
pub(crate) use registry::{HeldRequest, Prefix, Sessions};
#[cfg(test)]
pub(crate) use registry::{MAX_EARLY_DATAGRAMS, MAX_EARLY_STREAMS};
pub(crate) use session::{Session, State, Stream, prefix};
