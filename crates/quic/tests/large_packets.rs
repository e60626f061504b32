//! Datagrams of every size there is, and handshake messages larger than a long header of two
//! Length bytes can hold (RFC 9000 §17.2).

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use common::wire::packets;
use common::{CLIENT, Options, Pair, SERVER, ms, pattern, readable, secs};
use towline_quic::{ConnectionError, RetryPolicy, TransportConfig};
use towline_testkit::{SERVER_NAME, TlsOptions, ed25519_leaf, tls_pair};
use towline_wire::PacketKind;

/// What two bytes of Length can say.
const TWO_BYTES: usize = (1 << 14) - 1;

const SIZES: [u16; 10] = [
    1200, 9000, 16_383, 16_384, 16_410, 16_450, 20_000, 40_000, 65_507, 65_527,
];

fn options(mtu: u16) -> Options {
    let transport = TransportConfig::default().mtu(mtu);
    Options {
        client: transport.clone(),
        server: transport,
        ..readable()
    }
}

/// Watches for the largest packet of a kind that `side` sends, payload bytes.
fn largest(pair: &mut Pair, side: usize, kind: PacketKind) -> Rc<Cell<usize>> {
    let largest = Rc::new(Cell::new(0));
    let seen = largest.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        for p in packets(datagram) {
            if from == side && p.kind == kind {
                seen.set(seen.get().max(p.payload.len()));
            }
        }
        true
    }));
    largest
}

#[test]
fn handshakes_streams_and_datagrams_go_through_at_every_datagram_size() {
    for mtu in SIZES {
        for null_aead in [false, true] {
            let mut options = options(mtu);
            options.tls.null_aead = null_aead;
            let mut pair = Pair::connected(options);
            for side in [CLIENT, SERVER] {
                pair.transfer(side, 300_000, secs(20));
                pair.run_for(secs(1));
                let max = pair.conn(side).max_datagram_len().unwrap();
                assert!(max > usize::from(mtu.min(65_507)) - 60, "{mtu}: {max}");
                for len in [max, max - 1, max - 2, max - 3, 16_384, 16_383, 10] {
                    let data = Bytes::from(pattern(len.min(max)));
                    pair.conn(side).send_datagram(data.clone()).unwrap();
                    pair.run_for(ms(100));
                    assert_eq!(
                        pair.conn(1 - side).recv_datagram(),
                        Some(data),
                        "{mtu} {len}"
                    );
                }
                assert_eq!(pair.close_reason(side), None, "{mtu}");
            }
        }
    }
}

/// Protocols whose list alone is larger than two bytes of Length can say.
fn long_list() -> TlsOptions {
    let mut tls = readable().tls;
    tls.alpn = (0..120u8).map(|n| vec![b'a' + n % 26; 250]).collect();
    tls.alpn.sort();
    tls.alpn.dedup();
    let more = (0..100u8).map(|n| [vec![b'z'; 200], vec![n; 50]].concat());
    tls.alpn.extend(more);
    tls
}

#[test]
fn a_hello_larger_than_16_kib_goes_in_one_packet_where_the_datagram_holds_it() {
    for mtu in SIZES {
        let mut pair = Pair::new(Options {
            tls: long_list(),
            ..options(mtu)
        });
        let initial = largest(&mut pair, CLIENT, PacketKind::Initial);
        pair.connect();
        pair.established(secs(9));
        assert_eq!(
            initial.get() > TWO_BYTES,
            mtu >= 16_450,
            "{mtu}: {}",
            initial.get()
        );
        pair.transfer(SERVER, 10_000, secs(1));
    }
}

#[test]
fn a_certificate_chain_larger_than_16_kib_goes_in_one_packet_to_a_proven_address() {
    for mtu in SIZES {
        let options = Options {
            retry: RetryPolicy::Always,
            ..options(mtu)
        };
        let mut tls = tls_pair(options.seed, &options.tls);
        let leaf = ed25519_leaf(options.seed, &[SERVER_NAME]);
        let provider = tls.server.crypto_provider().clone();
        let chain = vec![leaf.certificate.clone(); 100];
        let mut server = rustls::ServerConfig::builder_with_details(provider, tls.clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, leaf.private_key())
            .unwrap();
        server.alpn_protocols = options.tls.alpn.clone();
        tls.server = Arc::new(server);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(leaf.certificate.clone()).unwrap();
        let provider = tls.client.crypto_provider().clone();
        let mut client = rustls::ClientConfig::builder_with_details(provider, tls.clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = options.tls.alpn.clone();
        tls.client = Arc::new(client);
        let mut pair = Pair::with_tls(options, tls);
        let handshake = largest(&mut pair, SERVER, PacketKind::Handshake);
        pair.connect();
        pair.established(secs(9));
        assert_eq!(
            handshake.get() > TWO_BYTES,
            mtu > 16_500,
            "{mtu}: {}",
            handshake.get()
        );
    }
}

#[test]
fn a_close_during_the_handshake_fits_every_datagram_size() {
    for mtu in SIZES {
        let mut pair = Pair::new(options(mtu));
        pair.connect();
        pair.run_until(secs(1), |p| p.hosts[SERVER].handle.is_some());
        let now = pair.now;
        pair.server().close(now, 7, &[b'x'; 600]);
        let word = pair.run_until_closed(CLIENT, secs(5));
        assert!(matches!(word, ConnectionError::ClosedByPeer(_)), "{word:?}");
    }
}

#[test]
fn a_server_with_large_packets_answers_the_first_hello() {
    let mut pair = Pair::new(Options {
        server: TransportConfig::default().mtu(9000),
        ..Options::default()
    });
    pair.connect();
    pair.established(ms(200));
}
