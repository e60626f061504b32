//! Uplinks and downlinks over real sockets.
#![cfg(feature = "link")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{SECOND, loopback, within};
use tokio::sync::mpsc;
use towline::config::{self, ClientAuth, Identity, KeyLogging, Trust};
use towline::link::{
    Arrival, Class, Dialer, Downlink, Fallback, Listener, MemoryStore, Record, SenderConfig, State,
    Uplink, UplinkConfig, Via, options,
};
use towline::{Endpoint, stcp};
use towline_link::LiveFilter;
use towline_relay::{Relay, RelayConfig};
use towline_wire::RangeSet;

struct Keys {
    boat: Identity,
    shore: Identity,
}

impl Keys {
    fn new() -> Self {
        let key = || Identity::generate_raw_key().unwrap();
        Self {
            boat: key(),
            shore: key(),
        }
    }

    fn quiet() -> towline::config::Options {
        options().key_log(KeyLogging::Off)
    }

    fn listen(&self, at: SocketAddr, with_tls: bool) -> Listener {
        let clients = ClientAuth::RawKeys(vec![self.boat.key_pin()]);
        let server = config::server(&self.shore, &clients, &Self::quiet()).unwrap();
        let endpoint = Endpoint::server(at, server).unwrap();
        let tls = with_tls.then(|| {
            let options = stcp::Options::default().key_log(KeyLogging::Off);
            let config = stcp::server_config(&self.shore, &clients, &options).unwrap();
            let tcp = std::net::TcpListener::bind(endpoint.local_addr()).unwrap();
            tcp.set_nonblocking(true).unwrap();
            stcp::Listener::new(tokio::net::TcpListener::from_std(tcp).unwrap(), config)
        });
        Listener::new(endpoint, tls)
    }

    fn dialer(&self, to: SocketAddr, believed: &Identity) -> Dialer {
        let trust = Trust::RawKeys(vec![believed.key_pin()]);
        let client = config::client(&trust, Some(&self.boat), &Self::quiet()).unwrap();
        let options = stcp::Options::default().key_log(KeyLogging::Off);
        let tls = stcp::client_config(&trust, Some(&self.boat), &options).unwrap();
        Dialer::new(to.ip().to_string(), to.port(), client).fallback(Fallback::Tls(tls))
    }
}

fn record(seq: u64) -> Record {
    let text = format!(
        r#"{{"context":"c","updates":[{{"$source":"s","values":[{{"path":"p.{}","value":{}}}]}}]}}"#,
        seq % 5,
        seq as f64 / 4.0
    );
    Record::parse(text.as_bytes()).unwrap()
}

fn uplink(dialer: Dialer) -> Uplink {
    let sender = SenderConfig::new("vela").deadline(Duration::from_millis(20));
    let config = UplinkConfig::new(sender)
        .silence(Duration::from_millis(500))
        .back_to_udp(Duration::from_millis(500));
    Uplink::start(config, dialer, MemoryStore::new(42, 1 << 20)).unwrap()
}

/// A shore: takes one uplink after the other, and gives each record once.
struct Shore {
    durable: RangeSet,
    filter: LiveFilter,
    got: mpsc::UnboundedSender<(u64, Record, Via)>,
}

impl Shore {
    async fn run(mut self, mut listener: Listener, mut stop: mpsc::Receiver<()>) -> Self {
        loop {
            let link = tokio::select! {
                link = listener.accept() => link.unwrap(),
                _ = stop.recv() => break,
            };
            // The next connection of the same uplink may come before this one is known to be dead.
            tokio::select! {
                () = self.serve(link, &mut listener) => {}
                _ = stop.recv() => break,
            }
        }
        listener.endpoint().close(0, b"");
        listener.endpoint().wait_idle().await;
        self
    }

    async fn serve(&mut self, mut link: Downlink, listener: &mut Listener) {
        loop {
            let arrival = tokio::select! {
                arrival = link.next() => arrival,
                next = listener.accept() => {
                    link = next.unwrap();
                    continue;
                }
            };
            match arrival {
                Ok(Arrival::Hello(hello)) => {
                    assert_eq!((&*hello.name, hello.stream), ("vela", 42));
                    link.accept(self.durable.clone());
                }
                Ok(Arrival::Delivery(delivery)) => {
                    for (seq, record) in delivery.live() {
                        self.filter.filter(seq, &record);
                    }
                    for (seq, record) in delivery.entries() {
                        let _ = self.got.send((seq, record.clone(), link.via()));
                    }
                    for seqs in delivery.new {
                        self.durable.insert(seqs.clone());
                        link.on_durable(seqs);
                    }
                }
                Ok(Arrival::Forgotten(_)) => {}
                Err(_) => return,
            }
        }
    }
}

type Got = mpsc::UnboundedReceiver<(u64, Record, Via)>;

fn shore() -> (Shore, Got) {
    let (got, records) = mpsc::unbounded_channel();
    let shore = Shore {
        durable: RangeSet::default(),
        filter: LiveFilter::new(),
        got,
    };
    (shore, records)
}

/// The next `count` records, each once and as it was sent.
async fn expect(records: &mut Got, from: u64, count: u64) -> Vec<Via> {
    let mut seen = vec![false; count as usize];
    let mut ways = Vec::new();
    for _ in 0..count {
        let (seq, got, via) = within(records.recv()).await.unwrap();
        assert_eq!(got, record(seq));
        let seen = &mut seen[(seq - from) as usize];
        assert!(!std::mem::replace(seen, true), "{seq} came twice");
        ways.push(via);
    }
    ways
}

async fn durable(uplink: &Uplink, below: u64) {
    let mut status = uplink.status();
    within(status.wait_for(|status| status.durable >= below))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_pushed_is_durable_at_the_other_end_and_then_forgotten() {
    let keys = Keys::new();
    let listener = keys.listen(loopback(), false);
    let at = listener.endpoint().local_addr();
    let (shore, mut records) = shore();
    let (_stop, stopped) = mpsc::channel(1);
    tokio::spawn(shore.run(listener, stopped));
    let uplink = uplink(keys.dialer(at, &keys.shore));
    for seq in 0..1_000 {
        let class = if seq % 100 == 7 {
            Class::Alarm
        } else {
            Class::Telemetry
        };
        assert_eq!(within(uplink.push(record(seq), class)).await, Ok(seq));
    }
    expect(&mut records, 0, 1_000).await;
    durable(&uplink, 1_000).await;
    let status = uplink.status().borrow().clone();
    assert_eq!(status.state, State::Live(Via::Udp));
    assert_eq!((status.backlog, status.sender.dropped), (0, 0));
    assert!(status.bytes_sent < 40_000, "{status:?}");
    uplink.close(SECOND).await;
}

/// Text of random digits, which nothing makes shorter.
fn noise(random: &mut u64, len: usize) -> String {
    let mut digit = || {
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'!' + 10 + (*random >> 33) as u8 % 48)
    };
    (0..len).map(|_| digit()).collect()
}

#[tokio::test]
async fn large_records_do_not_take_the_credit_that_the_first_of_them_waits_for() {
    let keys = Keys::new();
    let listener = keys.listen(loopback(), false);
    let at = listener.endpoint().local_addr();
    let link = towline_relay::LinkConfig {
        rate: Some(20_000_000),
        delay: Duration::from_millis(20),
        ..Default::default()
    };
    let mut relay = Relay::bind(RelayConfig::new(loopback(), at).with_link(link)).unwrap();
    let through = relay.local_addr();
    let end = Arc::new(AtomicBool::new(false));
    let stop_relay = Arc::clone(&end);
    let relaying = std::thread::spawn(move || relay.run(&stop_relay));
    let (shore, mut got) = shore();
    let (_stop, stopped) = mpsc::channel(1);
    tokio::spawn(shore.run(listener, stopped));
    let sender = SenderConfig::new("vela").deadline(Duration::from_millis(20));
    let store = MemoryStore::new(42, 64 << 20);
    let dialer = keys.dialer(through, &keys.shore);
    let uplink = Uplink::start(UplinkConfig::new(sender), dialer, store).unwrap();
    // Coded they are several times what a receiver gives credit for.
    let (count, mut random) = (16, 7);
    for number in 0..count {
        let text = noise(&mut random, 700_000);
        let record = format!(r#"{{"number":{number},"text":"{text}"}}"#);
        let record = Record::parse(record.as_bytes()).unwrap();
        assert!(uplink.send(record, Class::Telemetry).await);
    }
    let mut numbers = RangeSet::default();
    while numbers.first_missing(0..count).is_some() {
        let next = tokio::time::timeout(20 * SECOND, got.recv()).await;
        let (seq, ..) = next.expect("they wait for each other").unwrap();
        numbers.insert(seq..seq + 1);
    }
    durable(&uplink, count).await;
    assert_eq!(uplink.status().borrow().connections, 1);
    uplink.close(SECOND).await;
    end.store(true, Ordering::Relaxed);
    relaying.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_bad_link_and_a_shore_that_restarts_lose_nothing() {
    let keys = Keys::new();
    let mut listener = keys.listen(loopback(), false);
    let at = listener.endpoint().local_addr();
    let link = towline_relay::LinkConfig {
        loss: towline_relay::LossModel::Bernoulli(0.1),
        delay: Duration::from_millis(20),
        ..Default::default()
    };
    let relay = RelayConfig::new(loopback(), at).with_link(link);
    let mut relay = Relay::bind(relay).unwrap();
    let through = relay.local_addr();
    let end = Arc::new(AtomicBool::new(false));
    let stop_relay = Arc::clone(&end);
    let relaying = std::thread::spawn(move || relay.run(&stop_relay));

    let (mut shore, mut records) = shore();
    let uplink = uplink(keys.dialer(through, &keys.shore));
    for round in 0..3 {
        let (stop, stopped) = mpsc::channel(1);
        let running = tokio::spawn(shore.run(listener, stopped));
        for seq in round * 300..(round + 1) * 300 {
            within(uplink.push(record(seq), Class::Telemetry))
                .await
                .unwrap();
            if seq % 10 == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        if round == 2 {
            durable(&uplink, 900).await;
        }
        stop.send(()).await.unwrap();
        shore = within(running).await.unwrap();
        listener = keys.listen(at, false);
    }
    expect(&mut records, 0, 900).await;
    assert!(records.try_recv().is_err(), "a record came twice");
    uplink.close(Duration::ZERO).await;
    end.store(true, Ordering::Relaxed);
    relaying.join().unwrap().unwrap();
}

#[tokio::test]
async fn where_udp_is_blocked_tls_carries_the_link_until_udp_is_back() {
    let keys = Keys::new();
    // Nobody reads what comes to this port over UDP.
    let blocked = std::net::UdpSocket::bind(loopback()).unwrap();
    let at = blocked.local_addr().unwrap();
    let elsewhere = keys.listen(loopback(), false);
    let clients = ClientAuth::RawKeys(vec![keys.boat.key_pin()]);
    let options = stcp::Options::default().key_log(KeyLogging::Off);
    let config = stcp::server_config(&keys.shore, &clients, &options).unwrap();
    let tls = stcp::listen(at, config).await.unwrap();
    let listener = Listener::new(elsewhere.endpoint().clone(), Some(tls));
    let real = elsewhere.endpoint().local_addr();
    let (shore, mut records) = shore();
    let (_stop, stopped) = mpsc::channel(1);
    tokio::spawn(shore.run(listener, stopped));
    let uplink = uplink(keys.dialer(at, &keys.shore));
    for seq in 0..100 {
        uplink.push(record(seq), Class::Telemetry).await.unwrap();
    }
    let ways = expect(&mut records, 0, 100).await;
    assert!(ways.iter().all(|via| *via == Via::Tls));
    durable(&uplink, 100).await;

    // UDP gets through again.
    drop(blocked);
    let mut relay = Relay::bind(RelayConfig::new(at, real)).unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let stop_relay = Arc::clone(&end);
    let relaying = std::thread::spawn(move || relay.run(&stop_relay));
    let mut status = uplink.status();
    within(status.wait_for(|status| status.state == State::Live(Via::Udp)))
        .await
        .unwrap();
    for seq in 100..200 {
        uplink.push(record(seq), Class::Telemetry).await.unwrap();
    }
    let ways = expect(&mut records, 100, 100).await;
    assert!(ways.iter().all(|via| *via == Via::Udp));

    // And is blocked in mid-stream.
    end.store(true, Ordering::Relaxed);
    relaying.join().unwrap().unwrap();
    let _blocked = std::net::UdpSocket::bind(at).unwrap();
    for seq in 200..300 {
        uplink.push(record(seq), Class::Telemetry).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    expect(&mut records, 200, 100).await;
    durable(&uplink, 300).await;
    let status = uplink.status().borrow().clone();
    assert_eq!(status.state, State::Live(Via::Tls));
    assert!(status.bytes_sent > 3_000, "TLS is counted: {status:?}");
    uplink.close(SECOND).await;
}

#[tokio::test]
async fn who_is_sent_away_hears_why_over_either_way() {
    for with_udp in [true, false] {
        let keys = Keys::new();
        let blocked = std::net::UdpSocket::bind(loopback()).unwrap();
        let at = blocked.local_addr().unwrap();
        let mut listener = match with_udp {
            true => {
                drop(blocked);
                keys.listen(at, false)
            }
            false => {
                let elsewhere = keys.listen(loopback(), false);
                let clients = ClientAuth::RawKeys(vec![keys.boat.key_pin()]);
                let options = stcp::Options::default().key_log(KeyLogging::Off);
                let config = stcp::server_config(&keys.shore, &clients, &options).unwrap();
                let tls = stcp::listen(at, config).await.unwrap();
                Listener::new(elsewhere.endpoint().clone(), Some(tls))
            }
        };
        let uplink = uplink(keys.dialer(at, &keys.shore));
        uplink.push(record(0), Class::Telemetry).await.unwrap();
        let sending_away = async {
            loop {
                let mut link = listener.accept().await.unwrap();
                if let Ok(Arrival::Hello(_)) = link.next().await {
                    link.reject("no room for you");
                }
            }
        };
        let mut status = uplink.status();
        let told = status.wait_for(
            |status| matches!(&status.state, State::Down(why) if why.contains("no room for you")),
        );
        tokio::select! {
            () = sending_away => {}
            told = within(told) => drop(told.unwrap()),
        }
        assert_eq!(uplink.status().borrow().durable, 0);
        uplink.close(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn who_is_not_the_other_end_hears_nothing() {
    let keys = Keys::new();
    let other = Keys::new();
    let mut listener = keys.listen(loopback(), true);
    let at = listener.endpoint().local_addr();
    let uplink = uplink(keys.dialer(at, &other.shore));
    uplink.push(record(0), Class::Alarm).await.unwrap();
    let accepted = tokio::time::timeout(2 * SECOND, listener.accept()).await;
    assert!(accepted.is_err(), "an impostor got a connection");
    let status = uplink.status().borrow().clone();
    assert!(
        matches!(&status.state, State::Down(why) if why.contains("key")),
        "{status:?}"
    );
    assert_eq!(status.backlog, 1);
    uplink.close(Duration::ZERO).await;
}
