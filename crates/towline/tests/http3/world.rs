//! A client and a server 10 ms apart that speak HTTP/3, and bodies for them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use towline::config::{self, ClientAuth, ClientConfig, Identity, Trust};
use towline::engine::{ProtocolConfig, TransportConfig};
use towline::http3::{self, Config, Connection, Router};
use towline::testing::{LinkConfig, Simulation};
use towline::{Endpoint, EndpointBuilder};

use crate::common::options;

pub(crate) fn there() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 443))
}

pub(crate) struct World {
    pub(crate) world: Simulation,
    pub(crate) client: Endpoint,
    pub(crate) server: Endpoint,
    trust: Trust,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(TransportConfig::default())
    }

    /// The server's end of HTTP/3 has these transport settings.
    pub(crate) fn with(transport: TransportConfig) -> Self {
        Self::of(transport, Config::default())
    }

    /// And this configuration.
    pub(crate) fn of(transport: TransportConfig, config: Config) -> Self {
        Self::build(transport, config, |server| server)
    }

    /// All connections of the server together may hold so many bytes.
    pub(crate) fn with_memory(limit: u64) -> Self {
        let (transport, config) = (TransportConfig::default(), Config::default());
        Self::build(transport, config, |server| server.memory_limit(limit))
    }

    fn build(
        transport: TransportConfig,
        config: Config,
        more: impl FnOnce(EndpointBuilder) -> EndpointBuilder,
    ) -> Self {
        let identity = Identity::generate_raw_key().unwrap();
        let server = config::server(&identity, &ClientAuth::None, &options()).unwrap();
        let http = ProtocolConfig::new(http3::ALPN).transport(transport);
        let server = Endpoint::builder()
            .server(server.protocols([http]))
            .http3(config);
        let server = more(server);
        let client = Endpoint::builder().http3(Config::default());
        let here = SocketAddr::from(([192, 0, 2, 1], 1000));
        let link = LinkConfig {
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        };
        let mut world = Simulation::new(1);
        world.join(here, there(), link.clone(), link).unwrap();
        Self {
            server: world.endpoint(server, there()).unwrap(),
            client: world.endpoint(client, here).unwrap(),
            world,
            trust: Trust::RawKeys(vec![identity.key_pin()]),
        }
    }

    pub(crate) fn config(&self, alpn: &str) -> ClientConfig {
        let options = options().alpn(vec![alpn.into()]);
        config::client(&self.trust, None, &options).unwrap()
    }

    pub(crate) fn door(&self) -> http3::Server {
        http3::Server::new(&self.server).unwrap()
    }

    /// A client's end, of a connection of its own.
    pub(crate) fn near(&mut self) -> Connection {
        let (client, config) = (self.client.clone(), self.config(http3::ALPN));
        self.world.block_on(async move {
            let near = http3::connect(&client, there(), "localhost", &config);
            near.await.unwrap()
        })
    }

    /// The client's end and the server's.
    pub(crate) fn connected(&mut self) -> (Connection, Connection) {
        let (near, server) = (self.near(), self.door());
        self.world
            .block_on(async move { (near, server.accept().await.unwrap()) })
    }

    /// The server answers by this router.
    pub(crate) fn route(&self, router: Router) {
        let (server, tasks) = (self.door(), self.world.tasks());
        let spawn = tasks.clone();
        tasks.spawn(async move {
            server.serve_with(router, |task| spawn.spawn(task)).await;
        });
    }

    /// Answers each request of `far` in a task of its own.
    pub(crate) fn serve<F>(&self, far: Connection, answer: impl Fn(http3::Request) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let tasks = self.world.tasks();
        self.world.tasks().spawn(async move {
            while let Some(request) = far.accept().await {
                tasks.spawn(answer(request));
            }
        });
    }

    pub(crate) fn run<F>(&mut self, future: F) -> F::Output
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.world.block_on(future)
    }
}

/// A body of these pieces, and then perhaps fields; its length is not known before.
pub(crate) struct Pieces(pub(crate) VecDeque<Frame<Bytes>>);

impl Pieces {
    /// So many bytes in pieces of 10,000.
    pub(crate) fn zeros(len: usize) -> Self {
        let piece = Bytes::from_static(&[0; 10_000]);
        let lens = (0..len)
            .step_by(piece.len())
            .map(|at| piece.len().min(len - at));
        Self(lens.map(|len| Frame::data(piece.slice(..len))).collect())
    }

    pub(crate) fn trailers(mut self, fields: HeaderMap) -> Self {
        self.0.push_back(Frame::trailers(fields));
        self
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}
