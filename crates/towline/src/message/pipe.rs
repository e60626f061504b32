//! Forwarding a message to another connection, fragment by fragment.
//!
//! What arrives is written at its place in the next stream at once. Nothing is kept here: a
//! fragment that finds no room stays with the message, and a lower one that arrives meanwhile,
//! which may be what the next node waits for, goes first.

use std::future::poll_fn;
use std::task::{Context, Poll};

use super::error::{MessageError, PipeError, SendMessageError};
use super::send::{MessageOptions, MessageSender};
use super::shared::Handle;
use super::{CODE_MALFORMED, CODE_RELAY_LOST};
use crate::handles::{Connection, SendStream, WriteError};

/// Fragments forwarded before other tasks get their turn.
const FRAGMENTS_A_TURN: usize = 64;

pub(super) async fn pipe(
    message: Handle,
    next: &Connection,
    priority: i64,
) -> Result<u64, PipeError> {
    let head = message.head();
    let options = MessageOptions {
        metadata: head.metadata.clone(),
        length: head.length,
        priority,
    };
    let opened = MessageSender::new(next).open(options).await;
    let (mut out, head_len) = match opened {
        Ok(writer) => writer.into_parts(),
        Err(error) => {
            message.leave(code_for_sender(&error));
            return Err(PipeError::Outgoing(error));
        }
    };
    match poll_fn(|cx| poll_pipe(&message, &mut out, head_len, cx)).await {
        Err(PipeError::Incoming(error)) => {
            out.reset(code_for_receiver(&error));
            Err(PipeError::Incoming(error))
        }
        Err(PipeError::Outgoing(error)) => {
            message.leave(code_for_sender(&error));
            Err(PipeError::Outgoing(error))
        }
        Ok(len) => Ok(len),
    }
}

fn poll_pipe(
    message: &Handle,
    out: &mut SendStream,
    head_len: u64,
    cx: &mut Context<'_>,
) -> Poll<Result<u64, PipeError>> {
    let outgoing = |error: WriteError| Poll::Ready(Err(PipeError::Outgoing(error.into())));
    for _ in 0..FRAGMENTS_A_TURN {
        let (offset, mut data) = match message.poll_fragment(cx) {
            Poll::Ready(Ok(Some(fragment))) => fragment,
            Poll::Ready(Ok(None)) => {
                return match out.finish() {
                    Ok(()) => Poll::Ready(Ok(message.position())),
                    Err(error) => outgoing(error),
                };
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(PipeError::Incoming(error))),
            Poll::Pending => return out.poll_writer_stopped(cx).map(|error| Err(stopped(error))),
        };
        match out.poll_write_at(cx, head_len + offset, &mut data) {
            Poll::Ready(Ok(n)) => message.consume(offset, n),
            Poll::Ready(Err(error)) => return outgoing(error),
            // No room: the sender may still abort.
            Poll::Pending => {
                return message
                    .poll_fault(cx)
                    .map(|error| Err(PipeError::Incoming(error)));
            }
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn stopped(error: WriteError) -> PipeError {
    PipeError::Outgoing(error.into())
}

fn code_for_receiver(error: &MessageError) -> u64 {
    match error {
        MessageError::Aborted(code) => *code,
        MessageError::ConnectionLost(_) => CODE_RELAY_LOST,
        _ => CODE_MALFORMED,
    }
}

fn code_for_sender(error: &SendMessageError) -> u64 {
    match error {
        SendMessageError::Stopped(code) => *code,
        _ => CODE_RELAY_LOST,
    }
}
