//! What can go wrong with a session, and what a socket's user is told.

use std::io;

use rustls::AlertDescription;
use towline_identity::PeerRejected;

/// Why a session ended, other than by close_notify.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The peer's bytes are no TLS: it speaks in clear, or something else.
    #[error(
        "the peer does not speak TLS (it began with {shown}): \
         it must use secure TCP as well, or the port is wrong"
    )]
    NotTls {
        /// Its first bytes, printable.
        shown: String,
    },
    /// The peer's identity was not believed; we told it so.
    #[error("the peer is not who it should be: {0}")]
    PeerRejected(PeerRejected),
    /// The handshake failed on our side; we told the peer.
    #[error("the TLS handshake failed: {0}")]
    Handshake(rustls::Error),
    /// The peer said why it gives up.
    #[error("the peer refused: TLS alert {}", alert_name(*.0))]
    Alert(AlertDescription),
    /// The stream ended inside the handshake.
    #[error("the peer closed the connection during the handshake")]
    ClosedInHandshake,
    /// The stream ended without close_notify: data may be missing (RFC 8446 §6.1).
    #[error("the connection was cut off: the stream ended without close_notify")]
    Truncated,
    /// A record that was not made with our keys.
    #[error("a record failed authentication: it was damaged or forged on the way")]
    BadRecord,
    /// The peer broke the protocol.
    #[error("the peer broke TLS: {what}")]
    PeerMisbehaved {
        /// The rule.
        what: &'static str,
        /// The alert that we send.
        alert: AlertDescription,
    },
    /// As much was encrypted under one key as is safe: ours could not be changed, or the peer did not
    /// change its own.
    #[error(
        "a key's limit is reached and it was not changed: the connection must end; open a new one"
    )]
    KeyExhausted,
    /// The kernel makes the records that we send, with a key that it cannot change, and a new one is
    /// due: the peer asked for it, or the key's limit is reached.
    #[error(
        "the kernel sends with a key that it cannot change, and a new one is due, since the peer asked \
         for it or the key's limit is reached: nothing more can be written here, reading goes on; use a \
         new connection for the rest, or send without the kernel (Records::UserSpace)"
    )]
    KernelKeyEnded,
    /// Written to after the end was declared.
    #[error("written to after the end of the stream was declared")]
    WriteAfterClose,
}

impl SessionError {
    pub(crate) const fn peer(what: &'static str, alert: AlertDescription) -> Self {
        Self::PeerMisbehaved { what, alert }
    }

    pub(crate) fn from_handshake(error: rustls::Error) -> Self {
        if let Some(why) = PeerRejected::from_error(&error) {
            return Self::PeerRejected(why);
        }
        match error {
            rustls::Error::AlertReceived(alert) => Self::Alert(alert),
            error => Self::Handshake(error),
        }
    }

    /// Whether the peer has said that it does not believe who we are.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Alert(alert) if is_refusal(*alert))
    }

    /// The alert the peer is sent, if any.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        match self {
            Self::PeerMisbehaved { alert, .. } => Some(*alert),
            Self::BadRecord => Some(AlertDescription::BadRecordMac),
            Self::KeyExhausted => Some(AlertDescription::InternalError),
            _ => None,
        }
    }

    /// The kind of `io::Error` a TCP socket would answer with: `ConnectionReset` where a stream
    /// was cut off, `BrokenPipe` for writing after the end, `PermissionDenied` for a peer that is not
    /// believed, `InvalidData` (EPROTO) otherwise.
    pub fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::Truncated | Self::ClosedInHandshake => io::ErrorKind::ConnectionReset,
            Self::WriteAfterClose => io::ErrorKind::BrokenPipe,
            Self::PeerRejected(_)
            | Self::Handshake(
                rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented,
            ) => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::InvalidData,
        }
    }
}

impl From<SessionError> for io::Error {
    fn from(error: SessionError) -> Self {
        io::Error::new(error.io_kind(), error)
    }
}

/// Whether an alert is about our identity (RFC 8446 §6.2).
fn is_refusal(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
    )
}

fn alert_name(alert: AlertDescription) -> String {
    let hint = match is_refusal(alert) {
        true => ": it does not believe who we are, and its log says why",
        false => "",
    };
    format!("{alert:?} ({}){hint}", u8::from(alert))
}
