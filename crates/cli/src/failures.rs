//! Errors of endpoints and connections as failures of a command: what happened, whose fault it was and
//! what to do next.
//!
//! Called by whoever connects, listens or loses a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use towline::config::UnixTime;
use towline::engine::{Close, TimeoutReason};
use towline::{ConnectError, ConnectionError, http3, webtransport};
use towline_transfer::{Reason, printable};

use crate::exit::{Exit, Failure};
use crate::handshake::HANDSHAKE_TIMEOUT;
use crate::units::date;

/// How a server was to show who it is, for the advice when it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nothing was said.
    SystemRoots,
    /// --cacert.
    GivenRoots,
    /// The URL's or --pin, or --insecure.
    Pin,
}

/// How an attempt to connect to `address` ends a command.
pub(crate) fn connect_failure(error: &ConnectError, address: SocketAddr, proof: Proof) -> Failure {
    match error {
        ConnectError::Failed(ConnectionError::TimedOut(_)) => silent(address, HANDSHAKE_TIMEOUT),
        ConnectError::Failed(ConnectionError::Tls { what, .. })
            if proof != Proof::Pin && !is_about_protocol(what) =>
        {
            tracing::debug!("{what}");
            let why = disbelief(what);
            match proof {
                Proof::GivenRoots => disbelieved(why).next(
                    "check that the file of --cacert has the authority of its certificate, and that the URL names the host as the certificate does",
                ),
                _ => no_pin(&format!(", and {address} is not believed without one: {why}")),
            }
        }
        ConnectError::Failed(error) => connection_failure(error),
        ConnectError::Refused(error) => Failure::usage(error.to_string()),
        other => Failure::new(Exit::Connect, other.to_string()),
    }
}

/// Nobody answered for so long.
pub(crate) fn silent(address: SocketAddr, waited: Duration) -> Failure {
    Failure::new(
        Exit::Connect,
        format!("no answer from {address} within {} s", waited.as_secs()),
    )
    .next("check that the server runs, that address and UDP port are right, and that no firewall is in the way")
}

/// Why an address cannot be listened on, for this and every other listening command.
pub(crate) fn bind_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let failure = Failure::new(Exit::Other, format!("cannot listen on {address}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure {
            message: format!("UDP port {} is in use on {}", address.port(), address.ip()),
            ..failure
        }
        .next(format!(
            "choose another with --listen {}, or stop the other program (`ss -ulpn` names it)",
            SocketAddr::new(address.ip(), 0)
        )),
        io::ErrorKind::AddrNotAvailable => {
            failure.next("use an address of this machine, or 0.0.0.0")
        }
        io::ErrorKind::PermissionDenied => failure.next("use a port from 1024 up"),
        _ => failure,
    }
}

fn disbelieved(why: &str) -> Failure {
    Failure::new(Exit::Tls, format!("the server was not believed: {why}"))
}

/// The URL says nothing that the server could be believed by; `why` is added.
pub(crate) fn no_pin(why: &str) -> Failure {
    Failure::new(Exit::Tls, format!("this URL has no pin{why}")).next(
        "paste the whole line that the server printed, with its #sha256/…; or give --pin, or --cacert with the authority of its certificate",
    )
}

/// Our own reason without what rustls wraps around it.
fn plain(what: &str) -> &str {
    what.split_once("Other(OtherError(")
        .and_then(|(_, inner)| inner.strip_suffix("))"))
        .unwrap_or(what)
}

/// What is wrong with a certificate, in words instead of rustls's types.
fn disbelief(what: &str) -> &str {
    // rustls says some in words and others by the names of its types.
    const WORDS: [(&str, &str); 5] = [
        ("notvalidforname", "its certificate is for another name"),
        ("expired", "its certificate has ended; it needs a new one"),
        (
            "notvalidyet",
            "its certificate is not valid yet; one of the two clocks is wrong",
        ),
        ("unknownissuer", UNKNOWN_ISSUER),
        ("unsupportedsignaturealgorithm", UNKNOWN_ISSUER),
    ];
    let said = what.to_lowercase().replace(' ', "");
    let known = WORDS.iter().find(|(name, _)| said.contains(name));
    known.map_or_else(|| plain(what), |(_, words)| *words)
}

/// When a certificate ended, if that is what is wrong with it and rustls says so.
fn ended(what: &str) -> Option<String> {
    if !what.to_lowercase().contains("expired") {
        return None;
    }
    let seconds = what.split_once("not valid after ").and_then(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    });
    let day = |seconds| date(UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
    Some(seconds.map_or_else(String::new, |seconds| format!(" (on {})", day(seconds))))
}

const UNKNOWN_ISSUER: &str = "no authority that we trust has signed its certificate";

fn is_about_protocol(what: &str) -> bool {
    what.contains("ApplicationProtocol")
}

/// Why the other side ended a handshake, from its alert (RFC 8446 §6.2).
fn refused_by_alert(alert: u8, message: &str) -> Failure {
    const GIVE_PIN: &str = "`towline cert pin` prints our pin (with --cert, `towline cert pin FILE`): its owner can let us in with --client-pin, or with a line in the file of --known-clients; one that goes by --client-ca wants a certificate of its authority, with --cert and --key";
    match alert {
        120 => Failure::new(
            Exit::Tls,
            "the server speaks none of our protocols (ALPN `towline/1`, or `h3` of `towline web`): another program listens at this port, or another version",
        )
        .next("check address and port; `towline web` needs `towline serve --web` there"),
        116 => Failure::new(
            Exit::Tls,
            "the server lets in clients that it knows, and we have no key to show",
        )
        .next(GIVE_PIN),
        // What a server of raw keys answers to a client without one (RFC 7250 §4.2).
        40 => Failure::new(
            Exit::Tls,
            "no common ground for a handshake: the server may let in only clients that it knows, and we have no key to show",
        )
        .next(GIVE_PIN),
        42 | 43 | 46 | 48 | 49 => {
            Failure::new(Exit::Tls, "the server does not let us in: it does not know our key")
                .next(GIVE_PIN)
        }
        44 => Failure::new(
            Exit::Tls,
            "the server does not let us in: our certificate was revoked",
        ),
        // Of a certificate that is not valid yet, too.
        45 => Failure::new(
            Exit::Tls,
            "the server does not let us in: our certificate has ended, or one of the two clocks is wrong",
        ),
        _ => Failure::new(
            Exit::Tls,
            format!("TLS refused by the other side: {message}"),
        ),
    }
}

/// How a failure of HTTP/3 ends a command.
pub(crate) fn http3_failure(error: &http3::Error) -> Failure {
    match error {
        http3::Error::ConnectionLost(error) => connection_failure(error),
        error => Failure::new(Exit::Protocol, error.to_string()),
    }
}

/// How a session of WebTransport that ended, or never was, ends a command.
pub(crate) fn session_failure(error: &webtransport::Error) -> Failure {
    match error {
        webtransport::Error::Http3(error) => http3_failure(error),
        webtransport::Error::Refused(status) => session_refused(error.to_string(), *status),
        webtransport::Error::NotAsked(webtransport::NotAsked::Unsupported(_)) => {
            Failure::new(Exit::Protocol, error.to_string()).next("check that this port serves WebTransport, and which draft of it: towline speaks draft-02, draft-07 to -12, and draft-13 to -16")
        }
        error => Failure::new(Exit::Protocol, error.to_string()),
    }
}

/// How a session that the server refused ends a command, with what to do next.
pub(crate) fn session_refused(what: String, status: http::StatusCode) -> Failure {
    let failure = Failure::new(Exit::Other, what);
    match status.as_u16() {
        400 => failure.next("the two ends speak different drafts of WebTransport, or one lacks a setting: the server's log says which"),
        403 => failure.next("the server does not let in sessions of this origin: its owner decides which it takes"),
        404 | 405 => failure.next("look at the path in the URL; `towline serve --web` has /echo, and /upload, /download and /datagrams for `web perf`"),
        _ => failure,
    }
}

/// How the end of a connection ends a command.
pub(crate) fn connection_failure(error: &ConnectionError) -> Failure {
    let message = error.to_string();
    match error {
        ConnectionError::Tls { what, .. } if is_about_protocol(what) => {
            refused_by_alert(120, &message)
        }
        ConnectionError::Tls { what, .. } => {
            tracing::debug!("{what}");
            match ended(what) {
                Some(when) => disbelieved(&format!("{}{when}", disbelief(what))).next("its owner has to show a new one, as `towline serve` does of itself; a pin of the key still fits that, a pin of the certificate ended with it"),
                None => disbelieved(disbelief(what)).next("compare the pin with the line the server printed when it started; paste that line again if its key was replaced"),
            }
        }
        ConnectionError::PeerMisbehaved { .. } => Failure::new(Exit::Protocol, message),
        ConnectionError::TimedOut(TimeoutReason::Handshake) => Failure::new(Exit::Connect, message),
        ConnectionError::TimedOut(_) => Failure::new(Exit::Timeout, "the other side went silent"),
        ConnectionError::StatelessReset => Failure::new(Exit::Timeout, message),
        ConnectionError::VersionMismatch | ConnectionError::RetryTokenTooLong(_) => {
            Failure::new(Exit::Protocol, message)
        }
        ConnectionError::ClosedByPeer(Close::Transport { code, .. })
            if code.is_crypto().is_some() =>
        {
            refused_by_alert(code.is_crypto().unwrap_or_default(), &message)
        }
        ConnectionError::ClosedByPeer(Close::Transport { code, .. })
            if *code == towline::TransportErrorCode::CONNECTION_REFUSED =>
        {
            Failure::new(Exit::Connect, message).next("try again later")
        }
        ConnectionError::ClosedByPeer(Close::Transport { code, .. })
            if *code == towline::TransportErrorCode::INVALID_TOKEN =>
        {
            Failure::new(Exit::Connect, message)
                .next("if it happens again, the path is too slow or your address keeps changing")
        }
        ConnectionError::ClosedByPeer(Close::Transport { .. }) => {
            Failure::new(Exit::Protocol, message)
        }
        ConnectionError::ClosedByPeer(Close::Application { code, reason }) => {
            let text = printable(reason);
            let text = if text.is_empty() {
                format!("application code {code}")
            } else {
                text
            };
            let exit = match Reason::from_code(*code) {
                Reason::Protocol => Exit::Protocol,
                _ => Exit::Partial,
            };
            Failure::new(
                exit,
                format!("the other side closed the connection: {text}"),
            )
        }
        _ => Failure::new(Exit::Other, message),
    }
}

#[cfg(test)]
mod tests;
