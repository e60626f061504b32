//! Drives a handshake over a TCP socket.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use towline_stcp::Handshake;

use super::error::ConnectError;
use super::stream::Stream;

/// How long a handshake may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// With the value 1: records by the kernel, where it has kTLS.
#[cfg(target_os = "linux")]
const KERNEL_RECORDS_VARIABLE: &str = "TOWLINE_KTLS";

/// Received at once; a flight with a chain of certificates is a few of these.
const CHUNK: usize = 4096;

/// Runs `handshake` to its end. After a failure the peer is sent the alert, if there is one.
pub(super) async fn shake_hands(
    mut tcp: TcpStream,
    mut handshake: Handshake,
) -> Result<Stream, ConnectError> {
    let in_kernel = records_in_kernel();
    match drive(&mut tcp, &mut handshake, in_kernel).await {
        Ok(()) => Ok(Stream::new(tcp, handshake.finish()?, in_kernel)?),
        Err(error) => {
            // The peer may be gone or not listen; then it needs no alert.
            let _ = tcp.try_write(handshake.output());
            Err(error)
        }
    }
}

/// Where records shall be made. The kernel's stay an experiment until they are tested with every
/// kernel that has them.
fn records_in_kernel() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        #[cfg(target_os = "linux")]
        if std::env::var_os(KERNEL_RECORDS_VARIABLE).is_some_and(|value| value == "1") {
            return match super::ktls::is_available() {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!("this kernel has no kTLS ({error}): records in user space");
                    false
                }
            };
        }
        false
    })
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
