//! wtransport behind the traits: its default configuration, with the certificate's hash at the client.
//!
//! Its feature `quinn` is on for the streams that a server permits, and for nothing else. Its streams
//! have no calls that do not copy.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bench_contract::sessions::{PATH, SessionSettings};
use bytes::Bytes;
use wtransport::config::QuicTransportConfig;
use wtransport::endpoint::endpoint_side;
use wtransport::tls::client::ServerHashVerification;
use wtransport::tls::rustls::crypto::CryptoProvider;
use wtransport::tls::rustls::crypto::ring::{cipher_suite, default_provider};
use wtransport::tls::rustls::version::TLS13;
use wtransport::tls::{Sha256Digest, WEBTRANSPORT_ALPN, rustls};
use wtransport::{
    ClientConfig, Connection, Endpoint, Identity, RecvStream, SendStream, ServerConfig, VarInt,
};

use crate::stack::{self, RecvHalf, SendHalf};
use crate::{Error, Result};

/// Most bytes taken from a stream at once.
const READ_AT_MOST: usize = 32 * 1024;

pub(crate) struct Wtransport;

impl stack::Stack for Wtransport {
    type Session = Connection;
    type Server = Endpoint<endpoint_side::Server>;
    type Client = Endpoint<endpoint_side::Client>;

    async fn listen(settings: &SessionSettings) -> Result<Self::Server> {
        let identity = identity(settings).await?;
        let builder = ServerConfig::builder().with_bind_address(settings.addr);
        let builder = match settings.permitted_streams {
            None => builder.with_identity(identity),
            Some(streams) => {
                let mut transport = QuicTransportConfig::default();
                transport
                    .max_concurrent_bidi_streams(streams.into())
                    .max_concurrent_uni_streams(streams.into());
                builder.with_custom_transport(identity, transport)
            }
        };
        Ok(Endpoint::server(builder.build())?)
    }

    async fn dial(settings: &SessionSettings) -> Result<Self::Client> {
        let identity = identity(settings).await?;
        let leaf = identity.certificate_chain().as_slice().first();
        let hash = leaf.ok_or("no certificate")?.hash();
        let builder = ClientConfig::builder().with_bind_address((Ipv4Addr::LOCALHOST, 0).into());
        let builder = match settings.aes128 {
            false => builder.with_server_certificate_hashes([hash]),
            true => builder.with_custom_tls(aes128(hash)?),
        };
        Ok(Endpoint::client(builder.build())?)
    }
}

async fn identity(settings: &SessionSettings) -> Result<Identity> {
    let path = |name| settings.material.join(name);
    Ok(Identity::load_pemfiles(path("cert.pem"), path("key.pem")).await?)
}

/// As wtransport's own, with one cipher suite.
fn aes128(hash: Sha256Digest) -> Result<rustls::ClientConfig> {
    let provider = CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..default_provider()
    };
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerHashVerification::new([hash])))
        .with_no_client_auth();
    tls.alpn_protocols = vec![WEBTRANSPORT_ALPN.to_vec()];
    Ok(tls)
}

impl stack::Server for Endpoint<endpoint_side::Server> {
    type Session = Connection;
    type Accepting = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(Endpoint::local_addr(self)?)
    }

    async fn accept(&self) -> Option<Self::Accepting> {
        let incoming = Endpoint::accept(self).await;
        Some(Box::pin(async move {
            let request = incoming.await?;
            if request.path() != PATH {
                return Err(format!("a session at {}", request.path()).into());
            }
            Ok::<_, Error>(request.accept().await?)
        }))
    }
}

impl stack::Client for Endpoint<endpoint_side::Client> {
    type Session = Connection;

    async fn connect(&self, to: SocketAddr) -> Result<Connection> {
        Ok(Endpoint::connect(self, format!("https://{to}{PATH}")).await?)
    }
}

impl stack::Session for Connection {
    type Send = SendStream;
    type Recv = Receiving;

    async fn open(&self) -> Result<(SendStream, Receiving)> {
        let (send, recv) = self.open_bi().await?.await?;
        Ok((send, Receiving::new(recv)))
    }

    async fn accept(&self) -> Result<(SendStream, Receiving)> {
        let (send, recv) = self.accept_bi().await?;
        Ok((send, Receiving::new(recv)))
    }

    async fn send_datagram(&self, data: Bytes) -> Result<()> {
        // A full queue loses its oldest; nothing waits.
        Ok(Connection::send_datagram(self, data)?)
    }

    async fn read_datagram(&self) -> Result<Bytes> {
        Ok(self.receive_datagram().await?.payload())
    }

    fn close(&self) {
        Connection::close(self, VarInt::from_u32(0), b"");
    }
}

impl SendHalf for SendStream {
    async fn write_chunk(&mut self, data: Bytes) -> Result<()> {
        Ok(self.write_all(&data).await?)
    }

    async fn write(&mut self, data: &[u8]) -> Result<()> {
        Ok(self.write_all(data).await?)
    }

    fn finish(self) -> Result<()> {
        // Its own call waits for the peer; a dropped stream is finished as well.
        drop(self);
        Ok(())
    }
}

/// A stream with what it is read into.
pub(crate) struct Receiving {
    stream: RecvStream,
    buffer: Vec<u8>,
}

impl Receiving {
    fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }
}

impl RecvHalf for Receiving {
    async fn skip(&mut self, max: usize) -> Result<Option<usize>> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; READ_AT_MOST];
        }
        let into = &mut self.buffer[..max.min(READ_AT_MOST)];
        Ok(self.stream.read(into).await?)
    }

    async fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        Ok(self.stream.read(into).await?)
    }
}
