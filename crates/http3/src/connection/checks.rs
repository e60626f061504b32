//! [`Connection::check`]: what must hold of a connection whatever its peer and its application do.
//!
//! Tests and fuzz targets ask; nothing else does.

use std::collections::BTreeSet;

use super::parts::{Connection, Role};
use super::priority::MAX_EARLY_PRIORITIES;
use crate::event::MAX_QUEUED_DATAGRAMS;
use crate::settings::MAX_SETTINGS_LEN;
use crate::webtransport::Sessions;

/// The longest frame of a control stream that is gathered.
const MAX_CONTROL_FRAME: usize = MAX_SETTINGS_LEN as usize;

impl Connection {
    /// Compares what is kept for the peer with the caps, and the parts with each other.
    ///
    /// # Panics
    /// When more is kept than a cap says, or two parts disagree.
    pub fn check(&self) {
        if self.closed.is_some() {
            assert!(self.messages.is_empty() && self.again.is_empty());
            assert!(self.peer.untyped.is_empty());
        }
        assert!(self.events.datagrams() <= MAX_QUEUED_DATAGRAMS);
        assert!(self.priorities.len() <= MAX_EARLY_PRIORITIES);
        assert!(self.peer.reader.kept() <= MAX_CONTROL_FRAME);
        let max = usize::try_from(self.config.max_field_section_size).unwrap_or(usize::MAX);
        let mut held = 0;
        for message in self.messages.values() {
            assert!(message.incoming.kept() <= max, "a section over its limit");
            held += u64::from(message.incoming.is_held());
        }
        assert!(held <= self.config.qpack_blocked_streams);
        let peer = &self.peer;
        let typed = [peer.control, peer.encoder, peer.decoder];
        for id in &self.again {
            let known = self.messages.contains_key(id) || typed.contains(&Some(*id));
            assert!(known, "{id} is to be read and is unknown");
        }
        if let Some(sessions) = &self.sessions {
            self.check_sessions(sessions);
        }
    }

    fn check_sessions(&self, sessions: &Sessions) {
        assert!(sessions.count() <= sessions.config.max_sessions || self.side.is_client());
        sessions.check();
        for (id, open) in &sessions.open {
            assert_eq!(self.role(*id), Role::Session, "{id} has no CONNECT stream");
            assert!(open.reader.kept_within_cap(), "a capsule over its limit");
        }
        let early: BTreeSet<_> = sessions.early_sessions().collect();
        for session in early {
            let waits = self.may_come(session);
            assert!(waits, "something waits for {session}, which cannot come");
        }
    }
}
