//! The end of connections whose records the kernel makes.
//!
//! The peer must be told of it by close_notify, or it would take it for a cut. Programs share sockets,
//! hand them on and end in any way, so none of them can tell who is the last: this process keeps a copy
//! of each, and looks which of them no process of the run has any more, at once when the shim says that
//! one was closed, else every second. It counts when it was so twice: one may just be moved.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use socket2::Socket;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use super::super::Complaint;
use super::super::handshake::registered;
use super::super::relay::Relaying;
use super::Programs;
use super::finish::Tellers;
use super::listen::Listening;
use super::open::{inode, open_sockets};

/// Between looks at most.
const LOOK: Duration = Duration::from_secs(1);

/// Between looks at least.
const PAUSE: Duration = Duration::from_millis(10);

/// Between looks at least, in times of what the one before took: programs may have many descriptors.
const REST: u32 = 4;

/// Where there is room, the end of a stream needs no longer.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Says which processes there are of the run; an error, that there was no way to look.
pub type Members = Box<dyn Fn() -> io::Result<Vec<i32>> + Send + Sync>;

/// Copies of sockets that programs have.
pub(super) struct Held {
    members: Members,
    kept: Mutex<Kept>,
    /// A program may have closed.
    hint: Notify,
    complaint: Mutex<Complaint>,
    pub(super) tellers: Tellers,
}

#[derive(Default)]
struct Kept {
    /// By the numbers that the system gives them.
    sockets: HashMap<u64, HeldSocket>,
    /// The programs' ends of channels.
    channels: HashSet<u64>,
    /// Sockets whose stream is being ended while a program has them. What is watched never changes, and
    /// goes with the task.
    finishing: HashMap<u64, watch::Receiver<()>>,
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
            complaint: Mutex::default(),
            tellers: Tellers::default(),
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
        let members = match (self.members)() {
            Ok(members) => members,
            Err(error) => {
                self.complain(format_args!(
                    "the processes of the run cannot be seen: {error}"
                ));
                return (Vec::new(), false);
            }
        };
        let open = match open_sockets(&members, is_known) {
            Ok(open) => open,
            Err((process, error)) => {
                // It may have any of them.
                self.complain(format_args!(
                    "the descriptors of process {process} cannot be seen ({error}): until it ends, \
                     peers are not told that connections of this run have ended"
                ));
                self.forget_reset();
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

    fn complain(&self, why: fmt::Arguments<'_>) {
        let complaint = self.complaint.lock();
        if complaint.unwrap_or_else(PoisonError::into_inner).is_due() {
            tracing::warn!("{why}");
        }
    }

    /// Gives up what has no peer any more: there is nothing to end, whoever has it.
    fn forget_reset(&self) {
        let has_peer = |held: &HeldSocket| held.socket.peer_addr().is_ok();
        self.lock().sockets.retain(|_, held| has_peer(held));
    }

    /// To end a stream while a program has the socket with this number, unless that is under way.
    fn begin_finishing(self: &Arc<Self>, number: u64) -> (watch::Receiver<()>, Option<Finishing>) {
        let mut kept = self.lock();
        if let Some(before) = kept.finishing.get(&number) {
            return (before.clone(), None);
        }
        let (sender, receiver) = watch::channel(());
        kept.finishing.insert(number, receiver.clone());
        let finishing = Finishing {
            held: Arc::clone(self),
            number,
            _done: sender,
        };
        (receiver, Some(finishing))
    }

    /// Ends what nobody has any more.
    async fn end(&self, socket: Socket) -> io::Result<()> {
        // The last close resets it.
        if socket.linger()? == Some(Duration::ZERO) {
            return Ok(());
        }
        let finishing = self.lock().finishing.get(&inode(&socket)?).cloned();
        if let Some(mut finishing) = finishing {
            // It sees that nobody has it.
            let _ = finishing.changed().await;
        }
        let socket = Arc::new(registered(socket)?);
        self.tellers.end(&socket).await;
        // The last close would wait.
        socket.get_ref().set_linger(None)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing is half done while it is locked.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one task that ends the stream of a socket that a program has.
struct Finishing {
    held: Arc<Held>,
    number: u64,
    _done: watch::Sender<()>,
}

impl Finishing {
    fn is_had(&self) -> bool {
        self.held.lock().sockets.contains_key(&self.number)
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        self.held.lock().finishing.remove(&self.number);
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
            gone.into_iter().for_each(|gone| self.end(held, gone));
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
            sockets.for_each(|gone| self.end(held, gone));
        }
    }

    fn end(&self, held: &Arc<Held>, gone: HeldSocket) {
        let relaying = Relaying::new(&self.agent);
        let held = Arc::clone(held);
        tokio::spawn(async move {
            // A socket that cannot be asked is gone.
            let _ = held.end(gone.socket).await;
            drop((gone.place, relaying));
        });
    }

    /// The program sends no more. What it wrote may take long to leave, and it need not wait for that.
    pub(super) async fn shut_down(&self, held: &Arc<Held>, socket: Socket) -> io::Result<()> {
        let (mut done, finishing) = held.begin_finishing(inode(&socket)?);
        if let Some(finishing) = finishing {
            let socket = Arc::new(registered(socket)?);
            let relaying = Relaying::new(&self.agent);
            tokio::spawn(async move {
                // However long the peer takes nothing, as TCP.
                let tellers = &finishing.held.tellers;
                tellers.finish(&socket, || finishing.is_had()).await;
                drop((finishing, relaying));
            });
        }
        let _ = timeout(AT_ONCE, done.changed()).await;
        Ok(())
    }
}
