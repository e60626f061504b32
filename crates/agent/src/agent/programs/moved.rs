//! Addresses that leave this machine: clear connections from or to them have to end, as the kernel
//! would look for them elsewhere.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::sync::watch;

use super::super::handshake::registered;
use super::super::places::{Place, place};

/// Linux: which of a netlink socket's messages are wanted.
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;

/// Says when addresses have changed.
#[derive(Debug)]
pub(super) struct Addresses(watch::Sender<()>);

impl Addresses {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Watches for ever.
    pub(super) async fn watch(&self) {
        if let Err(error) = self.try_watch().await {
            tracing::warn!("whether this machine's addresses change cannot be seen: {error}");
        }
        std::future::pending().await
    }

    async fn try_watch(&self) -> io::Result<()> {
        let changes = registered(changes()?)?;
        loop {
            let mut ignored = [0; 4096];
            let read = |changes: &Socket| {
                let mut changes = changes;
                changes.read(&mut ignored)
            };
            match changes.async_io(Interest::READABLE, read).await {
                // Too many to be told of each.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                result => drop(result?),
            }
            self.0.send_replace(());
        }
    }

    /// Until one of these addresses is no longer ours.
    pub(super) async fn until_gone(&self, ends: [SocketAddr; 2]) {
        let mut changed = self.0.subscribe();
        let are_ours = || {
            ends.iter()
                .all(|end| place(*end).is_ok_and(|place| place != Place::Away))
        };
        while are_ours() && changed.changed().await.is_ok() {}
    }
}

/// What the kernel says of changed addresses.
fn changes() -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(libc::NETLINK_ROUTE)),
    )?;
    socket.set_nonblocking(true)?;
    // SAFETY: all-zero is a valid sockaddr_nl: integers.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: the descriptor is open; pointer and length are those of one struct, which is only read.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}
