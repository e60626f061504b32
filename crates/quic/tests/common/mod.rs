//! Two endpoints joined by simulated links on virtual time.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses its own part"
)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towline_quic::{
    ClientConfig, Connection, ConnectionHandle, DatagramMeta, Ecn, Endpoint, EndpointConfig, Event,
    ServerConfig, Time, TrainBuf, TransportConfig,
};
use towline_sim::{Datagram, LinkConfig, LinkId, Network};
use towline_testkit::{TlsOptions, tls_pair};

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

pub struct Host {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    pub handle: Option<ConnectionHandle>,
    pub events: VecDeque<Event>,
    pub sent_datagrams: u64,
}

impl Host {
    pub fn conn(&mut self) -> &mut Connection {
        let handle = self.handle.expect("no connection yet");
        self.endpoint
            .connection_mut(handle)
            .expect("connection is gone")
    }
}

pub struct Pair {
    pub now: Time,
    pub net: Network,
    pub hosts: [Host; 2],
    pub links: (LinkId, LinkId),
    pub client_config: ClientConfig,
    buf: TrainBuf,
    /// Observes every datagram put on the wire: (sender, bytes).
    pub tap: Option<Box<dyn FnMut(usize, &mut Vec<u8>) -> bool>>,
}

pub struct Options {
    pub seed: u64,
    pub link: LinkConfig,
    pub back: Option<LinkConfig>,
    pub client: TransportConfig,
    pub server: TransportConfig,
    pub tls: TlsOptions,
    pub retry: towline_quic::RetryPolicy,
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
        }
    }
}

impl Pair {
    pub fn new(options: Options) -> Self {
        let tls = tls_pair(options.seed, &options.tls);
        let mut server = ServerConfig::new(tls.server);
        server.transport = Arc::new(options.server);
        server.retry = options.retry;
        let mut client_config = ClientConfig::new(tls.client);
        client_config.transport = Arc::new(options.client);
        let seed = |n: u8| {
            let mut s = [n; 32];
            s[..8].copy_from_slice(&options.seed.to_le_bytes());
            EndpointConfig::from_seed(s)
        };
        let addresses: [SocketAddr; 2] = [
            "10.0.0.1:1000".parse().unwrap(),
            "10.0.0.2:2000".parse().unwrap(),
        ];
        let mut net = Network::new(options.seed);
        let back = options.back.unwrap_or_else(|| options.link.clone());
        let links = net
            .join(addresses[0], addresses[1], options.link, back)
            .unwrap();
        let host = |endpoint, address| Host {
            endpoint,
            address,
            handle: None,
            events: VecDeque::new(),
            sent_datagrams: 0,
        };
        Self {
            now: Time::from_nanos(1_000_000_000),
            net,
            hosts: [
                host(Endpoint::new(seed(1), None), addresses[0]),
                host(Endpoint::new(seed(2), Some(Arc::new(server))), addresses[1]),
            ],
            links,
            client_config,
            buf: TrainBuf::new(),
            tap: None,
        }
    }

    /// Connects and runs until both ends are confirmed.
    pub fn connected(options: Options) -> Self {
        let mut pair = Self::new(options);
        pair.connect();
        pair.run_until(Duration::from_secs(30), |p| {
            p.hosts.iter().all(|h| {
                h.handle
                    .and_then(|handle| h.endpoint.connection(handle))
                    .is_some_and(Connection::is_confirmed)
            })
        });
        pair
    }

    pub fn connect(&mut self) {
        let remote = self.hosts[SERVER].address;
        let config = self.client_config.clone();
        let handle = self.hosts[CLIENT]
            .endpoint
            .connect(self.now, &config, remote, towline_testkit::SERVER_NAME)
            .unwrap();
        self.hosts[CLIENT].handle = Some(handle);
        self.flush();
    }

    pub fn client(&mut self) -> &mut Connection {
        self.hosts[CLIENT].conn()
    }

    pub fn server(&mut self) -> &mut Connection {
        self.hosts[SERVER].conn()
    }

    /// Sends what both ends have to send and collects their events.
    pub fn flush(&mut self) {
        for i in 0..2 {
            let host = &mut self.hosts[i];
            while let Some(transmit) = host.endpoint.poll_transmit(self.now, &mut self.buf) {
                for datagram in self.buf.filled().chunks(transmit.segment_size) {
                    let mut payload = datagram.to_vec();
                    host.sent_datagrams += 1;
                    if let Some(tap) = &mut self.tap {
                        if !tap(i, &mut payload) {
                            continue;
                        }
                    }
                    self.net.send(
                        self.now,
                        Datagram::new(host.address, transmit.remote, payload),
                    );
                }
            }
            while let Some((handle, event)) = host.endpoint.poll_event() {
                if event == Event::Accepted && host.handle.is_none() {
                    host.handle = Some(handle);
                }
                host.events.push_back(event);
            }
        }
    }

    /// Advances to the next thing that happens; `false` if nothing ever will.
    pub fn step(&mut self) -> bool {
        self.flush();
        let next = [
            self.net.next_timeout(),
            self.hosts[0].endpoint.next_timeout(),
            self.hosts[1].endpoint.next_timeout(),
        ];
        let Some(at) = next.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(at);
        while let Some(mut datagram) = self.net.poll_deliver(self.now) {
            let Some(i) = self
                .hosts
                .iter()
                .position(|h| h.address == datagram.destination)
            else {
                continue;
            };
            let meta = DatagramMeta {
                remote: datagram.source,
                local_ip: None,
                ecn: None::<Ecn>,
                stride: datagram.payload.len(),
            };
            self.hosts[i]
                .endpoint
                .handle_datagrams(self.now, meta, &mut datagram.payload);
        }
        for host in &mut self.hosts {
            if host.endpoint.next_timeout().is_some_and(|t| t <= self.now) {
                host.endpoint.handle_timeout(self.now);
            }
        }
        self.flush();
        true
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
        let end = self.now + time;
        loop {
            self.flush();
            let next = [
                self.net.next_timeout(),
                self.hosts[0].endpoint.next_timeout(),
                self.hosts[1].endpoint.next_timeout(),
            ];
            match next.into_iter().flatten().min() {
                Some(at) if at <= end => {
                    self.step();
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Takes the first event of `side` that `wanted` accepts.
    pub fn take_event(&mut self, side: usize, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let events = &mut self.hosts[side].events;
        let i = events.iter().position(wanted)?;
        events.remove(i)
    }
}
