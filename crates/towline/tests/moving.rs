//! Clients that move, over real sockets on the loopback interface, all of which is 127.0.0.0/8.

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};

use common::{configs, loopback, options, within};
use towline::{Connection, Endpoint, MigrateError, RecvStream};

const LEN: usize = 30_000_000;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// A connection of a client that is bound to `bind`, on which the server sends `LEN` bytes.
async fn download(bind: SocketAddr) -> (Endpoint, Connection, Connection, RecvStream) {
    let (config, server) = configs(&options());
    let server = Endpoint::server(loopback(), server).unwrap();
    let client = Endpoint::client(bind).unwrap();
    let connect = client.connect(server.local_addr(), "localhost", &config);
    let (near, far) = within(async { tokio::join!(connect, server.accept()) }).await;
    let (near, far) = (near.unwrap(), far.unwrap());
    let sender = far.clone();
    tokio::spawn(async move {
        let mut stream = sender.open_uni().await.unwrap();
        stream.write_all(&pattern(LEN)).await.unwrap();
        stream.finished().await.unwrap();
    });
    let stream = within(near.accept_uni()).await.unwrap();
    (client, near, far, stream)
}

/// Reads on, `bytes` or to the end.
async fn read(stream: &mut RecvStream, got: &mut Vec<u8>, bytes: usize) {
    let enough = got.len().saturating_add(bytes);
    while got.len() < enough {
        match within(stream.read_chunk(usize::MAX)).await.unwrap() {
            Some(chunk) => got.extend_from_slice(&chunk),
            None => return,
        }
    }
}

#[tokio::test]
async fn a_download_goes_on_on_one_socket_after_another() {
    let (client, near, far, mut stream) = download(loopback()).await;
    let mut got = Vec::new();
    let mut ports = vec![client.local_addr().port()];
    for _ in 0..4 {
        read(&mut stream, &mut got, 2_000_000).await;
        let socket = UdpSocket::bind(loopback()).unwrap();
        let address = socket.local_addr().unwrap();
        client.rebind(socket).unwrap();
        read(&mut stream, &mut got, 2_000_000).await;
        assert_eq!(client.local_addr(), address);
        assert_eq!(far.remote_addr(), address);
        ports.push(address.port());
    }
    read(&mut stream, &mut got, usize::MAX / 2).await;
    assert!(got == pattern(LEN), "{} bytes", got.len());
    assert_eq!(near.stats().path_changes, 4);
    assert_eq!(far.stats().path_changes, 4);
    // It connects from where it is now.
    ports.dedup();
    assert_eq!(ports.len(), 5);
}

#[tokio::test]
async fn both_ends_hear_of_another_path() {
    let (client, near, far, mut stream) = download(loopback()).await;
    let mut got = Vec::new();
    read(&mut stream, &mut got, 2_000_000).await;
    // Data has taken one path; packets of other sizes were told by then, or are told first.
    let (near_before, mut far_now) = (near.path(), far.path());
    assert_eq!((near_before.changes, far_now.changes), (0, 0));
    assert_eq!(far_now.remote_addr, client.local_addr());

    let socket = UdpSocket::bind(loopback()).unwrap();
    let address = socket.local_addr().unwrap();
    client.rebind(socket).unwrap();
    let reading = read(&mut stream, &mut got, 2_000_000);
    let hearing = async {
        while far_now.changes == 0 {
            let next = far.path_changed(&far_now).await.unwrap();
            assert_ne!(next, far_now);
            far_now = next;
        }
        near.path_changed(&near_before).await.unwrap()
    };
    let ((), near_now) = within(async { tokio::join!(reading, hearing) }).await;
    assert_eq!((far_now.remote_addr, far_now.changes), (address, 1));
    assert_eq!(near_now.remote_addr, near_before.remote_addr);
    assert_eq!(near_now.changes, 1);

    let known = near.path();
    near.close(0, b"");
    assert!(within(near.path_changed(&known)).await.is_err());
    assert_eq!(near.path().changes, 1);
}

#[tokio::test]
async fn a_client_moves_to_another_address_of_its_host() {
    let any = "0.0.0.0:0".parse().unwrap();
    let (_client, near, far, mut stream) = download(any).await;
    let mut got = Vec::new();
    read(&mut stream, &mut got, 2_000_000).await;
    let first = far.remote_addr();
    let second: IpAddr = "127.0.0.2".parse().unwrap();
    // A connection ID for it is under way with the first packets.
    while let Err(error) = near.migrate(second) {
        assert!(matches!(
            error,
            MigrateError::NoConnectionId | MigrateError::HandshakeNotConfirmed
        ));
        read(&mut stream, &mut got, 1).await;
    }
    read(&mut stream, &mut got, usize::MAX / 2).await;
    assert!(got == pattern(LEN), "{} bytes", got.len());
    assert_eq!(far.remote_addr(), SocketAddr::new(second, first.port()));
    assert_eq!(near.stats().paths_validated, 1);
}

#[tokio::test]
async fn a_socket_that_does_not_fit_is_refused() {
    let one = Endpoint::client(loopback()).unwrap();
    if let Ok(other_family) = UdpSocket::bind("[::1]:0") {
        let error = one.rebind(other_family).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    let two = Endpoint::builder().shards(2).bind(loopback()).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let error = two.rebind(socket).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
