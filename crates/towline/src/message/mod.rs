//! Messages: one unidirectional stream each, with metadata that arrives first.
//!
//! A layer over any [`Connection`](crate::Connection) whose unidirectional streams are messages:
//! do not call `accept_uni` beside a [`MessageReceiver`]. The format is in `towline_wire`'s
//! `MessageHeader`: type and version, length of the metadata, length of the payload where the
//! sender knows it, metadata, payload.
//!
//! ```no_run
//! # async fn example(near: towline::Connection, far: towline::Connection)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use towline::message::{MessageOptions, MessageReceiver, MessageSender};
//!
//! let options = MessageOptions::new("chart 42").length(11);
//! let mut writer = MessageSender::new(&near).open(options).await?;
//! writer.write_all(b"hello ").await?;
//! writer.write_all(b"world").await?;
//! writer.finish()?;
//!
//! let mut receiver = MessageReceiver::new(&far);
//! let message = receiver.accept().await?;
//! assert_eq!(message.metadata(), "chart 42"); // before the payload
//! assert_eq!(message.into_reader().read_to_end(100).await?, b"hello world");
//! # Ok(()) }
//! ```
//!
//! # Readers
//!
//! An [`IncomingMessage`] is a reader that has not read yet; a clone of it is another one, with a
//! position of its own. [`MessageReader`] reads in order, [`FragmentReader`] takes what arrives as
//! it arrives, [`IncomingMessage::pipe_to`] forwards it to another connection. What one reader
//! still needs is kept, up to [`MAX_MESSAGE_BUFFER`] bytes from the slowest reader on, in at most
//! 1024 pieces; beyond, the sender is held back by flow control. **A reader that is kept and not read stops the others**
//! once they are that far ahead: drop what you do not read. Dropping the last one asks the sender
//! to stop.
//!
//! # What a peer can and cannot do
//!
//! Memory is taken for what arrives, never for what is declared. More or fewer bytes than declared
//! fail every reader of that message ([`MessageError::TooLong`], [`MessageError::TooShort`]), and
//! no other: one bad message never ends the connection. A sender that falls silent is waited for
//! without limit once its header is there: put a `tokio::time::timeout` around the read whose
//! patience you know. What lies unread in streams uses up the connection's receive window, of
//! which messages that are read quickly want a part too: stop or read what has arrived.
//!
//! # Cancellation
//!
//! Dropping a future of `accept`, `next_chunk`, `next`, `read`, `read_at`, `write` or `delivered`
//! loses nothing. `open`, `send` and `pipe_to` abort their message when dropped. `write_all`,
//! `write_chunk` and `read_to_end` do several steps, of which the done ones stay done.

mod error;
mod fan;
mod incoming;
mod pipe;
mod reader;
mod receive;
mod send;
mod shared;

pub use error::{MessageError, PipeError, SendMessageError};
pub use incoming::IncomingMessage;
pub use reader::{Fragment, FragmentReader, MessageReader};
pub use receive::{HEADER_TIMEOUT, MAX_MESSAGES_AT_ONCE, MessageReceiver, Refusal};
pub use send::{MessageOptions, MessageSender, MessageWriter};
pub use towline_message::MAX_MESSAGE_BUFFER;
pub use towline_wire::{MAX_MESSAGE_METADATA, MessageHeaderError};

/// Code of STOP_SENDING and RESET_STREAM: the message breaks the format or its own declaration.
pub const CODE_MALFORMED: u64 = 0x4d01;

/// Code of STOP_SENDING: the header took too long.
pub const CODE_HEADER_TIMEOUT: u64 = 0x4d02;

/// Code of RESET_STREAM or STOP_SENDING from a relay: its other connection is gone.
pub const CODE_RELAY_LOST: u64 = 0x4d03;
