//! Drives a handshake over a byte stream, whoever carries it: a TCP socket, or the kernel module's
//! descriptor of one.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use towline_stcp::{Handshake, Records};

use super::error::ConnectError;
use super::stream::Stream;

/// How long a handshake may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Received at once; a flight with a chain of certificates is a few of these.
const CHUNK: usize = 4096;

/// The byte stream below TLS.
pub trait Wire: Sync {
    /// Receives at least one byte; 0 is the end of the stream.
    fn receive(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Sends at least one byte.
    fn send(&self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

impl Wire for TcpStream {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.writable().await?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}

/// Runs `handshake` to its end over TCP, and has the records made by whoever `records` says.
pub(super) async fn shake_hands(
    tcp: TcpStream,
    mut handshake: Handshake,
    records: Records,
) -> Result<Stream, ConnectError> {
    drive(&tcp, &mut handshake, false).await?;
    if records == Records::Kernel {
        // What is ours goes before the kernel's.
        flush(&tcp, &mut handshake).await?;
    }
    Ok(Stream::new(tcp, handshake.finish()?, records)?)
}

/// Drives `handshake` to its end. After a failure the peer has been sent the alert that says why. If
/// `exact`, the kernel is to see every byte after the handshake, and user space none: then no byte too
/// many is taken, and everything is sent. If not, what is left goes along with what is written next.
///
/// # Errors
/// The wire's, or why the handshake failed.
pub async fn drive(
    wire: &impl Wire,
    handshake: &mut Handshake,
    exact: bool,
) -> Result<(), ConnectError> {
    let mut chunk = [0; CHUNK];
    while !handshake.is_complete() {
        flush(wire, handshake).await?;
        let most = match exact {
            true => handshake.wanted().min(CHUNK),
            false => CHUNK,
        };
        let len = wire.receive(&mut chunk[..most]).await?;
        if len == 0 {
            return Err(handshake.handle_eof().into());
        }
        if let Err(error) = handshake.handle_input(&chunk[..len]) {
            // The peer may be gone or not listen; then it needs no alert.
            let _ = flush(wire, handshake).await;
            return Err(error.into());
        }
    }
    match exact {
        true => Ok(flush(wire, handshake).await?),
        false => Ok(()),
    }
}

/// Sends what the handshake has to say.
///
/// # Errors
/// The wire's.
pub async fn flush(wire: &impl Wire, handshake: &mut Handshake) -> io::Result<()> {
    while !handshake.output().is_empty() {
        let sent = wire.send(handshake.output()).await?;
        handshake.on_sent(sent);
    }
    Ok(())
}
