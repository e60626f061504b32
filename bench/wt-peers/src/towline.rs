//! Towline behind the traits: its public API and its defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;

use bench_contract::sessions::{PATH, SessionSettings};
use bytes::Bytes;
use towline::config::{
    self, Cipher, CipherPreference, ClientAuth, ClientConfig, Identity, Options, Trust,
};
use towline::webtransport::{self, Config, Session, connect};
use towline::{Endpoint, RecvStream, SendStream, http3};

use crate::stack::{self, RecvHalf, SendHalf};
use crate::{Error, Result};

/// Most bytes taken from a stream at once, as `towline perf` does.
const READ_AT_MOST: usize = 256 * 1024;

pub(crate) struct Towline;

impl stack::Stack for Towline {
    type Session = Session;
    type Server = Server;
    type Client = Client;

    async fn listen(settings: &SessionSettings) -> Result<Server> {
        let mut options = options(settings);
        let mut sessions = Config::default();
        if let Some(streams) = settings.permitted_streams {
            options.transport.max_concurrent_bidi_streams = streams.into();
            options.transport.max_concurrent_uni_streams = streams.into();
            sessions.sessions.initial_max_streams_bidi = streams.into();
            sessions.sessions.initial_max_streams_uni = streams.into();
        }
        let config = config::server(&identity(settings)?, &ClientAuth::None, &options)?;
        let endpoint = Endpoint::builder().server(config).webtransport(sessions);
        let endpoint = endpoint.bind(settings.addr)?;
        let server = webtransport::Server::new(&endpoint).ok_or("no WebTransport here")?;
        Ok(Server { endpoint, server })
    }

    async fn dial(settings: &SessionSettings) -> Result<Client> {
        let pin = identity(settings)?.certificate_pin();
        let trust = Trust::Pinned(vec![pin.ok_or("no certificate")?.into()]);
        let endpoint = Endpoint::builder().webtransport(Config::default());
        Ok(Client {
            endpoint: endpoint.bind((Ipv4Addr::LOCALHOST, 0).into())?,
            config: config::client(&trust, None, &options(settings))?,
        })
    }
}

fn identity(settings: &SessionSettings) -> Result<Identity> {
    let read = |name| std::fs::read(settings.material.join(name));
    Ok(Identity::from_pem(&read("cert.pem")?, &read("key.pem")?)?)
}

fn options(settings: &SessionSettings) -> Options {
    let mut options = Options::new(http3::ALPN);
    if settings.aes128 {
        options.ciphers = CipherPreference::only(Cipher::Aes128Gcm);
    }
    options
}

pub(crate) struct Server {
    endpoint: Endpoint,
    server: webtransport::Server,
}

impl stack::Server for Server {
    type Session = Session;
    type Accepting = Pin<Box<dyn Future<Output = Result<Session>> + Send>>;

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.local_addr())
    }

    async fn accept(&self) -> Option<Self::Accepting> {
        let connection = self.server.accept().await?;
        Some(Box::pin(async move {
            let request = connection.accept().await;
            let request = request.ok_or("a client left without a session")?;
            if request.path() != PATH {
                let path = request.path().to_owned();
                return Err(format!("a session at {path}").into());
            }
            Ok::<_, Error>(request.accept()?)
        }))
    }
}

pub(crate) struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
}

impl stack::Client for Client {
    type Session = Session;

    async fn connect(&self, to: SocketAddr) -> Result<Session> {
        let url = format!("https://{to}{PATH}");
        Ok(connect(&self.endpoint, &url, &self.config).await?)
    }
}

impl stack::Session for Session {
    type Send = SendStream;
    type Recv = RecvStream;

    async fn open(&self) -> Result<(SendStream, RecvStream)> {
        Ok(self.open_bi().await?)
    }

    async fn accept(&self) -> Result<(SendStream, RecvStream)> {
        Ok(self.accept_bi().await?)
    }

    async fn send_datagram(&self, data: Bytes) -> Result<()> {
        Ok(self.send_datagram_wait(data).await?)
    }

    async fn read_datagram(&self) -> Result<Bytes> {
        Ok(Session::read_datagram(self).await?)
    }

    fn close(&self) {
        Session::close(self, 0, "");
    }
}

impl SendHalf for SendStream {
    async fn write_chunk(&mut self, data: Bytes) -> Result<()> {
        Ok(SendStream::write_chunk(self, data).await?)
    }

    async fn write(&mut self, data: &[u8]) -> Result<()> {
        Ok(self.write_all(data).await?)
    }

    fn finish(mut self) -> Result<()> {
        Ok(SendStream::finish(&mut self)?)
    }
}

impl RecvHalf for RecvStream {
    async fn skip(&mut self, max: usize) -> Result<Option<usize>> {
        let chunk = self.read_chunk(max.min(READ_AT_MOST)).await?;
        Ok(chunk.map(|chunk| chunk.len()))
    }

    async fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        Ok(RecvStream::read(self, into).await?)
    }
}
