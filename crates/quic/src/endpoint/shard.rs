//! The struct `Endpoint`: the parts of one shard, and the connection IDs it makes.
//!
//! Below `admit`, `settle` and the public methods, each of which is an `impl Endpoint` in a file of
//! its own that uses this one. Nothing here calls them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use towline_wire::{ConnectionId, PreferredAddress};

use super::incoming::Requests;
use super::keyed::KeyedState;
use super::large_senders::LargeSenders;
use super::memory::Memory;
use super::reset::Resets;
use super::route::Routes;
use super::rtt_memory::RttMemory;
use super::slots::Slots;
use super::stateless::Stateless;
use super::stats::EndpointStats;
use super::timers::DeadlineQueue;
use super::token::Tokens;
use crate::config::{CidGenerator, EndpointConfig, ServerConfig};
use crate::connection::NewConnection;
use crate::connection::stats::Stats;
use crate::observe::ObserverFactory;
use crate::stats::Totals;

/// One shard of an endpoint.
pub struct Endpoint {
    pub(super) rng: ChaCha20Rng,
    pub(super) cid_generator: Box<dyn CidGenerator>,
    pub(super) cid_len: usize,
    pub(super) server: Option<Arc<ServerConfig>>,
    pub(super) slots: Slots,
    pub(super) routes: Routes,
    pub(super) resets: Resets,
    pub(super) large_senders: LargeSenders,
    pub(super) tokens: Tokens,
    pub(super) stateless: Stateless,
    pub(super) deadlines: DeadlineQueue,
    /// A copy of the Initial packet that is being opened.
    pub(super) scratch: Vec<u8>,
    pub(super) accepting: bool,
    /// The system may fragment what is sent.
    pub(super) may_fragment: bool,
    /// The application decides about each client before TLS.
    pub(super) hold_incoming: bool,
    /// What was not read of a connection that is over waits for [`Endpoint::forget`].
    pub(super) keep_unread: bool,
    pub(super) requests: Requests,
    pub(super) rtts: RttMemory,
    pub(super) memory: Memory,
    pub(super) observers: Option<Arc<dyn ObserverFactory>>,
    pub(super) stats: EndpointStats,
    /// Counters of the connections that are gone.
    pub(super) ended: Totals,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// IDs that the generator is asked for in vain, one after the other. With half of them in use, so many
/// tries fail once in 2^64.
const MAX_CID_ATTEMPTS: u32 = 64;

impl Endpoint {
    /// A shard; a server if `server` is given, which needs connection IDs
    /// ([`CidGenerator::cid_len`](crate::CidGenerator::cid_len)) to take clients.
    pub fn new(config: EndpointConfig, server: Option<Arc<ServerConfig>>) -> Self {
        let mut rng = ChaCha20Rng::from_seed(config.seed);
        let route_keys = (rng.next_u64(), rng.next_u64());
        let cid_len = config.cid_generator.cid_len();
        let mut ended = Totals::default();
        // So that every field is there from the beginning, with zero.
        ended.add_ended(&Stats::default());
        Self {
            rng,
            cid_len,
            cid_generator: config.cid_generator,
            accepting: server.is_some() && cid_len > 0,
            server,
            slots: Slots::default(),
            routes: Routes::new(route_keys),
            resets: Resets::new(&config.reset_key, route_keys),
            large_senders: LargeSenders::default(),
            tokens: Tokens::new(&config.token_key),
            stateless: Stateless::new(KeyedState(route_keys.1, route_keys.0)),
            deadlines: DeadlineQueue::default(),
            may_fragment: false,
            hold_incoming: config.hold_incoming,
            keep_unread: config.keep_unread,
            requests: Requests::new(KeyedState(route_keys.0, route_keys.1)),
            rtts: RttMemory::default(),
            memory: Memory::new(config.memory_limit),
            scratch: Vec::new(),
            observers: None,
            stats: EndpointStats::default(),
            ended,
        }
    }

    /// Fresh IDs and secrets of a connection; `None` if there is no ID left.
    pub(super) fn prepare(
        &mut self,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        original: ConnectionId,
    ) -> Option<NewConnection> {
        let local = self.new_cid()?;
        Some(NewConnection {
            remote,
            local_ip,
            original,
            local,
            reset_token: self.resets.token(&local),
            skip_key: self.rng.next_u64(),
            challenge_key: self.rng.next_u64(),
            may_fragment: self.may_fragment,
            preferred: None,
        })
    }

    /// The server's preferred address, with a connection ID that is for it (RFC 9000 §18.2).
    pub(super) fn prepare_preferred(
        &mut self,
        config: &ServerConfig,
        local: ConnectionId,
    ) -> Option<PreferredAddress> {
        let (ipv4, ipv6) = (config.preferred_ipv4, config.preferred_ipv6);
        if ipv4.is_none() && ipv6.is_none() {
            return None;
        }
        let connection_id = self.new_cid().filter(|cid| *cid != local)?;
        Some(PreferredAddress {
            ipv4,
            ipv6,
            connection_id,
            stateless_reset_token: self.resets.token(&connection_id),
        })
    }

    /// An ID that no observer can link to another, and that no connection has (RFC 9000 §5.1). `None`
    /// where the generator's IDs are all but used up.
    pub(super) fn new_cid(&mut self) -> Option<ConnectionId> {
        let mut random = [0; 20];
        for _ in 0..MAX_CID_ATTEMPTS {
            self.rng.fill_bytes(&mut random);
            let cid = self.cid_generator.generate(&random[..self.cid_len]);
            if cid.is_empty() || self.routes.get(&cid).is_none() {
                return Some(cid);
            }
        }
        None
    }
}
