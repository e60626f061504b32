//! Deciding about clients, changing what a server takes, and its end in good order, in virtual time
//! but for what needs several shards or a real socket.

mod common;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use common::{configs, loopback, options, within};
use towline::config::{self, ClientAuth, ClientConfig, Identity, Options, ServerConfig, Trust};
use towline::engine::{AcceptError, Close};
use towline::handles::Waiter;
use towline::testing::{LinkConfig, Simulation};
use towline::{
    ConnectError, Connection, ConnectionError, Endpoint, EndpointBuilder, Incoming,
    MAX_INCOMING_WAIT, TransportErrorCode,
};

const SECOND: Duration = Duration::from_secs(1);
/// The way from one end to the other.
const DELAY: Duration = Duration::from_millis(20);

fn here() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 1000))
}

fn there() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 443))
}

/// A client and a server 20 ms apart.
struct Pair {
    world: Simulation,
    client: Endpoint,
    server: Endpoint,
    config: ClientConfig,
    server_config: ServerConfig,
}

impl Pair {
    /// The server's endpoint is made as `builder` says.
    fn with(options: &Options, builder: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Self {
        let identity = Identity::generate_raw_key().unwrap();
        let trust = Trust::RawKeys(vec![identity.key_pin()]);
        let config = config::client(&trust, None, options).unwrap();
        let server_config = config::server(&identity, &ClientAuth::None, options).unwrap();
        let link = LinkConfig {
            delay: DELAY,
            ..LinkConfig::default()
        };
        let mut world = Simulation::new(1);
        world.join(here(), there(), link.clone(), link).unwrap();
        let builder = builder(Endpoint::builder().server(server_config.clone()));
        Self {
            server: world.endpoint(builder, there()).unwrap(),
            client: world.endpoint(Endpoint::builder(), here()).unwrap(),
            world,
            config,
            server_config,
        }
    }

    /// The application decides about each client.
    fn deciding() -> Self {
        Self::with(&options(), |builder| builder.incoming(true))
    }

    /// Clients are accepted by themselves.
    fn accepting() -> Self {
        Self::with(&options(), |builder| builder)
    }

    /// An attempt of the client's that reached the server, which has it wait.
    fn asked(&mut self) -> (towline::Connecting, Incoming) {
        let connecting = self
            .client
            .start_connect(there(), "localhost", &self.config)
            .unwrap();
        let server = self.server.clone();
        let incoming = self.world.block_on(async move { server.incoming().await });
        (connecting, incoming.expect("the endpoint is closed"))
    }

    /// A connection, the client's end and the server's.
    fn connected(&mut self) -> (Connection, Connection) {
        let connecting = self
            .client
            .start_connect(there(), "localhost", &self.config)
            .unwrap();
        let server = self.server.clone();
        self.world.block_on(async move {
            let accepted = server.accept().await.expect("the endpoint is closed");
            (connecting.await.unwrap(), accepted)
        })
    }
}

/// The code that a server refused a client with.
fn refusal(error: ConnectError) -> Option<TransportErrorCode> {
    match error {
        ConnectError::Failed(ConnectionError::ClosedByPeer(Close::Transport { code, .. })) => {
            Some(code)
        }
        _ => None,
    }
}

const REFUSED: Option<TransportErrorCode> = Some(TransportErrorCode::CONNECTION_REFUSED);

#[test]
fn an_accepted_client_is_served_and_comes_from_nowhere_else() {
    let mut pair = Pair::deciding();
    let (connecting, incoming) = pair.asked();
    assert_eq!(incoming.remote_addr(), here());
    assert_eq!(incoming.local_ip(), Some(there().ip()));
    assert!(!incoming.is_validated());
    assert!(incoming.original_destination().len() >= 8);
    assert_eq!(pair.server.connection_count(), 0);
    assert!(pair.server.try_incoming().is_pending(), "told twice");
    assert_eq!(connecting.remote_addr(), there());
    assert_eq!(connecting.local_ip(), None, "no packet has come yet");
    let server = pair.server.clone();
    pair.world.block_on(async move {
        let accepted = incoming.accept().unwrap();
        assert_eq!(accepted.remote_addr(), here());
        assert_eq!(accepted.local_ip(), Some(there().ip()));
        let near = connecting.await.unwrap();
        let far = accepted.await.unwrap();
        assert_eq!(far.remote_addr(), here());
        assert_eq!(far.local_ip(), Some(there().ip()));
        assert_eq!(near.local_ip(), Some(here().ip()));
        assert!(server.try_accept().is_pending());
        let mut send = near.open_uni().await.unwrap();
        send.write_all(b"hello").await.unwrap();
        send.finish().unwrap();
        let mut recv = far.accept_uni().await.unwrap();
        assert_eq!(recv.read_to_end(100).await.unwrap(), b"hello");
    });
}

#[test]
fn a_refused_client_is_told_so_and_so_is_one_whose_incoming_is_dropped() {
    for by_dropping in [false, true] {
        let mut pair = Pair::deciding();
        let (connecting, incoming) = pair.asked();
        match by_dropping {
            true => drop(incoming),
            false => incoming.refuse(),
        }
        let began = pair.world.now();
        let error = pair.world.block_on(connecting).unwrap_err();
        assert_eq!(refusal(error), REFUSED);
        let took = pair.world.now().saturating_duration_since(began);
        assert_eq!(took, DELAY);
    }
}

#[test]
fn an_ignored_client_times_out() {
    let mut options = options();
    options.transport.handshake_timeout = 3 * SECOND;
    let mut pair = Pair::with(&options, |builder| builder.incoming(true));
    let (connecting, incoming) = pair.asked();
    incoming.ignore();
    let server = pair.server.clone();
    pair.world.tasks().spawn(async move {
        while let Some(again) = server.incoming().await {
            again.ignore();
        }
    });
    let error = pair.world.block_on(connecting).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Failed(ConnectionError::TimedOut(_))),
        "{error}"
    );
}

#[test]
fn a_client_that_was_sent_a_retry_comes_back_validated() {
    let mut pair = Pair::deciding();
    let (connecting, first) = pair.asked();
    let original = first.original_destination().to_vec();
    first.retry().unwrap();
    let server = pair.server.clone();
    pair.world.block_on(async move {
        let second = server.incoming().await.unwrap();
        assert!(second.is_validated());
        assert_eq!(second.original_destination(), original);
        let error = second.retry().unwrap_err();
        assert!(error.to_string().contains("no second Retry"), "{error}");
        // It waits still.
        let accepted = error.into_incoming().accept().unwrap();
        connecting.await.unwrap();
        accepted.await.unwrap();
    });
}

#[test]
fn a_decision_that_comes_too_late_is_an_error_and_changes_nothing() {
    let mut options = options();
    options.transport.handshake_timeout = 3600 * SECOND;
    options.transport.max_idle_timeout = Duration::ZERO;
    let mut pair = Pair::with(&options, |builder| builder.incoming(true));
    let (connecting, first) = pair.asked();
    pair.world.run_for(MAX_INCOMING_WAIT + SECOND);
    let error = first.accept().unwrap_err();
    assert_eq!(error, ConnectError::NotAccepted(AcceptError::Gone));
    // The client goes on asking; what is said to one that waits no longer is heard by nobody.
    let late: [fn(Incoming); 3] = [Incoming::refuse, Incoming::ignore, |incoming| {
        incoming.retry().unwrap();
    }];
    for late in late {
        let server = pair.server.clone();
        let next = pair.world.block_on(async move { server.incoming().await });
        pair.world.run_for(MAX_INCOMING_WAIT + SECOND);
        late(next.unwrap());
    }
    let server = pair.server.clone();
    pair.world.block_on(async move {
        let accepted = server.incoming().await.unwrap().accept().unwrap();
        connecting.await.unwrap();
        accepted.await.unwrap();
    });
}

#[test]
fn one_client_gets_a_configuration_of_its_own() {
    let mut pair = Pair::deciding();
    let mut own = pair.server_config.clone();
    let mut transport = (*own.transport).clone();
    transport.max_concurrent_uni_streams = 1;
    own.transport = transport.into();
    let (connecting, incoming) = pair.asked();
    pair.world.block_on(async move {
        let accepted = incoming.accept_with(&own).unwrap();
        let near = connecting.await.unwrap();
        let _one = near.open_uni().await.unwrap();
        assert!(near.try_open_uni().is_pending());
        accepted.await.unwrap();
    });
}

#[test]
fn dropping_an_accepted_handshake_gives_it_up() {
    let mut pair = Pair::deciding();
    let (connecting, incoming) = pair.asked();
    drop(incoming.accept().unwrap());
    let ended = pair.world.block_on(async move {
        match connecting.await {
            Ok(connection) => connection.closed().await.to_string(),
            Err(error) => error.to_string(),
        }
    });
    assert!(ended.starts_with("closed by the peer"), "{ended}");
}

#[test]
fn who_waits_for_clients_is_served_in_turn_and_told_of_the_end() {
    let mut pair = Pair::deciding();
    let heard = Rc::new(RefCell::new(Vec::new()));
    for name in ["first", "second", "third"] {
        let (server, heard) = (pair.server.clone(), Rc::clone(&heard));
        pair.world.tasks().spawn(async move {
            let incoming = server.incoming().await;
            heard.borrow_mut().push((name, incoming.is_some()));
        });
    }
    for _ in 0..2 {
        let _connecting = pair
            .client
            .start_connect(there(), "localhost", &pair.config)
            .unwrap();
        pair.world.run_for(2 * DELAY);
    }
    assert_eq!(*heard.borrow(), [("first", true), ("second", true)]);
    pair.server.close(0, b"");
    pair.world.run_for(SECOND);
    assert_eq!(heard.borrow()[2..], [("third", false)]);
}

#[test]
fn an_endpoint_that_does_not_decide_has_no_incoming_clients() {
    let pair = Pair::accepting();
    let nobody = pair.server.try_incoming();
    assert!(matches!(nobody, Poll::Ready(None)));
}

#[test]
fn closing_an_endpoint_refuses_those_who_wait() {
    let mut pair = Pair::deciding();
    let (connecting, taken) = pair.asked();
    let (config, client) = (pair.config.clone(), pair.client.clone());
    let second = client.start_connect(there(), "localhost", &config).unwrap();
    pair.world.run_for(2 * DELAY);
    pair.server.close(0, b"");
    assert_eq!(taken.accept().unwrap_err(), ConnectError::EndpointClosed);
    assert!(matches!(pair.server.try_incoming(), Poll::Ready(None)));
    for attempt in [connecting, second] {
        let error = pair.world.block_on(attempt).unwrap_err();
        assert_eq!(refusal(error), REFUSED);
    }
}

#[test]
fn a_server_without_a_configuration_refuses_and_goes_on_with_another() {
    let mut pair = Pair::accepting();
    let (near, far) = pair.connected();
    pair.server.set_server_config(None).unwrap();
    let (config, client) = (pair.config.clone(), pair.client.clone());
    let attempt = client.start_connect(there(), "localhost", &config).unwrap();
    let error = pair.world.block_on(attempt).unwrap_err();
    assert_eq!(refusal(error), REFUSED);
    assert!(pair.server.try_accept().is_pending(), "no end of it");
    // The connection that was there goes on.
    pair.world.block_on(async move {
        let mut send = near.open_uni().await.unwrap();
        send.write_all(b"still here").await.unwrap();
        send.finish().unwrap();
        let mut recv = far.accept_uni().await.unwrap();
        assert_eq!(recv.read_to_end(100).await.unwrap(), b"still here");
    });

    let mut other = pair.server_config.clone();
    let mut transport = (*other.transport).clone();
    transport.initial_rtt = Duration::ZERO;
    other.transport = transport.clone().into();
    assert!(pair.server.set_server_config(Some(other.clone())).is_err());
    transport.initial_rtt = SECOND / 10;
    transport.max_concurrent_uni_streams = 1;
    other.transport = transport.into();
    pair.server.set_server_config(Some(other)).unwrap();
    let (near, _far) = pair.connected();
    pair.world.block_on(async move {
        let _one = near.open_uni().await.unwrap();
        assert!(near.try_open_uni().is_pending());
    });
}

/// What a peer's connection ended with: code and reason.
fn words(end: &ConnectionError) -> (u64, &[u8]) {
    match end {
        ConnectionError::ClosedByPeer(Close::Application { code, reason }) => (*code, &reason[..]),
        other => panic!("{other}"),
    }
}

#[test]
fn a_shutdown_lets_what_runs_go_on_until_the_grace_is_over() {
    let mut pair = Pair::accepting();
    let (near, far) = pair.connected();
    let began = pair.world.now();
    let done = Rc::new(Cell::new(None));
    let (server, end) = (pair.server.clone(), Rc::clone(&done));
    pair.world.tasks().spawn(async move {
        server.shutdown(5 * SECOND, 7, b"going").await;
        end.set(Some(server.now()));
    });
    pair.world.run_for(SECOND);
    let (config, client) = (pair.config.clone(), pair.client.clone());
    let late = client.start_connect(there(), "localhost", &config).unwrap();
    let error = pair.world.block_on(late).unwrap_err();
    assert_eq!(refusal(error), REFUSED);
    assert!(matches!(pair.server.try_accept(), Poll::Ready(None)));
    // No other configuration undoes it.
    let again = pair.server_config.clone();
    pair.server.set_server_config(Some(again)).unwrap();
    let late = client.start_connect(there(), "localhost", &config).unwrap();
    assert!(pair.world.block_on(late).is_err());
    // What runs, runs.
    let (one, other) = (near.clone(), far.clone());
    pair.world.block_on(async move {
        let mut send = one.open_uni().await.unwrap();
        send.write_all(b"still here").await.unwrap();
        send.finish().unwrap();
        let mut recv = other.accept_uni().await.unwrap();
        assert_eq!(recv.read_to_end(100).await.unwrap(), b"still here");
    });
    assert_eq!(near.close_reason(), None);
    assert_eq!(done.get(), None);
    let end = pair.world.block_on(async move { near.closed().await });
    assert_eq!(words(&end), (7, &b"going"[..]));
    let took = pair.world.now().saturating_duration_since(began);
    assert_eq!(took, 5 * SECOND + DELAY);
    assert_eq!(far.close_reason(), Some(ConnectionError::ClosedLocally));
    pair.world.run_for(SECOND);
    assert!(done.get().is_some(), "it waits for nothing");
}

#[test]
fn a_shutdown_ends_as_soon_as_everybody_has_left() {
    let mut pair = Pair::accepting();
    let (near, far) = pair.connected();
    let server = pair.server.clone();
    pair.world.tasks().spawn(async move {
        let _ = far.closed().await;
    });
    let tasks = pair.world.tasks();
    tasks.clone().spawn(async move {
        tasks.sleep(SECOND).await;
        near.close(0, b"done");
    });
    let began = pair.world.now();
    pair.world
        .block_on(async move { server.shutdown(3600 * SECOND, 0, b"").await });
    let took = pair.world.now().saturating_duration_since(began);
    assert!(took > SECOND && took < 3 * SECOND, "{took:?}");
}

#[test]
fn a_handshake_under_way_when_a_shutdown_begins_gets_its_connection() {
    let mut pair = Pair::accepting();
    let (config, client) = (pair.config.clone(), pair.client.clone());
    let connecting = client.start_connect(there(), "localhost", &config).unwrap();
    // Its first packet has come, its last one has not.
    pair.world.run_for(2 * DELAY);
    assert!(pair.server.try_accept().is_pending());
    pair.server.start_shutdown(5 * SECOND, 7, b"going");
    let accepted = Rc::new(Cell::new(0));
    let (server, count) = (pair.server.clone(), Rc::clone(&accepted));
    pair.world.tasks().spawn(async move {
        let mut kept = Vec::new();
        while let Some(connection) = server.accept().await {
            kept.push(connection);
            count.set(count.get() + 1);
        }
        count.set(count.get() + 100);
        for connection in kept {
            connection.closed().await;
        }
    });
    let near = pair.world.block_on(connecting).unwrap();
    pair.world.run_for(SECOND);
    // One, and then the end of them.
    assert_eq!(accepted.get(), 101);
    let end = pair.world.block_on(async move { near.closed().await });
    assert_eq!(words(&end), (7, &b"going"[..]));
}

#[test]
fn a_shutdown_refuses_those_who_wait_for_a_decision() {
    let mut pair = Pair::deciding();
    let (connecting, incoming) = pair.asked();
    pair.server.start_shutdown(SECOND, 0, b"");
    assert!(matches!(pair.server.try_incoming(), Poll::Ready(None)));
    assert!(incoming.accept().is_err());
    let error = pair.world.block_on(connecting).unwrap_err();
    assert_eq!(refusal(error), REFUSED);
}

#[test]
fn of_several_shutdowns_the_earliest_end_counts() {
    let mut pair = Pair::accepting();
    let (near, _far) = pair.connected();
    let began = pair.world.now();
    for (grace, code) in [(9, 1), (3, 2), (6, 3)] {
        pair.server.start_shutdown(grace * SECOND, code, b"");
    }
    let end = pair.world.block_on(async move { near.closed().await });
    assert_eq!(words(&end).0, 2);
    let took = pair.world.now().saturating_duration_since(began);
    assert_eq!(took, 3 * SECOND + DELAY);
}

#[test]
fn a_shutdown_goes_on_when_the_endpoint_is_dropped() {
    let mut pair = Pair::accepting();
    let (near, far) = pair.connected();
    pair.server.start_shutdown(3 * SECOND, 7, b"going");
    let Pair {
        mut world, server, ..
    } = pair;
    drop(server);
    let end = world.block_on(async move { near.closed().await });
    assert_eq!(words(&end), (7, &b"going"[..]));
    drop(far);
}

#[test]
fn who_polls_for_clients_leaves_no_trace_when_it_gives_up() {
    let mut pair = Pair::deciding();
    let server = pair.server.clone();
    pair.world.block_on(async move {
        let mut waiter = Waiter::new();
        poll_fn(|cx| {
            assert!(server.poll_incoming(&mut waiter, cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(waiter);
        assert!(server.try_incoming().is_pending());
    });
    let (_connecting, incoming) = pair.asked();
    incoming.refuse();
}

#[tokio::test]
async fn clients_are_decided_about_over_real_sockets() {
    let (config, server) = configs(&options());
    let builder = Endpoint::builder().server(server).incoming(true);
    let server = builder.bind(loopback()).unwrap();
    let address = server.local_addr();
    let welcome = Endpoint::client(loopback()).unwrap();
    let unwelcome = Endpoint::client(loopback()).unwrap();
    let port = welcome.local_addr().port();
    let deciding = server.clone();
    tokio::spawn(async move {
        while let Some(incoming) = deciding.incoming().await {
            if incoming.remote_addr().port() != port {
                incoming.refuse();
            } else if !incoming.is_validated() {
                incoming.retry().unwrap();
            } else {
                let accepted = incoming.accept().unwrap();
                tokio::spawn(async move {
                    let connection = accepted.await.unwrap();
                    connection.closed().await;
                });
            }
        }
    });
    let connection = within(welcome.connect(address, "localhost", &config)).await;
    let refused = within(unwelcome.connect(address, "localhost", &config)).await;
    assert_eq!(refusal(refused.unwrap_err()), REFUSED);
    assert_eq!(server.connection_count(), 1);
    connection.unwrap().close(0, b"");
    within(server.wait_idle()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_shards_stop_accepting_take_up_again_and_shut_down() {
    let (config, server_config) = configs(&options());
    let builder = Endpoint::builder().server(server_config.clone()).shards(2);
    let server = builder.bind(loopback()).unwrap();
    let address = server.local_addr();
    // Each client has its own socket, and with it the shard that the system gives it.
    let connect = async || {
        let client = Endpoint::client(loopback()).unwrap();
        within(client.connect(address, "localhost", &config)).await
    };
    server.set_server_config(None).unwrap();
    for _ in 0..16 {
        assert_eq!(refusal(connect().await.unwrap_err()), REFUSED);
    }
    server.set_server_config(Some(server_config)).unwrap();
    let mut connections = Vec::new();
    for _ in 0..16 {
        connections.push(connect().await.unwrap());
    }
    let mut accepted = Vec::new();
    for _ in 0..16 {
        accepted.push(within(server.accept()).await.unwrap());
    }
    let shards = server.shard_stats();
    assert!(shards.iter().all(|shard| shard.engine.connections > 0));
    server.start_shutdown(Duration::from_millis(200), 7, b"going");
    assert!(connect().await.is_err());
    for connection in connections {
        let end = within(connection.closed()).await;
        assert_eq!(words(&end), (7, &b"going"[..]));
    }
    assert!(within(server.accept()).await.is_none());
    within(server.wait_idle()).await;
}
