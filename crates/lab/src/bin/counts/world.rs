//! Two endpoints joined by a function call, on virtual time.
//!
//! The workloads drive it: what they measure is a call into an engine, taken out of the world's hands;
//! everything else goes by the world. TLS draws from the testkit's seeded provider, so one run is every
//! run.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::version::TLS13;
use rustls::{RootCertStore, SupportedCipherSuite};
use towline_lab::Host;
use towline_quic::{
    ClientConfig, Connection, ConnectionHandle, DatagramMeta, Endpoint, EndpointConfig, Event,
    RetryPolicy, ServerConfig, Time, TransportConfig,
};
use towline_sim::{Direct, Train, Watch};
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

/// Both endpoints on one clock, and the train that is measured on its way.
pub(crate) struct World {
    inner: towline_sim::World<Host, Direct>,
    config: ClientConfig,
    /// Bytes on their way, and the size of each datagram among them.
    wire: Vec<u8>,
    stride: usize,
    accepted: Accepted,
}

/// The connections of the server that nobody took yet.
struct Accepted(Vec<ConnectionHandle>);

impl Watch<Host, Direct> for Accepted {
    fn on_event(
        &mut self,
        _: Time,
        _: &mut [Host],
        _: usize,
        (handle, event): (ConnectionHandle, Event),
    ) {
        match event {
            Event::Accepted => self.0.push(handle),
            Event::Closed(error) => panic!("a connection ended: {error}"),
            _ => {}
        }
    }
}

impl Deref for World {
    type Target = towline_sim::World<Host, Direct>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
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
        let endpoints = [
            Endpoint::new(EndpointConfig::from_seed([1; 32]), None),
            Endpoint::new(EndpointConfig::from_seed([2; 32]), Some(Arc::new(server))),
        ];
        let addresses = [1, 2].map(|n| SocketAddr::from(([10, 0, 0, n], 1000 * u16::from(n))));
        let hosts = endpoints.into_iter().zip(addresses);
        let hosts: Vec<Host> = hosts.map(|(e, a)| Host::new(e, a)).collect();
        Self {
            inner: towline_sim::World::new(hosts, Direct::trains().without_ecn()),
            config,
            wire: Vec::new(),
            stride: 0,
            accepted: Accepted(Vec::new()),
        }
    }

    /// One more connection, its handshake confirmed on both sides: client's handle, server's.
    pub(crate) fn connect(&mut self) -> [ConnectionHandle; 2] {
        let (now, remote) = (self.inner.now, self.inner.hosts[SERVER].address);
        let client = self.inner.hosts[CLIENT]
            .endpoint
            .connect(now, &self.config, remote, SERVER_NAME)
            .expect("the configuration is usable");
        self.pump();
        let server = self.accepted.0.pop().expect("no packet was lost");
        for (side, handle) in [(CLIENT, client), (SERVER, server)] {
            assert!(self.connection(side, handle).is_confirmed());
        }
        [client, server]
    }

    pub(crate) fn connection(&mut self, side: usize, handle: ConnectionHandle) -> &mut Connection {
        self.inner.hosts[side]
            .endpoint
            .connection_mut(handle)
            .expect("no connection ends here")
    }

    /// Puts the train that one side just built on its way.
    pub(crate) fn send(&mut self, from: usize) {
        let train = &self.inner.hosts[from].train;
        self.wire.clear();
        self.wire.extend_from_slice(train.filled());
        self.stride = train.segment_size();
    }

    /// Puts a datagram of somebody else's on its way.
    pub(crate) fn put(&mut self, datagram: Vec<u8>) {
        self.stride = datagram.len();
        self.wire = datagram;
    }

    /// What is needed to hand the train to `to`.
    pub(crate) fn arrival(&mut self, to: usize) -> (Time, DatagramMeta, &mut Endpoint, &mut [u8]) {
        let meta = DatagramMeta {
            remote: self.inner.hosts[1 - to].address,
            local_ip: None,
            ecn: None,
            stride: self.stride,
        };
        let endpoint = &mut self.inner.hosts[to].endpoint;
        (self.inner.now, meta, endpoint, &mut self.wire)
    }

    /// All that one side has to send now, in place of sending it, without ECN.
    pub(crate) fn take(&mut self, side: usize) -> Vec<Train> {
        let mut trains = self.inner.take(side, &mut self.accepted);
        trains.iter_mut().for_each(|t| t.datagram.ecn = None);
        trains
    }

    /// Hands a train that was taken to `to`.
    pub(crate) fn deliver(&mut self, to: usize, train: Train) {
        self.inner.deliver(to, train, &mut self.accepted);
    }

    /// Takes all events of one side.
    pub(crate) fn drop_events(&mut self, side: usize) {
        self.inner.listen(side, &mut self.accepted);
    }

    /// Moves datagrams until neither side has anything to say now.
    pub(crate) fn pump(&mut self) {
        self.inner.pump(ONE_WAY, &mut self.accepted);
    }

    /// Lets `time` pass, timers and all.
    pub(crate) fn run_for(&mut self, time: Duration) {
        self.inner.pump_for(time, ONE_WAY, &mut self.accepted);
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
