//! The tokio API over real sockets on the loopback interface.

mod common;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use common::{SECOND, configs, loopback, options, within};
use rustls::KeyLog;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline::config::{
    self, ClientConfig, KeyExchange, KeyExchangePreference, KeyLogging, Options, Resumption,
};
use towline::engine::{Close, TimeoutReason};
use towline::handles::{MAX_ACCEPT_QUEUE, MAX_DATAGRAM_FATES, Waiter};
use towline::{
    ConnectError, Connection, ConnectionError, DatagramFate, DatagramOptions, Endpoint, ReadError,
    ReadExactError, ReadToEndError, ResetAtError, SendDatagramError, WriteError,
};

/// A client and a server endpoint with one connection between them.
struct Pair {
    client: Endpoint,
    server: Endpoint,
    near: Connection,
    far: Connection,
    config: ClientConfig,
}

impl Pair {
    async fn new() -> Self {
        Self::with(&options()).await
    }

    async fn with(options: &Options) -> Self {
        let (config, server) = configs(options);
        let server = Endpoint::server(loopback(), server).unwrap();
        let client = Endpoint::client(loopback()).unwrap();
        let connect = client.connect(server.local_addr(), "localhost", &config);
        let (near, far) = within(async { tokio::join!(connect, server.accept()) }).await;
        Self {
            near: near.unwrap(),
            far: far.unwrap(),
            client,
            server,
            config,
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// Echoes every bidirectional stream of a connection until it ends.
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

async fn round_trip(connection: &Connection, data: &[u8]) -> Vec<u8> {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let write = async {
        send.write_all(data).await.unwrap();
        send.finish().unwrap();
    };
    let (_, back) = within(async { tokio::join!(write, recv.read_to_end(data.len())) }).await;
    back.unwrap()
}

#[tokio::test]
async fn transport_settings_that_make_no_sense_are_refused_at_both_ends() {
    let mut wrong = options();
    wrong.transport.initial_rtt = Duration::ZERO;
    let (config, server) = configs(&wrong);
    let error = Endpoint::server(loopback(), server).expect_err("no server has such a setting");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("`initial_rtt`"), "{error}");
    let client = Endpoint::client(loopback()).unwrap();
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let refused = within(client.connect(nobody, "localhost", &config)).await;
    let error = refused.expect_err("no client has such a setting");
    assert!(matches!(error, ConnectError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("`initial_rtt`"), "{error}");
}

#[tokio::test]
async fn a_stream_echoes_whole() {
    let pair = Pair::new().await;
    tokio::spawn(echo(pair.far.clone()));
    let data = pattern(5_000_000);
    assert_eq!(round_trip(&pair.near, &data).await, data);
    let stats = pair.near.stats();
    assert!(stats.packets_sent > 1000);
    assert!(pair.near.rtt() > Duration::ZERO);
    assert_eq!(pair.near.alpn().as_deref(), Some(b"test".as_slice()));
    assert!(pair.near.peer_identity().is_some());
    assert_eq!(pair.far.peer_identity(), None);
    assert_eq!(pair.near.remote_addr(), pair.server.local_addr());
    assert_eq!(pair.far.remote_addr(), pair.client.local_addr());
}

#[tokio::test]
async fn a_host_is_connected_to_by_its_name() {
    let (config, server) = configs(&options());
    let server = Endpoint::server(loopback(), server).unwrap();
    let port = server.local_addr().port();
    let client = Endpoint::client("0.0.0.0:0".parse().unwrap()).unwrap();
    let connecting = client.connect_host("localhost", port, &config);
    let (near, far) = within(async { tokio::join!(connecting, server.accept()) }).await;
    assert_eq!(near.unwrap().remote_addr(), server.local_addr());
    assert_eq!(far.unwrap().server_name().as_deref(), Some("localhost"));
    let error = within(client.connect_host("no.such.host.invalid", port, &config)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ConnectError::Lookup { .. }), "{error}");
}

#[tokio::test]
async fn marks_survive_the_loopback_interface() {
    let pair = Pair::new().await;
    tokio::spawn(echo(pair.far.clone()));
    let data = pattern(200_000);
    assert_eq!(round_trip(&pair.near, &data).await, data);
    for end in [&pair.near, &pair.far] {
        let stats = end.stats();
        assert!(stats.ecn_capable, "{stats:?}");
        assert_eq!(stats.ce_marks, 0, "nothing is congested here");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_streams_of_many_tasks_share_a_connection() {
    let pair = Pair::new().await;
    tokio::spawn(echo(pair.far.clone()));
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..200usize {
        let near = pair.near.clone();
        tasks.spawn(async move {
            let data = pattern(1000 + i * 37);
            assert_eq!(round_trip(&near, &data).await, data);
        });
    }
    within(async { while tasks.join_next().await.transpose().unwrap().is_some() {} }).await;
}

#[tokio::test]
async fn a_second_connection_resumes_the_first_ones_session() {
    let pair = Pair::new().await;
    tokio::spawn(echo(pair.far.clone()));
    assert!(!pair.near.is_resumed());
    // The tickets come after the handshake; one round trip later they are there.
    round_trip(&pair.near, b"hello").await;
    let remote = pair.server.local_addr();
    let connect = pair.client.connect(remote, "localhost", &pair.config);
    let (near, far) = within(async { tokio::join!(connect, pair.server.accept()) }).await;
    let near = near.unwrap();
    assert!(near.is_resumed());
    tokio::spawn(echo(far.unwrap()));
    assert_eq!(round_trip(&near, b"again").await, b"again");
    assert_eq!(near.peer_identity(), pair.near.peer_identity());
}

#[tokio::test]
async fn a_full_accept_queue_closes_the_next_connection() {
    const EXTRA: usize = 8;
    let mut options = options();
    options.resumption = Resumption::Disabled;
    options.key_exchanges = KeyExchangePreference::only(KeyExchange::X25519);
    let (config, server) = configs(&options);
    let server = Endpoint::server(loopback(), server).unwrap();
    let client = Endpoint::client(loopback()).unwrap();
    let mut held = Vec::new();
    for _ in 0..MAX_ACCEPT_QUEUE + EXTRA {
        let connect = client.connect(server.local_addr(), "localhost", &config);
        held.push(within(connect).await.unwrap());
    }
    let mut refused = 0;
    within(async {
        while refused < EXTRA {
            tokio::time::sleep(Duration::from_millis(10)).await;
            refused = held.iter().filter(|c| c.close_reason().is_some()).count();
        }
    })
    .await;
    assert_eq!(refused, EXTRA);
    for _ in 0..MAX_ACCEPT_QUEUE {
        assert!(
            within(server.accept())
                .await
                .unwrap()
                .close_reason()
                .is_none()
        );
    }
}

#[tokio::test]
async fn a_key_log_sees_the_secrets_of_both_sides() {
    #[derive(Debug, Default)]
    struct Labels(Mutex<Vec<String>>);
    impl KeyLog for Labels {
        fn log(&self, label: &str, _: &[u8], _: &[u8]) {
            self.0.lock().unwrap().push(label.to_owned());
        }
    }
    let labels = Arc::new(Labels::default());
    let mut options = options();
    options.key_log = KeyLogging::To(labels.clone());
    let _pair = Pair::with(&options).await;
    let labels = labels.0.lock().unwrap();
    for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"] {
        assert_eq!(labels.iter().filter(|l| *l == label).count(), 2, "{label}");
    }
}

#[tokio::test]
async fn the_environment_names_a_key_log_file() {
    const NAME: &str = "the_environment_names_a_key_log_file";
    if std::env::var_os(config::KEY_LOG_VARIABLE).is_some() {
        // The child: one connection with default options.
        let _pair = Pair::with(&Options::new("test")).await;
        return;
    }
    let file = std::env::temp_dir().join(format!("towline-keys-{}", std::process::id()));
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(config::KEY_LOG_VARIABLE, &file)
        .output()
        .unwrap();
    assert!(child.status.success());
    let log = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(log.lines().count() >= 8, "{log}");
    assert!(log.contains("CLIENT_TRAFFIC_SECRET_0 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_connections_share_an_endpoint() {
    let pair = Pair::new().await;
    let server = pair.server.clone();
    tokio::spawn(async move {
        while let Some(connection) = server.accept().await {
            tokio::spawn(echo(connection));
        }
    });
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..50usize {
        let (client, config) = (pair.client.clone(), pair.config.clone());
        let remote = pair.server.local_addr();
        tasks.spawn(async move {
            let connection = client.connect(remote, "localhost", &config).await.unwrap();
            let data = pattern(5000 + i);
            assert_eq!(round_trip(&connection, &data).await, data);
            connection.close(0, b"");
        });
    }
    within(async { while tasks.join_next().await.transpose().unwrap().is_some() {} }).await;
    assert!(pair.near.close_reason().is_none());
}

#[tokio::test]
async fn opening_waits_for_the_peers_permission() {
    let pair = Pair::new().await;
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(within(pair.near.open_uni()).await.unwrap());
    }
    let refused = tokio::time::timeout(Duration::from_millis(50), pair.near.open_uni()).await;
    assert!(refused.is_err(), "the peer permits 100 streams");

    let opening = pair.near.open_uni();
    let serving = async {
        for mut send in held {
            send.write_all(b"x").await.unwrap();
            send.finish().unwrap();
            let mut recv = pair.far.accept_uni().await.unwrap();
            assert_eq!(recv.read_to_end(10).await.unwrap(), b"x");
        }
    };
    let (opened, ()) = within(async { tokio::join!(opening, serving) }).await;
    opened.unwrap();
}

#[tokio::test]
async fn datagrams_cross_and_too_large_ones_are_refused() {
    let pair = Pair::new().await;
    let max = pair.near.max_datagram_len().unwrap();
    let sent = Bytes::from(pattern(max));
    pair.near.send_datagram(sent.clone()).unwrap();
    assert_eq!(within(pair.far.read_datagram()).await.unwrap(), sent);
    let refused = pair.near.send_datagram(Bytes::from(vec![0; max + 1]));
    assert_eq!(refused, Err(SendDatagramError::TooLarge { max }));
    for i in 0..1000u32 {
        let datagram = Bytes::copy_from_slice(&i.to_be_bytes());
        within(pair.far.send_datagram_wait(datagram)).await.unwrap();
        if i % 50 == 0 {
            within(pair.near.read_datagram()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn who_waits_hears_that_datagrams_may_be_longer() {
    let pair = Pair::new().await;
    let before = pair.near.max_datagram_len();
    let waiting = pair.near.max_datagram_len_changed(before);
    let sending = async {
        let mut send = pair.near.open_uni().await.unwrap();
        send.write_all(&pattern(500_000)).await.unwrap();
        send
    };
    let (changed, _send) = within(async { tokio::join!(waiting, sending) }).await;
    let after = changed.unwrap();
    assert!(after > before, "{after:?} {before:?}");
    assert_eq!(pair.near.max_datagram_len(), after);
}

#[tokio::test]
async fn closing_tells_the_peer_code_and_reason() {
    let pair = Pair::new().await;
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    send.write_all(b"hello").await.unwrap();
    let (mut far_send, mut far_recv) = within(pair.far.accept_bi()).await.unwrap();
    let mut hello = [0; 5];
    far_recv.read_exact(&mut hello).await.unwrap();

    pair.far.close(77, b"enough");
    let reason = within(pair.near.closed()).await;
    let expected = ConnectionError::ClosedByPeer(Close::Application {
        code: 77,
        reason: b"enough".to_vec(),
    });
    assert_eq!(reason, expected);
    assert_eq!(pair.near.close_reason(), Some(expected.clone()));
    assert_eq!(
        send.write(b"more").await,
        Err(WriteError::ConnectionLost(expected.clone()))
    );
    assert_eq!(
        recv.read(&mut hello).await,
        Err(ReadError::ConnectionLost(expected.clone()))
    );
    assert_eq!(pair.near.open_bi().await.unwrap_err(), expected);
    assert_eq!(pair.near.accept_uni().await.unwrap_err(), expected);
    assert_eq!(
        within(pair.far.closed()).await,
        ConnectionError::ClosedLocally
    );
    let lost = WriteError::ConnectionLost(ConnectionError::ClosedLocally);
    assert_eq!(far_send.write(b"x").await, Err(lost));
    within(async { tokio::join!(pair.client.wait_idle(), pair.server.wait_idle()) }).await;
    assert!(
        pair.near.stats().packets_sent > 0,
        "statistics outlive the connection"
    );
    assert_eq!(pair.near.alpn().as_deref(), Some(b"test".as_slice()));
}

#[tokio::test]
async fn everyone_who_waits_hears_of_the_end() {
    let pair = Pair::new().await;
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    let filler = vec![0; 64 << 20];
    let near = &pair.near;
    let waiting = async {
        tokio::join!(
            async { send.write_all(&filler).await.is_err() },
            async { recv.read(&mut [0; 8]).await.is_err() },
            async { near.accept_bi().await.is_err() },
            async { near.accept_uni().await.is_err() },
            async { near.read_datagram().await.is_err() },
            async { near.closed().await == ConnectionError::ClosedLocally },
        )
    };
    let closing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        near.close(0, b"");
    };
    let (heard, ()) = within(async { tokio::join!(waiting, closing) }).await;
    assert_eq!(heard, (true, true, true, true, true, true));
}

#[tokio::test]
async fn a_silent_connection_times_out_at_both_ends() {
    let mut options = options();
    options.transport.max_idle_timeout = Duration::from_millis(300);
    let pair = Pair::with(&options).await;
    let idle = ConnectionError::TimedOut(TimeoutReason::Idle);
    assert_eq!(within(pair.near.closed()).await, idle);
    assert_eq!(within(pair.far.closed()).await, idle);
    within(async { tokio::join!(pair.client.wait_idle(), pair.server.wait_idle()) }).await;
}

#[tokio::test]
async fn keep_alive_keeps_a_silent_connection() {
    let mut options = options();
    options.transport.max_idle_timeout = Duration::from_millis(400);
    options.transport.keep_alive_interval = Some(Duration::from_millis(100));
    let pair = Pair::with(&options).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(pair.near.close_reason(), None);
    assert_eq!(pair.far.close_reason(), None);
}

#[tokio::test]
async fn nobody_there_is_a_handshake_timeout() {
    let mut options = options();
    options.transport.handshake_timeout = Duration::from_millis(300);
    let (config, _) = configs(&options);
    // Bound, so that no ICMP comes, and silent.
    let silent = std::net::UdpSocket::bind(loopback()).unwrap();
    let client = Endpoint::client(loopback()).unwrap();
    let error = within(client.connect(silent.local_addr().unwrap(), "localhost", &config)).await;
    assert_eq!(
        error.unwrap_err(),
        ConnectError::Failed(ConnectionError::TimedOut(TimeoutReason::Handshake))
    );
}

#[tokio::test]
async fn a_wrong_pin_is_refused_by_the_client() {
    let pair = Pair::new().await;
    let (stranger, _) = configs(&options());
    let error = within(
        pair.client
            .connect(pair.server.local_addr(), "localhost", &stranger),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&error, ConnectError::Failed(ConnectionError::Tls { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn an_address_of_the_other_family_is_refused_at_once() {
    let (config, _) = configs(&options());
    let client = Endpoint::client(loopback()).unwrap();
    let remote = "[::1]:4433".parse().unwrap();
    let error = client
        .connect(remote, "localhost", &config)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::AddressFamily { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_dual_stack_endpoint_serves_both_families() {
    let (config, server) = configs(&options());
    let server = Endpoint::server("[::]:0".parse().unwrap(), server).unwrap();
    let port = server.local_addr().port();
    let dual = Endpoint::client("[::]:0".parse().unwrap()).unwrap();
    let v4 = Endpoint::client(loopback()).unwrap();
    for (client, remote) in [
        (&dual, SocketAddr::from(([127, 0, 0, 1], port))),
        (&dual, SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port))),
        (&v4, SocketAddr::from(([127, 0, 0, 1], port))),
    ] {
        let connect = client.connect(remote, "localhost", &config);
        let (near, far) = within(async { tokio::join!(connect, server.accept()) }).await;
        assert_eq!(near.unwrap().remote_addr(), remote);
        assert_eq!(far.unwrap().remote_addr().is_ipv4(), remote.is_ipv4());
    }
}

#[tokio::test]
async fn each_end_says_which_of_its_addresses_the_other_sends_to() {
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let (config, server) = configs(&options());
    let server = Endpoint::server(anywhere, server).unwrap();
    let client = Endpoint::client(anywhere).unwrap();
    let remote = SocketAddr::from(([127, 0, 0, 2], server.local_addr().port()));
    let connecting = client.start_connect(remote, "localhost", &config).unwrap();
    let (near, far) = within(async { tokio::join!(connecting, server.accept()) }).await;
    let (near, far) = (near.unwrap(), far.unwrap());
    assert_eq!(far.local_ip(), Some(remote.ip()));
    assert_eq!(near.local_ip(), Some(far.remote_addr().ip()));
    near.close(0, b"");
    within(far.closed()).await;
    within(server.wait_idle()).await;
    assert_eq!(far.local_ip(), Some(remote.ip()), "after the end");
}

#[tokio::test]
async fn a_dropped_read_takes_nothing() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"a").await.unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    let mut one = [0; 1];
    within(recv.read_exact(&mut one)).await.unwrap();

    for _ in 0..10 {
        let mut out = [0; 8];
        let read = pin!(recv.read(&mut out));
        assert!(
            read.poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    send.write_all(b"bcd").await.unwrap();
    send.finish().unwrap();
    assert_eq!(within(recv.read_to_end(10)).await.unwrap(), b"bcd");
    assert_eq!(recv.read(&mut one).await, Ok(None), "the end stays the end");
}

#[tokio::test]
async fn a_dropped_write_wrote_nothing() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    let block = pattern(100_000);
    let mut written = 0usize;
    // Fill the buffers until a write must wait, and drop that one.
    loop {
        let write = pin!(send.write(&block[written % 251..]));
        match write.poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(n) => written += n.unwrap(),
            std::task::Poll::Pending => break,
        }
    }
    let mut recv = within(async {
        loop {
            tokio::select! {
                recv = pair.far.accept_uni() => break recv.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    })
    .await;
    let reading = recv.read_to_end(usize::MAX);
    let finishing = async { send.finished().await.unwrap() };
    let (read, ()) = within(async { tokio::join!(reading, finishing) }).await;
    let read = read.unwrap();
    assert_eq!(read.len(), written);
    assert!(read.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
}

#[tokio::test]
async fn a_dropped_accept_takes_no_stream_and_leaves_no_waker() {
    let pair = Pair::new().await;
    for _ in 0..1000 {
        let accept = pin!(pair.far.accept_uni());
        assert!(
            accept
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        let accept = pin!(pair.server.accept());
        assert!(
            accept
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    within(pair.far.accept_uni()).await.unwrap();
}

#[tokio::test]
async fn a_dropped_connect_gives_the_attempt_up() {
    let (config, _) = configs(&options());
    let silent = std::net::UdpSocket::bind(loopback()).unwrap();
    let client = Endpoint::client(loopback()).unwrap();
    let attempt = client.connect(silent.local_addr().unwrap(), "localhost", &config);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), attempt)
            .await
            .is_err()
    );
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn dropping_an_unfinished_stream_resets_it() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"half a mess").await.unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    drop(send);
    let error = within(recv.read_to_end(100)).await.unwrap_err();
    assert_eq!(error, ReadToEndError::Read(ReadError::Reset(0)));
}

#[tokio::test]
async fn dropping_an_unread_stream_stops_the_peer() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let recv = within(pair.far.accept_uni()).await.unwrap();
    drop(recv);
    assert_eq!(within(send.stopped()).await, Ok(Some(0)));
    assert_eq!(send.write(b"y").await, Err(WriteError::Stopped(0)));
}

#[tokio::test]
async fn reset_and_stop_carry_their_codes() {
    let pair = Pair::new().await;
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let (mut far_send, mut far_recv) = within(pair.far.accept_bi()).await.unwrap();
    far_recv.stop(5);
    assert_eq!(within(send.stopped()).await, Ok(Some(5)));
    far_send.reset(6);
    let mut out = [0; 4];
    assert_eq!(within(recv.read(&mut out)).await, Err(ReadError::Reset(6)));
    assert_eq!(recv.read(&mut out).await, Err(ReadError::Reset(6)));
    assert_eq!(far_recv.read(&mut out).await, Err(ReadError::ClosedStream));
    assert_eq!(far_send.finished().await, Err(WriteError::ClosedStream));
}

#[tokio::test]
async fn the_first_bytes_of_a_stream_reset_at_a_size_arrive_and_its_handle_may_go() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"header and body").await.unwrap();
    assert_eq!(send.reset_at(6, 16), Err(ResetAtError::MissingBytes));
    send.reset_at(6, 6).unwrap();
    assert_eq!(send.write(b"x").await, Err(WriteError::ClosedStream));
    assert_eq!(send.finished().await, Err(WriteError::ClosedStream));
    // Dropped, it does not take back what is to arrive.
    drop(send);
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    settled(&pair).await;
    assert_eq!(within(recv.received_reset()).await, Ok(Some(6)));
    let mut out = [0; 20];
    assert_eq!(within(recv.read(&mut out)).await, Ok(Some(6)));
    assert_eq!(out[..6], b"header"[..]);
    assert_eq!(within(recv.read(&mut out)).await, Err(ReadError::Reset(6)));
    assert_eq!(within(recv.received_reset()).await, Ok(Some(6)));
}

#[tokio::test]
async fn waiting_to_be_stopped_ends_when_this_side_resets() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    send.reset(6);
    assert_eq!(within(send.stopped()).await, Ok(None));
    // Also when the peer knows, and the engine has forgotten the stream.
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    let error = within(recv.read_to_end(100)).await.unwrap_err();
    assert_eq!(error, ReadToEndError::Read(ReadError::Reset(6)));
    settled(&pair).await;
    assert_eq!(send.priority(), None);
    assert_eq!(within(send.stopped()).await, Ok(None));
}

#[tokio::test]
async fn a_stop_from_before_the_stream_was_accepted_is_told() {
    let pair = Pair::new().await;
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    recv.stop(9);
    settled(&pair).await;
    let (mut far_send, _far_recv) = within(pair.far.accept_bi()).await.unwrap();
    // The peer has acknowledged the reset that answered it.
    assert_eq!(far_send.priority(), None);
    assert_eq!(within(far_send.stopped()).await, Ok(Some(9)));
    let stopped = Err(WriteError::Stopped(9));
    assert_eq!(within(far_send.write_all(b"y")).await, stopped);
    assert_eq!(within(far_send.finished()).await, stopped);
}

/// What one end said so far has come to the other, and back that it has.
async fn settled(pair: &Pair) {
    for _ in 0..3 {
        for (from, to) in [(&pair.near, &pair.far), (&pair.far, &pair.near)] {
            let mut send = from.open_uni().await.unwrap();
            send.write_all(b"a message").await.unwrap();
            send.finish().unwrap();
            let mut recv = within(to.accept_uni()).await.unwrap();
            within(recv.read_to_end(100)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn finished_means_acknowledged() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(&pattern(300_000)).await.unwrap();
    let reading = async {
        let mut recv = pair.far.accept_uni().await.unwrap();
        recv.read_to_end(1 << 20).await.unwrap().len()
    };
    let (finished, len) = within(async { tokio::join!(send.finished(), reading) }).await;
    finished.unwrap();
    assert_eq!(len, 300_000);
    assert_eq!(send.stopped().await, Ok(None));
    assert_eq!(send.write(b"x").await, Err(WriteError::ClosedStream));
}

#[tokio::test]
async fn limits_of_whole_reads_hold() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"12345").await.unwrap();
    send.finish().unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    assert_eq!(
        within(recv.read_to_end(4)).await,
        Err(ReadToEndError::TooLong(4))
    );
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"12345").await.unwrap();
    send.finish().unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    let early = within(recv.read_exact(&mut [0; 6])).await;
    assert_eq!(early, Err(ReadExactError::FinishedEarly(5)));
}

#[tokio::test]
async fn tokio_io_traits_work() {
    let pair = Pair::new().await;
    tokio::spawn(echo(pair.far.clone()));
    let (send, mut recv) = pair.near.open_bi().await.unwrap();
    let mut send: Box<dyn tokio::io::AsyncWrite + Unpin + Send> = Box::new(send);
    AsyncWriteExt::write_all(&mut send, b"over the traits")
        .await
        .unwrap();
    send.flush().await.unwrap();
    send.shutdown().await.unwrap();
    let mut text = String::new();
    within(recv.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "over the traits");
}

#[tokio::test]
async fn the_last_handle_closes_the_connection_but_a_stream_keeps_it() {
    let Pair {
        near,
        far,
        client,
        server: _server,
        ..
    } = Pair::new().await;
    let mut send = near.open_uni().await.unwrap();
    drop(near);
    send.write_all(b"still here").await.unwrap();
    let mut recv = within(far.accept_uni()).await.unwrap();
    within(recv.read_exact(&mut [0; 10])).await.unwrap();
    drop(send);
    let reason = within(far.closed()).await;
    assert!(matches!(
        reason,
        ConnectionError::ClosedByPeer(Close::Application { code: 0, .. })
    ));
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn connections_outlive_their_endpoints_handles() {
    let Pair {
        near,
        far,
        client,
        server,
        ..
    } = Pair::new().await;
    drop((client, server));
    tokio::spawn(echo(far));
    assert_eq!(round_trip(&near, b"hello").await, b"hello");
}

#[tokio::test]
async fn closing_an_endpoint_ends_everything() {
    let pair = Pair::new().await;
    // One connection that nobody accepts.
    let connect = pair
        .client
        .connect(pair.server.local_addr(), "localhost", &pair.config);
    let unclaimed = within(connect).await.unwrap();
    // Before the server has the client's last flight it could only say APPLICATION_ERROR
    // (RFC 9000 §10.2.3).
    tokio::time::sleep(Duration::from_millis(100)).await;
    pair.server.close(9, b"shutting down");
    let expected = ConnectionError::ClosedByPeer(Close::Application {
        code: 9,
        reason: b"shutting down".to_vec(),
    });
    assert_eq!(within(pair.near.closed()).await, expected);
    assert_eq!(within(unclaimed.closed()).await, expected);
    assert!(within(pair.server.accept()).await.is_none());
    let error = pair
        .server
        .connect(pair.client.local_addr(), "localhost", &pair.config)
        .await;
    assert_eq!(error.unwrap_err(), ConnectError::EndpointClosed);
    within(pair.server.wait_idle()).await;
    assert_eq!(pair.server.connection_count(), 0);
}

#[tokio::test]
async fn dropping_an_endpoint_closes_what_nobody_accepted() {
    let (config, server) = configs(&options());
    let server = Endpoint::server(loopback(), server).unwrap();
    let client = Endpoint::client(loopback()).unwrap();
    let connection = within(client.connect(server.local_addr(), "localhost", &config))
        .await
        .unwrap();
    // The server's half of the handshake ends with the client's last flight.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(server);
    assert!(matches!(
        within(connection.closed()).await,
        ConnectionError::ClosedByPeer(_)
    ));
}

#[test]
fn a_dead_runtime_ends_what_it_drove() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let pair = runtime.block_on(Pair::new());
    assert_eq!(pair.client.connection_count(), 1);
    drop(runtime);
    assert!(pair.near.close_reason().is_some());
    assert_eq!(pair.client.connection_count(), 0);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    other.block_on(async {
        within(pair.near.closed()).await;
        assert!(within(pair.near.open_bi()).await.is_err());
        assert!(within(pair.server.accept()).await.is_none());
        within(pair.client.wait_idle()).await;
        let error = pair
            .client
            .connect(pair.server.local_addr(), "localhost", &pair.config)
            .await;
        assert_eq!(error.unwrap_err(), ConnectError::EndpointClosed);
    });
}

#[test]
fn binding_outside_of_a_runtime_is_an_error_not_a_panic() {
    assert!(Endpoint::client(loopback()).is_err());
}

#[tokio::test]
async fn the_socket_says_what_it_was_granted() {
    let client = Endpoint::client(loopback()).unwrap();
    let info = client.socket_info();
    assert!(info.send_buffer.granted > 0 && info.recv_buffer.granted > 0);
    assert_eq!(info.local_addr, client.local_addr());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_work_from_threads_without_a_runtime() {
    let pair = Pair::new().await;
    let far = pair.far.clone();
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    // A stream is written to by a plain thread that polls by hand.
    let writer = std::thread::spawn(move || {
        let data = pattern(200_000);
        let mut at = 0;
        while at < data.len() {
            let write = pin!(send.write(&data[at..]));
            match write.poll(&mut Context::from_waker(Waker::noop())) {
                std::task::Poll::Ready(n) => at += n.unwrap(),
                std::task::Poll::Pending => std::thread::yield_now(),
            }
        }
        send.finish().unwrap();
        send
    });
    tokio::spawn(echo(far));
    assert_eq!(
        within(recv.read_to_end(1 << 20)).await.unwrap(),
        pattern(200_000)
    );
    writer.join().unwrap();
}

#[tokio::test]
async fn a_stream_refused_asks_the_peer_for_more_at_once() {
    let pair = Pair::new().await;
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut send = pair.near.open_uni().await.unwrap();
        send.write_all(b"x").await.unwrap();
        open.push(send);
    }
    // One is over: too few for a MAX_STREAMS that nobody asked for.
    open[0].finish().unwrap();
    let mut recv = pair.far.accept_uni().await.unwrap();
    within(recv.read_to_end(9)).await.unwrap();
    tokio::time::sleep(SECOND / 5).await;
    let more = tokio::time::timeout(5 * SECOND, pair.near.open_uni()).await;
    more.expect("the peer was not asked").unwrap();
}

/// Counts how often a future is polled.
struct Polled<'a, F>(F, &'a AtomicUsize);

impl<F: Future + Unpin> Future for Polled<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll(cx)
    }
}

#[tokio::test]
async fn tasks_that_wait_for_streams_are_woken_once_each_in_the_order_they_came() {
    const TASKS: usize = 1000;
    const PERMITTED: usize = 10;
    let (config, mut server) = configs(&options());
    server.transport = Arc::new(
        towline::engine::TransportConfig::default().max_concurrent_uni_streams(PERMITTED as u64),
    );
    let server = Endpoint::server(loopback(), server).unwrap();
    let client = Endpoint::client(loopback()).unwrap();
    let connect = client.connect(server.local_addr(), "localhost", &config);
    let (near, far) = within(async { tokio::join!(connect, server.accept()) }).await;
    let (near, far) = (near.unwrap(), far.unwrap());
    let polls: [Arc<AtomicUsize>; 2] = Default::default();
    let order: [Arc<Mutex<Vec<usize>>>; 2] = Default::default();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (far, polls, order) = (far.clone(), Arc::clone(&polls[1]), Arc::clone(&order[1]));
        tasks.spawn(async move {
            let accept = Polled(Box::pin(far.accept_uni()), &polls);
            let mut recv = accept.await.unwrap();
            order.lock().unwrap().push(task);
            recv.read_to_end(9).await.unwrap();
        });
    }
    for task in 0..TASKS {
        let (near, polls, order) = (near.clone(), Arc::clone(&polls[0]), Arc::clone(&order[0]));
        tasks.spawn(async move {
            let mut open = Polled(Box::pin(near.open_uni()), &polls);
            if task > PERMITTED && task % 10 == 7 {
                // Gives up while it waits.
                let once = |cx: &mut Context<'_>| Poll::Ready(Pin::new(&mut open).poll(cx));
                assert!(std::future::poll_fn(once).await.is_pending());
                tokio::task::yield_now().await;
                drop(open);
                let mut send = near.open_uni().await.unwrap();
                return send.finish().unwrap();
            }
            let mut send = open.await.unwrap();
            order.lock().unwrap().push(task);
            send.finish().unwrap();
        });
    }
    within(async { while tasks.join_next().await.map(Result::unwrap).is_some() {} }).await;
    let polls = polls.map(|polls| polls.load(Ordering::Relaxed));
    for order in order {
        assert!(order.lock().unwrap().is_sorted());
    }
    // Once to get in line and once to get a stream, but for those who found one or gave up.
    assert!(polls[0] <= 2 * TASKS && polls[1] <= 2 * TASKS, "{polls:?}");
}

#[tokio::test]
async fn reading_a_reset_gives_the_peer_its_stream_back() {
    let (config, mut server) = configs(&options());
    let transport = towline::engine::TransportConfig::default().max_concurrent_uni_streams(1);
    server.transport = Arc::new(transport);
    let server = Endpoint::server(loopback(), server).unwrap();
    let client = Endpoint::client(loopback()).unwrap();
    let connect = client.connect(server.local_addr(), "localhost", &config);
    let (near, far) = within(async { tokio::join!(connect, server.accept()) }).await;
    let (near, far) = (near.unwrap(), far.unwrap());
    let mut send = near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let mut recv = within(far.accept_uni()).await.unwrap();
    send.reset(3);
    tokio::time::sleep(SECOND / 5).await;
    let again = near.open_uni();
    let read = async {
        tokio::time::sleep(SECOND / 5).await;
        while recv.read_chunk(9).await.is_ok() {}
    };
    let both = async { tokio::join!(again, read).0 };
    let more = tokio::time::timeout(5 * SECOND, both).await;
    more.expect("the stream was not given back").unwrap();
}

#[tokio::test]
async fn small_datagrams_of_many_connections_to_one_peer_leave_as_trains() {
    const CONNECTIONS: usize = 40;
    let Pair {
        client,
        server,
        config,
        ..
    } = Pair::new().await;
    let mut pairs = Vec::new();
    for _ in 0..CONNECTIONS {
        let connect = client.connect(server.local_addr(), "localhost", &config);
        let (near, far) = within(async { tokio::join!(connect, server.accept()) }).await;
        pairs.push((near.unwrap(), far.unwrap()));
    }
    // What the handshakes left to say is said.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = client.socket_stats();
    for (number, (near, _)) in pairs.iter().enumerate() {
        near.send_datagram(Bytes::from(vec![number as u8; 100]))
            .unwrap();
    }
    for (number, (_, far)) in pairs.iter().enumerate() {
        let message = within(far.read_datagram()).await.unwrap();
        assert_eq!(message, vec![number as u8; 100]);
    }
    let after = client.socket_stats();
    let datagrams = after.datagrams_sent - before.datagrams_sent;
    let trains = after.trains_sent - before.trains_sent;
    assert!(datagrams >= CONNECTIONS as u64, "{datagrams} datagrams");
    if client.socket_info().gso_segments > 1 {
        assert!(
            4 * trains <= datagrams,
            "{datagrams} datagrams, {trains} trains"
        );
    }
}

#[tokio::test]
async fn a_datagram_with_an_id_tells_its_fate_and_its_prefix_goes_before_it() {
    let pair = Pair::new().await;
    let options = DatagramOptions::default().id(7).max_age(SECOND);
    let data = Bytes::from_static(b"payload");
    pair.near
        .send_datagram_with(b"prefix ", data, &options)
        .unwrap();
    let got = within(pair.far.read_datagram()).await.unwrap();
    assert_eq!(got, b"prefix payload"[..]);
    let fate = within(pair.near.datagram_fate()).await;
    assert_eq!(fate, Ok((7, DatagramFate::Acked)));
    assert!(pair.near.try_datagram_fate().is_pending());
    // Whoever waits for a fate is told of the end.
    let waiting = pair.near.datagram_fate();
    pair.far.close(3, b"enough");
    assert!(within(waiting).await.is_err());
}

#[tokio::test]
async fn of_fates_that_nobody_asks_for_the_newest_are_kept() {
    let pair = Pair::new().await;
    let (first, sent) = (MAX_DATAGRAM_FATES as u64, MAX_DATAGRAM_FATES as u64 + 500);
    // One ACK may tell of many packets in any order, but not of those that are sent after it.
    for ids in [0..first, first..sent] {
        let end = ids.end;
        for id in ids {
            let options = DatagramOptions::default().id(id);
            let mut data = Bytes::from_static(b"x");
            let mut waiter = Waiter::new();
            let near = &pair.near;
            within(std::future::poll_fn(|cx| {
                near.poll_send_datagram_with(&mut waiter, cx, b"", &mut data, &options)
            }))
            .await
            .unwrap();
        }
        within(async {
            while pair.near.stats().app_datagrams_acked < end {
                tokio::time::sleep(SECOND / 100).await;
            }
        })
        .await;
    }
    let mut ids = Vec::new();
    while let Poll::Ready(fate) = pair.near.try_datagram_fate() {
        ids.push(fate.unwrap().0);
    }
    assert_eq!(ids.len(), MAX_DATAGRAM_FATES);
    assert!((first..sent).all(|id| ids.contains(&id)));
}
