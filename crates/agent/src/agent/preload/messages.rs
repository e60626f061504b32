//! Messages of Unix sockets with a descriptor beside them.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use towline_wire::{AGENT_REQUEST_LEN, AgentAnswer, AgentRequest};

/// Room for the one descriptor of a message, aligned as its header must be.
type Control = [u64; 8];

/// The next request, which stays to be received; `None` once the program has closed.
///
/// # Errors
/// When it is no request.
pub(in super::super) async fn peek_request(
    client: &AsyncFd<Socket>,
) -> io::Result<Option<AgentRequest>> {
    let mut bytes = [0; AGENT_REQUEST_LEN];
    let peek = |client: &Socket| {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let (room, at) = (bytes.len(), bytes.as_mut_ptr());
        // SAFETY: the kernel writes at most `room` bytes, all of them of `bytes`.
        let len = unsafe { libc::recv(client.as_raw_fd(), at.cast(), room, flags) };
        usize::try_from(len).map_err(|_| io::Error::last_os_error())
    };
    let len = client.async_io(Interest::READABLE, peek).await?;
    if len == 0 {
        return Ok(None);
    }
    let request = AgentRequest::parse(&bytes[..len])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(request))
}

/// The next request and the socket beside it; `None` once the program has closed.
///
/// # Errors
/// When it is no request.
pub(in super::super) async fn receive_request(
    client: &AsyncFd<Socket>,
) -> io::Result<Option<(AgentRequest, Option<Socket>)>> {
    let mut bytes = [0; AGENT_REQUEST_LEN];
    let (len, socket) = client
        .async_io(Interest::READABLE, |client| receive(client, &mut bytes))
        .await?;
    if len == 0 {
        return Ok(None);
    }
    let request = AgentRequest::parse(&bytes[..len])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((request, socket)))
}

/// Sends an answer and perhaps a descriptor, which the receiver gets a copy of.
pub(in super::super) async fn send_answer(
    client: &AsyncFd<Socket>,
    answer: &AgentAnswer,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = answer.emit();
    let send = |client: &Socket| match descriptor {
        Some(descriptor) => send_with(client.as_fd(), &bytes, descriptor),
        None => client.send_with_flags(&bytes, libc::MSG_NOSIGNAL).map(drop),
    };
    client.async_io(Interest::WRITABLE, send).await
}

/// One message and the descriptor beside it; of several only the first is kept.
fn receive(client: &Socket, bytes: &mut [u8]) -> io::Result<(usize, Option<Socket>)> {
    let mut slice = IoSliceMut::new(bytes);
    let mut control: Control = [0; 8];
    // SAFETY: all-zero is a valid msghdr: integers and null pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw mut slice).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the message points to one slice (IoSliceMut is an iovec) and one buffer, which
    // outlive the call.
    let received = unsafe {
        libc::recvmsg(
            client.as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut descriptors = Vec::new();
    // SAFETY: the kernel filled `control` and its length into the message; the macros walk it, and
    // each SCM_RIGHTS header is followed by as many descriptors as its length says, which are ours.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<i32>();
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<i32>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((received, descriptors.into_iter().next().map(Socket::from)))
}

fn send_with(client: BorrowedFd<'_>, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut slice = IoSlice::new(bytes);
    let mut control: Control = [0; 8];
    // SAFETY: all-zero is a valid msghdr: integers and null pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw mut slice).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the macros only compute; `control` has room for a header and a descriptor.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        let data = libc::CMSG_DATA(header).cast::<i32>();
        data.write_unaligned(descriptor.as_raw_fd());
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message points at `bytes`, which are only read, and at `control`; both outlive it.
    match unsafe { libc::sendmsg(client.as_raw_fd(), &raw const message, flags) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
