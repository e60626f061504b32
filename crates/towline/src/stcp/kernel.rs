//! Records made by the kernel (kTLS): reads and writes of the socket are records on the wire.
//!
//! What is not data comes up by `recvmsg` with its record type beside it and goes to the session;
//! our own alerts go down the same way. The kernel may hold back records that its TCP has no room
//! for, and drops them at the end of the connection; our close_notify waits until there is room for
//! all of them.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use towline_stcp::{CLOSE_NOTIFY, Established, KernelSession, MAX_PLAINTEXT, SessionError};

use super::ktls;
use super::user::{end_of_writing, poll_send};

const SOL_TLS: libc::c_int = 282;
const TLS_SET_RECORD_TYPE: libc::c_int = 1;
const TLS_GET_RECORD_TYPE: libc::c_int = 2;
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;

/// Most bytes of one write, so that a key is counted before much is encrypted with it.
const MAX_WRITE: usize = 1 << 20;

/// Least send buffer at the end of a stream: a third of it, where the socket is writable, has room
/// for all that the kernel may hold back, which is three records.
const LAST_SEND_BUFFER: usize = 192 * 1024;

/// The records of one stream.
pub(super) struct KernelRecords {
    session: KernelSession,
    /// An alert of which one byte came.
    alert: Vec<u8>,
    /// Taken in before the application read it.
    early: Vec<u8>,
    /// The last alert is sent: close_notify, or what went wrong.
    is_notified: bool,
    is_shut_down: bool,
}

impl KernelRecords {
    /// Hands the keys to the kernel. Gives them back if it does not take them.
    pub(super) fn install(
        established: Established,
        tcp: &TcpStream,
    ) -> io::Result<Result<Self, Established>> {
        let Some(keys) = established.kernel_keys() else {
            return Err(io::Error::other("bytes beyond the handshake were taken"));
        };
        // Such as a connection that the peer has closed for its part already.
        if let Err(error) = ktls::install_transmit(tcp.as_fd(), keys) {
            tracing::debug!(%error, "the kernel does not take this connection");
            return Ok(Err(established));
        }
        ktls::install_receive(tcp.as_fd(), keys)?;
        Ok(Ok(Self::new(established.into_kernel_session())))
    }

    fn new(session: KernelSession) -> Self {
        Self {
            session,
            alert: Vec::new(),
            early: Vec::new(),
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
        if !self.early.is_empty() {
            let len = self.early.len().min(out.remaining());
            out.put_slice(&self.early[..len]);
            self.early.drain(..len);
            return Poll::Ready(Ok(()));
        }
        self.session.alive()?;
        while !self.session.is_read_closed() && out.remaining() > 0 {
            let room = out.initialize_unfilled();
            let received = ready!(poll_receive(tcp, cx, room));
            let piece = received.map_err(|error| self.explain(tcp, error))?;
            if piece.len == 0 {
                self.session.handle_eof()?;
            }
            match self.on_received(&piece, &room[..piece.len]) {
                Ok(0) => {}
                Ok(len) => {
                    out.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) => {
                    self.say_why(tcp);
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// A piece of a record; how much of it is data for the application.
    fn on_received(&mut self, piece: &Piece, bytes: &[u8]) -> Result<usize, SessionError> {
        match piece.kind {
            APPLICATION_DATA => {
                self.session.on_data(bytes.len() as u64)?;
                return Ok(bytes.len());
            }
            // In pieces, if the caller's room is that small.
            ALERT => {
                self.alert.extend_from_slice(bytes);
                if self.alert.len() >= 2 {
                    let alert = std::mem::take(&mut self.alert);
                    self.session.handle_record(ALERT, &alert)?;
                }
            }
            kind => self.session.handle_record(kind, bytes)?,
        }
        if piece.is_last {
            self.session.on_record_without_data()?;
        }
        Ok(0)
    }

    /// What the kernel says of a record that it could not open, in our words.
    fn explain(&mut self, tcp: &TcpStream, error: io::Error) -> io::Error {
        if error.raw_os_error() != Some(libc::EBADMSG) {
            return error;
        }
        let error = self.session.on_bad_record();
        self.say_why(tcp);
        error.into()
    }

    /// Tells the peer what went wrong and ends our stream, as far as the socket takes it at once.
    fn say_why(&mut self, tcp: &TcpStream) {
        if let Some(alert) = self.session.last_words() {
            self.session.on_write_closed();
            self.is_notified = true;
            // The kernel's own error would stand before every call from now on.
            let _ = tcp.take_error();
            let _ = send_alert(tcp, alert);
            let _ = end_of_writing(tcp);
        }
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
        self.may_write(tcp, cx)?;
        let sent = ready!(poll_send(tcp, cx, &data[..data.len().min(MAX_WRITE)]));
        self.on_written(tcp, sent)
    }

    /// A piece of the file, from the page cache to the socket; 0 at the file's end.
    pub(super) fn poll_send_file(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<io::Result<usize>> {
        self.may_write(tcp, cx)?;
        let len = len.min(MAX_WRITE as u64) as usize;
        loop {
            match tcp.try_io(Interest::WRITABLE, || send_file(tcp, file, offset, len)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(tcp.poll_write_ready(cx))?;
                }
                sent => return self.on_written(tcp, sent),
            }
        }
    }

    fn may_write(&mut self, tcp: &TcpStream, cx: &mut Context<'_>) -> Result<(), SessionError> {
        let may = self.session.may_write();
        if let Err(SessionError::KeyExhausted) = may {
            // A used-up key ends the stream in order; it is a new connection's turn.
            let _ = self.poll_shutdown(tcp, cx);
        }
        may
    }

    fn on_written(&mut self, tcp: &TcpStream, sent: io::Result<usize>) -> Poll<io::Result<usize>> {
        let sent = sent.map_err(|error| self.explain(tcp, error))?;
        self.session.on_written(sent as u64);
        Poll::Ready(Ok(sent))
    }

    pub(super) fn poll_shutdown(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.session.on_write_closed();
        while !self.is_notified {
            match tcp.try_io(Interest::WRITABLE, || send_close_notify(tcp)) {
                Ok(()) => self.is_notified = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(tcp.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(self.explain(tcp, error))),
            }
        }
        if !std::mem::replace(&mut self.is_shut_down, true) {
            self.take_in(tcp);
        }
        Poll::Ready(end_of_writing(tcp))
    }

    /// Takes in what has come: a socket closed over unread bytes, such as session tickets, is reset
    /// by the kernel, and what it had still to send is lost.
    fn take_in(&mut self, tcp: &TcpStream) {
        let mut room = vec![0; MAX_PLAINTEXT];
        while self.early.is_empty() && !self.session.is_read_closed() {
            let received = tcp.try_io(Interest::READABLE, || receive(tcp, &mut room));
            // The next read tells what is wrong, if anything is.
            let Some(piece) = received.ok().filter(|piece| piece.len > 0) else {
                return;
            };
            match self.on_received(&piece, &room[..piece.len]) {
                Ok(len) => self.early.extend_from_slice(&room[..len]),
                Err(_) => return,
            }
        }
    }

    /// Whether the end of writing was declared.
    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }
}

/// [`receive`], when there is something.
fn poll_receive(tcp: &TcpStream, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<Piece>> {
    loop {
        ready!(tcp.poll_read_ready(cx))?;
        match tcp.try_io(Interest::READABLE, || receive(tcp, room)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // No record at all, as far as its header goes.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL)) => {
                return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EBADMSG)));
            }
            result => return Poll::Ready(result),
        }
    }
}

/// Room for one control message with one byte, aligned as its header must be.
type Control = [u64; 4];

/// What was received at once: bytes of one record, or data of several.
struct Piece {
    /// How many; 0 at the end of the stream.
    len: usize,
    /// The record's type.
    kind: u8,
    /// Whether the record ends with it.
    is_last: bool,
}

/// The next bytes of one record. It never waits.
fn receive(tcp: &impl AsRawFd, room: &mut [u8]) -> io::Result<Piece> {
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
    let len = unsafe { libc::recvmsg(tcp.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled the control buffer; the macro looks at its length.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let is_last = message.msg_flags & libc::MSG_EOR != 0;
    if header.is_null() {
        let kind = APPLICATION_DATA;
        return Ok(Piece { len, kind, is_last });
    }
    // SAFETY: it is not null, so it points at a whole header in `control`; a TLS record type has
    // one byte of data behind it.
    let kind = unsafe {
        let is_type = (*header).cmsg_level == SOL_TLS && (*header).cmsg_type == TLS_GET_RECORD_TYPE;
        is_type.then(|| *libc::CMSG_DATA(header))
    };
    let kind = kind.unwrap_or(APPLICATION_DATA);
    Ok(Piece { len, kind, is_last })
}

/// Ends our stream once all that was written before it has room in the socket. It never waits.
fn send_close_notify(tcp: &(impl AsFd + AsRawFd)) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    if socket.send_buffer_size()? < LAST_SEND_BUFFER {
        // The kernel doubles what it is given.
        socket.set_send_buffer_size(LAST_SEND_BUFFER / 2)?;
    }
    match is_writable(tcp)? {
        true => send_alert(tcp, CLOSE_NOTIFY),
        false => Err(ErrorKind::WouldBlock.into()),
    }
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
        0.. => Ok(poll.revents != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

fn send_file(tcp: &TcpStream, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| ErrorKind::InvalidInput)?;
    let (to, from) = (tcp.as_raw_fd(), file.as_raw_fd());
    // SAFETY: both descriptors are open as long as they are borrowed; the offset outlives the call.
    let sent = unsafe { libc::sendfile(to, from, &raw mut offset, len) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn send_alert(tcp: &impl AsRawFd, alert: [u8; 2]) -> io::Result<()> {
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
    match sent {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
