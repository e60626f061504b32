//! `listen()` of a program.
//!
//! The agent listens in its place, at the address that the program's socket is bound to, and makes
//! the handshakes side by side. What the program gets is one end of a channel: each message is a
//! connection to this process, in the place of one whose handshake is finished. The channel's name
//! says which address it stands for, so that the shim needs to remember nothing. When the last process
//! closes its end, the listening ends.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towline_wire::{AgentAnswer, AgentRequest, AgentStatus, Side, listening_name};

use super::super::handshake::registered;
use super::super::places::{canonical, stays_here};
use super::super::preload::send_answer;
use super::super::relay::{Relaying, carry, reset};
use super::super::{Complaint, Failure, Requester};
use super::join::{bound_to, join};
use super::{LOOPBACK, Named, Names, Programs, confined, random};

/// Cap: connections that a program has not accepted, besides a few in the channel. One more is reset.
pub(super) const MAX_UNTAKEN: usize = 128;

/// Connections whose handshake has not begun.
const BACKLOG: i32 = 4096;

/// A listening socket of a program, our side of it.
struct Listening {
    channel: AsyncFd<Socket>,
    untaken: Semaphore,
    /// Of the program's accepted sockets.
    domain: Domain,
    requester: Requester,
}

impl Programs {
    pub(super) fn listen(
        self: &Arc<Self>,
        request: &AgentRequest,
        socket: &Socket,
    ) -> io::Result<OwnedFd> {
        let listener = listen_in_place_of(socket)?;
        let address = bound_to(&listener)?;
        let (theirs, ours) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        let name = listening_name(random()?, address);
        theirs.bind(&SockAddr::unix(OsStr::from_bytes(&name))?)?;
        // As few as the kernel permits.
        ours.set_send_buffer_size(1)?;
        ours.set_nonblocking(true)?;
        let listening = Arc::new(Listening {
            channel: registered(ours)?,
            untaken: Semaphore::new(MAX_UNTAKEN),
            domain: socket.domain()?,
            requester: Self::requester(request, Side::Server, address),
        });
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener.into())?;
        tokio::spawn(Arc::clone(self).serve_listening(listener, listening));
        Ok(theirs.into())
    }

    async fn serve_listening(self: Arc<Self>, listener: TcpListener, listening: Arc<Listening>) {
        let mut complaint = Complaint::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = listening.closed() => return,
            };
            match accepted {
                Ok((stream, from)) => {
                    let programs = Arc::clone(&self);
                    let listening = Arc::clone(&listening);
                    tokio::spawn(async move { programs.admit(stream, from, &listening).await });
                }
                Err(error) => {
                    // No descriptors left, most likely: others have to be given back first.
                    if complaint.is_due() {
                        tracing::warn!("a connection could not be accepted: {error}");
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    /// A peer wants to reach the program: its handshake first.
    async fn admit(self: &Arc<Self>, stream: TcpStream, from: SocketAddr, listening: &Listening) {
        let requester = Requester {
            peer: canonical(from),
            ..listening.requester
        };
        if let Err(why) = self.try_admit(stream, from, &requester, listening).await {
            self.agent.on_refused(&requester, &why);
        }
    }

    async fn try_admit(
        self: &Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
        requester: &Requester,
        listening: &Listening,
    ) -> Result<(), Failure> {
        let real = Names {
            local: stream.local_addr()?,
            peer: from,
        };
        if stays_here(real.local, from) {
            let given = self.give_clear(&stream, real, listening).await;
            return match given.inspect_err(|_| reset(&stream))? {
                None => Ok(()),
                Some((ours, kept)) => {
                    self.copy(ours, stream, real).await;
                    drop(kept);
                    Ok(())
                }
            };
        }
        let secured = async {
            let established = self.agent.secure(&stream, requester).await?;
            let place = self.agent.place_from_outside()?;
            let (ours, named) = self.give_joined(real, listening).await?;
            Ok((established, ours, (named, place)))
        };
        match secured.await {
            Ok((established, ours, kept)) => {
                let relaying = Relaying::new(&self.agent);
                carry(ours, stream, established, requester.peer).await;
                drop((kept, relaying));
                Ok(())
            }
            Err(why) => {
                reset(&stream);
                Err(why)
            }
        }
    }

    /// Gives the program a connection that stays here: itself, or from another address of ours, which
    /// cannot be confined, one to this process in its place.
    async fn give_clear(
        self: &Arc<Self>,
        stream: &TcpStream,
        real: Names,
        listening: &Listening,
    ) -> Result<Option<(TcpStream, (Named, OwnedSemaphorePermit))>, Failure> {
        if canonical(real.local).ip().is_loopback() {
            let socket = Socket::from(stream.as_fd().try_clone_to_owned()?);
            socket.bind_device(Some(LOOPBACK))?;
            socket.set_nonblocking(false)?;
            listening.deliver(&socket, real).await?;
            return Ok(None);
        }
        let place = self.agent.place_from_outside()?;
        let (ours, named) = self.give_joined(real, listening).await?;
        Ok(Some((ours, (named, place))))
    }

    /// Gives the program a connection to this process, in the place of the `real` one.
    async fn give_joined(
        self: &Arc<Self>,
        real: Names,
        listening: &Listening,
    ) -> Result<(TcpStream, Named), Failure> {
        let near = confined(listening.domain)?;
        let (ours, shown) = join(&near, canonical(real.peer).is_ipv6()).await?;
        let named = self.named(shown, real);
        listening.deliver(&near, real).await?;
        Ok((ours, named))
    }
}

impl Listening {
    /// Gives the program a connection.
    async fn deliver(&self, socket: &impl AsFd, names: Names) -> io::Result<()> {
        let Ok(_place) = self.untaken.try_acquire() else {
            return Err(io::Error::other(
                "the program does not accept its connections",
            ));
        };
        let answer = AgentAnswer {
            status: AgentStatus::Done,
            local: names.local,
            peer: names.peer,
        };
        send_answer(&self.channel, &answer, Some(socket.as_fd())).await
    }

    /// Until the program has closed.
    async fn closed(&self) {
        loop {
            let mut ignored = [0; 16];
            let received = self.channel.async_io(Interest::READABLE, |channel| {
                std::io::Read::read(&mut &*channel, &mut ignored)
            });
            if let Ok(0) | Err(_) = received.await {
                return;
            }
        }
    }
}

/// A socket that listens where the program's is bound.
fn listen_in_place_of(bound: &Socket) -> io::Result<Socket> {
    let domain = bound.domain()?;
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(bound.only_v6()?)?;
    }
    socket.set_reuse_port(bound.reuse_port()?)?;
    // Both, or the address could not be had twice.
    bound.set_reuse_address(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&bound.local_addr()?)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}
