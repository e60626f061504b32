//! How a client comes to a session.

use std::net::SocketAddr;

use towline_quic::ClientConfig;

use super::error::ConnectError;
use super::server::Connection;
use super::session::Session;
use crate::handles::{self, Endpoint};
use crate::http3;

/// Looks the host of `url` up, connects to it, and asks for a session: `https://host:port/path`, port 443
/// where none is named. `config` names [`http3::ALPN`] and whom to believe: a server that shows a
/// certificate of its own is believed by [`Trust::Pinned`](crate::config::Trust::Pinned), its
/// SHA-256.
///
/// A dropped call gives the attempt up.
///
/// # Errors
/// When there is no connection, the server speaks no WebTransport of ours, or refuses.
#[cfg(feature = "tokio")]
pub async fn connect(
    endpoint: &Endpoint,
    url: &str,
    config: &ClientConfig,
) -> Result<Session, ConnectError> {
    let head = request(url)?;
    let (host, port) = host_and_port(&head).ok_or_else(|| ConnectError::Url(url.to_owned()))?;
    let transport = endpoint.connect_host(host, port, config).await;
    let transport = transport.map_err(http3::ConnectError::from)?;
    connect_over(transport, head, &[]).await
}

/// As [`connect`], to an address: the host that `head` names is who the server must prove to be.
/// `protocols` are the application's, its favourite first.
///
/// # Errors
/// The same.
pub async fn connect_to(
    endpoint: &Endpoint,
    remote: SocketAddr,
    head: http::Request<()>,
    protocols: &[&str],
    config: &ClientConfig,
) -> Result<Session, ConnectError> {
    let url = head.uri().to_string();
    let (host, _) = host_and_port(&head).ok_or(ConnectError::Url(url))?;
    let transport = endpoint.connect(remote, host, config).await;
    let transport = transport.map_err(http3::ConnectError::from)?;
    connect_over(transport, head, protocols).await
}

/// Asks for a session on a connection that there is; it lives for as long as the session.
///
/// # Errors
/// The same.
pub async fn connect_over(
    transport: handles::Connection,
    head: http::Request<()>,
    protocols: &[&str],
) -> Result<Session, ConnectError> {
    let http = http3::Connection::new(transport).ok_or(http3::ConnectError::NotHttp3)?;
    Ok(Connection::new(http).open(head, protocols).await?)
}

#[cfg(feature = "tokio")]
fn request(url: &str) -> Result<http::Request<()>, ConnectError> {
    let head = http::Request::get(url).body(());
    head.map_err(|_| ConnectError::Url(url.to_owned()))
}

fn host_and_port(head: &http::Request<()>) -> Option<(&str, u16)> {
    let uri = head.uri();
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?;
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    Some((plain, uri.port_u16().unwrap_or(443)))
}
