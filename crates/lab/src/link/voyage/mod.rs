//! [`Voyage`]: a whole delta link on the simulator, with all that may happen to it.
//!
//! ```text
//!   source → spool on a torn disk → sender ═ QUIC ═ receiver → log, durable late, by number
//!                                                          └→ live sink, newest first
//! ```
//!
//! Two real endpoints, and messages on them as the driver carries them. Either end may be killed, the power may
//! fail, connections break, the log goes away, the boat changes its network; a bulk transfer may share the path.
//! Every record that comes is held against its source. The same plan and calls give the same voyage.

mod base;
mod boat;
mod bulk;
mod carrier;
mod ledger;
mod shore;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use towline_link::carriage::{ACK_DELAY, IDLE_TIMEOUT, KEEP_ALIVE, PACKETS_PER_ACK, SHORT_CID};
use towline_link::receiver::ReceiverStats;
use towline_link::sender::{SenderConfig, SenderStats};
use towline_quic::{
    ClientConfig, ConnectionHandle, Endpoint, Event, ServerConfig, ShardedCid, TransportConfig,
};
use towline_sim::{LinkConfig, LinkId, Network, START, Train, Watch, World};
use towline_testkit::{TlsOptions, TlsPair, tls_pair};
use towline_wire::Time;

use crate::Random;
use crate::host::Host;
use crate::link::source::Source;
use base::{BOAT, BULK_FROM, SHORE, Tally, must, secrets};
use boat::Boat;
use bulk::Bulk;
use ledger::Ledger;
use shore::Shore;

/// What sails.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything random follows from it.
    pub seed: u64,
    /// From the boat to the shore.
    pub forward: LinkConfig,
    /// Back.
    pub back: LinkConfig,
    /// How long a record waits for others.
    pub deadline: Duration,
    /// The most that the link may send, in bytes a second.
    pub rate: Option<u64>,
    /// Deltas a second.
    pub pace: f64,
    /// A bulk transfer with CUBIC shares the path.
    pub bulk: bool,
    /// The shore keeps the key of its stateless resets (RFC 9000 §10.3), so that a boat hears at once that it
    /// began again.
    pub keeps_reset_key: bool,
}

impl Plan {
    /// 80 deltas a second over such a link, both ways alike.
    pub fn new(seed: u64, link: LinkConfig) -> Self {
        Self {
            seed,
            forward: link.clone(),
            back: link,
            deadline: Duration::from_millis(250),
            rate: None,
            pace: 80.0,
            bulk: false,
            keeps_reset_key: false,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Deltas that the spool said were durable.
    pub committed: u64,
    /// Those of them that are in the log.
    pub logged: u64,
    /// Records that one connection gave twice.
    pub twice: u64,
    /// Records that came to the log although it had them: an older connection had them on their way.
    pub logged_again: u64,
    /// Records that came otherwise than they were.
    pub wrong: u64,
    /// The first of them.
    pub first_wrong: Option<String>,
    /// Values that a live sink got although it, or the one before the shore was killed, had newer ones.
    pub stale: u64,
    /// Values of live records that it did not get, though there were no newer ones.
    pub withheld: u64,
    /// Names of which the newest value was not shown.
    pub unshown: u64,
    /// When each was offered, since the start, and how long it took to the shore.
    pub latencies: Vec<(Duration, Duration)>,
    /// How long those took that the live sink got.
    pub shown: Vec<Duration>,
    /// UDP payload that the boat sent, and that the shore sent.
    pub bytes: [u64; 2],
    /// Datagrams of each.
    pub datagrams: [u64; 2],
    /// Bytes of the bulk transfer that arrived.
    pub bulk: u64,
    /// Batches that took a stream.
    pub streams: u64,
    /// The most that waited in the transport's queue of datagrams after it had sent what it could.
    pub queued: usize,
    /// The most that ever did.
    pub peak_queued: usize,
    /// Connections that were made.
    pub connections: u64,
    /// Times that the boat's driver would have been woken for nothing.
    pub spins: u64,
    /// Of all senders together.
    pub sender: SenderStats,
    /// Of all receivers together.
    pub receiver: ReceiverStats,
    /// Time that passed.
    pub took: Duration,
}

impl Outcome {
    /// The latency below which this part of all stays, 0 to 1.
    pub fn latency(&self, part: f64) -> Duration {
        percentile(self.latencies.iter().map(|(_, took)| *took).collect(), part)
    }

    /// The same of what was shown live.
    pub fn shown_latency(&self, part: f64) -> Duration {
        percentile(self.shown.clone(), part)
    }

    /// UDP payload of the boat for each delta.
    pub fn bytes_per_delta(&self) -> f64 {
        self.bytes[0] as f64 / self.committed.max(1) as f64
    }
}

fn percentile(mut all: Vec<Duration>, part: f64) -> Duration {
    all.sort_unstable();
    let at = ((all.len() as f64 * part).ceil() as usize).clamp(1, all.len().max(1)) - 1;
    all.get(at).copied().unwrap_or_default()
}

/// A link under way.
pub struct Voyage {
    plan: Plan,
    world: World<Host, Network>,
    links: [LinkId; 2],
    tls: TlsPair,
    ends: Ends,
    source: Source,
    random: Random,
    /// The next delta, when it comes, and how many may come.
    place: u64,
    next: Time,
    offers: u64,
    /// Processes that began, for their secrets.
    starts: u64,
    moves: u8,
}

struct Ends {
    boat: Boat,
    shore: Shore,
    bulk: Bulk,
    ledger: Ledger,
    tally: Tally,
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 4460)
}

/// What both ends of a link choose, as the driver's options have it.
fn transport() -> TransportConfig {
    TransportConfig::default()
        .mtu_search(false)
        .packets_per_ack(PACKETS_PER_ACK)
        .max_ack_delay(ACK_DELAY)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IDLE_TIMEOUT)
}

impl Voyage {
    /// One that is about to begin.
    ///
    /// # Panics
    /// When a link of the plan is impossible.
    pub fn new(plan: Plan) -> Self {
        let tls = tls_pair(plan.seed, &TlsOptions::default());
        let [here, there, from, to] = [1, 2, 3, 4].map(address);
        let mut network = Network::new(plan.seed);
        let links = [("forward", &plan.forward), ("back", &plan.back)]
            .map(|(name, link)| must("a possible link", network.add_link(name, link.clone())));
        for (a, b) in [(here, there), (from, to)] {
            for (route, link) in [((a, b), links[0]), ((b, a), links[1])] {
                let laid = network.route(route.0, route.1, &[link]);
                debug_assert!(laid.is_ok(), "the link was just added");
            }
        }
        let client = ClientConfig::new(Arc::clone(&tls.client)).transport(transport());
        let config = SenderConfig::new("boat")
            .deadline(plan.deadline)
            .rate(plan.rate);
        let source = Source::new(plan.seed);
        let ends = Ends {
            boat: Boat::new(plan.seed, config, client, [here, there]),
            shore: Shore::new(plan.seed),
            bulk: Bulk::default(),
            ledger: Ledger::new(source),
            tally: Tally::default(),
        };
        let mut voyage = Self {
            world: World::new(Vec::new(), network),
            links,
            random: Random::new(plan.seed, 1 << 40),
            tls,
            ends,
            source,
            place: 0,
            next: START,
            offers: 0,
            starts: 0,
            moves: 0,
            plan,
        };
        let ends = [boat::endpoint(voyage.plan.seed, 0), voyage.shore_endpoint()];
        let bulk = bulk::endpoints(voyage.plan.seed, &voyage.tls);
        let hosts = ends.into_iter().chain(bulk).zip([here, there, from, to]);
        voyage.world.hosts = hosts.map(|(end, at)| Host::new(end, at)).collect();
        if voyage.plan.bulk {
            let now = voyage.world.now;
            let endpoint = &mut voyage.world.hosts[BULK_FROM].endpoint;
            bulk::connect(now, endpoint, &voyage.tls, to);
        }
        voyage
    }

    fn shore_endpoint(&mut self) -> Endpoint {
        self.starts += 1;
        let mut config = secrets(self.plan.seed, self.starts);
        if self.plan.keeps_reset_key {
            config.reset_key = secrets(self.plan.seed, 0).reset_key;
        }
        let server = ServerConfig::new(Arc::clone(&self.tls.server)).transport(transport());
        let short = must("a possible length", ShardedCid::with_len(0, SHORT_CID));
        Endpoint::new(
            config.cid_generator(Box::new(short)),
            Some(Arc::new(server)),
        )
    }

    /// So many more deltas come, at the plan's pace, while the boat is up.
    pub fn offer(&mut self, deltas: u64) {
        self.offers += deltas;
        self.next = self.next.max(self.world.now);
    }

    /// Deltas a second from now on.
    pub fn set_pace(&mut self, pace: f64) {
        self.plan.pace = pace;
    }

    /// Deltas that have not come.
    pub fn to_come(&self) -> u64 {
        self.offers
    }

    /// The clock.
    pub fn now(&self) -> Time {
        self.world.now
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run(self.world.now + time, |_| false);
    }

    /// Lets time pass until all deltas have come and are durable at the shore, and the boat knows; for `patience` at
    /// most. Whether it came so far.
    pub fn finish(&mut self, patience: Duration) -> bool {
        self.run(self.world.now + patience, |voyage| {
            voyage.offers == 0 && voyage.ends.boat.is_done()
        });
        self.offers == 0 && self.ends.boat.is_done()
    }

    fn run(&mut self, end: Time, is_enough: impl Fn(&Self) -> bool) {
        loop {
            self.settle();
            if is_enough(self) {
                return;
            }
            let now = self.world.now;
            let feed = (self.offers > 0 && self.ends.boat.is_up()).then_some(self.next);
            let wakes = [self.ends.boat.wake(now), self.ends.shore.wake(), feed];
            let wakes = wakes.into_iter().flatten().chain(self.world.next_timeout());
            let next = wakes.min().unwrap_or(end).max(now);
            if next > end {
                self.world.now = end;
                return;
            }
            self.world.now = next;
            self.feed();
            self.world.arrive(&mut self.ends);
            self.world.run_timers(&mut self.ends);
        }
    }

    fn feed(&mut self) {
        let now = self.world.now;
        while self.offers > 0 && self.next <= now && self.ends.boat.is_up() {
            let (record, class) = (
                self.source.record(self.place),
                self.source.class(self.place),
            );
            if let Some(seq) = self.ends.boat.offer(now, record, class) {
                self.ends.ledger.on_offered(now, seq, self.place);
                self.place += 1;
                self.offers -= 1;
            }
            // They come one by one and in bursts.
            let gap = match self.random.below(4) {
                0 => 0.0,
                _ => 4.0 / 3.0 / self.plan.pace,
            };
            self.next = self.next.max(now) + Duration::from_secs_f64(gap);
        }
    }

    fn settle(&mut self) {
        let hosts = 0..self.world.hosts.len();
        if self
            .ends
            .shore
            .starts()
            .is_some_and(|at| at <= self.world.now)
        {
            self.ends.shore.start();
            let endpoint = self.shore_endpoint();
            self.world.hosts[SHORE].endpoint = endpoint;
        }
        loop {
            self.world.settle(hosts.clone(), &mut self.ends);
            let ends = &mut self.ends;
            let boat = ends
                .boat
                .pump(&mut self.world, &mut ends.ledger, &mut ends.tally);
            let shore = ends
                .shore
                .pump(self.world.now, &mut self.world.hosts, &mut ends.ledger);
            if !boat && !shore {
                break;
            }
        }
        let queued = self.ends.boat.queued(&self.world.hosts);
        self.ends.tally.queued = self.ends.tally.queued.max(queued);
    }

    /// The boat's process is killed, and begins again after `down`; `is_power` if the power failed.
    pub fn kill_boat(&mut self, down: Duration, is_power: bool) {
        let power = is_power.then_some(&mut self.random);
        self.ends.boat.kill(self.world.now, down, power);
        self.world.hosts[BOAT].endpoint = boat::endpoint(self.plan.seed, 0);
    }

    /// The shore's process is killed, and begins again after `down`.
    pub fn kill_shore(&mut self, down: Duration) {
        self.ends.shore.kill(self.world.now, down);
        // Nothing answers meanwhile.
        let endpoint = Endpoint::new(secrets(self.plan.seed, 1 << 50), None);
        self.world.hosts[SHORE].endpoint = endpoint;
    }

    /// The boat gives its connection up.
    pub fn hang_up(&mut self) {
        let hosts = &mut self.world.hosts;
        self.ends.boat.hang_up(self.world.now, hosts);
    }

    /// The log goes away, or comes back.
    pub fn set_log(&mut self, is_there: bool) {
        self.ends.shore.set_down(!is_there);
    }

    /// Other links, from now on.
    pub fn set_links(&mut self, forward: &LinkConfig, back: &LinkConfig) {
        for (id, link) in self.links.into_iter().zip([forward, back]) {
            let set = self.world.net.set_config(id, link.clone());
            debug_assert!(set.is_ok(), "a link that is possible");
        }
    }

    /// The boat gets another address and port, as from another network; its endpoint hears of it or not.
    pub fn hand_over(&mut self, is_told: bool) {
        let home = address(1);
        self.moves = self.moves.wrapping_add(1);
        let mut public = self.world.net.public(home);
        public.set_ip(IpAddr::V4(Ipv4Addr::new(172, 16, self.moves, 1)));
        public.set_port(30_000 + u16::from(self.moves));
        self.world.net.rebind(home, public);
        if is_told {
            self.world.hosts[BOAT].endpoint.rebind(self.world.now);
        }
    }

    /// The boat's connection, to look at.
    pub fn connection(&self) -> Option<&towline_quic::Connection> {
        self.ends.boat.connection(&self.world.hosts)
    }

    /// How the boat is, for people.
    pub fn describe(&self) -> String {
        let shore = self.ends.shore.stats();
        format!(
            "seed {}: {}, {shore:?}",
            self.plan.seed,
            self.ends.boat.describe()
        )
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        let Ends {
            boat,
            shore,
            bulk,
            ledger,
            tally,
        } = &self.ends;
        let since = |at: Time| at.saturating_duration_since(START);
        let latencies = ledger.latencies().into_iter();
        Outcome {
            committed: ledger.committed(),
            logged: ledger.logged(),
            twice: ledger.twice,
            logged_again: ledger.logged_again,
            wrong: ledger.wrong,
            first_wrong: ledger.first_wrong.clone(),
            stale: ledger.stale,
            withheld: ledger.withheld,
            unshown: ledger.unshown(),
            latencies: latencies.map(|(at, took)| (since(at), took)).collect(),
            shown: ledger.shown_late.clone(),
            bytes: tally.bytes,
            datagrams: tally.datagrams,
            bulk: bulk.received(),
            streams: boat.streams(),
            queued: tally.queued,
            peak_queued: tally.peak_queued,
            connections: boat.connections,
            spins: boat.spins,
            sender: boat.stats(),
            receiver: shore.stats(),
            took: since(self.world.now),
        }
    }
}

impl Watch<Host, Network> for Ends {
    fn send(&mut self, _: Time, _: &mut [Host], at: usize, train: &mut Train) -> bool {
        if at <= SHORE {
            let len = train.datagram.payload.len();
            self.tally.bytes[at] += len as u64;
            self.tally.datagrams[at] += len.div_ceil(train.stride.max(1)) as u64;
        }
        true
    }

    fn on_event(
        &mut self,
        now: Time,
        hosts: &mut [Host],
        at: usize,
        (handle, event): (ConnectionHandle, Event),
    ) {
        match at {
            BOAT => self.boat.on_event(now, hosts, handle, &event),
            SHORE => {
                let ledger = &mut self.ledger;
                self.shore.on_event(now, hosts, handle, &event, ledger);
            }
            _ => self.bulk.on_event(&mut hosts[at].endpoint, handle, &event),
        }
    }
}
