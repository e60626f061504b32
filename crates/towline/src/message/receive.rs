//! [`MessageReceiver`]: takes the peer's unidirectional streams as messages.
//!
//! Headers of several messages may be on their way at once: one that is slow or bad keeps no other
//! one waiting. A stream that is no message is stopped and counted, and the connection goes on.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use towline_message::HeadReader;
use towline_quic::ConnectionError;
use towline_wire::{MessageHeaderError, StreamId};

use super::incoming::IncomingMessage;
use super::shared::Handle;
use super::{CODE_HEADER_TIMEOUT, CODE_MALFORMED};
use crate::handles::{Connection, ReadError, RecvStream};

/// Cap: messages of one receiver that are on their way or held by the application at once, unless
/// [`MessageReceiver::with_limit`] says otherwise. Further ones wait in their streams, whose number
/// the transport settings bound.
pub const MAX_MESSAGES_AT_ONCE: usize = 128;

/// A header with its metadata must have arrived this long after its stream was accepted.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a stream of the peer's did not become a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its header is impossible: the peer's fault. It was stopped with
    /// [`CODE_MALFORMED`](super::CODE_MALFORMED).
    #[error(transparent)]
    Header(#[from] MessageHeaderError),
    /// It ended inside its header: the peer's fault.
    #[error(
        "the peer ended a stream inside the header of a message; the stream is dropped, no other"
    )]
    EndsInHeader,
    /// Its header took longer than [`HEADER_TIMEOUT`]. It was stopped with
    /// [`CODE_HEADER_TIMEOUT`](super::CODE_HEADER_TIMEOUT).
    #[error(
        "the peer did not send the header of a message within {} s; its stream was stopped",
        HEADER_TIMEOUT.as_secs()
    )]
    TimedOut,
    /// The peer gave the message up before its header had arrived.
    #[error("the peer aborted a message with code {0:#x} before its header arrived")]
    Aborted(u64),
}

/// Takes messages from a connection. One for each connection: it owns the incoming unidirectional
/// streams.
pub struct MessageReceiver {
    connection: Connection,
    slots: Arc<Semaphore>,
    opening: Vec<Opening>,
    refused: u64,
    last_refusal: Option<Refusal>,
}

impl MessageReceiver {
    /// A receiver on `connection` of at most [`MAX_MESSAGES_AT_ONCE`].
    pub fn new(connection: &Connection) -> Self {
        Self::with_limit(connection, MAX_MESSAGES_AT_ONCE)
    }

    /// A receiver of at most `limit` messages at once, at least one: with as many held, `accept`
    /// waits for one to be dropped. Each may hold
    /// [`MAX_MESSAGE_BUFFER`](super::MAX_MESSAGE_BUFFER) bytes besides its metadata and its
    /// stream's window.
    pub fn with_limit(connection: &Connection, limit: usize) -> Self {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            connection: connection.clone(),
            slots: Arc::new(Semaphore::new(limit)),
            opening: Vec::new(),
            refused: 0,
            last_refusal: None,
        }
    }

    /// The next message whose header has arrived, in order of that.
    ///
    /// Streams that are no messages are refused on the way: see [`refused`](Self::refused).
    ///
    /// Cancel safe: a dropped call loses no message. Headers arrive, and their time runs, whether
    /// it is called or not; they are looked at when it is.
    ///
    /// # Errors
    /// When the connection is over; with `limit` messages held, also while some wait.
    pub async fn accept(&mut self) -> Result<IncomingMessage, ConnectionError> {
        loop {
            let Self {
                connection,
                slots,
                opening,
                ..
            } = self;
            let full = slots.available_permits() == 0;
            let next = async {
                let permit = Arc::clone(slots).acquire_owned().await;
                let permit = permit.expect("the semaphore is never closed");
                connection.accept_uni().await.map(|stream| (stream, permit))
            };
            tokio::select! {
                biased;
                (id, header) = poll_fn(|cx| poll_opening(opening, cx)) => match header {
                    Ok(Some(message)) => return Ok(message),
                    Ok(None) => {} // The connection is lost, which accepting tells.
                    Err(refusal) => self.refuse(id, refusal),
                },
                accepted = next => {
                    let (stream, permit) = accepted?;
                    self.opening.push(Opening::new(stream, permit));
                }
                error = connection.closed(), if full => return Err(error),
            }
        }
    }

    fn refuse(&mut self, id: StreamId, refusal: Refusal) {
        tracing::debug!(?id, %refusal, "no message");
        self.refused += 1;
        self.last_refusal = Some(refusal);
    }

    /// Streams of the peer's that did not become messages.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Why the last of them did not.
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.last_refusal.as_ref()
    }
}

impl fmt::Debug for MessageReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageReceiver")
            .field("connection", &self.connection)
            .field("opening", &self.opening.len())
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

type Opened = Result<Option<IncomingMessage>, Refusal>;

/// The first message whose header is here or will not come; it leaves the list.
fn poll_opening(opening: &mut Vec<Opening>, cx: &mut Context<'_>) -> Poll<(StreamId, Opened)> {
    for i in 0..opening.len() {
        if let Poll::Ready(result) = opening[i].poll(cx) {
            let Opening {
                mut stream,
                permit,
                head,
                ..
            } = opening.remove(i);
            let id = stream.id();
            let message = match result {
                Err(Some(refusal)) => {
                    stream.stop(match refusal {
                        Refusal::TimedOut => CODE_HEADER_TIMEOUT,
                        _ => CODE_MALFORMED,
                    });
                    Err(refusal)
                }
                Err(None) => Ok(None),
                Ok(()) => Ok(head.finish().map(|head| {
                    let handle = Handle::new(head, stream, permit);
                    IncomingMessage::new(handle)
                })),
            };
            return Poll::Ready((id, message));
        }
    }
    Poll::Pending
}

/// A stream whose header is not complete.
struct Opening {
    stream: RecvStream,
    permit: OwnedSemaphorePermit,
    deadline: Pin<Box<Sleep>>,
    head: HeadReader,
}

impl Opening {
    fn new(stream: RecvStream, permit: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            permit,
            deadline: Box::pin(tokio::time::sleep(HEADER_TIMEOUT)),
            head: HeadReader::default(),
        }
    }

    /// Ready when header and metadata are here, or (`Err`) will not be; `None` without a refusal
    /// when the connection is lost.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Option<Refusal>>> {
        loop {
            let missing = match self.head.missing() {
                Ok(missing) => missing,
                Err(error) => return Poll::Ready(Err(Some(error.into()))),
            };
            if missing == 0 {
                return Poll::Ready(Ok(()));
            }
            match self.stream.poll_read_chunk(cx, missing) {
                Poll::Ready(Ok(Some(chunk))) => self.head.handle_data(&chunk),
                Poll::Ready(Ok(None)) => return Poll::Ready(Err(Some(Refusal::EndsInHeader))),
                Poll::Ready(Err(ReadError::Reset(code))) => {
                    return Poll::Ready(Err(Some(Refusal::Aborted(code))));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(None)),
                Poll::Pending => {
                    let late = self.deadline.as_mut().poll(cx);
                    return late.map(|()| Err(Some(Refusal::TimedOut)));
                }
            }
        }
    }
}
