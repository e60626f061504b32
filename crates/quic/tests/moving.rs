//! A client that moves (RFC 9000 §9.2, §9.6): to another address of its own, to another socket, to the
//! address that its server prefers. Both ends have several addresses here.

mod common;

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use common::wire::{destination, has_frame};
use common::{CLIENT, Options, Pair, SERVER, Transfer, ms, readable, secs};
use towline_quic::{
    DatagramMeta, Endpoint, Event, MigrateError, ServerConfig, Time, TransportConfig,
};
use towline_wire::Frame;

/// One way takes so long.
const DELAY: Duration = ms(10);

const PORTS: [u16; 2] = [1000, 2000];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A datagram that was sent.
struct Sent {
    from: usize,
    source: IpAddr,
    to: IpAddr,
    payload: Vec<u8>,
}

/// Two ends with as many addresses as they like, each of which may lead nowhere.
struct Roads {
    pair: Pair,
    /// Where the system sends from if nobody says.
    usual: [IpAddr; 2],
    closed: BTreeSet<IpAddr>,
    under_way: VecDeque<(Time, usize, DatagramMeta, Vec<u8>)>,
    log: Vec<Sent>,
}

impl Roads {
    fn new(options: Options, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut pair = Pair::new(options);
        change(&mut pair.server_config);
        let config = Arc::new(pair.server_config.clone());
        pair.hosts[SERVER].endpoint = Endpoint::new(common::seed(1, 2), Some(config));
        let usual = [0, 1].map(|side: usize| pair.hosts[side].address.ip());
        Self {
            pair,
            usual,
            closed: BTreeSet::new(),
            under_way: VecDeque::new(),
            log: Vec::new(),
        }
    }

    fn connected(options: Options, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut roads = Self::new(options, change);
        roads.connect();
        roads.run_until(secs(5), |r| r.pair.hosts.iter().all(|h| h.is_confirmed()));
        // Connection IDs are exchanged.
        roads.run_for(ms(100));
        roads
    }

    fn connect(&mut self) {
        let remote = self.pair.hosts[SERVER].address;
        let (now, config) = (self.pair.now, self.pair.client_config.clone());
        let client = &mut self.pair.hosts[CLIENT];
        let name = towline_testkit::SERVER_NAME;
        let handle = client.endpoint.connect(now, &config, remote, name);
        client.handle = Some(handle.unwrap());
    }

    /// All that is due now.
    fn turn(&mut self) {
        let now = self.pair.now;
        while self.under_way.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, to, meta, mut payload) = self.under_way.pop_front().unwrap();
            if !self.closed.contains(&meta.local_ip.unwrap()) {
                let endpoint = &mut self.pair.hosts[to].endpoint;
                endpoint.handle_datagrams(now, meta, &mut payload);
            }
        }
        for side in [CLIENT, SERVER] {
            let host = &mut self.pair.hosts[side];
            if host.endpoint.next_timeout().is_some_and(|at| at <= now) {
                host.endpoint.handle_timeout(now);
            }
            while let Some(transmit) = host.endpoint.poll_transmit(now, &mut host.train) {
                let source = transmit.local_ip.unwrap_or(self.usual[side]);
                for datagram in host.train.filled().chunks(transmit.segment_size) {
                    let meta = DatagramMeta {
                        remote: SocketAddr::new(source, PORTS[side]),
                        local_ip: Some(transmit.remote.ip()),
                        ecn: None,
                        stride: datagram.len(),
                    };
                    self.log.push(Sent {
                        from: side,
                        source,
                        to: transmit.remote.ip(),
                        payload: datagram.to_vec(),
                    });
                    if !self.closed.contains(&source) {
                        let arrives = (now + DELAY, 1 - side, meta, datagram.to_vec());
                        self.under_way.push_back(arrives);
                    }
                }
            }
            while let Some((handle, event)) = host.endpoint.poll_event() {
                if event == Event::Accepted {
                    host.handle = Some(handle);
                }
                host.events.push_back(event);
            }
        }
    }

    fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.pair.now + limit;
        loop {
            self.turn();
            if done(self) {
                return;
            }
            assert!(self.pair.now < end, "not done within {limit:?}");
            self.pair.now += ms(1);
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.pair.now + time;
        self.run_until(time + ms(1), |r| r.pair.now >= end);
    }

    /// Sends `len` bytes from `side`; how long that took.
    fn transfer(&mut self, side: usize, len: usize, limit: Duration) -> Duration {
        let began = self.pair.now;
        let mut transfer = Transfer::start(&mut self.pair, side, len);
        self.run_until(limit, |r| transfer.turn(&mut r.pair));
        self.pair.now.saturating_duration_since(began)
    }

    fn told(&mut self, side: usize, event: &Event) -> bool {
        self.pair.take_event(side, |e| e == event).is_some()
    }

    fn migrate(&mut self, to: IpAddr) -> Result<(), MigrateError> {
        let now = self.pair.now;
        self.pair.client().migrate(now, to)
    }

    /// Destination connection IDs of what `side` sent from `source` to `to` since `first`.
    fn ids(&self, side: usize, source: IpAddr, to: IpAddr, first: usize) -> BTreeSet<Vec<u8>> {
        let log = self.log[first..].iter();
        let wanted = log.filter(|s| s.from == side && s.source == source && s.to == to);
        wanted.map(|sent| destination(&sent.payload)).collect()
    }
}

fn plain() -> Roads {
    Roads::connected(readable(), |_| ())
}

#[test]
fn a_client_moves_to_another_address_of_its_own_after_asking_there() {
    for from in [CLIENT, SERVER] {
        let mut roads = plain();
        let (first, second) = (roads.usual[CLIENT], ip("10.0.0.50"));
        let server = roads.usual[SERVER];
        let mut transfer = Transfer::start(&mut roads.pair, from, 2_000_000);
        roads.run_for(ms(60));
        transfer.turn(&mut roads.pair);
        let begun = roads.log.len();
        roads.migrate(second).unwrap();
        roads.run_for(ms(15));
        // Data stays where it is until the server has answered.
        let early = roads.log[begun..].iter().filter(|s| s.source == second);
        for sent in early {
            assert!(has_frame(&sent.payload, |f| matches!(
                f,
                Frame::PathChallenge(_)
            )));
            assert!(!has_frame(&sent.payload, |f| matches!(
                f,
                Frame::Stream(_) | Frame::Ack(_)
            )));
            assert_eq!(sent.payload.len(), 1200);
        }
        roads.run_until(secs(10), |r| transfer.turn(&mut r.pair));
        assert!(roads.told(CLIENT, &Event::PathChanged));
        assert!(roads.told(SERVER, &Event::PathChanged));
        assert_eq!(
            roads.pair.server().remote(),
            SocketAddr::new(second, PORTS[CLIENT])
        );
        let stats = roads.pair.client().stats();
        assert_eq!((stats.path_changes, stats.paths_validated), (1, 1));
        // No connection ID is seen from both addresses, or to both (RFC 9000 §9.5).
        let there = roads.ids(CLIENT, first, server, 0);
        assert!(there.is_disjoint(&roads.ids(CLIENT, second, server, 0)));
        let back = roads.ids(SERVER, server, first, begun);
        assert!(back.is_disjoint(&roads.ids(SERVER, server, second, begun)));
    }
}

#[test]
fn a_client_moves_back_and_forth() {
    let mut roads = plain();
    let addresses = [ip("10.0.0.50"), roads.usual[CLIENT], ip("10.0.0.51")];
    let mut transfer = Transfer::start(&mut roads.pair, SERVER, 6_000_000);
    for n in 0..9 {
        let to = addresses[n % 3];
        roads.migrate(to).unwrap();
        let mut over = false;
        roads.run_until(ms(400), |r| {
            over |= transfer.turn(&mut r.pair);
            r.pair.server().remote().ip() == to
        });
        assert!(!over, "the transfer is too short");
        for _ in 0..30 {
            roads.run_for(ms(2));
            assert!(!transfer.turn(&mut roads.pair), "the transfer is too short");
        }
    }
    roads.run_until(secs(20), |r| transfer.turn(&mut r.pair));
    assert_eq!(roads.pair.client().stats().path_changes, 9);
}

#[test]
fn a_client_that_asks_where_nobody_answers_stays() {
    let mut roads = plain();
    let nowhere = ip("10.0.0.50");
    roads.closed.insert(nowhere);
    roads.migrate(nowhere).unwrap();
    let took = roads.transfer(SERVER, 500_000, secs(5));
    assert!(took < secs(1), "{took:?}");
    roads.run_for(secs(4));
    assert!(roads.told(CLIENT, &Event::MigrationFailed));
    assert!(!roads.told(CLIENT, &Event::PathChanged));
    let stats = roads.pair.client().stats();
    assert_eq!((stats.path_changes, stats.paths_failed), (0, 1));
    let asked = roads.log.iter().filter(|s| s.source == nowhere).count();
    assert!((2..=4).contains(&asked), "{asked}");
    // There is a connection ID for another try.
    roads.closed.clear();
    roads.migrate(nowhere).unwrap();
    roads.run_for(ms(100));
    assert!(roads.told(CLIENT, &Event::PathChanged));
}

#[test]
fn a_client_that_may_not_move_is_told_why() {
    let mut roads = Roads::new(readable(), |_| ());
    roads.connect();
    let there = ip("10.0.0.50");
    assert_eq!(
        roads.migrate(there),
        Err(MigrateError::HandshakeNotConfirmed)
    );
    roads.run_until(secs(5), |r| r.pair.hosts.iter().all(|h| h.is_confirmed()));
    roads.run_for(ms(100));
    let now = roads.pair.now;
    assert_eq!(
        roads.pair.server().migrate(now, there),
        Err(MigrateError::Server)
    );
    roads.pair.client().close(now, 0, b"");
    assert!(matches!(
        roads.migrate(there),
        Err(MigrateError::ConnectionLost(_))
    ));
}

#[test]
fn a_client_on_a_new_socket_goes_on_at_once() {
    for migration in [true, false] {
        for from in [CLIENT, SERVER] {
            let transport = TransportConfig::default().migration(migration);
            let mut roads = Roads::connected(readable(), |server| {
                server.transport = Arc::new(transport);
            });
            let mut transfer = Transfer::start(&mut roads.pair, from, 3_000_000);
            for n in 0..50 {
                roads.run_for(ms(1));
                assert!(!transfer.turn(&mut roads.pair), "{n}");
            }
            // The address goes, and the socket with it.
            let (first, second) = (roads.usual[CLIENT], ip("10.0.0.50"));
            let before = transfer.got.len();
            roads.closed.insert(first);
            roads.usual[CLIENT] = second;
            let now = roads.pair.now;
            roads.pair.hosts[CLIENT].endpoint.rebind(now);
            roads.run_until(ms(900), |r| {
                transfer.turn(&mut r.pair);
                transfer.got.len() > before + 300_000
            });
            roads.run_until(secs(10), |r| transfer.turn(&mut r.pair));
            assert_eq!(roads.pair.server().remote().ip(), second);
            let server = roads.usual[SERVER];
            let (old, new) = (
                roads.ids(CLIENT, first, server, 0),
                roads.ids(CLIENT, second, server, 0),
            );
            // Where moving is forbidden it looks like the doing of a NAT.
            assert_eq!(old.is_disjoint(&new), migration);
        }
    }
}

fn preferring(options: Options, preferred: &str) -> Roads {
    let preferred: SocketAddrV4 = preferred.parse().unwrap();
    Roads::connected(options, |server| server.preferred_ipv4 = Some(preferred))
}

#[test]
fn a_client_moves_to_the_address_that_its_server_prefers() {
    // It is no migration of the client's own that the server forbids.
    for migration in [true, false] {
        let options = Options {
            server: TransportConfig::default().migration(migration),
            ..readable()
        };
        let mut roads = preferring(options, "10.0.0.3:2000");
        roads.run_for(ms(100));
        let preferred = ip("10.0.0.3");
        assert_eq!(
            roads.pair.client().remote(),
            SocketAddr::new(preferred, 2000)
        );
        assert!(roads.told(CLIENT, &Event::PathChanged));
        let moved = roads.log.len();
        roads.transfer(CLIENT, 300_000, secs(5));
        roads.transfer(SERVER, 300_000, secs(5));
        // Both ways.
        assert!(
            roads.log[moved..]
                .iter()
                .all(|s| s.source == preferred || s.to == preferred)
        );
        let (client, first) = (roads.usual[CLIENT], roads.usual[SERVER]);
        let there = roads.ids(CLIENT, client, first, 0);
        assert!(there.is_disjoint(&roads.ids(CLIENT, client, preferred, 0)));
        let stats = roads.pair.server().stats();
        assert_eq!((stats.path_changes, stats.paths_validated), (1, 1));
        // What forbade it to move held where it was.
        assert_eq!(roads.migrate(ip("10.0.0.50")), Ok(()));
    }
}

#[test]
fn a_preferred_address_where_nobody_answers_is_left_alone() {
    let mut roads = Roads::new(readable(), |server| {
        server.preferred_ipv4 = Some("10.0.0.3:2000".parse().unwrap());
    });
    roads.closed.insert(ip("10.0.0.3"));
    roads.connect();
    roads.run_for(ms(200));
    roads.transfer(SERVER, 300_000, secs(5));
    roads.run_for(secs(5));
    assert_eq!(roads.pair.client().remote().ip(), roads.usual[SERVER]);
    roads.transfer(SERVER, 300_000, secs(5));
}

#[test]
fn a_client_that_wants_no_preferred_address_asks_nobody() {
    let options = Options {
        client: TransportConfig::default().preferred_address(false),
        ..readable()
    };
    let mut roads = preferring(options, "10.0.0.3:2000");
    roads.run_for(secs(1));
    assert!(roads.log.iter().all(|sent| sent.to != ip("10.0.0.3")));
}
