//! A client and a server 10 ms apart that speak WebTransport.

use std::net::SocketAddr;
use std::time::Duration;

use towline::config::{self, ClientAuth, ClientConfig, Identity, Trust};
use towline::http3;
use towline::testing::{LinkConfig, Simulation};
use towline::webtransport::{Config, ConnectError, Connection, Server, Session, connect_to};
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
        Self::with(Config::default(), Config::default())
    }

    /// The two ends permit and offer this.
    pub(crate) fn with(client: Config, server: Config) -> Self {
        Self::of(
            Endpoint::builder().webtransport(client),
            Endpoint::builder().webtransport(server),
        )
    }

    pub(crate) fn of(client: EndpointBuilder, server: EndpointBuilder) -> Self {
        let identity = Identity::generate_raw_key().unwrap();
        let options = options().alpn(vec![http3::ALPN.into()]);
        let config = config::server(&identity, &ClientAuth::None, &options).unwrap();
        let here = SocketAddr::from(([192, 0, 2, 1], 1000));
        let link = LinkConfig {
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        };
        let mut world = Simulation::new(1);
        world.join(here, there(), link.clone(), link).unwrap();
        Self {
            server: world.endpoint(server.server(config), there()).unwrap(),
            client: world.endpoint(client, here).unwrap(),
            world,
            trust: Trust::RawKeys(vec![identity.key_pin()]),
        }
    }

    pub(crate) fn config(&self) -> ClientConfig {
        let options = options().alpn(vec![http3::ALPN.into()]);
        config::client(&self.trust, None, &options).unwrap()
    }

    /// A client's session on a connection of its own, which waits for an answer.
    pub(crate) fn asks(
        &self,
        head: http::Request<()>,
        protocols: &'static [&'static str],
    ) -> impl Future<Output = Result<Session, ConnectError>> + use<> {
        let (client, config) = (self.client.clone(), self.config());
        async move { connect_to(&client, there(), head, protocols, &config).await }
    }

    pub(crate) fn door(&self) -> Server {
        Server::new(&self.server).unwrap()
    }

    /// A session at both ends, and the server's connection.
    pub(crate) fn session(&mut self) -> (Session, Session, Connection) {
        let (asked, door) = (self.asks(request("/"), &[]), self.door());
        let accepted = async move {
            let connection = door.accept().await.unwrap();
            let session = connection.accept().await.unwrap().accept().unwrap();
            (session, connection)
        };
        self.world.block_on(async move {
            let (near, (far, connection)) = tokio::join!(asked, accepted);
            (near.unwrap(), far, connection)
        })
    }

    /// A further one, on the same connection.
    pub(crate) fn another(&mut self, near: &Session, far: &Connection) -> (Session, Session) {
        let http = http3::Connection::new(near.transport().clone()).unwrap();
        let (near, far) = (Connection::new(http), far.clone());
        self.world.block_on(async move {
            let accepted = async { far.accept().await.unwrap().accept().unwrap() };
            let (near, far) = tokio::join!(near.open(request("/"), &[]), accepted);
            (near.unwrap(), far)
        })
    }

    pub(crate) fn run<F>(&mut self, future: F) -> F::Output
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.world.block_on(future)
    }
}

pub(crate) fn request(path: &str) -> http::Request<()> {
    let uri = format!("https://boat.example:4433{path}");
    http::Request::get(uri).body(()).unwrap()
}
