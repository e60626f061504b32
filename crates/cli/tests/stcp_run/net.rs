//! Two hosts and the cable between them, as network namespaces; what goes over the cable is read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::Scratch;

/// The client's address.
pub(crate) const CLIENT: &str = "10.78.1.2";
/// Another of its addresses, which Linux reaches from the first.
pub(crate) const CLIENT_SECOND: &str = "10.78.1.3";
/// The server's addresses.
pub(crate) const SERVER: &str = "10.78.2.2";
pub(crate) const SERVER_V6: &str = "fd78:2::2";

/// All of Linux's Ethernet protocols, in network byte order.
const ETH_P_ALL: i32 = 0x0300;

/// A client's host and a server's, joined by a router that only carries. Removed when dropped.
pub(crate) struct Net {
    pub(crate) client: String,
    pub(crate) server: String,
    pub(crate) cable: String,
    pub(crate) scratch: Scratch,
}

impl Net {
    /// `None`, with a line that says why, where the system does not permit it.
    pub(crate) fn new(needs: &[&str]) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let missing = ["ip", "nsenter", "nft"]
            .iter()
            .chain(needs)
            .find(|program| which(program).is_none());
        if let Some(program) = missing {
            return skipped(&format!("{program} is not installed (make setup-system)"));
        }
        if !rustix::process::geteuid().is_root() {
            return skipped("it needs root");
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("tst{}x{number}{end}", std::process::id());
        let net = Self {
            client: name("c"),
            server: name("s"),
            cable: name("w"),
            scratch: Scratch::new(),
        };
        let Self {
            client,
            server,
            cable,
            ..
        } = &net;
        let script = format!(
            "set -e
            for name in {client} {server} {cable}; do ip netns add $name; ip -n $name link set lo up; done
            ip -n {cable} link add c type veth peer name eth0 netns {client}
            ip -n {cable} link add s type veth peer name eth0 netns {server}
            address() {{ ip -n $1 addr add $2 dev $3; ip -n $1 addr add $4 dev $3 nodad; ip -n $1 link set $3 up; }}
            address {client} {CLIENT}/24 eth0 fd78:1::2/64
            ip -n {client} addr add {CLIENT_SECOND}/24 dev eth0
            ip -n {client} addr add fe80::78/64 dev eth0 nodad
            address {server} {SERVER}/24 eth0 {SERVER_V6}/64
            address {cable} 10.78.1.1/24 c fd78:1::1/64
            address {cable} 10.78.2.1/24 s fd78:2::1/64
            ip -n {client} route add default via 10.78.1.1
            ip -n {client} route add default via fd78:1::1
            ip -n {server} route add default via 10.78.2.1
            ip -n {server} route add default via fd78:2::1
            nsenter --net=/run/netns/{cable} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
            "
        );
        let made = Command::new("sh").args(["-c", &script]).output().unwrap();
        if !made.status.success() {
            return skipped(String::from_utf8_lossy(&made.stderr).trim());
        }
        // The kernel's part of it.
        let status = net.run_in(&net.client, ["stcp", "status", "--json"]);
        let status = status.record("towline.stcp.status/1");
        let relay = &status["tiers"][1];
        assert_eq!(relay["tier"], "relay");
        if relay["works"] != true {
            return skipped(&relay["why_not"].to_string());
        }
        Some(net)
    }

    /// A program on a host. Each host has a home of its own.
    pub(crate) fn program<S: AsRef<OsStr>>(
        &self,
        host: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{host}"))
            .args(arguments)
            .env("TOWLINE_HOME", self.home(host))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn home(&self, host: &str) -> PathBuf {
        self.scratch.path(host)
    }

    /// `towline` on a host.
    pub(crate) fn towline<S: AsRef<OsStr>>(
        &self,
        host: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.program(host, [env!("CARGO_BIN_EXE_towline")]);
        command.args(arguments);
        command
    }

    fn run_in<S: AsRef<OsStr>>(
        &self,
        host: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> crate::common::Ended {
        crate::common::Running::start(self.towline(host, arguments)).wait()
    }

    /// The commands that remove what the host's nftables and this machine's cgroups have left of a
    /// run. (nsenter and what it executes are one process.)
    pub(crate) fn left_over(&self, host: &str, pid: u32) -> Vec<String> {
        let status = self.run_in(host, ["stcp", "status", "--json"]);
        let left = status.record("towline.stcp.status/1")["left_over"].clone();
        let mut left: Vec<String> = serde_json::from_value(left).unwrap();
        let names = [
            format!("towline-stcp-{pid}"),
            format!("lookup {}", mark_of(pid)),
        ];
        left.retain(|command| names.iter().any(|name| command.contains(name)));
        left
    }

    /// The tables of a host.
    pub(crate) fn tables(&self, host: &str) -> String {
        let listed = self.program(host, ["nft", "list", "tables"]).output();
        String::from_utf8(listed.unwrap().stdout).unwrap()
    }

    /// Does something in a host's network, on a thread of its own.
    pub(crate) fn within<T: Send + 'static>(
        &self,
        host: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = File::open(format!("/run/netns/{host}")).unwrap();
        std::thread::spawn(move || {
            move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(LinkNameSpaceType::Network),
            )
            .unwrap();
            work()
        })
    }

    /// Reads the cable from now on.
    pub(crate) fn sniff(&self, marker: &'static str) -> Sniffer {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = self.within(&self.cable, move || {
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ETH_P_ALL)));
            let mut socket = socket.unwrap();
            // Beyond the system's limit: no frame may be missed.
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 512 << 20).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            let before = frames();
            ready.send(()).unwrap();
            let mut seen = Seen::default();
            let mut frame = vec![0; 128 * 1024];
            // One quiet read after the end, so that nothing is left in the queue.
            loop {
                match std::io::Read::read(&mut socket, &mut frame) {
                    Ok(len) => {
                        let frame = &frame[..len];
                        seen.frames += 1;
                        seen.bytes += len as u64;
                        seen.marked += u64::from(holds(frame, marker.as_bytes()));
                    }
                    Err(_) if stopped.load(Ordering::Relaxed) => {
                        let carried = frames() - before;
                        // A few may be on their way.
                        assert!(seen.frames + 20 >= carried, "of {carried} frames: {seen:?}");
                        return seen;
                    }
                    Err(_) => {}
                }
            }
        });
        is_ready.recv().unwrap();
        Sniffer { stop, thread }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [&self.client, &self.server, &self.cable] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Whether `frame` has `marker` in it; quicker than comparing every window.
fn holds(frame: &[u8], marker: &[u8]) -> bool {
    let mut rest = frame;
    while let Some(at) = rest.iter().position(|byte| *byte == marker[0]) {
        rest = &rest[at..];
        if rest.starts_with(marker) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// What this thread's network has received and sent, but for loopback.
fn frames() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let counted = table.lines().skip(2).filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() != "lo").then_some(())?;
        let numbers: Vec<u64> = numbers
            .split_whitespace()
            .map_while(|number| number.parse().ok())
            .collect();
        Some(numbers.get(1)? + numbers.get(9)?)
    });
    counted.sum()
}

/// A reader of the cable.
pub(crate) struct Sniffer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// What went over the cable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    /// Frames with the marker in clear.
    pub(crate) marked: u64,
}

impl Sniffer {
    pub(crate) fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// The mark of the run of a process: two bits stay free between the halves of its number.
pub(crate) fn mark_of(pid: u32) -> u32 {
    0x5c00_0000 | (pid >> 14) << 16 | pid & 0x3fff
}

pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|folder| folder.join(program))
        .find(|file| file.exists())
}

pub(crate) fn skipped<T>(why: &str) -> Option<T> {
    // The print macros would be captured.
    let _ = writeln!(std::io::stderr(), "SKIPPED stcp run: {why}");
    None
}
