//! A TUN device in a namespace: opened, given its addresses, read and written packet by packet.
//!
//! TUN has the kernel finish checksums and segmentation before a packet leaves, so that what is
//! read here is what a wire would carry.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::config::{DEVICE_MTU, DEVICE_NAME, TunAddresses};
use super::error::TunError;
use super::ip::ip;
use super::namespace::in_namespace;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// Packets the kernel keeps while the relay is busy, so that losses are the links' and not the kernel's.
const DEVICE_QUEUE: &str = "4096";

/// An open device; it is gone when the last handle is closed.
pub(super) struct Device {
    file: File,
    namespace: String,
}

impl Device {
    /// Opens the device with `own` addresses and a route to `others`.
    pub(super) fn open(
        namespace: &str,
        own: &TunAddresses,
        others: &TunAddresses,
    ) -> Result<Self, TunError> {
        let file = in_namespace(namespace, || open(namespace))??;
        let device = Self {
            file,
            namespace: namespace.to_owned(),
        };
        let mtu = DEVICE_MTU.to_string();
        let (v4, v6) = (format!("{}/24", own.v4), format!("{}/64", own.v6));
        // Their whole network, for the addresses that a NAT or a user adds.
        let [a, b, c, _] = others.v4.octets();
        let to_v4 = format!("{a}.{b}.{c}.0/24");
        let to_v6 = format!("{}/64", network(others.v6));
        let set = |arguments: &[&str]| ip(&[&["-n", namespace], arguments].concat());
        set(&[
            "link",
            "set",
            DEVICE_NAME,
            "mtu",
            &mtu,
            "txqueuelen",
            DEVICE_QUEUE,
            "up",
        ])?;
        set(&["addr", "add", &v4, "dev", DEVICE_NAME])?;
        set(&["route", "add", &to_v4, "dev", DEVICE_NAME])?;
        // A kernel without IPv6 still has IPv4.
        match set(&["-6", "addr", "add", &v6, "dev", DEVICE_NAME, "nodad"])
            .and_then(|()| set(&["-6", "route", "add", &to_v6, "dev", DEVICE_NAME]))
        {
            Err(error @ TunError::Ip { .. }) => {
                tracing::warn!(namespace, %error, "the relay carries IPv4 only");
            }
            result => result?,
        }
        Ok(device)
    }

    /// The next packet, or `WouldBlock`.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Hands a packet to the namespace.
    pub(super) fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }

    /// Packets the kernel dropped because nobody read them in time; 0 where it does not tell.
    pub(super) fn lost(&self) -> u64 {
        // This file is that of the reading thread's namespace.
        let table = in_namespace(&self.namespace, || {
            std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default()
        });
        table.map_or(0, |table| transmit_drops(&table))
    }
}

impl AsRawFd for Device {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The first half of an address.
fn network(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(address) >> 64 << 64)
}

/// The transmit drops of our device: after the name eight numbers for reception, then bytes,
/// packets, errors, drops.
fn transmit_drops(table: &str) -> u64 {
    table
        .lines()
        .find_map(|line| line.trim().strip_prefix(DEVICE_NAME)?.strip_prefix(':'))
        .and_then(|numbers| numbers.split_whitespace().nth(11)?.parse().ok())
        .unwrap_or(0)
}

/// Attaches a device to the calling thread's namespace.
fn open(namespace: &str) -> Result<File, TunError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(CLONE_DEVICE)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => TunError::NoTun,
            // The node is there and the driver is not.
            _ if error.raw_os_error() == Some(libc::ENODEV) => TunError::NoTun,
            _ => TunError::of(format!("opening {CLONE_DEVICE}"), error),
        })?;
    attach(&file).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => TunError::DeviceExists {
            namespace: namespace.to_owned(),
        },
        _ => TunError::of(
            format!("making the device {DEVICE_NAME} in namespace `{namespace}`"),
            error,
        ),
    })?;
    Ok(file)
}

/// TUNSETIFF: IP packets without a head of the driver's own.
fn attach(file: &File) -> io::Result<()> {
    // SAFETY: all-zero is a valid ifreq: it holds integers, arrays and null pointers only.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name is shorter than the field, so the last byte stays 0.
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE_NAME.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives as long as the call; the
    // descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests;
