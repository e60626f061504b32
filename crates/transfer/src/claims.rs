//! Who is writing which file: one writer per path in this process.
//!
//! A sender that was killed comes back long before the idle timeout notices, so a claim
//! whose holder has been silent is taken over: the old session is cancelled and the new one
//! waits until its file is closed. A lively holder keeps its claim.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::message::{Reason, Refusal};
use crate::path::RelativePath;
use crate::progress::Progress;

/// A holder that moved nothing for this long loses its claim to a new session.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(1);
/// How long a new session waits for a claim before it refuses the file.
const WAIT_AT_MOST: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_millis(25);

/// A receiving session, as claims see it.
pub(crate) struct SessionHandle {
    pub(crate) progress: Arc<Progress>,
    cancelled: watch::Sender<bool>,
}

impl SessionHandle {
    /// A handle whose idle time is read from `progress`.
    pub(crate) fn new(progress: Arc<Progress>) -> Arc<Self> {
        Arc::new(Self {
            progress,
            cancelled: watch::Sender::new(false),
        })
    }

    /// Ends the session; its writers stop at the next block.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// Whether [`Self::cancel`] was called.
    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Waits for [`Self::cancel`].
    pub(crate) async fn cancelled(&self) {
        // An error means that the sender is gone, which `self` rules out.
        let _ = self
            .cancelled
            .subscribe()
            .wait_for(|cancelled| *cancelled)
            .await;
    }
}

/// All claims of one destination.
#[derive(Default)]
pub(crate) struct Claims {
    holders: Mutex<HashMap<RelativePath, Arc<SessionHandle>>>,
    released: Condvar,
}

/// The right to write one path; dropping it releases the path.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    path: RelativePath,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<RelativePath, Arc<SessionHandle>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims `path` for `session`, taking over from a silent holder. Blocks for at most
    /// five seconds; only for file threads.
    ///
    /// # Errors
    /// `Reason::Busy` while another session, or this one, is writing the same path.
    pub(crate) fn claim(
        self: &Arc<Self>,
        path: &RelativePath,
        session: &Arc<SessionHandle>,
    ) -> Result<Claim, Refusal> {
        let mut holders = self.lock();
        let mut waited = Duration::ZERO;
        while let Some(holder) = holders.get(path) {
            if Arc::ptr_eq(holder, session) {
                return Err(Refusal::new(
                    Reason::Busy,
                    "the same path appears twice in one transfer",
                ));
            }
            if holder.progress.idle() >= TAKE_OVER_AFTER {
                holder.cancel();
            }
            if waited >= WAIT_AT_MOST || session.is_cancelled() {
                return Err(Refusal::new(
                    Reason::Busy,
                    "another transfer is writing this file now",
                ));
            }
            waited += WAIT_STEP;
            holders = self
                .released
                .wait_timeout(holders, WAIT_STEP)
                .map_or_else(|p| p.into_inner().0, |(guard, _)| guard);
        }
        holders.insert(path.clone(), Arc::clone(session));
        Ok(Claim {
            claims: Arc::clone(self),
            path: path.clone(),
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.path);
        self.claims.released.notify_all();
    }
}
