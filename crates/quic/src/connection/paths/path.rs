//! One path: two addresses, and all that is known of the way between them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use towline_recovery::PathState;
use towline_wire::Time;

use super::amplification::Amplification;
use super::responses::{MAX_PATH_RESPONSES, Responses};
use super::validation::Validation;

/// A path of a connection.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) state: PathState,
    remote: SocketAddr,
    /// Where packets are sent from; `None` leaves it to the system.
    local_ip: Option<IpAddr>,
    /// Sequence number of the peer's connection ID that is used on it.
    pub(crate) cid: u64,
    /// The peer proved that it is there.
    pub(super) proven: bool,
    /// The peer was seen there; else it is we who try the path.
    follows: bool,
    pub(super) amplification: Amplification,
    pub(super) responses: Responses,
    /// Mostly there is none.
    pub(super) validation: Option<Box<Validation>>,
    /// When it was asked last.
    pub(super) asked: Option<Time>,
    /// The answers that were given while no data went here are paid for until then.
    answers_until: Time,
}

/// Time that each answer on a path costs to which no data goes: such answers wait for no window, and a
/// peer has no reason to ask more often (RFC 9000 §8.2.1).
const ANSWER_TIME: Duration = Duration::from_millis(50);

/// How many may be given at once: as many as may wait.
const ANSWERS_AT_ONCE: u32 = MAX_PATH_RESPONSES as u32;

impl Path {
    pub(crate) fn new(
        state: PathState,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        cid: u64,
        follows: bool,
    ) -> Self {
        Self {
            state,
            remote,
            local_ip,
            cid,
            proven: false,
            follows,
            // Nobody's packets are multiplied by asking a server at an address that it named.
            amplification: Amplification::new(!follows),
            responses: Responses::default(),
            validation: None,
            asked: None,
            answers_until: Time::ZERO,
        }
    }

    /// The peer asks where no data goes.
    pub(super) fn on_challenged_beside(&mut self, now: Time, data: [u8; 8]) {
        let paid = self.answers_until.max(now) + ANSWER_TIME;
        if paid <= now + ANSWERS_AT_ONCE * ANSWER_TIME {
            self.answers_until = paid;
            self.responses.push(data);
        }
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Both ends of it.
    pub(crate) fn addresses(&self) -> (SocketAddr, Option<IpAddr>) {
        (self.remote, self.local_ip)
    }

    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.local_ip
    }

    /// Bytes that may be sent before the address is proven; `u64::MAX` after.
    pub(crate) fn budget(&self) -> u64 {
        self.amplification.budget()
    }

    /// Whether a datagram that came from `remote` to `local_ip` came on it.
    #[inline]
    pub(super) fn is_between(&self, remote: SocketAddr, local_ip: Option<IpAddr>) -> bool {
        self.remote == remote
            && (self.local_ip == local_ip || self.local_ip.is_none() || local_ip.is_none())
    }

    /// Whether the peer's address is that of `other`, its port aside: most likely a NAT forgot its
    /// mapping, and the way is the same (RFC 9000 §9.4).
    pub(super) fn differs_in_port_only(&self, other: &Self) -> bool {
        self.follows && self.remote.ip() == other.remote.ip() && self.local_ip == other.local_ip
    }

    /// Whether it leads to another address of a server's, which that named itself.
    pub(super) fn is_to_another_server_address(&self, other: &Self) -> bool {
        !self.follows && self.remote != other.remote
    }

    /// An authentic datagram of so many bytes came on it.
    pub(crate) fn on_received(&mut self, bytes: usize) {
        self.amplification.on_received(bytes);
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    pub(crate) fn is_challenged(&self) -> bool {
        self.validation.is_some()
    }

    pub(crate) fn give_up_validation(&mut self) {
        self.validation = None;
    }

    /// Nothing can be sent there any more.
    pub(crate) fn fall_silent(&mut self) {
        self.validation = None;
        self.responses = Responses::default();
    }

    /// The peer is to prove that it is there.
    pub(crate) fn challenge(&mut self, now: Time, pto: Duration) {
        self.validation = Some(Box::new(Validation::new(now, pto, self.asked)));
    }

    /// The same, in the time that is left of another path's challenge.
    pub(super) fn challenge_until(&mut self, now: Time, pto: Duration, gives_up: Time) {
        self.validation = Some(Box::new(Validation::until(now, pto, self.asked, gives_up)));
    }

    /// Something that belongs to this path alone waits to be sent.
    pub(super) fn has_probe(&self, active: bool) -> bool {
        self.validation.as_deref().is_some_and(Validation::is_due)
            || (!active && !self.responses.is_empty())
    }
}
