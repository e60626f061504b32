//! Connections that have gone quiet: what they gave back must not be missed.

mod common;

use std::collections::BTreeSet;

use common::evil::Evil;
use common::{CLIENT, Options, Pair, SERVER, ms, readable, secs};
use towline_quic::{ConnectionError, Timer, TransportConfig, TransportErrorCode};
use towline_testkit::{Cipher, SERVER_NAME, TlsOptions};
use towline_wire::write_crypto_header;

fn lasting() -> Options {
    let transport = TransportConfig::default().max_idle_timeout(secs(7200));
    Options {
        client: transport.clone(),
        server: transport,
        ..Options::default()
    }
}

fn export(pair: &mut Pair, side: usize, label: &[u8], context: Option<&[u8]>) -> [u8; 77] {
    let mut out = [0; 77];
    pair.conn(side)
        .export_keying_material(&mut out, label, context)
        .unwrap();
    out
}

#[test]
fn keying_material_is_the_same_before_and_after_tls_is_dropped() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20] {
        let mut pair = Pair::connected(Options {
            tls: TlsOptions {
                cipher,
                ..TlsOptions::default()
            },
            ..lasting()
        });
        // The client still has its TLS session, the server has none any more.
        let cases = [(&b"a"[..], None), (b"longer label", Some(&b"context"[..]))];
        let before = cases.map(|(label, context)| export(&mut pair, CLIENT, label, context));
        assert_ne!(before[0], before[1]);
        pair.run_for(secs(60));
        for side in [CLIENT, SERVER] {
            let after = cases.map(|(label, context)| export(&mut pair, side, label, context));
            assert_eq!(after, before, "{cipher:?}, side {side}");
        }
    }
}

#[test]
fn keying_material_of_impossible_sizes_is_refused() {
    let mut pair = Pair::connected(lasting());
    pair.run_for(secs(60));
    for side in [CLIENT, SERVER] {
        let mut export = |len: usize, label: &[u8]| {
            let mut out = vec![0; len];
            pair.conn(side)
                .export_keying_material(&mut out, label, None)
                .is_ok()
        };
        assert!(export(1, b"label"));
        assert!(!export(0, b"label"));
        assert!(!export(255 * 32 + 1, b"label"));
        assert!(!export(1 << 17, b"label"));
        assert!(!export(32, &[b'x'; 250]));
    }
}

#[test]
fn a_quiet_connection_still_knows_whom_it_speaks_to_and_carries_data() {
    let mut pair = Pair::connected(lasting());
    let identity = pair.client().peer_identity();
    pair.run_for(secs(60));
    assert!(identity.is_some());
    assert_eq!(pair.client().peer_identity(), identity);
    for side in [CLIENT, SERVER] {
        assert_eq!(pair.conn(side).alpn(), Some(&b"towline-test"[..]));
        assert!(pair.conn(side).cipher_suite().is_some());
        assert_eq!(
            pair.conn(side).key_exchange(),
            Some(rustls::NamedGroup::X25519)
        );
        assert!(!pair.conn(side).is_resumed());
    }
    assert_eq!(pair.server().server_name(), Some(SERVER_NAME));
    for _ in 0..3 {
        pair.transfer(CLIENT, 300_000, secs(10));
        pair.transfer(SERVER, 300_000, secs(10));
        pair.run_for(secs(1));
        assert!(pair.client().initiate_key_update());
        pair.run_for(secs(60));
    }
    assert_eq!(pair.server().stats().packets_lost, 0);
}

#[test]
fn a_quiet_client_skips_a_late_ticket_but_no_key_update_message() {
    let mut pair = Pair::connected(Options {
        tls: readable().tls,
        ..lasting()
    });
    // What the server's own tickets took of the CRYPTO stream.
    pair.run_for(secs(60));
    let mut evil = Evil::take_over(pair, CLIENT);
    let mut offset = ticket_bytes();
    let mut send = |evil: &mut Evil, data: &[u8]| {
        evil.send(|w| {
            write_crypto_header(w, offset, data.len());
            w.bytes(data);
        });
        offset += data.len() as u64;
    };
    // One ticket in two pieces; TLS would refuse its contents.
    send(&mut evil, &[4, 0, 0, 9, 1, 2, 3]);
    send(&mut evil, &[4, 5, 6, 7, 8, 9]);
    evil.assert_open();
    send(&mut evil, &[24, 0, 0, 1, 0]);
    match evil.pair.close_reason(CLIENT) {
        Some(ConnectionError::Tls { code, .. }) => {
            assert_eq!(code, TransportErrorCode::crypto(10));
        }
        other => panic!("{other:?}"),
    }
}

/// CRYPTO bytes a server of `lasting` sends in 1-RTT packets.
fn ticket_bytes() -> u64 {
    use common::wire::for_each_frame;
    use towline_wire::{Frame, PacketKind};
    let end = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = end.clone();
    let mut pair = Pair::new(Options {
        tls: readable().tls,
        ..lasting()
    });
    pair.tap = Some(Box::new(move |from, datagram| {
        if from == SERVER {
            for_each_frame(datagram, |kind, frame| {
                if let (PacketKind::OneRtt, Frame::Crypto { offset, data }) = (kind, frame) {
                    seen.set(seen.get().max(offset + data.len() as u64));
                }
            });
        }
        true
    }));
    pair.connect();
    pair.established(secs(1));
    pair.run_for(ms(500));
    assert!(end.get() > 0);
    end.get()
}

#[test]
fn a_keep_alive_interval_of_zero_is_none() {
    let mut options = Options::default();
    options.client.keep_alive_interval = Some(secs(0));
    let mut pair = Pair::connected(options);
    pair.run_for(secs(1));
}

#[test]
fn a_handshake_is_not_woken_by_its_keep_alive() {
    let mut pair = Pair::new(Options {
        server: TransportConfig::default().keep_alive_interval(Some(ms(100))),
        ..Options::default()
    });
    // Only the client's first datagram arrives: the server stays in its handshake.
    let mut passed = 0;
    pair.tap = Some(Box::new(move |sender, _| {
        passed += usize::from(sender == CLIENT);
        sender == SERVER || passed <= 1
    }));
    pair.connect();
    let mut deadlines = BTreeSet::new();
    let end = pair.now + secs(5);
    while pair.now < end && pair.step() {
        let server = &pair.hosts[SERVER].endpoint;
        let connections = server.handles().filter_map(|h| server.connection(h));
        let timers = connections.filter_map(|c| c.next_timeout());
        deadlines.extend(timers.filter(|(_, timer)| *timer == Timer::KeepAlive));
    }
    assert!(deadlines.len() <= 1, "{deadlines:?}");
}
