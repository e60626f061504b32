//! Endpoints on tokio: a task drives each shard, streams are `AsyncRead` and `AsyncWrite`.
//!
//! An endpoint has one shard unless [`EndpointBuilder::shards`] asks for more. Handles are those of
//! [`handles`](crate::handles), and may be used outside of tokio too; only binding needs a runtime.

mod alarm;
mod driver;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use towline_quic::{ClientConfig, ServerConfig};
use tracing::Instrument;

use crate::handles::{
    ATTEMPT_DELAY, ConnectError, Connection, Endpoint, EndpointBuilder, RecvStream, SendStream,
    Sessions,
};
use crate::io::{Shard, UdpSocket};
use driver::Driver;

impl Endpoint {
    /// An endpoint that only connects. Bind to `0.0.0.0:0` or `[::]:0` (both families).
    ///
    /// # Errors
    /// When called outside of a tokio runtime, or the address cannot be bound.
    pub fn client(bind: SocketAddr) -> io::Result<Self> {
        Self::builder().bind(bind)
    }

    /// An endpoint that accepts connections, and may connect too.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, the address cannot be bound, or the transport
    /// settings make no sense.
    pub fn server(bind: SocketAddr, config: ServerConfig) -> io::Result<Self> {
        Self::builder().server(config).bind(bind)
    }
}

impl Endpoint {
    /// Looks `host` up and connects to whichever of its addresses answers first (RFC 8305, Happy
    /// Eyeballs): IPv6 and IPv4 by turns, the next one after 250 ms. The server must prove to be `host`.
    ///
    /// An endpoint reaches both families when it is bound to `[::]`.
    ///
    /// Cancel safe: a dropped call gives the attempts up.
    ///
    /// # Errors
    /// When the name is not found, or all attempts fail: why the last one did.
    pub async fn connect_host(
        &self,
        host: &str,
        port: u16,
        config: &ClientConfig,
    ) -> Result<Connection, ConnectError> {
        let addresses = tokio::net::lookup_host((host, port)).await;
        let addresses = addresses.map_err(|error| ConnectError::Lookup {
            host: host.to_owned(),
            why: error.to_string(),
        })?;
        let mut race = self.race(addresses, host, config);
        let mut sleep = pin!(tokio::time::sleep(ATTEMPT_DELAY));
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(result) = race.poll(self.now(), cx) {
                    return Poll::Ready(result);
                }
                let Some(next) = race.next_timeout() else {
                    return Poll::Pending;
                };
                let next = self
                    .clock()
                    .instant(next)
                    .map(tokio::time::Instant::from_std);
                if let Some(next) = next.filter(|next| sleep.deadline() != *next) {
                    sleep.as_mut().reset(next);
                }
                ready!(sleep.as_mut().poll(cx));
            }
        })
        .await
    }
}

impl EndpointBuilder {
    /// Binds a socket for each shard and spawns their drivers on the current tokio runtime.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, the address cannot be bound, or the number of
    /// shards is out of range.
    pub fn bind(self, address: SocketAddr) -> io::Result<Endpoint> {
        let runtime = runtime()?;
        let (endpoint, shards) = self.bind_shards(address)?;
        spawn(&runtime, shards)?;
        Ok(endpoint)
    }

    /// As [`bind`](Self::bind), on a socket that is bound already. It can have one shard only.
    ///
    /// # Errors
    /// When called outside of a tokio runtime, the socket refuses an option, or several shards
    /// were asked for.
    pub fn on_socket(self, socket: std::net::UdpSocket) -> io::Result<Endpoint> {
        let runtime = runtime()?;
        let socket = self.adopt(socket)?;
        let (endpoint, shards) = self.on_sockets(vec![socket])?;
        spawn(&runtime, shards)?;
        Ok(endpoint)
    }
}

fn runtime() -> io::Result<tokio::runtime::Handle> {
    tokio::runtime::Handle::try_current().map_err(io::Error::other)
}

fn spawn(
    runtime: &tokio::runtime::Handle,
    shards: Vec<Shard<UdpSocket, Sessions>>,
) -> io::Result<()> {
    let mut drivers = Vec::with_capacity(shards.len());
    for (index, shard) in shards.into_iter().enumerate() {
        let info = shard.info();
        let span = tracing::info_span!("endpoint", local = %info.local_addr, shard = index);
        tracing::debug!(parent: &span, gso = info.gso_segments, gro = info.gro_segments,
            send_buffer = info.send_buffer.granted, recv_buffer = info.recv_buffer.granted, "bound");
        drivers.push(Driver::new(shard)?.instrument(span));
    }
    for driver in drivers {
        runtime.spawn(driver);
    }
    Ok(())
}

impl AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(RecvStream::poll_read(
            self.get_mut(),
            cx,
            out.initialize_unfilled()
        ))?;
        out.advance(read.unwrap_or(0));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        SendStream::poll_write(self.get_mut(), cx, data).map_err(Into::into)
    }

    /// Nothing to do: the engine sends as soon as credit and window permit.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// [`finish`](SendStream::finish); it does not wait for the peer.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_finished() {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.finish().map_err(Into::into))
    }
}
