//! How the peer is told that a stream of the program's has ended, where the kernel makes the records.
//!
//! The kernel locks a connection before it looks whether a call may wait, and a writer that waits for
//! room keeps the lock. So other threads than tokio's workers call it, for a second at most: TCP has a
//! writer's call fail when another thread shuts the connection down, and so does this. The peer then
//! sees a cut, and it is one.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use socket2::Socket;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::stcp::kernel::{receive, send_close_notify};
use crate::stcp::ktls;

/// Cap: threads that tell peers the ends of streams at the same time. The others wait for their turn.
pub(super) const MAX_TELLERS: usize = 64;

/// A call that takes longer waits for a writer.
const INSIDE: Duration = Duration::from_secs(1);

/// Between looks whether a connection is there that has no room, and whether somebody writes.
const LOOK: Duration = Duration::from_secs(1);

/// Between looks at what the peer has not taken.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a peer may take nothing of what was sent to it before the end.
const STALLED: Duration = Duration::from_secs(30);

/// Reads in a row, of what a program did not want to read.
const READS: u32 = 64;

/// Those who tell the ends of streams.
pub(super) struct Tellers {
    pub(super) turns: Arc<Semaphore>,
    /// How long a peer may take nothing, when no program has the connection any more.
    pub(super) stalled: Duration,
}

impl Default for Tellers {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MAX_TELLERS)),
            stalled: STALLED,
        }
    }
}

impl Tellers {
    /// Sends close_notify and FIN, once all that was written before has room: as long as there is a
    /// connection and `is_wanted`.
    pub(super) async fn finish(
        &self,
        socket: &Arc<AsyncFd<Socket>>,
        mut is_wanted: impl FnMut() -> bool,
    ) {
        // One that was told already, or is gone, is done.
        while !self.tell(socket).await {
            // One that was reset has no peer.
            if socket.get_ref().peer_addr().is_err() || !is_wanted() {
                return;
            }
            if let Ok(Ok(mut ready)) = timeout(LOOK, socket.writable()).await {
                ready.clear_ready();
            }
        }
    }

    /// As the kernel would when a program is gone: what was written last still leaves.
    pub(super) async fn end(&self, socket: &Arc<AsyncFd<Socket>>) {
        let mut patience = Patience::new(socket.get_ref(), self.stalled);
        self.finish(socket, || patience.lasts()).await;
        let mut patience = Patience::new(socket.get_ref(), self.stalled);
        // What comes meanwhile, session tickets say, would have the kernel reset the connection.
        while drain(socket.get_ref()) && patience.lasts() && patience.left > 0 {
            sleep(PAUSE).await;
        }
    }

    /// Whether it is done; if not, there is no room.
    async fn tell(&self, socket: &Arc<AsyncFd<Socket>>) -> bool {
        let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else {
            return true;
        };
        let call = Arc::new(Call::default());
        let (its, calling) = (Arc::clone(socket), Arc::clone(&call));
        let mut telling = spawn_blocking(move || {
            let done = calling.make(its.get_ref());
            drop(turn);
            done
        });
        loop {
            match timeout(INSIDE, &mut telling).await {
                Ok(told) => return told.unwrap_or(true),
                Err(_) if call.give_up() => {
                    let _ = socket.get_ref().shutdown(Shutdown::Write);
                    return true;
                }
                // There was no thread for it yet.
                Err(_) => {}
            }
        }
    }
}

/// One call of the kernel.
#[derive(Default)]
struct Call(AtomicU8);

impl Call {
    const BEGUN: u8 = 1;
    const GIVEN_UP: u8 = 2;

    fn make(&self, socket: &Socket) -> bool {
        self.0.store(Self::BEGUN, Ordering::SeqCst);
        loop {
            match self.try_make(socket) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
                Ok(()) => return true,
            }
        }
    }

    fn try_make(&self, socket: &Socket) -> io::Result<()> {
        // It sends nothing, but waits for the lock. There may be a writer where there is no room.
        socket.send_with_flags(&[], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)?;
        // Another alert would be an error that the program's next read meets.
        let is_given_up = self.0.load(Ordering::SeqCst) == Self::GIVEN_UP;
        if is_given_up || !ktls::is_open_for_writing(socket.as_fd()) {
            return Ok(());
        }
        send_close_notify(socket)?;
        socket.shutdown(Shutdown::Write)
    }

    /// Whether it had begun.
    fn give_up(&self) -> bool {
        let (from, to) = (Self::BEGUN, Self::GIVEN_UP);
        let exchange = self
            .0
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        exchange.is_ok()
    }
}

/// Takes what has come; whether there is still a connection.
fn drain(socket: &Socket) -> bool {
    let mut room = [0; 4096];
    for _ in 0..READS {
        match receive(socket, &mut room) {
            Ok((1.., _)) => {}
            Ok((0, _)) => return true,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

/// With a peer that takes what it is sent, be it slowly.
struct Patience<'a> {
    socket: &'a Socket,
    stalled: Duration,
    /// Bytes that it has not taken.
    left: u64,
    since: Instant,
}

impl<'a> Patience<'a> {
    fn new(socket: &'a Socket, stalled: Duration) -> Self {
        Self {
            socket,
            stalled,
            left: u64::MAX,
            since: Instant::now(),
        }
    }

    fn lasts(&mut self) -> bool {
        let left = unsent(self.socket);
        if left < self.left {
            self.since = Instant::now();
        }
        self.left = left;
        // One that was reset has no peer.
        self.socket.peer_addr().is_ok() && self.since.elapsed() < self.stalled
    }
}

/// Bytes that were sent over a socket and that the other end has not taken.
pub(super) fn unsent(socket: &impl AsRawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open; the kernel writes one integer.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match asked {
        0 => u64::try_from(bytes).unwrap_or_default(),
        _ => 0,
    }
}
