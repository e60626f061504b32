//! A server of several application protocols: which one a client gets, with which settings, and what
//! becomes of hellos that come in pieces, late, or not at all.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use common::evil::long_packet;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_identity::{ClientAuth, Identity, TlsSettings, Trust, client_config, server_config};
use towline_quic::{
    Algorithm, ClientConfig, Close, ConnectionError, Direction, PeerIdentity, ProtocolConfig,
    RetryPolicy, ServerConfig, TransportConfig, TransportErrorCode,
};
use towline_sim::LinkConfig;
use towline_testkit::{TlsOptions, tls_pair};
use towline_wire::{LongType, Writer, write_crypto_header, write_padding};

const NO_APPLICATION_PROTOCOL: u8 = 120;
const UNRECOGNIZED_NAME: u8 = 112;
const INTERNAL_ERROR: u8 = 80;

/// A pair whose client offers these protocols, and whose server speaks `protocols` besides its own.
fn pair(options: Options, offer: &[&str], protocols: Vec<ProtocolConfig>) -> Pair {
    let mut pair = Pair::new(options);
    offer_only(&mut pair, offer);
    serve(&mut pair, |server| server.protocols(protocols));
    pair
}

fn serve(pair: &mut Pair, change: impl FnOnce(ServerConfig) -> ServerConfig) {
    let (now, server) = (pair.now, change(pair.server_config.clone()));
    server.validate().unwrap();
    let endpoint = &mut pair.hosts[SERVER].endpoint;
    endpoint.set_server_config(now, Some(Arc::new(server)));
}

fn offer_only(pair: &mut Pair, offer: &[&str]) {
    let mut tls = (*pair.client_config.tls).clone();
    tls.alpn_protocols = offer.iter().map(|name| name.as_bytes().to_vec()).collect();
    pair.client_config.tls = Arc::new(tls);
}

fn connected(mut pair: Pair) -> Pair {
    pair.connect();
    pair.established(secs(5));
    pair.transfer(CLIENT, 3000, secs(5));
    pair.transfer(SERVER, 3000, secs(5));
    pair
}

/// Both ends say that the server refused with this alert.
fn assert_refused(mut pair: Pair, alert: u8) -> String {
    pair.connect();
    let code = TransportErrorCode::crypto(alert);
    match pair.run_until_closed(CLIENT, secs(5)) {
        ConnectionError::ClosedByPeer(Close::Transport { code: c, .. }) => assert_eq!(c, code),
        other => panic!("{other:?}"),
    }
    match pair.close_reason(SERVER) {
        Some(ConnectionError::Tls { code: c, what }) => {
            assert_eq!(c, code);
            what
        }
        other => panic!("{other:?}"),
    }
}

/// The datagrams of the client's hello, none of which arrives.
fn hello_of(pair: &mut Pair) -> Vec<Vec<u8>> {
    let sent: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let seen = Rc::clone(&sent);
    pair.tap = Some(Box::new(move |from, datagram| {
        assert_eq!(from, CLIENT);
        seen.borrow_mut().push(datagram.clone());
        false
    }));
    pair.connect();
    pair.tap = None;
    sent.take()
}

fn post_quantum() -> TlsOptions {
    TlsOptions {
        post_quantum: true,
        ..TlsOptions::default()
    }
}

/// Two protocols that can be told apart by their settings.
fn two() -> Vec<ProtocolConfig> {
    let few = TransportConfig::default()
        .max_concurrent_bidi_streams(7)
        .max_datagram_frame_size(None)
        .max_idle_timeout(secs(3))
        .congestion(Algorithm::LedbatPlusPlus);
    let many = TransportConfig::default()
        .max_concurrent_bidi_streams(900)
        .congestion(Algorithm::Bbr);
    vec![
        ProtocolConfig::new("few").transport(few),
        ProtocolConfig::new("many").transport(many),
    ]
}

#[test]
fn each_protocol_has_transport_settings_of_its_own() {
    for (offer, streams, datagrams, congestion) in [
        ("few", 7, false, Algorithm::LedbatPlusPlus),
        ("many", 900, true, Algorithm::Bbr),
        // The server's own.
        ("towline-test", 100, true, Algorithm::Cubic),
    ] {
        let mut pair = connected(pair(Options::default(), &[offer], two()));
        for side in [CLIENT, SERVER] {
            assert_eq!(pair.conn(side).alpn(), Some(offer.as_bytes()));
        }
        let client = pair.client();
        assert_eq!(
            client.openable(Direction::Bidirectional),
            streams,
            "{offer}"
        );
        assert_eq!(client.max_datagram_len().is_some(), datagrams, "{offer}");
        assert_eq!(pair.server().congestion(), congestion);
        let silent = pair.now;
        if offer == "few" {
            pair.run_until_closed(SERVER, secs(10));
            let silence = pair.now.saturating_duration_since(silent);
            assert!((secs(3)..secs(4)).contains(&silence), "{silence:?}");
        }
    }
}

#[test]
fn of_what_the_client_offers_our_favourite_is_taken() {
    let mut pair = connected(pair(
        Options::default(),
        &["towline-test", "other", "many", "few"],
        two(),
    ));
    assert_eq!(pair.server().alpn(), Some(&b"few"[..]));
    assert_eq!(pair.client().alpn(), Some(&b"few"[..]));
}

#[test]
fn without_a_common_protocol_the_server_says_no_application_protocol() {
    let pair = pair(Options::default(), &["other", "fe", "few2"], two());
    assert_refused(pair, NO_APPLICATION_PROTOCOL);
}

#[test]
fn a_client_that_offers_no_protocol_at_all_is_refused() {
    // RFC 9001 §8.1.
    let pair = pair(Options::default(), &[], two());
    assert_refused(pair, NO_APPLICATION_PROTOCOL);
}

#[test]
fn the_choice_waits_for_a_hello_of_several_packets_in_any_order() {
    let mut offer: Vec<String> = (0..7).map(|n| format!("{n}{}", "x".repeat(200))).collect();
    // In the last packet.
    offer.push("many".to_owned());
    let offer: Vec<&str> = offer.iter().map(String::as_str).collect();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let options = Options {
            tls: post_quantum(),
            ..Options::default()
        };
        let mut pair = pair(options, &offer, two());
        let hello = hello_of(&mut pair);
        assert_eq!(hello.len(), 3);
        for index in order {
            pair.deliver(SERVER, &hello[index]);
        }
        pair.established(secs(1));
        assert_eq!(pair.server().alpn(), Some(&b"many"[..]), "{order:?}");
        assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
        pair.transfer(SERVER, 100_000, secs(5));
    }
}

#[test]
fn a_lost_piece_of_the_hello_is_sent_again_after_three_round_trips_and_not_after_a_second() {
    for lost in 1..=3 {
        for retry in [RetryPolicy::Never, RetryPolicy::Always] {
            let options = Options {
                tls: post_quantum(),
                link: LinkConfig {
                    drop_list: vec![lost],
                    ..delay(10)
                },
                ..Options::default()
            };
            let long = "x".repeat(255);
            let offer: Vec<&str> = [[long.as_str(); 6].as_slice(), &["few"]].concat();
            let mut pair = pair(options, &offer, two());
            serve(&mut pair, |server| server.retry(retry).protocols(two()));
            let begun = pair.now;
            let mut pair = connected(pair);
            assert_eq!(pair.server().alpn(), Some(&b"few"[..]));
            let took = pair.now.saturating_duration_since(begun);
            // The first packet's loss is noticed without a sample of the round trip.
            let most = if lost == 1 { ms(700) } else { ms(400) };
            assert!(took < most, "{lost} {retry:?}: {took:?}");
        }
    }
}

#[test]
fn any_single_datagram_of_the_handshake_may_be_lost() {
    for (there, k) in (1..=8).flat_map(|k| [(true, k), (false, k)]) {
        let lossy = LinkConfig {
            drop_list: vec![k],
            ..delay(10)
        };
        let (link, back) = match there {
            true => (lossy, delay(10)),
            false => (delay(10), lossy),
        };
        let options = Options {
            link,
            back: Some(back),
            tls: post_quantum(),
            ..Options::default()
        };
        let mut pair = connected(pair(options, &["many"], two()));
        assert_eq!(pair.server().alpn(), Some(&b"many"[..]));
    }
}

#[test]
fn hello_retry_and_resumption_work_across_protocols() {
    let options = Options {
        tls: TlsOptions {
            hello_retry: true,
            ..TlsOptions::default()
        },
        ..Options::default()
    };
    let mut pair = connected(pair(options, &["few"], two()));
    assert!(!pair.client().is_resumed());
    for offer in ["few", "many", "towline-test"] {
        let now = pair.now;
        pair.client().close(now, 0, b"");
        pair.run_for(secs(2));
        for side in [CLIENT, SERVER] {
            pair.hosts[side].handle = None;
            pair.hosts[side].events.clear();
        }
        offer_only(&mut pair, &[offer]);
        pair = connected(pair);
        assert!(pair.server().is_resumed(), "{offer}");
        assert_eq!(pair.server().alpn(), Some(offer.as_bytes()));
    }
}

#[test]
fn certificates_and_raw_keys_live_on_one_port() {
    let mut pair = Pair::new(Options::default());
    let key = Identity::raw_key_from_seed(&[7; 32]).unwrap();
    let settings = |pair: &Pair| {
        let provider = pair.client_config.tls.crypto_provider().clone();
        TlsSettings::new(provider, pair.clock.clone()).alpn(vec![b"link".to_vec()])
    };
    // Its list of protocols says something else, and does not count.
    let raw = settings(&pair).alpn(vec![b"unused".to_vec()]);
    let raw = server_config(&key, &ClientAuth::None, &raw).unwrap();
    let link = ProtocolConfig::new("link").tls(Some(Arc::new(raw)));
    serve(&mut pair, |server| server.protocols([link]));
    let mut pair = connected(pair);
    let identity = pair.client().peer_identity();
    assert!(matches!(identity, Some(PeerIdentity::X509 { .. })));

    let trust = Trust::RawKeys(vec![key.key_pin()]);
    let tls = client_config(&trust, None, &settings(&pair)).unwrap();
    pair.client_config = ClientConfig::new(Arc::new(tls));
    for side in [CLIENT, SERVER] {
        pair.hosts[side].handle = None;
        pair.hosts[side].events.clear();
    }
    let mut pair = connected(pair);
    let identity = pair.client().peer_identity().unwrap();
    assert_eq!(identity.key_pin(), key.key_pin());
    assert_eq!(pair.server().alpn(), Some(&b"link"[..]));
}

/// A resolver without a certificate for anybody.
#[derive(Debug)]
struct Nobody;

impl rustls::server::ResolvesServerCert for Nobody {
    fn resolve(
        &self,
        _: rustls::server::ClientHello<'_>,
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

#[test]
fn a_resolver_without_a_certificate_is_an_unrecognized_name_and_says_which() {
    for protocols in [vec![], two()] {
        let mut pair = pair(
            Options::default(),
            &["few", "towline-test"],
            protocols.clone(),
        );
        serve(&mut pair, |server| {
            let mut tls = (*server.tls).clone();
            tls.cert_resolver = Arc::new(Nobody);
            server.tls(Arc::new(tls)).protocols(protocols)
        });
        let what = assert_refused(pair, UNRECOGNIZED_NAME);
        assert_eq!(what, "this server has no certificate for server.test");
    }
}

#[test]
fn a_protocol_whose_tls_does_not_work_for_quic_harms_no_other() {
    let make = || {
        let mut pair = Pair::new(Options::default());
        serve(&mut pair, |server| {
            let mut tls = (*server.tls).clone();
            // RFC 9001 §4.6.1.
            tls.max_early_data_size = 5;
            let broken = ProtocolConfig::new("broken").tls(Some(Arc::new(tls)));
            server.protocols([broken, ProtocolConfig::new("whole")])
        });
        pair
    };
    let mut pair = make();
    offer_only(&mut pair, &["broken", "whole"]);
    assert_refused(pair, INTERNAL_ERROR);
    let mut pair = make();
    offer_only(&mut pair, &["whole"]);
    connected(pair);
}

#[test]
fn a_setting_of_any_protocol_that_makes_no_sense_is_named() {
    let server = ServerConfig::new(tls_pair(1, &TlsOptions::default()).server);
    let with = |protocol| {
        server
            .clone()
            .protocols([ProtocolConfig::new("good"), protocol])
    };
    let bad = TransportConfig::default().receive_window(u64::MAX);
    for (config, setting) in [
        (with(ProtocolConfig::new("")), "alpn"),
        (with(ProtocolConfig::new(vec![b'a'; 256])), "alpn"),
        (
            with(ProtocolConfig::new("a").transport(bad)),
            "receive_window",
        ),
    ] {
        assert_eq!(config.validate().unwrap_err().setting, setting);
    }
    let server = server.protocols(two());
    assert_eq!(server.validate(), Ok(()));
    for (alpn, speaks) in [("few", true), ("towline-test", true), ("fe", false)] {
        assert_eq!(server.speaks(alpn.as_bytes()), speaks, "{alpn}");
    }
}

/// A client's Initial with this CRYPTO data, in a datagram of 1200 bytes.
fn initial(number: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; 1100];
    let mut w = Writer::new(&mut payload);
    write_crypto_header(&mut w, offset, data.len());
    w.bytes(data);
    let rest = w.remaining();
    write_padding(&mut w, rest);
    let mut datagram = long_packet(LongType::Initial, &[9; 8], &[8; 8], &[], number, &payload);
    datagram.resize(1200, 0);
    datagram
}

#[test]
fn a_hello_that_never_ends_costs_no_session_and_is_forgotten_in_time() {
    let mut pair = pair(readable(), &["few"], two());
    // A hello of 60,000 bytes begins, and its pieces stop coming.
    let header = [1, 0, 0xea, 0x60];
    pair.deliver_silently(
        SERVER,
        "10.0.0.1:1000".parse().unwrap(),
        &initial(0, 0, &header),
    );
    let before = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((before.admitted, before.connections), (1, 1));
    for number in 1..20 {
        let piece = initial(number, 4 + (number - 1) * 1000, &[3; 1000]);
        pair.deliver(SERVER, &piece);
    }
    // Each Initial is acknowledged as it comes.
    assert!(pair.hosts[SERVER].sent_datagrams >= 10);
    let held = pair.hosts[SERVER].endpoint.stats();
    assert_eq!(held.connections, 1);
    assert!(held.memory < before.memory + 64 * 1024, "{}", held.memory);
    pair.run_for(secs(11));
    let after = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((after.connections, after.handshakes), (0, 0));
}

#[test]
fn a_hello_longer_than_tls_takes_is_refused_at_once() {
    let mut pair = pair(readable(), &["few"], two());
    let header = [1, 1, 0, 0];
    pair.deliver(SERVER, &initial(0, 0, &header));
    pair.run_for(ms(30));
    let reason = pair.close_reason(SERVER);
    assert!(
        matches!(reason, Some(ConnectionError::Tls { .. })),
        "{reason:?}"
    );
}

#[test]
fn what_is_no_hello_is_judged_by_tls() {
    let mut pair = pair(readable(), &["few"], two());
    // A Finished of two bytes.
    pair.deliver(SERVER, &initial(0, 0, &[20, 0, 0, 2, 1, 1]));
    pair.run_for(ms(30));
    let reason = pair.close_reason(SERVER);
    assert!(
        matches!(reason, Some(ConnectionError::Tls { .. })),
        "{reason:?}"
    );
}
