//! Records made by the kernel (kTLS): reads and writes of the socket are records on the wire.
//!
//! What is not data comes up by `recvmsg` with its record type beside it and goes to the session;
//! our own close_notify goes down the same way.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll, ready};

use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use towline_stcp::{CLOSE_NOTIFY, Established, KernelSession, SessionError};

use super::ktls;
use super::user::{end_of_writing, poll_send};

const SOL_TLS: libc::c_int = 282;
const TLS_SET_RECORD_TYPE: libc::c_int = 1;
const TLS_GET_RECORD_TYPE: libc::c_int = 2;
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;

/// Most bytes of one write, so that a key is counted before much is encrypted with it.
const MAX_WRITE: usize = 1 << 20;

/// The records of one stream.
pub(super) struct KernelRecords {
    session: KernelSession,
    /// An alert of which one byte came.
    alert: Vec<u8>,
    /// close_notify is sent.
    is_notified: bool,
    is_shut_down: bool,
}

impl KernelRecords {
    /// Hands the keys to the kernel.
    pub(super) fn install(established: Established, tcp: &TcpStream) -> io::Result<Self> {
        let Some((keys, schedule)) = established.into_kernel() else {
            return Err(io::Error::other("bytes beyond the handshake were taken"));
        };
        ktls::install(tcp.as_fd(), &keys)?;
        Ok(Self::new(KernelSession::new(&keys, schedule)))
    }

    fn new(session: KernelSession) -> Self {
        Self {
            session,
            alert: Vec::new(),
            is_notified: false,
            is_shut_down: false,
        }
    }

    pub(super) fn poll_read(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.session.is_read_closed() && out.remaining() > 0 {
            let room = out.initialize_unfilled();
            match ready!(poll_receive(tcp, cx, room))? {
                (0, _) => self.session.handle_eof()?,
                (len, APPLICATION_DATA) => {
                    self.session.on_data(len as u64)?;
                    out.advance(len);
                    return Poll::Ready(Ok(()));
                }
                // In pieces, if the caller's room is that small.
                (len, ALERT) => {
                    self.alert.extend_from_slice(&room[..len]);
                    if self.alert.len() >= 2 {
                        let alert = std::mem::take(&mut self.alert);
                        self.session.handle_record(ALERT, &alert)?;
                    }
                }
                (len, kind) => self.session.handle_record(kind, &room[..len])?,
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(data) = data.iter().find(|slice| !slice.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        if let Err(error) = self.session.before_write(0) {
            // A used-up key ends the stream in order; it is a new connection's turn.
            let _ = self.poll_shutdown(tcp, cx);
            return Poll::Ready(Err(error.into()));
        }
        let sent = ready!(poll_send(tcp, cx, &data[..data.len().min(MAX_WRITE)]))?;
        self.session.before_write(sent as u64)?;
        Poll::Ready(Ok(sent))
    }

    pub(super) fn poll_shutdown(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.session.on_write_closed();
        while !self.is_notified {
            match tcp.try_io(Interest::WRITABLE, || send_alert(tcp, &CLOSE_NOTIFY)) {
                Ok(()) => self.is_notified = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(tcp.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.is_shut_down = true;
        Poll::Ready(end_of_writing(tcp))
    }

    /// Whether the end of writing was declared.
    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }
}

/// The next bytes of one record, and its type.
fn poll_receive(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    room: &mut [u8],
) -> Poll<io::Result<(usize, u8)>> {
    loop {
        ready!(tcp.poll_read_ready(cx))?;
        match tcp.try_io(Interest::READABLE, || receive(tcp, room)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::EBADMSG) => {
                return Poll::Ready(Err(SessionError::BadRecord.into()));
            }
            result => return Poll::Ready(result),
        }
    }
}

/// Room for one control message with one byte, aligned as its header must be.
type Control = [u64; 4];

fn receive(tcp: &TcpStream, room: &mut [u8]) -> io::Result<(usize, u8)> {
    let mut control: Control = [0; 4];
    let mut vector = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // SAFETY: a `msghdr` of zeroes is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the message points at `room` and `control`, which outlive the call, with their lengths.
    let len = unsafe { libc::recvmsg(tcp.as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled the control buffer; the macro looks at its length.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok((len, APPLICATION_DATA));
    }
    // SAFETY: it is not null, so it points at a whole header in `control`; a TLS record type has
    // one byte of data behind it.
    let kind = unsafe {
        let is_type = (*header).cmsg_level == SOL_TLS && (*header).cmsg_type == TLS_GET_RECORD_TYPE;
        is_type.then(|| *libc::CMSG_DATA(header))
    };
    Ok((len, kind.unwrap_or(APPLICATION_DATA)))
}

fn send_alert(tcp: &TcpStream, alert: &[u8]) -> io::Result<()> {
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
    // SAFETY: the message points at `alert`, which is only read, and at `control`; both outlive it.
    let sent = unsafe { libc::sendmsg(tcp.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match sent {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
