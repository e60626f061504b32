//! The flood: one socket that sends from any address out of 127.0.0.0/8 and hears the answers.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc::{in_addr, in_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use towline_wire::{Header, parse_header};

use crate::hello::{DATAGRAM, Template};
use crate::{Kind, Outcome};

/// Prefixes of the largest flood: 127.64.0.0 to 127.191.255.255.
pub(crate) const MOST_PREFIXES: u32 = 128 * 256;
/// No flood lasts longer, whatever becomes of the program that wanted it.
const MOST_TIME: Duration = Duration::from_secs(130);
/// Different datagrams of one flood, prepared before it begins; two seconds' worth.
const DATAGRAMS: usize = 40_000;
/// What was not sent for so long is left out, not caught up with.
const MOST_BEHIND: Duration = Duration::from_millis(20);

/// What a flood did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flood {
    /// Datagrams in a second.
    pub(crate) rate: f64,
    /// Datagrams that came back.
    pub(crate) answers: u64,
}

pub(crate) struct Generator {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Outcome<f64>>,
    listener: JoinHandle<Outcome>,
    answers: Arc<AtomicU64>,
}

impl Generator {
    pub(crate) fn start(
        kind: Kind,
        prefixes: u32,
        rate: u32,
        server: SocketAddr,
        template: Template,
    ) -> Outcome<Self> {
        let SocketAddr::V4(server) = server else {
            return Err("floods are IPv4".into());
        };
        if !server.ip().is_loopback() {
            return Err("floods stay on loopback".into());
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicU64::new(0));
        let listener = Listener {
            kind,
            server,
            template: template.clone(),
            socket: socket.try_clone()?,
            stop: Arc::clone(&stop),
            answers: Arc::clone(&answers),
        };
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let datagrams = (0..DATAGRAMS)
            .map(|_| datagram(kind, &template, random.next()))
            .collect::<Outcome<_>>()?;
        let sender = Sender {
            datagrams,
            prefixes,
            rate,
            server,
            socket,
            stop: Arc::clone(&stop),
            random,
        };
        Ok(Self {
            stop,
            answers,
            listener: std::thread::spawn(move || listener.run()),
            sender: std::thread::spawn(move || sender.run()),
        })
    }

    pub(crate) fn stop(self) -> Outcome<Flood> {
        self.stop.store(true, Ordering::Relaxed);
        let rate = self.sender.join().map_err(|_| "the flood failed")??;
        self.listener.join().map_err(|_| "the flood failed")??;
        Ok(Flood {
            rate,
            answers: self.answers.load(Ordering::Relaxed),
        })
    }
}

struct Sender {
    datagrams: Vec<Vec<u8>>,
    prefixes: u32,
    rate: u32,
    server: SocketAddrV4,
    socket: UdpSocket,
    stop: Arc<AtomicBool>,
    random: Random,
}

impl Sender {
    /// Datagrams a second that went out.
    fn run(mut self) -> Outcome<f64> {
        let began = Instant::now();
        let (mut sent, mut due_from) = (0_u64, began);
        let mut since = 0_u64;
        while !self.stop.load(Ordering::Relaxed) && began.elapsed() < MOST_TIME {
            let elapsed = due_from.elapsed();
            let due = (elapsed.as_secs_f64() * f64::from(self.rate)) as u64;
            if due > since + (MOST_BEHIND.as_secs_f64() * f64::from(self.rate)) as u64 {
                (due_from, since) = (Instant::now(), 0);
                continue;
            }
            if due == since {
                std::thread::sleep(Duration::from_micros(500));
                continue;
            }
            let source = self.source(sent as u32);
            let datagram = &self.datagrams[sent as usize % DATAGRAMS];
            send_from(&self.socket, source, self.server, datagram)?;
            sent += 1;
            since += 1;
        }
        Ok(sent as f64 / began.elapsed().as_secs_f64())
    }

    fn source(&mut self, sent: u32) -> Ipv4Addr {
        let [.., high, low] = (sent % self.prefixes).to_be_bytes();
        let host = (self.random.next() >> 56) as u8;
        Ipv4Addr::new(127, 64 + high, low, host)
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// One datagram of the flood, unlike the others by `random`.
fn datagram(kind: Kind, template: &Template, random: u64) -> Outcome<Vec<u8>> {
    let dcid = random.to_be_bytes();
    Ok(match kind {
        Kind::None => Vec::new(),
        Kind::Junk => {
            let mut bytes = vec![0x5a; 60];
            bytes[0] = 0x41;
            bytes[1..9].copy_from_slice(&dcid);
            bytes
        }
        Kind::Garbage => {
            let mut bytes = template.packet(&dcid, &[])?;
            bytes[DATAGRAM - 1] ^= 1;
            bytes
        }
        Kind::Hellos | Kind::HalfOpen => template.packet(&dcid, &[])?,
        Kind::Versions => {
            let mut bytes = vec![0xc3, 0xba, 0xbe, 0xba, 0xba, 8];
            bytes.extend_from_slice(&dcid);
            bytes.push(8);
            bytes.resize(DATAGRAM, 0x5a);
            bytes
        }
    })
}

struct Listener {
    kind: Kind,
    server: SocketAddrV4,
    template: Template,
    socket: UdpSocket,
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
}

impl Listener {
    fn run(self) -> Outcome {
        let mut bytes = vec![0; 65_536];
        let began = Instant::now();
        while !self.stop.load(Ordering::Relaxed) && began.elapsed() < MOST_TIME {
            let Some((len, at)) = self.receive(&mut bytes)? else {
                continue;
            };
            self.answers.fetch_add(1, Ordering::Relaxed);
            if self.kind != Kind::HalfOpen {
                continue;
            }
            if let Ok(Header::Retry { scid, token, .. }) = parse_header(&bytes[..len], 8) {
                let hello = self.template.packet(&scid, token)?;
                send_from(&self.socket, at, self.server, &hello)?;
            }
        }
        Ok(())
    }

    /// A datagram's length and the address it was sent to.
    fn receive(&self, bytes: &mut [u8]) -> Outcome<Option<(usize, Ipv4Addr)>> {
        let mut control = cmsg_space!(in_pktinfo);
        let mut slices = [IoSliceMut::new(bytes)];
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<SockaddrIn>(fd, &mut slices, Some(&mut control), MsgFlags::empty());
        let message = match message {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let at = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)))
            }
            _ => None,
        });
        Ok(at.map(|at| (message.bytes, at)))
    }
}

fn send_from(socket: &UdpSocket, from: Ipv4Addr, to: SocketAddrV4, bytes: &[u8]) -> Outcome {
    let address = in_addr {
        s_addr: u32::from(from).to_be(),
    };
    let info = in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: address,
        ipi_addr: address,
    };
    let control = [ControlMessage::Ipv4PacketInfo(&info)];
    let to = SockaddrIn::from(to);
    let slices = [IoSlice::new(bytes)];
    let fd = socket.as_raw_fd();
    match sendmsg(fd, &slices, &control, MsgFlags::empty(), Some(&to)) {
        // A full queue: the flood is as strong as the system lets it.
        Ok(_) | Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
