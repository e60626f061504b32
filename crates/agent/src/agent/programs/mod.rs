//! The carrier of programs that are run without root: every TCP socket they have comes from here.
//!
//! `stcp run` forbids its program to make TCP sockets; the preload shim asks for them here, over a
//! Unix socket. What is handed out is bound to loopback's device, so whoever goes past the shim gets
//! nowhere with it. `connect()` is answered with a connection to this
//! process, and the bytes are relayed over TLS as the redirect's relay does; `listen()` with the
//! end of a channel on which finished connections arrive (`listen`). Without this process no call
//! succeeds. What stays on the machine stays in clear (`places`).

mod closer;
mod connect;
mod join;
mod listen;
mod moved;
mod unproven;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;
use towline::io::random_seed;
use towline::stcp::slots::Slots;
use towline_wire::{AgentAnswer, AgentRequest, AgentStatus, Carrier, Operation, Side};

use moved::Addresses;
use unproven::Unproven;

use super::places::kernel_tells;
use super::preload::{PreloadListener, receive_request, send_answer};
use super::{Agent, Complaint, Failure, Requester};

/// The shim asks at once; whoever does not is somebody else.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Sockets bound to it cannot reach beyond this machine.
const LOOPBACK: &[u8] = b"lo";

/// No address.
const NONE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The programs of one `stcp run`.
#[derive(Debug)]
pub struct Programs {
    agent: Arc<Agent>,
    listener: PreloadListener,
    name: String,
    token: u64,
    probe: SocketAddr,
    unproven: Unproven,
    addresses: Addresses,
    /// The real addresses of relayed connections, by those that the programs' sockets have.
    names: Mutex<HashMap<Names, Names>>,
}

/// Both addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Names {
    local: SocketAddr,
    peer: SocketAddr,
}

impl Programs {
    /// Listens for the shim. `probe` is a destination at which nobody is: whoever connects to it is
    /// answered with its port as a decimal line. Within a tokio runtime.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(agent: Arc<Agent>, probe: SocketAddr) -> io::Result<Self> {
        if !kernel_tells()? {
            tracing::warn!(
                "this kernel does not tell which connections stay on this machine (sock_diag; as root: \
                 `modprobe tcp_diag`): they have to be secured too"
            );
        }
        let unproven = Unproven::new(Slots::new(agent.servers.most()))?;
        let token = random()?;
        let name = format!("towline-stcp-{:016x}", random()?);
        Ok(Self {
            agent,
            listener: PreloadListener::bind(&name)?,
            name,
            token,
            probe,
            unproven,
            addresses: Addresses::new(),
            names: Mutex::default(),
        })
    }

    /// What the shim has to find in `TOWLINE_STCP_AGENT`: the token as 16 hexadecimal digits, then the
    /// abstract name of the socket.
    pub fn environment(&self) -> String {
        format!("{:016x}{}", self.token, self.name)
    }

    /// Answers the programs, for ever.
    pub async fn serve(self: Arc<Self>) {
        tokio::join!(self.serve_clients(), self.addresses.watch());
    }

    /// Waits until what programs that have ended wrote last has left.
    pub async fn drain(&self) {
        self.agent.drain().await;
    }

    async fn serve_clients(self: &Arc<Self>) {
        // Everybody on the host can cause such lines.
        let complaint = Arc::new(Mutex::new(Complaint::default()));
        loop {
            let place = self.unproven.place().await;
            let client = self.listener.next().await;
            let (programs, complaint) = (Arc::clone(self), Arc::clone(&complaint));
            tokio::spawn(async move {
                let Err(error) = programs.serve_client(client, place).await else {
                    return;
                };
                let mut complaint = complaint.lock().unwrap_or_else(PoisonError::into_inner);
                if complaint.is_due() {
                    tracing::warn!("a program's request was dropped: {error}");
                }
            });
        }
    }

    /// One request.
    async fn serve_client(
        self: &Arc<Self>,
        client: AsyncFd<Socket>,
        place: OwnedSemaphorePermit,
    ) -> io::Result<()> {
        if let Err(error) = self.unproven.meet(&client, self.token).await {
            self.unproven.dismiss(client, place);
            return match error.kind() {
                // It only wanted to know whether we are here.
                io::ErrorKind::UnexpectedEof => Ok(()),
                _ => Err(error),
            };
        }
        drop(place);
        let client = &client;
        let Some((request, socket)) = receive_request(client).await? else {
            return Ok(());
        };
        let answering = self.answer(&request, socket);
        let answered = match request.operation {
            // A program that waits no longer, or has ended, must not hold up anything.
            Operation::Connect => tokio::select! {
                answered = answering => answered,
                _ = receive_request(client) => return Ok(()),
            },
            _ => answering.await,
        };
        let (answer, descriptor) = match answered {
            Ok(answered) => answered,
            Err(why) => (status(AgentStatus::Failed(why.errno())), None),
        };
        send_answer(client, &answer, descriptor.as_ref().map(AsFd::as_fd)).await
    }

    async fn answer(
        self: &Arc<Self>,
        request: &AgentRequest,
        socket: Option<Socket>,
    ) -> Result<(AgentAnswer, Option<OwnedFd>), Failure> {
        let done = status(AgentStatus::Done);
        if socket.as_ref().is_some_and(|socket| !is_tcp(socket)) {
            return Err(errno(libc::EINVAL));
        }
        Ok(match (request.operation, socket) {
            (Operation::Socket, None) => {
                let domain = Domain::for_address(request.local);
                (done, Some(confined(domain).map_err(Failure::Call)?.into()))
            }
            (Operation::Connect, Some(socket)) => {
                let (connected, instead) = self.connect(request, socket).await?;
                (status(connected), instead.map(OwnedFd::from))
            }
            (Operation::Listen, Some(socket)) => {
                let channel = self.listen(request, &socket).map_err(Failure::Call)?;
                (done, Some(channel))
            }
            (Operation::Names, None) => {
                let names = Names {
                    local: request.local,
                    peer: request.peer,
                };
                let Some(real) = self.lock_names().get(&names).copied() else {
                    return Err(errno(libc::ENOENT));
                };
                let answer = AgentAnswer {
                    local: real.local,
                    peer: real.peer,
                    ..done
                };
                (answer, None)
            }
            _ => return Err(errno(libc::EINVAL)),
        })
    }

    fn requester(request: &AgentRequest, side: Side, peer: SocketAddr) -> Requester {
        Requester {
            side,
            carrier: Carrier::Preload,
            peer,
            pid: request.pid,
            uid: request.uid,
        }
    }

    fn lock_names(&self) -> MutexGuard<'_, HashMap<Names, Names>> {
        // Nothing is half done while it is locked.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the real addresses of `shown` until the result is dropped.
    fn named(self: &Arc<Self>, shown: Names, real: Names) -> Named {
        self.lock_names().insert(shown, real);
        Named(Arc::clone(self), shown)
    }
}

/// A row in the table of real addresses.
struct Named(Arc<Programs>, Names);

impl Named {
    fn rename(&mut self, real: Names) {
        self.0.lock_names().insert(self.1, real);
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.0.lock_names().remove(&self.1);
    }
}

fn status(status: AgentStatus) -> AgentAnswer {
    AgentAnswer {
        status,
        local: NONE,
        peer: NONE,
    }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&random_seed()?[..8]);
    Ok(u64::from_ne_bytes(bytes))
}

fn errno(number: i32) -> Failure {
    Failure::Call(io::Error::from_raw_os_error(number))
}

fn is_tcp(socket: &Socket) -> bool {
    socket
        .protocol()
        .is_ok_and(|found| found == Some(Protocol::TCP))
}

/// A TCP socket that reaches this machine only; nobody but root can change that (Linux 5.7).
fn confined(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind_device(Some(LOOPBACK))?;
    Ok(socket)
}
