//! Who makes the records that a session sends: the session, until a kernel has its key.

use crate::error::SessionError;
use crate::limits::BlockBudget;
use crate::record::Sealer;

/// Who makes the records that we send.
pub(super) enum Sender {
    /// We.
    Session(Sealer),
    /// The kernel.
    Kernel {
        /// What its key may still protect.
        budget: BlockBudget,
        /// To be sent, and nothing after it.
        alert: Option<[u8; 2]>,
    },
}

impl Sender {
    /// Ours.
    pub(super) fn sealer(&mut self) -> Result<&mut Sealer, SessionError> {
        match self {
            Self::Session(sealer) => Ok(sealer),
            Self::Kernel { .. } => Err(SessionError::KernelKeyEnded),
        }
    }

    /// Whether it is the kernel.
    pub(super) fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel { .. })
    }
}
