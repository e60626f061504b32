use std::sync::Arc;

use rustls::pki_types::ServerName;
use towline_identity::{
    Cipher, CipherPreference, ClientAuth, Identity, KeyExchange, KeyExchangePreference, Resumption,
    TlsSettings, Trust, provider,
};
use towline_testkit::FixedTime;

use super::*;
use crate::buffers::BUFFER_LEN;
use crate::limits::{MAX_RECORDS_WITHOUT_DATA, tiny};
use crate::{Alpn, Authentication, ClientConfig, Established, Handshake, Records, ServerConfig};

/// A client and a server that trust each other.
struct Sides {
    client: ClientConfig,
    server: ServerConfig,
}

fn settings(cipher: Cipher) -> TlsSettings {
    let provider = provider(
        &CipherPreference::only(cipher),
        &KeyExchangePreference::default(),
    );
    TlsSettings::new(Arc::new(provider), Arc::new(FixedTime::new(1_767_225_600)))
}

fn sides(cipher: Cipher, records: Records) -> Sides {
    let settings = settings(cipher);
    let server = Identity::generate_raw_key().unwrap();
    let client = Identity::generate_raw_key().unwrap();
    Sides {
        client: ClientConfig::new(
            &Trust::RawKeys(vec![server.key_pin()]),
            Some(&client),
            Alpn::Required,
            records,
            &settings,
        )
        .unwrap(),
        server: ServerConfig::new(
            &server,
            &ClientAuth::RawKeys(vec![client.key_pin()]),
            Alpn::Required,
            records,
            &settings,
        )
        .unwrap(),
    }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("boat.example").unwrap()
}

/// Moves bytes until both sides are done; `most` bytes at a time.
fn shake(sides: &Sides, most: usize) -> Result<(Established, Established), SessionError> {
    let mut client = Handshake::client(&sides.client, name())?;
    let mut server = Handshake::server(&sides.server)?;
    for _ in 0..10_000 {
        let mut moved = false;
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = match (from, to) {
                (0, _) => (&mut client, &mut server),
                _ => (&mut server, &mut client),
            };
            let len = from.output().len().min(most);
            if len > 0 {
                moved = true;
                to.handle_input(&from.output()[..len])?;
                from.on_sent(len);
            }
        }
        if !moved {
            return Ok((client.finish()?, server.finish()?));
        }
    }
    panic!("the handshake does not end");
}

pub(super) fn sessions(cipher: Cipher) -> (Session, Session) {
    let (client, server) = shake(&sides(cipher, Records::Counted), usize::MAX).unwrap();
    (
        client.into_session().unwrap(),
        server.into_session().unwrap(),
    )
}

pub(super) fn receive(session: &mut Session, mut bytes: &[u8]) {
    let mut buffers = Buffers::new();
    while !bytes.is_empty() {
        let room = session.receive_buffer(&mut buffers);
        let len = room.len().min(bytes.len());
        assert!(len > 0, "what came before is to be read first");
        room[..len].copy_from_slice(&bytes[..len]);
        session.on_received(len);
        bytes = &bytes[len..];
    }
}

/// Moves all output across.
pub(super) fn carry(from: &mut Session, to: &mut Session) {
    let output = from.output().to_vec();
    receive(to, &output);
    from.on_sent(output.len());
}

/// Reads until more is wanted or the stream ends; the bytes, and whether it ended.
pub(super) fn read_all(
    session: &mut Session,
    piece: usize,
) -> Result<(Vec<u8>, bool), SessionError> {
    let mut all = Vec::new();
    let mut out = vec![0; piece];
    loop {
        match session.read(&mut out)? {
            Read::Data(len) => all.extend_from_slice(&out[..len]),
            Read::End => return Ok((all, true)),
            Read::Wanting => return Ok((all, false)),
        }
    }
}

pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

pub(super) const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20];

#[test]
fn data_arrives_whole_with_every_cipher_and_any_size_of_read() {
    for cipher in CIPHERS {
        for piece in [1, 5, 100, 16_384, 16_385, 100_000] {
            let (mut client, mut server) = sessions(cipher);
            let sent = pattern(200_000);
            let mut taken = 0;
            let mut got = Vec::new();
            while taken < sent.len() {
                taken += client.write(&sent[taken..], &mut Buffers::new()).unwrap();
                carry(&mut client, &mut server);
                got.extend(read_all(&mut server, piece).unwrap().0);
            }
            assert!(got == sent, "{cipher}, reads of {piece}");
        }
    }
}

#[test]
fn a_protocol_is_named_only_where_it_is_required() {
    let settings = settings(Cipher::Aes128Gcm);
    let server = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![server.key_pin()]);
    let meet = |client: Alpn, offered: Option<&[u8]>, accepted: Alpn| {
        let mut sides = Sides {
            client: ClientConfig::new(&trust, None, client, Records::UserSpace, &settings).unwrap(),
            server: ServerConfig::new(
                &server,
                &ClientAuth::None,
                accepted,
                Records::UserSpace,
                &settings,
            )
            .unwrap(),
        };
        if let Some(protocol) = offered {
            let mut tls = rustls::ClientConfig::clone(&sides.client.tls);
            tls.alpn_protocols = vec![protocol.to_vec()];
            sides.client.tls = Arc::new(tls);
        }
        shake(&sides, usize::MAX).map(|(client, _)| client.alpn().map(<[u8]>::to_vec))
    };
    assert_eq!(meet(Alpn::Any, None, Alpn::Any).unwrap(), None);
    // curl offers these and goes on when the server names none.
    for foreign in [&b"h2"[..], b"http/1.1"] {
        assert_eq!(meet(Alpn::Any, Some(foreign), Alpn::Any).unwrap(), None);
        assert!(meet(Alpn::Any, Some(foreign), Alpn::Required).is_err());
    }
    let named = meet(Alpn::Required, None, Alpn::Required).unwrap();
    assert_eq!(named.as_deref(), Some(crate::ALPN));
    for (client, server) in [(Alpn::Required, Alpn::Any), (Alpn::Any, Alpn::Required)] {
        let refused = meet(client, None, server).unwrap_err();
        assert!(refused.to_string().contains("stcp/1"), "{refused}");
    }
}

#[test]
fn a_handshake_survives_any_cut_of_the_stream() {
    for most in [1, 2, 3, 7, 100, 1000] {
        let (client, server) = shake(&sides(Cipher::Aes128Gcm, Records::Counted), most).unwrap();
        assert_eq!(client.authentication(), Authentication::Pinned);
        assert_eq!(server.authentication(), Authentication::Pinned);
        assert_eq!(client.alpn(), Some(crate::ALPN));
        assert!(server.peer().is_some());
    }
}

#[test]
fn what_is_wanted_takes_no_byte_beyond_the_handshake() {
    let sides = sides(Cipher::ChaCha20, Records::Counted);
    let mut client = Handshake::client(&sides.client, name()).unwrap();
    let mut server = Handshake::server(&sides.server).unwrap();
    let mut to_server: Vec<u8> = Vec::new();
    let mut to_client: Vec<u8> = Vec::new();
    while !(client.is_complete() && server.is_complete()) {
        to_server.extend_from_slice(client.output());
        client.on_sent(client.output().len());
        to_client.extend_from_slice(server.output());
        server.on_sent(server.output().len());
        for (side, stream) in [(&mut server, &mut to_server), (&mut client, &mut to_client)] {
            while !side.is_complete() && !stream.is_empty() {
                let len = side.wanted().min(stream.len());
                let bytes: Vec<u8> = stream.drain(..len).collect();
                side.handle_input(&bytes).unwrap();
            }
        }
    }
    // The server's tickets are for the kernel's side of the client.
    server.on_sent(server.output().len());
    let keys = client
        .finish()
        .unwrap()
        .into_kernel()
        .expect("nothing left over");
    let peer = server
        .finish()
        .unwrap()
        .into_kernel()
        .expect("nothing left over");
    assert!(matches!(
        (&keys.transmit.0, &peer.receive.0),
        (
            crate::CipherKeys::ChaCha20Poly1305 { key: ours, .. },
            crate::CipherKeys::ChaCha20Poly1305 { key: theirs, .. }
        ) if ours == theirs
    ));
    assert_eq!(keys.transmit.1, peer.receive.1);
}

#[test]
fn bytes_that_follow_the_handshake_at_once_reach_the_session() {
    let sides = sides(Cipher::Aes128Gcm, Records::Counted);
    let mut client = Handshake::client(&sides.client, name()).unwrap();
    let mut server = Handshake::server(&sides.server).unwrap();
    server.handle_input(client.output()).unwrap();
    client.on_sent(client.output().len());
    client.handle_input(server.output()).unwrap();
    server.on_sent(server.output().len());
    let last_flight = client.output().to_vec();
    client.on_sent(last_flight.len());
    let mut client = client.finish().unwrap().into_session().unwrap();
    client.write(b"early bird", &mut Buffers::new()).unwrap();
    let mut stream = last_flight;
    stream.extend_from_slice(client.output());
    server.handle_input(&stream).unwrap();
    let mut server = server.finish().unwrap().into_session().unwrap();
    assert_eq!(
        read_all(&mut server, 100).unwrap(),
        (b"early bird".to_vec(), false)
    );
}

#[test]
fn a_session_is_resumed_by_a_ticket_and_keeps_the_identity() {
    let sides = sides(Cipher::Aes128Gcm, Records::Counted);
    let (client, server) = shake(&sides, usize::MAX).unwrap();
    assert!(!client.is_resumed());
    let mut client = client.into_session().unwrap();
    let mut server = server.into_session().unwrap();
    carry(&mut server, &mut client);
    assert_eq!(read_all(&mut client, 100).unwrap(), (Vec::new(), false));
    let (client, server) = shake(&sides, usize::MAX).unwrap();
    assert!(client.is_resumed() && server.is_resumed());
    assert!(client.peer().is_some() && server.peer().is_some());
    assert_eq!(server.authentication(), Authentication::Pinned);
}

#[test]
fn close_notify_ends_one_direction_and_a_missing_one_is_a_truncation() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    client.write(b"last words", &mut Buffers::new()).unwrap();
    client.close_write().unwrap();
    assert!(matches!(
        client.write(b"more", &mut Buffers::new()),
        Err(SessionError::WriteAfterClose)
    ));
    carry(&mut client, &mut server);
    assert_eq!(
        read_all(&mut server, 100).unwrap(),
        (b"last words".to_vec(), true)
    );
    server.handle_eof().unwrap();
    server.write(b"answer", &mut Buffers::new()).unwrap();
    carry(&mut server, &mut client);
    assert_eq!(
        read_all(&mut client, 100).unwrap(),
        (b"answer".to_vec(), false)
    );
    let error = client.handle_eof().unwrap_err();
    assert!(matches!(error, SessionError::Truncated));
    assert_eq!(error.io_kind(), std::io::ErrorKind::ConnectionReset);
    assert!(client.read(&mut [0; 10]).is_err(), "and it stays so");
}

#[test]
fn a_changed_byte_anywhere_in_a_record_is_noticed() {
    for at in 0..60 {
        let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
        carry(&mut server, &mut client);
        client.write(&pattern(40), &mut Buffers::new()).unwrap();
        let mut output = client.output().to_vec();
        output[at] ^= 0x40;
        receive(&mut server, &output);
        let result = read_all(&mut server, 100);
        // A longer length makes the record wait for bytes that never come, and then a truncation.
        let noticed = match result {
            Ok((bytes, false)) => bytes.is_empty() && server.handle_eof().is_err(),
            Ok(_) => false,
            Err(_) => !server.output().is_empty(),
        };
        assert!(noticed, "byte {at}");
    }
}

#[test]
fn keys_are_updated_from_either_side_and_on_request() {
    let (mut client, mut server) = sessions(Cipher::ChaCha20);
    for round in 0..20_u8 {
        client.request_key_update(round % 2 == 0).unwrap();
        client.write(&[round; 100], &mut Buffers::new()).unwrap();
        carry(&mut client, &mut server);
        assert_eq!(read_all(&mut server, 64).unwrap().0, [round; 100]);
        server.write(&[round; 50], &mut Buffers::new()).unwrap();
        carry(&mut server, &mut client);
        assert_eq!(read_all(&mut client, 64).unwrap().0, [round; 50]);
    }
}

#[test]
fn an_answer_to_a_key_update_needs_no_data() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    client.request_key_update(true).unwrap();
    carry(&mut client, &mut server);
    read_all(&mut server, 64).unwrap();
    assert!(!server.output().is_empty());
}

#[test]
fn a_used_up_key_is_replaced_before_it_is_unsafe_and_never_used_beyond() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    client.spend(1 << 34);
    client
        .write(b"with a new key", &mut Buffers::new())
        .unwrap();
    assert_eq!(client.sender.sealer().unwrap().verdict(), Verdict::Fine);
    carry(&mut client, &mut server);
    assert_eq!(read_all(&mut server, 64).unwrap().0, b"with a new key");
    client.spend(1 << 35);
    assert!(matches!(
        client.write(b"no", &mut Buffers::new()),
        Err(SessionError::KeyExhausted)
    ));
}

#[test]
fn a_peer_that_overuses_its_key_is_asked_for_a_new_one() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    server.opener.spend(1 << 34);
    client.write(b"one", &mut Buffers::new()).unwrap();
    carry(&mut client, &mut server);
    read_all(&mut server, 64).unwrap();
    carry(&mut server, &mut client);
    read_all(&mut client, 64).unwrap();
    client.write(b"two", &mut Buffers::new()).unwrap();
    carry(&mut client, &mut server);
    assert_eq!(read_all(&mut server, 64).unwrap().0, b"two");
    assert_eq!(server.opener.verdict(), Verdict::Fine);
}

/// What a record of 1,000 bytes costs of a key.
pub(super) const RECORD: u64 = 64;

/// Writes a record of 1,000 bytes and carries it across; what the other side reads.
fn record_across(from: &mut Session, to: &mut Session, round: u8) -> Result<(), SessionError> {
    from.write(&[round; 1000], &mut Buffers::new())?;
    carry(from, to);
    assert_eq!(read_all(to, 400)?, (vec![round; 1000], false));
    Ok(())
}

#[test]
fn limits_of_a_few_records_change_keys_again_and_again_in_both_directions() {
    tiny::with(10 * RECORD, 12 * RECORD, || {
        let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
        let mut changes = [0, 0];
        for round in 0..250_u8 {
            for changes in &mut changes {
                let before = client.sender.sealer().unwrap().key().1;
                record_across(&mut client, &mut server, round).unwrap();
                let after = client.sender.sealer().unwrap().key().1;
                *changes += usize::from(after <= before);
                std::mem::swap(&mut client, &mut server);
            }
        }
        // After every tenth record at least; an answer to a request is one more.
        assert!(
            changes.iter().all(|many| (24..=60).contains(many)),
            "{changes:?}"
        );
    });
}

/// A client whose keys have the usual limits, and a server whose keys are for a dozen records.
fn with_tiny_server() -> (Session, Session) {
    let (client, server) = shake(&sides(Cipher::Aes128Gcm, Records::Counted), usize::MAX).unwrap();
    let server = tiny::with(10 * RECORD, 12 * RECORD, || server.into_session().unwrap());
    (client.into_session().unwrap(), server)
}

#[test]
fn a_peer_that_counts_less_is_asked_for_a_new_key_in_time_again_and_again() {
    let (mut client, mut server) = with_tiny_server();
    for round in 0..250_u8 {
        client.write(&[round; 1000], &mut Buffers::new()).unwrap();
        tiny::with(10 * RECORD, 12 * RECORD, || {
            carry(&mut client, &mut server);
            assert_eq!(read_all(&mut server, 400).unwrap().0, [round; 1000]);
            carry(&mut server, &mut client);
        });
        read_all(&mut client, 400).unwrap();
    }
}

#[test]
fn a_peer_that_changes_no_key_though_asked_is_read_to_the_limit_and_no_further() {
    let (mut client, mut server) = with_tiny_server();
    for round in 0..12 {
        record_across(&mut client, &mut server, round).unwrap();
    }
    let error = record_across(&mut client, &mut server, 12).unwrap_err();
    assert!(matches!(error, SessionError::KeyExhausted), "{error}");
}

#[test]
fn records_without_data_are_a_game_that_ends() {
    for content in [ContentType::ApplicationData, ContentType::Alert] {
        let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
        let nothing: &[u8] = match content {
            ContentType::Alert => &[1, 90],
            _ => &[],
        };
        for _ in 0..=MAX_RECORDS_WITHOUT_DATA {
            client.seal(content, nothing).unwrap();
        }
        carry(&mut client, &mut server);
        assert!(matches!(
            read_all(&mut server, 100),
            Err(SessionError::PeerMisbehaved { .. })
        ));
    }
}

#[test]
fn messages_that_have_no_place_after_the_handshake_end_the_session() {
    let forged: [&[u8]; 6] = [
        // ClientHello, an endless message, a key update with a tail, one with a strange body, an
        // empty record, a ticket for a server.
        &[1, 0, 0, 1, 0],
        &[4, 0xff, 0xff, 0xff],
        &[24, 0, 0, 1, 0, 24],
        &[24, 0, 0, 1, 7],
        &[],
        &[4, 0, 0, 1, 0],
    ];
    for bytes in forged {
        let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
        client.seal(ContentType::Handshake, bytes).unwrap();
        carry(&mut client, &mut server);
        assert!(
            matches!(
                read_all(&mut server, 100),
                Err(SessionError::PeerMisbehaved { .. })
            ),
            "{bytes:?}"
        );
    }
}

#[test]
fn data_inside_a_handshake_message_is_refused() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    client.seal(ContentType::Handshake, &[24, 0, 0]).unwrap();
    client.seal(ContentType::ApplicationData, b"no").unwrap();
    carry(&mut client, &mut server);
    assert!(matches!(
        read_all(&mut server, 100),
        Err(SessionError::PeerMisbehaved { .. })
    ));
}

#[test]
fn a_peer_that_speaks_in_clear_is_named() {
    let sides = sides(Cipher::Aes128Gcm, Records::Counted);
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x01",
    ] {
        let mut server = Handshake::server(&sides.server).unwrap();
        let error = server.handle_input(bytes).unwrap_err();
        assert!(matches!(error, SessionError::NotTls { .. }), "{error}");
        assert!(server.output().is_empty());
    }
    let mut client = Handshake::client(&sides.client, name()).unwrap();
    let error = client.handle_input(b"220 mail\r\n").unwrap_err();
    assert!(error.to_string().contains("220 mail"), "{error}");
}

#[test]
fn a_wrong_key_is_refused_on_both_sides_with_a_reason() {
    let ours = sides(Cipher::Aes128Gcm, Records::Counted);
    let theirs = sides(Cipher::Aes128Gcm, Records::Counted);
    let mut client = Handshake::client(&ours.client, name()).unwrap();
    let mut server = Handshake::server(&theirs.server).unwrap();
    server.handle_input(client.output()).unwrap();
    client.on_sent(client.output().len());
    let error = client.handle_input(server.output()).unwrap_err();
    assert!(matches!(error, SessionError::PeerRejected(_)), "{error}");
    let error = server.handle_input(client.output()).unwrap_err();
    assert!(matches!(error, SessionError::Alert(_)), "{error}");
}

#[test]
fn a_client_is_anonymous_where_nobody_asks_with_a_key_of_its_own_too() {
    let settings = settings(Cipher::Aes128Gcm);
    let server = Identity::generate_raw_key().unwrap();
    let key = Identity::generate_raw_key().unwrap();
    let records = Records::Counted;
    // The server wants another key share, so the client says hello twice.
    let mut elsewhere = settings.clone();
    elsewhere.provider = Arc::new(provider(
        &CipherPreference::only(Cipher::Aes128Gcm),
        &KeyExchangePreference::only(KeyExchange::P256),
    ));
    for server_settings in [&settings, &elsewhere] {
        let auth = ClientAuth::None;
        let server = ServerConfig::new(&server, &auth, Alpn::Any, records, server_settings);
        let server = server.unwrap();
        for identity in [None, Some(&key), None] {
            let trust = Trust::InsecureAcceptAnyRawKey;
            let client = ClientConfig::new(&trust, identity, Alpn::Any, records, &settings);
            let sides = Sides {
                client: client.unwrap(),
                server: server.clone(),
            };
            for is_resumed in [false, true] {
                let (client, server) = shake(&sides, usize::MAX).unwrap();
                assert_eq!(client.is_resumed(), is_resumed);
                assert_eq!(server.authentication(), Authentication::Anonymous);
                assert!(server.peer().is_none());
                assert_eq!(server.alpn(), None);
                if !is_resumed {
                    assert_eq!(client.authentication(), Authentication::KeyShown);
                }
                // The tickets.
                let mut client = client.into_session().unwrap();
                carry(&mut server.into_session().unwrap(), &mut client);
                read_all(&mut client, 100).unwrap();
            }
        }
    }
}

#[test]
fn an_idle_session_keeps_no_buffers() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    carry(&mut server, &mut client);
    client.write(&pattern(60_000), &mut Buffers::new()).unwrap();
    carry(&mut client, &mut server);
    read_all(&mut server, 1000).unwrap();
    read_all(&mut client, 1000).unwrap();
    for session in [&mut client, &mut server] {
        session.trim(&mut Buffers::new());
        assert_eq!(session.inbox.held() + session.outbox.held(), 0);
    }
    receive(&mut server, &[23, 3, 3]);
    server.trim(&mut Buffers::new());
    assert!(server.inbox.held() < 100, "a header begun");
}

#[test]
fn the_output_is_bounded_while_nobody_sends_it() {
    let (mut client, _) = sessions(Cipher::Aes128Gcm);
    let data = vec![0; 1 << 20];
    let mut taken = 0;
    loop {
        let len = client.write(&data, &mut Buffers::new()).unwrap();
        taken += len;
        if len == 0 {
            break;
        }
    }
    assert_eq!(taken, 5 * MAX_PLAINTEXT);
    assert!(client.output().len() <= BUFFER_LEN);
}

#[test]
fn resumption_can_be_switched_off() {
    let mut settings = settings(Cipher::Aes128Gcm);
    settings.resumption = Resumption::Disabled;
    let server = Identity::generate_raw_key().unwrap();
    let sides = Sides {
        client: ClientConfig::new(
            &Trust::RawKeys(vec![server.key_pin()]),
            None,
            Alpn::Any,
            Records::Counted,
            &settings,
        )
        .unwrap(),
        server: ServerConfig::new(
            &server,
            &ClientAuth::None,
            Alpn::Any,
            Records::Counted,
            &settings,
        )
        .unwrap(),
    };
    for _ in 0..2 {
        let (client, server) = shake(&sides, usize::MAX).unwrap();
        assert!(!client.is_resumed());
        let mut client = client.into_session().unwrap();
        let mut server = server.into_session().unwrap();
        carry(&mut server, &mut client);
        read_all(&mut client, 100).unwrap();
    }
}

#[test]
fn one_read_takes_all_records_that_fit_and_sessions_share_buffers() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    let mut buffers = Buffers::new();
    carry(&mut server, &mut client);
    let sent = pattern(65_540);
    assert_eq!(client.write(&sent, &mut buffers).unwrap(), sent.len());
    let output = client.output().to_vec();
    client.on_sent(output.len());
    client.release(&mut buffers);
    assert_eq!(client.outbox.held(), 0);

    let room = server.receive_buffer(&mut buffers);
    room[..output.len()].copy_from_slice(&output);
    server.on_received(output.len());
    assert!(
        server.receive_buffer(&mut Buffers::new()).len() >= MAX_PLAINTEXT,
        "nothing is opened yet"
    );
    let mut out = vec![0; 65_540 + 1];
    assert_eq!(server.read(&mut out).unwrap(), Read::Data(65_540));
    assert_eq!(out[..65_540], sent);
    server.release(&mut buffers);
    assert_eq!(server.inbox.held(), 0);
}

#[test]
fn what_came_before_a_forged_record_is_still_read() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    client.write(b"good", &mut Buffers::new()).unwrap();
    let mut output = client.output().to_vec();
    let good = output.len();
    client.write(b"bad", &mut Buffers::new()).unwrap();
    output.extend_from_slice(&client.output()[good..]);
    *output.last_mut().unwrap() ^= 1;
    receive(&mut server, &output);
    let mut out = [0; 1000];
    assert_eq!(server.read(&mut out).unwrap(), Read::Data(4));
    assert!(matches!(
        server.read(&mut out),
        Err(SessionError::BadRecord)
    ));
    assert!(!server.output().is_empty(), "the alert");
}

#[test]
fn nothing_is_received_over_what_is_not_read_yet() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    client.write(b"abc", &mut Buffers::new()).unwrap();
    carry(&mut client, &mut server);
    assert_eq!(server.read(&mut [0; 1]).unwrap(), Read::Data(1));
    assert!(server.receive_buffer(&mut Buffers::new()).is_empty());
    server.trim(&mut Buffers::new());
    let mut rest = [0; 2];
    assert_eq!(server.read(&mut rest).unwrap(), Read::Data(2));
    assert_eq!(&rest, b"bc");
}

#[test]
fn a_peer_that_is_not_let_in_after_all_is_told_so() {
    for cipher in CIPHERS {
        let (client, server) = shake(&sides(cipher, Records::Counted), usize::MAX).unwrap();
        let last = server.into_refusal().unwrap();
        let mut session = client.into_session().unwrap();
        let mut buffers = Buffers::new();
        session.receive_buffer(&mut buffers)[..last.len()].copy_from_slice(&last);
        session.on_received(last.len());
        let error = session.read(&mut [0; 10]).unwrap_err();
        assert!(error.is_refusal(), "{error}");
        assert_eq!(
            error.to_string(),
            "the peer refused: TLS alert AccessDenied (49): it does not believe who we are, and its log \
             says why"
        );
    }
}
