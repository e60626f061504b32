//! The losses behind the latest reduction of the window: if all of them turn out spurious, so was
//! the reduction, and it is undone.
//!
//! `feedback` tells it of reductions, losses and late acknowledgements; `Space` files each lost
//! packet under the episode's number.

use towline_wire::Time;

use crate::congestion::{Checkpoint, CongestionController, Controller};

/// A congestion episode.
#[derive(Debug, Default)]
pub(crate) struct Episode {
    number: u64,
    /// Its losses that were not acknowledged after all.
    outstanding: u64,
    /// The controller before the reduction, if it undoes nothing by itself.
    checkpoint: Option<Checkpoint>,
}

impl Episode {
    /// What its losses are filed under.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The window was reduced for so many losses: a new episode.
    pub(crate) fn on_reduced(&mut self, lost: u64, before: Option<Checkpoint>) {
        *self = Self {
            number: self.number + 1,
            outstanding: lost,
            checkpoint: before,
        };
    }

    /// So many more were lost, and the window was not reduced again.
    pub(crate) fn on_lost(&mut self, lost: u64) {
        self.outstanding += lost;
    }

    /// Nothing that follows undoes the latest reduction.
    pub(crate) fn forget(&mut self) {
        self.on_reduced(0, None);
    }

    /// The controller is no longer what it was before: it cannot be put back as a whole.
    pub(crate) fn forget_checkpoint(&mut self) {
        self.checkpoint = None;
    }

    /// So many of its losses were acknowledged after all; with the last of them the reduction is
    /// undone. Returns whether it was.
    pub(crate) fn on_late_acks(
        &mut self,
        now: Time,
        late: u64,
        controller: &mut Controller,
    ) -> bool {
        if late == 0 {
            return false;
        }
        self.outstanding = self.outstanding.saturating_sub(late);
        if self.outstanding > 0 {
            return false;
        }
        match self.checkpoint.take() {
            Some(before) => controller.restore(before),
            None => controller.on_spurious_loss(now),
        }
    }
}
