//! The requests of programs: each is taken in, answered by the file that it is for, and sent back.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket};
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;
use towline_wire::{AgentAnswer, AgentRequest, AgentStatus, Operation};

use super::super::Complaint;
use super::super::failure::Failure;
use super::super::preload::{receive_request, send_answer};
use super::{Names, Programs, confined};

/// No address.
pub(super) const NONE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Programs {
    /// Answers the programs, for ever.
    pub async fn serve(self: Arc<Self>) {
        tokio::join!(self.serve_clients(), self.addresses.watch());
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
}

fn status(status: AgentStatus) -> AgentAnswer {
    AgentAnswer {
        status,
        local: NONE,
        peer: NONE,
    }
}

fn errno(number: i32) -> Failure {
    Failure::Call(io::Error::from_raw_os_error(number))
}

fn is_tcp(socket: &Socket) -> bool {
    socket
        .protocol()
        .is_ok_and(|found| found == Some(Protocol::TCP))
}
