//! Clients that ask for a connection and wait for the application's decision.
//!
//! Filled and emptied by `admit`, and only where [`EndpointConfig::hold_incoming`] is set. A client
//! here has sent an authentic Initial and has a place among the handshakes; it costs its first
//! datagrams and no TLS session. Those that nobody decides about leave in the order they came. This
//! file sends nothing and decides nothing.
//!
//! [`EndpointConfig::hold_incoming`]: crate::config::EndpointConfig::hold_incoming

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use towline_wire::{ConnectionId, Time};

use super::handshakes::Place;
use super::keyed::KeyedState;
use super::memory::Held;
use super::slots::Original;
use super::stateless::Sender;
use crate::connection::component::Ecn;
use crate::connection::protect::Protection;
use crate::connection::{Arrival, Holding};

/// Cap: datagrams of one client that wait for the decision.
pub(crate) const MAX_INCOMING_DATAGRAMS: usize = 10;

/// Cap: bytes of those datagrams together.
pub(crate) const MAX_INCOMING_BYTES: usize = 16_384;

/// Cap: how long a client waits for the decision; then it is forgotten, and may ask again.
pub const MAX_INCOMING_WAIT: Duration = Duration::from_secs(10);

/// Bytes of heap that a waiting client takes beside its datagrams, as measured: Initial keys, places in
/// tables.
const KEYS: usize = 3 << 10;

/// Names a client that waits for a decision, until there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncomingHandle(u64);

/// A client that asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incoming {
    /// What to decide about it by.
    pub handle: IncomingHandle,
    /// Its address, which anyone could have written there unless it is validated.
    pub remote: SocketAddr,
    /// The address of ours that it sent to, where the socket tells it.
    pub local_ip: Option<IpAddr>,
    /// It has answered a Retry, which proves its address (RFC 9000 §8.1.2).
    pub is_validated: bool,
    /// The destination of the first packet it ever sent (RFC 9000 §7.3).
    pub original_destination: ConnectionId,
}

/// A client as its first Initial shows it.
pub(super) struct Hello {
    pub(super) sender: Sender,
    /// Destination of the Initial, and so of all that follow before our answer.
    pub(super) dcid: ConnectionId,
    pub(super) scid: ConnectionId,
    /// Destination of the Initial before, of a client that answered a Retry and so proved its address.
    pub(super) proven: Option<ConnectionId>,
}

impl Hello {
    /// Destination of the first packet it ever sent.
    pub(super) fn original(&self) -> ConnectionId {
        self.proven.unwrap_or(self.dcid)
    }

    /// What its Initials are known by.
    fn key(&self) -> Original {
        (self.dcid, self.sender.remote)
    }

    /// How a datagram of it came.
    pub(super) fn arrival(&self, ecn: Option<Ecn>) -> Arrival {
        Arrival {
            remote: self.sender.remote,
            local_ip: self.sender.local_ip,
            ecn,
        }
    }
}

/// A datagram of a client that waits.
pub(super) struct Kept {
    pub(super) ecn: Option<Ecn>,
    pub(super) bytes: Vec<u8>,
}

/// A client that waits, and what it needs to go on.
pub(super) struct Request {
    pub(super) hello: Hello,
    /// The keys of its Initials.
    pub(super) protection: Protection,
    /// Its place among the handshakes.
    pub(super) place: Place,
    /// In the order they came; the first is there from the start.
    pub(super) datagrams: Vec<Kept>,
    pub(super) held: Held,
    since: Time,
}

impl Request {
    pub(super) fn new(now: Time, hello: Hello, protection: Protection, place: Place) -> Self {
        Self {
            hello,
            protection,
            place,
            datagrams: Vec::new(),
            held: Held::new(now),
            since: now,
        }
    }

    /// Keeps a datagram if there is room. One that is dropped is sent again by its sender.
    pub(super) fn keep(&mut self, ecn: Option<Ecn>, datagram: &[u8]) -> bool {
        let kept: usize = self.datagrams.iter().map(|kept| kept.bytes.len()).sum();
        let room = self.datagrams.len() < MAX_INCOMING_DATAGRAMS
            && kept + datagram.len() <= MAX_INCOMING_BYTES;
        if room {
            let bytes = datagram.to_vec();
            self.datagrams.push(Kept { ecn, bytes });
        }
        room
    }

    /// What it has of the endpoint's memory.
    pub(super) fn holding(&self) -> Holding {
        let bytes: usize = self.datagrams.iter().map(|k| k.bytes.capacity()).sum();
        let records = self.datagrams.capacity() * size_of::<Kept>();
        Holding {
            bytes: size_of::<Self>() + KEYS + records + bytes,
            moved: 0,
        }
    }

    /// Bytes of its first datagram: no answer may be longer.
    pub(super) fn trigger(&self) -> usize {
        self.datagrams.first().map_or(0, |first| first.bytes.len())
    }
}

/// All clients that wait.
pub(super) struct Requests {
    /// By number, which is the order they came in.
    requests: BTreeMap<u64, Request>,
    /// The same numbers, by what each client's Initials are known by.
    by_original: HashMap<Original, u64, KeyedState>,
    /// The number of the next to come.
    next: u64,
    /// The first that the application has not heard of, or a later one.
    first_unpolled: u64,
    unpolled: usize,
}

impl Requests {
    pub(super) fn new(hash_keys: KeyedState) -> Self {
        Self {
            requests: BTreeMap::new(),
            by_original: HashMap::with_hasher(hash_keys),
            next: 0,
            first_unpolled: 0,
            unpolled: 0,
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Who waits and sends from this address to this connection ID.
    pub(super) fn find(&mut self, original: &Original) -> Option<&mut Request> {
        let number = self.by_original.get(original)?;
        self.requests.get_mut(number)
    }

    pub(super) fn insert(&mut self, request: Request) {
        self.by_original.insert(request.hello.key(), self.next);
        self.requests.insert(self.next, request);
        self.next += 1;
        self.unpolled += 1;
    }

    pub(super) fn get(&self, handle: IncomingHandle) -> Option<&Request> {
        self.requests.get(&handle.0)
    }

    pub(super) fn remove(&mut self, handle: IncomingHandle) -> Option<Request> {
        let request = self.requests.remove(&handle.0)?;
        self.by_original.remove(&request.hello.key());
        self.unpolled -= usize::from(handle.0 >= self.first_unpolled);
        Some(request)
    }

    /// How many the application has not heard of.
    pub(super) fn unpolled(&self) -> usize {
        self.unpolled
    }

    /// The next one that the application has not heard of; it has then.
    pub(super) fn tell(&mut self) -> Option<Incoming> {
        let (&number, request) = self.requests.range(self.first_unpolled..).next()?;
        self.first_unpolled = number + 1;
        self.unpolled -= 1;
        let Hello { sender, proven, .. } = request.hello;
        Some(Incoming {
            handle: IncomingHandle(number),
            remote: sender.remote,
            local_ip: sender.local_ip,
            is_validated: proven.is_some(),
            original_destination: request.hello.original(),
        })
    }

    /// Who has waited longest.
    pub(super) fn oldest(&self) -> Option<IncomingHandle> {
        let (&number, _) = self.requests.first_key_value()?;
        Some(IncomingHandle(number))
    }

    /// When the one who has waited longest is forgotten.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let (_, request) = self.requests.first_key_value()?;
        Some(request.since + MAX_INCOMING_WAIT)
    }

    /// One who has waited for too long.
    pub(super) fn expired(&self, now: Time) -> Option<IncomingHandle> {
        self.next_timeout().filter(|at| *at <= now)?;
        self.oldest()
    }
}
