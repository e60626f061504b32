//! How connections begin: lost, reordered, repeated and forged handshakes.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::evil::{long_packet, payload};
use common::wire::{packets, without_padding};
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{
    Algorithm, ClientConfig, Close, ConnectError, ConnectionError, Direction, Event, RetryPolicy,
    TimeoutReason, TransportConfig, TransportErrorCode,
};
use towline_sim::LinkConfig;
use towline_testkit::{Cipher, SERVER_NAME, TlsOptions, tls_pair};
use towline_wire::{
    LongType, PacketKind, QUIC_V1, emit_retry, emit_version_negotiation, retry_pseudo_packet,
    write_crypto_header, write_padding,
};

fn post_quantum() -> Options {
    Options {
        tls: TlsOptions {
            post_quantum: true,
            ..TlsOptions::default()
        },
        ..Options::default()
    }
}

/// A pair whose handshake and a small exchange must succeed.
fn must_work(mut pair: Pair) -> Pair {
    if pair.hosts[CLIENT].handle.is_none() {
        pair.connect();
    }
    pair.established(secs(10));
    pair.transfer(CLIENT, 3000, secs(10));
    pair.transfer(SERVER, 3000, secs(10));
    pair
}

/// The time from `connect` to the client's `Connected`.
fn time_to_connect(pair: &mut Pair) -> std::time::Duration {
    let start = pair.now;
    pair.connect();
    pair.run_until(secs(10), |p| {
        p.take_event(CLIENT, |e| *e == Event::Connected).is_some()
    });
    pair.now.saturating_duration_since(start)
}

#[test]
fn any_single_datagram_of_the_handshake_may_be_lost() {
    for tls in [TlsOptions::default(), post_quantum().tls] {
        for retry in [RetryPolicy::Never, RetryPolicy::Always] {
            for (there, k) in (1..=8).flat_map(|k| [(true, k), (false, k)]) {
                let lossy = LinkConfig {
                    drop_list: vec![k],
                    ..delay(10)
                };
                let (link, back) = if there {
                    (lossy, delay(10))
                } else {
                    (delay(10), lossy)
                };
                must_work(Pair::new(Options {
                    link,
                    back: Some(back),
                    retry,
                    tls: tls.clone(),
                    ..Options::default()
                }));
            }
        }
    }
}

#[test]
fn any_two_datagrams_of_the_handshake_may_be_lost() {
    for there in 1..=5 {
        for back in 1..=5 {
            let lossy = |k| LinkConfig {
                drop_list: vec![k, k + 1],
                ..delay(10)
            };
            must_work(Pair::new(Options {
                link: lossy(there),
                back: Some(lossy(back)),
                ..post_quantum()
            }));
        }
    }
}

#[test]
fn reordered_handshakes_succeed() {
    for seed in 0..20 {
        must_work(Pair::new(Options {
            seed,
            link: LinkConfig {
                reorder: 0.5,
                reorder_delay: ms(15),
                ..delay(10)
            },
            ..post_quantum()
        }));
    }
}

#[test]
fn every_datagram_of_the_handshake_may_arrive_twice() {
    let mut pair = must_work(Pair::new(Options {
        link: LinkConfig {
            duplicate: 1.0,
            ..delay(10)
        },
        ..post_quantum()
    }));
    assert_eq!(pair.server().stats().packets_lost, 0);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
}

#[test]
fn corrupted_handshakes_succeed_by_repetition() {
    for seed in 0..10 {
        must_work(Pair::new(Options {
            seed,
            link: LinkConfig {
                corrupt: 0.2,
                truncate: 0.1,
                ..delay(10)
            },
            ..post_quantum()
        }));
    }
}

#[test]
fn a_post_quantum_hello_takes_two_datagrams_and_one_round_trip() {
    let mut pair = Pair::new(post_quantum());
    pair.connect();
    assert_eq!(pair.hosts[CLIENT].sent_datagrams, 2);
    let mut pair = Pair::new(post_quantum());
    assert_eq!(time_to_connect(&mut pair), ms(20));
}

#[test]
fn the_second_datagram_of_the_hello_may_arrive_first() {
    for retry in [RetryPolicy::Never, RetryPolicy::Always] {
        let mut pair = Pair::new(Options {
            retry,
            ..post_quantum()
        });
        // Holds back each first datagram of a pair until the second is out.
        let held: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
        let sent = Rc::new(Cell::new(0));
        let (hold, count) = (held.clone(), sent.clone());
        pair.tap = Some(Box::new(move |from, datagram| {
            if from != CLIENT {
                return true;
            }
            count.set(count.get() + 1);
            match count.get() {
                1 => {
                    *hold.borrow_mut() = Some(datagram.clone());
                    false
                }
                _ => true,
            }
        }));
        pair.connect();
        assert_eq!(sent.get(), 2);
        pair.run_for(ms(11));
        assert!(pair.hosts[SERVER].handle.is_none());
        let first = held.borrow_mut().take().unwrap();
        pair.deliver(SERVER, &first);
        pair.established(secs(5));
        assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
    }
}

#[test]
fn retry_costs_one_round_trip() {
    for tls in [TlsOptions::default(), post_quantum().tls] {
        let mut pair = Pair::new(Options {
            retry: RetryPolicy::Always,
            tls,
            ..Options::default()
        });
        assert_eq!(time_to_connect(&mut pair), ms(40));
        must_work(pair);
    }
}

/// A client that has sent its hello into the void: its first datagram and its two IDs.
fn client_of_nobody(options: Options) -> (Pair, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut pair = Pair::new(options);
    let first: Rc<RefCell<Vec<u8>>> = Rc::default();
    let copy = first.clone();
    pair.tap = Some(Box::new(move |_, datagram| {
        if copy.borrow().is_empty() {
            *copy.borrow_mut() = datagram.clone();
        }
        false
    }));
    pair.connect();
    let datagram = first.borrow().clone();
    let dcid_len = usize::from(datagram[5]);
    let dcid = datagram[6..6 + dcid_len].to_vec();
    let scid_at = 7 + dcid_len;
    let scid = datagram[scid_at..scid_at + usize::from(datagram[scid_at - 1])].to_vec();
    (pair, datagram, dcid, scid)
}

/// An authentic Retry for the client's first Initial (RFC 9001 §5.8: key and nonce are public).
fn authentic_retry(original: &[u8], client: &[u8], token: &[u8]) -> Vec<u8> {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    const KEY: [u8; 16] = [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ];
    const NONCE: [u8; 12] = [
        0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
    ];
    let mut retry = Vec::new();
    emit_retry(&mut retry, QUIC_V1, client, &[9; 8], token);
    let tag = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY).unwrap())
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(NONCE),
            Aad::from(retry_pseudo_packet(original, &retry)),
            &mut [],
        )
        .unwrap();
    retry.extend_from_slice(tag.as_ref());
    retry
}

#[test]
fn a_retry_token_that_leaves_no_room_for_the_handshake_ends_the_attempt_at_once() {
    // Less the header, the IDs, the tag, and a hundred bytes of the hello.
    let (_, _, _, own) = client_of_nobody(readable());
    let longest = 1200 - 15 - 8 - own.len() - 16 - 100;
    for len in [longest + 1, 1183, 1200, 1400, 60_000] {
        let (mut pair, _, dcid, scid) = client_of_nobody(readable());
        let retry = authentic_retry(&dcid, &scid, &vec![7; len]);
        pair.deliver(CLIENT, &retry);
        let word = Event::Closed(ConnectionError::RetryTokenTooLong(len));
        let events = &pair.hosts[CLIENT].events;
        assert!(events.contains(&word), "{len}: {events:?}");
    }
    // One that only just fits is repeated, and the hello arrives whole.
    let sent = Rc::new(RefCell::new(Vec::new()));
    let (mut pair, _, dcid, scid) = client_of_nobody(readable());
    let kept = Rc::clone(&sent);
    pair.tap = Some(Box::new(move |_, datagram| {
        kept.borrow_mut().push(datagram.len());
        false
    }));
    pair.deliver(CLIENT, &authentic_retry(&dcid, &scid, &vec![7; longest]));
    assert_eq!(pair.client().close_reason(), None);
    assert!(
        (2..=10).contains(&sent.borrow().len()),
        "{:?}",
        sent.borrow()
    );
    assert!(sent.borrow().iter().all(|len| *len == 1200));
}

#[test]
fn packets_that_waited_for_their_keys_do_not_spoil_the_round_trip() {
    let mut pair = Pair::new(Options {
        link: delay(20),
        ..readable()
    });
    // The client's second datagram, which ends its handshake, is lost, and its stream data arrives
    // before the server can read it.
    let mut sent = 0;
    pair.tap = Some(Box::new(move |from, _| {
        sent += u32::from(from == CLIENT);
        from == SERVER || sent != 2
    }));
    pair.connect();
    pair.run_until(secs(1), |pair| pair.client().is_established());
    pair.send_stream(CLIENT, Direction::Unidirectional, &[7; 3000]);
    pair.established(secs(10));
    let stats = pair.client().stats();
    assert!(stats.min_rtt >= Some(ms(40)), "{stats:?}");
    assert!(stats.smoothed_rtt <= ms(43), "{stats:?}");
}

#[test]
fn a_retry_with_a_bad_integrity_tag_is_ignored() {
    let (mut pair, _, dcid, scid) = client_of_nobody(readable());
    let retry = authentic_retry(&dcid, &scid, b"token");
    let sent = pair.hosts[CLIENT].sent_datagrams;
    for at in retry.len() - 16..retry.len() {
        let mut forged = retry.clone();
        forged[at] ^= 1;
        pair.deliver(CLIENT, &forged);
    }
    let other = authentic_retry(&[7; 16], &scid, b"token");
    pair.deliver(CLIENT, &other);
    assert_eq!(pair.hosts[CLIENT].sent_datagrams, sent);
    // The authentic one is answered at once.
    pair.deliver(CLIENT, &retry);
    assert_eq!(pair.hosts[CLIENT].sent_datagrams, sent + 1);
    assert_eq!(pair.hosts[CLIENT].last_dcid, [9; 8]);
}

#[test]
fn a_second_retry_is_ignored() {
    // Every datagram of the client arrives twice: two Retries, both authentic.
    let mut pair = Pair::new(Options {
        retry: RetryPolicy::Always,
        link: LinkConfig {
            duplicate: 1.0,
            ..delay(10)
        },
        back: Some(delay(10)),
        ..readable()
    });
    let tokens: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let copy = tokens.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT {
            let found = packets(datagram);
            let initials = found.iter().filter(|p| p.kind == PacketKind::Initial);
            copy.borrow_mut().extend(initials.map(|p| p.token.to_vec()));
        }
        true
    }));
    pair.connect();
    pair.established(secs(5));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().retries, 2);
    let tokens = tokens.borrow();
    assert!(tokens[0].is_empty() && !tokens[1].is_empty());
    assert!(tokens[1..].iter().all(|t| *t == tokens[1]));
}

#[test]
fn a_retry_after_a_packet_of_the_server_is_ignored() {
    let (mut pair, first, dcid, scid) = client_of_nobody(Options::default());
    pair.tap = None;
    pair.deliver(SERVER, &first);
    // Authentic, but the server has already spoken.
    pair.run_until(secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::Connected).is_some()
    });
    pair.deliver(CLIENT, &authentic_retry(&dcid, &scid, b"token"));
    must_work(pair);
}

/// The server's Retry and the client's answer to it, captured; nothing else was delivered.
fn answered_retry(options: Options) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(Options {
        retry: RetryPolicy::Always,
        ..options
    });
    let answer: Rc<RefCell<Vec<u8>>> = Rc::default();
    let copy = answer.clone();
    let sent = Rc::new(Cell::new(0));
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            return true;
        }
        sent.set(sent.get() + 1);
        if sent.get() == 2 {
            *copy.borrow_mut() = datagram.clone();
        }
        sent.get() == 1
    }));
    pair.connect();
    pair.run_until(secs(1), |_| !answer.borrow().is_empty());
    let datagram = answer.borrow().clone();
    (pair, datagram)
}

#[test]
fn a_fresh_retry_token_admits_the_client_that_got_it() {
    let (mut pair, answer) = answered_retry(Options::default());
    pair.deliver(SERVER, &answer);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
}

#[test]
fn an_expired_retry_token_admits_nobody() {
    let (mut pair, answer) = answered_retry(Options::default());
    pair.now += secs(11);
    pair.deliver(SERVER, &answer);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 0);
}

#[test]
fn a_retry_token_of_another_address_admits_nobody() {
    let (mut pair, answer) = answered_retry(Options::default());
    pair.deliver_from(SERVER, "10.0.0.9:1000".parse().unwrap(), &answer);
    pair.deliver_from(SERVER, "10.0.0.1:1001".parse().unwrap(), &answer);
    let stats = pair.hosts[SERVER].endpoint.stats();
    // Nor another Retry, which its client would not take.
    assert_eq!((stats.admitted, stats.retries), (0, 1));
    assert_eq!((stats.invalid_tokens, stats.refusals), (2, 2));
}

#[test]
fn a_forged_retry_token_admits_nobody() {
    // Without an AEAD the changed token would otherwise pass as part of the packet.
    let (mut pair, answer) = answered_retry(readable());
    let token = packets(&answer)[0].token.to_vec();
    let at = answer
        .windows(token.len())
        .position(|w| w == token)
        .unwrap();
    for i in 0..token.len() {
        let mut forged = answer.clone();
        forged[at + i] ^= 1;
        pair.deliver(SERVER, &forged);
    }
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 0);
    pair.deliver(SERVER, &answer);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
}

#[test]
fn version_negotiation_without_our_version_ends_the_attempt() {
    let (mut pair, _, dcid, scid) = client_of_nobody(Options::default());
    let mut vn = Vec::new();
    emit_version_negotiation(&mut vn, 0x2a, &scid, &dcid, &[0xff00_0020, 0x0a0a_0a0a]);
    pair.deliver(CLIENT, &vn);
    assert_eq!(
        pair.close_reason(CLIENT),
        Some(ConnectionError::VersionMismatch)
    );
    assert_eq!(pair.hosts[CLIENT].endpoint.stats().connections, 0);
}

#[test]
fn version_negotiation_that_lists_our_version_is_ignored() {
    let (mut pair, _, dcid, scid) = client_of_nobody(Options::default());
    let mut vn = Vec::new();
    emit_version_negotiation(&mut vn, 0x2a, &scid, &dcid, &[0xff00_0020, QUIC_V1]);
    pair.deliver(CLIENT, &vn);
    pair.tap = None;
    must_work(pair);
}

#[test]
fn version_negotiation_with_other_connection_ids_is_ignored() {
    let (mut pair, _, dcid, scid) = client_of_nobody(Options::default());
    for (to, from) in [(&scid, &vec![7; 8]), (&vec![7; 8], &dcid)] {
        let mut vn = Vec::new();
        emit_version_negotiation(&mut vn, 0x2a, to, from, &[0xff00_0020]);
        pair.deliver(CLIENT, &vn);
    }
    pair.tap = None;
    must_work(pair);
}

#[test]
fn version_negotiation_after_a_packet_of_the_server_is_ignored() {
    let (mut pair, _, dcid, scid) = client_of_nobody(Options::default());
    pair.tap = None;
    pair.established(secs(5));
    let mut vn = Vec::new();
    emit_version_negotiation(&mut vn, 0x2a, &scid, &dcid, &[0xff00_0020]);
    pair.deliver(CLIENT, &vn);
    must_work(pair);
}

/// A certificate far larger than three datagrams.
fn big_certificate() -> TlsOptions {
    let mut names = vec![SERVER_NAME.to_owned()];
    names.extend((0..150).map(|i| format!("name-number-{i:04}.of-a-big-certificate.example")));
    TlsOptions {
        names,
        ..readable().tls
    }
}

/// Fails as soon as the server has sent more than three times what it received, before the
/// client proved its address with a Handshake packet.
fn watch_amplification(pair: &mut Pair, deliver_from_client: impl Fn(u32) -> bool + 'static) {
    let (mut received, mut sent, mut datagrams, mut proven) = (0, 0, 0, false);
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == CLIENT {
            datagrams += 1;
            if !deliver_from_client(datagrams) {
                return false;
            }
            received += datagram.len();
            let found = packets(datagram);
            proven |= found.iter().any(|p| p.kind == PacketKind::Handshake);
        } else if !proven {
            sent += datagram.len();
            assert!(sent <= 3 * received, "{sent} bytes sent for {received}");
        }
        true
    }));
}

#[test]
fn a_big_certificate_waits_for_the_clients_bytes() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic] {
        let transport = TransportConfig::default().congestion(congestion);
        let mut pair = Pair::new(Options {
            tls: big_certificate(),
            server: transport,
            ..Options::default()
        });
        watch_amplification(&mut pair, |_| true);
        let took = time_to_connect(&mut pair);
        assert!(took > ms(20) && took < ms(200), "{took:?}");
        pair.tap = None;
        must_work(pair);
    }
}

#[test]
fn the_clients_probes_end_an_amplification_deadlock() {
    // Everything but the hello is lost for a while: the server may not even probe.
    let mut pair = Pair::new(Options {
        tls: big_certificate(),
        ..Options::default()
    });
    watch_amplification(&mut pair, |n| n == 1 || n > 4);
    let took = time_to_connect(&mut pair);
    assert!(took < secs(10), "{took:?}");
    pair.tap = None;
    must_work(pair);
}

#[test]
fn a_client_that_only_says_hello_gets_at_most_three_times_its_bytes() {
    let mut pair = Pair::new(Options {
        tls: big_certificate(),
        ..Options::default()
    });
    watch_amplification(&mut pair, |n| n == 1);
    pair.connect();
    pair.run_for(secs(9));
    let sent = pair.hosts[SERVER].sent_datagrams;
    assert!((1..=3).contains(&sent), "{sent} datagrams");
    pair.run_for(secs(30));
    assert_eq!(pair.hosts[SERVER].sent_datagrams, sent);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 0);
}

/// The client refuses the server in TLS with `alert`, and the server hears of it.
fn assert_client_refuses(mut pair: Pair, alert: u8) {
    pair.connect();
    let code = TransportErrorCode::crypto(alert);
    match pair.run_until_closed(CLIENT, secs(5)) {
        ConnectionError::Tls { code: c, .. } => assert_eq!(c, code),
        other => panic!("{other:?}"),
    }
    pair.run_for(secs(5));
    // The server's connection was never accepted, but it is told why and goes at once.
    assert!(matches!(
        pair.close_reason(SERVER),
        Some(ConnectionError::ClosedByPeer(Close::Transport { code: c, .. })) if c == code
    ));
    for host in &pair.hosts {
        assert_eq!(host.endpoint.stats().connections, 0);
    }
}

#[test]
fn without_a_common_protocol_the_server_says_no_application_protocol() {
    let options = Options::default();
    let mut tls = tls_pair(options.seed, &options.tls);
    let mut client = (*tls.client).clone();
    client.alpn_protocols = vec![b"something-else".to_vec()];
    tls.client = Arc::new(client);
    let mut pair = Pair::with_tls(options, tls);
    pair.connect();
    let code = TransportErrorCode::crypto(120);
    match pair.run_until_closed(CLIENT, secs(5)) {
        ConnectionError::ClosedByPeer(Close::Transport { code: c, .. }) => assert_eq!(c, code),
        other => panic!("{other:?}"),
    }
    match pair.close_reason(SERVER) {
        Some(ConnectionError::Tls { code: c, .. }) => assert_eq!(c, code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused() {
    let options = Options::default();
    let mut tls = tls_pair(options.seed, &options.tls);
    // An authority of the same name with another key: decrypt_error (51).
    tls.client = tls_pair(77, &options.tls).client;
    assert_client_refuses(Pair::with_tls(options, tls), 51);

    // No authority at all: unknown_ca (48).
    let options = Options::default();
    let mut tls = tls_pair(options.seed, &options.tls);
    let base = tls.client.clone();
    let mut client = rustls::ClientConfig::builder_with_details(
        base.crypto_provider().clone(),
        base.time_provider.clone(),
    )
    .with_protocol_versions(&[&rustls::version::TLS13])
    .unwrap()
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth();
    client.alpn_protocols = base.alpn_protocols.clone();
    tls.client = Arc::new(client);
    assert_client_refuses(Pair::with_tls(options, tls), 48);
}

#[test]
fn a_wrong_certificate_pin_is_refused() {
    use towline_identity::{CertificatePin, Pin, TlsSettings, Trust};
    let options = Options::default();
    let mut tls = tls_pair(options.seed, &options.tls);
    let other = tls_pair(78, &options.tls).certificate;
    let pin = |der: &[u8]| Trust::Pinned(vec![Pin::Certificate(CertificatePin::of(der))]);
    let with = |trust: &Trust, base: &rustls::ClientConfig| {
        let clock = base.time_provider.clone();
        let mut settings = TlsSettings::new(base.crypto_provider().clone(), clock);
        settings.alpn = base.alpn_protocols.clone();
        Arc::new(towline_identity::client_config(trust, None, &settings).unwrap())
    };
    let right = with(&pin(&tls.certificate), &tls.client);
    let wrong = with(&pin(&other), &tls.client);
    tls.client = right;
    must_work(Pair::with_tls(Options::default(), tls.clone()));
    tls.client = wrong;
    // certificate_unknown (46).
    assert_client_refuses(Pair::with_tls(options, tls), 46);
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let options = Options {
        tls: TlsOptions {
            names: vec!["other.test".into()],
            ..TlsOptions::default()
        },
        ..Options::default()
    };
    // bad_certificate (42).
    assert_client_refuses(Pair::new(options), 42);
}

#[test]
fn an_expired_certificate_is_refused() {
    let pair = Pair::new(Options::default());
    // 2050: a year after the last.
    pair.clock.set(2_524_608_000 + 1);
    // certificate_expired (45).
    assert_client_refuses(pair, 45);
}

#[test]
fn unusable_names_and_addresses_are_refused_before_anything_is_sent() {
    let mut pair = Pair::new(Options::default());
    let (now, config) = (pair.now, pair.client_config.clone());
    let remote = pair.hosts[SERVER].address;
    let endpoint = &mut pair.hosts[CLIENT].endpoint;
    assert_eq!(
        endpoint.connect(now, &config, remote, "not a name!"),
        Err(ConnectError::InvalidServerName("not a name!".into()))
    );
    for address in ["0.0.0.0:1", "10.0.0.1:0", "[::]:9"] {
        let address = address.parse().unwrap();
        assert_eq!(
            endpoint.connect(now, &config, address, SERVER_NAME),
            Err(ConnectError::InvalidRemote(address))
        );
    }
    pair.flush();
    assert_eq!(pair.hosts[CLIENT].sent_datagrams, 0);
    assert_eq!(pair.hosts[CLIENT].endpoint.stats().connections, 0);
}

/// Connects once more over the same endpoints and TLS configurations.
fn reconnect(pair: &mut Pair) {
    for host in &mut pair.hosts {
        host.handle = None;
        host.events.clear();
    }
    pair.connect();
    pair.established(secs(5));
}

#[test]
fn a_second_connection_resumes_the_session() {
    let mut pair = Pair::connected(Options::default());
    pair.run_for(secs(1));
    assert!(!pair.client().is_resumed() && !pair.server().is_resumed());
    reconnect(&mut pair);
    assert!(pair.client().is_resumed() && pair.server().is_resumed());
    must_work(pair);
}

#[test]
fn a_server_that_lost_its_sessions_does_a_full_handshake() {
    let mut pair = Pair::connected(Options::default());
    pair.run_for(secs(1));
    let mut server = pair.server_config.clone();
    let mut tls = (*server.tls).clone();
    tls.session_storage = rustls::server::ServerSessionMemoryCache::new(16);
    server.tls = Arc::new(tls);
    pair.hosts[SERVER].endpoint =
        towline_quic::Endpoint::new(common::seed(1, 2), Some(Arc::new(server)));
    reconnect(&mut pair);
    assert!(!pair.client().is_resumed());
    must_work(pair);
}

#[test]
fn a_hello_retry_request_costs_one_round_trip() {
    let mut pair = Pair::new(Options {
        tls: TlsOptions {
            hello_retry: true,
            ..TlsOptions::default()
        },
        ..Options::default()
    });
    assert_eq!(time_to_connect(&mut pair), ms(40));
    must_work(pair);
}

#[test]
fn hello_retry_request_behind_retry_survives_loss() {
    for k in 1..=6 {
        must_work(Pair::new(Options {
            retry: RetryPolicy::Always,
            link: LinkConfig {
                drop_list: vec![k],
                ..delay(10)
            },
            tls: TlsOptions {
                hello_retry: true,
                ..TlsOptions::default()
            },
            ..Options::default()
        }));
    }
}

#[test]
fn flights_are_coalesced_into_few_full_sized_datagrams() {
    let mut pair = Pair::new(readable());
    let log = Rc::new(RefCell::new(Vec::new()));
    let copy = log.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        let kinds: Vec<PacketKind> = packets(datagram).iter().map(|p| p.kind).collect();
        copy.borrow_mut().push((from, datagram.len(), kinds));
        true
    }));
    pair.connect();
    pair.established(secs(1));
    let log = log.borrow();
    assert_eq!(log[0], (CLIENT, 1200, vec![PacketKind::Initial]));
    let (side, len, kinds) = &log[1];
    assert_eq!((*side, *len), (SERVER, 1200));
    assert_eq!(kinds[..2], [PacketKind::Initial, PacketKind::Handshake]);
    // Every datagram with an ack-eliciting Initial is full-sized (RFC 9000 §14.1).
    for (_, len, kinds) in log.iter() {
        assert!(!kinds.contains(&PacketKind::Initial) || *len >= 1200);
    }
}

#[test]
fn a_client_initial_shorter_than_1200_bytes_is_dropped() {
    let (mut pair, datagram, dcid, scid) = client_of_nobody(readable());
    let hello = without_padding(packets(&datagram)[0].payload);
    let short = long_packet(LongType::Initial, &dcid, &scid, b"", 0, hello);
    assert!(short.len() < 1200);
    pair.deliver(SERVER, &short);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 0);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().unroutable, 1);
    assert_eq!(pair.hosts[SERVER].sent_datagrams, 0);
    pair.deliver(SERVER, &datagram);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
}

#[test]
fn a_client_initial_with_a_destination_shorter_than_8_bytes_is_dropped() {
    let (mut pair, datagram, _, scid) = client_of_nobody(readable());
    let hello = packets(&datagram)[0].payload.to_vec();
    for len in 0..=8 {
        let initial = long_packet(LongType::Initial, &vec![3; len], &scid, b"", 0, &hello);
        // The padding of the hello makes up for the shorter ID.
        let mut initial = initial;
        initial.resize(1250, 0);
        pair.deliver(SERVER, &initial);
        let admitted = pair.hosts[SERVER].endpoint.stats().admitted;
        assert_eq!(admitted, u64::from(len == 8), "{len}");
    }
}

#[test]
fn a_silent_server_ends_in_a_handshake_timeout() {
    let mut pair = Pair::new(Options::default());
    pair.tap = Some(Box::new(|_, _| false));
    let start = pair.now;
    pair.connect();
    let word = pair.run_until_closed(CLIENT, secs(60));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Handshake));
    assert_eq!(pair.now.saturating_duration_since(start), secs(10));
    // Probes back off: after 0.3, 0.9, 2.1, 4.5 and 9.3 s, one datagram and then two each.
    let sent = pair.hosts[CLIENT].sent_datagrams;
    assert!((6..=10).contains(&sent), "{sent} datagrams in ten seconds");
    assert_eq!(pair.hosts[CLIENT].endpoint.stats().connections, 0);
}

/// What a client sends on a path of this round trip: datagrams before each of the server's first
/// answers (a Retry among them), and all until its handshake is confirmed.
fn client_datagrams(rtt: u64, tls: &TlsOptions, retry: RetryPolicy) -> (u64, u64) {
    let mut pair = Pair::new(Options {
        link: delay(rtt / 2),
        tls: tls.clone(),
        retry,
        ..Options::default()
    });
    pair.connect();
    let mut unanswered = 0;
    pair.run_until(secs(30), |pair| {
        if pair.client().stats().packets_received == 0 {
            unanswered = pair.hosts[CLIENT].sent_datagrams;
        }
        pair.client().is_confirmed()
    });
    (unanswered, pair.hosts[CLIENT].sent_datagrams)
}

#[test]
fn a_round_trip_of_a_second_and_a_half_costs_a_client_three_probes_at_most() {
    for post_quantum in [false, true] {
        for retry in [RetryPolicy::Never, RetryPolicy::Always] {
            let tls = TlsOptions {
                post_quantum,
                ..TlsOptions::default()
            };
            let usual = client_datagrams(50, &tls, retry);
            let slow = client_datagrams(1500, &tls, retry);
            let what = format!("post-quantum {post_quantum}, {retry:?}: {slow:?} for {usual:?}");
            let probes = slow.0 - usual.0;
            assert!((1..=3).contains(&probes), "{what}");
            // Acknowledgements of what the server sent twice, for the same reason.
            assert!(slow.1 - usual.1 <= probes + 2, "{what}");
        }
    }
}

#[test]
fn an_initial_round_trip_that_makes_no_sense_is_refused() {
    for (initial_rtt, is_possible) in [
        (ms(0), false),
        (Duration::from_micros(999), false),
        (ms(1), true),
        (secs(10), true),
        (secs(10) + ms(1), false),
        (Duration::MAX, false),
    ] {
        let mut options = Options::default();
        options.client.initial_rtt = initial_rtt;
        // A server that was given it all the same works.
        options.server.initial_rtt = initial_rtt;
        let mut pair = Pair::new(options);
        let (config, remote) = (pair.client_config.clone(), pair.hosts[SERVER].address);
        let now = pair.now;
        let client = &mut pair.hosts[CLIENT].endpoint;
        let result = client.connect(now, &config, remote, towline_testkit::SERVER_NAME);
        assert_eq!(result.is_ok(), is_possible, "{initial_rtt:?}");
        if let Err(error) = result {
            let text = error.to_string();
            assert!(text.contains("`initial_rtt`"), "{text}");
            assert!(text.contains("1ms to 10s"), "{text}");
            pair.client_config.transport = Arc::default();
            pair.connect();
            pair.established(secs(10));
        }
    }
}

/// Connects over a path of this round trip, closes, and tells when a second connection sends its
/// first Initial again if nothing is answered.
fn repeat_of_the_second(rtt: u64, during: impl Fn(&mut Pair)) -> Duration {
    let mut pair = Pair::connected(Options {
        link: delay(rtt / 2),
        ..Options::default()
    });
    during(&mut pair);
    let now = pair.now;
    pair.client().close(now, 0, b"");
    pair.run_for(secs(60));
    pair.tap = Some(Box::new(|_, _| false));
    let start = pair.now;
    pair.connect();
    let sent = pair.hosts[CLIENT].sent_datagrams;
    pair.run_until(secs(10), |pair| pair.hosts[CLIENT].sent_datagrams > sent);
    pair.now.saturating_duration_since(start)
}

#[test]
fn the_round_trip_to_a_server_is_remembered_for_the_next_connection() {
    let near = |a: Duration, b: Duration| a.abs_diff(b) < b / 10;
    let repeat = repeat_of_the_second(80, |_| {});
    assert!(near(repeat, ms(240)), "{repeat:?}");
    let repeat = repeat_of_the_second(600, |_| {});
    assert!(near(repeat, ms(1800)), "{repeat:?}");
    // Neither the round trip of a loopback nor one of minutes is believed.
    assert_eq!(repeat_of_the_second(2, |_| {}), ms(150));
    assert_eq!(repeat_of_the_second(3000, |_| {}), secs(3));
}

#[test]
fn a_queue_of_the_last_connection_is_not_remembered() {
    let repeat = repeat_of_the_second(80, |pair| {
        let slow = LinkConfig {
            rate: Some(1_000_000),
            queue: Some(100_000),
            ..delay(40)
        };
        let (there, _) = pair.links;
        pair.net.set_config(there, slow).unwrap();
        pair.transfer(CLIENT, 300_000, secs(60));
        let rtt = pair.client().stats().smoothed_rtt;
        assert!(rtt > ms(200), "{rtt:?}: there was no queue");
    });
    assert!(repeat <= ms(480), "{repeat:?}");
}

#[test]
fn a_connection_that_never_stood_leaves_nothing_to_remember() {
    let mut pair = Pair::new(Options::default());
    pair.tap = Some(Box::new(|_, _| false));
    for _ in 0..2 {
        let start = pair.now;
        pair.connect();
        let sent = pair.hosts[CLIENT].sent_datagrams;
        pair.run_until(secs(10), |pair| pair.hosts[CLIENT].sent_datagrams > sent);
        assert_eq!(pair.now.saturating_duration_since(start), ms(300));
        pair.run_for(secs(60));
    }
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind_after_the_handshake_timeout() {
    let mut pair = Pair::new(Options::default());
    pair.connect();
    pair.hosts[CLIENT].hijacked = true;
    pair.run_for(ms(100));
    assert_eq!(pair.hosts[SERVER].endpoint.stats().handshakes, 1);
    let word = pair.run_until_closed(SERVER, secs(11));
    assert_eq!(word, ConnectionError::TimedOut(TimeoutReason::Handshake));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.handshakes, stats.connections), (0, 0));
    assert_eq!(pair.hosts[SERVER].endpoint.next_timeout(), None);
}

#[test]
fn packets_that_overtake_their_keys_are_kept_up_to_ten() {
    // The client's Finished is late; fifteen 1-RTT datagrams arrive before it.
    let mut pair = Pair::new(readable());
    let late: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let copy = late.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        let finished = from == CLIENT
            && packets(datagram)
                .iter()
                .any(|p| p.kind == PacketKind::Handshake);
        if finished {
            copy.borrow_mut().push(datagram.clone());
        }
        !finished
    }));
    pair.connect();
    pair.run_until(secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::Connected).is_some()
    });
    pair.client().ping();
    pair.flush();
    for i in 0..15u8 {
        let room = pair.client().max_datagram_len().unwrap();
        let data = Bytes::from(vec![i; room]);
        pair.client().send_datagram(data).unwrap();
        pair.flush();
    }
    pair.run_for(ms(15));
    let finished = late.borrow().first().cloned().unwrap();
    pair.deliver(SERVER, &finished);
    pair.run_for(ms(1));
    let mut got = Vec::new();
    while let Some(d) = pair.server().recv_datagram() {
        got.push(d[0]);
    }
    // Pings and datagrams together: ten packets, the oldest.
    assert!((8..=10).contains(&got.len()), "{got:?}");
    assert!(got.windows(2).all(|w| w[0] + 1 == w[1]));
}

#[test]
fn every_cipher_carries_data() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20] {
        let mut pair = Pair::connected(Options {
            tls: TlsOptions {
                cipher,
                ..TlsOptions::default()
            },
            ..Options::default()
        });
        pair.transfer(CLIENT, 200_000, secs(5));
        assert_eq!(pair.client().cipher_suite(), pair.server().cipher_suite());
    }
}

#[test]
fn both_ends_agree_on_protocol_name_group_and_keying_material() {
    let mut pair = Pair::connected(post_quantum());
    let export = |p: &mut Pair, side| {
        let mut out = [0; 32];
        p.conn(side)
            .export_keying_material(&mut out, b"label", Some(b"context"))
            .unwrap();
        out
    };
    assert_eq!(export(&mut pair, CLIENT), export(&mut pair, SERVER));
    assert_eq!(pair.client().alpn(), Some(&b"towline-test"[..]));
    assert_eq!(pair.server().alpn(), Some(&b"towline-test"[..]));
    assert_eq!(pair.server().server_name(), Some(SERVER_NAME));
    assert_eq!(
        pair.client().key_exchange(),
        Some(rustls::NamedGroup::X25519MLKEM768)
    );
    assert!(pair.client().peer_identity().is_some());
    assert!(pair.server().peer_identity().is_none());
}

#[test]
fn two_clients_of_one_endpoint_are_kept_apart() {
    let mut pair = Pair::connected(Options::default());
    let first = pair.hosts[CLIENT].handle;
    let first_server = pair.hosts[SERVER].handle;
    reconnect(&mut pair);
    assert_ne!(pair.hosts[CLIENT].handle, first);
    let id = pair.send_stream(CLIENT, Direction::Unidirectional, b"second");
    let got = pair.accept(SERVER, Direction::Unidirectional, secs(1));
    assert_eq!(got, id);
    pair.hosts[SERVER].handle = first_server;
    assert_eq!(pair.server().accept(Direction::Unidirectional), None);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().connections, 2);
}

/// Delivers the client's hello after `change` has seen its bytes; why the server's connection ended.
fn server_judges_hello(change: impl FnOnce(&mut Vec<u8>, &[u8])) -> Option<ConnectionError> {
    let (mut pair, mut datagram, _, scid) = client_of_nobody(readable());
    change(&mut datagram, &scid);
    pair.deliver(SERVER, &datagram);
    pair.close_reason(SERVER)
}

#[test]
fn bad_transport_parameters_are_a_transport_parameter_error() {
    // initial_source_connection_id: id 0x0f, length 8, the ID.
    let parameter = |scid: &[u8]| [&[0x0f, 8], scid].concat();
    let find = |datagram: &[u8], needle: &[u8]| {
        datagram
            .windows(needle.len())
            .position(|w| w == needle)
            .expect("the parameter is in the hello")
    };
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 4] = [
        ("another source ID", |p| p[5] ^= 1),
        ("original_destination_connection_id from a client", |p| {
            p[0] = 0x00;
        }),
        ("retry_source_connection_id from a client", |p| p[0] = 0x10),
        ("an unknown parameter instead", |p| p[0] = 0x3f),
    ];
    for (what, change) in changes {
        let word = server_judges_hello(|datagram, scid| {
            let needle = parameter(scid);
            let at = find(datagram, &needle);
            change(&mut datagram[at..at + needle.len()]);
        });
        match word {
            Some(ConnectionError::PeerMisbehaved { code, .. }) => assert_eq!(
                code,
                TransportErrorCode::TRANSPORT_PARAMETER_ERROR,
                "{what}"
            ),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn garbage_in_the_hello_is_a_tls_alert_to_the_peer() {
    let word = server_judges_hello(|datagram, _| {
        let at = packets(datagram)[0].payload_at;
        // The handshake type behind the CRYPTO header: nobody begins with Finished.
        let crypto_header = payload(|w| write_crypto_header(w, 0, 300)).len();
        datagram[at + crypto_header] = 20;
    });
    // unexpected_message (10).
    assert!(
        matches!(&word, Some(ConnectionError::Tls { code, .. })
            if *code == TransportErrorCode::crypto(10)),
        "{word:?}"
    );
}

#[test]
fn coalesced_garbage_behind_an_initial_is_skipped() {
    let (mut pair, datagram, dcid, scid) = client_of_nobody(readable());
    let hello = without_padding(packets(&datagram)[0].payload).to_vec();
    for tail in [
        vec![0u8; 700],
        vec![0xff; 700],
        vec![0xc0; 700],
        vec![0x40; 700],
    ] {
        let mut mixed = long_packet(LongType::Initial, &dcid, &scid, b"", 0, &hello);
        mixed.extend_from_slice(&tail);
        mixed.resize(mixed.len().max(1200), 0);
        pair.deliver(SERVER, &mixed);
    }
    assert_eq!(pair.hosts[SERVER].endpoint.stats().admitted, 1);
    pair.tap = None;
    must_work(pair);
}

#[test]
fn a_coalesced_packet_for_another_connection_id_is_ignored() {
    let (mut pair, datagram, dcid, scid) = client_of_nobody(readable());
    let hello = without_padding(packets(&datagram)[0].payload).to_vec();
    // HANDSHAKE_DONE would be a violation if the second packet counted.
    let bad = payload(|w| {
        towline_wire::write_handshake_done(w);
        write_padding(w, 600);
    });
    let mut mixed = long_packet(LongType::Initial, &dcid, &scid, b"", 0, &hello);
    mixed.extend(long_packet(
        LongType::Initial,
        &[5; 16],
        &scid,
        b"",
        1,
        &bad,
    ));
    mixed.resize(mixed.len().max(1200), 0);
    pair.deliver(SERVER, &mixed);
    assert_eq!(pair.close_reason(SERVER), None);
    let mut same = long_packet(LongType::Initial, &dcid, &scid, b"", 2, &hello);
    same.extend(long_packet(LongType::Initial, &dcid, &scid, b"", 3, &bad));
    same.resize(same.len().max(1200), 0);
    pair.deliver(SERVER, &same);
    assert!(matches!(
        pair.close_reason(SERVER),
        Some(ConnectionError::PeerMisbehaved { code, .. })
            if code == TransportErrorCode::PROTOCOL_VIOLATION
    ));
}

#[test]
fn a_handshake_over_750_ms_of_delay_succeeds() {
    must_work(Pair::new(Options {
        link: delay(750),
        ..post_quantum()
    }));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let mut pair = Pair::new(Options {
            seed,
            link: LinkConfig {
                loss: towline_sim::LossModel::Bernoulli(0.1),
                ..delay(10)
            },
            ..post_quantum()
        });
        let log: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let copy = log.clone();
        pair.tap = Some(Box::new(move |_, d| {
            copy.borrow_mut().push(d.clone());
            true
        }));
        pair.connect();
        pair.established(secs(10));
        pair.transfer(CLIENT, 50_000, secs(20));
        (pair.now, log.take())
    };
    assert!(run(5) == run(5));
    assert!(run(5) != run(6));
}

#[test]
fn a_client_configuration_is_reusable_for_many_connections() {
    let mut pair = Pair::connected(Options::default());
    let config = ClientConfig::new(pair.client_config.tls.clone());
    let (now, remote) = (pair.now, pair.hosts[SERVER].address);
    for _ in 0..50 {
        pair.hosts[CLIENT]
            .endpoint
            .connect(now, &config, remote, SERVER_NAME)
            .unwrap();
    }
    pair.run_for(secs(1));
    let stats = pair.hosts[SERVER].endpoint.stats();
    assert_eq!((stats.connections, stats.handshakes), (51, 0));
}
