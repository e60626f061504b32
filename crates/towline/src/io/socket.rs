//! The seam between a shard and the operating system: one train out, a batch of
//! trains in.
//!
//! [`Socket`] is deliberately thin and returns raw errors: what an error means
//! (drop, retry, fall back to single datagrams, give up) is decided once, in the
//! shard's outbox, so that tests can fake every error. Nothing here knows QUIC.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use towline_quic::Ecn;

use crate::setters::setters;

/// Most bytes in one train: the largest UDP payload over IPv4. One byte more is EMSGSIZE.
pub const MAX_TRAIN_BYTES: usize = 65_507;
/// Most datagrams in one train; the kernel's `UDP_MAX_SEGMENTS` since Linux 4.18.
pub const MAX_TRAIN_SEGMENTS: usize = 64;
/// Bytes of one receive buffer. With GRO a smaller one truncates a train without an error.
pub const RECEIVE_BUFFER_BYTES: usize = 64 * 1024;
/// Most receive buffers handed to one system call: as many as quinn-udp takes.
pub const RECEIVE_BATCH: usize = 32;
/// Buffers handed to it while they come back full of trains: together they stay well within a
/// core's cache.
const FULL_BUFFERS: usize = 4;
/// Most trains handed to one call of [`Socket::try_send_batch`].
pub const MAX_SEND_BATCH: usize = 32;

/// A UDP socket that can send and receive trains of datagrams. Never blocks.
pub trait Socket: Send {
    /// Fills `batch` from its first slot on and returns how many slots were filled.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is waiting; otherwise what the system call said.
    fn recv(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize>;

    /// How long the last train of the last `recv` lay in the socket, where the system knows.
    fn waited(&self) -> Option<Duration> {
        None
    }

    /// Sends one train. `train` never has more than [`MAX_TRAIN_SEGMENTS`]
    /// datagrams or [`MAX_TRAIN_BYTES`] bytes, and is all or nothing.
    ///
    /// # Errors
    /// `WouldBlock` when the socket buffer is full; otherwise what the system call said.
    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()>;

    /// Sends the first trains of `trains`, in order, and returns how many: at least one.
    /// There are at most [`MAX_SEND_BATCH`], each as for [`try_send`](Self::try_send).
    ///
    /// # Errors
    /// As `try_send`, about the first train; nothing was sent then.
    fn try_send_batch(&mut self, trains: &[Outgoing<'_>]) -> io::Result<usize> {
        match trains.first() {
            Some(first) => self.try_send(first).map(|()| 1),
            None => Ok(0),
        }
    }

    /// The oldest thing that the socket was told of datagrams sent before; `None` if there is nothing.
    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    /// Datagrams that one call of `try_send` may carry at first: 1 where GSO is unknown.
    fn max_segments(&self) -> usize;

    /// Forgets what a refused call taught the socket layer. Called after EINVAL,
    /// where the fault was in one argument and not in the socket.
    ///
    /// # Errors
    /// What the system call said; the socket stays usable.
    fn renew(&mut self) -> io::Result<()>;

    /// Goes on on `socket`, which is bound already, with the options that this one had.
    ///
    /// # Errors
    /// What a socket option said; `Unsupported` for sockets that are not the system's. The one
    /// before stays in use then.
    fn replace(&mut self, socket: std::net::UdpSocket) -> io::Result<()> {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends were refused as they are when the socket's own address is no more: if it is so, goes on
    /// on a socket that is bound to no address of its own. Returns whether it does.
    ///
    /// # Errors
    /// What the system call said; the socket stays as it is.
    fn leave_lost_address(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// What the socket is bound to and what it was granted.
    fn info(&self) -> SocketInfo;

    /// The descriptor to wait on, if there is one.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A socket whose kind is chosen when the program runs. Every method is passed on, those with a body too.
impl<S: Socket + ?Sized> Socket for Box<S> {
    fn recv(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        (**self).recv(batch)
    }

    fn waited(&self) -> Option<Duration> {
        (**self).waited()
    }

    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        (**self).try_send(train)
    }

    fn try_send_batch(&mut self, trains: &[Outgoing<'_>]) -> io::Result<usize> {
        (**self).try_send_batch(trains)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        (**self).poll_notice()
    }

    fn max_segments(&self) -> usize {
        (**self).max_segments()
    }

    fn renew(&mut self) -> io::Result<()> {
        (**self).renew()
    }

    fn replace(&mut self, socket: std::net::UdpSocket) -> io::Result<()> {
        (**self).replace(socket)
    }

    fn leave_lost_address(&mut self) -> io::Result<bool> {
        (**self).leave_lost_address()
    }

    fn info(&self) -> SocketInfo {
        (**self).info()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).fd()
    }
}

/// What a socket was told of a datagram that it sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A router says that it was too big.
    TooBig(TooBig),
    /// Something else, which loss recovery finds out.
    Other,
}

/// What a router says of a datagram that was too big for the next link: ICMP "fragmentation needed" or
/// ICMPv6 "packet too big". Anybody can send such a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Where the datagram was sent.
    pub remote: SocketAddr,
    /// Bytes of UDP payload that would pass.
    pub mtu: usize,
    /// The begin of the UDP payload, as far as the router quotes it.
    pub quoted: Vec<u8>,
}

/// One train on its way out: datagrams of `segment_size` bytes, the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where to.
    pub remote: SocketAddr,
    /// The local address to send from, if it matters.
    pub local_ip: Option<IpAddr>,
    /// The ECN codepoint of every datagram.
    pub ecn: Option<Ecn>,
    /// Bytes of each datagram but the last.
    pub segment_size: usize,
    /// The datagrams, back to back.
    pub contents: &'a [u8],
}

/// One received train: `len` bytes cut every `stride` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Who sent it.
    pub remote: SocketAddr,
    /// The local address it was sent to, where the platform says.
    pub local_ip: Option<IpAddr>,
    /// Its ECN codepoint.
    pub ecn: Option<Ecn>,
    /// Bytes in the buffer.
    pub len: usize,
    /// Bytes of each datagram but the last; equal to `len` for a single datagram.
    pub stride: usize,
}

impl Incoming {
    const EMPTY: Self = Self {
        remote: SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        local_ip: None,
        ecn: None,
        len: 0,
        stride: 0,
    };
}

/// Receive buffers of one system call, allocated once per shard.
pub struct ReceiveBatch {
    memory: Vec<u8>,
    meta: [Incoming; RECEIVE_BATCH],
    /// Slots offered to the next call.
    offered: usize,
}

impl ReceiveBatch {
    /// [`RECEIVE_BATCH`] buffers of [`RECEIVE_BUFFER_BYTES`] each.
    pub fn new() -> Self {
        Self {
            memory: vec![0; RECEIVE_BATCH * RECEIVE_BUFFER_BYTES],
            meta: [Incoming::EMPTY; RECEIVE_BATCH],
            offered: FULL_BUFFERS,
        }
    }

    /// Offers one slot to the calls that follow, or some again.
    pub(super) fn offer_one(&mut self, one: bool) {
        match (one, self.offered) {
            (true, _) => self.offered = 1,
            (false, 1) => self.offered = FULL_BUFFERS,
            _ => {}
        }
    }

    /// After a call filled `count` slots: offers more while many bring little.
    pub(super) fn adapt(&mut self, count: usize) {
        if count < self.offered || self.offered == 1 {
            return;
        }
        let bytes: usize = self.meta[..count].iter().map(|meta| meta.len).sum();
        self.offered = if bytes > RECEIVE_BUFFER_BYTES {
            FULL_BUFFERS
        } else {
            (2 * self.offered).min(RECEIVE_BATCH)
        };
    }

    /// Slots offered to a call.
    pub(super) fn offered(&self) -> usize {
        self.offered
    }

    /// The buffers and, beside each, where its description goes.
    pub fn slots(&mut self) -> impl Iterator<Item = (&mut [u8], &mut Incoming)> {
        self.memory
            .chunks_exact_mut(RECEIVE_BUFFER_BYTES)
            .zip(self.meta.iter_mut())
            .take(self.offered)
    }

    /// The first `count` filled slots. A description that contradicts its buffer
    /// (longer than it, or cut at zero or past its end) is put right, never trusted.
    pub fn trains(&mut self, count: usize) -> impl Iterator<Item = (Incoming, &mut [u8])> {
        self.slots().take(count).map(|(buffer, meta)| {
            let len = meta.len.min(buffer.len());
            let stride = if meta.stride == 0 { len } else { meta.stride };
            let sane = Incoming {
                len,
                stride: stride.min(len),
                ..*meta
            };
            (sane, &mut buffer[..len])
        })
    }
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBatch").finish_non_exhaustive()
    }
}

/// What is asked of a socket when it is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Bytes asked for the kernel's send buffer.
    pub send_buffer: usize,
    /// Bytes asked for the kernel's receive buffer.
    pub recv_buffer: usize,
    /// Send trains in one call where the system can (UDP GSO).
    pub gso: bool,
    /// Receive trains in one buffer where the system can (UDP GRO).
    pub gro: bool,
    /// Share the port with other sockets of this process (`SO_REUSEPORT`). Ignored by
    /// endpoints of several shards, whose sockets share a port that was free in any case.
    pub reuse_port: bool,
    /// Where sockets share a port as the shards of an endpoint, let the kernel steer datagrams
    /// to them by connection ID; without, shards hand them over.
    pub steer: bool,
}

impl SocketOptions {
    /// Bytes asked for each kernel buffer by default: 30 ms at 1 Gbit/s.
    pub const DEFAULT_BUFFER: usize = 4 * 1024 * 1024;

    setters! {
        send_buffer: usize,
        recv_buffer: usize,
        gso: bool,
        gro: bool,
        reuse_port: bool,
        steer: bool,
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            send_buffer: Self::DEFAULT_BUFFER,
            recv_buffer: Self::DEFAULT_BUFFER,
            gso: true,
            gro: true,
            reuse_port: false,
            steer: true,
        }
    }
}

/// A kernel buffer: what was asked for and what was granted, in bytes as the
/// application counts them (Linux reports the double; that is already undone).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferGrant {
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes granted.
    pub granted: usize,
}

impl BufferGrant {
    /// Whether the system gave less than it was asked for.
    pub const fn is_short(&self) -> bool {
        self.granted < self.asked
    }
}

/// What a socket is bound to and what the system granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketInfo {
    /// The bound address, its port chosen by the system if 0 was asked for.
    pub local_addr: SocketAddr,
    /// Datagrams per send call now: 1 means GSO is off, refused or unknown.
    pub gso_segments: usize,
    /// Whether GSO was wanted.
    pub gso_asked: bool,
    /// Whether the system refused GSO after it had promised it.
    pub gso_refused: bool,
    /// Whether GRO was wanted.
    pub gro_asked: bool,
    /// Datagrams per receive buffer: 1 means GRO is off or unknown.
    pub gro_segments: usize,
    /// The kernel's send buffer.
    pub send_buffer: BufferGrant,
    /// The kernel's receive buffer.
    pub recv_buffer: BufferGrant,
    /// Whether the IP layer may fragment what we send (no way to forbid it here).
    pub may_fragment: bool,
    /// Bytes of the smallest datagram that did not fit the path, if one did not.
    pub too_big: Option<usize>,
    /// One of several sockets of a port, and the system does not steer by connection ID.
    pub steering_refused: bool,
}

impl SocketInfo {
    /// A description of a socket that has no special powers; for [`Socket`]s of tests.
    pub const fn plain(local_addr: SocketAddr) -> Self {
        Self {
            local_addr,
            gso_segments: 1,
            gso_asked: false,
            gso_refused: false,
            gro_asked: false,
            gro_segments: 1,
            send_buffer: BufferGrant {
                asked: 0,
                granted: 0,
            },
            recv_buffer: BufferGrant {
                asked: 0,
                granted: 0,
            },
            may_fragment: false,
            too_big: None,
            steering_refused: false,
        }
    }

    /// Of two sockets of one port, what both have.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        let less = |a: BufferGrant, b: BufferGrant| if b.granted < a.granted { b } else { a };
        Self {
            local_addr: self.local_addr,
            gso_segments: self.gso_segments.min(other.gso_segments),
            gso_asked: self.gso_asked || other.gso_asked,
            gso_refused: self.gso_refused || other.gso_refused,
            gro_segments: self.gro_segments.min(other.gro_segments),
            gro_asked: self.gro_asked || other.gro_asked,
            send_buffer: less(self.send_buffer, other.send_buffer),
            recv_buffer: less(self.recv_buffer, other.recv_buffer),
            may_fragment: self.may_fragment || other.may_fragment,
            too_big: self.too_big.into_iter().chain(other.too_big).min(),
            steering_refused: self.steering_refused || other.steering_refused,
        }
    }

    /// The command that would have granted the buffers asked for, if they were cut short.
    pub fn sysctl_advice(&self) -> Option<String> {
        let mut line = String::new();
        for (short, key, bytes) in [
            (
                self.recv_buffer.is_short(),
                "net.core.rmem_max",
                self.recv_buffer.asked,
            ),
            (
                self.send_buffer.is_short(),
                "net.core.wmem_max",
                self.send_buffer.asked,
            ),
        ] {
            if short {
                if line.is_empty() {
                    line.push_str("sysctl -w");
                }
                line.push_str(&format!(" {key}={bytes}"));
            }
        }
        (!line.is_empty()).then_some(line)
    }
}
