//! `connect()` of a program.
//!
//! A socket that blocks is connected when the handshake is finished, and the program sees why if it
//! is not. An event loop must not be held up: one that does not block is connected to us at once,
//! and what cannot be connected or secured is reset. Loopback cannot be reached from other addresses
//! of ours, so a program whose socket is bound to one gets another socket in its place. So does one
//! whose records the kernel makes (`keyed`); it waits in any case.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use socket2::Socket;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use towline_stcp::Established;
use towline_wire::{AgentRequest, AgentStatus, Side};

use super::super::places::{Place, canonical, place, stays_here};
use super::super::relay::{Relaying, carry, connect as connect_to, reset, unspecified};
use super::super::{Asker, Failure};
use super::join::{bound_to, join};
use super::{Names, Programs, confined, errno};

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
        let from = canonical(bound_to(&socket)?).ip();
        let place = place(to).map_err(Failure::Call)?;
        if let (Place::Away, Some(held)) = (place, &self.held) {
            let asker = self.asker(request, Side::Client, to);
            let keyed = self.connect_keyed(held, &socket, from, to, &asker).await?;
            return Ok((AgentStatus::Done, Some(keyed)));
        }
        if from.is_unspecified() || from.is_loopback() {
            let status = match place {
                Place::Loopback => AgentStatus::StaysHere,
                Place::Own => self.connect_here(&socket, to).await?,
                Place::Away => {
                    let asker = self.asker(request, Side::Client, to);
                    self.connect_away(&socket, unspecified(to.ip()), to, asker)
                        .await?
                }
            };
            return Ok((status, None));
        }
        let instead = confined(socket.domain()?)?;
        instead.set_nonblocking(socket.nonblocking()?)?;
        let status = match place {
            Place::Loopback | Place::Own => self.connect_here(&instead, to).await?,
            Place::Away => {
                let asker = self.asker(request, Side::Client, to);
                self.connect_away(&instead, from, to, asker).await?
            }
        };
        Ok((status, Some(instead)))
    }

    /// To an address of this machine: bytes are copied as they are.
    async fn connect_here(
        self: &Arc<Self>,
        socket: &Socket,
        to: SocketAddr,
    ) -> Result<AgentStatus, Failure> {
        let mut other = connect_to(to).await?;
        let real = Names {
            local: other.local_addr()?,
            peer: other.peer_addr()?,
        };
        if !stays_here(real.local, real.peer) {
            return Err(errno(libc::ENETUNREACH));
        }
        let (mut ours, shown) = join(socket, to.is_ipv6()).await?;
        let named = self.named(shown, real);
        let relaying = Relaying::new(&self.agent);
        tokio::spawn(async move {
            if copy_bidirectional(&mut ours, &mut other).await.is_err() {
                reset(&ours);
                reset(&other);
            }
            drop((named, relaying));
        });
        Ok(AgentStatus::Done)
    }

    async fn connect_away(
        self: &Arc<Self>,
        socket: &Socket,
        from: IpAddr,
        to: SocketAddr,
        asker: Asker,
    ) -> Result<AgentStatus, Failure> {
        let relaying = Relaying::new(&self.agent);
        if !socket.nonblocking()? {
            let dialled = self.agent.join_client(from, to, &asker).await;
            let secured = dialled.inspect_err(|why| {
                self.agent.on_refused(&asker, why);
            })?;
            self.relay(socket, secured, to, relaying).await?;
            return Ok(AgentStatus::Done);
        }
        let (ours, shown) = join(socket, to.is_ipv6()).await?;
        // Its own address is known later.
        let mut named = self.named(shown, Names { peer: to, ..shown });
        let programs = Arc::clone(self);
        tokio::spawn(async move {
            match programs.agent.join_client(from, to, &asker).await {
                Ok((secure, established)) => {
                    if let Ok(real) = real(&secure, to) {
                        named.rename(real);
                    }
                    carry(ours, secure, established, to).await;
                }
                Err(why) => {
                    programs.agent.on_refused(&asker, &why);
                    reset(&ours);
                }
            }
            drop((named, relaying));
        });
        Ok(AgentStatus::Failed(libc::EINPROGRESS))
    }

    /// Connects a program's `socket` to a connection that is secured, by way of this process.
    pub(super) async fn relay(
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

fn real(secure: &TcpStream, to: SocketAddr) -> io::Result<Names> {
    Ok(Names {
        local: secure.local_addr()?,
        peer: to,
    })
}
