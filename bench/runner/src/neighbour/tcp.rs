//! Linux TCP as a bulk sender and a receiver that counts: one connection between two namespaces,
//! its congestion controller chosen by TCP_CONGESTION.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bench_runner::Outcome;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};

/// Bytes handed to or taken from a socket at once.
const BLOCK: usize = 64 * 1024;
/// IPv4 and TCP headers, and the timestamps that every segment carries.
const HEADERS: u32 = 20 + 20 + 12;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a receiver waits before it looks at the clock.
const LOOK: Duration = Duration::from_millis(100);

/// What arrived of one connection.
pub(crate) struct Received {
    /// Bytes in each second.
    pub(crate) bytes: Vec<u64>,
    /// Bytes of a full IP packet.
    pub(crate) packet_bytes: u32,
}

/// A socket that listens in the sender's namespace.
pub(crate) struct Sender {
    listener: TcpListener,
    address: SocketAddr,
}

/// Runs `work` on a thread inside a namespace; sockets it opens stay there.
fn in_namespace<T: Send>(name: &str, work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    let path = format!("/var/run/netns/{name}");
    let namespace = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            setns(&namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("entering {path}: {error}"))?;
            work()
        });
        inside
            .join()
            .unwrap_or_else(|_| Err("a thread panicked".to_owned()))
    })
}

impl Sender {
    /// Listens with `controller`, which accepted connections inherit.
    pub(crate) fn listen(namespace: &str, address: SocketAddr, controller: &str) -> Outcome<Self> {
        let listener = in_namespace(namespace, || {
            let listener =
                TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
            let wanted = OsString::from(controller);
            setsockopt(&listener, sockopt::TcpCongestion, &wanted).map_err(|error| {
                format!("this kernel has no TCP controller `{controller}`: {error}")
            })?;
            Ok(listener)
        })?;
        Ok(Self { listener, address })
    }

    /// Connects from `namespace`, then sends and counts for `seconds` from `begin` on.
    pub(crate) fn start(
        self,
        namespace: &str,
        controller: &str,
        begin: Instant,
        seconds: u32,
    ) -> Outcome<JoinHandle<Outcome<Received>>> {
        let failed = |error: std::io::Error| format!("TCP to {}: {error}", self.address);
        let receiver = in_namespace(namespace, || {
            TcpStream::connect_timeout(&self.address, PATIENCE).map_err(failed)
        })?;
        let (sender, _) = self.listener.accept().map_err(failed)?;
        let used =
            getsockopt(&sender, sockopt::TcpCongestion).map_err(|error| error.to_string())?;
        if used.to_string_lossy().trim_end_matches('\0') != controller {
            return Err(format!("the kernel took {used:?} in place of {controller}"));
        }
        let segment = getsockopt(&sender, sockopt::TcpMaxSeg).map_err(|error| error.to_string())?;
        sender.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        receiver.set_read_timeout(Some(LOOK)).map_err(failed)?;
        // Ends when the receiver closes its socket.
        thread::spawn(move || send(sender));
        Ok(thread::spawn(move || {
            Ok(Received {
                bytes: receive(receiver, begin, seconds)?,
                packet_bytes: segment + HEADERS,
            })
        }))
    }
}

fn send(mut socket: TcpStream) {
    let block = vec![0x5a; BLOCK];
    while socket.write_all(&block).is_ok() {}
}

fn receive(mut socket: TcpStream, begin: Instant, seconds: u32) -> Outcome<Vec<u64>> {
    let mut bytes = vec![0; seconds as usize];
    let mut block = vec![0; BLOCK];
    loop {
        let result = socket.read(&mut block);
        let second = begin.elapsed().as_secs() as usize;
        let Some(sum) = bytes.get_mut(second) else {
            return Ok(bytes);
        };
        match result {
            Ok(0) => return Err("the TCP sender closed early".to_owned()),
            Ok(len) => *sum += len as u64,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(format!("TCP: {error}")),
        }
    }
}

/// The kernel's controllers and what they are.
pub(crate) fn describe() -> String {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    format!(
        "controllers {}; `bbr` is BBR version 1, as in every released kernel; ECN {}, SACK {}, buffers up to {} (send) and {} (receive) bytes",
        read("tcp_available_congestion_control"),
        match read("tcp_ecn").as_str() {
            "0" => "off",
            "1" => "asked for",
            _ => "only if asked for",
        },
        if read("tcp_sack") == "1" { "on" } else { "off" },
        read("tcp_wmem").split_whitespace().last().unwrap_or("?"),
        read("tcp_rmem").split_whitespace().last().unwrap_or("?"),
    )
}
