//! The floor program: what any QUIC stack must do to a byte, and nothing else.
//!
//! The client sends trains of 44 packets of 1472 bytes in one call each; every packet has a short
//! header, is sealed in place with AES-128-GCM and has its header masked. One copy a side takes
//! the bytes from and to the application. The server answers with a sealed credit packet per
//! 64 KiB; four of those may be outstanding. No handshake, no loss recovery, no timers: a lost
//! packet fails the run.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::quic::{self, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use bench_contract::meter::Meter;
use bench_contract::{LISTENING, Measure, Role, Settings};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};

use crate::Result;
use crate::measures::print;
use crate::quinn::SOCKET_BUFFER;

/// Bytes of a packet, where nothing else is asked for.
const FULL: u16 = 1472;
/// Packets of one train.
const TRAIN: usize = 44;
/// Bytes of a short header: the first byte, an eight-byte connection ID, a four-byte packet number.
const HEADER: usize = 1 + 8 + NUMBER;
const NUMBER: usize = 4;
const TAG: usize = 16;
/// Bytes of a header protection sample (RFC 9001 §5.4.2).
const SAMPLE: usize = 16;
/// Bytes per credit packet, and credits outstanding.
const CREDIT: u64 = 64 * 1024;
const CREDITS: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs one end of a bulk transfer.
pub(crate) fn run(role: Role, measure: Measure, settings: &Settings) -> Result<()> {
    if measure != Measure::Bulk {
        return Err("the floor program only moves bulk data".into());
    }
    let report = match role {
        Role::Server => {
            let mut line = Line::bind(settings.addr)?;
            println!("{LISTENING}{}", line.socket.local_addr()?);
            receive(&mut line, settings.bytes)?
        }
        Role::Client => {
            let mut line = Line::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            send(&mut line, settings)?
        }
    };
    print(&report)
}

/// A socket with offloads, and the keys that both ends know.
struct Line {
    socket: UdpSocket,
    state: UdpSocketState,
    key: LessSafeKey,
    mask: HeaderProtectionKey,
    buffer: Vec<u8>,
}

impl Line {
    fn bind(address: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let view = UdpSockRef::from(&socket);
        let state = UdpSocketState::new(view)?;
        state.set_send_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER)?;
        state.set_recv_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER)?;
        if state.max_gso_segments() < TRAIN || state.gro_segments() < TRAIN {
            return Err("the system has no UDP GSO and GRO; the floor means nothing".into());
        }
        // One call a train is least: block in it.
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let secret = [0x5a; 16];
        Ok(Self {
            socket,
            state,
            key: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &secret)?),
            mask: HeaderProtectionKey::new(&quic::AES_128, &secret)?,
            buffer: vec![0; usize::from(u16::MAX) + 1],
        })
    }

    fn nonce(number: u32, sender: Role) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[0] = u8::from(sender == Role::Server);
        nonce[NONCE_LEN - NUMBER..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Makes the packet `number` of `payload` in `packet`, which has its exact size.
    fn seal(&self, packet: &mut [u8], number: u32, sender: Role, payload: &[u8]) -> Result<()> {
        let (header, body) = packet.split_at_mut(HEADER);
        header[0] = 0x43;
        header[1..HEADER - NUMBER].fill(0xc1);
        header[HEADER - NUMBER..].copy_from_slice(&number.to_be_bytes());
        let (text, tag) = body.split_at_mut(payload.len());
        text.copy_from_slice(payload);
        let sealed = self.key.seal_in_place_separate_tag(
            Self::nonce(number, sender),
            Aad::from(&*header),
            text,
        )?;
        tag.copy_from_slice(sealed.as_ref());
        self.toggle_mask(packet)
    }

    /// Nanoseconds for the AEAD of one packet of `payload`: the least of some runs, for whatever
    /// disturbs one makes it longer.
    fn time_to_seal(&self, payload: &[u8]) -> Result<f64> {
        const RUNS: u32 = 20;
        const PACKETS: u32 = 1000;
        let mut text = payload.to_vec();
        let mut least = Duration::MAX;
        for _ in 0..RUNS {
            let start = Instant::now();
            for number in 0..PACKETS {
                let nonce = Self::nonce(number, Role::Client);
                let aad = Aad::from([0; HEADER]);
                let tag = self.key.seal_in_place_separate_tag(nonce, aad, &mut text)?;
                let _ = std::hint::black_box(tag);
            }
            least = least.min(start.elapsed());
        }
        Ok(least.as_secs_f64() * 1e9 / f64::from(PACKETS))
    }

    /// Masks or unmasks the header; the sample begins where a four-byte number ends.
    fn toggle_mask(&self, packet: &mut [u8]) -> Result<()> {
        let sample = packet
            .get(HEADER..HEADER + SAMPLE)
            .ok_or("a packet is too short")?;
        let mask = self.mask.new_mask(sample)?;
        packet[0] ^= mask[0] & 0x1f;
        for (byte, mask) in packet[HEADER - NUMBER..HEADER].iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
        }
        Ok(())
    }

    /// Opens a packet in place.
    fn open<'a>(&self, packet: &'a mut [u8], sender: Role) -> Result<&'a [u8]> {
        self.toggle_mask(packet)?;
        let (header, body) = packet.split_at_mut(HEADER);
        let mut number = [0; NUMBER];
        number.copy_from_slice(&header[HEADER - NUMBER..]);
        let nonce = Self::nonce(u32::from_be_bytes(number), sender);
        Ok(self.key.open_in_place(nonce, Aad::from(&*header), body)?)
    }

    fn poll(&self) -> Result<()> {
        let mut waiting = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, PollTimeout::try_from(PATIENCE)?)? {
            0 => Err("the other end went silent".into()),
            _ => Ok(()),
        }
    }

    /// Waits for the next train; its bytes are in the buffer.
    fn wait(&mut self) -> Result<RecvMeta> {
        let mut meta = [RecvMeta::default()];
        self.state.recv(
            UdpSockRef::from(&self.socket),
            &mut [IoSliceMut::new(&mut self.buffer)],
            &mut meta,
        )?;
        Ok(meta[0])
    }
}

fn send(line: &mut Line, settings: &Settings) -> Result<bench_contract::Report> {
    let mtu = settings.mtu.unwrap_or(FULL);
    let packet = usize::from(mtu);
    let payload = packet - HEADER - TAG;
    let source = vec![0x5a; payload * TRAIN];
    let mut train = vec![0; packet * TRAIN];
    let mut credits = Credits::new(line)?;
    // A connected socket that cuts what it is given: the least a call can cost.
    line.socket.connect(settings.addr)?;
    setsockopt(&line.socket, UdpGsoSegment, &i32::from(mtu))?;
    let seal_ns = Some(line.time_to_seal(&source[..payload])?);
    let meter = Meter::start()?;
    let (mut sent, mut credited, mut number) = (0, 0, 0);
    while sent < settings.bytes {
        let length = (source.len() as u64).min(settings.bytes - sent);
        while sent + length > credited + CREDITS * CREDIT {
            credited = credits.next(line)?;
        }
        let mut filled = 0;
        for part in source[..usize::try_from(length)?].chunks(payload) {
            let end = filled + HEADER + part.len() + TAG;
            line.seal(&mut train[filled..end], number, Role::Client, part)?;
            number += 1;
            filled = end;
        }
        line.socket.send(&train[..filled])?;
        sent += length;
    }
    while credited < sent {
        credited = credits.next(line)?;
    }
    let report = meter.stop(sent)?;
    Ok(bench_contract::Report { seal_ns, ..report })
}

/// The sender's side of the credits: takes all that have come in one call.
struct Credits {
    buffers: Vec<[u8; 64]>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl Credits {
    fn new(line: &Line) -> Result<Self> {
        // Credits come in bunches; to block for each would cost a call each.
        line.socket.set_nonblocking(true)?;
        Ok(Self {
            buffers: vec![[0; 64]; BATCH_SIZE],
            meta: [RecvMeta::default(); BATCH_SIZE],
        })
    }

    /// The server's next count of received bytes, waited for.
    fn next(&mut self, line: &Line) -> Result<u64> {
        let count = loop {
            let mut slices = self
                .buffers
                .iter_mut()
                .map(|buffer| IoSliceMut::new(buffer));
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
            let socket = UdpSockRef::from(&line.socket);
            match line.state.recv(socket, &mut slices, &mut self.meta) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => line.poll()?,
                Err(error) => return Err(error.into()),
            }
        };
        let last = count.checked_sub(1).ok_or("no credit came")?;
        let meta = &self.meta[last];
        // The last count of the last train is the largest.
        let packets = self.buffers[last][..meta.len].chunks_mut(meta.stride.max(1));
        let count = line.open(packets.last().ok_or("an empty datagram")?, Role::Server)?;
        Ok(u64::from_be_bytes(count.try_into()?))
    }
}

fn receive(line: &mut Line, bytes: u64) -> Result<bench_contract::Report> {
    let mut application = vec![0; usize::from(u16::MAX) + 1];
    let mut meter = None;
    let (mut received, mut credited, mut number) = (0, 0, 0);
    while received < bytes {
        let meta = line.wait()?;
        if meter.is_none() {
            meter = Some(Meter::start()?);
        }
        let mut buffer = std::mem::take(&mut line.buffer);
        let mut filled = 0;
        for packet in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
            let text = line.open(packet, Role::Client)?;
            application[filled..filled + text.len()].copy_from_slice(text);
            filled += text.len();
        }
        line.buffer = buffer;
        received += std::hint::black_box(&application[..filled]).len() as u64;
        if received >= credited + CREDIT || received == bytes {
            credited = received - received % CREDIT;
            let mut packet = [0; HEADER + 8 + TAG];
            line.seal(&mut packet, number, Role::Server, &received.to_be_bytes())?;
            number += 1;
            line.socket.send_to(&packet, meta.addr)?;
        }
    }
    meter.ok_or("nothing was to be received")?.stop(received)
}

#[cfg(test)]
mod tests;
