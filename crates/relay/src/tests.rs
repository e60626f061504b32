use std::collections::BTreeSet;
use std::thread::JoinHandle;

use super::*;

/// A relay running on its own thread; stops when told or dropped.
struct Running {
    address: SocketAddr,
    monitor: RelayMonitor,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Relay>>,
}

impl Running {
    fn start(config: RelayConfig) -> Self {
        let mut relay = Relay::bind(config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        Self {
            address: relay.local_addr(),
            monitor: relay.monitor(),
            stop,
            thread: Some(std::thread::spawn(move || {
                relay.run(&flag).unwrap();
                relay
            })),
        }
    }

    fn stop(mut self) -> RelayCounters {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap().counters()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn local() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(local()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

fn impatient(socket: &UdpSocket) {
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
}

fn link(text: &str) -> LinkConfig {
    text.parse().unwrap()
}

/// A relay in front of `server`.
fn relay(server: &UdpSocket, link_text: &str) -> Running {
    let config = RelayConfig::new(local(), server.local_addr().unwrap());
    Running::start(config.with_link(link(link_text)))
}

fn receive(socket: &UdpSocket) -> io::Result<(Vec<u8>, SocketAddr)> {
    let mut buffer = vec![0; 65_536];
    let (len, from) = socket.recv_from(&mut buffer)?;
    buffer.truncate(len);
    Ok((buffer, from))
}

/// Echoes until nothing comes for the socket's timeout.
fn echo_all(server: &UdpSocket) {
    impatient(server);
    while let Ok((payload, from)) = receive(server) {
        server.send_to(&payload, from).unwrap();
    }
}

#[test]
fn two_clients_talk_to_one_server_and_are_kept_apart() {
    let (server, first, second) = (socket(), socket(), socket());
    let relay = relay(&server, "local");
    for (client, text) in [(&first, "one"), (&second, "two")] {
        client.send_to(text.as_bytes(), relay.address).unwrap();
    }
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let (payload, from) = receive(&server).unwrap();
        seen.insert(from);
        server.send_to(&payload, from).unwrap();
    }
    assert_eq!(seen.len(), 2, "each client has a socket of its own");
    assert_eq!(receive(&first).unwrap(), (b"one".to_vec(), relay.address));
    assert_eq!(receive(&second).unwrap(), (b"two".to_vec(), relay.address));
    let counters = relay.stop();
    assert_eq!((counters.clients, counters.clients_total), (2, 2));
    assert_eq!(counters.to_upstream.bytes_delivered, 6);
    assert_eq!(counters.to_client.bytes_delivered, 6);
}

#[test]
fn empty_and_longest_datagrams_pass() {
    let (server, client) = (socket(), socket());
    let relay = relay(&server, "local");
    for len in [0, 65_507] {
        client.send_to(&vec![7; len], relay.address).unwrap();
        assert_eq!(receive(&server).unwrap().0, vec![7; len]);
    }
    drop(relay);
}

#[test]
fn both_directions_take_their_delay() {
    let (server, client) = (socket(), socket());
    let relay = relay(&server, "delay=60ms");
    let clock = Clock::start();
    let start = clock.now();
    client.send_to(b"ping", relay.address).unwrap();
    let (payload, from) = receive(&server).unwrap();
    server.send_to(&payload, from).unwrap();
    receive(&client).unwrap();
    let round_trip = clock.now().saturating_duration_since(start);
    // No upper bound below the read timeout: a busy machine may be late, the link never early.
    assert!(round_trip >= Duration::from_millis(120), "{round_trip:?}");
    drop(relay);
}

#[test]
fn the_rate_holds_for_all_clients_together() {
    let (server, first, second) = (socket(), socket(), socket());
    // 40 datagrams of 1250 bytes at 4 Mbit/s: the last leaves 100 ms after the first came in.
    let relay = relay(&server, "rate=4mbit");
    let clock = Clock::start();
    let start = clock.now();
    for _ in 0..20 {
        first.send_to(&[0; 1250], relay.address).unwrap();
        second.send_to(&[0; 1250], relay.address).unwrap();
    }
    for _ in 0..40 {
        receive(&server).unwrap();
    }
    let taken = clock.now().saturating_duration_since(start);
    assert!(taken >= Duration::from_millis(100), "{taken:?}");
    assert_eq!(relay.stop().to_upstream.drops.total(), 0);
}

#[test]
fn losses_are_the_links_and_are_counted() {
    let (server, client) = (socket(), socket());
    let relay = relay(&server, "loss=20%,drop=1");
    for i in 0..200_u8 {
        client.send_to(&[i], relay.address).unwrap();
    }
    impatient(&server);
    let mut arrived = Vec::new();
    while let Ok((payload, _)) = receive(&server) {
        arrived.push(payload[0]);
    }
    let stats = relay.stop().to_upstream;
    assert!(
        !arrived.contains(&0),
        "the first datagram is on the drop list"
    );
    assert_eq!(stats.datagrams_in, 200);
    assert_eq!(arrived.len() as u64, 200 - stats.drops.total());
    assert!((20..70).contains(&stats.drops.loss), "{stats:?}");
    assert_eq!(stats.drops.listed, 1);
}

#[test]
fn blackout_is_counted_from_the_start() {
    let (server, client) = (socket(), socket());
    let relay = relay(&server, "blackout=0s+300ms");
    let clock = Clock::start();
    let start = clock.now();
    // Until something comes through, one datagram every 20 ms.
    server
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    while receive(&server).is_err() {
        client.send_to(b"anyone there?", relay.address).unwrap();
        let waited = clock.now().saturating_duration_since(start);
        assert!(waited < Duration::from_secs(10), "the blackout never ended");
    }
    let counters = relay.stop();
    assert!(counters.to_upstream.drops.blackout > 0);
}

#[test]
fn clients_beyond_the_cap_are_refused() {
    let server = socket();
    let mut config = RelayConfig::new(local(), server.local_addr().unwrap());
    config.max_clients = 2;
    let relay = Running::start(config);
    let clients: Vec<UdpSocket> = (0..4).map(|_| socket()).collect();
    for client in &clients {
        client.send_to(b"hello", relay.address).unwrap();
    }
    echo_all(&server);
    let answered = clients
        .iter()
        .filter(|client| {
            impatient(client);
            receive(client).is_ok()
        })
        .count();
    let counters = relay.stop();
    assert_eq!(answered, 2);
    assert_eq!(
        (
            counters.clients,
            counters.clients_total,
            counters.datagrams_refused
        ),
        (2, 2, 2)
    );
}

#[test]
fn idle_clients_are_forgotten_and_may_come_back() {
    let (server, client) = (socket(), socket());
    let mut config = RelayConfig::new(local(), server.local_addr().unwrap());
    config.client_idle = Duration::from_millis(150);
    let relay = Running::start(config);
    client.send_to(b"hello", relay.address).unwrap();
    receive(&server).unwrap();
    // Waits on a socket that nobody writes to, instead of sleeping.
    impatient(&client);
    for _ in 0..50 {
        let _ = receive(&client);
        if relay.monitor.counters().clients_expired > 0 {
            break;
        }
    }
    assert_eq!(relay.monitor.counters().clients, 0);
    client.send_to(b"again", relay.address).unwrap();
    assert_eq!(receive(&server).unwrap().0, b"again");
    assert_eq!(relay.stop().clients_total, 2);
}

#[test]
fn a_server_that_is_not_there_yet_does_not_stop_the_relay() {
    let placeholder = socket();
    let address = placeholder.local_addr().unwrap();
    drop(placeholder);
    let relay = Running::start(RelayConfig::new(local(), address));
    let client = socket();
    impatient(&client);
    for _ in 0..3 {
        client.send_to(b"too early", relay.address).unwrap();
        assert!(receive(&client).is_err());
    }
    let server = UdpSocket::bind(address).unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    client.send_to(b"now", relay.address).unwrap();
    assert_eq!(receive(&server).unwrap().0, b"now");
    let counters = relay.stop();
    assert!(counters.receive_failures + counters.send_failures > 0);
}

#[test]
fn a_relay_goes_on_where_it_was_stopped() {
    let (server, client) = (socket(), socket());
    let config = RelayConfig::new(local(), server.local_addr().unwrap());
    let mut relay = Relay::bind(config).unwrap();
    relay.run(&AtomicBool::new(true)).unwrap();
    client.send_to(b"early", relay.local_addr()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let thread = std::thread::spawn(move || relay.run(&flag).map(|()| relay.counters()));
    assert_eq!(receive(&server).unwrap().0, b"early");
    stop.store(true, Ordering::Relaxed);
    assert_eq!(thread.join().unwrap().unwrap().clients_total, 1);
}

#[test]
fn impossible_relays_are_refused_with_the_reason() {
    let refusal = |config| Relay::bind(config).err().unwrap().to_string();
    let taken = socket().local_addr().unwrap();
    let config = RelayConfig::new(local(), taken);

    let bad = LinkConfig {
        rate: Some(0),
        ..LinkConfig::default()
    };
    let message = refusal(RelayConfig {
        to_client: bad,
        ..config.clone()
    });
    assert!(
        message.starts_with("link to client: link setting `rate`"),
        "{message}"
    );

    assert!(
        refusal(RelayConfig {
            max_clients: 0,
            ..config.clone()
        })
        .contains("0 clients")
    );

    let owner = socket();
    let address = owner.local_addr().unwrap();
    let message = refusal(RelayConfig {
        listen: address,
        ..config
    });
    assert!(
        message.starts_with(&format!("cannot listen on {address}")),
        "{message}"
    );
    drop(owner);

    assert!(refusal(RelayConfig::new(address, address)).contains("own address"));
    let any = (Ipv4Addr::UNSPECIFIED, address.port()).into();
    assert!(refusal(RelayConfig::new(any, address)).contains("own address"));
}

/// Waits so long; nothing may come meanwhile.
fn nothing_for(socket: &UdpSocket, millis: u64) {
    let timeout = Some(Duration::from_millis(millis));
    socket.set_read_timeout(timeout).unwrap();
    assert!(receive(socket).is_err());
    impatient(socket);
}

/// A relay in front of `server` with a NAT.
fn relay_with_nat(server: &UdpSocket, nat: &str) -> Running {
    let mut config = RelayConfig::new(local(), server.local_addr().unwrap());
    config.nat = nat.parse().unwrap();
    Running::start(config)
}

#[test]
fn a_nat_that_forgot_drops_what_comes_back_until_the_client_sends() {
    for (change, ip_stays, port_stays) in [
        ("same", true, true),
        ("port", true, false),
        ("address", false, false),
    ] {
        let (server, client) = (socket(), socket());
        impatient(&client);
        let relay = relay_with_nat(&server, &format!("rebind=700ms,change={change}"));
        client.send_to(b"first", relay.address).unwrap();
        let (_, before) = receive(&server).unwrap();
        server.send_to(b"answer", before).unwrap();
        assert_eq!(receive(&client).unwrap().0, b"answer", "{change}");
        nothing_for(&client, 800);
        server.send_to(b"too late", before).unwrap();
        assert!(receive(&client).is_err(), "{change}");
        client.send_to(b"second", relay.address).unwrap();
        let (_, after) = receive(&server).unwrap();
        assert_eq!(before.ip() == after.ip(), ip_stays, "{change}");
        assert_eq!(before.port() == after.port(), port_stays, "{change}");
        server.send_to(b"again", after).unwrap();
        assert_eq!(receive(&client).unwrap().0, b"again", "{change}");
        let counters = relay.stop();
        assert_eq!((counters.rebindings, counters.datagrams_unmapped), (1, 1));
        assert_eq!(counters.clients_total, 1);
    }
}

#[test]
fn a_silent_mapping_is_forgotten() {
    let (server, client) = (socket(), socket());
    impatient(&client);
    let relay = relay_with_nat(&server, "idle=300ms");
    client.send_to(b"first", relay.address).unwrap();
    let (_, before) = receive(&server).unwrap();
    nothing_for(&client, 600);
    server.send_to(b"too late", before).unwrap();
    assert!(receive(&client).is_err());
    client.send_to(b"second", relay.address).unwrap();
    let (_, after) = receive(&server).unwrap();
    assert_ne!(before, after);
    assert_eq!(relay.stop().rebindings, 1);
}

#[test]
fn what_needs_whole_packets_is_refused() {
    let upstream: SocketAddr = (Ipv4Addr::LOCALHOST, 4433).into();
    for (text, setting) in [
        ("mtu=1400,icmp=on", "icmp"),
        ("corrupt=1%,mend=on", "mend"),
        ("remark=bleach", "remark"),
    ] {
        let config = RelayConfig::new(local(), upstream).with_link(link(text));
        let error = Relay::bind(config).err().expect(text).to_string();
        assert!(error.contains(setting) && error.contains("TUN"), "{error}");
    }
    let far = "192.0.2.1:4433".parse().unwrap();
    let mut config = RelayConfig::new(local(), far);
    config.nat.change = Remap::Address;
    let error = Relay::bind(config).err().expect("an address it has not");
    assert!(matches!(error, RelayError::NatAddress { upstream } if upstream == far));
    let mut config = RelayConfig::new(local(), upstream);
    config.nat.every = Some(Duration::ZERO);
    assert!(matches!(Relay::bind(config), Err(RelayError::Nat(_))));
}
