//! One question to the agent and its answer, over a connection that lasts as long as the call: so
//! threads, forks and execs share nothing.

use core::ffi::c_int;
use core::mem::{size_of, zeroed};

use libc::{sockaddr_un, socklen_t};
use towline_wire::{
    AGENT_ANSWER_LEN, AgentAnswer, AgentRequest, AgentStatus, Carrier, Operation, Side,
};

use crate::environment::Agent;
use crate::system::{Descriptor, errno, set_timeout, timeout};

/// How long the agent may take where it need not wait for others.
const PATIENCE: libc::timeval = libc::timeval {
    tv_sec: 10,
    tv_usec: 0,
};

/// What is asked, and what goes along.
pub(crate) struct Question {
    pub(crate) operation: Operation,
    pub(crate) socket: Option<c_int>,
    pub(crate) local: core::net::SocketAddr,
    pub(crate) peer: core::net::SocketAddr,
}

/// No address.
pub(crate) const NONE: core::net::SocketAddr =
    core::net::SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0);

/// Asks; the error is an errno.
pub(crate) fn ask(
    agent: &Agent,
    question: &Question,
) -> Result<(AgentAnswer, Option<Descriptor>), c_int> {
    let connection = put(agent, question)?;
    let is_connect = question.operation == Operation::Connect;
    let patience = match question.socket {
        Some(socket) if is_connect => patience_of(socket),
        _ => Some(PATIENCE),
    };
    if let Some(patience) = patience {
        set_timeout(connection.0, libc::SO_RCVTIMEO, &patience);
    }
    let (answer, descriptor) = loop {
        match receive(connection.0) {
            // What was asked for would be done all the same, and the program not know.
            Err(libc::EINTR) => {}
            // As TCP says it. The agent sees us go, and gives up.
            Err(libc::EAGAIN) if is_connect => return Err(libc::EINPROGRESS),
            Err(libc::EAGAIN) => return Err(libc::ETIMEDOUT),
            received => break received?,
        }
    };
    match (answer.status, &descriptor) {
        // One that is under way may come with another socket.
        (AgentStatus::Failed(error), None) => Err(error),
        _ => Ok((answer, descriptor)),
    }
}

/// Whether the agent is still there.
pub(crate) fn is_there(agent: &Agent) -> bool {
    connect(agent).is_ok()
}

/// Sends a question; the answer comes over the connection that it returns.
fn put(agent: &Agent, question: &Question) -> Result<Descriptor, c_int> {
    let connection = connect(agent)?;
    // SAFETY: these calls cannot fail and have no arguments.
    let (uid, pid) = unsafe { (libc::geteuid(), libc::getpid()) };
    let request = AgentRequest {
        id: 0,
        fd: -1,
        side: match question.operation {
            Operation::Listen => Side::Server,
            _ => Side::Client,
        },
        carrier: Carrier::Preload,
        operation: question.operation,
        uid,
        pid: pid as u32,
        netns: 0,
        local: question.local,
        peer: question.peer,
        token: agent.token,
    };
    send(&connection, &request.emit(), question.socket)?;
    Ok(connection)
}

/// To the agent; one that is gone is the network that is down.
fn connect(agent: &Agent) -> Result<Descriptor, c_int> {
    // SAFETY: integers only.
    let socket = unsafe {
        libc::syscall(
            libc::SYS_socket,
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
        )
    };
    if socket < 0 {
        return Err(errno());
    }
    let socket = Descriptor(socket as c_int);
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut address: sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An abstract name begins with a zero and has no end but its length.
    for (to, byte) in address.sun_path[1..].iter_mut().zip(agent.name()) {
        *to = *byte as libc::c_char;
    }
    let len = core::mem::offset_of!(sockaddr_un, sun_path) + 1 + agent.name().len();
    loop {
        // SAFETY: the address outlives the call and has more than `len` bytes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_connect,
                socket.0,
                &raw const address,
                len as socklen_t,
            )
        };
        match (result, errno()) {
            (0, _) if is_ours(&socket) => return Ok(socket),
            (_, libc::EINTR) => {}
            _ => return Err(libc::ENETDOWN),
        }
    }
}

/// Whether our user or root listens there: after the agent's end another user could take its name.
fn is_ours(socket: &Descriptor) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, those of one struct; the other has no arguments.
    let own = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            socket.0,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            &raw mut peer,
            &raw mut len,
        );
        libc::geteuid()
    };
    peer.uid == 0 || peer.uid == own
}

/// How long a program wants connect() to wait; `None`: as long as it takes.
fn patience_of(socket: c_int) -> Option<libc::timeval> {
    // SAFETY: integers only.
    let flags = unsafe { libc::fcntl(socket, libc::F_GETFL) };
    if flags & libc::O_NONBLOCK != 0 {
        return None;
    }
    timeout(socket, libc::SO_SNDTIMEO)
}

/// Room for one descriptor beside a message, aligned as its header must be.
type Control = [u64; 4];

/// What the kernel is told of that room: with more it would take several descriptors.
const ROOM_FOR_ONE: usize = {
    // SAFETY: it only computes.
    let len = unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as usize;
    assert!(len <= size_of::<Control>());
    len
};

fn send(connection: &Descriptor, bytes: &[u8], socket: Option<c_int>) -> Result<(), c_int> {
    let mut control: Control = [0; 4];
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all-zero is a valid msghdr: integers and null pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if let Some(socket) = socket {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the macros only compute; `control` has room for a header and a descriptor.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
            libc::CMSG_DATA(header)
                .cast::<c_int>()
                .write_unaligned(socket);
        }
    }
    // SAFETY: the message points at `bytes`, which are only read, and at `control`; both outlive it.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendmsg,
            connection.0,
            &raw const message,
            libc::MSG_NOSIGNAL,
        )
    };
    match sent {
        0.. => Ok(()),
        _ => Err(match errno() {
            libc::EPIPE | libc::ECONNRESET => libc::ENETDOWN,
            error => error,
        }),
    }
}

/// An answer and the descriptor beside it, which ends at exec: another thread may fork meanwhile. The
/// error is an errno; the end of an agent is the network that is down.
pub(crate) fn receive(socket: c_int) -> Result<(AgentAnswer, Option<Descriptor>), c_int> {
    let mut bytes = [0; AGENT_ANSWER_LEN];
    let mut control: Control = [0; 4];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all-zero is a valid msghdr: integers and null pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = ROOM_FOR_ONE as _;
    // SAFETY: the message points at `bytes` and `control`, which outlive the call.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            socket,
            &raw mut message,
            libc::MSG_CMSG_CLOEXEC,
        )
    };
    if received < 0 {
        return Err(match errno() {
            libc::ECONNRESET => libc::ENETDOWN,
            error => error,
        });
    }
    // SAFETY: the kernel filled the control buffer, which has room for one descriptor; it is ours.
    let descriptor = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_one = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        is_one.then(|| Descriptor(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned()))
    };
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        // The program has no room for one more.
        return Err(libc::EMFILE);
    }
    let answer = bytes.get(..received as usize).map(AgentAnswer::parse);
    match answer {
        Some(Ok(answer)) => Ok((answer, descriptor)),
        _ => Err(libc::ENETDOWN),
    }
}
