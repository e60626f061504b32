//! What a stream promises: data, ends, and how it breaks.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use towline::config::{Cipher, ClientAuth, Identity, Trust};
use towline::stcp::{
    Authentication, ConnectError, Listener, Records, SessionError, Stream, client_config, connect,
    server_config,
};

use crate::peers::{
    NAME, SECOND, Sides, loopback, options, pattern, read_all, reset, segments_in,
    streams_through_relay, within,
};

#[tokio::test]
async fn both_sides_know_each_other() {
    let sides = Sides::with_cipher(Cipher::Aes128Gcm);
    let (near, far) = sides.streams().await;
    for stream in [&near, &far] {
        assert_eq!(stream.authentication(), Authentication::Pinned);
        assert_eq!(stream.alpn(), None);
        assert!(stream.tcp().nodelay().unwrap());
        assert!(stream.peer().is_some() && !stream.is_resumed());
        assert_eq!(
            format!("{:?}", stream.cipher_suite()),
            "TLS13_AES_128_GCM_SHA256"
        );
    }
    assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
}

#[tokio::test]
async fn a_second_connection_resumes_the_first() {
    let sides = Sides::new();
    let (mut listener, address) = sides.listen().await;
    let mut pins = Vec::new();
    for round in 0..2 {
        let (near, far) = within(async {
            tokio::join!(connect(address, NAME, &sides.client), listener.accept())
        })
        .await;
        let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
        assert_eq!(near.is_resumed(), round == 1);
        assert_eq!(far.is_resumed(), round == 1);
        pins.push([&near, &far].map(|stream| stream.peer().unwrap().key_pin()));
        // The tickets come before the first data.
        far.write_all(b"x").await.unwrap();
        within(near.read_exact(&mut [0])).await.unwrap();
        near.shutdown().await.unwrap();
    }
    // The tickets carry who it was: each the other.
    assert_eq!(pins[0], pins[1]);
    assert_ne!(pins[0][0], pins[0][1]);
}

#[tokio::test]
async fn megabytes_pass_both_ways_at_once_in_both_kinds_of_halves() {
    let data = pattern(20 << 20);
    for own in [true, false] {
        let (near, far) = Sides::new().streams().await;
        let echo = tokio::spawn(async move {
            let (mut read, mut write) = far.into_split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
            write.shutdown().await.unwrap();
        });
        let sent = data.clone();
        let (received, end) = if own {
            let (mut read, mut write) = near.into_split();
            let writing = tokio::spawn(async move {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            });
            let result = read_all(&mut read).await;
            writing.await.unwrap();
            result
        } else {
            let (mut read, mut write) = tokio::io::split(near);
            let writing = tokio::spawn(async move {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            });
            let result = read_all(&mut read).await;
            writing.await.unwrap();
            result
        };
        end.unwrap();
        assert!(received == data, "{} bytes came back", received.len());
        within(echo).await.unwrap();
    }
}

#[tokio::test]
async fn a_last_write_leaves_while_its_task_waits_for_the_answer() {
    // Without a flush: the socket takes a part, and only reading goes on afterwards.
    let (mut near, mut far) = Sides::new().streams().await;
    let size = socket2::SockRef::from(near.tcp());
    size.set_send_buffer_size(8 * 1024).unwrap();
    let asked = 300_000;
    let server = tokio::spawn(async move {
        tokio::time::sleep(SECOND / 5).await;
        let mut question = vec![0; asked];
        far.read_exact(&mut question).await.unwrap();
        far.write_all(b"yes").await.unwrap();
        far.flush().await.unwrap();
        question
    });
    let mut answer = [0; 3];
    within(async {
        near.write_all(&pattern(asked)).await.unwrap();
        near.read_exact(&mut answer).await.unwrap();
    })
    .await;
    assert_eq!(&answer, b"yes");
    assert_eq!(server.await.unwrap(), pattern(asked));
}

#[tokio::test]
async fn all_that_was_written_before_the_end_arrives_however_small_the_buffers() {
    let sides = Sides::new();
    for round in 0..20 {
        // With a small window TCP takes a record in several pieces.
        let tcp = TcpListener::bind(loopback()).await.unwrap();
        let socket = socket2::SockRef::from(&tcp);
        socket.set_recv_buffer_size(2048 << (round % 4)).unwrap();
        let address = tcp.local_addr().unwrap();
        let mut listener = Listener::new(tcp, sides.server.clone());
        let (near, far) = within(async {
            tokio::join!(connect(address, NAME, &sides.client), listener.accept())
        })
        .await;
        let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
        let size = socket2::SockRef::from(near.tcp());
        size.set_send_buffer_size(4096 << (round % 6)).unwrap();
        let data = pattern(30_000 + 10_007 * round);
        let sent = data.clone();
        let sending = tokio::spawn(async move {
            near.write_all(&sent).await.unwrap();
            near.shutdown().await.unwrap();
        });
        tokio::time::sleep(SECOND / 100).await;
        let (got, end) = read_all(&mut far).await;
        end.unwrap();
        assert!(got == data, "{} of {} bytes came", got.len(), data.len());
        within(sending).await.unwrap();
    }
}

/// Between two, the peer could end its side and be left with TIME_WAIT.
#[tokio::test]
async fn the_end_of_a_stream_is_one_packet() {
    let user = options().records(Records::UserSpace);
    let (mut near, mut far) = Sides::with(&user).streams().await;
    near.write_all(b"last").await.unwrap();
    within(far.read_exact(&mut [0; 4])).await.unwrap();
    let before = segments_in(far.tcp());
    near.shutdown().await.unwrap();
    assert_eq!(within(far.read(&mut [0])).await.unwrap(), 0);
    while !segments_in(far.tcp()).1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(segments_in(far.tcp()).0 - before.0, 1);
}

#[tokio::test]
async fn after_our_end_the_other_direction_goes_on() {
    let (mut near, mut far) = Sides::new().streams().await;
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    assert_eq!(
        near.write(b"more").await.unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
    let (question, end) = read_all(&mut far).await;
    end.unwrap();
    assert_eq!(question, b"question");
    far.write_all(&pattern(500_000)).await.unwrap();
    far.shutdown().await.unwrap();
    let (answer, end) = read_all(&mut near).await;
    end.unwrap();
    assert_eq!(answer, pattern(500_000));
}

#[tokio::test]
async fn a_stream_that_ends_without_close_notify_is_reset() {
    for split in [false, true] {
        let (mut near, far) = Sides::new().streams().await;
        if split {
            // Only the writing half goes: the peer must not wait, nor believe that this is all.
            let (_read, mut write) = far.into_split();
            write.write_all(b"half a").await.unwrap();
            drop(write);
            let (got, end) = read_all(&mut near).await;
            assert_eq!(got, b"half a");
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
        } else {
            drop(far);
            let (_, end) = read_all(&mut near).await;
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
}

#[tokio::test]
async fn whoever_cuts_or_forges_on_the_way_is_noticed() {
    // FIN inside a record.
    let (mut near, mut far, mut relay) = streams_through_relay(&Sides::new()).await;
    near.write_all(b"twelve bytes").await.unwrap();
    let mut record = vec![0; 5 + 12 + 17];
    relay.to_client.read_exact(&mut record).await.unwrap();
    relay.to_server.write_all(&record[..20]).await.unwrap();
    relay.to_server.shutdown().await.unwrap();
    let (got, end) = read_all(&mut far).await;
    assert_eq!(got, b"");
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);

    // RST inside a record.
    let (mut near, mut far, mut relay) = streams_through_relay(&Sides::new()).await;
    near.write_all(b"twelve bytes").await.unwrap();
    relay.to_client.read_exact(&mut record).await.unwrap();
    relay.to_server.write_all(&record[..20]).await.unwrap();
    tokio::time::sleep(SECOND / 20).await;
    reset(relay.to_server);
    let (got, end) = read_all(&mut far).await;
    assert_eq!(got, b"");
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);

    // A changed byte: refused, and the sender is told.
    let (mut near, mut far, mut relay) = streams_through_relay(&Sides::new()).await;
    near.write_all(b"twelve bytes").await.unwrap();
    relay.to_client.read_exact(&mut record).await.unwrap();
    record[9] ^= 1;
    relay.to_server.write_all(&record).await.unwrap();
    let error = read_all(&mut far).await.1.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("damaged or forged"), "{error}");
    let mut alert = vec![0; 5 + 2 + 17];
    within(relay.to_server.read_exact(&mut alert))
        .await
        .unwrap();
    relay.to_client.write_all(&alert).await.unwrap();
    let error = read_all(&mut near).await.1.unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "{error}");

    // A record in clear.
    let (_near, mut far, mut relay) = streams_through_relay(&Sides::new()).await;
    relay
        .to_server
        .write_all(b"\x16\x03\x03\x00\x05hello")
        .await
        .unwrap();
    let error = read_all(&mut far).await.1.unwrap_err();
    assert!(error.to_string().contains("in clear"), "{error}");
}

#[tokio::test]
async fn a_plaintext_server_is_refused_by_name_and_hears_nothing_clear() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"220 mail.example ESMTP\r\n").await.unwrap();
        let mut heard = Vec::new();
        let _ = tcp.read_to_end(&mut heard).await;
        heard
    });
    let sides = Sides::new();
    let error = within(connect(address, NAME, &sides.client))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Session(SessionError::NotTls { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("220 mail.example"), "{error}");
    let heard = within(server).await.unwrap();
    assert_eq!(heard.first(), Some(&22), "a handshake record and no more");
}

#[tokio::test]
async fn the_wrong_server_key_is_refused_and_the_wrong_client_key_too() {
    let (ours, others) = (Sides::new(), Sides::new());
    let (mut listener, address) = ours.listen().await;
    let accepting = tokio::spawn(async move { listener.accept().await.map(drop) });
    let error = within(connect(address, NAME, &others.client))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Session(SessionError::PeerRejected(_))),
        "{error}"
    );
    assert_eq!(error.io_kind(), ErrorKind::PermissionDenied);

    // The right server, for a client that it does not know: the first read says so.
    let server = Identity::generate_raw_key().unwrap();
    let stranger = Identity::generate_raw_key().unwrap();
    let friend = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![server.key_pin()]);
    let sides = Sides {
        client: client_config(&trust, Some(&stranger), &options()).unwrap(),
        server: server_config(
            &server,
            &ClientAuth::RawKeys(vec![friend.key_pin()]),
            &options(),
        )
        .unwrap(),
    };
    let (mut listener, address) = sides.listen().await;
    let waiting = tokio::spawn(async move { listener.accept().await.map(drop) });
    let mut stream: Stream = within(connect(address, NAME, &sides.client)).await.unwrap();
    let error = read_all(&mut stream).await.1.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!accepting.is_finished() && !waiting.is_finished());
}

#[tokio::test]
async fn nobody_there_and_no_name_are_said_as_tcp_says_them() {
    let sides = Sides::new();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = within(connect(address, NAME, &sides.client))
        .await
        .unwrap_err();
    assert_eq!(
        std::io::Error::from(error).kind(),
        ErrorKind::ConnectionRefused
    );
    let (_listener, address) = sides.listen().await;
    let error = within(connect(address, "no name", &sides.client))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Name(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_ends_before_the_handshake_is_a_reset() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let sides = Sides::new();
    let server = tokio::spawn(async move {
        let (mut tcp, _): (TcpStream, _) = listener.accept().await.unwrap();
        tcp.read_exact(&mut [0; 100]).await.unwrap();
        tcp.shutdown().await.unwrap();
        tcp.read_to_end(&mut Vec::new()).await
    });
    let error = within(connect(address, NAME, &sides.client))
        .await
        .unwrap_err();
    assert_eq!(error.io_kind(), ErrorKind::ConnectionReset);
    let _ = within(server).await;
}

#[tokio::test]
async fn who_only_sends_and_goes_is_heard_to_the_end() {
    let (mut near, mut far) = Sides::new().streams().await;
    // All of it waits in the sender's socket when that is closed.
    let socket = socket2::SockRef::from(near.tcp());
    socket.set_send_buffer_size(4 << 20).unwrap();
    let socket = socket2::SockRef::from(far.tcp());
    socket.set_recv_buffer_size(96 * 1024).unwrap();
    // The server's tickets are there, and nobody reads them.
    tokio::time::sleep(SECOND / 10).await;
    let data = pattern(1 << 19);
    let sent = data.clone();
    let sending = tokio::spawn(async move {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
    });
    tokio::time::sleep(SECOND / 5).await;
    let (got, end) = read_all(&mut far).await;
    end.unwrap();
    assert!(got == data, "{} bytes came", got.len());
    within(sending).await.unwrap();
}
