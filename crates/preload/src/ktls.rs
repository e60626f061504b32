//! Connections whose records the kernel makes (kTLS): the ends of their streams.
//!
//! A call that reads gets data as ever; before any other record it fails with EIO until somebody takes
//! that. What the library has to remember, that a stream has ended in order, it keeps in the socket.

use core::ffi::c_int;
use core::mem::{size_of, zeroed};

use libc::ssize_t;
use towline_wire::Operation;

use crate::agent::{NONE, Question, ask};
use crate::environment::Agent;
use crate::system::{errno, fail, option};

const TCP_ULP: c_int = 31;
/// An option of listening sockets, TCP_SAVE_SYN, with three values. On a connected one it does nothing
/// and says what has become of it; kTLS of the program's own is left alone.
const MARK: c_int = 27;
/// The agent has made it.
const OURS: c_int = 1;
/// No more is to be read of it.
const ENDED: c_int = 2;

const SOL_TLS: c_int = 282;
const TLS_GET_RECORD_TYPE: c_int = 2;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const NEW_SESSION_TICKET: u8 = 4;

/// A record is received whole: its first bytes, and the others over each other.
const HEAD: usize = 64;
const PIECE: usize = 1024;
const PIECES: usize = 16;

/// What a call that reads has come to.
pub(crate) enum Reading {
    /// It is as the kernel says.
    AsSaid,
    /// The call is to be made again.
    Again,
    /// The stream has ended, in order.
    End,
    /// An errno.
    Failed(c_int),
}

/// Whether the kernel makes the records of this socket with the agent's keys. Leaves errno as it is.
pub(crate) fn is_keyed(socket: c_int) -> bool {
    if !crate::agent().is_some_and(|agent| agent.has_keyed) {
        return false;
    }
    let before = errno();
    let mark = option(socket, libc::IPPROTO_TCP, MARK);
    let is_keyed = matches!(mark, Some(OURS | ENDED))
        && option(socket, libc::IPPROTO_TCP, TCP_ULP) == Some(c_int::from_ne_bytes(*b"tls\0"));
    fail(before);
    is_keyed
}

/// What setting this option of such a socket says: it has its keys. Whoever hears it makes the records
/// of a TLS of its own itself. The numbers are those of Linux, which would take new keys since 6.14.
pub(crate) fn refusal(level: c_int, name: c_int) -> Option<c_int> {
    match (level, name) {
        (libc::IPPROTO_TCP, TCP_ULP) => Some(libc::EEXIST),
        (libc::IPPROTO_TCP, MARK) => Some(libc::EINVAL),
        (SOL_TLS, _) => Some(libc::EBUSY),
        _ => None,
    }
}

/// What to make of what a call said that had room for data.
pub(crate) fn judge(socket: c_int, said: ssize_t) -> Reading {
    match said {
        // The end of TCP's stream, and nobody said that it is TLS's.
        0 if is_keyed(socket) && option(socket, libc::IPPROTO_TCP, MARK) != Some(ENDED) => {
            Reading::Failed(libc::ECONNRESET)
        }
        -1 => match errno() {
            libc::EIO if is_keyed(socket) => take_record(socket),
            error => explain(socket, error).map_or(Reading::AsSaid, Reading::Failed),
        },
        _ => Reading::AsSaid,
    }
}

/// The error of a call that reads, if such a socket has no such error.
fn explain(socket: c_int, error: c_int) -> Option<c_int> {
    match error {
        // A reset after TCP's end; no call that reads says so.
        libc::EPIPE if is_keyed(socket) => Some(libc::ECONNRESET),
        // A record that could not be opened.
        libc::EBADMSG if is_keyed(socket) => Some(libc::EPROTO),
        // No record at all. The kernel says so once, and then that nothing has come.
        libc::EMSGSIZE | libc::EINVAL if is_keyed(socket) => {
            native_shutdown(socket, libc::SHUT_RD);
            Some(libc::EPROTO)
        }
        _ => None,
    }
}

/// Takes the record before which a call has failed.
fn take_record(socket: c_int) -> Reading {
    let mut head = [u8::MAX; HEAD];
    let kind = match receive(socket, &mut head) {
        Ok(kind) => kind,
        // Another thread has taken it.
        Err(libc::EAGAIN | libc::EINTR) => return Reading::Again,
        Err(error) => return Reading::Failed(explain(socket, error).unwrap_or(error)),
    };
    match (kind, head) {
        (ALERT, [_, CLOSE_NOTIFY, ..]) => {
            end_reading(socket);
            Reading::End
        }
        (ALERT, [_, USER_CANCELED, ..]) | (HANDSHAKE, [NEW_SESSION_TICKET, ..]) => Reading::Again,
        (ALERT, _) => Reading::Failed(libc::ECONNRESET),
        // New keys, which the kernel could not be told of.
        (HANDSHAKE, _) => Reading::Failed(libc::EPROTO),
        // Data after all: two threads read at once. It is lost, so the stream is.
        _ => {
            native_shutdown(socket, libc::SHUT_RD);
            Reading::Failed(libc::EIO)
        }
    }
}

/// The next record: its type, and how it begins.
fn receive(socket: c_int, head: &mut [u8; HEAD]) -> Result<u8, c_int> {
    let mut rest = [0_u8; PIECE];
    let mut control = [0_u64; 4];
    let piece = libc::iovec {
        iov_base: rest.as_mut_ptr().cast(),
        iov_len: PIECE,
    };
    let mut vectors = [piece; PIECES + 1];
    vectors[0] = libc::iovec {
        iov_base: head.as_mut_ptr().cast(),
        iov_len: HEAD,
    };
    // SAFETY: all-zero is a valid msghdr: integers and null pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<[u64; 4]>() as _;
    // SAFETY: the message points at `head`, `rest` and `control`, which outlive the call, with their
    // lengths.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            socket,
            &raw mut message,
            libc::MSG_DONTWAIT,
        )
    };
    if received < 0 {
        return Err(errno());
    }
    // SAFETY: the kernel filled the control buffer; the macro looks at its length, and a TLS record
    // type has one byte of data behind its header.
    let kind = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_kind = !header.is_null()
            && (*header).cmsg_level == SOL_TLS
            && (*header).cmsg_type == TLS_GET_RECORD_TYPE;
        is_kind.then(|| *libc::CMSG_DATA(header))
    };
    match (kind, received) {
        (Some(kind), 1..) => Ok(kind),
        // A FIN, which the call itself meets.
        _ => Err(libc::EAGAIN),
    }
}

/// As shutdown(2). The agent sends close_notify first, and waits for room for it if need be.
pub(crate) fn shutdown(agent: &Agent, socket: c_int, how: c_int) -> Result<(), c_int> {
    let reads = how == libc::SHUT_RD || how == libc::SHUT_RDWR;
    let writes = how == libc::SHUT_WR || how == libc::SHUT_RDWR;
    if writes {
        let question = Question {
            operation: Operation::Shutdown,
            socket: Some(socket),
            local: NONE,
            peer: NONE,
        };
        // Without an agent the peer takes it for a cut.
        if ask(agent, &question).is_err() && native_shutdown(socket, libc::SHUT_WR) != 0 {
            return Err(errno());
        }
    }
    if reads {
        end_reading(socket);
    }
    match reads || writes {
        true => Ok(()),
        false => Err(libc::EINVAL),
    }
}

/// From now on every call that reads says that the stream has ended.
fn end_reading(socket: c_int) {
    let ended = ENDED;
    // SAFETY: pointer and length are those of one integer, which is only read.
    unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            socket,
            libc::IPPROTO_TCP,
            MARK,
            &raw const ended,
            size_of::<c_int>(),
        );
    }
    native_shutdown(socket, libc::SHUT_RD);
}

fn native_shutdown(socket: c_int, how: c_int) -> libc::c_long {
    // SAFETY: integers only.
    unsafe { libc::syscall(libc::SYS_shutdown, socket, how) }
}
