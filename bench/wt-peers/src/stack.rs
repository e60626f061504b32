//! What a measurement needs of a WebTransport stack.
//!
//! Thin traits with one implementation a stack, so that all stacks run the same application code
//! and the compiler sees through the seam: no `dyn` on the way of a byte.

use std::future::Future;
use std::net::SocketAddr;

use bench_contract::sessions::SessionSettings;
use bytes::Bytes;

use crate::Result;

/// A WebTransport stack.
pub(crate) trait Stack {
    type Session: Session;
    type Server: Server<Session = Self::Session>;
    type Client: Client<Session = Self::Session>;

    /// An endpoint that accepts at `settings.addr`.
    async fn listen(settings: &SessionSettings) -> Result<Self::Server>;
    /// An endpoint that connects.
    async fn dial(settings: &SessionSettings) -> Result<Self::Client>;
}

pub(crate) trait Server {
    type Session: Session;
    /// A connection whose session is not had yet; several may be awaited at once.
    type Accepting: Future<Output = Result<Self::Session>> + Send + 'static;

    fn local_addr(&self) -> Result<SocketAddr>;
    async fn accept(&self) -> Option<Self::Accepting>;
}

pub(crate) trait Client {
    type Session: Session;

    /// A connection and its session; the connection goes with the last clone of it.
    async fn connect(&self, to: SocketAddr) -> Result<Self::Session>;
}

pub(crate) trait Session: Clone + Send + Sync + 'static {
    type Send: SendHalf;
    type Recv: RecvHalf;

    fn open(&self) -> impl Future<Output = Result<(Self::Send, Self::Recv)>> + Send;
    fn accept(&self) -> impl Future<Output = Result<(Self::Send, Self::Recv)>> + Send;
    /// Waits while the queue is full, where the stack can.
    fn send_datagram(&self, data: Bytes) -> impl Future<Output = Result<()>> + Send;
    fn read_datagram(&self) -> impl Future<Output = Result<Bytes>> + Send;
    fn close(&self);
}

pub(crate) trait SendHalf: Send + 'static {
    /// Hands the bytes over by the cheapest call there is.
    fn write_chunk(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send;
    fn write(&mut self, data: &[u8]) -> impl Future<Output = Result<()>> + Send;
    /// Nothing more is written. Waits for nobody.
    fn finish(self) -> Result<()>;
}

pub(crate) trait RecvHalf: Send + 'static {
    /// The length of the next bytes, at most `max`, taken by the cheapest call there is; `None` at the end.
    fn skip(&mut self, max: usize) -> impl Future<Output = Result<Option<usize>>> + Send;
    /// The next bytes, at least one; `None` at the end.
    fn read(&mut self, into: &mut [u8]) -> impl Future<Output = Result<Option<usize>>> + Send;
}

/// Fills `into`.
pub(crate) async fn read_exact(recv: &mut impl RecvHalf, into: &mut [u8]) -> Result<()> {
    let mut have = 0;
    while have < into.len() {
        let next = recv.read(&mut into[have..]).await?;
        have += next.ok_or("a stream ended early")?;
    }
    Ok(())
}

/// What there is up to the end, at most `into`; its length.
pub(crate) async fn read_to_end(recv: &mut impl RecvHalf, into: &mut [u8]) -> Result<usize> {
    let mut have = 0;
    loop {
        // One more byte than fits would be an error, not an end.
        let mut one = [0];
        let next = match have < into.len() {
            true => recv.read(&mut into[have..]).await?,
            false => recv.read(&mut one).await?,
        };
        match next {
            None => return Ok(have),
            Some(_) if have == into.len() => return Err("a stream is too long".into()),
            Some(length) => have += length,
        }
    }
}

/// Writes so many bytes.
pub(crate) async fn send_bytes(
    send: &mut impl SendHalf,
    block: &Bytes,
    mut left: u64,
) -> Result<()> {
    while left > 0 {
        let length = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        send.write_chunk(block.slice(..length)).await?;
        left -= length as u64;
    }
    Ok(())
}
