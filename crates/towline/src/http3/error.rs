//! Why a request, an answer or a body did not come to its end.

use towline_http3::{self as http3, ErrorCode, SendError, StreamError};
use towline_quic::ConnectionError;

use crate::handles;

/// Why something of HTTP/3 failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer gave its half of the stream up with this code.
    #[error("the peer gave the message up: {}", ErrorCode::from_u64(*.0))]
    Reset(u64),
    /// The peer wants no more of our half, with this code.
    #[error("the peer wants no more of the message: {}", ErrorCode::from_u64(*.0))]
    Stopped(u64),
    /// The peer's message was malformed or too large, and the stream was given up.
    #[error("the peer's message was refused: {0}")]
    Refused(StreamError),
    /// The peer broke a rule, and this end closed the connection.
    #[error("the connection was closed, the peer broke a rule: {0}")]
    Broken(http3::Error),
    /// Our message could not be sent.
    #[error(transparent)]
    NotSent(#[from] SendError),
    /// Our own body failed while it was sent; its stream was reset.
    #[error("the body that was to be sent failed: {0}")]
    Body(String),
    /// The body is longer than was permitted.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// This half of the stream was ended before.
    #[error("this half of the stream is over")]
    Closed,
    /// The connection is over.
    #[error("connection lost: {0}")]
    ConnectionLost(#[from] ConnectionError),
}

/// Why there is no HTTP/3 connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The QUIC connection could not be made.
    #[error(transparent)]
    Transport(#[from] handles::ConnectError),
    /// The connection speaks something else.
    #[error(
        "this connection speaks no HTTP/3: the endpoint needs EndpointBuilder::http3, and both ends `h3` in ALPN"
    )]
    NotHttp3,
}
