//! The way of the preload shim to the agent of its run: a Unix socket, over which programs ask.

mod messages;

use std::io;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Complaint;
use super::handshake::registered;
pub(super) use messages::{peek_request, receive_request, send_answer};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The agent's Unix socket.
#[derive(Debug)]
pub(super) struct PreloadListener(AsyncFd<Socket>);

impl PreloadListener {
    /// Listens at an abstract name, which no file system and no change of root hides. Within a tokio
    /// runtime.
    pub(super) fn bind(name: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.bind(&SockAddr::unix(format!("\0{name}"))?)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self(registered(socket)?))
    }

    async fn accept(&self) -> io::Result<AsyncFd<Socket>> {
        let accepted = self
            .0
            .async_io(Interest::READABLE, |socket| socket.accept())
            .await?;
        accepted.0.set_nonblocking(true)?;
        registered(accepted.0)
    }

    /// The next program.
    pub(super) async fn next(&self) -> AsyncFd<Socket> {
        let mut complaint = Complaint::default();
        loop {
            match self.accept().await {
                Ok(client) => return client,
                Err(error) => {
                    // No descriptors left, most likely: others have to be given back first.
                    if complaint.is_due() {
                        tracing::warn!("a program could not be accepted: {error}");
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
    }
}
