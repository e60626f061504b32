//! s2n-quic behind the traits: its default TLS provider, 4 MB socket buffers, the packet size held.

use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::time::Duration;

use bench_contract::{ALPN, Aead, SERVER_NAME, Settings};
use bytes::Bytes;
use s2n_quic::client::Connect;
use s2n_quic::connection::{Handle, StreamAcceptor};
use s2n_quic::provider::io::tokio::Provider as Io;
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::default as tls;
use s2n_quic::stream::{BidirectionalStream, ReceiveStream, SendStream};
use s2n_tls::security::Policy;
use tokio::io::AsyncReadExt;

use crate::Result;
use crate::material::{authority, certificate};
use crate::quinn::SOCKET_BUFFER;
use crate::stack::{self, Packets, RecvHalf, SendHalf};

/// AES-128-GCM and X25519 first in TLS 1.3; the provider's own default has P-256 first.
const POLICY: &str = "20190801";
/// IPv4 and UDP headers, which s2n-quic counts in.
const HEADERS: u16 = 28;

pub(crate) struct S2n;

impl stack::Stack for S2n {
    type Endpoint = Endpoint;

    fn listen(settings: &Settings) -> Result<Endpoint> {
        let (chain, key) = certificate(settings)?;
        // Bytes would be DER, which s2n-tls does not take.
        let mut tls = tls::Server::builder()
            .with_certificate(str::from_utf8(&chain)?, str::from_utf8(&key)?)?
            .with_application_protocols([ALPN])?;
        tls.config_mut()
            .set_security_policy(&Policy::from_version(POLICY)?)?;
        let server = s2n_quic::Server::builder()
            .with_tls(tls.build()?)?
            .with_io(io(settings.addr, settings)?)?
            .with_limits(limits(settings)?)?
            .start()?;
        Ok(Endpoint::Server(server))
    }

    fn dial(settings: &Settings) -> Result<Endpoint> {
        let mut tls = tls::Client::builder()
            .with_certificate(str::from_utf8(&authority(settings)?)?)?
            .with_application_protocols([ALPN])?;
        tls.config_mut()
            .set_security_policy(&Policy::from_version(POLICY)?)?;
        let client = s2n_quic::Client::builder()
            .with_tls(tls.build()?)?
            .with_io(io(crate::client_address(settings), settings)?)?
            .with_limits(limits(settings)?)?
            .start()?;
        Ok(Endpoint::Client(client))
    }
}

fn io(bind: SocketAddr, settings: &Settings) -> Result<Io> {
    if settings.cipher != Aead::Aes128gcm {
        return Err("no s2n-tls policy here for another cipher".into());
    }
    let mut io = Io::builder()
        .with_receive_address(bind)?
        .with_send_buffer_size(SOCKET_BUFFER)?
        .with_recv_buffer_size(SOCKET_BUFFER)?;
    if let Some(mtu) = settings.mtu {
        let mtu = mtu
            .checked_add(HEADERS)
            .ok_or("the packet size is too large")?;
        io = io.with_max_mtu(mtu)?.with_initial_mtu(mtu)?;
    }
    Ok(io.build()?)
}

fn limits(settings: &Settings) -> Result<Limits> {
    let mut limits = Limits::new();
    if let Some(seconds) = settings.idle_timeout {
        limits = limits.with_max_idle_timeout(Duration::from_secs(seconds))?;
    }
    if let Some(streams) = settings.permitted_streams {
        limits = limits
            .with_max_open_remote_bidirectional_streams(streams.into())?
            .with_max_open_remote_unidirectional_streams(streams.into())?;
    }
    Ok(limits)
}

pub(crate) enum Endpoint {
    Server(s2n_quic::Server),
    Client(s2n_quic::Client),
}

impl stack::Endpoint for Endpoint {
    type Connection = Connection;
    type Accepting = Ready<Result<Connection>>;

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(match self {
            Endpoint::Server(server) => server.local_addr()?,
            Endpoint::Client(client) => client.local_addr()?,
        })
    }

    async fn accept(&mut self) -> Option<Self::Accepting> {
        match self {
            Endpoint::Server(server) => Some(ready(Ok(Connection::new(server.accept().await?)))),
            Endpoint::Client(_) => None,
        }
    }

    fn connect(&self, to: SocketAddr) -> impl Future<Output = Result<Connection>> + Send + 'static {
        let attempt = match self {
            Endpoint::Client(client) => {
                Some(client.connect(Connect::new(to).with_server_name(SERVER_NAME)))
            }
            Endpoint::Server(_) => None,
        };
        async {
            let attempt = attempt.ok_or("this endpoint only accepts")?;
            Ok(Connection::new(attempt.await?))
        }
    }

    async fn wait_idle(&mut self) {
        if let Endpoint::Client(client) = self {
            let _ = client.wait_idle().await;
        }
    }
}

pub(crate) struct Connection {
    handle: Handle,
    streams: StreamAcceptor,
}

impl Connection {
    fn new(connection: s2n_quic::Connection) -> Self {
        let (handle, streams) = connection.split();
        Self { handle, streams }
    }
}

fn halves(stream: BidirectionalStream) -> (SendStream, ReceiveStream) {
    let (receive, send) = stream.split();
    (send, receive)
}

impl stack::Connection for Connection {
    type Send = SendStream;
    type Recv = ReceiveStream;

    async fn open(&mut self) -> Result<(SendStream, ReceiveStream)> {
        Ok(halves(self.handle.open_bidirectional_stream().await?))
    }

    async fn accept(&mut self) -> Result<(SendStream, ReceiveStream)> {
        let stream = self.streams.accept_bidirectional_stream().await?;
        Ok(halves(stream.ok_or("the connection is over")?))
    }

    async fn send_datagram(&mut self, _: Bytes) -> Result<()> {
        Err("s2n-quic's datagrams are behind an unstable feature".into())
    }

    async fn read_datagram(&mut self) -> Result<Bytes> {
        Err("s2n-quic's datagrams are behind an unstable feature".into())
    }

    fn close(&mut self) {
        self.handle.close(0u32.into());
    }

    async fn closed(&mut self) {
        while let Ok(Some(_)) = self.streams.accept_bidirectional_stream().await {}
    }

    fn packets(&self) -> Option<Packets> {
        None
    }
}

impl SendHalf for SendStream {
    async fn write_chunk(&mut self, data: Bytes) -> Result<()> {
        Ok(self.send(data).await?)
    }

    async fn write(&mut self, data: &[u8]) -> Result<()> {
        Ok(self.send(Bytes::copy_from_slice(data)).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.finish()?)
    }
}

impl RecvHalf for ReceiveStream {
    async fn skip(&mut self) -> Result<Option<usize>> {
        Ok(self.receive().await?.map(|chunk| chunk.len()))
    }

    async fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        let n = AsyncReadExt::read(self, into).await?;
        Ok((n > 0).then_some(n))
    }
}
