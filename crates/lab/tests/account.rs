//! The endpoint's memory account beside what the allocator says: an endpoint is dropped, and what
//! comes back is compared with what it said it held.
#![expect(clippy::print_stdout, reason = "figures for whoever reads the log")]

#[path = "../src/counting.rs"]
mod counting;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towline_lab::world::{CheckedWorld, HostId, START};
use towline_quic::{
    ClientConfig, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event, ServerConfig,
    StreamId, TransportConfig,
};
use towline_sim::LinkConfig;
use towline_testkit::{SERVER_NAME, TlsOptions, tls_pair};

/// Keys lie in memory of the C library, which the allocator here does not see.
const KEYS_IN_C: f64 = 4096.0;

const CONNECTIONS: usize = 200;

struct Crowd {
    world: CheckedWorld,
    hosts: [HostId; 2],
    clients: Vec<ConnectionHandle>,
    servers: Vec<ConnectionHandle>,
}

impl Crowd {
    fn new(link: LinkConfig) -> Self {
        let crowd = Self::begun(link, LinkConfig::default());
        assert_eq!(crowd.servers.len(), CONNECTIONS);
        crowd
    }

    fn begun(link: LinkConfig, back: LinkConfig) -> Self {
        let tls = tls_pair(1, &TlsOptions::default());
        let transport =
            Arc::new(TransportConfig::default().max_idle_timeout(Duration::from_secs(1000)));
        let mut server = ServerConfig::new(tls.server);
        server.transport = Arc::clone(&transport);
        let mut config = ClientConfig::new(tls.client);
        config.transport = transport;
        let mut world = CheckedWorld::new(1, false);
        let server = Some(Arc::new(server));
        let a = world.add_host(
            Endpoint::new(EndpointConfig::from_seed([1; 32]), None),
            false,
        );
        let b = world.add_host(
            Endpoint::new(EndpointConfig::from_seed([2; 32]), server),
            true,
        );
        world.join(a, b, link, back).expect("a link");
        let remote = world.address(b);
        let mut crowd = Self {
            world,
            hosts: [a, b],
            clients: Vec::new(),
            servers: Vec::new(),
        };
        for _ in 0..CONNECTIONS {
            let now = crowd.world.now();
            let endpoint = crowd.world.endpoint_mut(a);
            let handle = endpoint.connect(now, &config, remote, SERVER_NAME);
            crowd.clients.push(handle.expect("usable"));
        }
        crowd.run_for(Duration::from_secs(3));
        crowd
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.world.now() + time;
        loop {
            self.world.flush().expect("no violation");
            while let Some((host, handle, event)) = self.world.poll_event() {
                if host == self.hosts[1] && event == Event::Accepted {
                    self.servers.push(handle);
                }
            }
            let Some(next) = self.world.next_timeout().filter(|next| *next <= end) else {
                break;
            };
            self.world.advance(next).expect("no violation");
        }
        self.world.advance(end).expect("no violation");
    }

    /// Each of `handles` at `host` writes `bytes`, copied or not, and nobody reads.
    fn write(&mut self, host: HostId, handles: &[ConnectionHandle], bytes: usize, copied: bool) {
        for &handle in handles {
            let endpoint = self.world.endpoint_mut(host);
            let connection = endpoint.connection_mut(handle).expect("there");
            let id: StreamId = connection
                .open(Direction::Unidirectional)
                .expect("permitted");
            let data = vec![7; bytes];
            let n = match copied {
                true => connection.write_slice(id, &data),
                false => connection.write(id, &mut Bytes::from(data)),
            };
            assert_eq!(n, Ok(bytes));
        }
    }

    /// What the endpoint of `host` says it holds for a connection, and what it did hold.
    fn compare(&mut self, what: &str, host: HostId) {
        self.world.flush().expect("no violation");
        let mut empty = Endpoint::new(EndpointConfig::from_seed([3; 32]), None);
        let said = self.world.endpoint(host).stats().memory as f64 / CONNECTIONS as f64;
        std::mem::swap(self.world.endpoint_mut(host), &mut empty);
        let before = counting::held();
        drop(empty);
        let rust = (before - counting::held()) as f64 / CONNECTIONS as f64;
        let held = rust + KEYS_IN_C;
        println!("{what}: says {said:.0}, holds {held:.0} bytes a connection");
        assert!(
            (0.8..1.3).contains(&(said / held)),
            "{what}: {said:.0} of {held:.0}"
        );
    }
}

fn path() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    }
}

#[test]
fn what_the_account_says_is_what_is_held() {
    let mut idle = Crowd::new(path());
    idle.compare("idle, server", idle.hosts[1]);

    let mut unread = Crowd::new(path());
    let clients = unread.clients.clone();
    unread.write(unread.hosts[0], &clients, 300_000, false);
    unread.run_for(Duration::from_secs(3));
    unread.compare("300 kB unread", unread.hosts[1]);

    let mut small = Crowd::new(path());
    for _ in 0..50 {
        small.write(small.hosts[0], &clients, 100, false);
    }
    small.run_for(Duration::from_secs(3));
    small.compare("50 streams of 100 bytes unread", small.hosts[1]);

    let mut unsent = Crowd::new(path());
    let servers = unsent.servers.clone();
    unsent.write(unsent.hosts[1], &servers, 400_000, true);
    unsent.compare("400 kB written and not sent", unsent.hosts[1]);

    let deaf = LinkConfig::default().with_blackout(START, Duration::from_secs(100));
    let mut half_open = Crowd::begun(path(), deaf);
    assert_eq!(half_open.servers, []);
    half_open.compare("half-open handshakes", half_open.hosts[1]);

    let mut handshakes = Crowd::new(path());
    handshakes.compare("clients after a handshake", handshakes.hosts[0]);
}
