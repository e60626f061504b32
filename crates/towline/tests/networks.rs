//! Networks that change under a connection, with real kernels: a NAT that forgets, and an interface
//! that goes.
//!
//! ```text
//!   client ns ── veth a ──┐
//!             ── veth b ──┴─ router ns (forwards, masquerades) ── veth s ── server ns
//! ```
//!
//! Needs root, `ip`, and for the NAT `nft` and `conntrack`. Where one of them is missing, the test says
//! `SKIPPED` past the capture of cargo's test harness, so that `make test` lists it;
//! `make setup-system` installs them.
#![cfg(target_os = "linux")]

mod common;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{configs, options};
use tokio::time::Instant;
use towline::{Connection, Endpoint};
use towline_relay::tun::in_namespace;

/// The longest time in which nothing arrives.
const LONGEST_STALL: Duration = Duration::from_secs(3);

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 9, 2);

/// Three namespaces of this test's own, joined by veth pairs; they go with it.
struct Net {
    prefix: String,
}

impl Net {
    /// `None`, after saying so, where this cannot be done.
    fn new(test: &str, programs: &[&str]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let skip = |why: &str| {
            // The print macros would be captured.
            let _ = writeln!(std::io::stderr(), "SKIPPED networks, {test}: {why}");
        };
        for program in ["ip"].iter().chain(programs) {
            let found = Command::new(program)
                .arg("--version")
                .stdin(Stdio::null())
                .output();
            if found.is_err() {
                skip(&format!("`{program}` is not installed"));
                return None;
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let net = Self {
            prefix: format!("towline-net-{}-{number}", std::process::id()),
        };
        for end in ["c", "r", "s"] {
            if let Err(why) = run(&format!("ip netns add {}", net.name(end))) {
                skip(&why);
                return None;
            }
        }
        let (client, router, server) = (net.name("c"), net.name("r"), net.name("s"));
        for (veth, namespace, network, peer) in [
            ("va", &client, 1, "ra"),
            ("vb", &client, 2, "rb"),
            ("vs", &server, 9, "rs"),
        ] {
            net.do_all(&[
                &format!(
                    "ip -n {namespace} link add name {veth} type veth peer name {peer} netns {router}"
                ),
                &format!("ip -n {namespace} addr add 10.79.{network}.2/24 dev {veth}"),
                &format!("ip -n {router} addr add 10.79.{network}.1/24 dev {peer}"),
                &format!("ip -n {namespace} link set {veth} up"),
                &format!("ip -n {router} link set {peer} up"),
            ]);
        }
        net.do_all(&[
            &format!("ip -n {client} route add default via 10.79.1.1 dev va metric 100"),
            &format!("ip -n {client} route add default via 10.79.2.1 dev vb metric 200"),
            &format!("ip -n {server} route add default via 10.79.9.1 dev vs"),
        ]);
        let forwarding = in_namespace(&router, || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        });
        forwarding.unwrap().unwrap();
        Some(net)
    }

    fn name(&self, end: &str) -> String {
        format!("{}-{end}", self.prefix)
    }

    fn do_all(&self, commands: &[&str]) {
        for command in commands {
            if let Err(why) = run(command) {
                panic!("{command}: {why}");
            }
        }
    }

    /// The router hides the client's addresses behind its own, and gives ports as it likes.
    fn masquerade(&self) {
        let router = self.name("r");
        self.do_all(&[
            &format!("ip netns exec {router} nft add table ip nat"),
            &format!(
                "ip netns exec {router} nft add chain ip nat post {{ type nat hook postrouting priority 100 ; }}"
            ),
            &format!("ip netns exec {router} nft add rule ip nat post oifname rs masquerade random"),
        ]);
    }

    /// The router forgets every mapping it has; how many there were.
    fn forget_mappings(&self) -> usize {
        let router = self.name("r");
        let deleted = run(&format!("ip netns exec {router} conntrack -D -p udp"));
        deleted.map_or(0, |lines| lines.lines().count())
    }

    /// A server and a client connected to it, the server's end first.
    async fn connect(&self) -> (Endpoint, Connection, Endpoint, Connection) {
        let (client_config, server_config) = configs(&options());
        let address = SocketAddr::new(IpAddr::V4(SERVER), 4433);
        // The tasks of an endpoint run on this runtime; only its sockets are of the namespace.
        let handle = tokio::runtime::Handle::current();
        let server = in_namespace(&self.name("s"), || {
            let _entered = handle.enter();
            Endpoint::server(address, server_config).unwrap()
        });
        let client = in_namespace(&self.name("c"), || {
            let _entered = handle.enter();
            Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap()
        });
        let (server, client) = (server.unwrap(), client.unwrap());
        let connect = client.connect(address, "localhost", &client_config);
        let both = async { tokio::join!(connect, server.accept()) };
        let (near, far) = common::within(both).await;
        (server, far.unwrap(), client, near.unwrap())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in ["c", "r", "s"] {
            let _ = run(&format!("ip netns del {}", self.name(end)));
        }
    }
}

/// What the command printed, or what it complained of.
fn run(command: &str) -> Result<String, String> {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

const PIECE: usize = 100_000;

/// Bytes that do not repeat at any distance of a packet.
fn piece(number: usize) -> Vec<u8> {
    let byte = |i: usize| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8;
    (0..PIECE).map(|i| byte(number * PIECE + i)).collect()
}

/// What became of a download.
struct Download {
    /// The longest time in which nothing arrived.
    stall: Duration,
    disturbances: usize,
}

/// The server sends `pieces` with `pause` after each, and `disturb` is called in every third pause, when
/// nothing is on its way and the client, which only receives, has said all it had to.
async fn download(net: &Net, pieces: usize, mut disturb: impl FnMut(usize) -> usize) -> Download {
    const PAUSE: Duration = Duration::from_millis(400);
    let (_server, far, _client, near) = net.connect().await;
    // One byte opens the stream; then the client has nothing more to send.
    let (mut ask, mut answer) = near.open_bi().await.unwrap();
    ask.write_all(b"?").await.unwrap();
    ask.finish().unwrap();
    let reader = tokio::spawn(async move {
        let (mut content, mut stall) = (Vec::new(), Duration::ZERO);
        let mut last = Instant::now();
        while let Some(chunk) = answer.read_chunk(usize::MAX).await.unwrap() {
            stall = stall.max(last.elapsed());
            last = Instant::now();
            content.extend_from_slice(&chunk);
        }
        (content, stall)
    });
    let (mut send, _asked) = common::within(far.accept_bi()).await.unwrap();
    let mut disturbances = 0;
    for number in 0..pieces {
        send.write_all(&piece(number)).await.unwrap();
        tokio::time::sleep(PAUSE).await;
        if number % 3 == 2 {
            disturbances += disturb(number);
        }
    }
    send.finish().unwrap();
    let (content, stall) = tokio::time::timeout(Duration::from_secs(60), reader)
        .await
        .expect("a download that ends")
        .unwrap();
    let expected: Vec<u8> = (0..pieces).flat_map(piece).collect();
    assert!(content == expected, "{} bytes differ", content.len());
    near.close(0, b"");
    Download {
        stall,
        disturbances,
    }
}

#[tokio::test]
async fn a_client_that_only_receives_outlives_a_nat_that_forgets_it() {
    let Some(net) = Net::new("NAT", &["nft", "conntrack"]) else {
        return;
    };
    net.masquerade();
    let seen = download(&net, 20, |_| usize::from(net.forget_mappings() > 0)).await;
    assert!(seen.disturbances >= 5, "{} deletions", seen.disturbances);
    assert!(seen.stall <= LONGEST_STALL, "{:?}", seen.stall);
}

#[tokio::test]
async fn a_download_goes_on_when_the_clients_interface_goes() {
    let Some(net) = Net::new("interface", &[]) else {
        return;
    };
    let client = net.name("c");
    let seen = download(&net, 12, |number| {
        // The first time the interface in use goes; the second time it is back, and the other goes.
        match number {
            2 => net.do_all(&[&format!("ip -n {client} link set va down")]),
            8 => net.do_all(&[
                &format!("ip -n {client} link set va up"),
                &format!("ip -n {client} route add default via 10.79.1.1 dev va metric 100"),
                &format!("ip -n {client} link set vb down"),
            ]),
            _ => return 0,
        }
        1
    })
    .await;
    assert_eq!(seen.disturbances, 2);
    assert!(seen.stall <= LONGEST_STALL, "{:?}", seen.stall);
}

#[tokio::test]
async fn what_a_router_says_is_the_size_at_once() {
    let Some(net) = Net::new("too big", &[]) else {
        return;
    };
    // Towards the client the router's link carries less than the server's.
    net.do_all(&[&format!("ip -n {} link set ra mtu 1337", net.name("r"))]);
    let (server, far, _client, near) = net.connect().await;
    let mut send = far.open_uni().await.unwrap();
    let mut receive = None;
    for number in 0..20 {
        send.write_all(&piece(number)).await.unwrap();
        let stream = match &mut receive {
            Some(stream) => stream,
            none => none.insert(common::within(near.accept_uni()).await.unwrap()),
        };
        let mut content = vec![0; PIECE];
        common::within(stream.read_exact(&mut content))
            .await
            .unwrap();
        assert!(content == piece(number));
    }
    let stats = far.stats();
    assert_eq!(
        stats.mtu,
        1337 - 28,
        "the link's, less the headers of IP and UDP"
    );
    assert_eq!((stats.too_big_believed, stats.black_holes_detected), (1, 0));
    assert_eq!(stats.mtu_probes_sent, 2);
    drop(server);
}
