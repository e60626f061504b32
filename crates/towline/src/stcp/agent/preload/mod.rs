//! The carrier of the preload shim: a Unix socket over which programs hand in connected sockets.
//!
//! A message is a request with the TCP socket beside it. The agent makes the handshake on it, taking
//! no byte too many, hands the keys to the kernel and answers with 0, or with a negative errno after
//! it has shut the socket down, so that the program cannot go on in clear even if it ignores that.

mod messages;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use towline_stcp::Established;
use towline_wire::{AgentRequest, Carrier, Operation};

use super::handshake::{Wire, registered};
use super::{Agent, Asker, Failure};
use crate::stcp::ktls;
pub(super) use messages::{receive_request, send_answer};

/// Cap: programs connected to the agent's socket at once. More wait in the socket's backlog.
pub(super) const MAX_PRELOAD_CLIENTS: usize = 256;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The agent's Unix socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct PreloadListener {
    socket: AsyncFd<Socket>,
    /// `None` of an abstract name.
    path: Option<PathBuf>,
}

impl PreloadListener {
    /// Listens at `path`, for every user of this machine. Within a tokio runtime. A file that is
    /// left from an agent that is gone is replaced.
    ///
    /// # Errors
    /// `AddrInUse` where an agent listens there already.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        let socket = || Socket::new(Domain::UNIX, Type::SEQPACKET, None);
        if path.exists() {
            if socket()?.connect(&address).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            std::fs::remove_file(path)?;
        }
        let socket = socket()?;
        socket.bind(&address)?;
        // Whoever may open TCP connections may have them encrypted.
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
        Self::listening(socket, Some(path.to_owned()))
    }

    /// Listens at an abstract name, which no file system and no change of root hides.
    pub(super) fn bind_abstract(name: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.bind(&SockAddr::unix(format!("\0{name}"))?)?;
        Self::listening(socket, None)
    }

    fn listening(socket: Socket, path: Option<PathBuf>) -> io::Result<Self> {
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: registered(socket)?,
            path,
        })
    }

    async fn accept(&self) -> io::Result<AsyncFd<Socket>> {
        let accepted = self
            .socket
            .async_io(Interest::READABLE, |socket| socket.accept())
            .await?;
        accepted.0.set_nonblocking(true)?;
        registered(accepted.0)
    }

    /// The next program.
    pub(super) async fn next(&self) -> AsyncFd<Socket> {
        loop {
            match self.accept().await {
                Ok(client) => return client,
                Err(error) => {
                    // No descriptors left, most likely: others have to be given back first.
                    tracing::warn!("a program could not be accepted: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
    }
}

impl Drop for PreloadListener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Agent {
    /// Answers programs with the preload shim, for ever.
    pub async fn serve_preload(self: Arc<Self>, listener: &PreloadListener) {
        let places = Arc::new(Semaphore::new(MAX_PRELOAD_CLIENTS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let client = listener.next().await;
            let agent = Arc::clone(&self);
            tokio::spawn(async move {
                if let Err(error) = agent.serve_preload_client(&client).await {
                    tracing::warn!("a program's request was dropped: {error}");
                }
                drop(place);
            });
        }
    }

    /// One program: requests until it closes.
    async fn serve_preload_client(&self, client: &AsyncFd<Socket>) -> io::Result<()> {
        while let Some((request, socket)) = receive_request(client).await? {
            let (Operation::Handshake, Some(socket)) = (request.operation, socket) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it is none for a handshake, or no socket came with it",
                ));
            };
            let status = self.serve_preload_request(&request, socket).await;
            client
                .async_io(Interest::WRITABLE, |client| {
                    client.send_with_flags(&status.to_ne_bytes(), libc::MSG_NOSIGNAL)
                })
                .await?;
        }
        Ok(())
    }

    async fn serve_preload_request(&self, request: &AgentRequest, socket: Socket) -> i32 {
        // The addresses are the socket's own; what the program says of them does not count.
        let peer = match connected_tcp_peer(&socket) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!(
                    pid = request.pid,
                    "this is no connected TCP socket: {error}"
                );
                return -libc::EINVAL;
            }
        };
        let asker = Asker {
            side: request.side,
            carrier: Carrier::Preload,
            peer,
            pid: request.pid,
            uid: request.uid,
        };
        let ended = match registered(socket) {
            Ok(socket) => {
                let wire = Connected(socket);
                let ended = match self.establish(&wire, &asker).await {
                    Ok((established, admitted)) => install(&wire, established).map(|()| admitted),
                    Err(why) => Err(why),
                };
                if ended.is_err() {
                    let _ = wire.0.get_ref().shutdown(std::net::Shutdown::Both);
                }
                ended
            }
            Err(error) => Err(error.into()),
        };
        match ended {
            Ok(admitted) => {
                self.on_established(&asker, &admitted);
                0
            }
            Err(why) => {
                self.on_refused(&asker, &why);
                -why.errno()
            }
        }
    }
}

fn install(wire: &Connected, established: Established) -> Result<(), Failure> {
    let (keys, _) = established.into_kernel().ok_or(Failure::NotForTheKernel)?;
    Ok(ktls::install(wire.0.get_ref().as_fd(), &keys)?)
}

fn connected_tcp_peer(socket: &Socket) -> io::Result<std::net::SocketAddr> {
    if socket.r#type()? != Type::STREAM {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    socket
        .peer_addr()?
        .as_socket()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A program's TCP socket. It shares its flags with the program, so each call says for itself that
/// it does not wait.
struct Connected(AsyncFd<Socket>);

impl Wire for Connected {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let receive = |socket: &Socket| {
            // SAFETY: the descriptor is open; pointer and length are those of one slice.
            let received = unsafe {
                libc::recv(
                    socket.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            usize::try_from(received).map_err(|_| io::Error::last_os_error())
        };
        self.0.async_io(Interest::READABLE, receive).await
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        self.0
            .async_io(Interest::WRITABLE, |socket| {
                SockRef::from(socket).send_with_flags(bytes, flags)
            })
            .await
    }
}
