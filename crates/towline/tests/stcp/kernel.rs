//! Records made by the kernel, where it has kTLS: `make kmod-test` runs these tests, as all others of
//! this program, on kernels that have it.

use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towline::config::{Cipher, CipherPreference};
use towline::stcp::{Options, Records, SessionError, Stream, connect_over, ktls};
use towline_stcp::{Buffers, Handshake, Read, Session};

use crate::peers::{NAME, Sides, options, pattern, read_all, within};

/// Says so past the test harness, once, if there is no kTLS. Nothing is skipped by that: `make test`
/// runs these in the guest, and says itself where it cannot.
fn has_ktls() -> bool {
    static SAID: Once = Once::new();
    let found = ktls::is_available();
    if let Err(why) = &found {
        SAID.call_once(|| {
            let _ = writeln!(
                std::io::stderr(),
                "secure TCP with the kernel's records: no kTLS here ({why}), `make kmod-test` has it"
            );
        });
    }
    found.is_ok()
}

fn made_by(records: Records, cipher: Cipher) -> Options {
    Options {
        records,
        ciphers: CipherPreference::only(cipher),
        ..options()
    }
}

#[tokio::test]
async fn the_kernel_makes_the_records_where_it_can_and_may() {
    let (near, far) = Sides::new().streams().await;
    let expected = ktls::is_available().is_ok();
    assert_eq!(
        (near.is_in_kernel(), far.is_in_kernel()),
        (expected, expected)
    );
    let user = made_by(Records::UserSpace, Cipher::Aes128Gcm);
    let (near, far) = Sides::with(&user).streams().await;
    assert!(!near.is_in_kernel() && !far.is_in_kernel());
}

/// There and back.
async fn echoed(near: &mut Stream, far: &mut Stream, data: &[u8]) {
    carried(near, far, data).await;
    carried(far, near, data).await;
}

async fn carried(from: &mut Stream, to: &mut Stream, data: &[u8]) {
    let mut got = vec![0; data.len()];
    let sending = async {
        from.write_all(data).await.unwrap();
        from.flush().await.unwrap();
    };
    let (_, received) = within(async { tokio::join!(sending, to.read_exact(&mut got)) }).await;
    received.unwrap();
    assert!(got == data, "{} bytes", data.len());
}

#[tokio::test]
async fn every_cipher_and_size_passes_between_both_kinds_of_records() {
    if !has_ktls() {
        return;
    }
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20] {
        let kernel = made_by(Records::Counted, cipher);
        let user = made_by(Records::UserSpace, cipher);
        for (server, mixed) in [(&kernel, false), (&user, true)] {
            let sides = Sides::with_each(&kernel, server);
            let (mut near, mut far) = sides.streams().await;
            assert_eq!((near.is_in_kernel(), far.is_in_kernel()), (true, !mixed));
            for size in [1, 2, 31, 1000, 16_383, 16_384, 16_385, 100_000, 1 << 20] {
                echoed(&mut near, &mut far, &pattern(size)).await;
            }
            near.shutdown().await.unwrap();
            assert_eq!(within(far.read(&mut [0])).await.unwrap(), 0);
            echoed_one_way(far, near).await;
        }
    }
}

/// After one end, the other direction goes on and ends as well.
async fn echoed_one_way(mut from: Stream, mut to: Stream) {
    from.write_all(b"last words").await.unwrap();
    from.shutdown().await.unwrap();
    let (got, end) = read_all(&mut to).await;
    end.unwrap();
    assert_eq!(got, b"last words");
}

#[tokio::test]
async fn a_connection_that_the_kernel_does_not_take_has_records_in_user_space() {
    if !has_ktls() {
        return;
    }
    let sides = Sides::new();
    let (mut listener, address) = sides.listen().await;
    let tcp = TcpStream::connect(address).await.unwrap();
    // It is there already: attaching it once more fails.
    // SAFETY: the descriptor is open, and the name is three bytes long.
    let attached = unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            c"tls".as_ptr().cast(),
            3,
        )
    };
    assert_eq!(attached, 0);
    let connecting = connect_over(tcp, NAME, &sides.client);
    let (near, far) = within(async { tokio::join!(connecting, listener.accept()) }).await;
    let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
    assert!(!near.is_in_kernel() && far.is_in_kernel());
    echoed(&mut near, &mut far, &pattern(50_000)).await;
    near.shutdown().await.unwrap();
    assert_eq!(within(far.read(&mut [0])).await.unwrap(), 0);
    echoed_one_way(far, near).await;
}

/// A client whose session is in the test's hands.
async fn session(tcp: &mut TcpStream, sides: &Sides) -> Session {
    let name = NAME.try_into().unwrap();
    let mut handshake = Handshake::client(&sides.client, name).unwrap();
    let mut bytes = [0; 4096];
    while !handshake.is_complete() {
        tcp.write_all(handshake.output()).await.unwrap();
        handshake.on_sent(handshake.output().len());
        let len = tcp.read(&mut bytes).await.unwrap();
        handshake.handle_input(&bytes[..len]).unwrap();
    }
    handshake.finish().unwrap().into_session().unwrap()
}

async fn send(session: &mut Session, tcp: &mut TcpStream) {
    let output = session.output().to_vec();
    tcp.write_all(&output).await.unwrap();
    session.on_sent(output.len());
}

#[tokio::test]
async fn a_new_key_of_the_peers_ends_the_stream_in_order_there_and_as_an_error_here() {
    if !has_ktls() {
        return;
    }
    for in_halves in [false, true] {
        let sides = Sides::new();
        let (mut listener, address) = sides.listen().await;
        let mut tcp = TcpStream::connect(address).await.unwrap();
        let (mut peer, accepted) = within(async {
            tokio::join!(
                async {
                    let mut session = session(&mut tcp, &sides).await;
                    send(&mut session, &mut tcp).await;
                    session
                },
                listener.accept()
            )
        })
        .await;
        let mut stream = accepted.unwrap().0;
        assert!(stream.is_in_kernel());
        let mut buffers = Buffers::new();
        assert_eq!(peer.write(b"old key", &mut buffers).unwrap(), 7);
        peer.request_key_update(true).unwrap();
        assert_eq!(peer.write(b"new key", &mut buffers).unwrap(), 7);
        send(&mut peer, &mut tcp).await;
        let mut got = [0; 100];
        assert_eq!(within(stream.read(&mut got)).await.unwrap(), 7);
        assert_eq!(&got[..7], b"old key");
        // Once said, it stays so, for both directions.
        let kinds = if in_halves {
            let (mut read, mut write) = stream.into_split();
            [
                within(read.read(&mut got)).await.unwrap_err(),
                within(read.read(&mut got)).await.unwrap_err(),
                within(write.write(b"more")).await.unwrap_err(),
            ]
        } else {
            [
                within(stream.read(&mut got)).await.unwrap_err(),
                within(stream.read(&mut got)).await.unwrap_err(),
                within(stream.write(b"more")).await.unwrap_err(),
            ]
        };
        for error in kinds {
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
            let why = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<SessionError>());
            assert!(matches!(why, Some(SessionError::KeyExhausted)), "{error}");
        }
        loop {
            match peer.read(&mut got).unwrap() {
                Read::End => break,
                Read::Data(len) => panic!("{len} bytes came"),
                Read::Wanting => {}
            }
            let room = peer.receive_buffer(&mut buffers);
            let len = within(tcp.read(room)).await.unwrap();
            assert!(len > 0, "an end without close_notify");
            peer.on_received(len);
        }
    }
}

/// Sends an alert record from a socket whose records the kernel makes.
fn send_alert(tcp: &TcpStream, alert: [u8; 2]) -> std::io::Result<()> {
    const SOL_TLS: libc::c_int = 282;
    const TLS_SET_RECORD_TYPE: libc::c_int = 1;
    const ALERT: u8 = 21;
    let mut vector = libc::iovec {
        iov_base: alert.as_ptr().cast_mut().cast(),
        iov_len: alert.len(),
    };
    let mut control = [0_u64; 4];
    // SAFETY: a `msghdr` of zeroes is an empty one; the macros only compute, and `control` has room for
    // a header and a byte; the message points at what outlives the call.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(1) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = SOL_TLS;
        (*header).cmsg_type = TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(header) = ALERT;
        libc::sendmsg(
            tcp.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    match sent {
        0.. => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[tokio::test]
async fn a_flood_of_alerts_ends_the_stream() {
    if !has_ktls() {
        return;
    }
    let sides = Sides::new();
    let (mut listener, address) = sides.listen().await;
    let mut tcp = TcpStream::connect(address).await.unwrap();
    let handshake = async {
        let name = NAME.try_into().unwrap();
        let mut handshake = Handshake::client(&sides.client, name).unwrap();
        let mut bytes = [0; 4096];
        while !handshake.is_complete() {
            tcp.write_all(handshake.output()).await.unwrap();
            handshake.on_sent(handshake.output().len());
            let room = handshake.wanted().min(bytes.len());
            let len = tcp.read(&mut bytes[..room]).await.unwrap();
            handshake.handle_input(&bytes[..len]).unwrap();
        }
        tcp.write_all(handshake.output()).await.unwrap();
        handshake.on_sent(handshake.output().len());
        handshake.finish().unwrap()
    };
    let (established, accepted) =
        within(async { tokio::join!(handshake, listener.accept()) }).await;
    let mut stream = accepted.unwrap().0;
    assert!(stream.is_in_kernel());
    ktls::install(tcp.as_fd(), established.kernel_keys().unwrap()).unwrap();
    // As many as are borne, a byte, and too many.
    for _ in 0..32 {
        send_alert(&tcp, [1, 90]).unwrap();
    }
    tcp.write_all(b"x").await.unwrap();
    let mut got = [0; 100];
    assert_eq!(within(stream.read(&mut got)).await.unwrap(), 1);
    for _ in 0..33 {
        send_alert(&tcp, [1, 90]).unwrap();
    }
    let error = within(stream.read(&mut got)).await.unwrap_err();
    let why = error
        .get_ref()
        .and_then(|e| e.downcast_ref::<SessionError>());
    assert!(
        matches!(why, Some(SessionError::PeerMisbehaved { .. })),
        "{error}"
    );
}
