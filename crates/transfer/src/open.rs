//! The opening messages of a session: what its opener asks for, and whether the other side agrees.
//!
//! The opener calls [`open`]; who takes the stream reads its kind, then calls [`read_opening`] and
//! [`accept`] or [`refuse`]. Whoever has agreed goes on with `send` or `receive` on the same stream.

use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::encoding::{Malformed, put_varint};
use crate::message::{Message, ReadError, Refusal, read_message};
use crate::path::RelativePath;
use crate::report::SessionError;

/// The first varint of every stream of a transfer: what the stream is for.
pub mod stream_kind {
    /// Bidirectional: control of a transfer whose opener sends the files.
    pub const PUSH: u64 = 0x3;
    /// Bidirectional: control of a transfer whose opener receives the files.
    pub const PULL: u64 = 0x4;
    /// Unidirectional: a lane of a session; the session number follows.
    pub const LANE: u64 = 0x11;
}

/// What the opener of a session says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Names the session's lanes; unique among the sessions of a connection.
    pub session: u64,
    /// What to fetch, or the folder to send into; `None` for the top folder.
    pub path: Option<RelativePath>,
}

/// Why no session came about.
#[derive(Debug)]
pub enum OpenError {
    /// The other side says why it does not agree.
    Refused(Refusal),
    /// The other side ended the stream without a word.
    NotOffered,
    /// The other side answers with another message than it may.
    Unexpected,
    /// The answer is no message.
    Malformed(&'static str),
    /// The stream or its connection failed.
    Lost(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "the other side refuses: {refusal}"),
            Self::NotOffered => f.write_str("the server does not transfer files"),
            Self::Unexpected => {
                f.write_str("the server answers with a message that does not belong here")
            }
            Self::Malformed(what) => write!(f, "the server's answer is malformed: {what}"),
            Self::Lost(error) => write!(f, "connection lost: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Says what a control stream is for, and waits for the other side's consent.
///
/// # Errors
/// See [`OpenError`].
pub async fn open<R, W>(
    (reader, writer): (&mut R, &mut W),
    kind: u64,
    opening: Opening,
) -> Result<(), OpenError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let Opening { session, path } = opening;
    let mut bytes = Vec::new();
    put_varint(&mut bytes, kind);
    bytes.extend_from_slice(&Message::Open { session, path }.encode());
    // A server without this service stops the stream; what it says, if anything, is read below.
    let _ = writer.write_all(&bytes).await;
    match read_message(reader).await {
        Ok(Some(Message::Accept)) => Ok(()),
        Ok(Some(Message::Fatal(refusal))) => Err(OpenError::Refused(refusal)),
        Ok(Some(_)) => Err(OpenError::Unexpected),
        Ok(None) => Err(OpenError::NotOffered),
        Err(ReadError::Malformed(Malformed(what))) => Err(OpenError::Malformed(what)),
        Err(ReadError::Lost(error)) => Err(OpenError::Lost(error)),
    }
}

/// Reads what the opener asks for, behind the stream's kind. The caller limits how long.
///
/// # Errors
/// The stream failed, or something else came.
pub async fn read_opening<R>(reader: &mut R) -> Result<Opening, SessionError>
where
    R: AsyncRead + Unpin,
{
    match read_message(reader).await? {
        Some(Message::Open { session, path }) => Ok(Opening { session, path }),
        Some(_) => Err(SessionError::Protocol("a session begins with no opening")),
        None => Err(SessionError::Lost(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Agrees to the session.
///
/// # Errors
/// The stream's.
pub async fn accept<W: AsyncWrite + Unpin>(writer: &mut W) -> io::Result<()> {
    writer.write_all(&Message::Accept.encode()).await
}

/// Says why there is no session, and ends the stream.
///
/// # Errors
/// The stream's.
pub async fn refuse<W: AsyncWrite + Unpin>(mut writer: W, refusal: Refusal) -> io::Result<()> {
    writer.write_all(&Message::Fatal(refusal).encode()).await?;
    writer.shutdown().await
}
