//! Endpoints of two shards on real sockets, driven by a runtime of two threads.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{SECOND, configs, loopback, options};
use tokio::task::JoinSet;
use towline::config::{ClientConfig, ServerConfig};
use towline::io::SocketOptions;
use towline::{Connection, Endpoint, ShardStats};

/// An echo server of two shards.
fn serve(config: ServerConfig, options: SocketOptions) -> Endpoint {
    let address = loopback();
    let endpoint = Endpoint::builder()
        .server(config)
        .socket(options)
        .shards(2)
        .bind(address)
        .unwrap();
    let listening = endpoint.clone();
    tokio::spawn(async move {
        while let Some(connection) = listening.accept().await {
            tokio::spawn(echo(connection));
        }
    });
    endpoint
}

async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::spawn(async move {
            while let Some(chunk) = recv.read_chunk(usize::MAX).await? {
                send.write_chunk(chunk).await?;
            }
            send.finished().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
}

async fn round_trip(connection: &Connection, len: usize) {
    let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let write = async {
        send.write_all(&data).await.unwrap();
        send.finish().unwrap();
    };
    let both = async { tokio::join!(write, recv.read_to_end(len)) };
    let (_, back) = tokio::time::timeout(20 * SECOND, both).await.unwrap();
    assert_eq!(back.unwrap(), data);
}

/// Every client has its own socket, as clients of a server do.
async fn connect_all(server: &Endpoint, config: &ClientConfig, count: usize) -> Vec<Connection> {
    let mut attempts = JoinSet::new();
    for _ in 0..count {
        let (config, remote) = (config.clone(), server.local_addr());
        attempts.spawn(async move {
            let client = Endpoint::client(loopback()).unwrap();
            client.connect(remote, "localhost", &config).await.unwrap()
        });
    }
    tokio::time::timeout(20 * SECOND, attempts.join_all())
        .await
        .unwrap()
}

async fn round_trips(connections: &[Connection], len: usize) {
    let mut trips = JoinSet::new();
    for connection in connections {
        let connection = connection.clone();
        trips.spawn(async move { round_trip(&connection, len).await });
    }
    trips.join_all().await;
}

fn connections(stats: &[ShardStats]) -> Vec<usize> {
    stats.iter().map(|shard| shard.engine.connections).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_shards_share_the_connections_and_each_keeps_its_own() {
    let (client, server) = configs(&options());
    let server = serve(server, SocketOptions::default());
    let all = connect_all(&server, &client, 64).await;
    round_trips(&all, 100_000).await;
    let before = server.shard_stats();
    let admitted: Vec<_> = before.iter().map(|shard| shard.engine.admitted).collect();
    assert_eq!(admitted.iter().sum::<u64>(), 64);
    assert!(admitted.iter().all(|n| *n > 8), "{admitted:?}");

    round_trips(&all, 100_000).await;
    // Counters are published at the end of a driver's turn.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let after = server.shard_stats();
    assert_eq!(connections(&before), connections(&after));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.engine.admitted, after.engine.admitted);
        assert!(after.socket.datagrams_received > before.socket.datagrams_received);
        assert_eq!(after.engine.unroutable, 0);
        if !after.info.steering_refused {
            assert_eq!(after.socket.datagrams_handed_over, 0, "the kernel steers");
        }
    }
    let sum = server.socket_stats();
    assert!(sum.bytes_received >= 64 * 200_000);
    assert_eq!(sum.hand_over_drops, 0);

    server.close(0, b"done");
    tokio::time::timeout(20 * SECOND, server.wait_idle())
        .await
        .unwrap();
    assert_eq!(server.connection_count(), 0);
    for connection in all {
        tokio::time::timeout(20 * SECOND, connection.closed())
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_steering_shards_hand_datagrams_over_and_nothing_is_lost() {
    let (client, server) = configs(&options());
    let mut options = SocketOptions::default();
    options.steer = false;
    let server = serve(server, options);
    let all = connect_all(&server, &client, 32).await;
    round_trips(&all, 50_000).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stats = server.socket_stats();
    assert!(stats.datagrams_handed_over > 0, "the kernel cannot know");
    assert_eq!(stats.hand_over_drops, 0);
    for shard in server.shard_stats() {
        assert_eq!(shard.engine.unroutable, 0);
        assert!(shard.engine.admitted > 0);
    }
}

/// Carries datagrams between one client and the server, from a port it can change.
struct Nat {
    address: SocketAddr,
    /// Which of its ports is in use towards the server.
    port: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Nat {
    fn new(server: SocketAddr, ports: usize) -> Self {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket
                .set_read_timeout(Some(Duration::from_micros(200)))
                .unwrap();
            socket
        };
        let inside = bind();
        let outside: Vec<_> = (0..ports).map(|_| bind()).collect();
        let address = inside.local_addr().unwrap();
        let (port, over) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (chosen, stop) = (Arc::clone(&port), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            let mut client = None;
            while !stop.load(Ordering::Relaxed) {
                let outside = &outside[chosen.load(Ordering::Relaxed)];
                while let Ok((len, from)) = inside.recv_from(&mut buffer) {
                    client = Some(from);
                    let _ = outside.send_to(&buffer[..len], server);
                }
                while let (Ok(len), Some(client)) = (outside.recv(&mut buffer), client) {
                    let _ = inside.send_to(&buffer[..len], client);
                }
            }
        });
        Self {
            address,
            port,
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_behind_a_nat_that_rebinds_stays_with_its_shard() {
    const PORTS: usize = 12;
    let (client_config, server) = configs(&options());
    let server = serve(server, SocketOptions::default());
    if server.socket_info().steering_refused {
        // Nothing to see where the kernel cannot steer; handing over has its own test.
        return;
    }
    let nat = Nat::new(server.local_addr(), PORTS);
    let client = Endpoint::client(loopback()).unwrap();
    let connection = client
        .connect(nat.address, "localhost", &client_config)
        .await
        .unwrap();
    round_trip(&connection, 10_000).await;
    let received = || -> Vec<u64> {
        let stats = server.shard_stats();
        stats.iter().map(|s| s.socket.datagrams_received).collect()
    };
    let home = connections(&server.shard_stats())
        .iter()
        .position(|n| *n == 1)
        .unwrap();
    let mut seen = received();
    assert_eq!(seen[1 - home], 0);
    // With the kernel's own hash of addresses, twelve ports would hit both shards.
    for port in 1..PORTS {
        nat.port.store(port, Ordering::Relaxed);
        let (mut send, _recv) = connection.open_bi().await.unwrap();
        send.write_all(b"from another port").await.unwrap();
        let deadline = tokio::time::Instant::now() + 10 * SECOND;
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let now = received();
            assert_eq!(now[1 - home], 0, "port {port} went to the other shard");
            if now[home] > seen[home] {
                seen = now;
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "port {port}");
        }
    }
    // Back at the port the server answers to, the connection goes on.
    nat.port.store(0, Ordering::Relaxed);
    round_trip(&connection, 10_000).await;
    assert_eq!(connections(&server.shard_stats())[home], 1);
    let sum = server.socket_stats();
    assert_eq!(sum.datagrams_handed_over, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_of_two_shards_connects_from_both() {
    let (client_config, server_config) = configs(&options());
    let server = serve(server_config, SocketOptions::default());
    let client = Endpoint::builder().shards(2).bind(loopback()).unwrap();
    let mut all = Vec::new();
    for _ in 0..4 {
        let connect = client.connect(server.local_addr(), "localhost", &client_config);
        all.push(connect.await.unwrap());
    }
    round_trips(&all, 20_000).await;
    assert_eq!(connections(&client.shard_stats()), [2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_accepts_and_connects_in_turn_connects_from_both_shards() {
    let (client_config, server_config) = configs(&options());
    let upstream = serve(server_config.clone(), SocketOptions::default());
    let proxy = Endpoint::builder()
        .server(server_config)
        .shards(2)
        .bind(loopback())
        .unwrap();
    let clients = connect_all(&proxy, &client_config, 16).await;
    let before = connections(&proxy.shard_stats());
    let mut all = Vec::new();
    for _ in 0..clients.len() {
        let accepted = tokio::time::timeout(10 * SECOND, proxy.accept()).await;
        all.push(accepted.unwrap().unwrap());
        let connect = proxy.connect(upstream.local_addr(), "localhost", &client_config);
        all.push(connect.await.unwrap());
    }
    let after = connections(&proxy.shard_stats());
    assert_eq!([after[0] - before[0], after[1] - before[1]], [8, 8]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_accept_leaves_no_waker_and_takes_no_connection() {
    let (client_config, server_config) = configs(&options());
    let server = Endpoint::builder()
        .server(server_config)
        .shards(2)
        .bind(loopback())
        .unwrap();
    for _ in 0..20 {
        let accept = tokio::time::timeout(Duration::from_millis(1), server.accept());
        assert!(accept.await.is_err());
    }
    let all = connect_all(&server, &client_config, 8).await;
    for _ in 0..8 {
        let accepted = tokio::time::timeout(10 * SECOND, server.accept()).await;
        assert!(accepted.unwrap().is_some());
    }
    drop(all);
    server.close(0, b"");
    assert!(server.accept().await.is_none());
}

#[tokio::test]
async fn one_socket_cannot_be_two_shards() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = Endpoint::builder().shards(2).on_socket(socket).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let bind = |shards| Endpoint::builder().shards(shards).bind(loopback());
    assert_eq!(
        bind(0).unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
    assert_eq!(
        bind(65).unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_connection_ids_and_none_find_their_shard() {
    let (client_config, server_config) = configs(&options());
    let server = Endpoint::builder()
        .server(server_config.clone())
        .shards(2)
        .cid_len(4)
        .bind(loopback())
        .unwrap();
    let listening = server.clone();
    tokio::spawn(async move {
        while let Some(connection) = listening.accept().await {
            tokio::spawn(echo(connection));
        }
    });
    for (cid_len, connections) in [(4, 12), (0, 2)] {
        let client = Endpoint::builder()
            .shards(2)
            .cid_len(cid_len)
            .bind(loopback())
            .unwrap();
        let mut open = Vec::new();
        for _ in 0..connections {
            let connecting = client.connect(server.local_addr(), "localhost", &client_config);
            let connection = tokio::time::timeout(20 * SECOND, connecting).await.unwrap();
            open.push(connection.unwrap());
        }
        for connection in &open {
            round_trip(connection, 100_000).await;
        }
        if cid_len == 0 {
            // Each of the two shards has one with this server, on its own port.
            let third = client.connect(server.local_addr(), "localhost", &client_config);
            let error = third.await.unwrap_err();
            assert!(error.to_string().contains("no connection IDs"), "{error}");
        }
    }
    let refused = Endpoint::builder()
        .server(server_config)
        .cid_len(0)
        .bind(loopback());
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("needs connection IDs")
    );
    let odd = Endpoint::builder().cid_len(3).bind(loopback()).unwrap_err();
    assert!(odd.to_string().contains("`cid_len` is 3 bytes"), "{odd}");
}
