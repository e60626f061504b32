//! Key updates and AEAD limits (RFC 9001 §6).

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use common::evil::Evil;
use common::wire::packets;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};
use towline_quic::{
    ConnectionError, Direction, Event, TransportConfig, TransportErrorCode, WriteError,
};
use towline_sim::{LinkConfig, LossModel};
use towline_testkit::{NULL_TAG, TlsPair, tls_pair};
use towline_wire::{
    Frame, PacketKind, Reader, Writer, write_crypto_header, write_ping, write_short_header,
};

/// A pair that has settled, so that an update is permitted.
fn settled(options: Options) -> Pair {
    let mut pair = Pair::connected(options);
    pair.transfer(CLIENT, 5_000, secs(1));
    pair.transfer(SERVER, 5_000, secs(1));
    pair.run_for(secs(1));
    pair
}

fn updates(pair: &mut Pair) -> [u64; 2] {
    [CLIENT, SERVER].map(|side| pair.conn(side).stats().key_updates)
}

fn failures(pair: &mut Pair) -> [u64; 2] {
    [CLIENT, SERVER].map(|side| pair.conn(side).stats().decryption_failures)
}

#[test]
fn either_end_updates_the_keys_and_the_other_follows() {
    for side in [CLIENT, SERVER] {
        let mut pair = settled(Options::default());
        for n in 1..=5 {
            assert!(pair.conn(side).initiate_key_update());
            pair.transfer(CLIENT, 50_000, secs(2));
            pair.transfer(SERVER, 50_000, secs(2));
            assert_eq!(updates(&mut pair), [n, n]);
            pair.run_for(secs(2));
        }
        assert_eq!(failures(&mut pair), [0, 0]);
    }
}

#[test]
fn both_ends_may_update_at_once() {
    let mut pair = settled(Options::default());
    assert!(pair.client().initiate_key_update());
    assert!(pair.server().initiate_key_update());
    pair.transfer(CLIENT, 50_000, secs(2));
    pair.transfer(SERVER, 50_000, secs(2));
    assert_eq!(updates(&mut pair), [1, 1]);
    assert_eq!(failures(&mut pair), [0, 0]);
}

#[test]
fn lost_first_packets_of_an_update_do_no_harm() {
    let mut pair = settled(readable());
    let seen = Rc::new(Cell::new(0));
    let count = seen.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT && packets(datagram).iter().any(|p| p.key_phase) {
            count.set(count.get() + 1);
            return count.get() > 3;
        }
        true
    }));
    assert!(pair.client().initiate_key_update());
    pair.transfer(CLIENT, 10_000, secs(10));
    assert_eq!(updates(&mut pair), [1, 1]);
    assert!(seen.get() > 3);
}

#[test]
fn packets_of_the_old_phase_that_arrive_late_are_opened() {
    let mut pair = settled(Options::default());
    let shuffled = LinkConfig {
        reorder: 0.4,
        reorder_delay: ms(8),
        ..delay(20)
    };
    let (a, b) = pair.links;
    pair.net.set_config(a, shuffled.clone()).unwrap();
    pair.net.set_config(b, shuffled).unwrap();
    for n in 1..=5 {
        let id = pair.client().open(Direction::Unidirectional).unwrap();
        let data = common::pattern(60_000);
        pair.client().write_slice(id, &data[..50_000]).unwrap();
        pair.run_for(ms(21));
        assert!(pair.client().initiate_key_update());
        // However large the window has grown, something is left for the new phase.
        pair.client().write_slice(id, &data[50_000..]).unwrap();
        pair.client().finish(id).unwrap();
        assert_eq!(pair.accept(SERVER, Direction::Unidirectional, secs(1)), id);
        assert!(pair.read_to_end(SERVER, id, secs(5)) == common::pattern(60_000));
        pair.run_for(secs(2));
        assert_eq!(updates(&mut pair), [n, n]);
    }
    assert_eq!(failures(&mut pair), [0, 0]);
}

#[test]
fn keys_are_updated_every_so_many_packets() {
    let transport = TransportConfig::default().key_update_interval(100);
    let mut pair = settled(Options {
        client: transport.clone(),
        server: transport,
        link: LinkConfig {
            loss: LossModel::Bernoulli(0.02),
            rate: Some(20_000_000),
            ..delay(5)
        },
        ..Options::default()
    });
    pair.transfer(CLIENT, 3_000_000, secs(60));
    pair.run_for(secs(1));
    let [client, server] = updates(&mut pair);
    assert!(client > 5, "{client} updates in 2,500 packets");
    assert_eq!(client, server);
    assert_eq!(failures(&mut pair), [0, 0]);
}

#[test]
fn an_update_is_refused_before_confirmation_and_while_another_is_under_way() {
    let mut pair = Pair::new(Options::default());
    pair.connect();
    assert!(!pair.client().initiate_key_update());
    pair.run_until(secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::Connected).is_some()
    });
    assert!(!pair.client().is_confirmed());
    assert!(!pair.client().initiate_key_update());
    pair.established(secs(1));
    pair.transfer(CLIENT, 1000, secs(1));
    pair.run_for(secs(1));
    assert!(pair.client().initiate_key_update());
    assert!(!pair.client().initiate_key_update(), "not acknowledged yet");
    pair.transfer(CLIENT, 1000, secs(1));
    assert!(!pair.client().initiate_key_update(), "old keys still kept");
    pair.run_for(secs(1));
    assert!(pair.client().initiate_key_update());
}

#[test]
fn an_update_of_the_peers_is_answered_under_the_new_keys() {
    let mut evil = Evil::against(SERVER);
    evil.key_phase = true;
    evil.send(write_ping);
    evil.pair.run_for(ms(100));
    let phases: Vec<bool> = evil.pair.hosts[CLIENT]
        .captured
        .iter()
        .flat_map(|d| {
            packets(d)
                .into_iter()
                .map(|p| p.key_phase)
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(phases, [true], "the ACK");
    assert_eq!(evil.pair.server().stats().key_updates, 1);
}

#[test]
fn an_update_by_a_client_that_was_told_nothing_yet_is_a_key_update_error() {
    // RFC 9001 §6.1: a client is not confirmed before a 1-RTT packet of ours reached it.
    let mut pair = Pair::new(readable());
    let finished: Rc<RefCell<Vec<u8>>> = Rc::default();
    let held = finished.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        let is_finished =
            |p: &common::wire::Packet<'_>| p.kind == PacketKind::Handshake && has_crypto(p.payload);
        if from == CLIENT
            && let Some(p) = packets(datagram).into_iter().find(is_finished)
        {
            let end = p.payload_at + p.payload.len() + NULL_TAG.len();
            *held.borrow_mut() = datagram[..end].to_vec();
            return false;
        }
        true
    }));
    pair.connect();
    pair.run_until(secs(1), |_| !finished.borrow().is_empty());
    let mut datagram = finished.borrow().clone();
    let dcid = common::wire::destination(&datagram);
    let mut packet = vec![0; 64];
    let mut w = Writer::new(&mut packet);
    write_short_header(&mut w, &dcid, 50, 4, false, true);
    write_ping(&mut w);
    w.bytes(&NULL_TAG);
    let len = w.len();
    datagram.extend_from_slice(&packet[..len]);
    pair.deliver(SERVER, &datagram);
    let word = pair.close_reason(SERVER);
    let code = TransportErrorCode::KEY_UPDATE_ERROR;
    assert!(
        matches!(word, Some(ConnectionError::PeerMisbehaved { code: c, .. }) if c == code),
        "{word:?}"
    );
}

fn has_crypto(payload: &[u8]) -> bool {
    let mut r = Reader::new(payload);
    while !r.is_empty() {
        let frame = Frame::parse(&mut r).expect("our own frames parse");
        if matches!(frame, Frame::Crypto { .. }) {
            return true;
        }
    }
    false
}

#[test]
fn a_client_follows_an_update_that_overtakes_handshake_done() {
    // The server is confirmed before the client can know (RFC 9001 §4.1.2).
    let mut pair = Pair::new(readable());
    pair.drop_first(SERVER, u32::MAX, |f| matches!(f, Frame::HandshakeDone));
    pair.connect();
    pair.run_until(secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::Connected).is_some()
    });
    pair.run_for(ms(50));
    assert!(!pair.client().is_confirmed());
    let mut evil = Evil::take_over(pair, CLIENT);
    evil.key_phase = true;
    evil.send(write_ping);
    evil.assert_open();
    assert_eq!(evil.pair.client().stats().key_updates, 1);
    assert!(!evil.pair.client().initiate_key_update(), "not confirmed");
}

#[test]
fn two_updates_without_an_answer_between_are_a_key_update_error() {
    let mut evil = Evil::against(SERVER);
    let from = evil.pair.hosts[CLIENT].address;
    for phase in [true, false] {
        evil.key_phase = phase;
        let packet = evil.packet(&[0x01]);
        evil.pair.deliver_silently(SERVER, from, &packet);
    }
    evil.pair.flush();
    evil.assert_closed(TransportErrorCode::KEY_UPDATE_ERROR, None);
}

#[test]
fn old_keys_under_a_higher_number_are_a_key_update_error() {
    let mut evil = Evil::against(SERVER);
    evil.send(write_ping);
    evil.pair.run_for(ms(100));
    // The server's packet of the handshake was acknowledged, so it may update.
    assert!(evil.pair.server().initiate_key_update());
    evil.number = 2_000;
    evil.send(write_ping);
    evil.assert_open();
    evil.key_phase = true;
    evil.number = 1_500;
    evil.send(write_ping);
    evil.assert_closed(TransportErrorCode::KEY_UPDATE_ERROR, None);
}

#[test]
fn a_tls_key_update_message_is_an_unexpected_message() {
    // RFC 9001 §6: connection error 0x010a.
    let mut evil = Evil::against(SERVER);
    evil.send(|w| {
        write_crypto_header(w, 0, 5);
        w.bytes(&[24, 0, 0, 1, 0]);
    });
    let code = TransportErrorCode::crypto(10);
    match evil.pair.close_reason(SERVER) {
        Some(ConnectionError::Tls { code: c, .. }) => assert_eq!(c, code),
        other => panic!("{other:?}"),
    }
    evil.pair.run_for(ms(50));
    assert_eq!(evil.closes(), [(code.as_u64(), true)]);
}

#[test]
fn forged_packets_are_counted_and_do_no_harm() {
    let mut pair = settled(Options::default());
    let dcid = pair.hosts[CLIENT].last_dcid.clone();
    for i in 0..1000u32 {
        let mut packet = vec![0x40];
        packet.extend_from_slice(&dcid);
        packet.extend((0..60).map(|k| (i.wrapping_mul(2_654_435_761) >> (k % 24)) as u8));
        pair.deliver(SERVER, &packet);
    }
    assert_eq!(pair.server().stats().decryption_failures, 1000);
    pair.transfer(CLIENT, 100_000, secs(2));
}

#[test]
fn packets_from_before_an_update_are_dropped_once_the_old_keys_are_gone() {
    let mut pair = settled(Options::default());
    let held: Rc<RefCell<Vec<u8>>> = Rc::default();
    let copy = held.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        let hold = from == CLIENT && copy.borrow().is_empty();
        if hold {
            *copy.borrow_mut() = datagram.clone();
        }
        !hold
    }));
    pair.client().ping();
    pair.run_for(ms(1));
    assert!(pair.client().initiate_key_update());
    pair.transfer(CLIENT, 10_000, secs(2));
    pair.run_for(secs(5));
    let old = held.borrow().clone();
    pair.deliver(SERVER, &old);
    assert_eq!(pair.server().stats().decryption_failures, 1);
    pair.transfer(CLIENT, 10_000, secs(2));
}

// ---- a suite with tiny limits ----

const INTEGRITY: u64 = 20;

/// Null protection that is used up after `LIMIT` packets.
struct Tiny<const LIMIT: u64>;

impl<const LIMIT: u64> Algorithm for Tiny<LIMIT> {
    fn packet_key(&self, _key: AeadKey, _iv: Iv) -> Box<dyn PacketKey> {
        Box::new(Tiny::<LIMIT>)
    }

    fn header_protection_key(&self, _key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        Box::new(Tiny::<LIMIT>)
    }

    fn aead_key_len(&self) -> usize {
        16
    }
}

impl<const LIMIT: u64> PacketKey for Tiny<LIMIT> {
    fn encrypt_in_place(&self, _: u64, _: &[u8], _: &mut [u8]) -> Result<Tag, rustls::Error> {
        Ok(Tag::from(NULL_TAG.as_slice()))
    }

    fn decrypt_in_place<'a>(
        &self,
        _: u64,
        _: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        payload
            .strip_suffix(NULL_TAG.as_slice())
            .ok_or(rustls::Error::DecryptError)
    }

    fn tag_len(&self) -> usize {
        NULL_TAG.len()
    }

    fn confidentiality_limit(&self) -> u64 {
        LIMIT
    }

    fn integrity_limit(&self) -> u64 {
        INTEGRITY
    }
}

impl<const LIMIT: u64> HeaderProtectionKey for Tiny<LIMIT> {
    fn encrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), rustls::Error> {
        Ok(())
    }

    fn decrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), rustls::Error> {
        Ok(())
    }

    fn sample_len(&self) -> usize {
        16
    }
}

fn suite(quic: &'static dyn Algorithm) -> SupportedCipherSuite {
    let real = TLS13_AES_128_GCM_SHA256
        .tls13()
        .expect("the suite's name says TLS 1.3");
    // rustls wants its suites to live forever.
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: real.common.suite,
            hash_provider: real.common.hash_provider,
            confidentiality_limit: real.common.confidentiality_limit,
        },
        hkdf_provider: real.hkdf_provider,
        aead_alg: real.aead_alg,
        quic: Some(quic),
    })))
}

/// Both sides with the tiny suite.
fn tiny<const LIMIT: u64>() -> Pair {
    let options = Options {
        client: TransportConfig::default().mtu(1200),
        ..readable()
    };
    let mut tls: TlsPair = tls_pair(options.seed, &options.tls);
    let mut provider = (**tls.client.crypto_provider()).clone();
    provider.cipher_suites = vec![suite(&Tiny::<LIMIT>)];
    let provider = Arc::new(provider);
    let versions = &[&rustls::version::TLS13];
    let leaf = towline_testkit::ed25519_leaf(options.seed, &[towline_testkit::SERVER_NAME]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(leaf.certificate.clone()).unwrap();
    let clock = tls.clock.clone();
    let mut client = rustls::ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = rustls::ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.certificate.clone()], leaf.private_key())
        .unwrap();
    client.alpn_protocols = options.tls.alpn.clone();
    server.alpn_protocols = options.tls.alpn.clone();
    tls.client = Arc::new(client);
    tls.server = Arc::new(server);
    let mut pair = Pair::with_tls(options, tls);
    pair.connect();
    pair.established(secs(1));
    pair.run_for(secs(1));
    pair
}

/// Most packets `side` ever sealed in one phase, through the tap.
fn longest_phase(pair: &mut Pair, side: usize) -> Rc<Cell<u64>> {
    let longest = Rc::new(Cell::new(0));
    let most = longest.clone();
    let (mut phase, mut run) = (false, 0);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == side {
            for p in packets(datagram)
                .iter()
                .filter(|p| p.kind == PacketKind::OneRtt)
            {
                run = if p.key_phase == phase { run + 1 } else { 1 };
                phase = p.key_phase;
                most.set(most.get().max(run));
            }
        }
        true
    }));
    longest
}

#[test]
fn keys_are_updated_long_before_the_confidentiality_limit() {
    const LIMIT: u64 = 1000;
    let mut pair = tiny::<LIMIT>();
    let link = LinkConfig {
        rate: Some(2_000_000),
        queue: Some(12_000),
        ..delay(5)
    };
    let there = pair.links.0;
    pair.net.set_config(there, link).unwrap();
    let longest = longest_phase(&mut pair, CLIENT);
    pair.transfer(CLIENT, 2_000_000, secs(60));
    assert!(longest.get() < LIMIT * 3 / 4, "{}", longest.get());
    assert!(pair.client().stats().key_updates >= 3);
}

#[test]
fn nothing_is_sealed_beyond_the_confidentiality_limit() {
    const LIMIT: u64 = 200;
    let mut pair = tiny::<LIMIT>();
    let longest = longest_phase(&mut pair, CLIENT);
    // The peer acknowledges nothing any more, so no further update is permitted.
    pair.hosts[SERVER].hijacked = true;
    let id = pair.client().open(Direction::Bidirectional).unwrap();
    let mut pings = 0;
    while !pair.client().is_closed() {
        pair.client().ping();
        pair.flush();
        pings += 1;
        assert!(pings < 4 * LIMIT);
    }
    let word = ConnectionError::AeadLimitReached;
    assert_eq!(pair.close_reason(CLIENT), Some(word.clone()));
    assert_eq!(
        pair.client().write_slice(id, b"x"),
        Err(WriteError::ConnectionLost(word))
    );
    pair.run_for(secs(1));
    assert!(longest.get() <= LIMIT, "{}", longest.get());
    // The peer was told with one of the last permitted packets.
    let mut codes = Vec::new();
    for datagram in &pair.hosts[SERVER].captured {
        common::wire::for_each_frame(datagram, |_, frame| {
            if let towline_wire::Frame::ConnectionClose(close) = frame {
                codes.push(close.error_code);
            }
        });
    }
    assert_eq!(codes, [TransportErrorCode::AEAD_LIMIT_REACHED.as_u64()]);
}

#[test]
fn forgeries_up_to_the_integrity_limit_end_the_connection() {
    let pair = tiny::<100_000>();
    let mut evil = Evil::take_over(pair, SERVER);
    for n in 1..=INTEGRITY {
        evil.assert_open();
        let mut packet = evil.packet(&[0x01]);
        *packet.last_mut().unwrap() ^= 1;
        evil.pair.deliver(SERVER, &packet);
        assert_eq!(evil.pair.server().stats().decryption_failures, n);
    }
    assert_eq!(
        evil.pair.close_reason(SERVER),
        Some(ConnectionError::AeadLimitReached)
    );
    evil.pair.run_for(ms(50));
    let code = TransportErrorCode::AEAD_LIMIT_REACHED.as_u64();
    assert_eq!(evil.closes(), [(code, true)]);
}
