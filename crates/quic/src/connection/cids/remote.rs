//! Connection IDs the peer issued (RFC 9000 §5.1.2).
//!
//! Holds the one in use, those of other paths and spares, obeys Retire Prior To, and owes RETIRE_CONNECTION_ID
//! frames. A peer that makes us owe too many is closed (CVE-2024-22189 class).

use towline_wire::{
    ConnectionId, RETIRE_CONNECTION_ID_MAX_LEN, StatelessResetToken, TransportErrorCode,
    write_retire_connection_id,
};

use crate::connection::component::{PacketWriter, SentFrame};
use crate::error::Violation;

/// Our `active_connection_id_limit` (RFC 9000 §18.2). Cap: IDs of the peer held at a time.
pub(crate) const MAX_REMOTE_CIDS: u64 = 4;

/// Cap: RETIRE_CONNECTION_ID frames owed and unacknowledged before the peer is closed.
pub(crate) const MAX_PENDING_RETIREMENTS: usize = 12;

/// Cap: sequence numbers remembered as not seen yet; those before are taken for given up.
const MAX_UNSEEN: u64 = 16;

#[derive(Clone, Debug)]
struct Held {
    sequence: u64,
    cid: ConnectionId,
    reset_token: Option<StatelessResetToken>,
    /// A path uses it, or did.
    used: bool,
}

#[derive(Debug)]
pub(crate) struct RemoteCids {
    /// The ID in use.
    current: Held,
    /// Those of other paths, and spares.
    others: Vec<Held>,
    retire_prior_to: u64,
    /// Largest sequence number seen, and those below it and not below `retire_prior_to` that were not
    /// seen yet: any other ID that is repeated was given up.
    largest: u64,
    unseen: Vec<u64>,
    /// Retirements to be written.
    pending: Vec<u64>,
    /// Retirements written and not acknowledged.
    unacked: Vec<u64>,
    /// The reset token that the endpoint was told.
    known_token: Option<StatelessResetToken>,
}

impl RemoteCids {
    pub(crate) fn new(first: ConnectionId) -> Self {
        Self {
            current: Held {
                sequence: 0,
                cid: first,
                reset_token: None,
                used: true,
            },
            others: Vec::new(),
            retire_prior_to: 0,
            largest: 0,
            unseen: Vec::new(),
            pending: Vec::new(),
            unacked: Vec::new(),
            known_token: None,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Held> {
        std::iter::once(&self.current).chain(&self.others)
    }

    /// The ID to put into packets.
    pub(crate) fn current(&self) -> ConnectionId {
        self.current.cid
    }

    /// Replaces the handshake's ID: by the server's choice or after Retry (RFC 9000 §7.2).
    pub(crate) fn set_initial(&mut self, cid: ConnectionId) {
        self.current.cid = cid;
    }

    /// The token of the handshake's ID, from the server's transport parameters.
    pub(crate) fn set_initial_reset_token(&mut self, token: StatelessResetToken) {
        let mut all = std::iter::once(&mut self.current).chain(&mut self.others);
        if let Some(first) = all.find(|h| h.sequence == 0) {
            first.reset_token = Some(token);
        }
    }

    /// The ID that a server's preferred address brings, with sequence number 1 (RFC 9000 §5.1.1).
    pub(crate) fn set_preferred(
        &mut self,
        cid: ConnectionId,
        reset_token: StatelessResetToken,
    ) -> Result<(), Violation> {
        let error = |what| Violation::new(TransportErrorCode::TRANSPORT_PARAMETER_ERROR, what);
        if self.current().is_empty() {
            // RFC 9000 §18.2.
            return Err(error("preferred address of a server without connection ID"));
        }
        if self.all().any(|h| h.cid == cid) {
            return Err(error("preferred address repeats a connection ID"));
        }
        self.note_seen(1);
        self.others.push(Held {
            sequence: 1,
            cid,
            reset_token: Some(reset_token),
            used: false,
        });
        Ok(())
    }

    /// The sequence number of the ID in use.
    pub(crate) fn current_sequence(&self) -> u64 {
        self.current.sequence
    }

    /// The ID with this sequence number, unless it was retired.
    pub(crate) fn get(&self, sequence: u64) -> Option<ConnectionId> {
        let held = self.all().find(|h| h.sequence == sequence);
        held.map(|h| h.cid)
    }

    /// An ID that no path used yet (RFC 9000 §9.5), by its sequence number. A peer without IDs needs
    /// none; one that does not acknowledge what it is told of them gets no more to retire.
    pub(crate) fn take_spare(&mut self) -> Option<u64> {
        if self.current().is_empty() {
            return Some(self.current_sequence());
        }
        if self.pending.len() + self.unacked.len() >= MAX_PENDING_RETIREMENTS / 2 {
            return None;
        }
        let spare = self.others.iter_mut().find(|h| !h.used)?;
        spare.used = true;
        Some(spare.sequence)
    }

    /// The ID that a path uses becomes the one to put into packets.
    pub(crate) fn make_current(&mut self, sequence: u64) {
        if let Some(other) = self.others.iter_mut().find(|h| h.sequence == sequence) {
            std::mem::swap(&mut self.current, other);
        }
    }

    /// No path uses this ID any more: it is retired (RFC 9000 §5.1.2).
    pub(crate) fn give_up(&mut self, sequence: u64) {
        if self.current().is_empty() || self.current_sequence() == sequence {
            return;
        }
        if let Some(place) = self.others.iter().position(|h| h.sequence == sequence) {
            self.others.remove(place);
            self.pending.push(sequence);
        }
    }

    /// The endpoint has to learn the reset token again, because the peer's address is another one.
    pub(crate) fn forget_known_token(&mut self) {
        self.known_token = None;
    }

    /// The stateless reset token that ends this connection, if the peer gave one.
    fn reset_token(&self) -> Option<StatelessResetToken> {
        self.current.reset_token
    }

    /// Whether it is another one than the endpoint knows of.
    pub(crate) fn has_new_reset_token(&self) -> bool {
        let bytes = |token: Option<StatelessResetToken>| token.map(|t| *t.as_bytes());
        bytes(self.reset_token()) != bytes(self.known_token)
    }

    /// The stateless reset token, which the endpoint is told now.
    pub(crate) fn take_reset_token(&mut self) -> Option<StatelessResetToken> {
        self.known_token = self.reset_token();
        self.known_token
    }

    /// Whether a datagram's last 16 bytes are the token of the ID in use; tokens of IDs not used
    /// yet must not count (RFC 9000 §10.3.1).
    pub(crate) fn is_reset_token(&self, token: &StatelessResetToken) -> bool {
        self.reset_token().as_ref() == Some(token)
    }

    /// NEW_CONNECTION_ID (RFC 9000 §19.15).
    pub(crate) fn on_new(
        &mut self,
        sequence: u64,
        retire_prior_to: u64,
        cid: ConnectionId,
        reset_token: StatelessResetToken,
    ) -> Result<(), Violation> {
        if self.current().is_empty() {
            // RFC 9000 §19.15.
            return Err(Violation::protocol(
                "NEW_CONNECTION_ID from a peer that has no connection ID",
            ));
        }
        if let Some(known) = self.all().find(|h| h.sequence == sequence) {
            if known.cid != cid || known.reset_token.is_some_and(|t| t != reset_token) {
                return Err(Violation::protocol(
                    "NEW_CONNECTION_ID repeats a sequence number with other contents",
                ));
            }
            // Sent again, but Retire Prior To may have risen since.
        } else if self.all().any(|h| h.cid == cid) {
            return Err(Violation::protocol(
                "NEW_CONNECTION_ID repeats an ID under another sequence number",
            ));
        } else if sequence < self.retire_prior_to {
            self.retire(sequence)?;
        } else if self.note_seen(sequence) {
            self.others.push(Held {
                sequence,
                cid,
                reset_token: Some(reset_token),
                used: false,
            });
        }
        if retire_prior_to > self.retire_prior_to {
            self.retire_prior_to = retire_prior_to;
            self.unseen.retain(|s| *s >= retire_prior_to);
        }
        self.obey_retire_prior_to()?;
        if self.all().count() as u64 > MAX_REMOTE_CIDS {
            return Err(Violation::new(
                TransportErrorCode::CONNECTION_ID_LIMIT_ERROR,
                "more connection IDs than active_connection_id_limit",
            ));
        }
        Ok(())
    }

    /// Retires what the peer wants back. Where it left no other ID, because the one that it sent was
    /// given up already, the present one stays until the next is here.
    fn obey_retire_prior_to(&mut self) -> Result<(), Violation> {
        let least = self.retire_prior_to;
        let stays = |h: &Held| h.sequence >= least;
        if self.all().all(stays) || !self.all().any(stays) {
            return Ok(());
        }
        let mut gone = Vec::new();
        if !stays(&self.current) {
            // Rather an ID that no other path uses.
            let spare = self.others.iter().position(|h| stays(h) && !h.used);
            let next = spare.or_else(|| self.others.iter().position(stays));
            if let Some(next) = next {
                let next = self.others.remove(next);
                gone.push(std::mem::replace(&mut self.current, next).sequence);
                self.current.used = true;
            }
        }
        let leaving = self.others.iter().filter(|h| !stays(h));
        gone.extend(leaving.map(|h| h.sequence));
        self.others.retain(stays);
        gone.into_iter().try_for_each(|id| self.retire(id))
    }

    /// Notes that the peer issued this ID; `false` if that was known, so that it was given up since.
    fn note_seen(&mut self, sequence: u64) -> bool {
        if sequence <= self.largest {
            let place = self.unseen.iter().position(|s| *s == sequence);
            return place.map(|place| self.unseen.swap_remove(place)).is_some();
        }
        // A peer numbers its IDs one by one and issues no more than the limit before it hears of them.
        let first = (self.largest + 1).max(self.retire_prior_to);
        let first = first.max(sequence.saturating_sub(MAX_UNSEEN));
        self.unseen.extend(first..sequence);
        let excess = self.unseen.len().saturating_sub(MAX_UNSEEN as usize);
        self.unseen.drain(..excess);
        self.largest = sequence;
        true
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.others.shrink_to_fit();
        self.unseen.shrink_to_fit();
        self.pending.shrink_to_fit();
        self.unacked.shrink_to_fit();
    }

    fn retire(&mut self, sequence: u64) -> Result<(), Violation> {
        if self.pending.contains(&sequence) || self.unacked.contains(&sequence) {
            return Ok(());
        }
        if self.pending.len() + self.unacked.len() >= MAX_PENDING_RETIREMENTS {
            return Err(Violation::new(
                TransportErrorCode::CONNECTION_ID_LIMIT_ERROR,
                "retires connection IDs faster than it acknowledges their retirement",
            ));
        }
        self.pending.push(sequence);
        Ok(())
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>) {
        while let Some(&sequence) = self.pending.last() {
            if w.remaining() < RETIRE_CONNECTION_ID_MAX_LEN {
                return;
            }
            self.pending.pop();
            self.unacked.push(sequence);
            write_retire_connection_id(w.w, sequence);
            w.record(SentFrame::RetireConnectionId { sequence });
        }
    }

    pub(crate) fn on_acked(&mut self, sequence: u64) {
        self.unacked.retain(|&s| s != sequence);
    }

    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if let Some(i) = self.unacked.iter().position(|&s| s == sequence) {
            self.unacked.swap_remove(i);
            self.pending.push(sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cid(n: u8) -> ConnectionId {
        ConnectionId::new(&[n; 8]).unwrap()
    }

    fn token(n: u8) -> StatelessResetToken {
        StatelessResetToken::new([n; 16])
    }

    #[test]
    fn a_flood_of_retirements_is_a_connection_id_limit_error() {
        let mut r = RemoteCids::new(cid(0));
        let flood = (1..100).try_for_each(|n| r.on_new(n, n, cid(n as u8), token(n as u8)));
        assert_eq!(
            flood.unwrap_err().code,
            TransportErrorCode::CONNECTION_ID_LIMIT_ERROR
        );
        assert!(r.pending.len() <= MAX_PENDING_RETIREMENTS);
    }

    #[test]
    fn more_ids_than_the_limit_are_refused() {
        let mut r = RemoteCids::new(cid(0));
        for n in 1..MAX_REMOTE_CIDS {
            r.on_new(n, 0, cid(n as u8), token(n as u8)).unwrap();
        }
        let error = r.on_new(9, 0, cid(9), token(9)).unwrap_err();
        assert_eq!(error.code, TransportErrorCode::CONNECTION_ID_LIMIT_ERROR);
    }

    #[test]
    fn an_id_that_was_given_up_is_not_taken_for_new_when_it_is_repeated() {
        let mut r = RemoteCids::new(cid(0));
        let new = |r: &mut RemoteCids, n: u8| r.on_new(n.into(), 0, cid(n), token(n));
        // The third comes late, after two moves.
        for n in [1, 2] {
            new(&mut r, n).unwrap();
            let spare = r.take_spare().unwrap();
            let before = r.current_sequence();
            r.make_current(spare);
            r.give_up(before);
        }
        for n in [4, 5, 0, 1, 3, 1, 0] {
            new(&mut r, n).unwrap();
        }
        let held: Vec<u64> = r.all().map(|h| h.sequence).collect();
        assert_eq!(held, [2, 4, 5, 3]);
        assert!(new(&mut r, 6).is_err());
    }

    #[test]
    fn the_present_id_stays_while_the_peer_leaves_no_other() {
        let mut r = RemoteCids::new(cid(0));
        r.on_new(1, 0, cid(1), token(1)).unwrap();
        // A path took it and was left.
        assert_eq!(r.take_spare(), Some(1));
        r.give_up(1);
        // Repeated before the peer heard of that, and all before it are to go.
        r.on_new(1, 1, cid(1), token(1)).unwrap();
        assert_eq!(r.current(), cid(0));
        r.on_new(2, 1, cid(2), token(2)).unwrap();
        assert_eq!(r.current(), cid(2));
        assert_eq!(r.pending, [1, 0]);
    }

    #[test]
    fn the_numbers_of_ids_not_seen_are_remembered_within_bounds() {
        let mut r = RemoteCids::new(cid(0));
        for n in 1..100 {
            // Every second one is missing; each takes the place of all before.
            let (sequence, n) = (2 * n, n as u8);
            let _ = r.on_new(sequence, sequence / 8, cid(n), token(n));
            assert!(r.unseen.len() <= MAX_UNSEEN as usize);
        }
        r.note_seen(10_000);
        assert_eq!(r.unseen.len(), MAX_UNSEEN as usize);
    }

    #[test]
    fn retire_prior_to_moves_to_the_next_id() {
        let mut r = RemoteCids::new(cid(0));
        r.on_new(1, 1, cid(1), token(1)).unwrap();
        assert_eq!(r.current(), cid(1));
        assert_eq!(r.reset_token(), Some(token(1)));
        assert!(r.has_pending());
        // A repeated frame is no violation, a changed one is.
        r.on_new(1, 1, cid(1), token(1)).unwrap();
        assert!(r.on_new(1, 1, cid(2), token(1)).is_err());
    }
}
