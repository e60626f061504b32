//! Why there is no connection: what the log says, and what the program is told.

use std::net::SocketAddr;
use std::time::Duration;

use towline::stcp::ConnectError;
use towline_stcp::SessionError;

use crate::policy::Refusal;

/// A handshake that takes longer is given up.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What TCP itself tells a program of its peer or of the way there. Other errors are the agent's own:
/// that it lacks a file or a descriptor is not the program's to know.
const TCP_ERRORS: [i32; 10] = [
    libc::ECONNREFUSED,
    libc::ECONNRESET,
    libc::ECONNABORTED,
    libc::ETIMEDOUT,
    libc::EHOSTUNREACH,
    libc::EHOSTDOWN,
    libc::ENETUNREACH,
    libc::ENETDOWN,
    libc::EADDRNOTAVAIL,
    libc::EPIPE,
];

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A call that the program made, and that failed as its own would have.
    #[error("{0}")]
    Call(std::io::Error),
    #[error("the peer did not finish the handshake within {HANDSHAKE_TIMEOUT:?}")]
    TimedOut,
    #[error("too many unfinished handshakes: this was one of those who have the most")]
    Crowded,
    #[error("the peer sent data that the kernel cannot take over")]
    NotForTheKernel,
    #[error("too many connections from outside are open")]
    Full,
    #[error("it was for {0}, which is another machine")]
    Elsewhere(SocketAddr),
    #[error(
        "the program would not see its peer's address {0}: a firewall rule rewrites what goes over loopback \
         (`nft list ruleset`), or this kernel cannot tell (sock_diag; `modprobe tcp_diag`)"
    )]
    Disguised(SocketAddr),
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Session(error) => error.into(),
            error => Self::Io(error.into()),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::Refused(Refusal::Session(error))
    }
}

impl Failure {
    /// What a program sees as errno: what TCP would say, or EPROTO.
    pub(super) fn errno(&self) -> i32 {
        match self {
            Self::Io(error) => match error.raw_os_error() {
                Some(number) if TCP_ERRORS.contains(&number) => number,
                _ => libc::EPROTO,
            },
            Self::Call(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Self::TimedOut => libc::ETIMEDOUT,
            Self::Crowded
            | Self::Full
            | Self::Refused(Refusal::Session(
                SessionError::ClosedInHandshake | SessionError::Truncated,
            )) => libc::ECONNRESET,
            Self::Refused(_) | Self::NotForTheKernel | Self::Elsewhere(_) | Self::Disguised(_) => {
                libc::EPROTO
            }
        }
    }
}
