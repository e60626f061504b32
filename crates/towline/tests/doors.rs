//! Several protocols on one port: doors, what stands between a connection and its handles, and
//! certificates that change while connections come and go.

mod common;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "an example's")]
#[path = "../examples/services/protocol.rs"]
mod protocol;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use common::{configs, loopback, options, within};
use protocol::{NO_NAME, NO_SERVICE, Services};
use towline::config::{
    self, CertificateList, Certificates, ClientAuth, ClientConfig, Identity, Resumption, Trust,
};
use towline::engine::{Event, ProtocolConfig, TransportConfig};
use towline::handles::{Protocol, Turn};
use towline::identity::CertificatePin;
use towline::io::Change;
use towline::testing::{LinkConfig, Simulation};
use towline::{
    Connection, ConnectionError, Endpoint, EndpointBuilder, PeerIdentity, ReadError, Time,
};

const SECOND: Duration = Duration::from_secs(1);

fn there() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 443))
}

/// A client and a server 20 ms apart; the server speaks `test`, and two protocols with doors.
struct World {
    world: Simulation,
    client: Endpoint,
    server: Endpoint,
    trust: Trust,
}

impl World {
    fn new() -> Self {
        Self::with(|builder| {
            let make = |_: &_| -> Box<dyn Protocol> { Box::new(Services::new(&["chart", "wind"])) };
            builder.door("few").protocol(protocol::ALPN, make)
        })
    }

    /// The server's endpoint has the doors that `doors` gives it.
    fn with(doors: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Self {
        let identity = Identity::generate_raw_key().unwrap();
        let few = TransportConfig::default().max_concurrent_bidi_streams(3);
        let many = TransportConfig::default().max_concurrent_bidi_streams(300);
        let config = config::server(&identity, &ClientAuth::None, &options()).unwrap();
        let config = config.protocols([
            ProtocolConfig::new("few").transport(few),
            ProtocolConfig::new(protocol::ALPN).transport(many),
        ]);
        let server = doors(Endpoint::builder().server(config));
        let client = Endpoint::builder().protocol(protocol::ALPN, |_| {
            Box::new(Services::new(&["chart", "wind"]))
        });
        let here = SocketAddr::from(([192, 0, 2, 1], 1000));
        let link = LinkConfig {
            delay: Duration::from_millis(20),
            ..LinkConfig::default()
        };
        let mut world = Simulation::new(1);
        world.join(here, there(), link.clone(), link).unwrap();
        Self {
            server: world.endpoint(server, there()).unwrap(),
            client: world.endpoint(client, here).unwrap(),
            world,
            trust: Trust::RawKeys(vec![identity.key_pin()]),
        }
    }

    fn config(&self, alpn: &str) -> ClientConfig {
        let options = options().alpn(vec![alpn.into()]);
        config::client(&self.trust, None, &options).unwrap()
    }

    /// Runs `task` beside others; what is returned is its result.
    fn spawn<T, F>(&self, task: F) -> impl Future<Output = T> + use<T, F>
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        let (done, result) = tokio::sync::oneshot::channel();
        self.world.tasks().spawn(async move {
            let _ = done.send(task.await);
        });
        async move { result.await.expect("the task went on to its end") }
    }

    /// The client's end and the server's, which comes from where its protocol's do.
    fn connected(&mut self, alpn: &str) -> (Connection, Connection) {
        let (client, config) = (self.client.clone(), self.config(alpn));
        let (server, door) = (self.server.clone(), self.server.door(alpn.as_bytes()));
        self.world.block_on(async move {
            let near = client.connect(there(), "localhost", &config);
            let near = near.await.unwrap();
            let far = match door {
                Some(door) => door.accept().await,
                None => server.accept().await,
            };
            (near, far.unwrap())
        })
    }
}

#[test]
fn each_protocol_is_accepted_at_its_own_door_and_has_its_own_settings() {
    let mut world = World::new();
    let services = protocol::ALPN;
    for alpn in [services, "test", "few", "test"] {
        let (near, far) = world.connected(alpn);
        assert_eq!(far.alpn().unwrap(), alpn.as_bytes());
        let streams = std::iter::from_fn(|| match near.try_open_bi() {
            std::task::Poll::Ready(stream) => stream.ok(),
            std::task::Poll::Pending => None,
        });
        let streams: Vec<_> = streams.take(1000).collect();
        let permitted = match alpn {
            "few" => 3,
            "test" => 100,
            _ => 300,
        };
        assert_eq!(streams.len(), permitted, "{alpn}");
    }
    assert_eq!(world.server.door(b"few").unwrap().alpn(), b"few");
    assert!(world.server.door(b"other").is_none());
    assert!(world.server.door(b"test").is_none());
}

#[test]
fn who_waits_at_one_door_is_not_woken_for_another() {
    let mut world = World::new();
    let door = world.server.door(b"few").unwrap();
    let waits = world.spawn(async move { door.accept().await });
    let (_near, _far) = world.connected("test");
    let (server, few) = (world.server.clone(), world.config("few"));
    assert!(server.try_accept().is_pending());
    let client = world.client.clone();
    let accepted = world.world.block_on(async move {
        let _near = client.connect(there(), "localhost", &few).await.unwrap();
        waits.await
    });
    assert_eq!(accepted.unwrap().alpn().unwrap(), b"few");
}

#[test]
fn a_closed_endpoint_ends_every_door() {
    let mut world = World::new();
    let doors = [b"few".as_slice(), protocol::ALPN.as_bytes()];
    let doors = doors.map(|alpn| world.server.door(alpn).unwrap());
    let waits = doors
        .clone()
        .map(|door| world.spawn(async move { door.accept().await.is_none() }));
    let server = world.server.clone();
    world.world.block_on(async move {
        server.close(0, b"");
        for wait in waits {
            assert!(wait.await);
        }
    });
    assert!(doors.iter().all(|door| door.try_accept().is_ready()));
}

#[test]
fn streams_go_to_the_service_that_they_name_and_their_payload_to_handles() {
    let mut world = World::new();
    let (near, far) = world.connected(protocol::ALPN);
    let tasks = world.world.tasks();
    let echo = move |service: usize| {
        let far = far.clone();
        tasks.spawn(async move {
            let (mut send, mut recv) = protocol::accept(&far, service).await.unwrap();
            let mut bytes = recv.read_to_end(1 << 20).await.unwrap();
            bytes.push(service as u8);
            send.write_all(&bytes).await.unwrap();
            send.finish().unwrap();
            send.finished().await.unwrap();
        });
    };
    (0..2).for_each(echo);
    world.world.block_on(async move {
        for (service, name) in ["chart", "wind"].into_iter().enumerate().rev() {
            let (mut send, mut recv) = protocol::open(&near, name).await.unwrap();
            send.write_all(&[7; 50_000]).await.unwrap();
            send.finish().unwrap();
            let answer = recv.read_to_end(1 << 20).await.unwrap();
            assert_eq!((answer.len(), answer[50_000]), (50_001, service as u8));
        }
    });
}

#[test]
fn a_stream_for_nobody_is_refused_and_one_without_a_name_is_in_time() {
    let mut world = World::new();
    let (near, far) = world.connected(protocol::ALPN);
    let waits = world.spawn(async move { protocol::accept(&far, 1).await.is_ok() });
    let begun = world.client.now();
    let client = world.client.clone();
    world.world.block_on(async move {
        let (_send, mut recv) = protocol::open(&near, "fish").await.unwrap();
        let refused = recv.read_to_end(10).await.unwrap_err();
        assert!(
            refused.to_string().contains(&NO_SERVICE.to_string()),
            "{refused}"
        );
        let (mut send, mut recv) = near.open_bi().await.unwrap();
        // A name of four letters, of which two come.
        send.write_all(&[4, b'w', b'i']).await.unwrap();
        match recv.read_chunk(10).await {
            Err(ReadError::Reset(code)) => assert_eq!(code, NO_NAME),
            other => panic!("{other:?}"),
        }
        let took = client.now().saturating_duration_since(begun);
        assert!((5 * SECOND..6 * SECOND).contains(&took), "{took:?}");
        // The connection is none the worse.
        let (_send, _recv) = protocol::open(&near, "wind").await.unwrap();
        assert!(waits.await);
    });
}

#[test]
fn what_a_peer_said_before_a_handle_was_made_is_heard_by_the_handle() {
    let mut world = World::new();
    let (near, far) = world.connected(protocol::ALPN);
    let sleep = world.world.tasks();
    world.world.block_on(async move {
        let (send, mut recv) = protocol::open(&near, "chart").await.unwrap();
        recv.stop(42);
        sleep.sleep(SECOND).await;
        let (mut answer, mut question) = protocol::accept(&far, 0).await.unwrap();
        assert_eq!(answer.stopped().await.unwrap(), Some(42));
        drop(send);
        assert!(matches!(
            question.read_chunk(9).await,
            Err(ReadError::Reset(0))
        ));
    });
}

#[test]
fn datagrams_are_the_protocols() {
    let mut world = World::new();
    let (near, far) = world.connected(protocol::ALPN);
    let sleep = world.world.tasks();
    let counts = world.world.block_on(async move {
        for first in [0, 1, 1, 9] {
            near.send_datagram(Bytes::copy_from_slice(&[first, 5]))
                .unwrap();
        }
        sleep.sleep(SECOND).await;
        assert!(far.try_read_datagram().is_pending());
        far.with_protocol(|own: &mut Services, _| (own.datagrams.clone(), Change::None))
    });
    assert_eq!(counts, Some(vec![1, 2]));
}

#[test]
fn who_waits_for_a_protocol_hears_of_the_end() {
    let mut world = World::new();
    let (near, far) = world.connected(protocol::ALPN);
    let waits = world.spawn(async move { protocol::accept(&far, 0).await.err() });
    world.world.block_on(async move {
        near.close(7, b"enough");
        let error = waits.await.unwrap().to_string();
        assert!(error.contains("application code 7: enough"), "{error}");
        // This end's own, too.
        assert!(protocol::accept(&near, 1).await.is_err());
    });
}

#[test]
fn a_connection_of_another_protocol_has_none() {
    let mut world = World::new();
    let (near, far) = world.connected("test");
    for connection in [near, far] {
        let protocol = connection.with_protocol(|_: &mut Services, _| ((), Change::None));
        assert_eq!(protocol, None);
        assert!(connection.try_accept_bi().is_pending());
    }
}

/// Wants to be called at the beginning of time, whenever it is asked.
struct Impatient(u64);

impl Protocol for Impatient {
    fn on_event(&mut self, _: &mut Turn<'_>, event: Event) -> Option<Event> {
        Some(event)
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(Time::ZERO)
    }

    fn on_timeout(&mut self, _: &mut Turn<'_>) {
        self.0 += 1;
    }

    fn on_end(&mut self, _: &ConnectionError, _: &mut Vec<Waker>) {}
}

#[test]
fn a_protocol_that_asks_for_the_past_is_called_each_millisecond_and_not_for_ever() {
    let mut world = World::with(|builder| builder.protocol("few", |_| Box::new(Impatient(0))));
    let (near, far) = world.connected("few");
    let calls = |far: &Connection| {
        far.with_protocol(|own: &mut Impatient, _| (own.0, Change::None))
            .unwrap()
    };
    let before = calls(&far);
    world.world.run_for(SECOND);
    let in_a_second = calls(&far) - before;
    assert!((900..=1100).contains(&in_a_second), "{in_a_second}");
    // It is over with the connection.
    near.close(0, b"");
    world.world.run_for(SECOND);
    let at_the_end = calls(&far);
    world.world.run_for(SECOND);
    assert_eq!(calls(&far), at_the_end);
}

#[test]
fn a_client_that_was_decided_about_has_its_protocol_too() {
    let make = |_: &_| -> Box<dyn Protocol> { Box::new(Services::new(&["chart"])) };
    let mut world = World::with(|builder| builder.incoming(true).protocol(protocol::ALPN, make));
    let (client, config) = (world.client.clone(), world.config(protocol::ALPN));
    let server = world.server.clone();
    let (near, far) = world.world.block_on(async move {
        let connecting = client.start_connect(there(), "localhost", &config).unwrap();
        let far = server.incoming().await.unwrap().accept().unwrap().await;
        (connecting.await.unwrap(), far.unwrap())
    });
    let door = world.server.door(protocol::ALPN.as_bytes()).unwrap();
    assert!(door.try_accept().is_pending(), "it was given out already");
    world.world.block_on(async move {
        let (_send, _recv) = protocol::open(&near, "chart").await.unwrap();
        assert!(protocol::accept(&far, 0).await.is_ok());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doors_are_those_of_all_shards() {
    let (client_config, server) = configs(&options());
    let server = server.protocols([ProtocolConfig::new("few"), ProtocolConfig::new("test")]);
    let builder = Endpoint::builder().server(server).shards(2).door("test");
    let server = builder.bind(loopback()).unwrap();
    let door = server.door(b"test").unwrap();
    let mut shards = std::collections::BTreeSet::new();
    // Each client has a port of its own, and the kernel spreads them.
    for _ in 0..40 {
        let client = Endpoint::client(loopback()).unwrap();
        let near = client.connect(server.local_addr(), "localhost", &client_config);
        let _near = within(near).await.unwrap();
        let far = within(door.accept()).await.unwrap();
        assert_eq!(far.alpn().unwrap(), b"test");
        assert!(server.try_accept().is_pending());
        let counts = server.shard_stats();
        let admitted = counts.iter().map(|shard| shard.engine.admitted);
        shards.extend(
            admitted
                .enumerate()
                .filter(|(_, n)| *n > 0)
                .map(|(at, _)| at),
        );
    }
    assert_eq!(shards.len(), 2);
}

#[tokio::test]
async fn a_door_that_nobody_can_come_through_is_refused_at_once() {
    let (_, server) = configs(&options());
    let refused = |builder: towline::EndpointBuilder| {
        let error = builder.bind(loopback()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    let builder = Endpoint::builder().server(server.clone());
    assert_eq!(
        refused(builder.door("chat")),
        "the protocol `chat` has a door, and the server's configuration does not name it"
    );
    let builder = Endpoint::builder().server(server.clone());
    assert_eq!(
        refused(builder.door("test").door("test")),
        "the protocol `test` has two doors; give it one"
    );
    // A protocol of the server's own list may have one, too.
    let builder = Endpoint::builder().server(server).door("test");
    assert!(builder.bind(loopback()).is_ok());
}

/// Connections in all, opened by this many tasks at a time.
const CONNECTIONS: usize = 5_000;
const TASKS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_swapped_three_times_under_5000_connections_and_none_fails() {
    let new = || Identity::generate_dev(&["localhost"], config::unix_now()).unwrap();
    let identities: Arc<Vec<Identity>> = Arc::new((0..4).map(|_| new()).collect());
    let certificates = Certificates::new(identities[0].clone()).unwrap();
    // Each handshake is a full one, and shows a certificate.
    let options = options().resumption(Resumption::Disabled);
    let auth = ClientAuth::None;
    let server = config::server_with_certificates(&certificates, &auth, &options).unwrap();
    let server = Endpoint::server(loopback(), server).unwrap();
    let address = server.local_addr();
    tokio::spawn(async move {
        while let Some(connection) = server.accept().await {
            tokio::spawn(async move {
                let mut stream = connection.accept_uni().await?;
                let _ = stream.read_to_end(100).await;
                connection.close(0, b"");
                Ok::<_, towline::ConnectionError>(())
            });
        }
    });

    let client = Endpoint::client(loopback()).unwrap();
    let pin = |identity: &Identity| identity.certificate_pin().unwrap();
    let pins: Vec<CertificatePin> = identities.iter().map(pin).collect();
    let (done, epoch) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let begun = client.now();
    let workers = (0..TASKS).map(|_| {
        let (client, pins, options) = (client.clone(), pins.clone(), options.clone());
        let (done, epoch) = (Arc::clone(&done), Arc::clone(&epoch));
        tokio::spawn(async move {
            let mut met = [0; 4];
            while done.fetch_add(1, Ordering::Relaxed) < CONNECTIONS {
                // The pin of now and the pin of next: what a page that was loaded a while ago has.
                let now = epoch.load(Ordering::SeqCst);
                let believed = pins[now..].iter().take(2).map(|pin| (*pin).into());
                let trust = Trust::Pinned(believed.collect());
                let config = config::client(&trust, None, &options).unwrap();
                let connection = client.connect(address, "localhost", &config);
                let connection = within(connection).await.expect("no handshake fails");
                let Some(PeerIdentity::X509 { certificate, .. }) = connection.peer_identity()
                else {
                    panic!("a certificate was shown");
                };
                met[pins.iter().position(|pin| *pin == certificate).unwrap()] += 1;
                let mut stream = connection.open_uni().await.unwrap();
                stream.write_all(b"ahoy").await.unwrap();
                stream.finish().unwrap();
                within(connection.closed()).await;
            }
            met
        })
    });
    let workers: Vec<_> = workers.collect();
    for swap in 1..=3 {
        while done.load(Ordering::Relaxed) < swap * CONNECTIONS / 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Clients have had its pin since the last swap; the one before is valid still, and goes.
        let list = [identities[swap - 1].clone(), identities[swap].clone()];
        certificates.set(CertificateList::new(list)).unwrap();
        certificates.set(identities[swap].clone()).unwrap();
        // Those who begin before they hear of it have its pin as their second.
        tokio::time::sleep(Duration::from_millis(50)).await;
        epoch.store(swap, Ordering::SeqCst);
    }
    let mut met = [0; 4];
    for worker in workers {
        let worker = worker.await.unwrap();
        met.iter_mut()
            .zip(worker)
            .for_each(|(sum, one)| *sum += one);
    }
    let took = client.now().saturating_duration_since(begun);
    let line = format!("{CONNECTIONS} connections in {took:.1?}, certificates met: {met:?}");
    assert_eq!(met.iter().sum::<usize>(), CONNECTIONS, "{line}");
    assert!(met.iter().all(|&each| each > CONNECTIONS / 10), "{line}");
    assert_eq!(certificates.refused(), 0);
    eprintln!("{line}");
}
