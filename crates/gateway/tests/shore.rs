//! A shore whose log is down: what is new goes on to the live sink, and nothing is lost.
#![cfg(all(feature = "postgres", feature = "signalk"))]

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{PATIENCE, delta, free_port, until};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use towline::Endpoint;
use towline::config::{self, ClientAuth, Identity, KeyLogging, Trust};
use towline::link::{
    Class, Dialer, Listener, MemoryStore, SenderConfig, Uplink, UplinkConfig, options,
};
use towline_gateway::{
    LinesOptions, MAX_HELD, MAX_HELD_BYTES, PostgresOptions, Shore, SignalKSinkOptions, Sink,
};

/// A shore with these sinks, and a boat that sends to it.
fn boat_and_shore(sinks: Vec<Sink>) -> (Uplink, Arc<Shore>) {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let quiet = || options().key_log(KeyLogging::Off);
    let (boat, land) = (
        Identity::generate_raw_key().unwrap(),
        Identity::generate_raw_key().unwrap(),
    );
    let clients = ClientAuth::RawKeys(vec![boat.key_pin()]);
    let server = config::server(&land, &clients, &quiet()).unwrap();
    let endpoint = Endpoint::server(loopback, server).unwrap();
    let at = endpoint.local_addr();
    let trust = Trust::RawKeys(vec![land.key_pin()]);
    let client = config::client(&trust, Some(&boat), &quiet()).unwrap();
    let names = HashMap::from([("vela".to_owned(), boat.key_pin())]);
    let shore = Shore::start(sinks, names);
    let mut listener = Listener::new(endpoint, None);
    let serving = Arc::clone(&shore);
    tokio::spawn(async move {
        while let Some(link) = listener.accept().await {
            tokio::spawn(Arc::clone(&serving).serve(link));
        }
    });
    let sender = SenderConfig::new("vela").deadline(Duration::from_millis(20));
    let dialer = Dialer::new("127.0.0.1", at.port(), client);
    let store = MemoryStore::new(7, 256 << 20);
    let uplink = Uplink::start(UplinkConfig::new(sender), dialer, store).unwrap();
    (uplink, shore)
}

#[tokio::test]
async fn a_log_that_is_down_holds_so_many_records_and_gives_the_rest_back() {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let screen = UdpSocket::bind(loopback).await.unwrap();
    let live = format!("udp://{}", screen.local_addr().unwrap());
    let nowhere = format!("postgresql://a@127.0.0.1:{}/a?sslmode=disable", free_port());
    let log = PostgresOptions {
        url: nowhere,
        tls: None,
    };
    let sinks = vec![
        Sink::postgres(log).unwrap(),
        Sink::signalk(SignalKSinkOptions::new(live)).unwrap(),
    ];
    let (uplink, shore) = boat_and_shore(sinks);
    let count = 2 * MAX_HELD as u64;
    for number in 0..count {
        assert!(uplink.send(delta(number), Class::Telemetry).await);
    }
    // The newest value gets to the screen although nothing is durable.
    let newest = delta(count - 1).to_json();
    let mut buffer = vec![0; 65_536];
    loop {
        let received = timeout(PATIENCE, screen.recv(&mut buffer)).await;
        let len = received.expect("the newest value is shown").unwrap();
        if &buffer[..len] == newest.as_bytes() {
            break;
        }
    }
    let [(name, status)] = &shore.senders()[..] else {
        panic!("one sender is here");
    };
    assert_eq!(name, "vela");
    assert!(status.held <= MAX_HELD, "{status:?}");
    assert!(status.is_on_hold, "{status:?}");
    assert!(shore.sinks()[0].trouble.is_some());
    let status = uplink.status().borrow().clone();
    assert_eq!((status.durable, status.sender.dropped), (0, 0));
    uplink.close(Duration::ZERO).await;
}

#[tokio::test]
async fn what_waits_for_a_log_is_bounded_by_its_memory_and_goes_on_when_the_log_does() {
    let folder = std::env::temp_dir().join(format!("towline-shore-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // A disk that is full, for now.
    let (path, real) = (folder.join("log.jsonl"), folder.join("real.jsonl"));
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let sink = Sink::file(path.clone(), LinesOptions::default());
    let (uplink, shore) = boat_and_shore(vec![sink]);
    // 64 MiB.
    let count = 160;
    for number in 0..count {
        let text = format!(
            "{{\"number\":{number},\"text\":\"{}\"}}",
            "x".repeat(400 << 10)
        );
        let record = towline::link::Record::parse(text.as_bytes()).unwrap();
        assert!(uplink.send(record, Class::Telemetry).await);
    }
    let is_held = || {
        let senders = shore.senders();
        senders
            .first()
            .map(|(_, status)| (status.is_on_hold, status.held_bytes))
    };
    until("it is on hold", || {
        is_held().is_some_and(|(is_on_hold, _)| is_on_hold)
    })
    .await;
    let (_, bytes) = is_held().unwrap();
    assert!(
        (MAX_HELD_BYTES / 2..=MAX_HELD_BYTES).contains(&bytes),
        "{bytes}"
    );
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    let status = uplink.status();
    until("all is durable", || status.borrow().durable == count).await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count() as u64, count);
    uplink.close(Duration::ZERO).await;
    let _ = std::fs::remove_dir_all(&folder);
}
