//! TLS 1.3 over TCP by rustls: the echo alone, as the latency that QUIC is held against.

use std::sync::Arc;

use bench_contract::meter::Meter;
use bench_contract::{LISTENING, Measure, Role, SERVER_NAME, Settings};
use bytes::Bytes;
use rustls::pki_types::ServerName;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::Result;
use crate::material::{client_tls, server_tls};
use crate::measures::{WARM_UP, echo, ping, print};
use crate::stack::{RecvHalf, SendHalf};

/// Runs one end of the echo.
pub(crate) async fn run(role: Role, measure: Measure, settings: &Settings) -> Result<()> {
    if measure != Measure::Echo {
        return Err("TLS over TCP is measured by the echo alone".into());
    }
    let report = match role {
        Role::Server => {
            let acceptor = TlsAcceptor::from(Arc::new(server_tls(settings)?));
            let listener = TcpListener::bind(settings.addr).await?;
            println!("{LISTENING}{}", listener.local_addr()?);
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (read, write) = tokio::io::split(acceptor.accept(stream).await?);
            let meter = Meter::start()?;
            let count = echo(Writer(write), Reader(read)).await?;
            meter.stop(count.saturating_sub(WARM_UP))?
        }
        Role::Client => {
            let connector = TlsConnector::from(Arc::new(client_tls(settings)?));
            let stream = TcpStream::connect(settings.addr).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(SERVER_NAME)?;
            let (read, write) = tokio::io::split(connector.connect(name, stream).await?);
            ping(Writer(write), Reader(read), settings.count).await?
        }
    };
    print(&report)
}

struct Writer<S>(WriteHalf<S>);
struct Reader<S>(ReadHalf<S>);

impl<S: AsyncRead + AsyncWrite + Send + 'static> SendHalf for Writer<S> {
    async fn write_chunk(&mut self, data: Bytes) -> Result<()> {
        self.write(&data).await
    }

    async fn write(&mut self, data: &[u8]) -> Result<()> {
        self.0.write_all(data).await?;
        Ok(self.0.flush().await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.shutdown().await?)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> RecvHalf for Reader<S> {
    async fn skip(&mut self) -> Result<Option<usize>> {
        let mut buffer = [0; 4096];
        self.read(&mut buffer).await
    }

    async fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        let n = self.0.read(into).await?;
        Ok((n > 0).then_some(n))
    }
}
