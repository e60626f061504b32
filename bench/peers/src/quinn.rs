//! quinn behind the traits: aws-lc-rs, 4 MB socket buffers, the packet size held.

use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bench_contract::{SERVER_NAME, Settings};
use bytes::Bytes;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt,
};

use crate::Result;
use crate::material::{client_tls, server_tls};
use crate::stack::{self, Packets, RecvHalf, SendHalf};

/// Bytes asked for each kernel buffer, as Towline asks by default.
pub(crate) const SOCKET_BUFFER: usize = 4 << 20;

pub(crate) struct Quinn;

impl stack::Stack for Quinn {
    type Endpoint = Endpoint;

    fn listen(settings: &Settings) -> Result<Endpoint> {
        let crypto = QuicServerConfig::try_from(server_tls(settings)?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport(settings)?);
        endpoint(settings, settings.addr, Some(config), None)
    }

    fn dial(settings: &Settings) -> Result<Endpoint> {
        let crypto = QuicClientConfig::try_from(client_tls(settings)?)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport(settings)?);
        endpoint(
            settings,
            crate::client_address(settings),
            None,
            Some(config),
        )
    }
}

fn transport(settings: &Settings) -> Result<Arc<TransportConfig>> {
    let mut transport = TransportConfig::default();
    if let Some(mtu) = settings.mtu {
        let mut search = MtuDiscoveryConfig::default();
        search.upper_bound(mtu);
        transport
            .initial_mtu(mtu)
            .mtu_discovery_config(Some(search));
    }
    if let Some(seconds) = settings.idle_timeout {
        transport.max_idle_timeout(Some(Duration::from_secs(seconds).try_into()?));
    }
    if let Some(streams) = settings.permitted_streams {
        transport.max_concurrent_bidi_streams(streams.into());
        transport.max_concurrent_uni_streams(streams.into());
    }
    Ok(Arc::new(transport))
}

fn endpoint(
    settings: &Settings,
    bind: SocketAddr,
    server: Option<ServerConfig>,
    client: Option<ClientConfig>,
) -> Result<Endpoint> {
    let socket = UdpSocket::bind(bind)?;
    let view = socket2::SockRef::from(&socket);
    view.set_send_buffer_size(SOCKET_BUFFER)?;
    view.set_recv_buffer_size(SOCKET_BUFFER)?;
    let runtime = quinn::default_runtime().ok_or("no tokio runtime")?;
    let mut config = EndpointConfig::default();
    if settings.mtu.is_some() {
        config.max_udp_payload_size(65_527)?;
    }
    let mut endpoint = quinn::Endpoint::new(config, server, socket, runtime)?;
    if let Some(client) = client {
        endpoint.set_default_client_config(client);
    }
    Ok(Endpoint(endpoint))
}

pub(crate) struct Endpoint(quinn::Endpoint);

impl stack::Endpoint for Endpoint {
    type Connection = Connection;
    type Accepting = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }

    async fn accept(&mut self) -> Option<Self::Accepting> {
        let incoming = self.0.accept().await?;
        Some(Box::pin(async { Ok(Connection(incoming.await?)) }))
    }

    fn connect(&self, to: SocketAddr) -> impl Future<Output = Result<Connection>> + Send + 'static {
        let connecting = self.0.connect(to, SERVER_NAME);
        async { Ok(Connection(connecting?.await?)) }
    }

    async fn wait_idle(&mut self) {
        self.0.wait_idle().await;
    }
}

pub(crate) struct Connection(quinn::Connection);

impl stack::Connection for Connection {
    type Send = quinn::SendStream;
    type Recv = quinn::RecvStream;

    async fn open(&mut self) -> Result<(Self::Send, Self::Recv)> {
        Ok(self.0.open_bi().await?)
    }

    async fn accept(&mut self) -> Result<(Self::Send, Self::Recv)> {
        Ok(self.0.accept_bi().await?)
    }

    async fn send_datagram(&mut self, data: Bytes) -> Result<()> {
        Ok(self.0.send_datagram_wait(data).await?)
    }

    async fn read_datagram(&mut self) -> Result<Bytes> {
        Ok(self.0.read_datagram().await?)
    }

    fn close(&mut self) {
        self.0.close(VarInt::from_u32(0), b"");
    }

    async fn closed(&mut self) {
        self.0.closed().await;
    }

    fn packets(&self) -> Option<Packets> {
        let stats = self.0.stats();
        Some(Packets {
            sent: stats.path.sent_packets,
            bytes_sent: stats.udp_tx.bytes,
            received: stats.udp_rx.datagrams,
        })
    }
}

impl SendHalf for quinn::SendStream {
    async fn write_chunk(&mut self, data: Bytes) -> Result<()> {
        Ok(self.write_chunk(data).await?)
    }

    async fn write(&mut self, data: &[u8]) -> Result<()> {
        Ok(self.write_all(data).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.finish()?)
    }
}

impl RecvHalf for quinn::RecvStream {
    async fn skip(&mut self) -> Result<Option<usize>> {
        let chunk = self.read_chunk(usize::MAX, true).await?;
        Ok(chunk.map(|chunk| chunk.bytes.len()))
    }

    async fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        Ok(self.read(into).await?)
    }
}
