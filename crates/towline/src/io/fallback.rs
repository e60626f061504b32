//! What a socket has to do without, and what that costs: told once, in words and as advice.
//!
//! Read off a [`SocketInfo`]; the socket and the outbox find the facts. Nothing here
//! changes how a socket is used.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::socket::{BufferGrant, SocketInfo};

/// Bytes of UDP payload that every path of QUIC carries (RFC 9000 §14).
const LEAST_DATAGRAM: usize = 1200;

/// Something a socket was refused and does without from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// The system has no segmentation offload: one system call for each datagram sent.
    GsoUnavailable,
    /// A send with segmentation offload was refused: one by one from then on.
    GsoRefused,
    /// The system does not coalesce what it receives.
    GroUnavailable,
    /// A smaller receive buffer than asked for.
    ReceiveBuffer(BufferGrant),
    /// A smaller send buffer than asked for.
    SendBuffer(BufferGrant),
    /// Datagrams of this many bytes and more do not fit the path; a connection that sent one
    /// goes on with datagrams of 1200 bytes.
    DatagramTooBig(usize),
    /// The kernel does not steer datagrams by connection ID; shards hand them over.
    SteeringRefused,
    /// The system cannot be told not to fragment: connections look for no larger packets.
    MayFragment,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GsoUnavailable => f.write_str(
                "no segmentation offload for sending (GSO): bulk sending costs about 5 times the processor time; Linux 4.18 has it",
            ),
            Self::GsoRefused => f.write_str(
                "the network device refused segmentation offload (GSO): bulk sending costs about 5 times the processor time; see `ethtool -k DEVICE`, tx-udp-segmentation and tx-checksumming",
            ),
            Self::GroUnavailable => f.write_str(
                "no coalescing of received datagrams (GRO): bulk receiving costs about 5 times the processor time; Linux 5.0 has it",
            ),
            Self::ReceiveBuffer(grant) => write!(
                f,
                "receive buffer of {} instead of {} KiB: bursts are lost and sent again; sysctl -w net.core.rmem_max={}",
                grant.granted / 1024,
                grant.asked / 1024,
                grant.asked
            ),
            Self::SendBuffer(grant) => write!(
                f,
                "send buffer of {} instead of {} KiB: more waits for the socket; sysctl -w net.core.wmem_max={}",
                grant.granted / 1024,
                grant.asked / 1024,
                grant.asked
            ),
            Self::DatagramTooBig(bytes @ ..=LEAST_DATAGRAM) => write!(
                f,
                "datagrams of {bytes} bytes do not fit the path: no connection is possible over it; QUIC needs {LEAST_DATAGRAM} bytes of UDP payload, see `ip link`, mtu"
            ),
            Self::DatagramTooBig(bytes) => write!(
                f,
                "datagrams of {bytes} bytes do not fit the path: what was sent is lost, and connections go on with {LEAST_DATAGRAM} bytes, which takes {:.1} times as many datagrams; lower the MTU to what the path carries (`perf --mtu`, `TransportConfig::mtu`)",
                *bytes as f64 / LEAST_DATAGRAM as f64
            ),
            Self::SteeringRefused => f.write_str(
                "the system does not steer datagrams to shards by connection ID: they hand them to each other, which costs a copy and a wake-up",
            ),
            Self::MayFragment => f.write_str(
                "the system may fragment what is sent: connections keep to packets of `TransportConfig::initial_mtu` bytes and look for no larger ones",
            ),
        }
    }
}

impl Fallback {
    fn bit(self) -> u32 {
        1 << match self {
            Self::GsoUnavailable => 0,
            Self::GsoRefused => 1,
            Self::GroUnavailable => 2,
            Self::ReceiveBuffer(_) => 3,
            Self::SendBuffer(_) => 4,
            Self::DatagramTooBig(_) => 5,
            Self::SteeringRefused => 6,
            Self::MayFragment => 7,
        }
    }

    /// Whether this is how the system is, the same for every socket, and not one socket's luck.
    fn is_of_system(self) -> bool {
        !matches!(self, Self::GsoRefused | Self::DatagramTooBig(_))
    }
}

impl SocketInfo {
    /// What this socket does without, the costliest first. What was switched off on purpose
    /// ([`SocketOptions`](super::SocketOptions)) is not among it.
    pub fn fallbacks(&self) -> impl Iterator<Item = Fallback> + use<> {
        let gso = self.gso_asked && !self.gso_refused && self.gso_segments <= 1;
        let gro = self.gro_asked && self.gro_segments <= 1;
        [
            self.gso_refused.then_some(Fallback::GsoRefused),
            gso.then_some(Fallback::GsoUnavailable),
            gro.then_some(Fallback::GroUnavailable),
            self.too_big.map(Fallback::DatagramTooBig),
            (self.recv_buffer.is_short()).then_some(Fallback::ReceiveBuffer(self.recv_buffer)),
            (self.send_buffer.is_short()).then_some(Fallback::SendBuffer(self.send_buffer)),
            self.steering_refused.then_some(Fallback::SteeringRefused),
            self.may_fragment.then_some(Fallback::MayFragment),
        ]
        .into_iter()
        .flatten()
    }
}

/// Which fallbacks a socket has complained of already.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: u32,
}

impl Complaints {
    /// Warns of what is new in `info`: once per socket, once per process where every socket
    /// would say the same.
    pub(super) fn warn(&mut self, info: &SocketInfo) {
        static SAID: AtomicU32 = AtomicU32::new(0);
        for fallback in info.fallbacks() {
            let bit = fallback.bit();
            if self.said & bit != 0 {
                continue;
            }
            self.said |= bit;
            if fallback.is_of_system() && SAID.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
                continue;
            }
            tracing::warn!(local = %info.local_addr, "{fallback}");
        }
    }
}
