//! Undo of a reduction of the common window that one member's losses made and that proved spurious.

use super::{Core, HostMember, Time};

/// The common window before a member's losses reduced it, and since when it is reduced.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    before: Core,
    since: Option<Time>,
}

impl HostMember {
    /// What losses of this member's are about to reduce.
    pub(in crate::congestion) fn before_reduction(&self) -> Reduction {
        Reduction {
            before: self.host.lock().core.clone(),
            since: None,
        }
    }

    /// Notes that they did.
    pub(in crate::congestion) fn confirm_reduction(&self, reduction: &mut Reduction) {
        reduction.since = self.view.recovery_start;
    }

    /// Takes the reduction back, unless another has followed, of whichever member, or the window has
    /// come that far again by itself.
    pub(in crate::congestion) fn undo(&mut self, reduction: Reduction) -> bool {
        let mut host = self.host.lock();
        let core = &host.core;
        let is_latest = reduction.since.is_some() && core.recovery_start == reduction.since;
        if !is_latest || core.window > reduction.before.window {
            return false;
        }
        host.core = reduction.before;
        self.view = host.view();
        true
    }
}
