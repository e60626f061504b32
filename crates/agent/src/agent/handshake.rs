//! The handshake as the agent makes it: over any wire, with failures that programs can be told.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;
pub(super) use towline::stcp::handshake::Wire;
use towline::stcp::handshake::{drive, flush};
use towline_stcp::{Established, Handshake};

use super::failure::Failure;

/// What tokio waits for: a type that owns its descriptor.
pub(super) fn registered<T: From<OwnedFd> + Into<OwnedFd> + AsRawFd>(
    descriptor: T,
) -> io::Result<AsyncFd<T>> {
    // SAFETY: types that turn into an `OwnedFd` and back own one descriptor and keep it open; no
    // code here replaces it.
    let registered = unsafe { AsyncFd::register(descriptor) };
    registered.map_err(io::Error::from)
}

/// Drives `handshake` to its end. If `exact`, no byte beyond it is taken from the stream.
pub(super) async fn shake_hands(
    wire: &impl Wire,
    mut handshake: Handshake,
    exact: bool,
) -> Result<Established, Failure> {
    drive(wire, &mut handshake, exact).await?;
    // The peer is judged before anything else is said.
    flush(wire, &mut handshake).await?;
    Ok(handshake.finish()?)
}
