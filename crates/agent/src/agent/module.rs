//! The carrier of the kernel module: its device, and one descriptor for each connection.
//!
//! A read of the device is a request with a new descriptor in it, which moves the connection's raw
//! bytes, takes both keys, and is told how the handshake ended. Closing it without that word fails
//! the program's socket, so a killed agent lets nothing through. `kmod/stcp/uapi.h` is the other
//! side.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use towline::stcp::ktls::CryptoInfo;
use towline_stcp::{Authentication, Established, KernelKeys};
use towline_wire::{AGENT_REQUEST_LEN, AgentRequest, Carrier};

use super::handshake::{Wire, registered};
use super::{Agent, Complaint, Failure, Network, Requester};
use crate::policy::Admitted;

/// The module's letter among ioctls.
const IOC_LETTER: u32 = b'S' as u32;
/// `_IOW('S', 1, struct tls_crypto_info)`: the key to send with; the whole struct follows.
const STCP_IOC_TX: u32 = write_ioctl(1, 4);
/// `_IOW('S', 2, struct tls_crypto_info)`: the key to receive with.
const STCP_IOC_RX: u32 = write_ioctl(2, 4);
/// `_IOW('S', 3, struct stcp_done)`: the handshake's end.
const STCP_IOC_DONE: u32 = write_ioctl(3, DONE_LEN as u32);
/// Its inode number is what the module calls a network namespace by.
const OWN_NETWORK: &str = "/proc/self/ns/net";

/// Bytes of a `struct stcp_done`.
const DONE_LEN: usize = 40;

/// What passes: too few descriptors, or too little memory, for the moment.
const SHORTAGES: [i32; 3] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];

/// How long a shortage is given to pass.
const PAUSE: Duration = Duration::from_millis(50);

const fn write_ioctl(number: u32, size: u32) -> u32 {
    1 << 30 | size << 16 | IOC_LETTER << 8 | number
}

/// The module's device, open. The module lets one process have it.
#[derive(Debug)]
pub struct ModuleDevice(AsyncFd<File>);

impl ModuleDevice {
    /// Opens the device, usually `/dev/stcp`. Within a tokio runtime.
    ///
    /// # Errors
    /// `NotFound` where the module is not loaded, `ResourceBusy` where an agent runs already.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        Ok(Self(registered(file)?))
    }

    async fn next(&self) -> io::Result<[u8; AGENT_REQUEST_LEN]> {
        let mut bytes = [0; AGENT_REQUEST_LEN];
        let read = self
            .0
            .async_io(Interest::READABLE, |mut file| file.read(&mut bytes))
            .await?;
        if read == AGENT_REQUEST_LEN {
            Ok(bytes)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the module's request has {read} bytes; module and agent must come from one release"
                ),
            ))
        }
    }
}

impl Agent {
    /// Answers the module's requests until the device fails.
    ///
    /// # Errors
    /// What the device said, or that its requests are those of another release.
    pub async fn serve_module(self: Arc<Self>, device: &ModuleDevice) -> io::Result<()> {
        let mut complaint = Complaint::default();
        let own_network = own_network();
        loop {
            let bytes = match device.next().await {
                Ok(bytes) => bytes,
                // Requests wait in the module's queue until others have given back theirs.
                Err(error) if SHORTAGES.map(Some).contains(&error.raw_os_error()) => {
                    if complaint.is_due() {
                        tracing::warn!("the module's requests have to wait: {error}");
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let request = AgentRequest::parse(&bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if request.fd < 0 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a request of the module without a descriptor",
                ));
            }
            // SAFETY: the module put this descriptor into our table for this request, and nothing
            // else here knows its number.
            let file = unsafe { OwnedFd::from_raw_fd(request.fd) };
            let agent = Arc::clone(&self);
            let network = match Some(request.netns) == own_network {
                true => Network::Own,
                false => Network::Other,
            };
            tokio::spawn(async move {
                agent.serve_module_connection(file, &request, network).await;
            });
        }
    }

    async fn serve_module_connection(
        &self,
        file: OwnedFd,
        request: &AgentRequest,
        network: Network,
    ) {
        let requester = Requester {
            side: request.side,
            carrier: Carrier::Module,
            peer: request.peer,
            pid: request.pid,
            uid: request.uid,
        };
        let connection = match Connection::new(file) {
            Ok(connection) => connection,
            Err(error) => return self.on_refused(&requester, &error.into()),
        };
        let ended = match self.establish_in(network, &connection, &requester).await {
            Ok((established, admitted)) => {
                connection.finish(established, &admitted).map(|()| admitted)
            }
            Err(why) => Err(why),
        };
        match ended {
            Ok(admitted) => self.on_established(&requester, &admitted),
            Err(why) => {
                self.on_refused(&requester, &why);
                // If even this fails, closing the descriptor fails the socket.
                let _ = connection.done(-why.errno(), None);
            }
        }
    }
}

/// The network namespace of this process; `None` if it cannot be told, and then no connection is in it.
fn own_network() -> Option<u64> {
    match std::fs::metadata(OWN_NETWORK) {
        Ok(file) => Some(file.ino()),
        Err(error) => {
            tracing::warn!(
                "{OWN_NETWORK}: {error}: trust on first use is for connections in the agent's own \
                 network namespace, and none can be told to be: give `pins` or `roots` in a policy"
            );
            None
        }
    }
}

/// A connection's descriptor.
struct Connection(AsyncFd<File>);

impl Connection {
    fn new(file: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&file)?;
        Ok(Self(registered(File::from(file))?))
    }

    /// Gives the kernel its keys, and the connection to the program.
    fn finish(&self, established: Established, admitted: &Admitted) -> Result<(), Failure> {
        let KernelKeys { transmit, receive } =
            established.into_kernel().ok_or(Failure::NotForTheKernel)?;
        self.ioctl(
            STCP_IOC_TX,
            CryptoInfo::new(&transmit.0, transmit.1).as_bytes(),
        )?;
        self.ioctl(
            STCP_IOC_RX,
            CryptoInfo::new(&receive.0, receive.1).as_bytes(),
        )?;
        self.done(0, Some(admitted))?;
        Ok(())
    }

    fn done(&self, status: i32, admitted: Option<&Admitted>) -> io::Result<()> {
        let mut done = [0; DONE_LEN];
        done[..4].copy_from_slice(&status.to_ne_bytes());
        if let Some(admitted) = admitted {
            done[4] = authentication_code(admitted.authentication);
            if let Some(key) = &admitted.key {
                done[8..].copy_from_slice(key.as_bytes());
            }
        }
        self.ioctl(STCP_IOC_DONE, &done)
    }

    fn ioctl(&self, request: u32, argument: &[u8]) -> io::Result<()> {
        // SAFETY: the descriptor is open; the module reads at most the struct that the request
        // names (for keys: that their own header names), which `argument` holds whole.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                request as libc::Ioctl,
                argument.as_ptr(),
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// As `STCP_PEER` shows it.
fn authentication_code(authentication: Authentication) -> u8 {
    match authentication {
        Authentication::Anonymous => 0,
        Authentication::KeyShown => 1,
        Authentication::Pinned => 2,
        Authentication::Certificate => 3,
    }
}

impl Wire for Connection {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0
            .async_io(Interest::READABLE, |mut file| file.read(buffer))
            .await
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .async_io(Interest::WRITABLE, |mut file| file.write(bytes))
            .await
    }
}

fn set_nonblocking(file: &OwnedFd) -> io::Result<()> {
    // SAFETY: an open descriptor, and commands that take and return integers.
    let result = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        if flags < 0 {
            flags
        } else {
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
        }
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
