//! One datagram as it arrives, at a fresh server and a fresh client before their handshake.
//!
//! The client is tried with the input as it is and with its own connection ID patched in. In debug
//! builds all is done with the null AEAD as well, so that handshake frames are reached.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towline_quic::{
    ClientConfig, ConnectionHandle, Endpoint, EndpointConfig, Event, ProtocolConfig, ServerConfig,
};
use towline_sim::{Datagram, Direct, START, Watch, World};
use towline_testkit::{SERVER_NAME, TlsOptions, TlsPair, reseed, tls_pair};
use towline_wire::{Header, Time, parse_header, peek_dcid};

use crate::host::Host;

/// Length of our connection IDs.
const CID_LEN: usize = 8;

/// Steps in which a connection must have ended by its handshake timeout.
const MAX_TIMERS: usize = 2_000;

/// RFC 9000 §8.1.
const AMPLIFICATION: usize = 3;

thread_local! {
    static TLS: [TlsPair; 2] = [false, true].map(make_tls);
}

fn make_tls(_plaintext: bool) -> TlsPair {
    let options = TlsOptions {
        #[cfg(debug_assertions)]
        null_aead: _plaintext,
        ..TlsOptions::default()
    };
    tls_pair(1, &options)
}

/// Hands `input` to header parsing and to endpoints that know nobody.
///
/// # Panics
/// When an engine answers with more than three times the bytes, or never lets go.
pub fn packet(input: &[u8]) {
    run(input);
}

/// As [`packet`]; returns what it saw, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let mut signature = look(input);
    let worlds = if cfg!(debug_assertions) { 2 } else { 1 };
    for world in 0..worlds {
        let mut seen = |word: u64| {
            signature = (signature.rotate_left(9) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        TLS.with(|tls| {
            seen(at_server(&tls[world], input, &[]));
            seen(at_server(&tls[world], input, &["towline-test"]));
            seen(at_client(&tls[world], input));
        });
    }
    signature
}

/// Whole datagrams to start from: a client's first, with and without protection.
pub(super) fn seeds() -> Vec<(String, Vec<u8>)> {
    TLS.with(|tls| {
        let worlds = tls.iter().enumerate();
        let first = |(world, tls)| (format!("client-{world}"), client(tls, 3).drain().1);
        worlds.map(first).collect()
    })
}

/// What the header alone says.
fn look(input: &[u8]) -> u64 {
    let routed = peek_dcid(input, CID_LEN).map(<[u8]>::len);
    let parsed = parse_header(input, CID_LEN);
    if let (Ok(header), Ok(len)) = (&parsed, routed) {
        assert_eq!(header.dcid().len(), len, "routing and parsing disagree");
    }
    match parsed {
        Ok(Header::Long { kind, end, .. }) => {
            assert!(end <= input.len());
            16 + kind as u64
        }
        Ok(Header::Short { end, .. }) => {
            assert!(end <= input.len());
            1
        }
        Ok(Header::Retry { .. }) => 2,
        Ok(Header::VersionNegotiation { versions, .. }) => 3 + versions.iter().count() as u64 % 4,
        Ok(Header::UnknownVersion { .. }) => 8,
        Err(error) => 32 + error.to_string().len() as u64,
    }
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 4433))
}

/// An endpoint whose peer is the input alone.
struct Alone(World<Host, Direct>);

/// One datagram finishes no handshake.
struct Unaccepted;

impl Watch<Host, Direct> for Unaccepted {
    fn on_event(
        &mut self,
        _: Time,
        _: &mut [Host],
        _: usize,
        (_, event): (ConnectionHandle, Event),
    ) {
        assert_ne!(event, Event::Accepted, "one datagram finished a handshake");
    }
}

impl Alone {
    fn new(endpoint: Endpoint, own: SocketAddr) -> Self {
        let hosts = [Host::new(endpoint, own)];
        Self(World::new(hosts, Direct::trains().without_ecn()))
    }

    fn deliver(&mut self, from: SocketAddr, bytes: &[u8]) {
        let datagram = Datagram::new(from, self.0.hosts[0].address, bytes.to_vec());
        self.0.deliver(0, datagram.into(), &mut Unaccepted);
    }

    /// Takes all output; returns its size and the first datagram.
    fn drain(&mut self) -> (usize, Vec<u8>) {
        let trains = self.0.take(0, &mut Unaccepted);
        self.0.listen(0, &mut Unaccepted);
        let sent = trains.iter().map(|train| train.datagram.payload.len());
        let first = trains.first().and_then(|train| train.payloads().next());
        (sent.sum(), first.unwrap_or_default().to_vec())
    }

    /// Runs what is due at `at` and takes all output.
    fn advance(&mut self, at: Time) -> usize {
        self.0.now = self.0.now.max(at);
        self.0.run_timers(&mut Unaccepted);
        self.drain().0
    }

    fn endpoint(&self) -> &Endpoint {
        &self.0.hosts[0].endpoint
    }

    /// Left alone, every connection ends by its handshake timeout at the latest.
    fn run_out(mut self) {
        for _ in 0..MAX_TIMERS {
            let Some(at) = self.0.next_timeout() else {
                break;
            };
            self.advance(at);
        }
        let left = self.endpoint().stats().connections;
        assert_eq!(left, 0, "a connection never ends");
    }
}

/// A client that has called a server and heard nothing yet.
fn client(tls: &TlsPair, seed: u8) -> Alone {
    reseed(3);
    let mut client = Endpoint::new(EndpointConfig::from_seed([seed; 32]), None);
    let config = ClientConfig::new(Arc::clone(&tls.client));
    let connected = client.connect(START, &config, address(1), SERVER_NAME);
    assert!(connected.is_ok(), "{connected:?}");
    Alone::new(client, address(2))
}

/// With `protocols` the server reads the hello before it has a TLS session.
fn at_server(tls: &TlsPair, input: &[u8], protocols: &[&str]) -> u64 {
    reseed(2);
    let config = ServerConfig::new(Arc::clone(&tls.server));
    let protocols = protocols.iter().map(|alpn| ProtocolConfig::new(*alpn));
    let config = Arc::new(config.protocols(protocols));
    let server = Endpoint::new(EndpointConfig::from_seed([1; 32]), Some(config));
    let mut server = Alone::new(server, address(1));
    server.deliver(address(2), input);
    let (sent, _) = server.drain();
    // One probe timeout later it may not have sent more either.
    let more = server.advance(START + Duration::from_secs(3));
    assert!(
        sent + more <= AMPLIFICATION * input.len(),
        "{} bytes answer {}",
        sent + more,
        input.len()
    );
    let stats = server.endpoint().stats();
    let signature = stats.admitted << 1
        | stats.retries << 2
        | stats.version_negotiations << 3
        | stats.resets << 4
        | u64::from(sent > 0) << 5;
    server.run_out();
    signature
}

fn at_client(tls: &TlsPair, input: &[u8]) -> u64 {
    let mut signature = 0;
    for patched in [false, true] {
        let mut client = client(tls, 2);
        let (_, first) = client.drain();
        let mut bytes = input.to_vec();
        if patched && !patch_dcid(&mut bytes, &first) {
            break;
        }
        client.0.now += Duration::from_millis(20);
        client.deliver(address(1), &bytes);
        let (sent, _) = client.drain();
        let endpoint = client.endpoint();
        let closed = endpoint
            .handles()
            .any(|h| endpoint.connection(h).is_some_and(|c| c.is_closed()));
        signature = signature << 3 | u64::from(sent > 0) | u64::from(closed) << 1;
        client.run_out();
    }
    signature
}

/// Puts the source ID of the client's `first` Initial where the input has a destination ID.
fn patch_dcid(bytes: &mut [u8], first: &[u8]) -> bool {
    let Ok(Header::Long { scid, .. }) = parse_header(first, CID_LEN) else {
        return false;
    };
    let place = match bytes {
        [first, ..] if *first & 0x80 == 0 => 1..1 + CID_LEN,
        [_, _, _, _, _, len, ..] if usize::from(*len) == scid.len() => 6..6 + scid.len(),
        _ => return false,
    };
    match bytes.get_mut(place) {
        Some(dcid) => {
            dcid.copy_from_slice(&scid);
            true
        }
        None => false,
    }
}
