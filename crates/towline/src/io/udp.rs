//! [`UdpSocket`]: the real [`Socket`], quinn-udp's socket options and `recvmmsg` over a
//! socket2 socket; sending is ours on Linux (`sendmsg`), quinn-udp's elsewhere.
//!
//! Owns the descriptor and the options set on it. Raw errors pass through
//! untouched: quinn-udp's `send` hides EMSGSIZE and EINVAL, so only its
//! `try_send` is used. IPv4 peers of a dual-stack IPv6 socket are shown as plain
//! IPv4 addresses, and mapped again on the way out.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Type};
use towline_quic::Ecn;

use super::addresses::canonical;
#[cfg(not(target_os = "linux"))]
use super::addresses::{outward, outward_ip};
#[cfg(target_os = "linux")]
use super::socket::Notice;
use super::socket::{
    BufferGrant, Incoming, MAX_TRAIN_SEGMENTS, Outgoing, RECEIVE_BATCH, ReceiveBatch, Socket,
    SocketInfo, SocketOptions,
};

/// A bound, non-blocking UDP socket with segmentation offload, ECN and packet information.
#[derive(Debug)]
pub struct UdpSocket {
    inner: std::net::UdpSocket,
    state: UdpSocketState,
    /// IPv6 sockets reach IPv4 peers under mapped addresses.
    mapped: bool,
    options: SocketOptions,
    info: SocketInfo,
    /// The system has no `sendmmsg`, or does not let us use it.
    #[cfg(target_os = "linux")]
    one_by_one: bool,
    /// The system keeps what it is told of datagrams sent, and something may be there.
    #[cfg(target_os = "linux")]
    keeps_notices: bool,
    #[cfg(target_os = "linux")]
    may_have_notices: bool,
}

/// Calls for one send that fail as they do when somebody said something of an earlier datagram. Each
/// takes what was said; more than one at such a moment is a flood, or this datagram's own fault.
#[cfg(target_os = "linux")]
const CALLS_FOR_A_SEND: usize = 3;

impl UdpSocket {
    /// Binds to `address`; an IPv6 wildcard also takes IPv4.
    ///
    /// # Errors
    /// What `socket`, `bind` or a socket option said; buffers smaller than asked
    /// for and missing offloads are not errors, see [`SocketInfo`].
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let socket = socket2::Socket::new(
            Domain::for_address(address),
            Type::DGRAM.nonblocking(),
            Some(Protocol::UDP),
        )?;
        let mapped = address.is_ipv6() && address.ip().is_unspecified();
        if address.is_ipv6() {
            socket.set_only_v6(!mapped)?;
        }
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&address.into())?;
        Self::from_std(socket.into(), options)
    }

    /// Takes over a bound socket: one of a service manager, or of another network namespace.
    /// Datagrams are never fragmented (RFC 9000 §14): the system is told so where it can be.
    ///
    /// # Errors
    /// What a socket option said.
    pub fn from_std(inner: std::net::UdpSocket, options: &SocketOptions) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&inner))?;
        let local_addr = inner.local_addr()?;
        let reference = socket2::SockRef::from(&inner);
        let mapped = local_addr.is_ipv6() && !reference.only_v6()?;
        // Refusals show in the granted sizes, which is where the user looks.
        let _ = reference.set_recv_buffer_size(options.recv_buffer);
        let _ = reference.set_send_buffer_size(options.send_buffer);
        let info = SocketInfo {
            send_buffer: BufferGrant {
                asked: options.send_buffer,
                granted: as_asked(reference.send_buffer_size()?),
            },
            recv_buffer: BufferGrant {
                asked: options.recv_buffer,
                granted: as_asked(reference.recv_buffer_size()?),
            },
            ..SocketInfo::plain(local_addr)
        };
        let mut socket = Self {
            inner,
            state,
            mapped,
            options: options.clone(),
            info,
            #[cfg(target_os = "linux")]
            one_by_one: false,
            #[cfg(target_os = "linux")]
            keeps_notices: false,
            #[cfg(target_os = "linux")]
            may_have_notices: false,
        };
        #[cfg(target_os = "linux")]
        socket.keep_notices();
        socket.apply_offloads();
        // Has the kernel note arrivals from now on.
        let _ = socket.waited();
        Ok(socket)
    }

    /// As [`from_std`](Self::from_std), of a second descriptor of the socket behind `fd`, which a process
    /// has from its parent.
    ///
    /// # Errors
    /// When `fd` is no UDP socket, and what a socket option said.
    pub fn inherited(fd: RawFd, options: &SocketOptions) -> io::Result<Self> {
        // SAFETY: the call takes no pointer, and its result is checked before it is owned.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `copy` was just made and nobody else has it.
        let socket = std::net::UdpSocket::from(unsafe { OwnedFd::from_raw_fd(copy) });
        let kind = socket2::SockRef::from(&socket).r#type()?;
        if kind != Type::DGRAM {
            let what = "a UDP socket is required";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        socket.set_nonblocking(true)?;
        Self::from_std(socket, options)
    }

    /// Lets further sockets bind to this one's port, which it has had alone so far, and
    /// says its address.
    pub(super) fn share_port(&self) -> io::Result<SocketAddr> {
        socket2::SockRef::from(&self.inner).set_reuse_port(true)?;
        Ok(self.info.local_addr)
    }

    /// Steers what comes to this port to `shards` sockets, in the order they were bound.
    pub(super) fn steer(&self, shards: usize) -> io::Result<()> {
        super::steer::attach(&self.inner, shards)
    }

    pub(super) fn set_steering_refused(&mut self) {
        self.info.steering_refused = true;
    }

    /// A second descriptor of the same socket, for a reactor to wait on.
    ///
    /// # Errors
    /// What `dup` said.
    pub fn try_clone_std(&self) -> io::Result<std::net::UdpSocket> {
        self.inner.try_clone()
    }

    /// Has the system keep what routers say of datagrams that are too big.
    #[cfg(target_os = "linux")]
    fn keep_notices(&mut self) {
        let is_ipv6 = self.info.local_addr.is_ipv6();
        match super::error_queue::keep(self.inner.as_fd(), is_ipv6) {
            Ok(()) => self.keeps_notices = true,
            Err(error) => tracing::debug!(%error, "what routers say is not heard here"),
        }
    }

    /// Makes a call that sends; again if it failed as it does because of an earlier datagram.
    #[cfg(target_os = "linux")]
    fn send<R>(&mut self, call: impl Fn(BorrowedFd<'_>, bool) -> io::Result<R>) -> io::Result<R> {
        let mut calls = 0;
        loop {
            let result = call(self.inner.as_fd(), self.mapped);
            calls += 1;
            match &result {
                Err(error)
                    if self.keeps_notices && super::error_queue::may_be_of_another(error) =>
                {
                    self.may_have_notices = true;
                    if calls == CALLS_FOR_A_SEND {
                        return result;
                    }
                }
                _ => return result,
            }
        }
    }

    /// A call that receives failed, perhaps because of what somebody said of a datagram.
    fn on_receive_error(&mut self, error: &io::Error) {
        #[cfg(target_os = "linux")]
        {
            let is_idle = error.kind() == io::ErrorKind::WouldBlock;
            self.may_have_notices |= self.keeps_notices && !is_idle;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = error;
    }

    /// quinn-udp switches GRO on whenever it sees a socket; honour the options after it did.
    fn apply_offloads(&mut self) {
        let gro = self.options.gro || !disable_gro(&self.inner);
        self.info.gro_segments = if gro { self.state.gro_segments() } else { 1 };
        self.info.gso_segments = self.max_segments();
        self.info.gso_asked = self.options.gso;
        self.info.gro_asked = self.options.gro;
        self.info.may_fragment = self.state.may_fragment();
    }
}

impl Socket for UdpSocket {
    fn recv(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        let mut meta = [RecvMeta::default(); RECEIVE_BATCH];
        let received = {
            let offered = batch.offered();
            let mut buffers = batch.slots().map(|(buffer, _)| IoSliceMut::new(buffer));
            let mut slices: [IoSliceMut<'_>; RECEIVE_BATCH] =
                std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
            self.state.recv(
                UdpSockRef::from(&self.inner),
                &mut slices[..offered],
                &mut meta,
            )
        };
        let count = received.inspect_err(|error| self.on_receive_error(error))?;
        for ((_, slot), meta) in batch.slots().zip(&meta[..count]) {
            *slot = Incoming {
                remote: canonical(meta.addr),
                local_ip: meta.dst_ip.map(|ip| ip.to_canonical()),
                ecn: meta.ecn.map(ecn_from_kernel),
                len: meta.len,
                stride: meta.stride,
            };
        }
        Ok(count)
    }

    fn replace(&mut self, socket: std::net::UdpSocket) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        *self = Self::from_std(socket, &self.options)?;
        Ok(())
    }

    fn leave_lost_address(&mut self) -> io::Result<bool> {
        let bound = self.info.local_addr.ip();
        if bound.is_unspecified() {
            return Ok(false);
        }
        let probe = std::net::UdpSocket::bind((bound, 0));
        if probe.map_or_else(|error| error.kind(), |_| io::ErrorKind::Other)
            != io::ErrorKind::AddrNotAvailable
        {
            return Ok(false);
        }
        let any: IpAddr = match bound {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        *self = Self::bind(SocketAddr::new(any, 0), &self.options)?;
        Ok(true)
    }

    fn waited(&self) -> Option<Duration> {
        super::waited::since_arrival(self.inner.as_fd())
    }

    #[cfg(target_os = "linux")]
    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        self.send(|fd, mapped| super::sendmsg::send_one(fd, train, mapped))
    }

    #[cfg(target_os = "linux")]
    fn try_send_batch(&mut self, trains: &[Outgoing<'_>]) -> io::Result<usize> {
        if let [first, _, ..] = trains {
            if !self.one_by_one {
                let sent = self.send(|fd, mapped| super::sendmsg::send_many(fd, trains, mapped));
                match sent {
                    // The call forgot why it sent no more.
                    Ok(sent) if sent < trains.len() => {
                        self.may_have_notices |= self.keeps_notices;
                        return Ok(sent);
                    }
                    Err(error)
                        if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) =>
                    {
                        // A packet filter refuses (EPERM) this train alone, too; a sandbox that
                        // knows `sendmsg` only does not.
                        self.try_send(first)?;
                        tracing::info!(%error, "no sendmmsg here; one call for each train");
                        self.one_by_one = true;
                        return Ok(1);
                    }
                    result => return result,
                }
            }
            return self.try_send(first).map(|()| 1);
        }
        trains
            .first()
            .map_or(Ok(0), |only| self.try_send(only).map(|()| 1))
    }

    #[cfg(target_os = "linux")]
    fn poll_notice(&mut self) -> Option<Notice> {
        if !self.may_have_notices {
            return None;
        }
        let notice = super::error_queue::take(self.inner.as_fd());
        self.may_have_notices = notice.is_some();
        notice
    }

    #[cfg(not(target_os = "linux"))]
    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: outward(train.remote, self.mapped),
            ecn: train.ecn.map(ecn_to_kernel),
            contents: train.contents,
            segment_size: (train.segment_size < train.contents.len()).then_some(train.segment_size),
            src_ip: train.local_ip.map(|ip| outward_ip(ip, self.mapped)),
        };
        self.state
            .try_send(UdpSockRef::from(&self.inner), &transmit)
    }

    fn max_segments(&self) -> usize {
        if self.options.gso {
            self.state.max_gso_segments().min(MAX_TRAIN_SEGMENTS)
        } else {
            1
        }
    }

    #[cfg(target_os = "linux")]
    fn renew(&mut self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn renew(&mut self) -> io::Result<()> {
        self.state = UdpSocketState::new(UdpSockRef::from(&self.inner))?;
        self.apply_offloads();
        Ok(())
    }

    fn info(&self) -> SocketInfo {
        self.info
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.as_fd())
    }
}

/// Linux doubles a buffer size for its own bookkeeping and reports the double (socket(7)).
fn as_asked(reported: usize) -> usize {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        reported / 2
    } else {
        reported
    }
}

fn ecn_from_kernel(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

#[cfg(not(target_os = "linux"))]
fn ecn_to_kernel(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

/// Switches UDP_GRO off; false where the system refused.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn disable_gro(socket: &std::net::UdpSocket) -> bool {
    use std::os::fd::AsRawFd;
    let off: libc::c_int = 0;
    // SAFETY: the descriptor is open for the whole call because `socket` is borrowed,
    // and the pointer and length describe `off`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    result == 0
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn disable_gro(_: &std::net::UdpSocket) -> bool {
    true
}
