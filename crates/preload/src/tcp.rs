//! TCP sockets by the agent: what each call of a program becomes.
//!
//! A listening socket is one end of a channel from the agent, whose own name says the TCP address.
//! Errors are errnos.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use towline_wire::{AgentStatus, Operation, listening_address};

use crate::agent::{NONE, Question, ask, is_there, receive};
use crate::environment::Agent;
use crate::system::{Address, Descriptor, errno, internet, is_tcp, name_of, set_timeout, timeout};

/// A new socket; `flags` are SOCK_NONBLOCK and SOCK_CLOEXEC.
pub(crate) fn socket(agent: &Agent, domain: c_int, flags: c_int) -> Result<c_int, c_int> {
    let ip = match domain {
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let question = Question {
        operation: Operation::Socket,
        socket: None,
        local: SocketAddr::new(ip, 0),
        peer: NONE,
    };
    let (_, socket) = ask(agent, &question)?;
    let socket = socket.ok_or(libc::ENETDOWN)?;
    give(socket, flags)
}

/// Connects a TCP socket; `false` if the program is to do it itself.
pub(crate) fn connect(agent: &Agent, socket: c_int, to: SocketAddr) -> Result<bool, c_int> {
    // One that is connected is told so by the kernel.
    if name_of(socket, true).is_some() || !is_tcp(socket) {
        return Ok(false);
    }
    let question = Question {
        operation: Operation::Connect,
        socket: Some(socket),
        local: NONE,
        peer: to,
    };
    let (answer, instead) = ask(agent, &question)?;
    if let Some(instead) = instead {
        replace(socket, &instead)?;
    }
    match answer.status {
        AgentStatus::Done => Ok(true),
        AgentStatus::StaysHere => Ok(false),
        AgentStatus::Failed(error) => Err(error),
    }
}

/// Has the agent listen, and puts its channel in the place of the socket; `false` if the program is
/// to do it itself.
pub(crate) fn listen(agent: &Agent, socket: c_int) -> Result<bool, c_int> {
    if is_listening(socket).is_some() {
        return Ok(true);
    }
    if !is_tcp(socket) {
        return Ok(false);
    }
    let question = Question {
        operation: Operation::Listen,
        socket: Some(socket),
        local: NONE,
        peer: NONE,
    };
    let (_, channel) = ask(agent, &question)?;
    let channel = channel.ok_or(libc::ENETDOWN)?;
    // How long accept() waits.
    if let Some(limit) = timeout(socket, libc::SO_RCVTIMEO) {
        set_timeout(channel.0, libc::SO_RCVTIMEO, &limit);
    }
    replace(socket, &channel).map(|()| true)
}

/// The next connection of a listening socket and its peer; `flags` as those of accept4(2).
pub(crate) fn accept(
    agent: &Agent,
    listening: c_int,
    flags: c_int,
) -> Result<(c_int, SocketAddr), c_int> {
    // What is received without a number for it is lost; Linux leaves it in the queue.
    drop(Descriptor(control(listening, libc::F_DUPFD_CLOEXEC, 0)?));
    match receive(listening) {
        Ok((answer, socket)) => {
            let socket = socket.ok_or(libc::ENETDOWN)?;
            Ok((give(socket, flags)?, answer.peer))
        }
        // The channel has ended while the agent goes on: somebody has called shutdown().
        Err(libc::ENETDOWN) if is_there(agent) => Err(libc::EINVAL),
        Err(error) => Err(error),
    }
}

/// Gives a descriptor to the program, with SOCK_NONBLOCK and SOCK_CLOEXEC if `flags` have them.
fn give(socket: Descriptor, flags: c_int) -> Result<c_int, c_int> {
    if flags & libc::SOCK_NONBLOCK != 0 {
        add_flag(socket.0, libc::O_NONBLOCK)?;
    }
    if flags & libc::SOCK_CLOEXEC == 0 {
        control(socket.0, libc::F_SETFD, 0)?;
    }
    Ok(socket.into_raw())
}

/// As shutdown(2) of a listening socket.
pub(crate) fn stop_listening(listening: c_int, how: c_int) -> Result<(), c_int> {
    match how {
        // The agent is to see it, and every accept() that waits.
        libc::SHUT_RD | libc::SHUT_RDWR => {
            // SAFETY: integers only.
            match unsafe { libc::syscall(libc::SYS_shutdown, listening, libc::SHUT_RDWR) } {
                0 => Ok(()),
                _ => Err(errno()),
            }
        }
        // It writes nothing.
        libc::SHUT_WR => Ok(()),
        _ => Err(libc::EINVAL),
    }
}

/// The address that a program's listening socket stands for; `None` if it is another one.
pub(crate) fn is_listening(socket: c_int) -> Option<SocketAddr> {
    let (address, len) = name_of(socket, false)?;
    let family = libc::sa_family_t::from_ne_bytes([address[0], address[1]]);
    if c_int::from(family) != libc::AF_UNIX {
        return None;
    }
    listening_address(address.get(2..len)?)
}

/// An option of a listening socket that is asked for.
pub(crate) fn listening_option(address: SocketAddr, name: c_int) -> Option<c_int> {
    Some(match name {
        libc::SO_ACCEPTCONN => 1,
        libc::SO_TYPE => libc::SOCK_STREAM,
        libc::SO_PROTOCOL => libc::IPPROTO_TCP,
        libc::SO_DOMAIN => match address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        },
        _ => return None,
    })
}

/// The real addresses, own and peer's, of a socket that is connected to the agent in their place;
/// `None` if it has those that it shows. Whoever cannot be asked must not be taken for this machine.
pub(crate) fn real_names(
    agent: &Agent,
    socket: c_int,
) -> Result<Option<(SocketAddr, SocketAddr)>, c_int> {
    let name = |peer| {
        let (address, _): (Address, _) = name_of(socket, peer)?;
        internet(&address)
    };
    let (Some(local), Some(peer)) = (name(false), name(true)) else {
        return Ok(None);
    };
    if !peer.ip().to_canonical().is_loopback() {
        return Ok(None);
    }
    let question = Question {
        operation: Operation::Names,
        socket: None,
        local,
        peer,
    };
    match ask(agent, &question) {
        Ok((answer, _)) => Ok(Some((answer.local, answer.peer))),
        Err(libc::ENOENT) => Ok(None),
        // Both calls may fail so (POSIX).
        Err(_) => Err(libc::ENOBUFS),
    }
}

/// Puts `other` in the place of `socket`, with its flags.
fn replace(socket: c_int, other: &Descriptor) -> Result<(), c_int> {
    let flags = control(socket, libc::F_GETFL, 0)?;
    add_flag(other.0, flags & libc::O_NONBLOCK)?;
    let at_exec = match control(socket, libc::F_GETFD, 0)? & libc::FD_CLOEXEC {
        0 => 0,
        _ => libc::O_CLOEXEC,
    };
    // SAFETY: integers only.
    match unsafe { libc::dup3(other.0, socket, at_exec) } {
        0.. => Ok(()),
        _ => Err(errno()),
    }
}

fn control(descriptor: c_int, command: c_int, argument: c_int) -> Result<c_int, c_int> {
    // SAFETY: integers only.
    match unsafe { libc::fcntl(descriptor, command, argument) } {
        -1 => Err(errno()),
        result => Ok(result),
    }
}

fn add_flag(descriptor: c_int, flag: c_int) -> Result<(), c_int> {
    let flags = control(descriptor, libc::F_GETFL, 0)?;
    control(descriptor, libc::F_SETFL, flags | flag).map(drop)
}
