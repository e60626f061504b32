//! Whoever connects to the socket of the run, before it has shown the token.
//!
//! Every user of the machine can. What they send along is not received, so it is closed with their
//! connection; and that may take as long as they like (SO_LINGER), so a thread does it that has nothing
//! else to do.

use std::io;
use std::sync::{Arc, mpsc};

use socket2::Socket;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::super::preload::peek_request;
use super::super::slots::Slots;
use super::REQUEST_TIMEOUT;

/// Those who have not shown the token yet.
#[derive(Debug)]
pub(super) struct Strangers {
    /// Of those who say nothing the oldest goes.
    silent: Slots,
    /// For them, and for as many that are being closed.
    places: Arc<Semaphore>,
    closer: mpsc::Sender<(Socket, OwnedSemaphorePermit)>,
}

impl Strangers {
    /// `silent` are the places for those who say nothing.
    pub(super) fn new(silent: Slots) -> io::Result<Self> {
        let (closer, closing) = mpsc::channel();
        let close = move || closing.iter().for_each(drop);
        let thread = std::thread::Builder::new().name("closer".to_owned());
        thread.spawn(close)?;
        Ok(Self {
            places: Arc::new(Semaphore::new(2 * silent.most())),
            silent,
            closer,
        })
    }

    /// A place for the next who comes.
    pub(super) async fn place(&self) -> OwnedSemaphorePermit {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.expect("nobody closes it")
    }

    /// Waits for the token, and takes nothing.
    pub(super) async fn meet(&self, client: &AsyncFd<Socket>, token: u64) -> io::Result<()> {
        let (_slot, evicted) = self.silent.enter();
        let request = tokio::select! {
            request = timeout(REQUEST_TIMEOUT, peek_request(client)) => request,
            () = evicted => return Err(io::Error::other("too many ask nothing: this was the oldest")),
        };
        match request.map_err(|_| io::ErrorKind::TimedOut)?? {
            Some(request) if request.token == token => Ok(()),
            Some(_) => Err(io::ErrorKind::PermissionDenied.into()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Lets one go.
    pub(super) fn dismiss(&self, client: AsyncFd<Socket>, place: OwnedSemaphorePermit) {
        // The thread lives as long as this.
        let _ = self.closer.send((client.into_inner(), place));
    }
}

#[cfg(test)]
impl Strangers {
    pub(super) fn most_silent(&self) -> usize {
        self.silent.most()
    }

    pub(super) fn silent(&self) -> usize {
        self.silent.len()
    }
}
