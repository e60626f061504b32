//! What a server does for datagrams that belong to no connection, and the limits of it: prices, budgets,
//! places of handshakes, and replies waiting to be sent.
//!
//! Each kind of work has its own budget, so that junk cannot take what a Retry needs. Prices are in
//! units of about a microsecond of one core (`bench-flood --prices` measures all but the sending);
//! all budgets together are a third of a core.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use towline_wire::Time;

use super::budget::{Budget, Places, Source};
use super::handshakes::Handshakes;
use super::keyed::KeyedState;
use super::stats::EndpointStats;

/// Cap: stateless packets (Retry, Version Negotiation, reset, refusal) waiting to be sent.
pub(crate) const MAX_STATELESS_QUEUE: usize = 256;

/// Cap: units for Retry packets in a quarter of a second: 50,000 Retry packets a second.
pub(crate) const MAX_RETRY_UNITS: u64 = 37_500;
/// Cap: units for Version Negotiation packets in a quarter of a second: 5,000 packets a second.
pub(crate) const MAX_VERSION_UNITS: u64 = 2_500;
/// Cap: units for stateless resets in a quarter of a second: 5,000 resets a second.
pub(crate) const MAX_RESET_UNITS: u64 = 2_500;
/// Cap: units for refusals in a quarter of a second: 5,000 refusals a second.
pub(crate) const MAX_REFUSAL_UNITS: u64 = 3_750;
/// Cap: units for opening Initial packets in a quarter of a second: 37,500 of 1,200 bytes a second.
pub(crate) const MAX_OPENING_UNITS: u64 = 37_500;

/// Seal a token and a tag, and send.
const RETRY_PRICE: u64 = 3;
/// Send.
const VERSION_PRICE: u64 = 2;
/// Make a token and send.
const RESET_PRICE: u64 = 2;
/// Seal a packet under keys that opening has derived, and send.
const REFUSAL_PRICE: u64 = 3;
/// Derive keys and open a packet; a long one costs more.
const OPENING_PRICE: u64 = 4;
/// Bytes that are opened for one more unit.
const OPENED_PER_UNIT: usize = 4096;

/// Work without a connection that has a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Retry,
    VersionNegotiation,
    Reset,
    Refusal,
    /// Opening an Initial packet of so many bytes.
    Opening(usize),
}

/// Who sent a datagram that belongs to no connection, and to which of our addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) remote: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    pub(super) source: Source,
}

/// A packet that belongs to no connection.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) to: Sender,
    pub(super) packet: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Stateless {
    keys: KeyedState,
    retries: Budget,
    versions: Budget,
    resets: Budget,
    refusals: Budget,
    openings: Budget,
    pub(super) handshakes: Handshakes,
    replies: VecDeque<Reply>,
    /// Whose replies wait.
    waiting: Places,
}

impl Stateless {
    pub(super) fn new(keys: KeyedState) -> Self {
        Self {
            keys,
            retries: Budget::new(MAX_RETRY_UNITS),
            versions: Budget::new(MAX_VERSION_UNITS),
            resets: Budget::new(MAX_RESET_UNITS),
            refusals: Budget::new(MAX_REFUSAL_UNITS),
            openings: Budget::new(MAX_OPENING_UNITS),
            handshakes: Handshakes::default(),
            replies: VecDeque::new(),
            waiting: Places::default(),
        }
    }

    pub(super) fn sender(&self, remote: SocketAddr, local_ip: Option<IpAddr>) -> Sender {
        Sender {
            remote,
            local_ip,
            source: Source::of(&self.keys, remote.ip()),
        }
    }

    /// Spends the price of `work`; `false` if it is more than the share of where `sender` is.
    pub(super) fn may_do(
        &mut self,
        now: Time,
        sender: Sender,
        work: Work,
        stats: &mut EndpointStats,
    ) -> bool {
        let (budget, price) = match work {
            Work::Retry => (&mut self.retries, RETRY_PRICE),
            Work::VersionNegotiation => (&mut self.versions, VERSION_PRICE),
            Work::Reset => (&mut self.resets, RESET_PRICE),
            Work::Refusal => (&mut self.refusals, REFUSAL_PRICE),
            Work::Opening(len) => {
                let price = OPENING_PRICE + (len / OPENED_PER_UNIT) as u64;
                (&mut self.openings, price)
            }
        };
        let granted = budget.take(now, sender.source, price);
        if granted {
            stats.stateless_work += price;
        } else {
            stats.over_budget += 1;
        }
        granted
    }

    /// Queues the answer to a datagram of `trigger` bytes. A source that has its share of the queue
    /// gets none, and no answer is longer than what it answers (RFC 9000 §8.1, §10.3.3, §14.1).
    pub(super) fn reply(
        &mut self,
        to: Sender,
        trigger: usize,
        packet: Vec<u8>,
        stats: &mut EndpointStats,
    ) -> bool {
        let room = self.waiting.may_take(to.source, MAX_STATELESS_QUEUE);
        if !room || packet.len() > trigger {
            stats.over_budget += 1;
            return false;
        }
        self.waiting.take(to.source);
        self.replies.push_back(Reply { to, packet });
        true
    }

    /// Replies wait to be sent.
    pub(super) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// The next reply to send.
    pub(super) fn next_reply(&mut self) -> Option<Reply> {
        let reply = self.replies.pop_front()?;
        self.waiting.give_back(reply.to.source);
        Some(reply)
    }
}
