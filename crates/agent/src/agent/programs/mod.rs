//! The carrier of programs that are run without root: every TCP socket they have comes from here.
//!
//! `stcp run` forbids its program to make TCP sockets; the preload shim asks for them here, over a
//! Unix socket. What is handed out is bound to loopback's device, so whoever goes past the shim gets
//! nowhere with it. `connect()` is answered with a connection to this
//! process, and the bytes are relayed over TLS as the redirect's relay does; `listen()` with the
//! end of a channel on which finished connections arrive (`listen`). Without this process no call
//! succeeds. What stays on the machine stays in clear (`places`). This file holds what all requests
//! share; `serve` takes them in.

mod closer;
mod connect;
mod join;
mod listen;
mod moved;
mod serve;
mod unproven;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};
use towline::io::random_seed;
use towline::stcp::slots::Slots;
use towline_wire::{AgentRequest, Carrier, Side};

use moved::Addresses;
use unproven::Unproven;

use super::places::kernel_tells;
use super::preload::PreloadListener;
use super::{Agent, Requester};

/// Sockets bound to it cannot reach beyond this machine.
const LOOPBACK: &[u8] = b"lo";

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

    /// Waits until what programs that have ended wrote last has left.
    pub async fn drain(&self) {
        self.agent.drain().await;
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

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&random_seed()?[..8]);
    Ok(u64::from_ne_bytes(bytes))
}

/// A TCP socket that reaches this machine only; nobody but root can change that (Linux 5.7).
fn confined(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind_device(Some(LOOPBACK))?;
    Ok(socket)
}
