use std::time::Duration;

use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::quic::{self, DirectionalKeys, KeyChange, Keys, Secrets, Version};
use rustls::{HandshakeKind, NamedGroup, Side};

use super::*;
use crate::NULL_TAG;

/// Transport parameters are opaque to TLS.
const PARAMETERS: &[u8] = &[0x01, 0x02, 0x67, 0x10];

/// Everything that one handshake put on the wire, and what both ends came to.
struct Outcome {
    flights: Vec<(Side, Vec<u8>)>,
    kind: HandshakeKind,
    group: NamedGroup,
    client_keys: Option<Keys>,
    server_keys: Option<Keys>,
    client_next: Secrets,
    zero_rtt: bool,
    alpn: Vec<u8>,
}

impl Outcome {
    fn sent(&self, side: Side) -> Vec<usize> {
        let of_side = self.flights.iter().filter(|(from, _)| *from == side);
        of_side.map(|(_, bytes)| bytes.len()).collect()
    }
}

fn handshake(pair: &TlsPair) -> Outcome {
    let mut client: quic::Connection = quic::ClientConnection::new(
        pair.client.clone(),
        Version::V1,
        pair.server_name.clone(),
        PARAMETERS.to_vec(),
    )
    .unwrap()
    .into();
    let mut server: quic::Connection =
        quic::ServerConnection::new(pair.server.clone(), Version::V1, PARAMETERS.to_vec())
            .unwrap()
            .into();
    let mut flights = Vec::new();
    let mut keys = [None, None];
    let mut next = None;
    let zero_rtt = client.zero_rtt_keys().is_some();
    loop {
        let mut moved = false;
        for (index, side) in [Side::Client, Side::Server].into_iter().enumerate() {
            loop {
                let (from, to) = match side {
                    Side::Client => (&mut client, &mut server),
                    Side::Server => (&mut server, &mut client),
                };
                let mut bytes = Vec::new();
                let change = from.write_hs(&mut bytes);
                if bytes.is_empty() && change.is_none() {
                    break;
                }
                moved = true;
                if !bytes.is_empty() {
                    to.read_hs(&bytes).unwrap();
                    flights.push((side, bytes));
                }
                if let Some(KeyChange::OneRtt {
                    keys: one_rtt,
                    next: secrets,
                }) = change
                {
                    keys[index] = Some(one_rtt);
                    if side == Side::Client {
                        next = Some(secrets);
                    }
                }
            }
        }
        if !moved {
            break;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    let [client_keys, server_keys] = keys;
    Outcome {
        flights,
        kind: client.handshake_kind().unwrap(),
        group: client.negotiated_key_exchange_group().unwrap().name(),
        client_keys,
        server_keys,
        client_next: next.unwrap(),
        zero_rtt,
        alpn: client.alpn_protocol().unwrap().to_vec(),
    }
}

#[test]
fn same_seed_gives_the_same_bytes() {
    for options in [
        TlsOptions::default(),
        TlsOptions {
            post_quantum: true,
            ..TlsOptions::default()
        },
        TlsOptions {
            hello_retry: true,
            ..TlsOptions::default()
        },
        TlsOptions {
            early_data: true,
            ..TlsOptions::default()
        },
    ] {
        let run = |seed| {
            let pair = tls_pair(seed, &options);
            // A full handshake, then a resumed one, whose tickets must match too.
            let mut flights = handshake(&pair).flights;
            flights.extend(handshake(&pair).flights);
            flights
        };
        assert!(run(7) == run(7), "seed 7 must replay: {options:?}");
        assert!(run(7) != run(8), "another seed must differ: {options:?}");
    }
}

#[test]
fn reseeding_replays_with_the_same_configurations() {
    let pair = tls_pair(3, &TlsOptions::default());
    let mut client = (*pair.client).clone();
    client.resumption = Resumption::disabled();
    let pair = TlsPair {
        client: Arc::new(client),
        ..pair
    };
    let run = |seed| {
        crate::reseed(seed);
        handshake(&pair).flights
    };
    assert!(run(11) == run(11));
    assert!(run(11) != run(12));
}

#[test]
fn classical_flights_have_the_usual_sizes() {
    let outcome = handshake(&tls_pair(1, &TlsOptions::default()));
    assert_eq!(outcome.kind, HandshakeKind::Full);
    assert_eq!(outcome.group, NamedGroup::X25519);
    assert_eq!(outcome.alpn, b"towline-test");
    let client = outcome.sent(Side::Client);
    assert!((150..300).contains(&client[0]), "{client:?}");
    assert_eq!(outcome.sent(Side::Server)[0], 90);
}

#[test]
fn post_quantum_flights_have_the_sizes_of_the_real_group() {
    let options = TlsOptions {
        post_quantum: true,
        ..TlsOptions::default()
    };
    let stand_in = tls_pair(1, &options);
    // The same pair over the real X25519MLKEM768 of aws-lc.
    let real = |seeded: &CryptoProvider| CryptoProvider {
        kx_groups: vec![
            rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768,
            rustls::crypto::aws_lc_rs::kx_group::X25519,
        ],
        ..seeded.clone()
    };
    let mut client = ClientConfig::builder_with_details(
        Arc::new(real(stand_in.client.crypto_provider())),
        stand_in.clock.clone(),
    )
    .with_protocol_versions(&[&TLS13])
    .unwrap()
    .with_root_certificates({
        let mut roots = RootCertStore::empty();
        roots.add(stand_in.certificate.clone()).unwrap();
        roots
    })
    .with_no_client_auth();
    client.alpn_protocols = options.alpn.clone();
    let leaf = ed25519_leaf(1, &[SERVER_NAME, "127.0.0.1", "::1"]);
    let mut server = ServerConfig::builder_with_details(
        Arc::new(real(stand_in.server.crypto_provider())),
        stand_in.clock.clone(),
    )
    .with_protocol_versions(&[&TLS13])
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![leaf.certificate.clone()], leaf.private_key())
    .unwrap();
    server.alpn_protocols = options.alpn.clone();
    let genuine = TlsPair {
        client: Arc::new(client),
        server: Arc::new(server),
        ..stand_in.clone()
    };

    let ours = handshake(&stand_in);
    let theirs = handshake(&genuine);
    assert_eq!(ours.group, NamedGroup::X25519MLKEM768);
    assert_eq!(theirs.group, NamedGroup::X25519MLKEM768);
    let sizes = |outcome: &Outcome| -> Vec<(Side, usize)> {
        let flights = outcome.flights.iter();
        flights.map(|(side, bytes)| (*side, bytes.len())).collect()
    };
    assert_eq!(sizes(&ours), sizes(&theirs));
    assert!(ours.sent(Side::Client)[0] > 1200, "needs two datagrams");
}

#[test]
fn a_share_changed_on_the_way_breaks_the_hybrid_handshake() {
    let started = HYBRID.start().unwrap();
    let mut client_share = started.pub_key().to_vec();
    client_share[5] ^= 1;
    let completed = HYBRID.start_and_complete(&client_share).unwrap();
    let secret = started.complete(&completed.pub_key).unwrap();
    assert!(secret.secret_bytes() != completed.secret.secret_bytes());
    assert!(HYBRID.start_and_complete(&client_share[1..]).is_err());
}

#[test]
fn hello_retry_takes_a_second_client_hello() {
    let options = TlsOptions {
        hello_retry: true,
        ..TlsOptions::default()
    };
    let outcome = handshake(&tls_pair(1, &options));
    assert_eq!(outcome.kind, HandshakeKind::FullWithHelloRetryRequest);
    assert_eq!(outcome.group, NamedGroup::X25519MLKEM768);
}

#[test]
fn early_data_keys_exist_from_the_second_handshake_on() {
    let options = TlsOptions {
        early_data: true,
        ..TlsOptions::default()
    };
    let pair = tls_pair(1, &options);
    assert!(!handshake(&pair).zero_rtt);
    pair.clock.advance(Duration::from_secs(60));
    let second = handshake(&pair);
    assert!(second.zero_rtt);
    assert_eq!(second.kind, HandshakeKind::Resumed);
}

#[test]
fn the_clock_decides_whether_the_leaf_is_valid() {
    let pair = tls_pair(1, &TlsOptions::default());
    pair.clock.set(2_500_000_000); // 2049-03-22
    let mut client = quic::ClientConnection::new(
        pair.client.clone(),
        Version::V1,
        pair.server_name.clone(),
        PARAMETERS.to_vec(),
    )
    .unwrap();
    let mut server =
        quic::ServerConnection::new(pair.server.clone(), Version::V1, PARAMETERS.to_vec()).unwrap();
    let mut bytes = Vec::new();
    client.write_hs(&mut bytes);
    server.read_hs(&bytes).unwrap();
    let mut refusal = None;
    for _ in 0..2 {
        let mut bytes = Vec::new();
        server.write_hs(&mut bytes);
        refusal = client.read_hs(&bytes).err();
    }
    let refusal = format!("{refusal:?}");
    assert!(refusal.contains("Expired"), "{refusal}");
}

#[test]
fn each_cipher_seals_what_the_other_side_opens() {
    for (cipher, name) in [
        (Cipher::Aes128Gcm, cipher_suite::TLS13_AES_128_GCM_SHA256),
        (Cipher::Aes256Gcm, cipher_suite::TLS13_AES_256_GCM_SHA384),
        (
            Cipher::ChaCha20,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ),
    ] {
        let pair = tls_pair(
            2,
            &TlsOptions {
                cipher,
                ..TlsOptions::default()
            },
        );
        assert_eq!(pair.client.crypto_provider().cipher_suites, [name]);
        let outcome = handshake(&pair);
        let (client, server) = (outcome.client_keys.unwrap(), outcome.server_keys.unwrap());
        let sealed = seal(&client.local, b"payload");
        assert_ne!(&sealed[..7], b"payload");
        assert_eq!(open(&server.remote, sealed).unwrap(), b"payload");
    }
}

#[test]
fn null_aead_leaves_packets_readable() {
    let options = TlsOptions {
        null_aead: true,
        ..TlsOptions::default()
    };
    let mut outcome = handshake(&tls_pair(2, &options));
    let (client, server) = (outcome.client_keys.unwrap(), outcome.server_keys.unwrap());
    let sealed = seal(&client.local, b"payload");
    assert_eq!(sealed, [b"payload".as_slice(), &NULL_TAG].concat());
    assert_eq!(open(&server.remote, sealed).unwrap(), b"payload");
    assert!(open(&server.remote, b"payload".to_vec()).is_err());

    let mut first = 0x43;
    let mut packet_number = [9, 8];
    let header = &client.local.header;
    header
        .encrypt_in_place(&[0xff; 16], &mut first, &mut packet_number)
        .unwrap();
    assert_eq!((first, packet_number), (0x43, [9, 8]));
    assert!(
        header
            .encrypt_in_place(&[0; 15], &mut first, &mut [0])
            .is_err()
    );
    assert!(
        header
            .encrypt_in_place(&[0; 16], &mut first, &mut [0; 5])
            .is_err()
    );

    let updated = outcome.client_next.next_packet_keys();
    let mut payload = b"payload".to_vec();
    let tag = updated
        .local
        .encrypt_in_place(1, b"", &mut payload)
        .unwrap();
    assert_eq!(tag.as_ref(), NULL_TAG);
}

#[test]
fn null_aead_covers_initial_packets() {
    let provider = crate::null_aead_provider(1);
    let suite = provider.cipher_suites[0].tls13().unwrap();
    let keys = suite
        .quic_suite()
        .unwrap()
        .keys(&[1; 8], Side::Client, Version::V1);
    assert_eq!(&seal(&keys.local, b"hello")[..5], b"hello");
}

#[test]
fn leaves_of_one_seed_are_equal_and_of_two_differ() {
    let (one, again, other) = (
        ed25519_leaf(1, &["a.test"]),
        ed25519_leaf(1, &["a.test"]),
        ed25519_leaf(2, &["a.test"]),
    );
    assert_eq!(one.certificate, again.certificate);
    assert_ne!(one.certificate, other.certificate);
    assert_eq!(one.spki.len(), 44);
}

fn seal(keys: &DirectionalKeys, payload: &[u8]) -> Vec<u8> {
    let mut out = payload.to_vec();
    let tag = keys
        .packet
        .encrypt_in_place(4, b"header", &mut out)
        .unwrap();
    out.extend_from_slice(tag.as_ref());
    out
}

fn open(keys: &DirectionalKeys, mut sealed: Vec<u8>) -> Result<Vec<u8>, rustls::Error> {
    let opened = keys.packet.decrypt_in_place(4, b"header", &mut sealed)?;
    Ok(opened.to_vec())
}
