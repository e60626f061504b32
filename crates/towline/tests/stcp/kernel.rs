//! Records that the kernel makes, where it has kTLS: `make kmod-test` runs these tests, as all others
//! of this program, on kernels that have it.

use std::future::{Future as _, poll_fn};
use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use towline::config::{Cipher, CipherPreference};
use towline::stcp::{Options, Records, SessionError, Stream, connect_over, ktls};
use towline_stcp::{Buffers, Handshake, Read, Session};

use crate::peers::{NAME, Sides, file, options, pattern, read_all, within};

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
    options()
        .records(records)
        .ciphers(CipherPreference::only(cipher))
}

#[tokio::test]
async fn the_kernel_makes_the_records_where_it_can_and_is_asked_to() {
    let expected = ktls::is_available().is_ok();
    let asked = made_by(Records::Kernel, Cipher::Aes128Gcm);
    let (near, far) = Sides::with(&asked).streams().await;
    assert_eq!(
        (near.is_in_kernel(), far.is_in_kernel()),
        (expected, expected)
    );
    let user = made_by(Records::UserSpace, Cipher::Aes128Gcm);
    let (mut near, far) = Sides::with(&user).streams().await;
    near.send_file(&file(10), 0, 10).await.unwrap();
    assert!(!near.is_in_kernel() && !far.is_in_kernel());
}

#[tokio::test]
async fn by_default_the_kernel_has_the_key_from_the_first_file_on() {
    let expected = ktls::is_available().is_ok();
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20] {
        for is_over in [false, true] {
            let counted = made_by(Records::Counted, cipher);
            let (mut near, mut far) = Sides::with(&counted).streams().await;
            echoed(&mut near, &mut far, &pattern(100_000)).await;
            assert!(!near.is_in_kernel() && !far.is_in_kernel());
            if is_over {
                // A client that has asked and waits for the file: the kernel takes that one as well.
                far.shutdown().await.unwrap();
                assert_eq!(within(near.read(&mut [0])).await.unwrap(), 0);
            }
            let file = file(100_000);
            let mut got = vec![0; 100_010];
            let sending = async {
                near.write_all(b"before").await.unwrap();
                near.send_file(&file, 0, 100_000).await.unwrap();
                near.write_all(b"last").await.unwrap();
                near.flush().await.unwrap();
            };
            let ((), came) =
                within(async { tokio::join!(sending, far.read_exact(&mut got)) }).await;
            came.unwrap();
            assert!(got == [b"before", &pattern(100_000)[..], b"last"].concat());
            assert_eq!((near.is_in_kernel(), far.is_in_kernel()), (expected, false));
        }
    }
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
        let kernel = made_by(Records::Kernel, cipher);
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
    let sides = Sides::with(&made_by(Records::Kernel, Cipher::Aes128Gcm));
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

#[tokio::test]
async fn what_a_file_that_has_to_wait_put_into_the_socket_is_under_way() {
    const LEN: usize = 200_000;
    for records in [Records::Counted, Records::Kernel, Records::UserSpace] {
        for nodelay in [true, false] {
            let sides = Sides::with(&made_by(records, Cipher::Aes128Gcm));
            let (mut near, mut far) = sides.streams().await;
            let fd = near.tcp().as_raw_fd();
            near.set_nodelay(nodelay).unwrap();
            // The kernel makes the least of it that it has, less than a record.
            let socket = socket2::SockRef::from(near.tcp());
            socket.set_send_buffer_size(1).unwrap();
            let file = file(LEN);
            let mut got = vec![0; LEN];
            {
                let sending = async {
                    let sent = near.send_file(&file, 0, LEN as u64).await;
                    near.flush().await.unwrap();
                    sent
                };
                let mut sending = std::pin::pin!(sending);
                let polled = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                // The peer has room for it, and nothing was under way before.
                assert_eq!(unsent(fd), 0, "{records:?}");
                let both = async { tokio::join!(sending, far.read_exact(&mut got)) };
                let (sent, came) = within(both).await;
                assert_eq!(sent.unwrap(), LEN as u64);
                came.unwrap();
            }
            assert!(got == pattern(LEN));
            assert_eq!(near.tcp().nodelay().unwrap(), nodelay);
        }
    }
}

/// Bytes in the socket's queue that TCP has never sent.
fn unsent(fd: RawFd) -> libc::c_int {
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    let mut unsent = -1;
    // SAFETY: the descriptor is open, and the call writes one number, which outlives it.
    let result = unsafe { libc::ioctl(fd, SIOCOUTQNSD as _, &raw mut unsent) };
    assert_eq!(result, 0);
    unsent
}

/// A client whose session is in the test's hands.
struct Peer {
    tcp: TcpStream,
    session: Session,
    buffers: Buffers,
}

impl Peer {
    /// It and the server's stream.
    async fn meet(options: &Options) -> (Self, Stream) {
        let sides = Sides::with(options);
        let (mut listener, address) = sides.listen().await;
        let connecting = async {
            let mut tcp = TcpStream::connect(address).await.unwrap();
            let name = NAME.try_into().unwrap();
            let mut handshake = Handshake::client(&sides.client, name).unwrap();
            let mut bytes = [0; 4096];
            while !handshake.is_complete() {
                tcp.write_all(handshake.output()).await.unwrap();
                handshake.on_sent(handshake.output().len());
                let len = tcp.read(&mut bytes).await.unwrap();
                handshake.handle_input(&bytes[..len]).unwrap();
            }
            let mut peer = Self {
                tcp,
                session: handshake.finish().unwrap().into_session().unwrap(),
                buffers: Buffers::new(),
            };
            peer.send().await;
            peer
        };
        let (peer, accepted) = within(async { tokio::join!(connecting, listener.accept()) }).await;
        (peer, accepted.unwrap().0)
    }

    /// Sends the session's output.
    async fn send(&mut self) {
        let output = self.session.output().to_vec();
        self.tcp.write_all(&output).await.unwrap();
        self.session.on_sent(output.len());
    }

    async fn write(&mut self, data: &[u8]) {
        let taken = self.session.write(data, &mut self.buffers).unwrap();
        assert_eq!(taken, data.len());
        self.send().await;
    }

    /// What comes next: bytes, or none at the end in order.
    async fn read(&mut self) -> Result<Vec<u8>, SessionError> {
        let mut bytes = vec![0; 20_000];
        loop {
            match self.session.read(&mut bytes)? {
                Read::End => return Ok(Vec::new()),
                Read::Data(len) => return Ok(bytes[..len].to_vec()),
                Read::Wanting => {}
            }
            self.send().await;
            let room = self.session.receive_buffer(&mut self.buffers);
            match within(self.tcp.read(room)).await.unwrap() {
                0 => self.session.handle_eof()?,
                len => self.session.on_received(len),
            }
        }
    }

    /// So many bytes, which must be what comes next.
    async fn expect(&mut self, data: &[u8]) {
        let mut got = Vec::new();
        while got.len() < data.len() {
            let bytes = self.read().await.unwrap();
            assert!(!bytes.is_empty(), "the end");
            got.extend_from_slice(&bytes);
        }
        assert!(got == data, "{} bytes", got.len());
    }
}

async fn expect(stream: &mut (impl AsyncRead + Unpin), data: &[u8]) {
    let mut got = vec![0; data.len()];
    within(stream.read_exact(&mut got)).await.unwrap();
    assert!(got == data);
}

#[tokio::test]
async fn keys_change_both_ways_until_a_file_is_sent_and_the_peers_ever_after() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20] {
        let (mut peer, mut stream) = Peer::meet(&made_by(Records::Counted, cipher)).await;
        for round in 0..5 {
            // The answer to the last request is due when the file comes.
            peer.session.request_key_update(true).unwrap();
            peer.write(&[round; 100]).await;
            expect(&mut stream, &[round; 100]).await;
            if round < 4 {
                stream.write_all(&[round; 50]).await.unwrap();
                peer.expect(&[round; 50]).await;
            }
        }
        assert_eq!(stream.send_file(&file(5000), 0, 5000).await.unwrap(), 5000);
        peer.expect(&pattern(5000)).await;
        for round in 0..5 {
            peer.session.request_key_update(false).unwrap();
            peer.write(&[round; 100]).await;
            expect(&mut stream, &[round; 100]).await;
            stream.write_all(&[round; 50]).await.unwrap();
            peer.expect(&[round; 50]).await;
        }
        stream.shutdown().await.unwrap();
        assert!(peer.read().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn after_a_request_for_a_new_key_the_kernel_sends_nothing_and_reading_goes_on() {
    if !has_ktls() {
        return;
    }
    for records in [Records::Kernel, Records::Counted] {
        for in_halves in [false, true] {
            let (peer, mut stream) = Peer::meet(&made_by(records, Cipher::Aes128Gcm)).await;
            stream.send_file(&file(5000), 0, 5000).await.unwrap();
            assert!(stream.is_in_kernel());
            if in_halves {
                let (mut read, mut write) = stream.into_split();
                writing_fails(peer, &mut read, &mut write).await;
            } else {
                let (mut read, mut write) = tokio::io::split(stream);
                writing_fails(peer, &mut read, &mut write).await;
            }
        }
    }
}

/// After a file of 5,000 bytes, the peer asks for a new key.
async fn writing_fails(
    mut peer: Peer,
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
) {
    peer.write(b"old key").await;
    peer.session.request_key_update(true).unwrap();
    peer.write(b"new key").await;
    expect(read, b"old keynew key").await;
    for _ in 0..2 {
        let error = within(write.write(b"more")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(matches!(why(&error), Some(SessionError::KernelKeyEnded)));
    }
    peer.expect(&pattern(5000)).await;
    for round in 0..5 {
        peer.session.request_key_update(round % 2 == 0).unwrap();
        peer.write(&[round; 100]).await;
        expect(read, &[round; 100]).await;
    }
    peer.session.close_write().unwrap();
    peer.send().await;
    assert_eq!(within(read.read(&mut [0])).await.unwrap(), 0);
    // The peer must not take what it has for all there is.
    let error = within(write.shutdown()).await.unwrap_err();
    assert!(matches!(why(&error), Some(SessionError::KernelKeyEnded)));
    assert!(matches!(peer.read().await, Err(SessionError::Truncated)));
}

#[tokio::test]
async fn who_has_written_everything_ends_in_order_though_a_new_key_was_asked_for() {
    let (mut peer, mut stream) = Peer::meet(&made_by(Records::Counted, Cipher::Aes128Gcm)).await;
    stream.send_file(&file(5000), 0, 5000).await.unwrap();
    peer.session.request_key_update(true).unwrap();
    peer.write(b"new key").await;
    expect(&mut stream, b"new key").await;
    within(stream.shutdown()).await.unwrap();
    peer.expect(&pattern(5000)).await;
    assert!(peer.read().await.unwrap().is_empty(), "the end in order");
}

fn why(error: &std::io::Error) -> Option<&SessionError> {
    error.get_ref()?.downcast_ref()
}

#[tokio::test]
async fn a_flood_of_new_keys_ends_the_stream_and_the_kernel_says_why() {
    let (mut peer, mut stream) = Peer::meet(&made_by(Records::Kernel, Cipher::Aes128Gcm)).await;
    assert_eq!(stream.is_in_kernel(), has_ktls());
    // As many as are borne, a byte, and too many.
    for _ in 0..32 {
        peer.session.request_key_update(false).unwrap();
    }
    peer.write(b"x").await;
    expect(&mut stream, b"x").await;
    for _ in 0..33 {
        peer.session.request_key_update(false).unwrap();
    }
    peer.send().await;
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert!(
        matches!(why(&error), Some(SessionError::PeerMisbehaved { .. })),
        "{error}"
    );
    let error = peer.read().await.unwrap_err();
    assert!(error.to_string().contains("UnexpectedMessage"), "{error}");
}
