//! [`Failure`]: what goes wrong, and the exception of `towline._errors` that it is raised as.
//!
//! The exceptions are written in Python, where they also are the builtin ones that people catch. Here
//! stands which error of the crate is which.

use std::fmt::Display;
use std::io;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyModule};
use towline::engine::{Close, TransportErrorCode};
use towline::handles;
use towline::http3::{self, ErrorCode, SendError};
use towline::webtransport::{self, http3_code};
use towline::{ConnectionError, ReadError, WriteError};

/// Whose codes streams are reset and stopped with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// A session's: 32 bits, and HTTP/3 has its own beside them.
    Session,
    /// The application's, 62 bits.
    Quic,
    /// HTTP/3's.
    Http3,
}

impl Codes {
    /// The code, where it is one of these.
    pub(crate) fn own(self, code: u64) -> Option<u64> {
        match self {
            Self::Session => http3_code(code).is_none().then_some(code),
            Self::Quic | Self::Http3 => Some(code),
        }
    }

    fn described(self, code: u64) -> String {
        match self {
            Self::Session => match http3_code(code) {
                None => format!("code {code}"),
                Some(code) => format!("{code}, which is no application's code"),
            },
            Self::Quic => format!("code {code}"),
            Self::Http3 => ErrorCode::from_u64(code).to_string(),
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This process is a fork of the one that made the handle.
    Forked,
    /// An argument, or a configuration, makes no sense.
    Value(String),
    /// There is no connection.
    NotConnected(String),
    /// Nobody answered in time.
    NoAnswer(String),
    /// The handshake, or the session, was refused; with the status of the answer.
    Refused(String, Option<u16>),
    /// The server takes no connections now.
    Busy(String),
    /// The session was closed.
    Closed {
        words: String,
        code: u64,
        reason: String,
        by_peer: bool,
    },
    /// The session ended in another way.
    Lost(String),
    /// The peer was not heard of for too long.
    Silent(String),
    /// The peer reset the stream.
    Reset(Codes, u64),
    /// The peer stopped the stream.
    Stopped(Codes, u64),
    /// The stream failed in another way.
    Stream(String),
    /// The peer takes no more requests on this connection.
    GoingAway,
    /// This end has given the stream up, or ended it.
    StreamOver(String),
    /// The stream ended early.
    Incomplete(Vec<u8>, Option<usize>),
    /// What was looked for did not come within so many bytes.
    BeyondLimit(usize),
    /// The whole is longer than so many bytes.
    TooLong(usize),
    /// The datagram does not fit.
    TooLarge(usize),
}

impl Failure {
    /// As an exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Forked => error(
                py,
                "UsageError",
                (
                    "this process is a fork of the one that made the session: connect anew here, or \
                  start processes by `spawn`",
                ),
            ),
            Self::Value(words) => PyValueError::new_err(words),
            Self::NotConnected(words) => error(py, "ConnectFailed", (words,)),
            Self::NoAnswer(words) => error(py, "ConnectTimeout", (words,)),
            Self::Refused(words, status) => error(py, "HandshakeRefused", (words, status)),
            Self::Busy(words) => error(py, "HandshakeRefused", (words, py.None(), true)),
            Self::Closed {
                words,
                code,
                reason,
                by_peer,
            } => error(py, "SessionClosed", (words, code, reason, by_peer)),
            Self::Lost(words) => error(py, "ConnectionLost", (words,)),
            Self::Silent(words) => error(py, "IdleTimeout", (words,)),
            Self::Reset(codes, code) => {
                let words = format!("the peer reset the stream with {}", codes.described(code));
                error(py, "StreamReset", (words, codes.own(code)))
            }
            Self::Stopped(codes, code) => {
                let words = format!("the peer stopped the stream with {}", codes.described(code));
                error(py, "StreamStopped", (words, codes.own(code)))
            }
            Self::Stream(words) => error(py, "StreamError", (words,)),
            Self::GoingAway => {
                let words = "the server takes no more requests on this connection";
                error(py, "ConnectionLost", (words,))
            }
            Self::StreamOver(words) => error(py, "StreamFinished", (words,)),
            Self::Incomplete(partial, expected) => {
                let words = match expected {
                    Some(expected) => format!(
                        "the stream ended after {} of {expected} bytes",
                        partial.len()
                    ),
                    None => "the stream ended before the separator came".to_owned(),
                };
                let partial = PyBytes::new(py, &partial);
                error(py, "IncompleteRead", (words, partial, expected))
            }
            Self::BeyondLimit(limit) => {
                let words = format!("no separator came within {limit} bytes; read them by `read`");
                error(py, "LimitExceeded", (words, limit))
            }
            Self::TooLong(limit) => {
                let words = format!("more than {limit} bytes came; read them piece by piece");
                error(py, "LimitExceeded", (words, limit))
            }
            Self::TooLarge(limit) => {
                let words = format!("the datagram is too large: at most {limit} bytes fit now");
                error(py, "DatagramTooLarge", (words, limit))
            }
        }
    }

    /// Why there is no session with a server.
    pub(crate) fn of_connect(error: &webtransport::ConnectError) -> Self {
        use webtransport::ConnectError;

        let words = error.to_string();
        match error {
            ConnectError::Http3(error) => Self::of_http_connect(error),
            ConnectError::Session(webtransport::Error::Refused(status)) => {
                Self::Refused(words, Some(status.as_u16()))
            }
            ConnectError::Session(webtransport::Error::Http3(http3::Error::ConnectionLost(
                error,
            ))) => of_attempt(error),
            ConnectError::Url(_) => Self::Value(words),
            _ => Self::Refused(words, None),
        }
    }

    /// Why there is no connection of HTTP/3.
    pub(crate) fn of_http_connect(error: &http3::ConnectError) -> Self {
        match error {
            http3::ConnectError::Transport(error) => Self::of_transport(error),
            _ => Self::Refused(error.to_string(), None),
        }
    }

    /// Why there is no connection.
    pub(crate) fn of_transport(error: &handles::ConnectError) -> Self {
        match error {
            handles::ConnectError::Failed(error) => of_attempt(error),
            handles::ConnectError::Refused(_) => Self::Value(error.to_string()),
            _ => Self::NotConnected(error.to_string()),
        }
    }

    /// Why a session is over.
    pub(crate) fn of_session(error: &webtransport::Error) -> Self {
        let words = error.to_string();
        match error {
            webtransport::Error::Closed {
                code,
                reason,
                by_peer,
            } => Self::Closed {
                words,
                code: u64::from(*code),
                reason: reason.clone(),
                by_peer: *by_peer,
            },
            webtransport::Error::Http3(http3::Error::ConnectionLost(error)) => {
                Self::of_connection(error)
            }
            _ => Self::Lost(words),
        }
    }

    /// What the end of the connection means for a session. Whoever ends it in peace, closes the session.
    pub(crate) fn of_connection(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::ClosedByPeer(Close::Application { code, reason })
                if ErrorCode::from_u64(*code) == ErrorCode::H3_NO_ERROR =>
            {
                Self::Closed {
                    words: "the peer closed the connection in peace".to_owned(),
                    code: 0,
                    reason: String::from_utf8_lossy(reason).into_owned(),
                    by_peer: true,
                }
            }
            ConnectionError::ClosedLocally => Self::Closed {
                words: "this end closed the connection".to_owned(),
                code: 0,
                reason: String::new(),
                by_peer: false,
            },
            ConnectionError::TimedOut(_) => Self::Silent(format!("connection lost: {error}")),
            _ => Self::Lost(format!("connection lost: {error}")),
        }
    }

    /// What the end of a connection of the application's own protocol was. `closed` is what this end
    /// closed it with.
    pub(crate) fn of_quic(error: &ConnectionError, closed: Option<&(u64, String)>) -> Self {
        match error {
            ConnectionError::ClosedByPeer(Close::Application { code, reason }) => Self::Closed {
                words: error.to_string(),
                code: *code,
                reason: String::from_utf8_lossy(reason).into_owned(),
                by_peer: true,
            },
            ConnectionError::ClosedLocally => {
                let (code, reason) = closed.cloned().unwrap_or_default();
                Self::Closed {
                    words: format!("this end closed the connection with code {code}: {reason}"),
                    code,
                    reason,
                    by_peer: false,
                }
            }
            ConnectionError::TimedOut(_) => Self::Silent(format!("connection lost: {error}")),
            _ => Self::Lost(format!("connection lost: {error}")),
        }
    }

    /// Why something of a request or its answer failed.
    pub(crate) fn of_http(error: &http3::Error) -> Self {
        let words = error.to_string();
        match error {
            http3::Error::Reset(code) => Self::Reset(Codes::Http3, *code),
            http3::Error::Stopped(code) => Self::Stopped(Codes::Http3, *code),
            http3::Error::Broken(_) => Self::Lost(words),
            http3::Error::NotSent(SendError::GoingAway) => Self::GoingAway,
            http3::Error::NotSent(SendError::Closed) => Self::Lost(words),
            // What a peer takes is its own affair, and no argument was wrong.
            http3::Error::NotSent(SendError::TooLarge) => Self::Stream(words),
            http3::Error::NotSent(_) => Self::Value(words),
            http3::Error::Closed => Self::StreamOver(words),
            http3::Error::ConnectionLost(error) => Self::of_connection(error),
            _ => Self::Stream(words),
        }
    }

    pub(crate) fn of_read(codes: Codes, error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::Reset(codes, code),
            ReadError::ConnectionLost(error) => Self::of_connection(&error),
            ReadError::ClosedStream | ReadError::IllegalOrderedRead => {
                Self::StreamOver("the stream was stopped by this end".to_owned())
            }
        }
    }

    pub(crate) fn of_write(codes: Codes, error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Stopped(codes, code),
            WriteError::ConnectionLost(error) => Self::of_connection(&error),
            WriteError::ClosedStream | WriteError::MissingBytes => {
                Self::StreamOver("the stream was finished or reset by this end".to_owned())
            }
        }
    }

    /// What an argument should have been.
    pub(crate) fn value(argument: &str, error: impl Display) -> Self {
        Self::Value(format!("argument '{argument}': {error}"))
    }
}

/// TLS's alert `no_application_protocol` (RFC 7301 §3.2).
const NO_COMMON_ALPN: TransportErrorCode = TransportErrorCode::crypto(120);

/// Why an attempt to connect came to nothing.
fn of_attempt(error: &ConnectionError) -> Failure {
    let words = error.to_string();
    match error {
        ConnectionError::ClosedByPeer(Close::Transport { code, .. }) if *code == NO_COMMON_ALPN => {
            let words = "the server speaks none of the protocols that were offered (ALPN)";
            Failure::Refused(words.to_owned(), None)
        }
        ConnectionError::TimedOut(_) => Failure::NoAnswer(words),
        ConnectionError::ClosedByPeer(Close::Transport {
            code: TransportErrorCode::CONNECTION_REFUSED | TransportErrorCode::INVALID_TOKEN,
            ..
        }) => Failure::Busy(words),
        ConnectionError::Tls { .. }
        | ConnectionError::ClosedByPeer(_)
        | ConnectionError::VersionMismatch => Failure::Refused(words, None),
        _ => Failure::NotConnected(words),
    }
}

/// What the system said, with its number, as Python's own calls raise it.
pub(crate) fn os_error(error: io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// An exception of the package's.
fn error<'py>(py: Python<'py>, name: &str, args: impl PyCallArgs<'py>) -> PyErr {
    let raised = PyModule::import(py, "towline._errors")
        .and_then(|module| module.getattr(name))
        .and_then(|class| class.call1(args));
    match raised {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}
