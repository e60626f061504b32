//! A connection: what the application reads and writes.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use rustls::{CipherSuite, NamedGroup};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use towline_identity::PeerIdentity;
use towline_stcp::{Authentication, Established, Records};

use super::records::{RecordLayer, end_of_writing};

/// A secure-TCP connection, used as tokio's `TcpStream`.
///
/// A write sends at once. `shutdown` ends the stream in order, and reading goes on after it; a stream
/// that is dropped without it is cut off, and the peer reads `ConnectionReset`. Whoever drops one
/// before the peer's end was read may cut off its own last bytes, as with TCP. Before waiting for
/// anything but this stream, `flush`: a write returns when the bytes are encrypted, and those that
/// the socket had no room for leave with the next call.
pub struct Stream {
    tcp: TcpStream,
    records: Box<RecordLayer>,
    about: Box<About>,
}

/// What the handshake found out.
struct About {
    peer: Option<PeerIdentity>,
    authentication: Authentication,
    alpn: Option<Vec<u8>>,
    cipher_suite: CipherSuite,
    key_exchange: Option<NamedGroup>,
    is_resumed: bool,
}

impl Stream {
    /// Over a connection whose handshake is done, with records made by who `records` says.
    ///
    /// # Errors
    /// The session's, or the kernel's where it was to make the records.
    pub fn new(tcp: TcpStream, established: Established, records: Records) -> io::Result<Self> {
        let about = Box::new(About {
            peer: established.peer().cloned(),
            authentication: established.authentication(),
            alpn: established.alpn().map(<[u8]>::to_vec),
            cipher_suite: established.cipher_suite(),
            key_exchange: established.key_exchange(),
            is_resumed: established.is_resumed(),
        });
        let session = established.into_session()?;
        let records = Box::new(RecordLayer::new(session, &tcp, records)?);
        Ok(Self {
            tcp,
            records,
            about,
        })
    }

    /// Who the peer proved to be; `None` for an anonymous client.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.about.peer.as_ref()
    }

    /// How sure that is. Below [`Pinned`](Authentication::Pinned) the application has to judge.
    pub fn authentication(&self) -> Authentication {
        self.about.authentication
    }

    /// The application protocol agreed on, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.about.alpn.as_deref()
    }

    /// The cipher suite agreed on.
    pub fn cipher_suite(&self) -> CipherSuite {
        self.about.cipher_suite
    }

    /// The key exchange group; `None` in a resumption without one.
    pub fn key_exchange(&self) -> Option<NamedGroup> {
        self.about.key_exchange
    }

    /// Whether an earlier session was resumed: the peer is the one verified then.
    pub fn is_resumed(&self) -> bool {
        self.about.is_resumed
    }

    /// Whether the kernel makes the records that are sent (kTLS): where it can, from the first file on,
    /// or from the start with [`Records::Kernel`].
    pub fn is_in_kernel(&self) -> bool {
        self.records.is_kernel_sending()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Our own address.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Small writes leave at once (the default), or wait for company.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.tcp.set_nodelay(nodelay)
    }

    /// The socket below, for its options. Whoever reads or writes there breaks the stream.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Writes up to `len` bytes of the file, beginning at `offset`: fewer only if the file ends
    /// before; how many. By `sendfile` where the kernel has kTLS, which copies nothing through user space;
    /// from then on [the kernel makes the records](Self::is_in_kernel). As with every file, waiting for
    /// the disk blocks the thread.
    ///
    /// # Errors
    /// The file's or the stream's: [`KernelKeyEnded`](towline_stcp::SessionError::KernelKeyEnded) where the
    /// kernel sends and would need a new key, with AES-GCM after 388 GB at the latest. How much was sent
    /// before is not told, nor if the future is dropped.
    pub async fn send_file(&mut self, file: &File, offset: u64, len: u64) -> io::Result<u64> {
        send_file(file, offset, len, |cx, offset, len| {
            self.records
                .poll_send_file(&self.tcp, cx, file, offset, len)
        })
        .await
    }

    /// Socket and records, for the splice, if the records are made in user space.
    pub(super) fn into_parts(self) -> Result<(TcpStream, Box<RecordLayer>), Self> {
        match self.is_in_kernel() {
            true => Err(self),
            false => Ok((self.tcp, self.records)),
        }
    }

    /// Two halves, for two tasks.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let shared = Arc::new(Shared {
            tcp: self.tcp,
            records: Mutex::new(self.records),
        });
        (ReadHalf(Arc::clone(&shared)), WriteHalf(shared))
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("tcp", &self.tcp)
            .field("peer", &self.about.peer)
            .field("authentication", &self.about.authentication)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.records.poll_read(&this.tcp, cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.records.poll_write(&this.tcp, cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.records.poll_flush(&this.tcp, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.records.poll_shutdown(&this.tcp, cx)
    }
}

struct Shared {
    tcp: TcpStream,
    records: Mutex<Box<RecordLayer>>,
}

impl Shared {
    fn records(&self) -> MutexGuard<'_, Box<RecordLayer>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading half of a [`Stream`].
pub struct ReadHalf(Arc<Shared>);

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.records().poll_read(&self.0.tcp, cx, buffer)
    }
}

/// The writing half of a [`Stream`]. Dropped without `shutdown` it cuts its direction off.
pub struct WriteHalf(Arc<Shared>);

impl WriteHalf {
    /// As [`Stream::send_file`].
    ///
    /// # Errors
    /// Those of [`Stream::send_file`].
    pub async fn send_file(&mut self, file: &File, offset: u64, len: u64) -> io::Result<u64> {
        send_file(file, offset, len, |cx, offset, len| {
            let mut records = self.0.records();
            records.poll_send_file(&self.0.tcp, cx, file, offset, len)
        })
        .await
    }
}

/// Sends by pieces, each of which `poll` is asked for by offset and most bytes.
async fn send_file(
    file: &File,
    offset: u64,
    len: u64,
    mut poll: impl FnMut(&mut Context<'_>, u64, u64) -> Poll<io::Result<usize>>,
) -> io::Result<u64> {
    let about = file.metadata()?;
    // Beyond the end of a file the kernel would wait for more with a record begun.
    let len = match about.is_file() {
        true => len.min(about.len().saturating_sub(offset)),
        false => len,
    };
    let mut sent = 0;
    while sent < len {
        match poll_fn(|cx| poll(cx, offset + sent, len - sent)).await? {
            0 => break,
            piece => sent += piece as u64,
        }
    }
    Ok(sent)
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.records().poll_write(&self.0.tcp, cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.records().poll_flush(&self.0.tcp, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.records().poll_shutdown(&self.0.tcp, cx)
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // A FIN without close_notify: the peer must not wait for more, nor take this for the end.
        if !self.0.records().is_shut_down() {
            let _ = end_of_writing(&self.0.tcp);
        }
    }
}
