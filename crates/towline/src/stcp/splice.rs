//! Joins a clear TCP connection and a secure one: what a proxy does.
//!
//! One task, both ways, no allocation while bytes flow. A side that does not read stops the other:
//! at most one batch of records waits in each direction. Ends are carried through as what they are:
//! FIN and close_notify stand for each other, and a cut is a RST on the other side.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use towline_stcp::{Buffers, Read, Session};

use super::records::{BUFFERS, ROOM, SCRATCH, end_of_writing, poll_receive, poll_send, try_send};
use super::stream::Stream;

/// How long the clear side may be silent before it is asked whether it is there. A program that has
/// closed is forgotten by its kernel after a minute (tcp_fin_timeout), and a peer that goes on must
/// not hold us longer.
const SILENCE: Duration = Duration::from_secs(10);

/// What went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spliced {
    /// Bytes from the clear side to the secure one.
    pub sealed: u64,
    /// Bytes from the secure side to the clear one.
    pub opened: u64,
}

/// A splice that did not end in order: both connections were reset.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SpliceError {
    /// What went through before.
    pub spliced: Spliced,
    /// Why it ended.
    #[source]
    pub error: io::Error,
}

/// Copies until both directions have ended in order.
///
/// # Errors
/// Either connection was cut off or broke; the other one is reset.
pub async fn splice(clear: TcpStream, secure: Stream) -> Result<Spliced, SpliceError> {
    let often = TcpKeepalive::new()
        .with_time(SILENCE)
        .with_interval(SILENCE);
    // One that is gone already says so at the first read.
    let _ = SockRef::from(&clear).set_tcp_keepalive(&often);
    let (tcp, records) = match secure.into_parts() {
        Ok(parts) => parts,
        Err(secure) => return copy(clear, secure).await,
    };
    let mut splice = Splice {
        clear: &clear,
        secure: &tcp,
        session: records.into_session(),
        unsent: BytesMut::new(),
        clear_ended: false,
        sealed_all: false,
        secure_ended: false,
        opened_all: false,
        spliced: Spliced::default(),
    };
    let result = tokio::select! {
        biased;
        result = poll_fn(|cx| splice.poll(cx)) => result,
        error = broken(&clear) => Err(error),
    };
    let spliced = splice.spliced;
    result.map(|()| spliced).map_err(|error| {
        reset(&clear);
        reset(&tcp);
        SpliceError { spliced, error }
    })
}

/// The same where the kernel makes the records that are sent.
async fn copy(clear: TcpStream, secure: Stream) -> Result<Spliced, SpliceError> {
    let (mut near, mut secure) = (Counted(Clear(&clear), 0), Counted(secure, 0));
    let result = tokio::select! {
        biased;
        result = copy_bidirectional_with_sizes(&mut near, &mut secure, ROOM, ROOM) => result,
        error = broken(&clear) => Err(error),
    };
    let spliced = Spliced {
        sealed: secure.1,
        opened: near.1,
    };
    result.map(|_| spliced).map_err(|error| {
        reset(&clear);
        reset(secure.0.tcp());
        SpliceError { spliced, error }
    })
}

/// The clear side, while somebody else watches it.
struct Clear<'s>(&'s TcpStream);

impl AsyncRead for Clear<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let received = ready!(poll_receive(self.0, cx, buffer.initialize_unfilled()))?;
        buffer.advance(received);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Clear<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        poll_send(self.0, cx, data, false)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(end_of_writing(self.0))
    }
}

/// A stream, and how much was written to it.
struct Counted<S>(S, u64);

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let len = ready!(Pin::new(&mut self.0).poll_write(cx, data))?;
        self.1 += len as u64;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// When a connection is gone: one that has ended its stream tells it to nobody who reads.
async fn broken(tcp: &TcpStream) -> io::Error {
    match tcp.ready(Interest::ERROR).await {
        Ok(_) => ErrorKind::ConnectionReset.into(),
        Err(error) => error,
    }
}

/// The next close is a RST.
fn reset(tcp: &TcpStream) {
    // A socket that is gone is reset enough.
    let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
}

struct Splice<'s> {
    clear: &'s TcpStream,
    secure: &'s TcpStream,
    session: Session,
    /// Opened, and not taken by the clear side yet.
    unsent: BytesMut,
    /// The clear side ended its stream.
    clear_ended: bool,
    /// And the secure side was told.
    sealed_all: bool,
    /// The secure side ended its stream.
    secure_ended: bool,
    /// And the clear side was told.
    opened_all: bool,
    spliced: Spliced,
}

impl Splice<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        BUFFERS.with_borrow_mut(|buffers| {
            SCRATCH.with_borrow_mut(|scratch| {
                let result = self.poll_both(cx, scratch, buffers);
                if let Poll::Ready(Err(_)) = result {
                    // An alert, if there is one.
                    let _ = try_send(self.secure, self.session.output(), false);
                }
                self.session.trim(buffers);
                result
            })
        })
    }

    fn poll_both(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        buffers: &mut Buffers,
    ) -> Poll<io::Result<()>> {
        if !self.opened_all {
            self.opened_all = self.poll_open(cx, scratch, buffers)?.is_ready();
        }
        // After it, for opening may have made an answer to send.
        if !self.sealed_all {
            self.sealed_all = self.poll_seal(cx, scratch, buffers)?.is_ready();
        }
        match self.opened_all && self.sealed_all {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// From the clear side to the secure one, to its end.
    fn poll_seal(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        buffers: &mut Buffers,
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.session.output().is_empty() {
                let output = self.session.output();
                let len = ready!(poll_send(self.secure, cx, output, self.clear_ended))?;
                self.session.on_sent(len);
            }
            if self.clear_ended {
                return Poll::Ready(end_of_writing(self.secure));
            }
            match ready!(poll_receive(self.clear, cx, scratch))? {
                0 => {
                    self.clear_ended = true;
                    self.session.close_write()?;
                }
                len => {
                    // The output was empty, so there is room for all of it.
                    let taken = self.session.write(&scratch[..len], buffers)?;
                    debug_assert_eq!(taken, len);
                    self.spliced.sealed += len as u64;
                }
            }
        }
    }

    /// From the secure side to the clear one, to its end.
    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        buffers: &mut Buffers,
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.unsent.is_empty() {
                let len = ready!(poll_send(self.clear, cx, &self.unsent, false))?;
                self.unsent.advance(len);
            }
            self.unsent = BytesMut::new();
            if self.secure_ended {
                return Poll::Ready(end_of_writing(self.clear));
            }
            match self.session.read(scratch)? {
                Read::Data(len) => {
                    self.spliced.opened += len as u64;
                    let sent = match try_send(self.clear, &scratch[..len], false) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                        sent => sent?,
                    };
                    self.unsent.extend_from_slice(&scratch[sent..len]);
                }
                Read::End => self.secure_ended = true,
                Read::Wanting => {
                    let room = self.session.receive_buffer(buffers);
                    match ready!(poll_receive(self.secure, cx, room))? {
                        0 => self.session.handle_eof()?,
                        len => self.session.on_received(len),
                    }
                }
            }
        }
    }
}
