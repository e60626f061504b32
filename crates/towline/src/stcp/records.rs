//! The records of a stream: a session between a socket and the application.
//!
//! Reading: one receive, then as many records as the caller has room for, opened straight into
//! its buffer. Writing: sealed and sent at once in one call, up to 80 KiB. Buffers belong to the
//! thread and go back before a stream waits, so a quiet stream holds none.
//!
//! Where the kernel has kTLS it is given the key to send with at the first file, or at the start by
//! who asks for that; from then on what is written to the socket is data. Reading stays as it is.
//!
//! Output that the socket had no room for leaves with whatever is polled next, reading too: a task
//! that only waits for the answer to its last write must get that write out. Reader and writer may
//! be two tasks, and a socket remembers one waker for writing; [`Waiting`] makes it wake both.

use std::cell::RefCell;
use std::fs::File;
#[cfg(target_os = "linux")]
use std::future::Future as _;
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::net::Shutdown;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
#[cfg(target_os = "linux")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;
use std::task::{Context, Poll, Wake, Waker, ready};
#[cfg(target_os = "linux")]
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use towline_stcp::{Buffers, Read, Records, Session};

#[cfg(target_os = "linux")]
use super::kernel;

thread_local! {
    /// Of all streams of this thread.
    pub(super) static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };

    /// For clear bytes on their way through.
    pub(super) static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; ROOM].into());
}

/// What is moved at once: four records, and the byte more that opening one takes.
pub(super) const ROOM: usize = 64 * 1024 + 64;

/// Most bytes of one write to a socket whose records the kernel makes, so that a key is counted before
/// much is encrypted with it.
#[cfg(target_os = "linux")]
const MAX_KERNEL_WRITE: usize = 1 << 20;

/// How soon a sender tries again for which the kernel had no memory.
#[cfg(target_os = "linux")]
const PAUSE: Duration = Duration::from_millis(10);

/// The record layer of one stream. Every call is given the stream's socket.
pub(super) struct RecordLayer {
    session: Session,
    waiting: Waiting,
    /// The kernel had no memory.
    #[cfg(target_os = "linux")]
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Whose clock that goes by, whoever polls the stream.
    #[cfg(target_os = "linux")]
    runtime: tokio::runtime::Handle,
    /// The socket is ready for the key to send with.
    takes_key: bool,
    /// The end was declared: what is sent is the last.
    is_ending: bool,
    /// FIN is sent.
    is_shut_down: bool,
}

impl RecordLayer {
    /// Sends at once what the handshake left, as far as it goes.
    pub(super) fn new(session: Session, tcp: &TcpStream, made_by: Records) -> io::Result<Self> {
        let mut records = Self {
            session,
            waiting: Waiting::default(),
            #[cfg(target_os = "linux")]
            pause: None,
            #[cfg(target_os = "linux")]
            runtime: tokio::runtime::Handle::current(),
            // While it still can be: not any more when the peer has ended its stream.
            takes_key: made_by != Records::UserSpace && is_made_ready(tcp),
            is_ending: false,
            is_shut_down: false,
        };
        records.send(tcp)?;
        if made_by == Records::Kernel {
            records.hand_over(tcp)?;
        }
        BUFFERS.with_borrow_mut(|buffers| records.session.trim(buffers));
        Ok(records)
    }

    /// Has the kernel send from here on, if it takes the key. False: output must be sent before.
    fn hand_over(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        if self.takes_key {
            let Some((key, sequence)) = self.session.key_for_kernel()? else {
                return Ok(false);
            };
            self.takes_key = false;
            match super::ktls::set_transmit(tcp.as_fd(), key, sequence) {
                Ok(()) => self.session.on_kernel_has_key(),
                // Such as a cipher that it does not know; bytes pass through as before.
                Err(error) => tracing::debug!(%error, "the kernel does not take the key"),
            }
        }
        Ok(true)
    }

    /// Whether the kernel makes the records that are sent.
    pub(super) fn is_kernel_sending(&self) -> bool {
        self.session.is_kernel_sending()
    }

    pub(super) fn poll_read(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        BUFFERS.with_borrow_mut(|buffers| match self.poll_receive(tcp, cx, out, buffers) {
            Poll::Ready(result) => {
                // An answer to the peer or an alert. What goes wrong here the writer is told.
                let _ = self.send(tcp);
                self.session.release(buffers);
                Poll::Ready(result)
            }
            Poll::Pending => {
                let _ = self.poll_send(tcp, Side::Reader, cx);
                self.session.trim(buffers);
                Poll::Pending
            }
        })
    }

    fn poll_receive(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
        buffers: &mut Buffers,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.session.read(out.initialize_unfilled())? {
                Read::Data(len) => {
                    out.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Read::End => return Poll::Ready(Ok(())),
                Read::Wanting => {}
            }
            match ready!(poll_receive(tcp, cx, self.session.receive_buffer(buffers)))? {
                0 => self.session.handle_eof()?,
                len => self.session.on_received(len),
            }
        }
    }

    pub(super) fn poll_write(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        #[cfg(target_os = "linux")]
        if self.is_kernel_sending() {
            let Some(data) = data.iter().find(|slice| !slice.is_empty()) else {
                return Poll::Ready(Ok(0));
            };
            let data = &data[..data.len().min(MAX_KERNEL_WRITE)];
            return self.poll_by_kernel(tcp, cx, || {
                SockRef::from(tcp).send_with_flags(data, libc::MSG_NOSIGNAL)
            });
        }
        // At most one call's records wait for the socket.
        ready!(self.poll_send(tcp, Side::Writer, cx))?;
        BUFFERS.with_borrow_mut(|buffers| {
            let mut taken = 0;
            for slice in data {
                let len = self.session.write(slice, buffers)?;
                taken += len;
                if len < slice.len() {
                    break;
                }
            }
            self.send(tcp)?;
            self.session.release(buffers);
            Poll::Ready(Ok(taken))
        })
    }

    /// What the kernel makes records of: `send` has the socket take some of it.
    #[cfg(target_os = "linux")]
    fn poll_by_kernel(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        mut send: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            self.session.may_write()?;
            match kernel::try_send(tcp, &mut send) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waker = self.waiting.waker(Side::Writer, cx.waker());
                    ready!(tcp.poll_write_ready(&mut Context::from_waker(&waker)))?;
                }
                Ok(None) => return self.poll_again(Side::Writer, cx),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Some(sent)) => {
                    self.session.on_written(sent as u64);
                    self.pause = None;
                    self.waiting.forget(Side::Writer);
                    return Poll::Ready(Ok(sent));
                }
            }
        }
    }

    /// A piece of the file: from the page cache to the socket where the kernel makes the records, else
    /// read and written. 0 at the file's end.
    pub(super) fn poll_send_file(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<io::Result<usize>> {
        #[cfg(target_os = "linux")]
        {
            while !self.hand_over(tcp)? {
                ready!(self.poll_send(tcp, Side::Writer, cx))?;
            }
            if self.is_kernel_sending() {
                let len = len.min(MAX_KERNEL_WRITE as u64) as usize;
                let send = || kernel::send_file(tcp, file, offset, len);
                return self.poll_by_kernel(tcp, cx, send);
            }
        }
        // Before the file is read: what is read then is taken to the last byte.
        ready!(self.poll_send(tcp, Side::Writer, cx))?;
        SCRATCH.with_borrow_mut(|scratch| {
            let most = scratch
                .len()
                .min(usize::try_from(len).unwrap_or(usize::MAX));
            let len = loop {
                match file.read_at(&mut scratch[..most], offset) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    len => break len?,
                }
            };
            self.poll_write(tcp, cx, &[IoSlice::new(&scratch[..len])])
        })
    }

    pub(super) fn poll_flush(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_send(tcp, Side::Writer, cx))?;
        BUFFERS.with_borrow_mut(|buffers| self.session.release(buffers));
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_shutdown(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let is_whole = self.session.close_write();
        self.is_ending = true;
        ready!(self.poll_flush(tcp, cx))?;
        self.is_shut_down = true;
        self.take_in(tcp);
        end_of_writing(tcp)?;
        Poll::Ready(is_whole.map_err(io::Error::from))
    }

    /// Takes in what has come: a socket closed over unread bytes, such as session tickets, is reset
    /// by the kernel, and what it had still to send is lost.
    fn take_in(&mut self, tcp: &TcpStream) {
        BUFFERS.with_borrow_mut(|buffers| {
            let room = self.session.receive_buffer(buffers);
            // The next read tells what is wrong, if anything is.
            if !room.is_empty()
                && let Ok(len) = tcp.try_read(room)
            {
                self.session.on_received(len);
            }
            self.session.trim(buffers);
        });
    }

    /// The session alone, for who drives it otherwise.
    pub(super) fn into_session(self) -> Session {
        self.session
    }

    /// Whether the end of writing was declared.
    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// Sends what the socket takes now.
    fn send(&mut self, tcp: &TcpStream) -> io::Result<Sent> {
        while !self.session.output().is_empty() {
            match try_send(tcp, self.session.output(), self.is_ending) {
                Ok(len) => self.session.on_sent(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Sent::NoRoom),
                Err(error) => return Err(error),
            }
        }
        #[cfg(target_os = "linux")]
        if let Some(alert) = self.session.kernel_alert() {
            match kernel::try_send_last_alert(tcp, alert) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Sent::NoRoom),
                Err(error) => return Err(error),
                Ok(None) => return Ok(Sent::NoMemory),
                Ok(Some(_)) => {}
            }
            self.session.on_kernel_alert_sent();
            end_of_writing(tcp)?;
        }
        Ok(Sent::All)
    }

    /// Has `side` try again soon, where nobody will tell when.
    #[cfg(target_os = "linux")]
    fn poll_again<T>(&mut self, side: Side, cx: &Context<'_>) -> Poll<T> {
        let waker = self.waiting.waker(side, cx.waker());
        let entered = self.runtime.enter();
        let mut pause = Box::pin(tokio::time::sleep(PAUSE));
        drop(entered);
        if pause
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            waker.wake();
        }
        self.pause = Some(pause);
        Poll::Pending
    }

    /// Sends everything, or waits for the socket on behalf of `side`.
    fn poll_send(
        &mut self,
        tcp: &TcpStream,
        side: Side,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.send(tcp)? {
                Sent::All => {
                    self.waiting.forget(side);
                    return Poll::Ready(Ok(()));
                }
                #[cfg(target_os = "linux")]
                Sent::NoMemory => return self.poll_again(side, cx),
                Sent::NoRoom => {}
            }
            let waker = self.waiting.waker(side, cx.waker());
            ready!(tcp.poll_write_ready(&mut Context::from_waker(&waker)))?;
        }
    }
}

/// What has become of what was to be sent.
enum Sent {
    All,
    /// The socket tells when it has room again.
    NoRoom,
    /// Nobody tells when the kernel has memory again.
    #[cfg(target_os = "linux")]
    NoMemory,
}

/// Puts kTLS over the socket's TCP, if this kernel has it and takes the connection. Until it has a key,
/// bytes pass through.
fn is_made_ready(tcp: &TcpStream) -> bool {
    #[cfg(target_os = "linux")]
    {
        static HAS_KTLS: OnceLock<bool> = OnceLock::new();
        if !*HAS_KTLS.get_or_init(|| super::ktls::is_available().is_ok()) {
            return false;
        }
        let attached = super::ktls::attach(tcp.as_fd());
        if let Err(error) = &attached {
            tracing::debug!(%error, "the kernel does not take this connection");
        }
        attached.is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Receives what there is. A short receive empties the socket, which saves asking once more.
pub(super) fn poll_receive(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    room: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(tcp.poll_read_ready(cx))?;
        let mut received = 0;
        let result = tcp.try_io(Interest::READABLE, || {
            received = (&*SockRef::from(tcp)).read(room)?;
            match received {
                len if len == 0 || len == room.len() => Ok(()),
                // Has tokio wait for the next event; whatever comes from now on is one.
                _ => Err(ErrorKind::WouldBlock.into()),
            }
        });
        match result {
            Ok(()) => return Poll::Ready(Ok(received)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if received > 0 {
                    return Poll::Ready(Ok(received));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Sends what fits, and waits where nothing does. As [`try_send`].
pub(super) fn poll_send(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    bytes: &[u8],
    is_last: bool,
) -> Poll<io::Result<usize>> {
    loop {
        match try_send(tcp, bytes, is_last) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
        ready!(tcp.poll_write_ready(cx))?;
    }
}

/// Sends what fits. A short send fills the socket. What `is_last` leaves with the FIN, which must
/// follow at once: between two packets a peer could end its side, and would be left with TIME_WAIT.
pub(super) fn try_send(tcp: &TcpStream, bytes: &[u8], is_last: bool) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    let flags = libc::MSG_NOSIGNAL | if is_last { libc::MSG_MORE } else { 0 };
    #[cfg(not(target_os = "linux"))]
    let (flags, _) = (libc::MSG_NOSIGNAL, is_last);
    let mut sent = 0;
    let result = tcp.try_io(Interest::WRITABLE, || {
        sent = SockRef::from(tcp).send_with_flags(bytes, flags)?;
        match sent {
            len if len == bytes.len() => Ok(()),
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    });
    match result {
        Err(error) if sent == 0 => Err(error),
        _ => Ok(sent),
    }
}

/// FIN. A connection that is gone needs none.
pub(super) fn end_of_writing(tcp: &TcpStream) -> io::Result<()> {
    match SockRef::from(tcp).shutdown(Shutdown::Write) {
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}

#[derive(Clone, Copy)]
enum Side {
    Reader,
    Writer,
}

/// Which tasks wait for the socket to take more.
#[derive(Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Waiting {
    /// The waker to leave with the socket: of everybody who waits, `side` among them.
    fn waker(&mut self, side: Side, waker: &Waker) -> Waker {
        let (own, other) = match side {
            Side::Reader => (&mut self.reader, &self.writer),
            Side::Writer => (&mut self.writer, &self.reader),
        };
        own.get_or_insert_with(|| waker.clone()).clone_from(waker);
        match other {
            Some(other) if !other.will_wake(waker) => {
                Waker::from(Arc::new(Both(waker.clone(), other.clone())))
            }
            _ => waker.clone(),
        }
    }

    fn forget(&mut self, side: Side) {
        match side {
            Side::Reader => self.reader = None,
            Side::Writer => self.writer = None,
        }
    }
}

struct Both(Waker, Waker);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
