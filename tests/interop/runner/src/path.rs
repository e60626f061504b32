//! What a case puts between client and server: nothing, a witness that reads
//! the Retry exchange off the wire, or Towline's relay: lossy, slow, or with a NAT. Owned by `case`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use towline_relay::{NatConfig, Relay, RelayConfig, RelayMonitor};

use crate::Error;

/// The loss case's link, each way, in the notation of `towline relay`.
const LOSSY_LINK: &str = "loss=2%,delay=5ms";

/// A link on which 10 MB take about three seconds, each way.
const SLOW_LINK: &str = "rate=30mbit,delay=5ms";

/// When the NAT cases' NAT forgets its mappings.
const NAT: &str = "every=600ms";

/// How often a forwarding thread looks at its stop flag.
const STOP_POLL: Duration = Duration::from_millis(20);

/// The way between a client and a server.
pub(crate) enum Between {
    /// Loopback alone.
    Nothing(SocketAddr),
    /// A forwarder that looks at long headers.
    Witness(Witness),
    /// Towline's relay with simulated links, and what of it must be seen.
    Relayed(Relayed, Sign),
}

/// What a relay must have done for its case to have taken place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Losing datagrams.
    Losses,
    /// Giving the client other addresses, more than once.
    Rebindings,
    /// Nothing but delay.
    None,
}

impl Between {
    /// No detour.
    pub(crate) fn nothing(server: SocketAddr) -> Between {
        Between::Nothing(server)
    }

    /// A forwarder that counts Retry packets and Initials that carry a token.
    pub(crate) fn witness(server: SocketAddr) -> Result<Between, Error> {
        Witness::start(server).map(Between::Witness)
    }

    /// 2 % loss and 5 ms of delay each way.
    pub(crate) fn lossy(server: SocketAddr) -> Result<Between, Error> {
        Between::relayed(server, LOSSY_LINK, None, Sign::Losses)
    }

    /// A slow link behind a NAT that takes another port or address again and again.
    pub(crate) fn nat(server: SocketAddr, change: &str) -> Result<Between, Error> {
        let nat = format!("{NAT},change={change}").parse()?;
        Between::relayed(server, SLOW_LINK, Some(nat), Sign::Rebindings)
    }

    /// A slow link.
    pub(crate) fn slow(server: SocketAddr) -> Result<Between, Error> {
        Between::relayed(server, SLOW_LINK, None, Sign::None)
    }

    fn relayed(
        server: SocketAddr,
        link: &str,
        nat: Option<NatConfig>,
        sign: Sign,
    ) -> Result<Between, Error> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = RelayConfig::new(listen, server).with_link(link.parse()?);
        config.nat = nat.unwrap_or_default();
        Ok(Between::Relayed(Relayed::start(config)?, sign))
    }

    /// Where the client has to connect.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Between::Nothing(address) => *address,
            Between::Witness(witness) => witness.address,
            Between::Relayed(relay, _) => relay.address,
        }
    }

    /// Ends the detour. What it saw, in words; `None` if it did not see what
    /// its case is about.
    pub(crate) fn finish(self) -> Option<String> {
        match self {
            Between::Nothing(_) => None,
            Between::Witness(witness) => {
                let (retries, tokens) = witness.finish();
                let seen = retries > 0 && tokens > 0;
                seen.then(|| format!("{retries} Retry, {tokens} Initial with a token"))
            }
            Between::Relayed(relay, sign) => relay.finish(sign),
        }
    }
}

/// Towline's relay on a thread of its own.
pub(crate) struct Relayed {
    address: SocketAddr,
    monitor: RelayMonitor,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relayed {
    fn start(config: RelayConfig) -> Result<Relayed, Error> {
        let mut relay = Relay::bind(config)?;
        let (address, monitor) = (relay.local_addr(), relay.monitor());
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            if let Err(error) = relay.run(&flag) {
                eprintln!("interop: the relay ended: {error}");
            }
        });
        let thread = Some(thread);
        Ok(Relayed {
            address,
            monitor,
            stop,
            thread,
        })
    }

    /// What happened, in words; `None` if that was not what it was for.
    fn finish(mut self, sign: Sign) -> Option<String> {
        self.stop();
        let counters = self.monitor.counters();
        let rebindings = counters.rebindings;
        match sign {
            Sign::Losses => {}
            Sign::Rebindings => {
                return (rebindings > 1).then(|| format!("{rebindings} rebindings"));
            }
            Sign::None => return None,
        }
        let (up, down) = (counters.to_upstream, counters.to_client);
        let lost = up.drops.loss + down.drops.loss;
        let of = up.datagrams_in + down.datagrams_in;
        (lost > 0).then(|| format!("{lost} of {of} datagrams lost"))
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the relay was printed by its own thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Forwards datagrams for one client and looks at their first packet.
pub(crate) struct Witness {
    address: SocketAddr,
    seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    retries: AtomicU64,
    tokens: AtomicU64,
    client: Mutex<Option<SocketAddr>>,
    stop: AtomicBool,
}

impl Witness {
    fn start(server: SocketAddr) -> Result<Witness, Error> {
        let outer = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        let inner = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        for socket in [&outer, &inner] {
            socket.set_read_timeout(Some(STOP_POLL))?;
        }
        let address = outer.local_addr()?;
        let seen = Arc::new(Seen::default());
        let up = {
            let (seen, outer, inner) = (seen.clone(), outer.clone(), inner.clone());
            std::thread::spawn(move || {
                seen.forward(&outer, |datagram, from| {
                    if initial_token_length(datagram).is_some_and(|length| length > 0) {
                        seen.tokens.fetch_add(1, Ordering::Relaxed);
                    }
                    if let Ok(mut client) = seen.client.lock() {
                        *client = Some(from);
                    }
                    let _ = inner.send_to(datagram, server);
                });
            })
        };
        let down = {
            let seen = seen.clone();
            std::thread::spawn(move || {
                seen.forward(&inner, |datagram, _| {
                    if long_type(datagram) == Some(3) {
                        seen.retries.fetch_add(1, Ordering::Relaxed);
                    }
                    let client = seen.client.lock().map_or(None, |client| *client);
                    if let Some(client) = client {
                        let _ = outer.send_to(datagram, client);
                    }
                });
            })
        };
        Ok(Witness {
            address,
            seen,
            threads: vec![up, down],
        })
    }

    /// Retry packets and Initials with a token so far.
    fn finish(mut self) -> (u64, u64) {
        self.stop();
        let retries = self.seen.retries.load(Ordering::Relaxed);
        (retries, self.seen.tokens.load(Ordering::Relaxed))
    }

    fn stop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Seen {
    /// Calls `each` with every datagram of `socket` until told to stop. A send
    /// or receive error is a lost datagram, as on any path.
    fn forward(&self, socket: &UdpSocket, mut each: impl FnMut(&[u8], SocketAddr)) {
        let mut buffer = vec![0; 65_535];
        while !self.stop.load(Ordering::Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                each(&buffer[..length], from);
            }
        }
    }
}

/// Type bits of a version 1 long header (RFC 9000 §17.2): 0 Initial, 3 Retry.
fn long_type(datagram: &[u8]) -> Option<u8> {
    let (first, rest) = datagram.split_first()?;
    let long = first & 0x80 != 0 && rest.starts_with(&[0, 0, 0, 1]);
    long.then_some((first & 0x30) >> 4)
}

/// Token Length of a version 1 Initial (RFC 9000 §17.2.2).
fn initial_token_length(datagram: &[u8]) -> Option<u64> {
    if long_type(datagram)? != 0 {
        return None;
    }
    let mut at = 5;
    for _ in 0..2 {
        at += 1 + usize::from(*datagram.get(at)?);
    }
    let first = *datagram.get(at)?;
    let length = 1 << (first >> 6);
    let bytes = datagram.get(at..at + length)?;
    let value = bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

#[cfg(test)]
mod tests;
