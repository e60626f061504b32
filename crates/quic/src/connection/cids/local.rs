//! Connection IDs we issued (RFC 9000 §5.1.1).
//!
//! The endpoint makes them and routes by them; this keeps their sequence numbers, says how
//! many more are wanted, and which the peer retired.

use towline_wire::{
    ConnectionId, NEW_CONNECTION_ID_MAX_LEN, NewConnectionIdFrame, PreferredAddress,
    StatelessResetToken, write_new_connection_id,
};

use crate::connection::component::{PacketWriter, SentFrame};
use crate::error::Violation;

/// Cap: IDs of ours in use at a time, whatever the peer's `active_connection_id_limit` allows.
pub(crate) const MAX_LOCAL_CIDS: u64 = 4;

#[derive(Debug)]
struct Issued {
    sequence: u64,
    cid: ConnectionId,
    reset_token: StatelessResetToken,
}

#[derive(Debug)]
pub(crate) struct LocalCids {
    active: Vec<Issued>,
    next_sequence: u64,
    /// Sequence numbers to be announced, again or for the first time.
    pending: Vec<u64>,
    retired: Vec<ConnectionId>,
    limit: u64,
}

impl LocalCids {
    /// Starts with the ID of the handshake, which has sequence number 0, and that of the preferred
    /// address, which the transport parameters announce with number 1 (RFC 9000 §5.1.1).
    pub(crate) fn new(
        first: ConnectionId,
        reset_token: StatelessResetToken,
        preferred: Option<&PreferredAddress>,
    ) -> Self {
        let first = Issued {
            sequence: 0,
            cid: first,
            reset_token,
        };
        let preferred = preferred.map(|preferred| Issued {
            sequence: 1,
            cid: preferred.connection_id,
            reset_token: preferred.stateless_reset_token,
        });
        let active: Vec<Issued> = [Some(first), preferred].into_iter().flatten().collect();
        Self {
            next_sequence: active.len() as u64,
            active,
            pending: Vec::new(),
            retired: Vec::new(),
            limit: 1,
        }
    }

    /// The peer's `active_connection_id_limit`, once the handshake is complete.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        // Whoever has no ID gives none (RFC 9000 §19.15).
        let most = if self.is_nameless() {
            1
        } else {
            MAX_LOCAL_CIDS
        };
        self.limit = limit.min(most);
    }

    /// Packets to us have no connection ID.
    fn is_nameless(&self) -> bool {
        self.active
            .first()
            .is_some_and(|first| first.cid.is_empty())
    }

    /// How many more IDs the endpoint should make.
    pub(crate) fn wanted(&self) -> usize {
        usize::try_from(self.limit)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.active.len())
    }

    /// More IDs are wanted, or some were retired.
    pub(crate) fn wants_exchange(&self) -> bool {
        (self.active.len() as u64) < self.limit || !self.retired.is_empty()
    }

    /// Issues an ID made by the endpoint.
    pub(crate) fn issue(&mut self, cid: ConnectionId, reset_token: StatelessResetToken) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.active.push(Issued {
            sequence,
            cid,
            reset_token,
        });
        self.pending.push(sequence);
    }

    /// IDs the peer retired since the last call; the endpoint stops routing them.
    pub(crate) fn take_retired(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.retired)
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.active.shrink_to_fit();
        self.pending.shrink_to_fit();
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.active.iter().map(|i| i.cid)
    }

    /// RETIRE_CONNECTION_ID (RFC 9000 §19.16), in a packet addressed to `used`.
    pub(crate) fn on_retire(&mut self, sequence: u64, used: ConnectionId) -> Result<(), Violation> {
        if self.is_nameless() {
            return Err(Violation::protocol(
                "RETIRE_CONNECTION_ID for an ID of no length",
            ));
        }
        if sequence >= self.next_sequence {
            return Err(Violation::protocol(
                "RETIRE_CONNECTION_ID for an ID never issued",
            ));
        }
        let Some(i) = self.active.iter().position(|c| c.sequence == sequence) else {
            return Ok(());
        };
        if self.active[i].cid == used {
            return Err(Violation::protocol(
                "RETIRE_CONNECTION_ID for the ID of its own packet",
            ));
        }
        let gone = self.active.remove(i);
        self.pending.retain(|&s| s != sequence);
        self.retired.push(gone.cid);
        Ok(())
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>) {
        while let Some(&sequence) = self.pending.last() {
            if w.remaining() < NEW_CONNECTION_ID_MAX_LEN {
                return;
            }
            self.pending.pop();
            if let Some(i) = self.active.iter().find(|c| c.sequence == sequence) {
                let frame = NewConnectionIdFrame {
                    sequence,
                    retire_prior_to: 0,
                    cid: i.cid,
                    reset_token: i.reset_token,
                };
                write_new_connection_id(w.w, &frame);
                w.record(SentFrame::NewConnectionId { sequence });
            }
        }
    }

    pub(crate) fn on_lost(&mut self, sequence: u64) {
        let still_active = self.active.iter().any(|c| c.sequence == sequence);
        if still_active && !self.pending.contains(&sequence) {
            self.pending.push(sequence);
        }
    }
}
