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
use towline::http3::{self, ErrorCode};
use towline::webtransport::{self, http3_code};
use towline::{ConnectionError, ReadError, SendDatagramError, WriteError};

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
    Reset(u64),
    /// The peer stopped the stream.
    Stopped(u64),
    /// This end has given the stream up, or ended it.
    StreamOver(String),
    /// The stream ended early.
    Incomplete(Vec<u8>, Option<usize>),
    /// What was looked for did not come within so many bytes.
    BeyondLimit(usize),
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
            Self::Reset(code) => {
                let words = format!("the peer reset the stream with {}", described(code));
                error(py, "StreamReset", (words, application_code(code)))
            }
            Self::Stopped(code) => {
                let words = format!("the peer stopped the stream with {}", described(code));
                error(py, "StreamStopped", (words, application_code(code)))
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
            ConnectError::Http3(http3::ConnectError::Transport(error)) => of_transport(error),
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

    pub(crate) fn of_read(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::Reset(code),
            ReadError::ConnectionLost(error) => Self::of_connection(&error),
            ReadError::ClosedStream | ReadError::IllegalOrderedRead => {
                Self::StreamOver("the stream was stopped by this end".to_owned())
            }
        }
    }

    pub(crate) fn of_write(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Stopped(code),
            WriteError::ConnectionLost(error) => Self::of_connection(&error),
            WriteError::ClosedStream | WriteError::MissingBytes => {
                Self::StreamOver("the stream was finished or reset by this end".to_owned())
            }
        }
    }

    /// `None` where the queue is full: the datagram was not sent.
    pub(crate) fn of_datagram(error: SendDatagramError) -> Option<Self> {
        match error {
            SendDatagramError::Full => None,
            SendDatagramError::TooLarge { max } => Some(Self::TooLarge(max)),
            SendDatagramError::Unsupported => Some(Self::TooLarge(0)),
            SendDatagramError::ConnectionLost(error) => Some(Self::of_connection(&error)),
        }
    }

    /// What an argument should have been.
    pub(crate) fn value(argument: &str, error: impl Display) -> Self {
        Self::Value(format!("argument '{argument}': {error}"))
    }
}

fn of_transport(error: &handles::ConnectError) -> Failure {
    match error {
        handles::ConnectError::Failed(error) => of_attempt(error),
        handles::ConnectError::Refused(_) => Failure::Value(error.to_string()),
        _ => Failure::NotConnected(error.to_string()),
    }
}

/// Why an attempt to connect came to nothing.
fn of_attempt(error: &ConnectionError) -> Failure {
    let words = error.to_string();
    match error {
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

/// The code, where it is an application's.
pub(crate) fn application_code(code: u64) -> Option<u64> {
    match http3_code(code) {
        None => Some(code),
        Some(_) => None,
    }
}

fn described(code: u64) -> String {
    match http3_code(code) {
        None => format!("code {code}"),
        Some(code) => format!("{code}, which is no application's code"),
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
