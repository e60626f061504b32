//! TCP connections that notice a dead peer.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a connection, handshakes included, may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// After so long without a byte the peer's host is asked whether it is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMES: u32 = 3;

/// Connects; fails in a person's words.
pub(crate) async fn tcp(host: &str, port: u16) -> Result<TcpStream, String> {
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
    let stream = match connected {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(format!("no connection to {host}:{port}: {error}")),
        Err(_) => return Err(format!("{host}:{port} does not answer")),
    };
    watch(&stream).map_err(|error| format!("socket options: {error}"))?;
    Ok(stream)
}

/// A stream that only ever reads would wait for a dead peer for ever.
fn watch(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_TIMES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
