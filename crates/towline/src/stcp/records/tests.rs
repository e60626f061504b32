//! A session that believes that the kernel sends, over plain sockets, where every byte that is written
//! goes out as it is: what needs a kernel with kTLS runs in the guest of `make kmod-test`.

use std::future::poll_fn;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use towline_identity::{ClientAuth, Identity, Trust};
use towline_stcp::{Handshake, SessionError};

use super::super::{Options, client_config, server_config};
use super::*;

const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// One side that sends by the kernel, as it believes, and its peer.
struct Pair {
    records: RecordLayer,
    tcp: TcpStream,
    peer: Session,
    far: TcpStream,
}

impl Pair {
    async fn new() -> Self {
        let identity = Identity::generate_raw_key().unwrap();
        let options = Options::default();
        let trust = Trust::RawKeys(vec![identity.key_pin()]);
        let client = client_config(&trust, None, &options).unwrap();
        let server = server_config(&identity, &ClientAuth::None, &options).unwrap();
        let mut client = Handshake::client(&client, "localhost".try_into().unwrap()).unwrap();
        let mut server = Handshake::server(&server).unwrap();
        while !(client.is_complete() && server.is_complete()) {
            let (up, down) = (client.output().to_vec(), server.output().to_vec());
            client.on_sent(up.len());
            server.on_sent(down.len());
            server.handle_input(&up).unwrap();
            client.handle_input(&down).unwrap();
        }
        let tickets = server.output().len();
        server.on_sent(tickets);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (tcp, far) = tokio::join!(near, listener.accept());
        let (tcp, far) = (tcp.unwrap(), far.unwrap().0);
        let session = server.finish().unwrap().into_session().unwrap();
        let mut records = RecordLayer::new(session, &tcp, Records::UserSpace).unwrap();
        assert!(records.session.key_for_kernel().unwrap().is_some());
        records.session.on_kernel_has_key();
        Self {
            records,
            tcp,
            peer: client.finish().unwrap().into_session().unwrap(),
            far,
        }
    }

    /// The peer writes that.
    async fn hear(&mut self, data: &[u8]) {
        let output = said(&mut self.peer, data);
        self.far.write_all(&output).await.unwrap();
    }

    async fn read(&mut self, room: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; room];
        let mut out = ReadBuf::new(&mut bytes);
        poll_fn(|cx| self.records.poll_read(&self.tcp, cx, &mut out)).await?;
        Ok(out.filled().to_vec())
    }

    async fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let slices = [IoSlice::new(b""), IoSlice::new(data)];
        poll_fn(|cx| self.records.poll_write(&self.tcp, cx, &slices)).await
    }

    async fn send_file(&mut self, file: &File, offset: u64, len: u64) -> io::Result<usize> {
        poll_fn(|cx| {
            let tcp = &self.tcp;
            self.records.poll_send_file(tcp, cx, file, offset, len)
        })
        .await
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.records.poll_shutdown(&self.tcp, cx)).await
    }

    /// All that was sent, to the end.
    async fn sent(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        self.far.read_to_end(&mut got).await.unwrap();
        got
    }
}

/// The records of that.
fn said(peer: &mut Session, data: &[u8]) -> Vec<u8> {
    assert_eq!(peer.write(data, &mut Buffers::new()).unwrap(), data.len());
    let output = peer.output().to_vec();
    peer.on_sent(output.len());
    output
}

fn is_key_ended(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|why| why.downcast_ref());
    matches!(why, Some(SessionError::KernelKeyEnded)) && error.kind() == ErrorKind::InvalidData
}

#[tokio::test]
async fn data_passes_and_an_end_without_close_notify_is_a_cut() {
    let mut pair = Pair::new().await;
    pair.hear(b"hello").await;
    assert_eq!(pair.read(3).await.unwrap(), b"hel");
    assert_eq!(pair.read(30).await.unwrap(), b"lo");
    assert_eq!(pair.write(b"world").await.unwrap(), 5);
    assert_eq!(pair.write(b"").await.unwrap(), 0);
    let mut got = [0; 5];
    pair.far.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"world");
    pair.far.shutdown().await.unwrap();
    let error = pair.read(30).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn after_the_end_nothing_is_written() {
    let mut pair = Pair::new().await;
    assert!(!pair.records.is_shut_down());
    pair.shutdown().await.unwrap();
    assert!(pair.records.is_shut_down());
    let error = pair.write(b"more").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    let sent = pair.sent().await;
    assert_eq!(
        sent, CLOSE_NOTIFY,
        "a plain socket sends the alert's content"
    );
}

#[tokio::test]
async fn with_a_used_up_key_nothing_is_written_and_the_peer_sees_a_cut() {
    let mut pair = Pair::new().await;
    pair.hear(b"still to be read").await;
    pair.records.session.on_written(400 << 30);
    assert!(is_key_ended(&pair.write(b"more").await.unwrap_err()));
    assert_eq!(pair.read(5).await.unwrap(), b"still");
    assert_eq!(pair.read(30).await.unwrap(), b" to be read");
    pair.peer.request_key_update(true).unwrap();
    pair.hear(b"with a new key").await;
    assert_eq!(pair.read(30).await.unwrap(), b"with a new key");
    assert!(is_key_ended(&pair.write(b"more").await.unwrap_err()));
    assert!(is_key_ended(&pair.shutdown().await.unwrap_err()));
    assert!(pair.records.is_shut_down());
    assert_eq!(pair.sent().await, b"", "FIN, and no close_notify");
}

#[tokio::test]
async fn who_has_written_everything_notices_no_request_for_a_new_key() {
    let mut pair = Pair::new().await;
    assert_eq!(pair.write(b"before").await.unwrap(), 6);
    pair.peer.request_key_update(true).unwrap();
    pair.hear(b"with a new key").await;
    assert_eq!(pair.read(30).await.unwrap(), b"with a new key");
    pair.shutdown().await.unwrap();
    assert_eq!(pair.sent().await, [&b"before"[..], &CLOSE_NOTIFY].concat());
    pair.hear(b"more").await;
    assert_eq!(pair.read(30).await.unwrap(), b"more");
}

#[tokio::test]
async fn a_file_is_counted_as_what_is_written() {
    let mut pair = Pair::new().await;
    let path = std::env::temp_dir().join(format!("towline-kernel-{}", std::process::id()));
    std::fs::write(&path, b"0123456789").unwrap();
    let file = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(pair.send_file(&file, 2, 5).await.unwrap(), 5);
    let mut got = [0; 5];
    pair.far.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"23456");
    pair.records.session.on_written(400 << 30);
    assert!(is_key_ended(
        &pair.send_file(&file, 0, 5).await.unwrap_err()
    ));
}

#[tokio::test]
async fn a_writer_that_waits_for_the_socket_is_told_of_the_request_that_the_reader_met() {
    let Pair {
        records,
        tcp,
        mut peer,
        mut far,
    } = Pair::new().await;
    let shared = Arc::new((std::sync::Mutex::new(records), tcp));
    let writer = tokio::spawn({
        let shared = Arc::clone(&shared);
        async move {
            let data = [7; 64 * 1024];
            let mut written = 0;
            loop {
                let piece = poll_fn(|cx| {
                    let mut records = shared.0.lock().unwrap();
                    records.poll_write(&shared.1, cx, &[IoSlice::new(&data)])
                });
                match piece.await {
                    Ok(len) => written += len,
                    Err(error) => return (written, error),
                }
            }
        }
    });
    let reader = tokio::spawn({
        let shared = Arc::clone(&shared);
        async move {
            for _ in 0..2 {
                let mut bytes = [0; 30];
                let mut out = ReadBuf::new(&mut bytes);
                let read = poll_fn(|cx| {
                    let mut records = shared.0.lock().unwrap();
                    records.poll_read(&shared.1, cx, &mut out)
                });
                read.await.unwrap();
                assert_eq!(out.filled(), b"new key");
            }
        }
    });
    // The socket is full before the request comes, and nobody else has a turn meanwhile.
    while shared.0.lock().unwrap().waiting.writer.is_none() {
        tokio::task::yield_now().await;
    }
    peer.request_key_update(true).unwrap();
    far.write_all(&said(&mut peer, b"new key")).await.unwrap();
    let mut got = vec![0; 64 * 1024];
    let mut came = 0;
    while !writer.is_finished() {
        tokio::select! {
            len = far.read(&mut got) => came += len.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    let (written, error) = writer.await.unwrap();
    assert!(is_key_ended(&error), "{error}");
    assert!(came <= written);
    far.write_all(&said(&mut peer, b"new key")).await.unwrap();
    reader.await.unwrap();
}

#[tokio::test]
async fn what_the_kernel_has_no_memory_for_is_offered_again_until_it_has() {
    let mut pair = Pair::new().await;
    let mut offers = 0;
    let offering = poll_fn(|cx| {
        pair.records.poll_by_kernel(&pair.tcp, cx, || {
            offers += 1;
            // The socket has room all the while, so no event will come.
            match offers {
                ..20 => Err(ErrorKind::WouldBlock.into()),
                _ => Ok(5),
            }
        })
    });
    let taken = tokio::time::timeout(Duration::from_secs(30), offering).await;
    assert_eq!(taken.expect("it waits for an event").unwrap(), 5);
    assert!(pair.records.pause.is_none());
    assert_eq!(offers, 20);
}

#[test]
fn where_nobody_keeps_the_time_the_streams_own_runtime_does() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut pair = runtime.block_on(Pair::new());
    let mut cx = Context::from_waker(Waker::noop());
    let none = || Err(ErrorKind::WouldBlock.into());
    let offered = pair.records.poll_by_kernel(&pair.tcp, &mut cx, none);
    assert!(offered.is_pending());
    assert!(pair.records.pause.is_some());
}
