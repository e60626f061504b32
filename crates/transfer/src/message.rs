//! The bytes of the transfer protocol: control messages and lane records.
//!
//! Encodes into a `Vec<u8>`, decodes from slices, and reads whole messages from a control
//! stream. Every length a peer sends is checked against `caps` before anything is kept.
//! Byte layouts are documented in `docs/transfer-format.md`. Knows nothing of files.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};
use towline_wire::Reader;

use crate::caps::{MAX_FILE_SIZE, MAX_MESSAGE_BYTES, MAX_PATH_BYTES};
use crate::encoding::{Malformed, put_varint};
use crate::path::{LinkTarget, RelativePath, printable};
pub(crate) use crate::reason::{Reason, Refusal, put_refusal};
use crate::reason::{get_refusal, get_text};

/// Lane records.
pub(crate) const RECORD_FILE: u64 = 0x1;
/// Length of a BLAKE3 hash, bytes.
pub(crate) const HASH_BYTES: usize = 32;

const ACCEPT: u64 = 0x1;
const OPEN: u64 = 0x2;
const ENTRIES: u64 = 0x10;
const END_OF_LIST: u64 = 0x11;
const ANSWERS: u64 = 0x20;
const RESULTS: u64 = 0x21;
const DONE: u64 = 0x22;
const FATAL: u64 = 0x30;

const ANSWER_SKIP: u64 = 0;
const ANSWER_WANT: u64 = 1;
const ANSWER_REFUSE: u64 = 2;
const ANSWER_MADE: u64 = 3;
const ANSWER_SKIP_WIDER: u64 = 4;

const KIND_FILE: u8 = 0;
const KIND_FOLDER: u8 = 1;
const KIND_END_OF_FOLDER: u8 = 2;
const KIND_LINK: u8 = 3;
const KIND_LEFT_OUT: u8 = 4;
/// The permission bits of a mode; no other bit travels.
pub(crate) const PERMISSIONS: u16 = 0o777;
const FLAG_ONLY_IF_IDENTICAL: u64 = 1;
const FLAG_WIDER: u64 = 2;

/// One line of the manifest.
///
/// A folder's contents stand between it and its [`Entry::EndOfFolder`], so that its mode and time
/// can be set when the last of them is settled, without a list of folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file.
    File {
        path: RelativePath,
        facts: FileFacts,
    },
    /// A folder begins.
    Folder {
        path: RelativePath,
        facts: FolderFacts,
    },
    /// The last folder that began ends.
    EndOfFolder,
    /// A symbolic link.
    Link {
        path: RelativePath,
        target: LinkTarget,
    },
    /// Something that is not sent; the path is for people.
    LeftOut { path: String, refusal: Refusal },
}

/// What the sender's file system says of a file; size and time are its identity for resuming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    pub(crate) size: u64,
    pub(crate) modified: Modified,
    /// Permission bits.
    pub(crate) mode: u16,
}

/// The same of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderFacts {
    pub(crate) modified: Modified,
    /// Permission bits.
    pub(crate) mode: u16,
}

/// A modification time: seconds since 1970 and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modified {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// What the receiver says to one file of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has the same file or link already. `is_wider`: its mode permits more than the sender's.
    Skip { is_wider: bool },
    /// The link is made.
    Made,
    /// Send it, from `have` if the first `have` bytes hash to `hash`, else from 0. `is_wider` is
    /// said of a file in place that may be the same.
    Want {
        have: u64,
        hash: Option<[u8; HASH_BYTES]>,
        only_if_identical: bool,
        is_wider: bool,
    },
    /// It will not take it.
    Refuse(Refusal),
}

/// Everything that travels on a control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The opener's first message; `path` is empty for the top folder.
    Open {
        session: u64,
        path: Option<RelativePath>,
    },
    /// The server's first message when it agrees.
    Accept,
    /// Part of the manifest; entries are numbered from 0 in order.
    Entries(Vec<Entry>),
    /// The manifest is complete.
    EndOfList { entries: u64, bytes: u64 },
    /// Answers by entry number.
    Answers(Vec<(u64, Answer)>),
    /// How files ended, by entry number.
    Results(Vec<(u64, Result<(), Refusal>)>),
    /// Every entry is settled: the receiver's last message, and the sender's answer to it.
    /// `cpu_micros` is the processor time its process spent during the session.
    Done { cpu_micros: u64 },
    /// The session cannot go on; last message of whoever says it.
    Fatal(Refusal),
}

fn get_hash(reader: &mut Reader<'_>) -> Result<[u8; HASH_BYTES], Malformed> {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(reader.bytes(HASH_BYTES)?);
    Ok(hash)
}

fn put_path(out: &mut Vec<u8>, path: &[u8]) {
    put_varint(out, path.len() as u64);
    out.extend_from_slice(path);
}

fn get_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = reader.varint()?;
    let length = usize::try_from(length).map_err(|_| Malformed("a path is too long"))?;
    Ok(reader.bytes(length)?)
}

fn get_path(reader: &mut Reader<'_>) -> Result<RelativePath, Malformed> {
    RelativePath::parse(get_bytes(reader)?).map_err(|bad| Malformed(bad.0))
}

fn put_attributes(out: &mut Vec<u8>, mode: u16, modified: Modified) {
    out.extend_from_slice(&mode.to_be_bytes());
    out.extend_from_slice(&modified.seconds.to_be_bytes());
    out.extend_from_slice(&modified.nanoseconds.to_be_bytes());
}

fn get_attributes(reader: &mut Reader<'_>) -> Result<(u16, Modified), Malformed> {
    let mode = reader.u16()?;
    if mode & !PERMISSIONS != 0 {
        return Err(Malformed("a mode with more than permission bits"));
    }
    let mut seconds = [0; 8];
    seconds.copy_from_slice(reader.bytes(8)?);
    let nanoseconds = reader.u32()?;
    if nanoseconds >= 1_000_000_000 {
        return Err(Malformed("nanoseconds out of range"));
    }
    let modified = Modified {
        seconds: i64::from_be_bytes(seconds),
        nanoseconds,
    };
    Ok((mode, modified))
}

/// Appends one manifest entry; the caller wraps entries with [`Message::wrap_entries`].
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    match entry {
        Entry::File { path, facts } => {
            out.push(KIND_FILE);
            put_path(out, path.as_bytes());
            put_attributes(out, facts.mode, facts.modified);
            put_varint(out, facts.size);
        }
        Entry::Folder { path, facts } => {
            out.push(KIND_FOLDER);
            put_path(out, path.as_bytes());
            put_attributes(out, facts.mode, facts.modified);
        }
        Entry::EndOfFolder => out.push(KIND_END_OF_FOLDER),
        Entry::Link { path, target } => {
            out.push(KIND_LINK);
            put_path(out, path.as_bytes());
            put_path(out, target.as_bytes());
        }
        Entry::LeftOut { path, refusal } => {
            out.push(KIND_LEFT_OUT);
            put_path(out, &path.as_bytes()[..path.len().min(MAX_PATH_BYTES)]);
            put_refusal(out, refusal);
        }
    }
}

fn get_entry(reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
    match reader.u8()? {
        KIND_FILE => {
            let path = get_path(reader)?;
            let (mode, modified) = get_attributes(reader)?;
            let size = reader.varint()?;
            if size > MAX_FILE_SIZE {
                return Err(Malformed("a file is larger than 1 PiB"));
            }
            let facts = FileFacts {
                size,
                modified,
                mode,
            };
            Ok(Entry::File { path, facts })
        }
        KIND_FOLDER => {
            let path = get_path(reader)?;
            let (mode, modified) = get_attributes(reader)?;
            let facts = FolderFacts { modified, mode };
            Ok(Entry::Folder { path, facts })
        }
        KIND_END_OF_FOLDER => Ok(Entry::EndOfFolder),
        KIND_LINK => Ok(Entry::Link {
            path: get_path(reader)?,
            target: LinkTarget::parse(get_bytes(reader)?).map_err(|bad| Malformed(bad.0))?,
        }),
        KIND_LEFT_OUT => {
            let path = get_bytes(reader)?;
            if path.len() > MAX_PATH_BYTES {
                return Err(Malformed("a path is too long"));
            }
            Ok(Entry::LeftOut {
                path: printable(path),
                refusal: get_refusal(reader)?,
            })
        }
        _ => Err(Malformed("an entry of an unknown kind")),
    }
}

fn put_answer(out: &mut Vec<u8>, index: u64, answer: &Answer) {
    put_varint(out, index);
    match answer {
        Answer::Skip { is_wider: false } => put_varint(out, ANSWER_SKIP),
        Answer::Skip { is_wider: true } => put_varint(out, ANSWER_SKIP_WIDER),
        Answer::Made => put_varint(out, ANSWER_MADE),
        Answer::Want {
            have,
            hash,
            only_if_identical,
            is_wider,
        } => {
            put_varint(out, ANSWER_WANT);
            let flags = (u64::from(*only_if_identical) * FLAG_ONLY_IF_IDENTICAL)
                | (u64::from(*is_wider) * FLAG_WIDER);
            put_varint(out, flags);
            match hash {
                Some(hash) => {
                    put_varint(out, *have);
                    out.extend_from_slice(hash);
                }
                None => put_varint(out, 0),
            }
        }
        Answer::Refuse(refusal) => {
            put_varint(out, ANSWER_REFUSE);
            put_refusal(out, refusal);
        }
    }
}

fn get_answer(reader: &mut Reader<'_>) -> Result<(u64, Answer), Malformed> {
    let index = reader.varint()?;
    let answer = match reader.varint()? {
        ANSWER_SKIP => Answer::Skip { is_wider: false },
        ANSWER_SKIP_WIDER => Answer::Skip { is_wider: true },
        ANSWER_MADE => Answer::Made,
        ANSWER_WANT => {
            let flags = reader.varint()?;
            let have = reader.varint()?;
            let hash = if have > 0 {
                Some(get_hash(reader)?)
            } else {
                None
            };
            Answer::Want {
                have,
                hash,
                only_if_identical: flags & FLAG_ONLY_IF_IDENTICAL != 0,
                is_wider: flags & FLAG_WIDER != 0,
            }
        }
        ANSWER_REFUSE => Answer::Refuse(get_refusal(reader)?),
        _ => return Err(Malformed("an answer of an unknown kind")),
    };
    Ok((index, answer))
}

fn put_result(out: &mut Vec<u8>, index: u64, result: &Result<(), Refusal>) {
    put_varint(out, index);
    match result {
        Ok(()) => put_varint(out, 0),
        Err(refusal) => put_refusal(out, refusal),
    }
}

fn get_result(reader: &mut Reader<'_>) -> Result<(u64, Result<(), Refusal>), Malformed> {
    let index = reader.varint()?;
    let code = reader.varint()?;
    let result = if code == 0 {
        Ok(())
    } else {
        Err(Refusal {
            reason: Reason::from_code(code),
            text: get_text(reader)?,
        })
    };
    Ok((index, result))
}

/// Wraps a body: type, length, body.
fn wrap(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 6);
    put_varint(&mut out, kind);
    put_varint(&mut out, body.len() as u64);
    out.extend_from_slice(body);
    out
}

impl Message {
    /// Wraps entries already encoded with [`put_entry`].
    pub(crate) fn wrap_entries(body: &[u8]) -> Vec<u8> {
        wrap(ENTRIES, body)
    }

    /// The whole message. Lists hold at most `MAX_ITEMS_PER_MESSAGE` items.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match self {
            Self::Open { session, path } => {
                put_varint(&mut body, *session);
                let path = path.as_ref().map_or(&[][..], RelativePath::as_bytes);
                put_varint(&mut body, path.len() as u64);
                body.extend_from_slice(path);
                OPEN
            }
            Self::Accept => ACCEPT,
            Self::Entries(entries) => {
                entries.iter().for_each(|entry| put_entry(&mut body, entry));
                ENTRIES
            }
            Self::EndOfList { entries, bytes } => {
                put_varint(&mut body, *entries);
                put_varint(&mut body, *bytes);
                END_OF_LIST
            }
            Self::Answers(answers) => {
                answers
                    .iter()
                    .for_each(|(index, answer)| put_answer(&mut body, *index, answer));
                ANSWERS
            }
            Self::Results(results) => {
                results
                    .iter()
                    .for_each(|(index, result)| put_result(&mut body, *index, result));
                RESULTS
            }
            Self::Done { cpu_micros } => {
                put_varint(&mut body, *cpu_micros);
                DONE
            }
            Self::Fatal(refusal) => {
                put_refusal(&mut body, refusal);
                FATAL
            }
        };
        wrap(kind, &body)
    }

    /// Decodes a body of the given type.
    pub(crate) fn decode(kind: u64, body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let message = match kind {
            OPEN => {
                let session = reader.varint()?;
                let length = reader.varint()?;
                let length =
                    usize::try_from(length).map_err(|_| Malformed("a path is too long"))?;
                let path = match reader.bytes(length)? {
                    [] => None,
                    path => Some(RelativePath::parse(path).map_err(|bad| Malformed(bad.0))?),
                };
                Self::Open { session, path }
            }
            ACCEPT => Self::Accept,
            ENTRIES => Self::Entries(get_list(&mut reader, get_entry)?),
            END_OF_LIST => Self::EndOfList {
                entries: reader.varint()?,
                bytes: reader.varint()?,
            },
            ANSWERS => Self::Answers(get_list(&mut reader, get_answer)?),
            RESULTS => Self::Results(get_list(&mut reader, get_result)?),
            DONE => Self::Done {
                cpu_micros: reader.varint()?,
            },
            FATAL => Self::Fatal(get_refusal(&mut reader)?),
            _ => return Err(Malformed("a message of an unknown type")),
        };
        if !reader.is_empty() {
            return Err(Malformed("bytes left over in a message"));
        }
        Ok(message)
    }
}

fn get_list<T>(
    reader: &mut Reader<'_>,
    get: fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut list = Vec::new();
    while !reader.is_empty() {
        list.push(get(reader)?);
    }
    Ok(list)
}

/// Why no message could be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The stream or its connection failed, or ended inside a message.
    Lost(io::Error),
    /// The peer's fault.
    Malformed(Malformed),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Reads one varint; `None` at the end of the stream before its first byte.
pub async fn read_varint<R: AsyncRead + Unpin>(stream: &mut R) -> io::Result<Option<u64>> {
    let mut bytes = [0u8; 8];
    if stream.read(&mut bytes[..1]).await? == 0 {
        return Ok(None);
    }
    let length = 1usize << (bytes[0] >> 6);
    stream.read_exact(&mut bytes[1..length]).await?;
    bytes[0] &= 0x3f;
    let value = bytes[..length]
        .iter()
        .fold(0, |value, &byte| value << 8 | u64::from(byte));
    Ok(Some(value))
}

/// Reads one message; `None` at a clean end. Not cancellation safe: a dropped call may
/// have consumed part of a message.
pub(crate) async fn read_message<R: AsyncRead + Unpin>(
    stream: &mut R,
) -> Result<Option<Message>, ReadError> {
    let Some(kind) = read_varint(stream).await? else {
        return Ok(None);
    };
    let length = read_varint(stream)
        .await?
        .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    if length > MAX_MESSAGE_BYTES as u64 {
        return Err(ReadError::Malformed(Malformed(
            "a message is larger than 64 KiB",
        )));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await?;
    Message::decode(kind, &body)
        .map(Some)
        .map_err(ReadError::Malformed)
}
