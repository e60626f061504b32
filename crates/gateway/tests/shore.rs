//! A shore whose log is down: what is new goes on to the live sink, and nothing is lost.
#![cfg(all(feature = "postgres", feature = "signalk"))]

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{PATIENCE, delta, free_port, record, until};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use towline::Endpoint;
use towline::config::{self, ClientAuth, Identity, KeyLogging, Trust};
use towline::link::{
    Class, Dialer, Listener, MemoryStore, Record, SenderConfig, Uplink, UplinkConfig, options,
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

/// A server that shows what it is told, and its URL.
async fn screen() -> (TcpListener, String) {
    let screen = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}", screen.local_addr().unwrap());
    (screen, url)
}

type Shown = Lines<BufReader<TcpStream>>;

async fn connected(screen: &TcpListener) -> Shown {
    let connected = timeout(PATIENCE, screen.accept()).await;
    let (connection, _) = connected.expect("the sink connects").unwrap();
    BufReader::new(connection).lines()
}

/// Reads up to this record; what was shown before it.
async fn shows(screen: &mut Shown, record: &Record) -> Vec<String> {
    let (text, mut before) = (record.to_json(), Vec::new());
    loop {
        match line(screen).await {
            line if line == text => return before,
            line => before.push(line),
        }
    }
}

async fn line(screen: &mut Shown) -> String {
    let line = timeout(PATIENCE, screen.next_line()).await;
    let line = line.expect("something is shown").unwrap();
    line.expect("the sink is connected")
}

#[tokio::test]
async fn a_live_sink_that_was_away_shows_the_newest_value_of_each_name() {
    let alarm = |state: &str| {
        record(&format!(
            r#"{{"context":"vessels.self","updates":[{{"$source":"test.1","timestamp":"2026-01-01T00:00:00.000Z","values":[{{"path":"notifications.fire","value":{{"state":"{state}"}}}}]}}]}}"#
        ))
    };
    let (screen, url) = screen().await;
    let live = Sink::signalk(SignalKSinkOptions::new(url)).unwrap();
    let (uplink, shore) = boat_and_shore(vec![live]);
    let mut lines = connected(&screen).await;
    assert!(uplink.send(alarm("normal"), Class::Alarm).await);
    assert!(uplink.send(delta(0), Class::Telemetry).await);
    shows(&mut lines, &delta(0)).await;
    let at = screen.local_addr().unwrap();
    drop((screen, lines));
    until("it is away", || shore.sinks()[0].trouble.is_some()).await;
    // While nobody is there: an alarm, and values of which only the last is of use afterwards.
    assert!(uplink.send(alarm("alarm"), Class::Alarm).await);
    for number in 1..100 {
        assert!(uplink.send(delta(number), Class::Telemetry).await);
    }
    let all_here = || shore.senders()[0].1.receiver.records == 102;
    until("all is at the shore", all_here).await;
    let screen = TcpListener::bind(at).await.unwrap();
    let mut lines = connected(&screen).await;
    let mut before = shows(&mut lines, &delta(99)).await;
    if before.is_empty() {
        // Alarms have a lane of their own, so that it may be the newer one.
        shows(&mut lines, &alarm("alarm")).await;
    } else {
        assert_eq!(before.pop().unwrap(), alarm("alarm").to_json());
    }
    assert_eq!(before, Vec::<String>::new(), "nothing old is shown");
    // One batch may overtake another; then its values are older than what waits.
    assert_eq!(shore.missed() + shore.senders()[0].1.stale, 98);
    assert!(shore.sinks()[0].trouble.is_none());
    // The server behind it begins anew, and nothing has changed in the meantime.
    drop(lines);
    let mut lines = connected(&screen).await;
    let mut again = vec![line(&mut lines).await, line(&mut lines).await];
    again.sort();
    let mut expected = [alarm("alarm").to_json(), delta(99).to_json()];
    expected.sort();
    assert_eq!(again, expected);
    uplink.close(Duration::ZERO).await;
}

#[tokio::test]
async fn a_log_that_is_down_holds_so_many_records_and_gives_the_rest_back() {
    let (screen, live) = screen().await;
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
    let mut lines = connected(&screen).await;
    shows(&mut lines, &delta(count - 1)).await;
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
        let record = Record::parse(text.as_bytes()).unwrap();
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
