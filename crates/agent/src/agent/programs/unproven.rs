//! Clients of the run's socket that have not shown its token yet.
//!
//! Every user of the host can be one. Those that say nothing share places by user. What they send
//! along is not received, so it is closed with their connection, by a thread that has nothing else to
//! do (`closer`).

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use towline::stcp::slots::{Party, Slots};

use super::super::preload::peek_request;
use super::closer::Closer;

/// The shim asks at once; whoever does not is somebody else.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients that have not shown the token yet.
#[derive(Debug)]
pub(super) struct Unproven {
    /// Of those that say nothing the oldest goes, of the user with the most.
    silent: Slots,
    /// For them, and for as many that are being closed.
    places: Arc<Semaphore>,
    closer: Closer<(Socket, OwnedSemaphorePermit)>,
}

impl Unproven {
    /// `silent` are the places for those that say nothing.
    pub(super) fn new(silent: Slots) -> io::Result<Self> {
        Ok(Self {
            places: Arc::new(Semaphore::new(2 * silent.most())),
            silent,
            closer: Closer::new()?,
        })
    }

    /// A place for the next client.
    pub(super) async fn place(&self) -> OwnedSemaphorePermit {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.expect("nobody closes it")
    }

    /// Waits for the token, and takes nothing.
    pub(super) async fn meet(&self, client: &AsyncFd<Socket>, token: u64) -> io::Result<()> {
        let (_slot, evicted) = self.silent.enter(Party::user(user_of(client.get_ref())?));
        let request = tokio::select! {
            request = timeout(REQUEST_TIMEOUT, peek_request(client)) => request,
            () = evicted => {
                return Err(io::Error::other("too many ask nothing: this was of the user with the most"));
            }
        };
        match request.map_err(|_| io::ErrorKind::TimedOut)?? {
            Some(request) if request.token == token => Ok(()),
            Some(_) => Err(io::ErrorKind::PermissionDenied.into()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Closes one.
    pub(super) fn dismiss(&self, client: AsyncFd<Socket>, place: OwnedSemaphorePermit) {
        self.closer.close((client.into_inner(), place));
    }
}

/// Whose process connected.
fn user_of(client: &Socket) -> io::Result<u32> {
    let mut who = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `len` bytes of `who`, three integers.
    let asked = unsafe {
        libc::getsockopt(
            client.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut len,
        )
    };
    match asked {
        0 => Ok(who.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
impl Unproven {
    pub(super) fn most_silent(&self) -> usize {
        self.silent.most()
    }

    pub(super) fn silent(&self) -> usize {
        self.silent.len()
    }
}
