//! `connect()` of a program.
//!
//! A socket that blocks is connected when the handshake is finished, and the program sees why if it
//! is not. An event loop must not be held up: one that does not block is connected to us at once,
//! and what cannot be connected or secured is reset. Loopback cannot be reached from other addresses
//! of ours, so a program whose socket is bound to one gets another socket in its place.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use tokio::net::TcpStream;
use tokio::time::sleep;
use towline_stcp::Established;
use towline_wire::{AgentRequest, AgentStatus, Side};

use super::super::places::{Place, canonical, place, stays_here};
use super::super::relay::{Relaying, carry, dial, reset, unspecified};
use super::super::{Failure, Requester};
use super::join::{bound_to, join};
use super::{Names, Programs, confined};

/// At a connection that stays here, before it counts as one that does not.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

impl Programs {
    pub(super) async fn connect(
        self: &Arc<Self>,
        request: &AgentRequest,
        socket: Socket,
    ) -> Result<(AgentStatus, Option<Socket>), Failure> {
        let to = canonical(request.peer);
        if to == self.probe {
            let (ours, _) = join(&socket, to.is_ipv6()).await?;
            let _ = ours.try_write(format!("{}\n", to.port()).as_bytes());
            return Ok((AgentStatus::Done, None));
        }
        let from = canonical(bound_to(&socket)?);
        // Loopback cannot be reached from other addresses of ours, nor can other machines from it.
        let is_elsewhere = !from.ip().is_unspecified() && !from.ip().is_loopback();
        let place = place(to).map_err(Failure::Call)?;
        if place == Place::Loopback && !is_elsewhere {
            return Ok((AgentStatus::StaysHere, None));
        }
        let from = match is_elsewhere {
            true => from,
            false => SocketAddr::new(unspecified(to.ip()), from.port()),
        };
        if from.port() != 0 {
            // Of both sockets, or the address could not be had twice.
            socket.set_reuse_address(true)?;
        }
        let near = match place {
            Place::Away => None,
            // From there too: without that address the kernel sends nothing.
            Place::Own if !is_elsewhere => {
                let mut there = to;
                there.set_port(from.port());
                dial_here(there, to).await?
            }
            Place::Own | Place::Loopback => dial_here(from, to).await?,
        };
        let requester = Self::requester(request, Side::Client, to);
        let instead = match is_elsewhere {
            true => Some(confined(socket.domain()?)?),
            false => None,
        };
        if let Some(instead) = &instead {
            instead.set_nonblocking(socket.nonblocking()?)?;
        }
        let joining = instead.as_ref().unwrap_or(&socket);
        let status = match near {
            Some(near) => self.connect_here(joining, near, to).await?,
            None => self.connect_away(joining, from, to, requester).await?,
        };
        Ok((status, instead))
    }

    /// To an address of this machine: bytes are copied as they are.
    async fn connect_here(
        self: &Arc<Self>,
        socket: &Socket,
        near: TcpStream,
        to: SocketAddr,
    ) -> Result<AgentStatus, Failure> {
        let (ours, shown) = join(socket, to.is_ipv6()).await?;
        let real = real(&near, to)?;
        let named = self.named(shown, real);
        let relaying = Relaying::new(&self.agent);
        let programs = Arc::clone(self);
        tokio::spawn(async move {
            programs.copy(ours, near, real).await;
            drop((named, relaying));
        });
        Ok(AgentStatus::Done)
    }

    async fn connect_away(
        self: &Arc<Self>,
        socket: &Socket,
        from: SocketAddr,
        to: SocketAddr,
        requester: Requester,
    ) -> Result<AgentStatus, Failure> {
        let relaying = Relaying::new(&self.agent);
        if !socket.nonblocking()? {
            let dialled = self.agent.join_client(from, to, &requester).await;
            let secured = dialled.inspect_err(|why| {
                self.agent.on_refused(&requester, why);
            })?;
            self.relay(socket, secured, to, relaying).await?;
            return Ok(AgentStatus::Done);
        }
        let (ours, shown) = join(socket, to.is_ipv6()).await?;
        // Its own address is known later.
        let mut named = self.named(shown, Names { peer: to, ..shown });
        let programs = Arc::clone(self);
        tokio::spawn(async move {
            match programs.agent.join_client(from, to, &requester).await {
                Ok((secure, established)) => {
                    if let Ok(real) = real(&secure, to) {
                        named.rename(real);
                    }
                    carry(ours, secure, established, to).await;
                }
                Err(why) => {
                    programs.agent.on_refused(&requester, &why);
                    reset(&ours);
                }
            }
            drop((named, relaying));
        });
        Ok(AgentStatus::Failed(libc::EINPROGRESS))
    }

    /// Connects a program's `socket` to a connection that is secured, by way of this process.
    async fn relay(
        self: &Arc<Self>,
        socket: &Socket,
        (secure, established): (TcpStream, Established),
        to: SocketAddr,
        relaying: Relaying,
    ) -> Result<(), Failure> {
        let (ours, shown) = join(socket, to.is_ipv6()).await?;
        let named = self.named(shown, real(&secure, to)?);
        tokio::spawn(async move {
            carry(ours, secure, established, to).await;
            drop((named, relaying));
        });
        Ok(())
    }
}

/// A connection to an address of this machine; `None` if a firewall has sent it elsewhere.
async fn dial_here(from: SocketAddr, to: SocketAddr) -> Result<Option<TcpStream>, Failure> {
    let near = dial(from, to).await?;
    let local = near.local_addr()?;
    // The kernel may need a moment to make the other end.
    for _ in 0..LOOKS {
        if stays_here(local, to) {
            return Ok(Some(near));
        }
        sleep(BETWEEN_LOOKS).await;
    }
    tracing::info!(%to, "an address of this machine, but no socket here has this connection: it is secured");
    Ok(None)
}

fn real(secure: &TcpStream, to: SocketAddr) -> io::Result<Names> {
    Ok(Names {
        local: secure.local_addr()?,
        peer: to,
    })
}
