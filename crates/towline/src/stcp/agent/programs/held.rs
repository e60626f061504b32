//! The end of connections whose records the kernel makes.
//!
//! The peer must be told of it by close_notify, or it would take it for a cut. Programs share sockets,
//! hand them on and end in any way, so none of them can tell who is the last: this process keeps a copy
//! of each, and looks which of them no process of the run has any more, at once when the shim says that
//! one was closed, else every second. It counts when it was so twice: one may just be moved.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use super::super::handshake::registered;
use super::super::relay::Relaying;
use super::Programs;
use super::listen::Listening;
use super::open::open_sockets;
use crate::stcp::kernel::{receive, send_close_notify};

/// Between looks at most.
const LOOK: Duration = Duration::from_secs(1);

/// Between looks at least.
const PAUSE: Duration = Duration::from_millis(10);

/// Between looks at least, in times of what the one before took: programs may have many descriptors.
const REST: u32 = 4;

/// Where there is room, the end of a stream needs no longer.
const AT_ONCE: Duration = Duration::from_millis(100);

/// How long a peer may take nothing of what was sent to it before the end.
const STALLED: Duration = Duration::from_secs(30);

/// Reads in a row, of what a program did not want to read.
const READS: u32 = 64;

/// Says which processes there are of the run.
pub type Members = Box<dyn Fn() -> Vec<i32> + Send + Sync>;

/// Copies of sockets that programs have.
pub(super) struct Held {
    members: Members,
    kept: Mutex<Kept>,
    /// A program may have closed.
    hint: Notify,
}

#[derive(Default)]
struct Kept {
    /// By the numbers that the system gives them.
    sockets: HashMap<u64, HeldSocket>,
    /// The programs' ends of channels.
    channels: HashSet<u64>,
}

pub(super) struct HeldSocket {
    socket: Socket,
    way: Way,
    /// Nobody had it at the last look.
    was_missed: bool,
    /// Of one that came from outside.
    place: Option<OwnedSemaphorePermit>,
}

/// How it comes to a program. Meanwhile nobody has it, and it is not to be missed.
pub(super) enum Way {
    /// Beside the answer to a `connect()`.
    Answer,
    /// As the message of a channel with this number.
    Channel(Weak<Listening>, u64),
    /// It has come, or never will.
    Past,
}

impl Way {
    fn is_past(&self) -> bool {
        match self {
            Self::Answer => false,
            Self::Channel(listening, number) => listening
                .upgrade()
                .is_none_or(|listening| listening.is_taken(*number)),
            Self::Past => true,
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl Held {
    pub(super) fn new(members: Members) -> Self {
        Self {
            members,
            kept: Mutex::default(),
            hint: Notify::new(),
        }
    }

    /// Keeps `copy`, of a socket that is given to a program.
    pub(super) fn keep(
        &self,
        copy: Socket,
        inode: u64,
        way: Way,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let held = HeldSocket {
            socket: copy,
            way,
            was_missed: false,
            place,
        };
        self.lock().sockets.insert(inode, held);
    }

    /// This one has come to a program, or never will.
    pub(super) fn on_arrived(&self, inode: u64) {
        if let Some(socket) = self.lock().sockets.get_mut(&inode) {
            socket.way = Way::Past;
        }
    }

    /// A program's end of a channel: what waits there is on a way of its own.
    pub(super) fn on_channel(&self, inode: u64) {
        self.lock().channels.insert(inode);
    }

    /// Nobody has it any more.
    pub(super) fn on_channel_closed(&self, inode: u64) {
        self.lock().channels.remove(&inode);
        self.hint();
    }

    /// A program has closed a socket.
    pub(super) fn hint(&self) {
        self.hint.notify_one();
    }

    /// What nobody has any more, at the second look, and whether another look is due soon.
    pub(super) fn look(&self) -> (Vec<HeldSocket>, bool) {
        let (held, channels): (HashSet<u64>, _) = {
            let kept = self.lock();
            if kept.sockets.is_empty() {
                return (Vec::new(), false);
            }
            (
                kept.sockets.keys().copied().collect(),
                kept.channels.clone(),
            )
        };
        let is_known = |inode| held.contains(&inode) || channels.contains(&inode);
        let open = match open_sockets(&(self.members)(), is_known) {
            Ok(open) => open,
            Err(error) => {
                tracing::debug!("a program's descriptors cannot be seen: {error}");
                return (Vec::new(), false);
            }
        };
        let missed: HashSet<u64> = {
            let mut kept = self.lock();
            let missed = kept.sockets.iter_mut().filter_map(|(inode, socket)| {
                if open.sockets.contains(inode) {
                    socket.way = Way::Past;
                    return None;
                }
                socket.way.is_past().then_some(*inode)
            });
            missed.collect()
        };
        // One that is handed from one process to another is in neither.
        let are_lost = !missed.is_empty() && !open.are_some_on_their_way();
        let mut again = false;
        let mut kept = self.lock();
        let gone = kept.sockets.extract_if(|inode, socket| {
            let is_missed = are_lost && missed.contains(inode);
            let was_missed = std::mem::replace(&mut socket.was_missed, is_missed);
            again |= is_missed && !was_missed;
            is_missed && was_missed
        });
        let gone = gone.map(|(_, held)| held).collect();
        (gone, again)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing is half done while it is locked.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Programs {
    /// Looks for ever, and ends what nobody has any more.
    pub(super) async fn end_closed(self: &Arc<Self>, held: &Arc<Held>) {
        loop {
            let began = Instant::now();
            let looking = Arc::clone(held);
            let looked = tokio::task::spawn_blocking(move || looking.look()).await;
            let (gone, again) = looked.unwrap_or_default();
            gone.into_iter().for_each(|held| self.end(held));
            sleep((began.elapsed() * REST).max(PAUSE)).await;
            if !again {
                let _ = timeout(LOOK, held.hint.notified()).await;
            }
        }
    }

    /// All programs have ended.
    pub(super) fn end_all_held(&self) {
        if let Some(held) = &self.held {
            let kept = std::mem::take(&mut *held.lock());
            let sockets = kept.sockets.into_values();
            sockets.for_each(|held| self.end(held));
        }
    }

    fn end(&self, held: HeldSocket) {
        let relaying = Relaying::new(&self.agent);
        tokio::spawn(async move {
            end(held.socket).await;
            drop((held.place, relaying));
        });
    }

    /// The program sends no more. What it wrote may take long to leave, and it need not wait for that.
    pub(super) async fn shut_down(&self, socket: Socket) -> io::Result<()> {
        let socket = registered(socket)?;
        let relaying = Relaying::new(&self.agent);
        let shutting = tokio::spawn(async move {
            finish_writing(&socket).await;
            drop(relaying);
        });
        let _ = timeout(AT_ONCE, shutting).await;
        Ok(())
    }
}

/// As the kernel would when a program is gone: what was written last still leaves.
async fn end(socket: Socket) {
    // The last close resets it.
    if (socket.linger()).is_ok_and(|linger| linger == Some(Duration::ZERO)) {
        return;
    }
    let Ok(socket) = registered(socket) else {
        return;
    };
    finish_writing(&socket).await;
    let mut patience = Patience::new(&socket);
    // What comes meanwhile, session tickets say, would have the kernel reset the connection.
    while drain(socket.get_ref()) && patience.lasts() && patience.left > 0 {
        sleep(PAUSE).await;
    }
}

/// Sends close_notify and FIN, once all that was written before has room.
async fn finish_writing(socket: &AsyncFd<Socket>) {
    let mut patience = Patience::new(socket);
    let tell = |socket: &Socket| {
        send_close_notify(socket)?;
        socket.shutdown(Shutdown::Write)
    };
    // One that was told already, or is gone, is an error.
    while timeout(AT_ONCE, socket.async_io(Interest::WRITABLE, tell))
        .await
        .is_err()
        && patience.lasts()
    {}
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
    socket: &'a AsyncFd<Socket>,
    /// Bytes that it has not taken.
    left: u64,
    since: Instant,
}

impl<'a> Patience<'a> {
    fn new(socket: &'a AsyncFd<Socket>) -> Self {
        Self {
            socket,
            left: u64::MAX,
            since: Instant::now(),
        }
    }

    fn lasts(&mut self) -> bool {
        let left = unsent(self.socket.get_ref());
        if left < self.left {
            self.since = Instant::now();
        }
        self.left = left;
        // One that was reset has no peer.
        self.socket.get_ref().peer_addr().is_ok() && self.since.elapsed() < STALLED
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
