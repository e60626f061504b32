//! Two endpoints joined by a function call, on virtual time.
//!
//! The workloads drive it: each call says which side acts. TLS draws from the testkit's seeded
//! provider, so one run is every run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::version::TLS13;
use rustls::{RootCertStore, SupportedCipherSuite};
use towline_quic::{
    ClientConfig, Connection, ConnectionHandle, DatagramMeta, Endpoint, EndpointConfig, Event,
    RetryPolicy, ServerConfig, Time, TrainBuf, TransportConfig,
};
use towline_testkit::{FixedTime, SERVER_NAME, ed25519_leaf, seeded_provider};

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

/// UDP payload of a full packet on Ethernet.
pub(crate) const MTU: u16 = 1472;

/// Time from one side to the other.
pub(crate) const ONE_WAY: Duration = Duration::from_millis(1);

const SEED: u64 = 1;

/// What protects packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aead {
    /// Nothing.
    Null,
    /// TLS_AES_128_GCM_SHA256 of aws-lc.
    Aes128Gcm,
}

/// Both endpoints, the clock, and the train that is on its way.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) endpoints: [Endpoint; 2],
    addresses: [SocketAddr; 2],
    config: ClientConfig,
    pub(crate) train: TrainBuf,
    /// Bytes on their way, and the size of each datagram among them.
    wire: Vec<u8>,
    stride: usize,
    accepted: Vec<ConnectionHandle>,
}

impl World {
    pub(crate) fn new(aead: Aead, transport: TransportConfig) -> Self {
        let (client_tls, server_tls) = tls(aead);
        let transport = Arc::new(transport.mtu(MTU));
        let mut server = ServerConfig::new(server_tls);
        server.transport = Arc::clone(&transport);
        server.retry = RetryPolicy::Never;
        let mut config = ClientConfig::new(client_tls);
        config.transport = transport;
        Self {
            now: Time::from_nanos(1_000_000_000),
            endpoints: [
                Endpoint::new(EndpointConfig::from_seed([1; 32]), None),
                Endpoint::new(EndpointConfig::from_seed([2; 32]), Some(Arc::new(server))),
            ],
            addresses: ["10.0.0.1:1000", "10.0.0.2:2000"].map(|a| a.parse().expect("an address")),
            config,
            train: TrainBuf::new(),
            wire: Vec::new(),
            stride: 0,
            accepted: Vec::new(),
        }
    }

    /// One more connection, its handshake confirmed on both sides: client's handle, server's.
    pub(crate) fn connect(&mut self) -> [ConnectionHandle; 2] {
        let client = self.endpoints[CLIENT]
            .connect(self.now, &self.config, self.addresses[SERVER], SERVER_NAME)
            .expect("the configuration is usable");
        self.pump();
        let server = self.accepted.pop().expect("no packet was lost");
        for (side, handle) in [(CLIENT, client), (SERVER, server)] {
            assert!(self.connection(side, handle).is_confirmed());
        }
        [client, server]
    }

    pub(crate) fn connection(&mut self, side: usize, handle: ConnectionHandle) -> &mut Connection {
        self.endpoints[side]
            .connection_mut(handle)
            .expect("no connection ends here")
    }

    /// Puts the train that `poll_transmit` just built on its way.
    pub(crate) fn send(&mut self) {
        self.wire.clear();
        self.wire.extend_from_slice(self.train.filled());
        self.stride = self.train.segment_size();
    }

    /// Puts a datagram of somebody else's on its way.
    pub(crate) fn put(&mut self, datagram: Vec<u8>) {
        self.stride = datagram.len();
        self.wire = datagram;
    }

    /// Puts a train that was kept on its way.
    pub(crate) fn put_train(&mut self, train: Vec<u8>, stride: usize) {
        self.wire = train;
        self.stride = stride;
    }

    /// What is needed to hand the train to `to`.
    pub(crate) fn arrival(&mut self, to: usize) -> (Time, DatagramMeta, &mut Endpoint, &mut [u8]) {
        let meta = DatagramMeta {
            remote: self.addresses[1 - to],
            local_ip: None,
            ecn: None,
            stride: self.stride,
        };
        (self.now, meta, &mut self.endpoints[to], &mut self.wire)
    }

    /// Takes all events of one side.
    pub(crate) fn drop_events(&mut self, side: usize) {
        while let Some((handle, event)) = self.endpoints[side].poll_event() {
            match event {
                Event::Accepted => self.accepted.push(handle),
                Event::Closed(error) => panic!("a connection ended: {error}"),
                _ => {}
            }
        }
    }

    /// Moves datagrams until neither side has anything to say now.
    pub(crate) fn pump(&mut self) {
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for from in [CLIENT, SERVER] {
                while self.endpoints[from]
                    .poll_transmit(self.now, &mut self.train)
                    .is_some()
                {
                    quiet = false;
                    self.send();
                    let (now, meta, endpoint, bytes) = self.arrival(1 - from);
                    endpoint.handle_datagrams(now, meta, bytes);
                    self.drop_events(1 - from);
                }
                self.drop_events(from);
            }
            self.now += ONE_WAY;
        }
    }

    /// The next deadline of either side.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.endpoints
            .iter()
            .filter_map(Endpoint::next_timeout)
            .min()
    }

    /// Lets `time` pass, timers and all.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.pump();
        while let Some(at) = self.next_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            for side in [CLIENT, SERVER] {
                self.endpoints[side].handle_timeout(self.now);
            }
            self.pump();
        }
        self.now = self.now.max(end);
    }
}

fn suite(aead: Aead) -> SupportedCipherSuite {
    match aead {
        Aead::Null => crate::null_aead::suite(),
        Aead::Aes128Gcm => TLS13_AES_128_GCM_SHA256,
    }
}

fn tls(aead: Aead) -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let clock = Arc::new(FixedTime::default());
    let leaf = ed25519_leaf(SEED, &[SERVER_NAME]);
    let mut roots = RootCertStore::empty();
    roots
        .add(leaf.certificate.clone())
        .expect("a leaf made here parses");
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![suite(aead)],
        ..seeded_provider(SEED)
    });
    let mut client = rustls::ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has a TLS 1.3 suite")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"counts".to_vec()];
    let mut server = rustls::ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has a TLS 1.3 suite")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.certificate.clone()], leaf.private_key())
        .expect("key and certificate were made together");
    server.alpn_protocols = vec![b"counts".to_vec()];
    (Arc::new(client), Arc::new(server))
}
