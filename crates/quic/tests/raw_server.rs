//! A client against a server made by hand, which says in its transport parameters and its first
//! packets what ours never would (RFC 9000 §7.3, §9.6, §18.2, §19.15).

mod common;

use common::evil::{long_packet, payload};
use common::wire::for_each_frame;
use common::{CLIENT, Options, Pair, SERVER, ms, readable};
use rustls::quic::{KeyChange, ServerConnection, Version};
use towline_quic::{
    ConnectionError, Direction, ResetAtError, TransportConfig, TransportErrorCode, WriteError,
};
use towline_testkit::{NULL_TAG, tls_pair};
use towline_wire::{
    ConnectionId, Frame, FrameType, Header, LongType, NewConnectionIdFrame, PreferredAddress,
    StatelessResetToken, TransportParameters, Writer, parse_header, write_crypto_header,
    write_handshake_done, write_new_connection_id, write_padding, write_short_header,
};

/// The connection ID of the handshake.
const SCID: [u8; 8] = [0x51; 8];

struct RawServer {
    pair: Pair,
    /// The client's connection ID.
    client: Vec<u8>,
    number: u64,
}

impl RawServer {
    /// Answers a client's hello as the server called `scid`, with parameters that `change` changed,
    /// and confirms the handshake.
    fn answering(scid: &[u8], change: impl FnOnce(&mut TransportParameters)) -> Self {
        // What is said of a preferred address is looked at; nobody is asked there.
        let options = Options {
            client: TransportConfig::default().preferred_address(false),
            ..readable()
        };
        let tls = tls_pair(options.seed, &options.tls);
        let mut pair = Pair::with_tls(options, tls.clone());
        pair.hosts[SERVER].hijacked = true;
        pair.connect();
        pair.run_for(ms(15));
        let hello = pair.hosts[SERVER].captured.remove(0);
        let Ok(Header::Long {
            dcid, scid: client, ..
        }) = parse_header(&hello, 8)
        else {
            panic!("the first packet is no Initial");
        };
        let (original, client) = (dcid, client.to_vec());
        let mut parameters = TransportParameters {
            original_destination_connection_id: Some(original),
            initial_source_connection_id: ConnectionId::new(scid),
            initial_max_data: 1 << 20,
            initial_max_streams_uni: 10,
            initial_max_stream_data_uni: 1 << 20,
            ..TransportParameters::default()
        };
        change(&mut parameters);
        let mut encoded = Vec::new();
        parameters.encode(&mut encoded);
        let mut tls = ServerConnection::new(tls.server, Version::V1, encoded).unwrap();
        for_each_frame(&hello, |_, frame| {
            if let Frame::Crypto { data, .. } = frame {
                tls.read_hs(data).unwrap();
            }
        });
        let mut flights = [Vec::new(), Vec::new()];
        while !matches!(
            tls.write_hs(&mut flights[0]),
            Some(KeyChange::Handshake { .. })
        ) {}
        while !matches!(
            tls.write_hs(&mut flights[1]),
            Some(KeyChange::OneRtt { .. })
        ) {}
        for (kind, flight) in [LongType::Initial, LongType::Handshake]
            .into_iter()
            .zip(flights)
        {
            for (number, (at, data)) in (0..).zip((0..).step_by(1000).zip(flight.chunks(1000))) {
                let frames = payload(|w| {
                    write_crypto_header(w, at, data.len());
                    w.bytes(data);
                    write_padding(w, 1150 - data.len());
                });
                let packet = long_packet(kind, &client, scid, b"", number, &frames);
                pair.deliver(CLIENT, &packet);
            }
        }
        let mut server = Self {
            pair,
            client,
            number: 0,
        };
        server.send(write_handshake_done);
        server
    }

    /// Sends the frames `write` writes in a 1-RTT packet.
    fn send(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let frames = payload(write);
        let mut packet = vec![0; 64 + frames.len()];
        let mut w = Writer::new(&mut packet);
        write_short_header(&mut w, &self.client, self.number, 4, false, false);
        w.bytes(&frames);
        w.zeros(4);
        w.bytes(&NULL_TAG);
        let len = w.len();
        packet.truncate(len);
        self.number += 1;
        self.pair.deliver(CLIENT, &packet);
    }

    fn violation(&mut self) -> Option<(TransportErrorCode, Option<FrameType>)> {
        match self.pair.close_reason(CLIENT)? {
            ConnectionError::PeerMisbehaved { code, frame, .. } => Some((code, frame)),
            other => panic!("{other:?}"),
        }
    }

    /// Sequence numbers the client retired.
    fn retired(&mut self) -> Vec<u64> {
        self.pair.run_for(ms(50));
        let mut retired = Vec::new();
        for datagram in &self.pair.hosts[SERVER].captured {
            for_each_frame(datagram, |_, frame| {
                if let Frame::RetireConnectionId { sequence } = frame {
                    retired.push(*sequence);
                }
            });
        }
        retired.sort_unstable();
        retired.dedup();
        retired
    }
}

fn new_id(sequence: u64, retire_prior_to: u64, n: u8) -> NewConnectionIdFrame {
    NewConnectionIdFrame {
        sequence,
        retire_prior_to,
        cid: ConnectionId::new(&[n; 8]).unwrap(),
        reset_token: StatelessResetToken::new([n; 16]),
    }
}

fn preferred(n: u8) -> PreferredAddress {
    PreferredAddress {
        ipv4: Some("10.0.0.3:4433".parse().unwrap()),
        ipv6: None,
        connection_id: ConnectionId::new(&[n; 8]).unwrap(),
        stateless_reset_token: StatelessResetToken::new([n; 16]),
    }
}

#[test]
fn a_server_made_by_hand_is_spoken_to() {
    let mut server = RawServer::answering(&SCID, |_| {});
    assert!(server.pair.client().is_confirmed());
    server.send(|w| write_new_connection_id(w, &new_id(1, 1, 0xab)));
    assert_eq!(server.violation(), None);
    assert_eq!(server.retired(), [0]);
}

#[test]
fn a_new_connection_id_for_a_peer_addressed_without_one_is_a_protocol_violation() {
    let mut server = RawServer::answering(&[], |_| {});
    assert!(server.pair.client().is_confirmed());
    server.send(|w| write_new_connection_id(w, &new_id(1, 0, 0xab)));
    let violation = (
        TransportErrorCode::PROTOCOL_VIOLATION,
        Some(FrameType::NEW_CONNECTION_ID),
    );
    assert_eq!(server.violation(), Some(violation));
}

#[test]
fn the_id_of_a_preferred_address_has_sequence_number_1() {
    let answering = || RawServer::answering(&SCID, |p| p.preferred_address = Some(preferred(0x71)));
    // The same ID under its number is no news, another ID under it a lie (RFC 9000 §19.15).
    let mut server = answering();
    server.send(|w| write_new_connection_id(w, &new_id(1, 0, 0x71)));
    assert_eq!(server.violation(), None);
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    let violation = Some((code, Some(FrameType::NEW_CONNECTION_ID)));
    server.send(|w| write_new_connection_id(w, &new_id(1, 0, 0x72)));
    assert_eq!(server.violation(), violation);
    let mut server = answering();
    server.send(|w| write_new_connection_id(w, &new_id(2, 0, 0x71)));
    assert_eq!(server.violation(), violation);
    // It counts: with that of the handshake and two more the four are there (RFC 9000 §18.2).
    let mut server = answering();
    for n in 2..4 {
        server.send(|w| write_new_connection_id(w, &new_id(u64::from(n), 0, n)));
        assert_eq!(server.violation(), None);
    }
    server.send(|w| write_new_connection_id(w, &new_id(4, 0, 4)));
    let code = TransportErrorCode::CONNECTION_ID_LIMIT_ERROR;
    let violation = Some((code, Some(FrameType::NEW_CONNECTION_ID)));
    assert_eq!(server.violation(), violation);
    // And it is retired like any other.
    let mut server = answering();
    server.send(|w| write_new_connection_id(w, &new_id(2, 2, 2)));
    assert_eq!(server.violation(), None);
    assert_eq!(server.retired(), [0, 1]);
}

#[test]
fn the_reset_token_of_a_preferred_address_counts_once_its_id_is_in_use() {
    for in_use in [false, true] {
        let change = |p: &mut TransportParameters| p.preferred_address = Some(preferred(0x71));
        let mut server = RawServer::answering(&SCID, change);
        if in_use {
            // Takes the handshake's ID away: what is left is that of the preferred address.
            server.send(|w| write_new_connection_id(w, &new_id(2, 1, 2)));
        }
        let mut reset = vec![0x40; 40];
        reset.extend_from_slice(&[0x71; 16]);
        server.pair.deliver(CLIENT, &reset);
        let word = server.pair.close_reason(CLIENT);
        let expected = in_use.then_some(ConnectionError::StatelessReset);
        assert_eq!(word, expected);
    }
}

#[test]
fn a_preferred_address_that_breaks_the_rules_is_a_transport_parameter_error() {
    let code = TransportErrorCode::TRANSPORT_PARAMETER_ERROR;
    // RFC 9000 §18.2: not from a server that has no connection ID; §5.1: no ID twice.
    for (scid, n) in [(&[][..], 0x71), (&SCID, SCID[0])] {
        let change = |p: &mut TransportParameters| p.preferred_address = Some(preferred(n));
        let mut server = RawServer::answering(scid, change);
        assert_eq!(server.violation().map(|v| v.0), Some(code), "{scid:?}");
    }
}

#[test]
fn a_peer_that_knows_no_reset_stream_at_is_sent_none() {
    let begin = |server: &mut RawServer| {
        let client = server.pair.client();
        let id = client.open(Direction::Unidirectional).unwrap();
        assert_eq!(client.write_slice(id, b"0123456789"), Ok(10));
        id
    };
    let mut server = RawServer::answering(&SCID, |_| {});
    let id = begin(&mut server);
    let client = server.pair.client();
    assert_eq!(client.reset_at(id, 7, 4), Err(ResetAtError::Unsupported));
    // The stream goes on, and can be reset as a whole.
    assert_eq!(client.write_slice(id, b"x"), Ok(1));
    assert_eq!(client.reset_at(id, 7, 0), Ok(()));
    assert_eq!(client.write_slice(id, b"x"), Err(WriteError::ClosedStream));
    let mut server = RawServer::answering(&SCID, |p| p.reset_stream_at = true);
    let id = begin(&mut server);
    assert_eq!(server.pair.client().reset_at(id, 7, 4), Ok(()));
}
