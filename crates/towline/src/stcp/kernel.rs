//! What a socket whose sent records the kernel makes (kTLS) is asked for beside plain writes.
//!
//! Our own alerts go down by `sendmsg` with their record type beside them, and files by `sendfile`. The
//! kernel may hold back records that its TCP has no room for, and drops them at the end of the
//! connection; our last alert waits until there is room for all of them. What `sendfile` has left in
//! TCP's queue is pushed before anybody waits for room.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

const SOL_TLS: libc::c_int = 282;
const TLS_SET_RECORD_TYPE: libc::c_int = 1;
const ALERT: u8 = 21;

/// Least send buffer at the end of a stream: a third of it, where the socket is writable, has room
/// for all that the kernel may hold back, which is three records.
const LAST_SEND_BUFFER: usize = 192 * 1024;

/// How often a socket that has room refuses to take anything until that is for lack of memory; room that
/// was made between an attempt and the look at it is not.
const ATTEMPTS: usize = 3;

/// Room for one control message with one byte, aligned as its header must be.
type Control = [u64; 4];

/// Has the socket take some of what `send` offers it, which never waits. `None` if it has room and takes
/// nothing: then the kernel has no memory for the records, and will not tell when it has.
pub(super) fn try_send(
    tcp: &TcpStream,
    mut send: impl FnMut() -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    tcp.try_io(Interest::WRITABLE, || {
        for _ in 0..ATTEMPTS {
            match send() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    push(tcp)?;
                    if !is_writable(tcp)? {
                        return Err(error);
                    }
                }
                sent => return sent.map(Some),
            }
        }
        // No error: tokio would wait for an event before it lets anybody try again.
        Ok(None)
    })
}

/// Has TCP send what is in its queue. `sendfile` says with every piece but the last that more
/// follows, and kTLS says so to TCP with records that are whole. Those that are smaller than a segment
/// then wait in the queue for more, kTLS takes no more while they fill it, and nothing is under way
/// whose acknowledgement would make room: newer kernels get out of that by the timer that probes a closed
/// window, Linux 6.1 does not.
fn push(tcp: &TcpStream) -> io::Result<()> {
    let nodelay = tcp.nodelay()?;
    // Setting it pushes what is queued, whether it was set or not, and under TCP_CORK too.
    tcp.set_nodelay(true)?;
    match nodelay {
        true => Ok(()),
        false => tcp.set_nodelay(false),
    }
}

/// Ends our stream with an alert, once all that was written before it has room in the socket. It
/// never waits; as [`try_send`].
pub(super) fn try_send_last_alert(tcp: &TcpStream, alert: [u8; 2]) -> io::Result<Option<usize>> {
    try_send(tcp, || {
        let socket = SockRef::from(tcp);
        if socket.send_buffer_size()? < LAST_SEND_BUFFER {
            // The kernel doubles what it is given.
            socket.set_send_buffer_size(LAST_SEND_BUFFER / 2)?;
        }
        match is_writable(tcp)? {
            true => send_alert(tcp, alert),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    })
}

/// Whether a third of the send buffer is free. If not, the kernel will tell when it is.
fn is_writable(tcp: &impl AsRawFd) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd: tcp.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: the one element outlives the call, which does not wait.
    match unsafe { libc::poll(&raw mut poll, 1, 0) } {
        // An error is no room: whoever tries is told of it.
        0.. => Ok(poll.revents & libc::POLLOUT != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a piece of the file.
pub(super) fn send_file(
    tcp: &TcpStream,
    file: &File,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| ErrorKind::InvalidInput)?;
    let (to, from) = (tcp.as_raw_fd(), file.as_raw_fd());
    // SAFETY: both descriptors are open as long as they are borrowed; the offset outlives the call.
    let sent = unsafe { libc::sendfile(to, from, &raw mut offset, len) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn send_alert(tcp: &impl AsRawFd, alert: [u8; 2]) -> io::Result<usize> {
    let mut control: Control = [0; 4];
    let mut vector = libc::iovec {
        iov_base: alert.as_ptr().cast_mut().cast(),
        iov_len: alert.len(),
    };
    // SAFETY: a `msghdr` of zeroes is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the macros only compute; `control` has room for a header and a byte.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(1) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = SOL_TLS;
        (*header).cmsg_type = TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(header) = ALERT;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message points at `alert`, which is only read, and at `control`; both outlive it.
    let sent = unsafe { libc::sendmsg(tcp.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
