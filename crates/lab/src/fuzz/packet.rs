//! One datagram as it arrives, at a fresh server and a fresh client before their handshake.
//!
//! The client is tried with the input as it is and with its own connection ID patched in. In debug
//! builds all is done with the null AEAD as well, so that handshake frames are reached.

use std::net::SocketAddr;
use std::sync::Arc;

use towline_quic::{
    ClientConfig, DatagramMeta, Endpoint, EndpointConfig, Event, ServerConfig, TrainBuf,
};
use towline_testkit::{SERVER_NAME, TlsOptions, TlsPair, reseed, tls_pair};
use towline_wire::{Header, Time, parse_header, peek_dcid};

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
            seen(at_server(&tls[world], input));
            seen(at_client(&tls[world], input));
        });
    }
    signature
}

/// Whole datagrams to start from: a client's first, with and without protection.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let first = |tls: &TlsPair| {
        reseed(3);
        let mut client = Endpoint::new(EndpointConfig::from_seed([3; 32]), None);
        let config = ClientConfig::new(Arc::clone(&tls.client));
        let connected = client.connect(start(), &config, address(1), SERVER_NAME);
        assert!(connected.is_ok(), "{connected:?}");
        drain(&mut client, start()).1
    };
    TLS.with(|tls| tls.iter().map(first).collect())
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

fn start() -> Time {
    Time::from_nanos(1_000_000_000)
}

fn meta(remote: SocketAddr, len: usize) -> DatagramMeta {
    DatagramMeta {
        remote,
        local_ip: None,
        ecn: None,
        stride: len,
    }
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 4433))
}

fn at_server(tls: &TlsPair, input: &[u8]) -> u64 {
    reseed(2);
    let config = Arc::new(ServerConfig::new(Arc::clone(&tls.server)));
    let mut server = Endpoint::new(EndpointConfig::from_seed([1; 32]), Some(config));
    let mut bytes = input.to_vec();
    server.handle_datagrams(start(), meta(address(2), bytes.len()), &mut bytes);
    let (sent, _) = drain(&mut server, start());
    // One probe timeout later it may not have sent more either.
    let later = start() + std::time::Duration::from_secs(3);
    server.handle_timeout(later);
    let (more, _) = drain(&mut server, later);
    assert!(
        sent + more <= AMPLIFICATION * input.len(),
        "{} bytes answer {}",
        sent + more,
        input.len()
    );
    let stats = server.stats();
    let signature = stats.admitted << 1
        | stats.retries << 2
        | stats.version_negotiations << 3
        | stats.resets << 4
        | u64::from(sent > 0) << 5;
    run_out(&mut server);
    signature
}

fn at_client(tls: &TlsPair, input: &[u8]) -> u64 {
    let mut signature = 0;
    for patched in [false, true] {
        reseed(3);
        let mut client = Endpoint::new(EndpointConfig::from_seed([2; 32]), None);
        let config = ClientConfig::new(Arc::clone(&tls.client));
        let connected = client.connect(start(), &config, address(1), SERVER_NAME);
        assert!(connected.is_ok(), "{connected:?}");
        let (_, first) = drain(&mut client, start());
        let mut bytes = input.to_vec();
        if patched && !patch_dcid(&mut bytes, &first) {
            break;
        }
        let now = start() + std::time::Duration::from_millis(20);
        client.handle_datagrams(now, meta(address(1), bytes.len()), &mut bytes);
        let (sent, _) = drain(&mut client, now);
        let closed = client
            .handles()
            .any(|h| client.connection(h).is_some_and(|c| c.is_closed()));
        signature = signature << 3 | u64::from(sent > 0) | u64::from(closed) << 1;
        run_out(&mut client);
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

/// Takes all output; returns its size and the first datagram.
fn drain(endpoint: &mut Endpoint, now: Time) -> (usize, Vec<u8>) {
    let mut buf = TrainBuf::new();
    let (mut sent, mut first) = (0, Vec::new());
    while let Some(transmit) = endpoint.poll_transmit(now, &mut buf) {
        if sent == 0 {
            first = buf.filled()[..transmit.segment_size.min(transmit.len)].to_vec();
        }
        sent += transmit.len;
    }
    while let Some((_, event)) = endpoint.poll_event() {
        assert_ne!(event, Event::Accepted, "one datagram finished a handshake");
    }
    (sent, first)
}

/// Left alone, every connection ends by its handshake timeout at the latest.
fn run_out(endpoint: &mut Endpoint) {
    for _ in 0..MAX_TIMERS {
        let Some(at) = endpoint.next_timeout() else {
            break;
        };
        endpoint.handle_timeout(at);
        drain(endpoint, at);
    }
    assert_eq!(endpoint.stats().connections, 0, "a connection never ends");
}
