//! Programs on the virtual driver: the same API, time that moves by itself, one trace for one seed.

mod common;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use towline::config::{self, ClientAuth, ClientConfig, Identity, ServerConfig, Trust};
use towline::handles::Waiter;
use towline::io::Socket;
use towline::testing::{LinkConfig, LossModel, Sent, Simulation, VirtualNetwork};
use towline::{Connection, Endpoint};

use common::options;

/// Both sides by raw keys, whose signatures all have one length, with packets of one size.
fn configs() -> (ClientConfig, ServerConfig) {
    let identity = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![identity.key_pin()]);
    let mut options = options();
    options.transport = options.transport.mtu(1200);
    (
        config::client(&trust, None, &options).unwrap(),
        config::server(&identity, &ClientAuth::None, &options).unwrap(),
    )
}

fn addresses() -> (SocketAddr, SocketAddr) {
    (
        SocketAddr::from(([192, 0, 2, 1], 1000)),
        SocketAddr::from(([192, 0, 2, 2], 443)),
    )
}

/// 10 Mbit/s, 20 ms, and every fiftieth datagram is lost.
fn link() -> LinkConfig {
    LinkConfig {
        rate: Some(10_000_000),
        delay: Duration::from_millis(20),
        loss: LossModel::Bernoulli(0.02),
        ..LinkConfig::default()
    }
}

/// A world with a server and a client in it.
fn world(seed: u64) -> (Simulation, Endpoint, Endpoint, ClientConfig) {
    let (client_config, server_config) = configs();
    let (here, there) = addresses();
    let mut world = Simulation::new(seed);
    world.join(here, there, link(), link()).unwrap();
    let server = world.endpoint(Endpoint::builder().server(server_config), there);
    let client = world.endpoint(Endpoint::builder(), here);
    (world, client.unwrap(), server.unwrap(), client_config)
}

/// Answers each stream with its bytes, to the end.
async fn echo(server: Endpoint, tasks: towline::testing::Tasks) {
    while let Some(connection) = server.accept().await {
        let streams = tasks.clone();
        tasks.spawn(async move {
            while let Ok((mut send, mut recv)) = connection.accept_bi().await {
                streams.spawn(async move {
                    while let Ok(Some(chunk)) = recv.read_chunk(64 * 1024).await {
                        send.write_chunk(chunk).await.unwrap();
                    }
                    let _ = send.finish();
                    let _ = send.finished().await;
                });
            }
        });
    }
}

async fn exchange(connection: Connection, bytes: usize) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let (sent, expected) = (data.clone(), data);
    let writing = async {
        send.write_all(&sent).await.unwrap();
        send.finish().unwrap();
    };
    let reading = recv.read_to_end(bytes);
    let ((), got) = both(writing, reading).await;
    assert!(got.unwrap() == expected);
}

/// Polls both until both are ready.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(move |cx| {
        if first.is_none()
            && let std::task::Poll::Ready(output) = a.as_mut().poll(cx)
        {
            first = Some(output);
        }
        if second.is_none()
            && let std::task::Poll::Ready(output) = b.as_mut().poll(cx)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

/// 1 MB there and back on four streams at once, over a lossy link.
fn run(seed: u64) -> Vec<Sent> {
    let (mut world, client, server, config) = world(seed);
    let tasks = world.tasks();
    tasks.spawn(echo(server, world.tasks()));
    world.block_on(async move {
        let connection = client
            .connect(addresses().1, "localhost", &config)
            .await
            .unwrap();
        let left = Rc::new(Cell::new(4));
        for _ in 0..4 {
            let (connection, left) = (connection.clone(), Rc::clone(&left));
            tasks.spawn(async move {
                exchange(connection, 250_000).await;
                left.set(left.get() - 1);
            });
        }
        while left.get() > 0 {
            tasks.sleep(Duration::from_millis(10)).await;
        }
        connection.close(0, b"");
        client.wait_idle().await;
    });
    world.trace()
}

#[test]
fn one_seed_is_one_trace() {
    let first = run(1);
    assert!(first.len() > 1800, "{} datagrams", first.len());
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}

#[test]
fn an_hour_of_silence_ends_a_connection_and_takes_no_time() {
    let (mut world, client, server, config) = world(3);
    let tasks = world.tasks();
    tasks.spawn(echo(server, world.tasks()));
    let began = world.now();
    let connection = world.block_on(async move {
        let connection = client
            .connect(addresses().1, "localhost", &config)
            .await
            .unwrap();
        tasks.sleep(Duration::from_secs(3600)).await;
        connection
    });
    let passed = world.now().saturating_duration_since(began);
    assert!(passed >= Duration::from_secs(3600) && passed < Duration::from_secs(3601));
    assert!(connection.close_reason().is_some(), "no idle timeout");
}

#[test]
fn what_waits_for_nothing_that_can_happen_is_told() {
    let (mut world, _client, server, _) = world(4);
    let waiting =
        std::panic::AssertUnwindSafe(|| world.block_on(async move { server.accept().await }));
    assert!(std::panic::catch_unwind(waiting).is_err());
}

#[test]
fn who_tries_is_told_at_once_and_who_polls_is_served_in_turn() {
    let (mut world, client, server, config) = world(5);
    let tasks = world.tasks();
    tasks.spawn(echo(server.clone(), world.tasks()));
    world.block_on(async move {
        assert!(server.try_accept().is_pending());
        let connecting = client
            .start_connect(addresses().1, "localhost", &config)
            .unwrap();
        let connection = connecting.await.unwrap();
        assert!(connection.try_read_datagram().is_pending());
        assert!(connection.try_accept_bi().is_pending());
        let std::task::Poll::Ready(Ok((mut send, mut recv))) = connection.try_open_bi() else {
            panic!("a stream is permitted");
        };
        let mut byte = [0];
        assert!(recv.try_read(&mut byte).is_pending());
        assert!(matches!(
            send.try_write(b"x"),
            std::task::Poll::Ready(Ok(1))
        ));
        let mut waiter = Waiter::new();
        std::future::poll_fn(|cx| {
            // A waiter that was used for something else has left there.
            assert!(connection.poll_accept_uni(&mut waiter, cx).is_pending());
            assert!(connection.poll_read_datagram(&mut waiter, cx).is_pending());
            recv.poll_read(cx, &mut byte)
        })
        .await
        .unwrap();
        assert_eq!(&byte, b"x");
        std::future::poll_fn(|cx| send.poll_finished(&mut waiter, cx))
            .await
            .unwrap();
    });
}

#[test]
fn chunks_go_and_come_without_a_copy_and_the_end_behind_them_is_told() {
    let (mut world, client, server, config) = world(6);
    let tasks = world.tasks();
    tasks.spawn(echo(server, world.tasks()));
    world.block_on(async move {
        let connection = client
            .connect(addresses().1, "localhost", &config)
            .await
            .unwrap();
        assert_eq!(connection.side(), towline::Side::Client);
        assert_eq!(connection.remote_addr(), addresses().1);
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        let mut chunks: Vec<_> = (0..50_u8)
            .map(|byte| bytes::Bytes::from(vec![byte; 7000]))
            .collect();
        let sent = chunks.concat();
        let writing = async {
            send.write_all_chunks(&mut chunks).await.unwrap();
            send.finish().unwrap();
        };
        let reading = async {
            let mut got = Vec::new();
            let mut places = vec![bytes::Bytes::new(); 4];
            while let Some(filled) = recv.read_chunks(&mut places).await.unwrap() {
                assert!(filled >= 1);
                got.extend(places[..filled].concat());
            }
            assert_eq!(
                recv.read_chunks(&mut places).await.unwrap(),
                None,
                "and again"
            );
            got
        };
        let ((), got) = both(writing, reading).await;
        assert!(got == sent);
        let weak = connection.downgrade();
        assert_eq!(weak.upgrade().unwrap().stable_id(), connection.stable_id());
        drop((connection, send, recv));
        assert!(weak.upgrade().is_none());
    });
}

#[test]
fn an_address_that_does_not_answer_holds_nobody_up_for_long() {
    let (mut world, client, server, config) = world(7);
    let tasks = world.tasks();
    tasks.spawn(echo(server, world.tasks()));
    let began = world.now();
    let silent = SocketAddr::from(([192, 0, 2, 9], 443));
    let connection = world.block_on(async move {
        let mut race = client.race([silent, addresses().1], "localhost", &config);
        let mut sleep = None;
        std::future::poll_fn(|cx| {
            loop {
                if let std::task::Poll::Ready(result) = race.poll(client.now(), cx) {
                    return std::task::Poll::Ready(result);
                }
                let Some(next) = race.next_timeout() else {
                    return std::task::Poll::Pending;
                };
                let left = next.saturating_duration_since(client.now());
                let sleep = sleep.insert(Box::pin(tasks.sleep(left)));
                std::task::ready!(sleep.as_mut().poll(cx));
            }
        })
        .await
        .unwrap()
    });
    assert_eq!(connection.remote_addr(), addresses().1);
    let took = world.now().saturating_duration_since(began);
    let delay = towline::handles::ATTEMPT_DELAY;
    assert!(took >= delay && took < delay * 2, "{took:?}");
}

#[test]
fn nobody_to_connect_to_is_an_error_at_once() {
    let (mut world, client, _server, config) = world(8);
    let error = world.block_on(async move {
        let mut race = client.race([], "localhost", &config);
        std::future::poll_fn(|cx| race.poll(client.now(), cx))
            .await
            .unwrap_err()
    });
    assert_eq!(error, towline::ConnectError::NoAddress);
}

#[test]
fn another_loop_drives_shards_over_links_that_all_ports_of_two_hosts_share() {
    let (client_config, server_config) = configs();
    let (here, there) = addresses();
    let network = VirtualNetwork::new(9);
    let (forth, back) = network
        .join_hosts(here.ip(), there.ip(), link(), link())
        .unwrap();
    let mut shards = Vec::new();
    let mut endpoint = |builder, address| {
        // Of whichever kind: the loop need not know.
        let socket: Box<dyn Socket> = Box::new(network.socket(address));
        let builder = network.prepare(builder);
        let (endpoint, made) = builder.on_sockets(vec![socket]).unwrap();
        shards.extend(made.into_iter().map(|shard| (address, shard)));
        endpoint
    };
    let server = endpoint(Endpoint::builder().server(server_config), there);
    let other_port = SocketAddr::new(here.ip(), here.port() + 1);
    let clients = [here, other_port].map(|address| endpoint(Endpoint::builder(), address));
    assert!(network.is_bound(other_port) && !network.is_bound(SocketAddr::new(here.ip(), 1)));

    let mut attempts: Vec<_> = clients
        .iter()
        .map(|client| Box::pin(client.connect(there, "localhost", &client_config)))
        .collect();
    let mut connections = Vec::new();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut per_client = Vec::new();
    while let Some(attempt) = attempts.first_mut() {
        if let std::task::Poll::Ready(connected) = attempt.as_mut().poll(&mut cx) {
            connections.push(connected.unwrap());
            let counted = [forth, back].map(|id| network.with(|n| n.link(id).stats().datagrams_in));
            per_client.push(counted);
            drop(attempts.remove(0));
            continue;
        }
        network.deliver();
        let now = network.now();
        let mut busy = false;
        for (address, shard) in &mut shards {
            let is_due = shard.next_timeout().is_some_and(|at| at <= now);
            busy |= is_due || network.is_readable(*address);
            // Nobody noted whether a handle gave it something to do: each has a turn.
            shard.drive(now).unwrap();
        }
        if !busy {
            let timers = shards.iter().filter_map(|(_, shard)| shard.next_timeout());
            let next = timers.chain(network.next_timeout()).min();
            network.advance_to(next.expect("something is to happen"));
        }
    }
    drop(server);
    assert_eq!(connections.len(), 2);
    let [first, both] = per_client[..] else {
        panic!("two clients")
    };
    assert!(first[0] > 0 && both[0] > first[0], "{per_client:?}");
    assert_eq!(network.with(|n| n.stats().dropped_no_route), 0);
    assert!(network.trace().is_empty(), "nobody asked for it");
}
