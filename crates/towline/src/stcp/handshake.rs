//! Drives a handshake over a TCP socket.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towline_stcp::{Handshake, Records};

use super::error::ConnectError;
use super::stream::Stream;

/// How long a handshake may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Received at once; a flight with a chain of certificates is a few of these.
const CHUNK: usize = 4096;

/// Runs `handshake` to its end. After a failure the peer is sent the alert, if there is one.
pub(super) async fn shake_hands(
    mut tcp: TcpStream,
    mut handshake: Handshake,
    records: Records,
) -> Result<Stream, ConnectError> {
    let in_kernel = records != Records::UserSpace && kernel_makes_records();
    match drive(&mut tcp, &mut handshake, in_kernel).await {
        Ok(()) => Ok(Stream::new(tcp, handshake.finish()?, in_kernel)?),
        Err(error) => {
            // The peer may be gone or not listen; then it needs no alert.
            let _ = tcp.try_write(handshake.output());
            Err(error)
        }
    }
}

/// Whether this kernel has kTLS; asked once.
fn kernel_makes_records() -> bool {
    #[cfg(target_os = "linux")]
    {
        static ANSWER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *ANSWER.get_or_init(|| super::ktls::is_available().is_ok())
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// The kernel must see every byte after the handshake, and user space none: then no byte too many
/// is taken, and everything is sent.
async fn drive(
    tcp: &mut TcpStream,
    handshake: &mut Handshake,
    exactly: bool,
) -> Result<(), ConnectError> {
    let mut chunk = [0; CHUNK];
    while !handshake.is_complete() {
        send(tcp, handshake).await?;
        let most = match exactly {
            true => handshake.wanted().min(CHUNK),
            false => CHUNK,
        };
        let len = tcp.read(&mut chunk[..most]).await?;
        if len == 0 {
            return Err(handshake.handle_eof().into());
        }
        handshake.handle_input(&chunk[..len])?;
    }
    match exactly {
        true => send(tcp, handshake).await,
        // What is left goes along.
        false => Ok(()),
    }
}

async fn send(tcp: &mut TcpStream, handshake: &mut Handshake) -> Result<(), ConnectError> {
    while !handshake.output().is_empty() {
        let len = tcp.write(handshake.output()).await?;
        handshake.on_sent(len);
    }
    Ok(())
}
