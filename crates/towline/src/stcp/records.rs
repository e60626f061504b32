//! Who makes the records of a stream: we, or the kernel.

use std::fs::File;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use towline_stcp::Established;

#[cfg(target_os = "linux")]
use super::kernel::KernelRecords;
use super::user::UserRecords;

/// The record layer of a stream. Every call is given the stream's socket.
pub(super) enum Records {
    /// Ours, in user space.
    User(Box<UserRecords>),
    /// The kernel's.
    #[cfg(target_os = "linux")]
    Kernel(Box<KernelRecords>),
}

impl Records {
    /// The kernel's; ours for a connection that it does not take.
    #[cfg(target_os = "linux")]
    pub(super) fn in_kernel(established: Established, tcp: &TcpStream) -> io::Result<Self> {
        match KernelRecords::install(established, tcp)? {
            Ok(records) => Ok(Self::Kernel(Box::new(records))),
            Err(established) => Self::in_user_space(established, tcp),
        }
    }

    /// Ours.
    pub(super) fn in_user_space(established: Established, tcp: &TcpStream) -> io::Result<Self> {
        let session = established.into_session()?;
        Ok(Self::User(Box::new(UserRecords::new(session, tcp)?)))
    }

    pub(super) fn poll_read(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::User(records) => records.poll_read(tcp, cx, buffer),
            #[cfg(target_os = "linux")]
            Self::Kernel(records) => records.poll_read(tcp, cx, buffer),
        }
    }

    pub(super) fn poll_write(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::User(records) => records.poll_write(tcp, cx, data),
            #[cfg(target_os = "linux")]
            Self::Kernel(records) => records.poll_write(tcp, cx, data),
        }
    }

    /// Sends a piece of the file; 0 at the file's end.
    pub(super) fn poll_send_file(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::User(records) => records.poll_send_file(tcp, cx, file, offset, len),
            #[cfg(target_os = "linux")]
            Self::Kernel(records) => records.poll_send_file(tcp, cx, file, offset, len),
        }
    }

    pub(super) fn poll_flush(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::User(records) => records.poll_flush(tcp, cx),
            // What a write took is the kernel's already.
            #[cfg(target_os = "linux")]
            Self::Kernel(_) => Poll::Ready(Ok(())),
        }
    }

    /// close_notify, then FIN.
    pub(super) fn poll_shutdown(
        &mut self,
        tcp: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::User(records) => records.poll_shutdown(tcp, cx),
            #[cfg(target_os = "linux")]
            Self::Kernel(records) => records.poll_shutdown(tcp, cx),
        }
    }

    /// Whether the end of writing was declared.
    pub(super) fn is_shut_down(&self) -> bool {
        match self {
            Self::User(records) => records.is_shut_down(),
            #[cfg(target_os = "linux")]
            Self::Kernel(records) => records.is_shut_down(),
        }
    }
}
