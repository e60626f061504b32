//! Transfers between two endpoints of this process over real sockets, timed by one clock.
//!
//! Used by this bench and by `make bench-seed`. A time ends when the receiving application has read
//! the last byte. Both ends have the product's defaults but for what the sender is told.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use towline::config::{
    self, ClientAuth, ClientConfig, Identity, KeyLogging, Options, Resumption, TransportConfig,
    Trust,
};
use towline::identity::Pin;
use towline::{Connection, Endpoint};

/// What any step here may run into.
pub type Failure = Box<dyn Error + Send + Sync>;

const NAME: &str = "localhost";

/// Size of the writes of a transfer without end.
const CHUNK: usize = 64 << 10;

/// A client and a server endpoint on the loopback interface.
pub struct Loopback {
    client: Endpoint,
    server: Endpoint,
    config: ClientConfig,
    /// Where the client connects to: the server, or what stands before it.
    pub to: SocketAddr,
}

/// One connection, both ends of it.
pub struct Pair {
    /// Who sends.
    pub near: Connection,
    /// Who receives.
    pub far: Connection,
}

impl Loopback {
    /// Two endpoints; every handshake is a full one. `sender` are the client's settings.
    ///
    /// # Errors
    /// When no socket can be bound.
    pub fn new(sender: TransportConfig) -> Result<Self, Failure> {
        let mut options = Options::new("bench");
        options.key_log = KeyLogging::Off;
        options.resumption = Resumption::Disabled;
        let identity = Identity::generate_dev(&[NAME], config::unix_now())?;
        let server = config::server(&identity, &ClientAuth::None, &options)?;
        options.transport = sender;
        let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
        let config = config::client(&trust, None, &options)?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Endpoint::server(any, server)?;
        Ok(Self {
            client: Endpoint::client(any)?,
            to: server.local_addr(),
            server,
            config,
        })
    }

    /// A new connection, once both ends have it.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn connect(&self) -> Result<Pair, Failure> {
        let connect = self.client.connect(self.to, NAME, &self.config);
        let (near, far) = tokio::join!(connect, self.server.accept());
        Ok(Pair {
            near: near?,
            far: far.ok_or("the server endpoint is closed")?,
        })
    }

    /// A connection and a transfer over it: time until the client had the connection, and until
    /// the receiver had all bytes of all streams.
    ///
    /// # Errors
    /// When either fails.
    pub async fn connect_and_send(
        &self,
        streams: u32,
        data: &Bytes,
    ) -> Result<(Duration, Duration), Failure> {
        let begin = Instant::now();
        let pair = self.connect().await?;
        let connected = begin.elapsed();
        pair.send(streams, data).await?;
        let whole = begin.elapsed();
        pair.near.close(0, b"");
        Ok((connected, whole))
    }
}

impl Pair {
    /// `data` on each of so many streams at once; until the receiver has read all of it.
    ///
    /// # Errors
    /// When the connection ends before, or something else arrives than was sent.
    pub async fn send(&self, streams: u32, data: &Bytes) -> Result<Duration, Failure> {
        let begin = Instant::now();
        let mut tasks: JoinSet<Result<Option<Instant>, Failure>> = JoinSet::new();
        for _ in 0..streams {
            let (near, data, expected) = (self.near.clone(), data.clone(), data.len());
            tasks.spawn(async move {
                let mut stream = near.open_uni().await?;
                stream.write_chunk(data).await?;
                stream.finish()?;
                Ok(None)
            });
            let far = self.far.clone();
            tasks.spawn(async move {
                let mut stream = far.accept_uni().await?;
                let mut read = 0;
                while let Some(chunk) = stream.read_chunk(usize::MAX).await? {
                    read += chunk.len();
                }
                if read == expected {
                    return Ok(Some(Instant::now()));
                }
                Err(format!("{read} of {expected} bytes arrived").into())
            });
        }
        let mut end = begin;
        while let Some(done) = tasks.join_next().await {
            end = done??.map_or(end, |at| end.max(at));
        }
        Ok(end - begin)
    }

    /// One stream without end: bytes the receiver had read after `span`.
    ///
    /// # Errors
    /// When the connection ends before.
    pub async fn saturate(&self, span: Duration) -> Result<u64, Failure> {
        let mut sending = self.near.open_uni().await?;
        let sender = tokio::spawn(async move {
            let chunk = Bytes::from_static(&[0; CHUNK]);
            while sending.write_chunk(chunk.clone()).await.is_ok() {}
        });
        let mut receiving = self.far.accept_uni().await?;
        let mut read = 0;
        let count = async {
            while let Some(chunk) = receiving.read_chunk(usize::MAX).await? {
                read += chunk.len() as u64;
            }
            Err::<(), Failure>("the stream without end has ended".into())
        };
        match tokio::time::timeout(span, count).await {
            Ok(ended) => ended?,
            Err(_elapsed) => {}
        }
        self.near.close(0, b"");
        sender.await?;
        Ok(read)
    }
}
