//! The agent of secure TCP: handshakes for programs that know nothing of them.
//!
//! Connections come over three carriers, each a file here: the kernel module's device (`module`),
//! redirected TCP connections (`relay`), and those that the preload shim has made here (`programs`, over
//! the Unix socket of `preload`). For each the agent makes the handshake by the [`Policy`] and gives the keys to whoever makes the records.
//! The keys never leave this process otherwise. Whatever goes wrong, the connection ends: there is
//! no way here in which it goes on in clear.

mod bpf;
mod failure;
mod guard;
mod handshake;
mod module;
mod places;
mod preload;
mod privileges;
mod programs;
mod relay;
mod seccomp;
mod upgrade;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use towline::stcp::RefusalLog;
use towline::stcp::slots::{Party, Slots};
use towline_stcp::Established;
use towline_wire::{Carrier, Side};

use crate::policy::{Admitted, Policy};
pub use guard::{guard_cgroup, inherited_sockets};
pub use module::ModuleDevice;
pub use privileges::{drop_privileges, forbid_new_privileges};
pub use programs::Programs;
pub use relay::{Relay, RelayPorts};
pub use seccomp::{forbid_clear_tcp, forbid_packets};
pub use upgrade::{Upgrade, is_upgraded, upgrade_cgroup, upgrade_is_available};

use failure::{Failure, HANDSHAKE_TIMEOUT};
use handshake::{Wire, shake_hands};

/// Cap: handshakes under way, each side; for one more, one has to go of the user, and of his peers' prefix,
/// with the most.
const MAX_HANDSHAKES: usize = 1024;

/// With few descriptors, handshakes from outside may have one of so many.
const DESCRIPTORS_A_HANDSHAKE: usize = 8;

/// Cap: peers looked up in files at once; the others wait, as part of their handshake.
const MAX_JUDGING: usize = 4;

/// Cap: peers that are written down as new at once; the others wait, as part of their handshake.
const MAX_INTRODUCING: usize = 64;

/// Cap: of so many descriptors that the process may have, one connection from outside. Each takes two
/// at most, so half of them are left for what programs open.
const DESCRIPTORS_EACH: usize = 4;

/// Over so long what goes wrong again and again is one line.
const LOGGED: Duration = Duration::from_secs(1);

/// The agent. One for each process, shared by its carriers.
#[derive(Debug)]
pub struct Agent {
    policy: RwLock<Arc<Policy>>,
    clients: Slots,
    servers: Slots,
    handshake_timeout: Duration,
    counters: Counters,
    refusals: RefusalLog,
    judging: Arc<Semaphore>,
    introducing: Arc<Semaphore>,
    /// Connections that go through this process.
    relayed: tokio::sync::watch::Sender<usize>,
    /// Places for those that come from outside and take descriptors here.
    outside: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Counters {
    established: AtomicU64,
    refused: AtomicU64,
}

/// What an agent has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    /// Handshakes that ended well.
    pub established: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Handshakes under way.
    pub pending: u64,
}

towline::engine::visit_fields! { AgentStats:
    Counter established: Count, "Handshakes that ended well";
    Counter refused: Count, "Connections that were refused";
    Gauge pending: Count, "Handshakes under way";
}

/// What goes wrong again and again is logged once a second.
#[derive(Debug, Default)]
struct Complaint(Option<Instant>);

impl Complaint {
    fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|last| last.elapsed() >= LOGGED);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

/// Who wants what; for the log.
#[derive(Clone, Copy, Debug)]
struct Requester {
    side: Side,
    carrier: Carrier,
    peer: SocketAddr,
    pid: u32,
    uid: u32,
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// In the agent's own network namespace.
    Own,
    /// In another one.
    Other,
}

impl Agent {
    /// An agent that acts by `policy`. How many handshakes from outside it has goes by the limit of descriptors
    /// that is in force now.
    pub fn new(policy: Policy) -> Arc<Self> {
        Self::with_timeout(policy, HANDSHAKE_TIMEOUT)
    }

    fn with_timeout(policy: Policy, handshake_timeout: Duration) -> Arc<Self> {
        let descriptors = descriptor_limit();
        Arc::new(Self {
            policy: RwLock::new(Arc::new(policy)),
            clients: Slots::new(MAX_HANDSHAKES),
            servers: Slots::new(most_handshakes(descriptors)),
            handshake_timeout,
            counters: Counters::default(),
            refusals: RefusalLog::default(),
            judging: Arc::new(Semaphore::new(MAX_JUDGING)),
            introducing: Arc::new(Semaphore::new(MAX_INTRODUCING)),
            relayed: tokio::sync::watch::Sender::new(0),
            outside: Arc::new(Semaphore::new(most_from_outside(descriptors))),
        })
    }

    /// The policy for handshakes from now on; those under way keep theirs.
    pub fn replace_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was done so far.
    pub fn stats(&self) -> AgentStats {
        AgentStats {
            established: self.counters.established.load(Ordering::Relaxed),
            refused: self.counters.refused.load(Ordering::Relaxed),
            pending: (self.clients.len() + self.servers.len()) as u64,
        }
    }

    /// Makes the handshake over `wire` and has the peer judged. The connection is in our own network
    /// namespace.
    async fn establish(
        &self,
        wire: &impl Wire,
        requester: &Requester,
    ) -> Result<(Established, Admitted), Failure> {
        self.establish_in(Network::Own, wire, requester).await
    }

    /// The same, where the connection may be in another network namespace.
    async fn establish_in(
        &self,
        network: Network,
        wire: &impl Wire,
        requester: &Requester,
    ) -> Result<(Established, Admitted), Failure> {
        let slots = match requester.side {
            Side::Client => &self.clients,
            Side::Server => &self.servers,
        };
        let (_slot, evicted) = slots.enter(Party::new(requester.uid, requester.peer.ip()));
        let policy = self.policy();
        let work = async {
            let (handshake, judge) =
                policy.handshake(requester.side, requester.carrier, requester.peer)?;
            if network == Network::Other {
                judge.reaches_other_networks()?;
            }
            // Where records are ours, what follows the handshake may be taken along.
            let exact = requester.carrier == Carrier::Module;
            let established = shake_hands(wire, handshake, exact).await?;
            let judge = Arc::new(judge);
            let known = {
                let judge = Arc::clone(&judge);
                let look = move |established: &Established| judge.judge(established);
                in_turn(&self.judging, established, look).await?
            };
            let (established, admitted) = match known {
                (established, Ok(Some(admitted))) => (established, Ok(admitted)),
                (established, Err(refusal)) => (established, Err(refusal)),
                (established, Ok(None)) => {
                    let introduce = move |established: &Established| judge.introduce(established);
                    in_turn(&self.introducing, established, introduce).await?
                }
            };
            match admitted {
                Ok(admitted) => Ok((established, admitted)),
                Err(refusal) => {
                    dismiss(wire, established).await;
                    Err(refusal.into())
                }
            }
        };
        tokio::select! {
            ended = timeout(self.handshake_timeout, work) => ended.unwrap_or(Err(Failure::TimedOut)),
            () = evicted => Err(Failure::Crowded),
        }
    }

    /// A place for a connection from outside, after its handshake, until the result is dropped.
    fn place_from_outside(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let outside = Arc::clone(&self.outside);
        outside.try_acquire_owned().map_err(|_| Failure::Full)
    }

    fn on_established(&self, requester: &Requester, admitted: &Admitted) {
        self.counters.established.fetch_add(1, Ordering::Relaxed);
        let Requester {
            side,
            carrier,
            peer,
            pid,
            uid,
        } = requester;
        tracing::info!(
            %peer, ?side, ?carrier, pid, uid,
            authentication = ?admitted.authentication,
            key = admitted.key.map(tracing::field::display),
            "connected"
        );
    }

    /// Says why, but not more often than a log can bear.
    fn on_refused(&self, requester: &Requester, why: &Failure) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let Requester {
            side,
            carrier,
            peer,
            pid,
            uid,
        } = requester;
        self.refusals.say(why, |line| {
            tracing::warn!(%peer, ?side, ?carrier, pid, uid, "{line}");
        });
    }
}

/// Has a file looked at on a thread that may wait, when it is our turn. Whoever is not waited for any more
/// keeps his turn until that is done.
async fn in_turn<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    established: Established,
    work: impl FnOnce(&Established) -> T + Send + 'static,
) -> std::io::Result<(Established, T)> {
    let turn = Arc::clone(turns).acquire_owned().await;
    let turn = turn.map_err(std::io::Error::other)?;
    let worked = tokio::task::spawn_blocking(move || {
        let done = work(&established);
        drop(turn);
        (established, done)
    });
    worked.await.map_err(std::io::Error::other)
}

/// Tells a peer that it is not believed, as far as it listens.
async fn dismiss(wire: &impl Wire, established: Established) {
    let Ok(alert) = established.into_refusal() else {
        return;
    };
    let mut rest = &alert[..];
    while !rest.is_empty() {
        match wire.send(rest).await {
            Ok(sent) => rest = &rest[sent.min(rest.len())..],
            // The refusal is what matters.
            Err(_) => return,
        }
    }
}

/// How many handshakes from outside there may be, in a process that may have so many descriptors.
fn most_handshakes(descriptors: usize) -> usize {
    (descriptors / DESCRIPTORS_A_HANDSHAKE).clamp(1, MAX_HANDSHAKES)
}

/// How many connections from outside there may be at once.
fn most_from_outside(descriptors: usize) -> usize {
    (descriptors / DESCRIPTORS_EACH).min(Semaphore::MAX_PERMITS)
}

/// How many descriptors this process may have.
fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit`, which `limit` is; if it fails, nothing is written.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
