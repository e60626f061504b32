//! The relay between network namespaces with real kernels at both ends: ping, UDP and TCP.
//!
//! Needs root (or its network capabilities), /dev/net/tun and the program `ip`. Where one of them
//! is missing, every test says `SKIPPED` past the capture of cargo's test harness, so that
//! `make test` lists it.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use towline::io::Clock;
use towline_relay::tun::{
    CLIENT_ADDRESSES, SERVER_ADDRESSES, TunConfig, TunCounters, TunError, TunRelay, in_namespace,
};

const PORT: u16 = 4433;
const PATIENCE: Duration = Duration::from_secs(20);

/// A relay on its own thread between two namespaces of its own.
struct World {
    config: TunConfig,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<TunCounters>>,
}

impl World {
    /// `None` where this cannot be done.
    fn new(test: &str, link: &str) -> Option<Self> {
        Self::with_nat(test, link, "change=port")
    }

    fn with_nat(test: &str, link: &str, nat: &str) -> Option<Self> {
        let mut config = config(link);
        config.nat = nat.parse().unwrap();
        let mut relay = open(test, &config)?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            relay.run(&flag).unwrap();
            relay.counters()
        });
        Some(Self {
            config,
            stop,
            thread: Some(thread),
        })
    }

    fn in_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.config.client_namespace, work).unwrap()
    }

    fn in_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.config.server_namespace, work).unwrap()
    }

    /// Sockets of the client and of the server, connected to each other.
    fn udp_pair(&self) -> (UdpSocket, UdpSocket) {
        let bind = |address: IpAddr| {
            let socket = UdpSocket::bind(SocketAddr::new(address, PORT)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let client = self.in_client(|| bind(CLIENT_ADDRESSES.v4.into()));
        let server = self.in_server(|| bind(SERVER_ADDRESSES.v4.into()));
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        (client, server)
    }

    /// A connection from the client to the server, from both ends.
    fn tcp_pair(&self, server: IpAddr) -> (TcpStream, TcpStream) {
        let address = SocketAddr::new(server, PORT);
        let listener = self.in_server(|| TcpListener::bind(address).unwrap());
        let client = self.in_client(|| TcpStream::connect_timeout(&address, PATIENCE).unwrap());
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        (client, server)
    }

    /// Sends so many bytes from the client to `server`, which must get the same.
    fn send_over_tcp(&self, server: IpAddr, len: u32) {
        let (mut client, mut server) = self.tcp_pair(server);
        let content: Vec<u8> = (0..len)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let arrived = thread::scope(|scope| {
            scope.spawn(|| {
                client.write_all(&content).unwrap();
                client.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut arrived = Vec::new();
            server.read_to_end(&mut arrived).unwrap();
            arrived
        });
        assert!(arrived == content);
    }

    fn stop(mut self) -> TunCounters {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Its namespaces go with it, even if the test failed.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Namespaces that no other test has, made by the relay.
fn config(link: &str) -> TunConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = |end| format!("towline-test-{}-{number}-{end}", std::process::id());
    let config = TunConfig {
        client_namespace: name("client"),
        server_namespace: name("server"),
        create: true,
        ..TunConfig::default()
    };
    if link.is_empty() {
        config
    } else {
        config.with_link(link.parse().unwrap())
    }
}

/// `None`, after saying so, where this cannot be done.
fn open(test: &str, config: &TunConfig) -> Option<TunRelay> {
    match TunRelay::open(config) {
        Ok(relay) => Some(relay),
        Err(why @ (TunError::NotPermitted { .. } | TunError::NoTun | TunError::NoIpProgram)) => {
            // The print macros would be captured.
            let _ = writeln!(std::io::stderr(), "SKIPPED tun relay, {test}: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn exists(namespace: &str) -> bool {
    in_namespace(namespace, || ()).is_ok()
}

/// One ICMP echo request from the client; the answer as the raw socket gives it (IPv4 with its header).
fn ping(world: &World, to: IpAddr, tos: u32) -> (Vec<u8>, Duration) {
    let (domain, protocol, kind) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128),
    };
    let socket = world.in_client(|| Socket::new(domain, Type::RAW, Some(protocol)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    if to.is_ipv4() {
        socket.set_tos_v4(tos).unwrap();
    }
    // Identifier 0x7431, number 1, no data. The kernel fills in the checksum of ICMPv6 only.
    let mut request = [kind, 0, 0, 0, 0x74, 0x31, 0, 1];
    let sum = u16::from_be_bytes([kind, 0]) + 0x7431 + 1;
    request[2..4].copy_from_slice(&(!sum).to_be_bytes());
    let clock = Clock::start();
    let sent = clock.now();
    socket
        .send_to(&request, &SocketAddr::new(to, 0).into())
        .unwrap();
    loop {
        let mut packet = vec![0; 1500];
        let len = (&socket).read(&mut packet).unwrap();
        packet.truncate(len);
        let is_answer = match to {
            IpAddr::V4(_) => packet.ends_with(&[0x74, 0x31, 0, 1]) && packet[20] == 0,
            IpAddr::V6(_) => packet.ends_with(&[0x74, 0x31, 0, 1]) && packet[0] == 129,
        };
        if is_answer {
            return (packet, clock.now().saturating_duration_since(sent));
        }
    }
}

#[test]
fn ping_crosses_after_the_delay_and_ecn_bits_stay() {
    let Some(world) = World::new("ping", "delay=20ms") else {
        return;
    };
    // DSCP 46 and ECT(0); the kernel answers with the same.
    let (answer, round_trip) = ping(&world, SERVER_ADDRESSES.v4.into(), 0xba);
    assert_eq!(answer[1], 0xba);
    assert!(round_trip >= Duration::from_millis(40), "{round_trip:?}");
    let (_, round_trip) = ping(&world, SERVER_ADDRESSES.v6.into(), 0);
    assert!(round_trip >= Duration::from_millis(40), "{round_trip:?}");
    let counters = world.stop();
    // Nothing but what was sent: what kernels say by themselves stays where it is.
    assert_eq!(counters.to_server.datagrams_in, 2, "{counters:?}");
    assert_eq!(counters.to_client.datagrams_in, 2, "{counters:?}");
    assert_eq!(counters.send_failures, 0);
}

#[test]
fn a_mark_set_on_the_way_reaches_the_kernel_and_is_believed() {
    let link = "rate=10mbit,queue=1mb,aqm=step:1ms,ecn=on";
    let Some(world) = World::new("ECN", link) else {
        return;
    };
    let (client, _server) = world.udp_pair();
    for _ in 0..20 {
        client.send(&[0; 1472]).unwrap();
    }
    // Behind 24 ms of queue; a header with a wrong checksum would get no answer. The answer has the
    // request's ECN bits as they arrived.
    let (answer, _) = ping(&world, SERVER_ADDRESSES.v4.into(), 0xba);
    assert_eq!(answer[1], 0xbb);
    assert!(world.stop().to_server.ce_marks > 0);
}

#[test]
fn a_tcp_transfer_over_a_lossy_link_arrives_whole() {
    let Some(world) = World::new("TCP over loss", "rate=50mbit,delay=5ms,loss=1%") else {
        return;
    };
    for address in [SERVER_ADDRESSES.v4.into(), SERVER_ADDRESSES.v6.into()] {
        world.send_over_tcp(address, 2_000_000);
    }
    let counters = world.stop();
    assert!(counters.to_server.drops.loss > 0, "{counters:?}");
    // The kernel segments before it hands a packet over: nothing is longer than the device's MTU.
    let longest_mean = counters.to_server.bytes_in / counters.to_server.datagrams_in;
    assert!((1000..=1500).contains(&longest_mean), "{counters:?}");
    assert_eq!(counters.lost_before_link, 0);
}

#[test]
fn the_listed_packet_is_lost_and_no_other() {
    let Some(world) = World::new("drop list", "drop=2") else {
        return;
    };
    let (client, server) = world.udp_pair();
    for number in 1..=4 {
        client.send(&[number]).unwrap();
    }
    let mut arrived = Vec::new();
    for _ in 0..3 {
        let mut buffer = [0; 16];
        assert_eq!(server.recv(&mut buffer).unwrap(), 1);
        arrived.push(buffer[0]);
    }
    assert_eq!(arrived, [1, 3, 4]);
    let counters = world.stop();
    assert_eq!(counters.to_server.drops.listed, 1);
    assert_eq!(counters.to_server.drops.total(), 1);
}

/// What arrives at the server when the client sends `count` datagrams of 100 zeros.
fn sent_zeros(client: &UdpSocket, server: &UdpSocket, count: usize) -> Vec<[u8; 100]> {
    let short = Some(Duration::from_millis(300));
    server.set_read_timeout(short).unwrap();
    for _ in 0..count {
        client.send(&[0; 100]).unwrap();
    }
    let mut arrived = Vec::new();
    let mut buffer = [0; 100];
    while server.recv(&mut buffer).is_ok() {
        arrived.push(buffer);
    }
    arrived
}

#[test]
fn corruption_reaches_the_program_only_where_checksums_are_mended() {
    for (link, reaches) in [("corrupt=100%", false), ("corrupt=100%,mend=on", true)] {
        let Some(world) = World::new("corruption", link) else {
            return;
        };
        let (client, server) = world.udp_pair();
        let arrived = sent_zeros(&client, &server, 100);
        let changed = arrived.iter().filter(|bytes| bytes.contains(&1)).count();
        // Of 128 bytes 28 are headers; a bit that is flipped there sends most packets astray.
        assert_eq!(arrived.len() > 50, reaches, "{link}: {}", arrived.len());
        assert_eq!(changed > 0, reaches, "{link}");
        assert_eq!(world.stop().to_server.corrupted, 100);
    }
}

#[test]
fn ecn_bits_are_bleached() {
    let Some(world) = World::new("bleaching", "remark=bleach") else {
        return;
    };
    let (answer, _) = ping(&world, SERVER_ADDRESSES.v4.into(), 0xba);
    assert_eq!(answer[1], 0xb8);
    assert_eq!(world.stop().to_server.ecn_rewritten, 1);
}

#[test]
fn a_kernel_believes_the_error_for_a_packet_that_is_too_big() {
    let Some(world) = World::new("too big", "mtu=1300,icmp=on") else {
        return;
    };
    for address in [SERVER_ADDRESSES.v4.into(), SERVER_ADDRESSES.v6.into()] {
        // Full segments of TCP are lost, and the kernel makes them smaller as the relay says.
        world.send_over_tcp(address, 100_000);
    }
    let counters = world.stop();
    assert!(counters.too_big_told >= 2, "{counters:?}");
    assert!(counters.to_server.drops.mtu >= 2, "{counters:?}");
}

#[test]
fn a_nat_that_forgets_drops_what_comes_back_until_the_client_sends() {
    for (change, ip_stays, port_stays) in [
        ("same", true, true),
        ("port", true, false),
        ("address", false, true),
    ] {
        let nat = format!("rebind=1s,change={change}");
        let Some(world) = World::with_nat("NAT", "", &nat) else {
            return;
        };
        let bind = |address: IpAddr| {
            let socket = UdpSocket::bind(SocketAddr::new(address, PORT)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let client = world.in_client(|| bind(CLIENT_ADDRESSES.v4.into()));
        let server = world.in_server(|| bind(SERVER_ADDRESSES.v4.into()));
        let to = server.local_addr().unwrap();
        let mut buffer = [0; 16];
        client.send_to(b"first", to).unwrap();
        let (_, before) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(before, client.local_addr().unwrap());
        server.send_to(b"answer", before).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (6, to));
        // Until the NAT has forgotten.
        server
            .set_read_timeout(Some(Duration::from_millis(1200)))
            .unwrap();
        assert!(server.recv_from(&mut buffer).is_err());
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.send_to(b"too late", before).unwrap();
        client.send_to(b"second", to).unwrap();
        let (_, after) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(before.ip() == after.ip(), ip_stays, "{change}");
        assert_eq!(before.port() == after.port(), port_stays, "{change}");
        server.send_to(b"again", after).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (5, to), "{change}");
        let counters = world.stop();
        assert_eq!((counters.rebindings, counters.packets_unmapped), (1, 1));
    }
}

#[test]
fn the_rate_holds_within_5_percent() {
    let Some(world) = World::new("rate", "rate=10mbit,queue=2mb") else {
        return;
    };
    const PACKETS: u32 = 800;
    let (client, server) = world.udp_pair();
    socket2::SockRef::from(&server)
        .set_recv_buffer_size(4 << 20)
        .unwrap();
    let clock = Clock::start();
    // 28 bytes of headers make packets of 1500 bytes: 1.2 ms each.
    let (first, last) = thread::scope(|scope| {
        let server = &server;
        let clock = &clock;
        let receiver = scope.spawn(move || {
            let receive = || {
                server.recv(&mut [0; 2000]).unwrap();
                clock.now()
            };
            let first = receive();
            let last = (1..PACKETS).fold(first, |_, _| receive());
            (first, last)
        });
        for _ in 0..PACKETS {
            client.send(&[0; 1472]).unwrap();
        }
        receiver.join().unwrap()
    });
    let taken = last.saturating_duration_since(first).as_secs_f64();
    let rate = f64::from(PACKETS - 1) * 1500.0 * 8.0 / taken;
    assert!((9.5e6..10.5e6).contains(&rate), "{rate}");
    let counters = world.stop();
    assert_eq!(counters.to_server.drops.total(), 0);
    assert!(
        counters.to_server.queue_peak_bytes > 100_000,
        "{counters:?}"
    );
}

#[test]
fn without_a_rate_it_carries_far_more_than_50_mbit() {
    let Some(world) = World::new("speed", "") else {
        return;
    };
    const BYTES: usize = 40_000_000;
    let (mut client, mut server) = world.tcp_pair(SERVER_ADDRESSES.v4.into());
    let clock = Clock::start();
    let begun = clock.now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let block = [0; 65_536];
            let mut left = BYTES;
            while left > 0 {
                left -= client.write(&block[..block.len().min(left)]).unwrap();
            }
        });
        let mut buffer = vec![0; 65_536];
        let mut arrived = 0;
        while arrived < BYTES {
            arrived += server.read(&mut buffer).unwrap();
        }
    });
    let taken = clock.now().saturating_duration_since(begun).as_secs_f64();
    let rate = BYTES as f64 * 8.0 / taken;
    assert!(rate > 1e8, "{rate}");
    drop(world);
}

#[test]
fn what_the_relay_made_goes_with_it_and_what_was_there_stays() {
    let config = config("");
    let (client, server) = (&config.client_namespace, &config.server_namespace);
    let Some(first) = open("clean-up", &config) else {
        return;
    };
    assert!(exists(client) && exists(server));
    let error = |config: &TunConfig| TunRelay::open(config).err().unwrap();
    assert!(
        matches!(error(&config), TunError::NamespacesExist { names } if names == [client.clone(), server.clone()])
    );
    let as_guest = TunConfig {
        create: false,
        ..config.clone()
    };
    assert!(
        matches!(error(&as_guest), TunError::DeviceExists { namespace } if namespace == *client)
    );
    drop(first);
    assert!(!exists(client) && !exists(server));
    assert!(matches!(error(&as_guest), TunError::NoSuchNamespace { name } if name == *client));

    // The second is there: the first is not made either.
    let ip = |action| {
        let status = Command::new("ip").args(["netns", action, server]).status();
        assert!(status.unwrap().success());
    };
    ip("add");
    assert!(
        matches!(error(&config), TunError::NamespacesExist { names } if names == [server.clone()])
    );
    assert!(!exists(client) && exists(server));
    ip("del");
}

#[test]
fn impossible_relays_are_refused_with_the_reason() {
    let refusal = |config: TunConfig| TunRelay::open(&config).err().unwrap().to_string();
    let mut same = TunConfig::default();
    same.server_namespace = same.client_namespace.clone();
    assert!(refusal(same).contains("two namespaces"));
    for name in ["", "../evil", "-n", "..", "a\0b"] {
        let config = TunConfig {
            client_namespace: name.to_owned(),
            ..TunConfig::default()
        };
        assert!(refusal(config).contains("no name"), "{name}");
    }
    let mut restless = TunConfig::default();
    restless.nat.every = Some(Duration::ZERO);
    assert!(refusal(restless).starts_with("NAT: link setting `every`"));
    let mut slow = TunConfig::default();
    slow.to_client.rate = Some(0);
    assert!(refusal(slow).starts_with("link to client: link setting `rate`"));
}
