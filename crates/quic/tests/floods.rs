//! Floods of datagrams of no connection, in virtual time: who still gets in, and what it costs the server.
//!
//! Every packet of the flood is well formed enough to be worth an answer: junk with a short header,
//! hellos from addresses that never answer, hellos that answer a Retry and then fall silent, and
//! packets of unknown versions. They come 20,000 a second, from one prefix or from many; honest
//! clients come from other prefixes.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::evil::{long_packet, payload};
use common::wire::packets;
use common::{Host, ms, secs, seed};
use towline_quic::{ClientConfig, Endpoint, EndpointStats, RetryPolicy, ServerConfig, Time};
use towline_sim::{Datagram, Direct, Host as _, START, Train, Watch, Wire, World};
use towline_testkit::{SERVER_NAME, TlsOptions, tls_pair};
use towline_wire::{Frame, Header, LongType, parse_header, write_crypto_header};

/// One way.
const DELAY: Duration = ms(10);

/// How the flood is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    /// Datagrams with a short header for connections that do not exist.
    Junk,
    /// Initial packets that are well formed and not authentic.
    Garbage,
    /// Genuine hellos that nobody follows up: the sender does not get our answers.
    SpoofedHellos,
    /// Genuine hellos whose sender answers a Retry and then says no more.
    HalfOpen,
    /// As half-open ones, with transport parameters that end the handshake at once.
    Failing,
    /// Long headers of an unknown version.
    UnknownVersion,
}

/// The place of the server; the clients come behind it.
const SERVER: usize = 0;

struct Client {
    begins: Time,
    connected: Option<Duration>,
}

/// A server, its honest clients and its flood.
struct Town {
    world: World<Host, Direct>,
    clients: Vec<Client>,
    client_config: ClientConfig,
    flooders: Flooders,
    /// Datagrams of the flood in a second.
    rate: u32,
    most_handshakes: usize,
}

/// Those who send the flood, and get what is sent to nobody else.
struct Flooders {
    flood: Flood,
    prefixes: u32,
    sent: u32,
    /// CRYPTO frame of a genuine hello, and the connection ID it names.
    hello: Vec<u8>,
    hello_scid: Vec<u8>,
    /// Replies to the flood, and their bytes and those that caused them.
    replies: u64,
    reply_bytes: u64,
    flood_bytes: u64,
    random: u64,
}

fn address(ip: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::from((ip, port))
}

impl Town {
    fn new(flood: Flood, prefixes: u32, rate: u32, clients: usize, retry: RetryPolicy) -> Self {
        let tls = tls_pair(
            1,
            &TlsOptions {
                null_aead: true,
                ..TlsOptions::default()
            },
        );
        let client_config = ClientConfig::new(tls.client);
        let mut server = ServerConfig::new(tls.server);
        server.retry = retry;
        let server = Endpoint::new(seed(7, 255), Some(Arc::new(server)));
        let mut hosts = vec![Host::new(server, address([10, 0, 0, 1], 443))];
        hosts.extend((0..clients as u8).map(|n| {
            let endpoint = Endpoint::new(seed(7, n), None);
            Host::new(endpoint, address([10, 1, n, 1], 4000))
        }));
        let clients = (0..clients as u32).map(|n| Client {
            // The flood is under way when they come.
            begins: START + ms(500) + ms(20) * n,
            connected: None,
        });
        let (hello, hello_scid) = hello(&client_config);
        Self {
            world: World::new(hosts, Direct::datagrams(DELAY).without_ecn()),
            clients: clients.collect(),
            client_config,
            flooders: Flooders {
                flood,
                prefixes,
                sent: 0,
                hello,
                hello_scid,
                replies: 0,
                reply_bytes: 0,
                flood_bytes: 0,
                random: 1,
            },
            rate,
            most_handshakes: 0,
        }
    }

    /// One millisecond.
    fn tick(&mut self) {
        let Self {
            world, flooders, ..
        } = self;
        world.now += ms(1);
        let remote = world.hosts[SERVER].address;
        for _ in 0..self.rate / 1000 {
            let bytes = flooders.flood_datagram();
            let from = flooders.source();
            flooders.sent += 1;
            flooders.flood_bytes += bytes.len() as u64;
            let datagram = Datagram::new(from, remote, bytes);
            world.net.send(world.now, datagram.into());
        }
        for (client, host) in self.clients.iter_mut().zip(&mut world.hosts[1..]) {
            if host.handle.is_none() && client.begins <= world.now {
                let config = &self.client_config;
                let handle = host
                    .endpoint
                    .connect(world.now, config, remote, SERVER_NAME);
                host.handle = Some(handle.unwrap());
            }
        }
        while let Some(at) = world.deliver_next(flooders) {
            // A driver sends what there is after each read.
            if at == SERVER {
                world.settle(SERVER..SERVER + 1, flooders);
            }
        }
        world.run_timers_of(SERVER, flooders);
        world.settle(SERVER..SERVER + 1, flooders);
        for (n, client) in self.clients.iter_mut().enumerate() {
            let at = n + 1;
            world.run_timers_of(at, flooders);
            world.settle(at..at + 1, flooders);
            if world.hosts[at].is_confirmed() && client.connected.is_none() {
                client.connected = Some(world.now.saturating_duration_since(client.begins));
            }
        }
        let handshakes = self.server().stats().handshakes;
        self.most_handshakes = self.most_handshakes.max(handshakes);
    }

    fn server(&self) -> &Endpoint {
        &self.world.hosts[SERVER].endpoint
    }

    fn run(&mut self, time: Duration) -> &mut Self {
        let end = self.world.now + time;
        while self.world.now < end {
            self.tick();
        }
        self
    }

    fn connected(&self) -> usize {
        let done = |c: &&Client| c.connected.is_some();
        self.clients.iter().filter(done).count()
    }

    fn slowest(&self) -> Option<Duration> {
        self.clients.iter().filter_map(|c| c.connected).max()
    }

    #[expect(clippy::print_stdout, reason = "the figures a run is compared by")]
    fn report(&self) -> EndpointStats {
        let stats = self.server().stats();
        println!(
            "{:?} from {} prefixes, {} a second: {} of {} connected, slowest {:?}; {} replies to {} \
             datagrams ({} of {} bytes), most handshakes {}\n  {stats:?}",
            self.flooders.flood,
            self.flooders.prefixes,
            self.rate,
            self.connected(),
            self.clients.len(),
            self.slowest(),
            self.flooders.replies,
            self.flooders.sent,
            self.flooders.reply_bytes,
            self.flooders.flood_bytes,
            self.most_handshakes,
        );
        stats
    }
}

impl Flooders {
    fn random(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random ^ self.random >> 29
    }

    /// Where the next datagram of the flood comes from: 100.0.0.0 and up, one /24 each.
    fn source(&mut self) -> SocketAddr {
        let n = self.sent % self.prefixes;
        let random = self.random();
        let ip = Ipv4Addr::from(0x6400_0000 + (n << 8) + (random >> 40 & 0xff) as u32);
        SocketAddr::from((ip, 1024 + (random >> 48) as u16 % 60_000))
    }

    fn hello_to(&self, dcid: &[u8], scid: &[u8], token: &[u8]) -> Vec<u8> {
        let mut packet = long_packet(LongType::Initial, dcid, scid, token, 0, &self.hello);
        packet.resize(packet.len().max(1200), 0);
        packet
    }

    fn flood_datagram(&mut self) -> Vec<u8> {
        let ids = [self.random().to_be_bytes(), self.random().to_be_bytes()];
        match self.flood {
            Flood::Junk => {
                let mut bytes = vec![0x5a; 60];
                bytes[0] = 0x41;
                bytes[1..9].copy_from_slice(&ids[0]);
                bytes
            }
            Flood::Garbage => {
                let mut bytes = self.hello_to(&ids[0], &ids[1], &[]);
                // Within the tag.
                let end = match parse_header(&bytes, 8) {
                    Ok(Header::Long { end, .. }) => end,
                    other => panic!("{other:?}"),
                };
                bytes[end - 3] ^= 1;
                bytes
            }
            Flood::SpoofedHellos | Flood::HalfOpen => self.hello_to(&ids[0], &self.hello_scid, &[]),
            Flood::Failing => self.hello_to(&ids[0], &ids[1], &[]),
            Flood::UnknownVersion => {
                let mut bytes = vec![0xc3, 0xba, 0xbe, 0xba, 0xba, 8];
                bytes.extend_from_slice(&ids[0]);
                bytes.push(8);
                bytes.extend_from_slice(&ids[1]);
                bytes.resize(1200, 0);
                bytes
            }
        }
    }
}

impl Watch<Host, Direct> for Flooders {
    fn send(&mut self, _: Time, _: &mut [Host], at: usize, train: &mut Train) -> bool {
        let remote = train.datagram.destination.ip();
        if at == SERVER && remote >= Ipv4Addr::new(100, 0, 0, 0) {
            self.replies += 1;
            self.reply_bytes += train.datagram.payload.len() as u64;
        }
        true
    }

    /// A reply to the flood arrives at its source.
    fn on_stray(&mut self, now: Time, train: Train, net: &mut Direct) {
        let reply = train.datagram;
        if !matches!(self.flood, Flood::HalfOpen | Flood::Failing) {
            return;
        }
        if let Ok(Header::Retry {
            dcid, scid, token, ..
        }) = parse_header(&reply.payload, 8)
        {
            let hello = self.hello_to(&scid, &dcid, token);
            self.flood_bytes += hello.len() as u64;
            let datagram = Datagram::new(reply.destination, reply.source, hello);
            net.send(now, datagram.into());
        }
    }
}

/// The CRYPTO frame of a genuine hello, and its sender's connection ID.
fn hello(config: &ClientConfig) -> (Vec<u8>, Vec<u8>) {
    let now = Time::from_nanos(1);
    let remote = address([10, 0, 0, 1], 443);
    let mut host = Host::new(Endpoint::new(seed(9, 9), None), remote);
    let endpoint = &mut host.endpoint;
    endpoint.connect(now, config, remote, SERVER_NAME).unwrap();
    host.poll_transmit(now).unwrap();
    let scid = match parse_header(host.train(), 8) {
        Ok(Header::Long { scid, .. }) => scid.to_vec(),
        other => panic!("{other:?}"),
    };
    let found = packets(host.train());
    let mut reader = towline_wire::Reader::new(found[0].payload);
    loop {
        match Frame::parse(&mut reader).expect("our own frames parse") {
            Frame::Crypto { offset, data } => {
                let frame = payload(|w| {
                    write_crypto_header(w, offset, data.len());
                    w.bytes(data);
                    while w.len() < 1150 {
                        w.u8(0);
                    }
                });
                return (frame, scid);
            }
            _ => assert!(!reader.is_empty(), "a hello without CRYPTO"),
        }
    }
}

#[test]
fn junk_leaves_the_retry_budget_alone() {
    // 5,000 datagrams a second that no connection owns, while every client needs a Retry.
    let mut town = Town::new(Flood::Junk, 1, 5_000, 20, RetryPolicy::Always);
    town.run(secs(3)).report();
    assert_eq!(town.connected(), 20);
    assert!(town.slowest() < Some(ms(200)), "{:?}", town.slowest());
}

#[test]
fn spoofed_hellos_leave_room_for_those_who_answer() {
    let mut town = Town::new(Flood::SpoofedHellos, 1, 5_000, 10, RetryPolicy::UnderLoad);
    town.run(secs(3)).report();
    assert_eq!(town.connected(), 10);
}

/// Twenty thousand a second for three seconds; a hundred honest clients come half a second after
/// the flood, at most two seconds before its end.
fn survives(flood: Flood, prefixes: u32) -> (Town, EndpointStats) {
    let mut town = Town::new(flood, prefixes, 20_000, 100, RetryPolicy::UnderLoad);
    for (n, client) in town.clients.iter_mut().enumerate() {
        client.begins = START + ms(500) + ms(10) * n as u32;
    }
    town.run(ms(3500));
    let stats = town.report();
    assert!(town.connected() >= 99, "{} of 100", town.connected());
    let mut times: Vec<_> = town.clients.iter().filter_map(|c| c.connected).collect();
    times.sort_unstable();
    assert!(times[98] <= secs(2), "{times:?}");
    // All budgets together, for each quarter of a second that the flood touched.
    let quarters = 15;
    assert!(
        stats.stateless_work <= quarters * 83_750,
        "{} units",
        stats.stateless_work
    );
    // Nothing but a half-open handshake has a right to more than it sent.
    assert!(
        flood == Flood::HalfOpen || town.flooders.reply_bytes <= town.flooders.flood_bytes,
        "{} bytes for {}",
        town.flooders.reply_bytes,
        town.flooders.flood_bytes
    );
    assert!(
        town.flooders.reply_bytes <= 3 * town.flooders.flood_bytes,
        "amplification: {} for {}",
        town.flooders.reply_bytes,
        town.flooders.flood_bytes
    );
    (town, stats)
}

#[test]
fn junk_from_one_prefix() {
    let (_, stats) = survives(Flood::Junk, 1);
    assert!(stats.resets > 0 && stats.resets < 20_000, "{stats:?}");
    assert_eq!(stats.connections, 100);
}

#[test]
fn junk_from_many_prefixes() {
    let (_, stats) = survives(Flood::Junk, 65_536);
    assert!(stats.resets > 0 && stats.resets < 20_000, "{stats:?}");
    assert_eq!(stats.connections, 100);
}

#[test]
fn garbage_initials_from_one_prefix() {
    let (town, stats) = survives(Flood::Garbage, 1);
    assert_eq!((town.flooders.replies, stats.connections), (0, 100));
}

#[test]
fn garbage_initials_from_many_prefixes() {
    let (town, stats) = survives(Flood::Garbage, 65_536);
    assert_eq!((town.flooders.replies, stats.connections), (0, 100));
}

#[test]
fn unknown_versions_from_one_prefix() {
    let (_, stats) = survives(Flood::UnknownVersion, 1);
    assert_eq!(stats.connections, 100);
}

#[test]
fn unknown_versions_from_many_prefixes() {
    let (_, stats) = survives(Flood::UnknownVersion, 65_536);
    assert_eq!(stats.connections, 100);
}

#[test]
fn spoofed_hellos_from_one_prefix() {
    let (town, _) = survives(Flood::SpoofedHellos, 1);
    assert!(town.most_handshakes <= 1100, "{}", town.most_handshakes);
}

#[test]
fn spoofed_hellos_from_many_prefixes() {
    let (town, _) = survives(Flood::SpoofedHellos, 65_536);
    assert!(town.most_handshakes <= 1100, "{}", town.most_handshakes);
}

#[test]
fn half_open_handshakes_from_one_prefix() {
    let (town, _) = survives(Flood::HalfOpen, 1);
    assert!(town.most_handshakes <= 4000, "{}", town.most_handshakes);
}

#[test]
fn half_open_handshakes_from_many_prefixes() {
    let (town, _) = survives(Flood::HalfOpen, 256);
    assert!(town.most_handshakes <= 4000, "{}", town.most_handshakes);
}

#[test]
fn failing_handshakes_from_one_prefix() {
    let (town, _) = survives(Flood::Failing, 1);
    assert!(town.most_handshakes <= 4000, "{}", town.most_handshakes);
}

#[test]
fn failing_handshakes_from_many_prefixes() {
    let (town, _) = survives(Flood::Failing, 256);
    assert!(town.most_handshakes <= 4000, "{}", town.most_handshakes);
}
