//! Towline behind the traits: its public API and its defaults, but for cipher, key exchange and
//! packet size.

use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::time::Duration;

use bench_contract::{ALPN, Aead, SERVER_NAME, Settings};
use bytes::Bytes;
use towline::config::{
    self, Cipher, CipherPreference, ClientAuth, ClientConfig, Identity, KeyExchange,
    KeyExchangePreference, Options, Resumption, Trust,
};

use crate::Result;
use crate::material::{authority, certificate};
use crate::stack::{self, Packets, RecvHalf, SendHalf};

/// Most bytes taken from a stream at once, as `towline perf` does.
const READ_AT_MOST: usize = 256 * 1024;

pub(crate) struct Towline;

impl stack::Stack for Towline {
    type Endpoint = Endpoint;

    fn listen(settings: &Settings) -> Result<Endpoint> {
        let (chain, key) = certificate(settings)?;
        let identity = Identity::from_pem(&chain, &key)?;
        let config = config::server(&identity, &ClientAuth::None, &options(settings))?;
        Ok(Endpoint {
            endpoint: towline::Endpoint::server(settings.addr, config)?,
            client: None,
        })
    }

    fn dial(settings: &Settings) -> Result<Endpoint> {
        let trust = Trust::roots_from_pem(&authority(settings)?)?;
        let config = config::client(&trust, None, &options(settings))?;
        Ok(Endpoint {
            endpoint: towline::Endpoint::client(crate::client_address(settings))?,
            client: Some(config),
        })
    }
}

fn options(settings: &Settings) -> Options {
    let mut options = Options::new(ALPN);
    options.ciphers = CipherPreference::only(match settings.cipher {
        Aead::Aes128gcm => Cipher::Aes128Gcm,
        Aead::Aes256gcm => Cipher::Aes256Gcm,
        Aead::Chacha20 => Cipher::ChaCha20,
    });
    options.key_exchanges = KeyExchangePreference::only(KeyExchange::X25519);
    options.resumption = Resumption::Disabled;
    if let Some(mtu) = settings.mtu {
        options.transport = options.transport.mtu(mtu);
    }
    if let Some(seconds) = settings.idle_timeout {
        options.transport.max_idle_timeout = Duration::from_secs(seconds);
    }
    if let Some(streams) = settings.permitted_streams {
        options.transport.max_concurrent_bidi_streams = streams.into();
        options.transport.max_concurrent_uni_streams = streams.into();
    }
    options
}

pub(crate) struct Endpoint {
    endpoint: towline::Endpoint,
    client: Option<ClientConfig>,
}

impl stack::Endpoint for Endpoint {
    type Connection = towline::Connection;
    type Accepting = Ready<Result<towline::Connection>>;

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.local_addr())
    }

    async fn accept(&mut self) -> Option<Self::Accepting> {
        Some(ready(Ok(self.endpoint.accept().await?)))
    }

    fn connect(
        &self,
        to: SocketAddr,
    ) -> impl Future<Output = Result<towline::Connection>> + Send + 'static {
        let (endpoint, client) = (self.endpoint.clone(), self.client.clone());
        async move {
            let client = client.ok_or("this endpoint only accepts")?;
            Ok(endpoint.connect(to, SERVER_NAME, &client).await?)
        }
    }

    async fn wait_idle(&mut self) {
        self.endpoint.wait_idle().await;
    }
}

impl stack::Connection for towline::Connection {
    type Send = towline::SendStream;
    type Recv = towline::RecvStream;

    async fn open(&mut self) -> Result<(Self::Send, Self::Recv)> {
        Ok(self.open_bi().await?)
    }

    async fn accept(&mut self) -> Result<(Self::Send, Self::Recv)> {
        Ok(self.accept_bi().await?)
    }

    async fn send_datagram(&mut self, data: Bytes) -> Result<()> {
        Ok(self.send_datagram_wait(data).await?)
    }

    async fn read_datagram(&mut self) -> Result<Bytes> {
        Ok(towline::Connection::read_datagram(self).await?)
    }

    fn close(&mut self) {
        towline::Connection::close(self, 0, b"");
    }

    async fn closed(&mut self) {
        towline::Connection::closed(self).await;
    }

    fn packets(&self) -> Option<Packets> {
        let stats = self.stats();
        Some(Packets {
            sent: stats.packets_sent,
            bytes_sent: stats.bytes_sent,
            received: stats.packets_received,
        })
    }
}

impl SendHalf for towline::SendStream {
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

impl RecvHalf for towline::RecvStream {
    async fn skip(&mut self) -> Result<Option<usize>> {
        let chunk = self.read_chunk(READ_AT_MOST).await?;
        Ok(chunk.map(|chunk| chunk.len()))
    }

    async fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        Ok(self.read(into).await?)
    }
}
