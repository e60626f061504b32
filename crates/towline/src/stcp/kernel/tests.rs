//! Over plain sockets, where every byte is data: what needs a kernel with kTLS runs in the guest of
//! `make kmod-test`.

use std::future::poll_fn;
use std::pin::Pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use towline_identity::{ClientAuth, Identity, Trust};
use towline_stcp::Handshake;

use super::super::{Options, client_config, server_config};
use super::*;

/// A socket whose session believes that the kernel has the keys, and the raw other end.
async fn records() -> (KernelRecords, TcpStream, TcpStream) {
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
    let session = server.finish().unwrap().into_kernel_session();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(near, listener.accept());
    (KernelRecords::new(session), near.unwrap(), far.unwrap().0)
}

async fn read(records: &mut KernelRecords, tcp: &TcpStream, room: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; room];
    let mut out = ReadBuf::new(&mut bytes);
    poll_fn(|cx| records.poll_read(tcp, cx, &mut out)).await?;
    Ok(out.filled().to_vec())
}

#[tokio::test]
async fn data_passes_and_an_end_without_close_notify_is_a_cut() {
    let (mut records, tcp, mut far) = records().await;
    far.write_all(b"hello").await.unwrap();
    assert_eq!(read(&mut records, &tcp, 3).await.unwrap(), b"hel");
    assert_eq!(read(&mut records, &tcp, 30).await.unwrap(), b"lo");
    let slices = [IoSlice::new(b""), IoSlice::new(b"world")];
    let sent = poll_fn(|cx| records.poll_write(&tcp, cx, &slices)).await;
    assert_eq!(sent.unwrap(), 5);
    let mut got = [0; 5];
    far.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"world");
    Pin::new(&mut far).shutdown().await.unwrap();
    let error = read(&mut records, &tcp, 30).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn after_the_end_nothing_is_written() {
    let (mut records, tcp, mut far) = records().await;
    assert!(!records.is_shut_down());
    poll_fn(|cx| records.poll_shutdown(&tcp, cx)).await.unwrap();
    assert!(records.is_shut_down());
    let sent = poll_fn(|cx| records.poll_write(&tcp, cx, &[IoSlice::new(b"more")])).await;
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(
        got, CLOSE_NOTIFY,
        "a plain socket sends the alert's content"
    );
}

#[tokio::test]
async fn a_used_up_key_ends_the_stream_in_order() {
    let (mut records, tcp, mut far) = records().await;
    far.write_all(b"still to be read").await.unwrap();
    records.session.on_written(400 << 30);
    let sent = poll_fn(|cx| records.poll_write(&tcp, cx, &[IoSlice::new(b"more")])).await;
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidData);
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, CLOSE_NOTIFY);
    // What came before is there, though the socket was emptied at our end.
    assert_eq!(read(&mut records, &tcp, 5).await.unwrap(), b"still");
    assert_eq!(read(&mut records, &tcp, 30).await.unwrap(), b" to be read");
}

#[tokio::test]
async fn a_file_is_counted_as_what_is_written() {
    let (mut records, tcp, mut far) = records().await;
    let path = std::env::temp_dir().join(format!("towline-kernel-{}", std::process::id()));
    std::fs::write(&path, b"0123456789").unwrap();
    let file = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let sent = poll_fn(|cx| records.poll_send_file(&tcp, cx, &file, 2, 5)).await;
    assert_eq!(sent.unwrap(), 5);
    let mut got = [0; 5];
    far.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"23456");
    records.session.on_written(400 << 30);
    let sent = poll_fn(|cx| records.poll_send_file(&tcp, cx, &file, 0, 5)).await;
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidData);
}
