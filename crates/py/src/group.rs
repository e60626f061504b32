//! Servers of several processes on one port: [`bind_group`] makes their sockets, `Driver.adopt` is on one.
//!
//! The kernel sends each datagram to the socket that its connection ID names, by its place in the group: the
//! parent keeps all sockets open, so that the places stay when a worker dies.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{IntoRawFd, RawFd};

use pyo3::prelude::*;
use towline::EndpointBuilder;
use towline::engine::EndpointConfig;
use towline::io::{Socket, SocketOptions, UdpSocket, bind_shards, random_seed};

use crate::endpoint::Made;
use crate::errors::{Failure, os_error};

/// The descriptors of `count` sockets at one address, in their order, and the port. They are the caller's to
/// close.
///
/// # Errors
/// When the address cannot be bound, and when the system does not steer by connection ID.
#[pyfunction]
pub(crate) fn bind_group(
    py: Python<'_>,
    host: &str,
    port: u16,
    count: usize,
) -> PyResult<(Vec<RawFd>, u16)> {
    let ip: IpAddr = host
        .parse()
        .map_err(|error| Failure::value("host", error).raise(py))?;
    let bind = || {
        let sockets = bind_shards(SocketAddr::new(ip, port), count, &SocketOptions::default())?;
        if sockets.iter().any(|socket| socket.info().steering_refused) {
            let what =
                "the system does not steer datagrams by connection ID (SO_ATTACH_REUSEPORT_CBPF)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let port = sockets[0].info().local_addr.port();
        let copies: io::Result<Vec<_>> = sockets.iter().map(UdpSocket::try_clone_std).collect();
        let copies = copies?.into_iter().map(IntoRawFd::into_raw_fd);
        Ok((copies.collect(), port))
    };
    bind().map_err(os_error)
}

/// A server on the socket behind `fd`.
pub(crate) fn adopt(
    fd: RawFd,
    builder: EndpointBuilder,
    (index, count): (usize, usize),
    secret: [u8; 32],
) -> io::Result<Made> {
    let socket: Box<dyn Socket> = Box::new(UdpSocket::inherited(fd, &SocketOptions::default())?);
    // The keys are the group's, the randomness is the process's own.
    let engine = EndpointConfig::from_seed(secret).seed(random_seed()?);
    builder
        .engine(engine)
        .apart(index, count)
        .on_sockets(vec![socket])
}
