//! How a connection takes to another path (RFC 9000 §9).
//!
//! 1. `on_packet_from_elsewhere`: packets that came from another address than data goes to.
//! 2. `follow_peer`, `answer_elsewhere`: a client moved, or asks whether it could.
//! 3. `on_path_response`: a path proved to lead to the peer.
//! 4. `migrate`, `rebind`, `try_preferred_address`: a client moves by itself.
//! 5. `on_path_timeout`: nobody answered.

use std::net::{IpAddr, SocketAddr};

use towline_wire::{ConnectionId, Frame, PacketNumberSpace, Reader, Time};

use super::parts::Connection;
use super::paths::{Path, Which};
use crate::error::MigrateError;
use crate::observe::MigrationState;

/// The peer's address, and ours where it is known.
type Addresses = (SocketAddr, Option<IpAddr>);

impl Connection {
    // ---- packets from elsewhere ----

    /// Whether packets that did not come from where data goes are looked at.
    pub(super) fn heeds_elsewhere(
        &self,
        which: Option<Which>,
        remote: SocketAddr,
        dcid: &ConnectionId,
    ) -> bool {
        if !self.lifecycle.is_confirmed() {
            // The addresses of a handshake stay (RFC 9000 §9). What ends it is read all the same: a
            // NAT may have forgotten its client meanwhile.
            let handshake = PacketNumberSpace::Handshake;
            return self.side.is_server() && self.sealer.protection.has_keys(handshake);
        }
        match which {
            Some(_) => true,
            // Only clients move; a server is where it was or said it would be (RFC 9000 §9).
            None if self.side.is_client() => false,
            // A NAT leaves the connection ID as it was, a client that moves does not: forbidden,
            // the one is still followed and the other gets no answer (RFC 9000 §9, §18.2). A client
            // that came to another address of ours has not moved.
            None => {
                self.config.migration
                    || self.paths.is_addressed_as_before(dcid)
                    || remote == self.paths.remote()
            }
        }
    }

    /// An authentic packet came from elsewhere; `moved` says that the peer sends from there now.
    pub(super) fn on_packet_from_elsewhere(
        &mut self,
        now: Time,
        from: Addresses,
        dcid: &ConnectionId,
        len: usize,
        moved: bool,
    ) {
        let moved = moved && self.side.is_server();
        match self.paths.find(from.0, from.1) {
            Some(Which::Active) => self.paths.on_received(len, dcid),
            Some(which) => {
                self.paths.on_authentic(which, len);
                match which {
                    Which::Candidate if moved => self.follow_to_candidate(now),
                    Which::Previous if moved => self.return_to_previous(now),
                    _ => return,
                }
                self.paths.note_dcid(dcid);
            }
            None if moved => self.follow_peer(now, from, dcid, len),
            None if self.paths.has_stray_challenge() => {
                self.answer_elsewhere(now, from, dcid, len);
            }
            // Late, from where the peer was before.
            None => {}
        }
    }

    /// Of a packet that could be opened: whether it shows that the peer sends from there now. It must
    /// be the newest, and hold more than what may be sent on any path (RFC 9000 §9.1, §9.3).
    pub(super) fn shows_migration(&self, packet_number: u64, payload: &[u8]) -> bool {
        let largest = self.acks.largest(PacketNumberSpace::Application);
        largest.is_none_or(|largest| packet_number > largest) && !is_probing(payload)
    }

    /// The peer sends from another address (RFC 9000 §9.3). Data follows at once, as far as an
    /// address that is not proven may get any. Where that was in vain before, the address is to prove
    /// itself first: else somebody who copies packets could keep all data from the peer (§9.3.3).
    fn follow_peer(&mut self, now: Time, from: Addresses, dcid: &ConnectionId, len: usize) {
        let Some(mut path) = self.path_of_peer(from, dcid, len) else {
            return;
        };
        self.paths.challenge_next(now, &mut path);
        self.observe_migration(now, MigrationState::MigrationStarted, path.addresses());
        if self.paths.is_distrusting() {
            self.try_path(path);
        } else {
            self.take_path(now, path);
            self.paths.adopt_stray();
            self.paths.note_dcid(dcid);
        }
    }

    /// The peer sends from where it had only asked.
    fn follow_to_candidate(&mut self, now: Time) {
        if !self.paths.is_distrusting() || self.paths.is_proven(Which::Candidate) {
            return self.take_candidate(now);
        }
        let pto = self.paths.validation_pto();
        if let Some(path) = self.paths.get_mut(Which::Candidate)
            && !path.is_challenged()
        {
            path.challenge(now, pto);
        }
    }

    /// The peer asks whether it could be reached elsewhere (RFC 9000 §9.1).
    fn answer_elsewhere(&mut self, now: Time, from: Addresses, dcid: &ConnectionId, len: usize) {
        if let Some(path) = self.path_of_peer(from, dcid, len) {
            self.observe_migration(now, MigrationState::ProbingStarted, path.addresses());
            self.try_path(path);
        }
    }

    /// A path that the peer showed. With a connection ID of its own, unless the peer's is the one it
    /// had before, as with a NAT that forgot; without one left nothing can be sent there (RFC 9000
    /// §9.5).
    fn path_of_peer(&mut self, from: Addresses, dcid: &ConnectionId, len: usize) -> Option<Path> {
        let cid = match self.paths.is_addressed_as_before(dcid) {
            true => self.remote_cids.current_sequence(),
            false => self.remote_cids.take_spare()?,
        };
        let mut path = self.make_path(from, cid, true);
        path.on_received(len);
        Some(path)
    }

    /// A path of which nothing is known.
    fn make_path(&mut self, between: Addresses, cid: u64, follows: bool) -> Path {
        let (remote, local_ip) = between;
        let sizes = self.config.datagram_sizes(remote.ip());
        self.paths.make(remote, local_ip, cid, follows, sizes)
    }

    // ---- change ----

    fn try_path(&mut self, path: Path) {
        if let Some(older) = self.paths.try_path(path) {
            self.release_cid(older.cid);
        }
    }

    /// Data takes the path that was tried.
    fn take_candidate(&mut self, now: Time) {
        if let Some(mut path) = self.paths.drop_candidate() {
            if !path.is_proven() && !path.is_challenged() {
                self.paths.challenge_next(now, &mut path);
            }
            let addresses = path.addresses();
            self.take_path(now, *path);
            self.observe_migration(now, MigrationState::MigrationComplete, addresses);
        }
    }

    /// Data takes `path` from now on. A server keeps the one before until this one is proven, and
    /// asks there too: if somebody copies the peer's packets, it answers there (RFC 9000 §9.3.3).
    fn take_path(&mut self, now: Time, path: Path) {
        let pto = self.paths.validation_pto();
        let proven = path.is_proven();
        let mut old = self.replace_active(now, path);
        if self.side.is_server() && !proven && old.is_proven() {
            old.challenge(now, pto);
            if let Some(older) = self.paths.keep_previous(old) {
                self.release_cid(older.cid);
            }
        } else {
            let cid = old.cid;
            match self.side.is_client() {
                true => self.paths.leave(old),
                false => self.paths.drop_unproven(old),
            }
            self.release_cid(cid);
        }
        self.on_path_changed();
    }

    /// Data takes the path that it took before.
    fn return_to_previous(&mut self, now: Time) {
        if let Some(mut path) = self.paths.drop_previous() {
            path.give_up_validation();
            let left = self.replace_active(now, *path);
            self.release_cid(left.cid);
            self.on_path_changed();
            self.observe_migration(now, MigrationState::MigrationAbandoned, left.addresses());
        }
    }

    /// Everybody goes by `next` from now on. Returns the path before.
    fn replace_active(&mut self, now: Time, next: Path) -> Path {
        let room = self.datagram_room();
        let before = self.paths.replace_active(now, next);
        self.recovery.adopt(self.paths.state_mut());
        self.paths.state_mut().set_amplification_blocked(now, false);
        self.remote_cids.make_current(self.paths.active().cid);
        self.note_datagram_room(room);
        before
    }

    fn on_path_changed(&mut self) {
        self.remote_cids.forget_known_token();
        self.events.push_path_changed();
    }

    /// A path is left: its connection ID is not used again (RFC 9000 §9.5).
    fn release_cid(&mut self, cid: u64) {
        if !self.paths.uses_cid(cid) {
            self.remote_cids.give_up(cid);
        }
    }

    /// The peer retired the connection ID of a path while it was asked there.
    pub(super) fn replace_retired_cid(&mut self, which: Which) {
        let spare = match which {
            Which::Active => Some(self.remote_cids.current_sequence()),
            _ => self.remote_cids.take_spare(),
        };
        match (spare, self.paths.get_mut(which)) {
            (Some(cid), Some(path)) => path.cid = cid,
            (_, Some(path)) => path.fall_silent(),
            (_, None) => {}
        }
    }

    // ---- answers ----

    /// PATH_RESPONSE (RFC 9000 §8.2.3, §19.18); one to nothing says nothing.
    pub(super) fn on_path_response(&mut self, now: Time, data: [u8; 8]) {
        let Some(proof) = self.paths.on_path_response(now, data) else {
            return;
        };
        if !proof.first {
            return;
        }
        let addresses = self.paths.get(proof.which).map(Path::addresses);
        if let Some(addresses) = addresses {
            self.observe_migration(now, MigrationState::ProbingSuccessful, addresses);
        }
        match proof.which {
            Which::Active => {
                self.paths.state_mut().set_amplification_blocked(now, false);
                self.paths.set_distrust(false);
                if self.side.is_server()
                    && let Some(previous) = self.paths.drop_previous()
                {
                    self.release_cid(previous.cid);
                }
            }
            Which::Candidate => {
                self.paths.set_distrust(false);
                self.take_candidate(now);
            }
            Which::Previous => {}
        }
    }

    // ---- a client moves ----

    /// Client: moves the connection to another address of this host, once it has proved to lead to
    /// the server; data stays where it is until then (RFC 9000 §9.2). `Event::PathChanged` follows,
    /// or `Event::MigrationFailed` when nothing answers within three PTOs, 3 s at least. A second
    /// call gives the first one up. The socket must be able to send from `local_ip`.
    ///
    /// # Errors
    /// [`MigrateError`] says why not, and nothing changed.
    pub fn migrate(&mut self, now: Time, local_ip: IpAddr) -> Result<(), MigrateError> {
        self.may_migrate()?;
        let cid = self
            .remote_cids
            .take_spare()
            .ok_or(MigrateError::NoConnectionId)?;
        let remote = self.paths.remote();
        self.probe(now, remote, Some(local_ip), cid);
        Ok(())
    }

    fn may_migrate(&self) -> Result<(), MigrateError> {
        self.alive().map_err(MigrateError::ConnectionLost)?;
        if self.side.is_server() {
            return Err(MigrateError::Server);
        }
        if !self.lifecycle.is_confirmed() {
            return Err(MigrateError::HandshakeNotConfirmed);
        }
        if self.remote_cids.current().is_empty() {
            // A server that has none could not tell whose packets these are (RFC 9000 §9.5).
            return Err(MigrateError::NoConnectionId);
        }
        match self.handshake.peer_forbids_migration() && !self.paths.is_at_preferred_address() {
            true => Err(MigrateError::Forbidden),
            false => Ok(()),
        }
    }

    /// Asks on another path, without data.
    fn probe(&mut self, now: Time, remote: SocketAddr, local_ip: Option<IpAddr>, cid: u64) {
        let mut path = self.make_path((remote, local_ip), cid, false);
        path.challenge(now, self.paths.validation_pto());
        self.observe_migration(now, MigrationState::ProbingStarted, path.addresses());
        self.try_path(path);
    }

    /// The socket was replaced by another one: the path that data took is gone. A client goes on
    /// from the new one at once, with a connection ID that was not used before if it may and can;
    /// else the server takes it for the doing of a NAT.
    pub(crate) fn rebind(&mut self, now: Time) {
        if self.side.is_server() || !self.lifecycle.is_confirmed() {
            return;
        }
        if let Some(candidate) = self.paths.drop_candidate() {
            self.release_cid(candidate.cid);
        }
        let spare = self
            .may_migrate()
            .ok()
            .and_then(|()| self.remote_cids.take_spare());
        let cid = spare.unwrap_or(self.paths.active().cid);
        let mut path = self.make_path((self.paths.remote(), None), cid, false);
        path.challenge(now, self.paths.validation_pto());
        self.observe_migration(now, MigrationState::MigrationStarted, path.addresses());
        self.take_path(now, path);
        // Not only what may be sent on any path: that would not move the server.
        self.liveness.ping();
    }

    /// Client: a server that named another address of its own is asked there, and the connection
    /// moves when it answers (RFC 9000 §9.6.1, §9.6.2).
    pub(super) fn try_preferred_address(&mut self, now: Time) {
        // Without connection IDs of ours, what came from there would lead nowhere.
        let nameless = self.handshake.ids().local.is_empty();
        if self.side.is_server() || nameless || !self.config.preferred_address {
            return;
        }
        let preferred = self
            .handshake
            .peer()
            .and_then(|p| p.preferred_address.as_ref());
        let present = self.paths.remote();
        let Some(remote) = preferred.and_then(|p| address_for(present, p.ipv4, p.ipv6)) else {
            return;
        };
        if let Some(cid) = self.remote_cids.take_spare() {
            self.probe(now, remote, None, cid);
        }
    }

    // ---- time ----

    /// Deadlines of challenges. Where nobody answered, data returns to the address that was proven last
    /// (RFC 9000 §9.3.2).
    pub(super) fn on_path_timeout(&mut self, now: Time) {
        for which in self.paths.on_timeout(now).into_iter().flatten() {
            let Some(path) = self.paths.get(which) else {
                continue;
            };
            if path.is_proven() {
                // Only the size of its datagrams was in question.
                continue;
            }
            let addresses = path.addresses();
            self.observe_migration(now, MigrationState::ProbingAbandoned, addresses);
            self.paths.counters.failed += 1;
            match which {
                Which::Active if self.side.is_client() => {}
                Which::Active => {
                    self.return_to_previous(now);
                    self.paths.set_distrust(true);
                }
                Which::Candidate => {
                    if let Some(path) = self.paths.drop_candidate() {
                        self.release_cid(path.cid);
                    }
                    if self.side.is_client() {
                        self.events.push_migration_failed();
                    }
                }
                Which::Previous => {}
            }
        }
    }
}

/// Whether a packet holds nothing but what may be sent on any path (RFC 9000 §9.1).
fn is_probing(payload: &[u8]) -> bool {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        match Frame::parse(&mut reader) {
            Ok(
                Frame::PathChallenge(_)
                | Frame::PathResponse(_)
                | Frame::NewConnectionId(_)
                | Frame::Padding { .. },
            ) => {}
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

/// The preferred address that a client at `present` may try. One of its own family; a server out in
/// the world has no say over what lies in the client's own networks (RFC 9000 §21.5.3).
fn address_for(
    present: SocketAddr,
    ipv4: Option<std::net::SocketAddrV4>,
    ipv6: Option<std::net::SocketAddrV6>,
) -> Option<SocketAddr> {
    let preferred = match (present.ip().to_canonical(), present) {
        (IpAddr::V6(_), _) => SocketAddr::V6(ipv6?),
        (IpAddr::V4(_), SocketAddr::V4(_)) => SocketAddr::V4(ipv4?),
        // A socket of both families.
        (IpAddr::V4(_), SocketAddr::V6(_)) => {
            let ipv4 = ipv4?;
            SocketAddr::new(ipv4.ip().to_ipv6_mapped().into(), ipv4.port())
        }
    };
    let ip = preferred.ip();
    let usable = preferred.port() != 0 && !ip.is_unspecified() && !ip.is_multicast();
    let reaches_in = is_global(present.ip()) && !is_global(ip);
    (usable && !reaches_in && preferred != present).then_some(preferred)
}

/// Whether an address is of the Internet at large, as far as its first bits tell.
fn is_global(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            !(ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_broadcast()
                || ip.is_unspecified()
                || shared)
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unique_local()
                || ip.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_out_in_the_world_names_nothing_in_the_clients_own_networks() {
        let v4 = |text: &str| Some(text.parse().unwrap());
        let v6 = |text: &str| Some(text.parse().unwrap());
        let (far, near) = ("203.0.113.5:443", "192.168.1.5:443");
        let present = |text: &str| text.parse().unwrap();
        for inside in [
            "127.0.0.1:22",
            "10.1.2.3:80",
            "192.168.0.1:80",
            "169.254.169.254:80",
            "100.64.0.1:80",
        ] {
            assert_eq!(
                address_for(present(far), v4(inside), None),
                None,
                "{inside}"
            );
        }
        for inside in ["[::1]:22", "[fd00::1]:80", "[fe80::1]:80"] {
            let present = present("[2001:db8::1]:443");
            assert_eq!(address_for(present, None, v6(inside)), None, "{inside}");
        }
        // Nor anything that is no address to send to.
        for unusable in ["0.0.0.0:443", "203.0.113.9:0", "224.0.0.1:443", far] {
            assert_eq!(address_for(present(far), v4(unusable), None), None);
        }
        let other = address_for(present(far), v4("203.0.113.9:443"), v6("[2001:db8::9]:443"));
        assert_eq!(other, Some(present("203.0.113.9:443")));
        // A server inside may name another one inside.
        assert!(address_for(present(near), v4("10.1.2.3:80"), None).is_some());
        // A socket of both families stays with its own way to write IPv4.
        let mapped = address_for(
            present("[::ffff:203.0.113.5]:443"),
            v4("203.0.113.9:443"),
            None,
        );
        assert_eq!(mapped, Some(present("[::ffff:203.0.113.9]:443")));
    }
}
