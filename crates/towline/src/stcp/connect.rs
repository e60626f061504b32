//! The client's side of a connection.

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, ToSocketAddrs};
use towline_stcp::{ClientConfig, Handshake};

use super::error::ConnectError;
use super::handshake::{TIMEOUT, shake_hands};
use super::stream::Stream;

/// Connects to the server at `address`, which must prove to be `name` (a DNS name or an IP
/// address) as the configuration asks. TCP_NODELAY is on.
///
/// A client is done before the server has judged its identity: a server that refuses it says so in
/// the first read.
///
/// # Errors
/// TCP's, a peer that is not believed or does not speak TLS, or no end of the handshake within 10 s.
pub async fn connect(
    address: impl ToSocketAddrs,
    name: &str,
    config: &ClientConfig,
) -> Result<Stream, ConnectError> {
    connect_over(TcpStream::connect(address).await?, name, config).await
}

/// The same over a TCP connection that is there already and on which nothing was said.
///
/// # Errors
/// As for [`connect`].
pub async fn connect_over(
    tcp: TcpStream,
    name: &str,
    config: &ClientConfig,
) -> Result<Stream, ConnectError> {
    let server =
        ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::Name(name.to_owned()))?;
    tcp.set_nodelay(true)?;
    let handshake = Handshake::client(config, server)?;
    tokio::time::timeout(TIMEOUT, shake_hands(tcp, handshake, config.records()))
        .await
        .unwrap_or(Err(ConnectError::TimedOut(TIMEOUT)))
}
