//! One handshake over a byte stream, whoever carries it.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;
use towline_stcp::{Established, Handshake};

use super::Failure;

/// What is received at once at most: a record.
const BUFFER: usize = 17 * 1024;

/// The byte stream below TLS.
pub(super) trait Wire: Sync {
    /// Receives at least one byte; 0 is the end of the stream.
    fn receive(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Sends at least one byte.
    fn send(&self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// What tokio waits for: a type that owns its descriptor.
pub(super) fn registered<T: From<OwnedFd> + Into<OwnedFd> + AsRawFd>(
    descriptor: T,
) -> io::Result<AsyncFd<T>> {
    // SAFETY: types that turn into an `OwnedFd` and back own one descriptor and keep it open; no
    // code here replaces it.
    let registered = unsafe { AsyncFd::register(descriptor) };
    registered.map_err(io::Error::from)
}

/// Drives `handshake` to its end. If `exact`, no byte beyond it is taken from the stream. After a
/// failure the peer has been sent the alert that says why.
pub(super) async fn shake_hands(
    wire: &impl Wire,
    mut handshake: Handshake,
    exact: bool,
) -> Result<Established, Failure> {
    let mut buffer = vec![0; BUFFER];
    loop {
        flush(wire, &mut handshake).await?;
        if handshake.is_complete() {
            return Ok(handshake.finish()?);
        }
        let room = if exact {
            handshake.wanted().min(BUFFER)
        } else {
            BUFFER
        };
        let received = wire.receive(&mut buffer[..room]).await?;
        if received == 0 {
            return Err(handshake.handle_eof().into());
        }
        if let Err(error) = handshake.handle_input(&buffer[..received]) {
            // The alert is a courtesy; the first error is the one that matters.
            let _ = flush(wire, &mut handshake).await;
            return Err(error.into());
        }
    }
}

async fn flush(wire: &impl Wire, handshake: &mut Handshake) -> io::Result<()> {
    while !handshake.output().is_empty() {
        let sent = wire.send(handshake.output()).await?;
        handshake.on_sent(sent);
    }
    Ok(())
}
