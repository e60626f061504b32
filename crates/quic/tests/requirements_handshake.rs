//! What RFC 9000 and RFC 9001 ask of the packets of a handshake and no other file shows.
//!
//! `docs/requirements/` names the requirement behind each test.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::evil::{Evil, long_packet, payload};
use common::wire::{CID_LEN, for_each_frame, packets, without_padding};
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{Close, ConnectionError, Event, RetryPolicy, TransportErrorCode};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::*;

/// Datagrams in the order they were sent, with their senders.
type Log = Rc<RefCell<Vec<(usize, Vec<u8>)>>>;

/// Logs every datagram from now on; `pass` says which go on their way.
fn log(pair: &mut Pair, pass: impl Fn(usize) -> bool + 'static) -> Log {
    let log: Log = Rc::default();
    let copy = log.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        copy.borrow_mut().push((from, datagram.clone()));
        pass(from)
    }));
    log
}

/// Those of one side.
fn sent_by(log: &Log, side: usize) -> Vec<Vec<u8>> {
    let log = log.borrow();
    let own = log.iter().filter(|(from, _)| *from == side);
    own.map(|(_, datagram)| datagram.clone()).collect()
}

/// The IDs of a long header, destination first.
fn ids(datagram: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match parse_header(datagram, CID_LEN) {
        Ok(Header::Long { dcid, scid, .. }) => (dcid.to_vec(), scid.to_vec()),
        other => panic!("no long header: {other:?}"),
    }
}

/// A client whose datagrams go nowhere: what it sends, its destination and its source ID.
fn client_of_nobody() -> (Pair, Log, Vec<u8>, Vec<u8>) {
    let mut pair = Pair::new(readable());
    let log = log(&mut pair, |_| false);
    pair.connect();
    let (dcid, scid) = ids(&sent_by(&log, CLIENT)[0]);
    (pair, log, dcid, scid)
}

/// An authentic Retry (RFC 9001 §5.8: key and nonce are public) from the server ID `server`.
fn retry(first: u8, original: &[u8], client: &[u8], server: &[u8], token: &[u8]) -> Vec<u8> {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    const KEY: [u8; 16] = [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ];
    const NONCE: [u8; 12] = [
        0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
    ];
    let mut retry = Vec::new();
    emit_retry(&mut retry, QUIC_V1, client, server, token);
    retry[0] = first;
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

/// An Initial that fills a datagram of 1,200 bytes.
fn full_initial(dcid: &[u8], scid: &[u8], number: u64, frames: &[u8]) -> Vec<u8> {
    let empty = long_packet(LongType::Initial, dcid, scid, b"", number, b"").len();
    let mut padded = frames.to_vec();
    padded.resize(1200 - empty, 0);
    long_packet(LongType::Initial, dcid, scid, b"", number, &padded)
}

fn is_violation(word: &Option<ConnectionError>) -> bool {
    matches!(word, Some(ConnectionError::PeerMisbehaved { code, .. })
        if *code == TransportErrorCode::PROTOCOL_VIOLATION)
}

/// Handshakes over bad links, with and without Retry; `check` sees every datagram.
fn bad_handshakes(mut check: impl FnMut(usize, &[u8])) {
    for seed in 0..24 {
        let mut pair = Pair::new(Options {
            seed,
            link: LinkConfig {
                loss: LossModel::Bernoulli(0.25),
                duplicate: 0.1,
                reorder: 0.1,
                ..delay(10)
            },
            retry: match seed % 2 {
                0 => RetryPolicy::Never,
                _ => RetryPolicy::Always,
            },
            ..readable()
        });
        let log = log(&mut pair, |_| true);
        pair.connect();
        pair.established(secs(10));
        for (from, datagram) in log.borrow().iter() {
            check(*from, datagram);
        }
    }
}

// ---- connection IDs ----

#[test]
fn a_client_keeps_its_random_destination_until_the_server_speaks() {
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for seed in 1..4 {
        let mut pair = Pair::new(Options { seed, ..readable() });
        let log = log(&mut pair, |_| false);
        pair.connect();
        pair.run_for(secs(5));
        let sent = sent_by(&log, CLIENT);
        assert!(sent.len() >= 4, "the client probes");
        let (first, _) = ids(&sent[0]);
        assert!(first.len() >= 8);
        assert!(sent.iter().all(|datagram| ids(datagram).0 == first));
        assert!(!seen.contains(&first), "it is drawn anew");
        seen.push(first);
    }
}

#[test]
fn packets_with_another_source_id_are_dropped() {
    let (mut pair, log, _, scid) = client_of_nobody();
    let close = payload(|w| {
        let code = TransportErrorCode::INTERNAL_ERROR;
        write_connection_close(w, &CloseFrame::transport(code, 0, b""));
    });
    let ping = payload(write_ping);
    // The first Initial names the server; all that follow must come from the same.
    pair.deliver(CLIENT, &full_initial(&scid, &[5; 8], 0, &ping));
    pair.deliver(CLIENT, &full_initial(&scid, &[6; 8], 1, &close));
    pair.deliver(CLIENT, &full_initial(&scid, &[6; 8], 2, &ping));
    pair.run_for(secs(3));
    assert_eq!(pair.close_reason(CLIENT), None);
    let sent = sent_by(&log, CLIENT);
    assert!(sent.len() > 2);
    assert!(sent[1..].iter().all(|datagram| ids(datagram).0 == [5; 8]));
    pair.deliver(CLIENT, &full_initial(&scid, &[5; 8], 3, &close));
    assert!(matches!(
        pair.close_reason(CLIENT),
        Some(ConnectionError::ClosedByPeer(Close::Transport { .. }))
    ));
}

#[test]
fn coalesced_packets_share_their_connection_ids() {
    let mut coalesced = 0;
    bad_handshakes(|_, datagram| {
        let (mut at, mut headers) = (0, Vec::new());
        while at < datagram.len() {
            let (dcid, scid, end) = match parse_header(&datagram[at..], CID_LEN) {
                Ok(Header::Long {
                    dcid, scid, end, ..
                }) => (dcid, Some(scid), end),
                Ok(Header::Short { dcid, end, .. }) => (dcid, None, end),
                Ok(Header::Retry { .. }) => return,
                other => panic!("{other:?}"),
            };
            headers.push((dcid, scid));
            at += end;
        }
        let (dcid, scid) = headers[0];
        assert!(
            headers
                .iter()
                .all(|(d, s)| *d == dcid && (s.is_none() || *s == scid))
        );
        coalesced += usize::from(headers.len() > 1);
    });
    assert!(coalesced > 50, "{coalesced}");
}

#[test]
fn a_server_that_does_not_confirm_the_ids_is_refused() {
    /// Replaces one ID by another of the same length wherever it stands in a header.
    fn replace(datagram: &mut [u8], from: &[u8], to: &[u8]) {
        let len = from.len();
        while let Some(at) = datagram.windows(len).take(40).position(|w| w == from) {
            datagram[at..at + len].copy_from_slice(to);
        }
    }
    // Somebody on the path changes the destination of the client's first Initials, or the source
    // of the server's packets. The server's parameters are authentic and do not agree.
    for change_original in [true, false] {
        let mut pair = Pair::new(readable());
        let mut original = Vec::new();
        let mut server = Vec::new();
        pair.tap = Some(Box::new(move |from, datagram| {
            if datagram[0] & 0x80 == 0 {
                return true;
            }
            if original.is_empty() {
                original = ids(datagram).0;
            }
            if change_original {
                replace(datagram, &original, &[0x77; 16]);
            } else if from == SERVER {
                if server.is_empty() {
                    server = ids(datagram).1;
                }
                let (dcid_len, end) = (usize::from(datagram[5]), 40);
                replace(&mut datagram[6 + dcid_len..end], &server, &[0x66; 8]);
            } else if !server.is_empty() {
                replace(datagram, &[0x66; 8], &server);
            }
            true
        }));
        pair.connect();
        let word = pair.run_until_closed(CLIENT, secs(1));
        assert!(
            matches!(word, ConnectionError::PeerMisbehaved { code, .. }
                if code == TransportErrorCode::TRANSPORT_PARAMETER_ERROR),
            "{change_original}: {word:?}"
        );
    }
}

#[test]
fn a_retry_that_the_server_did_not_send_is_found_out() {
    let mut pair = Pair::new(readable());
    let log = log(&mut pair, |_| false);
    pair.connect();
    let (dcid, scid) = ids(&sent_by(&log, CLIENT)[0]);
    pair.tap = None;
    pair.deliver(CLIENT, &retry(0xf0, &dcid, &scid, &[9; 8], b"token"));
    let word = pair.run_until_closed(CLIENT, secs(1));
    assert!(
        matches!(word, ConnectionError::PeerMisbehaved { code, .. }
            if code == TransportErrorCode::TRANSPORT_PARAMETER_ERROR),
        "{word:?}"
    );
}

#[test]
fn the_parameters_of_a_client_hold_nothing_of_servers() {
    let (_, log, _, scid) = client_of_nobody();
    let hello = packets(&sent_by(&log, CLIENT)[0])[0].payload.to_vec();
    // The TLS extension 0x39: two bytes of type, two of length.
    let found = (0..hello.len() - 4).find_map(|at| {
        let len = usize::from(u16::from_be_bytes([hello[at + 2], hello[at + 3]]));
        let value = hello.get(at + 4..at + 4 + len)?;
        let is_it = hello[at..at + 2] == [0, 0x39];
        let parameters = is_it.then(|| TransportParameters::parse(value, Side::Server))?;
        parameters
            .ok()
            .filter(|p| p.initial_source_connection_id.is_some())
    });
    let parameters = found.expect("the parameters are in the hello");
    let source = parameters
        .initial_source_connection_id
        .map(|cid| cid.to_vec());
    assert_eq!(source, Some(scid));
    assert_eq!(parameters.original_destination_connection_id, None);
    assert_eq!(parameters.retry_source_connection_id, None);
    assert_eq!(parameters.stateless_reset_token, None);
    assert_eq!(parameters.preferred_address, None);
}

// ---- Retry and Version Negotiation ----

#[test]
fn a_retry_from_the_clients_own_destination_is_ignored() {
    let (mut pair, log, dcid, scid) = client_of_nobody();
    pair.deliver(CLIENT, &retry(0xf0, &dcid, &scid, &dcid, b"token"));
    assert_eq!(sent_by(&log, CLIENT).len(), 1);
    pair.run_for(secs(3));
    let sent = sent_by(&log, CLIENT);
    assert!(sent.len() > 1);
    assert!(
        sent.iter()
            .all(|datagram| packets(datagram)[0].token.is_empty())
    );
    // Another one still counts.
    pair.deliver(CLIENT, &retry(0xf0, &dcid, &scid, &[9; 8], b"token"));
    let sent = sent_by(&log, CLIENT);
    assert_eq!(packets(sent.last().unwrap())[0].token, b"token");
}

#[test]
fn after_a_retry_only_destination_and_token_change() {
    let (mut pair, log, dcid, scid) = client_of_nobody();
    pair.deliver(CLIENT, &retry(0xf0, &dcid, &scid, &[9; 8], b"token"));
    pair.run_for(secs(3));
    let sent = sent_by(&log, CLIENT);
    assert!(sent.len() > 3, "hello, answer and probes");
    let first = &packets(&sent[0])[0];
    let answer = &packets(&sent[1])[0];
    assert_eq!(
        without_padding(answer.payload),
        without_padding(first.payload)
    );
    let mut number = first.number;
    for datagram in &sent[1..] {
        assert_eq!(ids(datagram), (vec![9; 8], scid.clone()));
        for packet in packets(datagram) {
            assert_eq!(packet.token, b"token");
            assert!(packet.number > number, "numbers go on");
            number = packet.number;
        }
    }
}

#[test]
fn unused_bits_of_retry_and_version_negotiation_mean_nothing() {
    for bits in 0..0x10 {
        let (mut pair, log, dcid, scid) = client_of_nobody();
        let packet = retry(0xf0 | bits, &dcid, &scid, &[9; 8], b"token");
        pair.deliver(CLIENT, &packet);
        assert_eq!(ids(&sent_by(&log, CLIENT)[1]).0, [9; 8], "{bits:#x}");
    }
    for bits in 0..0x80 {
        let (mut pair, _, dcid, scid) = client_of_nobody();
        let mut packet = Vec::new();
        emit_version_negotiation(&mut packet, 0, &scid, &dcid, &[0x1a2a_3a4a]);
        packet[0] = 0x80 | bits;
        pair.deliver(CLIENT, &packet);
        let word = pair.close_reason(CLIENT);
        assert_eq!(word, Some(ConnectionError::VersionMismatch), "{bits:#x}");
    }
}

#[test]
fn a_datagram_of_two_packets_gets_one_retry_or_version_negotiation() {
    let mut pair = Pair::new(Options {
        retry: RetryPolicy::Always,
        ..readable()
    });
    let half = |number| {
        let (dcid, scid) = ([1; 8], [2; 8]);
        long_packet(LongType::Initial, &dcid, &scid, b"", number, &[0; 700])
    };
    let mut two = [half(0), half(1)].concat();
    assert_eq!(two.len() / 1200, 1);
    pair.deliver(SERVER, &two);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().retries, 1);
    // The same in a version that nobody knows.
    let second = half(0).len();
    for at in [0, second] {
        two[at + 1..at + 5].copy_from_slice(&[0x1a; 4]);
    }
    pair.deliver(SERVER, &two);
    assert_eq!(pair.hosts[SERVER].endpoint.stats().version_negotiations, 1);
}

#[test]
fn packets_of_another_version_are_dropped_by_a_client() {
    let mut pair = Pair::new(readable());
    let changed = Rc::new(RefCell::new(0));
    let count = changed.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        // The server's first three datagrams come in version 2.
        if from == SERVER && *count.borrow() < 3 {
            *count.borrow_mut() += 1;
            datagram[1..5].copy_from_slice(&0x6b33_43cf_u32.to_be_bytes());
        }
        true
    }));
    pair.connect();
    pair.run_for(ms(50));
    assert!(*changed.borrow() > 0);
    assert!(!pair.client().is_established());
    assert_eq!(pair.client().stats().packets_received, 0);
    pair.established(secs(10));
}

#[test]
fn initials_of_a_server_carry_no_token() {
    let (mut servers, mut clients) = (0, 0);
    bad_handshakes(|from, datagram| {
        for packet in packets(datagram) {
            if packet.kind == PacketKind::Initial && from == SERVER {
                assert!(packet.token.is_empty());
                servers += 1;
            }
            clients += usize::from(!packet.token.is_empty());
        }
    });
    assert!(servers > 24 && clients > 12, "{servers} {clients}");
}

// ---- sizes, numbers and levels ----

#[test]
fn datagrams_with_initials_have_1200_bytes() {
    let mut initials = [0; 2];
    let mut check = |from: usize, datagram: &[u8]| {
        for packet in packets(datagram) {
            let mut eliciting = false;
            let mut reader = Reader::new(packet.payload);
            while !reader.is_empty() {
                eliciting |= Frame::parse(&mut reader).unwrap().ack_eliciting();
            }
            if packet.kind == PacketKind::Initial && (from == CLIENT || eliciting) {
                assert!(datagram.len() >= 1200, "{} bytes", datagram.len());
                initials[from] += 1;
            }
        }
    };
    bad_handshakes(&mut check);
    // The probes of a client that hears nothing, and of one that heard one Initial only.
    for server_speaks in [false, true] {
        let (mut pair, log, _, scid) = client_of_nobody();
        if server_speaks {
            let ping = payload(write_ping);
            pair.deliver(CLIENT, &full_initial(&scid, &[5; 8], 0, &ping));
        }
        pair.run_for(secs(5));
        let sent = sent_by(&log, CLIENT);
        assert!(sent.len() >= 4);
        for datagram in sent {
            assert_eq!(packets(&datagram)[0].kind, PacketKind::Initial);
            check(CLIENT, &datagram);
        }
    }
    assert!(
        initials[CLIENT] > 48 && initials[SERVER] > 24,
        "{initials:?}"
    );
}

#[test]
fn no_initial_follows_the_first_handshake_packet() {
    for seed in 0..24 {
        let mut pair = Pair::new(Options {
            seed,
            link: LinkConfig {
                loss: LossModel::Bernoulli(0.2),
                duplicate: 0.3,
                ..delay(10)
            },
            ..readable()
        });
        let log = log(&mut pair, |_| true);
        pair.connect();
        pair.established(secs(10));
        pair.run_for(secs(1));
        let mut over = [false; 2];
        for (from, datagram) in log.borrow().iter() {
            // Whose Handshake packet is in the same datagram comes behind its Initial.
            for packet in packets(datagram) {
                let initial = packet.kind == PacketKind::Initial;
                assert!(!(initial && over[*from]), "seed {seed}");
                // A server says HANDSHAKE_DONE when it has processed one.
                over[*from] |= match *from {
                    CLIENT => packet.kind == PacketKind::Handshake,
                    _ => packet.payload.contains(&0x1e) && packet.kind == PacketKind::OneRtt,
                };
            }
        }
        assert!(over[CLIENT]);
    }
}

#[test]
fn frames_are_sent_only_where_table_3_permits_them() {
    let mut frames = 0;
    bad_handshakes(|from, datagram| {
        for_each_frame(datagram, |kind, frame| {
            assert!(frame.ty().permitted(kind), "{frame:?} in {kind:?}");
            if matches!(frame, Frame::HandshakeDone) {
                assert_eq!(from, SERVER);
            }
            frames += 1;
        });
    });
    assert!(frames > 500, "{frames}");
    // HANDSHAKE_DONE leaves when the client's Finished has come, and not before.
    let mut pair = Pair::new(readable());
    let done = pair.watch(SERVER, |f| matches!(f, Frame::HandshakeDone));
    pair.connect();
    pair.run_for(ms(29));
    assert_eq!(done.count(), 0);
    pair.run_for(ms(1));
    assert_eq!(done.count(), 1);
}

#[test]
fn new_handshake_data_at_a_level_that_is_over_is_a_protocol_violation() {
    let (mut pair, log, dcid, scid) = client_of_nobody();
    let first = sent_by(&log, CLIENT)[0].clone();
    pair.deliver(SERVER, &first);
    let hello = without_padding(packets(&first)[0].payload);
    let Ok(Frame::Crypto { data, .. }) = Frame::parse(&mut Reader::new(hello)) else {
        panic!("the first frame is no CRYPTO");
    };
    // What was there may come again; a byte more may not.
    pair.deliver(SERVER, &full_initial(&dcid, &scid, 7, hello));
    assert_eq!(pair.close_reason(SERVER), None);
    let more = payload(|w| {
        write_crypto_header(w, data.len() as u64, 1);
        w.bytes(&[0]);
    });
    pair.deliver(SERVER, &full_initial(&dcid, &scid, 8, &more));
    let word = pair.close_reason(SERVER);
    assert!(is_violation(&word), "{word:?}");
}

#[test]
fn handshake_data_left_over_at_a_change_of_level_is_a_protocol_violation() {
    let (mut pair, log, dcid, scid) = client_of_nobody();
    let beyond = payload(|w| {
        write_crypto_header(w, 9_000, 4);
        w.bytes(&[1; 4]);
    });
    pair.deliver(SERVER, &full_initial(&dcid, &scid, 7, &beyond));
    assert_eq!(pair.close_reason(SERVER), None);
    let first = sent_by(&log, CLIENT)[0].clone();
    pair.deliver(SERVER, &first);
    let word = pair.close_reason(SERVER);
    assert!(is_violation(&word), "{word:?}");
}

#[test]
fn handshake_data_that_runs_on_into_another_level_is_a_protocol_violation() {
    let (mut pair, log, dcid, scid) = client_of_nobody();
    let first = sent_by(&log, CLIENT)[0].clone();
    let hello = without_padding(packets(&first)[0].payload);
    let Ok(Frame::Crypto { data, .. }) = Frame::parse(&mut Reader::new(hello)) else {
        panic!("the first frame is no CRYPTO");
    };
    // The beginning of a Finished behind the hello.
    let data = [data, &[20, 0, 0, 4]].concat();
    let frames = payload(|w| {
        write_crypto_header(w, 0, data.len());
        w.bytes(&data);
    });
    pair.deliver(SERVER, &full_initial(&dcid, &scid, 0, &frames));
    let word = pair.close_reason(SERVER);
    assert!(is_violation(&word), "{word:?}");
}

#[test]
fn a_certificate_request_after_the_handshake_is_a_protocol_violation() {
    // A client that still has TLS, and one that dropped it.
    for quiet in [ms(200), secs(20)] {
        let mut pair = Pair::new(readable());
        let log = log(&mut pair, |_| true);
        pair.connect();
        pair.established(secs(1));
        pair.run_for(quiet);
        let mut end = 0;
        for datagram in sent_by(&log, SERVER) {
            for_each_frame(&datagram, |kind, frame| {
                if let (PacketKind::OneRtt, Frame::Crypto { offset, data }) = (kind, frame) {
                    end = end.max(offset + data.len() as u64);
                }
            });
        }
        assert!(end > 0, "the server sent tickets");
        let mut evil = Evil::take_over(pair, CLIENT);
        evil.send(|w| {
            let request = [13, 0, 0, 3, 0, 0, 0];
            write_crypto_header(w, end, request.len());
            w.bytes(&request);
        });
        let word = evil.pair.close_reason(CLIENT);
        assert!(is_violation(&word), "after {quiet:?}: {word:?}");
    }
}

#[test]
fn a_packet_too_short_to_sample_does_not_hide_the_next() {
    let (mut pair, log, _, scid) = client_of_nobody();
    let first = sent_by(&log, CLIENT)[0].clone();
    pair.deliver(SERVER, &first);
    let (_, server) = ids(&sent_by(&log, SERVER)[0]);
    let short = {
        let mut packet = vec![0; 64];
        let mut w = Writer::new(&mut packet);
        let kind = LongType::Handshake;
        let slot = write_long_header(&mut w, kind, QUIC_V1, &server, &scid, b"", 0, 1);
        let len = w.len();
        packet.truncate(len);
        slot.patch(&mut packet, len - slot.pn_offset());
        packet
    };
    assert!(matches!(
        parse_header(&short, CID_LEN),
        Err(HeaderError::SampleTooShort { end }) if end == short.len()
    ));
    let close = payload(|w| {
        let code = TransportErrorCode::INTERNAL_ERROR;
        write_connection_close(w, &CloseFrame::transport(code, 0, b""));
    });
    let datagram = [short, full_initial(&server, &scid, 7, &close)].concat();
    pair.deliver(SERVER, &datagram);
    let word = pair.close_reason(SERVER);
    assert!(
        matches!(word, Some(ConnectionError::ClosedByPeer(_))),
        "{word:?}"
    );
}

#[test]
fn zero_rtt_packets_are_dropped_by_both_ends() {
    let close = payload(|w| {
        let code = TransportErrorCode::INTERNAL_ERROR;
        write_connection_close(w, &CloseFrame::transport(code, 0, b""));
    });
    let (mut pair, log, dcid, scid) = client_of_nobody();
    let first = sent_by(&log, CLIENT)[0].clone();
    let to_server = long_packet(LongType::ZeroRtt, &dcid, &scid, b"", 0, &close);
    pair.deliver(SERVER, &to_server);
    assert!(pair.hosts[SERVER].handle.is_none());
    pair.deliver(SERVER, &first);
    pair.deliver(SERVER, &to_server);
    let (_, server) = ids(&sent_by(&log, SERVER)[0]);
    let to_client = long_packet(LongType::ZeroRtt, &scid, &server, b"", 0, &close);
    pair.deliver(CLIENT, &to_client);
    pair.tap = None;
    pair.established(secs(10));
    pair.deliver(SERVER, &to_server);
    pair.deliver(CLIENT, &to_client);
    pair.run_for(secs(1));
    assert_eq!(
        [CLIENT, SERVER].map(|side| pair.close_reason(side)),
        [None, None]
    );
    pair.transfer(CLIENT, 10_000, secs(1));
}

#[test]
fn one_rtt_packets_wait_for_the_end_of_the_handshake() {
    let (mut pair, log, _, _) = client_of_nobody();
    let first = sent_by(&log, CLIENT)[0].clone();
    pair.deliver(SERVER, &first);
    let (_, server) = ids(&sent_by(&log, SERVER)[0]);
    // The client's 1-RTT packet overtakes its Finished.
    let mut packet = vec![0; 200];
    let mut w = Writer::new(&mut packet);
    write_short_header(&mut w, &server, 0, 4, false, false);
    write_connection_close(&mut w, &CloseFrame::application(7, b"early"));
    w.bytes(&towline_testkit::NULL_TAG);
    let len = w.len();
    pair.deliver(SERVER, &packet[..len]);
    assert_eq!(pair.close_reason(SERVER), None);
    // Then the handshake goes on, and the packet counts.
    pair.tap = None;
    let word = pair.run_until_closed(SERVER, secs(10));
    assert!(
        matches!(
            &word,
            ConnectionError::ClosedByPeer(Close::Application { code: 7, .. })
        ),
        "{word:?}"
    );
    assert!(pair.take_event(SERVER, |e| *e == Event::Accepted).is_some());
}

#[test]
fn an_unknown_cipher_suite_in_the_hello_is_passed_over() {
    let (mut pair, log, dcid, scid) = client_of_nobody();
    let first = sent_by(&log, CLIENT)[0].clone();
    let frames = without_padding(packets(&first)[0].payload);
    let Ok(Frame::Crypto { offset: 0, data }) = Frame::parse(&mut Reader::new(frames)) else {
        panic!("the first frame is no CRYPTO");
    };
    // type, length (3), version (2), random (32), session ID, length of the suites (2)
    let mut hello = data.to_vec();
    let suites_at = 39 + usize::from(hello[38]);
    let suites_len = u16::from_be_bytes([hello[suites_at], hello[suites_at + 1]]) + 2;
    hello[suites_at..suites_at + 2].copy_from_slice(&suites_len.to_be_bytes());
    hello.splice(suites_at + 2..suites_at + 2, [0x1a, 0x1a]);
    let body = (hello.len() - 4) as u32;
    hello[1..4].copy_from_slice(&body.to_be_bytes()[1..]);
    let frames = payload(|w| {
        write_crypto_header(w, 0, hello.len());
        w.bytes(&hello);
    });
    pair.deliver(SERVER, &full_initial(&dcid, &scid, 0, &frames));
    assert_eq!(pair.close_reason(SERVER), None);
    let answered = sent_by(&log, SERVER).iter().any(|datagram| {
        packets(datagram)
            .iter()
            .any(|p| p.kind == PacketKind::Handshake)
    });
    assert!(answered, "the server goes on to its certificate");
}

// ---- acknowledgements ----

#[test]
fn every_acknowledgement_is_of_its_own_space() {
    for seed in 0..12 {
        let mut pair = Pair::new(Options {
            seed,
            link: LinkConfig {
                loss: LossModel::Bernoulli(0.15),
                ..delay(10)
            },
            ..readable()
        });
        let log = log(&mut pair, |_| true);
        pair.connect();
        pair.established(secs(10));
        pair.transfer(CLIENT, 20_000, secs(20));
        let mut sent: [[Vec<u64>; 3]; 2] = Default::default();
        let mut acked = [0; 3];
        for (from, datagram) in log.borrow().iter() {
            for packet in packets(datagram) {
                let space = packet.kind.space().index();
                sent[*from][space].push(packet.number);
                let mut reader = Reader::new(packet.payload);
                while !reader.is_empty() {
                    if let Ok(Frame::Ack(ack)) = Frame::parse(&mut reader) {
                        acked[space] += 1;
                        let of = &sent[1 - from][space];
                        let own = ack.ranges().flatten().all(|number| of.contains(&number));
                        assert!(own, "seed {seed}: {ack:?} of {space}");
                    }
                }
            }
        }
        assert!(acked.iter().all(|n| *n > 0), "{acked:?}");
    }
}

#[test]
fn an_ack_of_the_handshake_comes_at_once_and_others_within_their_delay() {
    /// Levels in which `side` acknowledged something.
    fn acked(log: &Log, side: usize) -> Vec<PacketKind> {
        let mut kinds = Vec::new();
        for datagram in sent_by(log, side) {
            for_each_frame(&datagram, |kind, frame| {
                if matches!(frame, Frame::Ack(_)) && !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            });
        }
        kinds
    }
    let (mut pair, log, _, _) = client_of_nobody();
    let hello = sent_by(&log, CLIENT)[0].clone();
    let start = pair.now;
    pair.deliver(SERVER, &hello);
    assert_eq!(acked(&log, SERVER), [PacketKind::Initial]);
    for flight in sent_by(&log, SERVER) {
        pair.deliver(CLIENT, &flight);
    }
    assert!(acked(&log, CLIENT).contains(&PacketKind::Handshake));
    for answer in &sent_by(&log, CLIENT)[1..] {
        pair.deliver(SERVER, answer);
    }
    assert!(acked(&log, SERVER).contains(&PacketKind::Handshake) || pair.server().is_confirmed());
    assert_eq!(pair.now, start, "no time has passed");

    // One 1-RTT packet waits, for no longer than the 25 ms that were announced.
    let mut evil = Evil::against(SERVER);
    let acks = |evil: &Evil| evil.count_frames(|f| matches!(f, Frame::Ack(_)));
    let link = ms(10);
    // The first has a gap before it, which is news.
    evil.send(write_ping);
    evil.pair.run_for(link);
    assert_eq!(acks(&evil), 1);
    evil.send(write_ping);
    evil.pair.run_for(link + ms(24));
    assert_eq!(acks(&evil), 1);
    evil.pair.run_for(ms(1));
    assert_eq!(acks(&evil), 2);
    // It rides along where something is said before.
    evil.send(write_ping);
    evil.pair
        .send_stream(SERVER, towline_quic::Direction::Unidirectional, b"x");
    evil.pair.flush();
    evil.pair.run_for(link);
    let last = evil.pair.hosts[CLIENT].captured.last().unwrap();
    let (mut ack, mut stream) = (false, false);
    for_each_frame(last, |_, frame| {
        ack |= matches!(frame, Frame::Ack(_));
        stream |= matches!(frame, Frame::Stream(_));
    });
    assert!(ack && stream);
}
