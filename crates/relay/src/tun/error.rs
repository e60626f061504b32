//! Why a relay between namespaces does not start: the parts of making one return it.

use std::io::{self, ErrorKind};

use towline_sim::LinkConfigError;

use super::config::DEVICE_NAME;
use crate::RelayDirection;

/// Why a relay between namespaces does not start; the user's to put right.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// A link is configured to do the impossible.
    #[error("link {direction}: {error}")]
    Link {
        /// Which of the two.
        direction: RelayDirection,
        /// What is wrong with it.
        error: LinkConfigError,
    },
    /// The NAT is configured to do the impossible.
    #[error("NAT: {0}")]
    Nat(LinkConfigError),
    /// No namespace can have this name.
    #[error("`{name}` is no name for a network namespace: it is a file name of up to 255 bytes")]
    Name {
        /// The name given.
        name: String,
    },
    /// Both ends in one place: packets would never take the relay's way.
    #[error("the clients and the server need two namespaces; both are `{name}`")]
    SameNamespace {
        /// The name given twice.
        name: String,
    },
    /// It is not there.
    #[error("there is no network namespace `{name}`")]
    NoSuchNamespace {
        /// The name given.
        name: String,
    },
    /// They are there, but were to be made: another relay has them, or one that was killed left them.
    #[error("network namespaces that are there already: {}", names.join(", "))]
    NamespacesExist {
        /// Those of the names given that are there.
        names: Vec<String>,
    },
    /// Another relay has its device there.
    #[error("another relay has the device {DEVICE_NAME} in namespace `{namespace}`")]
    DeviceExists {
        /// Where.
        namespace: String,
    },
    /// The process may not do this.
    #[error("{action} needs root, or the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotPermitted {
        /// What was tried.
        action: String,
    },
    /// The kernel has no TUN devices.
    #[error("/dev/net/tun is not there: the kernel's module `tun` is not loaded")]
    NoTun,
    /// The program `ip`, which sets addresses and routes, is missing.
    #[error("the program `ip` is not installed; it is part of iproute2")]
    NoIpProgram,
    /// The program `ip` failed.
    #[error("`{command}` failed: {message}")]
    Ip {
        /// The command as a person would type it.
        command: String,
        /// What it said.
        message: String,
    },
    /// The system failed in another way.
    #[error("{action} failed: {error}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        error: io::Error,
    },
}

impl TunError {
    /// What a system call's error means here.
    pub(super) fn of(action: String, error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::PermissionDenied => Self::NotPermitted { action },
            _ => Self::System { action, error },
        }
    }
}
