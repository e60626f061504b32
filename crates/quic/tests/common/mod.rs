//! Two endpoints joined by simulated links on virtual time.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses its own part"
)]

pub mod evil;
pub mod transfer;
pub mod wire;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use towline_quic::{
    Algorithm, CidGenerator, ClientConfig, Connection, ConnectionError, ConnectionHandle,
    DatagramMeta, Direction, Ecn, Endpoint, EndpointConfig, Event, NoCids, ReadError, ServerConfig,
    ShardedCid, StreamId, Time, TrainBuf, TransportConfig,
};
use towline_sim::{
    Datagram, LinkConfig, LinkId, Network, Outgoing, TooBig, Train, Watch, Wire, World,
};
use towline_testkit::{FixedTime, TlsOptions, TlsPair, tls_pair};

pub use transfer::Transfer;

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

pub struct Host {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    pub handle: Option<ConnectionHandle>,
    pub events: VecDeque<Event>,
    pub sent_datagrams: u64,
    /// Its datagrams go nowhere and it hears nothing: somebody else speaks for it.
    pub hijacked: bool,
    /// Destination of the last datagram it sent.
    pub last_dcid: Vec<u8>,
    /// What arrived for it while hijacked.
    pub captured: Vec<Vec<u8>>,
    /// The ECN bits of each.
    pub captured_ecn: Vec<Option<u8>>,
    /// The train it builds.
    pub train: TrainBuf,
}

impl Host {
    pub fn new(endpoint: Endpoint, address: SocketAddr) -> Self {
        Self {
            endpoint,
            address,
            handle: None,
            events: VecDeque::new(),
            sent_datagrams: 0,
            hijacked: false,
            last_dcid: Vec::new(),
            captured: Vec::new(),
            captured_ecn: Vec::new(),
            train: TrainBuf::new(),
        }
    }

    pub fn conn(&mut self) -> &mut Connection {
        let handle = self.handle.expect("no connection yet");
        self.endpoint
            .connection_mut(handle)
            .expect("connection is gone")
    }

    pub fn is_confirmed(&self) -> bool {
        let connection = self.handle.and_then(|h| self.endpoint.connection(h));
        connection.is_some_and(Connection::is_confirmed)
    }

    /// Takes a train in, hijacked or not.
    pub fn take_in(&mut self, now: Time, train: &mut Train) {
        let meta = DatagramMeta {
            remote: train.datagram.source,
            local_ip: None,
            ecn: train.datagram.ecn.and_then(codepoint),
            stride: train.stride,
        };
        self.endpoint
            .handle_datagrams(now, meta, &mut train.datagram.payload);
    }

    /// Everything readable now; `true` if the end was reached.
    pub fn read_available(&mut self, id: StreamId, out: &mut Vec<u8>) -> bool {
        loop {
            match self.conn().read(id, usize::MAX) {
                Ok(Some(chunk)) => out.extend_from_slice(&chunk),
                Ok(None) => return true,
                Err(ReadError::Blocked) => return false,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

impl towline_sim::Host for Host {
    type Event = (ConnectionHandle, Event);

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn handle(&mut self, now: Time, train: &mut Train) {
        if self.hijacked {
            self.captured_ecn.push(train.datagram.ecn);
            self.captured
                .push(std::mem::take(&mut train.datagram.payload));
        } else {
            self.take_in(now, train);
        }
    }

    fn handle_too_big(&mut self, now: Time, notice: &TooBig) {
        self.endpoint
            .handle_too_big(now, notice.destination, notice.mtu, &notice.quoted);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let transmit = self.endpoint.poll_transmit(now, &mut self.train)?;
        Some(Outgoing {
            source: None,
            destination: transmit.remote,
            ecn: transmit.ecn.map(ecn_bits),
            stride: transmit.segment_size,
            len: transmit.len,
        })
    }

    fn train(&self) -> &[u8] {
        self.train.filled()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout().filter(|_| !self.hijacked)
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.endpoint.poll_event()
    }
}

/// Two hosts on links: a [`World`], with what they were made of.
pub struct Pair {
    world: World<Host, Network>,
    pub links: (LinkId, LinkId),
    pub client_config: ClientConfig,
    pub server_config: ServerConfig,
    pub clock: Arc<FixedTime>,
    /// Observes every datagram put on the wire: (sender, bytes); `false` drops it.
    pub tap: Option<Tap>,
    /// Observes and changes the ECN bits of every datagram: (sender, bits); `false` drops it.
    pub ecn_tap: Option<EcnTap>,
}

impl Deref for Pair {
    type Target = World<Host, Network>;

    fn deref(&self) -> &Self::Target {
        &self.world
    }
}

impl DerefMut for Pair {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.world
    }
}

/// What a pair, or a crowd, wants to see of its world: taps and the books of its hosts.
#[derive(Default)]
pub struct Taps<'a> {
    tap: Option<&'a mut Tap>,
    ecn: Option<&'a mut EcnTap>,
}

impl<W: Wire> Watch<Host, W> for Taps<'_> {
    fn send(&mut self, _: Time, hosts: &mut [Host], at: usize, train: &mut Train) -> bool {
        let host = &mut hosts[at];
        if host.hijacked {
            return false;
        }
        let datagram = &mut train.datagram;
        host.sent_datagrams += 1;
        host.last_dcid = wire::destination(&datagram.payload);
        let (tap, ecn) = (self.tap.as_mut(), self.ecn.as_mut());
        tap.is_none_or(|tap| tap(at, &mut datagram.payload))
            && ecn.is_none_or(|tap| tap(at, &mut datagram.ecn))
    }

    fn on_event(
        &mut self,
        _: Time,
        hosts: &mut [Host],
        at: usize,
        (handle, event): (ConnectionHandle, Event),
    ) {
        let host = &mut hosts[at];
        if event == Event::Accepted && host.handle.is_none() {
            host.handle = Some(handle);
        }
        host.events.push_back(event);
    }
}

pub type EcnTap = Box<dyn FnMut(usize, &mut Option<u8>) -> bool>;

pub type Tap = Box<dyn FnMut(usize, &mut Vec<u8>) -> bool>;

pub struct Options {
    pub seed: u64,
    pub link: LinkConfig,
    pub back: Option<LinkConfig>,
    pub client: TransportConfig,
    pub server: TransportConfig,
    pub tls: TlsOptions,
    pub retry: towline_quic::RetryPolicy,
    /// The server's, instead of the default.
    pub memory_limit: Option<u64>,
    /// Length of the connection IDs of client and server.
    pub cid_lens: [usize; 2],
}

pub fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            link: delay(10),
            back: None,
            client: TransportConfig::default(),
            server: TransportConfig::default(),
            tls: TlsOptions::default(),
            retry: towline_quic::RetryPolicy::Never,
            memory_limit: None,
            cid_lens: [8; 2],
        }
    }
}

impl Pair {
    pub fn new(options: Options) -> Self {
        let tls = tls_pair(options.seed, &options.tls);
        Self::with_tls(options, tls)
    }

    /// As `new`, with TLS configurations of the caller's.
    pub fn with_tls(options: Options, tls: TlsPair) -> Self {
        let mut server = ServerConfig::new(tls.server);
        server.transport = Arc::new(options.server);
        server.retry = options.retry;
        let mut client_config = ClientConfig::new(tls.client);
        client_config.transport = Arc::new(options.client);
        let addresses: [SocketAddr; 2] = [
            "10.0.0.1:1000".parse().unwrap(),
            "10.0.0.2:2000".parse().unwrap(),
        ];
        let mut net = Network::new(options.seed);
        let back = options.back.unwrap_or_else(|| options.link.clone());
        let links = net
            .join(addresses[0], addresses[1], options.link, back)
            .unwrap();
        let (mut client_seed, mut server_seed) = (seed(options.seed, 1), seed(options.seed, 2));
        if let Some(limit) = options.memory_limit {
            server_seed.memory_limit = limit;
        }
        client_seed.cid_generator = cids(options.cid_lens[CLIENT]);
        server_seed.cid_generator = cids(options.cid_lens[SERVER]);
        let endpoints = [
            Endpoint::new(client_seed, None),
            Endpoint::new(server_seed, Some(Arc::new(server.clone()))),
        ];
        let hosts: Vec<Host> = endpoints
            .into_iter()
            .zip(addresses)
            .map(|(endpoint, address)| Host::new(endpoint, address))
            .collect();
        Self {
            world: World::new(hosts, net),
            links,
            client_config,
            server_config: server,
            clock: tls.clock,
            tap: None,
            ecn_tap: None,
        }
    }

    /// The two ends, with what is under way lost, on another wire.
    pub fn on<W: Wire>(self, net: W) -> World<Host, W> {
        World {
            now: self.world.now,
            hosts: self.world.hosts,
            net,
        }
    }

    /// The world, and what watches it.
    fn parts(&mut self) -> (&mut World<Host, Network>, Taps<'_>) {
        let taps = Taps {
            tap: self.tap.as_mut(),
            ecn: self.ecn_tap.as_mut(),
        };
        (&mut self.world, taps)
    }

    /// Connects and runs until both ends are confirmed.
    pub fn connected(options: Options) -> Self {
        let mut pair = Self::new(options);
        pair.connect();
        pair.established(Duration::from_secs(30));
        pair
    }

    pub fn connect(&mut self) {
        let remote = self.hosts[SERVER].address;
        let now = self.now;
        let client = &mut self.world.hosts[CLIENT];
        let handle = client
            .endpoint
            .connect(
                now,
                &self.client_config,
                remote,
                towline_testkit::SERVER_NAME,
            )
            .unwrap();
        client.handle = Some(handle);
        self.flush();
    }

    pub fn client(&mut self) -> &mut Connection {
        self.hosts[CLIENT].conn()
    }

    pub fn server(&mut self) -> &mut Connection {
        self.hosts[SERVER].conn()
    }

    /// Runs the handshake of a client that has called `connect`.
    pub fn established(&mut self, limit: Duration) {
        self.run_until(limit, |p| p.hosts.iter().all(Host::is_confirmed));
    }

    /// One of the two connections.
    pub fn conn(&mut self, side: usize) -> &mut Connection {
        self.hosts[side].conn()
    }

    /// Hands bytes to `to` as if its peer had sent them, now.
    pub fn deliver(&mut self, to: usize, bytes: &[u8]) {
        let from = self.hosts[1 - to].address;
        self.deliver_from(to, from, bytes);
    }

    /// Hands bytes to `to` from any address, now.
    pub fn deliver_from(&mut self, to: usize, remote: SocketAddr, bytes: &[u8]) {
        self.deliver_silently(to, remote, bytes);
        self.flush();
    }

    /// As `deliver_from`, leaving the answers for later.
    pub fn deliver_silently(&mut self, to: usize, remote: SocketAddr, bytes: &[u8]) {
        self.deliver_train(to, remote, bytes.len(), bytes);
    }

    /// As `deliver_silently`, of datagrams that have `stride` bytes each.
    pub fn deliver_train(&mut self, to: usize, remote: SocketAddr, stride: usize, bytes: &[u8]) {
        let (now, host) = (self.now, &mut self.world.hosts[to]);
        let datagram = Datagram::new(remote, host.address, bytes.to_vec());
        host.take_in(now, &mut Train { datagram, stride });
    }

    /// What `side` has to send goes nowhere: its trains.
    pub fn take_trains(&mut self, side: usize) -> Vec<Train> {
        self.world.take(side, &mut ())
    }

    /// What `side` has to send goes nowhere: to whom, and each datagram.
    pub fn take_datagrams(&mut self, side: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let trains = self.take_trains(side);
        let parts = |train: &Train| -> Vec<_> {
            let remote = train.datagram.destination;
            train.payloads().map(|p| (remote, p.to_vec())).collect()
        };
        trains.iter().flat_map(parts).collect()
    }

    /// Sends what both ends have to send and collects their events.
    pub fn flush(&mut self) {
        let (world, mut taps) = self.parts();
        world.flush(&mut taps);
    }

    /// Advances to the next thing that happens; `false` if nothing ever will.
    pub fn step(&mut self) -> bool {
        let (world, mut taps) = self.parts();
        world.step(&mut taps)
    }

    /// Steps until `done`; panics with the clock if it takes longer than `limit`.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + limit;
        let mut steps = 0u64;
        while !done(self) {
            assert!(self.step(), "everything is silent at {:?}", self.now);
            assert!(self.now <= end, "not done within {limit:?}");
            steps += 1;
            assert!(steps < 5_000_000, "busy loop at {:?}", self.now);
        }
    }

    /// Runs for `time`, whatever happens.
    pub fn run_for(&mut self, time: Duration) {
        let (world, mut taps) = self.parts();
        world.run_for(time, &mut taps);
    }

    /// Takes the first event of `side` that `wanted` accepts.
    pub fn take_event(&mut self, side: usize, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let events = &mut self.hosts[side].events;
        let i = events.iter().position(wanted)?;
        events.remove(i)
    }

    /// Takes everything of `side`'s events.
    pub fn take_events(&mut self, side: usize) -> Vec<Event> {
        self.hosts[side].events.drain(..).collect()
    }

    /// Runs until `side`'s connection is over; why it ended.
    pub fn run_until_closed(&mut self, side: usize, limit: Duration) -> ConnectionError {
        let mut word = None;
        self.run_until(limit, |p| {
            word = p.close_reason(side);
            word.is_some()
        });
        word.unwrap()
    }

    /// What ended `side`'s connection, if it has ended.
    pub fn close_reason(&mut self, side: usize) -> Option<ConnectionError> {
        match self.take_event(side, |e| matches!(e, Event::Closed(_)))? {
            Event::Closed(word) => Some(word),
            _ => None,
        }
    }

    /// Opens a stream of `side`, writes `data` and finishes it.
    pub fn send_stream(&mut self, side: usize, direction: Direction, data: &[u8]) -> StreamId {
        let id = self
            .conn(side)
            .open(direction)
            .expect("no stream permitted");
        if !data.is_empty() {
            assert_eq!(self.conn(side).write_slice(id, data), Ok(data.len()));
        }
        self.conn(side).finish(id).unwrap();
        id
    }

    /// Everything readable now; `true` if the end was reached.
    pub fn read_available(&mut self, side: usize, id: StreamId, out: &mut Vec<u8>) -> bool {
        self.hosts[side].read_available(id, out)
    }

    /// Reads `id` at `side` to its end.
    pub fn read_to_end(&mut self, side: usize, id: StreamId, limit: Duration) -> Vec<u8> {
        let mut got = Vec::new();
        self.run_until(limit, |p| p.read_available(side, id, &mut got));
        got
    }

    /// Runs until `side` accepts a stream.
    pub fn accept(&mut self, side: usize, direction: Direction, limit: Duration) -> StreamId {
        let mut id = None;
        self.run_until(limit, |p| {
            id = p.conn(side).accept(direction);
            id.is_some()
        });
        id.unwrap()
    }

    /// Writes `len` bytes on a new unidirectional stream of `from` and reads them at the other
    /// end; returns the virtual time from now to the last byte.
    pub fn transfer(&mut self, from: usize, len: usize, limit: Duration) -> Duration {
        let start = self.now;
        let mut transfer = Transfer::start(self, from, len);
        self.run_until(limit, |p| transfer.turn(p));
        self.now.saturating_duration_since(start)
    }
}

/// The two bits of a codepoint in the IP header (RFC 3168 §5).
pub fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::Ect0 => 0b10,
        Ecn::Ect1 => 0b01,
        Ecn::Ce => 0b11,
    }
}

/// The codepoint behind two bits.
pub fn codepoint(bits: u8) -> Option<Ecn> {
    match bits & 0b11 {
        0b10 => Some(Ecn::Ect0),
        0b01 => Some(Ecn::Ect1),
        0b11 => Some(Ecn::Ce),
        _ => None,
    }
}

/// Every congestion controller.
pub const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::NewReno,
    Algorithm::Cubic,
    Algorithm::Bbr,
    Algorithm::LedbatPlusPlus,
];

/// Bytes that tell their own place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// The endpoint configuration of host `n` in world `seed`.
/// A generator of connection IDs of so many bytes.
pub fn cids(len: usize) -> Box<dyn CidGenerator> {
    match len {
        0 => Box::new(NoCids),
        _ => Box::new(ShardedCid::with_len(0, len).unwrap()),
    }
}

pub fn seed(seed: u64, n: u8) -> EndpointConfig {
    let mut bytes = [n; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    EndpointConfig::from_seed(bytes)
}

/// Options whose packets stay readable.
pub fn readable() -> Options {
    Options {
        tls: TlsOptions {
            null_aead: true,
            ..TlsOptions::default()
        },
        ..Options::default()
    }
}

pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
