//! What a measurement needs of a QUIC stack.
//!
//! Thin traits with one implementation a stack, so that all stacks run the same application code
//! and the compiler sees through the seam: no `dyn` on the way of a byte.

use std::future::Future;
use std::net::SocketAddr;

use bench_contract::Settings;
use bytes::Bytes;

use crate::Result;

/// A QUIC stack.
pub(crate) trait Stack {
    type Endpoint: Endpoint;

    /// An endpoint that accepts at `settings.addr`.
    fn listen(settings: &Settings) -> Result<Self::Endpoint>;
    /// An endpoint that connects.
    fn dial(settings: &Settings) -> Result<Self::Endpoint>;
}

pub(crate) trait Endpoint: Send + 'static {
    type Connection: Connection;
    /// A handshake under way, where the stack hands those out; several may be awaited at once.
    type Accepting: Future<Output = Result<Self::Connection>> + Send + 'static;

    fn local_addr(&self) -> Result<SocketAddr>;
    fn accept(&mut self) -> impl Future<Output = Option<Self::Accepting>> + Send;
    /// A future that shares nothing with `self`, so that several can run at once.
    fn connect(
        &self,
        to: SocketAddr,
    ) -> impl Future<Output = Result<Self::Connection>> + Send + 'static;
    /// Until what was closed is gone from the wire.
    fn wait_idle(&mut self) -> impl Future<Output = ()> + Send;
}

pub(crate) trait Connection: Send + 'static {
    type Send: SendHalf;
    type Recv: RecvHalf;

    fn open(&mut self) -> impl Future<Output = Result<(Self::Send, Self::Recv)>> + Send;
    fn accept(&mut self) -> impl Future<Output = Result<(Self::Send, Self::Recv)>> + Send;
    /// Waits while the queue is full.
    fn send_datagram(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send;
    fn read_datagram(&mut self) -> impl Future<Output = Result<Bytes>> + Send;
    fn close(&mut self);
    /// Until the connection is over, whoever ended it.
    fn closed(&mut self) -> impl Future<Output = ()> + Send;
    fn packets(&self) -> Option<Packets>;
}

pub(crate) trait SendHalf: Send + 'static {
    /// Hands the bytes over without copying them.
    fn write_chunk(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send;
    fn write(&mut self, data: &[u8]) -> impl Future<Output = Result<()>> + Send;
    fn finish(&mut self) -> impl Future<Output = Result<()>> + Send;
}

pub(crate) trait RecvHalf: Send + 'static {
    /// The length of the next bytes, taken by the cheapest call there is; `None` at the end.
    fn skip(&mut self) -> impl Future<Output = Result<Option<usize>>> + Send;
    /// The next bytes, at least one; `None` at the end.
    fn read(&mut self, into: &mut [u8]) -> impl Future<Output = Result<Option<usize>>> + Send;
}

/// A connection's counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Packets {
    pub(crate) sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) received: u64,
}
